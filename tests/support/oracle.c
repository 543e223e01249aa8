/* Attention once more: plain loops in double, written only from the definitions. Here the
 * rows: reading, projections, norms, rotations, the cache, the output. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/oracle_run.h"

const oracle_bug *oracle_wrong;

#define BUG(step, ...)                                                                                                 \
    if (oracle_wrong && oracle_wrong->step)                                                                            \
    oracle_wrong->step(__VA_ARGS__)

/* ---------------------------------------------------------------- reading */

static double half(uint16_t bits, int exponent_bits, int fraction_bits)
{
    int e = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double f = ldexp((double)(bits & ((1 << fraction_bits) - 1)), -fraction_bits), s = bits & 0x8000 ? -1 : 1;
    int bias = (1 << (exponent_bits - 1)) - 1;
    if (e == (1 << exponent_bits) - 1)
        return f != 0 ? (double)NAN : s * (double)INFINITY;
    return e ? ldexp(s * (1 + f), e - bias) : ldexp(s * f, 1 - bias);
}

double oracle_get(const mha_view *view, size_t i0, size_t i1, size_t i2, size_t i3)
{
    const size_t index[4] = {i0, i1, i2, i3};
    ptrdiff_t at = 0;
    for (int k = 0; k < view->rank; k++)
        at += (ptrdiff_t)index[k] * view->stride[k];
    switch (view->dtype) {
    case MHA_F32: return ((const float *)view->data)[at];
    case MHA_F64: return ((const double *)view->data)[at];
    case MHA_F16: return half(((const uint16_t *)view->data)[at], 5, 10);
    case MHA_BF16: return half(((const uint16_t *)view->data)[at], 8, 7);
    case MHA_I64: return (double)((const int64_t *)view->data)[at];
    case MHA_BOOL:
    case MHA_U8: return ((const uint8_t *)view->data)[at] != 0;
    default: fprintf(stderr, "oracle: dtype %d\n", (int)view->dtype); abort();
    }
}

/* ---------------------------------------------------------------- keeping */

static void *get_memory(size_t count, size_t size)
{
    void *block = calloc(count ? count : 1, size);
    if (!block)
        abort();
    return block;
}

static oracle_stage *stage(run *r, mha_stage which, int rank, size_t a, size_t b, size_t c, size_t d)
{
    oracle_stage *s = &r->out->stage[which];
    *s = (oracle_stage){.rank = rank, .shape = {a, b, c, d}, .elements = 1};
    for (int k = 0; k < rank; k++)
        s->elements *= s->shape[k];
    s->value = get_memory(s->elements, sizeof *s->value);
    s->slack = get_memory(s->elements, sizeof *s->slack);
    return s;
}

static void put_rows(run *r, mha_stage which, const mha_view *input, const number *rows, size_t width)
{
    oracle_stage *s = stage(r, which, 3, input->shape[0], input->shape[1], width, 1);
    for (size_t e = 0; e < s->elements; e++)
        put(s, e, rows[e]);
}

/* ---------------------------------------------------------------- project, norm, rotate */

int oracle_clip_place(const run *r, int which)
{
    return which < 2 && r->norm[which].span && !r->s->qkv.norm.after_rope ? ORACLE_NORMED : ORACLE_PROJECTED;
}

bool oracle_clips(const run *r, int which, int place)
{
    const bool here = oracle_wrong && oracle_wrong->clips ? oracle_wrong->clips(r, which, place)
                                                          : place == oracle_clip_place(r, which);
    return here && r->s->qkv.clip_qkv > 0;
}

/* Limits numbers of q, k or v (0, 1, 2) where that is the place for it. */
static void clip(const run *r, int which, int place, number *x, size_t n)
{
    const double c = r->s->qkv.clip_qkv;
    for (size_t i = 0; oracle_clips(r, which, place) && i < n; i++) {
        x[i].v = x[i].v > c ? c : x[i].v < -c ? -c : x[i].v;
        x[i].e += r->u * c + oracle_subnormal(r->u);
    }
}

