/* Whole models: totals read from allocated storages against published numbers, names, shapes, checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <jansson.h>

#include "mha/model.h"
#include "support/counted.h"
#include "support/built.h"
#include "support/sanitizer.h"
#include "support/scratch.h"
#include "support/unit.h"

/* The address sanitizer needs much memory of its own. */
static const bool sanitized = ADDRESS_SANITIZER;

static void refuse(mha_model_spec spec, mha_status expected, const char *a, const char *b, const char *c)
{
    built found;
    assert_refused(build(&found, spec), expected, found.error, a, b, c);
    unbuild(&found);
}

/* ---------------------------------------------------------------- totals */

/* Parameters that the library does not train, as its modules of the same configuration have them. */
static void frozen_parameters_are_not_trained(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        size_t frozen;
    } rows[] = {
        {"{\"model_type\": \"whisper\"}", 1500 * 384},
        {"{\"model_type\": \"marian\"}", 2 * 1024 * 1024},
        {"{\"model_type\": \"pegasus\"}", 2 * 1024 * 1024},
        {"{\"model_type\": \"vit_mae\"}", 197 * (768 + 512)},
        {"{\"model_type\": \"afmoe\", \"num_hidden_layers\": 5, \"num_dense_layers\": 2, \"num_experts\": 6}", 3 * 6},
        {"{\"model_type\": \"distilbert\", \"sinusoidal_pos_embds\": true}", 512 * 768},
        {"{\"model_type\": \"distilbert\"}", 0},
        {"{\"model_type\": \"bart\"}", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b;
        assert_ok(build_text(&b, rows[i].config, NULL, NULL), b.error);
        const mha_totals totals = mha_params_totals(b.table, NULL);
        if (totals.parameters - totals.trainable != rows[i].frozen)
            fail_msg("%s: %zu frozen", rows[i].config, totals.parameters - totals.trainable);
        unbuild(&b);
    }
}

/* A null is not a missing key: the library has another value for it than the default. */
static void null_has_the_library_s_meaning(void **state)
{
    (void)state;
    static const char *const rows[][3] = {/* model, what null means, the key */
        {"qwen2", "16", "num_key_value_heads"}, {"qwen3", "16", "num_key_value_heads"},
        {"mistral", "16", "num_key_value_heads"}, {"mixtral", "16", "num_key_value_heads"},
        {"smollm3", "16", "num_key_value_heads"}, {"seed_oss", "16", "num_key_value_heads"},
        {"gpt_oss", "16", "num_key_value_heads"}, {"ernie4_5", "4", "head_dim"}, {"seed_oss", "4", "head_dim"},
        {"minicpm3", "4", "v_head_dim"}, {"falcon", "false", "multi_query"}, {"falcon", "false", "parallel_attn"},
        {"t5", "false", "is_gated_act"}, {"mt5", "false", "is_gated_act"},
        {"esm", "\"none\"", "position_embedding_type"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_totals totals[2];
        for (int stated = 0; stated < 2; stated++) {
            char text[300];
            built b;
            snprintf(text, sizeof text,
                     "{\"model_type\": \"%s\", \"num_attention_heads\": 16, \"hidden_size\": 64, \"%s\": %s}",
                     rows[i][0], rows[i][2], stated ? rows[i][1] : "null");
            assert_ok(build_text(&b, text, NULL, NULL), b.error);
            totals[stated] = mha_params_totals(b.table, NULL);
            unbuild(&b);
        }
        if (totals[0].parameters != totals[1].parameters)
            fail_msg("%s, %s: %zu, %zu", rows[i][0], rows[i][2], totals[0].parameters, totals[1].parameters);
    }
}

/* Computed by summing the public checkpoints' shape lists, and equal to the totals their publishers report
 * once buffers are left out. `tensors` counts storages without buffers. */
static const struct {
    const char *preset, *model_class;
    size_t total, attention, tensors, inert;
} known[] = {
    {"bert-base-uncased", "BertModel", 109482240, 28348416, 199, 9216},
    {"bert-base-uncased", "BertForPreTraining", 110106428, 28348416, 206, 9216},
    {"bert-base-uncased", "BertForMaskedLM", 109514298, 28348416, 202, 9216},
    {"bert-base-cased", NULL, 108310272, 28348416, 199, 9216},
    {"bert-large-uncased", NULL, 335141888, 100761600, 391, 24576},
    {"bert-large-uncased", "PreTraining", 336226108, 100761600, 398, 24576},
    {"roberta-30522", "RobertaForMaskedLM", 109514298, 28348416, 202, 9216},
    {"roberta-base", NULL, 124697433, 28348416, 202, 9216},
    {"albert-base-v2", NULL, 11683584, 2362368, 25, 768},
    {"gpt2", NULL, 124439808, 28348416, 148, 9216},
    {"gpt2-medium", NULL, 354823168, 100761600, 292, 24576},
    {"gpt2-large", NULL, 774030080, 236113920, 436, 46080},
    {"gpt2-xl", NULL, 1557611200, 491827200, 580, 76800},
    {"llama-7b", NULL, 6738415616, 2147483648, 291, 0},
    {"llama-13b", NULL, 13015864320, 4194304000, 363, 0},
    {"llama-2-70b", NULL, 68976648192, 12079595520, 723, 0},
    {"llama-3-8b", NULL, 8030261248, 1342177280, 291, 0},
    {"llama-3-70b", NULL, 70553706496, 12079595520, 723, 0},
    {"mistral-7b-v0.1", NULL, 7241732096, 1342177280, 291, 0},
    {"mistral-7b-v0.3", NULL, 7248023552, 1342177280, 291, 0},
    {"mistral-nemo-12b", NULL, 12247782400, 2097152000, 363, 0},
    {"qwen2-0.5b", NULL, 494032768, 44067840, 290, 0},
    {"qwen2-7b", NULL, 7615616512, 822212608, 339, 0},
    {"qwen3-0.6b", NULL, 596049920, 176167936, 310, 0},
    {"gemma-2b", NULL, 2506172416, 169869312, 164, 0},
    {"gemma-7b", NULL, 8537680896, 1409286144, 254, 0},
    {"gemma-2-2b", NULL, 2614341888, 368050176, 288, 0},
    {"t5-small", NULL, 60506624, 18874880, 131, 0},
    {"t5-base", NULL, 222903552, 84935424, 257, 0},
    {"t5-3b", NULL, 2851598336, 1207961600, 509, 0},
    {"t5-11b", NULL, 11307321344, 4831846400, 509, 0},
    {"vit", "ViTForImageClassification", 86567656, 28348416, 200, 9216},
    {"vit", "pooler", 86389248, 28348416, 200, 9216},
    {"transformer-base", NULL, 63045632, 18874368, 181, 0},
    {"transformer-big", NULL, 214171648, 75497472, 181, 0},
};

static void totals_are_the_published_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        built b;
        assert_ok(build(&b, (mha_model_spec){.preset = known[i].preset, .class_name = known[i].model_class}), b.error);
        mha_totals all = mha_params_totals(b.table, NULL), attention = mha_params_totals(b.table, "attention");
        size_t parameters = 0;
        for (size_t t = 0; t < mha_params_count(b.table); t++) {
            mha_tensor_info info = mha_tensor_info_of(mha_params_at(b.table, t));
            parameters += info.kind == MHA_TENSOR_PARAMETER && !info.alias_of;
        }
        if (all.parameters != known[i].total || attention.parameters != known[i].attention ||
            parameters != known[i].tensors || all.inert != known[i].inert)
            fail_msg("%s: %zu (attention %zu, %zu tensors, %zu inert)", known[i].preset, all.parameters,
                     attention.parameters, parameters, all.inert);
        unbuild(&b);
    }
}

