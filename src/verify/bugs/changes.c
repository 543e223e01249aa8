/* Unnamed changes, which have no row in the lists: tables of operands, readings, factors and roundings. Their words
 * make the sentence of a change. */
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
PREDICATE(has_sinks, is_softened(c) && has_weight(c, MHA_SINKS))
PREDICATE(is_chunked, is_read(c) && c->semantics.visible.chunk > 1)
PREDICATE(is_blocked, is_read(c) && c->semantics.visible.pattern.blocks.kind)
PREDICATE(is_placed, is_read(c) && has_rope(c) && c->semantics.qkv.rope.cos_table.rank != 3)
PREDICATE(is_padded, is_causal(c) && is_boolean(&c->semantics.visible.key_padding))
PREDICATE(is_left, is_read(c) && has_left(c))
PREDICATE(is_new, is_read(c) && c->P == 0)
PREDICATE(is_segmented, is_read(c) && c->semantics.visible.pattern.q_segments.data)
PREDICATE(is_packed, is_placed(c) && is_segmented(c) && is_new(c) && c->T_q == c->T_k)
PREDICATE(is_listed, is_read(c) && c->semantics.visible.pattern.key_lists.data)
PREDICATE(is_grouped, is_causal(c) && c->H > c->H_kv)
PREDICATE(is_scaled_by_log, is_read(c) && c->semantics.qkv.query_scale.log_n != 0)
PREDICATE(is_plus_one, is_softened(c) && c->semantics.softmax.softmax_plus_one)
PREDICATE(is_gated, is_read(c) && has_weight(c, MHA_W_G))
PREDICATE(is_in_window, is_read(c) && is_windowed(c))
PREDICATE(is_plain, is_softened(c) && c->semantics.softmax.softcap == 0)
PREDICATE(is_paired, is_new(c) && c->kind == CASE_SDPA && c->d_k == c->d_v && c->H_kv > 1)
PREDICATE(is_paged, is_read(c) && c->tensors[CASE_PAGE_TABLE].data)
PREDICATE(is_turned_whole, is_placed(c) && c->semantics.qkv.rope.kind == MHA_ROPE_HALF_SPLIT &&
    (c->semantics.qkv.rope.dim == 0 || c->semantics.qkv.rope.dim == c->d_k))
PREDICATE(is_ramped, is_read(c) && has_rope(c) && c->semantics.qkv.rope.frequencies.data)
PREDICATE(is_shifted, is_read(c) && c->kind == CASE_MHA && c->q_rank + c->kv_rank == 0)

/* ---------------------------------------------------------------- elements read in the place of others */

#define SIDES_BUT_NONE 0xfeu
#define SIDES_OF_KEYS (1u << K | 1u << V | 1u << (K + V))
#define SIDES_OF_SCORES (1u << Q | 1u << K | 1u << (Q + K))
#define NO_SIDE 1u

static const char *const of_sides[] = {"", "q", "k", "q and k", "v", "q and v", "k and v", "q, k and v"};
static const char *const steps[] = {"", "scores", "scores", "scores", "values", "scores and values",
    "scores and values", "scores and values"}; /* as products read them */
static const char *const units[] = {"batch row", "row", "head", "feature"}; /* of an axis */

/* An operand: a site, sets of sides and axes as bits, and the words for it. */
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
    {AT_SEGMENTS, SIDES_OF_SCORES, 1 << MHA__T, "visibility", "segments of ", is_segmented},
    {AT_SINK, NO_SIDE, 1 << MHA__H, "softmax", "the sinks", has_sinks},
    {AT_GATE, NO_SIDE, 1 << MHA__H, "gate", "the gates", is_gated},
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
    {MHA__BLOCK_BEFORE, false, -1, "read one %s early"},
    {MHA__GROUP, false, 0, "read by the number of their %s"},
    {MHA__HELD, false, 0, "begin earlier, to fill a %s"},
    {MHA__REPEATED, false, 2, "read, each second %s, that of two before"},
    {MHA__REPEATED, false, 3, "read, each third %s, that of three before"},
    {MHA__REPEATED, false, 4, "read, each fourth %s, that of four before"},
    {MHA__PITCH, false, 0, "begin one row too early for each %s before"},
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
static const size_t tiles[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 0 /* all */};
static const struct { unsigned char part; const char *says; } parts[] = {
    {MHA__ALL, ""}, {MHA__THE_LAST, ", the last alone"}, {MHA__THE_FIRST, ", the first alone"},
    {MHA__BUT_LAST, ", all but the last"}, {MHA__ODD, ", the odd ones alone"}, {MHA__EVEN, ", the even ones alone"},
};
enum { PARTS_OF_FORWARDS = 5, COUNT_RULES = 17 /* of tiled */ };

