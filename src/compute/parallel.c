/* The library's one thread pool: helpers that wait for jobs, a job's tasks handed out one by one. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "compute/float_mode.h"
#include "compute/parallel.h"

/* Only there when the program has an OpenMP runtime, which the library does not need. */
extern int omp_get_max_threads(void) __attribute__((weak));
extern void omp_set_num_threads(int) __attribute__((weak));
extern int omp_in_parallel(void) __attribute__((weak));

/* Tasks that lie together, on a cache line of their own. */
typedef struct share {
    _Alignas(64) atomic_size_t next; /* the first task nobody has taken */
    size_t end;
} share;

enum { MOST_SHARES = 32 };

/* On its caller's stack, from its being offered until its last helper has left. */
typedef struct job {
    mha_task task;
    void *context;
    share shares[MOST_SHARES];
    size_t n_shares;
    int wanted;          /* helpers that may still come */
    int helpers;         /* that came: their worker numbers are 1, 2, ... */
    atomic_int inside;   /* of them, those that have not left */
    mha_float_mode mode; /* the caller's */
    struct job *after;   /* in the list of offers */
} job;

/* On its own stack. */
typedef struct helper {
    pthread_t thread;
    bool confined; /* to some of the processors it may run on, until it runs */
    cpu_set_t allowed;
    struct helper *after;
} helper;

static struct {
    pthread_mutex_t lock; /* over everything here and over the plain fields of every offered job */
    pthread_cond_t offer, leave;
    job *offers; /* jobs that want helpers, oldest first */
    atomic_int n_offers;
    int threads, asleep;
    helper *helpers; /* the threads that have come to life */
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

static long nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Watches a counter until it is zero (or no longer zero), but only for a few times what waking a sleeper takes. */
static void watch(atomic_int *counter, bool until_zero)
{
    const long patience = 200000, start = nanoseconds();
    for (unsigned tries = 1; (atomic_load_explicit(counter, memory_order_relaxed) == 0) != until_zero; tries++) {
        pause_briefly();
        if (tries % 64 == 0 && nanoseconds() - start > patience)
            return;
    }
}

/* ---------------------------------------------------------------- helpers */

/* A worker's own share first: neighbouring tasks read the same memory. Then what is left of the others'. */
static void run_tasks(job *j, int worker)
{
    for (size_t s = 0; s < j->n_shares; s++) {
        share *from = &j->shares[((size_t)worker + s) % j->n_shares];
        for (size_t i; (i = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed)) < from->end;)
            j->task(j->context, i, worker);
    }
}

/* With the lock held, as below. */
static void withdraw(job *j)
{
    for (job **at = &pool.offers; *at; at = &(*at)->after)
        if (*at == j) {
            *at = j->after;
            atomic_fetch_sub(&pool.n_offers, 1);
            return;
        }
}

static void *help(void *unused)
{
    (void)unused;
    if (omp_set_num_threads)
        omp_set_num_threads(1); /* a BLAS called from a task forms no team of its own */
    helper self = {.thread = pthread_self()};
    pthread_mutex_lock(&pool.lock);
    self.after = pool.helpers;
    pool.helpers = &self;
    for (;;) {
        while (!pool.offers) {
            pthread_mutex_unlock(&pool.lock);
            watch(&pool.n_offers, false);
            pthread_mutex_lock(&pool.lock);
            if (pool.offers)
                break;
            pool.asleep++;
            pthread_cond_wait(&pool.offer, &pool.lock);
            pool.asleep--;
        }
        job *j = pool.offers;
        int worker = ++j->helpers;
        atomic_fetch_add(&j->inside, 1);
        if (--j->wanted == 0)
            withdraw(j);
        const bool confined = self.confined;
        self.confined = false;
        pthread_mutex_unlock(&pool.lock);
        if (confined)
            (void)sched_setaffinity(0, sizeof self.allowed, &self.allowed);
        mha_float_mode_set(j->mode);
        run_tasks(j, worker);
        pthread_mutex_lock(&pool.lock);
        if (atomic_fetch_sub(&j->inside, 1) == 1)
            pthread_cond_broadcast(&pool.leave);
    }
    return NULL;
}

