/* Where a backward of low precision rounds, in float64: points, presets, and what each step made. */
#include "attention/core/backward/backward.h"
#include "attention/core/exact/rounding.h"

mha_backward_precision mha_backward_precision_of(mha_dtype type)
{
    if (type != MHA_F16 && type != MHA_BF16)
        return (mha_backward_precision){.scores = MHA_F32};
    return (mha_backward_precision){.probabilities = type, .output = type, .d_scores = type, .gradients = type};
}

mha_status mha__backward_precision_check(const mha_layer *layer, const mha_backward_precision *p, mha_error *error)
{
    const struct {
        const char *name;
        mha_dtype type;
    } points[] = {{"precision.scores", p->scores},       {"precision.weights", p->weights},
                  {"precision.probabilities", p->probabilities}, {"precision.output", p->output},
                  {"precision.d_weights", p->d_weights}, {"precision.d_scores", p->d_scores},
                  {"precision.sums", p->sums},           {"precision.gradients", p->gradients}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        if (points[i].type != MHA_F32 && points[i].type != MHA_F16 && points[i].type != MHA_BF16)
            return mha__fail(error, MHA_INVALID, points[i].name, "expected F32, F16 or BF16, found %s",
                             mha_dtype_name(points[i].type));
    for (size_t i = 0; layer && i < sizeof points / sizeof *points; i++)
        if (points[i].type != MHA_F32)
            return mha__fail(error, MHA_UNSUPPORTED, "precision", "is that of a kernel of attention, without a layer");
    return MHA_OK;
}

void mha__backward_round(const mha__backward *b, mha__backward_step step, mha__map *map)
{
    const mha_backward_precision *p = &b->given->precision;
    if (!map)
        return;
    const size_t pairs = map->s.T_q * map->n;
    if (step == MHA__BACKWARD_READ)
        mha__round_all(p->weights, map->weights, pairs);
    if (step == MHA__BACKWARD_WEIGHTS)
        mha__round_all(p->d_weights, map->d_weights, pairs);
    if (step == MHA__BACKWARD_SCORES) {
        mha__round_all(p->d_scores, map->d_masked, pairs);
        mha__round_all(p->d_scores, map->d_scores, pairs);
    }
    if (step == MHA__BACKWARD_ADDED) {
        mha__round_all(p->gradients, map->dQ, map->s.T_q * b->r->plan.d_k);
        mha__round_all(p->gradients, map->dK, map->n * b->r->plan.d_k);
        mha__round_all(p->gradients, map->dV, map->n * b->r->plan.d_v);
    }
}
