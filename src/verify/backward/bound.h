/* What rounding may cost the gradients of a call, head by head and then row by row. */
#ifndef MHA_VERIFY_BACKWARD_BOUND_H
#define MHA_VERIFY_BACKWARD_BOUND_H

#include "attention/backward/backward.h"

/* The arithmetic, what it may do to the stages of the forward, and the errors of the gradients so far. */
typedef struct mha__gradient_errors {
    const mha_backward_precision *precision;
    double unit, sums;            /* roundoff of one operation, of a partial sum */
    double tiny;                  /* results below it may be zero */
    double score, lse;            /* errors of these stages */
    double weight;                /* of a sigmoid's weights */
    double rows[3];               /* of an element of q, k and v as they are attended to */
    mha__backward sizes;          /* its d are the errors; its map has what they are sums of */
} mha__gradient_errors;

/* n u / (1 - n u), infinite where that has no meaning. */
double mha__gradient_gamma(double n, double u);
/* Adds the errors of a head of a sequence. */
void mha__bound_map(mha__gradient_errors *e, const mha__backward *b, const mha__map *map);
/* Takes the errors of d of query, key and value back to the rows that were given, as mha__backward_rows does these. */
void mha__bound_rows(mha__gradient_errors *e, const mha__backward *b);

#endif
