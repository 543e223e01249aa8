/* mha check and mha diagnose with --expected: an output beside weights, an input and options, without a case file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/unit.h"

#define WEIGHTS "--weights", "weights/lookup/model.safetensors"
enum { WIDTH = 48, HEADS = 6, T = 7, MOST = 24 };
static char input[600], unbatched[600], mask[600], sinks[600], output[600], other[600];

static void write_view(const char *path, const mha_view *view)
{
    mha_writer *writer;
    mha_error error;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "x", view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
}

static int write_files(void **state)
{
    (void)state;
    static float x[T * WIDTH], logits[HEADS] = {0.5f, 1.5f, -0.25f, 0, 2, 1};
    static uint8_t sees[T * T];
    mha_view rows = mha_view_of(x, MHA_F32, 3, (size_t[]){1, T, WIDTH}),
             one = mha_view_of(x, MHA_F32, 2, (size_t[]){T, WIDTH});
    mha_view heads = mha_view_of(logits, MHA_F32, 1, (size_t[]){HEADS}),
             keeps = mha_view_of(sees, MHA_BOOL, 2, (size_t[]){T, T});
    mha_random_fill(&rows, 5, 1, -1.5f, 1.5f);
    for (size_t i = 0; i < T * T; i++)
        sees[i] = i % 3 != 1;
    snprintf(input, sizeof input, "%s", scratch("x.npy"));
    snprintf(unbatched, sizeof unbatched, "%s", scratch("x2.npy"));
    snprintf(mask, sizeof mask, "%s", scratch("mask.npy"));
    snprintf(sinks, sizeof sinks, "%s", scratch("sinks.npy"));
    snprintf(output, sizeof output, "%s", scratch("y.npy"));
    snprintf(other, sizeof other, "%s", scratch("trace.safetensors"));
    write_view(input, &rows);
    write_view(unbatched, &one);
    write_view(mask, &keeps);
    write_view(sinks, &heads);
    return 0;
}

static int run(const char *command, const char *x, const char *last, const char *path, const char *const *options)
{
    const char *args[MOST] = {command, WEIGHTS, "--input", x, last, path};
    size_t n = 7;
    for (; *options; options++)
        args[n++] = *options;
    program_result r = program_run(args);
    int code = r.code;
    if (code > 1)
        print_error("%s", r.err);
    program_free(&r);
    return code;
}

/* Each option of forward means the same beside --expected: the output is right with it, and wrong without. */
static void every_option_means_the_same(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    const char *const options[][8] = {{"--scale", "0.3"},
                                      {"--softcap", "2"},
                                      {"--rope", "half"},
                                      {"--rope", "interleaved", "--rope-dim", "4", "--rope-base", "50"},
                                      {"--window", "2,0"},
                                      {"--position-offset", "2"},
                                      {"--key-offset", "2"},
                                      {"--alibi"},
                                      {"--sinks", sinks},
                                      {"--mask", mask, "--mask-kind", "keeps"},
                                      {"--mask", mask, "--mask-kind", "hides"},
                                      {"--cu-seqlens", "0,3,7"},
                                      {"--lengths", "3"},
                                      {"--key-input", input, "--alibi"},
                                      {"--alibi", "--sinks", sinks, "--cu-seqlens", "0,2,7", "--scale", "0.5"}};
    const char *const commands[] = {"check", "diagnose"}, *const inputs[] = {input, unbatched};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (size_t c = 0; c < 2; c++)
            for (size_t x = 0; x < 2; x++) {
                assert_int_equal(run("forward", inputs[x], "--output", output, options[i]), 0);
                if (run(commands[c], inputs[x], "--expected", output, options[i]) != 0)
                    fail_msg("%s with option set %zu and input %zu is not 0", commands[c], i, x);
                if (run(commands[c], inputs[x], "--expected", output, none) == 0 && c == 0)
                    fail_msg("%s without option set %zu is 0", commands[c], i);
            }
}

/* What is wrong leads on to the diagnosis; standard input, which has been read, does not. */
static void what_failed_leads_on(void **state)
{
    (void)state;
    assert_int_equal(run("forward", input, "--output", output, (const char *const[]){"--scale", "0.3", NULL}), 0);
    program_result r = RUN("check", WEIGHTS, "--input", input, "--expected", output);
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "\"mha diagnose ...\" with the same options looks for"));
    program_free(&r);
    r = RUN("check", WEIGHTS, "--input", input, "--expected", output, "--json");
    assert_int_equal(r.code, 1);
    json_t *root = json_loads(r.out, 0, NULL);
    assert_true(json_is_null(json_object_get(json_array_get(json_object_get(root, "cases"), 0), "file")));
    json_decref(root);
    program_free(&r);
    r = program_run_with(NULL, "weights/lookup/wrong_port.safetensors", (const char *const[]){"check", "-", NULL});
    assert_int_equal(r.code, 1);
    assert_null(strstr(r.out, "mha diagnose"));
    program_free(&r);
}

