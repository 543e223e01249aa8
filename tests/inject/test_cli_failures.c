/* The program on a failing machine: in every command, every allocation, mapping and file operation fails once
 * in turn. It never crashes; it either does all it was asked for or ends with exit code 3 and one line, and
 * its output file is whole or not there. FAILURES_STRIDE=n tries every n-th point, every 29th without it. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/inject.h"
#include "support/asked.h"
#include "support/scratch.h"
#include "support/unit.h"

int program_main(int argc, char **argv); /* the program's own main, compiled under this name */

/* ---------------------------------------------------------------- commands */

enum { MAX_ARGS = 16 };

/* A command; "@NAME" is a file in the scratch directory. */
typedef struct command {
    const char *args[MAX_ARGS];
    const char *input;  /* what standard input reads; NULL: nothing */
    const char *output; /* a file it writes, in the scratch directory */
    bool timed;         /* says how long it took: no two runs print the same */
    bool checks;        /* exit code 1 also says: this file could not be checked, next to the others */
    int code;           /* of the exit without any failure */
} command;

#define LAYER "--d-model", "8", "--heads", "2", "--seq", "3", "--threads", "1"

static const command commands[] = {
    {{"--version"}, .output = NULL},
    {{"help", "params"}, .output = NULL},
    {{"info", "--json"}, .output = NULL},
    {{"forward", LAYER, "--json"}, .timed = true},
    {{"forward", LAYER, "--output", "@out.npy", "--trace", "/dev/null"}, .output = "out.npy", .timed = true},
    {{"forward", LAYER, "--path", "exact", "--trace", "@trace.safetensors"},
     .output = "trace.safetensors",
     .timed = true},
    {{"forward", LAYER, "--path", "blas", "--save-case", "@case.safetensors"},
     .output = "case.safetensors",
     .timed = true},
    {{"forward", "--weights", "weights/lookup/model.safetensors", "--seq", "4", "--threads", "1"}, .timed = true},
    {{"forward", "--weights", "tests/gguf/llama-llama3.gguf", "--layer", "blk.0", "--seq", "4", "--threads", "1"},
     .timed = true},
    {{"forward", LAYER, "--input", "-"}, .input = "input.npy", .timed = true},
    {{"params", "--d-model", "8", "--heads", "2", "--per-head"}, .output = NULL},
    {{"params", "--preset", "albert-base-v2", "--json"}, .output = NULL},
    {{"params", "--weights", "weights/lookup/model.safetensors", "--format", "csv"}, .output = NULL},
    {{"params", "--config", "weights/lookup/config.json", "--ranks", "2", "--seq", "9", "--machine", "1,1,1,1"},
     .output = NULL},
    {{"params", "--config", "weights/lookup/config.json", "--format", "markdown"}, .output = NULL},
    {{"heads", "--d-model", "12", "--heads", "1,2,3", "--seq", "2", "--threads", "1", "--json"}, .timed = true},
    {{"check", "@cases", "--threads", "2", "--json"}, .checks = true},
    {{"compare", "weights/lookup/model.safetensors", "weights/lookup/model.safetensors"}, .output = NULL},
    {{"diagnose", "tests/vectors/torch_one_token.safetensors"}, .output = NULL},
    {{"power", "tests/vectors/torch_one_token.safetensors", "--threads", "1"}, .output = NULL},
    {{"show", LAYER, "--head", "1", "--picture", "@page.html", "--tokens", "LICENSE"}, .output = "page.html"},
    {{"check", "-", "--threads", "1"}, .input = "cases/one.safetensors", .checks = true},
    {{"completion", "bash"}, .output = NULL},
    {{"completion", "--words", "forward", "--rope", ""}, .output = NULL},
    {{"params", "--weights", "weights/lookup/model.safetensors", "--per-head", "--seq", "3"}, .output = NULL},
    {{"heads", "--config", "weights/lookup/config.json", "--heads", "1,2", "--run", "--seq", "2", "--threads", "1"},
     .output = NULL},
    {{"forward", "--config", "weights/lookup/config.json", "--seq", "2", "--threads", "1"}, .timed = true},
    {{"forward", LAYER, "--dtype", "bf16", "--cache-dtype", "f16"}, .timed = true},
    {{"show", LAYER, "--causal", "--picture", "@heads.svg"}, .output = "heads.svg"},
    {{"show", LAYER, "--picture", "@heads.png", "--quiet"}, .output = "heads.png"},
    {{"params", "--preset", "gpt2", "--quiet", "--picture", "@areas.svg"}, .output = "areas.svg"},
    {{"conform", "--level", "smoke", "--has", "causal,backward"}, .output = NULL},
    {{"conform", "--write", "@asked", "--level", "smoke", "--only", "probe-lse", "--convention", "lse=base-2"},
     .output = "asked/index.json"},
    {{"conform", "--write", "@asked", "--level", "smoke", "--only", "backward-gqa.", "--dtype", "bf16", "--json"},
     .output = "asked/index.json"},
    {{"conform", "--check", "@checked", "--junit", "@junit.xml"}, .output = "junit.xml", .code = 1},
    {{"conform", "--check", "@checked", "--json"}, .code = 1},
};

