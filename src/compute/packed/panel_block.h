/* A panel block: one block of terms of some columns of packed weights, times staged rows. */
#ifndef MHA_COMPUTE_PACKED_PANEL_BLOCK_H
#define MHA_COMPUTE_PACKED_PANEL_BLOCK_H

#include "compute/kernels/kernels.h"
#include "compute/packed/packed_gemm.h"
#include "compute/sizes.h"

/* An output tile is a rectangle of the outputs, of at most this many rows and columns. MHA_COLUMNS_TOGETHER of its
 * columns are computed at a time: one block of terms of its staged rows, and their results, then stay in a second-level
 * cache of 512 KiB. MHA_TASK_ROWS is an upper limit, of pairs twice that: output tiles are rounded down to whole tiles.
 */
enum { MHA_TASK_ROWS = 140, MHA_TASK_COLUMNS = 1024, MHA_COLUMNS_TOGETHER = 256 };
/* The most terms of a block: longer sums lose more to rounding, shorter ones take more passes over Y. */
enum { MHA_BLOCK_TERMS = 384 };
/* Up to this many rows the time is that of reading W: each panel is read from end to end, a few of them at once. */
enum { MHA_READ_ROWS = 16 };
/* From this many rows on a panel of 16 bits is read alone. */
enum { MHA_ROWS_OF_A_PANEL = 8 };
/* Pairs take half the room of floats: behind the pairs of one row are those of the row MHA_TASK_ROWS later. */
enum { MHA_LATER_ROWS = MHA_STAGED / 2 };

/* The part of an output tile that lies in one output. */
typedef struct mha__rectangle {
    const mha__packed_product *product;
    const mha__packed_output *out;
    const mha__pairs *pairs; /* kernels for staged rows of 16 bits; NULL: the rows are floats */
    size_t first, m, column, n;
    float *room; /* MHA_BLOCK_TERMS * MHA_COLUMNS_TOGETHER floats: what many rows share of 16 bits is widened once */
} mha__rectangle;

/* The number of terms of a block: about equal blocks, in whole cache lines. */
static inline size_t mha__block_terms(size_t k)
{
    return k <= MHA_BLOCK_TERMS
               ? MHA_BLOCK_TERMS
               : mha__round_up(mha__ceil_div(k, mha__ceil_div(k, MHA_BLOCK_TERMS)), 16);
}

/* Columns that are multiplied at once. */
size_t mha__panel_block_columns(size_t m, mha_dtype dtype);
/* One block of terms, of columns [column, column + n) of W. */
void mha__panel_block_multiply(const mha__rectangle *p, size_t column, size_t n, size_t block, const float *staged);

#endif
