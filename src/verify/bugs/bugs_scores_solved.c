/* Bugs between q, k, v and the heads whose numbers have to be found: the numbers to try, and what
 * lists/scores_solved.h asks of a case. */
#include <math.h>

#include "verify/bugs/bugs.h"

/* clang-format off */
/* Fewer key/value heads than there are, such that groups of them are whole. */
NUMBERS(any_groups, (double)(index + 1), index + 1 < c->H_kv)

/* All sizes up to 256, then powers of two and their neighbours. */
static double size_at(size_t index)
{
    const size_t all = 257;
    return index < all ? (double)index : ldexp(1, (int)((index - all) / 3) + 9) + (double)((index - all) % 3) - 1;
}

/* As far as there are keys. */
NUMBERS(any_size, size_at(index), *x < (double)(c->P + c->T_k))

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

static bool is_count(double x)
{
    return x >= 0 && x <= 0x1p31 && x == floor(x);
}

/* Whether parts have nothing that all of them share. */
PREDICATE(is_divided, softens(c) && !has_weight(c, MHA_SINKS) && !c->semantics.softmax.softmax_plus_one)

static void merge_parts(mha__knobs *k, double keys, int bug)
{
    k->tile = (int64_t)keys;
    k->tile_bug = bug;
}

/* Fewer keys than there are, and several. */
NUMBERS(any_divisor, size_at(index + 2), *x < (double)(c->P + c->T_k))

/* Fewer keys than there are: up to 16, powers of two, and as many parts as up to 16. */
static bool any_part(const mha_case *c, size_t index, double *x)
{
    enum { FEW = 16, POWERS = 26 };
    const double keys = (double)(c->P + c->T_k), parts = (double)index - FEW - POWERS + 2;
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

/* Those of them that are several: a part of one key has nothing to merge. */
NUMBERS_OF(any_several, any_part(c, index + 1, x))
/* Every sixteenth key. */
NUMBERS(any_16th, 16 * (double)index, index <= 256 && *x < (double)(c->P + c->T_k))

/* 1, -1, 2, -2, ... as far as there are keys, and not beyond 32. */
static bool any_column(const mha_case *c, size_t index, double *x)
{
    const size_t pair = index / 2;
    const double size = (double)pair + 1;
    *x = index % 2 ? -size : size;
    return size <= 32 && 2 * size < (double)(c->P + c->T_k);
}

NUMBERS(any_batch, (double)index + 1, index + 1 < c->B && index < 64)
NUMBERS(any_parts, (double)index + 2, *x <= 256)
/* Powers of two from 2 on, smaller than the number of keys. */
NUMBERS(any_tile, ldexp(2, (int)index), index < 32 && *x < (double)(c->P + c->T_k))
/* Three of which are not more than there are keys: of two, nothing is left but the last one. */
NUMBERS_OF(any_of_three_tiles, any_tile(c, index, x) && 2 * *x < (double)(c->P + c->T_k))
/* Powers of two from 2 on, smaller than the number of queries. */
NUMBERS(any_query_tile, ldexp(2, (int)index), index < 32 && *x < (double)c->T_q)
/* Steps from one key to the next that is seen. */
NUMBERS(any_step, (double)index + 2, index < 7 && *x < (double)(c->P + c->T_k))
/* Powers of two: keys up to a multiple of one may be many more than there are. */
NUMBERS(any_padding, ldexp(2, (int)index), *x <= 1024)

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

/* Whether a rule hides keys by their places, also places beyond the last key. */
static bool hides_padded(const mha_case *c)
{
    const mha_visible *s = &c->semantics.visible;
    return s->causal || s->has_window_left || s->has_window_right || s->kv_lengths;
}

/* Whether a softmax has terms besides its keys, which are counted once. */
PREDICATE(adds_once, has_weight(c, MHA_SINKS) || has_weight(c, MHA_BIAS_K) || c->semantics.softmax.softmax_plus_one ||
    c->semantics.softmax.zero_row)

/* Key padding by numbers (B, S), of which 0 hides a key. */
static void keep(const mha_case *c, mha__knobs *k, const double *x)
{
    const size_t shape[] = {c->B, c->P + c->T_k};
    k->s.visible.key_padding = (mha_mask){MHA_MASK_KEEPS, mha_view_of(mha__unconst(x), MHA_F64, 2, shape)};
    k->s.visible.has_padding_fill = false;
}

/* All lengths, the whole one first. */
NUMBERS(any_length, (double)(c->P + c->T_k - index), index < c->P + c->T_k)

/* What hidden scores are filled with, or raised by, too weakly to hide them. */
static bool any_fill(const mha_case *c, size_t index, double *x)
{
    static const double fills[] = {-1, 1, -2, -5, -8, -10, -20, -30, -50, -100, -1000};
    (void)c;
    *x = index < sizeof fills / sizeof *fills ? fills[index] : 0;
    return index < sizeof fills / sizeof *fills;
}

/* Fewer features than a head has: powers of two, or all but so many. */
static bool any_width(const mha_case *c, size_t index, double *x)
{
    const double size = ldexp(1, (int)(index / 2));
    const double rest = (double)c->d_k - size;
    *x = index % 2 == 0 ? size : rest == exp2(floor(log2(rest))) ? 0 : rest; /* each once; 0: none */
    return size < (double)c->d_k;
}
/* clang-format on */

#define LIST mha__bugs_of_scores_solved
#define LIST_FILE "verify/bugs/lists/scores_solved.h"
#include "verify/bugs/lists/list.h"
