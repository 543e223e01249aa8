/* The first half of a bug: the rows of q, k and v, from the inputs on. */
#include <math.h>
#include <string.h>

#include "attention/call/resolved.h"
#include "base/base.h"
#include "compute/gemm.h"
#include "verify/bug_forward/bug_inputs.h"

/* ---------------------------------------------------------------- memory */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static double *take(mha__arena *pool, size_t n)
{
    size_t bytes;
    return mha__mul(n + 1, sizeof(double), &bytes) ? mha__arena_take(pool, bytes) : NULL;
}

bool mha__row_maker_begin(mha__row_maker *maker, const mha__bug_inputs *inputs, const unsigned char *needed,
                          size_t bytes, mha__arena *pool)
{
    size_t rows = 0, matrix = 0, widest = 0, input = 0;
    for (int i = 0; i < 3; i++) {
        rows = larger(rows, inputs->T[i] * inputs->h[i] * inputs->d[i]);
        input = larger(input, inputs->T[i] * inputs->in[i]);
    }
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        matrix = larger(matrix, inputs->in[i] * inputs->out[i]);
        widest = larger(widest, inputs->out[i]);
    }
    const size_t share = inputs->c->kind == CASE_MHA ? 1 : 4; /* without projections rows are quickly made again */
    size_t count = bytes / share / (rows * sizeof(double) + 1);
    count = count > MHA_ROW_SLOTS_MOST ? MHA_ROW_SLOTS_MOST : larger(count, MHA_ROW_SLOTS_LEAST);
    *maker = (mha__row_maker){.inputs = inputs, .needed = needed};
    maker->slots = mha__arena_take(pool, count * sizeof *maker->slots);
    maker->W = take(pool, inputs->c->kind == CASE_MHA ? matrix : 0);
    maker->x = take(pool, input);
    maker->bias = take(pool, widest);
    maker->unsplit = take(pool, rows);
    maker->turn = take(pool, 3 * widest); /* one head may be as wide, in a case with other heads */
    if (!maker->slots || !maker->W || !maker->x || !maker->bias || !maker->unsplit || !maker->turn)
        return false;
    for (; maker->count < count; maker->count++) {
        double *more = take(pool, rows);
        if (!more)
            break;
        maker->slots[maker->count] = (mha__row_slot){.which = -1, .rows = more};
    }
    return maker->count >= MHA_ROW_SLOTS_LEAST;
}

/* Whether rows that depend on the same are the same. Padding that differs costs a slot, nothing else. */
static bool same_key(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(mha__row_key)) == 0;
}

/* The slot that has these rows (then *found is true), else the least recently used slot of their kind, for the caller
 * to fill. Products, which take longest, have half of the slots for themselves. */
static mha__row_slot *slot_for(mha__row_maker *m, const mha__row_slot *wanted, bool *found)
{
    const size_t half = m->count / 2, first = wanted->product ? 0 : half, end = wanted->product ? half : m->count;
    mha__row_slot *oldest = &m->slots[first];
    *found = false;
    for (size_t i = first; i < end && !*found; i++) {
        mha__row_slot *s = &m->slots[i];
        *found = s->which == wanted->which && s->b == wanted->b + m->sequence && s->product == wanted->product &&
                 s->all_rows == wanted->all_rows && same_key(&s->key, &wanted->key);
        if (*found || s->used < oldest->used)
            oldest = s;
    }
    double *rows = oldest->rows;
    if (!*found)
        *oldest = *wanted;
    oldest->rows = rows;
    oldest->b = wanted->b + m->sequence;
    oldest->used = ++m->clock;
    return oldest;
}

/* ---------------------------------------------------------------- projections */

static int permuted_by(const mha__knobs *k, int which)
{
    return which == PROJECTION_Q ? k->permuted_q : which == PROJECTION_K ? k->permuted_k : PERMUTED_NOT;
}

