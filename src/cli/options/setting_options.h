/* The option of a setting, or of a field of a layer, made from its row. */
#ifndef MHA_CLI_OPTIONS_SETTING_OPTIONS_H
#define MHA_CLI_OPTIONS_SETTING_OPTIONS_H

#include "cli/options/options.h"

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
