/* Parts of tensors: what mha_file_read_part reads is the part of what mha_file_read reads, of every format, and of a
 * plain tensor no byte beside it is read. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zip.h>

#include "mha/file.h"
#include "support/scratch.h"
#include "support/unit.h"

static size_t bytes_read;

/* In place of the C library's: counts. */
ssize_t pread(int fd, void *to, size_t count, off_t offset)
{
    const ssize_t n = syscall(SYS_pread64, fd, to, count, offset);
    bytes_read += n > 0 ? (size_t)n : 0;
    return n;
}

/* ---------------------------------------------------------------- all parts of a file */

/* Compares a part, read into strides and a type of its own, with the whole. */
static void check_part(const mha_file *file, const mha_file_tensor *t, const double *whole, int axis, size_t from,
                       size_t count, bool plain)
{
    mha_error error;
    size_t shape[MHA_MAX_RANK], inner = 1, outer = 1;
    memcpy(shape, t->shape, sizeof shape);
    shape[axis] = count;
    for (int k = 0; k < t->rank; k++)
        *(k < axis ? &outer : k > axis ? &inner : &(size_t){0}) *= t->shape[k];
    const size_t n = outer * count * inner;
    double *wide = malloc((2 * n + 1) * sizeof *wide);
    float *own = malloc((n + 1) * sizeof *own);
    mha_view apart = mha_view_of(wide, MHA_F64, t->rank, shape), together = mha_view_of(own, MHA_F32, t->rank, shape);
    for (int k = 0; k < t->rank; k++)
        apart.stride[k] *= 2;
    bytes_read = 0;
    assert_ok(mha_file_read_part(file, t, axis, from, count, &together, &error), error);
    if (plain)
        assert_int_equal(bytes_read, n * (t->bytes / t->elements));
    assert_ok(mha_file_read_part(file, t, axis, from, count, &apart, &error), error);
    for (size_t i = 0; i < n; i++) {
        const double expected = whole[(i / (count * inner) * t->shape[axis] + from) * inner + i % (count * inner)];
        const bool nan = expected != expected;
        if (nan ? wide[2 * i] == wide[2 * i] || own[i] == own[i]
                : wide[2 * i] != expected || own[i] != (float)expected)
            fail_msg("%s, axis %d from %zu, %zu: element %zu is %g and %g, not %g", t->name, axis, from, count, i,
                     wide[2 * i], (double)own[i], expected);
    }
    free(wide);
    free(own);
}

/* Every tensor of a file that can be read; returns how many parts of them. */
static size_t check_file(const char *path, bool plain)
{
    mha_error error;
    mha_file *file;
    size_t parts = 0;
    assert_ok(mha_file_open(path, &file, &error), error);
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const mha_file_tensor *t = mha_file_at(file, i);
        double *whole = malloc((t->elements + 1) * sizeof *whole);
        const mha_view to = mha_view_of(whole, MHA_F64, t->rank, t->shape);
        const bool numbers = mha_file_read(file, t, &to, &error) == MHA_OK;
        for (int axis = 0; axis < t->rank && numbers; axis++) {
            const size_t T = t->shape[axis], from[] = {0, T / 3, T - 1, T, 0, T / 2},
                         count[] = {T, T / 3, 1, 0, 1, T / 4};
            for (size_t p = 0; p < sizeof from / sizeof *from && T > 0; p++, parts++)
                check_part(file, t, whole, axis, from[p], count[p], plain);
        }
        free(whole);
    }
    mha_file_close(file);
    return parts;
}

static void add_array(bytes *b, const char *order, const char *shape, const void *data, size_t n)
{
    char header[118];
    snprintf(header, sizeof header, "{'descr': '>f8', 'fortran_order': %s, 'shape': %s}", order, shape);
    bytes_add(b, "\x93NUMPY\1\0\x76\0", 10);
    bytes_text(b, header);
    while (b->count < 127)
        bytes_text(b, " ");
    bytes_text(b, "\n");
    bytes_add(b, data, n);
}

