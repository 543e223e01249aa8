/* Plans a call: checks it against its layer, chooses the path, computes the sizes. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/cache/pages.h"
#include "attention/call/resolved.h"
#include "attention/call/settings/settings.h"
#include "attention/core/exact/rounding.h"
#include "attention/core/terms/terms.h"
#include "attention/layer/layer.h"
#include "attention/plan.h"
#include "compute/thread_pool.h"
#include "mha/system.h"

static mha_status wrong_shape(mha_error *error, const char *name, const mha_view *view, const char *expected)
{
    char found[200];
    return mha__fail(error, MHA_INVALID, name, "expected shape %s, found %s", expected,
                    mha__shape_text(found, sizeof found, view->shape, view->rank));
}

/* ---------------------------------------------------------------- inputs */

static mha_status check_input(const mha__resolved *r, mha_path path, const char *name, const mha_view *view,
                              mha_error *error)
{
    int rank = r->layer ? 3 : 4;
    if (!view->data && mha_view_elements(view) != 0)
        return mha__fail(error, MHA_INVALID, name, "expected data, found none");
    if (view->rank != rank)
        return wrong_shape(error, name, view, r->layer ? "(B, T, width)" : "(B, T, heads, width)");
    if (path == MHA_PATH_EXACT ? !mha__dtype_is_float(view->dtype) : view->dtype != MHA_F32)
        return mha__fail(error, MHA_INVALID, name, "expected elements of F32%s, found %s",
                        path == MHA_PATH_EXACT ? ", F64, F16 or BF16" : " (the exact path takes other floats)",
                        mha_dtype_name(view->dtype));
    const bool nothing = mha_view_elements(view) == 0; /* strides do not matter */
    if (view->shape[rank - 1] > 1 && view->stride[rank - 1] != 1 && !nothing)
        return mha__fail(error, MHA_INVALID, name, "expected a contiguous last index, found a stride of %td",
                         view->stride[rank - 1]);
    for (int k = 0; k < rank; k++)
        if (view->shape[k] > INT_MAX)
            return mha__fail(error, MHA_INVALID, name, "expected extents of at most %d, found %zu", INT_MAX,
                             view->shape[k]);
    if (path == MHA_PATH_EXACT || view->shape[1] < 2 || nothing)
        return MHA_OK;
    /* CBLAS counts the stride from row to row in int */
    if (view->stride[1] < (ptrdiff_t)view->shape[rank - 1])
        return mha__fail(error, MHA_INVALID, name,
                         "expected rows of %zu elements without overlap, found a stride of %td", view->shape[rank - 1],
                         view->stride[1]);
    if (view->stride[1] > INT_MAX)
        return mha__fail(error, MHA_INVALID, name, "expected a row stride of at most %d elements, found %td", INT_MAX,
                        view->stride[1]);
    return MHA_OK;
}

/* The widths of latent attention, and in the absorbed form the sizes of what is attended to. */
static mha_status resolve_latent(mha__resolved *r, const mha_call *call, mha_error *error)
{
    const mha_config *c = mha_layer_config(r->layer);
    if (c->kv_rank == 0)
        return call->absorbed ? mha__fail(error, MHA_UNSUPPORTED, "absorbed",
                                          "expected latent attention with it; take a layer with kv_rank")
                              : MHA_OK;
    r->latent = (mha__latent){.q_rank = c->q_rank, .kv_rank = c->kv_rank, .d_r = c->d_rope,
                              .d_n = c->d_k - c->d_rope, .d_v = c->d_v, .absorbed = call->absorbed};
    if (call->absorbed)
        r->plan.h_kv = 1, r->plan.d_k = c->kv_rank + c->d_rope, r->plan.d_v = c->kv_rank;
    bool same = r->value.data == r->key.data && r->value.dtype == r->key.dtype;
    for (int k = 0; k < 3; k++)
        same &= r->value.shape[k] < 2 || r->value.stride[k] == r->key.stride[k];
    if (!r->value_follows && !same)
        return mha__fail(error, MHA_INVALID, "value",
                         "expected none with latent attention, which reads `key` only; leave `value` out");
    return MHA_OK;
}

