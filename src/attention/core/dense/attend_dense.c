/* softmax(Q K^T * scale) V over whole rows of scores (Vaswani et al. 2017, eq. 1), a block of query rows of one head at
 * a time. */
#include <math.h>
#include <string.h>

#include "attention/cache/cache.h"
#include "attention/cache/pages.h"
#include "attention/cache/stages.h"
#include "attention/core/dense/attend_dense.h"
#include "attention/core/terms/terms.h"
#include "attention/visibility/pattern.h"
#include "base/heads.h"
#include "compute/gemm.h"
#include "compute/half.h"
#include "compute/thread_pool.h"

enum { QUERY_ROWS = 64 };

/* Everything the blocks share. */
typedef struct attention {
    const mha__resolved *r;
    const mha_view *Q, *K, *V, *heads;
    const float *bias_rows; /* of a relative position bias */
    const mha__relative_tables *relative;
    char *scratch;
    size_t scratch_bytes, blocks, groups, heads_per_group;
} attention;

/* One worker's memory: scores, then weights, of a block (rows of `width` = S'); one row of mask terms; the mean of the
 * weights over the heads, if it is kept; the values with zeros for NaN and infinity, if there are any. */
typedef struct scratch {
    float *scores, *terms, *mean, *values;
    float *relative, *relative_work; /* relative terms of the block, rows of S, and what makes them */
    float *total; /* of each row: what its heads are still to be divided by, where weights are rounded */
    bool *nan; /* whether a row is NaN throughout, with or without keys */
    size_t width;
} scratch;

/* Whether a hidden key adds 0 times its values. */
static bool propagates(const mha__resolved *r)
{
    return r->softmax.hidden_values == MHA_HIDDEN_PROPAGATE;
}

static size_t lay_out(const mha__resolved *r, char *base, scratch *m)
{
    mha__workspace arena = {base, 0};
    size_t rows = r->plan.T_q < QUERY_ROWS ? r->plan.T_q : QUERY_ROWS;
    m->width = r->plan.S + r->plan.S_extra;
    m->scores = mha__workspace_take(&arena, rows, m->width * sizeof(float));
    m->terms = mha__workspace_take(&arena, m->width, sizeof(float));
    m->values = mha__workspace_take(&arena, propagates(r) ? 0 : r->plan.S, r->plan.d_v * sizeof(float));
    const bool relative = r->added.relative.rule != MHA_RELATIVE_NONE;
    m->relative = mha__workspace_take(&arena, relative ? rows : 0, r->plan.S * sizeof(float));
    m->relative_work = mha__workspace_take(&arena, mha__relative_work(r, rows, r->plan.S), 1);
    m->total = mha__workspace_take(&arena, rows, sizeof *m->total);
    m->nan = mha__workspace_take(&arena, rows, sizeof *m->nan);
    m->mean = mha__workspace_take(&arena, mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN) ? rows : 0, m->width * sizeof(float));
    return arena.used;
}

/* The memory of all workers, and copies of keys and values if they lie in pages, if the cache has 16 or 8 bits or
 * continues another one, or if rows are too far apart. */
typedef struct memory {
    char *workers;
    size_t worker_bytes;
    float *K, *V;
} memory;

/* Whether rows (B, S, h_kv, d) are so far apart that a product with a single query would round differently. */
static bool too_far_apart(const mha_view *rows)
{
    return rows->shape[1] > 1 && rows->stride[1] > MHA_GEMM_GAP_STRIDE;
}

/* Whether a copy may be needed. While the workspace is laid out, only the rows that the call gives are known. */
static bool may_copy(const mha__resolved *r, const mha_view *given, size_t width)
{
    const bool halves = r->pages.keys.data ||
                        (r->cache && (mha__cache_trunk(r->cache) || mha_cache_keys(r->cache).dtype != MHA_F32));
    const mha__latent *l = &r->latent; /* its values lie beside keys, in rows of both */
    const size_t row = l->absorbed ? r->plan.d_k : l->kv_rank ? r->plan.h * (l->d_n + l->d_v) : 0,
                 own = r->plan.h_kv * width;
    return halves || too_far_apart(given) || (row > own ? row : own) > MHA_GEMM_GAP_STRIDE;
}

