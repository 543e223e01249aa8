/* The diagnosis: pairs of bugs planted and found again, nothing found in what is right. */
#include "support/unit.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bugs/oracle_bugs.h"
#include "support/recase.h"
#include "support/rerun.h"
#include "support/scratch.h"
#include "support/trial.h"
#include "verify/bugs/bugs.h"

/* ---------------------------------------------------------------- cases with a planted result */

/* A random forward saved as a case without results but its output; NULL for what a case has no word for. */
static const char *saved_trial(uint64_t seed, mha_path path, bool poison, bool pattern)
{
    trial t = trial_draw(seed);
    rig r;
    rerun again;
    mha_error error;
    t.input_dtype = MHA_F32;
    t.poison = poison;
    t.sequences = 0;
    t.amplitude = 0;
    t.dropout = path == MHA_PATH_EXACT ? t.dropout : 0;
    if (!pattern)
        t.segments = 0, t.listed = 0, t.semantics.visible.pattern = (mha_pattern){0};
    trial_build(&t, &r);
    rerun_init(&again, r.layer, &r.call, &r.past.keys, &r.past.values);
    assert_ok(rerun_run(&again, path, 1, TRIAL_OUTPUT, &error), error);
    mha_case_notes notes = {.past_key = r.past.keys, .past_value = r.past.values};
    const char *file = scratch_path("right.safetensors");
    const mha_view *key = r.call.key.data ? &r.call.key : &r.call.query;
    /* Positions of only the queries, with another number of keys, are checked in test_case_random. */
    const bool other = r.call.semantics.qkv.rope.q_positions.data && key->shape[1] != r.call.query.shape[1];
    mha_status status = other ? MHA_UNSUPPORTED : mha_case_save(file, r.layer, &again.call, &notes, &error);
    rerun_free(&again);
    trial_release(&r);
    if (status && status != MHA_UNSUPPORTED)
        fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
    return status ? NULL : file;
}

/* The case of `from` with another result: `planted` instead of everything expected. */
static const char *replant(const char *from, const char *name, const mha_view *planted)
{
    const char *path = scratch_path("planted.safetensors");
    recase_write(from, path, &(recase){.drop = "expected", .tensors = {{name, *planted}}});
    return path;
}

/* The output of a case under bugs, in the shape its file has; false when they do not apply. */
typedef struct output {
    mha_view view; /* (B, T, E), or (B, T, h, d) for cases without layer */
    double *data;
} output;

static bool compute(const mha_case *c, const char *const *bugs, size_t count, output *o)
{
    mha_error error;
    mha_call call = mha_case_call(c);
    size_t B = call.query.shape[0], T = call.query.shape[1];
    size_t E =
        mha_case_layer(c) ? mha_layer_config(mha_case_layer(c))->d_out : call.query.shape[2] * call.value.shape[3];
    o->data = malloc((B * T * E + 1) * sizeof *o->data);
    mha_view v = mha_view_of(o->data, MHA_F64, 3, (const size_t[]){B, T, E});
    o->view = v;
    if (!mha_case_layer(c)) {
        size_t h = call.query.shape[2], d = call.value.shape[3];
        o->view = v = mha_view_of(o->data, MHA_F64, 4, (const size_t[]){B, T, h, d});
    }
    mha_status status = mha_case_with_bugs(c, bugs, count, MHA_STAGE_OUTPUT, &v, &error);
    if (status && status != MHA_UNSUPPORTED && status != MHA_INVALID) /* numbers for other heads than there are */
        fail_msg("%s", error.message);
    return status == MHA_OK;
}

static double distance(const output *a, const output *b)
{
    mha_difference d;
    mha_error error;
    assert_ok(mha_compare(&a->view, &b->view, 0, 0, &d, &error), error);
    return d.max_abs;
}

static mha_case *open_case(const char *path)
{
    mha_case *c;
    mha_error error;
    assert_ok(mha_case_open(path, NULL, &c, &error), error);
    return c;
}

/* Whether a match's bug is the one of that name, and has that number. */
static bool is_named(const mha_bug_match *e, size_t which, const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "%s%s%s", e->bugs[which], *e->found[which] ? " " : "", e->found[which]);
    return strcmp(text, name) == 0;
}

static bool has_number(const char *name)
{
    return strchr(name, ' ') != NULL;
}

