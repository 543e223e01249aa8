/* Reading GGUF, versions 2 and 3: counts, typed metadata, descriptions of tensors, aligned data.
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/files/chunks.h"
#include "formats/readers/readers.h"
#include "lab/lab.h"

/* ggml's numbers for its tensor types. 4, 5, 31 to 33 and 36 to 38 were withdrawn. */
static const struct {
    uint32_t number;
    mha_dtype dtype;
} types[] = {
    {0, MHA_F32},     {1, MHA_F16},    {2, MHA_Q4_0},     {3, MHA_Q4_1},    {6, MHA_Q5_0},     {7, MHA_Q5_1},
    {8, MHA_Q8_0},    {9, MHA_Q8_1},   {10, MHA_Q2_K},    {11, MHA_Q3_K},   {12, MHA_Q4_K},    {13, MHA_Q5_K},
    {14, MHA_Q6_K},   {15, MHA_Q8_K},  {16, MHA_IQ2_XXS}, {17, MHA_IQ2_XS}, {18, MHA_IQ3_XXS}, {19, MHA_IQ1_S},
    {20, MHA_IQ4_NL}, {21, MHA_IQ3_S}, {22, MHA_IQ2_S},   {23, MHA_IQ4_XS}, {24, MHA_I8},      {25, MHA_I16},
    {26, MHA_I32},    {27, MHA_I64},   {28, MHA_F64},     {29, MHA_IQ1_M},  {30, MHA_BF16},    {34, MHA_TQ1_0},
    {35, MHA_TQ2_0},  {39, MHA_MXFP4}, {40, MHA_NVFP4},   {41, MHA_Q1_0},   {42, MHA_Q2_0},
};

/* Types of metadata values: width in bytes; 0 for a value that states its own length. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOLEAN, STRING, ARRAY, U64, I64, F64, VALUE_TYPES };
static const unsigned char widths[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

enum {
    BUFFER_BYTES = 1 << 16,
    NAME_LIMIT = 65535, /* of a key, by the specification, and of a tensor's name */
    ARRAY_DEPTH = 4,    /* of arrays in arrays, which the specification allows */
    LIST_LIMIT = 512,   /* numbers of an array that are kept: one for each layer of a model */
    NUMBER_TEXT = 26,   /* characters of a number, with its comma */
    DEFAULT_ALIGNMENT = 32
};

/* The header, read front to back through a buffer. */
typedef struct stream {
    mha_file *file;
    const mha__source *source;
    uint64_t at;        /* of the next byte */
    uint64_t buffer_at; /* of the first byte in the buffer */
    size_t buffered;
    unsigned char *buffer;
    uint64_t kept; /* bytes of strings kept so far */
    mha_error *error;
} stream;

static uint64_t left(const stream *s)
{
    return s->source->size - s->at;
}

static mha_status truncated(const stream *s, uint64_t wanted, const char *what)
{
    return mha__fail_at(s->error, MHA_FORMAT, s->source->path, s->at,
                        "expected %s of %" PRIu64 " bytes at byte %" PRIu64 ", found only %" PRIu64 " bytes to the end",
                        what, wanted, s->at, left(s));
}

/* `count` bytes (at most a buffer full) at the current position, which moves past them. */
static mha_status next(stream *s, size_t count, const char *what, const unsigned char **bytes)
{
    if (count > left(s))
        return truncated(s, count, what);
    if (s->at < s->buffer_at || s->at + count > s->buffer_at + s->buffered) {
        size_t fill = left(s) < BUFFER_BYTES ? (size_t)left(s) : BUFFER_BYTES;
        s->buffered = 0;
        TRY(mha__source_read(s->source, s->at, s->buffer, fill, s->error));
        s->buffer_at = s->at;
        s->buffered = fill;
    }
    *bytes = s->buffer + (s->at - s->buffer_at);
    s->at += count;
    return MHA_OK;
}

static mha_status next_number(stream *s, int width, const char *what, uint64_t *value)
{
    const unsigned char *bytes = NULL;
    TRY(next(s, (size_t)width, what, &bytes));
    *value = mha__little_endian(bytes, width);
    return MHA_OK;
}

