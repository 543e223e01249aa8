/* The query rows of one call of the flash core: cut into tiles, and which keys each row, tile and all of them see. */
#include <stdint.h>
#include <string.h>

#include "attention/core/flash/online_softmax.h"
#include "attention/core/flash/key_block.h"

/* The least span with both; an empty one is {0, 0}. */
static mha__span joined(mha__span a, mha__span b)
{
    if (a.begin >= a.end || b.begin >= b.end)
        return a.begin >= a.end ? b : a;
    return (mha__span){mha__smaller(a.begin, b.begin), mha__larger(a.end, b.end)};
}

static mha__row_keys given(const mha__flash_work *w, size_t i)
{
    return (mha__row_keys){w->rows[i].begin, w->rows[i].end, w->flash->bias != NULL};
}

mha__row_keys mha__rows_seen(const mha__flash_work *w, size_t i)
{
    return w->trimmed ? w->now[i] : given(w, i);
}

mha__span mha__rows_span(const mha__flash_work *w, size_t i)
{
    const mha__row_keys one = mha__rows_seen(w, i);
    return (mha__span){one.begin, one.end};
}

/* Sets what the tiles see to what their rows see. */
static void gather(mha__flash_work *w)
{
    w->any = (mha__span){0, 0}, w->all = (mha__span){0, SIZE_MAX};
    for (mha__flash_tile *t = w->tiles; t < w->tiles + w->n_tiles; t++) {
        mha__span any = {0, 0}, all = {0, SIZE_MAX};
        for (size_t i = t->first; i < t->first + t->m; i++) {
            const mha__span one = mha__rows_span(w, i);
            any = joined(any, one);
            all = mha__span_shared(all, one);
        }
        t->any = any, t->all = all;
        w->any = joined(w->any, any);
        w->all = mha__span_shared(w->all, all);
    }
}

void mha__rows_tiles(mha__flash_work *w)
{
    enum { WORTH = 8 }; /* rows; with fewer, packing the values gains more */
    const size_t rows = w->kernels->tile_rows;
    const bool pair = 2 * rows <= MHA_TILE_ROWS && w->count >= WORTH && w->count <= 2 * rows;
    const size_t most = pair ? 2 * rows : rows;
    w->n_tiles = (w->count + most - 1) / most;
    for (size_t i = 0, first = 0; i < w->n_tiles; first += w->tiles[i++].m)
        w->tiles[i] = (mha__flash_tile){.first = first, .m = (w->count - first) / (w->n_tiles - i)};
}

void mha__rows_trim(mha__flash_work *w, mha__span block)
{
    for (size_t i = 0; i < w->count; i++) {
        mha__row_keys one = w->trims ? w->whole[i] : given(w, i);
        one.begin = mha__larger(one.begin, block.begin), one.end = mha__smaller(one.end, block.end);
        one.has_bias &= one.begin < one.end;
        w->now[i] = one;
    }
    w->flash->trim(w->flash->context, w->rows, w->count, w->now);
    w->biased = false;
    for (size_t i = 0; i < w->count; i++) {
        mha__row_keys *one = &w->now[i];
        if (!one->has_bias)
            continue;
        w->biased = true; /* and hides in whole vectors what is hidden at either end */
        one->begin = mha__larger(one->begin / 16 * 16, mha__larger(w->rows[i].begin, block.begin));
        one->end = mha__smaller(mha__round_up(one->end, 16), mha__smaller(w->rows[i].end, block.end));
    }
    gather(w);
}

void mha__rows_look(mha__flash_work *w, mha__span keys)
{
    w->trims = false;
    w->trimmed = w->flash->trim != NULL;
    w->biased = w->flash->bias != NULL;
    if (w->trimmed)
        mha__rows_trim(w, keys);
    else
        gather(w);
    w->reach = w->any;
    w->trims = w->trimmed && w->biased && w->any.end - w->any.begin > w->block;
    if (w->trims)
        memcpy(w->whole, w->now, w->count * sizeof *w->now);
}