typedef enum finding { MISSING, FOUND, SIMPLER } finding;

/* FOUND: the class of exact matches has this one. SIMPLER: fewer bugs, or one without a number, do the same
 * on this input. */
static finding find(const char *path, const char *const *bugs, size_t count)
{
    mha_case *c = open_case(path);
    mha_diagnosis d;
    mha_error error;
    finding result = MISSING;
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    for (size_t i = 0; i < d.match_count && result == MISSING; i++) {
        const mha_bug_match *e = &d.matches[i];
        bool same = e->exact && e->count == count;
        for (size_t k = 0; k < count && same; k++)
            same = is_named(e, k, bugs[0]) || is_named(e, k, bugs[count - 1]);
        const bool simpler = e->count < count || (has_number(bugs[0]) && !*e->found[0]);
        result = same ? FOUND : e->exact && simpler ? SIMPLER : MISSING;
    }
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    return result;
}

/* Whether the checker takes the planted result for right, float32 being no better on this call: then the diagnosis must
 * say the same. */
static bool passes(const char *path)
{
    mha_case *c = open_case(path);
    mha_verdict v;
    mha_error error;
    assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 1, &v, &error), error);
    const bool passed = v.outcome == MHA_OUTCOME_PASSED;
    mha_verdict_clear(&v);
    mha_case_close(c);
    return passed;
}

/* ---------------------------------------------------------------- planted */

/* Plants two bugs in a case, in float64 and in float32, and looks for them, if together they do there what
 * neither of them does. */
static bool plant(const char *right, const char *const *bugs)
{
    mha_case *c = open_case(right);
    output none, all, each[2] = {{.data = NULL}, {.data = NULL}};
    bool planted = compute(c, NULL, 0, &none);
    planted &= compute(c, bugs, 2, &all);
    planted = planted && distance(&all, &none) > 1e-4; /* far enough to be seen in float32 */
    size_t finite = 0; /* of fewer than half finite numbers the diagnosis names no bug */
    for (size_t i = 0; planted && i < mha_view_elements(&all.view); i++)
        finite += isfinite(all.data[i]);
    planted = planted && 2 * finite >= mha_view_elements(&all.view);
    for (size_t i = 0; i < 2 && planted; i++)
        planted = compute(c, bugs + i, 1, &each[i]) && distance(&all, &each[i]) > 1e-3;
    mha_case_close(c);
    if (planted) {
        float *narrow = malloc((mha_view_elements(&all.view) + 1) * sizeof *narrow);
        mha_view v = mha_view_of(narrow, MHA_F32, all.view.rank, all.view.shape);
        assert_int_equal(mha_view_copy(&v, &all.view, NULL), MHA_OK);
        finding wide = find(replant(right, "expected64.output", &all.view), bugs, 2);
        const char *narrow_case = replant(right, "expected.output", &v);
        const bool passed = passes(narrow_case);
        finding found = find(narrow_case, bugs, 2);
        if (passed)
            assert_int_equal(found, SIMPLER);
        else if (wide == MISSING || found == MISSING)
            fail_msg("%s %s: not found%s", bugs[0], bugs[1], wide == FOUND ? " in float32" : "");
        planted = wide == FOUND && found == FOUND;
        free(narrow);
    }
    free(none.data), free(all.data), free(each[0].data), free(each[1].data);
    return planted;
}

static void test_random_pairs_are_found(void **state)
{
    (void)state;
    size_t planted = 0, n = mha_bug_count();
    for (uint64_t seed = 1; planted < 20; seed++) {
        assert_true(seed < 1000);
        const char *right = saved_trial(seed, MHA_PATH_EXACT, false, true);
        bool found = false;
        for (uint64_t i = 0; i < 40 && right && !found; i++) {
            size_t a = mha__random_bits(seed, 0, i) % n, b = mha__random_bits(seed, 1, i) % n;
            const char *pair[] = {mha_bug_at(a < b ? a : b)->name, mha_bug_at(a < b ? b : a)->name};
            const bool tried = a != b && mha__bug_is_paired(a) && mha__bug_is_paired(b);
            found = tried && plant(right, pair);
        }
        planted += found;
    }
}

