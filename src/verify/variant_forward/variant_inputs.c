/* The first half of a variant: inputs and weights as doubles, projections, heads, norm, rotation. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "verify/variant_forward/variant_inputs.h"

/* ---------------------------------------------------------------- reading the case */

static mha_status no_memory(const mha_case *c, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to diagnose the case");
}

/* A contiguous copy in float64; NULL for a view without data. Without memory, *missing is set. */
static double *doubles(mha__variant_inputs *w, const mha_view *v, bool *missing)
{
    if (!v->data)
        return NULL;
    mha_view copy = mha__arena_view(&w->pool, MHA_F64, v->rank, v->shape);
    if (copy.data && mha_view_copy(&copy, v) == MHA_OK)
        return copy.data;
    *missing = true;
    return NULL;
}

static bool read_numbers(mha__variant_inputs *w)
{
    static const mha_weight W[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O}, b[] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};
    static const mha_weight norms[] = {MHA_Q_NORM, MHA_K_NORM}, bias_kv[] = {MHA_BIAS_K, MHA_BIAS_V};
    static const case_tensor past[] = {CASE_PAST_KEY, CASE_PAST_VALUE};
    const mha_case *c = w->c;
    const mha_view *recorded = c->weights[CASE_RECORDED];
    const mha_call call = mha_case_call(c);
    const mha_view *x[] = {&call.query, &call.key, &call.value};
    bool missing = false;
    for (int i = 0; i < 3; i++)
        w->x[i] = doubles(w, x[i], &missing);
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        w->W[i] = doubles(w, &recorded[W[i]], &missing);
        w->b[i] = doubles(w, &recorded[b[i]], &missing);
    }
    for (int i = 0; i < 2; i++) {
        const mha_view *norm = &recorded[norms[i]];
        w->norm[i] = doubles(w, norm, &missing);
        w->norm_terms[i] = norm->data ? norm->shape[0] : 0;
        w->bias_kv[i] = doubles(w, &recorded[bias_kv[i]], &missing);
        if (c->P > 0)
            w->past[i] = doubles(w, &c->tensors[past[i]], &missing);
    }
    w->sinks = doubles(w, &recorded[MHA_SINKS], &missing);
    return !missing;
}

mha_status mha__variant_inputs_create(const mha_case *c, mha__variant_inputs **inputs, mha_error *error)
{
    *inputs = NULL;
    if (*c->skip)
        return mha__fail(error, MHA_UNSUPPORTED, c->name, "the case cannot be computed: %s", c->skip);
    if (c->semantics.n_sequences)
        return mha__fail(error, MHA_UNSUPPORTED, "cu_seqlens_q",
                         "expected a batch of equal lengths, found a ragged one");
    mha_allocator a = c->pool.allocator;
    mha__variant_inputs *w = mha__allocate(&a, sizeof *w);
    if (!w)
        return no_memory(c, error);
    w->pool.allocator = a;
    w->c = c;
    w->S = c->P + c->T_k;
    const size_t in[] = {c->E_q, c->E_k, c->E_v, c->H * c->d_v};
    const size_t out[] = {c->H * c->d_k, c->H_kv * c->d_k, c->H_kv * c->d_v, c->E_out};
    const size_t T[] = {c->T_q, c->T_k, c->T_k}, h[] = {c->H, c->H_kv, c->H_kv}, d[] = {c->d_k, c->d_k, c->d_v};
    memcpy(w->in, in, sizeof in);
    memcpy(w->out, out, sizeof out);
    memcpy(w->T, T, sizeof T);
    memcpy(w->h, h, sizeof h);
    memcpy(w->d, d, sizeof d);
    if (!read_numbers(w)) {
        mha__variant_inputs_destroy(w);
        return no_memory(c, error);
    }
    *inputs = w;
    return MHA_OK;
}

void mha__variant_inputs_destroy(mha__variant_inputs *inputs)
{
    if (!inputs)
        return;
    mha__arena_free(&inputs->pool);
    mha_allocator a = inputs->pool.allocator;
    mha__release(&a, inputs, sizeof *inputs);
}

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

