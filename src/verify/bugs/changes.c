/* Unnamed changes, which have no row in the lists of bugs: all that the tables of lists/changes.h make. */
#include "base/base.h"
#include "verify/bugs/needs.h"

/* clang-format off */
/* ---------------------------------------------------------------- conditions */

PREDICATE(is_read, attends(c) && c->semantics.place.n_sequences == 0 && !(c->P > 0 && c->kv_rank > 0))
/* The others are of cases that are read. */
PREDICATE(is_cached, c->P > 0 && c->kv_rank == 0)
PREDICATE(is_masked, c->semantics.visible.mask.kind)
PREDICATE(is_turned, has_rope(c) && c->P == 0 && c->T_q == c->T_k)
/* True if rows are not multiplied as they are projected. */
PREDICATE(is_changed, (has_rope(c) || has_norm(c) || c->P > 0 || c->semantics.qkv.clip_qkv > 0 ||
    c->semantics.qkv.query_scale.growth != 0 || c->semantics.qkv.query_scale.log_n != 0))
PREDICATE(is_added, is_masked(c) && c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE)
PREDICATE(is_sloped, c->semantics.added.alibi_slopes)
PREDICATE(is_biased, c->semantics.added.bias.rule != MHA_BIAS_RULE_NONE)
PREDICATE(is_causal, c->semantics.visible.causal)
PREDICATE(has_sinks, softens(c) && has_weight(c, MHA_SINKS))
PREDICATE(is_chunked, c->semantics.visible.chunk > 1)
PREDICATE(is_blocked, c->semantics.visible.pattern.blocks.kind)
PREDICATE(is_placed, has_rope(c) && c->semantics.qkv.rope.cos_table.rank != 3)
PREDICATE(is_padded, is_causal(c) && is_boolean(&c->semantics.visible.key_padding))
PREDICATE(is_new, c->P == 0)
PREDICATE(is_segmented, c->semantics.visible.pattern.q_segments.data)
PREDICATE(is_packed, is_placed(c) && is_segmented(c) && is_new(c) && c->T_q == c->T_k)
PREDICATE(is_listed, c->semantics.visible.pattern.key_lists.data)
PREDICATE(is_grouped, is_causal(c) && c->H > c->H_kv)
PREDICATE(is_scaled_by_log, c->semantics.qkv.query_scale.log_n != 0)
PREDICATE(is_plus_one, softens(c) && c->semantics.softmax.softmax_plus_one)
PREDICATE(is_gated, has_weight(c, MHA_W_G))
PREDICATE(is_plain, softens(c) && c->semantics.softmax.softcap == 0)
PREDICATE(is_paired, is_new(c) && c->kind == CASE_SDPA && c->d_k == c->d_v && c->H_kv > 1)
PREDICATE(is_paged, c->tensors[CASE_PAGE_TABLE].data)
PREDICATE(is_turned_whole, is_placed(c) && c->semantics.qkv.rope.kind == MHA_ROPE_HALF_SPLIT &&
    (c->semantics.qkv.rope.dim == 0 || c->semantics.qkv.rope.dim == c->d_k))
PREDICATE(is_ramped, has_rope(c) && c->semantics.qkv.rope.frequencies.data)
PREDICATE(has_heads, is_read(c) && c->H > 1 && c->P == 0)
PREDICATE(has_lengths, c->semantics.visible.kv_lengths && c->B > 1)
PREDICATE(is_gridded, is_biased(c) && c->semantics.added.bias.rule == MHA_BIAS_RULE_GRID)
PREDICATE(is_shifted, c->kind == CASE_MHA && c->q_rank + c->kv_rank == 0)
PREDICATE(is_fused, is_shifted(c) && c->H > 1 && c->d_k == c->d_v && c->E_q == c->E_k && c->E_k == c->E_v)
/* True if matrices are small enough to project with many changes of them. */
PREDICATE(is_small, is_shifted(c) && c->E_q * c->H * c->d_k <= 1 << 16)

