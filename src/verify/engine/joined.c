/* Rows of q, k and v as products read them: new rows, cached and extra ones, rows of other batch rows. */
#include <stdlib.h>
#include <string.h>

#include "verify/engine/runner.h"

/* Reads d features of key (part 1: value) j of sequence b from its page; zeros if the pool has no such page. Pages are
 * found as if they had `of_size` rows, 0: as many as they have. */
static void read_page(const mha_case *c, int order, size_t of_size, int part, size_t b, size_t head, size_t j, size_t d,
                      double *to)
{
    const mha_view *pool = &c->tensors[part ? CASE_PAGE_VALUES : CASE_PAGE_KEYS], *table = &c->tensors[CASE_PAGE_TABLE];
    const size_t size = pool->shape[1], columns = table->shape[1], n = of_size > 0 ? of_size : size, column = j / n,
                 turned = column * c->B + b;
    const size_t entry = order == MHA__PAGES_TRANSPOSED ? turned
                         : order == MHA__PAGES_OF_FIRST ? column
                                                        : b * columns + column;
    int64_t page = order == MHA__PAGES_IN_ORDER
                       ? (int64_t)entry
                       : ((const int64_t *)table->data)[entry] + (order == MHA__PAGES_NEXT ? 1 : 0);
    size_t row = j % n;
    if (row >= size || of_size > 0) { /* in the pages one after the other, at most the last row */
        const size_t at = (size_t)page * size + row, last = pool->shape[0] * size - 1;
        row = (at < last ? at : last) % size, page = (int64_t)((at < last ? at : last) / size);
    }
    for (size_t f = 0; f < d; f++)
        to[f] = column >= columns || page < 0 || (uint64_t)page >= pool->shape[0]
                    ? 0
                    : mha_view_get(pool, (size_t[]){(size_t)page, row, head, f});
}

/* Reads cached rows (P, h_kv, d) of a batch row. */
static void read_past(mha__runner *w, const mha__program *p, int part, size_t b, double *to)
{
    const mha_case *c = w->in->c;
    const int side = PROJECTION_K + part, pages = mha__arg(p, AT_PAGE, OP_FROM);
    const size_t d = w->in->d[side], P = c->P, h_kv = c->H_kv,
                 of_size = pages == MHA__PAGES_OF_SIZE ? (size_t)mha__step(p, AT_PAGE, OP_FROM, 0) : 0;
    const int64_t *lengths = c->semantics.visible.kv_lengths;
    const mha__mutation *from = mha__of_side(p, AT_PAST, OP_FROM, side),
                        *times = mha__of_side(p, AT_PAST, OP_TIMES, side),
                        *bits = mha__of_side(p, AT_PAST, OP_BITS, side), *turn = mha__of_side(p, AT_PAST, OP_DO, side);
    const double *past = w->in->past[mha__of_side(p, AT_PAST, OP_TAKE, side) ? !part : part];
    const mha__extents x = {.n = {c->B, P, h_kv, 1}};
    for (size_t j = 0; j < P; j++)
        for (size_t h = 0; h < h_kv; h++) {
            double *there = to + (j * h_kv + h) * d;
            const mha__element own = {{b, j, h, 0}};
            mha__element at = from ? mha__map_element(from, &x, own) : own;
            if (from && from->number > 0) /* of all batch rows */
                at.at[MHA__B] = at.at[MHA__T] / P, at.at[MHA__T] %= P;
            if (pages || (lengths && c->tensors[CASE_PAGE_TABLE].data && (int64_t)j >= lengths[b])) /* stale rows */
                read_page(c, pages, of_size, part, b, h, j, d, there);
            else
                memcpy(there, past + ((at.at[MHA__B] * h_kv + at.at[MHA__H]) * P + at.at[MHA__T]) * d, d * sizeof *to);
        }
    for (size_t e = 0; (times || bits) && e < P * h_kv * d; e++)
        to[e] = mha__shortened(to[e] * (times ? times->number : 1), bits ? (int)bits->number : 0);
    if (turn)
        mha__rotate_past(w, p, b, turn->number, to);
}

