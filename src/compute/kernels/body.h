/* The body of every kernel, written once. A file per instruction set includes it after saying:
 *   ISA_NAME, ISA_LANES    name; floats in a vector
 *   TILE_ROWS, TILE_VECS   registers of the product's accumulator: TILE_ROWS x TILE_VECS vectors
 *   KERNELS                name of the table it exports
 *   vec                    GNU C vector of ISA_LANES floats
 *   madd(a, b, c)          a * b + c
 *   greater(a, b)          the larger; b when one is NaN */
#include <stdint.h>

#include "compute/kernels/list.h"

#define LANES ISA_LANES
#define PANEL_VECS (MHA_PANEL / LANES)
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

/* One register tile: m rows and nv vectors are constants wherever this is expanded. */
INLINE void tile(const int m, const int nv, size_t k, const float *A, const float *B, float *C, size_t ldc, size_t n,
                 const float *factor, const float *bias)
{
    vec sum[TILE_ROWS][TILE_VECS];
UNROLL
    for (int i = 0; i < m; i++)
UNROLL
        for (int j = 0; j < nv; j++)
            sum[i][j] = (vec){0};
    for (size_t p = 0; p < k; p++, A++, B += MHA_PANEL) {
        vec b[TILE_VECS];
UNROLL
        for (int j = 0; j < nv; j++)
            b[j] = load(B + j * LANES);
UNROLL
        for (int i = 0; i < m; i++) {
            vec a = splat(A[i * MHA_STAGED]);
UNROLL
            for (int j = 0; j < nv; j++)
                sum[i][j] = madd(a, b[j], sum[i][j]);
        }
    }
    if (n >= (size_t)nv * LANES) {
UNROLL
        for (int i = 0; i < m; i++)
UNROLL
            for (int j = 0; j < nv; j++) {
                float *c = C + (size_t)i * ldc + j * LANES;
                vec x = sum[i][j];
                if (factor)
                    x = madd(splat(factor[i]), load(c), x);
                else if (bias)
                    x = load(bias + j * LANES) + x;
                store(c, x);
            }
        return;
    }
    float spill[TILE_ROWS][TILE_VECS * LANES];
UNROLL
    for (int i = 0; i < m; i++)
UNROLL
        for (int j = 0; j < nv; j++)
            store(spill[i] + j * LANES, sum[i][j]);
    for (int i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += LANES) {
            float *c = C + (size_t)i * ldc + j;
            size_t left = n - j < LANES ? n - j : LANES;
            vec x = load(spill[i] + j);
            if (factor)
                x = madd(splat(factor[i]), load_part(c, left, 0.0f), x);
            else if (bias)
                x = load_part(bias + j, left, 0.0f) + x;
            store_part(c, left, x);
        }
}

/* Runs the tile of m rows: the full width, or half of it where few columns are left. */
#define TILE_CASE(M)                                                                               \
    case M:                                                                                        \
        if (M <= TILE_ROWS)                                                                        \
            tile(M <= TILE_ROWS ? M : 1, TILE_NV, k, A, B, C, ldc, n, factor, bias);               \
        break;
#define TILE_CASES                                                                                 \
    TILE_CASE(1) TILE_CASE(2) TILE_CASE(3) TILE_CASE(4) TILE_CASE(5) TILE_CASE(6) TILE_CASE(7)     \
    TILE_CASE(8) TILE_CASE(9) TILE_CASE(10) TILE_CASE(11) TILE_CASE(12) TILE_CASE(13) TILE_CASE(14)

static __attribute__((noinline)) void tile_wide(size_t m, size_t n, size_t k, const float *A, const float *B, float *C,
                                                size_t ldc, const float *factor, const float *bias)
{
    enum { TILE_NV = TILE_VECS };
    switch (m) { TILE_CASES }
}

static __attribute__((noinline)) void tile_narrow(size_t m, size_t n, size_t k, const float *A, const float *B, float *C,
                                                  size_t ldc, const float *factor, const float *bias)
{
    enum { TILE_NV = TILE_VECS / 2 };
    switch (m) { TILE_CASES }
}

static void product(size_t m, size_t n, size_t k, const float *A, const float *B, size_t panel_stride, float *C,
                    size_t ldc, const float *factor, const float *bias)
{
    enum { WIDTH = TILE_VECS * LANES };
    for (size_t j = 0; j < n; j += WIDTH) {
        const float *columns = B + j / MHA_PANEL * panel_stride + j % MHA_PANEL;
        for (size_t i = 0; i < m; i += TILE_ROWS)
            (n - j <= WIDTH / 2 ? tile_narrow : tile_wide)(m - i < TILE_ROWS ? m - i : TILE_ROWS, n - j, k,
                                                           A + i * MHA_STAGED, columns, C + i * ldc + j, ldc,
                                                           factor ? factor + i : NULL, bias ? bias + j : NULL);
    }
}

/* ---------------------------------------------------------------- packing */

static bool pack(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel_stride)
{
    vec poison = {0}; /* 0 as long as everything is finite, NaN afterwards */
    for (size_t j = 0; j < n; j += MHA_PANEL) {
        float *panel = panels + j / MHA_PANEL * panel_stride;
        size_t width = n - j < MHA_PANEL ? n - j : MHA_PANEL;
        for (size_t p = 0; p < k; p++, panel += MHA_PANEL) {
            const float *x = X + p * ldx + j;
            for (size_t l = 0; l < MHA_PANEL; l += LANES) {
                vec v = width >= l + LANES ? load(x + l) : l < width ? load_part(x + l, width - l, 0.0f) : (vec){0};
                poison = madd(v, (vec){0}, poison);
                store(panel + l, v);
            }
        }
    }
    float sum = sum_lanes(poison);
    return sum == sum;
}

