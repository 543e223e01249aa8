/* Unnamed products: dQ, dK or dV of other matrices, of rows that are read or rounded differently, or of some of their
 * terms. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/backward/explain/unnamed.h"
#include "verify/bugs/bugs.h"
#include "verify/thresholds/thresholds.h"

/* ---------------------------------------------------------------- one product */

/* Which terms of a sum count: those of a part of the tiles of keys or queries, or of the heads of a group. */
typedef enum terms { ALL_TERMS, TERMS_TILE, TERMS_DIAGONAL, TERMS_HEAD } terms;

typedef struct product {
    int gradient, matrix, rows;
    bool turned;    /* rows of the gradient are columns of the matrix */
    int read, axis; /* what is read by w->from: */
    int bits;       /* to which rows are rounded; 0: they are not */
    terms terms;
    size_t tile, which;   /* of terms */
    double others, those; /* how often terms count: those, and the others */
} product;
enum { READ_NOTHING, READ_ROWS, READ_MATRIX };

static product right_product(int g)
{
    static const int rows[] = {MHA__ROWS_K, MHA__ROWS_Q, MHA__ROWS_DO};
    return (product){.gradient = g,
                     .matrix = g == MHA_D_VALUE ? MHA__MATRIX_P : MHA__MATRIX_DS,
                     .rows = rows[g],
                     .turned = g != MHA_D_QUERY};
}

/* Row t of a head, as a product reads it; NULL: it reads a zero. */
static const double *row_at(const mha__whole *w, const product *p, size_t b, size_t t, size_t head)
{
    const mha__extents *n = &w->rows[p->rows].n;
    mha__element at = {{b, t, mha__are_keys(p->rows) ? head / w->group : head, 0}};
    if (p->read == READ_ROWS && p->axis != MHA__C)
        at.at[p->axis] = w->from[at.at[p->axis]];
    if (at.at[MHA__B] >= w->B || at.at[MHA__T] >= n->n[MHA__T] || at.at[MHA__H] >= n->n[MHA__H])
        return NULL;
    return w->rows[p->rows].data + mha__join(n, MHA__BTHC, at);
}

static double weight_at(const mha__whole *w, const product *p, size_t b, size_t head, size_t i, size_t j)
{
    size_t at[4] = {b, i, head, j};
    if (p->read == READ_MATRIX)
        at[p->axis] = w->from[at[p->axis]];
    const bool has = at[0] < w->B && at[1] < w->T && at[2] < w->H && at[3] < w->S;
    return has ? w->matrix[p->matrix][((at[0] * w->H + at[2]) * w->T + at[1]) * w->S + at[3]] : 0;
}

/* How often term t of row r counts. */
static double counts(const mha__whole *w, const product *p, size_t head, size_t r, size_t t)
{
    const bool those = p->terms == TERMS_TILE       ? t / p->tile == p->which
                       : p->terms == TERMS_DIAGONAL ? t / p->tile == r / p->tile
                                                    : head % w->group == p->which;
    return p->terms == ALL_TERMS ? 1 : those ? p->those : p->others;
}

/* Row r of a head of a gradient, and the sizes of what it is a sum of. */
static void make_row(const mha__whole *w, const product *p, size_t b, size_t head, size_t r, double *row, double *sizes)
{
    const mha__sizes *plan = &w->b->r->plan;
    const bool of_q = p->gradient == MHA_D_QUERY;
    const size_t d = mha__width_of_rows(w, p->rows), heads = of_q ? 1 : w->group, n = of_q ? w->S : w->T;
    const double scale = p->gradient == MHA_D_VALUE ? 1 : plan->scale;
    memset(row, 0, d * sizeof *row), memset(sizes, 0, d * sizeof *sizes);
    for (size_t h = 0; h < heads; h++) {
        const size_t of = of_q ? head : head * w->group + h;
        for (size_t t = 0; t < n; t++) {
            const size_t i = p->turned ? t : r, j = p->turned ? r : t;
            const double f = scale * counts(w, p, of, r, t) * weight_at(w, p, b, of, i, j),
                         *x = f != 0 ? row_at(w, p, b, t, of) : NULL;
            for (size_t c = 0; x && c < d; c++) {
                const size_t at = p->read == READ_ROWS && p->axis == MHA__C ? w->from[c] : c;
                const double y = at >= d ? 0 : p->bits ? mha__round_bits(x[at], p->bits) : x[at];
                row[c] += f * y, sizes[c] += fabs(f * y);
            }
        }
    }
}

/* ---------------------------------------------------------------- whether it gives a gradient */

/* Row `at` of all rows of a gradient, (B, T or S, heads). */
static const double *found_at(const mha__whole *w, int g, size_t at, mha__element *of)
{
    const size_t first = at * w->rows[g].n.n[MHA__C];
    *of = mha__split(&w->rows[g].n, MHA__BTHC, first);
    return w->found[g] + first;
}

static size_t rows_of(const mha__whole *w, int g)
{
    return mha__elements(&w->rows[g].n) / w->rows[g].n.n[MHA__C];
}

