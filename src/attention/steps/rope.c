/* Rotary position embedding: pairs of features turned by an angle that grows with the position
 * (Su et al. 2021).  y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin. */
#include <math.h>

#include "attention/steps/steps.h"

/* Where the pairs are and where the angles come from. */
typedef struct rotation {
    const mha_rope *rope;
    size_t dim;
    double base;
} rotation;

/* cos and sin of pair i for row t of batch row b, standing at `position`. */
static void turn(const rotation *rot, size_t b, size_t t, int64_t position, size_t i, double *c, double *s)
{
    const mha_view *cos_table = &rot->rope->cos_table, *sin_table = &rot->rope->sin_table;
    if (cos_table->data) {
        bool by_row = cos_table->rank == 3;
        size_t at[3] = {by_row && cos_table->shape[0] > 1 ? b : 0, by_row ? t : (size_t)position, i};
        *c = mha_view_get(cos_table, by_row ? at : at + 1);
        *s = mha_view_get(sin_table, by_row ? at : at + 1);
        return;
    }
    double angle = (double)position * pow(rot->base, -2.0 * (double)i / (double)rot->dim);
    *c = cos(angle);
    *s = sin(angle);
}

static int64_t given_position(const mha_view *positions, size_t b, size_t t)
{
    ptrdiff_t row = positions->shape[0] > 1 ? (ptrdiff_t)b : 0;
    return ((const int64_t *)positions->data)[row * positions->stride[0] + (ptrdiff_t)t * positions->stride[1]];
}

/* Rotates all heads of row t from x to y, F32. The angles of a row are found once. */
static void rotate_row(const rotation *rot, size_t b, size_t t, int64_t position, const mha_view *x, const mha_view *y)
{
    bool interleaved = rot->rope->kind == MHA_ROPE_INTERLEAVED;
    size_t pairs = rot->dim / 2;
    for (size_t i = 0; i < pairs; i++) {
        double c64, s64;
        turn(rot, b, t, position, i, &c64, &s64);
        float c = (float)c64, s = (float)s64;
        size_t one = interleaved ? 2 * i : i, two = interleaved ? 2 * i + 1 : i + pairs;
        for (size_t g = 0; g < x->shape[2]; g++) {
            const float *from = mha__row(x, b, t, g);
            float *to = mha__row(y, b, t, g), x1 = from[one], x2 = from[two];
            to[one] = x1 * c - x2 * s;
            to[two] = x2 * c + x1 * s;
        }
    }
}

void mha__rotate_heads(const mha__resolved *r, mha__side side, const mha_view *x)
{
    const mha_rope *rope = &r->semantics.rope;
    if (rope->kind == MHA_ROPE_NONE)
        return;
    rotation rot = {rope, r->rope_dim, r->rope_base};
    bool same = r->query.shape[1] == r->key.shape[1];
    const mha_view *positions = side == MHA_KEYS && (rope->k_positions.data || !same) ? &rope->k_positions : &rope->q_positions;
    for (size_t b = 0; b < r->plan.B; b++) {
        mha__sequence s = mha__resolved_sequence(r, b);
        size_t from = side == MHA_QUERIES ? s.q_from : s.k_from, T = side == MHA_QUERIES ? s.T_q : s.T_k;
        int64_t first = side == MHA_QUERIES ? s.offset : r->cached;
        for (size_t t = 0; t < T; t++)
            rotate_row(&rot, s.batch, from + t,
                       positions->data ? given_position(positions, s.batch, from + t) : first + (int64_t)t, x, x);
    }
}

/* ---------------------------------------------------------------- alone */

