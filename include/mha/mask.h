/* Masks, and patterns that tell in fewer numbers than a mask has which keys a query sees. */
#ifndef MHA_MASK_H
#define MHA_MASK_H

#include "mha/status.h"
#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mha_mask_kind {
    MHA_MASK_NONE = 0, /* no mask: `values` has no data */
    MHA_MASK_KEEPS,    /* true: the key stays visible */
    MHA_MASK_HIDES,    /* true: the key is hidden */
    MHA_MASK_ADDITIVE  /* added to the score; -inf hides the key */
} mha_mask_kind;

/* A mask. Its last axis stands for the last of (B, h, T_q, S), and so on leftwards; an extent of 1 and a missing
 * leading axis are broadcast. A last extent between 2 and S-1 hides the keys beyond it. An additive mask is F32 or
 * F64, a boolean mask BOOL or U8. */
typedef struct mha_mask {
    mha_mask_kind kind;
    mha_view values;
} mha_mask;

/* The visible keys of a query, with all other rules of a call: key j is visible to query i of a head only if every part
 * that is given lets it be. Without data a part is not given. Extents of 1 and missing leading axes are broadcast, as
 * those of a mask; in a ragged batch B is the number of sequences, T_q and S the longest lengths. Keys are counted as
 * in a mask: j counts cached keys, too. Nothing of (T_q, S) is ever stored, and the fast path leaves out blocks of keys
 * that no query sees. Strides may be any; the numbers may change between forwards of a plan.
 *
 * Segments (documents packed into one row; `segment_ids` of JAX): a query sees the keys of its own number,
 *   q_segments[b, i] = k_segments[b, j].
 * Query padding: a query of padding sees nothing, neither a key nor an extra row nor a sink, and its row is that of
 * mha_empty_rows: weights and heads 0 (or NaN), lse -inf, and no value reaches it, also with MHA_HIDDEN_PROPAGATE.
 * Lists of keys (the top keys of an indexer; `gather_kv_indices` of FlashAttention, `indices` of FlashMLA): a query
 * sees the keys whose positions its list names (without a part and evicted rows, position j is key j),
 *   key_offset + first_key + j = key_lists[b, head, i, l] for an l.
 * The order does not matter, a key that is named twice counts once (as where a mask is made from the list; a kernel
 * that gathers rows, as FlashMLA's reference does, would count it twice), and numbers that name no key, as -1, fill.
 * Blocks (`BlockMask` of FlexAttention without a mask inside blocks): a mask with an element for each block of queries
 * and keys, counted from query 0 and key 0 of the call,
 *   blocks[b, head, i / block_queries, j / block_keys], rounded down. */
typedef struct mha_pattern {
    mha_view q_segments;    /* I64 (B, T_q) */
    mha_view k_segments;    /* I64 (B, S); no data: q_segments, where T_q = S and the keys are no part */
    mha_mask query_padding; /* (B, T_q), boolean */
    mha_view key_lists;     /* I64 (B, h, T_q, n) */
    mha_mask blocks;        /* (B, h, ceil(T_q / block_queries), ceil(S / block_keys)), boolean */
    size_t block_queries, block_keys; /* needed with `blocks`, and 0 without */
} mha_pattern;

#ifdef __cplusplus
}
#endif
#endif
