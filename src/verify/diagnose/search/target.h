/* The recorded tensor that is to be explained. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_TARGET_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_TARGET_H

#include "verify/diagnose/search/search.h"

/* Finds a recorded tensor by its name ("expected.output", or the stage alone); NULL: the output, or else the last stage
 * that is recorded. False: there is none. */
bool mha__target_find(const mha_case *c, const char *name, int *wide, int *slot);
/* A recorded tensor in the order and shape in which bugs compute it, batch row by batch row. */
mha_view mha__target_view(const mha_case *c, const case_expected *e, mha_stage stage);
/* Reads the tensor into s->target, and takes the memory whose size follows from it. MHA_NOT_FOUND, MHA_UNSUPPORTED (a
 * stage of the absorbed form, a tensor without elements), MHA_NO_MEMORY. */
mha_status mha__target_load(mha__search *s, const char *name, mha_diagnosis *d, mha_error *error);

#endif
