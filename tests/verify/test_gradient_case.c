/* Gradients and stages of a backward in cases: right ones of random calls and layers, written, read and checked; one
 * wrong element is found, and the first wrong stage; bugs are named; what a case cannot be is refused.
 * GRADIENT_CASES=n tries n of each, from seed GRADIENT_SEED. */
#include <math.h>
#include <string.h>

#include "mha/case.h"
#include "mha/file.h"
#include "support/gradient.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "verify/case/record.h"

static size_t checked, skipped, refused, of_each[MHA_GRADIENT_COUNT], of_stage[MHA_BACKWARD_STAGE_COUNT];

/* The gradients of a call in float64, as a case that is read again; NULL: a case has no words for the call. */
static mha_case *saved(graded *g)
{
    const mha_case_notes notes = {.gradients = &g->gradients, .past_key = g->of[MHA_D_PAST_KEY],
                                  .past_value = g->of[MHA_D_PAST_VALUE]};
    mha_call call = g->r.call;
    mha_error error;
    mha_case *c;
    const char *path = scratch_path("gradients.safetensors");
    call.keep_count = 0;
    assert_ok(mha_backward(g->r.layer, &call, &g->gradients, &error), error);
    if (mha_case_save(path, g->r.layer, &call, &notes, &error) == MHA_UNSUPPORTED)
        return NULL;
    assert_ok(mha_case_open(path, NULL, &c, &error), error);
    return c;
}

/* Moves the largest finite number of gradient `which`; false when there is none but 0. */
static bool spoil(graded *g, int which)
{
    double *x = g->gradients.of[which].data;
    size_t most = 0;
    for (size_t e = 0; e < mha_view_elements(&g->gradients.of[which]); e++)
        most = fabs(x[e]) > fabs(x[most]) ? e : most;
    if (mha_view_elements(&g->gradients.of[which]) == 0 || x[most] == 0 || !isfinite(x[most]))
        return false;
    x[most] *= 1.001;
    return true;
}

static mha_verdict verdict_of(const mha_case *c, mha_path path)
{
    mha_verdict v;
    mha_error error;
    assert_ok(mha_case_check(c, path, NULL, 1, &v, &error), error);
    return v;
}

/* Moves the largest number of a stage that is of visible keys; false when there is none but 0. */
static bool spoil_stage(const graded *g, const graded_stages *stages, mha_backward_stage which)
{
    const bool propagates = g->r.call.semantics.softmax.hidden_values == MHA_HIDDEN_PROPAGATE;
    double *x = NULL;
    size_t n = 0, most = 0;
    for (size_t i = 0; i < stages->count; i++)
        if (stages->keep[i].stage == which)
            x = stages->keep[i].view.data, n = mha_view_elements(&stages->keep[i].view);
    for (size_t e = 0; x && e < n; e++)
        most = fabs(x[e]) > fabs(x[most]) ? e : most;
    if (!x || n == 0 || x[most] == 0 || !isfinite(x[most]) || (which == MHA_BACKWARD_D_WEIGHTS && propagates))
        return false;
    x[most] += 1e-3 * (1 + fabs(x[most]));
    return true;
}

/* A case of the call and its gradients, in memory. */
static mha_case *in_memory(const graded *g)
{
    const mha_case_notes notes = {.gradients = &g->gradients, .past_key = g->of[MHA_D_PAST_KEY],
                                  .past_value = g->of[MHA_D_PAST_VALUE]};
    mha_call call = g->r.call;
    mha_error error;
    mha_case *c;
    call.keep_count = 0;
    assert_ok(mha_case_of_call(g->r.layer, &call, NULL, 0, &notes, &c, &error), error);
    return c;
}

