/* The parts of mha bench. */
#ifndef MHA_CLI_COMMANDS_BENCH_BENCH_H
#define MHA_CLI_COMMANDS_BENCH_BENCH_H

#include "bench/shapes.h"
#include "bench/timed_run.h"
#include "cli/commands/commands.h"

/* Measurements of mha bench: rows of results and the limits of the machine, in rounds in which all ways take turns. */

/* The limits of the machine at one thread count: the largest of all rounds. */
typedef struct limits {
    int threads;
    double peak_gflops, read_gbs;
    double same_gbs; /* reading as many bytes as the current shape reads */
} limits;

/* The results of one path for one part of a shape. */
typedef struct bench_row {
    const char *shape, *path, *part;
    const char *weights, *cache; /* their types; NULL where there are none */
    const char *precision;       /* of the products */
    int threads;
    size_t limit; /* index of the limits with its thread count */
    size_t rounds;
    double ms_min, ms_median, gflops, tokens_per_s;
    double flop_per_byte;       /* over the bytes that have to move at least; NaN where that is not known */
    double gbs, same_gbs;       /* reads of the shape, and reads of as many bytes alone; NaN where reads are no limit */
    double workspace_mib;       /* size of the library's workspace */
    double grew_mib, rss_mib;   /* growth of the process in the first run, workspace included; its peak */
    double error_of_bound;
    double percent_of_peak, percent_of_reads, percent_of_same_reads; /* of the best so far; at the end, of all rounds */
} bench_row;

typedef struct bench {
    const arguments *args;
    limits *limits; /* of each thread count, in increasing order */
    size_t n_limits;
    double checked[MHA_PATH_COUNT]; /* of the current shape's layer, by path: error / bound; negative: unchecked */
    bench_row *rows;
    size_t n_rows, room;
    size_t widest;  /* columns of the longest name of a shape */
    table *table;   /* on standard output, of the rows that are there; NULL: none yet, or none is shown */
    size_t written; /* rows of it */
} bench;

/* From here on SIGINT and SIGTERM end the measurement behind the run that is under way; a second one ends the program.
 */
void bench_mind_signals(void);
/* Checks and runs the parts of a shape that are asked for, adds the rows of each part, and calls `added`. An exit code:
 * behind a signal EXIT_SIGNAL and its number, with the rows of the rounds that all ways have ended. */
int bench_run_parts(bench *b, const bench_shape *named, void (*added)(bench *b));

/* mha bench --preset and --config: the attention layers of a model as shapes, and what all of them take together. */

enum { BENCH_MODEL_SHAPES = 16 };

/* The shapes of a model's attention layers: over the tokens of --seq, and where they are causal, a new token behind as
 * many in a cache. */
typedef struct bench_model {
    size_t count;
    struct {
        bench_shape shape;
        size_t uses; /* how many layers of this shape a forward pass runs */
        char name[80];
    } each[BENCH_MODEL_SHAPES];
} bench_model;

/* An exit code. */
int bench_model_read(const arguments *args, bench_model *shapes);
/* Behind the rows of all shapes, adds those of all layers together: of each path and number of threads. */
void bench_model_add_rows(bench *b, const bench_model *model);

/* Writes what mha bench measured, a row for each path and number of threads. */

/* Compares the rows with the known limits, and prints the new rows in a table of --format, a text table after a line
 * on the machine. Prints nothing with --json or --quiet. */
void bench_show(bench *b);
/* Ends the table, which may be empty. The machine's limits, the meaning of the columns and the result follow a text
 * table. */
void bench_end(bench *b);
bool bench_writes_json(const bench *b);
void bench_write_json(const bench *b);
/* The processor's name, or that it has none; and today's date. */
const char *bench_cpu(void);
const char *bench_day(void);
/* --picture (bench_picture.c): draws the throughput of each row and its limit: reads where it decodes, arithmetic
 * elsewhere. An exit code. */
int bench_draw(const bench *b);

#endif
