/* Prints attention weights: the strongest keys of a few queries, and the matrices of a few heads as pictures. */
#ifndef MHA_CLI_PICTURES_ATTENTION_MAP_H
#define MHA_CLI_PICTURES_ATTENTION_MAP_H

#include "cli/setup/call.h"

enum { STRONGEST = 4 };

typedef struct strongest_key {
    size_t key;
    double weight;
} strongest_key;

/* Finds the largest of `count` weights, largest first, without those of weight 0, hidden or NaN. Returns how many. */
size_t strongest_keys(const double *weights, size_t count, strongest_key found[STRONGEST]);
/* Ends a line with them: "  looks at key 3 (97.0 %)". `broken`: some weights are NaN. */
void strongest_print(const strongest_key *found, size_t n, bool broken);

/* Checks that the head of --head and the query of --query exist. Returns 0, or the exit code after one line. */
int attention_map_check(const request *r, const arguments *args);
/* Runs the request again with its weights kept, and prints those of the first batch row or sequence: the strongest
 * keys of --query, or of a few queries, under --head or the first head; then a picture of that head or of the first
 * heads. If the weights are too large to keep, a line says it. Returns 0, or the exit code after one line. */
int attention_map_print(request *r, const arguments *args);

#endif
