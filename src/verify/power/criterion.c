/* How a test compares: limits that make sense, and how often a violation contains the allowed error. */
#include "verify/power/criterion.h"

#include <math.h>

#include "base/base.h"

const char *mha_criterion_name(mha_criterion_kind kind)
{
    static const char *const names[] = {"bound", "close", "nmse", "cosine", "either", "share", "errors"};
    return kind < sizeof names / sizeof *names ? names[kind] : "?";
}

static bool has_tolerance(const mha_criterion *k)
{
    return k->kind == MHA_CRITERION_CLOSE || k->kind == MHA_CRITERION_EITHER || k->kind == MHA_CRITERION_SHARE;
}

mha_status mha__criterion_check(const mha_criterion *k, mha_error *error)
{
    if (has_tolerance(k) && (!(k->rtol >= 0) || !(k->atol >= 0)))
        return mha__fail(error, MHA_INVALID, k->rtol >= 0 ? "atol" : "rtol", "expected a number of 0 or more, found %g",
                         k->rtol >= 0 ? k->atol : k->rtol);
    const bool cosine = k->kind == MHA_CRITERION_COSINE, nmse = k->kind == MHA_CRITERION_NMSE;
    if ((nmse || k->kind == MHA_CRITERION_ERRORS) && !(k->limit >= 0))
        return mha__fail(error, MHA_INVALID, nmse ? "nmse" : "errors", "expected a number of 0 or more, found %g",
                         k->limit);
    if ((cosine || k->kind == MHA_CRITERION_SHARE) && !(k->limit >= (cosine ? -1 : 0) && k->limit <= 1))
        return mha__fail(error, MHA_INVALID, cosine ? "cosine" : "share", "expected a number from %d to 1, found %g",
                         cosine ? -1 : 0, k->limit);
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

double mha__criterion_factor(const mha_criterion *k, const mha_view *made, const mha_view *right, double square,
                             double *max_abs)
{
    const double *x = made->data, *y = right->data;
    const size_t n = mha_view_elements(right);
    double worst = 0, most = 0;
    size_t outside = 0;
    for (size_t e = 0; e < n; e++) {
        const bool same = x[e] == y[e] || (isnan(x[e]) && isnan(y[e])), finite = isfinite(x[e]) && isfinite(y[e]);
        const double off = same     ? 0
                           : finite ? fabs(x[e] - y[e])
                                    : INFINITY,
                     relative = k->rtol * fabs(y[e]),
                     allowed = k->kind == MHA_CRITERION_EITHER ? fmax(k->atol, relative) : k->atol + relative,
                     part = same || !finite ? off : off / allowed;
        most = off > most ? off : most;
        worst = part > worst ? part : worst;
        outside += part > 1;
    }
    *max_abs = most;
    if (k->kind == MHA_CRITERION_SHARE)
        return times((double)outside / (double)n, 1 - k->limit);
    if (isinf(most) || (k->kind != MHA_CRITERION_NMSE && k->kind != MHA_CRITERION_COSINE))
        return isinf(most) ? INFINITY : worst;
    mha_difference d;
    (void)mha_compare(made, right, 0, 0, &d, NULL); /* cannot fail: the shapes are equal */
    return k->kind == MHA_CRITERION_COSINE ? times(1 - d.cosine, 1 - k->limit)
                                           : times(d.rms * d.rms * (double)n / square, k->limit);
}

void mha__power_count(mha_power *p, const mha_power_row *row)
{
    p->rejected += row->result == MHA_POWER_REJECTED;
    p->accepted += row->result == MHA_POWER_ACCEPTED;
    p->same += row->result == MHA_POWER_SAME;
    p->faint += row->result == MHA_POWER_ACCEPTED && row->excess <= 1;
}

void mha_power_clear(mha_power *result)
{
    const mha_allocator a = mha__allocator_default();
    mha__release(&a, result->rows, result->count * sizeof *result->rows);
    result->rows = NULL;
    result->count = 0;
}
