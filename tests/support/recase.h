/* A case file written again with other things in it. */
#ifndef TEST_RECASE_H
#define TEST_RECASE_H

#include "mha/lab.h"

/* The changes of a file. Tensors and keys named here replace those of the file or join them; a view without data and a
 * NULL value leave them out. */
typedef struct recase {
    const char *drop; /* tensors whose names begin so are left out; NULL: none */
    struct {
        const char *name;
        mha_view view;
    } tensors[12];
    struct {
        const char *key, *value;
    } metadata[8];
} recase;

/* Writes the case at `from` with these changes to `to`. The test fails when that cannot be done. */
void recase_write(const char *from, const char *to, const recase *changes);

#endif
