/* Transcripts say what the program says: those of tests/cli/transcripts, or of files that the command line names. */
#include <glob.h>
#include <stdlib.h>

#include "support/scratch.h"
#include "support/transcript.h"
#include "support/unit.h"

enum { MOST_FILES = 60 };

/* No transcript reads what another one wrote. */
static void the_program_says_it(void **state)
{
    scratch_empty();
    assert_true(transcript_check(*state) > 0);
}

int main(void)
{
    glob_t found;
    char **files = test_arguments;
    size_t n = 0;
    struct CMUnitTest tests[MOST_FILES];
    while (files[n])
        n++;
    if (n == 0) {
        if (glob("tests/cli/transcripts/*.md", 0, NULL, &found) != 0)
            return EXIT_FAILURE;
        files = found.gl_pathv, n = found.gl_pathc;
    }
    if (n > MOST_FILES)
        return EXIT_FAILURE;
    for (size_t i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){files[i], the_program_says_it, NULL, NULL, files[i]};
    return _cmocka_run_group_tests("transcripts", tests, n, NULL, NULL);
}
