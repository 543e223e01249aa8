/* Bugs in where the rows of q, k and v lie, before they are normalised and rotated. */
#include <stdlib.h>
#include <string.h>

#include "support/bugs/oracle_bugs.h"

/* i, counted around the ends of n. */
static size_t around(double i, size_t n)
{
    return (size_t)(fmod(fmod(i, (double)n) + (double)n, (double)n));
}

/* The row that stands where row t should. */
static size_t row_for(size_t t, size_t T)
{
    const double at = (double)t, n = given();
    if (begins("rows-") && strstr(oracle_wrong->name, "-permuted")) /* the second four first */
        return T < 8 || t >= 8 ? t : t < 4 ? t + 4 : t - 4;
    if (strstr(oracle_wrong->name, "-repeated"))
        return t > 0 && at == n ? t - 1 : t;
    if (begins("rows-kv-wrapped"))
        return n < (double)T ? t % (size_t)n : t;
    if (begins("rows-kv-held"))
        return n < (double)T && at >= n ? (size_t)n - 1 : t;
    if (strstr(oracle_wrong->name, "-shifted"))
        return at - n >= 0 && at - n < (double)T ? (size_t)(at - n) : T;
    return begins("rows-") ? around(at - n, T) : t;
}

static size_t batch_for(size_t b, size_t B)
{
    return !begins("batch-") ? b : given() < 0 ? 0 : around((double)b - given(), B);
}

/* The head whose rows stand where those of head g should. */
static size_t head_for(size_t g, size_t h)
{
    if (is("heads-q-permuted"))
        return g == 0 ? h - 1 : g == h - 1 ? 0 : g; /* the first and the last for each other */
    return begins("heads-") ? around((double)g - given(), h) : g;
}

/* The feature that stands where feature c should. */
static size_t feature_for(size_t c, size_t d)
{
    const size_t pair = c / 2, half = c / (d / 2 + (d < 2)), way = d % 2 || d < 4 ? 0 : (size_t)given();
    if (!strstr(oracle_wrong->name, "-order"))
        return begins("features-") ? around((double)c - given(), d) : c;
    return way == 1   ? d - 1 - c
           : way == 2 ? 2 * pair + 1 - c % 2
           : way == 3 ? pair + c % 2 * (d / 2) /* x.view(2, d/2).T.reshape(d) */
           : way == 4 ? 2 * (c - half * (d / 2)) + half
                      : c;
}

/* Rows (B, T, h, d) of one of the three, out of a copy. */
static void move(number *rows, size_t B, size_t T, size_t h, size_t d)
{
    const size_t all = B * T * h * d;
    number *old = malloc((all + 1) * sizeof *old), *to = rows; /* a row T is of zeros */
    memcpy(old, rows, all * sizeof *old);
    for (size_t e = 0; e < all; e++) {
        const size_t b = e / d / h / T, c = feature_for(e % d, d);
        size_t t = e / d / h % T, g = e / d % h;
        if (begins("memory-") && given() == 3) { /* k.view(B, h, d, T) of a tensor that is (B, h, T, d), transposed */
            *to++ = old[((b * T + (c * T + t) / d) * h + g) * d + (c * T + t) % d];
            continue;
        }
        if (begins("memory-")) { /* view(B, T, h, d) of a tensor that is (B, h, T, d), or the reverse */
            const size_t flat = given() == 1 ? t * h + g : g * T + t;
            t = given() == 1 ? flat % T : flat / h;
            g = given() == 1 ? flat / T : flat % h;
        } else {
            t = row_for(t, T);
            g = head_for(g, h);
        }
        *to++ = t < T ? old[((batch_for(b, B) * T + t) * h + g) * d + c] : (number){0};
    }
    free(old);
}

/* The letters behind the first hyphen say whose rows. */
static void move_all(run *r)
{
    const char *whose = strchr(oracle_wrong->name, '-') + 1, *end = whose + strcspn(whose, "- ");
    number *const rows[] = {r->q, r->k, r->v};
    const size_t T[] = {r->T_q, r->T_k, r->T_k}, h[] = {r->h, r->h_kv, r->h_kv}, d[] = {r->d_k, r->d_k, r->d_v};
    const bool may = !is("rows-kv-shifted") || r->s->visible.causal;
    for (int i = 0; i < (r->P == 0 ? 3 : 1) && !ragged(r) && may; i++)
        if (memchr(whose, "qkv"[i], (size_t)(end - whose)))
            move(rows[i], r->B, T[i], h[i], d[i]);
}

