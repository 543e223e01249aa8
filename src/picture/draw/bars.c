/* Draws charts of bars: a label above each bar, its number below, across each a line at the limit; last the axis. */
#include "picture/draw/drawing.h"

#include <math.h>

enum {
    MARGIN = 14,
    WIDTH = MHA__BARS_WIDTH - 2 * MARGIN,
    LINE = 54,
    HEAD = 46,
    BAR = 12,
    OVER = 3,
    AXIS = 26,
    MOST_LETTERS = 60
};

size_t mha__bars_height(size_t count)
{
    return HEAD + count * LINE + AXIS + (size_t)2 * MARGIN;
}

/* Across a bar alone: a line down the chart would cross the text between bars. */
static void draw_limit(mha__markup *m, long x, size_t y, int height)
{
    mha__markup_print(m, "<rect class=\"limit\" x=\"%ld\" y=\"%zu\" width=\"2\" height=\"%d\" fill=\"#d55e00\"/>\n",
                      x - 1, y, height);
}

static void draw_bar(mha__markup *m, const mha__bar *bar, size_t y, double most)
{
    mha__markup_print(m, "<text x=\"%d\" y=\"%zu\">", MARGIN, y + 12);
    mha__markup_short(m, bar->label, MOST_LETTERS);
    mha__markup_print(m, "</text><text x=\"%d\" y=\"%zu\">", MARGIN, y + 44);
    mha__markup_number(m, 4, bar->value);
    mha__markup_print(m, " ");
    mha__markup_text(m, bar->note);
    mha__markup_print(m,
                      "</text><rect class=\"bar\" x=\"%d\" y=\"%zu\" width=\"%ld\" height=\"%d\" fill=\"#0072b2\"/>\n",
                      MARGIN, y + 18, lround(WIDTH * bar->value / most), BAR);
}

/* At most four steps from 0, of the same number of limits. */
static void draw_axis(mha__markup *m, size_t y, double limit, double most)
{
    const double step = limit * ceil(most / limit) / 4;
    mha__markup_print(m, "<path class=\"axis\" d=\"M%d %zuh%d\" stroke=\"#999\"/>\n", MARGIN, y, WIDTH);
    for (int i = 0; i * step <= most; i++) {
        const double value = i * step;
        const long x = MARGIN + lround(WIDTH * value / most);
        mha__markup_print(m, "<path class=\"tick\" d=\"M%ld %zuv4\" stroke=\"#999\"/>", x, y);
        mha__markup_print(m, "<text class=\"tick\" x=\"%ld\" y=\"%zu\" text-anchor=\"middle\" font-size=\"12\">", x,
                          y + 18);
        mha__markup_number(m, 4, value);
        mha__markup_print(m, "</text>\n");
    }
}

void mha__draw_bars(mha__markup *m, const mha__chart *chart, size_t top)
{
    const size_t first = top + MARGIN + HEAD;
    double most = chart->limit;
    for (size_t i = 0; i < chart->count; i++)
        most = fmax(most, chart->bars[i].value);
    const long limit = MARGIN + lround(WIDTH * chart->limit / most);
    mha__markup_print(m, "<text x=\"%d\" y=\"%zu\" font-size=\"15\">", MARGIN, top + MARGIN + 12);
    mha__markup_text(m, chart->title);
    mha__markup_print(m, "</text>\n");
    draw_limit(m, limit, first - 8, OVER);
    for (size_t i = 0; i < chart->count; i++) {
        draw_bar(m, &chart->bars[i], first + i * LINE, most);
        draw_limit(m, limit, first + i * LINE + 18 - OVER, BAR + 2 * OVER);
    }
    draw_axis(m, first + chart->count * LINE + 4, chart->limit, most);
    mha__markup_print(m, "<text class=\"limit\" x=\"%ld\" y=\"%zu\" text-anchor=\"%s\" font-size=\"12\">", limit,
                      first - 12, limit > MHA__BARS_WIDTH / 2 ? "end" : "start");
    mha__markup_text(m, chart->limit_label);
    mha__markup_print(m, "</text>\n");
}
