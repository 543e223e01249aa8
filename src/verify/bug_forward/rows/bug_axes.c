/* Tables of rotations by positions of several axes, as bugs make them. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "mha/positions.h"
#include "verify/bug_forward/bug_inputs.h"

/* The positions (axes, B, T) of a case, which a bug reads. */
static void read_positions(const mha_case *c, int bug, const mha_view *to)
{
    const mha_view *from = &c->origin.positions;
    const size_t axes = to->shape[0], *n = to->shape;
    int64_t *value = to->data;
    for (size_t e = 0; e < n[0] * n[1] * n[2]; e++) {
        const size_t t = e % n[2], b = e / n[2] % n[1], a = e / n[2] / n[1], behind = axes - 1 - a;
        const bool swaps = bug == AXES_SWAPPED && axes > 1 && behind < 2;
        const size_t axis = bug == AXES_FIRST ? 0 : swaps ? axes - 2 + behind : a;
        const size_t by_batch[] = {axis, from->shape[1] == 1 ? 0 : b, t}, for_all[] = {axis, t};
        value[e] =
            bug == AXES_TEXT ? (int64_t)(c->P + t) : (int64_t)mha_view_get(from, from->rank == 3 ? by_batch : for_all);
    }
}

static size_t frequencies_of(const mha_rope_axes *a, size_t pairs)
{
    size_t most = 0;
    for (size_t i = 0; i < a->axes; i++)
        most = a->sections[i] > most ? a->sections[i] : most;
    return a->kind == MHA_ROPE_AXES_REPEATED ? most : pairs;
}

/* The axes that a bug takes for those of the case. */
static mha_rope_axes axes_of(const mha_rope_axes *right, int bug)
{
    mha_rope_axes a = *right;
    for (size_t i = 0; i < a.axes && bug == AXES_REVERSED; i++)
        a.sections[i] = right->sections[a.axes - 1 - i];
    if (bug == AXES_DEALT)
        a.kind = a.kind == MHA_ROPE_AXES_BLOCKS ? MHA_ROPE_AXES_INTERLEAVED : MHA_ROPE_AXES_BLOCKS;
    if (bug == AXES_RESTART)
        a.kind = a.kind == MHA_ROPE_AXES_BLOCKS ? MHA_ROPE_AXES_REPEATED : MHA_ROPE_AXES_BLOCKS;
    return a;
}

bool mha__bug_axes(mha__bug_inputs *w)
{
    const mha_case *c = w->c;
    const mha_rope *r = &c->semantics.qkv.rope;
    const mha_rope_origin *o = &c->origin;
    if (o->axes.axes == 0)
        return true;
    const size_t pairs = (r->dim ? r->dim : c->d_k) / 2;
    const mha_view positions = mha__arena_view(&w->pool, MHA_I64, 3, (size_t[]){o->axes.axes, c->B, c->T_q});
    for (int m = AXES_RIGHT + 1; m < AXES_COUNT && positions.data; m++) {
        const mha_rope_axes axes = axes_of(&o->axes, m);
        const size_t n = frequencies_of(&axes, pairs);
        double f[MHA_ROPE_MAX_PAIRS];
        for (size_t j = 0; j < n; j++)
            f[j] = o->frequencies.data && j < o->frequencies.shape[0]
                       ? mha_view_get(&o->frequencies, &j)
                       : pow(r->base > 0 ? r->base : 10000, -(double)j / (double)n);
        read_positions(c, m, &positions);
        for (int s = 0; s < 2; s++)
            w->axes[m][s] = mha__arena_view(&w->pool, MHA_F64, 3, (size_t[]){c->B, c->T_q, pairs});
        if (!w->axes[m][0].data || !w->axes[m][1].data)
            return false;
        if (mha_rope_axes_tables(&axes, f, &positions, &w->axes[m][0], &w->axes[m][1], NULL) != MHA_OK)
            memset(w->axes[m], 0, sizeof w->axes[m]); /* unreachable: the case was made with such axes */
    }
    return positions.data != NULL;
}
