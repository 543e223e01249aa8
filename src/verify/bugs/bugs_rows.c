/* Bugs of the rows of q, k and v: what lists/rows.h asks of a case, and the changes that take more than a row. */
#include <math.h>

#include "attention/call/resolved.h"
#include "verify/bugs/bugs.h"

/* clang-format off */
/* ---------------------------------------------------------------- what a case has */

PREDICATE(has_layer, c->kind == CASE_MHA)

static bool is_square(const mha_case *c, mha_weight w)
{
    const mha_view *v = &c->weights[CASE_RECORDED][w];
    return v->data && v->rank == 2 && v->shape[0] == v->shape[1];
}

/* Whether the matrices of all projections are square. */
PREDICATE(are_square, is_square(c, MHA_W_Q) && is_square(c, MHA_W_K) && is_square(c, MHA_W_V) && is_square(c, MHA_W_O))

/* Whether q, k and v can be buggy for each other: they have one width, and inputs of one shape. */
static bool is_packable(const mha_case *c)
{
    bool same = c->kind != CASE_ROPE && c->kv_rank == 0;
    same = same && c->H == c->H_kv && c->d_k == c->d_v && c->E_q == c->E_k && c->E_k == c->E_v;
    return same && (has_layer(c) || c->T_q == c->T_k);
}

/* Whether k and v, or their weights, can be buggy for each other. */
PREDICATE(exchanges_kv, (c->kind == CASE_SDPA || (has_layer(c) && c->kv_rank == 0 && c->E_k == c->E_v)) && c->d_k ==
    c->d_v)

/* Whether heads of q, k and v could lie in one packed tensor: they have one width, and inputs of one shape. */
static bool packs_heads(const mha_case *c)
{
    const bool alike = has_layer(c) ? c->E_q == c->E_k && c->E_k == c->E_v : c->T_q == c->T_k;
    return c->kind != CASE_ROPE && c->kv_rank == 0 && c->d_k == c->d_v && alike && c->H > 1;
}

/* Whether the tables still have a row for every position moved by `shift`. */
static bool tables_reach(const mha_case *c, int64_t shift)
{
    const mha_rope *r = &c->semantics.qkv.rope;
    if (!r->cos_table.data)
        return true;
    const mha_view *ids = &r->q_positions;
    if (r->cos_table.rank != 2)
        return false;
    int64_t rows = (int64_t)r->cos_table.shape[0], most = (int64_t)(c->P + (c->T_q > c->T_k ? c->T_q : c->T_k)) - 1;
    for (size_t i = 0; ids->data && i < mha_view_elements(ids); i++) {
        int64_t at = ((const int64_t *)ids->data)[i];
        if (at + shift < 0 || at + shift >= rows)
            return false;
    }
    return ids->data || most + shift < rows;
}

/* ---------------------------------------------------------------- projections, splitting into heads */

static void transpose_all(mha__knobs *k)
{
    for (int p = 0; p < PROJECTION_COUNT; p++)
        k->transposed[p] = 1;
}

/* Takes the projections at these places for those of q, k and v. */
static void take_order(mha__knobs *knobs, int q, int k, int v)
{
    knobs->source[0] = q;
    knobs->source[1] = k;
    knobs->source[2] = v;
}

static const mha_weight biases[PROJECTION_COUNT] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};

static int count_biases(const mha_case *c)
{
    int n = 0;
    for (int p = 0; p < PROJECTION_COUNT; p++)
        n += has_weight(c, biases[p]);
    return n;
}

static void drop_biases(const mha_case *c, mha__knobs *k)
{
    for (int p = 0; p < PROJECTION_COUNT; p++)
        k->no_bias[p] |= has_weight(c, biases[p]);
}

/* Cached latents are read once, with the weights of the case. */
PREDICATE(has_own_rows, has_layer(c) && !(c->absorbed && c->P > 0))

static int latent_of(const mha_case *c, int latent)
{
    return c->kv_rank ? latent : LATENT_RIGHT;
}

PREDICATE(has_shared, c->kv_rank > 0 && c->d_rope > 0)

/* Whether the sequences of a ragged batch can be taken for one, which then begins where the first does. */
static bool can_join(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return attends(c) && s->place.n_sequences > 1 && !s->visible.kv_lengths && !s->visible.mask.kind &&
           !s->visible.key_padding.kind && !mha__case_has_pattern(c);
}

/* A head of two features has one pair, whatever the pairing. */
PREDICATE(has_pairs, c->d_k % 2 == 0 && c->d_k > 2)
PREDICATE(has_bias_qk, has_weight(c, MHA_B_Q) || has_weight(c, MHA_B_K))
/* Whether the scale of the scores can miss b_Q: a norm takes the factor away again. */
PREDICATE_OF_BOTH(scales_bias_q, has_weight(c, MHA_B_Q) && !has_weight(c, MHA_Q_NORM) &&
    !c->semantics.qkv.norm.unweighted && attends(c) && k->s.softmax.scale != 0)

