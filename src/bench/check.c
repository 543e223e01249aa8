/* A benchmark shape judged before it is timed: against float64, in all of its elements or in chosen rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/run.h"
#include "cli/output/print.h"

enum { SEEDED_ROWS = 64, MOST_ROWS = SEEDED_ROWS + 2, ROW_STREAM = 64 };
static const double all_of_it = 1e9; /* operations up to which every element is judged */

typedef struct judgement {
    double worst; /* largest error as a part of its bound */
    mha_error error;
} judgement;

/* A stage of `call` in float64 (made here, to be freed) and how far a float path may be from it. */
static double *exact_stage(const mha_layer *layer, const mha_call *call, mha_cache *cache, mha_stage stage, double *bound,
                           judgement *j)
{
    mha_call exact = *call;
    exact.path = MHA_PATH_EXACT;
    exact.cache = cache;
    exact.output = (mha_view){0};
    exact.keep_count = 0;
    mha_plan plan;
    double bounds[MHA_STAGE_COUNT];
    if (mha_plan_call(layer, &exact, &plan, &j->error) != MHA_OK ||
        mha_error_bound(layer, &exact, 0x1p-24, bounds, &j->error) != MHA_OK)
        return NULL; /* unreachable: the call has just run on another path */
    *bound = bounds[stage];
    size_t shape[4];
    const int rank = mha_plan_stage(&plan, stage, shape);
    mha_keep keep = {.stage = stage, .view = mha_view_of(NULL, MHA_F64, rank, shape)};
    double *values = obtain(mha_view_elements(&keep.view), sizeof *values);
    keep.view.data = values;
    if (stage == MHA_STAGE_OUTPUT)
        exact.output = keep.view;
    else
        exact.keep = &keep, exact.keep_count = 1;
    if (mha_run(layer, &exact, &j->error) == MHA_OK)
        return values;
    free(values); /* unreachable: as above */
    return NULL; /* unreachable: as above */
}

/* Runs the path and keeps stages as float; the caller frees kept[s]. */
static bool run_keeping(bench_subject *b, mha_path path, int threads, const mha_stage *stages, size_t n, float **kept, judgement *j)
{
    mha_call call = b->call;
    call.path = path;
    call.threads = threads;
    mha_plan plan;
    if (b->cache)
        mha_cache_truncate(b->cache, b->shape.T_k - 1);
    if (mha_plan_call(b->weights, &call, &plan, &j->error) != MHA_OK)
        return false;
    mha_keep keep[MHA_STAGE_COUNT];
    call.keep = keep;
    call.keep_count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&plan, stages[i], shape);
        mha_view view = mha_view_of(NULL, MHA_F32, rank, shape);
        view.data = kept[stages[i]] = obtain(mha_view_elements(&view), sizeof(float));
        if (stages[i] == MHA_STAGE_OUTPUT)
            call.output = view;
        else
            keep[call.keep_count++] = (mha_keep){.stage = stages[i], .view = view};
    }
    mha_status status = mha_run(b->weights, &call, &j->error);
    if (b->cache)
        mha_cache_truncate(b->cache, b->shape.T_k - 1);
    return status == MHA_OK;
}

static void hold(judgement *j, const float *found, const double *exact, size_t n, double bound)
{
    for (size_t i = 0; i < n; i++) {
        double part = fabs(found[i] - exact[i]) / bound;
        j->worst = part > j->worst || isnan(part) ? (isnan(part) ? INFINITY : part) : j->worst;
    }
}

/* ---------------------------------------------------------------- everything */

static bool check_all(bench_subject *b, mha_path path, int threads, judgement *j)
{
    static const mha_stage output[] = {MHA_STAGE_OUTPUT};
    float *kept[MHA_STAGE_COUNT] = {0};
    double bound, *exact = NULL;
    bool ran = run_keeping(b, path, threads, output, 1, kept, j);
    if (ran)
        exact = exact_stage(b->weights, &b->call, b->cache, MHA_STAGE_OUTPUT, &bound, j);
    if (exact) {
        hold(j, kept[MHA_STAGE_OUTPUT], exact, mha_view_elements(&b->call.output), bound);
    }
    free(exact);
    free(kept[MHA_STAGE_OUTPUT]);
    return exact != NULL;
}

