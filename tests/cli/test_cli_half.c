/* 16-bit weights, and caches of 16 and 8 bits, on the command line: --dtype and --cache-dtype of forward, params, heads
 * and bench; and --precision bf16. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/recase.h"
#include "support/unit.h"

static json_int_t number(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

#define SMALL "--d-model", "48", "--heads", "4", "--seq", "7", "--causal"
enum { ELEMENTS = 7 * 48 };

/* The output of `mha forward` with these options, as float64. */
static void outputs_of(const char *const *options, double *out)
{
    const char *args[24] = {"forward", "--quiet", "--output", scratch("y.npy"), SMALL};
    size_t n = 0;
    while (args[n])
        n++;
    for (; *options; options++)
        args[n++] = *options;
    program_result r = program_run(args);
    assert_int_equal(r.code, 0);
    program_free(&r);
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(scratch("y.npy"), &file, &error), error);
    const mha_view view = mha_view_of(out, MHA_F64, 3, (size_t[]){1, 7, 48});
    assert_ok(mha_file_read(file, mha_file_at(file, 0), &view, &error), error);
    mha_file_close(file);
}

static double largest_difference(const double *a, const double *b)
{
    double most = 0;
    for (size_t i = 0; i < ELEMENTS; i++)
        most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

/* Products of BF16: what is written are BF16 numbers, near to those of floats, and other ones. */
static void forward_computes_in_bf16(void **state)
{
    (void)state;
    static const char *const paths[] = {"fast", "blas", "exact"};
    double floats[ELEMENTS], low[ELEMENTS];
    for (size_t p = 0; p < 3; p++) {
        outputs_of((const char *const[]){"--path", paths[p], "--dtype", "bf16", NULL}, floats);
        outputs_of((const char *const[]){"--path", paths[p], "--dtype", "bf16", "--precision", "bf16", NULL}, low);
        for (size_t i = 0; i < ELEMENTS; i++)
            assert_true(mha_bf16_to_f32(mha_f32_to_bf16((float)low[i])) == low[i]);
        assert_true(largest_difference(floats, low) > 1e-4 && largest_difference(floats, low) < 3e-2);
    }
#define ROUNDS "--dtype", "bf16", "--precision", "bf16"
    json_t *root = RUN_JSON(0, "forward", SMALL, ROUNDS, "--json"), *config = json_object_get(root, "config");
    assert_string_equal(text(config, "precision"), "BF16");
    json_decref(root);
    program_result r = RUN("forward", SMALL, ROUNDS);
    assert_non_null(strstr(r.out, "rounds   to BF16: inputs, projections"));
    program_free(&r);
    r = RUN("forward", SMALL);
    assert_null(strstr(r.out, "rounds   to"));
    program_free(&r);
    assert_program_refuses(RUN("forward", SMALL, ROUNDS, "--merged-qk"), 2, "--precision*nothing beside --merged-qk");
    r = RUN("forward", SMALL, "--precision", "bf16");
    assert_true(r.code == 2 && strstr(r.err, "W_Q: expected BF16 for products of BF16, found F32"));
    program_free(&r);
}

/* A run in BF16 is a case that says so, whose results are right by every path, and explained. */
static void a_run_in_bf16_is_a_case_that_is_judged(void **state)
{
    (void)state;
    static const char *const paths[] = {"fast", "blas", "exact"};
    char file[600];
    snprintf(file, sizeof file, "%s", scratch("bf16.safetensors"));
    for (size_t p = 0; p < 3; p++) {
        program_result r = RUN("forward", SMALL, "--dtype", "bf16", "--precision", "bf16", "--path", paths[p],
                               "--save-case", file, "--quiet");
        assert_int_equal(r.code, 0);
        program_free(&r);
        for (size_t q = 0; q < 3; q++) {
            r = RUN("check", file, "--path", paths[q]);
            assert_int_equal(r.code, 0);
            program_free(&r);
        }
        r = RUN("diagnose", file);
        assert_true(r.code == 0 && strstr(r.out, "within bfloat16 rounding"));
        program_free(&r);
    }
}

/* Beside --expected the precision is that of what is judged; a case says it itself. */
static void the_precision_of_what_is_expected(void **state)
{
    (void)state;
    enum { T = 7, WIDTH = 48 };
    static const char weights[] = "weights/lookup/model.safetensors";
    static float x[T * WIDTH];
    char in[600], out[600];
    snprintf(in, sizeof in, "%s", scratch("in.npy"));
    snprintf(out, sizeof out, "%s", scratch("out.npy"));
    const mha_view rows = mha_view_of(x, MHA_F32, 3, (size_t[]){1, T, WIDTH});
    mha_random_fill(&rows, 5, 1, -1.5f, 1.5f);
    mha_writer *writer;
    mha_error error;
    assert_ok(mha_writer_create(in, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "x", &rows, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
#define BESIDE "--weights", weights, "--input", in
    program_result r = RUN("forward", BESIDE, "--dtype", "bf16", "--precision", "bf16", "--output", out, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
    static const struct {
        const char *command, *precision;
        int code;
    } each[] = {{"check", "bf16", 0}, {"check", "f16", 1}, {"check", "f32", 1}, {"diagnose", "bf16", 0}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        r = RUN(each[i].command, BESIDE, "--expected", out, "--precision", each[i].precision);
        if (r.code != each[i].code)
            fail_msg("%s --precision %s: %d, %s%s", each[i].command, each[i].precision, r.code, r.out, r.err);
        program_free(&r);
    }
    assert_program_refuses(RUN("check", weights, "--precision", "bf16"), 2, "--precision*--expected beside it");
    assert_program_refuses(RUN("compare", in, in, "--precision", "bf16"), 2, "--precision*not an option here");
}

/* Rounding weights or keys to 8 bits (BF16) moves sums of numbers of size one by about 2^-9 of them: it shows, and no
 * more than that. Floats in the cache change no bit. */
static void rounding_shows_and_is_small(void **state)
{
    (void)state;
    double floats[ELEMENTS], other[ELEMENTS];
    outputs_of((const char *const[]){"--path", "fast", NULL}, floats);
    outputs_of((const char *const[]){"--path", "fast", "--dtype", "f32", "--cache-dtype", "f32", NULL}, other);
    assert_true(largest_difference(floats, other) == 0);
    static const char *const paths[] = {"fast", "blas", "exact"}, *const options[] = {"--dtype", "--cache-dtype"};
    static const char *const types[] = {"f16", "bf16"};
    for (size_t p = 0; p < 3; p++)
        for (size_t o = 0; o < 2; o++) {
            double moved[2];
            for (size_t t = 0; t < 2; t++) {
                outputs_of((const char *const[]){"--path", paths[p], options[o], types[t], NULL}, other);
                moved[t] = largest_difference(floats, other);
            }
            assert_true(moved[0] > 1e-5 && moved[0] < 4e-3);
            assert_true(moved[1] > 2 * moved[0] && moved[1] < 3e-2);
        }
}

static void forward_says_what_it_stores(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "forward", "--json", SMALL, "--dtype", "bf16", "--cache-dtype", "f16", "--path", "fast");
    const json_t *config = json_object_get(root, "config");
    assert_string_equal(text(config, "dtype"), "BF16");
    assert_string_equal(text(config, "cache_dtype"), "F16");
    assert_int_equal(number(json_object_get(root, "parameters"), "total_bytes"), 2 * (4 * 48 * 48 + 4 * 48));
    json_decref(root);
    root = RUN_JSON(0, "forward", "--json", SMALL);
    assert_string_equal(text(json_object_get(root, "config"), "dtype"), "F32");
    assert_true(json_is_null(json_object_get(json_object_get(root, "config"), "cache_dtype")));
    json_decref(root);
    program_result r = RUN("forward", SMALL, "--dtype", "f16", "--cache-dtype", "bf16", "--path", "fast");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "cache    BF16, 7 rows of keys and values, 1344 bytes")); /* 2 * 7 * 48 * 2 */
    assert_non_null(strstr(r.out, "W_Q.packed"));
    assert_null(strstr(r.out, " F32 ")); /* packed copies are of the stored type, too */
    program_free(&r);
}

static void the_table_shows_the_type_and_its_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *option, *name;
        json_int_t bytes;
    } types[] = {{"f32", "F32", 4}, {"f64", "F64", 8}, {"f16", "F16", 2}, {"bf16", "BF16", 2}};
    for (size_t t = 0; t < 4; t++) {
        json_t *root = RUN_JSON(0, "params", "--json", "--d-model", "48", "--heads", "4", "--dtype", types[t].option),
               *row;
        size_t i;
        json_array_foreach(json_object_get(root, "tensors"), i, row)
        {
            assert_string_equal(text(row, "dtype"), types[t].name);
            assert_int_equal(number(row, "bytes"), types[t].bytes * number(row, "elements"));
        }
        assert_int_equal(number(root, "total_parameters"), 4 * 48 * 48 + 4 * 48);
        assert_int_equal(number(root, "total_bytes"), types[t].bytes * number(root, "total_parameters"));
        json_decref(root);
    }
    json_t *root = RUN_JSON(0, "heads", "--json", "--d-model", "48", "--heads", "2,6", "--dtype", "f16");
    assert_true(json_is_true(json_object_get(root, "invariant")));
    json_decref(root);
}

