/* Quantised files: what is counted, what is computed with them, and what quantising cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/file.h"
#include "support/program.h"
#include "support/unit.h"

#define FOLDER "tests/formats/quantised/"
static const char checkpoint[] = FOLDER "model.safetensors", plain[] = FOLDER "model_f32.gguf",
                  q4_0[] = FOLDER "model_q4_0.gguf";
enum { TENSORS = 2 * 9 + 3, LAYERS = 2 };

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void a_model_of_gguf_is_compared_with_its_checkpoint(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "compare", plain, checkpoint, "--json"); /* only names and the order of rows differ */
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), TENSORS);
    assert_null(json_object_get(root, "layer_outputs"));
    assert_true(json_is_null(json_object_get(root, "random")));
    json_decref(root);
    root = RUN_JSON(0, "compare", checkpoint, plain, "--json");
    json_decref(root);
}

/* The output moves as far from a checkpoint of halves as from the file of GGUF that has the same numbers in pairs, but
 * for the rounding of sums in another order, which is less than 1e-5 of numbers below 4. */
static void quantising_is_shown_for_each_tensor_and_each_output(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(1, "compare", q4_0, checkpoint, "--json"),
           *other = RUN_JSON(1, "compare", q4_0, plain, "--json"), *others = json_object_get(other, "layer_outputs"),
           *layers = json_object_get(root, "layer_outputs"), *tensor;
    assert_string_equal(json_string_value(json_object_get(root, "random")), "32 random tokens");
    size_t i, quantised = 0;
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), TENSORS);
    json_array_foreach(json_object_get(root, "tensors"), i, tensor)
    {
        const bool is = strcmp(json_string_value(json_object_get(tensor, "dtype_a")), "Q4_0") == 0;
        quantised += is;
        assert_true(number(tensor, "bits_a") == (is ? 4.5 : 32) && number(tensor, "bits_b") == 32);
        assert_true(number(tensor, "cosine") > 0.98 && (number(tensor, "rms") > 0) == is);
    }
    assert_int_equal(quantised, 2 * 7 + 2);
    assert_int_equal(json_array_size(layers), LAYERS);
    for (i = 0; i < LAYERS; i++) {
        const json_t *one = json_array_get(layers, i), *two = json_array_get(others, i);
        assert_true(number(one, "relative") > 0.01 && number(one, "cosine") > 0.9);
        assert_true(fabs(number(one, "max_abs") - number(two, "max_abs")) < 1e-5);
        assert_true(fabs(number(one, "rms") - number(two, "rms")) < 1e-5);
    }
    json_decref(root);
    json_decref(other);
    program_result r = RUN("compare", q4_0, checkpoint);
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "Q4_0, F32"));
    assert_non_null(strstr(r.out, "32 random tokens through each attention layer"));
    program_free(&r);
}

/* Floats rounded here against the same rounded by the writer of the file of GGUF. The sums of at most 1024 squares go
 * through a matrix in another order, which moves them by 1024 * 2^-53 of themselves at most. */
static void rounding_on_request_costs_what_a_rounded_file_does(void **state)
{
    (void)state;
    static const char *const files[][2] = {{"W_Q", "attn_q"}, {"W_K", "attn_k"}, {"W_V", "attn_v"},
                                           {"W_O", "attn_output"}};
    json_t *here = RUN_JSON(1, "compare", plain, plain, "--dtype", "q4_0", "--json"),
           *there = RUN_JSON(1, "compare", q4_0, plain, "--json"), *tensor, *other;
    size_t i, k, found = 0;
    assert_int_equal(json_array_size(json_object_get(here, "tensors")), LAYERS * 4);
    json_array_foreach(json_object_get(here, "tensors"), i, tensor)
    {
        char name[80];
        snprintf(name, sizeof name, "blk.%zu.%s.weight", i / 4, files[i % 4][1]);
        assert_non_null(strstr(json_string_value(json_object_get(tensor, "name")), files[i % 4][0]));
        assert_string_equal(json_string_value(json_object_get(tensor, "dtype_b")), "Q4_0");
        assert_true(number(tensor, "bits_a") == 32 && number(tensor, "bits_b") == 4.5);
        json_array_foreach(json_object_get(there, "tensors"), k, other)
            if (strcmp(json_string_value(json_object_get(other, "name")), name) == 0) {
                assert_true(number(tensor, "max_abs") == number(other, "max_abs"));
                assert_true(fabs(number(tensor, "rms") / number(other, "rms") - 1) < 1e-12);
                assert_true(fabs(number(tensor, "cosine") / number(other, "cosine") - 1) < 1e-12);
                found++;
            }
    }
    assert_int_equal(found, LAYERS * 4);
    assert_int_equal(json_array_size(json_object_get(here, "layer_outputs")), LAYERS);
    for (i = 0; i < LAYERS; i++) {
        tensor = json_array_get(json_object_get(here, "layer_outputs"), i);
        other = json_array_get(json_object_get(there, "layer_outputs"), i);
        assert_true(number(tensor, "max_abs") == number(other, "max_abs"));
        assert_true(number(tensor, "rms") == number(other, "rms"));
    }
    json_decref(here);
    json_decref(there);
    /* Eight bits cost less, and a tolerance that is wide enough takes them for equal: half a step of 1/127 of numbers
     * below 1.5. */
    here = RUN_JSON(0, "compare", plain, checkpoint, "--dtype", "q8_0", "--atol", "0.006", "--json");
    assert_true(json_is_true(json_object_get(here, "equal")));
    json_array_foreach(json_object_get(here, "tensors"), i, tensor)
        assert_true(number(tensor, "bits_b") == 8.5 && number(tensor, "rms") > 0 && number(tensor, "rms") < 0.006);
    json_decref(here);
    program_result r = RUN("compare", plain, plain, "--dtype", "q8_0");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "blk.1.W_O  F32, Q8_0         32  8.5"));
    assert_non_null(strstr(r.out, "32 random tokens through each attention layer"));
    program_free(&r);
}

