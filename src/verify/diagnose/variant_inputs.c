/* The first half of a dialect: the case's numbers as doubles, projections, heads, norm, rotation. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/variant_inputs.h"

/* ---------------------------------------------------------------- reading the case */

static double *doubles(mha__dialect_bench *w, const mha_view *v)
{
    if (!v->data)
        return NULL;
    mha_view copy = mha__arena_view(&w->pool, MHA_F64, v->rank, v->shape);
    if (!copy.data || mha_view_copy(&copy, v)) {
        w->starved = true;
        return NULL;
    }
    return copy.data;
}

double *mha__dialect_take(mha__dialect_bench *w, size_t n)
{
    size_t bytes;
    double *x = mha__mul(n, sizeof *x, &bytes) ? mha__arena_take(&w->pool, bytes) : NULL;
    if (!x)
        w->starved = true;
    return x;
}

static double rounded(double x, int rounding)
{
    if (rounding == ROUND_F16)
        return (double)mha_f16_to_f32(mha_f32_to_f16((float)x));
    if (rounding == ROUND_BF16)
        return (double)mha_bf16_to_f32(mha_f32_to_bf16((float)x));
    return x;
}

static double *rounded_copy(mha__dialect_bench *w, const double *x, size_t n, int rounding)
{
    double *copy = x ? mha__dialect_take(w, n) : NULL;
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = rounded(x[i], rounding);
    return copy;
}

static void read_weights(mha__dialect_bench *w)
{
    const mha_case *c = w->c;
    const mha_view *recorded = c->weights[CASE_RECORDED];
    static const mha_weight W[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O}, b[] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};
    const size_t in[] = {c->E_q, c->E_k, c->E_v, c->H * c->d_v};
    const size_t out[] = {c->H * c->d_k, c->H_kv * c->d_k, c->H_kv * c->d_v, c->E_out};
    for (int i = 0; i < DIALECT_WEIGHTS; i++) {
        w->in[i] = in[i], w->out[i] = out[i];
        w->W[ROUND_NOT][i] = doubles(w, &recorded[W[i]]);
        w->b[ROUND_NOT][i] = doubles(w, &recorded[b[i]]);
        for (int r = ROUND_F16; r < ROUNDINGS; r++) {
            w->W[r][i] = rounded_copy(w, w->W[ROUND_NOT][i], in[i] * out[i], r);
            w->b[r][i] = rounded_copy(w, w->b[ROUND_NOT][i], out[i], r);
        }
    }
    static const mha_weight norms[] = {MHA_Q_NORM, MHA_K_NORM};
    for (int i = 0; i < 2; i++) {
        const mha_view *v = &recorded[norms[i]];
        w->norm[i] = doubles(w, v);
        w->norm_terms[i] = v->data ? v->shape[0] : 0;
    }
    w->bias_kv[0] = doubles(w, &recorded[MHA_BIAS_K]);
    w->bias_kv[1] = doubles(w, &recorded[MHA_BIAS_V]);
    w->sinks = doubles(w, &recorded[MHA_SINKS]);
}

