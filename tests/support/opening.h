/* Opening files that may be bad: what every test of a format does. */
#ifndef TEST_OPENING_H
#define TEST_OPENING_H

#include "mha/file.h"
#include "mha/case.h"

/* Opens and closes `path`. Returns the status; *error has the reason. */
mha_status try_open(const char *path, mha_error *error);
/* Opens `path` and reads the tensor called `tensor` (NULL: none) into F32, with the first allocation
 * failing, then the second, and so on until none fails. Each attempt must end with MHA_NO_MEMORY, one
 * line, and nothing left allocated. Returns the number of attempts. */
size_t open_with_failing_memory(const char *path, const char *tensor);
/* The same for the case in `path`, opened and checked: without failures it must end as `expected`. */
size_t check_with_failing_memory(const char *path, mha_path how, mha_outcome expected);

#endif
