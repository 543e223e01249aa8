/* npy and npz: versions, dtypes, both byte orders, Fortran order, and every way a header can be wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "mha/file.h"
#include "support/opening.h"
#include "support/scratch.h"
#include "support/unit.h"

/* An npy array with this dictionary and data, in the layout of a version. */
static bytes npy(int version, const char *dictionary, const void *data, size_t count)
{
    bytes b = {0};
    size_t width = version == 1 ? 2 : 4, before = 8 + width;
    size_t length = (before + strlen(dictionary) + 1 + 63) / 64 * 64 - before;
    bytes_text(&b, "\x93NUMPY");
    bytes_number(&b, (uint64_t)version, 2);
    bytes_number(&b, length, (int)width);
    bytes_text(&b, dictionary);
    while (b.count < before + length - 1)
        bytes_text(&b, " ");
    bytes_text(&b, "\n");
    bytes_add(&b, data, count);
    return b;
}

static const char *write_npy(int version, const char *dictionary, const void *data, size_t count)
{
    bytes b = npy(version, dictionary, data, count);
    return scratch_take("a.npy", &b);
}

static void versions_and_spellings_are_read(void **state)
{
    (void)state;
    static const char *const dictionaries[] = {
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }",
        "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<i2\"}",
        "{\t'descr':\n'<i2',\t'fortran_order':\tFalse,\n'shape':\t(2,\n3)}",
        "{ 'descr' : '<i2' , 'fortran_order' :  False , 'shape' : ( 2L , 3L , ) , }",
    };
    static const unsigned char data[12] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 0xfe, 0xff};
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < sizeof dictionaries / sizeof *dictionaries; i++) {
            mha_error error;
            mha_file *file;
            assert_ok(mha_file_open(write_npy(version, dictionaries[i], data, 12), &file, &error), error);
            assert_string_equal(mha_file_format(file), "npy");
            assert_int_equal(mha_file_count(file), 1);
            assert_int_equal(mha_file_metadata_count(file), 0);
            const mha_file_tensor *tensor = mha_file_find(file, "");
            assert_int_equal(tensor->dtype, MHA_I16);
            assert_int_equal(tensor->rank, 2);
            assert_int_equal(tensor->shape[1], 3);
            double values[6];
            mha_view to = mha_view_of(values, MHA_F64, 1, (size_t[]){6});
            assert_ok(mha_file_read(file, tensor, &to, &error), error);
            assert_true(values[0] == 1 && values[5] == -2);
            mha_file_close(file);
        }
}

static void scalars_and_empty_arrays_are_read(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file;
    assert_ok(
        mha_file_open(write_npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': ()}", "\1", 1), &file, &error),
        error);
    assert_int_equal(mha_file_at(file, 0)->rank, 0);
    assert_int_equal(mha_file_at(file, 0)->dtype, MHA_BOOL);
    mha_file_close(file);
    assert_ok(
        mha_file_open(write_npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0,)}", "", 0), &file, &error),
        error);
    assert_int_equal(mha_file_at(file, 0)->elements, 0);
    mha_file_close(file);
}

