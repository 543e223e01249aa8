/* Runs programs: memory, results kept between runs, and the steps of each batch row. */
#include <string.h>

#include "attention/call/resolved.h"
#include "base/base.h"
#include "compute/sizes.h"
#include "compute/thread_pool.h"
#include "lab/lab.h"
#include "verify/engine/runner.h"

/* ---------------------------------------------------------------- memory */

/* Number of elements of a batch row of a stage. */
static size_t row_elements(const mha__inputs *in, mha_stage stage)
{
    size_t shape[4], n = 1;
    const int rank = mha__run_shape(in, stage, shape);
    for (int i = 1; i < rank; i++)
        n *= shape[i];
    return n;
}

static void take_inputs(mha__runner *w, const mha__inputs *in)
{
    w->in = in;
    for (int stage = 0; stage < MHA_STAGE_COUNT; stage++)
        w->elements[stage] = row_elements(in, (mha_stage)stage);
}

/* Takes memory for the scores of `rows` rows; false without memory, or if they exceed the limit of the runner. */
static bool make_room(mha__runner *w, size_t rows)
{
    const size_t S = w->in->S + mha__rows_beyond(w->in->c);
    if (rows * S <= w->room)
        return true;
    mha__arena_free(&w->score_pool);
    w->room = 0;
    w->scores = rows <= w->most_rows ? mha__arena_take(&w->score_pool, (rows * S + 1) * sizeof *w->scores) : NULL;
    w->visible = w->scores ? mha__arena_take(&w->score_pool, rows * S + 1) : NULL;
    w->room = w->visible ? rows * S : 0;
    return w->visible;
}

/* Largest number of needed query rows of a batch row. */
static size_t count_needed(const mha_case *c, const unsigned char *needed)
{
    size_t most = 0;
    for (size_t b = 0; b < c->B; b++) {
        size_t rows = 0;
        for (size_t i = 0; i < c->T_q; i++)
            rows += !needed || needed[b * c->T_q + i];
        most = mha__larger(most, rows);
    }
    return most;
}

/* Takes slots for results of n elements that programs share, in at most `bytes` if it can; false without memory. */
static bool take_slots(mha__runner *w, mha__kept kind, size_t n, size_t bytes)
{
    enum { MOST = 80 };
    const size_t fitting = bytes / sizeof(double) / (n + 1),
                 wanted = fitting < MOST ? mha__larger(fitting, MHA__LEAST_SLOTS) : MOST;
    mha__slot *s = w->slots[kind] = mha__arena_take(&w->pool, wanted * sizeof *s);
    while (s && w->count[kind] < wanted && (s[w->count[kind]].data = mha__take(&w->pool, n)))
        w->count[kind]++;
    return w->count[kind] >= MHA__LEAST_SLOTS;
}

