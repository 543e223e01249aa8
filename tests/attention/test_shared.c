/* Caches that continue another one: whatever lengths, levels, semantics, types, threads and orders, every path gives
 * the bits that a cache of its own gives each sequence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/call.h"
#include "support/failing.h"
#include "support/isa.h"
#include "support/stages.h"
#include "support/trial.h"
#include "support/unit.h"

static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};

/* A trunk of N sequences and P rows; caches of B[0] and then of B[1] sequences that continue one another, with `steps`
 * calls each of T new tokens. */
typedef struct problem {
    size_t h, h_kv, d_k, d_v, N, P, levels, B[2], steps, T;
    mha_dtype dtype;
    mha_path path;
    int threads;
    unsigned rules; /* a bit for each in `rule` */
    uint64_t seed;
} problem;

enum rule {
    CAUSAL = 1, WINDOW = 2, ALIBI = 4, SINKS = 8, CHUNK = 16, LENGTHS = 32, MASK = 64, ADDED = 128, PADDING = 256,
    EXTRAS = 512, SOFTCAP = 1024, OFFSETS = 2048, PADDED_QUERIES = 4096, PROPAGATE = 8192, WEIGHTS = 16384,
    REORDER = 32768, POISON = 65536, LISTS = 131072, STATIC = 262144, TABLE = 524288, TINY = 1048576, ROUNDS = 2097152,
    RULES = 4194304
};

static size_t below(const problem *p, uint64_t stream, uint64_t i, size_t n)
{
    return (size_t)((double)mha__random_unit(p->seed, stream, i) * (double)n) % n;
}

static float *numbers(const problem *p, uint64_t stream, size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = 4.0f * mha__random_unit(p->seed, stream, i) - 2.0f;
    return x;
}

/* All that one way to compute a problem holds: the caches, or the rows that each sequence would have in its own. */
typedef struct player {
    const problem *p;
    bool shares;
    mha_cache *cache[3]; /* trunk and what continues it; of `own` rows only the one in use */
    size_t caches;
    size_t B, S;        /* sequences and rows now */
    float *rows[2];     /* (B, h_kv, S, d): keys, values */
    float *out;
    size_t n, room;
} player;

static mha_view rows_view(const player *y, bool values)
{
    const size_t d = values ? y->p->d_v : y->p->d_k;
    return mha_view_of(y->rows[values], MHA_F32, 4, (size_t[]){y->B, y->p->h_kv, y->S, d});
}

/* A cache with the rows of each sequence and room for more. */
static mha_cache *own_cache(const player *y, size_t more)
{
    const mha_cache_spec spec = {y->B, y->p->h_kv, y->p->d_k, y->p->d_v, y->S + more, 0, .dtype = y->p->dtype};
    const mha_view k = rows_view(y, false), v = rows_view(y, true);
    mha_cache *cache;
    mha_error error;
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    assert_ok(mha_cache_load(cache, &k, &v, &error), error);
    return cache;
}

/* Sequence i becomes a copy of sequence from[i], of B. */
static void take(player *y, const size_t *from, size_t B)
{
    for (int v = 0; v < 2; v++) {
        const size_t one = y->p->h_kv * y->S * (v ? y->p->d_v : y->p->d_k);
        float *taken = malloc((B * one + 1) * sizeof *taken);
        for (size_t b = 0; b < B; b++)
            memcpy(taken + b * one, y->rows[v] + from[b] * one, one * sizeof *taken);
        free(y->rows[v]);
        y->rows[v] = taken;
    }
    y->B = B;
}

/* Adds T new rows (B, T, h_kv, d) of each sequence. */
static void add(player *y, const float *const fresh[2], size_t T)
{
    for (int v = 0; v < 2; v++) {
        const size_t d = v ? y->p->d_v : y->p->d_k, h = y->p->h_kv, S = y->S;
        float *all = malloc((y->B * h * (S + T) * d + 1) * sizeof *all);
        for (size_t b = 0; b < y->B; b++)
            for (size_t g = 0; g < h; g++) {
                float *to = all + (b * h + g) * (S + T) * d;
                memcpy(to, y->rows[v] + (b * h + g) * S * d, S * d * sizeof *to);
                for (size_t t = 0; t < T; t++)
                    memcpy(to + (S + t) * d, fresh[v] + ((b * T + t) * h + g) * d, d * sizeof *to);
            }
        free(y->rows[v]);
        y->rows[v] = all;
    }
    y->S += T;
}

