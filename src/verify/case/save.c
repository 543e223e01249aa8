/* Writing a call and its results as a case file, or its stages alone. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention/resolved.h"
#include "base/base.h"
#include "verify/attempt.h"
#include "verify/case/record.h"
#include "verify/tolerance/tolerance.h"

/* A case being written; what is not borrowed from the call lives in the pool until the file is complete. */
typedef struct saving {
    mha_writer *writer;
    mha__arena pool;
    const mha_layer *layer;
    const mha_call *call;
    const mha_case_notes *notes;
    mha_plan plan;
    bool rules; /* causal, window or ALiBi: positions matter */
    mha_status status;
    mha_error *error;
} saving;

/* ---------------------------------------------------------------- pieces */

static void put_text(saving *s, const char *key, const char *text)
{
    if (!s->status)
        s->status = mha_writer_add_metadata(s->writer, key, text, s->error);
}

static void put_count(saving *s, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_text(s, key, text);
}

/* 17 digits: the same double when read again. */
static void put_real(saving *s, const char *key, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    put_text(s, key, text);
}

static void refuse(saving *s, const char *name, const char *why)
{
    if (!s->status)
        s->status = mha__fail(s->error, MHA_UNSUPPORTED, name, "a case file has no word for %s", why);
}

static void put_view(saving *s, const char *name, const mha_view *view)
{
    if (!s->status && view->data)
        s->status = mha_writer_add(s->writer, name, view, s->error);
}

static mha_view take(saving *s, mha_dtype dtype, int rank, const size_t *shape, const char *name)
{
    mha_view v = mha__arena_view(&s->pool, dtype, rank, shape);
    if (!v.data && !s->status)
        s->status = mha__fail(s->error, MHA_NO_MEMORY, name, "tensor %s: no memory", name);
    return v;
}

/* Numbers as the format has them: F32 or F64, shorter floats widened. */
static void put_reals(saving *s, const char *name, const mha_view *view)
{
    if (s->status || !view->data)
        return;
    if (view->dtype == MHA_F32 || view->dtype == MHA_F64) {
        put_view(s, name, view);
        return;
    }
    mha_view wide = take(s, MHA_F32, view->rank, view->shape, name);
    if (!s->status)
        (void)mha_view_copy(&wide, view); /* of floats, else there would be no plan */
    put_view(s, name, &wide);
}

/* Truths as BOOL, each 0 or 1. */
static void put_truths(saving *s, const char *name, const mha_view *view)
{
    mha_view truth = take(s, MHA_BOOL, view->rank, view->shape, name);
    size_t n = s->status ? 0 : mha_view_elements(&truth), index[MHA_MAX_RANK] = {0};
    for (size_t i = 0; i < n; i++) {
        ((uint8_t *)truth.data)[i] = mha_view_get(view, index) != 0;
        for (int k = view->rank - 1; k >= 0 && ++index[k] == view->shape[k]; k--)
            index[k] = 0;
    }
    put_view(s, name, &truth);
}

static void put_counts(saving *s, const char *name, const int64_t *values, size_t n)
{
    mha_view v = take(s, MHA_I64, 1, &n, name);
    if (s->status)
        return;
    memcpy(v.data, values, n * sizeof *values);
    put_view(s, name, &v);
}

/* (B, T, h, d) or (B, T, h*d) as BHTD. */
static mha_view heads_first(const mha_view *view, size_t h)
{
    mha_view v = *view;
    if (v.rank == 3) {
        v.rank = 4;
        v.shape[3] = v.shape[2] / h, v.stride[3] = v.stride[2];
        v.shape[2] = h, v.stride[2] *= (ptrdiff_t)v.shape[3];
    }
    size_t T = v.shape[1];
    ptrdiff_t step = v.stride[1];
    v.shape[1] = v.shape[2], v.stride[1] = v.stride[2];
    v.shape[2] = T, v.stride[2] = step;
    return v;
}

/* ---------------------------------------------------------------- inputs and weights */

static void put_inputs(saving *s)
{
    const mha_call *c = s->call;
    const mha_view *key = c->key.data ? &c->key : &c->query, *value = c->value.data ? &c->value : key;
    const mha_view *views[] = {&c->query, key, value};
    static const char *const names[] = {"query", "key", "value"};
    const size_t heads[] = {s->plan.h, s->plan.h_kv, s->plan.h_kv};
    for (int i = 0; i < 3; i++) {
        mha_view v = s->layer ? *views[i] : heads_first(views[i], heads[i]);
        put_reals(s, names[i], &v);
    }
    if (s->notes->past_key.data) {
        put_reals(s, "past_key", &s->notes->past_key);
        put_reals(s, "past_value", &s->notes->past_value);
    }
}

static void put_weights(saving *s)
{
    bool bias_kv = false;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        mha_view v = s->call->weights ? s->call->weights[w] : (mha_view){0};
        if (s->layer) {
            const mha_tensor *t = mha_layer_weight(s->layer, (mha_weight)w);
            v = t ? mha_tensor_view(t) : (mha_view){0};
        }
        put_reals(s, mha__case_weight_name((mha_weight)w), &v);
        bias_kv |= w == MHA_BIAS_K && v.data;
    }
    put_count(s, "add_bias_kv", bias_kv);
}

