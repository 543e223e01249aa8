/* The attention in the metadata of a GGUF file: sizes, masks, windows, scales, rotations; and what is refused by
 * name, because it would change a number and is not described. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/model.h"
#include "support/built.h"
#include "support/gguf.h"

/* ---------------------------------------------------------------- files from a line of text */

/* Adds "KEY=VALUE" behind the name of the architecture: a number, a real one, a flag, [a list] of these, or text. */
static void add_pair(gguf_plan *p, const char *architecture, const char *pair)
{
    char key[120];
    const char *value = strchr(pair, '=') + 1;
    snprintf(key, sizeof key, "%s.%.*s", architecture, (int)(value - 1 - pair), pair);
    if (*value == '[') {
        size_t list[16], count = 0;
        const bool flags = strchr(value, 't') || strchr(value, 'f');
        for (const char *at = value + 1; *at && *at != ']'; at += strcspn(at, ",]"), at += *at == ',')
            list[count++] = flags ? *at == 't' : strtoul(at, NULL, 10);
        gguf_list(p, key, list, count, flags);
    } else if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        gguf_flag(p, key, *value == 't');
    else if (strspn(value, "0123456789") == strlen(value))
        gguf_count(p, key, strtoul(value, NULL, 10));
    else if (strspn(value, "-0123456789.e") == strlen(value))
        gguf_real(p, key, strtod(value, NULL));
    else
        gguf_text(p, key, value);
}

