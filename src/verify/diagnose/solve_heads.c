/* Finds in which order the heads were merged: what stands in the place of each head, held against all heads. */
#include <math.h>

#include "base/base.h"
#include "verify/diagnose/search.h"

/* Adds up, over the judged rows, the squared distance of what stands at each head's place from each head. */
static void measure(const mha__search *s, const double *heads, const mha__unproject *u, double *x, double *far)
{
    const size_t H = s->c->H, d = s->c->d_v, T = s->c->T_q;
    for (size_t r = 0; r < s->c->B * T; r++) {
        if (!s->judged[r])
            continue;
        mha__unproject_row(u, s->target.values + r * s->target.columns, x);
        for (size_t h = 0; h < H; h++)
            for (size_t g = 0; g < H; g++)
                for (size_t f = 0; f < d; f++) {
                    const double apart = x[h * d + f] - heads[r * H * d + g * d + f];
                    far[h * H + g] += isfinite(apart) ? apart * apart : 0;
                }
    }
}

/* Puts the nearest head into each place; whether that is another order. */
static bool choose(const double *far, size_t H, double *order)
{
    bool other = false;
    for (size_t h = 0; h < H; h++) {
        size_t best = h;
        for (size_t g = 0; g < H; g++)
            if (far[h * H + g] < far[h * H + best])
                best = g;
        order[h] = (double)best;
        other |= best != h;
    }
    return other;
}

static mha_status solve(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const size_t H = s->c->H, width = H * s->c->d_v;
    mha__unproject u;
    TRY(mha__unproject_begin(s, pool, &u, error));
    double *order = mha__arena_take(&s->pool, H * sizeof *order), *far = mha__arena_take(pool, H * H * sizeof *far);
    double *heads = mha__arena_take(pool, s->c->B * s->c->T_q * width * sizeof *heads);
    double *x = mha__arena_take(pool, width * sizeof *x);
    if (!order || !far || !heads || !x)
        return mha__search_no_memory(s, error);
    if (!u.can)
        return MHA_OK;
    mha__variant_run(s->bench[0], &s->said, MHA_STAGE_HEADS, s->judged, heads);
    measure(s, heads, &u, x, far);
    if (choose(far, H, order))
        mha__search_append(s, index, order);
    return MHA_OK;
}

mha_status mha__search_solve_heads(mha__search *s, mha_error *error)
{
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha_status status = MHA_OK;
    for (size_t i = 0; i < mha_variant_count() && status == MHA_OK && s->c->H > 1; i++) {
        const mha__solved_entry *e = mha__solved_entry_at(i);
        if (e && e->how == SOLVE_HEADS)
            status = solve(s, i, &pool, error);
    }
    mha__arena_free(&pool);
    return status;
}
