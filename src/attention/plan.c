/* A call against its layer: shapes, paths, sizes; what has no meaning is refused here. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "attention/steps/cache.h"
#include "attention/resolved.h"
#include "mha/system.h"

enum { MOST_THREADS = 1024 };

static mha_status wrong_shape(mha_error *error, const char *name, const mha_view *view, const char *expected)
{
    char found[200];
    return mha__fail(error, MHA_INVALID, name, "%s: expected shape %s, found %s", name, expected,
                    mha__shape_text(found, sizeof found, view->shape, view->rank));
}

static mha_status expect_shape(mha_error *error, const char *name, const mha_view *view, int rank, const size_t *shape)
{
    if (view->rank == rank && memcmp(view->shape, shape, (size_t)rank * sizeof *shape) == 0)
        return MHA_OK;
    char expected[200];
    return wrong_shape(error, name, view, mha__shape_text(expected, sizeof expected, shape, rank));
}

static bool is_float(mha_dtype dtype)
{
    return dtype == MHA_F32 || dtype == MHA_F64 || dtype == MHA_F16 || dtype == MHA_BF16;
}

/* ---------------------------------------------------------------- inputs */

static mha_status check_input(const mha__resolved *r, const char *name, const mha_view *view, mha_error *error)
{
    int rank = r->layer ? 3 : 4;
    if (!view->data && mha_view_elements(view) != 0)
        return mha__fail(error, MHA_INVALID, name, "%s: no data", name);
    if (view->rank != rank)
        return wrong_shape(error, name, view, r->layer ? "(B, T, width)" : "(B, T, heads, width)");
    if (r->call->path == MHA_PATH_EXACT ? !is_float(view->dtype) : view->dtype != MHA_F32)
        return mha__fail(error, MHA_INVALID, name, "%s: expected elements of F32%s, found %s", name,
                        r->call->path == MHA_PATH_EXACT ? ", F64, F16 or BF16" : " (the exact path takes other floats)",
                        mha_dtype_name(view->dtype));
    const bool nothing = mha_view_elements(view) == 0; /* whose strides mean nothing */
    if (view->shape[rank - 1] > 1 && view->stride[rank - 1] != 1 && !nothing)
        return mha__fail(error, MHA_INVALID, name, "%s: the last index must be contiguous, found a stride of %td", name,
                        view->stride[rank - 1]);
    for (int k = 0; k < rank; k++)
        if (view->shape[k] > INT_MAX)
            return mha__fail(error, MHA_INVALID, name, "%s: expected extents of at most %d, found %zu", name, INT_MAX, view->shape[k]);
    if (r->call->path == MHA_PATH_EXACT || view->shape[1] < 2 || nothing)
        return MHA_OK;
    /* CBLAS steps from row to row, in int */
    if (view->stride[1] < (ptrdiff_t)view->shape[rank - 1])
        return mha__fail(error, MHA_INVALID, name, "%s: rows of %zu elements must not overlap, found a stride of %td", name,
                        view->shape[rank - 1], view->stride[1]);
    if (view->stride[1] > INT_MAX)
        return mha__fail(error, MHA_INVALID, name, "%s: expected a row stride of at most %d elements, found %td", name, INT_MAX,
                        view->stride[1]);
    return MHA_OK;
}

