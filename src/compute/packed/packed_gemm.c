/* Products with packed weights: how they are divided into output tiles, one for each task; the arithmetic is in
 * kernels/. */
#include <string.h>

#include "base/base.h"
#include "base/quantised/decoders.h"
#include "compute/kernels/float_mode.h"
#include "compute/packed/panel_block.h"
#include "compute/thread_pool.h"

/* Head of a worker's scratch: which rows are staged behind it. The next output tile of the same rows uses them again.
 */
typedef struct staged_rows {
    const mha__packed_product *product; /* NULL: no rows yet */
    size_t first;
    char pad[64 - sizeof(void *) - sizeof(size_t)];
} staged_rows;

static size_t staged_floats(size_t m, size_t k)
{
    return (m < MHA_TASK_ROWS ? m : MHA_TASK_ROWS) * mha__ceil_div(k, MHA_BLOCK_TERMS) * MHA_STAGED;
}

size_t mha__packed_scratch(size_t m, size_t k, mha_dtype dtype)
{
    const size_t widened = dtype == MHA_F32 || m <= MHA_READ_ROWS ? 0 : MHA_BLOCK_TERMS * MHA_COLUMNS_TOGETHER;
    return sizeof(staged_rows) + (staged_floats(m, k) + widened) * sizeof(float);
}

/* How one product is divided into row_tasks x column_tasks output tiles. The columns of all outputs stand side by side,
 * each output rounded up to `unit`; an output tile has `columns` of them. Column output tiles form groups, as many as
 * there are threads, or a single one. */
typedef struct division {
    size_t tile, tiles; /* rows of a tile, and number of tiles */
    size_t columns, unit, row_tasks, column_tasks, group, first_task;
} division;

static division divide(const mha__packed_product *j, size_t most_rows, size_t tile, int threads, size_t tasks)
{
    division c = {
        .unit = j->m <= MHA_READ_ROWS ? 4 * MHA_PANEL : MHA_PANEL, .tiles = mha__ceil_div(j->m, tile), .tile = tile};
    size_t n = 0;
    for (size_t o = 0; o < j->n_outputs; o++)
        n += mha__round_up(j->outputs[o].n, c.unit);
    if (j->m == 0 || n == 0)
        return (division){0};
    c.row_tasks = mha__ceil_div(c.tiles, most_rows / tile);
    const size_t least = c.row_tasks > 1 ? mha__ceil_div(n, MHA_TASK_COLUMNS) : 1,
                 enough = mha__ceil_div(tasks, c.row_tasks);
    c.columns =
        mha__round_up(mha__ceil_div(n, mha__round_up(enough > least ? enough : least, (size_t)threads)), c.unit);
    c.column_tasks = mha__ceil_div(n, c.columns);
    /* With rows enough each thread gets rows of its own, which it stages once; else columns of its own. */
    c.group = c.row_tasks >= 2 * (size_t)threads ? c.column_tasks : mha__ceil_div(c.column_tasks, (size_t)threads);
    return c;
}

/* The first row and column of an output tile, and how many rows it has. */
typedef struct output_tile {
    size_t first, column, m;
} output_tile;

/* Tasks go through one group of column output tiles after the other, and in each row by row: so a worker mostly stays
 * with its staged rows, or with its columns of W. */
