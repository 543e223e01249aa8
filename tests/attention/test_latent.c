/* Multi-head latent attention, as stored and absorbed, on every path: against queries, keys and values that plain loops
 * (support/latent.h) make from the definition; in one call, in parts and with caches.
 * LATENT_TRIALS=n tries n drawn calls, LATENT_SEED=s begins with seed s. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "mha/lab.h"
#include "support/latent.h"
#include "support/layer.h"
#include "support/merged.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/words.h"

enum { MOST = 1 << 14 }; /* doubles of one array */

static uint64_t state;

static size_t below(size_t n)
{
    return (size_t)(word(&state) % n);
}

/* ---------------------------------------------------------------- a drawn call */

typedef struct drawn {
    mha_layer *layer;
    mha_call call; /* on float inputs; without output and path */
    size_t B, T_q, T_k;
    bool cross;
    float x_q[MOST], x_k[MOST];
    double mask[MOST];
    int64_t lengths[4], cu_q[4], cu_k[4];
    double slopes[8];
    float frequencies[16];
    double expected[MOST]; /* (B, T_q, d_out) */
    double bound;          /* of the exact path for the layer as stored */
} drawn;

static void draw(drawn *d, uint64_t seed)
{
    memset(d, 0, sizeof *d);
    state = seed;
    static const mha_dtype types[] = {MHA_F32, MHA_F32, MHA_F64, MHA_BF16, MHA_F16};
    mha_config config = {.d_model = 8 + below(40), .n_heads = 1 + below(4), .d_k = 2 + below(14), .d_v = 1 + below(12),
                         .kv_rank = 1 + below(40), .q_rank = below(2) * (1 + below(24)), .bias_latent = below(2),
                         .bias_o = below(2), .sinks = below(4) == 0, .dtype = types[below(5)]};
    config.d_rope = below(4) ? 2 * below((config.d_k + 1) / 2) : 0;
    const bool blocks = below(8) == 0; /* of 32 inputs of each matrix */
    if (blocks) {
        config.dtype = below(2) ? MHA_Q8_0 : MHA_Q4_0;
        config.d_model = config.kv_rank = 32, config.q_rank = config.q_rank ? 32 : 0;
        config.n_heads = 4, config.d_v = 8;
    }
    d->cross = below(4) == 0;
    if (d->cross)
        config.d_kin = config.d_vin = blocks ? 32 : 5 + below(20);
    d->layer = made_layer(config, seed);

    mha_semantics *s = &d->call.semantics;
    const bool ragged = below(5) == 0;
    d->B = 1 + below(3), d->T_q = 1 + below(below(4) ? 12 : 70), d->T_k = d->cross ? 1 + below(30) : d->T_q;
    if (ragged) {
        s->place.n_sequences = d->B;
        for (size_t b = 0; b < d->B; b++) {
            d->cu_q[b + 1] = d->cu_q[b] + (int64_t)below(9);
            d->cu_k[b + 1] = d->cross ? d->cu_k[b] + (int64_t)below(9) : d->cu_q[b + 1];
        }
        d->T_q = (size_t)d->cu_q[d->B], d->T_k = (size_t)d->cu_k[d->B];
        s->place.cu_seqlens_q = d->cu_q, s->place.cu_seqlens_k = d->cu_k;
        d->B = 1;
    }
    const mha_config *c = mha_layer_config(d->layer);
    d->call.query = mha_rows(d->x_q, d->B, d->T_q, c->d_q);
    mha_random_fill(&d->call.query, seed, 100, -1, 1);
    if (d->cross) {
        d->call.key = mha_rows(d->x_k, d->B, d->T_k, c->d_kin);
        mha_random_fill(&d->call.key, seed, 101, -1, 1);
    }
    s->visible.causal = below(2);
    s->softmax.scale = below(2) ? 0.3 + (double)below(10) / 8 : 0;
    s->softmax.softcap = below(3) ? 0 : 4;
    s->qkv.norm_eps = below(2) ? 0 : 0.02;
    s->softmax.zero_row = below(6) == 0;
    s->softmax.softmax_plus_one = below(6) == 0;
    if (below(4) == 0)
        s->visible.has_window_left = true, s->visible.window_left = (int64_t)below(9);
    if (below(4) == 0) {
        for (size_t i = 0; i < 8; i++)
            d->slopes[i] = 1.0 / (double)(1 + below(9));
        s->added.alibi_slopes = d->slopes;
    }
    if (!ragged && below(4) == 0) {
        s->visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(d->mask, MHA_F64, 2, (size_t[]){d->T_q, d->T_k})};
        mha_random_fill(&s->visible.mask.values, seed, 102, -2, 2);
    }
    if (!ragged && below(4) == 0) {
        for (size_t b = 0; b < d->B; b++)
            d->lengths[b] = (int64_t)below(d->T_k + 1);
        s->visible.kv_lengths = d->lengths;
    }
    if (c->d_rope > 0 && below(5)) {
        s->qkv.rope = (mha_rope){.kind = below(2) ? MHA_ROPE_INTERLEAVED : MHA_ROPE_HALF_SPLIT, .dim = c->d_rope,
                             .last = true, .base = below(2) ? 0 : 100,
                             .attention_factor = below(2) ? 0 : 0.5 + (double)below(9) / 8};
        if (below(3) == 0) {
            const size_t pairs = c->d_rope / 2;
            s->qkv.rope.frequencies = mha_view_of(d->frequencies, MHA_F32, 1, &pairs);
            mha_random_fill(&s->qkv.rope.frequencies, seed, 103, 0, 1);
        }
    }
}

