/* safetensors: what is read from good files, and the one line each bad file gets. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mha/file.h"
#include "support/opening.h"
#include "support/scratch.h"
#include "support/unit.h"

/* A file of this header, padded with blanks to a multiple of 8, and so many bytes 0, 1, 2, ... of data. */
static const char *make(const char *name, const char *header, size_t data)
{
    bytes b = {0};
    size_t length = (strlen(header) + 7) / 8 * 8;
    bytes_number(&b, length, 8);
    bytes_text(&b, header);
    while (b.count < 8 + length)
        bytes_text(&b, " ");
    for (size_t i = 0; i < data; i++)
        bytes_number(&b, i, 1);
    return scratch_take(name, &b);
}

static void a_good_file_is_listed_in_the_order_of_its_header(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file;
    const char *path = make("good",
                            "{\"__metadata__\":{\"format\":\"pt\",\"k\\u00e9y\":\"va\\\"lue\"},"
                            "\"second\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[2,10]},"
                            "\"scalar\":{\"shape\":[],\"data_offsets\":[10,18],\"dtype\":\"I64\"},"
                            "\"empty\":{\"dtype\":\"F16\",\"shape\":[3,0],\"data_offsets\":[2,2]},"
                            "\"first\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                            18);
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_string_equal(mha_file_path(file), path);
    assert_string_equal(mha_file_format(file), "safetensors");
    assert_int_equal(mha_file_count(file), 4);
    static const char *const names[] = {"second", "scalar", "empty", "first"};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(mha_file_at(file, i)->name, names[i]);
        assert_ptr_equal(mha_file_find(file, names[i]), mha_file_at(file, i));
    }
    assert_null(mha_file_at(file, 4));
    assert_null(mha_file_find(file, "third"));
    assert_null(mha_file_find(file, NULL));

    const mha_file_tensor *second = mha_file_at(file, 0), *scalar = mha_file_at(file, 1), *empty = mha_file_at(file, 2);
    assert_int_equal(second->dtype, MHA_F32);
    assert_int_equal(second->rank, 2);
    assert_int_equal(second->shape[0], 2);
    assert_int_equal(second->elements, 2);
    assert_int_equal(second->bytes, 8);
    assert_int_equal(scalar->rank, 0);
    assert_int_equal(scalar->elements, 1);
    assert_int_equal(scalar->offset, second->offset + 8);
    assert_int_equal(empty->elements, 0);
    assert_int_equal(empty->bytes, 0);

    assert_int_equal(mha_file_metadata_count(file), 2);
    assert_string_equal(mha_file_metadata(file, "format"), "pt");
    assert_string_equal(mha_file_metadata(file, "k\xc3\xa9y"), "va\"lue");
    assert_null(mha_file_metadata(file, "other"));
    const char *key, *value;
    mha_file_metadata_at(file, 0, &key, &value);
    assert_string_equal(key, "format");
    mha_file_metadata_at(file, 2, &key, &value);
    assert_null(key);
    assert_null(value);

    int64_t number = 0;
    mha_view to = mha_view_of(&number, MHA_I64, 0, NULL);
    assert_ok(mha_file_read(file, scalar, &to, &error), error);
    assert_true(number == 0x11100f0e0d0c0b0a);
    mha_view nothing = mha_view_of(NULL, MHA_F32, 1, (size_t[]){0});
    assert_ok(mha_file_read(file, empty, &nothing, &error), error);
    mha_file_close(file);
    mha_file_close(NULL);
}

static void a_file_without_tensors_is_a_file(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(make("none", "{}", 0), &file, &error), error);
    assert_int_equal(mha_file_count(file), 0);
    assert_null(mha_file_find(file, ""));
    mha_file_close(file);
}

