/* What mha power says of a test: how it compares, and what it makes of gradients. */
#ifndef MHA_CLI_COMMANDS_POWER_H
#define MHA_CLI_COMMANDS_POWER_H

#include "cli/output/report.h"
#include "mha/power.h"

json_t *criterion_record(const mha_criterion *k);
/* "|x - y| <= ...": when the test accepts. Must be freed. */
char *criterion_text(const mha_criterion *k);
/* Whether a stage is a gradient, or "gradients": all that a case has. */
bool is_of_gradients(const char *stage);
/* Says which mistakes of a backward the test of these gradients accepts. Returns the exit code. */
int measure_gradients(const mha_case *c, const arguments *args, const mha_criterion *criterion);

#endif
