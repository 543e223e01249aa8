/* Finds biases of projections and weights of norms that a case lacks, by least squares of the merged heads. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/dot.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

/* The heads of some rows, as arrays (h, rows, d_v). Biases have d numbers for each head of q and k, norms for all. */
typedef struct lacking {
    mha__search *s;
    size_t index, d, G, rows, one; /* G: query heads of a group; one: elements of a head */
    bool of_norms;
    const unsigned char *marks; /* (B, T_q): the rows */
    double *found, *computed;   /* heads of the tensor; room for a stage */
} lacking;

/* Writes the difference between the heads with numbers x and those of the tensor, and returns its sum of squares.
 * Biases leave out each feature's mean over the rows, because b_V and b_O change only that. */
static double leave(const lacking *l, const double *x, double *left)
{
    const mha_case *c = l->s->c;
    const size_t d = c->d_v;
    double sum = 0;
    size_t row = 0;
    mha__program program = l->s->unmodified.program;
    (void)mha__solved_entry_at(l->index)->apply(c, &program, x);
    mha__run(l->s->workers.bench[0], &program, MHA_STAGE_HEADS, l->marks, l->computed);
    for (size_t r = 0; r < c->B * c->T_q; r++) {
        for (size_t e = 0; l->marks[r] && e < c->H * d; e++) {
            const size_t at = e / d * l->one + row * d + e % d;
            left[at] = l->computed[r * c->H * d + e] - l->found[at];
        }
        row += l->marks[r];
    }
    for (size_t e = 0; e < c->H * d; e++) {
        double *of = left + e / d * l->one + e % d, mean = 0;
        for (size_t r = 0; r < l->rows && !l->of_norms; r++)
            mean += of[r * d] / (double)l->rows;
        for (size_t r = 0; r < l->rows; r++)
            of[r * d] -= mean, sum += of[r * d] * of[r * d];
    }
    return sum;
}

/* One unknown of a group of heads: index of its number, its feature of q and k, the heads that it changes. */
typedef struct unknown {
    size_t at, feature, from, end;
} unknown;

static unknown unknown_at(const lacking *l, size_t group, size_t i)
{
    const size_t H = l->s->c->H, of_q = l->G * l->d, first = group * l->G;
    if (l->of_norms)
        return (unknown){i, i, 0, H};
    if (i < of_q)
        return (unknown){first * l->d + i, i % l->d, first + i / l->d, first + i / l->d + 1};
    return (unknown){(H + group) * l->d + i - of_q, l->d + i - of_q, first, first + l->G};
}

/* Adds one step of Levenberg and Marquardt to the numbers of a group. J (2 d, h, rows, d_v): the derivatives by each
 * feature. Returns false if no number has an effect. */
static bool move(const lacking *l, size_t group, const double *left, const double *J, double damping, double *A,
                 double *x)
{
    const size_t n = l->of_norms ? 2 * l->d : (l->G + 1) * l->d, all = l->s->c->H * l->one;
    double *step = A + n * n, most = 0;
    for (size_t i = 0; i < n; i++) {
        const unknown a = unknown_at(l, group, i);
        const double *column = J + a.feature * all;
        for (size_t k = 0; k <= i; k++) {
            const unknown b = unknown_at(l, group, k);
            const size_t from = a.from > b.from ? a.from : b.from, end = a.end < b.end ? a.end : b.end;
            A[i * n + k] = from < end ? mha__dot(column + from * l->one, J + b.feature * all + from * l->one,
                                                 (end - from) * l->one)
                                      : 0;
        }
        step[i] = -mha__dot(column + a.from * l->one, left + a.from * l->one, (a.end - a.from) * l->one);
        most = fmax(most, A[i * n + i]);
    }
    for (size_t i = 0; i < n; i++)
        A[i * n + i] += damping * most;
    if (!(most > 0) || !mha__equations_solve(A, n, 0, step))
        return false;
    for (size_t i = 0; i < n; i++)
        x[unknown_at(l, group, i).at] += step[i];
    return true;
}