/* x W + b, or the heads of x side by side plus b. `which`: of q, k, v; -1: another product. */
static number *project(const run *r, int which, const mha_view *x, const mha_view *W, const mha_view *b, size_t width)
{
    size_t T = x->shape[1], rows = x->shape[0] * T;
    number *y = get_memory(rows * width, sizeof *y);
    for (size_t row = 0; row < rows; row++)
        for (size_t n = 0; n < width; n++) {
            double sum = 0, size = 0;
            size_t terms = W ? x->shape[2] : 0;
            for (size_t k = 0; k < terms; k++) {
                double term = oracle_get(x, row / T, row % T, k, 0) * oracle_get(W, k, n, 0, 0);
                sum += term;
                size += fabs(term);
            }
            if (!W)
                sum = oracle_get(x, row / T, row % T, n / x->shape[3], n % x->shape[3]), size = fabs(sum);
            number before = {sum, 0};
            if (which >= 0)
                clip(r, which, ORACLE_BEFORE_BIAS, &before, 1);
            sum = before.v;
            if (b->data)
                sum += oracle_get(b, n, 0, 0, 0), size += fabs(oracle_get(b, n, 0, 0, 0));
            double e = oracle_gamma((double)terms + 3, r->u) * size + ((double)terms + 1) * oracle_subnormal(r->u);
            y[row * width + n] = W || b->data ? limited(r, sum, size, e) : (number){sum, 0};
        }
    return y;
}

/* The norm of n neighbours, with n weights or none, and n biases or none. */
static void normalise(const run *r, number *x, size_t n, const double *weight, const double *bias)
{
    const mha_norm_rule *rule = &r->s->qkv.norm;
    double eps = r->s->qkv.norm_eps > 0 ? r->s->qkv.norm_eps : 1e-6, squares = 0, moved = 0, mean = 0, size = 0,
           carried = 0;
    for (size_t i = 0; i < n && rule->kind == MHA_NORM_LAYER; i++)
        mean += x[i].v / (double)n, size += fabs(x[i].v) / (double)n, carried += x[i].e / (double)n;
    for (size_t i = 0; i < n; i++) {
        if (rule->kind == MHA_NORM_LAYER)
            x[i].e += carried + oracle_gamma((double)n + 3, r->u) * (fabs(x[i].v) + size) + 2 * oracle_subnormal(r->u);
        x[i].v -= mean;
        squares += x[i].v * x[i].v, moved += x[i].e * x[i].e;
    }
    double terms = rule->kind == MHA_NORM_L2 ? 1 : (double)n, root = sqrt(squares / terms + eps),
           off = sqrt(moved / terms);
    for (size_t i = 0; i < n; i++) {
        double w = weight ? weight[i] + rule->plus_one : 1, b = bias ? bias[i] : 0, z = x[i].v * w / root, y = z + b;
        double g = oracle_gamma((double)n + 10, r->u);
        double e = off < root ? fabs(w) * (x[i].e / (root - off) + fabs(x[i].v) * off / (root * (root - off)))
                              : (double)INFINITY;
        x[i] = limited(r, y, fmax(fabs(z) + fabs(b), squares + moved),
                       e * (1 + g) + g * (fabs(z) + fabs(b)) + 2 * oracle_subnormal(r->u));
    }
}

/* Tables with a row per token follow the inputs: (b, t) is the row of the input. */
void oracle_angle(const run *r, size_t b, size_t t, double position, size_t i, size_t dim, double *c, double *s,
                  double *off)
{
    const mha_rope *rope = &r->s->qkv.rope;
    const mha_view *ct = &rope->cos_table, *st = &rope->sin_table;
    *off = 0;
    if (ct->data) {
        size_t p = (size_t)position;
        *c = ct->rank == 3 ? oracle_get(ct, ct->shape[0] == 1 ? 0 : b, t, i, 0) : oracle_get(ct, p, i, 0, 0);
        *s = st->rank == 3 ? oracle_get(st, st->shape[0] == 1 ? 0 : b, t, i, 0) : oracle_get(st, p, i, 0, 0);
        return;
    }
    double f = rope->frequencies.data ? oracle_get(&rope->frequencies, i, 0, 0, 0)
                                      : pow(rope->base > 0 ? rope->base : 10000, -2.0 * (double)i / (double)dim);
    double a = position * f;
    *c = cos(a), *s = sin(a), *off = 0x1p-51 * fabs(a);
}

