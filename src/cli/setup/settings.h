/* Settings of a call, taken from the options that name them. */
#ifndef MHA_CLI_SETUP_SETTINGS_H
#define MHA_CLI_SETUP_SETTINGS_H

#include "cli/setup/request.h"

/* Puts the numbers, switches and choices that are given into *semantics; others stay as they are. Returns 0, or the
 * exit code after one line on standard error. */
int settings_of_options(const arguments *args, mha_semantics *semantics);
/* Reads the arrays that are given, from files or lists, into memory of the request and its call. The inputs of the
 * call must be known. Returns as settings_of_options does. */
int arrays_of_options(request *r, const arguments *args);
/* Whether an option says what attention computes, and not only where rows stand. */
bool options_state_attention(const arguments *args);

#endif