static bool take_memory(mha__runner *w, const unsigned char *needed, size_t bytes)
{
    const mha__inputs *in = w->in;
    const mha_case *c = in->c;
    const size_t S = in->S + 2, all = c->H * c->T_q, lines = c->H * count_needed(c, needed), width = c->H * c->d_v;
    const mha_rope_origin *o = &c->origin;
    size_t most = 0;
    for (int stage = 0; stage < MHA_STAGE_COUNT && in->sequences; stage++)
        most = mha__larger(most, w->elements[stage]);
    size_t rows = mha__larger(c->T_q * c->H * c->d_k, S * c->H_kv * mha__larger(c->d_k, c->d_v)),
           matrix = c->E_q * in->gates, widest = 0, input = c->T_q * c->E_q;
    for (int i = 0; i < 3; i++) {
        rows = mha__larger(rows, in->T[i] * in->out[i]);
        input = mha__larger(input, in->T[i] * mha__larger(in->in[i], in->x_width[i]));
        matrix = mha__larger(matrix, in->x_width[i] * in->in[i]);
    }
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        matrix = mha__larger(matrix, in->in[i] * in->out[i]);
        widest = mha__larger(widest, mha__larger(in->out[i], in->in[i]));
    }
    const size_t axes = o->axes.axes ? mha__larger(c->T_q, c->T_k) * (o->axes.axes + widest) : 0;
    const struct {
        double **to;
        size_t n;
    } doubles[] = {{&w->W, c->kind == CASE_MHA ? matrix : 0},
                   {&w->x, input},
                   {&w->bias, widest},
                   {&w->flat, rows},
                   {&w->rows, rows},
                   {&w->turn, 3 * widest + 16 + axes}, /* in a case with other heads, one may be as wide */
                   {&w->written, mha__larger(mha__larger(rows, input), c->T_q * mha__larger(c->E_out, width))},
                   {&w->heads, c->T_q * width},
                   {&w->merged, c->T_q * width},
                   {&w->blocks, c->T_q * width},
                   {&w->lse, all},
                   {&w->ranked, S},
                   {&w->of_sequence, most}};
    bool whole = true;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        whole &= (*doubles[i].to = mha__take(&w->pool, doubles[i].n)) != NULL;
    w->scored = mha__arena_take(&w->pool, all);
    w->weighed = mha__arena_take(&w->pool, all);
    w->stored = mha__arena_take(&w->pool, all * sizeof *w->stored);
    w->sight = mha__arena_take(&w->pool, MHA__TILE_ROWS * S * sizeof *w->sight);
    w->terms = mha__arena_take(&w->pool, S * sizeof *w->terms);
    if (!whole || !w->scored || !w->weighed || !w->stored || !w->sight || !w->terms)
        return false;
    const size_t allowed = bytes / 2 / (9 * (S + 1));
    w->most_rows = bytes == 0 || all < allowed ? all : mha__larger(lines, allowed);
    const size_t share = c->kind == CASE_MHA ? 4 : 16; /* rows without projections are cheap to recompute */
    return make_room(w, lines) && take_slots(w, KEPT_PRODUCT, rows, bytes / share) &&
           take_slots(w, KEPT_ROWS, rows, bytes / share);
}

mha__runner *mha__runner_create(const mha__inputs *inputs, const unsigned char *needed, size_t bytes)
{
    mha_allocator a = mha__allocator_default(); /* thread-safe */
    mha__runner *w = mha__allocate(&a, sizeof *w);
    if (!w)
        return NULL;
    w->pool.allocator = w->score_pool.allocator = a;
    w->needed = needed;
    take_inputs(w, inputs);
    if (take_memory(w, needed, bytes))
        return w;
    mha__runner_destroy(w);
    return NULL;
}

void mha__runner_turn_to(mha__runner *runner, const mha__inputs *inputs)
{
    take_inputs(runner, inputs);
    for (int kind = 0; kind < KEPT_COUNT; kind++)
        for (size_t i = 0; i < runner->count[kind] && kind != KEPT_PRODUCT; i++)
            runner->slots[kind][i].used = 0;
}

size_t mha__runner_count(int threads, size_t *bytes)
{
    const size_t most = (size_t)1 << 30, quarter = mha__memory_at_hand() / 4;
    const int wanted = threads > 0 ? threads : mha_threads_available();
    const size_t workers = wanted < MHA__MOST_RUNNERS ? (size_t)wanted : MHA__MOST_RUNNERS;
    *bytes = (quarter < most ? quarter : most) / workers;
    return workers;
}

void mha__runner_destroy(mha__runner *runner)
{
    if (!runner)
        return;
    mha__arena_free(&runner->score_pool);
    mha__arena_free(&runner->pool);
    mha_allocator a = runner->pool.allocator;
    mha__release(&a, runner, sizeof *runner);
}

/* ---------------------------------------------------------------- one batch row */

/* Marks the rows of heads from which wanted merged rows have elements. */
static void mark_mixed(mha__runner *w, const mha__program *p, const unsigned char *kept)
{
    const mha_case *c = w->in->c;
    const mha__mutation *m = mha__mutation_at(p, AT_M, OP_FROM);
    const mha__extents x = {.n = {1, c->T_q, c->H, c->d_v}, .order = MHA__BTHC};
    memset(w->weighed, 0, c->H * c->T_q);
    for (size_t i = 0; i < c->T_q; i++)
        for (size_t e = 0; e < c->H * c->d_v && kept[i]; e++) {
            const mha__element at = mha__map_element(m, &x, (mha__element){{0, i, e / c->d_v, e % c->d_v}});
            if (at.at[MHA__T] < c->T_q)
                w->weighed[at.at[MHA__H] * c->T_q + at.at[MHA__T]] = 1;
        }
}