/* Finds the projection and its column that the bug reads as column `column` of `which`. */
static void source_of(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t column, int *source,
                      size_t *from)
{
    const size_t d = w->d[which];
    const int permuted = permuted_by(k, which);
    if (permuted) {
        const size_t f = column % d;
        column = column - f + (permuted == PERMUTED_TO_PAIRS ? f % 2 * (d / 2) + f / 2 : f % (d / 2) * 2 + f / (d / 2));
    }
    *source = k->source[which];
    *from = column;
    if (k->packing != PACKING_RIGHT) {
        size_t head = column / d;
        *source = mha__packed_head(w, k, which, &head);
        *from = head * d + column % d;
    }
}

/* The case's own matrix, of what the bug makes of latents. */
static const double *own_matrix(const mha__bug_inputs *w, const mha__knobs *k, int which)
{
    return w->c->kv_rank && which != PROJECTION_O ? w->of_latents[k->latent].W[which] : w->W[which];
}

/* The matrix of a projection as the bug reads it, column by column; the case's own matrix when nothing is
 * changed. */
static const double *matrix_of(mha__row_maker *m, const mha__knobs *k, int which)
{
    const mha__bug_inputs *w = m->inputs;
    const size_t in = w->in[which], width = w->out[which];
    const int own = k->source[which];
    if (k->packing == PACKING_RIGHT && k->round_weights == ROUND_NOT && !k->transposed[own] && !permuted_by(k, which))
        return own_matrix(w, k, own);
    enum { BLOCK = 8 }; /* columns whose numbers lie in as many lines of the cache, whichever way they run */
    for (size_t first = 0; first < width; first += BLOCK) {
        const size_t n = width - first < BLOCK ? width - first : BLOCK;
        const double *start[BLOCK];
        size_t stride[BLOCK];
        for (size_t c = 0; c < n; c++) {
            int s;
            size_t from;
            source_of(w, k, which, first + c, &s, &from);
            start[c] = own_matrix(w, k, s) + (k->transposed[s] ? from * in : from);
            stride[c] = k->transposed[s] ? 1 : w->out[s];
        }
        for (size_t i = 0; i < in; i++)
            for (size_t c = 0; c < n; c++)
                m->W[i * width + first + c] = mha__bug_rounded(start[c][i * stride[c]], k->round_weights);
    }
    return m->W;
}

/* An input norm without weights, with the eps that is usual for it. */
static void normalise_input(double *x, size_t n, int how)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n && how == INPUT_NORM_LAYER; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        x[i] -= mean;
        squares += x[i] * x[i];
    }
    const double root = sqrt(squares / (double)n + (how == INPUT_NORM_LAYER ? 1e-5 : 1e-6));
    for (size_t i = 0; i < n; i++)
        x[i] /= root;
}

void mha__bug_input_row(const mha__knobs *k, const double *from, size_t n, double *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = mha__bug_rounded(from[i], k->round_inputs);
    if (k->input_norm)
        normalise_input(to, n, k->input_norm);
}

/* Input rows of one batch row, changed as the bug changes them; the case's own rows when nothing is changed. Query
 * rows that are not needed are left out; *count rows remain. */
static const double *inputs_of(mha__row_maker *m, const mha__knobs *k, int which, size_t b, bool all_rows,
                               size_t *count)
{
    const mha__bug_inputs *w = m->inputs;
    const size_t T = w->T[which], in = w->in[which];
    const double *x = (w->c->kv_rank ? w->of_latents[k->latent].x[which] : w->x[which]) + b * T * in;
    const unsigned char *needed = all_rows || which != PROJECTION_Q || !m->needed ? NULL : m->needed + b * T;
    *count = T;
    if (!needed && k->round_inputs == ROUND_NOT && k->input_norm == INPUT_NORM_NOT && !k->inputs_reversed)
        return x;
    *count = 0;
    for (size_t t = 0; t < T; t++) {
        if (needed && !needed[t])
            continue;
        const double *from = x + (k->inputs_reversed ? T - 1 - t : t) * in;
        mha__bug_input_row(k, from, in, m->x + (*count)++ * in);
    }
    return m->x;
}

