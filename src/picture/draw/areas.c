/* Draws a treemap: groups side by side, and in each group its areas, all as near to squares as they go. */
#include "lab/lab.h"
#include "picture/draw/drawing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture/draw/figure.h"

enum { WIDTH = 960, HEIGHT = 540, MARGIN = 14, HEAD = 34, LINE = 20, MOST_GROUPS = 16, COLOURS = 8 };
enum { CHARACTER = 7, STRIP = 10 }; /* least width of a name, downwards */

typedef struct box {
    double x, y, width, height;
} box;

/* ---------------------------------------------------------------- squarified treemap (Bruls et al. 2000) */

/* The worst ratio of sides among the boxes of a row that stands along `side`. */
static double worst_ratio(double side, double sum, double largest, double least)
{
    return fmax(side * side * largest / (sum * sum), sum * sum / (side * side * least));
}

/* Cuts `all` into boxes with areas as sizes[0..count), which fall and are above 0 and sum up to that of `all`. */
static void cut(const double *sizes, size_t count, box all, box *boxes)
{
    for (size_t first = 0, past; first < count; first = past) {
        const double side = fmin(all.width, all.height);
        double sum = sizes[first];
        for (past = first + 1; past < count; past++) {
            const double with = sum + sizes[past];
            if (worst_ratio(side, with, sizes[first], sizes[past]) >
                worst_ratio(side, sum, sizes[first], sizes[past - 1]))
                break;
            sum = with;
        }
        const double depth = side > 0 ? sum / side : 0;
        double at = 0;
        for (size_t i = first; i < past; i++) {
            const double length = sizes[i] / (depth > 0 ? depth : 1);
            boxes[i] = all.width <= all.height ? (box){all.x + at, all.y, length, depth}
                                               : (box){all.x, all.y + at, depth, length};
            at += length;
        }
        if (all.width <= all.height)
            all = (box){all.x, all.y + depth, all.width, fmax(all.height - depth, 0)};
        else
            all = (box){all.x + depth, all.y, fmax(all.width - depth, 0), all.height};
    }
}

/* ---------------------------------------------------------------- groups */

/* A group as one area of its name; `times` 1: it is that of all groups that have no room of their own. */
typedef mha__area group;

static int by_size(const void *a, const void *b)
{
    const mha__area *x = a, *y = b;
    return x->elements != y->elements ? (x->elements < y->elements ? 1 : -1) : strcmp(x->name, y->name);
}

/* Which group an area belongs to: that of its name, else the one of all others. */
static size_t group_of(const group *groups, size_t count, const mha__area *area)
{
    size_t others = 0;
    for (size_t g = 0; g < count; g++) {
        if (!groups[g].times && strcmp(groups[g].name, area->group) == 0)
            return g;
        others = groups[g].times ? g : others;
    }
    return others;
}

/* Fills in the groups, largest first; returns their number. */
static size_t collect_groups(const mha__area *areas, size_t count, group groups[MOST_GROUPS])
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        size_t g = 0;
        while (g < n && (groups[g].times || strcmp(groups[g].name, areas[i].group) != 0))
            g++;
        if (g == n && n + 1 < MOST_GROUPS)
            groups[n++] = (group){.name = areas[i].group};
        else if (g == n && n < MOST_GROUPS)
            groups[n++] = (group){.name = "others", .times = 1};
        groups[g < n ? g : n - 1].elements += areas[i].elements;
    }
    qsort(groups, n, sizeof *groups, by_size);
    return n;
}

/* ---------------------------------------------------------------- drawing */

/* Pale tints of eight colours that people who confuse colours tell apart (Okabe and Ito, 2008). */
static const mha__colour tints[COLOURS] = {{154, 207, 240}, {244, 198, 118}, {128, 206, 185}, {236, 170, 128},
                                           {229, 188, 211}, {247, 239, 160}, {140, 180, 216}, {204, 204, 204}};

