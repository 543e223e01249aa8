/* The body of every kernel, written once. A file per instruction set includes it after saying:
 *   ISA_NAME, ISA_LANES    name; floats in a vector
 *   TILE_ROWS, TILE_VECS   registers of the product's accumulator: TILE_ROWS x TILE_VECS vectors
 *   FLAT_ROWS, FLAT_VECS   the same for FLAT_ROWS rows or less,
 *   HALF_FLAT_ROWS         and half as many vectors for this many
 *   KERNELS                name of the table it exports
 *   vec                    GNU C vector of ISA_LANES floats
 *   madd(a, b, c)          a * b + c
 *   greater(a, b)          the larger; b when one is NaN
 *   quads(x, stride)       the four floats at x, at x + stride, ..., a vector full
 *   halves(x)              the vector whose F16 bits are at x
 *   half_lanes(x)          the vector whose F16 bits are in the lower halves of the lanes of x */
#include <stdint.h>

#include "compute/kernels/list.h"

#define LANES ISA_LANES
#define PANEL_VECS (MHA_PANEL / LANES)
#define FLAT_LINES (FLAT_VECS * LANES / 16) /* cache lines of a row that a flat tile works on */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline))

typedef int32_t ivec __attribute__((vector_size(4 * ISA_LANES)));
typedef float vec_at __attribute__((vector_size(4 * ISA_LANES), aligned(4), may_alias));

INLINE vec load(const float *p)
{
    return *(const vec_at *)p;
}

INLINE void store(float *p, vec x)
{
    *(vec_at *)p = x;
}

/* The first n < LANES floats; the other lanes hold `rest`. */
INLINE vec load_part(const float *p, size_t n, float rest)
{
    float lane[LANES];
    for (size_t i = 0; i < LANES; i++)
        lane[i] = i < n ? p[i] : rest;
    return load(lane);
}

INLINE void store_part(float *p, size_t n, vec x)
{
    float lane[LANES];
    store(lane, x);
    for (size_t i = 0; i < n; i++)
        p[i] = lane[i];
}

INLINE vec splat(float x)
{
    return x - (vec){0};
}

/* a where the mask is set, else b */
INLINE vec choose(ivec mask, vec a, vec b)
{
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

/* The lanes of a and b in turns: of their first halves, and of their second halves. */
#if ISA_LANES == 4
#define zip_low(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define zip_high(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#elif ISA_LANES == 8
#define zip_low(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define zip_high(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif ISA_LANES == 16
#define zip_low(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define zip_high(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#endif

/* In each quarter (four lanes) of a and b: their lanes in turns, the first two of each or the last two; and the first
 * or last two of a, then of b. */
#if ISA_LANES == 4
#define pairs_low(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define pairs_high(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define halves_low(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define halves_high(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#elif ISA_LANES == 8
#define pairs_low(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define pairs_high(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define halves_low(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define halves_high(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#elif ISA_LANES == 16
#define pairs_low(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define pairs_high(a, b) __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define halves_low(a, b) __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define halves_high(a, b) __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#endif

/* Folding a vector onto itself halves it; log2(LANES) times over, every lane holds the result. */
INLINE float sum_lanes(vec x)
{
    UNROLL
    for (int width = 1; width < LANES; width *= 2)
        x = zip_low(x, x) + zip_high(x, x);
    return x[0];
}

INLINE float max_lanes(vec x)
{
    UNROLL
    for (int width = 1; width < LANES; width *= 2)
        x = greater(zip_low(x, x), zip_high(x, x));
    return x[0];
}

/* ---------------------------------------------------------------- product */

/* What one tile works on: `n` is what is left of the columns. */
typedef struct operands {
    const float *A, *B;
    const float *next; /* row 0 of what is read after this: fetched meanwhile, by every tile, since hints get lost */
    size_t n, k, row, panel, next_row, next_panel;
    float *C;
    size_t ldc;
    const float *factor, *bias;
} operands;

/* C = init + sum for the columns of a tile that reaches beyond the matrix, or of one that has them all. */
static __attribute__((noinline)) void put_part(size_t m, const operands *o, const float *sum, size_t width)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < o->n; j += LANES) {
            float *c = o->C + i * o->ldc + j;
            const size_t left = o->n - j;
            const bool whole = left >= LANES;
            vec x = load(sum + i * width + j);
            if (o->factor)
                x = madd(splat(o->factor[i]), whole ? load(c) : load_part(c, left, 0.0f), x);
            else if (o->bias)
                x = (whole ? load(o->bias + j) : load_part(o->bias + j, left, 0.0f)) + x;
            if (whole)
                store(c, x);
            else
                store_part(c, left, x);
        }
}

