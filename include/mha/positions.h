/* Laboratory. Arrays that settings of a call take, computed as public models define them: frequencies and tables of
 * rotations, slopes of ALiBi, segments of shifted windows. */
#ifndef MHA_POSITIONS_H
#define MHA_POSITIONS_H

#include "mha/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the dim/2 frequencies of a rotation of `dim` features, in radians for each position, and the attention factor,
 * for mha_rope. `base` 0: 10000. `length`: positions in use, keys that are yet to come included; it matters to dynamic
 * and longrope only. MHA_INVALID: a number that is missing or out of range, with its name in a config.json;
 * *attention_factor and the frequencies are then untouched. */
MHA_API mha_status mha_rope_frequencies(const mha_rope_scaling *scaling, size_t dim, double base, size_t length,
                                        double *frequencies, double *attention_factor, mha_error *error);

/* Writes cos_table and sin_table of mha_rope, (T, dim/2) or (B, T, dim/2) of F32 or F64, for `positions` of I64,
 * (axes, T) or (axes, B, T). `frequencies`: those of mha_rope_frequencies, dim/2 of them; for `repeated` as many as the
 * largest section, those of a rotation of twice as many features. The attention factor is left to mha_rope. Where a
 * token has one position for all axes, `blocks` and `interleaved` turn it as a rotation of one axis does. MHA_INVALID:
 * sections or shapes that do not fit, by name; nothing is written then. */
MHA_API mha_status mha_rope_axes_tables(const mha_rope_axes *axes, const double *frequencies, const mha_view *positions,
                                        const mha_view *cos_table, const mha_view *sin_table, mha_error *error);

/* Writes the slopes of Press et al. 2022 for n_heads heads: 2^(-8 i / n), i from 1, when their number n is a power of
 * two; otherwise those of the next lower power of two, followed by every other slope of twice that power. */
MHA_API void mha_alibi_slopes(size_t n_heads, double *slopes);

/* Segments of the windows of a shifted image (Swin, Liu et al. 2021, section 3.2). An image of height x width cells is
 * rolled up and left by `shift` cells, so that what leaves it comes in on the other side, and cut into windows of
 * window x window cells, row by row. Cells that were no neighbours before must not see each other: the number of cell
 * (y, x) of the rolled image is
 *   3 ([y >= height - window] + [y >= height - shift]) + [x >= width - window] + [x >= width - shift].
 * Writes them window by window, row by row in each: (n, window^2), n = height width / window^2, the q_segments of n
 * batch rows that are the windows of one image. transformers adds -100 where this hides a key. MHA_INVALID: a window
 * that is 0, does not divide height and width, or is no larger than shift; height or width 0 or above 65,536. */
MHA_API mha_status mha_window_segments(size_t height, size_t width, size_t window, size_t shift, int64_t *segments,
                                       mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
