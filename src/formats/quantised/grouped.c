/* GPTQ, AWQ and compressed-tensors: whole numbers of few bits in words of 32, with a scale and a zero point for each
 * group of inputs. */
#include <string.h>

#include "formats/quantised/packings.h"

static uint32_t word_at(const unsigned char *bytes, size_t index)
{
    uint32_t word;
    memcpy(&word, bytes + 4 * index, sizeof word);
    return word;
}

/* Code number `index` of a stream of words; its word w is the one at first + w * step. Codes of 3 bits cross words. */
static unsigned code_at(const unsigned char *words, size_t first, size_t step, int bits, size_t index)
{
    const size_t at = index * (size_t)bits, word = at / 32, shift = at % 32;
    uint64_t two = word_at(words, first + word * step);
    if (shift + (size_t)bits > 32)
        two |= (uint64_t)word_at(words, first + (word + 1) * step) << 32;
    return (unsigned)(two >> shift) & ((1u << bits) - 1);
}

/* Whether scales (groups, out) and zero points (groups, out * bits / 32) fit a matrix of `in` inputs. */
static bool fit_groups(const mha__entry *const parts[MHA_PARTS], size_t in, size_t out, int bits, mha__said *said,
                       mha__unsaid unsaid, mha__packed_tensor *packed)
{
    const mha_file_tensor *scales = &parts[MHA_PART_SCALES]->tensor, *zeros = &parts[MHA_PART_ZEROS]->tensor;
    const size_t groups = scales->rank == 2 ? scales->shape[0] : 0;
    packed->packing.bits = bits;
    packed->packing.grid_rows = groups;
    packed->packing.block_columns = mha__group_size(&said->columns, unsaid, in, groups);
    packed->tensor.rank = 2;
    packed->tensor.shape[0] = out;
    packed->tensor.shape[1] = in;
    return mha__dtype_is_float(scales->dtype) && zeros->dtype == MHA_I32 && zeros->rank == 2 && groups > 0 &&
           zeros->shape[0] == groups && scales->shape[1] == out && out % 32 * (size_t)bits % 32 == 0 &&
           zeros->shape[1] == out / 32 * (size_t)bits + out % 32 * (size_t)bits / 32 &&
           (packed->packing.block_columns > 0 || parts[MHA_PART_GROUPS]);
}

/* Codes (in * bits / 32, out), zero points along the outputs. The last group may be cut: 2 groups of 48 inputs may be
 * of 24 and 24, or of 32 and 16. */
bool mha__fit_gptq(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    static const struct {
        int bits;
        mha_dtype dtype;
    } types[] = {{2, MHA_U2}, {3, MHA_U3}, {4, MHA_U4}, {8, MHA_U8}};
    const mha_file_tensor *codes = &parts[MHA_PART_CODES]->tensor, *zeros = &parts[MHA_PART_ZEROS]->tensor;
    const mha__entry *groups = parts[MHA_PART_GROUPS];
    const bool second = strcmp(said->format, "gptq_v2") == 0;
    said->format_matters = true;
    const bool known = !*said->format || second || strcmp(said->format, "gptq") == 0;
    packed->packing.offset = second ? 0 : 1;
    packed->packing.symmetric = said->symmetric;
    if (codes->dtype != MHA_I32 || codes->rank != 2 || zeros->rank != 2 || codes->elements == 0 ||
        codes->shape[0] > SIZE_MAX / 32)
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const size_t in = codes->shape[0] * 32 / (size_t)types[i].bits;
        const bool grouped = groups && groups->tensor.dtype == MHA_I32 && groups->tensor.rank == 1;
        packed->tensor.dtype = types[i].dtype;
        if (codes->shape[0] * 32 % (size_t)types[i].bits == 0 &&
            (!groups || (grouped && groups->tensor.elements == in)) &&
            fit_groups(parts, in, codes->shape[1], types[i].bits, said, MHA_UNSAID_ALIKE_POWER, packed)) {
            said->format_unknown = !known;
            return known;
        }
    }
    return false;
}

/* Every input belongs to a group that exists. */
mha__part mha__check_groups(const mha__parts *parts, const mha_file_tensor *tensor)
{
    const unsigned char *groups = parts->bytes[MHA_PART_GROUPS];
    for (size_t in = 0; groups && in < tensor->shape[1]; in++)
        if (word_at(groups, in) >= parts->packing->grid_rows)
            return MHA_PART_GROUPS;
    return MHA_PARTS;
}

/* Checks the groups and, of symmetric codes, that each zero point is the middle of the codes. */
mha__part mha__check_gptq(const mha__parts *parts, const mha_file_tensor *tensor)
{
    const int bits = parts->packing->bits;
    const size_t zeros = parts->packing->grid_rows * parts->rows;
    const float middle = (float)(1u << (bits - 1)) - parts->packing->offset;
    for (size_t i = 0; parts->packing->symmetric && i < zeros; i++)
        if ((float)code_at(parts->bytes[MHA_PART_ZEROS], 0, 1, bits, i) != middle)
            return MHA_PART_ZEROS;
    return mha__check_groups(parts, tensor);
}

static size_t group_of(const mha__parts *parts, size_t in)
{
    const unsigned char *groups = parts->bytes[MHA_PART_GROUPS];
    return groups ? word_at(groups, in) : in / parts->packing->block_columns;
}

