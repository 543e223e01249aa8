/* The error bound: how far rounding may move each stage of a forward, derived once.
 *
 * u is the unit roundoff, gamma(n) = n u / (1 - n u). A sum of n products computed in any order (with or
 * without fused multiply-add, blocked, in any number of accumulators) is off by at most gamma(n) times the
 * sum of the absolute products (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.5).
 * eta is the smallest subnormal: what a product or quotient can lose by underflow.
 *
 *   projection   q = x W + b. By Cauchy-Schwarz |x||W| <= |x|_2 |W column|_2, so each element is off by
 *                  E_q = gamma(d_q + 2) (x_q W_Q + b_Q) + d_q eta,
 *                (d_q terms, the bias, and wider weights rounded to the type), and a head's row by
 *                D_q = sqrt(d_k) E_q in 2-norm. The same for k and v. Without projection
 *                what is left is the rounding of an added bias, and of a wider input or bias to the type:
 *                  E_q = gamma(2) (x_q + b_Q).
 *   norm         y = w x / r(x), r = sqrt(mean(x^2) + eps). The Jacobian of x / r(x) has 2-norm at most 1/r,
 *                and on the way from x to x + dx r falls by at most E: a row is off by
 *                max|w| sqrt(n) E / (r - E) + gamma(n + 8) |y|.
 *   rotation     keeps 2-norms; cos and sin are good to 2u, each element is two products and a sum:
 *                D grows by sqrt(2) (gamma(2) + 2u) |row|. The angle of pair i, a = p f with f = base^(-2i/d), is
 *                computed in double whatever u is; with w = 2^-53 the exponent is off by w of itself, the power thereby
 *                by w |ln f| of itself, by 2w more as pow is good to that, and by w each for a reciprocal, for p as a
 *                double and for the product: a is off by w (|ln f| + 5) |a|. Turning a pair by that much more moves it
 *                by 2 sin of half of it, at most by A_i |pair i| with A_i = min(w (|ln f| + 5) |a|, 2). A row is moved
 *                by sqrt(sum of (A_i |pair i|)^2), so D grows by that, with the largest pairs i of all rows and the
 *                farthest p: few pairs turn fast, and those that turn slowly are hardly off. Tables are taken as they
 *                are: A_i = 0.
 *   scores       s = scale q.k: D_q and D_k perturb the factors, the sum has d_k terms, the scale is rounded
 *                and may be split between q and k:
 *                  E_s = |scale| (gamma(d_k + 4) (|q| + D_q) (|k| + D_k) + D_q |k| + |q| D_k + D_q D_k).
 *   softcap      c tanh(s / c) has slope at most 1. The quotient's rounding moves it by at most
 *                c u max(x / cosh^2 x) < c u / 2; tanh is taken to be good to 12u of 1: E_c = E_s + 16 u c.
 *   masked       every term added (mask, padding fill, ALiBi, the last with a rounded slope and product):
 *                E_m = E_c + 4 u (|s| + added) when anything is added.
 *   weights      w_j = exp(m_j - M) / sum. Moving all m_j by at most d multiplies numerators and denominator by
 *                factors in [exp(-d), exp(d)]. M cancels as long as all use the same M, so its own error
 *                does not count. The difference m_j - M is rounded: u R, where R is the range of the
 *                scores as far as exp does not underflow; a streaming softmax rescales by exp(M_old - M_new),
 *                whose arguments add up to at most R again. exp is taken to be good to 4u.
 *                  d = E_m + 2 u R + 8 u,   |w' - w| <= F w,   F = exp(2 d) (1 + gamma(2 S' + 16)) - 1:
 *                S' terms in the sum, and at most S' more factors when a stream rescales every few keys.
 *                Weights lie in [0, 1], so min(F, 1) bounds one of them and min(F, 2) their sum.
 *   lse          log of the sum: E_m + 2 u R + gamma(2 S' + 16) + 4 u |lse|.
 *   heads        o = sum w_j v_j, a convex combination: with V = max|v| + E_v
 *                  E_o = min(F, 2) V + E_v + gamma(2 S' + 16) (1 + min(F, 2)) V.
 *                Near a zero of o this is no relative bound, as it cannot be.
 *   output       gamma(h d_v + 2) (sqrt(h d_v) (V + E_o) W_O + b_O) + E_o max column sum of |W_O|.
 *
 * Nothing here depends on lengths but through gamma: with 100,000 keys gamma(2 S' + 16) is 0.012 in float. */
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "verify/tolerance/tolerance.h"

static double gamma_of(double n, double u)
{
    return n * u < 1 ? n * u / (1 - n * u) : INFINITY;
}

double mha__angle_error(double position, double frequency)
{
    return fmin(0x1p-53 * (fabs(log(frequency)) + 5) * fabs(position) * frequency, 2);
}

/* One of q, k, v on its way: what its elements and its head rows may be off by. */
typedef struct error_of {
    double element, row;
} error_of;

