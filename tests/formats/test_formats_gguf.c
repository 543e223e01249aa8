/* GGUF: files put together here, value by value, and everything a header can claim. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mha/file.h"
#include "support/opening.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOLEAN, STRING, ARRAY, U64, I64, F64 };

static void put_string(bytes *b, const char *text)
{
    bytes_number(b, strlen(text), 8);
    bytes_text(b, text);
}

static bytes begin(unsigned version, uint64_t tensors, uint64_t pairs)
{
    bytes b = {0};
    bytes_text(&b, "GGUF");
    bytes_number(&b, version, 4);
    bytes_number(&b, tensors, 8);
    bytes_number(&b, pairs, 8);
    return b;
}

static void put_pair(bytes *b, const char *key, unsigned type, uint64_t value, int width)
{
    put_string(b, key);
    bytes_number(b, type, 4);
    bytes_number(b, value, width);
}

/* An array of `count` times the same number. */
static void put_list(bytes *b, const char *key, unsigned type, uint64_t count, int width, uint64_t value)
{
    put_string(b, key);
    bytes_number(b, ARRAY, 4);
    bytes_number(b, type, 4);
    bytes_number(b, count, 8);
    for (uint64_t i = 0; i < count; i++)
        bytes_number(b, value, width);
}

static void put_tensor(bytes *b, const char *name, int rank, const uint64_t *extents, unsigned type, uint64_t offset)
{
    put_string(b, name);
    bytes_number(b, (uint64_t)rank, 4);
    for (int k = 0; k < rank; k++)
        bytes_number(b, extents[k], 8);
    bytes_number(b, type, 4);
    bytes_number(b, offset, 8);
}

static void align(bytes *b, size_t alignment)
{
    while (b->count % alignment)
        bytes_zeros(b, 1);
}

static mha_file *open_file(const char *path)
{
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(path, &file, &error), error);
    return file;
}

/* Opens and frees the bytes as a file. */
static mha_status open_status(bytes *b, mha_error *error)
{
    return try_open(scratch_take("bad.gguf", b), error);
}

static void every_kind_of_metadata_becomes_text(void **state)
{
    (void)state;
    for (unsigned version = 2; version <= 3; version++) {
        bytes b = begin(version, 0, 22);
        float single = 0.1f;
        double real = 0.1;
        uint64_t bits = 0;
        put_pair(&b, "u8", U8, 255, 1);
        put_pair(&b, "i8", I8, 0xff, 1);
        put_pair(&b, "u16", U16, 65535, 2);
        put_pair(&b, "i16", I16, 0x8000, 2);
        put_pair(&b, "u32", U32, 4294967295, 4);
        put_pair(&b, "i32", I32, 0x80000000, 4);
        memcpy(&bits, &single, 4);
        put_pair(&b, "f32", F32, bits, 4);
        put_pair(&b, "yes", BOOLEAN, 1, 1);
        put_pair(&b, "no", BOOLEAN, 0, 1);
        put_pair(&b, "u64", U64, UINT64_MAX, 8);
        put_pair(&b, "i64", I64, (uint64_t)INT64_MIN, 8);
        memcpy(&bits, &real, 8);
        put_pair(&b, "f64", F64, bits, 8);
        put_string(&b, "text"), bytes_number(&b, STRING, 4), put_string(&b, "some\ntext");
        put_string(&b, "empty"), bytes_number(&b, STRING, 4), put_string(&b, "");
        put_string(&b, "words"), bytes_number(&b, ARRAY, 4), bytes_number(&b, STRING, 4), bytes_number(&b, 3, 8);
        put_string(&b, "a"), put_string(&b, ""), put_string(&b, "ccc");
        put_string(&b, "nested"), bytes_number(&b, ARRAY, 4), bytes_number(&b, ARRAY, 4), bytes_number(&b, 2, 8);
        for (int i = 0; i < 2; i++)
            bytes_number(&b, U16, 4), bytes_number(&b, 2, 8), bytes_number(&b, 7, 4);
        put_list(&b, "list", I16, 3, 2, UINT16_MAX);
        put_list(&b, "flags", BOOLEAN, 2, 1, 1);
        put_list(&b, "none", F32, 0, 4, 0);
        put_list(&b, "most", U8, 512, 1, 7);
        put_list(&b, "more", U8, 513, 1, 7);
        put_list(&b, "tokenizer.ggml.scores", F32, 2, 4, 0);
        mha_file *file = open_file(scratch_take("pairs.gguf", &b));
        static const char *const expected[][2] = {
            {"u8", "255"},
            {"i8", "-1"},
            {"u16", "65535"},
            {"i16", "-32768"},
            {"u32", "4294967295"},
            {"i32", "-2147483648"},
            {"f32", "0.100000001"},
            {"yes", "true"},
            {"no", "false"},
            {"u64", "18446744073709551615"},
            {"i64", "-9223372036854775808"},
            {"f64", "0.10000000000000001"},
            {"text", "some\ntext"},
            {"empty", ""},
            {"words", "array of 3"},
            {"nested", "array of 2"},
            {"list", "[-1, -1, -1]"},
            {"flags", "[true, true]"},
            {"none", "[]"},
            {"more", "array of 513"},
            {"tokenizer.ggml.scores", "array of 2"},
        };
        assert_string_equal(mha_file_format(file), "gguf");
        assert_int_equal(mha_file_count(file), 0);
        assert_int_equal(mha_file_metadata_count(file), 22);
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
            assert_string_equal(mha_file_metadata(file, expected[i][0]), expected[i][1]);
        assert_int_equal(strlen(mha_file_metadata(file, "most")), 512 * 3); /* "7, " and at the end "]" */
        mha_file_close(file);
    }
}

