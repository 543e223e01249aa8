/* Comparison, case files, the checker: on tensors made by hand, on cases written here, on recorded ones. */
#include "support/unit.h"

#include <dirent.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/call.h"
#include "support/opening.h"
#include "support/recase.h"
#include "support/scratch.h"
#include "support/verdict.h"
#include "mha/lab.h"
#include "support/stages.h"

/* ---------------------------------------------------------------- comparison */

static mha_difference compare(const mha_view *a, const mha_view *e, double rtol, double atol)
{
    mha_difference d;
    mha_error error;
    assert_ok(mha_compare(a, e, rtol, atol, &d, &error), error);
    return d;
}

static mha_view floats(float *data, size_t rows, size_t columns)
{
    return mha_view_of(data, MHA_F32, 2, (const size_t[]){rows, columns});
}

static void test_compare_equal(void **state)
{
    (void)state;
    float a[] = {1, -2, NAN, INFINITY, -INFINITY, 0.0f}, e[] = {1, -2, NAN, INFINITY, -INFINITY, -0.0f};
    mha_view va = floats(a, 2, 3), ve = floats(e, 2, 3);
    mha_difference d = compare(&va, &ve, 0, 0);
    assert_int_equal(d.elements, 6);
    assert_int_equal(d.mismatches, 0);
    assert_true(d.max_abs == 0 && d.max_rel == 0 && d.max_ulp == 0 && d.rms == 0);
    assert_true(d.tolerance_needed == 0 && d.tolerance_factor == 0);
    assert_true(fabs(d.cosine - 1) < 1e-15); /* of (1, -2, 0) with itself */
    assert_int_equal(d.nan_actual, 1);
    assert_int_equal(d.nan_expected, 1);
    assert_int_equal(d.inf_actual, 2);
    assert_int_equal(d.inf_expected, 2);
}

static void test_compare_values(void **state)
{
    (void)state;
    float a[] = {1, 2, 3.5f, 4}, e[] = {1, 2.25f, 3, 4};
    mha_view va = floats(a, 2, 2), ve = floats(e, 2, 2);
    mha_difference d = compare(&va, &ve, 0.125, 0.1); /* tolerances 0.225, 0.38125, 0.475, 0.6 */
    assert_int_equal(d.mismatches, 1);
    assert_true(d.max_abs == 0.5);
    assert_true(d.max_rel == 0.5 / 3);
    assert_true(d.tolerance_needed == 0.5 - 0.125 * 3);
    assert_true(d.tolerance_factor == 0.5 / (0.1 + 0.125 * 3));
    assert_true(fabs(d.rms - sqrt((0.0625 + 0.25) / 4)) < 1e-15);
    double dot = 1 + 4.5 + 10.5 + 16, na = 1 + 4 + 12.25 + 16, ne = 1 + 5.0625 + 9 + 16;
    assert_true(fabs(d.cosine - dot / sqrt(na * ne)) < 1e-15);
    assert_int_equal(d.rank, 2);
    assert_int_equal(d.worst_index[0], 1);
    assert_int_equal(d.worst_index[1], 0);
    assert_true(d.worst_actual == 3.5 && d.worst_expected == 3);
    /* The needed tolerance is enough, and less is not. */
    assert_int_equal(compare(&va, &ve, 0.125, d.tolerance_needed).mismatches, 0);
    assert_int_equal(compare(&va, &ve, 0.125, d.tolerance_needed * (1 - 1e-12)).mismatches, 1);
}

static void test_compare_one_sided(void **state)
{
    (void)state;
    static const float pairs[][2] = {{NAN, 1},       {1, NAN}, {INFINITY, 1}, {1, -INFINITY}, {INFINITY, -INFINITY},
                                     {NAN, INFINITY}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        float a[] = {0, pairs[i][0]}, e[] = {0, pairs[i][1]};
        mha_view va = floats(a, 1, 2), ve = floats(e, 1, 2);
        mha_difference d = compare(&va, &ve, 1, 1e30);
        assert_int_equal(d.mismatches, 1);
        assert_true(isinf(d.max_abs) && isinf(d.max_rel) && isinf(d.max_ulp) && isinf(d.rms));
        assert_true(isinf(d.tolerance_needed) && isinf(d.tolerance_factor));
        assert_int_equal(d.worst_index[1], 1);
    }
}

/* The tolerance said to be needed is enough when it is added to the relative part again, in double. */
static void test_compare_needed_is_enough(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4000; i++) {
        double a = (double)mha__random_bits(11, 0, i) * 0x1p-64, e = (double)mha__random_bits(11, 1, i) * 0x1p-64;
        const double rtol = (double)mha__random_bits(11, 2, i) * 0x1p-64;
        mha_view va = mha_view_of(&a, MHA_F64, 1, (const size_t[]){1}),
                 ve = mha_view_of(&e, MHA_F64, 1, (const size_t[]){1});
        mha_difference d = compare(&va, &ve, rtol, 0);
        if (compare(&va, &ve, rtol, d.tolerance_needed).mismatches != 0)
            fail_msg("%.17g and %.17g with %.17g: %.17g is not enough", a, e, rtol, d.tolerance_needed);
    }
}