/* One register tile: m rows and nv vectors are constants wherever this is expanded. */
INLINE void tile(const int m, const int nv, const operands *o)
{
    const float *A = o->A, *B = o->B, *next = o->next;
    const size_t row = o->row, panel = o->panel, next_row = o->next_row, next_panel = o->next_panel;
    vec sum[TILE_ROWS][FLAT_VECS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        sum[i][j] = (vec){0};
    for (size_t p = o->k; p > 0; p--, A++, B += row, next += next_row) {
        vec b[FLAT_VECS];
        if (nv <= TILE_VECS) { /* hints, which need not be addresses of ours */
            UNROLL
            for (int line = 0; line < (nv * LANES + 15) / 16; line++)
                __builtin_prefetch(next + line * 16, 0, 2);
        } else if (next) {
            UNROLL
            for (int line = 0; line < FLAT_LINES; line++)
                __builtin_prefetch(next + line / 2 * next_panel + line % 2 * 16, 0, 3);
        }
        UNROLL
        for (int j = 0; j < nv; j++)
            b[j] = load(B + j / PANEL_VECS * panel + j % PANEL_VECS * LANES);
        UNROLL
        for (int i = 0; i < m; i++) {
            vec a = splat(A[i * MHA_STAGED]);
            UNROLL
            for (int j = 0; j < nv; j++)
                sum[i][j] = madd(a, b[j], sum[i][j]);
        }
    }
    if (o->n < (size_t)nv * LANES) {
        float spill[TILE_ROWS * FLAT_VECS * LANES];
        UNROLL
        for (int i = 0; i < m; i++)
            UNROLL
        for (int j = 0; j < nv; j++)
            store(spill + (i * nv + j) * LANES, sum[i][j]);
        put_part((size_t)m, o, spill, (size_t)nv * LANES);
        return;
    }
    float *C = o->C;
    const size_t ldc = o->ldc;
    if (o->factor) {
        const float *factor = o->factor;
        UNROLL
        for (int i = 0; i < m; i++, C += ldc)
            UNROLL
        for (int j = 0; j < nv; j++)
            store(C + j * LANES, madd(splat(factor[i]), load(C + j * LANES), sum[i][j]));
    } else if (o->bias) {
        UNROLL
        for (int i = 0; i < m; i++, C += ldc)
            UNROLL
        for (int j = 0; j < nv; j++)
            store(C + j * LANES, load(o->bias + j * LANES) + sum[i][j]);
    } else {
        UNROLL
        for (int i = 0; i < m; i++, C += ldc)
            UNROLL
        for (int j = 0; j < nv; j++)
            store(C + j * LANES, sum[i][j]);
    }
}

/* A tile of m rows by a constant number of vectors: m chooses the expansion. */
#define TILE_CASE(M, LIMIT, NV)                                                                                        \
    case M:                                                                                                            \
        if (M <= LIMIT)                                                                                                \
            tile(M <= LIMIT ? M : 1, NV, o);                                                                           \
        break;
#define DEFINE_TILE(NAME, LIMIT, NV)                                                                                   \
    static __attribute__((noinline)) void NAME(size_t m, const operands *o)                                            \
    {                                                                                                                  \
        switch (m) {                                                                                                   \
            TILE_CASE(1, LIMIT, NV)                                                                                    \
            TILE_CASE(2, LIMIT, NV)                                                                                    \
            TILE_CASE(3, LIMIT, NV)                                                                                    \
            TILE_CASE(4, LIMIT, NV)                                                                                    \
            TILE_CASE(5, LIMIT, NV)                                                                                    \
            TILE_CASE(6, LIMIT, NV)                                                                                    \
            TILE_CASE(7, LIMIT, NV)                                                                                    \
            TILE_CASE(8, LIMIT, NV)                                                                                    \
            TILE_CASE(9, LIMIT, NV)                                                                                    \
            TILE_CASE(10, LIMIT, NV)                                                                                   \
            TILE_CASE(11, LIMIT, NV)                                                                                   \
            TILE_CASE(12, LIMIT, NV)                                                                                   \
            TILE_CASE(13, LIMIT, NV)                                                                                   \
            TILE_CASE(14, LIMIT, NV)                                                                                   \
        }                                                                                                              \
    }

DEFINE_TILE(wide_tile, TILE_ROWS, TILE_VECS)
DEFINE_TILE(narrow_tile, TILE_ROWS, TILE_VECS / 2)
/* Few rows have few chains to keep the adders busy: they take more columns at once. */
DEFINE_TILE(flat_tile, FLAT_ROWS, FLAT_VECS)
DEFINE_TILE(half_flat_tile, HALF_FLAT_ROWS, FLAT_VECS / 2)

INLINE const float *data_at(mha_panels B, size_t j)
{
    return B.data + j / MHA_PANEL * B.panel + j % MHA_PANEL;
}

static void product(size_t m, size_t n, size_t k, const float *A, mha_panels B, const mha_panels *next, float *C,
                    size_t ldc, const float *factor, const float *bias)
{
    operands o = {.k = k, .row = B.row, .panel = B.panel, .ldc = ldc};
    o.next_row = next ? next->row : B.row, o.next_panel = next ? next->panel : B.panel;
    for (size_t j = 0, width; j < n; j += width) {
        void (*columns)(size_t, const operands *);
        o.n = n - j;
        if (m <= FLAT_ROWS && o.n >= FLAT_VECS * LANES)
            columns = flat_tile, width = FLAT_VECS * LANES;
        else if (m <= HALF_FLAT_ROWS && o.n >= FLAT_VECS / 2 * LANES)
            columns = half_flat_tile, width = FLAT_VECS / 2 * LANES;
        else if (o.n > TILE_VECS / 2 * LANES)
            columns = wide_tile, width = TILE_VECS * LANES;
        else
            columns = narrow_tile, width = TILE_VECS / 2 * LANES;
        o.B = data_at(B, j);
        o.bias = bias ? bias + j : NULL;
        /* Unasked, a tile fetches the columns after its own, a flat one nothing; asked, the first flat one fetches
         * whole rows. */
        if (width > TILE_VECS * LANES)
            o.next = next && j == 0 ? next->data : NULL;
        else
            o.next = next ? data_at(*next, j) : data_at(B, j + width < n ? j + width : j);
        /* Even tiles: a last one of two rows would take as long as one of five. */
        const size_t all = (m + TILE_ROWS - 1) / TILE_ROWS;
        for (size_t i = 0, t = 0, rows; t < all; i += rows, t++) {
            rows = (m - i + all - t - 1) / (all - t);
            o.A = A + i * MHA_STAGED;
            o.C = C + i * ldc + j;
            o.factor = factor ? factor + i : NULL;
            columns(rows, &o);
        }
    }
}

#include "compute/kernels/half.h"

/* ---------------------------------------------------------------- packing */

/* 32 floats, or the first `width` of them and zeros; what is not finite makes *poison NaN. */
INLINE void pack_panel_row(const float *x, size_t width, float *to, vec poison[PANEL_VECS])
{
    UNROLL
    for (int l = 0; l < PANEL_VECS; l++) {
        const size_t from = (size_t)l * LANES;
        vec v = width >= from + LANES ? load(x + from) : from < width ? load_part(x + from, width - from, 0.0f) : (vec){0};
        poison[l] = madd(v, (vec){0}, poison[l]);
        store(to + from, v);
    }
}

static bool pack(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel)
{
    vec even[PANEL_VECS] = {{0}}, odd[PANEL_VECS] = {{0}}; /* 0 as long as everything is finite, NaN afterwards */
    const size_t full = n / MHA_PANEL * MHA_PANEL;
    for (size_t p = 0; p < k; p++) {
        const float *x = X + p * ldx;
        float *to = panels + p * MHA_PANEL;
        size_t j = 0;
        for (; j + 2 * MHA_PANEL <= full; j += 2 * MHA_PANEL, to += 2 * panel) {
            pack_panel_row(x + j, MHA_PANEL, to, even);
            pack_panel_row(x + j + MHA_PANEL, MHA_PANEL, to + panel, odd);
        }
        for (; j < full; j += MHA_PANEL, to += panel)
            pack_panel_row(x + j, MHA_PANEL, to, even);
        if (j < n)
            pack_panel_row(x + j, n - j, to, odd);
    }
    vec poison = {0};
    for (int l = 0; l < PANEL_VECS; l++)
        poison += even[l] + odd[l];
    float sum = sum_lanes(poison);
    return sum == sum;
}

/* Transposes the LANES x LANES floats at x: of each row in turn, four columns are brought beside those of the rows
 * 4, 8, ... further on; then 4 x 4 blocks are transposed inside each quarter of a vector. */
INLINE void load_transposed(const float *x, size_t ldx, vec column[LANES])
{
    UNROLL
    for (int c = 0; c < LANES; c += 4) {
        const vec r0 = quads(x + c, 4 * ldx), r1 = quads(x + c + ldx, 4 * ldx), r2 = quads(x + c + 2 * ldx, 4 * ldx),
                  r3 = quads(x + c + 3 * ldx, 4 * ldx);
        const vec a = pairs_low(r0, r1), b = pairs_high(r0, r1), d = pairs_low(r2, r3), e = pairs_high(r2, r3);
        column[c] = halves_low(a, d);
        column[c + 1] = halves_high(a, d);
        column[c + 2] = halves_low(b, e);
        column[c + 3] = halves_high(b, e);
    }
}

#include "compute/kernels/half_rows.h"

/* A square of `rows` by `columns`, filled up with zeros. */
static __attribute__((noinline)) void pack_part(size_t rows, size_t columns, const float *x, size_t ldx, float *to)
{
    float square[LANES * LANES] = {0};
    vec column[LANES];
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < columns; c++)
            square[i * LANES + c] = x[i * ldx + c];
    load_transposed(square, LANES, column);
    for (size_t c = 0; c < columns; c++)
        store(to + c * MHA_PANEL, column[c]);
}