static void both_byte_orders_give_the_same_numbers(void **state)
{
    (void)state;
    /* The number 1 or, for the complex one, 1 + 2i, little-endian. */
    static const struct {
        const char *code;
        mha_dtype dtype;
        size_t width, part;
        unsigned char little[8];
    } cases[] = {
        {"f2", MHA_F16, 2, 2, {0, 0x3c}},
        {"f4", MHA_F32, 4, 4, {0, 0, 0x80, 0x3f}},
        {"i2", MHA_I16, 2, 2, {1}},
        {"i4", MHA_I32, 4, 4, {1}},
        {"i8", MHA_I64, 8, 8, {1}},
        {"u2", MHA_U16, 2, 2, {1}},
        {"u4", MHA_U32, 4, 4, {1}},
        {"u8", MHA_U64, 8, 8, {1}},
        {"f8", MHA_F64, 8, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
        {"c8", MHA_C64, 8, 4, {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int big = 0; big < 2; big++) {
            unsigned char data[8], got[8];
            for (size_t k = 0; k < cases[i].width; k++)
                data[k] =
                    cases[i]
                        .little[big ? k / cases[i].part * cases[i].part + (cases[i].part - 1 - k % cases[i].part) : k];
            char dictionary[100];
            snprintf(dictionary, sizeof dictionary, "{'descr': '%c%s', 'fortran_order': False, 'shape': (1,)}",
                     big ? '>' : '<', cases[i].code);
            mha_error error;
            mha_file *file;
            assert_ok(mha_file_open(write_npy(1, dictionary, data, cases[i].width), &file, &error), error);
            const mha_file_tensor *tensor = mha_file_at(file, 0);
            assert_int_equal(tensor->dtype, cases[i].dtype);
            mha_view same = mha_view_of(got, cases[i].dtype, 1, (size_t[]){1});
            assert_ok(mha_file_read(file, tensor, &same, &error), error);
            assert_memory_equal(got, cases[i].little, cases[i].width); /* on a little-endian machine */
            double value = 0;
            mha_view wide = mha_view_of(&value, MHA_F64, 1, (size_t[]){1});
            if (cases[i].dtype == MHA_C64)
                assert_refused(mha_file_read(file, tensor, &wide, &error), MHA_UNSUPPORTED, error, "C64");
            else {
                assert_ok(mha_file_read(file, tensor, &wide, &error), error);
                assert_true(value == 1);
            }
            mha_file_close(file);
        }
}

static void fortran_order_is_put_in_order(void **state)
{
    (void)state;
    float data[24], got[24];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                data[i + 2 * j + 6 * k] = (float)(100 * i + 10 * j + k);
    mha_error error;
    mha_file *file;
    assert_ok(
        mha_file_open(write_npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4)}", data, sizeof data),
                      &file, &error),
        error);
    mha_view to = mha_view_of(got, MHA_F32, 3, (size_t[]){2, 3, 4});
    assert_ok(mha_file_read(file, mha_file_at(file, 0), &to, &error), error);
    for (int e = 0; e < 24; e++)
        assert_true(got[e] == (float)(100 * (e / 12) + 10 * (e / 4 % 3) + e % 4));
    mha_view flat = mha_view_of(got, MHA_F32, 1, (size_t[]){24});
    assert_refused(mha_file_read(file, mha_file_at(file, 0), &flat, &error), MHA_INVALID, error, "Fortran",
                   "(2, 3, 4)");
    mha_file_close(file);

    /* One dimension has one order only. */
    assert_ok(mha_file_open(write_npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (24,)}", data, sizeof data),
                            &file, &error),
              error);
    mha_view folded = mha_view_of(got, MHA_F32, 2, (size_t[]){4, 6});
    assert_ok(mha_file_read(file, mha_file_at(file, 0), &folded, &error), error);
    mha_file_close(file);
}

