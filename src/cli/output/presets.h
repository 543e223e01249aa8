/* --preset list: the built-in models. */
#ifndef MHA_CLI_OUTPUT_PRESETS_H
#define MHA_CLI_OUTPUT_PRESETS_H

#include "cli/options/options.h"

/* Whether --preset asks for the list. */
bool presets_asked(const arguments *args);
/* Writes the models with their shapes and sizes in the form of --format or --json. Returns the exit code. */
int list_presets(const arguments *args);

#endif
