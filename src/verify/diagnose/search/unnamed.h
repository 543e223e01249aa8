/* Changes without a name. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_UNNAMED_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_UNNAMED_H

#include "verify/diagnose/search/search.h"

/* Adds to the matches the changes without a name that reproduce the tensor, everywhere or in some batch rows, heads or
 * query rows alone; the search must have tried all bugs. */
mha_status mha__search_unnamed(mha__search *s, mha_diagnosis *d, mha_error *error);

#endif
