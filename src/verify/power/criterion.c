/* How a test compares: what makes sense, and how often a violation contains what is allowed. */
#include "verify/power/criterion.h"

#include <math.h>

#include "base/base.h"

mha_status mha__criterion_check(const mha_criterion *k, mha_error *error)
{
    if (k->kind == MHA_CRITERION_CLOSE && (!(k->rtol >= 0) || !(k->atol >= 0)))
        return mha__fail(error, MHA_INVALID, k->rtol >= 0 ? "atol" : "rtol", "expected a number of 0 or more, found %g",
                         k->rtol >= 0 ? k->atol : k->rtol);
    if (k->kind == MHA_CRITERION_NMSE && !(k->limit >= 0))
        return mha__fail(error, MHA_INVALID, "nmse", "expected a number of 0 or more, found %g", k->limit);
    if (k->kind == MHA_CRITERION_COSINE && !(k->limit >= -1 && k->limit <= 1))
        return mha__fail(error, MHA_INVALID, "cosine", "expected a number from -1 to 1, found %g", k->limit);
    if (k->precision != MHA_F32 && k->precision != MHA_TF32 && k->precision != MHA_F16 && k->precision != MHA_BF16)
        return mha__fail(error, MHA_INVALID, "precision", "expected F32, TF32, F16 or BF16, found %s",
                         mha_dtype_name(k->precision));
    return MHA_OK;
}

/* 0 when there is no violation at all. */
static double times(double violation, double allowed)
{
    return violation > 0 ? violation / allowed : 0;
}

double mha__criterion_factor(const mha_criterion *k, const mha_difference *d, double square)
{
    if (isinf(d->max_abs))
        return INFINITY;
    switch (k->kind) {
    case MHA_CRITERION_NMSE: return times(d->rms * d->rms * (double)d->elements / square, k->limit);
    case MHA_CRITERION_COSINE: return times(1 - d->cosine, 1 - k->limit);
    default: return d->tolerance_factor;
    }
}
