/* A call on its way into a picture: what its projections and its rows share. */
#ifndef MHA_PICTURE_CALL_CALL_H
#define MHA_PICTURE_CALL_CALL_H

#include "attention/call/resolved.h"
#include "picture/head.h"
#include "verify/attempt/attempt.h"

typedef struct mha__drawn_call {
    mha__picture_layer *layer;
    mha__arena *memory;
    const mha__picture_choice *choice;
    mha__attempt asked;     /* the call with inputs of the path's type and its cache */
    mha_plan plan;          /* of the call as it was asked for */
    const mha__resolved *r; /* of that plan */
    size_t heads[2];        /* that are shown, from the first to before the second */
    bool keeps_scores;
    /* The result of a projection: (B or 1, T, its heads, d_k), rotated, with keys of a cache; and the heads that
     * these begin with. */
    mha__attempt projection;
    mha_view queries, keys;
    size_t first_head, first_kv;
} mha__drawn_call;

/* ---------------------------------------------------------------- projections (projection.c) */

/* Heads per projection: the largest group whose rotated queries and keys fit in `bytes`; all heads if they cannot be
 * split before they are projected. A group begins at a multiple of this number. */
size_t mha__drawn_call_group(const mha__drawn_call *d, size_t bytes);
/* Computes rotated queries and keys of the group that begins with a head, and forgets the last ones. Errors: as of
 * mha_forward_inputs; MHA_NO_MEMORY. */
mha_status mha__drawn_call_project(mha__drawn_call *d, size_t first, size_t group, mha_error *error);

/* ---------------------------------------------------------------- rows of weights */

/* Queries [first, past) of a head, which are added to it in order, and to a sum of their own. */
typedef struct mha__band {
    mha__head *head;
    mha__head_statistics sum;
    size_t first, past;
    mha_status status;
    mha_error error;
} mha__band;

/* The rows of one sequence under the heads of a projection. */
typedef struct mha__rows_job {
    const mha__drawn_call *d;
    mha__sequence s;
    size_t b, first, past; /* the queries that are shown */
    mha__band *bands;
    int threads;        /* of each band */
    mha__arena scratch; /* memory of all workers, taken before any runs */
    size_t rows;        /* at a time */
    size_t workspace_bytes;
    struct mha__rows_worker *workers;
} mha__rows_job;

/* kept_rows.c: by the stages that a forward keeps. `number`: that of the worker. */
mha_status mha__kept_rows_begin(mha__rows_job *job, size_t workers, mha_error *error);
mha_status mha__kept_rows_add(const mha__rows_job *job, mha__band *band, int number, mha_error *error);

/* cut_pattern.c: leaves of a pattern batch row b, heads [heads[0], heads[1]) and `count` queries from `from` on, which
 * lie in one block or begin with one. */
void mha__pattern_cut(mha_pattern *p, size_t b, const size_t heads[2], size_t from, size_t count);

#endif
