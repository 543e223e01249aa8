/* The search for the bugs that turn the inputs of a case into its recorded tensor. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_CASE_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_CASE_H

#include "verify/diagnose/search/search.h"

/* mha_case_diagnose (case.h). A case is searched slice by slice when a forward takes more multiply-adds than `many`. */
mha_status mha__case_diagnose(const mha_case *c, const mha__search_wish *wish, double many, mha_diagnosis *diagnosis,
                              mha_error *error);

/* The same of the case as it is, or of a part of what that would try. */
mha_status mha__search_case(const mha_case *c, const mha__search_wish *wish, mha_diagnosis *diagnosis,
                            mha_error *error);

/* Number of slices of a case that do not depend on each other and have their own part of a recorded tensor; 1: it has
 * no slices. */
size_t mha__slice_count(const mha_case *c, int slot);
/* The case of slice n, with only that tensor. It borrows settings and weights of `c`; mha_case_close releases it. */
mha_status mha__slice_of(const mha_case *c, int wide, int slot, size_t n, mha_case **slice, mha_error *error);

#endif
