/* What the two halves of mha conform share: which questions are asked, where their files lie, what answers are. */
#ifndef MHA_CLI_COMMANDS_CONFORM_ASKING_H
#define MHA_CLI_COMMANDS_CONFORM_ASKING_H

#include "cli/options.h"
#include "cli/output/print.h"
#include "mha/conform.h"

/* Which questions: of a level and those before it, that need no more than `has`; those whose inputs a file cannot hold
 * are left out where files are meant. */
typedef struct asking {
    mha_conform_level level;
    mha_dtype dtype;
    const char *has;  /* words with blanks or commas between; NULL: everything */
    const char *only; /* text in the names of questions; NULL: all */
    mha_conform_readings readings;
    bool declared[MHA_CONFORM_DIALECTS]; /* readings that are given */
} asking;

/* Reads --level, --dtype, --has, --only and --dialect. Returns 0, or the exit code after one line. */
int asking_read(const arguments *args, asking *a);
bool asks(const asking *a, const mha_conform_row *row, bool files);
/* Declares readings, "empty=nan,window=w", as they stand in --dialect or in an index. */
mha_status asking_declare(asking *a, const char *text, mha_error *error);
/* The readings that are declared, as asking_declare reads them; must be freed. */
char *asking_declared(const asking *a);

/* Says what the system says of a path. Returns EXIT_REQUEST where another path would help, else EXIT_MACHINE. */
int refuse_errno(const char *path, int why);

/* What is said of one question. */
typedef struct answered {
    size_t index;
    mha_conform_row row;
    mha_outcome outcome; /* skipped: there is no answer */
    bool judged;         /* `verdict` has its stages */
    mha_verdict verdict;
    char *reason;        /* why it failed; NULL: it did not */
    json_t *variants;    /* names of what reproduces it */
    char *diagnosis;     /* the same in a sentence, or a clue; NULL: none was made */
} answered;

/* All that is said. */
typedef struct answers {
    asking asked;
    bool found[MHA_CONFORM_DIALECTS]; /* a probe told the reading */
    size_t n, count[3];               /* questions; by outcome */
    answered *rows;
} answers;

void answers_free(answers *a);
/* The report: text, --json, and --junit. Returns the exit code. */
int answers_report(const answers *a, const arguments *args);

/* mha conform --judge: reads the index and the answers of a folder, judges and diagnoses them. */
int judge_answers(const arguments *args, const char *folder, answers *a);

#endif
