/* Lays out a drawing: tiles of heads, layer below layer, and a colour bar. */
#include "lab/lab.h"
#include "picture/draw/figure.h"

#include <stdio.h>

enum {
    WIDE = 1600, /* about the width of a drawing */
    MOST_PIXELS = 1 << 16,
    LARGEST_CELL = 28,
    LABELLED_CELL = 10, /* the smallest cell that has a label of its own */
    LABEL = 12,         /* most characters of a label */
    CHARACTER = 7,      /* width of one */
    TEXT_LINE = 18,
    BAR_NUMBERS = 60,
    GAP = 14
};

/* Width and height that a map may take, by the number of heads. */
static size_t side_for(size_t heads)
{
    static const size_t steps[][2] = {{1, 560}, {4, 320}, {12, 224}, {48, 144}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (heads <= steps[i][0])
            return steps[i][1];
    return 96;
}

/* The characters of the longest label: a token's name or a number. */
static size_t longest_label(const mha__picture *picture, size_t most)
{
    char number[32];
    size_t longest = (size_t)snprintf(number, sizeof number, "%zu", most);
    for (size_t i = 0; i < picture->token_count; i++) {
        const size_t width = mha__text_width(picture->tokens[i]);
        longest = width > longest ? width : longest;
    }
    return longest < LABEL ? longest : LABEL;
}

/* The tiles that a layer takes: whole rows, or the one of its only head. */
static size_t tiles_of(const mha__figure *figure, size_t layer)
{
    const size_t heads = figure->picture->layers[layer].head_count;
    return figure->one_each ? heads : mha__cells_of(heads, figure->across) * figure->across;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

mha_status mha__figure_of(const mha__picture *picture, bool text, mha__figure *figure, mha_error *error)
{
    size_t heads = 0, widest = 1, rows = 1, columns = 1, last = 0;
    for (size_t l = 0; l < picture->layer_count; l++) {
        const mha__picture_layer *layer = &picture->layers[l];
        heads += layer->head_count;
        widest = layer->head_count > widest ? layer->head_count : widest;
        for (size_t i = 0; i < layer->head_count; i++) {
            const mha__head *head = &layer->heads[i];
            rows = head->rows > rows ? head->rows : rows;
            columns = head->columns > columns ? head->columns : columns;
            last = head->first_key + head->keys > last ? head->first_key + head->keys : last;
            last = head->first_query + head->queries > last ? head->first_query + head->queries : last;
        }
    }
    if (heads == 0)
        return mha__fail(error, MHA_INVALID, "picture", "expected heads to draw, found none");
    const size_t longer = rows > columns ? rows : columns, cell = side_for(heads) / longer;
    *figure = (mha__figure){.picture = picture,
                            .shading = mha__shading_of(picture),
                            .one_each = widest == 1,
                            .pool = text && cell == 0 ? mha__cells_of(longer, side_for(heads)) : 1,
                            .cell = cell < 1 ? 1 : least(cell, LARGEST_CELL),
                            .margin = GAP,
                            .bar_width = 16,
                            .bar_height = MHA__LEVELS};
    if (text) {
        figure->label = figure->cell >= LABELLED_CELL ? longest_label(picture, last) : 0;
        figure->head_line = (size_t)2 * TEXT_LINE;
        figure->map_left = CHARACTER * (figure->label ? figure->label : longest_label(picture, last)) + GAP;
        figure->map_top = TEXT_LINE;
    }
    /* Labels of keys are turned by a right angle where they are names. */
    const size_t below = !text ? 0 : picture->token_count && figure->label ? CHARACTER * figure->label + 4 : TEXT_LINE;
    figure->tile_width = figure->map_left + mha__cells_of(columns, figure->pool) * figure->cell + GAP;
    figure->tile_height = figure->map_top + mha__cells_of(rows, figure->pool) * figure->cell + below + GAP;
    const size_t abreast = figure->one_each ? heads : widest;
    const size_t fitting = WIDE > figure->tile_width ? WIDE / figure->tile_width : 1;
    figure->across = mha__cells_of(abreast, mha__cells_of(abreast, fitting)); /* rows of about the same length */
    size_t tiles = 0;
    for (size_t l = 0; l < picture->layer_count; l++)
        tiles += tiles_of(figure, l);
    figure->down = mha__cells_of(tiles, figure->across);
    figure->bar_left = figure->margin + figure->across * figure->tile_width + GAP;
    figure->bar_top = figure->margin + figure->head_line + figure->map_top;
    const size_t bar_bottom = figure->bar_top + figure->bar_height + (text ? 4 * TEXT_LINE : 0);
    const size_t bottom = figure->margin + figure->head_line + figure->down * figure->tile_height;
    figure->width = figure->bar_left + figure->bar_width + (text ? BAR_NUMBERS + 40 : 0) + figure->margin;
    figure->height = (bottom > bar_bottom ? bottom : bar_bottom) + figure->margin;
    if (figure->width > MOST_PIXELS || figure->height > MOST_PIXELS)
        return mha__fail(error, MHA_INVALID, "picture",
                         "expected at most %d pixels either way, found %zu x %zu: fewer "
                         "heads or layers fit",
                         MOST_PIXELS, figure->width, figure->height);
    return MHA_OK;
}

size_t mha__figure_rows(const mha__figure *figure, const mha__head *head)
{
    return mha__cells_of(head->rows, figure->pool);
}

size_t mha__figure_columns(const mha__figure *figure, const mha__head *head)
{
    return mha__cells_of(head->columns, figure->pool);
}

int mha__figure_level(const mha__figure *figure, const mha__head *head, size_t row, size_t column)
{
    return mha__level(&figure->shading, mha__pooled(head, row, column, figure->pool, figure->pool));
}

void mha__figure_place(const mha__figure *figure, size_t layer, size_t index, size_t *x, size_t *y)
{
    size_t tile = index;
    for (size_t l = 0; l < layer; l++)
        tile += tiles_of(figure, l);
    *x = figure->margin + tile % figure->across * figure->tile_width + figure->map_left;
    *y = figure->margin + figure->head_line + tile / figure->across * figure->tile_height + figure->map_top;
}