/* A case of the call with a spoiled stage, in memory, whose gradients are right: that stage is the first. */
static bool misses_stage(graded *g, mha_backward_stage which, char *text, size_t size)
{
    mha_case *c = in_memory(g);
    mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
    const bool named = v.outcome == MHA_OUTCOME_FAILED && v.culprit < v.stage_count &&
                       strcmp(v.stages[v.culprit].name, mha_backward_stage_at(which)->name) == 0;
    if (!named)
        snprintf(text, size, "%s with a wrong element: %s %.200s", mha_backward_stage_at(which)->name,
                 mha_outcome_name(v.outcome), v.reason);
    mha_verdict_clear(&v);
    mha_case_close(c);
    of_stage[which]++;
    return !named;
}

/* A case of the call with a spoiled gradient, in memory. */
static bool passes_spoiled(graded *g, int which, char *text, size_t size)
{
    mha_case *c = in_memory(g);
    mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
    const bool named = v.outcome == MHA_OUTCOME_FAILED && v.culprit < v.stage_count &&
                       strstr(v.stages[v.culprit].against, "expected64.d_") == v.stages[v.culprit].against;
    if (!named)
        snprintf(text, size, "d_%s with a wrong element: %s %.200s", mha_gradient_name((mha_gradient)which),
                 mha_outcome_name(v.outcome), v.reason);
    mha_verdict_clear(&v);
    mha_case_close(c);
    return !named;
}

static bool case_fails(const trial *t, char *text, size_t size)
{
    graded g;
    graded_stages stages;
    bool failed = false;
    graded_build(t, &g);
    graded_keep(&g, &stages, &g.gradients);
    mha_case *c = saved(&g);
    refused += !c;
    for (int path = 0; c && path < MHA_PATH_COUNT && !failed; path++) {
        mha_verdict v = verdict_of(c, (mha_path)path);
        const bool unchecked = v.outcome == MHA_OUTCOME_SKIPPED;
        const bool expected = strstr(v.reason, "is not checked") || strstr(v.reason, "expected elements") ||
                              strstr(v.reason, "expected path exact or auto");
        failed = v.outcome == MHA_OUTCOME_FAILED || (unchecked && !expected);
        if (failed)
            snprintf(text, size, "%s: %.300s", mha_path_name((mha_path)path), v.reason);
        checked += v.outcome == MHA_OUTCOME_PASSED, skipped += unchecked;
        const bool right = v.outcome == MHA_OUTCOME_PASSED && path == MHA_PATH_EXACT;
        const mha_backward_stage spoiled = (mha_backward_stage)(t->seed % MHA_BACKWARD_STAGE_COUNT);
        mha_verdict_clear(&v);
        if (right && spoil_stage(&g, &stages, spoiled))
            failed = misses_stage(&g, spoiled, text, size);
        g.gradients.keep_count = right ? 0 : g.gradients.keep_count;
        for (int i = 0; right && i < MHA_GRADIENT_COUNT && !failed; i++) {
            const double *x = g.gradients.of[i].data;
            of_each[i] += x != NULL;
            if (x && (t->seed + (uint64_t)i) % 3 == 0 && spoil(&g, i))
                failed = passes_spoiled(&g, i, text, size);
        }
    }
    mha_case_close(c);
    graded_drop(&stages);
    graded_release(&g);
    return failed;
}

static bool call_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt(&t) && case_fails(&t, text, size);
}

static bool layer_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt_layer(&t) && case_fails(&t, text, size);
}

