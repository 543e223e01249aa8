/* The second half of a bug: the steps from scores to the output. */
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "lab/lab.h"
#include "verify/bug_forward/bug_bench.h"

/* ---------------------------------------------------------------- memory */

static double *take(mha__bug_bench *w, size_t n)
{
    size_t bytes;
    return mha__mul(n + 1, sizeof(double), &bytes) ? mha__arena_take(&w->pool, bytes) : NULL;
}

/* How many elements a batch row of a stage has. */
static size_t row_elements(const mha__bug_inputs *inputs, mha_stage stage)
{
    size_t shape[4], n = 1;
    const int rank = mha__bug_shape(inputs, stage, shape);
    for (int i = 1; i < rank; i++)
        n *= shape[i];
    return n;
}

static void take_inputs(mha__bug_bench *w, const mha__bug_inputs *inputs)
{
    w->inputs = inputs;
    for (int stage = 0; stage < MHA_STAGE_COUNT; stage++)
        w->elements[stage] = row_elements(inputs, (mha_stage)stage);
}

/* The row in which the other reading of the inputs has query row i of batch row b. */
static size_t row_of_other(const mha__bug_inputs *w, size_t b, size_t i)
{
    return w->sequences ? w->sequences[b].first[PROJECTION_Q] + i : i * w->c->B + b;
}

/* Marks the rows of the other reading that are marked in this one; all of them without `rows`. */
static void mark_other(const mha__bug_inputs *in, const unsigned char *rows, unsigned char *other)
{
    const size_t B = in->c->B, T = in->c->T_q;
    memset(other, 0, B * T);
    for (size_t b = 0; b < B; b++)
        for (size_t i = 0; i < (in->sequences ? in->sequences[b].T[PROJECTION_Q] : T); i++)
            other[row_of_other(in, b, i)] = !rows || rows[b * T + i];
}

/* Adds benches for the inputs read in other ways, as far as there are any; false without memory. */
static bool add_others(mha__bug_bench *w, const unsigned char *needed, size_t bytes)
{
    const mha_case *c = w->inputs->c;
    const size_t rows = c->B * c->T_q, width = c->H * c->d_v > c->E_out ? c->H * c->d_v : c->E_out;
    size_t most = rows * width;
    if (!w->inputs->other && !w->inputs->turned)
        return true;
    for (int stage = 0; stage < MHA_STAGE_COUNT; stage++)
        most = w->elements[stage] > most ? w->elements[stage] : most;
    w->other_kept = mha__arena_take(&w->pool, rows);
    w->other_needed = mha__arena_take(&w->pool, rows);
    if (!w->other_kept || !w->other_needed)
        return false;
    if (w->inputs->other) {
        mark_other(w->inputs, needed, w->other_needed);
        w->other = mha__bug_bench_create(w->inputs->other, w->other_needed, bytes);
    }
    w->turned = w->inputs->turned ? mha__bug_bench_create(w->inputs->turned, NULL, bytes) : NULL;
    w->other_rows = take(w, most);
    return (w->other || !w->inputs->other) && (w->turned || !w->inputs->turned) && w->other_rows;
}

/* Memory for the scores of so many rows; false when they are more than the bench may have. */
static bool make_room(mha__bug_bench *w, size_t rows, size_t S)
{
    if (rows <= w->room)
        return true;
    mha__arena_free(&w->score_pool);
    w->room = 0;
    w->scores = rows <= w->most_rows ? mha__arena_take(&w->score_pool, (rows * S + 1) * sizeof *w->scores) : NULL;
    w->visible = w->scores ? mha__arena_take(&w->score_pool, rows * S + 1) : NULL;
    w->room = w->visible ? rows : 0;
    return w->visible;
}

/* Memory for the scores of the query rows that are needed under all heads, and how many more rows there may be. */
static bool make_first_room(mha__bug_bench *w, const unsigned char *needed, size_t bytes)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c), allowed = bytes / (9 * (S + 1)), all = c->H * c->T_q;
    size_t most = 0;
    for (size_t b = 0; b < c->B; b++) {
        size_t rows = 0;
        for (size_t i = 0; i < c->T_q; i++)
            rows += !needed || needed[b * c->T_q + i];
        most = rows > most ? rows : most;
    }
    w->most_rows = bytes == 0 || all < allowed ? all : c->H * most > allowed ? c->H * most : allowed;
    return make_room(w, c->H * most, S);
}

