/* Random forwards held against themselves: blas against exact within the error bound, and every way of
 * cutting the same work up (threads, batch rows, heads, caches, chunks, ragged batches) against the whole.
 * DIFFERENTIAL_TRIALS=n runs n of them, DIFFERENTIAL_SEED=s begins at seed s: a failure is replayed by its seed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/rerun.h"
#include "support/scratch.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/words.h"

/* One trial under test. The bound is computed once, from the whole call. */
typedef struct subject {
    rig *r;
    uint64_t random;
    mha_path path;
    double bound[MHA_STAGE_COUNT]; /* of float, or of double on the exact path */
    unsigned stages;
    rerun whole; /* the call as it is, run on `path` */
    char text[300];
} subject;

static size_t below(subject *s, size_t n)
{
    const uint64_t drawn = word(&s->random);
    return n ? (size_t)(drawn % n) : 0;
}

/* Two results of the same thing, each within the bound of the truth. */
static bool differ(subject *s, const char *what, mha_stage stage, const mha_view *a, const mha_view *b, double factor)
{
    mha_difference d;
    mha_error error;
    double atol = factor * s->bound[stage];
    if (stage == MHA_STAGE_LSE && s->r->t.semantics.softmax.normaliser == MHA_SIGMOID) /* has none */
        return false;
    if (mha_compare(a, b, 0, isnan(atol) ? INFINITY : atol, &d, &error)) {
        snprintf(s->text, sizeof s->text, "%s: stage %s: %.150s", what, mha_stage_at(stage)->name, error.message);
        return true;
    }
    if (d.mismatches == 0 || isinf(atol))
        return false;
    snprintf(s->text, sizeof s->text,
             "%s, path %s: stage %s: %zu of %zu beyond %g, worst at %zu,%zu,%zu,%zu: %.9g and %.9g", what,
             mha_path_name(s->path), mha_stage_at(stage)->name, d.mismatches, d.elements, atol, d.worst_index[0],
             d.worst_index[1], d.worst_index[2], d.worst_index[3], d.worst_actual, d.worst_expected);
    return true;
}

/* Stages that the call lacks are in neither. */
static bool all_differ(subject *s, const char *what, const rerun *a, const rerun *b, unsigned stages, double factor)
{
    for (int k = 0; k < MHA_STAGE_COUNT; k++)
        if (stages >> k & 1 && (a->stages[k].data || b->stages[k].data) &&
            differ(s, what, (mha_stage)k, &a->stages[k], &b->stages[k], factor))
            return true;
    return false;
}

static void begin(subject *s, rerun *r)
{
    rerun_init(r, s->r->layer, &s->r->call, &s->r->past.keys, &s->r->past.values);
}

/* Runs; a refusal is a difference too. */
static bool refused(subject *s, const char *what, rerun *r, unsigned keep)
{
    mha_error error;
    mha_status status = rerun_run(r, s->path, 1, keep, &error);
    if (status)
        snprintf(s->text, sizeof s->text, "%s: refused: %.200s", what, error.message);
    return status != MHA_OK;
}

enum {
    HEADS = 1 << MHA_STAGE_HEADS,
    OUTPUT = 1 << MHA_STAGE_OUTPUT,
    LSE = 1 << MHA_STAGE_LSE,
    PRESENT = 1 << MHA_STAGE_PRESENT_KEY | 1 << MHA_STAGE_PRESENT_VALUE,
};

/* ---------------------------------------------------------------- properties: true when one fails */

static bool exact_differs(subject *s)
{
    rerun exact;
    begin(s, &exact);
    mha_error error;
    bool failed = rerun_run(&exact, MHA_PATH_EXACT, 1, s->stages, &error) != MHA_OK;
    if (failed)
        snprintf(s->text, sizeof s->text, "exact: refused: %.200s", error.message);
    else
        failed = all_differ(s, "against exact", &s->whole, &exact, s->stages, 1);
    rerun_free(&exact);
    return failed;
}

