/* Draws tensors beside each other, as SVG and PNG: for each a line with a, b and a - b. */
#include "picture/draw/figure.h"

#include <stdio.h>
#include <string.h>

#include "picture/draw/drawing.h"
#include "picture/markup.h"
#include "picture/sheet.h"

enum {
    SIDE = 192, /* largest width and height of a map */
    MOST = 64,  /* most rows and columns of cells that are drawn */
    CELL = 16,  /* largest side of a cell */
    LEAST = 12, /* least height of a map: a single row can be seen */
    MARGIN = 14,
    GAP = 20,
    TEXT = 300, /* room for what is said, in SVG */
    LINE = 16,
    HEAD = 20,            /* above the maps of a line: which is which */
    MOST_LINES = 1 << 14, /* pixels: longer drawings show the first sheets */
};

/* ---------------------------------------------------------------- colours */

/* The colour of a number where `size` has the darkest one; of -inf that of a hidden key. */
static int shade_of(double x, double size)
{
    if (x == -INFINITY)
        return MHA__HIDDEN_GROUND;
    return isfinite(x) ? (int)lround((MHA__SHADES - 1) / 2.0 * (1 + fmin(fmax(x / size, -1), 1))) : MHA__BROKEN;
}

/* ---------------------------------------------------------------- layout */

/* One sheet as it is drawn: so many cells of so many pixels, from y on. */
typedef struct line {
    const mha__sheet *sheet;
    size_t map, pool, rows, columns, cell, high; /* high: of a cell */
    size_t y, height;
    size_t worst[2]; /* the cell that is framed: rows when none is */
    double size[2];  /* of a and b; of a - b */
} line;

typedef struct sheets_figure {
    const mha__picture *picture;
    line *lines;
    size_t count, left, across; /* maps of a line */
    size_t width, height;
} sheets_figure;

/* Map n of a line: a, b, a - b. */
static double number_at(const line *l, size_t n, size_t row, size_t column)
{
    const mha__sheet *s = l->sheet;
    const size_t at = mha__sheet_pick(s, l->map, row, column, l->pool);
    if (n == 0 || (n == 2 && s->a[at] == -INFINITY && s->b[at] == -INFINITY))
        return s->a[at];
    if (n == 1)
        return s->b[at];
    return s->a[at] == s->b[at] ? 0 : isfinite(s->a[at]) && isfinite(s->b[at]) ? s->a[at] - s->b[at] : NAN;
}

/* `words`: lines of text beside the maps. */
static void lay_out_line(const mha__sheet *s, line *l, size_t y, size_t words)
{
    const size_t longer = s->rows > s->columns ? s->rows : s->columns;
    *l = (line){.sheet = s, .y = y, .height = words * LINE};
    if (!s->a)
        return;
    l->map = s->b ? s->worst_at[0] - s->first_map : 0;
    l->pool = mha__cells_of(longer, MOST);
    l->rows = mha__cells_of(s->rows, l->pool);
    l->columns = mha__cells_of(s->columns, l->pool);
    const size_t most = l->rows > l->columns ? l->rows : l->columns;
    l->cell = SIDE / most < CELL ? SIDE / most : CELL;
    l->high = l->rows * l->cell < LEAST ? mha__cells_of(LEAST, l->rows) : l->cell;
    const size_t maps = HEAD + l->rows * l->high;
    l->height = maps > l->height ? maps : l->height;
    l->worst[0] = l->rows;
    if (s->b && s->difference.max_abs > 0) {
        l->worst[0] = s->worst_at[1] / s->pool_rows / l->pool;
        l->worst[1] = s->worst_at[2] / s->pool_columns / l->pool;
    }
    for (size_t n = 0; n < (s->b ? 3 : 1); n++)
        for (size_t i = 0; i < l->rows * l->columns; i++) {
            const double x = number_at(l, n, i / l->columns, i % l->columns);
            if (isfinite(x))
                l->size[n / 2] = fmax(l->size[n / 2], fabs(x));
        }
    for (size_t n = 0; n < 2; n++)
        l->size[n] = l->size[n] > 0 ? l->size[n] : 1;
}

/* The lines must be released. MHA_NO_MEMORY. */
static mha_status lay_out(const mha__picture *picture, bool text, sheets_figure *f, mha_error *error)
{
    const size_t head = text ? (2 + picture->note_count) * LINE : 0;
    *f = (sheets_figure){.picture = picture, .left = MARGIN + (text ? TEXT : 0), .across = 1};
    f->lines = mha__allocate(&picture->memory.allocator, picture->sheet_count * sizeof *f->lines);
    if (!f->lines)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory to draw %zu tensors", picture->sheet_count);
    size_t y = MARGIN + head;
    for (size_t i = 0; i < picture->sheet_count && y < MOST_LINES; i++) {
        const mha__sheet *s = &picture->sheets[i];
        lay_out_line(s, &f->lines[i], y, !text ? 0 : !s->a ? 2 : s->b ? 6 : 4);
        y += f->lines[i].height + GAP;
        f->across = s->b ? 3 : f->across;
        f->count++;
    }
    f->width = f->left + f->across * (SIDE + GAP) + MARGIN;
    f->height = y + MARGIN;
    return MHA_OK;
}

