/* The diagnosis of a large case by a part of it, on any number of threads, and what its matches are within. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/rerun.h"
#include "support/trial.h"

/* A layer with grouped heads, lengths, a window and rotation, and its input: large enough to be checked in part. */
typedef struct scene {
    mha_params *params;
    mha_layer *layer;
    mha_call call;
    float *x;
    int64_t lengths[2];
} scene;

enum { BATCH = 2, WIDTH = 96, HEADS = 6, KV_HEADS = 3 };

static void scene_open(scene *s, size_t T)
{
    mha_error error;
    memset(s, 0, sizeof *s);
    const mha_config config = {
        .d_model = WIDTH, .n_heads = HEADS, .kv_heads = KV_HEADS, .bias_q = true, .bias_v = true, .bias_o = true};
    assert_int_equal(mha_params_create(NULL, &s->params, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, s->params, NULL, &s->layer, &error), error);
    mha_layer_init(s->layer, 1);
    static const mha_weight biases[] = {MHA_B_Q, MHA_B_V, MHA_B_O};
    for (size_t i = 0; i < 3; i++) {
        const mha_view v = mha_tensor_view(mha_layer_weight(s->layer, biases[i]));
        mha_random_fill(&v, 3, i, -1, 1);
    }
    s->x = malloc(BATCH * T * WIDTH * sizeof *s->x);
    s->call.query = mha_view_of(s->x, MHA_F32, 3, (const size_t[]){BATCH, T, WIDTH});
    mha_random_fill(&s->call.query, 2, 0, -2, 2);
    s->lengths[0] = (int64_t)T, s->lengths[1] = (int64_t)T - 7;
    mha_semantics *m = &s->call.semantics;
    m->visible.causal = true;
    m->visible.kv_lengths = s->lengths;
    m->visible.has_window_left = true, m->visible.window_left = (int64_t)T / 2;
    m->qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT};
}

static void scene_close(scene *s)
{
    mha_layer_destroy(s->layer);
    mha_params_destroy(s->params);
    free(s->x);
}

static mha_case *case_with(const scene *s, const mha_view *output)
{
    mha_case *c;
    mha_error error;
    mha_keep recorded = {.stage = MHA_STAGE_OUTPUT};
    recorded.view = *output;
    assert_ok(mha_case_of_call(s->layer, &s->call, &recorded, 1, NULL, &c, &error), error);
    return c;
}

/* The output under up to two bugs; false when they do not apply. */
static bool bug_output(const scene *s, const char *a, const char *b, const mha_view *to)
{
    const char *names[] = {a, b};
    const mha_view nothing = *to; /* any output: that of the bug is what is asked for */
    mha_error error;
    mha_case *c = case_with(s, &nothing);
    mha_status status = mha_case_with_bugs(c, names, a ? b ? 2 : 1 : 0, MHA_STAGE_OUTPUT, to, &error);
    if (status != MHA_OK && status != MHA_UNSUPPORTED)
        fail_msg("%s: %s", a ? a : "none", error.message);
    mha_case_close(c);
    return status == MHA_OK;
}

static mha_diagnosis diagnosed(const scene *s, const mha_view *output, int threads)
{
    mha_diagnosis d;
    mha_error error;
    mha_case *c = case_with(s, output);
    assert_ok(mha_case_diagnose(c, NULL, threads, NULL, &d, &error), error);
    mha_case_close(c);
    return d;
}

