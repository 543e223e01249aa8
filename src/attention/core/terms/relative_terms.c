/* Relative terms in float. Pairs of neighbouring queries and keys share rows of a table, so a few rows of Q (or K) are
 * multiplied with the rows of the table that their pairs need, and each pair picks its product. */
#include <math.h>
#include <string.h>

#include "attention/core/terms/terms.h"
#include "base/heads.h"

/* ---------------------------------------------------------------- tables */

size_t mha__relative_prepare(const mha__resolved *r, float *room, mha__relative_tables *made)
{
    size_t floats = 0;
    *made = (mha__relative_tables){0};
    for (int t = 0; t < MHA_RELATIVE_TABLES; t++) {
        const mha_view *table = &r->weight[MHA_RELATIVE_K + t];
        if (r->added.relative.rule == MHA_RELATIVE_NONE || !table->data)
            continue;
        made->table[t] = *table;
        if (table->dtype == MHA_F32)
            continue;
        made->table[t] = mha_view_of(room ? room + floats : NULL, MHA_F32, 2, table->shape);
        if (room)
            (void)mha_view_copy(&made->table[t], table, NULL);
        floats += mha_view_elements(table);
    }
    return floats;
}

/* The factor of the products of a table. */
static double scale_of(const mha__resolved *r, mha_weight table)
{
    const double given = table == MHA_RELATIVE_Q ? r->added.relative.q_scale : r->added.relative.k_scale;
    return given != 0 ? given : r->plan.scale;
}

/* The first column of a head. */
static size_t column_of(const mha__resolved *r, const mha_view *table, size_t head)
{
    return table->shape[1] == r->plan.d_k ? 0 : head * r->plan.d_k;
}

/* ---------------------------------------------------------------- memory */

enum { TILE = MHA_FEW_ROWS };

/* The work of one table: `row` has the row of the table for each difference of places, from the least on. */
typedef struct work {
    float *staged, *widened; /* TILE rows of Q or K, cut into chunks of MHA_BLOCK features; rows of K as floats */
    float *products, *more;  /* TILE x the most rows of the table */
    size_t *query, *key;     /* how far a query's place is behind the first of them, a key's before the last */
    size_t *row;
} work;

static size_t chunks_of(const mha__resolved *r)
{
    return (r->plan.d_k + MHA_BLOCK - 1) / MHA_BLOCK;
}

/* Most differences of the places of some queries and keys. */
static size_t differences_of(const mha__resolved *r, size_t queries, size_t keys)
{
    const mha_relative *relative = &r->added.relative;
    const size_t longer = relative->height > relative->width ? relative->height : relative->width;
    return relative->rule == MHA_RELATIVE_GRID ? 2 * longer - 1 : queries + keys;
}

/* Most rows of a table from the first to the last that they have: buckets of next distances may lie any number apart.
 */
static size_t width_of(const mha__resolved *r, size_t queries, size_t keys)
{
    const mha_view *K = &r->weight[MHA_RELATIVE_K], *table = K->data ? K : &r->weight[MHA_RELATIVE_Q];
    return r->added.relative.rule == MHA_RELATIVE_LOG_BUCKETS ? table->shape[0] : differences_of(r, queries, keys);
}

static size_t lay_out(const mha__resolved *r, size_t queries, size_t keys, char *base, work *w)
{
    const size_t width = width_of(r, queries, keys), d_k = r->plan.d_k;
    mha__workspace arena = {base, 0};
    w->staged = mha__workspace_take(&arena, TILE * chunks_of(r), MHA_STAGED * sizeof(float));
    w->widened = mha__workspace_take(&arena, TILE, d_k * sizeof(float));
    w->products = mha__workspace_take(&arena, TILE, width * sizeof(float));
    w->more = mha__workspace_take(&arena, chunks_of(r) > 1 ? TILE : 0, width * sizeof(float));
    w->query = mha__workspace_take(&arena, queries, sizeof(size_t));
    w->key = mha__workspace_take(&arena, keys, sizeof(size_t));
    w->row = mha__workspace_take(&arena, differences_of(r, queries, keys), sizeof(size_t));
    return arena.used;
}

size_t mha__relative_work(const mha__resolved *r, size_t queries, size_t keys)
{
    work unused;
    return r->added.relative.rule == MHA_RELATIVE_NONE ? 0 : lay_out(r, queries, keys, NULL, &unused);
}

