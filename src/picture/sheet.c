/* Tensors drawn as they are: cut to the cells that a picture has room for. */
#include "picture/sheet.h"

#include <string.h>

/* ---------------------------------------------------------------- cells */

/* How far apart two elements are: 0 when equal or both NaN, infinite when only one is finite or they are unlike. */
static double gap(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY;
}

/* Which of two elements a cell shows: the one for which this is larger. */
static double weight_of(double a, const double *b)
{
    return b ? gap(a, *b) : isnan(a) ? INFINITY : fabs(a);
}

size_t mha__sheet_pick(const mha__sheet *s, size_t map, size_t row, size_t column, size_t pool)
{
    const size_t first = map * s->rows * s->columns, from = row * pool, left = column * pool;
    size_t best = first + from * s->columns + left;
    double most = -1;
    for (size_t r = from; r < from + pool && r < s->rows; r++)
        for (size_t c = left; c < left + pool && c < s->columns; c++) {
            const size_t at = first + r * s->columns + c;
            const double weight = weight_of(s->a[at], s->b ? &s->b[at] : NULL);
            if (weight > most)
                most = weight, best = at;
        }
    return best;
}

/* Chooses how many elements a cell stands for, and which maps are kept: the first ones, or those up to the worst. */
static void lay_out(mha__sheet *s, size_t cells)
{
    const size_t fewest = 256; /* cells of a map, before maps are left out */
    s->maps = s->all_maps <= cells / fewest ? s->all_maps : cells / fewest;
    s->maps = s->maps ? s->maps : 1;
    s->pool_rows = mha__cells_of(s->map_rows, MHA__SHEET_SIDE);
    s->pool_columns = mha__cells_of(s->map_columns, MHA__SHEET_SIDE);
    for (;;) {
        s->rows = mha__cells_of(s->map_rows, s->pool_rows);
        s->columns = mha__cells_of(s->map_columns, s->pool_columns);
        if (s->maps * s->rows * s->columns <= cells || s->rows * s->columns == 1)
            break;
        *(s->rows >= s->columns ? &s->pool_rows : &s->pool_columns) *= 2;
    }
    s->first_map = s->worst_at[0] < s->maps ? 0 : s->worst_at[0] + 1 - s->maps;
}

/* Reads the elements of the maps that are kept; each goes to its cell if it has more weight than what is there. */
static void fill(mha__sheet *s, const mha_view *a, const mha_view *b, double *most)
{
    for (size_t n = 0; n < s->maps * s->map_rows * s->map_columns; n++) {
        size_t index[MHA_MAX_RANK], left = n + s->first_map * s->map_rows * s->map_columns;
        for (int axis = a->rank; axis-- > 0; left /= a->shape[axis])
            index[axis] = left % a->shape[axis];
        const size_t column = n % s->map_columns, row = n / s->map_columns % s->map_rows,
                     map = n / s->map_columns / s->map_rows;
        const size_t at = (map * s->rows + row / s->pool_rows) * s->columns + column / s->pool_columns;
        const double x = mha_view_get(a, index), y = b ? mha_view_get(b, index) : 0;
        const double weight = weight_of(x, b ? &y : NULL);
        if (weight <= most[at])
            continue;
        most[at] = weight;
        s->a[at] = x;
        if (b)
            s->b[at] = y;
    }
}

/* ---------------------------------------------------------------- facts */

static void describe_alone(mha__sheet *s, const mha_view *a)
{
    size_t index[MHA_MAX_RANK] = {0}, finite = 0;
    double squares = 0;
    s->least = INFINITY;
    s->largest = -INFINITY;
    for (bool more = mha_view_elements(a) > 0; more; more = mha__index_next(index, a->shape, a->rank)) {
        const double x = mha_view_get(a, index);
        if (!isfinite(x)) {
            s->broken++;
            continue;
        }
        finite++;
        squares += x * x;
        s->least = fmin(s->least, x);
        s->largest = fmax(s->largest, x);
    }
    if (finite == 0)
        s->least = s->largest = NAN;
    s->rms = finite ? sqrt(squares / (double)finite) : NAN;
}

