/* Regular files and standard input: opening them and reading at a position. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/files/input_file.h"
#include "lab/lab.h"

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO or pipe, which - reads as standard input"
                            : "a device"; /* no other kind opens */
}

static mha_status cannot_open(const char *path, mha_error *error)
{
    return mha__names_no_file(errno)
               ? mha__fail(error, MHA_NOT_FOUND, path, "expected a file, found none: %s", strerror(errno))
               : mha__fail(error, MHA_IO, path, "cannot open it for reading: %s", strerror(errno));
}

static bool is_standard_input(const char *path)
{
    return strcmp(path, "-") == 0;
}

const char *mha__source_name(const char *path)
{
    return is_standard_input(path) ? "standard input" : path;
}

mha_status mha__source_is_directory(const char *path, bool *directory, mha_error *error)
{
    struct stat status = {0};
    if (!is_standard_input(path) && stat(path, &status) != 0)
        return cannot_open(path, error);
    *directory = S_ISDIR(status.st_mode);
    return MHA_OK;
}

/* Copies standard input to a file, up to its end; false with errno set on failure. */
static bool copy_standard_input(int target)
{
    char block[65536];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, block, sizeof block);
        if (n == 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
        for (ssize_t at = 0, done; at < n; at += done) {
            done = write(target, block + at, (size_t)(n - at));
            if (done < 0 && errno != EINTR)
                return false;
            done = done < 0 ? 0 : done;
        }
    }
}

/* Copies standard input to a file without a name, because a pipe cannot be read at a position. */
static mha_status open_standard_input(int *fd, const char *name, mha_error *error)
{
    static const char ending[] = "/mha-stdin-XXXXXX";
    const char *directory = getenv("TMPDIR");
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s", directory && *directory ? directory : "/tmp", ending);
    if (length < 0 || (size_t)length >= sizeof path)
        return mha__fail(error, MHA_IO, name, "cannot keep it under TMPDIR: %s", strerror(ENAMETOOLONG));
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd < 0)
        return mha__fail(error, MHA_IO, name, "cannot keep it in %.*s: %s", length - (int)(sizeof ending - 1), path,
                         strerror(errno));
    unlink(path);
    if (copy_standard_input(*fd))
        return MHA_OK;
    int why = errno;
    close(*fd);
    return mha__fail(error, why == EISDIR ? MHA_INVALID : MHA_IO, name, "cannot read it: %s", strerror(why));
}

mha_status mha__source_open(mha__source *source, const char *path, mha_error *error)
{
    const bool standard = is_standard_input(path);
    path = mha__source_name(path);
    /* Without O_NONBLOCK a FIFO would wait here for somebody to write into it. */
    int fd = standard ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (!standard && fd < 0)
        return cannot_open(path, error);
    mha_status opened = standard ? open_standard_input(&fd, path, error) : MHA_OK;
    if (opened != MHA_OK)
        return opened;
    struct stat status;
    if (fstat(fd, &status) != 0) {
        int why = errno;
        close(fd);
        return mha__fail(error, MHA_IO, path, "cannot ask for its size: %s", strerror(why));
    }
    if (!S_ISREG(status.st_mode)) {
        close(fd);
        return mha__fail(error, MHA_INVALID, path, "expected a regular file (it is read at positions), found %s",
                         kind_of(status.st_mode));
    }
    *source = (mha__source){.fd = fd, .size = (uint64_t)status.st_size, .path = path};
    return MHA_OK;
}

void mha__source_close(mha__source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
}

mha_status mha__source_read(const mha__source *source, uint64_t offset, void *to, size_t bytes, mha_error *error)
{
    char *at = to;
    while (bytes > 0) {
        ssize_t got = pread(source->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mha__fail_at(error, MHA_IO, source->path, offset, "cannot read at byte %" PRIu64 ": %s", offset,
                                strerror(errno));
        if (got == 0)
            return mha__fail_at(error, MHA_IO, source->path, offset,
                                "expected %zu more bytes at byte %" PRIu64 ", found the end: the file became shorter"
                                " than the %" PRIu64 " bytes it had when it was opened",
                                bytes, offset, source->size);
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return MHA_OK;
}

mha_status mha__source_text(const mha__source *source, const mha_allocator *allocator, size_t limit, const char *what,
                            char **text, size_t *bytes, mha_error *error)
{
    if (source->size > limit)
        return mha__fail(error, MHA_FORMAT, source->path, "expected %s of at most %zu bytes, found %" PRIu64, what,
                         limit, source->size);
    size_t length = (size_t)source->size;
    char *block = mha__allocate(allocator, length + 1);
    if (!block)
        return mha__fail(error, MHA_NO_MEMORY, source->path, "no memory for %zu bytes of text", length + 1);
    mha_status status = mha__source_read(source, 0, block, length, error);
    if (status != MHA_OK) {
        mha__release(allocator, block, length + 1);
        return status;
    }
    *text = block;
    *bytes = length + 1;
    return MHA_OK;
}