static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *dictionary;
        mha_status status;
        const char *says;
    } bad[] = {
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "structured"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "Python objects"},
        {"{'descr': 'O8', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "Python objects"},
        {"{'descr': '<c16', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "<c16"},
        {"{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "<f3"},
        {"{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "|V2"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "|f4"},
        {"{'descr': '?f4', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "?f4"},
        {"{'descr': '', 'fortran_order': False, 'shape': (1,)}", MHA_UNSUPPORTED, "descr ''"},
        {"{'descr': 4, 'fortran_order': False, 'shape': (1,)}", MHA_FORMAT, "'descr' string"},
        {"{'descr': '<f4, 'fortran_order: False, shape: (1,)}", MHA_UNSUPPORTED, "<f4, "},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", MHA_FORMAT, "True or False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}", MHA_FORMAT, "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", MHA_FORMAT, "whole number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}", MHA_FORMAT, "',' or ')'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", MHA_FORMAT, "',' or ')'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", MHA_FORMAT, "64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", MHA_FORMAT,
         "(4294967296, 4294967296)"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", MHA_UNSUPPORTED, "at most 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", MHA_FORMAT, "expected 8 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()", MHA_FORMAT, "',' or '}'"},
        {"{'descr': '<f4', 'fortran_order': False}", MHA_FORMAT, "'shape'"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", MHA_FORMAT, "each once"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", MHA_FORMAT, "each once"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", MHA_FORMAT, "':'"},
        {"{descr: '<f4', 'fortran_order': False, 'shape': (1,)}", MHA_FORMAT, "a key in quotes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} 7", MHA_FORMAT, "nothing after"},
        {"{'descr': '<f4', 'fortran_order': Fals", MHA_FORMAT, "True or False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (a,)}", MHA_FORMAT, "whole number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1a,)}", MHA_FORMAT, "',' or ')'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (", MHA_FORMAT, "whole number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,)}", MHA_FORMAT, "64 bits"},
        {"7", MHA_FORMAT, "'{'"},
        {"", MHA_FORMAT, "'{'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mha_error error;
        assert_refused(try_open(write_npy(1, bad[i].dictionary, "1234", 4), &error), bad[i].status, error, bad[i].says,
                       "a.npy: ");
    }
    mha_error error;
    assert_refused(try_open(write_npy(4, "{}", "", 0), &error), MHA_UNSUPPORTED, error, "version 1, 2 or 3", "4.0");
    assert_refused(try_open(write_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "12345", 5), &error),
                   MHA_FORMAT, error, "expected 4 bytes", "found 5");
    /* Headers that end where a value should begin or go on, without the blanks that pad them. */
    static const char *const cut[] = {"{'fortran_order':", "{'fortran_order': Tru", "{'fortran_order': Fals",
                                      "{'shape':(",        "{'shape':(1",           "{'descr':'<f4"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        bytes b = {0};
        bytes_text(&b, "\x93NUMPY");
        bytes_number(&b, 1, 2);
        bytes_number(&b, strlen(cut[i]), 2);
        bytes_text(&b, cut[i]);
        assert_refused(try_open(scratch_take("a.npy", &b), &error), MHA_FORMAT, error, "in the npy header");
    }
    assert_refused(try_open(scratch_write("a.npy", "\x93NUMPY\1", 7), &error), MHA_FORMAT, error, "too few bytes");
    assert_refused(try_open(scratch_write("a.npy", "\x93NUMPY\2\0\1\0", 10), &error), MHA_FORMAT, error, "10 bytes");
    assert_refused(try_open(scratch_write("a.npy", "\x93NUMPY\1\0\xff\xff{}", 12), &error), MHA_FORMAT, error,
                   "65545 bytes");
    assert_refused(try_open(scratch_write("a.npy", "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), &error), MHA_FORMAT, error,
                   "4294967295");
}

/* ---------------------------------------------------------------- npz */

/* Adds a member, compressed by `method`. */
static void add_member(zip_t *archive, const char *name, bytes *b, int method)
{
    void *copy = malloc(b->count + 1);
    memcpy(copy, b->data, b->count);
    zip_source_t *source = zip_source_buffer(archive, copy, b->count, 1);
    zip_int64_t index = zip_file_add(archive, name, source, ZIP_FL_ENC_UTF_8);
    assert_true(index >= 0);
    assert_int_equal(zip_set_file_compression(archive, (zip_uint64_t)index, method, 0), 0);
    bytes_free(b);
}

enum { LONG = 40000 };

/* Two arrays, one stored and one deflated. */
static const char *two_arrays(const char *name)
{
    const char *path = scratch_path(name);
    int code;
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    static float many[LONG];
    for (int i = 0; i < LONG; i++)
        many[i] = (float)(i % 100);
    bytes first = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (200, 200)}", many, sizeof many);
    bytes second = npy(1, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 2)}", "\0\1\0\2\0\3\0\4", 8);
    add_member(archive, "many.npy", &first, ZIP_CM_DEFLATE);
    add_member(archive, "few.npy", &second, ZIP_CM_STORE);
    assert_int_equal(zip_close(archive), 0);
    return path;
}

static void an_npz_holds_its_members_by_name(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(two_arrays("two.npz"), &file, &error), error);
    assert_string_equal(mha_file_format(file), "npz");
    assert_int_equal(mha_file_count(file), 2);
    const mha_file_tensor *many = mha_file_find(file, "many"), *few = mha_file_find(file, "few");
    assert_int_equal(many->elements, LONG);
    assert_int_equal(few->dtype, MHA_I16);
    double *wide = malloc(LONG * sizeof *wide), four[4];
    mha_view to = mha_view_of(wide, MHA_F64, 1, (size_t[]){LONG});
    mha_view small = mha_view_of(four, MHA_F64, 2, (size_t[]){2, 2});
    for (int again = 0; again < 2; again++) {
        assert_ok(mha_file_read(file, many, &to, &error), error);
        for (int i = 0; i < LONG; i++)
            assert_true(wide[i] == i % 100);
        assert_ok(mha_file_read(file, few, &small, &error), error);
        assert_true(four[0] == 1 && four[1] == 3 && four[2] == 2 && four[3] == 4);
    }
    free(wide);
    mha_file_close(file);
}

/* An archive as NumPy's own savez writes it, with 64-bit sizes in the local header: a member "x.npy", said to have
 * `size` bytes; as it is, or deflated, which is one block that says its length (RFC 1951, 3.2.4). Frees the member. */
static const char *archive_of(bytes member, bool deflated, size_t size)
{
    bytes b = {0};
    const size_t packed = member.count + (deflated ? 5 : 0);
    const uint64_t method = deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < member.count; i++) {
        crc ^= member.data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
    }
    crc = ~crc;
    bytes_text(&b, "PK\3\4");
    bytes_number(&b, 45, 2), bytes_number(&b, 0, 2), bytes_number(&b, method, 2); /* version, flags, method */
    bytes_number(&b, 0, 2), bytes_number(&b, 33, 2), bytes_number(&b, crc, 4);
    bytes_number(&b, 0xffffffff, 4), bytes_number(&b, 0xffffffff, 4), bytes_number(&b, 5, 2), bytes_number(&b, 20, 2);
    bytes_text(&b, "x.npy");
    bytes_number(&b, 1, 2), bytes_number(&b, 16, 2), bytes_number(&b, size, 8), bytes_number(&b, packed, 8);
    if (deflated)
        bytes_number(&b, 1, 1), bytes_number(&b, member.count, 2), bytes_number(&b, ~member.count, 2);
    bytes_add(&b, member.data, member.count);
    size_t directory = b.count;
    bytes_text(&b, "PK\1\2");
    bytes_number(&b, 45, 2), bytes_number(&b, 45, 2), bytes_number(&b, 0, 2), bytes_number(&b, method, 2);
    bytes_number(&b, 0, 2), bytes_number(&b, 33, 2), bytes_number(&b, crc, 4);
    bytes_number(&b, packed, 4), bytes_number(&b, size, 4), bytes_number(&b, 5, 2);
    bytes_number(&b, 0, 2), bytes_number(&b, 0, 2), bytes_number(&b, 0, 2), bytes_number(&b, 0, 2),
        bytes_number(&b, 0, 4);
    bytes_number(&b, 0, 4);
    bytes_text(&b, "x.npy");
    size_t end = b.count;
    bytes_text(&b, "PK\5\6");
    bytes_number(&b, 0, 4), bytes_number(&b, 1, 2), bytes_number(&b, 1, 2), bytes_number(&b, end - directory, 4);
    bytes_number(&b, directory, 4), bytes_number(&b, 0, 2);
    bytes_free(&member);
    return scratch_take("numpy.npz", &b);
}

