/* Draws bars: a label, a bar, its number, and a line at the limit. */
#include "picture/draw/bars.h"

#include <math.h>

#include "picture/markup.h"

enum { LABEL = 300, WIDTH = 400, NUMBER = 270, MARGIN = 14, TWO_MARGINS = 28, LINE = 20, HEAD = 30 };

mha_status mha__draw_bars(const mha__bar *bars, size_t count, double limit, const char *title, const char *path,
                          const mha_allocator *allocator, mha_error *error)
{
    mha__markup m;
    double most = limit;
    if (count == 0)
        return mha__fail(error, MHA_INVALID, "picture", "expected numbers to draw, found none");
    for (size_t i = 0; i < count; i++)
        most = fmax(most, bars[i].value);
    TRY(mha__markup_open(&m, allocator, path, error));
    const size_t width = LABEL + WIDTH + NUMBER + TWO_MARGINS, height = HEAD + count * LINE + TWO_MARGINS;
    const size_t left = MARGIN + LABEL, top = MARGIN + HEAD;
    mha__markup_print(&m,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
                      "viewBox=\"0 0 %zu %zu\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n"
                      "<rect width=\"%zu\" height=\"%zu\" fill=\"#fff\"/>\n"
                      "<text x=\"%d\" y=\"%d\" font-size=\"15\">",
                      width, height, width, height, width, height, MARGIN, MARGIN + 12);
    mha__markup_text(&m, title);
    mha__markup_print(&m, "</text>\n");
    for (size_t i = 0; i < count; i++) {
        const size_t y = top + i * LINE;
        const long length = lround(WIDTH * bars[i].value / most);
        mha__markup_print(&m, "<text x=\"%zu\" y=\"%zu\" text-anchor=\"end\">", left - 8, y + 11);
        mha__markup_text(&m, bars[i].label);
        mha__markup_print(&m,
                          "</text><rect class=\"bar\" x=\"%zu\" y=\"%zu\" width=\"%ld\" height=\"14\" "
                          "fill=\"#0072b2\"/><text x=\"%d\" y=\"%zu\">",
                          left, y, length, MARGIN + LABEL + WIDTH + 8, y + 11);
        mha__markup_number(&m, 3, bars[i].value);
        mha__markup_print(&m, " ");
        mha__markup_text(&m, bars[i].note);
        mha__markup_print(&m, "</text>\n");
    }
    mha__markup_print(&m,
                      "<rect class=\"limit\" x=\"%zu\" y=\"%zu\" width=\"2\" height=\"%zu\" fill=\"#d55e00\"/>\n"
                      "</svg>\n",
                      left + (size_t)lround(WIDTH * limit / most) - 1, top - 4, count * LINE + 4);
    return mha__markup_close(&m);
}
