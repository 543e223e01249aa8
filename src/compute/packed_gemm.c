/* Products with packed weights: how they are divided into pieces, one for each task; the arithmetic is in kernels/. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/quantised/decoders.h"
#include "compute/float_mode.h"
#include "compute/kernels/kernels.h"
#include "compute/packed_gemm.h"
#include "compute/thread_pool.h"

/* A piece is a rectangle of the outputs, of at most this many rows and columns. COLUMNS_TOGETHER of its columns are
 * computed at a time: one block of terms of its staged rows, and their results, then stay in a second-level cache of
 * 512 KiB. PIECE_ROWS is an upper limit, of pairs twice that: pieces are rounded down to whole tiles. */
enum { PIECE_ROWS = 140, PIECE_COLUMNS = 1024, COLUMNS_TOGETHER = 256 };
/* The most terms of a block: longer sums lose more to rounding, shorter ones take more passes over Y. */
enum { BLOCK_TERMS = 384 };
/* Up to this many rows the time is that of reading W: each panel is read from end to end, a few of them at once. */
enum { FEW_ROWS = 16 };

static size_t pieces_of(size_t n, size_t piece)
{
    return (n + piece - 1) / piece;
}

static size_t rounded(size_t n, size_t unit)
{
    return pieces_of(n, unit) * unit;
}

bool mha__packed_floats(size_t k, size_t n, size_t *floats)
{
    size_t padded;
    if (!mha__add(n, MHA_PANEL - 1, &padded))
        return false;
    return mha__mul(padded / MHA_PANEL * MHA_PANEL, k, floats);
}

void mha__pack(size_t k, size_t n, const float *W, size_t ldw, float *panels)
{
    (void)mha__kernels_get()->pack(k, n, W, ldw, panels, k * MHA_PANEL);
}

void mha__pack_row(size_t k, size_t p, size_t column, size_t n, const float *row, float *panels)
{
    (void)mha__kernels_get()->pack(1, n, row, n, panels + column * k + p * MHA_PANEL, k * MHA_PANEL);
}

/* Copies rows of 16-bit elements into panels, `panel` elements apart. */
static void pack_halves(size_t rows, size_t n, const uint16_t *W, size_t ldw, uint16_t *panels, size_t panel)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, panels += panel)
        for (size_t p = 0; p < rows; p++) {
            const size_t there = n - j < MHA_PANEL ? n - j : MHA_PANEL;
            memcpy(panels + p * MHA_PANEL, W + p * ldw + j, there * sizeof *W);
            memset(panels + p * MHA_PANEL + there, 0, (MHA_PANEL - there) * sizeof *W);
        }
}

void mha__pack_half(size_t k, size_t n, const uint16_t *W, size_t ldw, uint16_t *panels)
{
    pack_halves(k, n, W, ldw, panels, k * MHA_PANEL);
}

void mha__pack_half_row(size_t k, size_t p, size_t column, size_t n, const uint16_t *row, uint16_t *panels)
{
    pack_halves(1, n, row, n, panels + column * k + p * MHA_PANEL, k * MHA_PANEL);
}

void mha__unpack(size_t k, size_t n, size_t size, const void *panels, void *W)
{
    const char *from = panels;
    for (size_t j = 0; j < n; j += MHA_PANEL)
        for (size_t p = 0; p < k; p++, from += MHA_PANEL * size)
            memcpy((char *)W + (p * n + j) * size, from, (n - j < MHA_PANEL ? n - j : MHA_PANEL) * size);
}

bool mha__packed_block_bytes(size_t k, size_t n, mha_dtype dtype, size_t *bytes)
{
    const mha__block_kind *kind = mha__block_kind_of(dtype);
    size_t blocks;
    return mha__mul(pieces_of(n, MHA_PANEL), k / kind->elements, &blocks) &&
           mha__mul(blocks, mha__block_shape_of(kind).bytes, bytes);
}

static void put_scale(const mha__block_kind *kind, float value, unsigned char *to)
{
    const uint16_t half = kind->power ? mha_f32_to_bf16(value) : mha_f32_to_f16(value);
    memcpy(to, &half, sizeof half);
}

/* Kernels know no NaN among codes of E4M3: with one of them a column becomes NaN in a product, and so it does where the
 * scale of the block is NaN. */
