/* The diagnosis of bugs that were planted in the oracle, as somebody makes them in a kernel: each by its name. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/planting.h"
#include "support/window.h"

/* ---------------------------------------------------------------- one case */

/* The largest difference as a share of the largest number; 1 where only one of two is finite. */
static double far_apart(const oracle_stage *a, const oracle_stage *b)
{
    double most = 0, size = 0;
    for (size_t e = 0; e < a->elements; e++) {
        if (!isfinite(a->value[e]) != !isfinite(b->value[e]))
            return 1;
        if (!isfinite(a->value[e]))
            continue;
        most = fmax(most, fabs(a->value[e] - b->value[e])), size = fmax(size, fabs(a->value[e]));
    }
    return size > 0 ? most / size : 0;
}

/* Whether `a` is finite in at least half of the elements in which `b` is: an output of fewer numbers has no names. */
static bool is_mostly_finite(const oracle_stage *a, const oracle_stage *b)
{
    size_t finite = 0, both = 0;
    for (size_t e = 0; e < b->elements; e++) {
        finite += isfinite(b->value[e]) != 0;
        both += isfinite(b->value[e]) && isfinite(a->value[e]);
    }
    return 2 * both >= finite;
}

/* Diagnoses the wrong output: its name must be among the exact matches of one bug. */
static bool is_found(const mha_case *c, const oracle_bug *m, const trial *t)
{
    char text[1000];
    mha_diagnosis d;
    mha_error error;
    bool found = false;
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    for (size_t i = 0; i < d.match_count; i++)
        found |= d.matches[i].exact && d.matches[i].count == 1 && planting_is_named(&d.matches[i], 0, m->name);
    if (!found)
        trial_text(t, text, sizeof text);
    if (!found)
        print_error("%s in %s: off by %g, right %g; found %s\n", m->name, text, d.closest[0].max_abs,
                    d.baseline.max_abs,
                    d.match_count == 0        ? "nothing"
                    : d.matches[0].count == 0 ? "nothing wrong"
                    : !d.matches[0].exact     ? "only what is near"
                                              : d.matches[0].bugs[0]);
    mha_diagnosis_clear(&d);
    return found;
}

/* ---------------------------------------------------------------- all of them */

static bool has_number_of_each_head(const char *name)
{
    return strcmp(name, "case-lacks-sinks") == 0 || strcmp(name, "case-lacks-slopes") == 0 ||
           strcmp(name, "sinks-other") == 0 || strcmp(name, "slopes-other") == 0 ||
           strcmp(name, "scales-other") == 0 ||
           strncmp(name, "merge-permuted", 14) == 0;
}

