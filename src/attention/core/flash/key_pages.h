/* Keys and values in pages, copied block by block. */
#ifndef MHA_ATTENTION_CORE_FLASH_KEY_PAGES_H
#define MHA_ATTENTION_CORE_FLASH_KEY_PAGES_H

#include "attention/core/flash/flash.h"

/* Bytes of 64-byte aligned room for the rows of a block. */
size_t mha__key_pages_room(size_t d_k, size_t d_v);
/* Keys [begin, end) of flash->keys, at most MHA_BLOCK that lie in pages, copied to flash->room: as keys of which these
 * numbers alone are there, and none behind them. */
mha__flash_keys mha__key_pages_block(const mha__flash *flash, size_t begin, size_t end);

#endif