/* The arrays that the semantics of a step borrow. */
typedef struct borrowed {
    double slopes[8];
    int64_t lengths[16], offsets[16], *lists;
    bool *mask, *padding, queries[16 * 80];
    float *added, sinks[8], *table, *relative, extra[2][3 * 272];
    mha_view weights[MHA_WEIGHT_COUNT];
} borrowed;

static mha_semantics semantics_of(const player *y, uint64_t step, size_t T_q, size_t T_k, borrowed *m)
{
    const problem *p = y->p;
    const size_t S = y->S + T_k, B = y->B;
    mha_semantics s = {.visible.causal = p->rules & CAUSAL, .softmax.softcap = p->rules & SOFTCAP ? 1.5 : 0,
                       .place = {.has_offset = true, .offset = (int64_t)(S > T_q ? S - T_q : 0)}};
    memset(m, 0, sizeof *m);
    const size_t masked = p->rules & MASK ? B * p->h * T_q * S : 0, padded = p->rules & PADDING ? B * S : 0;
    m->mask = malloc(masked + 1), m->padding = malloc(padded + 1);
    m->added = numbers(p, 60 + step, p->rules & ADDED ? B * T_q * S : 0);
    m->lists = malloc((B * T_q * 40 + 1) * sizeof *m->lists);
    m->table = numbers(p, 59, 32 * p->h), m->relative = numbers(p, 58, 15 * p->d_k);
    for (size_t i = 0; i < p->h; i++)
        m->slopes[i] = 0.5 / (double)(i + 1), m->sinks[i] = (float)i * 0.5f;
    for (size_t b = 0; b < B; b++) {
        m->lengths[b] = (int64_t)(S - below(p, 50 + step, b, S / 2 + 1));
        m->offsets[b] = s.place.offset - (int64_t)below(p, 40 + step, b, 9);
    }
    for (size_t i = 0; i < masked; i++)
        m->mask[i] = mha__random_unit(p->seed, 70 + step, i) < (i / 37 % 3 ? 0.9f : 0.0f);
    for (size_t i = 0; i < padded; i++) /* sequences differ, and whole stretches are hidden at either end */
        m->padding[i] = i % S < 7 * (i / S) || mha__random_unit(p->seed, 80 + step, i) < 0.1f;
    for (size_t i = 0; i < B * T_q; i++)
        m->queries[i] = i % 3 == 1;
    for (size_t i = 0; i < B * T_q * 40; i++)
        m->lists[i] = (int64_t)below(p, 90 + step, i, S);
    if (p->rules & WINDOW)
        s.visible.has_window_left = true, s.visible.window_left = (int64_t)(S / 3),
        s.visible.window_keep = p->seed % 2 ? 3 : 0;
    if (p->rules & CHUNK)
        s.visible.chunk = (int64_t)(S / 2 + 1);
    s.added.alibi_slopes = p->rules & ALIBI ? m->slopes : NULL;
    s.visible.kv_lengths = p->rules & LENGTHS ? m->lengths : NULL;
    if (p->rules & OFFSETS)
        s.place.position_offset = m->offsets, s.place.has_offset = false, s.place.offset = 0;
    if (p->rules & MASK)
        s.visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(m->mask, MHA_BOOL, 4, (size_t[]){B, p->h, T_q, S})};
    else if (p->rules & ADDED)
        s.visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(m->added, MHA_F32, 4, (size_t[]){B, 1, T_q, S})};
    if (p->rules & PADDING)
        s.visible.key_padding = (mha_mask){MHA_MASK_HIDES, mha_view_of(m->padding, MHA_BOOL, 2, (size_t[]){B, S})};
    if (p->rules & PADDED_QUERIES)
        s.visible.pattern.query_padding =
            (mha_mask){MHA_MASK_HIDES, mha_view_of(m->queries, MHA_BOOL, 2, (size_t[]){B, T_q})};
    if (p->rules & LISTS)
        s.visible.pattern.key_lists = mha_view_of(m->lists, MHA_I64, 4, (size_t[]){B, 1, T_q, 40});
    if (p->rules & PROPAGATE)
        s.softmax.hidden_values = MHA_HIDDEN_PROPAGATE;
    if (p->rules & SINKS)
        m->weights[MHA_SINKS] = mha_view_of(m->sinks, MHA_F32, 1, &p->h);
    if (p->rules & EXTRAS) {
        const size_t widths[] = {p->h_kv * p->d_k, p->h_kv * p->d_v};
        m->weights[MHA_BIAS_K] = mha_view_of(m->extra[0], MHA_F32, 1, &widths[0]);
        m->weights[MHA_BIAS_V] = mha_view_of(m->extra[1], MHA_F32, 1, &widths[1]);
        s.softmax.zero_row = s.softmax.softmax_plus_one = true;
    }
    if (p->rules & TABLE && p->seed % 2) { /* relative terms, the rows of keys, too */
        s.added.relative = (mha_relative){.rule = MHA_RELATIVE_DISTANCE};
        m->weights[MHA_RELATIVE_K] = m->weights[MHA_RELATIVE_Q] =
            mha_view_of(m->relative, MHA_F32, 2, (size_t[]){15, p->d_k});
    } else if (p->rules & TABLE) {
        m->weights[MHA_BIAS_TABLE] = mha_view_of(m->table, MHA_F32, 2, (size_t[]){32, p->h});
        s.added.bias = (mha_bias){.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 128};
    }
    return s;
}