static void rounding_on_request_needs_two_files_of_layers(void **state)
{
    (void)state;
    static const char lookup[] = "weights/lookup/model.safetensors";
    char tensor[200];
    snprintf(tensor, sizeof tensor, "%s:blk.0.attn_q.weight", plain);
    assert_program_refuses(RUN("compare", tensor, plain, "--dtype", "q8_0"), 2, "--dtype: expected two whole files");
    assert_program_refuses(RUN("compare", plain, plain, "--dtype", "q8_0", "--picture", scratch("a.html")), 2,
                           "--picture: expected nothing beside --dtype");
    assert_program_refuses(RUN("compare", plain, lookup, "--dtype", "q8_0"), 2,
                           "--dtype: expected two files with the same number of attention layers");
    assert_program_refuses(RUN("compare", lookup, lookup, "--dtype", "q8_0"), 2,
                           "--dtype: W_Q: expected inputs in blocks of 32 for Q8_0, found 48");
    assert_program_refuses(RUN("compare", plain, plain, "--dtype", "q6_k"), 2, "--dtype: expected q8_0 or q4_0");
}

static void bytes_in_the_file_and_here_are_shown(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--weights", q4_0, "--json"), *file = json_object_get(root, "file");
    const size_t matrices = 2 * (32 * 32 * 2 + 16 * 32 * 2 + 4 * 32 * 2 + 32 * 32) + 2 * 3 * 32, norms = 5 * 32;
    assert_true(number(file, "parameters") == (double)(matrices + norms));
    assert_true(number(file, "bytes") == (double)(matrices / 32 * 18 + 4 * norms));
    assert_true(number(file, "bytes_here") == (double)(4 * (matrices + norms)));
    double in_file = 0, here = 0;
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(root, "tensors"), i, row)
    {
        in_file += number(row, "bytes_in_file");
        here += number(row, "bytes_here");
    }
    assert_true(in_file == number(file, "bytes") && here == number(file, "bytes_here"));
    json_decref(root);
    program_result r = RUN("params", "--weights", q4_0);
    assert_non_null(strstr(r.out, "in the file      here\n"));
    assert_non_null(strstr(r.out, "22.61     1.12 KiB  8.00 KiB\n")); /* two matrices of 32 * 32 */
    program_free(&r);
    r = RUN("params", "--weights", q4_0, "--group", "dtype", "--json");
    assert_non_null(strstr(r.out, "bytes_in_file"));
    program_free(&r);
    r = RUN("params", "--weights", q4_0, "--group", "dtype");
    assert_non_null(strstr(r.out, "in the file      here\n"));
    program_free(&r);
    assert_program_refuses(RUN("params", "--weights", q4_0, "--dtype", "f16"), 2, "--dtype: expected nothing beside");
    r = RUN("params", "--weights", q4_0);
    assert_non_null(strstr(r.out, "scales and zero points included"));
    program_free(&r);
    r = RUN("params", "--weights", plain);
    assert_null(strstr(r.out, "quantised:"));
    assert_null(strstr(r.out, "in the file"));
    program_free(&r);
    r = RUN("params", "--weights", "tests/formats/quantised/compressed.safetensors"); /* sizes of every kind */
    assert_int_equal(r.code, 0);
    program_free(&r);
    root = RUN_JSON(0, "forward", "--weights", q4_0, "--layer", "0", "--seq", "3", "--json");
    json_decref(root);
}

