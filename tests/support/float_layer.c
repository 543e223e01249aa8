/* A layer's backward in float32, matrix by matrix, with one bug if a name is given. It shares nothing with src. */
#include "support/float_layer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Intermediate results, each (rows, width); gradients begin with d. */
typedef struct numbers {
    float q[FL_MOST], k[FL_MOST], v[FL_MOST], u[FL_MOST], un[FL_MOST], kv[FL_MOST], cn[FL_MOST], wide[FL_MOST];
    float P[FL_MOST], heads[FL_MOST], z[FL_MOST], gated[FL_MOST];
    float d_gated[FL_MOST], d_heads[FL_MOST], dz[FL_MOST], dq[FL_MOST], dk[FL_MOST], dv[FL_MOST], du[FL_MOST],
        dun[FL_MOST], dkv[FL_MOST], dcn[FL_MOST], dc[FL_MOST], d_wide[FL_MOST], path[4][FL_MOST];
} numbers;

typedef struct run {
    const float_layer *l;
    const char *bug;
    bool known;
    numbers n;
} run;

static bool is(run *x, const char *name)
{
    const bool found = strcmp(x->bug, name) == 0;
    x->known |= found;
    return found;
}

static const float eps = 1e-6f;

/* ---------------------------------------------------------------- matrices */

static const float *bias_of(const float_layer *l, mha_weight W, mha_weight *bias)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (mha_weight_at((mha_weight)w)->kind == MHA_WEIGHT_BIAS && mha_weight_at((mha_weight)w)->of == W) {
            *bias = (mha_weight)w;
            return l->weight[w];
        }
    *bias = W;
    return NULL;
}

/* y = x W + b */
static void forward(const float_layer *l, mha_weight W, size_t rows, size_t in, size_t out, const float *x, float *y)
{
    mha_weight bias;
    const float *b = bias_of(l, W, &bias);
    for (size_t e = 0; e < rows * out; e++) {
        y[e] = b ? b[e % out] : 0;
        for (size_t k = 0; k < in; k++)
            y[e] += x[e / out * in + k] * l->weight[W][k * out + e % out];
    }
}

/* A product on its way back: rows of a batch row, and which heads its dy, or of W_O its x, has. */
typedef struct product {
    mha_weight W;
    size_t T, in, out, heads;
    const float *x, *dy;
    const float *raw; /* what x is made of, by a norm or a gate; NULL */
} product;

/* Whether row `row` counts in dW and db. */
static bool counts(run *x, const product *p, size_t row)
{
    const size_t t = row % p->T, b = row / p->T;
    unsigned first = 0, last = 0;
    x->known |= sscanf(x->bug, "parameter-of-first-block-%u", &first) == 1 ||
                sscanf(x->bug, "parameter-of-last-block-%u", &last) == 1;
    return !(is(x, "parameter-of-first-batch-row") && b > 0) &&
           !(is(x, "parameter-of-last-batch-row") && b + 1 < x->l->B) &&
           !(is(x, "parameter-of-first-row") && t > 0) && !(is(x, "parameter-of-last-row") && t + 1 < p->T) &&
           !(is(x, "parameter-of-all-but-last-row") && t + 1 == p->T) && !(first > 0 && t >= first) &&
           !(last > 0 && t < (p->T - 1) / last * last);
}

/* The input that is read for x. */
static const float *input_of(run *x, const product *p)
{
    const float_layer *l = x->l;
    const bool alike = l->T == l->S && l->E_q == l->E_k && l->E_k == l->E_v;
    const float *other = !alike                         ? p->x
                         : is(x, "parameter-of-queries")  ? l->x_q
                         : is(x, "parameter-of-keys")   ? l->x_k
                         : is(x, "parameter-of-values") ? l->x_v
                                                        : p->x;
    const bool raw = (p->W == MHA_W_O && is(x, "parameter-of-ungated")) ||
                     (p->W != MHA_W_O && is(x, "parameter-of-unnormalised"));
    const bool of_input = p->x == l->x_q || p->x == l->x_k || p->x == l->x_v;
    return raw && p->raw ? p->raw : of_input ? other : p->x;
}

/* Number c of row `row` of what is (heads, T, width) in memory and is read as (T, heads, width). */
static float by_heads(const product *p, const float *of, size_t width, size_t row, size_t c)
{
    const size_t at = row % p->T * width + c, each = width / p->heads, head = at / (p->T * each), t = at / each % p->T;
    return of[(row / p->T * p->T + t) * width + head * each + at % each];
}

