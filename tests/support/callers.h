/* Many callers at once: calls whose answers are known, on layers that all of them share. */
#ifndef TEST_CALLERS_H
#define TEST_CALLERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "support/trial.h"

/* One call and the bits it must give. */
typedef struct job {
    const mha_layer *layer; /* NULL: Q, K, V are given */
    mha_call call;          /* without stages; those are the caller's own */
    size_t shape[3], elements;
    int rank;
    float *expected;
} job;

enum { CREW_RIGS = 8, CREW_JOBS = 3 * CREW_RIGS };

/* The jobs, and what all callers report to. */
typedef struct crew {
    rig rigs[CREW_RIGS];
    job jobs[CREW_JOBS];
    size_t n_rigs, n_jobs;
    atomic_size_t calls; /* that gave the right bits */
    pthread_mutex_t lock;
    char wrong[500]; /* what went wrong first; "" while nothing has */
} crew;

/* Draws layers and calls of many kinds and computes what each path gives with one thread. */
void crew_make(crew *c);
void crew_free(crew *c);

/* Makes calls, each job with 1 to 3 threads, until now() reaches `deadline` or a call goes wrong (then
 * crew->wrong says how); each at least once. Memory is the caller's own. For any number of threads at once. */
void crew_work(crew *c, unsigned seed, double deadline);
/* Takes note of the first thing that goes wrong. */
__attribute__((format(printf, 2, 3))) void crew_blame(crew *c, const char *format, ...);

/* Seconds, from a clock that never goes back. */
double now(void);

#endif
