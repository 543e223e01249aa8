/* What mha bench measures: rows of results and the limits of the machine, in rounds in which all ways take turns. */
#ifndef MHA_CLI_COMMANDS_BENCH_ROUNDS_H
#define MHA_CLI_COMMANDS_BENCH_ROUNDS_H

#include "bench/timed_run.h"
#include "cli/options/options.h"
#include "cli/text/print.h"

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
    limits limits[2];
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

#endif