static mha_status skip(stream *s, uint64_t bytes, const char *what)
{
    if (bytes > left(s))
        return truncated(s, bytes, what);
    s->at += bytes;
    return MHA_OK;
}

/* A string of the file, kept by the file object. */
static mha_status next_string(stream *s, uint64_t limit, const char *what, const char **text, size_t *length)
{
    uint64_t claimed;
    TRY(next_number(s, 8, what, &claimed));
    if (claimed > left(s))
        return truncated(s, claimed, what);
    s->kept += claimed;
    if (claimed > limit || s->kept > MHA_HEADER_LIMIT)
        return mha__fail_at(s->error, MHA_FORMAT, s->source->path, s->at,
                            "expected %s of at most %" PRIu64 " bytes at byte %" PRIu64 ", found %" PRIu64, what, limit,
                            s->at, claimed);
    char *copy = mha__file_text(s->file, NULL, (size_t)claimed);
    if (!copy)
        return mha__file_no_memory(s->file, s->error);
    TRY(mha__source_read(s->source, s->at, copy, (size_t)claimed, s->error));
    if (memchr(copy, '\0', (size_t)claimed))
        return mha__fail_at(s->error, MHA_FORMAT, s->source->path, s->at,
                            "expected %s without a NUL byte at byte %" PRIu64, what, s->at);
    s->at += claimed;
    *text = copy;
    *length = (size_t)claimed;
    return MHA_OK;
}

/* ---------------------------------------------------------------- metadata */

static mha_status skip_array(stream *s, int depth, uint64_t *count)
{
    uint64_t type;
    TRY(next_number(s, 4, "an array's type", &type));
    TRY(next_number(s, 8, "an array's length", count));
    if (type >= VALUE_TYPES || (type == ARRAY && depth == ARRAY_DEPTH))
        return mha__fail_at(s->error, MHA_FORMAT, s->source->path, s->at - 12,
                            "expected an array of a known type at byte %" PRIu64 ", found type %" PRIu64 "%s",
                            s->at - 12, type, type == ARRAY ? " nested too deep" : "");
    uint64_t least = widths[type] ? widths[type] : type == STRING ? 8 : 12;
    if (*count > left(s) / least)
        return mha__fail_at(s->error, MHA_FORMAT, s->source->path, s->at,
                            "expected an array that fits the %" PRIu64 " bytes left, found %" PRIu64 " elements",
                            left(s), *count);
    if (widths[type])
        return skip(s, *count * widths[type], "an array");
    for (uint64_t i = 0; i < *count; i++) {
        uint64_t inner;
        if (type == ARRAY) {
            TRY(skip_array(s, depth + 1, &inner));
            continue;
        }
        TRY(next_number(s, 8, "a string", &inner));
        TRY(skip(s, inner, "a string"));
    }
    return MHA_OK;
}

static mha_status print_number(stream *s, uint64_t type, char *text, size_t size)
{
    uint64_t bits;
    TRY(next_number(s, widths[type], "a metadata value", &bits));
    int unused = 64 - 8 * widths[type];
    if (type == BOOLEAN)
        snprintf(text, size, "%s", bits ? "true" : "false");
    else if (type == F32) {
        uint32_t half = (uint32_t)bits;
        float value;
        memcpy(&value, &half, sizeof value);
        snprintf(text, size, "%.9g", (double)value); /* enough digits to read the same number back */
    } else if (type == F64) {
        double value;
        memcpy(&value, &bits, sizeof value);
        snprintf(text, size, "%.17g", value);
    } else if (type == I8 || type == I16 || type == I32 || type == I64) {
        int64_t value = (int64_t)(bits << unused) >> unused; /* extends the sign */
        snprintf(text, size, "%" PRId64, value);
    } else
        snprintf(text, size, "%" PRIu64, bits);
    return MHA_OK;
}

/* Writes the numbers of an array, "[1, 2, 3]"; of a longer one, of anything else, and of a tokenizer, how many there
 * are. */
