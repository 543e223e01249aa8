/* Chooses the query rows on which a large case is checked.
 *
 * The exact path does some 2e9 multiply-adds in a second on one core. A case that takes it no longer than about ten
 * seconds is checked whole; of others 256 rows are: with 32 heads of 128 features and 4,096 keys these are 8.6e9
 * multiply-adds. A bug in only one row is found if that row is chosen; one in a share p of the rows is missed with
 * probability (1 - p)^128 by the half that is drawn, for p = 5 % one time in 700. The other half is where kernels go
 * wrong: the first and the last row, both sides of the edges of tiles of 16 to 128 rows, and rows that differ much from
 * the row before them. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "mha/random.h"
#include "verify/case/record.h"
#include "verify/sample.h"

static const double checked_whole = 2e10; /* multiply-adds */

enum { ROWS = 256, SEED = 1, SMALLEST_TILE = 16, LARGEST_TILE = 128 };

double mha__case_work(const mha_case *c)
{
    const double B = (double)c->B, T_q = (double)c->T_q, T_k = (double)c->T_k, H = (double)c->H, H_kv = (double)c->H_kv;
    const double d_k = (double)c->d_k, d_v = (double)c->d_v, S = (double)(c->P + c->T_k);
    const double projections = T_q * (double)c->E_q * H * d_k + T_k * (double)c->E_k * H_kv * d_k +
                               T_k * (double)c->E_v * H_kv * d_v + T_q * H * d_v * (double)c->E_out;
    return B * (H * T_q * S * (d_k + d_v) + (c->kind == CASE_MHA ? projections : 0));
}

/* True if a recorded result of a ragged batch has its rows by sequence, not in the order of the inputs. */
static bool has_rows_by_sequence(const mha_case *c)
{
    bool has = false;
    for (int s = 0; s < MHA_STAGE_COUNT && c->semantics.place.n_sequences > 0; s++)
        has |= (c->expected[0][s].name || c->expected[1][s].name) &&
               (mha__sample_axis((mha_stage)s) == 2 || s == MHA_STAGE_WEIGHTS_MEAN);
    return has;
}

/* Number of query rows to check. */
static size_t rows_of(const mha_case *c)
{
    const size_t wanted = c->sample > 0 ? c->sample : mha__case_work(c) > checked_whole ? ROWS : SIZE_MAX;
    return c->kind == CASE_ROPE || wanted > c->T_q || has_rows_by_sequence(c) ? c->T_q : wanted;
}

void mha_case_sample(mha_case *c, size_t rows)
{
    c->sample = rows;
}

size_t mha_case_rows(const mha_case *c, mha_path path, size_t *all)
{
    *all = c->T_q;
    return path == MHA_PATH_EXACT ? rows_of(c) : c->T_q;
}

int mha__sample_axis_of(const mha_case *c, mha_stage stage, int rank)
{
    const int axis = mha__sample_axis(stage), whole = axis == 2 && stage != MHA_STAGE_LSE ? 4 : 3;
    if (axis < 0)
        return -1;
    if (stage == MHA_STAGE_OUTPUT)
        return c->layout == MHA_TE || c->layout == MHA_TBE ? 0 : c->layout == MHA_BHTD ? 2 : 1;
    return axis - (whole - rank); /* a file may lack the batch extent */
}

/* ---------------------------------------------------------------- choosing */

/* The recorded result that is looked at: the output, or else another of the stages that are attended for. */
static const case_expected *looked_at(const mha_case *c, mha_stage *stage)
{
    for (int s = MHA_STAGE_COUNT; s-- > 0;)
        for (int wide = 0; wide < 2; wide++)
            if (c->expected[wide][s].name && mha__sample_axis((mha_stage)s) >= 0) {
                *stage = (mha_stage)s;
                return &c->expected[wide][s];
            }
    return NULL;
}

/* Distance of each row of the recorded result from the row before: the largest difference of an element. */
static void measure_steps(const mha_case *c, double *step)
{
    mha_stage stage;
    const case_expected *e = looked_at(c, &stage);
    if (!e)
        return;
    const int axis = mha__sample_axis_of(c, stage, e->view.rank);
    for (size_t row = 1; row < c->T_q; row++) {
        const mha_view x = mha_view_slice(&e->view, axis, row, 1), y = mha_view_slice(&e->view, axis, row - 1, 1);
        mha_difference d;
        if (mha_compare(&x, &y, 0, 0, &d, NULL) == MHA_OK)
            step[row] = d.nan_actual != d.nan_expected || d.inf_actual != d.inf_expected ? INFINITY : d.max_abs;
    }
}

/* Marks a row; *left: how many more may be marked. */
static void mark(bool *rows, size_t row, size_t *left)
{
    if (*left > 0 && !rows[row])
        rows[row] = true, --*left;
}

/* First and last row, and both sides of edges of tiles, spread over all of them. */
static void mark_edges(bool *rows, size_t T, size_t most)
{
    const size_t each = most / 8 > 0 ? most / 8 : 1; /* edges of each of the four sizes, which have two sides */
    size_t left = most;
    mark(rows, 0, &left);
    mark(rows, T - 1, &left);
    for (size_t tile = LARGEST_TILE; tile >= SMALLEST_TILE; tile /= 2) {
        const size_t edges = (T - 1) / tile;
        for (size_t edge = 1; edge <= edges; edge += (edges + each - 1) / each) {
            mark(rows, edge * tile - 1, &left);
            mark(rows, edge * tile, &left);
        }
    }
}

static void mark_steps(bool *rows, const double *step, size_t T, size_t most)
{
    for (size_t left = most; left > 0;) {
        size_t best = T;
        for (size_t row = 1; row < T; row++)
            if (!rows[row] && (best == T || step[row] > step[best]))
                best = row;
        if (best == T)
            return;
        mark(rows, best, &left);
    }
}

mha_status mha__sample_of(const mha_case *c, mha__arena *pool, const mha__sample **sample, mha_error *error)
{
    const size_t T = c->T_q, n = rows_of(c);
    *sample = NULL;
    if (n >= T)
        return MHA_OK;
    mha__sample *made = mha__arena_take(pool, sizeof *made);
    bool *rows = mha__arena_take(pool, T * sizeof *rows);
    double *step = mha__arena_take(pool, T * sizeof *step);
    if (!made || !rows || !step)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to check the case");
    memset(rows, 0, T * sizeof *rows);
    memset(step, 0, T * sizeof *step);
    measure_steps(c, step);
    mark_edges(rows, T, n / 4);
    mark_steps(rows, step, T, n / 4);
    size_t left = n;
    for (size_t row = 0; row < T; row++)
        left -= rows[row];
    for (uint64_t i = 0; left > 0; i++)
        mark(rows, (size_t)((double)mha__random_unit(SEED, 0, i) * (double)T), &left);
    *made = (mha__sample){rows, n};
    *sample = made;
    return MHA_OK;
}
