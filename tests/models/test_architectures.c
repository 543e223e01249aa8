/* Descriptions of architectures: those that are built in, and those that a user writes. */
#include "support/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/scratch.h"

#define CONFIG                                                                                                         \
    "{\"model_type\": \"mine\", \"hidden_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"          \
    " \"num_hidden_layers\": 3, \"vocab_size\": 100, \"ffn_dim\": 128,"                                 \
    " \"tie_word_embeddings\": true, \"ids\": [1, \"a\"], \"part\": 0.5}"

static const char *written(const char *name, const char *text) { return scratch_write(name, text, strlen(text)); }

static mha_status given(built *b, const char *config, const char *description)
{
    return build_text(b, config, NULL, description);
}

/* Each is read with little more than its name, so from its own defaults. */
static void each_that_is_built_in_is_whole(void **state)
{
    (void)state;
    size_t count = 0;
    for (; mha_architecture_at(count); count++) {
        char config[160];
        built b;
        snprintf(config, sizeof config, "{\"model_type\": \"%s\", \"num_hidden_layers\": 5}",
                 mha_architecture_at(count));
        const mha_status status = given(&b, config, NULL);
        if (status != MHA_OK)
            fail_msg("%s: %s: %s", mha_architecture_at(count), b.error.name, b.error.message);
        assert_true(mha_params_totals(b.table, NULL).parameters > 0);
        assert_true(mha_params_totals(b.table, "attention").parameters > 0);
        assert_true(mha_model_layer_count(b.model) > 0);
        assert_true(*mha_model_title(b.model));
        unbuild(&b);
    }
    assert_true(count >= 16);
}

/* Well-known models, and configurations that say nothing but their type, have as many parameters as transformers counts
 * (vectors/record_architectures.py; peers/architectures_peer.py compares names, shapes and ties as well). */
static void counts_are_those_of_the_library(void **state)
{
    (void)state;
    char line[1000];
    size_t lines = 0;
    FILE *recorded = fopen("tests/vectors/architectures.txt", "r");
    assert_non_null(recorded);
    for (; fgets(line, sizeof line, recorded); lines++) {
        char *count = strchr(line, '\t') + 1;
        built b;
        assert_ok(given(&b, strchr(count, '\t') + 1, NULL), b.error);
        if (mha_params_totals(b.table, NULL).parameters != strtoull(count, NULL, 10))
            fail_msg("found %zu for %s", (size_t)mha_params_totals(b.table, NULL).parameters, line);
        unbuild(&b);
    }
    fclose(recorded);
    assert_true(lines > 100);
}

/* Newer libraries write the base of the rotation inside an object of its own. */
static void rotation_is_read_where_it_stands(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        double base;
        bool scaled;
    } cases[] = {
        {"", 10000, false},
        {", \"rope_theta\": 5e5", 5e5, false},
        {", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"default\"}", 5e5, false},
        {", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"linear\", \"factor\": 2}", 5e5, true},
        {", \"rope_parameters\": null", 10000, false},
        {", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", 10000, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[200];
        built b;
        snprintf(config, sizeof config, "{\"model_type\": \"llama\", \"num_hidden_layers\": 1%s}", cases[i].more);
        assert_ok(given(&b, config, NULL), b.error);
        const mha_model_facts *facts = mha_model_facts_of(b.model);
        assert_true(facts->semantics.qkv.rope.base == cases[i].base);
        assert_int_equal(facts->rope_scaling.kind == MHA_ROPE_LINEAR, cases[i].scaled);
        unbuild(&b);
    }
}

