/* Bugs in where rows are, in what a cache and its pages hold, in rounding before products, and in splitting and merging
 * heads. */
#include "support/bugs/oracle_bugs.h"

double oracle_shortened(double x, int bits)
{
    const int least = bits == 4 ? -9 : bits == 3 ? -16 : -2000;
    int exponent;
    if (!isfinite(x))
        return x;
    (void)frexp(x, &exponent);
    const int last = exponent - abs(bits) < least ? least : exponent - abs(bits);
    if (bits < 0)
        return ldexp(trunc(ldexp(x, -last)), last);
    return ldexp(nearbyint(ldexp(x, -last)), last); /* of two as near the even one */
}

/* ---------------------------------------------------------------- index maps */

size_t oracle_mapped(const mha__mutation *m, size_t b, size_t i, size_t n)
{
    const double at = (double)i + (double)m->step;
    const size_t step = (size_t)m->step, half = n / 2;
    switch (m->arg) {
    case MHA__SHIFT: return oracle_around(at, n);
    case MHA__SHIFTED: return at >= 0 && at < (double)n ? (size_t)at : n;
    case MHA__FIRST: return 0;
    case MHA__LAST: return n - 1;
    case MHA__REVERSED: return n - 1 - i;
    case MHA__FIRST_BLOCK: return i % step;
    case MHA__START_OF_BLOCK: return i - i % step;
    case MHA__HELD: return i < step ? i : step;
    case MHA__REPEATED: return i == step ? i - 1 : i;
    case MHA__PAIRS: return i % 2 ? i - 1 : i + 1;
    case MHA__TO_PAIRS: return i / 2 + i % 2 * half; /* x.view(2, d/2).T.reshape(d) */
    case MHA__TO_HALVES: return i < half ? 2 * i : 2 * (i - half) + 1;
    case MHA__TABLE: return (size_t)m->table[m->axis == MHA__T ? b * n + i : i];
    default: abort();
    }
}

void oracle_move(const mha__mutation *m, number *x, const size_t n[4], const size_t step[4])
{
    const size_t all = m ? n[0] * n[1] * n[2] * n[3] : 0;
    number *moved = (number *)oracle_memory(2 * all);
    for (int writes = 0; writes < 2; writes++)
        for (size_t e = 0; e < all; e++) {
            size_t at[4] = {e / n[3] / n[2] / n[1], e / n[3] / n[2] % n[1], e / n[3] % n[2], e % n[3]}, flat = 0;
            if (writes) {
                x[at[0] * step[0] + at[1] * step[1] + at[2] * step[2] + at[3] * step[3]] = moved[e];
                continue;
            }
            if (m->arg == MHA__VIEW) { /* memory of one order of axes, read in another */
                for (int k = 0; k < 8; k += 2)
                    flat = flat * n[m->read >> k & 3] + at[m->read >> k & 3];
                for (int k = 6; k >= 0; flat /= n[m->written >> k & 3], k -= 2)
                    at[m->written >> k & 3] = flat % n[m->written >> k & 3];
            } else
                at[m->axis] = oracle_mapped(m, at[0], at[m->axis], n[m->axis]);
            if (m->arg != MHA__SHIFTED || at[m->axis] < n[m->axis])
                moved[e] = x[at[0] * step[0] + at[1] * step[1] + at[2] * step[2] + at[3] * step[3]];
        }
}

void oracle_exchange(const mha__mutation *m, number *x, size_t blocks, size_t size)
{
    number *old = (number *)oracle_memory(2 * blocks * size);
    memcpy(old, x, blocks * size * sizeof *old);
    for (size_t i = 0; i < blocks && m; i++)
        memcpy(x + i * size, old + (size_t)m->table[i] * size, size * sizeof *old);
}

/* Rows (B, T, h, d), next to each other in memory. */
static void move_rows(const mha__mutation *m, number *x, size_t B, size_t T, size_t h, size_t d)
{
    oracle_move(m, x, (const size_t[]){B, T, h, d}, (const size_t[]){T * h * d, h * d, d, 1});
}

