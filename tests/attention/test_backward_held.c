/* Gradients of keys and values in pages and in caches: those of the rows themselves, wherever they lie. That those of a
 * plain cache are derivatives is seen in test_backward.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mha/gradients.h"
#include "mha/cache.h"
#include "mha/compare.h"
#include "support/narrow_backward.h"
#include "support/unit.h"

enum { B = 3, T = 4, H = 4, H_KV = 2, D_K = 5, D_V = 3, MOST = 9, PAGES = 16, SIZES = 4, WIDE = D_K > D_V ? D_K : D_V };

static double random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-52 - 1;
}

static size_t below(uint64_t *state, size_t n)
{
    return (size_t)((random_number(state) + 1) / 2 * (double)n);
}

/* A call whose keys lie in pages, of which sequences share the first. */
typedef struct paged {
    double q[B * T * H * D_K], dO[B * T * H * D_V], d_lse[B * H * T];
    double keys[PAGES * SIZES * H_KV * D_K], values[PAGES * SIZES * H_KV * D_V], sinks[H];
    int32_t table[B * MOST];
    int64_t lengths[B];
    size_t size;
    mha_view weights[MHA_WEIGHT_COUNT];
    mha_call call;
} paged;

static void fill(double *x, size_t n, uint64_t *state)
{
    for (size_t e = 0; e < n; e++)
        x[e] = random_number(state);
}

static mha_view rows(double *x, size_t a, size_t b, size_t c, size_t d)
{
    return mha_view_of(x, MHA_F64, 4, (const size_t[]){a, b, c, d});
}

static void draw(uint64_t seed, paged *p)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    memset(p, 0, sizeof *p);
    p->size = 1 + below(&state, SIZES);
    fill(p->q, sizeof p->q / sizeof *p->q, &state), fill(p->dO, sizeof p->dO / sizeof *p->dO, &state);
    fill(p->d_lse, sizeof p->d_lse / sizeof *p->d_lse, &state);
    fill(p->keys, sizeof p->keys / sizeof *p->keys, &state);
    fill(p->values, sizeof p->values / sizeof *p->values, &state);
    fill(p->sinks, H, &state);
    for (size_t b = 0, next = 0; b < B; b++) {
        p->lengths[b] = (int64_t)below(&state, MOST + 1);
        for (size_t c = 0; c < MOST; c++) {
            const bool shared = c == 0 && b > 0 && seed % 2;
            p->table[b * MOST + c] = shared ? p->table[0] : (int32_t)((7 * next++ + seed) % PAGES);
        }
    }
    p->call = (mha_call){.query = rows(p->q, B, T, H, D_K)};
    p->call.pages = (mha_pages){.keys = rows(p->keys, PAGES, p->size, H_KV, D_K),
                                .values = rows(p->values, PAGES, p->size, H_KV, D_V), .table = p->table,
                                .columns = MOST, .lengths = p->lengths};
    mha_semantics *s = &p->call.semantics;
    s->visible.causal = below(&state, 2);
    if (below(&state, 3) == 0)
        s->visible.has_window_left = true, s->visible.window_left = 2;
    s->softmax.softcap = below(&state, 2) ? 1.5 : 0;
    s->softmax.normaliser = below(&state, 4) == 0 ? MHA_SIGMOID : MHA_SOFTMAX;
    if (below(&state, 2) && s->softmax.normaliser == MHA_SOFTMAX) {
        p->weights[MHA_SINKS] = mha_view_of(p->sinks, MHA_F64, 1, (const size_t[]){H});
        p->call.weights = p->weights, p->call.weight_count = MHA_WEIGHT_COUNT;
    }
}

