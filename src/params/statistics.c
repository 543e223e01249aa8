/* Statistics of a tensor's elements: range, mean, rms, zeros, non-finite values. */
#include <math.h>

#include "base/quantised/decoders.h"
#include "mha/params.h"

mha_status mha_tensor_statistics(const mha_tensor *tensor, mha_statistics *statistics)
{
    mha_view view = mha_tensor_view(tensor);
    size_t n = mha_view_elements(&view), finite = 0, bytes;
    if (mha_dtype_bytes(view.dtype, 1, &bytes) != MHA_OK && !mha__block_kind_of(view.dtype))
        return MHA_UNSUPPORTED;
    if (!view.data && n != 0)
        return MHA_NO_MEMORY;
    mha_view flat = mha_view_of(view.data, view.dtype, 1, &n);
    mha_statistics s = {.min = INFINITY, .max = -INFINITY};
    double sum = 0, largest = 0, squares = 0; /* squares are in units of largest^2, which keeps them in range */
    for (size_t i = 0; i < n; i++) {
        double x = mha_view_get(&flat, &i);
        s.zeros += x == 0;
        if (!isfinite(x)) {
            s.non_finite++;
            continue;
        }
        finite++;
        sum += x;
        double a = fabs(x);
        if (a > largest) {
            squares = squares * (largest / a) * (largest / a) + 1;
            largest = a;
        } else if (a > 0)
            squares += (a / largest) * (a / largest);
        s.min = x < s.min ? x : s.min;
        s.max = x > s.max ? x : s.max;
    }
    s.mean = finite ? sum / (double)finite : NAN;
    s.rms = finite ? largest * sqrt(squares / (double)finite) : NAN;
    if (finite == 0)
        s.min = s.max = NAN;
    *statistics = s;
    return MHA_OK;
}
