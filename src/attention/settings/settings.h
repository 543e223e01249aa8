/* The settings as a call is checked against them. */
#ifndef MHA_ATTENTION_SETTINGS_H
#define MHA_ATTENTION_SETTINGS_H

#include "mha/setting.h"

/* Rows of the table. They lie one behind the other from mha_setting_at(0) on. */
size_t mha__setting_count(void);

/* Whether two semantics have the same settings of a group, bit by bit; arrays are the same that lie at one place, views
 * those that have the same strides, too. */
bool mha__settings_same(mha_setting_group group, const mha_semantics *a, const mha_semantics *b);

/* Checks all numbers of the semantics against the ranges of their rows, and that none is set that has no effect without
 * another. MHA_INVALID names the setting. Where `in_float`, numbers that paths hold as floats must be floats, too:
 * MHA_UNSUPPORTED. */
mha_status mha__settings_check(const mha_semantics *semantics, bool in_float, mha_error *error);

#endif