/* What a sum may be off by, by its size: as the bound of the right gradient has it; `largest`: its largest number. */
typedef struct limit {
    double of_size, of_all;
    size_t row; /* the one that is farthest off */
} limit;

static limit limit_of(const mha__gradient_search *s, const mha__whole *w, int g)
{
    const product right = right_product(g);
    const size_t d = mha__width_of_rows(w, g);
    double *row = w->row, *sizes = row + d, error = 0, size = 0, largest = 0, most = -1;
    limit l = {.of_size = 0};
    for (size_t e = 0; e < mha_view_elements(&s->right[g]); e++) {
        const double E = ((const double *)s->right[g].data)[e];
        error = isfinite(E) ? fmax(error, E) : error;
    }
    for (size_t at = 0; at < rows_of(w, g); at++) {
        mha__element of;
        const double *found = found_at(w, g, at, &of);
        make_row(w, &right, of.at[MHA__B], of.at[MHA__H], of.at[MHA__T], row, sizes);
        for (size_t c = 0; c < d; c++) {
            size = fmax(size, sizes[c]), largest = fmax(largest, fabs(found[c]));
            if (fabs(found[c] - row[c]) > most)
                most = fabs(found[c] - row[c]), l.row = at;
        }
    }
    l.of_size = MHA__PRODUCT_ERRORS * error / size, l.of_all = MHA__PART * s->e.unit * largest;
    return l;
}

static bool is_row_near(const mha__whole *w, const product *p, const limit *l, const mha__places *in, size_t at)
{
    const size_t d = mha__width_of_rows(w, p->rows);
    mha__element of;
    const double *found = found_at(w, p->gradient, at, &of);
    double *row = w->row, *sizes = row + d;
    if (in && !mha__places_have(in, of.at[MHA__B], of.at[MHA__H], of.at[MHA__T]))
        return true;
    make_row(w, p, of.at[MHA__B], of.at[MHA__H], of.at[MHA__T], row, sizes);
    for (size_t c = 0; c < d; c++)
        if (!(fabs(row[c] - found[c]) <= l->of_size * sizes[c] + l->of_all))
            return false;
    return true;
}

static bool gives(const mha__gradient_search *s, const mha__whole *w, const product *p, const limit *l)
{
    bool near = is_row_near(w, p, l, NULL, l->row);
    for (size_t at = 0; at < rows_of(w, p->gradient) && near; at++)
        near = is_row_near(w, p, l, mha__places_of(s, p->gradient), at);
    return near;
}

/* ---------------------------------------------------------------- all of them */

static const char *const matrices[] = {"P", "dS", "dP", "dZ"}, *const names[] = {"dQ", "dK", "dV"};

/* Makes product `index` of other operands. */
static bool take_operands(const mha__whole *w, size_t index, product *p, char *text, size_t size)
{
    const product right = *p;
    p->rows = (int)(index % MHA__ROW_KINDS), p->turned = index / MHA__ROW_KINDS % 2;
    p->matrix = (int)(index / MHA__ROW_KINDS / 2);
    const bool of_keys = p->gradient == MHA_D_QUERY, other_rows = mha__are_keys(p->rows) != of_keys;
    if (mha__width_of_rows(w, p->rows) != mha__width_of_rows(w, right.rows) ||
        ((other_rows || p->turned != right.turned) && w->T != w->S))
        return false;
    mha__text_print(text, size, "%s%s %s in place of %s%s %s", matrices[p->matrix], p->turned ? "^T" : "",
                    mha__row_kinds[p->rows], matrices[right.matrix], right.turned ? "^T" : "",
                    mha__row_kinds[right.rows]);
    return p->matrix != right.matrix || p->turned != right.turned || p->rows != right.rows;
}

/* Makes product `index` of rows, or of a matrix, that are read otherwise. */
static bool take_reading(const mha__whole *w, size_t index, product *p, char *text, size_t size)
{
    static const char *const of_matrix[] = {"batch row", "query", "head", "key"};
    const size_t readings = mha__reading_count();
    char says[128];
    p->axis = (int)(index / readings % 4), p->read = index / readings / 4 ? READ_MATRIX : READ_ROWS;
    const bool rows = p->read == READ_ROWS;
    const size_t of_matrix_n[] = {w->B, w->T, w->H, w->S}, *n = rows ? w->rows[p->rows].n.n : of_matrix_n;
    const char *unit = (rows ? mha__units : of_matrix)[p->axis];
    if (!mha__reading(index % readings, n[p->axis], unit, w->from, says, sizeof says))
        return false;
    mha__text_print(text, size, "%ss of %s %s", unit, rows ? mha__row_kinds[p->rows] : matrices[p->matrix], says);
    return true;
}

static const size_t tiles[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128};
enum { TILES = sizeof tiles / sizeof *tiles, MOST_TILES = 64 };

