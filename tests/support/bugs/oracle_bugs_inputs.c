/* Bugs in the reading of inputs and weights, and in the axes of a call. */
#include "mha/tensor.h"
#include "support/bugs/oracle_bugs.h"
#include "support/short_float.h"

/* x with so many significant bits, the last one even where two are as near; none below the exponent `least`. */
static double narrowed(double x, int bits, int least)
{
    int exponent;
    (void)frexp(x, &exponent);
    const int last = (exponent > least ? exponent : least) - bits;
    return ldexp(nearbyint(ldexp(x, -last)), last);
}

static double typed(double x, int type)
{
    return type == 0                  ? x
           : type == MHA__TO_BF16_CUT ? short_float_cut((float)x)
           : type == MHA__TO_BF16     ? narrowed((float)x, 8, -125)
                                      : narrowed((float)x, 11, -13);
}

/* A copy of an array, each number rounded to a type and multiplied. */
static mha_view copy_of(const mha_view *x, int type, double times)
{
    size_t at[4] = {0}, shape[4] = {1, 1, 1, 1}, n = 1;
    for (int k = 0; k < x->rank; k++)
        n *= shape[k] = x->shape[k];
    double *to = oracle_memory(n);
    for (size_t e = 0; e < n; e++) {
        to[e] = times * typed(oracle_get(x, at[0], at[1], at[2], at[3]), type);
        for (int k = 3; k >= 0 && ++at[k] == shape[k]; k--)
            at[k] = 0;
    }
    return mha_view_of(to, MHA_F64, x->rank, x->shape);
}

/* A copy of an input, rounded, each token's features normalised, or the tokens of each sequence in reverse order. */
static mha_view reread(const mha_view *x)
{
    const mha_view from = copy_of(x, oracle_arg(AT_X, OP_ROUND), 1);
    const size_t T = x->shape[1], rows = x->shape[0] * T, n = mha_view_elements(x) / (rows + (rows == 0));
    const bool layer = IS(X, FN, LAYER_NORM);
    double *y = oracle_memory(rows * n);
    for (size_t row = 0; row < rows; row++) {
        const double *old = (double *)from.data + (OP(X, FROM) ? row / T * T + T - 1 - row % T : row) * n;
        double mean = 0, var = 0, *to = y + row * n;
        for (size_t e = 0; e < n && layer; e++)
            mean += old[e] / (double)n;
        for (size_t e = 0; e < n; e++)
            var += (old[e] - mean) * (old[e] - mean) / (double)n;
        for (size_t e = 0; e < n; e++)
            to[e] = (old[e] - mean) / (OP(X, FN) ? sqrt(var + (layer ? 1e-5 : 1e-6)) : 1);
    }
    return mha_view_of(y, MHA_F64, x->rank, x->shape);
}

/* ---------------------------------------------------------------- which matrix is read, and how */

/* The feature that is read as feature f of a head of part i of a packed row: one of blocks is written as all heads of
 * q, all of k, all of v; one of groups as (h_kv, h/h_kv + 2, d). */
static void place_of(size_t h, size_t h_kv, size_t d, int i, size_t head, size_t f, int *part, size_t *column)
{
    const size_t each = h / h_kv + 2, of = i == 0 ? head / (each - 2) : head;
    const size_t in_group = i == 0 ? head % (each - 2) : each - 3 + (size_t)i;
    const size_t block = (i > 0 ? h : 0) + (i > 1 ? h_kv : 0) + head;
    if (IS(PROJ, FROM, PACKED_BLOCKS)) {
        const size_t group = block / each, at = block % each;
        *part = at + 2 < each ? 0 : at + 2 == each ? 1 : 2;
        *column = (*part == 0 ? group * (each - 2) + at : group) * d + f;
    } else {
        const size_t at = of * each + in_group;
        *part = at < h ? 0 : at < h + h_kv ? 1 : 2;
        *column = (at - (at < h ? 0 : at < h + h_kv ? h : h + h_kv)) * d + f;
    }
}

/* Reads the columns (the last axis, of heads of width d) of three views from one packed row. */
static void repack(mha_view *x[3], size_t h, size_t h_kv, size_t d)
{
    const mha_view from[3] = {*x[0], *x[1], *x[2]}, *some = from;
    while (some < from + 3 && !some->data)
        some++;
    for (int i = 0; i < 3 && some < from + 3; i++) {
        const bool wide = some->rank == 4; /* (B, T, h, d) */
        const size_t heads = i == 0 ? h : h_kv, T = some->rank > 1 ? some->shape[1] : 1;
        size_t rows = 1, shape[4] = {some->shape[0], T, heads, d};
        for (int k = 0; k < some->rank - 1 - wide; k++)
            rows *= some->shape[k];
        if (!wide)
            shape[some->rank - 1] = heads * d;
        double *y = oracle_memory(rows * heads * d);
        for (size_t e = 0; e < rows * heads * d; e++) {
            const size_t row = e / heads / d;
            int part;
            size_t c;
            place_of(h, h_kv, d, i, e / d % heads, e % d, &part, &c);
            const mha_view *v = &from[part];
            y[e] = !v->data         ? 0
                   : wide           ? oracle_get(v, row / T, row % T, c / d, c % d)
                   : some->rank > 1 ? oracle_get(v, row, c, 0, 0)
                                    : oracle_get(v, c, 0, 0, 0);
        }
        *x[i] = mha_view_of(y, MHA_F64, some->rank, shape);
    }
}