#include "verify/bugs/lists/changes.h"
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
    COUNT_TILED = sizeof tiled / sizeof *tiled * COUNT_SPANS * MOST_TILES,
    COUNT_STRIDED = SIDES * (int)ORDERS * MOST_FUSED * COUNT_OF_STRIDES * COUNT_SIZES * MOST_SIZES
};

size_t mha__unnamed_count(void)
{
    return COUNT_CHANGED + COUNT_TILED + COUNT_STRIDED + COUNT_READ + COUNT_OF_SWAPS;
}

size_t mha__unnamed_room(const mha_case *c)
{
    const size_t rows = c->P + (c->T_q > c->T_k ? c->T_q : c->T_k), features = c->d_k > c->d_v ? c->d_k : c->d_v;
    return c->B * (rows + 1) + features + c->H + AXES + c->E_q + c->E_k + c->E_v + c->E_out + c->H * features;
}

/* Number of elements of an axis at a site; 0: sides differ. */
static size_t extent_at(const mha_case *c, int site, unsigned sides, unsigned axis)
{
    const bool all = site == AT_W;
    const size_t keys = keys_of(c), H = all ? c->H_kv : 1,
                 past = site == AT_JOINED || site == AT_SEGMENTS ? keys
                        : site == AT_PAST                        ? c->P
                                                                 : c->T_k,
                 gates = site == AT_GATE ? c->weights[CASE_RECORDED][MHA_W_G].shape[1] / c->H : 0,
                 features = site == AT_W_O ? c->E_out
                            : gates        ? gates
                            : site == AT_M ? c->d_v
                                           : c->d_k * (all ? c->H : 1);
    const size_t q[] = {c->B,
                        all              ? c->E_q
                        : site == AT_W_O ? c->H * c->d_v
                                         : c->T_q,
                        c->H, features},
                 k[] = {c->B, all ? c->E_k : past, c->H_kv, H * c->d_k},
                 v = axis == MHA__C          ? H * c->d_v
                     : all && axis == MHA__T ? c->E_v
                                             : k[axis];
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

/* The element of n that a reading gives for element i; n: a zero. */
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

/* The same where only a part of the tiles is read in this way. */
static size_t read_in(size_t part, const struct reading *r, size_t tile, size_t i, size_t n)
{
    return mha__part_has((mha__axis_part)parts[part].part, 0, i / tile, (n + tile - 1) / tile) ? read_for(r, tile, i, n)
                                                                                               : i;
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
    const bool of_weight = o->site == AT_W || o->site == AT_W_O, is_row = o->site == AT_ROW || o->site == AT_JOINED,
               lacks = r->map == MHA__SHIFTED && !r->step,
               in_parts =
                   (axis == MHA__T && !of_weight) || (axis == MHA__C && (o->site == AT_MASK || (is_row && lacks))),
               takes_zeros = is_row && axis != MHA__H;
    if (!is_tried(r, part, tile, n) || (part > 0 && !in_parts) || (of_weight && stated > MOST_OF_WEIGHT))
        return false;
    mha__mutation m = {.site = o->site, .op = OP_FROM, .sides = (unsigned char)sides, .arg = MHA__TABLE};
    m.axis = (unsigned char)axis, m.readers = 1, m.table = table;
    bool moves = false;
    for (size_t i = 0; i < n; i++) {
        const size_t from = read_in(part, r, tile, i, n);
        if (from == n && !takes_zeros)
            return false;
        moves |= from != i;
        for (size_t b = 0; b < (axis == MHA__T && !of_weight ? c->B : 1); b++)
            table[b * n + i] = (double)from;
    }
    if (!moves)
        return false;
    mha__put(p, m);
    char unit[32], says[64];
    const char *one = (o->site == AT_MASK || of_weight) && axis == MHA__C ? "column" : units[axis];
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
        from[i] = read_in(part, r, tile, i, n);
        moves |= from[i] != i;
    }
    char of_tile[48], says[80];
    mha__text_print(of_tile, sizeof of_tile, tile > 1 ? "tile of %zu %ss" : "%zu", tile, unit);
    mha__text_print(says, sizeof says, r->says, tile > 1 ? of_tile : unit);
    mha__text_print(text, size, "%s%s", says, parts[part].says);
    return moves;
}

