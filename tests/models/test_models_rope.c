/* Rotations that a config.json describes: recorded ones of transformers, and what differs from layer to layer. */
#include "support/unit.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/rotate.h"
#include "support/built.h"
#include "support/scratch.h"
#include "verify/case/record.h"

/* Rotates the query of a case by what its my.config says, and compares with what transformers computed. */
static void rotates_as_recorded(const mha_case *c, const char *path)
{
    mha_model_facts facts;
    mha_error error;
    const mha_view *recorded = &c->expected[1][MHA_STAGE_OUTPUT].view;
    const char *length = mha_file_metadata(c->file, "my.length");
    assert_ok(mha_model_read_config(config_file(mha_file_metadata(c->file, "my.config")), &facts, &error), error);
    assert_ok(mha_model_extend_context(&facts, (size_t)atoi(length), &error), error);
    mha_rope rope = mha_model_semantics(&facts).qkv.rope;
    assert_int_equal(rope.frequencies.data != NULL, strstr(path, "_none") == NULL);
    rope.q_positions = c->semantics.qkv.rope.q_positions;
    const mha_view x = mha__view_swap(&c->tensors[CASE_QUERY], 1, 2), y = mha__view_swap(recorded, 1, 2);
    double rotated[512];
    const mha_view to = mha_view_of(rotated, MHA_F64, 4, x.shape);
    assert_true(mha_view_elements(&x) <= 512);
    assert_ok(rotate_alone(&x, &rope, 0, MHA_PATH_EXACT, &to, &error), error);
    mha_difference d;
    assert_ok(mha_compare(&to, &y, 0, c->atol64, &d, &error), error);
    if (d.mismatches > 0)
        fail_msg("%s: off by %g", path, d.max_abs);
}

static void configurations_rotate_as_recorded(void **state)
{
    (void)state;
    size_t seen = 0;
    DIR *d = opendir("tests/vectors");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[600];
        mha_case *c;
        mha_error error;
        snprintf(path, sizeof path, "tests/vectors/%s", e->d_name);
        if (strncmp(e->d_name, "rope_", 5) != 0)
            continue;
        assert_ok(mha_case_open(path, NULL, &c, &error), error);
        rotates_as_recorded(c, path);
        mha_case_close(c);
        seen++;
    }
    closedir(d);
    assert_true(seen >= 12);
}

#define BASE                                                                                                           \
    "\"hidden_size\":32,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"num_hidden_layers\":4,"    \
    "\"intermediate_size\":8,\"vocab_size\":9,\"head_dim\":16,\"max_position_embeddings\":64"
#define LLAMA(more) "{\"model_type\":\"llama\"," BASE "," more "}"

/* Which length counts as that of the training: stated beside the scaling or inside it, and, but for dynamic scaling,
 * before the configured one. */
static void the_stated_length_of_the_training_counts(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        double length, factor;
    } each[] = {
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}", 64, 4},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16}", 16, 4},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":16}", 16, 4},
        {"\"original_max_position_embeddings\":8,\"rope_scaling\":{\"type\":\"yarn\","
         "\"original_max_position_embeddings\":16}", 8, 8},
        {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2,\"original_max_position_embeddings\":16}", 64, 2},
        {"\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":32}", 32, 8},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char config[600];
        mha_model_facts facts;
        mha_error error;
        snprintf(config, sizeof config, "{\"model_type\":\"llama\"," BASE ",%s}", each[i].more);
        assert_ok(mha_model_read_config(config_file(config), &facts, &error), error);
        assert_string_equal(facts.caveat, "");
        if (facts.rope_scaling.original_length != each[i].length || facts.rope_scaling.factor != each[i].factor)
            fail_msg("%s: %g and %g", each[i].more, facts.rope_scaling.original_length, facts.rope_scaling.factor);
    }
}