static void test_compare_ulps(void **state)
{
    (void)state;
    const struct {
        float a, e;
        double ulp;
    } rows[] = {{1, nextafterf(1, 2), 1},
                {1, nextafterf(1, 0), 1},
                {0.0f, -0.0f, 0},
                {nextafterf(0, 1), nextafterf(0, -1), 2}, /* through both zeros, which are one value */
                {1, 2, 0x1p23},
                {-FLT_MAX, FLT_MAX, 2.0 * 0x7f7fffff}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float a = rows[i].a, e = rows[i].e;
        mha_view va = floats(&a, 1, 1), ve = floats(&e, 1, 1);
        assert_true(compare(&va, &ve, 0, 0).max_ulp == rows[i].ulp);
    }
    double x = 1, y = nextafter(1, 2);
    float z = 1;
    mha_view vx = mha_view_of(&x, MHA_F64, 0, NULL), vy = mha_view_of(&y, MHA_F64, 0, NULL),
             vz = mha_view_of(&z, MHA_F32, 0, NULL);
    assert_true(compare(&vx, &vy, 0, 0).max_ulp == 1); /* float64 on both sides */
    assert_true(compare(&vz, &vy, 0, 0).max_ulp == 0); /* 1 + 2^-52 is 1 in float32 */
    assert_true(compare(&vz, &vy, 0, 0).max_abs == 0x1p-52);
}

static void test_compare_strided(void **state)
{
    (void)state;
    float a[] = {1, 9, 2, 9, 3, 9, 4, 9}, e[] = {1, 3, 2, 4.5f}; /* every second of a; e transposed */
    mha_view va = {.data = a, .dtype = MHA_F32, .rank = 2, .shape = {2, 2}, .stride = {4, 2}};
    mha_view ve = {.data = e, .dtype = MHA_F32, .rank = 2, .shape = {2, 2}, .stride = {1, 2}};
    mha_difference d = compare(&va, &ve, 0, 0);
    assert_int_equal(d.mismatches, 1);
    assert_int_equal(d.worst_index[0], 1);
    assert_int_equal(d.worst_index[1], 1);
    assert_true(d.worst_actual == 4 && d.worst_expected == 4.5);

    uint16_t half[] = {mha__f32_to_f16(1), mha__f32_to_f16(2), mha__f32_to_f16(3), mha__f32_to_f16(4)};
    mha_view vh = mha_view_of(half, MHA_F16, 2, (const size_t[]){2, 2});
    assert_int_equal(compare(&va, &vh, 0, 0).mismatches, 0);
}

/* Squares of these overflow or vanish; the norms do not. */
static void test_compare_extreme(void **state)
{
    (void)state;
    double a[] = {1e300, -1e300}, e[] = {1e300, -2e300}, s[] = {1e-300, -1e-300}, t[] = {1e-300, -2e-300};
    const size_t two = 2;
    mha_view va = mha_view_of(a, MHA_F64, 1, &two), ve = mha_view_of(e, MHA_F64, 1, &two);
    mha_view vs = mha_view_of(s, MHA_F64, 1, &two), vt = mha_view_of(t, MHA_F64, 1, &two);
    mha_difference d = compare(&va, &ve, 0, 0), f = compare(&vs, &vt, 0, 0);
    assert_true(fabs(d.rms / (1e300 / sqrt(2)) - 1) < 1e-14);
    assert_true(fabs(f.rms / (1e-300 / sqrt(2)) - 1) < 1e-14);
    assert_true(fabs(d.cosine - 3 / sqrt(10)) < 1e-14);
    assert_true(fabs(f.cosine - 3 / sqrt(10)) < 1e-14);
}

static void test_compare_refusals(void **state)
{
    (void)state;
    float a[6] = {0};
    mha_view v23 = floats(a, 2, 3), v32 = floats(a, 3, 2),
             quantised = mha_view_of(a, MHA_Q8_0, 1, (const size_t[]){32});
    mha_difference d;
    mha_error error;
    assert_refused(mha_compare(&v23, &v32, 0, 0, &d, &error), MHA_INVALID, error, "(2, 3)", "(3, 2)");
    assert_refused(mha_compare(&v23, &v23, -1, 0, &d, &error), MHA_INVALID, error, "-1");
    assert_refused(mha_compare(&v23, &v23, 0, NAN, &d, &error), MHA_INVALID, error, "nan");
    assert_refused(mha_compare(&quantised, &quantised, 0, 0, &d, &error), MHA_UNSUPPORTED, error, "Q8_0");
    mha_view empty = floats(NULL, 0, 3);
    assert_int_equal(compare(&empty, &empty, 0, 0).mismatches, 0);
}

/* ---------------------------------------------------------------- cases written here */

static const char *file_named(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.safetensors", name);
    return scratch_path(file);
}

/* A small layer with its call and all stages, run on a path. */
typedef struct scene {
    mha_params *params;
    mha_layer *layer;
    mha_call call;
    mha_keep list[MHA_STAGE_COUNT];
    float query[2 * 5 * 12], key[2 * 7 * 12];
    double kept[MHA_STAGE_COUNT][1024];
    char *workspace;
} scene;

enum { B = 2, T_Q = 5, T_K = 7, WIDTH = 12, HEADS = 3 };

static void scene_open(scene *s, mha_path path)
{
    mha_error error;
    *s = (scene){0};
    mha_config config = {
        .d_model = WIDTH, .n_heads = HEADS, .bias_q = true, .bias_k = true, .bias_v = true, .bias_o = true};
    assert_int_equal(mha_params_create(NULL, &s->params, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, s->params, NULL, &s->layer, &error), error);
    mha_layer_init(s->layer, 1);
    s->call.query = mha_view_of(s->query, MHA_F32, 3, (const size_t[]){B, T_Q, WIDTH});
    s->call.key = mha_view_of(s->key, MHA_F32, 3, (const size_t[]){B, T_K, WIDTH});
    mha_random_fill(&s->call.query, 2, 0, -1, 1);
    mha_random_fill(&s->call.key, 2, 1, -1, 1);
    s->call.path = path;
    s->call.semantics.visible.causal = true;
    s->call.semantics.place.has_offset = true;
    s->call.semantics.place.offset = 2;
}

