/* The key/value cache: prefill and decode, chunks, eviction by window, refusals; rotation without attention. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/callers.h"
#include "support/compare.h"
#include "support/failing.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/rotate.h"
#include "support/stages.h"

enum { T = 23, B = 2, D = 12, H = 4, G = 2, D_K = 6 };

/* A causal, rotated, grouped layer and one long input; `whole` is its forward in one piece. */
typedef struct fixture {
    mha_params *table;
    mha_layer *layer;
    float x[B * T * D], whole[B * T * D];
    void *workspace;
} fixture;

enum { WORKSPACE = 1 << 20 };

static mha_call call_of(const fixture *f, size_t from, size_t rows, mha_path path)
{
    union {
        const float *in;
        void *out;
    } x = {f->x};
    mha_view all = mha_view_of(x.out, MHA_F32, 3, (size_t[]){B, T, D});
    return (mha_call){.query = mha_view_slice(&all, 1, from, rows), .path = path,
                      .semantics = {.visible.causal = true, .qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT}}};
}

/* Runs rows [from, from + rows) and puts their output at its place in `out` (B, T, D). */
static void run(fixture *f, mha_call *call, size_t from, float *out)
{
    mha_error error;
    mha_view all = mha_view_of(out, MHA_F32, 3, (size_t[]){B, T, D});
    call->output = mha_view_slice(&all, 1, from, call->query.shape[1]);
    assert_ok(mha_run(f->layer, call, &error), error);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    mha_config config = {
        .d_model = D, .n_heads = H, .kv_heads = G, .d_k = D_K, .bias_q = true, .bias_k = true, .bias_v = true};
    f->workspace = malloc(WORKSPACE);
    *state = f;
    if (mha_params_create(NULL, &f->table, NULL) || mha_layer_create(&config, f->table, "", &f->layer, NULL))
        return -1;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        mha_tensor *tensor = mha_layer_weight(f->layer, (mha_weight)w);
        for (size_t e = 0; tensor && e < mha_tensor_info_of(tensor).elements; e++)
            ((float *)mha_tensor_info_of(tensor).data)[e] = 0.5f * sinf((float)(e * 7 + (size_t)w));
    }
    for (size_t e = 0; e < B * T * D; e++)
        f->x[e] = cosf((float)(e * e % 1009));
    mha_call call = call_of(f, 0, T, MHA_PATH_EXACT);
    run(f, &call, 0, f->whole);
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    mha_layer_destroy(f->layer);
    mha_params_destroy(f->table);
    free(f->workspace);
    free(f);
    guard_release_all();
    return 0;
}

static mha_cache *make_cache(size_t capacity, size_t window, mha_dtype dtype)
{
    mha_cache *cache;
    mha_error error;
    const mha_allocator allocator = guard_allocator(GUARD_AFTER);
    mha_cache_spec spec = {
        .batch = B, .kv_heads = G, .d_k = D_K, .d_v = D_K, .capacity = capacity, .window = window, .dtype = dtype};
    assert_ok(mha_cache_create(&spec, &allocator, &cache, &error), error);
    return cache;
}

/* Float rounding of sums of up to 23 terms of size one, carried through two projections; found: 2e-6. */
static const double float_error = 2e-5;

static void assert_near(const float *a, const float *b, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance))
            fail_msg("element %zu: %.9g and %.9g", i, (double)a[i], (double)b[i]);
}

/* The whole at once, a prefill and single steps, chunks of every size: the same rows. On the exact path, with a
 * float64 cache, to the last bit: each row's sums are the same sums. */
