/* The stages of a backward, each once: its name and equation, the stage of the forward whose shape it has, and which
 * step makes it where. Kept stages are copied as the steps make
 * them, and handed out. A backward of low precision rounds what each step made. */
#include <stddef.h>
#include <string.h>

#include "attention/core/backward/backward.h"
#include "attention/core/exact/rounding.h"

#define IN_MAP(made) offsetof(mha__map, made)
#define IN_ALL(made) offsetof(mha__backward, made)

/* clang-format off */
static const mha__backward_stage rows[] = {
    [MHA_BACKWARD_D_HEADS] = {{"d_heads", "dO, gradient of the heads: d_output, with a layer through W_O and the gate",
        "grad_heads d_attn_output", MHA_STAGE_HEADS}, MHA__BACKWARD_OUTPUT, IN_ALL(d_heads)},
    [MHA_BACKWARD_D_WEIGHTS] = {{"d_weights", "dP = dO V^T, gradient of the weights; any number where a key is hidden",
        "dP dp grad_weights grad_attn_weights d_attn", MHA_STAGE_WEIGHTS}, MHA__BACKWARD_WEIGHTS, IN_MAP(d_weights)},
    [MHA_BACKWARD_ROW_SUMS] = {{"row_sums", "D = the sum over the keys of weights * d_weights, which is dO . O",
        "D delta Delta softmax_d dsoftmax_sum", MHA_STAGE_LSE}, MHA__BACKWARD_SUMS, IN_MAP(sums)},
    [MHA_BACKWARD_D_MASKED] = {{"d_masked", "dZ = weights * (d_weights - row_sums + d_lse), gradient of masked",
        "dZ dz grad_masked", MHA_STAGE_MASKED}, MHA__BACKWARD_MASKED, IN_MAP(d_masked)},
    [MHA_BACKWARD_D_SCORES] = {{"d_scores", "dS = d_masked / cosh^2(scores / softcap), gradient of scores",
        "dS ds grad_scores d_logits dlogits", MHA_STAGE_SCORES}, MHA__BACKWARD_SCORES, IN_MAP(d_scores)},
    [MHA_BACKWARD_D_Q_ROT] = {{"d_q_rot", "dQ = scale * d_scores K, gradient of q_rot",
        "grad_q_rot dq_rot", MHA_STAGE_Q_ROT}, MHA__BACKWARD_HEADS, IN_ALL(d[MHA_D_QUERY])},
    [MHA_BACKWARD_D_K_ROT] = {{"d_k_rot", "dK = scale * d_scores^T Q, gradient of k_rot, of all heads of a group",
        "grad_k_rot dk_rot", MHA_STAGE_K_ROT}, MHA__BACKWARD_HEADS, IN_ALL(d[MHA_D_KEY])},
    [MHA_BACKWARD_D_V] = {{"d_v", "dV = weights^T dO, gradient of v, of all heads of a group",
        "d_v_proj", MHA_STAGE_V}, MHA__BACKWARD_HEADS, IN_ALL(d[MHA_D_VALUE])},
};
/* clang-format on */
_Static_assert(sizeof rows / sizeof *rows == MHA_BACKWARD_STAGE_COUNT, "a row for every stage");

const mha__backward_stage *mha__backward_stage_of(mha_backward_stage stage)
{
    return &rows[stage];
}

const mha_backward_stage_info *mha_backward_stage_at(mha_backward_stage stage)
{
    return (unsigned)stage < MHA_BACKWARD_STAGE_COUNT ? &rows[stage].shown : NULL;
}

int mha_backward_stage_shape(const mha_plan *plan, mha_backward_stage stage, size_t shape[4])
{
    mha__resolved r = *mha__plan_resolved(plan);
    if ((unsigned)stage >= MHA_BACKWARD_STAGE_COUNT)
        return 0;
    if (r.latent.absorbed) /* whose backward is that of the call without it */
        r.plan.h_kv = r.plan.h, r.plan.d_k = r.latent.d_n + r.latent.d_r, r.plan.d_v = r.latent.d_v;
    return mha__stage_shape(&r, rows[stage].shown.like, shape);
}

bool mha__backward_begin_stages(mha__backward *b)
{
    for (size_t i = 0; i < b->given->keep_count; i++) {
        const mha_backward_keep *keep = &b->given->keep[i];
        const mha_view *of = &keep->view;
        if (of->data && !(b->kept[keep->stage] = mha__arena_view(&b->memory, MHA_F64, of->rank, of->shape)).data)
            return false;
    }
    return true;
}

const mha_view *mha__backward_stage_made(const mha__backward *b, mha_backward_stage stage, mha__backward_step step)
{
    const mha__backward_stage *row = mha__backward_stage_of(stage);
    return row->made == step ? (const mha_view *)(const void *)((const char *)b + row->at) : NULL;
}

double *mha__backward_kept_at(const mha__backward *b, mha_backward_stage stage, const mha__map *map, size_t i,
                              size_t j)
{
    const mha_view *kept = &b->kept[stage];
    if (!kept->data)
        return NULL;
    const size_t row = (map->b * kept->shape[1] + map->head) * kept->shape[2] + i;
    return (double *)kept->data + (kept->rank == 4 ? row * kept->shape[3] + j : row);
}

/* The result of a step for a map. */
static void keep_map(const mha__backward *b, mha_backward_stage stage, const mha__map *map)
{
    const double *made = *(double *const *)(const void *)((const char *)map + mha__backward_stage_of(stage)->at);
    const size_t n = b->kept[stage].rank == 4 ? map->n : 1;
    for (size_t i = 0; i < map->s.T_q; i++)
        memcpy(mha__backward_kept_at(b, stage, map, i, 0), made + i * n, n * sizeof *made);
}

void mha__backward_keep(const mha__backward *b, mha__backward_step step, const mha__map *map)
{
    for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++) {
        const mha_view *kept = &b->kept[s];
        const mha_view *made = mha__backward_stage_made(b, (mha_backward_stage)s, step);
        if (!kept->data || !made)
            continue;
        if (map)
            keep_map(b, (mha_backward_stage)s, map);
        else
            memcpy(kept->data, made->data, mha_view_elements(kept) * sizeof(double));
    }
}

void mha__backward_hand_stages(const mha__backward *b, mha_dtype type, const mha_gradients *to)
{
    for (size_t i = 0; i < to->keep_count; i++) {
        const mha_backward_keep *keep = &to->keep[i];
        const mha_view *kept = &b->kept[keep->stage];
        if (!keep->view.data)
            continue;
        if (mha__backward_stage_of(keep->stage)->made == MHA__BACKWARD_HEADS)
            mha__round_all(type, kept->data, mha_view_elements(kept));
        (void)mha_view_copy(&keep->view, kept, NULL);
    }
}

/* ---------------------------------------------------------------- low precision */

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
    if (p->block_rows > 0 && p->gradients == MHA_F32)
        return mha__fail(error, MHA_INVALID, "precision.block_rows",
                         "expected `precision.gradients` with it, found it unset");
    for (size_t i = 0; layer && i < sizeof points / sizeof *points; i++)
        if (points[i].type != MHA_F32)
            return mha__fail(error, MHA_UNSUPPORTED, "precision", "expected no layer with it, found one");
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