/* Makes product `index` a sum of a part of its terms. */
static bool take_terms(const mha__whole *w, size_t index, product *p, char *text, size_t size)
{
    static const struct {
        double those, others;
        const char *says;
    } how[] = {{0, 1, "lacks"}, {1, 0, "has only"}, {2, 1, "has twice"}, {-1, 1, "has with the other sign"}};
    const size_t n = p->gradient == MHA_D_QUERY ? w->S : w->T, h = index % 4, tile = tiles[index / 4 % TILES],
                 which = index / 4 / TILES % (MOST_TILES + 1);
    const char *unit = p->gradient == MHA_D_QUERY ? "key" : "query";
    p->those = how[h].those, p->others = how[h].others, p->tile = tile, p->which = which;
    if (index / 4 / TILES > MOST_TILES) {
        p->terms = TERMS_HEAD;
        if (p->gradient == MHA_D_QUERY || tile > 1 || which >= w->group || w->group < 2)
            return false;
        mha__text_print(text, size, "%s head %zu of each group", how[h].says, which);
    } else if (which == MOST_TILES) {
        p->terms = TERMS_DIAGONAL;
        if (tile < 2 || tile >= n)
            return false;
        mha__text_print(text, size, "%s the diagonal tiles of %zu", how[h].says, tile);
    } else {
        p->terms = TERMS_TILE;
        if (which * tile >= n || tile >= n)
            return false;
        const size_t end = which * tile + tile < n ? which * tile + tile : n;
        if (tile == 1)
            mha__text_print(text, size, "%s %s %zu", how[h].says, unit, which);
        else
            mha__text_print(text, size, "%s tile %zu of %zu %s (%zu-%zu)", how[h].says, which, tile,
                            p->gradient == MHA_D_QUERY ? "keys" : "queries", which * tile, end - 1);
    }
    return true;
}

static bool take_bits(const mha__whole *w, size_t index, product *p, char *text, size_t size)
{
    (void)w;
    p->bits = mha__types[index].bits;
    mha__text_print(text, size, "%s rounded to %s", mha__row_kinds[p->rows], mha__types[index].type);
    return true;
}

/* Looks for one change that gives all gradients that are wrong, or for one for each. */
static bool look_for(mha__gradient_search *s, const mha__whole *w, const limit *limits,
                     bool (*take)(const mha__whole *w, size_t index, product *p, char *text, size_t size), size_t count,
                     char (*said)[160])
{
    for (size_t index = 0; index < count && !mha__is_over(s); index++) {
        bool all = true, any = false;
        char text[MHA_D_VALUE + 1][160];
        for (int g = 0; g <= MHA_D_VALUE; g++) {
            product p = right_product(g);
            if (!s->wrong[g])
                continue;
            const bool given = take(w, index, &p, text[g], sizeof text[g]) && gives(s, w, &p, &limits[g]);
            all &= given, any |= given;
            if (given && !*said[g])
                memcpy(said[g], text[g], sizeof text[g]);
        }
        if (all && any) {
            memcpy(said, text, sizeof text);
            return true;
        }
    }
    return false;
}

mha_status mha__unnamed_products(mha__gradient_search *s, const mha__whole *w, bool reads, mha_error *error)
{
    const struct {
        bool (*take)(const mha__whole *w, size_t index, product *p, char *text, size_t size);
        size_t count;
        bool reads;
    } ways[] = {{take_operands, (size_t)MHA__ROW_KINDS * 2 * MHA__MATRICES, false},
                {take_bits, 4, false},
                {take_terms, (size_t)4 * TILES * (MOST_TILES + 2 + 64), false},
                {take_reading, 8 * mha__reading_count(), true}};
    char said[MHA_D_VALUE + 1][160] = {"", "", ""}, text[sizeof s->list->help] = "";
    limit limits[MHA_D_VALUE + 1];
    bool found = false, each = true, same = true;
    (void)error;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (s->wrong[g] && g > MHA_D_VALUE)
            return MHA_OK;
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->wrong[g])
            limits[g] = limit_of(s, w, g);
    for (size_t k = 0; k < sizeof ways / sizeof *ways && !found; k++)
        found = ways[k].reads == reads && look_for(s, w, limits, ways[k].take, ways[k].count, said);
    const char *first = NULL;
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->wrong[g]) {
            each &= *said[g] != 0, same &= !first || strcmp(first, said[g]) == 0;
            first = first ? first : said[g];
        }
    for (int g = 0; g <= MHA_D_VALUE && each; g++) {
        const size_t used = strlen(text);
        if (s->wrong[g] && same)
            mha__text_print(text + used, sizeof text - used, "%s%s", used ? " and " : "", names[g]);
        else if (s->wrong[g])
            mha__text_print(text + used, sizeof text - used, "%s%s: %s", used ? "; " : "", names[g], said[g]);
    }
    if (each && same)
        mha__text_print(text + strlen(text), sizeof text - strlen(text), ": %s", first);
    if (each)
        mha__search_tell_there(s, GIVES_ALL, MHA__UNNAMED, text);
    return MHA_OK;
}
