/* mha bench end to end: what it says, what it refuses; never how fast it is. */
#include "support/unit.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "support/program.h"

static json_t *bench(const char *shape, const char *part)
{
    program_result r = RUN("bench", "--shape", shape, "--part", part, "--rounds", "2", "--threads", "2", "--json");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    program_free(&r);
    return root;
}

/* Times are rounded to the nanosecond, rates are not. */
#define assert_close(found, expected, tolerance) assert_true(fabs((found) - (expected)) <= (tolerance) * fabs(expected))

static double number(const json_t *row, const char *key)
{
    assert_true(json_is_number(json_object_get(row, key)));
    return json_number_value(json_object_get(row, key));
}

static void keys_of_the_contract(void **state)
{
    (void)state;
    json_t *root = bench("2,20,20,32,4,kv=2,causal", "both");
    json_t *machine = json_object_get(root, "machine"), *rows = json_object_get(root, "rows");
    static const char *const texts[] = {"cpu", "isa", "blas", "blas_threading"};
    for (size_t i = 0; i < 4; i++)
        assert_non_null(json_object_get(machine, texts[i]));
    assert_int_equal(json_integer_value(json_object_get(machine, "threads")), 2);
    assert_true(number(machine, "peak_gflops") > 0 && number(machine, "read_gbs") > 0);
    assert_int_equal(json_array_size(rows), 4); /* layer and core, fast and blas */
    for (size_t i = 0; i < 4; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, "part")), i < 2 ? "layer" : "core");
        assert_string_equal(json_string_value(json_object_get(row, "path")), i % 2 ? "blas" : "fast");
        assert_true(number(row, "ms_min") > 0 && number(row, "ms_median") >= number(row, "ms_min"));
        /* 2 B T T h d_k multiply-adds twice, halved; projections of 32 x 32, 32 x 16, 32 x 16 and 32 x 32 for 40 rows */
        double core = 4.0 * 2 * 20 * 20 * 32 / 2, layer = core + 2.0 * 40 * 32 * (32 + 16 + 16 + 32);
        assert_close(number(row, "gflops") * number(row, "ms_min") * 1e6, i < 2 ? layer : core, 0.01);
        assert_close(number(row, "percent_of_peak"), 100 * number(row, "gflops") / number(machine, "peak_gflops"), 1e-6);
        assert_true(number(row, "tokens_per_s") > 0);
        assert_true(number(row, "error_of_bound") <= 1);
        assert_non_null(json_object_get(row, "rss_mib"));
    }
    json_decref(root);
}

static void decoding_counts_what_it_reads(void **state)
{
    (void)state;
    json_t *root = bench("2,1,300,32,4", "both"), *rows = json_object_get(root, "rows");
    double cache = 2.0 * 2 * 300 * 32 * 4, weights = 4.0 * 32 * 32 * 4;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        assert_close(number(row, "gbs") * number(row, "ms_min") * 1e6, cache + (i < 2 ? weights : 0), 0.01);
    }
    json_decref(root);
}

static void what_it_refuses(void **state)
{
    (void)state;
    static const char *const wrong[] = {"bert", "1,2,3", "1,16,16,30,4", "1,16,16,32,4,kv=3", "1,16,16,32,4,fast", "0,1,1,4,1",
                                        "1,16,16,32,4,", "1,16,16,32,4x", "-1,16,16,32,4", "1,16,16,32,99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_result r = RUN("bench", "--shape", wrong[i]);
        assert_int_equal(r.code, 2);
        assert_string_equal(r.out, "");
        assert_non_null(strstr(r.err, "--shape"));
        assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
        program_free(&r);
    }
    program_result r = RUN("bench", "--shape", "1,4,4,8,2", "--rounds", "0");
    assert_int_equal(r.code, 2);
    program_free(&r);
    r = RUN("bench", "--shape", "1,4,4,8,2", "--rounds", "1", "--quiet", "--plot", "figure.png");
    assert_int_equal(r.code, 2);
    program_free(&r);
}

static void several_shapes_as_a_table(void **state)
{
    (void)state;
    program_result r = RUN("bench", "--shape", "1,7,7,12,3,nobias", "--shape", "1,5,9,12,2,dk=5", "--part", "core", "--path", "fast",
                           "--rounds", "1", "--threads", "1", "--csv");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "\"1,7,7,12,3,nobias\",core,fast,1,"));
    assert_non_null(strstr(r.out, "\"1,5,9,12,2,dk=5\",core,fast,1,"));
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_the_contract),
        cmocka_unit_test(decoding_counts_what_it_reads),
        cmocka_unit_test(what_it_refuses),
        cmocka_unit_test(several_shapes_as_a_table),
    };
    return cmocka_run_group_tests_name("cli_bench", tests, NULL, NULL);
}
