/* mha params and mha heads: counts read from what was allocated, shown in every format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/program.h"
#include "support/unit.h"

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* ---------------------------------------------------------------- params */

/* Issue by issue, these totals are published or follow from counting the matrices by hand: 4*768*768 and
 * 4*768 biases; 512*512*3 + 256*512 with d_v = 32 makes W_V (512, 256) and W_O (256, 512). */
static void test_totals(void **state)
{
    (void)state;
    static const struct {
        const char *args[12];
        json_int_t total;
    } cases[] = {
        {{"params", "--json"}, 4 * 768 * 768 + 4 * 768},
        {{"params", "--json", "--bias"}, 2362368},
        {{"params", "--json", "--no-bias"}, 2359296},
        {{"params", "--json", "--d-model", "512", "--heads", "8", "--no-bias"}, 1048576},
        {{"params", "--json", "--d-model", "512", "--heads", "8", "--d-k", "64", "--d-v", "32"}, 788224},
        {{"params", "--json", "--d-model", "512", "--heads", "8", "--d-k", "64", "--d-v", "32", "--no-bias"}, 786432},
        {{"params", "--json", "--heads", "12", "--kv-heads", "4", "--no-bias"}, 2 * 768 * 768 + 2 * 768 * 256},
        {{"params", "--json", "--kdim", "10", "--vdim", "20", "--no-bias"}, (768 + 10 + 20 + 768) * 768},
        {{"params", "--json", "--d-q", "5", "--d-out", "7", "--no-bias"}, (5 + 768 + 768 + 7) * 768},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = run_json(0, cases[i].args);
        assert_int_equal(number(root, "total_parameters"), cases[i].total);
        assert_int_equal(number(root, "attention_parameters"), cases[i].total);
        assert_int_equal(number(root, "total_bytes"), 4 * cases[i].total);
        json_decref(root);
    }
}

static void test_rows_add_up_and_have_their_keys(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--format", "json");
    assert_keys(root,
                "total_parameters,attention_parameters,total_bytes,buffer_elements,inert_elements,storages,tensors");
    assert_int_equal(number(root, "storages"), 8);
    assert_int_equal(number(root, "inert_elements"), 768);
    assert_int_equal(number(root, "buffer_elements"), 0);
    json_t *tensors = json_object_get(root, "tensors"), *row;
    size_t i;
    json_int_t elements = 0, bytes = 0;
    static const char *const names[] = {"W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O"};
    assert_int_equal(json_array_size(tensors), 8);
    json_array_foreach(tensors, i, row)
    {
        assert_keys(row, "name,role,shape,dtype,source_dtype,elements,bytes,storage,alias_of,trainable");
        assert_string_equal(json_string_value(json_object_get(row, "name")), names[i]);
        assert_string_equal(json_string_value(json_object_get(row, "dtype")), "F32");
        assert_true(json_is_null(json_object_get(row, "alias_of")));
        assert_true(json_is_true(json_object_get(row, "trainable")));
        assert_int_equal(number(row, "storage"), i);
        assert_null(json_object_get(row, "heads")); /* only with --per-head */
        elements += number(row, "elements");
        bytes += number(row, "bytes");
    }
    assert_int_equal(elements, number(root, "total_parameters"));
    assert_int_equal(bytes, number(root, "total_bytes"));
    json_decref(root);
}

/* Blocks lie along the rows of a column: heads of W_Q begin where those of floats do, and so do those of W_O, also
 * inside a block. */