/* The column of [k_n, v], head by head, that stands at a column of [all k_n, all v]. */
static size_t part_of(const float_layer *l, size_t at)
{
    size_t columns[FL_MOST] = {0}, n = 0;
    const size_t d_n = l->d_k - l->d_r, wide = d_n + l->d_v;
    for (int of_v = 0; of_v < 2; of_v++)
        for (size_t c = 0; c < l->h * wide; c++)
            if ((c % wide >= d_n) == of_v)
                columns[n++] = c;
    return columns[at];
}

static void weight_back(run *x, const product *p)
{
    const float_layer *l = x->l;
    const size_t rows = l->B * p->T;
    const float *in = input_of(x, p);
    float *dW = l->d_weight[p->W], made[FL_MOST] = {0}, sum[FL_MOST] = {0};
    mha_weight bias;
    bias_of(l, p->W, &bias);
    for (size_t row = 0; row < rows; row++) {
        const size_t t = row % p->T, first = row - t,
                     from = is(x, "parameter-of-next-row")         ? first + (t + 1) % p->T
                            : is(x, "parameter-of-previous-row")   ? first + (t + p->T - 1) % p->T
                            : is(x, "parameter-of-next-batch-row") ? (row + p->T) % rows
                            : is(x, "parameter-of-first-row-of-x") ? first
                            : is(x, "parameter-of-first-batch-row-of-x") ? t
                                                                         : row;
        const size_t of_dy = is(x, "parameter-of-next-row-of-dy")          ? first + (t + 1) % p->T
                             : is(x, "parameter-of-previous-row-of-dy")    ? first + (t + p->T - 1) % p->T
                             : is(x, "parameter-of-first-batch-row-of-dy") ? t
                                                                           : row,
                     turn = is(x, "parameter-of-next-head-of-dy")       ? p->out / p->heads
                            : is(x, "parameter-of-previous-head-of-dy") ? p->out - p->out / p->heads
                                                                        : 0;
        const bool bare = is(x, "parameter-of-unweighted") && p->raw && p->W != MHA_W_O;
        const float *w = l->weight[p->W == MHA_W_Q ? MHA_QA_NORM : MHA_KVA_NORM];
        for (size_t c = 0; counts(x, p, row) && c < p->out; c++) {
            const float dy = is(x, "parameter-of-dy-heads-first") && p->W != MHA_W_O
                                 ? by_heads(p, p->dy, p->out, row, c)
                                 : p->dy[of_dy * p->out + (p->W == MHA_W_O ? c : (c + turn) % p->out)];
            sum[c] += p->dy[row * p->out + c];
            for (size_t k = 0; k < p->in; k++)
                made[k * p->out + c] += dy * (is(x, "parameter-of-heads-first") && p->W == MHA_W_O
                                                  ? by_heads(p, in, p->in, row, k) : in[from * p->in + k]) /
                                           (bare ? w[k] : 1);
        }
    }
    for (size_t e = 0; e < p->in * p->out; e++) {
        const size_t r = e / p->out, c = e % p->out, n = p->W == MHA_W_O ? p->in : p->out, at = p->W == MHA_W_O ? r : c,
                     moved = is(x, "parameter-by-features") ? at % p->heads * (n / p->heads) + at / p->heads
                             : is(x, "parameter-parts-first") && p->W == MHA_W_KVB ? part_of(l, at)
                                                                                   : at;
        dW[e] = is(x, "parameter-transposed") ? made[e % p->in * p->out + e / p->in]
                : p->W == MHA_W_O             ? made[moved * p->out + c]
                                              : made[r * p->out + moved];
    }
    const bool first = is(x, "parameter-of-first-head"), last = is(x, "parameter-of-last-head");
    for (size_t e = 0; e < p->in * p->out && (first || last); e++) {
        const size_t at = p->W == MHA_W_O ? e / p->out : e % p->out, n = p->W == MHA_W_O ? p->in : p->out;
        dW[e] *= at / (n / p->heads) == (first ? 0 : p->heads - 1);
    }
    for (size_t c = 0; bias != p->W && (first || last) && p->W != MHA_W_O && c < p->out; c++)
        sum[c] *= c / (p->out / p->heads) == (first ? 0 : p->heads - 1);
    for (size_t c = 0; bias != p->W && l->d_weight[bias] && c < p->out; c++) {
        const size_t each = p->out / p->heads;
        float over = 0;
        for (size_t i = 0; i < p->heads; i++)
            over += sum[i * each + c % each];
        l->d_weight[bias][c] = is(x, "parameter-over-heads") && p->W != MHA_W_O ? over
                               : is(x, "parameter-by-features") && p->W != MHA_W_O
                                   ? sum[c % p->heads * each + c / p->heads] : sum[c];
    }
}