/* Rotates one head's row. */
static void rotate(const run *r, number *x, size_t b, size_t t, double position)
{
    const mha_rope *rope = &r->s->qkv.rope;
    size_t dim = rope->dim ? rope->dim : r->d_k;
    const double m = rope->attention_factor != 0 ? rope->attention_factor : 1;
    x += rope->last ? r->d_k - dim : 0;
    for (size_t i = 0; i < dim / 2; i++) {
        bool pairs = rope->kind == MHA_ROPE_INTERLEAVED;
        number *one = &x[pairs ? 2 * i : i], *two = &x[pairs ? 2 * i + 1 : i + dim / 2], a = *one, z = *two;
        double c, s, off;
        oracle_angle(r, b, t, position, i, dim, &c, &s, &off);
        double size = m * (fabs(a.v) + fabs(z.v)), least = oracle_subnormal(r->u);
        double e = m * (a.e + z.e) + (6 * r->u + off) * size + 2 * (1 + fabs(a.v) + fabs(z.v)) * least;
        *one = limited(r, m * (a.v * c - z.v * s), size, e);
        *two = limited(r, m * (z.v * c + a.v * s), size, e);
    }
}

/* Where row t of sequence b stands; positions that are given are those of the inputs' rows. */
double oracle_position(const run *r, size_t b, size_t t, bool key)
{
    const mha_view *given = &r->s->qkv.rope.q_positions, *query = &r->call->query, *keys = &r->call->key;
    if (key && r->s->qkv.rope.k_positions.data)
        given = &r->s->qkv.rope.k_positions;
    else if (key && (r->s->place.has_key_offset || (keys->data && query->shape[1] != keys->shape[1])))
        given = NULL;
    if (!given || !given->data)
        return key ? (double)r->s->place.key_offset + (double)(r->first + r->P + t) : offset_of(r, b) + (double)t;
    size_t batch = ragged(r) || given->shape[0] == 1 ? 0 : b;
    size_t row = !ragged(r) ? t : key ? key_row(r, b, t) : query_row(r, b, t);
    return oracle_get(given, batch, row, 0, 0);
}

/* All rows of h heads each, normalised; per_head: the weights go on from head to head. */
static void norm_rows(const run *r, number *y, size_t rows, size_t heads, bool key)
{
    const oracle_norm *norm = &r->norm[key];
    const size_t width = heads * r->d_k;
    if (!norm->span)
        return;
    for (size_t at = 0; at < rows * width; at += norm->span) {
        const size_t first = norm->weights > norm->span ? at % width : 0;
        normalise(r, y + at, norm->span, norm->weight ? norm->weight + first : NULL,
                  norm->bias ? norm->bias + first : NULL);
    }
}

/* A query's row multiplied by the scale of its position. */
static void scale_row(const run *r, number *x, size_t n, double position)
{
    const mha_query_scale *q = &r->s->qkv.query_scale;
    double f = 1;
    if (q->growth != 0)
        f += q->growth * log(1 + fmax(0, floor((position + (double)q->first) / (double)q->every)));
    if (q->log_n)
        f *= fmax(1, log(fmax(1, position + 1)) / log((double)q->log_n));
    for (size_t i = 0; i < n && f != 1; i++)
        x[i] = limited(r, f * x[i].v, f * (fabs(x[i].v) + x[i].e),
                       f * x[i].e + 8 * r->u * f * (fabs(x[i].v) + x[i].e) + oracle_subnormal(r->u));
}

/* Norm, rotation and scale by position of all rows, of h heads each. */
static number *turn(const run *r, const number *x, size_t rows, size_t heads, bool key)
{
    size_t width = heads * r->d_k;
    number *y = get_memory(rows * width, sizeof *y);
    memcpy(y, x, rows * width * sizeof *y);
    if (!r->s->qkv.norm.after_rope)
        norm_rows(r, y, rows, heads, key);
    clip(r, key, ORACLE_NORMED, y, rows * width);
    for (size_t b = 0; b < r->B && r->s->qkv.rope.kind != MHA_ROPE_NONE; b++)
        for (size_t t = 0; t < (key ? new_keys_of(r, b) : queries_of(r, b)); t++)
            for (size_t head = 0; head < heads; head++) {
                size_t row = key ? key_row(r, b, t) : query_row(r, b, t);
                rotate(r, y + row * width + head * r->d_k, ragged(r) ? 0 : b, ragged(r) ? row : t,
                       oracle_position(r, b, t, key));
            }
    if (r->s->qkv.norm.after_rope)
        norm_rows(r, y, rows, heads, key);
    for (size_t b = 0; b < r->B && !key; b++)
        for (size_t t = 0; t < queries_of(r, b); t++)
            scale_row(r, y + query_row(r, b, t) * width, width, oracle_position(r, b, t, false));
    return y;
}