static void every_dtype_of_the_format_is_known_with_its_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bits;
    } dtypes[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
                  {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
                  {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
                  {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char header[200];
        size_t size = dtypes[i].bits * 8 / 8; /* of eight elements */
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%zu]}}",
                 dtypes[i].name, size);
        mha_error error;
        mha_file *file;
        assert_ok(mha_file_open(make("dtype", header, size), &file, &error), error);
        assert_string_equal(mha_dtype_name(mha_file_at(file, 0)->dtype), dtypes[i].name);
        assert_int_equal(mha_file_at(file, 0)->bytes, size);
        mha_file_close(file);
    }
    mha_error error;
    assert_refused(
        try_open(make("dtype", "{\"t\":{\"dtype\":\"Q8_0\",\"shape\":[32],\"data_offsets\":[0,34]}}", 34), &error),
        MHA_UNSUPPORTED, error, "Q8_0");
    assert_refused(
        try_open(make("dtype", "{\"t\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2), &error),
        MHA_FORMAT, error, "(3,)", "F4");
}

#define T(name, dtype, shape, from, to)                                                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void what_a_header_says_is_held_against_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        mha_status status;
        const char *name, *says, *says_too;
    } bad[] = {
        {"{" T("a", "F32", "[2]", 0, 8) "}", 12, MHA_FORMAT, NULL, "4 more bytes", "end of the file"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 7, MHA_FORMAT, "a", "7 bytes of data", "[0, 8]"},
        {"{" T("a", "F32", "[2]", 4, 12) "}", 12, MHA_FORMAT, "a", "a hole", NULL},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 5, 9) "}", 9, MHA_FORMAT, "b", "a hole", NULL},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 3, 7) "}", 7, MHA_FORMAT, "b", "an overlap", NULL},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 0, 4) "}", 4, MHA_FORMAT, NULL, "an overlap", NULL},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("a", "U8", "[4]", 4, 8) "}", 8, MHA_FORMAT, "a", "twice", NULL},
        {"{" T("a", "U8", "[4]", 4, 0) "}", 4, MHA_FORMAT, "a", "[4, 0]", NULL},
        {"{" T("a", "U8", "[4]", -4, 0) "}", 4, MHA_FORMAT, "a", "[-4, 0]", NULL},
        {"{" T("a", "U8", "[4]", 0, 9223372036854775807) "}", 4, MHA_FORMAT, "a", "9223372036854775807", NULL},
        {"{" T("a", "U8", "[4]", 0, 18446744073709551616) "}", 4, MHA_FORMAT, NULL, "too big", NULL},
        {"{" T("a", "F32", "[1]", 0, 8) "}", 8, MHA_FORMAT, "a", "expected 4 bytes", "of 8 bytes"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", 8, MHA_FORMAT, "a", "expected 12 bytes", "(3,)"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, MHA_FORMAT, "a", "4294967296",
         "bytes can be counted"},
        {"{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, MHA_FORMAT, "a", "4611686018427387904", NULL},
        {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, MHA_FORMAT, "a", "dimension 0", NULL},
        {"{" T("a", "F32", "[1.0]", 0, 4) "}", 4, MHA_FORMAT, "a", "whole numbers", NULL},
        {"{" T("a", "F32", "[\"1\"]", 0, 4) "}", 4, MHA_FORMAT, "a", "whole numbers", NULL},
        {"{" T("a", "F32", "1", 0, 4) "}", 4, MHA_FORMAT, "a", "array", NULL},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, MHA_UNSUPPORTED, "a", "at most 8", "9"},
        {"{" T("a", "F31", "[1]", 0, 4) "}", 4, MHA_UNSUPPORTED, "a", "F31", NULL},
        {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, MHA_FORMAT, "a", "dtype", NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, MHA_FORMAT, "a", "data_offsets", NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4, MHA_FORMAT, "a", "data_offsets",
         NULL},
        {"{" T("a", "F32", "[null]", 0, 4) "}", 4, MHA_FORMAT, "a", "whole numbers", NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4],\"rank\":1}}", 4, MHA_FORMAT, "a", "shape", NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"rank\":1}}", 4, MHA_FORMAT, "a", "data_offsets", NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":4}}", 4, MHA_FORMAT, "a", "data_offsets", NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0.0,4]}}", 4, MHA_FORMAT, "a", "data_offsets",
         NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, MHA_FORMAT, "a", "data_offsets",
         NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, MHA_FORMAT, "a", "data_offsets", NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, MHA_FORMAT, NULL,
         "uplicate", NULL},
        {"{\"a\":7}", 0, MHA_FORMAT, "a", "object", NULL},
        {"{\"a\":}", 0, MHA_FORMAT, NULL, "near byte 14", NULL},
        {"{\"a\" 1}", 0, MHA_FORMAT, NULL, "expected ':'", "byte 13"},
        {"{\1", 0, MHA_FORMAT, NULL, "a name in quotes", "found the byte 0x01"},
        {"{\x7f}", 0, MHA_FORMAT, NULL, "a name in quotes", "found the byte 0x7f"},
        {"{\"a\":1 \"b\":2}", 0, MHA_FORMAT, "a", "object", NULL},
        {"{" T("a", "U8", "[1]", 0, 1) " " T("b", "U8", "[1]", 1, 2) "}", 2, MHA_FORMAT, NULL, "',' or '}'", NULL},
        {"{" T("a", "U8", "[1]", 0, 1) ",}", 1, MHA_FORMAT, NULL, "a name in quotes", NULL},
        {"{" T("a", "U8", "[1]", 0, 1) "} x", 1, MHA_FORMAT, NULL, "nothing more", NULL},
        {"{" T("a", "U8", "[1]", 0, 1), 1, MHA_FORMAT, NULL, "the end", NULL},
        {"{\"a", 0, MHA_FORMAT, NULL, "premature end", NULL},
        {"{\"a\\u0000b\":1}", 0, MHA_FORMAT, NULL, "u0000", NULL},
        {"{\"\xff\":1}", 0, MHA_FORMAT, NULL, "byte 0xff", NULL},
        {"{\"__metadata__\":7}", 0, MHA_FORMAT, NULL, "expected a JSON object", NULL},
        {"{\"__metadata__\":{\"a\":}}", 0, MHA_FORMAT, NULL, "near byte", NULL},
        {"{\"__metadata__\":{7:\"a\"}}", 0, MHA_FORMAT, NULL, "a name in quotes", NULL},
        {"{\"__metadata__\":{\"a\":7}}", 0, MHA_FORMAT, "a", "string", NULL},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, MHA_FORMAT, "a", "twice", NULL},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, MHA_FORMAT, "__metadata__", "twice", NULL},
        {"[]", 0, MHA_FORMAT, NULL, "expected '{' at byte 8", NULL},
        {"", 0, MHA_FORMAT, NULL, "expected '{' at byte 8", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mha_error error;
        mha_status status = try_open(make("bad", bad[i].header, bad[i].data), &error);
        assert_refused(status, bad[i].status, error, bad[i].says);
        if (bad[i].says_too)
            assert_non_null(strstr(error.message, bad[i].says_too));
        if (bad[i].name) {
            char name[sizeof error.name];
            snprintf(name, sizeof name, "%s: %s", scratch_path("bad"), bad[i].name);
            assert_string_equal(error.name, name);
        }
    }
}