static void the_largest_models_cost_little_in_every_dtype(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_F32, MHA_F64, MHA_F16, MHA_BF16};
    static const size_t widths[] = {4, 8, 2, 2};
    for (size_t d = 0; d < 4; d++) {
        built b;
        assert_ok(build(&b, (mha_model_spec){.preset = "llama-2-70b", .dtype = dtypes[d]}), b.error);
        assert_int_equal(mha_params_totals(b.table, NULL).parameter_bytes, 68976648192 * widths[d]);
        unbuild(&b);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (!sanitized)
        assert_true(usage.ru_maxrss < 64 * 1024); /* KiB */
}

/* ---------------------------------------------------------------- names, ties, buffers */

static void assert_row(const mha_params *table, const char *name, int rank, size_t a, size_t b, const char *alias_of,
                       mha_tensor_kind kind)
{
    mha_tensor *tensor = mha_params_find(table, name);
    if (!tensor)
        fail_msg("no row %s", name);
    mha_tensor_info info = mha_tensor_info_of(tensor);
    assert_int_equal(info.rank, rank);
    assert_int_equal(info.shape[0], a);
    if (rank > 1)
        assert_int_equal(info.shape[rank - 1], b);
    assert_int_equal(info.kind, kind);
    if (alias_of)
        assert_string_equal(info.alias_of, alias_of);
    else
        assert_null(info.alias_of);
}

static void rows_have_the_public_names_and_shapes(void **state)
{
    (void)state;
    built b;
    assert_ok(build(&b, (mha_model_spec){.preset = "gpt2"}), b.error);
    assert_row(b.table, "h.11.attn.c_attn.weight", 2, 768, 2304, NULL, MHA_TENSOR_PARAMETER);
    assert_row(b.table, "h.0.attn.bias", 4, 1, 1024, NULL, MHA_TENSOR_BUFFER);
    assert_row(b.table, "lm_head.weight", 2, 50257, 768, "wte.weight", MHA_TENSOR_PARAMETER);
    assert_null(mha_params_find(b.table, "h.12.ln_1.weight"));
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "llama-2-70b"}), b.error);
    assert_row(b.table, "model.layers.79.self_attn.k_proj.weight", 2, 1024, 8192, NULL, MHA_TENSOR_PARAMETER);
    assert_row(b.table, "model.layers.79.self_attn.rotary_emb.inv_freq", 1, 64, 0, NULL, MHA_TENSOR_BUFFER);
    assert_row(b.table, "lm_head.weight", 2, 32000, 8192, NULL, MHA_TENSOR_PARAMETER);
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "qwen3-0.6b"}), b.error);
    assert_row(b.table, "model.layers.27.self_attn.q_norm.weight", 1, 128, 0, NULL, MHA_TENSOR_PARAMETER);
    assert_row(b.table, "model.layers.27.self_attn.o_proj.weight", 2, 1024, 2048, NULL, MHA_TENSOR_PARAMETER);
    assert_row(b.table, "lm_head.weight", 2, 151936, 1024, "model.embed_tokens.weight", MHA_TENSOR_PARAMETER);
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "qwen2-0.5b"}), b.error);
    assert_row(b.table, "model.layers.23.self_attn.k_proj.bias", 1, 128, 0, NULL, MHA_TENSOR_PARAMETER);
    assert_null(mha_params_find(b.table, "model.layers.23.self_attn.o_proj.bias"));
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "t5-11b"}), b.error);
    assert_row(b.table, "decoder.block.23.layer.1.EncDecAttention.q.weight", 2, 16384, 1024, NULL,
               MHA_TENSOR_PARAMETER);
    assert_row(b.table, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 2, 32, 128, NULL,
               MHA_TENSOR_PARAMETER);
    assert_row(b.table, "decoder.embed_tokens.weight", 2, 32128, 1024, "shared.weight", MHA_TENSOR_PARAMETER);
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "albert", .class_name = "MaskedLM"}), b.error);
    assert_row(b.table, "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight", 2, 768, 768,
               NULL, MHA_TENSOR_PARAMETER);
    assert_row(b.table, "predictions.decoder.weight", 2, 30000, 128, "albert.embeddings.word_embeddings.weight",
               MHA_TENSOR_PARAMETER);
    mha_model_layer layer;
    assert_int_equal(mha_model_layer_count(b.model), 1);
    assert_true(mha_model_layer_at(b.model, 0, &layer));
    assert_int_equal(layer.uses, 12);
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "bert-base-uncased"}), b.error);
    assert_row(b.table, "bert.embeddings.position_ids", 2, 1, 512, NULL, MHA_TENSOR_BUFFER);
    assert_int_equal(mha_tensor_info_of(mha_params_find(b.table, "bert.embeddings.position_ids")).dtype, MHA_I64);
    mha_tensor_info bias = mha_tensor_info_of(mha_params_find(b.table, "bert.encoder.layer.0.attention.self.key.bias"));
    assert_int_equal(bias.inert_elements, 768);
    assert_true(strstr(bias.inert_why, "softmax"));
    unbuild(&b);
}