/* Moves rows that were computed without gaps to their own rows, the last one first. */
static void spread(mha__row_maker *m, size_t b, size_t count, size_t width, double *y)
{
    const size_t T = m->inputs->T[PROJECTION_Q];
    const unsigned char *needed = m->needed + b * T;
    for (size_t t = T; t-- > 0 && count > 0;)
        if (needed[t])
            memmove(y + t * width, y + --count * width, width * sizeof *y);
}

/* x W of one batch row. */
static void project(mha__row_maker *m, const mha__knobs *k, int which, size_t b, bool all_rows, double *y)
{
    const mha__bug_inputs *w = m->inputs;
    const size_t T = w->T[which], width = w->out[which];
    if (w->c->kind == CASE_MHA) {
        size_t count;
        const double *W = matrix_of(m, k, which), *x = inputs_of(m, k, which, b, all_rows, &count);
        mha__gemm_double(count, width, w->in[which], x, w->in[which], W, width, y, width);
        if (count < T)
            spread(m, b, count, width, y);
        return;
    }
    for (size_t at = 0; k->packing == PACKING_RIGHT && !permuted_by(k, which) && at < T * width; at++) {
        const size_t t = k->inputs_reversed ? T - 1 - at / width : at / width; /* the usual, in the order of memory */
        const double *x = w->x[k->source[which]] + (b * w->T[k->source[which]] + t) * w->out[k->source[which]];
        y[at] = mha__bug_rounded(x[at % width], k->round_inputs);
    }
    for (size_t column = 0; (k->packing != PACKING_RIGHT || permuted_by(k, which)) && column < width; column++) {
        int s;
        size_t from;
        source_of(w, k, which, column, &s, &from);
        const double *x = w->x[s] + b * w->T[s] * w->out[s] + from;
        for (size_t t = 0; t < T; t++) {
            const size_t at = k->inputs_reversed ? T - 1 - t : t;
            y[t * width + column] = mha__bug_rounded(x[at * w->out[s]], k->round_inputs);
        }
    }
}

/* Writes what x W depends on to a key of zeros. */
static void product_key(const mha__knobs *k, int which, mha__row_key *key)
{
    const bool packed = k->packing != PACKING_RIGHT;
    key->packing = k->packing;
    key->latent = k->latent;
    key->round_weights = k->round_weights;
    key->round_inputs = k->round_inputs;
    key->input_norm = k->input_norm;
    key->inputs_reversed = k->inputs_reversed;
    key->permuted_q = which == PROJECTION_Q ? k->permuted_q : 0;
    key->permuted_k = which == PROJECTION_K ? k->permuted_k : 0;
    key->source[which] = packed ? 0 : k->source[which];
    for (int s = 0; s < 3; s++)
        key->transposed[s] = packed || s == k->source[which] ? k->transposed[s] : 0;
}

static const double *product(mha__row_maker *m, const mha__knobs *k, int which, size_t b, bool all_rows)
{
    bool found;
    mha__row_slot wanted = {.which = which, .product = true, .all_rows = all_rows || which != PROJECTION_Q, .b = b};
    product_key(k, which, &wanted.key);
    mha__row_slot *slot = slot_for(m, &wanted, &found);
    if (!found)
        project(m, k, which, b, all_rows, slot->rows);
    return slot->rows;
}

