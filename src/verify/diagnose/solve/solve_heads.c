/* Finds in which order heads were merged, and batch rows written: what stands in each place, held against all. */
#include <math.h>

#include "base/base.h"
#include "base/dot.h"
#include "compute/gemm.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

/* Adds up, over at most so many checked rows, the squared distance of what stands at the place of each of n parts of
 * the merged heads from each part; how many rows these are. */
static size_t measure(const mha__search *s, const double *heads, const mha__unproject *u, size_t n, size_t most,
                      double *x, double *far)
{
    const size_t d = u->width / n;
    size_t looked = 0;
    for (size_t r = 0; r < s->c->B * s->c->T_q && looked < most; r++) {
        if (!mha__unproject_row(s, u, r, x))
            continue;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < n; k++)
                for (size_t f = 0; f < d; f++) {
                    const double apart = x[i * d + f] - heads[r * u->width + k * d + f];
                    far[i * n + k] += isfinite(apart) ? apart * apart : 0;
                }
        looked++;
    }
    return looked;
}

size_t mha__solve_nearest(const double *far, size_t n, size_t own)
{
    size_t best = own;
    for (size_t k = 0; k < n; k++)
        if (far[k] < far[best])
            best = k;
    return best;
}

void mha__solve_offer(mha__search *s, size_t index, const double *order, size_t places, size_t n)
{
    for (size_t i = 0; i < places; i++)
        if (order[i] != (double)(i % n)) {
            mha__search_append(s, index, order);
            return;
        }
}

/* Tries an order with the nearest of n in each place. */
static void choose(mha__search *s, size_t index, const double *far, size_t n, double *order)
{
    for (size_t i = 0; i < n; i++)
        order[i] = (double)mha__solve_nearest(far + i * n, n, i);
    mha__solve_offer(s, index, order, n, n);
}

/* ---------------------------------------------------------------- behind a W_O that cannot be undone */

/* Adds the equations of one row, y - b_O = sum P_hg o_g W_h over all pairs of a place h and a head g, for the unknown
 * P: its normal equations A (n, n) and r, n = H^2. `parts`: memory for o_g W_h (n, d_out). */
static void add_equations(const mha__search *s, const double *heads, const double *row, double *parts, double *A,
                          double *r)
{
    const size_t H = s->c->H, d = s->c->d_v, out = s->target.columns, n = H * H;
    const double *W = s->inputs->W[PROJECTION_O], *bias = s->inputs->b[PROJECTION_O];
    for (size_t h = 0; h < H; h++)
        mha__gemm_double(H, out, d, heads, d, W + h * d * out, out, parts + h * H * out, out);
    for (size_t i = 0; i < n; i++) {
        const double *part = parts + i * out;
        for (size_t k = 0; k <= i; k++)
            A[i * n + k] += mha__dot(part, parts + k * out, out);
        for (size_t j = 0; j < out; j++)
            r[i] += part[j] * (row[j] - (bias ? bias[j] : 0));
    }
}

/* Finds P by least squares, from as many rows as it takes; far is -P. False when they do not determine it. */
static bool measure_behind(const mha__search *s, const double *heads, double *memory, double *far)
{
    const size_t H = s->c->H, n = H * H, out = s->target.columns;
    double *A = memory, *parts = A + n * n;
    size_t equations = 0;
    for (size_t row = 0; row < s->c->B * s->c->T_q && equations < 4 * n; row++) {
        if (!s->rows_checked[row])
            continue;
        add_equations(s, heads + row * H * s->c->d_v, s->target.values + row * out, parts, A, far);
        equations += out;
    }
    for (size_t i = 0; i < n; i++)
        if (!isfinite(far[i]))
            return false;
    if (equations <= n || !mha__cholesky(A, n, MHA__PIVOT))
        return false;
    mha__cholesky_solve(A, n, far);
    for (size_t i = 0; i < n; i++)
        far[i] = -far[i];
    return true;
}

/* ---------------------------------------------------------------- heads, and batch rows */

enum { MOST_HEADS_READ = 64, MOST_BLOCKS = 512 };
enum { MOST_HEADS = 16 }; /* behind such a W_O: the work grows with their sixth power */

/* Which of n parts of the merged heads stands in the place of each: of heads, which may lie behind a W_O that cannot be
 * undone, or of columns, by some rows. */
