/* Changes without a name: what has no row in the lists, as operands, readings, factors and roundings. The sentence of
 * each is made of their words. */
#include "base/base.h"
#include "verify/bugs/needs.h"

/* clang-format off */
/* ---------------------------------------------------------------- conditions */

PREDICATE(is_read, attends(c) && c->semantics.place.n_sequences == 0 && !(c->P > 0 && c->kv_rank > 0))
PREDICATE(is_cached, is_read(c) && c->P > 0 && c->kv_rank == 0)
PREDICATE(is_masked, is_read(c) && c->semantics.visible.mask.kind)
PREDICATE(is_turned, is_read(c) && has_rope(c) && c->P == 0 && c->T_q == c->T_k)
/* True if rows are not multiplied as they are projected. */
PREDICATE(is_changed, is_read(c) && (has_rope(c) || has_norm(c) || c->P > 0 || c->semantics.qkv.clip_qkv > 0 ||
    c->semantics.qkv.query_scale.growth != 0 || c->semantics.qkv.query_scale.log_n != 0))
PREDICATE(is_added, is_masked(c) && c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE)
PREDICATE(is_sloped, is_read(c) && c->semantics.added.alibi_slopes)
PREDICATE(is_biased, is_read(c) && c->semantics.added.bias.rule != MHA_BIAS_RULE_NONE)
PREDICATE(is_causal, is_read(c) && c->semantics.visible.causal)
PREDICATE(is_softened, is_read(c) && softens(c))

/* ---------------------------------------------------------------- elements read in the place of others */

#define SIDES_BUT_NONE 0xfeu
#define SIDES_OF_KEYS (1u << K | 1u << V | 1u << (K + V))
#define NO_SIDE 1u

static const char *const of_sides[] = {"", "q", "k", "q and k", "v", "q and v", "k and v", "q, k and v"};
static const char *const steps[] = {"", "scores", "scores", "scores", "values", "scores and values",
    "scores and values", "scores and values"}; /* as products read them */
static const char *const units[] = {"batch row", "row", "head", "feature"}; /* of an axis */

/* What is read: a site, sets of sides and axes as bits, and the words for it. */
static const struct operand {
    unsigned char site, sides, axes;
    const char *step, *thing;
    bool (*applies)(const mha_case *c);
} operands[] = {
    {AT_JOINED, SIDES_BUT_NONE, 1 << MHA__T | 1 << MHA__H | 1 << MHA__C, NULL, "", is_read},
    {AT_ROW, SIDES_BUT_NONE, 1 << MHA__T | 1 << MHA__H | 1 << MHA__C, "projections", "", is_changed},
    {AT_ROW, SIDES_BUT_NONE, 1 << MHA__B, "projections", "", is_read},
    {AT_PAST, SIDES_OF_KEYS, 1 << MHA__B | 1 << MHA__T | 1 << MHA__H, "cache", "cached ", is_cached},
    {AT_MASK, NO_SIDE, 1 << MHA__B | 1 << MHA__T | 1 << MHA__H | 1 << MHA__C, "mask", "the mask", is_masked},
    {AT_POS_ROW, NO_SIDE, 1 << MHA__T, "rotation", "positions", is_turned},
};

/* How: the index map of whole tiles, or inside of each; `step`: of a map that has one, in such units. */
static const struct reading {
    unsigned char map;
    bool inside;
    signed char step;
    const char *says; /* of a tile, or of the unit of the axis */
} readings[] = {
    {MHA__SHIFTED, false, 0, "are 0 in a %s"},
    {MHA__BLOCK_BEFORE, false, 1, "read one %s late"},
    {MHA__SHIFT, false, -1, "read one %s late, around the ends"},
    {MHA__SHIFT, false, 1, "read one %s early, around the ends"},
    {MHA__SHIFTED, false, -1, "read one %s late, 0 at first"},
    {MHA__SHIFTED, false, 1, "read one %s early, 0 at last"},
    {MHA__FIRST, false, 0, "read the first %s each time"},
    {MHA__LAST, false, 0, "read the last %s each time"},
    {MHA__REVERSED, false, 0, "read by the %s from the last"},
    {MHA__PAIRS, false, 0, "read each %s in the place of its neighbour"},
    {MHA__FIRST, true, 0, "read the first of each %s each time"},
    {MHA__LAST, true, 0, "read the last of each %s each time"},
    {MHA__REVERSED, true, 0, "reversed in each %s"},
    {MHA__HALVES, true, 0, "read with the halves of each %s exchanged"},
    {MHA__TO_PAIRS, true, 0, "read from halves to pairs in each %s"},
    {MHA__TO_HALVES, true, 0, "read from pairs to halves in each %s"},
    {MHA__SHIFT, true, -1, "read one late in each %s, around its ends"},
    {MHA__SHIFT, true, 1, "read one early in each %s, around its ends"},
};
static const size_t tiles[] = {1, 2, 4, 8, 16, 32, 64, 128, 0 /* all */};
static const struct { unsigned char part; const char *says; } parts[] = {
    {MHA__ALL, ""}, {MHA__THE_LAST, ", the last alone"}, {MHA__THE_FIRST, ", the first alone"},
    {MHA__BUT_LAST, ", all but the last"}, {MHA__ODD, ", the odd ones alone"}, {MHA__EVEN, ", the even ones alone"},
};
enum { PARTS_OF_FORWARDS = 4 };