/* Only sequence b, whose keys are the rows of a cache; its gradients are added to those of pages. */
static void add_sequence(paged *p, size_t b, double *dq, double *d_keys, double *d_values)
{
    const size_t S = (size_t)p->lengths[b];
    double keys[2][MOST * H_KV * WIDE] = {{0}}, d[2][MOST * H_KV * WIDE];
    mha_error error;
    mha_cache *cache;
    const mha_cache_spec spec = {.batch = 1, .kv_heads = H_KV, .d_k = D_K, .d_v = D_V, .capacity = S, .dtype = MHA_F64};
    const size_t widths[2] = {D_K, D_V};
    for (size_t j = 0; j < S; j++)
        for (size_t v = 0; v < 2; v++)
            for (size_t e = 0; e < H_KV * widths[v]; e++) {
                const size_t page = (size_t)p->table[b * MOST + j / p->size], g = e / widths[v], c = e % widths[v];
                const double *from = v ? p->values : p->keys;
                keys[v][(g * S + j) * widths[v] + c] =
                    from[((page * p->size + j % p->size) * H_KV + g) * widths[v] + c];
            }
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    const mha_view past[2] = {rows(keys[0], 1, H_KV, S, D_K), rows(keys[1], 1, H_KV, S, D_V)};
    assert_ok(mha_cache_load(cache, &past[0], &past[1], &error), error);
    mha_call call = p->call;
    call.pages = (mha_pages){.columns = 0};
    call.query = mha_view_slice(&p->call.query, 0, b, 1);
    call.key = rows(keys[0], 1, 0, H_KV, D_K), call.value = rows(keys[1], 1, 0, H_KV, D_V);
    call.cache = cache;
    call.semantics.place.has_offset = true, call.semantics.place.offset = p->lengths[b] - T;
    mha_gradients g = {.d_output = rows(p->dO + b * T * H * D_V, 1, T, H, D_V)};
    if (call.semantics.softmax.normaliser == MHA_SOFTMAX)
        g.d_lse = mha_view_of(p->d_lse + b * H * T, MHA_F64, 3, (const size_t[]){1, H, T});
    g.of[MHA_D_QUERY] = rows(dq + b * T * H * D_K, 1, T, H, D_K);
    g.of[MHA_D_PAST_KEY] = rows(d[0], 1, H_KV, S, D_K), g.of[MHA_D_PAST_VALUE] = rows(d[1], 1, H_KV, S, D_V);
    assert_ok(mha_backward(NULL, &call, &g, &error), error);
    assert_int_equal(mha_cache_length(cache), S);
    mha_cache_destroy(cache);
    for (size_t j = 0; j < S; j++)
        for (size_t v = 0; v < 2; v++)
            for (size_t e = 0; e < H_KV * widths[v]; e++) {
                const size_t page = (size_t)p->table[b * MOST + j / p->size], n = e / widths[v], c = e % widths[v];
                double *to = v ? d_values : d_keys;
                to[((page * p->size + j % p->size) * H_KV + n) * widths[v] + c] += d[v][(n * S + j) * widths[v] + c];
            }
}

static void expect_near(const double *found, const double *wanted, size_t n, uint64_t seed, const char *what)
{
    for (size_t e = 0; e < n; e++)
        if (!(fabs(found[e] - wanted[e]) <= 1e-12))
            fail_msg("seed %llu, %s, element %zu: %.15g, expected %.15g", (unsigned long long)seed, what, e, found[e],
                     wanted[e]);
}

static void pages_have_the_gradients_of_their_rows(void **state)
{
    (void)state;
    static paged p;
    static double dq[2][B * T * H * D_K], dk[2][PAGES * SIZES * H_KV * D_K], dv[2][PAGES * SIZES * H_KV * D_V];
    mha_error error;
    for (uint64_t seed = 0; seed < 200; seed++) {
        draw(seed, &p);
        memset(dk, 0, sizeof dk), memset(dv, 0, sizeof dv);
        mha_gradients g = {.d_output = rows(p.dO, B, T, H, D_V)};
        if (p.call.semantics.softmax.normaliser == MHA_SOFTMAX)
            g.d_lse = mha_view_of(p.d_lse, MHA_F64, 3, (const size_t[]){B, H, T});
        g.of[MHA_D_QUERY] = rows(dq[0], B, T, H, D_K);
        g.of[MHA_D_PAGE_KEYS] = rows(dk[0], PAGES, p.size, H_KV, D_K);
        g.of[MHA_D_PAGE_VALUES] = rows(dv[0], PAGES, p.size, H_KV, D_V);
        assert_ok(mha_backward(NULL, &p.call, &g, &error), error);
        for (size_t b = 0; b < B; b++)
            add_sequence(&p, b, dq[1], dk[1], dv[1]);
        expect_near(dq[0], dq[1], B * T * H * D_K, seed, "d_query");
        expect_near(dk[0], dk[1], PAGES * p.size * H_KV * D_K, seed, "d_page_keys");
        expect_near(dv[0], dv[1], PAGES * p.size * H_KV * D_V, seed, "d_page_values");
    }
}