/* Neither threads nor what else is kept change a bit. */
static bool bits_differ(subject *s)
{
    rerun r;
    mha_error error;
    begin(s, &r);
    unsigned keep = (unsigned)1 << below(s, MHA_STAGE_COUNT);
    keep = (keep | OUTPUT) & s->stages;
    bool failed = rerun_run(&r, s->path, below(s, 4) ? 1 : 2 + (int)below(s, 2), keep, &error) != MHA_OK;
    if (failed)
        snprintf(s->text, sizeof s->text, "threads: refused: %.200s", error.message);
    else
        failed = all_differ(s, "other threads, fewer stages", &r, &s->whole, keep, 0);
    rerun_free(&r);
    return failed;
}

static mha_view batch_rows(const mha_view *v, size_t b)
{
    return mha_view_slice(v, 0, b, 1);
}

/* Whether row b of a stage differs from row `other` of the whole. A stage that the call lacks is nowhere. */
static bool row_differs(subject *s, const char *name, int stage, const mha_view *found, size_t b, size_t other)
{
    const mha_view *whole = &s->whole.stages[stage];
    if (!whole->data && !found->data)
        return false;
    mha_view x = batch_rows(found, b), y = batch_rows(whole, other);
    return differ(s, name, (mha_stage)stage, &x, &y, 0);
}

/* A row of the batch does not know its neighbours, nor its own strides: alone, in place or copied to another
 * place among others, it has the same bits. */
static bool batch_differs(subject *s)
{
    const trial *t = &s->r->t;
    if (t->sequences)
        return false;
    bool failed = false;
    size_t B = s->whole.plan.B, order[TRIAL_MAX_BATCH];
    for (size_t i = 0; i < B; i++)
        order[i] = B - 1 - i;
    rerun r;
    begin(s, &r);
    rerun_batch(&r, order, B);
    failed = refused(s, "permuted batch", &r, s->stages);
    for (size_t b = 0; b < B && !failed; b++)
        for (int k = 0; k < MHA_STAGE_COUNT && !failed; k++)
            failed = row_differs(s, "permuted batch", k, &r.stages[k], b, order[b]);
    rerun_free(&r);
    for (size_t b = 0; b < B && !failed; b++) {
        begin(s, &r);
        rerun_batch(&r, &b, 1);
        failed = refused(s, "one row of the batch", &r, s->stages);
        for (int k = 0; k < MHA_STAGE_COUNT && !failed; k++)
            failed = row_differs(s, "one row of the batch", k, &r.stages[k], 0, b);
        rerun_free(&r);
    }
    return failed;
}

static mha_view group_of(const mha_view *v, size_t groups, size_t g)
{
    size_t n = v->data ? v->shape[0] / groups : 0;
    return v->data ? mha_view_slice(v, 0, g * n, n) : *v;
}

