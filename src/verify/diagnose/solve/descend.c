/* Finds the numbers of a bug by least squares. */
#include <math.h>
#include <string.h>

#include "base/dot.h"
#include "verify/diagnose/solve/solve.h"

/* The number of equal ratio to its neighbours: x + step times x where numbers keep their sign, else x + step. */
static double moved(const mha__bug_entry *e, double x, double step)
{
    return e->low * e->high > 0 ? copysign(fmin(fmax(fabs(x) * exp(step), e->low), e->high), x) : x + step;
}

/* The sum of squared differences of these numbers in the region of the second pass; stores the differences. */
static double evaluate(const mha__descent *m, size_t index, const double *x, double *differences)
{
    const mha__candidate one = {.a = (int)index, .b = -1, .numbers = x, .order = 1};
    mha__search_differences(m->s, m->worker, &m->s->region_second, &one, differences);
    return mha__dot(differences, differences, m->elements);
}

bool mha__descent_begin(mha__search *s, size_t worker, size_t n, size_t free_ones, mha__descent *m)
{
    const size_t elements = mha__search_elements(s, &s->region_second), square = free_ones * free_ones;
    const size_t numbers = (free_ones + 2) * elements + 2 * (square + free_ones) + 2 * n;
    *m = (mha__descent){.s = s, .worker = worker, .elements = elements};
    m->r = mha__arena_take(&s->pool, numbers * sizeof *m->r);
    if (!m->r)
        return false;
    m->tried = m->r + elements;
    m->J = m->tried + elements;
    m->products = m->J + free_ones * elements;
    m->slope = m->products + square;
    m->normal = m->slope + free_ones;
    m->step = m->normal + square;
    m->x = m->step + free_ones;
    m->other = m->x + n;
    return true;
}

void mha__descend(const mha__descent *m, size_t index, size_t n)
{
    enum { MOST_STEPS = 40 };
    const mha__bug_entry *e = mha__solved_entry_at(index);
    const double little = 1e-3;
    double tiny = 1e-6, damping = 1e-3, now = evaluate(m, index, m->x, m->r);
    for (int step = 0; step < MOST_STEPS && damping < 1e6 && now > 0; step++) {
        memcpy(m->other, m->x, n * sizeof *m->x);
        for (size_t k = 0; k < n; k++) {
            double *column = m->J + k * m->elements;
            m->other[k] = moved(e, m->x[k], tiny);
            (void)evaluate(m, index, m->other, column);
            for (size_t i = 0; i < m->elements; i++)
                column[i] = (column[i] - m->r[i]) / tiny;
            m->other[k] = m->x[k];
        }
        memset(m->products, 0, n * n * sizeof *m->products), memset(m->slope, 0, n * sizeof *m->slope);
        mha__equations_add(m->J, n, m->elements, m->r, m->products, m->slope);
        double gained = 0;
        while (damping < 1e6 && gained <= 0) {
            memcpy(m->normal, m->products, n * n * sizeof *m->normal);
            memcpy(m->step, m->slope, n * sizeof *m->step);
            for (size_t i = 0; i < n; i++)
                if ((m->normal[i * n + i] *= 1 + damping) == 0)
                    m->normal[i * n + i] = 1; /* a number without effect stays */
            if (!mha__equations_solve(m->normal, n, 0, m->step))
                return;
            for (size_t k = 0; k < n; k++)
                m->other[k] = moved(e, m->x[k], -m->step[k]);
            const double then = evaluate(m, index, m->other, m->tried);
            gained = now - then;
            if (gained > 0) {
                memcpy(m->x, m->other, n * sizeof *m->x);
                memcpy(m->r, m->tried, m->elements * sizeof *m->r);
                now = then;
            }
            damping *= gained > 0 ? 0.01 : 100;
        }
        if (gained > little * now)
            continue;
        if (n > 1 || tiny == little) /* the minimum, or so shallow that nothing is there */
            return;
        tiny = damping = little; /* scores that are rounded to float32 change in steps */
    }
}
