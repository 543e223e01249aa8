/* FILE[:TENSOR] on the command line: which file, which tensor, read into memory. */
#ifndef MHA_CLI_SETUP_TENSOR_ARG_H
#define MHA_CLI_SETUP_TENSOR_ARG_H

#include "base/arena.h"
#include "cli/options.h"
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
/* Reads a tensor as `dtype` into memory of the arena. */
int source_read(const source *s, const mha_file_tensor *tensor, mha_dtype dtype, mha__arena *arena, mha_view *view);
void source_close(source *s);

/* Which numbers an option's tensor may hold, and how they are read. */
typedef enum tensor_types {
    FLOATS,              /* as float32 */
    WIDE_FLOATS,         /* float64 as it is, the rest as float32 */
    NUMBERS_AS_THEY_ARE, /* floats of any type, unconverted */
    NUMBERS_OR_TRUTH     /* as WIDE_FLOATS; and truth values, as BOOL or U8 */
} tensor_types;

/* The tensor that an option names, in memory of the arena. */
int tensor_of_option(const arguments *args, option_code option, tensor_types types, mha__arena *arena, mha_view *view);

#endif
