/* Reports: one tree of JSON is an answer. --json prints it; text, Markdown and CSV show columns of its lists. */
#ifndef MHA_CLI_OUTPUT_REPORT_H
#define MHA_CLI_OUTPUT_REPORT_H

#include "cli/options/options.h"
#include "cli/text/print.h"

/* A column of a table of records is "title: fields: format: none", of which the last two may be left out.
 * title: as in table_create. fields: names with blanks between; one that begins with '~' is for text alone.
 * format: as of printf, with the fields as arguments: %s shows one as its type has it (a whole number with separators,
 * a list as a shape), %d a whole number, %B bytes, any other conversion a real number. Left out: "%s".
 * none: in place of a field that is missing, null or no number. Left out: nothing, and for no number its word. */

/* Prints a list of records as a table, without the columns whose first field no record has. Behind a record comes the
 * one in its field "~then". */
void report_table(table_style style, const json_t *records, size_t n_columns, const char *const *columns);
#define REPORT_TABLE(style, records, columns) report_table(style, records, sizeof(columns) / sizeof *(columns), columns)
/* Adds the cells of a record to a table of such columns. Takes over the record. */
void report_row(table *t, json_t *record);

/* A record: names and values in turn, then NULL. The values are taken over. */
json_t *record_of(const char *name, ...) __attribute__((sentinel));
/* Adds fields to a record, and returns it. */
json_t *record_with(json_t *record, const char *name, ...) __attribute__((sentinel));
/* The JSON of a value, by its type in C. */
#define J(value)                                                                                                       \
    _Generic((value), double: json_number, int: json_whole, long: json_whole, size_t: json_count,                      \
             char *: json_text, const char *: json_text)(value)
json_t *json_whole(long n);
__attribute__((format(printf, 1, 2))) json_t *json_words(const char *format, ...);

/* Writes a list of names with commas between, folded. */
void report_names(const json_t *names);
/* Prints the tree where JSON is asked for. Whether text is asked for: neither that nor --quiet. */
bool report_is_text(const arguments *args, json_t *root);

#endif
