/* The functions of the C library that can fail, each in a version that does so when told. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unwind.h>

#include "inject/inject.h"
#include "support/sanitizer.h"
#include "support/unit.h"

/* Seen by the shared libraries, which shall call these too; but a sanitizer's own versions must not be in their way. */
#if !ADDRESS_SANITIZER && !THREAD_SANITIZER
#pragma GCC visibility push(default)
enum { REACHES_LIBRARIES = 1 };
#else
#pragma GCC visibility push(hidden)
enum { REACHES_LIBRARIES = 0 };
#endif

bool inject_reaches_libraries(void)
{
    return REACHES_LIBRARIES;
}

/* ---------------------------------------------------------------- who is calling */

enum { MAX_RANGES = 64 };

static struct {
    inject_mode mode;
    size_t at, calls;
    const char *fired;
    const void *fired_for;
    long live, unzipping; /* unzipping: those of them that libzip asked for */
    struct {
        uintptr_t from, to;
        bool lexes;  /* jansson */
        bool unzips; /* libzip */
    } ranges[MAX_RANGES]; /* code of the program, jansson, libzip, libc */
    size_t n_ranges;
} inject;
static bool armed; /* read without the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int note_module(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    (void)context;
    static const char *const counted[] = {"libjansson", "libzip", "libz.", "libc.so"};
    bool ours = !*info->dlpi_name;
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        ours = ours || strstr(info->dlpi_name, counted[i]);
    for (size_t i = 0; ours && i < info->dlpi_phnum && inject.n_ranges < MAX_RANGES; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            uintptr_t from = (uintptr_t)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            inject.ranges[inject.n_ranges].from = from;
            inject.ranges[inject.n_ranges].lexes = strstr(info->dlpi_name, counted[0]);
            inject.ranges[inject.n_ranges].unzips = strstr(info->dlpi_name, counted[1]);
            inject.ranges[inject.n_ranges++].to = from + info->dlpi_phdr[i].p_memsz;
        }
    return 0;
}

/* The range of code that holds the caller; n_ranges when it is of none. */
static size_t range_of(const void *caller)
{
    size_t i = 0;
    while (i < inject.n_ranges &&
           ((uintptr_t)caller < inject.ranges[i].from || (uintptr_t)caller >= inject.ranges[i].to))
        i++;
    return i;
}

static bool unzips(const void *caller)
{
    size_t range = range_of(caller);
    return range < inject.n_ranges && inject.ranges[range].unzips;
}

static bool counted(const void *caller)
{
    return range_of(caller) < inject.n_ranges;
}

/* The lexer of jansson (2.14) does not mind when its text cannot grow, and copies past it: what it asks for then,
 * powers of two above the 16 bytes it begins with, is granted. */
static bool granted(size_t bytes, const void *caller)
{
    size_t range = range_of(caller);
    return range < inject.n_ranges && inject.ranges[range].lexes && bytes > 16 && (bytes & (bytes - 1)) == 0;
}

enum { MAX_CALLS = 1 << 18 };
static uint64_t stacks[2][MAX_CALLS]; /* of all calls, and of transfers */
static size_t n_stacks[2];

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *frame, void *hash)
{
    *(uint64_t *)hash = (*(uint64_t *)hash ^ (uint64_t)_Unwind_GetIP(frame)) * 0x100000001B3u;
    return _URC_NO_REASON;
}

static void note_stack(bool transfer)
{
    uint64_t hash = 0xCBF29CE484222325u;
    _Unwind_Backtrace(add_frame, &hash);
    for (int list = 0; list <= transfer; list++)
        if (n_stacks[list] < MAX_CALLS)
            stacks[list][n_stacks[list]++] = hash | 1;
}

uint64_t inject_stack(size_t at, bool transfers)
{
    return at <= n_stacks[transfers] ? stacks[transfers][at - 1] : 0;
}