/* Everything a description can say, in numbers worked out by hand. */
static void one_from_nothing_counts_what_it_says(void **state)
{
    (void)state;
    built b;
    assert_ok(given(&b, "{\"model_type\": \"odd\", \"width\": 6, \"deep\": 2, \"kind\": \"a gated one\"}",
                    "{\"title\": \"Odd\", \"model_prefix\": \"m.\","
                    " \"symbols\": {\"d_model\": {\"key\": \"hidden width\", \"default\": 4}, \"h\": {\"value\": 2},"
                    "  \"h_kv\": {\"value\": \"h\"}, \"d_k\": {\"value\": \"d_model/h\"},"
                    "  \"L\": {\"key\": \"deep\", \"default\": 1}, \"tied\": {\"value\": true},"
                    "  \"gated\": {\"key\": \"kind\", \"contains\": \"gated\", \"default\": 0}},"
                    " \"numbers\": {\"norm_eps\": {\"value\": 0.5}}, \"classes\": {\"Odd\": \"lm\", \"Bare\": \"\"},"
                    " \"tensors\": {"
                    "  \"first\": {\"rows\": ["
                    "   {\"name\": \"{model}e\", \"shape\": \"10, d_model\","
                    "    \"group\": \"embedding\", \"role\": \"e\"},"
                    "   {\"name\": \"p\", \"shape\": \"7\", \"group\": \"embedding\", \"role\": \"p\","
                    "    \"buffer\": \"I64\"}]},"
                    "  \"blocks\": {\"blocks\": \"L\", \"inner\": 2, \"prefix\": \"{model}{i}.{j}.\", \"rows\": ["
                    "   {\"name\": \"w\", \"shape\": \"d_model, 3\", \"group\": \"attention\", \"role\": \"W_Q\"},"
                    "   {\"name\": \"g\", \"shape\": \"3\", \"group\": \"ffn\", \"role\": \"g\", \"when\": \"gated\"},"
                    "   {\"name\": \"no\", \"shape\": \"3\", \"group\": \"ffn\", \"role\": \"g\","
                    "    \"when\": \"!gated\"}]},"
                    "  \"last\": {\"rows\": ["
                    "   {\"name\": \"out\", \"shape\": \"10, d_model\", \"group\": \"head\", \"role\": \"out\","
                    "    \"when\": \"lm\", \"same_as\": \"{model}e\", \"tied\": \"tied\"}]}},"
                    " \"attention\": [{\"blocks\": \"L\", \"inner\": 2, \"prefix\": \"{model}{i}.{j}\","
                    " \"causal\": true}]}"),
              b.error);
    static const char *const names[] = {"m.e",     "p",       "m.0.0.w", "m.0.0.g", "m.0.1.w", "m.0.1.g",
                                        "m.1.0.w", "m.1.0.g", "m.1.1.w", "m.1.1.g", "out"};
    assert_int_equal(mha_params_count(b.table), 11);
    for (size_t i = 0; i < 11; i++)
        assert_string_equal(mha_tensor_info_of(mha_params_at(b.table, i)).name, names[i]);
    const mha_totals totals = mha_params_totals(b.table, NULL);
    assert_int_equal(totals.parameters, 10 * 6 + 4 * (6 * 3 + 3));
    assert_int_equal(totals.buffers, 7);
    mha_model_layer layer;
    assert_int_equal(mha_model_layer_count(b.model), 4);
    assert_true(mha_model_layer_at(b.model, 3, &layer));
    assert_string_equal(layer.prefix, "m.1.1");
    assert_true(layer.causal && layer.config.d_k == 3);
    assert_true(mha_model_facts_of(b.model)->semantics.qkv.norm_eps == 0.5);
    unbuild(&b);
}

