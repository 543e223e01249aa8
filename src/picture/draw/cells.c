/* Draws cells of maps as SVG, and paints them as PNG. */
#include "picture/draw/figure.h"

enum { HATCH = 6 };

/* One path with all cells of a shade, as runs along the rows. */
static void draw_shade(mha__markup *m, const unsigned char *shades, size_t rows, size_t columns, size_t width,
                       size_t height, int shade)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0, past; c < columns; c = past) {
            const unsigned char *row = shades + r * columns;
            for (past = c + 1; past < columns && (row[past] == shade) == (row[c] == shade);)
                past++;
            const size_t run = (past - c) * width;
            if (row[c] == shade)
                mha__markup_print(m, "M%zu %zuh%zuv%zuh-%zuz", c * width, r * height, run, height, run);
        }
}

void mha__cells_draw(mha__markup *m, const unsigned char *shades, size_t rows, size_t columns, size_t width,
                     size_t height, const mha__colour *palette)
{
    bool used[MHA__PALETTE] = {0};
    for (size_t i = 0; i < rows * columns; i++)
        used[shades[i]] = true;
    for (int shade = 0; shade < MHA__PALETTE; shade++) {
        const mha__colour c = palette[shade];
        if (!used[shade])
            continue;
        if (shade == MHA__HIDDEN_GROUND)
            mha__markup_print(m, "<path fill=\"url(#hidden)\" d=\"");
        else
            mha__markup_print(m, "<path fill=\"#%02x%02x%02x\" d=\"", c.red, c.green, c.blue);
        draw_shade(m, shades, rows, columns, width, height, shade);
        mha__markup_print(m, "\"/>\n");
    }
}

void mha__cells_paint(unsigned char *pixels, size_t count, int shade, size_t x, size_t y)
{
    for (size_t i = 0; i < count; i++)
        pixels[i] =
            (unsigned char)(shade == MHA__HIDDEN_GROUND && (x + i + y) % HATCH == 0 ? MHA__HIDDEN_LINE : shade);
}
