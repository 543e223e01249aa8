/* A picture of a call: projections and rotation once, then the weights of some rows of queries at a time. */
#include <string.h>

#include "attention/pattern/pattern.h"
#include "attention/resolved.h"
#include "compute/thread_pool.h"
#include "picture/head.h"
#include "picture/walk.h"
#include "verify/attempt.h"

/* Multiply-adds of a call that is still computed exactly, in a second or two; bytes of each stage of the rows that are
 * kept at a time, by each worker. */
static const double few_products = 1e9;
static const size_t row_bytes = (size_t)16 << 20;

/* One layer on its way into a picture. */
typedef struct drawing {
    mha__picture_layer *layer;
    mha__arena *memory;
    const mha__picture_choice *choice;
    mha__attempt attempt; /* the projections */
    mha_plan plan;        /* of the call as it was asked for */
    const mha__resolved *r;
    mha_view keys, values; /* (B or 1, S, h_kv, d) of the call */
    mha_dtype dtype;
    size_t heads[2]; /* those that are shown, from the first to before the second: all or one */
    bool keeps_scores;
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
}

/* Fills in the weights that attention itself sees, cut to one head. */
static void cut_weights(const drawing *d, size_t head, mha_view weights[MHA_WEIGHT_COUNT])
{
    static const mha_weight seen[] = {MHA_SINKS, MHA_BIAS_TABLE, MHA_BIAS_K, MHA_BIAS_V};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        mha_view *w = &weights[seen[i]];
        *w = d->r->weight[seen[i]];
        if (!w->data)
            continue;
        const bool by_query_head = seen[i] == MHA_SINKS || seen[i] == MHA_BIAS_TABLE;
        const int last = w->rank - 1;
        const size_t heads = by_query_head ? d->plan.h : d->plan.h_kv, width = w->shape[last] / heads;
        *w = mha_view_slice(w, last, head * heads / d->plan.h * width, width);
    }
}

/* A mask cut to one sequence, to one head and to some of its queries. */
static mha_mask cut_mask(mha_mask mask, size_t b, size_t head, size_t from, size_t count)
{
    mha_view *v = &mask.values;
    if (v->data && v->rank == 4 && v->shape[0] > 1)
        *v = mha_view_slice(v, 0, b, 1);
    if (v->data && v->rank >= 3 && v->shape[v->rank - 3] > 1)
        *v = mha_view_slice(v, v->rank - 3, head, 1);
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

enum { STAGES = 3 }; /* of each row: weights, masked scores and, where they are shown, scores */

/* Rows of one sequence on their way into its heads: each head is a task, and takes its rows in order. */
typedef struct rows_job {
    const drawing *d;
    mha__sequence s;
    size_t b, first, past, most; /* the queries that are shown; how many at a time */
    mha__head *heads;
    int threads; /* of each task */
    bool keeps_scores;
    size_t workspace_bytes;
    struct {
        void *kept[STAGES], *workspace;
        double *row; /* three rows of S' */
    } *workers;
    struct {
        mha_status status;
        mha_error error;
    } *ends; /* of each head */
} rows_job;

/* The call that gives rows [from, from + count) of a head's weights, with `weights` as its memory. Its values do not
 * matter: one column. */
static mha_call call_of_rows(const rows_job *job, size_t head, size_t from, size_t count,
                             mha_view weights[MHA_WEIGHT_COUNT])
{
    const drawing *d = job->d;
    const mha__sequence *s = &job->s;
    const mha__resolved *r = d->r;
    mha_call call = {.path = d->plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_BLAS,
                     .threads = job->threads,
                     .weights = weights,
                     .precision = r->precision,
                     .semantics = r->semantics};
    const size_t kv = head / (r->plan.h / r->plan.h_kv), b = job->b;
    const size_t S = keys_before(d, s, from + count);
    mha_view q = mha_view_slice(&d->attempt.stages[MHA_STAGE_Q_ROT], 0, s->batch, 1);
    mha_view k = mha_view_slice(&d->keys, 0, s->batch, 1), v = mha_view_slice(&d->values, 0, s->batch, 1);
    cut_weights(d, head, weights);
    q = mha_view_slice(&q, 2, head, 1);
    k = mha_view_slice(&k, 2, kv, 1);
    v = mha_view_slice(&v, 2, kv, 1);
    if (!weights[MHA_BIAS_V].data)
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
    m->mask = cut_mask(m->mask, b, head, from, count);
    mha__pattern_cut(&m->pattern, b, (size_t[]){head, head + 1}, from, count);
    m->alibi_slopes = m->alibi_slopes ? m->alibi_slopes + head : NULL;
    m->rope = (mha_rope){0};
    m->norm_eps = 0;
    m->norm = (mha_norm_rule){.kind = MHA_NORM_RMS};
    m->query_scale = (mha_query_scale){.growth = 0};
    m->hidden_values = MHA_HIDDEN_IGNORE;
    m->n_sequences = 0;
    m->cu_seqlens_q = m->cu_seqlens_k = NULL;
    return call;
}

/* Copies row i of a kept stage, of one sequence and head; NULL when it is not kept. */
static const double *row_of(const mha_view *stage, size_t i, double *row)
{
    const size_t at = i * stage->shape[3];
    if (stage->data && stage->dtype == MHA_F64)
        memcpy(row, (const double *)stage->data + at, stage->shape[3] * sizeof *row);
    for (size_t j = 0; stage->data && stage->dtype == MHA_F32 && j < stage->shape[3]; j++)
        row[j] = ((const float *)stage->data)[at + j];
    return stage->data ? row : NULL;
}

static size_t stages_of(const rows_job *job)
{
    return job->keeps_scores ? STAGES : STAGES - 1;
}

/* Computes some rows of a head and adds them to it. */
static mha_status add_rows(const rows_job *job, size_t index, size_t from, size_t count, int worker, mha_error *error)
{
    static const mha_stage kept[STAGES] = {MHA_STAGE_WEIGHTS, MHA_STAGE_MASKED, MHA_STAGE_CAPPED};
    const size_t stages = stages_of(job);
    const drawing *d = job->d;
    mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
    mha_call call = call_of_rows(job, d->heads[0] + index, from, count, weights);
    mha_keep keep[STAGES] = {{0}};
    mha_plan plan;
    TRY(mha_plan_call(NULL, &call, &plan, error));
    for (size_t i = 0; i < stages; i++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&plan, kept[i], shape);
        keep[i] = (mha_keep){.stage = kept[i],
                             .view = mha_view_of(job->workers[worker].kept[i], d->dtype, rank, shape)};
    }
    call.keep = keep;
    call.keep_count = stages;
    TRY(mha_plan_call(NULL, &call, &plan, error));
    TRY(mha_forward(&plan, job->workers[worker].workspace, job->workspace_bytes, error));
    const size_t S = job->s.S + plan.S_extra, seen = keep[0].view.shape[3];
    double *row = job->workers[worker].row;
    for (size_t j = seen; j < S; j++)
        row[j] = 0, row[S + j] = -INFINITY, row[2 * S + j] = NAN; /* hidden: no score was computed */
    for (size_t i = 0; i < count; i++) {
        const mha__head_row one = {
            .query = from + i,
            .position = (double)(job->s.offset + (int64_t)(from + i) - d->r->first_key),
            .keys = S,
            .extra = plan.S_extra,
            .seen = seen,
            .weights = row_of(&keep[0].view, i, row),
            .masked = row_of(&keep[1].view, i, row + S),
            .scores = row_of(&keep[2].view, i, row + 2 * S),
            .is_softmax = true,
        };
        mha__head_add(&job->heads[index], &one);
    }
    return MHA_OK;
}