static void scene_run(scene *s)
{
    mha_error error;
    mha_plan plan;
    assert_ok(mha_plan_call(s->layer, &s->call, &plan, &error), error);
    mha_dtype dtype = s->call.path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    stages_list(&s->call, s->list);
    for (int i = 0; i < EVERY_STAGE; i++) {
        mha_view *view = stage_view(&s->call, (mha_stage)i);
        *view = stage_of_plan(&plan, (mha_stage)i, s->kept[i], dtype);
        assert_true(mha_view_elements(view) <= 1024);
    }
    assert_ok(mha_plan_call(s->layer, &s->call, &plan, &error), error);
    s->workspace = malloc(plan.workspace_bytes);
    assert_ok(mha_forward(&plan, s->workspace, plan.workspace_bytes, &error), error);
}

static void scene_close(scene *s)
{
    free(s->workspace);
    mha_layer_destroy(s->layer);
    mha_params_destroy(s->params);
}

/* The order in which data flows. */
static const char *const flow[MHA_STAGE_COUNT] = {"q", "k", "v", "q_rot", "k_rot", "present_key", "present_value",
                                                  "scores", "capped", "masked", "lse", "weights", "weights_mean",
                                                  "heads", "output"};

/* The place of a stage in a verdict with all of them. */
static size_t place_of(mha_stage stage)
{
    size_t i = 0;
    while (strcmp(flow[i], mha_stage_at(stage)->name) != 0)
        i++;
    return i;
}

static void test_save_and_check(void **state)
{
    (void)state;
    static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_AUTO};
    for (int w = 0; w < 2; w++) {
        scene s;
        mha_error error;
        scene_open(&s, paths[w]);
        scene_run(&s);
        const char *path = file_named("saved");
        assert_ok(mha_case_save(path, s.layer, &s.call, NULL, &error), error);
        for (int p = 0; p < 3; p++) {
            mha_verdict v = check(path, paths[p], NULL);
            if (v.outcome != MHA_OUTCOME_PASSED)
                fail_msg("saved by %s, checked by %s: %s", mha_path_name(paths[w]), mha_path_name(paths[p]), v.reason);
            assert_int_equal(v.stage_count, EVERY_STAGE);
            for (size_t i = 0; i < v.stage_count; i++)
                assert_string_equal(v.stages[i].name, flow[i]);
            mha_verdict_clear(&v);
        }
        scene_close(&s);
    }
}

/* Each wrong stage is named, and before any later one that is wrong too. */
static void test_culprit(void **state)
{
    (void)state;
    scene s;
    mha_error error;
    scene_open(&s, MHA_PATH_EXACT);
    scene_run(&s);
    for (int i = 0; i < EVERY_STAGE; i++) {
        double *later = &s.kept[MHA_STAGE_OUTPUT][3], keep_later = *later, *element = &s.kept[i][2], keep = *element;
        *later += 0.5;
        *element += 0.25; /* hidden scores are -inf, and stay so: element 2 is visible to row 0 */
        const char *path = file_named("perturbed");
        assert_ok(mha_case_save(path, s.layer, &s.call, NULL, &error), error);
        mha_verdict v = check(path, MHA_PATH_EXACT, NULL);
        assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
        assert_int_equal(v.culprit, place_of((mha_stage)i));
        for (size_t k = 0; k < v.stage_count; k++)
            assert_string_equal(v.stages[k].name, flow[k]); /* nothing is moved to the top */
        assert_non_null(strstr(v.reason, mha_stage_at((mha_stage)i)->name));
        const mha_stage_verdict *row = &v.stages[place_of((mha_stage)i)];
        assert_false(row->ok);
        assert_true(row->difference.mismatches >= 1);
        size_t flat = 0;
        for (int k = 0; k < row->difference.rank; k++)
            flat = flat * stage_view(&s.call, (mha_stage)i)->shape[k] + row->difference.worst_index[k];
        assert_int_equal(flat, i == MHA_STAGE_OUTPUT ? 3 : 2);
        assert_true(row->yours == s.kept[i][flat]); /* the recorded number is called yours */
        assert_true(fabs(row->exact - (i == MHA_STAGE_OUTPUT ? keep_later : keep)) < 1e-9);
        mha_verdict_clear(&v);
        v = check(path, MHA_PATH_EXACT, i ? "q" : "k"); /* only one stage, and not the wrong one */
        assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
        assert_int_equal(v.stage_count, 1);
        mha_verdict_clear(&v);
        *element = keep;
        *later = keep_later;
    }
    scene_close(&s);
}

/* The head with the wrong numbers is named. */
static void test_worst_head(void **state)
{
    (void)state;
    scene s;
    mha_error error;
    scene_open(&s, MHA_PATH_EXACT);
    scene_run(&s);
    s.kept[MHA_STAGE_WEIGHTS][2 * T_Q * T_K] += 0.5; /* batch 0, head 2 */
    s.kept[MHA_STAGE_HEADS][WIDTH / HEADS] += 0.5;   /* row 0, first column of head 1 */
    assert_ok(mha_case_save(file_named("head"), s.layer, &s.call, NULL, &error), error);
    mha_verdict v = check(file_named("head"), MHA_PATH_EXACT, NULL);
    assert_int_equal(v.stages[place_of(MHA_STAGE_WEIGHTS)].worst_head, 2);
    assert_int_equal(v.stages[place_of(MHA_STAGE_HEADS)].worst_head, 1);
    assert_int_equal(v.stages[place_of(MHA_STAGE_OUTPUT)].worst_head, -1);
    mha_verdict_clear(&v);
    scene_close(&s);
}

