/* Draws a roofline: two logarithmic axes, the roofs, and points with labels that do not lie on each other. */
#include "lab/lab.h"
#include "picture/draw/roofline.h"

#include <math.h>
#include <stdio.h>

enum { LEFT = 70, TOP = 64, WIDTH = 900, HEIGHT = 380, LINE = 13, RADIUS = 4, RINGS = 24, MOST_ROOFS = 4 };

static const char *const colours[MOST_ROOFS] = {"#e69f00", "#0072b2", "#009e73", "#cc79a7"};
static const double character = 5.8; /* width of one */

/* ---------------------------------------------------------------- axes */

/* An axis of powers of 2: `low` and `high` are whole, and lie at its ends. */
typedef struct axis {
    double low, high;
    double at, length; /* in pixels; a negative length grows upwards */
} axis;

static double place(const axis *a, double x)
{
    return a->at + a->length * (log2(x) - a->low) / (a->high - a->low);
}

static void include(axis *a, double x)
{
    a->low = fmin(a->low, floor(log2(x)));
    a->high = fmax(a->high, ceil(log2(x)));
}

/* Both axes reach over all points and roofs; the ridge of each roof stands within. */
static void find_axes(axis axes[2], const mha__roof *roofs, size_t roof_count, const mha__roof_point *points,
                      size_t count)
{
    axes[0] = (axis){INFINITY, -INFINITY, LEFT, WIDTH};
    axes[1] = (axis){INFINITY, -INFINITY, TOP + HEIGHT, -HEIGHT};
    for (size_t i = 0; i < count; i++) {
        include(&axes[0], points[i].intensity);
        include(&axes[1], points[i].gflops);
    }
    for (size_t i = 0; i < roof_count; i++) {
        include(&axes[0], roofs[i].peak_gflops / roofs[i].read_gbs / 2);
        include(&axes[0], roofs[i].peak_gflops / roofs[i].read_gbs * 2);
        include(&axes[1], roofs[i].peak_gflops / 2);
        include(&axes[1], roofs[i].peak_gflops * 1.1);
    }
}

static void draw_ticks(mha__markup *m, const axis *a, bool across)
{
    const int step = 1 + (int)((a->high - a->low) / 12);
    for (int k = (int)a->low; k <= (int)a->high; k += step) {
        const long at = lround(place(a, exp2(k)));
        if (across)
            mha__markup_print(m,
                              "<path class=\"tick\" d=\"M%ld %dv%d\" stroke=\"#ddd\"/>"
                              "<text class=\"x\" x=\"%ld\" y=\"%d\" "
                              "text-anchor=\"middle\">",
                              at, TOP, HEIGHT, at, TOP + HEIGHT + 16);
        else
            mha__markup_print(m,
                              "<path class=\"tick\" d=\"M%d %ldh%d\" stroke=\"#ddd\"/>"
                              "<text class=\"y\" x=\"%d\" y=\"%ld\" "
                              "text-anchor=\"end\">",
                              LEFT, at, WIDTH, LEFT - 6, at + 4);
        mha__markup_number(m, 6, exp2(k));
        mha__markup_print(m, "</text>\n");
    }
}

/* ---------------------------------------------------------------- roofs */

static void draw_roof(mha__markup *m, const axis axes[2], const mha__roof *roof, size_t number)
{
    const double ridge = roof->peak_gflops / roof->read_gbs, lowest = exp2(axes[1].low) / roof->read_gbs;
    const double first = fmax(exp2(axes[0].low), lowest), peak = place(&axes[1], roof->peak_gflops);
    mha__markup_print(
        m, "<path class=\"roof\" d=\"M%ld %ldL%ld %ldH%d\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
        lround(place(&axes[0], first)), lround(place(&axes[1], first * roof->read_gbs)), lround(place(&axes[0], ridge)),
        lround(peak), LEFT + WIDTH, colours[number % MOST_ROOFS]);
    mha__markup_print(m, "<text class=\"roof\" x=\"%d\" y=\"%ld\" text-anchor=\"end\">", LEFT + WIDTH - 4,
                      lround(peak) - 5);
    mha__markup_text(m, roof->name);
    mha__markup_print(m, ": ");
    mha__markup_number(m, 4, roof->peak_gflops);
    mha__markup_print(m, " GFLOP/s, ");
    mha__markup_number(m, 4, roof->read_gbs);
    mha__markup_print(m, " GB/s</text>\n");
}

/* ---------------------------------------------------------------- points */

typedef struct box {
    double x, y, width, height;
} box;