/* Whether this call is the one that fails. */
static bool fires(const char *name, const void *caller, bool transfer)
{
    if (!armed || !counted(caller) || (!transfer && inject.mode > INJECT_FAILURE))
        return false;
    pthread_mutex_lock(&lock);
    bool now = ++inject.calls == inject.at && inject.mode != INJECT_NOTHING;
    if (inject.mode == INJECT_NOTHING)
        note_stack(transfer);
    if (now) {
        inject.fired = name;
        inject.fired_for = caller;
    }
    pthread_mutex_unlock(&lock);
    return now;
}

/* ---------------------------------------------------------------- what is still held */

enum { TABLE = 1 << 16 };
static uintptr_t held[TABLE]; /* open addressing; 0 free, 1 left */
static bool by_libzip[TABLE];
static size_t used[TABLE], n_used; /* places of `held` that are not 0: few, so that they are cleared one by one */

static size_t slot(uintptr_t key)
{
    return (size_t)((uint64_t)key * 0x9E3779B97F4A7C15u >> 48);
}

static void take(uintptr_t key, const void *caller)
{
    if (!armed || !counted(caller))
        return;
    pthread_mutex_lock(&lock);
    size_t at = slot(key);
    for (size_t i = 0; i < TABLE && held[at] > 1; i++)
        at = (at + 1) % TABLE;
    if (held[at] == 0)
        used[n_used++] = at;
    held[at] = key;
    by_libzip[at] = unzips(caller);
    inject.live++;
    inject.unzipping += by_libzip[at];
    pthread_mutex_unlock(&lock);
}

static void give(uintptr_t key)
{
    if (!armed)
        return;
    pthread_mutex_lock(&lock);
    size_t at = slot(key);
    for (size_t i = 0; i < TABLE && held[at] != 0 && held[at] != key; i++)
        at = (at + 1) % TABLE;
    if (held[at] == key) {
        held[at] = 1;
        inject.live--;
        inject.unzipping -= by_libzip[at];
    }
    pthread_mutex_unlock(&lock);
}

/* Not the address itself, which a leak checker would take for a pointer to the block. */
static uintptr_t of_block(const void *block)
{
    return ~(uintptr_t)block;
}

/* Keys that no block has. */
static uintptr_t of_descriptor(int fd)
{
    return (uintptr_t)fd + 2;
}

/* ---------------------------------------------------------------- control */

void inject_arm(inject_mode mode, size_t at)
{
    armed = false;
    memset(&inject, 0, sizeof inject);
    while (n_used > 0)
        held[used[--n_used]] = 0;
    dl_iterate_phdr(note_module, NULL);
    if (mode == INJECT_NOTHING)
        n_stacks[0] = n_stacks[1] = 0;
    inject.mode = mode;
    inject.at = at;
    armed = true;
}

void inject_disarm(void)
{
    armed = false;
}

void inject_resume(void)
{
    armed = true;
}

size_t inject_calls(void)
{
    return inject.calls;
}

const char *inject_fired(void)
{
    return inject.fired;
}

/* libzip (1.7.3) forgets the block of a layer (window, checksum, inflation) when it has no memory for the source
 * that goes with it: one block, and only when the failing call was its own. A member left open would be several. */
long inject_live(void)
{
    bool forgot = inject.live == 1 && inject.unzipping == 1 && inject.fired && unzips(inject.fired_for);
    return forgot ? 0 : inject.live;
}

void inject_exit(int code)
{
    inject_disarm();
    leave(code);
}

/* ---------------------------------------------------------------- the real ones */

/* dlsym may ask for memory before there is a real calloc: that comes from here and is never given back. */
static char early[4096];
static size_t early_used;

static void *early_memory(size_t bytes)
{
    void *block = early + early_used;
    early_used += (bytes + 15) / 16 * 16;
    return early_used <= sizeof early ? block : NULL;
}

static bool is_early(const void *block)
{
    return (const char *)block >= early && (const char *)block < early + sizeof early;
}

