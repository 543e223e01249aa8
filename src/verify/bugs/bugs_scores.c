/* Bugs between q, k, v and the heads: numbers to try, predicates of a case for lists/scores.h. */
#include <math.h>

#include "verify/bugs/needs.h"

/* clang-format off */
/* ---------------------------------------------------------------- scores */

PREDICATE(has_groups, attends(c) && c->H_kv > 1 && c->H_kv < c->H)

static double per_root(size_t n)
{
    return 1 / sqrt((double)n);
}

TEST(is_other_scale, (const mha_case *c, const mha__program *k, double scale), attends(c) && !(fabs(k->s.softmax.scale -
    scale) <= 1e-9 * fabs(scale)))

/* ---------------------------------------------------------------- visibility */

/* A side of the window with a limit, or open. */
#define LIMIT(side, keys) visible->has_window_##side = true; visible->window_##side = keys
#define OPEN(side) visible->has_window_##side = false; visible->window_##side = 0

static mha_mask_kind flipped(mha_mask_kind kind)
{
    return kind == MHA_MASK_KEEPS ? MHA_MASK_HIDES : MHA_MASK_KEEPS;
}

/* True if a bug can exchange the rows and columns of the mask: it has as many queries as keys, or one for all. */
static bool is_turnable(const mha_case *c)
{
    const mha_view *v = &c->semantics.visible.mask.values;
    return c->T_q == keys_of(c) && v->rank >= 2 &&
           (has_mask_axis(c, 1) ? v->shape[v->rank - 1] == c->T_q : has_mask_axis(c, 2));
}

/* Exchanges the last two axes: queries and keys. */
static void transpose(mha_view *v)
{
    *v = mha__view_swap(v, v->rank - 2, v->rank - 1);
}

/* True if queries may see no key. */
static bool may_be_empty(const mha_case *c)
{
    const mha_place *p = &c->semantics.place;
    const int64_t *keys = p->cu_seqlens_k ? p->cu_seqlens_k : p->cu_seqlens_q;
    bool empty = c->P + c->T_k == 0;
    for (size_t b = 0; b < p->n_sequences; b++)
        empty |= keys[b] == keys[b + 1];
    return empty || hides_keys(c);
}

/* Rules of the case that hide whole keys from a softmax: bits. */
static int hiding(const mha_case *c)
{
    const mha_visible *s = &c->semantics.visible;
    if (!softens(c)) /* weights that do not depend on each other can be hidden before and after */
        return 0;
    return (is_boolean(&s->mask) ? MHA__RULE_MASK : 0) | (s->causal ? MHA__RULE_CAUSAL : 0) |
           (is_windowed(c) ? MHA__RULE_WINDOW : 0) |
           (is_boolean(&s->key_padding) && !s->has_padding_fill ? MHA__RULE_PADDING : 0) |
           (s->kv_lengths ? MHA__RULE_LENGTHS : 0);
}

TEST(is_several, (int bits), (bits & (bits - 1)) != 0)

/* True if cached keys and values are in pages that a table can name in another order. */
PREDICATE_OF_BOTH(has_pages, c->P > 0 && !mha__has(k, AT_KEYS, OP_DO) && c->tensors[CASE_PAGE_KEYS].data &&
    c->tensors[CASE_PAGE_VALUES].data)

/* True if a bug can exchange blocks of queries and of keys. */
static bool has_square_blocks(const mha_case *c)
{
    const mha_pattern *p = &c->semantics.visible.pattern;
    const mha_view *v = &p->blocks.values;
    return p->blocks.kind && p->block_queries == p->block_keys && c->T_q == c->P + c->T_k && v->rank >= 2 &&
           v->shape[v->rank - 1] == v->shape[v->rank - 2];
}

/* True if the segments of a batch row end at other rows than those of the first one. */
static bool end_elsewhere(const mha_view *v)
{
    bool elsewhere = false;
    for (size_t e = 1; v->data && v->rank == 2 && e < v->shape[0] * v->shape[1]; e++) {
        const size_t b = e / v->shape[1], t = e % v->shape[1], before = t > 0 ? t - 1 : 0;
        const double own[] = {mha_view_get(v, (const size_t[]){b, t}), mha_view_get(v, (const size_t[]){b, before})},
                     first[] = {mha_view_get(v, (const size_t[]){0, t}), mha_view_get(v, (const size_t[]){0, before})};
        elsewhere |= (own[0] == own[1]) != (first[0] == first[1]);
    }
    return elsewhere;
}

