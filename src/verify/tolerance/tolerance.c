/* The tolerance of a comparison for which the file gives none: what float32 costs on this very call, and what the type
 * costs in which the result was stored.
 *
 * The error bound holds whatever the order of summation, and for that it assumes the worst of every sum: it
 * grows with n where rounding errors, which differ in sign, grow with sqrt(n), and it takes products of
 * norms where vectors are far from parallel. For a wide layer it is thousands of times the error that
 * occurs, too much to check anything by. So the call is run once in float32 and once in float64, and the
 * error E that occurred is multiplied: another order of summation, another kernel or machine draws its
 * rounding errors from the same distribution, whose maxima over a tensor differ by a factor of 2 or 3;
 * 16 leaves room for both sides of the comparison. A small call without a layer is run with the portable kernels, and
 * by loops in place of the BLAS: its tolerance is the same on every machine. 16 u max|x| replaces an E that is 0
 * by chance; for lse, the logarithm of a sum, of which a rounding is one of lse however small that is, 16 u max(|x|,
 * 1).
 *
 *     float32:  min(2 bound(2^-24), 16 E + max(16, 2 sqrt(n), 2 L) * 2^-24 max|x| + 2 A)
 *     float64:  min(2 bound(2^-53), 64 * 2^-29 E + max(64, 2 sqrt(n), 2 L) * 2^-53 max|x| + 2 A)
 *
 * n: terms that the stage adds up over the keys; 0 before the weights. E is of sums in blocks, and others add one term
 * after the other: of partial sums whose squares grow no slower than in proportion, each rounded with a standard
 * deviation of at most u / sqrt(3) of itself, the last is off by sqrt(n / 2) u / sqrt(3). Numerator and denominator
 * together: 0.58 sqrt(n) u |x|, of which 2 sqrt(n) u max|x| is more than three for the largest element.
 *
 * The run in float32 takes exponentials of 2, as many kernels do: score times log2(e) is rounded once more, by
 * u |score|, and so is the difference from the largest score. In base e E would show nothing of it where scores are far
 * from 0 and happen to be floats, as -2048 + 1/8 is: exp2 then moves a weight by 2^-13 of itself, and so does the lse
 * of a part of the keys, which split-KV and ring kernels keep as a float. Where a part counts as
 * exp(its lse - lse of all), the roundings of both, each of at most u |lse|, multiply a whole row of the result: L is
 * the largest |lse|, and 0 for scores and for lse itself.
 *
 * A is the part of the bound that comes from the angles of a rotation. Both runs compute them in double and in much
 * the same way, so E shows nothing of what others may lose there. Nor does it where clip_qkv takes all but a few
 * numbers of q, k or v to its limits, and their errors with them: A is then infinite.
 *
 * No path in float32 drops weights. E is then that of the same call without its dropout, and of heads and output
 * E grows to (E + 2^-24 max|x|) / (1 - p): what remains of each sum is divided by a 1 - p that may be a float.
 *
 * Of a sample of the rows (sample.c) the largest error is doubled, because other rows may have a larger one. If fewer
 * than 64 elements of it have an error, as of queries that see no key or one, only the bound counts.
 *
 * A tensor of less than 64 finite elements says too little about E: there only the bound counts, which is not far off
 * for a tensor of that size. Errors are proportional to the unit roundoff to first order, hence the 2^-29; there is
 * nothing more exact to measure float64 against, hence the larger factor. Twice the bound is always enough: each side
 * is within it.
 *
 * A kernel of a lower precision (mha_precision), or with a cache of 16 or 8 bits, is allowed more:
 *
 *     float32's tolerance + min(bound of that precision and cache, 4 E')
 *
 * E' is the error that occurs when the call is run once in float64 with roundings at the points of that precision, and
 * of new rows to the type of the cache, which is one more of these points. A
 * right kernel rounds the same inputs and weights to the same numbers, and otherwise draws its errors from the same
 * distribution. FlashAttention's rule allows twice the error of a plain kernel of the same type; here it is twice
 * that, as E' is the error of one fused kernel, and others round the weights before or after the division, and
 * with another running maximum. In 8 bits the bound may be larger than the largest number of the tensor, so that a
 * tensor of few elements is not left to it: the call is run again, with inputs moved at random by no more than their
 * rounding,
 * until 64 errors are drawn or 8 calls are run, and E' is the largest of them. Right kernels draw theirs from that
 * distribution, too: of 64 normal errors the largest is 2.4 standard deviations, so that 4 E' is more than nine. An
 * lse of few elements is left to its bound, which is that of a score. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/rounding.h"
#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "mha/random.h"
#include "verify/attempt/attempt.h"
#include "verify/attempt/call_request.h"
#include "verify/case/record.h"
#include "verify/thresholds/thresholds.h"
#include "verify/tolerance/tolerance.h"

enum { MOST_DRAWS = 8 };  /* calls that are run for more of them */

