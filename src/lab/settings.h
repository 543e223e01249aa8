/* Functions of libmha-lab on the table of settings: compare semantics, find a name that is nearly right, put an array.
 */
#ifndef MHA_LAB_SETTINGS_H
#define MHA_LAB_SETTINGS_H

#include "mha/setting.h"

/* Returns true if two semantics have equal settings of a group, bit by bit. Two arrays are equal if they have one
 * address, two views if they have one address and equal strides. */
bool mha__settings_same(mha_setting_group group, const mha_semantics *a, const mha_semantics *b);

/* The row that is probably meant by an unknown name: the one that other programs call so, else the nearest in letters
 * if at most a third of them differ; NULL when none is near. */
const mha_setting *mha__setting_near(const char *name);

/* Sets an array from a view. A VIEW setting takes any view. WHOLES takes I64 and REALS F64, of rank 1 and contiguous.
 * The caller owns the memory of the view. cu_seqlens_q and cu_seqlens_k set n_sequences, and must agree with it if
 * given. On error *semantics is unchanged: MHA_INVALID; MHA_UNSUPPORTED for a setting that is no array. */
mha_status mha__setting_put_view(const mha_setting *setting, const mha_view *view, mha_semantics *semantics,
                                 mha_error *error);

/* The names of the kinds of scaling of a rotation. */
const char *mha__rope_scaling_name(mha_rope_scaling_kind kind); /* "none", "linear", ...; "?" outside the list */
bool mha__rope_scaling_find(const char *name, mha_rope_scaling_kind *kind); /* false: no kind of that name */

#endif
