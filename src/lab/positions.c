/* Positions in public models: slopes of ALiBi, segments of the windows of an image, rotations by several axes. */
#include <math.h>

#include "base/base.h"
#include "mha/positions.h"

/* ---------------------------------------------------------------- slopes */

void mha_alibi_slopes(size_t n_heads, double *slopes)
{
    size_t power = 1;
    while (power <= n_heads / 2)
        power *= 2;
    for (size_t i = 0; i < n_heads; i++)
        slopes[i] = i < power ? exp2(-8.0 * (double)(i + 1) / (double)power)
                              : exp2(-4.0 * (double)(2 * (i - power) + 1) / (double)power);
}

/* ---------------------------------------------------------------- windows of a rolled image */

/* Which part of an axis a cell is in: before the last window, in it, or in what came in from the other side. */
static int64_t part(size_t at, size_t length, size_t window, size_t shift)
{
    return (at >= length - window) + (at >= length - shift);
}

mha_status mha_window_segments(size_t height, size_t width, size_t window, size_t shift, int64_t *segments,
                               mha_error *error)
{
    const size_t most = 65536;
    if (height < 1 || width < 1 || height > most || width > most)
        return mha__fail(error, MHA_INVALID, "height", "expected an image of 1 to %zu cells each way, found %zu x %zu",
                         most, height, width);
    if (window < 1 || height % window != 0 || width % window != 0)
        return mha__fail(error, MHA_INVALID, "window", "expected a divisor of %zu and %zu, found %zu", height, width,
                         window);
    if (shift >= window)
        return mha__fail(error, MHA_INVALID, "shift", "expected less than a window of %zu, found %zu", window, shift);
    for (size_t top = 0; top < height; top += window)
        for (size_t left = 0; left < width; left += window)
            for (size_t y = top; y < top + window; y++)
                for (size_t x = left; x < left + window; x++)
                    *segments++ = 3 * part(y, height, window, shift) + part(x, width, window, shift);
    return MHA_OK;
}

/* ---------------------------------------------------------------- rotations by axes, of images and films */

/* The axis by which pair i turns, and which of the frequencies it has. */
typedef struct turn {
    size_t axis, frequency;
} turn;

static turn turn_of(const mha_rope_axes *a, size_t i)
{
    size_t axis = 0, j = i;
    if (a->kind == MHA_ROPE_AXES_INTERLEAVED) {
        axis = i % a->axes;
        return (turn){i < a->axes * a->sections[axis] ? axis : 0, i};
    }
    while (j >= a->sections[axis])
        j -= a->sections[axis++];
    return (turn){axis, a->kind == MHA_ROPE_AXES_REPEATED ? j
                        : a->kind == MHA_ROPE_AXES_DEALT  ? a->axes * j + axis
                                                          : i};
}

/* Checks all but the tables; *pairs is the number that turns. */
static mha_status check_axes(const mha_rope_axes *a, size_t *pairs, mha_error *error)
{
    if ((unsigned)a->kind >= MHA_ROPE_AXES_COUNT)
        return mha__fail(error, MHA_INVALID, "rope_axes", "expected a value of mha_rope_axes_kind, found number %d",
                         (int)a->kind);
    if (a->axes < 1 || a->axes > MHA_ROPE_MAX_AXES)
        return mha__fail(error, MHA_INVALID, "rope_axes", "expected 1 to %d axes, found %zu", MHA_ROPE_MAX_AXES,
                         a->axes);
    *pairs = 0;
    for (size_t i = 0; i < a->axes; i++) {
        if (a->sections[i] < 1 || a->sections[i] > MHA_ROPE_MAX_PAIRS)
            return mha__fail(error, MHA_INVALID, "sections", "expected 1 to %d pairs for each axis, found %zu",
                             MHA_ROPE_MAX_PAIRS, a->sections[i]);
        if (a->kind == MHA_ROPE_AXES_DEALT && a->sections[i] != a->sections[0])
            return mha__fail(error, MHA_INVALID, "sections",
                             "expected as many pairs for each axis where frequencies are dealt out, found %zu and %zu",
                             a->sections[0], a->sections[i]);
        *pairs += a->sections[i];
    }
    if (*pairs > MHA_ROPE_MAX_PAIRS)
        return mha__fail(error, MHA_INVALID, "sections", "expected at most %d pairs, found %zu", MHA_ROPE_MAX_PAIRS,
                         *pairs);
    return MHA_OK;
}

/* A table has the shape of the positions without their axes, and then the pairs. */
static mha_status check_table(const char *name, const mha_view *table, const mha_view *positions, size_t pairs,
                              mha_error *error)
{
    bool fits = table->data && table->rank == positions->rank && table->shape[table->rank - 1] == pairs &&
                (table->dtype == MHA_F32 || table->dtype == MHA_F64);
    for (int i = 1; fits && i < positions->rank; i++)
        fits = table->shape[i - 1] == positions->shape[i];
    return fits ? MHA_OK
                : mha__fail(error, MHA_INVALID, name,
                            "expected F32 or F64, the shape of the positions of one axis, and then %zu pairs", pairs);
}

mha_status mha_rope_axes_tables(const mha_rope_axes *axes, const double *frequencies, const mha_view *positions,
                                const mha_view *cos_table, const mha_view *sin_table, mha_error *error)
{
    size_t pairs = 0;
    TRY(check_axes(axes, &pairs, error));
    if (!positions->data || positions->dtype != MHA_I64 || positions->rank < 2 || positions->rank > 3 ||
        positions->shape[0] != axes->axes)
        return mha__fail(error, MHA_INVALID, "positions", "expected I64 (%zu, T) or (%zu, B, T)", axes->axes,
                         axes->axes);
    TRY(check_table("cos_table", cos_table, positions, pairs, error));
    TRY(check_table("sin_table", sin_table, positions, pairs, error));
    const size_t B = positions->rank == 3 ? positions->shape[1] : 1, T = positions->shape[positions->rank - 1];
    for (size_t b = 0; b < B; b++)
        for (size_t t = 0; t < T; t++)
            for (size_t i = 0; i < pairs; i++) {
                const turn at = turn_of(axes, i);
                const size_t from[2][3] = {{at.axis, t}, {at.axis, b, t}}, to[2][3] = {{t, i}, {b, t, i}};
                const int by_batch = positions->rank == 3;
                const double angle = mha_view_get(positions, from[by_batch]) * frequencies[at.frequency];
                mha_view_set(cos_table, to[by_batch], cos(angle));
                mha_view_set(sin_table, to[by_batch], sin(angle));
            }
    return MHA_OK;
}
