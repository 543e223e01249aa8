/* A picture of a call: projections and rotation, then the weights of some rows of queries at a time. */
#include <string.h>

#include "compute/thread_pool.h"
#include "picture/call/call.h"
#include "picture/walk.h"

/* Multiply-adds of a call that is still computed exactly, in a second or two; queries of a band; bytes of rotated
 * queries and keys. */
static const double few_products = 1e9;
enum { BAND = 1024, PROJECTED = 64 << 20 };

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

/* Plans the call, on the exact path if none is named and it is a small one. Values are never looked at. */
static mha_status begin(mha__drawn_call *d, const mha_layer *layer, const mha_call *asked, const mha_view past[2],
                        mha_error *error)
{
    mha_call call = *asked;
    call.semantics.softmax.hidden_values = MHA_HIDDEN_IGNORE;
    mha__request request = {.layer = layer,
                            .call = &call,
                            .past_key = past ? past[0] : (mha_view){0},
                            .past_value = past ? past[1] : (mha_view){0},
                            .precision = asked->precision};
    TRY(mha__attempt_begin(&d->asked, &d->memory->allocator, &request, error));
    if (call.path == MHA_PATH_AUTO && products_of(layer, &d->asked.plan) <= few_products) {
        mha__attempt_free(&d->asked);
        call.path = MHA_PATH_EXACT;
        TRY(mha__attempt_begin(&d->asked, &d->memory->allocator, &request, error));
    }
    d->plan = d->asked.plan;
    d->r = mha__plan_resolved(&d->plan);
    return MHA_OK;
}

/* ---------------------------------------------------------------- the rows of some heads */

static void add_band(void *context, size_t index, int worker)
{
    const mha__rows_job *job = context;
    mha__band *one = &job->bands[index];
    one->status = mha__kept_rows_add(job, one, worker, &one->error);
}

/* Cuts the queries of `count` heads into bands: a row of a map is in one of them, and where they begin depends on
 * the queries alone. */
static size_t cut(const mha__rows_job *job, mha__head *heads, size_t count, mha__band *bands)
{
    const size_t rows = heads->pool_rows, length = (BAND + rows - 1) / rows * rows;
    size_t used = 0;
    for (size_t n = 0; n < count; n++)
        for (size_t first = job->first; first < job->past; first += length, used++)
            if (bands)
                bands[used] = (mha__band){
                    .head = &heads[n], .first = first, .past = first + length < job->past ? first + length : job->past};
    return used;
}