bool mha__row_maker_begin(mha__row_maker *maker, const mha__variant_inputs *inputs, const unsigned char *needed,
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
    size_t count = bytes / (rows * sizeof(double) + 1);
    count = count > MHA_ROW_SLOTS_MOST ? MHA_ROW_SLOTS_MOST : larger(count, MHA_ROW_SLOTS_LEAST);
    *maker = (mha__row_maker){.inputs = inputs, .needed = needed};
    maker->slots = mha__arena_take(pool, count * sizeof *maker->slots);
    maker->W = take(pool, inputs->c->kind == CASE_MHA ? matrix : 0);
    maker->x = take(pool, input);
    maker->bias = take(pool, widest);
    maker->unsplit = take(pool, rows);
    if (!maker->slots || !maker->W || !maker->x || !maker->bias || !maker->unsplit)
        return false;
    for (; maker->count < count; maker->count++) {
        double *more = take(pool, rows);
        if (!more)
            break;
        maker->slots[maker->count] = (mha__row_slot){.which = -1, .rows = more};
    }
    return maker->count >= MHA_ROW_SLOTS_LEAST;
}

/* The slot that has these rows (then *found is true), else the least recently used slot, for the caller to fill. */
static mha__row_slot *slot_for(mha__row_maker *m, const mha__row_slot *wanted, bool *found)
{
    mha__row_slot *oldest = &m->slots[0];
    *found = false;
    for (size_t i = 0; i < m->count && !*found; i++) {
        mha__row_slot *s = &m->slots[i];
        *found = s->which == wanted->which && s->b == wanted->b && s->product == wanted->product &&
                 s->all_rows == wanted->all_rows && mha__row_knobs_equal(&s->key, &wanted->key);
        if (*found || s->used < oldest->used)
            oldest = s;
    }
    double *rows = oldest->rows;
    if (!*found)
        *oldest = *wanted;
    oldest->rows = rows;
    oldest->used = ++m->clock;
    return oldest;
}

/* ---------------------------------------------------------------- projections */

static double rounded(double x, int rounding)
{
    if (rounding == ROUND_F16)
        return (double)mha_f16_to_f32(mha_f32_to_f16((float)x));
    if (rounding == ROUND_BF16)
        return (double)mha_bf16_to_f32(mha_f32_to_bf16((float)x));
    return x;
}

/* Finds the projection and its column that the variant reads as column `column` of `which`. */
static void source_of(const mha__variant_inputs *w, const mha__row_knobs *k, int which, size_t column, int *source,
                      size_t *from)
{
    size_t d = w->d[which], block = w->out[which], h = w->h[which];
    *source = k->source[which];
    *from = column;
    if (k->packing == PACKING_READ_INTERLEAVED) {
        size_t packed = column / d * 3 * d + (size_t)which * d + column % d;
        *source = (int)(packed / block);
        *from = packed % block;
    } else if (k->packing == PACKING_READ_BLOCKS) {
        size_t packed = (size_t)which * h * d + column;
        *source = (int)(packed / d % 3);
        *from = packed / (3 * d) * d + packed % d;
    }
}

/* The matrix of a projection as the variant reads it, column by column; the case's own matrix when nothing is
 * changed. */
static const double *matrix_of(mha__row_maker *m, const mha__row_knobs *k, int which)
{
    const mha__variant_inputs *w = m->inputs;
    const size_t in = w->in[which], width = w->out[which];
    const int own = k->source[which];
    if (k->packing == PACKING_RIGHT && k->round_weights == ROUND_NOT && !k->transposed[own])
        return w->W[own];
    for (size_t column = 0; column < width; column++) {
        int s;
        size_t from;
        source_of(w, k, which, column, &s, &from);
        const size_t start = k->transposed[s] ? from * in : from, stride = k->transposed[s] ? 1 : w->out[s];
        for (size_t i = 0; i < in; i++)
            m->W[i * width + column] = rounded(w->W[s][start + i * stride], k->round_weights);
    }
    return m->W;
}

