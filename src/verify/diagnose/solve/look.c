/* Looks at a tensor as solvers need it: rows of the output turned back into merged heads by least squares. */
#include <math.h>

#include "base/dot.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

enum { MOST_ROWS = 1536 }; /* of W_O: the work grows with their cube */

/* ---------------------------------------------------------------- least squares */

void mha__equations_add(const double *parts, size_t n, size_t m, const double *y, double *A, double *r)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k <= i; k++)
            A[i * n + k] += mha__dot(parts + i * m, parts + k * m, m);
        if (y)
            r[i] += mha__dot(parts + i * m, y, m);
    }
}

bool mha__cholesky(double *A, size_t n, double least)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            const double own = A[i * n + j], left = own - mha__dot(A + i * n, A + j * n, j);
            if (i == j && !(left > least * own))
                return false;
            A[i * n + j] = i == j ? sqrt(left) : left / A[j * n + j];
        }
    return true;
}

void mha__cholesky_solve(const double *L, size_t n, double *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (x[i] - mha__dot(L + i * n, x, i)) / L[i * n + i];
    for (size_t i = n; i-- > 0;) {
        x[i] /= L[i * n + i];
        for (size_t k = 0; k < i; k++)
            x[k] -= L[i * n + k] * x[i];
    }
}

bool mha__equations_solve(double *A, size_t n, double least, double *x)
{
    if (!mha__cholesky(A, n, least))
        return false;
    mha__cholesky_solve(A, n, x);
    return true;
}

/* ---------------------------------------------------------------- rows of the tensor */

/* Factors W_O W_O^T, once. */
static mha_status undo(mha__search *s, mha_error *error)
{
    const size_t n = s->c->H * s->c->d_v, m = s->target.columns;
    if (s->undone || n > m || n > MOST_ROWS || s->inputs->gates) /* which may be 0 */
        return MHA_OK;
    s->undone = mha__arena_take(&s->pool, n * n * sizeof *s->undone);
    if (!s->undone)
        return mha__search_no_memory(s, error);
    mha__equations_add(s->inputs->weight[MHA_W_O], n, m, NULL, s->undone, NULL);
    s->can_undo = mha__cholesky(s->undone, n, MHA__PIVOT);
    return MHA_OK;
}

/* Finds the merged heads that a row of the tensor was computed from. `rest`: memory for a row. */
static void undo_row(const mha__search *s, size_t row, size_t n, double *rest, double *x)
{
    const size_t m = s->target.columns;
    const double *y = s->target.values + row * m, *bias = s->inputs->weight[MHA_B_O];
    for (size_t j = 0; j < m; j++)
        rest[j] = y[j] - (bias ? bias[j] : 0);
    for (size_t i = 0; i < n; i++)
        x[i] = mha__dot(rest, s->inputs->weight[MHA_W_O] + i * m, m);
    mha__cholesky_solve(s->undone, n, x);
}

mha_status mha__look_begin(mha__search *s, mha__arena *pool, mha__look *l, mha_error *error)
{
    const mha_stage stage = s->target.stage;
    const size_t n = s->c->H * s->c->d_v, rows = s->c->B * s->c->T_q;
    *l = (mha__look){.width = n, .projected = stage == MHA_STAGE_OUTPUT && s->c->kind == CASE_MHA};
    if (s->c->kind == CASE_ROPE || (stage != MHA_STAGE_OUTPUT && stage != MHA_STAGE_HEADS))
        return MHA_OK;
    if (l->projected)
        TRY(undo(s, error));
    if (l->projected && !s->can_undo)
        return MHA_OK;
    l->found = s->target.values;
    if (!l->projected)
        return MHA_OK;
    double *found = mha__arena_take(pool, rows * n * sizeof *found);
    double *rest = mha__arena_take(pool, s->target.columns * sizeof *rest);
    l->found = found;
    if (!found || !rest)
        return mha__search_no_memory(s, error);
    for (size_t r = 0; r < rows; r++)
        if (s->rows_checked[r])
            undo_row(s, r, n, rest, found + r * n);
    return MHA_OK;
}

mha_status mha__look_at(const mha__search *s, const mha__program *program, mha_stage stage, mha__arena *pool,
                        double **values, mha_error *error)
{
    size_t shape[4], n = 1;
    for (int k = mha__run_shape(s->inputs, stage, shape); k-- > 0;)
        n *= shape[k];
    *values = mha__arena_take(pool, n * sizeof **values);
    if (!*values)
        return mha__search_no_memory(s, error);
    s->workers.bench[0]->columns = 0;
    mha__run(s->workers.bench[0], program, stage, s->rows_checked, *values);
    return MHA_OK;
}

mha_status mha__look_for_weights(const mha__search *s, mha__arena *pool, double **weights, mha_error *error)
{
    const case_expected *e =
        &s->asked->expected[s->asked->expected[1][MHA_STAGE_WEIGHTS].name != NULL][MHA_STAGE_WEIGHTS];
    *weights = NULL;
    if (!e->name)
        return MHA_OK;
    const mha_view copy = mha__arena_view(pool, MHA_F64, e->view.rank, e->view.shape);
    if (!copy.data)
        return mha__search_no_memory(s, error);
    (void)mha_view_copy(&copy, &e->view, NULL); /* cannot fail: both are floats of one shape */
    *weights = copy.data;
    return MHA_OK;
}

mha_status mha__look_at_program(const mha__search *s, const mha__program *program, mha__arena *pool, mha__look *l,
                                mha_error *error)
{
    TRY(mha__look_at(s, program, MHA_STAGE_WEIGHTS, pool, &l->weights, error));
    TRY(mha__look_at(s, program, MHA_STAGE_HEADS, pool, &l->heads, error));
    return mha__look_at(s, program, MHA_STAGE_PRESENT_VALUE, pool, &l->values, error);
}
