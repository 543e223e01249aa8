/* Which keys a query sees: an interval, and a term for each key inside it. */
#ifndef MHA_ATTENTION_STEPS_MASK_H
#define MHA_ATTENTION_STEPS_MASK_H

#include "attention/resolved.h"

typedef struct mha__interval {
    size_t from, to; /* keys [from, to); from = to = 0 when there is no key */
} mha__interval;

/* The keys that causal, window and lengths leave to query i of sequence s. Both ends never decrease with i, except for
 * empty intervals. */
mha__interval mha__visible_interval(const mha__resolved *r, const mha__sequence *s, size_t b, size_t i);

/* Whether queries of a sequence may have different intervals. */
bool mha__visible_moves(const mha__resolved *r);

/* Whether the call has a mask, padding or ALiBi. */
bool mha__visible_has_terms(const mha__resolved *r);

/* The keys without those that padding hides at either end. */
mha__interval mha__visible_unpadded(const mha__resolved *r, const mha__sequence *s, size_t b);

/* Whether all heads and queries of a sequence have the same terms. */
bool mha__visible_terms_alike(const mha__resolved *r);

/* terms[j - from] for the keys of the interval: -inf where a mask hides the key, else the sum of what is
 * added to its score, kept finite. False when they are all 0. */
bool mha__visible_terms(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i,
                        mha__interval keys, float *terms);

/* The same terms where they lie, if an additive mask of floats is all there is; else NULL. */
const float *mha__visible_terms_in_place(const mha__resolved *r, size_t b, size_t head, size_t i, mha__interval keys);

/* The sink of a head as a float, in which a finite double stays finite; -inf: none. */
float mha__sink(const mha__resolved *r, size_t head);

#endif