/* Lists, blocks inside blocks, experts and attention layers of several widths, in numbers worked out by hand. */
static void blocks_may_differ(void **state)
{
    (void)state;
    built b;
    assert_ok(given(&b,
                    "{\"model_type\": \"odd\", \"rank\": null, \"depths\": [1, 2, 1], \"dense\": [0, 7],"
                    " \"ratio\": 2.5,"
                    " \"width\": 4.0,"
                    " \"kinds\": [\"full_attention\", \"sliding_attention\"]}",
                    "{\"title\": \"Odd\", \"symbols\": {\"d_model\": {\"key\": \"width\", \"default\": 1},"
                    "  \"h\": {\"value\": 2}, \"h_kv\": {\"value\": 2}, \"d_k\": {\"value\": 2},"
                    "  \"S\": {\"key\": \"depths\", \"length\": true, \"default\": 9},"
                    "  \"depth\": {\"key\": \"depths\", \"list\": \"S\", \"default\": 1},"
                    "  \"dense\": {\"key\": \"dense\", \"list\": \"S\", \"members\": true, \"default\": 0},"
                    "  \"full\": {\"key\": \"kinds\", \"list\": 2, \"contains\": \"full\", \"default\": 0},"
                    "  \"any\": {\"key\": \"kinds\", \"contains\": \"sliding\", \"default\": 0},"
                    "  \"twos\": {\"value\": \"2^i\", \"list\": \"S\"},"
                    "  \"threes\": {\"key\": \"width\", \"list\": \"S\", \"default\": 3},"
                    "  \"d_ff\": {\"key\": \"ratio\", \"times\": \"d_model+1\", \"default\": 0},"
                    "  \"rank\": {\"key\": \"rank\", \"default\": 7, \"null\": \"h\"},"
                    "  \"other\": {\"key\": \"other\", \"default\": 7, \"null\": \"h\"},"
                    "  \"plain\": {\"value\": 1, \"null\": 2},"
                    "  \"experts\": {\"value\": 3}, \"top_k\": {\"value\": 2}},"
                    " \"classes\": {\"Odd\": \"\"}, \"tensors\": {"
                    "  \"a\": {\"blocks\": \"S\", \"prefix\": \"{i}.\", \"rows\": ["
                    "   {\"name\": \"w\", \"shape\": \"twos[i], rank, other\", \"group\": \"attention\","
                    " \"role\": \"W_Q\"}]},"
                    "  \"b\": {\"blocks\": \"S\", \"inner\": \"depth[i]\", \"prefix\": \"{i}.{j}.\", \"rows\": ["
                    "   {\"name\": \"u\", \"shape\": \"threes[i], j+1\", \"group\": \"ffn\", \"role\": \"u\"}]},"
                    "  \"c\": {\"blocks\": \"S\", \"inner\": \"experts\", \"prefix\": \"{i}.e{j}.\","
                    " \"when\": \"!dense[i]\","
                    "   \"routed\": true, \"rows\": ["
                    "   {\"name\": \"x\", \"shape\": \"d_ff\", \"group\": \"ffn\", \"role\": \"x\"},"
                    "   {\"name\": \"y\", \"shape\": \"any + full[0]\", \"group\": \"ffn\", \"role\": \"y\","
                    "    \"when\": \"i == 2\"}]}},"
                    " \"attention\": [{\"blocks\": \"S\", \"inner\": \"depth[i]\", \"prefix\": \"{i}.{j}\","
                    "  \"when\": \"i > 0\", \"own\": {\"d_model\": \"8*twos[i]\", \"d_v\": \"3+j\"}}],"
                    " \"not_run\": [{\"when\": \"h == 3\", \"why\": \"no\"},"
                    "  {\"when\": \"h == 2\", \"why\": \"it is odd\"}, {\"when\": \"1\", \"why\": \"late\"}]}"),
              b.error);
    static const char *const names[] = {"0.w",    "0.0.u",  "1.w",    "1.0.u",  "1.1.u",  "1.e0.x", "1.e1.x", "1.e2.x",
                                        "2.w",    "2.0.u",  "2.e0.x", "2.e0.y", "2.e1.x", "2.e1.y", "2.e2.x", "2.e2.y"};
    assert_int_equal(mha_params_count(b.table), sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(mha_tensor_info_of(mha_params_at(b.table, i)).name, names[i]);
    const size_t others = (1 + 2 + 4) * 2 * 7 + 4 * (1 + 1 + 2 + 1), routed = 3 * 12 + 3 * (12 + 2);
    assert_int_equal(mha_params_totals(b.table, NULL).parameters, others + routed);
    size_t experts, chosen;
    assert_int_equal(mha_model_active_parameters(b.model, &experts, &chosen), others + routed / 3 * 2);
    assert_true(experts == 3 && chosen == 2);
    assert_int_equal(mha_model_active_parameters(b.model, NULL, NULL), others + routed / 3 * 2);
    const mha_model_facts *facts = mha_model_facts_of(b.model);
    assert_string_equal(facts->not_run, "it is odd");
    mha_error error;
    mha_layer *loaded = NULL;
    mha_file *file = NULL;
    assert_ok(mha_file_open("weights/lookup/model.safetensors", &file, &error), error);
    assert_int_equal(mha_model_load_layer(file, &(mha_load_options){.facts = facts}, b.table, &loaded, NULL, &error),
                     MHA_UNSUPPORTED);
    assert_string_equal(error.message, "it is odd; it is counted, not computed");
    mha_file_close(file);
    mha_model_layer layer;
    assert_int_equal(mha_model_layer_count(b.model), 3);
    assert_true(mha_model_layer_at(b.model, 1, &layer));
    assert_string_equal(layer.prefix, "1.1");
    assert_true(layer.config.d_model == 16 && layer.config.d_v == 4);
    assert_true(mha_model_layer_at(b.model, 2, &layer));
    assert_string_equal(layer.prefix, "2.0");
    assert_true(layer.config.d_model == 32 && layer.config.d_v == 3);
    assert_false(mha_model_layer_at(b.model, 3, &layer));
    unbuild(&b);
}

/* A description inherits missing entries from the one that it is like. */
static void one_that_is_like_another_says_the_rest(void **state)
{
    (void)state;
    built like, same;
    assert_ok(given(&like, CONFIG,
                    "{\"like\": \"llama\", \"no_effect\": \"ids part\", \"title\": \"Mine\","
                    " \"classes\": {\"MineForCausalLM\": \"lm\"},"
                    " \"symbols\": {\"d_ff\": {\"key\": \"ffn_dim\", \"default\": \"4*d_model\"}}}"),
              like.error);
    assert_ok(given(&same,
                    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 4,"
                    " \"num_key_value_heads\": 2, \"num_hidden_layers\": 3, \"vocab_size\": 100,"
                    " \"intermediate_size\": 128, \"tie_word_embeddings\": true}",
                    NULL),
              same.error);
    assert_int_equal(mha_params_count(like.table), mha_params_count(same.table));
    assert_int_equal(mha_params_totals(like.table, NULL).parameters, mha_params_totals(same.table, NULL).parameters);
    assert_string_equal(mha_model_title(like.model), "Mine");
    assert_string_equal(mha_model_class(like.model), "MineForCausalLM");
    assert_string_equal(mha_model_facts_of(like.model)->model_type, "mine");
    unbuild(&same);
    unbuild(&like);
}

/* A table is a layer's own weight when its name begins with the layer's and a dot: that of layer x1 is not one of x. */
static void a_table_under_another_prefix_is_shared(void **state)
{
    (void)state;
    built b;
    mha_model_layer layer;
    assert_ok(given(&b, CONFIG,
                    "{\"like\": \"llama\", \"no_effect\": \"ids part\", \"attention\": ["
                    "{\"prefix\": \"x\", \"bias_table\": \"x1.table\","
                    " \"own\": {\"bias_rule\": \"1\", \"bias_buckets\": \"8\"}},"
                    "{\"prefix\": \"x1\", \"bias_table\": \"x1.table\","
                    " \"own\": {\"bias_rule\": \"1\", \"bias_buckets\": \"8\"}}]}"),
              b.error);
    for (size_t i = 0; i < 2; i++) {
        assert_true(mha_model_layer_at(b.model, i, &layer));
        assert_int_equal(layer.config.bias_rows, 8 * i);
    }
    unbuild(&b);
}

/* A class may be shorter than the beginning that classes are said to have; a name of another one is not found. */
static void class_families_may_be_longer_than_classes(void **state)
{
    (void)state;
    built b;
    assert_int_equal(given(&b, "{\"model_type\": \"odd\", \"architectures\": [\"AVeryLongFamilyOfClassesModel\"]}",
                           "{\"like\": \"llama\", \"class_families\": \"AVeryLongFamilyOfClasses\","
                           " \"classes\": {\"A\": \"\"}}"),
                     MHA_INVALID);
    assert_non_null(strstr(b.error.message, "expected one of A, found"));
    unbuild(&b);
}

static void what_is_wrong_in_one_is_named(void **state)
{
    (void)state;
#define LIKE "{\"like\": \"llama\", \"no_effect\": \"ids part\", "
#define ROW "\"name\": \"a\", \"shape\": \"1\", \"group\": \"norm\", \"role\": \"r\""
#define TEN(row) row "," row "," row "," row "," row "," row "," row "," row "," row "," row
#define MANY TEN(SIX) "," SIX
#define SIX "{" ROW "},{" ROW "},{" ROW "},{" ROW "},{" ROW "},{" ROW "}"
#define LONG "a name that is made of a little more than fifty letters, "
#define ROWS(row) LIKE "\"tensors\": {\"x\": {\"rows\": [" row "]}}}"
    static const struct {
        const char *text;
        mha_status status;
        const char *where, *what;
    } cases[] = {
        {"", MHA_FORMAT, "description.json", "expected JSON"},
        {"[]", MHA_FORMAT, "description.json", "expected a JSON object"},
        {"{}", MHA_FORMAT, "description.json", "expected \"title\""},
        {"{\"like\": \"mine\"}", MHA_INVALID, "description.json", "like: expected the name of a built-in"},
        {"{\"like\": 3}", MHA_INVALID, "description.json", "like: expected the name of a built-in"},
        {LIKE "\"sizes\": {}}", MHA_FORMAT, "description.json", "expected no \"sizes\""},
        {LIKE "\"symbols\": 3}", MHA_FORMAT, "description.json", "symbols"},
        {LIKE "\"symbols\": {\"h\": 3}}", MHA_FORMAT, "description.json", "symbols, h"},
        {LIKE "\"symbols\": {\"h\": {\"key\": \"k\"}}}", MHA_FORMAT, "description.json", "a key with a default"},
        {LIKE "\"symbols\": {\"h\": {\"default\": \"4\"}}}", MHA_FORMAT, "description.json", "a key with a default"},
        {LIKE "\"symbols\": {\"h\": {\"key\": \"k\", \"default\": 1, \"value\": 1}}}", MHA_FORMAT,
         "description.json", "expected a value, or"},
        {LIKE "\"symbols\": {\"n\": {\"value\": \"huh + 1\"}}}", MHA_INVALID, "description.json, n", "a known name"},
        {LIKE "\"symbols\": {\"n\": {\"value\": \"2*n\"}}}", MHA_INVALID, "description.json, n", "itself: n needs n"},
        {LIKE "\"symbols\": {\"n\": {\"value\": \"m + 1\"}, "
              "\"o\": {\"value\": \"h*n\"}, \"m\": {\"value\": \"o\"}}}",
         MHA_INVALID, "description.json, n", "itself: n needs m, which needs o, which needs n"},
        {LIKE "\"symbols\": {\"n\": {\"value\": \"h + m\"}, "
              "\"m\": {\"value\": \"o\"}, \"o\": {\"value\": \"m\"}}}",
         MHA_INVALID, "description.json, n", "found m further on"},
        {LIKE "\"symbols\": {\"fused_blocks\": {\"value\": \"0 - 2\"}}}", MHA_INVALID, "description.json, fused_blocks",
         "at least 0, found -2"},
        {LIKE "\"symbols\": {\"h_kv\": {\"value\": 3}}}", MHA_INVALID, "description.json, h_kv", "a divisor of"},
        {LIKE "\"refused\": [{\"when\": \"huh\", \"why\": \"no\"}]}", MHA_INVALID, "description.json, huh",
         "known name"},
        {LIKE "\"not_run\": [{\"when\": \"huh\", \"why\": \"no\"}]}", MHA_INVALID, "description.json, huh",
         "known name"},
        {LIKE "\"tensors\": {\"x\": {\"rows\": [{" ROW "}, {" ROW "}]}}}", MHA_INVALID, "description.json, a",
         "already has a tensor"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"own\": {\"window\": \"0 - 1\"}}]}", MHA_INVALID,
         "description.json, window", "at least 0"},
        {LIKE "\"symbols\": {\"bias_rule\": {\"value\": 1}}}", MHA_INVALID, "self_attn",
         "bias_rule and bias_table together"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"bias_table\": \"t\"}]}", MHA_INVALID, "description.json, x",
         "bias_rule and bias_table together"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"bias_table\": \"" LONG LONG LONG LONG "\","
              " \"own\": {\"bias_rule\": \"1\"}}]}", MHA_INVALID, "description.json, x", "bias_table is too long"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"own\": {\"bias_height\": \"0-1\"}}]}", MHA_INVALID,
         "description.json, bias_height", "at least 0"},
        {LIKE "\"symbols\": {\"a_name_of_over_23_letters\": {\"value\": 1}}}",
         MHA_INVALID, "description.json", "a_name_of_over_23_letters: expected"},
        {LIKE "\"numbers\": {\"theta\": {\"value\": 1}}}", MHA_FORMAT, "description.json",
         "theta: expected a setting that is a real number"},
        {LIKE "\"numbers\": {\"causal\": {\"value\": 1}}}", MHA_FORMAT, "description.json", "a real number"},
        {LIKE "\"classes\": {}}", MHA_FORMAT, "description.json", "classes"},
        {LIKE "\"classes\": {\"A\": [\"lm\"]}}", MHA_FORMAT, "description.json", "classes, A"},
        {LIKE "\"tensors\": []}", MHA_FORMAT, "description.json", "tensors"},
        {LIKE "\"tensors\": {\"x\": {\"rows\": 3}}}", MHA_FORMAT, "description.json", "tensors, x"},
        {LIKE "\"attention\": {}}", MHA_FORMAT, "description.json", "attention"},
        {LIKE "\"attention\": [{\"blocks\": 1}]}", MHA_FORMAT, "description.json", "attention, row 1"},
        {LIKE "\"refused\": [{\"when\": \"1\", \"why\": \"never seen\"}]}", MHA_UNSUPPORTED, "", "never seen"},
        {LIKE "\"refused\": [{\"when\": \"1\"}]}", MHA_FORMAT, "description.json", "refused, row 1"},
        {LIKE "\"refused\": [{\"when\": \"huh\", \"why\": \"x\"}]}", MHA_INVALID, "", "huh"},
        {LIKE "\"not_run\": [{\"when\": \"huh\", \"why\": \"x\"}]}", MHA_INVALID, "", "huh"},
        {LIKE "\"not_run\": {}}", MHA_FORMAT, "description.json", "not_run, as a whole: expected a list"},
        {ROWS("{" ROW "}, 3"), MHA_FORMAT, "description.json", "tensors.x, row 2"},
        {ROWS("{\"name\": \"a\"}"), MHA_FORMAT, "description.json", "expected \"shape\""},
        {ROWS("{" ROW ", \"size\": 3}"), MHA_FORMAT, "description.json", "expected no \"size\""},
        {ROWS("{" ROW ", \"buffer\": false}"), MHA_FORMAT, "description.json", "buffer"},
        {ROWS("{\"name\": \"a\", \"shape\": \"1\", \"group\": \"bias\", \"role\": \"r\"}"), MHA_FORMAT,
         "description.json", "group: expected one of attention"},
        {ROWS("{\"name\": \"a\", \"shape\": \"b\", \"group\": \"norm\", \"role\": \"r\"}"), MHA_INVALID,
         "description.json, a", "expected a known name"},
        {ROWS("{" ROW ", \"when\": \"1/0\"}"), MHA_INVALID, "description.json", "1/0"},
        {ROWS("{" ROW "}, {" ROW "}"), MHA_INVALID, "", "a"},
        {ROWS("{" ROW ", \"ole\": 3}"), MHA_FORMAT, "description.json", "expected no \"ole\""},
        {"{\"title\": \"T\", \"symbols\": {\"h\": {\"value\": 1}}, \"classes\": {\"A\": \"\"}, \"tensors\": {}, "
         "\"attention\": []}",
         MHA_FORMAT, "description.json", "symbols, d_model: expected it to be described"},
        {"{\"title\": \"T\", \"symbols\": {\"h\": {\"value\": 1}, \"d_model\": {\"value\": 1}, "
         "\"h_kv\": {\"value\": 1}, \"d_k\": {\"value\": 1}}, \"classes\": {\"A\": \"\"}, \"tensors\": {}, "
         "\"attention\": []}",
         MHA_FORMAT, "description.json", "tensors, as a whole: expected at least one"},
        {LIKE "\"classes\": {\"A\": \"lm a_part_with_a_name_of_28_letters\"}}",
         MHA_INVALID, "description.json", "classes"},
        {LIKE "\"parts\": \"a_part_with_a_name_of_28_letters\"}", MHA_INVALID, "description.json", "classes"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"blocks\": \"many\"}]}",
         MHA_INVALID, "description.json, many", "known name"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"uses\": \"often\"}]}",
         MHA_INVALID, "description.json, often", "known name"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"blocks\": 2049}]}", MHA_INVALID, "2049", "at most 2048"},
        {LIKE "\"attention\": [{\"prefix\": \"" LONG LONG LONG LONG "\"}]}", MHA_INVALID, "", "fits its buffer"},
        {LIKE "\"tensors\": {\"x\": {\"inner\": \"huh\", \"rows\": [{" ROW "}]}}}", MHA_INVALID,
         "description.json, huh", "known name"},
        {LIKE "\"symbols\": {\"h\": {\"value\": 0}}}", MHA_INVALID, "h", "at least 1"},
        {LIKE "\"symbols\": {\"n\": {\"value\": 1, \"members\": true}}}", MHA_FORMAT, "description.json", "a list"},
        {LIKE "\"symbols\": {\"n\": {\"value\": 1, \"words\": \"a\"}}}", MHA_FORMAT, "description.json", "contains"},
        {LIKE "\"symbols\": {\"n\": {\"value\": 1, \"list\": \"huh\"}}}", MHA_INVALID, "description.json, n", "name"},
        {LIKE "\"symbols\": {\"n\": {\"value\": 1, \"list\": 100001}}}", MHA_INVALID, "100001", "to 100000"},
        {LIKE "\"symbols\": {\"n\": {\"value\": \"i/0\", \"list\": 3}}}", MHA_INVALID, "description.json, n", "i/0"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"ids\", \"list\": 3, \"default\": 0}}}", MHA_INVALID, "ids",
         "3 entries"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"ids\", \"list\": 2, \"default\": 0}}}", MHA_INVALID, "ids", "text"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"ids\", \"list\": 2, \"members\": true, \"default\": 0}}}",
         MHA_INVALID, "ids", "text"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"ids\", \"times\": 2, \"default\": 0}}}", MHA_INVALID, "ids",
         "a number"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"part\", \"times\": \"huh\", \"default\": 0}}}", MHA_INVALID,
         "description.json, n", "huh"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"part\", \"times\": -1, \"default\": 0}}}", MHA_INVALID, "part", "0.5"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"part\", \"default\": 0}}}", MHA_INVALID, "part", "a real number"},
        {LIKE "\"symbols\": {\"n\": {\"key\": \"hidden_size\", \"contains\": \"x\", \"default\": 0}}}", MHA_INVALID,
         "hidden_size", "expected text"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"own\": 3}]}", MHA_FORMAT, "description.json", "own: expected"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"own\": {\"h\": 3}}]}", MHA_FORMAT, "description.json", "as text"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"own\": {\"h\": \"huh\"}}]}", MHA_INVALID, "huh", "known name"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"own\": {\"a_symbol_of_24_letters__\": \"1\"}}]}", MHA_INVALID,
         "a_symbol", "fewer symbols"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"own\": {\"h\": \"3\"}}]}", MHA_INVALID, "", "3"},
        {LIKE "\"attention\": [{\"prefix\": \"x\", \"blocks\": 400, \"inner\": 400}]}", MHA_INVALID, "x",
         "at most 2048"},
        {LIKE "\"numbers\": {\"softcap\": {\"value\": -1}}}", MHA_FORMAT, "description.json", "numbers, softcap"},
        {LIKE "\"numbers\": {\"rope_base\": {\"value\": 0}}}", MHA_INVALID, "rope_base", "above 0"},
        {LIKE "\"tensors\": {\"x\": {\"blocks\": 2048, \"rows\": [" MANY "]}}}",
         MHA_INVALID, "model", "at most 131072"},
        {LIKE "\"tensors\": {\"x\": {\"blocks\": 2048, \"inner\": 2048, \"when\": 0, \"rows\": [{" ROW "}]}}}",
         MHA_INVALID, "model", "at most 131072"},
        {LIKE "\"attention\": {}, \"model_prefix\": 3}", MHA_FORMAT, "description.json", "Expected string"},
        {LIKE "\"tensors\": {\"layers\": {\"blocks\": \"L/0\", \"rows\": [{" ROW "}]}}}", MHA_INVALID,
         "description.json", "L/0"},
        {LIKE "\"tensors\": {\"x\": {\"prefix\": \"" LONG LONG LONG LONG "\", \"rows\": [{" ROW "}]}}}", MHA_INVALID,
         "a", "fits its buffer"},
        {LIKE "\"tensors\": {\"layers\": {\"prefix\": \"model.layers.{i}.self_attn.\", \"blocks\": \"L\", \"rows\": ["
              "{\"name\": \"k_proj.bias\", \"shape\": \"31\", \"group\": \"attention\", \"role\": \"b_K\"}]}},"
              " \"symbols\": {\"rope\": {\"value\": 0}}}",
         MHA_INVALID, "model.layers.0.self_attn.k_proj.bias", "32 elements at least, found 31"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        built b;
        const mha_status status = given(&b, CONFIG, cases[i].text);
        if (status != cases[i].status || !strstr(b.error.name, cases[i].where) ||
            !strstr(b.error.message, cases[i].what))
            fail_msg("%s: found %s, \"%s: %s\"", cases[i].text, mha__status_name(status), b.error.name,
                     b.error.message);
        assert_null(b.model);
        unbuild(&b);
    }
    built b;
    assert_int_equal(mha_params_create(NULL, &b.table, NULL), MHA_OK);
    char config[256];
    snprintf(config, sizeof config, "%s", written("config.json", CONFIG));
    assert_int_equal(mha_model_create(&(mha_model_spec){.config = config, .architecture = "/nowhere/at.json"}, b.table,
                                      &b.model, &b.error),
                     MHA_NOT_FOUND);
    mha_params_destroy(b.table);
}

/* Every setting that is a real number can be a number of a description, and reaches the calls of its layers. */
static void numbers_of_a_description_are_settings(void **state)
{
    (void)state;
    const mha_setting *setting;
    size_t read = 0;
    for (size_t i = 0; (setting = mha_setting_at(i)) != NULL; i++) {
        char description[200];
        built b;
        const bool needs_symbols = strcmp(setting->name, "query_scale_growth") == 0;
        if (setting->kind != MHA_SETTING_REAL || needs_symbols)
            continue;
        snprintf(description, sizeof description, LIKE "\"numbers\": {\"%s\": {\"value\": 0.5}}}", setting->name);
        assert_ok(given(&b, "{\"model_type\": \"mine\"}", description), b.error);
        for (size_t layer = 0; layer < 2; layer++)
            if (mha_setting_number(setting, &mha_model_layer_facts(b.model, layer)->semantics) != 0.5)
                fail_msg("%s is not read", setting->name);
        unbuild(&b);
        read++;
    }
    assert_true(read >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_description_are_settings),
        cmocka_unit_test(each_that_is_built_in_is_whole),
        cmocka_unit_test(counts_are_those_of_the_library),
        cmocka_unit_test(rotation_is_read_where_it_stands),
        cmocka_unit_test(one_from_nothing_counts_what_it_says),
        cmocka_unit_test(blocks_may_differ),
        cmocka_unit_test(one_that_is_like_another_says_the_rest),
        cmocka_unit_test(class_families_may_be_longer_than_classes),
        cmocka_unit_test(a_table_under_another_prefix_is_shared),
        cmocka_unit_test(what_is_wrong_in_one_is_named),
    };
    return cmocka_run_group_tests_name("architectures", tests, NULL, NULL);
}
