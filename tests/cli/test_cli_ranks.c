/* mha params --ranks: what several processes would hold and send of a whole model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/unit.h"

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static bool is_refused(const json_t *row)
{
    return json_is_string(json_object_get(row, "refused"));
}

/* Elements that the ranks store again, from the whole layers and mha_split_copies. */
static json_int_t replicas(const mha_model *model, mha_split_scheme scheme, size_t ranks)
{
    json_int_t sum = 0;
    mha_model_layer described;
    for (size_t i = 0; mha_model_layer_at(model, i, &described); i++) {
        mha_split split = {scheme, ranks, described.config, 1, 9, 9, MHA_F32, 0, 0, false};
        mha_params *params;
        mha_layer *layer;
        mha_error error;
        assert_ok(mha_split_check(&split, &error), error);
        assert_int_equal(mha_params_create(NULL, &params), MHA_OK);
        assert_ok(mha_layer_create(&described.config, params, NULL, &layer, &error), error);
        for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
            const mha_tensor *tensor = mha_layer_weight(layer, w);
            if (tensor)
                sum += (json_int_t)(mha_tensor_info_of(tensor).elements * (mha_split_copies(&split, w) - 1));
        }
        mha_layer_destroy(layer);
        mha_params_destroy(params);
    }
    return sum;
}

static void check_ranks(const mha_model *model, json_int_t all, const char *preset, size_t ranks)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", ranks);
    json_t *root = RUN_JSON(0, "params", "--preset", preset, "--ranks", text, "--seq", "300", "--json"), *row;
    const json_int_t attention = number(root, "attention_parameters"), many = (json_int_t)ranks;
    size_t i, taken = 0;
    assert_int_equal(number(root, "parameters"), all);
    assert_true(attention <= all && attention > 0);
    json_array_foreach(json_object_get(root, "schemes"), i, row)
    {
        mha_split_scheme scheme;
        assert_true(mha_split_scheme_find(json_string_value(json_object_get(row, "scheme")), &scheme));
        if (is_refused(row))
            continue;
        const json_int_t mine = number(row, "attention_parameters"),
                         stored = number(row, "stored_attention_parameters");
        taken++;
        assert_int_equal(number(row, "parameters"), all - attention + mine);
        assert_int_equal(stored - attention, replicas(model, scheme, ranks));
        assert_true(mine <= attention && mine * many >= stored && real(row, "balance") >= 1);
        if (ranks == 1) {
            assert_int_equal(mine, attention);
            assert_int_equal(number(row, "sent_bytes"), 0);
        }
    }
    assert_true(taken >= (ranks == 1 ? 4 : 2)); /* ring and zigzag take any number */
    json_decref(root);
}

/* A large model is made once for all numbers of ranks. */
static void check_preset(const char *preset, const size_t *ranks, size_t count)
{
    mha_params *params;
    mha_model *model;
    mha_error error;
    const mha_model_spec spec = {.preset = preset};
    assert_int_equal(mha_params_create(NULL, &params), MHA_OK);
    assert_ok(mha_model_create(&spec, params, &model, &error), error);
    const json_int_t all = (json_int_t)mha_params_totals(params, NULL).parameters;
    for (size_t i = 0; i < count; i++)
        check_ranks(model, all, preset, ranks[i]);
    mha_model_destroy(model);
    mha_params_destroy(params);
}

static void test_every_preset(void **state)
{
    (void)state;
    static const size_t ranks[] = {2, 8, 7, 65536};
    for (size_t i = 0; mha_preset_at(i, NULL); i++)
        check_preset(mha_preset_at(i, NULL), (const size_t[]){1, ranks[i % 4]}, 2);
    check_preset("gpt2", (const size_t[]){65536}, 1);
    check_preset("llama-2-70b", (const size_t[]){16}, 1);
}

static const json_t *scheme_of(const json_t *root, size_t index)
{
    return json_array_get(json_object_get(root, "schemes"), index);
}