/* ---------------------------------------------------------------- companions of a case */

/* A layer of 4 heads over 2 key/value heads, d_k 4, with rotation, and its output saved. */
typedef struct group_scene {
    mha_params *params;
    mha_layer *layer;
    float x[2 * 6 * 8], output[2 * 6 * 8];
    mha_call call;
} group_scene;

enum { G_B = 2, G_T = 6, G_E = 8, G_H = 4, G_KV = 2, G_D = 4 };

static mha_view layer_weight(const mha_layer *layer, mha_weight w)
{
    return mha_tensor_view(mha_layer_weight(layer, w));
}

static void group_open(group_scene *s, const char *path, mha_rope_kind rope)
{
    mha_error error;
    memset(s, 0, sizeof *s);
    mha_config config = {.d_model = G_E, .n_heads = G_H, .kv_heads = G_KV, .d_k = G_D, .bias_k = true};
    assert_int_equal(mha_params_create(NULL, &s->params, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, s->params, NULL, &s->layer, &error), error);
    mha_layer_init(s->layer, 1);
    mha_view bias = layer_weight(s->layer, MHA_B_K);
    mha_random_fill(&bias, 5, 5, -1, 1);
    s->call.query = mha_view_of(s->x, MHA_F32, 3, (const size_t[]){G_B, G_T, G_E});
    mha_random_fill(&s->call.query, 2, 0, -2, 2);
    s->call.path = MHA_PATH_BLAS;
    s->call.semantics.visible.causal = true;
    s->call.semantics.qkv.rope.kind = rope;
    s->call.output = mha_view_of(s->output, MHA_F32, 3, (const size_t[]){G_B, G_T, G_E});
    run_call(s->layer, &s->call);
    assert_ok(mha_case_save(path, s->layer, &s->call, NULL, &error), error);
}

static void group_close(group_scene *s)
{
    mha_layer_destroy(s->layer);
    mha_params_destroy(s->params);
}

/* The verdict's row of that name; NULL when there is none. */
static const mha_stage_verdict *row_named(const mha_verdict *v, const char *name)
{
    for (size_t i = 0; i < v->stage_count; i++)
        if (strcmp(v->stages[i].name, name) == 0)
            return &v->stages[i];
    return NULL;
}

/* Passes as it is, and fails at `row`, on both float paths, when `*number` is changed. */
static void expect_checked(const char *from, const recase *changes, const char *row, float *number)
{
    static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS};
    for (int wrong = 0; wrong < 2; wrong++) {
        const char *path = file_named("companion");
        float keep = *number;
        *number += wrong ? 0.5f : 0;
        recase_write(from, path, changes);
        *number = keep;
        for (int p = 0; p < 2; p++) {
            mha_verdict v = check(path, paths[p], NULL);
            if ((v.outcome == MHA_OUTCOME_FAILED) != wrong)
                fail_msg("%s on %s: %s %s", row, mha_path_name(paths[p]), mha_outcome_name(v.outcome), v.reason);
            assert_non_null(row_named(&v, row));
            if (wrong)
                assert_string_equal(v.stages[v.culprit].name, row);
            mha_verdict_clear(&v);
            assert_true(check_with_failing_memory(path, paths[p], wrong ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED) > 5);
        }
    }
}

static void test_repeated(void **state)
{
    (void)state;
    group_scene s;
    const char *path = file_named("grouped");
    group_open(&s, path, MHA_ROPE_NONE);
    float W_k[G_E][G_H * G_D], W_v[G_E][G_H * G_D], b_k[G_H * G_D];
    const float *K = layer_weight(s.layer, MHA_W_K).data, *V = layer_weight(s.layer, MHA_W_V).data;
    const float *b = layer_weight(s.layer, MHA_B_K).data;
    for (size_t h = 0; h < G_H; h++)
        for (size_t f = 0; f < G_D; f++) {
            size_t from = h / (G_H / G_KV) * G_D + f;
            for (size_t i = 0; i < G_E; i++) {
                W_k[i][h * G_D + f] = K[i * G_KV * G_D + from];
                W_v[i][h * G_D + f] = V[i * G_KV * G_D + from];
            }
            b_k[h * G_D + f] = b[from];
        }
    const size_t matrix[] = {G_E, G_H * G_D};
    recase r = {.tensors = {{"repeated.W_k", mha_view_of(W_k, MHA_F32, 2, matrix)},
                            {"repeated.W_v", mha_view_of(W_v, MHA_F32, 2, matrix)},
                            {"repeated.b_k", mha_view_of(b_k, MHA_F32, 1, matrix + 1)}}};
    expect_checked(path, &r, "repeated.output", &W_v[3][5]);
    group_close(&s);
}

