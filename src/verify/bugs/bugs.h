/* The list of known bugs: what each changes in a program, and how its numbers are found. */
#ifndef MHA_VERIFY_BUGS_BUGS_H
#define MHA_VERIFY_BUGS_BUGS_H

#include "verify/engine/program.h"

/* How the numbers of a bug are found. */
enum {
    SOLVE_NOTHING,   /* it has none */
    SOLVE_LISTED,    /* one of a list */
    SOLVE_BY_BATCH,  /* one of a list for each batch row */
    SOLVE_REAL,      /* any between two others of the same sign */
    SOLVE_SIGNED,    /* the same, or its negative */
    SOLVE_STEPPED,   /* any, between which the result changes in steps alone */
    SOLVE_FREE,      /* any, of which 0 or a little more changes little */
    SOLVE_BY_HEAD,   /* the same for each query head */
    SOLVE_HEADS,     /* one for each query head: which head stands in its place */
    SOLVE_Q_HEADS,   /* one for each query head: which head's queries it has */
    SOLVE_KV_HEADS,  /* one for each query head: which key/value head it reads */
    SOLVE_BATCHES,   /* one for each batch row: which batch row stands in its place */
    SOLVE_KEYS,      /* one for each key of each batch row: 0 hides it, 1 does not */
    SOLVE_VALUES,    /* one for each row of v of each batch row: which row stands in its place */
    SOLVE_KEY_ROWS,  /* the same for each row of k, or of k and v, that different queries see */
    SOLVE_QUERIES,   /* the same for each row of q */
    SOLVE_WRITTEN,   /* and for each row of the output */
    SOLVE_FACTORS,   /* one for each query head: what it is multiplied by */
    SOLVE_COLUMNS,   /* one for each column of the merged heads: which column stands in its place */
    SOLVE_UNWRITTEN, /* from which on the tensor is 0 */
    SOLVE_DROPPED    /* p; then one for each weight (B, h, T_q, S'): 0 drops it, 1 does not */
};

typedef struct mha__bug_entry {
    mha_bug shown;
    /* Changes the program; false when the bug does not apply to the case. The numbers x, where it has some, must live
     * as long as the program. */
    bool (*apply)(const mha_case *c, mha__program *k, const double *x);
    bool is_paired;                                             /* the diagnosis tries it in pairs, too */
    int how;                                                    /* its numbers are found */
    double low, high;                                           /* of SOLVE_REAL, ... _BY_HEAD */
    bool (*choice)(const mha_case *c, size_t index, double *x); /* of SOLVE_LISTED; false past the end */
} mha__bug_entry;

/* The bug at an index of the one list as one with a number; NULL when it has none. */
const mha__bug_entry *mha__solved_entry_at(size_t index);
size_t mha__solved_count(const mha_case *c, const mha__bug_entry *e); /* how many numbers it has */
/* Writes its numbers x, as many as have room, in the words that mha__numbers_read reads. */
void mha__numbers_say(const mha_case *c, const mha__bug_entry *e, const double *x, char *text, size_t size);
/* MHA_UNSUPPORTED: there is no text. MHA_INVALID: it is something else. */
mha_status mha__numbers_read(const mha_case *c, const mha__bug_entry *e, const char *text, double *x, mha_error *error);
/* Changes the program to that of one bug; `numbers`: of a bug that has some. False when it does not apply. */
bool mha__bug_apply(const mha_case *c, size_t index, const double *numbers, mha__program *program);
/* Whether the diagnosis tries the bug `index` in pairs, too: it leaves that to the more usual ones. */
bool mha__bug_is_paired(size_t index);
/* The program of the case with up to two bugs without numbers, given by index (-1: none); false when the bugs do not
 * apply. */
bool mha__bugs_apply(const mha_case *c, int a, int b, mha__program *program);
/* Whether up to two bugs, as those above, make of a slice of a case what they make of its part of the whole: they
 * look at one head, and change it alike. */
bool mha__bugs_by_head(const mha_case *whole, const mha_case *slice, int a, int b);
/* Whether it can be said of each weight that it is dropped: there are not too many. */
bool mha__case_can_drop(const mha_case *c);

#endif