/* Memory for what many bugs find as the case says it, where it is little; false without memory. */
static bool keep_what_is_said(mha__bug_bench *w)
{
    enum { MOST = 1 << 18 };
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S, visibilities = c->B * c->T_q * S, q = c->B * c->T_q * c->H * c->d_k,
                 keys = c->B * (S + 2) * c->H_kv * c->d_k, values = c->B * (S + 2) * c->H_kv * c->d_v;
    mha__as_said *said = &w->said;
    said->knobs = mha__knobs_of(c);
    said->heads = mha__bug_heads_see_alike(&said->knobs) ? 1 : c->H;
    if (w->inputs->sequences || c->kind == CASE_ROPE || visibilities * c->H > MOST || q + keys + values > MOST)
        return true;
    said->row[0] = take(w, q);
    said->row[1] = take(w, keys);
    said->row[2] = take(w, values);
    said->visibility = mha__arena_take(&w->pool, (visibilities * said->heads + 1) * sizeof *said->visibility);
    said->made = mha__arena_take(&w->pool, 3 * c->B + 1);
    said->seen = mha__arena_take(&w->pool, c->B * said->heads * c->T_q + 1);
    said->product = take(w, visibilities * c->H);
    said->multiplied = mha__arena_take(&w->pool, c->B * c->H * c->T_q + 1);
    return said->row[0] && said->row[1] && said->row[2] && said->visibility && said->made && said->seen &&
           said->product && said->multiplied;
}

mha__bug_bench *mha__bug_bench_create(const mha__bug_inputs *inputs, const unsigned char *needed, size_t bytes)
{
    const mha_case *c = inputs->c;
    mha_allocator a = mha__allocator_default(); /* any thread may use this one */
    mha__bug_bench *w = mha__allocate(&a, sizeof *w);
    if (!w)
        return NULL;
    const size_t S = inputs->S + 2, rows = c->H * c->T_q;
    w->pool.allocator = w->score_pool.allocator = a;
    take_inputs(w, inputs);
    w->own_keys = take(w, S * c->H_kv * c->d_k);
    w->own_values = take(w, S * c->H_kv * c->d_v);
    w->moving = take(w, c->P > 0 ? S * c->H_kv * (c->d_k > c->d_v ? c->d_k : c->d_v) : 0);
    w->scored = mha__arena_take(&w->pool, rows);
    w->weighed = mha__arena_take(&w->pool, rows);
    w->stored = mha__arena_take(&w->pool, rows * sizeof *w->stored);
    w->visibility = mha__arena_take(&w->pool, MHA_BUG_TILE * S * sizeof *w->visibility);
    w->heads = take(w, rows * c->d_v);
    w->merged = take(w, rows * c->d_v);
    w->lse = take(w, rows);
    w->ranked = take(w, S);
    w->terms = mha__arena_take(&w->pool, S * sizeof *w->terms);
    w->written = take(w, c->T_q * (c->E_out > c->H * c->d_v ? c->E_out : c->H * c->d_v));
    const bool whole = w->own_keys && w->own_values && w->moving && w->scored && w->weighed && w->stored &&
                       w->visibility && w->heads && w->merged && w->lse && w->ranked && w->terms && w->written;
    if (whole && make_first_room(w, needed, bytes / 2) &&
        mha__row_maker_begin(&w->maker, inputs, needed, bytes / 2, &w->pool) && add_others(w, needed, bytes) &&
        keep_what_is_said(w))
        return w;
    mha__bug_bench_destroy(w);
    return NULL;
}

void mha__bug_bench_turn_to(mha__bug_bench *bench, const mha__bug_inputs *inputs)
{
    take_inputs(bench, inputs);
    bench->maker.inputs = inputs;
    bench->said.row[0] = NULL; /* is of other heads */
    for (size_t i = 0; i < bench->maker.count; i++)
        if (!bench->maker.slots[i].product)
            bench->maker.slots[i].which = -1;
}

size_t mha__bug_workers(int threads, size_t *bytes)
{
    const size_t most = (size_t)1 << 30, quarter = mha__memory_at_hand() / 4;
    const int wanted = threads > 0 ? threads : mha_threads_available();
    const size_t workers = wanted < MHA_BUG_WORKERS ? (size_t)wanted : MHA_BUG_WORKERS;
    *bytes = (quarter < most ? quarter : most) / workers;
    return workers;
}

void mha__bug_bench_destroy(mha__bug_bench *bench)
{
    if (!bench)
        return;
    mha__bug_bench_destroy(bench->other);
    mha__bug_bench_destroy(bench->turned);
    mha__arena_free(&bench->score_pool);
    mha__arena_free(&bench->pool);
    mha_allocator a = bench->pool.allocator;
    mha__release(&a, bench, sizeof *bench);
}

