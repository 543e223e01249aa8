/* The speaker: rank 0, and for an error that it does not have the first rank that has it. */
#include <unistd.h>

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

/* An error; other codes are answers. */
static bool is_error(int code)
{
    return code == EXIT_REQUEST || code == EXIT_MACHINE;
}

int worst_code(int code)
{
    static bool said;
    int rank = 0, first = 0, mine, worst[2], own[2] = {is_error(code) ? code : EXIT_DONE, code};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mine = is_error(code) ? rank : 1 << 30;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(own, worst, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (first == rank && !said)
        speak_up(rank);
    said |= first < 1 << 30;
    return worst[0] != EXIT_DONE ? worst[0] : worst[1];
}

int agreed_code(int code, uint64_t digest, const char *about, const char *otherwise)
{
    uint64_t first = digest;
    MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (code == EXIT_DONE && first != digest)
        code = refuse(about, "%s", otherwise);
    return worst_code(code);
}

void agree_on_reason(char reason[REASON_TEXT])
{
    char first[REASON_TEXT];
    int rank = 0, speaker = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int mine = *reason ? rank : 1 << 30;
    MPI_Allreduce(&mine, &speaker, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (speaker == 1 << 30)
        return;
    memcpy(first, reason, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, speaker, MPI_COMM_WORLD);
    if (speaker == 0)
        memcpy(reason, first, sizeof first);
    else
        snprintf(reason, REASON_TEXT, "rank %d: %.*s", speaker, REASON_TEXT - 20, first);
}
