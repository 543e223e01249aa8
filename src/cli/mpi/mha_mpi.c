/* The program mha-mpi: the commands of mha on several processes. Every rank reads the same command line; rank 0 writes
 * what is said, and an error that only another rank has is written by the first one that has it. */
#include <signal.h>

#include "cli/mpi/commands_mpi.h"
#include "mpi/shared.h"

static const char usage[] = ""
#include "usage.inc"
    ;

/* ---------------------------------------------------------------- the command line */

/* Takes --scheme NAME or --scheme=NAME out of argv. Returns 0, or the exit code. */
static int take_scheme(int *argc, char **argv, int *scheme)
{
    int kept = 0, code = EXIT_DONE;
    for (int i = 0; i < *argc; i++) {
        const bool apart = strcmp(argv[i], "--scheme") == 0;
        if (!apart && strncmp(argv[i], "--scheme=", 9) != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        const char *name = !apart ? argv[i] + 9 : i + 1 < *argc ? argv[++i] : "";
        mha_split_scheme found;
        if (!mha_split_scheme_find(name, &found))
            code = refuse("--scheme", "expected tensor, ulysses, ring, zigzag or cache, found \"%s\"", name);
        else
            *scheme = (int)found;
    }
    argv[kept] = NULL;
    *argc = kept;
    return code;
}

/* Options of mha that would write something else than what this program says. */
static int refuse_others(const arguments *args)
{
    for (option_code o = 0; o < option_count(); o++) {
        const section s = option_at(o)->section;
        const bool result = s == SECTION_RESULT || s == SECTION_COMPARED;
        if (given(args, o) && (result || o == OPT_CACHE_DTYPE || o == OPT_NO_PACK) && o != OPT_JSON && o != OPT_HELP &&
            o != OPT_QUIET)
            return refuse_option(o, "expected none with mha-mpi, which prints the memory and traffic of each rank");
    }
    return EXIT_DONE;
}

/* The task of a rank. */
typedef enum task { FORWARD, BENCH, PARAMS, CHECK, HELP, VERSION, TASKS } task;

static int read_task(int *argc, char **argv, task *what, int *scheme, arguments *args)
{
    static const struct {
        const char *name;
        command_code parsed_as;
    } tasks[] = {{"forward", CMD_FORWARD}, {"bench", CMD_FORWARD}, {"params", CMD_FORWARD}, {"check", CMD_CHECK},
                 {"--help", 0}, {"--version", 0}};
    const char *word = *argc < 2 ? "" : strcmp(argv[1], "help") == 0 ? "--help" : argv[1];
    for (*what = FORWARD; *what < TASKS && strcmp(word, tasks[*what].name) != 0;)
        (*what)++;
    if (*what == TASKS)
        return refuse(word, "expected forward, bench, params or check; mha-mpi --help explains");
    if (*what == HELP || *what == VERSION)
        return EXIT_DONE;
    TRY(take_scheme(argc, argv, scheme));
    TRY(arguments_parse(args, tasks[*what].parsed_as, *argc - 1, argv + 1));
    if (!given(args, OPT_HELP))
        return refuse_others(args);
    *what = HELP;
    return EXIT_DONE;
}

/* The part that must be the same on all ranks: not where files lie, nor what a machine decides for itself. */
static uint64_t digest_of(task what, int scheme, const arguments *args)
{
    const int numbers[] = {(int)what, scheme};
    uint64_t digest = mha__mpi_digest(0, numbers, sizeof numbers);
    for (int o = 0; args->option && o < (int)option_count(); o++) {
        const option_value *value = &args->option[o];
        if (!value->given || o == OPT_THREADS)
            continue;
        digest = mha__mpi_digest(digest, &o, sizeof o);
        if (value->text && names_file((option_code)o, value->text)) /* whose name tells whether it is standard input */
            digest = mha__mpi_digest(digest, value->text, *value->text == '-');
        else if (value->text)
            digest = mha__mpi_digest(digest, value->text, strlen(value->text) + 1);
    }
    return digest;
}

static int run(int argc, char **argv, int rank, int ranks)
{
    mpi_request r = {.rank = rank, .ranks = ranks, .scheme = -1};
    arguments args = {.n_operands = 0};
    task what = TASKS;
    r.args = &args;
    int code = read_task(&argc, argv, &what, &r.scheme, &args);
    code = agreed_code(code, digest_of(what, r.scheme, &args), "ranks",
                       "this rank has other words than rank 0: expected the same command and options on all");
    if (code == EXIT_DONE && what == HELP)
        fputs(usage, stdout);
    else if (code == EXIT_DONE && what == VERSION)
        printf("mha-mpi %s\n", mha_version());
    else if (code == EXIT_DONE)
        return what == CHECK    ? run_mpi_check(&r)
               : what == PARAMS ? run_mpi_params(&r)
                                : run_mpi_forward(&r, what == BENCH ? 7 : 1);
    return code;
}

int main(int argc, char **argv)
{
    int provided = 0, rank = 0, ranks = 1;
    json_mind_memory();
    (void)setenv("NO_COLOR", "1", 1); /* mpirun gives a terminal to programs whose output goes to a file */
    signal(SIGPIPE, SIG_IGN);
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return EXIT_MACHINE; /* unreachable: its error handler ends the program */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    speak_as("mha-mpi");
    if (rank != 0)
        silence_rank();
    const int code = worst_code(finish_output(run(argc, argv, rank, ranks)));
    MPI_Finalize();
    return code;
}