static bool matches(const mha_diagnosis *d, const char *a, const char *b)
{
    for (size_t i = 0; i < d->match_count; i++) {
        const mha_bug_match *e = &d->matches[i];
        bool found = e->exact && e->count == (b ? 2u : 1u) && strcmp(e->bugs[0], a) == 0;
        if (found && (!b || strcmp(e->bugs[1], b) == 0))
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------- a part */

/* Whether a bug may touch only a few rows, which a part could miss. */
static bool is_local(const char *name)
{
    static const char *const beginnings[] = {"causal", "window", "lengths", "empty", "padding", "cache"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

/* Bugs that touch a few rows, and some that touch all rows, show in the checked rows: the search finds them. */
static void test_a_part_decides_as_well(void **state)
{
    (void)state;
    const size_t T = 460, few = 12;
    scene s, small; /* in which a bug that applies is found at once */
    scene_open(&s, T);
    scene_open(&small, few);
    const mha_view brief = mha_view_of(malloc(BATCH * few * WIDTH * sizeof(double)), MHA_F64, 3,
                                       (const size_t[]){BATCH, few, WIDTH});
    mha_view right = mha_view_of(malloc(BATCH * T * WIDTH * sizeof(double)), MHA_F64, 3,
                                 (const size_t[]){BATCH, T, WIDTH});
    mha_view wrong = right;
    wrong.data = malloc(BATCH * T * WIDTH * sizeof(double));
    assert_true(bug_output(&s, NULL, NULL, &right));
    size_t planted = 0;
    for (size_t i = 0; i < mha_bug_count(); i++) {
        const char *name = mha_bug_at(i)->name;
        mha_difference far;
        mha_error error;
        const bool local = is_local(name);
        if (!bug_output(&small, name, NULL, &brief) || !trial_drawn(local ? 6 : 20, i))
            continue;
        assert_true(bug_output(&s, name, NULL, &wrong));
        assert_ok(mha_compare(&wrong, &right, 0, 0, &far, &error), error);
        if (!(far.max_abs > 1e-9))
            continue;
        mha_diagnosis d = diagnosed(&s, &wrong, 0);
        assert_true(d.part.checked < d.part.rows / 10 && d.part.checked >= 24);
        assert_int_equal(d.part.rows, BATCH * T);
        if (!matches(&d, name, NULL))
            fail_msg("%s: not found, %zu matches%s%s", name, d.match_count, d.match_count ? ", such as " : "",
                     d.match_count && d.matches[0].count ? d.matches[0].bugs[0] : "");
        mha_diagnosis_clear(&d);
        planted++;
    }
    assert_true(planted >= 3);
    free(right.data), free(wrong.data), free(brief.data);
    scene_close(&s);
    scene_close(&small);
}

static void assert_same_match(const mha_bug_match *a, const mha_bug_match *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t v = 0; v < a->count; v++)
        assert_string_equal(a->bugs[v], b->bugs[v]);
    assert_true(a->max_abs == b->max_abs && a->relative == b->relative && a->exact == b->exact);
}

/* Two things wrong are found, by the same numbers on any number of threads. */
static void test_threads_change_nothing(void **state)
{
    (void)state;
    const size_t sizes[] = {16, 470}; /* checked whole, and in part */
    for (size_t n = 0; n < 2; n++) {
        const size_t T = sizes[n];
        scene s;
        if (n && !trial_drawn(2, 0))
            continue;
        scene_open(&s, T);
        const mha_view output = mha_view_of(malloc(BATCH * T * WIDTH * sizeof(double)), MHA_F64, 3,
                                            (const size_t[]){BATCH, T, WIDTH});
        for (int noise = (int)n; noise < 2; noise++) { /* of the large one only what takes all steps of the search */
            assert_true(bug_output(&s, "groups-tiled", "window-left-less", &output));
            if (noise)
                for (size_t i = 0; i < mha_view_elements(&output); i++)
                    ((double *)output.data)[i] *= i % 3 ? 1.3 : 0.8;
            mha_diagnosis one = diagnosed(&s, &output, 1);
            assert_true(noise || matches(&one, "groups-tiled", "window-left-less"));
            for (int threads = n ? 9 : 2; threads <= 9; threads += 7) {
                mha_diagnosis many = diagnosed(&s, &output, threads);
                assert_int_equal(many.match_count, one.match_count);
                assert_int_equal(many.closest_count, one.closest_count);
                assert_int_equal(many.undecided_count, one.undecided_count);
                assert_int_equal(many.part.checked, one.part.checked);
                for (size_t i = 0; i < one.match_count; i++)
                    assert_same_match(&many.matches[i], &one.matches[i]);
                for (size_t i = 0; i < one.closest_count; i++)
                    assert_same_match(&many.closest[i], &one.closest[i]);
                assert_same_match(&many.baseline, &one.baseline);
                mha_diagnosis_clear(&many);
            }
            mha_diagnosis_clear(&one);
        }
        free(output.data);
        scene_close(&s);
    }
}

/* ---------------------------------------------------------------- progress */

typedef struct seen {
    size_t calls, done, total;
} seen;

static void see(void *context, size_t done, size_t total)
{
    seen *s = context;
    assert_true(done >= 1 && done <= total);
    assert_true(s->calls == 0 || total <= s->total); /* pairs are counted when they are tried */
    s->done = done > s->done ? done : s->done;
    s->total = total;
    s->calls++;
}

static void test_progress_is_told(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, 8);
    const mha_view output = mha_view_of(malloc(BATCH * 8 * WIDTH * sizeof(float)), MHA_F32, 3,
                                        (const size_t[]){BATCH, 8, WIDTH});
    mha_random_fill(&output, 7, 0, -1, 1); /* which nothing explains */
    for (int threads = 1; threads <= 2; threads++) {
        mha_case *c = case_with(&s, &output);
        seen progress = {0};
        mha_diagnosis d;
        mha_error error;
        assert_ok(mha_case_diagnose(c, NULL, threads, &(mha_progress){see, &progress}, &d, &error), error);
        assert_int_equal(progress.done, progress.total);
        assert_int_equal(progress.total, d.tried);
        assert_true(progress.calls > (threads == 1 ? d.tried : 2)); /* with one thread for every step, and at the end */
        assert_int_equal(d.match_count, 0);
        for (size_t i = 0; i < d.closest_count; i++)
            assert_true(d.closest[i].relative < d.baseline.relative && d.closest[i].count > 0);
        mha_diagnosis_clear(&d);
        mha_case_close(c);
    }
    free(output.data);
    scene_close(&s);
}

/* ---------------------------------------------------------------- limits */

static mha_diagnosis limited(const scene *s, const mha_view *output, double seconds, double gigabytes)
{
    mha_diagnosis d;
    mha_error error;
    mha_case *c = case_with(s, output);
    mha_case_limit(c, seconds, gigabytes);
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    mha_case_close(c);
    return d;
}

/* A limit of 0 leaves the comparison with the case itself, and says how many known bugs were not tried. */
static void test_a_limit_of_0_leaves_the_case_itself(void **state)
{
    (void)state;
    for (size_t T = 20; T <= 470; T += 450) { /* compared whole, and in part */
        scene s;
        char text[128], expected[128];
        scene_open(&s, T);
        const mha_view output = mha_view_of(malloc(BATCH * T * WIDTH * sizeof(float)), MHA_F32, 3,
                                            (const size_t[]){BATCH, T, WIDTH});
        mha_random_fill(&output, 7, 0, -1, 1); /* which nothing explains */
        /* a large case takes long without limits */
        mha_diagnosis all = limited(&s, &output, T < 100 ? INFINITY : 0, INFINITY);
        const size_t known = all.tried + all.limits.untried;
        if (T < 100) {
            assert_int_equal(all.limits.reached, MHA_LIMIT_NONE);
            assert_int_equal(all.limits.untried, 0);
            assert_string_equal(mha_diagnosis_limit_text(&all, text, sizeof text), "");
        }
        for (int memory = 0; memory < 2; memory++) {
            mha_diagnosis d = limited(&s, &output, memory ? INFINITY : 0, memory ? 0 : INFINITY);
            assert_int_equal(d.limits.reached, memory ? MHA_LIMIT_MEMORY : MHA_LIMIT_TIME);
            assert_int_equal(d.tried, 1);
            assert_int_equal(d.tried + d.limits.untried, known);
            assert_int_equal(d.match_count + d.closest_count + d.undecided_count, 0);
            assert_same_match(&d.baseline, &all.baseline);
            assert_int_equal(d.clue_count, all.clue_count);
            snprintf(expected, sizeof expected, "not all known bugs were tried: 1 of %zu (%s)", known,
                     memory ? "memory limit 0 GB" : "time limit 0 s");
            assert_string_equal(mha_diagnosis_limit_text(&d, text, sizeof text), expected);
            mha_diagnosis_clear(&d);
        }
        mha_diagnosis_clear(&all);
        free(output.data);
        scene_close(&s);
    }
}

/* Random limits from nothing to enough: each diagnosis ends, and names the limit that left something out. */
static void test_small_limits_are_named(void **state)
{
    (void)state;
    const size_t T = 8;
    size_t limited_by[2] = {0, 0};
    scene s;
    scene_open(&s, T);
    const mha_view output = mha_view_of(malloc(BATCH * T * WIDTH * sizeof(float)), MHA_F32, 3,
                                        (const size_t[]){BATCH, T, WIDTH});
    mha_random_fill(&output, 7, 0, -1, 1); /* which nothing explains */
    mha_diagnosis none = limited(&s, &output, 0, INFINITY);
    for (uint64_t n = 0; n < 24; n++) {
        const bool memory = n % 2;
        const double most = exp(-5 - (double)(mha__random_bits(17, 0, n) % 1000) / 70); /* 6.7e-3 to 4.2e-9 */
        char text[128];
        mha_diagnosis d = limited(&s, &output, memory ? INFINITY : most, memory ? most : INFINITY);
        mha_diagnosis_limit_text(&d, text, sizeof text);
        assert_true(d.tried >= 1);
        assert_true(d.limits.untried == 0 || d.limits.reached != MHA_LIMIT_NONE);
        if (d.limits.reached != MHA_LIMIT_NONE) {
            assert_int_equal(d.limits.reached, memory ? MHA_LIMIT_MEMORY : MHA_LIMIT_TIME);
            assert_non_null(strstr(text, memory ? "(memory limit " : "(time limit "));
            limited_by[memory]++;
        }
        assert_same_match(&d.baseline, &none.baseline);
        mha_diagnosis_clear(&d);
    }
    assert_true(limited_by[0] > 0 && limited_by[1] > 0);
    mha_diagnosis_clear(&none);
    free(output.data);
    scene_close(&s);
}

/* Memory for the scores of the compared rows, but not of all rows: a softmax over queries is left out, and is not said
 * to change nothing; every other single bug is tried. */
static void test_what_needs_more_memory_is_left_out(void **state)
{
    (void)state;
    const size_t T = 470;
    scene s;
    scene_open(&s, T);
    const mha_view output = mha_view_of(malloc(BATCH * T * WIDTH * sizeof(double)), MHA_F64, 3,
                                        (const size_t[]){BATCH, T, WIDTH});
    assert_true(bug_output(&s, "softmax-queries", NULL, &output));
    mha_diagnosis d = limited(&s, &output, INFINITY, INFINITY);
    assert_true(matches(&d, "softmax-queries", NULL));
    assert_true(bug_output(&s, "scale-missing", NULL, &output));
    double gigabytes = 4, step = 4; /* the largest limit that is too small, first in rough steps */
    while (step > 2 || (d.tried > 1 && d.limits.reached == MHA_LIMIT_NONE)) {
        if (d.limits.reached != MHA_LIMIT_NONE)
            gigabytes *= step, step = 1.25;
        mha_diagnosis_clear(&d);
        gigabytes /= step;
        d = limited(&s, &output, INFINITY, gigabytes);
    }
    assert_true(matches(&d, "scale-missing", NULL));
    assert_int_equal(d.limits.reached, MHA_LIMIT_MEMORY);
    assert_true(d.limits.untried > 0 && d.limits.untried < 8);
    for (size_t i = 0; i < d.undecided_count; i++)
        assert_string_not_equal(d.undecided[i], "softmax-queries");
    mha_diagnosis_clear(&d);
    assert_true(bug_output(&s, "softmax-queries", NULL, &output));
    d = limited(&s, &output, INFINITY, gigabytes);
    assert_false(matches(&d, "softmax-queries", NULL));
    mha_diagnosis_clear(&d);
    free(output.data);
    scene_close(&s);
}

/* ---------------------------------------------------------------- within what */

/* A right result and one with a bug, rounded to 16 bits: both are named, and within which rounding. */
static void test_a_match_says_within_what(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F64, MHA_F32, MHA_F16, MHA_BF16};
    const size_t sizes[] = {24, 470};
    for (size_t n = 0; n < 2; n++) {
        const size_t T = sizes[n], elements = BATCH * T * WIDTH, shape[] = {BATCH, T, WIDTH};
        scene s;
        scene_open(&s, T);
        const mha_view exact = mha_view_of(malloc(elements * sizeof(double)), MHA_F64, 3, shape);
        for (int wrong = 0; wrong < 2; wrong++) {
            assert_true(bug_output(&s, wrong ? "groups-tiled" : NULL, NULL, &exact));
            for (size_t t = 0; t < 4; t++) {
                const mha_view output = mha_view_of(malloc(elements * sizeof(double)), types[t], 3, shape);
                for (size_t i = 0; i < elements; i++) {
                    const double y = ((const double *)exact.data)[i];
                    if (types[t] == MHA_F64)
                        ((double *)output.data)[i] = y;
                    else if (types[t] == MHA_F32)
                        ((float *)output.data)[i] = (float)y;
                    else
                        ((uint16_t *)output.data)[i] =
                            types[t] == MHA_F16 ? mha__f32_to_f16((float)y) : mha__f32_to_bf16((float)y);
                }
                mha_diagnosis d = diagnosed(&s, &output, 0);
                if (d.match_count == 0 || !d.matches[0].exact)
                    fail_msg("%s of %zu tokens%s: nothing reproduces it, %g off", mha_dtype_name(types[t]), T,
                             wrong ? ", wrong" : "", d.closest_count ? d.closest[0].max_abs : d.baseline.max_abs);
                assert_int_equal(d.matches[0].rounding, types[t]);
                assert_int_equal(d.stored, types[t]);
                assert_false(d.matches[0].stated);
                assert_true(wrong ? matches(&d, "groups-tiled", NULL) : d.matches[0].count == 0 && d.match_count == 1);
                mha_diagnosis_clear(&d);
                free(output.data);
            }
        }
        free(exact.data);
        scene_close(&s);
    }
}

/* A bug that changes nothing on this input is told apart and never called a match: no window instead of one
 * that is wider than there are keys. */
static void test_what_changes_nothing_is_folded(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, 16);
    s.call.semantics.visible.window_left = 100; /* wider than there are keys */
    const mha_view output = mha_view_of(malloc(BATCH * 16 * WIDTH * sizeof(double)), MHA_F64, 3,
                                        (const size_t[]){BATCH, 16, WIDTH});
    for (int wrong = 0; wrong < 2; wrong++) {
        assert_true(bug_output(&s, wrong ? "causal-plus-1" : NULL, NULL, &output));
        mha_diagnosis d = diagnosed(&s, &output, 1);
        bool told = false;
        for (size_t i = 0; i < d.undecided_count; i++)
            told |= strcmp(d.undecided[i], "window-missing") == 0;
        assert_true(told);
        assert_false(matches(&d, "window-missing", NULL));
        assert_true(wrong ? matches(&d, "causal-plus-1", NULL) : d.match_count == 1 && d.matches[0].count == 0);
        mha_diagnosis_clear(&d);
    }
    free(output.data);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_limit_of_0_leaves_the_case_itself),
        cmocka_unit_test(test_small_limits_are_named),
        cmocka_unit_test(test_what_needs_more_memory_is_left_out),
        cmocka_unit_test(test_progress_is_told),       cmocka_unit_test(test_a_match_says_within_what),
        cmocka_unit_test(test_what_changes_nothing_is_folded),
        cmocka_unit_test(test_threads_change_nothing), cmocka_unit_test(test_a_part_decides_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
