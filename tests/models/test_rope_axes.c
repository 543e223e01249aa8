/* Rotations by positions of several axes: what transformers computes (vectors/axes.txt), what a configuration says
 * of them, what is refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { PAIRS = 8, MOST = 4 };

/* Positions are at most 9 and frequencies at most 1. A frequency is off by the roundings of a power and of a quotient
 * on either side, and cosine and sine by one more each: four roundings of 9, and two of 1. */
#define ALLOWED (9 * 4 * 0x1p-53 + 2 * 0x1p-53)

static void tables_are_those_of_their_owners(void **state)
{
    (void)state;
    static const char *const orders[] = {"blocks", "interleaved", "repeated", "dealt"};
    size_t rows = 0, met[MHA_ROPE_AXES_COUNT] = {0};
    char model[32], order[16];
    FILE *file = fopen("tests/vectors/axes.txt", "r");
    assert_non_null(file);
    size_t dim;
    double base;
    mha_rope_axes axes = {0};
    while (fscanf(file, "%31s %15s %zu %lf %zu", model, order, &dim, &base, &axes.axes) == 5) {
        int64_t place[MOST];
        double expected[2 * PAIRS], tables[2 * PAIRS], f[MHA_ROPE_MAX_PAIRS], times;
        mha_error error;
        for (size_t i = 0; i < axes.axes; i++)
            assert_int_equal(fscanf(file, "%zu", &axes.sections[i]), 1);
        for (size_t i = 0; i < axes.axes; i++)
            assert_int_equal(fscanf(file, "%" PRId64, &place[i]), 1);
        for (size_t i = 0; i < 2 * (size_t)PAIRS; i++)
            assert_int_equal(fscanf(file, "%lf", &expected[i]), 1);
        for (axes.kind = 0; strcmp(orders[axes.kind], order) != 0; axes.kind++)
            ;
        assert_ok(mha_rope_frequencies(&(mha_rope_scaling){0}, dim, base, 0, f, &times, &error), error);
        const mha_view positions = mha_view_of(place, MHA_I64, 2, (size_t[]){axes.axes, 1}),
                       c = mha_view_of(tables, MHA_F64, 2, (size_t[]){1, PAIRS}),
                       s = mha_view_of(tables + PAIRS, MHA_F64, 2, (size_t[]){1, PAIRS});
        assert_ok(mha_rope_axes_tables(&axes, f, &positions, &c, &s, &error), error);
        for (size_t i = 0; i < 2 * (size_t)PAIRS; i++)
            if (!(fabs(tables[i] - expected[i]) <= ALLOWED))
                fail_msg("%s %s: pair %zu is %.17g, expected %.17g", model, order, i, tables[i], expected[i]);
        met[axes.kind]++;
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, 29);
    for (size_t i = 0; i < MHA_ROPE_AXES_COUNT; i++)
        assert_true(met[i] >= 5);
}

