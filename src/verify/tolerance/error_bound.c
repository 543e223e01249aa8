/* The error bound: how far rounding may move each stage of a forward, derived once.
 *
 * u is the unit roundoff, gamma(n) = n u / (1 - n u). A sum of n products computed in any order (with or
 * without fused multiply-add, blocked, in any number of accumulators) is off by at most gamma(n) times the
 * sum of the absolute products (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.5).
 * eta is the smallest subnormal: what a product, a quotient or a number rounded to the type can lose by underflow (a
 * sum loses nothing by it). Where a number on the way may leave the range of the type, infinity and NaN may come out of
 * it, and the bound is infinite, as is that of whatever follows. No sum is larger on the way than the sum of the
 * absolute products, which mha compares with the range; the scale is taken to be applied so that it leads out of
 * the range only where the scores themselves, or q.k, may.
 *
 *   projection   q = x W + b. By Cauchy-Schwarz |x||W| <= |x|_2 |W column|_2, so each element is off by
 *                  E_q = gamma(d_q + 2) (x_q W_Q + b_Q) + (d_q + 3 + sqrt(d_q) (x_q + W_Q)) eta,
 *                (d_q terms, the bias, and wider weights and inputs rounded to the type: eta for each element, times
 *                the 1-norm of what it meets, which is at most sqrt(d_q) times the 2-norm), and a head's row by
 *                D_q = sqrt(d_k) E_q in 2-norm. The same for k and v. Without projection
 *                what is left is the rounding of an added bias, and of a wider input or bias to the type:
 *                  E_q = gamma(2) (x_q + b_Q) + 3 eta.
 *   norm         y = w z / r(z) + b of n features, z = x or x - mean(x), r = sqrt(mean(z^2) + eps). The Jacobian of
 *                z / r(z) has 2-norm at most 1/r, a mean taken away makes no difference larger, and on the way from x
 *                to x + dx r falls by at most |dx| / sqrt(n), where |dx| <= sqrt(n) E (after a rotation, D for each
 *                head). A row is off by
 *                max|w| |dx| / (r - |dx| / sqrt(n)) + gamma(n + 10) (|y| + sqrt(n) max|b|) + (max|w| + 3) sqrt(n) eta,
 *                as |z / r| is at most sqrt(n). Squares are summed in double whatever u is; with what they lose,
 *                2^-1073 of the mean, y is off by 2^-1073 |y| / (r - |dx| / sqrt(n))^2 more. Rounding the mean and the
 *                difference moves z by gamma(n + 2) (|x_i| + mean|x|), in 2-norm 2 gamma(n + 2) |x|, and by 2 eta for
 *                each: |dx| grows by that. For the L2 norm r is the root of the sum, and falls by |dx|.
 *   clip         min(max(x, -c), c) has slope at most 1: errors stay as they are, and a limit that is rounded moves a
 *                number by u c + eta. After a norm |y| is that of the row with its limits: the relative errors of a
 *                number beyond them are lost.
 *   latents      c = x W_A + b_A is off by E, as a projection, and norm(c) by D, as a norm, with |norm(c)| at most
 *                max|w| sqrt(rank). y = norm(c) W is off by gamma(rank + 2) (|norm(c)| + D) |W column|, by
 *                D |W column| and by what underflows. A key is [y, k_r], with k_r off by E.
 *   absorbed     q' = q_n W_K^T, whose columns are rows of W_K: with q_n off by sqrt(d_n) E_q, q' is off as y is, and
 *                |q_n| is at most sqrt(d_n) times an element of q. The key [norm(c), k_r] is off by the norm of
 *                (D, sqrt(d_r) E), the values norm(c) by D. A sum o of values, off by E_o in each element, is as a row
 *                at most as long as the longest norm(c), C: o W_V is off by
 *                gamma(rank + 2) (C + e) |W column| + e |W column| with e = sqrt(rank) (E_o + E_v).
 *   rotation     keeps 2-norms; cos and sin are good to 2u and eta, each element is two products and a sum:
 *                D grows by sqrt(2) (gamma(2) + 2u) |row| + 2 (|row| + sqrt(d_k)) eta, with |row| as it is when it
 *                comes, its error included. The angle of pair i, a = p f with f = base^(-2i/d), is computed in double
 *                whatever u is; with w = 2^-53 the exponent is off by w of itself, the power thereby by w |ln f| of
 *                itself, by 2w more as pow is good to that, and by w each for a reciprocal, for p as a double and for
 *                the product: a is off by w (|ln f| + 5) |a|. Turning a pair by that much more moves it by 2 sin of
 *                half of it, at most by A_i |pair i| with A_i = min(w (|ln f| + 5) |a|, 2). A row is moved by
 *                sqrt(sum of (A_i |pair i|)^2), so D grows by that, with the largest pairs i of all rows and the
 *                farthest p: few pairs turn fast, and those that turn slowly are hardly off. Tables are taken as they
 *                are: A_i = 0; but where it is said of what positions of several axes they were made, A_i is that of
 *                the farthest of these and the greatest f, for all i (f (|ln f| + 5) grows with f). Frequencies that
 *                are given are taken as they are, too: A_i = min(2w |a|, 2). An attention factor m multiplies the
 *                error that comes by max(m, 1); |row| is that of the result, and what underflows does so in terms of
 *                |row| / min(m, 1). m is rounded together with cos and sin.
 *   query scale  q f, f = 1 + g log(1 + k) >= 1: D_q grows to f D_q + gamma(8) (|q| + f D_q), for log, two products and
 *                two sums, with the largest f and |q| as it is then. Rows were not longer before.
 *   cache        of 16 bits: with its unit roundoff c and smallest subnormal e, a row k' appended to it is off by
 *                c |k'| + e / 2 for each element more, and if the exact rows are rounded to 16 bits too, the two may be
 *                rounded to neighbours: by twice that. D_k grows by 2 c (|k| + D_k) + 2 sqrt(d_k) e, and holds
 *                against the exact rows and against the exact rows rounded. The same for v. Of 8 bits: an element of
 *                a row whose largest one is M is off by half of the scale, which is M / 127 rounded, and by the
 *                roundings of the quotient, of code times scale, and to floats: by c M + e / 2 with c = 1/254 + 2^-22,
 *                and e = 2^-142 where the scale underflows (codes stop at 127, half of 2^-149 away each). The norm of
 *                a row is off by sqrt(d_k) times that, and M is at most the norm; for values that are a part of a
 *                latent, the norm of the whole row.
 *   scores       s = scale q.k: D_q and D_k perturb the factors, the sum has d_k terms, the scale is rounded
 *                and may be put into q or k, or split between them. With Q = |q| + D_q and K = |k| + D_k:
 *                  E_s = |scale| (gamma(d_k + 4) Q K + D_q |k| + |q| D_k + D_q D_k)
 *                        + ((d_k + 2 + sqrt(d_k) (Q + K)) max(1, |scale|) + Q K) eta:
 *                eta for each product, for each element of q and k that the scale is put into, and of the scale itself.
 *   softcap      c tanh(s / c) has slope at most 1. The quotient's rounding moves it by at most
 *                c u max(x / cosh^2 x) < c u / 2; tanh is taken to be good to 12u of 1: E_c = E_s + 16 u c.
 *   relative     a term t = scale x.y of a row x of q or k and a row y of a table, which is rounded to the type, as s:
 *                with N = |y|, summed over the tables, and X = |x| + D_x
 *                  E_t = |scale| (gamma(d_k + 4) X + D_x) N
 *                        + 2 ((d_k + 2 + sqrt(d_k) (X + N)) max(1, |scale|) + X N) eta,
 *                twice for the two tables of a grid.
 *   masked       every term added (mask, padding fill, ALiBi, the last with a rounded slope and product):
 *                E_m = E_c + sum E_t + 4 u (|s| + added) + 2^62 eta, with all |t| in `added`, when anything is added: a
 *                slope that is subnormal may lose eta, and distances are below 2^62.
 *   weights      w_j = exp(m_j - M) / sum. Moving all m_j by at most d multiplies numerators and denominator by
 *                factors in [exp(-d), exp(d)]. M cancels as long as all use the same M, so its own error
 *                does not count. The difference m_j - M is rounded: u R, where R is the range of the
 *                scores and sinks as far as exp does not underflow; an online softmax rescales by exp(M_old - M_new),
 *                whose arguments add up to at most R again. exp is taken to be good to 4u.
 *                  d = E_m + 2 u R + 8 u,   |w' - w| <= F w,   F = exp(2 d) (1 + gamma(2 S' + 16)) - 1:
 *                S' terms in the sum, and at most S' more factors when it is rescaled every few keys.
 *                Weights are in [0, 1], so min(F, 1) bounds one of them and min(F, 2) their sum.
 *   lse          log of the sum: E_m + 2 u R + gamma(2 S' + 16) + 4 u |lse|, where |lse| is at most the largest score
 *                or sink, and log(S' + 2).
 *   heads        o = sum w_j v_j, a convex combination: with V = max|v| + E_v
 *                  E_o = min(F, 2) V + E_v + gamma(2 S' + 16) (1 + min(F, 2)) V + (S' + 1) eta.
 *                Near a zero of o this is no relative bound, as it cannot be. The sum may be divided by that of the
 *                exponentials at its end: until then it may be as large as S' V, and in double e^8 times that, as the
 *                exact path takes exponentials of up to 8.
 *   sigmoid      w_j = 1 / (1 + exp(-z_j)), z_j = m_j + b off by E_z = E_m + 2 u (|m| + |b|), for b as a number of the
 *                type and the sum. No weight exceeds W = sigmoid of the largest z. The slope is w (1 - w), so z off by
 *                E_z changes w by at most exp(E_z) - 1 of itself, by E_z / 4 and by 1; exponential, sum and
 *                quotient are taken to be good to 8u: E_w = min((exp(E_z) - 1) W, E_z / 4, 1) + 8 u W + 2 eta. Weights
 *                do not add up to 1, but to at most S' W: heads are at most S' W V, and off by
 *                  S' (E_w V + W E_v) + gamma(S' + 2) S' (W + E_w) V + (S' + 1) eta (V + 1).
 *   dropout      o = m sum over kept keys of w_j v_j, m = 1 / (1 - p). Leaving terms out makes no bound larger. A p in
 *                the type moves 1 - p by u p, and m by u m of itself; difference, quotient and product cost 3u more:
 *                E_o and V grow to m times themselves, and E_o by gamma(m + 3) m (V + E_o) + m (S' + 1) eta.
 *   gated        g = sigmoid(z) in (0, 1), z = x W_G + b_G off by E_z as a projection is: sigmoid has slope at most
 *                1/4, and is taken to be good to 8u of 1. E_o grows by (V + E_o) (min(E_z / 4, 1) + 9u + eta) + 2 eta.
 *   output       gamma(h d_v + 2) (H W_O + b_O) + E_o max column sum of |W_O| + (h d_v + 3 + sqrt(h d_v) (H + W_O)) eta
 *                with H = sqrt(h d_v) (V + E_o), the 2-norm of a row of heads.
 *
 * Low precision (mha_precision) adds what storing costs: to a number of at most x, or to a row of n elements and
 * 2-norm x, lost(x) = u x + sqrt(n) e s, with the unit roundoff u and half the smallest subnormal e of the type and the
 * scale s of the tensor, at most 2 x over the largest number of the type (twice the least scale, as for powers of two);
 * I8 has u = 0, e = 1/2. It is infinite where x is beyond the range.
 *   inputs, weights   x_q and W_Q are off by lost(x_q) and lost(W_Q), so E_q grows by
 *                     lost(x_q) (W_Q + lost(W_Q)) + x_q lost(W_Q) + lost(b_Q); the same for k, v and W_O.
 *   rows              D_q grows by lost(|q| + D_q), E_v by lost(V), by the scale of the keys where values are a part of
 *                     them in a cache. D_k and E_v do once more with a cache, whose rows are rounded together with the
 *                     new ones. D of norm(c) grows by lost(|norm(c)| + D) where it meets W_KVB, or the W of queries,
 *                     which is off by lost(|W column|); an absorbed E_q by lost(|q_n|).
 *   scores            E_s grows by |scale| lost(|q.k|), q.k as it is before the scale, and by lost(|s|); E_c by
 *                     2 c lost(min(|s| / c, 1)) for x = s / c and tanh x, as |x| / cosh^2 x < 1 and |tanh x| <= 1, and
 *                     by lost of the size of the capped scores; E_m by lost of that of the masked ones.
 *   probabilities     exp(score - maximum) in [0, 1], divided by a denominator of at least 1, is off by u + e s of
 *                     itself: E_o grows by 2 (u + S' e s) (1 + min(F, 2)) V. Twice, for kernels that round the
 *                     denominator's terms or the quotients instead. The weights of a sigmoid are off by 2 lost(1).
 *   sums              gamma is taken for the roundoff of the accumulators; eta and the range, too.
 *   output            E_o and the output's error grow by lost of their sizes; absorbed, both o and o W_V.
 * TF32 is lost at the same points, though not all numbers there enter a product.
 *
 * Nothing here depends on lengths but through gamma: with 100,000 keys gamma(2 S' + 16) is 0.012 in float. */
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "attention/call/definition.h"
#include "verify/tolerance/tolerance.h"

