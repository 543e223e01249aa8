/* Packed numbers that are floats themselves: F8 or I8 with a grid of scales, MXFP4 as gpt-oss stores it, and NVFP4. */
#include <math.h>
#include <string.h>

#include "base/quantised/decoders.h"
#include "formats/quantised/packings.h"

/* Scales for a tensor: one, one for each block of the last two axes, or these for each of its leading axes. Axes that
 * are missing after those of the scales count as 1: (out) is (out, 1). */
static bool fit_grid(const mha_file_tensor *codes, const mha_file_tensor *scales, mha__said *said,
                     mha__packing *packing)
{
    size_t axes[MHA_MAX_RANK], leading = 1;
    const int rank = codes->rank;
    if (scales->elements == 1) { /* whatever its rank */
        packing->grid_rows = packing->grid_columns = 1;
        packing->block_rows = packing->block_columns = SIZE_MAX;
        return true;
    }
    if (scales->rank > rank || scales->rank == 0)
        return false;
    for (int k = 0; k < rank; k++)
        axes[k] = k < scales->rank ? scales->shape[k] : 1;
    for (int k = 0; k < rank - 2; k++) {
        leading *= codes->shape[k];
        if (axes[k] != codes->shape[k])
            return false;
    }
    packing->one_grid = leading == 1;
    packing->grid_columns = axes[rank - 1];
    packing->block_columns = mha__group_size(&said->columns, MHA_UNSAID_POWER, codes->shape[rank - 1], axes[rank - 1]);
    packing->grid_rows = rank > 1 ? axes[rank - 2] : 1;
    packing->block_rows =
        rank > 1 ? mha__group_size(&said->rows, MHA_UNSAID_POWER, codes->shape[rank - 2], axes[rank - 2]) : 1;
    return packing->block_rows > 0 && packing->block_columns > 0;
}

bool mha__fit_scaled(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    const mha_file_tensor *codes = &parts[MHA_PART_CODES]->tensor, *scales = &parts[MHA_PART_SCALES]->tensor;
    const mha__entry *zeros = parts[MHA_PART_ZEROS];
    packed->packing.powers = scales->dtype == MHA_U8 && codes->dtype != MHA_I8;
    return codes->dtype != MHA_U8 && codes->dtype != MHA_I32 && codes->rank > 0 && codes->elements > 0 &&
           (mha__dtype_is_float(scales->dtype) || scales->dtype == MHA_F8_E8M0 || packed->packing.powers) &&
           fit_grid(codes, scales, said, &packed->packing) &&
           (!zeros || (zeros->tensor.dtype == MHA_I8 && zeros->tensor.elements == scales->elements));
}

/* The number of a value's scale. */
static size_t scale_at(const mha__parts *parts, size_t row, size_t column)
{
    const mha__packing *packing = parts->packing;
    const size_t grid = packing->one_grid ? 0 : row / parts->rows;
    return (grid * packing->grid_rows + row % parts->rows / packing->block_rows) * packing->grid_columns +
           column / packing->block_columns;
}

float mha__value_scaled(const mha__parts *parts, size_t row, size_t column)
{
    const size_t block = scale_at(parts, row, column);
    const unsigned char *zeros = parts->bytes[MHA_PART_ZEROS];
    const float code = parts->code_values[parts->bytes[MHA_PART_CODES][row * parts->columns + column]];
    return (code - (zeros ? (float)(signed char)zeros[block] : 0.0f)) * parts->numbers[MHA_PART_SCALES][block];
}

mha_dtype mha__scaled_blocks(const mha__packing *packing, const mha_file_tensor *tensor)
{
    if (packing->kind->value != mha__value_scaled || packing->parts[MHA_PART_ZEROS] != SIZE_MAX || tensor->rank != 2 ||
        tensor->shape[1] % MHA_F8_BLOCK != 0 ||
        (packing->grid_columns > 1 && packing->block_columns % MHA_F8_BLOCK != 0))
        return MHA_F32;
    return tensor->dtype == MHA_F8_E4M3   ? MHA_F8_E4M3_SCALED
           : tensor->dtype == MHA_F8_E5M2 ? MHA_F8_E5M2_SCALED
                                          : MHA_F32;
}

