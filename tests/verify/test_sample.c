/* A sample of the query rows of a case: the same bits as those rows of the whole, in every setting; what a verdict says
 * of it, and what it misses. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "mha/lab.h"
#include "support/trial.h"
#include "support/unit.h"
#include "verify/attempt/attempt.h"
#include "verify/case/record.h"

/* ---------------------------------------------------------------- bits */

static mha__request request_of(const rig *r, const mha_call *call, const mha__sample *sample)
{
    mha__request request = {.layer = r->layer, .call = call, .sample = sample};
    if (r->past.keys.data)
        request.past_key = r->past.keys, request.past_value = r->past.values;
    return request;
}

/* Two attempts at a call, of all rows and of a sample. */
static mha_status attempt(const rig *r, const mha__sample *sample, mha__attempt *ran)
{
    bool wanted[MHA_STAGE_COUNT];
    size_t shape[4];
    mha_call call = r->call;
    call.path = MHA_PATH_EXACT, call.cache = NULL, call.keep_count = 0;
    const mha__request request = request_of(r, &call, sample);
    mha_status status = mha__attempt_begin(ran, NULL, &request, NULL);
    if (status != MHA_OK)
        return status;
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        wanted[s] = trial_stages(r) >> s & 1 && mha_plan_stage(&ran->plan, (mha_stage)s, shape) > 0;
    return mha__attempt_run(ran, MHA_BTE, wanted, NULL);
}

static bool same(const mha_view *a, const mha_view *b)
{
    const double *x = a->data, *y = b->data;
    for (size_t i = 0; i < mha_view_elements(a); i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0 && !(isnan(x[i]) && isnan(y[i])))
            return false;
    return mha_view_elements(a) == mha_view_elements(b);
}

static size_t compared;

static bool sample_differs(const trial *t, char *text, size_t size)
{
    rig r;
    trial_build(t, &r);
    const size_t T = r.call.query.shape[1];
    bool rows[1024] = {false}, differs = false;
    mha__sample sample = {rows, 0};
    for (size_t i = 0; i < T; i++)
        sample.count += rows[i] = (t->seed + i * 7) % 5 < 2;
    mha__attempt whole, part;
    const bool ran = attempt(&r, NULL, &whole) == MHA_OK;
    if (ran && sample.count > 0 && attempt(&r, &sample, &part) == MHA_OK) {
        for (int s = 0; s < MHA_STAGE_COUNT && !differs; s++) {
            const mha_view *all = &whole.stages[s];
            const int axis = mha__sample_axis((mha_stage)s);
            mha__arena pool = {.allocator = mha__allocator_default()};
            mha_view expected = *all;
            const bool ragged = r.call.semantics.place.n_sequences > 0,
                       by_sequence = ragged && (axis == 2 || s == MHA_STAGE_WEIGHTS_MEAN);
            if (!all->data || by_sequence)
                continue;
            if (axis >= 0) {
                expected.shape[axis] = sample.count;
                expected = mha__arena_view(&pool, MHA_F64, all->rank, expected.shape);
                mha__sample_copy(&sample, axis, all, &expected);
            }
            compared++;
            differs = !same(&expected, &part.stages[s]);
            if (differs)
                snprintf(text, size, "stage %s of a sample", mha_stage_at((mha_stage)s)->name);
            mha__arena_free(&pool);
        }
        mha__attempt_free(&part);
    }
    mha__attempt_free(&whole);
    trial_release(&r);
    return differs;
}

static void a_sample_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    const size_t wrong = trials_that_fail(trial_number("FORWARD_SEED", 1), trial_count("FORWARD_TRIALS", 400), 0,
                                          sample_differs);
    if (wrong)
        fail_msg("%zu random calls give a sample other bits", wrong);
    assert_true(compared > 1000);
}

/* ---------------------------------------------------------------- verdicts */

enum { B = 2, T = 300, H = 2, d = 4 };

static float q[B * T * H * d], out[B * T * H * d];

static mha_call call_of(mha_layout layout)
{
    const mha_view x = mha_view_heads(q, MHA_F32, layout, B, T, H, d);
    mha_call call = {.query = x, .key = x, .value = x};
    call.output = mha_view_heads(out, MHA_F32, layout, B, T, H, d);
    call.semantics.visible.causal = true;
    return call;
}