static double gamma_of(double n, double u)
{
    return n * u < 1 ? n * u / (1 - n * u) : INFINITY;
}

/* The inputs of a bound: a call, the magnitudes of its numbers, and the arithmetic that computes it, with its
 * roundoff in one operation (`unit`) and in sums (u), its smallest subnormal and its largest number. */
typedef struct derivation {
    const mha__magnitudes *m;
    const mha_precision *p;
    double unit, u, eta, largest;
    bool narrow;
    double S; /* S' */
} derivation;

/* Errors of one of q, k, v so far: of an element and of a head's row (2-norm); `size`: the largest element. */
typedef struct error_of {
    double element, row, size;
} error_of;

/* Infinity times 0, which is not known to be anything, is taken for the worst. */
static double or_infinite(double e)
{
    return isnan(e) ? INFINITY : e;
}

/* The error of an element of y = x W + b, a sum of `terms` products; of x + b when `terms` is 0. */
static double sum_error(const derivation *a, size_t terms, double x, double W, double b)
{
    const double n = (double)terms, size = terms ? x * W + b : x + b;
    const double e = gamma_of(n + 2, a->u) * size + (n + 3 + sqrt(n) * (x + W)) * a->eta;
    return fmax(fmax(x, W), size) + e < a->largest ? e : INFINITY;
}