static output_tile tile_of(const division *c, size_t m, size_t task)
{
    const size_t group = task / (c->row_tasks * c->group) * c->group, in_group = task - group * c->row_tasks;
    const size_t width = c->column_tasks - group < c->group ? c->column_tasks - group : c->group;
    const size_t row = in_group / width, column = group + in_group % width;
    const size_t first = row * c->tiles / c->row_tasks * c->tile, end = (row + 1) * c->tiles / c->row_tasks * c->tile;
    return (output_tile){first, column * c->columns, (end < m ? end : m) - first};
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

/* The type of the factors of a product; NULL: floats. */
static const mha__pairs *pairs_of(const work *r, const mha__packed_product *j)
{
    return j->rounds && j->m > MHA_READ_ROWS ? r->pairs : NULL;
}

/* Copies rows [first, first + m) of X into the layout of the kernels, block of terms by block of terms, as pairs unless
 * `pairs` is NULL, unless they are staged already. */
static float *stage(staged_rows *at, const mha__packed_product *j, size_t first, size_t m, const mha__pairs *pairs)
{
    float *staged = (float *)(void *)(at + 1);
    if (at->product == j && at->first == first)
        return staged;
    at->product = j, at->first = first;
    const size_t block = mha__block_terms(j->k);
    const size_t rows = mha__smaller(m, MHA_TASK_ROWS);
    for (size_t from = 0, row = 0; from < j->k; from += block, row += rows) {
        const float *X = j->X + first * j->ldx + from;
        const size_t terms = mha__smaller(j->k - from, block);
        if (pairs) {
            float *to = staged + row * MHA_STAGED;
            pairs->join(rows, terms, X, j->ldx, to, MHA_STAGED);
            pairs->join(m - rows, terms, X + rows * j->ldx, j->ldx, to + MHA_LATER_ROWS, MHA_STAGED);
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

static void no_terms(const mha__rectangle *p)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t e = p->column; e < p->column + p->n; e++)
            p->out->Y[(p->first + i) * p->out->ldy + e] = p->out->b ? p->out->b[e] : 0.0f;
}

static void compute_task(const work *r, size_t task, int worker)
{
    size_t number = 0, start = 0;
    while (number + 1 < r->n_products && task >= r->of[number + 1].first_task)
        number++;
    const mha__packed_product *j = &r->products[number];
    const division *c = &r->of[number];
    const output_tile at = tile_of(c, j->m, task - c->first_task);
    const size_t m = at.m, column = at.column;
    const size_t terms = mha__block_terms(j->k);
    const mha__pairs *pairs = pairs_of(r, j);
    float *staged = stage(staged_of(r, worker), j, at.first, m, pairs);
    mha__rectangle p = {.product = j,
                        .pairs = pairs,
                        .first = at.first,
                        .m = m, .room = staged + staged_floats(j->m, j->k)};
    for (const mha__packed_output *o = j->outputs; o < j->outputs + j->n_outputs;
         start += mha__round_up(o->n, c->unit), o++) {
        const size_t from = column > start ? column - start : 0;
        const size_t to = column + c->columns < start + o->n ? column + c->columns - start : o->n;
        if (column + c->columns <= start || from >= to)
            continue;
        p.out = o, p.column = from, p.n = to - from;
        if (j->k == 0)
            no_terms(&p);
        const size_t together = mha__panel_block_columns(j->m, o->dtype);
        for (size_t e = 0, n; e < p.n; e += n) {
            n = p.n - e < together ? p.n - e : together;
            for (size_t block = 0; block * terms < j->k; block++)
                mha__panel_block_multiply(&p, p.column + e, n, block,
                                    staged + block * mha__smaller(m, MHA_TASK_ROWS) * MHA_STAGED);
            for (size_t i = 0; j->rounds_results && i < m; i++) {
                float *y = o->Y + (at.first + i) * o->ldy + p.column + e;
                mha__kernels_get()->round_to_bf16(n, y, y);
            }
        }
    }
}

/* Subnormals count as 0 in products of BF16, as pairs have it. */
static void run_task(void *context, size_t task, int worker)
{
    const work *r = context;
    const mha__float_mode before_call = mha__float_mode_get();
    if (r->products->rounds)
        mha__float_mode_flush();
    compute_task(r, task, worker);
    mha__float_mode_restore(before_call);
}

void mha__packed_run(const mha__packed_product *products, size_t n_products, int threads, void *scratch)
{
    work r = {.products = products, .n_products = n_products, .scratch = scratch, .pairs = mha__pairs_get()};
    size_t tasks = 0, wanted = threads > 1 ? mha__ceil_div(4 * (size_t)threads, n_products) : 1;
    for (size_t i = 0; i < n_products; i++) {
        const mha__packed_product *j = &products[i];
        const size_t most_rows = pairs_of(&r, j) ? 2 * MHA_TASK_ROWS : MHA_TASK_ROWS;
        r.of[i] = divide(j, most_rows, mha__kernels_get()->tile_rows, threads, wanted);
        r.of[i].first_task = tasks;
        tasks += r.of[i].row_tasks * r.of[i].column_tasks;
        for (size_t o = 0; o < j->n_outputs; o++) {
            size_t bytes = mha__packed_scratch(j->m, j->k, j->outputs[o].dtype);
            r.scratch_bytes = bytes > r.scratch_bytes ? bytes : r.scratch_bytes;
        }
    }
    for (int w = 0; w < threads; w++)
        staged_of(&r, w)->product = NULL;
    mha__parallel_for(tasks, threads, run_task, &r);
}
