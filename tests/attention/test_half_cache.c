/* Caches of 16 and 8 bits, weights of 16: every path gives the bits it gives for floats of the same values, rows are
 * rounded to nearest even when they are appended, and half of the memory, or a quarter, is taken. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/call.h"
#include "support/isa.h"
#include "support/unit.h"
#include "support/stages.h"

static const mha_dtype halves[] = {MHA_F16, MHA_BF16}, narrow[] = {MHA_F16, MHA_BF16, MHA_I8};
static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_FAST};

#define FOR_HALVES_AND_PATHS                                                                                           \
    (void)state;                                                                                                       \
    for (size_t d = 0; d < 2; d++)                                                                                     \
        for (size_t p = 0; p < 3; p++)

/* The nearest number of 16 bits. */
static float rounded(float x, mha_dtype dtype)
{
    return dtype == MHA_F16 ? mha__f16_to_f32(mha__f32_to_f16(x)) : mha__bf16_to_f32(mha__f32_to_bf16(x));
}

/* Rows as a narrow type holds them. Of 8 bits: as defined, in double arithmetic but for the roundings that are named;
 * no code stands for -0. */
static void round_rows(float *x, size_t rows, size_t d, mha_dtype dtype)
{
    for (size_t i = 0; i < rows * d && dtype != MHA_I8 && dtype != MHA_F32; i++)
        x[i] = rounded(x[i], dtype);
    for (size_t row = 0; row < rows && dtype == MHA_I8; row++, x += d) {
        double most = 0;
        bool finite = true;
        for (size_t i = 0; i < d; i++)
            finite &= isfinite(x[i]) != 0, most = fmax(most, fabs((double)x[i]));
        const float scale = (float)(most / 127);
        for (size_t i = 0; i < d; i++)
            x[i] = !finite ? NAN
                   : scale == 0
                       ? 0
                       : (float)(scale * (0.0 + fmin(127, fmax(-127, nearbyint((float)((double)x[i] / scale))))));
    }
}

static float *floats(size_t n, uint64_t stream, mha_dtype representable)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = 4.0f * mha__random_unit(5, stream, i) - 2.0f;
        if (representable != MHA_F32)
            x[i] = rounded(x[i], representable);
    }
    return x;
}

/* ---------------------------------------------------------------- a cache of either kind */

/* Attention without a layer: `past` rows are loaded, then `new` queries and keys come at a time. */
typedef struct problem {
    size_t B, h, h_kv, d_k, d_v, past, new, steps, window; /* window: of the cache */
    mha_semantics semantics;
    bool keeps_weights, poison;
    int threads;
} problem;

enum { MOST = 1 << 20 };

