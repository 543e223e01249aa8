/* The gate on the heads: its stage, on every path, in parts of a forward, and where it means nothing. */
#include <stdlib.h>

#include "support/call.h"
#include "support/compare.h"
#include "support/trial.h"
#include "support/unit.h"

/* The stage is not one of those that every call has, which other tests keep. */
static void the_gated_heads_are_a_stage(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        trial t = {.seed = seed, .B = 2, .T_q = 5, .T_k = 5, .inputs = TRIAL_SELF,
                   .config = {.d_model = 12, .n_heads = 4, .kv_heads = 2, .d_k = 3, .d_v = 1 + seed % 3,
                              .gate = seed % 2 ? MHA_GATE_HEAD : MHA_GATE_FEATURE, .bias_gate = seed % 3 == 0},
                   .sequences = seed % 5 == 4 ? 3 : 0};
        t.B = t.sequences ? 1 : t.B;
        for (int path = MHA_PATH_AUTO; path < MHA_PATH_COUNT; path++) {
            char text[400];
            rig r;
            mha_error error;
            mha_plan plan;
            size_t shape[4];
            trial_build(&t, &r);
            mha_call call = r.call;
            call.path = (mha_path)path;
            call.keep_count = 0;
            assert_ok(mha_plan_call(r.layer, &call, &plan, &error), error);
            assert_int_equal(mha_plan_stage(&plan, MHA_STAGE_GATED, shape), 3);
            float memory[2 * 5 * 12], output[2 * 5 * 12];
            mha_keep keep = {.stage = MHA_STAGE_GATED, .view = mha_view_of(memory, MHA_F32, 3, shape)};
            call.keep = &keep;
            call.keep_count = 1;
            call.output = mha_rows(output, r.call.query.shape[0], r.call.query.shape[1], 12);
            (void)run_call(r.layer, &call);
            oracle expected;
            oracle_run(&r.t.config, r.weights, &call, NULL, path == MHA_PATH_EXACT ? 0x1p-53 : 0x1p-24, &expected);
            if (!compare_stage("gated", &keep.view, &expected.stage[MHA_STAGE_GATED], text, sizeof text) ||
                !compare_stage("output", &call.output, &expected.stage[MHA_STAGE_OUTPUT], text, sizeof text))
                fail_msg("seed %d, path %s: %s", (int)seed, mha_path_name((mha_path)path), text);
            oracle_free(&expected);
            trial_release(&r);
        }
    }
}

/* Heads that come from elsewhere are gated by the query of the call. */
static void the_second_end_of_a_forward_gates(void **state)
{
    (void)state;
    trial t = {.seed = 2, .B = 2, .T_q = 3, .T_k = 3, .inputs = TRIAL_SELF,
               .config = {.d_model = 8, .n_heads = 2, .gate = MHA_GATE_FEATURE}};
    for (int path = MHA_PATH_FAST; path < MHA_PATH_COUNT; path++) {
        rig r;
        mha_error error;
        mha_plan plan;
        float whole[48], parts[48];
        double heads[48]; /* hold those of every path */
        trial_build(&t, &r);
        mha_keep keep = {.stage = MHA_STAGE_HEADS, .view = mha_view_of(heads, MHA_F64, 3, (size_t[]){2, 3, 8})};
        mha_call call = {.query = r.call.query, .output = mha_rows(whole, 2, 3, 8), .path = (mha_path)path,
                         .keep = &keep, .keep_count = 1};
        (void)run_call(r.layer, &call);
        call.output = mha_rows(parts, 2, 3, 8), call.keep_count = 0;
        assert_ok(mha_plan_call(r.layer, &call, &plan, &error), error);
        void *workspace = malloc(plan.workspace_bytes);
        assert_ok(mha_forward_output(&plan, &keep.view, workspace, plan.workspace_bytes, &error), error);
        assert_memory_equal(parts, whole, sizeof whole);
        free(workspace);
        trial_release(&r);
    }
}

static void where_no_layer_is_there_is_no_gate(void **state)
{
    (void)state;
    float x[24] = {0};
    mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
    mha_plan plan;
    mha_error error;
    size_t shape[4];
    mha_call call = {.query = mha_heads(x, 1, 2, 2, 3), .key = mha_heads(x, 1, 2, 2, 3),
                     .value = mha_heads(x, 1, 2, 2, 3), .weights = weights,
                     .weight_count = MHA_WEIGHT_COUNT, .path = MHA_PATH_BLAS};
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    assert_int_equal(mha_plan_stage(&plan, MHA_STAGE_GATED, shape), 0);
    weights[MHA_W_G] = mha_view_of(x, MHA_F32, 2, (size_t[]){2, 6});
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_UNSUPPORTED, error, "W_G");
    weights[MHA_W_G] = (mha_view){0};
    weights[MHA_B_G] = mha_view_of(x, MHA_F32, 1, (size_t[]){6});
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_UNSUPPORTED, error, "b_G");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_gated_heads_are_a_stage, guard_teardown),
        cmocka_unit_test_teardown(the_second_end_of_a_forward_gates, guard_teardown),
        cmocka_unit_test(where_no_layer_is_there_is_no_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
