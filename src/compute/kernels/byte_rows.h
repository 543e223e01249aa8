/* Part of the body of every kernel: few rows times the transpose of rows of 8 bits, which are read once and transposed
 * in registers; and the function that chooses between them and rows of 16 bits. */

typedef unsigned char byte_vec __attribute__((vector_size(4 * ISA_LANES), aligned(1), may_alias));

/* The bytes of a and b interleaved: in each quarter (16 bytes) those of its first half, or of its second half. */
#define PAIRS(at) at, at + 4 * LANES, at + 1, at + 1 + 4 * LANES, at + 2, at + 2 + 4 * LANES, at + 3, at + 3 + 4 * LANES
#define EIGHT_PAIRS(at) PAIRS(at), PAIRS(at + 4)
#if ISA_LANES == 4
#define BY_QUARTER(at) EIGHT_PAIRS(at)
#elif ISA_LANES == 8
#define BY_QUARTER(at) EIGHT_PAIRS(at), EIGHT_PAIRS(at + 16)
#elif ISA_LANES == 16
#define BY_QUARTER(at) EIGHT_PAIRS(at), EIGHT_PAIRS(at + 16), EIGHT_PAIRS(at + 32), EIGHT_PAIRS(at + 48)
#endif
#define zip_bytes_low(a, b) __builtin_shufflevector(a, b, BY_QUARTER(0))
#define zip_bytes_high(a, b) __builtin_shufflevector(a, b, BY_QUARTER(8))

enum { COLUMNS_AT_ONCE = 4 * LANES };
#ifdef __clang__
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* Writes COLUMNS_AT_ONCE columns of LANES rows of bytes, column by column; zeros beyond `rows` and `n` columns. */
INLINE void transpose_bytes(const unsigned char *x, size_t row, size_t rows, size_t n, unsigned char *columns)
{
    unsigned char square[LANES * COLUMNS_AT_ONCE];
    byte_vec part[LANES];
    if (rows < LANES || n < COLUMNS_AT_ONCE) {
        __builtin_memset(square, 0, sizeof square);
        for (size_t i = 0; i < rows && i < LANES; i++)
            __builtin_memcpy(square + i * COLUMNS_AT_ONCE, x + i * row, n < COLUMNS_AT_ONCE ? n : COLUMNS_AT_ONCE);
        x = square, row = COLUMNS_AT_ONCE;
    }
    UNROLL
    for (int i = 0; i < LANES; i++)
        part[i] = *(const byte_vec *)(x + (size_t)i * row);
    UNROLL
    for (int width = LANES / 2; width > 0; width /= 2)
        UNROLL
    for (int pair = 0; pair < LANES / 2; pair++) {
        const int i = pair / width * 2 * width + pair % width;
        const byte_vec a = part[i], b = part[i + width];
        part[i] = zip_bytes_low(a, b);
        part[i + width] = zip_bytes_high(a, b);
    }
    UNROLL
    for (int i = 0; i < LANES; i++)
        UNROLL
    for (int quarter = 0; quarter < LANES / 4; quarter++)
        __builtin_memcpy(columns + 16 * (quarter * LANES + i), (const unsigned char *)&part[i] + 16 * quarter, 16);
}

/* C (m, groups * LANES) = A X^T, where X has n rows of k codes and a scale each; m and groups are constants wherever
 * this is expanded. */
INLINE void byte_dots(const int m, const int groups, size_t n, size_t k, const float *A, const unsigned char *X,
                      size_t row, float *C, size_t ldc)
{
    vec sum[MHA_FEW_ROWS][MOST_GROUPS], scale[MOST_GROUPS];
    float scales[MOST_GROUPS * LANES] = {0};
    const unsigned char *ahead = X + 2 * (size_t)groups * LANES * row;
    for (size_t i = 0; i < n && i < (size_t)groups * LANES; i++)
        scales[i] = scale_before(X + (i + 1) * row);
    UNROLL
    for (int g = 0; g < groups; g++) {
        scale[g] = load(scales + g * LANES);
        UNROLL
        for (int i = 0; i < m; i++)
            sum[i][g] = (vec){0};
    }
    for (size_t p = 0; p < k; p += COLUMNS_AT_ONCE) {
        unsigned char columns[MOST_GROUPS][COLUMNS_AT_ONCE * LANES];
        const size_t there = k - p < COLUMNS_AT_ONCE ? k - p : COLUMNS_AT_ONCE;
        UNROLL
        for (int g = 0; g < groups; g++) {
            const size_t first = (size_t)g * LANES;
            for (size_t i = 0; i < LANES && p % 64 == 0; i++)
                __builtin_prefetch(ahead + (first + i) * row + p, 0, 3);
            transpose_bytes(X + first * row + p, row, n > first ? n - first : 0, k - p, columns[g]);
        }
        const float *a = A + p;
        UNROLL_4
        for (size_t c = 0; c < there; c++)
            UNROLL
        for (int g = 0; g < groups; g++) {
            const vec x = bytes(columns[g] + c * LANES) * scale[g];
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i][g] = madd(splat(a[(size_t)i * MHA_STAGED + c]), x, sum[i][g]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int g = 0; g < groups; g++)
        store(C + (size_t)i * ldc + g * LANES, sum[i][g]);
}

#define DEFINE_BYTE_DOTS(NAME, M, GROUPS)                                                                              \
    static __attribute__((noinline)) void NAME(size_t n, size_t k, const float *A, const unsigned char *X, size_t ldx, \
                                               float *C, size_t ldc)                                                   \
    {                                                                                                                  \
        for (size_t j = 0; j < n; j += (GROUPS)*LANES)                                                                 \
            byte_dots(M, GROUPS, n - j, k, A, X + j * ldx, ldx, C + j, ldc);                                           \
    }

DEFINE_BYTE_DOTS(dots_1_i8, 1, MOST_GROUPS)
DEFINE_BYTE_DOTS(dots_2_i8, 2, MOST_GROUPS)
DEFINE_BYTE_DOTS(dots_4_i8, 4, FEW_GROUPS)

static void product_half_rows(size_t m, size_t n, size_t k, const float *A, const void *X, size_t ldx, mha_dtype dtype,
                              float *C, size_t ldc)
{
    static void (*const dots_of[3][3])(size_t, size_t, const float *, const unsigned char *, size_t, float *,
                                       size_t) = {{dots_1_f16, dots_1_bf16, dots_1_i8},
                                                  {dots_2_f16, dots_2_bf16, dots_2_i8},
                                                  {dots_4_f16, dots_4_bf16, dots_4_i8}};
    const narrow_kind kind = kind_of(dtype);
    if (m >= 2)
        dots_of[m / 2][kind](n, k, A, X, ldx, C, ldc);
    if (m % 2)
        dots_of[0][kind](n, k, A + (m - 1) * MHA_STAGED, X, ldx, C + (m - 1) * ldc, ldc);
}
