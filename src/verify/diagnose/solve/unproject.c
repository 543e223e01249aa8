/* The merged heads of which a row of the output is made: W_O undone by least squares, where it leaves room for that. */
#include <math.h>
#include <string.h>

#include "base/dot.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

/* The work grows with the cube of the rows of W_O. */
enum { MOST_ROWS = 1536 };

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

mha_status mha__unproject_begin(const mha__search *s, mha__arena *pool, mha__unproject *u, mha_error *error)
{
    const mha_stage stage = s->target.stage;
    const bool projected = stage == MHA_STAGE_OUTPUT && s->c->kind == CASE_MHA;
    *u = (mha__unproject){.width = s->c->H * s->c->d_v, .columns = s->target.columns};
    u->can = s->c->kind != CASE_ROPE && (stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS);
    if (!u->can || !projected)
        return MHA_OK;
    u->W = s->inputs->W[PROJECTION_O];
    u->bias = s->inputs->b[PROJECTION_O];
    u->can = u->width <= u->columns && u->width <= MOST_ROWS && !s->inputs->gates; /* which may be 0 */
    if (!u->can)
        return MHA_OK;
    double *L = mha__arena_take(pool, u->width * u->width * sizeof *L);
    u->less_bias = mha__arena_take(pool, u->columns * sizeof *u->less_bias);
    if (!L || !u->less_bias)
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < u->width; i++)
        for (size_t j = 0; j <= i; j++)
            L[i * u->width + j] = mha__dot(u->W + i * u->columns, u->W + j * u->columns, u->columns);
    u->can = mha__cholesky(L, u->width, MHA__PIVOT);
    u->L = L;
    return MHA_OK;
}

bool mha__unproject_row(const mha__search *s, const mha__unproject *u, size_t row, double *x)
{
    const double *y = s->target.values + row * s->target.columns;
    if (!s->rows_checked[row])
        return false;
    if (!u->W) {
        memcpy(x, y, u->width * sizeof *x);
        return true;
    }
    for (size_t j = 0; j < u->columns; j++)
        u->less_bias[j] = y[j] - (u->bias ? u->bias[j] : 0);
    for (size_t i = 0; i < u->width; i++)
        x[i] = mha__dot(u->less_bias, u->W + i * u->columns, u->columns);
    mha__cholesky_solve(u->L, u->width, x);
    return true;
}

double *mha__solve_stage(const mha__search *s, const mha__program *program, mha_stage stage, mha__arena *pool)
{
    size_t shape[4], n = 1;
    for (int k = mha__run_shape(s->inputs, stage, shape); k-- > 0;)
        n *= shape[k];
    double *values = mha__arena_take(pool, n * sizeof *values);
    if (values) {
        mha__runner_columns(s->workers.bench[0], 0);
        mha__run(s->workers.bench[0], program, stage, s->rows_checked, values);
    }
    return values;
}
