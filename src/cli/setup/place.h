/* Where a file that shall be written would come to lie. */
#ifndef MHA_CLI_SETUP_PLACE_H
#define MHA_CLI_SETUP_PLACE_H

#include <stdbool.h>

/* "-" and what is another name for it. */
bool is_standard_output(const char *path);
/* Whether two names, which may differ in spelling or be links, lead to one file, there or not yet. */
bool is_one_place(const char *a, const char *b);

#endif
