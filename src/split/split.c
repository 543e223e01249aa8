/* The arithmetic of splitting a layer: heads and rows of every rank, bytes between them, and what cannot be split. */
#include <stdio.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "mha/split.h"

static const char *const names[] = {"tensor", "ulysses", "ring", "zigzag", "cache"};
_Static_assert(sizeof names / sizeof *names == MHA_SPLIT_COUNT, "a name for every scheme");

const char *mha_split_scheme_name(mha_split_scheme scheme)
{
    return mha__name_at(names, MHA_SPLIT_COUNT, scheme);
}

bool mha_split_scheme_find(const char *name, mha_split_scheme *scheme)
{
    const int found = mha__name_find(names, MHA_SPLIT_COUNT, name);
    if (found >= 0)
        *scheme = (mha_split_scheme)found;
    return found >= 0;
}

mha_range mha_range_of(size_t n, size_t parts, size_t index)
{
    const size_t least = n / parts, more = n % parts;
    return (mha_range){index * least + (index < more ? index : more), least + (index < more)};
}

/* ---------------------------------------------------------------- what is refused */

/* Heads can be shared when every rank has as many query heads as the others, and the key/value heads that these read:
 * some of its own, or one that it shares with other ranks. */
static bool heads_divide(const mha_config *c, size_t ranks)
{
    return c->n_heads % ranks == 0 && (c->kv_heads % ranks == 0 || ranks % c->kv_heads == 0);
}

static mha_status check_heads(const mha_split *split, mha_error *error)
{
    enum { MOST = 4096 };
    const mha_config *c = &split->config;
    if (heads_divide(c, split->ranks))
        return MHA_OK;
    char fits[160];
    size_t used = 0;
    for (size_t ranks = 1; ranks <= c->n_heads && ranks <= MOST && used < sizeof fits - 8; ranks++)
        if (heads_divide(c, ranks))
            used += (size_t)snprintf(fits + used, sizeof fits - used, "%s%zu", used ? ", " : "", ranks);
    return mha__fail(error, MHA_INVALID, "ranks",
                     "expected a number that divides %zu query heads and %zu key/value heads (%s), found %zu; "
                     "ring and zigzag take any",
                     c->n_heads, c->kv_heads, fits, split->ranks);
}

/* All sums of mha_share are at most this product. */
static bool sizes_fit(const mha_split *s)
{
    const mha_config *c = &s->config;
    size_t rows, pairs, width, keys;
    return mha__add(s->T_k, s->cached, &keys) && mha__add(s->T_q, s->T_k, &rows) && mha__mul(rows, s->B, &rows) &&
           mha__mul(c->n_heads, 8 * (c->d_k + c->d_v + 1), &width) &&
           mha__add(width, c->d_out + c->kv_rank + c->d_rope, &width) &&
           mha__mul(rows, width, &width) && mha__mul(width, 2 * sizeof(double), &width) &&
           mha__mul(s->T_q, keys, &pairs) && mha__mul(pairs, s->B, &pairs) && mha__mul(pairs, c->n_heads, &pairs);
}

mha_status mha_split_check(mha_split *split, mha_error *error)
{
    enum { MOST_RANKS = 1 << 20 };
    const bool by_heads = split->scheme == MHA_SPLIT_TENSOR || split->scheme == MHA_SPLIT_ULYSSES;
    if ((unsigned)split->scheme >= MHA_SPLIT_COUNT)
        return mha__fail(error, MHA_INVALID, "scheme", "expected one of the schemes of mha/split.h, found number %d",
                         (int)split->scheme);
    if (split->ranks == 0 || split->ranks > MOST_RANKS)
        return mha__fail(error, MHA_INVALID, "ranks", "expected 1 to %d ranks, found %zu", MOST_RANKS, split->ranks);
    if (split->dtype != MHA_F32 && split->dtype != MHA_F64)
        return mha__fail(error, MHA_INVALID, "dtype", "expected F32 or F64 for what is sent, found %s",
                         mha_dtype_name(split->dtype));
    TRY(mha_config_resolve(&split->config, error));
    if (split->absorbed && !split->config.kv_rank)
        return mha__fail(error, MHA_UNSUPPORTED, "absorbed", "expected a layer with kv_rank, found none");
    if (split->absorbed && split->scheme != MHA_SPLIT_TENSOR && split->scheme != MHA_SPLIT_CACHE)
        return mha__fail(error, MHA_UNSUPPORTED, "absorbed",
                         "expected a scheme that keeps latents (tensor and cache), found %s; or leave `absorbed` out",
                         names[split->scheme]);
    if (by_heads)
        TRY(check_heads(split, error));
    if (split->scheme == MHA_SPLIT_TENSOR && split->ranks > 1 &&
        (split->config.q_norm == MHA_NORM_ROW || split->config.k_norm == MHA_NORM_ROW))
        return mha__fail(error, MHA_UNSUPPORTED, "norm",
                         "expected all heads on one rank for a norm over their row, found scheme tensor; use "
                         "ulysses, ring or zigzag");
    size_t room, rows;
    if (split->capacity > 0 && (!mha__mul(split->capacity, split->ranks, &room) ||
                                !mha__add(split->cached, split->T_k, &rows) || rows > room))
        return mha__fail(error, MHA_INVALID, "cache",
                         "expected room for %zu new rows after %zu, found %zu caches of %zu rows",
                         split->T_k, split->cached, split->ranks, split->capacity);
    if (!sizes_fit(split))
        return mha__fail(error, MHA_INVALID, "ranks", "expected a call whose bytes fit a size_t, found a larger one");
    return MHA_OK;
}

