/* The second half of a variant: the cache, and the steps from scores to the output. */
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/variant_forward/variant_bench.h"

int mha__variant_shape(const mha__variant_inputs *inputs, mha_stage stage, size_t shape[4])
{
    const mha_case *c = inputs->c;
    const size_t S = inputs->S + mha__extra_rows(c), out = c->kind == CASE_ROPE ? c->H * c->d_k : c->E_out;
    const struct {
        int rank;
        size_t shape[4];
    } shapes[MHA_STAGE_COUNT] = {
        [MHA_STAGE_Q] = {3, {c->B, c->T_q, c->H * c->d_k, 0}},
        [MHA_STAGE_K] = {3, {c->B, c->T_k, c->H_kv * c->d_k, 0}},
        [MHA_STAGE_V] = {3, {c->B, c->T_k, c->H_kv * c->d_v, 0}},
        [MHA_STAGE_Q_ROT] = {3, {c->B, c->T_q, c->H * c->d_k, 0}},
        [MHA_STAGE_K_ROT] = {3, {c->B, c->T_k, c->H_kv * c->d_k, 0}},
        [MHA_STAGE_SCORES] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_CAPPED] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_MASKED] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_WEIGHTS] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_WEIGHTS_MEAN] = {3, {c->B, c->T_q, S, 0}},
        [MHA_STAGE_HEADS] = {3, {c->B, c->T_q, c->H * c->d_v, 0}},
        [MHA_STAGE_OUTPUT] = {3, {c->B, c->T_q, out, 0}},
        [MHA_STAGE_PRESENT_KEY] = {4, {c->B, c->H_kv, inputs->S, c->d_k}},
        [MHA_STAGE_PRESENT_VALUE] = {4, {c->B, c->H_kv, inputs->S, c->d_v}},
        [MHA_STAGE_LSE] = {3, {c->B, c->H, c->T_q, 0}},
    };
    memcpy(shape, shapes[stage].shape, sizeof shapes[stage].shape);
    return shapes[stage].rank;
}

bool mha__stage_is_by_query(const mha_case *c, mha_stage stage)
{
    switch (stage) {
    case MHA_STAGE_SCORES:
    case MHA_STAGE_CAPPED:
    case MHA_STAGE_MASKED:
    case MHA_STAGE_WEIGHTS:
    case MHA_STAGE_WEIGHTS_MEAN:
    case MHA_STAGE_HEADS:
    case MHA_STAGE_LSE: return true;
    case MHA_STAGE_OUTPUT: return c->kind != CASE_ROPE;
    default: return false;
    }
}

/* ---------------------------------------------------------------- memory */

static double *take(mha__variant_bench *w, size_t n)
{
    size_t bytes;
    return mha__mul(n + 1, sizeof(double), &bytes) ? mha__arena_take(&w->pool, bytes) : NULL;
}

/* Adds a bench for batch rows in the place of time where they can be; false without memory. */
static bool add_exchanged(mha__variant_bench *w)
{
    const mha_case *c = w->inputs->c;
    const size_t rows = c->B * c->T_q, width = c->H * c->d_v > c->E_out ? c->H * c->d_v : c->E_out;
    if (!w->inputs->exchanged)
        return true;
    w->exchanged = mha__variant_bench_create(w->inputs->exchanged, NULL, 0);
    w->exchanged_kept = mha__arena_take(&w->pool, rows);
    w->exchanged_rows = take(w, rows * width);
    return w->exchanged && w->exchanged_kept && w->exchanged_rows;
}

mha__variant_bench *mha__variant_bench_create(const mha__variant_inputs *inputs, const unsigned char *needed,
                                              size_t bytes)
{
    const mha_case *c = inputs->c;
    mha_allocator a = mha__allocator_default(); /* any thread may use this one */
    mha__variant_bench *w = mha__allocate(&a, sizeof *w);
    if (!w)
        return NULL;
    const size_t S = inputs->S + 2, rows = c->H * c->T_q;
    w->pool.allocator = a;
    w->inputs = inputs;
    w->own_keys = take(w, S * c->H_kv * c->d_k);
    w->own_values = take(w, S * c->H_kv * c->d_v);
    w->scores = take(w, rows * S);
    w->visible = mha__arena_take(&w->pool, rows * S);
    w->scored = mha__arena_take(&w->pool, rows);
    w->weighed = mha__arena_take(&w->pool, rows);
    w->sight = mha__arena_take(&w->pool, c->T_q * S * sizeof *w->sight);
    w->heads = take(w, rows * c->d_v);
    w->merged = take(w, rows * c->d_v);
    w->lse = take(w, rows);
    const bool whole = w->own_keys && w->own_values && w->scores && w->visible && w->scored && w->weighed && w->sight &&
                       w->heads && w->merged && w->lse;
    if (whole && mha__row_maker_begin(&w->maker, inputs, needed, bytes, &w->pool) && add_exchanged(w))
        return w;
    mha__variant_bench_destroy(w);
    return NULL;
}

