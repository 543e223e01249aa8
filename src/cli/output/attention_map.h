/* Prints attention weights: the strongest keys of a few queries, and the matrices of a few heads as pictures. */
#ifndef MHA_CLI_OUTPUT_ATTENTION_MAP_H
#define MHA_CLI_OUTPUT_ATTENTION_MAP_H

#include "cli/setup/call.h"

/* Checks that the head of --head and the query of --query exist. Returns 0, or the exit code after one line. */
int attention_map_check(const request *r, const arguments *args);
/* Runs the request again with its weights kept, and prints those of the first batch row or sequence: the strongest
 * keys of --query, or of a few queries, under --head or the first head; then a picture of that head or of the first
 * heads. If the weights are too large to keep, a line says it. Returns 0, or the exit code after one line. */
int attention_map_print(request *r, const arguments *args);

#endif
