/* Places of an output as text. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "verify/places.h"

static const char *const names[PLACES_AXES] = {"batch row", "head", "row"};

bool mha__places_begin(mha__places *places, size_t batch, size_t heads, size_t rows, mha__arena *pool)
{
    const size_t n[] = {batch, heads, rows};
    bool whole = true;
    for (int axis = 0; axis < PLACES_AXES; axis++) {
        places->n[axis] = n[axis];
        places->among[axis] = mha__arena_take(pool, n[axis] + 1);
        whole &= places->among[axis] != NULL;
    }
    return whole;
}

size_t mha__places_count(const mha__places *p, int axis)
{
    size_t count = 0;
    for (size_t i = 0; i < p->n[axis]; i++)
        count += p->among[axis][i];
    return count;
}

/* Adds a piece if " ..." still has room after it, else " ..."; false: the text is full. */
static bool add(char *text, size_t size, const char *piece)
{
    const size_t used = strlen(text);
    const bool fits = used + strlen(piece) + sizeof " ..." <= size;
    mha__text_print(text + used, size - used, "%s", fits ? piece : " ...");
    return fits;
}

/* Adds the ranges of an axis that are meant; false: not all. */
static bool add_ranges(const mha__places *p, int axis, char *text, size_t size)
{
    const char *before = "";
    for (size_t i = 0; i < p->n[axis]; i++) {
        char piece[64];
        size_t last = i;
        if (!p->among[axis][i])
            continue;
        while (last + 1 < p->n[axis] && p->among[axis][last + 1])
            last++;
        if (last > i)
            mha__text_print(piece, sizeof piece, "%s %zu-%zu", before, i, last);
        else
            mha__text_print(piece, sizeof piece, "%s %zu", before, i);
        if (!add(text, size, piece))
            return false;
        before = " and";
        i = last;
    }
    return true;
}

void mha__places_say(const mha__places *p, char *text, size_t size)
{
    *text = '\0';
    for (int axis = 0; axis < PLACES_AXES; axis++) {
        char piece[64];
        const size_t count = mha__places_count(p, axis);
        if (count == p->n[axis])
            continue;
        mha__text_print(piece, sizeof piece, "%s%s%s", *text ? ", " : "in ", names[axis], count == 1 ? "" : "s");
        if (!add(text, size, piece) || !add_ranges(p, axis, text, size))
            return;
    }
}

/* Reads "2" or "2-5" of n, and marks them; NULL: it is none of them. */
static const char *read_range(const char *text, size_t n, unsigned char *among)
{
    char *end;
    const size_t first = strtoul(text, &end, 10);
    size_t last = first;
    if (*text < '0' || *text > '9')
        return NULL;
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return NULL;
        last = strtoul(end + 1, &end, 10);
    }
    if (last < first || last >= n)
        return NULL;
    memset(among + first, 1, last - first + 1);
    return end;
}

/* Reads the indices of the axis that is named; NULL: none is. */
static const char *read_axis(mha__places *p, const char *text)
{
    for (int axis = 0; axis < PLACES_AXES; axis++) {
        const size_t length = strlen(names[axis]);
        if (strncmp(text, names[axis], length) != 0)
            continue;
        const char *at = text + length + (text[length] == 's');
        memset(p->among[axis], 0, p->n[axis]);
        do
            at = *at ? read_range(at + strspn(at, " "), p->n[axis], p->among[axis]) : NULL;
        while (at && strncmp(at, " and ", 5) == 0 && (at += 4));
        return at;
    }
    return NULL;
}

bool mha__places_read(mha__places *p, const char *text)
{
    const char *at = text + 3;
    if (strncmp(text, "in ", 3) != 0)
        return false;
    for (int axis = 0; axis < PLACES_AXES; axis++)
        memset(p->among[axis], 1, p->n[axis]);
    do
        at = read_axis(p, at);
    while (at && strncmp(at, ", ", 2) == 0 && (at += 2));
    return at && !*at;
}
