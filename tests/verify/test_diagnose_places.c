/* The diagnosis of bugs in only some batch rows, heads or query rows. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/planting.h"

/* Where a bug is made: bits of the axes of which some indices are. */
enum { SOME_BATCH = 1, SOME_HEADS = 2, SOME_ROWS = 4 };

static bool is_made(int where, size_t b, size_t h, size_t t, size_t T)
{
    return !((where & SOME_BATCH && b != 1) || (where & SOME_HEADS && h % 2 == 0) || (where & SOME_ROWS && t < T / 2));
}

/* Puts what is right back where the bug is not made; whether the rest is wrong. */
static bool mix(const rig *r, int where, const oracle_stage *right, oracle_stage *wrong)
{
    const size_t T = r->t.T_q, width = right->shape[2], d = width / (r->layer ? 1 : r->t.config.n_heads);
    double most = 0;
    for (size_t e = 0; e < right->elements; e++) {
        if (!is_made(where, e / width / T, e % width / d, e / width % T, T))
            wrong->value[e] = right->value[e];
        most = fmax(most, fabs(wrong->value[e] - right->value[e]));
    }
    return most > 1e-3;
}

/* The same in some heads of a layer: their changes times W_O are added to the right output. */
static bool mix_heads(const rig *r, const oracle *right, oracle *wrong)
{
    const oracle_stage *of = &right->stage[MHA_STAGE_HEADS], *to = &wrong->stage[MHA_STAGE_OUTPUT];
    const size_t n = of->shape[2], out = to->shape[2], d = n / r->t.config.n_heads;
    double most = 0;
    for (size_t e = 0; e < to->elements; e++) {
        double sum = 0;
        for (size_t f = 0; f < n; f++)
            if (is_made(SOME_HEADS, 0, f / d, 0, 1))
                sum += (wrong->stage[MHA_STAGE_HEADS].value[e / out * n + f] - of->value[e / out * n + f]) *
                       mha_view_get(&r->weights[MHA_W_O], (const size_t[]){f, e % out});
        most = fmax(most, fabs(sum));
        to->value[e] = right->stage[MHA_STAGE_OUTPUT].value[e] + sum;
    }
    return most > 1e-3;
}

/* Whether the match is another one of the same numbers, which is found first. */
static bool is_equal(const mha_bug_match *e)
{
    static const char *const names[] = {"scales-other", "slopes-other", "causal-runs-on"};
    bool equal = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        equal |= e->exact && e->count == 1 && strcmp(e->bugs[0], names[i]) == 0;
    return equal;
}

/* Whether the match says the bug and the places, and computes to what was planted. */
static bool explains(const mha_case *c, const mha_bug_match *e, const char *name, const oracle_stage *planted)
{
    char text[200];
    const char *bug = text;
    double *computed = malloc((planted->elements + 1) * sizeof *computed), most = 0;
    const mha_view view = mha_view_of(computed, MHA_F64, planted->rank, planted->shape);
    mha_error error;
    if (!e->exact || e->count != 1 || strcmp(e->bugs[0], name) != 0 || strncmp(e->found[0], "in ", 3) != 0) {
        free(computed);
        return false;
    }
    snprintf(text, sizeof text, "%s %s", e->bugs[0], e->found[0]);
    assert_true(isnan(e->number[0]));
    assert_ok(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &view, &error), error);
    for (size_t i = 0; i < planted->elements; i++)
        most = fmax(most, fabs(computed[i] - planted->value[i]));
    free(computed);
    return most < 1e-5;
}

static bool is_found(rig *r, const char *name, const oracle_stage *planted)
{
    mha_case *c = planting_case(r, MHA_STAGE_OUTPUT, MHA_F32, planted);
    mha_diagnosis d;
    mha_error error;
    bool found = false;
    assert_non_null(c);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    for (size_t i = 0; i < d.match_count; i++)
        found |= is_equal(&d.matches[i]) || explains(c, &d.matches[i], name, planted);
    if (!found)
        print_error("%s: %s %s\n", name, d.match_count > 0 && d.matches[0].count > 0 ? d.matches[0].bugs[0] : "-",
                    d.match_count > 0 && d.matches[0].count > 0 ? d.matches[0].found[0] : "");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    return found;
}

