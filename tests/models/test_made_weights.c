/* Weights that are made of other tensors when a layer is loaded: what is counted, and what is refused. What is computed
 * with them is held by test_layers_recorded. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/counted.h"
#include "support/built.h"
#include "support/scratch.h"
#include "support/unit.h"

#define SWIN "swinv2.encoder.layers.1.blocks.1.attention"
#define SCALE SWIN ".self.logit_scale"
#define MLP SWIN ".self.continuous_position_bias_mlp"
#define DEBERTA "deberta.encoder.layer.1.attention"
#define OWN DEBERTA ".self.pos_"
#define RELATIVE "deberta.encoder.rel_embeddings.weight"

enum { MOST = 32 };

/* ---------------------------------------------------------------- files */

/* A change of one tensor: left out, or another first dimension or type. */
typedef struct change {
    const char *name;
    bool out;
    size_t rows;
    mha_dtype dtype;
} change;

/* Writes the tensors of a layer of a recorded file, with a change, and its configuration; returns the file's path. */
static const char *copied(const char *family, const char *layer, const change *c, const char **config)
{
    static char path[512];
    char from[200];
    void *data[MOST];
    size_t count = 0;
    mha_error error;
    mha_file *file;
    mha_writer *writer;
    snprintf(from, sizeof from, "tests/layers/%s.safetensors", family);
    assert_ok(mha_file_open(from, &file, &error), error);
    const char *text = mha_file_metadata(file, "config");
    *config = config_file(text);
    snprintf(path, sizeof path, "%s", scratch_path("made.safetensors"));
    assert_ok(mha_writer_create(path, &writer, &error), error);
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(file, i)); i++) {
        const bool changed = c && strcmp(tensor->name, c->name) == 0;
        const bool shared = strncmp(tensor->name, "deberta.encoder.rel_", 20) == 0;
        if ((strncmp(tensor->name, layer, strlen(layer)) != 0 && !shared) || (changed && c->out))
            continue;
        data[count] = calloc(tensor->elements, 8);
        mha_view view = mha_view_of(data[count], MHA_F32, tensor->rank, tensor->shape);
        assert_ok(mha_file_read(file, tensor, &view, &error), error);
        if (changed && c->rows)
            view.shape[0] = c->rows;
        if (changed && c->dtype)
            view.dtype = c->dtype;
        assert_ok(mha_writer_add(writer, tensor->name, &view, &error), error);
        assert_true(++count < MOST);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    mha_file_close(file);
    while (count > 0)
        free(data[--count]);
    return path;
}

/* ---------------------------------------------------------------- counted */

static mha_tensor_info row(mha_layer *layer, const char *name)
{
    mha_tensor *tensor = mha_params_find(mha_layer_params(layer), name);
    if (!tensor)
        fail_msg("no row %s", name);
    return mha_tensor_info_of(tensor);
}