/* Transposes LANES rows in registers: zipping row i with row i + LANES / 2, log2(LANES) times over. */
INLINE void transpose(vec row[LANES])
{
UNROLL
    for (int width = 1; width < LANES; width *= 2) {
        vec next[LANES];
UNROLL
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = zip_low(row[i], row[i + LANES / 2]);
            next[2 * i + 1] = zip_high(row[i], row[i + LANES / 2]);
        }
UNROLL
        for (int i = 0; i < LANES; i++)
            row[i] = next[i];
    }
}

static void pack_transposed(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel_stride)
{
    for (size_t j = 0; j < n; j += MHA_PANEL)
        for (size_t l = 0; l < MHA_PANEL; l += LANES) {
            float *panel = panels + j / MHA_PANEL * panel_stride + l;
            size_t rows = n < j + l ? 0 : n - j - l < LANES ? n - j - l : LANES;
            for (size_t p = 0; p < k; p += LANES) {
                size_t columns = k - p < LANES ? k - p : LANES;
                vec row[LANES];
                const float *x = X + (j + l) * ldx + p;
                if (rows == LANES && columns == LANES) {
UNROLL
                    for (int i = 0; i < LANES; i++)
                        row[i] = load(x + (size_t)i * ldx);
                } else {
                    for (size_t i = 0; i < LANES; i++)
                        row[i] = i < rows ? load_part(x + i * ldx, columns, 0.0f) : (vec){0};
                }
                transpose(row);
                for (size_t i = 0; i < columns; i++)
                    store(panel + (p + i) * MHA_PANEL, row[i]);
            }
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

#define FOR_ROW(EXPRESSION)                                                                        \
    size_t i = 0;                                                                                  \
    for (; i + LANES <= n; i += LANES) {                                                           \
        vec x_i = load(x + i), y_i = load(y + i);                                                  \
        (void)y_i;                                                                                 \
        store(y + i, EXPRESSION);                                                                  \
    }                                                                                              \
    if (i < n) {                                                                                   \
        vec x_i = load_part(x + i, n - i, 0.0f), y_i = load_part(y + i, n - i, 0.0f);              \
        (void)y_i;                                                                                 \
        store_part(y + i, n - i, EXPRESSION);                                                      \
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

static float softmax_step(float *x, size_t n, size_t begin, size_t end, const float *bias, float softcap,
                          mha_softmax_state *state)
{
    const size_t from = begin / LANES * LANES, to = (end + LANES - 1) / LANES * LANES, room = (n + 15) / 16 * 16;
    if (begin >= end) {
        for (size_t i = 0; i < room; i += LANES)
            store(x + i, (vec){0});
        return 1.0f;
    }
    for (size_t i = 0; i < from; i += LANES)
        store(x + i, (vec){0});
    for (size_t i = to; i < room; i += LANES)
        store(x + i, (vec){0});
    if (softcap > 0.0f) {
        const vec cap = splat(softcap);
        for (size_t i = from; i < to; i += LANES)
            store(x + i, cap * tanh_all(load(x + i) / cap));
    }
    bool visible = true;
    if (bias) {
        visible = add_bias(x, from, to, begin, end, bias);
    } else {
        for (size_t i = from; i < begin; i++)
            x[i] = minus_infinity;
        for (size_t i = end; i < to; i++)
            x[i] = minus_infinity;
    }

    vec high[4] = {splat(minus_infinity), splat(minus_infinity), splat(minus_infinity), splat(minus_infinity)};
    size_t at = from;
    for (; at + 4 * LANES <= to; at += 4 * LANES) {
        UNROLL
        for (int u = 0; u < 4; u++)
            high[u] = greater(load(x + at + u * LANES), high[u]);
    }
    for (; at < to; at += LANES)
        high[0] = greater(load(x + at), high[0]);
    const float found = max_lanes(greater(greater(high[0], high[1]), greater(high[2], high[3])));
    const float old = state->max, max = found > old ? found : old;
    state->visible |= visible;
    if (max == minus_infinity) { /* nothing visible yet, or nothing above -inf: only NaN leaves a trace */
        for (size_t i = from; i < to; i++) {
            if (x[i] != x[i])
                state->sum = x[i];
            x[i] = 0.0f;
        }
        return 1.0f;
    }

    const vec shift = splat(max);
    vec sum[4] = {{0}};
    for (at = from; at + 4 * LANES <= to; at += 4 * LANES) {
        UNROLL
        for (int u = 0; u < 4; u++) {
            vec e = exp_nonpositive(load(x + at + u * LANES) - shift);
            store(x + at + u * LANES, e);
            sum[u] += e;
        }
    }
    for (; at < to; at += LANES) {
        vec e = exp_nonpositive(load(x + at) - shift);
        store(x + at, e);
        sum[0] += e;
    }
    float factor = old == max ? 1.0f : old == minus_infinity ? 0.0f : exp_nonpositive(splat(old - max))[0];
    state->max = max;
    state->sum = state->sum * factor + sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
    return factor;
}

/* ---------------------------------------------------------------- the table */

const mha_kernels KERNELS = {
    .isa = ISA_NAME,
    .tile_rows = TILE_ROWS,
    .product = product,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .softmax_step = softmax_step,
    .exp = row_exp,
    .tanh = row_tanh,
    .scale = row_scale,
    .blend = row_blend,
    .divide = row_divide,
};