/* An error with what storing the number adds, which is at most x without its error. */
static double stored(mha_dtype dtype, double x, double e)
{
    return e + mha__lost(dtype, x + e, 1);
}

/* The error of an element of x W + b, or of x + b without W, with rows x of 2-norm `row` that are off by `off`. */
static double passed_on(const derivation *a, const mha__product_size *w, double row, double off)
{
    const double dW = mha__lost(a->p->weights, w->W, fmax((double)w->terms, 1)), db = mha__lost(a->p->weights, w->b, 1),
                 moved = w->terms ? off * (w->W + dW) + row * dW : off;
    return or_infinite(sum_error(a, w->terms, row + off, w->W + dW, w->b + db) + moved + db);
}

/* The errors of x W + b, or of x + b without W, in heads of d features. */
static error_of projected(const derivation *a, double x, const mha__product_size *w, size_t d)
{
    const double e = passed_on(a, w, x, mha__lost(a->p->inputs, x, fmax((double)w->terms, 1)));
    return (error_of){e, sqrt((double)d) * e, (w->terms ? x * w->W + w->b : x + w->b) + e};
}

/* The errors of a row of 2-norm `row` after its norm, in heads of d features. */
static void normalise_error(const derivation *a, const mha_norm_rule *rule, const mha__norm_size *size, size_t d,
                            double row, error_of *e)
{
    const double n = (double)size->terms, added = size->bias * sqrt(n);
    double moved = rule->after_rope ? sqrt(n / (double)d) * e->row : sqrt(n) * e->element;
    if (size->terms == 0)
        return;
    if (rule->kind == MHA_NORM_LAYER)
        moved += 2 * gamma_of(n + 2, a->u) * size->row + 2 * sqrt(n) * a->eta;
    const double r = size->divisor - (rule->kind == MHA_NORM_L2 ? moved : moved / sqrt(n));
    const bool squares_fit = r > 0x1p-500 && sqrt(n) * e->size < 0x1p500;
    e->row =
        !squares_fit || size->weight * sqrt(n) + added >= a->largest / 2
            ? INFINITY
            : or_infinite(size->weight * moved / r + (gamma_of(n + 10, a->u) + 0x1p-1073 / (r * r)) * (row + added) +
                          (size->weight + 3) * sqrt(n) * a->eta);
    e->element = e->row;
}

