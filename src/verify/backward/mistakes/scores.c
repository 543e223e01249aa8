/* Scores and weights of a map, as mistakes compute them once more. */
#include <math.h>

#include "attention/exact/exact_visible.h"
#include "verify/backward/mistakes/scores.h"

bool mha__is_softmax(const mha__backward *b)
{
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX;
}

double mha__softcapped(const mha__backward *b, double score)
{
    const double c = b->r->semantics.softmax.softcap;
    return c > 0 ? c * tanh(score / c) : score;
}

double mha__score_of(const mha__backward *b, const mha__map *map, size_t i, size_t j)
{
    const size_t d = b->r->plan.d_k;
    double sum = 0;
    for (size_t c = 0; c < d; c++)
        sum += map->Q[i * d + c] * map->K[j * d + c];
    return sum * b->r->plan.scale;
}

double mha__d_weight_of(const mha__backward *b, const double *dO, const double *V)
{
    double sum = 0;
    for (size_t c = 0; c < b->r->plan.d_v; c++)
        sum += dO[c] * V[c];
    return sum;
}

static double slope_at(const mha__backward *b, double score)
{
    const double c = b->r->semantics.softmax.softcap, turn = c > 0 ? cosh(score / c) : 1;
    return 1 / (turn * turn);
}

void mha__show_pair(const mha__backward *b, mha__map *map, size_t i, size_t j, bool shows, double added)
{
    const size_t at = i * map->n + j, d_v = b->r->plan.d_v;
    if ((map->seen[at] == MHA__SEEN) == shows || !isfinite(map->lse[i]))
        return;
    const double score = mha__score_of(b, map, i, j);
    if (!isfinite(score))
        return;
    map->seen[at] = shows ? MHA__SEEN : MHA__HIDDEN;
    map->weights[at] = shows ? exp(mha__softcapped(b, score) + added - map->lse[i]) : 0;
    map->slope[at] = slope_at(b, score);
    map->d_weights[at] = mha__d_weight_of(b, map->dO + i * d_v, map->V + j * d_v);
}

bool mha__can_weigh_again(const mha__backward *b)
{
    return mha__is_softmax(b) && b->r->plan.S_extra == 0 &&
           b->r->semantics.added.relative.rule == MHA_RELATIVE_NONE && !b->given->whole.lse.data;
}

void mha__weigh_again(const mha__backward *b, mha__map *map)
{
    const mha_allocator a = mha__allocator_default();
    const size_t S = map->s.S, bytes = S * (sizeof(double) + 1);
    double *added = mha__allocate(&a, bytes + 1);
    for (size_t i = 0; added && i < map->s.T_q; i++) {
        mha__exact_see(b->r, &map->s, map->b, map->head, i, (unsigned char *)(added + S), added);
        for (size_t j = 0; j < S; j++) {
            const size_t at = i * map->n + j;
            if (map->seen[at] != MHA__SEEN)
                continue;
            const double score = mha__score_of(b, map, i, j);
            map->weights[at] = exp(mha__softcapped(b, score) + added[j] - map->lse[i]);
            map->slope[at] = slope_at(b, score);
        }
    }
    mha__release(&a, added, bytes + 1);
}
