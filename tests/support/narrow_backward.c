/* A backward whose numbers are moved by a roundoff of float32 after each step. */
#include "support/narrow_backward.h"

#include "attention/core/backward/backward.h"

static void nudge(uint64_t *state, double *x, size_t n)
{
    for (size_t e = 0; e < n; e++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        x[e] *= 1 + ((double)(*state >> 62) - 1.5) / 1.5 * 0x1p-24;
    }
}

static void nudge_all(uint64_t *state, const mha_view *x)
{
    if (x->data)
        nudge(state, x->data, mha_view_elements(x));
}

/* The result of a step. */
static void move(void *context, mha__backward *b, mha__backward_step step, mha__map *map)
{
    uint64_t *state = context;
    const size_t T = b->map.s.T_q, n = b->map.n;
    switch (step) {
    case MHA__BACKWARD_OUTPUT:
        if (b->r->layer)
            nudge_all(state, &b->d_heads);
        break;
    case MHA__BACKWARD_READ: nudge(state, map->weights, T * n); break;
    case MHA__BACKWARD_WEIGHTS: nudge(state, map->d_weights, T * n); break;
    case MHA__BACKWARD_SUMS: nudge(state, map->sums, T); break;
    case MHA__BACKWARD_MASKED: nudge(state, map->d_masked, T * n); break;
    case MHA__BACKWARD_SCORES: nudge(state, map->d_scores, T * n); break;
    case MHA__BACKWARD_PRODUCTS: break;
    case MHA__BACKWARD_ADDED:
        nudge(state, map->dQ, T * b->r->plan.d_k);
        nudge(state, map->dK, n * b->r->plan.d_k);
        nudge(state, map->dV, n * b->r->plan.d_v);
        break;
    case MHA__BACKWARD_HEADS:
    case MHA__BACKWARD_INPUTS:
        for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
            nudge_all(state, &b->d[g]);
        for (int i = 0; i < 3 && step == MHA__BACKWARD_INPUTS; i++)
            if (i == 0 || b->d_x[i].data != b->d_x[i - 1].data)
                nudge_all(state, &b->d_x[i]);
        break;
    }
}

/* The forward's results, if the call does not give them as it is attended to. */
static void move_forward(uint64_t *state, mha__backward *b)
{
    static const mha_stage rows[3] = {MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT, MHA_STAGE_V};
    for (int i = 0; i < 3; i++) {
        const bool normed = i < 2 && b->r->norm[i] != MHA_NORM_NONE;
        if (b->r->layer || normed)
            nudge_all(state, &b->stages[rows[i]]);
        if (b->r->layer)
            nudge_all(state, &b->rows[i]);
    }
    nudge_all(state, &b->stages[MHA_STAGE_HEADS]);
    nudge_all(state, &b->gates);
    nudge_all(state, &b->latents.q), nudge_all(state, &b->latents.q_normed);
    nudge_all(state, &b->latents.kv), nudge_all(state, &b->latents.kv_normed);
}

mha_status narrow_backward(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients, uint64_t seed,
                           mha_error *error)
{
    mha__backward b;
    uint64_t state = seed;
    const mha_status status = mha__backward_begin(&b, layer, call, gradients, NULL, error);
    if (status == MHA_OK) {
        b.watch = move, b.context = &state;
        move_forward(&state, &b);
        mha__backward_run(&b);
        for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
            if (gradients->of[g].data) {
                const mha_view *d = mha__backward_result(&b, g), *to = &gradients->of[g],
                               shaped = mha_view_of(d->data, MHA_F64, to->rank, to->shape);
                (void)mha_view_copy(to, &shaped, NULL);
            }
        mha__backward_hand_stages(&b, MHA_F32, gradients);
    }
    mha__backward_free(&b);
    return status;
}