static void right_gradients_pass_and_wrong_ones_fail(void **state)
{
    (void)state;
    static const mha_gradient expected[] = {MHA_D_QUERY, MHA_D_KEY, MHA_D_VALUE, MHA_D_MASK, MHA_D_ALIBI_SLOPES,
                                            MHA_D_PAST_KEY, MHA_D_PAST_VALUE, MHA_D_WEIGHTS + MHA_SINKS,
                                            MHA_D_WEIGHTS + MHA_BIAS_K,
                                            MHA_D_WEIGHTS + MHA_BIAS_TABLE, MHA_D_WEIGHTS + MHA_B_V};
    const uint64_t n = trial_count("GRADIENT_CASES", 600), first = trial_number("GRADIENT_SEED", 1);
    const size_t wrong = trials_that_fail(first, n, 0, call_fails);
    if (wrong)
        fail_msg("the gradients of %zu random calls are checked wrongly", wrong);
    print_message("gradients of random calls: %zu checked, %zu without a bound, %zu that no case is of\n", checked,
                  skipped, refused);
    assert_true(n < 600 || checked > 2 * (skipped + refused) / 3);
    for (size_t i = 0; n >= 600 && i < sizeof expected / sizeof *expected; i++)
        assert_true(of_each[expected[i]] >= 3);
    for (int i = 0; n >= 600 && i < MHA_BACKWARD_STAGE_COUNT; i++)
        assert_true(of_stage[i] >= 3);
}

static void gradients_of_layers_are_checked(void **state)
{
    (void)state;
    checked = skipped = refused = 0;
    memset(of_each, 0, sizeof of_each);
    const uint64_t n = trial_count("GRADIENT_CASES", 400), first = trial_number("GRADIENT_SEED", 1);
    assert_int_equal(trials_that_fail(first, n, 0, layer_fails), 0);
    print_message("gradients of random layers: %zu checked, %zu without a bound, %zu that no case is of\n", checked,
                  skipped, refused);
    assert_true(n < 400 || checked > 2 * (skipped + refused) / 3);
    for (int w = MHA_W_Q; n >= 400 && w <= MHA_W_O; w++)
        assert_true(of_each[MHA_D_WEIGHTS + w] >= 3);
}

/* A gradient of a query that is key and value, too, is that of all three: the case has no key. */
static void inputs_that_follow_stay_left_out(void **state)
{
    (void)state;
    static const float x[2 * 3 * 4] = {1, -1, 2, 0.5f, 3, -2, 1, 1};
    mha_layer *layer;
    mha_error error;
    double d_query[2 * 3 * 4];
    mha_gradients g = {.d_output = mha_rows(x, 2, 3, 4)};
    const mha_case_notes notes = {.gradients = &g};
    assert_ok(mha_layer_create(&(mha_config){.d_model = 4, .n_heads = 2}, NULL, NULL, &layer, &error), error);
    mha_layer_init(layer, 1);
    g.of[MHA_D_QUERY] = mha_view_of(d_query, MHA_F64, 3, (const size_t[]){2, 3, 4});
    for (int given = 0; given < 3; given++) {
        mha_call call = {.query = mha_rows(x, 2, 3, 4)};
        mha_file *file;
        mha_case *c;
        call.key = given > 0 ? call.query : call.key, call.value = given > 1 ? call.query : call.value;
        assert_ok(mha_backward(layer, &call, &g, &error), error);
        assert_ok(mha_case_save(scratch_path("follows.safetensors"), layer, &call, &notes, &error), error);
        assert_ok(mha_file_open(scratch_path("follows.safetensors"), &file, &error), error);
        assert_int_equal(mha_file_find(file, "key") != NULL, given > 0);
        assert_int_equal(mha_file_find(file, "value") != NULL, given > 1);
        mha_file_close(file);
        assert_ok(mha_case_open(scratch_path("follows.safetensors"), NULL, &c, &error), error);
        mha_case_close(c);
    }
    mha_layer_destroy(layer);
}

/* ---------------------------------------------------------------- one call */

enum { B = 2, T = 3, H = 4, D = 4, ROWS = B * T * H * D };

typedef struct fixture {
    float q[ROWS], k[ROWS], v[ROWS], d[ROWS];
    double dq[ROWS], dk[ROWS], dv[ROWS];
    mha_call call;
    mha_gradients gradients;
    mha_case_notes notes;
} fixture;

