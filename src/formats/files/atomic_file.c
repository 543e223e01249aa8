/* Atomic replacement of a file: data goes to a temporary file, with or without a name, which is renamed at the end. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/files/atomic_file.h"
#include "formats/files/input_file.h"

static bool is_standard_output(const char *path)
{
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0;
}

/* *mode: mode and kind of the file that the path leads to; 0 when there is none. An answer that is not certain is an
 * error, because a device that is not recognised would be replaced by a file. */
static mha_status look(const char *path, mode_t *mode, mha_error *error)
{
    struct stat status;
    *mode = 0;
    if (stat(path, &status) == 0)
        *mode = status.st_mode;
    else if (errno != ENOENT)
        return mha__fail(error, MHA_IO, path, "cannot write it: %s", strerror(errno));
    return MHA_OK;
}

static bool is_device(mode_t mode)
{
    return mode != 0 && !S_ISREG(mode) && !S_ISDIR(mode);
}

mha_status mha__output_is_direct(const char *path, bool *direct, mha_error *error)
{
    mode_t mode = 0;
    mha_status status = is_standard_output(path) ? MHA_OK : look(path, &mode, error);
    *direct = is_standard_output(path) || is_device(mode);
    return status;
}

/* The number of bytes of `path` up to and with the last slash. */
static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The target of `path` when its last component is a symbolic link or a chain of them. Unlike realpath() it accepts a
 * target that does not exist yet. */
static mha_status follow(const char *path, char target[PATH_MAX], mha_error *error)
{
    enum { MOST_LINKS = 40 }; /* the limit of Linux */
    char link[PATH_MAX];
    size_t kept = 0, length = strlen(path);
    for (int links = 0; links <= MOST_LINKS && kept + length < PATH_MAX; links++) {
        memcpy(target + kept, links ? link : path, length);
        target[kept + length] = '\0';
        ssize_t read = readlink(target, link, sizeof link);
        if (read < 0) /* not a symbolic link */
            return MHA_OK;
        length = (size_t)read;
        kept = link[0] == '/' ? 0 : directory_length(target);
    }
    return mha__fail(error, MHA_IO, path, "cannot write it: %s",
                     strerror(kept + length < PATH_MAX ? ELOOP : ENAMETOOLONG));
}

/* Refuses what cannot be written, and fills in `direct`, and for a file also `target`. */
static mha_status check(const char *path, mode_t *mode, char target[PATH_MAX], mha_error *error)
{
    TRY(look(path, mode, error));
    if (S_ISDIR(*mode))
        return mha__fail(error, MHA_INVALID, path, "expected a file to write, found a directory");
    if (*mode != 0 && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0)
        return mha__fail(error, MHA_IO, path, "cannot write it: %s", strerror(errno));
    if (is_device(*mode))
        return MHA_OK;
    TRY(follow(path, target, error));
    size_t length = directory_length(target);
    char directory[PATH_MAX] = ".";
    if (length > 0) {
        memcpy(directory, target, length);
        directory[length] = '\0';
    }
    if (faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) != 0)
        return mha__fail(error, MHA_IO, path, "cannot write into its directory: %s", strerror(errno));
    return MHA_OK;
}

mha_status mha__output_check(const char *path, mha_error *error)
{
    mode_t mode;
    char target[PATH_MAX];
    return is_standard_output(path) ? MHA_OK : check(path, &mode, target, error);
}

/* The path under /proc to an open file without a name. */
static void way_to(int fd, char way[32])
{
    snprintf(way, 32, "/proc/self/fd/%d", fd);
}

/* Opens a file without a name on the file system of the target: nothing is left of it if the process is killed. -1
 * where the system cannot create such a file or cannot give it a name later. */