static void sources_are_counted_and_what_is_made_of_them_is_not(void **state)
{
    (void)state;
    const char *config, *path = copied("swinv2", SWIN, NULL, &config);
    mha_error error;
    mha_file *file;
    mha_layer *layer;
    mha_params *table;
    mha_model_facts facts;
    mha_load_report report;
    mha_file_totals stored;
    assert_ok(mha_model_read_layer(config, SWIN, &facts, &error), error);
    assert_true(facts.made == (UINT64_C(1) << MHA_Q_NORM | UINT64_C(1) << MHA_BIAS_TABLE));
    assert_int_equal(facts.bias_span, 2); /* a window of 3 cells, and none of a pretraining */
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    assert_ok(mha_file_list_params(file, table, NULL, NULL, &stored, &error), error);
    mha_params_destroy(table);

    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    const mha_load_options options = {.layer = SWIN, .facts = &facts, .row_prefix = "l."};
    assert_ok(mha_model_load_layer(file, &options, table, &layer, &report, &error), error);
    const mha_totals totals = mha_params_totals(table, "attention");
    assert_int_equal(totals.parameters, stored.parameters);
    assert_int_equal(report.tensors, stored.tensors);
    assert_int_equal(totals.derived_bytes, 4 * (2 * 4 + 25 * 2)); /* two heads of 4 features, (2 * 3 - 1)^2 offsets */
    assert_int_equal(row(layer, "l.q_norm").kind, MHA_TENSOR_DERIVED);
    assert_int_equal(row(layer, "l.bias_table").kind, MHA_TENSOR_DERIVED);
    assert_int_equal(row(layer, "l.logit_scale").kind, MHA_TENSOR_PARAMETER);
    assert_int_equal(row(layer, "l.logit_scale").source_dtype, MHA_F32);
    assert_int_equal(row(layer, "l.bias_b_1").elements, 512);
    assert_int_equal(row(layer, "l.bias_W_2").elements, 1024);

    /* no offset: u = 0, and the MLP has its biases alone */
    const mha_view made = mha_tensor_view(mha_layer_weight(layer, MHA_BIAS_TABLE)),
                   scale = mha_tensor_view(mha_layer_weight(layer, MHA_Q_NORM)),
                   stated = mha_tensor_view(mha_params_find(table, "l.logit_scale")),
                   b_1 = mha_tensor_view(mha_params_find(table, "l.bias_b_1")),
                   W_2 = mha_tensor_view(mha_params_find(table, "l.bias_W_2"));
    bool clamped = false, free_one = false;
    for (size_t head = 0; head < 2; head++) {
        const double s = mha_view_get(&stated, (size_t[]){head, 0, 0});
        double sum = 0;
        for (size_t k = 0; k < 512; k++)
            sum += mha_view_get(&W_2, (size_t[]){head, k}) * fmax(0, mha_view_get(&b_1, &k));
        const double expected = 16 / (1 + exp(-sum)), found = mha_view_get(&made, (size_t[]){12, head});
        assert_true(fabs(found - expected) <= 0x1p-23 * expected); /* rounded to float */
        for (size_t c = 0; c < 4; c++)
            assert_true(mha_view_get(&scale, (size_t[]){head, c}) == (double)(float)(s > log(100) ? 100 : exp(s)));
        *(s > log(100) ? &clamped : &free_one) = true;
    }
    assert_true(clamped && free_one);
    mha_layer_destroy(layer);
    assert_int_equal(mha_params_count(table), 0);
    mha_params_destroy(table);
    mha_file_close(file);
}

/* Relative embeddings that layers share are parameters of each that is loaded, as its own projections of them are. */
static void relative_tables_are_made(void **state)
{
    (void)state;
    const char *config, *path = copied("deberta-v2-own", DEBERTA, NULL, &config);
    mha_error error;
    mha_file *file;
    mha_layer *layer;
    mha_model_facts facts;
    assert_ok(mha_model_read_layer(config, DEBERTA, &facts, &error), error);
    assert_true(facts.made == (UINT64_C(1) << MHA_RELATIVE_K | UINT64_C(1) << MHA_RELATIVE_Q));
    assert_true(facts.semantics.added.relative.rule == MHA_RELATIVE_LOG_BUCKETS &&
                facts.semantics.added.relative.max_distance == 8);
    assert_true(facts.config.relative_k_rows == 10 && facts.config.relative_q_rows == 10 && !facts.relative_shared &&
                !*facts.relative_norm);
    assert_true(fabs(facts.semantics.softmax.scale - 1 / sqrt(4 * 3)) <= 0x1p-53); /* heads of 4 features, 3 products */
    assert_ok(mha_file_open(path, &file, &error), error);
    const mha_load_options options = {.layer = DEBERTA, .facts = &facts};
    assert_ok(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), error);
    const mha_totals totals = mha_params_totals(mha_layer_params(layer), NULL);
    assert_int_equal(totals.parameters, 10 * 16 + 6 * 16 * 17); /* E; W_Q, W_K, W_V, W_O and two more with biases */
    assert_int_equal(totals.derived_bytes, 2 * 10 * 16 * 4);
    const mha_view made = mha_tensor_view(mha_layer_weight(layer, MHA_RELATIVE_Q)),
                   E = mha_tensor_view(mha_params_find(mha_layer_params(layer), "relative_embeddings")),
                   W = mha_tensor_view(mha_params_find(mha_layer_params(layer), "W_relative_q")),
                   b = mha_tensor_view(mha_params_find(mha_layer_params(layer), "b_relative_q"));
    double expected = mha_view_get(&b, (size_t[]){5});
    for (size_t i = 0; i < 16; i++)
        expected += mha_view_get(&E, (size_t[]){9, i}) * mha_view_get(&W, (size_t[]){5, i});
    assert_true(mha_view_get(&made, (size_t[]){9, 5}) == (double)(float)expected);
    mha_layer_destroy(layer);

    facts.relative_norm[0] = facts.relative_table[0] = '\0'; /* as of a whole model */
    assert_refused(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), MHA_INVALID, error, "layer",
                   "prefix of a layer of the configuration", "");
    mha_file_close(file);
    static const char *const none[] = {"\"position_buckets\": 1", "\"position_buckets\": 1022", /* of P 512 */
                                       "\"max_relative_positions\": 32769"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"model_type\": \"deberta-v2\", \"relative_attention\": true, \"pos_att_type\": "
                 "[\"c2p\"], %s}", none[i]);
        const char *said = config_file(text);
        assert_ok(mha_model_read_layer(said, "deberta.encoder.layer.0.attention", &facts, &error), error);
        assert_non_null(strstr(facts.not_run, i < 2 ? "position_buckets" : "more than 65536 rows"));
    }
}

