/* The numbers of a whole layer, from input to output, for the walk through the computation. */
#include "picture/walk.h"

#include <string.h>

#include "attention/resolved.h"

static const mha_stage kept[] = {MHA_STAGE_Q,       MHA_STAGE_K,      MHA_STAGE_V,      MHA_STAGE_Q_ROT,
                                 MHA_STAGE_K_ROT,   MHA_STAGE_SCORES, MHA_STAGE_CAPPED, MHA_STAGE_MASKED,
                                 MHA_STAGE_WEIGHTS, MHA_STAGE_HEADS,  MHA_STAGE_OUTPUT};
enum { KEPT = sizeof kept / sizeof *kept };

typedef struct walker {
    mha__walk *walk;
    mha__arena *memory;
    mha__attempt attempt;
    const mha__resolved *r;
    mha__sequence sequence;
    size_t heads[2];  /* of scores and weights: from the first to before the second */
    bool has_weights; /* there is room for their matrices */
} walker;

/* Whether it is one of W_Q, W_K, W_V, W_O. */
static bool is_matrix(const char *name)
{
    return name[0] == 'W' && name[1] == '_';
}

/* Adds a copy in float64; a view without data adds nothing. */
static mha_status add(walker *w, const char *name, const mha_view *from, mha_error *error)
{
    if (!from->data)
        return MHA_OK;
    mha__walk_array *array = &w->walk->arrays[w->walk->count];
    array->name = name;
    if (is_matrix(name) && !w->has_weights) {
        array->view = mha_view_of(NULL, MHA_F64, from->rank, from->shape);
        w->walk->count++;
        return MHA_OK;
    }
    array->view = mha__arena_view(w->memory, MHA_F64, from->rank, from->shape);
    if (!array->view.data)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for the numbers of %s", name);
    w->walk->count++;
    TRY(mha_view_copy(&array->view, from));
    if (from->rank == 3) /* (T, h, d): heads side by side */
        array->view =
            mha_view_of(array->view.data, MHA_F64, 2, (size_t[]){from->shape[0], from->shape[1] * from->shape[2]});
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
    const mha_view x_v =
        rows_of(r->value_follows ? (r->key_follows ? r->query : r->key) : r->value, s->batch, s->k_from, s->T_k);
    TRY(add(w, "x_q", &x_q, error));
    TRY(add(w, "x_k", &x_k, error));
    return add(w, "x_v", &x_v, error);
}

/* A stage of the walk's sequence. Keys and values of a call with a cache are all those that it reads. */
static mha_view stage_of(const walker *w, mha_stage stage)
{
    const mha__sequence *s = &w->sequence;
    const bool of_keys = stage == MHA_STAGE_K || stage == MHA_STAGE_V || stage == MHA_STAGE_K_ROT;
    if (w->walk->past > 0 && (stage == MHA_STAGE_K_ROT || stage == MHA_STAGE_V)) {
        const mha_stage present = stage == MHA_STAGE_V ? MHA_STAGE_PRESENT_VALUE : MHA_STAGE_PRESENT_KEY;
        return rows_of(mha_view_swap(&w->attempt.stages[present], 1, 2), s->batch, 0, s->S);
    }
    mha_view view = w->attempt.stages[stage];
    if (!view.data || view.rank != 4)
        return rows_of(view, s->batch, of_keys ? s->k_from : s->q_from, of_keys ? s->T_k : s->T_q);
    view = mha_view_slice(&view, 0, w->walk->sequence, 1);
    view = mha_view_slice(&view, 1, w->heads[0], w->heads[1] - w->heads[0]);
    view = mha_view_slice(&view, 2, 0, s->T_q);
    return mha_view_slice(&view, 3, 0, s->S + w->attempt.plan.S_extra);
}

static mha_status add_stages(walker *w, mha_error *error)
{
    for (size_t i = 0; i < KEPT; i++) {
        const mha_view stage = stage_of(w, kept[i]);
        TRY(add(w, mha_stage_name(kept[i]), &stage, error));
    }
    for (mha_weight i = 0; i < MHA_WEIGHT_COUNT; i++)
        TRY(add(w, mha_weight_name(i), &w->r->weight[i], error));
    return MHA_OK;
}

/* The numbers of a walk without matrices, and of these. */
static void count_numbers(const walker *w, size_t *stages, size_t *matrices)
{
    const mha__sequence *s = &w->sequence;
    const mha_plan *p = &w->attempt.plan;
    *stages = 6 * (w->heads[1] - w->heads[0]) * s->T_q * (s->S + p->S_extra);
    *stages += (s->T_q + s->S) * (p->h * (p->d_k + p->d_v) + p->d_out + w->r->query.shape[2]);
    *matrices = 0;
    for (mha_weight i = 0; i < MHA_WEIGHT_COUNT; i++)
        *(is_matrix(mha_weight_name(i)) ? matrices : stages) +=
            w->r->weight[i].data ? mha_view_elements(&w->r->weight[i]) : 0;
}

