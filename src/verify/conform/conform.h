/* The suite's tables and what a test case is made of. */
#ifndef MHA_VERIFY_CONFORM_H
#define MHA_VERIFY_CONFORM_H

#include "base/arena.h"
#include "base/base.h"
#include "mha/conform.h"

/* ---------------------------------------------------------------- tables */

typedef struct mha__conform_shape {
    mha_conform_level level;
    size_t B, h, h_kv, T_q, T_k, d_k, d_v;
} mha__conform_shape;

/* Test cases that ask the same of tensors of several shapes. */
typedef struct mha__conform_family {
    const char *name, *regime, *settings;
    size_t count;
    const mha__conform_shape *shapes;
} mha__conform_family;

extern const mha__conform_family mha__conform_families[];
extern const size_t mha__conform_family_count;

/* The next of the words of `text` that blanks divide: "name" or "name=value"; false after the last. */
bool mha__conform_token(const char **text, char name[48], char value[48]);

/* ---------------------------------------------------------------- numbers */

/* One number of an input. */
typedef struct mha__conform_element {
    int tensor;               /* 0, 1, 2, 3: q, k, v, the gradient of the output */
    size_t b, t, head, i;     /* batch row, row, head, feature */
    size_t T, d;              /* rows and features of the tensor */
    double n;                 /* a random number about 0, with a standard deviation of 1 and at most 3 */
    mha_dtype dtype;          /* the type to which it is rounded */
} mha__conform_element;

typedef struct mha__conform_regime {
    mha_conform_word word;
    double (*element)(const mha__conform_element *e);
    double hidden; /* what rows of values, and unless it is NaN of keys, hold that lengths or padding hide; 0: nothing
                    * of their own */
} mha__conform_regime;

const mha__conform_regime *mha__conform_regime_of(const char *name); /* NULL: none */

/* ---------------------------------------------------------------- a test case */

/* How inputs lie: side by side; each in its own way; all heads of q, k and v as parts of longer rows; q alone
 * in its own way; from the second element of their memory on. */
typedef enum mha__conform_strides {
    MHA__TOGETHER = 0,
    MHA__APART,
    MHA__PACKED,
    MHA__QUERY_APART,
    MHA__SHIFTED
} mha__conform_strides;

struct mha_test_case {
    mha__arena pool;
    mha_conform_row row;
    uint64_t seed; /* of its random numbers: from its name */
    const mha__conform_regime *regime;
    mha_dtype dtype;
    mha_conform_choices choices;
    mha_call call;
    mha_view weights[MHA_WEIGHT_COUNT];
    mha_view past[2];                 /* keys and values, (B, h_kv, P, d) */
    bool lse;                         /* asked for */
    bool backward;                    /* gradients are asked for */
    mha_view d_output;                /* which they begin with */
    mha__conform_strides strided;     /* how inputs are placed in memory of NaN */
    size_t page_size;                 /* of keys and values in pages; 0: they are in none */
    const char *bugs[MHA_CONFORM_CONVENTIONS]; /* by which choices differ that no setting says */
    size_t bug_count;
    bool differs[MHA_CONFORM_CONVENTIONS];
    mha_test_result exact; /* when it has been computed */
};

/* MHA_NO_MEMORY, said of a test case. */
mha_status mha__conform_no_memory(const mha_test_case *q, mha_error *error);

/* A random number about 0 of a stream of the test case, with a standard deviation of 1 and at most 3: a multiple of
 * 2^-20. Streams 0 to 15 are those of inputs. */
double mha__conform_random(const mha_test_case *q, uint64_t stream, uint64_t i);

/* Makes all of test case `index` but its inputs. */
mha_status mha__conform_begin(mha_test_case *q, size_t index, mha_error *error);

/* Applies a word of a test case's settings: a setting, an array that a setting points to, weights, a cache. False
 * without memory; a word that is none is a bug in the table, and also false. */
bool mha__conform_set(mha_test_case *q, const char *name, const char *value);
/* How many rows a test case's settings put into the cache. */
size_t mha__conform_past(const char *settings);

/* Whether key t of batch row b is hidden from every query by lengths or padding. */
bool mha__conform_hidden(const mha_test_case *q, size_t b, size_t t);

/* Writes the words of what a kernel needs into row->has. */
void mha__conform_needs(mha_conform_row *row);

/* Finds the conventions that matter to a test case, and makes of it what its choices say. */
mha_status mha__conform_read(mha_test_case *q, mha_error *error);

#endif