/* A backward of pages that moves every number by a roundoff of float32 stays within its bound. */
static void roundings_stay_within_the_bound(void **state)
{
    (void)state;
    static paged p;
    static double all[3][3][PAGES * SIZES * H_KV * WIDE];
    static const mha_gradient of[3] = {MHA_D_QUERY, MHA_D_PAGE_KEYS, MHA_D_PAGE_VALUES};
    mha_error error;
    size_t moved = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        draw(seed, &p);
        mha_gradients g[3] = {{.d_output = rows(p.dO, B, T, H, D_V)}};
        for (int i = 0; i < 3; i++) {
            g[i].d_output = g[0].d_output;
            g[i].of[MHA_D_QUERY] = rows(all[i][0], B, T, H, D_K);
            g[i].of[MHA_D_PAGE_KEYS] = rows(all[i][1], PAGES, p.size, H_KV, D_K);
            g[i].of[MHA_D_PAGE_VALUES] = rows(all[i][2], PAGES, p.size, H_KV, D_V);
        }
        assert_ok(mha_backward(NULL, &p.call, &g[0], &error), error);
        assert_ok(narrow_backward(NULL, &p.call, &g[1], seed, &error), error);
        assert_ok(mha_gradient_bound(NULL, &p.call, &g[2], 0x1p-24, &error), error);
        for (int k = 0; k < 3; k++)
            for (size_t e = 0; e < mha_view_elements(&g[0].of[of[k]]); e++) {
                const double off = fabs(all[0][k][e] - all[1][k][e]);
                moved += off > 0.01 * all[2][k][e];
                if (!(off <= all[2][k][e] && all[2][k][e] < 1e-3))
                    fail_msg("seed %llu, d_%s, element %zu: off by %g, bound %g", (unsigned long long)seed,
                             mha_gradient_name(of[k]), e, off, all[2][k][e]);
            }
    }
    assert_true(moved > 100);
}

/* A head of one feature, with a cache of `held` rows and two new ones. */
typedef struct cached {
    double q[2], key[2], value[2], dO[2], past[2][MOST];
    double dq[2], dk[2], dv[2], d_past[2][MOST];
    mha_call call;
    mha_gradients g;
} cached;

static void begin(cached *c, size_t held)
{
    uint64_t state = 5;
    memset(c, 0, sizeof *c);
    fill(c->q, 2, &state), fill(c->key, 2, &state), fill(c->value, 2, &state), fill(c->dO, 2, &state);
    fill(c->past[0], 2 * MOST, &state);
    c->call = (mha_call){.query = rows(c->q, 1, 2, 1, 1), .key = rows(c->key, 1, 2, 1, 1),
                         .value = rows(c->value, 1, 2, 1, 1)};
    c->g.d_output = rows(c->dO, 1, 2, 1, 1);
    c->g.of[MHA_D_QUERY] = rows(c->dq, 1, 2, 1, 1), c->g.of[MHA_D_KEY] = rows(c->dk, 1, 2, 1, 1);
    c->g.of[MHA_D_VALUE] = rows(c->dv, 1, 2, 1, 1);
    for (int v = 0; v < 2; v++)
        c->g.of[MHA_D_PAST_KEY + v] = rows(c->d_past[v], 1, 1, held, 1);
}

static mha_cache *cache_of(cached *c, size_t from, size_t n, size_t capacity, size_t window, mha_dtype type)
{
    mha_cache *cache;
    mha_error error;
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 1, .d_k = 1, .d_v = 1, .capacity = capacity, .window = window,
                                 .dtype = type};
    const mha_view past[2] = {rows(c->past[0] + from, 1, 1, n, 1), rows(c->past[1] + from, 1, 1, n, 1)};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    assert_ok(mha_cache_load(cache, &past[0], &past[1], &error), error);
    return cache;
}

static void evicted_rows_have_none(void **state)
{
    (void)state;
    cached all, kept;
    mha_error error;
    begin(&all, 5), begin(&kept, 3);
    mha_cache *window = all.call.cache = cache_of(&all, 0, 5, 6, 3, MHA_F64);
    mha_cache *rest = kept.call.cache = cache_of(&kept, 2, 3, 5, 0, MHA_F64);
    assert_ok(mha_backward(NULL, &all.call, &all.g, &error), error);
    assert_ok(mha_backward(NULL, &kept.call, &kept.g, &error), error);
    assert_int_equal(mha_cache_length(window), 5);
    assert_int_equal(mha_cache_first(window), 0);
    for (int v = 0; v < 2; v++) {
        assert_true(all.d_past[v][0] == 0 && all.d_past[v][1] == 0 && all.d_past[v][2] != 0);
        assert_memory_equal(all.d_past[v] + 2, kept.d_past[v], 3 * sizeof(double));
    }
    assert_memory_equal(all.dk, kept.dk, sizeof all.dk);
    assert_memory_equal(all.dq, kept.dq, sizeof all.dq);
    mha_cache_destroy(window), mha_cache_destroy(rest);
}