/* Each key/value head with its query heads does not know the others. */
static bool heads_differ(subject *s)
{
    const trial *t = &s->r->t;
    const mha_plan *p = &s->whole.plan;
    if (s->r->layer)
        return false;
    const mha_view *weights = s->r->call.weights;
    for (int side = 0; side < 2; side++) { /* of a row, or other weights for each head */
        const mha_view *norm = &weights[side ? MHA_K_NORM : MHA_Q_NORM];
        if (norm->data && (norm->rank != 1 || norm->shape[0] != p->d_k))
            return false;
    }
    bool failed = false;
    size_t groups = p->h_kv, n = p->h / p->h_kv;
    for (size_t g = 0; g < groups && !failed; g++) {
        rerun r;
        begin(s, &r);
        mha_call *c = &r.call;
        mha_view own[MHA_WEIGHT_COUNT];
        memcpy(own, weights, sizeof own);
        c->weights = own;
        c->query = mha_view_slice(&c->query, 2, g * n, n);
        c->key = mha_view_slice(&c->key, 2, g, 1);
        c->value = mha_view_slice(&c->value, 2, g, 1);
        static const mha_weight per_group[] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_BIAS_K, MHA_BIAS_V, MHA_SINKS};
        for (size_t i = 0; i < sizeof per_group / sizeof *per_group; i++)
            own[per_group[i]] = group_of(&own[per_group[i]], groups, g);
        if (own[MHA_BIAS_TABLE].data)
            own[MHA_BIAS_TABLE] = mha_view_slice(&own[MHA_BIAS_TABLE], 1, g * n, n);
        for (int w = MHA_RELATIVE_K; w <= MHA_RELATIVE_Q; w++)
            if (own[w].data && own[w].shape[1] != p->d_k)
                own[w] = mha_view_slice(&own[w], 1, g * n * p->d_k, n * p->d_k);
        if (c->semantics.added.alibi_slopes)
            c->semantics.added.alibi_slopes += g * n;
        rerun_settings(&r, "h", g * n, n);
        if (r.past_key.data) {
            r.past_key = mha_view_slice(&r.past_key, 1, g, 1);
            r.past_value = mha_view_slice(&r.past_value, 1, g, 1);
        }
        failed = refused(s, "heads apart", &r, HEADS | LSE);
        if (!failed) {
            mha_view heads = mha_view_slice(&s->whole.stages[MHA_STAGE_HEADS], 2, g * n * p->d_v, n * p->d_v);
            mha_view lse = mha_view_slice(&s->whole.stages[MHA_STAGE_LSE], 1, g * n, n);
            failed = differ(s, "heads apart", MHA_STAGE_HEADS, &r.stages[MHA_STAGE_HEADS], &heads, 2) ||
                     differ(s, "heads apart", MHA_STAGE_LSE, &r.stages[MHA_STAGE_LSE], &lse, 2);
        }
        rerun_free(&r);
    }
    (void)t;
    return failed;
}

static bool no_cache_or_ragged(const trial *t)
{
    return !t->sequences && !t->past && !t->use_cache;
}

/* The first keys in a cache instead of in the call. */
static bool cache_differs(subject *s)
{
    const trial *t = &s->r->t;
    size_t T_k = s->whole.plan.T_k;
    if (!no_cache_or_ragged(t) || T_k < 2 || s->r->call.semantics.qkv.rope.cos_table.rank == 3)
        return false;
    size_t p = 1 + below(s, T_k - 1);
    rerun r;
    begin(s, &r);
    rerun_spell_out(&r);
    mha_call *c = &r.call;
    c->key = mha_view_slice(&c->key, 1, p, T_k - p);
    c->value = mha_view_slice(&c->value, 1, p, T_k - p);
    mha_rope *rope = &c->semantics.qkv.rope;
    if (rope->k_positions.data)
        rope->k_positions = mha_view_slice(&rope->k_positions, 1, p, T_k - p);
    else if (rope->q_positions.data && rope->kind && c->query.shape[1] == T_k - p) { /* now taken for the keys too */
        rerun_free(&r);
        return false;
    }
    r.past_key = mha_view_slice(&s->whole.stages[MHA_STAGE_PRESENT_KEY], 2, 0, p);
    r.past_value = mha_view_slice(&s->whole.stages[MHA_STAGE_PRESENT_VALUE], 2, 0, p);
    const unsigned new_rows = 1u << MHA_STAGE_K | 1u << MHA_STAGE_V | 1u << MHA_STAGE_K_ROT;
    unsigned keep = s->stages & ~new_rows;
    bool failed = refused(s, "keys in a cache", &r, keep) || all_differ(s, "keys in a cache", &r, &s->whole, keep, 2);
    rerun_free(&r);
    return failed;
}

/* Chunk after chunk with a growing cache instead of all at once. What a chunk cannot see yet must be
 * hidden from it in the whole, too. */
