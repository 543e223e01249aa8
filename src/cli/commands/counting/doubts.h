/* Sentences on a model's configuration: the assumed values, the unread keys, why attention is not computed. */
#ifndef MHA_CLI_COMMANDS_COUNTING_DOUBTS_H
#define MHA_CLI_COMMANDS_COUNTING_DOUBTS_H

#include "mha/model.h"

/* Says them a line each: on standard output, or on standard error next to a table without sentences. */
void doubts_say(const mha_model *model, bool on_error);

#endif