static mha_status print_array(stream *s, const char *key, char text[LIST_LIMIT * NUMBER_TEXT + 3])
{
    const uint64_t begin = s->at;
    uint64_t count = 0, type = 0;
    TRY(skip_array(s, 1, &count));
    const uint64_t end = s->at;
    s->at = begin;
    TRY(next_number(s, 4, "an array's type", &type));
    TRY(skip(s, 8, "an array's length"));
    if (!widths[type] || count > LIST_LIMIT || strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0) {
        snprintf(text, NUMBER_TEXT, "array of %" PRIu64, count);
        s->at = end;
        return MHA_OK;
    }
    char *to = text;
    for (uint64_t i = 0; i < count; i++) {
        to += snprintf(to, 3, "%s", i ? ", " : "[");
        TRY(print_number(s, type, to, NUMBER_TEXT));
        to += strlen(to);
    }
    snprintf(to, 3, "%s", count ? "]" : "[]");
    return MHA_OK;
}

static mha_status parse_pair(stream *s)
{
    const char *key = "", *value;
    size_t key_length = 0, value_length = 0;
    uint64_t type = 0, where = s->at;
    TRY(next_string(s, NAME_LIMIT, "a key", &key, &key_length));
    TRY(next_number(s, 4, "the type of a metadata value", &type));
    if (type >= VALUE_TYPES)
        return mha__fail_inside(s->error, MHA_FORMAT, s->source->path, key, s->at - 4,
                                "expected a metadata type from 0 to %d at byte %" PRIu64 ", found %" PRIu64,
                                VALUE_TYPES - 1, s->at - 4, type);
    char text[LIST_LIMIT * NUMBER_TEXT + 3];
    value = text;
    if (type == STRING)
        TRY(next_string(s, MHA_HEADER_LIMIT, "a metadata string", &value, &value_length));
    else if (type == ARRAY) {
        if (strcmp(key, "tokenizer.ggml.tokens") == 0)
            s->file->vocabulary = s->at;
        TRY(print_array(s, key, text));
    } else
        TRY(print_number(s, type, text, sizeof text));
    if (s->at - where > MHA_HEADER_LIMIT)
        return mha__fail_inside(s->error, MHA_FORMAT, s->source->path, key, where,
                                "expected metadata of at most %d bytes, found %" PRIu64, MHA_HEADER_LIMIT,
                                s->at - where);
    return mha__file_add_metadata(s->file, key, key_length, value, strlen(value), s->error);
}

/* ---------------------------------------------------------------- tensors */

static mha_status parse_tensor(stream *s, size_t index)
{
    const char *name = "";
    size_t name_length = 0;
    uint64_t where = s->at, rank = 0, type = 0, offset = 0;
    mha__entry entry = {.source = index};
    mha_file_tensor *tensor = &entry.tensor;
    TRY(next_string(s, NAME_LIMIT, "a tensor's name", &name, &name_length));
    TRY(next_number(s, 4, "a tensor's rank", &rank));
    if (rank > MHA_MAX_RANK)
        return mha__fail_inside(s->error, MHA_UNSUPPORTED, s->source->path, name, s->at - 4,
                                "expected at most %d dimensions, found %" PRIu64, MHA_MAX_RANK, rank);
    tensor->rank = (int)rank;
    for (int k = tensor->rank - 1; k >= 0; k--) { /* the file has the fastest index first */
        uint64_t extent = 0;
        TRY(next_number(s, 8, "a tensor's shape", &extent));
        if (extent > SIZE_MAX)
            return mha__fail_inside(s->error, MHA_FORMAT, s->source->path, name, s->at - 8,
                                    "expected an extent that fits, found %" PRIu64, extent);
        tensor->shape[k] = (size_t)extent;
    }
    TRY(next_number(s, 4, "a tensor's type", &type));
    TRY(next_number(s, 8, "a tensor's offset", &offset));
    size_t row = 0;
    while (row < sizeof types / sizeof *types && types[row].number != type)
        row++;
    if (row == sizeof types / sizeof *types)
        return mha__fail_inside(
            s->error, MHA_UNSUPPORTED, s->source->path, name, s->at - 12,
            "expected a tensor type of ggml, found number %" PRIu64 " (withdrawn, or newer than this program)", type);
    tensor->dtype = types[row].dtype;
    tensor->offset = offset;
    size_t blocks;
    if (tensor->rank > 0 && mha_dtype_bytes(tensor->dtype, tensor->shape[tensor->rank - 1], &blocks, NULL) != MHA_OK)
        return mha__fail_inside(s->error, MHA_FORMAT, s->source->path, name, where,
                                "expected rows of whole blocks of %s, found rows of %zu elements",
                                mha_dtype_name(tensor->dtype), tensor->shape[tensor->rank - 1]);
    return mha__file_add_tensor(s->file, name, name_length, &entry, where, s->error);
}