/* The error of q, k or v after its limits. */
static void clip_error(const derivation *a, size_t d, error_of *e)
{
    const double limit = a->m->call->qkv.clip_qkv, moved = limit > 0 ? a->u * limit + a->eta : 0;
    e->element += moved;
    e->row += sqrt((double)d) * moved;
}

/* The 2-norm of the error of norm(c) where it meets a weight, if elements of c are off as `c` says. */
static double latent_error(const derivation *a, const mha__latent_size *l, error_of c, mha_dtype rows)
{
    static const mha_norm_rule rms = {.kind = MHA_NORM_RMS};
    normalise_error(a, &rms, &l->norm, l->norm.terms, l->row, &c);
    return c.row + mha__lost(rows, l->row + c.row, (double)l->norm.terms);
}

/* The errors of q, k and v of latent attention, before rotation, and those of the latents themselves. */
static void latent_errors(const derivation *a, error_of qkv[3], double bound[MHA_STAGE_COUNT])
{
    const mha__magnitudes *m = a->m;
    const mha__latent_size *of_q = &m->q_latent, *of_kv = &m->kv_latent;
    const mha_dtype rows = a->p->rows;
    const double d_k = (double)m->call->plan.d_k, d_n = (double)m->call->latent.d_n, d_r = (double)m->call->latent.d_r;
    error_of *q = &qkv[0], *k = &qkv[1], *v = &qkv[2];
    if (of_q->norm.terms)
        *q = projected(a, m->x[0], &of_q->made, m->call->plan.d_k);
    bound[MHA_STAGE_Q_LATENT] = q->element;
    if (of_q->norm.terms) {
        q->element = passed_on(a, &m->W[0], of_q->row, latent_error(a, of_q, *q, rows));
        q->size = of_q->row * m->W[0].W + m->W[0].b;
    }
    const error_of c = projected(a, m->x[1], &of_kv->made, 1);
    const double off = latent_error(a, of_kv, c, m->call->latent.absorbed ? MHA_F32 : rows);
    bound[MHA_STAGE_KV_LATENT] = c.element;
    k->size = v->size = 0;
    if (m->call->latent.absorbed) {
        const double absorbed =
            passed_on(a, &m->absorbed, sqrt(d_n) * q->size, sqrt(d_n) * stored(rows, q->size, q->element));
        q->element = fmax(q->element, absorbed);
        v->element = off;
        k->element = fmax(off, c.element);
        k->row = hypot(off, sqrt(d_r) * c.element);
    } else {
        v->element = passed_on(a, &m->W_KVB, of_kv->row, off);
        k->element = fmax(v->element, c.element);
        k->row = sqrt(d_k) * k->element;
    }
    q->row = sqrt(d_k) * q->element;
}