static void begin(fixture *f)
{
    mha_error error;
    const size_t shape[4] = {B, T, H, D};
    memset(f, 0, sizeof *f);
    for (size_t e = 0; e < ROWS; e++) {
        f->q[e] = (float)sin(1.0 + (double)e), f->k[e] = (float)sin(2.0 * (double)e);
        f->v[e] = (float)cos(5.0 + (double)e), f->d[e] = (float)cos(3.0 * (double)e);
    }
    f->call = (mha_call){.query = mha_heads(f->q, B, T, H, D), .key = mha_heads(f->k, B, T, H, D),
                         .value = mha_heads(f->v, B, T, H, D), .semantics.softmax.scale = 0.4,
                         .path = MHA_PATH_EXACT};
    f->gradients.d_output = mha_heads(f->d, B, T, H, D);
    f->gradients.of[MHA_D_QUERY] = mha_view_of(f->dq, MHA_F64, 4, shape);
    f->gradients.of[MHA_D_KEY] = mha_view_of(f->dk, MHA_F64, 4, shape);
    f->gradients.of[MHA_D_VALUE] = mha_view_of(f->dv, MHA_F64, 4, shape);
    assert_ok(mha_backward(NULL, &f->call, &f->gradients, &error), error);
    f->notes.gradients = &f->gradients;
}

static mha_case *case_of(fixture *f)
{
    mha_error error;
    mha_case *c;
    assert_ok(mha_case_of_call(NULL, &f->call, NULL, 0, &f->notes, &c, &error), error);
    return c;
}

static void refuses(const fixture *f, const char *name, const char *text)
{
    mha_error error;
    mha_case *c;
    assert_refused(mha_case_of_call(NULL, &f->call, NULL, 0, &f->notes, &c, &error), MHA_INVALID, error, name, text);
}

static void explain(const mha_case *c, bool right, const char *name)
{
    mha_gradient_match list[4];
    size_t count;
    bool found;
    mha_error error;
    assert_ok(mha_case_explain_gradients(c, list, 4, &count, &found, &error), error);
    assert_int_equal(found, right);
    assert_int_equal(count, name ? 1 : 0);
    if (name)
        assert_string_equal(list[0].name, name);
}

static void bugs_are_named(void **state)
{
    (void)state;
    fixture f;
    mha_error error;
    begin(&f);
    f.gradients.d_output = mha_rows(f.d, B, T, H * D); /* rows of heads, or heads */
    mha_case *c = case_of(&f);
    explain(c, true, NULL);
    mha_case_close(c);
    for (size_t e = 0; e < ROWS; e++)
        f.dq[e] *= 1 / 0.4; /* without the scale */
    c = case_of(&f);
    explain(c, false, "scale-missing-dq");
    mha_verdict v = verdict_of(c, MHA_PATH_AUTO);
    assert_int_equal(v.path, MHA_PATH_EXACT);
    assert_true(v.stage_count == 3 && v.culprit == 0 && !v.stages[0].ok && v.stages[1].ok && v.stages[2].ok);
    assert_string_equal(v.stages[0].name, "d_query");
    mha_verdict_clear(&v);
    assert_ok(mha_case_check(c, MHA_PATH_AUTO, "d_key", 1, &v, &error), error);
    assert_true(v.stage_count == 1 && v.outcome == MHA_OUTCOME_PASSED);
    mha_verdict_clear(&v);
    assert_refused(mha_case_check(c, MHA_PATH_AUTO, "d_keys", 1, &v, &error), MHA_NOT_FOUND, error, "d_query");
    mha_case_close(c);
    f.notes.gradients = NULL;
    c = case_of(&f);
    size_t count;
    bool right;
    assert_refused(mha_case_explain_gradients(c, NULL, 0, &count, &right, &error), MHA_NOT_FOUND, error, "none");
    mha_case_close(c);
}

