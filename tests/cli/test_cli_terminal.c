/* The program's output on a terminal: colours, progress, tables as wide as it is. */
#include <errno.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/program.h"
#include "support/unit.h"

#define LAYER "--d-model", "8", "--heads", "2", "--seq", "4", "--threads", "1"
enum { MAX_ARGS = 18 };

static void record(const char *path, const char *seed)
{
    program_result r = RUN("forward", LAYER, "--seed", seed, "--save-case", path, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
}

/* On a terminal standard error counts many cases, in a line that is blank in the end; few are done at once. */
static void check_counts_the_cases(void **state)
{
    (void)state;
    const char *c = scratch("counted.safetensors");
    record(c, "3");
    program_result r = RUN_ON_TERMINALS(90, "check", c, c, c, c, c, c, c, c, c);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, "\r  1 of 9 cases "));
    assert_non_null(strstr(r.err, "\r  9 of 9 cases \r  "));
    assert_int_equal(r.err[strlen(r.err) - 1], '\r');
    assert_null(strchr(r.err, '\n'));
    program_free(&r);
    r = RUN_ON_TERMINALS(90, "check", c, c, c, c, c, c, c, c);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    program_free(&r);
    r = RUN_ON_TERMINALS(90, "check", c, c, c, c, c, c, c, c, c, "--quiet");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    program_free(&r);
}

/* On a terminal standard error counts what was tried and is blank again; --quiet says nothing, nor does a file. */
static void diagnose_shows_how_far_it_is(void **state)
{
    (void)state;
    static const char made[] = "weights/lookup/wrong_port.safetensors";
    program_result r = RUN_ON_TERMINALS(100, "diagnose", made, "--threads", "1");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, " candidates"));
    const char *blank = strrchr(r.err, '\r');
    assert_non_null(blank);
    assert_int_equal(blank[1], '\0');
    while (blank[-1] == ' ')
        blank--;
    assert_true(blank[-1] == '\r');
    assert_ptr_equal(strstr(r.out, "\x1b[1mexpected.output\x1b[0m of "), r.out);
    program_free(&r);
    r = RUN_ON_TERMINALS(100, "diagnose", made, "--quiet");
    assert_string_equal(r.err, "");
    assert_string_equal(r.out, "");
    program_free(&r);
    r = RUN("diagnose", made);
    assert_string_equal(r.err, "");
    assert_null(strchr(r.out, '\x1b'));
    program_free(&r);
}

/* Everything a program writes to a terminal, both streams; `variable` is put into its environment. */
static char *on_a_terminal_of(unsigned short columns, const char *variable, const char *const *args, int *code)
{
    const char *program = getenv("MHA_PROGRAM"), *argv[MAX_ARGS + 2] = {"mha"};
    for (size_t i = 0; args[i]; i++)
        argv[i + 1] = args[i];
    int terminal, status;
    fflush(NULL);
    pid_t pid = forkpty(&terminal, NULL, NULL, &(struct winsize){.ws_row = 50, .ws_col = columns});
    if (pid < 0) { /* a container may have no pseudo-terminals */
        skip_because("this system gives no terminal: %s", strerror(errno));
    }
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        unsetenv("NO_COLOR");
        if (variable)
            putenv(strdup(variable));
        execv(program && *program ? program : "build/mha", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    size_t size = 0, room = 1 << 20;
    char *text = calloc(room, 1);
    for (ssize_t n; size + 1 < room && (n = read(terminal, text + size, room - 1 - size)) != 0;)
        if (n > 0)
            size += (size_t)n;
        else if (errno != EINTR)
            break; /* EIO: nobody writes any more */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(terminal);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return text;
}

static char *on_a_terminal(const char *variable, const char *const *args, int *code)
{
    return on_a_terminal_of(0, variable, args, code);
}

/* Tables keep to the width of the terminal: columns that matter less are left out, text goes on in lines below. */
static void a_narrow_terminal_is_enough(void **state)
{
    (void)state;
    static const struct {
        const char *args[MAX_ARGS];
        unsigned short columns;
        const char *there, *not_there;
    } runs[] = {
        {{"check", "tests/vectors/torch_padding.safetensors"}, 80, "not shown for want of room: ", "no such text"},
        {{"check", "tests/vectors/torch_padding.safetensors"}, 200, "max ULP", "no such text"},
        {{"claims"}, 80, "verdict", "no such text"},
        {{"claims"}, 120, "verdict", "no such text"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int code;
        char *text = on_a_terminal_of(runs[i].columns, "NO_COLOR=1", runs[i].args, &code);
        if (code != 0 || !strstr(text, runs[i].there) || strstr(text, runs[i].not_there))
            fail_msg("run %zu: exit code %d, on the terminal: %s", i, code, text);
        for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"))
            if (strlen(line) > runs[i].columns)
                fail_msg("run %zu: a line of %zu characters: %s", i, strlen(line), line);
        free(text);
    }
}

static void a_terminal_gets_colours_and_progress(void **state)
{
    (void)state;
    static const struct {
        const char *variable;
        const char *args[MAX_ARGS];
        const char *there, *not_there;
    } runs[] = {
        {NULL, {"forward", LAYER}, "\033[1m", "\r\033[K"},
        {"NO_COLOR=1", {"forward", LAYER}, "Configuration", "\033["},
        {"TERM=dumb", {"forward", LAYER}, "Configuration", "\033["},
        {NULL, {"check", "tests/vectors"}, " cases \r", "no such text"},
        {NULL, {"check", "tests/vectors", "--quiet"}, "", " cases \r"},
        {NULL, {"power", "tests/vectors/torch_one_token.safetensors"}, " bugs \r", "no such text"},
        {NULL,
         {"bench", "--shape", "1,4,4,8,2", "--rounds", "1", "--threads", "1"},
         "0 of 1 rounds of 1,4,4,8,2 layer",
         "no such text"},
        {NULL, {"bench", "--shape", "1,4,4,8,2", "--rounds", "1", "--threads", "1", "--quiet"}, "", "rounds of"},
        {NULL, {"help", "forward"}, "--d-model", "no such text"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int code;
        char *text = on_a_terminal(runs[i].variable, runs[i].args, &code);
        if (code != 0 || !strstr(text, runs[i].there) || strstr(text, runs[i].not_there))
            fail_msg("run %zu: exit code %d, on the terminal: %s", i, code, text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_counts_the_cases),
        cmocka_unit_test(diagnose_shows_how_far_it_is),
        cmocka_unit_test(a_narrow_terminal_is_enough),
        cmocka_unit_test(a_terminal_gets_colours_and_progress),
    };
    return cmocka_run_group_tests_name("cli_terminal", tests, NULL, scratch_remove);
}
