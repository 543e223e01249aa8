/* Which keys a query attends to, computed once from the settings of a call: bounds by position and lengths, and which
 * masks, patterns and terms there are. The exact path alone reads the settings themselves. */
#ifndef MHA_ATTENTION_VISIBILITY_VISIBILITY_H
#define MHA_ATTENTION_VISIBILITY_VISIBILITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mha/attention.h"

/* Positions count from the beginning of the sequence. */
typedef struct mha__visibility {
    bool causal;
    int64_t prefix;      /* `causal` does not hide keys at positions below it */
    int64_t left, right; /* of the window; -1: open */
    int64_t keep;        /* the left side of the window does not hide keys at positions below it */
    int64_t chunk;       /* positions in a chunk; 0: there are no chunks */
    int64_t first_key;   /* position of key 0 */
    const int64_t *lengths; /* (B), less lengths_from: keys of each sequence; NULL: all */
    int64_t lengths_from;

    bool pads;     /* queries of padding attend to nothing */
    bool pattern;  /* segments, lists of keys or blocks */
    bool masks;    /* a mask, key padding or a pattern */
    bool adds;     /* ALiBi, a bias by position or relative terms: a term for every key */
    bool keeps;    /* keys before the window stay visible: the window then hides by terms */
    bool terms;    /* keys may have terms, -infinity where a mask hides one */
    bool moves;    /* queries of a sequence may have different intervals */
    bool alike;    /* all heads and queries of a sequence have the same terms */
    bool in_place; /* all terms are an additive mask of floats */
    bool hides;    /* keys may be hidden; -infinity in a table of biases is not considered */
} mha__visibility;

static inline mha__visibility mha__visibility_of(const mha_semantics *s, int64_t first_key)
{
    const mha_visible *given = &s->visible;
    const mha_pattern *p = &given->pattern;
    const mha_mask *mask = &given->mask;
    const bool padding = given->key_padding.kind != MHA_MASK_NONE;
    mha__visibility v = {.causal = given->causal, .prefix = given->prefix, .left = -1, .right = -1,
                         .chunk = given->chunk, .first_key = first_key,
                         .lengths = given->kv_lengths, .lengths_from = s->place.key_offset};
    if (given->has_window_left)
        v.left = given->window_left, v.keep = given->window_keep;
    if (given->has_window_right)
        v.right = given->window_right;
    v.pads = p->query_padding.kind != MHA_MASK_NONE;
    v.pattern = p->q_segments.data || p->key_lists.data || p->blocks.kind != MHA_MASK_NONE;
    v.masks = mask->kind != MHA_MASK_NONE || padding || v.pattern;
    v.adds = s->added.alibi_slopes || s->added.bias.rule != MHA_BIAS_RULE_NONE ||
             s->added.relative.rule != MHA_RELATIVE_NONE;
    v.keeps = v.keep > first_key;
    v.terms = v.masks || v.adds || v.keeps;
    v.moves = v.causal || v.left >= 0 || v.right >= 0 || v.chunk > 0 || v.pads;
    v.alike = !v.adds && !v.keeps && !v.pattern;
    v.in_place = v.alike && !padding && mask->kind == MHA_MASK_ADDITIVE && mask->values.dtype == MHA_F32;
    for (int k = 2; mask->kind != MHA_MASK_NONE && k <= 3 && k <= mask->values.rank; k++) /* queries, heads */
        v.alike &= mask->values.shape[mask->values.rank - k] == 1;
    v.hides = v.moves || v.lengths || mask->kind != MHA_MASK_NONE || v.pattern ||
              (padding && !given->has_padding_fill && given->padding_fill == 0);
    return v;
}

/* Keys [from, to) of a sequence; from = to = 0 when there is no key. */
typedef struct mha__interval {
    size_t from, to;
} mha__interval;

static inline int64_t mha__at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mha__at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The first position of the chunk of n positions that has x. */
static inline int64_t mha__chunk_begin(int64_t x, int64_t n)
{
    return (x / n - (x % n < 0)) * n;
}

/* The first key that the window leaves to a query at the position of key p. */
static inline int64_t mha__window_begin(const mha__visibility *v, int64_t p)
{
    return v->left >= 0 ? mha__at_least(p - v->left, 0) : 0;
}

/* So many of the S keys of sequence b are within its length. */
static inline size_t mha__visible_length(const mha__visibility *v, size_t b, size_t S)
{
    return v->lengths ? (size_t)mha__at_least(0, mha__at_most((int64_t)S, v->lengths[b] - v->lengths_from)) : S;
}

/* The keys among the first S that position leaves to a query. Both ends never decrease with the position, except for
 * empty intervals. */
static inline mha__interval mha__visible_keys(const mha__visibility *v, int64_t position, size_t S)
{
    const int64_t p = position - v->first_key; /* the index of the key at the query's position */
    int64_t from = v->keeps ? 0 : mha__window_begin(v, p), to = (int64_t)S;
    if (v->causal)
        to = mha__at_most(to, mha__at_least(p + 1, v->prefix - v->first_key));
    if (v->right >= 0)
        to = mha__at_most(to, p + v->right + 1);
    if (v->chunk > 0) {
        const int64_t begin = mha__chunk_begin(position, v->chunk) - v->first_key;
        from = mha__at_least(from, begin), to = mha__at_most(to, begin + v->chunk);
    }
    return from < to ? (mha__interval){(size_t)from, (size_t)to} : (mha__interval){0, 0};
}

/* One sequence: a batch row, or a range of packed rows in a ragged batch. */
typedef struct mha__sequence {
    size_t batch;       /* index along the batch extent of the inputs */
    size_t q_from, T_q; /* rows of the query */
    size_t k_from, T_k; /* rows of the new keys */
    size_t k_batch;     /* index along the batch extent of all keys */
    size_t S;           /* keys, cached ones included */
    int64_t offset;     /* position of query 0 */
} mha__sequence;

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

/* The pairs of a query and a key that positions leave to it, in one sequence: query i is at query + i, key j < S at
 * first_key + j. T_q * S must fit, and positions lie within 2^61. Lengths and masks are not considered. */
static inline uint64_t mha__visible_pairs(const mha__visibility *v, int64_t query, size_t T_q, size_t S)
{
    const int64_t end = v->first_key + (int64_t)S;
    uint64_t pairs = 0;
    for (int64_t from = v->first_key, to; from < end; from = to) {
        const int64_t prefix = from < v->prefix ? v->prefix : end, keep = from < v->keep ? v->keep : end;
        to = mha__at_most(mha__at_most(prefix, keep), end);
        pairs += mha__chunk_pairs(query, query + (int64_t)T_q, from, to, v->chunk, v->causal && from >= v->prefix,
                                  from >= v->keep ? v->left : -1, v->right);
    }
    return pairs;
}

#endif