/* GPT-2 by hand: 12 layers of width 768, 12 heads of 64. */
static void test_numbers(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--preset", "gpt2", "--ranks", "4", "--seq", "1024", "--batch", "2", "--json",
                            "--machine", "100,50,1,10");
    const json_int_t matrices = 4 * 768 * 768, slices = 3 * 768, all = 12 * (matrices + slices + 768);
    const json_t *tensor = scheme_of(root, 0), *ring = scheme_of(root, 2), *by_rows = scheme_of(root, 5);
    assert_int_equal(number(root, "attention_parameters"), all);
    assert_int_equal(number(tensor, "attention_parameters"), 12 * ((matrices + slices) / 4 + 768)); /* b_O on rank 0 */
    assert_int_equal(number(tensor, "stored_attention_parameters"), all);
    assert_int_equal(number(tensor, "sent_bytes_layer"), 2 * 3 * (2 * 1024 * 768 / 4) * 4);
    assert_int_equal(number(tensor, "cache_bytes"), 12 * 2 * 1024 * 2 * 768 / 4 * 4);
    assert_int_equal(number(ring, "stored_attention_parameters"), 4 * all);
    assert_int_equal(number(ring, "sent_bytes"), 12 * 2 * 768 * 2 * 768 * 4);
    assert_int_equal(number(by_rows, "sent_bytes_layer"), 2 * 3 * (2 * 12 / 4) * 64 * 4 + 3 * (2 * 12 / 4) * 4);
    assert_true(real(ring, "balance") > 1.7 && real(scheme_of(root, 3), "balance") < 1.01);
    /* Attending to all: 2 operations for each of 128 features and each visible pair, on the rank with most. */
    const double pairs = 2.0 * 12 * (1024 * 1025 / 2.0) / 4;
    assert_true(real(tensor, "attend_seconds") > 12 * 2 * 128 * pairs / 100e9 * 0.999999);
    assert_true(real(tensor, "attend_seconds") < 12 * 2 * 128 * pairs / 100e9 * 1.000001);
    for (size_t i = 0; i < 6; i++) {
        const double model = real(scheme_of(root, i), "seconds"),
                     simulated = real(scheme_of(root, i), "simulated_seconds");
        assert_true(simulated > 0.99 * model && simulated < 1.01 * model);
    }
    json_decref(root);
    root = RUN_JSON(0, "params", "--preset", "bert-base-uncased", "--ranks", "9000", "--seq", "8", "--json",
                    "--machine", "100,50,1,10");
    assert_int_equal(json_array_size(json_object_get(root, "schemes")), 4); /* nothing is decoded */
    assert_true(is_refused(scheme_of(root, 0)) && !is_refused(scheme_of(root, 2)));
    assert_true(json_is_null(json_object_get(scheme_of(root, 2), "simulated_seconds"))); /* too many ranks */
    json_decref(root);
}

/* DeepSeek-V3 by hand: 61 layers of 128 heads of 128 + 64 and 128 features, latents of 1536 and of 512 + 64. */
static void test_latents(void **state)
{
    (void)state;
    const json_int_t down = 7168 * 1536 + 1536 + 7168 * (512 + 64) + 512,
                     heads = 1536 * 128 * 192 + 512 * 128 * (128 + 128) + 128 * 128 * 7168;
    json_t *root = RUN_JSON(0, "params", "--preset", "deepseek-v3", "--ranks", "16", "--seq", "4096", "--json");
    const json_t *tensor = scheme_of(root, 0), *ring = scheme_of(root, 2), *by_heads = scheme_of(root, 4),
                 *by_rows = scheme_of(root, 5), *names = json_object_get(tensor, "replicated");
    assert_int_equal(number(root, "attention_parameters"), 61 * (down + heads));
    assert_int_equal(number(tensor, "attention_parameters"), 61 * (down + heads / 16));
    assert_int_equal(number(tensor, "stored_attention_parameters"), 61 * (16 * down + heads));
    assert_int_equal(number(ring, "sent_bytes_layer"), 4096 / 16 * 15 * 128 * (192 + 128) * 4);
    assert_int_equal(number(by_heads, "cache_bytes"), 61 * 4096 * (512 + 64) * 4); /* latents, whole on each rank */
    assert_int_equal(number(by_rows, "cache_bytes"), 61 * 4096 / 16 * (512 + 64) * 4);
    static const char *const expected[] = {"W_QA", "qa_norm", "W_KVA", "kva_norm"};
    assert_int_equal(json_array_size(names), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_array_get(names, i)), expected[i]);
    json_decref(root);
    program_result r = RUN("params", "--preset", "deepseek-v3", "--ranks", "16", "--seq", "4096");
    assert_non_null(strstr(r.out, "replicas of tensor: W_QA, qa_norm, W_KVA, kva_norm\n"));
    assert_null(strstr(r.out, "replicas of ring"));
    program_free(&r);
}

/* A node of 2 cores that 8 ranks take turns on: longer than with a core and a link for each, and not simulated. */
static void test_nodes(void **state)
{
    (void)state;
    json_t *apart = RUN_JSON(0, "params", "--preset", "gpt2", "--ranks", "4", "--seq", "1024", "--json", "--machine",
                             "100,50,1,10"),
           *node = RUN_JSON(0, "params", "--preset", "gpt2", "--ranks", "4", "--seq", "1024", "--json", "--machine",
                            "100,50,1,10,2,4");
    for (size_t i = 0; i < 6; i++) {
        const json_t *row = scheme_of(node, i);
        assert_true(json_is_null(json_object_get(row, "simulated_seconds")));
        assert_true(real(row, "seconds") >= (i == 2 ? 1 : 2) * real(scheme_of(apart, i), "seconds"));
        assert_true(real(row, "join_seconds") > 0);
    }
    json_decref(apart);
    json_decref(node);
}

