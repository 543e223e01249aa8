/* bitsandbytes: rows of I8 with a scale each, and numbers of 4 bits with a table and a scale for each block. */
#include <jansson.h>
#include <string.h>

#include "formats/quantised/packings.h"

static bool is_list(const mha__entry *part, mha_dtype dtype, size_t elements)
{
    return part && part->tensor.dtype == dtype && part->tensor.elements == elements;
}

bool mha__fit_int8(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    (void)said;
    return packed->tensor.dtype == MHA_I8 && packed->tensor.rank == 2 && packed->tensor.elements > 0 &&
           is_list(parts[MHA_PART_SCALES], MHA_F32, packed->tensor.shape[0]);
}

/* Code times scale, then times 1/127, each rounded to F32. */
float mha__value_int8(const mha__parts *parts, size_t row, size_t column)
{
    const float code = (float)(signed char)parts->bytes[MHA_PART_CODES][row * parts->columns + column];
    const float product = code * parts->numbers[MHA_PART_SCALES][row];
    return product * 7.874015718698502e-3f;
}

/* A whole number from 1 to `most` under a key of the state; 0: another one, or none. */
static size_t number_of(const json_t *state, const char *key, size_t most)
{
    const json_t *value = json_object_get(state, key);
    return json_is_integer(value) && json_integer_value(value) > 0 && (uint64_t)json_integer_value(value) <= most
               ? (size_t)json_integer_value(value)
               : 0;
}

static bool fit_shape(const json_t *state, mha_file_tensor *tensor)
{
    const json_t *shape = json_object_get(state, "shape");
    tensor->rank = (int)json_array_size(shape);
    if (json_array_size(shape) == 0 || json_array_size(shape) > 2)
        return false;
    for (int k = 0; k < tensor->rank; k++) {
        const json_t *extent = json_array_get(shape, (size_t)k);
        if (!json_is_integer(extent) || json_integer_value(extent) <= 0 || json_integer_value(extent) > INT32_MAX)
            return false;
        tensor->shape[k] = (size_t)json_integer_value(extent);
    }
    return true;
}

/* Scales are F32, or bytes with a table and nested scales of their own. */
static bool fit_scales(const mha__entry *const parts[MHA_PARTS], const json_t *state, size_t blocks,
                       mha__packing *packing)
{
    if (is_list(parts[MHA_PART_SCALES], MHA_F32, blocks))
        return true;
    packing->nested_block = number_of(state, "nested_blocksize", 1 << 20);
    packing->offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    return is_list(parts[MHA_PART_SCALES], MHA_U8, blocks) && packing->nested_block > 0 &&
           is_list(parts[MHA_PART_NESTED_SCALES], MHA_F32, (blocks - 1) / packing->nested_block + 1) &&
           is_list(parts[MHA_PART_NESTED_TABLE], MHA_F32, 256);
}

bool mha__fit_4bit(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    json_t *root = json_loads(said->state, 0, NULL);
    const json_t *type = json_object_get(root, "quant_type");
    mha_file_tensor *tensor = &packed->tensor;
    const size_t block = number_of(root, "blocksize", 1 << 20);
    bool fits = block > 0 && json_is_string(type) && fit_shape(root, tensor);
    if (fits) {
        const mha_view whole = mha_view_of(NULL, MHA_F32, tensor->rank, tensor->shape);
        const size_t elements = mha_view_elements(&whole);
        tensor->dtype = strcmp(json_string_value(type), "fp4") == 0 ? MHA_FP4 : MHA_NF4;
        packed->packing.block_columns = block;
        fits = elements % 2 == 0 && is_list(parts[MHA_PART_CODES], MHA_U8, elements / 2) &&
               is_list(parts[MHA_PART_TABLE], MHA_F32, 16) &&
               fit_scales(parts, root, (elements - 1) / block + 1, &packed->packing);
    }
    json_decref(root);
    return fits;
}

/* The high half of a byte is the number before the low one. */
float mha__value_4bit(const mha__parts *parts, size_t row, size_t column)
{
    const size_t index = row * parts->columns + column, block = index / parts->packing->block_columns;
    const float number =
        parts->numbers[MHA_PART_TABLE][parts->bytes[MHA_PART_CODES][index / 2] >> (index % 2 ? 0 : 4) & 15];
    if (!parts->packing->nested_block)
        return number * parts->numbers[MHA_PART_SCALES][block];
    const float nested = parts->numbers[MHA_PART_NESTED_SCALES][block / parts->packing->nested_block];
    const float scale = parts->numbers[MHA_PART_NESTED_TABLE][parts->bytes[MHA_PART_SCALES][block]] * nested;
    const float moved = scale + parts->packing->offset;
    return number * moved;
}