static mha_status add_rows(mha__rows_job *job, mha__head *heads, size_t count, mha_error *error)
{
    const mha__drawn_call *d = job->d;
    const size_t bands = cut(job, heads, count, NULL), threads = (size_t)d->plan.threads;
    const size_t workers = threads < bands ? threads : bands;
    job->threads = (int)(threads / workers);
    job->bands = mha__arena_take(&job->scratch, bands * sizeof *job->bands);
    if (!job->bands)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu bands of queries", bands);
    (void)cut(job, heads, count, job->bands);
    TRY(mha__kept_rows_begin(job, workers, error));
    mha__parallel_for(bands, (int)workers, add_band, job);
    for (size_t i = 0; i < bands; i++) {
        const mha__band *one = &job->bands[i];
        if (one->status != MHA_OK && error)
            *error = one->error;
        TRY(one->status);
        mha__head_sum(one->head, &one->sum);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- heads */

/* Takes the memory of all heads that are shown, sequence after sequence. */
static mha_status begin_heads(mha__drawn_call *d, const mha__choice_parts *parts, mha_error *error)
{
    const mha_plan *plan = &d->plan;
    const size_t shown = (parts->sequences[1] - parts->sequences[0]) * (d->heads[1] - d->heads[0]);
    d->keeps_scores = !d->choice->maps_alone && shown * plan->T_q * (plan->S + plan->S_extra) <= MHA__SCORES;
    d->layer->heads = mha__arena_take(d->memory, shown * sizeof *d->layer->heads);
    if (!d->layer->heads)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu heads", shown);
    for (size_t b = parts->sequences[0]; b < parts->sequences[1]; b++) {
        const mha__sequence s = mha__resolved_sequence(d->r, b);
        for (size_t n = d->heads[0]; n < d->heads[1]; n++) {
            mha__head *head = &d->layer->heads[d->layer->head_count];
            *head = (mha__head){.sequence = b, .head = n, .kv_head = n / (plan->h / plan->h_kv)};
            TRY(mha__choice_cut(d->choice, plan->B, s.T_q, s.S + plan->S_extra, head, error));
            TRY(mha__head_begin(head, d->memory, shown, d->keeps_scores, error));
            d->layer->head_count++;
        }
    }
    return MHA_OK;
}

/* Adds the rows of heads [from, past), which have been projected. */
static mha_status add_heads(mha__drawn_call *d, const mha__choice_parts *parts, size_t from, size_t past,
                            mha_error *error)
{
    mha__head *heads = d->layer->heads + (from - d->heads[0]);
    for (size_t b = parts->sequences[0]; b < parts->sequences[1]; b++, heads += d->heads[1] - d->heads[0]) {
        mha__rows_job job = {.d = d, .s = mha__resolved_sequence(d->r, b), .b = b, .first = heads->first_query,
                             .past = heads->first_query + heads->queries,
                             .scratch.allocator = d->memory->allocator};
        const bool has_rows = job.s.S + d->plan.S_extra > 0 && heads->queries > 0;
        const mha_status status = has_rows ? add_rows(&job, heads, past - from, error) : MHA_OK;
        mha__arena_free(&job.scratch);
        TRY(status);
        for (size_t n = 0; n < past - from; n++)
            mha__head_end(&heads[n]);
    }
    return MHA_OK;
}

static mha_status add_all(mha__drawn_call *d, mha_error *error)
{
    mha__choice_parts parts;
    TRY(mha__choice_resolve(d->choice, d->plan.B, d->plan.h, &parts, error));
    memcpy(d->heads, parts.heads, sizeof parts.heads);
    TRY(begin_heads(d, &parts, error));
    const size_t group = mha__drawn_call_group(d, d->choice->projected ? d->choice->projected : PROJECTED);
    for (size_t first = d->heads[0] / group * group; first < d->heads[1]; first += group) {
        const size_t from = first > d->heads[0] ? first : d->heads[0];
        TRY(mha__drawn_call_project(d, first, group, error));
        TRY(add_heads(d, &parts, from, first + group < d->heads[1] ? first + group : d->heads[1], error));
    }
    return MHA_OK;
}

mha_status mha__picture_add_call(mha__picture *picture, const char *name, const mha_layer *layer, const mha_call *call,
                                 const mha_view past[2], const mha__picture_choice *choice, mha_error *error)
{
    mha__drawn_call d = {.memory = &picture->memory, .choice = choice};
    TRY(mha__picture_grow(picture, name, &d.layer, error));
    mha_status status = begin(&d, layer, call, past, error);
    if (status == MHA_OK) {
        const mha_plan *plan = &d.plan;
        *d.layer = (mha__picture_layer){.name = d.layer->name, .sequences = plan->B, .h = plan->h, .h_kv = plan->h_kv,
                                        .d_k = plan->d_k, .d_v = plan->d_v, .S_extra = plan->S_extra,
                                        .offset = mha__resolved_sequence(d.r, 0).offset - d.r->first_key};
        status = add_all(&d, error);
        d.layer->path = plan->path == MHA_PATH_EXACT ? "exact" : "blas";
        if (status == MHA_OK && plan->path == MHA_PATH_EXACT) {
            const mha__request request = {.layer = layer, .call = call, .past_key = past ? past[0] : (mha_view){0},
                                          .past_value = past ? past[1] : (mha_view){0}, .precision = call->precision};
            status = mha__walk_add(d.layer, d.memory, &request, choice, error);
        }
    }
    mha__attempt_free(&d.projection);
    mha__attempt_free(&d.asked);
    return status;
}
