/* A picture of a call: projections and rotation once, then the weights of some rows of queries at a time. */
#include <string.h>

#include "attention/pattern/pattern.h"
#include "attention/resolved.h"
#include "picture/head.h"
#include "picture/walk.h"
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
    mha_plan plan;        /* of the call as it was asked for */
    const mha__resolved *r;
    mha_view keys, values; /* (B or 1, S, h_kv, d) of the call */
    mha_view weights[MHA_WEIGHT_COUNT];
    mha_dtype dtype;
    size_t heads[2]; /* those that are shown, from the first to before the second: all or one */
    bool keeps_scores;
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

/* Computes the rotated queries and keys. Attention itself is not wanted, so that each query sees its own key alone. */
static mha_status project(drawing *d, const mha_layer *layer, const mha_call *asked, const mha_view past[2],
                          mha_error *error)
{
    mha_call call = *asked;
    const mha__request request = {.layer = layer,
                                  .call = &call,
                                  .past_key = past ? past[0] : (mha_view){0},
                                  .past_value = past ? past[1] : (mha_view){0},
                                  .precision = asked->precision};
    TRY(mha__attempt_begin(&d->attempt, &d->memory->allocator, &request, error));
    if (call.path == MHA_PATH_AUTO && products_of(layer, &d->attempt.plan) <= few_products) {
        mha__attempt_free(&d->attempt);
        call.path = MHA_PATH_EXACT; /* the request points to it */
        TRY(mha__attempt_begin(&d->attempt, &d->memory->allocator, &request, error));
    }
    d->plan = d->attempt.plan;
    mha_semantics *m = &d->attempt.call.semantics;
    m->window = true;
    m->window_left = m->window_right = 0;
    m->hidden_values = MHA_HIDDEN_IGNORE;
    bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_Q_ROT] = true};
    wanted[m->cu_seqlens_q ? MHA_STAGE_K_ROT : MHA_STAGE_PRESENT_KEY] = true;
    wanted[m->cu_seqlens_q ? MHA_STAGE_V : MHA_STAGE_PRESENT_VALUE] = true;
    return mha__attempt_run(&d->attempt, MHA_BTE, wanted, error);
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
    const size_t h_kv = d->plan.h_kv;
    stages[MHA_STAGE_Q_ROT] = by_head(stages[MHA_STAGE_Q_ROT], d->plan.h);
    if (d->r->semantics.cu_seqlens_q) {
        d->keys = by_head(stages[MHA_STAGE_K_ROT], h_kv);
        d->values = by_head(stages[MHA_STAGE_V], h_kv);
    } else {
        d->keys = mha_view_swap(&stages[MHA_STAGE_PRESENT_KEY], 1, 2);
        d->values = mha_view_swap(&stages[MHA_STAGE_PRESENT_VALUE], 1, 2);
    }
    static const mha_weight seen[] = {MHA_SINKS, MHA_BIAS_K, MHA_BIAS_V}; /* by attention itself */
    const size_t ratio = d->plan.h / h_kv;
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        mha_view *w = &d->weights[seen[i]];
        *w = d->r->weight[seen[i]];
        if (!w->data)
            continue;
        const size_t heads = seen[i] == MHA_SINKS ? ratio * h_kv : h_kv, of = seen[i] == MHA_SINKS ? 1 : ratio;
        const size_t width = w->shape[0] / heads, past = (d->heads[1] - 1) / of + 1;
        *w = mha_view_slice(w, 0, d->heads[0] / of * width, (past - d->heads[0] / of) * width);
    }
}

/* A mask cut to one sequence, to the heads that are shown and to some of its queries. */
static mha_mask cut_mask(const drawing *d, mha_mask mask, size_t b, size_t from, size_t count)
{
    mha_view *v = &mask.values;
    if (v->data && v->rank == 4 && v->shape[0] > 1)
        *v = mha_view_slice(v, 0, b, 1);
    if (v->data && v->rank >= 3 && v->shape[v->rank - 3] > 1)
        *v = mha_view_slice(v, v->rank - 3, d->heads[0], d->heads[1] - d->heads[0]);
    if (v->data && v->rank >= 2 && v->shape[v->rank - 2] > 1)
        *v = mha_view_slice(v, v->rank - 2, from, count);
    return mask;
}