/* ---------------------------------------------------------------- shares */

static size_t rows_in(const mha_range *chunks, size_t count)
{
    return chunks[0].count + (count > 1 ? chunks[1].count : 0);
}

static void cut_rows(const mha_split *s, size_t rank, size_t T, mha_range chunks[2])
{
    const size_t P = s->ranks;
    if (s->scheme == MHA_SPLIT_ZIGZAG) {
        chunks[0] = mha_range_of(T, 2 * P, rank);
        chunks[1] = mha_range_of(T, 2 * P, 2 * P - 1 - rank);
    } else {
        chunks[0] = s->scheme == MHA_SPLIT_TENSOR ? (mha_range){0, T} : mha_range_of(T, P, rank);
        chunks[1] = (mha_range){T, 0};
    }
}

/* The rows of [from, to) of the sequence that a rank's cache keeps. */
static mha_range kept(const mha_split *s, size_t rank, size_t from, size_t to)
{
    const size_t first = rank * s->capacity, last = first + s->capacity;
    from = from > first ? from : first;
    to = to < last ? to : last;
    return (mha_range){from, from < to ? to - from : 0};
}

static size_t rows_of(const mha_split *s, size_t rank, size_t T)
{
    mha_range chunks[2];
    cut_rows(s, rank, T, chunks);
    return rows_in(chunks, 2);
}

/* Bytes of an all-reduce of n elements. Reduce-scatter: every rank adds up its part, `in` bytes an element, from all
 * others. All-gather: it sends the sum, `out` bytes an element, to all of them. */
static void count_sum(mha_share *share, size_t ranks, size_t rank, size_t n, size_t in, size_t out)
{
    const size_t own = mha_range_of(n, ranks, rank).count;
    share->bytes_sent = (n - own) * in + (ranks - 1) * own * out;
    share->bytes_received = (ranks - 1) * own * in + (n - own) * out;
}

/* Elements; the caller makes bytes of them. */
static void count_sent(const mha_split *s, size_t rank, mha_share *share)
{
    const mha_config *c = &s->config;
    const size_t others = s->ranks - 1, q = rows_of(s, rank, s->T_q), k = rows_of(s, rank, s->T_k);
    const size_t to_heads = share->heads.count * c->d_k, to_kv = share->kv_heads.count * (c->d_k + c->d_v),
                 back = share->heads.count * c->d_v;
    switch (s->scheme) {
    case MHA_SPLIT_TENSOR: count_sum(share, s->ranks, rank, s->B * s->T_q * c->d_out, 1, 1); break;
    case MHA_SPLIT_CACHE: count_sum(share, s->ranks, rank, s->B * s->T_q * c->n_heads, c->d_v + 1, c->d_v); break;
    case MHA_SPLIT_ULYSSES:
        share->bytes_sent = s->B * (others * (q * to_heads + k * to_kv) + (s->T_q - q) * back);
        share->bytes_received = s->B * ((s->T_q - q) * to_heads + (s->T_k - k) * to_kv + others * q * back);
        break;
    default: /* all keys but those that the next rank had at the beginning go on to it */
        share->bytes_sent = s->B * (s->T_k - rows_of(s, (rank + 1) % s->ranks, s->T_k)) * to_kv;
        share->bytes_received = s->B * (s->T_k - k) * to_kv;
        break;
    }
}

static uint64_t sum_to(uint64_t n)
{
    return n % 2 ? (n + 1) / 2 * n : n / 2 * (n + 1);
}

/* Pairs of the queries after all cached rows with some keys of the sequence. */
static uint64_t causal_pairs(const mha_split *s, mha_range keys)
{
    const size_t last = s->cached + s->T_k, end = keys.from + keys.count;
    const size_t old = keys.from < s->cached ? (end < s->cached ? end : s->cached) - keys.from : 0;
    const size_t new = keys.count - old;
    return (uint64_t)old * s->T_q + sum_to(new) + (uint64_t)(last - end) * new;
}

