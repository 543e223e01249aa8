/* Quantised tensors: the values that the formats' own programs recorded, in any shape and type. */
#include <stdlib.h>

#include "mha/file.h"
#include "support/opening.h"
#include "support/quantised.h"
#include "support/unit.h"

static void blocks_have_the_recorded_values(void **state)
{
    (void)state;
    check_recorded_values("tests/formats/quantised/blocks.gguf", 13);
}

/* A target of another shape, strides and type is filled piece by piece, and pieces begin and end inside of blocks. */
static void any_target_gets_the_same_values(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file = NULL;
    assert_ok(mha_file_open("tests/formats/quantised/blocks.gguf", &file, &error), error);
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