/* Number of finite values. */
static size_t finite_in(const mha_view *v)
{
    const double *x = v->data;
    size_t finite = 0;
    for (size_t i = 0; i < mha_view_elements(v); i++)
        finite += isfinite(x[i]) != 0;
    return finite;
}

/* The number of elements that two runs round differently: of a sample whose queries see no key, or one, none. */
static size_t different_in(const mha_view *one, const mha_view *other)
{
    size_t index[MHA_MAX_RANK] = {0}, count = 0;
    for (bool more = mha_view_elements(one) > 0; more; more = mha__index_next(index, one->shape, one->rank)) {
        const double x = mha_view_get(one, index), y = mha_view_get(other, index);
        count += isfinite(x - y) && x != y;
    }
    return count;
}

/* True if limits leave few numbers of q, k or v unchanged. */
static bool limits_hide_errors(const mha__request *request, const mha__attempt *ran)
{
    static const mha_stage limited[] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V};
    const double limit = request->call->semantics.qkv.clip_qkv;
    bool hidden = false;
    for (size_t i = 0; i < sizeof limited / sizeof *limited && limit > 0; i++) {
        const mha_view *v = &ran->stages[limited[i]];
        size_t index[4] = {0}, within = 0, beyond = 0;
        for (bool more = mha_view_elements(v) > 0; more; more = mha__index_next(index, v->shape, v->rank)) {
            const bool inside = fabs(mha_view_get(v, index)) < limit * (1 - 0x1p-22); /* in float, too */
            within += inside, beyond += !inside;
        }
        hidden |= beyond > 0 && within < MHA__FEW;
    }
    return hidden;
}

/* Twice the error bound, and twice A: the part that the measured error does not show. */
static void worst_case(const mha__request *request, const mha__attempt *exact, mha__tolerance *t,
                       double unseen[2][MHA_STAGE_COUNT])
{
    static const double units[2] = {0x1p-24, 0x1p-53};
    static const mha_precision none;
    mha__magnitudes m;
    mha__magnitudes_of(request, exact, &m);
    m.cache_rounds = false; /* a cache of 16 or 8 bits counts as low precision */
    mha__magnitudes sure = m;
    sure.rows[0].turn = sure.rows[1].turn = 0;
    const bool hides = limits_hide_errors(request, exact);
    for (int wide = 0; wide < 2; wide++) {
        double without[MHA_STAGE_COUNT];
        mha__bound_of(&m, units[wide], &none, t->atol[wide]);
        mha__bound_of(&sure, units[wide], &none, without);
        for (int s = 0; s < MHA_STAGE_COUNT; s++) {
            unseen[wide][s] = hides ? INFINITY : isfinite(without[s]) ? 2 * (t->atol[wide][s] - without[s]) : 0;
            t->atol[wide][s] *= 2;
        }
    }
}