/* Fills the sizes that the inputs decide. */
static mha_status resolve_inputs(mha__resolved *r, mha_error *error)
{
    const mha_call *call = r->call;
    mha_plan *plan = &r->plan;
    r->query = call->query;
    r->key = call->key.data || call->key.rank ? call->key : r->layer ? call->query : call->key;
    r->value = call->value.data || call->value.rank ? call->value : r->layer ? r->key : call->value;
    mha_status status;
    if ((status = check_input(r, "query", &r->query, error)) || (status = check_input(r, "key", &r->key, error)) ||
        (status = check_input(r, "value", &r->value, error)))
        return status;
    plan->B = r->query.shape[0];
    plan->T_q = r->query.shape[1];
    plan->T_k = r->key.shape[1];
    if (r->layer) {
        const mha_config *c = mha_layer_config(r->layer);
        plan->h = c->n_heads, plan->h_kv = c->kv_heads, plan->d_k = c->d_k, plan->d_v = c->d_v, plan->d_out = c->d_out;
        const size_t q[3] = {plan->B, plan->T_q, c->d_q}, k[3] = {plan->B, plan->T_k, c->d_kin},
                     v[3] = {plan->B, plan->T_k, c->d_vin};
        (void)((status = expect_shape(error, "query", &r->query, 3, q)) ||
               (status = expect_shape(error, "key", &r->key, 3, k)) ||
               (status = expect_shape(error, "value", &r->value, 3, v)));
        return status;
    }
    plan->h = r->query.shape[2], plan->h_kv = r->key.shape[2];
    plan->d_k = r->query.shape[3], plan->d_v = r->value.shape[3], plan->d_out = plan->h * plan->d_v;
    const size_t k[4] = {plan->B, plan->T_k, plan->h_kv, plan->d_k}, v[4] = {plan->B, plan->T_k, plan->h_kv, plan->d_v};
    if ((status = expect_shape(error, "key", &r->key, 4, k)) || (status = expect_shape(error, "value", &r->value, 4, v)))
        return status;
    if (plan->d_k == 0 || plan->d_v == 0)
        return mha__fail(error, MHA_INVALID, plan->d_k == 0 ? "key" : "value", "heads of width 0 have nothing to attend with");
    if (plan->h == 0 || plan->h_kv == 0 || plan->h % plan->h_kv != 0)
        return mha__fail(error, MHA_INVALID, "key", "%zu query heads cannot share %zu key/value heads evenly", plan->h,
                        plan->h_kv);
    return MHA_OK;
}

/* CBLAS counts in int. */
static mha_status check_extents(const mha_plan *p, mha_error *error)
{
    const size_t extents[] = {p->h * p->d_k, p->h * p->d_v, p->d_out}; /* key/value heads are no more than h */
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        if (extents[i] > INT_MAX)
            return mha__fail(error, MHA_INVALID, "heads", "a row of %zu features is longer than %d", extents[i], INT_MAX);
    return MHA_OK;
}

/* ---------------------------------------------------------------- weights */

static mha_status resolve_weights(mha__resolved *r, mha_error *error)
{
    const mha_plan *plan = &r->plan;
    const mha_extras *e = &r->call->extras;
    if (r->layer) {
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
            if (mha_layer_weight(r->layer, (mha_weight)w))
                r->weight[w] = mha_tensor_view(mha_layer_weight(r->layer, (mha_weight)w));
        r->norm_over_row[0] = mha_layer_config(r->layer)->q_norm == MHA_NORM_ROW;
        r->norm_over_row[1] = mha_layer_config(r->layer)->k_norm == MHA_NORM_ROW;
        return MHA_OK;
    }
    const struct {
        mha_weight weight;
        const mha_view *view;
        const char *name;
        size_t width, other_width;
    } extras[] = {
        {MHA_B_Q, &e->b_q, "b_q", plan->h * plan->d_k, 0},
        {MHA_B_K, &e->b_k, "b_k", plan->h_kv * plan->d_k, 0},
        {MHA_B_V, &e->b_v, "b_v", plan->h_kv * plan->d_v, 0},
        {MHA_BIAS_K, &e->bias_k, "bias_k", plan->h_kv * plan->d_k, 0},
        {MHA_BIAS_V, &e->bias_v, "bias_v", plan->h_kv * plan->d_v, 0},
        {MHA_SINKS, &e->sinks, "sinks", plan->h, 0},
        {MHA_Q_NORM, &e->q_norm, "q_norm", plan->d_k, plan->h * plan->d_k},
        {MHA_K_NORM, &e->k_norm, "k_norm", plan->d_k, plan->h_kv * plan->d_k},
    };
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        const mha_view *view = extras[i].view;
        if (!view->data)
            continue;
        bool fits = view->rank == 1 && (view->shape[0] == extras[i].width ||
                                        (extras[i].other_width && view->shape[0] == extras[i].other_width));
        if (!fits)
            return expect_shape(error, extras[i].name, view, 1, &extras[i].width);
        if (!is_float(view->dtype))
            return mha__fail(error, MHA_INVALID, extras[i].name, "%s: expected a floating type, found %s", extras[i].name,
                            mha_dtype_name(view->dtype));
        r->weight[extras[i].weight] = *view;
    }
    if (!e->bias_k.data != !e->bias_v.data)
        return mha__fail(error, MHA_UNSUPPORTED, "bias_k", "bias_k and bias_v are one key/value row: give both or neither");
    r->norm_over_row[0] = e->q_norm.data && e->q_norm.shape[0] != plan->d_k;
    r->norm_over_row[1] = e->k_norm.data && e->k_norm.shape[0] != plan->d_k;
    return MHA_OK;
}