/* Interleaved pairs (2i, 2i+1) moved to (i, i + d/2). */
static void test_permuted(void **state)
{
    (void)state;
    static const char *const notes[] = {NULL, "permuted.W_q/W_k under rope=half_split give the same expected.output"};
    for (int n = 0; n < 2; n++) {
        group_scene s;
        const char *path = file_named("rotated");
        group_open(&s, path, MHA_ROPE_INTERLEAVED);
        float W_q[G_E][G_H * G_D], W_k[G_E][G_KV * G_D], b_k[G_KV * G_D];
        const float *Q = layer_weight(s.layer, MHA_W_Q).data, *K = layer_weight(s.layer, MHA_W_K).data;
        const float *b = layer_weight(s.layer, MHA_B_K).data;
        for (size_t h = 0; h < G_H; h++)
            for (size_t f = 0; f < G_D; f++) {
                size_t from = f < G_D / 2 ? 2 * f : 2 * (f - G_D / 2) + 1, to = h * G_D + f;
                for (size_t i = 0; i < G_E; i++) {
                    W_q[i][to] = Q[i * G_H * G_D + h * G_D + from];
                    if (h < G_KV)
                        W_k[i][to] = K[i * G_KV * G_D + h * G_D + from];
                }
                if (h < G_KV)
                    b_k[to] = b[h * G_D + from];
            }
        recase r = {.tensors = {{"permuted.W_q", mha_view_of(W_q, MHA_F32, 2, (const size_t[]){G_E, G_H * G_D})},
                                {"permuted.W_k", mha_view_of(W_k, MHA_F32, 2, (const size_t[]){G_E, G_KV * G_D})},
                                {"permuted.b_k", mha_view_of(b_k, MHA_F32, 1, (const size_t[]){G_KV * G_D})}},
                    .metadata = {{"note", notes[n]}}};
        expect_checked(path, &r, "permuted.output", &W_q[1][2]);
        group_close(&s);
    }
}

/* The last two rows as a step with a cache of the first four. */
static void test_prefill(void **state)
{
    (void)state;
    enum { P = 4, STEP = G_T - P };
    for (int rope = MHA_ROPE_NONE; rope <= MHA_ROPE_HALF_SPLIT; rope++) {
        group_scene whole;
        const char *path = file_named("whole"), *step = file_named("step");
        mha_error error;
        group_open(&whole, path, (mha_rope_kind)rope);
        float k[G_B][G_KV][P][G_D], v[G_B][G_KV][P][G_D], output[G_B][STEP][G_E];
        mha_call call = whole.call;
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        call.output = (mha_view){0};
        call.query = mha_view_slice(&whole.call.query, 1, 0, P);
        *stage_view(&call, MHA_STAGE_PRESENT_KEY) = mha_view_of(k, MHA_F32, 4, (const size_t[]){G_B, G_KV, P, G_D});
        *stage_view(&call, MHA_STAGE_PRESENT_VALUE) = mha_view_of(v, MHA_F32, 4, (const size_t[]){G_B, G_KV, P, G_D});
        run_call(whole.layer, &call);
        mha_case_notes notes = {.past_key = *stage_view(&call, MHA_STAGE_PRESENT_KEY),
                                .past_value = *stage_view(&call, MHA_STAGE_PRESENT_VALUE)};
        mha_cache_spec spec = {.batch = G_B, .kv_heads = G_KV, .d_k = G_D, .d_v = G_D, .capacity = G_T};
        assert_ok(mha_cache_create(&spec, NULL, &call.cache, &error), error);
        assert_ok(mha_cache_load(call.cache, &notes.past_key, &notes.past_value, &error), error);
        call.keep_count = 0;
        call.query = mha_view_slice(&whole.call.query, 1, P, STEP);
        call.output = mha_view_of(output, MHA_F32, 3, (const size_t[]){G_B, STEP, G_E});
        run_call(whole.layer, &call);
        assert_ok(mha_case_save(step, whole.layer, &call, &notes, &error), error);
        recase r = {.tensors = {{"prefill.query", whole.call.query},
                                {"expected.prefill_output", whole.call.output}},
                    .metadata = {{"rtol", "1e-5"}, {"atol", "1e-5"}}};
        expect_checked(step, &r, "prefill_output", &whole.output[7]);
        recase_write(step, file_named("companion"), &r);
        mha_verdict verdict = check(file_named("companion"), MHA_PATH_EXACT, NULL);
        assert_non_null(row_named(&verdict, "cached.output"));
        mha_verdict_clear(&verdict);
        mha_cache_destroy(call.cache);
        group_close(&whole);
    }
}

/* PyTorch's way to store the same weights; and one number of it wrong. */
static void test_torch_weights(void **state)
{
    (void)state;
    scene s;
    mha_error error;
    scene_open(&s, MHA_PATH_EXACT);
    scene_run(&s);
    const char *path = file_named("torch");
    assert_ok(mha_case_save(path, s.layer, &s.call, NULL, &error), error);
    static const mha_weight W[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O}, b[] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};
    float in[3 * WIDTH][WIDTH], in_bias[3 * WIDTH], out[WIDTH][WIDTH], out_bias[WIDTH];
    for (size_t p = 0; p < 4; p++)
        for (size_t j = 0; j < WIDTH; j++) {
            *(p < 3 ? &in_bias[p * WIDTH + j] : &out_bias[j]) = ((float *)layer_weight(s.layer, b[p]).data)[j];
            for (size_t i = 0; i < WIDTH; i++)
                *(p < 3 ? &in[p * WIDTH + j][i] : &out[j][i]) =
                    ((float *)layer_weight(s.layer, W[p]).data)[i * WIDTH + j];
        }
    const size_t tall[] = {3 * WIDTH, WIDTH}, square[] = {WIDTH, WIDTH};
    recase r = {.tensors = {{"torch.in_proj_weight", mha_view_of(in, MHA_F32, 2, tall)},
                            {"torch.in_proj_bias", mha_view_of(in_bias, MHA_F32, 1, tall)},
                            {"torch.out_proj.weight", mha_view_of(out, MHA_F32, 2, square)},
                            {"torch.out_proj.bias", mha_view_of(out_bias, MHA_F32, 1, square)}}};
    expect_checked(path, &r, "torch.in_proj_weight", &in[17][3]);
    expect_checked(path, &r, "torch.in_proj_bias", &in_bias[30]);
    expect_checked(path, &r, "torch.out_proj.weight", &out[2][3]);
    expect_checked(path, &r, "torch.out_proj.bias", &out_bias[0]);
    scene_close(&s);
}

