/* Files that are memory: a million inputs a minute leave no time for a file system. The fuzzers are linked with
 * --wrap for each call below, so that the library's own code runs unchanged; only what the system would answer
 * comes from here. Names that begin with "fuzz:/" are ours, all others go to the system. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include "fuzz/fuzz.h"

enum { FILES = 8, FIRST = 1 << 20 }; /* descriptors of ours; no system hands out such */

static struct {
    const char *path;
    const unsigned char *data;
    size_t size;
} files[FILES];

static int descriptors; /* open now */

int __real_open(const char *path, int flags, ...);
int __real_stat(const char *path, struct stat *status);
int __real_fstat(int fd, struct stat *status);
ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
int __real_dup(int fd);
int __real_close(int fd);
zip_t *__real_zip_fdopen(int fd, int flags, int *code);

int __wrap_open(const char *path, int flags, ...);
int __wrap_stat(const char *path, struct stat *status);
int __wrap_fstat(int fd, struct stat *status);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);
int __wrap_dup(int fd);
int __wrap_close(int fd);
zip_t *__wrap_zip_fdopen(int fd, int flags, int *code);

void fuzz_file_at(const char *path, const void *data, size_t size)
{
    for (int i = 0; i < FILES; i++)
        if (!files[i].path || strcmp(files[i].path, path) == 0) {
            files[i].path = path, files[i].data = data, files[i].size = size;
            return;
        }
    abort();
}

const char *fuzz_file(const void *head, size_t head_bytes, const uint8_t *data, size_t size)
{
    static unsigned char *bytes;
    free(bytes); /* a block of its own for each input: a sanitizer sees a read past its end */
    bytes = malloc(head_bytes + size + 1);
    if (!bytes)
        abort();
    memcpy(bytes, head, head_bytes);
    if (size)
        memcpy(bytes + head_bytes, data, size);
    fuzz_file_at("fuzz:/input", bytes, head_bytes + size);
    return "fuzz:/input";
}

int fuzz_open_descriptors(void)
{
    return descriptors;
}

static int find(const char *path)
{
    for (int i = 0; i < FILES && files[i].path; i++)
        if (strcmp(files[i].path, path) == 0)
            return FIRST + i;
    errno = ENOENT;
    return -1;
}

static int of_regular_file(int fd, struct stat *status)
{
    if (fd < 0)
        return -1;
    *status = (struct stat){.st_mode = S_IFREG | 0600, .st_size = (off_t)files[fd - FIRST].size,
                            .st_ino = (ino_t)(fd - FIRST + 1), .st_nlink = 1};
    return 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    if (strncmp(path, "fuzz:/", 6) != 0) {
        va_list more;
        va_start(more, flags);
        int mode = flags & O_CREAT ? va_arg(more, int) : 0;
        va_end(more);
        return __real_open(path, flags, mode);
    }
    int fd = find(path);
    descriptors += fd >= 0;
    return fd;
}

int __wrap_stat(const char *path, struct stat *status)
{
    return strncmp(path, "fuzz:/", 6) != 0 ? __real_stat(path, status) : of_regular_file(find(path), status);
}

int __wrap_fstat(int fd, struct stat *status)
{
    return fd < FIRST ? __real_fstat(fd, status) : of_regular_file(fd, status);
}

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
    if (fd < FIRST)
        return __real_pread(fd, to, bytes, offset);
    size_t size = files[fd - FIRST].size, left = (uint64_t)offset < size ? size - (size_t)offset : 0;
    if (bytes > left)
        bytes = left;
    if (bytes)
        memcpy(to, files[fd - FIRST].data + offset, bytes);
    return (ssize_t)bytes;
}

int __wrap_dup(int fd)
{
    if (fd < FIRST)
        return __real_dup(fd);
    descriptors++;
    return fd;
}

int __wrap_close(int fd)
{
    if (fd < FIRST)
        return __real_close(fd);
    descriptors--;
    return 0;
}

/* libzip reads the same bytes from a buffer; all it does with them is the same. */
zip_t *__wrap_zip_fdopen(int fd, int flags, int *code)
{
    if (fd < FIRST)
        return __real_zip_fdopen(fd, flags, code);
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *source = zip_source_buffer_create(files[fd - FIRST].data, files[fd - FIRST].size, 0, &error);
    zip_t *archive = source ? zip_open_from_source(source, flags | ZIP_RDONLY, &error) : NULL;
    if (!archive) {
        *code = zip_error_code_zip(&error);
        zip_source_free(source);
    } else
        descriptors--; /* it is libzip's now */
    zip_error_fini(&error);
    return archive;
}
