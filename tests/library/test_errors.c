/* The errors that the headers promise, where no other test produces them; and the conventions' plain form, held against
 * the checker stage by stage. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/failing.h"
#include "support/recase.h"
#include "support/scratch.h"
#include "bench/machine_peak.h"
#include "support/rotate.h"
#include "support/stages.h"

/* ---------------------------------------------------------------- system.h, layer.h */

static void limits_need_threads_and_bytes(void **state)
{
    (void)state;
    double gflops = 7, gbs = 7;
    assert_int_equal(mha__machine_limits(0, &gflops, NULL), MHA_INVALID);
    assert_int_equal(mha__machine_limits(-3, NULL, &gbs), MHA_INVALID);
    assert_int_equal(mha__machine_limits(1 << 20, &gflops, &gbs), MHA_INVALID);
    assert_int_equal(mha__machine_reads(0, 1 << 20, &gbs), MHA_INVALID);
    assert_int_equal(mha__machine_reads(2, 1023, &gbs), MHA_INVALID);
    assert_true(gflops == 7 && gbs == 7);
    assert_int_equal(mha__machine_reads(2, 1024, &gbs), MHA_OK);
    assert_true(gbs > 0 && isfinite(gbs));
    assert_int_equal(mha__machine_limits(1, &gflops, NULL), MHA_OK);
    assert_true(gflops > 0 && isfinite(gflops));
    assert_int_equal(mha__machine_limits(1, NULL, NULL), MHA_OK);
    assert_null(mha_isa_at(SIZE_MAX));
    assert_null(mha_isa_at(99));
    assert_int_equal(mha_isa_select("abacus", NULL), MHA_NOT_FOUND);
}

/* Marks are notes of the table, which take memory; without it nothing is lost but the note. */
static void layers_need_memory(void **state)
{
    (void)state;
    const mha_config config = {.d_model = 8, .n_heads = 2, .bias_k = true};
    mha_error error;
    size_t refusals = 0;
    for (size_t n = 1; n < 20; n++) {
        failing memory = {0};
        mha_allocator allocator = failing_allocator(&memory);
        mha_params *table;
        mha_layer *layer;
        assert_int_equal(mha_params_create(&allocator, &table, NULL), MHA_OK);
        assert_ok(mha_layer_create(&config, table, NULL, &layer, &error), error);
        mha_layer_init(layer, 1);
        size_t rows = mha_params_count(table);
        memory.fail_at = memory.calls + n;
        mha_status status = mha_layer_pack(layer, &error);
        if (status != MHA_OK) {
            assert_int_equal(status, MHA_NO_MEMORY);
            assert_int_equal(mha_params_count(table), rows);
            refusals++;
        }
        mha_layer_destroy(layer);
        mha_params_destroy(table);
        assert_int_equal(memory.live_blocks + memory.bugs, 0);
    }
    assert_true(refusals > 3);
}

/* ---------------------------------------------------------------- attention.h */

static void caches_say_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        mha_cache_spec spec;
        mha_status status;
        const char *text;
    } rows[] = {
        {{1, 1, 1, 1, 1, 0, .dtype = MHA_I32}, MHA_INVALID, "I32"},
        {{1, 1, 1, 1, 3, 4, .dtype = MHA_F32}, MHA_INVALID, "at least the window, 4 rows"},
        {{SIZE_MAX, 2, 1, 1, 1, 0, .dtype = MHA_F32}, MHA_INVALID, "more bytes than"},
        {{1, 1, SIZE_MAX / 2, 1, 1, 0, .dtype = MHA_F32}, MHA_INVALID, "more bytes than"},
        {{1, 1, 1, SIZE_MAX / 2, 1, 0, .dtype = MHA_F64}, MHA_INVALID, "more bytes than"},
        {{1, 1, 1, SIZE_MAX / 2, 3, 0, .dtype = MHA_F64}, MHA_INVALID, "more bytes than"},
    };
    mha_cache *cache = NULL;
    mha_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(mha_cache_create(&rows[i].spec, NULL, &cache, &error), rows[i].status, error, rows[i].text);
    for (size_t n = 1; n <= 4; n++) {
        failing memory = {.fail_at = n};
        mha_allocator allocator = failing_allocator(&memory);
        const mha_cache_spec spec = {2, 2, 3, 4, 5, 0, .dtype = MHA_F32};
        mha_status status = mha_cache_create(&spec, &allocator, &cache, &error);
        assert_int_equal(status, n <= 3 ? MHA_NO_MEMORY : MHA_OK);
        if (status == MHA_OK)
            mha_cache_destroy(cache);
        assert_int_equal(memory.live_blocks + memory.bugs, 0);
    }
    mha_cache_destroy(NULL);
}

