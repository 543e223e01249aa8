/* The library's one thread pool: helpers that wait for jobs, a job's tasks handed out one by one. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "compute/kernels/float_mode.h"
#include "compute/thread_pool.h"

/* Only there when the program has an OpenMP runtime, which the library does not need. */
extern int omp_get_max_threads(void) __attribute__((weak));
extern void omp_set_num_threads(int) __attribute__((weak));
extern int omp_in_parallel(void) __attribute__((weak));

/* Neighbouring tasks of a job, counted on a cache line of their own. */
typedef struct share {
    _Alignas(64) atomic_size_t next; /* the first task nobody has taken */
    size_t end;
} share;

enum { MOST_SHARES = 32, MOST_JOBS = 16, MOST_THREADS = 1024 };

/* One mha__parallel_for in progress. A helper joins by decrementing `seats`; from then on until it increments `left`
 * the job must not be used for anything else, so the caller waits for every helper that joined. */
typedef struct job {
    _Alignas(64) atomic_int seats; /* helpers that may still join; the rest of this cache line is written before it */
    atomic_bool taken;             /* a caller uses it */
    int wanted;                    /* seats at first: the worker numbers of helpers are 1, 2, ... wanted */
    mha_task task;
    void *context;
    size_t n_shares;
    mha__float_mode mode; /* the caller's */
    _Alignas(64) atomic_int left; /* helpers that joined and are done */
    atomic_bool asleep;           /* the caller sleeps until they are */
    share shares[MOST_SHARES];
} job;

typedef struct helper {
    pthread_t thread;
    bool confined; /* it may run on fewer processors than `allowed` until it wakes up: see make_way */
    cpu_set_t allowed;
} helper;

static job jobs[MOST_JOBS];
static helper helpers[MOST_THREADS]; /* the first pool.threads of them run `help` */

/* Helpers that are awake join without the lock. It guards falling asleep, waking up and starting new helpers. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t offer, leave;
    atomic_int threads, asleep; /* written with the lock held */
    bool ends;                  /* helpers end where they would sleep, and none is started */
    bool exits;                 /* the process exits */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .offer = PTHREAD_COND_INITIALIZER, .leave = PTHREAD_COND_INITIALIZER};

/* ---------------------------------------------------------------- waiting */

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True while spinning is worth it: for 0.2 ms, a few times what waking a sleeping thread takes. */
static bool patient(unsigned *tries, double *start)
{
    const double patience = 0.2;
    pause_briefly();
    if (++*tries % 64 != 0)
        return true;
    const double now = mha__clock_ms();
    if (*tries == 64)
        *start = now;
    return now - *start < patience;
}

/* ---------------------------------------------------------------- helpers */

/* A worker runs its own share first, since neighbouring tasks read the same memory, and then what is left of the
 * others. */
static void run_tasks(job *j, int worker)
{
    for (size_t s = 0; s < j->n_shares; s++) {
        share *from = &j->shares[((size_t)worker + s) % j->n_shares];
        for (size_t i; (i = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed)) < from->end;)
            j->task(j->context, i, worker);
    }
}

/* Joins a job with a free seat, which gives the worker number; NULL when there is none. */
static job *take_seat(int *worker)
{
    for (job *j = jobs; j < jobs + MOST_JOBS; j++) {
        int seats = atomic_load(&j->seats);
        while (seats > 0)
            if (atomic_compare_exchange_weak(&j->seats, &seats, seats - 1)) {
                *worker = j->wanted - seats + 1;
                return j;
            }
    }
    return NULL;
}

/* Waits for a job: spinning for a while, then asleep. No wake-up is lost: the caller stores `seats` and then loads
 * `asleep`; a helper increments `asleep` and then loads `seats`. All four are sequentially consistent, so at least one
 * of the two sees the store of the other. NULL: the helper ends. */
static job *await_job(helper *self, int *worker)
{
    job *j;
    unsigned tries = 0;
    double start = 0;
    do {
        if ((j = take_seat(worker)))
            return j;
    } while (patient(&tries, &start));
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.asleep, 1);
    while (!(j = take_seat(worker)) && !pool.ends)
        pthread_cond_wait(&pool.offer, &pool.lock);
    atomic_fetch_sub(&pool.asleep, 1);
    const bool confined = self->confined;
    self->confined = false;
    pthread_mutex_unlock(&pool.lock);
    if (confined)
        (void)sched_setaffinity(0, sizeof self->allowed, &self->allowed);
    return j;
}

