/* Where a picture comes from: the command line, and the SHA-256 of every file that it names. */
#ifndef MHA_CLI_PICTURES_ORIGIN_H
#define MHA_CLI_PICTURES_ORIGIN_H

#include "cli/options/options.h"
#include "picture/origin.h"

/* Files that a set of weights consists of are listed one by one. A stream is not read a second time, and what is beyond
 * 4 GiB in all is not read: both are listed with the reason. Must be freed, also after an error. Returns 0, or the exit
 * code after one line about a file that cannot be read again. */
int origin_of(const arguments *args, mha__origin *origin);
void origin_free(mha__origin *origin);

#endif