/* A layer of a file is held in the type asked for. */
static void weights_of_a_file_are_stored_as_asked(void **state)
{
    (void)state;
    mha_writer *writer;
    mha_error error;
    const char *path = scratch("w.safetensors"), *const names[] = {"W_Q", "W_K", "W_V", "W_O"};
    float values[48 * 48];
    const mha_view matrix = mha_view_of(values, MHA_F32, 2, (size_t[]){48, 48});
    mha_random_fill(&matrix, 1, 1, -0.2f, 0.2f);
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < 4; i++)
        assert_ok(mha_writer_add(writer, names[i], &matrix, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    json_t *root = RUN_JSON(0, "forward", "--json", "--weights", path, "--heads", "4", "--seq", "3", "--dtype", "f16");
    assert_string_equal(text(json_object_get(root, "config"), "dtype"), "F16");
    assert_int_equal(number(json_object_get(root, "parameters"), "total_bytes"), 2 * 4 * 48 * 48);
    json_decref(root);
}

static double real(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* Bytes are those of the types; what has no weights or no cache says null. */
static void bench_counts_the_bytes_it_reads(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "bench", "--json", "--shape", "2,1,300,32,4", "--part", "all", "--rounds", "1",
                            "--threads", "1", "--dtype", "f16", "--cache-dtype", "bf16"),
           *row;
    size_t i;
    const double cache = 2.0 * 2 * 300 * 32 * 2, weights = 4.0 * 32 * 32 * 2;
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 6);
    json_array_foreach(json_object_get(root, "rows"), i, row)
    {
        const bool core = strcmp(text(row, "part"), "core") == 0, proj = strcmp(text(row, "part"), "proj") == 0;
        const double bytes = (proj ? 0 : cache) + (core ? 0 : weights),
                     found = real(row, "gbs") * real(row, "ms_min") * 1e6;
        assert_true(fabs(found - bytes) <= 0.01 * bytes); /* times are rounded to the nanosecond */
        assert_true(real(row, "error_of_bound") <= 1);
        if (core)
            assert_true(json_is_null(json_object_get(row, "weights_dtype")));
        else
            assert_string_equal(text(row, "weights_dtype"), "F16");
        if (proj)
            assert_true(json_is_null(json_object_get(row, "cache_dtype")));
        else
            assert_string_equal(text(row, "cache_dtype"), "BF16");
    }
    json_decref(root);
    root =
        RUN_JSON(0, "bench", "--json", "--shape", "1,9,9,32,4", "--part", "layer", "--rounds", "1", "--threads", "1");
    row = json_array_get(json_object_get(root, "rows"), 0);
    assert_string_equal(text(row, "weights_dtype"), "F32");
    assert_true(json_is_null(json_object_get(row, "cache_dtype"))); /* it does not decode */
    json_decref(root);
    program_result r = RUN("bench", "--shape", "1,1,20,32,4", "--rounds", "1", "--threads", "1", "--csv",
                           "--cache-dtype", "f16", "--part", "layer", "--path", "fast");
    assert_non_null(strstr(r.out, ",F32,F16,F32\n"));
    program_free(&r);
}

