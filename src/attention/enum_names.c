/* The names of stages and paths. */
#include "base/base.h"
#include "mha/attention.h"

static const char *const stages[] = {
    [MHA_STAGE_Q] = "q",
    [MHA_STAGE_K] = "k",
    [MHA_STAGE_V] = "v",
    [MHA_STAGE_Q_ROT] = "q_rot",
    [MHA_STAGE_K_ROT] = "k_rot",
    [MHA_STAGE_SCORES] = "scores",
    [MHA_STAGE_CAPPED] = "capped",
    [MHA_STAGE_MASKED] = "masked",
    [MHA_STAGE_WEIGHTS] = "weights",
    [MHA_STAGE_WEIGHTS_MEAN] = "weights_mean",
    [MHA_STAGE_HEADS] = "heads",
    [MHA_STAGE_OUTPUT] = "output",
    [MHA_STAGE_PRESENT_KEY] = "present_key",
    [MHA_STAGE_PRESENT_VALUE] = "present_value",
    [MHA_STAGE_LSE] = "lse",
    [MHA_STAGE_Q_LATENT] = "q_latent",
    [MHA_STAGE_KV_LATENT] = "kv_latent",
    [MHA_STAGE_GATED] = "gated",
};
_Static_assert(sizeof stages / sizeof *stages == MHA_STAGE_COUNT, "a name for every stage");

static const char *const paths[] = {
    [MHA_PATH_AUTO] = "auto",
    [MHA_PATH_FAST] = "fast",
    [MHA_PATH_BLAS] = "blas",
    [MHA_PATH_EXACT] = "exact",
};
_Static_assert(sizeof paths / sizeof *paths == MHA_PATH_COUNT, "a name for every path");

const char *mha_stage_name(mha_stage stage)
{
    return mha__name_at(stages, MHA_STAGE_COUNT, (size_t)stage);
}

bool mha_stage_find(const char *name, mha_stage *stage)
{
    const int found = mha__name_find(stages, MHA_STAGE_COUNT, name);
    if (found >= 0)
        *stage = (mha_stage)found;
    return found >= 0;
}

const char *mha_path_name(mha_path path)
{
    return mha__name_at(paths, MHA_PATH_COUNT, (size_t)path);
}

bool mha_path_find(const char *name, mha_path *path)
{
    const int found = mha__name_find(paths, MHA_PATH_COUNT, name);
    if (found >= 0)
        *path = (mha_path)found;
    return found >= 0;
}
