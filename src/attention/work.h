/* The number of pairs of a query and a key that are computed, from which all counts of operations follow. */
#ifndef MHA_ATTENTION_WORK_H
#define MHA_ATTENTION_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The pairs of a query and a key that it sees by its position, in one sequence: query i is at offset + i, key j < S at
 * j. `left` and `right` are a window, -1 is open. T_q * S must fit. Masks are not considered. */
static inline uint64_t mha__visible_pairs(size_t T_q, size_t S, int64_t offset, bool causal, int64_t left,
                                          int64_t right)
{
    const bool window = left >= 0 || right >= 0;
    double pairs = 0;
    if (!causal && !window)
        return (uint64_t)T_q * S;
    if (!window && offset == 0 && T_q == S)
        return (uint64_t)T_q * (T_q + 1) / 2;
    for (size_t i = 0; i < T_q; i++) {
        const double at = (double)offset + (double)i;
        double first = left >= 0 ? at - (double)left : 0, past = right >= 0 ? at + (double)right + 1 : (double)S;
        first = first > 0 ? first : 0;
        past = causal && at + 1 < past ? at + 1 : past;
        past = past < (double)S ? past : (double)S;
        pairs += past > first ? past - first : 0;
    }
    return (uint64_t)pairs;
}

#endif