size_t mha__variant_workers(int threads, size_t *bytes)
{
    const size_t most = (size_t)1 << 30, quarter = mha__memory_at_hand() / 4;
    const int wanted = threads > 0 ? threads : mha__parallel_default();
    const size_t workers = wanted < MHA_VARIANT_WORKERS ? (size_t)wanted : MHA_VARIANT_WORKERS;
    *bytes = (quarter < most ? quarter : most) / workers;
    return workers;
}

void mha__variant_bench_destroy(mha__variant_bench *bench)
{
    if (!bench)
        return;
    mha__variant_bench_destroy(bench->exchanged);
    mha__arena_free(&bench->pool);
    mha_allocator a = bench->pool.allocator;
    mha__release(&a, bench, sizeof *bench);
}

void mha__variant_bench_columns(mha__variant_bench *bench, size_t columns)
{
    bench->columns = columns;
    if (bench->exchanged)
        bench->exchanged->columns = columns;
}

/* ---------------------------------------------------------------- keys and values of one batch row */

/* Copies n rows of new keys or values behind the first `at` rows, as far as there is room for them. */
static void put(const mha__variant_inputs *in, const double *rows, size_t n, size_t row, size_t at, double *to)
{
    memcpy(to + at * row, rows, (at + n < in->S ? n : in->S - at) * row * sizeof *to);
}

/* Cached, new and extra rows in one array; when there are only new rows, `new_rows` itself. */
static const double *gather(mha__variant_bench *w, const mha__knobs *k, size_t b, int part, const double *new_rows)
{
    const mha__variant_inputs *in = w->inputs;
    const mha_case *c = in->c;
    const size_t d = part ? c->d_v : c->d_k, row = c->H_kv * d;
    const size_t past = k->cache_order == CACHE_BEHIND ? c->T_k : 0;
    const size_t first = k->cache_order == CACHE_BEHIND  ? 0
                         : k->cache_order == CACHE_EARLY ? c->P - 1
                         : k->cache_order == CACHE_LATE  ? c->P + 1
                                                         : c->P;
    double *to = part ? w->own_values : w->own_keys;
    if (c->P == 0 && mha__extra_rows(c) == 0)
        return new_rows;
    memset(to, 0, (in->S + 2) * row * sizeof *to);
    for (size_t h = 0; c->P > 0 && h < c->H_kv; h++)
        for (size_t j = 0; j < c->P; j++)
            memcpy(to + (past + j) * row + h * d, in->past[part] + ((b * c->H_kv + h) * c->P + j) * d, d * sizeof *to);
    put(in, new_rows, c->T_k, row, first, to);
    if (in->bias_kv[part])
        memcpy(to + in->S * row, in->bias_kv[part], row * sizeof *to);
    return to;
}

/* ---------------------------------------------------------------- one batch row */

static void heads_first(const double *x, size_t T, size_t h, size_t d, double *y)
{
    for (size_t head = 0; head < h; head++)
        for (size_t t = 0; t < T; t++, y += d)
            memcpy(y, x + (t * h + head) * d, d * sizeof *y);
}

/* Whether row i under head h of the heads is part of a wanted row of the merged heads. */
static bool is_merged_into(const mha_case *c, const mha__knobs *k, size_t h, size_t i, const unsigned char *kept)
{
    for (size_t f = 0; f < c->d_v; f++)
        if (kept[mha__head_column(k->merge, c->T_q, c->H, c->d_v, i, h, f) / (c->H * c->d_v)])
            return true;
    return false;
}

/* Marks the scores and the sums of values on which the wanted rows of the stage depend: usually those of the same
 * query rows. Softmax over queries needs all scores; merging may mix rows and heads. */
static void mark(mha__variant_bench *w, const mha__knobs *k, mha_stage stage, const unsigned char *kept)
{
    const mha_case *c = w->inputs->c;
    const bool mixes = mha__variant_mixes(k) && (stage == MHA_STAGE_HEADS || stage == MHA_STAGE_OUTPUT);
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            const size_t row = h * c->T_q + i;
            w->weighed[row] = !kept || (mixes ? is_merged_into(c, k, h, i, kept) : kept[i]);
            w->scored[row] = w->weighed[row] || k->axis == AXIS_QUERIES;
        }
    if (k->axis == AXIS_HEADS && mixes) /* a row's weights under one head depend on its scores under all heads */
        memset(w->scored, 1, c->H * c->T_q);
}

static void mean_over_heads(const mha__variant_bench *w, size_t n, double *y)
{
    const size_t H = w->inputs->c->H;
    for (size_t e = 0; e < n; e++) {
        y[e] = 0;
        for (size_t h = 0; h < H; h++)
            y[e] += w->scores[h * n + e] / (double)H;
    }
}

