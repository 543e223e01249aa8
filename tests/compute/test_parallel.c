/* The thread pool: every task once, whoever comes to help, however many call at once. */
#include <dirent.h>
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/gemm.h"
#include "compute/thread_pool.h"
#include "support/process.h"
#include "support/unit.h"

enum { TASKS = 1000, THREADS = 40, CALLERS = 24 }; /* more callers than get help at once */

typedef struct tally {
    int workers; /* that there may be */
    atomic_int done[TASKS];
    atomic_int busy[THREADS]; /* tasks that a worker is at right now */
    atomic_int wrong;
} tally;

static void count(void *context, size_t task, int worker)
{
    tally *t = context;
    if (worker < 0 || worker >= t->workers || atomic_fetch_add(&t->busy[worker], 1) != 0)
        atomic_fetch_add(&t->wrong, 1);
    atomic_fetch_add(&t->done[task], 1);
    if (task % 97 == 0)
        sched_yield();
    if (worker >= 0 && worker < t->workers)
        atomic_fetch_sub(&t->busy[worker], 1);
}

/* How many tasks of [0, n) were not done exactly once, or by a worker that was at another. */
static int faults(size_t n, int threads)
{
    tally t = {.workers = threads > 1 ? threads : 1};
    mha__parallel_for(n, threads, count, &t);
    int wrong = atomic_load(&t.wrong);
    for (size_t i = 0; i < TASKS; i++)
        wrong += atomic_load(&t.done[i]) != (i < n);
    return wrong;
}

static void every_task_runs_once(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 100, TASKS};
    for (int threads = 0; threads <= THREADS; threads += threads < 8 ? 1 : THREADS - 8)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int again = 0; again < 20; again++)
                assert_int_equal(faults(sizes[i], threads), 0);
}

static void *keep_calling(void *context)
{
    int *wrong = context;
    for (int i = 0; i < 60; i++)
        *wrong += faults(TASKS, 1 + i % 8);
    return NULL;
}

static void many_may_call_at_once(void **state)
{
    (void)state;
    pthread_t callers[CALLERS];
    int wrong[CALLERS] = {0};
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, keep_calling, &wrong[i]), 0);
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
        assert_int_equal(wrong[i], 0);
    }
}

/* Both workers must be inside at once, or the first waits until the alarm of main ends the test. */
static void meet(void *context, size_t task, int worker)
{
    (void)task;
    (void)worker;
    atomic_int *arrived = context;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < 2)
        sched_yield();
}

static void tasks_run_side_by_side(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        atomic_int arrived = 0;
        mha__parallel_for(2, 2, meet, &arrived);
        assert_int_equal(atomic_load(&arrived), 2);
    }
}

typedef struct walk {
    atomic_int here; /* workers that have taken their first task */
    size_t first[2];
    bool begun[2];
} walk;

/* Each worker waits at its first task until the other has one. */
static void set_out(void *context, size_t task, int worker)
{
    walk *w = context;
    if (w->begun[worker])
        return;
    w->begun[worker] = true;
    w->first[worker] = task;
    meet(&w->here, task, worker);
}

/* Neighbours read the same memory: the workers begin far from each other. */
static void workers_begin_at_their_own_share(void **state)
{
    (void)state;
    walk w = {0};
    mha__parallel_for(101, 2, set_out, &w);
    assert_true(w.begun[0] && w.begun[1]);
    assert_int_equal(w.first[0], 0);
    assert_int_equal(w.first[1], 50);
}

/* The helpers stay with the parent; the child finds its own, at once and after its own calls. */
static void a_child_of_fork_has_a_pool_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(faults(TASKS, 4), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(HANG_SECONDS);
        atomic_int arrived = 0;
        mha__parallel_for(2, 2, meet, &arrived);
        leave(faults(TASKS, 4) == 0 && atomic_load(&arrived) == 2 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(faults(TASKS, 4), 0);
}

typedef struct hold {
    atomic_int callers; /* that are inside */
    atomic_bool over;
} hold;

static void stay(void *context, size_t task, int worker)
{
    (void)task;
    hold *h = context;
    if (worker == 0)
        atomic_fetch_add(&h->callers, 1);
    while (!atomic_load(&h->over))
        usleep(1000);
}

static void *call_and_stay(void *context)
{
    mha__parallel_for(2, 2, stay, context);
    return NULL;
}

/* Jobs whose callers do not exist in a child must not keep the child's calls from getting help. */
static void a_child_of_fork_is_not_held_up_by_calls_of_its_parent(void **state)
{
    (void)state;
    pthread_t callers[CALLERS];
    hold h = {0};
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_and_stay, &h), 0);
    while (atomic_load(&h.callers) < CALLERS)
        usleep(1000);
    pid_t child = fork();
    if (child == 0) {
        alarm(HANG_SECONDS);
        atomic_int arrived = 0;
        mha__parallel_for(2, 2, meet, &arrived);
        leave(atomic_load(&arrived) == 2 ? 0 : 1);
    }
    atomic_store(&h.over, true);
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(callers[i], NULL);
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

typedef struct sums {
    atomic_int arrived;
    float third[2], tiny[2]; /* by task */
    int exceptions[2];
} sums;