static void test_names_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < mha_bug_count(); i++) {
        assert_true(strlen(mha_bug_at(i)->help) > 0);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(mha_bug_at(i)->name, mha_bug_at(j)->name);
    }
    assert_null(mha_bug_at(mha_bug_count()));
}

/* ---------------------------------------------------------------- nothing planted */

static void expect_right(const char *path, const char *tensor)
{
    mha_case *c = open_case(path);
    mha_diagnosis d;
    mha_error error;
    assert_ok(mha_case_diagnose(c, tensor, 0, NULL, &d, &error), error);
    if (d.match_count == 0 || !d.matches[0].exact || d.matches[0].count != 0)
        fail_msg("%s: %s is right, but %s", mha_case_name(c), d.tensor,
                 d.match_count ? d.matches[0].bugs[0] ? d.matches[0].bugs[0] : "only near" : "nothing explains it");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

static void test_no_false_alarm(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        const char *path = saved_trial(seed, seed % 2 ? MHA_PATH_EXACT : MHA_PATH_BLAS, false, true);
        if (path)
            expect_right(path, NULL);
    }
    const char *recorded = getenv("CONFORMANCE_DIR");
    DIR *d = recorded && *recorded ? opendir(recorded) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", recorded, e->d_name);
        if (strstr(e->d_name, ".safetensors"))
            expect_right(path, "expected64.output"), expect_right(path, NULL);
    }
    if (d)
        closedir(d);
}

/* Scores beyond the range of float32 give NaN on the fast path and numbers in float64: the NaN is no bug. */
static void test_overflow_of_float32_is_right(void **state)
{
    (void)state;
    static float memory[4][96];
    const char *saved = scratch_path("overflow.safetensors"), *stated = scratch_path("stated.safetensors");
    mha_view in[4];
    for (uint64_t i = 0; i < 4; i++) {
        in[i] = mha_view_of(memory[i], MHA_F32, 4, (size_t[]){1, 6, 2, 8});
        mha_random_fill(&in[i], 33, i, -1e25, 1e25);
    }
    const mha_call call = {.query = in[0], .key = in[1], .value = in[2], .output = in[3], .path = MHA_PATH_FAST};
    mha_error error;
    assert_ok(mha_run(NULL, &call, &error), error);
    assert_true(isnan(memory[3][0]));
    assert_ok(mha_case_save(saved, NULL, &call, NULL, &error), error);
    recase_write(saved, stated, &(recase){.metadata = {{"atol", "1e-5"}}});
    expect_right(stated, NULL);
    memory[3][0] = 1;
    recase_write(stated, saved, &(recase){.tensors = {{"expected.output", in[3]}}});
    mha_diagnosis d;
    mha_case *c = open_case(saved);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_equal(d.match_count, 0);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

/* ---------------------------------------------------------------- built wrong by the library itself */

/* A layer with a mask, lengths, a window, rotation and softcap: most things can go wrong. */
typedef struct scene {
    mha_params *params;
    mha_layer *layer;
    mha_call call;
    float x[2 * 9 * 12];
    uint8_t mask[9 * 9];
    int64_t lengths[2];
} scene;

enum { B = 2, T = 9, WIDTH = 12, HEADS = 3 };

static void scene_open(scene *s)
{
    mha_error error;
    memset(s, 0, sizeof *s);
    mha_config config = {
        .d_model = WIDTH, .n_heads = HEADS, .bias_q = true, .bias_k = true, .bias_v = true, .bias_o = true};
    assert_int_equal(mha_params_create(NULL, &s->params, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, s->params, NULL, &s->layer, &error), error);
    mha_layer_init(s->layer, 1);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) /* biases start as zeros */
        if (w % 2 == 1 && mha_layer_weight(s->layer, (mha_weight)w)) {
            mha_view v = mha_tensor_view(mha_layer_weight(s->layer, (mha_weight)w));
            mha_random_fill(&v, 3, (uint64_t)w, -1, 1);
        }
    s->call.query = mha_view_of(s->x, MHA_F32, 3, (const size_t[]){B, T, WIDTH});
    mha_random_fill(&s->call.query, 2, 0, -2, 2);
    for (size_t i = 0; i < sizeof s->mask; i++)
        s->mask[i] = i % 4 != 1;
    s->lengths[0] = 9, s->lengths[1] = 7;
    mha_semantics *m = &s->call.semantics;
    m->visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(s->mask, MHA_BOOL, 2, (const size_t[]){T, T})};
    m->visible.kv_lengths = s->lengths;
    m->visible.causal = true;
    m->place.has_offset = true;
    m->place.offset = 2;
    m->visible.has_window_left = true, m->visible.window_left = 4;
    m->softmax.softcap = 2;
    m->qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT};
}

