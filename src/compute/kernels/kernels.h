/* The one interface of the float kernels: small loops over pointers and lengths, without threads,
 * allocation or any knowledge of attention's objects. One complete version per instruction set. */
#ifndef MHA_COMPUTE_KERNELS_KERNELS_H
#define MHA_COMPUTE_KERNELS_KERNELS_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/quantised/decoders.h"
#include "mha/tensor.h"

/* Shapes all versions share, so that what one has packed another can read.
 *   panel  a (k, n) matrix is packed as ceil(n / 32) panels of 32 columns, row-major inside, 64-byte aligned, the
 *          last one filled with zeros;
 *   block  products run over at most 512 terms at a time: where the accumulation of a long sum is cut depends on its
 *          length alone, not on the number of rows, so that the bits of a row do not depend on the others;
 *   staged the left factor is staged in rows of at most 512 floats, 528 apart (no two rows share a cache set). */
enum { MHA_PANEL = 32, MHA_BLOCK = 512, MHA_STAGED = MHA_BLOCK + 16 };

/* Keys in a block, a power of two and at most MHA_BLOCK: their packed K and V stay in a second-level cache of 512
 * KiB beside what else is needed. */
static inline size_t mha__flash_block(size_t d_k, size_t d_v)
{
    const size_t floats = d_k + d_v;
    return floats <= 192 ? MHA_BLOCK : floats <= 256 ? MHA_BLOCK / 2 : floats <= 512 ? MHA_BLOCK / 4 : MHA_BLOCK / 8;
}

/* The right factor of a product: column j of row p is at data + p * row + j / 32 * panel + j % 32. Packed: row
 * is 32. A plain matrix of row stride ld is {data, ld, 32}, if rounding the columns read up to 16 stays inside it. */
typedef struct mha__panels {
    const float *data;
    size_t row, panel;
} mha__panels;

/* Rows of 8 bits: their codes, signed, and in the last four bytes of the distance to the next row, a multiple of four,
 * a float, the scale of the row. A number is its code times the scale, rounded to a float. */
enum { MHA_ROW_SCALE = sizeof(float) };

/* Bytes from one such row of n codes to the next. */
static inline size_t mha__byte_row(size_t n)
{
    return (n + MHA_ROW_SCALE - 1) / MHA_ROW_SCALE * MHA_ROW_SCALE + MHA_ROW_SCALE;
}

/* The scale of a row whose largest absolute value is `most`: most / 127, or a little less if 127 times that would be
 * infinite. NaN or infinite when `most` is. */
static inline float mha__byte_scale(float most)
{
    const float limit = 0x1.020406p+121f;
    return most <= FLT_MAX && most / 127.0f > limit ? limit : most / 127.0f;
}

/* The same of narrow numbers: `dtype` is MHA_F16 or MHA_BF16; or MHA_I8 for rows of 8 bits where they lie. */
typedef struct mha__half_panels {
    const void *data;
    size_t row, panel;
    mha_dtype dtype;
} mha__half_panels;

/* A matrix of quantised blocks (base/quantised): each of the ceil(n / 32) panels of 32 columns is a series of blocks,
 * of as many terms as in a file. A block has
 *   the d of its columns, 32 of F16 (or BF16, kind->power; or F32, of F8), and with a least value as many of m;
 *   then, for every 32 terms, the scales of groups, a byte for each column, group by group; with a least value as many
 *   of min; and the codes in words of 32 bits, one for each column, for four terms at a time: byte u is the code of
 *   term u; of 4 bits it is that of term u in its low half and that of term u + 16 in its high half, of kinds with
 *   signed codes 8 more than the code. Codes of F8 are in words of 16 bits, for two terms; d is 2^8 times the scale
 *   beside E4M3, and NaN where a code of the column's block is.
 * That is what a file takes, but for codes of 2 to 6 bits. `panel`: bytes from one panel to the next; `first`: the term
 * to begin with, a multiple of 16; what lies `ahead` bytes further is fetched. */
typedef struct mha__block_panels {
    const unsigned char *data;
    size_t panel, first, ahead;
    const mha__block_kind *kind;
} mha__block_panels;

enum { MHA_QUANT = 32 };

