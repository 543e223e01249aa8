/* Transcripts in prose say what the program says. "    $ mha ..." is run; each line behind it, up to one that is not
 * indented, is found in the output, in that order. "..." stands for any lines, or for the rest of one; blanks for
 * blanks; "? 2" for the exit code, which otherwise may be 0 or 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { MOST_WORDS = 30, LINE = 400 };
static const char indent[] = "    ", command[] = "    $ mha ";

/* Copies a line with one blank for several, and none at its ends. */
static void copy_plain(char to[LINE], const char *from, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < LINE; i++)
        if (from[i] != ' ')
            to[n++] = from[i];
        else if (n > 0 && to[n - 1] != ' ')
            to[n++] = ' ';
    to[n - (n > 0 && to[n - 1] == ' ')] = '\0';
}

/* The output behind the first line that is as expected; NULL without one. */
static const char *behind_line(const char *output, const char *expected)
{
    const size_t length = strlen(expected);
    const bool begins = length >= 3 && strcmp(expected + length - 3, "...") == 0;
    for (char line[LINE]; *output; output += *output == '\n') {
        const size_t n = strcspn(output, "\n");
        copy_plain(line, output, n);
        output += n;
        if (begins ? strncmp(line, expected, length - 3) == 0 : strcmp(line, expected) == 0)
            return output;
    }
    return NULL;
}

static program_result run_line(char *line)
{
    const char *args[MOST_WORDS] = {NULL};
    size_t n = 0;
    for (char *word = strtok(line, " "); word && n + 1 < MOST_WORDS; word = strtok(NULL, " "))
        args[n++] = word;
    return program_run(args);
}

/* Runs the command at `at`; returns what follows its lines. */
static char *check_transcript(const char *file, char *at)
{
    char said[LINE], expected[LINE];
    const size_t length = strcspn(at, "\n");
    snprintf(said, sizeof said, "%.*s", (int)(length - sizeof command + 1), at + sizeof command - 1);
    char words[LINE];
    snprintf(words, sizeof words, "%s", said);
    program_result r = run_line(words);
    int code = r.code < 2 ? r.code : 0;
    const char *output = r.out;
    for (at += length + 1; strncmp(at, indent, 4) == 0 || *at == '\n'; at += strcspn(at, "\n") + 1) {
        if (strncmp(at, command, sizeof command - 1) == 0)
            break;
        copy_plain(expected, at, strcspn(at, "\n"));
        if (*expected == '?')
            code = atoi(expected + 1);
        else if (*expected && strcmp(expected, "...") != 0 && !(output = behind_line(output, expected)))
            fail_msg("%s: mha %s does not say \"%s\", in this order, but:\n%s%s", file, said, expected, r.out, r.err);
    }
    if (r.code != code)
        fail_msg("%s: mha %s: exit code %d, expected %d", file, said, r.code, code);
    program_free(&r);
    return at;
}

static void check_file(const char *file, size_t least)
{
    size_t size, count = 0;
    char *text = (char *)scratch_read(file, &size);
    text = realloc(text, size + 1);
    assert_non_null(text);
    text[size] = '\0';
    for (char *at = text; (at = strstr(at, command)) != NULL; count++)
        at = check_transcript(file, at);
    assert_true(count >= least);
    free(text);
}

static void readme_shows_what_the_program_says(void **state)
{
    (void)state;
    check_file("README.md", 4);
}

static void so_does_the_page_about_weights(void **state)
{
    (void)state;
    check_file("weights/README.md", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readme_shows_what_the_program_says),
        cmocka_unit_test(so_does_the_page_about_weights),
    };
    return cmocka_run_group_tests_name("transcripts", tests, NULL, scratch_remove);
}
