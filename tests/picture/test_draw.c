/* Heads drawn as PNG and SVG: the pictures are read back, and every cell must be where and what the numbers say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "mha/random.h"
#include "mha/system.h"
#include "picture/draw/figure.h"
#include "support/failing.h"
#include "support/markup.h"
#include "support/scratch.h"
#include "support/unit.h"

/* ---------------------------------------------------------------- a picture */

enum { LAYERS = 2, HEADS = 3 };

static const char *const hostile[] = {"<script>alert(1)</script>", "\"' onload='x",      "]]>&amp;&#60;",
                                      "\x1b[31mred\x07",           "\xe2\x80\xaesrever", "\xff\xc0\xaf bad",
                                      "\xed\xa0\x80 half",         "caf\xc3\xa9"};

typedef struct made {
    mha__picture picture;
    mha__picture_layer layers[LAYERS];
    mha__head heads[LAYERS][HEADS];
} made;

/* Random weights under a causal triangle of (rows, columns); one NaN, one 0. */
static void make_head(mha__head *head, size_t rows, size_t columns, uint64_t seed)
{
    *head = (mha__head){.rows = rows,
                        .queries = rows,
                        .columns = columns,
                        .keys = columns,
                        .pool_rows = 1,
                        .pool_columns = 1,
                        .weights = calloc(rows * columns, sizeof(double))};
    for (size_t i = 0; i < rows * columns; i++) {
        const double unit = mha__random_unit(seed, 0, i);
        head->weights[i] = i % columns > i / columns ? MHA__HIDDEN : 0.9 * unit * unit * unit;
    }
    head->weights[columns] = 0;
    head->weights[columns + 1] = NAN;
}

static void make(made *m, bool tokens)
{
    *m = (made){.picture = {.memory.allocator = mha__allocator_default(),
                            .layers = m->layers,
                            .layer_count = LAYERS,
                            .title = "a <b> & \"c\" \x1b[0m"}};
    for (size_t l = 0; l < LAYERS; l++) {
        m->layers[l] =
            (mha__picture_layer){.name = hostile[l], .sequences = 2, .heads = m->heads[l], .head_count = HEADS - l};
        for (size_t i = 0; i < HEADS; i++)
            make_head(&m->heads[l][i], 5 + i, 7 + l, 10 * l + i);
    }
    if (tokens) {
        m->picture.tokens = hostile;
        m->picture.token_count = sizeof hostile / sizeof *hostile;
    }
}

static void unmake(made *m)
{
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < HEADS; i++)
            free(m->heads[l][i].weights);
}

/* The same picture as one file of some bytes. */
static unsigned char *drawn(const made *m, bool svg, const char *name, size_t *count)
{
    mha_error error;
    const char *path = scratch_path(name);
    assert_ok((svg ? mha__draw_svg : mha__draw_png)(&m->picture, path, &error), error);
    return scratch_read(path, count);
}

/* ---------------------------------------------------------------- PNG */

typedef struct png_image {
    size_t width, height;
    unsigned char *pixels, palette[256][3];
    size_t colours;
    char texts[2048]; /* keyword=text; of all text chunks */
} png_image;

