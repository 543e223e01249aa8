/* q/k normalisation: x * w / sqrt(mean(x^2) + eps), over each head or over the whole row (RMSNorm,
 * Zhang and Sennrich 2019; on queries and keys: Henry et al. 2020). */
#include <math.h>

#include "attention/steps/steps.h"

static double sum_of_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* x = x * factor * w for n features, of which the first takes weight number `first`. */
static void scale(float *x, size_t n, double factor, const mha_view *w, size_t first)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * factor * mha_view_get(w, (size_t[]){first + i}));
}

/* 1 / sqrt(mean(x^2) + eps) of n features. */
static double inverse_rms(double squares, size_t n, double eps)
{
    return 1.0 / sqrt(squares / (double)n + eps);
}

void mha__normalise(const mha__resolved *r, mha__side side, const mha_view *x)
{
    const mha_view *w = &r->weight[side == MHA_QUERIES ? MHA_Q_NORM : MHA_K_NORM];
    if (!w->data)
        return;
    const size_t heads = x->shape[2], d = x->shape[3];
    for (size_t b = 0; b < x->shape[0]; b++)
        for (size_t t = 0; t < x->shape[1]; t++) {
            double squares = 0;
            for (size_t g = 0; g < heads; g++) {
                float *head = mha__row(x, b, t, g);
                if (r->norm_over_row[side])
                    squares += sum_of_squares(head, d);
                else
                    scale(head, d, inverse_rms(sum_of_squares(head, d), d, r->norm_eps), w, 0);
            }
            if (!r->norm_over_row[side])
                continue;
            for (size_t g = 0; g < heads; g++)
                scale(mha__row(x, b, t, g), d, inverse_rms(squares, heads * d, r->norm_eps), w, g * d);
        }
}
