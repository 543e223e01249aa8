/* The attention layers of a config.json or of the metadata of a GGUF file, and the lists of known words. */
#include "support/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/claims/claims.h"
#include "mha/lab.h"
#include "mha/model.h"
#include "support/built.h"
#include "support/scratch.h"

/* ---------------------------------------------------------------- config.json */

static void an_unknown_model_type_tells_its_heads(void **state)
{
    (void)state;
    static const struct {
        const char *text, *model_type;
        size_t d_model, n_heads, kv_heads, d_k;
    } rows[] = {
        {"{\"model_type\":\"novel\",\"hidden_size\":64,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_"
         "dim\":16}",
         "novel", 64, 8, 2, 16},
        {"{\"n_embd\":32,\"n_head\":4}", "", 32, 4, 0, 0},
        {"{\"model_type\":7,\"d_model\":48,\"encoder_attention_heads\":6,\"d_kv\":8}", "", 48, 6, 0, 8},
        {"{}", "", 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_model_facts facts;
        mha_error error;
        assert_ok(mha_model_read_config(config_file(rows[i].text), &facts, &error), error);
        assert_string_equal(facts.model_type, rows[i].model_type);
        assert_int_equal(facts.config.d_model, rows[i].d_model);
        assert_int_equal(facts.config.n_heads, rows[i].n_heads);
        assert_int_equal(facts.config.kv_heads, rows[i].kv_heads);
        assert_int_equal(facts.config.d_k, rows[i].d_k);
        assert_false(facts.has_semantics);
        assert_string_equal(facts.caveat, "");
    }
}

static void values_that_are_no_counts_are_named(void **state)
{
    (void)state;
    mha_model_facts facts;
    mha_error error;
    assert_refused(mha_model_read_config(config_file("{\"hidden_size\":\"64\"}"), &facts, &error), MHA_INVALID, error,
                   "hidden_size", "text");
    assert_refused(mha_model_read_config(config_file("{\"n_head\":2.5}"), &facts, &error), MHA_INVALID, error, "n_head",
                   "a real number");
    assert_refused(mha_model_read_config(config_file("{\"n_kv_heads\":[1,2,3]}"), &facts, &error), MHA_INVALID, error,
                   "n_kv_heads", "a list");
    assert_refused(mha_model_read_config(config_file("{\"num_heads\":{\"a\":1}}"), &facts, &error), MHA_INVALID, error,
                   "num_heads", "an object");
    assert_refused(mha_model_read_config(config_file("{\"d_kv\":-1}"), &facts, &error), MHA_INVALID, error, "d_kv",
                   "-1");
    assert_refused(mha_model_read_config(config_file("{\"dim\":1099511627777}"), &facts, &error), MHA_INVALID, error,
                   "dim", "2^40");
    assert_refused(mha_model_read_config(config_file("{\"dim\":"), &facts, &error), MHA_FORMAT, error, "config.json");
    assert_refused(mha_model_read_config(config_file("[1]"), &facts, &error), MHA_FORMAT, error, "config.json");
    assert_refused(mha_model_read_config(scratch_path("none.json"), &facts, &error), MHA_NOT_FOUND, error, "none.json");
    const char *folder = scratch_path("folder");
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_refused(mha_model_read_config(folder, &facts, &error), MHA_NOT_FOUND, error, "folder/config.json");
    static const char two[] = "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_head\": 2}";
    scratch_write("folder/config.json", two, strlen(two));
    assert_ok(mha_model_read_config(folder, &facts, &error), error);
    assert_int_equal(facts.config.n_heads, 2);
    built b;
    assert_ok(build(&b, (mha_model_spec){.config = folder}), b.error);
    unbuild(&b);
    remove(scratch_path("folder/config.json"));
    assert_int_equal(rmdir(folder), 0);
}

static void stretched_rotations_are_told(void **state)
{
    (void)state;
    static const char *const scaling[] = {"", ",\"rope_scaling\":null",
                                          ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}"};
    for (size_t i = 0; i < 3; i++) {
        char text[400];
        mha_model_facts facts;
        mha_error error;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":1,"
                 "\"intermediate_size\":96,\"vocab_size\":10,\"rope_theta\":500000.0%s}",
                 scaling[i]);
        assert_ok(mha_model_read_config(config_file(text), &facts, &error), error);
        assert_true(facts.has_semantics && facts.semantics.visible.causal);
        assert_int_equal(facts.semantics.qkv.rope.kind, MHA_ROPE_HALF_SPLIT);
        assert_int_equal(facts.semantics.qkv.rope.dim, 16);
        assert_true(facts.semantics.qkv.rope.base == 500000);
        assert_int_equal(facts.rope_scaling.kind, i == 2 ? MHA_ROPE_LINEAR : MHA_ROPE_UNSCALED);
    }
}