static void release(const borrowed *m)
{
    free(m->mask), free(m->padding), free(m->added), free(m->lists), free(m->table), free(m->relative);
}

/* One call of new tokens, whose results are added to `out`. */
static void step(player *y, uint64_t number)
{
    static const mha_stage kept[] = {MHA_STAGE_OUTPUT, MHA_STAGE_LSE, MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE,
                                     MHA_STAGE_WEIGHTS_MEAN};
    const problem *p = y->p;
    const size_t T = p->T, T_k = p->rules & STATIC && number % 2 ? 0 : T;
    float *fresh[2] = {numbers(p, 20 + number, y->B * T * p->h_kv * p->d_k),
                       numbers(p, 30 + number, y->B * T * p->h_kv * p->d_v)},
          *q = numbers(p, 10 + number, y->B * T * p->h * p->d_k);
    if (p->rules & POISON)
        fresh[1][number % p->d_v] = NAN, fresh[1][y->B * T * p->h_kv * p->d_v - 1] = -INFINITY;
    borrowed m;
    mha_call call = {.query = mha_heads(q, y->B, T, p->h, p->d_k),
                     .key = mha_heads(fresh[0], y->B, T_k, p->h_kv, p->d_k),
                     .value = mha_heads(fresh[1], y->B, T_k, p->h_kv, p->d_v),
                     .semantics = semantics_of(y, number, T, T_k, &m),
                     .weights = m.weights,
                              .weight_count = MHA_WEIGHT_COUNT,
                     .path = p->path,
                     .precision = mha_precision_of(p->rules & ROUNDS ? MHA_BF16 : MHA_F32),
                     .threads = y->shares ? p->threads : 1};
    mha_cache *own = y->shares ? NULL : own_cache(y, T_k);
    mha_plan plan;
    mha_error error;
    call.cache = y->shares ? y->cache[y->caches - 1] : own;
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    mha_keep list[MHA_STAGE_COUNT];
    stages_list(&call, list);
    for (size_t i = 0; i < (p->rules & WEIGHTS ? 5 : 2); i++) {
        mha_view *view = stage_view(&call, kept[i]);
        *view = stage_of_plan(&plan, kept[i], y->out + y->n, MHA_F32);
        y->n += mha_view_elements(view);
        assert_true(y->n <= y->room);
    }
    (void)run_call(NULL, &call);
    mha_cache_destroy(own);
    release(&m);
    add(y, (const float *const[]){fresh[0], fresh[1]}, T_k);
    free(fresh[0]), free(fresh[1]), free(q);
}