/* ---------------------------------------------------------------- chosen rows */

/* Rows of B * T in order: the first, the last, seeded ones between. */
static size_t choose_rows(size_t rows, size_t *chosen)
{
    size_t n = 0;
    chosen[n++] = 0;
    for (size_t i = 0; rows > MOST_ROWS && i < SEEDED_ROWS; i++)
        chosen[n++] = (size_t)(mha_random_bits(0, ROW_STREAM, i) % rows);
    for (size_t i = 1; rows <= MOST_ROWS && i + 1 < rows; i++)
        chosen[n++] = i;
    if (rows > 1)
        chosen[n++] = rows - 1;
    return n;
}

static float *gather(const float *from, size_t width, const size_t *chosen, size_t n)
{
    float *rows = obtain(n * width, sizeof *rows);
    for (size_t i = 0; i < n; i++)
        memcpy(rows + i * width, from + chosen[i] * width, width * sizeof *rows);
    return rows;
}

/* y = x W + b of chosen rows, in float64, as the query projection of a layer that has nothing else. */
static bool check_projection(const mha_layer *layer, mha_weight W, mha_weight bias, const float *x, const float *y, size_t rows,
                             judgement *j)
{
    mha_view matrix = mha_tensor_view(mha_layer_weight(layer, W));
    mha_config config = {.d_model = matrix.shape[0], .n_heads = 1, .d_k = matrix.shape[1], .d_v = 1, .d_kin = 1, .d_out = 1,
                         .bias_q = mha_layer_weight(layer, bias) != NULL};
    size_t chosen[MOST_ROWS], n = choose_rows(rows, chosen);
    float *some_x = gather(x, matrix.shape[0], chosen, n), *some_y = gather(y, matrix.shape[1], chosen, n), key = 0;
    mha_params *params = NULL;
    mha_layer *alone = NULL;
    double bound, *exact = NULL;
    mha_status status = mha_params_create(NULL, &params);
    if (status == MHA_OK)
        status = mha_layer_create(&config, params, NULL, &alone, &j->error);
    if (status == MHA_OK)
        status = mha_layer_set(alone, MHA_W_Q, &matrix, &j->error);
    if (status == MHA_OK && config.bias_q) {
        mha_view b = mha_tensor_view(mha_layer_weight(layer, bias));
        status = mha_layer_set(alone, MHA_B_Q, &b, &j->error);
    }
    if (status == MHA_OK) {
        mha_call call = {.query = mha_view_rows(some_x, MHA_F32, MHA_BTE, 1, n, matrix.shape[0]),
                         .key = mha_view_rows(&key, MHA_F32, MHA_BTE, 1, 1, 1)};
        exact = exact_stage(alone, &call, NULL, MHA_STAGE_Q, &bound, j);
    }
    if (exact)
        hold(j, some_y, exact, n * matrix.shape[1], bound);
    mha_layer_destroy(alone);
    mha_params_destroy(params);
    free(exact);
    free(some_x);
    free(some_y);
    return exact != NULL;
}

/* Chosen queries of each batch row against all of its keys; causal is spelt out as a mask, since the chosen are
 * not neighbours. q (B, T_q, h, d_k), heads (B, T_q, h, d_v). */
