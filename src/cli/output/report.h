/* Reports of commands: from one JSON value text, tables or JSON; parameters, groups of them, runs, verdicts. */
#ifndef MHA_CLI_OUTPUT_REPORT_H
#define MHA_CLI_OUTPUT_REPORT_H

#include "cli/setup/request.h"

/* Reports: one tree of JSON is an answer. --json prints it; text, Markdown and CSV show columns of its lists. */

/* A column of a table of records is "title: fields: format: none", of which the last two may be left out.
 * title: as in table_create. fields: names with blanks between; one that begins with '~' is for text alone.
 * format: as of printf, with the fields as arguments: %s shows one as its type has it (a whole number with separators,
 * a list as a shape), %d a whole number, %B bytes, any other conversion a real number. Left out: "%s".
 * none: in place of a field that is missing, null or no number. Left out: nothing, and for no number its word. */

/* Prints a list of records as a table, without the columns whose first field no record has. Behind a record comes the
 * one in its field "~then". */
void report_table(const json_t *records, size_t n_columns, const char *const *columns);
#define REPORT_TABLE(records, columns) report_table(records, sizeof(columns) / sizeof *(columns), columns)
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

/* The records in which a field is this word; NULL: in which it is there and neither null nor false. Kept. */
json_t *records_where(const json_t *list, const char *field, const char *word);

/* Writes a list of names with commas between, folded. */
void report_names(const json_t *names);
/* Prints the tree where JSON is asked for. Whether text is asked for: neither that nor --quiet. */
bool report_is_text(const arguments *args, json_t *root);

/* Shows the rows and totals of a parameter table, as text or JSON, in one form for all commands. */

/* Prints the table with its totals. `layer` (may be NULL) gives the symbolic shapes; with `per_head`, each head's
 * slice of a weight is shown below its row. */
void parameters_print(mha_params *params, const mha_layer *layer, bool per_head);
/* A table of rows by themselves, each as --csv shows it. */
table *parameters_csv(void);
void parameters_csv_row(table *t, const mha_tensor_info *info);
/* Adds the keys of the totals to `object`. */
void parameters_json_totals(json_t *object, mha_params *params);
/* A row, or all of them; with a layer, the slices of each head are under "heads". */
json_t *parameters_json_row(const mha_tensor *tensor, const mha_layer *layer);
json_t *parameters_json_rows(mha_params *params, const mha_layer *layer);

/* Summarises a large parameter table: rows grouped by name, part, role, layer or type, with shares of the whole. */

/* The view that --depth, --group, --only and --sort ask for. */
typedef struct census_view {
    const char *by;   /* "role", "layer", "dtype", "part"; NULL: by name */
    size_t depth;     /* > 0: by this many components of the name; 0: by pattern (numbers become {i}) and shape */
    const char *only; /* the only group shown; NULL: all */
    const char *sort; /* "elements", "name"; NULL: in table order */
    bool whole;       /* nothing is grouped */
    const mha_file *file; /* of quantised tensors: bytes are those in it, and those here; NULL: none */
} census_view;

census_view census_view_of(const arguments *args);
/* Adds what a row takes in the file, scales and zero points included, and here, once it is read. */
void bytes_of_row(const mha_file *file, const mha_tensor_info *info, size_t *in_file, size_t *here);
/* Whether the view shows a row. */
bool census_shows(const census_view *view, const mha_tensor_info *info);
void census_print(mha_params *params, const census_view *view);
/* Draws the parameters of the rows that --only leaves into the file of --picture. Returns 0, at once without that
 * option, or the exit code after one line. */
int census_draw(mha_params *params, const char *title, const arguments *args);
/* The summary as a list: name, tensors, elements, bytes, share of the parameters. */
json_t *census_json(mha_params *params, const census_view *view);

/* Summarises an array of three axes in a few numbers. */

typedef struct summary {
    double mean, rms, max_abs; /* NaN or infinite if an element is */
    size_t non_finite, first_non_finite[3];
} summary;

summary summarise(const mha_view *view);
/* The least first. */
void sort_numbers(double *numbers, size_t n);

/* The report of mha forward: equation, configuration, parameters, stages and output, as text or as JSON. */

/* Times of the fastest of a few runs. */
typedef struct run_times {
    double ms, stage_ms[MHA_STAGE_COUNT];
    size_t runs;
} run_times;

/* The text from before the run, and that from behind it. `as_asked`: all NaN of the output are those that the request
 * asks for. */
void run_report_begin(const request *r, const arguments *args);
json_t *run_report_of(const request *r, const arguments *args, const summary *output, const run_times *time);
void run_report_end(const request *r, const json_t *root, const run_times *time, const summary *output,
                    bool as_asked);

/* Shows the checker's verdicts case by case, as text or JSON. */

typedef struct checked_case {
    const char *path; /* NULL without a case file */
    const char *name;
    mha_error open_error; /* status MHA_OK: the file was read, and `verdict` is valid */
    const char *obstacle; /* why it could not be read; NULL when it was */
    mha_verdict verdict;
    size_t rows, rows_checked, rows_exact; /* query rows; those compared; those from which the tolerance follows */
} checked_case;

/* `count` has one number for each mha_outcome. Failed cases come first, then skipped cases with the reason. */
json_t *verdicts_report(const checked_case *cases, size_t n, const size_t count[3]);
void verdicts_print(const json_t *root, const checked_case *cases, size_t n, const size_t count[3]);

/* How far long work is, on a line of its own where standard error is a terminal; nothing elsewhere. */

/* Begins work that is counted in `what`, "cases". One work at a time. --quiet shows nothing. */
void progress_begin(const arguments *args, const char *what);
/* Shows that `done` of `total` are done, and how long the rest will take; a new line a tenth of a second after the last
 * one at the earliest. On one thread at a time. */
void progress_show(size_t done, size_t total);
/* The same for the library (mha_progress.report). */
void progress_report(void *context, size_t done, size_t total);
/* Takes the line away, before anything else is written. */
void progress_end(void);

/* --preset list: the built-in models. */

/* Whether --preset asks for the list. */
bool presets_asked(const arguments *args);
/* Writes the models with their shapes and sizes in the form of --format or --json. Returns the exit code. */
int list_presets(const arguments *args);

#endif
