/* How far ahead of a product memory is fetched, where a machine decides what is best: chosen by the time calls take. */
#ifndef MHA_COMPUTE_KERNELS_FETCHING_H
#define MHA_COMPUTE_KERNELS_FETCHING_H

#include <stdbool.h>
#include <stddef.h>

#include "mha/status.h"

/* What is read once, so that its time is that of memory. Each has a distance of its own, one row of fetching.c. */
typedef enum mha__fetched {
    MHA__FETCHED_KEYS,   /* keys of 2 to MHA_FEW_ROWS query rows. Beside those that follow, into the second level */
    MHA__FETCHED_ROW,    /* packed floats for one row */
    MHA__FETCHED_ROWS,   /* packed floats for more rows, up to a tile */
    MHA__FETCHED_HALF,   /* packed numbers of 16 bits for less than 8 rows */
    MHA__FETCHED_BLOCKS, /* packed blocks of quantised numbers for few rows */
    MHA__FETCHED_COUNT
} mha__fetched;

enum {
    MHA_FETCH_CHOICES = 3,
    MHA_FETCH_IN_A_ROW = 8, /* products in a row that have the same distance */
    MHA_FETCH_LEFT_OUT = 2, /* the first of them, whose rows were fetched by those before */
    MHA_FETCH_ROUNDS = 12,  /* turns of each distance */
    MHA_FETCH_AUTO = -1,    /* nothing is chosen yet */
    MHA_FETCH_MOST = 64     /* the longest distance that can be asked for */
};

/* One product. Fetched is what lies `ahead` of it: groups of keys, as many as a vector has floats, beyond the group
 * that follows; KiB, taken over all panels that are read together. 0: nothing. */
typedef struct mha__fetch {
    size_t ahead;
    mha__fetched what;
    int sample; /* its number where its time is taken; negative: not */
    double start;
} mha__fetch;

/* Whatever is chosen, results have the same bits. As long as nothing is chosen, products of a call that reads `bytes`
 * try the distances in turns, unless caches may hold so few, and mha__fetch_end takes the time that `read` bytes of
 * them took. Any thread may call both. */
mha__fetch mha__fetch_begin(mha__fetched what, size_t bytes);
void mha__fetch_end(const mha__fetch *fetch, size_t read);

/* The word of MHA_FETCH for it, and the unit of its distance. */
const char *mha__fetched_name(mha__fetched what);
const char *mha__fetched_unit(mha__fetched what);
/* The least bytes of a call whose products try distances. */
size_t mha__fetch_least(mha__fetched what);
/* Whether nothing is chosen yet. */
bool mha__fetch_tries(mha__fetched what);
/* The distance by now; `measured`: from times, not by MHA_FETCH or because there were too few. */
size_t mha__fetch_ahead(mha__fetched what, bool *measured);
/* The distance whose times have the least median; within 2 % of it the usual one, else the nearest. Times of choice c
 * are seconds[c * samples] and on. */
size_t mha__fetch_choice(mha__fetched what, const float *seconds, size_t samples);
/* Every later product fetches so far ahead; MHA_FETCH_AUTO: that is measured anew. */
void mha__fetch_choose(mha__fetched what, int ahead);
/* What was measured is measured anew, with other kernels. */
void mha__fetch_renew(void);
/* What a text asks for: "keys=3,row=auto", a number up to MHA_FETCH_MOST for keys alone, or "auto" for all. `ahead`
 * of what it does not name stays. False: the text is none of these, and nothing is written. */
bool mha__fetch_read(const char *text, int ahead[MHA__FETCHED_COUNT]);
/* Chooses the distances that a text asks for, as the environment variable MHA_FETCH does at first use. Must not be
 * called during a forward. MHA_INVALID: `text` is NULL or asks for something else. */
mha_status mha__fetch_select(const char *text);

#endif
