/* Products with packed weights: how they are cut into pieces; the arithmetic is in kernels/. */
#include <string.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "compute/packed_gemm.h"
#include "compute/thread_pool.h"

/* A piece is up to this many rows by so many columns, of which some are worked on together: one block of terms of its
 * staged rows, and what they come to, stay in a second-level cache of 512 KiB. In rows it is whole tiles, which 140
 * need not be. */
enum { PIECE_ROWS = 140, PIECE_COLUMNS = 1024, COLUMNS_TOGETHER = 256 };
/* Terms of a block, at most: more lose more to rounding, fewer take more passes over Y. */
enum { BLOCK_TERMS = 384 };
/* Up to this many rows the product is reading W: each panel is read from end to end, a few of them together. */
enum { FEW_ROWS = 16 };
enum { SOON_FLOATS = 2048 }; /* two pages */

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

void mha__pack_half(size_t k, size_t n, const uint16_t *W, size_t ldw, uint16_t *panels)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, panels += k * MHA_PANEL)
        for (size_t p = 0; p < k; p++) {
            const size_t there = n - j < MHA_PANEL ? n - j : MHA_PANEL;
            memcpy(panels + p * MHA_PANEL, W + p * ldw + j, there * sizeof *W);
            memset(panels + p * MHA_PANEL + there, 0, (MHA_PANEL - there) * sizeof *W);
        }
}

/* What a worker's scratch begins with: whose rows are staged there, so that the next piece of the same rows need not
 * stage them again. */
typedef struct desk {
    const mha__packed_job *job; /* NULL: nobody's yet */
    size_t first;
    char pad[64 - sizeof(void *) - sizeof(size_t)];
} desk;

/* Terms of a block: even ones, in whole cache lines. */
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
    return sizeof(desk) + (staged_floats(m, k) + widened) * sizeof(float);
}

/* How one job is cut: into pieces of even numbers of tiles by so many columns, those of all outputs side by side, each
 * output rounded up to `unit`; column pieces form groups, one for each thread or a single one. */
typedef struct cut {
    size_t tile, tiles; /* rows of one, and how many */
    size_t columns, unit, row_pieces, column_pieces, group, first_task;
} cut;

static cut cut_job(const mha__packed_job *j, size_t tile, int threads, size_t tasks)
{
    cut c = {.unit = j->m <= FEW_ROWS ? 4 * MHA_PANEL : MHA_PANEL, .tiles = pieces_of(j->m, tile), .tile = tile};
    size_t n = 0;
    for (size_t o = 0; o < j->n_outputs; o++)
        n += rounded(j->outputs[o].n, c.unit);
    if (j->m == 0 || n == 0)
        return (cut){0};
    c.row_pieces = pieces_of(c.tiles, PIECE_ROWS / tile);
    const size_t least = c.row_pieces > 1 ? pieces_of(n, PIECE_COLUMNS) : 1, enough = pieces_of(tasks, c.row_pieces);
    c.columns = rounded(pieces_of(n, rounded(enough > least ? enough : least, (size_t)threads)), c.unit);
    c.column_pieces = pieces_of(n, c.columns);
    /* Each thread its own rows where there are enough, which it then stages once; else its own columns. */
    c.group = c.row_pieces >= 2 * (size_t)threads ? c.column_pieces : pieces_of(c.column_pieces, (size_t)threads);
    return c;
}

/* The first row and column of a piece, and its rows. */
typedef struct place {
    size_t first, column, m;
} place;

/* One group of column pieces after the other, in each row by row: workers that begin far from each other stay with
 * their rows, or their columns of W, and with the rows they have staged. */
static place place_of(const cut *c, size_t m, size_t task)
{
    const size_t group = task / (c->row_pieces * c->group) * c->group, in_group = task - group * c->row_pieces;
    const size_t width = c->column_pieces - group < c->group ? c->column_pieces - group : c->group;
    const size_t row = in_group / width, column = group + in_group % width;
    const size_t first = row * c->tiles / c->row_pieces * c->tile, end = (row + 1) * c->tiles / c->row_pieces * c->tile;
    return (place){first, column * c->columns, (end < m ? end : m) - first};
}

typedef struct run {
    const mha__packed_job *jobs;
    cut cuts[MHA_PACKED_JOBS];
    size_t n_jobs;
    char *scratch;
    size_t scratch_bytes;
} run;

static desk *desk_of(const run *r, int worker)
{
    return (desk *)(void *)(r->scratch + (size_t)worker * r->scratch_bytes);
}

/* Rows [first, first + m), block of terms by block of terms, unless they are there already. */
static float *stage(desk *at, const mha__packed_job *j, size_t first, size_t m)
{
    float *staged = (float *)(void *)(at + 1);
    if (at->job == j && at->first == first)
        return staged;
    at->job = j, at->first = first;
    const size_t block = block_terms(j->k);
    for (size_t from = 0, row = 0; from < j->k; from += block)
        for (size_t i = 0; i < m; i++, row++)
            memcpy(staged + row * MHA_STAGED, j->X + (first + i) * j->ldx + from,
                   (j->k - from < block ? j->k - from : block) * sizeof(float));
    return staged;
}

/* A rectangle of one output. */
typedef struct part {
    const mha__packed_job *job;
    const mha__packed_output *out;
    size_t first, m, column, n;
    float *room; /* BLOCK_TERMS * COLUMNS_TOGETHER floats, for panels of 16 bits that many rows share: widened once */
} part;

