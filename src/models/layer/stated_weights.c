/* The weights that a configuration gives a layer, held against those that a file has. */
#include "base/base.h"
#include "models/layer/loader.h"

/* What a layer may have or not; every other weight is needed, or is looked for where the configuration names it. */
static const mha_weight optional[] = {
    MHA_B_Q,    MHA_B_K,    MHA_B_V,         MHA_B_O,         MHA_BIAS_K, MHA_BIAS_V, MHA_SINKS,
    MHA_Q_NORM, MHA_K_NORM, MHA_Q_NORM_BIAS, MHA_K_NORM_BIAS, MHA_B_QA,   MHA_B_KVA,  MHA_B_G,
    MHA_RELATIVE_K, MHA_RELATIVE_COLUMNS, MHA_RELATIVE_Q};

uint64_t mha__stated_weights(mha_config config)
{
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
    for (size_t i = 0; l->stated && i < sizeof optional / sizeof *optional; i++) {
        const mha_weight weight = optional[i];
        const bool stated = (l->stated & ~l->made) >> weight & 1;
        char name[512];
        if (l->found[weight] && !stated)
            return mha__refuse(l, l->found[weight], MHA_INVALID,
                               "expected no such tensor (%s), which the configuration does not give this layer; found "
                               "one that would change the output",
                               mha_weight_name(weight));
        if (!l->found[weight] && stated)
            return mha__fail_inside(
                l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                mha__file_layer_name(&l->layer, weight, name, sizeof name) ? name : mha_weight_name(weight), 0,
                "expected a tensor of this name (%s, by the configuration), found none", mha_weight_name(weight));
    }
    return MHA_OK;
}
