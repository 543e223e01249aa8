/* Which keys a query sees: an interval, and a term for each key inside it. */
#ifndef MHA_ATTENTION_CORE_TERMS_MASK_H
#define MHA_ATTENTION_CORE_TERMS_MASK_H

#include "attention/call/resolved.h"

/* The keys that causal, window, lengths and query padding leave to query i of sequence s. Both ends never decrease with
 * i, except for empty intervals. */
mha__interval mha__visible_interval(const mha__resolved *r, const mha__sequence *s, size_t b, size_t i);

/* Mask, padding and pattern of a call, to find what they hide at either end of the keys of a query. */
typedef struct mha__trimmer {
    struct {
        enum { MHA_TRIMS_REACH, MHA_TRIMS_FLAGS, MHA_TRIMS_TERMS } by;
        bool hides;                    /* what a flag means */
        const char *values;            /* of batch row 0, head 0 and query 0 */
        ptrdiff_t batch, head, query;  /* strides, in bytes */
        size_t reach, element;         /* keys behind `reach` are hidden; bytes of one */
    } mask[2];
    size_t n;
    bool adds;  /* something is added to scores */
    bool alike; /* all rows of a sequence have the same masks */
    const mha_pattern *pattern; /* NULL: it hides no keys */
    int64_t first_key; /* the position of key 0 */
    bool in_order; /* mha__pattern_in_order */
    const mha__kernels *kernels;
} mha__trimmer;

mha__trimmer mha__visible_trimmer(const mha__resolved *r);
/* Takes keys that a mask hides off both ends of *keys, as far as that is quickly told. False when nothing is added to
 * the scores of those that are left. */
bool mha__visible_trim(const mha__trimmer *t, size_t b, size_t head, size_t query, mha__interval *keys);

/* What tables add to a row: what mha__bias_prepare made, and the relative terms of the keys of the interval. */
typedef struct mha__added {
    const float *bias_rows, *relative;
} mha__added;

/* terms[j - from] for the keys of the interval: -inf where a mask hides the key, else the sum of what is
 * added to its score, kept finite. False when they are all 0. */
bool mha__visible_terms(const mha__resolved *r, const mha__added *added, const mha__sequence *s, size_t b, size_t head,
                        size_t i, mha__interval keys, float *terms);

/* The same terms where they lie, if an additive mask of floats is all there is; else NULL. */
const float *mha__visible_terms_in_place(const mha__resolved *r, size_t b, size_t head, size_t i, mha__interval keys);

/* The sink of a head as a float, in which a finite double stays finite; -inf: none. */
float mha__sink(const mha__resolved *r, size_t head);

#endif
