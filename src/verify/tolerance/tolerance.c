/* The tolerance of a comparison for which the file gives none: what float32 costs on this very call.
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
 * A tensor of less than 64 finite elements says too little about E: there the bound alone counts, which for what is
 * that small is not so far off. Errors are proportional to the unit roundoff to first order, hence the 2^-29; there is nothing more exact
 * to measure float64 against, hence the larger factor. Twice the bound is always enough: each side is
 * within it. */
#include <math.h>

#include "base/base.h"
#include "verify/attempt.h"
#include "verify/case/record.h"
#include "verify/tolerance/tolerance.h"

/* Largest absolute finite value, and how many finite ones there are. */
static double largest_of(const mha_view *v, size_t *finite)
{
    const double *x = v->data;
    double most = 0;
    *finite = 0;
    for (size_t i = 0; i < mha_view_elements(v); i++)
        if (isfinite(x[i])) {
            most = fmax(most, fabs(x[i]));
            ++*finite;
        }
    return most;
}

/* What the bound says, for a call that has a layer or Q, K, V; twice that, as is the part that comes from angles. */
static mha_status worst_case(const mha__request *request, const mha_plan *plan, mha__tolerance *t,
                             double angles[2][MHA_STAGE_COUNT], mha_error *error)
{
    static const double units[2] = {0x1p-24, 0x1p-53};
    mha__magnitudes m;
    mha_status status = mha__magnitudes_of(request, &m, error);
    if (status)
        return status;
    mha__magnitudes sure = m;
    sure.q_turn = sure.k_turn = 0;
    for (int wide = 0; wide < 2; wide++) {
        double without[MHA_STAGE_COUNT];
        mha__bound_of(plan, &m, units[wide], t->atol[wide]);
        mha__bound_of(plan, &sure, units[wide], without);
        for (int s = 0; s < MHA_STAGE_COUNT; s++) {
            angles[wide][s] = isfinite(without[s]) ? 2 * (t->atol[wide][s] - without[s]) : 0;
            t->atol[wide][s] *= 2;
        }
    }
    return MHA_OK;
}

static mha_status run(mha__attempt *attempt, const mha__request *request, mha_path path,
                      const bool wanted[MHA_STAGE_COUNT], mha_error *error)
{
    mha_call own = *request->call;
    own.path = path;
    own.cache = NULL;
    const mha__request again = {request->layer, &own, request->past_key, request->past_value};
    mha_status status = mha__attempt_begin(attempt, NULL, &again, error);
    return status ? status : mha__attempt_run(attempt, MHA_BTE, wanted, error);
}

mha_status mha__tolerance_of(const mha__request *request, const bool wanted[MHA_STAGE_COUNT],
                             mha__tolerance *tolerance, mha_error *error)
{
    const size_t few = 64;
    mha__attempt exact = {0}, narrow = {0};
    double angles[2][MHA_STAGE_COUNT];
    mha_status status = run(&exact, request, MHA_PATH_EXACT, wanted, error);
    if (!status)
        status = run(&narrow, request, MHA_PATH_BLAS, wanted, error);
    if (!status)
        status = worst_case(request, &exact.plan, tolerance, angles, error);
    for (int s = 0; s < MHA_STAGE_COUNT && !status; s++) {
        if (!wanted[s]) {
            tolerance->atol[0][s] = tolerance->atol[1][s] = INFINITY;
            continue;
        }
        size_t finite;
        double most = largest_of(&exact.stages[s], &finite);
        if (finite < few)
            continue;
        mha_difference d;
        status = mha_compare(&narrow.stages[s], &exact.stages[s], 0, 0, &d, error);
        double E = d.max_abs;
        tolerance->atol[0][s] = fmin(tolerance->atol[0][s], 16 * (E + 0x1p-24 * most) + angles[0][s]);
        tolerance->atol[1][s] = fmin(tolerance->atol[1][s], 64 * (0x1p-29 * E + 0x1p-53 * most) + angles[1][s]);
    }
    mha__attempt_free(&exact);
    mha__attempt_free(&narrow);
    return status;
}

/* Rotation alone: nothing is summed up, the bound itself is near. */
static mha_status of_rope(const mha_case *c, mha__tolerance *t)
{
    mha_view x = mha_case_call(c).query;
    double most = 0;
    size_t index[4] = {0};
    for (size_t i = 0; i < mha_view_elements(&x); i++) {
        double value = fabs(mha_view_get(&x, index));
        most = isfinite(value) ? fmax(most, value) : most;
        for (int k = 3; k >= 0 && ++index[k] == x.shape[k]; k--)
            index[k] = 0;
    }
    const mha_plan plan = {.h = c->H, .d_k = c->d_k, .d_v = c->d_v};
    const mha_semantics *semantics = &c->semantics;
    const mha_view *positions = &semantics->rope.q_positions;
    mha__magnitudes m = {.rotated = true, .q_row = sqrt(2) * most}; /* of a pair, which is all that is mixed */
    double farthest = positions->data ? 0 : (double)c->T_q;
    for (size_t i = 0; positions->data && i < mha_view_elements(positions); i++)
        farthest = fmax(farthest, fabs((double)((const int64_t *)positions->data)[i]));
    for (size_t b = 0; semantics->position_offset && !positions->data && b < c->B; b++)
        farthest = fmax(farthest, fabs((double)semantics->position_offset[b]) + (double)c->T_q);
    m.q_turn = mha__turn_of(&semantics->rope, &x, farthest).pair;
    for (int wide = 0; wide < 2; wide++) {
        double bound[MHA_STAGE_COUNT];
        mha__bound_of(&plan, &m, wide ? 0x1p-53 : 0x1p-24, bound);
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            t->atol[wide][s] = 2 * bound[MHA_STAGE_Q_ROT];
    }
    return MHA_OK;
}

mha_status mha__tolerance_of_case(const mha_case *c, const bool wanted[MHA_STAGE_COUNT], mha__tolerance *tolerance,
                                  mha_error *error)
{
    if (c->kind == CASE_ROPE)
        return of_rope(c, tolerance);
    mha_call call = mha_case_call(c);
    mha__request request = {.layer = mha_case_layer(c), .call = &call};
    mha_case_past(c, &request.past_key, &request.past_value);
    return mha__tolerance_of(&request, wanted, tolerance, error);
}