/* The verdict of a sample on the exact path, when an element of (b, row) is wrong by `by` (row T: none). */
static mha_verdict check_wrong_by(double by, mha_layout layout, size_t sample, size_t b, size_t row)
{
    mha_error error;
    mha_case *c;
    mha_call call = call_of(layout);
    for (size_t i = 0; i < B * T * H * d; i++)
        q[i] = (float)sin((double)(i * i % 1009));
    assert_ok(mha_run(NULL, &call, &error), error);
    const size_t at[4] = {b, row, 1, 2};
    if (row < T)
        mha_view_set(&call.output, at, mha_view_get(&call.output, at) + by);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = call.output};
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    mha_case_sample(c, sample);
    size_t all;
    assert_int_equal(mha_case_rows(c, MHA_PATH_EXACT, &all), sample ? sample : T);
    assert_int_equal(all, T);
    assert_int_equal(mha_case_rows(c, MHA_PATH_AUTO, &all), T);
    mha_verdict v;
    assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 1, &v, &error), error);
    mha_case_close(c);
    return v;
}

static mha_verdict check(mha_layout layout, size_t sample, size_t b, size_t row)
{
    return check_wrong_by(0.01, layout, sample, b, row);
}

/* Of two rows for the ends and two for steps, the others drawn: both ends are seen, and every row that is far from its
 * neighbours, NaN and infinity among them. */
static void ends_and_steps_are_checked_whatever_is_drawn(void **state)
{
    (void)state;
    static const double by[] = {50, NAN, INFINITY};
    const size_t ends[] = {0, T - 1};
    for (size_t i = 0; i < 2; i++) {
        mha_verdict v = check(MHA_BTHD, 8, 1, ends[i]);
        assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
        mha_verdict_clear(&v);
    }
    for (size_t row = 0; row < T; row++) {
        mha_verdict v = check_wrong_by(by[row % 3], MHA_BTHD, 8, row % 2, row);
        if (v.outcome != MHA_OUTCOME_FAILED)
            fail_msg("row %zu is wrong by %g, and the sample does not see it", row, by[row % 3]);
        mha_verdict_clear(&v);
    }
}

/* The first and the last row and the edges of tiles are looked at. */
static void rows_where_kernels_go_wrong_are_checked(void **state)
{
    (void)state;
    static const mha_layout layouts[] = {MHA_BHTD, MHA_BTHD, MHA_BTE, MHA_TBE};
    static const size_t rows[] = {0, T - 1, 127, 128, 255, 256};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        mha_verdict v = check(layouts[l], 64, 0, T);
        if (v.outcome != MHA_OUTCOME_PASSED)
            fail_msg("%s", v.reason);
        assert_int_equal(v.stages[0].difference.elements, B * 64 * H * d);
        mha_verdict_clear(&v);
        for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
            v = check(layouts[l], 64, i % 2, rows[i / 2]);
            assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
            const mha_difference *x = &v.stages[0].difference;
            assert_int_equal(x->worst_index[0], i % 2);
            assert_int_equal(x->worst_index[1], rows[i / 2]);
            assert_int_equal(x->mismatches, 1);
            mha_verdict_clear(&v);
        }
    }
}

/* A row that is wrong by less than the distance of rows is found by all rows, and by a sample if it is in it. */
static void a_sample_misses_other_rows(void **state)
{
    (void)state;
    size_t found = 0;
    for (size_t row = 1; row < T - 1; row += 6) {
        mha_verdict v = check(MHA_BTHD, 32, 1, row), all = check(MHA_BTHD, 0, 1, row);
        found += v.outcome == MHA_OUTCOME_FAILED;
        assert_int_equal(all.outcome, MHA_OUTCOME_FAILED);
        mha_verdict_clear(&v);
        mha_verdict_clear(&all);
    }
    assert_true(found > 0 && found < 25);
}

/* Rows that are left out may have a larger error: that of the sample counts twice. All rows but one have the same. */
static void a_sample_allows_for_rows_it_leaves_out(void **state)
{
    (void)state;
    mha_verdict whole = check(MHA_BTHD, 0, 0, T), most = check(MHA_BTHD, T - 1, 0, T);
    /* Of tolerances, what is not error of float32. */
    const double largest = 2 * sqrt(T) * 0x1p-24, least = largest * 0.5;
    assert_true(most.stages[0].atol > whole.stages[0].atol);
    assert_true(most.stages[0].atol <= 2 * whole.stages[0].atol - least);
    assert_true(most.stages[0].atol >= 2 * (whole.stages[0].atol - largest));
    mha_verdict_clear(&whole);
    mha_verdict_clear(&most);
}

/* Random right results of a float path in which most queries see no key, or one: a sample of one to eight rows, which
 * may be only such rows, refuses none of them. */