/* A file of that architecture (NULL: it names none) with pairs, blanks between, and one tensor for each name. */
static mha_file *file_of(const char *architecture, const char *pairs, const char *tensors)
{
    gguf_plan p = {.count = 0};
    char text[800], names[200], *at, *rest;
    if (architecture)
        gguf_text(&p, "general.architecture", architecture);
    snprintf(text, sizeof text, "%s", pairs);
    for (at = strtok_r(text, " ", &rest); at; at = strtok_r(NULL, " ", &rest))
        add_pair(&p, architecture ? architecture : "none", at);
    snprintf(names, sizeof names, "%s", tensors);
    for (at = strtok_r(names, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        const size_t elements = strstr(at, "four") ? 3 : 4; /* "four" is one that should have four */
        float *values = calloc(4, sizeof *values);
        for (size_t i = 0; i < 4; i++)
            values[i] = (float)(i + 1);
        gguf_add(&p, strncmp(at, "four:", 5) == 0 ? at + 5 : at, 1, &elements, values);
    }
    mha_file *file = gguf_open(&p);
    gguf_free(&p);
    return file;
}

#define SIZES "embedding_length=32 block_count=4 attention.head_count=4 attention.head_count_kv=2 "                    \
              "attention.layer_norm_rms_epsilon=0.5 "

static mha_model_facts facts_with(const char *architecture, const char *layer, const char *pairs, const char *tensors)
{
    char all[800];
    mha_error error;
    mha_model_facts facts;
    snprintf(all, sizeof all, SIZES "%s", pairs);
    mha_file *file = file_of(architecture, all, tensors);
    assert_ok(mha_model_read_metadata(file, layer, &facts, &error), error);
    assert_string_equal(facts.model_type, architecture);
    mha_file_close(file);
    return facts;
}

static mha_model_facts known(const char *architecture, const char *layer, const char *pairs)
{
    const mha_model_facts facts = facts_with(architecture, layer, pairs, "");
    if (*facts.not_run || !facts.has_semantics)
        fail_msg("%s, %s: '%s'", architecture, pairs, facts.not_run);
    return facts;
}

static void refused(const char *architecture, const char *layer, const char *pairs, const char *tensors,
                    const char *why)
{
    const mha_model_facts facts = facts_with(architecture, layer, pairs, tensors);
    if (facts.has_semantics || !strstr(facts.not_run, why))
        fail_msg("%s, %s: expected '%s', found '%s'", architecture, pairs, why, facts.not_run);
}

/* ---------------------------------------------------------------- what is said */

static void a_file_tells_its_heads(void **state)
{
    (void)state;
    mha_error error;
    mha_model_facts facts;
    mha_file *file = file_of("llama", "embedding_length=64 attention.head_count=8 attention.head_count_kv=2 "
                                      "attention.key_length=24 attention.layer_norm_rms_epsilon=0.5 "
                                      "rope.dimension_count=12 rope.freq_base=1000.0", "");
    assert_ok(mha_model_read_metadata(file, NULL, &facts, &error), error);
    assert_string_equal(facts.model_type, "llama");
    assert_true(facts.config.d_model == 64 && facts.config.n_heads == 8 && facts.config.kv_heads == 2 &&
                facts.config.d_k == 24);
    assert_true(facts.semantics.qkv.norm_eps == 0.5 && facts.semantics.qkv.rope.base == 1000 &&
                facts.semantics.qkv.rope.dim == 12);
    assert_true(facts.has_semantics && facts.semantics.visible.causal && facts.reordered);
    assert_int_equal(facts.semantics.qkv.rope.kind, MHA_ROPE_INTERLEAVED);
    mha_file_close(file);

    facts = known("llama", NULL, "");
    assert_true(facts.semantics.qkv.rope.base == 10000 && facts.config.d_k == 8 && facts.semantics.qkv.rope.dim == 8);
    facts = facts_with("novel", NULL, "attention.key_length=24", ""); /* its heads, and nothing more */
    assert_false(facts.has_semantics);
    assert_true(facts.config.n_heads == 4 && facts.config.kv_heads == 2 && facts.config.d_k == 24 &&
                facts.config.d_model == 32 && !*facts.not_run);
    file = file_of(NULL, "attention.head_count=8", "");
    assert_int_equal(mha_model_read_metadata(file, NULL, &facts, NULL), MHA_NOT_FOUND);
    assert_int_equal(facts.config.n_heads, 0);
    mha_file_close(file);

    assert_ok(mha_file_open("weights/lookup/model.safetensors", &file, &error), error);
    assert_int_equal(mha_model_read_metadata(file, NULL, &facts, NULL), MHA_NOT_FOUND);
    mha_file_close(file);
}

/* The same key in a file of another format is none of its business. */
static void other_formats_have_no_such_metadata(void **state)
{
    (void)state;
    mha_file *file;
    mha_error error;
    mha_model_facts facts;
    mha_writer *writer;
    const char *path = scratch_path("facts.safetensors");
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add_metadata(writer, "general.architecture", "llama", &error), error);
    assert_ok(mha_writer_add_metadata(writer, "llama.attention.head_count", "4", &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(mha_model_read_metadata(file, NULL, &facts, NULL), MHA_NOT_FOUND);
    assert_int_equal(facts.config.n_heads, 0);
    mha_file_close(file);
}

/* Values of other types, and numbers that no model has: what is left is said, and why there is no more. */
static void what_is_no_size_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *pairs, *why;
        size_t heads;
    } rows[] = {
        {"embedding_length=wide attention.head_count=4", "embedding_length: expected a whole number, found text", 4},
        {"embedding_length=32 attention.head_count=4 attention.head_count_kv=-2.0", "head_count_kv: expected a", 4},
        {"embedding_length=32 attention.head_count=4 attention.key_length=1e20", "attention.key_length: expected", 4},
        {"embedding_length=32 attention.head_count=0", "attention.head_count: expected at least 1, found 0", 0},
        {"embedding_length=32", "attention.head_count: expected at least 1, found 0", 0},
        {"attention.head_count=4", "embedding_length: expected at least 1, found 0", 4},
        {"embedding_length=32 attention.head_count=[4,2]", "attention.head_count: expected a whole number, found a", 0},
    };
    mha_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_model_facts facts;
        mha_file *file = file_of("llama", rows[i].pairs, "");
        assert_ok(mha_model_read_metadata(file, NULL, &facts, &error), error);
        if (facts.has_semantics || !strstr(facts.not_run, rows[i].why) || facts.config.n_heads != rows[i].heads)
            fail_msg("%s: %zu heads, '%s'", rows[i].pairs, facts.config.n_heads, facts.not_run);
        mha_file_close(file);
    }
    mha_model_facts facts; /* the same heads in each layer */
    mha_file *file = file_of("llama", "embedding_length=32 attention.head_count=[8,8] attention.head_count_kv=[2,2]",
                             "");
    assert_ok(mha_model_read_metadata(file, NULL, &facts, &error), error);
    assert_true(facts.has_semantics && facts.config.n_heads == 8 && facts.config.kv_heads == 2);
    mha_file_close(file);
}