void buggy_projections(run *r)
{
    move_rows(OF(Y, FROM, 0), r->q, r->B, r->T_q, r->h, r->d_k);
    move_rows(OF(Y, FROM, 1), r->k, r->B, r->T_k, r->h_kv, r->d_k);
}

void buggy_heads(run *r)
{
    number *const rows[] = {r->q, r->k, r->v};
    const size_t T[] = {r->T_q, r->T_k, r->T_k}, h[] = {r->h, r->h_kv, r->h_kv}, d[] = {r->d_k, r->d_k, r->d_v};
    for (int i = 0; i < 3; i++) {
        const mha__mutation *raised = OF(ROW, PLUS, i);
        move_rows(OP(H, FROM), rows[i], r->B, T[i], h[i], d[i]);
        move_rows(OF(ROW, FROM, i), rows[i], r->B, T[i], h[i], d[i]);
        for (size_t e = 0; raised && e < r->B * T[i] * h[i] * d[i]; e++)
            rows[i][e].v += raised->number;
    }
}

/* ---------------------------------------------------------------- cached rows */

/* Rotates a cached key once more, or back: pair by pair, as it was when it was written. */
static void turn_again(const run *r, size_t b, size_t j, double direction, number *key)
{
    const mha_rope *rope = &r->s->qkv.rope;
    const size_t dim = rope->dim ? rope->dim : r->d_k, half = dim / 2;
    const bool pairs = rope->kind == MHA_ROPE_INTERLEAVED;
    const double by = rope->attention_factor > 0 ? rope->attention_factor : 1,
                 position = (double)r->s->place.key_offset + (double)(r->first + j);
    number *x = key + (rope->last ? r->d_k - dim : 0);
    for (size_t i = 0; i < half; i++) {
        number *one = &x[pairs ? 2 * i : i], *two = &x[pairs ? 2 * i + 1 : i + half];
        double c, s, off;
        oracle_angle(r, b, j, position, i, dim, &c, &s, &off);
        s *= direction;
        const double a = by * (one->v * c - two->v * s), z = by * (two->v * c + one->v * s);
        one->v = a, two->v = z;
    }
}

/* Reads the cached rows of keys or values (part 1) anew, out of `from`. */
static void read_cache(run *r, int part, number *to, size_t d)
{
    const int side = 1 + part;
    const mha__mutation *moved = OF(PAST, FROM, side), *times = OF(PAST, TIMES, side), *bits = OF(PAST, BITS, side),
                        *turned = OF(PAST, DO, side);
    const mha_view *from = (OF(PAST, TAKE, side) != NULL) == (part == 0) ? &r->past->values : &r->past->keys;
    const size_t n[] = {r->B, r->P, r->h_kv};
    for (size_t row = 0; row < r->B * r->h_kv * r->P; row++) {
        size_t at[] = {row / r->P / r->h_kv, row % r->P, row / r->P % r->h_kv};
        number *key = to + ((at[0] * r->h_kv + at[2]) * (r->S + r->extra) + at[1]) * d;
        const size_t b = at[0], j = at[1];
        if (moved)
            at[moved->axis] = oracle_mapped(moved, b, at[moved->axis], n[moved->axis]);
        for (size_t f = 0; f < d; f++) {
            key[f].v = oracle_get(from, at[0], at[2], at[1], f) * (times ? times->number : 1);
            key[f].v = bits ? oracle_shortened(key[f].v, (int)bits->number) : key[f].v;
        }
        if (turned)
            turn_again(r, b, j, turned->number, key);
    }
}

/* Puts the rows of the cache and the new ones of a head together in another order. */
static void join_cache(run *r, number *to, size_t d)
{
    const size_t new = r->S - r->P;
    number *old = (number *)oracle_memory(2 * r->S * d);
    memcpy(old, to, r->S * d * sizeof *old);
    if (IS(NEW, FROM, NEW_FIRST)) {
        memcpy(to, old + r->P * d, new *d * sizeof *to);
        memcpy(to + new *d, old, r->P * d * sizeof *to);
    } else if (IS(NEW, FROM, NEW_EARLY)) {
        memcpy(to + (r->P - 1) * d, old + r->P * d, new *d * sizeof *to);
        memset(to + (r->S - 1) * d, 0, d * sizeof *to);
    } else if (IS(NEW, FROM, NEW_LATE)) {
        memset(to + r->P * d, 0, d * sizeof *to);
        memcpy(to + (r->P + 1) * d, old + r->P * d, (new - 1) * d * sizeof *to);
    }
}