static bool check_core(bench_subject *b, const mha_view *keys, const mha_view *values, const float *q, const float *heads,
                       judgement *j)
{
    const bench_shape *s = &b->shape;
    size_t width = s->h * s->d_k, chosen[MOST_ROWS], n = choose_rows(s->B * s->T_q, chosen);
    bool fine = true;
    for (size_t batch = 0; batch < s->B && fine; batch++) {
        size_t here[MOST_ROWS], m = 0;
        for (size_t i = 0; i < n; i++)
            if (chosen[i] / s->T_q == batch)
                here[m++] = chosen[i];
        if (m == 0)
            continue;
        float *some_q = gather(q, width, here, m), *some_heads = gather(heads, width, here, m);
        uint8_t *sees = obtain(m * s->T_k, 1);
        for (size_t i = 0; i < m; i++)
            for (size_t k = 0; k < s->T_k; k++)
                sees[i * s->T_k + k] = !s->causal || k <= here[i] % s->T_q;
        mha_call call = {.query = mha_view_heads(some_q, MHA_F32, MHA_BTHD, 1, m, s->h, s->d_k),
                         .key = mha_view_slice(keys, 0, batch, 1),
                         .value = mha_view_slice(values, 0, batch, 1)};
        call.semantics.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(sees, MHA_BOOL, 2, (size_t[]){m, s->T_k})};
        double bound, *exact = exact_stage(NULL, &call, NULL, MHA_STAGE_HEADS, &bound, j);
        fine = exact != NULL;
        if (fine)
            hold(j, some_heads, exact, m * width, bound);
        free(exact);
        free(sees);
        free(some_q);
        free(some_heads);
    }
    return fine;
}

static bool check_rows(bench_subject *b, mha_path path, int threads, judgement *j)
{
    static const mha_stage of_layer[] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V, MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE,
                                         MHA_STAGE_HEADS, MHA_STAGE_OUTPUT};
    static const mha_stage of_core[] = {MHA_STAGE_HEADS, MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE};
    const bench_shape *s = &b->shape;
    float *kept[MHA_STAGE_COUNT] = {0};
    bool fine = run_keeping(b, path, threads, b->part == BENCH_CORE ? of_core : of_layer,
                             b->part != BENCH_CORE ? 7 : b->cache ? 3 : 1, kept, j);
    mha_view keys = mha_view_heads(kept[MHA_STAGE_PRESENT_KEY], MHA_F32, MHA_BHTD, s->B, s->T_k, s->h_kv, s->d_k);
    mha_view values = mha_view_heads(kept[MHA_STAGE_PRESENT_VALUE], MHA_F32, MHA_BHTD, s->B, s->T_k, s->h_kv, s->d_k);
    if (fine && b->part == BENCH_CORE) {
        fine = check_core(b, b->cache ? &keys : &b->call.key, b->cache ? &values : &b->call.value, b->query,
                          kept[MHA_STAGE_HEADS], j);
    } else if (fine) {
        size_t new_keys = bench_decodes(s) ? s->T_q : s->T_k;
        const float *x_k = b->key ? b->key : b->query;
        const mha_layer *l = b->weights;
        fine = check_projection(l, MHA_W_Q, MHA_B_Q, b->query, kept[MHA_STAGE_Q], s->B * s->T_q, j) &&
               check_projection(l, MHA_W_K, MHA_B_K, x_k, kept[MHA_STAGE_K], s->B * new_keys, j) &&
               check_projection(l, MHA_W_V, MHA_B_V, x_k, kept[MHA_STAGE_V], s->B * new_keys, j) &&
               (b->part == BENCH_PROJ ||
                check_core(b, &keys, &values, kept[MHA_STAGE_Q], kept[MHA_STAGE_HEADS], j)) &&
               check_projection(l, MHA_W_O, MHA_B_O, kept[MHA_STAGE_HEADS], kept[MHA_STAGE_OUTPUT], s->B * s->T_q, j);
    }
    for (int i = 0; i < MHA_STAGE_COUNT; i++)
        free(kept[i]);
    return fine;
}

int bench_subject_check(bench_subject *b, mha_path path, int threads, double *worst)
{
    judgement j = {0};
    bool all = bench_flops(&b->shape, b->part) <= all_of_it && !b->cache && b->part != BENCH_PROJ;
    if (!(all ? check_all(b, path, threads, &j) : check_rows(b, path, threads, &j)))
        return refuse_error("", &j.error); /* unreachable: the call was planned when it was made */
    *worst = j.worst;
    return EXIT_DONE;
}
