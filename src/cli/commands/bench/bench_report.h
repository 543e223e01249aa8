/* Writes what mha bench measured, a row for each path and number of threads. */
#ifndef MHA_CLI_COMMANDS_BENCH_REPORT_H
#define MHA_CLI_COMMANDS_BENCH_REPORT_H

#include "cli/commands/bench/rounds.h"

/* Compares the rows with the limits as far as they are known, and shows those that are new: in a table of --format;
 * before one of text stands the machine. With --json or --quiet nothing is shown. */
void bench_show(bench *b);
/* Ends the table, which may be empty; behind that of text come the machine's limits, the meaning of the columns, and
 * what it comes to. */
void bench_end(bench *b);
bool bench_writes_json(const bench *b);
void bench_write_json(const bench *b);
/* Writes the processor's name into `name`; "" where the system does not state it. */
const char *cpu_name(char name[128]);
/* --picture (bench_picture.c): draws each row's share of what limits it, reading where it decodes, arithmetic
 * elsewhere. An exit code. */
int bench_draw(const bench *b);

#endif