/* dx = dy W^T */
static void rows_back(const float_layer *l, const product *p, const float *W, bool transposed, float *dx)
{
    for (size_t e = 0; e < l->B * p->T * p->in; e++) {
        dx[e] = 0;
        for (size_t c = 0; c < p->out; c++)
            dx[e] += p->dy[e / p->in * p->out + c] *
                     (transposed ? W[c * p->in + e % p->in] : W[e % p->in * p->out + c]);
    }
}

/* ---------------------------------------------------------------- norms of latents */

static void normalise(const float *x, const float *w, size_t rows, size_t n, size_t step, float *y)
{
    for (size_t r = 0; r < rows; r++) {
        float squares = 0;
        for (size_t c = 0; c < n; c++)
            squares += x[r * step + c] * x[r * step + c];
        for (size_t c = 0; c < n; c++)
            y[r * n + c] = x[r * step + c] / sqrtf(squares / (float)n + eps) * w[c];
    }
}

static void normalise_back(run *x, char side, const float *in, size_t step, size_t n, size_t rows, const float *w,
                           const float *dy, float *dw, float *dx)
{
    const bool skips = is(x, "norm-skipped") || is(x, side == 'q' ? "norm-skipped-q" : "norm-skipped-k"),
               lone = is(x, "norm-second-term-missing") ||
                      is(x, side == 'q' ? "norm-second-term-missing-q" : "norm-second-term-missing-k"),
               bare = is(x, "norm-unweighted") || is(x, side == 'q' ? "norm-unweighted-q" : "norm-unweighted-k");
    memset(dw, 0, n * sizeof *dw);
    for (size_t r = 0; r < rows; r++) {
        float squares = 0, along = 0;
        for (size_t c = 0; c < n; c++)
            squares += in[r * step + c] * in[r * step + c];
        const float divisor = sqrtf(squares / (float)n + eps);
        for (size_t c = 0; c < n; c++) {
            along += lone ? 0 : dy[r * n + c] * (bare ? 1 : w[c]) * in[r * step + c] / divisor / (float)n;
            dw[c] += dy[r * n + c] * in[r * step + c] / divisor;
        }
        for (size_t c = 0; c < n; c++)
            dx[r * step + c] =
                skips ? dy[r * n + c] * w[c]
                      : (dy[r * n + c] * (bare ? 1 : w[c]) - in[r * step + c] / divisor * along) / divisor;
    }
}

/* ---------------------------------------------------------------- heads */

static void make_rows(run *x)
{
    const float_layer *l = x->l;
    numbers *n = &x->n;
    const size_t queries = l->B * l->T, keys = l->B * l->S, d_n = l->d_k - l->d_r, wide = d_n + l->d_v;
    if (l->q_rank) {
        forward(l, MHA_W_QA, queries, l->E_q, l->q_rank, l->x_q, n->u);
        normalise(n->u, l->weight[MHA_QA_NORM], queries, l->q_rank, l->q_rank, n->un);
    }
    forward(l, MHA_W_Q, queries, l->q_rank ? l->q_rank : l->E_q, l->h * l->d_k, l->q_rank ? n->un : l->x_q, n->q);
    if (!l->kv_rank) {
        forward(l, MHA_W_K, keys, l->E_k, l->h_kv * l->d_k, l->x_k, n->k);
        forward(l, MHA_W_V, keys, l->E_v, l->h_kv * l->d_v, l->x_v, n->v);
        return;
    }
    forward(l, MHA_W_KVA, keys, l->E_k, l->kv_rank + l->d_r, l->x_k, n->kv);
    normalise(n->kv, l->weight[MHA_KVA_NORM], keys, l->kv_rank, l->kv_rank + l->d_r, n->cn);
    forward(l, MHA_W_KVB, keys, l->kv_rank, l->h * wide, n->cn, n->wide);
    for (size_t r = 0; r < keys; r++)
        for (size_t i = 0; i < l->h; i++) {
            for (size_t c = 0; c < l->d_k; c++)
                n->k[(r * l->h + i) * l->d_k + c] = c < d_n ? n->wide[(r * l->h + i) * wide + c]
                                                            : n->kv[r * (l->kv_rank + l->d_r) + l->kv_rank + c - d_n];
            for (size_t c = 0; c < l->d_v; c++)
                n->v[(r * l->h + i) * l->d_v + c] = n->wide[(r * l->h + i) * wide + d_n + c];
        }
}

