/* Draws the maps of heads in characters, on a terminal of 256 colours each with a colour of its own. */
#include "cli/pictures/pictures.h"

#include "picture/draw/figure.h"

enum { LABEL = 8, LEAST_WIDTH = 10, FRAME = 3 }; /* FRAME: both sides of a map, and a blank behind it */

/* ---------------------------------------------------------------- colours */

static bool variable_holds(const char *name, const char *text)
{
    const char *value = getenv(name);
    return value && strstr(value, text);
}

static bool has_many_colours(void)
{
    return has_colour() && (variable_holds("TERM", "256color") || variable_holds("COLORTERM", "truecolor") ||
                            variable_holds("COLORTERM", "24bit"));
}

/* The nearest colour of the cube of 6 x 6 x 6 that terminals number from 16. */
static int cube_colour(mha__colour c)
{
    static const int values[] = {0, 95, 135, 175, 215, 255};
    const uint8_t parts[] = {c.red, c.green, c.blue};
    int number = 0;
    for (int i = 0; i < 3; i++) {
        int nearest = 0;
        for (int v = 1; v < 6; v++)
            if (abs(values[v] - parts[i]) < abs(values[nearest] - parts[i]))
                nearest = v;
        number = 6 * number + nearest;
    }
    return 16 + number;
}

/* ---------------------------------------------------------------- maps */

typedef struct map_sheet {
    const mha__picture *picture;
    bool coloured;
    mha__shading shading;
    mha__colour palette[MHA__PALETTE];
    size_t pool_rows, pool_columns; /* rows and columns of a map in one cell */
    size_t cell;                    /* characters of a cell */
    size_t rows, columns;           /* cells */
    size_t abreast;                 /* maps in a line */
} map_sheet;

static void lay_out(map_sheet *s, const mha__picture_layer *layer)
{
    const size_t width = line_width() > LABEL + LEAST_WIDTH ? line_width() - LABEL : LEAST_WIDTH;
    size_t rows = 1, columns = 1;
    for (size_t i = 0; i < layer->head_count; i++) {
        rows = layer->heads[i].rows > rows ? layer->heads[i].rows : rows;
        columns = layer->heads[i].columns > columns ? layer->heads[i].columns : columns;
    }
    const size_t most = width > FRAME ? width - FRAME : 1;
    s->pool_rows = mha__cells_of(rows, rows <= 32 ? 32 : 16);
    s->pool_columns = mha__cells_of(columns, most < 64 ? most : 64);
    s->rows = mha__cells_of(rows, s->pool_rows);
    s->columns = mha__cells_of(columns, s->pool_columns);
    s->cell = s->columns <= 16 && 2 * s->columns <= most ? 2 : 1;
    s->abreast = width / (s->columns * s->cell + FRAME);
    s->abreast = s->abreast ? s->abreast : 1;
}

/* One row. Characters are relative to the row's largest weight: otherwise the early rows of a causal layer, which share
 * their weight among few keys, would outshine the later ones. Colours are relative to the largest of the picture, and
 * more is brighter. */
static void print_row(const map_sheet *s, const mha__head *head, size_t row)
{
    static const char shades[] = ".:-=+*#%@";
    double largest = 0;
    for (size_t c = 0; c < s->columns; c++)
        largest = fmax(largest, mha__pooled(head, row, c, s->pool_rows, s->pool_columns));
    putchar('|');
    for (size_t c = 0; c < s->columns; c++) {
        const double weight = mha__pooled(head, row, c, s->pool_rows, s->pool_columns);
        const int shade = weight > 0 && isfinite(largest) ? shades[(size_t)(8 * weight / largest)] : '.';
        const int level = mha__level(&s->shading, weight);
        const bool coloured = s->coloured && !mha__is_hidden(weight);
        if (coloured)
            printf("\033[48;5;%dm", cube_colour(s->palette[level < MHA__LEVELS ? MHA__LEVELS - 1 - level : level]));
        for (size_t i = 0; i < s->cell; i++)
            putchar(mha__is_hidden(weight) ? ' ' : isfinite(weight) ? shade : '?');
        if (coloured)
            fputs("\033[0m", stdout);
    }
    putchar('|');
}

