/* Writes a call and its results as a case file. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attention/resolved.h"
#include "base/base.h"
#include "verify/attempt.h"
#include "verify/case/record.h"
#include "verify/unpaged.h"

/* A case being written. Until the file is complete, the arena holds everything that is not borrowed from the call. */
typedef struct saving {
    mha_writer *writer;
    mha__arena pool;
    const mha_layer *layer;
    const mha_call *call;
    const mha_case_notes *notes;
    mha_plan plan;
    mha_keep results[MHA_STAGE_COUNT]; /* without data: not recorded */
    mha_error *error;
} saving;

/* ---------------------------------------------------------------- one tensor or key */

static mha_status put_text(saving *s, const char *key, const char *text)
{
    return mha_writer_add_metadata(s->writer, key, text, s->error);
}

static mha_status put_count(saving *s, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return put_text(s, key, text);
}

/* Writes a number with 17 digits: reading it gives the same double. */
static mha_status put_real(saving *s, const char *key, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    return put_text(s, key, text);
}

/* Writes a tensor if the view has data. */
static mha_status put_view(saving *s, const char *name, const mha_view *view)
{
    return view->data ? mha_writer_add(s->writer, name, view, s->error) : MHA_OK;
}

static mha_status take(saving *s, mha_dtype dtype, int rank, const size_t *shape, const char *name, mha_view *view)
{
    *view = mha__arena_view(&s->pool, dtype, rank, shape);
    return view->data ? MHA_OK : mha__fail(s->error, MHA_NO_MEMORY, name, "no memory for a copy");
}

/* Writes numbers as F32 or F64; shorter floats are widened. */
static mha_status put_reals(saving *s, const char *name, const mha_view *view)
{
    if (!view->data || view->dtype == MHA_F32 || view->dtype == MHA_F64)
        return put_view(s, name, view);
    mha_view wide;
    TRY(take(s, MHA_F32, view->rank, view->shape, name, &wide));
    (void)mha_view_copy(&wide, view); /* cannot fail: the plan accepts floats only */
    return put_view(s, name, &wide);
}

/* Writes booleans as 0 and 1. */
static mha_status put_truths(saving *s, const char *name, const mha_view *view)
{
    mha_view truth;
    TRY(take(s, MHA_BOOL, view->rank, view->shape, name, &truth));
    const size_t n = mha_view_elements(&truth);
    size_t index[MHA_MAX_RANK] = {0};
    for (size_t i = 0; i < n; i++) {
        ((uint8_t *)truth.data)[i] = mha_view_get(view, index) != 0;
        mha__index_next(index, view->shape, view->rank);
    }
    return put_view(s, name, &truth);
}

static mha_status put_counts(saving *s, const char *name, const int64_t *values, size_t n)
{
    mha_view copy;
    if (!values)
        return MHA_OK;
    TRY(take(s, MHA_I64, 1, &n, name, &copy));
    memcpy(copy.data, values, n * sizeof *values);
    return put_view(s, name, &copy);
}

static mha_status refuse(saving *s, const char *name, const char *what)
{
    return mha__fail(s->error, MHA_UNSUPPORTED, name, "a case file has no word for %s", what);
}

/* (B, T, h, d) or (B, T, h*d) seen as (B, h, T, d). */
static mha_view heads_first(const mha_view *view, size_t h)
{
    mha_view v = *view;
    if (v.rank == 3) {
        v.rank = 4;
        v.shape[3] = v.shape[2] / h, v.stride[3] = v.stride[2];
        v.shape[2] = h, v.stride[2] *= (ptrdiff_t)v.shape[3];
    }
    return mha_view_swap(&v, 1, 2);
}

/* ---------------------------------------------------------------- inputs and weights */

static mha_status put_inputs(saving *s)
{
    const mha_call *c = s->call;
    const mha_view *key = c->key.data ? &c->key : &c->query, *value = c->value.data ? &c->value : key;
    const mha_view *views[] = {&c->query, key, value};
    static const case_tensor tensors[] = {CASE_QUERY, CASE_KEY, CASE_VALUE};
    const size_t heads[] = {s->plan.h, s->plan.h_kv, s->plan.h_kv};
    const bool latent = s->layer && mha_layer_config(s->layer)->kv_rank > 0;
    for (int i = 0; i < (latent ? 2 : 3); i++) {
        const mha_view v = s->layer ? *views[i] : heads_first(views[i], heads[i]);
        TRY(put_reals(s, mha__case_tensor_name(tensors[i]), &v));
    }
    TRY(put_reals(s, "past_key", &s->notes->past_key));
    if (s->call->absorbed)
        return put_count(s, "absorbed", 1);
    return put_reals(s, "past_value", &s->notes->past_value);
}

