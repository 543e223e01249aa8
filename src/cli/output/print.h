/* How the program speaks: one-line errors, numbers people can read, aligned tables, JSON. */
#ifndef MHA_CLI_OUTPUT_PRINT_H
#define MHA_CLI_OUTPUT_PRINT_H

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/arena.h"
#include "mha/mha.h"

/* ---------------------------------------------------------------- errors */

enum { EXIT_DONE = 0, EXIT_NO = 1, EXIT_REQUEST = 2, EXIT_MACHINE = 3 };

/* What stands before the colon in every error: "mha params". Borrowed. */
void speak_as(const char *name);
/* One line on standard error, about an option, file or tensor ("" for none). Gives EXIT_REQUEST. */
__attribute__((format(printf, 2, 3))) int refuse(const char *about, const char *format, ...);
/* The same for an error of the library: "ABOUT: NAME: MESSAGE" with the file or option `about` ("" for none), which is
 * not said again where the error's name begins with it. Gives the exit code of its status. */
int refuse_error(const char *about, const mha_error *error);
/* The exit code of a status: EXIT_REQUEST, or EXIT_MACHINE for memory, reading and writing. */
int exit_code_of(mha_status status);
/* What an error says of a file, without the file's name; to be freed. */
char *file_error_text(const char *path, const mha_error *error);
/* Closes standard output; EXIT_MACHINE, with a line, if something could not be written, else `code`. */
int finish_output(int code);

/* Whether the machine has this much memory left to be written to. */
bool memory_allows(size_t bytes);
/* 0 when it has; else a line that says what it would have been for, and its exit code. */
int expect_memory(size_t bytes, const char *what);
/* Memory of the program itself, zeroed; the program ends with EXIT_MACHINE when there is none. */
void *obtain(size_t count, size_t size);
/* A contiguous view of zeroed memory that lives as long as the arena: aligned, and in large pages, as the library's own
 * tensors are. The program ends when there is none. */
mha_view obtain_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape);
/* An array of n items of that size (NULL for none) with room for at least one more; the old one is gone. */
void *obtain_more(void *items, size_t n, size_t *capacity, size_t size);
__attribute__((format(printf, 1, 2))) char *text_of(const char *format, ...); /* to be freed */
__attribute__((format(printf, 1, 0))) char *text_of_list(const char *format, va_list values);

/* ---------------------------------------------------------------- text */

/* Whether standard output is a terminal that wants colours: NO_COLOR and TERM=dumb say no. */
bool has_colour(void);
/* "" or the escape sequence. */
const char *bold(void);
const char *plain(void);

enum { SHORT_TEXT = 48, SHAPE_TEXT = 192 };
char *count_text(char text[SHORT_TEXT], uint64_t n);        /* 2,362,368 */
char *bytes_text(char text[SHORT_TEXT], uint64_t bytes);    /* 9.01 MiB */
char *real_text(char text[SHORT_TEXT], double x);           /* six digits; NaN, inf as words */
char *shape_text(char text[SHAPE_TEXT], int rank, const size_t *shape); /* (1, 128, 768) */

/* Characters in a line of standard output: the terminal's, else 100 for a reader that is not one. */
size_t line_width(void);
bool is_terminal(void);
/* Places on a terminal: one for each character of UTF-8, not for each byte. */
size_t width_of(const char *text);
/* Text to standard output, broken between words to lines of that width, and ended; lines after the first begin at
 * column `indent`, where the first one is already. */
void write_folded(const char *text, size_t indent);
/* The same from the beginning of a line. */
void write_prose(const char *text);

/* The same text without control characters: names come from outside, and must neither break a line nor drive the
 * terminal. Tables and errors see to it themselves. */
char *harmless(char *text);

typedef enum table_style { TABLE_TEXT, TABLE_MARKDOWN, TABLE_CSV } table_style;
/* By the word of --format. */
table_style table_style_named(const char *format);

/* Cells are given row by row, from left to right; columns are as wide as their widest cell. Before a title '>' aligns
 * the column to the right, and '?' leaves it out where the line is too narrow; a last column of text goes on in
 * further lines there. CSV and Markdown have all columns, and in CSV counts have no separators. */
typedef struct table table;
table *table_create(table_style style, size_t n_columns, const char *const *titles);
void table_cell(table *t, const char *text);
__attribute__((format(printf, 2, 3))) void table_format(table *t, const char *format, ...);
void table_count(table *t, uint64_t n);
void table_bytes(table *t, uint64_t bytes);
void table_shape(table *t, int rank, const size_t *shape);
/* Writes it to standard output and frees it. Text is indented by two. */
void table_print(table *t);
void table_drop(table *t); /* frees it unwritten */

/* ---------------------------------------------------------------- JSON */

json_t *json_number(double x); /* null for NaN and infinities, which JSON lacks */
json_t *json_milliseconds(double ms); /* to the nanosecond */
json_t *json_count(size_t n);
json_t *json_shape(int rank, const size_t *shape);
json_t *json_text(const char *text); /* null for NULL; bytes that are not UTF-8 become '?' */
/* Writes the object to standard output and releases it. */
void json_print(json_t *root);
/* Before any JSON: from here on the program ends where there is no memory for a part of it, which jansson would
 * leave out. */
void json_mind_memory(void);

#endif