/* ---------------------------------------------------------------- roundings, factors, numbers of keys */

static const struct number {
    double number;
    const char *says; /* NULL: the number itself */
} bits[] = {{11, "float16"}, {8, "bfloat16"}, {MHA__E4M3_BITS, "float8 E4M3"}, {MHA__E5M2_BITS, "float8 E5M2"}},
  quantised[] = {{127, "8 bits"}, {7, "4 bits"}, {1, "2 bits"}, {448, "float8 E4M3"}},
  factors[] = {{-1, NULL}, {2, NULL}, {0.5, NULL}, {MHA__LOG2_E, "log2(e)"}, {MHA__LN_2, "ln 2"}, {0, NULL}},
  sizes[] = {{1, NULL}, {2, NULL}, {4, NULL}, {8, NULL}, {16, NULL}, {32, NULL}, {64, NULL}, {128, NULL}, {-1, NULL},
             {-2, NULL}, {-4, NULL}, {-8, NULL}, {-16, NULL}, {-32, NULL}, {-64, NULL}, {-128, NULL}};

#define LIST_OF(list) list, sizeof list / sizeof *list
enum { MOST_NUMBERS = 16 };
static const struct change {
    unsigned char site, op, sides;
    const char *says; /* %s: the sides; then the number */
    const struct number *list;
    size_t count;
    bool (*applies)(const mha_case *c);
} changes[] = {
    {AT_A, OP_BITS, SIDES_BUT_NONE, "%s rounded to %s before the products", LIST_OF(bits), is_read},
    {AT_S, OP_BITS, NO_SIDE, "scores%s rounded to %s", LIST_OF(bits), is_read},
    {AT_E, OP_BITS, NO_SIDE, "exponentials%s rounded to %s", LIST_OF(bits), is_softened},
    {AT_P, OP_BITS, NO_SIDE, "weights%s rounded to %s", LIST_OF(bits), is_read},
    {AT_PAST, OP_BITS, SIDES_OF_KEYS, "cached %s rounded to %s", LIST_OF(bits), is_cached},
    {AT_A, OP_QUANT, SIDES_BUT_NONE, "%s in %s, a scale for each row", LIST_OF(quantised), is_read},
    {AT_S, OP_TAKE, NO_SIDE, "scores%s times %s", LIST_OF(factors), is_read},
    {AT_P, OP_TIMES, NO_SIDE, "weights%s times %s", LIST_OF(factors), is_read},
    {AT_MASK, OP_TIMES, NO_SIDE, "mask%s times %s", LIST_OF(factors), is_added},
    {AT_ALIBI, OP_TIMES, NO_SIDE, "ALiBi%s times %s", LIST_OF(factors), is_sloped},
    {AT_TABLE, OP_TIMES, NO_SIDE, "position bias%s times %s", LIST_OF(factors), is_biased},
    {AT_PAST, OP_TIMES, SIDES_OF_KEYS, "cached %s times %s", LIST_OF(factors), is_cached},
    {AT_CAUSAL, OP_PLUS, NO_SIDE, "causal%s: j <= i + %s", LIST_OF(sizes), is_causal},
    {AT_KEYS, OP_LIMIT, NO_SIDE, "keys%s of the first tile of %s alone", sizes, MOST_NUMBERS / 2, is_read},
    {AT_KEYS, OP_KEEP, NO_SIDE, "keys%s of the last tile of %s alone", sizes, MOST_NUMBERS / 2, is_read},
    {AT_KEYS, OP_ZERO, NO_SIDE, "keys%s of the last, partial tile of %s dropped", sizes, MOST_NUMBERS / 2, is_read},
};
/* clang-format on */

