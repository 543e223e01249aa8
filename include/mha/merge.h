/* Merging: attention over a sequence of keys from the results of its parts (flash-decoding, ring and cascade). */
#ifndef MHA_MERGE_H
#define MHA_MERGE_H

#include "mha/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The result of some queries over some of their keys: the stages `heads`, as (B, T_q, h*d_v) or (B, T_q, h, d_v), and
 * `lse`, (B, h, T_q). Any floating types and strides: a part with only head sinks has heads of stride 0. */
typedef struct mha_part {
    mha_view heads, lse;
} mha_part;

/* Attention over the keys of all parts together, row by row:
 *
 *   lse = log sum_i exp(lse_i),   heads = sum_i exp(lse_i - lse) heads_i
 *
 * The parts are calls with the same queries and disjoint keys, in any order, on any path or by anybody's kernel; a key
 * that two parts hold counts twice. Each part has the semantics of the whole, with key_offset where its keys begin and
 * with its own columns of mask and key padding (mha_view_slice). What stands in the denominator without being a key of
 * the sequence (sinks, softmax_plus_one, the bias_k/bias_v row, the zero row) must count once: all parts but one set
 * keys_only. An output projection follows the merging; in a ragged batch each sequence is merged by itself.
 *
 * A row whose lse is -inf in a part saw nothing there: that part adds nothing to it, whatever its heads hold. A row
 * that saw nothing in any part (or with `count` 0) follows `empty_rows`, as a forward does; the parts themselves are
 * computed with MHA_EMPTY_ZERO, because an lse of NaN, like one of +inf, makes the row NaN. Two things an lse cannot
 * tell: a part whose visible scores are all -inf is NaN, and so is the merged row, even where another part holds finite
 * scores; and MHA_HIDDEN_PROPAGATE reaches only rows that see something in the part.
 *
 * Computed in float64 in the order of the parts, rounded once to the types of `result` (F32, F64, F16 or BF16): exactly
 * commutative for two parts, and with one part that saw something a copy of it. The bits of one call over all keys
 * cannot come out of this, as heads and lse are rounded; mha_call.partial, which keeps maximum, sum and weighted values
 * apart, gives them on the exact path.
 *
 * result->lse may have no data. The result's heads may be those of a part, and its lse that of a part, the same or
 * another one, element for element; otherwise they share no memory with parts. Allocates nothing. MHA_INVALID: shapes
 * or types that do not fit, shared memory, strides that give several elements of the result one place; nothing is
 * then written. */
MHA_API mha_status mha_merge(const mha_part *parts, size_t count, mha_empty_rows empty_rows, const mha_part *result,
                             mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
