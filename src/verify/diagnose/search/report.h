/* Which candidates explain the tensor, and what is said about them. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_REPORT_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_REPORT_H

#include "verify/diagnose/search/search.h"

/* Whether a candidate reproduces the tensor to float32 or float64 accuracy; `best`: the least excess of all. */
bool mha__search_is_exact(const mha__search *s, const mha__candidate *x, int wide, double best);
/* Whether a candidate does not reproduce the tensor, checking by a region on which it was fitted, and is of no account
 * for what does. */
bool mha__search_is_refuted(const mha__search *s, const mha__candidate *x);
/* Whether a candidate of which so much is left may be among the closest. */
bool mha__search_is_close(const mha__search *s, double relative);
/* The least number of bugs in an exact candidate with at most `most`; 3 when no candidate is exact. */
size_t mha__search_least_order(const mha__search *s, int wide, size_t most);
mha_bug_match mha__search_explain(const mha__search *s, const mha__candidate *x, bool exact, int wide);
/* Reports all candidates of `order` that reproduce the tensor; `which`: memory for an index of each. */
mha_status mha__report_exact(mha__search *s, size_t order, int wide, size_t *which, mha_diagnosis *d, mha_error *error);
/* Reports another number of heads when it reproduces the tensor and no single bug does. */
mha_status mha__report_other_heads(mha__search *s, mha_diagnosis *d, mha_error *error);
/* Reports what a kernel of low precision may have rounded to the tensor: the case, or it with one bug. `which`:
 * memory for an index of each candidate. */
mha_status mha__report_low_precision(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);
/* Whether a candidate changes nothing but the precision of some numbers. */
bool mha__search_only_rounds(const mha__search *s, const mha__candidate *x);
/* Reports one rounding that explains most of what differs, more than chance does, of which `which` is memory: as what
 * is closest to a match with the case in a lower precision, or as what comes near where there is no match. */
mha_status mha__report_rounding(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);
/* Reports, when nothing is exact, the near candidates and the three closest ones that differ from each other. */
mha_status mha__report_closest(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);

#endif