static void rotate_error(const derivation *a, double turn, double times, size_t d, double row, error_of *e)
{
    const double width = sqrt((double)d);
    e->row *= fmax(times, 1);
    const double size = row + e->row;
    e->row += sqrt(2) * (gamma_of(2, a->u) + 2 * a->u) * size + turn + 2 * (size / fmin(times, 1) + width) * a->eta;
    if (!(row + e->row < a->largest))
        e->row = INFINITY;
    e->element = e->row;
}

/* The error of q or k on the way to the scores. */
static void turn_error(const derivation *a, const mha__row_size *x, error_of *e)
{
    const mha_qkv *s = &mha__semantics_of(a->m->call)->qkv;
    const size_t d = a->m->call->plan.d_k;
    const bool rotated = s->rope.kind != MHA_ROPE_NONE;
    const double width = sqrt((double)d), times = rotated ? a->m->call->qkv.rope.attention_factor : 1, row = x->row;
    if (s->norm.after_rope) {
        if (rotated)
            rotate_error(a, x->turn, times, d, x->norm.terms ? x->norm.row : row, e);
        normalise_error(a, &s->norm, &x->norm, d, row, e);
    } else {
        normalise_error(a, &s->norm, &x->norm, d, row / fmin(times, 1), e);
        if (x->norm.terms)
            clip_error(a, d, e);
        if (rotated)
            rotate_error(a, x->turn, times, d, row, e);
    }
    if (x->times > 1) {
        e->row = x->times * e->row + gamma_of(8, a->u) * (row + x->times * e->row) + width * a->eta;
        e->element = x->times * e->element + gamma_of(8, a->u) * (row + x->times * e->element) + a->eta;
        if (!(row + e->row < a->largest))
            e->element = e->row = INFINITY;
    }
    e->row = fmax(e->row, a->u * row + width * a->eta); /* cached rows may be given in a wider type */
}

