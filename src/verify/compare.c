/* Measures the difference of two tensors in one pass. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "mha/compare.h"
#include "verify/tolerance/tolerance.h"

/* The element `at` elements after the view's first one, as a double. */
static double element(const mha_view *view, ptrdiff_t at)
{
    if (view->dtype == MHA_F32)
        return (double)((const float *)view->data)[at];
    if (view->dtype == MHA_F64)
        return ((const double *)view->data)[at];
    size_t size;
    mha_dtype_bytes(view->dtype, 1, &size, NULL);
    mha_view one = {.data = (char *)view->data + at * (ptrdiff_t)size, .dtype = view->dtype};
    return mha_view_get(&one, NULL);
}

/* The distance in ULPs. Floats are numbered in increasing order, so that a distance is a subtraction: numbers of
 * negative floats count down from zero, and both zeros are number 0. */
static int64_t number_of(double x, bool wide)
{
    const float narrow = (float)x;
    int32_t i;
    int64_t n;
    memcpy(&i, &narrow, sizeof i);
    memcpy(&n, &x, sizeof n);
    n = wide ? n : i;
    return n < 0 ? (wide ? INT64_MIN : INT32_MIN) - n : n;
}

static double ulps(double a, double e, bool wide)
{
    const int64_t x = number_of(a, wide), y = number_of(e, wide);
    return (double)(x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x);
}

/* A sum of squares that neither overflows nor underflows: scale^2 * sum, as in LAPACK's dlassq. */
typedef struct squares {
    double scale, sum;
} squares;

static void squares_add(squares *s, double x)
{
    x = fabs(x);
    if (x == 0)
        return;
    if (x > s->scale) {
        double r = s->scale / x;
        s->sum = 1 + s->sum * r * r;
        s->scale = x;
    } else {
        double r = x / s->scale;
        s->sum += r * r;
    }
}

static double squares_root(const squares *s)
{
    return s->scale * sqrt(s->sum);
}

/* Sums and maxima over the elements seen so far. */
typedef struct gathering {
    mha_difference *d;
    double rtol, atol;
    bool of_actual; /* rtol multiplies the actual number */
    bool wide;      /* ULPs are those of float64 */
    double worst_excess, worst_abs;
    squares error, actual, expected;
    double scale_a, scale_e; /* the dot product is kept as dot * scale_a * scale_e */
    double dot;
    size_t element, worst_element;
} gathering;

static void dot_add(gathering *g, double a, double e)
{
    if (fabs(a) > g->scale_a) {
        g->dot = g->scale_a > 0 ? g->dot * (g->scale_a / fabs(a)) : 0;
        g->scale_a = fabs(a);
    }
    if (fabs(e) > g->scale_e) {
        g->dot = g->scale_e > 0 ? g->dot * (g->scale_e / fabs(e)) : 0;
        g->scale_e = fabs(e);
    }
    if (g->scale_a > 0 && g->scale_e > 0)
        g->dot += (a / g->scale_a) * (e / g->scale_e);
}

static void gather(gathering *g, double a, double e)
{
    mha_difference *d = g->d;
    bool finite = isfinite(a) && isfinite(e);
    d->nan_actual += isnan(a) != 0;
    d->nan_expected += isnan(e) != 0;
    d->inf_actual += isinf(a) != 0;
    d->inf_expected += isinf(e) != 0;

    double distance = 0, relative = 0, ulp = 0, excess = 0, factor = 0;
    if (finite) {
        distance = fabs(a - e);
        if (distance > 0) {
            relative = distance / fabs(e);
            ulp = ulps(a, e, g->wide);
            double relative_part = g->rtol * fabs(g->of_actual ? a : e), tolerance = g->atol + relative_part;
            excess = fmax(distance - relative_part, 0);
            while (excess + relative_part < distance) /* rounding must not make `excess` too small */
                excess = nextafter(excess, INFINITY);
            factor = distance / tolerance;
            d->mismatches += !(distance <= tolerance);
        }
        squares_add(&g->error, distance);
        squares_add(&g->actual, a);
        squares_add(&g->expected, e);
        dot_add(g, a, e);
    } else if (a == e || (isnan(a) && isnan(e))) {
        distance = 0;
    } else {
        distance = relative = ulp = excess = factor = INFINITY;
        d->mismatches++;
    }
    d->max_abs = fmax(d->max_abs, distance);
    d->max_rel = fmax(d->max_rel, relative);
    d->max_ulp = fmax(d->max_ulp, ulp);
    d->tolerance_needed = fmax(d->tolerance_needed, excess);
    d->tolerance_factor = fmax(d->tolerance_factor, factor);
    if (g->element == 0 || excess > g->worst_excess || (excess == g->worst_excess && distance > g->worst_abs)) {
        g->worst_excess = excess;
        g->worst_abs = distance;
        g->worst_element = g->element;
        d->worst_actual = a;
        d->worst_expected = e;
    }
    g->element++;
}