static mha_status put_weights(saving *s)
{
    bool bias_kv = false;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        mha_view v = s->call->weights ? s->call->weights[w] : (mha_view){0};
        if (s->layer) {
            const mha_tensor *t = mha_layer_weight(s->layer, (mha_weight)w);
            v = t ? mha_tensor_view(t) : (mha_view){0};
        }
        TRY(put_reals(s, mha__case_weight_name((mha_weight)w), &v));
        bias_kv |= w == MHA_BIAS_K && v.data;
    }
    return put_count(s, "add_bias_kv", bias_kv);
}

/* ---------------------------------------------------------------- semantics */

static mha_status put_mask(saving *s, const char *key, const char *name, const mha_mask *mask)
{
    static const char *const words[] = {
        [MHA_MASK_NONE] = "none",
        [MHA_MASK_ADDITIVE] = "additive",
        [MHA_MASK_KEEPS] = "bool_true_keeps",
        [MHA_MASK_HIDES] = "bool_true_masks",
    };
    const bool present = mask->kind != MHA_MASK_NONE && mask->values.data;
    TRY(put_text(s, key, words[present ? mask->kind : MHA_MASK_NONE]));
    if (!present)
        return MHA_OK;
    return mask->kind == MHA_MASK_ADDITIVE ? put_reals(s, name, &mask->values) : put_truths(s, name, &mask->values);
}

static mha_status put_pattern(saving *s)
{
    const mha_pattern *p = &s->call->semantics.pattern;
    TRY(put_view(s, "q_segments", &p->q_segments));
    TRY(put_view(s, "k_segments", &p->k_segments));
    TRY(put_mask(s, "query_padding_mask_kind", "query_padding_mask", &p->query_padding));
    TRY(put_view(s, "key_lists", &p->key_lists));
    TRY(put_mask(s, "block_mask_kind", "block_mask", &p->blocks));
    TRY(put_count(s, "block_queries", (int64_t)p->block_queries));
    return put_count(s, "block_keys", (int64_t)p->block_keys);
}

static bool same_positions(const mha_view *q, const mha_view *k)
{
    mha_difference d;
    return !k->data || (q->data && mha_compare(q, k, 0, 0, &d, NULL) == MHA_OK && d.mismatches == 0);
}

/* What tables of several axes were made of; the tables are recorded, too. */
static mha_status put_origin(saving *s, const mha_rope_origin *o)
{
    static const char *const orders[] = {"blocks", "interleaved", "repeated", "dealt"};
    int64_t sections[MHA_ROPE_MAX_AXES];
    if (o->axes.axes == 0)
        return MHA_OK;
    for (size_t i = 0; i < o->axes.axes; i++)
        sections[i] = (int64_t)o->axes.sections[i];
    TRY(put_text(s, "rope_axes", orders[o->axes.kind]));
    TRY(put_view(s, "rope_positions", &o->positions));
    return put_counts(s, "rope_sections", sections, o->axes.axes);
}

static mha_status put_rope(saving *s)
{
    static const char *const words[] = {"none", "interleaved", "half_split"};
    const mha_rope *r = &s->call->semantics.rope;
    TRY(put_text(s, "rope", words[r->kind]));
    if (r->kind == MHA_ROPE_NONE)
        return MHA_OK;
    TRY(put_count(s, "rope_dim", (int64_t)(r->dim ? r->dim : s->plan.d_k)));
    TRY(put_real(s, "rope_base", r->base > 0 ? r->base : 10000));
    TRY(put_count(s, "rope_last", r->last));
    if (r->attention_factor != 0)
        TRY(put_real(s, "rope_attention_factor", r->attention_factor));
    const bool part = s->call->semantics.has_key_offset || s->call->semantics.key_offset != 0;
    if (part ? r->k_positions.data != NULL : !same_positions(&r->q_positions, &r->k_positions))
        return refuse(s, "position_ids", "keys at other positions than the queries");
    if (r->q_positions.data && !r->k_positions.data && s->plan.T_q != s->plan.T_k && !part)
        return refuse(s, "position_ids", "positions of the queries alone");
    if (r->origin.axes.axes && r->q_positions.data && s->call->semantics.query_scale.growth != 0)
        return refuse(s, "position_ids", "positions that queries are scaled by, beside those on several axes");
    if (!r->origin.axes.axes) /* tables by row say where rows are */
        TRY(put_view(s, "position_ids", &r->q_positions));
    TRY(put_origin(s, &r->origin));
    TRY(put_reals(s, "rope_frequencies", r->origin.axes.axes ? &r->origin.frequencies : &r->frequencies));
    TRY(put_reals(s, "cos_cache", &r->cos_table));
    return put_reals(s, "sin_cache", &r->sin_table);
}