/* Weights and cache have the type of the products; an output that is rounded is further from float64 than float32's
 * bound, and within that of BF16. */
static void bench_computes_in_bf16(void **state)
{
    (void)state;
    static const char *const shapes[] = {"2,1,300,32,4", "2,20,20,32,4,kv=2,causal"}, *const parts[] = {"layer", "all"};
    for (size_t s = 0; s < 2; s++) {
        json_t *root = RUN_JSON(0, "bench", "--json", "--shape", shapes[s], "--rounds", "1", "--threads", "1",
                                "--precision", "bf16", "--part", parts[s]),
               *row;
        size_t i;
        assert_int_equal(json_array_size(json_object_get(root, "rows")), s ? 6 : 2);
        json_array_foreach(json_object_get(root, "rows"), i, row)
        {
            assert_string_equal(text(row, "precision"), "BF16");
            assert_true(real(row, "error_of_bound") > 1e-4 && real(row, "error_of_bound") <= 1);
            assert_true(i / 2 == 1 || strcmp(text(row, "weights_dtype"), "BF16") == 0);
            assert_true(s == 1 || i / 2 == 2 || strcmp(text(row, "cache_dtype"), "BF16") == 0);
        }
        json_decref(root);
    }
#define DECODES "bench", "--shape", "1,1,20,32,4", "--part", "layer", "--precision"
    assert_program_refuses(RUN(DECODES, "f16"), 2, "only that of BF16*take the exact path");
    assert_program_refuses(RUN(DECODES, "bf16", "--cache-dtype", "f32"), 2, "cache: expected BF16*found F32");
    assert_program_refuses(RUN(DECODES, "bf16", "--dtype", "f16"), 2, "W_Q: expected BF16*found F16");
    program_result r = RUN(DECODES, "bf16", "--rounds", "1", "--threads", "1", "--csv", "--path", "fast");
    assert_non_null(strstr(r.out, ",BF16,BF16,BF16\n"));
    program_free(&r);
}

