/* The projections of q, k and v: what they make of the inputs, and the gradients of the inputs and of their weights. */
#include "attention/core/backward/backward.h"

static const mha_weight projections[3] = {MHA_W_Q, MHA_W_K, MHA_W_V};

/* Copies an input of any type and strides. */
static bool read_input(mha__backward *b, int i, const mha_view *given)
{
    const mha_view copy = mha__arena_view(&b->memory, MHA_F64, given->rank, given->shape);
    if (!copy.data)
        return false;
    (void)mha_view_copy(&copy, given, NULL);
    b->x[i] = mha__as_matrix(&copy);
    return true;
}

static bool read_matrices(mha__backward *b)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_view *given = &b->r->weight[w];
        if (!given->data || mha_weight_at((mha_weight)w)->kind != MHA_WEIGHT_MATRIX)
            continue;
        if (!mha__backward_take(b, &b->matrix[w], given->shape[0], given->shape[1]))
            return false;
        (void)mha_view_copy(&b->matrix[w], given, NULL);
    }
    return true;
}

bool mha__backward_begin_inputs(mha__backward *b)
{
    const mha__resolved *r = b->r;
    const mha__sizes *p = &r->plan;
    const mha_view *given[3] = {&r->query, &r->key, &r->value};
    const size_t widths[3] = {p->h * p->d_k, p->h_kv * p->d_k, p->h_kv * p->d_v};
    bool room = read_matrices(b);
    for (int i = 0; i < 3 && room; i++)
        room = read_input(b, i, given[i]) && mha__backward_take(b, &b->rows[i], b->x[i].shape[0], widths[i]);
    const bool follows[3] = {false, r->key_follows, r->value_follows};
    for (int i = 0; i < 3 && room && r->layer; i++) {
        if (follows[i])
            b->d_x[i] = b->d_x[i - 1];
        else
            room = mha__backward_take(b, &b->d_x[i], b->x[i].shape[0], b->x[i].shape[1]);
    }
    if (room && r->latent.kv_rank)
        return mha__backward_begin_latents(b);
    for (int i = 0; i < 3 && room; i++)
        mha__matrix_forward(b, projections[i], &b->x[i], &b->rows[i]);
    return room;
}

void mha__backward_inputs(const mha__backward *b)
{
    if (b->r->latent.kv_rank) {
        mha__backward_latents(b);
        return;
    }
    for (int i = 0; i < 3; i++) {
        const mha_view d = mha__as_matrix(&b->d[MHA_D_QUERY + i]);
        mha__matrix_back(b, projections[i], &b->x[i], &d, &b->d_x[i]);
    }
}
