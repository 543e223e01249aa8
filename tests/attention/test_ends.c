/* Each end of a forward gives by itself the bits of the whole one, and touch nothing else. */
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/compare.h"
#include "support/rerun.h"
#include "support/trial.h"
#include "support/unit.h"

static const mha_stage first[] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V, MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT};
enum { FIRST = sizeof first / sizeof *first };

static size_t bytes_of(const mha_view *v)
{
    size_t bytes = 0;
    assert_int_equal(mha_dtype_bytes(v->dtype, mha_view_elements(v), &bytes, NULL), MHA_OK);
    return bytes;
}

/* Copies a stage into new memory of `r`, and overwrites it. */
static mha_view move(rerun *r, mha_stage stage)
{
    mha_view was = r->stages[stage];
    const size_t bytes = bytes_of(&was);
    was.data = rerun_memory(r, bytes + 1);
    memcpy(was.data, r->stages[stage].data, bytes);
    memset(r->stages[stage].data, 0xFF, bytes);
    return was;
}

static void expect_same(const rerun *r, mha_stage stage, const mha_view *was, uint64_t seed)
{
    char text[400];
    if (!compare_bits(mha_stage_at(stage)->name, &r->stages[stage], was, text, sizeof text))
        fail_msg("seed %llu: %s", (unsigned long long)seed, text);
}

static size_t ends_of(uint64_t seed, mha_path path)
{
    const trial t = trial_draw(seed);
    rig g;
    rerun r;
    mha_error error;
    mha_view was[MHA_STAGE_COUNT] = {{0}};
    trial_build(&t, &g);
    rerun_init(&r, g.layer, &g.call, &g.past.keys, &g.past.values);
    unsigned keep = 1u << MHA_STAGE_HEADS | TRIAL_OUTPUT;
    for (size_t i = 0; i < FIRST; i++)
        keep |= 1u << first[i];
    const bool ran = rerun_run(&r, path, 1 + (int)(seed % 2), keep, &error) == MHA_OK;
    if (ran) {
        void *workspace = malloc(r.plan.workspace_bytes);
        for (size_t i = 0; i < FIRST; i++)
            was[first[i]] = move(&r, first[i]);
        was[MHA_STAGE_HEADS] = move(&r, MHA_STAGE_HEADS);
        was[MHA_STAGE_OUTPUT] = move(&r, MHA_STAGE_OUTPUT);
        if (r.cache)
            mha_cache_truncate(r.cache, r.past_key.shape[2]);
        assert_ok(mha_forward_inputs(&r.plan, workspace, r.plan.workspace_bytes, &error), error);
        for (size_t i = 0; i < FIRST; i++)
            expect_same(&r, first[i], &was[first[i]], seed);
        memset(workspace, 0xFF, r.plan.workspace_bytes);
        mha_view heads = was[MHA_STAGE_HEADS];
        if (seed % 2) { /* heads apart */
            heads.rank = 4;
            heads.shape[2] = r.plan.h, heads.shape[3] = r.plan.d_v;
            heads.stride[2] = (ptrdiff_t)r.plan.d_v, heads.stride[3] = 1;
        }
        assert_ok(mha_forward_output(&r.plan, &heads, workspace, r.plan.workspace_bytes, &error), error);
        expect_same(&r, MHA_STAGE_OUTPUT, &was[MHA_STAGE_OUTPUT], seed);
        for (size_t i = 0; i < bytes_of(&r.stages[MHA_STAGE_HEADS]); i++)
            assert_int_equal(((unsigned char *)r.stages[MHA_STAGE_HEADS].data)[i], 0xFF);
        if (r.cache)
            assert_int_equal(mha_cache_length(r.cache), r.past_key.shape[2]);
        free(workspace);
    }
    rerun_free(&r);
    trial_release(&g);
    return ran;
}

static void ends_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    size_t ran = 0;
    for (uint64_t seed = 1; seed <= 150; seed++)
        for (int path = MHA_PATH_FAST; path < MHA_PATH_COUNT; path++)
            ran += ends_of(seed, (mha_path)path);
    assert_true(ran > 300);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const mha_config config = {.d_model = 6, .n_heads = 2};
    float x[12] = {0}, y[12];
    mha_layer *layer;
    mha_plan plan, zeros = {0};
    mha_error error;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    const mha_call call = {.query = mha_rows(x, 1, 2, 6), .output = mha_rows(y, 1, 2, 6)};
    assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
    void *workspace = malloc(plan.workspace_bytes);
    const size_t bytes = plan.workspace_bytes;
    mha_view heads = mha_rows(x, 1, 2, 5);
    assert_refused(mha_forward_output(&plan, &heads, workspace, bytes, &error), MHA_INVALID, error, "(1, 2, 6)");
    heads = mha_heads(x, 1, 2, 3, 2);
    assert_refused(mha_forward_output(&plan, &heads, workspace, bytes, &error), MHA_INVALID, error, "(1, 2, 2, 3)");
    assert_refused(mha_forward_output(&plan, NULL, workspace, bytes, &error), MHA_INVALID, error, "heads",
                   "expected data");
    heads = mha_rows(NULL, 1, 2, 6);
    assert_refused(mha_forward_output(&plan, &heads, workspace, bytes, &error), MHA_INVALID, error, "expected data");
    heads = mha_rows(x, 1, 2, 6), heads.dtype = MHA_I32;
    assert_refused(mha_forward_output(&plan, &heads, workspace, bytes, &error), MHA_INVALID, error, "floating");
    heads.dtype = MHA_F32;
    assert_refused(mha_forward_output(&plan, &heads, workspace, 1, &error), MHA_INVALID, error, "workspace");
    assert_refused(mha_forward_inputs(&plan, NULL, bytes, &error), MHA_INVALID, error, "workspace");
    assert_refused(mha_forward_inputs(&zeros, workspace, bytes, &error), MHA_INVALID, error, "found zeros");
    assert_refused(mha_forward_output(&zeros, &heads, workspace, bytes, &error), MHA_INVALID, error, "found zeros");
    free(workspace);
    mha_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(ends_have_the_bits_of_the_whole, guard_teardown),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