/* query|key|value side by side, for the sdpa kind. */
static void test_packed(void **state)
{
    (void)state;
    enum { ROW = (G_H + 2 * G_KV) * G_D };
    float packed[G_B][G_T][ROW], output[G_B][G_T][G_H * G_D];
    mha_view all = mha_view_of(packed, MHA_F32, 3, (const size_t[]){G_B, G_T, ROW});
    mha_random_fill(&all, 4, 0, -1, 1);
    const size_t heads[] = {G_H, G_KV, G_KV}, start[] = {0, G_H * G_D, (G_H + G_KV) * G_D};
    mha_call call = {.path = MHA_PATH_BLAS};
    mha_view *views[] = {&call.query, &call.key, &call.value};
    for (int i = 0; i < 3; i++)
        *views[i] = (mha_view){.data = &packed[0][0][start[i]],
                               .rank = 4,
                               .shape = {G_B, G_T, heads[i], G_D},
                               .stride = {G_T * ROW, ROW, G_D, 1}};
    call.output = mha_view_of(output, MHA_F32, 3, (const size_t[]){G_B, G_T, G_H * G_D});
    run_call(NULL, &call);
    mha_error error;
    const char *path = file_named("sdpa");
    assert_ok(mha_case_save(path, NULL, &call, NULL, &error), error);
    recase r = {.tensors = {{"packed.qkv", all}}};
    expect_checked(path, &r, "packed.output", &packed[1][2][ROW - 1]);
}

/* Scores after the masks, where a hidden key's may be written as the lowest float. */
static void test_qk(void **state)
{
    (void)state;
    scene s;
    mha_error error;
    scene_open(&s, MHA_PATH_EXACT);
    scene_run(&s);
    const char *path = file_named("masked");
    assert_ok(mha_case_save(path, s.layer, &s.call, NULL, &error), error);
    static const mha_stage stages[] = {MHA_STAGE_SCORES, MHA_STAGE_CAPPED, MHA_STAGE_MASKED, MHA_STAGE_WEIGHTS};
    for (int mode = 0; mode < 4; mode++) {
        const mha_view *kept = stage_view(&s.call, stages[mode]);
        float qk[1024];
        mha_view v = mha_view_of(qk, MHA_F32, kept->rank, kept->shape);
        assert_int_equal(mha_view_copy(&v, kept, NULL), MHA_OK);
        if (mode == 2)
            for (size_t i = 0; i < mha_view_elements(&v); i++)
                qk[i] = isinf(qk[i]) ? -FLT_MAX : qk[i];
        char digit[] = {(char)('0' + mode), '\0'};
        recase r = {.drop = "expected",
                    .tensors = {{"expected.qk", v}},
                    .metadata = {{"qk_mode", digit}, {"rtol", "1e-5"}, {"atol", "1e-6"}}};
        expect_checked(path, &r, mha_stage_at(stages[mode])->name, &qk[0]);
        if (mode == 2) { /* a hidden key is no other number */
            for (size_t i = 0; i < mha_view_elements(&v); i++)
                qk[i] = qk[i] == -FLT_MAX ? -1e9f : qk[i];
            recase_write(path, file_named("companion"), &r);
            mha_verdict verdict = check(file_named("companion"), MHA_PATH_EXACT, NULL);
            assert_int_equal(verdict.outcome, MHA_OUTCOME_FAILED);
            mha_verdict_clear(&verdict);
        }
    }
    scene_close(&s);
}

/* Where float32 overflows, either recorded result will do, element by element; in float64 only its own. */
static void test_overflow(void **state)
{
    (void)state;
    scene s;
    mha_error error;
    scene_open(&s, MHA_PATH_EXACT);
    scene_run(&s);
    const char *path = file_named("overflow");
    assert_ok(mha_case_save(path, s.layer, &s.call, NULL, &error), error);
    const mha_view *kept = &s.call.output;
    float narrow[1024];
    mha_view v = mha_view_of(narrow, MHA_F32, kept->rank, kept->shape);
    assert_int_equal(mha_view_copy(&v, kept, NULL), MHA_OK);
    for (size_t i = 0; i < mha_view_elements(&v); i += 3)
        narrow[i] = NAN;
    double wide[1024];
    memcpy(wide, kept->data, mha_view_elements(&v) * sizeof *wide);
    const double keep = wide[1];
    mha_view other = mha_view_of(wide, MHA_F64, kept->rank, kept->shape);
    for (int tagged = 0; tagged < 3; tagged++) {
        wide[1] = tagged == 2 ? INFINITY : keep; /* there float32 has a number of its own */
        recase r = {
            .drop = "expected",
            .tensors = {{"expected.output", v}, {"expected64.output", other}},
            .metadata = {{"tags", tagged ? "base,overflow" : "base,overflowing"}, {"rtol", "1e-5"}, {"atol", "1e-6"}}};
        recase_write(path, file_named("companion"), &r);
        mha_verdict blas = check(file_named("companion"), MHA_PATH_BLAS, NULL);
        mha_verdict exact = check(file_named("companion"), MHA_PATH_EXACT, NULL);
        assert_int_equal(blas.outcome, tagged ? MHA_OUTCOME_PASSED : MHA_OUTCOME_FAILED);
        assert_int_equal(exact.outcome, tagged < 2 ? MHA_OUTCOME_PASSED : MHA_OUTCOME_FAILED);
        mha_verdict_clear(&blas);
        mha_verdict_clear(&exact);
    }
    scene_close(&s);
}

