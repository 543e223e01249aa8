/* One call on all ranks: the layer cut into shares, the rows of each rank, the forward and its time. */
#include "cli/mpi/commands_mpi.h"
#include "mpi/shared.h"

/* Whether every rank has all rows of inputs and output. */
static bool has_all_rows(mha_split_scheme scheme)
{
    return scheme == MHA_SPLIT_TENSOR || scheme == MHA_SPLIT_CACHE;
}

/* The rows of a whole (B, T, width) or (B, T, heads, width) that the rank has, side by side in memory of the arena. */
static mha_view rows_of_rank(const mha_view *whole, const mha_share *share, bool keys, mha__arena *arena)
{
    const mha_range *chunks = keys ? share->keys : share->queries;
    const size_t rows = chunks[0].count + chunks[1].count;
    const mha_view to = obtain_view(arena, whole->dtype, whole->rank,
                                    (size_t[]){whole->shape[0], rows, whole->shape[2], whole->shape[3]});
    mha__mpi_gather(whole, chunks, share->chunks, &to);
    return to;
}

double compare_shared(const mha_view *whole, const shared_call *call, const shared_result *result, double rtol,
                      double atol, mha__arena *arena, uint64_t *mismatches)
{
    const mha_view expected =
        has_all_rows(call->scheme) ? *whole : rows_of_rank(whole, &result->own.share, false, arena);
    mha_difference d = {0};
    if (mha_view_elements(&expected) > 0 && mha_compare(&result->output, &expected, rtol, atol, &d, NULL) != MHA_OK)
        d.mismatches = 1; /* unreachable: their shapes are equal */
    uint64_t own = d.mismatches;
    double most = d.max_abs;
    MPI_Allreduce(&own, mismatches, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&d.max_abs, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* The whole call, as it is shared: heads and widths of the layer, or of query, key and value. */
static mha_split split_of(const shared_call *s)
{
    const mha_view *q = &s->call.query, *k = s->call.key.rank ? &s->call.key : q,
                   *v = s->call.value.rank ? &s->call.value : k;
    mha_split split = {.scheme = s->scheme, .B = q->shape[0], .T_q = q->shape[1], .T_k = k->shape[1],
                       .dtype = s->call.path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32, .absorbed = s->call.absorbed};
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    split.ranks = (size_t)ranks;
    split.config = s->layer ? *mha_layer_config(s->layer)
                            : (mha_config){.d_model = 1, .n_heads = q->shape[2], .kv_heads = k->shape[2],
                                           .d_k = q->shape[3], .d_v = v->shape[3]};
    if (s->scheme == MHA_SPLIT_CACHE) {
        split.cached = s->past[0].data ? s->past[0].shape[2] : 0;
        split.capacity = (split.cached + split.T_k + split.ranks - 1) / split.ranks;
        split.capacity += split.capacity == 0;
    }
    return split;
}

/* This rank's cache: of its key/value heads or of latents, and where its rows are shared, of its rows. */
static mha_status make_cache(const shared_call *s, const mha_split *split, const mha_share *share, size_t rank,
                             mha_cache **cache, mha_error *error)
{
    mha_view past[2] = {s->past[0], s->past[1]};
    const mha_config *c = &split->config;
    mha_cache_spec spec = {.batch = split->B, .kv_heads = share->kv_heads.count, .d_k = c->d_k, .d_v = c->d_v,
                           .capacity = split->capacity,
                           .dtype = s->call.path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    if (split->absorbed)
        spec.kv_heads = 1, spec.d_k = c->kv_rank + c->d_rope, spec.d_v = 0;
    if (past[0].data && split->capacity == 0)
        spec.capacity = past[0].shape[2] + split->T_k;
    TRY(mha_cache_create(&spec, NULL, cache, error));
    for (int i = 0; i < 2 && past[0].data; i++) {
        const size_t first = rank * split->capacity, left = split->cached > first ? split->cached - first : 0;
        if (!split->absorbed)
            past[i] = mha_view_slice(&past[i], 1, share->kv_heads.from, share->kv_heads.count);
        if (split->capacity > 0)
            past[i] = mha_view_slice(&past[i], 2, left ? first : 0, left < split->capacity ? left : split->capacity);
    }
    return past[0].data ? mha_cache_load(*cache, &past[0], &past[1], error) : MHA_OK;
}

/* The call of this rank, run as often as asked; status and error are the same on all ranks. */
static void forward(const shared_call *s, mha_mpi_layer *layer, mha_call *call, const mha_split *split,
                    shared_result *r)
{
    const size_t rounds = s->rounds ? s->rounds : 1, held = call->cache ? mha_cache_length(call->cache) : 0;
    double *times = keep(obtain(rounds, sizeof *times)), *slowest = keep(obtain(rounds, sizeof *slowest));
    for (size_t i = 0; i < rounds && r->status == MHA_OK; i++) {
        if (call->cache)
            mha_cache_truncate(call->cache, held);
        MPI_Barrier(MPI_COMM_WORLD);
        const double begun = MPI_Wtime();
        r->status = layer ? mha_mpi_forward(layer, call, split->T_q, split->T_k, &r->error)
                          : mha_mpi_attend(MPI_COMM_WORLD, s->scheme, call, split->T_q, split->T_k, &r->error);
        times[i] = (MPI_Wtime() - begun) * 1e3;
    }
    MPI_Allreduce(times, slowest, (int)rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    sort_numbers(times, rounds);
    sort_numbers(slowest, rounds);
    r->own.ms = times[rounds / 2];
    r->ms = slowest[rounds / 2];
    r->quartiles[0] = slowest[rounds / 4], r->quartiles[1] = slowest[rounds - 1 - rounds / 4];
}

/* The layer's share, taken from the whole layer or read from its file, and what is stored of it. */
static mha_status share_layer(const shared_call *s, mha_mpi_layer **layer, shared_result *r)
{
    if (!s->layer)
        return MHA_OK;
    if (s->path) {
        TRY(mha_mpi_layer_load(MPI_COMM_WORLD, s->scheme, s->path, s->options, NULL, layer, NULL, &r->error));
    } else {
        TRY(mha_mpi_layer_create(MPI_COMM_WORLD, s->scheme, mha_layer_config(s->layer), NULL, NULL, layer, &r->error));
        TRY(mha_mpi_layer_take(*layer, s->layer, &r->error)); /* fails on all ranks alike, as sizes decide it */
    }
    if (s->rounds > 1) /* as the one process has it; without memory the other way to compute is taken */
        (void)mha_layer_pack(mha_mpi_layer_own(*layer), NULL);
    r->own.parameters = mha_params_totals(mha_layer_params(mha_mpi_layer_own(*layer)), NULL).parameters;
    return mha_mpi_totals(*layer, &r->totals, &r->error);
}

void run_shared(const shared_call *s, mha__arena *arena, shared_result *r)
{
    mha_split split = split_of(s);
    mha_mpi_layer *layer = NULL;
    mha_call call = s->call;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    *r = (shared_result){.status = MHA_OK};
    r->status = mha_split_check(&split, &r->error);
    r->status = mha__mpi_agree(MPI_COMM_WORLD, r->status, 0, &r->error); /* other files may have other sizes */
    if (r->status == MHA_OK)
        r->status = share_layer(s, &layer, r);
    r->split = split;
    if (r->status == MHA_OK) {
        mha_share *share = &r->own.share;
        *share = mha_split_share(&split, (size_t)rank);
        mha_view *inputs[] = {&call.query, &call.key, &call.value};
        for (int i = 0; i < 3 && !has_all_rows(s->scheme); i++)
            if (inputs[i]->rank)
                *inputs[i] = rows_of_rank(inputs[i], share, i > 0, arena);
        const size_t width = s->layer ? split.config.d_out : split.config.n_heads;
        r->output = call.output = obtain_view(arena, split.dtype, s->layer ? 3 : 4,
                                              (size_t[]){split.B, call.query.shape[1], width, split.config.d_v});
        call.keep = NULL, call.keep_count = 0;
        if (s->past[0].data || s->scheme == MHA_SPLIT_CACHE)
            r->status = make_cache(s, &split, share, (size_t)rank, &call.cache, &r->error);
        r->status = mha__mpi_agree(MPI_COMM_WORLD, r->status, 0, &r->error);
    }
    if (r->status == MHA_OK && layer)
        r->status = mha_mpi_layer_memory(layer, &call, split.T_q, split.T_k, &r->own.memory, &r->error);
    if (r->status == MHA_OK)
        forward(s, layer, &call, &split, r);
    mha_cache_destroy(call.cache);
    mha_mpi_layer_destroy(layer);
}
