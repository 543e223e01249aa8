/* Tables of biases by position: which one a configuration gives to a layer, its own or one that layers share, and what
 * is refused because it would change the scores. What is computed with them is held by test_layers_recorded. */
#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/scratch.h"
#include "support/unit.h"

/* ---------------------------------------------------------------- what a configuration says */

static mha_model_facts facts_of(const char *config, const char *layer)
{
    mha_model_facts facts;
    mha_error error;
    const char *path = config_file(config);
    assert_ok(mha_model_read_layer(path, layer, &facts, &error), error);
    return facts;
}

static void a_layer_has_a_rule_and_a_table(void **state)
{
    (void)state;
    static const struct {
        const char *config, *layer;
        mha_bias bias;
        size_t rows;
        const char *table;
        bool scaled;
    } cases[] = {
        {"{\"model_type\": \"t5\", \"num_layers\": 3}", "encoder.block.2.layer.0.SelfAttention",
         {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 128}, 32,
         "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", true},
        {"{\"model_type\": \"mt5\", \"relative_attention_num_buckets\": 6, \"relative_attention_max_distance\": 9}",
         "decoder.block.1.layer.0.SelfAttention",
         {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 9, .one_way = true}, 6,
         "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", true},
        {"{\"model_type\": \"umt5\"}", "decoder.block.5.layer.0.SelfAttention",
         {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 128, .one_way = true}, 32,
         "decoder.block.5.layer.0.SelfAttention.relative_attention_bias.weight", true},
        {"{\"model_type\": \"t5\"}", "decoder.block.1.layer.1.EncDecAttention", {0}, 0, "", true},
        {"{\"model_type\": \"mpnet\"}", "encoder.layer.3.attention.attn",
         {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 128}, 32, "mpnet.encoder.relative_attention_bias.weight",
         false},
        {"{\"model_type\": \"swin\", \"window_size\": 6}", "swin.encoder.layers.2.blocks.1.attention",
         {.rule = MHA_BIAS_RULE_GRID, .height = 6, .width = 6}, 121,
         "swin.encoder.layers.2.blocks.1.attention.self.relative_position_bias_table", false},
        {"{\"model_type\": \"beit\", \"use_relative_position_bias\": true}", "beit.encoder.layer.2.attention",
         {.rule = MHA_BIAS_RULE_GRID, .height = 14, .width = 14, .class_token = true}, 732,
         "beit.encoder.layer.2.attention.attention.relative_position_bias.relative_position_bias_table", false},
        {"{\"model_type\": \"beit\", \"use_shared_relative_position_bias\": true}", "beit.encoder.layer.2.attention",
         {.rule = MHA_BIAS_RULE_GRID, .height = 14, .width = 14, .class_token = true}, 732,
         "beit.encoder.relative_position_bias.relative_position_bias_table", false},
        {"{\"model_type\": \"beit\"}", "beit.encoder.layer.2.attention", {0}, 0, "", false},
        /* of the whole model, whose layers may differ, no table */
        {"{\"model_type\": \"t5\"}", NULL, {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 128}, 32, "", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mha_model_facts facts = facts_of(cases[i].config, cases[i].layer);
        const mha_semantics s = mha_model_semantics(&facts);
        const mha_bias *expected = &cases[i].bias;
        const bool same = s.added.bias.rule == expected->rule && s.added.bias.one_way == expected->one_way &&
                          s.added.bias.class_token == expected->class_token &&
                          s.added.bias.height == expected->height && s.added.bias.width == expected->width &&
                          s.added.bias.max_distance == expected->max_distance;
        if (!same || strcmp(facts.bias_table, cases[i].table) != 0 || facts.config.bias_rows != cases[i].rows ||
            s.visible.causal != expected->one_way || (s.softmax.has_scale && s.softmax.scale == 1) != cases[i].scaled)
            fail_msg("case %zu: rule %d, table '%s' of %zu rows", i, (int)s.added.bias.rule, facts.bias_table,
                     facts.config.bias_rows);
    }
    assert_non_null(strstr(facts_of("{\"model_type\": \"t5\"}", NULL).caveat, "bias"));
    assert_non_null(strstr(facts_of("{\"model_type\": \"swin\"}", NULL).caveat, "bias"));
    static const char *const large[] = {"{\"model_type\": \"t5\", \"relative_attention_num_buckets\": 65537}",
                                        "{\"model_type\": \"swin\", \"window_size\": 200}",
                                        "{\"model_type\": \"swin\", \"window_size\": 70000}",
                                        "{\"model_type\": \"swin\", \"window_size\": 0}"};
    const char *forty = "{\"model_type\": \"mpnet\", \"relative_attention_num_buckets\": 40}",
               *nowhere = "{\"model_type\": \"t5\", \"relative_attention_max_distance\": 0}",
               *both = "{\"model_type\": \"beit\", \"use_relative_position_bias\": true,"
                       " \"use_shared_relative_position_bias\": true}";
    assert_non_null(strstr(facts_of(forty, NULL).not_run, "32 buckets"));
    assert_non_null(strstr(facts_of(nowhere, NULL).not_run, "max_distance is 0"));
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        assert_non_null(strstr(facts_of(large[i], NULL).not_run, "more than 65536 rows"));
    assert_non_null(strstr(facts_of(both, NULL).not_run, "two tables"));
}

/* Every second layer of Swin shifts its windows, unless one has room for the image; images are padded to whole ones. */
static void windows_are_shifted(void **state)
{
    (void)state;
    static const struct {
        const char *image, *layer;
        size_t shift, side;
    } cases[] = {{"224", "swin.encoder.layers.0.blocks.0.attention", 0, 0},
                 {"224", "swin.encoder.layers.0.blocks.1.attention", 3, 56},
                 {"224", "swin.encoder.layers.2.blocks.5.attention", 3, 14},
                 {"224", "swin.encoder.layers.3.blocks.1.attention", 0, 0},
                 {"230", "swin.encoder.layers.0.blocks.1.attention", 3, 63}, /* of 58 cells, in halves 29, 15 and 8 */
                 {"230", "swin.encoder.layers.1.blocks.1.attention", 3, 35},
                 {"230", "swin.encoder.layers.2.blocks.1.attention", 3, 21},
                 {"230", "swin.encoder.layers.3.blocks.1.attention", 3, 14}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[80];
        snprintf(config, sizeof config, "{\"model_type\": \"swin\", \"image_size\": %s}", cases[i].image);
        const mha_model_facts facts = facts_of(config, cases[i].layer);
        assert_int_equal(facts.shift, cases[i].shift);
        assert_true(facts.image_height == cases[i].side && facts.image_width == cases[i].side);
        assert_string_equal(facts.not_run, "");
    }
    const char *small = "{\"model_type\": \"swin\", \"window_size\": 8}"; /* than the 7 cells of the last stage */
    assert_non_null(strstr(facts_of(small, NULL).not_run, "window_size"));
}

/* A table that layers share is no weight of one of them alone, but for the first. */
static void a_table_counts_where_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        size_t own;
    } cases[] = {{"{\"model_type\": \"t5\"}", 2},
                 {"{\"model_type\": \"umt5\"}", 16},
                 {"{\"model_type\": \"mpnet\"}", 0},
                 {"{\"model_type\": \"swin\"}", 12},
                 {"{\"model_type\": \"swin\", \"window_size\": 200}", 0}}; /* counted, not computed */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        built b;
        mha_model_layer layer;
        size_t own = 0, used = 0, elements = 0;
        assert_ok(build_text(&b, cases[i].config, NULL, NULL), b.error);
        for (size_t l = 0; mha_model_layer_at(b.model, l, &layer); l++) {
            const mha_model_facts *facts = mha_model_layer_facts(b.model, l);
            mha_tensor *row = *facts->bias_table ? mha_params_find(b.table, facts->bias_table) : NULL;
            own += layer.config.bias_rows > 0;
            used += row != NULL;
            elements += layer.config.bias_rows ? mha_tensor_info_of(row).elements : 0;
            assert_true(row || !*facts->bias_table);
            assert_true(!row || *facts->not_run || mha_tensor_info_of(row).shape[0] == facts->config.bias_rows);
            assert_true(!layer.config.bias_rows ||
                        layer.config.bias_rows * layer.config.n_heads == mha_tensor_info_of(row).elements);
        }
        assert_int_equal(own, cases[i].own);
        assert_true(used >= own && used > 0 && (own > 0) == (elements > 0));
        unbuild(&b);
    }
}

