/* Weights packed into the panels of the kernels, and unpacked. */
#include "attention/layer/layer.h"
#include "base/base.h"
#include "compute/packed/packed_gemm.h"
#include "compute/sizes.h"
#include "params/params.h"
#include "params/quantise.h"

static void pack(const mha_view *W, void *panels)
{
    mha__pack(W->shape[0], W->shape[1], W->dtype, W->data, W->shape[1], panels);
}

static void unpack(const void *panels, const mha_view *W)
{
    mha__unpack(W->shape[0], W->shape[1], W->dtype, panels, W->data);
}

mha_status mha__matrix_pack(mha_tensor *matrix, mha_error *error)
{
    static const mha__packer both_ways = {pack, unpack}, one_way = {pack, NULL};
    const mha_tensor_info info = mha_tensor_info_of(matrix);
    const bool lossless = info.dtype != MHA_F64 && !mha__is_quantised_weight(info.dtype);
    size_t bytes = SIZE_MAX;
    if (!mha__packed_bytes(info.shape[0], info.shape[1], info.dtype, &bytes) ||
        mha__tensor_pack(matrix, bytes, lossless ? &both_ways : &one_way) != MHA_OK)
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
    enum { AT_ONCE = 1024 }; /* elements, in whole panels */
    const mha_tensor_info info = mha_tensor_info_of(matrix);
    const size_t k = info.shape[0], all = info.shape[1];
    uint32_t row[AT_ONCE];
    for (size_t p = 0; p < k; p++)
        for (size_t j = 0, n; j < all; j += n) {
            n = mha__smaller(all - j, AT_ONCE);
            const mha_view part = mha_view_of(row, info.dtype, 1, &n);
            mha__random_fill_from(&part, seed, stream, p * all + j, low, high);
            mha__pack_row(k, p, j, n, info.dtype, row, mha__tensor_packed(matrix));
        }
}
