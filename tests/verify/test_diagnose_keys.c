/* The diagnosis of keys that are hidden from all queries: found in recorded weights, or in what the heads lack. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/scratch.h"

enum { WIDTH = 24, HEADS = 3, MOST_ROWS = 600 };

/* How a result is recorded. */
typedef struct setting {
    size_t B, T, d_out;
    bool sinks, weights; /* the weights are recorded, too */
    mha_dtype dtype;
    const int64_t *starts; /* of a ragged batch of three sequences */
    const char *hidden;
    bool dropout; /* instead: `hidden` is the share of weights that are dropped */
} setting;

static const char *name_of(const setting *s)
{
    return s->dropout ? "dropout-mask" : "case-lacks-padding";
}

/* A case of a layer whose output (and weights) hide these keys, which the case does not say. */
static mha_case *make(const setting *s, mha_layer **layer)
{
    static float x[MOST_ROWS * WIDTH];
    static double wide[MOST_ROWS * WIDTH], weights[HEADS * 2 * 64 * 64];
    static char stored[MOST_ROWS * WIDTH * sizeof(double)];
    const mha_config config = {.d_model = WIDTH, .n_heads = HEADS, .d_k = 8, .d_out = s->d_out, .bias_o = true,
                               .sinks = s->sinks};
    const size_t shape[] = {s->B, s->T, s->d_out}, longest = s->starts ? 11 : s->T,
                 square[] = {s->starts ? 3 : s->B, HEADS, longest, longest};
    char name[100];
    const char *bug = name;
    mha_error error;
    mha_case *said, *c;
    mha_call call = {.query = mha_rows(x, s->B, s->T, WIDTH)};
    snprintf(name, sizeof name, "%s %s", name_of(s), s->hidden);
    assert_ok(mha_layer_create(&config, NULL, NULL, layer, &error), error);
    mha_layer_init(*layer, 5);
    mha_random_fill(&call.query, 5, 1, -2, 2);
    if (s->starts)
        call.semantics.place.n_sequences = 3, call.semantics.place.cu_seqlens_q = s->starts;
    assert_ok(mha_case_of_call(*layer, &call, NULL, 0, NULL, &said, &error), error);
    mha_view output = mha_view_of(wide, MHA_F64, 3, shape);
    mha_keep recorded[] = {{.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(stored, s->dtype, 3, shape)},
                           {.stage = MHA_STAGE_WEIGHTS, .view = mha_view_of(weights, MHA_F64, 4, square)}};
    assert_ok(mha_case_with_bugs(said, &bug, 1, MHA_STAGE_OUTPUT, &output, &error), error);
    assert_int_equal(mha_view_copy(&recorded[0].view, &output, NULL), MHA_OK);
    if (s->weights)
        assert_ok(mha_case_with_bugs(said, &bug, 1, MHA_STAGE_WEIGHTS, &recorded[1].view, &error), error);
    mha_case_close(said);
    assert_ok(mha_case_of_call(*layer, &call, recorded, 1 + s->weights, NULL, &c, &error), error);
    return c;
}

/* Whether the hidden keys are the one answer. */
static bool is_found(const setting *s)
{
    mha_layer *layer;
    mha_diagnosis d;
    mha_error error;
    mha_case *c = make(s, &layer);
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    const bool found = d.match_count == 1 && d.matches[0].exact && d.matches[0].count == 1 &&
                       strcmp(d.matches[0].bugs[0], name_of(s)) == 0 && strcmp(d.matches[0].found[0], s->hidden) == 0;
    if (!found && d.match_count > 0 && d.matches[0].count > 0)
        print_error("%s %s\n", d.matches[0].bugs[0], d.matches[0].found[0]);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    mha_layer_destroy(layer);
    return found;
}

static void test_any_set_of_keys(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 7, 9, 20};
    const setting found[] = {
        {2, 11, 24, false, false, MHA_F64, NULL, "0, 3-5, 9; 2", false},
        {2, 11, 24, true, false, MHA_F32, NULL, "none; 0-2, 10", false},
        {2, 11, 30, true, false, MHA_BF16, NULL, "4; 0, 2, 4", false},
        {2, 11, 16, false, true, MHA_F32, NULL, "1-8; 3", false},
        {1, 60, 24, false, false, MHA_F32, NULL, "5, 17-30, 58", false},
        {1, 20, 24, true, false, MHA_F32, starts, "1, 4; 0; 3-8", false},
        {1, 20, 24, false, true, MHA_F32, starts, "0; 0; 1", false},
    };
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (!is_found(&found[i]))
            fail_msg("%zu: %s is not found", i, found[i].hidden);
    /* W_O has more rows than columns, and no weights are recorded. */
    assert_false(is_found(&(setting){2, 11, 16, false, false, MHA_F32, NULL, "1-8; 3", false}));
}

