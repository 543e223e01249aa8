/* mha show: the numbers that it prints, and the page, which is read back and holds the numbers of the trace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/lab.h"
#include "support/page_data.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

#define LOOKUP "--weights", "weights/lookup/model.safetensors", "--input", "weights/lookup/recorded.safetensors:input"

static void runs(program_result r)
{
    if (r.code != 0)
        fail_msg("exit code %d: %s", r.code, r.err);
    assert_string_equal(r.err, "");
    program_free(&r);
}

/* A stage of a trace as float64. */
static mha_view stage_of(const char *path, const char *name)
{
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    const mha_file_tensor *t = mha_file_find(file, name);
    assert_non_null(t);
    double *data = malloc(t->elements * sizeof *data);
    assert_non_null(data);
    mha_view view = mha_view_of(data, MHA_F64, t->rank, t->shape);
    assert_ok(mha_file_read(file, t, &view, &error), error);
    mha_file_close(file);
    return view;
}

/* Every head of the page has the numbers of the trace, (B, h, T, S). `exact`: to the last bit; else a level away. */
static void assert_page_is(const char *page_path, const char *trace, bool exact)
{
    page_data page = page_data_read(page_path);
    mha_view weights = stage_of(trace, "weights"), masked = stage_of(trace, "masked"),
             capped = stage_of(trace, "capped");
    const size_t B = weights.shape[0], h = weights.shape[1], T = weights.shape[2], S = weights.shape[3];
    for (size_t n = 0; n < B * h; n++) {
        json_t *head = page_data_head(&page, 0, n);
        assert_int_equal(page_data_count(&page, head, "weights"), T * S);
        for (size_t i = 0; i < T * S; i += exact ? 1 : 7) { /* 7 meets every column */
            const double w = ((double *)weights.data)[n * T * S + i], m = ((double *)masked.data)[n * T * S + i];
            const double found = page_data_number(&page, head, "weights", i), step = pow(10, 0.51 * 6 / 252);
            if (m == -INFINITY)
                assert_true(found == -INFINITY);
            else if (exact)
                assert_true(found == w);
            else
                assert_true(w < 1e-6 ? found == 0 : found <= w * step && found >= w / step);
            if (exact) {
                assert_true(page_data_number(&page, head, "masked", i) == m);
                assert_true(page_data_number(&page, head, "scores", i) == ((double *)capped.data)[n * T * S + i]);
            }
        }
    }
    free(weights.data);
    free(masked.data);
    free(capped.data);
    page_data_free(&page);
}

static void a_page_holds_the_numbers_of_the_trace(void **state)
{
    (void)state;
    const char *trace = scratch("trace.safetensors"), *page = scratch("run.html"), *again = scratch("trace.html");
    runs(RUN("forward", LOOKUP, "--heads", "6", "--causal", "--path", "exact", "--trace", trace, "--quiet"));
    runs(RUN("show", LOOKUP, "--heads", "6", "--causal", "--picture", page, "--quiet"));
    assert_page_is(page, trace, true);
    runs(RUN("show", trace, "--picture", again, "--quiet"));
    assert_page_is(again, trace, true);
}