/* ---------------------------------------------------------------- one run */

typedef struct run {
    int code; /* of the exit; -signal when one ended it */
    char fired[32];
    size_t calls;
    char *out, *err, *file; /* `file` NULL: not there */
    size_t out_size, file_size, left; /* temporary files in the directory */
} run;

/* Number of temporary files left in a directory, if there is one; takes them away. */
static size_t sweep_folder(const char *folder)
{
    struct dirent **entries;
    size_t left = 0;
    const int n = scandir(scratch_path(folder), &entries, NULL, NULL);
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, "mha-")) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
            unlink(scratch_path(path));
            left++;
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return left;
}

/* The same of all directories that commands write to. */
static size_t sweep(void)
{
    return sweep_folder(".") + sweep_folder("asked") + sweep_folder("asked/cases");
}

static int report_to; /* in the child: where the parent waits for what fired */

/* The leak check of the address sanitizer, where there is one. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* Runs when the child exits, from wherever; what its parent wants done at exit is not for the child. */
static void report(int code, void *unused)
{
    (void)unused;
    char fired[32] = "";
    inject_disarm();
    if (inject_fired())
        snprintf(fired, sizeof fired, "%s", inject_fired());
    size_t calls = inject_calls();
    if (write(report_to, fired, sizeof fired) < 0 || write(report_to, &calls, sizeof calls) < 0)
        _exit(99);
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
        _exit(97);
    fflush(NULL);
    inject_exit(code);
}

