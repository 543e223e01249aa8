/* Published weights, where MODELS_DIR has them: every file against the listing that came with it. */
#include <dirent.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/file.h"
#include "support/unit.h"

static double number_of(const json_t *tensor, const char *key)
{
    return json_number_value(json_object_get(tensor, key));
}

static void check_values(const mha_file *file, const mha_file_tensor *tensor, const json_t *expected)
{
    mha_error error;
    double *values = malloc(tensor->elements * sizeof *values + 1), sum = 0, magnitude = 0, min = INFINITY,
           max = -INFINITY;
    mha_view view = mha_view_of(values, MHA_F64, 1, &tensor->elements);
    assert_ok(mha_file_read(file, tensor, &view, &error), error);
    for (size_t i = 0; i < tensor->elements; i++) {
        sum += values[i];
        magnitude += fabs(values[i]);
        min = fmin(min, values[i]);
        max = fmax(max, values[i]);
    }
    free(values);
    if (tensor->elements == 0)
        return;
    /* Two orders of adding n doubles differ by less than 2 (n - 1) roundings of the sum of magnitudes. */
    double tolerance = 2 * (double)tensor->elements * DBL_EPSILON * magnitude;
    if (!(fabs(sum - number_of(expected, "sum")) <= tolerance))
        fail_msg("%s: sum %.17g, expected %.17g", tensor->name, sum, number_of(expected, "sum"));
    assert_true(min == number_of(expected, "min"));
    assert_true(max == number_of(expected, "max"));
}

static void check_tensor(const mha_file *file, const mha_file_tensor *tensor, const json_t *expected)
{
    assert_string_equal(tensor->name, json_string_value(json_object_get(expected, "name")));
    assert_string_equal(mha_dtype_name(tensor->dtype), json_string_value(json_object_get(expected, "dtype")));
    assert_int_equal(tensor->offset, json_integer_value(json_object_get(expected, "offset")));
    assert_int_equal(tensor->bytes, json_integer_value(json_object_get(expected, "nbytes")));
    assert_int_equal(tensor->elements, json_integer_value(json_object_get(expected, "numel")));
    const json_t *shape = json_object_get(expected, "shape");
    assert_int_equal(tensor->rank, json_array_size(shape));
    for (int k = 0; k < tensor->rank; k++)
        assert_int_equal(tensor->shape[k], json_integer_value(json_array_get(shape, (size_t)k)));
    if (json_object_get(expected, "sum"))
        check_values(file, tensor, expected);
}

static void check_file(const char *path, const json_t *expected, size_t *checked)
{
    const json_t *tensors = json_object_get(expected, "tensors");
    const char *format = json_string_value(json_object_get(expected, "format"));
    mha_file *file;
    mha_error error;
    if (!tensors)
        return; /* described, but not there */
    if (strncmp(format, "llama2.c", 8) == 0) {
        assert_refused(mha_file_open(path, &file, &error), MHA_FORMAT, error, "llama2.c");
        ++*checked;
        return;
    }
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(mha_file_count(file), json_integer_value(json_object_get(expected, "tensor_count")));
    size_t elements = 0;
    for (size_t i = 0; i < mha_file_count(file); i++) {
        /* The listing is in the order of the data, the file's header need not be. */
        const json_t *one = json_array_get(tensors, i);
        const mha_file_tensor *tensor = mha_file_find(file, json_string_value(json_object_get(one, "name")));
        assert_non_null(tensor);
        check_tensor(file, tensor, one);
        elements += mha_file_at(file, i)->elements;
    }
    assert_int_equal(elements, json_integer_value(json_object_get(expected, "total_elements")));
    const char *key;
    const json_t *value, *metadata = json_object_get(expected, "metadata");
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
        assert_string_equal(mha_file_metadata(file, key), json_string_value(value));
    mha_file_close(file);
    ++*checked;
}

/* The metadata a GGUF listing gives: numbers and strings, arrays in words. */
static void check_pairs(const char *path, const json_t *pairs)
{
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(mha_file_metadata_count(file), json_object_size(pairs));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)pairs, key, value)
    {
        const char *text = mha_file_metadata(file, key);
        assert_non_null(text);
        if (json_is_string(value))
            assert_string_equal(text, json_string_value(value));
        else if (json_is_number(value)) /* nine digits name a float */
            assert_true((float)strtod(text, NULL) == (float)json_number_value(value));
    }
    mha_file_close(file);
}

static void every_file_holds_what_its_listing_says(void **state)
{
    (void)state;
    const char *models = getenv("MODELS_DIR");
    DIR *directory = models && models[0] ? opendir(models) : NULL;
    if (!directory)
        skip_because("MODELS_DIR names no folder of trained models");
    size_t checked = 0;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s/expected.json", models, entry->d_name);
        json_t *listing = json_load_file(path, 0, NULL);
        const char *name;
        json_t *file;
        json_object_foreach(json_object_get(listing, "files"), name, file)
        {
            snprintf(path, sizeof path, "%s/%s/%s", models, entry->d_name, name);
            check_file(path, file, &checked);
            if (json_object_get(listing, "kv"))
                check_pairs(path, json_object_get(listing, "kv"));
        }
        json_decref(listing);
    }
    closedir(directory);
    print_message("%zu files checked\n", checked);
    assert_true(checked > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_file_holds_what_its_listing_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
