/* Sentences on a model's configuration: the assumed values, the unread keys, why attention is not computed. */
#ifndef MHA_CLI_COMMANDS_COUNTING_DOUBTS_H
#define MHA_CLI_COMMANDS_COUNTING_DOUBTS_H

#include "mha/model.h"

/* Says them on standard output, a line each. */
void doubts_say(const mha_model *model);
/* Says them on standard error: beside a table without sentences. */
void doubts_complain(const mha_model *model);

#endif
