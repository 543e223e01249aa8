/* Slices of a large case: each the same as its part of the whole, under every bug that reads only one head; a
 * diagnosis that searches one slice and compares the answer with the others. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "mha/lab.h"
#include "support/sanitizer.h"
#include "support/trial.h"
#include "verify/diagnose/search_case.h"
#include "verify/bugs/bugs.h"

/* ---------------------------------------------------------------- a slice and the whole */

/* A case of a rig's call, with an output of zeros, and in order the bugs' shape of it. */
static mha_status case_of(const rig *r, mha__arena *pool, mha_case **c, mha_error *error)
{
    const mha_call *call = &r->call;
    const size_t shape[] = {call->query.shape[0], call->query.shape[1], call->query.shape[2], call->value.shape[3]};
    const mha_view none = mha__arena_view(pool, MHA_F64, 4, shape);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = none};
    mha_case_notes notes = {.name = "sliced"};
    if (r->past.keys.data)
        notes.past_key = r->past.keys, notes.past_value = r->past.values;
    return mha_case_of_call(NULL, call, &recorded, 1, &notes, c, error);
}

static bool differs(const mha_view *a, const mha_view *b, double rms)
{
    const double *x = a->data;
    size_t index[4] = {0};
    for (size_t i = 0; i < mha_view_elements(a); i++) {
        const double y = mha_view_get(b, index);
        if (!(fabs(x[i] - y) <= 1e-9 * (fabs(y) + rms)) && x[i] != y && !(isnan(x[i]) && isnan(y)))
            return true;
        (void)mha__index_next(index, a->shape, a->rank);
    }
    return false;
}

static size_t compared, cut;

static bool slice_differs(const trial *t, char *text, size_t size)
{
    rig r;
    mha_case *c;
    mha_error error;
    bool wrong = false;
    mha__arena pool = {.allocator = mha__allocator_default()};
    trial own = *t;
    own.bare = true;
    own.layout = own.layout == MHA_BHTD ? MHA_BHTD : MHA_BTHD;
    trial_build(&own, &r);
    if (case_of(&r, &pool, &c, &error) == MHA_OK) {
        const size_t slices = mha__slice_count(c, MHA_STAGE_OUTPUT), heads = c->H / c->H_kv;
        const mha_view all = mha__arena_view(&pool, MHA_F64, 4, (size_t[]){c->B, c->T_q, c->H, c->d_v}),
                       part = mha__arena_view(&pool, MHA_F64, 4, (size_t[]){1, c->T_q, heads, c->d_v});
        cut += slices > 1;
        for (int v = -1; v < (int)mha_bug_count() && slices > 1 && !wrong; v++) {
            const char *const name[] = {v < 0 ? NULL : mha_bug_at((size_t)v)->name};
            const size_t n = (own.seed + (size_t)(v + 1)) % slices;
            mha_case *slice;
            assert_ok(mha__slice_of(c, 1, MHA_STAGE_OUTPUT, n, &slice, &error), error);
            mha_view there = mha_view_slice(&all, 0, n / c->H_kv, 1);
            there = mha_view_slice(&there, 2, n % c->H_kv * heads, heads);
            if (mha__bugs_by_head(c, slice, v, -1)) {
                assert_ok(mha_case_with_bugs(c, name, v >= 0, MHA_STAGE_OUTPUT, &all, &error), error);
                assert_ok(mha_case_with_bugs(slice, name, v >= 0, MHA_STAGE_OUTPUT, &part, &error), error);
                compared++;
                wrong = differs(&part, &there, 1e-3);
            }
            if (wrong)
                snprintf(text, size, "slice %zu of %zu under %s", n, slices, v < 0 ? "no bug" : name[0]);
            mha_case_close(slice);
        }
        mha_case_close(c);
    }
    trial_release(&r);
    mha__arena_free(&pool);
    return wrong;
}

static void a_slice_is_its_part_of_the_whole(void **state)
{
    (void)state;
    const uint64_t n = trial_count("FORWARD_TRIALS", 150);
    const size_t wrong = trials_that_fail(trial_number("FORWARD_SEED", 1), n, 0, slice_differs);
    if (wrong)
        fail_msg("%zu random calls have a slice that is not their part", wrong);
    assert_true(cut > n / 4 && compared > 5 * n);
}

/* ---------------------------------------------------------------- a large case */

enum { B = 2, T = 704, H = 4, H_KV = 2, D = 64 };
static const double many = 1e8; /* multiply-adds: fewer than a slice has, which is checked by some of its rows */

static float q[B * T * H * D], k[B * T * H_KV * D], v[B * T * H_KV * D], out[B * T * H * D];
static const int64_t lengths[B] = {T, T - 40};

static mha_call call_of(void)
{
    mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, B, T, H, D),
                     .key = mha_view_heads(k, MHA_F32, MHA_BTHD, B, T, H_KV, D),
                     .value = mha_view_heads(v, MHA_F32, MHA_BTHD, B, T, H_KV, D),
                     .output = mha_view_heads(out, MHA_F32, MHA_BTHD, B, T, H, D)};
    call.semantics.visible.causal = true;
    call.semantics.visible.kv_lengths = lengths;
    return call;
}

