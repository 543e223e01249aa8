/* Where a backward in float32 reads: at the right place, or by mistake elsewhere. Plain names and index arithmetic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/float_parts.h"

bool float_is(float_head *x, const char *name)
{
    const bool found = *x->bug == *name && strcmp(x->bug, name) == 0;
    x->known |= found;
    return found;
}

size_t float_is_of_block(float_head *x, const char *name)
{
    if (*x->bug != *name) /* asked for each pair */
        return 0;
    const size_t length = strlen(name);
    size_t block;
    if (strncmp(x->bug, name, length) != 0 || sscanf(x->bug + length, "-%zu", &block) != 1)
        return 0;
    x->known |= block > 0;
    return block;
}

/* Whether the bug is WHAT-SUFFIX. */
static bool ends(float_head *x, const char *what, const char *suffix)
{
    const size_t length = strlen(what);
    const bool found = *x->bug == *what && strncmp(x->bug, what, length) == 0 && x->bug[length] == '-' &&
                       strcmp(x->bug + length + 1, suffix) == 0;
    x->known |= found;
    return found;
}

static size_t ends_in_block(float_head *x, const char *what, const char *suffix)
{
    const size_t length = strlen(what), more = strlen(suffix);
    size_t block = 0;
    if (strncmp(x->bug, what, length) == 0 && x->bug[length] == '-' &&
        strncmp(x->bug + length + 1, suffix, more) == 0 &&
        sscanf(x->bug + length + 1 + more, "-%zu", &block) != 1)
        block = 0;
    x->known |= block > 0;
    return block;
}

/* The first row of the sequence of row t, and how many rows it has. */
static size_t sequence_of(const float_backward *f, size_t t, size_t *count)
{
    size_t first = t;
    while (first > 0 && f->segments[first - 1] == f->segments[t])
        first--;
    for (*count = 0; first + *count < f->T && f->segments[first + *count] == f->segments[t];)
        (*count)++;
    return first;
}

/* Row t of what is laid out as (sequences, longest), read as the rows of all. */
static void read_padded(const float_backward *f, float_place *at, size_t t)
{
    size_t longest = 1, count;
    for (size_t row = 0; row < f->T; row++) {
        sequence_of(f, row, &count);
        longest = count > longest ? count : longest;
    }
    size_t sequence = 0, first = 0;
    for (; sequence < t / longest && first < f->T; sequence++)
        first += (sequence_of(f, first, &count), count);
    if (first < f->T)
        sequence_of(f, first, &count);
    at->nothing = first >= f->T || t % longest >= count;
    at->t = at->nothing ? t : first + t % longest;
}

float_place float_read(float_head *x, const char *what, const char *blocks, bool keys, size_t b, size_t i, size_t t)
{
    const float_backward *f = x->f;
    const size_t T = keys ? f->S : f->T, h = keys ? f->h_kv : f->h, group = f->h / f->h_kv;
    const char *const next = keys ? "of-next-key" : "of-next-query",
               *const first = keys ? "of-first-key" : "of-first-query",
               *const previous = keys ? "of-previous-key" : "of-previous-query", *bug = x->bug;
    const bool stale = (*bug == 's' || *bug == 'f') &&
                       (strncmp(bug, "stale-", 6) == 0 || strncmp(bug, "first-", 6) == 0);
    float_place at = {b, i, t, false};
    size_t block;
    if ((strncmp(bug, what, strlen(what)) != 0 || bug[strlen(what)] != '-') && !stale)
        return at;
    if (f->ragged) {
        size_t count;
        if (ends(x, what, "of-local-index"))
            at.t = t - sequence_of(f, t, &count);
        if (ends(x, what, "of-padded-index"))
            read_padded(f, &at, t);
        return at;
    }
    if (ends(x, what, next))
        at.t = (t + 1) % T;
    else if (ends(x, what, previous))
        at.t = (t + T - 1) % T;
    else if (ends(x, what, first))
        at.t = 0;
    else if (ends(x, what, "of-next-head"))
        at.i = (i + 1) % h;
    else if (ends(x, what, "of-previous-head"))
        at.i = h > 2 ? (i + h - 1) % h : i;
    else if (ends(x, what, "of-first-head"))
        at.i = 0;
    else if (ends(x, what, "of-key-head"))
        at.i = f->h_kv > 1 ? i / group : i;
    else if (!keys && ends(x, what, "of-first-of-group"))
        at.i = i / group * group;
    else if (!keys && ends(x, what, "of-last-of-group"))
        at.i = i / group * group + group - 1;
    else if (ends(x, what, "by-remainder"))
        at.i = x->i % f->h_kv;
    else if (ends(x, what, "of-next-batch-row"))
        at.b = (b + 1) % f->B;
    else if (ends(x, what, "of-first-batch-row"))
        at.b = 0;
    else if (ends(x, what, "of-other-order") || ends(x, what, "of-other-order-heads"))
        at.i = (t * h + i) / T, at.t = (t * h + i) % T;
    else if (ends(x, what, "of-other-order-time"))
        at.i = (i * T + t) % h, at.t = (i * T + t) / h;
    else if (ends(x, what, "of-other-order-batch"))
        at.i = (b * h + i) / f->B, at.b = (b * h + i) % f->B;
    else if ((block = ends_in_block(x, what, "of-first-block")) > 0)
        at.t = t % block;
    else if ((block = ends_in_block(x, what, "of-start-of-block")) > 0)
        at.t = T > block ? t - t % block : t;
    else if (blocks && (block = ends_in_block(x, "stale", blocks)) > 0)
        at.t = t >= block ? t - block : t;
    else if (blocks && (block = ends_in_block(x, "first", blocks)) > 0)
        at.t = t % block;
    return at;
}