static void scene_close(scene *s)
{
    mha_layer_destroy(s->layer);
    mha_params_destroy(s->params);
}

static mha_view weight(scene *s, mha_weight w)
{
    return mha_tensor_view(mha_layer_weight(s->layer, w));
}

static void transpose_weight(scene *s, mha_weight which)
{
    float *w = weight(s, which).data;
    for (size_t i = 0; i < WIDTH; i++)
        for (size_t j = 0; j < i; j++) {
            float swap = w[i * WIDTH + j];
            w[i * WIDTH + j] = w[j * WIDTH + i], w[j * WIDTH + i] = swap;
        }
}

static void swap_weights(scene *s, mha_weight a, mha_weight b)
{
    mha_view x = weight(s, a), y = weight(s, b);
    for (size_t i = 0; i < mha_view_elements(&x); i++) {
        float swap = ((float *)x.data)[i];
        ((float *)x.data)[i] = ((float *)y.data)[i], ((float *)y.data)[i] = swap;
    }
}

static void wrong_mask(scene *s)
{
    s->call.semantics.visible.mask.kind = MHA_MASK_HIDES;
}
static void wrong_no_mask(scene *s)
{
    s->call.semantics.visible.mask = (mha_mask){MHA_MASK_NONE, {0}};
}
static void wrong_no_lengths(scene *s)
{
    s->call.semantics.visible.kv_lengths = NULL;
}
static void wrong_lengths(scene *s)
{
    s->lengths[0]--, s->lengths[1]--;
}
static void wrong_no_causal(scene *s)
{
    s->call.semantics.visible.causal = false;
}
static void wrong_no_window(scene *s)
{
    s->call.semantics.visible.has_window_left = s->call.semantics.visible.has_window_right = false;
    s->call.semantics.visible.window_left = s->call.semantics.visible.window_right = 0;
}
static void wrong_window(scene *s)
{
    s->call.semantics.visible.window_left--;
}
static void wrong_window_sides(scene *s)
{
    s->call.semantics.visible.window_right = s->call.semantics.visible.window_left;
    s->call.semantics.visible.causal = false;
}
static void wrong_softcap(scene *s)
{
    s->call.semantics.softmax.softcap = 0;
}
static void wrong_scale(scene *s)
{
    s->call.semantics.softmax.has_scale = true, s->call.semantics.softmax.scale = 1;
}
static void wrong_scale_twice(scene *s)
{
    s->call.semantics.softmax.has_scale = true, s->call.semantics.softmax.scale = 1.0 / (WIDTH / HEADS);
}
static void wrong_pairing(scene *s)
{
    s->call.semantics.qkv.rope.kind = MHA_ROPE_INTERLEAVED;
}
static void wrong_base(scene *s)
{
    s->call.semantics.qkv.rope.base = 5e5;
}
static void wrong_no_rope(scene *s)
{
    s->call.semantics.qkv.rope.kind = MHA_ROPE_NONE;
}
static void wrong_plus_one(scene *s)
{
    s->call.semantics.softmax.softmax_plus_one = true;
}
static void wrong_transpose(scene *s)
{
    transpose_weight(s, MHA_W_V);
}
static void wrong_order(scene *s)
{
    swap_weights(s, MHA_W_Q, MHA_W_K), swap_weights(s, MHA_B_Q, MHA_B_K);
}
static void wrong_bias(scene *s)
{
    memset(weight(s, MHA_B_V).data, 0, WIDTH * sizeof(float));
}

static void wrong_bias_twice(scene *s)
{
    float *b = weight(s, MHA_B_O).data;
    for (size_t i = 0; i < WIDTH; i++)
        b[i] *= 2;
}

static void wrong_rounding(scene *s)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (mha_layer_weight(s->layer, (mha_weight)w)) {
            mha_view v = weight(s, (mha_weight)w);
            for (size_t i = 0; i < mha_view_elements(&v); i++)
                ((float *)v.data)[i] = mha__bf16_to_f32(mha__f32_to_bf16(((float *)v.data)[i]));
        }
}

