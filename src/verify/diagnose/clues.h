/* Describes the difference between a tensor and the unmodified case if no bug explains it. */
#ifndef MHA_VERIFY_DIAGNOSE_CLUES_H
#define MHA_VERIFY_DIAGNOSE_CLUES_H

#include "verify/diagnose/search/search.h"

/* A stage as (batch rows, heads, rows, columns): what the case gives (x) and the tensor (y), with their strides. */
typedef struct mha__grid {
    const mha__target *target;
    size_t n[4];
    size_t xs[4], ys[4];
    const double *x, *y;
    int level; /* 1: compared within rounding in float64, 0: in float32 */
} mha__grid;

/* The clues found so far. */
typedef struct mha__clue_list {
    mha_clue *clues;
    size_t count, room;
    bool full; /* no memory for one more */
} mha__clue_list;

void mha__clue_add(mha__clue_list *list, mha_clue clue);

static inline double mha__grid_x(const mha__grid *g, size_t b, size_t h, size_t t, size_t f)
{
    return g->x[b * g->xs[0] + h * g->xs[1] + t * g->xs[2] + f * g->xs[3]];
}

static inline double mha__grid_y(const mha__grid *g, size_t b, size_t h, size_t t, size_t f)
{
    return g->y[b * g->ys[0] + h * g->ys[1] + t * g->ys[2] + f * g->ys[3]];
}

/* Largest allowed distance of an element y of the tensor from the exact one. */
double mha__grid_limit(const mha__grid *g, double y);
/* Whether x and y are equal but for rounding. */
bool mha__grid_agrees(const mha__grid *g, double x, double y);

/* Adds what the places of the differences have in common: "only head 3 differs" (clues_places.c). Returns how many
 * elements differ. */
size_t mha__clues_of_places(const mha__grid *g, mha__clue_list *list);
/* Adds clues of single heads before an output projection (clues_heads.c). */
mha_status mha__clues_of_heads(const mha__search *s, const mha__grid *g, mha__clue_list *list, mha_error *error);

/* Finds all clues, for mha_diagnosis_clear to release. */
mha_status mha__search_clues(const mha__search *s, mha_diagnosis *d, mha_error *error);

#endif