static void release(sheets_figure *f)
{
    mha__release(&f->picture->memory.allocator, f->lines, f->picture->sheet_count * sizeof *f->lines);
}

static size_t maps_of(const line *l)
{
    return !l->sheet->a ? 0 : l->sheet->b ? 3 : 1;
}

/* ---------------------------------------------------------------- PNG */

static void paint_map(const line *l, size_t n, size_t y, size_t x, unsigned char *pixels)
{
    const size_t row = y / l->high;
    for (size_t c = 0; c < l->columns; c++)
        mha__cells_paint(pixels + c * l->cell, l->cell, shade_of(number_at(l, n, row, c), l->size[n / 2]),
                         x + c * l->cell, y);
    if (n == 2 && row == l->worst[0]) {
        unsigned char *cell = pixels + l->worst[1] * l->cell;
        const bool edge = y % l->high == 0 || y % l->high == l->high - 1;
        memset(cell, MHA__MARK, edge ? l->cell : 1);
        cell[l->cell - 1] = MHA__MARK;
    }
}

static void paint_line(const void *context, size_t y, unsigned char *pixels)
{
    const sheets_figure *f = context;
    memset(pixels, MHA__PAPER, f->width);
    for (size_t i = 0; i < f->count; i++) {
        const line *l = &f->lines[i];
        if (y < l->y + HEAD || y >= l->y + HEAD + l->rows * l->high)
            continue;
        for (size_t n = 0; n < maps_of(l); n++) {
            const size_t x = f->left + n * (SIDE + GAP);
            paint_map(l, n, y - l->y - HEAD, x, pixels + x);
        }
    }
}

mha_status mha__draw_sheets_png(const mha__picture *picture, const char *path, mha_error *error)
{
    sheets_figure f;
    mha__colour palette[MHA__PALETTE];
    TRY(lay_out(picture, false, &f, error));
    mha__palette_of_signs(palette);
    const mha__png png = {.width = f.width,
                          .height = f.height,
                          .colours = palette,
                          .colour_count = MHA__PALETTE,
                          .title = picture->title ? picture->title : "",
                          .description = "a line for each tensor, 0 in the middle of the colours: a, b, a - b",
                          .origin = &picture->origin,
                          .paint = paint_line,
                          .context = &f};
    const mha_status status = mha__png_write(&png, &picture->memory.allocator, path, error);
    release(&f);
    return status;
}

/* ---------------------------------------------------------------- SVG */

static void draw_map(mha__markup *m, const sheets_figure *f, const line *l, size_t n,
                     const mha__colour palette[MHA__PALETTE])
{
    const size_t x = f->left + n * (SIDE + GAP), y = l->y + HEAD;
    unsigned char shades[MOST * MOST];
    for (size_t i = 0; i < l->rows * l->columns; i++)
        shades[i] = (unsigned char)shade_of(number_at(l, n, i / l->columns, i % l->columns), l->size[n / 2]);
    mha__markup_print(m, "<g transform=\"translate(%zu %zu)\">\n", x, y);
    mha__cells_draw(m, shades, l->rows, l->columns, l->cell, l->high, palette);
    mha__markup_print(m, "<rect width=\"%zu\" height=\"%zu\" fill=\"none\" stroke=\"#888\"/>\n", l->columns * l->cell,
                      l->rows * l->high);
    if (n == 2 && l->worst[0] < l->rows)
        mha__markup_print(m,
                          "<rect x=\"%zu\" y=\"%zu\" width=\"%zu\" height=\"%zu\" fill=\"none\" stroke=\"#b3261e\" "
                          "stroke-width=\"2\"/>\n",
                          l->worst[1] * l->cell, l->worst[0] * l->high, l->cell, l->high);
    mha__markup_print(m, "</g>\n");
}

/* The title of map n of a line. */
static const char *title_of(const sheets_figure *f, const mha__sheet *sheet, size_t n)
{
    const char *const *sides = f->picture->sides;
    if (n == 0)
        return sides[0] ? sides[0] : "a";
    return n == 2 ? "difference" : sheet->beside ? sheet->beside : sides[1] ? sides[1] : "b";
}

/* Which map it is, and what its darkest colours stand for: "yours, ±4.2". */
static void draw_head(mha__markup *m, const sheets_figure *f, const line *l, size_t n)
{
    mha__markup_print(m, "<text x=\"%zu\" y=\"%zu\">", f->left + n * (SIDE + GAP), l->y + HEAD - 6);
    if (l->sheet->b) {
        mha__markup_short(m, title_of(f, l->sheet, n), 16);
        mha__markup_print(m, ", ");
    }
    mha__markup_print(m, "\xc2\xb1");
    mha__markup_number(m, 3, l->size[n / 2]);
    mha__markup_print(m, "</text>\n");
}

