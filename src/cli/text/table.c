/* Tables: collects cells, then finds widths and writes them as aligned text, Markdown, LaTeX or CSV; or writes each row
 * as soon as it is whole. */
#include "cli/text/print.h"

#include <ctype.h>

typedef struct heading {
    char *title;
    bool right;      /* aligned to the right */
    size_t optional; /* 3 is left out first on a narrow line, 0 last */
} heading;

struct table {
    size_t n_columns;
    const char *const *given; /* the columns: marks, a title, and what reports say behind it */
    heading *columns;
    char **cells; /* row by row */
    size_t n_cells, capacity;
    size_t *widths; /* of a table whose rows are written as they come; else NULL */
};

static void write_rows(const table *t, const size_t *width);

/* Whether a spreadsheet would compute the text: one that begins like a formula and is no number. */
static bool is_formula(const char *text)
{
    char *end;
    return *text && strchr("=+-@", *text) && (strtod(text, &end), *end);
}

/* The replacement of a character that a style reads as markup; NULL for every other character. */
static const char *escape_of(char c)
{
    static const struct {
        const char *markup, *as[15];
    } escapes[] = {
        [TABLE_MARKDOWN] = {"\\`*[<|~$&", {"\\\\", "\\`", "\\*", "\\[", "\\<", "\\|", "\\~", "\\$", "\\&"}},
        /* A row may not begin with a star or a bracket, which the end of the row before it would take. */
        [TABLE_LATEX] = {"\\~^&%$#_{}<>|*[",
                         {"\\textbackslash{}", "\\textasciitilde{}", "\\textasciicircum{}", "\\&", "\\%", "\\$", "\\#",
                          "\\_", "\\{", "\\}", "\\textless{}", "\\textgreater{}", "\\textbar{}", "{*}", "{[}"}},
    };
    const char *markup = tables_style() <= TABLE_LATEX ? escapes[tables_style()].markup : NULL,
               *at = markup ? strchr(markup, c) : NULL;
    return at ? escapes[tables_style()].as[at - markup] : NULL;
}

/* A copy of a text that a style shows as it is. Must be freed. */
static char *escaped(const char *text)
{
    enum { LONGEST_ESCAPE = 18 };
    const size_t length = strlen(text);
    char *copy = obtain(length + 1, 1), *cell = obtain(LONGEST_ESCAPE * length + 2, 1), *to = cell;
    memcpy(copy, text, length);
    mha__text_harmless(copy);
    if (tables_style() == TABLE_CSV && is_formula(copy))
        *to++ = '\'';
    for (const char *from = copy; *from; from++) {
        const bool inside = from > copy && isalnum((unsigned char)from[-1]) && isalnum((unsigned char)from[1]);
        const char *escape = *from == '_' && tables_style() == TABLE_MARKDOWN && !inside ? "\\_" : escape_of(*from);
        const size_t n = escape ? strlen(escape) : 1;
        memcpy(to, escape ? escape : from, n);
        to += n;
    }
    *to = '\0';
    free(copy);
    return cell;
}

table *table_create(size_t n_columns, const char *const *columns)
{
    table *t = obtain(1, sizeof *t);
    *t = (table){n_columns, columns, .columns = obtain(n_columns, sizeof *t->columns)};
    for (size_t c = 0; c < n_columns; c++) {
        const char *at = columns[c], *end = strstr(at, ": ");
        for (; *at == '?' || *at == '>'; at++) {
            t->columns[c].right |= *at == '>';
            t->columns[c].optional += *at == '?';
        }
        t->columns[c].title = escaped(text_of("%.*s", end ? (int)(end - at) : (int)strlen(at), at));
    }
    return t;
}

const char *table_column(const table *t, size_t column)
{
    return column < t->n_columns ? t->given[column] : NULL;
}

static void forget_cells(table *t)
{
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i]);
    t->n_cells = 0;
}

static void add(table *t, char *owned)
{
    t->cells = obtain_more(t->cells, t->n_cells, &t->capacity, sizeof *t->cells);
    t->cells[t->n_cells++] = owned;
    if (!t->widths || t->n_cells < t->n_columns)
        return;
    write_rows(t, t->widths);
    fflush(stdout);
    forget_cells(t);
}

/* Adds a cell, without what would control a terminal, be markup in Markdown or LaTeX, or a formula in a spreadsheet. */
void table_cell(table *t, const char *text)
{
    add(t, escaped(text));
}

/* ---------------------------------------------------------------- writing */

static void spaces(size_t n, int with)
{
    while (n-- > 0)
        putchar(with);
}

/* Writes one row without spaces at its end; `row` NULL: the titles. A column of width 0 is left out, and text too long
 * for its column is continued on the lines below. */