static void chunks_with_a_cache_give_the_rows_of_the_whole(void **state)
{
    fixture *f = *state;
    for (int p = MHA_PATH_AUTO; p <= MHA_PATH_EXACT; p++)
        for (size_t chunk = 1; chunk <= T; chunk += chunk < 6 ? 1 : 8) {
            float out[B * T * D];
            mha_error error;
            mha_plan plan;
            mha_cache *cache = make_cache(T, 0, p == MHA_PATH_EXACT ? MHA_F64 : MHA_F32);
            for (size_t from = 0; from < T; from += chunk) {
                size_t rows = T - from < chunk ? T - from : chunk;
                mha_call call = call_of(f, from, rows, (mha_path)p);
                call.cache = cache;
                if (p == MHA_PATH_FAST && mha_plan_call(f->layer, &call, &plan, &error) == MHA_UNSUPPORTED)
                    break;
                run(f, &call, from, out);
                assert_int_equal(mha_cache_length(cache), from + rows);
                assert_int_equal(mha_cache_first(cache), 0);
            }
            if (p == MHA_PATH_EXACT)
                assert_memory_equal(out, f->whole, sizeof out);
            else if (mha_cache_length(cache) == T)
                assert_near(out, f->whole, B * T * D, float_error);
            mha_cache_destroy(cache);
        }
}

/* A draft that was not accepted: its rows are forgotten, the next ones take their place. */
static void truncated_rows_are_as_if_never_appended(void **state)
{
    fixture *f = *state;
    for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
        float out[B * T * D], wrong[B * T * D];
        mha_cache *cache = make_cache(T, 0, p == MHA_PATH_EXACT ? MHA_F64 : MHA_F32);
        mha_call call = call_of(f, 0, 10, (mha_path)p);
        call.cache = cache;
        run(f, &call, 0, out);
        call = call_of(f, 3, 5, (mha_path)p); /* rows that do not belong there */
        call.cache = cache;
        run(f, &call, 10, wrong);
        assert_int_equal(mha_cache_length(cache), 15);
        mha_cache_truncate(cache, 20);
        assert_int_equal(mha_cache_length(cache), 15);
        mha_cache_truncate(cache, 10);
        assert_int_equal(mha_cache_length(cache), 10);
        call = call_of(f, 10, T - 10, (mha_path)p);
        call.cache = cache;
        run(f, &call, 10, out);
        assert_near(out, f->whole, B * T * D, float_error);
        mha_cache_destroy(cache);
    }
}

/* Every stage that takes time says how much; the others say 0. */
static void stages_take_time(void **state)
{
    fixture *f = *state;
    float out[B * T * D];
    for (int p = MHA_PATH_FAST; p <= MHA_PATH_BLAS; p++) {
        double total = 0;
        mha_call call = call_of(f, 0, T, (mha_path)p);
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            list[s].ms = -1;
        run(f, &call, 0, out);
        static const mha_stage timed[] = {MHA_STAGE_Q,     MHA_STAGE_K,     MHA_STAGE_V,     MHA_STAGE_Q_ROT,
                                          MHA_STAGE_K_ROT, MHA_STAGE_HEADS, MHA_STAGE_OUTPUT};
        for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) {
            assert_true(list[timed[i]].ms >= 0 && list[timed[i]].ms < 60000);
            total += list[timed[i]].ms;
        }
        assert_true(total > 0);
        assert_true(list[MHA_STAGE_SCORES].ms == 0 && list[MHA_STAGE_WEIGHTS].ms == 0);
    }
}

/* The rows of Q, K and V come out of one product: its time is shared out whole. Here it is all but the time of the
 * call, with two elements to each of them; what else the machine does makes shares smaller, never larger. */
