/* Variants between q, k, v and the heads whose numbers have to be found. */
#include <math.h>

#include "verify/variants/variants.h"

/* ---------------------------------------------------------------- what they are, and the numbers to try */

/* Fewer key/value heads than there are, such that groups of them are whole. */
static bool any_groups(const mha_case *c, size_t index, double *x)
{
    *x = (double)(index + 1);
    return index + 1 < c->H_kv;
}

SOLVE(lacks_groups, attends(c) && *x >= 1 && *x < (double)c->H_kv && c->H_kv % (size_t)*x == 0, k->groups = (int)*x)

/* All sizes up to 256, then powers of two and their neighbours. */
static double size_at(size_t index)
{
    const size_t all = 257;
    return index < all ? (double)index : ldexp(1, (int)((index - all) / 3) + 9) + (double)((index - all) % 3) - 1;
}

/* As far as there are keys. */
static bool any_size(const mha_case *c, size_t index, double *x)
{
    *x = size_at(index);
    return *x < (double)(c->P + c->T_k);
}

/* All keys; then as far as there are keys, or as queries reach beyond them. */
static bool any_chunk(const mha_case *c, size_t index, double *x)
{
    const double keys = (double)(c->P + c->T_k);
    double reach = keys;
    for (size_t b = 0; b < c->B; b++) {
        const int64_t *offset = c->semantics.place.position_offset;
        const double first = (offset ? (double)offset[b] : (double)c->P) - (double)c->semantics.place.key_offset;
        reach = fmax(reach, first + (double)c->T_q);
    }
    *x = index == 0 && keys < reach ? keys : size_at(index) == keys ? 0 : size_at(index); /* each once; 0: none */
    return *x < reach;
}

static double sign_of(double x)
{
    return x < 0 ? -1 : 1;
}

static bool any_parts(const mha_case *c, size_t index, double *x)
{
    (void)c;
    *x = (double)index + 2;
    return *x <= 256;
}

/* Powers of two from 2 on, smaller than the number of keys. */
static bool any_tile(const mha_case *c, size_t index, double *x)
{
    *x = ldexp(2, (int)index);
    return index < 32 && *x < (double)(c->P + c->T_k);
}

/* Powers of two: keys up to a multiple of one may be many more than there are. */
static bool any_padding(const mha_case *c, size_t index, double *x)
{
    (void)c;
    *x = ldexp(2, (int)index);
    return *x <= 1024;
}

/* Tiles in both directions: the last tile comes first in those that are negative. */
static bool any_direction(const mha_case *c, size_t index, double *x)
{
    const bool is_tile = any_tile(c, index / 2, x);
    *x *= index % 2 ? -1 : 1;
    return is_tile;
}

/* Whether a number can be a count of keys: what it is given as need not be one. */
static bool is_size(double x)
{
    return fabs(x) >= 1 && fabs(x) <= 0x1p31;
}

static bool in_tiles(const mha_case *c, mha__knobs *k, double size, int mistake)
{
    if (!is_size(size))
        return false;
    k->tile = (int64_t)size;
    k->tile_mistake = mistake;
    return softens(c);
}

SOLVE(tile_not_rescaled, in_tiles(c, k, *x, TILE_NEVER_RESCALED), )
SOLVE(tile_values_not_rescaled, in_tiles(c, k, *x, TILE_VALUES_UNSCALED), )
SOLVE(tile_sum_not_rescaled, in_tiles(c, k, *x, TILE_SUM_UNSCALED), )
SOLVE(tile_padded, in_tiles(c, k, *x, TILE_PADDED), )
SOLVE(tile_last_dropped, attends(c) && is_size(*x), k->whole_tiles = (int64_t)*x)
SOLVE(tile_first_only, attends(c) && is_size(*x), k->keys_below = (int64_t)*x)
SOLVE(causal_block, attends(c) && is_size(*x), k->s.visible.causal = 1; k->causal_block = (int64_t)*x)
SOLVE(causal_prefix, c->semantics.visible.causal && c->semantics.visible.prefix == 0 && fabs(*x) <= 0x1p31,
      k->s.visible.prefix = (int64_t)*x)
SOLVE(lacks_chunk, attends(c) && c->semantics.visible.chunk == 0 && fabs(*x) <= 0x1p31,
      k->s.visible.chunk = (int64_t)*x)