/* Two tiles, one read in place of the other, or exchanged; rows of batch rows. */
enum { ONE_FOR_OTHER, OTHER_FOR_ONE, EXCHANGED, FIRST_ROWS, LAST_ROWS, LAST_FEW /* 1 to 6 */, NEXT_ROWS, COUNT_SWAPS };
enum { MOST_TILES = 16, LEAST_SWAPPED = 8, COUNT_SWAPPED = 6 };

/* ---------------------------------------------------------------- roundings, factors, numbers of keys */

static const struct number {
    double number;
    const char *says; /* NULL: the number itself */
} bits[] = {{11, "float16"}, {8, "bfloat16"}, {MHA__E4M3_BITS, "float8 E4M3"}, {MHA__E5M2_BITS, "float8 E5M2"}},
  quantised[] = {{127, "8 bits"}, {-128, "8 bits, 128 as -128"}, {7, "4 bits"}, {1, "2 bits"}, {448, "float8 E4M3"}},
  factors[] = {{-1, NULL}, {2, NULL}, {0.5, NULL}, {MHA__LOG2_E, "log2(e)"}, {MHA__LN_2, "ln 2"}, {0, NULL}},
  once[] = {{1, NULL}}, blocks[] = {{2, NULL}, {4, NULL}, {8, NULL}, {16, NULL}, {32, NULL}},
  ends[] = {{0, "the slow ones"}, {1, "the fast ones"}}, halves[] = {{0.5, NULL}, {2, NULL}},
  others[] = {{0, "q"}, {1, "k"}, {2, "v"}}, lost[] = {{1, NULL}, {2, NULL}, {3, NULL}, {4, NULL}},
  shifts[] = {{1, NULL}, {-1, NULL}, {2, NULL}, {-2, NULL}},
  spans[] = {{4, NULL}, {8, NULL}, {16, NULL}, {24, NULL}, {32, NULL}, {48, NULL}, {64, NULL}, {96, NULL},
             {128, NULL}, {256, NULL}, {512, NULL}, {1024, NULL}, {2048, NULL}, {4096, NULL}},
  pitches[] = {{8, NULL}, {16, NULL}, {32, NULL}, {64, NULL}, {128, NULL}, /* rounded up to it */
               {-1, NULL}, {-2, NULL}, {0, NULL}};                         /* by so many fewer, 0: as the other rows */

/* Another size in the strides of memory. A number of features is rounded up or is fewer, as a pitch. */
static const struct size {
    unsigned char axis; /* MHA__B: of fused tensors */
    const struct number *list;
    size_t count;
} sizes[] = {{MHA__H, NULL, 1}, {MHA__T, NULL, 1}, {MHA__C, pitches, sizeof pitches / sizeof *pitches},
           {MHA__B, NULL, 3}};
enum { COUNT_SIZES = 4, MOST_SIZES = 8, MOST_FUSED = 3, COUNT_OF_STRIDES = 8, ORDERS = 3 };