/* Projections of 8 by 8 in F8, each with a scale unless `scales` is false; that of the values has the name `value`. */
static const char *write_f8(const char *name, bool scales, const char *value)
{
    mha_error error;
    mha_writer *writer = NULL;
    unsigned char codes[64];
    float scale = 0.5f;
    char key[80];
    const char *path = scratch(name);
    memset(codes, 0x38, sizeof codes);
    assert_ok(mha_writer_create(path, &writer, &error), error);
    const mha_view weight = mha_view_of(codes, MHA_F8_E4M3, 2, (size_t[]){8, 8}),
                   one = mha_view_of(&scale, MHA_F32, 0, NULL);
    for (const char *letter = "qkvo"; *letter; letter++) {
        snprintf(key, sizeof key, "self_attn.%c_proj.%s", *letter, *letter == 'v' ? value : "weight");
        assert_ok(mha_writer_add(writer, key, &weight, &error), error);
        snprintf(key, sizeof key, "self_attn.%c_proj.weight_scale", *letter);
        if (scales)
            assert_ok(mha_writer_add(writer, key, &one, &error), error);
    }
    if (scales) /* of the cache: no parameter, and no matter here */
        assert_ok(mha_writer_add(writer, "self_attn.k_scale", &one, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return path;
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(scratch(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void says(program_result r, const char *text)
{
    if (r.code != 0 || !strstr(r.out, text))
        fail_msg("%d: %s", r.code, r.out);
    program_free(&r);
}

static void codes_without_scales_are_never_computed_with(void **state)
{
    (void)state;
    char scaled[600], bare[600];
    snprintf(scaled, sizeof scaled, "%s", write_f8("scaled.safetensors", true, "weight"));
    snprintf(bare, sizeof bare, "%s", write_f8("bare.safetensors", false, "weight"));
    json_decref(RUN_JSON(0, "forward", "--weights", scaled, "--heads", "2", "--seq", "3", "--json"));
    assert_program_refuses(RUN("forward", "--weights", bare, "--heads", "2"), 2,
                           "self_attn.q_proj.weight*_scale*F8_E4M3");
    const char *codes = write_f8("codes.safetensors", true, "qweight");
    assert_program_refuses(RUN("forward", "--weights", codes, "--heads", "2"), 2,
                           "self_attn.v_proj.qweight*expected scales and zero points that fit it");
    program_result r = RUN("compare", scaled, scaled); /* nobody says how many heads there are */
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "the layers were not run: heads: expected their number"));
    program_free(&r);
    json_t *root = RUN_JSON(0, "params", "--weights", scaled, "--json");
    assert_true(number(json_object_get(root, "file"), "parameters") == 4 * 64);
    json_decref(root);

    write_text("config.json", /* beside both files: now it is known */
               "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 2}");
    root = RUN_JSON(0, "compare", scaled, scaled, "--json");
    const json_t *layers = json_object_get(root, "layer_outputs");
    assert_int_equal(json_array_size(layers), 1);
    assert_true(number(json_array_get(layers, 0), "rms") == 0 && number(json_array_get(layers, 0), "relative") == 0);
    json_decref(root);

    /* A configuration that is wrong is said by all that read it. */
    write_text("config.json", "{\"model_type\": \"llama\", \"hidden_size\": \"8\"}");
    assert_program_refuses(RUN("forward", "--weights", scaled, "--heads", "2"), 2, "hidden_size: expected a whole");
    says(RUN("compare", scaled, scaled), "the layers were not run: hidden_size: expected a whole number");
    says(RUN("params", "--weights", scaled), "not compared with the config.json beside it: hidden_size: expected a");
    root = RUN_JSON(0, "params", "--weights", scaled, "--json");
    assert_non_null(strstr(json_string_value(json_object_get(root, "config_error")), "hidden_size"));
    json_decref(root);
    static const char *const broken[] = {"", "{\"model_type\": \"llama\", \"hidden", "[]"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_text("config.json", broken[i]);
        assert_program_refuses(RUN("forward", "--weights", scaled, "--heads", "2"), 2, "config.json: expected *JSON");
        assert_program_refuses(RUN("params", "--weights", scaled), 2, "config.json: expected *JSON");
        says(RUN("compare", scaled, scaled), "config.json: expected ");
    }
    remove(scratch("config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_of_gguf_is_compared_with_its_checkpoint),
        cmocka_unit_test(rounding_on_request_costs_what_a_rounded_file_does),
        cmocka_unit_test(rounding_on_request_needs_two_files_of_layers),
        cmocka_unit_test(quantising_is_shown_for_each_tensor_and_each_output),
        cmocka_unit_test(bytes_in_the_file_and_here_are_shown),
        cmocka_unit_test(codes_without_scales_are_never_computed_with),
    };
    return cmocka_run_group_tests_name("quantised files", tests, NULL, scratch_remove);
}
