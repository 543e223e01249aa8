/* A layer of which each rank has its rows: keys go round in a ring, and the output is that of one process. */
#include <mha/mha.h>
#include <mha/mpi.h>
#include <stdio.h>

enum { T = 10, D = 32 };
static float x[T * D], y[T * D]; /* T tokens of D features; a rank uses its rows of them */

int main(int argc, char **argv)
{
    mha_mpi_layer *layer = NULL;
    mha_share share;
    mha_error error;
    const mha_config config = {.d_model = D, .n_heads = 4};
    MPI_Init(&argc, &argv);
    mha_status status = mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_RING, &config, NULL, NULL, &layer, &error);
    if (status == MHA_OK)
        status = mha_mpi_layer_share(layer, 1, T, T, MHA_F32, &share, &error);
    if (status == MHA_OK) {
        const size_t from = share.queries[0].from, count = share.queries[0].count;
        const mha_view whole = mha_rows(x, 1, T, D);
        mha_random_fill(&whole, 7, 100, -1.0f, 1.0f); /* the same numbers on all ranks */
        mha_layer_init(mha_mpi_layer_own(layer), 7); /* and the same weights */
        const mha_call call = {.query = mha_rows(x + from * D, 1, count, D),
                               .output = mha_rows(y + from * D, 1, count, D),
                               .semantics = {.visible = {.causal = true}}};
        status = mha_mpi_forward(layer, &call, T, T, &error);
        printf("rows %zu to %zu, y[0] = %.4f\n", from, from + count - 1, (double)y[from * D]);
    }
    if (status != MHA_OK) /* the same on every rank */
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    mha_mpi_layer_destroy(layer);
    MPI_Finalize();
    return status != MHA_OK;
}