mha_status mha__dialect_bench_create(const mha_case *c, mha__dialect_bench **bench, mha_error *error)
{
    if (*c->skip)
        return mha__fail(error, MHA_UNSUPPORTED, c->name, "the case cannot be computed: %s", c->skip);
    if (c->semantics.n_sequences)
        return mha__fail(error, MHA_UNSUPPORTED, "cu_seqlens_q",
                        "expected a batch of equal lengths, found a ragged one");
    mha_allocator a = c->pool.allocator;
    mha__dialect_bench *w = mha__allocate(&a, sizeof *w);
    if (!w)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to diagnose the case");
    w->pool.allocator = a;
    w->c = c;
    w->S = c->P + c->T_k;
    mha_call call = mha_case_call(c);
    const mha_view *inputs[] = {&call.query, &call.key, &call.value};
    for (int i = 0; i < 3; i++) {
        w->x[ROUND_NOT][i] = doubles(w, inputs[i]);
        for (int r = ROUND_F16; r < ROUNDINGS; r++)
            w->x[r][i] = rounded_copy(w, w->x[ROUND_NOT][i], mha_view_elements(inputs[i]), r);
    }
    if (c->P) {
        w->past[0] = doubles(w, &c->tensors[CASE_PAST_KEY]);
        w->past[1] = doubles(w, &c->tensors[CASE_PAST_VALUE]);
    }
    read_weights(w);
    const size_t T[] = {c->T_q, c->T_k, c->T_k}, h[] = {c->H, c->H_kv, c->H_kv}, d[] = {c->d_k, c->d_k, c->d_v};
    for (int i = 0; i < 3; i++) {
        w->T[i] = T[i], w->h[i] = h[i], w->d[i] = d[i];
        w->split[i] = mha__dialect_take(w, T[i] * h[i] * d[i]);
        w->rows[i] = mha__dialect_take(w, T[i] * h[i] * d[i]);
        w->memo_size = c->B * T[i] * h[i] * d[i] > w->memo_size ? c->B * T[i] * h[i] * d[i] : w->memo_size;
    }
    size_t matrix = 0, widest = 0;
    for (int i = 0; i < DIALECT_WEIGHTS; i++) {
        matrix = w->in[i] * w->out[i] > matrix ? w->in[i] * w->out[i] : matrix;
        widest = w->out[i] > widest ? w->out[i] : widest;
    }
    w->memo[0].rows = mha__dialect_take(w, w->memo_size);
    w->memo[0].part.which = -1;
    w->memos = 1;
    w->W_effective = mha__dialect_take(w, c->kind == CASE_MHA ? matrix : 0);
    w->b_effective = mha__dialect_take(w, widest);
    w->skipped = mha__arena_take(&w->pool, c->T_q);
    size_t S = w->S + 2, scores = c->H * c->T_q * S;
    w->keys = mha__dialect_take(w, S * c->H_kv * c->d_k);
    w->values = mha__dialect_take(w, S * c->H_kv * c->d_v);
    w->scores = mha__dialect_take(w, scores);
    w->visible = mha__arena_take(&w->pool, scores);
    w->heads = mha__dialect_take(w, c->T_q * c->H * c->d_v);
    w->merged = mha__dialect_take(w, c->T_q * c->H * c->d_v);
    w->lse = mha__dialect_take(w, c->H * c->T_q);
    if (w->starved || !w->visible || !w->skipped) {
        mha__dialect_bench_destroy(w);
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to diagnose the case");
    }
    *bench = w;
    return MHA_OK;
}

void mha__dialect_bench_destroy(mha__dialect_bench *bench)
{
    if (!bench)
        return;
    mha__arena_free(&bench->pool);
    mha_allocator a = bench->pool.allocator;
    mha__release(&a, bench, sizeof *bench);
}

/* ---------------------------------------------------------------- projections */

/* Which projection's which column is taken for column `column` of `which`. */
static void source_of(const mha__dialect_bench *w, const dialect_projection *p, int which, size_t column, int *source,
                      size_t *from)
{
    size_t d = w->d[which], block = w->out[which], h = w->h[which];
    *source = p->source[which];
    *from = column;
    if (p->packing == PACKING_READ_INTERLEAVED) {
        size_t packed = column / d * 3 * d + (size_t)which * d + column % d;
        *source = (int)(packed / block);
        *from = packed % block;
    } else if (p->packing == PACKING_READ_BLOCKS) {
        size_t packed = (size_t)which * h * d + column;
        *source = (int)(packed / d % 3);
        *from = packed / (3 * d) * d + packed % d;
    }
}

/* The matrix that stands for all of this: column after column from where it is taken. */
static void effective(mha__dialect_bench *w, const dialect_projection *p, int which)
{
    size_t in = w->in[which], width = w->out[which];
    for (size_t column = 0; column < width; column++) {
        int s;
        size_t from;
        source_of(w, p, which, column, &s, &from);
        const double *W = w->W[p->round_weights][s];
        size_t start = p->transposed[s] ? from * in : from, stride = p->transposed[s] ? 1 : w->out[s];
        for (size_t i = 0; i < in; i++)
            w->W_effective[i * width + column] = W[start + i * stride];
    }
}

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

typedef double four __attribute__((vector_size(32)));
typedef double four_at __attribute__((vector_size(32), aligned(8), may_alias));

/* Four columns of y = x W for up to four rows, whose number the compiler must see: the sums are registers. */
__attribute__((always_inline)) static inline void multiply_tile(const double *x, size_t rows, size_t in,
                                                                const double *W, size_t width, double *y)
{
    four sum[4] = {{0}, {0}, {0}, {0}};
    for (size_t i = 0; i < in; i++, W += width) {
        four w = *(const four_at *)W;
        UNROLL for (size_t t = 0; t < rows; t++) sum[t] += x[t * in + i] * w;
    }
    UNROLL for (size_t t = 0; t < rows; t++) * (four_at *)(y + t * width) = sum[t];
}

