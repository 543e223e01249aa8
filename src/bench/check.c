/* Checks a benchmark shape against float64 before it is timed: the elements of chosen rows. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "bench/timed_run.h"

enum { SEEDED_ROWS = 64, MOST_ROWS = SEEDED_ROWS + 2, ROW_STREAM = 64 };

typedef struct comparison {
    double worst;      /* largest error divided by its bound */
    mha_precision precision;
    mha__arena memory; /* everything computed and gathered */
    mha_error *error;
} comparison;

static mha_status take(comparison *j, size_t bytes, void *memory)
{
    void *taken = mha__arena_take(&j->memory, bytes);
    memcpy(memory, &taken, sizeof taken);
    return taken ? MHA_OK : mha__fail(j->error, MHA_NO_MEMORY, "", "expected %zu bytes of memory, found fewer", bytes);
}

/* Computes a stage of `call` in float64, and the bound of a float path's error in that stage in the precision. */
static mha_status exact_stage(const mha_layer *layer, const mha_call *call, mha_cache *cache, mha_stage stage,
                              double **values, double *bound, comparison *j)
{
    mha_call exact = *call;
    exact.path = MHA_PATH_EXACT;
    exact.cache = cache;
    exact.output = (mha_view){0};
    exact.keep_count = 0;
    exact.precision = (mha_precision){0};
    mha_call rounded = exact;
    rounded.precision = j->precision;
    mha_plan plan;
    double bounds[MHA_STAGE_COUNT];
    size_t shape[4];
    TRY(mha_plan_call(layer, &exact, &plan, j->error));
    TRY(mha_error_bound(layer, &rounded, 0x1p-24, bounds, MHA_STAGE_COUNT, j->error));
    *bound = bounds[stage];
    const int rank = mha_plan_stage(&plan, stage, shape);
    mha_keep keep = {.stage = stage, .view = mha_view_of(NULL, MHA_F64, rank, shape)};
    TRY(take(j, mha_view_elements(&keep.view) * sizeof **values, values));
    keep.view.data = *values;
    if (stage == MHA_STAGE_OUTPUT)
        exact.output = keep.view;
    else {
        exact.keep = &keep;
        exact.keep_count = 1;
    }
    return mha_run(layer, &exact, j->error);
}

/* Runs the path and keeps stages in float32. */
static mha_status run_keeping(bench_subject *b, mha_path path, int threads, const mha_stage *stages, size_t n,
                              float **kept, comparison *j)
{
    mha_call call = b->call;
    mha_keep keep[MHA_STAGE_COUNT];
    mha_plan plan;
    call.path = path;
    call.threads = threads;
    call.keep = keep;
    call.keep_count = 0;
    if (b->cache)
        mha_cache_truncate(b->cache, b->shape.T_k - 1);
    TRY(mha_plan_call(b->weights, &call, &plan, j->error));
    for (size_t i = 0; i < n; i++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&plan, stages[i], shape);
        mha_view view = mha_view_of(NULL, MHA_F32, rank, shape);
        TRY(take(j, mha_view_elements(&view) * sizeof(float), &kept[stages[i]]));
        view.data = kept[stages[i]];
        if (stages[i] == MHA_STAGE_OUTPUT)
            call.output = view;
        else
            keep[call.keep_count++] = (mha_keep){.stage = stages[i], .view = view};
    }
    mha_status status = mha_run(b->weights, &call, j->error);
    if (b->cache)
        mha_cache_truncate(b->cache, b->shape.T_k - 1);
    return status;
}

static void compare_elements(comparison *j, const float *found, const double *exact, size_t n, double bound)
{
    for (size_t i = 0; i < n; i++) {
        double part = fabs(found[i] - exact[i]) / bound;
        j->worst = part > j->worst || isnan(part) ? (isnan(part) ? INFINITY : part) : j->worst;
    }
}

/* ---------------------------------------------------------------- chosen rows */

