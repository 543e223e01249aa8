/* Checking a case file in one call. */
#ifndef TEST_VERDICT_H
#define TEST_VERDICT_H

#include "mha/case.h"

/* Opens the case, checks it on that path with one thread (`stage` NULL: every stage) and closes it. */
mha_verdict check(const char *file, mha_path path, const char *stage);

#endif
