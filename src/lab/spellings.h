/* Other names under which files have a tensor: those of GGUF, and those of other releases of transformers. */
#ifndef MHA_LAB_SPELLINGS_H
#define MHA_LAB_SPELLINGS_H

#include <stddef.h>

enum { MHA_SPELLING = 320 };

/* The next other name of a tensor, written to `room`; NULL: there are no more. *next: 0 for the first one. */
const char *mha__other_spelling(const char *name, size_t *next, char room[MHA_SPELLING]);

#endif
