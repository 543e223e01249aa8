/* Makes the inputs and the layer of a benchmark shape, and times it. */
#include "bench/timed_run.h"

#include <math.h>

#include "base/base.h"
#include "lab/lab.h"

enum { QUERY_STREAM = 48, KEY_STREAM, VALUE_STREAM };
static const double enough_ms = 4, long_ms = 500;

/* Takes memory for n floats from the arena. The system grants large blocks that it may not have, so the free memory
 * is compared first. */
static mha_status take(mha__arena *arena, size_t n, float **data, mha_error *error)
{
    const size_t large = (size_t)1 << 28;
    size_t bytes = SIZE_MAX;
    const bool fits = mha__mul(n, sizeof **data, &bytes) && (bytes < large || bytes <= mha__memory_at_hand());
    *data = fits ? mha__arena_take(arena, bytes) : NULL;
    return *data ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, "", "expected %zu bytes of memory, found fewer", bytes);
}

/* Takes memory for n floats and fills it with uniform random values of variance 1. */
static mha_status take_random(mha__arena *arena, size_t n, uint64_t stream, float **data, mha_error *error)
{
    TRY(take(arena, n, data, error));
    mha_view view = mha_view_of(*data, MHA_F32, 1, &n);
    mha_random_fill(&view, 0, stream, -sqrtf(3.0f), sqrtf(3.0f));
    return MHA_OK;
}

/* Makes the cache, or one that B sequences share, and fills its rows before the new one with random values. */
static mha_status fill_cache(bench_subject *b, mha_error *error)
{
    const bench_shape *s = &b->shape;
    const size_t B = s->shared ? 1 : s->B;
    const size_t shape[4] = {B, s->h_kv, s->T_k - 1, s->d_k}, n = shape[0] * shape[1] * shape[2] * shape[3];
    mha_cache_spec spec = {
        .batch = B, .kv_heads = s->h_kv, .d_k = s->d_k, .d_v = s->d_k, .capacity = s->T_k, .dtype = s->cache};
    mha__arena aside = {.allocator = mha__allocator_default()};
    float *keys, *values;
    mha_cache **filled = s->shared ? &b->trunk : &b->cache;
    TRY(mha_cache_create(&spec, NULL, filled, error));
    mha_status status = take_random(&aside, n, KEY_STREAM, &keys, error);
    if (status == MHA_OK)
        status = take_random(&aside, n, VALUE_STREAM, &values, error);
    if (status == MHA_OK) {
        mha_view k = mha_view_of(keys, MHA_F32, 4, shape), v = mha_view_of(values, MHA_F32, 4, shape);
        status = mha_cache_load(*filled, &k, &v, error);
    }
    if (status == MHA_OK && s->shared)
        status = mha_cache_continue(b->trunk, s->B, 1, NULL, &b->cache, error);
    b->call.cache = b->cache;
    mha__arena_free(&aside);
    return status;
}

/* Makes Q, K and V. For decoding, K and V are in the order of a cache, or in a cache if its type is not F32 or
 * it is shared. */
static mha_status make_core(bench_subject *b, mha_error *error)
{
    const bench_shape *s = &b->shape;
    const bool cached = s->shared || (bench_decodes(s) && s->cache != MHA_F32);
    const mha_layout layout = bench_decodes(s) ? MHA_BHTD : MHA_BTHD;
    const size_t T_k = cached ? s->T_q : s->T_k, queries = s->B * s->T_q * s->h * s->d_k,
                 keys = s->B * T_k * s->h_kv * s->d_k;
    TRY(take_random(&b->memory, queries, QUERY_STREAM, &b->query, error));
    TRY(take_random(&b->memory, keys, KEY_STREAM, &b->key, error));
    TRY(take_random(&b->memory, keys, VALUE_STREAM, &b->value, error));
    TRY(take(&b->memory, queries, &b->output, error));
    b->call.query = mha_view_heads(b->query, MHA_F32, MHA_BTHD, s->B, s->T_q, s->h, s->d_k);
    b->call.key = mha_view_heads(b->key, MHA_F32, layout, s->B, T_k, s->h_kv, s->d_k);
    b->call.value = mha_view_heads(b->value, MHA_F32, layout, s->B, T_k, s->h_kv, s->d_k);
    b->call.output = mha_view_rows(b->output, MHA_F32, MHA_BTE, s->B, s->T_q, s->h * s->d_k);
    return cached ? fill_cache(b, error) : MHA_OK;
}

static mha_status make_layer(bench_subject *b, mha_error *error)
{
    const bench_shape *s = &b->shape;
    mha_config config = {.d_model = s->d_model, .n_heads = s->h, .kv_heads = s->h_kv, .d_k = s->d_k, .bias_q = s->bias,
                         .bias_k = s->bias, .bias_v = s->bias, .bias_o = s->bias, .dtype = s->weights};
    const size_t rows = s->B * s->T_q * s->d_model;
    TRY(mha_params_create(NULL, &b->table, error));
    TRY(mha_layer_create(&config, b->table, NULL, &b->weights, error));
    if (bench_decodes(s)) /* first: what fills it is released before the weights take memory */
        TRY(fill_cache(b, error));
    if (b->packs) /* before there is a number in them: each weight is then never there twice */
        TRY(mha_layer_pack(b->weights, error));
    mha_layer_init(b->weights, 0);
    TRY(take_random(&b->memory, rows, QUERY_STREAM, &b->query, error));
    TRY(take(&b->memory, rows, &b->output, error));
    b->call.query = mha_view_rows(b->query, MHA_F32, MHA_BTE, s->B, s->T_q, s->d_model);
    b->call.output = mha_view_rows(b->output, MHA_F32, MHA_BTE, s->B, s->T_q, s->d_model);
    if (bench_crosses(s)) {
        TRY(take_random(&b->memory, s->B * s->T_k * s->d_model, KEY_STREAM, &b->key, error));
        b->call.key = mha_view_rows(b->key, MHA_F32, MHA_BTE, s->B, s->T_k, s->d_model);
    }
    return MHA_OK;
}

