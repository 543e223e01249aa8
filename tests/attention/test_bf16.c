/* Products of BF16 on the blas and fast paths: within what a kernel of that precision is allowed, rounded at the points
 * of mha_precision, the same bits for any threads, company and strides; and what they do not go with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/kernels/kernels.h"
#include "mha/lab.h"
#include "support/call.h"
#include "support/stages.h"
#include "support/trial.h"
#include "support/unit.h"

static const mha_path paths[] = {MHA_PATH_BLAS, MHA_PATH_FAST};

static bool is_bf16(const mha_view *view)
{
    size_t index[MHA_MAX_RANK] = {0}, at = 0;
    const size_t n = mha_view_elements(view);
    for (; at < n; at++) {
        size_t rest = at;
        for (int k = view->rank - 1; k >= 0; rest /= view->shape[k--])
            index[k] = rest % view->shape[k];
        const float x = (float)mha_view_get(view, index);
        if (!isnan(x) && mha__bf16_to_f32(mha__f32_to_bf16(x)) != x)
            return false;
    }
    return true;
}

/* A draw that goes with BF16: without a cache, whose rows would be F32, and without latents. */
static trial draw(uint64_t seed)
{
    trial t = trial_draw(seed);
    t.past = 0, t.use_cache = false;
    t.config.dtype = MHA_BF16;
    t.amplitude = 1;
    t.input_dtype = MHA_F32;
    t.poison = false;
    return t;
}

enum {
    ROUNDED = 1 << MHA_STAGE_Q_ROT | 1 << MHA_STAGE_K_ROT | 1 << MHA_STAGE_HEADS | 1 << MHA_STAGE_GATED |
              1 << MHA_STAGE_OUTPUT
};

/* Whether an element differs by more than `atol`. */
static bool beyond(const mha_view *a, const mha_view *b, double atol)
{
    size_t index[MHA_MAX_RANK] = {0};
    for (size_t at = 0, n = mha_view_elements(a); at < n; at++) {
        size_t rest = at;
        for (int k = a->rank - 1; k >= 0; rest /= a->shape[k--])
            index[k] = rest % a->shape[k];
        const double x = mha_view_get(a, index), y = mha_view_get(b, index);
        if (x != y && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= atol))
            return true;
    }
    return false;
}

/* Whether a forward in BF16 is within the checker's tolerance of the unrounded one in float64, and rounded where it
 * must be. Trials that BF16 does not go with are passed over, and not counted. */
static size_t n_run;

static bool fails(const trial *given, char *text, size_t size)
{
    const trial t = draw(given->seed);
    rig low, exact;
    mha_error error;
    double atol[MHA_STAGE_COUNT];
    bool failed = false;
    const mha_precision bf16 = mha_precision_of(MHA_BF16);
    trial_build(&t, &exact);
    trial_build(&t, &low);
    low.call.precision = bf16;
    const unsigned keep = trial_stages(&exact);
    bool runs = t.config.kv_rank == 0 && trial_run(&exact, MHA_PATH_EXACT, 1, keep, MHA_F64, &error) == MHA_OK;
    for (size_t p = 0; p < 2 && runs && !failed; p++) {
        const mha_status status = trial_run(&low, paths[p], 1 + (int)(t.seed % 3), keep, MHA_F32, &error);
        if (status == MHA_UNSUPPORTED)
            continue;
        assert_ok(status, error);
        mha_call plain = exact.call;
        plain.keep = NULL, plain.keep_count = 0, plain.output = (mha_view){0};
        assert_ok(mha_precision_tolerance(exact.layer, &plain, &bf16, atol, MHA_STAGE_COUNT, &error), error);
        n_run++;
        for (int s = 0; s < MHA_STAGE_COUNT && !failed; s++) {
            const mha_view *a = stage_view(&low.call, (mha_stage)s), *b = stage_view(&exact.call, (mha_stage)s);
            if (!(keep >> s & 1) || !a->data)
                continue;
            const bool unrounded = (ROUNDED >> s & 1) && !is_bf16(a);
            failed = unrounded || beyond(a, b, atol[s]);
            if (failed)
                snprintf(text, size, "%s: %s is %s", mha_path_name(paths[p]), mha_stage_at((mha_stage)s)->name,
                         unrounded ? "not rounded" : "beyond its tolerance");
        }
    }
    trial_release(&low);
    trial_release(&exact);
    return failed;
}

