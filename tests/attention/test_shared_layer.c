/* Layers whose caches continue another one: latents, gates and relative terms, in every type of cache, give on every
 * path the bits that a cache of its own gives each sequence, or the same refusal. SHARED_TRIALS=n tries n layers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/isa.h"
#include "support/trial.h"
#include "support/unit.h"

enum { STEPS = 3, MOST = 1 << 18 };

/* A layer, a prompt of P rows for each of N sequences, and B / N continuations of each; STEPS calls of T new rows. */
typedef struct drawn {
    mha_layer *layer;
    const mha_config *c;
    size_t N, B, P, T;
    mha_call call; /* without inputs, cache and output */
    mha_dtype dtype;
    int threads;
    double slopes[4];
    uint64_t seed;
} drawn;

static size_t below(uint64_t seed, uint64_t i, size_t n)
{
    return (size_t)((double)mha__random_unit(seed, 7, i) * (double)n) % n;
}

static void draw(drawn *d, uint64_t seed)
{
    static const size_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {4, 1}}, widths[][2] = {{4, 4}, {16, 24}, {64, 40}},
                        ranks[][2] = {{8, 0}, {20, 4}, {64, 8}, {250, 6}},
                        at[] = {0, 1, 63, 64, 65, 128, 200, 511, 513, 700, 1023, 1025};
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_I8};
    *d = (drawn){.seed = seed};
    const size_t *h = heads[below(seed, 0, 4)], *w = widths[below(seed, 1, 3)], *rank = ranks[below(seed, 2, 4)];
    const bool latent = below(seed, 3, 2);
    mha_config c = {.d_model = 16, .n_heads = h[0], .kv_heads = latent ? 0 : h[1], .d_k = w[0] + rank[1], .d_v = w[1],
                    .sinks = below(seed, 4, 4) == 0, .gate = (mha_gate)below(seed, 5, 3)};
    const bool rounds = below(seed, 23, latent ? 12 : 3) == 0; /* of latents: refused */
    c.dtype = rounds ? MHA_BF16 : MHA_F32;
    c.bias_gate = c.gate && below(seed, 6, 2);
    if (latent)
        c.kv_rank = rank[0], c.d_rope = rank[1], c.q_rank = 12 * below(seed, 7, 2);
    mha_semantics *s = &d->call.semantics;
    if (!latent && below(seed, 8, 3) == 0) {
        c.relative_k_rows = c.relative_q_rows = 15;
        s->added.relative = (mha_relative){.rule = MHA_RELATIVE_DISTANCE, .reversed = below(seed, 9, 2)};
    }
    mha_error error;
    assert_ok(mha_layer_create(&c, NULL, NULL, &d->layer, &error), error);
    mha_layer_init(d->layer, seed);
    d->c = mha_layer_config(d->layer);
    if (below(seed, 10, 2))
        assert_ok(mha_layer_pack(d->layer, &error), error);
    d->N = 1 + below(seed, 11, 2), d->B = d->N * (1 + below(seed, 12, 4));
    d->P = at[below(seed, 13, 12)], d->T = 1 + below(seed, 14, 4);
    d->dtype = rounds ? MHA_BF16 : types[below(seed, 15, 4)], d->threads = 1 + (int)below(seed, 16, 4);
    d->call.absorbed = latent && below(seed, 17, 4);
    s->visible.causal = below(seed, 18, 3);
    s->softmax.softcap = below(seed, 19, 4) ? 0 : 3;
    if (below(seed, 20, 3) == 0)
        s->visible.has_window_left = true, s->visible.window_left = (int64_t)(d->P / 2 + 2);
    if (c.d_rope || (!latent && below(seed, 21, 2)))
        s->qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT, .dim = latent ? c.d_rope : 4, .last = latent};
    for (size_t i = 0; i < 4; i++)
        d->slopes[i] = 0.25 / (double)(i + 1);
    if (below(seed, 22, 4) == 0)
        s->added.alibi_slopes = d->slopes;
    d->call.precision = mha_precision_of(c.dtype);
    const size_t drawn_path = below(seed, 24, 6);
    d->call.path = drawn_path == 0 && d->P < 300 ? MHA_PATH_EXACT : drawn_path < 3 ? MHA_PATH_BLAS : MHA_PATH_FAST;
}

