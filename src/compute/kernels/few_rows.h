/* Part of the body of every kernel: few rows times the transpose of rows that are read once. */

/* Groups of LANES rows beyond the following group that 2 to MHA_FEW_ROWS rows fetch into the second level. Eight caches
 * of 4,096 keys of width 128 took 0.95 of the time without (AVX-512, family 6 model 207, 2026-11-30); 7 groups 0.97. */
enum { GROUPS_BEYOND = 3 };

/* Lines of rows that are fetched row by row: of `ahead`, of the groups beyond, and of `next`. */
typedef struct lines {
    const float *ahead, *next;
    size_t row, next_row, line;
} lines;

/* Fetches the next line of rows of k floats. */
INLINE void fetch_line(const int m, size_t k, lines *to)
{
    if (to->line >= k)
        to->line = 0, to->ahead += to->row, to->next += m > MHA_FEW_ROWS ? to->next_row : 0;
    __builtin_prefetch(to->ahead + to->line, 0, 3);
    if (m > MHA_FEW_ROWS)
        __builtin_prefetch(to->next + to->line, 0, 2);
    else if (m > 1)
        __builtin_prefetch(to->ahead + GROUPS_BEYOND * LANES * to->row + to->line, 0, 2);
    to->line += 16;
}

/* C (m, LANES) = A X^T, the rows of X transposed in registers. Prefetches the rows after those; with m above
 * MHA_FEW_ROWS as many rows at `next`, with fewer, but not one, those of a later group. */
INLINE void dots(const int m, size_t k, const float *A, const float *X, size_t ldx, const float *next, size_t ld_next,
                 float *C, size_t ldc)
{
    vec sum[MOST_FEW_ROWS];
    lines soon = {X + LANES * ldx, next, ldx, ld_next, 0};
    size_t p = 0;
    UNROLL
    for (int i = 0; i < m; i++)
        sum[i] = (vec){0};
    for (; p + LANES <= k; p += LANES) {
        vec column[LANES];
        const float *a = A + p;
        for (int c = 0; m == 1 && c < LANES; c++)
            fetch_line(m, k, &soon);
        if (m > MHA_FEW_ROWS) /* four rows at a time: registers hold no more beside so many sums */
            load_transposed(X + p, ldx, column);
        else {
            vec row[LANES];
            UNROLL
            for (int l = 0; l < LANES; l++)
                row[l] = load(X + p + (size_t)l * ldx);
            transpose(row, column);
        }
        UNROLL
        for (int c = 0; c < LANES; c++) {
            if (m > 1) /* between products: all hints at once are in each other's way */
                fetch_line(m, k, &soon);
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i] = madd(splat(a[i * MHA_STAGED + c]), column[c], sum[i]);
        }
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

INLINE void dots_by_group(const int m, size_t n, size_t k, const float *A, const float *X, size_t ldx,
                          const float *next, size_t ld_next, float *C, size_t ldc)
{
    for (size_t j = 0; j < n; j += LANES) {
        j = n - j < LANES ? n - LANES : j; /* the last keys, some of them once more */
        dots(m, k, A, X + j * ldx, ldx, next + j * ld_next, ld_next, C + j, ldc);
    }
}

/* n is at least LANES. */
static void dots_of_all(size_t m, size_t n, size_t k, const float *A, const float *X, size_t ldx, const float *next,
                        size_t ld_next, float *C, size_t ldc)
{
    switch (m) {
        CASES_OF_ROWS(MOST_FEW_ROWS, dots_by_group, n, k, A, X, ldx, next, ld_next, C, ldc)
    }
}

/* n is less; the last row stands for those that are not there. */
static __attribute__((noinline)) void dots_of_few(size_t m, size_t n, size_t k, const float *A, const float *X,
                                                  size_t ldx, float *C, size_t ldc)
{
    float rows[LANES * MHA_BLOCK], found[MOST_FEW_ROWS * LANES];
    for (size_t l = 0; l < LANES; l++)
        __builtin_memcpy(rows + l * k, X + (l < n ? l : n - 1) * ldx, k * sizeof *rows);
    dots_of_all(m, LANES, k, A, rows, k, rows, k, found, LANES);
    for (size_t i = 0; i < m; i++)
        store_part(C + i * ldc, n, load(found + i * LANES));
}

static void product_rows(size_t m, size_t n, size_t k, const float *A, const float *X, size_t ldx, const float *next,
                         size_t ld_next, float *C, size_t ldc)
{
    if (n < LANES)
        dots_of_few(m, n, k, A, X, ldx, C, ldc);
    else
        dots_of_all(m, n, k, A, X, ldx, next ? next : X, next ? ld_next : ldx, C, ldc);
}