/* Attention of head i of batch row b, forward, or with `back` its gradients. */
static void attend(run *x, size_t b, size_t i, bool back)
{
    const float_layer *l = x->l;
    numbers *n = &x->n;
    const size_t g = i / (l->h / l->h_kv);
    const float scale = 1 / sqrtf((float)l->d_k);
    for (size_t t = 0; t < l->T; t++) {
        const size_t row = (b * l->T + t) * l->h + i;
        float *P = n->P + row * l->S, sum = 0, D = 0;
        const float *q = n->q + row * l->d_k, *dO = n->d_heads + row * l->d_v;
        for (size_t j = 0; j < l->S && !back; j++) {
            const float *k = n->k + ((b * l->S + j) * l->h_kv + g) * l->d_k;
            float s = 0;
            for (size_t c = 0; c < l->d_k; c++)
                s += q[c] * k[c];
            sum += P[j] = expf(scale * s);
        }
        for (size_t c = 0; c < l->d_v && !back; c++) {
            n->heads[row * l->d_v + c] = 0;
            for (size_t j = 0; j < l->S; j++)
                n->heads[row * l->d_v + c] += P[j] / sum * n->v[((b * l->S + j) * l->h_kv + g) * l->d_v + c];
        }
        for (size_t j = 0; j < l->S && !back; j++)
            P[j] /= sum;
        for (size_t c = 0; c < l->d_v && back && !is(x, "d-missing"); c++)
            D += dO[c] * n->heads[row * l->d_v + c];
        for (size_t j = 0; j < l->S && back; j++) {
            const size_t key = (b * l->S + j) * l->h_kv + g;
            float dP = 0;
            for (size_t c = 0; c < l->d_v; c++)
                dP += dO[c] * n->v[key * l->d_v + c];
            for (size_t c = 0; c < l->d_v; c++)
                n->dv[key * l->d_v + c] += P[j] * dO[c];
            for (size_t c = 0; c < l->d_k; c++) {
                n->dq[row * l->d_k + c] += scale * P[j] * (dP - D) * n->k[key * l->d_k + c];
                n->dk[key * l->d_k + c] += scale * P[j] * (dP - D) * q[c];
            }
        }
    }
}

static float slope_of(run *x, float z, float each)
{
    const float s = 1 / (1 + expf(-z)), right = s * (1 - s);
    return is(x, "gate-slope-missing")         ? 1
           : is(x, "gate-slope-of-s")          ? s
           : is(x, "gate-slope-of-1-less-s")   ? 1 - s
           : is(x, "gate-slope-of-silu")       ? s + z * right
           : is(x, "gate-slope-of-tanh")       ? 1 - s * s
           : is(x, "gate-slope-of-z")          ? z * (1 - z)
           : is(x, "gate-of-gated-heads")      ? s * right
           : is(x, "gate-mean-of-head")        ? right / each
           : is(x, "gate-detached")            ? 0
                                               : right;
}