static int open_nameless(const mha__output *output)
{
    char directory[PATH_MAX] = ".", way[32];
    const size_t length = directory_length(output->target);
    if (length > 0)
        snprintf(directory, sizeof directory, "%.*s", (int)length, output->target);
    int fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (fd >= 0) {
        way_to(fd, way);
        if (access(way, F_OK) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

/* Creates ".mha-PROCESS-N.tmp" in the directory of the target: as a name of the open file `fd`, or for -1 as a new
 * file. Returns -1 with errno set on failure, else the result of the last call. */
static int make_temporary(mha__output *output, int fd)
{
    enum { TRIES = 1000 };
    const size_t length = directory_length(output->target);
    char way[32];
    int made = -1;
    way_to(fd, way);
    for (int n = 0; n < TRIES && made < 0; n++) {
        snprintf(output->temporary, sizeof output->temporary, "%.*s.mha-%ld-%d.tmp", (int)length, output->target,
                 (long)getpid(), n);
        made = fd < 0 ? open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
                      : linkat(AT_FDCWD, way, AT_FDCWD, output->temporary, AT_SYMLINK_FOLLOW);
        if (made < 0 && errno != EEXIST)
            break;
    }
    if (made < 0)
        output->temporary[0] = '\0';
    return made;
}

/* Opens a new file on the file system of the target, without a name where that is possible. `mode` is that of the
 * file it replaces, or 0; the umask then decides, as for any new file. */
static mha_status open_temporary(mha__output *output, mode_t mode, mha_error *error)
{
    output->fd = open_nameless(output);
    if (output->fd < 0)
        output->fd = make_temporary(output, -1);
    if (output->fd < 0)
        return mha__fail(error, MHA_IO, output->path, "cannot write into its directory: %s", strerror(errno));
    if (mode != 0 && fchmod(output->fd, mode & 07777) != 0)
        return mha__fail(error, MHA_IO, output->path, "cannot keep its permissions: %s", strerror(errno));
    return MHA_OK;
}

static void abandon(mha__output *output)
{
    if (output->fd >= 0)
        close(output->fd);
    output->fd = -1;
    if (output->temporary[0] != '\0')
        unlink(output->temporary);
    output->temporary[0] = '\0';
}

mha_status mha__output_open(mha__output *output, const char *path, mha_error *error)
{
    mode_t mode = 0;
    *output = (mha__output){.path = path, .fd = -1, .direct = is_standard_output(path)};
    if (output->direct)
        output->path = "standard output";
    else
        TRY(check(path, &mode, output->target, error));
    if (output->direct || is_device(mode)) {
        output->direct = true;
        output->fd = is_standard_output(path) ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                              : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return output->fd >= 0 ? MHA_OK : mha__fail(error, MHA_IO, path, "cannot write it: %s", strerror(errno));
    }
    const mha_status status = open_temporary(output, mode, error);
    if (status != MHA_OK)
        abandon(output);
    return status;
}

mha_status mha__output_write(mha__output *output, const void *data, size_t bytes, mha_error *error)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = write(output->fd, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return mha__fail(error, MHA_IO, output->path, "cannot write it: %s", strerror(errno));
        at += done;
        bytes -= (size_t)done;
    }
    return MHA_OK;
}

/* Gives the file its name: at once where there is none of it, so that not even SIGKILL leaves a temporary name, else by
 * way of one, because link() cannot replace a file and rename() can. */
static mha_status close_and_name(mha__output *output, mha_error *error)
{
    mha_status status = MHA_OK;
    char way[32];
    way_to(output->fd, way);
    const bool nameless = !output->direct && output->temporary[0] == '\0',
               named = nameless && linkat(AT_FDCWD, way, AT_FDCWD, output->target, AT_SYMLINK_FOLLOW) == 0;
    if (nameless && !named && make_temporary(output, output->fd) < 0)
        status = mha__fail(error, MHA_IO, output->path, "cannot give it its name: %s", strerror(errno));
    if (close(output->fd) != 0 && errno != EINTR && status == MHA_OK)
        status = mha__fail(error, MHA_IO, output->path, "cannot write it: %s", strerror(errno));
    output->fd = -1;
    if (named && status != MHA_OK)
        unlink(output->target);
    if (status == MHA_OK && !output->direct && !named && rename(output->temporary, output->target) != 0)
        status = mha__fail(error, MHA_IO, output->path, "cannot give it its name: %s", strerror(errno));
    if (status == MHA_OK && !output->direct)
        output->temporary[0] = '\0'; /* there is no temporary name to remove any more */
    return status;
}

mha_status mha__output_finish(mha__output *output, mha_status status, mha_error *error)
{
    sigset_t all, before; /* signals are blocked while there is a temporary name, which would otherwise remain */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (status == MHA_OK)
        status = close_and_name(output, error);
    abandon(output);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