#define LIST_OF(from) .list = from, .count = sizeof from / sizeof *from
enum { MOST_NUMBERS = 16 };
static const struct change {
    unsigned char site, op, sides;
    const char *says; /* %s: the sides; then the number */
    const struct number *list;
    size_t count;
    bool (*applies)(const mha_case *c);
    unsigned char arg, part, read, written;
} changes[] = {
    {AT_A, OP_BITS, SIDES_BUT_NONE, "%s rounded to %s before the products", LIST_OF(bits), is_read},
    {AT_E, OP_BITS, NO_SIDE, "exponentials%s rounded to %s", LIST_OF(bits), is_softened},
    {AT_PAST, OP_BITS, SIDES_OF_KEYS, "cached %s rounded to %s", LIST_OF(bits), is_cached},
    {AT_A, OP_QUANT, SIDES_BUT_NONE, "%s in %s, a scale for each row", LIST_OF(quantised), is_read},
    {AT_S, OP_TAKE, NO_SIDE, "scores%s times %s", LIST_OF(factors), is_read},
    {AT_P, OP_TIMES, NO_SIDE, "weights%s times %s", LIST_OF(factors), is_read},
    {AT_MASK, OP_TIMES, NO_SIDE, "mask%s times %s", LIST_OF(factors), is_added},
    {AT_ALIBI, OP_TIMES, NO_SIDE, "ALiBi%s times %s", LIST_OF(factors), is_sloped},
    {AT_TABLE, OP_TIMES, NO_SIDE, "position bias%s times %s", LIST_OF(factors), is_biased},
    {AT_PAST, OP_TIMES, SIDES_OF_KEYS, "cached %s times %s", LIST_OF(factors), is_cached},
    {AT_KEYS, OP_OVER, NO_SIDE, "block mask: blocks%s of %s queries", LIST_OF(spans), is_blocked, .part = MHA__T},
    {AT_KEYS, OP_OVER, NO_SIDE, "block mask: blocks%s of %s keys", LIST_OF(spans), is_blocked, .part = MHA__C},
    {AT_CAUSAL, OP_OVER, SIDES_OF_SCORES, "causal: rows of %s counted from 0 in each tile of %s",
     LIST_OF(spans), is_causal},
    {AT_CHUNK, OP_PLUS, 1 << Q, "chunks: those of %s begin %s positions earlier", LIST_OF(shifts), is_chunked},
    {AT_PADDING, OP_PLUS, NO_SIDE, "causal: keys that padding hides at the left%s taken off positions of queries",
     LIST_OF(once), is_padded},
    {AT_POSITION, OP_FROM, SIDES_OF_SCORES, "positions of %s counted from 0 in each tile of %s",
     LIST_OF(spans), is_placed, .arg = MHA__FIRST_BLOCK},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: values%s not rescaled when the maximum grows, tiles of %s keys", LIST_OF(spans),
     is_softened, .arg = MHA__VALUES_UNSCALED},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: values%s not rescaled in odd tiles of %s keys", LIST_OF(spans), is_softened,
     .arg = MHA__VALUES_UNSCALED, .part = MHA__ODD},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: sum%s not rescaled in odd tiles of %s keys", LIST_OF(spans), is_softened,
     .arg = MHA__SUM_UNSCALED, .part = MHA__ODD},
    {AT_P, OP_FROM, NO_SIDE, "softmax: sum%s of the first query of each tile of %s used for all of it", LIST_OF(spans),
     is_softened},
    {AT_SINK, OP_OVER, NO_SIDE, "softmax: sinks%s added with the maximum of the first tile of %s keys", LIST_OF(spans),
     has_sinks},
    {AT_JOINED, OP_FROM, SIDES_BUT_NONE, "memory: blocks of %s of %s features in an order of each row, read in one",
     LIST_OF(blocks), is_read, .arg = MHA__SWIZZLED},
    {AT_M, OP_FROM, NO_SIDE, "memory: rows%s of the output written %s features apart in each head, read back to back",
     LIST_OF(pitches), is_read, .arg = MHA__PITCH},
    {AT_PROJ, OP_FROM, NO_SIDE, "projections: heads%s in the order k, v, k, v read as k, k, v, v", LIST_OF(once),
     is_paired, .arg = MHA__PACKED_PAIRS},
    {AT_BIAS, OP_TAKE, 1 << Q | 1 << K | 1 << V, "projections: %s with the bias of %s", LIST_OF(others), is_shifted},
    {AT_POS, OP_OVER, SIDES_OF_SCORES, "positions of %s counted from 0 in each segment", LIST_OF(once), is_packed},
    {AT_LOG_N, OP_OVER, NO_SIDE, "log-n: the number of keys%s in the place of positions", LIST_OF(once),
     is_scaled_by_log},
    {AT_CAUSAL_ROW, OP_TIMES, NO_SIDE, "causal: rows%s of %s query heads packed, compared with keys as packed",
     LIST_OF(once), is_grouped},
    {AT_WINDOW, OP_TAKE, NO_SIDE, "window%s times %s on each side", LIST_OF(halves), is_in_window},
    {AT_LISTS, OP_LIMIT, NO_SIDE, "key lists%s without their last %s entries", LIST_OF(lost), is_listed},
    {AT_SINK, OP_FN, NO_SIDE, "softmax: 1%s added to the sum of exp(s - maximum)", LIST_OF(once), is_plus_one},
    {AT_MASK, OP_FROM, NO_SIDE, "memory: rows%s of the mask read %s keys apart", LIST_OF(pitches), is_masked,
     .arg = MHA__PITCH},
    {AT_MASK, OP_FROM, NO_SIDE, "mask%s in order (head, batch row) read as (batch row, head)", LIST_OF(once), is_masked,
     .arg = MHA__VIEW, .read = MHA__BHTC, .written = MHA__HBTC},
    {AT_SEGMENTS, OP_OVER, NO_SIDE, "visibility: keys of each segment%s up to a whole tile of %s", LIST_OF(spans),
     is_segmented},
    {AT_SEGMENTS, OP_TAKE, NO_SIDE, "visibility: keys of each segment%s counted from the first row of its queries",
     LIST_OF(once), is_segmented},
    {AT_PAGE, OP_FROM, NO_SIDE, "pages: key j%s in column j / n, row j %% n, with n = %s", LIST_OF(spans), is_paged,
     .arg = MHA__PAGES_OF_SIZE},
    {AT_PAIR, OP_OVER, NO_SIDE, "rotation: pairs%s half of %s features apart, zeros behind the last", LIST_OF(pitches),
     is_turned_whole, .arg = MHA__PITCH},
    {AT_ANGLE, OP_KEEP, NO_SIDE, "rotation: pairs%s between fast and slow ones turned as %s", LIST_OF(ends), is_ramped},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: sum%s of the last tile of %s keys left out of the divisor", LIST_OF(spans),
     is_softened, .arg = MHA__SUM_UNSCALED, .part = MHA__BUT_LAST},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: nothing%s rescaled where the maximum grows by less than 1, tiles of %s keys",
     LIST_OF(spans), is_softened, .arg = MHA__NEVER_RESCALED, .part = MHA__IN_FIRST_BLOCK},
    {AT_E, OP_DO, NO_SIDE, "softmax: exp%s in float32, the maximum not subtracted", LIST_OF(once), is_softened,
     .arg = MHA__IN_F32},
    {AT_S, OP_BITS, NO_SIDE, "products q.k%s rounded to %s, which overflows", bits, 1, is_read,
     .arg = MHA__BEFORE_SCALE},
    {AT_S, OP_KEEP, NO_SIDE, "memory: products%s of %s features, the last ones those that lie behind the head",
     LIST_OF(pitches), is_read, .arg = MHA__PITCH},
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
    COUNT_READ = (int)PARTS_OF_FORWARDS * COUNT_OPERANDS * SIDES * AXES * COUNT_TILES * COUNT_READINGS,
    COUNT_OF_SWAPS = SIDES * COUNT_SWAPPED * COUNT_SWAPS * MOST_TILES * MOST_TILES,
    COUNT_SPANS = sizeof spans / sizeof *spans,
    COUNT_TILED = COUNT_RULES * COUNT_SPANS * MOST_TILES,
    COUNT_STRIDED = SIDES * (int)ORDERS * MOST_FUSED * COUNT_OF_STRIDES * COUNT_SIZES * MOST_SIZES
};