static size_t big_endian(const unsigned char *at)
{
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

/* Reads a PNG of 8-bit palette colours whose lines are not predicted; every checksum must be right. */
static void read_png(const unsigned char *file, size_t count, png_image *image)
{
    unsigned char *packed = malloc(count);
    size_t n = 0, at = 8;
    bool ended = false;
    assert_memory_equal(file, "\x89PNG\r\n\x1a\n", 8);
    for (size_t length; at < count; at += 12 + length) {
        const unsigned char *data = file + at + 8;
        length = big_endian(file + at);
        assert_true(at + 12 + length <= count);
        assert_int_equal(crc32(0, file + at + 4, (uInt)(length + 4)), big_endian(data + length));
        if (memcmp(file + at + 4, "IHDR", 4) == 0) {
            assert_memory_equal(data + 8, "\x08\x03\0\0\0", 5);
            image->width = big_endian(data);
            image->height = big_endian(data + 4);
        } else if (memcmp(file + at + 4, "PLTE", 4) == 0) {
            memcpy(image->palette, data, length);
            image->colours = length / 3;
        } else if (memcmp(file + at + 4, "IDAT", 4) == 0) {
            memcpy(packed + n, data, length);
            n += length;
        } else if (memcmp(file + at + 4, "iTXt", 4) == 0) {
            const size_t keyword = strlen((const char *)data);
            const size_t used = strlen(image->texts);
            snprintf(image->texts + used, sizeof image->texts - used, "%s=%.*s;", (const char *)data,
                     (int)(length - keyword - 5), (const char *)data + keyword + 5);
        }
        ended = memcmp(file + at + 4, "IEND", 4) == 0;
    }
    assert_true(ended);
    uLongf size = (uLongf)((image->width + 1) * image->height);
    unsigned char *lines = malloc(size);
    assert_int_equal(uncompress(lines, &size, packed, (uLong)n), Z_OK);
    assert_int_equal(size, (image->width + 1) * image->height);
    image->pixels = malloc(image->width * image->height);
    for (size_t y = 0; y < image->height; y++) {
        assert_int_equal(lines[y * (image->width + 1)], 0);
        memcpy(image->pixels + y * image->width, lines + y * (image->width + 1) + 1, image->width);
    }
    free(lines);
    free(packed);
}

/* The colours of one cell: hidden keys have both colours of the hatching somewhere in the map. */
static void check_pixel(int index, double weight, double largest, bool logarithmic, size_t seen[MHA__PALETTE])
{
    seen[index]++;
    if (mha__is_hidden(weight))
        assert_true(index == MHA__HIDDEN_GROUND || index == MHA__HIDDEN_LINE);
    else if (isnan(weight))
        assert_int_equal(index, MHA__BROKEN);
    else if (!logarithmic) /* the nearest of 240 levels */
        assert_true(fabs(index * largest / 239 - weight) <= largest / 239 / 2 * (1 + 1e-12));
    else if (weight > largest * 1e-6) /* the nearest of 240 levels in six decades */
        assert_true(fabs(6.0 / 239 * (239 - index) + log10(weight / largest)) <= 6.0 / 239 / 2 * (1 + 1e-9));
    else
        assert_int_equal(index, 0);
}

static void check_png(bool logarithmic, bool tokens)
{
    made m;
    size_t count, again, seen[MHA__PALETTE] = {0}, inside = 0;
    make(&m, tokens);
    m.picture.logarithmic = logarithmic;
    unsigned char *file = drawn(&m, false, "a.png", &count);
    unsigned char *second = drawn(&m, false, "b.png", &again);
    assert_int_equal(count, again);
    assert_memory_equal(file, second, count);
    png_image image = {0};
    read_png(file, count, &image);
    mha__colour palette[MHA__PALETTE];
    mha__palette(palette);
    assert_int_equal(image.colours, MHA__PALETTE);
    assert_memory_equal(image.palette, palette, sizeof palette);
    mha__figure f;
    mha_error error;
    assert_ok(mha__figure_of(&m.picture, false, &f, &error), error);
    assert_int_equal(image.width, f.width);
    assert_int_equal(image.height, f.height);
    double largest = 0;
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < m.layers[l].head_count; i++)
            for (size_t c = 0; c < m.heads[l][i].rows * m.heads[l][i].columns; c++)
                largest = fmax(largest, m.heads[l][i].weights[c]);
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < m.layers[l].head_count; i++) {
            const mha__head *head = &m.heads[l][i];
            size_t left, top;
            mha__figure_place(&f, l, i, &left, &top);
            for (size_t y = 0; y < head->rows * f.cell; y++)
                for (size_t x = 0; x < head->columns * f.cell; x++, inside++)
                    check_pixel(image.pixels[(top + y) * image.width + left + x],
                                head->weights[y / f.cell * head->columns + x / f.cell], largest, logarithmic, seen);
        }
    assert_true(seen[MHA__HIDDEN_GROUND] > seen[MHA__HIDDEN_LINE] && seen[MHA__HIDDEN_LINE] > 0);
    assert_true(seen[MHA__BROKEN] > 0 && seen[0] > 0 && seen[MHA__LEVELS - 1] > 0);
    /* Outside the maps: paper, and the bar with every level at its place. */
    size_t paper = 0;
    for (size_t p = 0; p < image.width * image.height; p++)
        paper += image.pixels[p] == MHA__PAPER;
    assert_int_equal(paper + inside + f.bar_width * f.bar_height, image.width * image.height);
    for (int level = 0; level < MHA__LEVELS; level++)
        assert_int_equal(image.pixels[(f.bar_top + MHA__LEVELS - 1 - (size_t)level) * image.width + f.bar_left], level);
    char wanted[256];
    snprintf(wanted, sizeof wanted,
             "Title=a <b> & \"c\" ?[0m;Description=colours from 0 to 239: weights from 0 to "
             "%.6g%s;Software=mha %s;",
             largest, logarithmic ? ", logarithmic" : "", mha_version());
    assert_string_equal(image.texts, wanted);
    free(image.pixels);
    free(second);
    free(file);
    unmake(&m);
}

