/* The project's prose is true: commands and Python of README, of weights/README and of every page of the manual, or of
 * the pages that $MANUAL_PAGES names. */
#include <ftw.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/program.h"
#include "support/scratch.h"
#include "support/transcript.h"
#include "support/unit.h"

enum { MOST_PAGES = 60 };

static char root[PATH_MAX], build[PATH_MAX];
static const char *pages[MOST_PAGES] = {"README.md", "weights/README.md"};
static size_t page_count = 2;

static int add_page(const char *path, const struct stat *status, int kind)
{
    (void)status;
    if (kind == FTW_F && strcmp(path + strlen(path) - 3, ".md") == 0) {
        assert_true(page_count < MOST_PAGES);
        assert_non_null(pages[page_count++] = strdup(path));
    }
    return 0;
}

static char *joined(const char *folder, const char *name)
{
    static char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A folder of its own for each page, in which the weights lie as in a clone. */
static void everything_on_the_page_is_so(void **state)
{
    const char *page = *state;
    assert_int_equal(chdir(root), 0);
    size_t size;
    char *text = (char *)scratch_read(page, &size);
    const bool needs_python = strstr(text, "```python\n") || strstr(text, "    $ python3 ");
    if (strcmp(page, "README.md") == 0 && strstr(text, "..."))
        fail_msg("README.md shows whole output, without \"...\"");
    free(text);
    if (needs_python && system("python3 -c 'import mha' 2>/dev/null") != 0)
        skip_because("python3 with numpy and mha runs the examples of %s", page);
    char folder[] = "/tmp/mha-manual-XXXXXX", file[2 * PATH_MAX];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s", joined(root, page));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(symlink(joined(root, "weights"), "weights"), 0);
    transcript_check(file);
    assert_int_equal(chdir(root), 0);
    program_result r = program_run_other((const char *const[]){"rm", "-rf", folder, NULL});
    program_free(&r);
}

int main(void)
{
    struct CMUnitTest tests[MOST_PAGES] = {{0}};
    const char *program = getenv("MHA_PROGRAM");
    char of_build[PATH_MAX];
    if (!getcwd(root, sizeof root) || !realpath(program && *program ? program : "build/mha", of_build) ||
        ftw("src/manual", add_page, 8) != 0)
        return EXIT_FAILURE;
    char *only = getenv("MANUAL_PAGES");
    if (only)
        page_count = 0;
    for (const char *page = only ? strtok(only, " ") : NULL; page && page_count < MOST_PAGES; page = strtok(NULL, " "))
        pages[page_count++] = page;
    setenv("MHA_PROGRAM", of_build, 1);
    snprintf(build, sizeof build, "%s", dirname(of_build));
    setenv("PYTHONPATH", joined(build, "python"), 1);
    setenv("MHA_LIBRARY", joined(build, "libmha.so"), 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    for (size_t i = 0; i < page_count; i++)
        tests[i] = (struct CMUnitTest){pages[i], everything_on_the_page_is_so, NULL, NULL, (void *)(uintptr_t)pages[i]};
    return cmocka_run_group_tests_name("the manual", tests, NULL, scratch_remove);
}
