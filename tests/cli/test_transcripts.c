/* Transcripts say what the program says: those of tests/cli/transcripts, and those of the project's prose. */
#include <glob.h>
#include <stdlib.h>

#include "support/program.h"
#include "support/transcript.h"
#include "support/unit.h"

enum { MOST_FILES = 40 };

/* People read these: what may differ from the exit code 0 is not said. */
static void prose_shows_what_the_program_says(void **state)
{
    (void)state;
    assert_true(transcript_check("README.md", 1) >= 4);
    assert_true(transcript_check("weights/README.md", 1) >= 2);
}

static void the_program_says(void **state)
{
    assert_true(transcript_check(*state, 0) > 0);
}

int main(void)
{
    glob_t files;
    struct CMUnitTest tests[MOST_FILES + 1] = {cmocka_unit_test(prose_shows_what_the_program_says)};
    if (glob("tests/cli/transcripts/*.md", 0, NULL, &files) != 0 || files.gl_pathc > MOST_FILES)
        return EXIT_FAILURE;
    for (size_t i = 0; i < files.gl_pathc; i++)
        tests[i + 1] = (struct CMUnitTest){files.gl_pathv[i], the_program_says, NULL, NULL, files.gl_pathv[i]};
    const int failed = cmocka_run_group_tests_name("transcripts", tests, NULL, scratch_remove);
    globfree(&files);
    return failed;
}