/* Everything the steps put out, one after the other; the number of floats is returned. */
static size_t run(const problem *p, mha_path path, mha_dtype cache_dtype, mha_dtype values_are, float *out)
{
    mha_error error;
    mha_cache *cache;
    const size_t S = p->past + p->new * p->steps;
    const mha_cache_spec spec = {.batch = p->B,
                                 .kv_heads = p->h_kv,
                                 .d_k = p->d_k,
                                 .d_v = p->d_v,
                                 .capacity = p->window ? p->window + p->new : S,
                                 .window = p->window,
                                 .dtype = cache_dtype};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    float *K = floats(p->B * p->h_kv * S * p->d_k, 1, MHA_F32), *V = floats(p->B * p->h_kv * S * p->d_v, 2, MHA_F32);
    float *Q = floats(p->B * p->new * p->steps * p->h * p->d_k, 3, MHA_F32);
    for (size_t b = 0; b < p->B * p->h_kv && p->poison; b++) {
        V[(b * S + S - 1) * p->d_v] = NAN; /* hidden from all but the last query when causal */
        V[(b * S + p->past / 2) * p->d_v + p->d_v - 1] = INFINITY;
    }
    round_rows(K, p->B * p->h_kv * S, p->d_k, values_are);
    round_rows(V, p->B * p->h_kv * S, p->d_v, values_are);
    const mha_view all_k = mha_view_of(K, MHA_F32, 4, (size_t[]){p->B, p->h_kv, S, p->d_k}),
                   all_v = mha_view_of(V, MHA_F32, 4, (size_t[]){p->B, p->h_kv, S, p->d_v}),
                   all_q = mha_view_of(Q, MHA_F32, 4, (size_t[]){p->B, p->new * p->steps, p->h, p->d_k});
    if (p->past) {
        const mha_view k = mha_view_slice(&all_k, 2, 0, p->past), v = mha_view_slice(&all_v, 2, 0, p->past);
        assert_ok(mha_cache_load(cache, &k, &v, &error), error);
    }
    size_t n = 0;
    for (size_t step = 0; step < p->steps; step++) {
        const size_t from = p->past + step * p->new;
        mha_call call = {.query = mha_view_slice(&all_q, 1, step * p->new, p->new),
                         .key = mha_view_slice(&all_k, 2, from, p->new),
                         .value = mha_view_slice(&all_v, 2, from, p->new),
                         .semantics = p->semantics,
                         .cache = cache,
                         .path = path,
                         .threads = p->threads};
        mha_view *const turned[] = {&call.key, &call.value}; /* (B, h, T, d) as (B, T, h, d) */
        for (size_t i = 0; i < 2; i++) {
            const size_t T = turned[i]->shape[2];
            const ptrdiff_t stride = turned[i]->stride[2];
            turned[i]->shape[2] = turned[i]->shape[1], turned[i]->stride[2] = turned[i]->stride[1];
            turned[i]->shape[1] = T, turned[i]->stride[1] = stride;
        }
        mha_plan plan;
        assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        const mha_stage stages[] = {MHA_STAGE_OUTPUT, MHA_STAGE_LSE, MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE,
                                    MHA_STAGE_WEIGHTS};
        for (size_t i = 0; i < (p->keeps_weights ? 5 : 4); i++) {
            mha_view *view = stage_view(&call, stages[i]);
            *view = stage_of_plan(&plan, stages[i], out + n, MHA_F32);
            n += mha_view_elements(view);
            assert_true(n <= MOST);
        }
        plan = run_call(NULL, &call);
        assert_true(plan.path == path || p->semantics.softmax.hidden_values == MHA_HIDDEN_PROPAGATE);
    }
    assert_int_equal(mha_cache_keys(cache).dtype, cache_dtype);
    mha_cache_destroy(cache);
    free(K);
    free(V);
    free(Q);
    return n;
}

static void assert_same_bits(const problem *p, const char *what)
{
    float *wanted = malloc(MOST * sizeof *wanted), *found = malloc(MOST * sizeof *found);
    for (size_t d = 0; d < 3; d++)
        for (size_t path = 0; path < 3; path++) {
            const size_t n = run(p, paths[path], MHA_F32, narrow[d], wanted);
            assert_int_equal(run(p, paths[path], narrow[d], MHA_F32, found), n);
            bool some = false;
            for (size_t i = 0; i < n; i++) {
                some |= isfinite(wanted[i]) && wanted[i] != 0.0f;
                if (memcmp(&wanted[i], &found[i], sizeof *wanted) != 0 && !(isnan(wanted[i]) && isnan(found[i])))
                    fail_msg("%s, %s, %s, %s: number %zu is %.9g with floats, %.9g", what, mha_dtype_name(narrow[d]),
                             mha_path_name(paths[path]), mha_isa(), i, (double)wanted[i], (double)found[i]);
            }
            assert_true(some);
        }
    free(wanted);
    free(found);
}

