/* The diagnosis of rows, heads and columns that replace others: of v, of the output, of groups, and of cached
 * rows. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"

enum { MOST = 16384 };

typedef struct setting {
    const char *bug, *found;
    size_t B, T, S, h, h_kv, d;
    bool causal;
    mha_dtype dtype; /* in which the output is recorded */
    size_t past;     /* cached rows before those of k and v */
} setting;

/* A call of random rows; its numbers live until the next. */
static mha_call call_of(const setting *s)
{
    static float memory[3][MOST];
    const mha_view q = mha_heads(memory[0], s->B, s->T, s->h, s->d),
                   k = mha_heads(memory[1], s->B, s->S, s->h_kv, s->d),
                   v = mha_heads(memory[2], s->B, s->S, s->h_kv, s->d), *const all[] = {&q, &k, &v};
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(mha_view_elements(all[i]) <= MOST);
        mha_random_fill(all[i], 3, i, -2, 2);
    }
    return (mha_call){.query = q, .key = k, .value = v, .semantics.visible.causal = s->causal};
}

/* The cached rows of a call; NULL in their place: it has none. */
static mha_case_notes notes_of(const setting *s)
{
    static float memory[2][MOST];
    const size_t shape[] = {s->B, s->h_kv, s->past, s->d};
    mha_case_notes notes = {.past_key = mha_view_of(memory[0], MHA_F32, 4, shape),
                            .past_value = mha_view_of(memory[1], MHA_F32, 4, shape)};
    if (s->past == 0)
        return (mha_case_notes){0};
    mha_random_fill(&notes.past_key, 3, 3, -2, 2);
    mha_random_fill(&notes.past_value, 3, 4, -2, 2);
    return notes;
}

/* The result of a bug, as a case with that output; NULL: it is refused. */
static mha_case *planted(const setting *s, mha_status *status)
{
    static double wide[MOST], stored[MOST];
    char name[200] = ""; /* zeros after the text, too */
    const char *bug = name;
    const mha_call call = call_of(s);
    const mha_case_notes notes = notes_of(s);
    const size_t shape[] = {s->B, s->T, s->h * s->d}, by_head[] = {s->B, s->T, s->h, s->d};
    const mha_view output = mha_view_of(wide, MHA_F64, 3, shape), heads = mha_view_of(wide, MHA_F64, 4, by_head);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(stored, s->dtype, 4, by_head)};
    mha_error error;
    mha_case *c, *result;
    snprintf(name, sizeof name, "%s%s%s", s->bug, *s->found ? " " : "", s->found);
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, &notes, &c, &error), error);
    *status = mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &output, &error);
    mha_case_close(c);
    if (*status != MHA_OK)
        return NULL;
    assert_int_equal(mha_view_copy(&recorded.view, &heads, NULL), MHA_OK);
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, &notes, &result, &error), error);
    return result;
}

/* Whether the bug and its numbers are the one answer. */
static bool is_found(const setting *s)
{
    mha_status status;
    mha_diagnosis d;
    mha_error error;
    mha_case *c = planted(s, &status);
    assert_non_null(c);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    const bool found = d.match_count == 1 && d.matches[0].exact && d.matches[0].count == 1 &&
                       strcmp(d.matches[0].bugs[0], s->bug) == 0 && strcmp(d.matches[0].found[0], s->found) == 0;
    if (!found && d.match_count > 0 && d.matches[0].count > 0)
        print_error("%s %s, of %zu\n", d.matches[0].bugs[0], d.matches[0].found[0], d.match_count);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    return found;
}