static void put_f8_scale(const mha__block_kind *kind, const mha__block_parts *parts, unsigned char *to)
{
    float scale = parts->d;
    for (size_t i = 0; i < kind->elements && kind->codes == MHA_CODES_E4M3; i++)
        if (mha__is_e4m3_nan((unsigned char)parts->code[i]))
            scale = NAN;
    memcpy(to, &scale, sizeof scale);
}

/* Term t of column c in words of so many terms. */
static size_t word_byte(size_t t, size_t c, size_t terms)
{
    return t / terms * terms * MHA_PANEL + terms * c + t % terms;
}

/* A block of column c; beyond the last column, one of zeros. */
static void pack_block(const mha__block_kind *kind, const unsigned char *from, size_t c, unsigned char *to)
{
    const mha__block_shape s = mha__block_shape_of(kind);
    const int more = kind->codes == MHA_CODES_4 ? 8 : 0;
    mha__block_parts parts;
    kind->split(from, 0, kind->elements, &parts);
    if (mha__is_f8(kind->codes))
        put_f8_scale(kind, &parts, to + sizeof(float) * c);
    else
        put_scale(kind, parts.d, to + 2 * c);
    if (mha__has_least(kind->codes))
        put_scale(kind, parts.m, to + 2 * (MHA_PANEL + c));
    for (size_t i = 0; i < kind->elements; i++) {
        unsigned char *part = to + s.header + i / MHA_QUANT * s.part;
        const size_t t = i % MHA_QUANT, g = i / kind->group;
        if (kind->scales && i % kind->group == 0) {
            part[t / kind->group * MHA_PANEL + c] = (unsigned char)parts.scale[g];
            if (mha__has_least(kind->codes))
                part[s.least + t / kind->group * MHA_PANEL + c] = (unsigned char)parts.min[g];
        }
        if (mha__is_byte_wide(kind->codes))
            part[s.codes + word_byte(t, c, mha__is_f8(kind->codes) ? 2 : 4)] = (unsigned char)parts.code[i];
        else
            part[s.codes + word_byte(t % 16, c, 4)] |= (unsigned char)((parts.code[i] + more) << t / 16 * 4);
    }
}

void mha__pack_blocks(size_t k, size_t n, mha_dtype dtype, const unsigned char *blocks, unsigned char *panels)
{
    const mha__block_kind *kind = mha__block_kind_of(dtype);
    const size_t bytes = mha__block_shape_of(kind).bytes, count = k / kind->elements;
    memset(panels, 0, pieces_of(n, MHA_PANEL) * count * bytes);
    for (size_t j = 0; j < n; j++)
        for (size_t b = 0; b < count; b++, blocks += kind->bytes)
            pack_block(kind, blocks, j % MHA_PANEL, panels + (j / MHA_PANEL * count + b) * bytes);
}

/* Head of a worker's scratch: which rows are staged behind it. The next piece of the same rows uses them again. */
typedef struct staged_rows {
    const mha__packed_product *product; /* NULL: no rows yet */
    size_t first;
    char pad[64 - sizeof(void *) - sizeof(size_t)];
} staged_rows;

/* The number of terms of a block: about equal blocks, in whole cache lines. */
static size_t block_terms(size_t k)
{
    return k <= BLOCK_TERMS ? BLOCK_TERMS : rounded(pieces_of(k, pieces_of(k, BLOCK_TERMS)), 16);
}

static size_t staged_floats(size_t m, size_t k)
{
    return (m < PIECE_ROWS ? m : PIECE_ROWS) * pieces_of(k, BLOCK_TERMS) * MHA_STAGED;
}

size_t mha__packed_scratch(size_t m, size_t k, mha_dtype dtype)
{
    const size_t widened = dtype == MHA_F32 || m <= FEW_ROWS ? 0 : BLOCK_TERMS * COLUMNS_TOGETHER;
    return sizeof(staged_rows) + (staged_floats(m, k) + widened) * sizeof(float);
}

/* How one product is divided into row_pieces x column_pieces pieces. The columns of all outputs stand side by side,
 * each output rounded up to `unit`; a piece has `columns` of them. Column pieces form groups, as many as there are
 * threads, or a single one. */