/* With pages a call has no keys of its own: views without rows stand in their place. */
static mha_status no_new_keys(mha__resolved *r, const mha_call *call, mha_error *error)
{
    const mha_view *keys = &r->pages.keys, *values = &r->pages.values;
    const size_t B = call->query.shape[0];
    if (!keys->data)
        return mha__fail(error, MHA_INVALID, "page keys", "expected data with a table, lengths or values, found none");
    if (call->key.data || call->key.rank != 0 || call->value.data || call->value.rank != 0)
        return mha__fail(error, MHA_INVALID, call->key.data || call->key.rank != 0 ? "key" : "value",
                         "expected none with pages, found one; leave key and value out");
    if (!values->data && !call->absorbed)
        return mha__fail(error, MHA_INVALID, "page values", "expected data, found none");
    if (!r->layer) {
        r->key = mha_view_of(NULL, MHA_F32, 4, (size_t[]){B, 0, keys->shape[2], keys->shape[3]});
        r->value = mha_view_of(NULL, MHA_F32, 4, (size_t[]){B, 0, keys->shape[2], values->shape[3]});
        return keys->rank == 4 ? MHA_OK : wrong_shape(error, "page keys", keys, "(pages, page_size, h_kv, d_k)");
    }
    const mha_config *c = mha_layer_config(r->layer);
    r->key = mha_view_of(NULL, MHA_F32, 3, (size_t[]){B, 0, c->d_kin});
    r->value = mha_view_of(NULL, MHA_F32, 3, (size_t[]){B, 0, c->d_vin});
    return MHA_OK;
}

/* Fills in the sizes that follow from the inputs. */
static mha_status resolve_inputs(mha__resolved *r, const mha_call *call, mha_error *error)
{
    mha__sizes *plan = &r->plan;
    r->query = call->query;
    r->key_follows = r->layer && !call->key.data && call->key.rank == 0 && !r->pages.keys.data;
    r->value_follows = r->layer && !call->value.data && call->value.rank == 0 && !r->pages.keys.data;
    r->key = r->key_follows ? call->query : call->key;
    r->value = r->value_follows ? r->key : call->value;
    if (r->pages.keys.data || r->pages.values.data || r->pages.table || r->pages.lengths)
        TRY(no_new_keys(r, call, error));
    TRY(check_input(r, call->path, "query", &r->query, error));
    TRY(check_input(r, call->path, "key", &r->key, error));
    TRY(check_input(r, call->path, "value", &r->value, error));
    plan->B = r->query.shape[0];
    plan->T_q = r->query.shape[1];
    plan->T_k = r->key.shape[1];
    if (r->layer) {
        const mha_config *c = mha_layer_config(r->layer);
        plan->h = c->n_heads, plan->h_kv = c->kv_heads, plan->d_k = c->d_k, plan->d_v = c->d_v, plan->d_out = c->d_out;
        TRY(resolve_latent(r, call, error));
        const size_t q[3] = {plan->B, plan->T_q, c->d_q}, k[3] = {plan->B, plan->T_k, c->d_kin},
                     v[3] = {plan->B, plan->T_k, c->d_vin};
        TRY(mha__expect_shape(error, "query", &r->query, 3, q));
        TRY(mha__expect_shape(error, "key", &r->key, 3, k));
        return mha__expect_shape(error, "value", &r->value, 3, v);
    }
    plan->h = r->query.shape[2], plan->h_kv = r->key.shape[2];
    plan->d_k = r->query.shape[3], plan->d_v = r->value.shape[3], plan->d_out = plan->h * plan->d_v;
    const size_t k[4] = {plan->B, plan->T_k, plan->h_kv, plan->d_k}, v[4] = {plan->B, plan->T_k, plan->h_kv, plan->d_v};
    TRY(mha__expect_shape(error, "key", &r->key, 4, k));
    TRY(mha__expect_shape(error, "value", &r->value, 4, v));
    if (plan->d_k == 0 || plan->d_v == 0)
        return mha__fail(error, MHA_INVALID, plan->d_k == 0 ? "key" : "value",
                         "expected heads of width 1 or more, found width 0");
    if (plan->h == 0 || plan->h_kv == 0 || plan->h % plan->h_kv != 0)
        return mha__fail(error, MHA_INVALID, "key", "expected a divisor of %zu query heads, found %zu key/value heads",
                         plan->h, plan->h_kv);
    return MHA_OK;
}