/* Writes the position of query 0 of each batch row or sequence when the semantics depend on it. */
static mha_status put_positions(saving *s)
{
    const mha_semantics *m = &s->call->semantics;
    const bool given = m->has_offset || m->position_offset,
               rules = m->causal || m->window || m->alibi_slopes || m->bias.rule || m->relative.rule || m->chunk > 0 ||
                       m->query_scale.growth != 0;
    if (!given && !rules)
        return MHA_OK;
    mha_view v;
    TRY(take(s, MHA_I64, 1, &s->plan.B, "position_offset", &v));
    const int64_t cached = s->notes->past_key.data ? (int64_t)s->notes->past_key.shape[2] : 0;
    for (size_t b = 0; b < s->plan.B; b++)
        ((int64_t *)v.data)[b] = m->position_offset ? m->position_offset[b] : m->has_offset ? m->offset : cached;
    return put_view(s, "position_offset", &v);
}

static mha_status put_bias(saving *s)
{
    static const char *const words[] = {"none", "buckets", "grid"};
    const mha_bias *bias = &s->call->semantics.bias;
    TRY(put_text(s, "bias_rule", words[bias->rule]));
    TRY(put_count(s, "bias_one_way", bias->one_way));
    if (bias->rule == MHA_BIAS_RULE_BUCKETS)
        return put_count(s, "bias_max_distance", (int64_t)(bias->max_distance ? bias->max_distance : 128));
    TRY(put_count(s, "bias_class_token", bias->class_token));
    TRY(put_count(s, "bias_height", (int64_t)bias->height));
    return put_count(s, "bias_width", (int64_t)bias->width);
}

static mha_status put_relative(saving *s)
{
    static const char *const words[] = {"none", "distance", "log_buckets", "grid"};
    const mha_relative *relative = &s->call->semantics.relative;
    TRY(put_text(s, "relative_rule", words[relative->rule]));
    if (relative->k_scale != 0)
        TRY(put_real(s, "relative_k_scale", relative->k_scale));
    if (relative->q_scale != 0)
        TRY(put_real(s, "relative_q_scale", relative->q_scale));
    if (relative->rule == MHA_RELATIVE_GRID) {
        TRY(put_count(s, "relative_height", (int64_t)relative->height));
        return put_count(s, "relative_width", (int64_t)relative->width);
    }
    if (relative->rule == MHA_RELATIVE_LOG_BUCKETS)
        TRY(put_count(s, "relative_max_distance", (int64_t)(relative->max_distance ? relative->max_distance : 512)));
    return put_count(s, "relative_reversed", relative->reversed);
}

static mha_status put_slopes(saving *s)
{
    const mha_semantics *m = &s->call->semantics;
    mha_view slopes;
    TRY(put_count(s, "alibi", m->alibi_slopes != NULL));
    if (!m->alibi_slopes)
        return MHA_OK;
    TRY(take(s, MHA_F64, 1, &s->plan.h, "alibi_slopes", &slopes));
    memcpy(slopes.data, m->alibi_slopes, s->plan.h * sizeof(double));
    return put_view(s, "alibi_slopes", &slopes);
}

static mha_status put_norm(saving *s)
{
    static const char *const kinds[] = {[MHA_NORM_RMS] = "rms", [MHA_NORM_LAYER] = "layer", [MHA_NORM_L2] = "l2"};
    const mha_semantics *m = &s->call->semantics;
    const mha_norm_rule *n = &m->norm;
    if (m->norm_eps > 0)
        TRY(put_real(s, "norm_eps", m->norm_eps));
    if (n->kind != MHA_NORM_RMS)
        TRY(put_text(s, "norm_kind", kinds[n->kind]));
    if (n->plus_one)
        TRY(put_count(s, "norm_plus_one", 1));
    if (n->after_rope)
        TRY(put_count(s, "norm_after_rope", 1));
    if (n->unweighted)
        TRY(put_count(s, "norm_unweighted", 1));
    if (m->clip_qkv > 0)
        TRY(put_real(s, "clip_qkv", m->clip_qkv));
    if (m->query_scale.growth == 0)
        return MHA_OK;
    TRY(put_real(s, "query_scale_growth", m->query_scale.growth));
    TRY(put_count(s, "query_scale_every", m->query_scale.every));
    return put_count(s, "query_scale_first", m->query_scale.first);
}