/* A search in a large case would take minutes: it is refused, and the case is checked. */
static void large_cases_are_checked_and_not_searched(void **state)
{
    (void)state;
    enum { LONG = 1025 };
    static float x[LONG * 2];
    static double d[LONG * 2];
    const size_t shape[4] = {1, LONG, 1, 2};
    mha_gradients g = {.d_output = mha_heads(x, 1, LONG, 1, 2)};
    const mha_case_notes notes = {.gradients = &g};
    const mha_call call = {.query = mha_heads(x, 1, LONG, 1, 2), .key = mha_heads(x, 1, LONG, 1, 2),
                           .value = mha_heads(x, 1, LONG, 1, 2)};
    mha_gradient_match list[1];
    mha_error error;
    mha_case *c;
    size_t count;
    bool right;
    for (size_t e = 0; e < LONG * 2; e++)
        x[e] = (float)sin((double)e), d[e] = 1;
    g.of[MHA_D_VALUE] = mha_view_of(d, MHA_F64, 4, shape);
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, &notes, &c, &error), error);
    assert_refused(mha_case_explain_gradients(c, list, 1, &count, &right, &error), MHA_UNSUPPORTED, error, "gradients",
                   "at most 1048576 pairs");
    mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
    assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
    mha_verdict_clear(&v);
    mha_case_close(c);
}

/* ---------------------------------------------------------------- stages of a backward */

/* The stages of a causal call in one list, with its gradients. */
typedef struct staged {
    fixture f;
    double heads[ROWS], maps[3][B * H * T * T], sums[B * H * T];
    mha_backward_keep keep[5];
} staged;

static void begin_stages(staged *s)
{
    static const mha_backward_stage maps[] = {MHA_BACKWARD_D_WEIGHTS, MHA_BACKWARD_D_MASKED, MHA_BACKWARD_D_SCORES};
    const size_t pairs[4] = {B, H, T, T};
    mha_error error;
    begin(&s->f);
    s->f.call.semantics.visible.causal = true;
    for (int i = 0; i < 3; i++)
        s->keep[i] = (mha_backward_keep){maps[i], mha_view_of(s->maps[i], MHA_F64, 4, pairs)};
    s->keep[3] = (mha_backward_keep){MHA_BACKWARD_ROW_SUMS, mha_view_of(s->sums, MHA_F64, 3, pairs)};
    s->keep[4] = (mha_backward_keep){MHA_BACKWARD_D_HEADS,
                                     mha_view_of(s->heads, MHA_F64, 3, (const size_t[]){B, T, H * D})};
    s->f.gradients.keep = s->keep, s->f.gradients.keep_count = 5;
    assert_ok(mha_backward(NULL, &s->f.call, &s->f.gradients, &error), error);
}

/* dS = P dP lacks D, and so do dQ and dK: the first of all is dS, though what was recorded first is not. */
static void the_first_wrong_step_is_named(void **state)
{
    (void)state;
    static const char *const order[] = {"d_heads", "d_weights", "row_sums", "d_masked", "d_scores",
                                        "d_query", "d_key",     "d_value"};
    staged s;
    mha_error error;
    begin_stages(&s);
    for (int wrong = 0; wrong < 2; wrong++) {
        for (size_t e = 0; wrong && e < B * H * T * T; e++)
            s.maps[2][e] += 0.1 * s.sums[e / T];
        for (size_t e = 0; wrong && e < ROWS; e++)
            s.f.dq[e] *= 1.5;
        mha_case *c = case_of(&s.f);
        mha_verdict v = verdict_of(c, MHA_PATH_AUTO);
        assert_int_equal(v.stage_count, 8);
        for (size_t i = 0; i < 8; i++) {
            assert_string_equal(v.stages[i].name, order[i]);
            assert_int_equal(v.stages[i].ok, !wrong || (i != 4 && i != 5));
        }
        assert_int_equal(v.culprit, wrong ? 4 : 8);
        assert_true(!wrong || strstr(v.reason, "d_scores diverges first") == v.reason);
        mha_verdict_clear(&v);
        assert_ok(mha_case_check(c, MHA_PATH_AUTO, "row_sums", 1, &v, &error), error);
        assert_true(v.stage_count == 1 && v.outcome == MHA_OUTCOME_PASSED);
        mha_verdict_clear(&v);
        mha_case_close(c);
    }
}