/* Joins cached, new and extra rows of keys (part 1: values) in one array. */
static void join(mha__runner *w, const mha__program *p, size_t b, int part, const double *rows, double *to)
{
    const mha__inputs *in = w->in;
    const mha_case *c = in->c;
    const int side = PROJECTION_K + part, place = mha__arg(p, AT_NEW, OP_FROM);
    const size_t d = in->d[side], row = c->H_kv * d, past = place == MHA__NEW_FIRST ? c->T_k : 0,
                 first = place == MHA__NEW_FIRST   ? 0
                         : place == MHA__NEW_EARLY ? c->P - 1
                         : place == MHA__NEW_LATE  ? c->P + 1
                                                   : c->P,
                 room = first < in->S ? in->S - first : 0, written = (c->T_k < room ? c->T_k : room) * row;
    static const mha__mutation rows_first = {.arg = MHA__VIEW, .written = MHA__BTHC, .read = MHA__BHTC};
    const mha__mutation *times = mha__of_side(p, AT_NEW, OP_TIMES, side);
    const int64_t pages = mha__step(p, AT_JOINED, OP_TAKE, 0); /* rows of a page; negative: the way back */
    const size_t page = (size_t)llabs(pages) * row;
    memset(to, 0, (in->S + 2) * row * sizeof *to);
    if (c->P > 0)
        read_past(w, p, part, b, to + past * row);
    for (size_t e = 0; e < written && !mha__of_side(p, AT_NEW, OP_ZERO, side); e++)
        to[first * row + e] = times ? rows[e] * times->number : rows[e];
    mha__reread(mha__of_side(p, AT_JOINED, OP_FROM, side), b, in->S, c->H_kv, d, to, w->flat);
    for (size_t at = 0; page > 0 && at + page <= in->S * row; at += page) /* whole pages, in another order of axes */
        mha__reread(pages > 0 ? &mha__heads_first : &rows_first, 0, page / row, c->H_kv, d, to + at, w->flat);
    for (size_t f = 0; in->weight[MHA_BIAS_K + part] && f < row; f++)
        to[in->S * row + f] = mha__narrowed(in->weight[MHA_BIAS_K + part][f], mha__arg(p, AT_W, OP_ROUND));
    mha__round_rows(p, side, in->S + 2, c->H_kv, d, 0, to);
}

/* Reads new rows in memory of all batch rows: rows or heads of others, by a table, or by other strides. Several tensors
 * may be fused, heads of one after those of the other. Memory past the end is 0. */
static void read_others(mha__runner *w, const mha__program *p, const mha__mutation *m, int which, size_t b, double *to)
{
    const size_t T = w->in->T[which], h = w->in->h[which], d = w->in->d[which], B = w->in->c->B;
    const bool strided = m->arg == MHA__STRIDES;
    const double *table = m->table;
    const size_t fused = strided ? (size_t)table[MHA__C] : 1, own = fused > 2   ? (size_t)which
                                                                    : fused > 1 ? (size_t)which - 1
                                                                                : 0;
    const mha__extents x = {.n = {B, T, fused * h, d}};
    memset(to, 0, T * h * d * sizeof *to);
    for (size_t from = 0; from < B * fused; from++) {
        const int side = fused > 2 ? (int)(from % fused) : fused > 1 ? PROJECTION_K + (int)(from % fused) : which;
        const double *rows = NULL;
        for (size_t e = 0, n; e < T * h * d; e += n) {
            const size_t t = e / d / h, g = e / d % h, f = e % d, row = b * T + t, head = b * h + g;
            mha__element at = {{b, t, g, f}};
            if (strided)
                at = mha__split(&x, m->written,
                                mha__join(&x, m->written, (mha__element){{0, 0, own * h, 0}}) +
                                    b * (size_t)table[MHA__B] + t * (size_t)table[MHA__T] + g * (size_t)table[MHA__H] +
                                    f);
            else if (m->axis == MHA__H)
                at.at[MHA__B] = (size_t)table[head] / h, at.at[MHA__H] = (size_t)table[head] % h;
            else
                at.at[MHA__B] = (size_t)table[row] / T, at.at[MHA__T] = (size_t)table[row] % T;
            n = d - (f > at.at[MHA__C] ? f : at.at[MHA__C]);
            if (at.at[MHA__B] * fused + at.at[MHA__H] / h != from)
                continue;
            rows = rows ? rows : mha__rows_turned(w, p, side, at.at[MHA__B]);
            memcpy(to + e, rows + (at.at[MHA__T] * h + at.at[MHA__H] % h) * d + at.at[MHA__C], n * sizeof *to);
        }
    }
}

const double *mha__rows_of(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows)
{
    const mha_case *c = w->in->c;
    const mha__mutation *moved = mha__of_side(p, AT_JOINED, OP_FROM, which),
                        *across = mha__of_side(p, AT_JOINED, OP_OVER, which);
    const bool only_new = which == PROJECTION_Q || (c->P == 0 && mha__rows_beyond(c) == 0);
    all_rows |= which || !w->needed || mha__has(p, AT_H, OP_FROM) || mha__of_side(p, AT_ROW, OP_FROM, which) || moved ||
                across || mha__of_side(p, AT_A, OP_QUANT, which);
    bool found;
    double *rows = mha__node_of(w, KEPT_ROWS, NODE_A + (mha__node)which, all_rows, b, &found);
    if (!found && only_new && across)
        read_others(w, p, across, which, b, rows);
    else if (!found && only_new) {
        mha__new_rows(w, p, which, b, all_rows, rows);
        mha__reread(moved, b, w->in->T[which], w->in->h[which], w->in->d[which], rows, w->flat);
    } else if (!found)
        join(w, p, b, which - PROJECTION_K, mha__rows_turned(w, p, which, b), rows);
    return rows;
}
