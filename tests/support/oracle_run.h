/* One run of the oracle, shared by its two halves: rows (oracle.c) and attention (oracle_attend.c). */
#ifndef TEST_ORACLE_RUN_H
#define TEST_ORACLE_RUN_H

#include <math.h>

#include "support/oracle.h"
#include "support/oracle_error.h"

/* A value and how far a rounded computation may be from it. */
typedef struct number {
    double v, e;
} number;

/* How q or k is normalised: `span` neighbours together (0: not at all), with as many weights and biases or with one for
 * each feature of a row; NULL: none. */
typedef struct oracle_norm {
    size_t span, weights;
    double *weight, *bias;
} oracle_norm;

typedef struct run {
    const mha_call *call;
    const mha_semantics *s;
    const oracle_past *past;
    size_t B, T_q, T_k;        /* sequences, longest lengths */
    size_t rows_q, rows_k;     /* packed rows of the inputs */
    size_t h, h_kv, d_k, d_v, d_out;
    size_t P, first, S, extra; /* cached rows, position of row 0, longest key length, extra rows */
    double u;
    oracle_norm norm[2];       /* of q and k */
    mha_view bias_k, bias_v, sinks;
    number *q, *k, *v, *q_rot, *k_rot;  /* (rows, width) */
    number *keys, *values;              /* (B, h_kv, S + extra, d) */
    const mha_view *weights;            /* MHA_WEIGHT_COUNT of them */
    oracle *out;
} run;

/* Where q, k and v may be limited. */
enum { ORACLE_BEFORE_BIAS, ORACLE_PROJECTED, ORACLE_NORMED, ORACLE_ROTATED };

/* Possible mistakes, step by step; a step that is NULL is correct. */
typedef struct oracle_bug {
    void (*inputs)(mha_call *call, bool cached); /* gives other inputs */
    void (*reads)(const run *r, mha_view *w); /* gives other weights */
    void (*says)(const run *r, mha_semantics *s); /* gives other semantics */
    bool (*clips)(const run *r, int which, int place); /* whether q, k, v (0, 1, 2) are limited at a place */
    void (*projected)(run *r);              /* changes q, k, v */
    void (*split)(run *r);                  /* changes them once more, when they have been kept */
    void (*turned)(run *r);                 /* changes q_rot, k_rot */
    void (*gathered)(run *r);               /* changes keys, values */
    /* computes query i of a head, and its log-sum-exp */
    void (*attend)(run *r, size_t b, size_t head, size_t i, number *heads);
    void (*merged)(run *r, number *heads);  /* changes the heads (rows_q, h*d_v) */
    void (*gated)(run *r, number *heads);   /* changes them once more, after their gate */
    void (*finished)(run *r, const number *heads, oracle_stage *output);
} oracle_bug;

/* The mistakes of the next runs; NULL: none. */
extern const oracle_bug *oracle_wrong;

/* Where q, k or v (0, 1, 2) are rightly limited; whether they are at a place, as the bugs say. */
int oracle_clip_place(const run *r, int which);
bool oracle_clips(const run *r, int which, int place);

/* Whether query i is padding; whether the pattern of the call hides key j from it. */
bool oracle_pads(const run *r, size_t b, size_t i);
bool oracle_pattern_hides(const run *r, size_t b, size_t head, size_t i, size_t j);

/* Where row t of sequence b stands, and the cosine and sine of angle i there. */
double oracle_position(const run *r, size_t b, size_t t, bool key);
void oracle_angle(const run *r, size_t b, size_t t, double position, size_t i, size_t dim, double *c, double *s,
                  double *off);

static inline bool ragged(const run *r)
{
    return r->s->place.n_sequences > 0;
}

static inline const int64_t *cu_k(const run *r)
{
    return r->s->place.cu_seqlens_k ? r->s->place.cu_seqlens_k : r->s->place.cu_seqlens_q;
}

static inline size_t queries_of(const run *r, size_t b)
{
    return ragged(r) ? (size_t)(r->s->place.cu_seqlens_q[b + 1] - r->s->place.cu_seqlens_q[b]) : r->T_q;
}

static inline size_t new_keys_of(const run *r, size_t b)
{
    return ragged(r) ? (size_t)(cu_k(r)[b + 1] - cu_k(r)[b]) : r->T_k;
}

static inline size_t keys_of(const run *r, size_t b)
{
    return r->P + new_keys_of(r, b);
}

static inline size_t query_row(const run *r, size_t b, size_t i)
{
    return ragged(r) ? (size_t)r->s->place.cu_seqlens_q[b] + i : b * r->T_q + i;
}

static inline size_t key_row(const run *r, size_t b, size_t j)
{
    return ragged(r) ? (size_t)cu_k(r)[b] + j : b * r->T_k + j;
}

/* A number computed through sums of that size: if they exceed the largest number of the format, it may be anything,
 * infinity and NaN included. */
static inline number limited(const run *r, double v, double size, double e)
{
    bool lost = !(size + e <= oracle_largest(r->u) / 4);
    return (number){v, !isfinite(v) ? 0 : lost ? (double)INFINITY : e};
}

static inline void put(oracle_stage *s, size_t at, number x)
{
    s->value[at] = x.v;
    s->slack[at] = isfinite(x.v) ? x.e : 0;
}

static inline double offset_of(const run *r, size_t b)
{
    const mha_semantics *s = r->s;
    return s->place.position_offset ? (double)s->place.position_offset[b]
           : s->place.has_offset    ? (double)s->place.offset
                              : (double)(r->first + r->P);
}

/* The logits, weights and seen keys of one query at a time. */
typedef struct attended {
    number *logit, *weight; /* n of them */
    bool *seen, *kept;
    size_t n;
    number lse;
} attended;

/* oracle_bias.c: the row of a table of n rows for a query at p and a key at q. */
size_t oracle_bias_row(const mha_bias *bias, size_t n, double p, double q);
size_t oracle_relative_row(const mha_relative *relative, int weight, size_t n, double p, double q);

/* Query i of one head of sequence b: its stages from scores to lse, and its columns of `heads`. */
void oracle_attend(run *r, size_t b, size_t head, size_t i, attended *a, number *heads);

#endif