/* relative_key adds the same to a query's score with or without the key bias; relative_key_query does not. */
static void inert_elements_follow_the_rule(void **state)
{
    (void)state;
#define SIGLIP(width)                                                                                                  \
    "{\"model_type\": \"siglip\", \"text_config\": {\"hidden_size\": " #width                                          \
    ", \"num_attention_heads\": 4, \"num_hidden_layers\": 1}, \"vision_config\": {\"hidden_size\": 32, "               \
    "\"num_attention_heads\": 4, \"num_hidden_layers\": 1}}"
#define NOT_ROTATED(type, layers)                                                                                      \
    "{\"model_type\": \"" type "\", \"num_hidden_layers\": " #layers ", \"attention_bias\": true}"
    static const struct {
        const char *config;
        size_t inert, distances;
    } cases[] = {{"{\"model_type\": \"bert\", \"position_embedding_type\": \"absolute\"}", 9216, 0},
                 {"{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\"}", 9216, 1023 * 64},
                 {"{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key_query\"}", 0, 1023 * 64},
                 {"{\"model_type\": \"llama\", \"attention_bias\": true}", 0, 0},
                 {SIGLIP(64), 64 + 32 + 32, 0}, /* of the text, of the images, and of their head */
                 {SIGLIP(128), 128 + 32 + 32, 0},
                 {NOT_ROTATED("smollm3", 4), 512, 0}, /* each fourth layer */
                 {NOT_ROTATED("smollm3", 3), 0, 0},
                 {"{\"model_type\": \"vit\", \"qkv_bias\": false}", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        built b;
        assert_ok(build(&b, (mha_model_spec){.config = config_file(cases[i].config)}), b.error);
        assert_int_equal(mha_params_totals(b.table, NULL).inert, cases[i].inert);
        mha_tensor *distances =
            mha_params_find(b.table, "bert.encoder.layer.0.attention.self.distance_embedding.weight");
        assert_int_equal(distances ? mha_tensor_info_of(distances).elements : 0, cases[i].distances);
        unbuild(&b);
    }
}

static void each_attention_layer_has_its_configuration(void **state)
{
    (void)state;
    built b;
    mha_model_layer layer;
    assert_ok(build(&b, (mha_model_spec){.preset = "gemma-2b"}), b.error);
    assert_int_equal(mha_model_layer_count(b.model), 18);
    assert_true(mha_model_layer_at(b.model, 17, &layer));
    assert_string_equal(layer.prefix, "model.layers.17.self_attn");
    assert_int_equal(layer.config.d_k, 256);
    assert_int_equal(layer.config.kv_heads, 1);
    assert_int_equal(layer.config.d_out, 2048);
    assert_true(layer.causal);
    assert_false(mha_model_layer_at(b.model, 18, &layer));
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "transformer-base"}), b.error);
    assert_int_equal(mha_model_layer_count(b.model), 18);
    assert_true(mha_model_layer_at(b.model, 7, &layer));
    assert_string_equal(layer.prefix, "dec.1.self");
    assert_true(layer.causal);
    assert_true(mha_model_layer_at(b.model, 12, &layer));
    assert_string_equal(layer.prefix, "dec.0.cross");
    assert_false(layer.causal);
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "gemma-2-2b"}), b.error);
    const mha_model_facts *facts = mha_model_facts_of(b.model);
    assert_true(facts->semantics.softmax.softcap == 50 && facts->semantics.softmax.has_scale &&
                facts->semantics.softmax.scale == 1.0 / 16);
    assert_true(*facts->caveat);
    unbuild(&b);
}

/* A layer made from the model's configuration has as many elements as the model's rows say. */
static void layers_allocate_what_the_model_counts(void **state)
{
    (void)state;
    static const char *const presets[] = {"bert-base-uncased", "gpt2",     "vit",      "transformer-base", "qwen2-0.5b",
                                          "qwen3-0.6b",        "t5-small", "gemma-2b", "mistral-nemo-12b"};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        built b;
        assert_ok(build(&b, (mha_model_spec){.preset = presets[i]}), b.error);
        size_t sum = 0, in_table = mha_params_totals(b.table, "attention").parameters;
        mha_model_layer described;
        for (size_t n = 0; mha_model_layer_at(b.model, n, &described); n++) {
            mha_params *table;
            mha_layer *layer;
            assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
            assert_ok(mha_layer_create(&described.config, table, NULL, &layer, &b.error), b.error);
            sum += mha_params_totals(table, NULL).parameters;
            mha_layer_destroy(layer);
            mha_params_destroy(table);
        }
        if (sum != in_table)
            fail_msg("%s: layers have %zu, the model %zu", presets[i], sum, in_table);
        unbuild(&b);
    }
}

/* ---------------------------------------------------------------- heads */

