/* What the judge found, case by case, as text or JSON. */
#ifndef MHA_CLI_OUTPUT_VERDICTS_H
#define MHA_CLI_OUTPUT_VERDICTS_H

#include "cli/output/print.h"

typedef struct judged_case {
    const char *path; /* NULL without a case file */
    char *name;
    mha_error open_error; /* status MHA_OK: it was read, and `verdict` is the judge's */
    char *obstacle;       /* why it was not; NULL when it was */
    mha_verdict verdict;
} judged_case;

/* `count` has one number for each mha_outcome. Failures come first, then what was skipped and why. */
void verdicts_print(const judged_case *cases, size_t n, const size_t count[3]);
void verdicts_json(const judged_case *cases, size_t n, const size_t count[3]);

#endif
