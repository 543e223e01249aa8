/* Bugs of the gradients of matrices and biases, dW = x^T dy and db = the sum of dy over all rows: of some rows, of
 * other rows of x, in another order. Each is that of all gradients that somebody has wrong. */
#include "attention/layer/layer.h"
#include "verify/backward/bugs/gradient_bugs.h"

/* y = x W + b of all rows; x has no data where b is added to what was given. */
typedef struct product {
    mha_view x, dy;
    size_t T, heads, width; /* rows of a batch row; of the columns of dy, or, of W_O, of x */
} product;

static const mha_view *choose(bool first, const mha_view *one, const mha_view *other)
{
    return first ? one : other;
}

static product product_of(const mha__backward *b, mha_weight W)
{
    const mha__resolved *r = b->r;
    const mha__sizes *s = &r->plan;
    const mha__latent_rows *l = &b->latents;
    const mha_view dq = mha__as_matrix(&b->d[MHA_D_QUERY]), dk = mha__as_matrix(&b->d[MHA_D_KEY]),
                   dv = mha__as_matrix(&b->d[MHA_D_VALUE]);
    const size_t T = r->query.shape[1], T_k = r->key.shape[1];
    if (W == MHA_W_Q)
        return (product){*choose(r->latent.q_rank, &l->q_normed, &b->x[0]), dq, T, s->h, s->d_k};
    if (W == MHA_W_K)
        return (product){b->x[1], dk, T_k, s->h_kv, s->d_k};
    if (W == MHA_W_V)
        return (product){b->x[2], dv, T_k, s->h_kv, s->d_v};
    if (W == MHA_W_O) {
        const mha_view heads = mha__as_matrix(&b->stages[MHA_STAGE_HEADS]);
        return (product){*choose(b->gates.data, &b->gated, &heads), b->d_output, T, s->h, s->d_v};
    }
    if (W == MHA_W_G)
        return (product){b->x[0], b->d_gates, T, s->h, b->d_gates.shape[1] / s->h};
    if (W == MHA_W_QA)
        return (product){b->x[0], l->d_q, T, 1, l->d_q.shape[1]};
    if (W == MHA_W_KVA)
        return (product){b->x[1], l->d_kv, T_k, 1, l->d_kv.shape[1]};
    return (product){l->kv_normed, l->d_wide, T_k, s->h, s->d_k - r->latent.d_r + s->d_v};
}

/* The product whose matrix or bias a gradient is that of; false: it is no such gradient. */
static bool find_product(const mha__wrong_gradient *x, product *p, bool *is_bias)
{
    if (x->gradient < MHA_D_WEIGHTS)
        return false;
    const mha_weight w = (mha_weight)(x->gradient - MHA_D_WEIGHTS);
    const mha_weight_info *info = mha_weight_at(w);
    *is_bias = info->kind == MHA_WEIGHT_BIAS && mha__bias_of(info->of) == w;
    if (!*is_bias && info->kind != MHA_WEIGHT_MATRIX)
        return false;
    const mha_weight W = *is_bias ? info->of : w;
    if (!x->b->r->layer && W != MHA_W_Q && W != MHA_W_K && W != MHA_W_V)
        return false;
    *p = product_of(x->b, W);
    return p->dy.shape[0] > 0;
}

/* ---------------------------------------------------------------- sums over some rows */

/* Whether a row belongs to a part of the batch rows, or of the rows of each. */
static bool counts(const product *p, const mha__mutation *m, size_t row)
{
    return m->axis == MHA__B ? mha__part_has((mha__axis_part)m->arg, 1, row / p->T, p->dy.shape[0] / p->T)
                             : mha__part_has((mha__axis_part)m->arg, (size_t)m->step, row % p->T, p->T);
}

/* ---------------------------------------------------------------- other rows of x or of dy */

/* Rows count in a part; x is another matrix; or it, or dy, is read by an index map. */
enum { IN_PART, X_BY_MAP, DY_BY_MAP, X_OF_QUERIES, X_OF_KEYS, X_OF_VALUES,
       X_UNNORMALISED, /* a latent before its norm, */
       X_UNWEIGHTED,   /* or after it, without its weight */
       X_UNGATED };

static bool take_others(const mha__wrong_gradient *x, mha_weight W, int how, product *p)
{
    const mha__backward *b = x->b;
    const mha__latent_rows *l = &b->latents;
    const mha_view heads = b->r->layer ? mha__as_matrix(&b->stages[MHA_STAGE_HEADS]) : (mha_view){0},
                   c = l->kv.data ? mha_view_slice(&l->kv, 1, 0, b->r->latent.kv_rank) : (mha_view){0};
    const mha_view *other = &p->x;
    switch (how) {
    case X_OF_QUERIES:
    case X_OF_KEYS:
    case X_OF_VALUES: other = &b->x[how - X_OF_QUERIES]; break;
    case X_UNNORMALISED: other = W == MHA_W_KVB ? &c : W == MHA_W_Q && l->q.data ? &l->q : other; break;
    case X_UNGATED: other = W == MHA_W_O && b->gates.data ? &heads : other; break;
    case X_UNWEIGHTED: return W == MHA_W_KVB || (W == MHA_W_Q && l->q.data);
    default: return true;
    }
    if (other->data == p->x.data || other->shape[0] != p->x.shape[0] || other->shape[1] != p->x.shape[1])
        return false;
    p->x = *other;
    return true;
}