/* The formula above without A, from the error E of float32, the largest element, and L. */
static double usual(const mha_plan *plan, mha_stage stage, int wide, double E, double largest, double lse)
{
    const bool sums = mha__sample_axis(stage) >= 0 && stage > MHA_STAGE_MASKED; /* over the keys */
    const double n = sums ? (double)(plan->S + plan->S_extra) : 0, of_sums = 2 * sqrt(n),
                 own = fmax(of_sums, n > 0 && stage != MHA_STAGE_LSE ? 2 * lse : 0);
    largest = stage == MHA_STAGE_LSE ? fmax(largest, 1) : largest;
    return wide ? 64 * 0x1p-29 * E + fmax(64, own) * 0x1p-53 * largest : 16 * E + fmax(16, own) * 0x1p-24 * largest;
}

/* True if a float32 run of the call is cheap without the kernels of this machine. */
static bool is_portable(const mha__request *request, const mha_plan *plan)
{
    static const size_t most = (size_t)1 << 26; /* multiply-adds: some 80 ms */
    size_t work;
    return !request->layer && mha__mul(plan->B * plan->h, plan->T_q, &work) &&
           mha__mul(work, plan->S + plan->S_extra, &work) && mha__mul(work, plan->d_k + plan->d_v, &work) &&
           work <= most;
}

/* Runs the request with a cache of its own; it rounds where the request says so, or nowhere. */
static mha_status run(mha__attempt *attempt, const mha__request *request, mha_path path, bool rounds, mha_layout layout,
                      const bool wanted[MHA_STAGE_COUNT], mha_error *error)
{
    mha_call own = *request->call;
    mha__request again = *request;
    again.base_2 = true;
    own.path = path;
    own.cache = NULL;
    if (mha__kernels_are_portable())
        own.threads = 1;
    again.call = &own;
    if (!rounds)
        again.precision = (mha_precision){.inputs = MHA_F32}, again.cache_rounds = false;
    return mha__attempt_make(attempt, NULL, &again, layout, wanted, error);
}

/* Copies an input, each number moved at random by at most a rounding of `unit`; nothing where there is none. */
static mha_status move_input(mha_view *v, mha__arena *pool, uint64_t draw, uint64_t which, double unit,
                             mha_error *error)
{
    if (mha_view_elements(v) == 0)
        return MHA_OK; /* also a value without rows, which goes with its key */
    TRY(mha__arena_copy(pool, MHA_F64, v, "inputs", v, error));
    double *x = v->data;
    for (size_t i = 0; x && i < mha_view_elements(v); i++)
        x[i] *= 1 + unit * (2 * (double)mha__random_unit(draw, which, i) - 1);
    return MHA_OK;
}

/* The coarsest unit roundoff of the request's precision and cache. */
static double coarsest(const mha__request *request)
{
    const mha_dtype *types = (const mha_dtype *)&request->precision;
    double unit = request->cache_rounds ? mha__lost(request->cache, 1, 1) : 0;
    for (size_t i = 0; i < sizeof request->precision / sizeof *types; i++)
        unit = fmax(unit, mha__lost(types[i], 1, 1));
    return fmin(unit, 0.125);
}

/* Runs the request with moved inputs, exactly and with its roundings, and raises error[s] to the largest difference. */
static mha_status draw_errors(const mha__request *request, uint64_t draw, mha_layout layout,
                              const bool wanted[MHA_STAGE_COUNT], double error_of[MHA_STAGE_COUNT], mha_error *error)
{
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha__attempt runs[2] = {{.plan = {0}}};
    mha__request moved = *request;
    mha_call call = *request->call;
    mha_view *inputs[] = {&call.query, &call.key, &call.value, &moved.past_key, &moved.past_value};
    mha_status status = MHA_OK;
    moved.call = &call;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs && status == MHA_OK; i++)
        status = move_input(inputs[i], &pool, draw, i, coarsest(request), error);
    for (int rounds = 0; rounds < 2 && status == MHA_OK; rounds++)
        status = run(&runs[rounds], &moved, MHA_PATH_EXACT, rounds, layout, wanted, error);
    for (int s = 0; s < MHA_STAGE_COUNT && status == MHA_OK; s++) {
        mha_difference d;
        if (!wanted[s])
            continue;
        status = mha_compare(&runs[1].stages[s], &runs[0].stages[s], 0, 0, &d, error);
        error_of[s] = fmax(error_of[s], d.max_abs);
    }
    for (int rounds = 0; rounds < 2; rounds++)
        mha__attempt_free(&runs[rounds]);
    mha__arena_free(&pool);
    return status;
}