/* Sequences of each group take over from others of it. */
static void reorder(player *y, uint64_t number, size_t together)
{
    size_t from[16];
    mha_error error;
    for (size_t b = 0; b < y->B; b++)
        from[b] = b / together * together + below(y->p, 100 + number, b, together);
    if (y->shares)
        assert_ok(mha_cache_reorder(y->cache[y->caches - 1], from, &error), error);
    take(y, from, y->B);
}

static size_t play(const problem *p, bool shares, float *out, size_t room)
{
    player y = {.p = p, .shares = shares, .B = p->N, .S = p->P, .out = out, .room = room};
    mha_error error;
    for (int v = 0; v < 2; v++)
        y.rows[v] = numbers(p, 1 + (uint64_t)v, p->N * p->h_kv * p->P * (v ? p->d_v : p->d_k));
    for (size_t i = 0; p->rules & TINY && i < p->N * p->h_kv * p->P * p->d_v; i++)
        y.rows[1][i] = -1e-45f; /* the sum of their products with weights is -0 */
    if (p->rules & POISON && p->P > 2)
        y.rows[1][p->P / 2 * p->d_v] = INFINITY, y.rows[1][(p->P - 1) * p->d_v] = NAN;
    y.cache[y.caches++] = own_cache(&y, 3);
    for (size_t level = 0; level < p->levels; level++) {
        const size_t B = p->B[level], together = B / y.B;
        size_t from[16];
        for (size_t b = 0; b < B; b++)
            from[b] = b / together;
        take(&y, from, B);
        assert_ok(mha_cache_continue(y.cache[level], B, p->steps * p->T, NULL, &y.cache[level + 1], &error), error);
        y.caches++;
        for (size_t i = 0; i < p->steps; i++) {
            step(&y, level * p->steps + i);
            if (p->rules & REORDER)
                reorder(&y, level * p->steps + i, together);
        }
        if (shares)
            assert_int_equal(mha_cache_length(y.cache[y.caches - 1]), y.S);
    }
    while (y.caches > 0)
        mha_cache_destroy(y.cache[--y.caches]);
    free(y.rows[0]), free(y.rows[1]);
    return y.n;
}

/* Whether there are numbers at all. */
static bool assert_same_bits(const problem *p)
{
    const size_t room = (size_t)1 << 24;
    float *wanted = malloc(room * sizeof *wanted), *found = malloc(room * sizeof *found);
    const size_t n = play(p, false, wanted, room);
    assert_int_equal(play(p, true, found, room), n);
    bool some = false;
    for (size_t i = 0; i < n; i++) {
        some |= isfinite(wanted[i]) && wanted[i] != 0.0f;
        if (memcmp(&wanted[i], &found[i], sizeof *wanted) != 0 && !(isnan(wanted[i]) && isnan(found[i])))
            fail_msg("%s, %s, %s, %d threads, (%zu %zu %zu %zu) N %zu P %zu B %zu %zu of %zu, %zu x %zu, rules %x, "
                     "seed %llu: number %zu is %.9g, %.9g where rows are shared",
                     mha_path_name(p->path), mha_dtype_name(p->dtype), mha_isa(), p->threads, p->h, p->h_kv, p->d_k,
                     p->d_v, p->N, p->P, p->B[0], p->B[1], p->levels, p->steps, p->T, p->rules,
                     (unsigned long long)p->seed, i, (double)wanted[i], (double)found[i]);
    }
    free(wanted);
    free(found);
    return some;
}

