/* The first step of the program, before its libraries start: one BLAS thread where memory is limited. */
#include <alloca.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* OpenBLAS starts threads when it is loaded, which the program never uses. Each asks for 128 MiB until it gets them:
 * under `ulimit -v` the program would wait for them when it exits, for ever. So it starts itself again without them. */
__attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread"))) static void
have_one_blas_thread(int argc, char **argv, char **envp)
{
    static char one[] = "OPENBLAS_NUM_THREADS=1";
    struct rlimit space, data;
    size_t n = 0;
    (void)argc;
    if (getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 ||
        (space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY))
        return;
    for (; envp[n]; n++)
        if (strcmp(envp[n], one) == 0)
            return;
    char **with = alloca((n + 2) * sizeof *with);
    size_t kept = 0;
    with[kept++] = one;
    for (size_t i = 0; i < n; i++)
        if (strncmp(envp[i], one, sizeof one - 2) != 0)
            with[kept++] = envp[i];
    with[kept] = NULL;
    (void)execve("/proc/self/exe", argv, with); /* if it fails, the program goes on as it is */
}

/* Functions in this section of a program run before the constructors of its libraries. */
__attribute__((section(".preinit_array"), used)) static void (*const first_step)(int, char **, char **) =
    have_one_blas_thread;