/* ---------------------------------------------------------------- cases that are not as they should be */

/* A case of kind sdpa with one change: a tensor or key more, replaced, or left out. */
typedef struct odd {
    const char *key, *value; /* metadata to set; value NULL: to leave out */
    const char *tensor;      /* to write, or with rank -1 to leave out */
    mha_dtype dtype;
    int rank;
    size_t shape[4];
} odd;

static void write_odd(const char *path, const odd *o)
{
    static double zeros[256];
    static float data[64];
    mha_error error;
    mha_writer *w;
    assert_ok(mha_writer_create(path, &w, &error), error);
    static const char *const tensors[] = {"query", "key", "value", "expected.output"};
    mha_view v = mha_view_of(data, MHA_F32, 3, (const size_t[]){1, 2, 4});
    for (size_t i = 0; i < 4; i++)
        if (!o->tensor || strcmp(o->tensor, tensors[i]) != 0)
            assert_ok(mha_writer_add(w, tensors[i], &v, &error), error);
    mha_view more = mha_view_of(zeros, o->dtype, o->rank, o->shape);
    if (o->tensor && o->rank >= 0)
        assert_ok(mha_writer_add(w, o->tensor, &more, &error), error);
    static const char *const keys[][2] = {{"kind", "sdpa"}, {"num_heads", "2"}, {"rtol", "0"}, {"atol", "0"}};
    bool set = false;
    for (size_t i = 0; i < 4; i++) {
        bool same = o->key && strcmp(o->key, keys[i][0]) == 0;
        set |= same;
        const char *value = same ? o->value : keys[i][1];
        if (value)
            assert_ok(mha_writer_add_metadata(w, keys[i][0], value, &error), error);
    }
    if (o->key && !set && o->value)
        assert_ok(mha_writer_add_metadata(w, o->key, o->value, &error), error);
    assert_ok(mha_writer_commit(w, &error), error);
    mha_writer_destroy(w);
}

static void test_plain_odd_case(void **state)
{
    (void)state;
    write_odd(file_named("plain"), &(odd){0});
    mha_verdict v = check(file_named("plain"), MHA_PATH_EXACT, NULL);
    assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
    assert_int_equal(v.stage_count, 1);
    mha_verdict_clear(&v);
    mha_case *c;
    mha_error error;
    assert_ok(mha_case_open(file_named("plain"), NULL, &c, &error), error);
    assert_refused(mha_case_check(c, MHA_PATH_EXACT, "no_such_stage", 1, &v, &error), MHA_NOT_FOUND, error,
                   "no_such_stage");
    assert_refused(mha_case_check(c, MHA_PATH_COUNT, NULL, 1, &v, &error), MHA_INVALID, error, "path");
    assert_refused(mha_case_check(c, MHA_PATH_EXACT, NULL, -1, &v, &error), MHA_INVALID, error, "threads");
    mha_diagnosis d;
    assert_refused(mha_case_diagnose(c, NULL, -1, NULL, &d, &error), MHA_INVALID, error, "threads");
    mha_case_close(c);
}

