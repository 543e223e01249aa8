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
        {.name = "rounded-scores 11", .attend = mistaken_attend},
        {.name = "rounded-exponentials 8", .attend = mistaken_attend},
        {.name = "rounded-exponentials-v 11", .gathered = shorten_rows, .attend = mistaken_attend},
        {.name = "rounded-weights 11", .attend = mistaken_attend},
        {.name = "rounded-weights-v 8", .gathered = shorten_rows, .attend = mistaken_attend},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
