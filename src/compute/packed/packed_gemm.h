/* y = x W + b with W packed once into the layout of the kernels, in floats or in the 16 bits it is stored in.
 *
 * Every element is bias (or 0) + p_0 + p_1 + ..., where p_c is one chain of multiply-adds over the terms of block c;
 * the k terms are cut into as few blocks of at most 384 as possible, of equal length but for rounding up to a multiple
 * of 16: the same bits whichever rows are computed beside it, and however the work is divided. */
#ifndef MHA_COMPUTE_PACKED_PACKED_GEMM_H
#define MHA_COMPUTE_PACKED_PACKED_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mha/tensor.h"

/* The type of the panels of a matrix of this type: F64 is rounded to F32. */
mha_dtype mha__packed_type(mha_dtype dtype);
/* Bytes that the panels of a (k, n) matrix take, k in whole blocks of a quantised type; false when they do not fit a
 * size. */
bool mha__packed_bytes(size_t k, size_t n, mha_dtype dtype, size_t *bytes);
/* Packs W (k, n), row stride ldw, into `panels`, 64-byte aligned: F32, F64, F16, BF16 or blocks, column by column as
 * files have them. */
void mha__pack(size_t k, size_t n, mha_dtype dtype, const void *W, size_t ldw, void *panels);
/* The same of elements [column, column + n) of row p, F32, F16 or BF16; column is a multiple of 32, and what pads the
 * last panel is written when the row ends inside it. */
void mha__pack_row(size_t k, size_t p, size_t column, size_t n, mha_dtype dtype, const void *row, void *panels);
/* Writes the elements of a packed (k, n) matrix of F32, F16 or BF16 to W, which is contiguous. */
void mha__unpack(size_t k, size_t n, mha_dtype dtype, const void *panels, void *W);

/* Y (m, n) = X W + b; b (n floats) may be NULL. Y has row stride ldy and overlaps nothing. */
typedef struct mha__packed_output {
    size_t n, ldy;
    const void *panels;
    mha_dtype dtype; /* of the panels: F32, F16, BF16 or of blocks; all give the bits of floats of the same values */
    const float *b;
    float *Y;
} mha__packed_output;

enum { MHA_PACKED_OUTPUTS = 3 };

/* Products that share the rows X (m, k), of row stride ldx, which are read once for all of them. */
typedef struct mha__packed_product {
    size_t m, k, ldx;
    const float *X;
    bool rounds;         /* X to BF16, which all panels are, too: of all products or of none. Subnormals count as 0 */
    bool rounds_results; /* ... and Y */
    size_t n_outputs;
    mha__packed_output outputs[MHA_PACKED_OUTPUTS];
} mha__packed_product;

enum { MHA_PACKED_PRODUCTS = 4 };

/* Bytes of 64-byte aligned scratch that each worker needs for a product of m rows and k terms; `dtype` is that of
 * an output's panels. */
size_t mha__packed_scratch(size_t m, size_t k, mha_dtype dtype);
/* Computes all products, at most MHA_PACKED_PRODUCTS, on `threads` workers. `scratch` holds for each worker as many
 * bytes as the largest product needs. */
void mha__packed_run(const mha__packed_product *products, size_t n_products, int threads, void *scratch);

#endif