static void pack_transposed(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel,
                            size_t after)
{
    const size_t all = (n + MHA_PANEL - 1) / MHA_PANEL * MHA_PANEL;
    const float *last = X + (n + after) * ldx;
    for (size_t j = 0; j < all; j += LANES) {
        float *to = panels + j / MHA_PANEL * panel + j % MHA_PANEL;
        const size_t rows = j >= n ? 0 : n - j < LANES ? n - j : LANES;
        const float *ahead = X + (j + LANES) * ldx;
        size_t at = 0;
        for (size_t p = 0; p < k; p += LANES, to += LANES * MHA_PANEL) {
            const float *x = X + j * ldx + p;
            if (rows < LANES || k - p < LANES) {
                pack_part(rows, k - p < LANES ? k - p : LANES, x, ldx, to);
                continue;
            }
            for (int line = 0; line < LANES && ahead < last; line++, at += 16) { /* row by row, line by line */
                if (at >= k)
                    at = 0, ahead += ldx;
                __builtin_prefetch(ahead + at, 0, 3);
            }
            vec column[LANES];
            load_transposed(x, ldx, column);
            UNROLL
            for (int c = 0; c < LANES; c++)
                store(to + c * MHA_PANEL, column[c]);
        }
    }
}

/* ---------------------------------------------------------------- few rows */