/* Marks the scores and the sums of values that the wanted rows of a stage need: usually those of the same query
 * rows. Softmax over queries needs all scores; merging may mix rows and heads. False without memory. */
static bool mark(mha__runner *w, const mha__program *p, mha_stage stage, const unsigned char *kept)
{
    const mha_case *c = w->in->c;
    const size_t T = c->T_q, lines = c->H * T;
    const int axis = mha__arg(p, AT_E, OP_OVER);
    const bool ends = stage == MHA_STAGE_HEADS || stage == MHA_STAGE_GATED || stage == MHA_STAGE_OUTPUT,
               mixes = ends && kept && mha__mixes(p);
    if (mixes)
        mark_mixed(w, p, kept);
    for (size_t row = 0; row < lines && !mixes; row++)
        w->weighed[row] = (!kept || kept[row % T]) && (w->head == 0 || w->head == row / T + 1);
    if (mixes && (axis == MHA__OVER_HEADS || mha__has(p, AT_P, OP_OVER) || mha__has(p, AT_O, OP_OVER)))
        for (size_t row = 0; row < lines; row++) /* weights under one head depend on the scores under all */
            for (size_t h = 0; h < c->H && w->weighed[row]; h++)
                w->weighed[h * T + row % T] = 1;
    size_t count = 0;
    for (size_t row = 0; row < lines; row++) {
        w->scored[row] = w->weighed[row] || axis == MHA__OVER_QUERIES || mha__has(p, AT_P, OP_FROM);
        if (w->scored[row])
            w->stored[row] = count++;
    }
    return make_room(w, count);
}

/* Computes the stages after the merged heads. */
static void finish(mha__runner *w, const mha__program *p, mha_stage stage, size_t b, const unsigned char *kept,
                   double *y, size_t n)
{
    const size_t d = w->in->c->d_v, H = w->in->c->H;
    for (size_t e = 0; w->inside && stage == MHA_STAGE_OUTPUT && e < w->in->c->T_q * H; e++)
        if (!(w->inside >> e % H & 1))
            memcpy(w->merged + e * d, w->outside + (b * w->in->c->T_q * H + e) * d, d * sizeof *y);
    if (stage != MHA_STAGE_HEADS)
        mha__gate_rows(w, p, b);
    if (stage == MHA_STAGE_OUTPUT)
        mha__project_output(w, p, b, kept, y);
    else
        memcpy(y, w->merged, n * sizeof *y);
}

/* Computes the stages from the scores on. */
static bool attend(mha__runner *w, const mha__program *p, mha_stage stage, size_t b, const unsigned char *kept,
                   double *y, size_t n)
{
    if (!mark(w, p, stage, kept))
        return false;
    mha__score_rows(w, p, b, stage);
    const bool scores = stage == MHA_STAGE_SCORES || stage == MHA_STAGE_CAPPED || stage == MHA_STAGE_MASKED;
    const size_t H = w->in->c->H, T = w->in->c->T_q, all = w->in->S + mha__rows_beyond(w->in->c);
    if (!scores)
        mha__weigh_rows(w, p, b);
    if (scores || stage == MHA_STAGE_WEIGHTS) {
        for (size_t row = 0; row < H * T && all > 0; row++)
            if (w->scored[row])
                memcpy(y + row * all, w->scores + w->stored[row] * all, all * sizeof *y);
    } else if (stage == MHA_STAGE_LSE)
        memcpy(y, w->lse, n * sizeof *y);
    else if (stage == MHA_STAGE_WEIGHTS_MEAN)
        for (size_t e = 0; e < n; e++) {
            y[e] = 0;
            for (size_t h = 0; h < H && w->scored[h * T + e / all]; h++)
                y[e] += w->scores[mha__scores_at(w, h, e / all) + e % all] / (double)H;
        }
    else {
        mha__sum_values(w, p, b);
        finish(w, p, stage, b, kept, y, n);
    }
    return true;
}

