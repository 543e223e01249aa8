/* Many callers: one layer shared by all, layers made and destroyed in parallel, a caller's own OpenMP region,
 * another user of the BLAS, a fork; and nothing of the process is left changed.
 * SOAK_SECONDS makes it go on for that long (make soak). */
#include <cblas.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mha/lab.h"
#include "support/callers.h"
#include "support/process.h"
#include "support/sanitizer.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "bench/machine_peak.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static crew shared;
static size_t calls_done;

/* The time that each of the five tests that go on for a while may take. */
static double until(void)
{
    const char *soak = getenv("SOAK_SECONDS");
    double seconds = soak ? atof(soak) : 1;
    return now() + seconds / 5;
}

static void check_crew(void)
{
    if (shared.wrong[0])
        fail_msg("%s", shared.wrong);
}

static int set_up(void **state)
{
    (void)state;
    crew_make(&shared);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    calls_done = atomic_load(&shared.calls);
    print_message("%zu calls gave the bits they must give\n", calls_done);
    crew_free(&shared);
    guard_release_all();
    return 0;
}

/* ---------------------------------------------------------------- one layer, many callers */

enum { CALLERS = 5 };

typedef struct caller {
    unsigned seed;
    double deadline;
} caller;

static void *keep_calling(void *context)
{
    const caller *c = context;
    crew_work(&shared, c->seed, c->deadline);
    return NULL;
}

/* Runs function[i](context[i]) at once, each in a thread of its own. */
static void run_together(size_t n, void *(*function[])(void *), void *context[])
{
    pthread_t thread[16];
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, function[i], context[i]), 0);
    for (size_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

static void callers_share_their_layers(void **state)
{
    (void)state;
    caller callers[CALLERS];
    void *(*function[CALLERS])(void *), *context[CALLERS];
    double deadline = until();
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (caller){(unsigned)i * 5, deadline};
        function[i] = keep_calling, context[i] = &callers[i];
    }
    run_together(CALLERS, function, context);
    check_crew();
}

/* ---------------------------------------------------------------- layers come and go */

enum { LIFE_WIDTH = 24, LIFE_ROWS = 5, LIFE_FLOATS = (LIFE_ROWS + 1) * LIFE_WIDTH, LIVES = 12 };

/* A table, a layer and a cache made, used for a prompt and one more token, and destroyed. */
static mha_status live_and_die(uint64_t seed, float *y)
{
    const mha_config config = {.d_model = LIFE_WIDTH, .n_heads = 4, .kv_heads = 2, .bias_v = true};
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 2, .d_k = 6, .d_v = 6, .capacity = LIFE_ROWS + 1,
                                 .dtype = seed % 3 == 0 ? MHA_F64 : MHA_F32};
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_cache *cache = NULL;
    float x[LIFE_FLOATS];
    mha_view all = mha_view_of(x, MHA_F32, 1, (size_t[]){LIFE_FLOATS});
    mha_random_fill(&all, seed, 1, -1, 1);
    mha_status status = mha_params_create(NULL, &table, NULL);
    if (status == MHA_OK)
        status = mha_layer_create(&config, table, "", &layer, NULL);
    if (status == MHA_OK)
        status = mha_cache_create(&spec, NULL, &cache, NULL);
    if (status == MHA_OK) {
        mha_layer_init(layer, seed);
        status = seed % 2 ? mha_layer_pack(layer, NULL) : MHA_OK;
    }
    for (size_t from = 0, n = LIFE_ROWS; status == MHA_OK && n > 0; from += n, n = from == LIFE_ROWS) {
        const size_t shape[3] = {1, n, LIFE_WIDTH};
        mha_plan plan;
        mha_call call = {.query = mha_view_of(x + from * LIFE_WIDTH, MHA_F32, 3, shape),
                         .cache = cache,
                         .semantics.visible.causal = true,
                         .path = seed % 3 == 0   ? MHA_PATH_EXACT
                                 : seed % 3 == 1 ? MHA_PATH_BLAS
                                                 : MHA_PATH_FAST,
                         .threads = 1 + (int)(seed % 3)};
        call.output = mha_view_of(y + from * LIFE_WIDTH, MHA_F32, 3, shape);
        status = mha_plan_call(layer, &call, &plan, NULL);
        void *workspace = status == MHA_OK ? malloc(plan.workspace_bytes) : NULL;
        if (status == MHA_OK)
            status = mha_forward(&plan, workspace, plan.workspace_bytes, NULL);
        free(workspace);
    }
    mha_cache_destroy(cache);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return status;
}