SOLVE(lengths_to_tile, c->semantics.visible.kv_lengths &&is_size(*x), k->lengths_block = (int64_t)*x)
/* All lengths, the whole one first. */
static bool any_length(const mha_case *c, size_t index, double *x)
{
    *x = (double)(c->P + c->T_k - index);
    return index < c->P + c->T_k;
}

SOLVE(lacks_lengths, attends(c) && !c->semantics.visible.kv_lengths, k->lengths = x)
SOLVE(lacks_padding, attends(c) && !c->semantics.visible.key_padding.kind, k->kept_keys = x)
SOLVE(padding_other, is_boolean(&c->semantics.visible.key_padding) && !c->semantics.visible.has_padding_fill,
      k->kept_keys = x;
      k->s.visible.key_padding.kind = MHA_MASK_NONE)
SOLVE(lacks_sinks, softens(c) && !has_weight(c, MHA_SINKS), k->sinks = x)
SOLVE(lacks_slopes, attends(c) && !c->semantics.added.alibi_slopes, k->alibi_sign = 1; k->alibi_slopes = x)
SOLVE(sinks_in_parts,
      attends(c) && is_size(*x) &&
          (has_weight(c, MHA_SINKS) || has_weight(c, MHA_BIAS_K) || c->semantics.softmax.softmax_plus_one ||
           c->semantics.softmax.zero_row),
      k->parts = *x)
SOLVE(dropout_mask, mha__case_can_drop(c) && *x >= 0 && *x < 1, k->dropped = x)
SOLVE(dropout_scale, attends(c), k->weights_times = 1 / (1 - *x))
SOLVE(dropout_scale_twice, attends(c), k->weights_times = 1 - *x)
SOLVE(scale_other, attends(c), k->s.softmax.scale = *x * sign_of(k->s.softmax.scale))
SOLVE(softcap_other, has_cap(c), k->s.softmax.softcap = *x)
SOLVE(lacks_softcap, attends(c) && !has_cap(c), k->s.softmax.softcap = *x)
SOLVE(sigmoid_bias_other, has_sigmoid(c), k->s.softmax.sigmoid_bias = *x)
SOLVE(window_left_other, has_left(c) && fabs(*x) <= 0x1p31, k->s.visible.window_left = (int64_t)*x)
SOLVE(window_right_other, has_right(c) && fabs(*x) <= 0x1p31, k->s.visible.window_right = (int64_t)*x)
SOLVE(lacks_window, attends(c) && !c->semantics.visible.window && fabs(*x) <= 0x1p31, k->s.visible.window = 1;
      k->s.visible.window_left = k->s.visible.window_right = (int64_t)*x)
SOLVE(lacks_window_left, attends(c) && !has_left(c) && fabs(*x) <= 0x1p31,
      if (!k->s.visible.window) k->s.visible.window_right = -1;
      k->s.visible.window = 1; k->s.visible.window_left = (int64_t)*x)
SOLVE(lacks_window_right, attends(c) && !has_right(c) && fabs(*x) <= 0x1p31,
      if (!k->s.visible.window) k->s.visible.window_left = -1;
      k->s.visible.window = 1; k->s.visible.window_right = (int64_t)*x)

/* ---------------------------------------------------------------- the list */

/* Rows of variants whose numbers are chosen from a list, or fitted between two bounds. */
#define CHOSEN(name, help, apply, how, choice)                                                                         \
    {                                                                                                                  \
        {name, help}, apply, how, 0, 0, choice                                                                         \
    }
#define FITTED(name, help, apply, how, low, high)                                                                      \
    {                                                                                                                  \
        {name, help}, apply, how, low, high, NULL                                                                      \
    }

