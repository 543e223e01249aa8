/* mha params and mha heads for whole models and for files, --merged-qk, mha claims. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/file.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* ---------------------------------------------------------------- params */

static void presets_have_their_published_totals(void **state)
{
    (void)state;
    static const struct {
        const char *args[8];
        json_int_t total, attention;
    } cases[] = {
        {{"params", "--json", "--preset", "gpt2"}, 124439808, 28348416},
        {{"params", "--json", "--preset", "bert-base-uncased", "--class", "BertForPreTraining"}, 110106428, 28348416},
        {{"params", "--json", "--preset", "bert-base-uncased", "--class", "MaskedLM"}, 109514298, 28348416},
        {{"params", "--json", "--preset", "llama-2-70b", "--dtype", "bf16"}, 68976648192, 12079595520},
        {{"params", "--json", "--preset", "roberta-30522", "--heads", "4"}, 109514298, 28348416},
        {{"params", "--json", "--preset", "llama-2-70b", "--kv-heads", "64"}, 78371889152, 21474836480},
        {{"params", "--json", "--preset", "distilbert-base-uncased"}, 66985530, 14174208},
        {{"params", "--json", "--preset", "deberta-v3-base"}, 183831552, 28348416}, /* a size of -1: the default */
        {{"params", "--json", "--preset", "mpnet-base", "--class", "MPNetModel"}, 109486464, 28348416},
        {{"params", "--json", "--preset", "beit"}, 86530984, 28444608},
        {{"params", "--json", "--preset", "swin-"}, 28288354, 8667162},
        {{"params", "--json", "--preset", "swinv2"}, 28347154, 8728650},
        {{"params", "--json", "--preset", "umt5"}, 306601984, 18877440},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = run_json(0, cases[i].args), *row;
        json_int_t elements = 0;
        size_t r;
        assert_keys(root,
                    "total_parameters,attention_parameters,total_bytes,buffer_elements,inert_elements,storages,tensors,"
                    "model,weight_bytes");
        assert_int_equal(number(root, "total_parameters"), cases[i].total);
        assert_int_equal(number(root, "attention_parameters"), cases[i].attention);
        json_array_foreach(json_object_get(root, "tensors"), r, row)
        {
            bool owner = json_is_null(json_object_get(row, "alias_of"));
            bool parameter = strcmp(json_string_value(json_object_get(row, "kind")), "parameter") == 0;
            elements += owner && parameter ? number(row, "elements") : 0;
        }
        assert_int_equal(elements, cases[i].total);
        json_decref(root);
    }
}

/* The list has all presets; what it says of the first of each type of model is what the name stands for. */
static void presets_are_listed(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--preset", "list", "--json"), *presets = json_object_get(root, "presets"),
           *preset;
    program_result table = RUN("forward", "--preset", "list", "--wide"),
                   quiet = RUN("heads", "--preset", "list", "--quiet"),
                   csv = RUN("params", "--preset", "list", "--format", "csv");
    assert_int_equal(table.code, 0);
    assert_string_equal(table.err, "");
    assert_non_null(strstr(csv.out, "\ngpt2-large,GPT-2,GPT2LMHeadModel,1280,20,20,64,36,774030080\n"));
    size_t i, lines = 0;
    const char *type = "";
    json_array_foreach(presets, i, preset)
    {
        static const char *const same[] = {"model_type", "class", "d_model",         "heads",
                                           "kv_heads",   "d_k",   "attention_layers"};
        const char *name = json_string_value(json_object_get(preset, "name"));
        char start[64], path[120];
        snprintf(start, sizeof start, "\n  %s ", name);
        snprintf(path, sizeof path, "weights/presets/%s.json", name);
        assert_non_null(strstr(table.out, start));
        assert_int_equal(access(path, R_OK), 0);
        if (strcmp(type, json_string_value(json_object_get(preset, "model_type"))) == 0)
            continue;
        type = json_string_value(json_object_get(preset, "model_type"));
        json_t *whole = RUN_JSON(0, "params", "--preset", name, "--json", "--only", "embedding"),
               *model = json_object_get(whole, "model");
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            assert_true(json_equal(json_object_get(preset, same[k]), json_object_get(model, same[k])));
        assert_int_equal(number(preset, "total_parameters"), number(whole, "total_parameters"));
        json_decref(whole);
    }
    for (const char *line = table.out; *line; line += strcspn(line, "\n") + 1)
        lines++;
    assert_int_equal(lines, i + 1);
    assert_int_equal(quiet.code, 0);
    assert_string_equal(quiet.out, "");
    program_free(&quiet);
    program_free(&table);
    program_free(&csv);
    assert_program_refuses(RUN("params", "--preset", "list", "--heads", "4"), 2,
                           "--heads: expected nothing beside --preset list");
    assert_program_refuses(RUN("forward", "--output", "x.npy", "--preset", "list"), 2,
                           "--output: expected nothing beside --preset list");
    assert_program_refuses(RUN("params", "--preset", "list", "--json", "--format", "csv"), 2,
                           "--format: expected json beside --json");
    json_decref(root);
}

