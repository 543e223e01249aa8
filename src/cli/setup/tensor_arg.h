/* FILE[:TENSOR] on the command line: which file, which tensor, read into memory. */
#ifndef MHA_CLI_SETUP_TENSOR_ARG_H
#define MHA_CLI_SETUP_TENSOR_ARG_H

#include "mha/mha.h"

typedef struct source {
    mha_file *file;
    const mha_file_tensor *tensor; /* NULL: none was named */
} source;

/* A file of the whole name wins, else the last colon separates file and tensor; "-" is standard input.
 * Gives 0, or the exit code after one line on standard error. */
int source_open(source *s, const char *text);
/* The tensor named, or the file's only one; refused, with the names, when there are several. */
int source_choose(source *s, const char *about);
/* Reads a tensor as `dtype` into memory the caller frees (view->data). */
int source_read(const source *s, const mha_file_tensor *tensor, mha_dtype dtype, mha_view *view);
void source_close(source *s);

/* Whether numbers or truth values can be read from it, whole and unquantised. */
bool dtype_is_floating(mha_dtype dtype);
bool dtype_is_plain(mha_dtype dtype);

#endif
