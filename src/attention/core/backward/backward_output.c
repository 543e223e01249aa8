/* The end of a layer, last step first:
 *
 *   out = y W_O + b_O   y = heads sigmoid(g)   g = x_q W_G + b_G             without a gate y = heads
 *   d heads = dy sigmoid(g)   dg = dy heads sigmoid(g) (1 - sigmoid(g)), the gate of a head summed over its features */
#include <math.h>

#include "attention/core/backward/backward.h"
#include "attention/layer/layer.h"

bool mha__backward_begin_output(mha__backward *b)
{
    const mha__resolved *r = b->r;
    const size_t rows = b->x[0].shape[0], all = r->plan.h * r->plan.d_v, gates = mha__gate_width(r);
    bool room = mha__backward_take(b, &b->d_heads, rows, all);
    if (room && r->layer)
        room = mha__backward_take(b, &b->d_output, rows, r->plan.d_out);
    if (room && gates)
        room = mha__backward_take(b, &b->gates, rows, gates) && mha__backward_take(b, &b->d_gates, rows, gates) &&
               mha__backward_take(b, &b->gated, rows, all) && mha__backward_take(b, &b->d_gated, rows, all);
    if (room && gates)
        mha__matrix_forward(b, MHA_W_G, &b->x[0], &b->gates);
    return room;
}

/* Copies the gradient that was given, of any type and strides. */
static void read_given(const mha_view *given, const mha_view *to)
{
    const mha_view shaped = mha_view_of(to->data, MHA_F64, given->rank, given->shape);
    (void)mha_view_copy(&shaped, given, NULL);
}

static void gate_back(const mha__backward *b, const mha_view *heads)
{
    const size_t all = b->gated.shape[1], n = b->gates.shape[1];
    mha__matrix_clear(&b->d_gates);
    for (size_t i = 0; i < b->gated.shape[0]; i++)
        for (size_t c = 0; c < all; c++) {
            const size_t gate = c / (all / n);
            const double g = mha__matrix_row(&b->gates, i)[gate], e = exp(-fabs(g)),
                         d = mha__matrix_row(&b->d_gated, i)[c];
            mha__matrix_row(&b->d_heads, i)[c] = d / (1 + exp(-g));
            mha__matrix_row(&b->d_gates, i)[gate] += d * mha__matrix_row(heads, i)[c] * e / ((1 + e) * (1 + e));
        }
    mha__matrix_back(b, MHA_W_G, &b->x[0], &b->d_gates, &b->d_x[0]);
}

void mha__backward_output(const mha__backward *b)
{
    if (!b->r->layer) {
        read_given(&b->given->d_output, &b->d_heads);
        return;
    }
    const mha_view heads = mha__as_matrix(&b->stages[MHA_STAGE_HEADS]);
    const bool gated = b->gates.data != NULL;
    const size_t all = heads.shape[1];
    const mha_view *dy = gated ? &b->d_gated : &b->d_heads;
    for (size_t i = 0; gated && i < heads.shape[0]; i++)
        for (size_t c = 0; c < all; c++)
            mha__matrix_row(&b->gated, i)[c] = mha__matrix_row(&heads, i)[c] /
                                               (1 + exp(-mha__matrix_row(&b->gates, i)[c / (all / b->gates.shape[1])]));
    read_given(&b->given->d_output, &b->d_output);
    mha__matrix_clear(dy);
    mha__matrix_back(b, MHA_W_O, gated ? &b->gated : &heads, &b->d_output, dy);
    if (gated)
        gate_back(b, &heads);
}
