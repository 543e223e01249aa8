/* Shared by the two halves of mha conform: the test cases, the places of their files, the results. */
#ifndef MHA_CLI_COMMANDS_CONFORM_ASKING_H
#define MHA_CLI_COMMANDS_CONFORM_ASKING_H

#include "cli/commands/commands.h"

/* Which test cases: of a level and those before it, that need no more than `has`; those whose inputs a file cannot hold
 * are left out where files are meant. */
typedef struct asking {
    mha_conform_level level;
    mha_dtype dtype;
    const char *has;  /* words with blanks or commas between; NULL: everything */
    const char *only; /* text in the names of test cases; NULL: all */
    mha_conform_choices choices;
    bool declared[MHA_CONFORM_CONVENTIONS]; /* choices that are given */
} asking;

/* Reads --level, --dtype, --has, --only and --convention. Returns 0, or the exit code after one line. */
int asking_read(const arguments *args, asking *a);
bool asks(const asking *a, const mha_conform_row *row, bool files);
/* Declares choices, "empty=nan,window=w", as they stand in --convention or in an index. */
mha_status asking_declare(asking *a, const char *text, mha_error *error);
/* The choices that are declared, as asking_declare reads them. */
const char *asking_declared(const asking *a);

/* The report of one test case. */
typedef struct tested {
    size_t index;
    mha_conform_row row;
    mha_outcome outcome; /* skipped: there is no result */
    bool checked;        /* `verdict` has its stages */
    mha_verdict verdict;
    const char *reason;  /* why it failed; NULL: it did not */
    json_t *bugs;        /* names of what reproduces it */
    const char *diagnosis; /* the same in a sentence, or a clue; NULL: none was made */
} tested;

/* All that is said. */
typedef struct results {
    asking asked;
    bool found[MHA_CONFORM_CONVENTIONS]; /* a probe told the choice */
    size_t n, count[3];                  /* test cases; by outcome */
    tested *rows;
} results;

/* The report: text, --json, and --junit. Returns the exit code. */
int results_report(const results *a, const arguments *args);

/* mha conform --check: reads the index and the results of a folder, checks and diagnoses them. */
int check_results(const arguments *args, const char *folder, results *a);

#endif