static void test_heads_of_quantised_weights(void **state)
{
    (void)state;
    json_t *small = RUN_JSON(0, "params", "--json", "--per-head", "--d-model", "64", "--heads", "4", "--dtype", "q4_0");
    json_t *parts = json_object_get(json_array_get(json_object_get(small, "tensors"), 6), "heads");
    assert_int_equal(json_array_size(parts), 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(number(json_array_get(parts, i), "first_element"), i * 16 * 64);
    json_decref(small);
    program_result text = RUN("params", "--per-head", "--d-model", "64", "--heads", "4", "--dtype", "q8_0");
    assert_non_null(strstr(text.out, "rows 48 to 63"));
    program_free(&text);
    static const char *const types[] = {"q8_0", "q4_0", "f32"};
    for (size_t i = 0; i < 3; i++) {
        json_t *root = RUN_JSON(0, "params", "--json", "--per-head", "--d-model", "64", "--heads", "2", "--dtype",
                                types[i]);
        for (size_t t = 0; t < 8; t += 6) {
            json_t *heads = json_object_get(json_array_get(json_object_get(root, "tensors"), t), "heads");
            assert_int_equal(json_array_size(heads), 2);
            assert_int_equal(number(json_array_get(heads, 0), "first_element"), 0);
            assert_int_equal(number(json_array_get(heads, 1), "first_element"), t == 0 ? 32 : 32 * 64);
        }
        json_decref(root);
        program_result r = RUN("params", "--per-head", "--d-model", "64", "--heads", "2", "--dtype", types[i]);
        assert_int_equal(r.code, 0);
        assert_non_null(strstr(r.out, "columns 32 to 63"));
        assert_non_null(strstr(r.out, "rows 32 to 63"));
        program_free(&r);
        r = RUN("params", "--d-model", "64", "--heads", "2", "--merged-qk", "--dtype", types[i]);
        assert_int_equal(r.code, 0);
        program_free(&r);
    }
}

/* Head i of W_Q is columns [i*d_k, (i+1)*d_k); of W_O, rows. Together the slices are the tensor, and the
 * totals do not know of them. */
static void test_per_head_slices(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--json", "--per-head", "--d-model", "24", "--heads", "4", "--kv-heads", "2");
    assert_int_equal(number(root, "total_parameters"), 2 * 24 * 24 + 2 * 24 * 12 + 24 + 12 + 12 + 24);
    static const struct {
        const char *name;
        size_t heads;
        json_int_t shape[2], step, elements;
    } expected[] = {{"W_Q", 4, {24, 6}, 6, 144},     {"b_Q", 4, {6, 0}, 6, 6}, {"W_K", 2, {24, 6}, 6, 144},
                    {"b_K", 2, {6, 0}, 6, 6},        {"W_V", 2, {24, 6}, 6, 144}, {"b_V", 2, {6, 0}, 6, 6},
                    {"W_O", 4, {6, 24}, 6 * 24, 144}, {"b_O", 0, {0, 0}, 0, 0}};
    for (size_t t = 0; t < 8; t++) {
        json_t *row = json_array_get(json_object_get(root, "tensors"), t), *heads = json_object_get(row, "heads"),
               *head;
        assert_string_equal(json_string_value(json_object_get(row, "name")), expected[t].name);
        assert_int_equal(json_array_size(heads), expected[t].heads);
        size_t i;
        json_array_foreach(heads, i, head)
        {
            assert_int_equal(number(head, "head"), i);
            assert_int_equal(number(head, "first_element"), (json_int_t)i * expected[t].step);
            assert_int_equal(number(head, "elements"), expected[t].elements);
            assert_int_equal(json_integer_value(json_array_get(json_object_get(head, "shape"), 0)),
                             expected[t].shape[0]);
            assert_int_equal(json_integer_value(json_array_get(json_object_get(head, "shape"), 1)),
                             expected[t].shape[1]);
        }
    }
    json_decref(root);
}

static void test_text_has_separators_and_csv_has_none(void **state)
{
    (void)state;
    program_result text = RUN("params"), markdown = RUN("params", "--format", "markdown"),
                   csv = RUN("params", "--format", "csv");
    assert_int_equal(text.code + markdown.code + csv.code, 0);
    assert_non_null(strstr(text.out, "total  2,362,368 parameters in 9.01 MiB, 8 storages"));
    assert_non_null(strstr(text.out, "768 of them, b_K, cannot change the output"));
    assert_null(strstr(text.out, " \n")); /* no blanks at line ends */
    assert_int_equal(strncmp(markdown.out, "| name ", 7), 0);
    assert_non_null(
        strstr(markdown.out, "\n| total |            |                    |      | 2,362,368 | 9.01 MiB |\n"));
    assert_int_equal(strncmp(csv.out, "name,role,shape,dtype,source_dtype,elements,bytes,", 50), 0);
    assert_non_null(strstr(csv.out, "\nW_O,W_O,\"(768, 768)\",F32,F32,589824,2359296,6,,true,parameter,0\n"));
    program_free(&text);
    program_free(&markdown);
    program_free(&csv);
    text = RUN("params", "--per-head", "--d-model", "24", "--heads", "4", "--kv-heads", "1");
    assert_non_null(strstr(text.out, "columns 6 to 11"));
    assert_non_null(strstr(text.out, "rows 18 to 23"));
    assert_non_null(strstr(text.out, "elements 6 to 11"));
    program_free(&text);
    text = RUN("params", "--quiet");
    assert_int_equal(text.out_size, 0);
    program_free(&text);
    assert_program_refuses(RUN("params", "--json", "--format", "csv"), 2,
                           "--format: expected json beside --json, found csv");
}

/* A table of 2^60 bytes cannot be had; the machine is asked and says so. */
static void test_what_the_machine_cannot_give_is_exit_3(void **state)
{
    (void)state;
    assert_program_refuses(RUN("params", "--d-model", "268435456", "--heads", "1"), 3, "mha params: ");
}

/* ---------------------------------------------------------------- heads */

static void check_heads(const json_t *root, const json_int_t *expected, size_t n)
{
    json_t *rows = json_object_get(root, "rows"), *row;
    size_t i;
    assert_int_equal(json_array_size(rows), n);
    json_array_foreach(rows, i, row)
    {
        assert_keys(row, "heads,d_k,d_v,total_parameters,storages,output_max_abs");
        assert_int_equal(number(row, "total_parameters"), expected[i]);
        assert_int_equal(number(row, "storages"), 8);
        double max = json_real_value(json_object_get(row, "output_max_abs"));
        assert_true(max > 0 && max < 10); /* it ran: variance-preserving weights keep outputs near 1 */
    }
}

static void test_head_counts_share_one_total(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "heads", "--d-model", "768", "--heads", "1,2,3,4,6,8,12,16,24", "--json", "--seq", "8");
    assert_true(json_is_true(json_object_get(root, "invariant")));
    json_int_t expected[9];
    for (size_t i = 0; i < 9; i++)
        expected[i] = 2362368;
    check_heads(root, expected, 9);
    assert_int_equal(number(json_array_get(json_object_get(root, "rows"), 8), "d_k"), 32);
    json_decref(root);
    program_result text = RUN("heads", "--seq", "4");
    assert_int_equal(text.code, 0);
    assert_non_null(strstr(text.out, "The same total in every row: 2,362,368 parameters."));
    program_free(&text);
}