/* Steps while the difference decreases. */
static void descend(const lacking *l, size_t count, double *x, double *memory)
{
    enum { STEPS = 16, TRIES = 4 };
    const double tiny = 1e-6;
    const size_t H = l->s->c->H, all = H * l->one, of_q = l->of_norms ? l->d : H * l->d;
    double *left = memory, *after = left + all, *J = after + all, *other = J + 2 * l->d * all, *A = other + count;
    double now = leave(l, x, left), then, damping = 1e-6;
    const double begun = now, noise = l->s->target.noise[0] * l->s->target.noise[0];
    for (int step = 0;
         step < STEPS && now > noise && (step < TRIES || now < 0.25 * begun) && !mha__search_is_over(l->s); step++) {
        for (size_t f = 0; f < 2 * l->d; f++) {
            memcpy(other, x, count * sizeof *x);
            for (size_t i = f % l->d; i < (f < l->d ? of_q : l->of_norms ? l->d : H / l->G * l->d); i += l->d)
                other[(f < l->d ? 0 : of_q) + i] += tiny;
            (void)leave(l, other, J + f * all);
            for (size_t e = 0; e < all; e++)
                J[f * all + e] = (J[f * all + e] - left[e]) / tiny;
        }
        do {
            memcpy(other, x, count * sizeof *x);
            for (size_t g = 0; g < (l->of_norms ? 1 : H / l->G); g++)
                if (!move(l, g, left, J, damping, A, other))
                    return;
            then = leave(l, other, after);
            damping *= then < now ? 0.1 : 100;
        } while (!(then < now) && damping < 1);
        if (!(then < 0.99 * now))
            return;
        memcpy(x, other, count * sizeof *x), memcpy(left, after, all * sizeof *left);
        now = then, damping = fmax(damping, 1e-11);
    }
}

mha_status mha__solve_lacking(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    enum { MOST_UNKNOWN = 1024, MOST_ROWS = 64 };
    const double most_work = 2e9; /* products of a step, some seconds */
    const mha_case *c = s->c;
    const bool of_norms = mha__solved_entry_at(index)->how == SOLVE_NORMS;
    const size_t width = c->H * c->d_v, G = of_norms ? c->H : c->H / c->H_kv, all = c->B * c->T_q;
    const size_t n = of_norms ? 2 * c->d_k : (G + 1) * c->d_k,
                 count = mha__solved_count(c, mha__solved_entry_at(index));
    const double work = 4 * (double)(width * c->d_k) * (double)s->inputs->S; /* of a row */
    double checked = 0;
    size_t rows = 0;
    mha__look look;
    mha__program program = s->unmodified.program;
    double *x = mha__arena_take(&s->pool, count * sizeof *x);
    unsigned char *marks = mha__arena_take(pool, all);
    if (!x || !marks)
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < count && of_norms; i++)
        x[i] = 1;
    if (s->inputs->sequences || (!of_norms && s->target.stage != MHA_STAGE_OUTPUT) ||
        !mha__solved_entry_at(index)->apply(c, &program, x))
        return MHA_OK;
    TRY(mha__look_begin(s, pool, &look, error));
    for (size_t r = 0; r < all; r++)
        checked += s->rows_checked[r];
    for (size_t r = 0; r < all && rows < MOST_ROWS && work * (double)rows < most_work; r++)
        rows += marks[r] = s->rows_checked[r];
    if (!look.found || n > MOST_UNKNOWN || rows < 2 || (rows - 1) * G * c->d_v < MHA__DATA * n)
        return MHA_OK;
    lacking l = {s, index, c->d_k, G, rows, rows * c->d_v, of_norms, marks, NULL, NULL};
    double *memory = mha__arena_take(pool, ((2 * c->d_k + 2) * rows * width + count + n * n + n) * sizeof *memory);
    l.found = mha__arena_take(pool, rows * width * sizeof(double));
    l.computed = mha__arena_take(pool, all * width * sizeof(double));
    if (!memory || !l.found || !l.computed)
        return mha__search_no_memory(s, error);
    for (size_t r = 0, at = 0; r < all; r++)
        if (marks[r]) {
            for (size_t e = 0; e < width; e++)
                l.found[e / c->d_v * l.one + at * c->d_v + e % c->d_v] = look.found[r * width + e];
            at++;
        }
    s->workers.bench[0]->columns = 0;
    descend(&l, count, x, memory);
    program = s->unmodified.program;
    (void)mha__solved_entry_at(index)->apply(c, &program, x);
    double *y = x;
    if (!of_norms)
        TRY(mha__look_at(s, &program, MHA_STAGE_OUTPUT, pool, &y, error));
    for (size_t e = 0, n_out = c->E_out; e < all * n_out && !of_norms; e++) /* b_O: the mean of what is left */
        x[count - n_out + e % n_out] += s->rows_checked[e / n_out] ? (s->target.values[e] - y[e]) / checked : 0;
    mha__search_append(s, index, x);
    return MHA_OK;
}