/* Exchanges matrices, biases, or inputs without a layer. */
static void exchange(mha_view *x[3], size_t h, size_t h_kv, size_t d)
{
    const mha_view old[3] = {*x[0], *x[1], *x[2]};
    const mha__mutation *order = OP(PROJ, TAKE);
    for (int i = 0; i < 3 && order; i++)
        *x[i] = old[order->step >> 2 * i & 3];
    if (OP(PROJ, FROM))
        repack(x, h, h_kv, d);
}

void buggy_weights(const run *r, mha_view *w)
{
    static const mha_weight W[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O}, b[] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};
    const int type = oracle_arg(AT_W, OP_ROUND);
    for (int i = 0; i < MHA_WEIGHT_COUNT && type; i++)
        if (w[i].data)
            w[i] = copy_of(&w[i], type, 1);
    for (int i = 0; i < 4; i++) {
        mha_view *x = &w[W[i]];
        const ptrdiff_t step = x->stride[0];
        if (oracle_mutation(AT_W_Q + i, OP_FROM, -1))
            x->stride[0] = x->stride[1], x->stride[1] = step;
        if (oracle_mutation(AT_B_Q + i, OP_ZERO, -1))
            w[b[i]] = (mha_view){0};
        else if (w[b[i]].data && oracle_mutation(AT_B_Q + i, OP_TIMES, -1))
            w[b[i]] = copy_of(&w[b[i]], 0, oracle_number(AT_B_Q + i, OP_TIMES, 1));
        const mha__mutation *lacks = oracle_mutation(AT_B_Q + i, OP_KEEP, -1);
        const size_t d = i == 2 ? r->d_v : r->d_k, width = i == 3 ? r->d_out : (i ? r->h_kv : r->h) * d;
        const mha__mutation *given = oracle_mutation(AT_B_Q + i, OP_TAKE, -1);
        if (given)
            w[b[i]] = mha_view_of(mha__unconst(given->table), MHA_F64, 1, &width);
        if (w[b[i]].data && lacks) {
            w[b[i]] = copy_of(&w[b[i]], 0, 1);
            memset((double *)w[b[i]].data + (size_t)lacks->step * d, 0, d * sizeof(double));
        }
    }
    mha_view *matrices[] = {&w[W[0]], &w[W[1]], &w[W[2]]}, *biases[] = {&w[b[0]], &w[b[1]], &w[b[2]]};
    exchange(matrices, r->h, r->h_kv, r->d_k);
    exchange(biases, r->h, r->h_kv, r->d_k);
}

/* ---------------------------------------------------------------- inputs, and axes taken for each other */

void buggy_inputs(mha_call *call, bool cached)
{
    mha_semantics *s = &call->semantics;
    mha_view *x[] = {&call->query, &call->key, &call->value};
    const bool heads = IS(CALL, FN, HEADS_AS_TIME), swaps = OP(CALL, FN) && oracle_program->s.place.n_sequences == 0;
    (void)cached;
    if (OP(X, TAKE)) {
        const mha_view value = call->value.data ? call->value : call->key, in[] = {call->query, call->key, value};
        const mha_view other = mha_view_slice(&in[OP(X, TAKE)->arg], 1, 0, call->key.shape[1]);
        call->key = OF(X, TAKE, 1) ? other : call->key, call->value = OF(X, TAKE, 2) ? other : value;
    }
    for (int i = 0; i < 3; i++) {
        mha_view *v = x[i];
        if (v->data && (OP(X, ROUND) || OP(X, FROM) || OP(X, FN)))
            *v = reread(v);
        const int one = heads ? 1 : 0, other = heads ? 2 : 1; /* axes */
        const size_t n = v->shape[one];
        const ptrdiff_t step = v->stride[one];
        if (swaps)
            v->shape[one] = v->shape[other], v->shape[other] = n, v->stride[one] = v->stride[other],
            v->stride[other] = step;
    }
    if (OP(CALL, FN) && !swaps) /* the sequences of a ragged batch taken for one */
        s->place.n_sequences = 0, s->place.cu_seqlens_q = s->place.cu_seqlens_k = NULL;
    if (call->query.rank == 4 && (OP(PROJ, TAKE) || OP(PROJ, FROM))) {
        call->value = call->value.data ? call->value : call->key;
        exchange(x, call->query.shape[2], call->key.shape[2], call->query.shape[3]);
    }
}