/* The same of rows in a cache, with new ones behind them. */
static void move_cached(run *r)
{
    const char *whose = strchr(oracle_wrong->name, '-') + 1, *end = whose + strcspn(whose, "- ");
    number *const rows[] = {r->keys, r->values};
    const size_t all = r->S + r->extra, d[] = {r->d_k, r->d_v};
    const bool may = !is("rows-kv-shifted") || r->s->visible.causal;
    for (int part = 0; part < 2 && r->P > 0 && !ragged(r) && may; part++) {
        number *old = calloc((r->S + 1) * d[part] + 1, sizeof *old), *to = rows[part];
        for (size_t head = 0; head < r->B * r->h_kv; head++, to += all * d[part]) {
            if (!memchr(whose, "kv"[part], (size_t)(end - whose)))
                continue;
            memcpy(old, to, r->S * d[part] * sizeof *old);
            for (size_t j = 0; j < r->S; j++)
                memcpy(to + j * d[part], old + row_for(j, r->S) * d[part], d[part] * sizeof *old);
        }
        free(old);
    }
}

const oracle_bug *bug_of_moved_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "rows-q-moved 1", .split = move_all},
        {.name = "rows-k-moved 1", .split = move_all, .gathered = move_cached},
        {.name = "rows-v-moved -1", .split = move_all, .gathered = move_cached},
        {.name = "rows-kv-moved 1", .split = move_all, .gathered = move_cached},
        {.name = "rows-q-shifted 1", .split = move_all},
        {.name = "rows-k-shifted 1", .split = move_all, .gathered = move_cached},
        {.name = "rows-v-shifted -1", .split = move_all, .gathered = move_cached},
        {.name = "rows-kv-shifted 2", .split = move_all, .gathered = move_cached},
        {.name = "rows-kv-shifted 1", .gathered = move_cached},
        {.name = "rows-k-repeated 1", .split = move_all, .gathered = move_cached},
        {.name = "rows-v-repeated 2", .split = move_all, .gathered = move_cached},
        {.name = "rows-kv-repeated 3", .split = move_all, .gathered = move_cached},
        {.name = "rows-kv-wrapped 4", .split = move_all, .gathered = move_cached},
        {.name = "rows-kv-held 3", .split = move_all, .gathered = move_cached},
        {.name = "rows-v-permuted", .split = move_all, .gathered = move_cached},
        {.name = "rows-q-permuted", .split = move_all},
        {.name = "rows-k-permuted", .split = move_all, .gathered = move_cached},
        {.name = "rows-kv-permuted", .split = move_all, .gathered = move_cached},
        {.name = "rows-k-moved 1", .gathered = move_cached},
        {.name = "rows-v-moved -2", .gathered = move_cached},
        {.name = "rows-kv-moved 2", .gathered = move_cached},
        {.name = "rows-k-repeated 2", .gathered = move_cached},
        {.name = "rows-kv-wrapped 3", .gathered = move_cached},
        {.name = "rows-kv-held 2", .gathered = move_cached},
        {.name = "batch-q-moved 1", .split = move_all},
        {.name = "batch-k-moved -1", .split = move_all},
        {.name = "batch-v-moved 1", .split = move_all},
        {.name = "batch-kv-moved -1", .split = move_all},
        {.name = "heads-q-moved 1", .split = move_all},
        {.name = "heads-k-moved 1", .split = move_all},
        {.name = "heads-v-moved 1", .split = move_all},
        {.name = "heads-q-permuted", .split = move_all},
        {.name = "features-q-order 1", .split = move_all},
        {.name = "features-k-order 2", .split = move_all},
        {.name = "features-v-order 1", .split = move_all},
        {.name = "features-v-order 2", .split = move_all},
        {.name = "features-v-order 3", .split = move_all},
        {.name = "features-v-order 4", .split = move_all},
        {.name = "features-q-moved 1", .split = move_all},
        {.name = "features-k-moved 1", .split = move_all},
        {.name = "features-v-moved 1", .split = move_all},
        {.name = "memory-q 1", .split = move_all},
        {.name = "memory-k 2", .split = move_all},
        {.name = "memory-v 1", .split = move_all},
        {.name = "memory-kv 2", .split = move_all},
        {.name = "memory-k 3", .split = move_all},
        {.name = "memory-v 3", .split = move_all},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
