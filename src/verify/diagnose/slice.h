/* A slice of a large case: one batch row and one key/value head, with the query heads that read it. */
#ifndef MHA_VERIFY_DIAGNOSE_SLICE_H
#define MHA_VERIFY_DIAGNOSE_SLICE_H

#include "verify/case/record.h"

/* Into how many slices a case falls that do not depend on each other, and of which each has its part of a recorded
 * tensor; 1: it does not. */
size_t mha__slice_count(const mha_case *c, int slot);
/* The case of slice n, with that tensor alone. It borrows settings and weights of `c`; mha_case_close releases it. */
mha_status mha__slice_of(const mha_case *c, int wide, int slot, size_t n, mha_case **slice, mha_error *error);

#endif
