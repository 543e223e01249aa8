/* Attention over the keys of several parts from the heads and the lse of each. */
#include <math.h>

#include "base/base.h"
#include "base/heads.h"
#include "base/overlap.h"
#include "mha/merge.h"

/* heads as (B, T_q, h, d_v); lse (B, h, T_q). */
typedef struct part {
    mha_view heads, lse;
} part;

static part by_head(const mha_part *given, size_t h)
{
    return (part){given->heads.rank == 3 ? mha__split_heads(&given->heads, h) : given->heads, given->lse};
}

/* ---------------------------------------------------------------- what is refused */

static mha_status check_view(const char *name, const mha_view *view, int rank, const size_t *shape, mha_error *error)
{
    TRY(mha__expect_shape(error, name, view, rank, shape));
    if (!view->data && mha_view_elements(view) != 0)
        return mha__fail(error, MHA_INVALID, name, "expected data, found none");
    if (!mha__dtype_is_float(view->dtype))
        return mha__fail(error, MHA_INVALID, name, "expected elements of a floating type, found %s",
                         mha_dtype_name(view->dtype));
    return MHA_OK;
}

static mha_status check_apart(const char *name, const mha_view *written, const char *other_name, const mha_view *other,
                              mha_error *error)
{
    if (!mha__may_meet(written, other) || mha__view_same(written, other))
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, name,
                     "expected memory of its own or the view of a part, found memory of the %s of a part", other_name);
}

static mha_status check_part(const mha_part *given, size_t h, const part *result, bool written, mha_error *error)
{
    const size_t *s = result->heads.shape, lse[3] = {s[0], s[2], s[1]}, by_row[3] = {s[0], s[1], s[2] * s[3]};
    const bool flat = given->heads.rank == 3;
    TRY(check_view("heads", &given->heads, flat ? 3 : 4, flat ? by_row : s, error));
    if (!written || given->lse.data)
        TRY(check_view("lse", &given->lse, 3, lse, error));
    if (written) {
        TRY(mha__expect_own_places("heads", &given->heads, error));
        return mha__expect_own_places("lse", &given->lse, error);
    }
    const part p = by_head(given, h);
    TRY(check_apart("heads", &result->heads, "heads", &p.heads, error));
    TRY(check_apart("lse", &result->lse, "lse", &p.lse, error));
    if (mha__may_meet(&result->heads, &p.lse) || mha__may_meet(&result->lse, &p.heads))
        return mha__fail(error, MHA_INVALID, "heads", "expected memory apart from lse, found shared memory");
    return MHA_OK;
}

/* The number of heads, which any lse tells; heads of rank 4 tell it, too. */
static size_t heads_of(const mha_part *parts, size_t count, const mha_part *result)
{
    if (result->heads.rank == 4)
        return result->heads.shape[2];
    const mha_view *lse = result->lse.data || count == 0 ? &result->lse : &parts[0].lse;
    return lse->rank == 3 ? lse->shape[1] : 0;
}

/* ---------------------------------------------------------------- the sums */

typedef struct merging {
    const mha_part *parts;
    size_t count, h;
    part result;
    double empty, empty_lse;
} merging;

enum { COLUMNS = 64 }; /* that are merged together */

/* Columns [from, from + n) of a row; the exponentials of lse - max add up to `total`. */
static void sum_columns(const merging *m, const size_t at[3], double max, double total, size_t from, size_t n,
                        double *sum)
{
    for (size_t c = 0; c < n; c++)
        sum[c] = 0;
    for (size_t i = 0; i < m->count; i++) {
        const double own = mha_view_get(&m->parts[i].lse, at);
        if (own == -INFINITY)
            continue;
        const part p = by_head(&m->parts[i], m->h);
        const double weight = exp(own - max) / total;
        const ptrdiff_t first = mha__row_offset(&p.heads, at[0], at[2], at[1]), step = p.heads.stride[3];
        if (p.heads.dtype == MHA_F32) {
            const float *x = (const float *)p.heads.data + first + (ptrdiff_t)from * step;
            for (size_t c = 0; c < n; c++, x += step)
                sum[c] += weight * (double)*x;
            continue;
        }
        double row[COLUMNS];
        mha__view_read(&p.heads, (size_t[]){at[0], at[2], at[1], from}, n, row);
        for (size_t c = 0; c < n; c++)
            sum[c] += weight * row[c];
    }
}

/* Row `at`: batch row, head, query. */
static void merge_row(const merging *m, const size_t at[3])
{
    const size_t d_v = m->result.heads.shape[3];
    double max = -INFINITY, total = 0;
    for (size_t i = 0; i < m->count; i++) {
        const double own = mha_view_get(&m->parts[i].lse, at);
        max = own > max || isnan(own) ? own : max; /* once NaN, it stays so */
    }
    for (size_t i = 0; i < m->count; i++)
        total += exp(mha_view_get(&m->parts[i].lse, at) - max);
    const double lse = max == -INFINITY ? m->empty_lse : max + log(total);
    for (size_t from = 0, n; from < d_v; from += n) {
        double sum[COLUMNS];
        n = d_v - from < COLUMNS ? d_v - from : COLUMNS;
        sum_columns(m, at, max, total, from, n, sum);
        for (size_t c = 0; c < n && max == -INFINITY; c++)
            sum[c] = m->empty;
        const mha_view *to = &m->result.heads;
        const ptrdiff_t first = mha__row_offset(to, at[0], at[2], at[1]) + (ptrdiff_t)from * to->stride[3];
        for (size_t c = 0; c < n; c++)
            if (to->dtype == MHA_F32)
                ((float *)to->data)[first + (ptrdiff_t)c * to->stride[3]] = (float)sum[c];
            else
                mha_view_set(to, (size_t[]){at[0], at[2], at[1], from + c}, sum[c]);
    }
    if (m->result.lse.data) /* last, as it may be that of a part */
        mha_view_set(&m->result.lse, at, lse);
}

mha_status mha_merge(const mha_part *parts, size_t count, mha_empty_rows empty_rows, const mha_part *result,
                     mha_error *error)
{
    const size_t h = heads_of(parts, count, result);
    const bool nan = empty_rows == MHA_EMPTY_NAN;
    merging m = {parts, count, h, by_head(result, h), nan ? NAN : 0, nan ? NAN : -INFINITY};
    if ((unsigned)empty_rows > MHA_EMPTY_NAN)
        return mha__fail(error, MHA_INVALID, "empty_rows", "expected a value of mha_empty_rows, found number %d",
                         (int)empty_rows);
    if (result->heads.rank == 3 && h == 0 && result->heads.shape[2] != 0)
        return mha__fail(error, MHA_INVALID, "lse", "expected (B, h, T_q), which says how many heads there are");
    TRY(check_part(result, h, &m.result, true, error));
    for (size_t i = 0; i < count; i++)
        TRY(check_part(&parts[i], h, &m.result, false, error));
    if (mha__may_meet(&result->heads, &result->lse))
        return mha__fail(error, MHA_INVALID, "heads", "expected memory apart from lse, found shared memory");
    const size_t *s = m.result.heads.shape;
    for (size_t b = 0; b < s[0]; b++)
        for (size_t head = 0; head < s[2]; head++)
            for (size_t t = 0; t < s[1]; t++)
                merge_row(&m, (size_t[]){b, head, t});
    return MHA_OK;
}