static void a_png_holds_every_cell_at_its_place(void **state)
{
    (void)state;
    check_png(false, false);
    check_png(true, false);
    check_png(false, true);
}

/* ---------------------------------------------------------------- SVG */

/* Reads a letter and a whole number behind it. */
static size_t take(const char **at, char letter)
{
    char *end;
    assert_int_equal(**at, letter);
    const size_t number = strtoul(*at + 1, &end, 10);
    *at = end;
    return number;
}

/* Reads the paths of a head back into cells: the colour of each; every cell once. */
static void check_cells(const char *group, const mha__head *head, const mha__figure *f,
                        const mha__colour palette[MHA__PALETTE])
{
    size_t painted = 0;
    const char *end = strstr(group, "<rect");
    for (const char *path = group; (path = strstr(path, "<path fill=\"")) && path < end; path++) {
        unsigned red = 256, green = 256, blue = 256;
        const bool hidden = sscanf(path, "<path fill=\"#%2x%2x%2x", &red, &green, &blue) != 3;
        if (hidden)
            assert_memory_equal(path, "<path fill=\"url(#hidden)\"", 25);
        const char *d = strstr(path, "d=\"") + 3;
        while (*d != '"') {
            const size_t x = take(&d, 'M'), y = take(&d, ' '), width = take(&d, 'h'), height = take(&d, 'v');
            assert_memory_equal(d, "h-", 2);
            d++;
            const size_t back = take(&d, '-');
            assert_int_equal(*d++, 'z');
            assert_true(back == width && height == f->cell && width % f->cell == 0 && x % f->cell == 0);
            for (size_t c = x / f->cell; c < (x + width) / f->cell; c++, painted++) {
                const double weight = head->weights[y / f->cell * head->columns + c];
                assert_int_equal(hidden, mha__is_hidden(weight));
                const mha__colour wanted = palette[mha__level(&f->shading, weight)];
                if (!hidden)
                    assert_true(red == wanted.red && green == wanted.green && blue == wanted.blue);
            }
        }
    }
    assert_int_equal(painted, head->rows * head->columns);
}

static void check_svg(bool logarithmic, bool tokens)
{
    made m;
    size_t count, again;
    make(&m, tokens);
    m.picture.logarithmic = logarithmic;
    unsigned char *file = drawn(&m, true, "a.svg", &count);
    unsigned char *second = drawn(&m, true, "b.svg", &again);
    assert_int_equal(count, again);
    assert_memory_equal(file, second, count);
    char *text = calloc(count + 1, 1);
    memcpy(text, file, count);
    assert_true(markup_walk(text) > 100);
    mha__figure f;
    mha_error error;
    mha__colour palette[MHA__PALETTE];
    mha__palette(palette);
    assert_ok(mha__figure_of(&m.picture, true, &f, &error), error);
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < m.layers[l].head_count; i++) {
            char place[64];
            size_t x, y;
            mha__figure_place(&f, l, i, &x, &y);
            snprintf(place, sizeof place, "<g transform=\"translate(%zu %zu)\"><title>", x, y);
            assert_non_null(strstr(text, place));
            check_cells(strstr(text, place), &m.heads[l][i], &f, palette);
        }
    assert_non_null(strstr(text, "a &lt;b&gt; &amp; &quot;c&quot; ?[0m</title>"));
    assert_non_null(strstr(text, ">&lt;script&gt;aler batch 0 head 0</text>")); /* the layer's name, cut */
    assert_non_null(strstr(text, logarithmic ? "weight, log" : ">weight<"));
    assert_true((strstr(text, ">caf\xc3\xa9</text>") != NULL) == tokens);
    if (tokens)
        assert_non_null(strstr(text, ">??? half</text>"));
    free(text);
    free(second);
    free(file);
    unmake(&m);
}

