/* Compares the stages that a forward kept with those of the oracle, element by element. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/compare.h"

static size_t unravel(size_t at, int rank, const size_t *shape, size_t index[4])
{
    size_t rest = at;
    memset(index, 0, 4 * sizeof *index);
    for (int k = rank - 1; k >= 0; k--) {
        index[k] = rest % shape[k];
        rest /= shape[k];
    }
    return at;
}

/* Difference over allowance: at most 1 is right. */
static double badness(double found, double expected, double slack, mha_dtype dtype)
{
    if (isinf(slack))
        return 0;
    if (isnan(expected) || isnan(found))
        return isnan(expected) && isnan(found) ? 0 : (double)INFINITY;
    if (isinf(expected))
        return found == expected ? 0 : (double)INFINITY;
    const double most = fabs(expected) + slack; /* of the number that is rounded to its type */
    const double storing = dtype == MHA_F32 ? 0x1p-24 * most + 0x1p-149 : 0x1p-53 * most + 0x1p-1074;
    if (dtype == MHA_F32 && most > (double)FLT_MAX)
        return 0; /* the type cannot hold it */
    return fabs(found - expected) / (slack + storing);
}

bool compare_stage(const char *name, const mha_view *found, const oracle_stage *expected, char *text, size_t size)
{
    size_t worst = 0, wrong = 0, index[4];
    double most = -1;
    if (found->rank != expected->rank ||
        memcmp(found->shape, expected->shape, sizeof *found->shape * (size_t)found->rank) != 0) {
        snprintf(text, size, "%s: the shapes differ", name);
        return false;
    }
    for (size_t e = 0; e < expected->elements; e++) {
        unravel(e, expected->rank, expected->shape, index);
        double bad = badness(oracle_get(found, index[0], index[1], index[2], index[3]), expected->value[e],
                             expected->slack[e], found->dtype);
        wrong += !(bad <= 1);
        if (bad > most)
            most = bad, worst = e;
    }
    if (wrong == 0)
        return true;
    unravel(worst, expected->rank, expected->shape, index);
    snprintf(text, size,
             "%s: %zu of %zu elements wrong; worst at (%zu, %zu, %zu, %zu): found %.9g, expected %.17g within %.3g",
             name, wrong, expected->elements, index[0], index[1], index[2], index[3],
             oracle_get(found, index[0], index[1], index[2], index[3]), expected->value[worst], expected->slack[worst]);
    return false;
}

bool compare_bits(const char *name, const mha_view *a, const mha_view *b, char *text, size_t size)
{
    size_t n = 1, index[4];
    for (int k = 0; k < a->rank; k++)
        n *= a->shape[k];
    for (size_t e = 0; e < n; e++) {
        unravel(e, a->rank, a->shape, index);
        double x = oracle_get(a, index[0], index[1], index[2], index[3]),
               y = oracle_get(b, index[0], index[1], index[2], index[3]);
        bool same = (isnan(x) && isnan(y)) || (x == y && !signbit(x) == !signbit(y));
        if (!same) {
            snprintf(text, size, "%s: not the same bits at (%zu, %zu, %zu, %zu): %.9g and %.9g", name, index[0],
                     index[1], index[2], index[3], x, y);
            return false;
        }
    }
    return true;
}
