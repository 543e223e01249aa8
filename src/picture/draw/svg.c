/* Draws heads as SVG: text, rectangles and, for the cells of a map, one path for each colour. */
#include <stdio.h>

#include "picture/draw/figure.h"
#include "picture/draw/drawing.h"
#include "picture/markup.h"

/* ---------------------------------------------------------------- cells */

static void draw_cells(mha__markup *m, const mha__figure *f, const mha__head *head,
                       const mha__colour palette[MHA__PALETTE])
{
    const size_t rows = mha__figure_rows(f, head), columns = mha__figure_columns(f, head);
    unsigned char *levels = mha__allocate(&m->allocator, rows * columns);
    if (!levels) {
        mha__markup_fail(m, MHA_NO_MEMORY, "no memory to draw it");
        return;
    }
    for (size_t i = 0; i < rows * columns; i++)
        levels[i] = (unsigned char)mha__figure_level(f, head, i / columns, i % columns);
    mha__cells_draw(m, levels, rows, columns, f->cell, f->cell, palette);
    mha__release(&m->allocator, levels, rows * columns);
}

/* ---------------------------------------------------------------- labels */

/* The name of a token, or its number where it has none. */
static void write_token(mha__markup *m, const mha__figure *f, int64_t position)
{
    if (position >= 0 && (uint64_t)position < f->picture->token_count)
        mha__markup_short(m, f->picture->tokens[position], f->label);
    else
        mha__markup_print(m, "%lld", (long long)position);
}

/* Labels of every row and column, or of the first and last where cells are small. */
static void draw_labels(mha__markup *m, const mha__figure *f, const mha__picture_layer *layer, const mha__head *head)
{
    const bool each = f->label > 0, turned = each && f->picture->token_count > 0;
    const size_t rows = mha__figure_rows(f, head), columns = mha__figure_columns(f, head);
    const size_t half = f->cell / 2, below = rows * f->cell + 4;
    const size_t font = !each || f->cell > 11 ? 11 : f->cell;
    mha__markup_print(m, "<g text-anchor=\"end\" font-size=\"%zu\">", font);
    for (size_t r = 0; r < rows; r += each || r + 1 == rows ? 1 : rows - 1) {
        const size_t query = head->first_query + r * f->pool * head->pool_rows;
        mha__markup_print(m, "<text x=\"-4\" y=\"%zu\">", each ? r * f->cell + half + 4 : r ? r * f->cell + 1 : 9);
        if (each)
            write_token(m, f, (int64_t)query + (f->picture->token_count ? layer->offset : 0));
        else
            mha__markup_print(m, "%zu", query);
        mha__markup_print(m, "</text>");
    }
    mha__markup_print(m, "</g>\n<g text-anchor=\"%s\" font-size=\"%zu\">",
                      turned ? "end"
                      : each ? "middle"
                             : "start",
                      font);
    for (size_t c = 0; c < columns; c += each || c + 1 == columns ? 1 : columns - 1) {
        const size_t key = head->first_key + c * f->pool * head->pool_columns, x = c * f->cell + (each ? half : 0);
        if (turned)
            mha__markup_print(m, "<text transform=\"translate(%zu %zu) rotate(-90)\">", x + 4, below);
        else
            mha__markup_print(m, "<text x=\"%zu\" y=\"%zu\"%s>", x, below + 9,
                              !each && c ? " text-anchor=\"end\"" : "");
        if (each)
            write_token(m, f, (int64_t)key);
        else
            mha__markup_print(m, "%zu", key);
        mha__markup_print(m, "</text>");
    }
    mha__markup_print(m, "</g>\n");
}

/* ---------------------------------------------------------------- tiles */

static void write_head_name(mha__markup *m, const mha__figure *f, const mha__picture_layer *layer,
                            const mha__head *head)
{
    if (f->picture->layer_count > 1) {
        mha__markup_short(m, layer->name, 12);
        mha__markup_print(m, " ");
    }
    if (layer->sequences > 1)
        mha__markup_print(m, "batch %zu ", head->sequence);
    mha__markup_print(m, "head %zu", head->head);
}

/* Writes the text of a map for a pointer that rests on it, and for screen readers. */
static void write_statistics(mha__markup *m, const mha__figure *f, const mha__head *head)
{
    const size_t rows = f->pool * head->pool_rows, columns = f->pool * head->pool_columns;
    const mha__head_statistics *s = &head->statistics;
    const struct {
        const char *name;
        double value;
    } shares[] = {{"self", s->self},  {"previous", s->previous},       {"first", s->first},
                  {"sinks", s->sink}, {"entropy in bits", s->entropy}, {"distance", s->distance}};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        mha__markup_print(m, "%s %s ", i ? "," : ":", shares[i].name);
        mha__markup_number(m, 3, shares[i].value);
    }
    if (rows * columns > 1)
        mha__markup_print(m, "; each cell is the largest of %zu x %zu weights", rows, columns);
}

