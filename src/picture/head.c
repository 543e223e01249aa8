/* A head that is filled row by row: its map, its largest weights, its statistics. */
#include <string.h>

#include "picture/head.h"

/* The most rows and columns of a map. */
static size_t cells_for(size_t heads)
{
    const double side = sqrt(8e6 / (double)heads);
    return side > MHA__CELLS ? MHA__CELLS : side < 64 ? 64 : (size_t)side;
}

/* The most weights of a row that are listed beside a pooled map. */
static size_t top_for(size_t heads, const mha__head *head)
{
    const double each = (1 << 21) / ((double)heads * (double)(head->queries ? head->queries : 1));
    const size_t most = each < 1 ? 1 : each > MHA__TOP ? MHA__TOP : (size_t)each;
    return head->keys < most ? head->keys : most;
}

static size_t pool_of(size_t extent, size_t cells)
{
    return extent == 0 ? 1 : (extent + cells - 1) / cells;
}

static double *numbers_of(mha__arena *memory, size_t count)
{
    size_t bytes;
    return mha__mul(count, sizeof(double), &bytes) ? mha__arena_take(memory, bytes) : NULL;
}

mha_status mha__head_begin(mha__head *head, mha__arena *memory, size_t heads, bool numbers, mha_error *error)
{
    const size_t cells = cells_for(heads);
    head->pool_rows = pool_of(head->queries, cells);
    head->pool_columns = pool_of(head->keys, cells);
    head->rows = mha__cells_of(head->queries, head->pool_rows);
    head->columns = mha__cells_of(head->keys, head->pool_columns);
    const bool pooled = head->pool_rows > 1 || head->pool_columns > 1;
    bool taken = (head->weights = numbers_of(memory, head->rows * head->columns));
    if (taken && numbers && !pooled)
        taken = (head->scores = numbers_of(memory, head->rows * head->columns)) &&
                (head->masked = numbers_of(memory, head->rows * head->columns));
    if (taken && pooled) {
        head->top = top_for(heads, head);
        taken = (head->top_weights = numbers_of(memory, head->queries * head->top)) &&
                (head->top_keys = mha__arena_take(memory, head->queries * head->top * sizeof *head->top_keys));
    }
    if (!taken)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for the map of a head of %zu queries and %zu keys",
                         head->queries, head->keys);
    for (size_t i = 0; i < head->rows * head->columns; i++)
        head->weights[i] = MHA__HIDDEN;
    head->statistics = (mha__head_statistics){0};
    return MHA_OK;
}