static mha_status check_alone(const mha_view *x, const mha_rope *rope, const mha_view *y, size_t dim, mha_error *error)
{
    char found[200];
    if (x->rank != 4 || y->rank != 4)
        return mha__fail(error, MHA_INVALID, "x", "expected shape (B, T, heads, d), found %s",
                        mha__shape_text(found, sizeof found, x->shape, x->rank));
    if ((!x->data || !y->data) && mha_view_elements(x) != 0)
        return mha__fail(error, MHA_INVALID, x->data ? "y" : "x", "no data");
    for (int k = 0; k < 4; k++)
        if (x->shape[k] != y->shape[k])
            return mha__fail(error, MHA_INVALID, "y", "expected the shape of x, found %s",
                            mha__shape_text(found, sizeof found, y->shape, y->rank));
    if (rope->kind != MHA_ROPE_INTERLEAVED && rope->kind != MHA_ROPE_HALF_SPLIT)
        return mha__fail(error, MHA_INVALID, "rope", "a kind of rotation is needed: interleaved or half-split");
    if ((x->dtype != MHA_F32 && x->dtype != MHA_F64) || (y->dtype != MHA_F32 && y->dtype != MHA_F64))
        return mha__fail(error, MHA_UNSUPPORTED, "x", "expected elements of F32 or F64, found x of %s and y of %s",
                        mha_dtype_name(x->dtype), mha_dtype_name(y->dtype));
    if (!(rope->base >= 0) || !isfinite(rope->base))
        return mha__fail(error, MHA_INVALID, "rope_base", "expected a positive base, found %g", rope->base);
    if (dim % 2 != 0 || dim > x->shape[3])
        return mha__fail(error, MHA_INVALID, "rope_dim", "expected an even number of features up to d = %zu, found %zu",
                        x->shape[3], dim);
    const mha_view *c = &rope->cos_table, *s = &rope->sin_table, *p = &rope->q_positions;
    if (p->data && (p->dtype != MHA_I64 || p->rank != 2 || (p->shape[0] != x->shape[0] && p->shape[0] != 1) ||
                    p->shape[1] != x->shape[1]))
        return mha__fail(error, MHA_INVALID, "q_positions", "expected I64 of shape (%zu, %zu), found %s of %s",
                        x->shape[0], x->shape[1], mha_dtype_name(p->dtype), mha__shape_text(found, sizeof found, p->shape, p->rank));
    if (!c->data && !s->data)
        return MHA_OK;
    bool fits = c->data && s->data && c->rank == s->rank && (c->rank == 2 || c->rank == 3) && c->dtype == s->dtype &&
                (c->dtype == MHA_F32 || c->dtype == MHA_F64) && c->shape[c->rank - 1] == dim / 2;
    for (int k = 0; fits && k < c->rank; k++)
        fits = c->shape[k] == s->shape[k];
    if (fits && c->rank == 3)
        fits = (c->shape[0] == x->shape[0] || c->shape[0] == 1) && c->shape[1] == x->shape[1];
    if (!fits)
        return mha__fail(error, MHA_INVALID, "cos_table", "rotation tables: expected cos and sin, (n, %zu) or (%zu, %zu, %zu)",
                        dim / 2, x->shape[0], x->shape[1], dim / 2);
    return MHA_OK;
}

mha_status mha_rotate(const mha_view *x, const mha_rope *rope, int64_t first_position, bool exact, const mha_view *y,
                      mha_error *error)
{
    size_t dim = rope->dim ? rope->dim : x->rank == 4 ? x->shape[3] : 0;
    mha_status status = check_alone(x, rope, y, dim, error);
    if (status != MHA_OK)
        return status;
    const int64_t far = INT64_MAX / 4;
    if (!rope->q_positions.data && (first_position > far || first_position < -far))
        return mha__fail(error, MHA_INVALID, "first_position", "first_position %lld is out of range", (long long)first_position);
    rotation rot = {rope, dim, rope->base != 0 ? rope->base : 10000.0};
    const mha_view *p = &rope->q_positions;
    for (size_t b = 0; b < x->shape[0] && rope->cos_table.data && rope->cos_table.rank == 2; b++)
        for (size_t t = 0; t < x->shape[1]; t++) {
            int64_t at = p->data ? given_position(p, b, t) : first_position + (int64_t)t;
            if (at < 0 || at >= (int64_t)rope->cos_table.shape[0])
                return mha__fail(error, MHA_INVALID, "q_positions", "position %lld has no row in rotation tables of %zu",
                                (long long)at, rope->cos_table.shape[0]);
        }
    if (x->data != y->data)
        (void)mha_view_copy(y, x);
    for (size_t b = 0; b < x->shape[0]; b++)
        for (size_t t = 0; t < x->shape[1]; t++) {
            int64_t position = p->data ? given_position(p, b, t) : first_position + (int64_t)t;
            for (size_t i = 0; i < dim / 2; i++) {
                bool interleaved = rope->kind == MHA_ROPE_INTERLEAVED;
                size_t one = interleaved ? 2 * i : i, two = interleaved ? 2 * i + 1 : i + dim / 2;
                double c, s;
                turn(&rot, b, t, position, i, &c, &s);
                for (size_t g = 0; g < x->shape[2]; g++) {
                    const size_t at1[4] = {b, t, g, one}, at2[4] = {b, t, g, two};
                    double x1 = mha_view_get(y, at1), x2 = mha_view_get(y, at2);
                    if (exact) {
                        mha_view_set(y, at1, x1 * c - x2 * s);
                        mha_view_set(y, at2, x2 * c + x1 * s);
                    } else {
                        float fc = (float)c, fs = (float)s, f1 = (float)x1, f2 = (float)x2;
                        mha_view_set(y, at1, f1 * fc - f2 * fs);
                        mha_view_set(y, at2, f2 * fc + f1 * fs);
                    }
                }
            }
        }
    return MHA_OK;
}
