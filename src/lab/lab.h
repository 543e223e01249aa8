/* Helpers shared by the rooms of libmha-lab and the programs: growing arrays, available memory, words in lists. */
#ifndef MHA_LAB_LAB_H
#define MHA_LAB_LAB_H

#include "base/base.h"

/* An array of `count` items of `item_bytes` each, with room for one more: `items` itself while *room is larger than
 * count, else a copy with twice the room, which takes the place of `items` (NULL and 0: no array yet). What lies
 * behind the items is zero. NULL when there is no memory; `items` is then unchanged. */
void *mha__array_grow(const mha_allocator *allocator, void *items, size_t count, size_t *room, size_t item_bytes);

/* Bytes that can be written now without swapping, by the kernel's estimate and the control group's limit; SIZE_MAX
 * where the system tells neither. Ask before filling a large block: the default allocator maps such a block without
 * reserving memory for it, and a system that runs out of memory ends the process. */
size_t mha__memory_at_hand(void);

/* Whether a word is one of those in `list`, which have blanks or commas between them. */
bool mha__text_among(const char *list, const char *word);

/* The width of a text in characters: each UTF-8 character counts once, whatever its number of bytes. */
size_t mha__text_width(const char *text);

#endif
