/* Relative terms: the row of a table that a query and a key have, and whether a call's rule fits its tables. */
#include <math.h>

#include "attention/core/terms/terms.h"
#include "base/base.h"

enum { MOST_ROWS = 65536, MOST_DISTANCE = 65536 };

/* ---------------------------------------------------------------- rules */

static size_t max_distance(const mha_relative *relative)
{
    return relative->max_distance ? relative->max_distance : 512;
}

/* The bucket of a distance, where b = n/2 is one direction's number of buckets. */
static double bucket(const mha_relative *relative, size_t b, double d)
{
    const size_t alone = b / 2; /* distances that have a bucket of their own */
    const double m = (double)alone, far = fabs(d);
    if (far <= m)
        return d;
    const double x = (m - 1) * log(far / m) / log((double)(max_distance(relative) - 1) / m),
                 whole = fabs(x - round(x)) < 1e-9 ? round(x) : ceil(x);
    return copysign(m + whole, d);
}

static bool is_grid_table(mha_weight table)
{
    return table == MHA_RELATIVE_K || table == MHA_RELATIVE_COLUMNS;
}

static size_t grid_row(const mha_relative *relative, mha_weight table, size_t n, int64_t p, int64_t q)
{
    const int64_t W = (int64_t)relative->width, H = (int64_t)relative->height, end = H * W;
    if (p < 0 || q < 0 || p >= end || q >= end || !is_grid_table(table))
        return n;
    return (size_t)(table == MHA_RELATIVE_K ? p / W - q / W + H - 1 : p % W - q % W + W - 1);
}

/* Whether there are buckets enough, and distances beyond them. */
static bool has_buckets(const mha_relative *relative, size_t n)
{
    return n >= 4 && n % 2 == 0 && max_distance(relative) > n / 4 + 1 && max_distance(relative) <= MOST_DISTANCE;
}

size_t mha__relative_row(const mha_relative *relative, mha_weight table, size_t n, int64_t p, int64_t q)
{
    if (relative->rule == MHA_RELATIVE_GRID)
        return grid_row(relative, table, n, p, q);
    const bool buckets = relative->rule == MHA_RELATIVE_LOG_BUCKETS;
    if ((!buckets && relative->rule != MHA_RELATIVE_DISTANCE) || (buckets && !has_buckets(relative, n)) || n == 0 ||
        (table != MHA_RELATIVE_K && table != MHA_RELATIVE_Q))
        return n;
    const size_t middle = n / 2;
    const double d = relative->reversed ? (double)q - (double)p : (double)p - (double)q,
                 row = (double)middle + (buckets ? bucket(relative, middle, d) : d);
    return (size_t)fmin(fmax(row, 0), (double)(n - 1));
}

/* ---------------------------------------------------------------- checks */

static mha_status check_rows(const mha__resolved *r, mha_weight table, size_t rows, mha_error *error)
{
    const mha_relative *relative = &r->added.relative;
    const mha_view *view = &r->weight[table];
    if (!view->data)
        return mha__fail(error, MHA_INVALID, mha_weight_at(table)->name,
                         "expected a table of %zu rows for a grid of %zu x %zu, found none", rows, relative->height,
                         relative->width);
    if (view->shape[0] != rows)
        return mha__fail(error, MHA_INVALID, mha_weight_at(table)->name,
                         "expected %zu rows for a grid of %zu x %zu, found %zu", rows, relative->height,
                         relative->width, view->shape[0]);
    return MHA_OK;
}

static mha_status check_grid(const mha__resolved *r, mha_error *error)
{
    const mha_relative *relative = &r->added.relative;
    const size_t H = relative->height, W = relative->width;
    if (H < 1 || W < 1 || H > MOST_ROWS / 2 || W > MOST_ROWS / 2)
        return mha__fail(error, MHA_INVALID, "relative_grid", "expected a grid of 1 to %d cells each way, found %zu x "
                         "%zu", MOST_ROWS / 2, H, W);
    if (r->weight[MHA_RELATIVE_Q].data)
        return mha__fail(error, MHA_UNSUPPORTED, "relative_q",
                         "expected relative_k only with the rule of a grid; leave it out");
    TRY(check_rows(r, MHA_RELATIVE_K, 2 * H - 1, error));
    TRY(check_rows(r, MHA_RELATIVE_COLUMNS, 2 * W - 1, error));
    return mha__bias_expect_cells(r, "relative_grid", H * W, error);
}

static mha_status check_distances(const mha__resolved *r, mha_error *error)
{
    const mha_relative *relative = &r->added.relative;
    const mha_view *K = &r->weight[MHA_RELATIVE_K], *Q = &r->weight[MHA_RELATIVE_Q];
    const size_t n = K->data ? K->shape[0] : Q->shape[0];
    const char *table = mha_weight_at(K->data ? MHA_RELATIVE_K : MHA_RELATIVE_Q)->name;
    if (!K->data && !Q->data)
        return mha__fail(error, MHA_INVALID, "relative_k",
                         "expected a table, relative_k or relative_q, for the rule of `relative`, found none");
    if (r->weight[MHA_RELATIVE_COLUMNS].data)
        return mha__fail(error, MHA_INVALID, "relative_columns", "expected the rule of a grid with it, found another");
    if (K->data && Q->data && Q->shape[0] != n)
        return mha__fail(error, MHA_INVALID, "relative_q", "expected as many rows as relative_k has, %zu, found %zu", n,
                         Q->shape[0]);
    if (n > MOST_ROWS)
        return mha__fail(error, MHA_INVALID, table, "expected a table of at most %d rows, found %zu", MOST_ROWS, n);
    if (relative->rule == MHA_RELATIVE_DISTANCE || has_buckets(relative, n))
        return MHA_OK;
    if (n < 4 || n % 2 != 0)
        return mha__fail(error, MHA_INVALID, table,
                         "expected an even number of rows, 4 or more, for buckets in two directions, found %zu", n);
    return mha__fail(error, MHA_INVALID, "relative_max_distance",
                     "expected more than %zu for %zu rows, up to %d, found %zu", n / 4 + 1, n, MOST_DISTANCE,
                     max_distance(relative));
}

mha_status mha__relative_check(const mha__resolved *r, mha_error *error)
{
    const mha_relative *relative = &r->added.relative;
    if (relative->rule == MHA_RELATIVE_NONE)
        return MHA_OK;
    if (r->latent.kv_rank)
        return mha__fail(error, MHA_UNSUPPORTED, "relative", "expected none with latent attention");
    if (relative->q_scale != 0 && !r->weight[MHA_RELATIVE_Q].data)
        return mha__fail(error, MHA_INVALID, "relative_q_scale", "expected relative_q with it, found none");
    if (relative->k_scale != 0 && !r->weight[MHA_RELATIVE_K].data)
        return mha__fail(error, MHA_INVALID, "relative_k_scale", "expected relative_k with it, found none");
    return relative->rule == MHA_RELATIVE_GRID ? check_grid(r, error) : check_distances(r, error);
}