/* Columns of q, k, v, each of 12: written as blocks, read as (q, k, v) of 4 for each head. */
static void wrong_packing(scene *s)
{
    static const mha_weight W[] = {MHA_W_Q, MHA_W_K, MHA_W_V}, b[] = {MHA_B_Q, MHA_B_K, MHA_B_V};
    float packed[WIDTH + 1][3 * WIDTH];
    for (int p = 0; p < 3; p++)
        for (size_t i = 0; i <= WIDTH; i++)
            memcpy(&packed[i][p * WIDTH],
                   (float *)weight(s, i < WIDTH ? W[p] : b[p]).data + (i < WIDTH ? i * WIDTH : 0),
                   WIDTH * sizeof(float));
    const size_t d = WIDTH / HEADS;
    for (size_t p = 0; p < 3; p++)
        for (size_t i = 0; i <= WIDTH; i++)
            for (size_t h = 0; h < HEADS; h++)
                memcpy((float *)weight(s, i < WIDTH ? W[p] : b[p]).data + (i < WIDTH ? i * WIDTH : 0) + h * d,
                       &packed[i][h * 3 * d + p * d], d * sizeof(float));
}

/* (d_k, h) instead of (h, d_k): column f*h + head is another one to a head-major reader. */
static void wrong_merge(scene *s)
{
    float *w = weight(s, MHA_W_O).data, copy[WIDTH * WIDTH];
    const size_t d = WIDTH / HEADS;
    memcpy(copy, w, sizeof copy);
    for (size_t h = 0; h < HEADS; h++) /* feature (h, f) meets row f*HEADS + h of W_O */
        for (size_t f = 0; f < d; f++)
            memcpy(w + (h * d + f) * WIDTH, copy + (f * HEADS + h) * WIDTH, WIDTH * sizeof *w);
}

