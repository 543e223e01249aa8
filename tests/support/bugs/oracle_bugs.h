/* Bugs as somebody makes them in a kernel, planted in the oracle: none of this shares code with the library. */
#ifndef TEST_ORACLE_BUGS_H
#define TEST_ORACLE_BUGS_H

#include <stdlib.h>
#include <string.h>

#include "support/oracle_run.h"

/* Bugs in inputs and weights, in the rows of q and k, in where rows lie, in what is
 * read of caches, in what the call and its pattern say, in
 * the scores and the softmax, in the relative position bias, in the rounding of one point, and in the reading of heads
 * and behind the softmax: NULL past the end. Their names are those of the library's bugs, with the number of those
 * that have one. */
const oracle_bug *bug_of_weights_at(size_t index);
const oracle_bug *bug_of_rows_at(size_t index);
const oracle_bug *bug_of_moved_at(size_t index);
const oracle_bug *bug_of_caches_at(size_t index);
const oracle_bug *bug_of_call_at(size_t index);
const oracle_bug *bug_of_pattern_at(size_t index);
const oracle_bug *bug_of_output_at(size_t index);
const oracle_bug *bug_of_scores_at(size_t index);
const oracle_bug *bug_of_bias_at(size_t index);
const oracle_bug *bug_of_rounding_at(size_t index);
/* All of them. */
const oracle_bug *bug_at(size_t index);
/* The one of that name, whatever number follows it; NULL: there is none. */
const oracle_bug *bug_named(const char *name);

/* Attention with a bug in its scores; the relative position bias of query i at p and a key at q; and their relative
 * terms, of the rows q and k. */
void buggy_attend(run *r, size_t b, size_t head, size_t i, number *heads);
/* x with as many significant bits as the name says. */
double buggy_rounding(double x);
double buggy_bias(const run *r, size_t head, size_t i, double p, double q);
double buggy_relative(const run *r, size_t head, size_t i, double p, double q_at, const number *q, const number *k);

/* Whether the name of the planted bug begins so. */
static inline bool begins(const char *name)
{
    return strncmp(oracle_wrong->name, name, strlen(name)) == 0;
}

/* Whether the planted bug is the one of that name, with whatever number. */
static inline bool is(const char *name)
{
    const char behind = begins(name) ? oracle_wrong->name[strlen(name)] : 'x';
    return behind == 0 || behind == ' ';
}

/* The number behind the name, as somebody configures it; 0 without one. */
static inline double given(void)
{
    const char *blank = strchr(oracle_wrong->name, ' ');
    return blank ? atof(blank) : 0;
}

/* The number at `index` of those behind the name, parted by commas; `otherwise` without one. */
static inline double given_at(size_t index, double otherwise)
{
    const char *at = strchr(oracle_wrong->name, ' ');
    for (; at && index > 0; index--)
        at = strchr(at + 1, ',');
    return at ? atof(at + 1) : otherwise;
}

static inline bool has_flags(const mha_mask *mask)
{
    return mask->kind == MHA_MASK_KEEPS || mask->kind == MHA_MASK_HIDES;
}

#endif
