/* Mistakes that round one point alone, to as many significant bits as their name says. */
#include "support/mistakes/mistakes.h"

double mistaken_rounding(double x)
{
    int exponent;
    if (!isfinite(x))
        return x;
    (void)frexp(x, &exponent);
    const int last = exponent - (int)given();
    return ldexp(nearbyint(ldexp(x, -last)), last); /* of two as near the even one */
}

static void shorten(number *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i].v = mistaken_rounding(x[i].v);
}

/* The letters behind the last hyphen say whose rows. */
static void shorten_rows(run *r)
{
    const char *letters = strrchr(oracle_wrong->name, '-');
    const size_t n = r->B * r->h_kv * (r->S + r->extra);
    if (strchr(letters, 'q'))
        shorten(r->q_rot, r->rows_q * r->h * r->d_k);
    if (strchr(letters, 'k'))
        shorten(r->keys, n * r->d_k);
    if (strchr(letters, 'v'))
        shorten(r->values, n * r->d_v);
}

/* n numbers, so many apart, as whole 127ths of the largest. */
static void to_bytes(number *x, size_t n, size_t apart)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i * apart].v));
    for (size_t i = 0; i < n && most > 0; i++)
        x[i * apart].v = nearbyint(x[i * apart].v / (most / 127)) * (most / 127);
}

/* Rows in 8 bits: one scale for each, for each head, or for each of its features. */
static void quantise_rows(run *r)
{
    const size_t rows = r->S + r->extra, heads = r->B * r->h_kv, widths[] = {r->d_k, r->d_v};
    number *parts[] = {r->keys, r->values};
    const bool alone = r->P == 0 && r->extra == 0;
    for (int part = 0; part < 2; part++) {
        const size_t d = widths[part];
        if (!strchr(strrchr(oracle_wrong->name, '-'), "kv"[part]))
            continue;
        for (size_t i = 0; given() == 1 && i < heads * rows; i++)
            to_bytes(parts[part] + i * d, d, 1);
        for (size_t i = 0; given() == 2 && alone && i < heads; i++)
            to_bytes(parts[part] + i * rows * d, rows * d, 1);
        for (size_t i = 0; given() == 3 && alone && i < heads * d; i++)
            to_bytes(parts[part] + i / d * rows * d + i % d, rows, d);
    }
}

const oracle_mistake *mistake_of_rounding_at(size_t index)
{
    static const oracle_mistake all[] = {
        {.name = "rounded-q 11", .gathered = shorten_rows},
        {.name = "rounded-q 8", .gathered = shorten_rows},
        {.name = "rounded-k 8", .gathered = shorten_rows},
        {.name = "rounded-v 11", .gathered = shorten_rows},
        {.name = "rounded-qk 11", .gathered = shorten_rows},
        {.name = "rounded-kv 8", .gathered = shorten_rows},
        {.name = "rounded-qkv 11", .gathered = shorten_rows},
        {.name = "int8-k 1", .gathered = quantise_rows},
        {.name = "int8-v 1", .gathered = quantise_rows},
        {.name = "int8-v 3", .gathered = quantise_rows},
        {.name = "int8-kv 2", .gathered = quantise_rows},
        {.name = "rounded-scores 11", .attend = mistaken_attend},
        {.name = "rounded-exponentials 8", .attend = mistaken_attend},
        {.name = "rounded-exponentials-v 11", .gathered = shorten_rows, .attend = mistaken_attend},
        {.name = "rounded-weights 11", .attend = mistaken_attend},
        {.name = "rounded-weights-v 8", .gathered = shorten_rows, .attend = mistaken_attend},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
