/* Packs the keys and values of a block, or leaves them where they lie, and takes out values that are not finite. */
#include <math.h>
#include <string.h>

#include "attention/core/flash/key_block.h"
#include "attention/core/flash/online_softmax.h"

/* n rows of keys or values as floats, `ld` apart: those, or a copy. Raw ones are rounded when `rounds`. Where `more`
 * the rows a block later are fetched. */
static const float *rows_of(const mha__flash_work *w, const mha__flash_keys *keys, bool values, size_t j, size_t n,
                            bool rounds, bool more, size_t *ld)
{
    const size_t width = values ? w->flash->d_v : w->flash->d_k, stride = values ? keys->v_stride : keys->k_stride;
    *ld = width;
    if (keys->dtype != MHA_F32) {
        w->kernels->widen(n, width, mha__key_row(keys, values, j), stride, keys->dtype, w->widened, width,
                          more ? mha__key_row(keys, values, j + w->block) : NULL);
        return w->widened;
    }
    const float *rows = mha__key_row(keys, values, j);
    rounds &= w->flash->raw;
    for (size_t i = 0; rounds && i < n; i++)
        w->kernels->round_to_bf16(width, rows + i * stride, w->widened + i * width);
    *ld = rounds ? width : stride;
    return rounds ? w->widened : rows;
}

/* Value j of a column, alone or in its pair. */
static void make_zero(const mha__flash_work *w, float *at, size_t j)
{
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    bits &= !w->pairs ? 0 : j % 2 ? 0xffff0000 : 0xffff;
    memcpy(at, &bits, sizeof bits);
}

/* A NaN or infinity among the values must not be multiplied by the weight 0 of a query that does not see it. It becomes
 * zero in the packed block; mha__key_block_add_poison adds it for the queries that see it. The finite numbers beside it
 * stay: their sums have the bits that rows give which are read where they lie. */
static void remove_poison(const mha__flash_work *w, const mha__key_block *b, mha__span some, bool *poisoned)
{
    const size_t d_v = w->flash->d_v;
    size_t ld;
    for (size_t j = some.begin; j < some.end; j++) {
        const float *v = rows_of(w, b->keys, true, b->from + j, 1, true, false, &ld);
        float zero = 0.0f;
        for (size_t e = 0; e < d_v; e++)
            zero += v[e] * 0.0f;
        poisoned[j] = zero != 0.0f;
        const size_t row = w->pairs ? j / 2 : j;
        for (size_t e = 0; poisoned[j] && e < d_v; e++)
            if (!isfinite(v[e]))
                make_zero(w, w->V + e / MHA_PANEL * b->V.panel + row * MHA_PANEL + e % MHA_PANEL, j);
    }
}

void mha__key_block_add_poison(const mha__flash_work *w, const mha__key_block *b, mha__span some, const float *weight,
                               const float *bias, float *sum)
{
    size_t ld;
    for (size_t j = some.begin; j < some.end; j++) {
        if (!b->poisoned[j] || (bias && bias[j] == -INFINITY))
            continue;
        const float *v = rows_of(w, b->keys, true, b->from + j, 1, true, false, &ld);
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
           keys->k_stride % (keys->dtype == MHA_I8 ? 4 : 2) == 0 && (uintptr_t)keys->K % sizeof(uint32_t) == 0;
}

/* Packs the keys and values of a block that are seen and cannot be read where they lie, as many rows at a time as a
 * panel has columns, which stay in a first-level cache when a copy is made of them. False: a value that was packed is
 * NaN or infinite. */
static bool pack_copies(const mha__flash_work *w, mha__key_block *b, mha__span all)
{
    const mha__kernels *k = w->kernels;
    const mha__flash_keys *keys = b->keys;
    const size_t d_k = w->flash->d_k, d_v = w->flash->d_v, words = mha__words(w, d_k);
    const bool in_place = !w->pairs && keys->dtype != MHA_F32, more = keys->n - b->end >= w->block;
    bool finite = true;
    size_t ld;
    b->K.data = in_place && keys_in_place(w, keys) ? NULL : b->K.data;
    b->V.data = in_place && values_in_place(w, b->from, b->end) ? NULL : b->V.data;
    const size_t keys_end = b->K.data ? all.end : 0, values_end = b->V.data ? all.end : 0; /* 0: none are packed */
    for (size_t j = all.begin / MHA_PANEL * MHA_PANEL, n; j < keys_end; j += n) {
        n = mha__smaller(all.end - j, MHA_PANEL);
        const float *K = rows_of(w, keys, false, b->from + j, n, !w->pairs, more, &ld);
        if (w->pairs) {
            w->pairs->join(n, d_k, K, ld, w->widened, words);
            K = w->widened, ld = words;
        }
        k->pack_transposed(words, n, K, ld, w->K + j * words, b->K.panel, 0);
    }
    for (size_t j = all.begin, n; j < values_end; j += n) {
        n = mha__smaller(all.end - j, MHA_PANEL - j % 2); /* then an even number of keys lies before the next ones */
        const float *V = rows_of(w, keys, true, b->from + j, n, !w->pairs, more, &ld);
        float *to = w->V + mha__words(w, j + 1) * MHA_PANEL - MHA_PANEL;
        finite &=
            w->pairs ? w->pairs->pack(n, d_v, V, ld, to, b->V.panel, j % 2) : k->pack(n, d_v, V, ld, to, b->V.panel);
    }
    return finite;
}

/* The same for a block of floats. */
static bool pack_floats(const mha__flash_work *w, mha__key_block *b, mha__span all)
{
    const mha__kernels *k = w->kernels;
    const mha__flash_keys *keys = b->keys;
    const float *V = mha__key_row(keys, true, b->from);
    const size_t d_k = w->flash->d_k, left = all.begin / MHA_PANEL * MHA_PANEL;
    if (w->n_tiles == 1 && w->count <= k->few_rows && w->chunks == 1)
        b->K.data = NULL;
    else
        k->pack_transposed(d_k, all.end - left, mha__key_row(keys, false, b->from + left), keys->k_stride,
                           w->K + left * d_k, d_k * MHA_PANEL, keys->n - b->end);
    if (!b->extra && values_in_place(w, b->from, b->end)) {
        b->V = (mha__panels){V, keys->v_stride, MHA_PANEL};
        return true;
    }
    return k->pack(all.end - all.begin, w->flash->d_v, V + all.begin * keys->v_stride, keys->v_stride,
                   w->V + all.begin * MHA_PANEL, w->block * MHA_PANEL);
}

/* If 8 columns or less remain behind the last whole 16 of the packed values, interleaves them for
 * product_interleaved. */
static void interleave_values(const mha__flash_work *w, mha__key_block *b, mha__span all)
{
    const size_t left = w->flash->d_v % 16, column = w->flash->d_v - left, begin = all.begin / 2 * 2;
    if (!w->kernels->interleave_rows || w->flash->rounds || left == 0 || left > 8 || !b->V.data)
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
    const bool copies = w->pairs || w->flash->raw || b->keys->dtype != MHA_F32;
    if (!(copies ? pack_copies : pack_floats)(w, b, all)) {
        remove_poison(w, b, all, poisoned);
        b->poisoned = poisoned;
    }
    interleave_values(w, b, all);
}