/* The number of keys of a sequence that the queries before `past` may see; all where hidden scores are kept, too. */
static size_t keys_before(const drawing *d, const mha__sequence *s, size_t past)
{
    const mha__resolved *r = d->r;
    const mha_semantics *m = &r->semantics;
    const int64_t reach = s->offset + (int64_t)past - r->first_key;
    const bool by_causal_alone = !d->keeps_scores && m->causal && m->prefix == 0 && r->plan.S_extra == 0 &&
                                 !m->kv_lengths && !m->key_padding.values.data && !m->mask.values.data &&
                                 !mha__pattern_hides_keys(&m->pattern);
    if (!by_causal_alone || reach >= (int64_t)s->S)
        return s->S;
    return reach < 1 ? 1 : (size_t)reach;
}

/* The call that gives rows [from, from + count) of a sequence's weights. Its values do not matter: one column. */
static mha_call call_of_rows(const drawing *d, const mha__sequence *s, size_t b, size_t from, size_t count)
{
    const mha__resolved *r = d->r;
    mha_call call = {.path = d->plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_BLAS,
                     .threads = d->attempt.call.threads,
                     .weights = d->weights,
                     .precision = r->precision,
                     .semantics = r->semantics};
    const size_t ratio = r->plan.h / r->plan.h_kv, kv = d->heads[0] / ratio, kv_past = (d->heads[1] - 1) / ratio + 1;
    const size_t S = keys_before(d, s, from + count);
    mha_view q = mha_view_slice(&d->attempt.stages[MHA_STAGE_Q_ROT], 0, s->batch, 1);
    mha_view k = mha_view_slice(&d->keys, 0, s->batch, 1), v = mha_view_slice(&d->values, 0, s->batch, 1);
    q = mha_view_slice(&q, 2, d->heads[0], d->heads[1] - d->heads[0]);
    k = mha_view_slice(&k, 2, kv, kv_past - kv);
    v = mha_view_slice(&v, 2, kv, kv_past - kv);
    if (!d->weights[MHA_BIAS_V].data)
        v = mha_view_slice(&v, 3, 0, 1);
    call.query = mha_view_slice(&q, 1, s->q_from + from, count);
    call.key = mha_view_slice(&k, 1, s->k_from, S);
    call.value = mha_view_slice(&v, 1, s->k_from, S);
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
    m->mask = cut_mask(d, m->mask, b, from, count);
    mha__pattern_cut(&m->pattern, b, d->heads, from, count);
    m->alibi_slopes = m->alibi_slopes ? m->alibi_slopes + d->heads[0] : NULL;
    m->rope = (mha_rope){0};
    m->norm_eps = 0;
    m->norm = (mha_norm_rule){.kind = MHA_NORM_RMS};
    m->query_scale = (mha_query_scale){.growth = 0};
    m->hidden_values = MHA_HIDDEN_IGNORE;
    m->n_sequences = 0;
    m->cu_seqlens_q = m->cu_seqlens_k = NULL;
    return call;
}

/* Copies a row of a kept stage; NULL when it is not kept. */
static const double *row_of(const mha_view *stage, size_t head, size_t i, double *row)
{
    const size_t at = (head * stage->shape[2] + i) * stage->shape[3];
    for (size_t j = 0; stage->data && j < stage->shape[3]; j++)
        row[j] = stage->dtype == MHA_F64 ? ((const double *)stage->data)[at + j] : ((const float *)stage->data)[at + j];
    return stage->data ? row : NULL;
}

/* Computes some rows of all heads of a sequence and adds them to the heads that are shown. */
static mha_status add_rows(drawing *d, const mha__sequence *s, size_t b, size_t from, size_t count, mha__head *heads,
                           mha__arena *scratch, mha_error *error)
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
    const size_t S = s->S + plan.S_extra, seen = keep[0].view.shape[3];
    for (size_t j = seen; j < S; j++)
        d->row[j] = 0, d->row[S + j] = -INFINITY, d->row[2 * S + j] = NAN; /* hidden: no score was computed */
    for (size_t n = 0; n < d->heads[1] - d->heads[0]; n++)
        for (size_t i = 0; i < count; i++) {
            const mha__head_row row = {
                .query = from + i,
                .position = (double)(s->offset + (int64_t)(from + i) - d->r->first_key),
                .keys = S,
                .extra = plan.S_extra,
                .seen = seen,
                .weights = row_of(&keep[0].view, n, i, d->row),
                .masked = row_of(&keep[1].view, n, i, d->row + S),
                .scores = row_of(&keep[2].view, n, i, d->row + 2 * S),
                .is_softmax = true,
            };
            mha__head_add(&heads[n], &row);
        }
    return MHA_OK;
}