float mha__value_gptq(const mha__parts *parts, size_t row, size_t column)
{
    const int bits = parts->packing->bits;
    const size_t outputs = parts->rows, group = group_of(parts, column);
    const unsigned code = code_at(parts->bytes[MHA_PART_CODES], row, outputs, bits, column);
    const unsigned zero = code_at(parts->bytes[MHA_PART_ZEROS], group * (outputs * (size_t)bits / 32), 1, bits, row);
    return parts->numbers[MHA_PART_SCALES][group * outputs + row] *
           ((float)code - ((float)zero + parts->packing->offset));
}

/* Codes (in, out / 8). Groups are never cut. */
bool mha__fit_awq(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    const mha_file_tensor *codes = &parts[MHA_PART_CODES]->tensor;
    packed->tensor.dtype = MHA_U4;
    return codes->dtype == MHA_I32 && codes->rank == 2 && codes->elements > 0 && codes->shape[1] <= SIZE_MAX / 8 &&
           fit_groups(parts, codes->shape[0], 8 * codes->shape[1], 4, said, MHA_UNSAID_ALIKE, packed);
}

/* Eight outputs in a word, in the order 0 2 4 6 1 3 5 7. */
static float awq_code(const unsigned char *words, size_t row, size_t outputs, size_t output)
{
    static const unsigned char shifts[8] = {0, 16, 4, 20, 8, 24, 12, 28};
    return (float)(word_at(words, row * (outputs / 8) + output / 8) >> shifts[output % 8] & 15);
}

float mha__value_awq(const mha__parts *parts, size_t row, size_t column)
{
    const size_t outputs = parts->rows, group = group_of(parts, column);
    const float code = awq_code(parts->bytes[MHA_PART_CODES], column, outputs, row);
    const float zero = awq_code(parts->bytes[MHA_PART_ZEROS], group, outputs, row);
    return parts->numbers[MHA_PART_SCALES][group * outputs + row] * (code - zero);
}

/* An extent of the shape (out, in) that compressed-tensors stores, as its bytes are in the file; 0: none. */
static size_t extent_of(const mha__entry *shape, const char *bytes, size_t axis)
{
    const size_t width = shape->tensor.dtype == MHA_I64 ? 8 : 4;
    uint64_t extent = 0;
    for (size_t i = width; i-- > 0;)
        extent = extent << 8 | (unsigned char)bytes[axis * width + i];
    return extent <= INT32_MAX ? (size_t)extent : 0;
}

/* Codes (out, in * bits / 32), scales (out, groups), zero points (out * bits / 32, groups); words that are not full end
 * with zeros. Without zero points the middle of the codes means 0. The state is the shape. With 4 inputs the
 * number of bits cannot be derived from the shapes. Groups are never cut. */
bool mha__fit_compressed(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    const mha_file_tensor *codes = &parts[MHA_PART_CODES]->tensor, *scales = &parts[MHA_PART_SCALES]->tensor;
    const mha__entry *zeros = parts[MHA_PART_ZEROS], *groups = parts[MHA_PART_GROUPS], *shape = parts[MHA_PART_STATE];
    if (codes->dtype != MHA_I32 || codes->rank != 2 || scales->rank != 2 || shape->tensor.elements != 2 ||
        (shape->tensor.dtype != MHA_I64 && shape->tensor.dtype != MHA_I32))
        return false;
    const size_t out = extent_of(shape, said->state, 0), in = extent_of(shape, said->state, 1);
    const size_t count = scales->shape[1];
    const int bits = codes->shape[1] == (in + 7) / 8 ? 4 : 8;
    packed->packing.bits = bits;
    packed->packing.offset = bits == 4 ? 8 : 128;
    packed->packing.grid_rows = count;
    packed->packing.block_columns = mha__group_size(&said->columns, MHA_UNSAID_ALIKE, in, count);
    packed->tensor.dtype = bits == 4 && out * in % 2 == 0 ? MHA_U4 : MHA_U8; /* U4 is a type of pairs */
    packed->tensor.rank = 2;
    packed->tensor.shape[0] = out;
    packed->tensor.shape[1] = in;
    return in > 4 && out > 0 && codes->shape[0] == out && codes->shape[1] == (in * (size_t)bits + 31) / 32 &&
           mha__dtype_is_float(scales->dtype) && scales->shape[0] == out &&
           (!zeros || (zeros->tensor.dtype == MHA_I32 && zeros->tensor.rank == 2 && zeros->tensor.shape[1] == count &&
                       zeros->tensor.shape[0] == (out * (size_t)bits + 31) / 32)) &&
           (!groups ? packed->packing.block_columns > 0
                    : groups->tensor.dtype == MHA_I32 && groups->tensor.rank == 1 && groups->tensor.elements == in);
}

float mha__value_compressed(const mha__parts *parts, size_t row, size_t column)
{
    const int bits = parts->packing->bits;
    const size_t count = parts->packing->grid_rows, group = group_of(parts, column),
                 words = (parts->columns * (size_t)bits + 31) / 32;
    const unsigned char *zeros = parts->bytes[MHA_PART_ZEROS];
    const unsigned code = code_at(parts->bytes[MHA_PART_CODES], row * words, 1, bits, column);
    const float zero = zeros ? (float)code_at(zeros, group, count, bits, row) : parts->packing->offset;
    return parts->numbers[MHA_PART_SCALES][row * count + group] * ((float)code - zero);
}
