/* The four projections, y = x W + b: with packed weights, or by SGEMM in blocks that depend on the shapes alone. */
#include <string.h>

#include "attention/rows/rows.h"
#include "base/heads.h"
#include "compute/gemm.h"
#include "compute/half.h"
#include "compute/packed/packed_gemm.h"
#include "compute/sizes.h"
#include "compute/thread_pool.h"
#include "params/quantise.h"

/* A block has up to this many rows of one sequence and this many columns, more when the sequence is a single row. */
enum { TASK_ROWS = 512, TASK_COLUMNS = 128, TASK_COLUMNS_OF_ONE_ROW = 1024 };

/* The columns of a block depend on the length of the sequence alone, because other sequences of a ragged batch must not
 * change its bits. */
static size_t task_columns(size_t T)
{
    return T == 1 ? TASK_COLUMNS_OF_ONE_ROW : TASK_COLUMNS;
}

typedef struct projection {
    const mha__resolved *r;
    mha__side side;
    const mha_view *x, *y;
    const float *W; /* (in, out), or NULL: y = x + b */
    mha_view b;     /* (out), or no data */
    size_t in, out;
    size_t row_tasks, column_tasks;
} projection;

static void run_block(void *context, size_t task, int worker)
{
    (void)worker;
    const projection *p = context;
    mha__sequence s = mha__resolved_sequence(p->r, task / p->column_tasks / p->row_tasks);
    size_t from = p->side == MHA_QUERIES ? s.q_from : s.k_from, T = p->side == MHA_QUERIES ? s.T_q : s.T_k;
    size_t first = task / p->column_tasks % p->row_tasks * TASK_ROWS,
           column = task % p->column_tasks * task_columns(T);
    if (first >= T || column >= p->out)
        return;
    size_t m = T - first < TASK_ROWS ? T - first : TASK_ROWS;
    size_t n = p->out - column < task_columns(T) ? p->out - column : task_columns(T);
    const float *x = mha__row(p->x, s.batch, from + first, 0);
    float *y = mha__row(p->y, s.batch, from + first, 0) + column;
    size_t y_stride = (size_t)p->y->stride[1];
    if (p->W)
        mha__gemm(m, n, p->in, x, (size_t)p->x->stride[1], p->W + column, p->out, y, y_stride);
    if (!p->b.data)
        return;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            y[i * y_stride + j] += (float)mha_view_get(&p->b, (size_t[]){column + j});
}

typedef struct decoding {
    const mha_view *W;
    float *values;
} decoding;

/* Some rows of W, a block of each column; a cache line of columns at a time, because rows lie far apart. */
static void decode_rows(void *context, size_t task, int worker)
{
    (void)worker;
    enum { TOGETHER = 16 };
    const decoding *d = context;
    const mha__block_kind *kind = mha__block_kind_of(d->W->dtype);
    const size_t n = d->W->shape[1], first = task * kind->elements;
    const mha_view rows = mha_view_slice(d->W, 0, first, kind->elements);
    for (size_t c = 0; c < n; c += TOGETHER) {
        float values[TOGETHER][MHA_LARGEST_BLOCK], row[TOGETHER];
        const size_t some = n - c < TOGETHER ? n - c : TOGETHER;
        for (size_t j = 0; j < some; j++)
            mha__decode_block(kind, mha_view_slice(&rows, 1, c + j, 1).data, values[j]);
        for (size_t i = 0; i < kind->elements; i++) {
            for (size_t j = 0; j < some; j++)
                row[j] = values[j][i];
            memcpy(d->values + (first + i) * n + c, row, some * sizeof *row);
        }
    }
}

const float *mha__weight_as_floats(const mha_view *W, float *widened, int threads)
{
    if (W->dtype == MHA_F32)
        return W->data;
    if (mha__is_quantised_weight(W->dtype)) {
        const size_t elements = mha__block_kind_of(W->dtype)->elements;
        mha__parallel_for(W->shape[0] / elements, threads, decode_rows, &(decoding){W, widened});
        return widened;
    }
    const size_t shape[4] = {1, W->shape[0], 1, W->shape[1]};
    const mha_view to = mha_view_of(widened, MHA_F32, 4, shape), from = mha_view_of(W->data, W->dtype, 4, shape);
    mha__widen(&to, &from, threads);
    return widened;
}

/* ---------------------------------------------------------------- packed weights */

/* Whether the B * T rows of x and those of y lie one stride apart from the first batch row to the last. */
static bool one_after_the_other(const mha_view *x, const mha_view *y)
{
    const ptrdiff_t T = (ptrdiff_t)y->shape[1];
    if (T == 1)
        return x->stride[0] >= 0 && y->stride[0] >= 0;
    return y->shape[0] == 1 || (x->stride[0] == T * x->stride[1] && y->stride[0] == T * y->stride[1]);
}

static const float *bias_as_floats(const mha_view *b, float **room)
{
    if (!b->data || b->dtype == MHA_F32)
        return b->data;
    float *widened = *room;
    mha_view to = mha_view_of(widened, MHA_F32, 1, b->shape);
    (void)mha_view_copy(&to, b, NULL);
    *room += (b->shape[0] + 15) / 16 * 16;
    return widened;
}

/* Whether y is rounded as it is made: nothing else becomes of gates and of the output. */
static bool rounds_result(const mha__resolved *r, mha_weight W)
{
    return mha__rounds_to_bf16(r) && mha_weight_at(W)->side == MHA_WEIGHT_HEADS;
}