static void head_counts_change_nothing_where_d_k_follows(void **state)
{
    (void)state;
    static const size_t heads[] = {1, 2, 3, 4, 6, 8, 12};
    built b;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        assert_ok(build(&b, (mha_model_spec){.preset = "roberta-30522", .n_heads = heads[i]}), b.error);
        assert_int_equal(mha_params_totals(b.table, NULL).parameters, 109514298);
        assert_int_equal(mha_model_facts_of(b.model)->config.d_k, 768 / heads[i]);
        unbuild(&b);
    }
    refuse((mha_model_spec){.preset = "roberta-base", .n_heads = 5}, MHA_INVALID, "768", "5", "");
    assert_ok(build(&b, (mha_model_spec){.preset = "t5-small", .n_heads = 4}), b.error); /* d_kv is fixed */
    assert_int_equal(mha_params_totals(b.table, "attention").parameters, 18874368 / 2 + 2 * 32 * 4);
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.preset = "llama-2-70b", .kv_heads = 64}), b.error);
    assert_int_equal(mha_params_totals(b.table, "attention").parameters, 21474836480);
    unbuild(&b);
    const size_t beyond = ((size_t)1 << 40) + 1;
    refuse((mha_model_spec){.preset = "llama-3-8b", .n_heads = beyond}, MHA_INVALID, "heads", "2^40",
           "1099511627777 and 0");
    refuse((mha_model_spec){.preset = "llama-3-8b", .kv_heads = beyond}, MHA_INVALID, "heads", "2^40",
           "0 and 1099511627777");
    refuse((mha_model_spec){.preset = "llama-3-8b", .n_heads = 4}, MHA_INVALID, "kv_heads", "found 8", "");
}

/* ---------------------------------------------------------------- config.json */

static void missing_keys_take_the_librarys_defaults_and_are_told(void **state)
{
    (void)state;
    built b;
    const mha_assumption *assumed;
    assert_ok(build(&b, (mha_model_spec){.config = config_file("{\"model_type\": \"bert\"}")}), b.error);
    assert_int_equal(mha_params_totals(b.table, NULL).parameters, 109482240);
    assert_string_equal(mha_model_class(b.model), "BertModel");
    size_t n = mha_model_assumptions(b.model, &assumed);
    assert_int_equal(n, 9);
    assert_string_equal(assumed[0].key, "vocab_size");
    assert_int_equal(assumed[0].value, 30522);
    unbuild(&b);
    static const struct {
        const char *type;
        size_t total;
    } defaults[] = {{"roberta", 124644864}, {"gpt2", 124439808}, {"llama", 6738415616}, {"mistral", 7241732096},
                    {"gemma", 8537680896},  {"t5", 60506624},    {"vit", 85800194},     {"transformer", 63045632}};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", defaults[i].type);
        assert_ok(build(&b, (mha_model_spec){.config = config_file(text)}), b.error);
        if (mha_params_totals(b.table, NULL).parameters != defaults[i].total)
            fail_msg("%s: %zu", defaults[i].type, mha_params_totals(b.table, NULL).parameters);
        unbuild(&b);
    }
    /* How many classes there are: the entries of id2label. */
    assert_ok(build(&b, (mha_model_spec){.config = config_file("{\"model_type\": \"bert\", \"architectures\": "
                                                               "[\"BertForTokenClassification\"], \"id2label\": "
                                                               "{\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}}")}),
              b.error);
    assert_row(b.table, "classifier.weight", 2, 3, 768, NULL, MHA_TENSOR_PARAMETER);
    unbuild(&b);
}

static void relatives_bring_their_own_class_names(void **state)
{
    (void)state;
    static const char *const types[][2] = {
        {"roberta", "Roberta"}, {"xlm-roberta", "XLMRoberta"}, {"camembert", "Camembert"}};
    size_t parameters[3];
    for (size_t i = 0; i < 3; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"vocab_size\": 50265, \"architectures\": [\"%sForMaskedLM\"]}", types[i][0],
                 types[i][1]);
        built b;
        assert_ok(build(&b, (mha_model_spec){.config = config_file(text)}), b.error);
        assert_string_equal(mha_model_class(b.model), "RobertaForMaskedLM");
        parameters[i] = mha_params_totals(b.table, NULL).parameters;
        unbuild(&b);
    }
    assert_true(parameters[0] == parameters[1] && parameters[0] == parameters[2]);
}

static void a_preset_that_is_not_there_names_the_nearest(void **state)
{
    (void)state;
    static const char *const asked[][2] = {{"gpt-2", "did you mean gpt2?"},
                                           {"GPT2", "did you mean gpt2?"},
                                           {"BERT base cased", "did you mean bert-base-cased?"},
                                           {"llama3", "expected one of llama-3-70b, llama-3-8b (--preset list"},
                                           {"nothing like it", "--preset list"}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        built b;
        assert_refused(build(&b, (mha_model_spec){.preset = asked[i][0]}), MHA_NOT_FOUND, b.error, asked[i][0],
                       asked[i][1]);
        assert_true(i < 3 || !strstr(b.error.message, "did you mean"));
        unbuild(&b);
    }
}

