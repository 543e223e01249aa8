/* Copies of stages after a run, to compare two runs. */
#ifndef TEST_SNAPSHOT_H
#define TEST_SNAPSHOT_H

#include "support/trial.h"

typedef struct snapshot {
    mha_view view; /* dense F64; no data: the path does not take this call */
    double *slack; /* the oracle's, element by element; NULL unless asked for */
} snapshot;

/* Runs `r` on `path` keeping only `stage` (F32) and copies it. With `slack`, checks it against the oracle
 * too and copies how far it may be from the exact values. The test fails where the call is refused (but for
 * the fast path, which may not support it). */
snapshot snapshot_run(rig *r, mha_path path, int threads, mha_stage stage, bool slack);
void snapshot_release(snapshot *s);

/* The same bits. */
void assert_same(const snapshot *a, const snapshot *b, const char *what);
/* Each within its slack of the same exact values, so within twice the slack of each other. `a` has the slack. */
void assert_close(const snapshot *a, const snapshot *b, const char *what);

#endif
