/* The program's own benchmark shapes, inputs and timing, opened to bench/peers.py through plain C values. */
#include <stdlib.h>
#include <string.h>

#include "params/quantise.h"
#include "bench/timed_run.h"
#include "compute/packed/packed_gemm.h"
#include "mha/lab.h"
#include "bench/machine_peak.h"
#include "lab/lab.h"

/* A shape by name or written out as `mha bench --shape` takes it, a part of it (layer, core, proj), made ready, its
 * weights packed or not; NULL when it cannot be. */
MHA_API void *shim_open(const char *text, const char *part_name, int packs)
{
    mha_error error;
    bench_shape shape;
    bench_part part = BENCH_LAYER;
    while (part < BENCH_PARTS && strcmp(bench_part_name(part), part_name) != 0)
        part++;
    bench_subject *subject = calloc(1, sizeof *subject);
    if (!subject || part == BENCH_PARTS || bench_shape_fault(text, &shape) ||
        bench_subject_make(subject, &shape, part, packs != 0, &error) != MHA_OK) {
        if (subject)
            bench_subject_free(subject);
        free(subject);
        return NULL;
    }
    return subject;
}

MHA_API void shim_close(void *opened)
{
    bench_subject_free(opened);
    free(opened);
}

/* B, T_q, T_k, d_model, h, h_kv, d_k, causal, bias. */
MHA_API void shim_shape(const void *opened, size_t shape[9])
{
    const bench_shape *s = &((const bench_subject *)opened)->shape;
    const size_t values[9] = {s->B, s->T_q, s->T_k, s->d_model, s->h, s->h_kv, s->d_k, s->causal, s->bias};
    memcpy(shape, values, sizeof values);
}

MHA_API double shim_flops(const void *opened)
{
    const bench_subject *b = opened;
    return bench_flops(&b->shape, b->part);
}

/* The least bytes that decoding reads; 0 if reading is not the limit. */
MHA_API double shim_bytes(const void *opened)
{
    const bench_subject *b = opened;
    return bench_decodes(&b->shape) ? bench_bytes(&b->shape, b->part) : 0;
}

/* A contiguous float array by name (query, key, value, output, cached_keys, cached_values, W_Q, ...). Gives its
 * rank, 0 when there is none. */
MHA_API int shim_array(const void *opened, const char *name, float **data, size_t shape[4])
{
    const bench_subject *b = opened;
    const bench_shape *s = &b->shape;
    mha_view view = {0};
    if (strcmp(name, "query") == 0 || strcmp(name, "output") == 0) {
        size_t rows[3] = {s->B, s->T_q, b->part != BENCH_CORE ? s->d_model : s->h * s->d_k};
        view = mha_view_of(name[0] == 'q' ? b->query : b->output, MHA_F32, 3, rows);
    } else if (strcmp(name, "key") == 0 || strcmp(name, "value") == 0) {
        size_t rows[3] = {s->B, s->T_k, b->part != BENCH_CORE ? s->d_model : s->h_kv * s->d_k};
        view = mha_view_of(name[0] == 'k' ? b->key : b->value, MHA_F32, 3, rows);
    } else if (strcmp(name, "cached_keys") == 0 || strcmp(name, "cached_values") == 0) {
        if (b->cache) { /* its memory, with the room for the new row behind each head's rows */
            view = name[7] == 'k' ? mha_cache_keys(b->cache) : mha_cache_values(b->cache);
            view.shape[2] = s->T_k;
            if (!mha__view_is_contiguous(&view))
                return 0;
        }
    } else if (b->part != BENCH_CORE) {
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
            mha_tensor *tensor = mha_layer_weight(b->weights, (mha_weight)w);
            if (tensor && strcmp(name, mha_weight_at((mha_weight)w)->name) == 0)
                view = mha_tensor_view(tensor);
        }
    }
    if (!view.data)
        return 0;
    *data = view.data;
    memcpy(shape, view.shape, sizeof(size_t) * (size_t)view.rank);
    return view.rank;
}