/* ---------------------------------------------------------------- cache, ragged batches */

static mha_status resolve_cache(mha__resolved *r, mha_error *error)
{
    mha_plan *plan = &r->plan;
    plan->S = plan->T_k;
    const mha_cache *cache = r->call->cache;
    if (!cache)
        return MHA_OK;
    mha_view keys = mha_cache_keys(cache), values = mha_cache_values(cache);
    const size_t k[4] = {plan->B, plan->h_kv, keys.shape[2], plan->d_k}, v[4] = {plan->B, plan->h_kv, keys.shape[2], plan->d_v};
    mha_status status;
    if ((status = expect_shape(error, "cache keys", &keys, 4, k)) || (status = expect_shape(error, "cache values", &values, 4, v)))
        return status;
    if (r->call->path != MHA_PATH_EXACT && keys.dtype == MHA_F64)
        return mha__fail(error, MHA_UNSUPPORTED, "cache", "a cache of %s needs the exact path", mha_dtype_name(keys.dtype));
    size_t kept;
    status = mha__cache_room(cache, plan->T_k, &kept, error);
    if (status != MHA_OK)
        return status;
    r->kept = kept;
    r->cached = (int64_t)(mha_cache_first(cache) + mha_cache_length(cache));
    r->first_key = r->cached - (int64_t)kept;
    plan->S = kept + plan->T_k;
    if (r->call->path != MHA_PATH_EXACT && plan->S > INT_MAX) /* CBLAS counts in int */
        return mha__fail(error, MHA_UNSUPPORTED, "cache", /* unreachable: without 16 GiB for a test's cache */
                         "cache: %zu keys need the exact path, which has no limit of %d", plan->S, INT_MAX);
    return MHA_OK;
}

static mha_status longest(const char *name, const int64_t *cu, size_t n, size_t total, size_t *result, mha_error *error)
{
    if (cu[0] != 0 || cu[n] != (int64_t)total)
        return mha__fail(error, MHA_INVALID, name, "%s: expected offsets from 0 to %zu, found %lld to %lld", name, total,
                        (long long)cu[0], (long long)cu[n]);
    *result = 0;
    for (size_t b = 0; b < n; b++) {
        if (cu[b + 1] < cu[b] || cu[b + 1] > (int64_t)total)
            return mha__fail(error, MHA_INVALID, name, "%s: offset %zu is %lld after %lld", name, b + 1,
                            (long long)cu[b + 1], (long long)cu[b]);
        if ((size_t)(cu[b + 1] - cu[b]) > *result)
            *result = (size_t)(cu[b + 1] - cu[b]);
    }
    return MHA_OK;
}

