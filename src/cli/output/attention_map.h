/* A look at one head's attention weights, small enough to read. */
#ifndef MHA_CLI_OUTPUT_ATTENTION_MAP_H
#define MHA_CLI_OUTPUT_ATTENTION_MAP_H

#include "cli/setup/call.h"

/* Runs the request once more with its weights kept and prints what a few queries of the first head look
 * at, and with `pictures` whole heads in shades. Prints nothing when the weights are too large to keep for
 * a look. Gives an exit code. */
int glimpse_print(request *r, bool pictures);

#endif
