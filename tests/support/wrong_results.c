/* Right gradients are spoiled: by a factor, in another order, in part. Plain index arithmetic, nothing of src. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/wrong_results.h"

/* A gradient (B, T, h, d), and a copy of what was right; d of the other kind of rows. */
typedef struct rows {
    size_t B, T, h, h_kv, d, other_d;
    const float *old;
    float *new;
} rows;

static float of(const rows *x, size_t b, size_t t, size_t i, size_t c)
{
    return x->old[((b * x->T + t) * x->h + i) * x->d + c];
}

static bool by_factor(const float_backward *f, const char *name, const rows *x)
{
    const float B = (float)f->B, group = (float)(f->h / f->h_kv), cap = f->softcap;
    const struct {
        const char *name;
        float by;
    } factors[] = {{"zero", 0},
                   {"negated", -1},
                   {"scaled", f->scale},
                   {"over-scale", 1 / f->scale},
                   {"scaled-twice", f->scale * f->scale},
                   {"over-scale-twice", 1 / f->scale / f->scale},
                   {"over-batch", 1 / B},
                   {"over-queries", 1 / (float)f->T},
                   {"over-keys", 1 / (float)f->S},
                   {"over-rows", 1 / B / (float)f->T},
                   {"over-heads", 1 / (float)f->h},
                   {"over-group", 1 / group},
                   {"times-batch", B},
                   {"times-group", group},
                   {"times-cap", cap > 0 ? cap : 1},
                   {"over-cap", cap > 0 ? 1 / cap : 1},
                   {"doubled", 2},
                   {"halved", 0.5f},
                   {"times-log2e", 1.44269504f},
                   {"times-ln2", 0.693147181f},
                   {"times-a-number", 1.2345f}};
    for (size_t n = 0; n < sizeof factors / sizeof *factors; n++)
        if (strcmp(factors[n].name, name) == 0) {
            for (size_t e = 0; e < x->B * x->T * x->h * x->d; e++)
                x->new[e] = factors[n].by * x->old[e];
            return true;
        }
    return false;
}

/* The number of an element b, t, h, c in memory of an order of axes, in which rows have `width` features. */
static size_t number_of(const char *order, const size_t n[4], size_t width, const size_t at[4])
{
    size_t index = 0;
    for (const char *axis = order; *axis; axis++) {
        const size_t k = (size_t)(strchr("bthc", *axis) - "bthc");
        index = index * (k == 3 ? width : n[k]) + at[k];
    }
    return index;
}

/* Written in one order of memory and read in another. */
static bool in_memory(const char *name, const rows *x)
{
    static const char *const orders[][3] = {
        {"of-other-order-time", "bthc", "bhtc"},       {"of-other-order-heads", "bhtc", "bthc"},
        {"of-other-order-features", "bhct", "bhtc"},   {"of-other-order-rows", "bhtc", "bhct"},
        {"of-other-order-batch", "hbtc", "bhtc"},      {"of-other-order-batch-first", "bhtc", "hbtc"},
        {"of-other-order-batch-time", "tbhc", "bthc"}, {"of-other-order-time-batch", "bthc", "tbhc"},
        {"of-other-width-time", "bthc", "bthc"},       {"of-other-width-heads", "bhtc", "bhtc"}};
    const size_t n[4] = {x->B, x->T, x->h, x->d}, all = x->B * x->T * x->h * x->d;
    size_t k = 0;
    while (k < sizeof orders / sizeof *orders && strcmp(orders[k][0], name) != 0)
        k++;
    float *memory = k < sizeof orders / sizeof *orders ? calloc(all + 1, sizeof *memory) : NULL;
    for (size_t e = 0; memory && e < 2 * all; e++) { /* a head's rows in order: later rows may overwrite earlier ones */
        const bool by_heads = orders[k][1][1] == 'h';
        const size_t row = e % all / x->d, b = row / x->T / x->h, inside = row % (x->T * x->h),
                     at[4] = {b, by_heads ? inside % x->T : inside / x->h, by_heads ? inside / x->T : inside % x->h,
                              e % x->d},
                     to = number_of(orders[k][1], n, strstr(name, "width") ? x->other_d : x->d, at);
        if (e < all && to < all)
            memory[to] = of(x, at[0], at[1], at[2], at[3]);
        else if (e >= all)
            x->new[number_of("bthc", n, x->d, at)] = memory[number_of(orders[k][2], n, x->d, at)];
    }
    free(memory);
    return k < sizeof orders / sizeof *orders;
}

