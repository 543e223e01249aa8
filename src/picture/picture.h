/* What a picture shows: layers of heads, each with a map of its weights and with statistics in float64. */
#ifndef MHA_PICTURE_PICTURE_H
#define MHA_PICTURE_PICTURE_H

#include <math.h>

#include "base/arena.h"
#include "mha/attention.h"

/* ---------------------------------------------------------------- a head */

/* In place of a weight: no query of the cell sees a key of it. A weight of 0 is another thing: the key is visible. */
#define MHA__HIDDEN (-INFINITY)

static inline bool mha__is_hidden(double weight) { return weight == MHA__HIDDEN; }

/* Means over the queries that see a key and whose weights are finite. All are NaN when there is no such query. */
typedef struct mha__head_statistics {
    double entropy;  /* of a row of weights, in bits: 0 looks at one key, log2(n) at n keys alike */
    double distance; /* sum of weight * |position of the query - position of the key| */
    double self, previous, first; /* weight of the key at the query's own position, at the one before, of key 0 */
    double sink;     /* share of the softmax that no key has: sinks, softmax-plus-one, the extra rows */
    double largest;  /* largest weight of the row */
    size_t queries;  /* number of these queries */
    size_t empty, broken; /* queries that see no key; queries with a weight that is NaN or infinite */
} mha__head_statistics;

/* One head of one sequence. Row r of its map stands for `pool_rows` queries from first_query + r * pool_rows on,
 * column c for `pool_columns` keys; the last row and column may stand for fewer. Keys are those of S', in which the
 * bias_k/bias_v row and the zero row come last. */
typedef struct mha__head {
    size_t sequence, head, kv_head;
    size_t first_query, queries, first_key, keys; /* what the map shows: rows of T_q, columns of S' */
    size_t rows, columns, pool_rows, pool_columns;
    double *weights; /* (rows, columns): the largest weight in the cell, MHA__HIDDEN, or NaN if one of them is */
    /* (queries, keys), NULL where not kept: scores after scale and softcap; and what is added to or hides them */
    double *scores, *masked;
    /* (queries, top): the largest weights of each row, exact however the map is pooled, and their keys, which count
     * from key 0 of the sequence; a row that has fewer ends with weights of 0. NULL when the map is not pooled. */
    size_t top;
    double *top_weights;
    uint32_t *top_keys;
    mha__head_statistics statistics; /* of the queries that are shown, over all keys */
} mha__head;

/* ---------------------------------------------------------------- layers */

typedef struct mha__picture_layer {
    const char *name;  /* of the layer: from a file, or "" */
    const char *path;  /* how it was computed: "exact", "blas", or "recorded" */
    size_t sequences, h, h_kv, d_k, d_v;
    size_t head_count; /* heads that are shown, sequence after sequence */
    mha__head *heads;
    size_t S_extra; /* rows at the end of S' that are no tokens */
    int64_t offset; /* position of query 0 of the first sequence, where key 0 has position 0 */
} mha__picture_layer;

/* Zero-initialised but for memory.allocator, a picture is empty. All texts may come from files: whoever writes them
 * escapes them. */
typedef struct mha__picture {
    mha__arena memory;
    size_t layer_count, layer_room;
    mha__picture_layer *layers;
    size_t token_count;       /* 0: tokens have no names */
    const char *const *tokens; /* name of the token at each position of the keys */
    const char *title;         /* what is shown: a file, a command; "" for nothing */
} mha__picture;

#endif
