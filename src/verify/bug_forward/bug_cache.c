/* The keys and values of one batch row of a bug: those that were cached, new ones and extra ones. */
#include <stdlib.h>
#include <string.h>

#include "verify/bug_forward/bug_bench.h"

/* Copies n rows of new keys or values behind the first `at` rows, as far as there is room for them. */
static void put(const mha__bug_inputs *in, const double *rows, size_t n, size_t row, size_t at, double *to)
{
    const size_t room = at < in->S ? in->S - at : 0;
    memcpy(to + at * row, rows, (n < room ? n : room) * row * sizeof *to);
}

/* Key (or value) j of sequence b as the bug finds it in pages, d features; zeros where there is no such page. */
static void read_page(const mha_case *c, int order, int part, size_t b, size_t head, size_t j, size_t d, double *to)
{
    const mha_view *pool = &c->tensors[part ? CASE_PAGE_VALUES : CASE_PAGE_KEYS], *table = &c->tensors[CASE_PAGE_TABLE];
    const size_t size = pool->shape[1], columns = table->shape[1], column = j / size, turned = column * c->B + b;
    const size_t entry = order == PAGES_TRANSPOSED ? turned : order == PAGES_OF_FIRST ? column : b * columns + column;
    const int64_t page = order == PAGES_IN_ORDER
                             ? (int64_t)entry
                             : ((const int64_t *)table->data)[entry] + (order == PAGES_NEXT ? 1 : 0);
    for (size_t f = 0; f < d; f++)
        to[f] = page < 0 || (uint64_t)page >= pool->shape[0]
                    ? 0
                    : mha_view_get(pool, (size_t[]){(size_t)page, j % size, head, f});
}

/* Cached key (or value) j of a head, as the bug finds it. */
static const double *find_past(const mha__bug_inputs *in, const mha__knobs *k, int part, size_t b, size_t h, size_t j)
{
    const mha_case *c = in->c;
    const bool other = k->past >> (PROJECTION_K + part) & 1;
    const size_t d = part ? c->d_v : c->d_k, head = other && k->past_heads_reversed ? c->H_kv - 1 - h : h;
    if (!other)
        return in->past[part] + ((b * c->H_kv + h) * c->P + j) * d;
    const size_t batch = k->past_batch == MOVE_TO_FIRST ? 0 : mha__wrapped((int64_t)b - k->past_batch, c->B);
    const size_t from = mha__wrapped((int64_t)head - k->past_heads, c->H_kv),
                 row = mha__wrapped((int64_t)j - k->past_rows, c->P);
    return in->past[k->past_exchanged ? !part : part] + ((batch * c->H_kv + from) * c->P + row) * d;
}

/* Changes the cached rows (P, h_kv, d) that were found, as the bug does. */
static void change_past(mha__bug_bench *w, const mha__knobs *k, int part, size_t b, size_t n, double *rows)
{
    if (!(k->past >> (PROJECTION_K + part) & 1))
        return;
    for (size_t e = 0; e < n && k->past_times != 1; e++)
        rows[e] *= k->past_times;
    for (size_t e = 0; e < n && k->past_shortened; e++)
        rows[e] = mha__bug_shortened(rows[e], k->past_shortened);
    if (k->past_turned)
        mha__rows_rotate_past(w->inputs, k, b, rows, w->maker.turn);
}

/* Moves the rows (S, row) of cached and new keys or values to where the bug finds them. */
static void move_joined(mha__bug_bench *w, const mha__knobs *k, int part, size_t b, size_t row, double *rows)
{
    const size_t S = w->inputs->S;
    if (!(k->joined >> (PROJECTION_K + part) & 1))
        return;
    memcpy(w->moving, rows, S * row * sizeof *rows);
    memset(w->moving + S * row, 0, row * sizeof *rows);
    for (size_t j = 0; j < S; j++)
        memcpy(rows + j * row, w->moving + mha__moved_row(k, b, S, j) * row, row * sizeof *rows);
}

/* Reads the rows (S, h_kv, d) of whole pages in another order of the axes of their memory. */
static void turn_pages(mha__bug_bench *w, const mha__knobs *k, size_t d, double *rows)
{
    const size_t n = (size_t)llabs(k->joined_page), h = w->inputs->c->H_kv, S = w->inputs->S;
    if (n == 0)
        return;
    memcpy(w->moving, rows, S * h * d * sizeof *rows);
    for (size_t at = 0; at < S / n * n * h; at++) {
        const size_t page = at / (n * h), row = at / h % n, head = at % h;
        const size_t flat = k->joined_page > 0 ? row * h + head : head * n + row;
        const size_t there = k->joined_page > 0 ? flat % n * h + flat / n : flat;
        memcpy(rows + at * d, w->moving + (page * n * h + there) * d, d * sizeof *rows);
    }
}

const double *mha__bug_gather(mha__bug_bench *w, const mha__knobs *k, size_t b, int part, const double *rows)
{
    const mha__bug_inputs *in = w->inputs;
    const mha_case *c = in->c;
    const size_t d = part ? c->d_v : c->d_k, row = c->H_kv * d;
    const size_t past = k->cache_order == CACHE_BEHIND ? c->T_k : 0;
    const size_t first = k->cache_order == CACHE_BEHIND  ? 0
                         : k->cache_order == CACHE_EARLY ? c->P - 1
                         : k->cache_order == CACHE_LATE  ? c->P + 1
                                                         : c->P;
    double *to = part ? w->own_values : w->own_keys;
    if (c->P == 0 && mha__extra_rows(c) == 0)
        return rows;
    memset(to, 0, (in->S + 2) * row * sizeof *to);
    for (size_t h = 0; c->P > 0 && h < c->H_kv; h++)
        for (size_t j = 0; j < c->P; j++) {
            double *const there = to + (past + j) * row + h * d;
            if (k->pages != PAGES_RIGHT)
                read_page(c, k->pages, part, b, h, j, d, there);
            else
                memcpy(there, find_past(in, k, part, b, h, j), d * sizeof *to);
        }
    if (c->P > 0)
        change_past(w, k, part, b, c->P * row, to + past * row);
    if (!(k->new_lost >> (PROJECTION_K + part) & 1))
        put(in, rows, c->T_k, row, first, to);
    move_joined(w, k, part, b, row, to);
    turn_pages(w, k, d, to);
    for (size_t f = 0; in->bias_kv[part] && f < row; f++)
        to[in->S * row + f] = mha__bug_rounded(in->bias_kv[part][f], k->round_weights);
    mha__rows_shorten(k, part ? PROJECTION_V : PROJECTION_K, (in->S + 2) * row, to);
    mha__rows_quantise(k, part ? PROJECTION_V : PROJECTION_K, in->S + 2, c->H_kv, d, 0, to);
    return to;
}
