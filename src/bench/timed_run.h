/* One benchmark shape made ready to be checked against float64 and timed: inputs, a layer, its cache. */
#ifndef MHA_BENCH_TIMED_RUN_H
#define MHA_BENCH_TIMED_RUN_H

#include "base/arena.h"
#include "bench/shapes.h"

enum { BENCH_TIMED = 5 };

/* Everything that a shape needs; all paths and thread counts share it. */
typedef struct bench_subject {
    bench_shape shape;
    bench_part part;
    bool packs; /* the weights are packed */
    mha_params *table;
    mha_layer *weights;
    mha_cache *cache; /* for decoding; NULL when the core reads floats */
    mha_cache *trunk; /* which the cache continues; NULL: none */
    mha__arena memory; /* of the arrays below */
    float *query, *key, *value, *output;
    mha_call call; /* without path and threads */
    mha_keep timed[BENCH_TIMED]; /* stages between the third and the fourth projection */
    void *workspace;
    size_t workspace_bytes; /* size of the workspace */
    size_t needs_bytes;     /* size that the last run needed */
} bench_subject;

/* Makes inputs (uniform, variance 1) and weights (Xavier) from seed 0. Must be freed, also after an error. */
mha_status bench_subject_make(bench_subject *b, const bench_shape *shape, bench_part part, bool packs,
                              mha_error *error);
void bench_subject_free(bench_subject *b);
/* Frees the workspace and what was unpacked of packed weights: the next run allocates what it needs. */
void bench_subject_forget(bench_subject *b);

/* Runs on a path; *taken is the path really used. *ms is the mean time of enough runs to fill some milliseconds.
 * `proj` is timed as a whole layer with window 0 (one key per query) minus the stages between the third projection
 * and W_O. */
mha_status bench_subject_run(bench_subject *b, mha_path path, int threads, mha_path *taken, double *ms,
                             mha_error *error);

/* Compares the results of a path with float64: the first, the last and 64 seeded query rows of the core, and for a
 * layer those rows of each projection. *worst is the largest error divided by its error bound. */
mha_status bench_subject_check(bench_subject *b, mha_path path, int threads, double *worst, mha_error *error);

#endif
