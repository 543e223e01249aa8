/* Writes what mha bench measured, a row for each path and number of threads. */
#ifndef MHA_CLI_COMMANDS_BENCH_REPORT_H
#define MHA_CLI_COMMANDS_BENCH_REPORT_H

#include "cli/commands/bench/rounds.h"

void bench_print_table(const bench *b, table_style style);
/* The table with the machine before it and the meaning of its columns behind it. */
void bench_print_text(const bench *b);
void bench_write_json(const bench *b);
/* --picture (bench_picture.c): draws a roofline, and each row's share of what limits it, reading where it decodes,
 * arithmetic elsewhere. An exit code. */
int bench_draw(const bench *b);

#endif