/* C (m, LANES) = A X^T: the rows of X are transposed in registers and kept nowhere, those after them fetched. */
INLINE void dots(const int m, size_t k, const float *A, const float *X, size_t ldx, float *C, size_t ldc)
{
    vec sum[MHA_FEW_ROWS];
    const float *ahead = X + LANES * ldx;
    size_t at = 0, p = 0;
    UNROLL
    for (int i = 0; i < m; i++)
        sum[i] = (vec){0};
    for (; p + LANES <= k; p += LANES) {
        vec column[LANES];
        UNROLL
        for (int line = 0; line < LANES; line++, at += 16) { /* row by row, line by line */
            if (at >= k)
                at = 0, ahead += ldx;
            __builtin_prefetch(ahead + at, 0, 3);
        }
        load_transposed(X + p, ldx, column);
        UNROLL
        for (int c = 0; c < LANES; c++)
            UNROLL
        for (int i = 0; i < m; i++)
            sum[i] = madd(splat(A[i * MHA_STAGED + (int)p + c]), column[c], sum[i]);
    }
    for (; p < k; p++) {
        float lane[LANES];
        for (size_t l = 0; l < LANES; l++)
            lane[l] = X[l * ldx + p];
        UNROLL
        for (int i = 0; i < m; i++)
            sum[i] = madd(splat(A[i * MHA_STAGED + (int)p]), load(lane), sum[i]);
    }
    UNROLL
    for (int i = 0; i < m; i++)
        store(C + (size_t)i * ldc, sum[i]);
}

