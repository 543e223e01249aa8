/* Attention with only CBLAS, as a contender of bench/peers.py: SGEMM per block of rows and head with a
 * vectorised softmax between, and SGEMM in pieces for a projection; one OpenMP team, the BLAS serial inside it. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))


EXPORT const char *plain_version(void) { return openblas_get_config(); }
EXPORT const char *plain_kernels(void) { return openblas_get_corename(); }
EXPORT void plain_start(void) { openblas_set_num_threads(1); }

/* Row strides of Q and out are those of (B, T, h, d); K and V have strides of their own, in floats. */
typedef struct core {
    size_t B, T_q, T_k, h, h_kv, d;
    int causal, threads;
    const float *q, *k, *v;
    float *out;
    size_t k_batch, k_time, k_head; /* of K and of V */
} core;

static float exp_of(float x)
{
    const float n = rintf(x * 1.44269504f), r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int bits = ((int)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static void softmax(float *x, size_t n, size_t width)
{
    float max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) {
        const float y = x[i] - max;
        x[i] = exp_of(y > -87.0f ? y : -87.0f);
        sum += x[i];
    }
    const float factor = 1.0f / sum;
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
    memset(x + n, 0, (width - n) * sizeof *x);
}

/* m rows `row` floats apart, row i seeing the first seen + i keys (or all `keys` of them). */
static void rows_of_head(const core *c, const float *q, float *out, size_t m, size_t row, const float *k,
                         const float *v, size_t keys, size_t seen, float *scores)
{
    const float scale = 1.0f / sqrtf((float)c->d);
    const blasint M = (blasint)m, S = (blasint)keys, D = (blasint)c->d, ld = (blasint)row, ldk = (blasint)c->k_time;
    if (m == 1) {
        cblas_sgemv(CblasRowMajor, CblasNoTrans, S, D, scale, k, ldk, q, 1, 0.0f, scores, 1);
        softmax(scores, seen < keys ? seen : keys, keys);
        cblas_sgemv(CblasRowMajor, CblasTrans, S, D, 1.0f, v, ldk, scores, 1, 0.0f, out, 1);
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, M, S, D, scale, q, ld, k, ldk, 0.0f, scores, S);
    for (size_t i = 0; i < m; i++)
        softmax(scores + i * keys, seen + i < keys ? seen + i : keys, keys);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, D, S, 1.0f, scores, S, v, ldk, 0.0f, out, ld);
}

EXPORT int plain_core(const core *c)
{
    /* One query each: the heads that share keys are the rows. Else blocks whose scores stay in a second-level cache. */
    const size_t group = c->h / c->h_kv, width = c->h * c->d;
    size_t most = ((size_t)512 << 10) / sizeof(float) / c->T_k;
    most = most < 32 ? 32 : most > 256 ? 256 : most;
    const size_t shared = c->T_q == 1 ? group : 1, rows = c->T_q == 1 ? group : c->T_q;
    const size_t blocks = (rows + most - 1) / most, tasks = c->B * (c->h / shared) * blocks;
    int failed = 0;
#pragma omp parallel num_threads(c->threads)
    {
        float *scores = malloc(most * c->T_k * sizeof *scores);
#pragma omp for schedule(dynamic)
        for (size_t task = 0; task < tasks; task++) {
            const size_t block = blocks - 1 - task % blocks, head = task / blocks % (c->h / shared) * shared;
            const size_t b = task / blocks / (c->h / shared), first = block * most;
            const size_t m = rows - first < most ? rows - first : most, row = shared > 1 || c->T_q == 1 ? c->d : width;
            const size_t at = b * c->T_q * width + head * c->d + first * row;
            const size_t other = b * c->k_batch + head / group * c->k_head;
            const size_t keys = c->causal ? first + m : c->T_k;
            if (!scores)
                failed = 1;
            else
                rows_of_head(c, c->q + at, c->out + at, m, row, c->k + other, c->v + other, keys,
                             c->causal ? first + 1 : c->T_k, scores);
        }
        free(scores);
    }
    return failed;
}

/* Y (m, n) = X (m, k) W + b, everything contiguous; cut along the longer side of Y. */
EXPORT void plain_project(size_t m, size_t n, size_t k, const float *x, const float *W, const float *b, float *y,
                          int threads)
{
    const size_t pieces = m * n * k < 100000 ? 1 : (size_t)threads, long_side = n >= m ? n : m;
    const size_t step = ((long_side + pieces - 1) / pieces + 31) / 32 * 32;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (size_t piece = 0; piece < pieces; piece++) {
        const size_t from = piece * step < long_side ? piece * step : long_side;
        const size_t count = long_side - from < step ? long_side - from : step;
        const size_t row = n >= m ? 0 : from, column = n >= m ? from : 0;
        const size_t rows = n >= m ? m : count, columns = n >= m ? count : n;
        if (count == 0)
            continue;
        float *to = y + row * n + column;
        for (size_t i = 0; b && i < rows; i++)
            memcpy(to + i * n, b + column, columns * sizeof *b);
        if (rows == 1)
            cblas_sgemv(CblasRowMajor, CblasTrans, (blasint)k, (blasint)columns, 1.0f, W + column, (blasint)n,
                        x + row * k, 1, b ? 1.0f : 0.0f, to, 1);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)columns, (blasint)k, 1.0f,
                        x + row * k, (blasint)k, W + column, (blasint)n, b ? 1.0f : 0.0f, to, (blasint)n);
    }
}
