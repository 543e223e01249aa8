/* Integer formulas as text, "h*(2*d_k + d_v) + d_model", over named values: for shapes and claims. */
#ifndef MHA_MODELS_DESCRIBE_EXPRESSION_H
#define MHA_MODELS_DESCRIBE_EXPRESSION_H

#include "base/base.h"

enum { MHA_VALUES = 96, MHA_SYMBOL = 24, MHA_ROOTS = 64 };

/* Which symbols decide results. A root is a symbol that the caller marks with a bit of its own: one that is read from a
 * key. A product of 0, and a condition that holds or fails, depend on the first operand that decides them, and skip the
 * roots of the other one. */
typedef struct mha__trace {
    uint64_t read;               /* roots that decided results since the caller cleared this */
    uint64_t skipped[MHA_ROOTS]; /* of each root: the roots that kept a result from depending on it */
} mha__trace;

/* Named integers, and named lists of integers. */
typedef struct mha__values {
    size_t count;
    struct {
        char name[MHA_SYMBOL];
        int64_t value;       /* of a list: its length */
        uint64_t from;       /* the roots that decide it; 0: none is known */
        const int64_t *list; /* borrowed; NULL: a single number */
    } items[MHA_VALUES];
    mha__trace *trace; /* borrowed: the record of all evaluations with these values; NULL: none */
} mha__values;

/* Sets the value of a name, which may be new. false: the name is too long, or there are too many names. */
bool mha__values_set(mha__values *values, const char *name, int64_t value);
/* The same for a list, which must last as long as the values. */
bool mha__values_set_list(mha__values *values, const char *name, const int64_t *list, size_t length);
/* States the roots that decide the value of a name, until it gets another value; an unknown name is left out. */
void mha__values_mark(mha__values *values, const char *name, uint64_t from);
const int64_t *mha__values_find(const mha__values *values, const char *name); /* NULL: unknown */
int64_t mha__values_get(const mha__values *values, const char *name);         /* 0: unknown */
/* Sets the names of "d_model=512 h=8". A value may be an expression of the names before it. */
mha_status mha__values_parse(mha__values *values, const char *text, mha_error *error);

/* Evaluates in 64-bit integers: names, list[index], decimal numbers, ( ), ! - (unary), ^ (power), * / %, + -,
 * < <= > >= == !=, &&, ||. / rounds towards zero. MHA_INVALID, with the text and what was expected at
 * which character: syntax, unknown names, division by zero, results beyond 64 bits, an index outside its list. */
mha_status mha__expression_evaluate(const char *text, const mha__values *values, int64_t *result, mha_error *error);
/* Evaluates "a, b, c" into at most `capacity` results. */
mha_status mha__expression_list(const char *text, const mha__values *values, int64_t *results, size_t capacity,
                                size_t *count, mha_error *error);

#endif