static void draw_head(mha__markup *m, const mha__figure *f, size_t l, size_t i, const mha__colour *palette)
{
    const mha__picture_layer *layer = &f->picture->layers[l];
    const mha__head *head = &layer->heads[i];
    size_t x, y;
    mha__figure_place(f, l, i, &x, &y);
    mha__markup_print(m, "<g transform=\"translate(%zu %zu)\"><title>", x, y);
    write_head_name(m, f, layer, head);
    write_statistics(m, f, head);
    mha__markup_print(m, "</title>\n<text x=\"0\" y=\"-5\" font-weight=\"bold\">");
    write_head_name(m, f, layer, head);
    mha__markup_print(m, "</text>\n<g shape-rendering=\"crispEdges\">\n");
    draw_cells(m, f, head, palette);
    mha__markup_print(m,
                      "<rect x=\"-0.5\" y=\"-0.5\" width=\"%zu\" height=\"%zu\" fill=\"none\" stroke=\"#777\"/></g>\n",
                      mha__figure_columns(f, head) * f->cell + 1, mha__figure_rows(f, head) * f->cell + 1);
    draw_labels(m, f, layer, head);
    mha__markup_print(m, "</g>\n");
}

/* ---------------------------------------------------------------- the colour bar */

/* Whether the picture has a cell of this look, MHA__HIDDEN_GROUND or MHA__BROKEN. */
static bool has_look(const mha__picture *picture, const mha__shading *shading, int look)
{
    for (size_t l = 0; l < picture->layer_count; l++)
        for (size_t i = 0; i < picture->layers[l].head_count; i++) {
            const mha__head *head = &picture->layers[l].heads[i];
            for (size_t c = 0; c < head->rows * head->columns; c++)
                if (mha__level(shading, head->weights[c]) == look)
                    return true;
        }
    return false;
}

/* Below the bar: the looks of cells that have no place in it, as far as there are any. */
static void draw_looks(mha__markup *m, const mha__figure *f, const mha__picture *picture, const mha__colour *palette)
{
    const mha__colour broken = palette[MHA__BROKEN];
    int y = MHA__LEVELS + 18;
    if (has_look(picture, &f->shading, MHA__HIDDEN_GROUND)) {
        mha__markup_print(m,
                          "<rect y=\"%d\" width=\"16\" height=\"16\" fill=\"url(#hidden)\"/>"
                          "<text x=\"21\" y=\"%d\">hidden key</text>\n",
                          y, y + 12);
        y += 24;
    }
    if (has_look(picture, &f->shading, MHA__BROKEN))
        mha__markup_print(m,
                          "<rect y=\"%d\" width=\"16\" height=\"16\" fill=\"#%02x%02x%02x\"/>"
                          "<text x=\"21\" y=\"%d\">NaN or infinite</text>\n",
                          y, broken.red, broken.green, broken.blue, y + 12);
}

static void draw_bar(mha__markup *m, const mha__figure *f, const mha__picture *picture, const mha__colour *palette)
{
    enum { STEP = 3 };
    const int parts = f->shading.logarithmic ? MHA__DECADES : 4;
    mha__markup_print(m,
                      "<g transform=\"translate(%zu %zu)\"><title>the scale of colours</title>\n"
                      "<g shape-rendering=\"crispEdges\">",
                      f->bar_left, f->bar_top);
    for (int level = 0; level < MHA__LEVELS; level += STEP) {
        const mha__colour c = palette[level + STEP / 2];
        mha__markup_print(m, "<rect y=\"%d\" width=\"%zu\" height=\"%d\" fill=\"#%02x%02x%02x\"/>",
                          MHA__LEVELS - level - STEP, f->bar_width, STEP, c.red, c.green, c.blue);
    }
    mha__markup_print(m, "</g>\n");
    for (int i = 0; i <= parts; i++) {
        mha__markup_print(m, "<text x=\"%zu\" y=\"%d\">", f->bar_width + 5, MHA__LEVELS - i * MHA__LEVELS / parts + 4);
        mha__markup_number(m, 3, mha__level_weight(&f->shading, (MHA__LEVELS - 1.0) * i / parts));
        mha__markup_print(m, "</text>");
    }
    mha__markup_print(m, "<text y=\"-9\">weight%s</text>\n", f->shading.logarithmic ? ", log" : "");
    draw_looks(m, f, picture, palette);
    mha__markup_print(m, "</g>\n");
}

mha_status mha__draw_svg(const mha__picture *picture, const char *path, mha_error *error)
{
    mha__figure f;
    mha__colour palette[MHA__PALETTE];
    if (picture->sheet_count > 0)
        return mha__draw_sheets_svg(picture, path, error);
    TRY(mha__figure_of(picture, true, &f, error));
    mha__drawing drawing = {.width = f.width,
                            .height = f.height,
                            .font = 11,
                            .title = picture->title,
                            .description = "attention weights, drawn by mha",
                            .origin = &picture->origin};
    mha__markup *m = &drawing.markup;
    TRY(mha__drawing_open(&drawing, &picture->memory.allocator, path, error));
    mha__palette(palette);
    mha__markup_print(m, "<text x=\"%zu\" y=\"%zu\" font-size=\"14\">", f.margin, f.margin + 8);
    mha__markup_short(m, picture->title ? picture->title : "", 60);
    mha__markup_print(m,
                      "</text><text x=\"%zu\" y=\"%zu\">queries from top to bottom, keys from left to right</text>\n",
                      f.margin, f.margin + 24);
    for (size_t l = 0; l < picture->layer_count; l++)
        for (size_t i = 0; i < picture->layers[l].head_count; i++)
            draw_head(m, &f, l, i, palette);
    draw_bar(m, &f, picture, palette);
    return mha__drawing_close(&drawing);
}
