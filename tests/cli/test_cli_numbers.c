/* Numbers that the program prints and writes, held against those that are computed here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/program.h"
#include "support/unit.h"

#define SMALL "--d-model", "24", "--heads", "4", "--seq", "6"

/* The printed statistics of an output follow from its numbers. */
static void the_summary_is_of_the_output(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s", scratch("out.npy"));
    json_t *root = RUN_JSON(0, "forward", SMALL, "--output", path, "--json");
    double sum = 0, squares = 0, max = 0;
    double y[6 * 24];
    mha_file *file;
    mha_error error;
    const mha_view view = mha_view_of(y, MHA_F64, 3, (size_t[]){1, 6, 24});
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_ok(mha_file_read(file, mha_file_at(file, 0), &view, &error), error);
    mha_file_close(file);
    for (size_t i = 0; i < 6 * 24; i++) {
        sum += y[i];
        squares += y[i] * y[i];
        max = fmax(max, fabs(y[i]));
    }
    json_t *output = json_object_get(root, "output");
    assert_true(fabs(json_real_value(json_object_get(output, "mean")) - sum / 144) < 1e-12);
    assert_true(fabs(json_real_value(json_object_get(output, "rms")) - sqrt(squares / 144)) < 1e-12);
    assert_true(fabs(json_real_value(json_object_get(output, "max_abs")) - max) < 1e-12);
    json_decref(root);
}

/* The strongest keys of a query, strongest first, and no other ones. */
static void the_glimpse_is_sorted(void **state)
{
    (void)state;
    program_result r = RUN("forward", "--seed", "5", "--d-model", "24", "--heads", "4", "--seq", "40");
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

/* The rotation of a configuration is stretched for the positions of the call, as the library does it. */
static void rotations_are_stretched_for_the_positions(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_attention_heads\":2,\"num_hidden_layers\":1,\"intermediate_"
        "size\":8,\"vocab_size\":9,\"max_position_embeddings\":8,"
        "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}}";
    const mha_rope_scaling dynamic = {.kind = MHA_ROPE_DYNAMIC, .factor = 2, .original_length = 8};
    const char *config = scratch("stretched.json"), *path = scratch("stretched.safetensors");
    FILE *f = fopen(config, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    static const char *const words[][2] = {{"--seq", "4"}, {"--seq", "12"}, {"--position-offset", "30"}};
    static const size_t lengths[] = {4, 12, 128 + 30};
    for (size_t i = 0; i < 3; i++) {
        program_result r = RUN("forward", "--config", config, words[i][0], words[i][1], "--save-case", path,
                               "--quiet");
        assert_int_equal(r.code, 0);
        program_free(&r);
        double expected[8], found[8], factor;
        mha_file *file;
        mha_error error;
        assert_ok(mha_file_open(path, &file, &error), error);
        const mha_file_tensor *tensor = mha_file_find(file, "rope_frequencies");
        const mha_view view = mha_view_of(found, MHA_F64, 1, (size_t[]){8});
        assert_non_null(tensor);
        assert_ok(mha_file_read(file, tensor, &view, &error), error);
        assert_ok(mha_rope_frequencies(&dynamic, 16, 0, lengths[i], expected, &factor, &error), error);
        assert_memory_equal(found, expected, sizeof found);
        mha_file_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_summary_is_of_the_output),
        cmocka_unit_test(the_glimpse_is_sorted),
        cmocka_unit_test(rotations_are_stretched_for_the_positions),
    };
    return cmocka_run_group_tests_name("cli_numbers", tests, NULL, scratch_remove);
}