/* Keys that a query sees behind it, its own included; 0: all. */
static size_t window_of(const mha_semantics *s)
{
    return s->visible.has_window_left ? (size_t)s->visible.window_left + 1 : 0;
}

static mha_model_facts facts_of(const char *text)
{
    mha_model_facts facts;
    mha_error error;
    assert_ok(mha_model_read_config(config_file(text), &facts, &error), error);
    return facts;
}

static void alibi_has_the_slopes_of_all_heads(void **state)
{
    (void)state;
    static const double six[] = {0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3};
    mha_model_facts facts = facts_of("{\"model_type\": \"bloom\", \"hidden_size\": 24, \"n_head\": 6}");
    assert_true(facts.alibi && facts.fused_blocks == 6 && mha_model_semantics(&facts).added.alibi_slopes);
    for (size_t i = 0; i < 6; i++)
        assert_true(facts.alibi_slopes[i] == six[i]);
    /* scaled with the scores: d_k is 4 */
    facts = facts_of("{\"model_type\": \"falcon\", \"hidden_size\": 24, \"num_attention_heads\": 6, \"alibi\": true}");
    assert_true(facts.alibi && facts.alibi_slopes[4] == 0.25 && facts.fused_blocks == 1);
    assert_int_equal(facts.semantics.qkv.rope.kind, MHA_ROPE_NONE);
    facts = facts_of("{\"model_type\": \"bloom\", \"hidden_size\": 1028, \"n_head\": 257}");
    assert_false(facts.alibi);
    assert_string_equal(facts.not_run, "ALiBi of more than 256 heads");
}

static void a_window_can_reach_both_ways(void **state)
{
    (void)state;
    mha_error error;
    mha_model_facts facts;
    const char *path =
        config_file("{\"model_type\": \"modernbert\", \"local_attention\": 6, \"num_hidden_layers\": 2}");
    assert_ok(mha_model_read_layer(path, "model.layers.1.attn", &facts, &error), error);
    const mha_semantics s = mha_model_semantics(&facts);
    assert_true(s.visible.window_left == 3 && s.visible.window_right == 3 && !s.visible.causal);
    assert_ok(mha_model_read_layer(path, "model.layers.0.attn", &facts, &error), error);
    assert_false(mha_model_semantics(&facts).visible.has_window_left);
}

/* ---------------------------------------------------------------- lists and costs */

static void lists_end_with_nothing(void **state)
{
    (void)state;
    const char *text = NULL, *before = "";
    size_t presets = 0;
    for (const char *name; (name = mha_preset_at(presets, &text)); presets++) {
        assert_true(strcmp(before, name) < 0); /* in the order of their names */
        assert_int_equal(*text, '{');
        assert_ptr_equal(mha_preset_at(presets, NULL), name);
        before = name;
    }
    assert_true(presets > 20);
    assert_null(mha_preset_at(presets + 1, NULL));
    assert_string_equal(mha_finding_name(MHA_FINDING_MISSING), "missing");
    assert_string_equal(mha_finding_name((mha_finding_kind)99), "?");
    mha__claim claim;
    mha_error error;
    size_t claims = 0;
    while (mha__claim_check(claims, &claim, &error) == MHA_OK)
        claims++;
    assert_refused(mha__claim_check(claims, &claim, &error), MHA_NOT_FOUND, error, "below");
}

