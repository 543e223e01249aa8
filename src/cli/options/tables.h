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

/* Room for the texts of a row; zeroed. What is longer is cut. */
typedef struct setting_texts {
    char name[60], form[100], help[700];
} setting_texts;

/* The option of these commands that sets a setting, with its texts in *texts; its help is not written yet. */
option_row option_of_setting(const mha_setting *s, unsigned commands, setting_texts *texts);
option_row option_of_config(const mha_config_field *f, unsigned commands, setting_texts *texts);
/* Writes the help of that option, and returns it. */
const char *help_of_setting(const mha_setting *s, setting_texts *texts);
const char *help_of_config(const mha_config_field *f, setting_texts *texts);

#endif