/* ---------------------------------------------------------------- all keys and values */

/* Cached rows, new rows, the learned row, the zero row. */
static number *gather(const run *r, const number *rows, const mha_view *past, const mha_view *learned, size_t d)
{
    size_t all = r->S + r->extra;
    number *y = get_memory(r->B * r->h_kv * all * d, sizeof *y);
    for (size_t b = 0; b < r->B; b++)
        for (size_t g = 0; g < r->h_kv; g++) {
            number *to = y + (b * r->h_kv + g) * all * d;
            size_t n = new_keys_of(r, b);
            for (size_t j = 0; j < r->P; j++)
                for (size_t f = 0; f < d; f++)
                    to[j * d + f] = (number){oracle_get(past, b, g, j, f), 0};
            for (size_t j = 0; j < n; j++)
                for (size_t f = 0; f < d; f++)
                    to[(r->P + j) * d + f] = rows[key_row(r, b, j) * r->h_kv * d + g * d + f];
            for (size_t f = 0; learned->data && f < d; f++) {
                double x = oracle_get(learned, g * d + f, 0, 0, 0);
                to[(r->P + n) * d + f] = (number){x, learned->dtype == MHA_F64 ? r->u * fabs(x) : 0};
            }
        }
    return y;
}

static void put_present(run *r, mha_stage which, const number *all, size_t d)
{
    oracle_stage *s = stage(r, which, 4, r->B, r->h_kv, r->S, d);
    for (size_t b = 0; b < r->B; b++)
        for (size_t g = 0; g < r->h_kv; g++)
            for (size_t j = 0; j < r->P + new_keys_of(r, b); j++)
                for (size_t f = 0; f < d; f++)
                    put(s, ((b * r->h_kv + g) * r->S + j) * d + f,
                        all[((b * r->h_kv + g) * (r->S + r->extra) + j) * d + f]);
}

static void put_output(run *r, const number *heads, const mha_view *W, const mha_view *b)
{
    size_t width = r->h * r->d_v, n_out = W ? r->d_out : width;
    oracle_stage *s = stage(r, MHA_STAGE_OUTPUT, 3, r->call->query.shape[0], r->call->query.shape[1], n_out, 1);
    for (size_t at = 0; at < s->elements; at++) {
        const number *x = heads + at / n_out * width;
        if (!W) {
            put(s, at, x[at % n_out]);
            continue;
        }
        double sum = 0, size = 0, carried = 0;
        for (size_t k = 0; k < width; k++) {
            double w = oracle_get(W, k, at % n_out, 0, 0);
            sum += x[k].v * w;
            size += (fabs(x[k].v) + x[k].e) * fabs(w);
            carried += x[k].e * fabs(w);
        }
        if (b->data)
            sum += oracle_get(b, at % n_out, 0, 0, 0), size += fabs(oracle_get(b, at % n_out, 0, 0, 0));
        put(s, at, limited(r, sum, size, carried + oracle_gamma((double)width + 3, r->u) * size +
                                             ((double)width + 1) * oracle_subnormal(r->u)));
    }
}

/* Every feature of the heads times the sigmoid of its own number, or of its head's. */
static void gate(run *r, number *heads, const mha_view *W, const mha_view *b)
{
    const size_t width = r->h * r->d_v, gates = W->shape[1];
    number *z = project(r, -1, &r->call->query, W, b, gates);
    for (size_t e = 0; e < r->rows_q * width; e++) {
        const number x = heads[e], at = z[e / width * gates + e % width / (width / gates)];
        const double g = 1 / (1 + exp(-at.v)), off = fmin(at.e / 4, 1) + 8 * r->u * g + oracle_normal(r->u);
        heads[e] = limited(r, x.v * g, fabs(x.v),
                           x.e * (g + off) + fabs(x.v) * (off + r->u) + oracle_subnormal(r->u));
    }
    put_rows(r, MHA_STAGE_GATED, &r->call->query, heads, width);
    free(z);
}