/* The expected output, by the definition. */
static void expect(drawn *d)
{
    mha_error error;
    double bound[MHA_STAGE_COUNT];
    latent_expect(d->layer, &d->call, NULL, d->expected);
    assert_ok(mha_error_bound(d->layer, &d->call, 0x1p-53, bound, MHA_STAGE_COUNT, &error), error);
    d->bound = bound[MHA_STAGE_OUTPUT];
}

/* ---------------------------------------------------------------- comparison */

/* Compares rows [from, from + T) of each batch row with the expected ones: `bound` for the path, and what the
 * definition's own loops may be off. */
static void compare(const drawn *d, const char *what, const mha_view *found, size_t from, double bound, uint64_t seed)
{
    const size_t d_out = mha_layer_config(d->layer)->d_out;
    for (size_t b = 0; b < found->shape[0]; b++)
        for (size_t t = 0; t < found->shape[1]; t++)
            for (size_t j = 0; j < d_out; j++) {
                const double e = d->expected[(b * d->T_q + from + t) * d_out + j],
                             y = mha_view_get(found, (size_t[]){b, t, j});
                if (!(fabs(y - e) <= bound + d->bound))
                    fail_msg("seed %llu, %s: (%zu, %zu, %zu) is %.9g, expected %.9g within %.3g",
                             (unsigned long long)seed, what, b, from + t, j, y, e, bound + d->bound);
            }
}

static const struct form {
    const char *name;
    mha_path path;
    bool absorbed, packed;
} forms[] = {
    {"exact, stored", MHA_PATH_EXACT, false, false}, {"exact, absorbed", MHA_PATH_EXACT, true, false},
    {"blas, stored", MHA_PATH_BLAS, false, false},   {"blas, absorbed", MHA_PATH_BLAS, true, false},
    {"fast, stored", MHA_PATH_FAST, false, false},   {"fast, absorbed", MHA_PATH_FAST, true, false},
    {"packed, stored", MHA_PATH_FAST, false, true},  {"packed, absorbed", MHA_PATH_FAST, true, true},
};
enum { FORMS = sizeof forms / sizeof *forms };

static double bound_of(const drawn *d, const mha_call *call)
{
    double bound[MHA_STAGE_COUNT];
    mha_error error;
    assert_ok(mha_error_bound(d->layer, call, call->path == MHA_PATH_EXACT ? 0x1p-53 : 0x1p-24, bound, MHA_STAGE_COUNT,
                              &error), error);
    return bound[MHA_STAGE_OUTPUT];
}

static void pack(const drawn *d, bool packed)
{
    mha_error error;
    if (packed)
        assert_ok(mha_layer_pack(d->layer, &error), error);
    else
        mha__layer_unpack(d->layer);
}

