/* Differences of a file from its model, kept, printed and recorded. */
#ifndef MHA_CLI_COMMANDS_COUNTING_FINDINGS_H
#define MHA_CLI_COMMANDS_COUNTING_FINDINGS_H

#include "cli/output/report.h"

typedef struct finding_list {
    mha_finding *items;
    size_t count, room;
} finding_list;

/* Appends a finding to a finding_list, for mha_model_check_file. */
void finding_keep(void *context, const mha_finding *finding);

/* Prints a line for each of the first 40. */
void findings_print(const finding_list *list);

json_t *finding_record(const mha_finding *f);

#endif
