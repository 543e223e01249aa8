/* The exact path: which keys a query sees. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_VISIBLE_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_VISIBLE_H

#include "attention/call/resolved.h"

/* The element of a mask, of a pattern or of a dropout at the last of these indices, broadcast. */
double mha__exact_element(const mha_view *v, const size_t index[4]);
/* Whether query i of sequence b is padding, which sees nothing at all. */
bool mha__exact_pads(const mha__resolved *r, size_t b, size_t i);
/* Which keys query i of sequence b sees, and what is added to their scores. */
void mha__exact_see(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i,
                    unsigned char *seen, double *added);
/* The factor of the weight of query i and key j, extra rows included, where it meets the value: 0 or 1 / (1 - p). */
double mha__exact_dropout(const mha__resolved *r, size_t b, size_t head, size_t i, size_t j);

/* Patterns hide keys in addition to the rules of positions and lengths. */
typedef enum mha__hider {
    MHA__HIDER_MASK,
    MHA__HIDER_PADDING,
    MHA__HIDER_BIAS,
    MHA__HIDER_SEGMENTS,
    MHA__HIDER_QUERY_PADDING,
    MHA__HIDER_LISTS,
    MHA__HIDER_BLOCKS,
    MHA__HIDER_COUNT
} mha__hider;

/* All that hides key j from query i, each for itself, and what the masks add; keys from S on are extra rows. */
typedef struct mha__exact_parts {
    bool hides[MHA__HIDER_COUNT];
    double bias, mask, padding; /* -infinity where they hide the key */
} mha__exact_parts;
mha__exact_parts mha__exact_parts_of(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i,
                                     size_t j);

#endif