/* The greatest of two weights; NaN stays. */
static double greater(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static void add_to_map(mha__head *head, const mha__head_row *row, size_t r)
{
    double *cells = head->weights + r / head->pool_rows * head->columns;
    for (size_t c = 0, j = head->first_key; c < head->columns && j < row->seen; c++) {
        const size_t left = row->keys - j, past = j + (left < head->pool_columns ? left : head->pool_columns);
        size_t end = past < head->first_key + head->keys ? past : head->first_key + head->keys;
        end = end < row->seen ? end : row->seen;
        double most = 0;
        for (size_t k = j; k < end; k++)
            most = greater(most, row->weights[k]);
        /* A softmax gives a hidden key 0, or NaN if all are hidden: a weight above 0 is visible. */
        if (row->is_softmax && most > 0)
            cells[c] = greater(cells[c], most);
        else
            for (size_t k = j; k < end; k++)
                if (!row->masked || row->masked[k] != -INFINITY)
                    cells[c] = greater(cells[c], row->weights[k]);
        j = end;
    }
    if (!head->masked)
        return;
    for (size_t c = 0; c < head->columns; c++) {
        const size_t at = r * head->columns + c, j = head->first_key + c;
        head->masked[at] = row->masked ? row->masked[j] : NAN;
        head->scores[at] = row->scores ? row->scores[j] : NAN;
    }
}

/* Puts the largest weights of the keys that are shown in front, largest first, earlier keys first among equals. */
static void add_to_top(mha__head *head, const mha__head_row *row, size_t r)
{
    double *weights = head->top_weights + r * head->top;
    uint32_t *keys = head->top_keys + r * head->top;
    for (size_t j = head->first_key; j < head->first_key + head->keys && j < row->seen; j++) {
        const double w = row->weights[j];
        if (!(w > weights[head->top - 1]))
            continue;
        size_t at = head->top - 1;
        for (; at > 0 && w > weights[at - 1]; at--)
            weights[at] = weights[at - 1], keys[at] = keys[at - 1];
        weights[at] = w, keys[at] = (uint32_t)j;
    }
}

/* The weight of the key at a position; 0 where there is none. */
static double weight_at(const mha__head_row *row, double position)
{
    const size_t tokens = row->keys - row->extra;
    return position >= 0 && position < (double)tokens ? row->weights[(size_t)position] : 0;
}

/* Whether a row whose weights are all 0 sees a key; without masked scores it is taken for one that does not. */
static bool sees_a_key(const mha__head_row *row)
{
    for (size_t j = 0; row->masked && j < row->seen; j++)
        if (row->masked[j] != -INFINITY)
            return true;
    return false;
}

/* Sums are cut in four, which do not wait for each other. */
enum { PARTS = 4 };

static double sum_of(const double parts[PARTS])
{
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

static double sum_weights(const double *weights, size_t count)
{
    double parts[PARTS] = {0};
    for (size_t j = 0; j < count; j++)
        parts[j % PARTS] += weights[j];
    return sum_of(parts);
}

/* The entropy in nats, and the sum of weight times distance. The logarithm of a weight is its score less one number
 * for the whole row: one logarithm in place of many. */
static void sum_terms(const mha__head_row *row, size_t best, double *entropy, double *distance)
{
    const size_t tokens = row->keys - row->extra, seen = row->seen;
    const double largest = row->weights[best];
    const double above = row->is_softmax && largest > 0 ? row->masked[best] - log(largest) : 0;
    double parts[2][PARTS] = {{0}};
    for (size_t j = 0; j < seen; j++) {
        const double w = row->weights[j];
        const double logarithm = w > 0 ? row->is_softmax ? row->masked[j] - above : log(w) : 0;
        parts[0][j % PARTS] += w * logarithm;
        parts[1][j % PARTS] += j < tokens ? w * fabs(row->position - (double)j) : 0;
    }
    *entropy = -sum_of(parts[0]);
    *distance = sum_of(parts[1]);
}

static void add_to_statistics(mha__head_statistics *s, const mha__head_row *row)
{
    const size_t tokens = row->keys - row->extra, of_tokens = tokens < row->seen ? tokens : row->seen;
    const double sum = sum_weights(row->weights, row->seen);
    double entropy, distance;
    size_t best = 0;
    if (!isfinite(sum)) {
        s->broken++;
        return;
    }
    if (sum == 0 && !sees_a_key(row)) {
        s->empty++;
        return;
    }
    for (size_t j = 1; j < row->seen; j++)
        best = row->weights[j] > row->weights[best] ? j : best;
    sum_terms(row, best, &entropy, &distance);
    s->queries++;
    s->entropy += entropy / log(2);
    s->distance += distance;
    s->self += weight_at(row, row->position);
    s->previous += weight_at(row, row->position - 1);
    s->first += weight_at(row, 0);
    /* A remainder below the rounding error of the sum counts as 0. */
    const double rest = 1 - (of_tokens == row->seen ? sum : sum_weights(row->weights, of_tokens));
    s->sink += rest > (double)row->seen * 0x1p-52 ? rest : 0;
    s->largest += row->weights[best];
}

void mha__head_add(mha__head *head, mha__head_statistics *sum, const mha__head_row *row)
{
    const size_t r = row->query - head->first_query;
    add_to_map(head, row, r);
    if (head->top > 0)
        add_to_top(head, row, r);
    add_to_statistics(sum, row);
}

const char *mha__statistic_name(size_t index)
{
    static const char *const names[MHA__STATISTICS] = {"entropy", "distance", "self",   "previous",
                                                       "first",   "sink",     "largest"};
    return names[index];
}

double *mha__statistic_at(mha__head_statistics *s, size_t index)
{
    double *const all[MHA__STATISTICS] = {&s->entropy, &s->distance, &s->self,   &s->previous,
                                          &s->first,   &s->sink,     &s->largest};
    return all[index];
}

void mha__head_sum(mha__head *head, const mha__head_statistics *sum)
{
    mha__head_statistics *s = &head->statistics, more = *sum;
    for (size_t i = 0; i < MHA__STATISTICS; i++)
        *mha__statistic_at(s, i) += *mha__statistic_at(&more, i);
    s->queries += sum->queries, s->empty += sum->empty, s->broken += sum->broken;
}

void mha__head_end(mha__head *head)
{
    mha__head_statistics *s = &head->statistics;
    for (size_t i = 0; i < MHA__STATISTICS; i++)
        *mha__statistic_at(s, i) = s->queries > 0 ? *mha__statistic_at(s, i) / (double)s->queries : NAN;
}