/* As in transformers, only yarn and longrope read one. */
static void the_stated_attention_factor_counts_for_two_kinds(void **state)
{
    (void)state;
#define EIGHT "[1,1,1,1,1,1,1,1]"
    static const struct {
        const char *more;
        double factor;
    } each[] = {
        {"\"type\":\"linear\"", 1},
        {"\"type\":\"dynamic\"", 1},
        {"\"type\":\"llama3\",\"low_freq_factor\":1,\"high_freq_factor\":4", 1},
        {"\"type\":\"yarn\"", 1.25},
        {"\"type\":\"longrope\",\"short_factor\":" EIGHT ",\"long_factor\":" EIGHT, 1.25},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char config[600];
        mha_model_facts facts;
        mha_error error;
        snprintf(config, sizeof config, LLAMA("\"rope_scaling\":{%s,\"factor\":4,\"attention_factor\":1.25}"),
                 each[i].more);
        assert_ok(mha_model_read_config(config_file(config), &facts, &error), error);
        assert_string_equal(facts.caveat, "");
        assert_ok(mha_model_extend_context(&facts, 100, &error), error);
        if (facts.semantics.qkv.rope.attention_factor != each[i].factor)
            fail_msg("%s: %g", each[i].more, facts.semantics.qkv.rope.attention_factor);
    }
}

static void what_a_configuration_says_wrongly_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *said;
    } rows[] = {
        {LLAMA("\"rope_scaling\":{\"type\":\"linear\"}"), "rope_scaling", "linear: expected a factor"},
        {LLAMA("\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"4\"}"), "factor", "a number"},
        {LLAMA("\"rope_scaling\":[]"), "rope_scaling", "expected an object"},
        {LLAMA("\"rope_parameters\":7"), "rope_parameters", "expected an object"},
        {LLAMA("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":[]}"), "beta_fast", "a number"},
        {LLAMA("\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":{}}"),
         "original_max_position_embeddings", "a number"},
        {LLAMA("\"original_max_position_embeddings\":\"8\",\"rope_scaling\":{\"type\":\"yarn\"}"),
         "original_max_position_embeddings", "a number"},
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":\"8\",\"rope_scaling\":{\"type\":\"yarn\"}}",
         "max_position_embeddings", "a number"},
        {LLAMA("\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":4}"), "rope_scaling", "low frequency factor"},
        {LLAMA("\"rope_parameters\":{\"full_attention\":{\"rope_theta\":\"x\"}}"), "rope_theta", "a number"},
        {LLAMA("\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1]}"), "short_factor", "a list of 8 numbers"},
        {LLAMA("\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1,1,1,1,1,1,1]}"), "long_factor", "found 0"},
        {LLAMA("\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1,1,1,1,1,1,\"1\"]}"), "short_factor", "alone"},
        {"{\"model_type\":\"llama\",\"num_attention_heads\":2,\"head_dim\":514,\"rope_scaling\":{\"type\":\"linear\","
         "\"factor\":2}}",
         "head_dim", "at most 256 pairs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_model_facts facts;
        mha_error error;
        assert_ok(mha_model_read_config(config_file(rows[i].text), &facts, &error), error);
        assert_int_equal(facts.rope_scaling.kind, MHA_ROPE_UNSCALED);
        if (!strstr(facts.caveat, "rope_scaling is not applied") || !strstr(facts.caveat, rows[i].name) ||
            !strstr(facts.caveat, rows[i].said))
            fail_msg("row %zu: %s", i, facts.caveat);
    }
}

static void unknown_scaling_is_said(void **state)
{
    (void)state;
    mha_model_facts facts;
    mha_error error;
    assert_ok(mha_model_read_config(config_file(LLAMA("\"rope_scaling\":{\"type\":\"spiral\"}")), &facts, &error),
              error);
    assert_non_null(strstr(facts.caveat, "not applied: rope_type: expected a known type, found 'spiral'"));
    assert_null(mha_model_semantics(&facts).qkv.rope.frequencies.data);
    assert_ok(mha_model_read_config(config_file(LLAMA("\"rope_scaling\":{\"rope_type\":7}")), &facts, &error), error);
    assert_non_null(strstr(facts.caveat, "not applied: rope_type: expected a name"));
    facts.rope_scaling = (mha_rope_scaling){.kind = MHA_ROPE_LINEAR};
    assert_refused(mha_model_extend_context(&facts, 9, &error), MHA_INVALID, error, "rope_scaling", "a factor");
}

/* The window of each layer, as many numbers as it has layers; -1: none. */
static void windows_are(const char *model, const char *more, const long long *left)
{
    char text[600], prefix[64];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"," BASE "%s}", model, more);
    const char *path = config_file(text);
    for (int i = 0; i < 4; i++) {
        mha_model_facts facts;
        mha_error error;
        snprintf(prefix, sizeof prefix, "%slayers.%d.self_attn%s", i % 2 ? "" : "model.", i, i > 1 ? "." : "");
        assert_ok(mha_model_read_layer(path, prefix, &facts, &error), error);
        const mha_semantics s = mha_model_semantics(&facts);
        if (s.visible.has_window_left != (left[i] >= 0) || s.visible.window_left != (left[i] >= 0 ? left[i] : 0))
            fail_msg("%s%s: layer %d has window %d, %lld", model, more, i, s.visible.has_window_left,
                     (long long)s.visible.window_left);
    }
}