static void write_line(const table *t, const size_t *width, char *const *row)
{
    const size_t before = kept_count();
    const char **rest = keep(obtain(t->n_columns, sizeof *rest));
    bool more = true;
    for (size_t c = 0; c < t->n_columns; c++)
        rest[c] = row ? row[c] : t->columns[c].title;
    while (more) {
        size_t pending = 0;
        more = false;
        for (size_t c = 0; c < t->n_columns; c++) {
            if (width[c] == 0)
                continue;
            const bool right = t->columns[c].right;
            const size_t n = t->widths && c + 1 < t->n_columns ? strlen(rest[c]) : bytes_that_fit(rest[c], width[c]);
            const char *piece = text_of("%.*s", (int)n, rest[c]);
            const size_t own = mha__text_width(piece), pad = own < width[c] ? width[c] - own : 0;
            pending += 2 + (right ? pad : 0);
            if (n > 0) {
                spaces(pending, ' ');
                fputs(piece, stdout);
                pending = 0;
            }
            pending += right ? 0 : pad;
            rest[c] += n + (rest[c][n] == ' ');
            more |= *rest[c] != '\0';
        }
        putchar('\n');
    }
    drop_kept(before);
}

static bool is_wide;

void tables_wide(void)
{
    is_wide = true;
}

/* By how many characters the columns are wider than the line. */
static size_t excess(const table *t, const size_t *width)
{
    size_t sum = 0;
    for (size_t c = 0; c < t->n_columns; c++)
        sum += width[c] ? width[c] + 2 : 0;
    return sum > line_width() && !is_wide ? sum - line_width() : 0;
}

/* The width that a column cannot go below: of numbers, that of its cells and of the words of its title, which is then
 * written on several lines. */
static size_t least_width(const table *t, size_t column)
{
    size_t least = 0;
    for (const char *word = t->columns[column].title; *word; word += strspn(word, " ")) {
        const size_t n = strcspn(word, " ");
        least = n > least ? n : least;
        word += n;
    }
    for (size_t i = column; i < t->n_cells; i += t->n_columns) {
        const size_t w = mha__text_width(t->cells[i]);
        least = w > least ? w : least;
    }
    return least;
}

/* Narrows one column as far as that helps. */
static void narrow(const table *t, size_t *width, size_t column, size_t least)
{
    const size_t room = width[column] > least ? width[column] - least : 0, most = excess(t, width);
    width[column] -= most < room ? most : room;
}

/* Narrows the columns of text, the widest first. */
static void narrow_text(const table *t, size_t *width, size_t least)
{
    for (size_t widest = 0; excess(t, width) > 0 && widest < t->n_columns;) {
        widest = t->n_columns;
        for (size_t c = 0; c < t->n_columns; c++)
            if (!t->columns[c].right && width[c] > least && (widest == t->n_columns || width[c] > width[widest]))
                widest = c;
        if (widest < t->n_columns)
            width[widest]--;
    }
}

/* Leaves out the columns with so many '?', from the right. */
static void leave_out(const table *t, size_t *width, size_t marks)
{
    for (size_t c = t->n_columns; c-- > 0;)
        if (excess(t, width) > 0 && t->columns[c].optional == marks)
            width[c] = 0;
}

/* Fits the table to the line, the columns that matter least first. */
static void fit(const table *t, size_t *width)
{
    enum { ROOMY = 32, NARROW = 20, NARROWEST = 12 };
    const size_t last = t->n_columns - 1;
    const bool whole = width != t->widths; /* all rows are known */
    leave_out(t, width, 3);
    if (!t->columns[last].right)
        narrow(t, width, last, NARROW);
    for (size_t c = 0; c < t->n_columns && whole; c++)
        if (t->columns[c].right)
            narrow(t, width, c, least_width(t, c));
    if (whole)
        narrow_text(t, width, ROOMY);
    leave_out(t, width, 2);
    leave_out(t, width, 1);
    narrow_text(t, width, NARROW);
    narrow_text(t, width, NARROWEST);
    for (size_t c = t->n_columns; c-- > 1;)
        if (excess(t, width) > 0)
            width[c] = 0;
}

/* Names the columns that the line has no room for. */
static void write_left_out(const table *t, const size_t *width)
{
    const char *names = "";
    for (size_t c = 0; c < t->n_columns; c++)
        if (width[c] == 0 && *t->columns[c].title)
            names = text_more(names, "%s%s", *names ? ", " : "", t->columns[c].title);
    if (*names)
        say("  not shown for want of room: %s (--wide, --json)\n", names);
}

/* The text around the cells of a row. */
typedef struct row_marks {
    const char *before, *between, *after;
} row_marks;