/* CBLAS counts in int. */
static mha_status check_extents(const mha__sizes *p, mha_error *error)
{
    const size_t extents[] = {p->h * p->d_k, p->h * p->d_v, p->d_out}; /* h_kv is at most h */
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        if (extents[i] > INT_MAX)
            return mha__fail(error, MHA_INVALID, i == 0 ? "query" : "value",
                             "expected at most %d features in a row of all heads, found %zu", INT_MAX, extents[i]);
    return MHA_OK;
}

/* ---------------------------------------------------------------- ragged batches */

static mha_status longest(const char *name, const int64_t *cu, size_t n, size_t total, size_t *result, mha_error *error)
{
    if (cu[0] != 0 || cu[n] != (int64_t)total)
        return mha__fail(error, MHA_INVALID, name, "expected offsets from 0 to %zu, found %lld to %lld", total,
                        (long long)cu[0], (long long)cu[n]);
    *result = 0;
    for (size_t b = 0; b < n; b++) {
        if (cu[b + 1] < cu[b] || cu[b + 1] > (int64_t)total)
            return mha__fail(error, MHA_INVALID, name, "expected rising offsets, found offset %zu of %lld after %lld",
                             b + 1, (long long)cu[b + 1], (long long)cu[b]);
        if ((size_t)(cu[b + 1] - cu[b]) > *result)
            *result = (size_t)(cu[b + 1] - cu[b]);
    }
    return MHA_OK;
}

static mha_status resolve_ragged(mha__resolved *r, mha_error *error)
{
    const mha_place *s = &mha__semantics_of(r)->place;
    mha__sizes *plan = &r->plan;
    if (!s->cu_seqlens_q)
        return MHA_OK;
    if (s->n_sequences == 0 || plan->B != 1)
        return mha__fail(error, MHA_INVALID, "cu_seqlens_q",
                         "expected batch extent 1 and a sequence for a ragged batch, found %zu and %zu", plan->B,
                         s->n_sequences);
    if (r->cache)
        return mha__fail(error, MHA_UNSUPPORTED, "cache",
                         "expected none with a ragged batch; rows of one cache have one length");
    const int64_t *cu_k = s->cu_seqlens_k ? s->cu_seqlens_k : s->cu_seqlens_q;
    size_t total_q = plan->T_q, total_k = plan->T_k;
    TRY(longest("cu_seqlens_q", s->cu_seqlens_q, s->n_sequences, total_q, &plan->T_q, error));
    if (!r->pages.keys.data)
        TRY(longest("cu_seqlens_k", cu_k, s->n_sequences, total_k, &plan->T_k, error));
    plan->B = s->n_sequences;
    plan->S = plan->T_k;
    return MHA_OK;
}

/* ---------------------------------------------------------------- path */

/* Why a call for `path` runs on blas, not on fast; "" when it runs on fast. */
static const char *why_not_fast(const mha__resolved *r, mha_path path)
{
    if (mha__semantics_of(r)->softmax.hidden_values == MHA_HIDDEN_PROPAGATE)
        return "hidden values propagate only through whole rows of weights";
    if (mha__semantics_of(r)->softmax.normaliser == MHA_SIGMOID)
        return "a sigmoid is taken of whole rows of scores";
    if (path == MHA_PATH_AUTO && strcmp(mha_isa(), "scalar") == 0)
        return "BLAS is faster than the portable kernels";
    return "";
}