static size_t lay_out_all(const mha__resolved *r, char *base, memory *m)
{
    const mha__sizes *p = &r->plan;
    mha__workspace arena = {base, 0};
    scratch unused;
    m->worker_bytes = lay_out(r, NULL, &unused);
    m->workers = mha__workspace_take(&arena, m->worker_bytes, (size_t)p->threads);
    size_t heads, rows;
    m->K = m->V = NULL;
    if (!mha__mul(p->B, p->h_kv, &heads) || !mha__mul(heads, p->S, &rows))
        return SIZE_MAX; /* unreachable: a call whose keys cannot be counted is refused when it is planned */
    m->K = may_copy(r, &r->key, p->d_k) ? mha__workspace_take(&arena, rows, p->d_k * sizeof(float)) : NULL;
    m->V = may_copy(r, &r->value, p->d_v) ? mha__workspace_take(&arena, rows, p->d_v * sizeof(float)) : NULL;
    return arena.used;
}

size_t mha__attend_dense_scratch(const mha__resolved *r)
{
    memory unused;
    return lay_out_all(r, NULL, &unused);
}

/* Rows (B, S, h_kv, d), or pages of them, as BLAS takes them: where they lie, or copied to `room` as floats, head by
 * head. */
static mha_view for_blas(const mha__resolved *r, const mha_view *rows, bool values, float *room)
{
    const size_t all[4] = {r->plan.B, rows->shape[2], r->plan.S, rows->shape[3]};
    const mha_view copied = mha__swap_time_and_heads(mha_view_of(room, MHA_F32, 4, all));
    if (r->pages.keys.data) {
        mha__pages_gather(r, rows, &copied);
        return copied;
    }
    if (r->cache && mha__cache_trunk(r->cache)) {
        mha__cache_copy(r->cache, values && !r->latent.absorbed, &copied, r->plan.threads);
        return copied;
    }
    if (rows->dtype == MHA_F32 && !too_far_apart(rows))
        return *rows;
    const size_t shape[4] = {rows->shape[0], rows->shape[2], rows->shape[1], rows->shape[3]};
    const mha_view floats = mha__swap_time_and_heads(mha_view_of(room, MHA_F32, 4, shape));
    mha__widen(&floats, rows, r->plan.threads);
    return floats;
}

/* ---------------------------------------------------------------- extra rows */

/* Element c of extra row e for key/value head g: the learned bias row, then the row of zeros. */
static float extra(const mha__resolved *r, mha_weight bias, size_t e, size_t at)
{
    const mha_view *row = &r->weight[bias];
    return row->data && e == 0 ? (float)mha_view_get(row, &at) : 0.0f;
}

static float extra_score(const mha__resolved *r, const float *q, size_t e, size_t g)
{
    size_t d = r->plan.d_k;
    double sum = 0; /* computed for the zero row, too, where 0 * infinity is NaN */
    for (size_t c = 0; c < d; c++)
        sum += (double)q[c] * extra(r, MHA_BIAS_K, e, g * d + c);
    return (float)(sum * r->plan.scale);
}

static void add_extra_value(const mha__resolved *r, float weight, size_t e, size_t g, float *out)
{
    size_t d = r->plan.d_v;
    for (size_t c = 0; c < d; c++)
        out[c] += weight * extra(r, MHA_BIAS_V, e, g * d + c);
}

/* ---------------------------------------------------------------- softmax */

static void cap(float *scores, size_t n, float c)
{
    for (size_t j = 0; j < n; j++)
        scores[j] = c * tanhf(scores[j] / c);
}

static void fill(float *row, size_t n, float value)
{
    for (size_t j = 0; j < n; j++)
        row[j] = value;
}

/* Weights and lse of a query that sees no key, by the rule that the call states. */
static float empty(const mha__resolved *r, float *s, size_t n)
{
    fill(s, n, mha__empty(r));
    return isnan(mha__empty(r)) ? NAN : -INFINITY;
}

/* Replaces n masked scores (hidden ones are -inf) by 1 / (1 + exp(-z)), z = s + bias; no exponential exceeds 1. */
static void sigmoid(float *s, size_t n, float bias)
{
    for (size_t j = 0; j < n; j++) {
        const float z = s[j] + bias, e = expf(-fabsf(z));
        s[j] = (z < 0.0f ? e : 1.0f) / (1.0f + e);
    }
}

/* Replaces n masked scores (hidden ones are -inf) by exp(s - max); *total becomes their sum and that of the terms
 * without a key. Returns log(sum exp). In base 2 scores are rounded once more. */