/* A cache that continues another one, and then has rows of its own. */
static void rows_of_a_trunk_have_theirs(void **state)
{
    (void)state;
    cached own, shared;
    mha_error error;
    mha_cache *beams;
    begin(&own, 5), begin(&shared, 5);
    mha_cache *plain = own.call.cache = cache_of(&own, 0, 5, 7, 0, MHA_F64);
    mha_cache *trunk = cache_of(&shared, 0, 5, 5, 0, MHA_F64);
    assert_ok(mha_cache_continue(trunk, 1, 2, NULL, &beams, &error), error);
    shared.call.cache = beams;
    assert_ok(mha_backward(NULL, &own.call, &own.g, &error), error);
    assert_ok(mha_backward(NULL, &shared.call, &shared.g, &error), error);
    assert_memory_equal(own.d_past, shared.d_past, sizeof own.d_past);
    assert_memory_equal(own.dv, shared.dv, sizeof own.dv);
    mha_cache_destroy(beams), mha_cache_destroy(trunk), mha_cache_destroy(plain);
}

/* Attention reads the rounded rows; a gradient passes through their rounding. */
static void rows_are_those_of_the_cache(void **state)
{
    (void)state;
    cached narrow, wide;
    mha_error error;
    begin(&narrow, 4), begin(&wide, 4);
    mha_cache *small = narrow.call.cache = cache_of(&narrow, 0, 4, 6, 0, MHA_BF16);
    const mha_view past[2] = {rows(wide.past[0], 1, 1, 4, 1), rows(wide.past[1], 1, 1, 4, 1)};
    assert_ok(mha_cache_read(small, false, &past[0], &error), error);
    assert_ok(mha_cache_read(small, true, &past[1], &error), error);
    for (int i = 0; i < 2; i++) {
        wide.key[i] = mha__round_to(MHA_BF16, wide.key[i]);
        wide.value[i] = mha__round_to(MHA_BF16, wide.value[i]);
    }
    mha_cache *large = wide.call.cache = cache_of(&wide, 0, 4, 6, 0, MHA_F64);
    assert_ok(mha_backward(NULL, &narrow.call, &narrow.g, &error), error);
    assert_ok(mha_backward(NULL, &wide.call, &wide.g, &error), error);
    assert_memory_equal(narrow.d_past, wide.d_past, sizeof narrow.d_past);
    assert_memory_equal(narrow.dk, wide.dk, sizeof narrow.dk);
    mha_cache_destroy(small), mha_cache_destroy(large);
}

/* A cache of bfloat16 may round a number close to a tie up or down: a right backward of either is within the bound. */
static void the_bound_allows_for_the_rounding_of_a_cache(void **state)
{
    (void)state;
    static const double beside[2] = {1 + 0x1p-8 - 0x1p-20, 1 + 0x1p-8 + 0x1p-20};
    cached c[2];
    double bound[2] = {0};
    mha_error error;
    for (int i = 0; i < 2; i++) {
        begin(&c[i], 4);
        c[i].q[0] = c[i].q[1] = 0; /* scores are exact then, and so are weights */
        c[i].value[0] = beside[i];
        mha_cache *cache = c[i].call.cache = cache_of(&c[i], 0, 4, 6, 0, MHA_BF16);
        assert_ok(mha_backward(NULL, &c[i].call, &c[i].g, &error), error);
        mha_gradients g = {.d_output = c[i].g.d_output};
        g.of[MHA_D_QUERY] = rows(bound, 1, 2, 1, 1);
        assert_ok(mha_gradient_bound(NULL, &c[i].call, &g, 0x1p-24, &error), error);
        mha_cache_destroy(cache);
    }
    for (int i = 0; i < 2; i++)
        assert_true(fabs(c[0].dq[i] - c[1].dq[i]) > 1e-5 && fabs(c[0].dq[i] - c[1].dq[i]) <= bound[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_have_the_gradients_of_their_rows),
        cmocka_unit_test(roundings_stay_within_the_bound), cmocka_unit_test(evicted_rows_have_none),
        cmocka_unit_test(rows_of_a_trunk_have_theirs), cmocka_unit_test(rows_are_those_of_the_cache),
        cmocka_unit_test(the_bound_allows_for_the_rounding_of_a_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