static mha_status resolve_ragged(mha__resolved *r, mha_error *error)
{
    const mha_semantics *s = r->semantics;
    mha_plan *plan = &r->plan;
    if (!s->cu_seqlens_q) {
        if (s->cu_seqlens_k || s->n_sequences)
            return mha__fail(error, MHA_INVALID, "cu_seqlens_q", "a ragged batch needs cu_seqlens_q");
        return MHA_OK;
    }
    if (s->n_sequences == 0 || plan->B != 1)
        return mha__fail(error, MHA_INVALID, "cu_seqlens_q",
                        "a ragged batch has inputs of batch extent 1 and at least one sequence, found %zu and %zu", plan->B,
                        s->n_sequences);
    if (r->call->cache)
        return mha__fail(error, MHA_UNSUPPORTED, "cache", "a ragged batch has no cache: rows of one cache have one length");
    const int64_t *cu_k = s->cu_seqlens_k ? s->cu_seqlens_k : s->cu_seqlens_q;
    size_t total_q = plan->T_q, total_k = plan->T_k;
    mha_status status = longest("cu_seqlens_q", s->cu_seqlens_q, s->n_sequences, total_q, &plan->T_q, error);
    if (status == MHA_OK)
        status = longest("cu_seqlens_k", cu_k, s->n_sequences, total_k, &plan->T_k, error);
    plan->B = s->n_sequences;
    plan->S = plan->T_k;
    return status;
}

mha__sequence mha__resolved_sequence(const mha__resolved *r, size_t b)
{
    const mha_semantics *s = r->semantics;
    mha__sequence q = {.batch = b, .T_q = r->plan.T_q, .T_k = r->plan.T_k, .S = r->plan.S};
    if (s->cu_seqlens_q) {
        const int64_t *cu_q = s->cu_seqlens_q, *cu_k = s->cu_seqlens_k ? s->cu_seqlens_k : cu_q;
        q.batch = 0;
        q.q_from = (size_t)cu_q[b], q.T_q = (size_t)(cu_q[b + 1] - cu_q[b]);
        q.k_from = (size_t)cu_k[b], q.T_k = q.S = (size_t)(cu_k[b + 1] - cu_k[b]);
    }
    q.offset = s->position_offset ? s->position_offset[b] : s->has_offset ? s->offset : r->cached;
    return q;
}

/* ---------------------------------------------------------------- path and stages */

/* Why not the streaming core; "" when nothing speaks against it. */
static const char *not_streamed(const mha__resolved *r)
{
    if (r->semantics->hidden_values == MHA_HIDDEN_PROPAGATE)
        return "hidden values propagate only through the whole matrix of weights";
    if (r->call->path == MHA_PATH_AUTO && strcmp(mha_isa(), "scalar") == 0)
        return "BLAS is faster than the portable kernels";
    return "";
}

static mha_status choose_path(mha__resolved *r, mha_error *error)
{
    mha_plan *plan = &r->plan;
    plan->path_reason = "";
    switch (r->call->path) {
    case MHA_PATH_AUTO:
    case MHA_PATH_FAST:
        plan->path_reason = not_streamed(r);
        plan->path = *plan->path_reason ? MHA_PATH_BLAS : MHA_PATH_FAST;
        break;
    case MHA_PATH_BLAS:
    case MHA_PATH_EXACT: plan->path = r->call->path; break;
    default: return mha__fail(error, MHA_INVALID, "path", "unknown path");
    }
    if (r->call->threads < 0 || r->call->threads > MOST_THREADS)
        return mha__fail(error, MHA_INVALID, "threads", "expected 1 to %d threads, found %d", MOST_THREADS, r->call->threads);
    plan->threads = r->call->threads ? r->call->threads : mha_threads_available();
    return MHA_OK;
}

static void stage_shape(mha_plan *plan, mha_stage stage, int rank, size_t a, size_t b, size_t c, size_t d)
{
    plan->stage_rank[stage] = rank;
    const size_t shape[4] = {a, b, c, d};
    memcpy(plan->stage_shape[stage], shape, sizeof shape);
}

