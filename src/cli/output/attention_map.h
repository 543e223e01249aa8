/* A look at attention weights: the strongest keys of a few queries, and the matrices of a few heads as pictures. */
#ifndef MHA_CLI_OUTPUT_ATTENTION_MAP_H
#define MHA_CLI_OUTPUT_ATTENTION_MAP_H

#include "cli/setup/call.h"

/* Whether there are the head and the query that --head and --query ask for. Gives 0, or the exit code after a line. */
int attention_map_check(const request *r, const arguments *args);
/* Runs the request once more with its weights kept and prints what --query, or a few queries, of --head, or the first
 * head, look at, and that head or the first heads in shades; of the first batch row or sequence. Weights too large to
 * keep for a look are told instead. Gives 0, or the exit code after one line. */
int attention_map_print(request *r, const arguments *args);

#endif
