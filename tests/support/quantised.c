/* Compares the values of quantised tensors with recorded ones, bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/quantised.h"
#include "support/unit.h"

float *read_values(const mha_file *file, const mha_file_tensor *tensor)
{
    mha_error error;
    float *values = malloc(tensor->elements * sizeof *values + 1);
    const mha_view view = mha_view_of(values, MHA_F32, tensor->rank, tensor->shape);
    assert_ok(mha_file_read(file, tensor, &view, &error), error);
    return values;
}

void assert_same_values(const char *name, const float *found, const float *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&found[i], &expected[i], sizeof *found) != 0 && !(isnan(found[i]) && isnan(expected[i])))
            fail_msg("%s: value %zu is %.9g, expected %.9g", name, i, (double)found[i], (double)expected[i]);
}

void check_recorded_values(const char *path, size_t count)
{
    mha_error error;
    mha_file *file = NULL;
    assert_ok(mha_file_open(path, &file, &error), error);
    size_t compared = 0;
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const mha_file_tensor *tensor = mha_file_at(file, i);
        char name[80];
        snprintf(name, sizeof name, "%s.values", tensor->name);
        const mha_file_tensor *values = mha_file_find(file, name);
        if (!values)
            continue;
        assert_int_equal(tensor->reads_as, MHA_F32);
        assert_int_equal(tensor->elements, values->elements);
        float *found = read_values(file, tensor), *expected = read_values(file, values);
        assert_same_values(tensor->name, found, expected, tensor->elements);
        free(found);
        free(expected);
        compared++;
    }
    assert_int_equal(compared, count);
    mha_file_close(file);
}