static float lives[LIVES][LIFE_FLOATS];

static void *keep_living(void *context)
{
    const caller *c = context;
    float y[LIFE_FLOATS];
    for (unsigned k = c->seed, i = 0; (i < LIVES || now() < c->deadline) && !shared.wrong[0]; k++, i++) {
        mha_status status = live_and_die(k % LIVES, y);
        if (status != MHA_OK || memcmp(y, lives[k % LIVES], sizeof y) != 0) {
            crew_blame(&shared, "life %u: %s, or other bits", k % LIVES, mha__status_name(status));
            break;
        }
        atomic_fetch_add(&shared.calls, 2);
    }
    return NULL;
}

static void layers_live_and_die_in_parallel(void **state)
{
    (void)state;
    caller callers[CALLERS];
    void *(*function[CALLERS])(void *), *context[CALLERS];
    for (uint64_t k = 0; k < LIVES; k++)
        assert_int_equal(live_and_die(k, lives[k]), MHA_OK);
    double deadline = until();
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (caller){(unsigned)i * 5, deadline};
        function[i] = keep_living, context[i] = &callers[i];
    }
    run_together(CALLERS, function, context);
    check_crew();
}

/* ---------------------------------------------------------------- inside a caller's own team */

static void forwards_run_inside_a_parallel_region(void **state)
{
    (void)state;
    const int outside = omp_get_max_threads();
    const double deadline = until();
#pragma omp parallel num_threads(3)
    {
        int inside = omp_get_max_threads(), number = omp_get_thread_num();
        crew_work(&shared, (unsigned)number * 7, deadline);
        if (omp_get_max_threads() != inside)
            crew_blame(&shared, "a thread's OpenMP default was %d, is %d", inside, omp_get_max_threads());
    }
    check_crew();
    assert_int_equal(omp_get_max_threads(), outside);
}

/* ---------------------------------------------------------------- beside another user of the BLAS */

enum { OWN = 180 }; /* wide enough that OpenBLAS starts its own threads */

/* Whole numbers from -4 to 4: products and sums are exact in float, in whatever order, with however many threads. */
static float whole(size_t seed, size_t i)
{
    return (float)((int)((i * 2654435761u + seed * 40503u) >> 7 & 0xFFFF) % 9 - 4);
}

static void *multiply_alone(void *context)
{
    const caller *c = context;
    const size_t n = OWN * OWN;
    float *A = malloc(4 * n * sizeof *A), *B = A + n, *C = B + n, *expected = C + n;
    for (size_t i = 0; i < n; i++)
        A[i] = whole(c->seed, i), B[i] = whole(c->seed + 1, i), expected[i] = 0;
    for (size_t i = 0; i < OWN; i++)
        for (size_t k = 0; k < OWN; k++)
            for (size_t j = 0; j < OWN; j++)
                expected[i * OWN + j] += A[i * OWN + k] * B[k * OWN + j];
    const int openmp = omp_get_max_threads();
    do {
        memset(C, 0xFF, n * sizeof *C);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, OWN, OWN, OWN, 1, A, OWN, B, OWN, 0, C, OWN);
        if (memcmp(C, expected, n * sizeof *C) != 0)
            crew_blame(&shared, "another user of the BLAS got a wrong product");
        if (omp_get_max_threads() != openmp)
            crew_blame(&shared, "the OpenMP default of another user of the BLAS was %d, is %d", openmp,
                       omp_get_max_threads());
    } while (now() < c->deadline && !shared.wrong[0]);
    free(A);
    return NULL;
}

static void another_user_of_the_blas_is_not_disturbed(void **state)
{
    (void)state;
    const int found = process_blas_threads();
    caller callers[4];
    void *(*function[4])(void *) = {keep_calling, multiply_alone, keep_living, multiply_alone}, *context[4];
    double end = until();
    for (int count = 1; count <= 2; count++) {
        process_blas_set_threads(count);
        int given = process_blas_threads(), openmp = omp_get_max_threads(); /* it may give fewer than asked for */
        double deadline = count == 1 ? (now() + end) / 2 : end;
        for (size_t i = 0; i < COUNT(callers); i++)
            callers[i] = (caller){(unsigned)i * 3, deadline}, context[i] = &callers[i];
        run_together(COUNT(callers), function, context);
        check_crew();
        assert_int_equal(process_blas_threads(), given);
        assert_int_equal(omp_get_max_threads(), openmp);
    }
    process_blas_set_threads(found);
}