/* The call in one go, by one and by three threads with the same bits, and one batch row alone with the same. */
static void whole(const drawn *d, const struct form *f, uint64_t seed)
{
    static double y[2][MOST];
    mha_error error;
    mha_call call = d->call;
    const size_t d_out = mha_layer_config(d->layer)->d_out;
    const mha_dtype type = f->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    call.absorbed = f->absorbed, call.path = f->path;
    for (int i = 0; i < 2; i++) {
        call.threads = i ? 3 : 1;
        call.output = mha_view_of(y[i], type, 3, (size_t[]){d->B, d->T_q, d_out});
        assert_ok(mha_run(d->layer, &call, &error), error);
    }
    assert_memory_equal(y[0], y[1], d->B * d->T_q * d_out * (type == MHA_F64 ? 8 : 4));
    compare(d, f->name, &call.output, 0, bound_of(d, &call), seed);
    if (d->B == 1 || d->call.semantics.visible.kv_lengths)
        return;
    call.query = mha_view_slice(&d->call.query, 0, 1, 1);
    call.key = d->cross ? mha_view_slice(&d->call.key, 0, 1, 1) : d->call.key;
    call.output = mha_view_slice(&call.output, 0, 0, 1);
    assert_ok(mha_run(d->layer, &call, &error), error);
    const size_t bytes = d->T_q * d_out * (type == MHA_F64 ? 8 : 4);
    assert_memory_equal(y[1], (char *)y[0] + bytes, bytes);
}

/* The rows in several calls with a cache: of keys and values, or of latents. */
static void cached(const drawn *d, const struct form *f, uint64_t seed)
{
    const mha_config *c = mha_layer_config(d->layer);
    const mha_semantics *s = &d->call.semantics;
    if (d->cross || s->place.cu_seqlens_q || s->visible.mask.kind || s->visible.kv_lengths)
        return;
    static double y[MOST];
    mha_error error;
    mha_cache *cache;
    const mha_dtype type = f->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    const mha_cache_spec spec = {.batch = d->B, .kv_heads = f->absorbed ? 1 : c->n_heads, .capacity = d->T_k,
                                 .d_k = f->absorbed ? c->kv_rank + c->d_rope : c->d_k, .d_v = f->absorbed ? 0 : c->d_v,
                                 .dtype = type};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    const size_t row = f->absorbed ? c->kv_rank + c->d_rope : c->n_heads * (c->d_k + c->d_v);
    assert_int_equal(mha_cache_bytes(cache), d->B * d->T_k * row * (type == MHA_F64 ? 8 : 4));
    mha_call call = d->call;
    call.absorbed = f->absorbed, call.path = f->path;
    const double bound = bound_of(d, &call);
    call.cache = cache;
    for (size_t from = 0, n; from < d->T_q; from += n) {
        n = 1 + below(d->T_q - from);
        if (!s->visible.causal) /* later rows are seen, too: only the last call has the whole */
            n = from ? d->T_q - from : n;
        call.query = mha_view_slice(&d->call.query, 1, from, n);
        call.output = mha_view_of(y, type, 3, (size_t[]){d->B, n, c->d_out});
        assert_ok(mha_run(d->layer, &call, &error), error);
        if (s->visible.causal || from + n == d->T_q)
            compare(d, f->name, &call.output, from, bound, seed);
    }
    mha_cache_destroy(cache);
}

/* A cache of 8 bits, filled by one call, gives a call without keys the bits of a cache of floats that holds its
 * numbers. */
static void cached_in_8_bits(const drawn *d, const struct form *f, uint64_t seed)
{
    const mha_config *c = mha_layer_config(d->layer);
    if (d->cross || d->call.semantics.place.cu_seqlens_q || d->call.semantics.visible.mask.kind ||
        d->call.semantics.visible.kv_lengths)
        return;
    static float y[2][MOST], rows[2][MOST];
    mha_error error;
    mha_cache *caches[2];
    mha_cache_spec spec = {.batch = d->B, .kv_heads = f->absorbed ? 1 : c->n_heads, .capacity = d->T_k,
                           .d_k = f->absorbed ? c->kv_rank + c->d_rope : c->d_k, .d_v = f->absorbed ? 0 : c->d_v,
                           .dtype = MHA_I8};
    const size_t k[4] = {spec.batch, spec.kv_heads, d->T_k, spec.d_k}, v[4] = {k[0], k[1], k[2], spec.d_v};
    const mha_view keys = mha_view_of(rows[0], MHA_F32, 4, k), values = mha_view_of(rows[1], MHA_F32, 4, v);
    assert_true(mha_view_elements(&keys) <= MOST && mha_view_elements(&values) <= MOST);
    assert_ok(mha_cache_create(&spec, NULL, &caches[0], &error), error);
    spec.dtype = MHA_F32;
    assert_ok(mha_cache_create(&spec, NULL, &caches[1], &error), error);
    mha_call call = d->call;
    call.absorbed = f->absorbed, call.path = f->path, call.cache = caches[0];
    call.output = mha_view_of(y[0], MHA_F32, 3, (size_t[]){d->B, d->T_q, c->d_out});
    assert_ok(mha_run(d->layer, &call, &error), error);
    assert_ok(mha_cache_read(caches[0], false, &keys, &error), error);
    assert_ok(mha_cache_read(caches[0], true, &values, &error), error);
    assert_ok(mha_cache_load(caches[1], &keys, &values, &error), error);
    call.key = mha_view_slice(&d->call.query, 1, 0, 0);
    call.semantics.place.has_offset = true;
    for (size_t i = 0; i < 2; i++) {
        call.cache = caches[i];
        call.output.data = y[i];
        assert_ok(mha_run(d->layer, &call, &error), error);
        mha_cache_destroy(caches[i]);
    }
    for (size_t i = 0; i < d->B * d->T_q * c->d_out; i++)
        if (memcmp(&y[0][i], &y[1][i], sizeof y[0][i]) != 0)
            fail_msg("seed %llu, %s: number %zu is %.9g with floats, %.9g", (unsigned long long)seed, f->name, i,
                     (double)y[1][i], (double)y[0][i]);
}

