/* The commands of mha-mpi. All ranks run them; rank 0 speaks. */
#ifndef MHA_CLI_MPI_COMMANDS_MPI_H
#define MHA_CLI_MPI_COMMANDS_MPI_H

#include "cli/options/options.h"
#include "cli/mpi/run_shared.h"

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
