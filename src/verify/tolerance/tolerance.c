/* The tolerance of a comparison for which the file gives none: what float32 costs on this very call, and what the type
 * costs in which the result was stored.
 *
 * The error bound holds whatever the order of summation, and for that it assumes the worst of every sum: it
 * grows with n where rounding errors, which differ in sign, grow with sqrt(n), and it takes products of
 * norms where vectors are far from parallel. For a wide layer it is thousands of times the error that
 * occurs, too much to judge anything by. So the call is run once in float32 and once in float64, and the
 * error E that occurred is multiplied: another order of summation, another kernel or machine draws its
 * rounding errors from the same distribution, whose maxima over a tensor differ by a factor of 2 or 3;
 * 16 leaves room for both sides of the comparison. 16 u max|x| stands in for an E that is 0 by chance.
 *
 *     float32:  min(2 bound(2^-24), 16 E + 16 * 2^-24 max|x| + 2 A)
 *     float64:  min(2 bound(2^-53), 64 * 2^-29 E + 64 * 2^-53 max|x| + 2 A)
 *
 * A is the part of the bound that comes from the angles of a rotation. Both runs compute them in double and in much
 * the same way, so E shows nothing of what others may lose there.
 *
 * A tensor of less than 64 finite elements says too little about E: there the bound alone counts, which is not far off
 * for a tensor of that size. Errors are proportional to the unit roundoff to first order, hence the 2^-29; there is
 * nothing more exact to measure float64 against, hence the larger factor. Twice the bound is always enough: each side
 * is within it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/attempt.h"
#include "verify/case/record.h"
#include "verify/tolerance/tolerance.h"

/* The largest absolute finite value, and the number of finite values. */
static double largest_of(const mha_view *v, size_t *finite)
{
    const double *x = v->data;
    double most = 0;
    *finite = 0;
    for (size_t i = 0; i < mha_view_elements(v); i++) {
        if (!isfinite(x[i]))
            continue;
        most = fmax(most, fabs(x[i]));
        ++*finite;
    }
    return most;
}

/* Twice the error bound, and twice the part of it that comes from rounded angles. */
static void worst_case(const mha__request *request, const mha__attempt *exact, mha__tolerance *t,
                       double angles[2][MHA_STAGE_COUNT])
{
    static const double units[2] = {0x1p-24, 0x1p-53};
    mha__magnitudes m;
    mha__magnitudes_of(request, exact, &m);
    mha__magnitudes sure = m;
    sure.q_turn = sure.k_turn = 0;
    for (int wide = 0; wide < 2; wide++) {
        double without[MHA_STAGE_COUNT];
        mha__bound_of(&exact->plan, &m, units[wide], t->atol[wide]);
        mha__bound_of(&exact->plan, &sure, units[wide], without);
        for (int s = 0; s < MHA_STAGE_COUNT; s++) {
            angles[wide][s] = isfinite(without[s]) ? 2 * (t->atol[wide][s] - without[s]) : 0;
            t->atol[wide][s] *= 2;
        }
    }
}

/* The formula above without A, from the error E of float32 and the largest element. */
static double usual(int wide, double E, double largest)
{
    return wide ? 64 * (0x1p-29 * E + 0x1p-53 * largest) : 16 * (E + 0x1p-24 * largest);
}

static mha_status run(mha__attempt *attempt, const mha__request *request, mha_path path, mha_layout layout,
                      const bool wanted[MHA_STAGE_COUNT], mha_error *error)
{
    mha_call own = *request->call;
    own.path = path;
    own.cache = NULL;
    const mha__request again = {request->layer, &own, request->past_key, request->past_value};
    TRY(mha__attempt_begin(attempt, NULL, &again, error));
    return mha__attempt_run(attempt, layout, wanted, error);
}

mha_status mha__tolerance_of(const mha__request *request, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                             mha__two_runs *runs, mha__tolerance *tolerance, mha_error *error)
{
    const size_t few = 64;
    bool kept[MHA_STAGE_COUNT];
    double angles[2][MHA_STAGE_COUNT];
    *runs = (mha__two_runs){0};
    memcpy(kept, wanted, sizeof kept);
    mha__magnitudes_want(kept);
    TRY(run(&runs->exact, request, MHA_PATH_EXACT, layout, kept, error));
    TRY(run(&runs->narrow, request, MHA_PATH_BLAS, layout, wanted, error));
    worst_case(request, &runs->exact, tolerance, angles);
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        if (!wanted[s]) {
            tolerance->atol[0][s] = tolerance->atol[1][s] = INFINITY;
            continue;
        }
        size_t finite;
        double most = largest_of(&runs->exact.stages[s], &finite);
        if (finite < few)
            continue;
        mha_difference d;
        TRY(mha_compare(&runs->narrow.stages[s], &runs->exact.stages[s], 0, 0, &d, error));
        for (int wide = 0; wide < 2; wide++)
            tolerance->atol[wide][s] =
                fmin(tolerance->atol[wide][s], usual(wide, d.max_abs, most) + angles[wide][s]);
    }
    return MHA_OK;
}

