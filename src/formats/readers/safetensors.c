/* Reading the safetensors format: 8 bytes of header length, a header in JSON, the data.
 * https://github.com/huggingface/safetensors#format */
#include <inttypes.h>
#include <string.h>

#include "formats/files/chunks.h"
#include "formats/files/json.h"
#include "formats/readers/readers.h"
#include "lab/lab.h"

static const mha_dtype dtypes[] = {
    MHA_BOOL,    MHA_F4,          MHA_F6_E2M3,     MHA_F6_E3M2, MHA_U8,  MHA_I8,  MHA_F8_E5M2, MHA_F8_E4M3,
    MHA_F8_E8M0, MHA_F8_E4M3FNUZ, MHA_F8_E5M2FNUZ, MHA_I16,     MHA_U16, MHA_F16, MHA_BF16,    MHA_I32,
    MHA_U32,     MHA_F32,         MHA_C64,         MHA_F64,     MHA_I64, MHA_U64,
};

bool mha__safetensors_has(mha_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i] == dtype)
            return true;
    return false;
}

/* The file that is being read, and the numbers that the checks need. */
typedef struct header {
    mha_file *file;
    size_t source;
    const char *path;
    uint64_t data_begins, file_size;
    bool metadata_seen;
} header;

static mha_status parse_shape(const header *h, const json_t *shape, const char *name, uint64_t where,
                              mha_file_tensor *tensor, mha_error *error)
{
    if (!json_is_array(shape))
        return mha__fail_inside(error, MHA_FORMAT, h->path, name, where,
                                "expected a \"shape\" that is an array (at byte %" PRIu64 ")", where);
    if (json_array_size(shape) > MHA_MAX_RANK)
        return mha__fail_inside(error, MHA_UNSUPPORTED, h->path, name, where,
                                "expected at most %d dimensions, found %zu", MHA_MAX_RANK, json_array_size(shape));
    tensor->rank = (int)json_array_size(shape);
    for (int k = 0; k < tensor->rank; k++) {
        const json_t *extent = json_array_get(shape, (size_t)k);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0 ||
            (uint64_t)json_integer_value(extent) > SIZE_MAX)
            return mha__fail_inside(
                error, MHA_FORMAT, h->path, name, where,
                "expected extents that are whole numbers from 0, found another one in dimension %d (at byte %" PRIu64
                ")",
                k, where);
        tensor->shape[k] = (size_t)json_integer_value(extent);
    }
    return MHA_OK;
}

/* "data_offsets": [begin, end], relative to the end of the header. */
static mha_status parse_offsets(const header *h, const json_t *offsets, const char *name, uint64_t where,
                                uint64_t *begin, uint64_t *end, mha_error *error)
{
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return mha__fail_inside(error, MHA_FORMAT, h->path, name, where,
                                "expected \"data_offsets\" of two whole numbers (at byte %" PRIu64 ")", where);
    json_int_t from = json_integer_value(first), to = json_integer_value(last);
    uint64_t available = h->file_size - h->data_begins;
    if (from < 0 || to < from || (uint64_t)to > available)
        return mha__fail_inside(error, MHA_FORMAT, h->path, name, where,
                                "expected data_offsets inside the %" PRIu64 " bytes of data, found [%lld, %lld]",
                                available, (long long)from, (long long)to);
    *begin = (uint64_t)from;
    *end = (uint64_t)to;
    return MHA_OK;
}

static mha_status parse_tensor(const header *h, const json_t *key, const json_t *value, uint64_t where,
                               mha_error *error)
{
    const char *name = json_string_value(key);
    mha__entry entry = {.source = h->source};
    if (!json_is_object(value) || json_object_size(value) != 3)
        return mha__fail_inside(error, MHA_FORMAT, h->path, name, where,
                                "expected an object of \"dtype\", \"shape\" and \"data_offsets\" (at byte %" PRIu64 ")",
                                where);
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype)
        return mha__fail_inside(error, MHA_FORMAT, h->path, name, where,
                                "expected a \"dtype\" that is a string (at byte %" PRIu64 ")", where);
    if (!mha__dtype_find(dtype, &entry.tensor.dtype) || !mha__safetensors_has(entry.tensor.dtype))
        return mha__fail_inside(error, MHA_UNSUPPORTED, h->path, name, where,
                                "expected a dtype of the safetensors format, found \"%s\"", dtype);
    uint64_t begin = 0, end = 0;
    TRY(parse_shape(h, json_object_get(value, "shape"), name, where, &entry.tensor, error));
    TRY(parse_offsets(h, json_object_get(value, "data_offsets"), name, where, &begin, &end, error));
    entry.tensor.offset = h->data_begins + begin;
    TRY(mha__file_add_tensor(h->file, name, json_string_length(key), &entry, where, error));
    const mha_file_tensor *added = mha_file_at(h->file, mha_file_count(h->file) - 1);
    if (added->bytes != end - begin) {
        char shape[200];
        return mha__fail_inside(error, MHA_FORMAT, h->path, name, where,
                                "expected %zu bytes for %s of %s, found data_offsets of %" PRIu64 " bytes",
                                added->bytes, mha__shape_text(shape, sizeof shape, added->shape, added->rank), dtype,
                                end - begin);
    }
    return MHA_OK;
}

