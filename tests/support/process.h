/* State of the whole process or of its thread, which a library must leave as it found it. */
#ifndef TEST_PROCESS_H
#define TEST_PROCESS_H

#include <sched.h>
#include <signal.h>
#include <stddef.h>

enum { PROCESS_SIGNALS = 65 };

typedef struct process_state {
    int rounding;
    unsigned long long float_control; /* rounding, traps, flush-to-zero; without the sticky flags */
    char locale[512];
    sigset_t signal_mask;
    struct sigaction action[PROCESS_SIGNALS];
    stack_t signal_stack;
    cpu_set_t cpus;
    unsigned file_mask;
    char directory[512];
    size_t environment, files; /* a sum over the environment's text; open files */
    int blas_threads;          /* 0: this BLAS has no such count */
    int openmp_threads;
    int next_random;           /* of rand() */
} process_state;

/* Seeds rand(), so that a call of it by anybody else shows. */
void process_state_take(process_state *state);
/* The present differences, in words; NULL if there are none. Valid until the next call. */
const char *process_state_changed(const process_state *before);

/* From now on subnormals are zero to the calling thread, until its floating-point environment is set to another. */
void process_flush_subnormals(void);

/* OpenBLAS's own controls; another CBLAS has none of them: 0, and nothing happens. */
int process_blas_threads(void);
void process_blas_set_threads(int threads);

#endif
