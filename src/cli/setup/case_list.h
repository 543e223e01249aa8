/* Lists the case files that operands name: files as given, directories with every .safetensors and .npz in them. */
#ifndef MHA_CLI_SETUP_CASE_LIST_H
#define MHA_CLI_SETUP_CASE_LIST_H

#include "cli/options/options.h"

typedef struct case_list {
    const char **paths; /* those of a directory in alphabetical order */
    size_t n, capacity;
} case_list;

/* Adds the cases of the operands, at least one. Returns 0, or the exit code after one line on standard error. */
int case_list_read(case_list *list, const arguments *args);

#endif