static float softmax(const mha__resolved *r, size_t head, float *s, size_t n, float *total)
{
    const bool two = r->base_2, plus_one = r->softmax.softmax_plus_one;
    const float log2_e = 0x1.715476p+0f, sink = mha__sink(r, head) * (two ? log2_e : 1.0f);
    float max = plus_one && sink < 0.0f ? 0.0f : sink;
    if (two)
        mha__kernels_get()->scale(s, s, n, log2_e);
    for (size_t j = 0; j < n; j++)
        max = s[j] > max ? s[j] : max;
    double sum = 0; /* a NaN among the scores makes it NaN, whatever the maximum was */
    if (sink != -INFINITY)
        sum += two ? exp2((double)(sink - max)) : exp((double)(sink - max));
    if (plus_one)
        sum += two ? exp2((double)-max) : exp((double)-max);
    for (size_t j = 0; j < n; j++) {
        s[j] = two ? exp2f(s[j] - max) : expf(s[j] - max);
        sum += s[j];
    }
    *total = (float)sum;
    return (float)(two ? (max + log2(sum)) * 0x1.62e42fefa39efp-1 : max + log(sum)); /* log(2) */
}

/* ---------------------------------------------------------------- one block of rows */

typedef struct query_block {
    const mha__sequence *s;
    size_t b, head, g; /* sequence, query head, its key/value head */
    size_t first, rows;
    mha__interval keys; /* all keys that any row of the block may see */
} query_block;

static mha__interval hull(const mha__resolved *r, const query_block *k)
{
    mha__interval all = {0, 0};
    for (size_t i = 0; i < k->rows; i++) {
        mha__interval one = mha__visible_interval(r, k->s, k->b, k->first + i);
        if (one.from == one.to)
            continue;
        if (all.from == all.to || one.from < all.from)
            all.from = one.from;
        if (one.to > all.to)
            all.to = one.to;
    }
    return all;
}

static void score(const attention *a, const query_block *k, const scratch *m, mha__interval keys)
{
    const size_t n = keys.to - keys.from;
    float *scores = m->scores + keys.from;
    if (n == 0)
        return;
    mha__gemm_nt(k->rows, n, a->r->plan.d_k, mha__row(a->Q, k->s->batch, k->s->q_from + k->first, k->head),
                 (size_t)a->Q->stride[1], mha__row(a->K, k->s->k_batch, k->s->k_from + keys.from, k->g),
                 (size_t)a->K->stride[1], scores, m->width);
    for (size_t i = 0; i < k->rows; i++, scores += m->width)
        mha__kernels_get()->scale(scores, scores, n, (float)a->r->plan.scale);
}

/* Writes the terms of row i of the block for these keys; false: none of them has one. An empty interval may begin
 * before the keys of the block. */
static bool terms_of(const attention *a, const query_block *k, const scratch *m, size_t i, mha__interval keys)
{
    const mha__resolved *r = a->r;
    if (!r->visibility.terms || keys.from == keys.to)
        return false;
    const bool relative = r->added.relative.rule != MHA_RELATIVE_NONE;
    const mha__added added = {a->bias_rows, relative ? m->relative + i * r->plan.S + (keys.from - k->keys.from) : NULL};
    (void)mha__visible_terms(r, &added, k->s, k->b, k->head, k->first + i, keys, m->terms);
    return true;
}

/* Adds the n weights of row i to its mean over the heads. */
static void add_to_mean(const query_block *k, const scratch *m, size_t i, size_t heads, const float *weights, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        float *mean = &m->mean[i * m->width + j];
        *mean = (k->head == 0 ? 0.0f : *mean) + weights[j];
        if (k->head == heads - 1)
            *mean /= (float)heads;
    }
}

