/* One call on all ranks: the layer cut into shares, the rows of each rank, the forward and its time. */
#include <stdlib.h>

#include "cli/output/print.h"
#include "cli/mpi/run_shared.h"

bool has_all_rows(mha_split_scheme scheme)
{
    return scheme == MHA_SPLIT_TENSOR || scheme == MHA_SPLIT_CACHE;
}

mha_view rows_of_rank(const mha_view *whole, const mha_share *share, bool keys, mha__arena *arena)
{
    const mha_range *chunks = keys ? share->keys : share->queries;
    const size_t rows = chunks[0].count + chunks[1].count;
    const mha_view to =
        obtain_view(arena, whole->dtype, 3, (size_t[]){whole->shape[0], rows, whole->shape[2]});
    for (size_t i = 0, at = 0; i < share->chunks; at += chunks[i].count, i++) {
        const mha_view from = mha_view_slice(whole, 1, chunks[i].from, chunks[i].count),
                       part = mha_view_slice(&to, 1, at, chunks[i].count);
        (void)mha_view_copy(&part, &from);
    }
    return to;
}

/* The cache of this rank's key/value heads. */
static mha_status make_cache(const shared_call *s, const mha_share *share, size_t T_k, mha_cache **cache,
                             mha_error *error)
{
    mha_view past[2];
    for (int i = 0; i < 2; i++)
        past[i] = mha_view_slice(&s->past[i], 1, share->kv_heads.from, share->kv_heads.count);
    const mha_cache_spec spec = {.batch = past[0].shape[0], .kv_heads = past[0].shape[1], .d_k = past[0].shape[3],
                                 .d_v = past[1].shape[3], .capacity = past[0].shape[2] + T_k,
                                 .dtype = s->call.path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    const mha_status status = mha_cache_create(&spec, NULL, cache, error);
    return status == MHA_OK ? mha_cache_load(*cache, &past[0], &past[1], error) : status;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The call of this rank, run as often as asked; status and error are the same on all ranks. */
static void forward(const shared_call *s, mha_mpi_layer *layer, mha_call *call, size_t T_q, size_t T_k,
                    shared_result *r)
{
    const size_t rounds = s->rounds ? s->rounds : 1;
    double *times = obtain(rounds, sizeof *times);
    for (size_t i = 0; i < rounds && r->status == MHA_OK; i++) {
        if (call->cache)
            mha_cache_truncate(call->cache, s->past[0].shape[2]);
        const double begun = MPI_Wtime();
        r->status = mha_mpi_forward(layer, call, T_q, T_k, &r->error);
        times[i] = (MPI_Wtime() - begun) * 1e3;
    }
    qsort(times, rounds, sizeof *times, by_size);
    r->own.ms = times[rounds / 2];
    free(times);
}

void run_shared(const shared_call *s, mha__arena *arena, shared_result *r)
{
    const mha_config *config = mha_layer_config(s->layer);
    const bool exact = s->call.path == MHA_PATH_EXACT;
    const mha_view *query = &s->call.query, *key = s->call.key.rank ? &s->call.key : query;
    const size_t B = query->shape[0], T_q = query->shape[1], T_k = key->shape[1];
    mha_mpi_layer *layer = NULL;
    mha_call call = s->call;
    *r = (shared_result){.status = MHA_OK};
    r->status = mha_mpi_layer_create(MPI_COMM_WORLD, s->scheme, config, NULL, NULL, &layer, &r->error);
    if (r->status != MHA_OK)
        return;
    /* What can fail from here on fails on all ranks alike, as sizes decide it, or is found by the forward. */
    if ((r->status = mha_mpi_layer_share(layer, B, T_q, T_k, exact ? MHA_F64 : MHA_F32, &r->own.share, &r->error)) ==
        MHA_OK)
        r->status = mha_mpi_layer_take(layer, s->layer, &r->error);
    if (r->status == MHA_OK) {
        r->own.parameters = mha_params_totals(mha_layer_params(mha_mpi_layer_own(layer)), NULL).parameters;
        r->status = mha_mpi_totals(layer, &r->totals, &r->error);
    }
    if (r->status == MHA_OK && !has_all_rows(s->scheme)) {
        call.query = rows_of_rank(query, &r->own.share, false, arena);
        call.key = s->call.key.rank ? rows_of_rank(&s->call.key, &r->own.share, true, arena) : (mha_view){0};
        call.value = s->call.value.rank ? rows_of_rank(&s->call.value, &r->own.share, true, arena) : (mha_view){0};
    }
    call.output = obtain_view(arena, exact ? MHA_F64 : MHA_F32, 3,
                              (size_t[]){B, call.query.shape[1], config->d_out});
    call.keep = NULL, call.keep_count = 0;
    r->output = call.output;
    if (r->status == MHA_OK && s->past[0].data)
        r->status = make_cache(s, &r->own.share, T_k, &call.cache, &r->error);
    if (r->status == MHA_OK)
        forward(s, layer, &call, T_q, T_k, r);
    mha_cache_destroy(call.cache);
    mha_mpi_layer_destroy(layer);
}