/* Makes offsets count from the start of the file, and checks them against each other and its size. */
static mha_status place_tensors(stream *s, uint64_t alignment)
{
    uint64_t data = s->at + (alignment - s->at % alignment) % alignment, size = s->source->size;
    size_t count = mha_file_count(s->file);
    for (size_t i = 0; i < count; i++) {
        mha_file_tensor *tensor = &((mha__entry *)s->file->entries.items)[i].tensor;
        if (tensor->offset % alignment != 0)
            return mha__fail_inside(s->error, MHA_FORMAT, s->source->path, tensor->name, 0,
                                    "expected an offset that is a multiple of %" PRIu64 ", found %" PRIu64, alignment,
                                    tensor->offset);
        if (data > size || tensor->offset > size - data || tensor->bytes > size - data - tensor->offset)
            return mha__fail_inside(s->error, MHA_FORMAT, s->source->path, tensor->name, 0,
                                    "expected %zu bytes inside the file of %" PRIu64
                                    " bytes, found the offset %" PRIu64 " from byte %" PRIu64,
                                    tensor->bytes, size, tensor->offset, data);
        tensor->offset += data;
    }
    mha_status status = MHA_OK;
    const mha_file_tensor **order = mha__file_by_offset(s->file, 0);
    if (!order)
        return mha__file_no_memory(s->file, s->error);
    for (size_t i = 1; i < count && status == MHA_OK; i++)
        if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
            status = mha__fail_inside(s->error, MHA_FORMAT, s->source->path, order[i]->name, order[i]->offset,
                                      "expected data of its own at byte %" PRIu64 ", found an overlap with '%.*s'",
                                      order[i]->offset, MHA_CUT_ARGS(60, order[i - 1]->name));
    mha__release(&s->file->allocator, order, (count + 1) * sizeof *order);
    return status;
}

/* ---------------------------------------------------------------- the header */

static mha_status parse_counts(stream *s, uint64_t *tensors, uint64_t *pairs)
{
    uint64_t version = 0;
    TRY(skip(s, 4, "the magic number"));
    TRY(next_number(s, 4, "the version", &version));
    if (version != 2 && version != 3)
        return mha__fail_at(s->error, MHA_UNSUPPORTED, s->source->path, 4, "expected GGUF version 2 or 3, found %s",
                            version == 1 ? "version 1: convert it again with llama.cpp"
                            : version == 0x02000000u || version == 0x03000000u
                                ? "a big-endian file: convert it for this machine"
                                : "another");
    TRY(next_number(s, 8, "the count of tensors", tensors));
    TRY(next_number(s, 8, "the count of metadata", pairs));
    /* The smallest description of a tensor has 24 bytes, the smallest pair 13; all are bounded as a header is. */
    const uint64_t most = left(s) < MHA_HEADER_LIMIT ? left(s) : MHA_HEADER_LIMIT;
    if (*tensors > most / 24)
        return mha__fail_at(s->error, MHA_FORMAT, s->source->path, 8,
                            "expected a count of tensors that fits %" PRIu64 " bytes, found %" PRIu64, most, *tensors);
    if (*pairs > most / 13)
        return mha__fail_at(s->error, MHA_FORMAT, s->source->path, 16,
                            "expected a count of metadata that fits %" PRIu64 " bytes, found %" PRIu64, most, *pairs);
    return MHA_OK;
}