/* Two parts of the keys, merged by their lse, then W_O. */
static void in_parts(const drawn *d, const struct form *f, uint64_t seed)
{
    const mha_config *c = mha_layer_config(d->layer);
    const mha_semantics *s = &d->call.semantics;
    if (s->place.cu_seqlens_q || s->visible.mask.kind || s->visible.kv_lengths)
        return;
    static float heads[2][MOST], lse[2][MOST];
    mha_error error;
    mha_part parts[2];
    double bound[MHA_STAGE_COUNT];
    mha_call call = d->call, all = d->call;
    const mha_view keys = d->cross ? d->call.key : d->call.query;
    const size_t cut = below(d->T_k + 1);
    call.absorbed = all.absorbed = f->absorbed, call.path = all.path = f->path;
    call.semantics.place.has_key_offset = call.semantics.place.has_offset = true;
    for (size_t i = 0; i < 2; i++) {
        const size_t from = i ? cut : 0, to = i ? d->T_k : cut;
        parts[i].heads = mha_view_of(heads[i], MHA_F32, 3, (size_t[]){d->B, d->T_q, c->n_heads * c->d_v});
        parts[i].lse = mha_view_of(lse[i], MHA_F32, 3, (size_t[]){d->B, c->n_heads, d->T_q});
        call.key = mha_view_slice(&keys, 1, from, to - from);
        call.semantics.place.key_offset = (int64_t)from;
        call.semantics.place.keys_only = i > 0;
        mha_keep keep[] = {{MHA_STAGE_HEADS, parts[i].heads, 0}, {MHA_STAGE_LSE, parts[i].lse, 0}};
        call.keep = keep, call.keep_count = 2;
        assert_ok(mha_run(d->layer, &call, &error), error);
    }
    assert_ok(mha_error_bound(d->layer, &all, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
    double off = bound[MHA_STAGE_HEADS], off_lse = bound[MHA_STAGE_LSE];
    merged_bound(parts, 2, 0x1p-24, &off, &off_lse);
    assert_ok(mha_merge(parts, 2, s->softmax.empty_rows, &parts[0], &error), error);
    static double y[MOST];
    all.output = mha_view_of(y, MHA_F64, 3, (size_t[]){d->B, d->T_q, c->d_out});
    mha_plan plan;
    assert_ok(mha_plan_call(d->layer, &all, &plan, &error), error);
    void *workspace = malloc(plan.workspace_bytes);
    assert_ok(mha_forward_output(&plan, &parts[0].heads, workspace, plan.workspace_bytes, &error), error);
    free(workspace);
    double sum = 0; /* heads that are off by `off` move an output by this much more than the bound's own */
    for (size_t j = 0; j < c->d_out; j++) {
        double column = 0;
        for (size_t i = 0; i < c->n_heads * c->d_v; i++)
            column += fabs(latent_weight(d->layer, MHA_W_O, i, j));
        sum = fmax(sum, column);
    }
    compare(d, f->name, &all.output, 0, bound[MHA_STAGE_OUTPUT] + off * sum, seed);
}

static void test_random(void **unused)
{
    (void)unused;
    const uint64_t from = trial_number("LATENT_SEED", 1), n = trial_count("LATENT_TRIALS", 80);
    static drawn d;
    for (uint64_t seed = from; seed < from + n; seed++) {
        draw(&d, seed);
        expect(&d);
        for (size_t i = 0; i < FORMS; i++) {
            pack(&d, forms[i].packed);
            whole(&d, &forms[i], seed);
            cached(&d, &forms[i], seed);
            cached_in_8_bits(&d, &forms[i], seed);
            in_parts(&d, &forms[i], seed);
        }
        mha_layer_destroy(d.layer);
    }
}

/* ---------------------------------------------------------------- what has no meaning */

static void test_configurations(void **unused)
{
    (void)unused;
    const mha_config good = {.d_model = 16, .n_heads = 2, .d_k = 6, .d_v = 3, .d_rope = 2, .kv_rank = 4, .q_rank = 5};
    mha_error error;
    mha_config c = good;
    assert_ok(mha_config_resolve(&c, &error), error);
#define REFUSED(change, ...)                                                                                           \
    do {                                                                                                               \
        c = good;                                                                                                      \
        change;                                                                                                        \
        assert_refused(mha_config_resolve(&c, &error), MHA_INVALID, error, __VA_ARGS__);                               \
    } while (0)
    REFUSED(c.kv_rank = 0, "kv_rank", "q_rank");
    REFUSED((c.kv_rank = c.q_rank = 0), "kv_rank");
    REFUSED((c.kv_rank = c.q_rank = c.d_rope = 0, c.bias_latent = true), "bias_latent");
    REFUSED(c.bias_q = true, "kv_rank", "bias_latent");
    REFUSED(c.bias_k = true, "kv_rank");
    REFUSED(c.bias_v = true, "kv_rank");
    REFUSED(c.bias_kv = true, "kv_rank");
    REFUSED(c.q_norm = MHA_NORM_HEAD, "kv_rank");
    REFUSED(c.k_norm = MHA_NORM_ROW, "kv_rank");
    REFUSED(c.kv_heads = 1, "kv_heads", "2 heads, found kv_heads 1");
    REFUSED(c.d_vin = 7, "d_vin", "16, found 7");
    REFUSED(c.d_rope = 6, "d_rope", "d_k 6, found 6");
    REFUSED(c.kv_rank = (size_t)1 << 30, "kv_rank", "2147483647");
    REFUSED(c.q_rank = (size_t)1 << 31, "q_rank", "2147483647");
}

/* Keys and values of latent attention move together. */
static void call_moved_apart(const mha_layer *layer, const mha_call *call, const float *elsewhere)
{
    mha_plan plan;
    mha_error error;
    assert_ok(mha_plan_call(layer, call, &plan, &error), error);
    assert_ok(mha_plan_move(&plan, elsewhere, NULL, NULL, NULL, &error), error);
    assert_refused(mha_plan_move(&plan, NULL, NULL, elsewhere + 1, NULL, &error), MHA_INVALID, error, "value", "key");
    assert_refused(mha_plan_move(&plan, NULL, elsewhere + 1, elsewhere, NULL, &error), MHA_INVALID, error, "value",
                   "key");
}

static void test_calls(void **unused)
{
    (void)unused;
    static float x[2 * 16], other[2 * 16], y[2 * 16];
    static double partial[2 * 2 * 8];
    mha_config config = {.d_model = 16, .n_heads = 2, .d_k = 6, .d_v = 3, .d_rope = 2, .kv_rank = 4,
                         .bias_latent = true};
    mha_layer *layer, *plain;
    mha_error error;
    mha_plan plan;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    config = (mha_config){.d_model = 16, .n_heads = 2};
    assert_ok(mha_layer_create(&config, NULL, NULL, &plain, &error), error);
    const mha_call good = {.query = mha_rows(x, 1, 2, 16), .output = mha_rows(y, 1, 2, 16)};
    mha_call c;
#define CALL_REFUSED(l, status, change, ...)                                                                           \
    do {                                                                                                               \
        c = good;                                                                                                      \
        change;                                                                                                        \
        assert_refused(mha_plan_call(l, &c, &plan, &error), status, error, __VA_ARGS__);                               \
    } while (0)
    CALL_REFUSED(plain, MHA_UNSUPPORTED, c.absorbed = true, "absorbed", "kv_rank");
    c = (mha_call){.query = mha_heads(x, 1, 2, 2, 8), .key = mha_heads(x, 1, 2, 2, 8),
                   .value = mha_heads(x, 1, 2, 2, 8), .absorbed = true};
    assert_refused(mha_plan_call(NULL, &c, &plan, &error), MHA_UNSUPPORTED, error, "absorbed", "kv_rank");
    CALL_REFUSED(layer, MHA_INVALID, (c.key = good.query, c.value = mha_rows(other, 1, 2, 16)), "value", "leave");
    CALL_REFUSED(layer, MHA_INVALID, (c.key = c.value = good.query, c.value.stride[1] = 17), "value", "leave");
    call_moved_apart(layer, &good, other);
    CALL_REFUSED(layer, MHA_INVALID, c.semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT, "rope_dim", "d_rope", "first 6");
    CALL_REFUSED(layer, MHA_INVALID,
                 (c.semantics.qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT, .dim = 4, .last = true}), "last 4");
    CALL_REFUSED(layer, MHA_UNSUPPORTED, c.semantics.qkv.norm.unweighted = true, "norm_unweighted");
    for (mha_path path = MHA_PATH_AUTO; path < MHA_PATH_EXACT; path++)
        CALL_REFUSED(layer, MHA_UNSUPPORTED, (c.path = path, c.precision = mha_precision_of(MHA_BF16)), "precision",
                     "expected the exact path for latent attention");
    mha_keep keep = {.stage = MHA_STAGE_KV_LATENT, .view = mha_rows(other, 1, 2, 6)};
    CALL_REFUSED(plain, MHA_UNSUPPORTED, (c.keep = &keep, c.keep_count = 1), "kv_latent", "kv_rank");
    keep = (mha_keep){.stage = MHA_STAGE_Q_LATENT, .view = mha_rows(other, 1, 2, 6)};
    CALL_REFUSED(layer, MHA_UNSUPPORTED, (c.keep = &keep, c.keep_count = 1), "q_latent", "q_rank");

    mha_cache *stored, *latents;
    const mha_cache_spec of_heads = {.batch = 1, .kv_heads = 2, .d_k = 6, .d_v = 3, .capacity = 4},
                         of_latents = {.batch = 1, .kv_heads = 1, .d_k = 6, .d_v = 0, .capacity = 4};
    assert_ok(mha_cache_create(&of_heads, NULL, &stored, &error), error);
    assert_ok(mha_cache_create(&of_latents, NULL, &latents, &error), error);
    CALL_REFUSED(layer, MHA_INVALID, (c.absorbed = true, c.cache = stored), "cache keys", "(1, 1, 0, 6)");
    CALL_REFUSED(layer, MHA_INVALID, c.cache = latents, "cache keys", "(1, 2, 0, 6)");
    mha_cache_destroy(stored), mha_cache_destroy(latents);

    /* Allowed: a value that is the key, a softmax that continues, with the width of the latents. */
    c = good, c.key = c.value = good.query;
    assert_ok(mha_plan_call(layer, &c, &plan, &error), error);
    c = good, c.path = MHA_PATH_EXACT, c.absorbed = true;
    c.partial = mha_view_of(partial, MHA_F64, 4, (size_t[]){1, 2, 2, 6});
    assert_ok(mha_plan_call(layer, &c, &plan, &error), error);
    assert_true(plan.h_kv == 1 && plan.d_k == 6 && plan.d_v == 4 && plan.scale == 1 / sqrt(6));

    /* Without a rotation the bias of k_r adds one number to all scores of a query; with one it does not. */
    assert_int_equal(mha_tensor_info_of(mha_layer_weight(layer, MHA_B_KVA)).inert_elements, 2);
    const mha_semantics turned = {.qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT, .dim = 2, .last = true}};
    assert_ok(mha_layer_mark_inert(layer, &turned, NULL), error);
    assert_int_equal(mha_tensor_info_of(mha_layer_weight(layer, MHA_B_KVA)).inert_elements, 0);

    mha_split split = {.config = *mha_layer_config(layer), .ranks = 2, .B = 1, .T_q = 2, .T_k = 2};
    assert_ok(mha_split_check(&split, &error), error);
    split.scheme = MHA_SPLIT_RING, split.absorbed = true;
    assert_refused(mha_split_check(&split, &error), MHA_UNSUPPORTED, error, "absorbed", "tensor and cache");
    split.config = (mha_config){.d_model = 8};
    assert_refused(mha_split_check(&split, &error), MHA_UNSUPPORTED, error, "absorbed", "kv_rank");
    mha_layer_destroy(layer), mha_layer_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests_name("latent attention", tests, NULL, NULL);
}