/* ---------------------------------------------------------------- the process is left as it was */


/* Something of everything that the library does. */
static void use_everything(void)
{
    mha_error error;
    double peak, read;
    float y[LIFE_FLOATS];
    crew_work(&shared, 0, 0);
    for (uint64_t k = 0; k < LIVES; k++)
        assert_int_equal(live_and_die(k, y), MHA_OK);

    mha_call call = shared.jobs[0].call; /* refused */
    mha_plan plan;
    call.semantics.softmax.softcap = -1;
    assert_int_equal(mha_plan_call(shared.jobs[0].layer, &call, &plan, &error), MHA_INVALID);
    assert_int_equal(mha_run(shared.jobs[0].layer, &call, &error), MHA_INVALID);

    mha_writer *writer = NULL;
    mha_file *file = NULL;
    const char *path = scratch_path("some.safetensors");
    const mha_view view = mha_view_of(y, MHA_F32, 1, (size_t[]){LIFE_FLOATS});
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "y", &view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_ok(mha_file_read(file, mha_file_at(file, 0), &view, &error), error);
    mha_file_close(file);
    assert_int_equal(mha_file_open(scratch_path("absent"), &file, &error), MHA_NOT_FOUND);

    const job *j = &shared.jobs[1];
    mha_case *c = NULL;
    mha_verdict verdict;
    call = j->call;
    float *output = malloc(j->elements * sizeof *output);
    memcpy(output, j->expected, j->elements * sizeof *output);
    call.output = mha_view_of(output, MHA_F32, j->rank, j->shape);
    assert_ok(
        mha_case_save(scratch_path("case.safetensors"), j->layer, &call, &(mha_case_notes){.name = "some"}, &error),
        error);
    assert_ok(mha_case_open(scratch_path("case.safetensors"), NULL, &c, &error), error);
    assert_ok(mha_case_check(c, MHA_PATH_AUTO, NULL, 2, &verdict, &error), error);
    mha_verdict_clear(&verdict);
    mha_case_close(c);
    free(output);
    assert_int_equal(mha__machine_limits(2, &peak, &read), MHA_OK);
}

static void nothing_of_the_process_changes(void **state)
{
    (void)state;
    process_state before;
    const int found = process_blas_threads();
    const char *changed;
    scratch_path("made before the files are counted");
    for (int blas = 1; blas <= 2; blas++) {
        process_blas_set_threads(blas);
        process_state_take(&before);
        use_everything();
        if ((changed = process_state_changed(&before)))
            fail_msg("%s", changed);
    }
    process_blas_set_threads(found);
}

static void on_signal(int signal)
{
    (void)signal;
}

/* How a thread can round, and what it can do with subnormals. */
static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

/* Runs job j with several numbers of threads under these settings: what comes out may be another number than usual, but
 * only one. Returns what has changed of the process, or NULL. */
static const char *run_under(const job *j, int rounding, bool flush)
{
    static const int threads[] = {1, 2, 3, 8};
    const size_t size = j->elements * sizeof(float);
    float *y[2] = {malloc(size + 1), malloc(size + 1)};
    const char *changed = NULL;
    process_state before;
    fenv_t usual;
    fegetenv(&usual);
    for (size_t t = 0; t < COUNT(threads) && !changed; t++) {
        mha_call call = j->call;
        mha_plan plan;
        mha_error error;
        call.threads = threads[t];
        call.output = mha_view_of(y[t > 0], MHA_F32, j->rank, j->shape);
        assert_ok(mha_plan_call(j->layer, &call, &plan, &error), error);
        void *workspace = malloc(plan.workspace_bytes + 1);
        fesetround(rounding);
        if (flush)
            process_flush_subnormals();
        process_state_take(&before);
        mha_status status = mha_forward(&plan, workspace, plan.workspace_bytes, &error);
        changed = process_state_changed(&before);
        fesetenv(&usual);
        assert_ok(status, error);
        if (t > 0 && memcmp(y[0], y[1], size) != 0)
            crew_blame(&shared, "job %d, rounding %d, subnormals %s: %d threads gave other bits than one",
                       (int)(j - shared.jobs), rounding, flush ? "flushed" : "kept", threads[t]);
        free(workspace);
    }
    free(y[0]);
    free(y[1]);
    return changed;
}

/* The same when the caller's own settings are unusual ones: they reach the threads that help, too. Every way to round
 * is tried with subnormals kept and flushed: what one of the two does can hide what the other does. */