/* Without gradients the wrong stages are explained: here dS and what follows from it, though D is right. */
static void wrong_stages_are_explained(void **state)
{
    (void)state;
    staged s;
    mha_error error;
    begin_stages(&s);
    for (int i = 0; i < 3; i++)
        s.f.gradients.of[i] = (mha_view){0};
    mha_case *c = case_of(&s.f);
    explain(c, true, NULL);
    mha_case_close(c);
    double d_lse[B * H * T];
    memcpy(d_lse, s.sums, sizeof d_lse); /* with dlse = D dZ is P dP */
    s.f.gradients.d_lse = mha_view_of(d_lse, MHA_F64, 3, (const size_t[]){B, H, T});
    assert_ok(mha_backward(NULL, &s.f.call, &s.f.gradients, &error), error);
    s.f.gradients.d_lse = (mha_view){0};
    c = case_of(&s.f);
    explain(c, false, "d-missing");
    mha_case_close(c);
    for (size_t e = 0; e < B * H * T * T; e++)
        s.maps[2][e] += 1;
    c = case_of(&s.f);
    explain(c, false, NULL);
    mha_case_close(c);
    begin_stages(&s);
    mha_gradient_match list[1];
    size_t count;
    bool right;
    s.f.gradients.of[MHA_D_QUERY] = s.f.gradients.of[MHA_D_KEY] = s.f.gradients.of[MHA_D_VALUE] = (mha_view){0};
    s.keep[1].view.data = NULL; /* not given */
    assert_ok(mha_gradient_explain(NULL, &s.f.call, &s.f.gradients, 0x1p-53, list, 1, &count, &right, &error), error);
    assert_true(right && count == 0);
}

/* dP of a hidden key may be any number, by a stated tolerance, too; dS may not. */
static void what_a_kernel_may_leave_open_is_not_checked(void **state)
{
    (void)state;
    staged s;
    begin_stages(&s);
    for (int map = 0; map < 3; map += 2)
        for (int tolerance = 0; tolerance < 2; tolerance++) {
            begin_stages(&s);
            s.maps[map][1] = map ? 1e-3 : NAN; /* of query 0 and key 1 */
            mha_case *c = case_of(&s.f);
            c->atol64 = tolerance ? 1e-9 : c->atol64;
            mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
            assert_int_equal(v.outcome, map ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED);
            assert_true(!map || strcmp(v.stages[v.culprit].name, "d_scores") == 0);
            assert_int_equal(v.stages[1].difference.mismatches, 0);
            mha_verdict_clear(&v);
            mha_case_close(c);
        }
}

/* Stages of a fused kernel are allowed what its points and the type in which they are stored cost. */
static void stages_of_16_bits_are_checked(void **state)
{
    (void)state;
    static const double factors[] = {1, 1.002, 1.1};
    for (int i = 0; i < 3; i++) {
        static uint16_t stored[B * H * T * T];
        staged s;
        begin_stages(&s);
        for (size_t e = 0; e < B * H * T * T; e++)
            stored[e] = mha__f32_to_bf16((float)(s.maps[0][e] * factors[i]));
        s.keep[0].view = mha_view_of(stored, MHA_BF16, 4, (const size_t[]){B, H, T, T});
        s.f.call.precision = mha_precision_of(MHA_BF16);
        s.f.notes.has_computed = true, s.f.notes.computed = MHA_F32;
        mha_case *c = case_of(&s.f);
        mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
        assert_int_equal(v.stages[1].ok, i < 1);
        for (size_t n = 0; n < v.stage_count; n++)
            assert_true(n == 1 || v.stages[n].ok);
        mha_verdict_clear(&v);
        mha_case_close(c);
    }
}