static bool chunks_differ(subject *s)
{
    const trial *t = &s->r->t;
    const mha_semantics *m = &s->r->call.semantics;
    const mha_plan *p = &s->whole.plan;
    if (!no_cache_or_ragged(t) || !m->visible.causal || m->place.has_offset || m->place.position_offset ||
        m->place.has_key_offset || p->T_q != p->T_k || m->softmax.hidden_values == MHA_HIDDEN_PROPAGATE ||
        m->visible.pattern.blocks.kind || m->visible.prefix > 0)
        return false;
    bool failed = false;
    mha_view past_key = {0}, past_value = {0};
    rerun previous = {0};
    for (size_t done = 0, n; done < p->T_q && !failed; done += n) {
        n = 1 + below(s, p->T_q - done);
        size_t S = done + n;
        rerun r;
        rerun_init(&r, s->r->layer, &s->r->call, &past_key, &past_value);
        mha_call *c = &r.call;
        mha_semantics *q = &c->semantics;
        bool positions = q->qkv.rope.k_positions.data != NULL;
        if (r.layer && !c->key.data)
            c->key = c->query;
        if (r.layer && !c->value.data)
            c->value = c->key;
        rerun_queries(&r, done, n);
        q->place.offset = 0;
        c->key = mha_view_slice(&c->key, 1, done, n);
        c->value = mha_view_slice(&c->value, 1, done, n);
        if (positions)
            q->qkv.rope.k_positions = mha_view_slice(&q->qkv.rope.k_positions, 1, done, n);
        if (q->qkv.rope.cos_table.rank == 3) {
            q->qkv.rope.cos_table = mha_view_slice(&q->qkv.rope.cos_table, 1, done, n);
            q->qkv.rope.sin_table = mha_view_slice(&q->qkv.rope.sin_table, 1, done, n);
        }
        if (q->visible.mask.values.data) {
            size_t reach = q->visible.mask.values.shape[q->visible.mask.values.rank - 1];
            q->visible.mask.values = rerun_cut(&q->visible.mask.values, 1, 0, reach < S ? reach : S);
        }
        if (q->visible.key_padding.values.data)
            q->visible.key_padding.values = mha_view_slice(&q->visible.key_padding.values, 1, 0, S);
        q->visible.pattern.k_segments = rerun_cut(&q->visible.pattern.k_segments, 1, 0, S);
        if (q->visible.kv_lengths) {
            int64_t *lengths = rerun_memory(&r, p->B * sizeof *lengths);
            for (size_t b = 0; b < p->B; b++)
                lengths[b] = q->visible.kv_lengths[b] < (int64_t)S ? q->visible.kv_lengths[b] : (int64_t)S;
            q->visible.kv_lengths = lengths;
        }
        failed = refused(s, "chunks", &r, HEADS | OUTPUT | LSE | PRESENT);
        static const struct {
            mha_stage stage;
            int time;
        } stages[] = {{MHA_STAGE_HEADS, 1}, {MHA_STAGE_OUTPUT, 1}, {MHA_STAGE_LSE, 2}};
        for (size_t i = 0; i < 3 && !failed; i++) {
            mha_view whole = mha_view_slice(&s->whole.stages[stages[i].stage], stages[i].time, done, n);
            failed = differ(s, "chunks", stages[i].stage, &r.stages[stages[i].stage], &whole, 2);
        }
        rerun_free(&previous);
        previous = r;
        past_key = r.stages[MHA_STAGE_PRESENT_KEY], past_value = r.stages[MHA_STAGE_PRESENT_VALUE];
    }
    rerun_free(&previous);
    return failed;
}