typedef struct division {
    size_t tile, tiles; /* rows of a tile, and number of tiles */
    size_t columns, unit, row_pieces, column_pieces, group, first_task;
} division;

static division divide(const mha__packed_product *j, size_t most_rows, size_t tile, int threads, size_t tasks)
{
    division c = {.unit = j->m <= FEW_ROWS ? 4 * MHA_PANEL : MHA_PANEL, .tiles = pieces_of(j->m, tile), .tile = tile};
    size_t n = 0;
    for (size_t o = 0; o < j->n_outputs; o++)
        n += rounded(j->outputs[o].n, c.unit);
    if (j->m == 0 || n == 0)
        return (division){0};
    c.row_pieces = pieces_of(c.tiles, most_rows / tile);
    const size_t least = c.row_pieces > 1 ? pieces_of(n, PIECE_COLUMNS) : 1, enough = pieces_of(tasks, c.row_pieces);
    c.columns = rounded(pieces_of(n, rounded(enough > least ? enough : least, (size_t)threads)), c.unit);
    c.column_pieces = pieces_of(n, c.columns);
    /* With rows enough each thread gets rows of its own, which it stages once; else columns of its own. */
    c.group = c.row_pieces >= 2 * (size_t)threads ? c.column_pieces : pieces_of(c.column_pieces, (size_t)threads);
    return c;
}

/* The first row and column of a piece, and how many rows it has. */
typedef struct piece {
    size_t first, column, m;
} piece;

/* Tasks go through one group of column pieces after the other, and in each row by row: so a worker mostly stays with
 * its staged rows, or with its columns of W. */
static piece piece_of(const division *c, size_t m, size_t task)
{
    const size_t group = task / (c->row_pieces * c->group) * c->group, in_group = task - group * c->row_pieces;
    const size_t width = c->column_pieces - group < c->group ? c->column_pieces - group : c->group;
    const size_t row = in_group / width, column = group + in_group % width;
    const size_t first = row * c->tiles / c->row_pieces * c->tile, end = (row + 1) * c->tiles / c->row_pieces * c->tile;
    return (piece){first, column * c->columns, (end < m ? end : m) - first};
}

typedef struct work {
    const mha__packed_product *products;
    division of[MHA_PACKED_PRODUCTS];
    const mha__pairs *pairs; /* NULL: floats */
    size_t n_products;
    char *scratch;
    size_t scratch_bytes;
} work;

static staged_rows *staged_of(const work *r, int worker)
{
    return (staged_rows *)(void *)(r->scratch + (size_t)worker * r->scratch_bytes);
}

/* What a product is multiplied in; NULL: floats. */
static const mha__pairs *pairs_of(const work *r, const mha__packed_product *j)
{
    return j->rounds && j->m > FEW_ROWS ? r->pairs : NULL;
}