/* ---------------------------------------------------------------- the whole */

static double *norm_numbers(const mha_view *given, size_t *count)
{
    if (!given->data)
        return NULL;
    const size_t row = given->rank == 2 ? given->shape[1] : given->shape[0];
    *count = given->rank == 2 ? given->shape[0] * row : row;
    double *all = get_memory(*count, sizeof *all);
    for (size_t i = 0; i < *count; i++)
        all[i] = given->rank == 2 ? oracle_get(given, i / row, i % row, 0, 0) : oracle_get(given, i, 0, 0, 0);
    return all;
}

static oracle_norm norm_of(const run *r, const mha_view *weight, const mha_view *bias, size_t heads)
{
    oracle_norm n = {0};
    n.weight = norm_numbers(weight, &n.weights);
    n.bias = norm_numbers(bias, &n.weights);
    if (n.weight || r->s->qkv.norm.unweighted)
        n.span = n.weight && weight->rank == 1 && n.weights == heads * r->d_k ? n.weights : r->d_k;
    return n;
}

static void measure(run *r, const mha_config *c, const mha_view *key, const mha_view *value)
{
    const mha_view *query = &r->call->query;
    bool many = ragged(r);
    r->h = c ? c->n_heads : query->shape[2];
    r->h_kv = c ? c->kv_heads : key->shape[2];
    r->d_k = c ? c->d_k : query->shape[3];
    r->d_v = c ? c->d_v : value->shape[3];
    r->d_out = c ? c->d_out : r->h * r->d_v;
    r->rows_q = query->shape[0] * query->shape[1];
    r->rows_k = key->shape[0] * key->shape[1];
    r->B = many ? r->s->place.n_sequences : query->shape[0];
    r->T_q = many ? 0 : query->shape[1];
    r->T_k = many ? 0 : key->shape[1];
    for (size_t b = 0; many && b < r->B; b++) {
        r->T_q = queries_of(r, b) > r->T_q ? queries_of(r, b) : r->T_q;
        r->T_k = new_keys_of(r, b) > r->T_k ? new_keys_of(r, b) : r->T_k;
    }
    r->P = r->past ? r->past->length : 0;
    r->first = r->past ? r->past->first : 0;
    r->S = r->P + r->T_k;
    r->extra = (size_t)(r->bias_k.data != NULL) + r->s->softmax.zero_row;
}

/* The terms of the softmax other than the keys, unless another part counts them. */
static void take_extras(run *r, const mha_view *w)
{
    if (!r->s->place.keys_only)
        r->bias_k = w[MHA_BIAS_K], r->bias_v = w[MHA_BIAS_V], r->sinks = w[MHA_SINKS];
}

