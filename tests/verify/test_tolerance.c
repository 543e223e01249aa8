/* The tolerance of calls with keys in pages or in a cache: that of the same keys given with the call, whichever rows
 * were evicted, and refused where the error bound is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/layer.h"
#include "support/unit.h"

enum { T = 6, S = 24, H = 2, D = 16, PAGE = 5, PAGES = 5, N = S * H * D };

static float query[T * H * D], keys[2][N], rows[2][N]; /* keys and values by time, and by head as a cache has them */
static float pool[2][PAGES * PAGE * H * D];
static int32_t table[PAGES] = {3, 0, 4, 1, 2};
static int64_t lengths[1] = {S};

static void fill_in(void)
{
    const mha_view q = mha_view_of(query, MHA_F32, 1, (size_t[]){T * H * D});
    mha_random_fill(&q, 5, 2, -2, 2);
    for (int v = 0; v < 2; v++) {
        const mha_view all = mha_view_of(keys[v], MHA_F32, 1, (size_t[]){N});
        mha_random_fill(&all, 5, (uint64_t)v, -2, 2);
        for (size_t j = 0; j < S; j++)
            for (size_t i = 0; i < H * D; i++) {
                rows[v][(i / D * S + j) * D + i % D] = keys[v][j * H * D + i];
                pool[v][((size_t)table[j / PAGE] * PAGE + j % PAGE) * H * D + i] = keys[v][j * H * D + i];
            }
    }
}

static mha_call contiguous(void)
{
    return (mha_call){.query = mha_heads(query, 1, T, H, D), .key = mha_heads(keys[0], 1, S, H, D),
                      .value = mha_heads(keys[1], 1, S, H, D)};
}

static mha_call paged(void)
{
    const size_t shape[4] = {PAGES, PAGE, H, D};
    return (mha_call){.query = mha_heads(query, 1, T, H, D),
                      .pages = {.keys = mha_view_of(pool[0], MHA_F32, 4, shape),
                                .values = mha_view_of(pool[1], MHA_F32, 4, shape),
                                .table = table,
                                .columns = PAGES,
                                .lengths = lengths}};
}

static void tolerance_of(const mha_call *call, mha_dtype type, double atol[MHA_STAGE_COUNT])
{
    mha_error error;
    const mha_precision p = mha_precision_of(type);
    assert_ok(mha_precision_tolerance(NULL, call, &p, atol, MHA_STAGE_COUNT, &error), error);
}

/* Runs a call on the exact path; `heads` has T * H * D numbers. */
static void run_exact(mha_call call, mha_precision precision, double *heads)
{
    mha_error error;
    call.path = MHA_PATH_EXACT;
    call.precision = precision;
    call.output = mha_view_of(heads, MHA_F64, 4, (size_t[]){1, T, H, D});
    assert_ok(mha_run(NULL, &call, &error), error);
}

static double farthest(const double *x, const double *y, size_t n)
{
    double far = 0;
    for (size_t i = 0; i < n; i++)
        far = fmax(far, fabs(x[i] - y[i]));
    return far;
}

static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_F8_E4M3, MHA_I8};

/* The tolerance allows the rounding of a kernel on keys in pages, and hardly more than on the same keys given
 * with the call. */
static void keys_in_pages_are_keys(void **state)
{
    (void)state;
    static const mha_stage stages[] = {MHA_STAGE_SCORES, MHA_STAGE_WEIGHTS, MHA_STAGE_LSE, MHA_STAGE_HEADS,
                                       MHA_STAGE_OUTPUT};
    static double low[T * H * D], exact[T * H * D];
    fill_in();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double plain[MHA_STAGE_COUNT], pages[MHA_STAGE_COUNT];
        const mha_call given = contiguous(), in_pages = paged();
        tolerance_of(&given, types[t], plain);
        tolerance_of(&in_pages, types[t], pages);
        for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) /* rounding the rows of pages is a part of both */
            if (!(pages[stages[s]] > 0.3 * plain[stages[s]] && pages[stages[s]] < 3 * plain[stages[s]]))
                fail_msg("%s: %s is allowed %g in pages, %g without", mha_dtype_name(types[t]),
                         mha_stage_at(stages[s])->name, pages[stages[s]], plain[stages[s]]);
        run_exact(in_pages, mha_precision_of(types[t]), low);
        run_exact(in_pages, (mha_precision){.inputs = MHA_F32}, exact);
        assert_true(farthest(low, exact, T * H * D) <= pages[MHA_STAGE_OUTPUT]);
    }
}

