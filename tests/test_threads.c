/* Threads: the same bits for any number of them, many callers at once, the BLAS left as it was found. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/random.h"
#include "mha/system.h"
#include "support/compare.h"
#include "support/snapshot.h"
#include "support/unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* OpenBLAS's own controls; another CBLAS has none of them, and nothing to put back. */
extern void openblas_set_num_threads(int) __attribute__((weak));
extern int openblas_get_num_threads(void) __attribute__((weak));

static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};

/* ---------------------------------------------------------------- any number of threads */

static void assert_same_bits_for_any_team(const trial *t, const char *what)
{
    static const int teams[] = {2, 3, 8};
    static const mha_stage stages[] = {MHA_STAGE_OUTPUT, MHA_STAGE_WEIGHTS_MEAN, MHA_STAGE_LSE};
    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t s = 0; s < (paths[p] == MHA_PATH_EXACT ? 1 : COUNT(stages)); s++) { /* the judge is slow */
            rig r;
            char text[100];
            trial_build(t, &r);
            snapshot one = snapshot_run(&r, paths[p], 1, stages[s], false);
            for (size_t n = paths[p] == MHA_PATH_EXACT; n < COUNT(teams); n++) {
                snapshot many = snapshot_run(&r, paths[p], teams[n], stages[s], false);
                snprintf(text, sizeof text, "%s, %s, %d threads", what, mha_path_name(paths[p]), teams[n]);
                assert_same(&one, &many, text);
                snapshot_release(&many);
            }
            snapshot_release(&one);
            trial_release(&r);
        }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        size_t B, T_q, T_k, d_model, heads;
        bool causal;
    } sizes[] = {{1, 1, 1, 8, 2, false},      {1, 1, 700, 64, 4, false},  {3, 1, 5, 300, 3, false}, {1, 200, 200, 48, 3, true},
                 {2, 65, 130, 130, 2, true}, {1, 520, 17, 16, 1, false}, {1, 3, 3000, 8, 1, false}};
    for (size_t k = 0; k < COUNT(sizes); k++) {
        char what[40];
        trial t = {.seed = k, .B = sizes[k].B, .T_q = sizes[k].T_q, .T_k = sizes[k].T_k,
                   .config = {.d_model = sizes[k].d_model, .n_heads = sizes[k].heads, .bias_q = true},
                   .semantics = {.causal = sizes[k].causal, .has_offset = true, .offset = (int64_t)sizes[k].T_k - (int64_t)sizes[k].T_q}};
        snprintf(what, sizeof what, "sizes %zu", k);
        assert_same_bits_for_any_team(&t, what);
    }
    for (uint64_t seed = 1; seed <= 40; seed++) {
        char what[40];
        trial t = trial_draw(seed * 65537);
        t.input_dtype = MHA_F32;
        snprintf(what, sizeof what, "seed %d", (int)seed);
        assert_same_bits_for_any_team(&t, what);
    }
}

/* ---------------------------------------------------------------- many callers */

/* One caller: its own workspace and output, the layer and the inputs of everybody. */
typedef struct caller {
    const mha_layer *layer;
    mha_call call;
    float *output;
    size_t bytes;
    void *workspace;
    size_t workspace_bytes;
    int rounds;
    mha_status status;
} caller;

static void *keep_calling(void *context)
{
    caller *c = context;
    for (int i = 0; i < c->rounds && c->status == MHA_OK; i++)
        c->status = mha_forward(c->layer, &c->call, c->workspace, c->workspace_bytes, NULL);
    return NULL;
}

enum { CALLERS = 6 };

/* Callers of one layer, each with its path and team; `reference` is what each must find. */
static size_t make_callers(rig *r, caller *callers, mha_path only, snapshot *reference)
{
    size_t n = 0;
    for (size_t i = 0; i < CALLERS; i++) {
        mha_path path = only != MHA_PATH_AUTO ? only : paths[i % COUNT(paths)];
        mha_plan plan;
        mha_error error;
        caller *c = &callers[n];
        *c = (caller){.layer = r->layer, .call = r->call, .rounds = path == MHA_PATH_EXACT ? 1 : 8};
        reference[n] = snapshot_run(r, path, 1, MHA_STAGE_OUTPUT, false);
        if (!reference[n].view.data)
            continue;
        c->call.path = path, c->call.threads = 1 + (int)(i % 3);
        c->bytes = mha_view_elements(&reference[n].view) * sizeof(float);
        c->output = calloc(1, c->bytes);
        c->call.stages[MHA_STAGE_OUTPUT] = mha_view_of(c->output, MHA_F32, 3, reference[n].view.shape);
        assert_ok(mha_plan_call(c->layer, &c->call, &plan, &error), error);
        c->workspace_bytes = plan.workspace_bytes;
        c->workspace = malloc(c->workspace_bytes);
        n++;
    }
    return n;
}

static void check_callers(caller *callers, snapshot *reference, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[300];
        assert_int_equal(callers[i].status, MHA_OK);
        if (!compare_bits("output", &callers[i].call.stages[MHA_STAGE_OUTPUT], &reference[i].view, text, sizeof text))
            fail_msg("caller %zu: %s", i, text);
        free(callers[i].output);
        free(callers[i].workspace);
        snapshot_release(&reference[i]);
    }
}

static trial shared(void)
{
    return (trial){.seed = 1, .B = 2, .T_q = 70, .T_k = 90, .config = {.d_model = 48, .n_heads = 4, .kv_heads = 2, .bias_o = true},
                   .semantics = {.causal = true, .rope.kind = MHA_ROPE_HALF_SPLIT}};
}

