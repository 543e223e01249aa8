/* The first step of the program, before its libraries start: one BLAS thread where memory is limited, or a refusal. */
#include <alloca.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* OpenBLAS starts threads when it is loaded, which the program never uses. Each asks for a buffer until it gets one:
 * under `ulimit -v` the program would wait for it for ever. So the program starts itself again without these threads,
 * and refuses to start where the limit leaves no room for one buffer. */
enum { BLAS_BUFFER = 32 << 22 }; /* bytes: BUFFER_SIZE of OpenBLAS's common_x86_64.h, the largest of its machines */

__attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread"))) static void
have_one_blas_thread(int argc, char **argv, char **envp)
{
    static char one[] = "OPENBLAS_NUM_THREADS=1";
    struct rlimit space, data;
    static const char refusal[] = "mha: memory: the limit (ulimit -v or -d) leaves less than the 128 MiB that OpenBLAS "
                                  "needs to start; raise it\n";
    size_t n = 0;
    (void)argc;
    if (getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 ||
        (space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY))
        return;
    void *room = mmap(NULL, BLAS_BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        _exit(write(STDERR_FILENO, refusal, sizeof refusal - 1) < 0 ? 1 : 3);
    munmap(room, BLAS_BUFFER);
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
