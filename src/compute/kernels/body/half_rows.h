/* Part of the body of every kernel: few rows times the transpose of rows of 16 bits, which are read once, and
 * transposed and widened in registers. */

enum { HALF_GROUPS = 2, HALF_AHEAD = 2 * HALF_GROUPS };

/* The numbers in the lower halves of the lanes as floats, and those in the upper halves. */
INLINE vec lower_halves(vec pairs, const bool brain)
{
    return brain ? (vec)((ivec)pairs << 16) : half_lanes(pairs);
}

INLINE vec upper_halves(vec pairs, const bool brain)
{
    typedef uint32_t uvec __attribute__((vector_size(4 * ISA_LANES)));
    return brain ? (vec)((uvec)pairs & 0xffff0000u) : half_lanes((vec)((uvec)pairs >> 16));
}

/* Vector c holds columns 2c and 2c + 1 of LANES rows, two numbers in each lane; zeros beyond `rows` and `columns`. */
INLINE void load_pairs(const uint16_t *x, size_t ldx, size_t rows, size_t columns, vec pairs[LANES])
{
    if (rows >= LANES && columns >= 2 * LANES) {
        load_transposed((const float *)(const void *)x, ldx / 2, pairs);
        return;
    }
    float square[LANES * LANES] = {0};
    for (size_t i = 0; i < rows && i < LANES; i++)
        __builtin_memcpy(square + i * LANES, x + i * ldx, (columns < 2 * LANES ? columns : 2 * LANES) * sizeof *x);
    load_transposed(square, LANES, pairs);
}

/* C (m, HALF_GROUPS * LANES) = A X^T, where X has n rows; m is a constant wherever this is expanded. */
INLINE void half_dots(const int m, size_t n, size_t k, const float *A, const uint16_t *X, size_t ldx, float *C,
                      size_t ldc, const bool brain)
{
    vec sum[MHA_FEW_ROWS][HALF_GROUPS];
    const uint16_t *ahead = X + (size_t)HALF_AHEAD * LANES * ldx;
    size_t at = 0;
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int g = 0; g < HALF_GROUPS; g++)
        sum[i][g] = (vec){0};
    for (size_t p = 0; p < k; p += 2 * LANES) {
        const size_t columns = k - p < 2 * LANES ? k - p : 2 * LANES;
        UNROLL
        for (int g = 0; g < HALF_GROUPS; g++) {
            const size_t first = (size_t)g * LANES;
            vec pairs[LANES];
            for (int line = 0; line < LANES; line++, at += 32) { /* hints: row by row, line by line */
                if (at >= k)
                    at = 0, ahead += ldx;
                __builtin_prefetch(ahead + at, 0, 3);
            }
            load_pairs(X + first * ldx + p, ldx, n > first ? n - first : 0, columns, pairs);
            const float *a = A + p;
            if (columns < 2 * LANES) {
                for (size_t c = 0; c < columns; c++) {
                    const vec x = c % 2 ? upper_halves(pairs[c / 2], brain) : lower_halves(pairs[c / 2], brain);
                    for (int i = 0; i < m; i++)
                        sum[i][g] = madd(splat(a[(size_t)i * MHA_STAGED + c]), x, sum[i][g]);
                }
                continue;
            }
            UNROLL
            for (int c = 0; c < LANES; c++) {
                const vec low = lower_halves(pairs[c], brain), high = upper_halves(pairs[c], brain);
                UNROLL
                for (int i = 0; i < m; i++) {
                    sum[i][g] = madd(splat(a[i * MHA_STAGED + 2 * c]), low, sum[i][g]);
                    sum[i][g] = madd(splat(a[i * MHA_STAGED + 2 * c + 1]), high, sum[i][g]);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int g = 0; g < HALF_GROUPS; g++)
        store(C + (size_t)i * ldc + g * LANES, sum[i][g]);
}

#define DEFINE_HALF_DOTS(NAME, M, BRAIN)                                                                               \
    static __attribute__((noinline)) void NAME(size_t n, size_t k, const float *A, const uint16_t *X, size_t ldx,      \
                                               float *C, size_t ldc)                                                   \
    {                                                                                                                  \
        for (size_t j = 0; j < n; j += HALF_GROUPS * LANES)                                                            \
            half_dots(M, n - j, k, A, X + j * ldx, ldx, C + j, ldc, BRAIN);                                            \
    }

DEFINE_HALF_DOTS(dots_1_f16, 1, false)
DEFINE_HALF_DOTS(dots_2_f16, 2, false)
DEFINE_HALF_DOTS(dots_4_f16, 4, false)
DEFINE_HALF_DOTS(dots_1_bf16, 1, true)
DEFINE_HALF_DOTS(dots_2_bf16, 2, true)
DEFINE_HALF_DOTS(dots_4_bf16, 4, true)

static void product_half_rows(size_t m, size_t n, size_t k, const float *A, const uint16_t *X, size_t ldx,
                              mha_dtype dtype, float *C, size_t ldc)
{
    const bool brain = dtype == MHA_BF16;
    if (m == 4) {
        (brain ? dots_4_bf16 : dots_4_f16)(n, k, A, X, ldx, C, ldc);
        return;
    }
    if (m >= 2)
        (brain ? dots_2_bf16 : dots_2_f16)(n, k, A, X, ldx, C, ldc);
    if (m % 2)
        (brain ? dots_1_bf16 : dots_1_f16)(n, k, A + (m - 1) * MHA_STAGED, X, ldx, C + (m - 1) * ldc, ldc);
}