static void one_query_at_a_time(void **state)
{
    FOR_EACH_ISA {
        assert_same_bits(
            &(problem){.B = 2, .h = 4, .h_kv = 4, .d_k = 16, .d_v = 16, .past = 40, .new = 1, .steps = 3, .threads = 1},
            "plain");
        assert_same_bits(
            &(problem){
                .B = 1, .h = 6, .h_kv = 2, .d_k = 40, .d_v = 48, .past = 300, .new = 1, .steps = 2, .threads = 2},
            "grouped");
        assert_same_bits(
            &(problem){.B = 1, .h = 3, .h_kv = 1, .d_k = 7, .d_v = 5, .past = 1100, .new = 1, .steps = 2, .threads = 3},
            "odd widths, two segments");
        assert_same_bits(
            &(problem){.B = 1, .h = 2, .h_kv = 2, .d_k = 35, .d_v = 33, .past = 70, .new = 1, .steps = 2, .threads = 1},
            "rows that begin between words");
        problem window = {
            .B = 1, .h = 2, .h_kv = 1, .d_k = 32, .d_v = 32, .past = 300, .new = 1, .steps = 3, .threads = 1};
        window.semantics.visible.has_window_right = true, window.semantics.visible.window_left = 60;
        assert_same_bits(&window, "the last of many");
    }
}

static void many_queries_at_a_time(void **state)
{
    FOR_EACH_ISA {
        assert_same_bits(
            &(problem){.B = 1, .h = 2, .h_kv = 2, .d_k = 32, .d_v = 32, .new = 70, .steps = 2, .threads = 1},
            "prefill in two");
        assert_same_bits(&(problem){.B = 2,
                                    .h = 4,
                                    .h_kv = 2,
                                    .d_k = 24,
                                    .d_v = 20,
                                    .past = 33,
                                    .new = 45,
                                    .steps = 1,
                                    .threads = 2,
                                    .semantics.visible.causal = true},
                         "causal");
        assert_same_bits(
            &(problem){
                .B = 1, .h = 2, .h_kv = 1, .d_k = 300, .d_v = 260, .past = 100, .new = 9, .steps = 1, .threads = 1},
            "wide heads");
    }
}

static void everything_that_hides_keys(void **state)
{
    (void)state;
    const int64_t lengths[] = {30, 61};
    uint8_t keeps[61];
    for (size_t i = 0; i < sizeof keeps; i++)
        keeps[i] = i % 5 != 2;
    const problem plain = {
        .B = 2, .h = 4, .h_kv = 2, .d_k = 16, .d_v = 16, .past = 40, .new = 21, .steps = 1, .threads = 1};
    problem p = plain;
    p.semantics.visible.window_left = 11, p.semantics.visible.window_right = 3;
    assert_same_bits(&p, "window");
    p = plain;
    p.semantics.visible.kv_lengths = lengths;
    assert_same_bits(&p, "lengths");
    p = plain;
    p.semantics.visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(keeps, MHA_BOOL, 1, (size_t[]){61})};
    assert_same_bits(&p, "mask");
    p.poison = true;
    assert_same_bits(&p, "mask and poison");
    p = plain;
    p.semantics.visible.causal = true, p.poison = true;
    assert_same_bits(&p, "causal and poison");
    p.new = 1, p.steps = 21;
    assert_same_bits(&p, "causal and poison, step by step");
    p = plain;
    p.poison = true, p.semantics.visible.causal = true, p.semantics.softmax.hidden_values = MHA_HIDDEN_PROPAGATE;
    assert_same_bits(&p, "hidden values propagate");
    p = plain;
    p.keeps_weights = true, p.semantics.softmax.softcap = 3, p.semantics.softmax.zero_row = true,
    p.semantics.softmax.softmax_plus_one = true;
    assert_same_bits(&p, "kept weights, cap, extra row");
    p = plain;
    p.window = 40, p.new = 7, p.steps = 4, p.semantics.visible.causal = true;
    assert_same_bits(&p, "evicting cache");
}

/* ---------------------------------------------------------------- rounding, memory, refusals */

