/* The parts of mha power: the criterion of a test, and the report of the bugs that it accepts. */
#ifndef MHA_CLI_COMMANDS_POWER_H
#define MHA_CLI_COMMANDS_POWER_H

#include "cli/output/report.h"
#include "mha/power.h"

/* How a test compares, as a record and in words. */

json_t *criterion_record(const mha_criterion *k);
/* "|x - y| <= ...": when the test accepts. */
const char *criterion_text(const mha_criterion *k);

/* The report of mha power, of a result and of gradients: which known bugs a test accepts. */

/* Sort the rows of *p, the nearest to the limit of the test first, and make a record of them. `random` names the random
 * inputs of a case; NULL: none. */
json_t *power_record(mha_power *p, const char *random);
json_t *gradient_power_record(mha_gradient_power *p, const mha_criterion *criterion);

/* Prints the rule of the test, the accepted bugs (or the nearest rejected ones), and the bugs that the input cannot
 * show. */
void print_accepted(const mha_case *c, const char *rule, const json_t *record);

#endif