/* Chooses the first row, the last, and seeded random ones between; all when there are few. Returns their number. */
static size_t choose_rows(size_t rows, size_t *chosen)
{
    const bool all = rows <= MOST_ROWS;
    size_t n = 0;
    chosen[n++] = 0;
    if (all)
        for (; n < rows; n++)
            chosen[n] = n;
    else {
        for (size_t i = 0; i < SEEDED_ROWS; i++)
            chosen[n++] = (size_t)(mha__random_bits(0, ROW_STREAM, i) % rows);
        chosen[n++] = rows - 1;
    }
    return n;
}

static mha_status gather(const float *from, size_t width, const size_t *chosen, size_t n, float **rows, comparison *j)
{
    TRY(take(j, n * width * sizeof **rows, rows));
    for (size_t i = 0; i < n; i++)
        memcpy(*rows + i * width, from + chosen[i] * width, width * sizeof **rows);
    return MHA_OK;
}

/* Checks y = x W + b of chosen rows against float64, as the query projection of a layer that has no other weights; as
 * its q_rot, which is q, because that is stored in the precision, as an output is. */
static mha_status check_projection(const mha_layer *layer, mha_weight W, mha_weight bias, const float *x,
                                   const float *y, size_t rows, comparison *j)
{
    mha_view matrix = mha_tensor_view(mha_layer_weight(layer, W));
    if (!matrix.data)
        return mha__fail(j->error, MHA_NO_MEMORY, mha_weight_at(W)->name, "no memory to unpack it");
    mha_config config = {.d_model = matrix.shape[0],
                         .n_heads = 1,
                         .d_k = matrix.shape[1],
                         .d_v = 1,
                         .d_kin = 1,
                         .d_out = 1,
                         .bias_q = mha_layer_weight(layer, bias) != NULL};
    size_t chosen[MOST_ROWS], n = choose_rows(rows, chosen);
    float *some_x, *some_y, key = 0;
    mha_layer *alone = NULL;
    double bound, *exact;
    TRY(gather(x, matrix.shape[0], chosen, n, &some_x, j));
    TRY(gather(y, matrix.shape[1], chosen, n, &some_y, j));
    mha_status status = mha_layer_create(&config, NULL, NULL, &alone, j->error);
    if (status == MHA_OK)
        status = mha_layer_set(alone, MHA_W_Q, &matrix, j->error);
    if (status == MHA_OK && config.bias_q) {
        mha_view b = mha_tensor_view(mha_layer_weight(layer, bias));
        status = mha_layer_set(alone, MHA_B_Q, &b, j->error);
    }
    if (status == MHA_OK) {
        mha_call call = {.query = mha_view_rows(some_x, MHA_F32, MHA_BTE, 1, n, matrix.shape[0]),
                         .key = mha_view_rows(&key, MHA_F32, MHA_BTE, 1, 1, 1)};
        status = exact_stage(alone, &call, NULL, MHA_STAGE_Q_ROT, &exact, &bound, j);
    }
    if (status == MHA_OK)
        compare_elements(j, some_y, exact, n * matrix.shape[1], bound);
    mha_layer_destroy(alone);
    return status;
}

/* Checks chosen queries of each batch row against all of its keys. What they see is written out, since the chosen
 * queries are not consecutive. q (B, T_q, h, d_k), heads (B, T_q, h, d_v). */
