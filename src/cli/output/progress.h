/* How far long work is, on a line of its own where standard error is a terminal; nothing elsewhere. */
#ifndef MHA_CLI_OUTPUT_PROGRESS_H
#define MHA_CLI_OUTPUT_PROGRESS_H

#include "cli/options/options.h"

/* Begins work that is counted in `what`, "cases". One work at a time. --quiet shows nothing. */
void progress_begin(const arguments *args, const char *what);
/* Shows that `done` of `total` are done, and how long the rest will take; a new line a tenth of a second after the last
 * one at the earliest. On one thread at a time. */
void progress_show(size_t done, size_t total);
/* The same for the library (mha_progress.report). */
void progress_report(void *context, size_t done, size_t total);
/* Takes the line away, before anything else is written. */
void progress_end(void);

#endif