static error_of projected(double u, double eta, size_t terms, double x, double W, double b, size_t d)
{
    double e = terms ? gamma_of((double)terms + 2, u) * (x * W + b) + (double)terms * eta : gamma_of(2, u) * (x + b);
    return (error_of){e, sqrt((double)d) * e};
}

static void rotate_error(const mha__magnitudes *m, double u, double row, double turn, error_of *e)
{
    if (m->norm_terms) {
        double n = (double)m->norm_terms, r = m->norm_rms - e->element;
        e->row = (r > 0 ? m->norm_weight * sqrt(n) * e->element / r : INFINITY) + gamma_of(n + 8, u) * row;
        e->element = e->row;
    }
    if (m->rotated) {
        e->row += sqrt(2) * (gamma_of(2, u) + 2 * u) * row + turn;
        e->element = e->row;
    }
    e->row = fmax(e->row, u * row); /* cached rows given in a wider type */
}

void mha__bound_of(const mha_plan *plan, const mha__magnitudes *m, double unit, double bound[MHA_STAGE_COUNT])
{
    const double u = unit;
    const bool narrow = u > 0x1p-30;
    const double eta = narrow ? 0x1p-149 : 0x1p-1074, largest = narrow ? FLT_MAX : DBL_MAX;
    const double S = (double)(plan->S + plan->S_extra), sum = gamma_of(2 * S + 16, u);

    error_of q = projected(u, eta, m->d_q, m->x_q, m->W_Q, m->b_Q, plan->d_k);
    error_of k = projected(u, eta, m->d_kin, m->x_k, m->W_K, m->b_K, plan->d_k);
    error_of v = projected(u, eta, m->d_vin, m->x_v, m->W_V, m->b_V, plan->d_v);
    bound[MHA_STAGE_Q] = q.element;
    bound[MHA_STAGE_K] = k.element;
    bound[MHA_STAGE_V] = v.element;
    v.element = fmax(v.element, u * m->v_max); /* cached rows given in a wider type */
    bound[MHA_STAGE_PRESENT_VALUE] = v.element;
    rotate_error(m, u, m->q_row, m->q_turn, &q);
    rotate_error(m, u, m->k_row, m->k_turn, &k);
    bound[MHA_STAGE_Q_ROT] = q.element;
    bound[MHA_STAGE_K_ROT] = k.element;
    bound[MHA_STAGE_PRESENT_KEY] = fmax(k.element, u * m->k_row);

    double scale = fabs(plan->scale), scores = scale * m->q_row * m->k_row;
    double E_s = scale * (gamma_of((double)plan->d_k + 4, u) * (m->q_row + q.row) * (m->k_row + k.row) +
                          q.row * m->k_row + m->q_row * k.row + q.row * k.row) +
                 (double)plan->d_k * eta;
    if (fmax(scores, m->q_row * m->k_row) + E_s + m->added >= largest)
        E_s = INFINITY;
    bound[MHA_STAGE_SCORES] = E_s;
    double E_m = E_s;
    if (m->softcap > 0) {
        E_m += 16 * u * m->softcap;
        scores = fmin(scores, m->softcap);
    }
    bound[MHA_STAGE_CAPPED] = E_m;
    if (m->added > 0)
        E_m += 4 * u * (scores + m->added);
    bound[MHA_STAGE_MASKED] = E_m;

    /* exp(-104) rounds to zero in float, exp(-746) in double. */
    double R = fmin(2 * (scores + m->added), narrow ? 104 : 746);
    double d = E_m + 2 * u * R + 8 * u;
    double F = exp(2 * d) * (1 + sum) - 1, F_1 = fmin(F, 1), F_2 = fmin(F, 2);
    bound[MHA_STAGE_WEIGHTS] = F_1 + eta;
    bound[MHA_STAGE_WEIGHTS_MEAN] = F_1 + eta + gamma_of((double)plan->h + 1, u);
    bound[MHA_STAGE_LSE] = E_m + 2 * u * R + sum + 4 * u * (scores + m->added + log(S + 2));

    double V = m->v_max + v.element;
    double E_o = F_2 * V + v.element + sum * (1 + F_2) * V + S * eta;
    bound[MHA_STAGE_HEADS] = bound[MHA_STAGE_OUTPUT] = E_o;
    double width = (double)plan->h * (double)plan->d_v;
    if (m->W_O_sum > 0 || m->b_O > 0)
        bound[MHA_STAGE_OUTPUT] =
            gamma_of(width + 2, u) * (sqrt(width) * (V + E_o) * m->W_O + m->b_O) + E_o * m->W_O_sum + width * eta;
    for (int s = MHA_STAGE_SCORES; s < MHA_STAGE_COUNT; s++) /* overflow: infinities and NaN may stand anywhere */
        if (E_s == INFINITY && s != MHA_STAGE_PRESENT_KEY && s != MHA_STAGE_PRESENT_VALUE)
            bound[s] = INFINITY;
}
