/* The keys of one query under one head, one by one, in the oracle with bugs. */
#ifndef TEST_ORACLE_ROW_H
#define TEST_ORACLE_ROW_H

#include "support/oracle_run.h"

enum { ORACLE_KEYS = 512 };

typedef struct oracle_row {
    size_t n, real; /* the real ones first */
    double *s;      /* scores; -inf: hidden */
    bool *dropped;  /* its weight is set to 0 later */
    double *w, lse;
} oracle_row;

/* Weights out of scores; then the weighted values, and the weights and lse that are kept. */
void oracle_soften(const run *r, size_t b, size_t head, size_t i, oracle_row *x);
void oracle_weigh(run *r, size_t b, size_t head, size_t i, const oracle_row *x, number *heads);
/* Number of keys after n that pad the last tile and that no rule hides from a query. */
size_t oracle_padded(const run *r, size_t b, size_t i, size_t n);

#endif
