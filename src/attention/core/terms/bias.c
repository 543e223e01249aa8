/* Relative position bias: the row of the table that a query and a key have, and rows of terms filled from it. */
#include <math.h>

#include "attention/core/terms/terms.h"
#include "base/base.h"

enum { MOST_ROWS = 65536, MOST_DISTANCE = 65536 };

/* ---------------------------------------------------------------- rules */

static size_t max_distance(const mha_bias *bias)
{
    return bias->max_distance ? bias->max_distance : 128;
}

/* The buckets of one direction. */
static size_t buckets_each_way(const mha_bias *bias, size_t n)
{
    return bias->one_way ? n : n / 2;
}

static size_t bucket(const mha_bias *bias, size_t n, int64_t p, int64_t q)
{
    const size_t m = buckets_each_way(bias, n), exact = m / 2, first = q > p && !bias->one_way ? m : 0;
    const double far = q > p && bias->one_way ? 0 : fabs((double)q - (double)p);
    if (far < (double)exact)
        return first + (size_t)far;
    if (far >= (double)max_distance(bias))
        return first + m - 1;
    const double x = (double)(m - exact) * log(far / (double)exact) / log((double)max_distance(bias) / (double)exact);
    const double whole = fabs(x - round(x)) < 1e-9 ? round(x) : floor(x);
    return first + exact + (size_t)whole;
}

static size_t grid_tokens(const mha_bias *bias)
{
    return bias->height * bias->width + bias->class_token;
}

/* Rows of the table for two cells; those of a class token follow. */
static size_t grid_rows(const mha_bias *bias)
{
    return (2 * bias->height - 1) * (2 * bias->width - 1);
}

static size_t grid_row(const mha_bias *bias, size_t n, int64_t p, int64_t q)
{
    const int64_t end = (int64_t)grid_tokens(bias), first = bias->class_token, W = (int64_t)bias->width;
    if (p < 0 || q < 0 || p >= end || q >= end)
        return n;
    if (p < first || q < first)
        return grid_rows(bias) + (size_t)(p >= first) + 2 * (size_t)(p < first && q < first);
    p -= first, q -= first;
    return (size_t)((p / W - q / W + (int64_t)bias->height - 1) * (2 * W - 1) + p % W - q % W + W - 1);
}

size_t mha__bias_row(const mha_bias *bias, size_t n, int64_t p, int64_t q)
{
    if (bias->rule == MHA_BIAS_RULE_BUCKETS) {
        const size_t exact = buckets_each_way(bias, n) / 2;
        return exact > 0 && max_distance(bias) > exact && max_distance(bias) <= MOST_DISTANCE ? bucket(bias, n, p, q)
                                                                                             : n;
    }
    return bias->rule == MHA_BIAS_RULE_GRID ? grid_row(bias, n, p, q) : n;
}

/* ---------------------------------------------------------------- checks */

static mha_status check_buckets(const mha_bias *bias, size_t n, mha_error *error)
{
    const size_t least = bias->one_way ? 2 : 4, exact = buckets_each_way(bias, n) / 2;
    if (n < least)
        return mha__fail(error, MHA_INVALID, "bias_table", "expected %zu buckets or more, found %zu rows", least, n);
    if (max_distance(bias) <= exact || max_distance(bias) > MOST_DISTANCE)
        return mha__fail(error, MHA_INVALID, "bias_max_distance",
                         "expected more than the %zu distances that have a bucket each, up to %d, found %zu", exact,
                         MOST_DISTANCE, max_distance(bias));
    return MHA_OK;
}

mha_status mha__bias_expect_cells(const mha__resolved *r, const char *name, size_t cells, mha_error *error)
{
    const int64_t tokens = (int64_t)cells;
    for (size_t b = 0; b < r->plan.B; b++) {
        const mha__sequence s = mha__resolved_sequence(r, b);
        const int64_t q_end = s.offset + (int64_t)s.T_q, k_end = r->first_key + (int64_t)s.S;
        if ((s.T_q > 0 && (s.offset < 0 || q_end > tokens)) || (s.S > 0 && (r->first_key < 0 || k_end > tokens)))
            return mha__fail(error, MHA_INVALID, name,
                             "expected positions from 0 to %lld, found queries from %lld to %lld and keys from %lld to "
                             "%lld",
                             (long long)tokens - 1, (long long)s.offset, (long long)q_end - 1, (long long)r->first_key,
                             (long long)k_end - 1);
    }
    return MHA_OK;
}

static mha_status check_grid(const mha__resolved *r, size_t n, mha_error *error)
{
    const mha_bias *bias = &r->added.bias;
    if (bias->height < 1 || bias->width < 1 || bias->height > MOST_ROWS || bias->width > MOST_ROWS)
        return mha__fail(error, MHA_INVALID, "bias_grid", "expected a grid of 1 to %d cells each way, found %zu x %zu",
                         MOST_ROWS, bias->height, bias->width);
    const size_t rows = grid_rows(bias) + (bias->class_token ? 3 : 0);
    if (n != rows)
        return mha__fail(error, MHA_INVALID, "bias_table", "expected %zu rows for a grid of %zu x %zu%s, found %zu",
                         rows, bias->height, bias->width, bias->class_token ? " and a class token" : "", n);
    return mha__bias_expect_cells(r, "bias_grid", grid_tokens(bias), error);
}