static void what_a_cache_cannot_load_leaves_it_alone(void **state)
{
    (void)state;
    static float x[64];
    const mha_cache_spec spec = {.batch = 2, .kv_heads = 2, .d_k = 3, .d_v = 2, .capacity = 4};
    mha_cache *cache;
    mha_error error;
    x[5] = 5;
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    const mha_view keys = mha_view_of(x, MHA_F32, 4, (const size_t[]){2, 2, 2, 3}),
                   values = mha_view_of(x, MHA_F32, 4, (const size_t[]){2, 2, 2, 2});
    assert_ok(mha_cache_load(cache, &keys, &values, &error), error);
    for (int which = 0; which < 2; which++)
        for (int axis = -1; axis < 5; axis++) {
            mha_view views[2] = {keys, values};
            if (axis < 0)
                views[which].rank = 3;
            else if (axis < 4)
                views[which].shape[axis]++;
            else
                views[which].dtype = MHA_I32;
            mha_status status = axis == 4 ? MHA_UNSUPPORTED : MHA_INVALID;
            assert_refused(mha_cache_load(cache, &views[0], &views[1], &error), status, error, "past");
        }
    for (int which = 0; which < 2; which++) {
        mha_view views[2] = {keys, values};
        views[which].data = NULL;
        assert_refused(mha_cache_load(cache, &views[0], &views[1], &error), MHA_INVALID, error,
                       which ? "past values" : "past keys", "expected data");
    }
    static float many[2 * 2 * 5 * 3];
    const mha_view more_keys = mha_view_of(many, MHA_F32, 4, (const size_t[]){2, 2, 5, 3}),
                   more_values = mha_view_of(many, MHA_F32, 4, (const size_t[]){2, 2, 5, 2});
    assert_refused(mha_cache_load(cache, &more_keys, &more_values, &error), MHA_INVALID, error,
                   "at most 4 past rows, found 5");
    assert_int_equal(mha_cache_length(cache), 2);
    mha_view held = mha_cache_keys(cache);
    assert_true(mha_view_get(&held, (const size_t[]){0, 0, 1, 2}) == 5);
    mha_cache_destroy(cache);
}

