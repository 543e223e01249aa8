/* Reads the numbers of a layer, or of one rank's share of it, from its file: out of fused tensors where the file has
 * them. */
#include "base/base.h"
#include "params/quantise.h"
#include "formats/file.h"
#include "models/layer/loader.h"
#include "params/params.h"

/* How the outputs of a weight lie in its tensor: in blocks, `width` apart, each with `share` of them after `before`
 * others. A tensor that is not fused is one block. */
typedef struct outputs {
    size_t blocks, width, before, share;
} outputs;

/* A fused tensor holds in each block some query heads and the key and value heads that belong to them. */
static outputs outputs_of(const mha__loader *l, mha_weight weight, int rank)
{
    const mha_weight *parts = rank == 2 ? mha__matrices_in : mha__biases_in;
    size_t shape[2];
    mha_config_weight_shape(&l->config, weight, shape, NULL);
    outputs o = {1, shape[rank - 1], 0, shape[rank - 1]};
    const mha_config *c = &l->config;
    if (mha__loader_shares_gate(l, weight) && !mha__is_gate_weight(weight))
        return (outputs){c->n_heads, c->d_k + c->d_v, 0, c->d_k};
    if (mha__loader_shares_gate(l, weight))
        return (outputs){c->n_heads, c->d_k + c->d_v, c->d_k, c->d_v};
    if (!mha__loader_fuses(l, weight))
        return o;
    o = (outputs){l->blocks, 0, 0, o.share / l->blocks};
    for (size_t place = 0; place < 3; place++) {
        const mha_weight part = parts[l->qvk && place > 0 ? 3 - place : place];
        mha_config_weight_shape(&l->config, part, shape, NULL);
        if (part == weight)
            o.before = o.width;
        o.width += shape[rank - 1] / l->blocks;
    }
    return o;
}

/* A weight (heads, d) with a tensor for each row. */
static mha_status read_heads(mha__loader *l, mha_weight weight, const mha_weight_part *part, const mha_view *to)
{
    for (size_t i = 0; i < part->count; i++) {
        mha_view row = mha_view_slice(to, 0, i, 1);
        row.rank = 1, row.shape[0] = row.shape[1], row.stride[0] = row.stride[1];
        TRY(mha_file_read_part(l->file, mha__file_layer_head_norm(l->file, &l->layer, weight, part->from + i), 0, 0,
                               row.shape[0], &row, l->error));
    }
    return MHA_OK;
}

/* A W_KVB in two tensors: the keys' and the values' part of each head. */
static mha_status read_halves(mha__loader *l, const mha_weight_part *part, const mha_view *to)
{
    const mha_config *c = &l->config;
    const size_t d_n = c->d_k - c->d_rope, width = d_n + c->d_v;
    for (size_t done = 0; done < part->count; done += width) {
        const size_t head = (part->from + done) / width;
        for (int half = 0; half < 2; half++) {
            mha_view some = mha_view_slice(to, 1, done + (half ? d_n : 0), half ? c->d_v : d_n), one = some;
            if (half) /* (d_v, kv_rank) */
                some = mha__view_swap(&some, 0, 1);
            one.rank = 3;
            one.shape[0] = 1, one.shape[1] = some.shape[0], one.shape[2] = some.shape[1];
            one.stride[0] = 0, one.stride[1] = some.stride[0], one.stride[2] = some.stride[1];
            TRY(mha_file_read_part(l->file, half ? l->value_half : l->found[MHA_W_KVB], 0, head, 1, &one, l->error));
        }
    }
    return MHA_OK;
}

static mha_status read_weight(mha__loader *l, mha_weight weight, const mha_weight_part *part, mha_view to)
{
    const mha_file_tensor *tensor = l->found[weight];
    const int rank = to.rank;
    const bool turned = mha__loader_turns(l, weight);
    const int axis = turned ? 1 - part->axis : part->axis, file_axis = tensor->rank - rank + axis; /* (1, 1, E) */
    if (weight == MHA_W_KVB && l->value_half)
        return read_halves(l, part, &to);
    if (turned)
        to = mha__view_swap(&to, 0, 1);
    if (l->by_head[weight])
        return read_heads(l, weight, part, &to);
    if (part->axis != rank - 1)
        return mha_file_read_part(l->file, tensor, file_axis, part->from, part->count, &to, l->error);
    const outputs o = outputs_of(l, weight, rank);
    for (size_t b = 0, done = 0; b < o.blocks && done < part->count; b++) {
        const size_t first = part->from + done, end = (b + 1) * o.share, left = part->count - done;
        if (first >= end)
            continue;
        const size_t count = left < end - first ? left : end - first;
        const mha_view some = mha_view_slice(&to, axis, done, count);
        TRY(mha_file_read_part(l->file, tensor, file_axis, b * o.width + o.before + first - b * o.share, count, &some,
                               l->error));
        done += count;
    }
    return MHA_OK;
}

/* Reads floats, or other blocks, into a weight of blocks. */
static mha_status read_quantised(mha__loader *l, const mha_layer *layer, mha_weight weight, const mha_weight_part *part)
{
    const mha_allocator *allocator = mha_params_allocator(mha_layer_params(layer));
    const mha_view to = mha__tensor_plain(mha_layer_weight(layer, weight));
    const size_t bytes = mha_view_elements(&to) * sizeof(float);
    float *values = mha__allocate(allocator, bytes);
    if (!values)
        return mha__refuse(l, l->found[weight], MHA_NO_MEMORY, "expected %zu bytes to read it, found no memory", bytes);
    const mha_view floats = mha_view_of(values, MHA_F32, to.rank, to.shape);
    mha_status status = read_weight(l, weight, part, floats);
    if (status == MHA_OK && (status = mha__quantise(&to, &floats)) != MHA_OK)
        (void)mha__refuse(l, l->found[weight], status,
                          "expected blocks of %s, to which nothing is rounded here (floats are to Q8_0 and Q4_0)",
                          mha_dtype_name(to.dtype));
    mha__release(allocator, values, bytes);
    return status;
}

mha_status mha__loader_read(mha__loader *l, const mha_layer *layer, const mha_split *split, size_t rank)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight weight = (mha_weight)w;
        mha_tensor *row = mha_layer_weight(layer, weight);
        const mha_weight_part part = mha_split_part(split, rank, weight);
        if (!l->found[w] || !row)
            continue;
        const mha_view to = mha__tensor_plain(row);
        mha_dtype stays = MHA_F32;
        if (mha__is_quantised_weight(to.dtype))
            TRY(mha__file_stays(l->file, l->found[w], &stays, l->error));
        const bool alike =
            stays == to.dtype && !(w == MHA_W_KVB && l->value_half) && l->orientation == MHA_ORIENTATION_OUT_IN;
        TRY(mha__is_quantised_weight(to.dtype) && !alike ? read_quantised(l, layer, weight, &part)
                                                         : read_weight(l, weight, &part, to));
        mha__tensor_set_source_dtype(row, l->found[w]->dtype);
    }
    return MHA_OK;
}