static void child(const command *c, inject_mode mode, size_t at)
{
    char name[] = "mha", *argv[MAX_ARGS + 2] = {name};
    int argc = 1;
    for (; c->args[argc - 1]; argc++)
        argv[argc] =
            (char *)(uintptr_t)(c->args[argc - 1][0] == '@' ? scratch_path(c->args[argc - 1] + 1) : c->args[argc - 1]);
    int in = open(c->input ? scratch_path(c->input) : "/dev/null", O_RDONLY);
    int out = open(scratch_path(".stdout"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int err = open(scratch_path(".stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(98);
    alarm(HANG_SECONDS);
    on_exit(report, NULL);
    inject_arm(mode, at);
    exit(program_main(argc, argv));
}

static run run_command(const command *c, inject_mode mode, size_t at)
{
    int ends[2], status;
    run r = {0};
    if (c->output)
        unlink(scratch_path(c->output));
    assert_int_equal(pipe(ends), 0);
    report_to = ends[1];
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(c, mode, at);
    close(ends[1]);
    if (read(ends[0], r.fired, sizeof r.fired) != sizeof r.fired ||
        read(ends[0], &r.calls, sizeof r.calls) != sizeof r.calls)
        snprintf(r.fired, sizeof r.fired, "?");
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    size_t size;
    r.out = (char *)scratch_read(scratch_path(".stdout"), &r.out_size);
    r.err = (char *)scratch_read(scratch_path(".stderr"), &size);
    r.file = c->output ? (char *)scratch_read(scratch_path(c->output), &r.file_size) : NULL;
    r.left = sweep();
    return r;
}

static void run_free(run *r)
{
    free(r->out);
    free(r->err);
    free(r->file);
}

/* ---------------------------------------------------------------- checking */

static bool is_one_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return strncmp(text, "mha", 3) == 0 && end && end[1] == '\0';
}

static bool same_file(const run *a, const run *b)
{
    return (!a->file && !b->file) ||
           (a->file && b->file && a->file_size == b->file_size && memcmp(a->file, b->file, a->file_size) == 0);
}

/* The fault of a run; NULL: none. */
static const char *check(const command *c, const run *r, const run *normal, inject_mode mode)
{
    bool done = r->code == normal->code;
    if (r->code < 0)
        return "a signal ended it";
    if (!done && mode != INJECT_FAILURE)
        return "it minds what is no failure";
    if (!done && r->code != 3 && !(c->checks && r->code == 1))
        return "the exit code is another";
    if (r->code == 3 && !is_one_line(r->err))
        return "not one line on standard error";
    if (done && *r->err)
        return "it complains";
    if (done && !c->timed && strcmp(r->out, normal->out) != 0)
        return "it prints something else";
    if (done ? !same_file(r, normal) : r->file && !same_file(r, normal))
        return "the output file is not whole";
    if (r->left != normal->left && strcmp(r->fired, "unlink") != 0)
        return "it leaves a file";
    return NULL;
}

static size_t all_points;

static void survives(const command *c)
{
    static const char *const modes[] = {"", "failing", "interrupted", "short"};
    const char *asked = getenv("FAILURES_STRIDE");
    size_t stride = asked && atoi(asked) > 0 ? (size_t)atoi(asked) : 29;
    char line[256] = "";
    for (size_t i = 0; c->args[i]; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s", c->args[i]);
    run normal = run_command(c, INJECT_NOTHING, 0);
    if (normal.code != c->code)
        fail_msg("mha%s: without any failure: exit code %d: %s", line, normal.code, normal.err);
    for (int mode = INJECT_FAILURE; mode <= INJECT_SHORT; mode++)
        for (size_t at = 1;; at += stride, all_points++) {
            run r = run_command(c, (inject_mode)mode, at);
            const char *wrong = *r.fired ? check(c, &r, &normal, (inject_mode)mode) : NULL;
            if (wrong)
                fail_msg("mha%s: call %zu, a %s %s: %s; exit code %d, standard error: %s", line, at, modes[mode],
                         r.fired, wrong, r.code, r.err);
            bool fired = *r.fired;
            run_free(&r);
            if (!fired)
                break;
        }
    run_free(&normal);
}

static void every_command_survives(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        survives(&commands[i]);
    print_message("%zu failures injected into the program, all survived\n", all_points);
}

/* ---------------------------------------------------------------- files the commands read */

static void copy(const char *from, const char *to)
{
    size_t count;
    unsigned char *content = scratch_read(from, &count);
    assert_non_null(content);
    scratch_write(to, content, count);
    free(content);
}

/* Writes a result to a test case into the folder "checked": the exact one of a choice, with one number off. */
static void write_result(const char *name, const mha_conform_choices *choices, bool output, bool gradients)
{
    static const char *const words[] = {"output", "lse", "d_query", "d_key", "d_value"};
    char path[200];
    mha_error error;
    mha_writer *writer;
    mha_test_case *q = asked(name, MHA_F32, choices);
    mha_test_result result = asked_exact(q, MHA_F32);
    mha_view *const views[] = {&result.output, &result.lse, &result.gradients[0], &result.gradients[1],
                               &result.gradients[2]};
    if (output)
        ((float *)result.output.data)[0] += 1;
    if (gradients)
        ((float *)result.gradients[1].data)[0] += 1;
    snprintf(path, sizeof path, "checked/results/%s.safetensors", name);
    assert_ok(mha_writer_create(scratch_path(path), &writer, &error), error);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if (views[i]->data)
            assert_ok(mha_writer_add(writer, words[i], views[i], &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    asked_free(&result);
    mha_test_case_destroy(q);
}

/* Writes a folder of results: right ones, also in another choice, and wrong ones of the forward and of the backward.
 */
static void write_results(void)
{
    static const char index[] =
        "{\"suite\": \"" MHA_CONFORM_VERSION "\", \"dtype\": \"F32\", \"cases\": [{\"name\": \"probe-lse\"}, "
        "{\"name\": \"plain.q1-s1\"}, {\"name\": \"backward-gqa.b2-h4-kv2-q9-s9\"}, {\"name\": "
        "\"causal.q1-s1\"}, {\"name\": \"gqa.b2-h4-kv2-q9-s9\"}]}";
    const mha_conform_choices base_2 = {.of = {[6] = 1}};
    assert_int_equal(mkdir(scratch_path("checked"), 0700), 0);
    assert_int_equal(mkdir(scratch_path("checked/results"), 0700), 0);
    scratch_write("checked/index.json", index, sizeof index - 1);
    write_result("probe-lse", &base_2, false, false);
    write_result("plain.q1-s1", NULL, true, false);
    write_result("backward-gqa.b2-h4-kv2-q9-s9", NULL, false, true);
    scratch_write("checked/results/causal.q1-s1.npy", "no tensors", 10);
}

/* In a process of its own: what threads of the library hold would be a leak of every process that is forked later. */
static void prepare_results(void)
{
    int status;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        write_results();
        leave(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int prepare(void **state)
{
    (void)state;
    static const char *const cases = "cases";
    if (mkdir(scratch_path(cases), 0700) != 0)
        return -1;
    copy("tests/vectors/torch_one_token.safetensors", "cases/one.safetensors");
    copy("tests/vectors/torch_padding.safetensors", "cases/two.safetensors");
    prepare_results();
    setenv("TMPDIR", scratch_path("."), 1);
    const command make = {.args = {"forward", LAYER, "--output", "@input.npy"}};
    run r = run_command(&make, INJECT_NOTHING, 0);
    int code = r.code;
    run_free(&r);
    return code;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_command_survives)};
    return cmocka_run_group_tests(tests, prepare, NULL);
}