static void stages_that_contradict_are_refused(void **state)
{
    (void)state;
    staged s;
    begin_stages(&s);
    s.keep[0].view.data = NULL; /* not recorded */
    mha_case *c = case_of(&s.f);
    mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
    assert_true(v.stage_count == 7 && v.outcome == MHA_OUTCOME_PASSED);
    mha_verdict_clear(&v);
    mha_case_close(c);
    begin_stages(&s);
    s.f.gradients.d_output = (mha_view){0};
    refuses(&s.f, "d_output", "expected the gradient of the output");
    begin_stages(&s);
    s.keep[0].stage = MHA_BACKWARD_D_MASKED;
    refuses(&s.f, "d_masked", "found it twice");
    begin_stages(&s);
    s.keep[0].stage = (mha_backward_stage)-1;
    refuses(&s.f, "keep", "found -1");
    begin_stages(&s);
    s.keep[3].view.shape[2] = T - 1;
    refuses(&s.f, "expected64.row_sums", "(2, 4, 3)");
    begin_stages(&s);
    s.f.call.semantics.softmax.normaliser = MHA_SIGMOID;
    refuses(&s.f, "expected64.row_sums", "no such stage");
}

/* Results of float32 are allowed what float32 may cost, and those of a fused kernel what its type may. */
static void rounding_is_allowed_for(void **state)
{
    (void)state;
    static const double factors[] = {1 + 0x1p-24, 1 + 0x1p-9, 1.25};
    static const bool passes[2][3] = {{true, false, false}, {true, true, false}};
    for (int fused = 0; fused < 2; fused++)
        for (int i = 0; i < 3; i++) {
            fixture f;
            begin(&f);
            f.notes.has_computed = true, f.notes.computed = MHA_F32;
            f.call.precision = mha_precision_of(fused ? MHA_BF16 : MHA_F32);
            for (size_t e = 0; e < ROWS; e++)
                f.dv[e] *= factors[i];
            mha_case *c = case_of(&f);
            mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
            assert_true(v.stages[0].ok && v.stages[1].ok && v.stages[2].derived);
            assert_int_equal(v.stages[2].ok, passes[fused][i]);
            mha_verdict_clear(&v);
            mha_case_close(c);
        }
}

/* A result stored in BF16 may be off by its rounding, too. */
static void the_rounding_of_a_stored_type_is_allowed_for(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        fixture f;
        static uint16_t stored[ROWS];
        static float floats[ROWS];
        begin(&f);
        for (size_t e = 0; e < ROWS; e++) {
            stored[e] = mha__f32_to_bf16((float)f.dv[e]);
            floats[e] = mha__bf16_to_f32(stored[e]);
        }
        mha_view *of = &f.gradients.of[MHA_D_VALUE];
        *of = mha_view_of(narrow ? (void *)stored : floats, narrow ? MHA_BF16 : MHA_F32, 4, of->shape);
        mha_case *c = case_of(&f);
        mha_verdict v = verdict_of(c, MHA_PATH_AUTO);
        assert_true(v.stages[0].ok && v.stages[1].ok);
        assert_int_equal(v.stages[2].ok, narrow);
        assert_int_equal(v.stages[2].stored, narrow ? MHA_BF16 : MHA_F32);
        mha_verdict_clear(&v);
        mha_case_close(c);
    }
}