/* ---------------------------------------------------------------- lines */

/* The name of the query at the beginning of a line, or its number, in LABEL columns: one that is longer ends in "~". A
 * character of three bytes or more may be two columns wide. */
static void print_label(const map_sheet *s, const mha__picture_layer *layer, const mha__head *head, size_t row)
{
    const size_t query = head->first_query + row * s->pool_rows * head->pool_rows;
    const int64_t position = (int64_t)query + layer->offset;
    char text[LABEL * 4];
    if (s->picture->token_count == 0 || position < 0 || (uint64_t)position >= s->picture->token_count)
        mha__text_print(text, sizeof text, "%zu", query);
    else
        mha__text_print(text, sizeof text, "%s", s->picture->tokens[position]);
    mha__text_harmless(text);
    size_t bytes = 0, width = 0;
    for (; text[bytes]; bytes++) {
        const unsigned char c = (unsigned char)text[bytes];
        const size_t here = c >= 0xE0 ? 2 : (c & 0xC0) != 0x80;
        const bool last = text[bytes + 1] == '\0';
        if (width + here > LABEL - (last ? 2 : 3) && here > 0) {
            text[bytes++] = '~';
            width++;
            break;
        }
        width += here;
    }
    printf("%*s%.*s ", (int)(LABEL - 1 - width), "", (int)bytes, text);
}

/* `pads` up to the next map. */
static void print_title(const map_sheet *s, const mha__picture_layer *layer, const mha__head *head, bool pads)
{
    char text[64];
    const size_t width = s->columns * s->cell + 2;
    if (layer->sequences > 1)
        snprintf(text, sizeof text, "batch %zu head %zu", head->sequence, head->head);
    else
        snprintf(text, sizeof text, "head %zu", head->head);
    printf("%-*.*s", pads ? (int)width + 1 : 0, (int)width, text);
}

static void print_maps(const map_sheet *s, const mha__picture_layer *layer, size_t first, size_t past)
{
    printf("%*s", LABEL, "");
    for (size_t i = first; i < past; i++)
        print_title(s, layer, &layer->heads[i], i + 1 < past);
    putchar('\n');
    for (size_t row = 0; row < s->rows; row++) {
        print_label(s, layer, &layer->heads[first], row);
        for (size_t i = first; i < past; i++) {
            print_row(s, &layer->heads[i], row);
            if (i + 1 < past)
                putchar(' ');
        }
        putchar('\n');
    }
}

static void print_legend(const map_sheet *s, const mha__picture_layer *layer)
{
    const mha__head *head = layer->heads;
    const size_t keys[] = {head->first_key, head->first_key + head->keys - 1};
    const size_t pool[] = {s->pool_rows * head->pool_rows, s->pool_columns * head->pool_columns};
    write_prose(
        "Queries from top to bottom, keys %zu to %zu from left to right; %s is more attention, blank a hidden key.",
        keys[0], keys[1], s->coloured ? "brighter" : "darker");
    if (s->coloured)
        write_prose("The brightest is %s.", real_text(s->shading.largest));
    if (pool[0] * pool[1] > 1)
        write_prose("Each cell is the largest of %zu x %zu weights.", pool[0], pool[1]);
}

void terminal_map_print(const mha__picture *picture)
{
    map_sheet s = {.picture = picture, .coloured = has_many_colours(), .shading = mha__shading_of(picture)};
    mha__palette(s.palette);
    for (size_t l = 0; l < picture->layer_count && tables_style() == TABLE_TEXT; l++) {
        const mha__picture_layer *layer = &picture->layers[l];
        if (layer->head_count == 0 || layer->heads[0].rows * layer->heads[0].columns == 0)
            continue;
        lay_out(&s, layer);
        if (l == 0)
            print_legend(&s, layer);
        putchar('\n');
        if (picture->layer_count > 1)
            say_harmless("%s\n", layer->name);
        const size_t most = 2 * s.abreast < layer->head_count ? 2 * s.abreast : layer->head_count;
        for (size_t first = 0; first < most; first += s.abreast)
            print_maps(&s, layer, first, first + s.abreast < most ? first + s.abreast : most);
    }
}