static void rotations_say_what_is_wrong(void **state)
{
    (void)state;
    static float x[2 * 3 * 2 * 4], y[2 * 3 * 2 * 4], tables[64];
    static int64_t positions[2 * 3] = {0, 1, 2, 3, 4, 5};
    const size_t shape[] = {2, 3, 2, 4};
    mha_error error;
    const mha_view in = mha_view_of(x, MHA_F32, 4, shape), out = mha_view_of(y, MHA_F32, 4, shape);
    const mha_rope good = {.kind = MHA_ROPE_INTERLEAVED};
    mha_view a, b;
    mha_rope rope;
#define WRONG(status, text, ...)                                                                                       \
    a = in, b = out, rope = good;                                                                                      \
    __VA_ARGS__;                                                                                                       \
    assert_refused(rotate_alone(&a, &rope, 0, MHA_PATH_EXACT, &b, &error), status, error, text)
#define TABLE(rank, ...) mha_view_of(tables, MHA_F32, rank, (const size_t[]){__VA_ARGS__})
#define BOTH(rank, ...) rope.cos_table = rope.sin_table = TABLE(rank, __VA_ARGS__)
    WRONG(MHA_INVALID, "(B, T, heads, width)", a.rank = 3);
    WRONG(MHA_INVALID, "query: expected data", a.data = NULL);
    WRONG(MHA_INVALID, "expected none, interleaved or half_split", rope.kind = (mha_rope_kind)3);
    WRONG(MHA_INVALID, "base", rope.base = -1);
    WRONG(MHA_INVALID, "base", rope.base = NAN);
    WRONG(MHA_INVALID, "base", rope.base = INFINITY);
    WRONG(MHA_INVALID, "d_k = 4, found 3", rope.dim = 3);
    WRONG(MHA_INVALID, "d_k = 4, found 6", rope.dim = 6);
    WRONG(MHA_INVALID, "q_positions", rope.q_positions = mha_view_of(positions, MHA_F64, 2, shape));
    WRONG(MHA_INVALID, "q_positions", rope.q_positions = mha_view_of(positions, MHA_I64, 1, shape + 1));
    WRONG(MHA_INVALID, "q_positions", rope.q_positions = mha_view_of(positions, MHA_I64, 2, (const size_t[]){3, 3}));
    WRONG(MHA_INVALID, "q_positions", rope.q_positions = mha_view_of(positions, MHA_I64, 2, (const size_t[]){2, 2}));
    WRONG(MHA_INVALID, "rotation tables", rope.cos_table = TABLE(2, 8, 2));
    WRONG(MHA_INVALID, "rotation tables", rope.sin_table = TABLE(2, 8, 2));
    WRONG(MHA_INVALID, "rotation tables", BOTH(1, 8));
    WRONG(MHA_INVALID, "rotation tables", BOTH(4, 1, 1, 8, 2));
    WRONG(MHA_INVALID, "rotation tables", BOTH(2, 8, 3));
    WRONG(MHA_INVALID, "rotation tables", BOTH(2, 8, 2); rope.sin_table.dtype = MHA_F64);
    WRONG(MHA_INVALID, "rotation tables", BOTH(2, 8, 2); rope.cos_table.dtype = rope.sin_table.dtype = MHA_F16);
    WRONG(MHA_INVALID, "rotation tables", BOTH(2, 8, 2); rope.sin_table.shape[0] = 7);
    WRONG(MHA_INVALID, "rotation tables", BOTH(2, 8, 2); rope.sin_table = TABLE(3, 2, 3, 2));
    WRONG(MHA_INVALID, "rotation tables", BOTH(3, 3, 3, 2));
    WRONG(MHA_INVALID, "rotation tables", BOTH(3, 2, 2, 2));
    WRONG(MHA_INVALID, "2 rows of the rotation tables, found positions from 0 to 2", BOTH(2, 2, 2));
    WRONG(MHA_INVALID, "positions from 0 to 5", BOTH(2, 5, 2);
          rope.q_positions = mha_view_of(positions, MHA_I64, 2, shape));
    a = in, b = out, rope = good;
    assert_ok((BOTH(2, 3, 2), rotate_alone(&a, &rope, 0, MHA_PATH_EXACT, &b, &error)), error);
    assert_refused(rotate_alone(&a, &rope, 1, MHA_PATH_EXACT, &b, &error), MHA_INVALID, error, "positions from 1 to 3");
    assert_refused(rotate_alone(&a, &rope, -1, MHA_PATH_EXACT, &b, &error), MHA_INVALID, error,
                   "positions from -1 to 1");
    assert_ok((BOTH(3, 1, 3, 2), rotate_alone(&a, &rope, -1, MHA_PATH_EXACT, &b, &error)), error);
#undef WRONG
#undef TABLE
#undef BOTH
}

/* ---------------------------------------------------------------- compare.h and case.h */