/* NaN and infinity are wrong where the bound is finite, whatever type they were stored in. */
static void what_is_no_number_is_wrong(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        fixture f;
        begin(&f);
        f.dq[5] = NAN, f.dk[3] = -INFINITY;
        f.notes.has_computed = !wide, f.notes.computed = MHA_F32;
        mha_case *c = case_of(&f);
        mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
        assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
        for (size_t i = 0; i < 2; i++) {
            assert_true(v.stages[i].checked && !v.stages[i].ok && v.stages[i].atol > 0 && isfinite(v.stages[i].atol));
            assert_int_equal(v.stages[i].difference.mismatches, 1);
        }
        assert_true(isnan(v.stages[0].yours) && isinf(v.stages[1].yours) && v.stages[2].ok);
        mha_verdict_clear(&v);
        mha_case_close(c);
    }
}

/* Nothing can be said of gradients whose numbers may leave the range of float32. */
static void numbers_out_of_range_are_not_checked(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    for (size_t e = 0; e < ROWS; e++)
        f.d[e] *= 3e38f, f.v[e] *= 100;
    mha_error error;
    assert_ok(mha_backward(NULL, &f.call, &f.gradients, &error), error);
    f.notes.has_computed = true, f.notes.computed = MHA_F32;
    mha_case *c = case_of(&f);
    mha_verdict v = verdict_of(c, MHA_PATH_AUTO);
    assert_int_equal(v.outcome, MHA_OUTCOME_SKIPPED);
    assert_non_null(strstr(v.reason, "is not checked"));
    assert_true(!v.stages[0].checked && v.stages[2].ok);
    mha_verdict_clear(&v);
    mha_case_close(c);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    f.gradients.d_output = (mha_view){0};
    refuses(&f, "d_output", "expected the gradient of the output");
    begin(&f);
    f.gradients.d_output.shape[3] = D - 1;
    refuses(&f, "d_output", "(2, 3, 4, 4)");
    begin(&f);
    f.gradients.of[MHA_D_KEY].shape[1] = T - 1;
    refuses(&f, "expected64.d_key", "(2, 3, 4, 4)");
    begin(&f);
    f.gradients.of[MHA_D_WEIGHTS + MHA_SINKS] = mha_view_of(f.dq, MHA_F64, 1, (const size_t[]){H});
    refuses(&f, "expected64.d_head_sink", "expected sinks in the call");
    begin(&f);
    f.gradients.d_lse = mha_view_of(f.dq, MHA_F64, 3, (const size_t[]){B, H, T});
    f.call.semantics.softmax.normaliser = MHA_SIGMOID;
    refuses(&f, "d_lse", "expected lse in the call");
}

/* A gradient that mha does not compute is no fault of the file: it is skipped, with the reason. */
static void what_is_not_computed_is_skipped(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    f.call.precision = mha_precision_of(MHA_F8_E4M3);
    mha_case *c = case_of(&f);
    mha_verdict v = verdict_of(c, MHA_PATH_EXACT);
    assert_int_equal(v.outcome, MHA_OUTCOME_SKIPPED);
    assert_non_null(strstr(v.reason, "found F8_E4M3"));
    mha_verdict_clear(&v);
    mha_case_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_gradients_pass_and_wrong_ones_fail),
        cmocka_unit_test(gradients_of_layers_are_checked),
        cmocka_unit_test(inputs_that_follow_stay_left_out), cmocka_unit_test(bugs_are_named),
        cmocka_unit_test(large_cases_are_checked_and_not_searched),
        cmocka_unit_test(the_first_wrong_step_is_named),
        cmocka_unit_test(what_a_kernel_may_leave_open_is_not_checked), cmocka_unit_test(wrong_stages_are_explained),
        cmocka_unit_test(stages_of_16_bits_are_checked), cmocka_unit_test(stages_that_contradict_are_refused),
        cmocka_unit_test(rounding_is_allowed_for),
        cmocka_unit_test(the_rounding_of_a_stored_type_is_allowed_for),
        cmocka_unit_test(what_is_no_number_is_wrong),
        cmocka_unit_test(numbers_out_of_range_are_not_checked), cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(what_is_not_computed_is_skipped)};
    return cmocka_run_group_tests_name("gradients in cases", tests, NULL, NULL);
}