static void write_count(mha__markup *m, size_t n)
{
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%zu", n);
    for (int i = 0; i < length; i++)
        mha__markup_print(m, "%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
}

static void write_share(mha__markup *m, size_t elements, double all)
{
    write_count(m, elements);
    mha__markup_print(m, " (");
    mha__markup_number(m, 3, 100 * (double)elements / all);
    mha__markup_print(m, " %%)");
}

/* Writes `most` characters of a name that is longer: its end, which says more than its beginning, without ".weight". */
static void write_end(mha__markup *m, const char *name, size_t most)
{
    static const char common[] = ".weight";
    char kept[256];
    mha__text_print(kept, sizeof kept, "%s", name);
    const size_t length = strlen(kept), usual = sizeof common - 1;
    size_t width = mha__text_width(kept);
    if (width > most && length > usual && strcmp(kept + length - usual, common) == 0)
        kept[length - usual] = '\0', width -= usual;
    const char *end = kept;
    for (size_t left = width; left > most; left -= ((unsigned char)*end & 0xC0) != 0x80)
        end++;
    mha__markup_print(m, "%s", end > kept ? "\xe2\x80\xa6" : "");
    mha__markup_short(m, end, most);
}

static void draw_area(mha__markup *m, const mha__area *area, box b, mha__colour tint, double all)
{
    const long x = lround(b.x), y = lround(b.y), width = lround(b.x + b.width) - x, height = lround(b.y + b.height) - y;
    if (width <= 0 || height <= 0)
        return; /* below a pixel */
    mha__markup_print(m, "<g><title>");
    mha__markup_text(m, area->name);
    if (area->times > 1)
        mha__markup_print(m, ", %zu tensors", area->times);
    mha__markup_print(m, ": ");
    write_share(m, area->elements, all);
    mha__markup_print(m,
                      "</title><rect x=\"%ld\" y=\"%ld\" width=\"%ld\" height=\"%ld\" "
                      "fill=\"#%02x%02x%02x\" stroke=\"#fff\"/>",
                      x, y, width, height, tint.red, tint.green, tint.blue);
    if (width >= 6L * CHARACTER && height >= LINE) {
        mha__markup_print(m, "<text x=\"%ld\" y=\"%ld\">", x + 4, y + 14);
        write_end(m, area->name, (size_t)(width - 6) / CHARACTER);
        mha__markup_print(m, "</text>");
    } else if (width >= STRIP && height >= 6L * CHARACTER) { /* downwards, at the left edge */
        mha__markup_print(m, "<text transform=\"translate(%ld %ld) rotate(90)\" font-size=\"9\">", x + 2, y + 4);
        write_end(m, area->name, (size_t)(height - 6) / CHARACTER);
        mha__markup_print(m, "</text>");
    }
    if (width >= 10L * CHARACTER && height >= 2L * LINE) {
        mha__markup_print(m, "<text x=\"%ld\" y=\"%ld\">", x + 4, y + 28);
        mha__markup_number(m, 3, 100 * (double)area->elements / all);
        mha__markup_print(m, " %%");
        if (area->times > 1)
            mha__markup_print(m, " in %zu", area->times);
        mha__markup_print(m, "</text>");
    }
    mha__markup_print(m, "</g>\n");
}

static void draw_legend(mha__markup *m, const group *groups, size_t count, double all)
{
    for (size_t g = 0; g < count; g++) {
        const size_t x = MARGIN + g % 3 * (WIDTH / 3), y = MARGIN + HEAD + HEIGHT + 10 + g / 3 * LINE;
        const mha__colour tint = tints[g % COLOURS];
        mha__markup_print(m,
                          "<rect x=\"%zu\" y=\"%zu\" width=\"12\" height=\"12\" fill=\"#%02x%02x%02x\"/>"
                          "<text x=\"%zu\" y=\"%zu\">",
                          x, y, tint.red, tint.green, tint.blue, x + 18, y + 10);
        mha__markup_short(m, *groups[g].name ? groups[g].name : "(no part)", 16);
        mha__markup_print(m, " ");
        write_share(m, groups[g].elements, all);
        mha__markup_print(m, "</text>\n");
    }
}

/* Draws all areas of one group; `sizes` and `boxes` have room for all. */
static void draw_group(mha__markup *m, const mha__area *areas, size_t count, const group *groups, size_t n, size_t g,
                       box place, double all, double *sizes, box *boxes)
{
    size_t here = 0;
    for (size_t i = 0; i < count; i++)
        if (group_of(groups, n, &areas[i]) == g)
            sizes[here++] = (double)areas[i].elements * WIDTH * HEIGHT / all;
    cut(sizes, here, place, boxes);
    here = 0;
    for (size_t i = 0; i < count; i++)
        if (group_of(groups, n, &areas[i]) == g)
            draw_area(m, &areas[i], boxes[here++], tints[g % COLOURS], all);
}

typedef struct room {
    double *sizes;
    box *boxes;
} room; /* for every area */

static mha_status draw(mha__drawing *d, const mha__area *areas, size_t count, room memory,
                       const mha_allocator *allocator, const char *path, mha_error *error)
{
    mha__markup *m = &d->markup;
    group groups[MOST_GROUPS] = {0};
    double all = 0, group_sizes[MOST_GROUPS];
    box places[MOST_GROUPS];
    const size_t n = collect_groups(areas, count, groups);
    size_t elements = 0;
    for (size_t g = 0; g < n; g++)
        elements += groups[g].elements;
    all = (double)elements;
    for (size_t g = 0; g < n; g++)
        group_sizes[g] = (double)groups[g].elements * WIDTH * HEIGHT / all;
    cut(group_sizes, n, (box){MARGIN, MARGIN + HEAD, WIDTH, HEIGHT}, places);
    d->width = WIDTH + 2 * MARGIN;
    d->height = 2 * MARGIN + HEAD + HEIGHT + 10 + (n + 2) / 3 * LINE;
    TRY(mha__drawing_open(d, allocator, path, error));
    mha__markup_print(m, "<text x=\"%d\" y=\"%d\" font-size=\"15\">", MARGIN, MARGIN + 12);
    mha__markup_short(m, d->title, 70);
    mha__markup_print(m, ": ");
    write_count(m, elements);
    mha__markup_print(m, " parameters</text>\n<g shape-rendering=\"crispEdges\">\n");
    for (size_t g = 0; g < n; g++)
        draw_group(m, areas, count, groups, n, g, places[g], all, memory.sizes, memory.boxes);
    mha__markup_print(m, "</g>\n");
    draw_legend(m, groups, n, all);
    return mha__drawing_close(d);
}

mha_status mha__draw_areas(mha__area *areas, size_t count, const char *title, const mha__origin *origin,
                           const char *path, const mha_allocator *allocator, mha_error *error)
{
    qsort(areas, count, sizeof *areas, by_size);
    while (count > 0 && areas[count - 1].elements == 0)
        count--;
    if (count == 0)
        return mha__fail(error, MHA_INVALID, "picture", "expected parameters to draw, found none");
    mha__drawing d = {.font = 12, .title = title, .description = "parameters, drawn by mha", .origin = origin};
    const room memory = {mha__allocate(allocator, count * sizeof(double)),
                         mha__allocate(allocator, count * sizeof(box))};
    const mha_status status = memory.sizes && memory.boxes
                                  ? draw(&d, areas, count, memory, allocator, path, error)
                                  : mha__fail(error, MHA_NO_MEMORY, path, "no memory to draw it");
    mha__release(allocator, memory.sizes, count * sizeof(double));
    mha__release(allocator, memory.boxes, count * sizeof(box));
    return status;
}