/* (B, T, ...) rows [0, lengths[b]) of each b, one after the other, as (1, total, ...). */
static mha_view pack(rerun *r, const mha_view *v, const int64_t *lengths, size_t total)
{
    if (!v->data)
        return *v;
    size_t B = v->shape[0], size = 0, at = 0, shape[MHA_MAX_RANK];
    mha_view packed = *v;
    packed.shape[0] = 1, packed.shape[1] = total;
    memcpy(shape, packed.shape, sizeof shape);
    mha_dtype_bytes(v->dtype, mha_view_elements(&packed), &size, NULL);
    packed = mha_view_of(rerun_memory(r, size), v->dtype, v->rank, shape);
    for (size_t b = 0; b < B; b++) {
        mha_view row = mha_view_slice(v, 0, b, 1), from = mha_view_slice(&row, 1, 0, (size_t)lengths[b]);
        mha_view to = mha_view_slice(&packed, 1, at, (size_t)lengths[b]);
        if (mha_view_copy(&to, &from, NULL))
            abort();
        at += (size_t)lengths[b];
    }
    return packed;
}

/* Positions with one row for all batch rows become one row each. */
static mha_view spread(rerun *r, const mha_view *v, size_t B)
{
    if (!v->data || v->shape[0] == B)
        return *v;
    mha_view wide = *v, copy = *v;
    wide.shape[0] = B, wide.stride[0] = 0;
    copy = mha_view_of(rerun_memory(r, B * v->shape[1] * sizeof(int64_t)), v->dtype, 2, wide.shape);
    if (mha_view_copy(&copy, &wide, NULL))
        abort();
    return copy;
}

/* A padded batch with lengths, against the same rows without padding. */
static bool ragged_differs(subject *s)
{
    const trial *t = &s->r->t;
    const mha_semantics *m = &s->r->call.semantics;
    const mha_plan *p = &s->whole.plan;
    bool short_mask = m->visible.mask.values.data &&
                      m->visible.mask.values.shape[m->visible.mask.values.rank - 1] != p->S &&
                      m->visible.mask.values.shape[m->visible.mask.values.rank - 1] != 1;
    if (!no_cache_or_ragged(t) || !m->visible.kv_lengths || m->place.has_key_offset ||
        m->qkv.rope.cos_table.rank == 3 || short_mask ||
        (m->softmax.hidden_values == MHA_HIDDEN_PROPAGATE && t->poison))
        return false;
    rerun r;
    begin(s, &r);
    rerun_spell_out(&r);
    mha_call *c = &r.call;
    mha_semantics *q = &c->semantics;
    int64_t *cu_q = rerun_memory(&r, (p->B + 1) * sizeof *cu_q), *cu_k = rerun_memory(&r, (p->B + 1) * sizeof *cu_k);
    int64_t *full = rerun_memory(&r, p->B * sizeof *full), longest = 0;
    for (size_t b = 0; b < p->B; b++) {
        full[b] = (int64_t)p->T_q;
        cu_q[b + 1] = cu_q[b] + full[b];
        cu_k[b + 1] = cu_k[b] + m->visible.kv_lengths[b];
        longest = m->visible.kv_lengths[b] > longest ? m->visible.kv_lengths[b] : longest;
    }
    size_t total_q = (size_t)cu_q[p->B], total_k = (size_t)cu_k[p->B], most = (size_t)longest;
    c->query = pack(&r, &c->query, full, total_q);
    c->key = pack(&r, &c->key, m->visible.kv_lengths, total_k);
    c->value = pack(&r, &c->value, m->visible.kv_lengths, total_k);
    q->qkv.rope.q_positions = spread(&r, &q->qkv.rope.q_positions, p->B);
    q->qkv.rope.q_positions = pack(&r, &q->qkv.rope.q_positions, full, total_q);
    bool had_keys = q->qkv.rope.k_positions.data != NULL;
    q->qkv.rope.k_positions = spread(&r, &q->qkv.rope.k_positions, p->B);
    q->qkv.rope.k_positions = pack(&r, &q->qkv.rope.k_positions, m->visible.kv_lengths, total_k);
    q->place.n_sequences = p->B;
    q->place.cu_seqlens_q = cu_q, q->place.cu_seqlens_k = cu_k;
    q->visible.kv_lengths = NULL;
    q->visible.mask.values = rerun_cut(&q->visible.mask.values, 1, 0, most);
    if (q->visible.key_padding.values.data)
        q->visible.key_padding.values = mha_view_slice(&q->visible.key_padding.values, 1, 0, most);
    mha_pattern *pattern = &q->visible.pattern;
    if (most > 0 && pattern->blocks.kind)
        pattern->blocks.values = rerun_cut(&pattern->blocks.values, 1, 0, (most - 1) / pattern->block_keys + 1);
    pattern->k_segments =
        rerun_cut(pattern->k_segments.data ? &pattern->k_segments : &pattern->q_segments, 1, 0, most);
    /* Positions of the queries alone would serve the keys, too, and a mask must not become one of extent 1 or 0. */
    bool other = (q->qkv.rope.kind && q->qkv.rope.q_positions.data && !had_keys && total_q == total_k) || most < 2;
    bool failed = false;
    if (!other) {
        failed = refused(s, "ragged", &r, HEADS | OUTPUT | LSE);
        if (!failed) {
            static const mha_stage stages[] = {MHA_STAGE_HEADS, MHA_STAGE_OUTPUT};
            failed = differ(s, "ragged", MHA_STAGE_LSE, &r.stages[MHA_STAGE_LSE], &s->whole.stages[MHA_STAGE_LSE], 2);
            for (size_t i = 0; i < 2 && !failed; i++) {
                const mha_view *padded = &s->whole.stages[stages[i]];
                mha_view x = mha_view_of(r.stages[stages[i]].data, padded->dtype, 3, padded->shape);
                failed = differ(s, "ragged", stages[i], &x, padded, 2);
            }
        }
    }
    rerun_free(&r);
    return failed;
}