static void an_archive_with_64_bit_local_headers_is_read(void **state)
{
    (void)state;
    bytes member = npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", "\7\10\11", 3);
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(archive_of(member, false, member.count), &file, &error), error);
    float values[3];
    mha_view to = mha_view_of(values, MHA_F32, 1, (size_t[]){3});
    assert_ok(mha_file_read(file, mha_file_find(file, "x"), &to, &error), error);
    assert_true(values[0] == 7 && values[2] == 9);
    mha_file_close(file);
}

/* A member with fewer or more bytes than its size: a reader must not wait for the missing ones. A stored member, whose
 * two sizes are both in the directory, is refused when the archive is opened; a deflated one when it is read. */
static void a_member_of_another_size_is_refused(void **state)
{
    (void)state;
    static unsigned char values[1000];
    mha_view to = mha_view_of(values, MHA_U8, 1, (size_t[]){sizeof values});
    static const char thousand[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (1000,)}";
    mha_error error;
    mha_file *file;
    bytes member = npy(1, thousand, "abc", 3);
    assert_ok(mha_file_open(archive_of(member, true, member.count - 3 + sizeof values), &file, &error), error);
    assert_refused(mha_file_read(file, mha_file_find(file, "x"), &to, &error), MHA_FORMAT, error, "x: ");
    mha_file_close(file);

    char says[100];
    char longer[sizeof values + 5] = {0};
    memcpy(longer, values, sizeof values);
    static const size_t sizes[] = {3, sizeof longer};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        member = npy(1, thousand, longer, sizes[i]);
        const size_t size = member.count - sizes[i] + sizeof values;
        snprintf(says, sizeof says, "expected a stored member of %zu bytes, found %zu", size, member.count);
        assert_refused(try_open(archive_of(member, false, size), &error), MHA_FORMAT, error,
                       "numpy.npz: ", "x.npy: ", says);
    }
}