#define IS(what) (strcmp(name, what) == 0)
#define BEGINS(what) (strncmp(name, what, sizeof what - 1) == 0 && block > 0)

/* Element by element that of another place, or 0. */
static bool of_another_place(const char *name, const rows *x)
{
    const size_t B = x->B, T = x->T, h = x->h, d = x->d, kv = x->h_kv < h ? x->h_kv : h, group = h / kv;
    bool known = true;
    unsigned block = 0;
    const char *number = strrchr(name, '-');
    if (number && sscanf(number, "-%u", &block) != 1)
        block = 0;
    for (size_t e = 0; e < B * T * h * d; e++) {
        const size_t b = e / (T * h * d), t = e / (h * d) % T, i = e / d % h, c = e % d;
        float g = x->old[e];
        if (IS("of-other-order-groups"))
            g = of(x, b, t, i % group * kv + i / group, c);
        else if (IS("of-other-order-groups-first"))
            g = of(x, b, t, i % kv * group + i / kv, c);
        else if (IS("of-next-head"))
            g = of(x, b, t, i + 1 < h ? i + 1 : 0, c);
        else if (IS("of-previous-head"))
            g = of(x, b, t, i > 0 ? i - 1 : h - 1, c);
        else if (IS("of-heads-reversed"))
            g = of(x, b, t, h - 1 - i, c);
        else if (IS("of-next-batch-row"))
            g = of(x, b + 1 < B ? b + 1 : 0, t, i, c);
        else if (IS("of-next-row"))
            g = of(x, b, t + 1 < T ? t + 1 : 0, i, c);
        else if (IS("of-previous-row"))
            g = of(x, b, t > 0 ? t - 1 : T - 1, i, c);
        else if (IS("of-rows-reversed"))
            g = of(x, b, T - 1 - t, i, c);
        else if (IS("of-halves-exchanged"))
            g = of(x, b, t, i, c < d / 2 ? c + d / 2 : c - d / 2);
        else if (IS("of-pairs-exchanged"))
            g = of(x, b, t, i, c % 2 ? c - 1 : c + 1);
        else if (IS("of-first-batch-row"))
            g = b > 0 ? 0 : g;
        else if (IS("of-last-batch-row"))
            g = b < B - 1 ? 0 : g;
        else if (IS("of-first-head"))
            g = i > 0 ? 0 : g;
        else if (IS("of-last-head"))
            g = i < h - 1 ? 0 : g;
        else if (IS("of-first-half"))
            g = c >= d / 2 ? 0 : g;
        else if (IS("of-fewer-features"))
            g = c >= x->other_d ? 0 : g;
        else if (IS("without-last-row"))
            g = t == T - 1 ? 0 : g;
        else if (IS("of-some-rows"))
            g = (t + i) % 3 == 1 ? 0 : g;
        else if (IS("of-some-features"))
            g = c % 3 == 1 ? 0 : g;
        else if (IS("times-a-number-by-head"))
            g *= 0.7f + 0.4f * (float)(b * h + i);
        else if (IS("one-late")) { /* in the order batch, head, time */
            const size_t at = ((b * h + i) * T + t) * d + c, from = at > 0 ? at - 1 : B * h * T * d - 1;
            g = of(x, from / d / T / h, from / d % T, from / d / T % h, from % d);
        } else if (IS("one-late-time"))
            g = x->old[e > 0 ? e - 1 : B * T * h * d - 1];
        else if (BEGINS("of-full-blocks"))
            g = t >= T - T % block ? 0 : g;
        else if (BEGINS("without-last-block"))
            g = t / block == (T - 1) / block ? 0 : g;
        else if (BEGINS("of-first-block"))
            g = t >= block ? 0 : g;
        else
            known = false;
        x->new[e] = g;
    }
    return known;
}