/* A file of `claimed` as its header length, the byte '{' and `more` bytes. */
static const char *claim(uint64_t claimed, size_t more)
{
    bytes b = {0};
    bytes_number(&b, claimed, 8);
    bytes_text(&b, "{");
    bytes_zeros(&b, more);
    return scratch_take("claim", &b);
}

static void a_header_length_is_not_believed(void **state)
{
    (void)state;
    mha_error error;
    assert_refused(try_open(claim(100, 10), &error), MHA_FORMAT, error, "100", "11 bytes");
    assert_refused(try_open(claim(UINT64_MAX, 10), &error), MHA_FORMAT, error, "18446744073709551615");
    assert_refused(try_open(claim(UINT64_MAX - 7, 10), &error), MHA_FORMAT, error, "truncated");
    assert_refused(try_open(scratch_write("short", "1234567", 7), &error), MHA_FORMAT, error, "only 7 bytes");
    assert_refused(try_open(scratch_write("empty", "", 0), &error), MHA_FORMAT, error, "only 0 bytes");
    assert_refused(try_open(scratch_write("text", "This is some text.", 18), &error), MHA_FORMAT, error,
                   "none of them");

    /* A header of 100 MB that is all there (in a sparse file) is refused before it is read. */
    const char *path = claim(100000000, 0);
    struct rusage before, after;
    assert_int_equal(truncate(path, 100000008), 0);
    getrusage(RUSAGE_SELF, &before);
    assert_refused(try_open(path, &error), MHA_FORMAT, error, "under 100000000 bytes");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 32 * 1024); /* KiB */
}

