/* Pairs of known bugs, and of a known bug and a change without a name. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_PAIRS_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_PAIRS_H

#include "verify/diagnose/search/search.h"

/* Writes the program of a candidate of two changes; true if each changes the program of the other, and their order does
 * not matter. */
bool mha__search_are_two(const mha__search *s, size_t worker, const mha__candidate *x, mha__program *both);
/* Adds to the matches pairs that reproduce the tensor: of all bugs without numbers, bugs with a number of a list and
 * changes without a name. The search must have tried each of them singly, and checks all rows. The time limit is its
 * own: a multiple of the time so far. */
mha_status mha__search_pairs(mha__search *s, mha_diagnosis *d, mha_error *error);

#endif
