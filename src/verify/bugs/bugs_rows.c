/* Bugs of the rows of q, k and v, of norms and of a cache: numbers to try, predicates of a case for lists/rows.h. */
#include <math.h>

#include "attention/call/definition.h"
#include "verify/bugs/needs.h"
#include "verify/engine/case_inputs.h"

/* clang-format off */
/* ---------------------------------------------------------------- properties of a case */

PREDICATE(has_layer, c->kind == CASE_MHA)
TEST(is_square, (const mha_case *c, mha_weight w), c->weights[CASE_RECORDED][w].data &&
    c->weights[CASE_RECORDED][w].rank == 2 && c->weights[CASE_RECORDED][w].shape[0] ==
    c->weights[CASE_RECORDED][w].shape[1])

/* True if the matrices of all projections are square. */
PREDICATE(are_square, is_square(c, MHA_W_Q) && is_square(c, MHA_W_K) && is_square(c, MHA_W_V) && is_square(c, MHA_W_O))

/* True if a bug can exchange q, k and v: they have one width, and inputs of one shape. */
PREDICATE(is_packable, c->kind != CASE_ROPE && c->kv_rank == 0 && c->H == c->H_kv && c->d_k == c->d_v && c->E_q ==
    c->E_k && c->E_k == c->E_v && (has_layer(c) || c->T_q == c->T_k))

/* True if a bug can exchange k and v, or their weights. */
PREDICATE(exchanges_kv, (c->kind == CASE_SDPA || (has_layer(c) && c->kv_rank == 0 && c->E_k == c->E_v)) && c->d_k ==
    c->d_v)

TEST(is_among, (double x, double most), is_whole(x) && x >= 1 && x <= most)
/* True if keys have an input of their own, from whose place another can be read. */
PREDICATE(is_cross, has_layer(c) && c->kv_rank == 0 && c->q_rank == 0 && c->E_q == c->E_k && c->E_k == c->E_v &&
    c->semantics.place.n_sequences == 0 && c->tensors[CASE_KEY].data != c->tensors[CASE_QUERY].data)
static const unsigned char inputs_other[][2] = {{K + V, 0}, {V, 0}, {K, 0}, {V, 1}, {K, 2}}; /* sides; whose input */

/* True if heads of q, k and v can be in one packed tensor: they have one width, and inputs of one shape. */
PREDICATE(packs_heads, c->kind != CASE_ROPE && c->kv_rank == 0 && c->d_k == c->d_v && c->H > 1 &&
    (has_layer(c) ? c->E_q == c->E_k && c->E_k == c->E_v : c->T_q == c->T_k))

/* True if the tables still have a row for every position moved by `shift`. */
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

static int count_biases(const mha_case *c)
{
    int n = 0;
    for (int p = 0; p < PROJECTION_COUNT; p++)
        n += has_weight(c, mha__projection_b(p));
    return n;
}

static void drop_biases(const mha_case *c, mha__program *k)
{
    for (int p = 0; p < PROJECTION_COUNT; p++)
        if (has_weight(c, mha__projection_b(p)))
            mha__put(k, (mha__mutation){.site = (unsigned char)(AT_B_Q + p), .op = OP_ZERO});
}

/* Gives a layer the biases that its case lacks, and b_O in any case: b_V adds to it. */
static void give_biases(const mha_case *c, mha__program *k, const double *x)
{
    const size_t n[] = {c->H * c->d_k, c->H_kv * c->d_k, c->H_kv * c->d_v, 0};
    for (int p = 0; p < PROJECTION_COUNT; x += n[p++])
        if (p == PROJECTION_O || !has_weight(c, mha__projection_b(p)))
            mha__put(k, (mha__mutation){.site = (unsigned char)(AT_B_Q + p), .op = OP_TAKE, .table = x});
}

/* Cached latents are read once, with the weights of the case. */
PREDICATE(has_own_rows, has_layer(c) && !(c->absorbed && c->P > 0))
PREDICATE(has_shared, c->kv_rank > 0 && c->d_rope > 0)

/* True if the sequences of a ragged batch can be taken for one, which then begins where the first does. */
TEST(can_join, (const mha_case *c), attends(c) && c->semantics.place.n_sequences > 1 && !c->semantics.visible.kv_lengths
    && !c->semantics.visible.mask.kind && !c->semantics.visible.key_padding.kind && !mha__has_pattern(c))

/* A head of two features has one pair, whatever the pairing. */
PREDICATE(has_pairs, c->d_k % 2 == 0 && c->d_k > 2)
#define LACK_BIAS(of) PUT(of, KEEP, .step = (long long)*x, ACROSS)
TEST(is_below, (double x, size_t n), n > 1 && x >= 0 && x < (double)n && x == floor(x))

PREDICATE(has_bias_qk, has_weight(c, MHA_B_Q) || has_weight(c, MHA_B_K))
/* True if the scale of the scores can miss b_Q: a norm takes the factor away again. */
PREDICATE_OF_BOTH(scales_bias_q, has_weight(c, MHA_B_Q) && !has_weight(c, MHA_Q_NORM) &&
    !c->semantics.qkv.norm.unweighted && attends(c) && k->s.softmax.scale != 0)

