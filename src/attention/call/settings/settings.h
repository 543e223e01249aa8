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

#endif