/* Turns the scores of row i of the block into weights, and keeps its stages. */
static void weigh(const attention *a, const query_block *k, const scratch *m, size_t i)
{
    const mha__resolved *r = a->r;
    size_t S = k->s->S, n = S + r->plan.S_extra, query = k->first + i;
    float *row = m->scores + i * m->width;
    const float *q = mha__row(a->Q, k->s->batch, k->s->q_from + query, k->head);
    for (size_t e = 0; e < r->plan.S_extra; e++)
        row[S + e] = extra_score(r, q, e, k->g);
    mha__stage_row(r, MHA_STAGE_SCORES, k->b, k->head, query, MHA_F32, row, n);
    const float softcap = (float)r->softmax.softcap;
    if (softcap > 0) {
        bool all = mha__is_kept(r, MHA_STAGE_CAPPED);
        cap(row + (all ? 0 : k->keys.from), all ? S : k->keys.to - k->keys.from, softcap);
        cap(row + S, r->plan.S_extra, softcap);
    }
    mha__stage_row(r, MHA_STAGE_CAPPED, k->b, k->head, query, MHA_F32, row, n);

    mha__interval keys = mha__visible_interval(r, k->s, k->b, query);
    size_t seen = keys.to - keys.from;
    const bool terms = terms_of(a, k, m, i, keys);
    for (size_t j = keys.from; terms && j < keys.to; j++) {
        const float term = m->terms[j - keys.from];
        row[j] = term == -INFINITY ? -INFINITY : row[j] + term;
        seen -= term == -INFINITY;
    }
    fill(row, keys.from, -INFINITY);
    fill(row + keys.to, S - keys.to, -INFINITY);
    const bool pads = mha__pattern_pads(&r->masks.pattern, k->b, query);
    fill(row + S, pads ? r->plan.S_extra : 0, -INFINITY);
    mha__stage_row(r, MHA_STAGE_MASKED, k->b, k->head, query, MHA_F32, row, n);

    const bool more = mha__sink(r, k->head) != -INFINITY || r->softmax.softmax_plus_one,
               sees = !pads && (seen + r->plan.S_extra > 0 || more);
    float total = 1.0f;
    if (r->softmax.normaliser == MHA_SIGMOID) {
        sigmoid(row, n, (float)r->softmax.sigmoid_bias);
        m->nan[i] = false;
    } else {
        const float lse = sees ? softmax(r, k->head, row, n, &total) : empty(r, row, n);
        m->nan[i] = isnan(lse);
        mha__stage_row(r, MHA_STAGE_LSE, k->b, k->head, query, MHA_F32, &lse, 1);
    }
    const bool rounds = mha__rounds_to_bf16(r);
    float *weights = rounds ? m->terms : row;
    for (size_t j = 0; j < n; j++)
        weights[j] = row[j] / total;
    mha__stage_row(r, MHA_STAGE_WEIGHTS, k->b, k->head, query, MHA_F32, weights, n);
    if (mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN))
        add_to_mean(k, m, i, r->plan.h, weights, n);
    if (rounds) /* what meets values is rounded before it is divided */
        mha__kernels_get()->round_to_bf16(n, row, row);
    m->total[i] = rounds ? total : 1.0f;
}

/* A copy of the values of the keys, with zeros for NaN and infinity. */
static const float *finite_values(const attention *a, const query_block *k, const scratch *m, mha__interval keys)
{
    size_t d_v = a->r->plan.d_v;
    for (size_t j = keys.from; j < keys.to; j++) {
        const float *v = mha__row(a->V, k->s->k_batch, k->s->k_from + j, k->g);
        float *to = m->values + (j - keys.from) * d_v;
        for (size_t c = 0; c < d_v; c++)
            to[c] = isfinite(v[c]) ? v[c] : 0.0f;
    }
    return m->values;
}

/* Adds NaN and infinity in visible value rows to row i. */
static void add_non_finite(const attention *a, const query_block *k, const scratch *m, size_t i, float *out)
{
    const mha__resolved *r = a->r;
    const float *weights = m->scores + i * m->width;
    mha__interval keys = mha__visible_interval(r, k->s, k->b, k->first + i);
    const bool terms = terms_of(a, k, m, i, keys);
    for (size_t j = keys.from; j < keys.to; j++) {
        const float *v = mha__row(a->V, k->s->k_batch, k->s->k_from + j, k->g);
        if (terms && m->terms[j - keys.from] == -INFINITY)
            continue;
        for (size_t c = 0; c < r->plan.d_v; c++)
            if (!isfinite(v[c]))
                out[c] += weights[j] * v[c];
    }
}