static mha_status order_parts(mha__search *s, size_t index, size_t n, bool of_heads, mha__arena *pool, mha_error *error)
{
    enum { ROWS = 64 };
    const bool behind = of_heads && s->target.stage == MHA_STAGE_OUTPUT && s->c->kind == CASE_MHA && n <= MOST_HEADS &&
                        !s->inputs->gates;
    mha__unproject u;
    TRY(mha__unproject_begin(s, pool, &u, error));
    if (n < 2 || (!u.can && !behind))
        return MHA_OK;
    double *order = mha__arena_take(&s->pool, n * sizeof *order), *far = mha__arena_take(pool, n * n * sizeof *far);
    double *heads = mha__solve_stage(s, &s->unmodified.program, MHA_STAGE_HEADS, pool);
    double *memory = mha__arena_take(pool, (u.can ? u.width : n * n * (n * n + s->target.columns)) * sizeof *memory);
    if (!order || !far || !heads || !memory)
        return mha__search_no_memory(s, error);
    if (u.can ? measure(s, heads, &u, n, of_heads ? SIZE_MAX : ROWS, memory, far) > !of_heads
              : measure_behind(s, heads, memory, far))
        choose(s, index, far, n, order);
    return MHA_OK;
}

mha_status mha__solve_heads(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    return order_parts(s, index, s->c->H, true, pool, error);
}

mha_status mha__solve_columns(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    enum { MOST_COLUMNS = 512 };
    const size_t n = s->c->H * s->c->d_v;
    return n > MOST_COLUMNS ? MHA_OK : order_parts(s, index, n, false, pool, error);
}

/* By the squared distance of what stands at each of n places from what it is of each of G heads: places of query heads,
 * or of key/value heads of all batch rows. */
static mha_status choose_heads(mha__search *s, size_t index, size_t G, size_t n, bool of_blocks, mha__arena *pool,
                               mha_error *error)
{
    const size_t H = s->c->H, d = s->c->d_v, width = H * d, T = s->c->T_q, rows = s->c->B * T;
    mha__unproject u;
    bool other = false;
    if (G == 1 || G > MOST_HEADS_READ)
        return MHA_OK;
    TRY(mha__unproject_begin(s, pool, &u, error));
    if (!u.can)
        return MHA_OK;
    double *order = mha__arena_take(&s->pool, n * sizeof *order);
    double *each = mha__arena_take(pool, G * n * sizeof *each); /* rows are kept by where the numbers lie */
    double *least = mha__arena_take(pool, n * sizeof *least), *far = mha__arena_take(pool, n * sizeof *far);
    double *heads = mha__solve_stage(s, &s->unmodified.program, MHA_STAGE_HEADS, pool);
    double *x = mha__arena_take(pool, width * sizeof *x);
    if (!order || !each || !heads || !x || !least || !far)
        return mha__search_no_memory(s, error);
    for (size_t g = 0; g < G; g++) {
        mha__program program = s->unmodified.program;
        double *all = each + g * n;
        for (size_t h = 0; h < n; h++)
            all[h] = (double)g, far[h] = 0;
        if (!mha__solved_entry_at(index)->apply(s->c, &program, all))
            return MHA_OK;
        mha__run(s->workers.bench[0], &program, MHA_STAGE_HEADS, s->rows_checked, heads);
        for (size_t r = 0; r < rows; r++) {
            const bool checked = mha__unproject_row(s, &u, r, x);
            for (size_t j = 0; checked && j < width; j++) {
                const double apart = x[j] - heads[r * width + j];
                far[of_blocks ? r / T * (n / s->c->B) + j * (n / s->c->B) / width : j / d] +=
                    isfinite(apart) ? apart * apart : 0;
            }
        }
        for (size_t h = 0; h < n; h++)
            if (g == 0 || far[h] < least[h])
                least[h] = far[h], order[h] = (double)g;
    }
    for (size_t h = 0; h < n; h++) {
        const size_t usual = h * G / n;
        other |= order[h] != (double)usual;
    }
    if (other)
        mha__search_append(s, index, order);
    return MHA_OK;
}

mha_status mha__solve_kv_heads(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    return choose_heads(s, index, s->c->H_kv, s->c->H, false, pool, error);
}

mha_status mha__solve_q_heads(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    return choose_heads(s, index, s->c->H, s->c->H, false, pool, error);
}

mha_status mha__solve_kv_blocks(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const size_t n = s->c->B * s->c->H_kv;
    return choose_heads(s, index, n, n, true, pool, error);
}

/* By the squared distance of what stands at the place of each head of each batch row from each of them, over as many
 * rows as time allows. */