static inline __attribute__((always_inline)) bool mha__is_byte_wide(mha__codes codes)
{
    return codes == MHA_CODES_8 || codes == MHA_CODES_8_GROUPS || codes == MHA_CODES_8_LEAST || mha__is_f8(codes);
}

/* Bytes of a block of a panel, of what comes before its parts of 32 terms, and of a part; and where in a part the min
 * and the codes begin. */
typedef struct mha__block_shape {
    size_t bytes, header, part, least, codes;
} mha__block_shape;

static inline mha__block_shape mha__block_shape_of(const mha__block_kind *kind)
{
    const size_t both = mha__has_least(kind->codes) ? 2 : 1, d = mha__is_f8(kind->codes) ? sizeof(float) : 2;
    const size_t scales = kind->scales ? MHA_QUANT / kind->group * MHA_PANEL : 0;
    mha__block_shape s = {.header = both * d * MHA_PANEL, .least = scales, .codes = scales * both};
    s.part = s.codes + (size_t)MHA_PANEL * MHA_QUANT / (mha__is_byte_wide(kind->codes) ? 1 : 2);
    s.bytes = s.header + kind->elements / MHA_QUANT * s.part;
    return s;
}

/* Products of BF16 numbers in pairs, for processors with an instruction that adds two products at a time. A pair lies
 * where a float would, the earlier number in its upper half: that one is added first. An element is the chain of its
 * terms as above, and has the same bits, but for numbers below 2^-126: as a factor or as a sum so far they count as 0.
 * What is made a pair is rounded to nearest even; NaN stays NaN. */
typedef struct mha__pairs {
    /* The product of mha__kernels, of k pairs. */
    void (*product)(size_t m, size_t n, size_t k, const float *A, mha__panels B, const mha__panels *next, float *C,
                    size_t ldc, const float *factor, const float *bias);
    /* Y (m, ceil(n / 2)) = the pairs of elements 2p and 2p + 1 of the rows of X (m, n); beside a last one alone is 0.
     * Rows of Y may lie where those of X do, or before them. */
    void (*join)(size_t m, size_t n, const float *X, size_t ldx, float *Y, size_t ldy);
    /* Packs the pairs of rows 2p and 2p + 1 of X (k, n) as row p of panels; beside a last row alone are zeros, and
     * before the first one when it comes `late`, as the second of its pair. False: an element is NaN or infinite. */
    bool (*pack)(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel, bool late);
    /* The same of n columns of panels X of BF16 numbers, rows of MHA_PANEL, `from_panel` numbers apart. */
    void (*pack_half)(size_t k, size_t n, const uint16_t *X, size_t from_panel, float *panels, size_t panel);
} mha__pairs;

