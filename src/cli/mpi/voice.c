/* Who speaks: rank 0, and for an error that it does not have the first rank that has it. */
#include <stdio.h>
#include <unistd.h>

#include "cli/output/print.h"
#include "cli/mpi/commands_mpi.h"

static struct {
    int saved;     /* standard error of a rank that is silent; -1: it speaks */
    FILE *written; /* what it would have said */
} voice = {.saved = -1};

void silence_rank(void)
{
    voice.written = tmpfile();
    voice.saved = voice.written ? dup(STDERR_FILENO) : -1;
    if (voice.saved >= 0)
        (void)dup2(fileno(voice.written), STDERR_FILENO);
    if (!freopen("/dev/null", "w", stdout))
        _exit(EXIT_MACHINE); /* unreachable: where there is a /dev/null */
}

/* Lets this rank's line on standard error out. */
static void speak_up(int rank)
{
    char line[2048];
    fflush(stderr);
    if (voice.saved < 0)
        return;
    rewind(voice.written);
    const size_t n = fread(line, 1, sizeof line - 1, voice.written);
    line[n] = '\0';
    dprintf(voice.saved, "rank %d: %s", rank, line);
}

int worst_code(int code)
{
    static bool said;
    int rank = 0, first = 0, mine, worst = code;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mine = code != EXIT_DONE && code != EXIT_NO ? rank : 1 << 30;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (first == rank && !said)
        speak_up(rank);
    said |= first < 1 << 30;
    return worst;
}