/* k.reshape(-1, n, h, d) of pages that are (h, n, d), or the reverse, heads by heads. */
static void read_pages(run *r, number *rows, size_t d)
{
    const size_t n = (size_t)fabs(STEP(JOINED, TAKE)), h = r->h_kv, all = r->S + r->extra;
    number *old = (number *)oracle_memory(2 * h * all * d);
    memcpy(old, rows, h * all * d * sizeof *old);
    for (size_t page = 0; n > 0 && page < r->S / n; page++)
        for (size_t j = 0; j < n; j++)
            for (size_t g = 0; g < h; g++) {
                const bool first = STEP(JOINED, TAKE) > 0;
                const size_t flat = first ? j * h + g : g * n + j, head = first ? flat / n : flat % h,
                             row = first ? flat % n : flat / h;
                memcpy(rows + (g * all + page * n + j) * d, old + (head * all + page * n + row) * d, d * sizeof *old);
            }
}

/* The new rows of the values rotated, too. */
static void turn_values(run *r)
{
    const size_t all = r->S + r->extra, dim = r->s->qkv.rope.dim ? r->s->qkv.rope.dim : r->d_k;
    const size_t from = r->s->qkv.rope.last ? r->d_v - dim : 0, in = r->s->qkv.rope.last ? r->d_k - dim : 0;
    for (size_t row = 0; row < r->B * r->h_kv * r->T_k && r->s->qkv.rope.kind && dim <= r->d_v; row++) {
        const size_t head = row / r->T_k, t = row % r->T_k;
        number *v = r->values + (head * all + r->P + t) * r->d_v;
        double x[64];
        for (size_t f = 0; f < dim; f++)
            x[in + f] = v[from + f].v;
        buggy_rotation(r, x, head / r->h_kv, t, r->T_k, true);
        for (size_t f = 0; f < dim; f++)
            v[from + f].v = x[in + f];
    }
}

/* Whether a key is beyond the lengths in a buffer that is longer than the rows written into it. */
static bool is_unwritten(const run *r, size_t b, size_t j)
{
    const mha_semantics *right = &r->call->semantics;
    return OP(LENGTHS, FN) && (int64_t)(j + r->first) + right->place.key_offset >= right->visible.kv_lengths[b];
}

/* ---------------------------------------------------------------- rounding */

/* Rounds rows (B, T, h, d) to bits, or quantises them with one scale for each row (1), head (2), feature of a head (3),
 * tensor (4), or n neighbours (n). `step`: from one to the next of each axis. */
static void round_rows(int side, number *x, const size_t n[4], const size_t step[4])
{
    const mha__mutation *bits = OF(A, BITS, side), *m = OF(A, QUANT, side);
    const size_t all = n[0] * n[1] * n[2] * n[3];
    double *most = oracle_memory(all);
    for (int pass = 0; pass < 2 && (bits || m); pass++)
        for (size_t e = 0; e < all; e++) {
            const size_t b = e / n[3] / n[2] / n[1], t = e / n[3] / n[2] % n[1], g = e / n[3] % n[2], f = e % n[3],
                         head = b * n[2] + g, span = m ? (size_t)m->step : 0;
            double *v = &x[b * step[0] + t * step[1] + g * step[2] + f * step[3]].v,
                   *largest = &most[span == 1   ? head * n[1] + t
                                    : span == 2 ? head
                                    : span == 3 ? head * n[3] + f
                                    : span > 4  ? (head * n[1] + t) * n[3] + f / span
                                                : 0];
            *v = bits && pass == 0 ? oracle_shortened(*v, (int)bits->number) : *v;
            if (pass == 0)
                *largest = fmax(*largest, fabs(*v));
            else if (m && *largest > 0) {
                const double scaled = *v / *largest * m->number;
                *v = (m->number == 448 ? oracle_shortened(scaled, 4) : nearbyint(scaled)) * (*largest / m->number);
            }
        }
}