static void leave(job *j)
{
    atomic_fetch_add(&j->left, 1);
    if (!atomic_load(&j->asleep)) /* the job may belong to another caller by now: a spurious wake-up is harmless */
        return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_broadcast(&pool.leave);
    pthread_mutex_unlock(&pool.lock);
}

static void *help(void *self)
{
    if (omp_set_num_threads)
        omp_set_num_threads(1); /* a BLAS called from a task forms no team of its own */
    int worker;
    for (job *j; (j = await_job(self, &worker));) {
        mha__float_mode_set(j->mode);
        run_tasks(j, worker);
        leave(j);
    }
    return NULL;
}

/* A child of fork has none of its parent's helpers: it begins with an empty pool. */
static void before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&pool.lock);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.offer, NULL);
    pthread_cond_init(&pool.leave, NULL);
    atomic_store(&pool.threads, 0);
    atomic_store(&pool.asleep, 0);
    for (job *j = jobs; j < jobs + MOST_JOBS; j++) {
        atomic_store(&j->seats, 0);
        atomic_store(&j->left, 0);
        atomic_store(&j->asleep, false);
        atomic_store(&j->taken, false);
    }
}

/* Runs when the program starts, because later another thread could fork at the same time. */
__attribute__((constructor)) static void prepare_for_fork(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Ends the helpers, so that no memory of theirs is left. Does nothing while a thread is in a job: it may take long. */
void mha_threads_end(void)
{
    for (job *j = jobs; j < jobs + MOST_JOBS; j++)
        if (atomic_load(&j->taken))
            return;
    pthread_mutex_lock(&pool.lock);
    pool.ends = true;
    pthread_cond_broadcast(&pool.offer);
    pthread_mutex_unlock(&pool.lock);
    for (; atomic_load(&pool.threads) > 0; atomic_fetch_sub(&pool.threads, 1))
        pthread_join(helpers[atomic_load(&pool.threads) - 1].thread, NULL);
    pthread_mutex_lock(&pool.lock);
    pool.ends = pool.exits;
    pthread_mutex_unlock(&pool.lock);
}

__attribute__((destructor)) static void end_at_exit(void)
{
    pool.exits = true;
    mha_threads_end();
}

/* The operating system may queue a woken thread behind the thread that wakes it, for milliseconds, while other
 * processors are idle. So when all helpers sleep they are kept off the caller's processor until they run. Called with
 * the lock held. */
static void make_way(void)
{
    cpu_set_t allowed, others;
    const int here = sched_getcpu();
    if (atomic_load(&pool.asleep) < atomic_load(&pool.threads) || here < 0 ||
        sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR(here, &others);
    for (helper *h = helpers; h < helpers + atomic_load(&pool.threads) && CPU_COUNT(&others) > 0; h++) {
        h->allowed = allowed;
        h->confined = pthread_setaffinity_np(h->thread, sizeof others, &others) == 0;
    }
}

/* Starts helpers until there are `wanted`, or as many as the system allows: the caller runs what tasks are left.
 * Helpers take no signals. Called with the lock held. */
static void have_helpers(int wanted)
{
    sigset_t all, before;
    const int most = wanted < MOST_THREADS ? wanted : MOST_THREADS;
    if (atomic_load(&pool.threads) >= most)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int n; (n = atomic_load(&pool.threads)) < most; atomic_fetch_add(&pool.threads, 1)) {
        helpers[n].confined = false;
        if (pthread_create(&helpers[n].thread, NULL, help, &helpers[n]) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---------------------------------------------------------------- callers */

/* NULL when MOST_JOBS callers have a job; this caller then runs its tasks alone. */
static job *take_job(void)
{
    for (job *j = jobs; j < jobs + MOST_JOBS; j++)
        if (!atomic_load_explicit(&j->taken, memory_order_relaxed) && !atomic_exchange(&j->taken, true))
            return j;
    return NULL;
}

static void offer(job *j)
{
    atomic_store(&j->seats, j->wanted);
    const int asleep = atomic_load(&pool.asleep);
    if (asleep == 0 && atomic_load(&pool.threads) >= j->wanted)
        return;
    pthread_mutex_lock(&pool.lock);
    if (!pool.ends) {
        make_way();
        have_helpers(j->wanted);
    }
    for (int i = 0; i < j->wanted && i < atomic_load(&pool.asleep); i++)
        pthread_cond_signal(&pool.offer);
    pthread_mutex_unlock(&pool.lock);
}

static void await_helpers(job *j)
{
    const int came = j->wanted - atomic_exchange(&j->seats, 0);
    unsigned tries = 0;
    double start = 0;
    while (atomic_load(&j->left) < came)
        if (!patient(&tries, &start)) {
            pthread_mutex_lock(&pool.lock);
            atomic_store(&j->asleep, true);
            while (atomic_load(&j->left) < came)
                pthread_cond_wait(&pool.leave, &pool.lock);
            atomic_store(&j->asleep, false);
            pthread_mutex_unlock(&pool.lock);
        }
    atomic_store(&j->left, 0);
    atomic_store(&j->taken, false);
}

/* ---------------------------------------------------------------- a caller's pool */

static mha_thread_pool given; /* run NULL: none */

/* A task, and how the thread that asks for it rounds. */
typedef struct wrapped {
    mha_task task;
    void *context;
    mha__float_mode mode;
} wrapped;

/* Runs a task on a caller's thread, which keeps its own rounding and OpenMP team. */
static void run_wrapped(void *context, size_t i, int worker)
{
    const wrapped *w = context;
    const mha__float_mode mode = mha__float_mode_get();
    const int team = mha__openmp_default();
    mha__float_mode_set(w->mode);
    mha__openmp_set_default(1);
    w->task(w->context, i, worker);
    mha__openmp_set_default(team);
    mha__float_mode_set(mode);
}

mha_status mha_threads_use(const mha_thread_pool *own, mha_error *error)
{
    if (own && !own->run)
        return mha__fail(error, MHA_INVALID, "pool", "expected a function `run`, found NULL");
    if (own)
        TRY(mha__expect_unused("pool", own->reserved, sizeof own->reserved, error));
    given = own ? *own : (mha_thread_pool){0};
    return MHA_OK;
}

void mha__parallel_for(size_t n, int threads, mha_task task, void *context)
{
    if (given.run && n > 1 && threads > 1) {
        wrapped w = {task, context, mha__float_mode_get()};
        given.run(given.pool, n, (size_t)threads > n ? (int)n : threads, run_wrapped, &w);
        return;
    }
    job *j = n < 2 || threads < 2 || (omp_in_parallel && omp_in_parallel()) ? NULL : take_job();
    if (!j) {
        for (size_t i = 0; i < n; i++)
            task(context, i, 0);
        return;
    }
    j->task = task, j->context = context, j->wanted = ((size_t)threads > n ? (int)n : threads) - 1;
    j->n_shares = j->wanted < MOST_SHARES ? (size_t)j->wanted + 1 : MOST_SHARES;
    for (size_t s = 0, first = 0; s < j->n_shares; first = j->shares[s++].end) {
        atomic_store_explicit(&j->shares[s].next, first, memory_order_relaxed);
        j->shares[s].end = first + (n - first) / (j->n_shares - s);
    }
    j->mode = mha__float_mode_get();
    offer(j);
    run_tasks(j, 0);
    await_helpers(j);
}

/* `least`: operations that take about eight times as long as waking a helper. */
int mha__parallel_worth(double operations, int threads)
{
    const double least = 5e5;
    return operations >= least * threads ? threads : operations < 2 * least ? 1 : (int)(operations / least);
}

int mha_threads_available(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    long threads = text ? strtol(text, NULL, 10) : 0;
    cpu_set_t processors;
    if (threads < 1 && sched_getaffinity(0, sizeof processors, &processors) == 0)
        threads = CPU_COUNT(&processors);
    else if (threads < 1)
        threads = sysconf(_SC_NPROCESSORS_ONLN); /* more than a cpu_set_t holds */
    return threads < 1 ? 1 : threads < MOST_THREADS ? (int)threads : MOST_THREADS;
}

mha_status mha__parallel_check(int threads, mha_error *error)
{
    if (threads >= 0 && threads <= MOST_THREADS)
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, "threads", "expected 1 to %d threads, found %d", MOST_THREADS, threads);
}

int mha__openmp_default(void)
{
    return omp_get_max_threads ? omp_get_max_threads() : 1;
}

void mha__openmp_set_default(int threads)
{
    if (omp_set_num_threads)
        omp_set_num_threads(threads);
}