/* Each task by a worker of its own, as they wait for each other. */
static void compute(void *context, size_t task, int worker)
{
    sums *s = context;
    volatile float one = 1.0f, three = 3.0f, small = 0x1p-126f;
    meet(&s->arrived, task, worker);
    s->third[task] = one / three;
    s->tiny[task] = small * 0.5f;
    s->exceptions[task] = fegetexcept();
}

/* Rounding and subnormals are the calling thread's; its traps are not, nor are a former caller's settings. */
static void tasks_compute_as_their_caller_does(void **state)
{
    (void)state;
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    fenv_t usual;
    fegetenv(&usual);
    for (int flush = 0; flush < 2; flush++)
        for (size_t r = 0; r < sizeof roundings / sizeof *roundings; r++)
            for (int traps = 0; traps < 2; traps++) {
                sums s = {0};
                fesetround(roundings[r]);
                if (flush)
                    process_flush_subnormals();
                if (traps)
                    feenableexcept(FE_DIVBYZERO);
                const int rounding = fegetround(), enabled = fegetexcept();
                volatile float one = 1.0f, three = 3.0f, small = 0x1p-126f;
                volatile float third = one / three, tiny = small * 0.5f;
                mha__parallel_for(2, 2, compute, &s);
                const int rounding_after = fegetround(), enabled_after = fegetexcept();
                fesetenv(&usual);
                assert_int_equal(atomic_load(&s.arrived), 2);
                for (int i = 0; i < 2; i++)
                    assert_true(s.third[i] == third && s.tiny[i] == tiny);
                assert_int_equal(s.exceptions[0] + s.exceptions[1], enabled); /* the caller's own */
                assert_int_equal(rounding_after, rounding);
                assert_int_equal(enabled_after, enabled);
            }
}

enum { ORDER = 8 };

static float multiply(void)
{
    float A[ORDER * ORDER], C[ORDER * ORDER];
    for (int i = 0; i < ORDER * ORDER; i++)
        A[i] = 1.0f;
    mha__gemm(ORDER, ORDER, ORDER, A, ORDER, A, ORDER, C, ORDER);
    return C[0];
}

static void *keep_multiplying(void *context)
{
    atomic_int *stop = context;
    while (!atomic_load(stop)) {
        mha__gemm_bracket bracket;
        if (mha__gemm_begin(1, &bracket, NULL) != MHA_OK)
            break;
        for (int i = 0; i < 50; i++)
            (void)multiply();
        mha__gemm_end(&bracket);
    }
    return NULL;
}

/* A BLAS locks something when a call begins and ends; one child in thirty would wait for that for ever. */
static void a_child_of_fork_finds_the_blas_unlocked(void **state)
{
    (void)state;
    pthread_t thread[2];
    atomic_int stop = 0;
    int status = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, keep_multiplying, &stop), 0);
    for (int children = 0; children < 200 && status == 0; children++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(HANG_SECONDS);
            mha__gemm_bracket bracket;
            const bool begun = mha__gemm_begin(1, &bracket, NULL) == MHA_OK;
            const float sum = multiply();
            mha__gemm_end(&bracket);
            leave(begun && sum == ORDER ? 0 : 1);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            status = -1;
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(status, 0);
}

/* ---------------------------------------------------------------- the end of the process */

static bool looks_back; /* in a child that exits: it tells what is left of the pool */

static int threads_now(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));)
        n += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

/* Runs after the library's own destructor. The pool has no helper any more, and works without. */
__attribute__((destructor(101))) static void look_back(void)
{
    if (looks_back)
        _exit(threads_now() * 10 + (faults(TASKS, 4) != 0));
}

static void helpers_end_before_the_process(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        if (child == 0) {
            looks_back = true;
            for (int calls = 0; calls < i; calls++)
                (void)faults(TASKS, 1 + calls % 8);
            if (i % 2)
                usleep(2000); /* they sleep; without it they look for work */
            exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 10);
    }
}

static void wait_for_ever(void *context, size_t task, int worker)
{
    (void)task;
    (void)worker;
    atomic_fetch_add((atomic_int *)context, 1);
    for (;;)
        pause();
}

static void *never_return(void *context)
{
    mha__parallel_for(8, 4, wait_for_ever, context);
    return NULL;
}

