/* The gate on the heads: each feature, or each head, times a sigmoid between 0 and 1 (Qiu et al. 2025). */
#include <math.h>

#include "attention/rows/rows.h"
#include "base/heads.h"
#include "compute/half.h"
#include "compute/thread_pool.h"

typedef struct gating {
    const mha_view *gate, *heads;
} gating;

static void gate_row(void *context, size_t task, int worker)
{
    (void)worker;
    const gating *g = context;
    const size_t T = g->heads->shape[1], h = g->heads->shape[2], d = g->heads->shape[3], b = task / T, t = task % T;
    const size_t each = h * d / g->gate->shape[2]; /* features that share a number */
    const float *gate = mha__row(g->gate, b, t, 0);
    for (size_t head = 0; head < h; head++) {
        float *x = mha__row(g->heads, b, t, head);
        for (size_t c = 0; c < d; c++)
            x[c] *= 1.0f / (1.0f + expf(-gate[(head * d + c) / each]));
    }
}

void mha__gate_heads(const mha__resolved *r, const mha_view *gate, const mha_view *heads)
{
    gating g = {gate, heads};
    mha__parallel_for(heads->shape[0] * heads->shape[1], r->plan.threads, gate_row, &g);
    if (mha__rounds_to_bf16(r))
        mha__round_to_bf16(heads, heads, r->plan.threads);
}