static mha_status resolve_stages(mha__resolved *r, mha_error *error)
{
    mha_plan *p = &r->plan;
    size_t B = r->query.shape[0], T_q = r->query.shape[1], T_k = r->key.shape[1], S_all = p->S + p->S_extra;
    stage_shape(p, MHA_STAGE_Q, 3, B, T_q, p->h * p->d_k, 0);
    stage_shape(p, MHA_STAGE_K, 3, B, T_k, p->h_kv * p->d_k, 0);
    stage_shape(p, MHA_STAGE_V, 3, B, T_k, p->h_kv * p->d_v, 0);
    stage_shape(p, MHA_STAGE_Q_ROT, 3, B, T_q, p->h * p->d_k, 0);
    stage_shape(p, MHA_STAGE_K_ROT, 3, B, T_k, p->h_kv * p->d_k, 0);
    for (int s = MHA_STAGE_SCORES; s <= MHA_STAGE_WEIGHTS; s++)
        stage_shape(p, (mha_stage)s, 4, p->B, p->h, p->T_q, S_all);
    stage_shape(p, MHA_STAGE_WEIGHTS_MEAN, 3, p->B, p->T_q, S_all, 0);
    stage_shape(p, MHA_STAGE_HEADS, 3, B, T_q, p->h * p->d_v, 0);
    stage_shape(p, MHA_STAGE_OUTPUT, 3, B, T_q, p->d_out, 0);
    stage_shape(p, MHA_STAGE_PRESENT_KEY, 4, p->B, p->h_kv, p->S, p->d_k);
    stage_shape(p, MHA_STAGE_PRESENT_VALUE, 4, p->B, p->h_kv, p->S, p->d_v);
    stage_shape(p, MHA_STAGE_LSE, 3, p->B, p->h, p->T_q, 0);
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        const mha_view *view = &r->call->stages[s];
        const char *name = mha_stage_name((mha_stage)s);
        if (!view->data)
            continue;
        if (view->dtype != MHA_F32 && view->dtype != MHA_F64)
            return mha__fail(error, MHA_INVALID, name, "stage %s: expected memory of F32 or F64, found %s", name,
                            mha_dtype_name(view->dtype));
        if ((s == MHA_STAGE_PRESENT_KEY || s == MHA_STAGE_PRESENT_VALUE) && r->semantics->cu_seqlens_q)
            return mha__fail(error, MHA_UNSUPPORTED, name, "stage %s: a ragged batch has no cache", name);
        if (s == MHA_STAGE_OUTPUT && !r->layer && view->rank == 4) {
            const size_t by_head[4] = {B, T_q, p->h, p->d_v};
            mha_status status = expect_shape(error, name, view, 4, by_head);
            if (status != MHA_OK)
                return status;
            continue;
        }
        mha_status status = expect_shape(error, name, view, p->stage_rank[s], p->stage_shape[s]);
        if (status != MHA_OK)
            return status;
    }
    return MHA_OK;
}

mha_status mha__resolve_call(const mha_layer *layer, const mha_call *call, mha__resolved *r, mha_error *error)
{
    *r = (mha__resolved){.layer = layer, .call = call, .semantics = &call->semantics};
    mha_status status;
    (void)((status = resolve_inputs(r, error)) || (status = check_extents(&r->plan, error)) || (status = choose_path(r, error)) || (status = resolve_weights(r, error)) ||
           (status = resolve_cache(r, error)) || (status = resolve_ragged(r, error)));
    if (status != MHA_OK)
        return status;
    r->plan.S_extra = (r->weight[MHA_BIAS_K].data != NULL) + (size_t)r->semantics->zero_row;
    r->plan.scale = r->semantics->has_scale ? r->semantics->scale : 1.0 / sqrt((double)r->plan.d_k);
    status = mha__validate_semantics(r, error);
    return status == MHA_OK ? resolve_stages(r, error) : status;
}
