/* The exact path: multi-head latent attention in float64 and plain loops, as stored and absorbed. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/exact_attend.h"
#include "attention/core/exact/exact_latent.h"
#include "attention/core/exact/exact_sums.h"
#include "attention/core/exact/rounding.h"
#include "compute/thread_pool.h"

enum { ROWS_AT_ONCE = 32, COLUMNS = 64, TERMS = 32 }; /* of what is computed together; of its sums */

typedef struct job {
    const mha__resolved *r;
    const mha__exact_memory *memory;
    mha__rounding of_x, of_weight[MHA_WEIGHT_COUNT], of_q_n; /* of a precision that is modelled */
    double *Q, *K, *V;
    const double *mixed;
    double *heads;
    size_t count; /* rows in all */
} job;

static double *own_memory(const job *j, int worker)
{
    return j->memory->workers + (size_t)worker * j->memory->size;
}

static size_t block_end(const job *j, size_t from)
{
    return from + ROWS_AT_ONCE < j->count ? from + ROWS_AT_ONCE : j->count;
}

/* Rows [from, to) of an input (B, T, in). */
static void read_rows(const job *j, const mha_view *x, size_t from, size_t to, double *rows)
{
    const size_t T = x->shape[1], n = x->shape[2];
    for (size_t i = from; i < to; i++)
        mha__exact_read(x, (const size_t[]){i / T, i % T, 0}, n, &j->of_x, rows + (i - from) * n);
}

/* Memory of a worker for some terms and columns of a matrix, behind rows of inputs. */
static double *matrix_memory(const job *j, int worker)
{
    return own_memory(j, worker) + j->memory->size - (size_t)COLUMNS * TERMS;
}

/* Adds x W to rows y, where W has `terms` rows and so many columns from these first ones of a weight on. */
static void add_product(const job *j, const mha_view *weight, const mha__rounding *rounding, const size_t first[2],
                        size_t terms, size_t columns, const double *x, size_t ldx, size_t rows, double *y, size_t ldy,
                        double *w)
{
    for (size_t c = 0; c < columns; c += COLUMNS)
        for (size_t t = 0; t < terms; t += TERMS) {
            const size_t n = columns - c < COLUMNS ? columns - c : COLUMNS, k = terms - t < TERMS ? terms - t : TERMS;
            for (size_t i = 0; i < k; i++)
                mha__exact_read(weight, (const size_t[]){first[0] + t + i, first[1] + c}, n, rounding, w + i * COLUMNS);
            mha__exact_sums(j->r, rows, n, k, x + t, ldx, w, COLUMNS, y + c, ldy);
        }
}

