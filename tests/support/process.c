/* State of the whole process or of its thread, which a library must leave as it found it. */
#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/process.h"
#include "support/sanitizer.h"

extern void openblas_set_num_threads(int) __attribute__((weak));
extern int openblas_get_num_threads(void) __attribute__((weak));

int process_blas_threads(void)
{
    return openblas_set_num_threads && openblas_get_num_threads ? openblas_get_num_threads() : 0;
}

void process_blas_set_threads(int threads)
{
    if (openblas_set_num_threads && openblas_get_num_threads)
        openblas_set_num_threads(threads);
}

static unsigned long long float_control(void)
{
#if defined(__x86_64__)
    unsigned mxcsr;
    unsigned short x87;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (mxcsr & ~0x3Fu) | (unsigned long long)x87 << 32;
#elif defined(__aarch64__)
    unsigned long long fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return 0;
#endif
}

void process_flush_subnormals(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(float_control() | 1 << 24));
#endif
}

/* Only the bits of signals that exist mean something. */
static bool same_signals(const sigset_t *a, const sigset_t *b)
{
    bool same = true;
    for (int signal = 1; signal < PROCESS_SIGNALS; signal++)
        same &= sigismember(a, signal) == sigismember(b, signal);
    return same;
}

static size_t environment(void)
{
    size_t sum = 0;
    for (char **entry = environ; entry && *entry; entry++)
        for (const char *c = *entry; *c; c++)
            sum = sum * 31 + (unsigned char)*c;
    return sum;
}

/* Without a limit of its own, glibc's malloc reads the number of processors from a file when a thread needs a new
 * arena, at any time. */
__attribute__((constructor)) static void limit_arenas(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 64);
#endif
}

static size_t open_files(void)
{
    if (THREAD_SANITIZER) /* it opens two pipes of its own when it first looks up the name of a suppressed report */
        return 0;
    DIR *directory = opendir("/proc/self/fd");
    size_t n = 0;
    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n;
}

static void take(process_state *s)
{
    memset(s, 0, sizeof *s);
    s->rounding = fegetround();
    s->float_control = float_control();
    snprintf(s->locale, sizeof s->locale, "%s", setlocale(LC_ALL, NULL));
    pthread_sigmask(SIG_BLOCK, NULL, &s->signal_mask);
    for (int signal = 1; signal < PROCESS_SIGNALS; signal++)
        sigaction(signal, NULL, &s->action[signal]);
    sigaltstack(NULL, &s->signal_stack);
    sched_getaffinity(0, sizeof s->cpus, &s->cpus);
    s->file_mask = umask(0);
    umask(s->file_mask);
    if (!getcwd(s->directory, sizeof s->directory))
        s->directory[0] = '\0';
    s->environment = environment();
    s->files = open_files();
    s->blas_threads = process_blas_threads();
    s->openmp_threads = omp_get_max_threads();
}

void process_state_take(process_state *state)
{
    take(state);
    srand(7);
    state->next_random = rand();
    srand(7);
}

/* A file that another thread holds for a moment is not left open: glibc's malloc reads the number of processors in the
 * thread whose new arena passes a limit. Returns the number of open files once it is `before`, or after 30 seconds. */
static size_t files_left_open(size_t before)
{
    size_t n = open_files();
    for (int wait = 0; wait < 3000 && n > before; wait++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        n = open_files();
    }
    return n;
}

const char *process_state_changed(const process_state *before)
{
    static char text[1200];
    process_state after;
    take(&after);
    after.files = files_left_open(before->files);
    after.next_random = rand();
    text[0] = '\0';
#define NUMBER(field)                                                                                                  \
    if (before->field != after.field)                                                                                  \
    snprintf(text, sizeof text, #field ": %lld before, %lld after", (long long)before->field, (long long)after.field)
#define BYTES(field)                                                                                                   \
    if (memcmp(&before->field, &after.field, sizeof after.field) != 0)                                                 \
    snprintf(text, sizeof text, #field " changed")
    NUMBER(rounding);
    NUMBER(float_control);
    BYTES(locale);
    if (!same_signals(&before->signal_mask, &after.signal_mask))
        snprintf(text, sizeof text, "the signal mask changed");
    BYTES(signal_stack);
    BYTES(cpus);
    NUMBER(file_mask);
    BYTES(directory);
    NUMBER(environment);
    NUMBER(files);
    NUMBER(blas_threads);
    NUMBER(openmp_threads);
    NUMBER(next_random);
    for (int signal = 1; signal < PROCESS_SIGNALS; signal++)
        if (before->action[signal].sa_handler != after.action[signal].sa_handler ||
            before->action[signal].sa_flags != after.action[signal].sa_flags ||
            !same_signals(&before->action[signal].sa_mask, &after.action[signal].sa_mask))
            snprintf(text, sizeof text, "the action of signal %d changed", signal);
    return text[0] ? text : NULL;
}