/* Input rows of one batch row, rounded if the variant rounds them; the case's own rows when nothing is changed. Query
 * rows that are not needed are left out; *count rows remain. */
static const double *inputs_of(mha__row_maker *m, const mha__row_knobs *k, int which, size_t b, bool all_rows,
                               size_t *count)
{
    const mha__variant_inputs *w = m->inputs;
    const size_t T = w->T[which], in = w->in[which];
    const double *x = w->x[which] + b * T * in;
    const unsigned char *needed = all_rows || which != PROJECTION_Q || !m->needed ? NULL : m->needed + b * T;
    *count = T;
    if (!needed && k->round_inputs == ROUND_NOT)
        return x;
    *count = 0;
    for (size_t t = 0; t < T; t++) {
        if (needed && !needed[t])
            continue;
        for (size_t i = 0; i < in; i++)
            m->x[*count * in + i] = rounded(x[t * in + i], k->round_inputs);
        ++*count;
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
static void project(mha__row_maker *m, const mha__row_knobs *k, int which, size_t b, bool all_rows, double *y)
{
    const mha__variant_inputs *w = m->inputs;
    const size_t T = w->T[which], width = w->out[which];
    if (w->c->kind == CASE_MHA) {
        size_t count;
        const double *W = matrix_of(m, k, which), *x = inputs_of(m, k, which, b, all_rows, &count);
        mha__gemm_double(count, width, w->in[which], x, w->in[which], W, width, y, width);
        if (count < T)
            spread(m, b, count, width, y);
        return;
    }
    for (size_t column = 0; column < width; column++) {
        int s;
        size_t from;
        source_of(w, k, which, column, &s, &from);
        const double *x = w->x[s] + b * w->T[s] * w->out[s] + from;
        for (size_t t = 0; t < T; t++)
            y[t * width + column] = rounded(x[t * w->out[s]], k->round_inputs);
    }
}

/* The knobs that x W depends on. */
static mha__row_knobs product_key(const mha__row_knobs *k, int which)
{
    const bool packed = k->packing != PACKING_RIGHT;
    mha__row_knobs key = {.packing = k->packing, .round_weights = k->round_weights, .round_inputs = k->round_inputs};
    key.source[which] = packed ? 0 : k->source[which];
    for (int s = 0; s < 3; s++)
        key.transposed[s] = packed || s == k->source[which] ? k->transposed[s] : 0;
    return key;
}

static const double *product(mha__row_maker *m, const mha__row_knobs *k, int which, size_t b, bool all_rows)
{
    bool found;
    mha__row_slot *slot = slot_for(
        m, &(mha__row_slot){product_key(k, which), which, true, all_rows || which != PROJECTION_Q, b, 0, NULL}, &found);
    if (!found)
        project(m, k, which, b, all_rows, slot->rows);
    return slot->rows;
}

/* Adds the bias, read from the same columns as the matrix: y = x + b. */
static void add_bias(mha__row_maker *m, const mha__row_knobs *k, int which, const double *x, double *y)
{
    const mha__variant_inputs *w = m->inputs;
    const size_t width = w->out[which];
    for (size_t column = 0; column < width; column++) {
        int s;
        size_t from;
        source_of(w, k, which, column, &s, &from);
        const double *bias = k->no_bias[s] ? NULL : w->b[s];
        m->bias[column] = bias ? rounded(bias[from], k->round_weights) : 0;
    }
    for (size_t t = 0; t < w->T[which]; t++)
        for (size_t column = 0; column < width; column++)
            y[t * width + column] = x[t * width + column] + m->bias[column];
}

const double *mha__rows_unsplit(mha__row_maker *maker, const mha__row_knobs *knobs, int which, size_t b)
{
    add_bias(maker, knobs, which, product(maker, knobs, which, b, true), maker->unsplit);
    return maker->unsplit;
}

const double *mha__output_matrix(mha__row_maker *maker, const mha__row_knobs *knobs, const double **bias)
{
    const mha__variant_inputs *w = maker->inputs;
    const size_t in = w->in[PROJECTION_O], out = w->out[PROJECTION_O];
    const bool transposed = knobs->transposed[PROJECTION_O];
    const double *W = w->W[PROJECTION_O], *b = w->b[PROJECTION_O];
    *bias = NULL;
    if (b && !knobs->no_bias[PROJECTION_O]) {
        for (size_t j = 0; j < out; j++)
            maker->bias[j] = rounded(b[j], knobs->round_weights);
        *bias = maker->bias;
    }
    if (!W || (!transposed && knobs->round_weights == ROUND_NOT))
        return W;
    for (size_t i = 0; i < in; i++)
        for (size_t j = 0; j < out; j++)
            maker->W[i * out + j] = rounded(W[transposed ? j * in + i : i * out + j], knobs->round_weights);
    return maker->W;
}

/* ---------------------------------------------------------------- heads, norm, rotation */

size_t mha__head_column(int heads, size_t T, size_t h, size_t d, size_t t, size_t head, size_t f)
{
    if (heads == HEADS_INTERLEAVED)
        return t * h * d + f * h + head;
    if (heads == HEADS_UNTRANSPOSED)
        return head * T * d + t * d + f;
    return t * h * d + head * d + f;
}

static void split_heads(const mha__variant_inputs *w, int heads, int which, const double *from, double *to)
{
    const size_t T = w->T[which], h = w->h[which], d = w->d[which];
    if (heads == HEADS_RIGHT) {
        memcpy(to, from, T * h * d * sizeof *to);
        return;
    }
    for (size_t t = 0; t < T; t++)
        for (size_t head = 0; head < h; head++)
            for (size_t f = 0; f < d; f++)
                *to++ = from[mha__head_column(heads, T, h, d, t, head, f)];
}

static void normalise(const mha__variant_inputs *w, const mha__row_knobs *k, int which, double *x)
{
    const double *weight = w->norm[which];
    if (!weight || k->no_norm)
        return;
    size_t n = w->norm_terms[which], lines = w->T[which] * w->h[which] * w->d[which] / n;
    double eps = w->c->semantics.norm_eps > 0 ? w->c->semantics.norm_eps : 1e-6;
    for (size_t l = 0; l < lines; l++, x += n) {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += x[i] * x[i];
        double r = sqrt(sum / (double)n + eps);
        for (size_t i = 0; i < n; i++)
            x[i] = x[i] / r * (weight[i] + (k->norm_plus_one ? 1 : 0));
    }
}

int64_t mha__case_offset(const mha_case *c, size_t b)
{
    return (c->semantics.position_offset ? c->semantics.position_offset[b] : (int64_t)c->P) - c->semantics.key_offset;
}

/* The position of row t of the queries or of the new keys. */
static int64_t position_of(const mha_case *c, const mha__row_knobs *k, bool keys, size_t b, size_t t)
{
    const mha_view *ids = &c->semantics.rope.q_positions;
    int64_t shift = keys ? k->rope_shift_k : k->rope_shift_q;
    if (k->rope_restart)
        return (int64_t)t + shift;
    if (ids->data && (!keys || (c->T_q == c->T_k && !c->semantics.has_key_offset)))
        return ((const int64_t *)ids->data)[(ids->shape[0] == 1 ? 0 : b) * ids->shape[1] + t] + shift;
    return (keys ? (int64_t)c->P : mha__case_offset(c, b)) + c->semantics.key_offset + (int64_t)t + shift;
}

static void cos_sin(const mha_case *c, const mha__row_knobs *k, int64_t position, size_t b, size_t t, size_t i,
                    double *cosine, double *sine)
{
    const mha_view *tc = &c->semantics.rope.cos_table, *ts = &c->semantics.rope.sin_table;
    size_t half = (size_t)k->rope_dim / 2;
    bool per_row = tc->rank == 3;
    if (tc->data && !k->rope_formula && i < tc->shape[tc->rank - 1]) {
        const size_t by_row[] = {tc->shape[0] == 1 ? 0 : b, t, i}, by_position[] = {(size_t)position, i};
        if (per_row || (position >= 0 && (size_t)position < tc->shape[0])) {
            *cosine = mha_view_get(tc, per_row ? by_row : by_position);
            *sine = mha_view_get(ts, per_row ? by_row : by_position);
            return;
        }
    }
    double angle = (double)position * pow(k->rope_base, -(double)i / (double)half);
    *cosine = cos(angle);
    *sine = sin(angle);
}

static void rotate(const mha__variant_inputs *w, const mha__row_knobs *k, int which, size_t b, double *x)
{
    size_t dim = (size_t)k->rope_dim, half = dim / 2, width = w->d[which];
    if (k->rope == MHA_ROPE_NONE || dim > width)
        return;
    for (size_t t = 0; t < w->T[which]; t++) {
        const int64_t position = position_of(w->c, k, which != PROJECTION_Q, b, t);
        for (size_t i = 0; i < half; i++) {
            double c, s;
            cos_sin(w->c, k, position, b, t, i, &c, &s);
            if (k->rope_inverse)
                s = -s;
            size_t first = k->rope == MHA_ROPE_INTERLEAVED ? 2 * i : i;
            size_t second = k->rope == MHA_ROPE_INTERLEAVED ? 2 * i + 1 : i + half;
            for (size_t h = 0; h < w->h[which]; h++) {
                double *row = x + (t * w->h[which] + h) * width, x1 = row[first], x2 = row[second];
                row[first] = x1 * c - x2 * s;
                row[second] = x2 * c + x1 * s;
            }
        }
    }
}

/* The knobs that the rows of q, k or v depend on. */
static mha__row_knobs row_key(const mha__variant_inputs *w, const mha__row_knobs *k, int which)
{
    mha__row_knobs key = product_key(k, which);
    for (int s = 0; s < 3; s++)
        key.no_bias[s] = k->packing != PACKING_RIGHT || s == k->source[which] ? k->no_bias[s] : 0;
    key.split = k->split;
    if (which < 2 && w->norm[which]) {
        key.no_norm = k->no_norm;
        key.norm_after_rope = k->norm_after_rope;
        key.norm_plus_one = k->norm_plus_one;
    }
    if (which < 2 || k->rope_values) {
        key.rope = k->rope;
        key.rope_dim = k->rope_dim;
        key.rope_inverse = k->rope_inverse;
        key.rope_restart = k->rope_restart;
        key.rope_formula = k->rope_formula;
        key.rope_base = k->rope_base;
        key.rope_shift_q = which == PROJECTION_Q ? k->rope_shift_q : 0;
        key.rope_shift_k = which != PROJECTION_Q ? k->rope_shift_k : 0;
    }
    return key;
}

const double *mha__rows_make(mha__row_maker *maker, const mha__row_knobs *knobs, int which, size_t b, bool all_rows)
{
    const mha__variant_inputs *w = maker->inputs;
    all_rows |= which != PROJECTION_Q || !maker->needed || knobs->split == HEADS_UNTRANSPOSED;
    const double *x = NULL;
    bool found;
    const mha__row_slot wanted = {row_key(w, knobs, which), which, false, all_rows, b, 0, NULL};
    mha__row_slot *slot = slot_for(maker, &wanted, &found);
    if (found)
        return slot->rows;
    x = product(maker, knobs, which, b, all_rows);
    add_bias(maker, knobs, which, x, maker->unsplit);
    split_heads(w, knobs->split, which, maker->unsplit, slot->rows);
    if (which < 2 && !knobs->norm_after_rope)
        normalise(w, knobs, which, slot->rows);
    if (which < 2 || knobs->rope_values)
        rotate(w, knobs, which, b, slot->rows);
    if (which < 2 && knobs->norm_after_rope)
        normalise(w, knobs, which, slot->rows);
    return slot->rows;
}
