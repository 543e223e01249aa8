/* A regular file, or all of standard input, open for positioned reads. */
#ifndef MHA_FORMATS_INPUT_FILE_H
#define MHA_FORMATS_INPUT_FILE_H

#include "base/base.h"

typedef struct mha__source {
    int fd;
    uint64_t size;    /* when it was opened */
    const char *path; /* borrowed */
} mha__source;

/* How messages name it: "standard input" for "-". */
const char *mha__source_name(const char *path);
/* Whether `path` is a directory. MHA_NOT_FOUND, MHA_IO as the system says. */
mha_status mha__source_is_directory(const char *path, bool *directory, mha_error *error);
/* Opens `path` for reading; "-" is standard input, read to its end now. Anything else but a regular file is refused by name (a directory, a FIFO, ...):
 * MHA_INVALID; MHA_NOT_FOUND, MHA_IO as the system says. `path` is borrowed until close. */
mha_status mha__source_open(mha__source *source, const char *path, mha_error *error);
void mha__source_close(mha__source *source);

/* Reads exactly `bytes` bytes at `offset`. A file that ends before (it shrank): MHA_IO. */
mha_status mha__source_read(const mha__source *source, uint64_t offset, void *to, size_t bytes, mha_error *error);

/* Reads the whole file as text with a final NUL into a block of *bytes bytes, which the caller
 * releases. More than `limit` bytes: MHA_FORMAT, saying that this is no `what`. */
mha_status mha__source_text(const mha__source *source, const mha_allocator *allocator, size_t limit, const char *what,
                            char **text, size_t *bytes, mha_error *error);

#endif