/* ggml's numbers, names and block sizes, typed in from its documentation and sources. */
static const struct {
    unsigned number;
    const char *name;
    size_t block_elements, block_bytes;
} ggml_types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};
enum { TYPES = sizeof ggml_types / sizeof *ggml_types };
static const char decoded[] = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4";

static void every_tensor_type_has_its_name_and_size(void **state)
{
    (void)state;
    bytes b = begin(3, TYPES, 0);
    uint64_t offset = 0;
    for (size_t i = 0; i < TYPES; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%zu", i);
        put_tensor(&b, name, 2, (uint64_t[]){512, 3}, ggml_types[i].number, offset);
        offset += (3 * 512 / ggml_types[i].block_elements * ggml_types[i].block_bytes + 31) / 32 * 32;
    }
    align(&b, 32);
    size_t data = b.count;
    bytes_zeros(&b, offset);
    mha_file *file = open_file(scratch_take("types.gguf", &b));
    assert_int_equal(mha_file_count(file), TYPES);
    offset = 0;
    for (size_t i = 0; i < TYPES; i++) {
        const mha_file_tensor *tensor = mha_file_at(file, i);
        size_t size = 3 * 512 / ggml_types[i].block_elements * ggml_types[i].block_bytes;
        assert_string_equal(mha_dtype_name(tensor->dtype), ggml_types[i].name);
        assert_int_equal(tensor->rank, 2);
        assert_int_equal(tensor->shape[0], 3); /* the fastest index comes last */
        assert_int_equal(tensor->shape[1], 512);
        assert_int_equal(tensor->elements, 1536);
        assert_int_equal(tensor->bytes, size);
        assert_int_equal(tensor->offset, data + offset);
        offset += (size + 31) / 32 * 32;
        if (ggml_types[i].block_elements > 1) {
            mha_error error;
            float values[1536];
            mha_view to = mha_view_of(values, MHA_F32, 1, (size_t[]){1536});
            if (strstr(decoded, ggml_types[i].name)) /* of bytes that are all 0 */
                assert_ok(mha_file_read(file, tensor, &to, &error), error);
            else
                assert_refused(mha_file_read(file, tensor, &to, &error), MHA_UNSUPPORTED, error, ggml_types[i].name,
                               "quantised", "convert it");
            assert_int_equal(tensor->reads_as, strstr(decoded, ggml_types[i].name) ? MHA_F32 : tensor->dtype);
        }
    }
    mha_file_close(file);
}

