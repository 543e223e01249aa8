/* The query rows of one call of the flash core: cut into tiles, and which keys each row, tile and all of them see. */
#ifndef MHA_ATTENTION_CORE_FLASH_QUERY_ROWS_H
#define MHA_ATTENTION_CORE_FLASH_QUERY_ROWS_H

#include "attention/core/flash/key_block.h"

/* Makes tiles of about equal size, because a last tile of two rows would take as long as one of five. Two that the
 * kernel can do in one call are one: it then reads columns for the second from a first-level cache. */
void mha__rows_tiles(mha__flash_work *w);

/* Finds out what the rows see of all keys that are to be computed. */
void mha__rows_look(mha__flash_work *w, mha__span keys);
/* Leaves to the rows what lies in `block`, without what masks hide at either end. */
void mha__rows_trim(mha__flash_work *w, mha__span block);

/* What row i sees. */
mha__row_keys mha__rows_seen(const mha__flash_work *w, size_t i);
mha__span mha__rows_span(const mha__flash_work *w, size_t i);

#endif
