/* The numbers of a whole layer, from input to output, for the walk through the computation. */
#include "attention/call/definition.h"
#include "attention/core/terms/terms.h"
#include "base/heads.h"
#include "picture/walk.h"

#include <string.h>

#include "attention/core/exact/exact_rows.h"
#include "attention/core/exact/exact_visible.h"
#include "attention/core/exact/rounding.h"

static const mha_stage kept[] = {MHA_STAGE_Q_LATENT, MHA_STAGE_KV_LATENT, MHA_STAGE_Q,       MHA_STAGE_K,
                                 MHA_STAGE_V,        MHA_STAGE_Q_ROT,     MHA_STAGE_K_ROT,   MHA_STAGE_SCORES,
                                 MHA_STAGE_CAPPED,   MHA_STAGE_MASKED,    MHA_STAGE_WEIGHTS, MHA_STAGE_HEADS,
                                 MHA_STAGE_GATED,    MHA_STAGE_OUTPUT};
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

/* Whether it is one of W_Q, W_K, ... */
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
    TRY(mha_view_copy(&array->view, from, error));
    if (from->rank == 3) /* (T, h, d): heads side by side */
        array->view =
            mha_view_of(array->view.data, MHA_F64, 2, (size_t[]){from->shape[0], from->shape[1] * from->shape[2]});
    return MHA_OK;
}

/* Adds an array (rows, columns), or (1, blocks, rows, columns), to be filled; NULL without memory. */
static double *add_empty(walker *w, const char *name, size_t blocks, size_t rows, size_t columns)
{
    const size_t shape[4] = {1, blocks, rows, columns};
    mha__walk_array *array = &w->walk->arrays[w->walk->count];
    *array = (mha__walk_array){name, mha__arena_view(w->memory, MHA_F64, blocks ? 4 : 2, blocks ? shape : shape + 2)};
    w->walk->count += array->view.data != NULL;
    return array->view.data;
}

/* Rows [from, from + count) of one batch row of an input or a stage, (B, T, width) or (B, T, h, d), without its batch
 * axis. */
static mha_view rows_of(mha_view v, size_t batch, size_t from, size_t count)
{
    if (!v.data)
        return v;
    v = mha__view_at(&v, batch);
    return mha_view_slice(&v, 0, from, count);
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
    const bool of_keys =
        stage == MHA_STAGE_K || stage == MHA_STAGE_V || stage == MHA_STAGE_K_ROT || stage == MHA_STAGE_KV_LATENT;
    if (w->walk->past > 0 && (stage == MHA_STAGE_K_ROT || stage == MHA_STAGE_V)) {
        const mha_stage present = stage == MHA_STAGE_V ? MHA_STAGE_PRESENT_VALUE : MHA_STAGE_PRESENT_KEY;
        return rows_of(mha__view_swap(&w->attempt.stages[present], 1, 2), s->batch, 0, s->S);
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
        TRY(add(w, mha_stage_at(kept[i])->name, &stage, error));
    }
    for (mha_weight i = 0; i < MHA_WEIGHT_COUNT; i++)
        TRY(add(w, mha_weight_at(i)->name, &w->r->weight[i], error));
    return MHA_OK;
}

/* Positions, the cosines and sines that turn rows, how fast they turn, and the factors of queries. */
static bool add_turns(walker *w, mha__side side)
{
    static const char *const names[][3] = {{"q_position", "q_cos", "q_sin"}, {"k_position", "k_cos", "k_sin"}};
    const mha__resolved *r = w->r;
    const mha__sequence *s = &w->sequence;
    const bool turns = mha__semantics_of(r)->qkv.rope.kind != MHA_ROPE_NONE, queries = side == MHA_QUERIES,
               scales = queries && mha__scales_queries(&r->qkv);
    const size_t T = queries ? s->T_q : s->T_k, from = queries ? s->q_from : s->k_from, pairs = r->qkv.rope.dim / 2;
    if (!turns && !scales)
        return true;
    double *position = add_empty(w, names[side][0], 0, T, 1);
    double *c = turns ? add_empty(w, names[side][1], 0, T, pairs) : position;
    double *sine = turns ? add_empty(w, names[side][2], 0, T, pairs) : position;
    double *speed = turns && queries && !mha__semantics_of(r)->qkv.rope.cos_table.data
                        ? add_empty(w, "frequencies", 0, 1, pairs)
                        : position;
    double *factor = scales ? add_empty(w, "query_scale", 0, T, 1) : position;
    if (!position || !c || !sine || !speed || !factor)
        return false;
    for (size_t i = 0; i < pairs && speed != position; i++)
        speed[i] = mha__exact_angle(r, 1, i);
    for (size_t t = 0; t < T; t++) {
        const int64_t p = mha__exact_position(r, side, s, t);
        for (size_t i = 0; i < pairs && turns; i++) {
            const mha__cos_sin turn = mha__exact_turn(r, s->batch, from + t, p, i);
            c[t * pairs + i] = turn.c, sine[t * pairs + i] = turn.s;
        }
        if (scales)
            factor[t] = mha__exact_query_scale(r, p);
        position[t] = (double)p;
    }
    return true;
}