/* An error with what storing in the cache adds; `size`: the largest element (d = 1) or norm of rows of d elements. */
static double cached(const derivation *a, double e, double size, size_t d)
{
    return a->m->cache_rounds ? mha__cached_error(a->m->cache, e, size, (double)d) : e;
}

static void store_row(const derivation *a, double size, error_of *e)
{
    e->element += mha__lost(a->p->rows, size + e->row, 1);
    e->row += mha__lost(a->p->rows, size + e->row, (double)a->m->call->plan.d_k);
}

/* The errors of q, k and v where the scores and the heads read them. */
static void row_errors(const derivation *a, error_of qkv[3], double bound[MHA_STAGE_COUNT])
{
    static const mha_stage stages[3] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V};
    const mha__magnitudes *m = a->m;
    const mha__sizes *size = &a->m->call->plan;
    const size_t d[3] = {size->d_k, size->d_k, size->d_v};
    error_of *q = &qkv[0], *k = &qkv[1], *v = &qkv[2];
    for (int i = 0; i < 3; i++)
        qkv[i] = projected(a, m->x[i], &m->W[i], d[i]);
    bound[MHA_STAGE_Q_LATENT] = bound[MHA_STAGE_KV_LATENT] = 0;
    if (m->kv_latent.norm.terms)
        latent_errors(a, qkv, bound);
    for (int i = 0; i < 3; i++) {
        if (i == 2 || mha__semantics_of(a->m->call)->qkv.norm.after_rope || m->rows[i].norm.terms == 0)
            clip_error(a, d[i], &qkv[i]);
        bound[stages[i]] = qkv[i].element;
    }
    turn_error(a, &m->rows[0], q);
    turn_error(a, &m->rows[1], k);
    const double K = m->rows[1].row, V = m->v_max;
    const bool in_keys = a->m->call->latent.absorbed && m->cached; /* values of latents are a part of keys */
    const double own = V + v->element, among = in_keys ? fmax(K + k->row, own) : own;
    v->element += mha__lost_among(a->p->rows, own, 1, among);
    v->element = fmax(v->element, a->unit * V + a->eta); /* cached rows may be given in a wider type */
    v->element = cached(a, v->element, a->m->call->latent.absorbed && m->cache == MHA_I8 ? K : V, 1);
    if (m->cached)
        v->element = stored(a->p->rows, V, v->element);
    bound[MHA_STAGE_PRESENT_VALUE] = v->element;
    store_row(a, m->rows[0].row, q);
    store_row(a, K, k);
    bound[MHA_STAGE_Q_ROT] = q->element;
    bound[MHA_STAGE_K_ROT] = k->element;
    k->element = cached(a, fmax(k->element, a->unit * K + a->eta), K, 1);
    k->row = cached(a, k->row, K, size->d_k);
    if (m->cached)
        store_row(a, K, k);
    bound[MHA_STAGE_PRESENT_KEY] = k->element;
}

/* The error of the relative terms that rows x, off by `off`, give; *added: their size. */
static double relative_error(const derivation *a, const mha__row_size *x, double off, double scale, double *added)
{
    const double X = x->row + off, n = (double)a->m->call->plan.d_k, rows = x->relative;
    if (rows == 0)
        return 0;
    *added += scale * x->row * rows;
    if (!(fmax(scale, 1) * X * rows < a->largest))
        return INFINITY;
    return scale * (gamma_of(n + 4, a->u) * X + off) * rows +
           2 * ((n + 2 + sqrt(n) * (X + rows)) * fmax(1, scale) + X * rows) * a->eta;
}