mha_status mha__solve_blocks(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const size_t B = s->c->B, H = s->c->H, T = s->c->T_q, d = s->c->d_v, n = B * H, width = H * d;
    const size_t apart = 1 + (size_t)((double)(n * n) * (double)(T * d) / 1e9);
    mha__unproject u;
    if (B == 1 || H == 1 || n > MOST_BLOCKS || s->inputs->sequences)
        return MHA_OK;
    TRY(mha__unproject_begin(s, pool, &u, error));
    if (!u.can || (u.W && s->in_part))
        return MHA_OK;
    double *order = mha__arena_take(&s->pool, n * sizeof *order), *far = mha__arena_take(pool, n * n * sizeof *far);
    double *found = u.W ? mha__arena_take(pool, B * T * width * sizeof *found) : s->target.values;
    const double *heads =
        u.W ? mha__solve_stage(s, &s->unmodified.program, MHA_STAGE_HEADS, pool) : s->unmodified.whole;
    if (!order || !far || !found || !heads)
        return mha__search_no_memory(s, error);
    for (size_t r = 0; r < B * T && u.W; r++)
        (void)mha__unproject_row(s, &u, r, found + r * width);
    for (size_t e = 0; e < n * n * T; e += e % T + apart < T ? apart : T - e % T) {
        const size_t i = e / T / n, k = e / T % n, t = e % T;
        const double *x = found + ((i / H * T + t) * H + i % H) * d, *y = heads + ((k / H * T + t) * H + k % H) * d;
        for (size_t f = 0; f < d; f++)
            far[i * n + k] += isfinite(x[f] - y[f]) ? (x[f] - y[f]) * (x[f] - y[f]) : 0;
    }
    choose(s, index, far, n, order);
    return MHA_OK;
}

/* By least squares over what stands at the place of each head. */
mha_status mha__solve_factors(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const size_t H = s->c->H, d = s->c->d_v, n = H * d, rows = s->c->B * s->c->T_q;
    mha__unproject u;
    TRY(mha__unproject_begin(s, pool, &u, error));
    if (!u.can || H == 1)
        return MHA_OK;
    double *factor = mha__arena_take(&s->pool, H * sizeof *factor), *sums = mha__arena_take(pool, 2 * H * sizeof *sums);
    double *heads = mha__solve_stage(s, &s->unmodified.program, MHA_STAGE_HEADS, pool);
    double *x = mha__arena_take(pool, n * sizeof *x);
    if (!factor || !sums || !heads || !x)
        return mha__search_no_memory(s, error);
    for (size_t r = 0; r < rows; r++) {
        if (!mha__unproject_row(s, &u, r, x))
            continue;
        for (size_t j = 0; j < n; j++) {
            const double right = heads[r * n + j];
            sums[2 * (j / d)] += isfinite(x[j] * right) ? x[j] * right : 0;
            sums[2 * (j / d) + 1] += isfinite(x[j] * right) ? right * right : 0;
        }
    }
    bool differ = false; /* else the output is multiplied */
    for (size_t h = 0; h < H; h++) {
        factor[h] = sums[2 * h + 1] > 0 ? sums[2 * h] / sums[2 * h + 1] : 1;
        differ |= fabs(factor[h] - factor[0]) > MHA__SAME_NUMBER * fabs(factor[0]);
    }
    if (differ)
        mha__search_append(s, index, factor);
    return MHA_OK;
}

/* By the squared distance of each batch row of the tensor from each one of the case. */
mha_status mha__solve_batches(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha__target *t = &s->target;
    const size_t B = s->c->B, lines = t->row / t->columns;
    if (B == 1 || s->inputs->sequences || s->c->kind == CASE_ROPE)
        return MHA_OK;
    double *order = mha__arena_take(&s->pool, B * sizeof *order), *far = mha__arena_take(pool, B * B * sizeof *far);
    if (!order || !far)
        return mha__search_no_memory(s, error);
    for (size_t at = 0; at < B * B * t->row; at++) {
        const size_t i = at / t->row / B, k = at / t->row % B, line = at % t->row / t->columns, j = at % t->columns;
        if (j >= t->recorded_columns)
            continue;
        const double x = s->unmodified.whole[k * t->row + line * t->columns + j];
        const double y = t->values[(i * lines + line) * t->recorded_columns + j];
        far[at / t->row] += mha__search_same(t, x, y) ? 0 : isfinite(x - y) ? (x - y) * (x - y) : t->rms * t->rms;
    }
    choose(s, index, far, B, order);
    return MHA_OK;
}