static problem draw(uint64_t seed)
{
    static const size_t widths[][2] = {{4, 4}, {16, 24}, {64, 64}, {100, 100}, {272, 272}, {40, 7}},
                        heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {6, 1}, {3, 3}},
                        at[] = {0, 1, 16, 63, 64, 65, 128, 255, 256, 257, 511, 512, 513, 700, 1023, 1024, 1025, 1300};
    static const mha_dtype types[] = {MHA_F32, MHA_F32, MHA_F16, MHA_BF16, MHA_I8};
    problem p = {.seed = seed};
    const size_t *const h = heads[below(&p, 0, 0, 5)], *const d = widths[below(&p, 0, 1, 6)];
    p.h = h[0], p.h_kv = h[1], p.d_k = d[0], p.d_v = d[1];
    p.N = 1 + below(&p, 0, 2, 2), p.levels = 1 + below(&p, 0, 3, 2);
    p.B[0] = p.N * (1 + below(&p, 0, 4, 4)), p.B[1] = p.B[0] * (1 + below(&p, 0, 5, 2));
    p.P = at[below(&p, 0, 6, d[0] > 200 ? 9 : 18)];
    p.T = 1 + below(&p, 0, 7, 5), p.steps = 1 + below(&p, 0, 8, 2);
    p.dtype = types[below(&p, 0, 9, 5)];
    p.path = paths[below(&p, 0, 10, 10) < 7 ? 0 : 1 + below(&p, 0, 11, 2)];
    p.threads = 1 + (int)below(&p, 0, 12, 4);
    for (unsigned rule = 1; rule < TINY; rule *= 2)
        p.rules |= below(&p, 3, rule, 4) == 0 ? rule : 0;
    if (p.dtype == MHA_BF16 && below(&p, 0, 13, 2) == 0)
        p.rules |= ROUNDS;
    if (p.B[1] * p.h_kv * p.P * (p.d_k + p.d_v) > (size_t)3 << 20)
        p.rules &= ~(unsigned)WEIGHTS; /* the results of all steps would need more room than there is */
    if (seed % 9 == 0) /* a level that ends beyond a block */
        p.T = 70, p.steps = 1, p.h = p.h_kv, p.B[0] = p.B[1] = 2 * p.N, p.path = MHA_PATH_FAST;
    if (p.path == MHA_PATH_EXACT && p.P > 300) /* which is slow */
        p.d_k = 4, p.d_v = 3, p.B[1] = p.B[0];
    return p;
}

static void drawn_at_random(void **state)
{
    (void)state;
    size_t some = 0, all = 0;
    const uint64_t trials = trial_count("SHARED_TRIALS", 16);
    FOR_EACH_ISA
        for (uint64_t seed = 1; seed <= trials; seed++) {
            const problem p = draw(seed);
            some += assert_same_bits(&p);
            all++;
        }
    assert_true(some > all * 9 / 10);
}

/* Rarely drawn calls. */
static void lengths_and_rules_that_matter(void **state)
{
    static const problem problems[] = {
        /* segments side by side, the last of which goes on */
        {6, 1, 64, 64, 1, 1600, 1, {4, 4}, 2, 2, MHA_F32, MHA_PATH_FAST, 4, CAUSAL, 1},
        {6, 1, 64, 64, 1, 1600, 1, {4, 4}, 2, 2, MHA_BF16, MHA_PATH_FAST, 4, CAUSAL | ROUNDS, 1},
        /* and one that began before */
        {1, 1, 272, 272, 1, 1023, 2, {1, 2}, 1, 70, MHA_F32, MHA_PATH_FAST, 4, CAUSAL, 2},
        {4, 1, 64, 64, 1, 2600, 2, {2, 4}, 1, 70, MHA_BF16, MHA_PATH_FAST, 4, CAUSAL | SINKS | EXTRAS, 2},
        /* a segment ends after the trunk */
        {4, 2, 100, 100, 1, 1023, 1, {4, 4}, 2, 3, MHA_F32, MHA_PATH_FAST, 2, CAUSAL, 3},
        {2, 2, 64, 64, 2, 980, 2, {2, 4}, 1, 70, MHA_F32, MHA_PATH_FAST, 1, CAUSAL | WINDOW, 4},
        {2, 2, 64, 64, 1, 1024, 1, {3, 3}, 2, 1, MHA_I8, MHA_PATH_FAST, 1, STATIC, 5},
        {2, 2, 64, 64, 1, 1536, 1, {3, 3}, 2, 1, MHA_F32, MHA_PATH_FAST, 1, STATIC, 6},
        /* rules that are one sequence's own, while rows are alike */
        {2, 1, 64, 64, 1, 600, 1, {4, 4}, 1, 2, MHA_F32, MHA_PATH_FAST, 1, PADDING, 7},
        {2, 2, 64, 64, 2, 600, 1, {4, 4}, 1, 1, MHA_F32, MHA_PATH_FAST, 1, LENGTHS | OFFSETS | CAUSAL, 8},
        /* values that are not finite, or so small that a sum is -0 */
        {6, 1, 272, 272, 1, 255, 1, {4, 4}, 1, 1, MHA_F32, MHA_PATH_FAST, 4, CAUSAL | POISON, 851},
        {2, 2, 64, 64, 1, 2100, 1, {8, 8}, 1, 1, MHA_F32, MHA_PATH_FAST, 1, CAUSAL | WINDOW | TINY, 9}};
    FOR_EACH_ISA
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
            assert_true(assert_same_bits(&problems[i]) || problems[i].rules & TINY);
}

