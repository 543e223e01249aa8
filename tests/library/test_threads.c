/* Threads: the same bits for any number of them, the BLAS left as it was found. Many callers: test_callers.c. */
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "compute/gemm.h"
#include "mha/system.h"
#include "support/compare.h"
#include "support/process.h"
#include "support/snapshot.h"
#include "support/unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};

/* ---------------------------------------------------------------- any number of threads */

static void assert_same_bits_for_any_team(const trial *t, const char *what)
{
    static const int teams[] = {2, 3, 8};
    static const mha_stage stages[] = {MHA_STAGE_OUTPUT, MHA_STAGE_WEIGHTS_MEAN, MHA_STAGE_LSE};
    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t s = 0; s < (paths[p] == MHA_PATH_EXACT ? 1 : COUNT(stages)); s++) { /* the checker is slow */
            rig r;
            char text[100];
            if (stages[s] == MHA_STAGE_LSE && t->semantics.softmax.normaliser == MHA_SIGMOID)
                continue;
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
    } sizes[] = {{1, 1, 1, 8, 2, false},     {1, 1, 700, 64, 4, false},  {3, 1, 5, 300, 3, false},
                 {1, 200, 200, 48, 3, true}, {2, 65, 130, 130, 2, true}, {1, 520, 17, 16, 1, false},
                 {1, 3, 3000, 8, 1, false}};
    for (size_t k = 0; k < COUNT(sizes); k++) {
        char what[40];
        trial t = {.seed = k,
                   .B = sizes[k].B,
                   .T_q = sizes[k].T_q,
                   .T_k = sizes[k].T_k,
                   .config = {.d_model = sizes[k].d_model, .n_heads = sizes[k].heads, .bias_q = true},
                   .semantics = {.visible.causal = sizes[k].causal,
                                 .place.has_offset = true,
                                 .place.offset = (int64_t)sizes[k].T_k - (int64_t)sizes[k].T_q}};
        snprintf(what, sizeof what, "sizes %zu", k);
        assert_same_bits_for_any_team(&t, what);
    }
    /* Few queries and enough keys that segments of them become tasks, whatever else joins the denominator. */
    for (int kind = 0; kind < 6; kind++) {
        static const char *const names[] = {"segments",        "segments, grouped", "segments, a learned row",
                                            "segments, sinks", "segments, causal",  "segments of two sequences"};
        trial t = {.seed = 99,
                   .B = 1,
                   .T_q = kind == 1 ? 1 : 3,
                   .T_k = 20000,
                   .config = {.d_model = 32,
                              .n_heads = 2,
                              .kv_heads = kind == 1 ? 1 : 0,
                              .bias_kv = kind == 2,
                              .sinks = kind == 3},
                   .semantics = {.visible.causal = kind == 4,
                                 .place.has_offset = kind == 4,
                                 .place.offset = 9000,
                                 .softmax.zero_row = kind == 2}};
        if (kind == 5)
            t.T_q = 4, t.sequences = 2;
        assert_same_bits_for_any_team(&t, names[kind]);
    }
    for (uint64_t seed = 1; seed <= 40; seed++) {
        char what[40];
        trial t = trial_draw(seed * 65537);
        t.input_dtype = MHA_F32, t.dropout = 0;
        snprintf(what, sizeof what, "seed %d", (int)seed);
        assert_same_bits_for_any_team(&t, what);
    }
}

/* ---------------------------------------------------------------- the BLAS */

static void the_blas_gets_its_threads_back(void **state)
{
    (void)state;
    if (process_blas_threads() == 0) {
        print_message("this BLAS has no thread count to put back\n");
        return;
    }
    trial t = {.seed = 1,
               .B = 2,
               .T_q = 70,
               .T_k = 90,
               .config = {.d_model = 48, .n_heads = 4, .kv_heads = 2, .bias_o = true},
               .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT}};
    rig r;
    mha_error error;
    trial_build(&t, &r);
    for (int count = 1; count <= 3; count++)
        for (int p = MHA_PATH_AUTO; p <= MHA_PATH_EXACT; p++) {
            process_blas_set_threads(count);
            int given = process_blas_threads(); /* it may give fewer than asked for */
            mha_status status = trial_run(&r, (mha_path)p, 2, TRIAL_OUTPUT, MHA_F32, &error);
            assert_true(status == MHA_OK || status == MHA_UNSUPPORTED);
            assert_int_equal(process_blas_threads(), given);
            r.call.semantics.softmax.softcap = -1; /* a refused call does not change it either */
            assert_int_not_equal(trial_run(&r, (mha_path)p, 2, TRIAL_OUTPUT, MHA_F32, &error), MHA_OK);
            assert_int_equal(process_blas_threads(), given);
            r.call.semantics.softmax.softcap = 0;
        }
    trial_release(&r);
}