/* ---------------------------------------------------------------- refused */

static void sources_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        change change;
        mha_status status;
        const char *why;
    } cases[] = {
        {{.name = RELATIVE, .out = true}, MHA_NOT_FOUND, "of which relative_k is made"},
        {{.name = OWN "key_proj.weight", .out = true}, MHA_NOT_FOUND, "of which relative_k is made"},
        {{.name = OWN "key_proj.bias", .out = true}, MHA_NOT_FOUND, "of which relative_k is made"},
        {{.name = OWN "query_proj.bias", .out = true}, MHA_NOT_FOUND, "of which relative_q is made"},
        {{.name = RELATIVE, .rows = 9}, MHA_INVALID, "expected shape (10, 16) (relative_embeddings), found (9, 16)"},
        {{.name = OWN "query_proj.weight", .rows = 4}, MHA_INVALID, "expected shape (16, 16) (W_relative_q)"},
        {{.name = SCALE, .out = true}, MHA_NOT_FOUND, "of which q_norm is made"},
        {{.name = MLP ".0.weight", .out = true}, MHA_NOT_FOUND, "of which bias_table is made"},
        {{.name = MLP ".0.bias", .out = true}, MHA_NOT_FOUND, "of which bias_table is made"},
        {{.name = MLP ".2.weight", .out = true}, MHA_NOT_FOUND, "of which bias_table is made"},
        {{.name = SCALE, .rows = 1}, MHA_INVALID, "expected shape (2, 1, 1) (logit_scale), found (1, 1, 1)"},
        {{.name = MLP ".0.weight", .rows = 511}, MHA_INVALID, "expected shape (512, 2) (bias_W_1), found (511, 2)"},
        {{.name = MLP ".2.weight", .rows = 1}, MHA_INVALID, "expected shape (2, 512) (bias_W_2), found (1, 512)"},
        {{.name = SCALE, .dtype = MHA_I64}, MHA_UNSUPPORTED, "expected F32, F64, F16 or BF16, found I64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool swin = strncmp(cases[i].change.name, "swin", 4) == 0;
        const char *name = swin ? SWIN : DEBERTA;
        const char *config, *path = copied(swin ? "swinv2" : "deberta-v2-own", name, &cases[i].change, &config);
        mha_error error = {.status = MHA_OK};
        mha_file *file;
        mha_model_facts facts;
        mha_layer *layer = NULL;
        assert_ok(mha_model_read_layer(config, name, &facts, &error), error);
        assert_ok(mha_file_open(path, &file, &error), error);
        const mha_load_options options = {.layer = name, .facts = &facts};
        assert_refused(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), cases[i].status, error, "",
                       cases[i].why, "");
        assert_non_null(strstr(error.name, cases[i].change.name));
        mha_file_close(file);
    }
}

