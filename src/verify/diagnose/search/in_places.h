/* Bugs that are made in some places of a tensor alone. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_IN_PLACES_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_IN_PLACES_H

#include "verify/diagnose/search/search.h"

/* Tries to reproduce the tensor where the search looks, which are places p; how many matches it writes to `found`, at
 * most MHA_SEARCH_MATCHES. */
typedef size_t mha__search_there(mha__search *s, const struct mha__places *p, mha_bug_match *found);
/* Whether a candidate reproduces the tensor where the search looks. */
bool mha__search_fits_there(const mha__search *s, mha__candidate *x);
/* Says of the last bug of a match that it is made in places. */
void mha__search_say_places(const struct mha__places *p, mha_bug_match *match);
/* The same by single bugs, which the search must have tried. */
mha__search_there mha__search_singles;
/* Adds to the matches what, made in some batch rows, heads or query rows alone, reproduces the tensor. */
mha_status mha__search_in_places(mha__search *s, mha__search_there *try_there, mha_diagnosis *d, mha_error *error);
/* Adds n matches to none. */
mha_status mha__search_add(const mha__search *s, const mha_bug_match *found, size_t n, mha_diagnosis *d,
                           mha_error *error);

#endif
