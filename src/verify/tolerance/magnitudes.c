/* Measures the magnitudes of a call, on which the error bound depends. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "attention/resolved.h"
#include "base/base.h"
#include "verify/attempt.h"
#include "verify/tolerance/call_request.h"
#include "verify/tolerance/tolerance.h"

/* Largest absolute finite value of a view; 0 without data. */
static double max_abs(const mha_view *v)
{
    if (!v->data || v->dtype == MHA_BOOL || v->dtype == MHA_U8)
        return 0;
    double most = 0;
    size_t n = mha_view_elements(v), index[MHA_MAX_RANK] = {0};
    for (size_t i = 0; i < n; i++) {
        double x = fabs(mha_view_get(v, index));
        if (isfinite(x) && x > most)
            most = x;
        for (int k = v->rank - 1; k >= 0 && ++index[k] == v->shape[k]; k--)
            index[k] = 0;
    }
    return most;
}

/* The 2-norm of the `width` finite elements of a view from `index` on along its last axis, less their mean where
 * `centred`. */
static double piece_norm(const mha_view *v, const size_t *index, size_t width, double scale, bool centred)
{
    size_t at[MHA_MAX_RANK];
    double sum = 0, mean = 0;
    memcpy(at, index, sizeof at);
    for (int pass = centred ? 0 : 1; pass < 2; pass++)
        for (size_t i = 0; i < width; i++) {
            at[v->rank - 1] = index[v->rank - 1] + i;
            const double x = mha_view_get(v, at) / scale;
            if (pass == 0)
                mean += isfinite(x) ? x / (double)width : 0;
            else
                sum += isfinite(x) ? (x - mean) * (x - mean) : 0;
        }
    return sqrt(sum) * scale;
}

/* The smallest and largest 2-norm of pieces of `width` elements of the view's lines, over finite elements. A line
 * runs along the last axis. */
static void line_norms(const mha_view *v, size_t width, bool centred, double *least, double *most)
{
    if (!v->data || v->rank == 0 || width == 0)
        return;
    size_t n = mha_view_elements(v) / width, index[MHA_MAX_RANK] = {0};
    double scale = max_abs(v);
    if (scale == 0)
        scale = 1;
    for (size_t i = 0; i < n; i++) {
        const double norm = piece_norm(v, index, width, scale, centred);
        *least = fmin(*least, norm);
        *most = fmax(*most, norm);
        index[v->rank - 1] += width;
        for (int k = v->rank - 1; k > 0 && index[k] >= v->shape[k]; k--)
            index[k] = 0, index[k - 1]++;
    }
}

static double max_norm(const mha_view *v, size_t width)
{
    double least = INFINITY, most = 0;
    line_norms(v, width, false, &least, &most);
    return most;
}

static double least_norm(const mha_view *v, size_t width, bool centred)
{
    double least = INFINITY, most = 0;
    line_norms(v, width, centred, &least, &most);
    return least;
}

/* The transposed view: columns become lines. */
static mha_view transposed(mha_view v)
{
    size_t rows = v.shape[0];
    ptrdiff_t step = v.stride[0];
    v.shape[0] = v.shape[1], v.stride[0] = v.stride[1];
    v.shape[1] = rows, v.stride[1] = step;
    return v;
}

/* A weight of the layer, or of the call when there is no layer. */
static mha_view weight_view(const mha_layer *layer, const mha_call *call, mha_weight weight)
{
    if (!layer)
        return call->weights && weight < call->weight_count ? call->weights[weight] : (mha_view){0};
    const mha_tensor *t = mha_layer_weight(layer, weight);
    return t ? mha_tensor_view(t) : (mha_view){0};
}

static double weight_max(const mha_layer *layer, const mha_call *call, mha_weight weight)
{
    mha_view v = weight_view(layer, call, weight);
    return max_abs(&v);
}

static double column_norm(const mha_layer *layer, const mha_call *call, mha_weight weight)
{
    mha_view v = weight_view(layer, call, weight);
    if (!v.data)
        return 0;
    v = transposed(v);
    return max_norm(&v, v.shape[1]);
}

