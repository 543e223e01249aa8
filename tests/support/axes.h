/* Rotations by positions of several axes, written from the models that have them; shares no code with the library. */
#ifndef TEST_AXES_H
#define TEST_AXES_H

#include "mha/rope.h"

/* Fills tables (B, T, pairs) of F64 for (axes, B, T) positions. `f`: frequencies; NULL: those of `base`. */
void axes_fill(const mha_rope_axes *axes, const double *f, double base, const int64_t *positions, size_t B, size_t T,
               double *cosines, double *sines);
/* The pairs of all axes together. */
size_t axes_pairs(const mha_rope_axes *axes);

#endif