static void archives_of_something_else_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *member, *says;
    } others[] = {
        {"archive/data.pkl", "PyTorch"}, {"model.weights.h5", "Keras"}, {"word/document.xml", "word/document.xml"}};
    for (size_t i = 0; i < 3; i++) {
        const char *path = scratch_path("other.zip");
        int code;
        zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
        bytes b = {0};
        bytes_text(&b, "something");
        add_member(archive, others[i].member, &b, ZIP_CM_STORE);
        zip_close(archive);
        mha_error error;
        assert_refused(try_open(path, &error), MHA_UNSUPPORTED, error, others[i].says, "other.zip: ");
    }
    /* Members that are no array, or one with too few or too many bytes. */
    static const char one[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    bytes members[] = {{0}, npy(1, one, "123", 3), npy(1, one, "12345", 5)};
    static const char *const says[] = {"NUMPY", "expected 4 bytes", "expected 4 bytes"};
    bytes_text(&members[0], "this is no array");
    mha_error error;
    for (size_t i = 0; i < 3; i++) {
        const char *path = scratch_path("odd.npz");
        int code;
        zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
        add_member(archive, "a.npy", &members[i], ZIP_CM_STORE);
        zip_close(archive);
        assert_refused(try_open(path, &error), MHA_FORMAT, error, "a.npy: ", says[i], "odd.npz: ");
    }
    assert_refused(try_open(scratch_write("broken.npz", "PK\3\4 and then something else", 29), &error), MHA_FORMAT,
                   error, "damaged");
}