/* The error of the masked scores; *size: their size. */
static double score_error(const derivation *a, double dq, double dk, double *size, double bound[MHA_STAGE_COUNT])
{
    const mha_semantics *s = mha__semantics_of(a->m->call);
    const mha_dtype type = a->p->scores;
    const double scale = fabs(a->m->call->plan.scale), d_k = (double)a->m->call->plan.d_k, q = a->m->rows[0].row,
                 k = a->m->rows[1].row, Q = q + dq, K = k + dk;
    double scores = scale * q * k, added = a->m->added;
    double E_s = scale * (gamma_of(d_k + 4, a->u) * Q * K + dq * k + q * dk + dq * dk) +
                 ((d_k + 2 + sqrt(d_k) * (Q + K)) * fmax(1, scale) + Q * K) * a->eta;
    const double of_q = fabs(s->added.relative.k_scale), of_k = fabs(s->added.relative.q_scale);
    const double E_t = relative_error(a, &a->m->rows[0], dq, of_q > 0 ? of_q : scale, &added) +
                       relative_error(a, &a->m->rows[1], dk, of_k > 0 ? of_k : scale, &added);
    if (!(fmax(scale, 1) * Q * K + E_s + E_t + added < a->largest)) /* also true for NaN, infinity times 0 */
        E_s = INFINITY;
    if (scale > 0)
        E_s += scale * mha__lost(type, q * k + E_s / scale, 1);
    double E_m = bound[MHA_STAGE_SCORES] = stored(type, scores, E_s);
    const double c = s->softmax.softcap;
    if (c > 0) {
        E_m += 16 * a->unit * c + 2 * c * mha__lost(type, fmin((scores + E_m) / c, 1), 1);
        scores = fmin(scores, c);
    }
    E_m = bound[MHA_STAGE_CAPPED] = stored(type, scores, E_m);
    if (added + E_t > 0)
        E_m += E_t + 4 * a->unit * (scores + added) + 0x1p62 * a->eta;
    *size = scores + added;
    return bound[MHA_STAGE_MASKED] = stored(type, *size, E_m);
}

/* The error of the heads of a softmax: of scores of at most `size`, off by E_m, and of values of at most V, off by
 * dv. */
static double softmax_error(const derivation *a, double size, double E_m, double V, double dv,
                            double bound[MHA_STAGE_COUNT])
{
    const double u = a->unit, S = a->S, sum = gamma_of(2 * S + 16, a->u);
    /* exp(-104) rounds to zero in float, exp(-746) in double. */
    const double most_seen = fmax(size, a->m->sink), R = fmin(2 * most_seen, a->narrow ? 104 : 746);
    const double d = E_m + 2 * u * R + 8 * u, F = exp(2 * d) * (1 + sum) - 1, F_1 = fmin(F, 1), F_2 = fmin(F, 2);
    const double of_1 = 2 * mha__lost(a->p->probabilities, 1, 1), of_S = 2 * mha__lost(a->p->probabilities, 1, S * S);
    bound[MHA_STAGE_WEIGHTS] = F_1 + a->eta + of_1;
    bound[MHA_STAGE_WEIGHTS_MEAN] = F_1 + a->eta + of_1 + gamma_of((double)a->m->call->plan.h + 1, a->u);
    bound[MHA_STAGE_LSE] = E_m + 2 * u * R + sum + 4 * u * (most_seen + log(S + 2));
    return F_2 * V + dv + (sum + of_S) * (1 + F_2) * V + (S + 1) * a->eta;
}

/* The same of a sigmoid; *most: the sum of the weights is at most this. */
static double sigmoid_error(const derivation *a, double size, double E_m, double V, double dv, double *most,
                            double bound[MHA_STAGE_COUNT])
{
    const double u = a->unit, S = a->S, of_1 = 2 * mha__lost(a->p->probabilities, 1, 1),
                 bias = mha__semantics_of(a->m->call)->softmax.sigmoid_bias;
    const double E_z = E_m + 2 * u * (size + fabs(bias)), W = 1 / (1 + exp(-fmin(size + E_z + bias, 746)));
    const double E_w = fmin(fmin(expm1(E_z) * W, E_z / 4), 1) + 8 * u * W + 2 * a->eta;
    bound[MHA_STAGE_WEIGHTS] = E_w;
    bound[MHA_STAGE_WEIGHTS_MEAN] = E_w + gamma_of((double)a->m->call->plan.h + 1, u) * (W + E_w);
    *most = S * W;
    return S * ((E_w + of_1) * V + W * dv) + gamma_of(S + 2, a->u) * S * (W + E_w + of_1) * V +
           (S + 1) * a->eta * (V + 1);
}