static mha_status put_semantics(saving *s)
{
    const mha_semantics *m = &s->call->semantics;
    TRY(put_real(s, "scale", s->plan.scale));
    TRY(put_count(s, "scale_is_default", !m->has_scale));
    TRY(put_real(s, "softcap", m->softcap));
    TRY(put_count(s, "causal", m->causal));
    if (m->has_key_offset || m->key_offset != 0)
        TRY(put_count(s, "key_offset", m->key_offset));
    TRY(put_count(s, "keys_only", m->keys_only));
    const mha_dtype type = s->call->precision.inputs;
    const mha_precision fused = mha_precision_of(type);
    if (memcmp(&fused, &s->call->precision, sizeof fused) != 0)
        return refuse(s, "precision", "points of rounding other than those of a fused kernel");
    if (type != MHA_F32)
        TRY(put_text(s, "precision", mha_dtype_name(type)));
    mha_dtype cached;
    if (mha__cache_rounds(s->call, &cached))
        TRY(put_text(s, "cache_dtype", mha_dtype_name(cached)));
    const bool window = m->window && (m->window_left >= 0 || m->window_right >= 0); /* else it hides nothing */
    TRY(put_count(s, "window_left", window ? m->window_left : -1));
    TRY(put_count(s, "window_right", window ? m->window_right : -1));
    TRY(put_count(s, "prefix", m->prefix));
    TRY(put_count(s, "window_keep", window ? m->window_keep : 0));
    TRY(put_count(s, "chunk", m->chunk));
    TRY(put_mask(s, "attn_mask_kind", "attn_mask", &m->mask));
    TRY(put_mask(s, "key_padding_mask_kind", "key_padding_mask", &m->key_padding));
    TRY(put_pattern(s));
    if (m->has_padding_fill)
        TRY(put_real(s, "mask_filter_value", m->padding_fill));
    TRY(put_count(s, "add_zero_attn", m->zero_row));
    TRY(put_count(s, "softmax_plus_one", m->softmax_plus_one));
    if (m->normaliser == MHA_SIGMOID) {
        TRY(put_text(s, "normaliser", "sigmoid"));
        TRY(put_real(s, "sigmoid_bias", m->sigmoid_bias));
    }
    TRY(put_text(s, "fully_masked", m->empty_rows == MHA_EMPTY_NAN ? "nan" : "zero"));
    TRY(put_text(s, "hidden_values", m->hidden_values == MHA_HIDDEN_PROPAGATE ? "propagate" : "ignore"));
    TRY(put_norm(s));
    TRY(put_rope(s));
    TRY(put_positions(s));
    TRY(put_slopes(s));
    TRY(put_bias(s));
    TRY(put_relative(s));
    TRY(put_counts(s, "kv_lengths", m->kv_lengths, s->plan.B));
    TRY(put_counts(s, "cu_seqlens_q", m->cu_seqlens_q, m->n_sequences + 1));
    return put_counts(s, "cu_seqlens_k", m->cu_seqlens_k, m->n_sequences + 1);
}

static mha_status put_sizes(saving *s)
{
    const mha_plan *p = &s->plan;
    const mha_config *c = s->layer ? mha_layer_config(s->layer) : NULL;
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"num_heads", p->h},
                 {"kv_heads", c ? c->kv_heads : p->h_kv},
                 {"d_k", c ? c->d_k : p->d_k},
                 {"d_v", c ? c->d_v : p->d_v},
                 {"d_model", p->d_out},
                 {"batch", p->B},
                 {"q_len", p->T_q},
                 {"kv_len", p->T_k},
                 {"past_len", s->notes->past_key.data ? s->notes->past_key.shape[2] : 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        TRY(put_count(s, sizes[i].key, (int64_t)sizes[i].value));
    return MHA_OK;
}

/* ---------------------------------------------------------------- the whole */