mha_status mha__bias_check(const mha__resolved *r, mha_error *error)
{
    const mha_bias *bias = &r->added.bias;
    const mha_view *table = &r->weight[MHA_BIAS_TABLE];
    if (bias->rule == MHA_BIAS_RULE_NONE)
        return MHA_OK;
    if (!table->data)
        return mha__fail(error, MHA_INVALID, "bias_table", "expected a table for the rule of `bias`, found none");
    const size_t n = table->shape[0];
    if (n > MOST_ROWS)
        return mha__fail(error, MHA_INVALID, "bias_table", "expected a table of at most %d rows, found %zu", MOST_ROWS,
                         n);
    return bias->rule == MHA_BIAS_RULE_BUCKETS ? check_buckets(bias, n, error) : check_grid(r, n, error);
}

/* ---------------------------------------------------------------- floats */

/* Elements of a head's row: distances from -max_distance to max_distance, or the rows of the table. */
static size_t bias_row_width(const mha__resolved *r)
{
    const mha_bias *bias = &r->added.bias;
    return bias->rule == MHA_BIAS_RULE_BUCKETS ? 2 * max_distance(bias) + 1 : r->weight[MHA_BIAS_TABLE].shape[0];
}

size_t mha__bias_floats(const mha__resolved *r)
{
    return r->added.bias.rule == MHA_BIAS_RULE_NONE ? 0 : r->plan.h * bias_row_width(r);
}

void mha__bias_prepare(const mha__resolved *r, float *bias_rows)
{
    const mha_bias *bias = &r->added.bias;
    const mha_view *table = &r->weight[MHA_BIAS_TABLE];
    if (bias->rule == MHA_BIAS_RULE_NONE)
        return;
    const size_t width = bias_row_width(r), n = table->shape[0];
    for (size_t i = 0; i < width; i++) {
        const bool by_distance = bias->rule == MHA_BIAS_RULE_BUCKETS;
        const size_t row = by_distance ? bucket(bias, n, (int64_t)max_distance(bias), (int64_t)i) : i;
        for (size_t head = 0; head < r->plan.h; head++)
            bias_rows[head * width + i] = mha__finite_term(mha_view_get(table, (size_t[]){row, head}));
    }
}

/* Writes n terms `step` apart, or adds them to those that are there. */
static void put(float *terms, const float *from, ptrdiff_t step, size_t n, bool add)
{
    for (size_t j = 0; j < n; j++)
        terms[j] = add ? mha__terms_sum(terms[j], from[(ptrdiff_t)j * step]) : from[(ptrdiff_t)j * step];
}

/* The terms of n keys, of which the first is at distance d. */
static void put_distances(const float *bias_row, int64_t most, int64_t d, size_t n, bool add, float *terms)
{
    const int64_t end = d + (int64_t)n;
    int64_t from = d;
    while (from < end) { /* nearer distances than -most, those of the row, farther ones than most */
        const bool inside = from >= -most && from <= most;
        int64_t to = from < -most ? -most : inside ? most + 1 : end;
        to = to < end ? to : end;
        const float *at = bias_row + (inside ? from + most : from < 0 ? 0 : 2 * most);
        put(terms + (from - d), at, inside, (size_t)(to - from), add);
        from = to;
    }
}

/* The terms of n keys, of which the first is at position q, for a query at position p. */
static void put_cells(const mha_bias *bias, size_t rows, const float *bias_row, int64_t p, int64_t q, size_t n,
                      bool add, float *terms)
{
    const int64_t first = bias->class_token, W = (int64_t)bias->width;
    for (size_t done = 0; done < n;) { /* a line of the grid, the class token or all keys of a class token */
        const int64_t at = q + (int64_t)done;
        const bool cells = p >= first && at >= first;
        const size_t left = n - done, line = cells ? (size_t)(W - (at - first) % W) : at < first ? 1 : left;
        const size_t some = line < left ? line : left;
        put(terms + done, bias_row + grid_row(bias, rows, p, at), cells ? -1 : 0, some, add);
        done += some;
    }
}

void mha__bias_terms(const mha__resolved *r, const float *bias_rows, const mha__sequence *s, size_t head, size_t i,
                     mha__interval keys, bool add, float *terms)
{
    const mha_bias *bias = &r->added.bias;
    const size_t width = bias_row_width(r), n = keys.to - keys.from;
    const float *bias_row = bias_rows + head * width;
    const int64_t p = s->offset + (int64_t)i, q = r->first_key + (int64_t)keys.from;
    if (bias->rule == MHA_BIAS_RULE_BUCKETS)
        put_distances(bias_row, (int64_t)max_distance(bias), q - p, n, add, terms);
    else
        put_cells(bias, width, bias_row, p, q, n, add, terms);
}
