/* The names of the kinds of scaling of a rotation. */
#ifndef MHA_LAB_ROPE_SCALING_H
#define MHA_LAB_ROPE_SCALING_H

#include "mha/rope.h"

const char *mha__rope_scaling_name(mha_rope_scaling_kind kind); /* "none", "linear", ...; "?" outside the list */
bool mha__rope_scaling_find(const char *name, mha_rope_scaling_kind *kind); /* false: no kind of that name */

#endif
