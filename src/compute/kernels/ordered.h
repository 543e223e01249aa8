/* Part of the body of every kernel: products in double, each element one sum of its terms in their order. Product and
 * sum are rounded by themselves, so that all instruction sets give the same bits: several sums go on side by side, and
 * none is taken apart. */

enum { WIDE_LANES = LANES / 2, WIDE_ROWS = LANES == 16 ? 4 : 2 };

typedef double wide __attribute__((vector_size(4 * ISA_LANES)));
typedef double wide_at __attribute__((vector_size(4 * ISA_LANES), aligned(8), may_alias));

/* m rows by nv vectors of Y; both are constants wherever this is expanded. */
INLINE void ordered_tile(const int m, const int nv, size_t k, const double *X, size_t ldx, const double *B, size_t ldb,
                         double *Y, size_t ldy)
{
    wide sum[WIDE_ROWS][8];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        sum[i][j] = *(const wide_at *)(Y + (size_t)i * ldy + j * WIDE_LANES);
    for (size_t p = 0; p < k; p++, B += ldb)
        UNROLL
    for (int i = 0; i < m; i++) {
        const double x = X[(size_t)i * ldx + p];
        UNROLL
        for (int j = 0; j < nv; j++)
            sum[i][j] = sum[i][j] + x * *(const wide_at *)(B + j * WIDE_LANES);
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        *(wide_at *)(Y + (size_t)i * ldy + j * WIDE_LANES) = sum[i][j];
}

/* The same of one column. */
INLINE void ordered_column(size_t m, size_t k, const double *X, size_t ldx, const double *B, size_t ldb, double *Y,
                           size_t ldy)
{
    for (size_t i = 0; i < m; i++) {
        double sum = Y[i * ldy];
        for (size_t p = 0; p < k; p++)
            sum = sum + X[i * ldx + p] * B[p * ldb];
        Y[i * ldy] = sum;
    }
}

/* m rows, a constant; a tile of one row has twice as many vectors, so that as many sums go on. */
INLINE void ordered_rows(const int m, size_t n, size_t k, const double *X, size_t ldx, const double *B, size_t ldb,
                         double *Y, size_t ldy)
{
    size_t c = 0;
#define ORDERED_TILES(NV)                                                                                              \
    for (; c + (NV) * WIDE_LANES <= n; c += (NV) * WIDE_LANES)                                                         \
        ordered_tile(m, NV, k, X, ldx, B + c, ldb, Y + c, ldy);
    if (m == 1)
        ORDERED_TILES(8)
    ORDERED_TILES(4)
    ORDERED_TILES(2)
    ORDERED_TILES(1)
#undef ORDERED_TILES
    for (; c < n; c++)
        ordered_column((size_t)m, k, X, ldx, B + c, ldb, Y + c, ldy);
}

static void ordered_sums(size_t m, size_t n, size_t k, const double *X, size_t ldx, const double *B, size_t ldb,
                         double *Y, size_t ldy)
{
    size_t i = 0;
    for (; i + WIDE_ROWS <= m; i += WIDE_ROWS)
        ordered_rows(WIDE_ROWS, n, k, X + i * ldx, ldx, B, ldb, Y + i * ldy, ldy);
    for (; i < m; i++)
        ordered_rows(1, n, k, X + i * ldx, ldx, B, ldb, Y + i * ldy, ldy);
}
