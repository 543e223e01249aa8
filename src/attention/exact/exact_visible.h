/* The exact path: which keys a query sees. */
#ifndef MHA_ATTENTION_EXACT_EXACT_VISIBLE_H
#define MHA_ATTENTION_EXACT_EXACT_VISIBLE_H

#include "attention/resolved.h"

/* Whether query i of sequence b is padding, which sees nothing at all. */
bool mha__exact_pads(const mha__resolved *r, size_t b, size_t i);
/* Whether query i of sequence b sees key j, and what is added to that score. */
bool mha__exact_visible(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i, size_t j,
                        double *added);

#endif
