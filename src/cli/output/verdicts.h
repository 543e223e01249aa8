/* Shows the checker's verdicts case by case, as text or JSON. */
#ifndef MHA_CLI_OUTPUT_VERDICTS_H
#define MHA_CLI_OUTPUT_VERDICTS_H

#include "cli/output/report.h"

typedef struct checked_case {
    const char *path; /* NULL without a case file */
    char *name;
    mha_error open_error; /* status MHA_OK: the file was read, and `verdict` is valid */
    char *obstacle;       /* why it could not be read; NULL when it was */
    mha_verdict verdict;
    size_t rows, rows_checked, rows_exact; /* query rows; those compared; those from which the tolerance follows */
} checked_case;

/* `count` has one number for each mha_outcome. Failed cases come first, then skipped cases with the reason. */
json_t *verdicts_report(const checked_case *cases, size_t n, const size_t count[3]);
void verdicts_print(const json_t *root, const checked_case *cases, size_t n, const size_t count[3]);

#endif