static bool is_free(const box *taken, size_t count, box b)
{
    if (b.x < LEFT || b.x + b.width > LEFT + WIDTH || b.y < TOP || b.y + b.height > TOP + HEIGHT)
        return false;
    for (size_t i = 0; i < count; i++)
        if (b.x < taken[i].x + taken[i].width && taken[i].x < b.x + b.width && b.y < taken[i].y + taken[i].height &&
            taken[i].y < b.y + b.height)
            return false;
    return true;
}

/* A free place for a label near a point, ring by ring; false where none is free. */
static bool find_place(const box *taken, size_t count, double x, double y, double width, box *found)
{
    for (int ring = 0; ring < RINGS; ring++)
        for (int side = 0; side < 4; side++) { /* above and below, right and left */
            const double far = ring * LINE, down = side % 2 ? far : -far, aside = RADIUS + 3 + far / 2;
            *found = (box){side < 2 ? x + aside : x - aside - width, y + down - LINE / 2.0, width, LINE};
            if (is_free(taken, count, *found))
                return true;
        }
    return false;
}

static void draw_label(mha__markup *m, const char *label, box b, double x, double y)
{
    const double middle = b.y + LINE / 2.0, side = b.x > x ? b.x - 1 : b.x + b.width + 1;
    if (fabs(middle - y) > LINE / 2.0)
        mha__markup_print(m, "<path d=\"M%ld %ldL%ld %ld\" stroke=\"#999\" stroke-width=\"0.5\"/>", lround(x),
                          lround(y), lround(side), lround(middle));
    mha__markup_print(m, "<text class=\"label\" x=\"%ld\" y=\"%ld\" font-size=\"10\">", lround(b.x),
                      lround(middle) + 4);
    mha__markup_text(m, label);
    mha__markup_print(m, "</text>\n");
}

/* `taken` has room for two boxes of each point and one of each roof: those of the text above a roof are last. */
static void draw_points(mha__markup *m, const axis axes[2], const mha__roof *roofs, size_t roof_count,
                        const mha__roof_point *points, size_t count, box *taken)
{
    enum { ROOF_TEXT = 270 };
    size_t held = count;
    for (size_t i = 0; i < roof_count; i++)
        taken[held++] =
            (box){LEFT + WIDTH - ROOF_TEXT, place(&axes[1], roofs[i].peak_gflops) - LINE - 5, ROOF_TEXT, LINE + 6};
    for (size_t i = 0; i < count; i++) {
        const double x = place(&axes[0], points[i].intensity), y = place(&axes[1], points[i].gflops);
        taken[i] = (box){x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS};
    }
    for (size_t i = 0; i < count; i++) {
        const double x = taken[i].x + RADIUS, y = taken[i].y + RADIUS;
        if (*points[i].label &&
            find_place(taken, held, x, y, character * (double)mha__text_width(points[i].label), &taken[held]))
            draw_label(m, points[i].label, taken[held++], x, y);
    }
    for (size_t i = 0; i < count; i++) {
        const char *colour = colours[points[i].roof % MOST_ROOFS];
        mha__markup_print(m, "<circle cx=\"%ld\" cy=\"%ld\" r=\"%d\" fill=\"%s\" stroke=\"%s\"><title>",
                          lround(taken[i].x + RADIUS), lround(taken[i].y + RADIUS), RADIUS,
                          points[i].hollow ? "#fff" : colour, colour);
        mha__markup_text(m, points[i].title);
        mha__markup_print(m, "</title></circle>\n");
    }
}

void mha__draw_roofline(mha__markup *m, const mha__roof *roofs, size_t roof_count, const mha__roof_point *points,
                        size_t count, const char *title, const char *note, const mha_allocator *allocator)
{
    axis axes[2];
    const size_t bytes = (2 * count + roof_count) * sizeof(box);
    box *taken = mha__allocate(allocator, bytes);
    if (!taken) {
        mha__markup_fail(m, MHA_NO_MEMORY, "no memory to draw it");
        return;
    }
    find_axes(axes, roofs, roof_count, points, count);
    mha__markup_print(m, "<text x=\"14\" y=\"26\" font-size=\"15\">");
    mha__markup_text(m, title);
    mha__markup_print(m, "</text>\n<text x=\"14\" y=\"44\" font-size=\"11\">");
    mha__markup_text(m, note);
    mha__markup_print(m, "</text>\n");
    draw_ticks(m, &axes[0], true);
    draw_ticks(m, &axes[1], false);
    for (size_t i = 0; i < roof_count; i++)
        draw_roof(m, axes, &roofs[i], i);
    draw_points(m, axes, roofs, roof_count, points, count, taken);
    mha__markup_print(m,
                      "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">flop/byte</text>\n"
                      "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">GFLOP/s</text>\n",
                      LEFT + WIDTH / 2, TOP + HEIGHT + 36, TOP + HEIGHT / 2);
    mha__release(allocator, taken, bytes);
}