static void one_entry_of_a_header_is_bounded(void **state)
{
    (void)state;
    bytes b = {0};
    bytes_number(&b, 1000000, 8);
    bytes_text(&b, "{\"a\":{\"shape\":[");
    while (b.count < 999000)
        bytes_text(&b, "1,");
    while (b.count < 1000008)
        bytes_text(&b, " ");
    mha_error error;
    assert_refused(try_open(scratch_take("long", &b), &error), MHA_FORMAT, error, "at most 65536 bytes", "byte 13");
}

static void anything_but_a_regular_file_is_refused_by_name(void **state)
{
    (void)state;
    mha_error error;
    const char *fifo = scratch_path("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_refused(try_open(fifo, &error), MHA_INVALID, error, "a FIFO");
    assert_refused(try_open("/dev/null", &error), MHA_INVALID, error, "found a device");
    assert_refused(try_open(scratch_path("missing"), &error), MHA_NOT_FOUND, error, "No such file");
    assert_refused(try_open(scratch_path("good/under"), &error), MHA_NOT_FOUND, error, "found none");
    const char *directory = scratch_path("directory");
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_refused(try_open(directory, &error), MHA_NOT_FOUND, error, "model.safetensors.index.json", "directory");

    const char *locked = make("locked", "{}", 0);
    chmod(locked, 0);
    chmod(scratch_path(""), 0755);
    uid_t user = geteuid();
    if (user == 0)
        assert_int_equal(seteuid(65534), 0); /* root may read everything: be somebody else */
    mha_status status = try_open(locked, &error);
    assert_int_equal(seteuid(user), 0);
    assert_refused(status, MHA_IO, error, "Permission denied");
}

static void a_file_that_shrinks_is_an_error_not_a_signal(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file;
    const char *path = make("shrinks", "{" T("a", "F32", "[100]", 0, 400) "}", 400);
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(truncate(path, 200), 0);
    float values[100];
    double wide[100];
    mha_view straight = mha_view_of(values, MHA_F32, 1, (size_t[]){100});
    mha_view converted = mha_view_of(wide, MHA_F64, 1, (size_t[]){100});
    assert_refused(mha_file_read(file, mha_file_at(file, 0), &straight, &error), MHA_IO, error, "shorter");
    assert_refused(mha_file_read(file, mha_file_at(file, 0), &converted, &error), MHA_IO, error, "shorter");
    assert_int_equal(mha_file_read(file, mha_file_at(file, 0), &straight, NULL), MHA_IO);
    mha_file_close(file);
}

static void reading_converts_and_takes_any_shape_and_strides(void **state)
{
    (void)state;
    enum { ROWS = 300, COLUMNS = 301 }; /* more elements than one buffer of 64 KiB holds */
    static const char header[] = "{" T("a", "BF16", "[300,301]", 0, 180600) "}";
    bytes b = {0};
    bytes_number(&b, sizeof header - 1, 8);
    bytes_text(&b, header);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        bytes_number(&b, mha__f32_to_bf16((float)(i % 251)), 2);
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(scratch_take("convert", &b), &file, &error), error);
    const mha_file_tensor *tensor = mha_file_at(file, 0);

    double *wide = calloc(2 * ROWS * COLUMNS, sizeof *wide);
    mha_view flat = mha_view_of(wide, MHA_F64, 1, (size_t[]){ROWS * COLUMNS});
    assert_ok(mha_file_read(file, tensor, &flat, &error), error);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(wide[i] == i % 251);

    /* Transposed, and every second element of memory; what lies between stays. */
    for (int i = 0; i < 2 * ROWS * COLUMNS; i++)
        wide[i] = -1;
    mha_view strided = mha_view_of(wide, MHA_F64, 2, (size_t[]){ROWS, COLUMNS});
    strided.stride[0] = 2;
    strided.stride[1] = 2 * ROWS;
    mha_file_tensor copy = *tensor;
    assert_ok(mha_file_read(file, &copy, &strided, &error), error);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            assert_true(wide[2 * (c * ROWS + r)] == (r * COLUMNS + c) % 251);
            assert_true(wide[2 * (c * ROWS + r) + 1] == -1);
        }

    mha_view small = mha_view_of(wide, MHA_F64, 2, (size_t[]){ROWS, COLUMNS - 1});
    assert_refused(mha_file_read(file, tensor, &small, &error), MHA_INVALID, error, "(300, 300)", "(300, 301)");
    mha_view whole = mha_view_of(wide, MHA_I64, 1, (size_t[]){ROWS * COLUMNS});
    assert_refused(mha_file_read(file, tensor, &whole, &error), MHA_UNSUPPORTED, error, "BF16", "I64");
    mha_file_tensor stranger = {.name = "b"};
    assert_refused(mha_file_read(file, &stranger, &flat, &error), MHA_NOT_FOUND, error, "one that is not in it");
    free(wide);
    mha_file_close(file);
}