static void views_fold_filter_and_sort(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--preset", "gpt2", "--json", "--group", "part", "--seq", "1024"), *group;
    json_int_t sum = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "groups"), i, group)
    {
        assert_keys(group, "name,tensors,elements,bytes,percent");
        sum += number(group, "elements");
    }
    assert_int_equal(i, 4);
    assert_int_equal(sum, 124439808);
    /* 12 layers, all pairs: Q K^T and A V take 2 * 1024^2 * 768 each; visible: 1025/2048 of it. */
    json_t *flops = json_object_get(root, "flops");
    assert_int_equal(number(flops, "scores_all_pairs"), 12LL * 2 * 2 * 1024 * 1024 * 768);
    assert_int_equal(number(flops, "scores_visible_pairs"), 12LL * 2 * 2 * (1024 * 1025 / 2) * 768);
    assert_int_equal(number(flops, "projections"), 12LL * 2 * 1024 * 4 * 768 * 768);
    assert_int_equal(number(flops, "feed_forward"), 12LL * 2 * 1024 * 2 * 768 * 3072);
    assert_int_equal(number(flops, "heads"), 2LL * 1024 * 50257 * 768);
    assert_int_equal(number(json_object_get(root, "kv_cache"), "elements"), 12LL * 1024 * 2 * 768);
    json_decref(root);

    root = RUN_JSON(0, "params", "--preset", "gpt2", "--json", "--only", "ffn");
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), 48);
    json_decref(root);
    root = RUN_JSON(0, "params", "--preset", "gpt2", "--json", "--depth", "1", "--sort", "elements");
    group = json_array_get(json_object_get(root, "groups"), 0);
    assert_string_equal(json_string_value(json_object_get(group, "name")), "h");
    assert_int_equal(number(group, "elements"), 12 * 7087872);
    json_decref(root);

    program_result r = RUN("params", "--preset", "gpt2", "--only", "attention", "--sort", "name");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "h.{i}.attn.c_attn.weight  (768, 2304)"));
    assert_non_null(strstr(r.out, "9,216 inert"));
    assert_null(strstr(r.out, "mlp"));
    program_free(&r);
    r = RUN("params", "--preset", "gpt2", "--all", "--per-head", "--wide");
    assert_non_null(strstr(r.out, "h.11.mlp.c_fc.bias"));
    assert_non_null(strstr(r.out, "0 B  same storage as wte.weight")); /* an alias adds nothing */
    assert_non_null(strstr(r.out, "columns 704 to 767"));
    program_free(&r);
    r = RUN("params", "--preset", "gpt2", "--format", "csv");
    assert_non_null(strstr(r.out, "\nh.11.attn.c_proj.weight,W_O,\"(768, 768)\",F32,F32,589824,2359296,"));
    program_free(&r);
    r = RUN("params", "--preset", "gpt2", "--format", "markdown", "--group", "role");
    assert_non_null(strstr(r.out, "| W_QKV"));
    program_free(&r);
}

static void a_config_says_what_was_assumed(void **state)
{
    (void)state;
    const char *config = scratch("assumed.json");
    write_text(config,
               "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 8, \"vocab_size\": 100}");
    json_t *root = RUN_JSON(0, "params", "--config", config, "--json");
    json_t *assumed = json_object_get(json_object_get(root, "model"), "assumed");
    assert_int_equal(number(assumed, "intermediate_size"), 11008);
    assert_int_equal(number(assumed, "num_key_value_heads"), 8);
    assert_null(json_object_get(assumed, "hidden_size"));
    json_decref(root);
    program_result r = RUN("params", "--config", config);
    assert_non_null(strstr(r.out, "num_hidden_layers = 32"));
    assert_null(strstr(r.out, "not read"));
    program_free(&r);
}

