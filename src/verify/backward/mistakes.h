/* Named mistakes of a backward: rows of lists, one for each part of it. */
#ifndef MHA_VERIFY_BACKWARD_MISTAKES_H
#define MHA_VERIFY_BACKWARD_MISTAKES_H

#include "attention/backward/backward.h"

/* A mistake is a change of what a step made. One of a step behind the sums is made of the errors of the bound, too,
 * which are laid out likewise and are never negative. */
typedef struct mha__mistake mha__mistake;
struct mha__mistake {
    mha_gradient_mistake shown;
    /* Whether the call has what it takes; NULL: every call does. */
    bool (*applies)(const mha__backward *b, const mha__mistake *mistake);
    mha__backward_step step;
    void (*change)(mha__backward *b, mha__map *map, const mha__mistake *mistake);
    double number, other; /* of the change */
};

typedef struct mha__mistake_list {
    const mha__mistake *rows;
    size_t count;
} mha__mistake_list;

mha__mistake_list mha__mistakes_of_weights(void);  /* P, computed once more */
mha__mistake_list mha__mistakes_of_sums(void);     /* dO, D, dlse, dS */
mha__mistake_list mha__mistakes_of_products(void); /* dQ, dK, dV, and heads that share them */
mha__mistake_list mha__mistakes_of_rest(void);     /* gradients of what is added, rows, empty rows */

/* Row `index` of all lists; NULL behind the last. Behind the changes come the points at which a kernel may round. */
const mha__mistake *mha__mistake_at(size_t index);
/* The precision of a row that rounds, with `also`. */
mha_backward_precision mha__mistake_rounds(const mha__mistake *mistake, const mha_backward_precision *also);

#endif
