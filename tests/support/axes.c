/* Rotations by positions of several axes, pair by pair, as models lay them out. */
#include <math.h>
#include <stdlib.h>

#include "support/axes.h"

size_t axes_pairs(const mha_rope_axes *axes)
{
    size_t n = 0;
    for (size_t a = 0; a < axes->axes; a++)
        n += axes->sections[a];
    return n;
}

/* For each pair the axis, and which frequency it has. */
static void lay_out(const mha_rope_axes *axes, size_t pairs, size_t *axis, size_t *frequency)
{
    size_t i = 0;
    for (size_t a = 0; a < axes->axes; a++)
        for (size_t k = 0; k < axes->sections[a]; k++, i++) { /* torch.split(..., sections) */
            axis[i] = a;
            frequency[i] = axes->kind == MHA_ROPE_AXES_REPEATED ? k
                           : axes->kind == MHA_ROPE_AXES_DEALT  ? k * axes->axes + a
                                                                : i;
        }
    for (i = 0; i < pairs && axes->kind == MHA_ROPE_AXES_INTERLEAVED; i++)
        axis[i] = 0;
    for (size_t a = 1; a < axes->axes && axes->kind == MHA_ROPE_AXES_INTERLEAVED; a++) /* [a : axes * section : axes] */
        for (i = a; i < axes->axes * axes->sections[a] && i < pairs; i += axes->axes)
            axis[i] = a;
}

void axes_fill(const mha_rope_axes *axes, const double *f, double base, const int64_t *positions, size_t B, size_t T,
               double *cosines, double *sines)
{
    size_t axis[MHA_ROPE_MAX_PAIRS], frequency[MHA_ROPE_MAX_PAIRS], most = 0;
    const size_t pairs = axes_pairs(axes);
    lay_out(axes, pairs, axis, frequency);
    for (size_t a = 0; a < axes->axes; a++)
        most = axes->sections[a] > most ? axes->sections[a] : most;
    const double n = 2 * (double)(axes->kind == MHA_ROPE_AXES_REPEATED ? most : pairs);
    for (size_t row = 0; row < B * T; row++)
        for (size_t i = 0; i < pairs; i++) {
            const double speed = f ? f[frequency[i]] : 1 / pow(base, 2 * (double)frequency[i] / n);
            const double angle = (double)positions[axis[i] * B * T + row] * speed;
            cosines[row * pairs + i] = cos(angle);
            sines[row * pairs + i] = sin(angle);
        }
}