static void appended_rows_are_rounded_to_nearest_even(void **state)
{
    /* Halfway to an even and to an odd neighbour, the edge of overflow, subnormal numbers, a number that vanishes. */
    static const float x[] = {0x1.002p0f, 0x1.006p0f, 65519.0f, 65520.0f, -65520.0f, 0x1.8p-25f, 0x1p-25f, 3.1e-7f,
                              0x1.01p0f,  0x1.03p0f,  3.3961775e38f, -0.0f, 1e-40f, -2.7182818f, NAN, INFINITY};
    enum { N = sizeof x / sizeof *x };
    static const float f16[] = {0x1p0f, 0x1.008p0f, 65504.0f, INFINITY, -INFINITY, 0x1p-24f, 0.0f, 0x1.4p-22f,
                                0x1.01p0f, 0x1.03p0f, INFINITY, -0.0f, 0.0f, -0x1.5cp1f, NAN, INFINITY};
    static const float bf16[] = {0x1p0f, 0x1p0f, 65536.0f, 65536.0f, -65536.0f, 0x1.8p-25f, 0x1p-25f, 0x1.4cp-22f,
                                 0x1p0f, 0x1.04p0f, INFINITY, -0.0f, 0x1p-133f, -0x1.5cp1f, NAN, INFINITY};
    FOR_HALVES_AND_PATHS {
        mha_error error;
        mha_cache *cache;
        const mha_cache_spec spec = {.batch = 1, .kv_heads = 1, .d_k = N, .d_v = N, .capacity = 2, .dtype = halves[d]};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        float row[N], out[N];
        memcpy(row, x, sizeof row);
        const mha_view v = mha_view_of(row, MHA_F32, 4, (size_t[]){1, 1, 1, N});
        mha_call call = {.query = v, .key = v, .value = v, .cache = cache, .path = paths[p], .threads = 1};
        call.output = mha_view_of(out, MHA_F32, 4, (size_t[]){1, 1, 1, N});
        assert_ok(mha_run(NULL, &call, &error), error); /* appended, */
        const mha_view as_loaded = mha_view_of(row, MHA_F32, 4, (size_t[]){1, 1, 1, N});
        for (int way = 0; way < 2; way++) {
            const mha_view held[] = {mha_cache_keys(cache), mha_cache_values(cache)};
            for (size_t k = 0; k < 2; k++)
                for (size_t i = 0; i < N; i++) {
                    const float wanted = (d ? bf16 : f16)[i],
                                found = (float)mha_view_get(&held[k], (size_t[]){0, 0, 0, i});
                    if (isnan(wanted) ? !isnan(found) : found != wanted || signbit(found) != signbit(wanted))
                        fail_msg("%s: %a expected %a, found %a", mha_dtype_name(halves[d]), (double)x[i],
                                 (double)wanted, (double)found);
                }
            assert_ok(mha_cache_load(cache, &as_loaded, &as_loaded, &error), error); /* or loaded */
        }
        mha_cache_destroy(cache);
    }
}