static void weighted_sum(const attention *a, const query_block *k, const scratch *m)
{
    const mha__resolved *r = a->r;
    bool dense = propagates(r), finite = true;
    mha__interval keys = dense ? (mha__interval){0, k->s->S} : k->keys;
    float *out = mha__row(a->heads, k->s->batch, k->s->q_from + k->first, k->head);
    const float *values = keys.from < keys.to ? mha__row(a->V, k->s->k_batch, k->s->k_from + keys.from, k->g) : out;
    size_t stride = (size_t)a->heads->stride[1], d_v = r->plan.d_v, n = keys.to - keys.from;
    mha__gemm(k->rows, d_v, n, m->scores + keys.from, m->width, values, (size_t)a->V->stride[1], out, stride);
    for (size_t i = 0; !dense && i < k->rows; i++)
        for (size_t c = 0; c < d_v; c++)
            finite &= isfinite(out[i * stride + c]) != 0;
    /* The weight 0 of a hidden key times NaN must not reach the output: computed again with zeros for NaN and infinity,
     * in the same order, so that the numbers in hidden rows change no bit. */
    if (!finite)
        mha__gemm(k->rows, d_v, n, m->scores + keys.from, m->width, finite_values(a, k, m, keys), d_v, out, stride);
    for (size_t i = 0; i < k->rows; i++) {
        float *row = out + i * stride;
        const bool pads = mha__pattern_pads(&r->masks.pattern, k->b, k->first + i);
        if (m->nan[i] || pads)
            fill(row, d_v, m->nan[i] ? NAN : 0.0f);
        else if (!finite)
            add_non_finite(a, k, m, i, row);
        for (size_t e = 0; e < r->plan.S_extra && !pads; e++)
            add_extra_value(r, m->scores[i * m->width + k->s->S + e], e, k->g, row);
        for (size_t c = 0; mha__rounds_to_bf16(r) && c < d_v; c++)
            row[c] /= m->total[i];
    }
}

static void attend_block(const attention *a, const query_block *k, const scratch *m)
{
    const mha__resolved *r = a->r;
    score(a, k, m, k->keys);
    if (mha__is_kept(r, MHA_STAGE_SCORES) ||
        mha__is_kept(r, MHA_STAGE_CAPPED)) { /* hidden scores are computed only because the stage is kept */
        score(a, k, m, (mha__interval){0, k->keys.from});
        score(a, k, m, (mha__interval){k->keys.to, k->s->S});
    }
    const mha__relative_pairs pairs = {.s = k->s, .head = k->head, .of_Q = k->head, .of_K = k->g,
                                       .K_batch = k->s->k_batch, .first = k->first, .queries = k->rows,
                                       .keys = k->keys};
    if (r->added.relative.rule != MHA_RELATIVE_NONE)
        mha__relative_terms(r, a->relative, a->Q, a->K, &pairs, m->relative, r->plan.S, m->relative_work);
    for (size_t i = 0; i < k->rows; i++)
        weigh(a, k, m, i);
    weighted_sum(a, k, m);
}

/* ---------------------------------------------------------------- all blocks */

/* Computes a block of rows of one head, or of all heads one after the other when the mean of their weights is kept. */
static void task(void *context, size_t number, int worker)
{
    const attention *a = context;
    const mha__resolved *r = a->r;
    size_t b = number / a->groups / a->blocks, group = number / a->blocks % a->groups;
    mha__sequence s = mha__resolved_sequence(r, b);
    query_block k = {
        .s = &s, .b = b, .first = (a->blocks - 1 - number % a->blocks) * QUERY_ROWS}; /* causal: longest first */
    if (k.first >= s.T_q)
        return;
    k.rows = s.T_q - k.first < QUERY_ROWS ? s.T_q - k.first : QUERY_ROWS;
    k.keys = hull(r, &k);
    scratch m;
    lay_out(r, a->scratch + (size_t)worker * a->scratch_bytes, &m);
    for (k.head = group * a->heads_per_group; k.head < (group + 1) * a->heads_per_group; k.head++) {
        k.g = k.head / (r->plan.h / r->plan.h_kv);
        attend_block(a, &k, &m);
    }
    if (!mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN))
        return;
    for (size_t i = 0; i < k.rows; i++)
        mha__stage_row(r, MHA_STAGE_WEIGHTS_MEAN, b, k.first + i, 0, MHA_F32, m.mean + i * m.width,
                       s.S + r->plan.S_extra);
}

void mha__attend_dense(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                       const mha_view *heads, const float *bias_rows, const mha__relative_tables *relative,
                       char *scratch_memory)
{
    bool together = mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN);
    memory m;
    lay_out_all(r, scratch_memory, &m);
    const mha_view keys = for_blas(r, K, false, m.K), values = for_blas(r, V, true, m.V);
    attention a = {.r = r, .Q = Q, .K = &keys, .V = &values, .heads = heads, .bias_rows = bias_rows,
                   .relative = relative, .scratch = m.workers, .scratch_bytes = m.worker_bytes,
                   .blocks = (r->plan.T_q + QUERY_ROWS - 1) / QUERY_ROWS,
                   .groups = together ? 1 : r->plan.h, .heads_per_group = together ? r->plan.h : 1};
    mha__stages_clear_ragged(r);
    mha__parallel_for(r->plan.B * a.groups * a.blocks, r->plan.threads, task, &a);
}