/* Adds what the roundings of the request cost to the tolerance of float32; see the beginning of this file. */
static mha_status add_roundings(const mha__request *request, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                                const mha__two_runs *runs, const mha__attempt *measured, mha__tolerance *t,
                                mha_error *error)
{
    const mha__attempt *exact = &runs->exact;
    mha__attempt modelled;
    mha__magnitudes m;
    double bound[MHA_STAGE_COUNT];
    mha__magnitudes_of(request, measured, &m);
    mha__bound_of(&m, 0x1p-24, &request->precision, bound);
    double found[MHA_STAGE_COUNT] = {0};
    size_t finite[MHA_STAGE_COUNT] = {0};
    mha_status status = run(&modelled, request, MHA_PATH_EXACT, true, layout, wanted, error);
    for (int s = 0; s < MHA_STAGE_COUNT && status == MHA_OK; s++) {
        mha_difference d;
        if (!wanted[s])
            continue;
        status = mha_compare(&modelled.stages[s], &exact->stages[s], 0, 0, &d, error);
        finite[s] = finite_in(&exact->stages[s]);
        found[s] = d.max_abs;
        if (request->sample && different_in(&modelled.stages[s], &exact->stages[s]) < MHA__FEW)
            finite[s] = 0, found[s] = INFINITY;
    }
    for (uint64_t draw = 1; draw < MOST_DRAWS && status == MHA_OK; draw++) {
        bool few[MHA_STAGE_COUNT] = {false}, any = false;
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            any |= few[s] = s != MHA_STAGE_LSE && finite[s] > 0 && draw * finite[s] < MHA__FEW;
        if (any)
            status = draw_errors(request, draw, layout, few, found, error);
    }
    for (int s = 0; s < MHA_STAGE_COUNT && status == MHA_OK; s++) {
        const double times = request->sample ? 8 : 4, usual_low = times * found[s],
                     low = s == MHA_STAGE_LSE && finite[s] < MHA__FEW ? bound[s] : fmin(bound[s], usual_low);
        if (!wanted[s])
            continue;
        for (int wide = 0; wide < 2; wide++)
            t->atol[wide][s] += low;
    }
    mha__attempt_free(&modelled);
    return status;
}

/* Runs the request in float32. A dropout is left out there, and `undropped` then has the exact run without it. */
static mha_status run_narrow(const mha__request *request, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                             mha__attempt *narrow, mha__attempt *undropped, mha_error *error)
{
    mha_call call = *request->call;
    mha__request without = *request;
    call.semantics.softmax.dropout_p = 0, call.semantics.softmax.dropout_keep = (mha_view){0};
    without.call = &call;
    TRY(run(narrow, &without, MHA_PATH_BLAS, false, layout, wanted, error));
    return request->call->semantics.softmax.dropout_keep.data
               ? run(undropped, &without, MHA_PATH_EXACT, false, layout, wanted, error)
               : MHA_OK;
}