/* Archives that end too early, or in which one name stands twice, which libzip does not write. */
static void a_damaged_archive_is_told_how(void **state)
{
    (void)state;
    static const char one[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    const char *path = scratch_path("pair.npz");
    mha_error error;
    int code;
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    bytes members[] = {npy(1, one, "1234", 4), npy(1, one, "1234", 4)};
    add_member(archive, "one.npy", &members[0], ZIP_CM_STORE);
    add_member(archive, "two.npy", &members[1], ZIP_CM_STORE);
    assert_int_equal(zip_close(archive), 0);
    size_t count;
    unsigned char *whole = scratch_read(path, &count);
    for (size_t cut = 4; cut < count; cut++)
        assert_refused(try_open(scratch_write("short.npz", whole, cut), &error), MHA_FORMAT, error, "short.npz",
                       "its end is missing (a truncated file?)");
    for (size_t i = 0; i + 7 <= count; i++)
        if (memcmp(whole + i, "two.npy", 7) == 0)
            memcpy(whole + i, "one", 3);
    assert_refused(try_open(scratch_write("twice.npz", whole, count), &error), MHA_FORMAT, error, "twice.npz",
                   "two members have the same name");
    free(whole);
}

/* An archive of one array without extents. */
static const char *scalar(const char *descr, const void *data, size_t count)
{
    const char *path = scratch_path("scalar.npz");
    char dictionary[100];
    int code;
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    snprintf(dictionary, sizeof dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': ()}", descr);
    bytes member = npy(1, dictionary, data, count);
    add_member(archive, "key.npy", &member, count % 2 ? ZIP_CM_DEFLATE : ZIP_CM_STORE);
    assert_int_equal(zip_close(archive), 0);
    return path;
}

static void an_array_without_extents_is_metadata_of_an_npz(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        size_t bytes;
        const char *data, *text;
        bool tensor; /* numbers are tensors, too */
    } rows[] = {
        {"<i8", 8, "\4\0\0\0\0\0\0\0", "4", true},
        {">i8", 8, "\xff\xff\xff\xff\xff\xff\xff\xfe", "-2", true},
        {"<i8", 8, "\1\0\0\0\0\0\0\x40", "4611686018427387905", true}, /* 2^62 + 1, which no double holds */
        {"<u8", 8, "\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615", true},
        {"|i1", 1, "\xfd", "-3", true},
        {"<f8", 8, "\x9a\x99\x99\x99\x99\x99\xb9\x3f", "0.1", true},
        {">f8", 8, "\x40\x04\0\0\0\0\0\0", "2.5", true},
        {"<f4", 4, "\0\0\x80\xff", "-inf", true},
        {"<f2", 2, "\0\x38", "0.5", true},
        {"|b1", 1, "\1", "true", true},
        {"|b1", 1, "\0", "false", true},
        {"<U3", 12, "m\0\0\0h\0\0\0a\0\0\0", "mha", false},
        {">U5", 20, "\0\0\0h\0\0\0\xe9\0\1\xf6\0\0\0\0\0\0\0\0\0", "h\xc3\xa9\xf0\x9f\x98\x80", false},
        {"<U1", 4, "\xac\x20\0\0", "\xe2\x82\xac", false},
        {"<U0", 0, "", "", false},
        {"|S4", 4, "sdpa", "sdpa", false},
        {"|S6", 6, "sdpa\0\0", "sdpa", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_error error;
        mha_file *file;
        assert_ok(mha_file_open(scalar(rows[i].descr, rows[i].data, rows[i].bytes), &file, &error), error);
        assert_int_equal(mha_file_metadata_count(file), 1);
        assert_non_null(mha_file_metadata(file, "key"));
        assert_string_equal(mha_file_metadata(file, "key"), rows[i].text);
        assert_int_equal(mha_file_count(file), rows[i].tensor);
        mha_file_close(file);
    }
    static const struct {
        const char *descr;
        size_t bytes;
        const char *data;
        mha_status status;
        const char *says;
    } bad[] = {
        {"<U2", 8, "a\0\0\0\0\xd8\0\0", MHA_FORMAT, "a number that is no character"}, /* half a pair of UTF-16 */
        {"<U1", 4, "\0\0\x11\0", MHA_FORMAT, "a number that is no character"},         /* beyond U+10FFFF */
        {"<U3", 12, "a\0\0\0\0\0\0\0b\0\0\0", MHA_FORMAT, "a number that is no character"},
        {"|S2", 2, "\xc3\xa9", MHA_FORMAT, "a number that is no character"},
        {"<U2", 4, "a\0\0\0", MHA_FORMAT, "expected 8 bytes"},
        {"|S2", 3, "abc", MHA_FORMAT, "expected 2 bytes"},
        {"<i8", 7, "1234567", MHA_FORMAT, "expected 8 bytes"},
        {"<U65537", 0, "", MHA_UNSUPPORTED, "descr '<U65537'"},
        {"<U99999999999999999999", 0, "", MHA_UNSUPPORTED, "descr '<U9999"},
        {"<U1x", 0, "", MHA_UNSUPPORTED, "descr '<U1x'"},
        {"|O", 0, "", MHA_UNSUPPORTED, "Python objects"},
        {"<M8[s]", 8, "12345678", MHA_UNSUPPORTED, "descr '<M8[s]'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mha_error error;
        assert_refused(try_open(scalar(bad[i].descr, bad[i].data, bad[i].bytes), &error), bad[i].status, error,
                       bad[i].says, "key.npy");
    }
    /* Complex numbers are no metadata; text is none beside an npz, nor when it has extents. */
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(scalar("<c8", "12345678", 8), &file, &error), error);
    assert_int_equal(mha_file_metadata_count(file), 0);
    mha_file_close(file);
    assert_refused(
        try_open(write_npy(1, "{'descr': '<U1', 'fortran_order': False, 'shape': ()}", "a\0\0\0", 4), &error),
        MHA_UNSUPPORTED, error, "found text");
    bytes texts = npy(1, "{'descr': '|S1', 'fortran_order': False, 'shape': (2,)}", "ab", 2);
    assert_refused(try_open(archive_of(texts, false, texts.count), &error), MHA_UNSUPPORTED, error, "found text",
                   "x.npy");
    /* A member whose bytes end before it says, or are not what was summed up. */
    for (int deflated = 0; deflated < 2; deflated++) {
        bytes member = npy(1, "{'descr': '|S100', 'fortran_order': False, 'shape': ()}", "abc", 3);
        assert_refused(try_open(archive_of(member, deflated, member.count + 97), &error), MHA_FORMAT, error, "x.npy");
    }
    size_t count;
    unsigned char *good = scratch_read(scalar("|S4", "sdpa", 4), &count);
    for (size_t i = 0; i + 4 < count; i++)
        if (memcmp(good + i, "sdpa", 4) == 0)
            good[i] = 'S';
    assert_refused(try_open(scratch_write("summed.npz", good, count), &error), MHA_FORMAT, error, "key.npy");
    free(good);
    assert_true(open_with_failing_memory(scalar("<U3", "m\0\0\0h\0\0\0a\0\0\0", 12), NULL) > 5);
}

/* Every single byte changed in turn, and every length cut: an error of the format or the right numbers. */
static void damage_is_found(void **state)
{
    (void)state;
    size_t count;
    unsigned char *good = scratch_read(two_arrays("good.npz"), &count);
    size_t refused = 0, tried = 0;
    static float many[LONG];
    for (size_t at = 0; at < count; at++) {
        unsigned char kept = good[at];
        good[at] ^= 0x41;
        mha_file *file;
        const char *path = scratch_write("bad.npz", good, at % 3 ? count : at);
        mha_status status = mha_file_open(path, &file, NULL);
        if (status == MHA_NO_MEMORY || status == MHA_IO)
            fail_msg("byte %zu changed: expected a damaged archive, found %s", at, mha__status_name(status));
        if (status == MHA_OK && mha_file_find(file, "many") && mha_file_find(file, "many")->elements == LONG) {
            mha_view to = mha_view_of(many, MHA_F32, 1, (size_t[]){LONG});
            status = mha_file_read(file, mha_file_find(file, "many"), &to, NULL);
            if (status == MHA_OK && mha_file_find(file, "many")->dtype == MHA_F32)
                for (int i = 0; i < LONG; i++)
                    if (many[i] != (float)(i % 100))
                        fail_msg("byte %zu changed, but element %d is %g and no error", at, i, (double)many[i]);
        }
        mha_file_close(file);
        refused += status != MHA_OK;
        tried++;
        good[at] = kept;
    }
    free(good);
    assert_true(refused * 2 > tried);
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    const char *path = two_arrays("memory.npz");
    assert_true(open_with_failing_memory(path, "few") > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_and_spellings_are_read),
        cmocka_unit_test(scalars_and_empty_arrays_are_read),
        cmocka_unit_test(both_byte_orders_give_the_same_numbers),
        cmocka_unit_test(fortran_order_is_put_in_order),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(an_npz_holds_its_members_by_name),
        cmocka_unit_test(a_damaged_archive_is_told_how),
        cmocka_unit_test(an_array_without_extents_is_metadata_of_an_npz),
        cmocka_unit_test(an_archive_with_64_bit_local_headers_is_read),
        cmocka_unit_test(a_member_of_another_size_is_refused),
        cmocka_unit_test(archives_of_something_else_are_refused),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