/* A tile of rows, as a page of a cache, read instead of another; or rows of batch row `a` that are those of batch row
 * `b`; or the last tile of each batch row, which is the first of the next. */
static bool apply_swap(const mha_case *c, size_t index, double *table, mha__program *p, char *text, size_t size)
{
    const size_t a = index % MOST_TILES, b = index / MOST_TILES % MOST_TILES,
                 way = index / MOST_TILES / MOST_TILES % COUNT_SWAPS;
    index = index / MOST_TILES / MOST_TILES / COUNT_SWAPS;
    const size_t tile = way == LAST_FEW ? index % COUNT_SWAPPED + 1 : (size_t)LEAST_SWAPPED << index % COUNT_SWAPPED;
    const unsigned sides = index / COUNT_SWAPPED % SIDES;
    const bool batches = way >= FIRST_ROWS, takes = way != ONE_FOR_OTHER, gives = way != OTHER_FOR_ONE;
    const mha__mutation m = {.site = batches && c->P ? AT_PAST : AT_JOINED,
                             .op = batches && !c->P ? OP_OVER : OP_FROM,
                             .sides = (unsigned char)sides,
                             .arg = MHA__TABLE,
                             .axis = MHA__T,
                             .readers = 1,
                             .table = table,
                             .number = batches};
    const size_t n = extent_at(c, m.site, sides, MHA__T),
                 last = n == 0 || tile > n ? 0
                        : way == LAST_FEW  ? n - tile
                                           : (n - 1) / tile * tile,
                 count = way == FIRST_ROWS ? tile : n - last;
    if (batches ? !(SIDES_OF_KEYS >> sides & 1) || a == b || a >= c->B || b >= c->B || tile >= n ||
                      (way == NEXT_ROWS && (a > 0 || b > 1))
                : !(SIDES_BUT_NONE >> sides & 1) || a >= b || n > MOST_TILES * tile || b * tile >= n)
        return false;
    for (size_t i = 0; i < c->B * n; i++) {
        const size_t t = i % n, row = i / n, apart = (b - a) * tile,
                     to = t + (t / tile == a && takes ? apart : 0) - (t / tile == b && gives ? apart : 0);
        const bool moves =
            way == FIRST_ROWS ? row == a && t < tile : t >= last && (way != NEXT_ROWS ? row == a : row + 1 < c->B);
        table[i] = (double)(!batches           ? to < n ? to : t
                            : !moves           ? i
                            : way == NEXT_ROWS ? (row + 1) * n + t - last
                                               : b * n + t);
    }
    mha__put(p, m);
    if (way == NEXT_ROWS)
        mha__text_print(text, size, "memory: last %zu rows of %s are the first of the next batch row", count,
                        of_sides[sides]);
    else if (batches)
        mha__text_print(text, size, "memory: %s %zu rows of %s of batch row %zu are those of batch row %zu",
                        way == FIRST_ROWS ? "first" : "last", count, of_sides[sides], a, b);
    else
        mha__text_print(text, size,
                        way == EXCHANGED ? "%s: rows of %s: tiles %zu and %zu of %zu rows exchanged"
                                         : "%s: rows of %s: tile %zu read in place of tile %zu, of %zu rows",
                        steps[sides], of_sides[sides], way == OTHER_FOR_ONE ? b : a, way == OTHER_FOR_ONE ? a : b,
                        tile);
    return true;
}

/* ---------------------------------------------------------------- one tile of keys, or two tiles */

static bool apply_tiled(const mha_case *c, size_t index, mha__program *p, char *text, size_t size)
{
    const size_t one = index % MOST_TILES, other = index / MOST_TILES % COUNT_SPANS;
    const struct tiled *x = &tiled[index / MOST_TILES / COUNT_SPANS];
    const size_t tile = (size_t)spans[other].number, S = keys_of(c),
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
    mha__text_print(text, size, x->says, first, tile);
    return true;
}

