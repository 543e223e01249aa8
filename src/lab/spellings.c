/* Pairs of names that mean one tensor, and the translation of a name either way. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"

static const char *const pairs[][2] = {
#include "spellings.inc"
};
static const char *const blocks[2] = {"blk.", "model.layers."};

/* Whether a name has this part; `from` its name there, `to` the other one. */
static bool respelled(const char *name, const char *from, const char *to, char room[MHA_SPELLING])
{
    const char *at = strstr(name, from);
    const int before = at ? (int)(at - name) : 0;
    return at && snprintf(room, MHA_SPELLING, "%.*s%s%s", before, name, to, at + strlen(from)) < MHA_SPELLING;
}

/* Whether a name is that of a tensor with a weight or a bias, in GGUF (way 0) or a checkpoint (way 1). */
static bool translated(const char *name, const char *const pair[2], int way, char room[MHA_SPELLING])
{
    const size_t start = strlen(blocks[way]), length = strlen(pair[way]);
    const bool inside = strncmp(name, blocks[way], start) == 0;
    const size_t digits = inside ? strspn(name + start, "0123456789") : 0;
    const char *rest = inside ? name + start + digits : name;
    return (*pair[way] == '.') == inside && strncmp(rest, pair[way], length) == 0 &&
           (strcmp(rest + length, ".weight") == 0 || strcmp(rest + length, ".bias") == 0 || !rest[length]) &&
           snprintf(room, MHA_SPELLING, "%s%.*s%s%s", inside ? blocks[!way] : "", (int)digits,
                    inside ? name + start : "", pair[!way], rest + length) < MHA_SPELLING;
}

const char *mha__other_spelling(const char *name, size_t *next, char room[MHA_SPELLING])
{
    for (size_t i = *next; i < 2 * (sizeof pairs / sizeof *pairs); i++) {
        const char *const *pair = pairs[i / 2];
        const int way = i % 2;
        if (*pair[0] == '*' ? respelled(name, pair[way] + 1, pair[!way] + 1, room)
                            : translated(name, pair, way, room)) {
            *next = i + 1;
            return room;
        }
    }
    return NULL;
}