static void keys_that_nothing_reads_are_told_or_refused(void **state)
{
    (void)state;
    const char *config = scratch("unread.json");
    write_text(config, "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"num_experts\": 8, \"note\": \"x\"}");
    json_t *root = RUN_JSON(0, "params", "--config", config, "--json");
    const json_t *unread = json_object_get(json_object_get(root, "model"), "unread");
    assert_int_equal(json_array_size(unread), 2);
    assert_string_equal(json_string_value(json_array_get(unread, 0)), "num_experts");
    json_decref(root);
    program_result r = RUN("params", "--config", config);
    assert_non_null(strstr(r.out, "\nnot read, and not known: num_experts, note\n\n"));
    program_free(&r);
    write_text(config, "{\"model_type\": \"llama\", \"num_extra_layers\": 1}");
    assert_program_refuses(RUN("params", "--config", config), 2, "num_extra_layers*may depend*no_effect");
    assert_program_refuses(RUN("forward", "--config", config), 2, "num_extra_layers*may depend*leave it out");
    assert_program_refuses(RUN("heads", "--config", config), 2, "num_extra_layers*may depend");
}

static void requests_without_meaning_are_refused(void **state)
{
    (void)state;
    const char *config = scratch("mamba.json");
    write_text(config, "{\"model_type\": \"mamba\"}");
    assert_program_refuses(RUN("params", "--preset", "gpt9"), 2, "--preset*bert-base-cased*'gpt9'");
    assert_program_refuses(RUN("params", "--config", config), 2, "model_type*help architectures*'mamba'");
    assert_program_refuses(RUN("params", "--config", scratch("none.json")), 2, "none.json");
    assert_program_refuses(RUN("params", "--preset", "gpt2", "--config", config), 2, "--config*both");
    assert_program_refuses(RUN("params", "--preset", "gpt2", "--class", "x"), 2, "--class*GPT2LMHeadModel*'x'");
    assert_program_refuses(RUN("params", "--preset", "gpt2", "--d-k", "3"), 2, "--d-k*--preset");
    assert_program_refuses(RUN("params", "--preset", "gpt2", "--no-bias"), 2, "--no-bias*--preset");
    assert_program_refuses(RUN("params", "--preset", "gpt2", "--heads", "5"), 2, "768*5 heads");
    assert_program_refuses(RUN("params", "--group", "role"), 2, "--group*--preset");
    assert_program_refuses(RUN("params", "--weights", "weights/lookup/model.safetensors", "--heads", "2"), 2,
                           "--heads*--weights");
    assert_program_refuses(RUN("heads", "--class", "x"), 2, "--class*--preset");
    assert_program_refuses(RUN("heads", "--preset", "gpt2", "--heads", "5"), 2, "768*5 heads*6, 8");
    program_result advice = RUN("heads", "--preset", "gpt2", "--heads", "7"); /* none that the program refuses itself */
    assert_null(strstr(advice.err, "d_k"));
    program_free(&advice);
    assert_program_refuses(RUN("heads", "--preset", "nope"), 2, "--preset*'nope'");
}

/* What is wrong in a configuration is said of the file, by the file's own names; of an option only
 * where one was given. */
static void configurations_are_blamed_for_themselves(void **state)
{
    (void)state;
    const char *config = scratch("blamed.json");
    write_text(config, "{\"model_type\": \"gpt2\", \"n_head\": 5}");
    assert_program_refuses(RUN("params", "--config", config), 2, "blamed.json: *768*5 heads");
    assert_program_refuses(RUN("params", "--config", config, "--heads", "7"), 2, "--heads: *768*7 heads");
    assert_program_refuses(RUN("forward", "--config", config), 2, "blamed.json: *768*5 heads");
    assert_program_refuses(RUN("heads", "--config", config, "--heads", "7"), 2, "--heads: *768*7 heads");
    assert_program_refuses(RUN("forward", "--weights", "weights/lookup/model.safetensors", "--config", config), 2,
                           "blamed.json: *768*5 heads");
    write_text(config, "{\"model_type\": \"llama\", \"num_key_value_heads\": 5}");
    assert_program_refuses(RUN("params", "--config", config), 2, "blamed.json: kv_heads: *32 heads, found 5");
    assert_program_refuses(RUN("params", "--config", config, "--kv-heads", "7"), 2, "--kv-heads: *32 heads, found 7");
    write_text(config, "{\"model_type\": \"bert\", \"architectures\": [\"BertForFun\"]}");
    assert_program_refuses(RUN("params", "--config", config), 2, "blamed.json: architectures: *'BertForFun'");
    assert_program_refuses(RUN("params", "--config", config, "--class", "Fun"), 2, "--class: *'Fun'");
    write_text(config, "{\"model_type\": \"bert\", \"num_hidden_layers\": 0}");
    assert_program_refuses(RUN("forward", "--config", config), 2,
                           "--config: expected a model with attention layers, found none");
}

