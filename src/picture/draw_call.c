/* A picture of a call: projections and rotation once, then the weights of some rows of queries at a time. */
#include <string.h>

#include "attention/resolved.h"
#include "picture/head.h"
#include "verify/attempt.h"

/* Multiply-adds of a call that is still computed exactly, in a second or two; bytes of the rows that are kept at a
 * time. */
static const double few_products = 1e9;
static const size_t row_bytes = (size_t)96 << 20;

/* One layer on its way into a picture. */
typedef struct drawing {
    mha__picture_layer *layer;
    mha__arena *memory;
    const mha__picture_choice *choice;
    mha__attempt attempt; /* the projections */
    const mha__resolved *r;
    mha_view keys, values; /* (B or 1, S, h_kv, d) of the call */
    mha_view weights[MHA_WEIGHT_COUNT];
    mha_dtype dtype;
    double *row; /* three rows of S' */
} drawing;

static double products_of(const mha_layer *layer, const mha_plan *plan)
{
    const double pairs = (double)plan->T_q * (double)plan->S * (double)plan->h * (double)(plan->d_k + plan->d_v);
    double per_row = 0;
    if (layer) {
        const mha_config *c = mha_layer_config(layer);
        per_row = (double)(c->d_q + c->d_kin) * (double)(c->n_heads * c->d_k) +
                  (double)(c->d_vin + c->d_out) * (double)(c->n_heads * c->d_v);
    }
    return (double)plan->B * (pairs + per_row * (double)(plan->T_q > plan->T_k ? plan->T_q : plan->T_k));
}

/* Runs the call as far as its rotated queries and keys. */
static mha_status project(drawing *d, const mha_layer *layer, const mha_call *asked, const mha_view past[2],
                          mha_error *error)
{
    mha_call call = *asked;
    mha_plan plan;
    const mha__request request = {.layer = layer,
                                  .call = &call,
                                  .past_key = past ? past[0] : (mha_view){0},
                                  .past_value = past ? past[1] : (mha_view){0},
                                  .precision = asked->precision};
    mha_status status = mha__attempt_begin(&d->attempt, &d->memory->allocator, &request, error);
    plan = d->attempt.plan;
    if (status == MHA_OK && call.path == MHA_PATH_AUTO && products_of(layer, &plan) <= few_products) {
        mha__attempt_free(&d->attempt);
        call.path = MHA_PATH_EXACT;
        status = mha__attempt_begin(&d->attempt, &d->memory->allocator, &request, error);
    }
    bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_Q_ROT] = true};
    const bool ragged = call.semantics.cu_seqlens_q;
    wanted[ragged ? MHA_STAGE_K_ROT : MHA_STAGE_PRESENT_KEY] = true;
    wanted[ragged ? MHA_STAGE_V : MHA_STAGE_PRESENT_VALUE] = true;
    if (status == MHA_OK)
        status = mha__attempt_run(&d->attempt, MHA_BTE, wanted, error);
    return status;
}

/* A stage (B, T, heads * width) as (B, T, heads, width). */
static mha_view by_head(mha_view stage, size_t heads)
{
    const size_t width = stage.shape[2] / heads;
    return mha_view_of(stage.data, stage.dtype, 4, (size_t[]){stage.shape[0], stage.shape[1], heads, width});
}

static void find_rows(drawing *d)
{
    mha_view *stages = d->attempt.stages;
    const size_t h_kv = d->attempt.plan.h_kv;
    stages[MHA_STAGE_Q_ROT] = by_head(stages[MHA_STAGE_Q_ROT], d->attempt.plan.h);
    if (d->r->semantics.cu_seqlens_q) {
        d->keys = by_head(stages[MHA_STAGE_K_ROT], h_kv);
        d->values = by_head(stages[MHA_STAGE_V], h_kv);
    } else {
        d->keys = mha_view_swap(&stages[MHA_STAGE_PRESENT_KEY], 1, 2);
        d->values = mha_view_swap(&stages[MHA_STAGE_PRESENT_VALUE], 1, 2);
    }
    static const mha_weight seen[] = {MHA_SINKS, MHA_BIAS_K, MHA_BIAS_V}; /* by attention itself */
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        d->weights[seen[i]] = d->r->weight[seen[i]];
}

