/* A backward in float32, loop by loop, with one bug if a name is given. It shares nothing with src. */
#include "support/float_backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/float_parts.h"

/* Turns a row by the angles of its position. */
static void turn(float *x, size_t d, size_t position)
{
    for (size_t c = 0; c < d / 2; c++) {
        const double a = (double)position * pow(10000, -2.0 * (double)c / (double)d);
        const float one = x[c], two = x[c + d / 2], co = (float)cos(a), si = (float)sin(a);
        x[c] = one * co - two * si;
        x[c + d / 2] = two * co + one * si;
    }
}

/* A row over its root mean square, times weights. */
static void normalise(const float_backward *f, float *x, const float *weights)
{
    const size_t d = f->d_k;
    float sum = 0;
    for (size_t c = 0; c < d; c++)
        sum += x[c] * x[c];
    const float r = sqrtf(sum / (f->norm_of_sum ? 1 : (float)d) + f->norm_eps);
    for (size_t c = 0; c < d; c++)
        x[c] = x[c] / r * weights[c];
}

void float_forward(float_head *x)
{
    const float_backward *f = x->f;
    const float_visibility visibility = float_visibility_right(x);
    for (size_t t = 0; t < f->T; t++)
        memcpy(x->Q[t], f->q + ((x->b * f->T + t) * f->h + x->i) * f->d_k, f->d_k * sizeof(float));
    for (size_t j = 0; j < f->S; j++)
        memcpy(x->K[j], f->k + ((x->b * f->S + j) * f->h_kv + x->g) * f->d_k, f->d_k * sizeof(float));
    for (size_t t = 0; f->norms && t < f->T; t++)
        normalise(f, x->Q[t], f->norms);
    for (size_t j = 0; f->norms && j < f->S; j++)
        normalise(f, x->K[j], f->norms + f->d_k);
    const size_t rotated = f->rope_dim ? f->rope_dim : f->d_k;
    for (size_t t = 0; f->rope && t < f->T; t++)
        turn(x->Q[t], rotated, t + f->offset);
    for (size_t j = 0; f->rope && j < f->S; j++)
        turn(x->K[j], rotated, j);
    for (size_t t = 0; t < f->T; t++) {
        float most = f->sinks ? f->sinks[x->i] : -INFINITY, sum = 0;
        for (size_t j = 0; j < f->S; j++) {
            float s = 0;
            for (size_t c = 0; c < f->d_k; c++)
                s += x->Q[t][c] * x->K[j][c];
            x->s[t][j] = s *= f->scale;
            s = f->softcap > 0 ? f->softcap * tanhf(s / f->softcap) : s;
            s += float_added(x, &visibility, t, j);
            x->seen[t][j] = float_sees(x, &visibility, t, j);
            x->P[t][j] = s;
            most = x->seen[t][j] && s > most ? s : most;
        }
        for (size_t j = 0; j < f->S; j++)
            sum += x->seen[t][j] ? expf(x->P[t][j] - most) : 0;
        sum += f->sinks ? expf(f->sinks[x->i] - most) : 0;
        x->lse[t] = most + logf(sum);
        for (size_t j = 0; j < f->S; j++)
            x->P[t][j] = x->seen[t][j] ? expf(x->P[t][j] - most) / sum : 0;
    }
    memcpy(x->all_lse[x->b][x->i], x->lse, sizeof x->lse);
}

const float *float_unrotated(float_head *x, char of, size_t t)
{
    const float_backward *f = x->f;
    float *row = x->apart[of == 'q' ? 0 : 1];
    memcpy(row, of == 'q' ? f->q + ((x->b * f->T + t) * f->h + x->i) * f->d_k
                          : f->k + ((x->b * f->S + t) * f->h_kv + x->g) * f->d_k, f->d_k * sizeof *row);
    if (f->norms)
        normalise(f, row, f->norms + (of == 'q' ? 0 : f->d_k));
    return row;
}

static void exchange(float *x, float *y, size_t n)
{
    for (size_t e = 0; e < n; e++) {
        const float kept = x[e];
        x[e] = y[e], y[e] = kept;
    }
}

/* Sets what is added to to zero. */
static void clear(const float_backward *f)
{
    memset(f->dk, 0, f->B * f->S * f->h_kv * f->d_k * sizeof(float));
    memset(f->dv, 0, f->B * f->S * f->h_kv * f->d_v * sizeof(float));
    if (f->dmask)
        memset(f->dmask, 0, f->mask_B * f->mask_h * f->T * f->S * sizeof(float));
    if (f->dslopes)
        memset(f->dslopes, 0, f->h * sizeof(float));
    if (f->dsinks)
        memset(f->dsinks, 0, f->h * sizeof(float));
    if (f->dnorms)
        memset(f->dnorms, 0, 2 * f->d_k * sizeof(float));
}

bool float_backward_run(const float_backward *f, const char *bug)
{
    float_head *x = calloc(1, sizeof *x);
    if (!x)
        abort();
    x->f = f, x->bug = bug, x->known = *bug == '\0';
    clear(f);
    for (int twice = 0; twice < 2; twice++) /* once for who reads what another head has */
        for (x->b = 0; x->b < f->B; x->b++)
            for (x->i = 0; x->i < f->h; x->i++) {
                x->g = x->i / (f->h / f->h_kv);
                float_forward(x);
                float_sums(x);
                if (twice == 0)
                    continue;
                float_weights(x);
                float_scores(x);
                float_products(x);
                float_added_gradients(x);
                float_gather(x);
            }
    const size_t n = f->B * f->T * f->h * f->d_k;
    if (float_is(x, "dq-dk-exchanged") && f->T == f->S && f->h == f->h_kv)
        exchange(f->dq, f->dk, n);
    if (float_is(x, "dk-dv-exchanged") && f->d_k == f->d_v)
        exchange(f->dk, f->dv, f->B * f->S * f->h_kv * f->d_k);
    const bool known = x->known;
    free(x);
    return known;
}