static void random_forwards_stay_within_the_tolerance_of_bf16(void **state)
{
    (void)state;
    const uint64_t n = trial_count("BF16_TRIALS", 100);
    size_t wrong = 0;
    for (uint64_t seed = 1; seed <= n && wrong < 5; seed++) {
        char text[400];
        const trial t = {.seed = seed};
        if (fails(&t, text, sizeof text))
            print_error("seed %llu, %s\n", (unsigned long long)seed, text), wrong++;
    }
    print_message("%zu forwards in BF16\n", n_run);
    assert_true(wrong == 0 && n_run > n / 2);
}

/* The output of the trial's last run, element by element, followed by its lse; to be freed. */
static double *numbers_of(rig *r, size_t *n)
{
    static const mha_stage stages[] = {MHA_STAGE_OUTPUT, MHA_STAGE_LSE};
    double *x = NULL;
    *n = 0;
    for (size_t s = 0; s < 2; s++) {
        const mha_view *view = stage_view(&r->call, stages[s]);
        const size_t count = view->data ? mha_view_elements(view) : 0;
        x = realloc(x, (*n + count + 1) * sizeof *x);
        const mha_view to = mha_view_of(x + *n, MHA_F64, view->rank, view->shape);
        if (count)
            assert_int_equal(mha_view_copy(&to, view, NULL), MHA_OK);
        *n += count;
    }
    return x;
}

/* Where rows are rounded depends on which stages are kept, and AVX-512 multiplies floats or pairs: neither changes a
 * bit, of any call, with poison in hidden rows, or with amplitudes at the ends of the range. */
static void rounding_early_or_late_and_pairs_change_no_bit(void **state)
{
    (void)state;
    enum { LITTLE = 1 << MHA_STAGE_OUTPUT | 1 << MHA_STAGE_LSE };
    static const char *const isas[] = {"auto", "avx512"};
    static const double amplitudes[] = {1, 30, 1e18, 1e-18};
    const uint64_t n = trial_count("BF16_TRIALS", 100);
    size_t compared = 0;
    for (uint64_t seed = 1; seed <= 3 * n; seed++) {
        trial t = draw(seed);
        t.poison = seed % 2;
        t.amplitude = amplitudes[seed / 2 % 4];
        if (t.bare && seed % 3 == 0)
            t.T_q += 16, t.T_k += t.sequences ? 16 : 40;
        if (t.config.kv_rank)
            continue;
        rig r;
        mha_error error;
        trial_build(&t, &r);
        r.call.precision = mha_precision_of(MHA_BF16);
        double *expected = NULL, *found;
        size_t length, same;
        for (unsigned run = 0; run < 8; run++) {
            if (mha_isa_select(isas[run % 2], NULL) != MHA_OK)
                continue;
            const unsigned stages = trial_stages(&r);
            const unsigned keep = run & 2 ? LITTLE & stages : (LITTLE | 1 << MHA_STAGE_Q_ROT) & stages;
            const mha_status status = trial_run(&r, MHA_PATH_FAST, run & 4 ? 3 : 1, keep, MHA_F32, &error);
            if (run == 0 && (status == MHA_UNSUPPORTED || status == MHA_INVALID)) /* of other lengths than were drawn */
                break;
            assert_ok(status, error);
            found = numbers_of(&r, &length);
            if (!expected) {
                expected = found, same = length;
                continue;
            }
            assert_int_equal(length, same);
            for (size_t i = 0; i < length; i++)
                if (found[i] != expected[i] && !(isnan(found[i]) && isnan(expected[i])))
                    fail_msg("seed %llu, run %u, element %zu: %.9g, at first %.9g", (unsigned long long)seed, run, i,
                             found[i], expected[i]);
            free(found);
            compared++;
        }
        free(expected);
        trial_release(&r);
    }
    assert_int_equal(mha_isa_select("auto", NULL), MHA_OK);
    print_message("%zu forwards in BF16 again\n", compared);
    assert_true(compared > 2 * n);
}

/* The same of given heads of every kind of width, keys that begin anywhere within a block, and values that are not
 * finite, or become infinite by rounding, which some queries see. */
