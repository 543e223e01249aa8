/* Formulas as text: operators + - * / ^, numbers, names, functions of a number, sums and maxima over a line. */
#ifndef MHA_VERIFY_MUTATE_FORMULA_H
#define MHA_VERIFY_MUTATE_FORMULA_H

#include <stdbool.h>
#include <stddef.h>

/* The elements that a formula is computed for. */
typedef struct mha__elements_of {
    size_t count;
    const size_t *line;          /* elements of one line are neighbours with one number; NULL: all are of one */
    const unsigned char *counts; /* whether sum(x) and max(x) have the element; NULL: all. max(x) is at least 0 */
    /* Writes the numbers of a name, one for each element. Names have letters and end in any number of '. */
    void (*read)(const void *context, const char *name, double *to);
    const void *context;
} mha__elements_of;

enum { MHA__FORMULA_ROOM = 12 }; /* numbers of room for an element */

/* The numbers of a formula: the first `count` of `room`. A quotient by 0 is its numerator. */
void mha__formula(const mha__elements_of *x, const char *text, double *room);

#endif