static void multiply_column(const double *x, size_t T, size_t in, const double *W, size_t width, double *y)
{
    for (size_t t = 0; t < T; t++) {
        double sum = 0;
        for (size_t i = 0; i < in; i++)
            sum += x[t * in + i] * W[i * width];
        y[t * width] = sum;
    }
}

void mha__dialect_multiply(const double *x, size_t T, size_t in, const double *W, const double *b, size_t width,
                          double *y)
{
    size_t whole = T / 4 * 4, j = 0;
    for (; j + 4 <= width; j += 4) {
        for (size_t t = 0; t < whole; t += 4)
            multiply_tile(x + t * in, 4, in, W + j, width, y + t * width + j);
        for (size_t t = whole; t < T; t++)
            multiply_tile(x + t * in, 1, in, W + j, width, y + t * width + j);
    }
    for (; j < width; j++)
        multiply_column(x, T, in, W + j, width, y + j);
    for (size_t t = 0; b && t < T; t++)
        for (j = 0; j < width; j++)
            y[t * width + j] += b[j];
}

/* x W for all batch rows. */
static void project(mha__dialect_bench *w, const dialect_projection *p, int which, double *y)
{
    size_t rows = w->c->B * w->T[which], width = w->out[which];
    if (w->c->kind == CASE_MHA) {
        effective(w, p, which);
        mha__dialect_multiply(w->x[p->round_inputs][which], rows, w->in[which], w->W_effective, NULL, width, y);
        return;
    }
    for (size_t column = 0; column < width; column++) {
        int s;
        size_t from;
        source_of(w, p, which, column, &s, &from);
        const double *x = w->x[p->round_inputs][s] + from;
        for (size_t t = 0; t < rows; t++)
            y[t * width + column] = x[t * w->out[s]];
    }
}

/* x W as remembered, else computed in the place of what was computed longest ago. */
static const double *projected(mha__dialect_bench *w, const dialect_projection *p, int which)
{
    bool packed = p->packing != PACKING_RIGHT;
    dialect_part part = {.which = which,
                         .source = packed ? -1 : p->source[which],
                         .packing = p->packing,
                         .round_weights = p->round_weights,
                         .round_inputs = p->round_inputs};
    for (int s = 0; s < 3; s++)
        part.transposed[s] = packed || s == p->source[which] ? p->transposed[s] : 0;
    for (size_t i = 0; i < w->memos; i++)
        if (memcmp(&w->memo[i].part, &part, sizeof part) == 0)
            return w->memo[i].rows;
    size_t slot = w->oldest;
    if (w->memos < DIALECT_MEMOS && (w->memos + 1) * w->memo_size <= DIALECT_MEMO_ELEMENTS) {
        double *more = mha__arena_take(&w->pool, w->memo_size * sizeof *more);
        if (more) {
            slot = w->memos++;
            w->memo[slot].rows = more;
        }
    }
    if (slot == w->oldest)
        w->oldest = (w->oldest + 1) % w->memos;
    w->memo[slot].part = part;
    project(w, p, which, w->memo[slot].rows);
    return w->memo[slot].rows;
}

/* q, k or v of one batch row, bias and all. */
static const double *biased(mha__dialect_bench *w, const dialect_projection *p, int which, size_t b)
{
    size_t width = w->out[which], n = w->T[which] * width;
    const double *x = projected(w, p, which) + b * n;
    for (size_t column = 0; column < width; column++) {
        int s;
        size_t from;
        source_of(w, p, which, column, &s, &from);
        const double *bias = p->no_bias[s] ? NULL : w->b[p->round_weights][s];
        w->b_effective[column] = bias ? bias[from] : 0;
    }
    for (size_t t = 0; t < w->T[which]; t++)
        for (size_t column = 0; column < width; column++)
            w->rows[which][t * width + column] = x[t * width + column] + w->b_effective[column];
    return w->rows[which];
}

/* ---------------------------------------------------------------- heads, norm, rotation */

size_t mha__dialect_column(int heads, size_t T, size_t h, size_t d, size_t t, size_t head, size_t f)
{
    if (heads == HEADS_INTERLEAVED)
        return t * h * d + f * h + head;
    if (heads == HEADS_UNTRANSPOSED)
        return head * T * d + t * d + f;
    return t * h * d + head * d + f;
}