/* How many rows from row i on are computed at a time: they lie in one block of a pattern or begin one. */
static size_t rows_from(const rows_job *job, size_t i)
{
    const size_t size = job->d->r->semantics.pattern.block_queries, most = job->most, left = job->past - i;
    const size_t rest = size > 0 ? size - i % size : most;
    const size_t rows = size > 0 && rest == size && most >= size ? most / size * size : rest < most ? rest : most;
    return rows < left ? rows : left;
}

static void add_head(void *context, size_t index, int worker)
{
    const rows_job *job = context;
    for (size_t i = job->first, rows; i < job->past && job->ends[index].status == MHA_OK; i += rows) {
        rows = rows_from(job, i);
        job->ends[index].status = add_rows(job, index, i, rows, worker, &job->ends[index].error);
    }
    mha__head_end(&job->heads[index]);
}

/* Takes the memory of all workers, so that no task takes any. */
static mha_status take_memory(rows_job *job, size_t heads, size_t workers, size_t S, mha__arena *scratch,
                              mha_error *error)
{
    for (size_t i = job->first; i < job->past; i += rows_from(job, i)) {
        mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
        mha_plan plan;
        const mha_call call = call_of_rows(job, job->d->heads[0], i, rows_from(job, i), weights);
        TRY(mha_plan_call(NULL, &call, &plan, error));
        if (plan.workspace_bytes > job->workspace_bytes)
            job->workspace_bytes = plan.workspace_bytes;
    }
    const size_t bytes = job->most * S * (job->d->dtype == MHA_F64 ? sizeof(double) : sizeof(float));
    job->ends = mha__arena_take(scratch, heads * sizeof *job->ends);
    job->workers = mha__arena_take(scratch, workers * sizeof *job->workers);
    bool taken = job->ends && job->workers;
    for (size_t w = 0; w < workers && taken; w++) {
        taken = (job->workers[w].row = mha__arena_take(scratch, 3 * S * sizeof(double))) &&
                (job->workers[w].workspace = mha__arena_take(scratch, job->workspace_bytes));
        for (size_t i = 0; i < stages_of(job) && taken; i++)
            taken = (job->workers[w].kept[i] = mha__arena_take(scratch, bytes));
    }
    return taken ? MHA_OK
                 : mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu rows of weights", job->most);
}

static mha_status add_all_rows(drawing *d, rows_job *job, size_t count, mha_error *error)
{
    mha__arena scratch = {.allocator = d->memory->allocator};
    const size_t S = job->s.S + d->plan.S_extra, threads = (size_t)d->plan.threads;
    const size_t workers = threads < count ? threads : count, rows = row_bytes / ((S + 1) * sizeof(double));
    job->most = rows < 1 ? 1 : rows < job->past - job->first ? rows : job->past - job->first;
    job->threads = (int)(threads / workers);
    mha_status status = take_memory(job, count, workers, S, &scratch, error);
    if (status == MHA_OK)
        mha__parallel_for(count, (int)workers, add_head, job);
    for (size_t n = 0; n < count && status == MHA_OK; n++) {
        status = job->ends[n].status;
        if (status != MHA_OK && error)
            *error = job->ends[n].error;
    }
    mha__arena_free(&scratch);
    return status;
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
    rows_job job = {.d = d, .s = s, .b = b, .first = first->first_query, .past = first->first_query + first->queries,
                    .heads = first, .keeps_scores = first->masked};
    if (S > 0 && first->queries > 0)
        TRY(add_all_rows(d, &job, count, error));
    else
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
    if (!d->layer->heads)
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
