/* Memory of the program and texts in it; one-line errors, numbers in a readable form, aligned tables and JSON. This
 * header also brings the libraries into every file of the program: base, lab and the public headers. */
#ifndef MHA_CLI_TEXT_PRINT_H
#define MHA_CLI_TEXT_PRINT_H

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "lab/lab.h"
#include "mha/lab.h"

/* ---------------------------------------------------------------- errors */

enum {
    EXIT_DONE = 0,
    EXIT_NO = 1,
    EXIT_REQUEST = 2,
    EXIT_MACHINE = 3,
    EXIT_UNCHECKED = 4,
    EXIT_SIGNAL = 128 /* and its number */
};

/* Sets the text before the colon in every error: "mha params". Borrowed. */
void speak_as(const char *name);
/* That name: "mha", or what it was changed to. */
const char *spoken_as(void);
/* Writes one line on standard error about an option, file or tensor ("" for none). Returns EXIT_REQUEST. */
int refuse_text(const char *about, const char *text);
#define refuse(about, ...) refuse_text(about, text_of(__VA_ARGS__))
/* Prints the system's error about a path. Returns EXIT_REQUEST if the path names no file, else EXIT_MACHINE. */
int refuse_errno(const char *path, int why);
/* Writes an error of the library: "ABOUT: NAME: MESSAGE" with the file or option `about` ("" for none), which is left
 * out if the error's name begins with it. Returns the exit code of the error's status. */
int refuse_error(const char *about, const mha_error *error);
/* The exit code of a call: EXIT_DONE for MHA_OK, else that of refuse_error. */
int done_or_refuse(mha_status status, const char *about, const mha_error *error);
/* The exit code of a status: EXIT_REQUEST, or EXIT_MACHINE for memory, reading and writing. */
int exit_code_of(mha_status status);
/* The text of an error about a file, without the file's name. */
const char *file_error_text(const char *path, const mha_error *error);
/* Closes standard output. Returns EXIT_MACHINE, after one line, if something could not be written, else `code`. */
int finish_output(int code);

/* Whether the machine has this much free memory. */
bool memory_allows(size_t bytes);
/* Returns 0 if there is this much memory; else EXIT_MACHINE, after one line that says what the memory was for. */
int expect_memory(size_t bytes, const char *what);
/* Zeroed memory for the program; without memory the program ends with EXIT_MACHINE. */
void *obtain(size_t count, size_t size);
/* A contiguous view of zeroed memory that lives as long as the arena, aligned and in large pages like the library's
 * own tensors. Without memory the program ends. */
mha_view obtain_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape);
/* Grows an array of n items (NULL: a new one) to room for at least one more; the old array is freed. */
void *obtain_more(void *items, size_t n, size_t *capacity, size_t size);
/* Keeps memory until the program ends. Returns it. Any thread may call it. */
void *keep(void *memory);
/* Keeps a value of JSON until the program ends. Returns it. */
json_t *keep_json(json_t *root);
/* The number of kept blocks. drop_kept frees all but the first `from`, so that a loop can free its texts. */
size_t kept_count(void);
void drop_kept(size_t from);
/* Kept texts. */
__attribute__((format(printf, 1, 2))) const char *text_of(const char *format, ...);
#define text_more(text, ...) text_of("%s%s", text, text_of(__VA_ARGS__))
/* A copy without control characters. Names come from outside and must neither break a line nor control the terminal.
 * Tables, errors and JSON do this themselves. */
const char *harmless(const char *text);
/* A word as a shell reads it: in quotes unless it has plain characters only. */
const char *shell_word(const char *word);
/* A text that must be freed. */
__attribute__((format(printf, 1, 0))) char *text_of_list(const char *format, va_list values);

/* ---------------------------------------------------------------- text */

/* Whether standard output is a terminal that shows colours; NO_COLOR and TERM=dumb switch them off. */
bool has_colour(void);
/* The escape sequence, or "" without colours. */
const char *bold(void);
const char *plain(void);

