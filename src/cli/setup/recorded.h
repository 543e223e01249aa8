/* Opens recorded results to be checked or diagnosed: a case file, or --expected with weights and inputs. */
#ifndef MHA_CLI_SETUP_RECORDED_H
#define MHA_CLI_SETUP_RECORDED_H

#include "cli/setup/request.h"

/* Refuses options that need --expected when a case file is given, because the case file states them itself, and
 * --expected without --weights and --input. Returns 0, or the exit code after one line on standard error. */
int recorded_check(const arguments *args);
/* Makes a case of --expected: the layer and the call of the options, stored in *r, and the tensor of the file as the
 * stage of --stage. The case must be closed before *r is freed. */
int recorded_open(request *r, const arguments *args, mha_case **c);

#endif