static void an_svg_holds_every_cell_and_no_markup_from_outside(void **state)
{
    (void)state;
    check_svg(false, true);
    check_svg(true, true);
    check_svg(false, false);
}

/* A map with more cells than the drawing has pixels: the least pool that fits, largest weights, stated. */
static void a_large_map_is_pooled_by_its_largest_weights(void **state)
{
    (void)state;
    enum { N = 1121, POOL = 3, CELLS = 374 }; /* 560 pixels for one head */
    mha__head head;
    make_head(&head, N, N, 3);
    mha__head pooled = {.rows = CELLS, .columns = CELLS, .weights = malloc(sizeof(double) * CELLS * CELLS)};
    for (size_t i = 0; i < CELLS * CELLS; i++) {
        double largest = MHA__HIDDEN;
        for (size_t c = 0; c < POOL * POOL; c++) {
            const size_t row = i / CELLS * POOL + c / POOL, column = i % CELLS * POOL + c % POOL;
            const double w = row < N && column < N ? head.weights[row * N + column] : MHA__HIDDEN;
            largest = isnan(w) || isnan(largest) ? NAN : fmax(largest, w);
        }
        pooled.weights[i] = largest;
    }
    mha__picture_layer layer = {.name = "", .heads = &head, .head_count = 1};
    mha__picture picture = {.memory.allocator = mha__allocator_default(), .layers = &layer, .layer_count = 1};
    mha__figure f;
    mha__colour palette[MHA__PALETTE];
    mha_error error;
    size_t count;
    const char *path = scratch_path("pooled.svg");
    mha__palette(palette);
    assert_ok(mha__draw_svg(&picture, path, &error), error);
    assert_ok(mha__figure_of(&picture, true, &f, &error), error);
    bytes text = {.data = scratch_read(path, &count)};
    text.count = text.room = count;
    bytes_zeros(&text, 1);
    assert_non_null(strstr((char *)text.data, "; each cell is the largest of 3 x 3 weights</title>"));
    check_cells(strstr((char *)text.data, "crispEdges"), &pooled, &f, palette);
    bytes_free(&text);
    free(pooled.weights);
    free(head.weights);
}

/* ---------------------------------------------------------------- what cannot be drawn */

static void what_cannot_be_drawn_leaves_no_file(void **state)
{
    (void)state;
    made m;
    mha_error error;
    make(&m, true);
    const size_t before = scratch_count_files();
    assert_refused(mha__draw_svg(&m.picture, "/dev/full", &error), MHA_IO, error, "/dev/full");
    assert_refused(mha__draw_png(&m.picture, "/dev/full", &error), MHA_IO, error, "/dev/full");
    assert_refused(mha__draw_png(&m.picture, scratch_path("missing/a.png"), &error), MHA_IO, error, "a.png");
    const mha__picture none = {.memory.allocator = m.picture.memory.allocator};
    assert_refused(mha__draw_svg(&none, scratch_path("none.svg"), &error), MHA_INVALID, error, "found none");
    m.layers[0].head_count = 0; /* a layer without heads takes no room */
    free(drawn(&m, true, "kept.svg", &(size_t){0}));
    assert_int_equal(scratch_count_files(), before + 1);
    unmake(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_png_holds_every_cell_at_its_place),
        cmocka_unit_test(an_svg_holds_every_cell_and_no_markup_from_outside),
        cmocka_unit_test(a_large_map_is_pooled_by_its_largest_weights),
        cmocka_unit_test(what_cannot_be_drawn_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