/* Terms added by position: the slopes of ALiBi, and the row of the table of biases for each query and key. */
static bool add_biases(walker *w)
{
    const mha_added *m = &mha__semantics_of(w->r)->added;
    const mha__sequence *s = &w->sequence;
    if (m->alibi_slopes) {
        double *slopes = add_empty(w, "alibi_slopes", 0, 1, w->r->plan.h);
        if (!slopes)
            return false;
        memcpy(slopes, m->alibi_slopes, w->r->plan.h * sizeof *slopes);
    }
    if (m->bias.rule == MHA_BIAS_RULE_NONE)
        return true;
    const size_t n = w->r->weight[MHA_BIAS_TABLE].shape[0];
    double *rows = add_empty(w, "bias_rows", 0, s->T_q, s->S);
    for (size_t i = 0; rows && i < s->T_q; i++)
        for (size_t j = 0; j < s->S; j++)
            *rows++ = (double)mha__bias_row(&m->bias, n, s->offset + (int64_t)i, w->r->first_key + (int64_t)j);
    return rows || s->T_q * s->S == 0;
}

/* The masks of this call, other than the rules of positions and lengths, in the order of mha__hider. */
static size_t list_hiders(const mha__resolved *r, mha__hider hiders[MHA__HIDER_COUNT])
{
    const mha_pattern *p = &mha__semantics_of(r)->visible.pattern;
    const void *given[MHA__HIDER_COUNT] = {
        [MHA__HIDER_MASK] = mha__semantics_of(r)->visible.mask.values.data,
        [MHA__HIDER_PADDING] = mha__semantics_of(r)->visible.key_padding.values.data,
        [MHA__HIDER_BIAS] =
            mha__semantics_of(r)->added.bias.rule != MHA_BIAS_RULE_NONE ? r->weight[MHA_BIAS_TABLE].data : NULL,
        [MHA__HIDER_SEGMENTS] = p->q_segments.data,
        [MHA__HIDER_QUERY_PADDING] = p->query_padding.values.data,
        [MHA__HIDER_LISTS] = p->key_lists.data,
        [MHA__HIDER_BLOCKS] = p->blocks.values.data};
    size_t count = 0;
    for (mha__hider i = 0; i < MHA__HIDER_COUNT; i++)
        if (given[i])
            hiders[count++] = i;
    return count;
}

/* For each query and key what hides it, bit n for entry n of walk->hides; and what masks add. */
static bool add_hiders(walker *w)
{
    static const char *const words[] = {[MHA__HIDER_MASK] = "the mask hides it",
                                        [MHA__HIDER_PADDING] = "the key padding hides it",
                                        [MHA__HIDER_BIAS] = "its bias is minus infinity",
                                        [MHA__HIDER_SEGMENTS] = "it is in another segment than the query",
                                        [MHA__HIDER_QUERY_PADDING] = "the query is padding",
                                        [MHA__HIDER_LISTS] = "it is not in the query's list of keys",
                                        [MHA__HIDER_BLOCKS] = "the mask of blocks hides it"};
    const mha__sequence *s = &w->sequence;
    const size_t heads = w->heads[1] - w->heads[0], keys = s->S + w->r->plan.S_extra;
    mha__hider hiders[MHA__HIDER_COUNT];
    const size_t count = list_hiders(w->r, hiders);
    if (count == 0 || heads * s->T_q * keys == 0)
        return true;
    for (size_t n = 0; n < count; n++)
        w->walk->hides[n] = words[hiders[n]];
    double *by = add_empty(w, "hidden_by", heads, s->T_q, keys);
    double *mask = mha__semantics_of(w->r)->visible.mask.values.data ? add_empty(w, "mask", heads, s->T_q, keys) : by;
    double *padding = mha__semantics_of(w->r)->visible.key_padding.values.data
                          ? add_empty(w, "key_padding", heads, s->T_q, keys)
                          : by;
    if (!by || !mask || !padding)
        return false;
    for (size_t at = 0; at < heads * s->T_q * keys; at++) {
        const mha__exact_parts parts = mha__exact_parts_of(w->r, s, w->walk->sequence, w->heads[0] + at / keys / s->T_q,
                                                           at / keys % s->T_q, at % keys);
        mask[at] = parts.mask;
        padding[at] = parts.padding;
        by[at] = 0;
        for (size_t n = 0; n < count; n++)
            by[at] += parts.hides[hiders[n]] ? 1 << n : 0;
    }
    return true;
}