mha_share mha_split_share(const mha_split *s, size_t rank)
{
    const mha_config *c = &s->config;
    const bool by_heads = s->scheme == MHA_SPLIT_TENSOR || s->scheme == MHA_SPLIT_ULYSSES;
    mha_share share = {.config = *c, .heads = {0, c->n_heads}, .kv_heads = {0, c->kv_heads},
                       .chunks = s->scheme == MHA_SPLIT_ZIGZAG ? 2 : 1};
    if (by_heads) {
        share.heads = mha_range_of(c->n_heads, s->ranks, rank);
        share.kv_heads.from = share.heads.from / (c->n_heads / c->kv_heads);
        share.kv_heads.count = c->kv_heads > s->ranks ? c->kv_heads / s->ranks : 1;
    }
    if (s->scheme == MHA_SPLIT_TENSOR) {
        share.config.n_heads = share.heads.count;
        share.config.kv_heads = share.kv_heads.count;
        share.config.bias_o &= rank == 0;
    }
    cut_rows(s, rank, s->T_q, share.queries);
    cut_rows(s, rank, s->T_k, share.keys);
    if (s->scheme == MHA_SPLIT_CACHE)
        share.queries[0] = (mha_range){0, s->T_q};
    mha_range held = share.keys[0]; /* MHA_SPLIT_CACHE: all keys that the rank has */
    if (s->scheme == MHA_SPLIT_CACHE && s->capacity > 0) {
        held = kept(s, rank, 0, s->cached + s->T_k);
        share.keys[0] = kept(s, rank, s->cached, s->cached + s->T_k);
        share.keys[0].from = share.keys[0].count > 0 ? share.keys[0].from - s->cached : 0;
    }
    const size_t bytes = s->dtype == MHA_F64 ? 8 : 4;
    count_sent(s, rank, &share);
    share.bytes_sent *= bytes;
    share.bytes_received *= bytes;

    const size_t k_rows = by_heads                          ? s->T_k
                          : s->scheme == MHA_SPLIT_CACHE ? held.count
                                                         : rows_in(share.keys, share.chunks);
    for (size_t i = 0; i < share.chunks; i++) {
        const mha_range q = by_heads ? (mha_range){0, s->T_q} : share.queries[i];
        const size_t each = s->B * share.heads.count;
        if (s->scheme == MHA_SPLIT_CACHE) { /* all queries meet the rank's own keys */
            share.pairs += each * s->T_q * held.count;
            share.causal_pairs += each * causal_pairs(s, held);
        } else {
            share.pairs += each * q.count * s->T_k;
            share.causal_pairs += each * (sum_to(q.from + q.count) - sum_to(q.from));
        }
    }
    share.cache_elements =
        s->B * k_rows * (s->absorbed ? c->kv_rank + c->d_rope : share.kv_heads.count * (c->d_k + c->d_v));
    return share;
}

size_t mha_split_copies(const mha_split *s, mha_weight weight)
{
    const mha__weight_heads by = mha__config_weight_heads(&s->config, weight);
    if (s->scheme != MHA_SPLIT_TENSOR)
        return s->ranks;
    if (by.heads == 0) /* b_O is added by one rank */
        return weight == MHA_B_O ? 1 : s->ranks;
    return s->ranks > by.heads ? s->ranks / by.heads : 1;
}

/* ---------------------------------------------------------------- slices of weights */

mha_weight_part mha_split_part(const mha_split *split, size_t rank, mha_weight weight)
{
    const mha_share share = mha_split_share(split, rank);
    size_t shape[2] = {0, 0};
    const int axes = mha_config_weight_shape(&split->config, weight, shape, NULL), last = axes > 0 ? axes - 1 : 0;
    const mha__weight_heads by = mha__config_weight_heads(&split->config, weight);
    const bool by_heads = split->scheme == MHA_SPLIT_TENSOR && by.heads > 0;
    const mha_range part = by.of_keys ? share.kv_heads : share.heads;
    if (axes == 0 || (split->scheme == MHA_SPLIT_TENSOR && weight == MHA_B_O && !share.config.bias_o))
        return (mha_weight_part){0, 0, 0};
    return by_heads ? (mha_weight_part){by.axis, part.from * by.width, part.count * by.width}
                    : (mha_weight_part){last, 0, shape[last]};
}

mha_view mha_split_slice(const mha_split *split, size_t rank, mha_weight weight, const mha_view *whole)
{
    size_t shape[2];
    const int axes = mha_config_weight_shape(&split->config, weight, shape, NULL);
    const mha_weight_part part = mha_split_part(split, rank, weight);
    bool fits = axes == whole->rank && part.count > 0;
    for (int k = 0; fits && k < axes; k++)
        fits = whole->shape[k] == shape[k];
    return fits ? mha_view_slice(whole, part.axis, part.from, part.count) : (mha_view){0};
}
