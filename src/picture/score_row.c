/* Rows of scores in float32 on their way into a head: each is read once for its largest score, once for its softmax and
 * all sums, and once for its map. */
#include <float.h>
#include <string.h>

#include "compute/kernels/kernels.h"
#include "picture/head.h"

/* Numbers that are worked on together: vectors of the compiler's. */
typedef float quad __attribute__((vector_size(16)));
typedef float quad_at __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(16)));
typedef double wide __attribute__((vector_size(32)));

enum { PART = 256 }; /* keys whose terms are summed at a time */
#define LANES ((size_t)4)

static inline quad load(const float *x)
{
    return *(const quad_at *)x;
}

static inline quad splat(float x)
{
    return x - (quad){0};
}

static inline quad choose(mask which, quad a, quad b)
{
    return (quad)(((mask)a & which) | ((mask)b & ~which));
}

/* The largest of x[from, to), NaN left aside; `least` when there is none. */
static float largest(const float *x, size_t from, size_t to, float least)
{
    quad most[2] = {splat(least), splat(least)};
    size_t j = from;
    for (; j + 2 * LANES <= to; j += 2 * LANES)
        for (size_t i = 0; i < 2; i++) {
            const quad one = load(x + j + i * LANES);
            most[i] = choose(one > most[i], one, most[i]);
        }
    float all = least;
    for (size_t l = 0; l < LANES; l++) {
        all = most[0][l] > all ? most[0][l] : all;
        all = most[1][l] > all ? most[1][l] : all;
    }
    for (; j < to; j++)
        all = x[j] > all ? x[j] : all;
    return all;
}

/* Sums over the keys of a row, where e = exp(t) and t is a score less the largest of them. */
typedef struct sums {
    double weights, logarithms, distances; /* of e, of e t and of e times the distance of key and query */
    double extra;                          /* the part of `weights` that is of no token */
} sums;

static double sum_of(const wide *x)
{
    return ((*x)[0] + (*x)[1]) + ((*x)[2] + (*x)[3]);
}

/* e for keys [from, from + n), n <= PART, and their sums; exp is 0 at -100 and below, which stands for hidden keys. */
static void add_part(const mha__kernels *k, const mha__score_row *row, float most, size_t from, size_t n, sums *s)
{
    static const float none = -100.0f;
    float t[PART + LANES];
    const float *x = row->scores + from;
    float *e = row->weights + from;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const quad one = load(x + j) - splat(most), low = splat(none);
        *(quad_at *)(t + j) = choose(one < low, low, one);
    }
    for (; j < n; j++)
        t[j] = x[j] - most < none ? none : x[j] - most;
    k->exp(e, t, n);
    wide weights = {0}, logarithms = {0}, distances = {0};
    wide away = {row->position - (double)from, row->position - (double)(from + 1), row->position - (double)(from + 2),
                 row->position - (double)(from + 3)};
    typedef int64_t wide_mask __attribute__((vector_size(32)));
    for (j = 0; j + LANES <= n; j += LANES) {
        const wide one = __builtin_convertvector(load(e + j), wide);
        weights += one;
        logarithms += one * __builtin_convertvector(load(t + j), wide);
        distances += one * (wide)((wide_mask)away & INT64_MAX);
        away -= (wide){LANES, LANES, LANES, LANES};
    }
    s->weights += sum_of(&weights), s->logarithms += sum_of(&logarithms), s->distances += sum_of(&distances);
    for (; j < n; j++) {
        s->weights += (double)e[j];
        s->logarithms += (double)e[j] * (double)t[j];
        s->distances += (double)e[j] * fabs(row->position - (double)(from + j));
    }
}

static sums sum_row(const mha__score_row *row, float most)
{
    const mha__kernels *k = mha__kernels_get();
    const size_t tokens = row->keys - row->extra;
    sums s = {0};
    for (size_t j = row->from; j < row->to; j += PART)
        add_part(k, row, most, j, row->to - j < PART ? row->to - j : PART, &s);
    sums extra = {0};
    for (size_t j = tokens; j < row->keys; j += PART)
        add_part(k, row, most, j, row->keys - j < PART ? row->keys - j : PART, &extra);
    s.weights += extra.weights, s.logarithms += extra.logarithms;
    s.extra = extra.weights;
    return s;
}

/* ---------------------------------------------------------------- the map, and the largest weights */

typedef struct interval {
    size_t from, to;
} interval;

