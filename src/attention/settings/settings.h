/* The settings as a call is checked against them. */
#ifndef MHA_ATTENTION_SETTINGS_H
#define MHA_ATTENTION_SETTINGS_H

#include "mha/setting.h"

/* Rows of the table. They lie one behind the other from mha_setting_at(0) on. */
size_t mha__setting_count(void);

/* mha_settings_check; where `in_float`, numbers that paths hold as floats must be floats, too: MHA_UNSUPPORTED. */
mha_status mha__settings_check(const mha_semantics *semantics, bool in_float, mha_error *error);

#endif