/* Rows that go backwards, features that do, or that stand apart. */
static void loaded_rows_may_lie_anyhow(void **state)
{
    enum { H = 2, ROWS = 3, WIDTH = 5, GAP = 2 };
    static const ptrdiff_t strides[][2] = {
        {-WIDTH * GAP, 1}, {WIDTH * GAP, -1}, {WIDTH * GAP, GAP}, {-WIDTH * GAP, GAP}};
    static float x[H * ROWS * WIDTH * GAP];
    mha_view all = mha_view_of(x, MHA_F32, 1, (size_t[]){sizeof x / sizeof *x});
    mha_random_fill(&all, 1, 1, -1, 1);
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t way = 0; way < sizeof strides / sizeof *strides; way++) {
            mha_error error;
            mha_cache *cache;
            const mha_cache_spec spec = {
                .batch = 1, .kv_heads = H, .d_k = WIDTH, .d_v = WIDTH, .capacity = ROWS, .dtype = halves[d]};
            assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
            const ptrdiff_t row = strides[way][0], feature = strides[way][1];
            mha_view from = mha_view_of(x, MHA_F32, 4, (size_t[]){1, H, ROWS, WIDTH});
            float *first = x + (row < 0 ? -(ROWS - 1) * row : 0) + (feature < 0 ? WIDTH - 1 : 0);
            from.data = first;
            from.stride[1] = ROWS * WIDTH * GAP, from.stride[2] = row, from.stride[3] = feature;
            assert_ok(mha_cache_load(cache, &from, &from, &error), error);
            const mha_view held[] = {mha_cache_keys(cache), mha_cache_values(cache)};
            for (size_t k = 0; k < 2; k++)
                for (size_t h = 0; h < H; h++)
                    for (ptrdiff_t t = 0; t < ROWS; t++)
                        for (ptrdiff_t c = 0; c < WIDTH; c++) {
                            const float wanted =
                                rounded(first[(ptrdiff_t)h * from.stride[1] + t * row + c * feature], halves[d]);
                            assert_true(mha_view_get(&held[k], (size_t[]){0, h, (size_t)t, (size_t)c}) ==
                                        (double)wanted);
                        }
            mha_cache_destroy(cache);
        }
}

/* A row of 8 bits at the edges of its definition: halves between codes, the largest float, subnormal
 * scales, zeros, NaN and infinity. mha_cache_read has the numbers, in any type. */
static void rows_of_8_bits_at_their_edges(void **state)
{
    enum { N = 5 };
    static const struct {
        float x[N];
        float wanted[N];
    } rows[] = {
        {{127, 0.5f, 1.5f, -2.5f, -127}, {127, 0, 2, -2, -127}},
        {{-254, 1, 2.9f, 0, -0.0f}, {-254, 0, 2, 0, 0}},
        {{0, 0, -0.0f, 0, 0}, {0}},
        {{1, NAN, 2, 3, 4}, {NAN, NAN, NAN, NAN, NAN}},
        {{1, 0, -INFINITY, 3, 4}, {NAN, NAN, NAN, NAN, NAN}},
        {{FLT_MAX, -FLT_MAX, 1, 0, 0}, {0x1.fffffcp127f, -0x1.fffffcp127f, 0, 0, 0}},
        {{0x1p-149f * 180, -0x1p-149f * 180, 0x1p-149f, 0, 0}, {0x1p-149f * 127, -0x1p-149f * 127, 0x1p-149f, 0, 0}},
        {{0x1p-149f * 50, 0, 0, 0, 0}, {0}},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    (void)state;
    mha_error error;
    mha_cache *cache;
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 1, .d_k = N, .d_v = N, .capacity = ROWS, .dtype = MHA_I8};
    const size_t shape[4] = {1, 1, ROWS, N};
    float x[ROWS][N], y[ROWS][N];
    double wide[ROWS][N];
    for (size_t i = 0; i < ROWS; i++)
        memcpy(x[i], rows[i].x, sizeof x[i]);
    FOR_EACH_ISA
    {
        for (int way = 0; way < 3; way++) { /* loaded as floats, as doubles, and appended by the exact path */
            const mha_view from = mha_view_of(x, MHA_F32, 4, shape), to = mha_view_of(y, MHA_F32, 4, shape),
                           doubles = mha_view_of(wide, MHA_F64, 4, shape);
            assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
            assert_int_equal(mha_view_copy(&doubles, &from, NULL), MHA_OK);
            if (way < 2) {
                const mha_view *rows_of = way ? &doubles : &from;
                assert_ok(mha_cache_load(cache, rows_of, rows_of, &error), error);
            } else {
                const mha_view in = mha_view_of(x, MHA_F32, 4, (size_t[]){1, ROWS, 1, N}),
                               out = mha_view_of(y, MHA_F32, 4, (size_t[]){1, ROWS, 1, N});
                mha_call call = {.query = in,
                                 .key = in,
                                 .value = in,
                                 .output = out,
                                 .cache = cache,
                                 .path = MHA_PATH_EXACT,
                                 .threads = 1};
                assert_ok(mha_run(NULL, &call, &error), error);
            }
            for (int values = 0; values < 2; values++) {
                assert_ok(mha_cache_read(cache, values, &to, &error), error);
                assert_ok(mha_cache_read(cache, !values, &doubles, &error), error);
                for (size_t i = 0; i < ROWS; i++)
                    for (size_t c = 0; c < N; c++) {
                        const float wanted = rows[i].wanted[c];
                        if (isnan(wanted) ? !isnan(y[i][c]) || !isnan(wide[i][c])
                                          : y[i][c] != wanted || wide[i][c] != (double)wanted)
                            fail_msg("%s, way %d, row %zu: %a expected %a, found %a", mha_isa(), way, i,
                                     (double)rows[i].x[c], (double)wanted, (double)y[i][c]);
                    }
            }
            const mha_view codes = mha_cache_keys(cache);
            assert_int_equal(codes.dtype, MHA_I8);
            assert_int_equal(codes.stride[2], 12);
            assert_true(mha_view_get(&codes, (size_t[]){0, 0, 0, 3}) == -2);
            float scale;
            memcpy(&scale, (char *)codes.data + 12 + 8, sizeof scale);
            assert_true(scale == 2);
            mha_cache_destroy(cache);
        }
    }
}

