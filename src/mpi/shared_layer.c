/* A layer whose weights lie on several ranks: made or read from a file, filled, counted. */
#include <string.h>

#include "mha/setting.h"
#include "mpi/shared.h"

static uint64_t digest_of(const mha_config *c, mha_split_scheme scheme)
{
    const mha_config_field *f;
    uint64_t digest = mha__mpi_digest(0, &scheme, sizeof scheme);
    for (size_t i = 0; (f = mha_config_field_at(i)) != NULL; i++)
        digest = mha__mpi_digest(digest, (const char *)c + f->at, f->bytes);
    return digest;
}

/* Where a rank's share of a layer comes from: a config, and then it has no values; or a file. */
typedef struct origin {
    const mha_config *config;
    const char *prefix;
    const char *path;
    const mha_load_options *options;
    mha_load_report *report;
    mha_params *table;
} origin;

static mha_status create(mha_mpi_layer *made, const origin *from, mha_error *error)
{
    if (from->config) {
        made->split.config = *from->config;
        TRY(mha_split_check(&made->split, error));
        const mha_share share = mha_split_share(&made->split, made->rank);
        return mha_layer_create(&share.config, from->table, from->prefix, &made->own, error);
    }
    mha_file *file;
    TRY(mha_file_open(from->path, &file, error));
    const mha_status status = mha_model_load_share(file, from->options, &made->split, made->rank, from->table,
                                                   &made->own, from->report, error);
    mha_file_close(file);
    return status;
}

static mha_status share_layer(MPI_Comm comm, mha_split_scheme scheme, const origin *from, mha_mpi_layer **layer,
                              mha_error *e)
{
    int size = 0, rank = 0;
    MPI_Comm own;
    TRY(mha__mpi_status(MPI_Comm_dup(comm, &own), e));
    TRY(mha__mpi_status(MPI_Comm_size(own, &size), e));
    TRY(mha__mpi_status(MPI_Comm_rank(own, &rank), e));
    const mha_allocator allocator = mha__allocator_default();
    mha_mpi_layer *made = mha__allocate(&allocator, sizeof *made);
    mha_status status = MHA_OK;
    if (made) {
        *made = (mha_mpi_layer){.comm = own, .rank = (size_t)rank, .split = {.scheme = scheme, .ranks = (size_t)size}};
        status = create(made, from, e);
    } else {
        status = mha__fail(e, MHA_NO_MEMORY, "layer", "no memory for a layer");
    }
    status = mha__mpi_agree(own, status, made && status == MHA_OK ? digest_of(&made->split.config, scheme) : 1, e);
    if (status != MHA_OK) {
        mha_layer_destroy(made ? made->own : NULL);
        mha__release(&allocator, made, sizeof *made);
        (void)MPI_Comm_free(&own);
        return status;
    }
    *layer = made;
    return MHA_OK;
}

mha_status mha_mpi_layer_create(MPI_Comm comm, mha_split_scheme scheme, const mha_config *config, mha_params *table,
                                const char *prefix, mha_mpi_layer **layer, mha_error *error)
{
    mha_error held = {0};
    const origin from = {.config = config, .prefix = prefix, .table = table};
    return share_layer(comm, scheme, &from, layer, error ? error : &held);
}

mha_status mha_mpi_layer_load(MPI_Comm comm, mha_split_scheme scheme, const char *path,
                              const mha_load_options *options, mha_params *table, mha_mpi_layer **layer,
                              mha_load_report *report, mha_error *error)
{
    mha_error held = {0};
    const origin from = {.path = path, .options = options, .report = report, .table = table};
    return share_layer(comm, scheme, &from, layer, error ? error : &held);
}

void mha_mpi_layer_destroy(mha_mpi_layer *layer)
{
    if (!layer)
        return;
    const mha_allocator allocator = mha__allocator_default();
    mha__arena_free(&layer->spare);
    mha_layer_destroy(layer->own);
    (void)MPI_Comm_free(&layer->comm);
    mha__release(&allocator, layer, sizeof *layer);
}

const mha_config *mha_mpi_layer_config(const mha_mpi_layer *layer)
{
    return &layer->split.config;
}

mha_layer *mha_mpi_layer_own(const mha_mpi_layer *layer)
{
    return layer->own;
}

mha_status mha_mpi_layer_set(mha_mpi_layer *layer, mha_weight weight, const mha_view *whole, mha_error *error)
{
    const mha_config *c = &layer->split.config;
    size_t shape[2];
    const int rank = mha_config_weight_shape(c, weight, shape, NULL);
    if (rank == 0)
        return mha__fail(error, MHA_NOT_FOUND, mha_weight_at(weight) ? mha_weight_at(weight)->name : "weight",
                         "expected a weight of the layer, found none");
    TRY(mha__expect_shape(error, mha_weight_at(weight)->name, whole, rank, shape));
    const mha_view part = mha_split_slice(&layer->split, layer->rank, weight, whole);
    if (!mha_layer_weight(layer->own, weight)) /* another rank has it */
        return MHA_OK;
    return mha_layer_set(layer->own, weight, &part, error);
}

mha_status mha_mpi_layer_take(mha_mpi_layer *layer, const mha_layer *whole, mha_error *error)
{
    if (!mha_config_same(mha_layer_config(whole), &layer->split.config))
        return mha__fail(error, MHA_INVALID, "layer", "expected a whole layer of the config that is shared");
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *tensor = mha_layer_weight(whole, (mha_weight)w);
        const mha_view view = tensor ? mha_tensor_view(tensor) : (mha_view){0};
        if (tensor && !view.data)
            return mha__fail(error, MHA_NO_MEMORY, mha_weight_at((mha_weight)w)->name, "no memory to unpack it");
        if (tensor)
            TRY(mha_mpi_layer_set(layer, (mha_weight)w, &view, error));
    }
    return MHA_OK;
}

mha_status mha_mpi_layer_share(const mha_mpi_layer *layer, size_t B, size_t T_q, size_t T_k, mha_dtype dtype,
                               mha_share *share, mha_error *error)
{
    mha_split split = layer->split;
    split.B = B, split.T_q = T_q, split.T_k = T_k, split.dtype = dtype;
    TRY(mha_split_check(&split, error));
    *share = mha_split_share(&split, layer->rank);
    return MHA_OK;
}

mha_status mha_mpi_totals(const mha_mpi_layer *layer, mha_mpi_sum *sum, mha_error *error)
{
    uint64_t own[MHA_WEIGHT_COUNT] = {0}, all[MHA_WEIGHT_COUNT];
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *tensor = mha_layer_weight(layer->own, (mha_weight)w);
        own[w] = tensor ? mha_tensor_info_of(tensor).elements : 0;
    }
    TRY(mha__mpi_status(MPI_Allreduce(own, all, MHA_WEIGHT_COUNT, MPI_UINT64_T, MPI_SUM, layer->comm), error));
    *sum = (mha_mpi_sum){0};
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        sum->weights[w].stored = all[w];
        sum->weights[w].copies = mha_split_copies(&layer->split, (mha_weight)w);
        sum->stored += all[w];
        sum->unique += all[w] / sum->weights[w].copies;
    }
    return MHA_OK;
}
