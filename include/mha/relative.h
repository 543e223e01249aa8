/* Relative terms: products of a query, or of a key, with a learned row that is chosen by where both stand. */
#ifndef MHA_RELATIVE_H
#define MHA_RELATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mha/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which row of a table of n rows stands for a query at position p and a key at position q. */
typedef enum mha_relative_rule {
    MHA_RELATIVE_NONE = 0, /* nothing is added, also where there are tables */
    /* By the distance d = p - q, clamped: row d + n/2 (rounded down), at least 0 and at most n - 1 (BERT and ESM,
     * relative_key, with n = 2 max_position_embeddings - 1; DeBERTa without buckets). reversed: d = q - p (Shaw et al.
     * 2018, section 3.2, with n = 2k + 1). */
    MHA_RELATIVE_DISTANCE,
    /* By d in buckets (DeBERTa v2 and v3, position_buckets b = n/2): row b + s, at least 0 and at most n - 1. With
     * m = b/2, rounded down, s = d for |d| <= m, and for greater distances, with the sign of d,
     *   |s| = m + ceil((m - 1) log(|d|/m) / log((max_distance - 1)/m)).
     * A logarithm within 1e-9 of a whole bucket is that. */
    MHA_RELATIVE_LOG_BUCKETS,
    /* By the offsets of two cells of a grid of height x width cells, row by row, in which token t is cell t: row
     * y_p - y_q + height - 1 of MHA_RELATIVE_K, and x_p - x_q + width - 1 of MHA_RELATIVE_COLUMNS (ViTDet, Li et al.
     * 2022; SAM, Kirillov et al. 2023: rel_pos_h and rel_pos_w, made as long as that where they are not). */
    MHA_RELATIVE_GRID
} mha_relative_rule;

/* Terms added to the score of query i of a head and key j, one for each given table (grid: both of them):
 *   k_scale q_i . MHA_RELATIVE_K[row]  +  k_scale q_i . MHA_RELATIVE_COLUMNS[row]  +  q_scale k_j . MHA_RELATIVE_Q[row]
 * with the rows of queries and keys that are multiplied with each other: after norm, rotation and the scale by
 * position. A table is (n, d_k), for all heads, or (n, h*d_k), columns [i*d_k, (i+1)*d_k) for head i. The terms are
 * added as a mask is, after scale and softcap. They hide nothing: one beyond the range of a path's numbers counts as
 * the largest of its sign. Extra rows have none; latent attention is refused.
 *   Shaw et al. 2018, Huang et al. 2020 (relative_key: K; relative_key_query: K and Q); all of scale 1/sqrt(d_k).
 *   He et al. 2021, DeBERTa, equation 4: K (c2p) is the key projection of the relative embeddings, Q (p2c) the query
 *   projection; everything has the scale 1/sqrt(d_k (1 + number of tables)).
 *   SAM: k_scale 1, because its queries are not scaled here.
 * MHA_INVALID: a rule without its table; tables of K and Q of different numbers of rows; log buckets with an odd number
 * of rows or fewer than 4, or a max_distance out of range; columns without a grid, a grid whose tables have other
 * numbers of rows, or positions outside it; a scale without its table or not finite; a field of another rule.
 * MHA_UNSUPPORTED: Q with a grid; layers with latents. */
typedef struct mha_relative {
    mha_relative_rule rule;
    bool reversed;           /* distance, log buckets: d = q - p */
    size_t max_distance;     /* log buckets: above b/2 + 1, at most 65,536 (max_relative_positions); 0: 512 */
    size_t height, width;    /* grid: cells, 2 height - 1 and 2 width - 1 rows of the tables, at most 65,536 */
    double k_scale, q_scale; /* 0: the scale of the call; finite */
} mha_relative;

#ifdef __cplusplus
}
#endif
#endif
