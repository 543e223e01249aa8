/* Part of the body of every kernel: few rows times the transpose of rows of 16 bits, which are read once, and
 * transposed and widened in registers. */

/* Groups of LANES rows. MOST_GROUPS: with one row of x, enough independent sums to hide the latency of an addition.
 * FEW_GROUPS: with two and four rows. IN_TURNS: the columns of two groups are multiplied in turns, because the
 * registers hold the transposed words of both. */
enum { MOST_GROUPS = MHA_PANEL / LANES < 4 ? MHA_PANEL / LANES : 4, FEW_GROUPS = 2, IN_TURNS = LANES <= 8 };

/* Number u of each lane, of two, as floats. */
INLINE vec number_of_lanes(vec words, const int u, const narrow_kind kind)
{
    const bits_vec bits = (bits_vec)words;
    if (kind == KIND_BF16)
        return (vec)(u ? bits & 0xffff0000u : bits << 16);
    return half_lanes(u ? (vec)(bits >> 16) : words);
}

/* Vector c holds, of LANES rows, the columns that fill word c, in a lane each; zeros beyond `rows` and `bytes`. */
INLINE void load_words(const unsigned char *x, size_t row, size_t rows, size_t n_bytes, vec words[LANES])
{
    if (rows >= LANES && n_bytes >= sizeof(vec)) {
        load_transposed((const float *)(const void *)x, row / sizeof(float), words);
        return;
    }
    float square[LANES * LANES] = {0};
    for (size_t i = 0; i < rows && i < LANES; i++)
        __builtin_memcpy(square + i * LANES, x + i * row, n_bytes < sizeof(vec) ? n_bytes : sizeof(vec));
    load_transposed(square, LANES, words);
}

/* C (m, groups * LANES) = A X^T, where X has n rows; m and groups are constants wherever this is expanded. */
INLINE void half_dots(const int m, const int groups, size_t n, size_t k, const float *A, const unsigned char *X,
                      size_t ldx, float *C, size_t ldc, const narrow_kind kind)
{
    enum { IN_WORD = 2 };
    const int at_once = IN_TURNS ? groups : 1;
    const size_t row = bytes_of(ldx, kind), row_bytes = bytes_of(k, kind), wide = (size_t)IN_WORD * LANES;
    vec sum[MHA_FEW_ROWS][MOST_GROUPS];
    const unsigned char *ahead = X + 2 * (size_t)groups * LANES * row;
    size_t at = 0;
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int g = 0; g < groups; g++)
        sum[i][g] = (vec){0};
    for (size_t p = 0; p < k; p += wide)
        UNROLL
    for (int from = 0; from < groups; from += at_once) {
        vec words[MOST_GROUPS][LANES];
        UNROLL
        for (int g = from; g < from + at_once; g++) {
            const size_t first = (size_t)g * LANES;
            for (int line = 0; line < LANES; line++, at += 64) { /* hints: row by row, line by line */
                if (at >= row_bytes)
                    at = 0, ahead += row;
                __builtin_prefetch(ahead + at, 0, 3);
            }
            load_words(X + first * row + bytes_of(p, kind), row, n > first ? n - first : 0, bytes_of(k - p, kind),
                       words[g]);
        }
        const float *a = A + p;
        if (k - p < wide) {
            vec last[MOST_GROUPS][LANES]; /* apart from words, which then can be registers */
            __builtin_memcpy(last, words, sizeof last);
            for (size_t c = 0; c < k - p; c++)
                for (int g = from; g < from + at_once; g++) {
                    const vec x = number_of_lanes(last[g][c / IN_WORD], (int)(c % IN_WORD), kind);
                    for (int i = 0; i < m; i++)
                        sum[i][g] = madd(splat(a[(size_t)i * MHA_STAGED + c]), x, sum[i][g]);
                }
            continue;
        }
        UNROLL
        for (int c = 0; c < LANES; c++)
            UNROLL
        for (int u = 0; u < IN_WORD; u++)
            UNROLL
        for (int g = from; g < from + at_once; g++) {
            const vec x = number_of_lanes(words[g][c], u, kind);
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i][g] = madd(splat(a[i * MHA_STAGED + IN_WORD * c + u]), x, sum[i][g]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int g = 0; g < groups; g++)
        store(C + (size_t)i * ldc + g * LANES, sum[i][g]);
}

#define DEFINE_HALF_DOTS(NAME, M, GROUPS, KIND)                                                                        \
    static __attribute__((noinline)) void NAME(size_t n, size_t k, const float *A, const unsigned char *X, size_t ldx, \
                                               float *C, size_t ldc)                                                   \
    {                                                                                                                  \
        for (size_t j = 0; j < n; j += (GROUPS)*LANES)                                                                 \
            half_dots(M, GROUPS, n - j, k, A, X + bytes_of(j * ldx, KIND), ldx, C + j, ldc, KIND);                     \
    }

DEFINE_HALF_DOTS(dots_1_f16, 1, FEW_GROUPS, KIND_F16)
DEFINE_HALF_DOTS(dots_2_f16, 2, FEW_GROUPS, KIND_F16)
DEFINE_HALF_DOTS(dots_4_f16, 4, FEW_GROUPS, KIND_F16)
DEFINE_HALF_DOTS(dots_1_bf16, 1, FEW_GROUPS, KIND_BF16)
DEFINE_HALF_DOTS(dots_2_bf16, 2, FEW_GROUPS, KIND_BF16)
DEFINE_HALF_DOTS(dots_4_bf16, 4, FEW_GROUPS, KIND_BF16)