/* Plants each bug in some places of a few calls. */
static void test_bugs_are_found_where_they_are_made(void **state)
{
    (void)state;
    static const char *const names[] = {"causal-missing", "scale-missing", "rope-missing", "softmax-base-2",
                                        "sinks-missing",  "order-qvk",     "alibi-missing"};
    static const int places[] = {SOME_BATCH, SOME_HEADS, SOME_ROWS, SOME_BATCH | SOME_HEADS,
                                 SOME_BATCH | SOME_HEADS | SOME_ROWS};
    static const double slopes[] = {0.5, 0.25, 0.125, 0.0625};
    size_t count = 0, found = 0;
    for (uint64_t seed = 0; seed < 5; seed++) { /* 3, 4: with a W_O that can be undone, and one that cannot */
        trial t = {.seed = seed + 1, .B = 2, .T_q = 12, .T_k = 12, .bare = seed < 3,
                   .config = {.n_heads = 4, .kv_heads = 4, .d_k = 8, .d_v = 8,
                              .d_model = (const size_t[]){0, 0, 0, 32, 24}[seed],
                              .sinks = seed == 1},
                   .semantics.visible.causal = seed != 1};
        rig r;
        oracle right;
        t.inputs = seed >= 3 ? TRIAL_SELF : TRIAL_CROSS;
        if (seed == 2)
            t.semantics.qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT, .dim = 8};
        if (seed == 1)
            t.semantics.added.alibi_slopes = slopes;
        trial_build(&t, &r);
        planting_run(&r, NULL, &right);
        mha_case *c;
        mha__inputs *inputs = planting_inputs(&r, &right, &c);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
                oracle wrong;
                const bool mixed = !t.bare && places[p] & SOME_HEADS; /* by W_O */
                if (mixed && places[p] != SOME_HEADS)
                    continue;
                planting_bug bug;
                mha__program program = mha__program_of(inputs->c);
                if (!planting_read(inputs->c, names[i], &bug) || !planting_add(inputs->c, &bug, &program))
                    continue;
                planting_run(&r, &program, &wrong);
                if (mixed ? mix_heads(&r, &right, &wrong)
                          : mix(&r, places[p], &right.stage[MHA_STAGE_OUTPUT], &wrong.stage[MHA_STAGE_OUTPUT])) {
                    count++;
                    found += is_found(&r, names[i], &wrong.stage[MHA_STAGE_OUTPUT]);
                }
                oracle_free(&wrong);
            }
        mha__inputs_destroy(inputs);
        mha_case_close(c);
        oracle_free(&right);
        trial_release(&r);
    }
    assert_true(count >= 60);
    assert_int_equal(found, count);
}

/* Places are read as they are written, and nothing else is. */
static void test_text_of_places(void **state)
{
    (void)state;
    static const char *const right[] = {"in head 3", "in heads 0 and 2-3", "in batch row 1, rows 2-4",
                                        "in batch rows 0-1, heads 1 and 3, row 5"};
    static const char *const wrong[] = {"in", "in ", "in head", "in head 4", "in heads 3-2", "in heads 1,", "in head x",
                                        "in heads 1 and", "in head 1 or 2", "at head 1", "in column 1", "in rows -1",
                                        "in head 1, ", "in head 1-", "in head 0-", "in head 0-+1",
                                        "in heads 0 and ..."};
    static float memory[3][2 * 6 * 4 * 4];
    static double computed[2 * 6 * 4 * 4];
    mha_view x[3];
    for (uint64_t i = 0; i < 3; i++) {
        x[i] = mha_heads(memory[i], 2, 6, 4, 4);
        mha_random_fill(&x[i], 9, i, -1, 1);
    }
    const mha_call call = {.query = x[0], .key = x[1], .value = x[2]};
    const mha_view output = mha_view_of(computed, MHA_F64, 4, (size_t[]){2, 6, 4, 4});
    const char *bug;
    char text[200];
    mha_error error;
    mha_case *c;
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        bug = text, snprintf(text, sizeof text, "scale-missing %s", right[i]);
        assert_ok(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &output, &error), error);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bug = text, snprintf(text, sizeof text, "scale-missing %s", wrong[i]);
        if (mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &output, &error) != MHA_INVALID)
            fail_msg("\"%s\" is taken", wrong[i]);
    }
    mha_case_close(c);
}

