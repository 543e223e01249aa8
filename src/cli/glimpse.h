/* A look at one head's attention weights, small enough to read. */
#ifndef MHA_CLI_GLIMPSE_H
#define MHA_CLI_GLIMPSE_H

#include "cli/request.h"

/* Runs the request once more with its weights kept and prints what a few queries of the first head look
 * at, and with `pictures` whole heads in shades. Prints nothing when the weights are too large to keep for
 * a look. Gives an exit code. */
int glimpse_print(request *r, bool pictures);

#endif
