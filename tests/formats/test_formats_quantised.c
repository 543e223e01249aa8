/* Quantised tensors: the values that the formats' own programs recorded, in any shape and type. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/file.h"
#include "support/opening.h"
#include "support/scratch.h"
#include "support/unit.h"

static float *read_values(const mha_file *file, const mha_file_tensor *tensor)
{
    mha_error error;
    float *values = malloc(tensor->elements * sizeof *values + 1);
    const mha_view view = mha_view_of(values, MHA_F32, tensor->rank, tensor->shape);
    assert_ok(mha_file_read(file, tensor, &view, &error), error);
    return values;
}

/* The same bits, or both a NaN. */
static void assert_same_values(const char *name, const float *found, const float *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&found[i], &expected[i], sizeof *found) != 0 && !(isnan(found[i]) && isnan(expected[i])))
            fail_msg("%s: value %zu is %.9g, expected %.9g", name, i, (double)found[i], (double)expected[i]);
}

/* Each tensor NAME of a file of tests/vectors, written by tests/peers/quantised_peer.py, beside NAME.values. */
static void check_recorded(const char *path, size_t expected_count)
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
    assert_int_equal(compared, expected_count);
    mha_file_close(file);
}

static void blocks_have_the_recorded_values(void **state)
{
    (void)state;
    check_recorded("tests/vectors/quantised.gguf", 13);
}

/* A target of another shape, strides and type is filled piece by piece, and pieces begin and end inside of blocks. */
static void any_target_gets_the_same_values(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file = NULL;
    assert_ok(mha_file_open("tests/vectors/quantised.gguf", &file, &error), error);
    const mha_file_tensor *q = mha_file_find(file, "Q5_K");
    float *expected = read_values(file, q);
    double *wide = calloc(q->elements, sizeof *wide);
    uint16_t half = 0;
    mha_view columns = mha_view_of(wide, MHA_F64, 2, (size_t[]){q->elements / 3, 3});
    columns = mha_view_swap(&columns, 0, 1); /* rows of elements / 3, which lie 3 apart */
    assert_ok(mha_file_read(file, q, &columns, &error), error);
    for (size_t i = 0; i < q->elements; i++) {
        const float found = (float)wide[i % (q->elements / 3) * 3 + i / (q->elements / 3)];
        assert_same_values("Q5_K", &found, &expected[i], 1);
    }
    mha_view counts = mha_view_of(wide, MHA_I64, 1, &q->elements), one = mha_view_of(&half, MHA_F16, 0, NULL);
    assert_refused(mha_file_read(file, q, &counts, &error), MHA_UNSUPPORTED, error, "a floating type", "I64");
    assert_refused(mha_file_read(file, q, &one, &error), MHA_INVALID, error, "1536 elements");
    free(wide);
    free(expected);
    mha_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_recorded_values),
        cmocka_unit_test(any_target_gets_the_same_values),
    };
    return cmocka_run_group_tests_name("quantised formats", tests, NULL, NULL);
}