static bool run_row(mha__runner *w, const mha__program *p, mha_stage stage, size_t b, const unsigned char *kept,
                    double *y, size_t n)
{
    const mha_case *c = w->in->c;
    const bool all_rows = mha__arg(p, AT_E, OP_OVER) == MHA__OVER_QUERIES || mha__mixes(p) ||
                          mha__has(p, AT_P, OP_FROM) || mha__has(p, AT_S, OP_FROM) || mha__has(p, AT_OUT, OP_TAKE) ||
                          mha__has(p, AT_OUT, OP_FROM) || !mha__stage_by_query(c, stage);
    const mha__program plain = {.n = 0};
    const double *rows = NULL;
    if (stage <= MHA_STAGE_V)
        rows = mha__rows_before(w, p, (int)(stage - MHA_STAGE_Q), b);
    else if (stage == MHA_STAGE_Q_ROT || stage == MHA_STAGE_K_ROT || c->kind == CASE_ROPE)
        rows = mha__rows_turned(w, p, stage == MHA_STAGE_K_ROT ? PROJECTION_K : PROJECTION_Q, b);
    if (rows)
        memcpy(y, rows, n * sizeof *y);
    else if (stage == MHA_STAGE_Q_LATENT || stage == MHA_STAGE_KV_LATENT)
        mha__latents_of(w, &plain, stage == MHA_STAGE_KV_LATENT, b, true, y);
    else if (stage == MHA_STAGE_PRESENT_KEY || stage == MHA_STAGE_PRESENT_VALUE) {
        const int side = stage == MHA_STAGE_PRESENT_KEY ? PROJECTION_K : PROJECTION_V;
        memcpy(y, mha__rows_of(w, p, side, b, true), n * sizeof *y);
        mha__reread(&mha__heads_first, 0, w->in->S, c->H_kv, w->in->d[side], y, w->flat);
    } else {
        w->keys = mha__rows_of(w, p, PROJECTION_K, b, true);
        w->values = mha__rows_of(w, p, PROJECTION_V, b, true);
        w->q = mha__rows_of(w, p, PROJECTION_Q, b, all_rows);
        return attend(w, p, stage, b, kept, y, n);
    }
    return true;
}

/* Computes heads of batch row b that are those of other batch rows and heads, and what follows them. */
static bool run_blocks(mha__runner *w, const mha__program *p, mha_stage stage, size_t b, const unsigned char *kept,
                       double *y, size_t n)
{
    const size_t H = w->in->c->H, d = w->in->c->d_v, lines = w->in->c->T_q * H;
    const double *table = mha__mutation_at(p, AT_OUT, OP_TAKE)->table + b * H;
    for (size_t h = 0; h < H; h++) {
        const size_t from = (size_t)table[h];
        const bool again = h > 0 && (size_t)table[h - 1] / H == from / H;
        if (!again && !run_row(w, p, MHA_STAGE_HEADS, from / H, kept, w->written, lines * d))
            return false;
        for (size_t line = h; line < lines; line += H)
            memcpy(w->blocks + line * d, w->written + (line - h + from % H) * d, d * sizeof *y);
    }
    memcpy(w->merged, w->blocks, lines * d * sizeof *y);
    finish(w, p, stage, b, kept, y, n);
    return true;
}

/* Runs one sequence of a ragged batch. */
static bool run_sequence(mha__runner *w, const mha__program *p, mha_stage stage, size_t b, const unsigned char *kept,
                         double *y)
{
    const mha__inputs *all = w->in, *own = &all->sequences[b];
    const unsigned char *needed = w->needed;
    mha__program rest = *p;
    mha__enter_sequence(&rest, b);
    w->in = own;
    w->sequence = b;
    w->needed = needed ? needed + b * all->c->T_q : NULL;
    mha__program_keys(&rest, w->key);
    const bool ran = run_row(w, &rest, stage, 0, kept, w->of_sequence, row_elements(own, stage));
    w->in = all;
    w->sequence = 0;
    w->needed = needed;
    mha__stage_place(all, stage, b, w->of_sequence, y);
    return ran;
}

/* ---------------------------------------------------------------- other calls */

/* Row of the other call for query row i of batch row b; with heads as time, i is row * H + head. */
static size_t row_of_other(const mha__inputs *in, bool heads, size_t b, size_t i)
{
    const size_t H = in->c->H, T = in->c->T_q;
    return heads           ? (b * H + i % H) * T + i / H
           : in->sequences ? in->sequences[b].first[PROJECTION_Q] + i
                           : i * in->c->B + b;
}