static void test_fixed_head_width_changes_the_total(void **state)
{
    (void)state;
    json_t *root =
        RUN_JSON(1, "heads", "--d-model", "512", "--d-k", "64", "--heads", "1,4,8,12", "--json", "--seq", "8");
    assert_true(json_is_false(json_object_get(root, "invariant")));
    check_heads(root, (const json_int_t[]){131776, 525568, 1050624, 1575680}, 4);
    json_decref(root);
    program_result text = RUN("heads", "--d-model", "512", "--d-k", "64", "--heads", "1,4,8,12", "--seq", "4");
    assert_int_equal(text.code, 1);
    assert_non_null(strstr(text.out, "Totals differ because d_k is held fixed"));
    assert_non_null(strstr(text.out, "from 64 to 768"));
    program_free(&text);
    text = RUN("heads", "--kv-heads", "2", "--heads", "2,4", "--seq", "4");
    assert_int_equal(text.code, 1);
    assert_non_null(strstr(text.out, "the number of key/value heads is held fixed"));
    program_free(&text);
}

static void test_heads_that_do_not_fit(void **state)
{
    (void)state;
    assert_program_refuses(RUN("heads", "--d-model", "512", "--heads", "8,12"), 2, "mha heads: --heads: *512*12");
    assert_program_refuses(RUN("heads", "--d-model", "7", "--heads", "2"), 2, "7*2");
    json_t *root = RUN_JSON(0, "heads", "--d-model", "10", "--json", "--seq", "4"); /* by default, those that divide */
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 2);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_rows_add_up_and_have_their_keys),
        cmocka_unit_test(test_per_head_slices),
        cmocka_unit_test(test_heads_of_quantised_weights),
        cmocka_unit_test(test_text_has_separators_and_csv_has_none),
        cmocka_unit_test(test_what_the_machine_cannot_give_is_exit_3),
        cmocka_unit_test(test_head_counts_share_one_total),
        cmocka_unit_test(test_fixed_head_width_changes_the_total),
        cmocka_unit_test(test_heads_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("cli_params", tests, NULL, scratch_remove);
}
