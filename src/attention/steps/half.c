/* Conversion of 16-bit floats to floats, which BLAS needs, and of floats to 16-bit floats, for the cache. */
#include "attention/steps/steps.h"
#include "compute/kernels/kernels.h"
#include "compute/thread_pool.h"

enum { ROWS_AT_ONCE = 64 };

typedef struct conversion {
    const mha_view *to, *from;
    size_t blocks; /* of rows */
} conversion;

static void widen_rows(void *context, size_t task, int worker)
{
    (void)worker;
    const conversion *j = context;
    const size_t heads = j->to->shape[2], T = j->to->shape[1];
    const size_t first = task % j->blocks * ROWS_AT_ONCE, g = task / j->blocks % heads, b = task / j->blocks / heads;
    const uint16_t *from = (const uint16_t *)j->from->data + mha__row_offset(j->from, b, first, g);
    mha__kernels_get()->widen(T - first < ROWS_AT_ONCE ? T - first : ROWS_AT_ONCE, j->to->shape[3], from,
                             (size_t)j->from->stride[1], j->from->dtype, mha__row(j->to, b, first, g),
                             (size_t)j->to->stride[1], NULL);
}

void mha__widen(const mha_view *to, const mha_view *from, int threads)
{
    if (from->dtype != MHA_F16 && from->dtype != MHA_BF16) {
        (void)mha_view_copy(to, from);
        return;
    }
    conversion j = {to, from, (to->shape[1] + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE};
    mha__parallel_for(to->shape[0] * to->shape[2] * j.blocks, threads, widen_rows, &j);
}

void mha__narrow(const mha_view *to, const mha_view *from)
{
    const bool halves = to->dtype == MHA_F16 || to->dtype == MHA_BF16;
    if (!halves || from->dtype != MHA_F32 || from->stride[3] != 1 || from->stride[2] < 0) {
        (void)mha_view_copy(to, from);
        return;
    }
    if (mha_view_elements(to) == 0)
        return;
    for (size_t a = 0; a < to->shape[0]; a++)
        for (size_t b = 0; b < to->shape[1]; b++)
            mha__kernels_get()->narrow(to->shape[2], to->shape[3], mha__row(from, a, b, 0), (size_t)from->stride[2],
                                       to->dtype, (uint16_t *)to->data + mha__row_offset(to, a, b, 0),
                                       (size_t)to->stride[2]);
}
