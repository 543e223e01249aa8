/* What somebody recorded, to be judged or diagnosed: a case file, or --expected beside weights and inputs. */
#ifndef MHA_CLI_SETUP_RECORDED_H
#define MHA_CLI_SETUP_RECORDED_H

#include "cli/setup/request.h"

/* Refuses options that only mean something beside --expected where a case file is given, which says all of it, and
 * --expected without --weights and --input. Gives 0, or the exit code after one line on standard error. */
int recorded_check(const arguments *args);
/* The case of --expected: the layer and the call that options describe, into *r, and what the file holds as the stage
 * of --stage. To be closed before *r is freed. */
int recorded_open(request *r, const arguments *args, mha_case **c);

#endif
