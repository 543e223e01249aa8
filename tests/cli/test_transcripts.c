/* Transcripts say what the program says: those of tests/cli/transcripts. */
#include <glob.h>
#include <stdlib.h>

#include "support/program.h"
#include "support/transcript.h"
#include "support/unit.h"

enum { MOST_FILES = 40 };

static void the_program_says(void **state)
{
    assert_true(transcript_check(*state, 0) > 0);
}

int main(void)
{
    glob_t files;
    struct CMUnitTest tests[MOST_FILES] = {{0}};
    if (glob("tests/cli/transcripts/*.md", 0, NULL, &files) != 0 || files.gl_pathc > MOST_FILES)
        return EXIT_FAILURE;
    for (size_t i = 0; i < files.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){files.gl_pathv[i], the_program_says, NULL, NULL, files.gl_pathv[i]};
    const int failed = cmocka_run_group_tests_name("transcripts", tests, NULL, scratch_remove);
    globfree(&files);
    return failed;
}
