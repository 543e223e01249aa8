/* Segments of the windows of an image that was rolled before it was cut. */
#include "base/base.h"
#include "mha/positions.h"

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
