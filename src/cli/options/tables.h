/* The two tables of options: the program's own, and those of settings. */
#ifndef MHA_CLI_OPTIONS_TABLES_H
#define MHA_CLI_OPTIONS_TABLES_H

#include "cli/options/options.h"

/* The program's own options. Settings of attention and fields of a layer make the other options. */

extern const option_row own_options[OPTION_COUNT];
/* The commands that take the options of settings and of fields of a layer: bits 1 << command_code. */
extern const unsigned commands_with_settings, commands_with_layers;

/* Whether the first n letters of an option's name, '-' for '_', are the first `length` letters of `name`. */
bool is_spelt(const char *option, size_t n, const char *name, size_t length);
/* Whether the program has an option of its own with this name, of `length` letters, in which '_' is '-'. */
bool is_own_option(const char *name, size_t length);

/* The option of a setting, or of a field of a layer, made from its row. */

/* The option that sets a setting or a field. Its name and form have memory of their own. */
option_row option_of_setting(const mha_setting *s);
option_row option_of_config(const mha_config_field *f);
/* The help of that option; kept. */
const char *help_of_setting(const mha_setting *s);
const char *help_of_config(const mha_config_field *f);

#endif