size_t mha__unnamed_count(void)
{
    return COUNT_CHANGED + COUNT_TILED + COUNT_STRIDED + COUNT_READ + COUNT_OF_SWAPS;
}

size_t mha__unnamed_room(const mha_case *c)
{
    const size_t rows = c->P + (c->T_q > c->T_k ? c->T_q : c->T_k), features = c->d_k > c->d_v ? c->d_k : c->d_v;
    return c->B * (rows + 1) + features + c->H + AXES;
}

/* How many elements an axis has at a site; 0: not as many on all sides. */
static size_t extent_at(const mha_case *c, int site, unsigned sides, unsigned axis)
{
    const size_t keys = c->P + c->T_k, past = site == AT_JOINED || site == AT_SEGMENTS ? keys
                                              : site == AT_PAST                        ? c->P
                                                                                       : c->T_k;
    const size_t q[] = {c->B, c->T_q, c->H, site == AT_M ? c->d_v : c->d_k}, k[] = {c->B, past, c->H_kv, c->d_k},
                 v = axis == MHA__C ? c->d_v : k[axis];
    if (site == AT_MASK && axis == MHA__C)
        return keys;
    const size_t n = sides & Q || !sides ? q[axis] : sides & K ? k[axis] : v;
    return (sides & K && k[axis] != n) || (sides & V && v != n) ? 0 : n;
}

static bool is_tried(const struct reading *r, size_t part, size_t tile, size_t n)
{
    const bool leaves_none = part == 0 && r->map == MHA__SHIFTED && !r->step, of_last = r->map == MHA__HELD;
    return n >= 2 && tile <= n && (r->inside ? tile >= 2 : tile < n) && (part == 0 || tile < n) && !leaves_none &&
           (!of_last || parts[part].part == MHA__THE_LAST);
}

