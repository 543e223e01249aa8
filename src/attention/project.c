/* y = x W + b: the four projections, by packed weights or by SGEMM in pieces that depend on the shapes alone. */
#include <string.h>

#include "attention/stages.h"
#include "compute/gemm.h"
#include "compute/packed.h"
#include "compute/parallel.h"

/* A piece is up to this many rows of one sequence times this many columns; a single row takes more. */
enum { PIECE_ROWS = 512, PIECE_COLUMNS = 128, PIECE_COLUMNS_OF_ONE_ROW = 1024 };

/* Decided by the sequence, not by its neighbours in a ragged batch: they must not change its bits. */
static size_t piece_columns(size_t T)
{
    return T == 1 ? PIECE_COLUMNS_OF_ONE_ROW : PIECE_COLUMNS;
}

typedef struct projection {
    const mha_request *r;
    mha_side side;
    const mha_view *x, *y;
    const float *W; /* (in, out), or NULL: y = x + b */
    mha_view b;     /* (out), or no data */
    size_t in, out;
    size_t row_pieces, column_pieces;
} projection;

static void piece(void *context, size_t task, int worker)
{
    (void)worker;
    const projection *p = context;
    mha_sequence s = mha_request_sequence(p->r, task / p->column_pieces / p->row_pieces);
    size_t from = p->side == MHA_QUERIES ? s.q_from : s.k_from, T = p->side == MHA_QUERIES ? s.T_q : s.T_k;
    size_t first = task / p->column_pieces % p->row_pieces * PIECE_ROWS,
           column = task % p->column_pieces * piece_columns(T);
    if (first >= T || column >= p->out)
        return;
    size_t m = T - first < PIECE_ROWS ? T - first : PIECE_ROWS;
    size_t n = p->out - column < piece_columns(T) ? p->out - column : piece_columns(T);
    const float *x = mha_row(p->x, s.batch, from + first, 0);
    float *y = mha_row(p->y, s.batch, from + first, 0) + column;
    size_t y_stride = (size_t)p->y->stride[1];
    if (p->W)
        mha_gemm(m, n, p->in, 1.0f, x, (size_t)p->x->stride[1], p->W + column, p->out, 0.0f, y, y_stride);
    for (size_t i = 0; p->b.data && i < m; i++)
        for (size_t j = 0; j < n; j++)
            y[i * y_stride + j] += (float)mha_view_get(&p->b, (size_t[]){column + j});
}

/* Weights kept in another type are widened for the call. */
static const float *as_floats(const mha_view *W, float *widened, int threads)
{
    if (W->dtype == MHA_F32)
        return W->data;
    const size_t shape[4] = {1, W->shape[0], 1, W->shape[1]};
    const mha_view to = mha_view_of(widened, MHA_F32, 4, shape), from = mha_view_of(W->data, W->dtype, 4, shape);
    mha_widen(&to, &from, threads);
    return widened;
}

/* ---------------------------------------------------------------- packed weights */

/* Rows of x and of y, one stride apart through all batches: B * T of them if that is how they lie. */
static bool one_after_the_other(const mha_view *x, const mha_view *y, mha_packed_job *job)
{
    const ptrdiff_t T = (ptrdiff_t)y->shape[1];
    if (T == 1) {
        job->ldx = (size_t)x->stride[0], job->ldy = (size_t)y->stride[0];
        return x->stride[0] >= 0;
    }
    return y->shape[0] == 1 || (x->stride[0] == T * x->stride[1] && y->stride[0] == T * y->stride[1]);
}