static void costs_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2", "vit-base-patch16-224", "t5-base"};
    for (size_t i = 0; i < 3; i++) {
        built b;
        mha_error error;
        mha_model_costs costs = {.projections = 77}, more;
        mha_model_layer layer;
        assert_ok(build(&b, (mha_model_spec){.preset = presets[i]}), b.error);
        const mha_model_pass large = {(size_t)1 << 40, (size_t)1 << 30, 0};
        assert_refused(mha_model_costs_of(b.model, &large, &costs, &error), MHA_INVALID, error, "seq", "64 bits");
        assert_int_equal(costs.projections, 77);
        assert_ok(mha_model_costs_of(b.model, &(mha_model_pass){1, 8, 0}, &costs, &error), error);
        assert_ok(mha_model_costs_of(b.model, &(mha_model_pass){2, 8, 0}, &more, &error), error);
        assert_int_equal(more.projections, 2 * costs.projections);
        assert_int_equal(more.patches, 2 * costs.patches);
        assert_true(costs.scores_causal <= costs.scores_full);
        assert_false(mha_model_layer_at(b.model, mha_model_layer_count(b.model), &layer));
        unbuild(&b);
    }
}

/* 61 layers of 128 heads, d_k 128 + 64, d_v 128, latents of 1536 and 512, 7168 features: 8 tokens. */
static void latents_are_cached_once(void **state)
{
    (void)state;
    built b;
    mha_model_costs costs;
    assert_ok(build(&b, (mha_model_spec){.preset = "deepseek-v3"}), b.error);
    assert_ok(mha_model_costs_of(b.model, &(mha_model_pass){1, 8, 0}, &costs, &b.error), b.error);
    assert_int_equal(costs.cache_elements, 61 * 8 * 128 * (192 + 128));
    assert_int_equal(costs.latent_elements, 61 * 8 * (512 + 64));
    const uint64_t matrices = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * (128 + 128) + 128 * 128 * 7168;
    assert_int_equal(costs.projections, 2 * 61 * 8 * matrices);
    mha_model_layer layer;
    assert_true(mha_model_layer_at(b.model, 0, &layer));
    assert_int_equal(layer.config.kv_rank, 512);
    assert_int_equal(layer.config.q_rank, 1536);
    unbuild(&b);
}

/* Qwen: the training length of a scale by the logarithm of the position, where it is switched on. */
static void queries_of_long_texts_grow(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t log_n;
    } rows[] = {
        {"{\"model_type\":\"qwen\",\"seq_length\":2048,\"use_logn_attn\":true}", 2048},
        {"{\"model_type\":\"qwen\",\"seq_length\":2048,\"use_logn_attn\":false}", 0},
        {"{\"model_type\":\"qwen\"}", 8192},
    };
    mha_model_facts facts;
    mha_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_ok(mha_model_read_config(config_file(rows[i].text), &facts, &error), error);
        const mha_semantics s = mha_model_semantics(&facts);
        assert_true(s.qkv.query_scale.log_n == rows[i].log_n && s.qkv.query_scale.growth == 0);
        assert_true(s.visible.causal && s.qkv.rope.kind == MHA_ROPE_HALF_SPLIT && s.qkv.rope.dim == 128 &&
                    s.qkv.norm_eps == 1e-6);
    }
    assert_refused(mha_model_read_config(config_file("{\"model_type\":\"qwen\",\"seq_length\":1}"), &facts, &error),
                   MHA_UNSUPPORTED, error, "seq_length", "at least 2");
}

