/* Part of the body of every kernel: few rows times the transpose of rows that are read once. */

/* C (m, LANES) = A X^T, the rows of X transposed in registers. Prefetches the rows after them, and with m above
 * MHA_FEW_ROWS as many rows at `next`. */
INLINE void dots(const int m, size_t k, const float *A, const float *X, size_t ldx, const float *next, size_t ld_next,
                 float *C, size_t ldc)
{
    vec sum[MOST_FEW_ROWS];
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
                at = 0, ahead += ldx, next += m > MHA_FEW_ROWS ? ld_next : 0;
            __builtin_prefetch(ahead + at, 0, 3);
            if (m > MHA_FEW_ROWS)
                __builtin_prefetch(next + at, 0, 2);
        }
        const float *a = A + p;
        load_transposed(X + p, ldx, column);
        UNROLL
        for (int c = 0; c < LANES; c++)
            UNROLL
        for (int i = 0; i < m; i++)
            sum[i] = madd(splat(a[i * MHA_STAGED + c]), column[c], sum[i]);
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

#define DOTS_CASE(M, X)                                                                                                \
    case M:                                                                                                            \
        for (size_t j = 0; M <= MOST_FEW_ROWS && j < n; j += LANES) {                                                  \
            j = n - j < LANES ? n - LANES : j; /* the last keys, some of them once more */                             \
            dots(M <= MOST_FEW_ROWS ? M : 1, k, A, X + j * ldx, ldx, next + j * ld_next, ld_next, C + j, ldc);         \
        }                                                                                                              \
        break;

/* n is at least LANES. */
static void dots_of_all(size_t m, size_t n, size_t k, const float *A, const float *X, size_t ldx, const float *next,
                        size_t ld_next, float *C, size_t ldc)
{
    switch (m) {
        CASES_TO_8(DOTS_CASE, X)
    }
}

static void product_rows(size_t m, size_t n, size_t k, const float *A, const float *X, size_t ldx, const float *next,
                         size_t ld_next, float *C, size_t ldc)
{
    if (!next)
        next = X, ld_next = ldx;
    if (n >= LANES) {
        dots_of_all(m, n, k, A, X, ldx, next, ld_next, C, ldc);
        return;
    }
    float rows[LANES * MHA_BLOCK], found[MOST_FEW_ROWS * LANES];
    for (size_t i = 0; i < LANES; i++) /* the last row stands for those behind it, too */
        __builtin_memcpy(rows + i * k, X + (i < n ? i : n - 1) * ldx, k * sizeof *rows);
    dots_of_all(m, LANES, k, A, rows, k, rows, 0, found, LANES);
    for (size_t i = 0; i < m; i++)
        __builtin_memcpy(C + i * ldc, found + i * LANES, n * sizeof *C);
}