static void test_text(void **state)
{
    (void)state;
    program_result r = RUN("params", "--preset", "gpt2", "--ranks", "5", "--seq", "100");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "tensor, ulysses, decode by heads: 12 query heads and 12 key/value heads cannot be"));
    assert_non_null(strstr(r.out, "5 ranks share attention over 1 x 100 tokens"));
    assert_null(strstr(r.out, "fastest"));
    program_free(&r);
    r = RUN("params", "--preset", "gpt2", "--ranks", "4", "--seq", "100", "--machine", "100,50,1,10");
    assert_non_null(strstr(r.out, "fastest for all tokens: ulysses"));
    assert_non_null(strstr(r.out, "fastest for one more token: decode by heads"));
    program_free(&r);
    r = RUN("params", "--preset", "gpt2", "--ranks", "9000", "--seq", "100000", "--machine", "100,50,1,10", "--format",
            "csv");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "scheme,attention,replicas"));
    program_free(&r);
    r = RUN("params", "--preset", "gpt2", "--ranks", "4", "--seq", "100", "--quiet");
    assert_string_equal(r.out, "");
    program_free(&r);
}

/* Lengths are those of mha_model_layer_lengths: the cache that ranks keep together is that of one machine. */
static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *seq, *encoder_seq; /* NULL: none is given */
    } rows[] = {{"gemma-2-2b", "8192", NULL},  {"mistral-7b-v0.1", "16384", NULL}, {"t5-base", "512", NULL},
                {"t5-base", "512", "1024"},    {"whisper-large-v3", "448", NULL},  {"gpt2", NULL, NULL},
                {"mistral-7b-v0.1", NULL, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *seq = rows[i].seq ? rows[i].seq : "4096", *more = rows[i].encoder_seq ? "--encoder-seq" : NULL;
        json_t *one = RUN_JSON(0, "params", "--preset", rows[i].preset, "--json", "--seq", seq, more,
                               rows[i].encoder_seq);
        json_t *two = rows[i].seq ? RUN_JSON(0, "params", "--preset", rows[i].preset, "--json", "--ranks", "2", "--seq",
                                             seq, more, rows[i].encoder_seq)
                                  : RUN_JSON(0, "params", "--preset", rows[i].preset, "--json", "--ranks", "2");
        const json_int_t bytes = number(json_object_get(one, "kv_cache"), "bytes_f32");
        assert_int_equal(number(two, "seq"), atoi(seq));
        assert_int_equal(number(scheme_of(two, 0), "cache_bytes"), bytes / 2); /* by heads */
        assert_int_equal(number(scheme_of(two, 4), "cache_bytes"), bytes / 2);
        assert_int_equal(number(scheme_of(two, 5), "cache_bytes"), bytes / 2); /* one more token, by rows */
        json_decref(one);
        json_decref(two);
    }
    /* By rows of the sequence the last rank has all that windows keep: 4,096 rows of 13 layers, 4,096 of 13 others. */
    json_t *root = RUN_JSON(0, "params", "--preset", "gemma-2-2b", "--json", "--ranks", "2", "--seq", "8192");
    assert_int_equal(number(scheme_of(root, 2), "cache_bytes"), 26ll * 4096 * 2 * 4 * 256 * 4);
    assert_int_equal(number(scheme_of(root, 3), "cache_bytes"), (13ll * 4096 + 13 * 2048) * 2 * 4 * 256 * 4);
    json_decref(root);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *args[12], *text;
    } wrong[] = {
        {{"params", "--preset", "gpt2", "--ranks", "2", "--encoder-seq", "9"}, "--encoder-seq: expected a model"},
        {{"params", "--preset", "t5-small", "--encoder-seq", "9"}, "--encoder-seq: expected --seq beside it"},
        {{"params", "--preset", "gpt2", "--ranks", "0", "--seq", "9"}, "--ranks"},
        {{"params", "--ranks", "2", "--seq", "9"}, "--preset, --config or --weights"},
        {{"params", "--preset", "gpt2", "--seq", "9", "--machine", "1,1,1,1"}, "--machine"},
        {{"params", "--preset", "gpt2", "--ranks", "2", "--seq", "9", "--machine", "1,1,1"}, "four numbers"},
        {{"params", "--preset", "gpt2", "--ranks", "2", "--seq", "9", "--machine", "1,1,1,1,1"}, "four numbers"},
        {{"params", "--preset", "gpt2", "--ranks", "2", "--seq", "9", "--machine", "1,1,1,1,"}, "four numbers"},
        {{"params", "--preset", "gpt2", "--ranks", "2", "--seq", "9", "--machine", "1,1,1,1,2,0"},
         "or six with the cores"},
        {{"params", "--preset", "gpt2", "--ranks", "2", "--seq", "9", "--machine", "1,0,1,1"},
         "positive number for memory"},
        {{"params", "--preset", "gpt2", "--ranks", "2", "--seq", "9", "--only", "ffn"}, "nothing beside --ranks"},
        {{"params", "--preset", "gpt2", "--ranks", "2", "--seq", "2147483647", "--batch", "999999999"},
         "fit in 64 bits"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_result r = program_run(wrong[i].args);
        if (r.code != 2 || !strstr(r.err, wrong[i].text))
            fail_msg("%zu: %s", i, r.err);
        program_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_preset), cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_latents), cmocka_unit_test(test_nodes),
                                       cmocka_unit_test(test_text), cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