/* Of a batch each row has its own positions; text turns as by one axis. */
static void rows_of_a_batch_are_apart(void **state)
{
    (void)state;
    enum { B = 2, T = 3, N = 4 };
    const mha_rope_axes axes[] = {{MHA_ROPE_AXES_BLOCKS, 3, {1, 2, 1}}, {MHA_ROPE_AXES_INTERLEAVED, 3, {2, 1, 1}}};
    const double f[N] = {1, 0.5, 0.25, 0.125};
    int64_t places[3][B][T];
    float c[B][T][N];
    double s[B][T][N];
    mha_error error;
    for (size_t i = 0; i < sizeof places / sizeof(int64_t); i++)
        (&places[0][0][0])[i] = (int64_t)(i % (B * T)); /* every axis says the same */
    for (size_t k = 0; k < 2; k++) {
        const mha_view positions = mha_view_of(places, MHA_I64, 3, (size_t[]){3, B, T}),
                       cv = mha_view_of(c, MHA_F32, 3, (size_t[]){B, T, N}),
                       sv = mha_view_of(s, MHA_F64, 3, (size_t[]){B, T, N});
        assert_ok(mha_rope_axes_tables(&axes[k], f, &positions, &cv, &sv, &error), error);
        for (size_t b = 0; b < B; b++)
            for (size_t t = 0; t < T; t++)
                for (size_t i = 0; i < N; i++) {
                    assert_true(s[b][t][i] == sin((double)(b * T + t) * f[i]));
                    assert_true(c[b][t][i] == (float)cos((double)(b * T + t) * f[i]));
                }
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const struct {
        mha_rope_axes axes;
        size_t rank, shape[3], table[3];
        mha_dtype dtype;
        const char *name, *said;
    } rows[] = {
        {{(mha_rope_axes_kind)9, 2, {2, 2}}, 2, {2, 3}, {3, 4}, MHA_I64, "rope_axes", "mha_rope_axes_kind"},
        {{0, 0, {2, 2}}, 2, {2, 3}, {3, 4}, MHA_I64, "rope_axes", "found 0"},
        {{0, 5, {2, 2}}, 2, {2, 3}, {3, 4}, MHA_I64, "rope_axes", "found 5"},
        {{0, 2, {4, 0}}, 2, {2, 3}, {3, 4}, MHA_I64, "sections", "found 0"},
        {{0, 2, {200, 100}}, 2, {2, 3}, {3, 4}, MHA_I64, "sections", "found 300"},
        {{MHA_ROPE_AXES_DEALT, 2, {1, 3}}, 2, {2, 3}, {3, 4}, MHA_I64, "sections", "1 and 3"},
        {{0, 2, {2, 2}}, 2, {3, 3}, {3, 4}, MHA_I64, "positions", "(2, T)"},
        {{0, 2, {2, 2}}, 1, {2}, {4}, MHA_I64, "positions", "(2, T)"},
        {{0, 2, {2, 2}}, 2, {2, 3}, {3, 4}, MHA_F64, "positions", "I64"},
        {{0, 2, {2, 2}}, 2, {2, 3}, {3, 5}, MHA_I64, "cos_table", "4 pairs"},
        {{0, 2, {2, 2}}, 2, {2, 3}, {2, 4}, MHA_I64, "cos_table", "4 pairs"},
    };
    static double data[64], table[64], f[4];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_error error;
        const mha_view positions = mha_view_of(data, rows[i].dtype, (int)rows[i].rank, rows[i].shape),
                       t = mha_view_of(table, MHA_F64, (int)rows[i].rank, rows[i].table);
        assert_refused(mha_rope_axes_tables(&rows[i].axes, f, &positions, &t, &t, &error), MHA_INVALID, error,
                       rows[i].name, rows[i].said);
    }
}

static mha_model_facts facts_of(const char *type, const char *rope)
{
    char text[300];
    mha_model_facts facts;
    mha_error error;
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"hidden_size\": 32, \"num_attention_heads\": 2, "
             "\"num_key_value_heads\": 2, \"head_dim\": 16, \"%s}", type,
             rope);
    assert_ok(mha_model_read_config(config_file(text), &facts, &error), error);
    return facts;
}

static void a_configuration_says_its_axes(void **state)
{
    (void)state;
    mha_model_facts facts =
        facts_of("qwen2", "rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [2, 3, 3]}");
    assert_true(!*facts.not_run && facts.rope_axes.axes == 3 && facts.rope_axes.kind == MHA_ROPE_AXES_BLOCKS);
    assert_true(facts.rope_axes.sections[0] == 2 && facts.rope_axes.sections[2] == 3);
    facts = facts_of("qwen3", "rope_parameters\": {\"rope_type\": \"default\", \"mrope_section\": [4, 2, 2], "
                              "\"mrope_interleaved\": true}");
    assert_true(facts.rope_axes.axes == 3 && facts.rope_axes.kind == MHA_ROPE_AXES_INTERLEAVED);
    facts = facts_of("qwen3_5_text",
                     "rope_parameters\": {\"mrope_section\": [2, 1, 1], \"partial_rotary_factor\": 0.5}");
    assert_true(facts.semantics.qkv.rope.dim == 8 && facts.rope_axes.kind == MHA_ROPE_AXES_INTERLEAVED);
    facts = facts_of("qwen3", "rope_scaling\": null");
    assert_int_equal(facts.rope_axes.axes, 0);
    static const char *const wrong[] = {"[2, 3]", "[0, 4, 4]", "[9, -1]", "[]", "3", "[1, 1, 1, 1, 4]", "[\"8\"]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[100];
        snprintf(text, sizeof text, "rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": %s}", wrong[i]);
        facts = facts_of("qwen2", text);
        if (!strstr(facts.not_run, "mrope_section: expected 1 to 4 sizes, 8 pairs together") || facts.rope_axes.axes)
            fail_msg("%s: %s", wrong[i], facts.not_run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_those_of_their_owners),
        cmocka_unit_test(rows_of_a_batch_are_apart),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_configuration_says_its_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