/* The rows that a trunk has evicted count for positions. */
static void a_trunk_that_has_evicted(void **state)
{
    (void)state;
    enum { B = 3, H = 2, D = 300, STEPS = 3 };
    static float q[B * 50 * H * D], k[B * 50 * H * D], out[2][B * H * D];
    static const double slopes[H] = {0.5, 0.1};
    static const size_t rows[STEPS] = {50, 15, 1}; /* 65 rows do not fit: all but 40 of the first 50 go */
    const mha_view every[] = {mha_heads(q, B, 50, H, D), mha_heads(k, B, 50, H, D)};
    mha_error error;
    mha_cache *cache[2], *trunk;
    for (int shares = 0; shares < 2; shares++) {
        const mha_cache_spec spec = {shares ? 1 : B, H, D, D, 60, 40, .dtype = MHA_F32};
        assert_ok(mha_cache_create(&spec, NULL, &trunk, &error), error);
        cache[shares] = trunk;
        for (int step = 0; step < STEPS; step++) {
            if (shares && step + 1 == STEPS)
                assert_ok(mha_cache_continue(trunk, B, 1, NULL, &cache[shares], &error), error);
            for (size_t i = 0; i < 2; i++) {
                mha_random_fill(&every[i], 3, (uint64_t)step * 2 + i, -1, 1);
                for (size_t b = 1; step + 1 < STEPS && b < B; b++)
                    memcpy((float *)every[i].data + b * rows[step] * H * D, every[i].data,
                           rows[step] * H * D * sizeof(float));
            }
            const size_t batch = step + 1 < STEPS && shares ? 1 : B;
            const mha_view new_rows = mha_heads(k, batch, rows[step], H, D);
            mha_call call = {.query = mha_heads(q, batch, rows[step], H, D), .key = new_rows, .value = new_rows,
                             .cache = cache[shares],
                             .semantics = {.visible.causal = true, .added.alibi_slopes = slopes, .visible.chunk = 45},
                             .path = MHA_PATH_FAST, .threads = 1};
            if (step + 1 == STEPS)
                call.output = mha_heads(out[shares], B, 1, H, D);
            assert_ok(mha_run(NULL, &call, &error), error);
        }
        assert_int_equal(mha_cache_first(cache[shares]), 10);
        assert_int_equal(mha_cache_length(cache[shares]), 56);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    for (int i = 0; i < 2; i++)
        mha_cache_destroy(cache[i]);
    mha_cache_destroy(trunk);
}

/* A cache of `batch` sequences with n rows of numbers, which `allocator` (or NULL) gave. */
static mha_cache *filled(size_t batch, size_t n, const mha_allocator *allocator)
{
    const mha_cache_spec spec = {.batch = batch, .kv_heads = 2, .d_k = 272, .d_v = 272, .capacity = n + 8};
    const size_t count = batch * 2 * n * 272;
    float *x = malloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = mha__random_unit(7, 1, i) - 0.5f;
    const mha_view rows = mha_view_of(x, MHA_F32, 4, (size_t[]){batch, 2, n, 272});
    mha_cache *cache;
    mha_error error;
    assert_ok(mha_cache_create(&spec, allocator, &cache, &error), error);
    assert_ok(mha_cache_load(cache, &rows, &rows, &error), error);
    free(x);
    return cache;
}

static void what_is_shared_takes_no_memory_and_stays(void **state)
{
    (void)state;
    failing memory = {0};
    const mha_allocator allocator = failing_allocator(&memory);
    mha_error error;
    mha_cache *trunk = filled(2, 200, NULL), *cache, *none;
    for (memory.fail_at = 1;; memory.fail_at++) { /* blocks of 64 keys: 192 shared, 8 copied */
        memory.calls = 0;
        const mha_status status = mha_cache_continue(trunk, 6, 4, &allocator, &cache, &error);
        if (status == MHA_OK)
            break;
        assert_int_equal(status, MHA_NO_MEMORY);
        assert_int_equal(memory.live_blocks, 0);
    }
    assert_true(memory.fail_at > 3);
    const size_t bytes = 2 * (size_t)6 * 2 * (8 + 4) * 272 * sizeof(float);
    assert_int_equal(mha_cache_bytes(cache), bytes);
    assert_in_range(memory.live_bytes, bytes, bytes + 512);
    assert_int_equal(mha_cache_shared(cache), 192);
    assert_int_equal(mha_cache_shared(trunk), 0);
    assert_int_equal(mha_cache_length(cache), 200);
    assert_int_equal(mha_cache_capacity(cache), 204);
    assert_int_equal(mha_cache_keys(cache).shape[2], 8);
    mha_cache_truncate(cache, 10); /* not below what was continued */
    assert_int_equal(mha_cache_length(cache), 200);
    mha_cache_clear(cache);
    assert_int_equal(mha_cache_length(cache), 200);

    const mha_view rows = mha_cache_keys(trunk);
    assert_refused(mha_cache_load(cache, &rows, &rows, &error), MHA_INVALID, error, "expected shape");
    mha_cache *same;
    assert_ok(mha_cache_continue(trunk, 2, 4, NULL, &same, &error), error);
    assert_refused(mha_cache_load(same, &rows, &rows, &error), MHA_UNSUPPORTED, error, "load that one");
    mha_cache_destroy(same);
    assert_refused(mha_cache_continue(trunk, 5, 4, NULL, &none, &error), MHA_INVALID, error, "multiple of the 2",
                   "found 5");
    assert_refused(mha_cache_continue(trunk, 0, 4, NULL, &none, &error), MHA_INVALID, error, "found 0");
    assert_refused(mha_cache_continue(trunk, 2, SIZE_MAX, NULL, &none, &error), MHA_INVALID, error, "size can count");
    assert_refused(mha_cache_continue(trunk, 2, SIZE_MAX / 4, NULL, &none, &error), MHA_INVALID, error, "more bytes");

    assert_refused(mha_cache_reorder(cache, (size_t[]){0, 1, 2, 3, 2, 5}, &error), MHA_INVALID, error, "sequence 4",
                   "3 to 5", "found 2");
    assert_refused(mha_cache_reorder(cache, (size_t[]){0, 1, 2, 3, 4, 6}, &error), MHA_INVALID, error, "found 6");
    memory.fail_at = 1, memory.calls = 0;
    assert_refused(mha_cache_reorder(cache, (size_t[]){0, 1, 2, 3, 4, 5}, &error), MHA_NO_MEMORY, error, "one head");
    mha_cache_destroy(cache);
    assert_int_equal(memory.live_blocks + memory.bugs, 0);
    mha_cache_destroy(trunk);
}

/* Once a trunk has lost rows, what continues it is refused: planned again, planned before, read and continued. */
static void a_trunk_that_lost_rows_is_told(void **state)
{
    (void)state;
    static float q[2 * 272], k[2 * 272], out[2 * 272];
    for (int how = 0; how < 5; how++) {
        mha_error error;
        mha_cache *trunk = filled(1, 70, NULL), *middle, *cache, *none;
        assert_ok(mha_cache_continue(trunk, 1, 4, NULL, &middle, &error), error);
        assert_ok(mha_cache_continue(middle, 1, 4, NULL, &cache, &error), error);
        mha_call call = {.query = mha_heads(q, 1, 1, 2, 272), .key = mha_heads(k, 1, 1, 2, 272),
                         .value = mha_heads(k, 1, 1, 2, 272), .output = mha_heads(out, 1, 1, 2, 272), .cache = trunk,
                         .path = MHA_PATH_FAST, .threads = 1};
        mha_plan plan;
        assert_ok(mha_run(NULL, &call, &error), error); /* no row after them is lost */
        call.cache = cache;
        assert_ok(mha_run(NULL, &call, &error), error);
        assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
        float *workspace = malloc(plan.workspace_bytes);
        const mha_view rows = mha_cache_keys(trunk);
        float *copy = malloc((size_t)2 * 72 * 272 * sizeof *copy);
        const mha_view to = mha_view_of(copy, MHA_F32, 4, (size_t[]){1, 2, 71, 272});
        if (how == 0)
            mha_cache_clear(trunk);
        else if (how == 1)
            mha_cache_truncate(trunk, 70);
        else if (how == 2)
            assert_ok(mha_cache_load(trunk, &rows, &rows, &error), error);
        else if (how == 3)
            assert_ok(mha_cache_reorder(trunk, (size_t[]){0}, &error), error);
        const bool lost = how < 4;
        const mha_status expected = lost ? MHA_INVALID : MHA_OK;
        assert_int_equal(mha_forward(&plan, workspace, plan.workspace_bytes, &error), expected);
        assert_int_equal(mha_plan_call(NULL, &call, &plan, &error), expected);
        assert_int_equal(mha_cache_continue(cache, 1, 4, NULL, &none, &error), expected);
        if (lost)
            assert_refused(mha_cache_read(cache, false, &to, &error), MHA_INVALID, error, "lost or replaced rows");
        else
            mha_cache_destroy(none);
        mha_cache_destroy(cache), mha_cache_destroy(middle), mha_cache_destroy(trunk);
        free(workspace), free(copy);
    }
}

/* In products of BF16 subnormals count as 0, also where ranges of keys are joined and divided: the mean of these values
 * is one. */
static void subnormals_count_as_0_in_every_range(void **state)
{
    enum { B = 2, ROWS = 2500, D = 16 };
    static float keys[B * ROWS * D], values[B * ROWS * D], q[B * D];
    for (size_t i = 0; i < B * ROWS * D; i++)
        values[i] = i / D % ROWS % 7 == 0 ? 0x1p-126f : 0;
    FOR_EACH_ISA
    for (int threads = 1; threads <= 4; threads += 3) {
        mha_cache *rows_of[2], *cache[2]; /* of one sequence, and of all */
        float out[2][B * D];
        mha_error error;
        for (size_t n = 1; n <= B; n++) {
            const mha_cache_spec spec = {n, 1, D, D, ROWS + 1, 0, .dtype = MHA_BF16};
            const size_t shape[4] = {n, 1, ROWS, D};
            const mha_view k = mha_view_of(keys, MHA_F32, 4, shape), v = mha_view_of(values, MHA_F32, 4, shape);
            assert_ok(mha_cache_create(&spec, NULL, &rows_of[n - 1], &error), error);
            assert_ok(mha_cache_load(rows_of[n - 1], &k, &v, &error), error);
        }
        assert_ok(mha_cache_continue(rows_of[0], B, 1, NULL, &cache[0], &error), error);
        cache[1] = rows_of[1];
        for (int own = 0; own < 2; own++) {
            const mha_view one = mha_heads(q, B, 1, 1, D);
            const mha_call call = {.query = one, .key = one, .value = one, .output = mha_heads(out[own], B, 1, 1, D),
                                   .cache = cache[own], .path = MHA_PATH_FAST, .threads = threads,
                                   .precision = mha_precision_of(MHA_BF16)};
            assert_ok(mha_run(NULL, &call, &error), error);
        }
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        mha_cache_destroy(cache[0]), mha_cache_destroy(cache[1]), mha_cache_destroy(rows_of[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(drawn_at_random, isa_teardown),
                                       cmocka_unit_test_teardown(lengths_and_rules_that_matter, isa_teardown),
                                       cmocka_unit_test(a_trunk_that_has_evicted),
                                       cmocka_unit_test(what_is_shared_takes_no_memory_and_stays),
                                       cmocka_unit_test_teardown(subnormals_count_as_0_in_every_range, isa_teardown),
                                       cmocka_unit_test(a_trunk_that_lost_rows_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