static mha_status check_core(bench_subject *b, const mha_view *keys, const mha_view *values, const float *q,
                             const float *heads, comparison *j)
{
    const bench_shape *s = &b->shape;
    size_t width = s->h * s->d_k, chosen[MOST_ROWS], n = choose_rows(s->B * s->T_q, chosen);
    for (size_t batch = 0; batch < s->B; batch++) {
        size_t here[MOST_ROWS], m = 0;
        for (size_t i = 0; i < n; i++)
            if (chosen[i] / s->T_q == batch)
                here[m++] = chosen[i];
        if (m == 0)
            continue;
        float *some_q, *some_heads;
        uint8_t *sees;
        double bound, *exact;
        TRY(gather(q, width, here, m, &some_q, j));
        TRY(gather(heads, width, here, m, &some_heads, j));
        TRY(take(j, m * s->T_k, &sees));
        for (size_t i = 0; i < m; i++)
            for (size_t k = 0; k < s->T_k; k++)
                sees[i * s->T_k + k] = (!s->causal || k <= here[i] % s->T_q) && bench_keeps(s, here[i] % s->T_q, k);
        mha_call call = {.query = mha_view_heads(some_q, MHA_F32, MHA_BTHD, 1, m, s->h, s->d_k),
                         .key = mha_view_slice(keys, 0, batch, 1),
                         .value = mha_view_slice(values, 0, batch, 1)};
        call.semantics.visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(sees, MHA_BOOL, 2, (size_t[]){m, s->T_k})};
        TRY(exact_stage(NULL, &call, NULL, MHA_STAGE_HEADS, &exact, &bound, j));
        compare_elements(j, some_heads, exact, m * width, bound);
    }
    return MHA_OK;
}

static mha_status check_rows(bench_subject *b, mha_path path, int threads, comparison *j)
{
    static const mha_stage of_layer[] = {
        MHA_STAGE_Q,     MHA_STAGE_K,     MHA_STAGE_V, MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE,
        MHA_STAGE_HEADS, MHA_STAGE_OUTPUT};
    static const mha_stage of_core[] = {MHA_STAGE_HEADS, MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE};
    const bench_shape *s = &b->shape;
    const size_t queries = s->B * s->T_q, new_keys = s->B * (bench_decodes(s) ? s->T_q : s->T_k);
    const mha_layer *l = b->weights;
    float *kept[MHA_STAGE_COUNT] = {0};
    TRY(run_keeping(b, path, threads, b->part == BENCH_CORE ? of_core : of_layer,
                    b->part != BENCH_CORE ? 7 : b->cache ? 3 : 1, kept, j));
    mha_view keys = mha_view_heads(kept[MHA_STAGE_PRESENT_KEY], MHA_F32, MHA_BHTD, s->B, s->T_k, s->h_kv, s->d_k);
    mha_view values = mha_view_heads(kept[MHA_STAGE_PRESENT_VALUE], MHA_F32, MHA_BHTD, s->B, s->T_k, s->h_kv, s->d_k);
    if (b->part == BENCH_CORE)
        return check_core(b, b->cache ? &keys : &b->call.key, b->cache ? &values : &b->call.value, b->query,
                          kept[MHA_STAGE_HEADS], j);
    const float *x_k = b->key ? b->key : b->query;
    TRY(check_projection(l, MHA_W_Q, MHA_B_Q, b->query, kept[MHA_STAGE_Q], queries, j));
    TRY(check_projection(l, MHA_W_K, MHA_B_K, x_k, kept[MHA_STAGE_K], new_keys, j));
    TRY(check_projection(l, MHA_W_V, MHA_B_V, x_k, kept[MHA_STAGE_V], new_keys, j));
    if (b->part != BENCH_PROJ)
        TRY(check_core(b, &keys, &values, kept[MHA_STAGE_Q], kept[MHA_STAGE_HEADS], j));
    return check_projection(l, MHA_W_O, MHA_B_O, kept[MHA_STAGE_HEADS], kept[MHA_STAGE_OUTPUT], queries, j);
}

mha_status bench_subject_check(bench_subject *b, mha_path path, int threads, double *worst, mha_error *error)
{
    comparison j = {.memory.allocator = mha__allocator_default(), .precision = b->call.precision, .error = error};
    const mha_status status = check_rows(b, path, threads, &j);
    *worst = j.worst;
    mha__arena_free(&j.memory);
    return status;
}