static void test_wrong_calls_are_named(void **state)
{
    (void)state;
    static const struct {
        void (*wrong)(scene *s);
        const char *bugs[2];
    } rows[] = {
        {wrong_mask, {"mask-polarity"}},
        {wrong_no_mask, {"mask-missing"}},
        {wrong_no_lengths, {"lengths-missing"}},
        {wrong_lengths, {"lengths-less"}},
        {wrong_no_causal, {"causal-missing"}},
        {wrong_no_window, {"window-missing"}},
        {wrong_window, {"window-left-less"}},
        {wrong_window_sides, {"causal-missing", "window-both-sides"}},
        {wrong_softcap, {"softcap-missing"}},
        {wrong_scale, {"scale-missing"}},
        {wrong_scale_twice, {"scale-twice"}},
        {wrong_pairing, {"rope-pairing"}},
        {wrong_base, {"rope-base-5e5"}},
        {wrong_no_rope, {"rope-missing"}},
        {wrong_plus_one, {"plus-one-added"}},
        {wrong_transpose, {"transpose-v"}},
        {wrong_order, {"order-kqv"}},
        {wrong_bias, {"bias-v-dropped"}},
        {wrong_bias_twice, {"bias-o-twice"}},
        {wrong_rounding, {"weights-bf16"}},
        {wrong_packing, {"packed-interleaved"}},
        {wrong_merge, {"merge-interleaved"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int path = MHA_PATH_BLAS; path <= MHA_PATH_EXACT; path++) {
            scene right, wrong;
            mha_error error;
            scene_open(&right);
            scene_open(&wrong);
            rows[i].wrong(&wrong);
            rerun again;
            rerun_init(&again, wrong.layer, &wrong.call, NULL, NULL);
            assert_ok(rerun_run(&again, (mha_path)path, 1, TRIAL_OUTPUT, &error), error);
            right.call.path = (mha_path)path;
            right.call.output = again.stages[MHA_STAGE_OUTPUT];
            const char *file = scratch_path("wrong.safetensors");
            assert_ok(mha_case_save(file, right.layer, &right.call, NULL, &error), error);
            size_t count = 1 + (rows[i].bugs[1] != NULL);
            if (find(file, rows[i].bugs, count) != FOUND)
                fail_msg("%s on %s: not found", rows[i].bugs[0], mha_path_name((mha_path)path));
            rerun_free(&again);
            scene_close(&right);
            scene_close(&wrong);
        }
}

static void test_no_match(void **state)
{
    (void)state;
    const char *right = saved_trial(5, MHA_PATH_EXACT, false, true);
    assert_non_null(right);
    mha_case *c = open_case(right);
    output o;
    assert_true(compute(c, NULL, 0, &o));
    mha_case_close(c);
    mha_random_fill(&o.view, 9, 9, -1, 1);
    c = open_case(replant(right, "expected64.output", &o.view));
    mha_diagnosis d;
    mha_error error;
    assert_ok(mha_case_diagnose(c, "output", 0, NULL, &d, &error), error);
    assert_string_equal(d.tensor, "expected64.output");
    assert_int_equal(d.match_count, 0);
    assert_int_equal(d.closest_count, 0); /* what comes a little nearer to noise explains none of it */
    assert_int_equal(d.clue_count, 0);
    mha_diagnosis_clear(&d);
    assert_refused(mha_case_diagnose(c, "weights", 0, NULL, &d, &error), MHA_NOT_FOUND, error, "weights");
    const char *unknown[] = {"no-such-bug"};
    assert_refused(mha_case_with_bugs(c, unknown, 1, MHA_STAGE_OUTPUT, &o.view, &error), MHA_NOT_FOUND, error,
                   "no-such-bug");
    for (int stage = -1; stage <= MHA_STAGE_COUNT; stage += MHA_STAGE_COUNT + 1)
        assert_refused(mha_case_with_bugs(c, NULL, 0, (mha_stage)stage, &o.view, &error), MHA_INVALID, error, "stage");
    mha_case_close(c);
    free(o.data);
}

/* A bug without a name, with one that has a name: the closest are no pairs of it with a rounding, which brings
 * nothing nearer but by chance. */
static void test_closest_pairs_need_both(void **state)
{
    (void)state;
    static const char from[] = "weights/lookup/wrong_port.safetensors";
    static const char *const named[] = {"transpose-o"};
    mha_case *c = open_case(from);
    mha_diagnosis d;
    mha_error error;
    output o;
    assert_true(compute(c, named, 1, &o));
    mha_case_close(c);
    for (size_t i = 0; i < mha_view_elements(&o.view); i++)
        o.data[i] += 0.5 * sin((double)(i * i));
    o.view = mha_view_of(o.data, MHA_F64, 2, o.view.shape + 1); /* the case has no batch axis */
    c = open_case(replant(from, "output", &o.view));
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    assert_true(d.closest_count > 0);
    for (size_t i = 0; i < d.closest_count; i++)
        for (size_t v = 0; v < d.closest[i].count; v++)
            if (d.closest[i].count == 2 && strstr(d.closest[i].bugs[v], "16"))
                fail_msg("%s and %s come closest", d.closest[i].bugs[0], d.closest[i].bugs[1]);
    assert_string_equal(d.closest[0].bugs[0], "transpose-o");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    free(o.data);
}

/* A bug with a number, with a change that has no name: it explains nothing, and comes closest, with its number. */
static void test_closest_have_their_numbers(void **state)
{
    (void)state;
    static const char from[] = "weights/lookup/wrong_port.safetensors";
    static const char *const named[] = {"scale-other 0.2"};
    mha_case *c = open_case(from);
    mha_diagnosis d;
    mha_error error;
    output o;
    assert_true(compute(c, named, 1, &o));
    mha_case_close(c);
    for (size_t i = 0; i < mha_view_elements(&o.view); i++)
        o.data[i] += 0.2 * sin((double)(i * i));
    o.view = mha_view_of(o.data, MHA_F64, 2, o.view.shape + 1); /* the case has no batch axis */
    c = open_case(replant(from, "output", &o.view));
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    assert_int_equal(d.match_count, 0);
    bool is_there = false;
    for (size_t i = 0; i < d.closest_count; i++)
        is_there |= d.closest[i].count == 1 && strcmp(d.closest[i].bugs[0], "scale-other") == 0;
    assert_true(is_there);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    free(o.data);
}

/* One token attends only to itself, for any scale: a wrong scale does not explain an output 1.5 % off, although
 * it may make rounding errors louder. */
static void test_what_changes_nothing_explains_nothing(void **state)
{
    (void)state;
    static const char from[] = "tests/vectors/torch_one_token.safetensors";
    mha_case *c = open_case(from);
    mha_diagnosis d;
    mha_error error;
    output o;
    assert_true(compute(c, NULL, 0, &o));
    mha_case_close(c);
    for (size_t i = 0; i < mha_view_elements(&o.view); i++)
        o.data[i] *= i % 2 ? 1.015 : 0.985;
    c = open_case(replant(from, "expected.output", &o.view));
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    for (size_t i = 0; i < d.match_count; i++)
        if (d.matches[i].exact)
            fail_msg("%s is no match", d.matches[i].bugs[0]);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    free(o.data);
}

/* Of equal explanations the one with fewer free numbers comes first, then the one that changes less. */
static void test_order_of_equal_matches(void **state)
{
    (void)state;
    static const struct {
        const char *planted;
        mha_stage stage;
        size_t keys;
        const char *first, *later;
    } rows[] = {
        {"lse-base-2", MHA_STAGE_LSE, 1, "lse-base-2", "softmax-log2e"},
        {"sinks-in-every-part 4", MHA_STAGE_OUTPUT, 12, "sinks-in-every-part", "sinks-other"},
        {"alibi-times 2", MHA_STAGE_OUTPUT, 12, "alibi-times", "slopes-other"},
        {"sinks-times 0.5", MHA_STAGE_OUTPUT, 12, "sinks-times", "sinks-other"},
    };
    enum { MOST = 12 * 2 * 8 };
    static double memory[3][MOST], wrong[MOST], sinks[] = {1, -0.5};
    static const double slopes[] = {0.5, 0.25};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const bool lse = rows[r].stage == MHA_STAGE_LSE;
        mha_view in[3], weights[MHA_WEIGHT_COUNT] = {0};
        mha_call call = {.semantics.added.alibi_slopes = lse ? NULL : slopes};
        for (uint64_t i = 0; i < 3; i++) {
            in[i] = mha_view_of(memory[i], MHA_F64, 4, (size_t[]){1, i ? rows[r].keys : 12, 2, 8});
            mha_random_fill(&in[i], 31, i, -1, 1);
        }
        call.query = in[0], call.key = in[1], call.value = in[2];
        if (!lse)
            weights[MHA_SINKS] = mha_view_of(sinks, MHA_F64, 1, (size_t[]){2}), call.weights = weights,
            call.weight_count = MHA_WEIGHT_COUNT;
        const mha_view result = lse ? mha_view_of(wrong, MHA_F64, 3, (size_t[]){1, 2, 12})
                                    : mha_view_of(wrong, MHA_F64, 4, (size_t[]){1, 12, 2, 8});
        const mha_keep expected = {.stage = rows[r].stage, .view = result};
        mha_case *c;
        mha_diagnosis d;
        mha_error error;
        bool later = false;
        assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
        assert_ok(mha_case_with_bugs(c, &rows[r].planted, 1, rows[r].stage, &result, &error), error);
        mha_case_close(c);
        assert_ok(mha_case_of_call(NULL, &call, &expected, 1, NULL, &c, &error), error);
        assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
        assert_true(d.match_count > 1);
        assert_string_equal(d.matches[0].bugs[0], rows[r].first);
        for (size_t i = 1; i < d.match_count; i++)
            later |= strcmp(d.matches[i].bugs[0], rows[r].later) == 0;
        if (!later)
            fail_msg("%s alone", rows[r].first);
        mha_diagnosis_clear(&d);
        mha_case_close(c);
    }
}

/* Cross-attention with fewer queries than keys that projects the key input to values. */
static void test_values_of_the_key_input(void **state)
{
    (void)state;
    enum { D = 12 };
    static double memory[3][9 * D], results[4 * D];
    mha_layer *layer;
    mha_view in[3], y = mha_view_of(results, MHA_F64, 3, (size_t[]){1, 4, D});
    mha_error error;
    assert_ok(mha_layer_create(&(mha_config){.d_model = D, .n_heads = 3, .dtype = MHA_F64}, NULL, NULL, &layer,
                               &error), error);
    mha_layer_init(layer, 5);
    for (uint64_t i = 0; i < 3; i++) {
        in[i] = mha_view_of(memory[i], MHA_F64, 3, (size_t[]){1, i > 0 ? 9 : 4, D});
        mha_random_fill(&in[i], 34, i, -1, 1);
    }
    mha_call call = {.query = in[0], .key = in[1], .value = in[1], .output = y, .path = MHA_PATH_EXACT};
    mha_case *c;
    mha_diagnosis d;
    assert_ok(mha_run(layer, &call, &error), error);
    call.value = in[2];
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = y};
    assert_ok(mha_case_of_call(layer, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_not_equal(d.match_count, 0);
    assert_string_equal(d.matches[0].bugs[0], "inputs-other");
    assert_true(d.matches[0].number[0] == 4);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    mha_layer_destroy(layer);
}

/* Five tensor-parallel ranks that each add b_O. */
static void test_a_bias_of_each_rank(void **state)
{
    (void)state;
    scene right, wrong;
    mha_case *c;
    mha_diagnosis d;
    mha_error error;
    rerun again;
    scene_open(&right);
    scene_open(&wrong);
    for (size_t i = 0; i < WIDTH; i++)
        ((float *)weight(&wrong, MHA_B_O).data)[i] *= 5;
    rerun_init(&again, wrong.layer, &wrong.call, NULL, NULL);
    assert_ok(rerun_run(&again, MHA_PATH_EXACT, 1, TRIAL_OUTPUT, &error), error);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = again.stages[MHA_STAGE_OUTPUT]};
    assert_ok(mha_case_of_call(right.layer, &right.call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_not_equal(d.match_count, 0);
    assert_string_equal(d.matches[0].bugs[0], "bias-o-times");
    assert_true(d.matches[0].number[0] == 5);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    rerun_free(&again);
    scene_close(&right);
    scene_close(&wrong);
}

/* Where the output is right, the diagnosis explains the recorded stage that a check fails. */
static void test_a_wrong_lse_beside_a_right_output(void **state)
{
    (void)state;
    static const char *const planted = "lse-without-sinks";
    static double memory[3][96], results[2][96], sinks[] = {1, -0.5};
    mha_view in[3], weights[MHA_WEIGHT_COUNT] = {[MHA_SINKS] = mha_view_of(sinks, MHA_F64, 1, (size_t[]){2})};
    for (uint64_t i = 0; i < 3; i++) {
        in[i] = mha_view_of(memory[i], MHA_F64, 4, (size_t[]){1, 6, 2, 8});
        mha_random_fill(&in[i], 32, i, -1, 1);
    }
    const mha_call call = {.query = in[0], .key = in[1], .value = in[2], .weights = weights,
                           .weight_count = MHA_WEIGHT_COUNT};
    const mha_keep recorded[] = {
        {.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(results[0], MHA_F64, 4, (size_t[]){1, 6, 2, 8})},
        {.stage = MHA_STAGE_LSE, .view = mha_view_of(results[1], MHA_F64, 3, (size_t[]){1, 2, 6})}};
    mha_case *c;
    mha_diagnosis d;
    mha_error error;
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
    assert_ok(mha_case_with_bugs(c, NULL, 0, MHA_STAGE_OUTPUT, &recorded[0].view, &error), error);
    assert_ok(mha_case_with_bugs(c, &planted, 1, MHA_STAGE_LSE, &recorded[1].view, &error), error);
    mha_case_close(c);
    assert_ok(mha_case_of_call(NULL, &call, recorded, 2, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_string_equal(d.tensor, "expected64.lse");
    assert_string_equal(d.matches[0].bugs[0], planted);
    mha_diagnosis_clear(&d);
    assert_ok(mha_case_diagnose(c, "output", 1, NULL, &d, &error), error);
    assert_string_equal(d.tensor, "expected64.output");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_lse_beside_a_right_output),
        cmocka_unit_test(test_values_of_the_key_input),
        cmocka_unit_test(test_a_bias_of_each_rank),
        cmocka_unit_test(test_random_pairs_are_found),
        cmocka_unit_test(test_what_changes_nothing_explains_nothing),
        cmocka_unit_test(test_closest_pairs_need_both),
        cmocka_unit_test(test_closest_have_their_numbers),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_order_of_equal_matches),
        cmocka_unit_test(test_no_false_alarm),
        cmocka_unit_test(test_overflow_of_float32_is_right),
        cmocka_unit_test(test_wrong_calls_are_named),
        cmocka_unit_test(test_no_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
