/* Help texts, written from the tables of options and commands. */
#ifndef MHA_CLI_HELP_H
#define MHA_CLI_HELP_H

#include "cli/options/options.h"

void help_program(void);
void help_command(command_code code);
/* Writes the options as the manual page lists them, in mdoc. */
void help_manual(void);

/* Name `index` of the topics, which explain words; NULL past the last. */
const char *topic_name(size_t index);
/* Prints a topic; false when there is no topic of that name. */
bool help_topic(const char *name);

#endif
