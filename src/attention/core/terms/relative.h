/* Relative terms: checked, and computed in float for some queries and keys of a head. */
#ifndef MHA_ATTENTION_CORE_TERMS_RELATIVE_H
#define MHA_ATTENTION_CORE_TERMS_RELATIVE_H

#include "attention/call/resolved.h"
#include "attention/core/terms/mask.h"

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