/* A result that was rounded to float16 is right, and the table shows the rounding that is allowed. */
static void a_short_result_shows_what_is_allowed(void **state)
{
    (void)state;
    static float y[T * WIDTH];
    static uint16_t rounded[T * WIDTH];
    const size_t shape[] = {1, T, WIDTH};
    mha_view read = mha_view_of(y, MHA_F32, 3, shape), half = mha_view_of(rounded, MHA_F16, 3, shape);
    mha_file *file;
    mha_error error;
    assert_int_equal(run("forward", input, "--output", output, (const char *const[]){NULL}), 0);
    program_result r = RUN("check", WEIGHTS, "--input", input, "--expected", output);
    assert_int_equal(r.code, 0);
    assert_null(strstr(r.out, "|yours|"));
    program_free(&r);
    assert_ok(mha_file_open(output, &file, &error), error);
    assert_ok(mha_file_read(file, mha_file_at(file, 0), &read, &error), error);
    mha_file_close(file);
    assert_int_equal(mha_view_copy(&half, &read), MHA_OK);
    write_view(output, &half);
    r = RUN("check", WEIGHTS, "--input", input, "--expected", output);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, " + 0.00049 |yours|  0 of 336 "));
    program_free(&r);
}

static void a_stage_is_judged_as_well(void **state)
{
    (void)state;
    assert_int_equal(run("forward", input, "--trace", other, (const char *const[]){NULL}), 0);
    char weights[700];
    snprintf(weights, sizeof weights, "%s:weights", other);
    assert_int_equal(run("check", input, "--expected", weights, (const char *const[]){"--stage", "weights", NULL}), 0);
    assert_int_equal(run("diagnose", input, "--expected", weights, (const char *const[]){"--stage", "weights", NULL}),
                     0);
    assert_int_equal(run("check", input, "--expected", weights, (const char *const[]){"--stage", "masked", NULL}), 1);
    assert_int_equal(run("forward", input, "--trace", output, (const char *const[]){"--stage", "weights", NULL}), 0);
    assert_int_equal(run("check", input, "--expected", output, (const char *const[]){"--stage", "weights", NULL}), 0);
    assert_program_refuses(RUN("forward", "--seq", "4", "--stage", "weights"), 2,
                           "--stage: expected --trace beside it");
    assert_program_refuses(RUN("forward", "--seq", "4", "--trace", output, "--stage", "wei"), 2,
                           "--stage: expected a stage*\"wei\"");
    assert_program_refuses(RUN("check", WEIGHTS, "--input", input, "--expected", weights), 2,
                           "--expected*expected shape*found (1, 6, 7, 7)");
    assert_program_refuses(RUN("check", WEIGHTS, "--input", input, "--expected", weights, "--stage", "wieghts"), 2,
                           "--stage: expected one of q, k, v*lse*, found \"wieghts\"");
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    char named[700];
    snprintf(named, sizeof named, "%s:x", input);
    assert_program_refuses(RUN("check", WEIGHTS, "--input", named, "--expected", output), 2,
                           "x.npy: expected no name behind the file, whose one tensor has none, found \"x\"");
    assert_int_equal(run("forward", input, "--output", output, (const char *const[]){NULL}), 0);
    static const char *const commands[] = {"check", "diagnose"};
    for (size_t i = 0; i < 2; i++) {
        const char *c = commands[i];
        assert_program_refuses(RUN(c, "--expected", output, "--input", input), 2,
                               "--expected: expected --weights beside it");
        assert_program_refuses(RUN(c, "--expected", output, WEIGHTS), 2, "--expected: expected --input beside it");
        assert_program_refuses(RUN(c, WEIGHTS, "--input", input, "--expected", output, "case.safetensors"), 2,
                               "--expected: expected no case file beside it, found \"case.safetensors\"");
        assert_program_refuses(RUN(c, "tests/vectors", "--causal"), 2, "--causal: expected --expected beside it");
        assert_program_refuses(RUN(c, "tests/vectors", "--heads", "3"), 2, "--heads: expected --expected beside it");
        assert_program_refuses(RUN(c), 2, "expected FILE");
    }
    assert_program_refuses(RUN("forward", "--sinks", sinks), 2, "sinks*(12,)*(6,)");
    assert_program_refuses(RUN("forward", "--cu-seqlens", "0,3"), 2, "cu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_means_the_same),
        cmocka_unit_test(what_failed_leads_on),
        cmocka_unit_test(a_short_result_shows_what_is_allowed),
        cmocka_unit_test(a_stage_is_judged_as_well),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests_name("cli_expected", tests, write_files, scratch_remove);
}