static void callers_share_a_layer(void **state)
{
    (void)state;
    trial t = shared();
    rig r;
    caller callers[CALLERS];
    snapshot reference[CALLERS];
    pthread_t threads[CALLERS];
    trial_build(&t, &r);
    size_t n = make_callers(&r, callers, MHA_PATH_AUTO, reference);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_calling, &callers[i]), 0);
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    check_callers(callers, reference, n);
    trial_release(&r);
}

/* Inside a caller's own parallel region the team is smaller than asked for; the bits are the same. */
static void forwards_run_inside_a_parallel_region(void **state)
{
    (void)state;
    trial t = shared();
    rig r;
    caller callers[CALLERS];
    snapshot reference[CALLERS];
    trial_build(&t, &r);
    size_t n = make_callers(&r, callers, MHA_PATH_AUTO, reference);
#pragma omp parallel for num_threads(3) schedule(dynamic, 1)
    for (size_t i = 0; i < n; i++)
        keep_calling(&callers[i]);
    check_callers(callers, reference, n);
    trial_release(&r);
}

/* Layers made, used and destroyed by several threads at once, each in its own table. */
static void *live_and_die(void *context)
{
    mha_status *status = context;
    for (int i = 0; i < 20 && *status == MHA_OK; i++) {
        mha_params *table = NULL;
        mha_layer *layer = NULL;
        mha_plan plan;
        mha_config config = {.d_model = 16, .n_heads = 4, .bias_k = true};
        float x[3 * 16], y[3 * 16];
        if ((*status = mha_params_create(NULL, &table)) != MHA_OK)
            break;
        *status = mha_layer_create(&config, table, "", &layer, NULL);
        if (*status == MHA_OK) {
            mha_layer_init(layer, 1);
            mha_view in = mha_view_of(x, MHA_F32, 3, (size_t[]){1, 3, 16});
            mha_random_fill(&in, 2, 3, -1, 1);
            mha_call call = {.query = in, .path = i % 2 ? MHA_PATH_EXACT : MHA_PATH_BLAS};
            call.stages[MHA_STAGE_OUTPUT] = mha_view_of(y, MHA_F32, 3, in.shape);
            *status = mha_plan_call(layer, &call, &plan, NULL);
            void *workspace = malloc(plan.workspace_bytes);
            if (*status == MHA_OK)
                *status = mha_forward(layer, &call, workspace, plan.workspace_bytes, NULL);
            free(workspace);
            mha_layer_destroy(layer);
        }
        mha_params_destroy(table);
    }
    return NULL;
}

static void layers_live_and_die_in_parallel(void **state)
{
    (void)state;
    pthread_t threads[4];
    mha_status status[4] = {MHA_OK};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, live_and_die, &status[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(status[i], MHA_OK);
    }
}

/* ---------------------------------------------------------------- the BLAS */

static void the_blas_gets_its_threads_back(void **state)
{
    (void)state;
    if (!openblas_set_num_threads || !openblas_get_num_threads) {
        print_message("this BLAS has no thread count to put back\n");
        return;
    }
    trial t = shared();
    rig r;
    mha_error error;
    trial_build(&t, &r);
    for (int count = 1; count <= 3; count++)
        for (int p = MHA_PATH_AUTO; p <= MHA_PATH_EXACT; p++) {
            openblas_set_num_threads(count);
            int given = openblas_get_num_threads(); /* it may give fewer than asked for */
            mha_status status = trial_run(&r, (mha_path)p, 2, TRIAL_OUTPUT, MHA_F32, &error);
            assert_true(status == MHA_OK || status == MHA_UNSUPPORTED);
            assert_int_equal(openblas_get_num_threads(), given);
            r.call.semantics.softcap = -1; /* a refused call leaves it alone too */
            assert_int_not_equal(trial_run(&r, (mha_path)p, 2, TRIAL_OUTPUT, MHA_F32, &error), MHA_OK);
            assert_int_equal(openblas_get_num_threads(), given);
            r.call.semantics.softcap = 0;
        }
    /* ... and so do many callers together, whoever is the last one out */
    openblas_set_num_threads(2);
    int given = openblas_get_num_threads();
    for (int round = 0; round < 5; round++) {
        caller callers[CALLERS];
        snapshot reference[CALLERS];
        pthread_t threads[CALLERS];
        size_t n = make_callers(&r, callers, MHA_PATH_BLAS, reference);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, keep_calling, &callers[i]), 0);
        for (size_t i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(openblas_get_num_threads(), given);
        check_callers(callers, reference, n);
    }
    trial_release(&r);
}

static void the_system_says_what_it_is(void **state)
{
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH);
    assert_string_equal(mha_version(), version);
    assert_true(mha_threads_available() >= 1);
    assert_int_not_equal(mha_blas_name()[0], '\0');
    static const char *const known[] = {"pthread", "openmp", "serial", "unknown"};
    bool found = false;
    for (size_t i = 0; i < COUNT(known); i++)
        found |= strcmp(mha_blas_threading(), known[i]) == 0;
    assert_true(found);
}

static int tear_down(void **state)
{
    (void)state;
    guard_release_all();
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(any_number_of_threads_gives_the_same_bits),
        TEST(callers_share_a_layer),
        TEST(forwards_run_inside_a_parallel_region),
        TEST(layers_live_and_die_in_parallel),
        TEST(the_blas_gets_its_threads_back),
        TEST(the_system_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
