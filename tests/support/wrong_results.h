/* Gradients that are right, spoiled as kernels spoil what they write out. */
#ifndef TEST_WRONG_RESULTS_H
#define TEST_WRONG_RESULTS_H

#include "support/float_backward.h"

/* Spoils one gradient of rows, 'q', 'k' or 'v', as the bug of that name does. False: there is no such bug. */
bool wrong_result(const float_backward *f, const char *bug, char which);
/* db (heads, width), the sum over batch rows and time of the gradient of q; wrong as the bug of that name has
 * it. */
bool wrong_bias(const float_backward *f, const char *bug, float *db);

#endif
