/* Tables of unnamed changes: operands, ways to read them, numbers, tiles of keys. Their words make the sentence of a
 * change. */
/* clang-format off */
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
    {AT_GATE, NO_SIDE, 1 << MHA__T | 1 << MHA__H | 1 << MHA__C, "gate", "the gates", is_gated},
    {AT_W, SIDES_BUT_NONE, 1 << MHA__T | 1 << MHA__C, "weights", "W of ", is_small},
    {AT_W_O, NO_SIDE, 1 << MHA__T | 1 << MHA__C, "weights", "W_O", is_small},
};

/* The index map of whole tiles, or of elements inside each; `step`: of a map that has one, in such units. */
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
enum { PARTS_OF_FORWARDS = 5 };

/* Two tiles, one read in place of the other, or exchanged; rows of batch rows. */
enum { ONE_FOR_OTHER, OTHER_FOR_ONE, EXCHANGED, FIRST_ROWS, LAST_ROWS, LAST_FEW /* 1 to 6 */, NEXT_ROWS, COUNT_SWAPS };
enum { MOST_OF_WEIGHT = 16, MOST_TILES = 16, LEAST_SWAPPED = 8, COUNT_SWAPPED = 6 };

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
  orders[] = {{1 | 2 << 4, "k, q, v"}, {2 << 2 | 1 << 4, "q, v, k"}, {2 | 1 << 2, "v, k, q"},
              {1 | 2 << 2, "k, v, q"}, {2 | 1 << 4, "v, q, k"}},
  widths[] = {{2, "of 32 bits read as of 64"}, {0.5, "of 64 bits read as of 32"}},
  norms[] = {{MHA_NORM_RMS, "an RMS norm"}, {MHA_NORM_LAYER, "a layer norm"}, {MHA_NORM_L2, "an L2 norm"}},
  mirrors[] = {{1, "columns"}, {2, "rows"}, {3, "both"}},
  strides[] = {{0, "2 width"}, {1, "2 width + 1"}, {-2, "2 width - 2"}},
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
    {AT_E, OP_BITS, NO_SIDE, "exponentials%s rounded to %s", LIST_OF(bits), softens},
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
     softens, .arg = MHA__VALUES_UNSCALED},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: values%s not rescaled in odd tiles of %s keys", LIST_OF(spans), softens,
     .arg = MHA__VALUES_UNSCALED, .part = MHA__ODD},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: sum%s not rescaled in odd tiles of %s keys", LIST_OF(spans), softens,
     .arg = MHA__SUM_UNSCALED, .part = MHA__ODD},
    {AT_P, OP_FROM, NO_SIDE, "softmax: sum%s of the first query of each tile of %s used for all of it", LIST_OF(spans),
     softens},
    {AT_SINK, OP_OVER, NO_SIDE, "softmax: sinks%s added with the maximum of the first tile of %s keys", LIST_OF(spans),
     has_sinks},
    {AT_JOINED, OP_FROM, SIDES_BUT_NONE, "memory: blocks of %s of %s features in an order of each row, read in one",
     LIST_OF(blocks), is_read, .arg = MHA__SWIZZLED},
    {AT_M, OP_FROM, NO_SIDE, "memory: rows%s of the output written %s features apart in each head, read back to back",
     LIST_OF(pitches), is_read, .arg = MHA__PITCH},
    {AT_PROJ, OP_FROM, NO_SIDE, "projections: heads%s in the order k, v, k, v read as k, k, v, v", LIST_OF(once),
     is_paired, .arg = MHA__PACKED_PAIRS},
    {AT_BIAS, OP_TAKE, 1 << Q | 1 << K | 1 << V, "projections: %s with the bias of %s", LIST_OF(others), is_shifted},
    {AT_BIAS, OP_FROM, NO_SIDE, "projections: biases%s in the order %s, read as q, k, v", LIST_OF(orders), is_shifted},
    {AT_PROJ, OP_OVER, SIDES_BUT_NONE, "fused q, k, v: %s read %s heads further on", LIST_OF(shifts), is_fused},
    {AT_Y, OP_FROM, SIDES_BUT_NONE, "projections: features of %s split as (d, h)", LIST_OF(once), has_heads,
     .arg = MHA__VIEW, .read = MHA__BTCH, .written = MHA__BTHC},
    {AT_NORM, OP_TAKE, 1 << Q | 1 << K, "norm: %s with %s", LIST_OF(norms), has_norm},
    {AT_LENGTHS, OP_FROM, NO_SIDE, "key lengths%s %s", LIST_OF(widths), has_lengths},
    {AT_ALIBI, OP_BITS, NO_SIDE, "ALiBi%s rounded to %s", bits, 2, is_sloped, .arg = 0},
    {AT_TABLE, OP_OVER, NO_SIDE, "position bias: rows%s of the grid's table %s apart", LIST_OF(strides), is_gridded},
    {AT_TABLE, OP_NOT, NO_SIDE, "position bias: the grid's distances%s negated by %s", LIST_OF(mirrors), is_gridded},
    {AT_GATE, OP_FROM, NO_SIDE, "gate: features%s split as (d, h)", LIST_OF(once), is_gated, .arg = MHA__VIEW,
     .read = MHA__BTCH, .written = MHA__BTHC},
    {AT_GATE, OP_FROM, NO_SIDE, "gate: (T, h, d)%s read as (h, T, d)", LIST_OF(once), is_gated, .arg = MHA__VIEW,
     .read = MHA__BHTC, .written = MHA__BTHC},
    {AT_JOINED, OP_FROM, SIDES_BUT_NONE, "memory: %s in transposed tiles of %s", LIST_OF(blocks), is_read,
     .arg = MHA__TURNED},
    {AT_M, OP_FROM, NO_SIDE, "memory: heads%s in transposed tiles of %s", LIST_OF(blocks), is_read, .arg = MHA__TURNED},
    {AT_S, OP_FROM, NO_SIDE, "scores%s in transposed tiles of %s", LIST_OF(blocks), is_read},
    {AT_POS, OP_OVER, SIDES_OF_SCORES, "positions of %s counted from 0 in each segment", LIST_OF(once), is_packed},
    {AT_LOG_N, OP_OVER, NO_SIDE, "log-n: the number of keys%s in the place of positions", LIST_OF(once),
     is_scaled_by_log},
    {AT_CAUSAL_ROW, OP_TIMES, NO_SIDE, "causal: rows%s of %s query heads packed, compared with keys as packed",
     LIST_OF(once), is_grouped},
    {AT_WINDOW, OP_TAKE, NO_SIDE, "window%s times %s on each side", LIST_OF(halves), is_windowed},
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
     softens, .arg = MHA__SUM_UNSCALED, .part = MHA__BUT_LAST},
    {AT_TILE, OP_FN, NO_SIDE, "softmax: nothing%s rescaled where the maximum grows by less than 1, tiles of %s keys",
     LIST_OF(spans), softens, .arg = MHA__NEVER_RESCALED, .part = MHA__IN_FIRST_BLOCK},
    {AT_E, OP_DO, NO_SIDE, "softmax: exp%s in float32, the maximum not subtracted", LIST_OF(once), softens,
     .arg = MHA__IN_F32},
    {AT_S, OP_BITS, NO_SIDE, "products q.k%s rounded to %s, which overflows", bits, 1, is_read,
     .arg = MHA__BEFORE_SCALE},
    {AT_S, OP_KEEP, NO_SIDE, "memory: products%s of %s features, the last ones those that lie behind the head",
     LIST_OF(pitches), is_read, .arg = MHA__PITCH},
};

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
    {AT_COUNT, OP_TIMES, 0, false, 0, "softmax: tile %zu of %zu keys counted twice", softens},
    {AT_P, OP_FILL, 0, false, 2, "values: tile %zu of %zu keys added twice", is_read},
    {AT_P, OP_FILL, 0, false, 0, "values: tile %zu of %zu keys not added", is_read},
    {AT_KEYS, OP_EITHER, MHA__RULE_CAUSAL, false, 0, "visibility: no causal mask in tile %zu of %zu keys", is_causal},
    {AT_KEYS, OP_EITHER, MHA__RULE_WINDOW, false, 0, "visibility: no window in tile %zu of %zu keys", is_windowed},
    {AT_KEYS, OP_EITHER, MHA__RULE_MASK, false, 0, "visibility: no mask in tile %zu of %zu keys", is_masked},
    {AT_S, OP_FILL, 0, false, 1, "scores: scaled twice in tile %zu of %zu keys", is_plain},
    {AT_S, OP_FILL, 0, false, -1, "scores: not scaled in tile %zu of %zu keys", is_plain},
    {AT_P, OP_BITS, 0, false, 8, "weights rounded to bfloat16 from tile %zu of %zu keys on", softens},
    {AT_KEYS, OP_FN, MHA__WINDOW_OPEN, true, 0,
     "visibility: query tiles of %zu have no window in the first of their key tiles of %zu", has_left},
    {AT_KEYS, OP_FN, MHA__TILES_TO_OWN, true, 0, "visibility: query tile n of %zu sees key tiles 0 to n of %zu",
     is_read},
    {AT_KEYS, OP_FN, MHA__TILES_TO_FIRST, true, 0,
     "visibility: query tiles of %zu see key tiles of %zu up to that of their first query", is_causal},
    {AT_KEYS, OP_FN, MHA__TILES_WHOLE, true, 0,
     "visibility: query tiles of %zu see key tiles of %zu that end no later than they do", is_causal},
    {AT_KEYS, OP_FN, MHA__CAUSAL_LAST, true, 0,
     "visibility: query tiles of %zu have the causal mask in the last of their key tiles of %zu alone", is_causal},
    {AT_KEYS, OP_FN, MHA__WINDOW_WHOLE, true, 0,
     "visibility: query tiles of %zu begin with the first whole key tile of %zu in their window", has_left},
    {AT_KEYS, OP_FN, MHA__WINDOW_LAST, true, 0,
     "visibility: query tiles of %zu begin with the first key tile of %zu in the window of their last query", has_left},
};
/* clang-format on */
