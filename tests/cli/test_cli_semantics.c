/* Every option that says what attention shall mean reaches the library: read back from a saved case. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/unit.h"

#define SMALL "--d-model", "24", "--heads", "4", "--seq", "6"

static void write_tensors(const char *path, size_t n, const char *const *names, const mha_view *views)
{
    mha_writer *writer;
    mha_error error;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < n; i++)
        assert_ok(mha_writer_add(writer, names[i], &views[i], &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
}

/* One number of a file as float64: element `at` of a tensor, or a metadata value. */
static double number_in(const char *path, const char *name, size_t at)
{
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    const mha_file_tensor *t = mha_file_find(file, name);
    double value = NAN;
    if (t) {
        assert_true(at < t->elements);
        double *data = calloc(t->elements, sizeof *data);
        mha_view view = mha_view_of(data, t->dtype == MHA_I64 ? MHA_I64 : MHA_F64, t->rank, t->shape);
        assert_ok(mha_file_read(file, t, &view, &error), error);
        value = t->dtype == MHA_I64 ? (double)((int64_t *)(void *)data)[at] : data[at];
        free(data);
    } else if (mha_file_metadata(file, name))
        value = atof(mha_file_metadata(file, name));
    else
        fail_msg("%s holds no %s", path, name);
    mha_file_close(file);
    return value;
}

/* NULL: the file does not have the key, and what holds without it is meant. */
static bool says(const char *path, const char *key, const char *value)
{
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    const char *found = mha_file_metadata(file, key);
    bool same = found && value ? strcmp(found, value) == 0 : found == value;
    if (!same)
        print_error("%s is %s, expected %s\n", key, found ? found : "absent", value ? value : "none");
    mha_file_close(file);
    return same;
}

static void save(const char *path, const char *const *more)
{
    const char *args[40] = {"forward", SMALL, "--batch", "2", "--quiet", "--save-case", path};
    size_t n = 12;
    while (*more)
        args[n++] = *more++;
    program_result r = program_run(args);
    if (r.code)
        print_error("%s", r.err);
    assert_int_equal(r.code, 0);
    program_free(&r);
    json_decref(RUN_JSON(0, "check", path, "--json")); /* what was recorded is what is judged */
}
#define SAVE(path, ...) save(path, (const char *const[]){__VA_ARGS__, NULL})

/* Press et al. 2022: for a power of two heads 2^(-8 i / heads), else those of the next lower one and
 * every other one of twice as many. */
static void test_alibi_slopes(void **state)
{
    (void)state;
    const char *path = scratch("case.safetensors");
    SAVE(path, "--alibi", "--causal");
    for (size_t i = 0; i < 4; i++)
        assert_float_equal(number_in(path, "alibi_slopes", i), exp2(-2.0 * (double)(i + 1)), 1e-15);
    SAVE(path, "--alibi", "--heads", "6");
    const double of_six[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
    for (size_t i = 0; i < 6; i++)
        assert_float_equal(number_in(path, "alibi_slopes", i), of_six[i], 1e-15);
}

/* What a case says of a call is what the options gave; the report of each setting is tested by test_cli_settings. */
static void test_saved_settings(void **state)
{
    (void)state;
    const char *path = scratch("case.safetensors");
    SAVE(path, "--causal", "--position-offset", "3", "--window", "4,2", "--softcap", "30.5");
    assert_true(says(path, "causal", "1"));
    assert_true(number_in(path, "position_offset", 0) == 3 && number_in(path, "position_offset", 1) == 3);
    assert_true(number_in(path, "window_left", 0) == 4 && number_in(path, "window_right", 0) == 2);
    assert_true(number_in(path, "softcap", 0) == 30.5);
    SAVE(path, "--causal", "--position-offset", "4", "--key-offset", "2", "--rope", "half", "--rope-dim", "4");
    assert_true(number_in(path, "position_offset", 0) == 4 && number_in(path, "key_offset", 0) == 2);
    assert_true(says(path, "rope", "half_split") && number_in(path, "rope_dim", 0) == 4);
    SAVE(path, "--kv-heads", "2");
    assert_true(says(path, "scale", NULL) && says(path, "softcap", NULL));
    assert_true(number_in(path, "kv_heads", 0) == 2);
}

static void test_hidden_keys(void **state)
{
    (void)state;
    const char *path = scratch("case.safetensors");
    SAVE(path, "--lengths", "0,5", "--hidden-values", "propagate");
    assert_true(number_in(path, "kv_lengths", 0) == 0 && number_in(path, "kv_lengths", 1) == 5);
    assert_true(says(path, "hidden_values", "propagate"));
    assert_true(number_in(path, "expected.weights", 0) == 0); /* row 0 sees no key, and its weights are zero */
    SAVE(path, "--lengths", "3,5");
    assert_true(says(path, "hidden_values", NULL));
    json_t *asked =
        RUN_JSON(0, "forward", SMALL, "--lengths", "0", "--empty-rows", "nan", "--json"); /* NaN was asked for */
    assert_true(json_is_false(json_object_get(json_object_get(asked, "output"), "finite")));
    json_decref(asked);
    program_result r = RUN("forward", SMALL, "--lengths", "0", "--empty-rows", "nan");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "NaN where a query sees no key, as asked"));
    program_free(&r);
    json_decref(RUN_JSON(0, "forward", SMALL, "--lengths", "0", "--empty-rows", "zero", "--json"));
}