static void test_skipped(void **state)
{
    (void)state;
    const struct {
        odd what;
        const char *reason;
    } rows[] = {
        {{.tensor = "future_tensor", .rank = 1, .shape = {2}}, "future_tensor"},
        {{.tensor = "expected.future", .rank = 1, .shape = {2}}, "expected.future"},
        {{.tensor = "permuted.query", .rank = 1, .shape = {2}}, "permuted.query"},
        {{.key = "future_key", .value = "1"}, "future_key"},
        {{.key = "atol.query", .value = "1"}, "atol.query"},
        {{.key = "format_version", .value = "2"}, "expected format_version 1, found 2"},
        {{.tensor = "expected.output", .rank = -1}, "goes into the case as `output`"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_odd(file_named("skipped"), &rows[i].what);
        mha_verdict v = check(file_named("skipped"), MHA_PATH_EXACT, NULL);
        assert_int_equal(v.outcome, MHA_OUTCOME_SKIPPED);
        if (!strstr(v.reason, rows[i].reason))
            fail_msg("expected a reason with %s, found %s", rows[i].reason, v.reason);
        mha_verdict_clear(&v);
    }
    /* Known, and not checked. */
    write_odd(file_named("known"), &(odd){.tensor = "expected_fast.output", .rank = 1, .shape = {2}});
    mha_verdict v = check(file_named("known"), MHA_PATH_EXACT, NULL);
    assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
    mha_verdict_clear(&v);
}

static void test_malformed(void **state)
{
    (void)state;
    const struct {
        odd what;
        const char *texts[3];
    } rows[] = {
        {{.key = "kind", .value = "linear"}, {"kind", "linear", "sdpa"}},
        {{.key = "layout", .value = "EBT"}, {"layout", "EBT", "BTE"}},
        {{.key = "layout", .value = "BHTD"}, {"query", "rank 4", "(1, 2, 4)"}},
        {{.key = "num_heads"}, {"num_heads", "expected 1, 2 or 4", "found none"}},
        {{.key = "num_heads", .value = "two"}, {"num_heads", "two", ""}},
        {{.key = "num_heads", .value = "2.5"}, {"num_heads", "2.5", ""}},
        {{.key = "num_heads", .value = "3"},
         {"num_heads", "expected 1, 2 or 4, as query, key and value are 4 wide", "found 3"}},
        {{.key = "kv_heads", .value = "3"}, {"kv_heads", "2", "3"}},
        {{.key = "d_k", .value = "5"}, {"d_k", "5", "2"}},
        {{.key = "batch", .value = "9"}, {"batch", "9", "1"}},
        {{.key = "scale", .value = "0.5x"}, {"scale", "0.5x", ""}},
        {{.key = "rtol", .value = "-1"}, {"rtol", "-1", ""}},
        {{.key = "causal", .value = "yes"}, {"causal", "yes", ""}},
        {{.key = "alibi", .value = "1"}, {"alibi_slopes", "found none", ""}},
        {{.key = "add_bias_kv", .value = "1"}, {"bias_k", "found none", ""}},
        {{.key = "rope", .value = "spiral"}, {"rope", "spiral", "half_split"}},
        {{.key = "attn_mask_kind", .value = "additive"}, {"attn_mask", "found none", ""}},
        {{.key = "attn_mask_kind", .value = "none", .tensor = "attn_mask", .rank = 2, .shape = {2, 2}},
         {"attn_mask", "none", "found one"}},
        {{.key = "attn_mask_kind", .value = "bool_true_keeps", .tensor = "attn_mask", .rank = 2, .shape = {2, 2}},
         {"attn_mask", "BOOL", "F32"}},
        {{.key = "attn_mask_kind", .value = "additive", .tensor = "attn_mask", .rank = 2, .shape = {3, 2}},
         {"mask", "(3, 2)", ""}},
        {{.tensor = "query", .rank = -1}, {"query", "found none", ""}},
        {{.tensor = "key", .rank = 3, .shape = {1, 3, 4}}, {"key", "3", "2"}},
        {{.tensor = "value", .rank = 3, .shape = {2, 2, 4}}, {"batch", "2", "1"}},
        {{.tensor = "query", .dtype = MHA_I64, .rank = 3, .shape = {1, 2, 4}}, {"query", "F32", "I64"}},
        {{.tensor = "expected.output", .rank = 3, .shape = {1, 2, 5}}, {"expected.output", "(1, 2, 4)", "(1, 2, 5)"}},
        {{.tensor = "expected.weights", .rank = 4, .shape = {1, 2, 2, 3}}, {"expected.weights", "(1, 2, 2, 2)", "3"}},
        {{.tensor = "expected.qk", .rank = 4, .shape = {1, 2, 2, 2}}, {"qk_mode", "missing", ""}},
        {{.tensor = "expected.prefill_output", .rank = 3, .shape = {1, 2, 4}}, {"prefill.query", "missing", ""}},
        {{.tensor = "past_key", .rank = 4, .shape = {1, 2, 3, 2}}, {"past_value", "expected one with past_key",
                                                                    "found none"}},
        {{.tensor = "kv_lengths", .dtype = MHA_I64, .rank = 1, .shape = {2}}, {"kv_lengths", "1", "2"}},
        {{.tensor = "W_q", .rank = 2, .shape = {4, 4}}, {"W_q", "sdpa", ""}},
        {{.tensor = "packed.qkv", .rank = 3, .shape = {1, 2, 11}}, {"packed.qkv", "12", "11"}},
        {{.tensor = "cos_cache", .rank = 2, .shape = {2, 1}}, {"cos_cache", "rope_sin", ""}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_odd(file_named("malformed"), &rows[i].what);
        mha_case *c = NULL;
        mha_error error = {0};
        assert_refused(mha_case_open(file_named("malformed"), NULL, &c, &error), MHA_INVALID, error, rows[i].texts[0],
                       rows[i].texts[1], rows[i].texts[2]);
    }
}

/* ---------------------------------------------------------------- recorded cases */

static void check_directory(const char *path, mha_path how)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    size_t passed = 0;
    char wrong[1024] = "";
    for (struct dirent *e; (e = readdir(d));) {
        const char *end = strstr(e->d_name, ".safetensors");
        if (!end || end[strlen(".safetensors")])
            continue;
        char file[1024];
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        mha_verdict v = check(file, how, NULL);
        passed += v.outcome == MHA_OUTCOME_PASSED;
        if (v.outcome != MHA_OUTCOME_PASSED && !*wrong)
            snprintf(wrong, sizeof wrong, "%s on %s: %s: %s", e->d_name, mha_path_name(how),
                     mha_outcome_name(v.outcome), v.reason);
        mha_verdict_clear(&v);
    }
    closedir(d);
    if (*wrong)
        fail_msg("%s", wrong);
    assert_true(passed > 0);
}

static void test_recorded(void **state)
{
    (void)state;
    const char *path = getenv("CONFORMANCE_DIR");
    if (!path || !*path)
        skip_because("CONFORMANCE_DIR names no folder of recorded cases");
    check_directory(path, MHA_PATH_EXACT);
    check_directory(path, MHA_PATH_BLAS);
    check_directory(path, MHA_PATH_AUTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare_equal),
        cmocka_unit_test(test_compare_values),
        cmocka_unit_test(test_compare_one_sided),
        cmocka_unit_test(test_compare_needed_is_enough),
        cmocka_unit_test(test_compare_ulps),
        cmocka_unit_test(test_compare_strided),
        cmocka_unit_test(test_compare_extreme),
        cmocka_unit_test(test_compare_refusals),
        cmocka_unit_test(test_save_and_check),
        cmocka_unit_test(test_culprit),
        cmocka_unit_test(test_worst_head),
        cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_permuted),
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_torch_weights),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_qk),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_plain_odd_case),
        cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
