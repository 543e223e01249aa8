/* Measures the magnitudes of a call, on which the error bound depends. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "base/base.h"
#include "verify/attempt/attempt.h"
#include "verify/attempt/call_request.h"
#include "verify/tolerance/tolerance.h"

double mha__largest(const mha_view *v)
{
    double most = 0;
    size_t index[MHA_MAX_RANK] = {0};
    const bool reads = v->data && v->dtype != MHA_BOOL && v->dtype != MHA_U8 && mha_view_elements(v) > 0;
    for (bool more = reads; more; more = mha__index_next(index, v->shape, v->rank)) {
        const double x = fabs(mha_view_get(v, index));
        most = isfinite(x) ? fmax(most, x) : most;
    }
    return most;
}

/* The 2-norm of piece number `index` of the view's lines, over its `width` finite elements, less their mean where
 * `centred`. */
static double piece_norm(const mha_view *v, const size_t *index, size_t width, double scale, bool centred)
{
    size_t at[MHA_MAX_RANK];
    double sum = 0, mean = 0;
    memcpy(at, index, sizeof at);
    for (int pass = centred ? 0 : 1; pass < 2; pass++)
        for (size_t i = 0; i < width; i++) {
            at[v->rank - 1] = index[v->rank - 1] * width + i;
            const double x = mha_view_get(v, at) / scale;
            if (pass == 0)
                mean += isfinite(x) ? x / (double)width : 0;
            else
                sum += isfinite(x) ? (x - mean) * (x - mean) : 0;
        }
    return sqrt(sum) * scale;
}

typedef struct norms {
    double least, most;
} norms;

/* The smallest and largest 2-norm of pieces of `width` elements of the view's lines, which run along its last axis. */
static norms piece_norms(const mha_view *v, size_t width, bool centred)
{
    norms found = {INFINITY, 0};
    if (!v->data || v->rank == 0 || width == 0)
        return found;
    const double largest = mha__largest(v), scale = largest > 0 ? largest : 1;
    size_t shape[MHA_MAX_RANK], index[MHA_MAX_RANK] = {0};
    memcpy(shape, v->shape, sizeof shape);
    shape[v->rank - 1] /= width;
    for (bool more = mha_view_elements(v) > 0; more; more = mha__index_next(index, shape, v->rank)) {
        const double norm = piece_norm(v, index, width, scale, centred);
        found = (norms){fmin(found.least, norm), fmax(found.most, norm)};
    }
    return found;
}

static double max_norm(const mha_view *v, size_t width)
{
    return piece_norms(v, width, false).most;
}

static mha__product_size product_of(const mha__resolved *r, mha_weight weight, mha_weight bias)
{
    const mha_view *W = &r->weight[weight];
    mha__product_size p = {.b = mha__largest(&r->weight[bias])};
    if (!W->data)
        return p;
    const mha_view columns = mha__view_swap(W, 0, 1);
    p.terms = W->shape[0], p.W = max_norm(&columns, W->shape[0]);
    return p;
}

static double column_sum(const mha_view *W)
{
    double most = 0;
    for (size_t j = 0; W->data && j < W->shape[1]; j++) {
        double sum = 0;
        for (size_t i = 0; i < W->shape[0]; i++)
            sum += fabs(mha_view_get(W, (const size_t[]){i, j}));
        most = fmax(most, sum);
    }
    return most;
}

/* The smallest r of mha_norm_kind. */
static double divisor(const mha__resolved *r, double least, double terms)
{
    return sqrt(least * least / terms + r->qkv.norm_eps);
}

static mha__latent_size measure_latent(const mha__resolved *r, const mha_view *stage, size_t rank,
                                       const mha_weight weights[3])
{
    const mha_view raw = mha_view_slice(stage, 2, 0, rank);
    mha__latent_size l = {.made = product_of(r, weights[0], weights[1]),
                          .norm = {.terms = rank, .weight = mha__largest(&r->weight[weights[2]]),
                                   .divisor = divisor(r, piece_norms(&raw, rank, false).least, (double)rank)}};
    l.row = l.norm.weight * sqrt((double)rank);
    return l;
}