static void widths_windows_and_infinities_change_no_bit(void **state)
{
    (void)state;
    enum { T_Q = 40, S = 301, MOST = 610 };
    static const size_t widths[][2] = {{64, 64}, {5, 33}, {600, 40}, {96, 7}, {1, 1}};
    static const char *const isas[] = {"auto", "avx512"};
    float *q = malloc((size_t)T_Q * MOST * sizeof *q), *k = malloc((size_t)S * MOST * sizeof *k),
          *v = malloc((size_t)S * MOST * sizeof *v), *out[2], *q_rot = malloc((size_t)T_Q * MOST * sizeof *q_rot);
    out[0] = malloc((size_t)T_Q * MOST * sizeof *out[0]), out[1] = malloc((size_t)T_Q * MOST * sizeof *out[1]);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int64_t left = -1; left < 120; left += 15)
            for (int special = 0; special < 2; special++) {
                const size_t d_k = widths[w][0], d_v = widths[w][1];
                for (size_t i = 0; i < (size_t)S * MOST; i++) {
                    k[i] = 2 * mha__random_unit(9, 1, i) - 1, v[i] = 2 * mha__random_unit(9, 2, i) - 1;
                    if (i < (size_t)T_Q * MOST)
                        q[i] = 2 * mha__random_unit(9, 3, i) - 1;
                }
                for (size_t j = 3; special && j < S; j += 37)
                    v[j * d_v + j % d_v] = j % 3 == 0 ? NAN : j % 3 == 1 ? INFINITY : -0x1.fffffep127f;
                for (int run = 0; run < 4; run++) {
                    if (mha_isa_select(isas[run % 2], NULL) != MHA_OK)
                        continue;
                    mha_keep keep = {.stage = MHA_STAGE_Q_ROT,
                                     .view = mha_view_of(q_rot, MHA_F32, 3, (size_t[]){1, T_Q, d_k})};
                    mha_call call = {.query = mha_view_of(q, MHA_F32, 4, (size_t[]){1, T_Q, 1, d_k}),
                                     .key = mha_view_of(k, MHA_F32, 4, (size_t[]){1, S, 1, d_k}),
                                     .value = mha_view_of(v, MHA_F32, 4, (size_t[]){1, S, 1, d_v}),
                                     .output = mha_view_of(out[run > 0], MHA_F32, 4, (size_t[]){1, T_Q, 1, d_v}),
                                     .semantics = {.visible.causal = true,
                                                   .place.has_offset = true,
                                                   .place.offset = S - T_Q,
                                                   .visible.has_window_left = left >= 0,
                                                   .visible.window_left = left >= 0 ? left : 0},
                                     .precision = mha_precision_of(MHA_BF16),
                                     .keep = &keep,
                                     .keep_count = run & 2 ? 1 : 0,
                                     .path = MHA_PATH_FAST,
                                     .threads = 1};
                    run_call(NULL, &call);
                    for (size_t i = 0; run > 0 && i < T_Q * d_v; i++)
                        if (out[0][i] != out[1][i] && !(isnan(out[0][i]) && isnan(out[1][i])))
                            fail_msg("d_k %zu d_v %zu window %d special %d run %d row %zu: %.9g, at first %.9g", d_k,
                                     d_v, (int)left, special, run, i / d_v, out[1][i], out[0][i]);
                }
            }
    assert_int_equal(mha_isa_select("auto", NULL), MHA_OK);
    free(q), free(k), free(v), free(q_rot), free(out[0]), free(out[1]);
}