static void describe_difference(mha__sheet *s, const mha_view *a, const mha_view *b, const mha_difference *difference)
{
    s->difference = *difference;
    const size_t *at = difference->worst_index;
    if (mha_view_elements(a) == 0)
        return;
    s->worst[0] = mha_view_get(a, at);
    s->worst[1] = mha_view_get(b, at);
    for (int axis = 0; axis < a->rank; axis++)
        if (axis < a->rank - 2)
            s->worst_at[0] = s->worst_at[0] * a->shape[axis] + at[axis];
        else
            s->worst_at[axis - a->rank + 3] = at[axis];
}

/* ---------------------------------------------------------------- sheets */

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory to draw another tensor");
}

mha_status mha__picture_note(mha__picture *picture, const char *text, mha_error *error)
{
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    const char *copy = mha__picture_text(picture, text), **notes = mha__arena_more(
        &picture->memory, picture->notes, picture->note_count, &picture->note_room, sizeof *notes);
    if (!notes || !copy)
        return no_memory(error);
    picture->notes = notes;
    notes[picture->note_count++] = copy;
    return MHA_OK;
}

/* One more empty sheet; the sheets before it may move. */
static mha__sheet *grow(mha__picture *picture, const char *name)
{
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    const char *copy = mha__picture_text(picture, name);
    mha__sheet *sheets = mha__arena_more(&picture->memory, picture->sheets, picture->sheet_count, &picture->sheet_room,
                                         sizeof *sheets);
    if (!copy || !sheets)
        return NULL;
    picture->sheets = sheets;
    mha__sheet *sheet = &sheets[picture->sheet_count++];
    *sheet = (mha__sheet){.name = copy, .mark = "", .obstacle = "", .worst_head = -1};
    return sheet;
}

mha_status mha__sheet_refuse(mha__picture *picture, const char *name, const char *obstacle, mha_error *error)
{
    mha__sheet *sheet = grow(picture, name);
    if (!sheet || !(sheet->obstacle = mha__picture_text(picture, obstacle)))
        return no_memory(error);
    return MHA_OK;
}

mha_status mha__sheet_add(mha__picture *picture, const char *name, const mha_view *a, const mha_view *b,
                          const mha_difference *difference, size_t cells, mha__sheet **sheet, mha_error *error)
{
    if (mha_view_elements(a) == 0) {
        TRY(mha__sheet_refuse(picture, name, "it has no elements", error));
        *sheet = &picture->sheets[picture->sheet_count - 1];
        return MHA_OK;
    }
    mha__sheet *s = *sheet = grow(picture, name);
    if (!s)
        return no_memory(error);
    s->rank = a->rank;
    memcpy(s->shape, a->shape, (size_t)a->rank * sizeof *s->shape);
    s->map_columns = a->rank > 0 ? a->shape[a->rank - 1] : 1;
    s->map_rows = a->rank > 1 ? a->shape[a->rank - 2] : 1;
    s->all_maps = mha_view_elements(a) / s->map_columns / s->map_rows;
    if (b && difference)
        describe_difference(s, a, b, difference);
    else
        describe_alone(s, a);
    lay_out(s, cells ? cells : 1);
    const size_t count = s->maps * s->rows * s->columns;
    s->a = mha__arena_take(&picture->memory, count * sizeof *s->a);
    s->b = b ? mha__arena_take(&picture->memory, count * sizeof *s->b) : NULL;
    double *most = mha__allocate(&picture->memory.allocator, count * sizeof *most);
    const bool taken = s->a && (s->b || !b) && most;
    if (taken) {
        for (size_t i = 0; i < count; i++)
            most[i] = -1;
        fill(s, a, b, most);
    }
    mha__release(&picture->memory.allocator, most, count * sizeof *most);
    return taken ? MHA_OK : no_memory(error);
}