static mha_status take_metadata(void *context, const json_t *key, uint64_t from, mha__json_walk *walk, mha_error *error)
{
    const header *h = context;
    const uint64_t where = mha__json_offset(walk);
    json_t *value;
    (void)from;
    TRY(mha__json_value(walk, &value, error));
    const mha_status status = json_is_string(value)
                                  ? mha__file_add_metadata(h->file, json_string_value(key), json_string_length(key),
                                                           json_string_value(value), json_string_length(value), error)
                                  : mha__fail_inside(error, MHA_FORMAT, h->path, json_string_value(key), where,
                                                     "expected metadata that is a string (at byte %" PRIu64 ")", where);
    json_decref(value);
    return status;
}

static mha_status take_entry(void *context, const json_t *key, uint64_t from, mha__json_walk *walk, mha_error *error)
{
    header *h = context;
    json_t *value;
    if (strcmp(json_string_value(key), "__metadata__") == 0) {
        if (h->metadata_seen)
            return mha__fail_inside(error, MHA_FORMAT, h->path, "__metadata__", from,
                                    "expected it once, found it twice");
        h->metadata_seen = true;
        return mha__json_each(walk, take_metadata, h, error);
    }
    TRY(mha__json_value(walk, &value, error));
    const mha_status status = parse_tensor(h, key, value, from, error);
    json_decref(value);
    return status;
}

static mha_status parse_header(header *h, const char *text, size_t length, mha_error *error)
{
    mha__json_walk walk = {.text = text, .length = length, .base = 8, .path = h->path};
    if (length == 0 || text[0] != '{')
        return mha__fail_at(error, MHA_FORMAT, h->path, 8,
                            "expected '{' at byte 8, where the header of a safetensors file begins");
    TRY(mha__json_each(&walk, take_entry, h, error));
    return mha__json_end(&walk, error);
}

/* Tensors lie one after the other from the header to the end of the file. */
static mha_status check_layout(const header *h, size_t first, mha_error *error)
{
    size_t count = mha_file_count(h->file) - first;
    const mha_file_tensor **order = mha__file_by_offset(h->file, first);
    if (!order)
        return mha__file_no_memory(h->file, error);

    uint64_t end = h->data_begins;
    mha_status status = MHA_OK;
    for (size_t i = 0; i < count && status == MHA_OK; i++) {
        if (order[i]->offset != end)
            status = mha__fail_inside(error, MHA_FORMAT, h->path, order[i]->name, order[i]->offset,
                                      "expected its data at byte %" PRIu64
                                      ", where the tensor before ends, found %s at byte %" PRIu64,
                                      end, order[i]->offset < end ? "an overlap" : "a hole", order[i]->offset);
        end = order[i]->offset + order[i]->bytes;
    }
    if (status == MHA_OK && end != h->file_size)
        status = mha__fail_at(error, MHA_FORMAT, h->path, end,
                              "expected the end of the file at byte %" PRIu64
                              ", where the last tensor ends, found %" PRIu64 " more bytes",
                              end, h->file_size - end);
    mha__release(&h->file->allocator, order, (count + 1) * sizeof *order);
    return status;
}

mha_status mha__safetensors_parse(mha_file *file, size_t index, mha_error *error)
{
    const mha__source *source = mha__file_source(file, index);
    unsigned char prefix[9] = {0};
    enum { LENGTH_BYTES = 8 };
    if (source->size < LENGTH_BYTES)
        return mha__fail(error, MHA_FORMAT, source->path,
                         "expected a file of tensors (safetensors, npy, npz, GGUF), found only %" PRIu64 " bytes",
                         source->size);
    TRY(mha__source_read(source, 0, prefix, source->size > LENGTH_BYTES ? sizeof prefix : LENGTH_BYTES, error));
    uint64_t length = mha__little_endian(prefix, LENGTH_BYTES), available = source->size - LENGTH_BYTES;
    if (length > available && prefix[LENGTH_BYTES] != '{')
        return mha__fail(error, MHA_FORMAT, source->path,
                         "expected safetensors, npy, npz or GGUF, found none of them"
                         " (as safetensors its header would have %" PRIu64 " bytes); save tensors of other programs"
                         " (ONNX, llama2.c, ...) with safetensors.numpy.save_file",
                         length);
    if (length > available)
        return mha__fail(error, MHA_FORMAT, source->path,
                         "expected a safetensors header of at most the %" PRIu64
                         " bytes that follow, found the length %" PRIu64 " (a truncated file?)",
                         available, length);
    if (length >= MHA_HEADER_LIMIT)
        return mha__fail(error, MHA_FORMAT, source->path,
                         "expected a safetensors header under %d bytes, found %" PRIu64, MHA_HEADER_LIMIT, length);

    char *text = mha__allocate(&file->allocator, (size_t)length + 1);
    if (!text)
        return mha__fail(error, MHA_NO_MEMORY, source->path, "no memory for a header of %" PRIu64 " bytes", length);
    header h = {file, index, source->path, LENGTH_BYTES + length, source->size, false};
    size_t first = mha_file_count(file);
    mha_status status = mha__source_read(source, LENGTH_BYTES, text, (size_t)length, error);
    if (status == MHA_OK)
        status = parse_header(&h, text, (size_t)length, error);
    if (status == MHA_OK)
        status = check_layout(&h, first, error);
    mha__release(&file->allocator, text, (size_t)length + 1);
    return status;
}