/* How many rows are computed at a time: up to `most` from row i on, which lie in one block of a pattern or begin
 * one. */
static size_t rows_from(const mha_pattern *p, size_t i, size_t most)
{
    const size_t size = p->block_queries, rest = size > 0 ? size - i % size : 0;
    if (size == 0)
        return most;
    return rest < size || most < size ? (rest < most ? rest : most) : most / size * size;
}

static mha_status add_sequence(drawing *d, size_t b, size_t shown, mha_error *error)
{
    const mha__sequence s = mha__resolved_sequence(d->r, b);
    const mha_plan *plan = &d->plan;
    const size_t S = s.S + plan->S_extra, count = d->heads[1] - d->heads[0];
    mha__head *first = d->layer->heads + d->layer->head_count;
    for (size_t n = 0; n < count; n++) {
        first[n] = (mha__head){
            .sequence = b, .head = d->heads[0] + n, .kv_head = (d->heads[0] + n) / (plan->h / plan->h_kv)};
        TRY(mha__choice_cut(d->choice, s.T_q, S, &first[n], error));
        TRY(mha__head_begin(&first[n], d->memory, shown, d->keeps_scores, error));
    }
    const size_t bytes = count * (S + 1) * sizeof(double) * 3, most = row_bytes / bytes > 0 ? row_bytes / bytes : 1;
    const size_t past = S > 0 ? first->first_query + first->queries : 0;
    for (size_t i = first->first_query, rows; i < past; i += rows) {
        mha__arena scratch = {.allocator = d->memory->allocator};
        rows = rows_from(&d->r->semantics.pattern, i, most);
        rows = past - i < rows ? past - i : rows;
        const mha_status status = add_rows(d, &s, b, i, rows, first, &scratch, error);
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
    const mha_plan *plan = &d->plan;
    mha__choice_parts parts;
    TRY(mha__choice_resolve(d->choice, plan->B, plan->h, &parts, error));
    memcpy(d->heads, parts.heads, sizeof parts.heads);
    find_rows(d);
    const size_t shown = (parts.sequences[1] - parts.sequences[0]) * (parts.heads[1] - parts.heads[0]);
    d->keeps_scores = shown * plan->T_q * (plan->S + plan->S_extra) <= MHA__SCORES;
    d->layer->heads = mha__arena_take(d->memory, shown * sizeof *d->layer->heads);
    d->row = mha__arena_take(d->memory, 3 * (plan->S + plan->S_extra) * sizeof *d->row);
    if (!d->layer->heads || !d->row)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu heads", shown);
    for (size_t b = parts.sequences[0]; b < parts.sequences[1]; b++)
        TRY(add_sequence(d, b, shown, error));
    return MHA_OK;
}

mha_status mha__picture_add_call(mha__picture *picture, const char *name, const mha_layer *layer, const mha_call *call,
                                 const mha_view past[2], const mha__picture_choice *choice, mha_error *error)
{
    drawing d = {.memory = &picture->memory, .choice = choice};
    TRY(mha__picture_grow(picture, name, &d.layer, error));
    mha_status status = project(&d, layer, call, past, error);
    if (status == MHA_OK) {
        const mha_plan *plan = &d.plan;
        d.r = mha__plan_resolved(plan);
        d.dtype = plan->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
        *d.layer = (mha__picture_layer){.name = d.layer->name, .path = d.dtype == MHA_F64 ? "exact" : "blas",
                                        .sequences = plan->B, .h = plan->h, .h_kv = plan->h_kv, .d_k = plan->d_k,
                                        .d_v = plan->d_v, .S_extra = plan->S_extra,
                                        .offset = mha__resolved_sequence(d.r, 0).offset - d.r->first_key};
        status = add_sequences(&d, error);
        if (status == MHA_OK && d.dtype == MHA_F64) {
            const mha__request request = {.layer = layer, .call = call, .past_key = past ? past[0] : (mha_view){0},
                                          .past_value = past ? past[1] : (mha_view){0}, .precision = call->precision};
            status = mha__walk_add(d.layer, d.memory, &request, choice, error);
        }
    }
    mha__attempt_free(&d.attempt);
    return status;
}