/* Computes the stages from the scores on. */
static void attend(mha__variant_bench *w, const mha__knobs *k, mha_stage stage, size_t b, const unsigned char *kept,
                   double *y, size_t n)
{
    mark(w, k, stage, kept);
    mha__variant_score(w, k, b, stage);
    if (stage == MHA_STAGE_SCORES || stage == MHA_STAGE_CAPPED || stage == MHA_STAGE_MASKED) {
        memcpy(y, w->scores, n * sizeof *y);
        return;
    }
    mha__variant_weigh(w, k, b);
    if (stage == MHA_STAGE_WEIGHTS)
        memcpy(y, w->scores, n * sizeof *y);
    else if (stage == MHA_STAGE_LSE)
        memcpy(y, w->lse, n * sizeof *y);
    else if (stage == MHA_STAGE_WEIGHTS_MEAN)
        mean_over_heads(w, n, y);
    else {
        mha__variant_sum_values(w, k);
        if (stage == MHA_STAGE_HEADS)
            memcpy(y, w->merged, n * sizeof *y);
        else
            mha__variant_project(w, k, b, kept, y);
    }
}

static void run_row(mha__variant_bench *w, const mha__knobs *k, mha_stage stage, size_t b, const unsigned char *kept,
                    double *y, size_t n)
{
    const mha_case *c = w->inputs->c;
    const bool mixes = k->axis == AXIS_QUERIES || mha__variant_mixes(k);
    const bool all_rows = mixes || !mha__stage_is_by_query(c, stage);
    const double *rows;
    switch (stage) {
    case MHA_STAGE_Q: rows = mha__rows_unsplit(&w->maker, &k->rows, PROJECTION_Q, b); break;
    case MHA_STAGE_K: rows = mha__rows_unsplit(&w->maker, &k->rows, PROJECTION_K, b); break;
    case MHA_STAGE_V: rows = mha__rows_unsplit(&w->maker, &k->rows, PROJECTION_V, b); break;
    case MHA_STAGE_Q_ROT: rows = mha__rows_make(&w->maker, &k->rows, PROJECTION_Q, b, true); break;
    case MHA_STAGE_K_ROT: rows = mha__rows_make(&w->maker, &k->rows, PROJECTION_K, b, true); break;
    default: rows = c->kind == CASE_ROPE ? mha__rows_make(&w->maker, &k->rows, PROJECTION_Q, b, true) : NULL; break;
    }
    if (rows) {
        memcpy(y, rows, n * sizeof *y);
        return;
    }
    if (stage != MHA_STAGE_PRESENT_VALUE)
        w->keys = gather(w, k, b, 0, mha__rows_make(&w->maker, &k->rows, PROJECTION_K, b, true));
    if (stage != MHA_STAGE_PRESENT_KEY)
        w->values = gather(w, k, b, 1, mha__rows_make(&w->maker, &k->rows, PROJECTION_V, b, true));
    if (stage == MHA_STAGE_PRESENT_KEY)
        heads_first(w->keys, w->inputs->S, c->H_kv, c->d_k, y);
    else if (stage == MHA_STAGE_PRESENT_VALUE)
        heads_first(w->values, w->inputs->S, c->H_kv, c->d_v, y);
    else {
        w->q = mha__rows_make(&w->maker, &k->rows, PROJECTION_Q, b, all_rows);
        attend(w, k, stage, b, kept, y, n);
    }
}

/* Attention over the batch rows of each position, put back into the order (batch row, position). */
static void run_exchanged(mha__variant_bench *w, const mha__knobs *k, mha_stage stage, const unsigned char *kept,
                          double *result, size_t width)
{
    const size_t B = w->inputs->c->B, T = w->inputs->c->T_q;
    mha__knobs rest = *k;
    rest.batch_as_time = 0;
    for (size_t r = 0; r < B * T; r++)
        w->exchanged_kept[r % T * B + r / T] = !kept || kept[r];
    mha__variant_run(w->exchanged, &rest, stage, w->exchanged_kept, w->exchanged_rows);
    for (size_t r = 0; r < B * T; r++)
        if (!kept || kept[r])
            memcpy(result + r * width, w->exchanged_rows + (r % T * B + r / T) * width, width * sizeof *result);
}

void mha__variant_run(mha__variant_bench *bench, const mha__knobs *knobs, mha_stage stage, const unsigned char *kept,
                      double *result)
{
    const mha_case *c = bench->inputs->c;
    size_t shape[4], n = 1;
    int rank = mha__variant_shape(bench->inputs, stage, shape);
    for (int i = 1; i < rank; i++)
        n *= shape[i];
    if (knobs->batch_as_time && bench->exchanged && (stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS)) {
        run_exchanged(bench, knobs, stage, kept, result, shape[2]);
        return;
    }
    for (size_t b = 0; b < c->B; b++) {
        const unsigned char *rows = kept ? kept + b * c->T_q : NULL;
        if (!rows || memchr(rows, 1, c->T_q))
            run_row(bench, knobs, stage, b, rows, result + b * n, n);
    }
}
