/* Plans that go on to the next rows: the bits, sizes and refusals of planning again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/call.h"
#include "support/trial.h"
#include "support/unit.h"

enum { STEPS = 3, PATHS = 3 };
static const mha_path paths[PATHS] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};
static size_t advanced, refused;

/* ---------------------------------------------------------------- a plan and the same call planned again */

/* One of two ways to decode: with its own cache and output. */
typedef struct way {
    mha_call call;
    mha_cache *cache;
    mha_plan plan;
    float *output;
    void *workspace;
} way;

static mha_status forward(way *w, mha_error *error)
{
    free(w->workspace);
    w->workspace = malloc(w->plan.workspace_bytes);
    return mha_forward(&w->plan, w->workspace, w->plan.workspace_bytes, error);
}

static mha_status begin(way *w, rig *r, mha_path path, mha_error *error)
{
    const mha_config *c = &r->t.config;
    const size_t rows = r->t.past + (STEPS + 1) * (r->t.inputs == TRIAL_SELF && !r->t.bare ? r->t.T_q : r->t.T_k);
    const mha_cache_spec spec = {.batch = r->t.B, .kv_heads = c->kv_heads, .d_k = c->d_k, .d_v = c->d_v,
                                 .capacity = rows - (r->t.seed % 5 == 0), /* the last step may lack room */
                                 .dtype = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    *w = (way){.call = r->call};
    w->call.path = path, w->call.threads = 1;
    TRY(mha_cache_create(&spec, NULL, &w->cache, error));
    TRY(mha_cache_load(w->cache, &r->past.keys, &r->past.values, error));
    w->call.cache = w->cache;
    TRY(mha_plan_call(r->layer, &w->call, &w->plan, error));
    size_t shape[4];
    const int rank = mha_plan_stage(&w->plan, MHA_STAGE_OUTPUT, shape);
    w->call.output = mha_view_of(NULL, MHA_F32, rank, shape);
    w->call.output.data = w->output = calloc(mha_view_elements(&w->call.output) + 1, sizeof(float));
    TRY(mha_plan_call(r->layer, &w->call, &w->plan, error));
    return forward(w, error);
}

static void end(way *w)
{
    mha_cache_destroy(w->cache);
    free(w->output), free(w->workspace);
}

/* Whether a step of the plan differs from the call planned again. */
static bool step_differs(rig *r, way w[2], bool *stop, char *text, size_t size)
{
    mha_error error[2] = {0};
    const mha_status status[2] = {mha_plan_advance(&w[0].plan, &error[0]),
                                  mha_plan_call(r->layer, &w[1].call, &w[1].plan, &error[1])};
    *stop = status[0] != MHA_OK;
    refused += *stop;
    if (w[0].call.semantics.place.has_offset) {
        snprintf(text, size, "offset is not refused");
        return status[0] != MHA_UNSUPPORTED || strcmp(error[0].name, "offset") != 0;
    }
    snprintf(text, size, "%d %s: %s; planned again %d %s: %s", status[0], error[0].name, error[0].message,
             status[1], error[1].name, error[1].message);
    if (status[0] != status[1] || strcmp(error[0].name, error[1].name) || strcmp(error[0].message, error[1].message))
        return true;
    if (*stop)
        return false;
    advanced++;
    snprintf(text, size, "S %zu, planned again %zu; workspace %zu and %zu", w[0].plan.S, w[1].plan.S,
             w[0].plan.workspace_bytes, w[1].plan.workspace_bytes);
    if (w[0].plan.S != w[1].plan.S || w[0].plan.workspace_bytes != w[1].plan.workspace_bytes)
        return true;
    for (size_t i = 0; i < 2; i++)
        assert_ok(forward(&w[i], &error[i]), error[i]);
    snprintf(text, size, "the outputs of %zu keys have other bits", w[0].plan.S);
    return memcmp(w[0].output, w[1].output, mha_view_elements(&w[0].call.output) * sizeof(float)) != 0;
}

static bool advance_differs(const trial *t, char *text, size_t size)
{
    bool differs = false;
    for (size_t p = 0; p < PATHS && !differs && (t->use_cache || t->past) && t->input_dtype == MHA_F32; p++) {
        rig r;
        way w[2];
        mha_error error;
        trial_build(t, &r);
        bool stop = begin(&w[0], &r, paths[p], &error) != MHA_OK;
        stop |= begin(&w[1], &r, paths[p], &error) != MHA_OK;
        for (size_t i = 0; i < STEPS && !stop && !differs; i++)
            differs = step_differs(&r, w, &stop, text, size);
        end(&w[0]), end(&w[1]);
        trial_release(&r);
    }
    return differs;
}

static void plans_advance_as_if_planned_again(void **state)
{
    (void)state;
    const uint64_t n = trial_count("ADVANCE_TRIALS", 1500);
    const size_t wrong = trials_that_fail(trial_number("ADVANCE_SEED", 1), n, 0, advance_differs);
    if (wrong)
        fail_msg("%zu plans advance in another way than a call planned again", wrong);
    print_message("%zu steps of plans with the bits of calls planned again, %zu refused as they are\n", advanced,
                  refused);
    assert_true(advanced > n / 20 && refused > n / 100);
}

/* ---------------------------------------------------------------- pages, kept stages, nothing to advance */

enum { H = 2, D = 4, PAGE = 4, TOKENS = 11 };

/* One query a step over pages that grow: lengths change in the caller's array. */
static void lengths_of_pages_are_read_anew(void **state)
{
    (void)state;
    float keys[TOKENS + 1][H][D], query[H * D], y[2][H * D];
    const int32_t table[3] = {2, 0, 1};
    int64_t length = 1;
    for (size_t i = 0; i < sizeof keys / sizeof(float); i++)
        ((float *)keys)[i] = mha__random_unit(1, 0, i);
    for (size_t i = 0; i < H * D; i++)
        query[i] = mha__random_unit(1, 1, i);
    mha_call call = {.query = mha_view_heads(query, MHA_F32, MHA_BTHD, 1, 1, H, D), .threads = 1,
                     .output = mha_rows(y[0], 1, 1, H * D), .semantics.visible.causal = true};
    call.pages = (mha_pages){.table = table, .lengths = &length, .columns = 3};
    call.pages.keys = mha_view_of(keys, MHA_F32, 4, (size_t[]){3, PAGE, H, D}), call.pages.values = call.pages.keys;
    mha_plan plan;
    mha_error error;
    char workspace[1 << 18];
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    for (length = 1; length <= TOKENS; length++) {
        assert_ok(mha_plan_advance(&plan, &error), error);
        assert_int_equal(plan.S, length);
        assert_ok(mha_forward(&plan, workspace, sizeof workspace, &error), error);
        call.output.data = y[1];
        assert_ok(mha_run(NULL, &call, &error), error);
        assert_memory_equal(y[0], y[1], sizeof *y);
    }
    length = 3 * PAGE + 1;
    assert_int_equal(mha_plan_advance(&plan, &error), MHA_INVALID);
    assert_string_equal(error.name, "page lengths");
    assert_int_equal(plan.S, TOKENS);
}

static void what_cannot_advance_is_refused_by_name(void **state)
{
    (void)state;
    float rows[H * D] = {1}, y[H * D], weights[H * 2];
    mha_call call = {.query = mha_view_heads(rows, MHA_F32, MHA_BTHD, 1, 1, H, D), .threads = 1,
                     .output = mha_rows(y, 1, 1, H * D)};
    call.key = call.value = call.query;
    mha_plan plan;
    mha_error error;
    char workspace[1 << 18];
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    assert_int_equal(mha_plan_advance(&plan, &error), MHA_INVALID);
    assert_string_equal(error.message, "expected a plan with a cache or pages, found one without");
    mha_cache *cache = NULL;
    assert_ok(mha_cache_create(&(mha_cache_spec){.batch = 1, .kv_heads = H, .d_k = D, .d_v = D, .capacity = 2}, NULL,
                               &cache, &error), error);
    mha_keep keep = {.stage = MHA_STAGE_WEIGHTS,
                     .view = mha_view_of(weights, MHA_F32, 4, (size_t[]){1, H, 1, 1})};
    call.cache = cache, call.keep = &keep, call.keep_count = 1;
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    assert_ok(mha_plan_advance(&plan, &error), error); /* nothing has changed: the same plan */
    assert_ok(mha_forward(&plan, workspace, sizeof workspace, &error), error);
    assert_int_equal(mha_plan_advance(&plan, &error), MHA_INVALID);
    assert_string_equal(error.message, "expected shape (1, 2, 1, 2), found (1, 2, 1, 1)");
    assert_int_equal(mha_forward(&plan, workspace, sizeof workspace, &error), MHA_INVALID); /* as it was */
    assert_non_null(strstr(error.message, "plan the call again"));
    mha_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_advance_as_if_planned_again),
        cmocka_unit_test(lengths_of_pages_are_read_anew),
        cmocka_unit_test(what_cannot_advance_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