/* Rounding keys and values of size one to codes 1/127 apart moves sums by about as much; bench counts the scales. */
static void a_cache_of_8_bits(void **state)
{
    (void)state;
    double floats[ELEMENTS], other[ELEMENTS];
    static const char *const paths[] = {"fast", "blas", "exact"};
    for (size_t p = 0; p < 3; p++) {
        outputs_of((const char *const[]){"--path", paths[p], NULL}, floats);
        outputs_of((const char *const[]){"--path", paths[p], "--cache-dtype", "i8", NULL}, other);
        assert_true(largest_difference(floats, other) > 1e-5 && largest_difference(floats, other) < 2e-2);
    }
    json_t *root = RUN_JSON(0, "bench", "--json", "--shape", "2,1,300,32,4", "--part", "core", "--rounds", "1",
                            "--threads", "1", "--cache-dtype", "i8"),
           *row = json_array_get(json_object_get(root, "rows"), 0);
    const double bytes = 2.0 * 2 * 300 * (32 + 4 * 4);
    assert_true(fabs(real(row, "gbs") * real(row, "ms_min") * 1e6 - bytes) <= 0.01 * bytes);
    assert_string_equal(text(row, "cache_dtype"), "I8");
    assert_true(real(row, "error_of_bound") <= 1);
    json_decref(root);
}

/* A case says to which type the cache rounded: its results are judged right on every path, without the word wrong. */
static void a_case_says_the_type_of_its_cache(void **state)
{
    (void)state;
    static const char *const types[] = {"f16", "bf16", "i8"}, *const paths[] = {"fast", "blas", "exact"};
    for (size_t i = 0; i < 9; i++) {
        const char *file = scratch("cached.safetensors");
        program_result r = RUN("forward", "--quiet", SMALL, "--cache-dtype", types[i % 3], "--path", paths[i / 3],
                               "--save-case", file);
        assert_int_equal(r.code, 0);
        program_free(&r);
        for (size_t p = 0; p < 3; p++) {
            r = RUN("check", "--quiet", "--path", paths[p], file);
            assert_int_equal(r.code, 0);
            program_free(&r);
        }
        recase_write(file, scratch("unsaid.safetensors"), &(recase){.metadata = {{"cache_dtype", NULL}}});
        r = RUN("check", "--quiet", scratch("unsaid.safetensors"));
        assert_int_equal(r.code, 1);
        program_free(&r);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    assert_program_refuses(RUN("forward", SMALL, "--cache-dtype", "f64"), 2,
                           "--cache-dtype*f32 or f16 or bf16 or i8*f64");
    assert_program_refuses(RUN("forward", SMALL, "--dtype", "int8"), 2, "--dtype*int8");
    assert_program_refuses(RUN("bench", "--shape", "1,1,20,32,4", "--dtype", "f64"), 2,
                           "--dtype*f32 or f16 or bf16*f64");
    assert_program_refuses(RUN("forward", SMALL, "--merged-qk", "--cache-dtype", "f16"), 2,
                           "--cache-dtype*--merged-qk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_shows_and_is_small),
        cmocka_unit_test(forward_computes_in_bf16),
        cmocka_unit_test(a_run_in_bf16_is_a_case_that_is_judged),
        cmocka_unit_test(the_precision_of_what_is_expected),
        cmocka_unit_test(bench_computes_in_bf16),
        cmocka_unit_test(forward_says_what_it_stores),
        cmocka_unit_test(the_table_shows_the_type_and_its_bytes),
        cmocka_unit_test(weights_of_a_file_are_stored_as_asked),
        cmocka_unit_test(bench_counts_the_bytes_it_reads),
        cmocka_unit_test(a_cache_of_8_bits),
        cmocka_unit_test(a_case_says_the_type_of_its_cache),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests_name("cli_half", tests, NULL, scratch_remove);
}