static void the_time_of_a_shared_product_is_shared_out(void **state)
{
    (void)state;
    enum { WIDE = 1 << 18, TRIES = 200 };
    mha_params *table;
    mha_layer *layer;
    mha_error error;
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    const mha_config config = {.d_model = WIDE, .n_heads = 1, .d_k = 2, .d_v = 2, .d_out = 1};
    assert_ok(mha_layer_create(&config, table, NULL, &layer, &error), error);
    mha_layer_init(layer, 1);
    assert_ok(mha_layer_pack(layer, &error), error);
    float *x = calloc(WIDE, sizeof *x), y;
    double best = 0;
    mha_keep list[] = {{.stage = MHA_STAGE_Q}, {.stage = MHA_STAGE_K}, {.stage = MHA_STAGE_V}};
    mha_call call = {.query = mha_view_of(x, MHA_F32, 3, (size_t[]){1, 1, WIDE}), .path = MHA_PATH_FAST, .threads = 1,
                     .keep = list, .keep_count = 3};
    call.output = mha_view_of(&y, MHA_F32, 3, (size_t[]){1, 1, 1});
    mha_plan plan;
    assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
    void *workspace = malloc(plan.workspace_bytes);
    for (int i = 0; i < TRIES && best < 0.9; i++) {
        const double from = now();
        assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
        const double taken = 1000 * (now() - from), share = (list[0].ms + list[1].ms + list[2].ms) / taken;
        assert_true(share <= 1);
        best = share > best ? share : best;
    }
    assert_true(best >= 0.9);
    free(workspace);
    free(x);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

/* present_key and present_value show the rows of the cache, which equal those of a forward without one. */
static void a_cache_holds_what_the_stages_show(void **state)
{
    fixture *f = *state;
    for (int p = MHA_PATH_BLAS; p <= MHA_PATH_EXACT; p++) {
        double keys[B * G * T * D_K], values[B * G * T * D_K], other_keys[B * G * T * D_K],
            other_values[B * G * T * D_K];
        const size_t shape[4] = {B, G, T, D_K};
        char text[300];
        mha_error error;
        mha_cache *cache = make_cache(T + 3, 0, p == MHA_PATH_EXACT ? MHA_F64 : MHA_F32);
        mha_call call = call_of(f, 0, T, (mha_path)p);
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        *stage_view(&call, MHA_STAGE_PRESENT_KEY) = mha_view_of(keys, MHA_F64, 4, shape);
        *stage_view(&call, MHA_STAGE_PRESENT_VALUE) = mha_view_of(values, MHA_F64, 4, shape);
        assert_ok(mha_run(f->layer, &call, &error), error);
        mha_call cached = call;
        mha_keep other_list[MHA_STAGE_COUNT];
        stages_list(&cached, other_list);
        cached.cache = cache;
        stage_view(&cached, MHA_STAGE_PRESENT_KEY)->data = other_keys,
                            stage_view(&cached, MHA_STAGE_PRESENT_VALUE)->data = other_values;
        assert_ok(mha_run(f->layer, &cached, &error), error);
        assert_memory_equal(keys, other_keys, sizeof keys);
        assert_memory_equal(values, other_values, sizeof values);
        mha_view held = mha_cache_keys(cache), held_values = mha_cache_values(cache);
        assert_true(compare_bits("keys", &held, stage_view(&call, MHA_STAGE_PRESENT_KEY), text, sizeof text));
        assert_true(
            compare_bits("values", &held_values, stage_view(&call, MHA_STAGE_PRESENT_VALUE), text, sizeof text));
        mha_cache_clear(cache);
        assert_int_equal(mha_cache_length(cache), 0);
        assert_int_equal(mha_cache_keys(cache).shape[2], 0);
        mha_cache_destroy(cache);
    }
}

/* A window that the mask enforces and a cache that evicts beyond it: the rows of a forward in one piece. Rotation,
 * causality and ALiBi go by position, so rows that were evicted still count. */
static void eviction_by_window_changes_nothing_the_window_shows(void **state)
{
    fixture *f = *state;
    static const double slopes[H] = {0.5, 0.25, 0.1, 0};
    enum { LEFT = 4 };
    for (int p = MHA_PATH_BLAS; p <= MHA_PATH_EXACT; p++)
        for (size_t capacity = LEFT + 3; capacity < T; capacity += 5)
            for (size_t chunk = 1; chunk <= 3; chunk++) {
                float out[B * T * D], whole[B * T * D];
                size_t evicted = 0;
                mha_call all = call_of(f, 0, T, (mha_path)p);
                all.semantics.visible.has_window_left = true, all.semantics.visible.window_left = LEFT;
                all.semantics.added.alibi_slopes = slopes;
                run(f, &all, 0, whole);
                mha_cache *cache = make_cache(capacity, LEFT, p == MHA_PATH_EXACT ? MHA_F64 : MHA_F32);
                for (size_t from = 0; from < T; from += chunk) {
                    mha_call call = call_of(f, from, T - from < chunk ? T - from : chunk, (mha_path)p);
                    call.semantics = all.semantics;
                    call.cache = cache;
                    run(f, &call, from, out);
                    assert_true(mha_cache_length(cache) <= capacity);
                    assert_true(mha_cache_first(cache) >= evicted);
                    evicted = mha_cache_first(cache);
                    assert_int_equal(evicted + mha_cache_length(cache), from + call.query.shape[1]);
                }
                assert_true(evicted > 0);
                if (p == MHA_PATH_EXACT)
                    assert_memory_equal(out, whole, sizeof out);
                else
                    assert_near(out, whole, B * T * D, float_error);
                mha_cache_destroy(cache);
            }
}

/* The last rows stay after an eviction, moved to the front. */
static void eviction_keeps_the_last_rows(void **state)
{
    fixture *f = *state;
    mha_error error;
    mha_plan plan;
    mha_cache *cache = make_cache(8, 3, MHA_F32);
    float keys[B * G * 7 * D_K], values[B * G * 7 * D_K], before[B * G * 8 * D_K];
    for (size_t e = 0; e < B * G * 7 * D_K; e++)
        keys[e] = (float)e, values[e] = -(float)e;
    const size_t seven[4] = {B, G, 7, D_K};
    mha_view k = mha_view_of(keys, MHA_F32, 4, seven), v = mha_view_of(values, MHA_F32, 4, seven);
    assert_ok(mha_cache_load(cache, &k, &v, &error), error);
    mha_call call = call_of(f, 7, 1, MHA_PATH_BLAS);
    call.cache = cache;
    assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
    assert_int_equal(plan.S, 8); /* there is room: nothing goes */
    call = call_of(f, 7, 2, MHA_PATH_BLAS);
    call.cache = cache;
    assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
    assert_int_equal(plan.S, 5); /* three stay, two come */
    mha_keep list[MHA_STAGE_COUNT];
    stages_list(&call, list);
    *stage_view(&call, MHA_STAGE_PRESENT_KEY) = mha_view_of(before, MHA_F32, 4, (size_t[]){B, G, 5, D_K});
    assert_ok(mha_run(f->layer, &call, &error), error);
    assert_int_equal(mha_cache_length(cache), 5);
    assert_int_equal(mha_cache_first(cache), 4);
    mha_view held = mha_cache_keys(cache), held_values = mha_cache_values(cache);
    for (size_t b = 0; b < B; b++)
        for (size_t g = 0; g < G; g++)
            for (size_t j = 0; j < 3; j++)
                for (size_t c = 0; c < D_K; c++) {
                    double expected = (double)(((b * G + g) * 7 + 4 + j) * D_K + c);
                    assert_true(oracle_get(&held, b, g, j, c) == expected);
                    assert_true(oracle_get(&held_values, b, g, j, c) == -expected);
                    assert_true(oracle_get(stage_view(&call, MHA_STAGE_PRESENT_KEY), b, g, j, c) == expected);
                }
    /* A whole capacity's worth of rows: the window itself must go too, or the call be refused. */
    call = call_of(f, 0, 6, MHA_PATH_BLAS);
    call.cache = cache;
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "8", "6");
    assert_int_equal(mha_cache_length(cache), 5);
    mha_cache_destroy(cache);
}