/* ---------------------------------------------------------------- places */

/* The place of a token by which a table's rows go: its position, or the line or column of its cell. */
static int64_t place_of(const mha_relative *relative, mha_weight table, int64_t position)
{
    const int64_t W = (int64_t)relative->width;
    return relative->rule != MHA_RELATIVE_GRID ? position : table == MHA_RELATIVE_K ? position / W : position % W;
}

/* Fills in places and rows: query i and key j have row[query[i] + key[j]]. */
static void find_rows(const mha__resolved *r, mha_weight table, const mha__relative_pairs *pairs, const work *w)
{
    const mha_relative *relative = &r->added.relative;
    const bool grid = relative->rule == MHA_RELATIVE_GRID;
    const size_t keys = pairs->keys.to - pairs->keys.from, n = r->weight[table].shape[0];
    const int64_t p = pairs->s->offset + (int64_t)pairs->first, q = r->first_key + (int64_t)pairs->keys.from;
    int64_t least = INT64_MAX, most = INT64_MIN, high = INT64_MIN, low = INT64_MAX;
    for (size_t i = 0; i < pairs->queries; i++) {
        const int64_t at = place_of(relative, table, p + (int64_t)i);
        least = at < least ? at : least, most = at > most ? at : most;
    }
    for (size_t j = 0; j < keys; j++) {
        const int64_t at = place_of(relative, table, q + (int64_t)j);
        low = at < low ? at : low, high = at > high ? at : high;
    }
    for (size_t i = 0; i < pairs->queries; i++)
        w->query[i] = (size_t)(place_of(relative, table, p + (int64_t)i) - least);
    for (size_t j = 0; j < keys; j++)
        w->key[j] = (size_t)(high - place_of(relative, table, q + (int64_t)j));
    const int64_t half = (int64_t)(n / 2);
    for (int64_t d = least - high; d <= most - low; d++)
        w->row[d - least + high] = grid ? (size_t)(d + half) : mha__relative_row(relative, table, n, d, 0);
}

/* ---------------------------------------------------------------- products */

typedef struct range {
    size_t least, most;
} range;

/* The rows for differences `from` to `to`, which rise or fall with them. */
static range rows_between(const work *w, size_t from, size_t to)
{
    const size_t a = w->row[from], b = w->row[to];
    return (range){a < b ? a : b, a < b ? b : a};
}

static range among(const size_t *places, size_t count)
{
    range all = {SIZE_MAX, 0};
    for (size_t i = 0; i < count; i++) {
        all.least = places[i] < all.least ? places[i] : all.least;
        all.most = places[i] > all.most ? places[i] : all.most;
    }
    return all;
}

/* products[i * width + e] = row i of the staged ones . row least + e of the table. */
static void multiply(const mha__resolved *r, const mha_view *table, size_t column, size_t m, range rows, size_t width,
                     const work *w)
{
    const size_t count = rows.most - rows.least + 1, ld = (size_t)table->stride[0], d_k = r->plan.d_k;
    const float *from = (const float *)table->data + rows.least * ld + column;
    for (size_t c = 0; c < chunks_of(r); c++) {
        const size_t at = c * MHA_BLOCK, terms = d_k - at < MHA_BLOCK ? d_k - at : MHA_BLOCK;
        float *to = c > 0 ? w->more : w->products;
        r->kernels->product_rows(m, count, terms, w->staged + c * TILE * MHA_STAGED, from + at, ld, NULL, 0, to,
                                 width);
        for (size_t i = 0; c > 0 && i < m; i++)
            for (size_t e = 0; e < count; e++)
                w->products[i * width + e] += to[i * width + e];
    }
}

static void stage(const mha__resolved *r, const float *x, ptrdiff_t apart, size_t m, const work *w)
{
    const size_t d_k = r->plan.d_k;
    for (size_t c = 0; c < chunks_of(r); c++) {
        const size_t at = c * MHA_BLOCK, terms = d_k - at < MHA_BLOCK ? d_k - at : MHA_BLOCK;
        for (size_t i = 0; i < m; i++)
            memcpy(w->staged + (c * TILE + i) * MHA_STAGED, x + (ptrdiff_t)i * apart + at, terms * sizeof *x);
    }
}

