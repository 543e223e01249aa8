/* What mha forward says of a run: equation, configuration, parameters, stages and output, as text or as JSON. */
#ifndef MHA_CLI_OUTPUT_RUN_REPORT_H
#define MHA_CLI_OUTPUT_RUN_REPORT_H

#include "cli/output/summary.h"
#include "cli/setup/call.h"

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

#endif
