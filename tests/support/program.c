/* Runs the program $MHA_PROGRAM as a person would, and keeps what it said. */
#include "support/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "support/unit.h"

static char *slurp(FILE *file, size_t *size)
{
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    char *text = calloc((size_t)length + 1, 1);
    rewind(file);
    *size = fread(text, 1, (size_t)length, file);
    assert_int_equal(*size, length);
    fclose(file);
    return text;
}

/* Gives this process the streams of a run. */
static void stand_in(const char *output, const char *input, int out, int err)
{
    bool silent = output && !*output, deaf = input && !*input;
    int to = silent ? dup(out) : output ? open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600) : out;
    int from = open(input && *input ? input : "/dev/null", O_RDONLY);
    if (to < 0 || from < 0 || dup2(from, 0) < 0 || dup2(to, 1) < 0 || dup2(err, 2) < 0)
        _exit(126);
    if (silent)
        close(1);
    if (deaf)
        close(0);
}

static void child(const char *output, const char *input, int out, int err, const char *const *args)
{
    const char *program = getenv("MHA_PROGRAM");
    const char *argv[64] = {"mha"};
    for (size_t i = 0; args[i] && i < 62; i++)
        argv[i + 1] = args[i];
    stand_in(output, input, out, err);
    execv(program && *program ? program : "build/mha", (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Waits for the child's end and takes over what it wrote. */
static program_result result_of(pid_t pid, FILE *out, FILE *err)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    program_result r = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    size_t err_size;
    r.out = slurp(out, &r.out_size);
    r.err = slurp(err, &err_size);
    assert_int_not_equal(r.code, 127); /* MHA_PROGRAM names the program */
    return r;
}

program_result program_run_with(const char *output, const char *input, const char *const *args)
{
    FILE *out = tmpfile(), *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(output, input, fileno(out), fileno(err), args);
    return result_of(pid, out, err);
}

program_result program_run_other(const char *const *argv)
{
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out && err);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        stand_in(NULL, NULL, fileno(out), fileno(err));
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return result_of(pid, out, err);
}

program_result program_run_in_shell(const char *line)
{
    const char *program = getenv("MHA_PROGRAM"), *found = getenv("PATH");
    char path[8192], folder[4096] = "";
    assert_non_null(realpath(program && *program ? program : "build/mha", folder));
    *strrchr(folder, '/') = '\0';
    snprintf(path, sizeof path, "PATH=%s:%s", folder, found ? found : "/bin:/usr/bin");
    return program_run_other((const char *const[]){"env", path, "bash", "-e", "-o", "pipefail", "-c", line, NULL});
}

program_result program_run_on_terminals(unsigned short width, const char *const *args)
{
    FILE *said[2] = {tmpfile(), tmpfile()};
    struct pollfd screens[2];
    int lines[2];
    for (int i = 0; i < 2; i++) {
        assert_non_null(said[i]);
        screens[i] = (struct pollfd){.fd = posix_openpt(O_RDWR | O_NOCTTY), .events = POLLIN};
        if (screens[i].fd < 0)
            skip_because("this system gives no terminal: %s", strerror(errno));
        assert_int_equal(grantpt(screens[i].fd) | unlockpt(screens[i].fd), 0);
        assert_true((lines[i] = open(ptsname(screens[i].fd), O_RDWR | O_NOCTTY)) >= 0);
        struct termios as_it_is;
        assert_int_equal(tcgetattr(lines[i], &as_it_is), 0);
        cfmakeraw(&as_it_is);
        assert_int_equal(tcsetattr(lines[i], TCSANOW, &as_it_is), 0);
        assert_int_equal(ioctl(lines[i], TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = width}), 0);
    }
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("TERM", getenv("TEST_TERM") ? getenv("TEST_TERM") : "xterm", 1);
        unsetenv("NO_COLOR");
        child(NULL, NULL, lines[0], lines[1], args);
    }
    for (int i = 0; i < 2; i++)
        close(lines[i]);
    while (screens[0].fd >= 0 || screens[1].fd >= 0) { /* poll passes over those below 0 */
        assert_true(poll(screens, 2, -1) > 0);
        for (int i = 0; i < 2; i++) {
            char text[4096];
            if (screens[i].fd < 0 || !screens[i].revents)
                continue;
            ssize_t n = read(screens[i].fd, text, sizeof text);
            if (n > 0)
                assert_int_equal(fwrite(text, 1, (size_t)n, said[i]), n);
            else /* nobody writes any more */
                close(screens[i].fd), screens[i].fd = -1;
        }
    }
    return result_of(pid, said[0], said[1]);
}

