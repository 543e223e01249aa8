/* Attention once more: plain loops in double, written only from the definitions.
 * Shares no code with the library; of its headers it uses only the plain structs. */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "mha/attention.h"

/* One stage: row-major values, and how far a forward with the given unit roundoff may be from each
 * (see oracle_error.h for the derivation; 0 where the value is not finite). */
typedef struct oracle_stage {
    int rank;
    size_t shape[4], elements;
    double *value, *slack;
} oracle_stage;

typedef struct oracle {
    oracle_stage stage[MHA_STAGE_COUNT];
} oracle;

/* The state outside a call: rows in the cache before it, (B, h_kv, length, d), row 0 at position `first`; and of which
 * positions the tables of its rotation were made. */
typedef struct oracle_past {
    size_t length, first;
    mha_view keys, values;
    mha_rope_origin rope_origin;
} oracle_past;

/* Computes every stage of `call`. `config` (resolved) and `weights` describe a layer; `config` NULL:
 * query, key and value are given per head. `past` may be NULL. `unit` is the unit roundoff of the
 * forward to be checked: 2^-24 or 2^-53. The call must be one the definitions give a meaning to. */
void oracle_run(const mha_config *config, const mha_view weights[MHA_WEIGHT_COUNT], const mha_call *call,
                const oracle_past *past, double unit, oracle *result);
void oracle_free(oracle *result);

/* One element of a view of F32, F64, F16, BF16, I64, BOOL or U8; missing trailing indices are not read. */
double oracle_get(const mha_view *view, size_t i0, size_t i1, size_t i2, size_t i3);

/* Whether a dropout keeps the weight of query i and key j, by their places in the stage weights. */
bool oracle_keeps(const mha_softmax *s, size_t b, size_t head, size_t i, size_t j);

#endif