/* y (n, out) = x W + b of n rows of x, which are `stride` apart. */
static void multiply(const job *j, const double *x, size_t stride, size_t n, mha_weight weight, mha_weight bias,
                     double *y, double *w)
{
    const mha_view *W = &j->r->weight[weight], *b = &j->r->weight[bias];
    const size_t in = W->shape[0], out = W->shape[1];
    memset(y, 0, n * out * sizeof *y);
    add_product(j, W, &j->of_weight[weight], (const size_t[]){0, 0}, in, out, x, stride, n, y, out, w);
    for (size_t i = 0; b->data && i < n * out; i++)
        y[i] += mha__rounded(&j->of_weight[bias], mha_view_get(b, (size_t[]){i % out}));
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

/* The latents of queries, behind their norm. */
static void query_latents(void *context, size_t task, int worker)
{
    const job *j = context;
    const mha__resolved *r = j->r;
    const size_t from = task * ROWS_AT_ONCE, to = block_end(j, from), in = r->query.shape[2],
                 rank = r->latent.q_rank;
    double *x = own_memory(j, worker), *c = j->memory->latents + from * rank;
    read_rows(j, &r->query, from, to, x);
    multiply(j, x, in, to - from, MHA_W_QA, MHA_B_QA, c, matrix_memory(j, worker));
    keep_rows(r, MHA_STAGE_Q_LATENT, r->query.shape[1], from, to, c);
    normalise(r, &r->weight[MHA_QA_NORM], rank, rank, to - from, c);
}

static void query_rows(void *context, size_t task, int worker)
{
    const job *j = context;
    const mha__resolved *r = j->r;
    const mha__latent *l = &r->latent;
    const size_t from = task * ROWS_AT_ONCE, to = block_end(j, from), in = r->query.shape[2],
                 wide = r->plan.h * (l->d_n + l->d_r);
    double *x = own_memory(j, worker);
    if (!l->q_rank)
        read_rows(j, &r->query, from, to, x);
    multiply(j, l->q_rank ? j->memory->latents + from * l->q_rank : x, l->q_rank ? l->q_rank : in, to - from, MHA_W_Q,
             MHA_B_Q, (l->absorbed ? j->memory->queries : j->Q) + from * wide, matrix_memory(j, worker));
}

/* [q_n W_K^T, q_r] of each head: column (head, c) of W_KVB has feature c of its keys. */
static void absorb_rows(void *context, size_t task, int worker)
{
    const job *j = context;
    const mha__resolved *r = j->r;
    const mha__latent *l = &r->latent;
    const size_t h = r->plan.h, d_k = l->d_n + l->d_r, d = r->plan.d_k, from = task * ROWS_AT_ONCE,
                 to = block_end(j, from);
    const mha_view W = mha__view_swap(&r->weight[MHA_W_KVB], 0, 1);
    double *q_n = own_memory(j, worker);
    for (size_t head = 0; head < h; head++) {
        double *Q = j->Q + (from * h + head) * d;
        for (size_t i = 0; i < to - from; i++) {
            const double *q = j->memory->queries + ((from + i) * h + head) * d_k;
            for (size_t c = 0; c < l->d_n; c++)
                q_n[i * l->d_n + c] = mha__rounded(&j->of_q_n, q[c]);
            memset(Q + i * h * d, 0, l->kv_rank * sizeof *Q);
            memcpy(Q + i * h * d + l->kv_rank, q + l->d_n, l->d_r * sizeof *Q);
        }
        add_product(j, &W, &j->of_weight[MHA_W_KVB], (const size_t[]){head * (l->d_n + l->d_v), 0}, l->d_n, l->kv_rank,
                    q_n, l->d_n, to - from, Q, h * d, matrix_memory(j, worker));
    }
}

/* [norm(c), k_r] of the keys. */
static void key_latents(void *context, size_t task, int worker)
{
    const job *j = context;
    const mha__resolved *r = j->r;
    const mha__latent *l = &r->latent;
    const size_t from = task * ROWS_AT_ONCE, to = block_end(j, from), row = l->kv_rank + l->d_r;
    double *x = own_memory(j, worker), *c = j->memory->latents + from * row;
    read_rows(j, &r->key, from, to, x);
    multiply(j, x, r->key.shape[2], to - from, MHA_W_KVA, MHA_B_KVA, c, matrix_memory(j, worker));
    keep_rows(r, MHA_STAGE_KV_LATENT, r->key.shape[1], from, to, c);
    normalise(r, &r->weight[MHA_KVA_NORM], l->kv_rank, row, to - from, c);
}

static void key_rows(void *context, size_t task, int worker)
{
    const job *j = context;
    const mha__resolved *r = j->r;
    const mha__latent *l = &r->latent;
    const size_t from = task * ROWS_AT_ONCE, to = block_end(j, from), n = to - from, row = l->kv_rank + l->d_r,
                 h = r->plan.h, d_k = l->d_n + l->d_r, d_wide = l->d_n + l->d_v;
    const double *c = j->memory->latents + from * row;
    double *wide = own_memory(j, worker);
    for (size_t i = 0; l->absorbed && i < n * row; i++) {
        j->K[from * row + i] = c[i];
        if (i % row < l->kv_rank)
            j->V[(from + i / row) * l->kv_rank + i % row] = c[i];
    }
    if (l->absorbed)
        return;
    multiply(j, c, row, n, MHA_W_KVB, MHA_B_V, wide, matrix_memory(j, worker));
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
    const job *j = context;
    const mha__latent *l = &j->r->latent;
    const size_t h = j->r->plan.h, from = task * ROWS_AT_ONCE, to = block_end(j, from);
    memset(j->heads + from * h * l->d_v, 0, (to - from) * h * l->d_v * sizeof *j->heads);
    for (size_t head = 0; head < h; head++)
        add_product(j, &j->r->weight[MHA_W_KVB], &j->of_weight[MHA_W_KVB],
                    (const size_t[]){0, head * (l->d_n + l->d_v) + l->d_n}, l->kv_rank, l->d_v,
                    j->mixed + (from * h + head) * l->kv_rank, h * l->kv_rank, to - from,
                    j->heads + (from * h + head) * l->d_v, h * l->d_v, matrix_memory(j, worker));
}

static void run(job *j, size_t rows, void (*part)(void *, size_t, int))
{
    j->count = rows;
    mha__parallel_for((rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, j->r->plan.threads, part, j);
}

/* Rounds `width` of `stride` numbers of each row. */
static void round_rows(mha_dtype type, double *rows, size_t count, size_t stride, size_t width)
{
    mha_view all = mha_view_of(rows, MHA_F64, 2, (const size_t[]){count, stride});
    all.shape[1] = width;
    const mha__rounding rounding = mha__rounding_of_view(type, &all);
    for (size_t i = 0; type != MHA_F32 && i < count; i++)
        for (size_t c = 0; c < width; c++)
            rows[i * stride + c] = mha__rounded(&rounding, rows[i * stride + c]);
}

static job begin(const mha__resolved *r)
{
    static const mha_weight matrices[] = {MHA_W_QA, MHA_W_Q, MHA_W_KVA, MHA_W_KVB},
                            biases[] = {MHA_B_QA, MHA_B_Q, MHA_B_KVA, MHA_B_V};
    job j = {.r = r};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        const mha_dtype type = r->precision.weights;
        j.of_weight[matrices[i]] = mha__rounding_of_view(type, &r->weight[matrices[i]]);
        j.of_weight[biases[i]] = mha__rounding_of_view(mha__stored_in(type), &r->weight[biases[i]]);
    }
    return j;
}

size_t mha__exact_latent_size(const mha__resolved *r)
{
    const mha__latent *l = &r->latent;
    const size_t wide = r->plan.h * (l->d_n + l->d_v), inputs[2] = {r->query.shape[2], r->key.shape[2]};
    const size_t in = inputs[0] > inputs[1] ? inputs[0] : inputs[1];
    return ROWS_AT_ONCE * (in > wide ? in : wide) + (size_t)COLUMNS * TERMS;
}

size_t mha__exact_latents_size(const mha__resolved *r)
{
    const size_t of_queries = r->query.shape[0] * r->query.shape[1] * r->latent.q_rank,
                 of_keys = r->key.shape[0] * r->key.shape[1] * (r->latent.kv_rank + r->latent.d_r);
    return of_queries > of_keys ? of_queries : of_keys;
}

void mha__exact_latent(const mha__resolved *r, const mha__exact_memory *memory, double *Q, double *K, double *V)
{
    const mha__latent *l = &r->latent;
    const mha_precision *p = &r->precision;
    const size_t q_rows = r->query.shape[0] * r->query.shape[1], k_rows = r->key.shape[0] * r->key.shape[1],
                 d_k = l->d_n + l->d_r, row = l->kv_rank + l->d_r;
    job j = begin(r);
    j.memory = memory, j.Q = Q, j.K = K, j.V = V;
    j.of_x = mha__rounding_of_view(p->inputs, &r->query);
    if (l->q_rank) {
        run(&j, q_rows, query_latents);
        round_rows(p->rows, memory->latents, q_rows, l->q_rank, l->q_rank);
    }
    run(&j, q_rows, query_rows);
    if (l->absorbed) {
        mha_view q_n = mha_view_of(memory->queries, MHA_F64, 2, (const size_t[]){q_rows * r->plan.h, d_k});
        q_n.shape[1] = l->d_n;
        j.of_q_n = mha__rounding_of_view(p->rows, &q_n);
        run(&j, q_rows, absorb_rows);
    }
    j.of_x = mha__rounding_of_view(p->inputs, &r->key);
    run(&j, k_rows, key_latents);
    if (!l->absorbed) /* otherwise they are keys and values themselves */
        round_rows(p->rows, memory->latents, k_rows, row, l->kv_rank);
    run(&j, k_rows, key_rows);
}

void mha__exact_latent_leave(const mha__resolved *r, const mha__exact_memory *memory, const double *mixed,
                             double *heads)
{
    job j = begin(r);
    j.memory = memory, j.mixed = mixed, j.heads = heads;
    run(&j, r->query.shape[0] * r->query.shape[1], leave_rows);
}