/* One block of terms, of columns [column, column + n) of W. */
static void multiply(const part *p, size_t column, size_t n, size_t block, const float *staged)
{
    const size_t most = block_terms(p->job->k), from = block * most;
    const size_t terms = p->job->k - from < most ? p->job->k - from : most;
    const mha__kernels *kernels = mha__kernels_get();
    const mha__packed_output *o = p->out;
    const size_t k = p->job->k, at = column * k + from * MHA_PANEL, panel = k * MHA_PANEL;
    /* What is read next: further on in the same panels, or the panels after them. */
    const size_t ahead = from + terms < k ? at + terms * MHA_PANEL : (column + n) * k;
    const bool few = p->job->m <= FEW_ROWS;
    float ones[PIECE_ROWS], *Y = o->Y + p->first * o->ldy + column;
    const float *b = o->b ? o->b + column : NULL;
    for (size_t i = 0; i < p->m; i++)
        ones[i] = 1.0f;
    if (o->dtype == MHA_F32) {
        const float *data = o->panels;
        /* Few rows read memory fastest with hints two pages ahead, of all panels together. */
        const size_t soon = p->m <= kernels->tile_rows ? at + SOON_FLOATS / pieces_of(n, MHA_PANEL) : ahead;
        const mha__panels W = {data + at, MHA_PANEL, panel}, next = {data + soon, MHA_PANEL, panel};
        kernels->product(p->m, n, terms, staged, W, few ? &next : NULL, Y, o->ldy, from ? ones : NULL, b);
        return;
    }
    const uint16_t *data = o->panels;
    if (few) {
        const mha__half_panels W = {data + at, MHA_PANEL, panel, o->dtype},
                              next = {data + ahead, MHA_PANEL, panel, o->dtype};
        kernels->product_half(p->m, n, terms, staged, W, &next, Y, o->ldy, from ? ones : NULL, b);
        return;
    }
    /* While they are multiplied the next ones are fetched: two numbers are as wide as a float. */
    const mha__panels soon = {(const float *)(const void *)(data + ahead), MHA_PANEL / 2, panel / 2};
    kernels->widen(pieces_of(n, MHA_PANEL), terms * MHA_PANEL, data + at, panel, o->dtype, p->room, terms * MHA_PANEL,
                   NULL);
    kernels->product(p->m, n, terms, staged, (mha__panels){p->room, MHA_PANEL, terms * MHA_PANEL}, &soon, Y, o->ldy,
                     from ? ones : NULL, b);
}

static void no_terms(const part *p)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t e = p->column; e < p->column + p->n; e++)
            p->out->Y[(p->first + i) * p->out->ldy + e] = p->out->b ? p->out->b[e] : 0.0f;
}

/* As many panels at once as the kernel's tiles of so few rows are wide. */
static size_t columns_together(size_t m, mha_dtype dtype)
{
    if (m > FEW_ROWS)
        return COLUMNS_TOGETHER;
    return dtype == MHA_F32 ? m > 3 ? MHA_PANEL : 4 * MHA_PANEL : m < 8 ? 2 * MHA_PANEL : MHA_PANEL;
}

static void piece(void *context, size_t task, int worker)
{
    const run *r = context;
    size_t number = 0, start = 0;
    while (number + 1 < r->n_jobs && task >= r->cuts[number + 1].first_task)
        number++;
    const mha__packed_job *j = &r->jobs[number];
    const cut *c = &r->cuts[number];
    const place at = place_of(c, j->m, task - c->first_task);
    const size_t m = at.m, column = at.column;
    const size_t terms = block_terms(j->k);
    float *staged = stage(desk_of(r, worker), j, at.first, m);
    part p = {.job = j, .first = at.first, .m = m, .room = staged + staged_floats(j->m, j->k)};
    for (const mha__packed_output *o = j->outputs; o < j->outputs + j->n_outputs; start += rounded(o->n, c->unit), o++) {
        const size_t from = column > start ? column - start : 0;
        const size_t to = column + c->columns < start + o->n ? column + c->columns - start : o->n;
        if (column + c->columns <= start || from >= to)
            continue;
        p.out = o, p.column = from, p.n = to - from;
        if (j->k == 0)
            no_terms(&p);
        const size_t together = columns_together(j->m, o->dtype);
        for (size_t e = 0; e < p.n; e += together)
            for (size_t block = 0; block * terms < j->k; block++)
                multiply(&p, p.column + e, p.n - e < together ? p.n - e : together, block,
                         staged + block * m * MHA_STAGED);
    }
}

void mha__packed_run(const mha__packed_job *jobs, size_t n_jobs, int threads, void *scratch)
{
    run r = {.jobs = jobs, .n_jobs = n_jobs, .scratch = scratch};
    size_t tasks = 0, wanted = threads > 1 ? pieces_of(4 * (size_t)threads, n_jobs) : 1;
    for (size_t i = 0; i < n_jobs; i++) {
        const mha__packed_job *j = &jobs[i];
        r.cuts[i] = cut_job(j, mha__kernels_get()->tile_rows, threads, wanted);
        r.cuts[i].first_task = tasks;
        tasks += r.cuts[i].row_pieces * r.cuts[i].column_pieces;
        for (size_t o = 0; o < j->n_outputs; o++) {
            size_t bytes = mha__packed_scratch(j->m, j->k, j->outputs[o].dtype);
            r.scratch_bytes = bytes > r.scratch_bytes ? bytes : r.scratch_bytes;
        }
    }
    for (int w = 0; w < threads; w++)
        desk_of(&r, w)->job = NULL;
    mha__parallel_for(tasks, threads, piece, &r);
}