#define DOTS_CASE(M)                                                                                                   \
    case M:                                                                                                            \
        for (; j + LANES <= n; j += LANES)                                                                             \
            dots(M, k, A, X + j * ldx, ldx, C + j, ldc);                                                               \
        break;

static void product_rows(size_t m, size_t n, size_t k, const float *A, const float *X, size_t ldx, float *C, size_t ldc)
{
    size_t j = 0;
    switch (m) {
        DOTS_CASE(1)
        DOTS_CASE(2)
        DOTS_CASE(3)
        DOTS_CASE(4)
    }
    for (; j < n; j++)
        for (size_t i = 0; i < m; i++) {
            vec sum = {0};
            for (size_t p = 0; p < k; p++)
                sum = madd(splat(A[i * MHA_STAGED + p]), splat(X[j * ldx + p]), sum);
            C[i * ldc + j] = sum[0];
        }
}

/* ---------------------------------------------------------------- functions */

/* exp(x) for x <= 0: x = n ln 2 + r with n rounded to nearest by adding 1.5 * 2^23; exp(r) = 1 + r + r^2 q(r), q
 * minimax on |r| <= ln(2)/2 (relative error 3.1e-9); times 2^n, whose bits are those of the sum moved to the
 * exponent. The clamp makes n at least -127, where that power is 0; NaN passes it. */
INLINE vec exp_nonpositive(vec x)
{
    const vec shift = splat(0x1.8p23f + 127.0f);
    x = greater(splat(-88.02f), x);
    vec t = madd(x, splat(0x1.715476p+0f), shift);
    vec n = t - shift;
    vec r = madd(n, splat(-0x1.62e400p-1f), x); /* ln 2 in two parts, the first exact in the product */
    r = madd(n, splat(-0x1.7f7d1cp-20f), r);
    vec q = splat(0.0013814540176801306f);
    q = madd(q, r, splat(0.0083687451089425907f));
    q = madd(q, r, splat(0.041668390783547913f));
    q = madd(q, r, splat(0.1666652039904253f));
    q = madd(q, r, splat(0.4999999343212929f));
    vec p = madd(q, r * r, r) + splat(1.0f);
    return p * (vec)((ivec)t << 23);
}