static void normalise(const mha__dialect_bench *w, const mha__dialect *d, int which, double *x)
{
    const double *weight = w->norm[which];
    if (!weight || d->no_norm)
        return;
    size_t n = w->norm_terms[which], lines = w->T[which] * w->h[which] * w->d[which] / n;
    double eps = w->c->semantics.norm_eps > 0 ? w->c->semantics.norm_eps : 1e-6;
    for (size_t l = 0; l < lines; l++, x += n) {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += x[i] * x[i];
        double r = sqrt(sum / (double)n + eps);
        for (size_t i = 0; i < n; i++)
            x[i] = x[i] / r * (weight[i] + (d->norm_plus_one ? 1 : 0));
    }
}

int64_t mha__dialect_offset(const mha_case *c, size_t b)
{
    return c->semantics.position_offset ? c->semantics.position_offset[b] : (int64_t)c->P;
}

/* Where row t of the queries or of the new keys stands. */
static int64_t position_of(const mha__dialect_bench *w, const mha__dialect *d, bool keys, size_t b, size_t t)
{
    const mha_case *c = w->c;
    const mha_view *ids = &c->semantics.rope.q_positions;
    int64_t shift = keys ? d->rope_shift_k : d->rope_shift_q;
    if (d->rope_restart)
        return (int64_t)t + shift;
    if (ids->data && (!keys || c->T_q == c->T_k))
        return ((const int64_t *)ids->data)[(ids->shape[0] == 1 ? 0 : b) * ids->shape[1] + t] + shift;
    return (keys ? (int64_t)c->P : mha__dialect_offset(c, b)) + (int64_t)t + shift;
}

static void cos_sin(const mha__dialect_bench *w, const mha__dialect *d, bool keys, size_t b, size_t t, size_t i,
                    double *cosine, double *sine)
{
    const mha_view *tc = &w->c->semantics.rope.cos_table, *ts = &w->c->semantics.rope.sin_table;
    int64_t position = position_of(w, d, keys, b, t);
    size_t half = (size_t)d->rope_dim / 2;
    bool per_row = tc->rank == 3;
    if (tc->data && !d->rope_formula && i < tc->shape[tc->rank - 1]) {
        const size_t by_row[] = {tc->shape[0] == 1 ? 0 : b, t, i}, by_position[] = {(size_t)position, i};
        if (per_row || (position >= 0 && (size_t)position < tc->shape[0])) {
            *cosine = mha_view_get(tc, per_row ? by_row : by_position);
            *sine = mha_view_get(ts, per_row ? by_row : by_position);
            return;
        }
    }
    double angle = (double)position * pow(d->rope_base, -(double)i / (double)half);
    *cosine = cos(angle);
    *sine = sin(angle);
}

static void rotate(const mha__dialect_bench *w, const mha__dialect *d, int which, size_t b, double *x)
{
    size_t dim = (size_t)d->rope_dim, half = dim / 2, width = w->d[which];
    if (d->rope == MHA_ROPE_NONE || dim > width)
        return;
    for (size_t t = 0; t < w->T[which]; t++)
        for (size_t i = 0; i < half; i++) {
            double c, s;
            cos_sin(w, d, which != DIALECT_Q, b, t, i, &c, &s);
            if (d->rope_inverse)
                s = -s;
            size_t first = d->rope == MHA_ROPE_INTERLEAVED ? 2 * i : i;
            size_t second = d->rope == MHA_ROPE_INTERLEAVED ? 2 * i + 1 : i + half;
            for (size_t h = 0; h < w->h[which]; h++) {
                double *row = x + (t * w->h[which] + h) * width, x1 = row[first], x2 = row[second];
                row[first] = x1 * c - x2 * s;
                row[second] = x2 * c + x1 * s;
            }
        }
}

void mha__dialect_rows(mha__dialect_bench *w, const mha__dialect *d, size_t b, const double *rows[3])
{
    int parts = w->c->kind == CASE_ROPE ? 1 : 3;
    for (int i = 0; i < parts; i++) {
        rows[i] = biased(w, &d->projection, i, b);
        double *x = w->split[i];
        for (size_t t = 0; t < w->T[i]; t++)
            for (size_t h = 0; h < w->h[i]; h++)
                for (size_t f = 0; f < w->d[i]; f++)
                    *x++ = rows[i][mha__dialect_column(d->split, w->T[i], w->h[i], w->d[i], t, h, f)];
        if (i < 2 && !d->norm_after_rope)
            normalise(w, d, i, w->split[i]);
        if (i < 2 || d->rope_values)
            rotate(w, d, i, b, w->split[i]);
        if (i < 2 && d->norm_after_rope)
            normalise(w, d, i, w->split[i]);
    }
}