/* A matrix whose rows are those of heads, or whole. */
static mha__extents extents_of(const product *p, const mha_view *of)
{
    const size_t n = of->shape[1], heads = n == p->heads * p->width ? p->heads : 1;
    return (mha__extents){{of->shape[0] / p->T, p->T, heads, n / heads}, MHA__BTHC, 1, 1};
}

/* Element c of row `row` as it is read. */
static double read(const product *p, const mha_view *of, const mha__mutation *m, size_t row, size_t c)
{
    const size_t n = of->shape[1];
    const mha__extents x = extents_of(p, of);
    const size_t at = mha__join(&x, x.order, mha__map_element(m, &x, mha__split(&x, x.order, row * n + c)));
    return mha__matrix_row(of, at / n)[at % n];
}

/* Whether the sum has another value: of a part not all rows. */
static bool has_others(const mha__wrong_gradient *x, const mha__mutation *m, bool is_bias, product *p)
{
    bool any = false;
    for (size_t row = 0; m->readers == IN_PART && row < p->dy.shape[0]; row++)
        any |= !counts(p, m, row);
    if (m->readers == IN_PART)
        return any;
    return !is_bias && take_others(x, (mha_weight)(x->gradient - MHA_D_WEIGHTS), m->readers, p) && p->T > 1 &&
           (m->arg != MHA__VIEW || p->heads * p->width == (m->readers == DY_BY_MAP ? p->dy : p->x).shape[1]);
}

bool mha__sum_of_rows(const mha__wrong_gradient *x, const mha__mutation *m)
{
    product p;
    bool is_bias;
    if (!find_product(x, &p, &is_bias) || !has_others(x, m, is_bias, &p))
        return false;
    const mha_view *weight = &x->b->r->weight[x->gradient == MHA_D_WEIGHTS + MHA_W_KVB ? MHA_KVA_NORM : MHA_QA_NORM];
    const size_t n = p.dy.shape[1], rows = is_bias ? 1 : p.x.shape[1], all = p.dy.shape[0] * rows;
    for (size_t e = 0; x->sizes && e < mha_view_elements(&x->from); e++) /* errors of a part are below those of all */
        x->to[e] = ((const double *)x->from.data)[e];
    for (size_t at = 0; !x->sizes && at < all; at++) {
        const size_t row = at / rows, k = at % rows;
        const double of_x = is_bias                   ? 1
                            : m->readers == X_BY_MAP ? read(&p, &p.x, m, row, k)
                                                     : mha__matrix_row(&p.x, row)[k] /
                                                           (m->readers == X_UNWEIGHTED ? mha_view_get(weight, &k) : 1);
        for (size_t c = 0; (m->readers != IN_PART || counts(&p, m, row)) && c < n; c++)
            x->to[k * n + c] +=
                of_x * (m->readers == DY_BY_MAP ? read(&p, &p.dy, m, row, c) : mha__matrix_row(&p.dy, row)[c]);
    }
    return true;
}

/* ---------------------------------------------------------------- in another order */

enum { TRANSPOSED,    /* written as (outputs, inputs) */
       BY_FEATURES,   /* what belongs to a head written as (width, heads) */
       OF_HEADS,      /* a part of them, and 0 in the others */
       OVER_HEADS,    /* of a bias: sums over the heads, the same in each */
       PARTS_FIRST    /* of W_KVB: columns of all keys before those of all values */ };

/* The index in [all k_n, all v] of a column of [k_n, v], head by head. */
static size_t part_at(const mha__backward *b, size_t at)
{
    const size_t d_v = b->r->plan.d_v, d_n = b->r->plan.d_k - b->r->latent.d_r, keys = b->r->plan.h * d_n,
                 value = at - keys;
    return at < keys ? at / d_n * (d_n + d_v) + at % d_n : value / d_v * (d_n + d_v) + d_n + value % d_v;
}

static bool reorder(const mha__wrong_gradient *x, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    const int how = m->op;
    product p;
    bool is_bias;
    if (!find_product(x, &p, &is_bias))
        return false;
    const mha_weight w = (mha_weight)(x->gradient - MHA_D_WEIGHTS);
    const size_t all = mha_view_elements(&x->from), n = is_bias ? all : x->from.shape[1];
    const bool by_rows = w == MHA_W_O, by_heads = how == BY_FEATURES || how == OVER_HEADS || how == OF_HEADS;
    const double *from = x->from.data;
    if ((how == PARTS_FIRST && w != MHA_W_KVB) || (how == TRANSPOSED && is_bias) || (how == OVER_HEADS && !is_bias) ||
        (by_heads && (by_rows ? x->from.shape[0] : n) != p.heads * p.width))
        return false;
    for (size_t e = 0; e < all; e++) {
        const size_t r = e / n, c = e % n, at = by_rows ? r : c,
                     moved = how == PARTS_FIRST ? part_at(x->b, at) : at % p.heads * p.width + at / p.heads;
        if (how == OVER_HEADS)
            for (size_t i = 0; i < p.heads; i++)
                x->to[e] += from[i * p.width + c % p.width];
        else if (how != OF_HEADS || mha__part_has((mha__axis_part)m->arg, 1, at / p.width, p.heads))
            x->to[e] = how == TRANSPOSED      ? from[e % (all / n) * n + e / (all / n)]
                       : how == OF_HEADS      ? from[e]
                       : by_rows              ? from[moved * n + c]
                                              : from[r * n + moved];
    }
    return true;
}