/* From dO to the gradients of heads and gates, and of W_O. */
static void end_back(run *x)
{
    const float_layer *l = x->l;
    numbers *n = &x->n;
    const size_t rows = l->B * l->T, all = l->h * l->d_v, each = l->gates ? all / l->gates : 1;
    const float *read = l->gates ? n->gated : n->heads;
    const product p = {MHA_W_O, l->T, all, l->E_o, l->h, read, l->dO, l->gates ? n->heads : NULL};
    weight_back(x, &p);
    rows_back(l, &p, l->weight[MHA_W_O], is(x, "heads-untransposed") && !l->gates && all == l->E_o, n->d_gated);
    if (is(x, "heads-unprojected") && !l->gates && all == l->E_o)
        memcpy(n->d_gated, l->dO, rows * all * sizeof(float));
    for (size_t e = 0; e < rows * all; e++) {
        const size_t r = e / all, c = e % all, at = (c / l->d_v * l->T + r % l->T) * l->d_v + c % l->d_v;
        const float s = l->gates ? 1 / (1 + expf(-n->z[r * l->gates + c / each])) : 1;
        n->d_heads[e] = n->d_gated[e] * (is(x, "heads-ungated") ? 1 : is(x, "heads-gated-twice") ? s * s : s);
        if (is(x, "heads-of-other-order") && !l->gates)
            n->d_heads[e] = n->d_gated[r / l->T * l->T * all + at];
    }
    for (size_t e = 0; e < rows * l->gates; e++) {
        float sum = 0;
        for (size_t c = 0; c < each; c++)
            sum += n->d_gated[e * each + c] * (is(x, "gate-without-heads") ? 1 : n->heads[e * each + c]);
        n->dz[e] = sum * slope_of(x, n->z[e], (float)each);
    }
}

/* The gradient of the input from each path: of queries, keys, values and gates. */
static void paths_back(run *x)
{
    const float_layer *l = x->l;
    numbers *n = &x->n;
    const size_t queries = l->B * l->T, keys = l->B * l->S, d_n = l->d_k - l->d_r, wide = d_n + l->d_v,
                 rank = l->kv_rank + l->d_r;
    if (l->gates) {
        const product gate = {MHA_W_G, l->T, l->E_q, l->gates, l->h, l->x_q, n->dz, NULL};
        weight_back(x, &gate), rows_back(l, &gate, l->weight[MHA_W_G], false, n->path[3]);
    }
    const product of_q = {MHA_W_Q, l->T, l->q_rank ? l->q_rank : l->E_q, l->h * l->d_k, l->h,
                          l->q_rank ? n->un : l->x_q, n->dq, l->q_rank ? n->u : NULL};
    const bool turned = is(x, "input-untransposed");
    const bool square_q = l->E_q == l->h * l->d_k, square_k = l->E_k == l->h_kv * l->d_k,
               square_v = l->E_v == l->h_kv * l->d_v, all = square_q && square_k && square_v,
               same = l->E_k == l->E_v && l->d_k == l->d_v;
    weight_back(x, &of_q);
    rows_back(l, &of_q, l->weight[MHA_W_Q],
              !l->kv_rank && ((turned && all) || (is(x, "input-untransposed-q") && square_q)),
              l->q_rank ? n->dun : n->path[0]);
    if (l->q_rank) {
        normalise_back(x, 'q', n->u, l->q_rank, l->q_rank, queries, l->weight[MHA_QA_NORM], n->dun,
                       l->d_weight[MHA_QA_NORM], n->du);
        const product p = {MHA_W_QA, l->T, l->E_q, l->q_rank, 1, l->x_q, n->du, NULL};
        weight_back(x, &p), rows_back(l, &p, l->weight[MHA_W_QA], false, n->path[0]);
    }
    if (!l->kv_rank) {
        const product of_k = {MHA_W_K, l->S, l->E_k, l->h_kv * l->d_k, l->h_kv, l->x_k, n->dk, NULL},
                      of_v = {MHA_W_V, l->S, l->E_v, l->h_kv * l->d_v, l->h_kv, l->x_v, n->dv, NULL};
        const bool swaps = is(x, "input-exchanged") && same, by_v = is(x, "input-keys-by-values") && same;
        weight_back(x, &of_k), weight_back(x, &of_v);
        rows_back(l, &of_k, l->weight[swaps || by_v ? MHA_W_V : MHA_W_K],
                  (turned && all) || (is(x, "input-untransposed-k") && square_k), n->path[1]);
        rows_back(l, &of_v, l->weight[swaps ? MHA_W_K : MHA_W_V],
                  (turned && all) || (is(x, "input-untransposed-v") && square_v), n->path[2]);
        if (is(x, "result-of-another") && same) {
            memcpy(n->wide, l->d_weight[MHA_W_K], l->E_k * l->h_kv * l->d_k * sizeof(float));
            memcpy(l->d_weight[MHA_W_K], l->d_weight[MHA_W_V], l->E_k * l->h_kv * l->d_k * sizeof(float));
            memcpy(l->d_weight[MHA_W_V], n->wide, l->E_k * l->h_kv * l->d_k * sizeof(float));
        }
        return;
    }
    memset(n->dkv, 0, sizeof n->dkv);
    for (size_t r = 0; r < keys; r++)
        for (size_t i = 0; i < l->h; i++) {
            const float *dk = n->dk + (r * l->h + i) * l->d_k;
            const bool drops = (is(x, "latent-rotated-of-first-head") && i > 0) ||
                               (is(x, "latent-rotated-of-last-head") && i + 1 < l->h) ||
                               is(x, "latent-rotated-missing");
            for (size_t c = 0; c < d_n; c++)
                n->d_wide[(r * l->h + i) * wide + c] = is(x, "latent-keys-missing") ? 0 : dk[c];
            for (size_t c = 0; c < l->d_v; c++)
                n->d_wide[(r * l->h + i) * wide + d_n + c] = n->dv[(r * l->h + i) * l->d_v + c];
            for (size_t c = 0; c < l->d_r && !drops; c++)
                n->dkv[r * rank + l->kv_rank + c] += dk[d_n + c] / (is(x, "latent-rotated-mean") ? (float)l->h : 1);
        }
    for (size_t r = 0; r < keys; r++)
        memcpy(n->dc + r * l->kv_rank, n->kv + r * rank, l->kv_rank * sizeof(float));
    const product of_wide = {MHA_W_KVB, l->S, l->kv_rank, l->h * wide, l->h, n->cn, n->d_wide, n->dc};
    weight_back(x, &of_wide), rows_back(l, &of_wide, l->weight[MHA_W_KVB], false, n->dcn);
    normalise_back(x, 'k', n->kv, rank, l->kv_rank, keys, l->weight[MHA_KVA_NORM], n->dcn, l->d_weight[MHA_KVA_NORM],
                   n->dkv);
    const product of_latent = {MHA_W_KVA, l->S, l->E_k, rank, 1, l->x_k, n->dkv, NULL};
    weight_back(x, &of_latent), rows_back(l, &of_latent, l->weight[MHA_W_KVA], false, n->path[1]);
}