/* Runs a program on the other call that it computes, and restores the order of rows. */
static bool run_recast(mha__runner *w, const mha__program *p, int call, mha_stage stage, const unsigned char *kept,
                       double *result)
{
    const mha__inputs *in = w->in;
    const mha_case *c = in->c;
    const bool heads = call == MHA__HEADS_AS_TIME; /* computes all rows */
    const size_t T = heads ? c->T_q * c->H : c->T_q, rows = c->B * T,
                 width = heads                      ? c->d_v
                         : stage == MHA_STAGE_HEADS ? c->H * c->d_v
                                                    : c->E_out;
    mha__arena pool = {.allocator = w->pool.allocator};
    mha__program rest = *p;
    (void)mha__drop(&rest, AT_CALL, OP_FN);
    unsigned char *needed = mha__arena_take(&pool, rows + 1), *there = mha__arena_take(&pool, rows + 1);
    double *y = mha__take(&pool, rows * width);
    for (size_t row = 0; needed && there && row < rows; row++) {
        there[row] = !in->sequences || row % T < in->sequences[row / T].T[PROJECTION_Q];
        if (there[row])
            needed[row_of_other(in, heads, row / T, row % T)] = heads || !kept || kept[row];
    }
    mha__runner *other = needed && there && y ? mha__runner_create(heads ? in->turned : in->other, needed, 0) : NULL;
    if (other)
        other->columns = w->columns;
    const bool ran = other && mha__run(other, &rest, heads ? MHA_STAGE_OUTPUT : stage, heads ? NULL : needed, y);
    for (size_t row = 0; ran && row < rows; row++)
        if (!there[row])
            memset(result + row * width, 0, width * sizeof *y);
        else if (heads || !kept || kept[row])
            memcpy(result + row * width, y + row_of_other(in, heads, row / T, row % T) * width, width * sizeof *y);
    mha__runner_destroy(other);
    mha__arena_free(&pool);
    return ran;
}

/* ---------------------------------------------------------------- all batch rows */

size_t mha__number_written(const mha_case *c, int part, size_t b, size_t t, size_t e, size_t width)
{
    switch (part) {
    case MHA__LACKS_ROWS: return t;
    case MHA__LACKS_HEADS: return e / c->d_v;
    case MHA__LACKS_FEATURES: return e % c->d_v;
    case MHA__LACKS_BATCHES: return b;
    case MHA__LACKS_END: return (b * c->T_q + t) * width + e;
    default: return ((b * c->H + e / c->d_v) * c->T_q + t) * c->d_v + e % c->d_v;
    }
}

bool mha__run(mha__runner *w, const mha__program *p, mha_stage stage, const unsigned char *kept, double *result)
{
    const mha_case *c = w->in->c;
    const size_t n = w->elements[stage], width = c->T_q > 0 ? n / c->T_q : 0;
    const int call = mha__arg(p, AT_CALL, OP_FN);
    const bool ends = stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS;
    const mha__mutation *rows = ends && c->T_q > 0 ? mha__mutation_at(p, AT_OUT, OP_FROM) : NULL,
                        *batch = mha__mutation_at(p, AT_OUT, OP_TAKE),
                        *lacks = ends && n > 0 ? mha__mutation_at(p, AT_OUT, OP_ZERO) : NULL;
    if (ends && call && (call == MHA__HEADS_AS_TIME ? w->in->turned : w->in->other))
        return run_recast(w, p, call, stage, kept, result);
    mha__program_keys(p, w->key);
    for (size_t b = 0; b < c->B; b++) {
        const unsigned char *wanted = kept && !rows ? kept + b * c->T_q : NULL;
        const size_t from = batch && batch->axis != MHA__H ? (size_t)batch->table[b] : b;
        double *y = result + b * n;
        if (wanted && !memchr(wanted, 1, c->T_q))
            continue;
        if (!(w->in->sequences                         ? run_sequence(w, p, stage, b, wanted, y)
              : ends && batch && batch->axis == MHA__H ? run_blocks(w, p, stage, b, wanted, y, n)
                                                       : run_row(w, p, stage, from, wanted, y, n)))
            return false;
        mha__reread(rows, b, c->T_q, 1, width, y, w->written);
        for (size_t i = 0; lacks && i < n; i++)
            if (mha__number_written(c, lacks->arg, b, i / width, i % width, width) >= (size_t)lacks->number)
                y[i] = 0;
    }
    return true;
}
