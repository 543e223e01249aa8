/* Finds in which order the heads were merged: what stands in the place of each head, held against all heads. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/dot.h"
#include "compute/gemm.h"
#include "verify/diagnose/search.h"

/* What W_O is multiplied with can be solved for up to this many rows of it: the work grows with their cube. */
enum { MOST_ROWS = 1536 };

/* The lower triangle of Cholesky's decomposition of W W^T, for W (n, columns); false when it is singular. */
static bool decompose(const double *W, size_t n, size_t columns, double *L)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            const double own = mha__dot(W + i * columns, W + j * columns, columns);
            const double left = own - mha__dot(L + i * n, L + j * n, j);
            if (i == j && !(left > 0x1p-40 * own))
                return false;
            L[i * n + j] = i == j ? sqrt(left) : left / L[j * n + j];
        }
    return true;
}

/* Least squares x W = y: x = y W^T (W W^T)^-1. */
static void unproject(const double *W, const double *L, size_t n, size_t columns, const double *y, double *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (mha__dot(y, W + i * columns, columns) - mha__dot(L + i * n, x, i)) / L[i * n + i];
    for (size_t i = n; i-- > 0;) {
        x[i] /= L[i * n + i];
        for (size_t k = 0; k < i; k++)
            x[k] -= L[i * n + k] * x[i];
    }
}

/* The merged heads of which a row of the tensor is made, in x (h*d_v). `L`: NULL without a projection. */
static void merged_of(const mha__search *s, const double *L, const double *row, double *less_bias, double *x)
{
    const mha__variant_inputs *in = s->inputs;
    const size_t width = s->c->H * s->c->d_v, out = s->target.columns;
    const double *bias = in->b[PROJECTION_O];
    if (!L) {
        memcpy(x, row, width * sizeof *x);
        return;
    }
    for (size_t j = 0; j < out; j++)
        less_bias[j] = row[j] - (bias ? bias[j] : 0);
    unproject(in->W[PROJECTION_O], L, width, out, less_bias, x);
}

/* Adds up, over the judged rows, the squared distance of what stands at each head's place from each head. */
static void measure(const mha__search *s, const double *heads, const double *L, double *memory, double *far)
{
    const size_t H = s->c->H, d = s->c->d_v, T = s->c->T_q;
    double *x = memory, *less_bias = memory + H * d;
    for (size_t r = 0; r < s->c->B * T; r++) {
        if (!s->judged[r])
            continue;
        merged_of(s, L, s->target.values + r * s->target.columns, less_bias, x);
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
    const double *W = s->target.stage == MHA_STAGE_OUTPUT ? s->inputs->W[PROJECTION_O] : NULL;
    double *order = mha__arena_take(&s->pool, H * sizeof *order), *far = mha__arena_take(pool, H * H * sizeof *far);
    double *heads = mha__arena_take(pool, s->c->B * s->c->T_q * width * sizeof *heads);
    double *memory = mha__arena_take(pool, (width + s->target.columns) * sizeof *memory);
    double *L = W ? mha__arena_take(pool, width * width * sizeof *L) : NULL;
    if (!order || !far || !heads || !memory || (W && !L))
        return mha__search_no_memory(s, error);
    if (W && !decompose(W, width, s->target.columns, L))
        return MHA_OK;
    mha__variant_run(s->bench[0], &s->said, MHA_STAGE_HEADS, s->judged, heads);
    measure(s, heads, L, memory, far);
    if (!choose(far, H, order))
        return MHA_OK;
    mha__candidate x = {.a = (int)index, .b = -1, .numbers = order, .order = 1};
    mha__search_fit(s, 0, &s->full, &x);
    x.complete = true;
    s->candidates[s->count++] = x;
    s->singles = s->count;
    return MHA_OK;
}

mha_status mha__search_solve_heads(mha__search *s, mha_error *error)
{
    const mha_stage stage = s->target.stage;
    const bool projected = stage == MHA_STAGE_OUTPUT && s->c->kind == CASE_MHA;
    const size_t width = s->c->H * s->c->d_v;
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha_status status = MHA_OK;
    if (s->c->H < 2 || s->c->kind == CASE_ROPE || (stage != MHA_STAGE_OUTPUT && stage != MHA_STAGE_HEADS) ||
        (projected && (width > s->target.columns || width > MOST_ROWS)))
        return MHA_OK;
    for (size_t i = 0; i < mha_variant_count() && status == MHA_OK; i++) {
        const mha__solved_entry *e = mha__solved_entry_at(i);
        if (e && e->how == SOLVE_HEADS)
            status = solve(s, i, &pool, error);
    }
    mha__arena_free(&pool);
    return status;
}
