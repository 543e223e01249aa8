/* A benchmark shape: making it, and running it. */
#include "bench/run.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "cli/output/print.h"

enum { QUERY_STREAM = 48, KEY_STREAM, VALUE_STREAM };
static const double enough_ms = 4, long_ms = 500;

static float *random_floats(size_t n, uint64_t stream)
{
    float *data = obtain_tensor(n, sizeof *data);
    mha_view view = mha_view_of(data, MHA_F32, 1, &n);
    mha_random_fill(&view, 0, stream, -sqrtf(3.0f), sqrtf(3.0f));
    return data;
}

/* Rows in the cache before the new one. */
static mha_status fill_cache(bench_subject *b, mha_error *error)
{
    const bench_shape *s = &b->shape;
    mha_cache_spec spec = {.batch = s->B, .kv_heads = s->h_kv, .d_k = s->d_k, .d_v = s->d_k, .capacity = s->T_k, .dtype = s->cache};
    mha_status status = mha_cache_create(&spec, NULL, &b->cache, error);
    if (status != MHA_OK)
        return status;
    size_t shape[4] = {s->B, s->h_kv, s->T_k - 1, s->d_k}, n = shape[0] * shape[1] * shape[2] * shape[3];
    float *keys = random_floats(n, KEY_STREAM), *values = random_floats(n, VALUE_STREAM);
    mha_view k = mha_view_of(keys, MHA_F32, 4, shape), v = mha_view_of(values, MHA_F32, 4, shape);
    status = mha_cache_load(b->cache, &k, &v, error);
    free(keys);
    free(values);
    b->call.cache = b->cache;
    return status;
}

/* Decoding reads K and V as a cache keeps them; from a cache itself when that holds anything but floats. */
static mha_status make_core(bench_subject *b, mha_error *error)
{
    const bench_shape *s = &b->shape;
    const bool cached = bench_decodes(s) && s->cache != MHA_F32;
    const mha_layout layout = bench_decodes(s) ? MHA_BHTD : MHA_BTHD;
    const size_t T_k = cached ? s->T_q : s->T_k;
    b->query = random_floats(s->B * s->T_q * s->h * s->d_k, QUERY_STREAM);
    b->key = random_floats(s->B * T_k * s->h_kv * s->d_k, KEY_STREAM);
    b->value = random_floats(s->B * T_k * s->h_kv * s->d_k, VALUE_STREAM);
    b->output = obtain_tensor(s->B * s->T_q * s->h * s->d_k, sizeof *b->output);
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
    mha_status status = error->status = mha_params_create(NULL, &b->table);
    if (status == MHA_OK)
        status = mha_layer_create(&config, b->table, NULL, &b->weights, error);
    if (status != MHA_OK)
        return status;
    mha_layer_init(b->weights, 0);
    status = b->packs ? mha_layer_pack(b->weights, error) : MHA_OK;
    if (status != MHA_OK)
        return status;
    b->query = random_floats(s->B * s->T_q * s->d_model, QUERY_STREAM);
    b->output = obtain_tensor(s->B * s->T_q * s->d_model, sizeof *b->output);
    b->call.query = mha_view_rows(b->query, MHA_F32, MHA_BTE, s->B, s->T_q, s->d_model);
    if (bench_crosses(s)) {
        b->key = random_floats(s->B * s->T_k * s->d_model, KEY_STREAM);
        b->call.key = mha_view_rows(b->key, MHA_F32, MHA_BTE, s->B, s->T_k, s->d_model);
    }
    b->call.output = mha_view_rows(b->output, MHA_F32, MHA_BTE, s->B, s->T_q, s->d_model);
    return bench_decodes(s) ? fill_cache(b, error) : MHA_OK;
}

int bench_subject_make(bench_subject *b, const bench_shape *shape, bench_part part, bool packs)
{
    mha_error error = {0};
    *b = (bench_subject){.shape = *shape, .part = part, .packs = packs};
    b->call.semantics.causal = part != BENCH_PROJ && shape->causal;
    b->call.semantics.window = part == BENCH_PROJ;
    if ((part == BENCH_CORE ? make_core(b, &error) : make_layer(b, &error)) != MHA_OK)
        return refuse_error("", &error);
    mha_view output = b->call.output;
    size_t n = mha_view_elements(&output); /* touched here: its pages are no memory a run needs */
    for (size_t i = 0; i < n; i++)
        b->output[i] = NAN;
    return EXIT_DONE;
}

void bench_subject_forget(bench_subject *b)
{
    free(b->workspace);
    b->workspace = NULL;
    b->workspace_bytes = 0;
}

void bench_subject_free(bench_subject *b)
{
    mha_cache_destroy(b->cache);
    mha_layer_destroy(b->weights);
    mha_params_destroy(b->table);
    free(b->query);
    free(b->key);
    free(b->value);
    free(b->output);
    free(b->workspace);
    *b = (bench_subject){0};
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Of the last run: from the third projection to the fourth. */
static double between_projections(const bench_subject *b)
{
    double ms = 0;
    for (size_t i = 0; i < b->call.keep_count; i++)
        ms += b->timed[i].ms;
    return ms;
}

static double time_runs(bench_subject *b, const mha_plan *plan, size_t runs, mha_error *error)
{
    double start = now_ms(), aside = 0;
    for (size_t i = 0; i < runs; i++) {
        if (b->cache)
            mha_cache_truncate(b->cache, b->shape.T_k - 1);
        if (mha_forward(plan, b->workspace, b->workspace_bytes, error) != MHA_OK)
            return -1;
        aside += b->part == BENCH_PROJ ? between_projections(b) : 0;
    }
    return (now_ms() - start - aside) / (double)runs;
}

double bench_subject_run(bench_subject *b, mha_path path, int threads, mha_path *taken)
{
    mha_error error = {0};
    mha_plan plan;
    b->call.path = path;
    b->call.threads = threads;
    static const mha_stage between[BENCH_TIMED] = {MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT, MHA_STAGE_PRESENT_KEY,
                                                   MHA_STAGE_PRESENT_VALUE, MHA_STAGE_HEADS};
    for (size_t i = 0; i < BENCH_TIMED; i++)
        b->timed[i] = (mha_keep){.stage = between[i]};
    b->call.keep = b->timed;
    b->call.keep_count = b->part == BENCH_PROJ ? BENCH_TIMED : 0;
    if (b->cache)
        mha_cache_truncate(b->cache, b->shape.T_k - 1);
    if (mha_plan_call(b->weights, &b->call, &plan, &error) != MHA_OK)
        return refuse_error("", &error), -1; /* unreachable: the same call was judged */
    b->needs_bytes = plan.workspace_bytes;
    if (plan.workspace_bytes > b->workspace_bytes) {
        bench_subject_forget(b);
        b->workspace = obtain(plan.workspace_bytes, 1);
        b->workspace_bytes = plan.workspace_bytes;
    }
    *taken = plan.path;
    /* The first call warms up: in a program that runs layer after layer, memory and caches are in use already. */
    double once = time_runs(b, &plan, 1, &error);
    if (once >= 0 && once < long_ms)
        once = time_runs(b, &plan, 1 + (size_t)(enough_ms / (once > 0.001 ? once : 0.001)), &error);
    if (once < 0)
        refuse_error("", &error); /* unreachable: the same call was judged */
    return once;
}