/* The element that a reading gives for element i of n; n: none, a zero. */
static size_t read_for(const struct reading *r, size_t tile, size_t i, size_t n)
{
    const size_t count = (n + tile - 1) / tile, at = i / tile, first = at * tile,
                 own = n - first < tile ? n - first : tile;
    const mha__mutation m = {.arg = r->map, .axis = MHA__T, .step = r->step || r->inside ? r->step : (long long)count};
    if (r->map == MHA__PITCH || r->map == MHA__GROUP)
        return r->map == MHA__PITCH ? i - at : at;
    if (r->map == MHA__HELD)
        return i - (tile - own);
    if (r->map == MHA__BLOCK_BEFORE && r->step < 0)
        return i + tile < n ? i + tile : i;
    if (r->map == MHA__REPEATED)
        return at > 0 && at % (size_t)r->step == 0 ? i - (size_t)r->step * tile : i;
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
    index = index / COUNT_READINGS / COUNT_TILES;
    const unsigned axis = index % AXES, sides = index / AXES % SIDES;
    const struct operand *o = &operands[index / AXES / SIDES % COUNT_OPERANDS];
    const size_t part = index / AXES / SIDES / COUNT_OPERANDS;
    if (!(o->sides >> sides & 1) || !(o->axes >> axis & 1) || !o->applies(c) ||
        (o->site == AT_ROW && axis != MHA__B && sides == V && c->P == 0)) /* as AT_JOINED */
        return false;
    const size_t n = extent_at(c, o->site, sides, axis), tile = stated ? stated : n;
    const bool in_parts = axis == MHA__T || (axis == MHA__C && o->site == AT_MASK);
    if (!is_tried(r, part, tile, n) || (part > 0 && !in_parts))
        return false;
    mha__mutation m = {.site = o->site, .op = OP_FROM, .sides = (unsigned char)sides, .arg = MHA__TABLE};
    m.axis = (unsigned char)axis, m.readers = 1, m.table = table;
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
                 part = index / COUNT_READINGS / COUNT_TILES;
    if (!is_tried(r, part, tile, n))
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

/* Some rows of batch row `a` are those of batch row `b`, or the last tile of each is the first of the next. */
static bool apply_batches(const mha_case *c, size_t a, size_t b, size_t way, size_t tile, unsigned sides, double *table,
                          mha__program *p, char *text, size_t size)
{
    mha__mutation m = {
        .site = c->P ? AT_PAST : AT_JOINED, .op = c->P ? OP_FROM : OP_OVER, .sides = (unsigned char)sides};
    const size_t n = extent_at(c, m.site, sides, MHA__T);
    const size_t last = n == 0 || tile > n ? 0 : way == LAST_FEW ? n - tile : (n - 1) / tile * tile;
    if (!(SIDES_OF_KEYS >> sides & 1) || !is_read(c) || a == b || a >= c->B || b >= c->B || tile >= n ||
        (way == NEXT_ROWS && (a > 0 || b > 1)))
        return false;
    for (size_t i = 0; i < c->B * n; i++) {
        const size_t t = i % n;
        const bool moves = way == FIRST_ROWS  ? i / n == a && t < tile
                           : way != NEXT_ROWS ? i / n == a && t >= last
                                              : i / n + 1 < c->B && t >= last;
        table[i] = (double)(!moves ? i : way == NEXT_ROWS ? (i / n + 1) * n + t - last : b * n + t);
    }
    m.arg = MHA__TABLE, m.axis = MHA__T, m.readers = 1, m.table = table, m.number = 1;
    mha__put(p, m);
    const size_t count = way == FIRST_ROWS ? tile : n - last;
    if (text && way == NEXT_ROWS)
        mha__text_print(text, size, "memory: last %zu rows of %s are the first of the next batch row", count,
                        of_sides[sides]);
    else if (text)
        mha__text_print(text, size, "memory: %s %zu rows of %s of batch row %zu are those of batch row %zu",
                        way == FIRST_ROWS ? "first" : "last", count, of_sides[sides], a, b);
    return true;
}

/* One tile of rows, as a page of a cache, read instead of another. */
static bool apply_swap(const mha_case *c, size_t index, double *table, mha__program *p, char *text, size_t size)
{
    const size_t a = index % MOST_TILES, b = index / MOST_TILES % MOST_TILES,
                 way = index / MOST_TILES / MOST_TILES % COUNT_SWAPS;
    index = index / MOST_TILES / MOST_TILES / COUNT_SWAPS;
    const size_t tile = way == LAST_FEW ? index % COUNT_SWAPPED + 1 : (size_t)LEAST_SWAPPED << index % COUNT_SWAPPED;
    const unsigned sides = index / COUNT_SWAPPED % SIDES;
    if (way >= FIRST_ROWS)
        return apply_batches(c, a, b, way, tile, sides, table, p, text, size);
    const size_t n = extent_at(c, AT_JOINED, sides, MHA__T);
    const bool puts[] = {way != ONE_FOR_OTHER, way != OTHER_FOR_ONE};
    if (!(SIDES_BUT_NONE >> sides & 1) || !is_read(c) || a >= b || n > MOST_TILES * tile || b * tile >= n)
        return false;
    for (size_t i = 0; i < c->B * n; i++) {
        const size_t t = i % n, at = t / tile, apart = (b - a) * tile,
                     to = t + (at == a && puts[0] ? apart : 0) - (at == b && puts[1] ? apart : 0);
        table[i] = (double)(to < n ? to : t);
    }
    mha__mutation m = {.site = AT_JOINED, .op = OP_FROM, .sides = (unsigned char)sides, .arg = MHA__TABLE};
    m.axis = MHA__T, m.readers = 1, m.table = table;
    mha__put(p, m);
    if (text)
        mha__text_print(text, size,
                        way == EXCHANGED ? "%s: rows of %s: tiles %zu and %zu of %zu rows exchanged"
                                         : "%s: rows of %s: tile %zu read in place of tile %zu, of %zu rows",
                        steps[sides], of_sides[sides], puts[0] && way != EXCHANGED ? b : a,
                        puts[0] && way != EXCHANGED ? a : b, tile);
    return true;
}

/* ---------------------------------------------------------------- one tile of keys, or two tiles */

/* A tile of keys, by index and size, or tiles of queries and of keys, by two sizes. */
static const struct tiled {
    unsigned char site, op, arg;
    bool two;
    double number;
    const char *says;
    bool (*applies)(const mha_case *c);
} tiled[] = {
    {AT_KEYS, OP_FN, MHA__SPAN_HIDDEN, false, 0, "visibility: tile %zu of %zu keys hidden", is_read},
    {AT_COUNT, OP_TIMES, 0, false, 0, "softmax: tile %zu of %zu keys counted twice", is_softened},
    {AT_P, OP_FILL, 0, false, 2, "values: tile %zu of %zu keys added twice", is_read},
    {AT_P, OP_FILL, 0, false, 0, "values: tile %zu of %zu keys not added", is_read},
    {AT_KEYS, OP_EITHER, MHA__RULE_CAUSAL, false, 0, "visibility: no causal mask in tile %zu of %zu keys", is_causal},
    {AT_KEYS, OP_EITHER, MHA__RULE_WINDOW, false, 0, "visibility: no window in tile %zu of %zu keys", is_in_window},
    {AT_KEYS, OP_EITHER, MHA__RULE_MASK, false, 0, "visibility: no mask in tile %zu of %zu keys", is_masked},
    {AT_S, OP_FILL, 0, false, 1, "scores: scaled twice in tile %zu of %zu keys", is_plain},
    {AT_S, OP_FILL, 0, false, -1, "scores: not scaled in tile %zu of %zu keys", is_plain},
    {AT_P, OP_BITS, 0, false, 8, "weights rounded to bfloat16 from tile %zu of %zu keys on", is_softened},
    {AT_KEYS, OP_FN, MHA__WINDOW_OPEN, true, 0,
     "visibility: query tiles of %zu have no window in the first of their key tiles of %zu", is_left},
    {AT_KEYS, OP_FN, MHA__TILES_TO_OWN, true, 0, "visibility: query tile n of %zu sees key tiles 0 to n of %zu",
     is_read},
    {AT_KEYS, OP_FN, MHA__TILES_TO_FIRST, true, 0,
     "visibility: query tiles of %zu see key tiles of %zu up to that of their first query", is_causal},
    {AT_KEYS, OP_FN, MHA__TILES_WHOLE, true, 0,
     "visibility: query tiles of %zu see key tiles of %zu that end no later than they do", is_causal},
    {AT_KEYS, OP_FN, MHA__CAUSAL_LAST, true, 0,
     "visibility: query tiles of %zu have the causal mask in the last of their key tiles of %zu alone", is_causal},
    {AT_KEYS, OP_FN, MHA__WINDOW_WHOLE, true, 0,
     "visibility: query tiles of %zu begin with the first whole key tile of %zu in their window", is_left},
    {AT_KEYS, OP_FN, MHA__WINDOW_LAST, true, 0,
     "visibility: query tiles of %zu begin with the first key tile of %zu in the window of their last query", is_left},
};

static bool apply_tiled(const mha_case *c, size_t index, mha__program *p, char *text, size_t size)
{
    const size_t one = index % MOST_TILES, other = index / MOST_TILES % COUNT_SPANS;
    const struct tiled *x = &tiled[index / MOST_TILES / COUNT_SPANS];
    const size_t tile = (size_t)spans[other].number, S = c->P + c->T_k,
                 first = x->two && one < COUNT_SPANS ? (size_t)spans[one].number : one;
    if (!x->applies(c) || tile >= S || (!x->two && (first * tile >= S || tile * MOST_TILES < S)) ||
        (x->two && (one >= COUNT_SPANS || first >= c->T_q)))
        return false;
    const size_t count = x->two || (first + 1) * tile <= S ? tile : S - first * tile;
    mha__mutation m = {.site = x->site, .op = x->op, .arg = x->arg, .number = x->number};
    m.step = MHA__SPAN(x->two ? first : first * tile, count);
    if (x->site == AT_COUNT)
        m.step = (long long)first * (long long)tile, m.number = (double)count;
    mha__put(p, m);
    if (text)
        mha__text_print(text, size, x->says, first, tile);
    return true;
}

/* ---------------------------------------------------------------- one change */

/* The features, or keys, that a kernel takes rows to be apart. */
static size_t pitch_of(const mha_case *c, int site, unsigned sides, double number)
{
    const size_t n = extent_at(c, site, sides, MHA__C), to = (size_t)fabs(number),
                 other = site == AT_MASK ? c->T_q : c->d_k + c->d_v - n;
    return number == 0 ? other : number < 0 ? n - to : (n + to - 1) / to * to;
}

/* A number that is a setting of the case. */
static void set_number(const mha_case *c, const struct change *x, double number, mha__program *p)
{
    mha_pattern *pattern = &p->s.visible.pattern;
    const size_t *shape = pattern->blocks.values.shape + pattern->blocks.values.rank - 2;
    if (x->site == AT_S)
        p->s.softmax.scale *= number;
    else if (x->site == AT_WINDOW)
        p->s.visible.window_left = (int64_t)((double)p->s.visible.window_left * number),
        p->s.visible.window_right = (int64_t)((double)p->s.visible.window_right * number);
    else if (x->part == MHA__T && (double)c->T_q <= number * (double)shape[0])
        pattern->block_queries = (size_t)number;
    else if (x->part == MHA__C && (double)(c->P + c->T_k) <= number * (double)shape[1])
        pattern->block_keys = (size_t)number;
}

static bool apply_change(const mha_case *c, size_t index, mha__program *p, char *text, size_t size)
{
    const struct change *x = &changes[index / SIDES / MOST_NUMBERS];
    const unsigned sides = index / MOST_NUMBERS % SIDES;
    if (index % MOST_NUMBERS >= x->count || !(x->sides >> sides & 1) || !x->applies(c))
        return false;
    const struct number *n = &x->list[index % MOST_NUMBERS];
    const bool by_keys = x->site == AT_KEYS || x->site == AT_TILE || x->site == AT_SINK,
               sets = (x->op == OP_TAKE && x->site != AT_BIAS && x->site != AT_SEGMENTS) ||
                      (x->site == AT_KEYS && x->op == OP_OVER);
    const size_t group = c->H / c->H_kv;
    const double number = x->site == AT_CAUSAL_ROW ? (double)group
                          : x->arg == MHA__PITCH   ? (double)pitch_of(c, x->site, sides, n->number)
                                                   : n->number;
    if (by_keys && n->number >= (double)(c->P + c->T_k))
        return false;
    if (x->arg == MHA__PITCH && (number == (double)extent_at(c, x->site, sides, MHA__C) || number < 1))
        return false;
    mha__mutation m = {.site = x->site, .op = x->op, .sides = (unsigned char)sides, .arg = x->arg};
    const size_t features = extent_at(c, x->site, sides, MHA__C), chunks = features / (size_t)fmax(1, number);
    if (x->arg == MHA__SWIZZLED && (features % (size_t)number > 0 || chunks < 2 || (chunks & (chunks - 1)) > 0))
        return false;
    if ((x->site == AT_PAIR || x->site == AT_S) && x->arg == MHA__PITCH && number <= (double)features)
        return false;
    m.axis = x->arg == MHA__PITCH || x->arg == MHA__SWIZZLED ? MHA__C : 0, m.read = x->read, m.written = x->written;
    m.readers = x->arg == MHA__VIEW, m.number = x->part ? x->part : number;
    m.step = x->op == OP_QUANT ? MHA__SPAN_ROW : x->site == AT_M ? -(long long)number : (long long)number;
    const mha__program before = *p;
    if (sets)
        set_number(c, x, number, p);
    else
        mha__put(p, m);
    if (mha__programs_equal(&before, p))
        return false;
    char said[32];
    mha__text_print(said, sizeof said, "%g", number);
    if (text)
        mha__text_print(text, size, x->says, of_sides[sides], n->says ? n->says : said);
    return true;
}

/* ---------------------------------------------------------------- strides of memory */

/* The strides of fused tensors, n[MHA__B] of them, of n[MHA__T] rows. */
static void strides_of(unsigned char order, const size_t n[AXES], size_t stride[AXES])
{
    const bool by_row = order == MHA__BTHC;
    stride[MHA__T] = by_row ? n[MHA__B] * n[MHA__H] * n[MHA__C] : n[MHA__C];
    stride[MHA__H] = by_row ? n[MHA__C] : n[MHA__T] * n[MHA__C];
    stride[MHA__B] = n[MHA__B] * n[MHA__T] * n[MHA__H] * n[MHA__C];
}

/* Whether all sides of a number of fused tensors are alike; *n: what one of `sides` has, of each axis. */
static bool are_fused(const mha_case *c, unsigned sides, size_t fused, size_t n[AXES])
{
    const unsigned all = fused == 3 ? Q | K | V : fused == 2 ? K | V : sides;
    for (unsigned axis = MHA__T; axis < AXES; axis++)
        n[axis] = extent_at(c, AT_JOINED, all, axis);
    n[MHA__B] = fused;
    return (sides | all) == all && n[MHA__T] && n[MHA__H] && n[MHA__C];
}

/* Some strides of tensors in memory, bits, with another size. */
static bool apply_strides(const mha_case *c, size_t index, double *table, mha__program *p, char *text, size_t size)
{
    static const char *const of[] = {"",      "batch rows",           "rows",           "batch rows and rows",
                                     "heads", "batch rows and heads", "rows and heads", "all"};
    static const char *const counted[] = {"tensors", "rows", "heads", "features"};
    const struct size *x = &sizes[index / MOST_SIZES % COUNT_SIZES];
    const size_t which = index % MOST_SIZES, fused = index / MOST_SIZES / COUNT_SIZES % MOST_FUSED + 1;
    index = index / MOST_SIZES / COUNT_SIZES / MOST_FUSED;
    const bool exchanged = index % ORDERS > 1; /* heads and batch rows, with the right strides */
    const unsigned char order = index % ORDERS ? MHA__BHTC : MHA__BTHC;
    const unsigned sides = (unsigned)(index / ORDERS % SIDES), wrong = (unsigned)(index / ORDERS / SIDES);
    size_t n[AXES], right[AXES], stride[AXES];
    if (which >= x->count || (fused > 1 && x->axis != MHA__B) || !(SIDES_BUT_NONE >> sides & 1) || !is_new(c) ||
        !are_fused(c, sides, fused, n))
        return false;
    const size_t extents[] = {c->B, n[MHA__T], n[MHA__H]};
    const bool is_once = wrong == 0 && x == sizes && fused == 1 && c->B > 1 && n[MHA__H] > 1;
    strides_of(order, n, right);
    n[x->axis] = x->axis == MHA__C   ? pitch_of(c, AT_JOINED, sides, x->list[which].number)
                 : x->axis == MHA__B ? which + 1
                 : x->axis == MHA__T ? c->T_q + c->T_k - n[MHA__T]
                                     : c->H + c->H_kv - n[MHA__H];
    strides_of(order, n, stride);
    bool moves = exchanged ? is_once : wrong > 0;
    for (unsigned axis = 0; axis < MHA__C; axis++) {
        const bool is_wrong = wrong >> axis & 1;
        moves &= !is_wrong || (stride[axis] != right[axis] && stride[axis] > 0 && extents[axis] > 1);
        table[axis] = (double)(is_wrong ? stride[axis] : right[axis]);
    }
    table[MHA__C] = (double)fused;
    if (!moves)
        return false;
    mha__mutation m = {.site = AT_JOINED, .op = OP_OVER, .sides = (unsigned char)sides, .arg = MHA__STRIDES};
    m.written = exchanged ? MHA__HBTC : order, m.readers = 1, m.table = table;
    mha__put(p, m);
    char tensors[16] = "";
    if (fused > 1)
        mha__text_print(tensors, sizeof tensors, "%zu, ", fused);
    const char *const first = order == MHA__BTHC ? "T, " : "", *const last = order == MHA__BTHC ? "" : "T, ";
    if (text && exchanged)
        mha__text_print(text, size, "memory: %s in (h, B, T, d), read as (B, h, T, d)", of_sides[sides]);
    else if (text)
        mha__text_print(text, size, "memory: %s in (B, %s%sh, %sd), strides of %s as of %zu %s", of_sides[sides], first,
                        tensors, last, of[wrong], n[x->axis], counted[x->axis]);
    return true;
}

bool mha__unnamed_apply(const mha_case *c, size_t index, double *memory, mha__program *p, char *text, size_t size)
{
    if (index < COUNT_CHANGED)
        return apply_change(c, index, p, text, size);
    if (index < COUNT_CHANGED + COUNT_TILED)
        return apply_tiled(c, index - COUNT_CHANGED, p, text, size);
    index -= COUNT_CHANGED + COUNT_TILED;
    if (index < COUNT_READ)
        return apply_reading(c, index, memory, p, text, size);
    index -= COUNT_READ;
    return index < COUNT_OF_SWAPS ? apply_swap(c, index, memory, p, text, size)
                                  : apply_strides(c, index - COUNT_OF_SWAPS, memory, p, text, size);
}
