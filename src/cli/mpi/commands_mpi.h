/* The parts of mha-mpi. */
#ifndef MHA_CLI_MPI_COMMANDS_MPI_H
#define MHA_CLI_MPI_COMMANDS_MPI_H

#include "cli/output/report.h"
#include "mha/mpi.h"

/* One call on all ranks, from a layer and inputs that every rank has whole, and what came of it. */

typedef struct shared_call {
    const mha_layer *layer;   /* NULL: attention alone */
    mha_call call;            /* whole; the path is that of all ranks */
    mha_view past[2];         /* keys and values in the cache before it; no data: no cache */
    const char *path;         /* of the weights file that each rank reads its own part of; NULL: of `layer` */
    const mha_load_options *options;
    mha_split_scheme scheme;
    size_t rounds;            /* the time is the median of this number of runs; 0: one */
} shared_call;

/* The report of a rank, in plain numbers, so that rank 0 can collect them. */
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
/* Collective. The largest difference of a result from `whole` on any rank, and how many elements of all ranks differ by
 * more than is allowed. */
double compare_shared(const mha_view *whole, const shared_call *call, const shared_result *result, double rtol,
                      double atol, mha__arena *arena, uint64_t *mismatches);

/* The machine at hand, in the numbers of mha/split_time.h, and what these say of a call. */

/* Collective. What the slowest rank reaches while all ranks do the same, times the ranks of a node that take turns on a
 * core: F from the call on one process, M from reading memory, L and B from messages to the next rank. On one rank no
 * message is sent: L is 0, and B as M. Returns 0, or the exit code. */
int measure_machine(request *q, int ranks, mha_machine *machine);
/* Milliseconds of a call on this machine by the model of cost; NaN where there are none. */
double predict(const mha_split *split, bool causal, const mha_machine *machine);

/* The commands of mha-mpi. All ranks run them; rank 0 speaks. */

typedef struct mpi_request {
    const arguments *args;
    int rank, ranks;
    int scheme; /* -1: all that can take the call */
} mpi_request;

/* From now on this rank writes nothing to standard output, and keeps what it would write to standard error. */
void silence_rank(void);
/* Collective: the worst of the ranks' exit codes, on all of them. A line that explains it is let out on one. */
int worst_code(int code);
/* Collective: the same, or EXIT_REQUEST on all of them where a rank has another digest of what it is to do than rank 0.
 * Its line is about `about`, and says `otherwise`. Nobody may wait for a rank that does other things. */
int agreed_code(int code, uint64_t digest, const char *about, const char *otherwise);
enum { REASON_TEXT = 400 };
/* Collective: makes the reason for skipping that of the first rank which has one, on all of them; "": none has. */
void agree_on_reason(char reason[REASON_TEXT]);

/* Each returns the exit code, the same on all ranks. */
int run_mpi_forward(const mpi_request *r, size_t rounds); /* forward, bench */
int run_mpi_params(const mpi_request *r);
int run_mpi_check(const mpi_request *q);

#endif
