/* One benchmark shape made ready: inputs, a layer, its cache; checked against float64, then run. */
#ifndef MHA_BENCH_RUN_H
#define MHA_BENCH_RUN_H

#include "base/arena.h"
#include "bench/shapes.h"

enum { BENCH_TIMED = 5 };

/* Everything a shape needs, shared by the ways it is run. */
typedef struct bench_subject {
    bench_shape shape;
    bench_part part;
    bool packs; /* its weights are packed */
    mha_params *table;
    mha_layer *weights;
    mha_cache *cache; /* where it decodes; NULL for a core that reads floats */
    mha__arena memory; /* of the arrays below */
    float *query, *key, *value, *output;
    mha_call call; /* without path and threads */
    mha_keep timed[BENCH_TIMED]; /* the stages between the third projection and the last */
    void *workspace;
    size_t workspace_bytes; /* what it has */
    size_t needs_bytes;     /* what the last run needed of it */
} bench_subject;

/* Makes inputs (uniform, variance 1) and weights (Xavier) from seed 0. To be freed, also after an error. */
mha_status bench_subject_make(bench_subject *b, const bench_shape *shape, bench_part part, bool packs,
                              mha_error *error);
void bench_subject_free(bench_subject *b);
/* Gives back the workspace; the next run takes what it needs. */
void bench_subject_forget(bench_subject *b);

/* One run on a path; *taken (path) is the one really used. *ms is the average over enough runs to fill some
 * milliseconds. `proj` is timed as a whole layer with window 0 (one key per query) minus the stages between the third
 * projection and W_O. */
mha_status bench_subject_run(bench_subject *b, mha_path path, int threads, mha_path *taken, double *ms,
                             mha_error *error);

/* Compares what the path gives with float64. Up to 1 GFLOP every element of the output is compared; above it, and where
 * there is a cache, the first, the last and 64 seeded query rows: of the core, and for a layer of each projection. Of
 * the projections alone always these. *worst is the largest error as a part of the error bound. */
mha_status bench_subject_check(bench_subject *b, mha_path path, int threads, double *worst, mha_error *error);

#endif
