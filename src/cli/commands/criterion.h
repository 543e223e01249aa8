/* How a test compares, as a record and in words. */
#ifndef MHA_CLI_COMMANDS_CRITERION_H
#define MHA_CLI_COMMANDS_CRITERION_H

#include "cli/output/report.h"
#include "mha/power.h"

json_t *criterion_record(const mha_criterion *k);
/* "|x - y| <= ...": when the test accepts. Must be freed. */
char *criterion_text(const mha_criterion *k);

#endif