/* What a description says reaches the terminal without the characters that command it. */
static void descriptions_command_no_terminal(void **state)
{
    (void)state;
    char config[256], description[256];
    snprintf(config, sizeof config, "%s", scratch("plain.json"));
    snprintf(description, sizeof description, "%s", scratch("escapes.json"));
    write_text(config, "{\"model_type\": \"zzz\"}");
    write_text(description,
               "{\"title\": \"T\\u001b]0;x\\u0007\\u009b31m\\u202e\", \"symbols\": {\"d_model\": {\"value\": 8},"
               " \"h\": {\"value\": 2}, \"h_kv\": {\"value\": 2}, \"d_k\": {\"value\": 4},"
               " \"L\": {\"key\": \"n\\u001b[31m\", \"default\": 2}}, \"classes\": {\"C\\u001b[1m\": \"lm\"},"
               " \"tensors\": {\"layers\": {\"blocks\": \"L\", \"prefix\": \"m.{i}.\", \"rows\": [{\"name\": \"q\","
               " \"shape\": \"d_model, d_model\", \"group\": \"attention\", \"role\": \"W_Q\"}]}},"
               " \"attention\": [{\"blocks\": \"L\", \"prefix\": \"m.{i}.\"}]}");
    for (int ranks = 0; ranks < 2; ranks++) {
        program_result r = ranks ? RUN("params", "--config", config, "--architecture", description, "--seq", "4",
                                       "--ranks", "2")
                                 : RUN("params", "--config", config, "--architecture", description);
        assert_int_equal(r.code, 0);
        assert_non_null(strstr(r.out, "(C"));
        assert_null(strchr(r.out, '\033'));
        assert_null(strchr(r.out, '\007'));
        assert_null(strstr(r.out, "\xc2\x9b"));
        assert_null(strstr(r.out, "\xe2\x80\xae"));
        program_free(&r);
    }
}

/* Writes a file of small matrices of these names. */
static void write_named(const char *path, const char *name, ...)
{
    static float data[16];
    mha_error error;
    mha_writer *writer;
    va_list names;
    const mha_view square = mha_view_of(data, MHA_F32, 2, (size_t[]){4, 4});
    assert_ok(mha_writer_create(path, &writer, &error), error);
    va_start(names, name);
    for (; name; name = va_arg(names, const char *))
        assert_ok(mha_writer_add(writer, name, &square, &error), error);
    va_end(names);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
}

static void files_are_listed_and_held_against_their_configs(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--weights", "weights/lookup/model.safetensors", "--json");
    assert_int_equal(number(root, "total_parameters"), 9408);
    assert_int_equal(number(root, "attention_parameters"), 9408);
    assert_int_equal(number(root, "unique_parameters"), 9408);
    assert_int_equal(number(root, "differences"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "file"), "format")), "safetensors");
    json_decref(root);
    root = RUN_JSON(1, "params", "--weights", "weights/lookup/model.safetensors", "--preset", "gpt2", "--json");
    assert_int_equal(number(root, "differences"), 148 + 4); /* all of GPT-2 is missing, four tensors are extra */
    assert_int_equal(json_array_size(json_object_get(root, "findings")), 148 + 4);
    json_decref(root);
    program_result r = RUN("params", "--weights", "weights/lookup/model.safetensors", "--preset", "gpt2");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "missing      wte.weight: expected (50257, 768)"));
    program_free(&r);
    root =
        RUN_JSON(0, "params", "--weights", "tests/vectors/torch_self.safetensors", "--json"); /* no config.json there */
    assert_null(json_object_get(root, "differences"));
    assert_int_equal(json_array_size(json_object_get(root, "architectures")), 0);
    json_decref(root);
    /* A file beside which there is no configuration: its names say whose it is. */
    const char *alone = scratch("alone.safetensors");
    write_named(alone, "encoder.layer.0.attention.self.query.weight",
                "encoder.layer.0.attention.self.key.weight", "encoder.layer.0.attention.self.value.weight",
                "encoder.layer.0.attention.output.dense.weight", NULL);
    root = RUN_JSON(0, "params", "--weights", alone, "--json");
    json_t *like = json_object_get(root, "architectures");
    assert_string_equal(json_string_value(json_array_get(like, 0)), "bert");
    json_decref(root);
    r = RUN("params", "--weights", alone);
    assert_non_null(strstr(r.out, "its tensors have the names of bert"));
    program_free(&r);
}