void mha__tolerance_of_error(const mha__request *request, const mha__attempt *ran, mha_stage stage, double error,
                             double largest, double atol[2])
{
    mha__tolerance t;
    double angles[2][MHA_STAGE_COUNT];
    worst_case(request, ran, &t, angles);
    for (int wide = 0; wide < 2; wide++)
        atol[wide] = fmin(t.atol[wide][stage], usual(wide, error, largest) + angles[wide][stage]);
}

void mha__two_runs_free(mha__two_runs *runs)
{
    mha__attempt_free(&runs->exact);
    mha__attempt_free(&runs->narrow);
}

mha__tolerance mha__tolerance_of_rope(const mha_case *c)
{
    /* A rotation sums nothing up, so the bound itself is close to the error. */
    const mha_view x = mha_case_call(c).query;
    const mha_semantics *semantics = &c->semantics;
    const mha_view *positions = &semantics->rope.q_positions;
    const mha_plan plan = {.h = c->H, .d_k = c->d_k, .d_v = c->d_v};
    double most = 0, farthest = (double)c->T_q;
    size_t index[4] = {0};
    for (bool more = mha_view_elements(&x) > 0; more; more = mha__index_next(index, x.shape, 4)) {
        double value = fabs(mha_view_get(&x, index));
        most = isfinite(value) ? fmax(most, value) : most;
    }
    if (positions->data) {
        farthest = 0;
        for (size_t i = 0; i < mha_view_elements(positions); i++)
            farthest = fmax(farthest, fabs((double)((const int64_t *)positions->data)[i]));
    } else if (semantics->position_offset)
        for (size_t b = 0; b < c->B; b++)
            farthest = fmax(farthest, fabs((double)semantics->position_offset[b]) + (double)c->T_q);
    mha__magnitudes m = {.rotated = true, .q_row = sqrt(2) * most}; /* bounds the 2-norm of a pair */
    m.q_turn = mha__turn_of(&semantics->rope, &x, farthest).pair;
    mha__tolerance t;
    for (int wide = 0; wide < 2; wide++) {
        double bound[MHA_STAGE_COUNT];
        mha__bound_of(&plan, &m, wide ? 0x1p-53 : 0x1p-24, bound);
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            t.atol[wide][s] = 2 * bound[MHA_STAGE_Q_ROT];
    }
    return t;
}

/* ---------------------------------------------------------------- the type of a recorded tensor */

/* A float of p significant bits (the leading one counted) whose smallest subnormal is eta has unit roundoff u = 2^-p.
 * Rounding y to nearest gives e with |e - y| <= u |e| where e is normal (Higham, Accuracy and Stability of Numerical
 * Algorithms, 2nd ed., theorem 2.3), and |e - y| <= eta / 2 where it is subnormal: u |e| + eta / 2 covers both.
 *
 *     type       p    u       eta      largest                    values from here on become infinite
 *     F16       11    2^-11   2^-24    65504                      65520, halfway to 2^16
 *     BF16       8    2^-8    2^-133   2^127 (2 - 2^-7)           2^127 (2 - 2^-8), halfway to 2^128
 *     F8_E5M2    3    2^-3    2^-16    57344                      61440, halfway to 2^16
 *     F8_E4M3    4    2^-4    2^-9     448                        none: this type has no infinity */
mha__storage mha__storage_of(mha_dtype dtype)
{
    switch (dtype) {
    case MHA_F16: return (mha__storage){0x1p-11, 0x1p-25, 65520, -65504};
    case MHA_BF16: return (mha__storage){0x1p-8, 0x1p-134, 0x1p127 * (2 - 0x1p-8), -0x1p127 * (2 - 0x1p-7)};
    case MHA_F8_E5M2: return (mha__storage){0x1p-3, 0x1p-17, 61440, -57344};
    case MHA_F8_E4M3: return (mha__storage){0x1p-4, 0x1p-10, INFINITY, -448};
    case MHA_F64: return (mha__storage){0, 0, INFINITY, -DBL_MAX};
    default: return (mha__storage){0, 0, INFINITY, -(double)FLT_MAX};
    }
}

mha__allowed mha__allowed_of(const mha_case *c, int slot, bool wide, mha_stage stage, mha_dtype stored,
                             const mha__tolerance *derived)
{
    const mha__storage storage = mha__storage_of(stored);
    const double common = wide ? c->atol64 : c->atol, own = c->expected[wide][slot].atol;
    mha__allowed a = {.rtol = wide ? c->rtol64 : c->rtol, .atol = isnan(own) ? common : own};
    a.derived = isnan(a.rtol) || isnan(a.atol);
    if (isnan(a.rtol))
        a.rtol = storage.relative;
    if (isnan(a.atol))
        a.atol = derived ? derived->atol[wide][stage] + storage.absolute : INFINITY;
    return a;
}