static void unusual_settings_are_kept(void **state)
{
    (void)state;
    sigset_t some, usual;
    struct sigaction mine = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old[3];
    static const int signals[] = {SIGFPE, SIGPIPE, SIGUSR1};
    for (size_t i = 0; i < COUNT(signals); i++)
        sigaction(signals[i], &mine, &old[i]);
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &some, &usual);
    setlocale(LC_ALL, "C.UTF-8");
    const char *changed = NULL;
    for (size_t k = 0; k < shared.n_jobs && !changed; k++)
        for (size_t i = 0; i < COUNT(roundings) && !changed; i++)
            for (int flush = 0; flush < 2 && !changed; flush++)
                changed = run_under(&shared.jobs[k], roundings[i], flush);
    setlocale(LC_ALL, "C");
    pthread_sigmask(SIG_SETMASK, &usual, NULL);
    for (size_t i = 0; i < COUNT(signals); i++)
        sigaction(signals[i], &old[i], NULL);
    if (changed)
        fail_msg("%s", changed);
    check_crew();
}

/* ---------------------------------------------------------------- fork */

static bool children_may_start_threads(void)
{
    if (THREAD_SANITIZER)
        print_message("not under ThreadSanitizer: a child may not start threads there\n");
    return !THREAD_SANITIZER;
}

/* The C library's allocator holds its locks over a fork; that of the sanitizer leaves them locked in the child. */
static bool children_may_allocate(void)
{
    if (ADDRESS_SANITIZER)
        print_message("not under AddressSanitizer: its allocator may stay locked in a child\n");
    return !ADDRESS_SANITIZER;
}

/* A child made between calls has no other threads, whatever its parent had started. */
static void a_forked_child_goes_on(void **state)
{
    (void)state;
    if (!children_may_start_threads())
        return;
    crew_work(&shared, 0, 0); /* whatever is started at first use has been started */
    pid_t child = fork();
    if (child == 0) {
        alarm(HANG_SECONDS); /* a child that waits for a thread it does not have is ended */
        int blas = process_blas_threads();
        crew_work(&shared, 1, 0);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            crew_work(&shared, 2, 0);
            leave(shared.wrong[0] != '\0');
        }
        int code = 1;
        waitpid(grandchild, &code, 0);
        leave(code != 0 || shared.wrong[0] || process_blas_threads() != blas);
    }
    assert_true(child > 0);
    crew_work(&shared, 3, 0); /* at the same time */
    int code = 1;
    waitpid(child, &code, 0);
    assert_int_equal(code, 0);
    check_crew();
}

/* Children made at any moment of a forward of other threads, whatever these hold just then. */
static void children_made_during_forwards_go_on(void **state)
{
    (void)state;
    if (!children_may_start_threads() || !children_may_allocate())
        return;
    for (uint64_t k = 0; k < LIVES; k++)
        assert_int_equal(live_and_die(k, lives[k]), MHA_OK);
    const int blas = process_blas_threads();
    const double deadline = until();
    caller callers[3];
    pthread_t thread[3];
    for (size_t i = 0; i < COUNT(callers); i++) {
        callers[i] = (caller){(unsigned)i, deadline};
        assert_int_equal(pthread_create(&thread[i], NULL, keep_living, &callers[i]), 0);
    }
    int code = 0, children = 0;
    for (; code == 0 && now() < deadline; children++) {
        pid_t child = fork();
        if (child == 0) {
            float y[LIFE_FLOATS];
            bool well = true;
            alarm(HANG_SECONDS); /* a child that waits for a thread it does not have is ended */
            for (uint64_t k = 0; k < 3; k++) /* each path */
                well = live_and_die(k, y) == MHA_OK && memcmp(y, lives[k], sizeof y) == 0 && well;
            leave(!well || process_blas_threads() != blas);
        }
        assert_true(child > 0);
        waitpid(child, &code, 0);
    }
    for (size_t i = 0; i < COUNT(callers); i++)
        pthread_join(thread[i], NULL);
    if (code)
        fail_msg("child %d ended with status 0x%x", children, code);
    check_crew();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_share_their_layers),
        cmocka_unit_test(layers_live_and_die_in_parallel),
        cmocka_unit_test(forwards_run_inside_a_parallel_region),
        cmocka_unit_test(another_user_of_the_blas_is_not_disturbed),
        cmocka_unit_test(nothing_of_the_process_changes),
        cmocka_unit_test(unusual_settings_are_kept),
        cmocka_unit_test(a_forked_child_goes_on),
        cmocka_unit_test(children_made_during_forwards_go_on),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