static void reading_a_cache_refuses_what_has_no_room(void **state)
{
    (void)state;
    mha_error error;
    mha_cache *cache;
    float x[8] = {0};
    assert_ok(mha_cache_create(&(mha_cache_spec){1, 1, 2, 2, 2, 0, .dtype = MHA_I8}, NULL, &cache, &error), error);
    const mha_view rows = mha_view_of(x, MHA_F32, 4, (size_t[]){1, 1, 2, 2}),
                   none = mha_view_of(NULL, MHA_F32, 4, rows.shape), codes = mha_view_of(x, MHA_I8, 4, rows.shape),
                   fewer = mha_view_of(x, MHA_F32, 4, (size_t[]){1, 1, 1, 2});
    assert_ok(mha_cache_load(cache, &rows, &rows, &error), error);
    assert_int_equal(mha_cache_read(cache, false, &none, &error), MHA_INVALID);
    assert_string_equal(error.message, "expected data, found none");
    assert_int_equal(mha_cache_read(cache, true, &codes, &error), MHA_INVALID);
    assert_string_equal(error.message, "expected floating elements, found I8");
    assert_int_equal(mha_cache_read(cache, true, &fewer, &error), MHA_INVALID);
    assert_int_equal(mha_cache_load(cache, &codes, &codes, &error), MHA_UNSUPPORTED);
    mha_cache_destroy(cache);
    const mha_cache_spec endless = {1, 1, SIZE_MAX - 2, 0, 1, 0, .dtype = MHA_I8};
    assert_int_equal(mha_cache_create(&endless, NULL, &cache, &error), MHA_INVALID);
}

