/* Where a bug finds rows of q, k and v, their heads and features, and heads in a packed tensor. */
#include <string.h>

#include "verify/bug_forward/bug_inputs.h"

size_t mha__moved_batch(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b)
{
    if (!(k->moved >> which & 1) || k->move_batch == 0)
        return b;
    return k->move_batch == MOVE_TO_FIRST ? 0 : mha__wrapped((int64_t)b - k->move_batch, w->c->B);
}

size_t mha__moved_row(const mha__knobs *k, size_t b, size_t T, size_t t)
{
    const int64_t at = (int64_t)t;
    if (k->move_order)
        return (size_t)k->move_order[b * T + t];
    if (k->move_repeats > 0 && at == k->move_repeats)
        return t - 1;
    if (k->move_wraps > 0)
        return t % (size_t)k->move_wraps;
    if (k->move_holds > 0 && at >= k->move_holds)
        return (size_t)k->move_holds - 1;
    if (k->move_ends && (at < k->move_rows || at - k->move_rows >= (int64_t)T))
        return T;
    return mha__wrapped(at - k->move_rows, T);
}

/* Which of d features stands at c, before they are moved. */
static size_t moved_feature(const mha__knobs *k, size_t d, size_t c)
{
    switch (k->move_feature_order) {
    case FEATURES_REVERSED: return d - 1 - c;
    case FEATURES_EXCHANGED: return c ^ 1;
    case FEATURES_TO_PAIRS: return c % 2 * (d / 2) + c / 2;
    case FEATURES_TO_HALVES: return c % (d / 2) * 2 + c / (d / 2);
    default: return c;
    }
}

void mha__rows_move(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b, double *rows, double *copy)
{
    const size_t T = w->T[which], h = w->h[which], d = w->d[which];
    if (!(k->moved >> which & 1))
        return;
    const bool turns = k->move_memory == MEMORY_FEATURES_FIRST, in_order = !k->move_features && !k->move_feature_order;
    memcpy(copy, rows, T * h * d * sizeof *rows);
    for (size_t t = 0; t < T; t++)
        for (size_t g = 0; g < h; g++) {
            const size_t of_rows = t * h + g, of_heads = g * T + t;
            size_t row = mha__moved_row(k, b, T, t), head = mha__wrapped((int64_t)g - k->move_heads, h);
            double *to = rows + of_rows * d;
            if (k->move_head_order)
                head = (size_t)k->move_head_order[g];
            if (k->move_memory == MEMORY_ROWS_FIRST)
                row = of_rows % T, head = of_rows / T;
            if (k->move_memory == MEMORY_HEADS_FIRST)
                row = of_heads / h, head = of_heads % h;
            for (size_t c = 0; c < d && turns; c++)
                to[c] = copy[((c * T + t) / d * h + head) * d + (c * T + t) % d];
            if (turns)
                continue;
            if (row >= T)
                memset(to, 0, d * sizeof *to);
            else if (in_order)
                memcpy(to, copy + (row * h + head) * d, d * sizeof *to);
            for (size_t c = 0; c < d && row < T && !in_order; c++) {
                const int64_t feature = (int64_t)moved_feature(k, d, c) - k->move_features;
                to[c] = copy[(row * h + head) * d + mha__wrapped(feature, d)];
            }
        }
}

/* ---------------------------------------------------------------- packed heads */

/* The place of a head of q, k or v in a packed row of blocks q|k|v, and in one of groups: a key/value head's queries,
 * its key, its value. */
static size_t place_in_blocks(size_t H, size_t H_kv, int which, size_t head)
{
    return (which == PROJECTION_Q ? 0 : which == PROJECTION_K ? H : H + H_kv) + head;
}

static size_t place_in_groups(size_t H, size_t H_kv, int which, size_t head)
{
    const size_t n = H / H_kv;
    return which == PROJECTION_Q ? head / n * (n + 2) + head % n : head * (n + 2) + n + (which == PROJECTION_V);
}

/* The reverse: whether it is one of q, k or v, and which head. */
static int head_in_blocks(size_t H, size_t H_kv, size_t place, size_t *head)
{
    const int which = place < H ? PROJECTION_Q : place < H + H_kv ? PROJECTION_K : PROJECTION_V;
    *head = place - place_in_blocks(H, H_kv, which, 0);
    return which;
}

static int head_in_groups(size_t H, size_t H_kv, size_t place, size_t *head)
{
    const size_t n = H / H_kv, group = place / (n + 2), at = place % (n + 2);
    *head = at < n ? group * n + at : group;
    return at < n ? PROJECTION_Q : at == n ? PROJECTION_K : PROJECTION_V;
}

int mha__packed_head(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t *head)
{
    const size_t H = w->h[PROJECTION_Q], H_kv = w->h[PROJECTION_K];
    if (k->packing == PACKING_READ_INTERLEAVED)
        return head_in_blocks(H, H_kv, place_in_groups(H, H_kv, which, *head), head);
    return head_in_groups(H, H_kv, place_in_blocks(H, H_kv, which, *head), head);
}