void mha__put_scaled_block(const mha__parts *parts, size_t row, size_t column, unsigned char *block)
{
    mha__put_f8_scale(block, parts->numbers[MHA_PART_SCALES][scale_at(parts, row, column)]);
    memcpy(block + MHA_F8_SCALE, parts->bytes[MHA_PART_CODES] + row * parts->columns + column, MHA_F8_BLOCK);
}

/* Blocks (experts, out, n, 16) with scales (experts, out, n): a layer's matrices (experts, 32 n, out), y = x W. */
bool mha__fit_mxfp4(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    (void)said;
    const mha_file_tensor *codes = &parts[MHA_PART_CODES]->tensor, *scales = &parts[MHA_PART_SCALES]->tensor;
    if (codes->dtype != MHA_U8 || scales->dtype != MHA_U8 || codes->rank != 4 || scales->rank != 3 ||
        codes->shape[3] != 16 || codes->elements == 0 || memcmp(codes->shape, scales->shape, 3 * sizeof(size_t)) != 0)
        return false;
    packed->tensor.dtype = MHA_MXFP4;
    packed->tensor.rank = 3;
    packed->tensor.shape[0] = codes->shape[0];
    packed->tensor.shape[1] = 32 * codes->shape[2];
    packed->tensor.shape[2] = codes->shape[1];
    return true;
}

/* The low half of a byte is the number before the high one, the highest bit of each its sign, also of 0. A scale of 255
 * is a NaN. */
float mha__value_mxfp4(const mha__parts *parts, size_t row, size_t column)
{
    const size_t in = row % parts->rows, expert = row / parts->rows;
    const size_t block = (expert * parts->columns + column) * (parts->rows / 32) + in / 32;
    const unsigned scale = parts->bytes[MHA_PART_SCALES][block];
    const unsigned char pair = parts->bytes[MHA_PART_CODES][16 * block + in % 32 / 2];
    const int code = pair >> (in % 2 ? 4 : 0) & 15;
    const float value = mha__e8m0_half(scale) * (float)mha__e2m1_doubled[code & 7];
    return scale == 255 ? NAN : code & 8 ? -value : value;
}

/* Codes (out, in / 2), scales (out, in / 16) of F8 and one for all. */
bool mha__fit_nvfp4(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed)
{
    (void)said;
    const mha_file_tensor *codes = &parts[MHA_PART_CODES]->tensor, *scales = &parts[MHA_PART_SCALES]->tensor,
                          *all = &parts[MHA_PART_TABLE]->tensor;
    if (codes->dtype != MHA_U8 || codes->rank != 2 || scales->dtype != MHA_F8_E4M3 || scales->rank != 2 ||
        codes->elements == 0 || codes->shape[1] % 8 != 0 || scales->shape[0] != codes->shape[0] ||
        scales->shape[1] != codes->shape[1] / 8 || all->dtype != MHA_F32 || all->elements != 1)
        return false;
    packed->tensor.dtype = MHA_FP4; /* which, unlike the blocks of GGUF, has any even number of elements */
    packed->tensor.shape[1] = 2 * codes->shape[1];
    return true;
}

/* The low half of a byte is the number before the high one. */
static float nvfp4_code(const mha__parts *parts, size_t row, size_t column)
{
    const unsigned char pair = parts->bytes[MHA_PART_CODES][(row * parts->columns + column) / 2];
    const int code = pair >> (column % 2 ? 4 : 0) & 15;
    const float value = (float)mha__e2m1_doubled[code & 7] / 2;
    return code & 8 ? -value : value;
}

float mha__value_nvfp4(const mha__parts *parts, size_t row, size_t column)
{
    const float scale = parts->numbers[MHA_PART_SCALES][row * (parts->columns / 16) + column / 16];
    return nvfp4_code(parts, row, column) * (scale * parts->numbers[MHA_PART_TABLE][0]);
}

float mha__value_nvfp4_divided(const mha__parts *parts, size_t row, size_t column)
{
    const float scale = parts->numbers[MHA_PART_SCALES][row * (parts->columns / 16) + column / 16];
    return nvfp4_code(parts, row, column) * (scale / parts->numbers[MHA_PART_TABLE][0]);
}