static void eight_bit_floats_without_negative_zero_are_decoded(void **state)
{
    (void)state;
    unsigned char raw[5] = {0x00, 0x80, 0x7f, 0x01, 0xc0};
    struct {
        mha_dtype dtype;
        double expected[5]; /* by the definitions of the ONNX documentation on float 8 */
    } cases[] = {{MHA_F8_E4M3FNUZ, {0, NAN, 240, 0x1p-10, -1}},
                 {MHA_F8_E5M2FNUZ, {0, NAN, 57344, 0x1p-17, -1}},
                 {MHA_F8_E8M0, {0x1p-127, 2, 1, 0x1p-126, 0x1p65}}};
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < 5; i++) {
            mha_view view = mha_view_of(raw, cases[c].dtype, 1, (size_t[]){5});
            double value = mha_view_get(&view, &i), expected = cases[c].expected[i];
            if (isnan(expected) ? !isnan(value) : value != expected)
                fail_msg("%s of 0x%02x: expected %g, found %g", mha_dtype_name(cases[c].dtype), raw[i], expected,
                         value);
        }
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    const char *path = make(
        "memory", "{\"__metadata__\":{\"k\":\"v\"}," T("a", "F16", "[2]", 0, 4) "," T("b", "U8", "[4]", 4, 8) "}", 8);
    assert_true(open_with_failing_memory(path, "a") > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_listed_in_the_order_of_its_header),
        cmocka_unit_test(a_file_without_tensors_is_a_file),
        cmocka_unit_test(every_dtype_of_the_format_is_known_with_its_size),
        cmocka_unit_test(what_a_header_says_is_held_against_the_file),
        cmocka_unit_test(a_header_length_is_not_believed),
        cmocka_unit_test(one_entry_of_a_header_is_bounded),
        cmocka_unit_test(anything_but_a_regular_file_is_refused_by_name),
        cmocka_unit_test(a_file_that_shrinks_is_an_error_not_a_signal),
        cmocka_unit_test(reading_converts_and_takes_any_shape_and_strides),
        cmocka_unit_test(eight_bit_floats_without_negative_zero_are_decoded),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
