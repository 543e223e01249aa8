/* Help texts, written from the tables of options and commands. */
#ifndef MHA_CLI_HELP_H
#define MHA_CLI_HELP_H

#include "cli/options.h"

void help_program(void);
void help_command(command_code code);

#endif