/* ---------------------------------------------------------------- trials */

static const struct property {
    const char *name;
    bool (*fails)(subject *s);
} properties[] = {
    {"blas against exact", exact_differs},
    {"threads and stages", bits_differ},
    {"batch rows", batch_differs},
    {"heads", heads_differ},
    {"cache", cache_differs},
    {"chunks", chunks_differ},
    {"ragged", ragged_differs},
};

static bool measure(subject *s)
{
    mha_error error;
    mha_cache *cache = NULL;
    mha_call call = s->r->call;
    const mha_view *k = &s->r->past.keys, *v = &s->r->past.values;
    mha_status status = MHA_OK;
    if (k->data) {
        mha_cache_spec spec = {.batch = k->shape[0],
                               .kv_heads = k->shape[1],
                               .d_k = k->shape[3],
                               .d_v = v->shape[3],
                               .capacity = k->shape[2] + s->whole.plan.T_k,
                               .dtype = MHA_F64};
        status = mha_cache_create(&spec, NULL, &cache, &error);
        if (!status)
            status = mha_cache_load(cache, k, v, &error);
    }
    call.cache = cache;
    if (!status)
        status = mha_error_bound(s->r->layer, &call, s->path == MHA_PATH_EXACT ? 0x1p-53 : 0x1p-24, s->bound,
                                 MHA_STAGE_COUNT, &error);
    if (status)
        snprintf(s->text, sizeof s->text, "bound: %.200s", error.message);
    mha_cache_destroy(cache);
    return status != MHA_OK;
}

static bool fails_on(const trial *t, mha_path path, char *text, size_t size)
{
    rig r;
    trial_build(t, &r);
    subject s = {.r = &r, .random = t->seed, .path = path, .stages = trial_stages(&r)};
    begin(&s, &s.whole);
    bool failed = refused(&s, "the whole", &s.whole, s.stages) || measure(&s);
    for (size_t i = 0; i < sizeof properties / sizeof *properties && !failed; i++)
        failed = properties[i].fails(&s);
    snprintf(text, size, "%s", s.text);
    rerun_free(&s.whole);
    trial_release(&r);
    return failed;
}

