/* softmax(Q K^T * scale) V, head by head: key block by key block on the fast path, else whole rows of scores. */
#include "attention/steps/steps.h"

void mha__attend(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V, const mha_view *heads,
                 char *scratch)
{
    if (r->plan.path == MHA_PATH_FAST)
        mha__attend_flash(r, Q, K, V, heads, scratch);
    else
        mha__attend_dense(r, Q, K, V, heads, scratch);
}

size_t mha__attend_scratch(const mha__resolved *r)
{
    return r->plan.path == MHA_PATH_FAST ? mha__attend_flash_scratch(r) : mha__attend_dense_scratch(r);
}