/* The diagnosis of the result of `run` where `said` was meant. */
static mha_diagnosis diagnose(const mha_call *said, mha_dtype stored)
{
    mha_error error;
    mha_diagnosis d;
    mha_case *c;
    static uint16_t half[B * T * H * D];
    mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = said->output};
    if (stored == MHA_BF16) {
        for (size_t i = 0; i < B * T * H * D; i++)
            half[i] = mha__f32_to_bf16(out[i]);
        recorded.view = mha_view_heads(half, MHA_BF16, MHA_BTHD, B, T, H, D);
    }
    assert_ok(mha_case_of_call(NULL, said, &recorded, 1, NULL, &c, &error), error);
    const mha__search_wish wish = {.threads = 2, .until = INFINITY, .memory = INFINITY};
    assert_ok(mha__case_diagnose(c, &wish, many, &d, &error), error);
    mha_case_close(c);
    return d;
}

static void fill(void)
{
    const mha_call call = call_of();
    mha_random_fill(&call.query, 1, 0, -2, 2);
    mha_random_fill(&call.key, 1, 1, -2, 2);
    mha_random_fill(&call.value, 1, 2, -2, 2);
}

static void run(const mha_call *call)
{
    mha_error error;
    assert_ok(mha_run(NULL, call, &error), error);
}

static void assert_sliced(const mha_diagnosis *d, bool sliced)
{
    assert_int_equal(d->part.slices, sliced ? B * H_KV : 0);
    assert_int_equal(d->part.rows, sliced ? B * H_KV * T : B * T);
    assert_true(d->part.checked >= (sliced ? B * H_KV * 24 : 24) && d->part.checked < d->part.rows / 10);
    assert_string_equal(d->tensor, "expected.output");
}

static void a_right_case_is_right_in_all_slices(void **state)
{
    (void)state;
    fill();
    const mha_call call = call_of();
    run(&call);
    static const mha_dtype types[] = {MHA_F32, MHA_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        mha_diagnosis d = diagnose(&call, types[i]);
        assert_sliced(&d, true);
        assert_int_equal(d.match_count, 1);
        assert_true(d.matches[0].exact && d.matches[0].count == 0 && d.baseline.exact);
        assert_int_equal(d.matches[0].rounding, types[i]);
        bool told = false;
        for (size_t n = 0; n < d.undecided_count; n++)
            told |= strcmp(d.undecided[n], "causal-top-left") == 0;
        assert_true(told);
        mha_diagnosis_clear(&d);
    }
}

/* A bug of every head is found, also one that only the second batch row shows, and one with a number. */
static void a_bug_is_found_in_one_slice_and_held_against_the_others(void **state)
{
    (void)state;
    fill();
    for (int which = 0; which < 3; which++) {
        mha_call said = call_of();
        if (!trial_drawn(3, (uint64_t)which))
            continue;
        if (which == 2)
            said.semantics.visible.kv_lengths = NULL;
        mha_call made = said;
        if (which == 0)
            made.semantics.visible.has_window_left = true, made.semantics.visible.window_left = 60;
        if (which == 1)
            made.semantics.visible.kv_lengths = NULL;
        if (which == 2)
            made.semantics.softmax.softcap = 3;
        run(&made);
        mha_diagnosis d = diagnose(&said, MHA_F32);
        static const char *const names[] = {"case-lacks-window", "lengths-missing", "case-lacks-softcap"};
        if (d.match_count == 0)
            fail_msg("%s: nothing is found", names[which]);
        assert_string_equal(d.matches[0].bugs[0], names[which]);
        assert_true(d.matches[0].exact && !d.baseline.exact);
        assert_sliced(&d, true);
        if (which != 1)
            assert_true(fabs(d.matches[0].number[0] - (which ? 3 : 60)) < 0.01);
        mha_diagnosis_clear(&d);
    }
}

/* Bugs that no slice shows are searched in the whole: heads that read other keys; a number for each head. */
static void what_no_slice_shows_is_found_in_the_whole(void **state)
{
    (void)state;
    fill();
    const mha_call call = call_of();
    float sinks[H] = {-1, 5, 2, 6};
    mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
    weights[MHA_SINKS] = mha_view_of(sinks, MHA_F32, 1, (size_t[]){H});
    for (uint64_t which = 0; which < 2; which++) {
        mha_call made = call;
        if (!trial_drawn(2, which))
            continue;
        if (which)
            made.weights = weights, made.weight_count = MHA_WEIGHT_COUNT;
        else
            made.key.stride[2] = made.value.stride[2] = 0; /* every head reads the first one's */
        run(&made);
        mha_diagnosis d = diagnose(&call, MHA_F32);
        assert_true(d.match_count > 0 && d.matches[0].exact);
        assert_string_equal(d.matches[0].bugs[0], which ? "case-lacks-sinks" : "groups-first");
        assert_sliced(&d, false);
        mha_diagnosis_clear(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_slice_is_its_part_of_the_whole, guard_teardown),
        cmocka_unit_test(a_right_case_is_right_in_all_slices),
        cmocka_unit_test(a_bug_is_found_in_one_slice_and_held_against_the_others),
        cmocka_unit_test(what_no_slice_shows_is_found_in_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