/* Reads the bias of a projection into m->bias, from the same columns as the matrix; false when there is none. */
static bool read_bias(mha__row_maker *m, const mha__knobs *k, int which)
{
    const mha__bug_inputs *w = m->inputs;
    const double times = which == PROJECTION_Q ? k->bias_q_times : 1;
    bool any = false;
    for (size_t column = 0; column < w->out[which]; column++) {
        int s;
        size_t from;
        source_of(w, k, which, column, &s, &from);
        const double *bias = k->no_bias[s] ? NULL : w->b[s];
        m->bias[column] = bias ? times * mha__bug_rounded(bias[from], k->round_weights) : 0;
        any |= bias != NULL;
    }
    return any;
}

/* Where the bias of a projection is added; that of the values has one place. */
static int bias_place(const mha__knobs *k, int which)
{
    return which == PROJECTION_V ? BIAS_FIRST : k->bias_place;
}

/* Limits the rows of q, k or v if `place` is where that is done, which norms that are wrong do not move. */
static void clip(const mha__bug_inputs *w, const mha__knobs *k, int which, int place, double *y)
{
    const mha_norm_rule *rule = &w->c->semantics.qkv.norm;
    const bool normed = which < 2 && !rule->after_rope && (w->norm[which] || rule->unweighted),
               moves = k->clip_place == CLIP_BEFORE_BIAS || (k->clip_place != CLIP_RIGHT && which < 2);
    const int own = moves ? k->clip_place : normed ? CLIP_AFTER_NORM : CLIP_BEFORE_NORM;
    const size_t n = w->T[which] * w->out[which];
    for (size_t i = 0; own == place && k->s.qkv.clip_qkv > 0 && !(k->clip_not >> which & 1) && i < n; i++)
        if (fabs(y[i]) > k->s.qkv.clip_qkv)
            y[i] = copysign(k->s.qkv.clip_qkv, y[i]);
}

/* y = x + b, or y = x when the bias is added later. */
static void add_bias(mha__row_maker *m, const mha__knobs *k, int which, const double *x, double *y)
{
    const size_t width = m->inputs->out[which], T = m->inputs->T[which];
    const bool adds = bias_place(k, which) == BIAS_FIRST && read_bias(m, k, which);
    memcpy(y, x, T * width * sizeof *y);
    clip(m->inputs, k, which, CLIP_BEFORE_BIAS, y);
    for (size_t t = 0; t < T && adds; t++)
        for (size_t column = 0; column < width; column++)
            y[t * width + column] += m->bias[column];
    clip(m->inputs, k, which, CLIP_BEFORE_NORM, y);
}

/* Adds the bias to rows (T, h, d) at `place`, if that is where it is added. */
static void add_bias_late(mha__row_maker *m, const mha__knobs *k, int which, int place, double *y)
{
    const mha__bug_inputs *w = m->inputs;
    const size_t T = w->T[which], h = w->h[which], d = w->d[which];
    if (bias_place(k, which) != place || !read_bias(m, k, which))
        return;
    for (size_t t = 0; t < T; t++)
        for (size_t head = 0; head < h; head++)
            for (size_t f = 0; f < d; f++)
                *y++ += m->bias[mha__head_column(k->split, T, h, d, t, head, f) % (h * d)];
}

const double *mha__rows_unsplit(mha__row_maker *maker, const mha__knobs *knobs, int which, size_t b)
{
    add_bias(maker, knobs, which, product(maker, knobs, which, b, true), maker->unsplit);
    return maker->unsplit;
}

const double *mha__output_matrix(mha__row_maker *maker, const mha__knobs *knobs, size_t columns, const double **bias)
{
    const mha__bug_inputs *w = maker->inputs;
    const size_t in = w->in[PROJECTION_O], out = w->out[PROJECTION_O];
    const bool transposed = knobs->transposed[PROJECTION_O];
    const double *W = w->W[PROJECTION_O], *b = w->b[PROJECTION_O];
    *bias = NULL;
    if (b && !knobs->no_bias[PROJECTION_O]) {
        for (size_t j = 0; j < out; j++)
            maker->bias[j] = mha__bug_rounded(b[j], knobs->round_weights);
        *bias = maker->bias;
    }
    if (!W || (!transposed && knobs->round_weights == ROUND_NOT))
        return W;
    for (size_t i = 0; i < in; i++)
        for (size_t j = 0; j < columns; j++) {
            const size_t at = transposed ? j * in + i : i * out + j;
            maker->W[i * out + j] = mha__bug_rounded(W[at], knobs->round_weights);
        }
    return maker->W;
}