enum { SHORT_TEXT = 48, SHAPE_TEXT = 192 };
/* Kept texts. */
const char *count_text(uint64_t n);                    /* 2,362,368 */
const char *bytes_text(uint64_t bytes);                /* 9.01 MiB */
const char *real_text(double x);                       /* six digits; NaN, inf as words */
const char *shape_text(int rank, const size_t *shape); /* (1, 128, 768) */

/* The width of a line of standard output: the terminal's, by itself or by COLUMNS, and 20 at least; 100 elsewhere. */
size_t line_width(void);
/* Writes text to standard output, broken between words into lines of line_width(), and ends the line. The first line
 * starts at column `indent`, where the cursor already is; further lines are indented to it. */
void write_folded(const char *text, size_t indent);
/* The number of bytes of a text that fit into so many columns: whole words where one fits. */
size_t bytes_that_fit(const char *text, size_t width);
/* printf of text whose lines are folded when they end, behind the blanks that they begin with and two more. */
void say_text(const char *text);
#define say(...) say_text(text_of(__VA_ARGS__))
/* The same of harmless text; of the format only the end of a line, in the last place, is obeyed. */
__attribute__((format(printf, 1, 2))) void say_harmless(const char *format, ...);
/* printf of folded text, from the beginning of a line; ends the line. */
#define write_prose(...) write_folded(text_of(__VA_ARGS__), 0)

typedef enum table_style { TABLE_TEXT, TABLE_MARKDOWN, TABLE_LATEX, TABLE_CSV } table_style;
typedef struct table table;
/* From here on tables have the style of a word of --format. In another style than text nothing is written but them. */
void tables_styled(const char *format);
table_style tables_style(void);
/* From here on tables of text show all columns, however wide they are. */
void tables_wide(void);
/* A column as it was given; NULL past the last. */
const char *table_column(const table *t, size_t column);

/* Cells are added row by row, from left to right; a column is as wide as its widest cell. Its title ends before a ": ",
 * behind which a report (report.h) says what it shows. '>' before a title aligns the column to the right. '?' lets a
 * narrow line leave the column out, "??" and "???" sooner; text is continued on further lines there. CSV, Markdown and
 * LaTeX show all columns, and in CSV counts have no separators. */
table *table_create(size_t n_columns, const char *const *columns);
/* Writes the titles now, and each row, flushed, as soon as it has all of its cells: for rows that take long to come, in
 * text or CSV. A column is as wide as its title and as its number in `widths`. Ends with table_drop. */
table *table_begin(size_t n_columns, const char *const *columns, const size_t *widths);
void table_cell(table *t, const char *text);
/* The name of the next table that is printed, for Markdown and LaTeX, which have no sentence before it. Kept. */
void table_name(const char *text);
/* Writes the table to standard output, text indented by two, in other styles with an empty line before the second
 * table, and frees it. */
void table_print(table *t);
void table_drop(table *t); /* frees the table without writing it */

/* ---------------------------------------------------------------- JSON */

/* NaN and infinities, which JSON lacks, become null when they are printed. */
json_t *json_number(double x);
/* "nan", "inf" or "-inf" for what json_number made of these; else NULL. */
const char *json_word_of(const json_t *value);
json_t *json_milliseconds(double ms); /* rounded to nanoseconds */
json_t *json_count(size_t n);
json_t *json_shape(int rank, const size_t *shape);
json_t *json_text(const char *text); /* null for NULL; invalid UTF-8 becomes '?' */
#define json_words(...) json_text(text_of(__VA_ARGS__))
/* Writes the object to standard output, without fields whose names begin with '~', and releases it. */
void json_print(json_t *root);
/* Must be called before any JSON is made: from then on the program ends when memory for a part of it is missing,
 * which jansson would silently leave out. */
void json_mind_memory(void);

/* How the configuration scales rotary positions, in words: "yarn, factor 4, of 32768 positions". NULL: not at all. */
const char *scaling_text(const mha_model_facts *facts);

#endif