/* A mask cut to one sequence and to some of its queries. */
static mha_mask cut_mask(mha_mask mask, size_t b, size_t from, size_t count)
{
    mha_view *v = &mask.values;
    if (v->data && v->rank == 4 && v->shape[0] > 1)
        *v = mha_view_slice(v, 0, b, 1);
    if (v->data && v->rank >= 2 && v->shape[v->rank - 2] > 1)
        *v = mha_view_slice(v, v->rank - 2, from, count);
    return mask;
}

/* The call that gives rows [from, from + count) of a sequence's weights. */
static mha_call call_of_rows(const drawing *d, const mha__sequence *s, size_t b, size_t from, size_t count)
{
    const mha__resolved *r = d->r;
    mha_call call = {.path = d->attempt.plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_BLAS,
                     .threads = d->attempt.call.threads,
                     .weights = d->weights,
                     .precision = r->precision,
                     .semantics = r->semantics};
    mha_view q = mha_view_slice(&d->attempt.stages[MHA_STAGE_Q_ROT], 0, s->batch, 1);
    mha_view k = mha_view_slice(&d->keys, 0, s->batch, 1), v = mha_view_slice(&d->values, 0, s->batch, 1);
    call.query = mha_view_slice(&q, 1, s->q_from + from, count);
    call.key = mha_view_slice(&k, 1, s->k_from, s->S);
    call.value = mha_view_slice(&v, 1, s->k_from, s->S);
    mha_semantics *m = &call.semantics;
    m->has_scale = m->has_offset = true;
    m->scale = r->plan.scale;
    m->offset = s->offset + (int64_t)from;
    m->position_offset = NULL;
    if (r->first_key != 0)
        m->has_key_offset = true, m->key_offset = r->first_key;
    m->kv_lengths = m->kv_lengths ? m->kv_lengths + b : NULL;
    if (m->key_padding.values.data && m->key_padding.values.rank == 2 && m->key_padding.values.shape[0] > 1)
        m->key_padding.values = mha_view_slice(&m->key_padding.values, 0, b, 1);
    m->mask = cut_mask(m->mask, b, from, count);
    m->rope = (mha_rope){0};
    m->norm_eps = 0;
    m->hidden_values = MHA_HIDDEN_IGNORE;
    m->n_sequences = 0;
    m->cu_seqlens_q = m->cu_seqlens_k = NULL;
    return call;
}

/* Copies a row of a kept stage, or its absence. */
static const double *row_of(const mha_view *stage, size_t head, size_t i, double *row)
{
    if (!stage->data)
        return NULL;
    const mha_view from = {.data = (char *)stage->data +
                                   ((ptrdiff_t)head * stage->stride[1] + (ptrdiff_t)i * stage->stride[2]) *
                                       (stage->dtype == MHA_F64 ? 8 : 4),
                           .dtype = stage->dtype,
                           .rank = 1,
                           .shape = {stage->shape[3]},
                           .stride = {1}};
    const mha_view to = mha_view_of(row, MHA_F64, 1, from.shape);
    (void)mha_view_copy(&to, &from); /* both are floats of one shape */
    return row;
}

/* Computes some rows of all heads of a sequence and adds them to the heads that are shown. */
static mha_status add_rows(drawing *d, const mha__sequence *s, size_t b, size_t from, size_t count, mha__head *heads,
                           size_t head_count, mha__arena *scratch, mha_error *error)
{
    mha_call call = call_of_rows(d, s, b, from, count);
    mha_plan plan;
    TRY(mha_plan_call(NULL, &call, &plan, error));
    mha_keep keep[] = {{.stage = MHA_STAGE_WEIGHTS}, {.stage = MHA_STAGE_MASKED}, {.stage = MHA_STAGE_CAPPED}};
    call.keep = keep;
    call.keep_count = heads[0].masked ? 3 : 2;
    for (size_t i = 0; i < call.keep_count; i++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&plan, keep[i].stage, shape);
        keep[i].view = mha__arena_view(scratch, d->dtype, rank, shape);
        if (!keep[i].view.data)
            return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu rows of weights", count);
    }
    TRY(mha_plan_call(NULL, &call, &plan, error));
    void *workspace = mha__arena_take(scratch, plan.workspace_bytes);
    if (!workspace)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory to compute %zu rows of weights", count);
    TRY(mha_forward(&plan, workspace, plan.workspace_bytes, error));
    const size_t S = keep[0].view.shape[3];
    for (size_t n = 0; n < head_count; n++)
        for (size_t i = 0; i < count; i++) {
            const mha__head_row row = {
                .query = from + i,
                .position = (double)(s->offset + (int64_t)(from + i) - d->r->first_key),
                .keys = S,
                .extra = plan.S_extra,
                .weights = row_of(&keep[0].view, heads[n].head, i, d->row),
                .masked = row_of(&keep[1].view, heads[n].head, i, d->row + S),
                .scores = row_of(&keep[2].view, heads[n].head, i, d->row + 2 * S),
                .is_softmax = true,
            };
            mha__head_add(&heads[n], &row);
        }
    return MHA_OK;
}