#define CALLER __builtin_return_address(0)
/* real_<name>: the next definition of a function, looked up once. */
#define REAL(result, name, ...)                                                                                        \
    static result (*real_##name)(__VA_ARGS__);                                                                         \
    if (!real_##name)                                                                                                  \
        *(void **)&real_##name = dlsym(RTLD_NEXT, #name)

/* ---------------------------------------------------------------- memory */

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static void *taken(void *block, const void *caller)
{
    if (block)
        take(of_block(block), caller);
    return block;
}

void *malloc(size_t bytes)
{
    REAL(void *, malloc, size_t);
    return !granted(bytes, CALLER) && fires("malloc", CALLER, false) ? no_memory() : taken(real_malloc(bytes), CALLER);
}

void *calloc(size_t count, size_t size)
{
    static bool looking;
    static void *(*real)(size_t, size_t);
    if (looking)
        return early_memory(count * size);
    if (!real) {
        looking = true;
        *(void **)&real = dlsym(RTLD_NEXT, "calloc");
        looking = false;
    }
    return fires("calloc", CALLER, false) ? no_memory() : taken(real(count, size), CALLER);
}

void *realloc(void *block, size_t bytes)
{
    REAL(void *, realloc, void *, size_t);
    if (fires("realloc", CALLER, false))
        return no_memory();
    uintptr_t before = block ? of_block(block) : 0;
    void *moved = real_realloc(block, bytes);
    if (moved && before)
        give(before);
    return taken(moved, CALLER);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    REAL(int, posix_memalign, void **, size_t, size_t);
    if (fires("posix_memalign", CALLER, false))
        return ENOMEM;
    int code = real_posix_memalign(block, alignment, bytes);
    if (code == 0)
        taken(*block, CALLER);
    return code;
}

void free(void *block)
{
    REAL(void, free, void *);
    if (!block || is_early(block))
        return;
    give(of_block(block));
    real_free(block);
}

void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    if (fires("mmap", CALLER, false)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *block = real_mmap(where, bytes, protection, flags, fd, offset);
    return block == MAP_FAILED ? block : taken(block, CALLER);
}

int munmap(void *block, size_t bytes)
{
    REAL(int, munmap, void *, size_t);
    give(of_block(block));
    return real_munmap(block, bytes);
}

/* ---------------------------------------------------------------- descriptors */

static int opened(int fd, const void *caller)
{
    if (fd >= 0)
        take(of_descriptor(fd), caller);
    return fd;
}

static int no(int why)
{
    errno = why;
    return -1;
}

int open(const char *path, int flags, ...)
{
    REAL(int, open, const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fires("open", CALLER, false) ? no(EMFILE) : opened(real_open(path, flags, mode), CALLER);
}

int mkstemp(char *pattern)
{
    REAL(int, mkstemp, char *);
    return fires("mkstemp", CALLER, false) ? no(EMFILE) : opened(real_mkstemp(pattern), CALLER);
}

int dup(int fd)
{
    REAL(int, dup, int);
    return fires("dup", CALLER, false) ? no(EMFILE) : opened(real_dup(fd), CALLER);
}

int close(int fd)
{
    REAL(int, close, int);
    bool failed = fires("close", CALLER, false);
    give(of_descriptor(fd));
    int result = real_close(fd); /* a close that fails has closed */
    return failed ? no(EIO) : result;
}

static size_t less(size_t bytes)
{
    return bytes > 1 ? bytes - 1 : bytes;
}

/* read, pread and write: the only ones that may be interrupted or do part of the work. */
#define TRANSFER(name, why, caller, whole, part)                                                                       \
    do {                                                                                                               \
        if (!fires(#name, caller, true))                                                                               \
            return whole;                                                                                              \
        if (inject.mode == INJECT_SHORT)                                                                               \
            return part;                                                                                               \
        return no(inject.mode == INJECT_INTERRUPT ? EINTR : why);                                                      \
    } while (0)

ssize_t read(int fd, void *to, size_t bytes)
{
    REAL(ssize_t, read, int, void *, size_t);
    TRANSFER(read, EIO, CALLER, real_read(fd, to, bytes), real_read(fd, to, less(bytes)));
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    REAL(ssize_t, pread, int, void *, size_t, off_t);
    TRANSFER(pread, EIO, CALLER, real_pread(fd, to, bytes, offset), real_pread(fd, to, less(bytes), offset));
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    REAL(ssize_t, write, int, const void *, size_t);
    TRANSFER(write, ENOSPC, CALLER, real_write(fd, from, bytes), real_write(fd, from, less(bytes)));
}

/* ---------------------------------------------------------------- the rest, all alike */

#define FAILING(name, why, parameters, arguments)                                                                      \
    int name parameters                                                                                                \
    {                                                                                                                  \
        static int(*real) parameters;                                                                                  \
        if (!real)                                                                                                     \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                 \
        return fires(#name, CALLER, false) ? no(why) : real arguments;                                                 \
    }

FAILING(sched_getaffinity, EINVAL, (pid_t pid, size_t size, cpu_set_t *set), (pid, size, set))
FAILING(fstat, EIO, (int fd, struct stat *status), (fd, status))
FAILING(stat, EIO, (const char *path, struct stat *status), (path, status))
FAILING(lstat, EIO, (const char *path, struct stat *status), (path, status))
FAILING(access, EIO, (const char *path, int mode), (path, mode))
FAILING(faccessat, EIO, (int at, const char *path, int mode, int flags), (at, path, mode, flags))
FAILING(fchmod, EIO, (int fd, mode_t mode), (fd, mode))
FAILING(rename, EIO, (const char *from, const char *to), (from, to))
FAILING(unlink, EIO, (const char *path), (path))
FAILING(linkat, EIO, (int from_at, const char *from, int to_at, const char *to, int flags),
        (from_at, from, to_at, to, flags))
FAILING(fseeko, EIO, (FILE *file, off_t offset, int whence), (file, offset, whence))

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *context)
{
    REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return fires("pthread_create", CALLER, false) ? EAGAIN : real_pthread_create(thread, attributes, start, context);
}

off_t ftello(FILE *file)
{
    REAL(off_t, ftello, FILE *);
    return fires("ftello", CALLER, false) ? no(EIO) : real_ftello(file);
}

char *realpath(const char *path, char *resolved)
{
    REAL(char *, realpath, const char *, char *);
    if (fires("realpath", CALLER, false))
        return no(EIO), NULL;
    return real_realpath(path, resolved); /* its malloc is counted */
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(FILE *, fopen, const char *, const char *);
    return fires("fopen", CALLER, false) ? (no(EMFILE), NULL) : real_fopen(path, mode);
}

FILE *fdopen(int fd, const char *mode)
{
    REAL(FILE *, fdopen, int, const char *);
    if (fires("fdopen", CALLER, false))
        return no(ENOMEM), NULL;
    FILE *file = real_fdopen(fd, mode);
    if (file)
        give(of_descriptor(fd)); /* fclose closes it */
    return file;
}

size_t fread(void *to, size_t size, size_t count, FILE *file)
{
    REAL(size_t, fread, void *, size_t, size_t, FILE *);
    if (!fires("fread", CALLER, false))
        return real_fread(to, size, count, file);
#ifdef __GLIBC__
    file->_flags |= 0x20; /* what ferror looks at */
#endif
    no(EIO);
    return 0;
}

int scandir(const char *path, struct dirent ***entries, int (*filter)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **))
{
    REAL(int, scandir, const char *, struct dirent ***, int (*)(const struct dirent *),
         int (*)(const struct dirent **, const struct dirent **));
    return fires("scandir", CALLER, false) ? no(EMFILE) : real_scandir(path, entries, filter, compare);
}
