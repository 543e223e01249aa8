/* softmax(Q K^T * scale) V, head by head: key block by key block on the fast path, else whole rows of scores. */
#include "attention/core/attend.h"
#include "attention/core/dense/attend_dense.h"
#include "attention/core/flash/attend_flash.h"
#include "attention/core/terms/terms.h"
#include "compute/half.h"

/* The tables of a relative position bias and of relative terms as floats, then what the path needs. */
typedef struct memory {
    float *bias_rows, *relative;
    char *rest;
} memory;

static size_t lay_out(const mha__resolved *r, char *base, size_t rest, memory *m)
{
    mha__workspace arena = {base, 0};
    mha__relative_tables unused;
    m->bias_rows = mha__workspace_take(&arena, mha__bias_floats(r), sizeof(float));
    m->relative = mha__workspace_take(&arena, mha__relative_prepare(r, NULL, &unused), sizeof(float));
    m->rest = mha__workspace_take(&arena, rest, 1);
    return arena.used;
}

void mha__attend(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V, const mha_view *heads,
                 char *scratch)
{
    memory m;
    (void)lay_out(r, scratch, 0, &m);
    mha__bias_prepare(r, m.bias_rows);
    mha__relative_tables relative;
    (void)mha__relative_prepare(r, m.relative, &relative);
    const bool fast = r->plan.path == MHA_PATH_FAST;
    if (!fast || mha__attend_flash_uses_blas(r))
        mha__attend_dense(r, Q, K, V, heads, m.bias_rows, &relative, m.rest);
    if (fast)
        mha__attend_flash(r, Q, K, V, heads, m.bias_rows, &relative, m.rest);
    if (mha__rounds_to_bf16(r) && !fast) /* whose core rounds them */
        mha__round_to_bf16(heads, heads, r->plan.threads);
}

size_t mha__attend_scratch(const mha__resolved *r)
{
    memory unused;
    const bool fast = r->plan.path == MHA_PATH_FAST;
    const size_t rows = !fast || mha__attend_flash_uses_blas(r) ? mha__attend_dense_scratch(r) : 0,
                 blocks = fast ? mha__attend_flash_scratch(r) : 0;
    return lay_out(r, NULL, rows > blocks ? rows : blocks, &unused);
}