/* Pairs take half the room of floats: behind the pairs of one row are those of the row PIECE_ROWS later. */
enum { LATER_ROWS = MHA_STAGED / 2 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copies rows [first, first + m) of X into the layout of the kernels, block of terms by block of terms, as pairs unless
 * `pairs` is NULL, unless they are staged already. */
static float *stage(staged_rows *at, const mha__packed_product *j, size_t first, size_t m, const mha__pairs *pairs)
{
    float *staged = (float *)(void *)(at + 1);
    if (at->product == j && at->first == first)
        return staged;
    at->product = j, at->first = first;
    const size_t block = block_terms(j->k);
    const size_t rows = smaller(m, PIECE_ROWS);
    for (size_t from = 0, row = 0; from < j->k; from += block, row += rows) {
        const float *X = j->X + first * j->ldx + from;
        const size_t terms = smaller(j->k - from, block);
        if (pairs) {
            float *to = staged + row * MHA_STAGED;
            pairs->join(rows, terms, X, j->ldx, to, MHA_STAGED);
            pairs->join(m - rows, terms, X + rows * j->ldx, j->ldx, to + LATER_ROWS, MHA_STAGED);
        }
        for (size_t i = 0; i < m && !pairs; i++) {
            float *to = staged + (row + i) * MHA_STAGED;
            if (j->rounds)
                mha__kernels_get()->round_to_bf16(terms, X + i * j->ldx, to);
            else
                memcpy(to, X + i * j->ldx, terms * sizeof(float));
        }
    }
    return staged;
}

/* The part of a piece that lies in one output. */
typedef struct rectangle {
    const mha__packed_product *product;
    const mha__packed_output *out;
    const mha__pairs *pairs; /* what the staged rows are; NULL: floats */
    size_t first, m, column, n;
    float *room; /* BLOCK_TERMS * COLUMNS_TOGETHER floats, for panels of 16 bits that many rows share: widened once */
} rectangle;

/* One block of terms, of columns [column, column + n) of W. */
static void multiply(const rectangle *p, size_t column, size_t n, size_t block, const float *staged)
{
    const size_t most = block_terms(p->product->k), from = block * most;
    const size_t terms = p->product->k - from < most ? p->product->k - from : most;
    const mha__kernels *kernels = mha__kernels_get();
    const mha__packed_output *o = p->out;
    const size_t k = p->product->k, at = column * k + from * MHA_PANEL, panel = k * MHA_PANEL;
    /* Read next are the next terms of the same panels, or the panels after these. */
    const size_t ahead = from + terms < k ? at + terms * MHA_PANEL : (column + n) * k;
    const bool few = p->product->m <= FEW_ROWS;
    float ones[PIECE_ROWS], *Y = o->Y + p->first * o->ldy + column;
    const float *b = o->b ? o->b + column : NULL;
    for (size_t i = 0; i < smaller(p->m, PIECE_ROWS); i++)
        ones[i] = 1.0f;
    if (o->dtype == MHA_F32) {
        const float *data = o->panels;
        /* With few rows reading is fastest when it is prefetched two pages ahead, over all panels together. */
        const size_t soon = p->m <= kernels->tile_rows ? at + MHA_SOON_FLOATS / pieces_of(n, MHA_PANEL) : ahead;
        const mha__panels W = {data + at, MHA_PANEL, panel}, next = {data + soon, MHA_PANEL, panel};
        kernels->product(p->m, n, terms, staged, W, few ? &next : NULL, Y, o->ldy, from ? ones : NULL, b);
        return;
    }
    const mha__block_kind *kind = mha__block_kind_of(o->dtype);
    if (kind) {
        const mha__block_shape shape = mha__block_shape_of(kind);
        const size_t bytes = k / kind->elements * shape.bytes;
        const unsigned char *first = o->panels;
        const mha__block_panels W = {first + column / MHA_PANEL * bytes, bytes, from, kind};
        if (few) {
            kernels->product_blocks(p->m, n, terms, staged, W, Y, o->ldy, from ? ones : NULL, b);
            return;
        }
        kernels->widen_blocks(n, terms, W, p->room);
        kernels->product(p->m, n, terms, staged, (mha__panels){p->room, MHA_PANEL, terms * MHA_PANEL}, NULL, Y, o->ldy,
                         from ? ones : NULL, b);
        return;
    }
    const uint16_t *data = o->panels;
    if (few) {
        const mha__half_panels W = {data + at, MHA_PANEL, panel, o->dtype},
                               next = {data + ahead, MHA_PANEL, panel, o->dtype};
        kernels->product_half(p->m, n, terms, staged, W, &next, Y, o->ldy, from ? ones : NULL, b);
        return;
    }
    if (p->pairs) {
        const size_t k_pairs = (terms + 1) / 2;
        p->pairs->pack_half(terms, n, data + at, panel, p->room, k_pairs * MHA_PANEL);
        const mha__panels W = {p->room, MHA_PANEL, k_pairs * MHA_PANEL};
        for (size_t i = 0; i < p->m; i += PIECE_ROWS, staged += LATER_ROWS)
            p->pairs->product(smaller(p->m - i, PIECE_ROWS), n, k_pairs, staged, W, NULL, Y + i * o->ldy, o->ldy,
                              from ? ones : NULL, b);
        return;
    }
    /* While they are multiplied the next ones are fetched: two numbers are as wide as a float. */
    const mha__panels soon = {(const float *)(const void *)(data + ahead), MHA_PANEL / 2, panel / 2};
    kernels->widen(pieces_of(n, MHA_PANEL), terms * MHA_PANEL, data + at, panel, o->dtype, p->room, terms * MHA_PANEL,
                   NULL);
    kernels->product(p->m, n, terms, staged, (mha__panels){p->room, MHA_PANEL, terms * MHA_PANEL}, &soon, Y, o->ldy,
                     from ? ones : NULL, b);
}

static void no_terms(const rectangle *p)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t e = p->column; e < p->column + p->n; e++)
            p->out->Y[(p->first + i) * p->out->ldy + e] = p->out->b ? p->out->b[e] : 0.0f;
}