/* Below 0.625 an odd polynomial (Cephes, tanhf), above (1 - e) / (1 + e) with e = exp(-2|x|). */
INLINE vec tanh_all(vec x)
{
    const ivec sign = (ivec)x & INT32_MIN;
    vec size = (vec)((ivec)x & INT32_MAX), square = x * x;
    vec q = splat(-5.70498872745e-3f);
    q = madd(q, square, splat(2.06390887954e-2f));
    q = madd(q, square, splat(-5.37397155531e-2f));
    q = madd(q, square, splat(1.33314422036e-1f));
    q = madd(q, square, splat(-3.33332819422e-1f));
    vec near = madd(q * square, x, x);
    vec e = exp_nonpositive(splat(-2.0f) * size);
    vec far = (splat(1.0f) - e) / (splat(1.0f) + e);
    return choose(size < splat(0.625f), near, (vec)((ivec)far | sign));
}

#define FOR_ROW(EXPRESSION)                                                                                            \
    size_t i = 0;                                                                                                      \
    for (; i + LANES <= n; i += LANES) {                                                                               \
        vec x_i = load(x + i), y_i = load(y + i);                                                                      \
        (void)y_i;                                                                                                     \
        store(y + i, EXPRESSION);                                                                                      \
    }                                                                                                                  \
    if (i < n) {                                                                                                       \
        vec x_i = load_part(x + i, n - i, 0.0f), y_i = load_part(y + i, n - i, 0.0f);                                  \
        (void)y_i;                                                                                                     \
        store_part(y + i, n - i, EXPRESSION);                                                                          \
    }

static void row_exp(float *y, const float *x, size_t n)
{
    FOR_ROW(exp_nonpositive(x_i))
}

static void row_tanh(float *y, const float *x, size_t n)
{
    FOR_ROW(tanh_all(x_i))
}

static void row_scale(float *y, const float *x, size_t n, float a)
{
    const vec factor = splat(a);
    FOR_ROW(x_i * factor)
}

static void row_blend(float *y, const float *x, size_t n, float a, float b)
{
    const vec old = splat(a), new = splat(b);
    FOR_ROW(madd(y_i, old, x_i * new))
}

static void row_divide(float *y, const float *x, size_t n, float a)
{
    const vec divisor = splat(a);
    FOR_ROW(x_i / divisor)
}

/* ---------------------------------------------------------------- softmax */

static const float minus_infinity = -__builtin_inff();

/* Adds bias to the vectors [from, to) of x; hides what it or [begin, end) hides. True when a key is left. */
INLINE bool add_bias(float *x, size_t from, size_t to, size_t begin, size_t end, const float *bias)
{
    const vec hidden = splat(minus_infinity);
    ivec visible = {0};
    for (size_t i = from; i < to; i += LANES) {
        vec b;
        if (i >= begin && i + LANES <= end) {
            b = load(bias + i);
        } else {
            float lane[LANES];
            for (size_t l = 0; l < LANES; l++)
                lane[l] = i + l >= begin && i + l < end ? bias[i + l] : minus_infinity;
            b = load(lane);
        }
        ivec keeps = b != hidden;
        visible |= keeps;
        store(x + i, choose(keeps, load(x + i) + b, hidden));
    }
    for (int l = 0; l < LANES; l++)
        if (visible[l])
            return true;
    return false;
}