/* Begins a line of text beside the maps. */
static void begin_text(mha__markup *m, const line *l, size_t *number, const char *style)
{
    mha__markup_print(m, "<text x=\"%d\" y=\"%zu\"%s>", MARGIN, l->y + 12 + (*number)++ * LINE, style);
}

static void write_numbers(mha__markup *m, const char *const words[], const double *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mha__markup_print(m, "%s", words[i]);
        mha__markup_number(m, 7, numbers[i]);
    }
    mha__markup_print(m, "</text>\n");
}

static void draw_text(mha__markup *m, const sheets_figure *f, const line *l)
{
    const mha__sheet *s = l->sheet;
    const mha_difference *d = &s->difference;
    char shape[128];
    size_t number = 0;
    begin_text(m, l, &number, " font-size=\"13\"");
    mha__markup_short(m, s->name, 30);
    if (*s->mark)
        mha__markup_print(m, ": <tspan%s>%s</tspan>", strcmp(s->mark, "ok") == 0 ? "" : " fill=\"#b3261e\"", s->mark);
    mha__markup_print(m, "</text>\n");
    begin_text(m, l, &number, "");
    if (!s->a) {
        mha__markup_text(m, s->obstacle);
        mha__markup_print(m, "</text>\n");
        return;
    }
    mha__markup_print(m, "%s", mha__shape_text(shape, sizeof shape, s->shape, s->rank));
    if (s->all_maps > 1)
        mha__markup_print(m, ", map %zu of %zu", s->first_map + l->map, s->all_maps);
    mha__markup_print(m, "</text>\n");
    if (!s->b) {
        begin_text(m, l, &number, "");
        write_numbers(m, (const char *const[]){"from ", " to "}, (const double[]){s->least, s->largest}, 2);
        begin_text(m, l, &number, "");
        mha__markup_print(m, "%zu NaN or infinite</text>\n", s->broken);
        return;
    }
    begin_text(m, l, &number, "");
    mha__markup_print(m, "%zu of %zu differ</text>\n", d->mismatches, d->elements);
    begin_text(m, l, &number, "");
    write_numbers(m, (const char *const[]){"largest difference ", ", ULP "}, (const double[]){d->max_abs, d->max_ulp},
                  2);
    begin_text(m, l, &number, "");
    mha__markup_print(m, "worst at %s</text>\n", mha__shape_text(shape, sizeof shape, d->worst_index, s->rank));
    begin_text(m, l, &number, "");
    for (size_t n = 0; n < 2; n++) {
        mha__markup_print(m, n ? ", " : "");
        mha__markup_short(m, title_of(f, s, n), 16);
        mha__markup_print(m, " ");
        mha__markup_number(m, 7, s->worst[n]);
    }
    mha__markup_print(m, "</text>\n");
}

static void draw_title(mha__markup *m, const mha__picture *picture)
{
    mha__markup_print(m, "<text x=\"%d\" y=\"%d\" font-size=\"15\">", MARGIN, MARGIN + 10);
    mha__markup_short(m, picture->title ? picture->title : "", 100);
    mha__markup_print(m, "</text>\n");
    for (size_t i = 0; i < picture->note_count; i++) {
        mha__markup_print(m, "<text x=\"%d\" y=\"%zu\">", MARGIN, MARGIN + 10 + (i + 1) * LINE);
        mha__markup_short(m, picture->notes[i], 140);
        mha__markup_print(m, "</text>\n");
    }
}

mha_status mha__draw_sheets_svg(const mha__picture *picture, const char *path, mha_error *error)
{
    sheets_figure f;
    mha__colour palette[MHA__PALETTE];
    TRY(lay_out(picture, true, &f, error));
    mha__palette_of_signs(palette);
    mha__drawing drawing = {.width = f.width,
                            .height = f.height,
                            .font = 11,
                            .title = picture->title,
                            .description = "tensors, drawn by mha",
                            .origin = &picture->origin};
    mha__markup *m = &drawing.markup;
    mha_status status = mha__drawing_open(&drawing, &picture->memory.allocator, path, error);
    if (status == MHA_OK) {
        draw_title(m, picture);
        for (size_t i = 0; i < f.count; i++) {
            draw_text(m, &f, &f.lines[i]);
            for (size_t n = 0; n < maps_of(&f.lines[i]); n++) {
                draw_head(m, &f, &f.lines[i], n);
                draw_map(m, &f, &f.lines[i], n, palette);
            }
        }
        if (f.count < picture->sheet_count)
            mha__markup_print(m, "<text x=\"%d\" y=\"%zu\">%zu more tensors are not drawn</text>\n", MARGIN,
                              f.height - 4, picture->sheet_count - f.count);
        status = mha__drawing_close(&drawing);
    }
    release(&f);
    return status;
}
