/* Finds batch rows, rows, heads and columns that replace others, in a finished array or in an operand; factors of
 * heads; and the index from which on the output is 0. */
#include <math.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

enum { MOST_PLACES = 1024 };

static int how_of(size_t index)
{
    return mha__solved_entry_at(index)->how;
}

/* True if the tensor has a row for each query, and all rows are checked. */
static bool has_all_rows(const mha__search *s)
{
    const mha_stage stage = s->target.stage;
    return s->c->kind != CASE_ROPE && !s->target.is_zero && !s->in_part && !s->inputs->sequences &&
           (stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS);
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

/* ---------------------------------------------------------------- parts of a finished array */

/* Two arrays (batch rows, rows, heads, columns): the tensor's and the case's, with the elements of a row of each. */
typedef struct array {
    size_t n[4];
    const double *found, *own;
    size_t found_row, own_row;
    const unsigned char *rows; /* (batch rows, rows) that are compared; NULL: all */
    bool few;                  /* these are few */
} array;

enum { IS_B = 1, IS_T = 2, IS_H = 4, IS_C = 8 };

/* Adds to `far` the squared distance of each part of the tensor from each part of the case, over as many rows as the
 * limit of work allows. A part is an index of the axes `moved`; `each`: only parts of the same batch row are compared.
 * Returns the number of rows. */
static size_t measure(const mha__target *t, const array *a, unsigned moved, bool each, size_t parts, size_t *offset,
                      double *far)
{
    const double most_work = 0x1p28;
    const size_t *n = a->n, d = n[3], strides[] = {n[1] * a->own_row, a->own_row, d, 1};
    const size_t apart =
        moved & IS_T || a->few ? 1 : 1 + (size_t)((double)(n[0] * n[1] * n[2] * d) * (double)parts / most_work);
    size_t at[4] = {0}, only[4], looked = 0, next = 0;
    for (int k = 0; k < 4; k++)
        only[k] = moved >> k & 1 ? n[k] : 1;
    do /* where each part of the case begins */
        offset[next++] = at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
    while (mha__index_next(at, only, 4));
    for (size_t e = 0, width = n[2] * d; e < n[0] * n[1] * width; e++) {
        const size_t row = e / width, index[] = {row / n[1], row % n[1], e % width / d, e % d};
        if ((a->rows && !a->rows[row]) || index[1] % apart != 0) {
            e += width - 1; /* the whole row */
            continue;
        }
        size_t place = each ? index[0] : 0, from = 0;
        for (int k = 0; k < 4; k++) {
            place = moved >> k & 1 ? place * n[k] + index[k] : place;
            from += moved >> k & 1 ? 0 : index[k] * strides[k];
        }
        looked += e % width == 0;
        const double y = a->found[row * a->found_row + e % width];
        for (size_t k = 0; k < parts; k++) {
            const double x = a->own[from + offset[k]], by = x - y;
            far[place * parts + k] += isfinite(by) ? by * by : mha__search_same(t, x, y) ? 0 : t->rms * t->rms;
        }
    }
    return looked;
}

/* The tensor as it is recorded. */
static array recorded(const mha__search *s)
{
    const mha__target *t = &s->target;
    return (array){{s->c->B, t->row / t->columns, 1, t->recorded_columns},
                   t->values,
                   s->unmodified.whole,
                   t->recorded_columns,
                   t->columns,
                   NULL,
                   false};
}

/* Its merged heads; without data if they cannot be found. */
static mha_status merged_heads(mha__search *s, mha__arena *pool, array *a, mha_error *error)
{
    const mha_case *c = s->c;
    mha__look l;
    TRY(mha__look_begin(s, pool, &l, error));
    *a = (array){{c->B, c->T_q, c->H, c->d_v},
                 l.found,
                 s->unmodified.whole,
                 l.width,
                 l.width,
                 l.projected ? s->rows_checked : s->rows_present,
                 l.projected};
    if (!l.found || !l.projected)
        return MHA_OK;
    TRY(mha__look_at(s, &s->unmodified.program, MHA_STAGE_HEADS, pool, &l.heads, error));
    a->own = l.heads;
    return MHA_OK;
}

/* Finds which head is in each place of a W_O that cannot be undone: P of y - b_O = sum P_hg o_g W_h over all pairs of a
 * place h and a head g, by least squares of as many rows as it takes; far is -P. False if they do not determine it. */
static mha_status measure_projected(const mha__search *s, mha__arena *pool, double *far, bool *found, mha_error *error)
{
    const size_t H = s->c->H, d = s->c->d_v, n = H * H, out = s->target.columns;
    const double *W = s->inputs->weight[MHA_W_O], *bias = s->inputs->weight[MHA_B_O];
    double *heads, *A = mha__arena_take(pool, n * n * sizeof *A), *parts = mha__arena_take(pool, n * out * sizeof *A),
                   *y = mha__arena_take(pool, out * sizeof *y);
    size_t equations = 0;
    TRY(mha__look_at(s, &s->unmodified.program, MHA_STAGE_HEADS, pool, &heads, error));
    if (!A || !parts || !y)
        return mha__search_no_memory(s, error);
    for (size_t row = 0; row < s->c->B * s->c->T_q && equations < 4 * n; row++) {
        if (!s->rows_checked[row])
            continue;
        for (size_t h = 0; h < H; h++)
            mha__gemm_double(H, out, d, heads + row * H * d, d, W + h * d * out, out, parts + h * H * out, out);
        for (size_t j = 0; j < out; j++)
            y[j] = s->target.values[row * out + j] - (bias ? bias[j] : 0);
        mha__equations_add(parts, n, out, y, A, far);
        equations += out;
    }
    *found = equations > n;
    for (size_t i = 0; i < n; i++)
        *found &= isfinite(far[i]);
    *found = *found && mha__equations_solve(A, n, MHA__PIVOT, far);
    for (size_t i = 0; i < n; i++)
        far[i] = -far[i];
    return MHA_OK;
}

/* Finds the part of the case that is nearest to each part of the tensor. */
mha_status mha__solve_places(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    enum { MOST_HEADS = 16 }; /* of a W_O that cannot be undone: the work grows with their sixth power */
    const mha_case *c = s->c;
    const int how = how_of(index);
    const bool rows = how == SOLVE_WRITTEN, batches = how == SOLVE_BATCHES, columns = how == SOLVE_COLUMNS,
               blocks = how == SOLVE_BLOCKS;
    const unsigned moved = rows ? IS_T : batches ? IS_B : columns ? IS_H | IS_C : blocks ? IS_B | IS_H : (unsigned)IS_H;
    array a = recorded(s);
    size_t parts = 1, places = rows ? c->B : 1;
    bool known = true;
    if (c->kind == CASE_ROPE || (rows && !has_all_rows(s)) || ((batches || blocks) && s->inputs->sequences))
        return MHA_OK;
    if (!rows && !batches)
        TRY(merged_heads(s, pool, &a, error));
    for (int k = 0; k < 4; k++)
        parts *= moved >> k & 1 ? a.n[k] : 1;
    places *= parts;
    const bool projected = !a.found && how == SOLVE_HEADS && parts <= MOST_HEADS && !s->inputs->gates &&
                           s->target.stage == MHA_STAGE_OUTPUT && c->kind == CASE_MHA;
    if (parts < 2 || parts > MOST_PLACES || (blocks && (c->B == 1 || c->H == 1 || (a.few && s->in_part))) ||
        (!a.found && !projected))
        return MHA_OK;
    double *order = mha__arena_take(&s->pool, places * sizeof *order),
           *far = mha__arena_take(pool, places * parts * sizeof *far);
    size_t *offset = mha__arena_take(pool, parts * sizeof *offset);
    if (!order || !far || !offset)
        return mha__search_no_memory(s, error);
    if (projected)
        TRY(measure_projected(s, pool, far, &known, error));
    else
        known = measure(&s->target, &a, moved, rows, parts, offset, far) > columns;
    for (size_t i = 0; i < places; i++)
        order[i] = (double)mha__solve_nearest(far + i * parts, parts, i % parts);
    if (known)
        mha__solve_offer(s, index, order, places, parts);
    return MHA_OK;
}

/* ---------------------------------------------------------------- parts of an operand */

/* A search for what each place reads: a bug is tried with each of n numbers in all places. */
typedef struct reading {
    size_t n, places;
    int how;
    const double *found; /* (B, T_q, width) */
    size_t width;
    mha_stage stage;
    double noise; /* of a squared distance of a place that tells its own number from another */
    double *tried, *computed, *far, *least, *order;
} reading;

/* The place that column j of row r (B, T_q) belongs to. */
static size_t place_of(const mha_case *c, const reading *x, size_t r, size_t j)
{
    return x->how == SOLVE_QUERIES     ? r
           : x->how == SOLVE_KV_BLOCKS ? r / c->T_q * c->H_kv + j * c->H_kv / x->width
                                       : j / c->d_v;
}

/* Keeps in each place the number with which its elements in `rows` come nearest; its own, if no other is nearer by more
 * than noise. Returns false if the bug does not apply. */
static bool try_each(const mha__search *s, const reading *x, size_t index, const unsigned char *rows)
{
    const mha_case *c = s->c;
    for (size_t k = 0; k < x->n; k++) {
        mha__program program = s->unmodified.program;
        double *tried = x->tried + k * x->places; /* rows are kept by the address of the numbers */
        for (size_t p = 0; p < x->places; p++) {
            const size_t own = x->how == SOLVE_KV_HEADS ? p * x->n / x->places : p % x->n;
            tried[p] = (double)((own + x->n - k) % x->n), x->far[p] = -1;
        }
        if (!mha__solved_entry_at(index)->apply(c, &program, tried))
            return false;
        mha__run(s->workers.bench[0], &program, x->stage, rows, x->computed);
        for (size_t r = 0; r < c->B * c->T_q; r++)
            for (size_t j = 0; rows[r] && j < x->width; j++) {
                double *far = &x->far[place_of(c, x, r, j)];
                const double by = x->found[r * x->width + j] - x->computed[r * x->width + j];
                *far = fmax(*far, 0) + (isfinite(by) ? by * by : 0);
            }
        for (size_t p = 0; p < x->places; p++)
            if (x->far[p] >= 0 && (k == 0 || x->far[p] + x->noise < x->least[p]))
                x->least[p] = x->far[p], x->order[p] = tried[p];
    }
    return true;
}

/* True if numbers neither explain the tensor nor come near: so far are some rows that they put there. */
static bool is_far(const mha__search *s, double far, size_t elements)
{
    const mha__target *t = &s->target;
    const double rms = sqrt(far / (double)elements), all = (double)mha__search_elements(s, &s->region_full);
    mha__candidate x = {.order = 1, .finite = true, .louder = 1, .excess = rms - t->storage.relative * t->largest};
    for (int wide = 0; wide < 2; wide++)
        x.needed[wide] = rms - t->allowed[wide].rtol * t->largest;
    return isfinite(far) && mha__search_is_refuted(s, &x) && !mha__search_is_close(s, sqrt(far / all) / t->rms);
}

/* Finds the number of all rows of q, after it has looked at three of eight: mostly they tell that no order is near. */
static bool try_rows(const mha__search *s, const reading *x, size_t index, unsigned char *rows)
{
    size_t count = 0;
    double far = 0;
    for (size_t at = 0; at < x->places; at++)
        count += rows[at] = at % x->n % 8 < 3;
    if (!try_each(s, x, index, rows))
        return false;
    for (size_t at = 0; at < x->places; at++)
        far += rows[at] ? x->least[at] : 0, rows[at] = !rows[at];
    return !is_far(s, far, count * x->width) && try_each(s, x, index, rows);
}

/* Finds the head, or the row of q, that each place reads. */
mha_status mha__solve_readers(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    enum { MOST_HEADS = 64 };
    const double most_work = 1e9; /* products, about a second */
    const mha_case *c = s->c;
    const mha__target *t = &s->target;
    const size_t all = c->B * c->T_q;
    mha__look l;
    reading x = {.n = c->H, .places = c->H, .how = how_of(index), .stage = MHA_STAGE_HEADS, .width = c->H * c->d_v};
    const bool queries = x.how == SOLVE_QUERIES;
    if (queries) {
        const double work = (double)(all * c->T_q) * (double)s->inputs->S * (double)(c->H * (c->d_k + c->d_v));
        x.n = c->T_q, x.places = all, x.stage = t->stage, x.width = t->columns, x.found = t->values;
        x.noise = (double)x.width * t->noise[0] * t->noise[0]; /* a query that sees one key gives what others give */
        if (!has_all_rows(s) || work > most_work)
            return MHA_OK;
    } else {
        x.n = x.how == SOLVE_KV_HEADS ? c->H_kv : x.how == SOLVE_KV_BLOCKS ? c->B * c->H_kv : c->H;
        x.places = x.how == SOLVE_KV_BLOCKS ? x.n : c->H;
        if (x.n > MOST_HEADS)
            return MHA_OK;
        TRY(mha__look_begin(s, pool, &l, error));
        x.found = l.found;
    }
    if (x.n < 2 || !x.found)
        return MHA_OK;
    unsigned char *rows = queries ? mha__arena_take(pool, all) : s->rows_checked;
    x.order = mha__arena_take(&s->pool, x.places * sizeof *x.order);
    x.tried = mha__arena_take(&s->pool, x.n * x.places * sizeof *x.tried);
    x.far = mha__arena_take(pool, x.places * sizeof *x.far);
    x.least = mha__arena_take(pool, x.places * sizeof *x.least);
    x.computed = mha__arena_take(pool, all * x.width * sizeof *x.computed);
    if (!rows || !x.order || !x.tried || !x.far || !x.least || !x.computed)
        return mha__search_no_memory(s, error);
    for (size_t p = 0; p < x.places; p++)
        x.order[p] = -1;
    s->workers.bench[0]->columns = 0;
    if (!(queries ? try_rows(s, &x, index, rows) : try_each(s, &x, index, rows)))
        return MHA_OK;
    bool other = false;
    for (size_t p = 0; p < x.places; p++) {
        x.order[p] = x.order[p] < 0 ? x.tried[p] : x.order[p]; /* the first that is tried is the place's own */
        other |= x.order[p] != x.tried[p];
    }
    if (other)
        mha__search_append(s, index, x.order);
    return MHA_OK;
}

/* ---------------------------------------------------------------- factors, and an end */

/* By least squares over the elements at the place of each head. */
mha_status mha__solve_factors(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const size_t H = s->c->H, d = s->c->d_v, rows = s->c->B * s->c->T_q;
    mha__look l;
    TRY(mha__look_begin(s, pool, &l, error));
    if (!l.found || H == 1)
        return MHA_OK;
    TRY(mha__look_at(s, &s->unmodified.program, MHA_STAGE_HEADS, pool, &l.heads, error));
    double *factor = mha__arena_take(&s->pool, H * sizeof *factor);
    if (!factor)
        return mha__search_no_memory(s, error);
    bool differ = false; /* else the output is multiplied */
    for (size_t h = 0; h < H; h++) {
        double xx = 0, xy = 0;
        for (size_t e = 0; e < rows * d; e++) {
            const double x = l.heads[(e / d * H + h) * d + e % d], y = l.found[(e / d * H + h) * d + e % d];
            if (s->rows_checked[e / d] && isfinite(x * y))
                xx += x * x, xy += x * y;
        }
        factor[h] = xx > 0 ? xy / xx : 1;
        differ |= fabs(factor[h] - factor[0]) > MHA__SAME_NUMBER * fabs(factor[0]);
    }
    if (differ)
        mha__search_append(s, index, factor);
    return MHA_OK;
}

/* The end is after the last element that is not 0. If only whole rows, heads or batch rows are lacking, it is no end of
 * the memory. */
mha_status mha__solve_unwritten(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha_case *c = s->c;
    const mha__target *x = &s->target;
    const size_t T = c->T_q, width = x->columns;
    const double one = 1;
    mha__program program = s->unmodified.program;
    size_t from = 0, end = 0;
    (void)pool;
    if (!has_all_rows(s) || !mha__solved_entry_at(index)->apply(c, &program, &one))
        return MHA_OK;
    const int part = mha__arg(&program, AT_OUT, OP_ZERO);
    for (size_t i = 0; i < c->B * T * width; i++) {
        const size_t at = mha__number_written(c, part, i / width / T, i / width % T, i % width, width) + 1;
        end = at > end ? at : end;
        from = at > from && x->values[i] != 0 ? at : from;
    }
    const bool by_head = part == MHA__LACKS_END_BY_HEAD, whole = part < MHA__LACKS_END;
    const size_t unit = by_head ? T * c->d_v : width, all = T * width;
    double *number = mha__arena_take(&s->pool, sizeof *number);
    if (!number)
        return mha__search_no_memory(s, error);
    *number = (double)from;
    if (from > 0 && from < end && (whole || (from % all != 0 && (c->B > 1 || from % unit != 0))))
        mha__search_append(s, index, number);
    return MHA_OK;
}
