/* Which query rows are checked and compared, and what rounding may explain there. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_PART_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_PART_H

#include "verify/diagnose/search/search.h"

/* Chooses the rows to be checked (all rows of a small case), derives what rounding may explain, and computes the stage
 * of the unmodified case. `rows_checked` and `distance` must be zero before. */
mha_status mha__search_prepare(mha__search *s, mha_error *error);
/* Computes the stage of the case as a fused kernel of a lower precision gives it: all rows of it, or of a slice those
 * that are checked. */
mha_status mha__search_model(mha__search *s, mha_dtype type, double *values, mha_error *error);
/* Chooses the regions of the three passes. */
void mha__search_choose_regions(mha__search *s);
/* Marks query rows of one batch row: `spread` of them at equal distances, and the `far` farthest of the others. Only
 * rows marked in `among` are considered. */
void mha__search_mark(const mha__search *s, size_t b, size_t far, size_t spread, const unsigned char *among,
                      unsigned char *marks);

#endif
