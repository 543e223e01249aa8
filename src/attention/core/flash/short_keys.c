/* The attention core for so few keys that they and their values stay in a first-level cache: what the flash core does
 * with its only block, without what longer calls need. */
#include <math.h>

#include "attention/core/flash/online_softmax.h"
#include "attention/core/flash/short_keys.h"

static bool is_short(const mha__flash *s)
{
    const mha__flash_keys *keys = &s->keys;
    return keys->n > 0 && keys->n <= MHA_SHORT_KEYS && keys->dtype == MHA_F32 && !keys->pages && s->before == 0 &&
           s->extra.n == 0 && !s->bias && s->softcap == 0.0f && !s->rounds && s->d_k <= MHA_BLOCK &&
           s->d_v % 16 == 0 && fabsf(s->scale) <= 1.0f; /* a larger one may overflow */
}

/* Whether every row sees all keys. */
static bool sees_all(const mha__flash *s, const mha__flash_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].begin != 0 || rows[i].end != s->keys.n)
            return false;
    return true;
}

/* Operands of the rows: both packed, or where they lie (keys without data) if a few rows read them once. */
typedef struct operands {
    mha__panels K, V;
    bool all; /* every row sees all keys */
} operands;

static bool pack(const mha__kernels *k, const mha__flash *s, const mha__flash_row *rows, size_t count,
                 const mha__short_memory *m, operands *o)
{
    const mha__flash_keys *keys = &s->keys;
    const size_t n = keys->n;
    const bool few = count <= k->few_rows;
    o->all = sees_all(s, rows, count);
    o->K = (mha__panels){few ? NULL : m->K, MHA_PANEL, s->d_k * MHA_PANEL};
    o->V = (mha__panels){keys->V, keys->v_stride, MHA_PANEL};
    if (!few || !o->all) {
        o->V = (mha__panels){m->V, MHA_PANEL, (size_t)MHA_SHORT_KEYS * MHA_PANEL};
        if (!k->pack(n, s->d_v, keys->V, keys->v_stride, m->V, o->V.panel) && !o->all)
            return false; /* a weight of 0 times a hidden value must be 0 */
    }
    if (!few)
        k->pack_transposed(s->d_k, n, keys->K, keys->k_stride, m->K, o->K.panel, 0);
    return true;
}

/* The softmaxes of `count` rows, at most MHA_TILE_ROWS. */
static void some_rows(const mha__kernels *k, const mha__flash *s, const mha__flash_row *rows, size_t count,
                      const mha__short_memory *m, const operands *o)
{
    const mha__flash_keys *keys = &s->keys;
    const size_t n = keys->n, width = s->d_v;
    float max[MHA_TILE_ROWS], sum[MHA_TILE_ROWS] = {0}, factor[MHA_TILE_ROWS];
    mha__softmax_state state[MHA_TILE_ROWS];
    for (size_t i = 0; i < count; i++)
        k->scale(m->Q + i * MHA_STAGED, rows[i].q, s->d_k, s->scale);
    if (o->K.data)
        k->product(count, mha__round_up(n, k->lanes), s->d_k, m->Q, o->K, NULL, m->scores, MHA_STAGED, NULL, NULL);
    else
        k->product_rows(count, n, s->d_k, m->Q, keys->K, keys->k_stride, NULL, 0, m->scores, MHA_STAGED);
    for (size_t i = 0; i < MHA_TILE_ROWS; i++)
        max[i] = -INFINITY;
    for (size_t i = 0; i < count; i++)
        state[i].visible = (o->all && n % 16 == 0) ||
                           k->softmax_prepare(m->scores + i * MHA_STAGED, n, rows[i].begin, rows[i].end, NULL, 0.0f);
    k->softmax_rows(count, n, m->scores, MHA_STAGED, max, sum, factor);
    k->product(count, width, n, m->scores, o->V, NULL, m->sum, width, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        state[i].max = max[i], state[i].sum = sum[i];
    const mha__partial total = {m->sum, state, width};
    mha__partial_finish(s, rows, count, &total);
}

bool mha__short_keys(const mha__flash *flash, const mha__flash_row *rows, size_t count, const mha__short_memory *m)
{
    const mha__kernels *k = mha__kernels_get();
    operands o;
    if (!is_short(flash) || !pack(k, flash, rows, count, m, &o))
        return false;
    /* As many rows at a time as their tiles take, which are as few as there can be. */
    size_t tiles = (count + k->tile_rows - 1) / k->tile_rows;
    const size_t most = count <= k->few_rows ? tiles : MHA_TILE_ROWS / k->tile_rows;
    for (size_t first = 0, together, some; first < count; first += some, tiles -= together) {
        together = tiles < most ? tiles : most;
        some = ((count - first) * together + tiles - 1) / tiles;
        some_rows(k, flash, rows + first, some, m, &o);
    }
    return true;
}
