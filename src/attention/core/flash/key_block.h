/* A block of consecutive keys and values as the flash core works on it, packed or read where it lies; and the state of
 * one call of that core. */
#ifndef MHA_ATTENTION_CORE_FLASH_KEY_BLOCK_H
#define MHA_ATTENTION_CORE_FLASH_KEY_BLOCK_H

#include <stdint.h>

#include "attention/core/flash/flash.h"
#include "compute/sizes.h"

/* Keys [begin, end). */
typedef struct mha__span {
    size_t begin, end;
} mha__span;

/* Rows that are computed together, and the keys that any of them sees, and that all of them see. */
typedef struct mha__flash_tile {
    size_t first, m;
    mha__span any, all;
} mha__flash_tile;

enum { MHA_LEAST_TILE_ROWS = 4, MHA_MOST_TILES = MHA_FLASH_ROWS / MHA_LEAST_TILE_ROWS };

/* One call of mha__flash_rows or mha__flash_segment. */
typedef struct mha__flash_work {
    const mha__kernels *kernels;
    const mha__pairs *pairs; /* Q, the scores of values and all packed blocks are pairs of BF16 numbers; NULL: floats */
    const mha__flash *flash;
    const mha__flash_row *rows;
    size_t count, block;
    float *Q, *K, *V, *scores, *bias;
    size_t chunks;
    float scale, after; /* their product is the scale: multiplied into Q, and into the scores */
    float *widened;     /* as many rows of keys or values as a panel has columns */
    bool trimmed;       /* if set, `now` holds the key range of each row; else the row does */
    bool trims;         /* rows have hidden keys between others: `now` is of one block, `whole` of all keys */
    bool biased;        /* whether a row has a bias */
    mha__row_keys now[MHA_FLASH_ROWS], whole[MHA_FLASH_ROWS];
    size_t n_tiles;
    mha__flash_tile tiles[MHA_MOST_TILES];
    mha__span any, all; /* of all tiles */
    mha__span reach;    /* `any` of all keys */
} mha__flash_work;

/* The part that both have; empty is anything with begin >= end. */
static inline mha__span mha__span_shared(mha__span a, mha__span b)
{
    return (mha__span){mha__larger(a.begin, b.begin), mha__smaller(a.end, b.end)};
}

/* The part of `keys` inside [from, to), counted from `from`. Every query sees all extra rows. */
static inline mha__span mha__span_within(mha__span keys, bool extra, size_t from, size_t to)
{
    if (extra)
        return (mha__span){0, to - from};
    const mha__span some = mha__span_shared(keys, (mha__span){from, to});
    return some.begin < some.end ? (mha__span){some.begin - from, some.end - from} : (mha__span){0, 0};
}

/* How many floats n terms, or their pairs, take in a packed block. */
static inline size_t mha__words(const mha__flash_work *w, size_t n)
{
    return w->pairs ? (n + 1) / 2 : n;
}

/* Row j of the keys, or of the values. */
static inline const void *mha__key_row(const mha__flash_keys *keys, bool values, size_t j)
{
    const size_t bytes = keys->dtype == MHA_F32 ? sizeof(float) : keys->dtype == MHA_I8 ? 1 : sizeof(uint16_t);
    return (const unsigned char *)(values ? keys->V : keys->K) + j * (values ? keys->v_stride : keys->k_stride) * bytes;
}

/* One block: the keys [from, end), packed or read where they lie. */
typedef struct mha__key_block {
    const mha__flash_keys *keys;
    bool extra;
    size_t from, end;
    mha__panels K, V; /* key 0 of the block is row 0 of V and column 0 of K; without data: read where it lies */
    const float *interleaved; /* the last 8 columns of V, interleaved by interleave_rows; NULL: they are not */
    const bool *poisoned; /* of each key whether its value row has a NaN or infinity; NULL: none has */
    const mha__panels *soon; /* prefetched while scores are computed, or NULL */
    const mha__panels *next; /* prefetched while values are summed, or NULL */
} mha__key_block;

/* Packs those keys and values of the block that any query sees, `all` of it, unless they can be read where they lie.
 * A NaN or infinity in a value row becomes zero; `poisoned` (MHA_BLOCK flags) then says in which, and b->poisoned is
 * set to it. */
void mha__key_block_pack(const mha__flash_work *w, mha__key_block *b, mha__span all, bool *poisoned);
/* Adds what became zero in value rows that a query sees, `some` of the block, to its weighted values. */
void mha__key_block_add_poison(const mha__flash_work *w, const mha__key_block *b, mha__span some, const float *weight,
                               const float *bias, float *sum);

/* ---------------------------------------------------------------- key_pages.c: keys and values in pages */

/* Bytes of 64-byte aligned room for the rows of a block. */
size_t mha__key_pages_room(size_t d_k, size_t d_v);
/* Keys [begin, end) of flash->keys, at most MHA_BLOCK that lie in pages, copied to flash->room: as keys of which these
 * numbers alone are there, and none behind them. */
mha__flash_keys mha__key_pages_block(const mha__flash *flash, size_t begin, size_t end);

/* ---------------------------------------------------------------- query_rows.c: the rows, in tiles, and their keys */

/* Makes tiles of about equal size, because a last tile of two rows would take as long as one of five. Two that the
 * kernel can do in one call are one: it then reads columns for the second from a first-level cache. */
void mha__rows_tiles(mha__flash_work *w);

/* Finds out what the rows see of all keys that are to be computed. */
void mha__rows_look(mha__flash_work *w, mha__span keys);
/* Leaves to the rows what lies in `block`, without what masks hide at either end. */
void mha__rows_trim(mha__flash_work *w, mha__span block);

/* The keys that row i sees. */
mha__row_keys mha__rows_seen(const mha__flash_work *w, size_t i);
mha__span mha__rows_span(const mha__flash_work *w, size_t i);

#endif
