/* Bugs in what is read of a cache, and in what new rows write behind it. */
#include <stdlib.h>
#include <string.h>

#include "support/bugs/oracle_bugs.h"

/* i, counted around the ends of n. */
static size_t around(double i, size_t n)
{
    return (size_t)fmod(fmod(i, (double)n) + (double)n, (double)n);
}

/* Rotates a cached key once more, or back: pair by pair, as it was when it was written. */
static void turn_again(const run *r, size_t b, size_t j, number *key)
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
        s = is("cache-k-turned-back") ? -s : s;
        const double a = by * (one->v * c - two->v * s), z = by * (two->v * c + one->v * s);
        one->v = a, two->v = z;
    }
}

/* Reads the cache anew, as somebody gets it wrong. The letters behind the first hyphen say whose rows. */
static void read_cache(run *r)
{
    const char *whose = strchr(oracle_wrong->name, '-') + 1, *end = whose + strcspn(whose, "- ");
    const size_t all = r->S + r->extra, widths[] = {r->d_k, r->d_v};
    number *const parts[] = {r->keys, r->values};
    const double n = given();
    if (ragged(r) || r->P == 0)
        return;
    for (int part = 0; part < 2; part++)
        for (size_t row = 0; row < r->B * r->h_kv * r->P; row++) {
            const size_t d = widths[part], b = row / r->P / r->h_kv, g = row / r->P % r->h_kv, j = row % r->P;
            const bool swaps =
                is("cache-kv-exchanged") || (is("cache-k-for-v") && part == 1) || (is("cache-v-for-k") && part == 0);
            const mha_view *from = swaps == (part == 0) ? &r->past->values : &r->past->keys;
            number *to = parts[part] + ((b * r->h_kv + g) * all + j) * d;
            size_t batch = b, head = g, place = j;
            if (!swaps && !is("cache-heads-reversed") && !memchr(whose, "kv"[part], (size_t)(end - whose)))
                continue;
            if (strstr(oracle_wrong->name, "-batch-"))
                batch = n < 0 ? 0 : around((double)b - n, r->B);
            else if (strstr(oracle_wrong->name, "-heads-moved"))
                head = around((double)g - n, r->h_kv);
            else if (is("cache-heads-reversed"))
                head = r->h_kv > 2 ? r->h_kv - 1 - g : g;
            else if (strstr(oracle_wrong->name, "-moved"))
                place = around((double)j - n, r->P);
            for (size_t f = 0; f < d && (!swaps || r->d_k == r->d_v); f++)
                to[f].v = oracle_get(from, batch, head, place, f) * (strstr(oracle_wrong->name, "-times") ? n : 1);
            if (strstr(oracle_wrong->name, "-turned-") && r->s->qkv.rope.kind && r->s->qkv.rope.cos_table.rank != 3)
                turn_again(r, b, j, to);
        }
}

/* k.reshape(-1, n, h, d) of pages that are (h, n, d), or the reverse, heads by heads. */
static void read_pages(run *r)
{
    const size_t n = (size_t)given(), h = r->h_kv, all = r->S + r->extra, d[] = {r->d_k, r->d_v};
    number *const parts[] = {r->keys, r->values};
    for (int part = 0; part < 2 && r->P > 0 && !ragged(r) && h > 1; part++)
        for (size_t b = 0; b < r->B; b++) {
            number *rows = parts[part] + b * h * all * d[part], *old = malloc(h * all * d[part] * sizeof *old);
            memcpy(old, rows, h * all * d[part] * sizeof *old);
            for (size_t page = 0; page < r->S / n; page++)
                for (size_t j = 0; j < n; j++)
                    for (size_t g = 0; g < h; g++) {
                        const bool first = is("cache-pages-heads-first");
                        const size_t flat = first ? j * h + g : g * n + j, head = first ? flat / n : flat % h,
                                     row = first ? flat % n : flat / h;
                        memcpy(rows + (g * all + page * n + j) * d[part], old + (head * all + page * n + row) * d[part],
                               d[part] * sizeof *old);
                    }
            free(old);
        }
}

/* New rows that are not written. */
static void lose_new(run *r)
{
    const char *whose = strchr(oracle_wrong->name, '-') + 1, *end = strchr(whose, '-');
    const size_t all = r->S + r->extra, widths[] = {r->d_k, r->d_v};
    number *const parts[] = {r->keys, r->values};
    for (int part = 0; part < 2 && r->P > 0 && !ragged(r); part++)
        for (size_t head = 0; head < r->B * r->h_kv && memchr(whose, "kv"[part], (size_t)(end - whose)); head++)
            for (size_t e = r->P * widths[part]; e < r->S * widths[part]; e++)
                parts[part][head * all * widths[part] + e].v = 0;
}

const oracle_bug *bug_of_caches_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "cache-k-moved 1", .gathered = read_cache},
        {.name = "cache-v-moved -1", .gathered = read_cache},
        {.name = "cache-kv-moved 1", .gathered = read_cache},
        {.name = "cache-k-batch-moved 1", .gathered = read_cache},
        {.name = "cache-v-batch-moved -1", .gathered = read_cache},
        {.name = "cache-kv-batch-moved 1", .gathered = read_cache},
        {.name = "cache-k-heads-moved 1", .gathered = read_cache},
        {.name = "cache-v-heads-moved 1", .gathered = read_cache},
        {.name = "cache-kv-heads-moved 1", .gathered = read_cache},
        {.name = "cache-heads-reversed", .gathered = read_cache},
        {.name = "cache-pages-heads-first 2", .gathered = read_pages},
        {.name = "cache-pages-rows-first 4", .gathered = read_pages},
        {.name = "cache-kv-exchanged", .gathered = read_cache},
        {.name = "cache-k-for-v", .gathered = read_cache},
        {.name = "cache-v-for-k", .gathered = read_cache},
        {.name = "cache-k-turned-again", .gathered = read_cache},
        {.name = "cache-k-turned-back", .gathered = read_cache},
        {.name = "cache-k-times 2.5", .gathered = read_cache},
        {.name = "cache-v-times 0.125", .gathered = read_cache},
        {.name = "cache-k-new-lost", .gathered = lose_new},
        {.name = "cache-v-new-lost", .gathered = lose_new},
        {.name = "cache-kv-new-lost", .gathered = lose_new},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
