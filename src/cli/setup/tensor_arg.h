/* Reads FILE[:TENSOR] of the command line: finds the file and the tensor, and reads it into memory. */
#ifndef MHA_CLI_SETUP_TENSOR_ARG_H
#define MHA_CLI_SETUP_TENSOR_ARG_H

#include "base/arena.h"
#include "cli/options/options.h"
#include "mha/lab.h"

typedef struct source {
    mha_file *file;
    const mha_file_tensor *tensor; /* NULL when no tensor was named */
} source;

/* Opens the file. A file whose name is the whole text wins, else the last colon separates file and tensor; "-" is
 * standard input. Returns 0, or the exit code after one line on standard error. */
int source_open(source *s, const char *text);
/* Chooses the named tensor, or the file's only one; with several, refuses and lists their names. */
int source_choose(source *s, const char *about);
/* Reads a tensor as `dtype` into memory of the arena. */
int source_read(const source *s, const mha_file_tensor *tensor, mha_dtype dtype, mha__arena *arena, mha_view *view);

/* The types that an option's tensor may have, and the types they are read as. */
typedef enum tensor_types {
    FLOATS,              /* as float32 */
    WIDE_FLOATS,         /* float64 as it is, other floats as float32 */
    NUMBERS_AS_THEY_ARE, /* floats of any type, unconverted */
    NUMBERS_OR_TRUTH     /* as WIDE_FLOATS; also whole numbers and booleans, as they are */
} tensor_types;

/* Reads the tensor that an option names into memory of the arena. */
int tensor_of_option(const arguments *args, option_code option, tensor_types types, mha__arena *arena, mha_view *view);

#endif