/* ---------------------------------------------------------------- rows for attention */

#define COPY(type, name) key->name = k->name;
#define COPY_SIDE(type, name) key->name = k->name >> which & 1;

/* Writes what rows of q, k or v depend on to a key of zeros. */
static void row_key(const mha__bug_inputs *w, const mha__knobs *k, int which, mha__row_key *key)
{
    product_key(k, which, key);
    for (int s = 0; s < 3; s++)
        key->no_bias[s] = k->packing != PACKING_RIGHT || s == k->source[which] ? k->no_bias[s] : 0;
    key->split = k->split;
    if (k->moved >> which & 1) {
        key->moved = 1 << which;
        MOVE_KNOB_LIST(COPY)
    }
    key->shortened = k->shortened & 1 << which;
    key->shortened_to = key->shortened ? k->shortened_to : 0;
    key->quantised = k->quantised & 1 << which;
    key->quantised_span = key->quantised ? k->quantised_span : 0;
    key->quantised_to = key->quantised ? k->quantised_to : 0;
    key->raised_q = which == PROJECTION_Q ? k->raised_q : 0;
    key->raised_v = which == PROJECTION_V ? k->raised_v : 0;
    key->clip_place = k->clip_place;
    key->clip_not = (k->clip_not >> which & 1) << which;
    if (which == PROJECTION_Q)
        key->bias_q_times = k->bias_q_times;
    if (which < 2 || k->rope_values)
        key->qkv = k->s.qkv;
    else
        key->qkv.clip_qkv = k->s.qkv.clip_qkv; /* alone of all settings */
    if (which < 2)
        key->bias_place = k->bias_place;
    if (which < 2 && (w->norm[which] || k->s.qkv.norm.unweighted)) {
        key->no_norm = k->no_norm >> which & 1;
        NORM_KNOB_LIST(COPY)
    }
    if (which == PROJECTION_Q || (which == PROJECTION_K && k->scale_keys)) {
        SCALE_KNOB_LIST(COPY)
        key->scale_keys = k->scale_keys;
    }
    if (which < 2 || k->rope_values) {
        ROPE_KNOB_LIST(COPY)
        key->rope_not = k->rope_not >> which & 1;
        ROPE_SIDE_KNOB_LIST(COPY_SIDE)
        key->rope_shift_q = which == PROJECTION_Q ? k->rope_shift_q : 0;
        key->rope_shift_k = which != PROJECTION_Q ? k->rope_shift_k : 0;
        key->rope_part_at_0 = which != PROJECTION_Q ? k->rope_part_at_0 : 0;
    }
}

#undef COPY
#undef COPY_SIDE

/* Adds a number to those of q or v. */
static void raise(const mha__bug_inputs *w, const mha__knobs *k, int which, double *rows)
{
    const double by = which == PROJECTION_Q ? k->raised_q : which == PROJECTION_V ? k->raised_v : 0;
    for (size_t i = 0; by != 0 && i < w->T[which] * w->out[which]; i++)
        rows[i] += by;
}

