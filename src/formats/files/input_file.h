/* A regular file, or all of standard input, open for positioned reads. */
#ifndef MHA_FORMATS_FILES_INPUT_FILE_H
#define MHA_FORMATS_FILES_INPUT_FILE_H

#include "base/base.h"

typedef struct mha__source {
    int fd;
    uint64_t size;    /* in bytes, when it was opened */
    const char *path; /* borrowed */
} mha__source;

/* The name for messages: `path`, or "standard input" for "-". */
const char *mha__source_name(const char *path);
/* Whether `path` is a directory. Errors of the system: MHA_NOT_FOUND, MHA_IO. */
mha_status mha__source_is_directory(const char *path, bool *directory, mha_error *error);
/* Opens `path`, a regular file, for reading; "-" is standard input, which is read to its end now. `path` is borrowed
 * until close. Errors: MHA_INVALID (a directory, FIFO or device), MHA_NOT_FOUND, MHA_IO. */
mha_status mha__source_open(mha__source *source, const char *path, mha_error *error);
void mha__source_close(mha__source *source);

/* Reads exactly `bytes` bytes at `offset`. MHA_IO also when the file ends before that: it has become shorter. */
mha_status mha__source_read(const mha__source *source, uint64_t offset, void *to, size_t bytes, mha_error *error);

/* Reads the whole file as text with a final NUL into a block of *bytes bytes, which the caller releases. MHA_FORMAT:
 * it has more than `limit` bytes; the message expects a `what`. */
mha_status mha__source_text(const mha__source *source, const mha_allocator *allocator, size_t limit, const char *what,
                            char **text, size_t *bytes, mha_error *error);

#endif