/* The numbers of a walk without matrices, and of these. */
static void count_numbers(const walker *w, size_t *stages, size_t *matrices)
{
    const mha__sequence *s = &w->sequence;
    const mha_plan *p = &w->attempt.plan;
    const mha_semantics *m = mha__semantics_of(w->r);
    mha__hider hiders[MHA__HIDER_COUNT];
    const size_t maps = 6 + (list_hiders(w->r, hiders) > 0) + (m->visible.mask.values.data != NULL) +
                        (m->visible.key_padding.values.data != NULL) + (m->added.bias.rule != MHA_BIAS_RULE_NONE);
    *stages = maps * (w->heads[1] - w->heads[0]) * s->T_q * (s->S + p->S_extra);
    *stages += (s->T_q + s->S) * (p->h * (p->d_k + p->d_v) + p->d_out + w->r->query.shape[2]);
    if (w->r->latent.absorbed || mha__gate_width(w->r)) /* heads of another width than v, or twice */
        *stages += s->T_q * p->h * mha__head_width(w->r);
    *matrices = 0;
    for (mha_weight i = 0; i < MHA_WEIGHT_COUNT; i++)
        *(is_matrix(mha_weight_at(i)->name) ? matrices : stages) +=
            w->r->weight[i].data ? mha_view_elements(&w->r->weight[i]) : 0;
}

/* Why a call has no walk; NULL when it has one. */
static const char *reason_against(const mha__resolved *r, size_t stages)
{
    if (mha__precision_rounds(&r->precision))
        return "Numbers that are rounded to a lower precision on the way are not part of a walk.";
    if (r->qkv.clip_qkv > 0)
        return "Limits of queries, keys and values (clip_qkv) are not part of a walk.";
    if (mha__semantics_of(r)->softmax.dropout_keep.data)
        return "Weights that a dropout drops are not part of a walk.";
    if (mha__semantics_of(r)->added.relative.rule != MHA_RELATIVE_NONE)
        return "Relative terms, products with rows chosen by position, are not part of a walk.";
    return stages <= MHA__WALK_NUMBERS ? NULL
                                       : "The layer has too many numbers for a page: --head shows one head with its "
                                         "walk; so do fewer tokens or a smaller layer.";
}

static mha_status walk(walker *w, mha__picture_layer *layer, size_t sequence, mha_error *error)
{
    size_t stages, matrices;
    w->r = mha__plan_resolved(&w->attempt.plan);
    w->sequence = mha__resolved_sequence(w->r, sequence);
    count_numbers(w, &stages, &matrices);
    w->has_weights = stages + matrices <= MHA__WALK_NUMBERS;
    layer->no_walk = reason_against(w->r, stages);
    if (layer->no_walk)
        return MHA_OK;
    const size_t past = w->sequence.S - w->sequence.T_k;
    bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_PRESENT_KEY] = past > 0, [MHA_STAGE_PRESENT_VALUE] = past > 0};
    for (size_t i = 0; i < KEPT; i++)
        wanted[kept[i]] = mha_plan_stage(&w->attempt.plan, kept[i], (size_t[4]){0}) > 0;
    TRY(mha__attempt_run(&w->attempt, MHA_BTE, wanted, error));
    w->r = mha__plan_resolved(&w->attempt.plan);
    w->walk = mha__arena_take(w->memory, sizeof *w->walk);
    if (!w->walk)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for a walk");
    const mha_semantics *m = mha__semantics_of(w->r);
    *w->walk = (mha__walk){.sequence = sequence,
                           .first_head = w->heads[0],
                           .heads = w->heads[1] - w->heads[0],
                           .past = past,
                           .semantics = *m,
                           .scale = w->r->plan.scale,
                           .offset = w->sequence.offset,
                           .first_key = w->r->first_key,
                           .length = m->visible.kv_lengths ? m->visible.kv_lengths[sequence] : -1,
                           .rope_dim = w->r->qkv.rope.dim,
                           .rope_times = w->r->qkv.rope.attention_factor,
                           .norm = {w->r->norm[MHA_QUERIES], w->r->norm[MHA_KEYS]},
                           .norm_eps = w->r->qkv.norm_eps,
                           .latent = w->r->latent};
    TRY(add_inputs(w, error));
    TRY(add_stages(w, error));
    if (!add_turns(w, MHA_QUERIES) || !add_turns(w, MHA_KEYS) || !add_biases(w) || !add_hiders(w))
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for the numbers of a walk");
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