static mha_status add_sequence(drawing *d, size_t b, const size_t heads[2], size_t shown, mha_error *error)
{
    const mha__sequence s = mha__resolved_sequence(d->r, b);
    const mha_plan *plan = &d->attempt.plan;
    const size_t S = s.S + plan->S_extra, count = heads[1] - heads[0];
    const bool numbers = shown * plan->T_q * (plan->S + plan->S_extra) <= MHA__SCORES;
    mha__head *first = d->layer->heads + d->layer->head_count;
    for (size_t n = 0; n < count; n++) {
        first[n] = (mha__head){
            .sequence = b, .head = heads[0] + n, .kv_head = (heads[0] + n) / (plan->h / plan->h_kv)};
        TRY(mha__choice_cut(d->choice, s.T_q, S, &first[n], error));
        TRY(mha__head_begin(&first[n], d->memory, mha__cells_for(shown), numbers, error));
    }
    const size_t bytes = plan->h * (S + 1) * sizeof(double) * 3, most = row_bytes / bytes > 0 ? row_bytes / bytes : 1;
    const size_t past = S > 0 ? first->first_query + first->queries : 0;
    for (size_t i = first->first_query; i < past; i += most) {
        mha__arena scratch = {.allocator = d->memory->allocator};
        const size_t rows = past - i < most ? past - i : most;
        const mha_status status = add_rows(d, &s, b, i, rows, first, count, &scratch, error);
        mha__arena_free(&scratch);
        TRY(status);
    }
    for (size_t n = 0; n < count; n++)
        mha__head_end(&first[n]);
    d->layer->head_count += count;
    return MHA_OK;
}

static mha_status add_sequences(drawing *d, mha_error *error)
{
    const mha_plan *plan = &d->attempt.plan;
    mha__choice_parts parts;
    TRY(mha__choice_resolve(d->choice, plan->B, plan->h, &parts, error));
    const size_t shown = (parts.sequences[1] - parts.sequences[0]) * (parts.heads[1] - parts.heads[0]);
    d->layer->heads = mha__arena_take(d->memory, shown * sizeof *d->layer->heads);
    d->row = mha__arena_take(d->memory, 3 * (plan->S + plan->S_extra) * sizeof *d->row);
    if (!d->layer->heads || !d->row)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu heads", shown);
    for (size_t b = parts.sequences[0]; b < parts.sequences[1]; b++)
        TRY(add_sequence(d, b, parts.heads, shown, error));
    return MHA_OK;
}

mha_status mha__picture_add_call(mha__picture *picture, const char *name, const mha_layer *layer, const mha_call *call,
                                 const mha_view past[2], const mha__picture_choice *choice, mha_error *error)
{
    drawing d = {.memory = &picture->memory, .choice = choice};
    TRY(mha__picture_grow(picture, name, &d.layer, error));
    mha_status status = project(&d, layer, call, past, error);
    if (status == MHA_OK) {
        const mha_plan *plan = &d.attempt.plan;
        d.r = mha__plan_resolved(plan);
        d.dtype = plan->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
        find_rows(&d);
        *d.layer = (mha__picture_layer){.name = d.layer->name, .path = d.dtype == MHA_F64 ? "exact" : "blas",
                                        .sequences = plan->B, .h = plan->h, .h_kv = plan->h_kv, .d_k = plan->d_k,
                                        .d_v = plan->d_v, .S_extra = plan->S_extra,
                                        .offset = mha__resolved_sequence(d.r, 0).offset - d.r->first_key};
        status = add_sequences(&d, error);
    }
    mha__attempt_free(&d.attempt);
    return status;
}
