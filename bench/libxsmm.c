/* libxsmm as a contender of bench/peers.py, for the projections alone: its own GEMM, and its batch-reduce kernels over
 * packed weights, block by block, in one OpenMP team. Written for version 1.17, Debian 12's. */
#include <libxsmm.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *xsmm_arch(void) { return libxsmm_get_target_arch(); }
EXPORT const char *xsmm_version(void) { return LIBXSMM_VERSION; }

/* Y (m, n) = X (m, k) W + b, everything contiguous; b may be NULL. To libxsmm, which counts by columns,
 * Y^T = W^T X^T. */
EXPORT void xsmm_gemm(int m, int n, int k, const float *x, const float *W, const float *b, float *y)
{
    const float one = 1.0f, beta = b ? 1.0f : 0.0f;
    for (size_t i = 0; b && i < (size_t)m; i++)
        memcpy(y + i * (size_t)n, b, (size_t)n * sizeof *b);
    libxsmm_sgemm_omp("N", "N", &n, &m, &k, &one, W, &n, x, &k, &beta, y, &n);
}

/* ---------------------------------------------------------------- blocks */

/* Blocks of so many rows, columns (a divisor of n) and terms (of k), of which `reduced` make up one call. */
typedef struct cut {
    int rows, columns, terms, reduced;
} cut;

/* One product, made ready: W in panels of so many columns; a kernel for a block of rows and one for the last, smaller
 * one, each for the first call of a block of Y and for those after it, which add to it. */
typedef struct product {
    size_t m, n, k;
    cut c;
    float *W, *y;
    const float *b;
    libxsmm_smmfunction_reducebatch_strd kernel[2][2];
} product;

static libxsmm_smmfunction_reducebatch_strd dispatch(const product *p, int rows, float beta)
{
    const int columns = p->c.columns, terms = p->c.terms, ldx = (int)p->k, ldy = (int)p->n, size = sizeof(float);
    const float one = 1.0f;
    return libxsmm_smmdispatch_reducebatch_strd(columns, rows, terms, columns * terms * size, terms * size, &columns,
                                                &ldx, &ldy, &one, &beta, NULL, NULL);
}

EXPORT void xsmm_destroy(product *p)
{
    if (p)
        free(p->W);
    free(p);
}

/* NULL when there is no kernel for such blocks. b (n floats, or NULL) and y (m, n) stay the caller's. */
EXPORT product *xsmm_create(size_t m, size_t n, size_t k, const float *W, const float *b, float *y, const cut *c)
{
    product *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (product){.m = m, .n = n, .k = k, .c = *c, .b = b, .y = y};
    const size_t columns = (size_t)c->columns, last = m % (size_t)c->rows,
                 page = (size_t)2 << 20; /* huge, if the system has some */
    const size_t bytes = (n * k * sizeof *W + page - 1) / page * page;
    bool made = (p->W = aligned_alloc(page, bytes)) != NULL && (madvise(p->W, bytes, MADV_HUGEPAGE), true);
    for (int later = 0; later < 2; later++) {
        const float beta = later || b ? 1.0f : 0.0f;
        made = made && (p->kernel[0][later] = dispatch(p, c->rows, beta)) &&
               (last == 0 || (p->kernel[1][later] = dispatch(p, (int)last, beta)));
    }
    if (!made) {
        xsmm_destroy(p);
        return NULL;
    }
    float *to = p->W;
    for (size_t column = 0; column < n; column += columns)
        for (size_t term = 0; term < k; term++, to += columns)
            memcpy(to, W + term * n + column, columns * sizeof *to);
    return p;
}

static void block(const product *p, const float *x, size_t first, size_t column)
{
    const size_t terms = (size_t)p->c.terms, blocks = p->k / terms, columns = (size_t)p->c.columns,
                 most = (size_t)p->c.rows;
    const size_t rows = p->m - first < most ? p->m - first : most;
    float *y = p->y + first * p->n + column;
    for (size_t i = 0; p->b && i < rows; i++)
        memcpy(y + i * p->n, p->b + column, columns * sizeof *y);
    for (size_t from = 0; from < blocks; from += (size_t)p->c.reduced) {
        const unsigned long long rest = blocks - from, reduced = (size_t)p->c.reduced,
                                 count = rest < reduced ? rest : reduced;
        p->kernel[rows < most][from > 0](p->W + column * p->k + from * terms * columns, x + first * p->k + from * terms,
                                         y, &count);
    }
}

/* Products of one X (m, k), cut alike. */
EXPORT void xsmm_run(product *const *products, int n_products, const float *x, int threads)
{
    const size_t rows = (size_t)products[0]->c.rows, pieces = (products[0]->m + rows - 1) / rows;
    size_t columns = 0;
    for (int i = 0; i < n_products; i++)
        columns += products[i]->n / (size_t)products[i]->c.columns;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (size_t task = 0; task < pieces * columns; task++) {
        product *const *p = products;
        size_t column = task / pieces * (size_t)(*p)->c.columns;
        while (column >= (*p)->n)
            column -= (*p++)->n;
        block(*p, x, task % pieces * rows, column);
    }
}