/* Why a call has no walk; NULL when it has one. */
static const char *reason_against(const mha__resolved *r, size_t stages)
{
    const mha_norm_rule *n = &r->semantics.norm;
    if (r->weight[MHA_W_G].data)
        return "A gate on the heads is not part of a walk.";
    if (n->kind != MHA_NORM_RMS || n->plus_one || n->after_rope || n->unweighted || r->semantics.query_scale.growth > 0)
        return "Norms other than RMS before the rotation, and queries scaled by position, are not part of a walk.";
    return stages <= MHA__WALK_NUMBERS ? NULL
                                       : "The layer has too many numbers for a page: --head shows one head with its "
                                         "walk; so do fewer tokens or a smaller layer.";
}

/* What else a call has that may hide keys. */
static void list_hiding(const mha_semantics *m, const char *hides[8])
{
    const mha_pattern *p = &m->pattern;
    const struct {
        const char *what;
        const void *given;
    } all[] = {{"the mask", m->mask.values.data},
               {"the key padding", m->key_padding.values.data},
               {"another segment than the query's", p->q_segments.data},
               {"the query padding", p->query_padding.values.data},
               {"the query's list of keys, where it is not,", p->key_lists.data},
               {"the mask of blocks", p->blocks.values.data}};
    size_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given)
            hides[count++] = all[i].what;
}

static mha_status walk(walker *w, mha__picture_layer *layer, size_t sequence, mha_error *error)
{
    size_t stages, matrices;
    w->r = mha__plan_resolved(&w->attempt.plan);
    w->sequence = mha__resolved_sequence(w->r, sequence);
    count_numbers(w, &stages, &matrices);
    w->has_weights = stages + matrices <= MHA__WALK_NUMBERS;
    layer->no_walk = reason_against(w->r, stages);
    if (w->r->latent.kv_rank)
        layer->no_walk = "Latent attention has no walk: its stages are those of mha forward --trace.";
    if (layer->no_walk)
        return MHA_OK;
    const size_t past = w->sequence.S - w->sequence.T_k;
    bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_PRESENT_KEY] = past > 0, [MHA_STAGE_PRESENT_VALUE] = past > 0};
    for (size_t i = 0; i < KEPT; i++)
        wanted[kept[i]] = true;
    TRY(mha__attempt_run(&w->attempt, MHA_BTE, wanted, error));
    w->r = mha__plan_resolved(&w->attempt.plan);
    w->walk = mha__arena_take(w->memory, sizeof *w->walk);
    if (!w->walk)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for a walk");
    const mha_semantics *m = &w->r->semantics;
    *w->walk = (mha__walk){.sequence = sequence,
                           .first_head = w->heads[0],
                           .heads = w->heads[1] - w->heads[0],
                           .past = past,
                           .scale = w->r->plan.scale,
                           .softcap = m->softcap,
                           .causal = m->causal,
                           .window = m->window,
                           .window_left = m->window_left,
                           .window_right = m->window_right,
                           .prefix = m->prefix,
                           .window_keep = m->window_keep,
                           .chunk = m->chunk,
                           .offset = w->sequence.offset,
                           .first_key = w->r->first_key,
                           .length = m->kv_lengths ? m->kv_lengths[sequence] : -1,
                           .rope = m->rope.kind,
                           .rope_dim = w->r->rope_dim,
                           .rope_last = m->rope.last};
    list_hiding(m, w->walk->hides);
    TRY(add_inputs(w, error));
    TRY(add_stages(w, error));
    layer->walk = w->walk;
    return MHA_OK;
}

mha_status mha__walk_add(mha__picture_layer *layer, mha__arena *memory, const mha__request *request,
                         const mha__picture_choice *choice, mha_error *error)
{
    mha_call call = *request->call;
    call.path = MHA_PATH_EXACT;
    mha__request exact = *request;
    exact.call = &call;
    walker w = {.memory = memory};
    mha_status status = mha__attempt_begin(&w.attempt, &memory->allocator, &exact, error);
    w.heads[0] = choice->one_head ? choice->head : 0;
    w.heads[1] = choice->one_head ? choice->head + 1 : w.attempt.plan.h;
    if (status == MHA_OK)
        status = walk(&w, layer, choice->one_sequence ? choice->sequence : 0, error);
    mha__attempt_free(&w.attempt);
    return status;
}