/* Milliseconds of one run on a path, as mha bench takes them; negative when it cannot run or takes another path. */
MHA_API double shim_run(void *opened, const char *path_name, int threads)
{
    mha_path path, taken;
    if (!mha_path_find(path_name, &path))
        return -1;
    double ms;
    mha_error error;
    return bench_subject_run(opened, path, threads, &taken, &ms, &error) == MHA_OK && taken == path ? ms : -1;
}

/* A stage of one more run on a path, `n` floats to be given back with shim_release; NULL when it cannot be kept. */
MHA_API float *shim_stage(void *opened, const char *path_name, int threads, const char *name, size_t *n)
{
    bench_subject *b = opened;
    mha_stage stage;
    mha_call call = b->call;
    mha_plan plan;
    call.threads = threads;
    if (b->cache)
        mha_cache_truncate(b->cache, b->shape.T_k - 1);
    if (!mha_path_find(path_name, &call.path) || !mha_stage_find(name, &stage) ||
        mha_plan_call(b->weights, &call, &plan, NULL) != MHA_OK)
        return NULL;
    size_t shape[4];
    const int rank = mha_plan_stage(&plan, stage, shape);
    mha_keep keep = {.stage = stage, .view = mha_view_of(NULL, MHA_F32, rank, shape)};
    *n = mha_view_elements(&keep.view);
    float *kept = calloc(*n, sizeof *kept);
    keep.view.data = kept;
    if (stage == MHA_STAGE_OUTPUT)
        call.output = keep.view;
    else
        call.keep = &keep, call.keep_count = 1;
    if (!kept || mha_run(b->weights, &call, NULL) != MHA_OK) {
        free(kept);
        return NULL;
    }
    return kept;
}

MHA_API void shim_release(float *kept) { free(kept); }

/* A matrix (k, n) packed as those of a layer are: F32 row by row, or blocks column by column. */
typedef struct shim_matrix {
    size_t k, n;
    mha_dtype dtype;
    void *panels;
} shim_matrix;

/* NULL: no such type, or no memory. */
MHA_API void *shim_pack(const char *type, size_t k, size_t n, const void *W)
{
    shim_matrix *made = calloc(1, sizeof *made);
    size_t bytes = 0;
    if (!made || !mha__dtype_find(type, &made->dtype))
        return NULL;
    made->k = k, made->n = n;
    if (mha__packed_bytes(k, n, made->dtype, &bytes))
        made->panels = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (made->panels)
        mha__pack(k, n, made->dtype, W, n, made->panels);
    return made;
}

/* y (m, n) = x (m, k) W; -1: no memory. */
MHA_API int shim_multiply(const void *packed, size_t m, const float *x, float *y, int threads)
{
    const shim_matrix *W = packed;
    const size_t bytes = (mha__packed_scratch(m, W->k, W->dtype) + 63) / 64 * 64 * (size_t)threads;
    const mha__packed_product job = {m, W->k, W->k, x, false, false, 1, {{W->n, W->n, W->panels, W->dtype, NULL, y}}};
    void *scratch = aligned_alloc(64, bytes);
    if (!scratch)
        return -1;
    mha__packed_run(&job, 1, threads, scratch);
    free(scratch);
    return 0;
}

MHA_API void shim_unpack(void *packed)
{
    free(((shim_matrix *)packed)->panels);
    free(packed);
}

/* read_gbs may be NULL. */
MHA_API int shim_limits(int threads, double *peak_gflops, double *read_gbs)
{
    return mha__machine_limits(threads, peak_gflops, read_gbs) == MHA_OK;
}

/* Runs a call on a path; unless `bound` is NULL says how far a float path may be from the exact `stage`. Keys and
 * values go through an empty cache of the type that is named, unless that is NULL. 0 when it ran. */