static mha_status choose_path(mha__resolved *r, const mha_call *call, mha_error *error)
{
    mha__sizes *plan = &r->plan;
    const bool drops = mha__semantics_of(r)->softmax.dropout_keep.data != NULL;
    plan->path_reason = "";
    switch (call->path) {
    case MHA_PATH_AUTO:
    case MHA_PATH_FAST:
        if (drops && call->path == MHA_PATH_AUTO) {
            plan->path = MHA_PATH_EXACT, plan->path_reason = "only the exact path drops weights";
            break;
        }
        plan->path_reason = why_not_fast(r, call->path);
        plan->path = *plan->path_reason ? MHA_PATH_BLAS : MHA_PATH_FAST;
        break;
    case MHA_PATH_BLAS:
    case MHA_PATH_EXACT: plan->path = call->path; break;
    default: return mha__fail(error, MHA_INVALID, "path", "expected a value of mha_path, found number %d",
                              (int)call->path);
    }
    if (drops && plan->path != MHA_PATH_EXACT)
        return mha__fail(error, MHA_UNSUPPORTED, "dropout_keep", "expected path exact or auto with it, found %s",
                         mha_path_name(call->path));
    TRY(mha__parallel_check(call->threads, error));
    plan->threads = call->threads ? call->threads : mha_threads_available();
    return MHA_OK;
}

/* ---------------------------------------------------------------- stages */

/* Why a call does not have a stage that others have. */
static const char *why_no_stage(mha_stage stage)
{
    switch (stage) {
    case MHA_STAGE_Q_LATENT:
    case MHA_STAGE_KV_LATENT: return "expected latent attention; take a layer with q_rank or kv_rank";
    case MHA_STAGE_GATED: return "expected a layer with a gate, found none";
    case MHA_STAGE_LSE: return "expected a softmax, found a sigmoid";
    default: return "is that of a cache: a ragged batch has none, and pages are the caller's";
    }
}

static mha_status check_stage(const mha__resolved *r, mha_stage stage, const mha_view *view, mha_error *error)
{
    const char *name = mha_stage_at(stage)->name;
    if (view->dtype != MHA_F32 && view->dtype != MHA_F64)
        return mha__fail(error, MHA_INVALID, name, "expected memory of F32 or F64, found %s",
                         mha_dtype_name(view->dtype));
    size_t shape[4];
    int rank = mha__stage_shape(r, stage, shape);
    if (rank == 0)
        return mha__fail(error, MHA_UNSUPPORTED, name, "%s", why_no_stage(stage));
    if (stage == MHA_STAGE_OUTPUT && !r->layer && view->rank == 4)
        rank = 4, shape[2] = r->plan.h, shape[3] = r->plan.d_v;
    return mha__expect_shape(error, name, view, rank, shape);
}