/* Makes the rows of q, k or v of one batch row; `largest`: of all of them, where they have one scale. */
static void make_rows(mha__row_maker *maker, const mha__knobs *knobs, int which, size_t b, bool all_rows,
                      double largest, double *rows)
{
    const mha__bug_inputs *w = maker->inputs;
    const double *x = product(maker, knobs, which, mha__moved_batch(w, knobs, which, b), all_rows);
    add_bias(maker, knobs, which, x, maker->unsplit);
    mha__rows_split(w, knobs->split, which, maker->unsplit, rows);
    mha__rows_move(w, knobs, which, b, rows, maker->unsplit);
    raise(w, knobs, which, rows);
    if (which < 2 && !knobs->s.qkv.norm.after_rope)
        mha__rows_normalise(w, knobs, which, rows);
    clip(w, knobs, which, CLIP_AFTER_NORM, rows);
    add_bias_late(maker, knobs, which, BIAS_AFTER_NORM, rows);
    if (which < 2 || knobs->rope_values)
        mha__rows_rotate(w, knobs, which, b, rows, maker->turn);
    clip(w, knobs, which, CLIP_AFTER_ROPE, rows);
    add_bias_late(maker, knobs, which, BIAS_AFTER_ROPE, rows);
    if (which < 2 && knobs->s.qkv.norm.after_rope)
        mha__rows_normalise(w, knobs, which, rows);
    if (which < 2)
        mha__rows_scale(w, knobs, which, b, rows);
    mha__rows_shorten(knobs, which, w->T[which] * w->out[which], rows);
    mha__rows_quantise(knobs, which, w->T[which], w->h[which], w->d[which], largest, rows);
}

/* The largest number of q, k or v in all batch rows, where they are quantised with one scale; `key`: what they depend
 * on. `memory`: for the rows of one. */
static double largest_of(mha__row_maker *maker, const mha__knobs *knobs, int which, const mha__row_key *key,
                         double *memory)
{
    const mha__bug_inputs *w = maker->inputs;
    mha__knobs plain = *knobs;
    if (!(knobs->quantised >> which & 1) || knobs->quantised_span != SPAN_TENSOR)
        return 0;
    if (maker->largest[which] > 0 && same_key(key, &maker->largest_of[which]))
        return maker->largest[which];
    plain.quantised = 0;
    maker->largest[which] = 0;
    maker->largest_of[which] = *key;
    for (size_t b = 0; b < w->c->B; b++) {
        make_rows(maker, &plain, which, b, true, 0, memory);
        for (size_t i = 0; i < w->T[which] * w->out[which]; i++)
            maker->largest[which] = fmax(maker->largest[which], fabs(memory[i]));
    }
    return maker->largest[which];
}

/* Whether rows are the inputs of the case as they are. */
static bool are_inputs(const mha__bug_inputs *w, int which, const mha__row_key *key)
{
    const mha_semantics *s = &w->c->semantics;
    const mha__knobs said = mha__knobs_of(w->c);
    mha__row_key plain = {0};
    row_key(w, &said, which, &plain);
    return w->c->kind == CASE_SDPA && !w->b[which] && s->qkv.rope.kind == MHA_ROPE_NONE &&
           !w->norm[which < 2 ? which : 0] && !s->qkv.norm.unweighted && !(s->qkv.clip_qkv > 0) &&
           !mha__scales_queries(s) && same_key(key, &plain);
}

const double *mha__rows_make(mha__row_maker *maker, const mha__knobs *knobs, int which, size_t b, bool all_rows)
{
    const mha__bug_inputs *w = maker->inputs;
    all_rows |= which != PROJECTION_Q || !maker->needed || knobs->split >= HEADS_UNTRANSPOSED ||
                ((knobs->moved | knobs->quantised) & 1);
    bool found;
    mha__row_slot wanted = {.which = which, .all_rows = all_rows, .b = b};
    row_key(w, knobs, which, &wanted.key);
    if (are_inputs(w, which, &wanted.key))
        return w->x[which] + b * w->T[which] * w->out[which];
    mha__row_slot *slot = slot_for(maker, &wanted, &found);
    if (!found) {
        const double largest = largest_of(maker, knobs, which, &wanted.key, slot->rows);
        make_rows(maker, knobs, which, b, all_rows, largest, slot->rows);
    }
    return slot->rows;
}