mha_status mha__tolerance_of(const mha__request *request, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                             mha__two_runs *runs, mha__tolerance *tolerance, mha_error *error)
{
    bool kept[MHA_STAGE_COUNT];
    double unseen[2][MHA_STAGE_COUNT];
    const mha_softmax *softmax = &request->call->semantics.softmax;
    const bool drops = softmax->dropout_keep.data;
    const bool part = request->sample && !drops; /* then float32 says how large the numbers are, in half the memory */
    const mha__attempt *measured = part ? &runs->narrow : &runs->exact;
    *runs = (mha__two_runs){0};
    memcpy(kept, wanted, sizeof kept);
    if (!part)
        mha__magnitudes_want(request->layer, kept);
    kept[MHA_STAGE_LSE] |= request->call->semantics.softmax.normaliser == MHA_SOFTMAX;
    TRY(run(&runs->exact, request, MHA_PATH_EXACT, false, layout, kept, error));
    mha__kernels_portable(is_portable(request, &runs->exact.plan));
    memcpy(kept, wanted, sizeof kept);
    if (part)
        mha__magnitudes_want(request->layer, kept);
    const mha_status status = run_narrow(request, layout, kept, &runs->narrow, &runs->undropped, error);
    mha__kernels_portable(false);
    TRY(status);
    worst_case(request, measured, tolerance, unseen);
    const double lse = mha__largest(&runs->exact.stages[MHA_STAGE_LSE]);
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        if (!wanted[s]) {
            tolerance->atol[0][s] = tolerance->atol[1][s] = INFINITY;
            continue;
        }
        const mha_view *exact = &runs->exact.stages[s];
        if (finite_in(exact) < MHA__FEW || (part && different_in(&runs->narrow.stages[s], exact) < MHA__FEW))
            continue;
        mha_difference d;
        TRY(mha_compare(&runs->narrow.stages[s], drops ? &runs->undropped.stages[s] : exact, 0, 0, &d, error));
        const bool dropped = drops && (s == MHA_STAGE_HEADS || s == MHA_STAGE_GATED || s == MHA_STAGE_OUTPUT);
        const double largest = mha__largest(exact),
                     E = dropped ? (d.max_abs + 0x1p-24 * largest) / (1 - softmax->dropout_p) : d.max_abs;
        for (int wide = 0; wide < 2; wide++)
            tolerance->atol[wide][s] =
                fmin(tolerance->atol[wide][s],
                     usual(&measured->plan, (mha_stage)s, wide, (part ? 2 : 1) * E, largest, lse) +
                         unseen[wide][s]);
    }
    return mha__precision_rounds(&request->precision) || request->cache_rounds
               ? add_roundings(request, layout, wanted, runs, measured, tolerance, error)
               : MHA_OK;
}

/* The tolerance of the wanted stages of a call (NULL: all that it has), computed in `precision`. */
static mha_status of_call(const mha_layer *layer, const mha_call *call, const mha_precision *precision,
                          const bool wanted[MHA_STAGE_COUNT], mha__tolerance *t, mha_error *error)
{
    bool all[MHA_STAGE_COUNT];
    size_t shape[4];
    mha__call_request given;
    mha_status status = mha__call_request_begin(&given, layer, call, error);
    if (status == MHA_OK) {
        mha__two_runs runs;
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            all[s] = mha_plan_stage(&given.plan, (mha_stage)s, shape) > 0;
        given.request.precision = *precision;
        status = mha__tolerance_of(&given.request, MHA_BTE, wanted ? wanted : all, &runs, t, error);
        mha__two_runs_free(&runs);
    }
    mha__call_request_free(&given);
    return status;
}

mha_status mha_precision_tolerance(const mha_layer *layer, const mha_call *call, const mha_precision *precision,
                                   double *atol, size_t count, mha_error *error)
{
    mha__tolerance t;
    TRY(of_call(layer, call, precision, NULL, &t, error));
    memcpy(atol, t.atol[0], (count < MHA_STAGE_COUNT ? count : MHA_STAGE_COUNT) * sizeof *atol);
    return MHA_OK;
}

mha_status mha_tolerance(const mha_layer *layer, const mha_call *call, mha_allowance *results, size_t count,
                         mha_error *error)
{
    bool wanted[MHA_STAGE_COUNT] = {false};
    mha_call exact = *call;
    mha__tolerance t;
    exact.path = MHA_PATH_EXACT; /* which takes all calls that any path takes */
    exact.precision = (mha_precision){.inputs = MHA_F32};
    for (size_t i = 0; i < count; i++) {
        const mha_dtype computed = results[i].computed;
        if ((unsigned)results[i].stage >= MHA_STAGE_COUNT)
            return mha__fail(error, MHA_INVALID, "stage", "expected stages of mha_stage, found %d",
                             (int)results[i].stage);
        if (computed != MHA_F32 && computed != MHA_F64)
            return mha__fail(error, MHA_INVALID, mha_stage_at(results[i].stage)->name,
                             "expected to be computed in F32 (with the roundings of call.precision) or in F64, found "
                             "%s", mha_dtype_name(computed));
        wanted[results[i].stage] = true;
    }
    TRY(of_call(layer, &exact, &call->precision, wanted, &t, error));
    for (size_t i = 0; i < count; i++)
        results[i] = mha__allowance_of(&t, results[i].computed == MHA_F64, results[i].stage, results[i].stored);
    return MHA_OK;
}