static void what_a_loader_lacks_is_refused(void **state)
{
    (void)state;
    const char *config, *path = copied("swinv2", SWIN, NULL, &config);
    mha_error error;
    mha_file *file;
    mha_model_facts facts;
    mha_layer *layer = NULL;
    mha_split split = {.scheme = MHA_SPLIT_TENSOR, .ranks = 2};
    assert_ok(mha_model_read_layer(config, SWIN, &facts, &error), error);
    assert_ok(mha_file_open(path, &file, &error), error);
    mha_load_options options = {.layer = SWIN, .facts = &facts};
    assert_refused(mha_model_load_share(file, &options, &split, 0, NULL, &layer, NULL, &error), MHA_UNSUPPORTED, error,
                   "ranks", "made of others", "found 2");
    options = (mha_load_options){.layer = SWIN, .n_heads = 2};
    assert_refused(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), MHA_INVALID, error,
                   "", "config.json", "biases");
    mha_file_close(file);
    assert_ok(mha_file_open("tests/layers/sam_vision_model.safetensors", &file, &error), error);
    options = (mha_load_options){.layer = "vision_encoder.layers.0.attn", .n_heads = 4};
    assert_refused(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), MHA_INVALID, error,
                   "", "config.json", "added to the scores");
    mha_file_close(file);

    assert_ok(mha_file_open("tests/layers/gpt2.safetensors", &file, &error), error);
    facts = (mha_model_facts){.config.n_heads = 4, .has_semantics = true, .made = UINT64_C(1) << MHA_Q_NORM};
    options = (mha_load_options){.facts = &facts};
    assert_refused(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), MHA_NOT_FOUND, error,
                   "logit_scale", "GPT-2", "");
    mha_file_close(file);
    const char *one = "{\"model_type\": \"swinv2\", \"pretrained_window_sizes\": [1, 6, 6, 6]}";
    const char *said = config_file(one);
    assert_ok(mha_model_read_layer(said, "swinv2.encoder.layers.0.blocks.0.attention", &facts, &error), error);
    assert_non_null(strstr(facts.not_run, "divided by 0"));
    assert_ok(mha_model_read_layer(said, "swinv2.encoder.layers.1.blocks.0.attention", &facts, &error), error);
    assert_string_equal(facts.not_run, "");
    assert_int_equal(facts.bias_span, 5);
}

typedef struct loading {
    mha_file *file;
    mha_model_facts facts;
} loading;

static mha_status load(mha_params *table, const void *context, mha_error *error)
{
    const loading *l = context;
    mha_layer *layer = NULL;
    const mha_load_options options = {.layer = SWIN, .facts = &l->facts};
    const mha_status status = mha_model_load_layer(l->file, &options, table, &layer, NULL, error);
    mha_layer_destroy(layer);
    return status;
}

static void every_failing_allocation_leaves_the_table_as_it_was(void **state)
{
    (void)state;
    loading l;
    mha_error error;
    const char *config, *path = copied("swinv2", SWIN, NULL, &config);
    assert_ok(mha_model_read_layer(config, SWIN, &l.facts, &error), error);
    assert_ok(mha_file_open(path, &l.file, &error), error);
    assert_true(counted_until_it_works(load, &l) >= 12); /* of each weight, each source, and the MLP */
    mha_file_close(l.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_are_counted_and_what_is_made_of_them_is_not),
        cmocka_unit_test(relative_tables_are_made),
        cmocka_unit_test(sources_that_do_not_fit_are_refused),
        cmocka_unit_test(what_a_loader_lacks_is_refused),
        cmocka_unit_test(every_failing_allocation_leaves_the_table_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