/* ---------------------------------------------------------------- rotation */

#define ORDER(q, k_, v) STEP(PROJ, TAKE, (q) | (k_) << 2 | (v) << 4)
#define FROM_END(which) PUT(POS_ROW, FROM, .arg = (which) == 1 ? MHA__FIRST : MHA__LAST, .axis = MHA__T)

/* Angles follow from the base, not from tables or frequencies. */
static void by_formula(mha__program *k)
{
    k->s.qkv.rope.frequencies.data = k->s.qkv.rope.cos_table.data = k->s.qkv.rope.sin_table.data = NULL;
}

TEST(has_positions, (const mha_case *c), c->P > 0 || c->semantics.place.position_offset ||
    c->semantics.place.has_key_offset || c->semantics.qkv.rope.q_positions.data)

/* True if there are axes that a bug can change: as many, with two sections of their own size. */
TEST(has_axes, (const mha_case *c, size_t least), has_rope(c) && c->origin.axes.axes >= least)

static bool has_uneven_axes(const mha_case *c)
{
    const mha_rope_axes *a = &c->origin.axes;
    bool uneven = false;
    for (size_t i = 0; i < a->axes; i++)
        uneven |= a->sections[i] != a->sections[a->axes - 1 - i];
    return has_axes(c, 2) && uneven;
}

/* True if frequencies can restart in each block: several axes, and frequencies that are computed, not given. */
TEST(has_free_blocks, (const mha_case *c), has_axes(c, 2) && !c->origin.frequencies.data && (c->origin.axes.kind ==
    MHA_ROPE_AXES_BLOCKS || c->origin.axes.kind == MHA_ROPE_AXES_REPEATED))

PREDICATE(takes_turns, has_axes(c, 2) && (c->origin.axes.kind == MHA_ROPE_AXES_BLOCKS || c->origin.axes.kind ==
    MHA_ROPE_AXES_INTERLEAVED))

TEST(is_other_base, (const mha_case *c, const mha__program *k, double base), has_rope(c) &&
    (c->semantics.qkv.rope.cos_table.data || c->semantics.qkv.rope.frequencies.data || k->s.qkv.rope.base != base))

/* ---------------------------------------------------------------- features that the case lacks, and numbers */

/* True if a case without rotation can rotate `dim` features. */
TEST(can_rotate, (const mha_case *c, size_t dim), !has_rope(c) && dim > 0 && dim % 2 == 0 && dim <= c->d_k)

#define ROTATE(how, features, by) rope->kind = MHA_ROPE_##how; rope->dim = features; rope->base = by

/* True if positions differ from batch row to batch row. */
TEST(differ_by_batch, (const mha_view *ids), ids->data && ids->shape[0] > 1)
PREDICATE(has_positions_by_batch, c->B > 1 && c->semantics.place.n_sequences == 0 &&
    c->semantics.qkv.rope.cos_table.rank != 3 &&
    (c->semantics.place.position_offset || differ_by_batch(&c->semantics.qkv.rope.q_positions)))

/* True if angles follow from positions: no table has a row for each token. */
PREDICATE(has_no_rows_of_tables, c->semantics.qkv.rope.cos_table.rank != 3)
/* Lengths of a table that is too short: 4, 5, 6 or 7 times a power of two. */
TEST(any_length, (const mha_case *c, size_t index, double *x),
    index < 120 && (*x = ldexp((double)(index % 4 + 4), (int)index / 4)) < (double)keys_of(c))

TEST(is_rotated, (double x), x >= 2 && x <= 0x1p31 && fmod(x, 2) == 0)

/* Two features, then eighths of a head. */
TEST(any_rotated, (const mha_case *c, size_t index, double *x),
    index < 8 && (*x = index == 0 ? 2 : (double)(index * c->d_k) / 8, true))

/* True if rows of q have one index in a batch row: no other sequence precedes them. */
PREDICATE(moves_q, attends(c) && c->semantics.place.n_sequences == 0)
/* True if those of k and v have one, too: none in a cache. */
PREDICATE(moves, moves_q(c) && c->P == 0)
/* True if they have one in a cache, too; rows computed from cached latents have none. */
PREDICATE(moves_rows, moves_q(c) && (c->P == 0 || c->kv_rank == 0))

