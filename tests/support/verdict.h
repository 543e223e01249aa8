/* Judging a case file in one call. */
#ifndef TEST_VERDICT_H
#define TEST_VERDICT_H

#include "mha/case.h"

/* Opens the case, judges it on that path with one thread (`stage` NULL: every stage) and closes it. */
mha_verdict judge(const char *file, mha_path path, const char *stage);

#endif
