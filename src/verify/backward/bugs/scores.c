/* Scores and weights of a map, as bugs compute them once more. */
#include <math.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_visible.h"
#include "attention/core/terms/terms.h"
#include "base/dot.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/mutate/mutation.h"
#include "verify/thresholds/thresholds.h"

bool mha__is_softmax(const mha__backward *b)
{
    return mha__semantics_of(b->r)->softmax.normaliser == MHA_SOFTMAX;
}

double mha__score_of(const mha__backward *b, const mha__map *map, size_t i, size_t j)
{
    const size_t d = b->r->plan.d_k;
    return mha__dot(map->Q + i * d, map->K + j * d, d) * b->r->plan.scale;
}

double mha__d_weight_of(const mha__backward *b, const double *dO, const double *V)
{
    return mha__dot(dO, V, b->r->plan.d_v);
}

double mha__scale_of(const mha__backward *b, mha__other_scale which)
{
    const mha__sizes *p = &b->r->plan;
    const double d = (double)p->d_k, padded = exp2(ceil(log2(d))),
                 scales[] = {[MHA__SCALE_MISSING] = 1,
                             [MHA__SCALE_TWICE] = p->scale * p->scale,
                             [MHA__SCALE_DEFAULT] = 1 / sqrt(d),
                             [MHA__SCALE_OF_VALUES] = 1 / sqrt((double)p->d_v),
                             [MHA__SCALE_OF_PADDED] = 1 / sqrt(padded),
                             [MHA__SCALE_OF_MODEL] = 1 / sqrt((double)p->h * d),
                             [MHA__SCALE_OVER_WIDTH] = 1 / d,
                             [MHA__SCALE_TIMES_LOG2E] = p->scale * MHA__LOG2_E,
                             [MHA__SCALE_TIMES_LN2] = p->scale * MHA__LN_2};
    return scales[which];
}

bool mha__has_scale(const mha__backward *b, mha__other_scale which)
{
    const double scale = mha__scale_of(b, which);
    bool other = !(fabs(scale / b->r->plan.scale - 1) < MHA__OTHER_SCALE);
    for (int before = 0; before < (int)which && other; before++)
        other = !(fabs(scale / mha__scale_of(b, (mha__other_scale)before) - 1) < MHA__OTHER_SCALE);
    return other;
}

double mha__slope_of(double score, double cap)
{
    const double turn = cap > 0 ? cosh(score / cap) : 1;
    return 1 / (turn * turn);
}

/* A mask hides the keys after its last one. */
static bool reaches(const mha_mask *mask, size_t j)
{
    const size_t keys = mask->kind == MHA_MASK_ADDITIVE ? mask->values.shape[mask->values.rank - 1] : 1;
    return keys == 1 || j < keys;
}

bool mha__has_terms(const mha__backward *b, const mha__map *map, size_t i, size_t j)
{
    const mha_semantics *s = mha__semantics_of(b->r);
    const size_t n = b->r->weight[MHA_BIAS_TABLE].shape[0];
    const int64_t p = map->s.offset + (int64_t)i, q = b->r->first_key + (int64_t)j;
    return reaches(&s->visible.mask, j) && reaches(&s->visible.key_padding, j) &&
           (s->added.bias.rule == MHA_BIAS_RULE_NONE || mha__bias_row(&s->added.bias, n, p, q) < n);
}

void mha__make_map(mha__backward *b, size_t sequence, size_t head)
{
    mha__map_read(b, sequence, head);
    mha__map_weights(b, &b->map), mha__map_sums(b, &b->map);
    mha__map_masked(b, &b->map), mha__map_scores(b, &b->map);
}

bool mha__can_weigh_again(const mha__backward *b)
{
    return mha__is_softmax(b) && b->r->plan.S_extra == 0 &&
           mha__semantics_of(b->r)->added.relative.rule == MHA_RELATIVE_NONE && !b->given->whole.lse.data;
}

void mha__weigh_again(const mha__backward *b, mha__map *map)
{
    const mha_allocator a = mha__allocator_default();
    const size_t S = map->s.S, bytes = S * (sizeof(double) + 1);
    const double cap = mha__semantics_of(b->r)->softmax.softcap;
    const size_t first = mha__semantics_of(b->r)->place.cu_seqlens_q ? 0 : map->s.q_from; /* of its sequence */
    double *added = mha__allocate(&a, bytes + 1);
    for (size_t i = 0; added && i < map->s.T_q; i++) {
        mha__exact_see(b->r, &map->s, map->b, map->head, first + i, (unsigned char *)(added + S), added);
        for (size_t j = 0; j < S; j++) {
            const size_t at = i * map->n + j;
            if (map->seen[at] != MHA__SEEN)
                continue;
            const double score = mha__score_of(b, map, i, j), capped = cap > 0 ? cap * tanh(score / cap) : score;
            map->weights[at] = exp(capped + added[j] - map->lse[i]);
            map->slope[at] = mha__slope_of(score, cap);
        }
    }
    mha__release(&a, added, bytes + 1);
}