/* n projections of one x. */
static void project_packed(const mha__resolved *r, const mha__projection *p, size_t n, float *room)
{
    const mha_view *x = p->x;
    const size_t B = x->shape[0], T = x->shape[1], in = r->weight[p->W].shape[0];
    const int along = T == 1 ? 0 : 1; /* the dimension whose stride leads from row to row */
    mha__packed_product job = {.k = in, .ldx = (size_t)x->stride[along], .X = x->data, .n_outputs = n,
                               .rounds = mha__rounds_to_bf16(r)};
    job.rounds_results = rounds_result(r, p->W);
    size_t columns = 0;
    bool together = true;
    for (size_t i = 0; i < n; i++) {
        const mha_view *y = p[i].y;
        mha__packed_output *o = &job.outputs[i];
        *o = (mha__packed_output){.n = y->shape[2], .ldy = (size_t)y->stride[along], .Y = y->data,
                                 .b = bias_as_floats(&r->weight[p[i].b], &room)};
        o->panels = r->panels[p[i].W], o->dtype = mha__packed_type(r->weight[p[i].W].dtype);
        columns += o->n;
        together &= one_after_the_other(x, y);
    }
    const size_t rows = B * T < 8 ? 8 : B * T; /* with few rows most of the time is spent reading W */
    const int threads = mha__parallel_worth(2.0 * (double)rows * (double)columns * (double)in, r->plan.threads);
    job.m = together ? B * T : T;
    for (size_t b = 0, end = together ? 1 : B; b < end;) {
        mha__packed_product jobs[MHA_PACKED_PRODUCTS];
        size_t some = 0;
        for (; some < MHA_PACKED_PRODUCTS && b < end; some++, b++) {
            jobs[some] = job;
            jobs[some].X = (const float *)x->data + (ptrdiff_t)b * x->stride[0];
            for (size_t i = 0; i < n; i++)
                jobs[some].outputs[i].Y = (float *)p[i].y->data + (ptrdiff_t)b * p[i].y->stride[0];
        }
        mha__packed_run(jobs, some, threads, room);
    }
}

static size_t packed_room(const mha__resolved *r)
{
    const size_t rows_q = r->query.shape[0] * r->query.shape[1], rows_k = r->key.shape[0] * r->key.shape[1];
    size_t most = 0, widest = 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_view *view = &r->weight[w];
        if (!r->panels[w])
            continue;
        const size_t rows = mha_weight_at((mha_weight)w)->side == MHA_WEIGHT_KEYS ? rows_k : rows_q;
        const mha_dtype dtype = mha__packed_type(view->dtype);
        const size_t floats = mha__packed_scratch(rows, view->shape[0], dtype) / sizeof(float);
        most = floats > most ? floats : most;
        widest = view->shape[1] > widest ? view->shape[1] : widest;
    }
    most = most * (size_t)r->plan.threads + MHA_PACKED_OUTPUTS * (widest + 16);
    const mha_view *absorbed = &r->weight[MHA_W_KVB]; /* is read as it is, in floats */
    const size_t floats = r->latent.absorbed && absorbed->dtype != MHA_F32 ? mha_view_elements(absorbed) : 0;
    return floats > most ? floats : most;
}

/* ---------------------------------------------------------------- packed or not */

/* Whether the matrices of the call are packed, which all are or none. */
static bool uses_packed(const mha__resolved *r)
{
    return r->panels[MHA_W_Q];
}

bool mha__project_uses_blas(const mha__resolved *r)
{
    return r->layer && !uses_packed(r);
}

size_t mha__project_scratch(const mha__resolved *r)
{
    if (uses_packed(r))
        return packed_room(r);
    size_t most = 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_view *view = &r->weight[w];
        const bool widened =
            view->data && mha_weight_at((mha_weight)w)->kind == MHA_WEIGHT_MATRIX && view->dtype != MHA_F32;
        if (widened && mha_view_elements(view) > most)
            most = mha_view_elements(view);
    }
    return most;
}

static void project_plain(const mha__resolved *r, const mha__projection *given, const mha_view *heads, float *scratch)
{
    const mha_view *W = &r->weight[given->W];
    const size_t T = given->side == MHA_QUERIES ? r->plan.T_q : r->plan.T_k, out = given->y->shape[2];
    projection p = {.r = r, .side = given->side, .x = given->x, .y = given->y, .b = r->weight[given->b], .out = out,
                    .row_tasks = mha__ceil_div(T, TASK_ROWS), .column_tasks = mha__ceil_div(out, task_columns(T))};
    if (W->data)
        p.W = mha__weight_as_floats(W, scratch, r->plan.threads), p.in = W->shape[0];
    else
        (void)mha_view_copy(heads, given->x, NULL);
    mha__parallel_for(r->plan.B * p.row_tasks * p.column_tasks, r->plan.threads, run_block, &p);
    if (rounds_result(r, given->W))
        mha__round_to_bf16(heads, heads, r->plan.threads);
}

void mha__project(const mha__resolved *r, const mha__projection *all, size_t count, mha_view *made, float *scratch)
{
    const bool packed = uses_packed(r);
    for (size_t i = 0, n; i < count; i += n) {
        const mha__projection *p = &all[i];
        for (n = 1; packed && i + n < count && mha__view_same(p->x, p[n].x);)
            n++;
        for (size_t j = 0; j < n; j++)
            made[i + j] = p[j].y->data ? mha__split_heads(p[j].y, p[j].heads) : *p[j].x;
        if (packed)
            project_packed(r, p, n, scratch);
        else if (p->y->data)
            project_plain(r, p, made + i, scratch);
    }
}