/* Adds up what the paths give. */
static void add_paths(run *x)
{
    const float_layer *l = x->l;
    const size_t of_path[4] = {0, l->key_given ? 1 : 0, l->value_given ? 2 : l->key_given ? 1 : 0, 0},
                 sizes[4] = {l->B * l->T * l->E_q, l->B * l->S * l->E_k, l->B * l->S * l->E_v, l->B * l->T * l->E_q};
    static const char *const lost[] = {"input-without-queries", "input-without-keys", "input-without-values",
                                       "input-without-gate"},
                             *const alone[] = {"input-of-queries", "input-of-keys", "input-of-values", ""},
                             *const twice[] = {"input-queries-twice", "input-keys-twice", "input-values-twice", ""};
    const bool has[4] = {true, true, !l->kv_rank, l->gates > 0};
    for (int i = 0; i < 3; i++)
        if (l->d_x[i])
            memset(l->d_x[i], 0, sizes[i] * sizeof(float));
    for (int path = 0; path < 4; path++) {
        bool drops = is(x, lost[path]);
        for (int other = 0; other < 3; other++)
            drops |= is(x, alone[other]) && other != path && path < 3;
        const float times = drops ? 0 : *twice[path] && is(x, twice[path]) ? 2 : 1;
        for (size_t e = 0; has[path] && e < sizes[path]; e++)
            l->d_x[of_path[path]][e] += times * x->n.path[path][e];
    }
}

bool float_layer_run(const float_layer *l, const char *bug)
{
    run *x = calloc(1, sizeof *x);
    if (!x)
        abort();
    numbers *n = &x->n;
    x->l = l, x->bug = bug, x->known = *bug == '\0';
    const size_t rows = l->B * l->T, all = l->h * l->d_v;
    make_rows(x);
    for (size_t e = 0; e < l->B * l->h; e++)
        attend(x, e / l->h, e % l->h, false);
    if (l->gates)
        forward(l, MHA_W_G, rows, l->E_q, l->gates, l->x_q, n->z);
    for (size_t e = 0; e < rows * all && l->gates; e++)
        n->gated[e] = n->heads[e] / (1 + expf(-n->z[e / (all / l->gates)]));
    end_back(x);
    for (size_t e = 0; e < l->B * l->h; e++)
        attend(x, e / l->h, e % l->h, true);
    paths_back(x);
    add_paths(x);
    const bool known = x->known;
    free(x);
    return known;
}
