/* q/k normalisation: x * w / sqrt(mean(x^2) + eps), over each head or over the whole row (RMSNorm,
 * Zhang and Sennrich 2019; on queries and keys: Henry et al. 2020). */
#include <math.h>

#include "attention/steps/steps.h"

static void normalise(float *x, size_t n, const mha_view *w, size_t w_from, double squares, size_t over, double eps)
{
    double factor = 1.0 / sqrt(squares / (double)over + eps);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * factor * mha_view_get(w, (size_t[]){w_from + i}));
}

static double sum_of_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

void mha__normalise(const mha__resolved *r, mha__side side, const mha_view *x)
{
    const mha_view *w = &r->weight[side == MHA_QUERIES ? MHA_Q_NORM : MHA_K_NORM];
    if (!w->data)
        return;
    size_t heads = x->shape[2], d = x->shape[3];
    bool over_row = r->norm_over_row[side];
    for (size_t b = 0; b < x->shape[0]; b++)
        for (size_t t = 0; t < x->shape[1]; t++) {
            double row = 0;
            if (over_row)
                for (size_t g = 0; g < heads; g++)
                    row += sum_of_squares(mha__row(x, b, t, g), d);
            for (size_t g = 0; g < heads; g++) {
                float *head = mha__row(x, b, t, g);
                normalise(head, d, w, over_row ? g * d : 0, over_row ? row : sum_of_squares(head, d),
                          over_row ? heads * d : d, r->norm_eps);
            }
        }
}
