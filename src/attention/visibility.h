/* Which keys a query may see: an interval, and what masks add inside it. */
#ifndef MHA_VISIBILITY_H
#define MHA_VISIBILITY_H

#include "attention/request.h"

typedef struct mha_interval {
    size_t from, to; /* keys [from, to); from = to = 0 when there is none */
} mha_interval;

/* The keys that causal, window and lengths leave to query i of sequence s. Both ends never decrease with i
 * (but for empty intervals). */
mha_interval mha_visible_interval(const mha_request *r, const mha_sequence *s, size_t b, size_t i);

/* Whether that interval is not the same for all queries of a sequence. */
bool mha_visible_moves(const mha_request *r);

/* Whether masks, padding or ALiBi have anything to say inside the interval. */
bool mha_visible_has_terms(const mha_request *r);

/* The keys between those that padding hides at both ends; all of them where it hides none there. */
mha_interval mha_visible_unpadded(const mha_request *r, const mha_sequence *s, size_t b);

/* Whether all heads and queries of a sequence share their terms. */
bool mha_visible_terms_alike(const mha_request *r);

/* terms[j - from] for the keys of the interval: -inf where a mask hides the key, else the sum of what is
 * added to its score, kept finite. False when they are all 0. */
bool mha_visible_terms(const mha_request *r, const mha_sequence *s, size_t b, size_t head, size_t i, mha_interval keys,
                         float *terms);

/* The same terms where they lie, if an additive mask of floats is all there is; else NULL. */
const float *mha_visible_terms_in_place(const mha_request *r, size_t b, size_t head, size_t i, mha_interval keys);

/* The logit that joins the denominator of a head without a key: a finite double stays finite. -inf: none. */
float mha_sink(const mha_request *r, size_t head);

#endif