/* Sequences of other lengths, and pages of doubles, which no float path takes. */
static void pages_of_doubles_have_a_tolerance(void **state)
{
    (void)state;
    static double wide[2][PAGES * PAGE * H * D];
    double narrow[MHA_STAGE_COUNT], doubles[MHA_STAGE_COUNT];
    fill_in();
    mha_call call = paged();
    tolerance_of(&call, MHA_BF16, narrow);
    for (int v = 0; v < 2; v++) {
        mha_view *pages = v ? &call.pages.values : &call.pages.keys;
        for (size_t i = 0; i < PAGES * PAGE * H * D; i++)
            wide[v][i] = (double)pool[v][i];
        *pages = mha_view_of(wide[v], MHA_F64, 4, pages->shape);
    }
    tolerance_of(&call, MHA_BF16, doubles);
    assert_memory_equal(narrow, doubles, sizeof narrow);
}

/* One refuses what the other refuses, and says the same. */
static void what_has_no_bound_has_no_tolerance(void **state)
{
    (void)state;
    static const int64_t cu[] = {0, T};
    static const mha_precision none;
    mha_error errors[2];
    double numbers[MHA_STAGE_COUNT];
    fill_in();
    for (int way = 0; way < 2; way++) {
        mha_call call = paged();
        if (way)
            call.semantics.place.key_offset = 3, call.semantics.place.has_offset = true;
        else
            call.semantics.place.n_sequences = 1, call.semantics.place.cu_seqlens_q = cu;
        assert_refused(mha_error_bound(NULL, &call, 0x1p-24, numbers, MHA_STAGE_COUNT, &errors[0]), MHA_UNSUPPORTED,
                       errors[0], "pages", "give each sequence whole");
        assert_refused(mha_precision_tolerance(NULL, &call, &none, numbers, MHA_STAGE_COUNT, &errors[1]),
                       MHA_UNSUPPORTED, errors[1], "pages", "give each sequence whole");
    }
}

enum { LEFT = 3, HELD = 7, NEW = 4 };

/* A cache of HELD rows that keeps LEFT of them when NEW ones come. */
static mha_cache *evicting(mha_dtype type)
{
    mha_error error;
    mha_cache *cache;
    const mha_cache_spec spec = {1, H, D, D, HELD, LEFT, .dtype = type};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    mha_view past[2];
    for (int v = 0; v < 2; v++) {
        past[v] = mha_view_of(rows[v], MHA_F32, 4, (size_t[]){1, H, HELD, D});
        past[v].stride[1] = S * D;
    }
    assert_ok(mha_cache_load(cache, &past[0], &past[1], &error), error);
    return cache;
}

/* The numbers of rows that the call evicts are not in its bound, nor in its tolerance; those of the others are, and
 * masks are those of the rows that stay. */
static void evicted_rows_do_not_count(void **state)
{
    (void)state;
    static const bool keep[LEFT + NEW] = {true, false, true, true, true, false, true};
    double bounds[3][MHA_STAGE_COUNT], atols[3][MHA_STAGE_COUNT];
    for (int which = 0; which < 3; which++) { /* as drawn; other rows that go; other rows that stay */
        mha_error error;
        fill_in();
        for (size_t v = 0; v < 2 && which; v++)
            for (size_t g = 0; g < H; g++)
                for (size_t i = 0; i < (HELD - LEFT) * D; i++)
                    rows[v][g * S * D + i + (which == 2 ? LEFT * D : 0)] *= 100;
        mha_cache *cache = evicting(MHA_F32);
        mha_call call = contiguous();
        call.query = mha_heads(query, 1, NEW, H, D);
        call.key = mha_heads(keys[0], 1, NEW, H, D), call.value = mha_heads(keys[1], 1, NEW, H, D);
        call.cache = cache;
        call.semantics = (mha_semantics){
            .visible.causal = true,
            .visible.key_padding = {.kind = MHA_MASK_KEEPS,
                            .values = mha_view_of((void *)(uintptr_t)keep, MHA_BOOL, 2, (size_t[]){1, LEFT + NEW})}};
        assert_ok(mha_error_bound(NULL, &call, 0x1p-24, bounds[which], MHA_STAGE_COUNT, &error), error);
        tolerance_of(&call, MHA_BF16, atols[which]);
        assert_true(atols[which][MHA_STAGE_HEADS] > 1e-3 && isfinite(atols[which][MHA_STAGE_HEADS]));
        assert_int_equal(mha_cache_length(cache), HELD);
        mha_cache_destroy(cache);
    }
    assert_memory_equal(bounds[0], bounds[1], sizeof *bounds);
    assert_memory_equal(atols[0], atols[1], sizeof *atols);
    assert_true(bounds[2][MHA_STAGE_HEADS] > bounds[0][MHA_STAGE_HEADS]);
    assert_true(atols[2][MHA_STAGE_SCORES] > 2 * atols[0][MHA_STAGE_SCORES]);
}

