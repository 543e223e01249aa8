/* Which keys a query may see: an interval, and what masks add inside it. */
#ifndef MHA_ATTENTION_STEPS_MASK_H
#define MHA_ATTENTION_STEPS_MASK_H

#include "attention/resolved.h"

typedef struct mha__interval {
    size_t from, to; /* keys [from, to); from = to = 0 when there is none */
} mha__interval;

/* The keys that causal, window and lengths leave to query i of sequence s. Both ends never decrease with i
 * (but for empty intervals). */
mha__interval mha__visible_interval(const mha__resolved *r, const mha__sequence *s, size_t b, size_t i);

/* Whether that interval is not the same for all queries of a sequence. */
bool mha__visible_moves(const mha__resolved *r);

/* Whether masks, padding or ALiBi have anything to say inside the interval. */
bool mha__visible_has_terms(const mha__resolved *r);

/* The keys between those that padding hides at both ends; all of them where it hides none there. */
mha__interval mha__visible_unpadded(const mha__resolved *r, const mha__sequence *s, size_t b);

/* Whether all heads and queries of a sequence share their terms. */
bool mha__visible_terms_alike(const mha__resolved *r);

/* terms[j - from] for the keys of the interval: -inf where a mask hides the key, else the sum of what is
 * added to its score, kept finite. False when they are all 0. */
bool mha__visible_terms(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i,
                        mha__interval keys, float *terms);

/* The same terms where they lie, if an additive mask of floats is all there is; else NULL. */
const float *mha__visible_terms_in_place(const mha__resolved *r, size_t b, size_t head, size_t i, mha__interval keys);

/* The logit that joins the denominator of a head without a key: a finite double stays finite. -inf: none. */
float mha__sink(const mha__resolved *r, size_t head);

#endif