/* ---------------------------------------------------------------- semantics */

static void put_mask(saving *s, const char *key, const char *name, const mha_mask *mask)
{
    static const char *const words[] = {
        [MHA_MASK_NONE] = "none",
        [MHA_MASK_ADDITIVE] = "additive",
        [MHA_MASK_KEEPS] = "bool_true_keeps",
        [MHA_MASK_HIDES] = "bool_true_masks",
    };
    bool present = mask->kind != MHA_MASK_NONE && mask->values.data;
    put_text(s, key, words[present ? mask->kind : MHA_MASK_NONE]);
    if (present && mask->kind == MHA_MASK_ADDITIVE)
        put_reals(s, name, &mask->values);
    else if (present)
        put_truths(s, name, &mask->values);
}

static bool same_positions(const mha_view *q, const mha_view *k)
{
    mha_difference d;
    return !k->data || (mha_compare(q, k, 0, 0, &d, NULL) == MHA_OK && d.mismatches == 0);
}

static void put_rope(saving *s)
{
    static const char *const words[] = {"none", "interleaved", "half_split"};
    const mha_rope *r = &s->call->semantics.rope;
    put_text(s, "rope", words[r->kind]);
    if (r->kind == MHA_ROPE_NONE)
        return;
    put_count(s, "rope_dim", (int64_t)(r->dim ? r->dim : s->plan.d_k));
    put_real(s, "rope_base", r->base > 0 ? r->base : 10000);
    if (r->k_positions.data && (!r->q_positions.data || !same_positions(&r->q_positions, &r->k_positions)))
        refuse(s, "position_ids", "keys at other positions than the queries");
    if (r->q_positions.data && !r->k_positions.data && s->plan.T_q != s->plan.T_k)
        refuse(s, "position_ids", "positions of the queries alone");
    put_view(s, "position_ids", &r->q_positions);
    put_reals(s, "cos_cache", &r->cos_table);
    put_reals(s, "sin_cache", &r->sin_table);
}

/* The absolute position of query row 0, per batch row or sequence. */
static void put_positions(saving *s, size_t rows)
{
    const mha_semantics *m = &s->call->semantics;
    bool given = m->has_offset || m->position_offset;
    if (!given && !s->rules)
        return;
    mha_view v = take(s, MHA_I64, 1, &rows, "position_offset");
    if (s->status)
        return;
    int64_t cached = s->notes->past_key.data ? (int64_t)s->notes->past_key.shape[2] : 0;
    for (size_t b = 0; b < rows; b++)
        ((int64_t *)v.data)[b] = m->position_offset ? m->position_offset[b] : m->has_offset ? m->offset : cached;
    put_view(s, "position_offset", &v);
}

static void put_semantics(saving *s)
{
    const mha_semantics *m = &s->call->semantics;
    const mha_plan *p = &s->plan;
    put_real(s, "scale", p->scale);
    put_count(s, "scale_is_default", !m->has_scale);
    put_real(s, "softcap", m->softcap);
    put_count(s, "causal", m->causal);
    put_count(s, "window_left", m->window ? m->window_left : -1);
    put_count(s, "window_right", m->window ? m->window_right : -1);
    put_mask(s, "attn_mask_kind", "attn_mask", &m->mask);
    put_mask(s, "key_padding_mask_kind", "key_padding_mask", &m->key_padding);
    if (m->has_padding_fill)
        put_real(s, "mask_filter_value", m->padding_fill);
    put_count(s, "add_zero_attn", m->zero_row);
    put_count(s, "softmax_plus_one", m->softmax_plus_one);
    put_text(s, "fully_masked", m->empty_rows == MHA_EMPTY_NAN ? "nan" : "zero");
    put_text(s, "hidden_values", m->hidden_values == MHA_HIDDEN_PROPAGATE ? "propagate" : "ignore");
    put_count(s, "alibi", m->alibi_slopes != NULL);
    if (m->norm_eps > 0)
        put_real(s, "norm_eps", m->norm_eps);
    put_rope(s);
    put_positions(s, p->B);
    if (m->kv_lengths)
        put_counts(s, "kv_lengths", m->kv_lengths, p->B);
    if (m->alibi_slopes) {
        mha_view slopes = take(s, MHA_F64, 1, &p->h, "alibi_slopes");
        if (!s->status)
            memcpy(slopes.data, m->alibi_slopes, p->h * sizeof(double));
        put_view(s, "alibi_slopes", &slopes);
    }
    if (m->cu_seqlens_q)
        put_counts(s, "cu_seqlens_q", m->cu_seqlens_q, m->n_sequences + 1);
    if (m->cu_seqlens_k)
        put_counts(s, "cu_seqlens_k", m->cu_seqlens_k, m->n_sequences + 1);
}