/* ---------------------------------------------------------------- files */

static float numbers[400];

/* A file with q, k, v and o of two layers "a" and "b", 4 wide, and a table (rows, columns) of this name, if any. */
static const char *write_layers(const char *table, size_t rows, size_t columns)
{
    static const char *const names[] = {"q.weight", "k.weight", "v.weight", "o.weight"};
    static char path[512];
    mha_writer *writer;
    mha_error error;
    char name[300];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = (float)i;
    snprintf(path, sizeof path, "%s", scratch_path("bias.safetensors"));
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < 8; i++) {
        const mha_view view = mha_view_of(numbers + 16 * i, MHA_F32, 2, (size_t[]){4, 4});
        snprintf(name, sizeof name, "%s.%s", i < 4 ? "m.a" : "m.b", names[i % 4]);
        assert_ok(mha_writer_add(writer, name, &view, &error), error);
    }
    if (table) {
        const mha_view view = mha_view_of(numbers + 128, MHA_F32, columns ? 2 : 1, (size_t[]){rows, columns});
        assert_ok(mha_writer_add(writer, table, &view, &error), error);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return path;
}

static mha_model_facts shared(const char *table)
{
    mha_model_facts facts = {.config.n_heads = 2, .has_semantics = true, .config.bias_rows = 6,
                             .semantics.added.bias = {.rule = MHA_BIAS_RULE_BUCKETS, .one_way = true}};
    snprintf(facts.bias_table, sizeof facts.bias_table, "%s", table);
    return facts;
}