/* Columns computed at once: for few rows as many panels as the kernel's tile for so few rows is wide. */
static size_t columns_together(size_t m, mha_dtype dtype)
{
    if (m > FEW_ROWS)
        return COLUMNS_TOGETHER;
    if (dtype == MHA_F32)
        return m > 3 ? MHA_PANEL : 4 * MHA_PANEL;
    if (mha__block_kind_of(dtype))
        return mha__kernels_get()->block_columns;
    return m < 8 ? 2 * MHA_PANEL : MHA_PANEL;
}

static void compute_piece(const work *r, size_t task, int worker)
{
    size_t number = 0, start = 0;
    while (number + 1 < r->n_products && task >= r->of[number + 1].first_task)
        number++;
    const mha__packed_product *j = &r->products[number];
    const division *c = &r->of[number];
    const piece at = piece_of(c, j->m, task - c->first_task);
    const size_t m = at.m, column = at.column;
    const size_t terms = block_terms(j->k);
    const mha__pairs *pairs = pairs_of(r, j);
    float *staged = stage(staged_of(r, worker), j, at.first, m, pairs);
    rectangle p = {.product = j, .pairs = pairs, .first = at.first, .m = m, .room = staged + staged_floats(j->m, j->k)};
    for (const mha__packed_output *o = j->outputs; o < j->outputs + j->n_outputs;
         start += rounded(o->n, c->unit), o++) {
        const size_t from = column > start ? column - start : 0;
        const size_t to = column + c->columns < start + o->n ? column + c->columns - start : o->n;
        if (column + c->columns <= start || from >= to)
            continue;
        p.out = o, p.column = from, p.n = to - from;
        if (j->k == 0)
            no_terms(&p);
        const size_t together = columns_together(j->m, o->dtype);
        for (size_t e = 0, n; e < p.n; e += n) {
            n = p.n - e < together ? p.n - e : together;
            for (size_t block = 0; block * terms < j->k; block++)
                multiply(&p, p.column + e, n, block, staged + block * smaller(m, PIECE_ROWS) * MHA_STAGED);
            for (size_t i = 0; j->rounds_results && i < m; i++) {
                float *y = o->Y + (at.first + i) * o->ldy + p.column + e;
                mha__kernels_get()->round_to_bf16(n, y, y);
            }
        }
    }
}

/* Subnormals count as 0 in products of BF16, as pairs have it. */
static void run_piece(void *context, size_t task, int worker)
{
    const work *r = context;
    const mha__float_mode before_call = mha__float_mode_get();
    if (r->products->rounds)
        mha__float_mode_flush();
    compute_piece(r, task, worker);
    mha__float_mode_restore(before_call);
}

void mha__packed_run(const mha__packed_product *products, size_t n_products, int threads, void *scratch)
{
    work r = {.products = products, .n_products = n_products, .scratch = scratch, .pairs = mha__pairs_get()};
    size_t tasks = 0, wanted = threads > 1 ? pieces_of(4 * (size_t)threads, n_products) : 1;
    for (size_t i = 0; i < n_products; i++) {
        const mha__packed_product *j = &products[i];
        const size_t most_rows = pairs_of(&r, j) ? 2 * PIECE_ROWS : PIECE_ROWS;
        r.of[i] = divide(j, most_rows, mha__kernels_get()->tile_rows, threads, wanted);
        r.of[i].first_task = tasks;
        tasks += r.of[i].row_pieces * r.of[i].column_pieces;
        for (size_t o = 0; o < j->n_outputs; o++) {
            size_t bytes = mha__packed_scratch(j->m, j->k, j->outputs[o].dtype);
            r.scratch_bytes = bytes > r.scratch_bytes ? bytes : r.scratch_bytes;
        }
    }
    for (int w = 0; w < threads; w++)
        staged_of(&r, w)->product = NULL;
    mha__parallel_for(tasks, threads, run_piece, &r);
}
