/* One call on all ranks, from a layer and inputs that every rank has whole, and what came of it. */
#ifndef MHA_CLI_MPI_RUN_SHARED_H
#define MHA_CLI_MPI_RUN_SHARED_H

#include "base/arena.h"
#include "mha/lab.h"
#include "mha/mpi.h"

typedef struct shared_call {
    const mha_layer *layer;   /* NULL: attention alone */
    mha_call call;            /* whole; the path is that of all ranks */
    mha_view past[2];         /* keys and values in the cache before it; no data: no cache */
    const char *path;         /* of the weights file that each rank reads its own part of; NULL: of `layer` */
    const mha_load_options *options;
    mha_split_scheme scheme;
    size_t rounds;            /* the time is the median of so many; 0: one */
} shared_call;

/* What a rank has to say; plain numbers, so that rank 0 can collect them. */
typedef struct rank_report {
    mha_share share;
    uint64_t parameters; /* stored by this rank */
    mha_mpi_memory memory;
    double ms;           /* of one forward, the median */
} rank_report;

typedef struct shared_result {
    mha_status status; /* the same on all ranks; the rest needs MHA_OK */
    mha_error error;
    rank_report own;
    mha_split split; /* the whole call */
    mha_mpi_sum totals;
    double ms, quartiles[2]; /* of the slowest rank in each round: the median, and between which half of them lie */
    mha_view output; /* of this rank: (B, rows, width) in memory of the arena */
} shared_result;

/* Collective. */
void run_shared(const shared_call *s, mha__arena *arena, shared_result *result);
/* The rows of a whole (B, T, width) or (B, T, heads, width) that the rank has, side by side in memory of the arena. */
mha_view rows_of_rank(const mha_view *whole, const mha_share *share, bool keys, mha__arena *arena);
/* Whether every rank has all rows of inputs and output. */
bool has_all_rows(mha_split_scheme scheme);

#endif