program_result program_stop(int number, const char *words, int milliseconds, const char *const *args)
{
    enum { MOST = 1 << 16 };
    char *text = calloc(MOST, 1);
    FILE *out = tmpfile(), *err = tmpfile();
    int ends[2];
    assert_true(text && out && err && pipe(ends) == 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        signal(number, SIG_DFL); /* who starts the tests in the background ignores some */
        child(NULL, NULL, ends[1], fileno(err), args);
    }
    close(ends[1]);
    bool sent = false;
    for (size_t count = 0;;) {
        struct pollfd end = {.fd = ends[0], .events = POLLIN};
        const int ready = poll(&end, 1, words || sent ? -1 : milliseconds);
        const ssize_t n = ready > 0 ? read(ends[0], text + count, MOST - 1 - count) : 0;
        if (ready > 0 && n <= 0)
            break;
        count += (size_t)n;
        if (!sent && (words ? strstr(text, words) != NULL : ready == 0)) {
            sent = true;
            assert_int_equal(kill(pid, number), 0);
        }
    }
    assert_true(sent);
    fputs(text, out);
    close(ends[0]);
    free(text);
    return result_of(pid, out, err);
}

program_result program_run(const char *const *args)
{
    return program_run_with(NULL, NULL, args);
}

void program_free(program_result *r)
{
    free(r->out);
    free(r->err);
}

static const char *find_words(const char *text, const char *words)
{
    while (text && *words) {
        char part[256];
        size_t length = strcspn(words, "*");
        snprintf(part, sizeof part, "%.*s", (int)length, words);
        text = strstr(text, part);
        text = text ? text + length : NULL;
        words += length + (words[length] == '*');
    }
    return text;
}

void assert_program_refuses(program_result r, int code, const char *words)
{
    if (r.code != code || r.out_size != 0 || !find_words(r.err, words))
        print_error("exit code %d (expected %d), %zu bytes of output, error: %s(expected words: %s)\n", r.code, code,
                    r.out_size, r.err, words);
    assert_int_equal(r.code, code);
    assert_int_equal(r.out_size, 0);
    assert_non_null(find_words(r.err, words));
    const char *end = strchr(r.err, '\n');
    assert_non_null(end);
    assert_int_equal(end[1], 0); /* one line */
    assert_memory_equal(r.err, "mha", 3);
    program_free(&r);
}

json_t *run_json(int code, const char *const *args)
{
    program_result r = program_run(args);
    if (r.code != code)
        print_error("exit code %d (expected %d), error: %s\n", r.code, code, r.err);
    assert_int_equal(r.code, code);
    assert_string_equal(r.err, "");
    json_error_t error;
    json_t *root = json_loadb(r.out, r.out_size, JSON_REJECT_DUPLICATES, &error); /* refuses what follows the object */
    if (!root)
        print_error("line %d: %s\n", error.line, error.text);
    assert_true(json_is_object(root));
    program_free(&r);
    return root;
}

void assert_keys(const json_t *object, const char *keys)
{
    while (*keys) {
        char key[64];
        size_t length = strcspn(keys, ",");
        snprintf(key, sizeof key, "%.*s", (int)length, keys);
        if (!json_object_get(object, key))
            print_error("no key \"%s\"\n", key);
        assert_non_null(json_object_get(object, key));
        keys += length + (keys[length] == ',');
    }
}

/* ---------------------------------------------------------------- scratch files */

static char directory[256];

const char *scratch(const char *name)
{
    static char paths[16][512];
    static size_t next;
    if (!*directory) {
        const char *base = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/mha-test-XXXXXX", base && *base ? base : "/tmp");
        assert_non_null(mkdtemp(directory));
    }
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

int scratch_remove(void **state)
{
    (void)state;
    DIR *open_directory = *directory ? opendir(directory) : NULL;
    if (!open_directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(open_directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove(scratch(entry->d_name));
    closedir(open_directory);
    return rmdir(directory);
}

/* Whether a text begins with words. */
static bool begins(const char *text, const char *words)
{
    while (*words && *text) {
        if (*words == ' ' && *text == '\n')
            text += strspn(text, "\n "), words++;
        else if (*text++ != *words++)
            return false;
    }
    return !*words;
}

bool text_says(const char *text, const char *words)
{
    while (*text && !begins(text, words))
        text++;
    return *text != '\0';
}
