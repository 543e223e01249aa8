/* What is added to a score, as a float that stays finite. */
#ifndef MHA_ATTENTION_CORE_TERMS_TERM_H
#define MHA_ATTENTION_CORE_TERMS_TERM_H

#include <float.h>
#include <math.h>

static inline float mha__clamp(double x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

/* A number as a float: a finite double stays finite, -inf and NaN are what they are. */
static inline float mha__term(double x)
{
    return isfinite(x) ? mha__clamp(x) : (float)x;
}

/* The sum of two terms. A hidden key stays hidden whatever is added. */
static inline float mha__terms_sum(float a, float b)
{
    if (a == -INFINITY || b == -INFINITY)
        return -INFINITY;
    return isfinite(a) && isfinite(b) ? mha__clamp((double)a + b) : a + b;
}

#endif