/* Loads layer "b"; NULL: it is refused. */
static mha_layer *load(const char *path, const mha_model_facts *facts, mha_split *split, size_t rank,
                       mha_load_report *report, mha_error *error)
{
    mha_split whole = {.ranks = 1};
    mha_layer *layer = NULL;
    mha_file *file;
    assert_ok(mha_file_open(path, &file, error), *error);
    const mha_load_options options = {.layer = "m.b", .n_heads = 2, .facts = facts};
    (void)mha_model_load_share(file, &options, split ? split : &whole, rank, NULL, &layer, report, error);
    mha_file_close(file);
    return layer;
}

static void layers_share_a_table_under_any_name(void **state)
{
    (void)state;
    static const char *const names[] = {"m.a.relative_attention_bias.weight", "m.b.my_own.table", "my.table",
                                        "m.b.relative_attention_bias.weight", "table"}; /* bare.table lacks "bare." */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mha_error error;
        mha_load_report report;
        const mha_model_facts facts = shared(i < 4 ? names[i] : "bare.table");
        mha_layer *layer = load(write_layers(names[i], 6, 2), &facts, NULL, 0, &report, &error);
        assert_non_null(layer);
        assert_int_equal(report.tensors, 5);
        assert_int_equal(mha_layer_config(layer)->bias_rows, 6);
        const mha_view table = mha_tensor_view(mha_layer_weight(layer, MHA_BIAS_TABLE));
        for (size_t at = 0; at < 12; at++)
            assert_true(mha_view_get(&table, (size_t[]){at / 2, at % 2}) == (double)(128 + at));
        mha_layer_destroy(layer);
    }
}