static void plain_tensors_are_read(void **state)
{
    (void)state;
    bytes b = begin(2, 3, 1);
    put_pair(&b, "general.alignment", U32, 8, 4);
    put_tensor(&b, "half", 1, (uint64_t[]){2}, 1, 0);
    put_tensor(&b, "brain", 2, (uint64_t[]){2, 1}, 30, 8);
    put_tensor(&b, "scalar", 0, NULL, 0, 16);
    align(&b, 8);
    bytes_number(&b, 0x3c00, 2), bytes_number(&b, 0xc000, 2), align(&b, 8); /* 1, -2 */
    bytes_number(&b, 0x3f80, 2), bytes_number(&b, 0x4040, 2), align(&b, 8); /* 1, 3 */
    bytes_number(&b, 0x40800000, 4);                                        /* 4 */
    mha_file *file = open_file(scratch_take("plain.gguf", &b));
    mha_error error;
    float values[2], one;
    mha_view to = mha_view_of(values, MHA_F32, 1, (size_t[]){2}), scalar = mha_view_of(&one, MHA_F32, 0, NULL);
    assert_ok(mha_file_read(file, mha_file_find(file, "half"), &to, &error), error);
    assert_true(values[0] == 1 && values[1] == -2);
    assert_ok(mha_file_read(file, mha_file_find(file, "brain"), &to, &error), error);
    assert_true(values[0] == 1 && values[1] == 3);
    assert_ok(mha_file_read(file, mha_file_find(file, "scalar"), &scalar, &error), error);
    assert_true(one == 4);
    mha_file_close(file);
}

/* Values of changing width, so that one of them lies across every boundary a reader's buffer may have. */
static void a_long_header_is_read_to_its_end(void **state)
{
    (void)state;
    enum { PAIRS = 9000 };
    bytes b = begin(3, 0, PAIRS);
    char key[16];
    for (unsigned i = 0; i < PAIRS; i++) {
        snprintf(key, sizeof key, "k%u", i);
        put_pair(&b, key, i % 2 ? U32 : U64, i, i % 2 ? 4 : 8);
    }
    bytes_zeros(&b, 32);
    mha_file *file = open_file(scratch_take("long.gguf", &b));
    for (unsigned i = 0; i < PAIRS; i++) {
        snprintf(key, sizeof key, "k%u", i);
        assert_string_equal(mha_file_metadata(file, key), key + 1);
    }
    mha_file_close(file);
}