static void what_is_wrong_in_a_config_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mha_status status;
        const char *a, *b;
    } cases[] = {
        {"{\"model_type\": \"mamba\"}", MHA_UNSUPPORTED, "'mamba'", "mha help architectures"},
        {"{\"model_type\": \"lama\"}", MHA_UNSUPPORTED, "'lama'", "the nearest is llama;"},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\"}}", MHA_UNSUPPORTED,
         "'gemma3'", "text_config is described (gemma3_text): give that object;"},
        {"{\"model_type\": \"phi9\"}", MHA_UNSUPPORTED, "found 'phi9'", "mha params --weights FILE"},
        {"{}", MHA_UNSUPPORTED, "model_type", "found none; "},
        {"{\"architectures\": [\"LlamaForCausalLM\"]}", MHA_UNSUPPORTED, "found none", "'LlamaForCausalLM'"},
        {"{\"model_type\": \"bert\", \"hidden_size\": -1}", MHA_INVALID, "hidden_size", "found -1"},
        {"{\"model_type\": \"bert\", \"hidden_size\": \"768\"}", MHA_INVALID, "hidden_size", "text"},
        {"{\"model_type\": \"bert\", \"hidden_size\": 768.5}", MHA_INVALID, "hidden_size", "real"},
        {"{\"model_type\": \"bert\", \"num_attention_heads\": 0}", MHA_INVALID, "num_attention_heads", "at least 1"},
        {"{\"model_type\": \"bert\", \"num_attention_heads\": 11}", MHA_INVALID, "768", "11"},
        {"{\"model_type\": \"bert\", \"hidden_size\": 0}", MHA_INVALID, "hidden_size", "expected at least 1, found 0"},
        {"{\"model_type\": \"bert\", \"hidden_size\": 0, \"num_attention_heads\": 8}", MHA_INVALID, "hidden_size",
         "at least 1"},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 0}", MHA_INVALID, "num_key_value_heads", "at least 1"},
        {"{\"model_type\": \"llama\", \"head_dim\": 0}", MHA_INVALID, "head_dim", "at least 1"},
        {"{\"model_type\": \"vit\", \"patch_size\": 0}", MHA_INVALID, "patch_size", "at least 1"},
        {"{\"model_type\": \"vit\", \"image_size\": [224, 224]}", MHA_INVALID, "image_size", "found a list"},
        {"{\"model_type\": \"llama\", \"num_attention_heads\": {}}", MHA_INVALID, "num_attention_heads",
         "found an object"},
        {"{\"model_type\": \"t5\", \"feed_forward_proj\": 3}", MHA_INVALID, "feed_forward_proj", "expected text"},
        {"{\"model_type\": \"llama\", \"rope_theta\": \"much\"}", MHA_INVALID, "rope_theta", "found text"},
        {"{\"model_type\": \"llama\", \"rope_theta\": 0}", MHA_INVALID, "rope_theta", "above 0, found 0"},
        {"{\"model_type\": \"llama\", \"rms_norm_eps\": -1e-6}", MHA_INVALID, "rms_norm_eps",
         "at least 0, found -1e-06"},
        {"{\"model_type\": \"gemma2\", \"query_pre_attn_scalar\": 0}", MHA_INVALID, "query_pre_attn_scalar", "above 0"},
        {"{\"model_type\": \"bert\", \"add_cross_attention\": true}", MHA_UNSUPPORTED, "cross-attention", ""},
        {"{\"model_type\": \"bert\", \"architectures\": [\"BertForFun\"]}", MHA_INVALID, "BertForMaskedLM",
         "'BertForFun'"},
        {"{\"model_type\": \"bert\", \"vocab_size\": 1099511627777}", MHA_INVALID, "vocab_size", "2^40"},
        {"{\"model_type\": \"bert\", \"vocab_size\": 1099511627776, \"hidden_size\": 1099511627776}", MHA_INVALID, "",
         ""},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 5}", MHA_INVALID, "kv_heads", "found 5"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1099511627776}", MHA_INVALID, "num_hidden_layers",
         "found 1099511627776"},
        {"{\"model_type\": \"bert\", \"model_type\": \"gpt2\"}", MHA_FORMAT, "duplicate", ""},
        {"{\"model_type\": \"bert\"", MHA_FORMAT, "line 1", ""},
        {"[1]", MHA_FORMAT, "object", ""},
        {"{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\", \"max_position_embeddings\": 0}",
         MHA_INVALID, "distance_embedding", "found -1"},
        {"{\"model_type\": 7}", MHA_UNSUPPORTED, "model_type", "found none"},
        {"{\"model_type\": \"\"}", MHA_UNSUPPORTED, "model_type", "found none"},
        {"{\"model_type\": \"roberta xlm\"}", MHA_UNSUPPORTED, "model_type", "found 'roberta xlm'"},
        {"{\"model_type\": \"ert\"}", MHA_UNSUPPORTED, "model_type", "found 'ert'"},
        {"{\"model_type\": \"rober\"}", MHA_UNSUPPORTED, "model_type", "found 'rober'"},
        {"{\"model_type\": \"bert\", \"vocab_size\": 0.5}", MHA_INVALID, "vocab_size", "real"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse((mha_model_spec){.config = config_file(cases[i].text)}, cases[i].status, cases[i].a, cases[i].b, "");
    static const char zero[] =
        "{\"model_type\": \"bert\"}\0more"; /* what stands behind a zero byte is not overlooked */
    const char *with_zero = scratch_write("config.json", zero, sizeof zero - 1);
    refuse((mha_model_spec){.config = with_zero}, MHA_FORMAT, "config.json", "line 1", "");
    refuse((mha_model_spec){.preset = "no model"}, MHA_NOT_FOUND, "'no model'", "bert-base-uncased", "");
    refuse((mha_model_spec){.preset = "bert-base"}, MHA_NOT_FOUND, "bert-base-cased, bert-base-un", "", "");
    refuse((mha_model_spec){.preset = "gpt2", .dtype = MHA_I8}, MHA_INVALID, "dtype", "I8", "");
    refuse((mha_model_spec){0}, MHA_INVALID, "preset", "neither", "");
    refuse((mha_model_spec){.preset = "gpt2", .config = "config.json"}, MHA_INVALID, "preset", "both", "");
    refuse((mha_model_spec){.preset = "bert-base-uncased", .n_heads = ((size_t)1 << 40) + 1}, MHA_INVALID, "heads",
           "2^40", "");
    refuse((mha_model_spec){.preset = "bert-base-uncased", .kv_heads = ((size_t)1 << 40) + 1}, MHA_INVALID, "heads",
           "2^40", "");
    refuse((mha_model_spec){.config = scratch_path("none.json")}, MHA_NOT_FOUND, "No such file", "", "");
}