static void test_rows_are_found(void **state)
{
    (void)state;
    static const setting all[] = {
        {"rows-v-permuted", "0-3: 8-11, 8-11: 0-3", 2, 12, 12, 4, 4, 16, true, MHA_F32, 0},
        {"rows-v-permuted", "0: 5, 1-3: 3-1, 5: 0", 2, 12, 12, 4, 2, 16, false, MHA_F64, 0},
        {"rows-v-permuted", "none; 2: 9, 4: 0; 6-9: 1", 3, 9, 13, 4, 1, 8, false, MHA_F32, 0},
        {"rows-v-permuted", "4-8: 8-4", 2, 12, 12, 2, 2, 16, true, MHA_F32, 0},
        {"rows-v-permuted", "0-3: 4-7, 4-7: 0-3", 1, 5, 12, 8, 4, 16, false, MHA_F32, 0}, /* fewer queries than keys */
        {"rows-v-permuted", "3: 0, 7: 2", 2, 12, 12, 4, 4, 16, true, MHA_BF16, 0},
        {"rows-v-permuted", "40: 7, 280: 40", 1, 290, 290, 2, 2, 16, true, MHA_F32, 0},
        {"rows-k-permuted", "0-3: 8-11, 8-11: 0-3", 2, 12, 12, 4, 4, 16, true, MHA_F32, 0}, /* pages of 4 */
        {"rows-k-permuted", "1: 6, 3: 0; 2-8: 8-2", 2, 12, 12, 4, 2, 8, true, MHA_F64, 0},
        {"rows-k-permuted", "0-32: 32-0", 1, 33, 33, 4, 2, 16, true, MHA_F32, 0},
        {"rows-kv-permuted", "0-3: 4-7, 4-7: 0-3", 2, 12, 12, 4, 4, 16, true, MHA_F32, 0},
        {"rows-kv-permuted", "none; 5: 2", 2, 12, 12, 2, 1, 8, true, MHA_BF16, 0},
        {"rows-kv-permuted", "0-15: 16-31, 16-31: 0-15", 1, 33, 33, 2, 2, 16, true, MHA_F32, 0},
        {"rows-v-permuted", "0-7: 8-15, 8-15: 0-7", 2, 4, 4, 4, 2, 16, true, MHA_F32, 28}, /* in a cache */
        {"rows-v-permuted", "8-11: 0-3; none", 2, 3, 3, 4, 4, 8, true, MHA_F32, 19},
        {"rows-kv-permuted", "16-31: 0-15", 1, 4, 4, 4, 2, 16, true, MHA_F16, 40},
        {"rows-k-permuted", "4-7: 12-15", 2, 4, 4, 4, 4, 16, true, MHA_F64, 16},
        {"rows-k-moved", "-4", 2, 4, 4, 4, 4, 16, true, MHA_F32, 16},
        {"cache-k-batch-moved", "1", 2, 4, 4, 4, 4, 16, true, MHA_F32, 16},
        {"cache-heads-reversed", "", 2, 1, 1, 4, 4, 16, true, MHA_F32, 16},
        {"heads-q-permuted", "3, 2, 1, 0", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"heads-q-permuted", "2, 1, 0, 3", 2, 12, 12, 4, 2, 8, true, MHA_F64, 0},
        {"output-columns-other", "15: 14, 31: 30", 2, 9, 13, 2, 2, 16, false, MHA_F32, 0},
        {"output-columns-other", "0-7: 7-0", 2, 12, 12, 4, 1, 8, true, MHA_BF16, 0},
        {"output-lacks-rows", "9", 2, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"output-lacks-rows", "4", 1, 5, 9, 4, 2, 8, false, MHA_F16, 0},
        {"output-lacks-heads", "2", 2, 5, 9, 4, 2, 8, false, MHA_F32, 0},
        {"output-lacks-features", "7", 2, 5, 9, 4, 2, 8, true, MHA_F32, 0},
        {"output-lacks-batches", "1", 2, 5, 9, 4, 2, 8, true, MHA_F32, 0},
        {"output-lacks-end", "100", 2, 5, 9, 4, 2, 8, false, MHA_F64, 0},
        {"output-lacks-end", "300", 2, 5, 9, 4, 2, 8, false, MHA_F32, 0},
        {"output-lacks-end-by-head", "77", 2, 5, 9, 4, 2, 8, true, MHA_F32, 0},
        {"memory-k", "3", 1, 16, 16, 4, 4, 16, true, MHA_F32, 0}, /* transposed */
        {"memory-v", "3", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"memory-kv", "3", 2, 12, 12, 4, 2, 8, true, MHA_F64, 0},
        {"int4-v", "8", 2, 12, 12, 4, 4, 16, true, MHA_F32, 0},
        {"fp8-k", "4", 3, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"int8-q", "4", 3, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"cache-v-rounded", "4", 2, 4, 4, 4, 2, 8, true, MHA_F32, 9},
        {"int8-v", "1", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"int8-k", "2", 2, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"int8-kv", "3", 2, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"weights-small-hidden", "0.03", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"weights-small-dropped", "0.01", 2, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"weights-small-dropped", "0.001", 1, 33, 33, 4, 4, 16, false, MHA_F64, 0},
        {"exponentials-small-dropped", "0.02", 2, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"softmax-relu", "", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"softmax-relu-undivided", "", 2, 12, 12, 4, 2, 8, true, MHA_F16, 0},
        {"weights-averaged", "", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"merge-averaged", "", 2, 12, 12, 4, 2, 8, true, MHA_F32, 0},
        {"tile-last-only", "16", 1, 17, 26, 4, 4, 16, false, MHA_F32, 0},
        {"tile-last-only", "8", 2, 3, 15, 4, 2, 8, false, MHA_F32, 0},
        {"rows-q-permuted", "4-7: 8-11, 8-11: 4-7", 2, 12, 12, 4, 4, 16, true, MHA_F32, 0},
        {"rows-q-permuted", "none; 1: 6, 3-4: 0", 2, 9, 13, 4, 2, 8, true, MHA_F64, 0},
        {"groups-other", "0, 1, 1, 0", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"groups-other", "3, 0, 1, 2", 2, 12, 12, 4, 4, 16, true, MHA_F64, 0},
        {"groups-k-other", "1, 1, 0, 2, 2, 2", 2, 7, 9, 6, 3, 8, true, MHA_F32, 0},
        {"groups-v-other", "0, 0, 0, 1", 1, 9, 13, 4, 2, 8, false, MHA_F16, 0},
        {"top-keys-alone", "4", 2, 9, 13, 4, 2, 8, true, MHA_F32, 0},
        {"top-weights-alone", "11", 2, 9, 13, 4, 2, 8, false, MHA_F32, 0},
        {"output-rows-other", "10-11: 0-1", 2, 12, 12, 4, 4, 16, true, MHA_F32, 0},
        {"output-rows-other", "1: 4, 3: 0; none", 2, 5, 7, 4, 2, 8, false, MHA_F64, 0},
        {"output-rows-other", "2-6: 6-2", 2, 7, 7, 4, 2, 8, true, MHA_F16, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!is_found(&all[i]))
            fail_msg("%zu: %s %s is not found", i, all[i].bug, all[i].found);
}

/* Scores near -4,096 in float32, exact as they are and rounded when they are multiplied by log2(e), as right kernels
 * do: no bug is named. */
static void test_rounding_in_base_2(void **state)
{
    (void)state;
    enum { T = 33, D = 16 };
    static float q[T * D], k[T * D], v[T * D], y[T * D];
    const mha_view rows[] = {mha_heads(q, 1, T, 1, D), mha_heads(k, 1, T, 1, D), mha_heads(v, 1, T, 1, D)};
    const float times = 1.44269504f / 4; /* the scale is 1/4 */
    for (uint64_t i = 0; i < 3; i++)
        mha_random_fill(&rows[i], 8, i, -2, 2);
    for (size_t e = 0; e < T * D; e++) {
        q[e] = e % D == 0 ? -256 : rintf(4 * q[e]) / 4;
        k[e] = e % D == 0 ? 64 : rintf(4 * k[e]) / 4;
    }
    for (size_t i = 0; i < T; i++) {
        float s[T], most = -INFINITY, sum = 0;
        for (size_t j = 0; j < T; j++) {
            s[j] = 0;
            for (size_t f = 0; f < D; f++)
                s[j] += q[i * D + f] * k[j * D + f];
            volatile const float product = s[j] * times; /* is rounded, whatever follows */
            s[j] = product;
            most = fmaxf(most, s[j]);
        }
        for (size_t j = 0; j < T; j++)
            sum += s[j] = exp2f(s[j] - most);
        for (size_t f = 0; f < D; f++) {
            y[i * D + f] = 0;
            for (size_t j = 0; j < T; j++)
                y[i * D + f] += s[j] / sum * v[j * D + f];
        }
    }
    const mha_call call = {.query = rows[0], .key = rows[1], .value = rows[2]};
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = mha_heads(y, 1, T, 1, D)};
    mha_diagnosis d;
    mha_error error;
    mha_case *c;
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_equal(d.match_count, 1);
    assert_true(d.matches[0].exact && d.matches[0].count == 0);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

/* Numbers that name no row, or nothing, are refused, and so is what has no meaning after them. */
static void test_text_of_rows(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "x",     "1",        "1:",    "1: ",    "1: 12",  "12: 1",    "1-3: 4-5",         "3-1: 4", "1: 2,",
        "1: 2;", "1: 2; 3:", "-1: 2", "1.5: 2", "none x", "1: zeros", "1: 2; none; none",
    };
    setting s = {"rows-v-permuted", "", 2, 12, 12, 4, 4, 16, false, MHA_F32, 0};
    mha_status status;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s.found = wrong[i];
        if (planted(&s, &status) || status != MHA_INVALID)
            fail_msg("%s is taken", wrong[i]);
    }
    s.B = 3; /* one list for all, or one for each */
    s.found = "1: 2; 3: 4";
    assert_null(planted(&s, &status));
    assert_int_equal(status, MHA_INVALID);
    s.B = 2;
    static const char *const right[] = {"none", "none; none", "1-3: 0", "1-3:0-2;none", "0-2: 4-2 , 5: 1"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        s.found = right[i];
        mha_case *c = planted(&s, &status);
        assert_int_equal(status, MHA_OK);
        mha_case_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_are_found), cmocka_unit_test(test_text_of_rows),
                                       cmocka_unit_test(test_rounding_in_base_2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
