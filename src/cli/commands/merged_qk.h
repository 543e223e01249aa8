/* --merged-qk: one matrix per head in place of W_Q and W_K. */
#ifndef MHA_CLI_COMMANDS_MERGED_QK_H
#define MHA_CLI_COMMANDS_MERGED_QK_H

#include "cli/options.h"

int run_merged_params(const arguments *args);  /* what it costs, and its rank */
int run_merged_forward(const arguments *args); /* the same scores either way */

#endif
