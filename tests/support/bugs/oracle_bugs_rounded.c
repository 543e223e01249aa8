/* Bugs that round one point alone, to as many significant bits as their name says, or by scales; wrong scales. */
#include <stdlib.h>
#include <string.h>

#include "support/bugs/oracle_bugs.h"

/* With so many bits; those with 4 and 3 are numbers of 8 bits, with few exponents. */
static double rounded_to(double x, int bits)
{
    const int least = bits == 4 ? -9 : bits == 3 ? -16 : -2000;
    int exponent;
    if (!isfinite(x))
        return x;
    (void)frexp(x, &exponent);
    const int last = exponent - bits < least ? least : exponent - bits;
    return ldexp(nearbyint(ldexp(x, -last)), last); /* of two as near the even one */
}

double buggy_rounding(double x)
{
    return rounded_to(x, (int)given());
}

static void shorten(number *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i].v = buggy_rounding(x[i].v);
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

/* A number of a type whose largest is `end`. */
static double typed(double x, double end)
{
    return end == 448 ? rounded_to(x, 4) : nearbyint(x);
}

/* Which of the scales number (b, g, t, f) of (B, h, T, d) has. */
static size_t scale_of(size_t b, size_t g, size_t t, size_t f, size_t h, size_t T, size_t d)
{
    const size_t head = b * h + g, n = (size_t)given();
    return n == 1 ? head * T + t : n == 2 ? head : n == 3 ? head * d + f : n == 4 ? 0 : (head * T + t) * d + f / n;
}

/* Numbers quantised with one scale for each row, for each head, for each of its features, for all, or for so many
 * neighbours. The letters behind the hyphen say whose. */
static void quantise_rows(run *r)
{
    const size_t all = r->S + r->extra, T[] = {r->T_q, all, all}, h[] = {r->h, r->h_kv, r->h_kv},
                 d[] = {r->d_k, r->d_k, r->d_v};
    number *parts[] = {r->q_rot, r->keys, r->values};
    const double end = begins("int8") ? 127 : begins("int4") ? 7 : 448, n = given();
    const bool alone = r->P == 0 && r->extra == 0 && !ragged(r);
    for (int part = 0; part < 3 && !ragged(r); part++) {
        double *most = calloc(r->B * h[part] * T[part] * d[part] + 1, sizeof *most);
        const bool grouped = n > 4 && (r->d_k != r->d_v || fmod((double)d[part], n) != 0 || n >= (double)d[part]);
        for (int pass = 0; pass < 2 && strchr(strchr(oracle_wrong->name, '-'), "qkv"[part]); pass++)
            for (size_t e = 0; e < r->B * h[part] * T[part] * d[part] && (alone || n == 1) && !grouped; e++) {
                const size_t f = e % d[part], t = e / d[part] % T[part], head = e / d[part] / T[part],
                             g = head % h[part], b = head / h[part],
                             at = part == 0 ? ((b * T[0] + t) * h[0] + g) * d[0] + f : e;
                double *x = &parts[part][at].v, *largest = &most[scale_of(b, g, t, f, h[part], T[part], d[part])];
                if (pass == 0)
                    *largest = fmax(*largest, fabs(*x));
                else if (*largest > 0)
                    *x = typed(*x / *largest * end, end) * (*largest / end);
            }
        free(most);
    }
}

/* The cached rows alone, rounded as the name says. */
static void shorten_cached(run *r)
{
    const char *whose = strchr(oracle_wrong->name, '-') + 1, *behind = strchr(whose, '-');
    const size_t all = r->S + r->extra, d[] = {r->d_k, r->d_v};
    number *parts[] = {r->keys, r->values};
    for (int part = 0; part < 2 && r->P > 0 && !ragged(r); part++)
        for (size_t head = 0; head < r->B * r->h_kv && memchr(whose, "kv"[part], (size_t)(behind - whose)); head++)
            shorten(parts[part] + head * all * d[part], r->P * d[part]);
}

/* A number added to all of q, before they are rotated, or of v. */
static void raise(run *r)
{
    for (size_t e = 0; is("q-raised") && e < r->rows_q * r->h * r->d_k; e++)
        r->q[e].v += given();
    for (size_t e = 0; is("v-raised") && r->P == 0 && e < r->rows_k * r->h_kv * r->d_v; e++)
        r->v[e].v += given();
}

/* Each head with a scale of its own. */
static void scale_heads(run *r, number *heads)
{
    for (size_t e = 0; r->h > 1 && e < r->rows_q * r->h * r->d_v; e++)
        heads[e].v *= given_at(e / r->d_v % r->h, 1 + 0.3 * (double)(e / r->d_v % r->h));
}

const oracle_bug *bug_of_rounding_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "rounded-q 11", .gathered = shorten_rows},
        {.name = "rounded-q 8", .gathered = shorten_rows},
        {.name = "rounded-k 8", .gathered = shorten_rows},
        {.name = "rounded-v 11", .gathered = shorten_rows},
        {.name = "rounded-qk 11", .gathered = shorten_rows},
        {.name = "rounded-kv 8", .gathered = shorten_rows},
        {.name = "rounded-qkv 11", .gathered = shorten_rows},
        {.name = "int8-q 1", .gathered = quantise_rows},
        {.name = "int8-k 1", .gathered = quantise_rows},
        {.name = "int8-v 1", .gathered = quantise_rows},
        {.name = "int8-v 3", .gathered = quantise_rows},
        {.name = "int8-kv 2", .gathered = quantise_rows},
        {.name = "int8-qk 4", .gathered = quantise_rows},
        {.name = "int4-q 2", .gathered = quantise_rows},
        {.name = "int4-k 1", .gathered = quantise_rows},
        {.name = "int4-v 4", .gathered = quantise_rows},
        {.name = "int4-kv 3", .gathered = quantise_rows},
        {.name = "fp8-q 4", .gathered = quantise_rows},
        {.name = "fp8-k 1", .gathered = quantise_rows},
        {.name = "fp8-v 2", .gathered = quantise_rows},
        {.name = "fp8-qk 1", .gathered = quantise_rows},
        {.name = "fp8-kv 4", .gathered = quantise_rows},
        {.name = "fp8-qkv 1", .gathered = quantise_rows},
        {.name = "rounded-k 4", .gathered = shorten_rows},
        {.name = "rounded-v 3", .gathered = shorten_rows},
        {.name = "cache-k-rounded 8", .gathered = shorten_cached},
        {.name = "cache-v-rounded 4", .gathered = shorten_cached},
        {.name = "cache-kv-rounded 3", .gathered = shorten_cached},
        {.name = "q-raised 0.5", .split = raise},
        {.name = "v-raised -0.25", .split = raise},
        {.name = "heads-times", .merged = scale_heads},
        {.name = "rounded-scores 11", .attend = buggy_attend},
        {.name = "rounded-exponentials 8", .attend = buggy_attend},
        {.name = "rounded-exponentials-v 11", .gathered = shorten_rows, .attend = buggy_attend},
        {.name = "rounded-weights 11", .attend = buggy_attend},
        {.name = "rounded-weights-v 8", .gathered = shorten_rows, .attend = buggy_attend},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
