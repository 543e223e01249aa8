/* W_KVB of latent attention as GGUF keeps it: the keys' and the values' part of each head, in two tensors. */
#include <string.h>

#include "base/base.h"
#include "models/layer/loader.h"

static mha_status check(mha__loader *l, const mha_file_tensor *tensor, const size_t shape[3])
{
    char want[80], have[80];
    if (!mha__dtype_is_float(tensor->reads_as))
        return mha__refuse(l, tensor, MHA_UNSUPPORTED, "expected a type of GGUF that is decoded here, found %s",
                           mha_dtype_name(tensor->dtype));
    if (tensor->rank != 3 || memcmp(tensor->shape, shape, 3 * sizeof *shape) != 0)
        return mha__refuse(l, tensor, MHA_INVALID, "expected shape %s (a part of W_KVB), found %s",
                           mha__shape_text(want, sizeof want, shape, 3),
                           mha__shape_text(have, sizeof have, tensor->shape, tensor->rank));
    return MHA_OK;
}

mha_status mha__loader_check_halves(mha__loader *l)
{
    const mha_config *c = &l->config;
    TRY(check(l, l->found[MHA_W_KVB], (const size_t[]){c->n_heads, c->kv_rank, c->d_k - c->d_rope}));
    return check(l, l->value_half, (const size_t[]){c->n_heads, c->d_v, c->kv_rank});
}

mha_status mha__loader_read_halves(mha__loader *l, const mha_weight_part *part, const mha_view *to)
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
