/* The program `mha`: finds the command, reads its options, runs it, and returns its exit code. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/help.h"

/* The function of each command; it returns the exit code. */
static int (*const run[COMMAND_COUNT])(const arguments *args) = {
    [CMD_FORWARD] = run_forward,   [CMD_PARAMS] = run_params,         [CMD_HEADS] = run_heads,
    [CMD_CHECK] = run_check,       [CMD_COMPARE] = run_compare,       [CMD_DIAGNOSE] = run_diagnose,
    [CMD_POWER] = run_power,       [CMD_CLAIMS] = run_claims,         [CMD_BENCH] = run_bench,
    [CMD_INFO] = run_info,         [CMD_COMPLETION] = run_completion, [CMD_SHOW] = run_show,
    [CMD_CONFORM] = run_conform,   [CMD_EXPLAIN] = run_explain,
};

static command_code find_command(const char *name)
{
    command_code code = 0;
    while (code < COMMAND_COUNT && strcmp(command_rows[code].name, name) != 0)
        code++;
    return code;
}

/* Keeps the nearer of two names to a misspelt one. */
static void keep_nearer(const char *name, const char *candidate, size_t *least, const char **near)
{
    const size_t distance = mha__text_distance(name, candidate);
    if (distance < *least)
        *least = distance, *near = candidate;
}

/* The command, or with `topics` also the topic, whose name is nearest to a misspelt one; NULL when none is near. */
static const char *near_name(const char *name, bool topics)
{
    const char *near = NULL;
    size_t least = 3;
    keep_nearer(name, "help", &least, &near);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        keep_nearer(name, command_rows[i].name, &least, &near);
    for (size_t i = 0; topics && topic_name(i); i++)
        keep_nearer(name, topic_name(i), &least, &near);
    return near;
}

static int refuse_command(const char *name)
{
    const char *known = "", *near = near_name(name, false);
    if (strcmp(name, "grade") == 0)
        return refuse(name, "expected python3 -m mha conform FILE.py:FUNCTION, its new name");
    if (strcmp(name, "watch") == 0)
        return refuse(name, "expected python3 -m mha watch --compare A B: only the Python module has it");
    if (near)
        return refuse(name, "expected a command; did you mean %s? \"mha --help\" lists all", near);
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        known = text_more(known, "%s%s", c ? ", " : "", command_rows[c].name);
    return refuse(name, "expected a command, one of %s", known);
}

/* Chooses the instruction set of --isa or of the environment variable MHA_ISA. An unknown MHA_ISA is refused here;
 * the library itself would ignore it. */
static int choose_isa(const arguments *args)
{
    const char *name = given(args, OPT_ISA) ? text_for(args, OPT_ISA) : getenv("MHA_ISA");
    mha_error error;
    if (!takes(args->command, OPT_ISA) || !name || !*name || mha_isa_select(name, &error) == MHA_OK)
        return EXIT_DONE;
    return refuse(given(args, OPT_ISA) ? "--isa" : "MHA_ISA", "%s", error.message);
}

static int run_command(command_code code, int argc, char **argv)
{
    if (code == CMD_COMPLETION && argc > 1 && strcmp(argv[1], "--words") == 0) { /* these may be anything */
        completion_words(argc - 2, argv + 2);
        return finish_output(EXIT_DONE);
    }
    speak_as(text_of("mha %s", command_rows[code].name));
    arguments args;
    int result = arguments_parse(&args, code, argc, argv);
    if (result == EXIT_DONE && given(&args, OPT_WIDE))
        tables_wide();
    if (result == EXIT_DONE && given(&args, OPT_HELP))
        help_command(code);
    else if (result == EXIT_DONE && (result = obey_format(&args)) == EXIT_DONE &&
             (result = choose_isa(&args)) == EXIT_DONE)
        result = run[code](&args);
    return finish_output(result);
}

static int refuse_topic(const char *name)
{
    const char *known = "", *near = near_name(name, true);
    if (strcmp(name, "variants") == 0)
        return refuse(name, "expected mha help bugs, its new name");
    if (near)
        return refuse(name, "expected a command or topic; did you mean %s? \"mha --help\" lists all", near);
    for (size_t i = 0; topic_name(i); i++)
        known = text_more(known, "%s%s", i ? ", " : "", topic_name(i));
    return refuse(name, "expected a topic, %s, or a command; \"mha --help\" lists the commands", known);
}

/* mha help [COMMAND or TOPIC], mha --help, mha --version */
static int run_general(int argc, char **argv)
{
    bool help = strcmp(argv[1], "help") == 0;
    if (argc > (help ? 3 : 2))
        return refuse(argv[1], "expected nothing more, found \"%s\"", argv[help ? 3 : 2]);
    if (help && argc == 3) {
        command_code code = find_command(argv[2]);
        if (code < COMMAND_COUNT)
            help_command(code);
        else if (strcmp(argv[2], "--manual") == 0)
            help_manual();
        else if (!help_topic(argv[2]))
            return refuse_topic(argv[2]);
    } else if (strcmp(argv[1], "--version") == 0)
        printf("mha %s\n", mha_version());
    else
        help_program();
    return finish_output(EXIT_DONE);
}

/* Opens /dev/null for every closed standard stream, because the next opened file would get its number and be taken
 * for the stream. The replacements fail: standard input cannot be read, and the outputs cannot be written. */
static void open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_MACHINE); /* unreachable: where there is a /dev/null */
}

int main(int argc, char **argv)
{
    open_standard_streams();
    json_mind_memory();
    signal(SIGPIPE, SIG_IGN); /* "mha ... | head -1" still writes the requested files */
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error like a full disk, and no partial file is left */
    static const char *const general[] = {"help", "--help", "-h", "--version"};
    if (argc < 2)
        return refuse("", "expected a command, found nothing; \"mha --help\" lists them");
    for (size_t i = 0; i < sizeof general / sizeof *general; i++)
        if (strcmp(argv[1], general[i]) == 0)
            return run_general(argc, argv);
    command_code code = find_command(argv[1]);
    if (code < COMMAND_COUNT)
        return run_command(code, argc - 1, argv + 1);
    if (argv[1][0] == '-')
        return refuse(argv[1], "expected a command before options; \"mha --help\" lists them");
    return refuse_command(argv[1]);
}
