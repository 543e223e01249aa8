/* The exact path: multi-head latent attention in float64 and plain loops, as stored and absorbed. */
#include <math.h>

#include "attention/exact/exact_latent.h"
#include "compute/thread_pool.h"

enum { ROWS_AT_ONCE = 16 };

typedef struct job {
    const mha__resolved *r;
    mha__exact_memory rows;
    double *Q, *K, *V;
    const double *mixed;
    double *heads;
    size_t count; /* rows in all */
} job;

static size_t block_end(const job *j, size_t from)
{
    return from + ROWS_AT_ONCE < j->count ? from + ROWS_AT_ONCE : j->count;
}

/* Rows [from, to) of an input (B, T, in). */
static void read_rows(const mha_view *x, size_t from, size_t to, double *rows)
{
    const size_t T = x->shape[1], n = x->shape[2];
    for (size_t i = from; i < to; i++)
        for (size_t c = 0; c < n; c++)
            rows[(i - from) * n + c] = mha_view_get(x, (size_t[]){i / T, i % T, c});
}

/* y (n, out) = x W + b of n rows of x, which are `stride` apart. */
static void multiply(const double *x, size_t stride, size_t n, const mha_view *W, const mha_view *b, double *y)
{
    const size_t in = W->shape[0], out = W->shape[1];
    for (size_t i = 0; i < n * out; i++)
        y[i] = 0;
    for (size_t k = 0; k < in; k++)
        for (size_t c = 0; c < out; c++) {
            const double w = mha_view_get(W, (size_t[]){k, c});
            for (size_t i = 0; i < n; i++)
                y[i * out + c] += x[i * stride + k] * w;
        }
    for (size_t i = 0; b->data && i < n * out; i++)
        y[i] += mha_view_get(b, (size_t[]){i % out});
}

static void keep_rows(const mha__resolved *r, mha_stage stage, size_t T, size_t from, size_t to, const double *rows)
{
    const mha_view *kept = mha__stage_view(r, stage);
    for (size_t i = from; kept && i < to; i++)
        for (size_t c = 0; c < kept->shape[2]; c++)
            mha_view_set(kept, (size_t[]){i / T, i % T, c}, *rows++);
}

/* The first `width` features of each row: x w / sqrt(mean(x^2) + eps). */
static void normalise(const mha__resolved *r, const mha_view *w, size_t width, size_t stride, size_t n, double *x)
{
    for (size_t i = 0; i < n; i++, x += stride) {
        double mean = 0;
        for (size_t c = 0; c < width; c++)
            mean += x[c] * x[c] / (double)width;
        for (size_t c = 0; c < width; c++)
            x[c] = x[c] / sqrt(mean + r->norm_eps) * mha_view_get(w, &c);
    }
}

/* [q_n W_K^T, q_r] of a head: column (head, c) of W_KVB has feature c of its keys. */
static void absorb(const mha__resolved *r, const double *q, size_t n, double *Q)
{
    const mha__latent *l = &r->latent;
    const size_t h = r->plan.h, d_k = l->d_n + l->d_r, d = r->plan.d_k;
    for (size_t head = 0; head < h; head++) {
        for (size_t j = 0; j < l->kv_rank; j++) {
            for (size_t i = 0; i < n; i++)
                Q[(i * h + head) * d + j] = 0;
            for (size_t c = 0; c < l->d_n; c++) {
                const double w = mha_view_get(&r->weight[MHA_W_KVB], (size_t[]){j, head * (l->d_n + l->d_v) + c});
                for (size_t i = 0; i < n; i++)
                    Q[(i * h + head) * d + j] += q[(i * h + head) * d_k + c] * w;
            }
        }
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < l->d_r; c++)
                Q[(i * h + head) * d + l->kv_rank + c] = q[(i * h + head) * d_k + l->d_n + c];
    }
}

static void query_rows(void *context, size_t task, int worker)
{
    const job *j = context;
    const mha__resolved *r = j->r;
    const mha__latent *l = &r->latent;
    const size_t from = task * ROWS_AT_ONCE, to = block_end(j, from), n = to - from, in = r->query.shape[2];
    double *x = j->rows.memory + (size_t)worker * j->rows.size, *c = x + ROWS_AT_ONCE * in, *q = x;
    double *Q = j->Q + from * r->plan.h * r->plan.d_k;
    read_rows(&r->query, from, to, x);
    if (l->q_rank) {
        multiply(x, in, n, &r->weight[MHA_W_QA], &r->weight[MHA_B_QA], c);
        keep_rows(r, MHA_STAGE_Q_LATENT, r->query.shape[1], from, to, c);
        normalise(r, &r->weight[MHA_QA_NORM], l->q_rank, l->q_rank, n, c);
        q = c;
    }
    double *wide = l->absorbed ? c + ROWS_AT_ONCE * l->q_rank : Q;
    multiply(q, l->q_rank ? l->q_rank : in, n, &r->weight[MHA_W_Q], &r->weight[MHA_B_Q], wide);
    if (l->absorbed)
        absorb(r, wide, n, Q);
}

