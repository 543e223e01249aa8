/* Quantised tensors: the values that the formats' own programs recorded, in any shape and type. */
#include <stdlib.h>
#include <string.h>

#include "mha/file.h"
#include "support/opening.h"
#include "support/quantised.h"
#include "support/scratch.h"
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
    columns = mha__view_swap(&columns, 0, 1); /* rows of elements / 3, which lie 3 apart */
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

/* A tensor of more blocks than are read at a time: block b holds 32 times b % 16 - 8. */
static void long_tensors_are_read_piece_by_piece(void **state)
{
    (void)state;
    enum { BLOCKS = 5000, HEAD = 64 };
    static unsigned char raw[HEAD + BLOCKS * 18] = "GGUF\003";
    raw[8] = 1;                             /* one tensor, no metadata; its name, */
    raw[24] = 1, raw[32] = 'q';           /* of one letter */
    raw[33] = 1;                            /* one dimension */
    const uint64_t elements = 32 * BLOCKS;
    memcpy(raw + 37, &elements, 8);
    raw[45] = 2;                            /* Q4_0, at offset 0 behind the next multiple of 32 */
    for (size_t b = 0; b < BLOCKS; b++) {
        unsigned char *block = raw + HEAD + 18 * b;
        block[1] = 0x3c; /* a scale of 1 */
        memset(block + 2, (int)(b % 16 * 17), 16);
    }
    mha_error error;
    mha_file *file = NULL;
    assert_ok(mha_file_open(scratch_write("long.gguf", (char *)raw, sizeof raw), &file, &error), error);
    float *values = read_values(file, mha_file_at(file, 0));
    for (size_t i = 0; i < elements; i++)
        if (values[i] != (float)(i / 32 % 16) - 8)
            fail_msg("element %zu is %g", i, (double)values[i]);
    free(values);
    mha_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_recorded_values),
        cmocka_unit_test(any_target_gets_the_same_values),
        cmocka_unit_test(long_tensors_are_read_piece_by_piece),
    };
    return cmocka_run_group_tests_name("quantised formats", tests, NULL, NULL);
}