/* The walk has each stage of the first batch row, the input and the weights. */
static void the_walk_holds_every_stage(void **state)
{
    (void)state;
    static const char *const stages[] = {"q",      "k",      "v",       "q_rot", "k_rot",
                                         "scores", "masked", "weights", "heads", "output"};
    const char *trace = scratch("walked.safetensors"), *path = scratch("walked.html");
    runs(RUN("forward", LOOKUP, "--heads", "6", "--rope", "half", "--path", "exact", "--trace", trace, "--quiet"));
    runs(RUN("show", LOOKUP, "--heads", "6", "--rope", "half", "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    json_t *walk = json_object_get(json_array_get(json_object_get(page.json, "layers"), 0), "walk");
    json_t *arrays = json_object_get(walk, "arrays");
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        json_t *array = json_object_get(arrays, stages[s]);
        mha_view stage = stage_of(trace, stages[s]);
        const size_t count = mha_view_elements(&stage) / stage.shape[0];
        assert_int_equal(page_data_count(&page, array, "numbers"), count);
        for (size_t i = 0; i < count; i++)
            assert_true(page_data_number(&page, array, "numbers", i) == ((double *)stage.data)[i]);
        free(stage.data);
    }
    assert_int_equal(page_data_count(&page, json_object_get(arrays, "x_q"), "numbers"), 12 * 48);
    assert_int_equal(page_data_count(&page, json_object_get(arrays, "W_O"), "numbers"), 48 * 48);
    page_data_free(&page);
}

static json_t *walk_of(const page_data *page)
{
    return json_object_get(json_array_get(json_object_get(page->json, "layers"), 0), "walk");
}

/* A page without room omits, one by one: matrices of weights, other heads, the walk. */
static void a_walk_says_what_it_leaves_out(void **state)
{
    (void)state;
    const char *path = scratch("walks.html");
    runs(RUN("show", "--seq", "4", "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    json_t *arrays = json_object_get(walk_of(&page), "arrays"), *W_Q = json_object_get(arrays, "W_Q");
    assert_int_equal(json_integer_value(json_object_get(W_Q, "numbers")), -1);
    assert_int_equal(json_integer_value(json_object_get(W_Q, "columns")), 768);
    assert_int_equal(page_data_count(&page, json_object_get(arrays, "q"), "numbers"), 4 * 768);
    page_data_free(&page);
    runs(RUN("show", "--seq", "64", "--d-model", "64", "--heads", "16", "--picture", path, "--quiet"));
    page = page_data_read(path);
    assert_non_null(strstr(json_string_value(walk_of(&page)), "too many numbers for a page: --head"));
    page_data_free(&page);
    runs(RUN("show", "--seq", "64", "--d-model", "64", "--heads", "16", "--head", "5", "--picture", path, "--quiet"));
    page = page_data_read(path);
    assert_int_equal(json_integer_value(json_object_get(walk_of(&page), "firstHead")), 5);
    json_t *scores = json_object_get(json_object_get(walk_of(&page), "arrays"), "weights"),
           *head = page_data_head(&page, 0, 0);
    assert_int_equal(page_data_count(&page, scores, "numbers"), 64 * 64);
    for (size_t i = 0; i < 64 * 64; i++)
        assert_true(page_data_number(&page, scores, "numbers", i) == page_data_number(&page, head, "weights", i));
    page_data_free(&page);
}

/* Keys and values of a call with a cache are those of the cache and the new ones, as present_key and present_value. */
static void a_walk_has_the_rows_of_a_cache(void **state)
{
    (void)state;
    static const char file[] = "tests/vectors/onnx_past_causal.safetensors";
    static const char *const names[][2] = {{"k_rot", "expected64.present_key"}, {"v", "expected64.present_value"}};
    const char *path = scratch("cached.html");
    runs(RUN("show", file, "--batch", "1", "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    json_t *arrays = json_object_get(walk_of(&page), "arrays");
    for (size_t n = 0; n < 2; n++) {
        const mha_view present = stage_of(file, names[n][1]); /* (B, h_kv, S, d) */
        const size_t h = present.shape[1], S = present.shape[2], d = present.shape[3];
        json_t *array = json_object_get(arrays, names[n][0]);
        assert_int_equal(json_integer_value(json_object_get(array, "rows")), S);
        for (size_t i = 0; i < S; i++)
            for (size_t c = 0; c < h * d; c++)
                assert_true(page_data_number(&page, array, "numbers", i * h * d + c) ==
                            mha_view_get(&present, (size_t[]){1, c / d, i, c % d}));
        assert_int_equal(json_integer_value(json_object_get(walk_of(&page), "past")),
                         S - (size_t)json_integer_value(json_object_get(json_object_get(arrays, "k"), "rows")));
        free(present.data);
    }
    assert_true(json_integer_value(json_object_get(walk_of(&page), "past")) > 0);
    page_data_free(&page);
}

static void a_large_page_holds_them_in_levels(void **state)
{
    (void)state;
    const char *trace = scratch("large.safetensors"), *page = scratch("large.html");
    runs(RUN("forward", "--d-model", "10", "--heads", "5", "--seq", "512", "--causal", "--path", "exact", "--trace",
             trace, "--quiet"));
    runs(RUN("show", trace, "--picture", page, "--quiet"));
    assert_page_is(page, trace, false);
}

/* The weights that --query names are the largest of that row of the recorded weights, also where the map is pooled. */
static void one_query_has_its_strongest_keys(void **state)
{
    (void)state;
    static const char *const sizes[][2] = {{"7", "5"}, {"1500", "1234"}};
    const char *trace = scratch("query.safetensors");
    for (size_t n = 0; n < 2; n++) {
        const size_t T = strtoul(sizes[n][0], NULL, 10), query = strtoul(sizes[n][1], NULL, 10);
        runs(RUN("forward", "--d-model", "8", "--heads", "2", "--seq", sizes[n][0], "--causal", "--trace", trace,
                 "--stage", "weights", "--quiet"));
        mha_view weights = stage_of(trace, "weights");
        json_t *root = RUN_JSON(0, "show", trace, "--query", sizes[n][1], "--head", "1", "--json");
        json_t *head = json_array_get(json_object_get(json_array_get(json_object_get(root, "layers"), 0), "heads"), 0);
        json_t *strongest = json_object_get(head, "strongest");
        assert_int_equal(json_integer_value(json_object_get(head, "queries")), 1);
        assert_int_equal(json_array_size(strongest), 4);
        const double *row = (double *)weights.data + (T + query) * T;
        for (size_t i = 0; i < 4; i++) {
            json_t *one = json_array_get(strongest, i);
            const float weight = (float)json_real_value(json_object_get(one, "weight")); /* its 15 digits are enough */
            const size_t key = (size_t)json_integer_value(json_object_get(one, "key"));
            size_t larger = 0;
            for (size_t k = 0; k < T; k++)
                larger += row[k] > (double)weight;
            assert_true(key < T && row[key] == (double)weight);
            assert_int_equal(larger, i);
        }
        json_decref(root);
        free(weights.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_holds_the_numbers_of_the_trace),
        cmocka_unit_test(the_walk_holds_every_stage),
        cmocka_unit_test(a_walk_says_what_it_leaves_out),
        cmocka_unit_test(a_walk_has_the_rows_of_a_cache),
        cmocka_unit_test(a_large_page_holds_them_in_levels),
        cmocka_unit_test(one_query_has_its_strongest_keys),
    };
    return cmocka_run_group_tests_name("cli_show", tests, NULL, scratch_remove);
}
