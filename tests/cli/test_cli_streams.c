/* Standard input as a file, standard streams that are closed, and readers who leave early. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/unit.h"

#define SMALL "--d-model", "24", "--heads", "4", "--seq", "6"
#define FROM(input, ...) program_run_with(NULL, input, (const char *const[]){__VA_ARGS__, NULL})
#define CLOSED ""

static void says(program_result r, int code, const char *words)
{
    if (r.code != code || !strstr(r.out, words))
        print_error("exit code %d, output: %s, error: %s\n", r.code, r.out, r.err);
    assert_int_equal(r.code, code);
    assert_non_null(strstr(r.out, words));
    assert_string_equal(r.err, "");
    program_free(&r);
}

/* ---------------------------------------------------------------- standard input */

static void test_every_command_that_reads_a_file_reads_standard_input(void **state)
{
    (void)state;
    const char *file = scratch("case.safetensors"), *trace = scratch("trace.safetensors"),
               *text = scratch("config.json");
    program_result r = RUN("forward", SMALL, "--causal", "--save-case", file, "--trace", trace, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
    says(FROM(file, "check", "-"), 0, "1 passed, 0 failed, 0 skipped");
    says(FROM(file, "check", file, "-", "--path", "exact"), 0, "2 passed, 0 failed, 0 skipped");
    says(FROM(file, "diagnose", "-"), 0, "expected.output of standard input");
    says(FROM(trace, "compare", "-", trace), 0, "Equal");
    says(FROM(trace, "compare", "-:q", trace), 0, "Equal");
    says(FROM(trace, "compare", trace, "-:q"), 0, "Equal");
    says(FROM(trace, "params", "--weights", "-"), 0, "present_key");
    FILE *config = fopen(text, "w");
    assert_non_null(config);
    fputs("{\"model_type\": \"gpt2\"}", config);
    fclose(config);
    says(FROM(text, "params", "--config", "-"), 0, "124,439,808");
}

static void test_what_standard_input_cannot_be(void **state)
{
    (void)state;
    const char *trace = scratch("trace.safetensors");
    assert_program_refuses(FROM(NULL, "check", "-"), 2, "standard input: expected a file of tensors");
    assert_program_refuses(FROM(NULL, "diagnose", "-"), 2, "standard input: expected a file of tensors");
    assert_program_refuses(FROM(NULL, "params", "--config", "-"), 2, "standard input: expected JSON");
    assert_program_refuses(FROM("/", "check", "-"), 2, "standard input: cannot read it: Is a directory");
    assert_program_refuses(FROM(CLOSED, "check", "-"), 3, "standard input: cannot read it: ");
    assert_program_refuses(FROM(trace, "compare", "-:none", trace), 2,
                           "standard input: expected a tensor called \"none\"");
    assert_program_refuses(FROM(trace, "compare", "-", "-"), 2,
                           "standard input: expected \"-\" once, found it 2 times");
    assert_program_refuses(FROM(trace, "forward", "--weights", "-", "--input", "-:x"), 2,
                           "standard input: expected \"-\" once");
    assert_int_equal(setenv("TMPDIR", "/nowhere", 1), 0);
    program_result r = FROM(trace, "check", "-");
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_program_refuses(r, 3, "standard input: cannot keep it in /nowhere: ");
    char endless[5000] = "/";
    memset(endless + 1, 'x', sizeof endless - 2);
    endless[sizeof endless - 1] = '\0';
    assert_int_equal(setenv("TMPDIR", endless, 1), 0);
    r = FROM(trace, "check", "-");
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_program_refuses(r, 3, "standard input: cannot keep it under TMPDIR: File name too long");
}

/* ---------------------------------------------------------------- standard output */

static void test_a_closed_output_is_exit_3(void **state)
{
    (void)state;
    static const char *const commands[][8] = {{"info"}, {"params"}, {"params", "--json"}, {"help"}, {"--version"}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_program_refuses(program_run_with(CLOSED, NULL, commands[i]), 3, "standard output: ");
    program_result r = program_run_with(CLOSED, NULL, (const char *const[]){"params", "--quiet", NULL});
    assert_int_equal(r.code, 0); /* nothing to say */
    program_free(&r);
}

/* The next file that is opened must not be taken for the stream that is missing. */
static void test_no_file_takes_the_place_of_a_closed_stream(void **state)
{
    (void)state;
    const char *file = scratch("output.npy"), *same = scratch("same.npy");
    program_result r = RUN("forward", SMALL, "--output", same, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
    assert_program_refuses(
        program_run_with(CLOSED, CLOSED, (const char *const[]){"forward", SMALL, "--output", file, NULL}), 3,
        "standard output: ");
    says(RUN("compare", file, same), 0, "Equal");
    assert_program_refuses(
        program_run_with(CLOSED, NULL, (const char *const[]){"forward", SMALL, "--output", "-", NULL}), 3,
        "cannot write it: ");
}

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
    static const char *const commands[][8] = {{"info"},
                                              {"params", "--preset", "gpt2", "--all"},
                                              {"claims"},
                                              {"claims", "--json"},
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
        cmocka_unit_test(test_every_command_that_reads_a_file_reads_standard_input),
        cmocka_unit_test(test_what_standard_input_cannot_be),
        cmocka_unit_test(test_a_closed_output_is_exit_3),
        cmocka_unit_test(test_no_file_takes_the_place_of_a_closed_stream),
        cmocka_unit_test(test_a_reader_who_leaves_is_no_failure),
    };
    return cmocka_run_group_tests_name("cli_streams", tests, NULL, scratch_remove);
}
