/* Weights packed into the panels of the kernels, and unpacked. */
#include "attention/layer/packing.h"

#include "base/base.h"
#include "params/quantise.h"
#include "compute/packed/packed_gemm.h"

/* Elements of a row that are made at a time, in whole panels. */
enum { AT_ONCE = 1024 };

static void pack_floats(const mha_view *W, void *panels)
{
    mha__pack(W->shape[0], W->shape[1], W->data, W->shape[1], panels);
}

static void unpack_floats(const void *panels, const mha_view *W)
{
    mha__unpack(W->shape[0], W->shape[1], sizeof(float), panels, W->data);
}

static void pack_halves(const mha_view *W, void *panels)
{
    mha__pack_half(W->shape[0], W->shape[1], W->data, W->shape[1], panels);
}

static void unpack_halves(const void *panels, const mha_view *W)
{
    mha__unpack(W->shape[0], W->shape[1], sizeof(uint16_t), panels, W->data);
}

static void pack_blocks(const mha_view *W, void *panels)
{
    mha__pack_blocks(W->shape[0], W->shape[1], W->dtype, W->data, panels);
}

static size_t width_at(const mha_view *W, size_t column)
{
    return W->shape[1] - column < AT_ONCE ? W->shape[1] - column : AT_ONCE;
}

/* Rounded to F32, some elements of a row at a time. */
static void pack_doubles(const mha_view *W, void *panels)
{
    float row[AT_ONCE];
    for (size_t p = 0; p < W->shape[0]; p++)
        for (size_t j = 0; j < W->shape[1]; j += AT_ONCE) {
            const size_t n = width_at(W, j);
            const mha_view line = mha_view_slice(W, 0, p, 1), from = mha_view_slice(&line, 1, j, n),
                           to = mha_view_of(row, MHA_F32, 2, from.shape);
            (void)mha_view_copy(&to, &from, NULL);
            mha__pack_row(W->shape[0], p, j, n, row, panels);
        }
}

static const mha__packer floats = {pack_floats, unpack_floats}, halves = {pack_halves, unpack_halves},
                          doubles = {pack_doubles, NULL}, blocks = {pack_blocks, NULL};

static const mha__packer *packer_of(mha_dtype dtype)
{
    return mha__is_quantised_weight(dtype) ? &blocks
           : dtype == MHA_F64              ? &doubles
           : dtype == MHA_F32              ? &floats
                                           : &halves;
}

mha_dtype mha__matrix_packed_type(mha_dtype dtype)
{
    return dtype == MHA_F64 ? MHA_F32 : dtype;
}

mha_status mha__matrix_pack(mha_tensor *matrix, mha_error *error)
{
    const mha_tensor_info info = mha_tensor_info_of(matrix);
    size_t elements, bytes = SIZE_MAX;
    const bool fits = mha__is_quantised_weight(info.dtype)
                          ? mha__packed_block_bytes(info.shape[0], info.shape[1], info.dtype, &bytes)
                          : mha__packed_floats(info.shape[0], info.shape[1], &elements) &&
                                mha_dtype_bytes(mha__matrix_packed_type(info.dtype), elements, &bytes, NULL) == MHA_OK;
    if (!fits || mha__tensor_pack(matrix, bytes, packer_of(info.dtype)) != MHA_OK)
        return mha__fail(error, MHA_NO_MEMORY, info.name, "no memory to pack it: %zu bytes", bytes);
    return MHA_OK;
}

bool mha__is_packed_alone(const mha_tensor *tensor)
{
    const mha_tensor_info info = mha_tensor_info_of(tensor);
    return info.packed_bytes > 0 && !info.data;
}

void mha__matrix_fill_packed(mha_tensor *matrix, uint64_t seed, uint64_t stream, float low, float high)
{
    const mha_tensor_info info = mha_tensor_info_of(matrix);
    const mha_view W = mha_view_of(mha__tensor_packed(matrix), info.dtype, info.rank, info.shape);
    uint32_t row[AT_ONCE];
    for (size_t p = 0; p < W.shape[0]; p++)
        for (size_t j = 0; j < W.shape[1]; j += AT_ONCE) {
            const size_t n = width_at(&W, j);
            const mha_view part = mha_view_of(row, W.dtype, 1, &n);
            mha__random_fill_from(&part, seed, stream, p * W.shape[1] + j, low, high);
            if (W.dtype == MHA_F32)
                mha__pack_row(W.shape[0], p, j, n, part.data, W.data);
            else
                mha__pack_half_row(W.shape[0], p, j, n, part.data, W.data);
        }
}