/* Rows that were evicted before count as positions: distances and angles grow with them. */
static void rows_evicted_before_are_positions(void **state)
{
    (void)state;
    static const double slope[H] = {0.5, 0.25};
    double atols[2][MHA_STAGE_COUNT], bounds[2][MHA_STAGE_COUNT];
    fill_in();
    mha_cache *cache = evicting(MHA_F32);
    mha_call call = contiguous();
    call.query = mha_heads(query, 1, 0, H, D);
    call.key = mha_heads(keys[0], 1, NEW, H, D), call.value = mha_heads(keys[1], 1, NEW, H, D);
    call.cache = cache;
    for (int which = 0; which < 2; which++) {
        mha_error error;
        mha_call asked = call;
        asked.query = mha_heads(query, 1, T, H, D);
        asked.semantics.added.alibi_slopes = slope, asked.semantics.place.has_offset = true;
        assert_ok(mha_error_bound(NULL, &asked, 0x1p-24, bounds[which], MHA_STAGE_COUNT, &error), error);
        tolerance_of(&asked, MHA_F32, atols[which]);
        for (int step = 0; step < 5000 && which == 0; step++)
            assert_ok(mha_run(NULL, &call, &error), error);
    }
    assert_true(mha_cache_first(cache) > 10000);
    assert_true(bounds[1][MHA_STAGE_MASKED] > 100 * bounds[0][MHA_STAGE_MASKED]);
    assert_true(atols[1][MHA_STAGE_MASKED] > 10 * atols[0][MHA_STAGE_MASKED]);
    mha_cache_destroy(cache);
}

/* A cache of 16 or 8 bits is a kernel's that rounds its new rows: float paths that do so are within the tolerance. */
static void a_narrow_cache_is_allowed_its_rounding(void **state)
{
    (void)state;
    static const mha_dtype narrow[] = {MHA_F16, MHA_BF16, MHA_I8};
    static double exact[NEW * H * D];
    static float found[NEW * H * D];
    fill_in();
    for (size_t t = 0; t < sizeof narrow / sizeof *narrow; t++) {
        double atol[2][MHA_STAGE_COUNT], off = 0;
        mha_error error;
        const size_t shape[4] = {1, NEW, H, D};
        for (int rounds = 0; rounds < 2; rounds++) {
            mha_cache *cache = evicting(rounds ? narrow[t] : MHA_F64);
            if (!rounds) { /* the numbers in the narrow one */
                mha_cache *other = evicting(narrow[t]);
                mha_view held[2];
                for (int v = 0; v < 2; v++) {
                    held[v] = mha_view_of(malloc(HELD * H * D * sizeof(double)), MHA_F64, 4,
                                          (size_t[]){1, H, HELD, D});
                    assert_ok(mha_cache_read(other, v, &held[v], &error), error);
                }
                assert_ok(mha_cache_load(cache, &held[0], &held[1], &error), error);
                free(held[0].data), free(held[1].data);
                mha_cache_destroy(other);
            }
            mha_call call = contiguous();
            call.query = mha_heads(query, 1, NEW, H, D);
            call.key = mha_heads(keys[0], 1, NEW, H, D), call.value = mha_heads(keys[1], 1, NEW, H, D);
            call.cache = cache;
            call.path = rounds ? MHA_PATH_FAST : MHA_PATH_EXACT;
            tolerance_of(&call, MHA_F32, atol[rounds]);
            call.output = rounds ? mha_view_of(found, MHA_F32, 4, shape) : mha_view_of(exact, MHA_F64, 4, shape);
            assert_ok(mha_run(NULL, &call, &error), error);
            mha_cache_destroy(cache);
        }
        for (size_t i = 0; i < NEW * H * D; i++)
            off = fmax(off, fabs((double)found[i] - exact[i]));
        assert_true(off > atol[0][MHA_STAGE_OUTPUT] && off <= atol[1][MHA_STAGE_OUTPUT]);
        assert_true(atol[1][MHA_STAGE_OUTPUT] < 20 * off); /* and says something */
    }
}

