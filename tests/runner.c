/* Runs one of the test files of a folder, which are linked into this program: `tests test_NAME`, or a link to the
 * program that is called test_NAME. `tests --list` prints their names, and `tests` runs each in its own process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **test_arguments;
char **test_arguments;

/* TEST_FILES: TEST_FILE(test_a) TEST_FILE(test_b), from the makefile. */
#define TEST_FILE(name) int name##_main(void);
TEST_FILES
#undef TEST_FILE

#define TEST_FILE(name) {#name, name##_main},
static const struct test_file {
    const char *name;
    int (*run)(void);
} files[] = {TEST_FILES};

enum { FILE_COUNT = sizeof files / sizeof *files };

static const struct test_file *file_named(const char *name)
{
    for (size_t i = 0; i < FILE_COUNT; i++)
        if (strcmp(files[i].name, name) == 0)
            return &files[i];
    return NULL;
}

static int run_all(char *program)
{
    int failed = 0;
    for (size_t i = 0; i < FILE_COUNT; i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", program, files[i].name, (char *)NULL);
            _exit(127);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
            fprintf(stderr, "FAIL %s\n", files[i].name);
            failed++;
        }
    }
    printf("%d of %d test files failed\n", failed, (int)FILE_COUNT);
    return failed > 0;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const struct test_file *file = file_named(slash ? slash + 1 : argv[0]);
    if (file)
        test_arguments = argv + 1;
    else if (argc == 1)
        return run_all(argv[0]);
    else if (strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < FILE_COUNT; i++)
            puts(files[i].name);
        return 0;
    } else if ((file = file_named(argv[1])) != NULL)
        test_arguments = argv + 2;
    else {
        fprintf(stderr, "%s: no test file is called %s; --list prints all names\n", argv[0], argv[1]);
        return 2;
    }
    return file->run();
}