/* A setting that one bug removes is absent for the other one, too. */
static void two_bugs_are_one_program(void **state)
{
    (void)state;
    static int64_t lengths[] = {3, 2};
    const char *const made = scratch_path("two.safetensors");
    const char *const from[] = {made, "tests/vectors/jax_bias_lengths.safetensors",
                                "tests/vectors/onnx_lengths_causal.safetensors",
                                "tests/vectors/pattern_query_padding.safetensors"};
    static double out[4096];
    size_t computed = 0;
    recase_write("tests/vectors/torch_causal.safetensors", made,
                 &(recase){.tensors = {{"kv_lengths", mha_view_of(lengths, MHA_I64, 1, (size_t[]){2})}}});
    for (size_t f = 0; f < sizeof from / sizeof *from; f++) {
        mha_case *c;
        mha_error error;
        mha_plan plan;
        assert_ok(mha_case_open(from[f], NULL, &c, &error), error);
        mha_call call = mha_case_call(c);
        call.path = MHA_PATH_EXACT;
        assert_ok(mha_plan_call(mha_case_layer(c), &call, &plan, &error), error);
        const mha_view to = stage_of_plan(&plan, MHA_STAGE_OUTPUT, out, MHA_F64);
        for (size_t i = 0; i < mha_bug_count() * mha_bug_count(); i++) {
            const char *names[] = {mha_bug_at(i / mha_bug_count())->name, mha_bug_at(i % mha_bug_count())->name};
            if (!strstr(names[0], "-missing"))
                continue;
            const mha_status status = mha_case_with_bugs(c, names, 2, MHA_STAGE_OUTPUT, &to, &error);
            if (status != MHA_OK && status != MHA_UNSUPPORTED && status != MHA_INVALID)
                fail_msg("%s and %s: %s", names[0], names[1], error.message);
            computed += status == MHA_OK;
        }
        mha_case_close(c);
    }
    assert_true(computed > 100);
}

static void bugs_say_what_is_wrong(void **state)
{
    (void)state;
    const char *from = "tests/vectors/torch_self.safetensors";
    mha_case *c;
    mha_error error;
    mha_diagnosis d;
    static double out[4096];
    assert_ok(mha_case_open(from, NULL, &c, &error), error);
    mha_call call = mha_case_call(c);
    mha_plan plan;
    call.path = MHA_PATH_EXACT;
    assert_ok(mha_plan_call(mha_case_layer(c), &call, &plan, &error), error);
    mha_view to = stage_of_plan(&plan, MHA_STAGE_OUTPUT, out, MHA_F64);
    assert_refused(mha_case_with_bugs(c, (const char *[]){"no-such"}, 1, MHA_STAGE_OUTPUT, &to, &error), MHA_NOT_FOUND,
                   error, "no-such");
    size_t refused = 0, computed = 0;
    for (size_t i = 0; i < mha_bug_count(); i++) {
        const char *name = mha_bug_at(i)->name;
        mha_status status = mha_case_with_bugs(c, &name, 1, MHA_STAGE_OUTPUT, &to, &error);
        if (status != MHA_OK)
            assert_refused(status, MHA_UNSUPPORTED, error, name, "that applies");
        refused += status != MHA_OK, computed += status == MHA_OK;
    }
    assert_true(refused > 0 && computed > 10);
    assert_null(mha_bug_at(mha_bug_count()));
    to.shape[0]++;
    assert_refused(mha_case_with_bugs(c, NULL, 0, MHA_STAGE_OUTPUT, &to, &error), MHA_INVALID, error, "output",
                   "expected shape");
    assert_refused(mha_case_diagnose(c, "no-such", 0, NULL, &d, &error), MHA_NOT_FOUND, error, "no-such");
    mha_case_close(c);

    const char *path = scratch_path("bug.safetensors");
    recase_write(from, path, &(const recase){.metadata = {{"future", "1"}}});
    assert_ok(mha_case_open(path, NULL, &c, &error), error);
    assert_refused(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), MHA_UNSUPPORTED, error, "cannot be computed",
                   "future");
    assert_refused(mha_case_with_bugs(c, NULL, 0, MHA_STAGE_OUTPUT, &to, &error), MHA_UNSUPPORTED, error, "future");
    mha_case_close(c);
    recase_write(from, path, &(const recase){.drop = "expected"});
    assert_ok(mha_case_open(path, NULL, &c, &error), error);
    assert_refused(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), MHA_NOT_FOUND, error,
                   "a recorded stage, found none");
    mha_case_close(c);
}

