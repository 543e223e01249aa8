/* Help texts, written from the tables of options and commands. */
#ifndef MHA_CLI_HELP_H
#define MHA_CLI_HELP_H

#include "cli/options.h"

void help_program(void);
void help_command(command_code code);

/* The words explained beside the commands; NULL past the last. */
const char *topic_name(size_t index);
/* False when there is no topic of that name. */
bool help_topic(const char *name);

#endif