static double column_sum(const mha_layer *layer, const mha_call *call, mha_weight weight)
{
    mha_view v = weight_view(layer, call, weight);
    double most = 0;
    for (size_t j = 0; v.data && j < v.shape[1]; j++) {
        double sum = 0;
        for (size_t i = 0; i < v.shape[0]; i++)
            sum += fabs(mha_view_get(&v, (const size_t[]){i, j}));
        most = fmax(most, sum);
    }
    return most;
}

static void measure_layer(const mha_layer *layer, const mha_call *call, mha__magnitudes *m)
{
    const mha_config *config = mha_layer_config(layer);
    const mha_view *key = call->key.data ? &call->key : &call->query, *value = call->value.data ? &call->value : key;
    m->d_q = config->d_q, m->d_kin = config->d_kin, m->d_vin = config->d_vin;
    m->x_q = max_norm(&call->query, config->d_q);
    m->x_k = max_norm(key, config->d_kin);
    m->x_v = max_norm(value, config->d_vin);
    m->W_Q = column_norm(layer, call, MHA_W_Q);
    m->W_K = column_norm(layer, call, MHA_W_K);
    m->W_V = column_norm(layer, call, MHA_W_V);
    m->gated = config->gate != MHA_GATE_NONE;
    m->W_G = column_norm(layer, call, MHA_W_G), m->b_G = weight_max(layer, call, MHA_B_G);
    m->W_O = column_norm(layer, call, MHA_W_O), m->b_O = weight_max(layer, call, MHA_B_O);
    m->W_O_sum = column_sum(layer, call, MHA_W_O);
}

static mha__latent_magnitudes measure_latent(const mha_layer *layer, const mha_call *call, const mha_view *stage,
                                             size_t rank, const mha_weight weights[3])
{
    const double eps = call->semantics.qkv.norm_eps > 0 ? call->semantics.qkv.norm_eps : 1e-6;
    const mha_view raw = mha_view_slice(stage, 2, 0, rank);
    double least = INFINITY, most = 0;
    line_norms(&raw, rank, false, &least, &most);
    mha__latent_magnitudes m = {.rank = rank, .A = column_norm(layer, call, weights[0]),
                                .b = weight_max(layer, call, weights[1]), .weight = weight_max(layer, call, weights[2]),
                                .rms = sqrt(least * least / (double)rank + eps)};
    m.row = m.weight * sqrt((double)rank);
    return m;
}

static void measure_latents(const mha__request *request, const mha_call *call, const mha__attempt *ran,
                            mha__magnitudes *m)
{
    static const mha_weight of_q[] = {MHA_W_QA, MHA_B_QA, MHA_QA_NORM}, of_kv[] = {MHA_W_KVA, MHA_B_KVA, MHA_KVA_NORM};
    const mha_layer *layer = request->layer;
    const mha_config *c = mha_layer_config(layer);
    if (c->kv_rank == 0)
        return;
    if (c->q_rank)
        m->q_latent = measure_latent(layer, call, &ran->stages[MHA_STAGE_Q_LATENT], c->q_rank, of_q);
    m->kv_latent = measure_latent(layer, call, &ran->stages[MHA_STAGE_KV_LATENT], c->kv_rank, of_kv);
    m->absorbed = call->absorbed;
    m->d_n = c->d_k - c->d_rope, m->d_r = c->d_rope, m->d_v = c->d_v;
    m->W_KVB = column_norm(layer, call, MHA_W_KVB);
    for (size_t head = 0; head < c->n_heads; head++) {
        mha_view W = mha_layer_head(layer, MHA_W_KVB, head);
        W = mha_view_slice(&W, 1, 0, m->d_n);
        m->W_KVB_row = fmax(m->W_KVB_row, max_norm(&W, m->d_n));
    }
    if (!call->absorbed || !request->past_key.data)
        return;
    const mha_view past = mha_view_slice(&request->past_key, 3, 0, c->kv_rank);
    m->v_max = fmax(m->v_max, max_abs(&past));
    m->kv_latent.row = fmax(m->kv_latent.row, max_norm(&past, c->kv_rank));
}