void mha__bug_bench_columns(mha__bug_bench *bench, size_t columns)
{
    bench->columns = columns;
    if (bench->other)
        bench->other->columns = columns;
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

/* A row's weights under one head depend on its scores under all heads. */
static void share_among_heads(mha__bug_bench *w)
{
    const size_t H = w->inputs->c->H, T = w->inputs->c->T_q;
    for (size_t i = 0; i < T; i++) {
        unsigned char wanted = 0;
        for (size_t h = 0; h < H; h++)
            wanted |= w->scored[h * T + i];
        for (size_t h = 0; h < H; h++)
            w->scored[h * T + i] = w->weighed[h * T + i] = wanted;
    }
}

/* Marks the scores and the sums of values on which the wanted rows of the stage depend: usually those of the same
 * query rows. Softmax over queries needs all scores; merging may mix rows and heads. False without memory. */
static bool mark(mha__bug_bench *w, const mha__knobs *k, mha_stage stage, const unsigned char *kept)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c);
    const bool mixes =
        mha__bug_mixes(k) && (stage == MHA_STAGE_HEADS || stage == MHA_STAGE_GATED || stage == MHA_STAGE_OUTPUT);
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            const size_t row = h * c->T_q + i;
            w->weighed[row] = !kept || (mixes ? is_merged_into(c, k, h, i, kept) : kept[i]);
            w->scored[row] = w->weighed[row] || k->axis == AXIS_QUERIES;
        }
    if (mixes && (k->axis == AXIS_HEADS || k->weights_averaged || k->heads_averaged))
        share_among_heads(w);
    size_t count = 0;
    for (size_t row = 0; row < c->H * c->T_q; row++)
        if (w->scored[row])
            w->stored[row] = count++;
    return make_room(w, count, S);
}

static void mean_over_heads(const mha__bug_bench *w, size_t n, double *y)
{
    const size_t H = w->inputs->c->H;
    const size_t T = w->inputs->c->T_q, all = T > 0 ? n / T : 0;
    for (size_t e = 0; e < n; e++) {
        y[e] = 0;
        for (size_t h = 0; h < H && w->scored[h * T + e / all]; h++)
            y[e] += w->scores[mha__bug_scores_at(w, h, e / all) + e % all] / (double)H;
    }
}

/* Copies the rows of scores that are known to (h, T_q, S'). */
static void copy_scored(const mha__bug_bench *w, double *y)
{
    const mha_case *c = w->inputs->c;
    const size_t all = w->inputs->S + mha__extra_rows(c);
    for (size_t row = 0; row < c->H * c->T_q; row++)
        if (w->scored[row])
            memcpy(y + row * all, w->scores + w->stored[row] * all, all * sizeof *y);
}

/* Computes the stages from the scores on. */
static bool attend(mha__bug_bench *w, const mha__knobs *k, mha_stage stage, size_t b, const unsigned char *kept,
                   double *y, size_t n)
{
    if (!mark(w, k, stage, kept))
        return false;
    mha__bug_score(w, k, b, stage);
    if (stage == MHA_STAGE_SCORES || stage == MHA_STAGE_CAPPED || stage == MHA_STAGE_MASKED) {
        copy_scored(w, y);
        return true;
    }
    mha__bug_weigh(w, k, b);
    if (stage == MHA_STAGE_WEIGHTS)
        copy_scored(w, y);
    else if (stage == MHA_STAGE_LSE)
        memcpy(y, w->lse, n * sizeof *y);
    else if (stage == MHA_STAGE_WEIGHTS_MEAN)
        mean_over_heads(w, n, y);
    else {
        mha__bug_sum_values(w, k, b);
        if (stage != MHA_STAGE_HEADS)
            mha__bug_gate(w, k, b);
        if (stage == MHA_STAGE_HEADS || stage == MHA_STAGE_GATED)
            memcpy(y, w->merged, n * sizeof *y);
        else
            mha__bug_project(w, k, b, kept, y);
    }
    return true;
}

/* The rows of q, k or v of one batch row that are attended to. */
static const double *rows_of(mha__bug_bench *w, const mha__knobs *k, int which, size_t b, bool all_rows)
{
    const mha__bug_inputs *in = w->inputs;
    const mha_case *c = in->c;
    const bool is_said = w->said.rows && (which != PROJECTION_Q || !all_rows);
    const size_t n = which == PROJECTION_Q   ? c->T_q * c->H * c->d_k
                     : which == PROJECTION_K ? (in->S + 2) * c->H_kv * c->d_k
                                             : (in->S + 2) * c->H_kv * c->d_v;
    double *said = is_said ? w->said.row[which] + b * n : NULL;
    if (said && w->said.made[(size_t)which * c->B + b])
        return said;
    const double *rows = mha__rows_make(&w->maker, k, which, b, all_rows);
    if (which != PROJECTION_Q)
        rows = mha__bug_gather(w, k, b, which == PROJECTION_V, rows);
    if (said) {
        const bool all = which == PROJECTION_Q || c->P > 0 || mha__extra_rows(c) > 0; /* else there are no more rows */
        memcpy(said, rows, (all ? n : n / (in->S + 2) * in->S) * sizeof *said);
        w->said.made[(size_t)which * c->B + b] = 1;
    }
    return rows;
}