void oracle_run(const mha_config *config, const mha_view weights[MHA_WEIGHT_COUNT], const mha_call *call,
                const oracle_past *past, double unit, oracle *result)
{
    const mha_view *from = config ? weights : call->weights, none = {0};
    mha_view w[MHA_WEIGHT_COUNT] = {{0}};
    if (from)
        memcpy(w, from, sizeof w);
    mha_call read = *call;
    call = &read;
    BUG(inputs, &read, past && past->keys.data);
    mha_view key = call->key.data ? call->key : call->query, value = call->value.data ? call->value : key;
    mha_semantics meant = call->semantics;
    meant.place.has_key_offset |= meant.place.key_offset != 0;
    run r = {.call = call, .s = &meant, .past = past, .u = unit, .out = result, .weights = w};
    if (meant.place.keys_only)
        meant.softmax.softmax_plus_one = meant.softmax.zero_row = false;
    take_extras(&r, w);
    memset(result, 0, sizeof *result);
    measure(&r, config, &key, &value);
    BUG(reads, &r, w);
    take_extras(&r, w);
    BUG(says, &r, &meant);
    r.norm[0] = norm_of(&r, &w[MHA_Q_NORM], &w[MHA_Q_NORM_BIAS], r.h);
    r.norm[1] = norm_of(&r, &w[MHA_K_NORM], &w[MHA_K_NORM_BIAS], r.h_kv);

    r.q = project(&r, 0, &call->query, config ? &w[MHA_W_Q] : NULL, &w[MHA_B_Q], r.h * r.d_k);
    r.k = project(&r, 1, &key, config ? &w[MHA_W_K] : NULL, &w[MHA_B_K], r.h_kv * r.d_k);
    r.v = project(&r, 2, &value, config ? &w[MHA_W_V] : NULL, &w[MHA_B_V], r.h_kv * r.d_v);
    BUG(projected, &r);
    clip(&r, 0, ORACLE_PROJECTED, r.q, r.rows_q * r.h * r.d_k);
    clip(&r, 1, ORACLE_PROJECTED, r.k, r.rows_k * r.h_kv * r.d_k);
    clip(&r, 2, ORACLE_PROJECTED, r.v, r.rows_k * r.h_kv * r.d_v);
    put_rows(&r, MHA_STAGE_Q, &call->query, r.q, r.h * r.d_k);
    put_rows(&r, MHA_STAGE_K, &key, r.k, r.h_kv * r.d_k);
    put_rows(&r, MHA_STAGE_V, &value, r.v, r.h_kv * r.d_v);
    BUG(split, &r);
    r.q_rot = turn(&r, r.q, r.rows_q, r.h, false);
    r.k_rot = turn(&r, r.k, r.rows_k, r.h_kv, true);
    BUG(turned, &r);
    r.keys = gather(&r, r.k_rot, past ? &past->keys : &none, &r.bias_k, r.d_k);
    r.values = gather(&r, r.v, past ? &past->values : &none, &r.bias_v, r.d_v);

    put_rows(&r, MHA_STAGE_Q_ROT, &call->query, r.q_rot, r.h * r.d_k);
    put_rows(&r, MHA_STAGE_K_ROT, &key, r.k_rot, r.h_kv * r.d_k);
    put_present(&r, MHA_STAGE_PRESENT_KEY, r.keys, r.d_k);
    put_present(&r, MHA_STAGE_PRESENT_VALUE, r.values, r.d_v);
    size_t all = r.S + r.extra;
    for (int s = MHA_STAGE_SCORES; s <= MHA_STAGE_WEIGHTS; s++)
        stage(&r, (mha_stage)s, 4, r.B, r.h, r.T_q, all);
    stage(&r, MHA_STAGE_WEIGHTS_MEAN, 3, r.B, r.T_q, all, 1);
    stage(&r, MHA_STAGE_LSE, 3, r.B, r.h, r.T_q, 1);

    BUG(gathered, &r);
    number *heads = get_memory(r.rows_q * r.h * r.d_v, sizeof *heads);
    attended a = {.logit = get_memory(all, sizeof *a.logit), .weight = get_memory(all, sizeof *a.weight),
             .seen = get_memory(all, sizeof *a.seen), .kept = get_memory(all, sizeof *a.kept)};
    for (size_t b = 0; b < r.B; b++)
        for (size_t head = 0; head < r.h; head++)
            for (size_t i = 0; i < queries_of(&r, b); i++) {
                oracle_attend(&r, b, head, i, &a, heads);
                BUG(attend, &r, b, head, i, heads);
            }
    BUG(merged, &r, heads);
    put_rows(&r, MHA_STAGE_HEADS, &call->query, heads, r.h * r.d_v);
    if (config && w[MHA_W_G].data)
        gate(&r, heads, &w[MHA_W_G], &w[MHA_B_G]);
    BUG(gated, &r, heads);
    put_output(&r, heads, config ? &w[MHA_W_O] : NULL, &w[MHA_B_O]);
    BUG(finished, &r, heads, &result->stage[MHA_STAGE_OUTPUT]);

    void *mine[] = {r.norm[0].weight, r.norm[0].bias, r.norm[1].weight, r.norm[1].bias,
                    r.q,   r.k,     r.v,      r.q_rot, r.k_rot,
                    r.keys,   r.values, heads, a.logit, a.weight, a.seen, a.kept};
    for (size_t k = 0; k < sizeof mine / sizeof *mine; k++)
        free(mine[k]);
}

void oracle_free(oracle *result)
{
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        free(result->stage[s].value);
        free(result->stage[s].slack);
    }
    memset(result, 0, sizeof *result);
}
