/* The npy format of NumPy, versions 1 to 3: a magic number, a header that is a Python dictionary, the data.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include <inttypes.h>
#include <string.h>

#include "formats/files/chunks.h"
#include "formats/readers/readers.h"
#include "lab/lab.h"

/* NumPy's order, kind and width of each dtype. */
static const struct {
    const char *descr;
    mha_dtype dtype;
} codes[] = {
    {"<f4", MHA_F32}, {"<f8", MHA_F64},  {"<f2", MHA_F16}, {"<i8", MHA_I64}, {"<i4", MHA_I32},
    {"<i2", MHA_I16}, {"|i1", MHA_I8},   {"<u8", MHA_U64}, {"<u4", MHA_U32}, {"<u2", MHA_U16},
    {"|u1", MHA_U8},  {"|b1", MHA_BOOL}, {"<c8", MHA_C64},
};

const char *mha__npy_descr(mha_dtype dtype)
{
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].dtype == dtype)
            return codes[i].descr;
    return NULL;
}

mha_status mha__npy_header_length(const unsigned char *bytes, size_t available, const char *name, size_t *length,
                                  mha_error *error)
{
    if (available < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return mha__fail(error, MHA_FORMAT, name, "expected an npy array, found %s",
                         available < 10 ? "too few bytes for its header" : "no \\x93NUMPY at its start");
    unsigned major = bytes[6];
    if (major < 1 || major > 3)
        return mha__fail_at(error, MHA_UNSUPPORTED, name, 6, "expected npy version 1, 2 or 3, found %u.%u", major,
                            bytes[7]);
    if (major > 1 && available < 12)
        return mha__fail(error, MHA_FORMAT, name, "expected an npy header, found only %zu bytes", available);
    uint64_t text = major == 1 ? mha__little_endian(bytes + 8, 2) : mha__little_endian(bytes + 8, 4);
    if (text > MHA_NPY_HEADER_LIMIT)
        return mha__fail_at(error, MHA_FORMAT, name, 8, "expected an npy header of at most %d bytes, found %" PRIu64,
                            MHA_NPY_HEADER_LIMIT, text);
    *length = (size_t)text + (major == 1 ? 10 : 12);
    return MHA_OK;
}

/* ---------------------------------------------------------------- the dictionary */

typedef struct scanner {
    const char *start, *at, *end;
    size_t base; /* of `start` in the file */
    const char *name;
    mha_error *error;
} scanner;

static mha_status expected(const scanner *s, const char *what)
{
    size_t offset = s->base + (size_t)(s->at - s->start);
    return mha__fail_at(s->error, MHA_FORMAT, s->name, offset, "expected %s in the npy header at byte %zu", what,
                        offset);
}

static bool take(scanner *s, char c)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t'))
        s->at++;
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* A string without escapes, which is all NumPy writes here. */
static bool take_string(scanner *s, const char **text, size_t *length)
{
    char quote = take(s, '\'') ? '\'' : take(s, '"') ? '"' : '\0';
    const char *close = quote ? memchr(s->at, quote, (size_t)(s->end - s->at)) : NULL;
    if (!close)
        return false;
    *text = s->at;
    *length = (size_t)(close - s->at);
    s->at = close + 1;
    return true;
}

static bool is(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* "<U12" or "|S12": characters of a text and their width. */
static bool is_text(const char *text, size_t length, mha__npy_header *header)
{
    if (length < 3 || !strchr("<>|=", text[0]) || (text[1] != 'U' && text[1] != 'S'))
        return false;
    size_t n = 0;
    for (size_t i = 2; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || n > MHA_NPY_TEXT_LIMIT)
            return false;
        n = 10 * n + (size_t)(text[i] - '0');
    }
    header->characters = n;
    header->character_bytes = text[1] == 'U' ? 4 : 1;
    header->entry.tensor.dtype = text[1] == 'U' ? MHA_U32 : MHA_U8;
    header->entry.big_endian = text[0] == '>' || (text[0] != '<' && mha__host_is_big_endian());
    return n <= MHA_NPY_TEXT_LIMIT;
}

static mha_status parse_descr(scanner *s, mha__npy_header *header)
{
    mha__entry *entry = &header->entry;
    const char *text;
    size_t length;
    if (take(s, '['))
        return mha__fail(s->error, MHA_UNSUPPORTED, s->name,
                         "expected one number per element, found a structured dtype:"
                         " save its fields as arrays of their own");
    if (!take_string(s, &text, &length))
        return expected(s, "a 'descr' string");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (length == 3 && is(text + 1, 2, codes[i].descr + 1) && strchr("<>|=", text[0]) && text[0] != '\0') {
            bool single = text[2] == '1';
            if (!single && text[0] == '|')
                break;
            entry->tensor.dtype = codes[i].dtype;
            entry->big_endian = text[0] == '>' || (text[0] != '<' && mha__host_is_big_endian());
            return MHA_OK;
        }
    if (is_text(text, length, header))
        return MHA_OK;
    if (length >= 2 && (text[1] == 'O' || text[0] == 'O'))
        return mha__fail(
            s->error, MHA_UNSUPPORTED, s->name,
            "expected numbers, found Python objects (pickled, never loaded here): save a plain array instead");
    return mha__fail(
        s->error, MHA_UNSUPPORTED, s->name,
        "expected f2, f4, f8, i1 to i8, u1 to u8, b1 or c8, found descr '%.*s': save with astype('float32')",
        length < 40 ? (int)length : 40, text);
}

static mha_status parse_order(scanner *s, mha__entry *entry)
{
    take(s, ' ');
    size_t left = (size_t)(s->end - s->at);
    bool fortran = left >= 4 && memcmp(s->at, "True", 4) == 0;
    if (!fortran && !(left >= 5 && memcmp(s->at, "False", 5) == 0))
        return expected(s, "True or False for 'fortran_order'");
    s->at += fortran ? 4 : 5;
    entry->fortran = fortran;
    return MHA_OK;
}

static mha_status parse_shape(scanner *s, mha_file_tensor *tensor)
{
    if (!take(s, '('))
        return expected(s, "a 'shape' tuple");
    while (!take(s, ')')) {
        if (tensor->rank > 0 && !take(s, ','))
            return expected(s, "',' or ')'");
        if (take(s, ')'))
            break;
        if (tensor->rank == MHA_MAX_RANK)
            return mha__fail(s->error, MHA_UNSUPPORTED, s->name, "expected at most %d dimensions, found more",
                             MHA_MAX_RANK);
        if (s->at == s->end || *s->at < '0' || *s->at > '9')
            return expected(s, "a whole number in 'shape'");
        size_t extent = 0;
        for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
            if (!mha__mul(extent, 10, &extent) || !mha__add(extent, (size_t)(*s->at - '0'), &extent))
                return expected(s, "an extent that fits 64 bits");
        take(s, 'L'); /* Python 2 wrote 3L for a long integer */
        tensor->shape[tensor->rank++] = extent;
    }
    return MHA_OK;
}

mha_status mha__npy_header_parse(const unsigned char *bytes, size_t length, const char *name, mha__npy_header *header,
                                 mha_error *error)
{
    size_t prefix = bytes[6] == 1 ? 10 : 12;
    const char *text = (const char *)bytes + prefix;
    scanner s = {text, text, text + (length - prefix), prefix, name, error};
    *header = (mha__npy_header){.bytes = length};
    enum { DESCR, FORTRAN_ORDER, SHAPE, KEYS };
    static const char *const keys[KEYS] = {"descr", "fortran_order", "shape"};
    bool seen[KEYS] = {false};
    if (!take(&s, '{'))
        return expected(&s, "'{'");
    for (bool first = true; !take(&s, '}'); first = false) {
        const char *key;
        size_t key_length;
        if (!first && !take(&s, ','))
            return expected(&s, "',' or '}'");
        if (!first && take(&s, '}'))
            break;
        if (!take_string(&s, &key, &key_length))
            return expected(&s, "a key in quotes");
        int which = 0;
        while (which < KEYS && !is(key, key_length, keys[which]))
            which++;
        if (which == KEYS || seen[which])
            return expected(&s, "the keys 'descr', 'fortran_order' and 'shape', each once,");
        seen[which] = true;
        if (!take(&s, ':'))
            return expected(&s, "':'");
        TRY(which == DESCR           ? parse_descr(&s, header)
            : which == FORTRAN_ORDER ? parse_order(&s, &header->entry)
                                     : parse_shape(&s, &header->entry.tensor));
    }
    take(&s, ' ');
    if (s.at != s.end)
        return expected(&s, "nothing after '}'");
    for (int k = 0; k < KEYS; k++)
        if (!seen[k])
            return mha__fail(error, MHA_FORMAT, name, "expected the key '%s' in the npy header, found none", keys[k]);
    if (header->entry.tensor.rank < 2)
        header->entry.fortran = false; /* one order only */
    return MHA_OK;
}

mha_status mha__npy_needs_numbers(const mha__npy_header *header, const char *name, mha_error *error)
{
    if (header->character_bytes == 0)
        return MHA_OK;
    return mha__fail(error, MHA_UNSUPPORTED, name,
                     "expected numbers, found text, which only an npz may hold, one"
                     " text at a time");
}

mha_status mha__npy_parse(mha_file *file, size_t index, mha_error *error)
{
    const mha__source *source = mha__file_source(file, index);
    unsigned char prefix[MHA_NPY_PREFIX];
    size_t available = source->size < sizeof prefix ? (size_t)source->size : sizeof prefix, length;
    TRY(mha__source_read(source, 0, prefix, available, error));
    TRY(mha__npy_header_length(prefix, available, source->path, &length, error));
    if (length > source->size)
        return mha__fail_at(error, MHA_FORMAT, source->path, 8,
                            "expected an npy header of %zu bytes, found only %" PRIu64 " in the file", length,
                            source->size);
    unsigned char *bytes = mha__allocate(&file->allocator, length);
    if (!bytes)
        return mha__fail(error, MHA_NO_MEMORY, source->path, "no memory for a header of %zu bytes", length);
    mha__npy_header header;
    mha_status status = mha__source_read(source, 0, bytes, length, error);
    if (status == MHA_OK)
        status = mha__npy_header_parse(bytes, length, source->path, &header, error);
    if (status == MHA_OK)
        status = mha__npy_needs_numbers(&header, source->path, error);
    mha__release(&file->allocator, bytes, length);
    if (status != MHA_OK)
        return status;

    header.entry.source = index;
    header.entry.tensor.offset = length;
    status = mha__file_add_tensor(file, "", 0, &header.entry, 0, error);
    const mha_file_tensor *tensor = mha_file_at(file, 0);
    if (status == MHA_OK && tensor->bytes != source->size - length)
        return mha__fail_at(error, MHA_FORMAT, source->path, length,
                            "expected %zu bytes of data after the header, found %" PRIu64, tensor->bytes,
                            source->size - length);
    return status;
}
