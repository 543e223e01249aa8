/* What mha power makes of a test of gradients. */
#ifndef MHA_CLI_COMMANDS_POWER_GRADIENTS_H
#define MHA_CLI_COMMANDS_POWER_GRADIENTS_H

#include "cli/output/report.h"
#include "mha/power.h"

/* Whether a stage is a gradient, or "gradients": all that a case has. */
bool is_of_gradients(const char *stage);
/* Says which bugs of a backward the test of these gradients accepts. Returns the exit code. */
int measure_gradients(const mha_case *c, const arguments *args, const mha_criterion *criterion);

#endif
