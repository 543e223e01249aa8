/* The softmax of a variant, over keys or over a wrong axis. */
#include <math.h>

#include "verify/variant_forward/variant_bench.h"

/* Softmax over n scores `step` apart; the `n_rest` logits of `rest` join the denominator. */
static void softmax(const mha__knobs *k, double *s, const unsigned char *visible, size_t n, size_t step,
                    const double *rest, size_t n_rest, double *lse)
{
    double most = -INFINITY;
    bool any = n_rest > 0, wrong = false;
    for (size_t r = 0; r < n_rest; r++)
        most = fmax(most, rest[r]);
    for (size_t j = 0; j < n; j++)
        if (visible[j * step]) {
            any = true;
            wrong |= isnan(s[j * step]);
            most = fmax(most, s[j * step]);
        }
    if (!any) {
        for (size_t j = 0; j < n; j++)
            s[j * step] = k->empty_nan ? NAN : 0;
        *lse = k->empty_nan ? NAN : -INFINITY;
        return;
    }
    if (wrong || isinf(most))
        most = NAN;
    double sum = 0;
    for (size_t r = 0; r < n_rest; r++)
        sum += exp(rest[r] - most);
    for (size_t j = 0; j < n; j++) {
        double *x = &s[j * step];
        *x = visible[j * step] ? exp(*x - most) : 0;
        sum += *x;
    }
    for (size_t j = 0; j < n; j++)
        if (visible[j * step] || isnan(sum))
            s[j * step] /= sum;
    *lse = most + log(sum);
}

static void weigh_over_keys(mha__variant_bench *w, const mha__knobs *k)
{
    const mha_case *c = w->inputs->c;
    const double *sinks = k->use_sinks ? w->inputs->sinks : NULL;
    const size_t S = w->inputs->S + mha__extra_rows(c);
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            const size_t row = h * c->T_q + i;
            double rest[2];
            size_t n = 0;
            if (!w->scored[row])
                continue;
            if (sinks && sinks[h] != -INFINITY)
                rest[n++] = sinks[h];
            if (k->plus_one)
                rest[n++] = 0;
            softmax(k, w->scores + row * S, w->visible + row * S, S, 1, rest, n, &w->lse[row]);
        }
}

void mha__variant_weigh(mha__variant_bench *w, const mha__knobs *k)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c), rows = c->T_q * S;
    double unused;
    if (k->axis == AXIS_KEYS)
        weigh_over_keys(w, k);
    else if (k->axis == AXIS_QUERIES)
        for (size_t h = 0; h < c->H; h++)
            for (size_t j = 0; j < S; j++)
                softmax(k, w->scores + h * rows + j, w->visible + h * rows + j, c->T_q, S, NULL, 0, &unused);
    else
        for (size_t at = 0; at < rows; at++)
            if (w->scored[at / S])
                softmax(k, w->scores + at, w->visible + at, c->H, rows, NULL, 0, &unused);
}
