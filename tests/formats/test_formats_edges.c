/* Edges of files: views too large to be gathered at once, names too long, things that are no files; and weights
 * files whose layers cannot be chosen. */
#include "support/unit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/lab.h"
#include "mha/model.h"
#include "support/scratch.h"

/* ---------------------------------------------------------------- pieces */

/* Strided views of a few million bytes are written piece by piece: rows that fit together, single rows, parts of a row.
 */
static void large_strided_views_come_back(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{600000, 2, 1}, {2, 600000, 1}, {3, 2, 300000}, {2, 3, 200001}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t n = shapes[s][0] * shapes[s][1] * shapes[s][2];
        float *data = malloc(2 * n * sizeof *data), *back = calloc(n, sizeof *back);
        for (size_t i = 0; i < 2 * n; i++)
            data[i] = (float)(i % 8388593);
        mha_view view = mha_view_of(data, MHA_F32, 3, shapes[s]);
        for (int k = 0; k < 3; k++)
            view.stride[k] *= 2; /* every second element */
        for (int npy = 0; npy < 2; npy++) {
            mha_writer *writer;
            mha_file *file;
            mha_error error;
            const char *path = scratch_path(npy ? "large.npy" : "large.safetensors");
            assert_ok(mha_writer_create(path, &writer, &error), error);
            assert_ok(mha_writer_add(writer, "x", &view, &error), error);
            assert_ok(mha_writer_commit(writer, &error), error);
            mha_writer_destroy(writer);
            assert_ok(mha_file_open(path, &file, &error), error);
            mha_view to = mha_view_of(back, MHA_F32, 3, shapes[s]);
            assert_ok(mha_file_read(file, mha_file_at(file, 0), &to, &error), error);
            for (size_t i = 0; i < n; i++)
                if (back[i] != data[2 * i])
                    fail_msg("shape %zu, element %zu: %g, expected %g", s, i, (double)back[i], (double)data[2 * i]);
            memset(data, 0, 2 * n * sizeof *data); /* and read into every second element */
            assert_ok(mha_file_read(file, mha_file_at(file, 0), &view, &error), error);
            for (size_t i = 0; i < n; i++)
                if (data[2 * i] != back[i] || data[2 * i + 1] != 0)
                    fail_msg("shape %zu, element %zu: %g, expected %g", s, i, (double)data[2 * i], (double)back[i]);
            for (size_t i = 0; i < 2 * n; i++)
                data[i] = (float)(i % 8388593);
            mha_file_close(file);
            remove(path);
        }
        free(data);
        free(back);
    }
}

/* ---------------------------------------------------------------- names */

static void names_that_lead_nowhere_are_named(void **state)
{
    (void)state;
    mha_file *file = NULL;
    mha_writer *writer = NULL;
    mha_error error;
    static char deep[PATH_MAX + 64];
    memset(deep, 'd', sizeof deep - 1);
    memcpy(deep + sizeof deep - 8, "/x.npy", 7);
    assert_refused(mha_writer_create(deep, &writer, &error), MHA_IO, error, "cannot write");
    assert_refused(mha_file_open(deep, &file, &error), MHA_NOT_FOUND, error, "expected a file, found none");
    assert_refused(mha_file_open("/dev/null", &file, &error), MHA_INVALID, error, "found a device");
    assert_refused(mha_file_open(scratch_path("no/such.npy"), &file, &error), MHA_NOT_FOUND, error, "no/such.npy");
    assert_refused(mha_writer_create(scratch_path("no/such.npy"), &writer, &error), MHA_IO, error, "no/such.npy");
    assert_refused(mha_writer_create(scratch_path(""), &writer, &error), MHA_INVALID, error, "");
    assert_int_equal(symlink("loop.npy", scratch_path("loop.npy")), 0);
    assert_refused(mha_file_open(scratch_path("loop.npy"), &file, &error), MHA_NOT_FOUND, error, "loop.npy");
    mha_file_close(NULL);
    mha_writer_destroy(NULL);
}

/* Reading needs memory to read into, unless there is nothing to read. */
static void without_memory_nothing_is_read(void **state)
{
    (void)state;
    mha_file *file;
    mha_error error;
    float x[6] = {1, 2, 3, 4, 5, 6};
    for (size_t rows = 0; rows < 4; rows += 3) {
        mha_writer *writer;
        const size_t shape[] = {rows, 2};
        const mha_view from = mha_view_of(x, MHA_F32, 2, shape), nowhere = mha_view_of(NULL, MHA_F32, 2, shape);
        const char *path = scratch_path("six.npy");
        assert_ok(mha_writer_create(path, &writer, &error), error);
        assert_ok(mha_writer_add(writer, "x", &from, &error), error);
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        assert_ok(mha_file_open(path, &file, &error), error);
        const mha_file_tensor *tensor = mha_file_at(file, 0);
        if (rows > 0)
            assert_refused(mha_file_read(file, tensor, &nowhere, &error), MHA_INVALID, error, "six.npy",
                           "expected memory to read into, found a view without data");
        else
            assert_ok(mha_file_read(file, tensor, &nowhere, &error), error);
        mha_file_close(file);
    }
}

/* ---------------------------------------------------------------- layers of a weights file */

typedef struct weight {
    const char *name;
    size_t rows, columns; /* columns 0: a vector */
} weight;