static void measure_latents(const mha__request *request, const mha__attempt *ran, mha__magnitudes *m)
{
    static const mha_weight of_q[] = {MHA_W_QA, MHA_B_QA, MHA_QA_NORM}, of_kv[] = {MHA_W_KVA, MHA_B_KVA, MHA_KVA_NORM};
    const mha__resolved *r = m->call;
    const mha__latent *l = &r->latent;
    if (l->kv_rank == 0)
        return;
    if (l->q_rank)
        m->q_latent = measure_latent(r, &ran->stages[MHA_STAGE_Q_LATENT], l->q_rank, of_q);
    m->kv_latent = measure_latent(r, &ran->stages[MHA_STAGE_KV_LATENT], l->kv_rank, of_kv);
    m->W_KVB = product_of(r, MHA_W_KVB, MHA_B_V);
    m->absorbed.terms = l->d_n;
    for (size_t head = 0; head < r->plan.h; head++) {
        const mha_view W = mha_view_slice(&r->weight[MHA_W_KVB], 1, head * (l->d_n + l->d_v), l->d_n);
        m->absorbed.W = fmax(m->absorbed.W, max_norm(&W, l->d_n));
    }
    if (!l->absorbed || !request->past_key.data)
        return;
    const mha_view past = mha_view_slice(&request->past_key, 3, 0, l->kv_rank);
    m->v_max = fmax(m->v_max, mha__largest(&past));
    m->kv_latent.row = fmax(m->kv_latent.row, max_norm(&past, l->kv_rank));
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
static double measure_added(const mha__resolved *r)
{
    const mha_semantics *s = mha__semantics_of(r);
    double added = s->visible.mask.kind == MHA_MASK_ADDITIVE ? mha__largest(&s->visible.mask.values) : 0;
    if (s->visible.key_padding.kind == MHA_MASK_ADDITIVE)
        added += mha__largest(&s->visible.key_padding.values);
    if (s->visible.has_padding_fill)
        added += fabs(s->visible.padding_fill);
    if (s->added.alibi_slopes) {
        const mha_view slopes = mha_view_of(mha__unconst(s->added.alibi_slopes), MHA_F64, 1, &r->plan.h);
        added += mha__largest(&slopes) * farthest_apart(r);
    }
    if (s->added.bias.rule != MHA_BIAS_RULE_NONE)
        added += mha__largest(&r->weight[MHA_BIAS_TABLE]);
    return added;
}

/* The change of a pair of norm 1: A_i of error_bound.c. */
static double angle_error(double position, double frequency)
{
    return fmin(0x1p-53 * (fabs(log(frequency)) + 5) * fabs(position) * frequency, 2);
}

mha__turn mha__turn_of(const mha_rope *rope, const mha_rope_origin *origin, const mha_view *x, double farthest)
{
    const size_t dim = rope->dim ? rope->dim : x->shape[3], pairs = dim / 2;
    const double base = rope->base > 0 ? rope->base : 10000;
    mha__turn turn = {0};
    if (rope->kind == MHA_ROPE_NONE || (rope->cos_table.data && origin->axes.axes == 0))
        return turn;
    const double far = mha__largest(&origin->positions);
    const double of_axes = origin->frequencies.data ? fmin(0x1p-52 * far * mha__largest(&origin->frequencies), 2)
                                                    : angle_error(far, fmax(1, 1 / base));
    const size_t from = rope->last ? x->shape[3] - dim : 0;
    for (size_t i = 0; i < pairs; i++) {
        mha_view pair = mha_view_slice(x, 3, from + (rope->kind == MHA_ROPE_INTERLEAVED ? 2 * i : i), 1);
        pair.shape[3] = 2;
        pair.stride[3] = x->stride[3] * (rope->kind == MHA_ROPE_INTERLEAVED ? 1 : (ptrdiff_t)pairs);
        const double off = origin->axes.axes ? of_axes
                           : rope->frequencies.data
                               ? fmin(0x1p-52 * fabs(farthest * mha_view_get(&rope->frequencies, &i)), 2)
                               : angle_error(farthest, pow(base, -2.0 * (double)i / (double)dim));
        const double moved = off * max_norm(&pair, 2);
        turn.pair = fmax(turn.pair, moved);
        turn.row = hypot(turn.row, moved);
    }
    return turn;
}

/* The largest position, in absolute value, of a query or a new key of the call. */
static double farthest_position(const mha__resolved *r)
{
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    double far = fmax(mha__largest(&rope->q_positions), mha__largest(&rope->k_positions));
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

/* The norm of q (side 0) or k, of so many heads, which reads a stage. */
static mha__norm_size measure_norm(const mha__resolved *r, int side, size_t heads, const mha_view *stage)
{
    static const mha_weight weights[2] = {MHA_Q_NORM, MHA_K_NORM}, biases[2] = {MHA_Q_NORM_BIAS, MHA_K_NORM_BIAS};
    const mha_norm_rule *rule = &mha__semantics_of(r)->qkv.norm;
    const mha_view *w = &r->weight[weights[side]];
    if (r->norm[side] == MHA_NORM_NONE)
        return (mha__norm_size){0};
    mha__norm_size n = {.terms = r->norm[side] == MHA_NORM_ROW ? heads * r->plan.d_k : r->plan.d_k,
                        .weight = w->data ? mha__largest(w) + (rule->plus_one ? 1 : 0) : 1,
                        .bias = mha__largest(&r->weight[biases[side]])};
    n.row = max_norm(stage, n.terms);
    double least = piece_norms(stage, n.terms, rule->kind == MHA_NORM_LAYER).least;
    if (rule->after_rope && r->qkv.rope.attention_factor > 0)
        least *= fmin(r->qkv.rope.attention_factor, 1), n.row *= fmax(r->qkv.rope.attention_factor, 1);
    n.divisor = divisor(r, least, rule->kind == MHA_NORM_L2 ? 1 : (double)n.terms);
    return n;
}

/* The rows of queries (side 0) or keys, at positions up to `farthest`, before and after norm and rotation. */
static mha__row_size measure_rows(const mha__request *request, const mha__resolved *r, int side,
                                  const mha_view *before, const mha_view *behind, double farthest)
{
    static const mha_rope_origin unknown;
    const mha_qkv *s = &mha__semantics_of(r)->qkv;
    const size_t heads = side ? r->plan.h_kv : r->plan.h, d = r->plan.d_k;
    mha__row_size rows = {.norm = measure_norm(r, side, heads, before), .row = max_norm(behind, d), .times = 1};
    /* A rotation keeps the norm of each pair, so that rows that are normalised later are measured before it. */
    const bool later = s->norm.after_rope;
    const mha_view *turned = later ? before : behind;
    const mha_view x =
        mha_view_heads(turned->data, turned->dtype, MHA_BTE, turned->shape[0], turned->shape[1], heads, d);
    const mha_rope_origin *origin = request->rope_origin ? request->rope_origin : &unknown;
    rows.turn = (later ? fmax(r->qkv.rope.attention_factor, 1) : 1) * mha__turn_of(&s->rope, origin, &x, farthest).row;
    for (int w = MHA_RELATIVE_K; mha__semantics_of(r)->added.relative.rule != MHA_RELATIVE_NONE && w <= MHA_RELATIVE_Q;
         w++)
        if ((w == MHA_RELATIVE_Q) == side)
            rows.relative += max_norm(&r->weight[w], d);
    return rows;
}

/* The largest factor of a query's position. */
static double measure_query_scale(const mha_query_scale *q, double farthest)
{
    double times = 1;
    if (q->growth != 0)
        times += q->growth * log1p((farthest + fabs((double)q->first)) / (double)q->every);
    if (q->log_n != 0)
        times *= fmax(1, log1p(farthest) / log((double)q->log_n));
    return times;
}

void mha__magnitudes_of(const mha__request *request, const mha__attempt *ran, mha__magnitudes *magnitudes)
{
    const mha__resolved *r = mha__plan_resolved(&ran->plan);
    const mha_view *const inputs[3] = {&r->query, &r->key, &r->value}, *const stages = ran->stages;
    const double farthest = farthest_position(r);
    mha__magnitudes m = {
        .call = r,
        .W = {product_of(r, MHA_W_Q, MHA_B_Q), product_of(r, MHA_W_K, MHA_B_K), product_of(r, MHA_W_V, MHA_B_V)},
        .W_G = product_of(r, MHA_W_G, MHA_B_G),
        .W_O = product_of(r, MHA_W_O, MHA_B_O),
        .W_O_sum = column_sum(&r->weight[MHA_W_O]),
        .rows = {measure_rows(request, r, 0, &stages[MHA_STAGE_Q], &stages[MHA_STAGE_Q_ROT], farthest),
                 measure_rows(request, r, 1, &stages[MHA_STAGE_K], &stages[MHA_STAGE_K_ROT], farthest)},
        .added = measure_added(r),
        .sink = mha__largest(&r->weight[MHA_SINKS]),
        .cached = request->call->cache || request->past_key.data,
        .cache_rounds = request->cache_rounds,
        .cache = request->cache,
    };
    for (int i = 0; i < 3; i++)
        m.x[i] = r->layer ? max_norm(inputs[i], inputs[i]->shape[2]) : mha__largest(inputs[i]);
    m.rows[0].times = measure_query_scale(&mha__semantics_of(r)->qkv.query_scale, farthest);
    m.rows[1].row = fmax(m.rows[1].row, max_norm(&r->weight[MHA_BIAS_K], r->plan.d_k));
    m.v_max = fmax(mha__largest(&stages[MHA_STAGE_V]), mha__largest(&r->weight[MHA_BIAS_V]));
    if (request->past_key.data) {
        m.rows[1].row = fmax(m.rows[1].row, max_norm(&request->past_key, r->plan.d_k));
        m.v_max = fmax(m.v_max, mha__largest(&request->past_value));
    }
    measure_latents(request, ran, &m);
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
        mha__bound_of(&magnitudes, unit, &call->precision, all);
        memcpy(bound, all, (count < MHA_STAGE_COUNT ? count : MHA_STAGE_COUNT) * sizeof *bound);
    }
    mha__attempt_free(&attempt);
    mha__call_request_free(&given);
    return status;
}