/* ---------------------------------------------------------------- heads */

static void head_counts_of_models_are_compared(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "heads", "--preset", "roberta-base", "--heads", "1,2,3,4,6,8,12", "--json"), *row;
    size_t i;
    assert_true(json_is_true(json_object_get(root, "invariant")));
    json_array_foreach(json_object_get(root, "rows"), i, row)
    {
        assert_keys(row, "heads,d_k,d_v,total_parameters,storages,output_max_abs");
        assert_int_equal(number(row, "total_parameters"), 124697433);
        assert_int_equal(number(row, "differing_shapes"), 0);
        assert_true(json_is_null(json_object_get(row, "output_max_abs")));
    }
    assert_int_equal(i, 7);
    json_decref(root);
    static const struct {
        const char *preset, *asked;
        long long own;
        size_t rows;
    } models[] = {
        {"llama-2-70b", NULL, 64, 4}, {"gpt2", "1,2", 12, 3}, {"gpt2", "12,6", 12, 2}, {"t5-11b", NULL, 128, 11}};
    for (size_t m = 0; m < 4; m++) { /* the model's own head count is always among the rows, and marked */
        program_result r =
            RUN("heads", "--preset", models[m].preset, "--json", models[m].asked ? "--heads" : NULL, models[m].asked);
        root = json_loads(r.out, 0, NULL);
        json_t *list = json_object_get(root, "rows"), *one;
        size_t at, marked = 0;
        assert_int_equal(json_array_size(list), models[m].rows);
        json_array_foreach(list, at, one)
        {
            assert_int_equal(json_is_true(json_object_get(one, "own")),
                             json_integer_value(json_object_get(one, "heads")) == models[m].own);
            marked += json_is_true(json_object_get(one, "own"));
        }
        assert_int_equal(marked, 1);
        json_decref(root);
        program_free(&r);
    }
    root = RUN_JSON(1, "heads", "--preset", "gemma-2b", "--heads", "4,8", "--json");
    assert_non_null(strstr(json_string_value(json_object_get(root, "reason")), "d_k = 256 is held fixed"));
    json_decref(root);
    root = RUN_JSON(1, "heads", "--preset", "llama-3-8b", "--heads", "16,32", "--json");
    assert_non_null(strstr(json_string_value(json_object_get(root, "reason")), "8 key/value heads are held fixed"));
    json_decref(root);
    const char *config = scratch("small.json");
    write_text(config,
               "{\"model_type\": \"bert\", \"hidden_size\": 24, \"num_attention_heads\": 2, \"intermediate_size\": "
               "48, \"num_hidden_layers\": 2}");
    root = RUN_JSON(0, "heads", "--config", config, "--run", "--seq", "5", "--json");
    json_array_foreach(json_object_get(root, "rows"), i, row)
        assert_true(json_real_value(json_object_get(row, "output_max_abs")) > 0);
    assert_int_equal(i, 8); /* 1, 2, 3, 4, 6, 8, 12, 24 divide 24 */
    json_decref(root);
    program_result r = RUN("heads", "--config", config);
    assert_non_null(strstr(r.out, "Every tensor has the same shape in every row"));
    program_free(&r);
}

/* ---------------------------------------------------------------- one matrix instead of two */

