/* Draws bars: a label, a bar, its number, and a line at the limit. */
#include "picture/draw/bars.h"

#include <math.h>

enum { MARGIN = 14, LABEL = 300, WIDTH = 400, LEFT = MARGIN + LABEL, LINE = 20, HEAD = 30 };

size_t mha__bars_height(size_t count)
{
    return HEAD + count * LINE + (size_t)2 * MARGIN;
}

void mha__draw_bars(mha__markup *m, const mha__bar *bars, size_t count, double limit, const char *title, size_t top)
{
    const size_t first = top + MARGIN + HEAD;
    double most = limit;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, bars[i].value);
    mha__markup_print(m, "<text x=\"%d\" y=\"%zu\" font-size=\"15\">", MARGIN, top + MARGIN + 12);
    mha__markup_text(m, title);
    mha__markup_print(m, "</text>\n");
    for (size_t i = 0; i < count; i++) {
        const size_t y = first + i * LINE;
        mha__markup_print(m, "<text x=\"%d\" y=\"%zu\" text-anchor=\"end\">", LEFT - 8, y + 11);
        mha__markup_text(m, bars[i].label);
        mha__markup_print(m,
                          "</text><rect class=\"bar\" x=\"%d\" y=\"%zu\" width=\"%ld\" height=\"14\" "
                          "fill=\"#0072b2\"/><text x=\"%d\" y=\"%zu\">",
                          LEFT, y, lround(WIDTH * bars[i].value / most), LEFT + WIDTH + 8, y + 11);
        mha__markup_number(m, 3, bars[i].value);
        mha__markup_print(m, " ");
        mha__markup_text(m, bars[i].note);
        mha__markup_print(m, "</text>\n");
    }
    mha__markup_print(m, "<rect class=\"limit\" x=\"%ld\" y=\"%zu\" width=\"2\" height=\"%zu\" fill=\"#d55e00\"/>\n",
                      LEFT + lround(WIDTH * limit / most) - 1, first - 4, count * LINE + 4);
}
