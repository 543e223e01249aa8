/* Changes of a backward without a name: operands of products, readings of rows, factors, roundings, parts of sums. */
#ifndef MHA_VERIFY_BACKWARD_UNNAMED_H
#define MHA_VERIFY_BACKWARD_UNNAMED_H

#include "verify/backward/explain/search.h"

enum { MHA__MATRIX_P, MHA__MATRIX_DS, MHA__MATRIX_DP, MHA__MATRIX_DZ, MHA__MATRICES };

/* A map of the query whose row of dQ is farthest off: its numbers, and a copy of the right ones. */
typedef struct mha__one_query {
    mha__map map;
    char *numbers, *right;
    size_t bytes;
} mha__one_query;

/* The right numbers of all maps. */
typedef struct mha__whole {
    const mha__backward *b;
    size_t B, T, S, H, group;
    double *matrix[MHA__MATRICES]; /* (B, H, T, S) */
    mha__rows rows[MHA__ROW_KINDS];
    double *found[MHA_D_VALUE + 1]; /* as they were before they were turned back: (B, T or S, heads, width) */
    mha__one_query *one;
    size_t *from; /* room for a reading of any axis */
    double *row;  /* room for two rows, and for sizes */
} mha__whole;

/* False: the call has a feature that these changes do not support. */
mha_status mha__whole_begin(mha__gradient_search *s, mha__whole *w, bool *has, mha_error *error);
/* unnamed_products.c: dQ, dK and dV, each as a product of other matrices or rows, or as a part of its sum; `reads`: of
 * rows that are read elsewhere, in place of these. */
mha_status mha__unnamed_products(mha__gradient_search *s, const mha__whole *w, bool reads, mha_error *error);
/* unnamed_steps.c: gradients written to other places; operands of dS and P. */
mha_status mha__unnamed_results(mha__gradient_search *s, const mha__whole *w, mha_error *error);
mha_status mha__unnamed_steps(mha__gradient_search *s, const mha__whole *w, mha_error *error);
static const char *const mha__row_kinds[] = {"q", "k", "v", "dO", "O"};
static const char *const mha__units[] = {"batch row", "row", "head", "feature"};
/* Types that rows may be rounded to, and their bits. */
static const struct {
    int bits;
    const char *type;
} mha__types[] = {{11, "float16"}, {8, "bfloat16"}, {4, "float8 E4M3"}, {3, "float8 E5M2"}};

static inline size_t mha__width_of_rows(const mha__whole *w, int kind)
{
    return w->rows[kind].n.n[MHA__C];
}

#endif