/* Whether the queries see keys enough, and the output is large enough, to tell one number from all others. */
static bool shows_numbers(const trial *t, const char *name)
{
    const mha_semantics *s = &t->semantics;
    const mha_config *c = &t->config;
    const size_t width = t->bare ? c->n_heads * c->d_v : c->d_out ? c->d_out : c->d_model;
    const bool by_head = has_number_of_each_head(name);
    const bool see_enough = t->T_q > 4 && t->T_k > 4 && (s->visible.chunk == 0 || strncmp(name, "chunk-", 6) == 0) &&
                            (!s->visible.mask.kind || strncmp(name, "mask-", 5) == 0) && !s->visible.key_padding.kind &&
                            !s->place.has_key_offset && !t->segments && !t->listed &&
                            !s->visible.pattern.blocks.kind && !s->visible.pattern.query_padding.kind;
    if (c->gate && !t->bare && (strstr(name, "padding-other") || strstr(name, "lacks-padding") ||
                                strstr(name, "dropout-mask") || strstr(name, "merge-permuted")))
        return false; /* solved from heads, which are not found behind a gate */
    if (strncmp(name, "segments-moved", 14) == 0)
        return t->T_q > 4 && t->T_k > 4 && !t->listed;
    if (strcmp(name, "output-rows-other") == 0)
        return see_enough;
    if (strncmp(name, "int8-", 5) == 0 || strncmp(name, "int4-", 5) == 0 || strncmp(name, "fp8-", 4) == 0 ||
        strstr(name, "-small-")) /* each rounding, each weight must show */
        return see_enough && t->B * t->T_q * width >= 128;
    if (strncmp(name, "output-lacks-", 13) == 0)
        return see_enough && c->n_heads > 1;
    if (strcmp(name, "rows-k-permuted") == 0 || strcmp(name, "rows-kv-permuted") == 0) /* keys are told one by one */
        return see_enough && s->visible.causal && !windowed(s) && !t->lengths && !c->gate && t->sequences == 0 &&
               t->past == 0 && !s->place.has_offset && !s->place.position_offset &&
               c->n_heads * c->d_v > 4 && s->qkv.rope.kind == MHA_ROPE_NONE && s->softmax.normaliser == MHA_SOFTMAX &&
               !c->bias_kv && !s->softmax.zero_row && !s->added.relative.rule && t->T_q >= t->T_k &&
               (t->bare || c->n_heads * c->d_v <= width);
    if (strcmp(name, "rows-q-permuted") == 0) /* without what hides keys these are rows of the output */
        return see_enough && s->visible.causal && !windowed(s) && !t->lengths;
    if ((strstr(name, "groups-") && strstr(name, "-other")) || strcmp(name, "heads-q-permuted") == 0 ||
        strcmp(name, "output-columns-other") == 0 ||
        strcmp(name, "heads-times") == 0) /* what stands at each head must show */
        return see_enough && !c->gate && (t->bare || c->n_heads * c->d_v <= width);
    if (strcmp(name, "rows-v-permuted") == 0) /* each value must show in the heads */
        return see_enough && !c->gate && t->sequences == 0 && !t->lengths && !windowed(s) &&
               (t->bare || c->n_heads * c->d_v <= width);
    if (strstr(name, "padding-other") || strstr(name, "lacks-padding")) /* each key must show in the heads */
        return t->T_q > 4 && t->T_k > 4 && t->sequences == 0 && !t->lengths && !s->visible.mask.kind &&
               !t->segments && !t->listed && !s->visible.pattern.blocks.kind &&
               (t->bare || c->n_heads * c->d_v <= width) && t->T_q * c->n_heads * c->d_v > 2 * (t->past + t->T_k);
    if (strstr(name, "dropout-mask")) /* each weight must show in its head, and there be enough that one is dropped */
        return t->T_q > 2 && t->past + t->T_k > 1 && !t->listed && t->sequences == 0 && !c->bias_kv &&
               !s->softmax.zero_row && t->past + t->T_k <= c->d_v &&
               (t->bare || c->n_heads * c->d_v <= width);
    return (!by_head && !strchr(name, ' ')) || (see_enough && (!by_head || width > c->n_heads));
}

enum { MOST_BUGS = 200, SEEDS = 3000 };

/* Whether the bug is made with queries, keys and values alone, and of random ones with few; others with a layer,
 * too. test_diagnose_heads.c makes this one in many more. */
static bool is_of_heads_alone(const char *name)
{
    return strcmp(name, "heads-as-time") == 0 || strcmp(name, "queries-added") == 0 ||
           strcmp(name, "output-lacks-heads") == 0 ||
           strcmp(name, "output-lacks-features") == 0 || strcmp(name, "output-lacks-end-by-head") == 0;
}

/* Every bug in PLANTED_TIMES random cases on which it matters, with a layer and without where both are met. Without
 * PLANTED_TIMES a drawn share of the bugs. */