/* A rank reads the columns of its own heads. */
static void ranks_share_a_table_by_heads(void **state)
{
    (void)state;
    const mha_model_facts facts = shared("my.table");
    for (size_t rank = 0; rank < 2; rank++) {
        mha_error error;
        mha_split split = {.scheme = MHA_SPLIT_TENSOR, .ranks = 2};
        mha_layer *layer = load(write_layers("my.table", 6, 2), &facts, &split, rank, NULL, &error);
        assert_non_null(layer);
        const mha_view table = mha_tensor_view(mha_layer_weight(layer, MHA_BIAS_TABLE));
        assert_true(table.shape[0] == 6 && table.shape[1] == 1);
        for (size_t row = 0; row < 6; row++)
            assert_true(mha_view_get(&table, (size_t[]){row, 0}) == (double)(128 + 2 * row + rank));
        mha_layer_destroy(layer);
    }
}

static void what_would_change_the_scores_is_refused(void **state)
{
    (void)state;
    const mha_model_facts bare = shared("table");
    const mha_model_facts plain = {.config.n_heads = 2, .has_semantics = true}, whole = shared(""),
                          named = shared("my.table"), unknown = {.config.n_heads = 2};
    const struct {
        const char *name; /* of the table in the file */
        size_t rows, columns;
        const mha_model_facts *facts;
        mha_status status;
        const char *where, *what;
    } cases[] = {
        {"m.a.relative_attention_bias.weight", 6, 2, NULL, MHA_INVALID, "m.a.relative_attention_bias.weight",
         "config.json"},
        {"m.b.relative_attention_bias.weight", 6, 2, &unknown, MHA_INVALID, "m.b.relative", "config.json"},
        {"x.relative_position_bias_table", 6, 2, NULL, MHA_INVALID, "x.relative_position_bias_table", "config.json"},
        {"enc.blk.0.attn_rel_b.weight", 6, 2, NULL, MHA_INVALID, "enc.blk.0.attn_rel_b.weight", "config.json"},
        {"m.b.relative_attention_bias.weight", 6, 2, &plain, MHA_INVALID, "m.b.relative_attention_bias.weight",
         "does not speak of"},
        {"my.table", 6, 2, &whole, MHA_INVALID, "layer", "prefix of a layer of the configuration"},
        {NULL, 0, 0, &named, MHA_NOT_FOUND, "my.table", "expected a tensor of this name"},
        {NULL, 0, 0, &bare, MHA_NOT_FOUND, "table", "expected a tensor of this name"},
        {"my.table", 6, 3, &named, MHA_INVALID, "my.table", "expected shape (6, 2)"},
        {"my.table", 6, 0, &named, MHA_INVALID, "my.table", "expected shape (6, 2)"},
        {"my.table", 5, 2, &named, MHA_INVALID, "my.table", "expected shape (6, 2)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_error error = {.status = MHA_OK};
        assert_null(load(write_layers(cases[i].name, cases[i].rows, cases[i].columns), cases[i].facts, NULL, 0, NULL,
                         &error));
        if (error.status != cases[i].status || !strstr(error.name, cases[i].where) ||
            !strstr(error.message, cases[i].what))
            fail_msg("case %zu: %s: %s", i, error.name, error.message);
    }
    mha_error error;
    mha_layer *layer = load(write_layers("m.a.relative_attention_bias.weight", 6, 2), &plain, NULL, 0, NULL, &error);
    assert_non_null(layer); /* the table of another layer, as beside T5's cross attention */
    assert_null(mha_layer_weight(layer, MHA_BIAS_TABLE));
    mha_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_a_rule_and_a_table),
        cmocka_unit_test(windows_are_shifted),
        cmocka_unit_test(a_table_counts_where_it_is),
        cmocka_unit_test(layers_share_a_table_under_any_name),
        cmocka_unit_test(ranks_share_a_table_by_heads),
        cmocka_unit_test(what_would_change_the_scores_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
