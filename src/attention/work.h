/* The work of a call: its stages, and its pairs of a query and a key, from which counts of operations follow. */
#ifndef MHA_ATTENTION_WORK_H
#define MHA_ATTENTION_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mha/attention.h"

/* The sum of min(max(x, 0), S) over the whole numbers x < end, modulo 2^64. */
static inline uint64_t mha__sum_below(int64_t end, uint64_t S)
{
    if (end <= 0)
        return 0;
    const uint64_t n = (uint64_t)end < S ? (uint64_t)end : S; /* those before S, and then S again and again */
    const uint64_t triangle = n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n;
    return triangle + ((uint64_t)end - n) * S;
}

/* The pairs of T_q queries and S keys without chunks, where query i is at the index offset + i among the keys. -1 is an
 * open side. */
static inline uint64_t mha__window_pairs(size_t T_q, size_t S, int64_t offset, bool causal, int64_t left, int64_t right)
{
    const int64_t T = (int64_t)T_q, far = (int64_t)1 << 61; /* a side that is longer is as good as open */
    const int64_t past = offset + 1 + (causal ? 0 : right < far ? right : far);
    const int64_t first = offset - (left < far ? left : far);
    /* Of each query the keys up to the last one that it sees, without those before the first. */
    const uint64_t all = causal || right >= 0 ? mha__sum_below(past + T, S) - mha__sum_below(past, S) : T_q * S;
    return left >= 0 ? all - (mha__sum_below(first + T, S) - mha__sum_below(first, S)) : all;
}

/* The first position of the chunk of n positions that has x. */
static inline int64_t mha__chunk_begin(int64_t x, int64_t n)
{
    return (x / n - (x % n < 0)) * n;
}

/* The pairs of queries at positions [query, query_end) and keys at [key, key_end), chunk by chunk. */
static inline uint64_t mha__chunk_pairs(int64_t query, int64_t query_end, int64_t key, int64_t key_end, int64_t chunk,
                                        bool causal, int64_t left, int64_t right)
{
    uint64_t pairs = 0;
    if (chunk <= 0)
        return mha__window_pairs((size_t)(query_end - query), (size_t)(key_end - key), query - key, causal, left,
                                 right);
    const int64_t start = mha__chunk_begin(key, chunk), end = query_end < key_end ? query_end : key_end;
    for (int64_t at = query > start ? query : start, next; at < query_end; at = next) {
        const int64_t first = mha__chunk_begin(at, chunk), lower = first > key ? first : key;
        if (first >= key_end)
            break;
        const int64_t whole = at == first && lower == first ? (end - first) / chunk : 0;
        const size_t length = (size_t)chunk, rest = (size_t)(key_end - lower), room = (size_t)(first + chunk - lower);
        if (whole > 0) { /* as many chunks that are alike */
            pairs += (uint64_t)whole * mha__window_pairs(length, length, 0, causal, left, right);
            next = first + whole * chunk;
        } else {
            next = query_end - first < chunk ? query_end : first + chunk;
            pairs += mha__window_pairs((size_t)(next - at), rest < room ? rest : room, at - lower, causal, left, right);
        }
    }
    return pairs;
}

/* The pairs of a query and a key that it sees by its position, in one sequence: query i is at query + i, key j < S at
 * key + j. T_q * S must fit, and positions lie within 2^61. Lengths and masks are not considered. */
static inline uint64_t mha__visible_pairs(int64_t query, size_t T_q, int64_t key, size_t S, const mha_visible *v)
{
    const int64_t end = key + (int64_t)S, right = v->window ? v->window_right : -1;
    uint64_t pairs = 0;
    /* Keys below the prefix are not hidden by `causal`, and those below window_keep not by the window's left side. */
    for (int64_t from = key, to; from < end; from = to) {
        const int64_t prefix = from < v->prefix ? v->prefix : end, keep = from < v->window_keep ? v->window_keep : end;
        to = prefix < keep ? prefix : keep;
        to = to < end ? to : end;
        pairs += mha__chunk_pairs(query, query + (int64_t)T_q, from, to, v->chunk, v->causal && from >= v->prefix,
                                  v->window && from >= v->window_keep ? v->window_left : -1, right);
    }
    return pairs;
}

/* Whether a planned call has a stage, and that differs from the stage before it. */
bool mha__stage_happens(const mha_plan *plan, mha_stage stage);

/* The pairs that a planned call computes: of all sequences, without those that lengths hide, with extra rows. Masks and
 * patterns are not considered. */
uint64_t mha__plan_pairs(const mha_plan *plan);

#endif