static void key_rows(void *context, size_t task, int worker)
{
    const job *j = context;
    const mha__resolved *r = j->r;
    const mha__latent *l = &r->latent;
    const size_t from = task * ROWS_AT_ONCE, to = block_end(j, from), n = to - from, in = r->key.shape[2],
                 row = l->kv_rank + l->d_r, h = r->plan.h, d_k = l->d_n + l->d_r, d_wide = l->d_n + l->d_v;
    double *x = j->rows.memory + (size_t)worker * j->rows.size, *c = x + ROWS_AT_ONCE * in,
           *wide = c + ROWS_AT_ONCE * row;
    read_rows(&r->key, from, to, x);
    multiply(x, in, n, &r->weight[MHA_W_KVA], &r->weight[MHA_B_KVA], c);
    keep_rows(r, MHA_STAGE_KV_LATENT, r->key.shape[1], from, to, c);
    normalise(r, &r->weight[MHA_KVA_NORM], l->kv_rank, row, n, c);
    for (size_t i = 0; l->absorbed && i < n * row; i++) {
        j->K[from * row + i] = c[i];
        if (i % row < l->kv_rank)
            j->V[(from + i / row) * l->kv_rank + i % row] = c[i];
    }
    if (l->absorbed)
        return;
    multiply(c, row, n, &r->weight[MHA_W_KVB], &r->weight[MHA_B_V], wide);
    for (size_t i = 0; i < n * h; i++) {
        double *key = j->K + (from * h + i) * d_k, *value = j->V + (from * h + i) * l->d_v;
        for (size_t f = 0; f < d_k; f++)
            key[f] = f < l->d_n ? wide[i * d_wide + f] : c[i / h * row + l->kv_rank + f - l->d_n];
        for (size_t f = 0; f < l->d_v; f++)
            value[f] = wide[i * d_wide + l->d_n + f];
    }
}

static void leave_rows(void *context, size_t task, int worker)
{
    (void)worker;
    const job *j = context;
    const mha__latent *l = &j->r->latent;
    const mha_view *W = &j->r->weight[MHA_W_KVB];
    const size_t h = j->r->plan.h, from = task * ROWS_AT_ONCE, to = block_end(j, from);
    for (size_t i = from * h * l->d_v; i < to * h * l->d_v; i++)
        j->heads[i] = 0;
    for (size_t head = 0; head < h; head++)
        for (size_t k = 0; k < l->kv_rank; k++)
            for (size_t c = 0; c < l->d_v; c++) {
                const double w = mha_view_get(W, (size_t[]){k, head * (l->d_n + l->d_v) + l->d_n + c});
                for (size_t i = from; i < to; i++)
                    j->heads[(i * h + head) * l->d_v + c] += j->mixed[(i * h + head) * l->kv_rank + k] * w;
            }
}

static void run(job *j, size_t rows, void (*part)(void *, size_t, int))
{
    j->count = rows;
    mha__parallel_for((rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, j->r->plan.threads, part, j);
}

size_t mha__exact_latent_size(const mha__resolved *r)
{
    const mha__latent *l = &r->latent;
    const size_t h = r->plan.h, of_query = r->query.shape[2] + l->q_rank + h * (l->d_n + l->d_r),
                 of_key = r->key.shape[2] + l->kv_rank + l->d_r + h * (l->d_n + l->d_v);
    return ROWS_AT_ONCE * (of_query > of_key ? of_query : of_key);
}

void mha__exact_latent(const mha__resolved *r, const mha__exact_memory *rows, double *Q, double *K, double *V)
{
    job j = {.r = r, .rows = *rows, .Q = Q, .K = K, .V = V};
    run(&j, r->query.shape[0] * r->query.shape[1], query_rows);
    run(&j, r->key.shape[0] * r->key.shape[1], key_rows);
}

void mha__exact_latent_leave(const mha__resolved *r, const double *mixed, double *heads)
{
    job j = {.r = r, .mixed = mixed, .heads = heads};
    run(&j, r->query.shape[0] * r->query.shape[1], leave_rows);
}