static bool run_row(mha__bug_bench *w, const mha__knobs *k, mha_stage stage, size_t b, const unsigned char *kept,
                    double *y, size_t n)
{
    const mha_case *c = w->inputs->c;
    const bool mixes = k->axis == AXIS_QUERIES || mha__bug_mixes(k);
    const bool all_rows = mixes || k->batch_order || !mha__stage_is_by_query(c, stage);
    const double *rows;
    switch (stage) {
    case MHA_STAGE_Q: rows = mha__rows_unsplit(&w->maker, k, PROJECTION_Q, b); break;
    case MHA_STAGE_K: rows = mha__rows_unsplit(&w->maker, k, PROJECTION_K, b); break;
    case MHA_STAGE_V: rows = mha__rows_unsplit(&w->maker, k, PROJECTION_V, b); break;
    case MHA_STAGE_Q_LATENT: rows = w->inputs->latents[0] + b * n; break;
    case MHA_STAGE_KV_LATENT: rows = w->inputs->latents[1] + b * n; break;
    case MHA_STAGE_Q_ROT: rows = mha__rows_make(&w->maker, k, PROJECTION_Q, b, true); break;
    case MHA_STAGE_K_ROT: rows = mha__rows_make(&w->maker, k, PROJECTION_K, b, true); break;
    default: rows = c->kind == CASE_ROPE ? mha__rows_make(&w->maker, k, PROJECTION_Q, b, true) : NULL; break;
    }
    if (rows) {
        memcpy(y, rows, n * sizeof *y);
        return true;
    }
    if (stage != MHA_STAGE_PRESENT_VALUE)
        w->keys = rows_of(w, k, PROJECTION_K, b, true);
    if (stage != MHA_STAGE_PRESENT_KEY)
        w->values = rows_of(w, k, PROJECTION_V, b, true);
    if (stage == MHA_STAGE_PRESENT_KEY)
        heads_first(w->keys, w->inputs->S, c->H_kv, c->d_k, y);
    else if (stage == MHA_STAGE_PRESENT_VALUE)
        heads_first(w->values, w->inputs->S, c->H_kv, c->d_v, y);
    else {
        w->q = rows_of(w, k, PROJECTION_Q, b, all_rows);
        return attend(w, k, stage, b, kept, y, n);
    }
    return true;
}

/* One sequence of a ragged batch. */
static bool run_sequence(mha__bug_bench *w, const mha__knobs *k, mha_stage stage, size_t b, const unsigned char *kept,
                         double *y)
{
    const mha__bug_inputs *all = w->inputs, *own = &all->sequences[b];
    const unsigned char *needed = w->maker.needed;
    mha__knobs rest = *k;
    rest.lengths = k->lengths ? k->lengths + b : NULL;
    mha__cut_to_sequence(&rest.s, b);
    w->inputs = w->maker.inputs = own;
    w->maker.sequence = b;
    w->maker.needed = needed ? needed + b * all->c->T_q : NULL;
    const bool ran = run_row(w, &rest, stage, 0, kept, w->other_rows, row_elements(own, stage));
    w->inputs = w->maker.inputs = all;
    w->maker.needed = needed;
    mha__ragged_place(all, stage, b, w->other_rows, y);
    return ran;
}

/* Attention over the other reading of the inputs, its rows put back into their places. */
static bool run_other(mha__bug_bench *w, const mha__knobs *k, mha_stage stage, const unsigned char *kept,
                      double *result, size_t width)
{
    const mha__bug_inputs *in = w->inputs;
    const size_t B = in->c->B, T = in->c->T_q;
    mha__knobs rest = *k;
    rest.reading = READING_RIGHT;
    mark_other(in, kept, w->other_kept);
    if (!mha__bug_run(w->other, &rest, stage, w->other_kept, w->other_rows))
        return false;
    for (size_t b = 0; b < B; b++)
        for (size_t i = 0; i < T; i++) {
            double *to = result + (b * T + i) * width;
            if (in->sequences && i >= in->sequences[b].T[PROJECTION_Q])
                memset(to, 0, width * sizeof *to);
            else if (!kept || kept[b * T + i])
                memcpy(to, w->other_rows + row_of_other(in, b, i) * width, width * sizeof *to);
        }
    return true;
}