static void the_merged_matrix_is_counted_and_scores_the_same(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--merged-qk", "--d-model", "64", "--heads", "8", "--no-bias", "--json");
    json_t *merged = json_object_get(root, "merged_qk");
    assert_int_equal(number(root, "total_parameters"), 4 * 64 * 64);
    assert_int_equal(number(merged, "pair_elements"), 2 * 64 * 64);
    assert_int_equal(number(merged, "merged_elements"), 8 * 64 * 64);
    assert_int_equal(number(merged, "pair_elements_per_head"), 2 * 64 * 8);
    assert_int_equal(number(merged, "merged_elements_per_head"), 64 * 64);
    assert_int_equal(number(merged, "rank"), 8);
    assert_int_equal(number(merged, "pair_smaller_from_heads"), 4); /* of those that divide 64; equal at 2 */
    json_decref(root);
    static const char *const runs[][12] = {
        {"forward", "--merged-qk", "--json", "--d-model", "24", "--heads", "4", "--seq", "9"},
        {"forward", "--merged-qk", "--json", "--d-model", "24", "--heads", "4", "--seq", "9", "--no-bias"},
        {"forward", "--merged-qk", "--json", "--d-model", "24", "--heads", "1", "--batch", "3"},
        {"forward", "--merged-qk", "--json", "--d-model", "24", "--heads", "6", "--kv-heads", "2", "--kdim", "10"},
        {"forward", "--merged-qk", "--json", "--weights", "weights/lookup/model.safetensors"},
    };
    static const json_int_t ranks[] = {6, 6, 24, 4, 8};
    for (size_t i = 0; i < 5; i++) {
        root = run_json(0, runs[i]);
        assert_true(json_is_true(json_object_get(root, "equal")));
        assert_true(json_number_value(json_object_get(root, "max_abs_difference")) < 1e-12);
        assert_int_equal(number(root, "rank"), ranks[i]);
        json_decref(root);
    }
    assert_program_refuses(RUN("forward", "--merged-qk", "--rope", "half"), 2, "--merged-qk*rotation");
    assert_program_refuses(RUN("forward", "--merged-qk", "--output", "x.npy"), 2, "--output*--merged-qk");
    assert_program_refuses(RUN("params", "--merged-qk", "--preset", "gpt2"), 2, "--preset*--merged-qk");
}

/* ---------------------------------------------------------------- claims */

static void claims_are_told_with_their_verdicts(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "claims", "--json"), *claims = json_object_get(root, "claims"), *claim;
    size_t i, verdicts = 0;
    assert_true(json_array_size(claims) >= 45);
    json_array_foreach(claims, i, claim)
    {
        const char *verdict = json_string_value(json_object_get(claim, "verdict"));
        assert_keys(claim, "source,statement,stated,counted,verdict,condition");
        assert_true(strcmp(verdict, "true") == 0 || strcmp(verdict, "false") == 0 || strcmp(verdict, "only if") == 0);
        verdicts += strcmp(verdict, "false") == 0;
    }
    assert_int_equal(verdicts, number(root, "false"));
    json_decref(root);
    program_result r = RUN("claims");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "917,504"));
    assert_non_null(strstr(r.out, "true only under a condition"));
    program_free(&r);
}

/* Latent attention of no rank, or of half a pair, is no other attention. */
static void latents_of_no_size_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"\"kv_lora_rank\": 0", "kv_lora_rank"},
                                           {"\"v_head_dim\": 0", "v_head_dim"},
                                           {"\"qk_rope_head_dim\": 3", "an even number"},
                                           {"\"qk_rope_head_dim\": 0", "pairs"}};
    for (size_t i = 0; i < 4; i++) {
        char text[400], config[256];
        snprintf(text, sizeof text, "{\"model_type\": \"deepseek_v%d\", \"hidden_size\": 16, \"num_hidden_layers\": 1,"
                 " \"num_attention_heads\": 2, \"vocab_size\": 9, \"intermediate_size\": 8, %s}",
                 i % 2 ? 3 : 2, wrong[i][0]);
        snprintf(config, sizeof config, "%s", scratch_write("latent.json", text, strlen(text)));
        assert_program_refuses(RUN("params", "--config", config), 2, wrong[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_of_no_size_are_refused),
        cmocka_unit_test(presets_have_their_published_totals),
        cmocka_unit_test(presets_are_listed),
        cmocka_unit_test(views_fold_filter_and_sort),
        cmocka_unit_test(a_config_says_what_was_assumed),
        cmocka_unit_test(keys_that_nothing_reads_are_told_or_refused),
        cmocka_unit_test(requests_without_meaning_are_refused),
        cmocka_unit_test(configurations_are_blamed_for_themselves),
        cmocka_unit_test(descriptions_command_no_terminal),
        cmocka_unit_test(files_are_listed_and_held_against_their_configs),
        cmocka_unit_test(head_counts_of_models_are_compared),
        cmocka_unit_test(the_merged_matrix_is_counted_and_scores_the_same),
        cmocka_unit_test(claims_are_told_with_their_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, scratch_remove);
}