/* True if queries and keys of a batch row have the same positions. */
PREDICATE(are_as_many, attends(c) && c->P == 0 && c->T_q == c->T_k && c->semantics.place.n_sequences == 0)

/* True if no mask or term changes the scores of single keys: a key of zeros has score 0. */
TEST(adds_nothing, (const mha_case *c), !c->semantics.visible.mask.kind && !c->semantics.visible.key_padding.kind &&
    !mha__has_pattern(c) && !c->semantics.added.alibi_slopes && !c->semantics.added.bias.rule &&
    !c->semantics.added.relative.rule && c->semantics.place.n_sequences == 0)

/* True if a softmax has no terms but keys. */
PREDICATE(adds_no_term, softens(c) && !has_weight(c, MHA_SINKS) && !c->semantics.softmax.softmax_plus_one)

#define FILL(how, by) PUT(Z, FILL, .arg = MHA__FILL_##how, .number = by)
#define FIRST_OF(Site, Axis) PUT(Site, FROM, .arg = MHA__FIRST, .axis = MHA__##Axis, .readers = 1)
static const double lowest = -3.4028234663852886e38; /* the lowest float32 */

PREDICATE_OF_PROGRAM(has_rule, k->s.added.bias.rule != MHA_BIAS_RULE_NONE)
TEST(has_grid_table, (const mha__program *k),
    k->s.added.bias.rule == MHA_BIAS_RULE_GRID && k->s.added.bias.height != k->s.added.bias.width)
PREDICATE_OF_PROGRAM(has_buckets, k->s.added.bias.rule == MHA_BIAS_RULE_BUCKETS)

/* True if as many buckets as the case has can serve the other number of directions, too. */
static bool serves_other_ways(const mha_case *c, const mha__program *k)
{
    const size_t n = c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0], most = c->semantics.added.bias.max_distance;
    return has_buckets(k) && n >= 4 && n / 2 < (most ? most : 128);
}

PREDICATE_OF_PROGRAM(has_terms, k->s.added.relative.rule != MHA_RELATIVE_NONE)
TEST(has_table, (const mha_case *c, const mha__program *k, mha_weight table), has_terms(k) &&
    c->weights[CASE_RECORDED][table].data)
PREDICATE_OF_BOTH(has_both, has_table(c, k, MHA_RELATIVE_K) && has_table(c, k, MHA_RELATIVE_Q))

/* True if terms have the scale of q.k, which is given. */
PREDICATE_OF_BOTH(shares_scale, has_terms(k) && c->semantics.softmax.scale != 0 && k->s.added.relative.k_scale == 0 &&
    k->s.added.relative.q_scale == 0)

static bool has_columns(const mha_case *c, const mha__program *k)
{
    for (int w = MHA_RELATIVE_K; has_terms(k) && c->H > 1 && w <= MHA_RELATIVE_Q; w++)
        if (has_table(c, k, (mha_weight)w))
            return c->weights[CASE_RECORDED][w].shape[1] != c->d_k;
    return false;
}

/* Powers of two, from 32768 down. */
TEST(any_distance, (const mha_case *c, size_t index, double *x), ((void)c, *x = ldexp(1, 15 - (int)index), index <= 12))

/* All sizes up to 256, then powers of two and their neighbours. */
static double size_at(size_t index)
{
    const size_t all = 257;
    return index < all ? (double)index : ldexp(1, (int)((index - all) / 3) + 9) + (double)((index - all) % 3) - 1;
}

/* Sizes smaller than the number of keys. */
TEST(any_size, (const mha_case *c, size_t index, double *x), (*x = size_at(index)) < (double)keys_of(c))

/* All keys; then sizes up to the number of keys, or to the last position of queries. */
static bool any_chunk(const mha_case *c, size_t index, double *x)
{
    const double keys = (double)keys_of(c);
    double reach = keys;
    for (size_t b = 0; b < c->B; b++) {
        const int64_t *offset = c->semantics.place.position_offset;
        const double first = (offset ? (double)offset[b] : (double)c->P) - (double)c->semantics.place.key_offset;
        reach = fmax(reach, first + (double)c->T_q);
    }
    *x = index == 0 && keys < reach ? keys : size_at(index) == keys ? 0 : size_at(index); /* each once; 0: none */
    return *x < reach;
}

