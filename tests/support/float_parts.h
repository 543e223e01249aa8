/* The parts of a backward in float32: what one head of one batch row has. */
#ifndef TEST_FLOAT_PARTS_H
#define TEST_FLOAT_PARTS_H

#include "support/float_backward.h"

enum { FB_BATCH = 2, FB_HEADS = 8, FB_WIDTH = 144 };

typedef struct float_head {
    const float_backward *f;
    const char *bug;
    bool known; /* the bug has been met */
    size_t b, i, g;
    float Q[FB_MOST][FB_WIDTH], K[FB_MOST][FB_WIDTH];
    float s[FB_MOST][FB_MOST], P[FB_MOST][FB_MOST], dP[FB_MOST][FB_MOST], dS[FB_MOST][FB_MOST], dZ[FB_MOST][FB_MOST];
    bool seen[FB_MOST][FB_MOST], back[FB_MOST][FB_MOST]; /* by the forward, by the backward */
    float lse[FB_MOST], D[FB_MOST], dlse[FB_MOST];
    float all_lse[FB_BATCH][FB_HEADS][FB_MOST], all_D[FB_BATCH][FB_HEADS][FB_MOST]; /* of every head, right */
    float dO[FB_MOST][FB_WIDTH], O[FB_MOST][FB_WIDTH];
    float apart[4][FB_WIDTH]; /* rows of q, k, v and dO that are read with another width */
    float dQ[FB_MOST][FB_WIDTH], dK[FB_MOST][FB_WIDTH], dV[FB_MOST][FB_WIDTH];
} float_head;

/* Whether the bug has this name, or this name and one of 16, 32, 64 and 128 after it: that number, or 0. */
bool float_is(float_head *x, const char *name);
size_t float_is_of_block(float_head *x, const char *name);

/* The rows that a bug reads from another place. */
typedef struct float_place {
    size_t b, i, t;
    bool nothing; /* there is a 0 */
} float_place;

/* Where `what` of a place is read: there, or, with a bug "WHAT-of-next-head" and the like, elsewhere. `keys`: its
 * rows are keys, and its heads key/value heads. `blocks`: its name in "stale-BLOCKS-16", or NULL. */
float_place float_read(float_head *x, const char *what, const char *blocks, bool keys, size_t b, size_t i, size_t t);
/* A row before its rotation. */
const float *float_unrotated(float_head *x, char of, size_t t);
/* Row t of q (k, v, dO), as it is given, read where `what` says. */
const float *float_row(float_head *x, char of, const char *what, const char *blocks, size_t t);

/* Which keys are seen, and what is added: the settings of a call, or those that a bug takes for them. */
typedef struct float_visibility {
    bool causal, hides, flags;
    long offset, left, right; /* -1: no limit */
    const int64_t *lengths, *segments;
    const bool *padding;
    size_t mask_b, mask_i, slope_i;
    bool turned, inverted;
    size_t next_query, next_key; /* by so many an element of the mask is read further on */
    size_t first_queries, first_keys; /* 0, or the mask is read in the first block of so many */
    float mask_times, slope_times, more_lengths;
} float_visibility;

float_visibility float_visibility_right(const float_head *x);
bool float_sees(const float_head *x, const float_visibility *u, size_t t, size_t j);
/* The term added to a score: -infinity hides. */
float float_added(const float_head *x, const float_visibility *u, size_t t, size_t j);

/* The largest of n weights; 1 where all are 0. */
float float_largest(const float *P, size_t n);
/* The scale of dQ and dK. */
float float_scale_of_products(float_head *x, float right);

/* The steps, in this order. */
void float_forward(float_head *x);
void float_sums(float_head *x);
void float_weights(float_head *x);
void float_scores(float_head *x);
void float_products(float_head *x);
void float_added_gradients(float_head *x);
void float_gather(float_head *x);

#endif
