/* y = x W + b: the four projections, cut into pieces that depend on the shapes alone. */
#include <string.h>

#include "attention/stages.h"
#include "compute/gemm.h"
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
    size_t first = task / p->column_pieces % p->row_pieces * PIECE_ROWS, column = task % p->column_pieces * piece_columns(T);
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
static const float *as_floats(const mha_view *W, float *widened)
{
    if (W->dtype == MHA_F32)
        return W->data;
    mha_view to = mha_view_of(widened, MHA_F32, W->rank, W->shape);
    (void)mha_view_copy(&to, W);
    return widened;
}

size_t mha_project_widened(const mha_request *r)
{
    size_t most = 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_view *view = &r->weight[w];
        if (view->data && view->rank == 2 && view->dtype != MHA_F32 && mha_view_elements(view) > most)
            most = mha_view_elements(view);
    }
    return most;
}

mha_view mha_project(const mha_request *r, mha_side side, const mha_view *x, mha_weight W, mha_weight b, size_t heads,
                     const mha_view *y, float *widened)
{
    if (!y->data)
        return *x;
    projection p = {.r = r, .side = side, .x = x, .y = y, .b = r->weight[b], .out = y->shape[2]};
    mha_view result = mha_split_heads(y, heads);
    if (r->weight[W].data) {
        p.W = as_floats(&r->weight[W], widened);
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