static mha_cache *cache_of(const drawn *d, size_t batch, size_t capacity)
{
    const bool absorbed = d->call.absorbed;
    const mha_cache_spec spec = {.batch = batch, .kv_heads = absorbed ? 1 : d->c->kv_heads, .capacity = capacity,
                                 .d_k = absorbed ? d->c->kv_rank + d->c->d_rope : d->c->d_k,
                                 .d_v = absorbed ? 0 : d->c->d_v, .dtype = d->dtype};
    mha_cache *cache;
    mha_error error;
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    return cache;
}

/* Rows T of `batch` sequences, those of one prompt alike, appended and attended to. */
static mha_status forward(const drawn *d, mha_cache *cache, size_t batch, size_t T, uint64_t stream, bool alike,
                          float *out, int threads, mha_error *error)
{
    static float x[MOST], one[MOST];
    const size_t row = T * d->c->d_q, own = alike ? d->N : batch;
    assert_true(batch * row <= MOST);
    const mha_view rows = mha_rows(one, own, T, d->c->d_q);
    mha_random_fill(&rows, d->seed, stream, -1, 1);
    for (size_t b = 0; b < batch; b++)
        memcpy(x + b * row, one + b / (batch / own) * row, row * sizeof *x);
    mha_call call = d->call;
    call.query = mha_rows(x, batch, T, d->c->d_q);
    call.output = mha_rows(out, batch, T, d->c->d_out);
    call.cache = cache, call.threads = threads;
    return mha_run(d->layer, &call, error);
}

/* Whether the call is computed at all. */
static bool assert_same_bits(uint64_t seed)
{
    static float wanted[MOST], found[MOST];
    drawn d;
    draw(&d, seed);
    mha_error refused, error;
    mha_cache *trunk = cache_of(&d, d.N, d.P + 1), *own = cache_of(&d, d.B, d.P + STEPS * d.T), *shared;
    const mha_status status = forward(&d, own, d.B, d.P, 1, true, wanted, 1, &refused);
    assert_int_equal(forward(&d, trunk, d.N, d.P, 1, true, found, d.threads, &error), status);
    if (status == MHA_OK) {
        assert_ok(mha_cache_continue(trunk, d.B, STEPS * d.T, NULL, &shared, &error), error);
        const size_t together = d.B / d.N, n = d.B * d.T * d.c->d_out;
        for (uint64_t step = 0; step < STEPS; step++) {
            assert_ok(forward(&d, own, d.B, d.T, 2 + step, false, wanted, 1, &error), error);
            memset(found, 0, n * sizeof *found);
            assert_ok(forward(&d, shared, d.B, d.T, 2 + step, false, found, d.threads, &error), error);
            for (size_t i = 0; i < n; i++)
                if (memcmp(&wanted[i], &found[i], sizeof *wanted) != 0 || !isfinite(wanted[i]))
                    fail_msg("seed %llu, %s, %s, %s: number %zu of step %d is %.9g, %.9g where rows are shared",
                             (unsigned long long)seed, mha_isa(), mha_path_name(d.call.path), mha_dtype_name(d.dtype),
                             i, (int)step, (double)wanted[i], (double)found[i]);
            size_t from[8];
            for (size_t b = 0; b < d.B; b++)
                from[b] = b / together * together + below(seed, 40 + 8 * step + b, together);
            assert_ok(mha_cache_reorder(own, from, &error), error);
            assert_ok(mha_cache_reorder(shared, from, &error), error);
        }
        mha_cache_destroy(shared);
    } else {
        assert_true(strlen(error.message) > 0 && !strchr(error.message, '\n'));
        assert_string_equal(error.message, refused.message);
    }
    mha_cache_destroy(own), mha_cache_destroy(trunk);
    mha_layer_destroy(d.layer);
    return status == MHA_OK;
}

static void layers_at_random(void **state)
{
    const uint64_t trials = trial_count("SHARED_TRIALS", 16);
    uint64_t computed = 0, all = 0;
    FOR_EACH_ISA
        for (uint64_t seed = 1; seed <= trials; seed++, all++)
            computed += assert_same_bits(seed);
    assert_true(computed > all * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(layers_at_random, isa_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