typedef struct mha__kernels {
    const char *isa;
    const mha__pairs *pairs; /* NULL where there are none, or none that are faster */
    size_t lanes;            /* floats in a vector: 16 or a divisor of it */
    size_t tile_rows;        /* rows the product handles best at a time, at most MHA_TILE_ROWS */
    size_t few_rows;         /* rows that product_rows takes: MHA_FEW_ROWS or more */
    size_t block_columns;    /* columns of quantised blocks that a tile of few rows takes at a time */
    /* Prefetch distances in bytes, over all panels read together: packed floats for one row (0: none) and for more,
     * numbers of 16 bits, quantised blocks. */
    size_t row_ahead, rows_ahead, half_ahead, blocks_ahead;

    /* C (m, n) = init + A B, every element one chain of multiply-adds over k = 0, 1, ... from 0, then
     * added to init. A: staged rows, k <= MHA_BLOCK. C: row stride ldc; exactly n columns are written. init is
     * factor[i] * C[i][j] when factor is given, else bias[j] when bias is given (n floats), else nothing
     * and C is not read. Unless `next` is NULL, the (k, n) floats there are
     * prefetched meanwhile; if it is, the panel to the right, or nothing by flat tiles. */
    void (*product)(size_t m, size_t n, size_t k, const float *A, mha__panels B, const mha__panels *next, float *C,
                    size_t ldc, const float *factor, const float *bias);

    /* The same product, bit for bit, as of the widened B; `next` and NULL mean the same. For few rows: B is widened
     * again for every MHA_TILE_ROWS of them. */
    void (*product_half)(size_t m, size_t n, size_t k, const float *A, mha__half_panels B, const mha__half_panels *next,
                         float *C, size_t ldc, const float *factor, const float *bias);
    /* The same product, bit for bit, as of the values of B; k is a multiple of 16. For few rows. Where codes are signed
     * a value of -0 may count as +0, which shows only in the sign of a sum of nothing but zeros; and of an infinite d
     * all values may be NaN. */
    void (*product_blocks)(size_t m, size_t n, size_t k, const float *A, mha__block_panels B, float *C, size_t ldc,
                           const float *factor, const float *bias);
    /* The values of k terms of B, panels of n columns in all, as panels of k rows one after the other. */
    void (*widen_blocks)(size_t n, size_t k, mha__block_panels B, float *panels);
    /* C (m, n) = A X^T for m <= MHA_FEW_ROWS staged rows A of k <= MHA_BLOCK floats and X (n, k) of F16 or BF16
     * numbers or rows of 8 bits, which begin at a multiple of four bytes, as do the rows after it; C has the bits that
     * `product` gives with the packed transpose of the widened X, and room for n rounded up to 32. */
    void (*product_half_rows)(size_t m, size_t n, size_t k, const float *A, const void *X, size_t ldx, mha_dtype dtype,
                              float *C, size_t ldc);
    /* Y (m, n) = the numbers whose F16 or BF16 bits X (m, n) holds, or those of rows of 8 bits; row strides ldy and
     * ldx; exact, NaN stays NaN. Meanwhile fetches the (m, n) numbers at `next`, of the stride of X, unless that is
     * NULL. */
    void (*widen)(size_t m, size_t n, const void *X, size_t ldx, mha_dtype dtype, float *Y, size_t ldy,
                  const void *next);
    /* The other way. F16, BF16: rounded to nearest even, NaN stays NaN; what is too large becomes infinite. Rows of 8
     * bits: the scale of mha__byte_scale, and x / scale rounded to nearest even, at most 127 on either side; where the
     * scale is 0, NaN or infinite all codes are 0, so that a row with a NaN or an infinity becomes NaN as a whole. */
    void (*narrow)(size_t m, size_t n, const float *X, size_t ldx, mha_dtype dtype, void *Y, size_t ldy);
    /* y[i] = x[i] rounded to BF16, still a float: to nearest even, NaN stays NaN. y and x may be one. */
    void (*round_to_bf16)(size_t n, const float *x, float *y);

    /* Packs X (k, n), row stride ldx, into panels `panel` floats apart. False when an element is NaN or infinite. */
    bool (*pack)(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel);
    /* Packs the transpose of X (n, k), row stride ldx, with zeros up to a multiple of 16 columns and no further. Rows
     * are fetched some time before they are needed; `after` more rows follow, for which this is done too. */
    void (*pack_transposed)(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel, size_t after);

    /* For a last panel of at most 8 columns, where vectors of 16 floats would multiply 8 zeros; both NULL where
     * vectors are shorter. interleave_rows interleaves the first 8 floats of rows 2p and 2p + 1 of X (n rows of a
     * panel) into the first 16 of row 2p, so that one vector holds two terms of every sum. product_interleaved then
     * computes C (m, 16) = init + A X, of which the last 8 columns are zeros: every element is the sum of the chain of
     * its even terms and that of its odd ones. init as for `product`; when k is odd, column k of A is 0. */
    void (*interleave_rows)(size_t n, float *X);
    void (*product_interleaved)(size_t m, size_t k, const float *A, const float *X, float *C, size_t ldc,
                                const float *factor);

    /* C (m, n) = A X^T for m <= few_rows staged rows A of k <= MHA_BLOCK floats, X (n, k) of row stride ldx; C has the
     * bits that `product` gives with the packed transpose of X. Meanwhile rows of X are prefetched a group ahead, as
     * many as a vector has floats. With more than MHA_FEW_ROWS rows so are, unless `next` is NULL, the (n, k) floats
     * there, row stride ld_next. */
    void (*product_rows)(size_t m, size_t n, size_t k, const float *A, const float *X, size_t ldx, const float *next,
                         size_t ld_next, float *C, size_t ldc);

    /* Makes n scores of a row ready for softmax_rows: caps them (softcap > 0: softcap * tanh(x / softcap)), adds bias
     * (n floats, -inf hides; may be NULL), replaces all hidden ones and all but [begin, end) by -inf. True when a key
     * is left. x has room for n rounded up to 16; what is there is overwritten. A row that needs none of this can go
     * without when n is a multiple of 16. */
    bool (*softmax_prepare)(float *x, size_t n, size_t begin, size_t end, const float *bias, float softcap);
    /* Then, for m <= MHA_TILE_ROWS rows of such scores, ldx apart, and arrays of MHA_TILE_ROWS numbers: max becomes the
     * largest of max and the row, NaN left aside; x = exp(x - max), exactly 0 where hidden; factor = exp(max before -
     * max), 1 when they are equal; sum = sum * factor + the sum of x. When max is -inf x is 0, or NaN if it was. What
     * lies behind n in the last vector is treated as part of the row. */
    void (*softmax_rows)(size_t m, size_t n, float *x, size_t ldx, float *max, float *sum, float *factor);

    /* x[i] = -inf wherever (flags[i] != 0) == when. True when there is such an i. */
    bool (*hide)(float *x, const uint8_t *flags, size_t n, bool when);
    /* Narrows [*begin, *end) to begin and end with a flag for which (flags[i] != 0) != when. If none matches the range
     * becomes empty. Returns whether a flag inside still hides. */
    bool (*trim)(const uint8_t *flags, bool when, size_t *begin, size_t *end);
    /* The same between the first and the last of terms that is not -inf. */
    void (*trim_terms)(const float *terms, size_t *begin, size_t *end);
    /* y[i] = exp(x[i]) for x <= 0 (or NaN), within 1.02 ULP (tested on all floats) down to 2^-126;
     * beneath, between 0 and that. Exactly 0 below -88.1, -inf too, however the thread rounds. */
    void (*exp)(float *y, const float *x, size_t n);
    /* y[i] = tanh(x[i]), within 1.71 ULP. */
    void (*tanh)(float *y, const float *x, size_t n);
    /* y = a * x;  y = y * a + x * b;  y = x / a, where -0 in x counts as +0. */
    void (*scale)(float *y, const float *x, size_t n, float a);
    void (*blend)(float *y, const float *x, size_t n, float a, float b);
    void (*divide)(float *y, const float *x, size_t n, float a);
    /* Y (m, n) = Y + X B in double, each element with its k terms added one by one, in their order: product and sum are
     * rounded by themselves, so that every instruction set gives the same bits. Row strides ldx, ldb, ldy. */
    void (*ordered_sums)(size_t m, size_t n, size_t k, const double *X, size_t ldx, const double *B, size_t ldb,
                         double *Y, size_t ldy);
    /* Independent multiply-adds in registers and nothing else, the most that any kernel can do; returns how many
     * floating-point operations that was (two each). *sink keeps the compiler from leaving them out. */
    double (*peak)(size_t rounds, float *sink);
    /* Reads n floats, a multiple of 128, and returns their sum: what no kernel can beat when memory is the limit. */
    float (*read)(const float *x, size_t n);
} mha__kernels;