/* Values below 2^-126 count as zero with every kernel, among few rows, which read values where they lie, and many. */
static void subnormals_count_as_zero_in_any_company(void **state)
{
    (void)state;
    enum { MOST = 40, D = 16 };
    static const size_t rows[] = {1, 5, MOST};
    float q[MOST * D] = {0}, k[3 * D] = {0}, v[3 * D], out[MOST * D];
    for (size_t i = 0; i < 3 * D; i++)
        v[i] = 0x1p-130f;
    for (int isa = 0; mha_isa_at((size_t)isa); isa++) {
        assert_int_equal(mha_isa_select(mha_isa_at((size_t)isa), NULL), MHA_OK);
        for (size_t n = 0; n < 3; n++) {
            mha_call call = {.query = mha_view_of(q, MHA_F32, 4, (size_t[]){1, rows[n], 1, D}),
                             .key = mha_view_of(k, MHA_F32, 4, (size_t[]){1, 3, 1, D}),
                             .value = mha_view_of(v, MHA_F32, 4, (size_t[]){1, 3, 1, D}),
                             .output = mha_view_of(out, MHA_F32, 4, (size_t[]){1, rows[n], 1, D}),
                             .precision = mha_precision_of(MHA_BF16),
                             .path = MHA_PATH_FAST,
                             .threads = 1};
            run_call(NULL, &call);
            for (size_t i = 0; i < rows[n] * D; i++)
                assert_true(out[i] == 0);
        }
    }
    assert_int_equal(mha_isa_select("auto", NULL), MHA_OK);
}

/* Two keys with scores 0 and -x and values -a and 1, where a is exp(-x) rounded to BF16: the output is 0 if and only if
 * what meets the values is rounded, and the denominator, whose log is kept, adds the unrounded one. */
static void probabilities_are_rounded_and_their_sum_is_not(void **state)
{
    (void)state;
    const float x = 1.3125f, e = expf(-x), a = mha__bf16_to_f32(mha__f32_to_bf16(e));
    float q = 1, K[2] = {0, -x}, V[2] = {-a, 1}, out, lse;
    const size_t one[4] = {1, 1, 1, 1}, two[4] = {1, 2, 1, 1};
    assert_true(a != e);
    for (size_t p = 0; p < 2; p++) {
        mha_keep keep = {.stage = MHA_STAGE_LSE, .view = mha_view_of(&lse, MHA_F32, 3, one)};
        mha_call call = {.query = mha_view_of(&q, MHA_F32, 4, one),
                               .key = mha_view_of(K, MHA_F32, 4, two),
                               .value = mha_view_of(V, MHA_F32, 4, two),
                               .output = mha_view_of(&out, MHA_F32, 4, one),
                               .semantics = {.softmax = {.has_scale = true, .scale = 1}},
                               .precision = mha_precision_of(MHA_BF16),
                               .keep = &keep,
                               .keep_count = 1,
                               .path = paths[p],
                               .threads = 1};
        run_call(NULL, &call);
        assert_true(out == 0);
        assert_true(fabs((double)lse - log(1 + (double)e)) < 1e-6);
        assert_true(fabs(log(1 + (double)a) - log(1 + (double)e)) > 1e-5);
    }
}

