/* The rows of queries and keys of the exact path, once they are projected. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_ROWS_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_ROWS_H

#include "attention/rows/rows.h"

/* Norm, rotation and scale by position of all rows (rows, heads, d_k) of a side, in place. */
void mha__exact_rows(const mha__resolved *r, mha__side side, double *x, size_t heads);

/* Position of row i of a sequence. */
int64_t mha__exact_position(const mha__resolved *r, mha__side side, const mha__sequence *s, size_t i);
/* By how much a pair of features is turned at a position, where the call has no tables. */
double mha__exact_angle(const mha__resolved *r, int64_t position, size_t pair);
/* The cosine and sine that turn a pair of features of row t of batch row b. */
typedef struct mha__cos_sin {
    double c, s;
} mha__cos_sin;
mha__cos_sin mha__exact_turn(const mha__resolved *r, size_t b, size_t t, int64_t position, size_t pair);
/* Rotates row t of batch row b, of so many heads, as its position says, or back (the transpose of that). */
void mha__exact_rotate(const mha__resolved *r, double *x, size_t heads, size_t b, size_t t, int64_t position,
                       bool back);
/* Normalises a row of a side, if it has a norm. */
void mha__exact_normalise(const mha__resolved *r, mha__side side, double *x, size_t heads);
/* Limits numbers of q, k or v, if clip_qkv is not 0. */
void mha__exact_clip(const mha__resolved *r, double *x, size_t count);

/* The factor of queries at a position; 1 without mha_semantics.query_scale. */
double mha__exact_query_scale(const mha__resolved *r, int64_t position);

#endif