/* A child of fork has none of its parent's helpers. */
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
    pool.offers = NULL;
    atomic_store(&pool.n_offers, 0);
    pool.threads = pool.asleep = 0;
    pool.helpers = NULL;
}

/* When the program starts: later, another thread could fork just then. */
__attribute__((constructor)) static void prepare_for_fork(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* A kernel may well queue a woken thread behind the one that wakes it, with other processors idle, and leave it there
 * for milliseconds. So when all helpers sleep they are kept off the caller's processor until they run. */
static void make_way(void)
{
    cpu_set_t allowed, others;
    const int here = sched_getcpu();
    if (pool.asleep < pool.threads || here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR(here, &others);
    for (helper *h = pool.helpers; h && CPU_COUNT(&others) > 0; h = h->after) {
        h->allowed = allowed;
        h->confined = pthread_setaffinity_np(h->thread, sizeof others, &others) == 0;
    }
}

/* As many as there can be: the caller does what is left. They take no signals and end with the process. */
static void have_helpers(int wanted)
{
    if (pool.threads >= wanted)
        return;
    sigset_t all, before;
    pthread_attr_t detached;
    if (pthread_attr_init(&detached) != 0)
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (pthread_t thread; pool.threads < wanted; pool.threads++)
        if (pthread_create(&thread, &detached, help, NULL) != 0)
            break;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

/* ---------------------------------------------------------------- callers */

static void offer(job *j)
{
    pthread_mutex_lock(&pool.lock);
    make_way();
    have_helpers(j->wanted);
    job **last = &pool.offers;
    while (*last)
        last = &(*last)->after;
    *last = j;
    atomic_fetch_add(&pool.n_offers, 1);
    for (int i = 0; i < j->wanted && i < pool.asleep; i++)
        pthread_cond_signal(&pool.offer);
    pthread_mutex_unlock(&pool.lock);
}

static void await_helpers(job *j)
{
    pthread_mutex_lock(&pool.lock);
    withdraw(j);
    if (atomic_load(&j->inside) > 0) {
        pthread_mutex_unlock(&pool.lock);
        watch(&j->inside, true);
        pthread_mutex_lock(&pool.lock);
    }
    while (atomic_load(&j->inside) > 0)
        pthread_cond_wait(&pool.leave, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void mha_parallel_for(size_t n, int threads, mha_task task, void *context)
{
    if (n < 2 || threads < 2 || (omp_in_parallel && omp_in_parallel())) {
        for (size_t i = 0; i < n; i++)
            task(context, i, 0);
        return;
    }
    job j;
    j.task = task, j.context = context, j.wanted = ((size_t)threads > n ? (int)n : threads) - 1, j.helpers = 0;
    j.n_shares = j.wanted < MOST_SHARES ? (size_t)j.wanted + 1 : MOST_SHARES;
    for (size_t s = 0, first = 0; s < j.n_shares; first = j.shares[s++].end) {
        atomic_init(&j.shares[s].next, first);
        j.shares[s].end = first + (n - first) / (j.n_shares - s);
    }
    atomic_init(&j.inside, 0);
    j.after = NULL;
    j.mode = mha_float_mode_get();
    offer(&j);
    run_tasks(&j, 0);
    await_helpers(&j);
}

int mha_parallel_worth(double operations, int threads)
{
    const double least = 5e5; /* a few microseconds, what a helper that is awake takes to join */
    return operations >= least * threads ? threads : operations < 2 * least ? 1 : (int)(operations / least);
}

int mha_parallel_default(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    char *end;
    long threads = text ? strtol(text, &end, 10) : 0;
    cpu_set_t processors;
    if (threads >= 1 && threads <= 65536)
        return (int)threads;
    if (sched_getaffinity(0, sizeof processors, &processors) == 0)
        return CPU_COUNT(&processors);
    threads = sysconf(_SC_NPROCESSORS_ONLN); /* more than a cpu_set_t holds */
    return threads < 1 ? 1 : (int)threads;
}

int mha_openmp_default(void)
{
    return omp_get_max_threads ? omp_get_max_threads() : 1;
}

void mha_openmp_set_default(int threads)
{
    if (omp_set_num_threads)
        omp_set_num_threads(threads);
}
