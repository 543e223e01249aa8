/* The regimes of the suite: where the numbers of q, k and v come from. All factors are powers of two, and sums are
 * exact before they are rounded to the type of the test case, so that every machine makes the same bytes. */
#include <math.h>
#include <string.h>

#include "verify/conform/conform.h"

typedef mha__conform_element element;

/* clang-format off */
#define REGIME(name, number) static double name(const element *e) { return number; }

REGIME(normal, e->n)

/* A multiple of 2^-bits: sums of products of such numbers are exact in float32, in any order. */
static double coarse(double n, int bits)
{
    return ldexp(floor(ldexp(n, bits)), -bits);
}

/* Feature 0 of q and k decides over the size of the scores, in which float32 has no rounding. */
static double all_scores(const element *e, double q, double k)
{
    return e->tensor == 2 ? e->n : e->i > 0 ? coarse(e->n, 3) : e->tensor == 0 ? q : k;
}

REGIME(deep_negative, all_scores(e, -128, 64))
REGIME(below_lowest, e->tensor == 2 ? e->n : e->i == 0 ? (e->tensor ? 1024 : -1024) : coarse(e->n, 1))
REGIME(large_logits, e->tensor == 0 ? 32 * e->n : e->n)
REGIME(cancelling_values, e->tensor == 0 ? e->n / 16 : e->tensor == 1 ? e->n : e->n + (e->t % 2 ? 256 : -256))

/* The key that dominates is the first, the last or the one in the middle, head by head. */
static double dominant_key(const element *e)
{
    const size_t keys[] = {e->T - 1, 0, e->T / 2};
    return all_scores(e, 32, e->t == keys[(e->head + e->b) % 3] ? 32 : 0);
}

REGIME(equal_scores, e->tensor == 0 ? 0 : coarse(e->n, 3))
/* Scores that grow from key to key, so that an online softmax has another maximum in every tile; or that fall. */
REGIME(rising, all_scores(e, 32, ldexp((double)e->t, -3)))
REGIME(falling, all_scores(e, -32, ldexp((double)e->t, -3)))
/* One number in three is below the smallest normal one of its type. */
REGIME(subnormal, (e->t + e->i) % 3 ? e->n : ldexp(e->n, e->dtype == MHA_F16 ? -18 : -130))
REGIME(large_values, e->tensor < 2 ? e->n : ldexp(e->n, e->dtype == MHA_F16 ? 12 : 60))
/* Value t has a 1 in feature t mod d_v, and 0 elsewhere: the output shows the weights. */
REGIME(unit_values, e->tensor == 2 ? e->t % e->d == e->i : 2 * e->n)
/* clang-format on */

static const mha__conform_regime regimes[] = {
    {{"normal", "random numbers about 0"}, normal, 0},
    {{"deep-negative", "all scores of every row are far below 0: a maximum that begins at 0, or a key of zeros behind "
                       "the last, takes everything"}, deep_negative, 0},
    {{"below-lowest", "scores below -65,504, which is less than some kernels' minus infinity"}, below_lowest, 0},
    {{"large-logits", "scores of hundreds, of both signs"}, large_logits, 0},
    {{"cancelling-values", "values near 256 and -256, nearly equal weights: the output is what is left"},
     cancelling_values, 0},
    {{"dominant-key", "one key has nearly all the weight: the first, the last or one in the middle"}, dominant_key, 0},
    {{"equal-scores", "all scores are 0: the output counts the keys"}, equal_scores, 0},
    {{"rising", "scores that grow with the key: every tile has a new maximum"}, rising, 0},
    {{"falling", "scores that fall with the key"}, falling, 0},
    {{"subnormal", "one number in three is subnormal; the rest outweighs it, whether it is kept or flushed"}, subnormal,
     0},
    {{"large-values", "values near the end of float16's range, or of 2^60"}, large_values, 0},
    {{"unit-values", "values are rows of a unit matrix: the output shows the weights"}, unit_values, 0},
    {{"hidden-huge", "keys and values behind the lengths, and padded ones, hold 2^15"}, normal, 32768},
    {{"hidden-nan", "values behind the lengths, and padded ones, are NaN"}, normal, NAN},
};

const mha__conform_regime *mha__conform_regime_of(const char *name)
{
    for (size_t i = 0; i < sizeof regimes / sizeof *regimes; i++)
        if (strcmp(regimes[i].word.name, name) == 0)
            return &regimes[i];
    return NULL;
}

const mha_conform_word *mha_conform_regime_at(size_t index)
{
    return index < sizeof regimes / sizeof *regimes ? &regimes[index].word : NULL;
}