static mha_status resolve_stages(mha__resolved *r, const mha_call *call, mha_error *error)
{
    memset(r->keep_at, -1, sizeof r->keep_at);
    r->output = call->output;
    r->partial = call->partial;
    r->keep = call->keep;
    if (r->partial.data && (r->plan.path != MHA_PATH_EXACT || r->partial.dtype != MHA_F64))
        return mha__fail(error, MHA_UNSUPPORTED, "partial", "expected F64 and the exact path, found %s and %s",
                         mha_dtype_name(r->partial.dtype), mha_path_name(r->plan.path));
    r->precision = call->precision;
    const char *fault = mha__precision_fault(&r->precision);
    if (fault)
        return mha__fail(error, MHA_INVALID, fault, "expected F32, F16, BF16 or, but for scores and sums, F8_E4M3, "
                         "F8_E5M2 or I8");
    if (mha__precision_rounds(&r->precision))
        TRY(mha__validate_precision(r, error));
    if (r->partial.data && mha__semantics_of(r)->softmax.normaliser != MHA_SOFTMAX)
        return mha__fail(error, MHA_UNSUPPORTED, "partial", "expected a softmax, found a sigmoid");
    const size_t rows[4] = {r->plan.B, r->plan.h, r->plan.T_q, r->plan.d_v + 2};
    if (r->partial.data)
        TRY(mha__expect_shape(error, "partial", &r->partial, 4, rows));
    r->keep_count = call->keep ? call->keep_count : 0;
    if (call->keep_count > MHA_STAGE_COUNT || r->keep_count != call->keep_count)
        return mha__fail(error, MHA_INVALID, "keep", "expected a list of at most %d stages, found %s of %zu",
                         MHA_STAGE_COUNT, call->keep ? "one" : "none", call->keep_count);
    r->has_data[MHA_STAGE_OUTPUT] = r->output.data != NULL;
    if (r->output.data)
        TRY(check_stage(r, MHA_STAGE_OUTPUT, &r->output, error));
    for (size_t i = 0; i < r->keep_count; i++) {
        const mha_stage stage = call->keep[i].stage;
        const mha_view *view = &call->keep[i].view;
        if ((unsigned)stage >= MHA_STAGE_COUNT)
            return mha__fail(error, MHA_INVALID, "keep", "expected a value of mha_stage, found number %d", (int)stage);
        if (r->keep_at[stage] >= 0)
            return mha__fail(error, MHA_INVALID, mha_stage_at(stage)->name, "expected each stage once, found it twice");
        r->keep_at[stage] = (signed char)i;
        if (!view->data)
            continue;
        if (stage == MHA_STAGE_OUTPUT)
            return mha__fail(error, MHA_INVALID, "output", "expected its memory in `output` of the call");
        TRY(check_stage(r, stage, view, error));
        r->has_data[stage] = true;
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- calls */

static mha_status lay_out(mha__resolved *r, mha_error *error)
{
    const size_t bytes = mha__lay_out(r);
    if (bytes > PTRDIFF_MAX - MHA_ALIGNMENT)
        return mha__fail(error, MHA_INVALID, "workspace", "expected bytes that a size can count");
    r->plan.workspace_bytes = bytes + MHA_ALIGNMENT; /* room to align the caller's block */
    return MHA_OK;
}

/* Sequences and positions, once the memory of keys is known. */
static mha__placed placed_of(const mha__resolved *r, const mha_place *s)
{
    return (mha__placed){.cu_q = s->cu_seqlens_q,
                         .cu_k = s->cu_seqlens_k ? s->cu_seqlens_k : s->cu_seqlens_q,
                         .offsets = s->position_offset,
                         .offset = s->has_offset ? s->offset : r->cached - s->key_offset,
                         .at_the_end = r->pages.keys.data && !s->has_offset && !s->position_offset};
}

/* Takes over the settings that steps read as they are given. */
static void plan_steps(mha__resolved *r, const mha_semantics *s)
{
    const mha_visible *v = &s->visible;
    r->qkv = s->qkv, r->added = s->added, r->softmax = s->softmax;
    r->qkv.norm_eps = s->qkv.norm_eps != 0 ? s->qkv.norm_eps : 1e-6;
    r->masks = (mha__masks){v->key_padding, v->mask, v->has_padding_fill ? mha__clamp(v->padding_fill) : -INFINITY,
                            v->pattern};
}

/* Its lines are the order in which a call is checked, which attention.h promises. */
static mha_status resolve(mha__planned *plan, const mha_layer *layer, const mha_call *call, mha_error *error)
{
    mha__resolved *r = &plan->call;
    mha_semantics *s = &plan->semantics;
    memset(plan, 0, sizeof *plan);
    r->layer = layer, r->pages = call->pages, r->cache = call->cache;
    *s = call->semantics;
    mha__semantics_complete(s);
    TRY(mha__expect_unused("call", call->reserved, sizeof call->reserved, error));
    TRY(mha__expect_unused("pages", call->pages.reserved, sizeof call->pages.reserved, error));
    TRY(mha__expect_unused_types("precision", call->precision.reserved,
                                 sizeof call->precision.reserved / sizeof *call->precision.reserved, error));
    TRY(mha__settings_check(s, call->path != MHA_PATH_EXACT, error));
    if (!layer && call->absorbed)
        return mha__fail(error, MHA_UNSUPPORTED, "absorbed", "expected a layer with kv_rank, found none");
    TRY(resolve_inputs(r, call, error));
    TRY(check_extents(&r->plan, error));
    TRY(choose_path(r, call, error));
    TRY(mha__resolve_weights(r, call, error));
    TRY(mha__validate_norms(r, error));
    static const mha_weight beside_keys[] = {MHA_SINKS, MHA_BIAS_K, MHA_BIAS_V};
    for (size_t i = 0; s->place.keys_only && i < sizeof beside_keys / sizeof *beside_keys; i++)
        r->weight[beside_keys[i]] = (mha_view){0};
    TRY(mha__cache_resolve(r, error));
    TRY(resolve_ragged(r, error));
    TRY(mha__pages_resolve(r, &s->place, error));
    r->placed = placed_of(r, &s->place);
    plan_steps(r, s);
    r->plan.S_extra = (r->weight[MHA_BIAS_K].data != NULL) + (size_t)s->softmax.zero_row;
    const size_t d_k = layer ? mha_layer_config(layer)->d_k : r->plan.d_k;
    r->plan.scale = mha__score_scale(&s->softmax, d_k);
    TRY(mha__validate_semantics(r, error));
    r->visibility = mha__visibility_of(s, r->first_key);
    TRY(resolve_stages(r, call, error));
    TRY(mha__expect_apart(r, error));
    r->kernels = mha__kernels_get();
    r->generation = layer ? mha__layer_generation(layer) : 0;
    return lay_out(r, error);
}

static void publish(mha_plan *plan)
{
    memcpy(plan, &mha__plan_resolved(plan)->plan, sizeof(mha__sizes));
    memset(plan->reserved, 0, sizeof plan->reserved);
}

mha_status mha__plan_in_place(const mha_layer *layer, const mha_call *call, mha_plan *plan, mha_error *error)
{
    TRY(resolve((mha__planned *)(void *)&plan->internal, layer, call, error));
    publish(plan);
    return MHA_OK;
}

mha_status mha_plan_call(const mha_layer *layer, const mha_call *call, mha_plan *plan, mha_error *error)
{
    mha_plan made;
    TRY(mha__plan_in_place(layer, call, &made, error));
    *plan = made;
    return MHA_OK;
}

int mha_plan_stage(const mha_plan *plan, mha_stage stage, size_t shape[4])
{
    return mha__stage_shape(mha__plan_resolved(plan), stage, shape);
}

mha_status mha_plan_move(mha_plan *plan, const void *query, const void *key, const void *value, void *output,
                         mha_error *error)
{
    mha_plan moved = *plan;
    mha__resolved *r = mha__plan_inside(&moved);
    if (output && !r->output.data)
        return mha__fail(error, MHA_INVALID, "output",
                         "expected a plan with an output, found one without; plan the call again");
    const struct {
        const void *given;
        mha_view *view;
        const mha_view *follows;
    } inputs[] = {{query, &r->query, NULL},
                  {key, &r->key, r->key_follows ? &r->query : NULL},
                  {value, &r->value, r->value_follows ? &r->key : NULL}};
    for (size_t i = 0; i < 3; i++) {
        if (inputs[i].given)
            inputs[i].view->data = mha__unconst(inputs[i].given);
        else if (inputs[i].follows)
            inputs[i].view->data = inputs[i].follows->data;
    }
    if (r->latent.kv_rank && r->value.data != r->key.data)
        return mha__fail(error, MHA_INVALID, "value",
                         "expected the memory of the key, which latent attention reads; move it with the key");
    if (output)
        r->output.data = output;
    TRY(mha__expect_apart(r, error));
    *plan = moved;
    return MHA_OK;
}

/* Kept stages must have the shapes of the next call, too: scores and present keys grow with the keys. */
static mha_status check_kept(const mha__resolved *r, mha_error *error)
{
    for (size_t i = 0; i < r->keep_count; i++)
        if (r->keep[i].view.data)
            TRY(check_stage(r, r->keep[i].stage, &r->keep[i].view, error));
    return MHA_OK;
}

mha_status mha_plan_advance(mha_plan *plan, mha_error *error)
{
    mha_plan next = *plan;
    mha__resolved *r = mha__plan_inside(&next);
    if (!r->cache && !r->pages.keys.data)
        return mha__fail(error, MHA_INVALID, "cache", "expected a plan with a cache or pages, found one without");
    const mha_semantics *s = mha__semantics_of(r);
    if (s->place.has_offset)
        return mha__fail(error, MHA_UNSUPPORTED, "offset",
                         "expected no number, as the planned rows have theirs; set position_offset, or neither");
    TRY(r->cache ? mha__cache_advance(r, error) : mha__pages_resolve(r, &s->place, error));
    r->placed = placed_of(r, &s->place);
    TRY(mha__validate_semantics(r, error));
    r->visibility = mha__visibility_of(s, r->first_key);
    TRY(check_kept(r, error));
    TRY(lay_out(r, error));
    publish(&next);
    *plan = next;
    return MHA_OK;
}
