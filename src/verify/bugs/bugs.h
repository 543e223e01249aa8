/* The list of known bugs: the change of each in a program, and the way to find its numbers. */
#ifndef MHA_VERIFY_BUGS_BUGS_H
#define MHA_VERIFY_BUGS_BUGS_H

#include "verify/engine/program.h"

/* Ways to find the numbers of a bug. */
enum {
    SOLVE_NOTHING,   /* the bug has none */
    SOLVE_LISTED,    /* a number of a list */
    SOLVE_BY_BATCH,  /* a number of a list for each batch row */
    SOLVE_REAL,      /* a real number between two others of the same sign */
    SOLVE_SIGNED,    /* a number of SOLVE_REAL, or its negative */
    SOLVE_STEPPED,   /* a real number; the result is piecewise constant in it */
    SOLVE_FREE,      /* a real number; near 0 it has almost no effect */
    SOLVE_BY_HEAD,   /* a real number for each query head */
    SOLVE_HEADS,     /* for each query head: the head that replaces it */
    SOLVE_Q_HEADS,   /* for each query head: the head whose queries it has */
    SOLVE_BY_HEADS,  /* for each query head its scale, then for each its factor */
    SOLVE_KV_HEADS,  /* for each query head: the key/value head that it reads */
    SOLVE_BATCHES,   /* for each batch row: the batch row that replaces it */
    SOLVE_KEYS,      /* for each key of each batch row: 0 hides it, 1 does not */
    SOLVE_COUNTS,    /* for each key of each batch row: how often it counts */
    SOLVE_VALUES,    /* for each row of v of each batch row: the row that replaces it */
    SOLVE_KEY_ROWS,  /* for each row of k, or of k and v, that different queries see: the row that replaces it */
    SOLVE_QUERIES,   /* for each row of q: the row that replaces it */
    SOLVE_WRITTEN,   /* for each row of the output: the row that replaces it */
    SOLVE_FACTORS,   /* for each query head: its factor */
    SOLVE_COLUMNS,   /* for each column of the merged heads: the column that replaces it */
    SOLVE_UNWRITTEN, /* the index from which on the tensor is 0 */
    SOLVE_BLOCKS,    /* for each head of each batch row: the one that replaces it */
    SOLVE_KV_BLOCKS, /* the same of key/value heads */
    SOLVE_BIASES,    /* b_Q, b_K, b_V, b_O */
    SOLVE_NORMS,     /* for each feature of q, of k: its weight */
    SOLVE_DROPPED    /* p; then for each weight (B, h, T_q, S'): 0 drops it, 1 does not */
};

typedef struct mha__bug_entry {
    mha_bug shown;
    /* Changes the program; returns false if the bug does not apply to the case. Numbers x must live as long as the
     * program. */
    bool (*apply)(const mha_case *c, mha__program *k, const double *x);
    bool is_paired;                                             /* the diagnosis tries it in pairs, too */
    int how;                                                    /* SOLVE_... */
    double low, high;                                           /* bounds of SOLVE_REAL, ... _BY_HEAD */
    bool (*choice)(const mha_case *c, size_t index, double *x); /* of SOLVE_LISTED; false past the end */
} mha__bug_entry;

/* The bug at an index of the list; NULL if it has no numbers. */
const mha__bug_entry *mha__solved_entry_at(size_t index);
size_t mha__solved_count(const mha_case *c, const mha__bug_entry *e); /* count of its numbers */
/* Writes its numbers x as text, as many as fit, in the form that mha__numbers_read reads. */
void mha__numbers_say(const mha_case *c, const mha__bug_entry *e, const double *x, char *text, size_t size);
/* MHA_UNSUPPORTED: no text. MHA_INVALID: a text of another form. */
mha_status mha__numbers_read(const mha_case *c, const mha__bug_entry *e, const char *text, double *x, mha_error *error);
/* Applies one bug to a program; `numbers`: NULL if it has none. Returns false if it does not apply. */
bool mha__bug_apply(const mha_case *c, size_t index, const double *numbers, mha__program *program);
/* True if the diagnosis tries bug `index` in pairs, too: only common bugs. */
bool mha__bug_is_paired(size_t index);
/* Writes the program of a case with up to two bugs without numbers, by index (-1: none); false if they do not apply. */
bool mha__bugs_apply(const mha_case *c, int a, int b, mha__program *program);
/* True if up to two such bugs change a slice of a case as they change that part of the whole case: they look at one
 * head, and make the same change. */
bool mha__bugs_by_head(const mha_case *whole, const mha_case *slice, int a, int b);
/* Changes without a name (changes.c), by index, of any case. Puts one into a program of the case, and writes what it is
 * to `text` (NULL: not); false if it does not apply. `memory`: numbers of the program, of that room. */
size_t mha__unnamed_count(void);
size_t mha__unnamed_room(const mha_case *c);
bool mha__unnamed_apply(const mha_case *c, size_t index, double *memory, mha__program *program, char *text,
                        size_t size);
/* Ways to read n elements, by index: writes to `from` the element that is read for each (n: none, a zero), and says how
 * of a `unit`, "row"; false: none, or each its own. */
size_t mha__reading_count(void);
bool mha__reading(size_t index, size_t n, const char *unit, size_t *from, char *text, size_t size);
#define MHA__UNNAMED "unnamed" /* the name of all of them */
/* True if the case has few enough weights to state for each that dropout drops it. */
bool mha__case_can_drop(const mha_case *c);

#endif