static float softmax_prepare(float *x, size_t n, size_t begin, size_t end, const float *bias, float softcap,
                             bool *visible)
{
    const size_t from = begin / LANES * LANES, to = (end + LANES - 1) / LANES * LANES, room = (n + 15) / 16 * 16;
    const vec hidden = splat(minus_infinity);
    if (begin >= end) {
        for (size_t i = 0; i < room; i += LANES)
            store(x + i, hidden);
        return minus_infinity;
    }
    for (size_t i = 0; i < from; i += LANES)
        store(x + i, hidden);
    for (size_t i = to; i < room; i += LANES)
        store(x + i, hidden);
    if (softcap > 0.0f) {
        const vec cap = splat(softcap);
        for (size_t i = from; i < to; i += LANES)
            store(x + i, cap * tanh_all(load(x + i) / cap));
    }
    if (bias) {
        *visible |= add_bias(x, from, to, begin, end, bias);
    } else {
        for (size_t i = from; i < begin; i++)
            x[i] = minus_infinity;
        for (size_t i = end; i < to; i++)
            x[i] = minus_infinity;
        *visible = true;
    }
    vec high[4] = {hidden, hidden, hidden, hidden};
    size_t i = from;
    for (; i + 4 * LANES <= to; i += 4 * LANES) {
        UNROLL
        for (int w = 0; w < 4; w++)
            high[w] = greater(load(x + i + w * LANES), high[w]);
    }
    for (; i < to; i += LANES)
        high[0] = greater(load(x + i), high[0]);
    return max_lanes(greater(greater(high[0], high[1]), greater(high[2], high[3])));
}

static float softmax_weigh(float *x, size_t n, float max)
{
    const size_t room = (n + 15) / 16 * 16;
    if (max == minus_infinity) {
        float sum = 0.0f;
        for (size_t i = 0; i < room; i++) {
            sum = x[i] != x[i] ? x[i] : sum;
            x[i] = 0.0f;
        }
        return sum;
    }
    const vec shift = splat(max);
    vec sum[4] = {{0}};
    size_t i = 0;
    for (; i + 4 * LANES <= room; i += 4 * LANES) {
        UNROLL
        for (int w = 0; w < 4; w++) {
            vec e = exp_nonpositive(load(x + i + w * LANES) - shift);
            store(x + i + w * LANES, e);
            sum[w] += e;
        }
    }
    for (int w = 0; i < room; i += LANES, w++) { /* the same of the four sums whatever n is */
        vec e = exp_nonpositive(load(x + i) - shift);
        store(x + i, e);
        sum[w] += e;
    }
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* ---------------------------------------------------------------- the limit */

static double peak(size_t rounds, float *sink)
{
    enum { CHAINS = LANES == 16 ? 24 : 12 }; /* enough to hide the latency, few enough for the registers */
    vec sum[CHAINS], a = splat(1.0f + *sink), b = splat(1.0f - *sink);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = splat((float)c); /* equal chains would be computed once */
    for (size_t r = 0; r < rounds; r++) {
        UNROLL
        for (int c = 0; c < CHAINS; c++)
            sum[c] = madd(a, b, sum[c]);
    }
    for (int c = 0; c < CHAINS; c++)
        *sink += sum_lanes(sum[c]);
    return 2.0 * CHAINS * LANES * (double)rounds;
}

static float read_all(const float *x, size_t n)
{
    vec sum[8] = {{0}};
    for (size_t i = 0; i + 8 * LANES <= n; i += 8 * LANES) {
        UNROLL
        for (int w = 0; w < 8; w++) {
            sum[w] += load(x + i + w * LANES);
            if (w * LANES % 16 == 0)
                __builtin_prefetch(x + i + w * LANES + 1024, 0, 3); /* a page ahead, where the hardware stops */
        }
    }
    for (int w = 1; w < 8; w++)
        sum[0] += sum[w];
    return sum_lanes(sum[0]);
}

/* ---------------------------------------------------------------- the table */

const mha_kernels KERNELS = {
    .isa = ISA_NAME,
    .tile_rows = TILE_ROWS,
    .product = product,
    .product_half = product_half,
    .product_half_rows = product_half_rows,
    .widen = widen,
    .narrow = narrow,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .product_rows = product_rows,
    .softmax_prepare = softmax_prepare,
    .softmax_weigh = softmax_weigh,
    .exp = row_exp,
    .tanh = row_tanh,
    .scale = row_scale,
    .blend = row_blend,
    .divide = row_divide,
    .peak = peak,
    .read = read_all,
};
