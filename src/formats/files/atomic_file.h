/* A file being written that appears whole or not at all. */
#ifndef MHA_FORMATS_FILES_ATOMIC_FILE_H
#define MHA_FORMATS_FILES_ATOMIC_FILE_H

#include <limits.h>

#include "base/base.h"

typedef struct mha__output {
    const char *path;               /* as given, borrowed; for messages */
    int fd;                         /* -1: closed */
    bool direct;                    /* standard output, a device or a FIFO: written without a temporary file */
    char target[PATH_MAX];          /* the file that will appear: `path` with symbolic links followed */
    char temporary[PATH_MAX + 64];  /* name in the directory of the target; "" while the file has no name */
} mha__output;

/* Whether `path` names something that is written directly: "-" (standard output), a device, a FIFO. */
mha_status mha__output_is_direct(const char *path, bool *direct, mha_error *error);
/* Refuses early what mha__output_open would refuse: a directory, a read-only file, a directory that is missing or not
 * writable. MHA_INVALID, MHA_IO. */
mha_status mha__output_check(const char *path, mha_error *error);
/* Opens a temporary file in the directory of `path`, with the permissions of the file that it replaces or of a new
 * file. */
mha_status mha__output_open(mha__output *output, const char *path, mha_error *error);
mha_status mha__output_write(mha__output *output, const void *data, size_t bytes, mha_error *error);
/* Closes the file and gives it its name if `status`, which is returned, is MHA_OK. After an error no file of that name
 * has been created or changed. */
mha_status mha__output_finish(mha__output *output, mha_status status, mha_error *error);

#endif
