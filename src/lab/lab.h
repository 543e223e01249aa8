/* Helpers shared by the rooms of libmha-lab and the programs: growing arrays, available memory, words in lists, errors
 * about files. */
#ifndef MHA_LAB_LAB_H
#define MHA_LAB_LAB_H

#include "base/base.h"

/* An array of `count` items of `item_bytes` each, with room for one more: `items` itself while *room is larger than
 * count, else a copy with twice the room, which takes the place of `items` (NULL and 0: no array yet). What lies
 * after the items is zero. NULL when there is no memory; `items` is then unchanged. */
void *mha__array_grow(const mha_allocator *allocator, void *items, size_t count, size_t *room, size_t item_bytes);

/* Bytes that can be written now without swapping, by the kernel's estimate and the control group's limit; SIZE_MAX
 * where the system tells neither. Ask before filling a large block: the default allocator maps such a block without
 * reserving memory for it, and a system that runs out of memory ends the process. */
size_t mha__memory_at_hand(void);

/* The least number of bytes to insert, remove or exchange that turns one text into the other (Levenshtein's
 * distance); only the first 128 bytes of each are looked at. */
size_t mha__text_distance(const char *a, const char *b);

/* Whether a word is one of those in `list`, which have blanks or commas between them. */
bool mha__text_among(const char *list, const char *word);

/* The bytes of a text before `end`, which is its end; SIZE_MAX when it ends in another way. */
size_t mha__text_stem(const char *text, const char *end);
bool mha__text_ends(const char *text, const char *end);

/* The width of a text in characters: each UTF-8 character counts once, whatever its number of bytes. */
size_t mha__text_width(const char *text);

/* Whether an error of the system says that a path names no file to read: MHA_NOT_FOUND. All others are MHA_IO. */
bool mha__names_no_file(int why);

/* mha__fail with the byte offset of a fault in a file. */
__attribute__((format(printf, 5, 6))) mha_status mha__fail_at(mha_error *error, mha_status status, const char *name,
                                                              uint64_t offset, const char *format, ...);

/* The same about something inside a file, under the name "FILE: TENSOR"; an empty `tensor` means the file. */
__attribute__((format(printf, 6, 7))) mha_status mha__fail_inside(mha_error *error, mha_status status, const char *file,
                                                                  const char *tensor, uint64_t offset,
                                                                  const char *format, ...);
/* The name "FILE: TENSOR" in `text`, which is returned. Where both do not fit FILE loses its beginning. */
char *mha__name_inside(char *text, size_t size, const char *file, const char *tensor);

bool mha__dtype_find(const char *name, mha_dtype *dtype); /* false: no type of that name */

enum { MHA_SPELLING = 320 };

/* The next other name of a tensor, written to `room`; NULL: there are no more. *next: 0 for the first one. */
const char *mha__other_spelling(const char *name, size_t *next, char room[MHA_SPELLING]);

#endif