static mha_status put_results(saving *s)
{
    for (int i = 0; i < MHA_STAGE_COUNT; i++) {
        const mha_view *stage = &s->results[i].view;
        if (!stage->data)
            continue;
        const bool wide = stage->dtype == MHA_F64 && s->call->path == MHA_PATH_EXACT;
        const mha_view v = i == MHA_STAGE_OUTPUT && !s->layer ? heads_first(stage, s->plan.h) : *stage;
        char name[40];
        snprintf(name, sizeof name, "%s.%s", wide ? "expected64" : "expected", mha_stage_name((mha_stage)i));
        TRY(put_view(s, name, &v));
    }
    return MHA_OK;
}

static mha_status put_all(saving *s)
{
    const mha_case_notes *n = s->notes;
    TRY(put_text(s, "format_version", "1"));
    if (n->name)
        TRY(put_text(s, "name", n->name));
    if (n->note)
        TRY(put_text(s, "note", n->note));
    TRY(put_text(s, "source", n->source ? n->source : "mha"));
    TRY(put_text(s, "kind", s->layer ? "mha" : "sdpa"));
    TRY(put_text(s, "layout", s->layer ? "BTE" : "BHTD"));
    TRY(put_sizes(s));
    TRY(put_inputs(s));
    TRY(put_weights(s));
    TRY(put_semantics(s));
    TRY(put_results(s));
    return mha_writer_commit(s->writer, s->error);
}

/* Plans the recorded call without its cache, which may have grown since the call, and looks up what it has kept.
 * `unpaged`: of a call with pages, or NULL. */
static mha_status plan_record(saving *s, const mha__unpaged *unpaged)
{
    mha__attempt attempt;
    mha_call call = *s->call;
    call.cache = NULL;
    const mha__request request = {
        .layer = s->layer, .call = &call, .past_key = s->notes->past_key, .past_value = s->notes->past_value};
    mha_status status = mha__attempt_begin(&attempt, NULL, &request, s->error);
    s->plan = attempt.plan;
    mha__attempt_free(&attempt);
    for (int i = 0; i < MHA_STAGE_COUNT; i++) {
        const mha_view *kept = mha__call_stage(s->call, (mha_stage)i);
        s->results[i] = (mha_keep){.stage = (mha_stage)i, .view = kept ? *kept : (mha_view){0}};
    }
    if (status == MHA_OK && unpaged)
        status = mha__unpage_stages(unpaged, &request, s->results, MHA_STAGE_COUNT, &s->pool, s->error);
    return status;
}

/* A file says of keys in pages which rows they are. */
static mha_status unpage(saving *s, mha_call *call, mha_case_notes *rows, mha__unpaged *u)
{
    mha_plan planned;
    TRY(mha_plan_call(s->layer, call, &planned, s->error));
    TRY(mha__unpage_call(call, s->layer ? mha_layer_config(s->layer) : NULL, &s->pool, u, s->error));
    rows->past_key = u->keys, rows->past_value = u->values;
    s->notes = rows;
    return MHA_OK;
}

mha_status mha_case_save(const char *path, const mha_layer *layer, const mha_call *call, const mha_case_notes *notes,
                         mha_error *error)
{
    static const mha_case_notes none;
    mha_call meant = *call;
    meant.semantics = mha__semantics_meant(&call->semantics);
    saving s = {.layer = layer, .call = &meant, .notes = notes ? notes : &none, .error = error};
    s.pool.allocator = mha__allocator_default();
    if (call->cache && mha_cache_first(call->cache) > 0)
        return refuse(&s, "cache", "a cache that has evicted rows");
    if (call->partial.data)
        return refuse(&s, "partial", "keys of earlier calls");
    const size_t new_rows = call->key.data ? call->key.shape[1] : call->query.shape[1];
    if (call->cache && !s.notes->past_key.data && mha_cache_length(call->cache) > new_rows)
        return mha__fail(error, MHA_INVALID, "past_key",
                         "the call has a cache: expected its rows from before the call");
    mha_case_notes rows = *s.notes;
    mha__unpaged u;
    const bool paged = call->pages.keys.data != NULL;
    mha_status status = paged ? unpage(&s, &meant, &rows, &u) : MHA_OK;
    if (status == MHA_OK)
        status = plan_record(&s, paged ? &u : NULL);
    if (status == MHA_OK)
        status = mha_writer_create(path, &s.writer, error);
    if (status == MHA_OK)
        status = put_all(&s);
    mha_writer_destroy(s.writer);
    mha__arena_free(&s.pool);
    return status;
}
