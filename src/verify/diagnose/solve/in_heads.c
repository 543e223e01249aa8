/* Tries candidates, everywhere or in some heads of an output. W_O mixes the heads: a row differs by the sum of the
 * changes of all heads, each times its rows of W_O and 0 or 1, which least squares finds. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

enum { MOST_HEADS = 64 };
static const double near = 0.01; /* of a factor: all heads that it leaves are compared with the tensor */

/* Memory of each worker: heads of a candidate; changes of the heads times W_O, of one row; difference; equations. */
typedef struct mha__mixed_heads {
    double *of[MHA__MOST_RUNNERS];
} mixed;

/* Finds the heads in which a candidate must change the tensor; false: there are none, or all. */
static bool find_heads(const mha__search *s, size_t worker, mha__candidate *x)
{
    const size_t H = s->c->H, d = s->c->d_v, out = s->target.columns, all = s->c->B * s->c->T_q * H * d;
    const unsigned char *first = memchr(s->region_first.rows, 1, s->c->B * s->c->T_q);
    double *heads = s->mixed->of[worker], *parts = heads + all, *y = parts + H * out, *A = y + out, r[MOST_HEADS] = {0};
    size_t which[MOST_HEADS], n = 0;
    mha__program program;
    if (!first || !mha__search_program(s, worker, x, &program))
        return false;
    const size_t row = (size_t)(first - s->region_first.rows);
    s->workers.bench[worker]->inside = 0;
    if (mha__search_is_over(s) ||
        !mha__run(s->workers.bench[worker], &program, MHA_STAGE_HEADS, s->region_first.rows, heads))
        return false;
    for (size_t h = 0; h < H; h++) {
        double *own = heads + (row * H + h) * d, most = 0, size = 0;
        for (size_t f = 0; f < d; f++) {
            size = fmax(size, fabs(own[f]));
            own[f] -= s->unmodified.heads[(row * H + h) * d + f];
            most = fmax(most, fabs(own[f]));
        }
        if (!isfinite(most) || mha__is_nothing(most, size))
            continue;
        mha__gemm_double(1, out, d, own, d, s->inputs->weight[MHA_W_O] + h * d * out, out, parts + n * out, out);
        which[n++] = h;
    }
    for (size_t j = 0; j < out; j++)
        y[j] = s->target.values[row * out + j] - s->unmodified.stage[row * out + j];
    memset(A, 0, n * n * sizeof *A);
    mha__equations_add(parts, n, out, y, A, r);
    if (n == 0 || out <= n || !mha__equations_solve(A, n, MHA__PIVOT, r))
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool inside = r[i] > 0.5;
        if (!(fabs(r[i] - inside) < near))
            return false;
        x->heads |= (uint64_t)inside << which[i];
    }
    return x->heads && x->heads != (H == MOST_HEADS ? UINT64_MAX : ((uint64_t)1 << H) - 1);
}

bool mha__search_try(const mha__search *s, size_t worker, mha__candidate *x)
{
    x->complete = x->untried = false;
    x->heads = 0;
    if (s->mixed && !find_heads(s, worker, x))
        return false;
    mha__search_fit(s, worker, &s->region_first, x);
    if (x->untried || x->unchanged || !mha__search_is_promising(s, x))
        return false;
    mha__search_fit(s, worker, &s->region_full, x);
    x->complete = !x->untried;
    return x->complete && mha__search_is_promising(s, x);
}

mha_status mha__search_in_heads(mha__search *s, mha__search_there *try_there, mha_diagnosis *d, mha_error *error)
{
    const size_t H = s->c->H, out = s->target.columns, all = s->c->B * s->c->T_q * H * s->c->d_v;
    mha_bug_match found[MHA_SEARCH_MATCHES];
    mixed m;
    if (s->in_part || !mha__search_is_wide(s) || s->target.stage != MHA_STAGE_OUTPUT || s->c->kind != CASE_MHA ||
        H < 2 || H > MOST_HEADS || s->candidates.all[0].apart[0] < MHA__LEAST_IN_PLACES || s->inputs->gates ||
        mha__search_is_over(s))
        return MHA_OK;
    mha__arena pool = {.allocator = mha__allocator_default()};
    bool whole = (s->unmodified.heads = mha__take(&pool, all)) != NULL;
    for (size_t w = 0; w < s->workers.count; w++)
        whole &= (m.of[w] = mha__take(&pool, all + H * out + out + H * H)) != NULL;
    whole = whole && mha__run(s->workers.bench[0], &s->unmodified.program, MHA_STAGE_HEADS, NULL, s->unmodified.heads);
    s->mixed = &m;
    const size_t n = whole ? try_there(s, NULL, found) : 0;
    s->mixed = NULL, s->unmodified.heads = NULL;
    for (size_t w = 0; w < s->workers.count; w++)
        s->workers.bench[w]->inside = 0;
    mha__arena_free(&pool);
    return whole ? mha__report_add(s, found, n, d, error) : mha__search_no_memory(s, error);
}