/* ---------------------------------------------------------------- one reading */

enum {
    COUNT_OPERANDS = sizeof operands / sizeof *operands,
    COUNT_READINGS = sizeof readings / sizeof *readings,
    COUNT_TILES = sizeof tiles / sizeof *tiles,
    COUNT_CHANGES = sizeof changes / sizeof *changes,
    SIDES = 8,
    AXES = 4,
    COUNT_CHANGED = COUNT_CHANGES * SIDES * MOST_NUMBERS,
    COUNT_READ = (int)PARTS_OF_FORWARDS * COUNT_OPERANDS * SIDES * AXES * COUNT_TILES * COUNT_READINGS
};

size_t mha__unnamed_count(void)
{
    return COUNT_CHANGED + COUNT_READ;
}

size_t mha__unnamed_room(const mha_case *c)
{
    const size_t rows = c->P + (c->T_q > c->T_k ? c->T_q : c->T_k), features = c->d_k > c->d_v ? c->d_k : c->d_v;
    return c->B * (rows + 1) + features + c->H;
}

/* How many elements an axis has at a site; 0: not as many on all sides. */
static size_t extent_at(const mha_case *c, int site, unsigned sides, unsigned axis)
{
    const size_t keys = c->P + c->T_k, past = site == AT_JOINED ? keys : site == AT_PAST ? c->P : c->T_k;
    const size_t q[] = {c->B, c->T_q, c->H, c->d_k}, k[] = {c->B, past, c->H_kv, c->d_k},
                 v = axis == MHA__C ? c->d_v : k[axis];
    if (site == AT_MASK && axis == MHA__C)
        return keys;
    const size_t n = sides & Q || !sides ? q[axis] : sides & K ? k[axis] : v;
    return (sides & K && k[axis] != n) || (sides & V && v != n) ? 0 : n;
}

/* The element that a reading gives for element i of n; n: none, a zero. */
static size_t read_for(const struct reading *r, size_t tile, size_t i, size_t n)
{
    const size_t count = (n + tile - 1) / tile, at = i / tile, first = at * tile,
                 own = n - first < tile ? n - first : tile;
    const mha__mutation m = {.arg = r->map, .axis = MHA__T, .step = r->step || r->inside ? r->step : (long long)count};
    const mha__extents x = {.n = {1, r->inside ? own : count + (r->map == MHA__PAIRS && count % 2), 1, 1}};
    const size_t found = mha__map_element(&m, &x, (mha__element){{0, r->inside ? i - first : at, 0, 0}}).at[MHA__T];
    const size_t to = r->inside ? first + found : found * tile + i % tile;
    return to < n && (r->inside || found < count) ? to : r->map == MHA__SHIFTED ? n : i;
}

/* Writes what is read to `table`; false: nothing else than should be, or zeros where the site has none. */
static bool read_elements(const mha_case *c, const mha__mutation *m, const struct reading *r, int part, size_t tile,
                          size_t n, double *table)
{
    const bool by_batch = m->axis == MHA__T,
               takes_zeros = m->axis == MHA__T && (m->site == AT_ROW || m->site == AT_JOINED);
    bool moves = false;
    for (size_t i = 0; i < n; i++) {
        const bool changed = mha__part_has((mha__axis_part)part, 0, i / tile, (n + tile - 1) / tile);
        const size_t from = changed ? read_for(r, tile, i, n) : i;
        if (from == n && !takes_zeros)
            return false;
        moves |= from != i;
        for (size_t b = 0; b < (by_batch ? c->B : 1); b++)
            table[b * n + i] = (double)from;
    }
    return moves;
}