/* Float paths lie within the bound of the exact path where rows are appended, which both round for themselves. */
static void appended_rows_of_8_bits_stay_within_the_bound(void **state)
{
    enum { B = 2, H = 3, OLD = 9, NEW = 4, D = 20, N = B * NEW * H * D };
    (void)state;
    mha_error error;
    float *x[3], *past = floats((size_t)B * H * OLD * D, 8, MHA_F32), out[N];
    double exact[N], bound[MHA_STAGE_COUNT];
    size_t beyond = 0;
    const size_t shape[4] = {B, NEW, H, D};
    for (size_t i = 0; i < 3; i++)
        x[i] = floats(N, 20 + i, MHA_F32);
    for (size_t p = 0; p < 3; p++) {
        mha_cache *cache;
        const mha_cache_spec spec = {
            .batch = B, .kv_heads = H, .d_k = D, .d_v = D, .capacity = OLD + NEW, .dtype = MHA_I8};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        const mha_view old = mha_view_of(past, MHA_F32, 4, (size_t[]){B, H, OLD, D});
        assert_ok(mha_cache_load(cache, &old, &old, &error), error);
        mha_call call = {.query = mha_view_of(x[0], MHA_F32, 4, shape),
                         .key = mha_view_of(x[1], MHA_F32, 4, shape),
                         .value = mha_view_of(x[2], MHA_F32, 4, shape),
                         .cache = cache,
                         .path = paths[p],
                         .threads = 1,
                         .semantics = {.visible.causal = true}};
        call.output = p ? mha_view_of(out, MHA_F32, 4, shape) : mha_view_of(exact, MHA_F64, 4, shape);
        assert_ok(mha_error_bound(NULL, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
        double atol[MHA_STAGE_COUNT];
        assert_ok(
            mha_precision_tolerance(NULL, &call, &(mha_precision){.inputs = MHA_BF16}, atol, MHA_STAGE_COUNT, &error),
            error);
        assert_true(atol[MHA_STAGE_OUTPUT] > 0 && isfinite(atol[MHA_STAGE_OUTPUT]));
        assert_ok(mha_run(NULL, &call, &error), error);
        for (size_t i = 0; i < N && p; i++)
            beyond += !(fabs((double)out[i] - exact[i]) <= bound[MHA_STAGE_OUTPUT]);
        mha_cache_destroy(cache);
    }
    /* Numbers up to 2 have codes 2 / 127 apart. The bound takes any row for the largest one there is. */
    assert_true(beyond == 0 && bound[MHA_STAGE_PRESENT_KEY] < 2 * 2 * sqrt(D) / 254 + 1e-4);
    assert_true(bound[MHA_STAGE_PRESENT_KEY] > 2 * 1.9 / 254);
    free(past);
    for (size_t i = 0; i < 3; i++)
        free(x[i]);
}

static void half_of_the_memory(void **state)
{
    (void)state;
    mha_error error;
    mha_cache *cache;
    for (size_t d = 0; d < 2; d++) {
        const mha_cache_spec spec = {.batch = 2, .kv_heads = 3, .d_k = 5, .d_v = 7, .capacity = 11, .dtype = halves[d]};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        assert_int_equal(mha_cache_bytes(cache), 2 * 3 * 11 * (5 + 7) * 2);
        mha_cache_destroy(cache);
    }
    const mha_cache_spec bytes = {.batch = 2, .kv_heads = 3, .d_k = 5, .d_v = 8, .capacity = 11, .dtype = MHA_I8};
    assert_ok(mha_cache_create(&bytes, NULL, &cache, &error), error);
    assert_int_equal(mha_cache_bytes(cache), 2 * 3 * 11 * (8 + 4 + 8 + 4)); /* codes in whole words, scales */
    mha_cache_destroy(cache);
}

static void a_cache_of_doubles_still_needs_the_exact_path(void **state)
{
    (void)state;
    mha_error error;
    mha_plan plan;
    mha_cache *cache;
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 1, .d_k = 2, .d_v = 2, .capacity = 2, .dtype = MHA_F64};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    float row[2] = {1, 2};
    const mha_view v = mha_view_of(row, MHA_F32, 4, (size_t[]){1, 1, 1, 2});
    mha_call call = {.query = v, .key = v, .value = v, .cache = cache, .path = MHA_PATH_EXACT};
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    for (size_t p = 1; p < 3; p++) {
        call.path = paths[p];
        assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_UNSUPPORTED, error, "F64");
    }
    mha_cache_destroy(cache);
}

/* ---------------------------------------------------------------- weights */