/* ---------------------------------------------------------------- one change */

/* The features, or keys, that a kernel takes rows to be apart. */
static size_t pitch_of(const mha_case *c, int site, unsigned sides, double number)
{
    const size_t n = extent_at(c, site, sides, MHA__C), to = (size_t)fabs(number),
                 other = site == AT_MASK ? c->T_q : c->d_k + c->d_v - n;
    return number == 0 ? other : number > 0 ? (n + to - 1) / to * to : n > to ? n - to : 0;
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
    else if (x->part == MHA__C && (double)(keys_of(c)) <= number * (double)shape[1])
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
               sets = (x->op == OP_TAKE && x->site != AT_BIAS && x->site != AT_SEGMENTS && x->site != AT_NORM) ||
                      (x->site == AT_KEYS && x->op == OP_OVER);
    const size_t group = c->H / c->H_kv;
    const double number = x->site == AT_CAUSAL_ROW ? (double)group
                          : x->site == AT_TABLE && x->op == OP_OVER
                              ? (double)(2 * c->semantics.added.bias.width) + n->number
                          : x->arg == MHA__PITCH ? (double)pitch_of(c, x->site, sides, n->number)
                                                 : n->number;
    const size_t features = extent_at(c, x->site, sides, MHA__C), chunks = features / (size_t)fmax(1, number);
    const bool pitch = x->arg == MHA__PITCH, swizzled = x->arg == MHA__SWIZZLED, turned = x->arg == MHA__TURNED,
               only_wider = x->site == AT_PAIR || x->site == AT_S;
    if ((by_keys && n->number >= (double)keys_of(c)) ||
        (pitch && (number == (double)features || number < 1 || (only_wider && number < (double)features))) ||
        (turned && (number > (double)features || number > (double)extent_at(c, x->site, sides, MHA__T))) ||
        (swizzled && (features % (size_t)number > 0 || chunks < 2 || (chunks & (chunks - 1)) > 0)))
        return false;
    mha__mutation m = {.site = x->site, .op = x->op, .sides = (unsigned char)sides, .arg = x->arg};
    m.axis = pitch || swizzled || turned ? MHA__C : 0, m.read = x->read, m.written = x->written;
    m.readers = x->arg == MHA__VIEW, m.number = x->part ? x->part : number;
    m.step = x->op == OP_QUANT ? MHA__SPAN_ROW : x->site == AT_M && pitch ? -(long long)number : (long long)number;
    const mha__program before = *p;
    if (sets)
        set_number(c, x, number, p);
    else
        mha__put(p, m);
    if (mha__programs_equal(&before, p))
        return false;
    char said[32];
    mha__text_print(said, sizeof said, "%g", number);
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

/* True if all sides of so many fused tensors have one shape; *n: the extents of one of `sides`. */
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
    if (exchanged)
        mha__text_print(text, size, "memory: %s in (h, B, T, d), read as (B, h, T, d)", of_sides[sides]);
    else
        mha__text_print(text, size, "memory: %s in (B, %s%sh, %sd), strides of %s as of %zu %s", of_sides[sides], first,
                        tensors, last, of[wrong], n[x->axis], counted[x->axis]);
    return true;
}

bool mha__unnamed_apply(const mha_case *c, size_t index, double *memory, mha__program *p, char *text, size_t size)
{
    if (!is_read(c))
        return false;
    if (index < COUNT_CHANGED)
        return apply_change(c, index, p, text, size);
    index -= COUNT_CHANGED;
    if (index < COUNT_TILED)
        return apply_tiled(c, index, p, text, size);
    index -= COUNT_TILED;
    if (index < COUNT_READ)
        return apply_reading(c, index, memory, p, text, size);
    index -= COUNT_READ;
    return index < COUNT_OF_SWAPS ? apply_swap(c, index, memory, p, text, size)
                                  : apply_strides(c, index - COUNT_OF_SWAPS, memory, p, text, size);
}
