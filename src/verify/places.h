/* Places of an output: some batch rows, heads and query rows of it. */
#ifndef MHA_VERIFY_PLACES_H
#define MHA_VERIFY_PLACES_H

#include "base/arena.h"

enum { PLACES_BATCH, PLACES_HEADS, PLACES_ROWS, PLACES_AXES };

typedef struct mha__places {
    size_t n[PLACES_AXES];             /* how many there are */
    unsigned char *among[PLACES_AXES]; /* (n): 1 for those that are meant */
} mha__places;

/* None of them; false without memory. */
bool mha__places_begin(mha__places *places, size_t batch, size_t heads, size_t rows, mha__arena *pool);
static inline bool mha__places_have(const mha__places *p, size_t b, size_t h, size_t t)
{
    return p->among[PLACES_BATCH][b] && p->among[PLACES_HEADS][h] && p->among[PLACES_ROWS][t];
}
/* Number of the indices of an axis. */
size_t mha__places_count(const mha__places *p, int axis);
/* Writes them as "in batch row 1, heads 0 and 2-3, rows 8-15", without an axis all of which is meant. " ..." replaces
 * the places without room; such a text is not read. */
void mha__places_say(const mha__places *p, char *text, size_t size);
/* Reads what mha__places_say writes; false when it is anything else, or names nothing. */
bool mha__places_read(mha__places *p, const char *text);

#endif
