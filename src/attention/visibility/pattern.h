/* The pattern of a call: which keys a query sees by segments, query padding, lists of keys and blocks. */
#ifndef MHA_ATTENTION_VISIBILITY_PATTERN_H
#define MHA_ATTENTION_VISIBILITY_PATTERN_H

#include "attention/visibility/visibility.h"

/* A row along the last axis of a mask or of what a pattern says, broadcast. */
typedef struct mha__mask_row {
    const char *values;
    mha_dtype dtype;
    ptrdiff_t step; /* in elements */
    size_t n;
} mha__mask_row;

/* The row at the first of `rank` indices. */
mha__mask_row mha__mask_row_at(const mha_view *v, const size_t *index, int rank);

/* Whether anything in a call may hide keys from queries: also a mask that is added, and a -infinity in its table of
 * biases (no data: there is none). */
bool mha__hides_keys(const mha__visibility *v, const mha_view *bias_table);
/* Whether query i of sequence b is padding, and so sees nothing at all. */
bool mha__pattern_pads(const mha_pattern *p, size_t b, size_t i);
/* Whether the segments of the S keys of a sequence never decrease: those that a query attends to are then
 * neighbours. */
bool mha__pattern_in_order(const mha_pattern *p, size_t b, size_t S);

/* Takes keys that the pattern hides off both ends of [*from, *to). True when some of those that are left may be hidden.
 * `in_order`: see above. `first_key`: the position of key 0. */
bool mha__pattern_trim(const mha_pattern *p, int64_t first_key, bool in_order, size_t b, size_t head, size_t i,
                       size_t *from, size_t *to);
/* Sets the terms of keys [from, to) that are hidden to -inf. True when there are any. */
bool mha__pattern_hide(const mha_pattern *p, int64_t first_key, size_t b, size_t head, size_t i, size_t from, size_t to,
                       float *terms);

#endif
