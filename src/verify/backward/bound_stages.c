/* The error bound of the stages of a backward that are kept: what bound.c derives for each number on the way, and what
 * storing it costs once more. With E_x of a number x that is stored in a type of roundoff u, whose least normal number
 * is t:
 *
 *   d_heads      E_dO        d_weights   E_dP     row_sums   E_D     d_masked   E_dZ + lost'(dZ)     d_scores   E_dS
 *   d_q_rot ...  the sum over the heads, and lost(x + E_x), of a backward that rounds what goes out
 *   stored       E_x + 2u (x + E_x) + t; infinite where x + E_x reaches the end of the range
 *
 * NaN stands for any number: dP where the key is hidden, of which some kernels make dO V^T and others nothing, and D of
 * a query that sees no key, which is made of an output that is 0, NaN or never written. */
#include <math.h>

#include "attention/core/backward/backward.h"
#include "verify/backward/bound.h"
#include "verify/tolerance/tolerance.h"

bool mha__bound_begin_stages(mha__gradient_errors *e, const mha__backward *b)
{
    mha__backward *s = &e->sizes;
    for (int i = 0; i < MHA_BACKWARD_STAGE_COUNT; i++) {
        const mha_view *kept = &b->kept[i];
        if (kept->data && !(s->kept[i] = mha__arena_view(&s->memory, MHA_F64, kept->rank, kept->shape)).data)
            return false;
    }
    return true;
}

static double stored(const mha__gradient_errors *e, double x, double E)
{
    const double size = fabs(x) + E;
    return size < mha__gradient_largest(e) ? E + 2 * e->unit * size + e->tiny : INFINITY; /* of NaN, too */
}

void mha__bound_keep_pair(const mha__gradient_errors *e, mha_backward_stage stage, const mha__map *map, size_t i,
                          size_t j, double x, double E, bool any)
{
    double *to = mha__backward_kept_at(&e->sizes, stage, map, i, j);
    if (to)
        *to = any ? NAN : stored(e, x, E);
}

void mha__bound_keep_rows(const mha__gradient_errors *e, const mha__backward *b, mha__backward_step step)
{
    const mha_dtype type = step == MHA__BACKWARD_HEADS ? e->precision->gradients : MHA_F32;
    for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++) {
        const mha_view *to = &e->sizes.kept[s], *made = mha__backward_stage_made(b, (mha_backward_stage)s, step);
        if (!to->data || !made)
            continue;
        const double *x = made->data, *E = mha__backward_stage_made(&e->sizes, (mha_backward_stage)s, step)->data;
        for (size_t at = 0; at < mha_view_elements(to); at++) {
            const double lost = type == MHA_F32 ? 0 : mha__lost(type, fabs(x[at]) + E[at], 1);
            ((double *)to->data)[at] = stored(e, x[at], E[at] + lost);
        }
    }
}