/* Makes the mask that keeps each query to its document, (T_q, T_k) bytes. */
static mha_status make_mask(bench_subject *b, mha_error *error)
{
    const bench_shape *s = &b->shape;
    float *room;
    TRY(take(&b->memory, s->T_q * s->T_k / sizeof *room + 1, &room, error));
    uint8_t *keeps = (uint8_t *)(void *)room;
    for (size_t i = 0; i < s->T_q; i++)
        for (size_t j = 0; j < s->T_k; j++)
            keeps[i * s->T_k + j] = bench_keeps(s, i, j);
    b->call.semantics.visible.mask =
        (mha_mask){MHA_MASK_KEEPS, mha_view_of(keeps, MHA_BOOL, 2, (size_t[]){s->T_q, s->T_k})};
    return MHA_OK;
}

mha_status bench_subject_make(bench_subject *b, const bench_shape *shape, bench_part part, bool packs, mha_error *error)
{
    *b = (bench_subject){.shape = *shape, .part = part, .packs = packs, .memory.allocator = mha__allocator_default()};
    b->call.semantics.visible.causal = part != BENCH_PROJ && shape->causal;
    b->call.semantics.visible.has_window_left = b->call.semantics.visible.has_window_right = part == BENCH_PROJ;
    b->call.precision = mha_precision_of(shape->precision);
    TRY(part == BENCH_CORE ? make_core(b, error) : make_layer(b, error));
    if (shape->docs && part != BENCH_PROJ)
        TRY(make_mask(b, error));
    const size_t n = mha_view_elements(&b->call.output); /* written here, so that no run counts these pages */
    for (size_t i = 0; i < n; i++)
        b->output[i] = NAN;
    return MHA_OK;
}

static void free_workspace(bench_subject *b)
{
    mha__release(&b->memory.allocator, b->workspace, b->workspace_bytes);
    b->workspace = NULL;
    b->workspace_bytes = 0;
}

void bench_subject_forget(bench_subject *b)
{
    free_workspace(b);
    if (b->weights)
        mha_layer_drop_views(b->weights);
}

void bench_subject_free(bench_subject *b)
{
    free_workspace(b);
    mha_cache_destroy(b->cache);
    mha_cache_destroy(b->trunk);
    mha_layer_destroy(b->weights);
    mha_params_destroy(b->table);
    mha__arena_free(&b->memory);
    *b = (bench_subject){0};
}

/* The time between the third and the fourth projection of the last run, in ms. */
static double between_projections(const bench_subject *b)
{
    double ms = 0;
    for (size_t i = 0; i < b->call.keep_count; i++)
        ms += b->timed[i].ms;
    return ms;
}

/* The mean time of `runs` runs. */
static mha_status time_runs(bench_subject *b, const mha_plan *plan, size_t runs, double *ms, mha_error *error)
{
    double start = mha__clock_ms(), aside = 0;
    for (size_t i = 0; i < runs; i++) {
        if (b->cache)
            mha_cache_truncate(b->cache, b->shape.T_k - 1);
        TRY(mha_forward(plan, b->workspace, b->workspace_bytes, error));
        aside += b->part == BENCH_PROJ ? between_projections(b) : 0;
    }
    *ms = (mha__clock_ms() - start - aside) / (double)runs;
    return MHA_OK;
}

mha_status bench_subject_run(bench_subject *b, mha_path path, int threads, mha_path *taken, double *ms,
                             mha_error *error)
{
    static const mha_stage between[BENCH_TIMED] = {MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT, MHA_STAGE_PRESENT_KEY,
                                                   MHA_STAGE_PRESENT_VALUE, MHA_STAGE_HEADS};
    mha_plan plan;
    b->call.path = path;
    b->call.threads = threads;
    for (size_t i = 0; i < BENCH_TIMED; i++)
        b->timed[i] = (mha_keep){.stage = between[i]};
    b->call.keep = b->timed;
    b->call.keep_count = b->part == BENCH_PROJ ? BENCH_TIMED : 0;
    if (b->cache)
        mha_cache_truncate(b->cache, b->shape.T_k - 1);
    TRY(mha_plan_call(b->weights, &b->call, &plan, error));
    b->needs_bytes = plan.workspace_bytes;
    if (plan.workspace_bytes > b->workspace_bytes) {
        free_workspace(b);
        b->workspace = mha__allocate(&b->memory.allocator, plan.workspace_bytes);
        if (!b->workspace)
            return mha__fail(error, MHA_NO_MEMORY, "", "expected %zu bytes of memory, found fewer",
                             plan.workspace_bytes);
        b->workspace_bytes = plan.workspace_bytes;
    }
    *taken = plan.path;
    /* The first run warms up: within a longer program, memory and caches would already be in use. */
    TRY(time_runs(b, &plan, 1, ms, error));
    if (*ms < long_ms)
        TRY(time_runs(b, &plan, 1 + (size_t)(enough_ms / (*ms > 0.001 ? *ms : 0.001)), ms, error));
    return MHA_OK;
}
