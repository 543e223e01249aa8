/* The terms of scores: masks, a bias and relative terms by position, checked, and made for the keys of a query. */
#ifndef MHA_ATTENTION_CORE_TERMS_TERMS_H
#define MHA_ATTENTION_CORE_TERMS_TERMS_H

#include <float.h>
#include <math.h>

#include "attention/call/resolved.h"

/* ---------------------------------------------------------------- numbers: floats that stay finite */

static inline float mha__clamp(double x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

/* A number as a float: a finite double stays finite, -inf and NaN are what they are. */
static inline float mha__finite_term(double x)
{
    return isfinite(x) ? mha__clamp(x) : (float)x;
}

/* The sum of two terms. A hidden key stays hidden whatever is added. */
static inline float mha__terms_sum(float a, float b)
{
    if (a == -INFINITY || b == -INFINITY)
        return -INFINITY;
    return isfinite(a) && isfinite(b) ? mha__clamp((double)a + b) : a + b;
}

/* ---------------------------------------------------------------- mask.c: an interval, a term for each of its keys */

/* The keys that causal, window, lengths and query padding leave to query i of sequence s. Both ends never decrease with
 * i, except for empty intervals. */
mha__interval mha__visible_interval(const mha__resolved *r, const mha__sequence *s, size_t b, size_t i);

/* Mask, padding and pattern of a call, to find what they hide at either end of the keys of a query. */
typedef struct mha__trimmer {
    struct {
        enum { MHA_TRIMS_REACH, MHA_TRIMS_FLAGS, MHA_TRIMS_TERMS } by;
        bool hides;                    /* what a flag means */
        const char *values;            /* of batch row 0, head 0 and query 0 */
        ptrdiff_t batch, head, query;  /* strides, in bytes */
        size_t reach, element;         /* keys behind `reach` are hidden; bytes of one */
    } mask[2];
    size_t n;
    bool adds;  /* something is added to scores */
    bool alike; /* all rows of a sequence have the same masks */
    const mha_pattern *pattern; /* NULL: it hides no keys */
    int64_t first_key; /* the position of key 0 */
    bool in_order; /* mha__pattern_in_order */
    const mha__kernels *kernels;
} mha__trimmer;

mha__trimmer mha__visible_trimmer(const mha__resolved *r);
/* Takes keys that a mask hides off both ends of *keys, as far as that is quickly told. False when nothing is added to
 * the scores of those that are left. */
bool mha__visible_trim(const mha__trimmer *t, size_t b, size_t head, size_t query, mha__interval *keys);

/* Terms of tables for a row: those of mha__bias_prepare, and the relative terms of the keys of the interval. */
typedef struct mha__added {
    const float *bias_rows, *relative;
} mha__added;

/* terms[j - from] for the keys of the interval: -inf where a mask hides the key, else the sum of what is
 * added to its score, kept finite. False when they are all 0. */
bool mha__visible_terms(const mha__resolved *r, const mha__added *added, const mha__sequence *s, size_t b, size_t head,
                        size_t i, mha__interval keys, float *terms);

/* The same terms where they lie, if an additive mask of floats is all there is; else NULL. */
const float *mha__visible_terms_in_place(const mha__resolved *r, size_t b, size_t head, size_t i, mha__interval keys);

/* The sink of a head as a float, in which a finite double stays finite; -inf: none. */
float mha__sink(const mha__resolved *r, size_t head);

/* ---------------------------------------------------------------- bias.c: relative position bias */

/* The row of a table of n rows for a query at position p and a key at position q; n when the rule has none: no rule, or
 * a position outside the grid. */
size_t mha__bias_row(const mha_bias *bias, size_t n, int64_t p, int64_t q);

/* Refuses a rule that does not fit its table or the positions of the call. */
mha_status mha__bias_check(const mha__resolved *r, mha_error *error);

/* Refuses positions outside the cells of a grid. */
mha_status mha__bias_expect_cells(const mha__resolved *r, const char *name, size_t cells, mha_error *error);

/* The table as floats, head by head, in an order in which the keys of a row follow each other: by distance, or by cell.
 * How many floats that takes; 0 without a rule. */
size_t mha__bias_floats(const mha__resolved *r);
void mha__bias_prepare(const mha__resolved *r, float *bias_rows);

/* Writes the bias of query i of a head for the keys of the interval, or adds it to the terms that are there. */
void mha__bias_terms(const mha__resolved *r, const float *bias_rows, const mha__sequence *s, size_t head, size_t i,
                     mha__interval keys, bool add, float *terms);

/* ---------------------------------------------------------------- relative.c, relative_terms.c */

/* The tables, in the order of their weights from MHA_RELATIVE_K on. */
enum { MHA_RELATIVE_TABLES = MHA_RELATIVE_Q - MHA_RELATIVE_K + 1 };

/* Refuses a rule that does not fit its tables, the positions of the call or its layer. */
mha_status mha__relative_check(const mha__resolved *r, mha_error *error);

/* The row of a table (MHA_RELATIVE_K, _COLUMNS or _Q) of n rows for a query at position p and a key at position q; n
 * when the rule has none: no rule, a table that is not of it, or a position outside the grid. */
size_t mha__relative_row(const mha_relative *relative, mha_weight table, size_t n, int64_t p, int64_t q);

/* The tables as floats: where they lie, or made in `room`. Returns how many are made; with `room` NULL none is. */
typedef struct mha__relative_tables {
    mha_view table[MHA_RELATIVE_TABLES]; /* no data where there is none */
} mha__relative_tables;
size_t mha__relative_prepare(const mha__resolved *r, float *room, mha__relative_tables *made);

/* Some queries and keys of a head, whose terms are made together, because neighbours share rows of the tables. */
typedef struct mha__relative_pairs {
    const mha__sequence *s;
    size_t head, of_Q, of_K; /* the query head; which head of the rows Q and K that is */
    size_t K_batch, K_from; /* the batch row of K that has the keys, and the key that it begins with */
    const mha_pages *pages; /* K is all pages of these, not (B, S, h_kv, d_k); NULL: it is that */
    size_t first, queries;
    mha__interval keys;
} mha__relative_pairs;

/* Writes the terms of query first + i and key keys.from + j to terms[i * ld + j], finite or NaN. Q (B, T_q, h, d_k) are
 * floats, K (B, S, h_kv, d_k) of any type of a cache. The bits of a pair do not depend on the others. `memory` has
 * mha__relative_work floats for as many queries and keys; 0 without relative terms. */
void mha__relative_terms(const mha__resolved *r, const mha__relative_tables *tables, const mha_view *Q,
                         const mha_view *K, const mha__relative_pairs *pairs, float *terms, size_t ld, float *memory);
size_t mha__relative_work(const mha__resolved *r, size_t queries, size_t keys);

#endif