/* A class is asked for by its name in any case, by what follows "For", or by a part. */
static void a_class_is_found_by_parts_of_its_name(void **state)
{
    (void)state;
    static const char *const asked[] = {"BertForMaskedLM", "bertformaskedlm", "MaskedLM", "maskedlm"};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        built b;
        assert_ok(build(&b, (mha_model_spec){.preset = "bert-base-uncased", .class_name = asked[i]}), b.error);
        assert_string_equal(mha_model_class(b.model), "BertForMaskedLM");
        unbuild(&b);
    }
    static const char *const none[] = {"", "Masked", "ForMaskedLM", "BertFor", "pool"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        refuse((mha_model_spec){.preset = "bert-base-uncased", .class_name = none[i]}, MHA_INVALID, "class",
               "BertForMaskedLM", "");
    built b; /* what is listed is followed where it is text */
    assert_ok(build(&b, (mha_model_spec){.config = config_file("{\"model_type\": \"bert\", \"architectures\": [7]}")}),
              b.error);
    assert_string_equal(mha_model_class(b.model), "BertModel");
    unbuild(&b);
    assert_ok(build(&b, (mha_model_spec){.config = config_file("{\"model_type\": \"bert\", \"architectures\": []}")}),
              b.error);
    assert_string_equal(mha_model_class(b.model), "BertModel");
    unbuild(&b);
}

