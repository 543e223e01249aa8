/* The settings as a call is checked against them. */
#ifndef MHA_ATTENTION_CALL_SETTINGS_SETTINGS_H
#define MHA_ATTENTION_CALL_SETTINGS_SETTINGS_H

#include "mha/setting.h"

/* Number of rows of the table, which is an array that begins at mha_setting_at(0). */
size_t mha__setting_count(void);

/* Returns true if two semantics have equal settings of a group, bit by bit. Two arrays are equal if they have one
 * address, two views if they have one address and equal strides. */
bool mha__settings_same(mha_setting_group group, const mha_semantics *a, const mha_semantics *b);

/* Checks each number of the semantics against the range of its row, and each setting that needs another setting.
 * MHA_INVALID names the setting. With `in_float`, a number that float paths read must be in the range of float:
 * MHA_UNSUPPORTED. */
mha_status mha__settings_check(const mha_semantics *semantics, bool in_float, mha_error *error);

/* The row that is probably meant by an unknown name: the one that other programs call so, else the nearest in letters,
 * of which at most a third may differ; NULL when none is near. */
const mha_setting *mha__setting_near(const char *name);

/* Sets an array from a view. A VIEW setting takes any view. WHOLES takes I64 and REALS F64, of rank 1 and contiguous;
 * their memory, as that of a VIEW, stays the caller's. cu_seqlens_q and cu_seqlens_k set n_sequences, with which they
 * must agree where it is set. *semantics is untouched
 * on error: MHA_INVALID; MHA_UNSUPPORTED for what is no array. */
mha_status mha__setting_put_view(const mha_setting *setting, const mha_view *view, mha_semantics *semantics,
                                 mha_error *error);

/* The array that is set, in a call of B batch rows and h query heads, as mha__setting_put_view takes it; without data
 * while it is not given, and of other kinds. */
mha_view mha__setting_view(const mha_setting *setting, const mha_semantics *semantics, size_t B, size_t h);

#endif