static void project_packed(const mha_request *r, const mha_view *x, mha_weight W, mha_weight b, const mha_view *y,
                           float *room)
{
    const size_t B = y->shape[0], T = y->shape[1], out = y->shape[2], in = r->weight[W].shape[0];
    const mha_view *bias = &r->weight[b];
    float *widened = room;
    if (bias->data && bias->dtype != MHA_F32) {
        mha_view to = mha_view_of(widened, MHA_F32, 1, bias->shape);
        (void)mha_view_copy(&to, bias);
        room += (out + 15) / 16 * 16;
    }
    mha_packed_job job = {.m = T,
                          .n = out,
                          .k = in,
                          .X = x->data,
                          .Y = y->data,
                          .b = !bias->data              ? NULL
                               : bias->dtype == MHA_F32 ? bias->data
                                                        : widened,
                          .ldx = (size_t)x->stride[1],
                          .ldy = (size_t)y->stride[1]};
    job.panels = mha_layer_packed(r->layer, W, &job.dtype);
    const size_t rows = B * T < 8 ? 8 : B * T; /* with few rows the time is that of reading W */
    const int threads = mha_parallel_worth(2.0 * (double)rows * (double)out * (double)in, r->plan.threads);
    if (one_after_the_other(x, y, &job)) {
        job.m = B * T;
        mha_packed_run(&job, 1, threads, room);
        return;
    }
    for (size_t n = 0; n < B;) {
        mha_packed_job jobs[MHA_PACKED_JOBS];
        size_t together = 0;
        for (; together < MHA_PACKED_JOBS && n < B; together++, n++) {
            jobs[together] = job;
            jobs[together].X = (const float *)x->data + (ptrdiff_t)n * x->stride[0];
            jobs[together].Y = (float *)y->data + (ptrdiff_t)n * y->stride[0];
        }
        mha_packed_run(jobs, together, threads, room);
    }
}

static size_t packed_room(const mha_request *r)
{
    const size_t rows_q = r->query.shape[0] * r->query.shape[1], rows_k = r->key.shape[0] * r->key.shape[1];
    size_t most = 0, widest = 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_view *view = &r->weight[w];
        if (!view->data || view->rank != 2)
            continue;
        size_t rows = w == MHA_W_Q || w == MHA_W_O ? rows_q : rows_k;
        mha_dtype dtype = MHA_F32;
        (void)mha_layer_packed(r->layer, (mha_weight)w, &dtype);
        size_t floats = mha_packed_scratch(rows, view->shape[0], dtype) / sizeof(float);
        most = floats > most ? floats : most;
        widest = view->shape[1] > widest ? view->shape[1] : widest;
    }
    return most * (size_t)r->plan.threads + widest + 16;
}

/* ---------------------------------------------------------------- both */

/* The path is the one that uses packed weights, and the layer has them: all or none. */
static bool uses_packed(const mha_request *r)
{
    return r->plan.path == MHA_PATH_FAST && r->layer && mha_layer_packed(r->layer, MHA_W_Q, NULL);
}

bool mha_project_uses_blas(const mha_request *r)
{
    return r->layer && !uses_packed(r);
}

size_t mha_project_scratch(const mha_request *r)
{
    if (uses_packed(r))
        return packed_room(r);
    size_t most = 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_view *view = &r->weight[w];
        if (view->data && view->rank == 2 && view->dtype != MHA_F32 && mha_view_elements(view) > most)
            most = mha_view_elements(view);
    }
    return most;
}

mha_view mha_project(const mha_request *r, mha_side side, const mha_view *x, mha_weight W, mha_weight b, size_t heads,
                     const mha_view *y, float *scratch)
{
    if (!y->data)
        return *x;
    if (uses_packed(r)) {
        project_packed(r, x, W, b, y, scratch);
        return mha_split_heads(y, heads);
    }
    projection p = {.r = r, .side = side, .x = x, .y = y, .b = r->weight[b], .out = y->shape[2]};
    mha_view result = mha_split_heads(y, heads);
    if (r->weight[W].data) {
        p.W = as_floats(&r->weight[W], scratch, r->plan.threads);
        p.in = r->weight[W].shape[0];
    } else {
        (void)mha_view_copy(&result, x);
    }
    size_t T = side == MHA_QUERIES ? r->plan.T_q : r->plan.T_k;
    p.row_pieces = (T + PIECE_ROWS - 1) / PIECE_ROWS;
    p.column_pieces = (p.out + piece_columns(T) - 1) / piece_columns(T);
    mha_parallel_for(r->plan.B * p.row_pieces * p.column_pieces, r->plan.threads, piece, &p);
    return result;
}
