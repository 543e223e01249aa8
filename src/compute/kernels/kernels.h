/* The one interface of the float kernels: small loops over pointers and lengths, without threads,
 * allocation or any knowledge of attention's objects. One complete version per instruction set. */
#ifndef MHA_KERNELS_H
#define MHA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

/* Shapes all versions share, so that what one has packed another can read.
 *   panel  a (k, n) matrix is packed as ceil(n / 32) panels of 32 columns, panel p at p * k * 32, row-major
 *          inside, 64-byte aligned, the last one filled with zeros;
 *   block  products run over at most 256 terms at a time: the accumulation of a long sum is cut at multiples
 *          of 256, whatever the number of rows, so that the bits of a row do not depend on its company;
 *   staged the left factor is staged in rows of at most 256 floats, 272 apart (no two rows share a cache set). */
enum { MHA_PANEL = 32, MHA_BLOCK = 256, MHA_STAGED = MHA_BLOCK + 16 };

/* Running softmax of one row: the largest visible score, the sum of exp(score - max), whether any key was visible. */
typedef struct mha_softmax_state {
    float max, sum;
    bool visible;
} mha_softmax_state;

static const mha_softmax_state mha_softmax_start = {-__builtin_inff(), 0.0f, false};

typedef struct mha_kernels {
    const char *isa;
    size_t tile_rows; /* rows the product handles best at a time */

    /* C (m, n) = init + A B, every element one chain of multiply-adds over k = 0, 1, ... from 0, then
     * added to init. A: staged rows, k <= MHA_BLOCK. B: packed panels of 32 columns, `panel_stride` floats
     * apart (more than k * 32 when only a part of the rows is used). C: row stride ldc; exactly n columns
     * are written. init is factor[i] * C[i][j] when factor is given, else bias[j] when bias is given
     * (n floats), else nothing and C is not read. */
    void (*product)(size_t m, size_t n, size_t k, const float *A, const float *B, size_t panel_stride, float *C,
                    size_t ldc, const float *factor, const float *bias);

    /* Packs X (k, n), row stride ldx, into panels `panel_stride` floats apart. False when an element is NaN or infinite. */
    bool (*pack)(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel_stride);
    /* Packs the transpose of X (n, k), row stride ldx. */
    void (*pack_transposed)(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel_stride);

    /* One step of the running softmax over n scores of a row, in place: caps them (softcap > 0:
     * softcap * tanh(x / softcap)), adds bias (n floats, -inf hides; may be NULL), hides all but [begin, end), and
     * replaces each by exp(x - new max), exactly 0 where hidden. Returns exp(old max - new max), the factor
     * for what was accumulated before. x has room for n rounded up to 16; what is there is overwritten. */
    float (*softmax_step)(float *x, size_t n, size_t begin, size_t end, const float *bias, float softcap,
                          mha_softmax_state *state);

    /* y[i] = exp(x[i]) for x <= 0 (or NaN), within 1.02 ULP (tested on all floats); below -126.5 ln 2 it is 0. */
    void (*exp)(float *y, const float *x, size_t n);
    /* y[i] = tanh(x[i]), within 1.6 ULP. */
    void (*tanh)(float *y, const float *x, size_t n);
    /* y = a * x;  y = y * a + x * b;  y = x / a. */
    void (*scale)(float *y, const float *x, size_t n, float a);
    void (*blend)(float *y, const float *x, size_t n, float a, float b);
    void (*divide)(float *y, const float *x, size_t n, float a);
} mha_kernels;

/* The kernels in use. */
const mha_kernels *mha_kernels_get(void);

#endif