static void a_process_exits_while_another_thread_computes(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        static atomic_int inside;
        pthread_t caller;
        if (pthread_create(&caller, NULL, never_return, &inside) != 0)
            _exit(1);
        while (atomic_load(&inside) < 4)
            sched_yield();
        exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void helpers_end_when_they_are_told_to(void **state)
{
    (void)state;
    mha_threads_end();
    const int before = threads_now();
    for (int again = 0; again < 3; again++) {
        assert_int_equal(faults(TASKS, 4), 0);
        assert_int_equal(threads_now(), before + 3);
        mha_threads_end();
        assert_int_equal(threads_now(), before);
        mha_threads_end();
    }
}

/* A caller's pool: its threads take tasks in turn, the last one first; `calls` counts the loops. */
typedef struct own_pool {
    atomic_int calls;
} own_pool;

typedef struct own_worker {
    size_t n;
    int number, threads;
    mha_task task;
    void *context;
} own_worker;

static void *work(void *context)
{
    const own_worker *w = context;
    fesetround(FE_TONEAREST);
    for (size_t i = w->n; i-- > 0;)
        if (i % (size_t)w->threads == (size_t)w->number)
            w->task(w->context, i, w->number);
    return fegetround() == FE_TONEAREST ? NULL : context;
}

static void run_own(void *pool, size_t n, int threads, mha_task task, void *context)
{
    pthread_t started[THREADS];
    own_worker workers[THREADS];
    atomic_fetch_add(&((own_pool *)pool)->calls, 1);
    for (int i = 0; i < threads; i++) {
        workers[i] = (own_worker){n, i, threads, task, context};
        assert_int_equal(pthread_create(&started[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < threads; i++) {
        void *changed;
        pthread_join(started[i], &changed);
        assert_null(changed); /* a thread goes on to round as before */
    }
}

static void tasks_run_in_the_pool_of_a_caller(void **state)
{
    (void)state;
    own_pool own = {0};
    mha_error error;
    mha_threads_end();
    const int before = threads_now();
    assert_ok(mha_threads_use(&(mha_thread_pool){.run = run_own, .pool = &own}, &error), error);
    for (int threads = 1; threads <= 8; threads++)
        assert_int_equal(faults(TASKS, threads), 0);
    assert_int_equal(atomic_load(&own.calls), 7); /* one thread needs no pool */
    assert_int_equal(threads_now(), before);
    sums s = {0};
    volatile float one = 1.0f, three = 3.0f;
    fesetround(FE_DOWNWARD);
    mha__parallel_for(2, 2, compute, &s);
    fesetround(FE_TONEAREST);
    assert_true(s.third[0] < one / three && s.third[1] == s.third[0]); /* rounded as the caller rounds */
    assert_ok(mha_threads_use(NULL, &error), error);
    assert_int_equal(faults(TASKS, 4), 0);
    assert_int_equal(atomic_load(&own.calls), 8);

    assert_refused(mha_threads_use(&(mha_thread_pool){.pool = &own}, &error), MHA_INVALID, error, "pool", "run");
    assert_refused(mha_threads_use(&(mha_thread_pool){.run = run_own, .reserved = {1}}, &error), MHA_UNSUPPORTED, error,
                   "pool", "");
}

static void the_number_of_threads_comes_from_the_environment_or_the_machine(void **state)
{
    (void)state;
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(mha_threads_available(), 3);
    setenv("OMP_NUM_THREADS", "5,2", 1); /* nested teams: the outer one counts */
    assert_int_equal(mha_threads_available(), 5);
    static const char *const many[] = {"1024", "1025", "60000", "65537", "99999999999999999999"};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        setenv("OMP_NUM_THREADS", many[i], 1);
        assert_int_equal(mha_threads_available(), 1024); /* the most that a call may ask for */
    }
    static const char *const nothing[] = {"0", "-1", "many", ""};
    unsetenv("OMP_NUM_THREADS");
    const int machine = mha_threads_available();
    assert_true(machine >= 1);
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        setenv("OMP_NUM_THREADS", nothing[i], 1);
        assert_int_equal(mha_threads_available(), machine);
    }
    unsetenv("OMP_NUM_THREADS");
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(mha_threads_available(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void little_work_wakes_nobody(void **state)
{
    (void)state;
    assert_int_equal(mha__parallel_worth(1e3, 8), 1);
    assert_int_equal(mha__parallel_worth(1e12, 8), 8);
    assert_int_equal(mha__parallel_worth(999999, 8), 1);
    assert_int_equal(mha__parallel_worth(1e6, 8), 2);
    assert_int_equal(mha__parallel_worth(1999999, 4), 3);
    assert_int_equal(mha__parallel_worth(2e6, 4), 4);
    assert_int_equal(mha__parallel_worth(1e12, 1), 1);
    for (double operations = 1; operations < 1e9; operations *= 2) {
        const int threads = mha__parallel_worth(operations, 8);
        assert_true(threads >= 1 && threads <= 8);
        assert_true(mha__parallel_worth(2 * operations, 8) >= threads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(many_may_call_at_once),
        cmocka_unit_test(tasks_run_side_by_side),
        cmocka_unit_test(workers_begin_at_their_own_share),
        cmocka_unit_test(tasks_compute_as_their_caller_does),
        cmocka_unit_test(a_child_of_fork_has_a_pool_of_its_own),
        cmocka_unit_test(a_child_of_fork_is_not_held_up_by_calls_of_its_parent),
        cmocka_unit_test(a_child_of_fork_finds_the_blas_unlocked),
        cmocka_unit_test(helpers_end_before_the_process),
        cmocka_unit_test(a_process_exits_while_another_thread_computes),
        cmocka_unit_test(helpers_end_when_they_are_told_to),
        cmocka_unit_test(tasks_run_in_the_pool_of_a_caller),
        cmocka_unit_test(the_number_of_threads_comes_from_the_environment_or_the_machine),
        cmocka_unit_test(little_work_wakes_nobody),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