static void caches_are_made_of_what_they_are_told(void **state)
{
    (void)state;
    mha_error error;
    mha_cache *cache = NULL;
    static const struct {
        mha_cache_spec spec;
        const char *word;
    } bad[] = {
        {{.batch = 1, .kv_heads = 1, .d_k = 1, .d_v = 1, .capacity = 4, .window = 5}, "window"},
        {{.batch = 1, .kv_heads = 1, .d_k = 1, .d_v = 1, .capacity = 4, .dtype = MHA_I32}, "I32"},
        {{.batch = 1, .kv_heads = 1, .d_k = 1, .d_v = 1, .capacity = 4, .dtype = MHA_Q4_0}, "Q4_0"},
        {{.batch = SIZE_MAX / 2, .kv_heads = 3, .d_k = 1, .d_v = 1, .capacity = 4}, "size"},
        {{.batch = 1, .kv_heads = 1, .d_k = 1, .d_v = SIZE_MAX / 4, .capacity = 4}, "size"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(mha_cache_create(&bad[i].spec, NULL, &cache, &error), MHA_INVALID, error, bad[i].word);
    assert_null(cache);
    size_t points = 0;
    for (size_t n = 1;; n++, points++) {
        failing memory = {.fail_at = n};
        mha_allocator allocator = failing_allocator(&memory);
        mha_cache_spec spec = {.batch = 2, .kv_heads = 3, .d_k = 5, .d_v = 7, .capacity = 11, .dtype = MHA_F64};
        mha_status status = mha_cache_create(&spec, &allocator, &cache, &error);
        if (status == MHA_OK) {
            assert_int_equal(mha_cache_bytes(cache), 2 * 3 * 11 * (5 + 7) * 8);
            assert_true(memory.live_bytes >= mha_cache_bytes(cache));
            mha_cache_destroy(cache);
        } else
            assert_refused(status, MHA_NO_MEMORY, error, "cache");
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.bugs, 0);
        if (status == MHA_OK)
            break;
    }
    assert_int_equal(points, 3);
    mha_cache_destroy(NULL);
}

/* Loading converts any plain float, from any strides; what does not fit leaves the cache as it was. */
static void loading_replaces_all_or_nothing(void **state)
{
    (void)state;
    mha_error error;
    mha_cache *cache = make_cache(4, 0, MHA_F32);
    uint16_t half[B * G * 3 * D_K];
    double wide[B * G * 3 * D_K];
    float block[B * G * 5 * D_K];
    unsigned char quantised[B * G * 3 * D_K] = {0};
    for (size_t e = 0; e < B * G * 3 * D_K; e++)
        half[e] = mha__f32_to_f16((float)e / 4), wide[e] = -(double)e;
    memset(block, 0, sizeof block);
    mha_view keys = {
        .data = half, .dtype = MHA_F16, .rank = 4, .shape = {B, G, 3, D_K}, .stride = {G * 3 * D_K, 3 * D_K, 1, 3}};
    mha_view values = mha_view_of(wide, MHA_F64, 4, (size_t[]){B, G, 3, D_K});
    assert_ok(mha_cache_load(cache, &keys, &values, &error), error);
    const mha_view bad[] = {
        mha_view_of(block, MHA_F32, 4, (size_t[]){B, G, 5, D_K}),
        mha_view_of(block, MHA_F32, 4, (size_t[]){B, G, 3, D_K - 1}),
        mha_view_of(block, MHA_F32, 4, (size_t[]){1, G, 3, D_K}),
        mha_view_of(block, MHA_F32, 4, (size_t[]){B, 1, 3, D_K}),
        mha_view_of(block, MHA_F32, 3, (size_t[]){B * G, 3, D_K}),
        mha_view_of(quantised, MHA_Q8_0, 4, (size_t[]){B, G, 3, D_K}),
        mha_view_of(block, MHA_F32, 4, (size_t[]){B, G, 2, D_K}),
    };
    mha_view fine = mha_view_of(block, MHA_F32, 4, (size_t[]){B, G, 3, D_K});
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int which = 0; which < 2; which++) {
            mha_status status = mha_cache_load(cache, which ? &bad[i] : &fine, which ? &fine : &bad[i], &error);
            assert_true(status == MHA_INVALID || status == MHA_UNSUPPORTED);
            assert_int_equal(mha_cache_length(cache), 3);
            mha_view k = mha_cache_keys(cache), v = mha_cache_values(cache);
            for (size_t b = 0; b < B; b++)
                for (size_t g = 0; g < G; g++)
                    for (size_t j = 0; j < 3; j++)
                        for (size_t c = 0; c < D_K; c++) {
                            size_t e = (b * G + g) * 3 * D_K;
                            assert_true(oracle_get(&k, b, g, j, c) == (double)(e + c * 3 + j) / 4);
                            assert_true(oracle_get(&v, b, g, j, c) == -(double)(e + j * D_K + c));
                        }
        }
    mha_cache_destroy(cache);
}