static void find_all(const oracle_bug *(*at)(size_t))
{
    static uint64_t drawn;
    const int times = (int)trial_number("PLANTED_TIMES", 1);
    int done[MOST_BUGS][2] = {{0}};
    bool left_out[MOST_BUGS] = {false};
    size_t n = 0, open = 0, missed = 0;
    for (; at(n); n++) {
        assert_true(n < MOST_BUGS);
        left_out[n] = times == 1 && !trial_drawn(3, drawn++);
        open += !left_out[n];
    }
    for (uint64_t seed = 1; open > 0 && seed <= SEEDS; seed++) {
        trial t = trial_draw(seed);
        rig r;
        oracle right;
        const bool ragged = at == bug_of_scores_at || at == bug_of_call_at || at == bug_of_pattern_at;
        t.sequences = ragged ? t.sequences : 0; /* the others are planted in one length */
        t.poison = seed % 4 == 0, t.amplitude = 0, t.input_dtype = MHA_F32;
        t.T_q = t.T_q > 17 ? 17 : t.T_q, t.T_k = t.inputs == TRIAL_SELF ? t.T_q : t.T_k > 17 ? 17 : t.T_k;
        trial_build(&t, &r);
        planting_run(&r, NULL, NULL, &right);
        for (size_t i = 0; i < n; i++) {
            oracle wrong;
            if (left_out[i] || done[i][t.bare] == times)
                continue;
            if (!shows_numbers(&t, at(i)->name))
                continue;
            planting_run(&r, at(i), NULL, &wrong);
            const mha_stage stage = planting_stage(at(i));
            const oracle_stage *output = &wrong.stage[stage];
            mha_case *c = NULL;
            if (far_apart(output, &right.stage[stage]) > 1e-6 && is_mostly_finite(output, &right.stage[stage]))
                c = planting_case(&r, stage, MHA_F64, output);
            if (c) {
                missed += !is_found(c, at(i), &t);
                const bool alone = is_of_heads_alone(at(i)->name);
                open -= ++done[i][t.bare] == (alone ? 1 : times) && t.bare == alone;
                mha_case_close(c);
            }
            oracle_free(&wrong);
        }
        oracle_free(&right);
        trial_release(&r);
    }
    for (size_t i = 0; i < n; i++) {
        const bool alone = is_of_heads_alone(at(i)->name);
        if (!left_out[i] && done[i][alone] < (alone ? 1 : times))
            fail_msg("%s mattered in %d cases", at(i)->name, done[i][alone]);
    }
    assert_int_equal(missed, 0);
}

static void test_every_bug_is_planted(void **state)
{
    (void)state;
    for (size_t i = 0; i < mha_bug_count(); i++)
        if (!bug_named(mha_bug_at(i)->name) && !strstr(mha_bug_at(i)->name, "latent-") &&
            !strstr(mha_bug_at(i)->name, "page-table-") &&                /* in test_paged_case */
            strcmp(mha_bug_at(i)->name, "softmax-base-2-rounded") != 0 && /* in test_diagnose_rows */
            strcmp(mha_bug_at(i)->name, "scale-d-n") != 0) /* those of latents are planted in test_latent_case */
            fail_msg("%s: nobody makes this bug in a kernel", mha_bug_at(i)->name);
    assert_true(mha_bug_count() >= 200); /* all of which find_all expects to be named, each in several cases */
}

static void test_bugs_in_weights(void **state)
{
    (void)state;
    find_all(bug_of_weights_at);
}

static void test_bugs_in_the_call(void **state)
{
    (void)state;
    find_all(bug_of_call_at);
    find_all(bug_of_bias_at);
}

static void test_bugs_in_the_pattern(void **state)
{
    (void)state;
    find_all(bug_of_pattern_at);
}

static void test_bugs_in_rows(void **state)
{
    (void)state;
    find_all(bug_of_rows_at);
}

static void test_rows_that_lie_elsewhere(void **state)
{
    (void)state;
    find_all(bug_of_moved_at);
}

static void test_what_is_read_of_caches(void **state)
{
    (void)state;
    find_all(bug_of_caches_at);
}

static void test_points_that_are_rounded(void **state)
{
    (void)state;
    find_all(bug_of_rounding_at);
}

static void test_bugs_in_the_output(void **state)
{
    (void)state;
    find_all(bug_of_output_at);
}

static void test_bugs_in_the_scores(void **state)
{
    (void)state;
    find_all(bug_of_scores_at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bug_is_planted),   cmocka_unit_test(test_bugs_in_weights),
        cmocka_unit_test(test_bugs_in_the_call),       cmocka_unit_test(test_bugs_in_the_pattern),
        cmocka_unit_test(test_bugs_in_rows),           cmocka_unit_test(test_rows_that_lie_elsewhere),
        cmocka_unit_test(test_what_is_read_of_caches), cmocka_unit_test(test_points_that_are_rounded),
        cmocka_unit_test(test_bugs_in_the_output),     cmocka_unit_test(test_bugs_in_the_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