static bool apply_reading(const mha_case *c, size_t index, double *table, mha__program *p, char *text, size_t size)
{
    const struct reading *r = &readings[index % COUNT_READINGS];
    const size_t stated = tiles[index / COUNT_READINGS % COUNT_TILES];
    index /= COUNT_READINGS * COUNT_TILES;
    const unsigned axis = index % AXES, sides = index / AXES % SIDES;
    const struct operand *o = &operands[index / (AXES * SIDES) % COUNT_OPERANDS];
    const size_t part = index / (AXES * SIDES * COUNT_OPERANDS);
    if (!(o->sides >> sides & 1) || !(o->axes >> axis & 1) || !o->applies(c) ||
        (o->site == AT_ROW && axis != MHA__B && sides == V && c->P == 0)) /* as AT_JOINED */
        return false;
    if (part == 0 && r->map == MHA__SHIFTED && !r->step) /* nothing is left */
        return false;
    const size_t n = extent_at(c, o->site, sides, axis), tile = stated ? stated : n;
    const bool in_parts = axis == MHA__T || (axis == MHA__C && o->site == AT_MASK);
    if (n < 2 || tile > n || (r->inside ? tile < 2 : tile == n) || (part > 0 && (!in_parts || tile == n)))
        return false;
    const mha__mutation m = {.site = o->site,
                             .op = OP_FROM,
                             .sides = (unsigned char)sides,
                             .arg = MHA__TABLE,
                             .axis = (unsigned char)axis,
                             .readers = 1,
                             .table = table};
    if (!read_elements(c, &m, r, parts[part].part, tile, n, table))
        return false;
    mha__put(p, m);
    if (!text)
        return true;
    char unit[32], says[64];
    const char *one = o->site == AT_MASK && axis == MHA__C ? "column" : units[axis];
    mha__text_print(unit, sizeof unit, "tile of %zu", tile);
    mha__text_print(says, sizeof says, r->says, tile > 1 ? unit : one);
    mha__text_print(text, size, "%s: %ss of %s%s %s%s", o->step ? o->step : steps[sides], one, o->thing,
                    of_sides[sides], says, parts[part].says);
    return true;
}

size_t mha__reading_count(void)
{
    return sizeof parts / sizeof *parts * COUNT_TILES * COUNT_READINGS;
}

bool mha__reading(size_t index, size_t n, const char *unit, size_t *from, char *text, size_t size)
{
    const struct reading *r = &readings[index % COUNT_READINGS];
    const size_t stated = tiles[index / COUNT_READINGS % COUNT_TILES], tile = stated ? stated : n,
                 part = index / (COUNT_READINGS * COUNT_TILES);
    if (n < 2 || tile > n || (r->inside ? tile < 2 : tile == n) || (part > 0 && tile == n) ||
        (part == 0 && r->map == MHA__SHIFTED && !r->step))
        return false;
    bool moves = false;
    for (size_t i = 0; i < n; i++) {
        from[i] = mha__part_has((mha__axis_part)parts[part].part, 0, i / tile, (n + tile - 1) / tile)
                      ? read_for(r, tile, i, n)
                      : i;
        moves |= from[i] != i;
    }
    char of_tile[48], says[80];
    mha__text_print(of_tile, sizeof of_tile, tile > 1 ? "tile of %zu %ss" : "%zu", tile, unit);
    mha__text_print(says, sizeof says, r->says, tile > 1 ? of_tile : unit);
    mha__text_print(text, size, "%s%s", says, parts[part].says);
    return moves;
}

/* ---------------------------------------------------------------- one change */

static bool apply_change(const mha_case *c, size_t index, mha__program *p, char *text, size_t size)
{
    const struct change *x = &changes[index / (SIDES * MOST_NUMBERS)];
    const unsigned sides = index / MOST_NUMBERS % SIDES;
    if (index % MOST_NUMBERS >= x->count || !(x->sides >> sides & 1) || !x->applies(c))
        return false;
    const struct number *n = &x->list[index % MOST_NUMBERS];
    if (x->site == AT_KEYS && n->number >= (double)(c->P + c->T_k))
        return false;
    const long long step = x->op == OP_QUANT ? MHA__SPAN_ROW : (long long)n->number;
    const mha__mutation m = {
        .site = x->site, .op = x->op, .sides = (unsigned char)sides, .number = n->number, .step = step};
    if (x->site == AT_S && x->op == OP_TAKE)
        p->s.softmax.scale *= n->number;
    else
        mha__put(p, m);
    char said[32];
    mha__text_print(said, sizeof said, "%g", n->number);
    if (text)
        mha__text_print(text, size, x->says, of_sides[sides], n->says ? n->says : said);
    return true;
}

bool mha__unnamed_apply(const mha_case *c, size_t index, double *memory, mha__program *p, char *text, size_t size)
{
    return index < COUNT_CHANGED ? apply_change(c, index, p, text, size)
                                 : apply_reading(c, index - COUNT_CHANGED, memory, p, text, size);
}