/* The error of heads of scores of at most `size`, off by E_m, and of values off by dv; *V: the size of heads. */
static double head_error(const derivation *a, double size, double E_m, double dv, double *V,
                         double bound[MHA_STAGE_COUNT])
{
    double most = 1, E_o = softmax_error(a, size, E_m, a->m->v_max + dv, dv, bound);
    if (mha__semantics_of(a->m->call)->softmax.normaliser == MHA_SIGMOID)
        E_o = sigmoid_error(a, size, E_m, a->m->v_max + dv, dv, &most, bound);
    *V = (a->m->v_max + dv) * most;
    if (mha__semantics_of(a->m->call)->softmax.dropout_keep.data) {
        const double times = 1 / (1 - mha__semantics_of(a->m->call)->softmax.dropout_p);
        E_o = times * (E_o + gamma_of(times + 3, a->u) * (*V + E_o) + (a->S + 1) * a->eta);
        *V *= times, most *= times;
    }
    E_o = stored(a->p->output, *V, E_o);
    if (!(fmax(a->S, 1) * *V * (a->narrow ? 1 : 3000) + E_o < a->largest)) /* e^8 is 2981 */
        E_o = INFINITY;
    if (a->m->call->latent.absorbed) {
        const mha__product_size *W = &a->m->W_KVB;
        const double row = most * a->m->kv_latent.row;
        *V = row * W->W;
        E_o = stored(a->p->output, *V, passed_on(a, W, row, sqrt((double)W->terms) * (E_o + dv)));
    }
    return bound[MHA_STAGE_HEADS] = E_o;
}

/* The error of heads of at most V and off by e, after their gate. */
static double gate_error(const derivation *a, double V, double e)
{
    const error_of z = projected(a, a->m->x[0], &a->m->W_G, 0);
    const double off = z.element + mha__lost(a->p->rows, z.size, 1), moved = fmin(off / 4, 1) + 8 * a->u + a->eta;
    return stored(a->p->output, V, isfinite(off) ? e + (V + e) * (moved + a->u) + 2 * a->eta : INFINITY);
}

static double output_error(const derivation *a, double V, double e)
{
    const mha__product_size *W = &a->m->W_O;
    const double n = (double)W->terms, row = sqrt(n) * (V + e), dW = mha__lost(a->p->weights, W->W, n),
                 db = mha__lost(a->p->weights, W->b, 1);
    if (!isfinite(e) || !(a->m->W_O_sum > 0 || W->b > 0))
        return e;
    return stored(a->p->output, row * (W->W + dW) + W->b + db,
                  sum_error(a, W->terms, row, W->W + dW, W->b + db) + e * a->m->W_O_sum + row * dW + db);
}

static derivation derivation_of(double unit, const mha_precision *p)
{
    const mha__storage sums = mha__storage_of(p->sums);
    const bool narrow = unit > 0x1p-30;
    return (derivation){.p = p,
                        .unit = unit,
                        .u = fmax(unit, sums.relative),
                        .eta = fmax(narrow ? 0x1p-149 : 0x1p-1074, 2 * sums.absolute),
                        .largest = fmin(narrow ? FLT_MAX : DBL_MAX, -sums.lowest == FLT_MAX ? DBL_MAX : -sums.lowest),
                        .narrow = narrow};
}

double mha__rotation_bound(const mha_rope *rope, size_t d, double row, double turn, double unit)
{
    static const mha_precision none;
    const derivation a = derivation_of(unit, &none);
    error_of e = {.row = sqrt((double)d) * (3 * a.eta)};
    rotate_error(&a, turn, rope->attention_factor > 0 ? rope->attention_factor : 1, d, row, &e);
    return e.row;
}

void mha__bound_of(const mha__magnitudes *m, double unit, const mha_precision *p, double bound[MHA_STAGE_COUNT])
{
    static const mha_stage behind[] = {MHA_STAGE_MASKED, MHA_STAGE_WEIGHTS, MHA_STAGE_WEIGHTS_MEAN, MHA_STAGE_HEADS,
                                       MHA_STAGE_OUTPUT, MHA_STAGE_LSE,     MHA_STAGE_GATED};
    derivation a = derivation_of(unit, p);
    a.m = m;
    a.S = (double)(m->call->plan.S + m->call->plan.S_extra);
    error_of qkv[3];
    double size, V;
    row_errors(&a, qkv, bound);
    const double E_m = score_error(&a, qkv[0].row, qkv[1].row, &size, bound),
                 E_o = head_error(&a, size, E_m, qkv[2].element, &V, bound);
    bound[MHA_STAGE_GATED] = mha__gate_width(m->call) ? gate_error(&a, V, E_o) : E_o;
    bound[MHA_STAGE_OUTPUT] = output_error(&a, V, bound[MHA_STAGE_GATED]);
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) /* infinity and NaN may occur anywhere */
        bound[behind[i]] = E_m == INFINITY ? INFINITY : or_infinite(bound[behind[i]]);
}