/* The largest distance, in absolute value, from a query to a key of its sequence. */
static double farthest_apart(const mha__resolved *r)
{
    double far = 0;
    for (size_t b = 0; b < r->plan.B; b++) {
        const mha__sequence s = mha__resolved_sequence(r, b);
        const double from_first = (double)s.offset - (double)r->first_key; /* of query 0 to key 0 */
        far = fmax(far, fmax(fabs(from_first + (double)s.T_q), fabs(from_first - (double)s.S)));
    }
    return far;
}

/* The largest absolute value of the terms added to a score. */
static double measure_added(const mha_layer *layer, const mha_call *call, const mha_plan *plan)
{
    const mha_semantics *s = &call->semantics;
    double added = s->visible.mask.kind == MHA_MASK_ADDITIVE ? max_abs(&s->visible.mask.values) : 0;
    if (s->visible.key_padding.kind == MHA_MASK_ADDITIVE)
        added += max_abs(&s->visible.key_padding.values);
    if (s->visible.has_padding_fill)
        added += fabs(s->visible.padding_fill);
    if (s->added.alibi_slopes) {
        double slope = 0;
        for (size_t h = 0; h < plan->h; h++)
            slope = fmax(slope, fabs(s->added.alibi_slopes[h]));
        added += slope * farthest_apart(mha__plan_resolved(plan));
    }
    if (s->added.bias.rule != MHA_BIAS_RULE_NONE)
        added += weight_max(layer, call, MHA_BIAS_TABLE);
    return added;
}

static void measure_relative(const mha_layer *layer, const mha_call *call, size_t d_k, mha__magnitudes *m)
{
    const mha_relative *relative = &call->semantics.added.relative;
    for (int w = MHA_RELATIVE_K; relative->rule != MHA_RELATIVE_NONE && w <= MHA_RELATIVE_Q; w++) {
        const mha_view table = weight_view(layer, call, (mha_weight)w);
        m->relative_rows[w == MHA_RELATIVE_Q] += max_norm(&table, d_k);
    }
    m->relative_scales[0] = fabs(relative->k_scale), m->relative_scales[1] = fabs(relative->q_scale);
}

mha__turn mha__turn_of(const mha_rope *rope, const mha_view *x, double farthest)
{
    const size_t dim = rope->dim ? rope->dim : x->shape[3], pairs = dim / 2;
    const double base = rope->base > 0 ? rope->base : 10000;
    mha__turn turn = {0};
    const mha_rope_origin *origin = &rope->origin;
    if (rope->kind == MHA_ROPE_NONE || (rope->cos_table.data && origin->axes.axes == 0))
        return turn;
    const double far = max_abs(&origin->positions);
    const double of_axes = origin->frequencies.data ? fmin(0x1p-52 * far * max_abs(&origin->frequencies), 2)
                                                    : mha__angle_error(far, fmax(1, 1 / base));
    const size_t from = rope->last ? x->shape[3] - dim : 0;
    for (size_t i = 0; i < pairs; i++) {
        mha_view pair = mha_view_slice(x, 3, from + (rope->kind == MHA_ROPE_INTERLEAVED ? 2 * i : i), 1);
        pair.shape[3] = 2;
        pair.stride[3] = x->stride[3] * (rope->kind == MHA_ROPE_INTERLEAVED ? 1 : (ptrdiff_t)pairs);
        const double off = origin->axes.axes ? of_axes
                           : rope->frequencies.data
                               ? fmin(0x1p-52 * fabs(farthest * mha_view_get(&rope->frequencies, &i)), 2)
                               : mha__angle_error(farthest, pow(base, -2.0 * (double)i / (double)dim));
        const double moved = off * max_norm(&pair, 2);
        turn.pair = fmax(turn.pair, moved);
        turn.row = hypot(turn.row, moved);
    }
    return turn;
}

/* mha__turn_of for the rows of a stage that is rotated, and multiplied by the attention factor. */
static double turn_of_stage(const mha_rope *rope, const mha_view *stage, size_t heads, size_t d, double farthest)
{
    mha_view x = mha_view_heads(stage->data, stage->dtype, MHA_BTE, stage->shape[0], stage->shape[1], heads, d);
    return mha__turn_of(rope, &x, farthest).row;
}