/* Attention over the heads of each position, its rows put back into their places. */
static bool run_turned(mha__bug_bench *w, const mha__knobs *k, double *result)
{
    const mha_case *c = w->inputs->c;
    mha__knobs rest = *k;
    rest.reading = READING_RIGHT;
    if (!mha__bug_run(w->turned, &rest, MHA_STAGE_OUTPUT, NULL, w->other_rows))
        return false;
    for (size_t row = 0; row < c->B * c->T_q * c->H; row++) {
        const size_t h = row % c->H, t = row / c->H % c->T_q, b = row / (c->H * c->T_q);
        memcpy(result + row * c->d_v, w->other_rows + ((b * c->H + h) * c->T_q + t) * c->d_v, c->d_v * sizeof *result);
    }
    return true;
}

/* Puts the n rows of one batch row where others should be. */
static void reorder(mha__bug_bench *w, const double *order, size_t n, size_t width, double *y)
{
    double *copy = w->written;
    memcpy(copy, y, n * width * sizeof *y);
    for (size_t t = 0; t < n; t++)
        memcpy(y + t * width, copy + (size_t)order[t] * width, width * sizeof *y);
}

/* Whether element e of row t of batch row b is not written. */
static bool is_unwritten(const mha_case *c, const mha__knobs *k, size_t b, size_t t, size_t e, size_t width)
{
    const size_t h = e / c->d_v, f = e % c->d_v, from = (size_t)k->unwritten_from;
    switch (k->unwritten) {
    case LACKS_ROWS: return t >= from;
    case LACKS_HEADS: return h >= from;
    case LACKS_FEATURES: return f >= from;
    case LACKS_BATCHES: return b >= from;
    case LACKS_END: return (b * c->T_q + t) * width + e >= from;
    default: return ((b * c->H + h) * c->T_q + t) * c->d_v + f >= from;
    }
}

/* Leaves out what is not written of the n elements of one batch row. */
static void leave_unwritten(const mha_case *c, const mha__knobs *k, size_t b, size_t n, double *y)
{
    const size_t width = n / c->T_q;
    for (size_t i = 0; i < n; i++)
        if (is_unwritten(c, k, b, i / width, i % width, width))
            y[i] = 0;
}

bool mha__bug_run(mha__bug_bench *bench, const mha__knobs *knobs, mha_stage stage, const unsigned char *kept,
                  double *result)
{
    const mha_case *c = bench->inputs->c;
    const size_t n = bench->elements[stage];
    const bool ends = stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS;
    if (knobs->reading == READING_HEADS_FOR_TIME && bench->turned && ends)
        return run_turned(bench, knobs, result);
    if (knobs->reading == READING_OTHER && bench->other && ends)
        return run_other(bench, knobs, stage, kept, result, stage == MHA_STAGE_HEADS ? c->H * c->d_v : c->E_out);
    mha__as_said *said = &bench->said;
    said->rows = said->row[0] && knobs->pages == PAGES_RIGHT && knobs->cache_order == CACHE_RIGHT && !knobs->past &&
                 !knobs->joined && knobs->joined_page == 0 && mha__knobs_make_rows_alike(&said->knobs, knobs);
    said->products = said->rows && knobs->group_k == GROUPS_RIGHT && knobs->groups == 0;
    const bool rounds_bias = knobs->s.added.bias.rule != MHA_BIAS_RULE_NONE && knobs->round_weights != ROUND_NOT;
    said->visibilities = said->row[0] && !rounds_bias && mha__knobs_see_alike(&said->knobs, knobs);
    for (size_t b = 0; b < c->B; b++) {
        const bool moved = knobs->row_order && ends && c->T_q > 0;
        const unsigned char *rows = kept && !moved ? kept + b * c->T_q : NULL;
        const size_t from = knobs->batch_order ? (size_t)knobs->batch_order[b] : b;
        if (rows && !memchr(rows, 1, c->T_q))
            continue;
        if (!(bench->inputs->sequences ? run_sequence(bench, knobs, stage, b, rows, result + b * n)
                                       : run_row(bench, knobs, stage, from, rows, result + b * n, n)))
            return false;
        if (moved)
            reorder(bench, knobs->row_order + b * c->T_q, c->T_q, n / c->T_q, result + b * n);
        if (knobs->unwritten && ends && n > 0)
            leave_unwritten(c, knobs, b, n, result + b * n);
    }
    return true;
}