static mha_file *weights_file(const weight *weights, size_t n)
{
    static float zeros[4096];
    mha_writer *writer;
    mha_file *file;
    mha_error error;
    const char *path = scratch_path("weights.safetensors");
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < n; i++) {
        mha_view view = mha_view_of(zeros, MHA_F32, weights[i].columns ? 2 : 1,
                                    (const size_t[]){weights[i].rows, weights[i].columns});
        assert_ok(mha_writer_add(writer, weights[i].name, &view, &error), error);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    assert_ok(mha_file_open(path, &file, &error), error);
    return file;
}

static void many_layers_are_listed_in_short(void **state)
{
    (void)state;
    char names[9][4][60];
    weight weights[36];
    static const char *const parts[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    for (size_t i = 0; i < 36; i++) {
        snprintf(names[i / 4][i % 4], 60, "model.layers.%zu.self_attn.%s.weight", i / 4, parts[i % 4]);
        weights[i] = (weight){names[i / 4][i % 4], 8, 8};
    }
    mha_file *file = weights_file(weights, 36);
    mha_params *table;
    mha_layer *layer;
    mha_error error;
    mha_load_report report;
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    mha_load_options options = {.n_heads = 2};
    assert_refused(mha_model_load_layer(file, &options, table, &layer, NULL, &error), MHA_INVALID, error,
                   "'model.layers.0.self_attn'", "'model.layers.5.self_attn'", "... (9 in all)");
    assert_null(strstr(error.message, "layers.6"));
    options.layer = "model.layers.77";
    assert_refused(mha_model_load_layer(file, &options, table, &layer, NULL, &error), MHA_NOT_FOUND, error,
                   "model.layers.77");
    static char prefix[400];
    memset(prefix, 'p', sizeof prefix - 1);
    options.layer = prefix;
    assert_refused(mha_model_load_layer(file, &options, table, &layer, NULL, &error), MHA_NOT_FOUND, error,
                   "below 256 bytes", "399");
    assert_int_equal(mha_params_count(table), 0);
    options.layer = "model.layers.3.";
    assert_ok(mha_model_load_layer(file, &options, table, &layer, &report, &error), error);
    assert_string_equal(report.layer.prefix, "model.layers.3.self_attn");
    assert_int_equal(report.tensors, 4);
    mha_layer_destroy(layer);
    assert_int_equal(mha_model_find_layers(file, NULL, 0), 9);
    mha_found_layer found[2];
    assert_int_equal(mha_model_find_layers(file, found, 2), 9);
    assert_string_equal(found[1].prefix, "model.layers.1.self_attn");
    mha_file_close(file);
    mha_params_destroy(table);
}

static void what_no_layer_can_be_made_of_is_named(void **state)
{
    (void)state;
    static const struct {
        weight weights[5];
        mha_load_options options;
        mha_status status;
        const char *texts[2];
    } rows[] = {
        {{{"in_proj_weight", 11, 4}, {"out_proj.weight", 4, 4}},
         {.n_heads = 2},
         MHA_INVALID,
         {"in_proj_weight", "multiple of 3"}},
        {{{"in_proj_weight", 12, 4}, {"out_proj.weight", 4, 4}}, {0}, MHA_INVALID, {"heads", ""}},
        {{{"in_proj_weight", 12, 4}, {"out_proj.weight", 4, 4}}, {.n_heads = 3}, MHA_INVALID, {"3", "4"}},
        {{{"in_proj_weight", 12, 4}}, {.n_heads = 2}, MHA_NOT_FOUND, {"out", ""}},
        {{{"W_Q", 8, 8}, {"W_K", 8, 8}, {"W_V", 8, 8}, {"W_O", 8, 0}}, {.n_heads = 2}, MHA_INVALID, {"W_O", ""}},
        {{{"W_Q", 8, 8}, {"W_K", 8, 6}, {"W_V", 8, 8}, {"W_O", 8, 8}}, {.n_heads = 2}, MHA_INVALID, {"W_K", ""}},
        {{{"embedding", 8, 8}}, {.n_heads = 2}, MHA_NOT_FOUND, {"", ""}},
        {{{"W_Q", 8, 8}, {"W_K", 8, 8}, {"W_V", 8, 8}, {"W_O", 8, 8}, {"b_Q", 7, 0}},
         {.n_heads = 2},
         MHA_INVALID,
         {"b_Q", "7"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        while (n < 5 && rows[i].weights[n].name)
            n++;
        mha_file *file = weights_file(rows[i].weights, n);
        mha_params *table;
        mha_layer *layer;
        mha_error error = {0};
        assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
        assert_refused(mha_model_load_layer(file, &rows[i].options, table, &layer, NULL, &error), rows[i].status,
                       error, rows[i].texts[0], rows[i].texts[1]);
        assert_int_equal(mha_params_count(table), 0);
        mha_file_close(file);
        mha_params_destroy(table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_strided_views_come_back),
        cmocka_unit_test(names_that_lead_nowhere_are_named),
        cmocka_unit_test(without_memory_nothing_is_read),
        cmocka_unit_test(many_layers_are_listed_in_short),
        cmocka_unit_test(what_no_layer_can_be_made_of_is_named),
    };
    return cmocka_run_group_tests_name("formats_edges", tests, NULL, NULL);
}