/* The largest position, in absolute value, of a query or a new key of the call. */
static double farthest_position(const mha__resolved *r)
{
    const mha_rope *rope = &r->semantics.qkv.rope;
    double far = fmax(max_abs(&rope->q_positions), max_abs(&rope->k_positions));
    for (size_t b = 0; b < r->plan.B; b++) {
        const mha__sequence s = mha__resolved_sequence(r, b);
        far = fmax(far, fmax(fabs((double)s.offset) + (double)s.T_q, fabs((double)r->cached) + (double)s.T_k));
    }
    return far;
}

void mha__magnitudes_want(const mha_layer *layer, bool wanted[MHA_STAGE_COUNT])
{
    static const mha_stage read[] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V, MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT};
    const mha_config *c = layer ? mha_layer_config(layer) : NULL;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        wanted[read[i]] = true;
    wanted[MHA_STAGE_Q_LATENT] |= c && c->q_rank > 0;
    wanted[MHA_STAGE_KV_LATENT] |= c && c->kv_rank > 0;
}

static void measure_norms(const mha_layer *layer, const mha_call *call, const mha__attempt *a, mha__magnitudes *m)
{
    const mha_plan *plan = &a->plan;
    const mha_norm_rule *rule = &call->semantics.qkv.norm;
    const size_t heads[2] = {plan->h, plan->h_kv};
    static const mha_stage stages[2] = {MHA_STAGE_Q, MHA_STAGE_K};
    static const mha_weight weights[2] = {MHA_Q_NORM, MHA_K_NORM}, biases[2] = {MHA_Q_NORM_BIAS, MHA_K_NORM_BIAS};
    const double eps = call->semantics.qkv.norm_eps > 0 ? call->semantics.qkv.norm_eps : 1e-6;
    m->norm_rule = *rule;
    for (int i = 0; i < 2; i++) {
        const mha_view w = weight_view(layer, call, weights[i]);
        const mha_norm over = mha__norm_of_weight(&w, heads[i], plan->d_k);
        mha__norm_size *n = &m->norm[i];
        if (!over && !rule->unweighted)
            continue;
        n->terms = over == MHA_NORM_ROW ? heads[i] * plan->d_k : plan->d_k;
        n->weight = over ? max_abs(&w) + (rule->plus_one ? 1 : 0) : 1;
        n->bias = weight_max(layer, call, biases[i]);
        n->row = max_norm(&a->stages[stages[i]], n->terms);
        double least = least_norm(&a->stages[stages[i]], n->terms, rule->kind == MHA_NORM_LAYER);
        if (rule->after_rope && m->rope_times > 0)
            least *= fmin(m->rope_times, 1), n->row *= fmax(m->rope_times, 1);
        n->divisor = sqrt(least * least / (rule->kind == MHA_NORM_L2 ? 1 : (double)n->terms) + eps);
    }
}

/* What a cache that rounds new rows to its type does to them. */
static void measure_cache(mha_dtype dtype, mha__magnitudes *m)
{
    if (dtype == MHA_F32)
        m->cache_unit = 0x1p-24, m->cache_eta = 0x1p-149, m->cache_largest = FLT_MAX;
    else if (dtype == MHA_F16)
        m->cache_unit = 0x1p-11, m->cache_eta = 0x1p-24, m->cache_largest = 65520;
    else if (dtype == MHA_BF16)
        m->cache_unit = 0x1p-8, m->cache_eta = 0x1p-133, m->cache_largest = 0x1.ffp127;
    else if (dtype == MHA_I8)
        m->cache_unit = 1.0 / 254 + 0x1p-22, m->cache_eta = 0x1p-142, m->cache_largest = FLT_MAX,
        m->cache_by_row = true;
}

