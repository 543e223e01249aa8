/* Reads the numbers of a layer from its file, out of fused tensors where the file has them. */
#include "base/base.h"
#include "models/layer/loader.h"
#include "params/params.h"

static mha_view weight_view(const mha__loader *l, const mha_layer *layer, mha_weight weight)
{
    mha_view view = mha_tensor_view(mha_layer_weight(layer, weight));
    return view.rank == 2 && l->orientation == MHA_ORIENTATION_OUT_IN ? mha_view_swap(&view, 0, 1) : view;
}

/* Reads a whole fused tensor and copies its slices of outputs, which are shares of the weights of query, key and value:
 * block by block, in each of them some query heads and the key and value heads that belong to them. */
static mha_status read_fused(mha__loader *l, const mha_layer *layer, const mha_weight parts[3])
{
    const mha_file_tensor *tensor = l->found[parts[0]];
    const mha_allocator *allocator = mha_params_allocator(mha_layer_params(layer));
    size_t bytes = 0, from = 0;
    mha_dtype dtype = l->config.dtype;
    bool fits = mha_dtype_bytes(dtype, tensor->elements, &bytes) == MHA_OK;
    void *block = fits ? mha__allocate(allocator, bytes) : NULL;
    if (!block)
        return mha__refuse(l, tensor, MHA_NO_MEMORY, "expected %zu bytes to read it, found no memory", bytes);
    mha_view whole = mha_view_of(block, dtype, tensor->rank, tensor->shape);
    int outputs = tensor->rank == 2 && l->orientation == MHA_ORIENTATION_IN_OUT ? 1 : 0;
    mha_status status = mha_file_read(l->file, tensor, &whole, l->error);
    for (size_t i = 0; i < 3 * l->blocks && status == MHA_OK; i++) {
        const size_t place = i % 3, part = l->qvk && place > 0 ? 3 - place : place;
        const mha_view weight = weight_view(l, layer, parts[part]);
        const size_t share = weight.shape[outputs] / l->blocks;
        mha_view to = mha_view_slice(&weight, outputs, i / 3 * share, share);
        mha_view slice = mha_view_slice(&whole, outputs, from, share);
        from += share;
        status = mha_view_copy(&to, &slice);
    }
    mha__release(allocator, block, bytes);
    return status;
}

mha_status mha__loader_read(mha__loader *l, const mha_layer *layer)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight weight = (mha_weight)w;
        const mha_file_tensor *tensor = l->found[w];
        if (!tensor)
            continue;
        if (!mha__loader_fuses(l, weight)) {
            mha_view to = weight_view(l, layer, weight);
            TRY(mha_file_read(l->file, tensor, &to, l->error));
        }
        mha__tensor_set_source_dtype(mha_layer_weight(layer, weight), tensor->dtype);
    }
    if (mha__loader_fuses(l, MHA_W_Q))
        TRY(read_fused(l, layer, mha__matrices_in));
    if (l->found[MHA_B_Q] && mha__loader_fuses(l, MHA_B_Q))
        TRY(read_fused(l, layer, mha__biases_in));
    return MHA_OK;
}