static void put_sizes(saving *s)
{
    const mha_plan *p = &s->plan;
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"num_heads", p->h},
                 {"kv_heads", p->h_kv},
                 {"d_k", p->d_k},
                 {"d_v", p->d_v},
                 {"d_model", p->d_out},
                 {"batch", p->B},
                 {"q_len", p->T_q},
                 {"kv_len", p->T_k},
                 {"past_len", s->notes->past_key.data ? s->notes->past_key.shape[2] : 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        put_count(s, sizes[i].key, (int64_t)sizes[i].value);
}

/* ---------------------------------------------------------------- results */

static void put_results(saving *s)
{
    bool wanted[MHA_STAGE_COUNT];
    mha__tolerance tolerance;
    mha__two_runs runs = {0};
    for (int i = 0; i < MHA_STAGE_COUNT; i++)
        wanted[i] = mha__call_stage(s->call, (mha_stage)i) != NULL;
    const mha__request request = {s->layer, s->call, s->notes->past_key, s->notes->past_value};
    if (!s->status)
        s->status = mha__tolerance_of(&request, MHA_BTE, wanted, &runs, &tolerance, s->error);
    mha__two_runs_free(&runs);
    if (s->status)
        return;
    static const char *const prefix[] = {"expected", "expected64"};
    put_real(s, "rtol", 0);
    put_real(s, "rtol64", 0);
    for (int i = 0; i < MHA_STAGE_COUNT; i++) {
        const mha_view *stage = mha__call_stage(s->call, (mha_stage)i);
        if (!stage)
            continue;
        char name[40], key[64];
        mha_view v = *stage;
        if (i == MHA_STAGE_OUTPUT && !s->layer)
            v = heads_first(stage, s->plan.h);
        int wide = stage->dtype == MHA_F64 && s->call->path == MHA_PATH_EXACT;
        snprintf(name, sizeof name, "%s.%s", prefix[wide], mha_stage_name((mha_stage)i));
        put_view(s, name, &v);
        for (int w = 0; w <= wide; w++) {
            snprintf(key, sizeof key, "atol.%s.%s", prefix[w], mha_stage_name((mha_stage)i));
            put_real(s, key, tolerance.atol[w][i]);
        }
    }
}

static void put_all(saving *s)
{
    const mha_case_notes *n = s->notes;
    put_text(s, "format_version", "1");
    if (n->name)
        put_text(s, "name", n->name);
    if (n->note)
        put_text(s, "note", n->note);
    put_text(s, "source", n->source ? n->source : "mha");
    put_text(s, "kind", s->layer ? "mha" : "sdpa");
    put_text(s, "layout", s->layer ? "BTE" : "BHTD");
    put_sizes(s);
    put_inputs(s);
    put_weights(s);
    put_semantics(s);
    put_results(s);
}

/* The plan of the recorded call, whose cache may have moved on since. */
static mha_status plan_record(saving *s)
{
    mha__attempt attempt;
    mha_call call = *s->call;
    call.cache = NULL;
    const mha__request request = {s->layer, &call, s->notes->past_key, s->notes->past_value};
    mha_status status = mha__attempt_begin(&attempt, NULL, &request, s->error);
    s->plan = attempt.plan;
    mha__attempt_free(&attempt);
    return status;
}

mha_status mha_case_save(const char *path, const mha_layer *layer, const mha_call *call, const mha_case_notes *notes,
                         mha_error *error)
{
    static const mha_case_notes none;
    const mha_semantics *m = &call->semantics;
    saving s = {.layer = layer, .call = call, .notes = notes ? notes : &none, .error = error};
    s.pool.allocator = mha__allocator_default();
    s.rules = m->causal || m->window || m->alibi_slopes;
    if (call->cache && mha_cache_first(call->cache) > 0)
        return mha__fail(error, MHA_UNSUPPORTED, "cache", "a case file has no word for a cache that has evicted rows");
    size_t new_rows = call->key.data ? call->key.shape[1] : call->query.shape[1];
    if (call->cache && !s.notes->past_key.data && mha_cache_length(call->cache) > new_rows)
        return mha__fail(error, MHA_INVALID, "past_key", "the call has a cache: expected its rows from before the call");
    s.status = plan_record(&s);
    if (!s.status)
        s.status = mha_writer_create(path, &s.writer, error);
    put_all(&s);
    if (!s.status)
        s.status = mha_writer_commit(s.writer, error);
    mha_writer_destroy(s.writer);
    mha__arena_free(&s.pool);
    return s.status;
}

mha_status mha_trace_save(const char *path, const mha_call *call, mha_error *error)
{
    mha_writer *writer;
    mha_status status = mha_writer_create(path, &writer, error);
    if (status)
        return status;
    for (int i = 0; i < MHA_STAGE_COUNT && !status; i++)
        if (mha__call_stage(call, (mha_stage)i))
            status = mha_writer_add(writer, mha_stage_name((mha_stage)i), mha__call_stage(call, (mha_stage)i), error);
    if (!status)
        status = mha_writer_commit(writer, error);
    mha_writer_destroy(writer);
    return status;
}