/* Stages keys of a head from `first` on, as many of `most` as a tile has and one page holds; returns how many. */
static size_t stage_keys(const mha__resolved *r, const mha_view *K, const mha__relative_pairs *pairs, size_t first,
                         size_t most, const work *w)
{
    const mha__sequence *s = pairs->s;
    const mha_pages *pages = pairs->pages;
    const size_t d_k = r->plan.d_k, size = pages ? K->shape[1] : SIZE_MAX, at = first - pairs->K_from;
    const size_t batch = pages ? (size_t)pages->table[s->k_batch * pages->columns + at / size] : pairs->K_batch,
                 row = s->k_from + at % size, left = size - at % size;
    size_t m = most < TILE ? most : TILE;
    m = m < left ? m : left;
    if (K->dtype == MHA_F32) {
        stage(r, mha__row(K, batch, row, pairs->of_K), K->stride[1], m, w);
        return m;
    }
    for (size_t i = 0; i < m; i++) /* the scale of 8 bits lies behind its row, wherever the next row is */
        r->kernels->widen(1, d_k, mha__narrow_row_at(K, batch, row + i, pairs->of_K),
                          K->dtype == MHA_I8 ? mha__byte_row(d_k) : d_k, K->dtype, w->widened + i * d_k, d_k, NULL);
    stage(r, w->widened, (ptrdiff_t)d_k, m, w);
    return m;
}

/* A term as a float that is finite or NaN, and the sum with what is there. */
static void add(float *to, double scale, float product, bool adds)
{
    const float term = mha__clamp(scale * (double)product);
    *to = adds ? mha__clamp((double)*to + (double)term) : term;
}

/* Adds the products of a table. What the table is multiplied with, queries or keys, is staged some rows at a time. */
static void add_products(const mha__resolved *r, const mha_view *table, mha_weight which, const mha_view *Q,
                         const mha_view *K, const mha__relative_pairs *pairs, const work *w, bool adds, float *terms,
                         size_t ld)
{
    const bool of_keys = which == MHA_RELATIVE_Q;
    const size_t n_keys = pairs->keys.to - pairs->keys.from, width = width_of(r, pairs->queries, n_keys),
                 column = column_of(r, table, pairs->head), n = of_keys ? n_keys : pairs->queries,
                 others = of_keys ? pairs->queries : n_keys, *place = of_keys ? w->key : w->query,
                 *other = of_keys ? w->query : w->key;
    const double scale = scale_of(r, which);
    const range all = among(other, others);
    for (size_t i = 0, m; i < n; i += m) {
        if (of_keys) {
            m = stage_keys(r, K, pairs, pairs->keys.from + i, n - i, w);
        } else {
            m = n - i < TILE ? n - i : TILE;
            const size_t first = pairs->s->q_from + pairs->first + i;
            stage(r, mha__row(Q, pairs->s->batch, first, pairs->of_Q), Q->stride[1], m, w);
        }
        const range some = among(place + i, m), rows = rows_between(w, some.least + all.least, some.most + all.most);
        multiply(r, table, column, m, rows, width, w);
        for (size_t e = 0; e < m; e++) {
            const float *product = w->products + e * width;
            const size_t *row = w->row + place[i + e];
            float *to = terms + (i + e) * (of_keys ? 1 : ld);
            for (size_t j = 0; j < others; j++)
                add(&to[j * (of_keys ? ld : 1)], scale, product[row[other[j]] - rows.least], adds);
        }
    }
}

void mha__relative_terms(const mha__resolved *r, const mha__relative_tables *tables, const mha_view *Q,
                         const mha_view *K, const mha__relative_pairs *pairs, float *terms, size_t ld, float *memory)
{
    work w;
    bool adds = false;
    if (pairs->queries == 0 || pairs->keys.from >= pairs->keys.to)
        return;
    (void)lay_out(r, pairs->queries, pairs->keys.to - pairs->keys.from, (char *)memory, &w);
    for (int t = 0; t < MHA_RELATIVE_TABLES; t++) {
        const mha_weight which = (mha_weight)(MHA_RELATIVE_K + t);
        if (!tables->table[t].data)
            continue;
        find_rows(r, which, pairs, &w);
        add_products(r, &tables->table[t], which, Q, K, pairs, &w, adds, terms, ld);
        adds = true;
    }
}