/* The exact path keeps what float32 cannot hold; 0.1 rounds. */
static void test_float64_inputs_stay_so_on_the_exact_path(void **state)
{
    (void)state;
    double wide[24];
    float narrow[24];
    for (size_t i = 0; i < 24; i++)
        narrow[i] = (float)(wide[i] = 0.1 * (double)(i + 1));
    char wide_path[600], narrow_path[600], outputs[2][600];
    snprintf(wide_path, sizeof wide_path, "%s", scratch("wide.npy"));
    snprintf(narrow_path, sizeof narrow_path, "%s", scratch("narrow.npy"));
    mha_view views[2] = {mha_view_of(wide, MHA_F64, 2, (size_t[]){1, 24}),
                         mha_view_of(narrow, MHA_F32, 2, (size_t[]){1, 24})};
    write_tensors(wide_path, 1, (const char *const[]){"x"}, &views[0]);
    write_tensors(narrow_path, 1, (const char *const[]){"x"}, &views[1]);
    for (int i = 0; i < 2; i++) {
        snprintf(outputs[i], sizeof outputs[i], "%s", scratch(i ? "narrow-out.npy" : "wide-out.npy"));
        program_result r = RUN("forward", "--d-model", "24", "--heads", "4", "--path", "exact", "--input",
                               i ? narrow_path : wide_path, "--output", outputs[i], "--quiet");
        assert_int_equal(r.code, 0);
        program_free(&r);
    }
    json_decref(RUN_JSON(1, "compare", outputs[0], outputs[1], "--json"));
    json_decref(RUN_JSON(0, "compare", outputs[0], outputs[1], "--json", "--atol", "1e-6"));
}

/* A square matrix does not show which way it lies: the option says so. */
static void test_orientation_of_square_matrices(void **state)
{
    (void)state;
    static const char *const names[] = {"W_Q", "W_K", "W_V", "W_O"};
    float w[4][16];
    mha_view views[4];
    for (size_t m = 0; m < 4; m++) {
        views[m] = mha_view_of(w[m], MHA_F32, 2, (size_t[]){4, 4});
        mha_random_fill(&views[m], 1, m, -1, 1);
    }
    char path[600];
    snprintf(path, sizeof path, "%s", scratch("square.safetensors"));
    write_tensors(path, 4, names, views);
    json_t *plain = RUN_JSON(0, "forward", "--weights", path, "--heads", "2", "--json");
    json_t *same = RUN_JSON(0, "forward", "--weights", path, "--heads", "2", "--json", "--orientation", "in-out");
    json_t *turned = RUN_JSON(0, "forward", "--weights", path, "--heads", "2", "--json", "--orientation", "out-in");
    assert_true(json_equal(json_object_get(plain, "output"), json_object_get(same, "output")));
    assert_false(json_equal(json_object_get(plain, "output"), json_object_get(turned, "output")));
    json_decref(plain);
    json_decref(same);
    json_decref(turned);
}

/* What is printed about a run follows from its output and its sizes. */
static void test_summary_and_operations(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s", scratch("out.npy"));
    json_t *root = RUN_JSON(0, "forward", SMALL, "--kv-seq", "5", "--output", path, "--json");
    double sum = 0, squares = 0, max = 0;
    for (size_t i = 0; i < 6 * 24; i++) {
        double x = number_in(path, "", i);
        sum += x;
        squares += x * x;
        max = fabs(x) > max ? fabs(x) : max;
    }
    json_t *output = json_object_get(root, "output");
    assert_true(fabs(json_real_value(json_object_get(output, "mean")) - sum / 144) < 1e-12);
    assert_true(fabs(json_real_value(json_object_get(output, "rms")) - sqrt(squares / 144)) < 1e-12);
    assert_true(fabs(json_real_value(json_object_get(output, "max_abs")) - max) < 1e-12);
    /* Two for each multiply-add: W_Q and W_O on 6 rows, W_K and W_V on 5, scores and sums of 6 x 5 x 24 each. */
    double operations = 2 * (2 * 6 * 24 * 24 + 2 * 5 * 24 * 24 + 2 * 6 * 5 * 24);
    double said =
        json_real_value(json_object_get(root, "gflops")) * json_real_value(json_object_get(root, "total_ms")) * 1e6;
    assert_true(fabs(said / operations - 1) < 1e-3); /* milliseconds are printed to the nanosecond */
    json_decref(root);
}

/* The matrices of latents are counted, too: 3 rows through W_Q (16, 40), W_KVA (16, 12), W_KVB (8, 36) and W_O
 * (12, 16). */
