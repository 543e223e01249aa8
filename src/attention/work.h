/* The number of pairs of a query and a key that are computed, from which all counts of operations follow. */
#ifndef MHA_ATTENTION_WORK_H
#define MHA_ATTENTION_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sum of min(max(x, 0), S) over the whole numbers x < end, modulo 2^64. */
static inline uint64_t mha__sum_below(int64_t end, uint64_t S)
{
    if (end <= 0)
        return 0;
    const uint64_t n = (uint64_t)end < S ? (uint64_t)end : S; /* those before S, and then S again and again */
    const uint64_t triangle = n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n;
    return triangle + ((uint64_t)end - n) * S;
}

/* mha__visible_pairs without chunks. */
static inline uint64_t mha__window_pairs(size_t T_q, size_t S, int64_t offset, bool causal, int64_t left, int64_t right)
{
    const int64_t T = (int64_t)T_q, far = (int64_t)1 << 61; /* a side that is longer is as good as open */
    const int64_t past = offset + 1 + (causal ? 0 : right < far ? right : far);
    const int64_t first = offset - (left < far ? left : far);
    /* Of each query the keys up to the last one that it sees, without those before the first. */
    const uint64_t all = causal || right >= 0 ? mha__sum_below(past + T, S) - mha__sum_below(past, S) : T_q * S;
    return left >= 0 ? all - (mha__sum_below(first + T, S) - mha__sum_below(first, S)) : all;
}

/* The pairs of a query and a key that it sees by its position, in one sequence: query i is at offset + i, key j < S at
 * j. `left` and `right` are a window, -1 is open; chunk n > 0: only keys with the same floor(position / n). T_q * S
 * must fit, and positions lie within 2^61. Masks are not considered. */
static inline uint64_t mha__visible_pairs(size_t T_q, size_t S, int64_t offset, bool causal, int64_t left,
                                          int64_t right, int64_t chunk)
{
    const int64_t end = offset + (int64_t)T_q, keys = (int64_t)S;
    uint64_t pairs = 0;
    if (chunk <= 0)
        return mha__window_pairs(T_q, S, offset, causal, left, right);
    for (int64_t at = offset > 0 ? offset : 0, next; at < end && at / chunk * chunk < keys; at = next) {
        const int64_t first = at / chunk * chunk, whole = (end < keys ? end : keys) / chunk - at / chunk;
        const size_t length = (size_t)chunk, rest = (size_t)(keys - first);
        if (at == first && whole > 0) { /* as many chunks that are alike */
            pairs += (uint64_t)whole * mha__window_pairs(length, length, 0, causal, left, right);
            next = first + whole * chunk;
        } else {
            next = end - first < chunk ? end : first + chunk;
            pairs += mha__window_pairs((size_t)(next - at), rest < length ? rest : length, at - first, causal, left,
                                       right);
        }
    }
    return pairs;
}

#endif