static void the_blas_is_serial_inside(void **state)
{
    (void)state;
    if (process_blas_threads() == 0) {
        print_message("this BLAS has no thread count to change\n");
        return;
    }
    const int before = process_blas_threads(), openmp = omp_get_max_threads();
    process_blas_set_threads(2);
    omp_set_num_threads(3);
    const int given = process_blas_threads(); /* it may give fewer than asked for */
    mha__gemm_bracket outer, inner;
    assert_int_equal(mha__gemm_begin(2, &outer, NULL), MHA_OK);
    assert_int_equal(process_blas_threads(), 1);
    assert_int_equal(omp_get_max_threads(), 1);
    assert_int_equal(mha__gemm_begin(2, &inner, NULL), MHA_OK); /* another caller, meanwhile */
    mha__gemm_end(&inner);
    assert_int_equal(process_blas_threads(), 1);
    mha__gemm_end(&outer);
    assert_int_equal(process_blas_threads(), given);
    assert_int_equal(omp_get_max_threads(), 3);
    process_blas_set_threads(before);
    omp_set_num_threads(openmp);
}

/* A second thread that watches whether the BLAS was ever at one thread. */
typedef struct watcher {
    atomic_bool seen, over;
} watcher;

static void *watch(void *context)
{
    watcher *w = context;
    while (!atomic_load(&w->over)) {
        if (process_blas_threads() == 1)
            atomic_store(&w->seen, true);
        sched_yield();
    }
    return NULL;
}

/* Whoever multiplies by it: a projection, per-head products with a layer and without, scores that are kept. */
static void a_forward_that_uses_the_blas_makes_it_serial(void **state)
{
    (void)state;
    const int before = process_blas_threads();
    process_blas_set_threads(2);
    if (process_blas_threads() != 2) {
        print_message("this BLAS does not take two threads\n");
        process_blas_set_threads(before);
        return;
    }
    const struct {
        bool bare;
        mha_path path;
        mha_stage keep;
    } ways[] = {{true, MHA_PATH_BLAS, MHA_STAGE_OUTPUT},   {false, MHA_PATH_BLAS, MHA_STAGE_OUTPUT},
                {false, MHA_PATH_FAST, MHA_STAGE_OUTPUT},  {true, MHA_PATH_FAST, MHA_STAGE_SCORES}};
    for (size_t i = 0; i < COUNT(ways); i++) {
        trial t = {.seed = 1,
                   .bare = ways[i].bare,
                   .B = 1,
                   .T_q = 256,
                   .T_k = 256,
                   .config = {.d_model = 128, .n_heads = 2, .d_k = 64, .d_v = 64}};
        rig r;
        mha_error error;
        pthread_t thread;
        watcher w = {0};
        trial_build(&t, &r);
        assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
        mha_status status = MHA_OK;
        for (int tries = 0; tries < 500 && !atomic_load(&w.seen) && status == MHA_OK; tries++)
            status = trial_run(&r, ways[i].path, 1, 1u << ways[i].keep, MHA_F32, &error);
        atomic_store(&w.over, true);
        pthread_join(thread, NULL);
        trial_release(&r);
        assert_ok(status, error);
        assert_true(atomic_load(&w.seen));
    }
    process_blas_set_threads(before);
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

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, guard_teardown)
    const struct CMUnitTest tests[] = {
        TEST(any_number_of_threads_gives_the_same_bits),
        TEST(the_blas_gets_its_threads_back),
        TEST(the_blas_is_serial_inside),
        TEST(a_forward_that_uses_the_blas_makes_it_serial),
        TEST(the_system_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