static void a_sample_of_rows_without_keys_refuses_nothing(void **state)
{
    (void)state;
    enum { TOKENS = 48, WIDTH = 16 };
    static float x[3][TOKENS * 2 * WIDTH], result[TOKENS * 2 * WIDTH];
    static uint8_t seen[TOKENS * TOKENS];
    const uint64_t trials = trial_count("SAMPLE_TRIALS", 400);
    for (uint64_t seed = 0; seed < trials; seed++) {
        const mha_path path = seed % 2 ? MHA_PATH_BLAS : MHA_PATH_FAST;
        mha_view v[3];
        mha_verdict verdict;
        mha_error error;
        mha_case *c;
        for (uint64_t i = 0; i < 3; i++) {
            v[i] = mha_heads(x[i], 1, TOKENS, 2, WIDTH);
            mha_random_fill(&v[i], 300 + seed, i, -3, 3);
        }
        for (size_t row = 0; row < TOKENS; row++) {
            const uint64_t kind = mha__random_bits(71, seed, row) % 8;
            for (size_t j = 0; j < TOKENS; j++)
                seen[row * TOKENS + j] = kind == 7 || (kind > 4 && j == row);
        }
        mha_call call = {.query = v[0], .key = v[1], .value = v[2], .path = path,
                         .output = mha_heads(result, 1, TOKENS, 2, WIDTH),
                         .semantics.visible.mask = {
                             .kind = MHA_MASK_KEEPS,
                             .values = mha_view_of(seen, MHA_BOOL, 2, (const size_t[]){TOKENS, TOKENS})}};
        assert_ok(mha_run(NULL, &call, &error), error);
        const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = call.output};
        assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
        mha_case_sample(c, 1 + seed % 8);
        for (int p = 0; p < 3; p++) {
            const mha_path checked = p == 0 ? MHA_PATH_EXACT : p == 1 ? MHA_PATH_BLAS : MHA_PATH_FAST;
            assert_ok(mha_case_check(c, checked, NULL, 1, &verdict, &error), error);
            if (verdict.outcome != MHA_OUTCOME_PASSED)
                fail_msg("seed %zu, %zu rows, on %s: %s", (size_t)seed, (size_t)(1 + seed % 8), mha_path_name(checked),
                         verdict.reason);
            mha_verdict_clear(&verdict);
        }
        mha_case_close(c);
    }
}

/* A stated rtol multiplies the correct number: twice the correct one is off by one of it, half of it by a half. */
static void rtol_is_of_the_correct_number(void **state)
{
    (void)state;
    static float right[T * H * d * B];
    mha_error error;
    mha_case *c;
    for (int path = 0; path < 2; path++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            mha_call call = call_of(MHA_BTHD);
            const float times = 0.05f + 4 * mha__random_unit(81, seed, 0), rtol = 2 * mha__random_unit(81, seed, 1);
            mha_verdict verdict;
            mha_random_fill(&call.query, 80 + seed, 0, 0.5, 2);
            assert_ok(mha_run(NULL, &call, &error), error);
            memcpy(right, out, sizeof out);
            for (size_t i = 0; i < sizeof out / sizeof *out; i++)
                right[i] *= times;
            mha_view wrong = call.output;
            wrong.data = right;
            const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = wrong};
            assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
            c->rtol = c->rtol64 = (double)rtol, c->atol = c->atol64 = 1e-6;
            assert_ok(mha_case_check(c, path ? MHA_PATH_EXACT : MHA_PATH_AUTO, NULL, 1, &verdict, &error), error);
            const bool passes = fabsf(times - 1) <= rtol;
            if (fabsf(fabsf(times - 1) - rtol) > 1e-3f && (verdict.outcome == MHA_OUTCOME_PASSED) != passes)
                fail_msg("times %g, rtol %g: %s", (double)times, (double)rtol, mha_outcome_name(verdict.outcome));
            mha_verdict_clear(&verdict);
            mha_case_close(c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_sample_has_the_bits_of_the_whole, guard_teardown),
        cmocka_unit_test(ends_and_steps_are_checked_whatever_is_drawn),
        cmocka_unit_test(rows_where_kernels_go_wrong_are_checked),
        cmocka_unit_test(a_sample_misses_other_rows),
        cmocka_unit_test(a_sample_allows_for_rows_it_leaves_out),
        cmocka_unit_test(a_sample_of_rows_without_keys_refuses_nothing),
        cmocka_unit_test(rtol_is_of_the_correct_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