/* Writes the titles, with `row` NULL, or a row; leaves out columns without title and text. */
static void write_marked(const table *t, const size_t *width, char *const *row, row_marks marks)
{
    const char *between = marks.before;
    for (size_t c = 0; c < t->n_columns; c++) {
        if (width[c] == 0)
            continue;
        const char *text = row ? row[c] : t->columns[c].title;
        const size_t pad = width[c] - mha__text_width(text);
        fputs(between, stdout);
        spaces(t->columns[c].right ? pad : 0, ' ');
        fputs(text, stdout);
        spaces(t->columns[c].right ? 0 : pad, ' ');
        between = marks.between;
    }
    puts(marks.after);
}

static void write_markdown(const table *t, const size_t *width)
{
    static const row_marks marks = {"| ", " | ", " |"};
    const char *between = marks.before;
    write_marked(t, width, NULL, marks);
    for (size_t c = 0; c < t->n_columns; c++)
        if (width[c]) {
            fputs(between, stdout);
            spaces(width[c] - 1, '-');
            putchar(t->columns[c].right ? ':' : '-');
            between = marks.between;
        }
    puts(marks.after);
    for (size_t i = 0; i < t->n_cells; i += t->n_columns)
        write_marked(t, width, t->cells + i, marks);
}

/* A tabular of LaTeX, which needs no package. */
static void write_latex(const table *t, const size_t *width)
{
    static const row_marks marks = {"", " & ", " \\\\"};
    fputs("\\begin{tabular}{", stdout);
    for (size_t c = 0; c < t->n_columns; c++)
        if (width[c])
            putchar(t->columns[c].right ? 'r' : 'l');
    puts("}\n\\hline");
    write_marked(t, width, NULL, marks);
    puts("\\hline");
    for (size_t i = 0; i < t->n_cells; i += t->n_columns)
        write_marked(t, width, t->cells + i, marks);
    puts("\\hline\n\\end{tabular}");
}

/* Writes a cell as in RFC 4180: quotes around text with a comma or a quote; quotes inside are doubled. */
static void write_csv_cell(const char *text, bool last)
{
    bool quoted = strpbrk(text, ",\"") != NULL;
    if (quoted)
        putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    if (quoted)
        putchar('"');
    putchar(last ? '\n' : ',');
}

/* The titles of text, fitted to the terminal, or of CSV. */
static void write_titles(const table *t, size_t *width)
{
    for (size_t c = 0; tables_style() == TABLE_CSV && c < t->n_columns; c++)
        write_csv_cell(t->columns[c].title, c + 1 == t->n_columns);
    if (tables_style() == TABLE_CSV)
        return;
    fit(t, width);
    fputs(bold(), stdout);
    write_line(t, width, NULL);
    fputs(plain(), stdout);
}

static void write_rows(const table *t, const size_t *width)
{
    for (size_t i = 0; i < t->n_cells; i++)
        if (tables_style() == TABLE_CSV)
            write_csv_cell(t->cells[i], (i + 1) % t->n_columns == 0);
        else if (i % t->n_columns == 0)
            write_line(t, width, t->cells + i);
}

table *table_begin(size_t n_columns, const char *const *columns, const size_t *widths)
{
    table *t = table_create(n_columns, columns);
    t->widths = obtain(n_columns, sizeof *t->widths);
    for (size_t c = 0; c < n_columns; c++) {
        const size_t w = mha__text_width(t->columns[c].title);
        t->widths[c] = w > widths[c] ? w : widths[c];
    }
    write_titles(t, t->widths);
    fflush(stdout);
    return t;
}

static const char *name = "";

void table_name(const char *text)
{
    name = text;
}

void table_print(table *t)
{
    size_t *width = keep(obtain(t->n_columns, sizeof *width));
    for (size_t c = 0; c < t->n_columns; c++) {
        width[c] = mha__text_width(t->columns[c].title);
        for (size_t i = c; i < t->n_cells; i += t->n_columns) {
            size_t w = mha__text_width(t->cells[i]);
            width[c] = w > width[c] ? w : width[c];
        }
    }
    static bool again;
    if (tables_style() != TABLE_TEXT && again)
        putchar('\n');
    again = true;
    if (*name && (tables_style() == TABLE_MARKDOWN || tables_style() == TABLE_LATEX)) {
        char *shown = escaped(name);
        printf(tables_style() == TABLE_MARKDOWN ? "**%s**\n\n" : "\\textbf{%s}\n\n", shown);
        free(shown);
    }
    name = "";
    if (tables_style() == TABLE_MARKDOWN) {
        write_markdown(t, width);
    } else if (tables_style() == TABLE_LATEX) {
        write_latex(t, width);
    } else {
        write_titles(t, width);
        write_rows(t, width);
        if (tables_style() == TABLE_TEXT)
            write_left_out(t, width);
    }
    table_drop(t);
}

void table_drop(table *t)
{
    forget_cells(t);
    free(t->cells);
    free(t->widths);
    for (size_t c = 0; c < t->n_columns; c++)
        free(t->columns[c].title);
    free(t->columns);
    free(t);
}