static void counts_are_held_against_the_file(void **state)
{
    (void)state;
    mha_error error;
    bytes b = begin(3, (uint64_t)1 << 40, 0);
    bytes_zeros(&b, 1000);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "1099511627776", "1000 bytes");
    b = begin(3, 0, UINT64_MAX);
    bytes_zeros(&b, 1000);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "18446744073709551615");

    b = begin(3, 0, 77); /* the smallest pair has 13 bytes, and 77 * 13 = 1001 */
    bytes_zeros(&b, 1000);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "a count of metadata", "found 77");
    b = begin(3, 42, 0); /* the smallest description of a tensor has 24, and 42 * 24 = 1008 */
    bytes_zeros(&b, 1000);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "a count of tensors", "found 42");

    b = begin(3, 0, 1); /* a string of 2^60 bytes */
    put_string(&b, "k"), bytes_number(&b, STRING, 4), bytes_number(&b, (uint64_t)1 << 60, 8);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "1152921504606846976");
    b = begin(3, 0, 1); /* a key longer than keys may be */
    bytes_number(&b, 70000, 8), bytes_zeros(&b, 70000);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "a key of at most 65535 bytes", "70000");
    b = begin(3, 0, 1); /* an array whose bytes overflow 64 bits */
    put_string(&b, "k"), bytes_number(&b, ARRAY, 4), bytes_number(&b, F64, 4), bytes_number(&b, (uint64_t)1 << 61, 8);
    bytes_zeros(&b, 100);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "2305843009213693952 elements");
    b = begin(3, 0, 1); /* an array of strings that end too soon */
    put_string(&b, "k"), bytes_number(&b, ARRAY, 4), bytes_number(&b, STRING, 4), bytes_number(&b, 2, 8);
    put_string(&b, "a"), bytes_number(&b, 100, 8);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "a string of 100 bytes");
    b = begin(3, 0, 1); /* arrays nested without end */
    put_string(&b, "k"), bytes_number(&b, ARRAY, 4);
    for (int i = 0; i < 1000; i++)
        bytes_number(&b, ARRAY, 4), bytes_number(&b, 1, 8);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "nested too deep");
    b = begin(3, 0, 1); /* an array of a type nobody knows */
    put_string(&b, "k"), bytes_number(&b, ARRAY, 4), bytes_number(&b, 13, 4), bytes_number(&b, 1, 8);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "an array of a known type at byte 37", "found type 13");
    b = begin(3, 0, 1);
    put_pair(&b, "k", 13, 0, 8);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "k: ", "from 0 to 12", "found 13");
    b = begin(3, 0, 2);
    put_pair(&b, "k", U8, 0, 1), put_pair(&b, "k", U8, 0, 1), bytes_zeros(&b, 32);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "k: ", "twice");
    b = begin(3, 0, 1);
    bytes_number(&b, 3, 8), bytes_add(&b, "a\0b", 3), bytes_zeros(&b, 100);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "NUL");

    /* A file of a terabyte without a byte on disk: memory stays bounded. */
    b = begin(3, 0, 1);
    put_string(&b, "k"), bytes_number(&b, STRING, 4), bytes_number(&b, (uint64_t)1 << 39, 8);
    const char *path = scratch_take("sparse.gguf", &b);
    mha_file *file;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    if (truncate(path, (off_t)1 << 40) == 0)
        assert_refused(mha_file_open(path, &file, &error), MHA_FORMAT, error, "549755813888");
    b = begin(3, 0, 1); /* an array that fits the file, but is more than a header may have */
    put_string(&b, "k"), bytes_number(&b, ARRAY, 4), bytes_number(&b, U8, 4), bytes_number(&b, 100000000, 8);
    path = scratch_take("sparse.gguf", &b);
    if (truncate(path, (off_t)1 << 40) == 0)
        assert_refused(mha_file_open(path, &file, &error), MHA_FORMAT, error,
                       "k: expected metadata of at most 100000000");
    /* As many descriptions, or pairs, as the file has room for, but a header has not. */
    b = begin(3, 4166667, 0);
    path = scratch_take("sparse.gguf", &b);
    if (truncate(path, (off_t)1 << 40) == 0)
        assert_refused(mha_file_open(path, &file, &error), MHA_FORMAT, error,
                       "a count of tensors that fits 100000000 bytes, found 4166667");
    b = begin(3, 0, 7692308);
    path = scratch_take("sparse.gguf", &b);
    if (truncate(path, (off_t)1 << 40) == 0)
        assert_refused(mha_file_open(path, &file, &error), MHA_FORMAT, error,
                       "a count of metadata that fits 100000000 bytes, found 7692308");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 32 * 1024); /* KiB */
}

static void versions_are_named(void **state)
{
    (void)state;
    mha_error error;
    bytes b = begin(1, 0, 0);
    assert_refused(open_status(&b, &error), MHA_UNSUPPORTED, error, "version 1", "llama.cpp");
    b = begin(0x03000000, 0, 0);
    assert_refused(open_status(&b, &error), MHA_UNSUPPORTED, error, "big-endian");
    b = begin(4, 0, 0);
    assert_refused(open_status(&b, &error), MHA_UNSUPPORTED, error, "version 2 or 3");
}

/* One tensor described so, in a file with `data` bytes of data. */
static bytes one_tensor(int rank, const uint64_t *extents, unsigned type, uint64_t offset, size_t data)
{
    bytes b = begin(3, 1, 0);
    put_tensor(&b, "t", rank, extents, type, offset);
    align(&b, 32);
    bytes_zeros(&b, data);
    return b;
}

