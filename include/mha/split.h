/* Laboratory. Splitting a layer over several processes: which heads and rows each rank has, and how much it sends.
 * Only arithmetic; libmha_mpi (mha/mpi.h) does the work. */
#ifndef MHA_SPLIT_H
#define MHA_SPLIT_H

#include "mha/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How P ranks share one call. What is not shared, every rank has whole. */
typedef enum mha_split_scheme {
    MHA_SPLIT_TENSOR = 0, /* heads: columns of W_Q, W_K, W_V, W_KVB, W_G, rows of W_O; the outputs are added */
    MHA_SPLIT_ULYSSES,    /* rows of inputs and output, but heads while attending: two exchanges of all with all */
    MHA_SPLIT_RING,       /* rows of inputs and output; keys and values go round from rank to rank */
    MHA_SPLIT_ZIGZAG,     /* the same with 2P chunks of rows: rank r has chunks r and 2P-1-r, an even share if causal */
    MHA_SPLIT_CACHE,      /* rows of the cache: each rank attends to its keys, the parts are merged (flash-decoding) */
    MHA_SPLIT_COUNT
} mha_split_scheme;

MHA_API const char *mha_split_scheme_name(mha_split_scheme scheme);             /* "ring"; "?" outside the list */
MHA_API bool mha_split_scheme_find(const char *name, mha_split_scheme *scheme); /* false: no scheme of that name */

/* Consecutive heads or rows. */
typedef struct mha_range {
    size_t from, count;
} mha_range;

/* Part `index` of n things in `parts` parts as even as they can be: the first n % parts have one more. */
MHA_API mha_range mha_range_of(size_t n, size_t parts, size_t index);

/* One call of a layer, to be shared by `ranks` processes. */
typedef struct mha_split {
    mha_split_scheme scheme;
    size_t ranks;      /* P */
    mha_config config; /* of the whole layer, resolved */
    size_t B, T_q, T_k; /* of the whole call: batch rows, queries, new keys */
    mha_dtype dtype;    /* of the numbers that are sent: F32, or F64 on the exact path */
    /* MHA_SPLIT_CACHE: rows that each rank's cache has room for, and rows cached before the call on all ranks. The
     * caches fill up rank after rank: rank r keeps rows [r * capacity, (r + 1) * capacity) of the sequence. 0: T_k rows
     * in even parts. */
    size_t capacity, cached;
    bool absorbed; /* mha_call.absorbed: rows of latents are cached. MHA_SPLIT_TENSOR and CACHE take it */
} mha_split;

/* The share of one rank. */
typedef struct mha_share {
    mha_config config;            /* of the weights that the rank stores, resolved; b_O is only on rank 0 */
    mha_range heads, kv_heads;    /* that it attends with */
    size_t chunks;                /* of rows: 2 in MHA_SPLIT_ZIGZAG, else 1 */
    mha_range queries[2], keys[2]; /* rows of the query and of the new keys, chunk by chunk in the order of positions */
    uint64_t bytes_sent, bytes_received; /* in one forward, between different ranks; agreement on errors is extra */
    /* Products of one query with one key that it computes in one forward, over its heads and batch rows: of all pairs,
     * and of those that a causal mask over T_q = T_k keys leaves. */
    uint64_t pairs, causal_pairs;
    size_t cache_elements; /* of the keys and values, or latents, of cached and new rows that the rank keeps */
} mha_share;

/* Checks that a layer can be shared like this and that all numbers of mha_share fit; T_q and T_k smaller than `ranks`
 * leave ranks without rows. `config` may have defaults and is resolved in place. Errors: MHA_INVALID (0 ranks, or more
 * than 2^20; heads that do not divide: the message lists the numbers of ranks that do; caches without room; sizes
 * that do not fit), MHA_UNSUPPORTED (MHA_SPLIT_TENSOR of a norm over the row of all heads; `absorbed` with
 * MHA_SPLIT_ULYSSES, RING and ZIGZAG, which send keys and values as they are made of latents). */
MHA_API mha_status mha_split_check(mha_split *split, mha_error *error);

/* The share of one rank of a checked split. */
MHA_API mha_share mha_split_share(const mha_split *split, size_t rank);

/* On how many ranks the same elements of a weight are stored, those of the first rank that has any. 1: nowhere twice.
 * The stored weights of all ranks, each divided by this number, are the layer on one machine. */
MHA_API size_t mha_split_copies(const mha_split *split, mha_weight weight);

/* Elements [from, from + count) of an axis of a weight, which is W_Q (d_q, h*d_k) and so on. */
typedef struct mha_weight_part {
    int axis;
    size_t from, count; /* count 0: nothing of it */
} mha_weight_part;

/* The part of a weight that a rank of a checked split stores: all of the last axis where the weight is not shared. */
MHA_API mha_weight_part mha_split_part(const mha_split *split, size_t rank, mha_weight weight);

/* The part of a whole weight that a rank of a checked split stores. No data where it stores none of it, or where
 * `whole` is not of the weight's shape. */
MHA_API mha_view mha_split_slice(const mha_split *split, size_t rank, mha_weight weight, const mha_view *whole);

#ifdef __cplusplus
}
#endif
#endif