/* Numbers that are not whole have their default where nothing is said; 0 turns off what can be off. */
static void real_numbers_that_are_missing_have_their_default(void **state)
{
    (void)state;
    static const char *const theta[] = {"", ",\"rope_theta\": null", ",\"rope_theta\": 500000", ",\"rms_norm_eps\": 0"};
    for (size_t i = 0; i < sizeof theta / sizeof *theta; i++) {
        built b;
        char text[100];
        snprintf(text, sizeof text, "{\"model_type\": \"llama\"%s}", theta[i]);
        assert_ok(build(&b, (mha_model_spec){.config = config_file(text)}), b.error);
        assert_true(mha_model_facts_of(b.model)->semantics.qkv.rope.base == (i == 2 ? 500000 : 10000));
        unbuild(&b);
    }
    built b;
    assert_ok(build(&b, (mha_model_spec){.config = config_file(
                                             "{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": 0}")}),
              b.error);
    assert_true(mha_model_facts_of(b.model)->semantics.softmax.softcap == 0);
    unbuild(&b);
}

static mha_status make_model(mha_params *table, const void *config, mha_error *error)
{
    mha_model *model = NULL;
    const mha_status status = mha_model_create(&(mha_model_spec){.config = config}, table, &model, error);
    mha_model_destroy(model);
    return status;
}

static void every_failing_allocation_leaves_no_row(void **state)
{
    (void)state;
    const char *config =
        config_file("{\"model_type\": \"multihead_attention\", \"d_model\": 8, \"num_attention_heads\": 2}");
    assert_true(counted_until_it_works(make_model, config) >= 8);
}

/* ---------------------------------------------------------------- checkpoints */

typedef struct tally {
    size_t count[5];
    char last[5][200];
} tally;

static void count_finding(void *context, const mha_finding *finding)
{
    tally *t = context;
    t->count[finding->kind]++;
    snprintf(t->last[finding->kind], sizeof t->last[0], "%s", finding->name);
    assert_string_not_equal(mha_finding_name(finding->kind), "?");
}

/* A GPT-2 of one block: as its checkpoint should be, then with one thing wrong at a time. */
static void a_file_is_held_against_its_config(void **state)
{
    (void)state;
    const char *config = config_file("{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_head\": 2, \"n_layer\": 1, "
                                     "\"vocab_size\": 11, \"n_positions\": 4}");
    static const struct {
        const char *name;
        int rank;
        size_t shape[4];
    } tensors[] = {{"wte.weight", 2, {11, 8}},
                   {"wpe.weight", 2, {4, 8}},
                   {"h.0.ln_1.weight", 1, {8}},
                   {"h.0.ln_1.bias", 1, {8}},
                   {"h.0.attn.bias", 4, {1, 1, 4, 4}},
                   {"h.0.attn.c_attn.weight", 2, {8, 24}},
                   {"h.0.attn.c_attn.bias", 1, {24}},
                   {"h.0.attn.c_proj.weight", 2, {8, 8}},
                   {"h.0.attn.c_proj.bias", 1, {8}},
                   {"h.0.ln_2.weight", 1, {8}},
                   {"h.0.ln_2.bias", 1, {8}},
                   {"h.0.mlp.c_fc.weight", 2, {8, 32}},
                   {"h.0.mlp.c_fc.bias", 1, {32}},
                   {"h.0.mlp.c_proj.weight", 2, {32, 8}},
                   {"h.0.mlp.c_proj.bias", 1, {8}},
                   {"ln_f.weight", 1, {8}},
                   {"ln_f.bias", 1, {8}},
                   {"lm_head.weight", 2, {11, 8}}};
    enum { N = sizeof tensors / sizeof *tensors };
    static float zeros[256];
    for (int wrong = 0; wrong < 6; wrong++) {
        built b;
        mha_writer *writer;
        mha_file *file;
        tally t = {0};
        const char *path = scratch_path("gpt2.safetensors");
        assert_ok(build(&b, (mha_model_spec){.config = config}), b.error);
        assert_ok(mha_writer_create(path, &writer, &b.error), b.error);
        for (size_t i = 0; i < N; i++) {
            char name[100];
            size_t shape[4];
            memcpy(shape, tensors[i].shape, sizeof shape);
            if (wrong == 1 && i == 7) /* the first wrong thing: a tensor is missing */
                continue;
            if (wrong == 2 && i == 5)
                shape[0] = 24, shape[1] = 8;
            if (wrong == 4 && i == 5)
                shape[0] *= shape[1];
            snprintf(name, sizeof name, "%s%s", i < 17 ? "transformer." : "", tensors[i].name);
            mha_view view = mha_view_of(zeros, MHA_F32, tensors[i].rank - (wrong == 4 && i == 5), shape);
            assert_ok(mha_writer_add(writer, name, &view, &b.error), b.error);
        }
        mha_view view = mha_view_of(zeros, MHA_F32, 1, (size_t[]){5});
        if (wrong == 3)
            assert_ok(mha_writer_add(writer, "transformer.h.1.ln_1.weight", &view, &b.error), b.error);
        if (wrong == 5) { /* a name longer than any of the model's */
            char name[400];
            memset(name, 'x', sizeof name - 1);
            name[sizeof name - 1] = '\0';
            assert_ok(mha_writer_add(writer, name, &view, &b.error), b.error);
        }
        assert_ok(mha_writer_commit(writer, &b.error), b.error);
        mha_writer_destroy(writer);
        assert_ok(mha_file_open(path, &file, &b.error), b.error);
        assert_int_equal(mha_model_check_file(b.model, file, count_finding, &t), wrong > 0);
        assert_int_equal(t.count[MHA_FINDING_TIED], 1);
        assert_string_equal(t.last[MHA_FINDING_TIED], "lm_head.weight");
        assert_int_equal(t.count[MHA_FINDING_BUFFER], 1);
        assert_int_equal(t.count[MHA_FINDING_MISSING], wrong == 1);
        assert_int_equal(t.count[MHA_FINDING_MISSHAPEN], wrong == 2 || wrong == 4);
        assert_int_equal(t.count[MHA_FINDING_EXTRA], wrong == 3 || wrong == 5);
        mha_params *table;
        mha_file_totals totals;
        memset(&t, 0, sizeof t);
        assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
        assert_ok(mha_file_list_params(file, table, count_finding, &t, &totals, &b.error), b.error);
        assert_int_equal(totals.buffers, 16);
        assert_int_equal(totals.parameters - totals.unique,
                         88); /* both hold zeros: the head is a copy of the embedding */
        assert_int_equal(totals.attention, wrong == 1 ? 0 : 24 * 8 + 24 + 8 * 8 + 8);
        assert_int_equal(mha_params_totals(table, NULL).parameters, totals.parameters);
        assert_int_equal(mha_params_totals(table, "attention").parameters, totals.attention);
        mha_params_destroy(table);
        mha_file_close(file);
        unbuild(&b);
    }
}

/* A file that has one part of its model's names spelled otherwise, or lacks what the library makes, is no other. */
static void spellings_of_other_files_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *config, *from, *to, *without;
        size_t wrong;
    } rows[] = {
        {"\"bert\"", "LayerNorm.weight", "LayerNorm.gamma", NULL, 0},
        {"\"bert\"", "LayerNorm.bias", "LayerNorm.beta", NULL, 0},
        {"\"bert\"", "LayerNorm.bias", "LayerNorm.delta", NULL, 2 * 5},
        {"\"esm\"", "LayerNorm.weight", "LayerNorm.gamma", NULL, 0},
        {"\"esm\"", "layer.0.attention.self.rotary", "layer.*.attention.self.rotary", NULL, 0},
        {"\"esm\", \"position_embedding_type\": \"rotary\"", "", "", NULL, 0},
        {"\"vit_mae\", \"decoder_num_hidden_layers\": 1", "decoder.decoder_layers.", "decoder.decoder_encoder.layer.",
         NULL, 0},
        {"\"marian\"", "", "", "embed_positions.weight", 0},
        {"\"pegasus\"", "", "", "embed_positions.weight", 2},
        {"\"llama\"", "model.layers.1.self_attn.q_proj", "blk.1.attn_q", NULL, 0},
        {"\"llama\"", "model.layers.1.post_attention_layernorm", "blk.1.ffn_norm", NULL, 0},
        {"\"llama\"", "model.layers.1.self_attn.q_proj", "blk.2.attn_q", NULL, 2},
        {"\"gemma2\"", "model.layers.0.pre_feedforward_layernorm", "blk.0.ffn_norm", NULL, 0},
        {"\"gpt_oss\"", "model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight", NULL, 0},
        {"\"starcoder2\"", "model.layers.0.mlp.c_fc", "blk.0.ffn_up", NULL, 0},
        {"\"phi\"", "model.final_layernorm", "output_norm", NULL, 0},
        {"\"glm4\"", "model.layers.0.post_self_attn_layernorm", "blk.0.post_attention_norm", NULL, 0},
    };
    static float zeros[40000];
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        char text[600];
        built b;
        mha_writer *writer;
        mha_file *file;
        tally t = {0};
        snprintf(text, sizeof text,
                 "{\"model_type\": %s, \"num_hidden_layers\": 2, \"decoder_layers\": 1, \"encoder_layers\": 1, "
                 "\"hidden_size\": 8, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 4, "
                 "\"vocab_size\": 9, \"intermediate_size\": 4, \"d_model\": 8, \"num_local_experts\": 2, "
                 "\"decoder_hidden_size\": 8, \"decoder_num_attention_heads\": 2, "
                 "\"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, \"max_position_embeddings\": 16}",
                 rows[row].config);
        const char *path = scratch_path("spelled.safetensors");
        assert_ok(build_text(&b, text, NULL, NULL), b.error);
        assert_ok(mha_writer_create(path, &writer, &b.error), b.error);
        for (size_t i = 0; i < mha_params_count(b.table); i++) {
            const mha_tensor_info info = mha_tensor_info_of(mha_params_at(b.table, i));
            const char *at = *rows[row].from ? strstr(info.name, rows[row].from) : NULL;
            char name[300];
            if (info.alias_of || (rows[row].without && strstr(info.name, rows[row].without)))
                continue;
            assert_true(info.elements <= sizeof zeros / sizeof *zeros);
            const mha_view view = mha_view_of(zeros, MHA_F32, info.rank, info.shape);
            snprintf(name, sizeof name, "%s", info.name);
            if (at)
                snprintf(name, sizeof name, "%.*s%s%s", (int)(at - info.name), info.name, rows[row].to,
                         at + strlen(rows[row].from));
            assert_ok(mha_writer_add(writer, name, &view, &b.error), b.error);
        }
        assert_ok(mha_writer_commit(writer, &b.error), b.error);
        mha_writer_destroy(writer);
        assert_ok(mha_file_open(path, &file, &b.error), b.error);
        const size_t wrong = mha_model_check_file(b.model, file, count_finding, &t);
        if (wrong != rows[row].wrong)
            fail_msg("%s, %s: %zu missing (%s), %zu extra (%s)", rows[row].config, rows[row].to, t.count[0], t.last[0],
                     t.count[1], t.last[1]);
        mha_file_close(file);
        unbuild(&b);
    }
}