static void windows_belong_to_layers(void **state)
{
    (void)state;
    static const struct {
        const char *architecture, *pairs;
        size_t windows[4];
    } rows[] = {
        {"llama", "", {0, 0, 0, 0}},
        {"llama", "attention.sliding_window=3", {3, 3, 3, 3}},
        {"phi3", "attention.sliding_window=3", {3, 3, 3, 3}},
        {"phi3", "attention.sliding_window=0", {0, 0, 0, 0}},
        {"starcoder2", "attention.sliding_window=3", {3, 3, 3, 3}},
        {"gemma2", "attention.sliding_window=3", {3, 0, 3, 0}},
        {"gemma2", "", {4096, 0, 4096, 0}},
        {"gemma2", "attention.sliding_window=3 attention.sliding_window_pattern=[false,true,true,false]", {0, 3, 3, 0}},
        {"gemma3", "attention.sliding_window=3", {3, 3, 3, 3}},
        {"gemma3", "attention.sliding_window=3 attention.sliding_window_pattern=3", {3, 3, 0, 3}},
        {"gemma3", "attention.sliding_window=3 attention.sliding_window_pattern=0", {3, 3, 3, 3}},
        {"gemma3", "", {0, 0, 0, 0}},
        {"gpt-oss", "attention.sliding_window=3", {3, 0, 3, 0}},
        {"cohere2", "attention.sliding_window=3", {3, 3, 3, 0}},
        {"exaone4", "attention.sliding_window=3", {3, 3, 3, 0}},
        {"olmo2", "attention.sliding_window=3", {3, 3, 3, 0}},
        {"olmo2", "", {0, 0, 0, 0}},
        {"qwen2", "", {0, 0, 0, 0}},
        {"qwen3", "attention.sliding_window=3 attention.sliding_window_pattern=[false,false,true,true]", {0, 0, 3, 3}},
        {"qwen3moe", "attention.sliding_window=3", {3, 3, 3, 3}},
        {"modern-bert", "attention.sliding_window=4", {0, 3, 3, 0}},
        {"modern-bert", "attention.sliding_window=4 attention.sliding_window_pattern=2", {0, 3, 0, 3}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t layer = 0; layer < 4; layer++) {
            char prefix[12];
            snprintf(prefix, sizeof prefix, "blk.%zu", layer);
            const mha_model_facts facts = known(rows[i].architecture, prefix, rows[i].pairs);
            const mha_visible *v = &facts.semantics.visible;
            const size_t window = v->has_window_left ? (size_t)v->window_left + 1 : 0;
            if (window != rows[i].windows[layer])
                fail_msg("%s, %s, %s: window %zu", rows[i].architecture, rows[i].pairs, prefix, window);
        }
}

static void rotations_belong_to_layers(void **state)
{
    (void)state;
    static const struct {
        const char *architecture, *pairs;
        int rope[4];
        double base[4];
    } rows[] = {
        {"llama", "", {1, 1, 1, 1}, {1e4, 1e4, 1e4, 1e4}},
        {"qwen2", "rope.freq_base=1000.0", {2, 2, 2, 2}, {1e3, 1e3, 1e3, 1e3}},
        {"gpt2", "", {0, 0, 0, 0}, {0, 0, 0, 0}},
        {"smollm3", "", {1, 1, 1, 0}, {1e4, 1e4, 1e4, 0}},
        {"cohere2", "attention.sliding_window=3", {1, 1, 1, 0}, {1e4, 1e4, 1e4, 0}},
        {"exaone4", "attention.sliding_window=3", {2, 2, 2, 0}, {1e4, 1e4, 1e4, 0}},
        {"exaone4", "", {2, 2, 2, 2}, {1e4, 1e4, 1e4, 1e4}},
        {"gemma3", "attention.sliding_window=3 attention.sliding_window_pattern=2 rope.freq_base=1000000.0",
         {2, 2, 2, 2}, {1e4, 1e6, 1e4, 1e6}},
        {"gemma3", "attention.sliding_window=3 attention.sliding_window_pattern=2 rope.freq_base_swa=500.0",
         {2, 2, 2, 2}, {500, 1e4, 500, 1e4}},
        {"gemma3", "rope.freq_base=1000000.0", {2, 2, 2, 2}, {1e6, 1e6, 1e6, 1e6}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t layer = 0; layer < 4; layer++) {
            char prefix[12];
            snprintf(prefix, sizeof prefix, "blk.%zu", layer);
            const mha_model_facts facts = known(rows[i].architecture, prefix, rows[i].pairs);
            if ((int)facts.semantics.qkv.rope.kind != rows[i].rope[layer] ||
                facts.semantics.qkv.rope.base != rows[i].base[layer])
                fail_msg("%s, %s, %s: %d, %g", rows[i].architecture, rows[i].pairs, prefix,
                         (int)facts.semantics.qkv.rope.kind, facts.semantics.qkv.rope.base);
        }
}

static void masks_and_scales_are_read(void **state)
{
    (void)state;
    assert_true(known("qwen2", NULL, "").semantics.visible.causal &&
                !known("qwen2", NULL, "attention.causal=false").semantics.visible.causal);
    assert_true(!known("bert", NULL, "").semantics.visible.causal &&
                known("bert", NULL, "attention.causal=true").semantics.visible.causal);
    assert_false(known("nomic-bert", NULL, "").semantics.visible.causal);
    assert_true(known("gemma2", NULL, "").semantics.softmax.softcap == 50);
    assert_true(known("gemma2", NULL, "attn_logit_softcapping=30.0").semantics.softmax.softcap == 30);
    assert_true(known("llama", NULL, "attn_logit_softcapping=30.0").semantics.softmax.softcap == 30);
    assert_true(known("granite", NULL, "attention.scale=0.25").semantics.softmax.scale == 0.25);
    assert_false(known("granite", NULL, "").semantics.softmax.has_scale);
    assert_true(known("gemma2", NULL, "").semantics.softmax.scale == 1 / sqrt(8));
    assert_true(known("gemma2", NULL, "attention.scale=0.25").semantics.softmax.scale == 0.25);
    assert_true(known("gemma2", NULL, "attention.key_length=16").semantics.softmax.scale == 0.25);
    assert_true(known("olmo", NULL, "attention.clamp_kqv=8.0").semantics.qkv.clip_qkv == 8);
    assert_true(known("mpt", NULL, "attention.max_alibi_bias=8.0").alibi && !known("mpt", NULL, "").alibi);
    assert_true(known("bloom", NULL, "").alibi && !known("falcon", NULL, "").alibi);
    const mha_model_facts gemma = known("gemma3", NULL, "");
    assert_true(gemma.norm_folded && !gemma.semantics.qkv.norm.plus_one && !known("qwen3", NULL, "").norm_folded);
}

/* Gemma's largest models divide by the width of a head of d_model, which is another. */
static void the_scale_of_gemma_goes_by_its_layers(void **state)
{
    (void)state;
    static const struct {
        const char *architecture;
        size_t blocks;
        double scale;
    } rows[] = {{"gemma2", 42, 0.25}, {"gemma2", 46, 0.5}, {"gemma3", 46, 0.25}, {"gemma3", 62, 0.5}};
    for (size_t i = 0; i < 4; i++) {
        char pairs[300];
        mha_error error;
        mha_model_facts facts;
        snprintf(pairs, sizeof pairs, "embedding_length=16 block_count=%zu attention.head_count=4 "
                                      "attention.key_length=16 attention.layer_norm_rms_epsilon=0.5", rows[i].blocks);
        mha_file *file = file_of(rows[i].architecture, pairs, "");
        assert_ok(mha_model_read_metadata(file, NULL, &facts, &error), error);
        assert_true(facts.semantics.softmax.has_scale && facts.semantics.softmax.scale == rows[i].scale);
        mha_file_close(file);
    }
}

/* ---------------------------------------------------------------- what is refused, or said */

static void what_is_not_described_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *architecture, *layer, *pairs, *why;
    } rows[] = {
        {"qwen2", NULL, "attention.sliding_window=3", "which layers have it is not said"},
        {"qwen3moe", NULL, "attention.sliding_window=3 attention.sliding_window_pattern=2",
         "attention.sliding_window_pattern: expected a key that mha knows for the attention of 'qwen3moe'"},
        {"gpt2", NULL, "attention.sliding_window=3", "attention.sliding_window: expected a key that mha knows"},
        {"smollm3", NULL, "attention.sliding_window=3", "attention.sliding_window: expected a key that mha knows"},
        {"cohere2", NULL, "", "attention.sliding_window: expected it"},
        {"gpt-oss", NULL, "", "attention.sliding_window: expected it"},
        {"llama", NULL, "attention.temperature_scale=0.1",
         "attention.temperature_scale: expected a key that mha knows"},
        {"llama", NULL, "attention.shared_kv_layers=2", "attention.shared_kv_layers: expected a key that mha knows"},
        {"llama", NULL, "rope.freq_base_swa=10.0", "rope.freq_base_swa: expected a key that mha knows"},
        {"llama", NULL, "rope.dimension_sections=[2,1,1,0]", "rope.dimension_sections: expected a key that mha knows"},
        {"llama", NULL, "rope.scale_linear=2.0", "rope.scale_linear: expected a key that mha knows"},
        {"llama", NULL, "attention.kind=odd", "attention.kind: expected a key that mha knows"},
        {"llama", NULL, "attention.odd=true", "attention.odd: expected a key that mha knows"},
        {"mpt", NULL, "attention.max_alibi_bias=2.0", "attention.max_alibi_bias: expected 0 or 8"},
        {"bloom", NULL, "attention.max_alibi_bias=4.0", "attention.max_alibi_bias: expected 8"},
        {"gemma2", NULL, "attention.sliding_window_pattern=[true,false]", "expected a list of 4 entries, found 2"},
        {"gemma2", NULL, "attention.sliding_window_pattern=odd", "expected a whole number, found text"},
        {"gemma2", "blk.4", "", "block_count: expected more than 4 layers, which differ, found no 'blk.4'"},
        {"llama", NULL, "rope.scaling.type=yarn rope.scaling.factor=4.0 rope.scaling.original_context_length=8 "
                        "rope.scaling.yarn_attn_factor=0.5", "rope.scaling.yarn_attn_factor: expected 1, found 0.5"},
        {"llama", NULL, "rope.scaling.type=yarn rope.scaling.factor=4.0 rope.scaling.original_context_length=8 "
                        "rope.scaling.yarn_ext_factor=0.5", "rope.scaling.yarn_ext_factor: expected 1, found 0.5"},
        {"llama", NULL, "rope.scaling.type=yarn rope.scaling.factor=4.0 rope.scaling.original_context_length=8 "
                        "rope.scaling.yarn_log_multiplier=0.5", "yarn_log_multiplier: expected 0, found 0.5"},
        {"llama", NULL, "rope.scaling.factor=wide", "rope.scaling.factor: expected a number"},
        {"llama", NULL, "rope.scaling.type=7", "rope.scaling.type: expected none"},
        {"llama", NULL, "rope.scaling.type=longrope", "rope_factors_long.weight: expected factors"},
        {"phi3", NULL, "context_length=131072 rope.scaling.original_context_length=4096",
         "rope_factors_long.weight: expected factors for a context of 131072 positions above the original 4096"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(rows[i].architecture, rows[i].layer, rows[i].pairs, "", rows[i].why);
    refused("phi3", NULL, "", "rope_factors_long.weight", "rope_factors_short.weight: expected factors");
    refused("phi3", NULL, "", "rope_factors_short.weight", "rope_factors_long.weight: expected factors");
    refused("phi3", NULL, "context_length=8", "rope_factors_short.weight four:rope_factors_long.weight",
            "rope_factors_long.weight: expected factors of 4 pairs of features and no other scaling, found 3");
    refused("phi3", NULL, "context_length=8 rope.scaling.factor=2.0",
            "rope_factors_short.weight rope_factors_long.weight",
            "rope_factors_short.weight: expected factors of 4 pairs of features and no other scaling");
    refused("llama", NULL, "", "four:rope_freqs.weight", "rope_freqs.weight: expected factors of 4 pairs");
    refused("llama", NULL, "rope.scaling.factor=2.0", "rope_freqs.weight", "rope_freqs.weight: expected factors");
    refused("llama", NULL, "attention.temperature_scale=0.1", "", "of 'llama'");
    /* zero and none ask for nothing */
    (void)known("llama", NULL, "attention.temperature_scale=0.0 attention.odd=false rope.odd=none rope.scale_linear=0");
}

/* Its architecture is known; its rotation cannot be computed. */
static void a_scaling_that_does_not_fit_is_not_run(void **state)
{
    (void)state;
    static const struct {
        const char *architecture, *pairs, *why;
    } rows[] = {
        {"llama", "rope.scaling.factor=0.5", "linear: expected a factor"},
        {"gemma2", "attention.key_length=514 rope.scaling.factor=2.0", "at most 256 pairs of features, found 257"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const mha_model_facts facts = facts_with(rows[i].architecture, NULL, rows[i].pairs, "");
        if (!facts.has_semantics || !strstr(facts.not_run, rows[i].why))
            fail_msg("%s: expected '%s', found '%s'", rows[i].pairs, rows[i].why, facts.not_run);
        assert_null(mha_model_semantics(&facts).qkv.rope.frequencies.data);
    }
}

/* Norms of queries and keys need their epsilon, which only the metadata know. */
static void norms_need_an_epsilon(void **state)
{
    (void)state;
    static const char *const pairs = "embedding_length=32 block_count=4 attention.head_count=4";
    for (int normed = 0; normed < 2; normed++) {
        mha_error error;
        mha_model_facts facts;
        mha_file *file = file_of(normed ? "qwen3" : "qwen2", pairs, "");
        assert_ok(mha_model_read_metadata(file, NULL, &facts, &error), error);
        assert_int_equal(facts.has_semantics, !normed);
        assert_int_equal(normed, strstr(facts.not_run, "attention.layer_norm_rms_epsilon: expected") != NULL);
        mha_file_close(file);
    }
}

static void what_is_assumed_is_said(void **state)
{
    (void)state;
    mha_model_facts facts = known("gemma2", "blk.0", "");
    assert_string_equal(facts.caveat, "assumed, as its metadata do not say it: attention.sliding_window = 4096");
    facts = known("gemma2", "blk.0", "attention.sliding_window=4096");
    assert_string_equal(facts.caveat, "");
    facts = known("modern-bert", "blk.1", "");
    assert_non_null(strstr(facts.caveat, "attention.sliding_window_period = 3, attention.sliding_window = 128"));
    facts = known("starcoder2", "blk.0", "");
    assert_non_null(strstr(facts.caveat, "window of 4,096 keys"));
}

static void factors_of_long_sequences_are_read(void **state)
{
    (void)state;
    static const char *const both = "rope_factors_short.weight rope_factors_long.weight";
    mha_error error;
    mha_model_facts facts = facts_with("phi3", NULL, "context_length=16 rope.scaling.original_context_length=4 "
                                                     "rope.scaling.attn_factor=1.25", both);
    assert_true(facts.has_semantics && facts.rope_scaling.kind == MHA_ROPE_LONGROPE);
    assert_true(facts.semantics.qkv.rope.attention_factor == 1.25 && facts.rope_scaling.short_factors[2] == 3);
    facts = facts_with("phi3", NULL, "context_length=16 rope.scaling.original_context_length=4 "
                                     "rope.scaling.type=longrope", both);
    assert_true(facts.has_semantics &&
                fabs(facts.semantics.qkv.rope.attention_factor - sqrt(2)) < 0x1p-50); /* 1 + ln 4 / ln 4 */
    assert_ok(mha_model_extend_context(&facts, 5, &error), error);
    assert_true(facts.rope_scaling.long_factors[3] == 4 && facts.rope_scaling.factor == 4);
    facts = facts_with("phi3", NULL, "context_length=16", both);
    assert_true(facts.has_semantics && facts.semantics.qkv.rope.attention_factor == 1);
    facts = facts_with("phi3", NULL, "context_length=16 rope.scaling.original_context_length=16", "");
    assert_true(facts.has_semantics && facts.rope_scaling.kind == MHA_ROPE_UNSCALED);
    facts = facts_with("phi3", NULL, "context_length=16 rope.scaling.original_context_length=4 rope.scaling.type=none",
                       "");
    assert_true(facts.has_semantics && facts.rope_scaling.kind == MHA_ROPE_UNSCALED);
    facts = facts_with("llama", NULL, "", "rope_freqs.weight");
    assert_true(facts.has_semantics && facts.rope_scaling.short_factors[3] == 4);
}

/* gpt-oss does not round the pairs between which YaRN changes from one frequency to the other; files do not say it. */
static void yarn_is_rounded_as_its_family_does(void **state)
{
    (void)state;
    static const char yarn[] = "attention.sliding_window=3 attention.sliding_window_pattern=[true,false,true,false] "
                               "rope.scaling.type=yarn rope.scaling.factor=4.0 "
                               "rope.scaling.original_context_length=1000 rope.scaling.yarn_beta_fast=16.0 "
                               "rope.scaling.yarn_beta_slow=2.0";
    const mha_model_facts plain = known("qwen2", NULL, yarn), open = known("gpt-oss", NULL, yarn);
    assert_true(!plain.rope_scaling.untruncated && open.rope_scaling.untruncated);
    assert_true(plain.rope_scaling.beta_fast == 16 && plain.rope_scaling.beta_slow == 2);
    assert_true(plain.rope_frequencies[1] != open.rope_frequencies[1]);
    assert_true(plain.semantics.qkv.rope.attention_factor == open.semantics.qkv.rope.attention_factor &&
                plain.semantics.qkv.rope.attention_factor > 1);
}

/* Facts that only the names of tensors state. */
static void biases_are_those_of_the_file(void **state)
{
    (void)state;
    const uint64_t q = UINT64_C(1) << MHA_B_Q, o = UINT64_C(1) << MHA_B_O, norm = UINT64_C(1) << MHA_Q_NORM;
    assert_false(facts_with("llama", NULL, "", "").weights & (q | o));
    assert_true((facts_with("llama", NULL, "", "blk.3.attn_q.bias").weights & (q | o)) == q);
    assert_true((facts_with("llama", NULL, "", "blk.3.attn_q.bias blk.3.attn_output.bias").weights & (q | o)) ==
                (q | o));
    assert_true((facts_with("falcon", NULL, "", "blk.0.attn_qkv.bias").weights & q) != 0);
    assert_false(facts_with("llama", NULL, "", "blk.x.attn_q.bias blk.3attn_q.bias").weights & q);
    assert_true((facts_with("qwen2", NULL, "", "").weights & (q | o)) == q);
    assert_true((facts_with("stablelm", NULL, "", "blk.0.attn_q_norm.weight").weights & norm) != 0);
    assert_false(facts_with("stablelm", NULL, "", "").weights & norm);
}

/* Sinks have two names, with ".weight" and without; norms outside of attention are known by name, fused or not. */
static void names_of_sinks_and_norms_are_known(void **state)
{
    (void)state;
    static const char *const beside[] = {"blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight",
                                         "blk.0.attn_output_norm.weight", "blk.0.attn_output_norm.bias"};
    for (int i = 0; i < 4; i++) {
        const char *parts[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                               "blk.0.attn_output.weight"};
        const bool fused = i / 2;
        gguf_plan p = {.count = 0};
        mha_error error;
        mha_layer *layer;
        mha_load_report report;
        for (size_t k = fused ? 2 : 0; k < 4; k++)
            gguf_add(&p, fused && k == 2 ? "blk.0.attn_qkv.weight" : parts[k], 2,
                     (const size_t[]){fused && k == 2 ? 12 : 4, 4}, calloc(48, sizeof(float)));
        float *sinks = calloc(2, sizeof *sinks);
        sinks[1] = 3;
        gguf_add(&p, i % 2 ? "blk.0.attn_sinks" : "blk.0.attn_sinks.weight", 1, (const size_t[]){2}, sinks);
        for (size_t k = 0; k < 4; k++)
            gguf_add(&p, beside[k], 1, (const size_t[]){4}, calloc(4, sizeof(float)));
        mha_file *file = gguf_open(&p);
        assert_ok(mha_model_load_layer(file, &(mha_load_options){.n_heads = 2}, NULL, &layer, &report, &error), error);
        assert_true(mha_layer_config(layer)->sinks && report.ignored == 4 && report.tensors == (fused ? 3 : 5));
        const mha_view read = mha_tensor_view(mha_layer_weight(layer, MHA_SINKS));
        assert_true(((const float *)read.data)[1] == 3);
        mha_layer_destroy(layer);
        mha_file_close(file);
        gguf_free(&p);
    }
}

/* Facts of a config.json, for weights that a converter changed. */
static void facts_of_a_configuration_fit_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *config, *architecture;
        bool reordered, folded;
    } rows[] = {
        {"{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2}", "llama", true, false},
        {"{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2}", "novel", false, false},
        {"{\"model_type\": \"qwen2\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2}", "qwen2", false, false},
        {"{\"model_type\": \"gemma3_text\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2}", "gemma3", false, true},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": 4}", "llama", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_error error;
        mha_model_facts facts, before;
        const char *path = config_file(rows[i].config);
        assert_ok(mha_model_read_config(path, &facts, &error), error);
        before = facts;
        mha_file *file = file_of(rows[i].architecture, SIZES, "");
        assert_ok(mha_model_fit_file(file, &facts, &error), error);
        mha_file_close(file);
        assert_true(facts.reordered == rows[i].reordered && facts.norm_folded == rows[i].folded);
        assert_int_equal(facts.semantics.qkv.rope.kind,
                         rows[i].reordered ? MHA_ROPE_INTERLEAVED : before.semantics.qkv.rope.kind);
        assert_int_equal(facts.semantics.qkv.norm.plus_one, before.semantics.qkv.norm.plus_one && !rows[i].folded);
    }
    mha_error error;
    mha_file *file;
    mha_model_facts facts = {.semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT};
    assert_ok(mha_file_open("weights/lookup/model.safetensors", &file, &error), error);
    assert_ok(mha_model_fit_file(file, &facts, &error), error);
    assert_true(facts.semantics.qkv.rope.kind == MHA_ROPE_HALF_SPLIT && !facts.reordered);
    mha_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_tells_its_heads),
        cmocka_unit_test(other_formats_have_no_such_metadata),
        cmocka_unit_test(what_is_no_size_is_named),
        cmocka_unit_test(windows_belong_to_layers),
        cmocka_unit_test(rotations_belong_to_layers),
        cmocka_unit_test(masks_and_scales_are_read),
        cmocka_unit_test(the_scale_of_gemma_goes_by_its_layers),
        cmocka_unit_test(what_is_not_described_is_refused_by_name),
        cmocka_unit_test(a_scaling_that_does_not_fit_is_not_run),
        cmocka_unit_test(norms_need_an_epsilon),
        cmocka_unit_test(what_is_assumed_is_said),
        cmocka_unit_test(factors_of_long_sequences_are_read),
        cmocka_unit_test(yarn_is_rounded_as_its_family_does),
        cmocka_unit_test(biases_are_those_of_the_file),
        cmocka_unit_test(names_of_sinks_and_norms_are_known),
        cmocka_unit_test(facts_of_a_configuration_fit_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
