/* Draws charts of bars: a label above each bar, its number below, across each a line at its limit; last the axis. */
#include "picture/draw/drawing.h"

#include <math.h>

enum {
    MARGIN = 14,
    WIDTH = MHA__BARS_WIDTH - 2 * MARGIN,
    LINE = 54,
    HEAD = 46, /* title and legend */
    BAR = 12,
    OVER = 3,
    AXIS = 26,
    MOST_LETTERS = 60
};

size_t mha__bars_height(size_t count)
{
    return HEAD + count * LINE + AXIS + (size_t)2 * MARGIN;
}

/* Across one bar: a line down the chart would cross the text between bars. */
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
    draw_limit(m, MARGIN + lround(WIDTH * bar->limit / most), y + 18 - OVER, BAR + 2 * OVER);
}

/* Two to five steps of 1, 2 or 5 times a power of ten. */
static void draw_axis(mha__markup *m, size_t y, double most)
{
    const double power = pow(10, floor(log10(most / 2))), steps = most / power;
    const double step = power * (steps < 5 ? 1 : steps < 10 ? 2 : 5);
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
    double most = 0;
    for (size_t i = 0; i < chart->count; i++)
        most = fmax(most, fmax(chart->bars[i].value, chart->bars[i].limit));
    mha__markup_print(m, "<text x=\"%d\" y=\"%zu\" font-size=\"15\">", MARGIN, top + MARGIN + 12);
    mha__markup_text(m, chart->title);
    mha__markup_print(m, "</text>\n<text x=\"%d\" y=\"%zu\" font-size=\"12\" fill=\"#d55e00\">| ", MARGIN, first - 12);
    mha__markup_text(m, chart->limit_label);
    mha__markup_print(m, "</text>\n");
    for (size_t i = 0; i < chart->count; i++)
        draw_bar(m, &chart->bars[i], first + i * LINE, most);
    draw_axis(m, first + chart->count * LINE + 4, most);
}