/* expected.json of a directory of models, or skips. */
static json_t *expected_of(const char *model, char directory[600])
{
    const char *models = getenv("MODELS_DIR");
    char path[700];
    if (!models || !*models)
        skip_because("MODELS_DIR names no folder of trained models");
    snprintf(directory, 600, "%s/%s", models, model);
    snprintf(path, sizeof path, "%s/expected.json", directory);
    json_t *expected = json_load_file(path, 0, NULL);
    assert_non_null(expected);
    return expected;
}

static void public_files_have_their_recorded_totals(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt-nano-sort",    "rxnmapper-albert", "stories260k",  "stories260k-gguf",
                                         "loader-tiny-bert", "loader-model2vec", "loader-retsim"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char directory[600], path[800];
        json_t *expected = expected_of(models[m], directory), *entry;
        const char *name;
        json_object_foreach(json_object_get(expected, "files"), name, entry)
        {
            if (!json_object_get(entry, "tensors") || strstr(name, ".bin"))
                continue;
            mha_file *file;
            mha_params *table;
            mha_file_totals totals;
            mha_error error;
            tally t = {0};
            snprintf(path, sizeof path, "%s/%s", directory, name);
            assert_ok(mha_file_open(path, &file, &error), error);
            assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
            assert_ok(mha_file_list_params(file, table, count_finding, &t, &totals, &error), error);
            size_t elements = (size_t)json_integer_value(json_object_get(entry, "total_elements"));
            size_t parameters = (size_t)json_integer_value(json_object_get(entry, "total_params"));
            size_t buffers = (size_t)json_integer_value(json_object_get(entry, "buffer_elements"));
            size_t attention = (size_t)json_integer_value(json_object_get(entry, "attention_params"));
            if (totals.elements != elements || totals.parameters != parameters || totals.buffers != buffers ||
                totals.attention != attention)
                fail_msg("%s: %zu elements, %zu parameters, %zu in attention, %zu in buffers", name, totals.elements,
                         totals.parameters, totals.attention, totals.buffers);
            assert_int_equal(totals.tensors, json_integer_value(json_object_get(entry, "tensor_count")));
            if (strcmp(models[m], "stories260k-gguf") == 0)
                assert_int_equal(totals.unique, 292800 - 512 * 64);
            else if (strcmp(models[m], "rxnmapper-albert") == 0 && strcmp(name, "model.safetensors") == 0)
                assert_int_equal(totals.unique, 877598 - 591 * 128 - (t.count[MHA_FINDING_TIED] > 1 ? 591 : 0));
            mha_params_destroy(table);
            mha_file_close(file);
        }
        json_decref(expected);
    }
}

static void public_files_match_their_configs(void **state)
{
    (void)state;
    static const struct {
        const char *config, *file, *class_name;
        size_t wrong;
    } pairs[] = {{"rxnmapper-albert/config.json", "rxnmapper-albert/model.safetensors", NULL,
                  2}, /* a pooler no class asks for */
                 {"loader-tiny-bert/config.json", "loader-tiny-bert/model.safetensors", NULL, 2}}; /* no pooler */
    for (size_t i = 0; i < 2; i++) {
        char config[600], path[600];
        const char *models = getenv("MODELS_DIR");
        if (!models || !*models)
            skip_because("MODELS_DIR names no folder of trained models");
        built b;
        mha_file *file;
        tally t = {0};
        snprintf(config, sizeof config, "%s/%s", models, pairs[i].config);
        snprintf(path, sizeof path, "%s/%s", models, pairs[i].file);
        assert_ok(build(&b, (mha_model_spec){.config = config, .class_name = pairs[i].class_name}), b.error);
        assert_ok(mha_file_open(path, &file, &b.error), b.error);
        size_t wrong = mha_model_check_file(b.model, file, count_finding, &t);
        if (wrong != pairs[i].wrong)
            fail_msg("%s: %zu missing (%s), %zu extra (%s), %zu misshapen (%s)", path, t.count[0], t.last[0],
                     t.count[1], t.last[1], t.count[2], t.last[2]);
        mha_file_close(file);
        unbuild(&b);
    }
}

static void public_files_are_what_was_recorded(void **state)
{
    public_files_have_their_recorded_totals(state);
    public_files_match_their_configs(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_the_published_ones),
        cmocka_unit_test(frozen_parameters_are_not_trained),
        cmocka_unit_test(the_largest_models_cost_little_in_every_dtype),
        cmocka_unit_test(rows_have_the_public_names_and_shapes),
        cmocka_unit_test(inert_elements_follow_the_rule),
        cmocka_unit_test(each_attention_layer_has_its_configuration),
        cmocka_unit_test(layers_allocate_what_the_model_counts),
        cmocka_unit_test(head_counts_change_nothing_where_d_k_follows),
        cmocka_unit_test(missing_keys_take_the_librarys_defaults_and_are_told),
        cmocka_unit_test(relatives_bring_their_own_class_names),
        cmocka_unit_test(a_preset_that_is_not_there_names_the_nearest),
        cmocka_unit_test(what_is_wrong_in_a_config_is_named),
        cmocka_unit_test(a_class_is_found_by_parts_of_its_name),
        cmocka_unit_test(real_numbers_that_are_missing_have_their_default),
        cmocka_unit_test(every_failing_allocation_leaves_no_row),
        cmocka_unit_test(a_file_is_held_against_its_config),
        cmocka_unit_test(spellings_of_other_files_are_known),
        cmocka_unit_test(null_has_the_library_s_meaning),
        cmocka_unit_test(public_files_are_what_was_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
