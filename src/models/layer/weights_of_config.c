/* The weights that a configuration gives a layer, held against those that a file has. */
#include "base/base.h"
#include "models/layer/loader.h"

/* Whether a layer may lack the weight; all others are needed, some only if the configuration names them. */
static bool is_optional(mha_weight weight)
{
    const mha_weight_info *info = mha_weight_at(weight);
    const bool needed = info->kind == MHA_WEIGHT_MATRIX || (info->kind == MHA_WEIGHT_NORM && info->of_latents);
    return !needed && weight != MHA_BIAS_TABLE;
}

uint64_t mha__stated_weights(const mha_config *stated)
{
    mha_config config = *stated;
    size_t shape[2];
    uint64_t weights = 0;
    if (mha_config_resolve(&config, NULL) != MHA_OK)
        return 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (mha_config_weight_shape(&config, (mha_weight)w, shape, NULL) > 0)
            weights |= UINT64_C(1) << w;
    return weights;
}

mha_status mha__loader_check_stated(mha__loader *l)
{
    _Static_assert(MHA_WEIGHT_COUNT < 64, "every weight has a bit");
    for (mha_weight weight = 0; l->stated && weight < MHA_WEIGHT_COUNT; weight++) {
        if (!is_optional(weight))
            continue;
        const bool stated = (l->stated & ~l->made) >> weight & 1;
        char name[512];
        if (l->found[weight] && !stated)
            return mha__refuse(l, l->found[weight], MHA_INVALID,
                               "expected no such tensor (%s), which the configuration does not give this layer; found "
                               "one that would change the output",
                               mha_weight_at(weight)->name);
        if (!l->found[weight] && stated)
            return mha__fail_inside(
                l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                mha__file_layer_name(&l->layer, weight, name, sizeof name) ? name : mha_weight_at(weight)->name, 0,
                "expected a tensor of this name (%s, by the configuration), found none", mha_weight_at(weight)->name);
    }
    return MHA_OK;
}
