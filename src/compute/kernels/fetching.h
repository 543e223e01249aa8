/* How far ahead keys are fetched that a few query rows, but not one, read: chosen by the time that calls take. */
#ifndef MHA_COMPUTE_KERNELS_FETCHING_H
#define MHA_COMPUTE_KERNELS_FETCHING_H

#include <stdbool.h>
#include <stddef.h>

enum {
    MHA_FETCH_CHOICES = 3,
    MHA_FETCH_IN_A_ROW = 8,           /* products in a row that have the same distance */
    MHA_FETCH_LEFT_OUT = 2,           /* the first of them, whose rows were fetched by those before */
    MHA_FETCH_ROUNDS = 12,            /* turns of each distance */
    MHA_FETCH_AUTO = -1,              /* nothing is chosen yet */
    MHA_FETCH_MOST = 64,              /* groups ahead that can be asked for */
    MHA_FETCH_LEAST_KEYS = 512 * 1024 /* bytes: shorter keys are read from a cache */
};

/* One product of few rows by keys that are read once. Fetched are, beside the keys that follow, those `groups` times
 * as many further as a vector has floats, into the second-level cache; 0: none. */
typedef struct mha__fetch {
    size_t groups;
    int sample; /* its number where its time is taken; negative: not */
    double start;
} mha__fetch;

/* Whatever is chosen, results have the same bits. As long as nothing is chosen, products of MHA_FETCH_LEAST_KEYS bytes
 * of keys and more try the distances in turns, and mha__fetch_end takes the time that `bytes` of them took. Any thread
 * may call both. */
mha__fetch mha__fetch_begin(size_t key_bytes);
void mha__fetch_end(const mha__fetch *fetch, size_t bytes);

/* Whether nothing is chosen yet. */
bool mha__fetch_tries(void);
/* What is chosen by now, in groups; `measured`: from times, not by MHA_FETCH or because there were too few. */
size_t mha__fetch_groups(bool *measured);
/* The distance whose times have the least median, the nearest within 2 % of it: times of choice c are
 * seconds[c * samples] and on. */
size_t mha__fetch_choice(const float *seconds, size_t samples);
/* Every later product fetches so many groups ahead; MHA_FETCH_AUTO: that is measured anew. */
void mha__fetch_choose(int groups);
/* What a text asks for: a number up to MHA_FETCH_MOST, or "auto". */
bool mha__fetch_read(const char *text, int *groups);

#endif