/* Every second one of many heads: what has no room is not said, and that is said. */
static void test_places_that_have_no_room(void **state)
{
    (void)state;
    enum { HEADS = 24, ELEMENTS = 6 * HEADS * 4 };
    static float memory[3][ELEMENTS], wrong[ELEMENTS];
    static double right[ELEMENTS], missing[ELEMENTS];
    const char *const bug = "causal-missing", *again;
    char text[200];
    mha_view x[3];
    for (uint64_t i = 0; i < 3; i++) {
        x[i] = mha_heads(memory[i], 1, 6, HEADS, 4);
        mha_random_fill(&x[i], 9, i, -1, 1);
    }
    const mha_call call = {
        .query = x[0], .key = x[1], .value = x[2], .semantics.visible.causal = true};
    const size_t shape[] = {1, 6, HEADS, 4};
    const mha_view output = mha_view_of(right, MHA_F64, 4, shape), other = mha_view_of(missing, MHA_F64, 4, shape);
    const mha_keep expected = {.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(wrong, MHA_F32, 4, shape)};
    mha_diagnosis d;
    mha_error error;
    mha_case *c;
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
    assert_ok(mha_case_with_bugs(c, NULL, 0, MHA_STAGE_OUTPUT, &output, &error), error);
    assert_ok(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &other, &error), error);
    mha_case_close(c);
    for (size_t e = 0; e < ELEMENTS; e++)
        wrong[e] = (float)(e / 4 % HEADS % 2 ? missing[e] : right[e]);
    assert_ok(mha_case_of_call(NULL, &call, &expected, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_true(d.match_count > 0);
    assert_string_equal(d.matches[0].bugs[0], bug);
    assert_string_equal(d.matches[0].found[0], "in heads 1 and 3 and 5 and 7 and 9 and 11 and 13 and 15 ...");
    again = text, snprintf(text, sizeof text, "%s %s", bug, d.matches[0].found[0]);
    assert_refused(mha_case_with_bugs(c, &again, 1, MHA_STAGE_OUTPUT, &other, &error), MHA_INVALID, error, "...");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

/* One head of several without its scale, in random calls: the name and the head, not a number for each head. What is
 * read again gives the same numbers. */
static void test_one_head_without_its_scale(void **state)
{
    (void)state;
    static const size_t counts[] = {2, 4, 7, 32};
    static float memory[3][40 * 32 * 8], wrong[40 * 32 * 8];
    static double right[40 * 32 * 8], missing[40 * 32 * 8];
    const uint64_t trials = trial_count("PLACES_TRIALS", 12);
    for (uint64_t seed = 0; seed < trials; seed++) {
        const size_t H = counts[seed % 4], T = 5 + mha__random_bits(41, seed, 0) % 12, d = 8,
                     head = mha__random_bits(41, seed, 1) % H, shape[] = {1, T, H, d}, n = T * H * d;
        const char *const bug = "scale-missing", *again;
        char expected[32], text[200];
        mha_view x[3];
        mha_diagnosis found;
        mha_error error;
        mha_case *c;
        for (uint64_t i = 0; i < 3; i++) {
            x[i] = mha_heads(memory[i], 1, T, H, d);
            mha_random_fill(&x[i], 100 + seed, i, -1, 1);
        }
        const mha_call call = {
            .query = x[0], .key = x[1], .value = x[2], .semantics.visible.causal = mha__random_bits(41, seed, 2) % 2};
        const mha_view output = mha_view_of(right, MHA_F64, 4, shape), other = mha_view_of(missing, MHA_F64, 4, shape);
        const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(wrong, MHA_F32, 4, shape)};
        assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
        assert_ok(mha_case_with_bugs(c, NULL, 0, MHA_STAGE_OUTPUT, &output, &error), error);
        assert_ok(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &other, &error), error);
        mha_case_close(c);
        for (size_t e = 0; e < n; e++)
            wrong[e] = (float)(e / d % H == head ? missing[e] : right[e]);
        assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
        assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &found, &error), error);
        snprintf(expected, sizeof expected, "in head %zu", head);
        if (found.match_count == 0 || strcmp(found.matches[0].bugs[0], bug) != 0)
            fail_msg("%zu heads: %s %s", H, found.match_count ? found.matches[0].bugs[0] : "nothing",
                     found.match_count ? found.matches[0].found[0] : "");
        assert_string_equal(found.matches[0].found[0], expected);
        mha_diagnosis_clear(&found);
        again = text, snprintf(text, sizeof text, "scales-other 0.353553390593274; %zu: 1", head);
        assert_ok(mha_case_with_bugs(c, &again, 1, MHA_STAGE_OUTPUT, &output, &error), error);
        for (size_t e = 0; e < n; e++)
            assert_true(fabs(right[e] - (double)wrong[e]) < 1e-6);
        mha_case_close(c);
    }
}