/* Dropped weights are found where weights are recorded, or where a head has as many features as there are keys. */
static void test_dropped_weights(void **state)
{
    (void)state;
    const setting found[] = {{2, 11, 16, true, true, MHA_F32, NULL, "0.25", true},
                             {2, 8, 24, true, false, MHA_F32, NULL, "0.5", true},
                             {3, 7, 30, false, false, MHA_F64, NULL, "0.1234", true}};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (!is_found(&found[i]))
            fail_msg("%zu: %s is not found", i, found[i].hidden);
    assert_false(is_found(&(setting){2, 11, 24, true, false, MHA_F32, NULL, "0.25", true}));
}

static void test_text_of_keys(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",     "x",      "1",       "1;",     "1; 2; 3", "11; 1", "-1; 2",
                                        "3-2; 1", "1,; 2", "1-; 2", "1.5; 2", "1; none 2", "none; 1-11"};
    const setting plain = {2, 11, 24, false, false, MHA_F32, NULL, "1; none", false};
    static double memory[2 * 11 * 24];
    const mha_view output = mha_view_of(memory, MHA_F64, 3, (const size_t[]){2, 11, 24});
    mha_layer *layer;
    mha_error error;
    mha_case *c = make(&plain, &layer);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char name[100];
        const char *bug = name;
        snprintf(name, sizeof name, "case-lacks-padding%s%s", *wrong[i] ? " " : "", wrong[i]);
        assert_refused(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &output, &error),
                       *wrong[i] ? MHA_INVALID : MHA_UNSUPPORTED, error, "case-lacks-padding");
    }
    mha_case_close(c);
    mha_layer_destroy(layer);
}

/* A chunk of all keys, which later queries do not reach. */
static void test_chunk_of_all_keys(void **state)
{
    (void)state;
    static float q[9 * 8], kv[2][4 * 8], y[9 * 8];
    const mha_view views[] = {mha_heads(q, 1, 9, 1, 8), mha_heads(kv[0], 1, 4, 1, 8), mha_heads(kv[1], 1, 4, 1, 8)};
    static const int64_t lengths[] = {0};
    mha_diagnosis d;
    mha_error error;
    mha_case *c;
    for (size_t i = 0; i < 3; i++)
        mha_random_fill(&views[i], 1, i, -1, 1);
    mha_call call = {.query = views[0], .key = views[1], .value = views[2], .output = mha_heads(y, 1, 9, 1, 8)};
    assert_ok(mha_run(NULL, &call, &error), error);
    call.query = mha_heads(q + 4 * 8, 1, 5, 1, 8), call.output = mha_heads(y + 4 * 8, 1, 5, 1, 8);
    call.semantics.visible.kv_lengths = lengths;
    assert_ok(mha_run(NULL, &call, &error), error); /* queries 4 to 8 are of the next chunk */
    call.query = views[0], call.output = mha_heads(y, 1, 9, 1, 8), call.semantics.visible.kv_lengths = NULL;
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = call.output};
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_equal(d.match_count, 1);
    assert_string_equal(d.matches[0].bugs[0], "case-lacks-chunk");
    assert_string_equal(d.matches[0].found[0], "4");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

/* A call without any keys: no weight can be dropped. */
static void test_no_keys(void **state)
{
    (void)state;
    static float memory[8], y[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    mha_call call = {.query = mha_heads(memory, 1, 1, 2, 4), .key = mha_heads(memory, 1, 0, 2, 4),
                     .value = mha_heads(memory, 1, 0, 2, 4)};
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = mha_heads(y, 1, 1, 2, 4)};
    mha_diagnosis d;
    mha_error error;
    mha_case *c;
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_equal(d.match_count, 0);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_set_of_keys), cmocka_unit_test(test_text_of_keys),
                                       cmocka_unit_test(test_dropped_weights), cmocka_unit_test(test_no_keys),
                                       cmocka_unit_test(test_chunk_of_all_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