static bool summed(const char *name, const rows *x)
{
    const size_t B = x->B, T = x->T, h = x->h, d = x->d;
    const size_t group = h / (x->h_kv < h ? x->h_kv : h);
    bool known = true;
    unsigned block = 0;
    const bool blocks = sscanf(name, "added-to-previous-blocks-%u", &block) == 1 && block > 0;
    for (size_t e = 0; e < B * T * h * d; e++) {
        const size_t b = e / (T * h * d), t = e / (h * d) % T, i = e / d % h, c = e % d;
        float g = 0;
        for (size_t row = blocks ? t % block : T; row <= t; row += block)
            g += of(x, b, row, i, c);
        for (size_t head = i / group * group; IS("over-heads-of-group") && head < i / group * group + group; head++)
            g += of(x, b, t, head, c);
        for (size_t other = 0; other < (strstr(name, "head") ? h : B); other++)
            if (IS("over-all-heads") || (IS("added-to-previous-heads") && other <= i))
                g += of(x, b, t, other, c);
            else if (IS("over-all-batch-rows") || (IS("added-to-previous-batch-rows") && other <= b))
                g += of(x, other, t, i, c);
        known = IS("over-all-heads") || IS("added-to-previous-heads") || IS("over-all-batch-rows") ||
                IS("added-to-previous-batch-rows") || IS("over-heads-of-group") || blocks;
        x->new[e] = g;
    }
    return known;
}

bool wrong_result(const float_backward *f, const char *bug, char which)
{
    if (strncmp(bug, "result-", 7) != 0)
        return false;
    const char *name = bug + 7;
    unsigned keys;
    if (sscanf(name, "of-first-keys-%u", &keys) == 1) {
        for (size_t e = 0; f->dmask && e < f->mask_B * f->mask_h * f->T * f->S; e++)
            f->dmask[e] = e % f->S < keys ? f->dmask[e] : 0;
        return f->dmask;
    }
    float *g = which == 'q' ? f->dq : which == 'k' ? f->dk : f->dv;
    rows x = {.B = f->B,
              .T = which == 'q' ? f->T : f->S,
              .h = which == 'q' ? f->h : f->h_kv,
              .h_kv = f->h_kv,
              .d = which == 'v' ? f->d_v : f->d_k,
              .other_d = which == 'v' ? f->d_k : f->d_v};
    const size_t all = x.B * x.T * x.h * x.d;
    float *old = malloc((all + 1) * sizeof *old), *new = malloc((all + 1) * sizeof *new);
    if (!old || !new)
        abort();
    memcpy(old, g, all * sizeof *old);
    x.old = old, x.new = new;
    const float *at_input = which == 'q' ? f->q : which == 'k' ? f->k : f->v, *other = which == 'k' ? f->dv : f->dk;
    const bool begins = strcmp(name, "begin-at-input") == 0, at_do = strcmp(name, "begin-at-do") == 0 && which == 'q',
               is_other = strcmp(name, "of-another") == 0, alike = f->d_k == f->d_v,
               taken = begins || (at_do && alike) || (is_other && alike && which != 'q');
    for (size_t e = 0; e < all && taken; e++)
        new[e] = begins ? old[e] + at_input[e] : at_do ? old[e] + f->dO[e] : other[e];
    const bool known =
        taken || by_factor(f, name, &x) || in_memory(name, &x) || of_another_place(name, &x) || summed(name, &x);
    if (known)
        memcpy(g, new, all * sizeof *g);
    free(old);
    free(new);
    return known;
}

bool wrong_bias(const float_backward *f, const char *bug, float *db)
{
    const size_t B = f->B, T = f->T, h = f->h, d = f->d_k;
    const char *name = strncmp(bug, "parameter-", 10) == 0 ? bug + 10 : "";
    unsigned block = 0, first = 0;
    const bool late = sscanf(name, "of-last-block-%u", &block) == 1 && block > 0,
               early = sscanf(name, "of-first-block-%u", &first) == 1 && first > 0;
    memset(db, 0, h * d * sizeof *db);
    for (size_t e = 0; e < B * T * h * d; e++) {
        const size_t b = e / (T * h * d), t = e / (h * d) % T, i = e / d % h, c = e % d;
        if ((IS("of-first-batch-row") && b > 0) || (IS("of-last-batch-row") && b < B - 1) ||
            (IS("of-first-row") && t > 0) || (IS("of-last-row") && t < T - 1) ||
            (late && t / block < (T - 1) / block) || (early && t >= first) || (IS("of-all-but-last-row") && t == T - 1))
            continue;
        if ((IS("of-first-head") && i > 0) || (IS("of-last-head") && i < h - 1))
            continue;
        if (IS("over-heads"))
            for (size_t other = 0; other < h; other++)
                db[other * d + c] += f->dq[e];
        else
            db[IS("by-features") ? c * h + i : i * d + c] += f->dq[e];
    }
    return IS("of-first-batch-row") || IS("of-last-batch-row") || IS("of-first-row") || IS("of-last-row") ||
           IS("over-heads") || IS("by-features") || IS("of-all-but-last-row") || IS("of-first-head") ||
           IS("of-last-head") || late || early;
}