/* Numbers of many heads name those that differ, and are read as they are written; nothing else is. */
static void test_numbers_of_many_heads(void **state)
{
    (void)state;
    enum { HEADS = 32, ELEMENTS = 6 * HEADS * 4 };
    static float memory[3][ELEMENTS], wrong[ELEMENTS];
    static double values[ELEMENTS];
    const char *const bad[] = {"scales-other 0.5; 32: 1", "scales-other own; 3: 1", "scales-other 0.5; 3",
                               "scales-other ;",
                               "merge-permuted 1; 3: 4", "merge-permuted own, 3: 4", "scales-other 0.5; 3: 1; 4: 1"};
    const char *bug = "merge-permuted own; 3: 17, 17: 3";
    mha_view x[3];
    mha_diagnosis d;
    mha_error error;
    mha_case *c;
    for (uint64_t i = 0; i < 3; i++) {
        x[i] = mha_heads(memory[i], 1, 6, HEADS, 4);
        mha_random_fill(&x[i], 9, i, -1, 1);
    }
    const mha_call call = {.query = x[0], .key = x[1], .value = x[2], .semantics.visible.causal = true};
    const size_t shape[] = {1, 6, HEADS, 4};
    const mha_view output = mha_view_of(values, MHA_F64, 4, shape);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(wrong, MHA_F32, 4, shape)};
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (mha_case_with_bugs(c, &bad[i], 1, MHA_STAGE_OUTPUT, &output, &error) != MHA_INVALID)
            fail_msg("\"%s\" is taken", bad[i]);
    assert_ok(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &output, &error), error);
    mha_case_close(c);
    for (size_t e = 0; e < ELEMENTS; e++)
        wrong[e] = (float)values[e];
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_true(d.match_count > 0);
    assert_string_equal(d.matches[0].bugs[0], "merge-permuted");
    assert_string_equal(d.matches[0].found[0], "own; 3: 17, 17: 3");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bugs_are_found_where_they_are_made), cmocka_unit_test(test_text_of_places),
        cmocka_unit_test(test_places_that_have_no_room), cmocka_unit_test(test_one_head_without_its_scale),
        cmocka_unit_test(test_numbers_of_many_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