/* Row (b, i, t) of rows that are taken to be `width` wide, in (batch, heads, T) or (batch, T, heads). */
static const float *row_apart(const float *from, const size_t n[4], size_t width, bool by_heads, const float_place *at,
                              float *room)
{
    const size_t B = n[0], T = n[1], h = n[2], d = n[3],
                 first = width * (by_heads ? (at->b * h + at->i) * T + at->t : (at->b * T + at->t) * h + at->i);
    for (size_t c = 0; c < d; c++) {
        const size_t e = first + c, row = e / d, b = row / (T * h), t = by_heads ? row % T : row / h % T,
                     i = by_heads ? row / T % h : row % h;
        room[c] = b < B ? from[((b * T + t) * h + i) * d + e % d] : 0;
    }
    return room;
}

const float *float_row(float_head *x, char of, const char *what, const char *blocks, size_t t)
{
    const float_backward *f = x->f;
    const bool keys = of == 'k' || of == 'v';
    const float_place at = float_read(x, what, blocks, keys, x->b, keys ? x->g : x->i, t);
    const size_t T = keys ? f->S : f->T, h = keys ? f->h_kv : f->h, d = of == 'q' || of == 'k' ? f->d_k : f->d_v;
    const float *from = of == 'q' ? f->q : of == 'k' ? f->k : of == 'v' ? f->v : f->dO;
    const size_t n[4] = {f->B, T, h, d}, other = f->d_k + f->d_v - d;
    const bool by_time = ends(x, what, "of-other-width-time"), by_heads = ends(x, what, "of-other-width-heads");
    if (by_time || by_heads)
        return row_apart(from, n, other, by_heads, &at, x->apart[of == 'q' ? 0 : of == 'k' ? 1 : of == 'v' ? 2 : 3]);
    return from + ((at.b * T + at.t) * h + at.i) * d;
}

/* ---------------------------------------------------------------- which keys are seen */

float_visibility float_visibility_right(const float_head *x)
{
    const float_backward *f = x->f;
    return (float_visibility){.causal = f->causal, .hides = true, .flags = f->flags, .offset = (long)f->offset,
                         .left = f->window_left, .right = f->window_right, .lengths = f->lengths,
                         .segments = f->segments, .padding = f->padding, .mask_b = f->mask_B > 1 ? x->b : 0,
                         .mask_i = f->mask_h > 1 ? x->i : 0, .slope_i = x->i, .mask_times = 1, .slope_times = 1};
}

/* The element of a mask (T, S) for query t and key j. */
static size_t mask_at(const float_head *x, const float_visibility *u, size_t t, size_t j)
{
    const float_backward *f = x->f;
    if (u->turned && f->T == f->S)
        return j * f->S + t;
    t = (t + u->next_query) % f->T, j = (j + u->next_key) % f->S;
    t = u->first_queries ? t % u->first_queries : t, j = u->first_keys ? j % u->first_keys : j;
    return t * f->S + j;
}

float float_added(const float_head *x, const float_visibility *u, size_t t, size_t j)
{
    const float_backward *f = x->f;
    const size_t at = mask_at(x, u, t, j);
    float sum = 0;
    if (f->mask && !f->flags) {
        const float m = f->mask[(u->mask_b * f->mask_h + u->mask_i) * f->T * f->S + at];
        sum += m > -INFINITY ? u->mask_times * m : m;
    }
    return f->slopes ? sum - u->slope_times * f->slopes[u->slope_i] * ((float)t + (float)f->offset - (float)j) : sum;
}

bool float_sees(const float_head *x, const float_visibility *u, size_t t, size_t j)
{
    const float_backward *f = x->f;
    const long p = (long)t + u->offset, k = (long)j, right = (long)t + (long)f->offset;
    const size_t at = mask_at(x, u, t, j);
    if (float_added(x, u, t, j) == -INFINITY)
        return false;
    if (!u->hides)
        return true;
    if (u->flags && f->mask) {
        const bool hidden = f->mask[(u->mask_b * f->mask_h + u->mask_i) * f->T * f->S + at] == -INFINITY;
        if (hidden != u->inverted)
            return false;
    }
    if ((u->lengths && (float)j >= (float)u->lengths[x->b] + u->more_lengths) ||
        (u->padding && !u->padding[x->b * f->S + j]) ||
        (u->segments && u->segments[x->b * f->T + t] != u->segments[x->b * f->S + j]))
        return false;
    return !(u->causal && k > p) && !(u->left >= 0 && k < right - u->left) && !(u->right >= 0 && k > right + u->right);
}