/* Without any bug a case is what the exact path makes of it, whatever stage is asked for. Sums of at most a few
 * hundred terms below 100 in another order: 1e-11 is a thousand times what that can change. */
static void no_bug_is_the_check(void **state)
{
    (void)state;
    static const char *const files[] = {
        "torch_self",     "torch_cross",         "torch_causal",          "torch_bias_kv",
        "torch_padding",  "torch_mask_per_head", "torch_cross_kdim_vdim", "torch_bias_kv_zero_attn_padding",
        "torch_self_tbe", "torch_mask_hides"};
    const size_t count = sizeof files / sizeof *files;
    const char *const part = scratch_path("part.safetensors"); /* what keys_only leaves out */
    recase_write("tests/vectors/torch_bias_kv_zero_attn_padding.safetensors", part,
                 &(recase){.drop = "expected",
                           .metadata = {{"keys_only", "1"}, {"key_offset", "1"}, {"softmax_plus_one", "1"}}});
    for (size_t f = 0; f <= count; f++) {
        char path[600];
        mha_case *c;
        mha_error error;
        mha_plan plan;
        snprintf(path, sizeof path, f < count ? "tests/vectors/%s.safetensors" : "%s", f < count ? files[f] : part);
        assert_ok(mha_case_open(path, NULL, &c, &error), error);
        mha_call call = mha_case_call(c);
        call.path = MHA_PATH_EXACT;
        assert_ok(mha_plan_call(mha_case_layer(c), &call, &plan, &error), error);
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        for (int s = 0; s < EVERY_STAGE; s++) {
            *stage_view(&call, (mha_stage)s) = stage_of_plan(&plan, (mha_stage)s, NULL, MHA_F64);
            stage_view(&call, (mha_stage)s)->data =
                calloc(mha_view_elements(stage_view(&call, (mha_stage)s)) + 1, sizeof(double));
        }
        assert_ok(mha_plan_call(mha_case_layer(c), &call, &plan, &error), error);
        void *workspace = malloc(plan.workspace_bytes + 1);
        assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
        for (int s = 0; s < EVERY_STAGE; s++) {
            mha_view found = *stage_view(&call, (mha_stage)s);
            mha_difference d;
            found.data = calloc(mha_view_elements(&found) + 1, sizeof(double));
            assert_ok(mha_case_with_bugs(c, NULL, 0, (mha_stage)s, &found, &error), error);
            assert_ok(mha_compare(&found, stage_view(&call, (mha_stage)s), 0, 1e-11, &d, &error), error);
            if (d.mismatches)
                fail_msg("%s, %s: %g apart", path, mha_stage_at((mha_stage)s)->name, d.max_abs);
            free(found.data);
        }
        for (int s = 0; s < EVERY_STAGE; s++)
            free(stage_view(&call, (mha_stage)s)->data);
        free(workspace);
        mha_case_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_need_threads_and_bytes), cmocka_unit_test(layers_need_memory),
        cmocka_unit_test(caches_say_what_is_wrong),      cmocka_unit_test(what_a_cache_cannot_load_leaves_it_alone),
        cmocka_unit_test(rotations_say_what_is_wrong),   cmocka_unit_test(bugs_say_what_is_wrong),
        cmocka_unit_test(two_bugs_are_one_program),
        cmocka_unit_test(no_bug_is_the_check),
    };
    return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