/* Limits that all but a few numbers reach take their errors, too: what is left says nothing, and the bound counts. */
static void limits_hide_errors(void **state)
{
    (void)state;
    enum { WIDTH = 32 };
    static const mha_precision none;
    mha_layer *layer;
    mha_error error;
    float x[T * WIDTH];
    const mha_config config = {.d_model = WIDTH, .n_heads = 2};
    const mha_view all = mha_view_of(x, MHA_F32, 1, (size_t[]){T * WIDTH});
    mha_random_fill(&all, 1, 1, -1, 1);
    layer = made_layer(config, 1);
    static const double limits[] = {0, 100, 0.3, 0.001};
    for (size_t n = 0; n < sizeof limits / sizeof *limits; n++) {
        double bound[MHA_STAGE_COUNT], atol[MHA_STAGE_COUNT];
        const mha_call call = {.query = mha_rows(x, 1, T, WIDTH), .semantics.qkv.clip_qkv = limits[n]};
        assert_ok(mha_error_bound(layer, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
        assert_ok(mha_precision_tolerance(layer, &call, &none, atol, MHA_STAGE_COUNT, &error), error);
        assert_int_equal(atol[MHA_STAGE_Q] == 2 * bound[MHA_STAGE_Q], n == 3);
        assert_int_equal(atol[MHA_STAGE_HEADS] == 2 * bound[MHA_STAGE_HEADS], n == 3);
    }
    mha_layer_destroy(layer);
}

/* Rows are rounded when they are new, and once more together with those of the cache, by the scale of all of them. */
static void rows_in_a_cache_are_rounded_twice(void **state)
{
    (void)state;
    static double low[N], exact[N];
    fill_in();
    for (size_t i = 0; i < N; i++)
        keys[0][i] = keys[1][i] = 1 - 0.5f * mha__random_unit(1, 1, i);
    for (int size = 0; size < 60; size++) {
        mha_error error;
        double bound[MHA_STAGE_COUNT];
        for (size_t i = 0; i < N; i++)
            rows[0][i] = rows[1][i] = 1 + 0.01f * (float)size;
        for (int rounds = 0; rounds < 2; rounds++) {
            mha_cache *cache = evicting(MHA_F64);
            mha_call call = contiguous();
            mha_keep keep = {.stage = MHA_STAGE_PRESENT_VALUE};
            call.query = mha_heads(query, 1, NEW, H, D);
            call.key = mha_heads(keys[0], 1, NEW, H, D), call.value = mha_heads(keys[1], 1, NEW, H, D);
            call.cache = cache, call.path = MHA_PATH_EXACT;
            call.precision = (mha_precision){.rows = rounds ? MHA_F8_E4M3 : MHA_F32};
            keep.view = mha_view_of(rounds ? low : exact, MHA_F64, 4, (size_t[]){1, H, LEFT + NEW, D});
            call.keep = &keep, call.keep_count = 1;
            assert_ok(mha_error_bound(NULL, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
            assert_ok(mha_run(NULL, &call, &error), error);
            mha_cache_destroy(cache);
        }
        assert_true(farthest(low, exact, (LEFT + NEW) * H * D) <= bound[MHA_STAGE_PRESENT_VALUE]);
    }
}

/* The values of absorbed latents, which are normalised, are rounded as a part of keys, whose rotated part is not. */
static void latents_in_a_cache_are_rounded_as_keys(void **state)
{
    (void)state;
    enum { WIDTH = 8, RANK = 6, ROTATED = 2 };
    static const float sizes[] = {1, 1000, 1e6f};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        mha_layer *layer;
        mha_error error;
        float x[T * WIDTH];
        double values[2][T * RANK], bound[MHA_STAGE_COUNT], atol[MHA_STAGE_COUNT];
        const mha_config config = {.d_model = WIDTH, .n_heads = 2, .kv_rank = RANK, .d_rope = ROTATED, .d_k = 4};
        const mha_view all = mha_view_of(x, MHA_F32, 1, (size_t[]){T * WIDTH});
        mha_random_fill(&all, 1, 1, -sizes[n], sizes[n]);
        layer = made_layer(config, 1);
        for (int rounds = 0; rounds < 2; rounds++) {
            mha_cache *cache;
            mha_keep keep = {.stage = MHA_STAGE_PRESENT_VALUE,
                             .view = mha_view_of(values[rounds], MHA_F64, 4, (size_t[]){1, 1, T, RANK})};
            const mha_cache_spec spec = {1, 1, RANK + ROTATED, 0, T, 0, .dtype = MHA_F64};
            assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
            mha_call call = {.query = mha_rows(x, 1, T, WIDTH), .cache = cache, .absorbed = true,
                             .path = MHA_PATH_EXACT, .keep = &keep, .keep_count = 1,
                             .precision = {.rows = rounds ? MHA_F8_E4M3 : MHA_F32},
                             .semantics.qkv.rope = {.kind = MHA_ROPE_INTERLEAVED, .dim = ROTATED, .last = true}};
            assert_ok(mha_error_bound(layer, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
            assert_ok(mha_precision_tolerance(layer, &call, &call.precision, atol, MHA_STAGE_COUNT, &error), error);
            assert_ok(mha_run(layer, &call, &error), error);
            mha_cache_destroy(cache);
        }
        const double off = farthest(values[0], values[1], T * RANK);
        assert_true(off > 0 && off <= bound[MHA_STAGE_PRESENT_VALUE] && off <= atol[MHA_STAGE_PRESENT_VALUE]);
        mha_layer_destroy(layer);
    }
}

/* Numbers that a type cannot represent become infinite in it, and infinity times 0 is NaN: no bound says less. */
static void what_a_type_cannot_hold_has_no_bound(void **state)
{
    (void)state;
    enum { WIDTH = 8 };
    mha_layer *layer;
    mha_error error;
    double bound[MHA_STAGE_COUNT], atol[MHA_STAGE_COUNT];
    float x[T * WIDTH] = {0}, out[T * WIDTH];
    const mha_config config = {.d_model = WIDTH, .n_heads = 1, .relative_k_rows = 3};
    layer = made_layer(config, 1);
    const mha_view W = mha_tensor_view(mha_layer_weight(layer, MHA_W_V));
    mha_call call = {.query = mha_rows(x, 1, T, WIDTH), .path = MHA_PATH_EXACT, .precision = {.weights = MHA_F16}};
    mha_view_set(&W, (size_t[]){0, 0}, 1e6); /* times inputs of 0 */
    assert_ok(mha_error_bound(layer, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
    assert_true(isinf(bound[MHA_STAGE_V]) && isinf(bound[MHA_STAGE_HEADS]) && isinf(bound[MHA_STAGE_OUTPUT]));
    assert_true(isfinite(bound[MHA_STAGE_WEIGHTS]));
    call.output = mha_rows(out, 1, T, WIDTH);
    assert_ok(mha_run(layer, &call, &error), error);
    assert_true(isnan(out[0]));

    mha_view_set(&W, (size_t[]){0, 0}, 1); /* relative terms beyond F16, in which the scores are stored */
    const mha_view all = mha_tensor_view(mha_layer_weight(layer, MHA_RELATIVE_K));
    mha_random_fill(&all, 1, 1, 1e6f, 2e6f);
    for (size_t i = 0; i < T * WIDTH; i++)
        x[i] = 1;
    call.precision = (mha_precision){.scores = MHA_F16};
    call.semantics.added.relative = (mha_relative){.rule = MHA_RELATIVE_DISTANCE, .k_scale = 1};
    assert_ok(mha_error_bound(layer, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
    assert_true(isfinite(bound[MHA_STAGE_SCORES]) && isinf(bound[MHA_STAGE_MASKED]) && isinf(bound[MHA_STAGE_WEIGHTS]));
    assert_true(isinf(bound[MHA_STAGE_HEADS]) && isinf(bound[MHA_STAGE_OUTPUT]) && isfinite(bound[MHA_STAGE_V]));
    assert_ok(mha_precision_tolerance(layer, &call, &call.precision, atol, MHA_STAGE_COUNT, &error), error);
    assert_true(isinf(atol[MHA_STAGE_WEIGHTS]));
    mha_layer_destroy(layer);
}

/* A kernel may add the terms of all keys one after the other, in float32: softmax(q k / sqrt(d)) v without tiles. */
static void terms_may_be_added_one_by_one(void **state)
{
    (void)state;
    enum { FAR = 65535, QUERIES = 2, HEADS = 8, WIDE = 8 };
    float *x[3], *mine = malloc(QUERIES * HEADS * WIDE * sizeof *mine);
    for (size_t i = 0; i < 3; i++)
        assert_non_null(x[i] = malloc(FAR * HEADS * WIDE * sizeof **x));
    assert_non_null(mine);
    double *exact = malloc(QUERIES * HEADS * WIDE * sizeof *exact);
    assert_non_null(exact);
    for (size_t turn = 0; turn < 8; turn++) {
        const size_t n = turn % 2 ? FAR : 4097, T_q = QUERIES;
        const float size = turn & 2 ? 0 : 1.5f, offset = turn & 4 ? 0.5f : 0; /* equal scores; values about 0.5 */
        mha_error error;
        mha_allowance allowed = {.stage = MHA_STAGE_OUTPUT, .computed = MHA_F32, .stored = MHA_F32};
        mha_call call = {.query = mha_heads(x[0], 1, T_q, HEADS, WIDE), .key = mha_heads(x[1], 1, n, HEADS, WIDE),
                         .value = mha_heads(x[2], 1, n, HEADS, WIDE)};
        mha_random_fill(&call.query, turn, 0, -size, size);
        mha_random_fill(&call.key, turn, 1, -1.5f, 1.5f);
        mha_random_fill(&call.value, turn, 2, offset - 1, offset + 1);
        assert_ok(mha_tolerance(NULL, &call, &allowed, 1, &error), error);
        call.path = MHA_PATH_EXACT;
        call.output = mha_view_of(exact, MHA_F64, 4, (const size_t[]){1, T_q, HEADS, WIDE});
        assert_ok(mha_run(NULL, &call, &error), error);
        double worst = 0, wrong = 0;
        for (size_t row = 0; row < T_q * HEADS; row++) {
            float sum = 0, *y = mine + row * WIDE, most = -INFINITY;
            const float *q = x[0] + row * WIDE;
            static float score[FAR];
            memset(y, 0, WIDE * sizeof *y);
            for (size_t j = 0; j < n; j++) {
                score[j] = 0;
                for (size_t c = 0; c < WIDE; c++)
                    score[j] += q[c] * x[1][(j * HEADS + row % HEADS) * WIDE + c];
                score[j] /= sqrtf(WIDE);
                most = fmaxf(most, score[j]);
            }
            for (size_t j = 0; j < n; j++) {
                const float weight = expf(score[j] - most);
                sum += weight;
                for (size_t c = 0; c < WIDE; c++)
                    y[c] += weight * x[2][(j * HEADS + row % HEADS) * WIDE + c];
            }
            for (size_t c = 0; c < WIDE; c++) {
                const double off = fabs((double)(y[c] / sum) - exact[row * WIDE + c]);
                worst = fmax(worst, off);
                wrong = fmax(wrong, off / (allowed.atol + allowed.rtol * fabs((double)y[c])));
            }
        }
        if (wrong > 1)
            fail_msg("%zu keys, scores of size %g: off by %g, allowed %g", n, (double)size, worst, allowed.atol);
    }
    for (size_t i = 0; i < 3; i++)
        free(x[i]);
    free(mine);
    free(exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_in_pages_are_keys),
        cmocka_unit_test(pages_of_doubles_have_a_tolerance),
        cmocka_unit_test(what_has_no_bound_has_no_tolerance),
        cmocka_unit_test(evicted_rows_do_not_count),
        cmocka_unit_test(rows_evicted_before_are_positions),
        cmocka_unit_test(a_narrow_cache_is_allowed_its_rounding),
        cmocka_unit_test(limits_hide_errors),
        cmocka_unit_test(rows_in_a_cache_are_rounded_twice),
        cmocka_unit_test(latents_in_a_cache_are_rounded_as_keys),
        cmocka_unit_test(what_a_type_cannot_hold_has_no_bound),
        cmocka_unit_test(terms_may_be_added_one_by_one),
    };
    return cmocka_run_group_tests_name("tolerance", tests, NULL, NULL);
}