/* Every kind of bits, with 0 to 16 neighbours: as a single number is rounded. */
static void many_floats_are_rounded_as_one_is(void **state)
{
    (void)state;
    enum { MOST = 33 };
    static const uint32_t low[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    uint32_t bits[MOST], found[MOST];
    float x[MOST], y[MOST];
    for (uint32_t high = 0, at = 0; high <= 0xFFFF; high++)
        for (size_t l = 0; l < sizeof low / sizeof *low; l++) {
            bits[at++] = high << 16 | low[l];
            if (at < MOST)
                continue;
            const size_t n = MOST - high % 17;
            memcpy(x, bits, sizeof x);
            memcpy(y, bits, sizeof y);
            mha__kernels_get()->round_to_bf16(n, x, y);
            memcpy(found, y, sizeof found);
            for (size_t i = 0; i < MOST; i++)
                assert_int_equal(found[i], i < n ? (uint32_t)mha__f32_to_bf16(x[i]) << 16 : bits[i]);
            at = 0;
        }
}

/* ---------------------------------------------------------------- the same bits */

enum { B = 3, T = 37, D_MODEL = 48, N = B * T * D_MODEL };

typedef struct problem {
    mha_params *table;
    mha_layer *layer;
    float *x;
} problem;

static problem make(mha_dtype dtype)
{
    const mha_config config = {.d_model = D_MODEL, .n_heads = 6, .kv_heads = 2, .dtype = dtype, .bias_q = true};
    mha_error error;
    problem p;
    assert_true(mha_params_create(NULL, &p.table, NULL) == MHA_OK);
    assert_ok(mha_layer_create(&config, p.table, "a", &p.layer, &error), error);
    mha_layer_init(p.layer, 3);
    p.x = malloc(N * sizeof *p.x);
    for (size_t i = 0; i < N; i++)
        p.x[i] = 4.0f * mha__random_unit(5, 1, i) - 2.0f;
    return p;
}

static void unmake(problem *p)
{
    free(p->x);
    mha_layer_destroy(p->layer);
    mha_params_destroy(p->table);
}

static mha_call call_of(const problem *p, mha_path path, size_t rows, float *out)
{
    const size_t shape[3] = {rows, T, D_MODEL};
    return (mha_call){.query = mha_view_of(p->x, MHA_F32, 3, shape),
                      .output = mha_view_of(out, MHA_F32, 3, shape),
                      .semantics = {.visible.causal = true},
                      .precision = mha_precision_of(MHA_BF16),
                      .path = path,
                      .threads = 1};
}

static void the_same_bits_for_any_threads_company_and_strides(void **state)
{
    (void)state;
    enum { GAP = 5 };
    mha_error error;
    problem p = make(MHA_BF16);
    float *expected = malloc(N * sizeof *expected), *out = malloc(N * sizeof *out);
    float *wide = malloc((size_t)B * T * (D_MODEL + GAP) * sizeof *wide);
    for (size_t i = 0; i < (size_t)B * T; i++)
        memcpy(wide + i * (D_MODEL + GAP), p.x + i * D_MODEL, D_MODEL * sizeof *wide);
    for (size_t k = 0; k < 4; k++) { /* both paths, then both with packed weights */
        const mha_path path = paths[k % 2];
        if (k == 2)
            assert_ok(mha_layer_pack(p.layer, &error), error);
        mha_call call = call_of(&p, path, B, expected);
        run_call(p.layer, &call);
        call = call_of(&p, path, B, out);
        call.threads = 2;
        run_call(p.layer, &call);
        assert_memory_equal(out, expected, N * sizeof *out);
        call = call_of(&p, path, 1, out);
        run_call(p.layer, &call);
        assert_memory_equal(out, expected, N / B * sizeof *out);
        call = call_of(&p, path, B, out);
        call.query.data = wide;
        call.query.stride[0] = (ptrdiff_t)T * (D_MODEL + GAP), call.query.stride[1] = D_MODEL + GAP;
        run_call(p.layer, &call);
        assert_memory_equal(out, expected, N * sizeof *out);
        call = call_of(&p, path, B, out); /* the key is another array of the same numbers */
        call.key = call.query, call.key.data = memcpy(wide, p.x, N * sizeof *wide);
        run_call(p.layer, &call);
        assert_memory_equal(out, expected, N * sizeof *out);
        for (size_t i = 0; i < N; i++) /* inputs are rounded: those that are rounded already change nothing */
            wide[i] = mha__bf16_to_f32(mha__f32_to_bf16(p.x[i]));
        assert_memory_not_equal(wide, p.x, N * sizeof *wide);
        call = call_of(&p, path, B, out);
        call.query.data = wide;
        run_call(p.layer, &call);
        assert_memory_equal(out, expected, N * sizeof *out);
        for (size_t i = 0; i < (size_t)B * T; i++)
            memcpy(wide + i * (D_MODEL + GAP), p.x + i * D_MODEL, D_MODEL * sizeof *wide);
    }
    free(wide);
    free(out);
    free(expected);
    unmake(&p);
}

/* A plan whose key was the query is moved to another key: that one is rounded, too, and attended to. */
static void a_key_that_is_moved_is_another_key(void **state)
{
    (void)state;
    problem p = make(MHA_BF16);
    float *expected = malloc(N * sizeof *expected), *out = malloc(N * sizeof *out), *key = malloc(N * sizeof *key);
    for (size_t i = 0; i < N; i++)
        key[i] = -p.x[N - 1 - i];
    for (size_t k = 0; k < 2; k++) {
        mha_call call = call_of(&p, paths[k], B, expected);
        mha_plan plan = run_call(p.layer, &call);
        mha_error error;
        void *workspace = malloc(plan.workspace_bytes);
        assert_ok(mha_plan_move(&plan, NULL, key, NULL, out, &error), error);
        assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
        free(workspace);
        call.key = call.query, call.key.data = key;
        run_call(p.layer, &call);
        assert_memory_equal(out, expected, N * sizeof *out);
    }
    free(key);
    free(out);
    free(expected);
    unmake(&p);
}

/* Keys and values go into a cache as they are attended to: a cache of BF16 changes no bit. */
static void a_cache_of_bf16_has_what_was_rounded(void **state)
{
    (void)state;
    mha_error error;
    problem p = make(MHA_BF16);
    float *expected = malloc(N * sizeof *expected), *out = malloc(N * sizeof *out);
    for (size_t k = 0; k < 2; k++) {
        mha_cache *cache;
        const mha_cache_spec spec = {
            .batch = B, .kv_heads = 2, .d_k = 8, .d_v = 8, .capacity = T, .dtype = MHA_BF16};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        mha_call call = call_of(&p, paths[k], B, expected);
        run_call(p.layer, &call);
        call = call_of(&p, paths[k], B, out);
        call.cache = cache;
        run_call(p.layer, &call);
        assert_memory_equal(out, expected, N * sizeof *out);
        mha_cache_destroy(cache);
    }
    free(out);
    free(expected);
    unmake(&p);
}

/* ---------------------------------------------------------------- beside PyTorch */

/* A tensor (B, h, T, d) of a file as float64. */
static double *read_of(const mha_file *file, const char *name, size_t shape[4])
{
    mha_error error;
    const mha_file_tensor *tensor = mha_file_find(file, name);
    assert_non_null(tensor);
    memcpy(shape, tensor->shape, 4 * sizeof *shape);
    double *x = malloc(shape[0] * shape[1] * shape[2] * shape[3] * sizeof *x);
    const mha_view to = mha_view_of(x, MHA_F64, 4, shape);
    assert_ok(mha_file_read(file, tensor, &to, &error), error);
    return x;
}

/* PyTorch's results in bfloat16 and in float64: each of our errors is within the tolerance of the file, and the
 * mean of their squares is no larger than PyTorch's but by chance: three standard errors of the difference, by rows. */
static void no_further_from_float64_than_pytorch(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/vectors/sdpa_causal_bf16.safetensors",
                                        "tests/vectors/flex_score_mod_bf16.safetensors"};
    enum { MOST = 512 };
    for (size_t f = 0; f < 2; f++) {
        mha_case *c;
        mha_file *file;
        mha_error error;
        size_t s[4];
        assert_ok(mha_case_open(files[f], NULL, &c, &error), error);
        assert_ok(mha_file_open(files[f], &file, &error), error);
        double *theirs = read_of(file, "expected.output", s), *exact = read_of(file, "expected64.output", s);
        const double atol = strtod(mha_file_metadata(file, "atol.expected.output"), NULL);
        for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++) {
            float out[MOST];
            mha_call call = mha_case_call(c);
            assert_true(atol > 0 && s[0] * s[1] * s[2] * s[3] <= MOST);
            call.output = mha_rows(out, s[0], s[2], s[1] * s[3]);
            call.path = (mha_path)path, call.precision = mha_precision_of(MHA_BF16);
            assert_ok(mha_run(NULL, &call, &error), error);
            double sum = 0, squares = 0, rows = 0;
            for (size_t b = 0; b < s[0]; b++)
                for (size_t h = 0; h < s[1]; h++)
                    for (size_t t = 0; t < s[2]; t++, rows++) {
                        double more = 0;
                        for (size_t i = 0; i < s[3]; i++) {
                            const size_t at = ((b * s[1] + h) * s[2] + t) * s[3] + i;
                            const double mine = (double)out[((b * s[2] + t) * s[1] + h) * s[3] + i] - exact[at];
                            assert_true(fabs(mine) <= atol);
                            more += mine * mine - (theirs[at] - exact[at]) * (theirs[at] - exact[at]);
                        }
                        sum += more, squares += more * more;
                    }
            const double mean = sum / rows, spread = sqrt(squares / rows - mean * mean);
            assert_true(mean <= 3 * spread / sqrt(rows));
        }
        free(theirs), free(exact);
        mha_file_close(file);
        mha_case_close(c);
    }
}

