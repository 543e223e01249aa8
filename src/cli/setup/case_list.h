/* The case files that operands name: files as they are, directories with every .safetensors below them. */
#ifndef MHA_CLI_SETUP_CASE_LIST_H
#define MHA_CLI_SETUP_CASE_LIST_H

#include <stddef.h>

typedef struct case_list {
    char **paths; /* a directory's in alphabetical order */
    size_t n, capacity;
} case_list;

/* Gives 0, or the exit code after one line on standard error. */
int case_list_add(case_list *list, const char *operand);
void case_list_free(case_list *list);

#endif
