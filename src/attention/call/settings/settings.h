/* The settings as a call is checked against them. */
#ifndef MHA_ATTENTION_CALL_SETTINGS_SETTINGS_H
#define MHA_ATTENTION_CALL_SETTINGS_SETTINGS_H

#include "mha/setting.h"

/* Number of rows of the table, which is an array that begins at mha_setting_at(0). */
size_t mha__setting_count(void);

/* Checks each number of the semantics against the range of its row, and each setting that needs another setting.
 * MHA_INVALID names the setting. With `in_float`, a number that float paths read must be in the range of float:
 * MHA_UNSUPPORTED. */
mha_status mha__settings_check(const mha_semantics *semantics, bool in_float, mha_error *error);

/* Marks each setting as given whose number is not 0: sets has_scale where scale is 1. */
void mha__settings_mark(mha_semantics *semantics);

/* The array that is set, in a call of B batch rows and h query heads: WHOLES are I64 and REALS F64, of rank 1; without
 * data while it is not given, and of other kinds. */
mha_view mha__setting_view(const mha_setting *setting, const mha_semantics *semantics, size_t B, size_t h);

#endif