void mha__tolerance_of_error(const mha__request *request, const mha__attempt *ran, mha_stage stage, double error,
                             double largest, double atol[2])
{
    mha__tolerance t = {0};
    double unseen[2][MHA_STAGE_COUNT];
    worst_case(request, ran, &t, unseen);
    const double lse = mha__largest(&ran->stages[MHA_STAGE_LSE]);
    for (int wide = 0; wide < 2; wide++)
        atol[wide] =
            fmin(t.atol[wide][stage], usual(&ran->plan, stage, wide, error, largest, lse) + unseen[wide][stage]);
}

void mha__two_runs_free(mha__two_runs *runs)
{
    mha__attempt_free(&runs->exact);
    mha__attempt_free(&runs->narrow);
    mha__attempt_free(&runs->undropped);
}

mha__tolerance mha__tolerance_of_rope(const mha_case *c)
{
    /* A rotation sums nothing up, so the bound itself is close to the error. */
    const mha_view x = mha_case_call(c).query;
    const mha_semantics *semantics = &c->semantics;
    const mha_view *positions = &semantics->qkv.rope.q_positions;
    double farthest = (double)c->T_q;
    if (positions->data)
        farthest = mha__largest(positions);
    else if (semantics->place.position_offset) {
        const mha_view offsets = mha_view_of(mha__unconst(semantics->place.position_offset), MHA_I64, 1, &c->B);
        farthest += mha__largest(&offsets);
    }
    const mha_rope *rope = &semantics->qkv.rope;
    const double times = rope->attention_factor > 0 ? rope->attention_factor : 1,
                 pair = sqrt(2) * mha__largest(&x) * times; /* bounds the 2-norm of a pair */
    mha__tolerance t;
    for (int wide = 0; wide < 2; wide++) {
        const double turn = mha__turn_of(rope, &c->origin, &x, farthest).pair * times,
                     bound = mha__rotation_bound(rope, c->d_k, pair, turn, wide ? 0x1p-53 : 0x1p-24);
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            t.atol[wide][s] = 2 * bound;
    }
    return t;
}

/* ---------------------------------------------------------------- what is allowed */

mha_allowance mha__allowance_of(const mha__tolerance *derived, bool wide, mha_stage stage, mha_dtype stored)
{
    mha__storage storage = mha__storage_of(stored);
    if (wide && stored == MHA_F32) /* which float32's own tolerance would cover */
        storage.relative = 0x1p-24, storage.absolute = 0x1p-150;
    return (mha_allowance){
        .stage = stage,
        .computed = wide ? MHA_F64 : MHA_F32,
        .stored = stored,
        .rtol = storage.relative,
        /* |stored - exact| <= |stored - result| + |result - exact|, and |result| is within that of |exact| */
        .atol = derived ? (1 + storage.relative) * derived->atol[wide][stage] + storage.absolute : INFINITY};
}

mha__allowed mha__allowed_of(const mha_case *c, int slot, bool wide, mha_stage stage, mha_dtype stored,
                             const mha__tolerance *derived)
{
    const mha_allowance unstated = mha__allowance_of(derived, wide, stage, stored);
    const double common = wide ? c->atol64 : c->atol, own = c->expected[wide][slot].atol;
    mha__allowed a = {.rtol = wide ? c->rtol64 : c->rtol, .atol = isnan(own) ? common : own};
    a.derived = isnan(a.rtol) || isnan(a.atol);
    if (isnan(a.rtol))
        a.rtol = unstated.rtol;
    if (isnan(a.atol))
        a.atol = unstated.atol;
    return a;
}
