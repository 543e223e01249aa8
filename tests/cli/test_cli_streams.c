/* Readers who leave early. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/program.h"
#include "support/unit.h"

#define SMALL "--d-model", "24", "--heads", "4", "--seq", "6"

/* `mha ... | true`, with the pipe's reader gone before the program starts. */
static int run_without_reader(const char *const *args, const char *errors)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const char *argv[16] = {"mha"}, *program = getenv("MHA_PROGRAM");
        for (size_t i = 0; args[i] && i < 14; i++)
            argv[i + 1] = args[i];
        signal(SIGPIPE, SIG_DFL);
        if (dup2(ends[1], 1) < 0 || !freopen(errors, "w", stderr))
            _exit(126);
        execv(program && *program ? program : "build/mha", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_a_reader_who_leaves_is_no_failure(void **state)
{
    (void)state;
    static const char *const commands[][10] = {{"info"},
                                              {"params", "--preset", "gpt2", "--all"},
                                              {"claims"},
                                              {"claims", "--json"},
                                              {"forward", SMALL, "--trace", "-"},
                                              {"heads", "--heads", "1,2", "--d-model", "8"}};
    const char *errors = scratch("errors"), *file = scratch("kept.npy");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_int_equal(run_without_reader(commands[i], errors), 0);
    unlink(file);
    assert_int_equal(run_without_reader((const char *const[]){"forward", SMALL, "--output", file, NULL}, errors), 0);
    assert_int_equal(access(file, F_OK), 0);
    FILE *said = fopen(errors, "r");
    assert_non_null(said);
    assert_int_equal(fgetc(said), EOF);
    fclose(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reader_who_leaves_is_no_failure),
    };
    return cmocka_run_group_tests_name("cli_streams", tests, NULL, scratch_remove);
}