/* ---------------------------------------------------------------- refused */

static void refused(const problem *p, mha_call *call, const char *field, const char *says)
{
    mha_plan plan;
    mha_error error;
    const mha_status status = mha_plan_call(p->layer, call, &plan, &error);
    if (status != MHA_UNSUPPORTED)
        fail_msg("%s: %s", error.name, error.message);
    if (strcmp(error.name, field) != 0 || !strstr(error.message, says))
        fail_msg("expected %s and \"%s\", found %s: %s", field, says, error.name, error.message);
}

static void what_has_no_products_of_bf16_is_refused(void **state)
{
    (void)state;
    static const mha_dtype others[] = {MHA_F32, MHA_F16, MHA_I8};
    mha_error error;
    problem p = make(MHA_BF16), wide = make(MHA_F32);
    float *out = malloc(N * sizeof *out);
    for (size_t k = 0; k < 2; k++) {
        mha_call call = call_of(&p, paths[k], B, out);
        call.precision = mha_precision_of(MHA_F16);
        refused(&p, &call, "precision", "expected BF16");
        call.precision = mha_precision_of(MHA_BF16);
        call.precision.sums = MHA_BF16;
        refused(&p, &call, "precision", "expected BF16");
        call.precision = mha_precision_of(MHA_BF16);
        refused(&wide, &call, "W_Q", "expected BF16 for products of BF16, found F32");
        for (size_t d = 0; d < 3; d++) {
            const mha_cache_spec spec = {
                .batch = B, .kv_heads = 2, .d_k = 8, .d_v = 8, .capacity = T, .dtype = others[d]};
            assert_ok(mha_cache_create(&spec, NULL, &call.cache, &error), error);
            refused(&p, &call, "cache", mha_dtype_name(others[d]));
            mha_cache_destroy(call.cache);
        }
        float rows[2][2 * 8];
        const mha_view row_view = mha_view_of(rows, MHA_F32, 4, (size_t[]){1, 1, 2, 8}),
                       extra = mha_view_of(rows, MHA_F32, 1, (size_t[]){16});
        const mha_view weights[MHA_WEIGHT_COUNT] = {[MHA_BIAS_K] = extra, [MHA_BIAS_V] = extra};
        mha_call bare = {.query = row_view,
                         .key = row_view,
                         .value = row_view,
                         .weights = weights,
                         .weight_count = MHA_WEIGHT_COUNT,
                         .precision = mha_precision_of(MHA_BF16),
                         .path = paths[k],
                         .threads = 1};
        refused(&(problem){.layer = NULL}, &bare, "bias_k", "expected BF16 for products of BF16, found F32");
        const mha_view pool = mha_view_of(rows, MHA_F32, 4, (size_t[]){1, 2, 2, 8});
        call.cache = NULL;
        call.pages = (mha_pages){.keys = pool, .values = pool, .table = (int32_t[B]){0}, .columns = 1,
                                 .lengths = (int64_t[B]){1, 1, 1}};
        refused(&p, &call, "page keys", "expected BF16 for products of BF16, found F32");
    }
    float row[8];
    double partial[10];
    const mha_view one = mha_view_of(row, MHA_F32, 4, (size_t[]){1, 1, 1, 8});
    mha_call part = {.query = one,
                     .key = one,
                     .value = one,
                     .path = MHA_PATH_EXACT,
                     .threads = 1,
                     .partial = mha_view_of(partial, MHA_F64, 4, (size_t[]){1, 1, 1, 10}),
                     .precision = mha_precision_of(MHA_BF16)};
    refused(&(problem){.layer = NULL}, &part, "precision", "with `partial`");
    free(out);
    unmake(&wide);
    unmake(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_forwards_stay_within_the_tolerance_of_bf16),
                                       cmocka_unit_test(rounding_early_or_late_and_pairs_change_no_bit),
                                       cmocka_unit_test(widths_windows_and_infinities_change_no_bit),
                                       cmocka_unit_test(subnormals_count_as_zero_in_any_company),
                                       cmocka_unit_test(probabilities_are_rounded_and_their_sum_is_not),
                                       cmocka_unit_test(many_floats_are_rounded_as_one_is),
                                       cmocka_unit_test(the_same_bits_for_any_threads_company_and_strides),
                                       cmocka_unit_test(a_key_that_is_moved_is_another_key),
                                       cmocka_unit_test(a_cache_of_bf16_has_what_was_rounded),
                                       cmocka_unit_test(no_further_from_float64_than_pytorch),
                                       cmocka_unit_test(what_has_no_products_of_bf16_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