static void parts_are_those_of_the_whole(void **state)
{
    (void)state;
    enum { N = 5 * 60 * 11 };
    static double data[N];
    for (int i = 0; i < N; i++)
        data[i] = (double)(i + 1) / 7;
    bytes b = {0};
    for (int fortran = 0; fortran < 2; fortran++) {
        add_array(&b, fortran ? "True" : "False", "(5, 60, 11)", data, sizeof data);
        assert_int_equal(check_file(scratch_take("a.npy", &b), true), 18);
    }
    int code;
    const char *path = scratch_path("a.npz");
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    add_array(&b, "True", "(60, 55)", data, sizeof data);
    assert_true(zip_file_add(archive, "x.npy", zip_source_buffer(archive, b.data, b.count, 0), 0) == 0);
    assert_int_equal(zip_close(archive), 0);
    assert_int_equal(check_file(path, false), 12);
    bytes_free(&b);
    assert_true(check_file("weights/lookup/model.safetensors", true) >= 24);
    assert_int_equal(check_file("tests/formats/quantised/blocks.gguf", false), 26 * 6);
    assert_true(check_file("tests/formats/quantised/packed.safetensors", false) >= 12);
}

/* A part of the rows of a quantised tensor reads their blocks alone; of its columns no more than all. */
static void blocks_beside_a_part_are_not_read(void **state)
{
    (void)state;
    enum { ROWS = 512, COLUMNS = 1024, BLOCK = 18, HEAD = 96 };
    mha_error error;
    mha_file *file;
    bytes b = {0};
    bytes_text(&b, "GGUF");
    bytes_number(&b, 3, 4), bytes_number(&b, 1, 8), bytes_number(&b, 0, 8);
    bytes_number(&b, 1, 8), bytes_text(&b, "q"), bytes_number(&b, 2, 4);
    bytes_number(&b, COLUMNS, 8), bytes_number(&b, ROWS, 8), bytes_number(&b, 2, 4), bytes_number(&b, 0, 8);
    bytes_zeros(&b, HEAD - b.count);
    for (size_t i = 0; i < ROWS * COLUMNS / 32; i++) { /* Q4_0: a scale of 1, all values i % 16 - 8 */
        bytes_number(&b, 0x3c00, 2);
        for (int k = 0; k < 8; k++)
            bytes_number(&b, i % 16 * 0x1111, 2);
    }
    const char *path = scratch_take("long.gguf", &b);
    check_file(path, false);
    assert_ok(mha_file_open(path, &file, &error), error);
    float *values = malloc(ROWS * COLUMNS * sizeof *values);
    const mha_view rows = mha_view_of(values, MHA_F32, 2, (size_t[]){100, COLUMNS}),
                   columns = mha_view_of(values, MHA_F32, 2, (size_t[]){ROWS, 80});
    bytes_read = 0;
    assert_ok(mha_file_read_part(file, mha_file_at(file, 0), 0, 300, 100, &rows, &error), error);
    assert_int_equal(bytes_read, 100 * COLUMNS / 32 * BLOCK);
    bytes_read = 0;
    assert_ok(mha_file_read_part(file, mha_file_at(file, 0), 1, 48, 80, &columns, &error), error);
    assert_true(bytes_read <= ROWS * COLUMNS / 32 * BLOCK);
    free(values);
    mha_file_close(file);
}

static void parts_that_are_not_there_are_refused(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file;
    static float memory[4];
    bytes b = {0};
    add_array(&b, "False", "(2, 3)", (double[6]){0}, 6 * sizeof(double));
    assert_ok(mha_file_open(scratch_take("b.npy", &b), &file, &error), error);
    const mha_file_tensor *t = mha_file_at(file, 0);
    const mha_view to = mha_view_of(memory, MHA_F32, 1, (size_t[]){4});
    static const struct {
        int axis;
        size_t from, count;
    } wrong[] = {{1, 2, 2}, {2, 0, 1}, {-1, 0, 1}, {0, 3, 0}, {1, 1, SIZE_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(mha_file_read_part(file, t, wrong[i].axis, wrong[i].from, wrong[i].count, &to, &error),
                       MHA_INVALID, error, "expected a part of its 2 axes");
    assert_refused(mha_file_read_part(file, t, 0, 1, 1, &to, &error), MHA_INVALID, error, "(1, 3)", "3 elements");
    mha_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_those_of_the_whole),
        cmocka_unit_test(blocks_beside_a_part_are_not_read),
        cmocka_unit_test(parts_that_are_not_there_are_refused),
    };
    return cmocka_run_group_tests_name("parts of tensors", tests, NULL, NULL);
}