void mha__magnitudes_of(const mha__request *request, const mha__attempt *ran, mha__magnitudes *magnitudes)
{
    const mha_layer *layer = request->layer;
    mha_call meant = *request->call;
    meant.semantics = mha__semantics_meant(&meant.semantics);
    const mha_call *call = &meant;
    const mha_semantics *s = &meant.semantics;
    mha__magnitudes m = {.softmax = s->softmax, .clip = s->qkv.clip_qkv};
    const mha_view bias_k = weight_view(layer, call, MHA_BIAS_K), bias_v = weight_view(layer, call, MHA_BIAS_V);
    if (layer)
        measure_layer(layer, call, &m);
    else
        m.x_q = max_abs(&call->query), m.x_k = max_abs(&call->key), m.x_v = max_abs(&call->value);
    m.b_Q = weight_max(layer, call, MHA_B_Q);
    m.b_K = weight_max(layer, call, MHA_B_K);
    m.b_V = weight_max(layer, call, MHA_B_V);
    if (request->cache_rounds)
        measure_cache(request->cache, &m);
    m.cached = call->cache || request->past_key.data;
    const mha_plan *plan = &ran->plan;
    const size_t d = plan->d_k;
    m.q_row = max_norm(&ran->stages[MHA_STAGE_Q_ROT], d);
    m.k_row = fmax(max_norm(&ran->stages[MHA_STAGE_K_ROT], d), max_norm(&bias_k, d));
    m.v_max = fmax(max_abs(&ran->stages[MHA_STAGE_V]), max_abs(&bias_v));
    if (request->past_key.data) {
        m.k_row = fmax(m.k_row, max_norm(&request->past_key, d));
        m.v_max = fmax(m.v_max, max_abs(&request->past_value));
    }
    m.added = measure_added(layer, call, plan);
    measure_relative(layer, call, d, &m);
    m.sink = s->place.keys_only ? 0 : weight_max(layer, call, MHA_SINKS);
    const double farthest = farthest_position(mha__plan_resolved(plan));
    m.rotated = s->qkv.rope.kind != MHA_ROPE_NONE;
    m.rope_times = s->qkv.rope.attention_factor;
    /* A rotation keeps the norm of each pair, so that rows that are normalised later are measured before it. */
    const bool later = s->qkv.norm.after_rope;
    const double times = later && m.rope_times > 1 ? m.rope_times : 1;
    const mha_view *q = &ran->stages[later ? MHA_STAGE_Q : MHA_STAGE_Q_ROT],
                   *k = &ran->stages[later ? MHA_STAGE_K : MHA_STAGE_K_ROT];
    m.q_turn = times * turn_of_stage(&s->qkv.rope, q, plan->h, d, farthest);
    m.k_turn = times * turn_of_stage(&s->qkv.rope, k, plan->h_kv, d, farthest);
    m.query_times = 1;
    if (s->qkv.query_scale.growth != 0)
        m.query_times += s->qkv.query_scale.growth *
                         log1p((farthest + fabs((double)s->qkv.query_scale.first)) / (double)s->qkv.query_scale.every);
    if (s->qkv.query_scale.log_n != 0)
        m.query_times *= fmax(1, log1p(farthest) / log((double)s->qkv.query_scale.log_n));
    measure_norms(layer, call, ran, &m);
    if (layer)
        measure_latents(request, call, ran, &m);
    *magnitudes = m;
}

mha_status mha_error_bound(const mha_layer *layer, const mha_call *call, double unit, double *bound, size_t count,
                           mha_error *error)
{
    if (!(unit > 0 && unit < 1))
        return mha__fail(error, MHA_INVALID, "unit", "expected a roundoff between 0 and 1, found %g", unit);
    bool wanted[MHA_STAGE_COUNT] = {false};
    mha__magnitudes_want(layer, wanted);
    mha__call_request given;
    mha__attempt attempt = {0};
    mha_status status = mha__call_request_begin(&given, layer, call, error);
    if (status == MHA_OK)
        status = mha__attempt_begin(&attempt, NULL, &given.request, error);
    if (status == MHA_OK)
        status = mha__attempt_run_inputs(&attempt, wanted, error); /* which leaves the cache as it is */
    if (status == MHA_OK) {
        mha__magnitudes magnitudes;
        double all[MHA_STAGE_COUNT];
        mha__magnitudes_of(&given.request, &attempt, &magnitudes);
        mha__bound_of(&attempt.plan, &magnitudes, unit, &call->precision, all);
        memcpy(bound, all, (count < MHA_STAGE_COUNT ? count : MHA_STAGE_COUNT) * sizeof *bound);
    }
    mha__attempt_free(&attempt);
    mha__call_request_free(&given);
    return status;
}
