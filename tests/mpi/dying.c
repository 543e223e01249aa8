/* dying SCHEME DIRECTORY: one forward in which the last rank is killed, with SIGKILL, at its message number DYING_AT
 * (from 1; 0: it lives). Every rank's output is a file in the directory, filled with 0x5A before: tests/mpi/dying.sh
 * looks at it when all are gone. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mha/lab.h"
#include "mha/mpi.h"
#include "support/trial.h"

static int rank, ranks, messages, last;

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    if (++messages == last)
        raise(SIGKILL);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int main(int argc, char **argv)
{
    enum { T = 24, D = 32 };
    static const mha_config config = {.d_model = D, .n_heads = 8};
    int provided = 0;
    mha_split_scheme scheme = MHA_SPLIT_TENSOR;
    char path[300];
    mha_error error;
    mha_mpi_layer *layer = NULL;
    mha_share share;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(path, sizeof path, "%s/%d", argv[2], rank);
    const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    float *y = ftruncate(file, T * D * sizeof(float)) ? MAP_FAILED
                                                      : mmap(NULL, T * D * sizeof(float), PROT_READ | PROT_WRITE,
                                                             MAP_SHARED, file, 0);
    if (!mha_split_scheme_find(argv[1], &scheme) || y == MAP_FAILED ||
        mha_mpi_layer_create(MPI_COMM_WORLD, scheme, &config, NULL, NULL, &layer, &error) ||
        mha_mpi_layer_share(layer, 1, T, T, MHA_F32, &share, &error))
        MPI_Abort(MPI_COMM_WORLD, 2);
    memset(y, 0x5A, T * D * sizeof(float));
    mha_layer_init(mha_mpi_layer_own(layer), 1);
    const size_t rows = scheme == MHA_SPLIT_TENSOR ? T : share.queries[0].count + share.queries[1].count;
    static float x[T * D];
    const mha_call call = {.query = mha_rows(x, 1, rows, D), .output = mha_rows(y, 1, rows, D), .path = MHA_PATH_FAST,
                           .threads = 1};
    last = rank == ranks - 1 ? (int)trial_number("DYING_AT", 0) : 0;
    if (mha_mpi_forward(layer, &call, T, T, &error))
        MPI_Abort(MPI_COMM_WORLD, 3);
    mha_mpi_layer_destroy(layer);
    printf("rank %d sent %d messages\n", rank, messages);
    MPI_Finalize();
    return 0;
}
