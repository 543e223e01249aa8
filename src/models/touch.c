/* Writes a whole model's memory, after asking the machine whether it has that much. */
#include <string.h>

#include "mha/random.h"
#include "mha/system.h"
#include "models/model.h"
#include "base/base.h"

mha_status mha_model_touch(mha_model *model, uint64_t seed, mha_error *error)
{
    size_t needed = 0, at_hand = mha__memory_at_hand();
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor_info info = mha_tensor_get_info(model->rows[i].tensor);
        needed += info.alias_of || info.kind == MHA_BUFFER ? 0 : info.bytes;
    }
    if (needed > at_hand)
        return mha__fail(error, MHA_NO_MEMORY, "touch",
                        "touch: expected %zu bytes of memory for the weights, found %zu at hand", needed, at_hand);
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor_info info = mha_tensor_get_info(model->rows[i].tensor);
        mha_view view = mha_tensor_view(model->rows[i].tensor);
        if (info.alias_of || info.kind == MHA_BUFFER)
            continue;
        bool scale = strcmp(info.role, "norm") == 0 && !strstr(info.name, "bias");
        float bound = info.rank > 1 ? 0.02f : 0;
        mha_random_fill(&view, seed, i, scale ? 1 : -bound, scale ? 1 : bound);
    }
    return MHA_OK;
}