enum { MHA_TILE_ROWS = 16, MHA_FEW_ROWS = 4 };

/* The pairs of the kernels in use, as long as the calling thread rounds to nearest, which they always do; or NULL. */
const mha__pairs *mha__pairs_get(void);

/* The kernels in use. */
const mha__kernels *mha__kernels_get(void);
/* From mha__kernels_portable(true) to (false) the calling thread, and no other, has the portable kernels, and products
 * by loops in place of the BLAS (gemm.c): the same bits on every machine. Its calls must have threads = 1. */
void mha__kernels_portable(bool begins);
bool mha__kernels_are_portable(void);
/* Those this machine can use, best first; NULL past the end. */
const mha__kernels *mha__kernels_at(size_t index);
/* Makes mha__kernels_get give the kernels of that name ("auto": the best); errors as of mha_isa_select. */
mha_status mha__kernels_select(const char *name);

/* The kernels of each instruction set; dispatch.c lists those of this architecture. */
extern const mha__kernels mha__kernels_avx512_bf16, mha__kernels_avx512, mha__kernels_avx2, mha__kernels_neon,
    mha__kernels_scalar;
/* Pairs for AVX-512; of nothing but NULL when the compiler did not know the instructions. */
extern const mha__pairs mha__pairs_avx512;

#endif