static bool trial_differs(const trial *drawn, char *text, size_t size)
{
    trial all = *drawn;
    const trial *t = &all;
    all.dropout = 0; /* only the exact path has it */
    if (t->input_dtype == MHA_F32 && (fails_on(t, MHA_PATH_BLAS, text, size) || fails_on(t, MHA_PATH_AUTO, text, size)))
        return true;
    return fails_on(t, MHA_PATH_EXACT, text, size);
}

static void random_forwards_agree_with_themselves(void **state)
{
    (void)state;
    uint64_t first = trial_number("DIFFERENTIAL_SEED", 1), n = trial_count("DIFFERENTIAL_TRIALS", 300);
    const size_t wrong = trials_that_fail(first, n, 0, trial_differs);
    if (wrong)
        fail_msg("%zu random forwards differ", wrong);
    print_message("%llu random forwards, cut in every way\n", (unsigned long long)n);
}

/* ---------------------------------------------------------------- saved cases */

/* The diagnosis computes a case without any bug as the checker does. */
static void no_bug_agrees(const mha_case *c, const mha_verdict *v, const rerun *run, uint64_t seed)
{
    static const mha_stage stages[] = {MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT, MHA_STAGE_LSE, MHA_STAGE_OUTPUT};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        const mha_view *whole = &run->stages[stages[i]];
        mha_difference d;
        mha_error error;
        if (!whole->data && stages[i] == MHA_STAGE_LSE) /* of a sigmoid */
            continue;
        double *memory = calloc(mha_view_elements(whole) + 1, sizeof *memory), atol = -1, rtol = 0;
        const mha_view found = mha_view_of(memory, MHA_F64, whole->rank, whole->shape);
        for (size_t k = 0; k < v->stage_count; k++)
            if (strcmp(v->stages[k].name, mha_stage_at(stages[i])->name) == 0)
                atol = v->stages[k].atol, rtol = v->stages[k].rtol;
        assert_true(atol >= 0);
        assert_ok(mha_case_with_bugs(c, NULL, 0, stages[i], &found, &error), error);
        assert_ok(mha_compare(&found, whole, rtol, atol, &d, &error), error);
        if (d.mismatches)
            fail_msg("seed %llu: without a bug %s is %g off, allowed %g", (unsigned long long)seed,
                     mha_stage_at(stages[i])->name, d.max_abs, atol);
        free(memory);
    }
}

static void check_saved(const char *path, mha_path how, const rerun *run, uint64_t seed)
{
    mha_case *c;
    mha_error error;
    mha_verdict v;
    if (mha_case_open(path, NULL, &c, &error))
        fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
    assert_ok(mha_case_check(c, how, NULL, 1, &v, &error), error);
    if (v.outcome != MHA_OUTCOME_PASSED)
        fail_msg("seed %llu, checked by %s: %s: %s", (unsigned long long)seed, mha_path_name(how),
                 mha_outcome_name(v.outcome), v.reason);
    if (how == MHA_PATH_EXACT && !run->call.semantics.place.cu_seqlens_q)
        no_bug_agrees(c, &v, run, seed);
    mha_verdict_clear(&v);
    mha_case_close(c);
}

/* The checker accepts a saved call, on both paths. The format has no word for keys that stand at
 * other positions than the queries: those are refused, and few. */