TEST(is_count, (double x), x >= 0 && x <= 0x1p31 && x == floor(x))

#define PARTS(name, what, how) LISTED(name, what "; keys of a part (negative: number of parts)", \
    adds_no_term(c) && is_size(*x), TILE(how), ANY(parts_of_keys))
#define RESCALED(name, what, how) \
    SIZED(name, what "; keys of a tile (negative: last first)", softens(c), TILE(how), ANY(direction))
#define TILE(how) PUT(TILE, FN, .arg = MHA__##how, .step = (long long)*x)
#define COUNT_TWICE(n) PUT(COUNT, TIMES, .step = (long long)*x, .number = n)
#define LOSE(what) PUT(P, ZERO, .arg = MHA__LOSES_##what, .number = *x)

/* Numbers of keys, fewer than in the case: up to 16, powers of two, and those of up to 16 parts. */
static bool any_part(const mha_case *c, size_t index, double *x)
{
    enum { FEW = 16, POWERS = 26 };
    const double keys = (double)keys_of(c), parts = (double)index - FEW - POWERS + 2;
    if (index < FEW)
        *x = (double)index + 1;
    else if (index < FEW + POWERS)
        *x = ldexp(FEW, (int)index - FEW + 1);
    else
        *x = ceil(keys / parts);
    const bool again =
        index >= FEW + POWERS && (*x <= FEW || *x == exp2(floor(log2(*x))) || *x == ceil(keys / (parts - 1)));
    if (index > 0 && (again || *x >= keys))
        *x = 0; /* is no size */
    return *x < keys && index < FEW + POWERS + FEW - 1;
}

/* Parts of several keys, as a part of one key has nothing to merge; then numbers of parts that do not divide them. */
static bool any_parts_of_keys(const mha_case *c, size_t index, double *x)
{
    enum { SIZES = 56 };
    const size_t keys = c->P + c->T_k, parts = index + 2 - SIZES;
    if (index < SIZES)
        return any_part(c, index + 1, x);
    *x = keys % parts && 2 * parts <= keys ? -(double)parts : 0;
    return parts <= 16;
}
/* 1, -1, 2, -2, ... as far as there are keys, and not beyond 32. */
TEST(any_column, (const mha_case *c, size_t index, double *x), index < 64 &&
    2 * fabs(*x = (index % 2 ? -(double)(index + 1) : (double)(index + 2)) / 2) < (double)keys_of(c))
#define QUERY_FROM(c) ((c)->semantics.place.position_offset ? *(c)->semantics.place.position_offset : (int64_t)(c)->P)
/* Sizes of tiles: a negative size takes the last tile first. */
TEST(any_direction, (const mha_case *c, size_t index, double *x), index < 64 &&
    fabs(*x = ldexp(index % 2 ? -2 : 2, (int)index / 2)) < (double)keys_of(c))

/* True if a number can be a count of keys. */
TEST(is_size, (double x), fabs(x) >= 1 && fabs(x) <= 0x1p31)

/* Key padding by numbers (B, S); 0 hides a key. */
static void keep(const mha_case *c, mha__program *k, const double *x)
{
    const size_t shape[] = {c->B, c->P + c->T_k};
    k->s.visible.key_padding = (mha_mask){MHA_MASK_KEEPS, mha_view_of(mha__unconst(x), MHA_F64, 2, shape)};
    k->s.visible.has_padding_fill = false;
    NUMS(PADDING, TAKE);
}

/* Counts keys another number of times, whatever lengths and padding hide. */
static void count_keys(mha__program *k, const double *x)
{
    k->s.visible.key_padding.kind = MHA_MASK_NONE;
    k->s.visible.kv_lengths = NULL;
    NUMS(COUNT, TAKE);
}

/* Numbers of features below the width of a head: powers of two, or the width less a small number. */
static bool any_width(const mha_case *c, size_t index, double *x)
{
    const double size = ldexp(1, (int)(index / 2));
    const double rest = (double)c->d_k - size;
    *x = index % 2 == 0 ? size : rest == exp2(floor(log2(rest))) ? 0 : rest; /* each once; 0: none */
    return size < (double)c->d_k;
}
/* clang-format on */

#define LIST mha__bugs_of_scores
#define LIST_FILE "verify/bugs/lists/scores.h"
#include "verify/bugs/lists/list.h"