static void windows_differ_from_layer_to_layer(void **state)
{
    (void)state;
    windows_are("gemma2", ",\"sliding_window\":8", (long long[]){7, -1, 7, -1});
    windows_are("gemma2",
                ",\"sliding_window\":8,\"layer_types\":[\"full_attention\",\"full_attention\",\"sliding_attention\","
                "\"full_attention\"]",
                (long long[]){-1, -1, 7, -1});
    windows_are("mistral", ",\"sliding_window\":5", (long long[]){4, 4, 4, 4});
    windows_are("qwen2", ",\"sliding_window\":5,\"max_window_layers\":3", (long long[]){-1, -1, -1, -1});
    windows_are("qwen2", ",\"sliding_window\":5,\"max_window_layers\":3,\"use_sliding_window\":true",
                (long long[]){-1, -1, -1, 4});
    windows_are("gemma3_text", ",\"sliding_window\":6,\"sliding_window_pattern\":3", (long long[]){5, 5, -1, 5});
    windows_are("cohere2", ",\"sliding_window\":6,\"sliding_window_pattern\":2", (long long[]){5, -1, 5, -1});
    windows_are("gpt_oss", ",\"sliding_window\":6", (long long[]){5, -1, 5, -1});
    windows_are("smollm3", ",\"sliding_window\":6,\"use_sliding_window\":true", (long long[]){-1, -1, -1, 5});
    windows_are("qwen3", ",\"sliding_window\":5,\"max_window_layers\":2,\"use_sliding_window\":true",
                (long long[]){-1, -1, 4, 4});
}