/* general.alignment, once the metadata has been read. */
static mha_status find_alignment(const stream *s, uint64_t *alignment)
{
    *alignment = DEFAULT_ALIGNMENT;
    for (size_t i = 0; i < mha_file_metadata_count(s->file); i++) {
        const char *key, *value;
        mha_file_metadata_at(s->file, i, &key, &value);
        if (strcmp(key, "general.alignment") != 0)
            continue;
        char *end;
        uint64_t given = strtoull(value, &end, 10);
        if (*end != '\0' || given == 0 || given > UINT32_MAX || (given & (given - 1)) != 0)
            return mha__fail_inside(s->error, MHA_FORMAT, s->source->path, key, 0,
                                    "expected a power of two, found %.*s", MHA_CUT_ARGS(40, value));
        *alignment = given;
    }
    return MHA_OK;
}

static mha_status parse_stream(stream *s, size_t index)
{
    uint64_t tensors, pairs, alignment = 0;
    TRY(parse_counts(s, &tensors, &pairs));
    for (uint64_t i = 0; i < pairs; i++)
        TRY(parse_pair(s));
    TRY(find_alignment(s, &alignment));
    for (uint64_t i = 0; i < tensors; i++)
        TRY(parse_tensor(s, index));
    return place_tensors(s, alignment);
}

mha_status mha__gguf_parse(mha_file *file, size_t index, mha_error *error)
{
    stream s = {.file = file, .source = mha__file_source(file, index), .error = error};
    s.buffer = mha__allocate(&file->allocator, BUFFER_BYTES);
    if (!s.buffer)
        return mha__fail(error, MHA_NO_MEMORY, file->path, "no memory for %d bytes of buffer", BUFFER_BYTES);
    mha_status status = parse_stream(&s, index);
    mha__release(&file->allocator, s.buffer, BUFFER_BYTES);
    return status;
}

/* ---------------------------------------------------------------- the vocabulary */

/* Reads a text into memory; its length is in front of it. The array was checked when the file was opened, but files may
 * change. */
static mha_status read_text(stream *s, mha__arena *memory, const char **text)
{
    uint64_t length;
    TRY(next_number(s, 8, "a token", &length));
    if (length > left(s))
        return truncated(s, length, "a token");
    char *copy = mha__arena_take(memory, (size_t)length + 1);
    if (!copy)
        return mha__fail(s->error, MHA_NO_MEMORY, s->source->path, "no memory for the tokens of its vocabulary");
    *text = copy;
    TRY(mha__source_read(s->source, s->at, copy, (size_t)length, s->error));
    s->at += length;
    return MHA_OK;
}

static mha_status read_vocabulary(stream *s, mha__arena *memory, const char *const **words, size_t *count)
{
    uint64_t type, texts;
    TRY(next_number(s, 4, "an array's type", &type));
    TRY(next_number(s, 8, "an array's length", &texts));
    if (type != STRING || texts > left(s) / 8)
        return mha__fail_at(s->error, MHA_FORMAT, s->source->path, s->at,
                            "expected a vocabulary of texts at byte %" PRIu64 ", found something else", s->at);
    const char **list = mha__arena_take(memory, (size_t)texts * sizeof *list);
    if (!list)
        return mha__fail(s->error, MHA_NO_MEMORY, s->source->path, "no memory for the tokens of its vocabulary");
    for (size_t i = 0; i < texts; i++)
        TRY(read_text(s, memory, &list[i]));
    *words = list;
    *count = (size_t)texts;
    return MHA_OK;
}

mha_status mha__file_vocabulary(const mha_file *file, mha__arena *memory, const char *const **words, size_t *count,
                                mha_error *error)
{
    *words = NULL;
    *count = 0;
    if (file->vocabulary == 0)
        return MHA_OK;
    stream s = {.source = mha__file_source(file, 0), .at = file->vocabulary, .error = error};
    s.buffer = mha__allocate(&file->allocator, BUFFER_BYTES);
    if (!s.buffer)
        return mha__fail(error, MHA_NO_MEMORY, file->path, "no memory for %d bytes of buffer", BUFFER_BYTES);
    const mha_status status = read_vocabulary(&s, memory, words, count);
    mha__release(&file->allocator, s.buffer, BUFFER_BYTES);
    return status;
}