/* ---------------------------------------------------------------- rotation */

static mha_rope_kind other_pairing(mha_rope_kind kind)
{
    return kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
}

static bool has_positions(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return c->P > 0 || s->place.position_offset || s->place.has_key_offset || s->qkv.rope.q_positions.data;
}

/* Whether there are axes that a bug can change: as many, with two sections of their own size. */
static bool has_axes(const mha_case *c, size_t least)
{
    return has_rope(c) && c->origin.axes.axes >= least;
}

static bool has_uneven_axes(const mha_case *c)
{
    const mha_rope_axes *a = &c->origin.axes;
    bool uneven = false;
    for (size_t i = 0; i < a->axes; i++)
        uneven |= a->sections[i] != a->sections[a->axes - 1 - i];
    return has_axes(c, 2) && uneven;
}

/* Whether frequencies can restart in each block: several axes, and frequencies that are computed, not given. */
static bool has_free_blocks(const mha_case *c)
{
    const mha_rope_origin *o = &c->origin;
    return has_axes(c, 2) && !o->frequencies.data &&
           (o->axes.kind == MHA_ROPE_AXES_BLOCKS || o->axes.kind == MHA_ROPE_AXES_REPEATED);
}

static bool takes_turns(const mha_case *c)
{
    const mha_rope_axes_kind kind = c->origin.axes.kind;
    return has_axes(c, 2) && (kind == MHA_ROPE_AXES_BLOCKS || kind == MHA_ROPE_AXES_INTERLEAVED);
}

/* Whether queries and keys of a text had the numbers of their rows. */
PREDICATE(counts_rows, c->semantics.place.n_sequences == 0 && !c->semantics.place.position_offset)

static bool is_other_base(const mha_case *c, const mha__knobs *k, double base)
{
    const mha_rope *r = &c->semantics.qkv.rope;
    return has_rope(c) && (r->cos_table.data || r->frequencies.data || k->s.qkv.rope.base != base);
}

/* ---------------------------------------------------------------- what the case does not have, or with a number */

/* Whether so many features can be rotated in a case that has no rotation. */
static bool can_rotate(const mha_case *c, size_t dim)
{
    return !has_rope(c) && dim > 0 && dim % 2 == 0 && dim <= c->d_k;
}

static void rotate(mha__knobs *k, mha_rope_kind kind, size_t dim, double base)
{
    k->s.qkv.rope.kind = kind;
    k->s.qkv.rope.dim = dim;
    k->s.qkv.rope.base = base;
}

/* Even numbers of features, fewer than a head has. */
NUMBERS(any_part, 2 * (double)(index + 1), *x < (double)c->d_k)

/* Whether positions differ from batch row to batch row. */
static bool has_positions_by_batch(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    const mha_view *ids = &s->qkv.rope.q_positions;
    return c->B > 1 && s->place.n_sequences == 0 && s->qkv.rope.cos_table.rank != 3 &&
           (s->place.position_offset || (ids->data && ids->shape[0] > 1));
}

/* Whether angles follow from positions: no table says them row by row. */
PREDICATE(has_no_rows_of_tables, c->semantics.qkv.rope.cos_table.rank != 3)

static bool is_among(double x, double most)
{
    return is_whole(x) && x >= 1 && x <= most;
}

NUMBERS(any_of_three, (double)index + 1, index < 3)
NUMBERS_OF(any_shift, any_move(2 * (c->P + c->T_k), index, x) && index < 64)
/* Fewer heads than there are: up to 8. */
NUMBERS(any_heads, (double)index + 1, index + 1 < c->H && index < 8)

/* How many positions a table that is too short has: powers of two, and so many quarters of one. */
static bool any_length(const mha_case *c, size_t index, double *x)
{
    *x = ldexp((double)(index % 4 + 4), (int)(index / 4)); /* 4, 5, 6, 7, 8, 10, 12, 14, 16, ... */
    return index < 120 && *x < (double)(c->P + c->T_k);
}

static bool is_rotated(double x)
{
    return x >= 2 && x <= 0x1p31 && fmod(x, 2) == 0;
}

/* Two features, then so many eighths of a head. */
NUMBERS(any_rotated, index == 0 ? 2 : (double)(index * c->d_k) / 8, index < 8)
/* clang-format on */

#define LIST mha__bugs_of_rows
#define LIST_FILE "verify/bugs/lists/rows.h"
#include "verify/bugs/lists/list.h"
