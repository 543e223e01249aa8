/* Transcripts say what the program says: those of tests/cli/transcripts and of the project's prose, or those of files
 * that the command line names. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "support/transcript.h"
#include "support/unit.h"

enum { MOST_FILES = 60 };
static const char folder[] = "tests/cli/transcripts/";

/* People read the project's prose: there an exit code of 1 is not said. */
static void the_program_says_it(void **state)
{
    const char *file = *state;
    assert_true(transcript_check(file, strncmp(file, folder, sizeof folder - 1) != 0) > 0);
}

int main(int argc, char **argv)
{
    glob_t found = {.gl_offs = 2};
    static char readme[] = "README.md", weights[] = "weights/README.md";
    char **files = argv + 1;
    size_t n = (size_t)argc - 1;
    struct CMUnitTest tests[MOST_FILES];
    if (n == 0) {
        if (glob("tests/cli/transcripts/*.md", GLOB_DOOFFS, NULL, &found) != 0)
            return EXIT_FAILURE;
        found.gl_pathv[0] = readme, found.gl_pathv[1] = weights;
        files = found.gl_pathv, n = found.gl_pathc + 2;
    }
    if (n > MOST_FILES)
        return EXIT_FAILURE;
    for (size_t i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){files[i], the_program_says_it, NULL, NULL, files[i]};
    return _cmocka_run_group_tests("transcripts", tests, n, NULL, NULL);
}