static mha_status check(const mha_view *a, const mha_view *e, double rtol, double atol, mha_error *error)
{
    const bool equal = a->rank == e->rank && a->rank >= 0 && a->rank <= MHA_MAX_RANK &&
                       memcmp(a->shape, e->shape, (size_t)a->rank * sizeof *a->shape) == 0;
    char actual[128], expected[128];
    if (!equal)
        return mha__fail(error, MHA_INVALID, "shape", "expected %s, found %s",
                         mha__shape_text(expected, sizeof expected, e->shape, e->rank),
                         mha__shape_text(actual, sizeof actual, a->shape, a->rank));
    if (!(rtol >= 0) || !(atol >= 0))
        return mha__fail(error, MHA_INVALID, "tolerance", "expected rtol and atol of 0 or more, found %g and %g", rtol,
                         atol);
    const mha_view *views[] = {a, e};
    size_t size;
    for (int i = 0; i < 2; i++)
        if (mha_dtype_bytes(views[i]->dtype, 1, &size, NULL) != MHA_OK) /* quantised in blocks */
            return mha__fail(error, MHA_UNSUPPORTED, "type", "expected a plain element type, found %s",
                             mha_dtype_name(views[i]->dtype));
    size_t n = mha_view_elements(a);
    if (n == SIZE_MAX || (n > 0 && (!a->data || !e->data)))
        return mha__fail(error, MHA_INVALID, "data", "expected two tensors with data");
    return MHA_OK;
}

static mha_status compare(const mha_view *actual, const mha_view *expected, double rtol, double atol, bool of_actual,
                          mha_difference *difference, mha_error *error)
{
    TRY(check(actual, expected, rtol, atol, error));
    mha_difference d = {.rank = actual->rank, .elements = mha_view_elements(actual)};
    gathering g = {.d = &d, .rtol = rtol, .atol = atol, .of_actual = of_actual};
    g.wide = actual->dtype == MHA_F64 && expected->dtype == MHA_F64;

    size_t index[MHA_MAX_RANK] = {0};
    ptrdiff_t at_a = 0, at_e = 0;
    for (size_t n = 0; n < d.elements; n++) {
        gather(&g, element(actual, at_a), element(expected, at_e));
        for (int k = actual->rank - 1; k >= 0; k--) {
            at_a += actual->stride[k];
            at_e += expected->stride[k];
            if (++index[k] < actual->shape[k])
                break;
            at_a -= (ptrdiff_t)actual->shape[k] * actual->stride[k];
            at_e -= (ptrdiff_t)actual->shape[k] * expected->stride[k];
            index[k] = 0;
        }
    }

    size_t rest = g.worst_element;
    for (int k = d.rank - 1; k >= 0 && d.elements > 0; k--) {
        d.worst_index[k] = rest % actual->shape[k];
        rest /= actual->shape[k];
    }
    if (d.max_abs == INFINITY)
        d.rms = INFINITY;
    else if (d.elements > 0)
        d.rms = squares_root(&g.error) / sqrt((double)d.elements);
    double norm_a = squares_root(&g.actual), norm_e = squares_root(&g.expected);
    if (norm_a > 0 && norm_e > 0)
        d.cosine = g.dot / ((norm_a / g.scale_a) * (norm_e / g.scale_e));
    else
        d.cosine = norm_a == norm_e;
    d.cosine = fmax(-1, fmin(1, d.cosine));
    *difference = d;
    return MHA_OK;
}

mha_status mha_compare(const mha_view *actual, const mha_view *expected, double rtol, double atol,
                       mha_difference *difference, mha_error *error)
{
    return compare(actual, expected, rtol, atol, false, difference, error);
}

mha_status mha__compare_to_exact(const mha_view *exact, const mha_view *recorded, double rtol, double atol,
                                 mha_difference *difference, mha_error *error)
{
    return compare(exact, recorded, rtol, atol, true, difference, error);
}