/* Keys that change attention: computed, or counted and refused by the name of the key. */
static void no_key_is_passed_over(void **state)
{
    (void)state;
    static const struct {
        const char *text, *layer, *not_run;
        double scale; /* 0: the usual one */
    } rows[] = {
        {"\"mpt\", \"attn_config\": {\"softmax_scale\": 0.7, \"clip_qkv\": null}", "transformer.blocks.0.attn", "",
         0.7},
        {"\"mpt\"", "transformer.blocks.0.attn", "", 0},
        {"\"mpt\", \"attn_config\": {\"clip_qkv\": 0.5}", NULL, "", 0},
        {"\"gpt2\", \"scale_attn_weights\": false", "h.2.attn", "", 1},
        {"\"gpt2\", \"scale_attn_by_inverse_layer_idx\": true", "h.3.attn", "", 0.125 / 4},
        {"\"gpt2\", \"scale_attn_by_inverse_layer_idx\": true", "h.0.attn", "", 0},
        {"\"gpt2\", \"scale_attn_weights\": false, \"scale_attn_by_inverse_layer_idx\": true", "h.3.attn", "", 0.25},
        {"\"gpt_bigcode\", \"scale_attn_weights\": false", NULL, "", 1},
        {"\"gpt_neo\", \"window_size\": 0", NULL, "window_size", 1},
        {"\"llama4_text\", \"floor_scale\": 0", NULL, "floor_scale", 0},
        {"\"deepseek_v3\", \"head_dim\": 32", NULL, "head_dim", 0},
        {"\"deepseek_v3\", \"head_dim\": 64", NULL, "", 0},
        {"\"phi\", \"hidden_size\": 8, \"num_attention_heads\": 4", NULL,
         "an even number of features up to d_k = 2, found 1", 0},
        {"\"glm4\", \"partial_rotary_factor\": 1.5", NULL, "an even number of features up to d_k = 128, found 192", 0},
        {"\"gpt_oss\"", NULL, "rope_parameters: expected them, found none", 0},
        {"\"ministral3\", \"rope_parameters\": {\"type\": \"yarn\", \"factor\": 16.0, "
         "\"original_max_position_embeddings\": 16384, \"max_position_embeddings\": 262144, \"mscale\": 1.0, "
         "\"mscale_all_dim\": 1.0, \"llama_4_scaling_beta\": 0.1}", NULL, "", 0},
        {"\"llama\", \"rope_scaling\": {\"type\": \"spiral\"}", NULL,
         "rope_type: expected a known type, found 'spiral'", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[300];
        mha_model_facts facts;
        mha_error error;
        snprintf(text, sizeof text, "{\"model_type\": %s}", rows[i].text);
        assert_ok(mha_model_read_layer(config_file(text), rows[i].layer, &facts, &error), error);
        if (!strstr(facts.not_run, rows[i].not_run) || (!*rows[i].not_run && *facts.not_run))
            fail_msg("%s: '%s'", rows[i].text, facts.not_run);
        assert_true(facts.semantics.softmax.has_scale == (rows[i].scale > 0) &&
                    facts.semantics.softmax.scale == rows[i].scale);
    }
}

static void keys_of_layers_go_before_older_ones(void **state)
{
    (void)state;
    static const struct {
        const char *text, *layer;
        size_t window, rope_dim;
        bool both, turns;
    } rows[] = {
        {"\"gemma3_text\", \"use_bidirectional_attention\": true, \"sliding_window\": 512",
         "model.layers.0.self_attn", 257, 256, true, true},
        {"\"gemma3_text\", \"use_bidirectional_attention\": true", "model.layers.5.self_attn", 0, 256, true, true},
        {"\"gemma3_text\", \"sliding_window\": 512", "model.layers.0.self_attn", 512, 256, false, true},
        {"\"gpt_neox\", \"rotary_pct\": 1.0, \"rope_parameters\": {\"partial_rotary_factor\": 0.5}", NULL, 0, 48, false,
         true},
        {"\"smollm3\", \"num_hidden_layers\": 2, \"no_rope_layers\": [2, 0], \"sliding_window\": 9, \"layer_types\": "
         "[\"full_attention\", \"sliding_attention\"]", "model.layers.1.self_attn", 9, 0, false, false},
        {"\"smollm3\", \"num_hidden_layers\": 2, \"no_rope_layers\": [2, 0], \"sliding_window\": 9",
         "model.layers.0.self_attn", 0, 128, false, true},
        {"\"esm\", \"position_embedding_type\": \"relative_key\"", NULL, 0, 0, false, false},
        {"\"qwen2_moe\", \"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 3",
         "model.layers.2.self_attn", 9, 128, false, true},
        {"\"qwen2_moe\", \"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 3",
         "model.layers.4.self_attn", 0, 128, false, true},
        {"\"qwen2_moe\", \"sliding_window\": 9", "model.layers.2.self_attn", 0, 128, false, true},
        {"\"qwen3_moe\", \"use_sliding_window\": true, \"sliding_window\": 9", NULL, 9, 64, false, true},
        {"\"qwen3_moe\", \"sliding_window\": 9", NULL, 0, 64, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[300];
        mha_model_facts facts;
        mha_error error;
        snprintf(text, sizeof text, "{\"model_type\": %s}", rows[i].text);
        assert_ok(mha_model_read_layer(config_file(text), rows[i].layer, &facts, &error), error);
        const bool causal = !rows[i].both && strncmp(facts.model_type, "esm", 3) != 0;
        const mha_semantics *s = &facts.semantics;
        const bool both = rows[i].window > 0 && rows[i].both;
        if (window_of(s) != rows[i].window || s->visible.has_window_right != both ||
            s->visible.window_right != (both ? s->visible.window_left : 0) || s->visible.causal != causal ||
            s->qkv.rope.dim != rows[i].rope_dim || (s->qkv.rope.kind != MHA_ROPE_NONE) != rows[i].turns)
            fail_msg("%s: window %zu, rotates %zu", rows[i].text, window_of(s), s->qkv.rope.dim);
    }
    mha_error error;
    mha_model_facts facts;
    assert_refused(mha_model_read_config(config_file("{\"model_type\":\"esm\",\"is_decoder\":true}"), &facts, &error),
                   MHA_UNSUPPORTED, error, "config", "is_decoder");
    assert_refused(mha_model_read_config(config_file("{\"model_type\":\"olmo\",\"clip_qkv\":0}"), &facts, &error),
                   MHA_INVALID, error, "clip_qkv", "above 0"); /* zeros alone there, no limit in MPT */
    assert_refused(mha_model_read_config(config_file("{\"model_type\":\"phi\",\"partial_rotary_factor\":0}"), &facts,
                                         &error), MHA_INVALID, error, "partial_rotary_factor", "found 0");
    assert_ok(mha_model_read_config(config_file("{\"model_type\":\"beit\",\"layer_scale_init_value\":0.0}"), &facts,
                                    &error), error); /* no scales */
}

/* Each layer has one of the words that its owner knows: no other, and none too many or too few. */
static void words_of_layers_are_known(void **state)
{
    (void)state;
    static const char linear[] = "expected one of full_attention attention sliding_attention, found 'linear_attention'";
    static const struct {
        const char *text;
        size_t window; /* of the second layer */
        const char *where, *why; /* NULL: it is read */
    } rows[] = {
        {"\"gemma2\", \"layer_types\": [\"full_attention\", \"sliding_attention\"]", 7, NULL, NULL},
        {"\"gemma2\", \"layer_types\": [\"sliding_attention\", \"attention\"]", 0, NULL, NULL},
        {"\"gemma2\", \"layer_types\": null", 0, NULL, NULL},
        {"\"gemma2\", \"layer_types\": [\"full_attention\", \"linear_attention\"]", 0, "layer_types", linear},
        {"\"gemma2\", \"layer_types\": [\"full_attention\", \"sliding\"]", 0, "layer_types", "found 'sliding'"},
        {"\"gemma2\", \"layer_types\": [\"full_attention\", \"\"]", 0, "layer_types", "found ''"},
        {"\"gemma2\", \"layer_types\": [\"full_attention attention\", \"attention\"]", 0, "layer_types", "found"},
        {"\"gemma2\", \"layer_types\": [\"full_attention\", [\"attention\"]]", 0, "layer_types", "found a list"},
        {"\"gemma2\", \"layer_types\": [\"attention\", \"attention\", \"attention\"]", 0, "layer_types",
         "expected a list of 2 entries, found 3"},
        {"\"gemma2\", \"layer_types\": [\"sliding_attention\"]", 0, "layer_types", "2 entries, found 1"},
        {"\"llama4_text\", \"layer_types\": [\"chunked_attention\", \"sliding_attention\"]", 0, "layer_types",
         "expected one of full_attention attention chunked_attention"},
        {"\"qwen3_next\", \"layer_types\": [\"linear_attention\", \"attention\"]", 0, "layer_types",
         "expected one of full_attention linear_attention, found 'attention'"},
        {"\"gpt_neo\", \"attention_layers\": [\"local\", \"global\"]", 0, NULL, NULL},
        {"\"gpt_neo\", \"attention_types\": [[[\"global\"], 1], [[\"local\"], 1], [[], 9223372036854775807]]", 7, NULL,
         NULL},
        {"\"gpt_neo\", \"attention_types\": [[[\"local\", \"global\"], 1]]", 0, NULL, NULL},
        {"\"gpt_neo\", \"attention_types\": [[[\"local\"], 9223372036854775807]]", 0, "attention_types",
         "2 entries, found 100001"},
        {"\"gpt_neo\", \"attention_layers\": [\"local\", \"near\"]", 0, "attention_layers",
         "expected one of global local, found 'near'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[300];
        mha_model_facts facts;
        mha_error error = {0};
        const bool neo = strncmp(rows[i].text, "\"gpt_neo", 8) == 0;
        snprintf(text, sizeof text, "{\"num_hidden_layers\": 2, \"num_layers\": 2, \"sliding_window\": 7, "
                 "\"window_size\": 7, \"model_type\": %s}", rows[i].text);
        const mha_status status = mha_model_read_layer(
            config_file(text), neo ? "transformer.h.1.attn.attention" : "model.layers.1.self_attn", &facts, &error);
        if (rows[i].why ? status == MHA_OK || strcmp(error.name, rows[i].where) != 0 ||
                              !strstr(error.message, rows[i].why)
                        : status != MHA_OK || window_of(&facts.semantics) != rows[i].window)
            fail_msg("%s: %s: %s, window %zu", rows[i].text, error.name, error.message, window_of(&facts.semantics));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_are_cached_once),
        cmocka_unit_test(queries_of_long_texts_grow),
        cmocka_unit_test(an_unknown_model_type_tells_its_heads),
        cmocka_unit_test(values_that_are_no_counts_are_named),
        cmocka_unit_test(stretched_rotations_are_told),
        cmocka_unit_test(alibi_has_the_slopes_of_all_heads),
        cmocka_unit_test(a_window_can_reach_both_ways),
        cmocka_unit_test(no_key_is_passed_over),
        cmocka_unit_test(keys_of_layers_go_before_older_ones),
        cmocka_unit_test(words_of_layers_are_known),
        cmocka_unit_test(lists_end_with_nothing),
        cmocka_unit_test(costs_beyond_64_bits_are_refused),
    };
    return cmocka_run_group_tests_name("models_facts", tests, NULL, NULL);
}
