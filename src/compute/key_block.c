/* Packs the keys and values of a block, or leaves them where they lie, and takes out values that are not finite. */
#include <math.h>
#include <string.h>

#include "compute/key_block.h"
#include "compute/online_softmax.h"

static const float *value_row(const mha__flash_work *w, const mha__flash_keys *keys, size_t j)
{
    if (keys->dtype == MHA_F32)
        return keys->V + j * keys->v_stride;
    w->kernels->widen(1, w->flash->d_v, mha__narrow_row(keys, true, j), keys->v_stride, keys->dtype, w->widened, 0,
                      NULL);
    return w->widened;
}

/* A NaN or infinity among the values must not be multiplied by the weight 0 of a query that does not see it. It becomes
 * zero in the packed block; mha__key_block_add_poison adds it for the queries that see it. The finite numbers beside it
 * stay: their sums have the bits that rows give which are read where they lie. */
static void remove_poison(const mha__flash_work *w, const mha__key_block *b, mha__span some, bool *poisoned)
{
    const size_t d_v = w->flash->d_v;
    for (size_t j = some.begin; j < some.end; j++) {
        const float *v = value_row(w, b->keys, b->from + j);
        float zero = 0.0f;
        for (size_t e = 0; e < d_v; e++)
            zero += v[e] * 0.0f;
        poisoned[j] = zero != 0.0f;
        for (size_t e = 0; poisoned[j] && e < d_v; e++)
            if (!isfinite(v[e]))
                w->V[e / MHA_PANEL * MHA_PANEL * w->block + j * MHA_PANEL + e % MHA_PANEL] = 0.0f;
    }
}

void mha__key_block_add_poison(const mha__flash_work *w, const mha__key_block *b, mha__span some, const float *weight,
                               const float *bias, float *sum)
{
    for (size_t j = some.begin; j < some.end; j++) {
        if (!b->poisoned[j] || (bias && bias[j] == -INFINITY))
            continue;
        const float *v = value_row(w, b->keys, b->from + j);
        for (size_t e = 0; e < w->flash->d_v; e++)
            if (!isfinite(v[e]))
                sum[e] += weight[j] * v[e];
    }
}

/* Value rows are read where they lie if each is read only once (there is one tile), has whole vectors, and is seen by
 * every query. */
static bool values_in_place(const mha__flash_work *w, size_t from, size_t end)
{
    return w->n_tiles == 1 && w->flash->d_v % 16 == 0 && !w->biased && w->all.begin <= from && w->all.end >= end;
}

/* Keys of 16 or 8 bits are read where they lie if the kernel that transposes them in registers takes them. */
static bool keys_in_place(const mha__flash_work *w, const mha__flash_keys *keys)
{
    return w->count <= MHA_FEW_ROWS && w->n_tiles == 1 && w->chunks == 1 &&
           keys->k_stride % (keys->dtype == MHA_I8 ? 4 : 2) == 0 && (uintptr_t)keys->K_narrow % sizeof(uint32_t) == 0;
}

/* Packs the keys and values of a block of 16 or 8 bits that are seen and cannot be read where they lie: as many rows at
 * a time as a panel has columns, which stay in a first-level cache between widening and packing. False: a value that
 * was packed is NaN or infinite. */
static bool pack_narrow(const mha__flash_work *w, mha__key_block *b, mha__span all)
{
    const mha__kernels *k = w->kernels;
    const mha__flash_keys *keys = b->keys;
    const size_t d_k = w->flash->d_k, d_v = w->flash->d_v;
    const bool more = keys->n - b->end >= w->block;
    bool finite = true;
    b->K.data = keys_in_place(w, keys) ? NULL : b->K.data;
    b->V.data = values_in_place(w, b->from, b->end) ? NULL : b->V.data;
    const size_t keys_end = b->K.data ? all.end : 0, values_end = b->V.data ? all.end : 0; /* 0: none are packed */
    for (size_t j = all.begin / MHA_PANEL * MHA_PANEL, n; j < keys_end; j += n) {
        n = all.end - j < MHA_PANEL ? all.end - j : MHA_PANEL;
        k->widen(n, d_k, mha__narrow_row(keys, false, b->from + j), keys->k_stride, keys->dtype, w->widened, d_k,
                 more ? mha__narrow_row(keys, false, b->from + j + w->block) : NULL);
        k->pack_transposed(d_k, n, w->widened, d_k, w->K + j * d_k, d_k * MHA_PANEL, 0);
    }
    for (size_t j = all.begin, n; j < values_end; j += n) {
        n = all.end - j < MHA_PANEL ? all.end - j : MHA_PANEL;
        k->widen(n, d_v, mha__narrow_row(keys, true, b->from + j), keys->v_stride, keys->dtype, w->widened, d_v,
                 more ? mha__narrow_row(keys, true, b->from + j + w->block) : NULL);
        finite &= k->pack(n, d_v, w->widened, d_v, w->V + j * MHA_PANEL, w->block * MHA_PANEL);
    }
    return finite;
}

/* The same for a block of floats. */
static bool pack_floats(const mha__flash_work *w, mha__key_block *b, mha__span all)
{
    const mha__kernels *k = w->kernels;
    const mha__flash_keys *keys = b->keys;
    const float *K = keys->K + b->from * keys->k_stride, *V = keys->V + b->from * keys->v_stride;
    const size_t d_k = w->flash->d_k, left = all.begin / MHA_PANEL * MHA_PANEL;
    if (w->n_tiles == 1 && w->count <= k->few_rows && w->chunks == 1)
        b->K.data = NULL;
    else
        k->pack_transposed(d_k, all.end - left, K + left * keys->k_stride, keys->k_stride, w->K + left * d_k,
                           d_k * MHA_PANEL, keys->n - b->end);
    if (!b->extra && values_in_place(w, b->from, b->end)) {
        b->V = (mha__panels){V, keys->v_stride, MHA_PANEL};
        return true;
    }
    return k->pack(all.end - all.begin, w->flash->d_v, V + all.begin * keys->v_stride, keys->v_stride,
                   w->V + all.begin * MHA_PANEL, w->block * MHA_PANEL);
}

/* If 8 columns or less remain behind the last whole 16 of the packed values, interleaves them for product_interleaved. */
static void interleave_values(const mha__flash_work *w, mha__key_block *b, mha__span all)
{
    const size_t left = w->flash->d_v % 16, column = w->flash->d_v - left, begin = all.begin / 2 * 2;
    if (!w->kernels->interleave_rows || left == 0 || left > 8 || !b->V.data)
        return;
    float *rows = w->V + column / MHA_PANEL * b->V.panel + column % MHA_PANEL;
    if (begin < all.begin)
        memset(rows + begin * MHA_PANEL, 0, 16 * sizeof *rows);
    if (all.end % 2)
        memset(rows + all.end * MHA_PANEL, 0, 16 * sizeof *rows);
    w->kernels->interleave_rows(mha__round_up(all.end, 2) - begin, rows + begin * MHA_PANEL);
    b->interleaved = rows;
}

void mha__key_block_pack(const mha__flash_work *w, mha__key_block *b, mha__span all, bool *poisoned)
{
    if (!(b->keys->dtype != MHA_F32 ? pack_narrow : pack_floats)(w, b, all)) {
        remove_poison(w, b, all, poisoned);
        b->poisoned = poisoned;
    }
    interleave_values(w, b, all);
}