/* ---------------------------------------------------------------- all keys and values */

/* Makes one key/value head for each query head, as kernels do that do not know groups. */
static void repeat_heads(run *r)
{
    const size_t all = r->S + r->extra, each = r->h / r->h_kv, few = (size_t)NUMBER(KV, FROM, 0);
    for (int part = 0; part < 2; part++) {
        const size_t size = all * (part ? r->d_v : r->d_k);
        const mha__mutation *m = part ? OP(KV_V, FROM) : OP(KV_K, FROM);
        number **rows = part ? &r->values : &r->keys, *more = malloc((r->B * r->h * size + 1) * sizeof *more);
        for (size_t b = 0; b < r->B; b++)
            for (size_t h = 0; h < r->h; h++) {
                const size_t own = h / each, g = few                        ? h * few / r->h
                                                 : !m                       ? own
                                                 : m->arg == MHA__REMAINDER ? h % r->h_kv
                                                 : m->arg == MHA__TABLE     ? (size_t)m->table[h]
                                                                            : oracle_mapped(m, b, own, r->h_kv);
                memcpy(more + (b * r->h + h) * size, *rows + (b * r->h_kv + g) * size, size * sizeof *more);
            }
        free(*rows);
        *rows = more;
    }
    r->h_kv = r->h;
}

void buggy_keys(run *r)
{
    static double found[64];
    const size_t all = r->S + r->extra, d[] = {r->d_k, r->d_v}, h = r->h_kv;
    number *parts[] = {r->keys, r->values};
    if (OP(TURN_V, DO))
        turn_values(r);
    for (int part = 0; part < 2; part++) {
        const size_t step[] = {h * all * d[part], d[part], all * d[part], 1}, n[] = {r->B, r->S, h, d[part]},
                     whole[] = {r->B, all, h, d[part]};
        number *x = parts[part];
        if (r->P > 0 && (OP(PAST, FROM) || OP(PAST, TAKE) || OP(PAST, TIMES) || OP(PAST, BITS) || OP(PAST, DO)))
            read_cache(r, part, x, d[part]);
        for (size_t row = 0; row < r->B * h * r->S; row++)
            for (size_t f = 0; f < d[part]; f++)
                if ((row % r->S >= r->P && OF(NEW, ZERO, 1 + part)) || is_unwritten(r, row / r->S / h, row % r->S))
                    x[(row / r->S * all + row % r->S) * d[part] + f].v = 0;
                else if (row % r->S >= r->P && OF(NEW, TIMES, 1 + part))
                    x[(row / r->S * all + row % r->S) * d[part] + f].v *= NUMBER(NEW, TIMES, 1);
        for (size_t head = 0; head < r->B * h && OP(NEW, FROM); head++)
            join_cache(r, x + head * step[2], d[part]);
        oracle_move(OF(JOINED, FROM, 1 + part), x, n, step);
        oracle_exchange(OF(JOINED, OVER, 1 + part), x, r->B * h, step[2]);
        for (size_t b = 0; b < r->B && OP(JOINED, TAKE); b++)
            read_pages(r, x + b * step[0], d[part]);
        round_rows(1 + part, x, whole, step);
    }
    round_rows(0, r->q_rot, (const size_t[]){r->B, r->T_q, r->h, r->d_k},
               (const size_t[]){r->T_q * r->h * r->d_k, r->h * r->d_k, r->d_k, 1});
    if (OP(KV_K, FROM) || OP(KV_V, FROM) || OP(KV, FROM))
        repeat_heads(r);
    if (OP(SINK, ZERO))
        r->sinks = (mha_view){0};
    for (size_t i = 0; OP(SINK, TAKE) && i < r->h; i++)
        found[i] = OP(SINK, TAKE)->table[i];
    if (OP(SINK, TAKE))
        r->sinks = mha_view_of(found, MHA_F64, 1, &r->h);
}
