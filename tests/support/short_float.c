/* Floating types of 16 and 8 bits, written by their bit patterns. */
#include "base/base.h"
#include "support/short_float.h"

#include <math.h>

/* Of the 256 patterns of a type of 8 bits. */
static unsigned nearest(double x, mha_dtype type)
{
    unsigned best = 0;
    double least = INFINITY;
    for (unsigned pattern = 0; pattern < 256; pattern++) {
        uint8_t byte = (uint8_t)pattern;
        const mha_view view = mha_view_of(&byte, type, 0, NULL);
        const double distance = fabs(mha_view_get(&view, NULL) - x);
        if (distance < least || (distance == least && pattern % 2 == 0)) {
            least = distance;
            best = pattern;
        }
    }
    return best;
}

unsigned short_float_pattern(double x, mha_dtype type)
{
    switch (type) {
    case MHA_F16: return mha__f32_to_f16((float)x);
    case MHA_BF16: return mha__f32_to_bf16((float)x);
    default: return nearest(x, type);
    }
}

double short_float_cut(float x)
{
    int e;
    frexp((double)x, &e);
    e = (e < -125 ? -125 : e) - 8;
    return ldexp(trunc(ldexp((double)x, -e)), e);
}

void short_float_set(const mha_view *view, size_t i, unsigned pattern)
{
    if (view->dtype == MHA_F16 || view->dtype == MHA_BF16)
        ((uint16_t *)view->data)[i] = (uint16_t)pattern;
    else
        ((uint8_t *)view->data)[i] = (uint8_t)pattern;
}