static void test_operations_of_latents(void **state)
{
    (void)state;
    FILE *file = fopen(scratch("latent.json"), "w");
    assert_non_null(file);
    fputs("{\"model_type\": \"deepseek_v2\", \"hidden_size\": 16, \"num_attention_heads\": 4, \"q_lora_rank\": null,"
          " \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4, \"v_head_dim\": 3,"
          " \"num_hidden_layers\": 1}", file);
    fclose(file);
    json_t *root = RUN_JSON(0, "forward", "--config", scratch("latent.json"), "--seq", "3", "--json");
    const double operations = 2 * (3 * (16 * 40 + 16 * 12 + 8 * 36 + 12 * 16) + 6 * 4 * (10 + 3));
    const double said =
        json_real_value(json_object_get(root, "gflops")) * json_real_value(json_object_get(root, "total_ms")) * 1e6;
    assert_true(fabs(said / operations - 1) < 1e-2); /* milliseconds are printed to the nanosecond */
    json_decref(root);
}

/* Chunks of 4 positions: 6 queries see 1 + 2 + 3 + 4 and 1 + 2 keys. W_Q, W_K, W_V and W_O are (16, 16). */
static void test_operations_of_chunks(void **state)
{
    (void)state;
    FILE *file = fopen(scratch("chunked.json"), "w");
    assert_non_null(file);
    fputs("{\"model_type\": \"llama4_text\", \"hidden_size\": 16, \"num_attention_heads\": 2,"
          " \"num_key_value_heads\": 2, \"head_dim\": 8, \"num_hidden_layers\": 1, \"attention_chunk_size\": 4}", file);
    fclose(file);
    json_t *root = RUN_JSON(0, "forward", "--config", scratch("chunked.json"), "--layer",
                            "model.layers.0.self_attn", "--seq", "6", "--json");
    const double operations = 2 * (4 * 6 * 16 * 16 + 13 * 2 * (8 + 8));
    const double said =
        json_real_value(json_object_get(root, "gflops")) * json_real_value(json_object_get(root, "total_ms")) * 1e6;
    assert_true(fabs(said / operations - 1) < 1e-2); /* milliseconds are printed to the nanosecond */
    json_decref(root);
}

/* Only pairs of a query and a key that it sees are counted, whatever hides the others. */
static void test_operations_of_visible_pairs(void **state)
{
    (void)state;
    static const struct {
        const char *options[6];
        double pairs;
    } rows[] = {{{NULL}, 36},
                {{"--causal"}, 21},
                {{"--causal", "--position-offset", "2"}, 3 + 4 + 5 + 6 + 6 + 6},
                {{"--window", "2,0"}, 1 + 2 + 3 * 4},
                {{"--window", "-1,1"}, 2 + 3 + 4 + 5 + 6 + 6},
                {{"--lengths", "4"}, 24},
                {{"--causal", "--lengths", "4"}, 1 + 2 + 3 + 4 * 3},
                {{"--cu-seqlens", "0,2,6"}, 4 + 16},
                {{"--cu-seqlens", "0,2,6", "--causal"}, 3 + 10},
                {{"--window", "0,1000000000", "--causal"}, 6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *args[20] = {"forward", SMALL, "--json", "--threads", "1"};
        for (size_t k = 0; k < 6 && rows[i].options[k]; k++)
            args[10 + k] = rows[i].options[k];
        json_t *root = run_json(0, args);
        const double operations = 2 * (4 * 6 * 24 * 24 + 2 * rows[i].pairs * 24);
        const double ms = json_real_value(json_object_get(root, "total_ms"));
        const double said = json_real_value(json_object_get(root, "gflops")) * ms * 1e6;
        if (!(fabs(said / operations - 1) < 1e-3 + 1e-6 / ms)) /* milliseconds are printed to the nanosecond */
            fail_msg("option set %zu: expected %g operations, found %g", i, operations, said);
        json_decref(root);
    }
}

/* The strongest keys of a query, strongest first, and no other ones. */
static void test_the_glimpse_is_sorted(void **state)
{
    (void)state;
    program_result r = RUN("forward", "--seed", "5", SMALL, "--seq", "40");
    size_t lines = 0;
    for (char *at = r.out; (at = strstr(at, "  looks at key")); lines++) {
        double last = 101;
        char *end = strchr(at, '\n');
        for (size_t keys = 0; keys < 4; keys++) {
            at = strchr(at, '(');
            assert_true(at && at < end);
            double percent = atof(++at);
            assert_true(percent > 0 && percent <= last);
            last = percent;
        }
        assert_true(last > 100.0 / 40); /* the fourth of 40 is above the mean */
    }
    assert_int_equal(lines, 3);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alibi_slopes),
        cmocka_unit_test(test_operations_of_latents),
        cmocka_unit_test(test_operations_of_visible_pairs),
        cmocka_unit_test(test_operations_of_chunks),
        cmocka_unit_test(test_saved_settings),
        cmocka_unit_test(test_hidden_keys),
        cmocka_unit_test(test_float64_inputs_stay_so_on_the_exact_path),
        cmocka_unit_test(test_orientation_of_square_matrices),
        cmocka_unit_test(test_summary_and_operations),
        cmocka_unit_test(test_the_glimpse_is_sorted),
    };
    return cmocka_run_group_tests_name("cli_semantics", tests, NULL, scratch_remove);
}