static void descriptions_are_held_against_the_file(void **state)
{
    (void)state;
    mha_error error;
    static const uint64_t big = (uint64_t)1 << 32, ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct {
        bytes b;
        mha_status status;
        const char *says, *says_too;
    } bad[] = {
        {one_tensor(2, (uint64_t[]){big, big}, 0, 0, 64), MHA_FORMAT, "(4294967296, 4294967296)",
         "bytes can be counted"},
        {one_tensor(1, (uint64_t[]){UINT64_MAX}, 24, 0, 64), MHA_FORMAT, "t: ", "found (18446744073709551615,)"},
        {one_tensor(1, (uint64_t[]){17}, 0, 0, 64), MHA_FORMAT, "t: expected 68 bytes", NULL},
        {one_tensor(1, (uint64_t[]){8}, 0, 64, 64), MHA_FORMAT, "t: expected 32 bytes", "offset 64"},
        {one_tensor(1, (uint64_t[]){8}, 0, UINT64_MAX - 31, 64), MHA_FORMAT, "18446744073709551584", NULL},
        {one_tensor(1, (uint64_t[]){8}, 0, 16, 64), MHA_FORMAT, "multiple of 32", "found 16"},
        {one_tensor(2, (uint64_t[]){33, 32}, 2, 0, 4096), MHA_FORMAT, "whole blocks of Q4_0", "33"},
        {one_tensor(9, ones, 0, 0, 64), MHA_UNSUPPORTED, "at most 8", "found 9"},
        {one_tensor(1, (uint64_t[]){32}, 4, 0, 64), MHA_UNSUPPORTED, "number 4", "withdrawn"},
        {one_tensor(1, (uint64_t[]){32}, 99, 0, 64), MHA_UNSUPPORTED, "number 99", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_refused(open_status(&bad[i].b, &error), bad[i].status, error, bad[i].says, "bad.gguf: ");
        if (bad[i].says_too && !strstr(error.message, bad[i].says_too))
            fail_msg("expected \"%s\" in \"%s\"", bad[i].says_too, error.message);
    }
    bytes b = begin(3, 2, 0);
    put_tensor(&b, "a", 1, (uint64_t[]){16}, 0, 0), put_tensor(&b, "b", 1, (uint64_t[]){8}, 0, 32);
    align(&b, 32), bytes_zeros(&b, 128);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "b: ", "overlap with 'a'");
    b = begin(3, 2, 0);
    put_tensor(&b, "a", 1, (uint64_t[]){8}, 0, 0), put_tensor(&b, "a", 1, (uint64_t[]){8}, 0, 32);
    align(&b, 32), bytes_zeros(&b, 128);
    assert_refused(open_status(&b, &error), MHA_FORMAT, error, "a: ", "twice");
    static const uint64_t alignments[] = {0, 3, 48};
    for (size_t i = 0; i < 3; i++) {
        b = begin(3, 0, 1);
        put_pair(&b, "general.alignment", U32, alignments[i], 4);
        assert_refused(open_status(&b, &error), MHA_FORMAT, error, "general.alignment: ", "power of two");
    }
}

static bytes small_file(void)
{
    bytes b = begin(3, 2, 3);
    put_pair(&b, "general.alignment", U32, 32, 4);
    put_string(&b, "name"), bytes_number(&b, STRING, 4), put_string(&b, "small");
    put_string(&b, "words"), bytes_number(&b, ARRAY, 4), bytes_number(&b, STRING, 4), bytes_number(&b, 2, 8);
    put_string(&b, "a"), put_string(&b, "b");
    put_tensor(&b, "x", 2, (uint64_t[]){2, 2}, 0, 0);
    put_tensor(&b, "y", 1, (uint64_t[]){32}, 8, 32);
    align(&b, 32);
    bytes_zeros(&b, 32 + 34);
    return b;
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    bytes whole = small_file();
    for (size_t length = 4; length < whole.count; length++) {
        bytes cut = {0};
        bytes_add(&cut, whole.data, length);
        mha_error error;
        mha_status status = open_status(&cut, &error);
        if (status == MHA_OK)
            fail_msg("%zu of %zu bytes were accepted", length, whole.count);
        assert_int_equal(status, MHA_FORMAT);
    }
    bytes_free(&whole);
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    bytes b = small_file();
    const char *path = scratch_take("memory.gguf", &b);
    assert_true(open_with_failing_memory(path, NULL) > 5);

    char text[5001]; /* a string too long for the memory that the path is in */
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    b = begin(3, 0, 1);
    put_string(&b, "name"), bytes_number(&b, STRING, 4), put_string(&b, text);
    path = scratch_take("long.gguf", &b);
    assert_true(open_with_failing_memory(path, NULL) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_metadata_becomes_text),
        cmocka_unit_test(every_tensor_type_has_its_name_and_size),
        cmocka_unit_test(plain_tensors_are_read),
        cmocka_unit_test(a_long_header_is_read_to_its_end),
        cmocka_unit_test(counts_are_held_against_the_file),
        cmocka_unit_test(versions_are_named),
        cmocka_unit_test(descriptions_are_held_against_the_file),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