static int run_beside_bound(const mha_layer *layer, const char *path_name, const char *cache_type, size_t h, size_t d,
                            mha_call *call, mha_stage stage, double *bound)
{
    if (cache_type) {
        const mha_view *keys = call->key.data ? &call->key : &call->query;
        mha_cache_spec spec = {
            .batch = keys->shape[0], .kv_heads = h, .d_k = d, .d_v = d, .capacity = keys->shape[1]};
        if (!mha__dtype_find(cache_type, &spec.dtype) || mha_cache_create(&spec, NULL, &call->cache, NULL) != MHA_OK)
            return 1;
        const int failed = run_beside_bound(layer, path_name, NULL, h, d, call, stage, bound);
        mha_cache_destroy(call->cache);
        return failed;
    }
    mha_plan plan;
    double bounds[MHA_STAGE_COUNT];
    if (!mha_path_find(path_name, &call->path) || mha_plan_call(layer, call, &plan, NULL) != MHA_OK)
        return 1;
    if (bound) {
        if (mha_error_bound(layer, call, 0x1p-24, bounds, MHA_STAGE_COUNT, NULL) != MHA_OK)
            return 1;
        *bound = bounds[stage];
    }
    return mha_run(layer, call, NULL) != MHA_OK;
}

/* The precision of a type that is named; none without a name. */
static mha_dtype type_of(const char *precision)
{
    mha_dtype type = MHA_F32;
    if (precision)
        (void)mha__dtype_find(precision, &type);
    return type;
}

/* Attention alone, with a cache of a type or without (NULL), in a precision or none (NULL): q and output
 * (B, T_q, h, d), k and v (B, T_k, h, d), of which the output is float64. */
MHA_API int shim_attend(const char *path_name, const char *cache_type, const char *precision, const size_t sizes[5],
                        float *q, float *k, float *v, double *output, double *bound)
{
    const size_t B = sizes[0], T_q = sizes[1], T_k = sizes[2], h = sizes[3], d = sizes[4];
    mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, B, T_q, h, d),
                     .key = mha_view_heads(k, MHA_F32, MHA_BTHD, B, T_k, h, d),
                     .value = mha_view_heads(v, MHA_F32, MHA_BTHD, B, T_k, h, d),
                     .precision = mha_precision_of(type_of(precision))};
    call.output = mha_view_rows(output, MHA_F64, MHA_BTE, B, T_q, h * d);
    return run_beside_bound(NULL, path_name, cache_type, h, d, &call, MHA_STAGE_HEADS, bound);
}

/* A layer without biases, whose weights have the type of the precision: x and output (B, T, d_model), W_Q, W_K, W_V
 * and W_O (d_model, d_model). */
MHA_API int shim_layer(const char *path_name, const char *cache_type, const char *precision, const size_t sizes[4],
                       float *x, float *const W[4], double *output, double *bound)
{
    static const mha_weight weights[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O};
    const size_t B = sizes[0], T = sizes[1], d_model = sizes[2];
    const mha_config config = {.d_model = d_model, .n_heads = sizes[3], .dtype = type_of(precision)};
    mha_call call = {.query = mha_view_rows(x, MHA_F32, MHA_BTE, B, T, d_model),
                     .precision = mha_precision_of(config.dtype)};
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    call.output = mha_view_rows(output, MHA_F64, MHA_BTE, B, T, d_model);
    mha_status status = mha_params_create(NULL, &table, NULL);
    if (status == MHA_OK)
        status = mha_layer_create(&config, table, "", &layer, NULL);
    for (size_t i = 0; i < 4 && status == MHA_OK; i++) {
        const mha_view from = mha_view_of(W[i], MHA_F32, 2, (size_t[]){d_model, d_model});
        status = mha_layer_set(layer, weights[i], &from, NULL);
    }
    if (status == MHA_OK)
        status = mha_layer_pack(layer, NULL);
    int failed = status != MHA_OK || run_beside_bound(layer, path_name, cache_type, sizes[3],
                                                              d_model / sizes[3], &call, MHA_STAGE_OUTPUT, bound);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return failed;
}

/* The version of the library, and its kernels. */
MHA_API const char *shim_version(void) { return mha_version(); }
MHA_API const char *shim_isa(void) { return mha_isa(); }