static const mha__solved_entry solved[] = {
    CHOSEN("case-lacks-groups", "query heads share so many key/value heads, the first ones", lacks_groups, SOLVE_LISTED,
           any_groups),
    CHOSEN("tile-not-rescaled",
           "sum and values not rescaled when the maximum grows; keys of a tile (negative: last first)",
           tile_not_rescaled, SOLVE_LISTED, any_direction),
    CHOSEN("tile-values-not-rescaled",
           "values not rescaled when the maximum grows; keys of a tile (negative: last first)",
           tile_values_not_rescaled, SOLVE_LISTED, any_direction),
    CHOSEN("tile-sum-not-rescaled", "sum not rescaled when the maximum grows; keys of a tile (negative: last first)",
           tile_sum_not_rescaled, SOLVE_LISTED, any_direction),
    CHOSEN("tile-padded", "zeros scored up to a multiple of a tile; its keys", tile_padded, SOLVE_LISTED, any_padding),
    CHOSEN("tile-last-dropped", "keys of the last, partial tile dropped; keys of a tile", tile_last_dropped,
           SOLVE_LISTED, any_tile),
    CHOSEN("tile-first-only", "keys of the first tile alone; how many", tile_first_only, SOLVE_LISTED, any_tile),
    CHOSEN("causal-block", "causal by blocks: the query's whole block is visible; its keys", causal_block, SOLVE_LISTED,
           any_tile),
    CHOSEN("case-lacks-prefix", "the first keys visible in spite of the causal mask; how many", causal_prefix,
           SOLVE_LISTED, any_size),
    CHOSEN("case-lacks-chunk", "only keys of the query's own chunk visible; keys of a chunk", lacks_chunk, SOLVE_LISTED,
           any_chunk),
    CHOSEN("lengths-to-tile", "lengths rounded up to a multiple of a tile; its keys", lengths_to_tile, SOLVE_LISTED,
           any_tile),
    CHOSEN("case-lacks-lengths", "key lengths that the case does not have; one for each batch row", lacks_lengths,
           SOLVE_BY_BATCH, any_length),
    CHOSEN("case-lacks-padding", "keys hidden from all queries, which the case does not hide; those of each batch row",
           lacks_padding, SOLVE_KEYS, NULL),
    CHOSEN("padding-other", "other keys hidden from all queries; those of each batch row", padding_other, SOLVE_KEYS,
           NULL),
    FITTED("case-lacks-sinks", "sinks that the case does not have; one for each head", lacks_sinks, SOLVE_BY_HEAD, -30,
           10),
    FITTED("case-lacks-slopes", "ALiBi that the case does not have; the slope of each head", lacks_slopes,
           SOLVE_BY_HEAD, -30, 10),
    CHOSEN("sinks-in-every-part", "sinks, extra keys and exp(0) counted once in each merged part; how many parts",
           sinks_in_parts, SOLVE_LISTED, any_parts),
    CHOSEN("dropout-mask", "weights dropped at random, the others multiplied by 1/(1-p); p", dropout_mask,
           SOLVE_DROPPED, NULL),
    FITTED("dropout-scale", "weights multiplied by 1/(1-p), of a dropout left on; p", dropout_scale, SOLVE_REAL, 0.01,
           0.95),
    FITTED("dropout-scale-twice", "weights multiplied by 1-p, as after training without 1/(1-p); p",
           dropout_scale_twice, SOLVE_REAL, 0.01, 0.95),
    FITTED("scale-other", "another scale: the number", scale_other, SOLVE_REAL, 1e-3, 1e2),
    FITTED("softcap-other", "another softcap: the number", softcap_other, SOLVE_REAL, 0.1, 1e3),
    FITTED("case-lacks-softcap", "a softcap that the case does not have: the number", lacks_softcap, SOLVE_REAL, 0.1,
           1e3),
    FITTED("sigmoid-bias-other", "another bias of the sigmoid, or one that the case lacks: the number",
           sigmoid_bias_other, SOLVE_SIGNED, 1e-2, 50),
    CHOSEN("window-left-other", "window: so many keys to the left", window_left_other, SOLVE_LISTED, any_size),
    CHOSEN("window-right-other", "window: so many keys to the right", window_right_other, SOLVE_LISTED, any_size),
    CHOSEN("case-lacks-window", "a window that the case does not have: so many keys to each side", lacks_window,
           SOLVE_LISTED, any_size),
    CHOSEN("case-lacks-window-left", "a window that the case does not have: so many keys to the left",
           lacks_window_left, SOLVE_LISTED, any_size),
    CHOSEN("case-lacks-window-right", "a window that the case does not have: so many keys to the right",
           lacks_window_right, SOLVE_LISTED, any_size),
};

const mha__variant_list mha__variants_of_scores_solved = {NULL, 0, solved, sizeof solved / sizeof *solved};
