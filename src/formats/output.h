/* A file being written that appears whole or not at all. */
#ifndef MHA_FORMATS_OUTPUT_H
#define MHA_FORMATS_OUTPUT_H

#include "base/base.h"

typedef struct mha_output {
    mha_allocator allocator;
    const char *path; /* as given, borrowed; for messages */
    int fd;           /* -1: closed */
    bool direct;      /* standard output, a device, a FIFO: written as it comes */
    char *target;     /* where it will appear: `path` with symbolic links followed */
    char *temporary;  /* beside the target */
    size_t target_bytes, temporary_bytes;
} mha_output;

/* Whether `path` names something that is written directly: "-" (standard output), a device, a FIFO. */
mha_status mha_output_is_direct(const char *path, bool *direct, mha_error *error);
/* Says early what mha_output_open would refuse: a directory, a read-only file, a directory that
 * is missing or not writable. MHA_INVALID, MHA_IO. */
mha_status mha_output_check(const char *path, mha_error *error);
/* Opens a temporary file in the directory of `path`, with the permissions the file has or would get. */
mha_status mha_output_open(mha_output *output, const mha_allocator *allocator, const char *path, mha_error *error);
mha_status mha_output_write(mha_output *output, const void *data, size_t bytes, mha_error *error);
/* Closes and gives the file its name. After an error nothing of that name was made or changed. */
mha_status mha_output_finish(mha_output *output, mha_error *error);
/* Ends it without a trace, if it was not finished. */
void mha_output_abandon(mha_output *output);

#endif
