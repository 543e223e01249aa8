/* --preset list: the models that are built in. */
#ifndef MHA_CLI_OUTPUT_PRESETS_H
#define MHA_CLI_OUTPUT_PRESETS_H

#include "cli/options.h"

/* Whether they are asked for, in place of one of them. */
bool presets_asked(const arguments *args);
/* Writes them with their shapes and sizes, as --format or --json says. Gives the exit code. */
int list_presets(const arguments *args);

#endif
