/* Relative position bias: a learned number for each head that is added to a score, chosen by where query and key
 * stand. */
#ifndef MHA_BIAS_H
#define MHA_BIAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mha/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which row of the table (n, h) stands for a query at position p and a key at position q. */
typedef enum mha_bias_rule {
    MHA_BIAS_RULE_NONE = 0, /* nothing is added, also where there is a table */
    /* By the distance d = q - p (T5, Raffel et al. 2020, section 2.1). With m = n/2 buckets for each direction, the
     * later keys (d > 0) have the rows from m on and both directions count |d|; one_way has m = n buckets for the
     * earlier keys, and later ones count as d = 0. In a direction the first e = m/2 buckets hold one distance each, and
     *   e + floor((m - e) log(|d|/e) / log(max_distance/e)), at most m - 1,
     * is the bucket of |d| >= e. Divisions are rounded down. A logarithm within 1e-9 of a whole bucket is that. */
    MHA_BIAS_RULE_BUCKETS,
    /* By the offset of two cells of a grid of height x width cells, row by row, in which token t is cell t (Swin, Liu
     * et al. 2021, section 3.2): (y_p - y_q + height - 1)(2 width - 1) + x_p - x_q + width - 1. With class_token the
     * first token stands before the grid (BEiT, Bao et al. 2021) and the table has three more rows: for the class token
     * as the query, as the key, and as both. */
    MHA_BIAS_RULE_GRID
} mha_bias_rule;

/* The table is the weight MHA_BIAS_TABLE, of a layer (mha_config.bias_rows) or of a call without one. Its entry is
 * added as a mask is, after scale and softcap; -inf hides the key. Extra rows have no bias. */
typedef struct mha_bias {
    mha_bias_rule rule;
    bool one_way;         /* buckets: see there; else the two directions have buckets of their own */
    bool class_token;     /* grid: one token before it, three more rows of the table */
    size_t max_distance;  /* buckets: above n/2 (n/4 in two directions), at most 65,536; 0: 128 */
    size_t height, width; /* grid: cells, (2 height - 1)(2 width - 1) rows of the table, at most 65,536 */
} mha_bias;

#ifdef __cplusplus
}
#endif
#endif
