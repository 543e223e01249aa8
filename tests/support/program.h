/* Runs the program $MHA_PROGRAM as a person would, and keeps what it said. */
#ifndef MHA_TEST_PROGRAM_H
#define MHA_TEST_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct program_result {
    int code; /* exit code; 128 + number when a signal ended it */
    char *out, *err; /* whole, followed by a 0 */
    size_t out_size;
} program_result;

/* `args` ends with NULL; argv[0] is added. */
program_result program_run(const char *const *args);
/* The same with standard output going to a file and standard input coming from one (NULL: caught, empty;
 * "": closed). */
program_result program_run_with(const char *output, const char *input, const char *const *args);
/* Runs another program, argv[0], which is looked for in PATH. */
program_result program_run_other(const char *const *argv);
/* A line of bash, in which the program is called mha; it ends at the first command that fails, also one of a pipe. */
program_result program_run_in_shell(const char *line);
/* The same with standard output and standard error each on a terminal of its own, `width` columns wide, of the kind
 * that $TEST_TERM names (xterm). Skips the test
 * where the system has none to give. */
program_result program_run_on_terminals(unsigned short width, const char *const *args);
#define RUN_ON_TERMINALS(width, ...) program_run_on_terminals(width, (const char *const[]){__VA_ARGS__, NULL})
/* The same with standard output a pipe, and a signal that is sent as soon as `words` came out of it; NULL: after so
 * many milliseconds. */
program_result program_stop(int number, const char *words, int milliseconds, const char *const *args);
void program_free(program_result *r);
/* Whether a text holds words, which may go on in the next line where the text has a blank. */
bool text_says(const char *text, const char *words);

#define RUN(...) program_run((const char *const[]){__VA_ARGS__, NULL})

/* The run failed as a request does: this exit code, nothing on standard output, one line on standard
 * error that holds `words` (which may be several, in order, with '*' between). */
void assert_program_refuses(program_result r, int code, const char *words);
/* Runs, demands the exit code and an object on standard output, parses it strictly. To be decref'd. */
json_t *run_json(int code, const char *const *args);
#define RUN_JSON(code, ...) run_json(code, (const char *const[]){__VA_ARGS__, NULL})

/* A name in a directory of this test program, made at first use. Valid until the next 16 calls. */
const char *scratch(const char *name);
/* Removes the directory and what is in it; a cmocka group teardown. */
int scratch_remove(void **state);

/* Asserts that `object` has each key of a comma-separated list. */
void assert_keys(const json_t *object, const char *keys);

#endif
