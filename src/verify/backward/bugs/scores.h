/* Scores and weights of a map, as bugs compute them once more. */
#ifndef MHA_VERIFY_BACKWARD_SCORES_H
#define MHA_VERIFY_BACKWARD_SCORES_H

#include "attention/core/backward/backward.h"

/* The normaliser is a softmax. */
bool mha__is_softmax(const mha__backward *b);
/* scale Q_i . K_j, of the rows that the map has. */
double mha__score_of(const mha__backward *b, const mha__map *map, size_t i, size_t j);
/* The largest weight of a query: exp(m - lse), m its largest masked score. */
double mha__largest_weight(const mha__map *map, size_t i);
/* A scale that is taken for that of the call. */
typedef enum mha__other_scale {
    MHA__SCALE_MISSING,
    MHA__SCALE_TWICE,
    MHA__SCALE_DEFAULT,    /* 1 / sqrt(d_k) */
    MHA__SCALE_OF_VALUES,  /* 1 / sqrt(d_v) */
    MHA__SCALE_OF_PADDED,  /* 1 / sqrt(n), n the power of two from d_k on */
    MHA__SCALE_OF_MODEL,   /* 1 / sqrt(h d_k) */
    MHA__SCALE_OVER_WIDTH, /* 1 / d_k */
    MHA__SCALE_TIMES_LOG2E,
    MHA__SCALE_TIMES_LN2
} mha__other_scale;
double mha__scale_of(const mha__backward *b, mha__other_scale which);
/* It is another one than that of the call, and than those before it in this list. */
bool mha__has_scale(const mha__backward *b, mha__other_scale which);
/* The slope of a softcap `cap` (0: none) at a score. */
double mha__slope_of(double score, double cap);
/* c tanh(score / c), or the score without a softcap. */
double mha__softcapped(const mha__backward *b, double score);
/* Whether all that is added to the score of a pair has an element for it: then its gradient has a place. */
bool mha__has_terms(const mha__backward *b, const mha__map *map, size_t i, size_t j);
/* The pair is hidden, or seen with the weight that its score, and what is added to it, have; where the query or the
 * score is not finite nothing is done. */
void mha__show_pair(const mha__backward *b, mha__map *map, size_t i, size_t j, bool shows, double added);
/* dP_ij = dO_i . V_j, of given rows. */
double mha__d_weight_of(const mha__backward *b, const double *dO, const double *V);
/* The weights of all pairs that are seen, of the rows that the map has, and the slopes of their softcaps. Calls with
 * extra rows or relative terms are none for it. */
void mha__weigh_again(const mha__backward *b, mha__map *map);
bool mha__can_weigh_again(const mha__backward *b);

#endif
