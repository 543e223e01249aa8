/* Summarises an array of three axes in a few numbers, and sorts measured ones. */
#include "cli/output/report.h"

#include <math.h>

static void take(summary *s, double x, const size_t index[3])
{
    if (!isfinite(x) && s->non_finite++ == 0)
        memcpy(s->first_non_finite, index, sizeof s->first_non_finite);
    s->mean += x;
    s->rms += x * x;
    if (!isnan(s->max_abs) && !(fabs(x) <= s->max_abs)) /* once NaN, it stays NaN */
        s->max_abs = fabs(x);
}

summary summarise(const mha_view *view)
{
    summary s = {0};
    size_t i[3];
    for (i[0] = 0; i[0] < view->shape[0]; i[0]++)
        for (i[1] = 0; i[1] < view->shape[1]; i[1]++)
            for (i[2] = 0; i[2] < view->shape[2]; i[2]++)
                take(&s, mha_view_get(view, i), i);
    double n = (double)mha_view_elements(view);
    s.mean /= n;
    s.rms = sqrt(s.rms / n);
    return s;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_numbers(double *numbers, size_t n)
{
    qsort(numbers, n, sizeof *numbers, by_size);
}
