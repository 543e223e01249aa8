/* The numbers of a whole layer, from input to output, for the walk through the computation. */
#include "picture/walk.h"

#include <string.h>

#include "attention/resolved.h"

static const mha_stage kept[] = {MHA_STAGE_Q,     MHA_STAGE_K,      MHA_STAGE_V,       MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT,
                                 MHA_STAGE_SCORES, MHA_STAGE_CAPPED, MHA_STAGE_MASKED, MHA_STAGE_WEIGHTS,
                                 MHA_STAGE_HEADS, MHA_STAGE_OUTPUT};
enum { KEPT = sizeof kept / sizeof *kept };

typedef struct walker {
    mha__walk *walk;
    mha__arena *memory;
    mha__attempt attempt;
    const mha__resolved *r;
    mha__sequence sequence;
} walker;

/* Adds a copy in float64; a view without data adds nothing. */
static mha_status add(walker *w, const char *name, const mha_view *from, mha_error *error)
{
    if (!from->data)
        return MHA_OK;
    mha__walk_array *array = &w->walk->arrays[w->walk->count];
    array->name = name;
    array->view = mha__arena_view(w->memory, MHA_F64, from->rank, from->shape);
    if (!array->view.data)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for the numbers of %s", name);
    w->walk->count++;
    TRY(mha_view_copy(&array->view, from));
    if (from->rank == 3) /* (T, h, d): heads side by side */
        array->view = mha_view_of(array->view.data, MHA_F64, 2,
                                  (size_t[]){from->shape[0], from->shape[1] * from->shape[2]});
    return MHA_OK;
}

/* Rows [from, from + count) of one batch row of an input or a stage, (B, T, width) or (B, T, h, d), without its batch
 * axis. */
static mha_view rows_of(mha_view v, size_t batch, size_t from, size_t count)
{
    if (!v.data)
        return v;
    v = mha_view_slice(&v, 0, batch, 1);
    v = mha_view_slice(&v, 1, from, count);
    v.rank--;
    memmove(v.shape, v.shape + 1, (size_t)v.rank * sizeof *v.shape);
    memmove(v.stride, v.stride + 1, (size_t)v.rank * sizeof *v.stride);
    return v;
}

static mha_status add_inputs(walker *w, mha_error *error)
{
    const mha__sequence *s = &w->sequence;
    const mha__resolved *r = w->r;
    const mha_view x_q = rows_of(r->query, s->batch, s->q_from, s->T_q);
    const mha_view x_k = rows_of(r->key_follows ? r->query : r->key, s->batch, s->k_from, s->T_k);
    const mha_view x_v = rows_of(r->value_follows ? (r->key_follows ? r->query : r->key) : r->value, s->batch,
                                 s->k_from, s->T_k);
    TRY(add(w, "x_q", &x_q, error));
    TRY(add(w, "x_k", &x_k, error));
    return add(w, "x_v", &x_v, error);
}

static mha_status add_stages(walker *w, mha_error *error)
{
    const mha__sequence *s = &w->sequence;
    for (size_t i = 0; i < KEPT; i++) {
        mha_view stage = w->attempt.stages[kept[i]];
        if (!stage.data)
            continue;
        const bool of_keys = kept[i] == MHA_STAGE_K || kept[i] == MHA_STAGE_V || kept[i] == MHA_STAGE_K_ROT;
        if (stage.rank == 4) {
            stage = mha_view_slice(&stage, 0, w->walk->sequence, 1);
            stage = mha_view_slice(&stage, 2, 0, s->T_q);
            stage = mha_view_slice(&stage, 3, 0, s->S + w->attempt.plan.S_extra);
        } else
            stage = rows_of(stage, s->batch, of_keys ? s->k_from : s->q_from, of_keys ? s->T_k : s->T_q);
        TRY(add(w, mha_stage_name(kept[i]), &stage, error));
    }
    for (mha_weight i = 0; i < MHA_WEIGHT_COUNT; i++)
        TRY(add(w, mha_weight_name(i), &w->r->weight[i], error));
    return MHA_OK;
}

static size_t numbers_of(const walker *w)
{
    const mha__sequence *s = &w->sequence;
    const mha_plan *p = &w->attempt.plan;
    size_t count = 6 * p->h * s->T_q * (s->S + p->S_extra);
    for (mha_weight i = 0; i < MHA_WEIGHT_COUNT; i++)
        count += w->r->weight[i].data ? mha_view_elements(&w->r->weight[i]) : 0;
    return count + (s->T_q + s->T_k) * (p->h * (p->d_k + p->d_v) + p->d_out + w->r->query.shape[2]);
}

/* Why a call has no walk; NULL when it has one. */
static const char *reason_against(const walker *w)
{
    if (w->sequence.S != w->sequence.T_k)
        return "Some keys come from a cache, so that the inputs behind them are not known.";
    const mha_semantics *m = &w->r->semantics;
    if (m->prefix > 0 || m->window_keep > 0 || m->chunk > 0)
        return "A page does not say yet why a prefix, a chunk or the keys that a window keeps hide a key.";
    if (numbers_of(w) > MHA__WALK_NUMBERS)
        return "The layer has too many numbers for a page: choose fewer tokens or a smaller layer.";
    return NULL;
}

static mha_status walk(walker *w, mha__picture_layer *layer, size_t sequence, mha_error *error)
{
    w->r = mha__plan_resolved(&w->attempt.plan);
    w->sequence = mha__resolved_sequence(w->r, sequence);
    layer->no_walk = reason_against(w);
    if (layer->no_walk)
        return MHA_OK;
    bool wanted[MHA_STAGE_COUNT] = {false};
    for (size_t i = 0; i < KEPT; i++)
        wanted[kept[i]] = true;
    TRY(mha__attempt_run(&w->attempt, MHA_BTE, wanted, error));
    w->r = mha__plan_resolved(&w->attempt.plan);
    w->walk = mha__arena_take(w->memory, sizeof *w->walk);
    if (!w->walk)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for a walk");
    const mha_semantics *m = &w->r->semantics;
    *w->walk = (mha__walk){.sequence = sequence,
                           .scale = w->r->plan.scale,
                           .softcap = m->softcap,
                           .causal = m->causal,
                           .window = m->window,
                           .window_left = m->window_left,
                           .window_right = m->window_right,
                           .offset = w->sequence.offset - w->r->first_key,
                           .length = m->kv_lengths ? m->kv_lengths[sequence] - w->r->first_key : -1,
                           .rope = m->rope.kind,
                           .rope_dim = w->r->rope_dim};
    TRY(add_inputs(w, error));
    TRY(add_stages(w, error));
    layer->walk = w->walk;
    return MHA_OK;
}

mha_status mha__walk_add(mha__picture_layer *layer, mha__arena *memory, const mha__request *request, size_t sequence,
                         mha_error *error)
{
    mha_call call = *request->call;
    call.path = MHA_PATH_EXACT;
    mha__request exact = *request;
    exact.call = &call;
    walker w = {.memory = memory};
    mha_status status = mha__attempt_begin(&w.attempt, &memory->allocator, &exact, error);
    if (status == MHA_OK)
        status = walk(&w, layer, sequence, error);
    mha__attempt_free(&w.attempt);
    return status;
}
