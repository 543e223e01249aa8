/* Bugs that are made in some places of a tensor alone. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_IN_PLACES_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_IN_PLACES_H

#include "verify/diagnose/search/search.h"

/* Adds to the matches the single bugs that, made in some batch rows, heads or query rows alone, reproduce the
 * tensor; the search must have tried all single bugs. */
mha_status mha__search_in_places(mha__search *s, mha_diagnosis *d, mha_error *error);

#endif