static void saved_forwards_are_accepted(void **state)
{
    (void)state;
    uint64_t first = trial_number("DIFFERENTIAL_SEED", 1), n = trial_number("DIFFERENTIAL_SAVED", 200), refusals = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        trial t = trial_draw(seed);
        rig r;
        rerun run;
        mha_error error;
        mha_path path = seed % 2 || t.input_dtype != MHA_F32 || t.dropout > 0 ? MHA_PATH_EXACT : MHA_PATH_BLAS;
        trial_build(&t, &r);
        rerun_init(&run, r.layer, &r.call, &r.past.keys, &r.past.values);
        assert_ok(rerun_run(&run, path, 1, trial_stages(&r), &error), error);
        mha_case_notes notes = {.past_key = r.past.keys, .past_value = r.past.values,
                                      .rope_origin = r.past.rope_origin};
        const char *file = scratch_path("saved.safetensors");
        mha_status status = mha_case_save(file, r.layer, &run.call, &notes, &error);
        if (status == MHA_UNSUPPORTED)
            refusals++;
        else if (status)
            fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
        else {
            check_saved(file, MHA_PATH_EXACT, &run, seed);
            if (!(t.dropout > 0))
                check_saved(file, MHA_PATH_BLAS, &run, seed);
        }
        rerun_free(&run);
        trial_release(&r);
    }
    assert_true(refusals <= 1 + n / 5);
}

/* ---------------------------------------------------------------- many keys */

/* Sums of 100,000 terms stay within the bound, on every float path. */
static void many_keys_stay_within_the_bound(void **state)
{
    (void)state;
    enum { KEYS = 100000, D = 4 };
    float *k = malloc(KEYS * D * sizeof *k), *v = malloc(KEYS * D * sizeof *v), q[2 * D];
    mha_call call = {.query = mha_view_of(q, MHA_F32, 4, (const size_t[]){1, 2, 1, D}),
                     .key = mha_view_of(k, MHA_F32, 4, (const size_t[]){1, KEYS, 1, D}),
                     .value = mha_view_of(v, MHA_F32, 4, (const size_t[]){1, KEYS, 1, D})};
    const unsigned keep = OUTPUT | LSE | 1u << MHA_STAGE_WEIGHTS | 1u << MHA_STAGE_SCORES;
    for (int positive = 0; positive < 2; positive++) { /* values of one sign do not cancel, others do */
        mha_random_fill(&call.query, 1, 0, -2, 2);
        mha_random_fill(&call.key, 1, 1, -2, 2);
        mha_random_fill(&call.value, 1, 2, positive ? 0 : -1, 1);
        mha_error error;
        rerun exact;
        rerun_init(&exact, NULL, &call, NULL, NULL);
        assert_ok(rerun_run(&exact, MHA_PATH_EXACT, 1, keep, &error), error);
        double bound[MHA_STAGE_COUNT];
        assert_ok(mha_error_bound(NULL, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
        assert_true(bound[MHA_STAGE_OUTPUT] < 0.1); /* which says something: values are up to 1 */
        for (int path = MHA_PATH_AUTO; path <= MHA_PATH_BLAS; path++) {
            rerun narrow;
            rerun_init(&narrow, NULL, &call, NULL, NULL);
            mha_status status = rerun_run(&narrow, (mha_path)path, 1, path == MHA_PATH_FAST ? OUTPUT : keep, &error);
            for (int s = 0; s < MHA_STAGE_COUNT && !status; s++) {
                mha_difference d;
                if (!narrow.stages[s].data)
                    continue;
                assert_ok(mha_compare(&narrow.stages[s], &exact.stages[s], 0, bound[s], &d, &error), error);
                if (d.mismatches)
                    fail_msg("%s, %s: off by %g, bound %g", mha_path_name((mha_path)path),
                             mha_stage_at((mha_stage)s)->name, d.max_abs, bound[s]);
            }
            assert_true(status == MHA_OK || (path == MHA_PATH_FAST && status == MHA_UNSUPPORTED));
            rerun_free(&narrow);
        }
        rerun_free(&exact);
    }
    free(k), free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_forwards_agree_with_themselves),
        cmocka_unit_test(saved_forwards_are_accepted),
        cmocka_unit_test(many_keys_stay_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