/* Moves of rows of k or v: before norm and rotation, or among cached and new rows. */
#define LIES_AT .site = c->P > 0 ? AT_JOINED : AT_ROW, .op = OP_FROM, .readers = 1
#define LIE(of, map, by) \
    mha__put(k, (mha__mutation){LIES_AT, .sides = of, .arg = MHA__##map, .axis = MHA__T, .step = (long long)(by)})
#define LIE_TABLE(of, found) \
    mha__put(k, (mha__mutation){LIES_AT, .sides = of, .arg = MHA__TABLE, .axis = MHA__T, .table = found})
#define MEMORY(of) PUT(ROW, FROM, .sides = of, .arg = MHA__VIEW, .axis = MHA__H, \
    .written = *x == 2 ? MHA__BTHC : MHA__BHTC, \
    .read = *x == 1 ? MHA__BTHC : *x == 2 ? MHA__BHTC : MHA__BHCT, .readers = 1)

/* True if numbers name a row for each index of the keys. */
TEST(are_places, (const mha_case *c, const double *x), are_indices(x, c->B * keys_of(c), keys_of(c)))
TEST(is_row, (const mha_case *c, double x), is_whole(x) && x >= (c->P > 0 ? 2 : 1) && x < (double)keys_of(c))
TEST(is_order, (double x), x == 1 || x == 2 || x == 3)
/* Few moves: for the first query of a causal mask, which sees one key, 0 is as good as 1. */
TEST(any_few_queries, (const mha_case *c, size_t index, double *x), index < 8 &&
    any_move(c->T_q, index + c->semantics.visible.causal, x))
/* The first batch row for all, then distances of a shift. */
#define BATCHES(most) (c->B > 1 && index < c->B && index <= (most) && (*x = index == 0 ? -1 : (double)index, true))
/* Other bugs explain a single key. */
#define LATER_KEY (c->P > 0 ? 2 : 1)

/* True if numbers name a key/value head of a batch row for each of them. */
TEST(are_blocks, (const mha_case *c, const double *x), moves(c) && c->B > 1 && !has_weight(c, MHA_BIAS_K) &&
    !c->semantics.softmax.zero_row && are_indices(x, c->B * c->H_kv, c->B * c->H_kv))
#define MOVE_BLOCKS(of) PUT(JOINED, OVER, .sides = of, .axis = MHA__H, .table = x, ACROSS)

/* ---------------------------------------------------------------- norms */

PREDICATE(has_q_norm, has_weight(c, MHA_Q_NORM) || c->semantics.qkv.norm.unweighted)
PREDICATE(has_k_norm, has_weight(c, MHA_K_NORM) || c->semantics.qkv.norm.unweighted)
PREDICATE(has_norm_weight, has_weight(c, MHA_Q_NORM) || has_weight(c, MHA_K_NORM))
PREDICATE(has_norm_bias, has_weight(c, MHA_Q_NORM_BIAS) || has_weight(c, MHA_K_NORM_BIAS))

/* True if a norm has weights of its own for each head. */
TEST(is_by_head, (const mha_view *weight), weight->data && weight->rank == 2)
PREDICATE(has_own_weights, is_by_head(&c->weights[CASE_RECORDED][MHA_Q_NORM]) ||
    is_by_head(&c->weights[CASE_RECORDED][MHA_K_NORM]))

/* True if a norm of q can have the weight of k, and the reverse. */
TEST(are_exchangeable, (const mha_view *q, const mha_view *k), q->data && k->data && q->rank == k->rank &&
    mha_view_elements(q) == mha_view_elements(k))
PREDICATE(exchanges_norms, are_exchangeable(&c->weights[CASE_RECORDED][MHA_Q_NORM],
    &c->weights[CASE_RECORDED][MHA_K_NORM]))

TEST(is_other_norm, (const mha_case *c, mha_norm_kind kind), has_norm(c) && c->semantics.qkv.norm.kind != kind)
TEST(is_other_eps, (const mha_case *c, const mha__program *k, double eps), has_norm(c) && k->s.qkv.norm_eps != eps)
PREDICATE(lacks_norm, attends(c) && !has_norm(c))

/* ---------------------------------------------------------------- scale by position */

PREDICATE(has_query_scale, c->semantics.qkv.query_scale.growth != 0)
PREDICATE_OF_PROGRAM(has_log_n, k->s.qkv.query_scale.log_n != 0)

/* ---------------------------------------------------------------- limits */

PREDICATE(clips, c->semantics.qkv.clip_qkv > 0)

PREDICATE(has_bias, has_bias_qk(c) || has_weight(c, MHA_B_V))

#define STEP_H(Site, Op, by) PUT(Site, Op, .step = (long long)(by), .sides = K + V, .readers = 1)
/* True if keys and values are cached as they are attended to, of as many rows in each batch row. */
PREDICATE(caches, c->P > 0 && c->kv_rank == 0 && c->semantics.place.n_sequences == 0)
PREDICATE(is_exchangeable, caches(c) && c->d_k == c->d_v)
/* True if cached keys were rotated by positions that have an angle. */
PREDICATE(turns, caches(c) && c->semantics.qkv.rope.kind != MHA_ROPE_NONE && c->semantics.qkv.rope.cos_table.rank != 3)
TEST(is_bits, (double x), is_whole(x) && fabs(x) > 2 && fabs(x) <= 24)

/* Powers of two, and all rows together. */
TEST(any_page, (const mha_case *c, size_t index, double *x),
    index == 0 ? (*x = (double)keys_of(c), true) : POWERS(1, keys_of(c)))
/* clang-format on */

#define LIST mha__bugs_of_rows
#define LIST_FILE "verify/bugs/lists/rows.h"
#include "verify/bugs/lists/list.h"