static interval shared(interval a, interval b)
{
    return (interval){a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
}

/* The largest keys so far, largest first. */
typedef struct strongest {
    size_t count;
    float weights[MHA__TOP];
    uint32_t keys[MHA__TOP];
} strongest;

static void add_strong(strongest *top, const float *weights, interval keys)
{
    for (size_t j = keys.from; j < keys.to; j++) {
        size_t at = top->count - 1;
        if (!(weights[j] > top->weights[at]))
            continue;
        for (; at > 0 && weights[j] > top->weights[at - 1]; at--)
            top->weights[at] = top->weights[at - 1], top->keys[at] = top->keys[at - 1];
        top->weights[at] = weights[j], top->keys[at] = (uint32_t)j;
    }
}

/* Whether any of these keys is seen: with a weight of 0, too. */
static bool sees(const mha__score_row *row, interval keys)
{
    for (size_t j = keys.from; j < keys.to; j++)
        if (row->scores[j] != -INFINITY)
            return true;
    return false;
}

/* Puts keys of the row into its map; their weights are e / total. Where total is no number, all that is seen is NaN. */
static void add_keys(mha__head *head, const mha__score_row *row, interval keys, double total, strongest *top)
{
    double *cells = head->weights + (row->query - head->first_query) / head->pool_rows * head->columns;
    keys = shared(keys, (interval){head->first_key, head->first_key + head->keys});
    for (size_t j = keys.from, end; j < keys.to; j = end) {
        const size_t c = (j - head->first_key) / head->pool_columns;
        end = head->first_key + (c + 1) * head->pool_columns;
        end = end < keys.to ? end : keys.to;
        const interval cell = {j, end};
        const float most = isfinite(total) ? largest(row->weights, j, end, 0) : 0;
        if (most == 0 && !sees(row, cell))
            continue;
        const double weight = isfinite(total) ? (double)most / total : (double)NAN;
        cells[c] = isnan(cells[c]) || cells[c] > weight ? cells[c] : weight;
        if (top->count > 0 && most > top->weights[top->count - 1])
            add_strong(top, row->weights, cell);
    }
}

static void store_top(mha__head *head, const mha__score_row *row, const strongest *top, double total)
{
    const size_t at = (row->query - head->first_query) * head->top;
    for (size_t i = 0; i < top->count; i++) {
        head->top_weights[at + i] = (double)top->weights[i] / total;
        head->top_keys[at + i] = top->keys[i];
    }
}

/* The weight of the key at a position, times the total; 0 where none is seen. */
static double weight_at(const mha__score_row *row, double position)
{
    return position >= (double)row->from && position < (double)row->to ? (double)row->weights[(size_t)position] : 0;
}

void mha__head_add_scores(mha__head *head, mha__head_statistics *sum, const mha__score_row *row)
{
    const size_t tokens = row->keys - row->extra;
    const interval seen = {row->from, row->to}, extra = {tokens, row->keys};
    float most = largest(row->scores, tokens, row->keys, largest(row->scores, row->from, row->to, -INFINITY));
    const float of_keys = most;
    for (size_t i = 0; i < 2; i++)
        most = row->logits[i] > most ? row->logits[i] : most;
    sums s = {.weights = (double)NAN};
    if (!row->is_broken)
        s = sum_row(row, most > -INFINITY ? most : 0);
    double total = s.weights;
    for (size_t i = 0; i < 2; i++)
        total += row->logits[i] == -INFINITY ? 0 : exp((double)row->logits[i] - (double)most);
    strongest top = {.count = head->top};
    add_keys(head, row, seen, total, &top);
    add_keys(head, row, extra, total, &top);
    if (!isfinite(total)) {
        sum->broken++;
        return;
    }
    if (s.weights == 0 && !sees(row, seen) && !sees(row, extra)) {
        sum->empty++;
        return;
    }
    store_top(head, row, &top, total);
    sum->queries++;
    sum->entropy += (s.weights * log(total) - s.logarithms) / total / log(2);
    sum->distance += s.distances / total;
    sum->self += weight_at(row, row->position) / total;
    sum->previous += weight_at(row, row->position - 1) / total;
    sum->first += weight_at(row, 0) / total;
    /* A remainder below the rounding error of the sum counts as 0. */
    const double rest = 1 - (s.weights - s.extra) / total;
    sum->sink += rest > (double)row->keys * 0x1p-52 ? rest : 0;
    sum->largest += (double)expf(of_keys - most) / total;
}
