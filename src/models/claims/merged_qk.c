/* W_QK = W_Q W_K^T of each head, its rank and its scores in integers modulo a prime. */
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "mha/random.h"
#include "models/claims/claims.h"

/* The prime 2^31 - 1. The residue of a number m 2^e is m 2^(e mod 31), because the residue of 2^31 is 1. Residues of
 * sums and products are sums and products of residues, so a minor with a residue other than 0 is not 0: the rank of
 * the residues is at most the rank of the numbers. It is less only if the prime divides all minors of that size. */
enum { PRIME = 0x7fffffff, PRIME_BITS = 31 };

static uint64_t residue(double value)
{
    int exponent;
    const int64_t digits = (int64_t)ldexp(frexp(value, &exponent), DBL_MANT_DIG) % PRIME;
    const int shift = ((exponent - DBL_MANT_DIG) % PRIME_BITS + PRIME_BITS) % PRIME_BITS;
    return ((uint64_t)(digits < 0 ? digits + PRIME : digits) << shift) % PRIME;
}

static void read_residues(const mha_view *matrix, uint64_t *residues)
{
    size_t index[2] = {0};
    do
        *residues++ = residue(mha_view_get(matrix, index));
    while (mha__index_next(index, matrix->shape, 2));
}

/* The product of two rows of residues, their elements `x_step` and `y_step` apart. */
static uint64_t dot(const uint64_t *x, size_t x_step, const uint64_t *y, size_t y_step, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = (sum + x[i * x_step] * y[i * y_step]) % PRIME;
    return sum;
}

/* The rank of a matrix of residues, which is overwritten: elimination without division. */
static size_t eliminate(uint64_t *matrix, size_t rows, size_t columns)
{
    uint64_t *top = matrix, *const end = matrix + rows * columns;
    for (size_t c = 0; c < columns && top < end; c++) {
        uint64_t *pivot = top;
        while (pivot < end && pivot[c] == 0)
            pivot += columns;
        if (pivot == end)
            continue;
        for (size_t j = 0; j < columns; j++) {
            const uint64_t moved = top[j];
            top[j] = pivot[j], pivot[j] = moved;
        }
        for (uint64_t *row = top + columns; row < end; row += columns) {
            const uint64_t factor = PRIME - row[c];
            for (size_t j = c; j < columns; j++)
                row[j] = (row[j] * top[c] + factor * top[j]) % PRIME;
        }
        top += columns;
    }
    return (size_t)(top - matrix) / columns;
}

/* Lowers *merged to what one head shows. `memory` has room for five arrays: of W_Q, W_K, W_QK, x_q and x_k. */
static void merge_head(const mha_view *w_q, const mha_view *w_k, uint64_t *memory, mha__merged_qk *merged)
{
    const size_t d_q = w_q->shape[0], d_kin = w_k->shape[0], d_k = w_q->shape[1];
    uint64_t *q = memory, *k = q + d_q * d_k, *qk = k + d_kin * d_k, *x_q = qk + d_q * d_kin, *x_k = x_q + d_q;
    uint64_t pair = 0, one = 0;
    read_residues(w_q, q);
    read_residues(w_k, k);
    for (size_t i = 0; i < d_q + d_kin; i++)
        x_q[i] = residue((double)mha__random_unit(0, 0, i));
    for (size_t i = 0; i < d_q * d_kin; i++)
        qk[i] = dot(q + i / d_kin * d_k, 1, k + i % d_kin * d_k, 1, d_k);
    for (size_t c = 0; c < d_k; c++)
        pair = (pair + dot(x_q, 1, q + c, d_k, d_q) * dot(x_k, 1, k + c, d_k, d_kin)) % PRIME;
    for (size_t i = 0; i < d_q; i++)
        one = (one + x_q[i] * dot(qk + i * d_kin, 1, x_k, 1, d_kin)) % PRIME;
    merged->equal = merged->equal && pair == one;
    const size_t rank = eliminate(qk, d_q, d_kin);
    merged->rank = rank < merged->rank ? rank : merged->rank;
}

mha_status mha__merge_qk(const mha_layer *layer, mha__merged_qk *merged, mha_error *error)
{
    const mha_config *c = mha_layer_config(layer);
    const mha_allocator allocator = mha__allocator_default();
    const size_t bytes =
        sizeof(uint64_t) * (c->d_q * c->d_k + c->d_kin * c->d_k + c->d_q * c->d_kin + c->d_q + c->d_kin);
    uint64_t *memory = mha__allocate(&allocator, bytes);
    if (!memory)
        return mha__fail(error, MHA_NO_MEMORY, "claims", "no memory for W_Q W_K^T of one head");
    *merged = (mha__merged_qk){.rank = SIZE_MAX, .equal = true};
    for (size_t head = 0; head < c->n_heads; head++) {
        const mha_view w_q = mha_layer_head(layer, MHA_W_Q, head);
        const mha_view w_k = mha_layer_head(layer, MHA_W_K, head / (c->n_heads / c->kv_heads));
        merge_head(&w_q, &w_k, memory, merged);
    }
    mha__release(&allocator, memory, bytes);
    return MHA_OK;
}