/* ---------------------------------------------------------------- rotation without attention */

static void rotation_alone_is_the_rotation_of_the_forward(void **state)
{
    (void)state;
    mha_error error;
    for (int kind = 1; kind <= 2; kind++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (int exact = dtype; exact < 2; exact++) { /* float64 is for the exact path */
                enum { ROWS = 5, WIDTH = 7, DIM = 6 };
                double x64[2 * ROWS * 3 * WIDTH], y64[2 * ROWS * 3 * WIDTH];
                float x32[2 * ROWS * 3 * WIDTH], y32[2 * ROWS * 3 * WIDTH];
                for (size_t e = 0; e < 2 * ROWS * 3 * WIDTH; e++)
                    x32[e] = sinf((float)e), x64[e] = (double)x32[e];
                const size_t shape[4] = {2, ROWS, 3, WIDTH};
                mha_view x = mha_view_of(dtype ? (void *)x64 : x32, dtype ? MHA_F64 : MHA_F32, 4, shape);
                mha_view y = mha_view_of(dtype ? (void *)y64 : y32, x.dtype, 4, shape);
                double kept[2 * ROWS * 3 * WIDTH];
                for (size_t e = 0; e < 2 * ROWS * 3 * WIDTH; e++)
                    kept[e] = (double)x32[e];
                mha_rope rope = {.kind = (mha_rope_kind)kind, .dim = DIM, .base = 100};
                assert_ok(rotate_alone(&x, &rope, 3, exact ? MHA_PATH_EXACT : MHA_PATH_BLAS, &y, &error), error);
                for (size_t row = 0; row < 2 * ROWS * 3; row++)
                    for (size_t i = 0; i < WIDTH; i++) {
                        size_t b = row / 3 / ROWS, t = row / 3 % ROWS, h = row % 3, pair = kind == 1 ? i / 2 : i % 3;
                        size_t one = kind == 1 ? 2 * pair : pair, two = kind == 1 ? 2 * pair + 1 : pair + 3;
                        double a = (double)(3 + t) * pow(100, -2.0 * (double)pair / DIM),
                               expected = kept[row * WIDTH + i];
                        if (i < DIM) {
                            double x1 = kept[row * WIDTH + one], x2 = kept[row * WIDTH + two];
                            expected = i == one ? x1 * cos(a) - x2 * sin(a) : x2 * cos(a) + x1 * sin(a);
                        }
                        double unit = exact && dtype ? 0x1p-52 : 0x1p-23;
                        assert_true(fabs(oracle_get(&y, b, t, h, i) - expected) <= 6 * unit);
                    }
            }
}

/* Tables looked up by position, or one row for each token, of every batch row or of all: the same rotation. */
static void tables_and_positions_say_where_rows_stand(void **state)
{
    (void)state;
    enum { ROWS = 4, DIM = 6, FAR = 12 };
    static int64_t positions[2][ROWS] = {{3, 0, 11, 5}, {7, 7, 1, 2}};
    double x[2 * ROWS * DIM], y[2 * ROWS * DIM], cosines[FAR][DIM / 2], sines[FAR][DIM / 2];
    double row_cos[2][ROWS][DIM / 2], row_sin[2][ROWS][DIM / 2];
    mha_error error;
    for (size_t e = 0; e < 2 * ROWS * DIM; e++)
        x[e] = sin((double)e + 1);
    for (size_t p = 0; p < FAR; p++)
        for (size_t i = 0; i < DIM / 2; i++)
            cosines[p][i] = cos((double)(p * 3 + i)), sines[p][i] = sin((double)(p * 3 + i));
    const size_t shape[4] = {2, ROWS, 1, DIM};
    mha_view vx = mha_view_of(x, MHA_F64, 4, shape), vy = mha_view_of(y, MHA_F64, 4, shape);
    for (int by_row = 0; by_row < 2; by_row++)
        for (size_t batch = 1; batch <= 2; batch++) { /* one row of positions or tables for all, or each its own */
            mha_rope rope = {.kind = MHA_ROPE_HALF_SPLIT};
            for (size_t e = 0; e < 2 * ROWS * (DIM / 2); e++) {
                size_t b = e / (ROWS * (DIM / 2)), t = e / (DIM / 2) % ROWS, i = e % (DIM / 2);
                row_cos[b][t][i] = cosines[positions[b][t]][i], row_sin[b][t][i] = sines[positions[b][t]][i];
            }
            if (by_row) {
                rope.cos_table = mha_view_of(row_cos, MHA_F64, 3, (size_t[]){batch, ROWS, DIM / 2});
                rope.sin_table = mha_view_of(row_sin, MHA_F64, 3, (size_t[]){batch, ROWS, DIM / 2});
            } else {
                rope.cos_table = mha_view_of(cosines, MHA_F64, 2, (size_t[]){FAR, DIM / 2});
                rope.sin_table = mha_view_of(sines, MHA_F64, 2, (size_t[]){FAR, DIM / 2});
                rope.q_positions = mha_view_of(positions, MHA_I64, 2, (size_t[]){batch, ROWS});
            }
            assert_ok(rotate_alone(&vx, &rope, 1000, MHA_PATH_EXACT, &vy, &error), error);
            for (size_t b = 0; b < 2; b++)
                for (size_t t = 0; t < ROWS; t++)
                    for (size_t i = 0; i < DIM / 2; i++) {
                        int64_t p = positions[batch == 1 ? 0 : b][t];
                        const double *one = &x[(b * ROWS + t) * DIM], *found = &y[(b * ROWS + t) * DIM];
                        assert_true(found[i] == one[i] * cosines[p][i] - one[i + 3] * sines[p][i]);
                        assert_true(found[i + 3] == one[i + 3] * cosines[p][i] + one[i] * sines[p][i]);
                    }
            rope.cos_table.shape[0]++; /* no longer as the sines */
            assert_refused(rotate_alone(&vx, &rope, 0, MHA_PATH_EXACT, &vy, &error), MHA_INVALID, error, "tables");
        }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(chunks_with_a_cache_give_the_rows_of_the_whole),
        TEST(truncated_rows_are_as_if_never_appended),
        TEST(stages_take_time),
        TEST(the_time_of_a_shared_product_is_shared_out),
        TEST(a_cache_holds_what_the_stages_show),
        TEST(eviction_by_window_changes_nothing_the_window_shows),
        TEST(eviction_keeps_the_last_rows),
        TEST(caches_are_made_of_what_they_are_told),
        TEST(loading_replaces_all_or_nothing),
        cmocka_unit_test(rotation_alone_is_the_rotation_of_the_forward),
        cmocka_unit_test(tables_and_positions_say_where_rows_stand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