/* y of a layer whose weights have the type, or are floats of the same values. */
static void run_layer(mha_dtype weights, bool as_floats, bool packs, mha_path path, size_t T, float *y)
{
    enum { D = 72 };
    mha_error error;
    mha_params *tables[2];
    mha_layer *layers[2];
    for (int i = 0; i < 2; i++) {
        const mha_config config = {.d_model = D,
                                   .n_heads = 6,
                                   .kv_heads = 2,
                                   .bias_q = true,
                                   .bias_k = true,
                                   .bias_v = true,
                                   .bias_o = true,
                                   .bias_kv = true,
                                   .sinks = true,
                                   .dtype = i ? MHA_F32 : weights};
        assert_int_equal(mha_params_create(NULL, &tables[i], NULL), MHA_OK);
        assert_ok(mha_layer_create(&config, tables[i], NULL, &layers[i], &error), error);
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
            if (!mha_layer_weight(layers[i], (mha_weight)w))
                continue;
            mha_view to = mha_tensor_view(mha_layer_weight(layers[i], (mha_weight)w));
            mha_random_fill(&to, 9, (uint64_t)w, -0.3f, 0.3f);
            if (i == 1) {
                const mha_view from = mha_tensor_view(mha_layer_weight(layers[0], (mha_weight)w));
                assert_ok(mha_layer_set(layers[1], (mha_weight)w, &from, &error), error);
            }
        }
    }
    mha_layer *layer = layers[as_floats];
    if (packs)
        assert_ok(mha_layer_pack(layer, &error), error);
    float *x = floats(T * D, 4, MHA_F32);
    mha_call call = {.query = mha_view_of(x, MHA_F32, 3, (size_t[]){1, T, D}), .path = path, .threads = 2};
    call.output = mha_view_of(y, MHA_F32, 3, (size_t[]){1, T, D});
    run_call(layer, &call);
    free(x);
    for (int i = 0; i < 2; i++) {
        mha_layer_destroy(layers[i]);
        mha_params_destroy(tables[i]);
    }
}

static void weights_of_halves_give_the_bits_of_floats(void **state)
{
    static const size_t lengths[] = {1, 2, 5, 16, 17, 150};
    FOR_HALVES_AND_PATHS for (int packs = 0; packs < 2; packs++) for (size_t t = 0;
                                                                      t < sizeof lengths / sizeof *lengths; t++)
    {
        const size_t n = lengths[t] * 72;
        float *wanted = malloc(n * sizeof *wanted), *found = malloc(n * sizeof *found);
        run_layer(halves[d], true, packs, paths[p], lengths[t], wanted);
        run_layer(halves[d], false, packs, paths[p], lengths[t], found);
        if (memcmp(wanted, found, n * sizeof *wanted) != 0)
            fail_msg("%s, %s, %zu rows, %s: other bits than floats give", mha_dtype_name(halves[d]),
                     mha_path_name(paths[p]), lengths[t], packs ? "packed" : "not packed");
        assert_true(isfinite(found[n - 1]) && found[n - 1] != 0.0f);
        free(wanted);
        free(found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_query_at_a_time, isa_teardown),
        cmocka_unit_test_teardown(many_queries_at_a_time, isa_teardown),
        cmocka_unit_test(everything_that_hides_keys),
        cmocka_unit_test(appended_rows_are_rounded_to_nearest_even),
        cmocka_unit_test(loaded_rows_may_lie_anyhow),
        cmocka_unit_test_teardown(rows_of_8_bits_at_their_edges, isa_teardown),
        cmocka_unit_test(reading_a_cache_refuses_what_has_no_room),
        cmocka_unit_test(appended_rows_of_8_bits_stay_within_the_bound),
        cmocka_unit_test(half_of_the_memory),
        cmocka_unit_test(a_cache_of_doubles_still_needs_the_exact_path),
        cmocka_unit_test(weights_of_halves_give_the_bits_of_floats),
    };
    return cmocka_run_group_tests_name("half_cache", tests, NULL, NULL);
}
