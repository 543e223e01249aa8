/* Between the two halves of a dialect: what the bench holds. */
#ifndef MHA_VERIFY_DIAGNOSE_VARIANT_INPUTS_H
#define MHA_VERIFY_DIAGNOSE_VARIANT_INPUTS_H

#include "verify/diagnose/variant_forward.h"

/* What decides x W for one of q, k, v. Compared bytewise. */
typedef struct dialect_part {
    int which, source, packing, round_weights, round_inputs, transposed[3];
} dialect_part;

/* (B, T, h*d) of one part. */
typedef struct dialect_memo {
    dialect_part part;
    double *rows;
} dialect_memo;

enum { DIALECT_MEMOS = 96, DIALECT_MEMO_ELEMENTS = 1 << 25 };

struct mha__dialect_bench {
    const mha_case *c;
    mha__arena pool;
    bool starved; /* an allocation failed */
    size_t S;     /* cached and new keys */
    double *x[ROUNDINGS][3]; /* inputs, (B, T, E) */
    double *W[ROUNDINGS][DIALECT_WEIGHTS], *b[ROUNDINGS][DIALECT_WEIGHTS];
    size_t in[DIALECT_WEIGHTS], out[DIALECT_WEIGHTS]; /* rows and columns of the W */
    size_t T[3], h[3], d[3];                          /* of q, k, v */
    double *norm[2];
    size_t norm_terms[2];
    double *past[2], *bias_kv[2], *sinks;
    double *W_effective, *b_effective, *rows[3];
    unsigned char *skipped; /* query rows that mha__dialect_run may leave out */
    dialect_memo memo[DIALECT_MEMOS]; /* projections, which take longest */
    size_t memos, memo_size, oldest;

    /* Of one batch row. */
    double *split[3];           /* q, k, v: (T, h, d), rotated */
    double *keys, *values;      /* (S', h_kv, d), extra rows last */
    double *scores;             /* (h, T_q, S') */
    unsigned char *visible;     /* the same */
    double *heads, *merged;     /* (T_q, h, d_v), (T_q, h*d_v) */
    double *lse;                /* (h, T_q) */
};

double *mha__dialect_take(mha__dialect_bench *w, size_t n);
/* Fills w->split for batch row b; rows[i] are q, k, v before heads are split. */
void mha__dialect_rows(mha__dialect_bench *w, const mha__dialect *d, size_t b, const double *rows[3]);
/* y = x W + b (NULL: none) for T rows of `in` and `width` elements. */
void mha__dialect_multiply(const double *x, size_t T, size_t in, const double *W, const double *b, size_t width,
                          double *y);
/* Where element (t, head, f) lies in a (T, h*d) row block. */
size_t mha__dialect_column(int heads, size_t T, size_t h, size_t d, size_t t, size_t head, size_t f);
/* The position of query row 0 as the case has it. */
int64_t mha__dialect_offset(const mha_case *c, size_t b);

#endif
