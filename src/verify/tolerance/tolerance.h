/* How far the results of a call may lie apart, and the sizes of the numbers on which that depends. */
#ifndef MHA_VERIFY_TOLERANCE_TOLERANCE_H
#define MHA_VERIFY_TOLERANCE_TOLERANCE_H

#include "mha/case.h"

/* How far results of one call may lie apart, [0] in float32 and [1] in float64, where nobody says: see
 * src/verify/tolerance/tolerance.c. Of the wanted stages; the others are infinite. */
typedef struct mha__tolerance {
    double atol[2][MHA_STAGE_COUNT];
} mha__tolerance;

mha_status mha__tolerance_of(const mha_layer *layer, const mha_call *call, const mha_view *past_key,
                            const mha_view *past_value, const bool wanted[MHA_STAGE_COUNT], mha__tolerance *tolerance,
                            mha_error *error);
mha_status mha__tolerance_of_case(const mha_case *c, const bool wanted[MHA_STAGE_COUNT], mha__tolerance *tolerance,
                                 mha_error *error);
/* Measures a call whose cached rows are given as views (no data: none). */
mha_status mha__magnitudes_of(const mha_layer *layer, const mha_call *call, const mha_view *past_key,
                             const mha_view *past_value, mha_magnitudes *magnitudes, mha_error *error);

/* How far the rounding of its angles may move what a rotation turns, in 2-norm: one head's row, and one pair of it. */
typedef struct mha__turn {
    double row, pair;
} mha__turn;

/* For x (B, T, heads, d) at positions up to `farthest`; zero where there is no rotation, or by tables. */
mha__turn mha__turn_of(const mha_rope *rope, const mha_view *x, double farthest);
/* The same for a pair of norm 1: see src/verify/tolerance/error_bound.c. */
double mha__angle_error(double position, double frequency);

#endif
