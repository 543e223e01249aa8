/* The option of a setting, made from its row. */
#ifndef MHA_CLI_SETTING_OPTIONS_H
#define MHA_CLI_SETTING_OPTIONS_H

#include "cli/options.h"

/* The option of these commands that sets a setting. Its texts are kept until the program ends. */
option_row option_of_setting(const mha_setting *s, unsigned commands);
/* Whether the program has an option of its own with this name. */
bool is_own_option(const char *name);

#endif