/* clang-format off */
#define SUM_OF(name, what, ...) \
    MHA__ROW("parameter-of-" name, "the gradients of matrices and biases that are wrong are " what, INPUTS, 0, \
        OUT_SUMS, __VA_ARGS__)
#define SUM(name, what, ...) SUM_OF(name, "sums over " what, __VA_ARGS__)
#define BLOCKS(B) \
    SUM("first-block-" #B, "the first block of " #B " rows of each batch row", MHA__BY(IN_FIRST_BLOCK, T, B)), \
    SUM("last-block-" #B, "the last block of " #B " rows of each batch row", MHA__BY(IN_LAST_BLOCK, T, B))
#define OTHERS(name, what, ...) SUM_OF(name, "made of x^T dy " what, .readers = __VA_ARGS__)
#define ORDER(name, what, ...) \
    {{"parameter-" name, "the gradients of matrices and biases that are wrong are " what, false}, NULL, \
        MHA__BACKWARD_INPUTS, NULL, reorder, 0, .mutation = {.op = __VA_ARGS__}}

static const mha__gradient_bug rows[] = {
    SUM("first-batch-row", "the first batch row alone", MHA__BY(THE_FIRST, B, 0)),
    SUM("last-batch-row", "the last batch row alone", MHA__BY(THE_LAST, B, 0)),
    SUM("first-row", "the first row of each batch row alone", MHA__BY(THE_FIRST, T, 0)),
    SUM("last-row", "the last row of each batch row alone", MHA__BY(THE_LAST, T, 0)),
    SUM("all-but-last-row", "all rows but the last one of each batch row", MHA__BY(BUT_LAST, T, 0)),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    OTHERS("next-row", "with x of the next row", X_BY_MAP, MHA__NEXT(T)),
    OTHERS("previous-row", "with x of the row before", X_BY_MAP, MHA__PREVIOUS(T)),
    OTHERS("next-batch-row", "with x of the next batch row", X_BY_MAP, MHA__NEXT(B)),
    OTHERS("first-row-of-x", "with x of the first row", X_BY_MAP, MHA__BY(FIRST, T, 0)),
    OTHERS("first-batch-row-of-x", "with x of the first batch row", X_BY_MAP, MHA__BY(FIRST, B, 0)),
    OTHERS("next-row-of-dy", "with dy of the next row", DY_BY_MAP, MHA__NEXT(T)),
    OTHERS("previous-row-of-dy", "with dy of the row before", DY_BY_MAP, MHA__PREVIOUS(T)),
    OTHERS("next-head-of-dy", "with dy of the next head", DY_BY_MAP, MHA__NEXT(H)),
    OTHERS("previous-head-of-dy", "with dy of the head before", DY_BY_MAP, MHA__PREVIOUS(H)),
    OTHERS("first-batch-row-of-dy", "with dy of the first batch row", DY_BY_MAP, MHA__BY(FIRST, B, 0)),
    OTHERS("queries", "with the input of the queries for x", X_OF_QUERIES),
    OTHERS("keys", "with the input of the keys for x", X_OF_KEYS),
    OTHERS("values", "with the input of the values for x", X_OF_VALUES),
    OTHERS("unnormalised", "with latents before their norm for x", X_UNNORMALISED),
    OTHERS("unweighted", "with latents without the weight of their norm for x", X_UNWEIGHTED),
    OTHERS("ungated", "with heads before their gate for x", X_UNGATED),
    OTHERS("heads-first", "with x that is (heads, T, width) and is read as (T, heads, width)",
           X_BY_MAP, MHA__READ_AS(BTHC, BHTC)),
    OTHERS("dy-heads-first", "with dy that is (heads, T, width) and is read as (T, heads, width)",
           DY_BY_MAP, MHA__READ_AS(BTHC, BHTC)),
    ORDER("transposed", "written as (outputs, inputs) and read as (inputs, outputs)", TRANSPOSED),
    ORDER("by-features", "written as (width, heads) and read as (heads, width)", BY_FEATURES),
    ORDER("parts-first", "columns of W_KVB of all keys before those of all values, and read head by head", PARTS_FIRST),
    ORDER("of-first-head", "0 behind the first head", OF_HEADS, MHA__BY(THE_FIRST, H, 0)),
    ORDER("of-last-head", "0 but in the last head", OF_HEADS, MHA__BY(THE_LAST, H, 0)),
    ORDER("over-heads", "sums over the heads, too, the same in each", OVER_HEADS),
};
MHA__GRADIENT_BUGS(parameters)
/* clang-format on */