/* The rotation and scale of layers of public models, two of each. */
static void rotations_of_public_models(void **state)
{
    (void)state;
    static const struct {
        const char *model, *more;
        size_t rotated[2]; /* features, in layers 2 and 3; 0: none */
        double base[2], scale;
    } rows[] = {
        {"glm", "", {8, 8}, {10000, 10000}, 0},
        {"glm4", ",\"partial_rotary_factor\":0.25", {4, 4}, {10000, 10000}, 0},
        {"phi", "", {8, 8}, {10000, 10000}, 0},
        {"stablelm", "", {4, 4}, {10000, 10000}, 0},
        {"granite", ",\"attention_multiplier\":0.75", {16, 16}, {10000, 10000}, 0.75},
        {"granitemoe", ",\"attention_multiplier\":0.5", {16, 16}, {10000, 10000}, 0.5},
        {"cohere2", ",\"rope_theta\":5e4", {16, 0}, {5e4, 0}, 0},
        {"smollm3", "", {16, 0}, {2000000, 0}, 0},
        {"smollm3", ",\"no_rope_layers\":[1,1,0,1]", {0, 16}, {0, 2000000}, 0},
        {"gemma3_text", ",\"sliding_window_pattern\":3", {16, 16}, {1000000, 10000}, 1.0 / 16},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        for (size_t i = 0; i < 2; i++) {
            char text[500], prefix[40];
            mha_model_facts facts;
            mha_error error;
            snprintf(text, sizeof text, "{\"model_type\":\"%s\"," BASE "%s}", rows[row].model, rows[row].more);
            snprintf(prefix, sizeof prefix, "model.layers.%zu.self_attn", i + 2);
            assert_ok(mha_model_read_layer(config_file(text), prefix, &facts, &error), error);
            const mha_semantics s = mha_model_semantics(&facts);
            if (s.qkv.rope.dim != rows[row].rotated[i] || s.qkv.rope.base != rows[row].base[i] ||
                s.softmax.scale != rows[row].scale)
                fail_msg("%s, layer %zu: %zu features of base %g, scale %g", rows[row].model, i + 2, s.qkv.rope.dim,
                         s.qkv.rope.base, s.softmax.scale);
        }
}

/* Layers that turn in ways of their own, one that does not turn, and the last features of each head. */
static void rotation_differs_from_layer_to_layer(void **state)
{
    (void)state;
    static const char own[] =
        "{\"like\":\"llama\",\"title\":\"Mine\",\"symbols\":{\"rope_last\":{\"value\":1},\"rope_dim\":{\"value\":8}},"
        "\"numbers\":{\"rope_local_base\":{\"key\":\"rope_local_base_freq\",\"default\":500.0},"
        "\"scale\":{\"value\":0.25}},"
        "\"attention\":[{\"blocks\":\"L\",\"prefix\":\"model.layers.{i}.self_attn\","
        "\"own\":{\"chunk\":\"8 * i\",\"local\":\"i < 2\",\"rope\":\"2 * (i != 3)\"}}]}";
    static const struct {
        const char *more;
        double base[3], slowest[3];
    } rows[] = {
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":8}", {500, 500, 10000}, {0, 0, 0.000125}},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":10000},"
         "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":10000}}",
         {10000, 10000, 10000},
         {0.0005, 0.0005, 0.000125}},
        {"\"rope_local_base_freq\":50.0,\"rope_parameters\":{\"full_attention\":{\"rope_theta\":10000,\"rope_type\":"
         "\"linear\",\"factor\":8}}",
         {50, 50, 10000},
         {0, 0, 0.000125}},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        char text[700];
        built b;
        snprintf(text, sizeof text, LLAMA("%s"), rows[row].more);
        assert_ok(build_text(&b, text, NULL, own), b.error);
        for (size_t i = 0; i < 4; i++) {
            const mha_model_facts *facts = mha_model_layer_facts(b.model, i);
            const mha_semantics s = mha_model_semantics(facts);
            assert_true(s.visible.causal && s.softmax.scale == 0.25 && s.visible.chunk == 8 * (int64_t)i);
            assert_int_equal(s.qkv.rope.kind, i == 3 ? MHA_ROPE_NONE : MHA_ROPE_HALF_SPLIT);
            if (i == 3)
                continue;
            assert_true(s.qkv.rope.last && s.qkv.rope.dim == 8);
            assert_true(s.qkv.rope.base == rows[row].base[i]);
            const bool scaled = rows[row].slowest[i] > 0;
            assert_int_equal(s.qkv.rope.frequencies.data != NULL, scaled);
            if (scaled) /* 10^-3 divided */
                assert_true(fabs(facts->rope_frequencies[3] - rows[row].slowest[i]) < 1e-17);
        }
        assert_ptr_equal(mha_model_layer_facts(b.model, 4), mha_model_facts_of(b.model)); /* past the end */
        assert_int_equal(mha_model_facts_of(b.model)->semantics.qkv.rope.kind, MHA_ROPE_HALF_SPLIT);
        unbuild(&b);
    }
}

static void a_layer_that_is_not_there_has_the_model_s_facts(void **state)
{
    (void)state;
    mha_model_facts facts;
    mha_error error;
    const char *path = config_file(LLAMA("\"architectures\":[\"NoClassOfThisModel\"]"));
    assert_ok(mha_model_read_layer(path, "model.layers.9.self_attn", &facts, &error), error);
    assert_true(facts.has_semantics && facts.semantics.qkv.rope.kind == MHA_ROPE_HALF_SPLIT &&
                facts.semantics.qkv.rope.dim == 16);
    assert_ok(mha_model_read_layer(path, "", &facts, &error), error);
    assert_ok(mha_model_read_layer(path, NULL, &facts, &error), error);
    assert_ok(mha_model_read_layer(config_file("{\"n_embd\":32,\"n_head\":4}"), "x", &facts, &error), error);
    assert_false(facts.has_semantics);
    assert_refused(mha_model_read_layer(scratch_path("none.json"), "x", &facts, &error), MHA_NOT_FOUND, error, "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configurations_rotate_as_recorded),
        cmocka_unit_test(the_stated_length_of_the_training_counts),
        cmocka_unit_test(the_stated_attention_factor_counts_for_two_kinds),
        cmocka_unit_test(what_a_configuration_says_wrongly_is_named),
        cmocka_unit_test(unknown_scaling_is_said),
        cmocka_unit_test(windows_differ_from_layer_to_layer),
        cmocka_unit_test(rotation_differs_from_layer_to_layer),
        cmocka_unit_test(rotations_of_public_models),
        cmocka_unit_test(a_layer_that_is_not_there_has_the_model_s_facts),
    };
    return cmocka_run_group_tests_name("models_rope", tests, NULL, NULL);
}
