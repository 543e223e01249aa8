/* What each of several processes would hold and send of a whole model. */
#ifndef MHA_CLI_COMMANDS_COUNTING_PARAMS_RANKS_H
#define MHA_CLI_COMMANDS_COUNTING_PARAMS_RANKS_H

#include "cli/options/options.h"
#include "mha/lab.h"

/* Shows the model of `params` split over --ranks. Returns the exit code, after one line on standard error if it is
 * not 0. */
int ranks_show(const arguments *args, const mha_model *model, const mha_params *params);

#endif
