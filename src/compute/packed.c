/* Products with packed weights: how they are cut into pieces; the arithmetic is in kernels/. */
#include <string.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "compute/packed.h"
#include "compute/parallel.h"

/* A piece is up to this many rows by this many columns: its staged rows stay in a second-level cache of 512 KiB,
 * and staging them costs a few per cent of the product. In rows it is whole tiles, which 140 need not be. */
enum { PIECE_ROWS = 140, PIECE_COLUMNS = 256, LEAST_COLUMNS = 128 };
/* Up to this many rows the product is reading W: all terms of the rows are staged at once, so that each panel is
 * read from end to end. */
enum { FEW_ROWS = 16 };

static size_t pieces_of(size_t n, size_t piece)
{
    return (n + piece - 1) / piece;
}

bool mha_packed_floats(size_t k, size_t n, size_t *floats)
{
    size_t padded;
    if (!mha_add(n, MHA_PANEL - 1, &padded))
        return false;
    return mha_mul(padded / MHA_PANEL * MHA_PANEL, k, floats);
}

void mha_pack(size_t k, size_t n, const float *W, size_t ldw, float *panels)
{
    (void)mha_kernels_get()->pack(k, n, W, ldw, panels, k * MHA_PANEL);
}

void mha_pack_row(size_t k, size_t p, size_t column, size_t n, const float *row, float *panels)
{
    (void)mha_kernels_get()->pack(1, n, row, n, panels + column * k + p * MHA_PANEL, k * MHA_PANEL);
}

void mha_pack_half(size_t k, size_t n, const uint16_t *W, size_t ldw, uint16_t *panels)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, panels += k * MHA_PANEL)
        for (size_t p = 0; p < k; p++) {
            const size_t there = n - j < MHA_PANEL ? n - j : MHA_PANEL;
            memcpy(panels + p * MHA_PANEL, W + p * ldw + j, there * sizeof *W);
            memset(panels + p * MHA_PANEL + there, 0, (MHA_PANEL - there) * sizeof *W);
        }
}

static size_t staged_floats(size_t m, size_t k)
{
    size_t rows = m <= FEW_ROWS ? m * pieces_of(k, MHA_BLOCK) : m < PIECE_ROWS ? m : PIECE_ROWS;
    return rows * MHA_STAGED;
}

size_t mha_packed_scratch(size_t m, size_t k, mha_dtype dtype)
{
    const size_t widened = dtype == MHA_F32 || m <= FEW_ROWS ? 0 : MHA_BLOCK * PIECE_COLUMNS;
    return (staged_floats(m, k) + widened) * sizeof(float);
}

/* How one job is cut: into pieces of so many rows by so many columns, those of all outputs side by side, each output
 * rounded up to LEAST_COLUMNS. */
typedef struct cut {
    size_t rows, columns, row_pieces, column_pieces, first_task;
} cut;

static size_t rounded(size_t n)
{
    return pieces_of(n, LEAST_COLUMNS) * LEAST_COLUMNS;
}

static cut cut_job(const mha_packed_job *j, size_t tile, size_t tasks)
{
    size_t n = 0;
    for (size_t o = 0; o < j->n_outputs; o++)
        n += rounded(j->outputs[o].n);
    cut c = {.row_pieces = pieces_of(j->m, PIECE_ROWS / tile * tile)};
    if (j->m == 0 || n == 0)
        return (cut){0};
    /* Even pieces, in whole tiles. Staged rows serve all columns of a piece, but columns beyond a few leave the
     * cache before the next rows need them. */
    c.rows = pieces_of(pieces_of(j->m, tile), c.row_pieces) * tile;
    c.row_pieces = pieces_of(j->m, c.rows);
    c.columns = rounded(pieces_of(n, pieces_of(tasks, c.row_pieces)));
    if (c.row_pieces > 1 && c.columns > PIECE_COLUMNS)
        c.columns = PIECE_COLUMNS;
    c.column_pieces = pieces_of(n, c.columns);
    return c;
}

typedef struct run {
    const mha_packed_job *jobs;
    cut cuts[MHA_PACKED_JOBS];
    size_t n_jobs;
    char *scratch;
    size_t scratch_bytes;
} run;

static void stage(const mha_packed_job *j, size_t first, size_t m, size_t from, size_t n, float *staged)
{
    for (size_t i = 0; i < m; i++)
        memcpy(staged + i * MHA_STAGED, j->X + (first + i) * j->ldx + from, n * sizeof(float));
}

/* A rectangle of one output. */
typedef struct part {
    const mha_packed_job *job;
    const mha_packed_output *out;
    size_t first, m, column, n;
    float *room; /* MHA_BLOCK * PIECE_COLUMNS floats, for panels of 16 bits that many rows share: widened once */
} part;

/* Terms [from, from + terms), of columns [column, column + n) of W. */
static void multiply(const part *p, size_t column, size_t n, size_t from, size_t terms, const float *staged)
{
    const mha_kernels *kernels = mha_kernels_get();
    const mha_packed_output *o = p->out;
    const size_t k = p->job->k, at = column * k + from * MHA_PANEL, panel = k * MHA_PANEL;
    /* What is read next: further on in the same panels, or the panels after them. Up to three rows of floats go
     * through memory faster unaided. */
    const size_t ahead = from + terms < k ? at + terms * MHA_PANEL : (column + n) * k;
    const bool few = p->job->m <= FEW_ROWS, aided = few && p->job->m > 3;
    float ones[PIECE_ROWS], *Y = o->Y + p->first * o->ldy + column;
    const float *b = o->b ? o->b + column : NULL;
    for (size_t i = 0; i < p->m; i++)
        ones[i] = 1.0f;
    if (o->dtype == MHA_F32) {
        const float *data = o->panels;
        const mha_panels W = {data + at, MHA_PANEL, panel}, next = {data + ahead, MHA_PANEL, panel};
        kernels->product(p->m, n, terms, staged, W, aided ? &next : NULL, Y, o->ldy, from ? ones : NULL, b);
        return;
    }
    const uint16_t *data = o->panels;
    if (few) {
        const mha_half_panels W = {data + at, MHA_PANEL, panel, o->dtype}, next = {data + ahead, MHA_PANEL, panel, o->dtype};
        kernels->product_half(p->m, n, terms, staged, W, &next, Y, o->ldy, from ? ones : NULL, b);
        return;
    }
    /* While they are multiplied the next ones are fetched: two numbers are as wide as a float. */
    const mha_panels soon = {(const float *)(const void *)(data + ahead), MHA_PANEL / 2, panel / 2};
    kernels->widen(pieces_of(n, MHA_PANEL), terms * MHA_PANEL, data + at, panel, o->dtype, p->room, terms * MHA_PANEL, NULL);
    kernels->product(p->m, n, terms, staged, (mha_panels){p->room, MHA_PANEL, terms * MHA_PANEL}, &soon, Y, o->ldy,
                     from ? ones : NULL, b);
}

/* Many rows: block of terms by block of terms, which are staged for all columns. */
static void many_rows(const part *parts, size_t n_parts, float *staged)
{
    const mha_packed_job *j = parts->job;
    for (size_t from = 0; from < j->k; from += MHA_BLOCK) {
        const size_t terms = j->k - from < MHA_BLOCK ? j->k - from : MHA_BLOCK;
        stage(j, parts->first, parts->m, from, terms, staged);
        for (const part *p = parts; p < parts + n_parts; p++)
            for (size_t e = 0; e < p->n; e += PIECE_COLUMNS)
                multiply(p, p->column + e, p->n - e < PIECE_COLUMNS ? p->n - e : PIECE_COLUMNS, from, terms, staged);
    }
}

/* Few rows: panels are read from end to end, a few together. */
static void few_rows(const part *parts, size_t n_parts, float *staged)
{
    const mha_packed_job *j = parts->job;
    const size_t m = parts->m;
    for (size_t from = 0; from < j->k; from += MHA_BLOCK)
        stage(j, parts->first, m, from, j->k - from < MHA_BLOCK ? j->k - from : MHA_BLOCK,
              staged + from / MHA_BLOCK * m * MHA_STAGED);
    for (const part *p = parts; p < parts + n_parts; p++) {
        const size_t together = m >= 8 ? 32 : p->out->dtype == MHA_F32 ? 128 : 64;
        for (size_t e = 0; e < p->n; e += together)
            for (size_t from = 0; from < j->k; from += MHA_BLOCK)
                multiply(p, p->column + e, p->n - e < together ? p->n - e : together, from,
                         j->k - from < MHA_BLOCK ? j->k - from : MHA_BLOCK, staged + from / MHA_BLOCK * m * MHA_STAGED);
    }
}

static void no_terms(const part *p)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t e = p->column; e < p->column + p->n; e++)
            p->out->Y[(p->first + i) * p->out->ldy + e] = p->out->b ? p->out->b[e] : 0.0f;
}

static void piece(void *context, size_t task, int worker)
{
    const run *r = context;
    size_t number = 0, n_parts = 0, start = 0;
    while (number + 1 < r->n_jobs && task >= r->cuts[number + 1].first_task)
        number++;
    const mha_packed_job *j = &r->jobs[number];
    const cut *c = &r->cuts[number];
    task -= c->first_task;
    const size_t first = task / c->column_pieces * c->rows, column = task % c->column_pieces * c->columns;
    float *staged = (float *)(void *)(r->scratch + (size_t)worker * r->scratch_bytes);
    part parts[MHA_PACKED_OUTPUTS], p = {.job = j, .first = first, .room = staged + staged_floats(j->m, j->k)};
    p.m = j->m - first < c->rows ? j->m - first : c->rows;
    for (const mha_packed_output *o = j->outputs; o < j->outputs + j->n_outputs; start += rounded(o->n), o++) {
        const size_t from = column > start ? column - start : 0;
        const size_t to = column + c->columns < start + o->n ? column + c->columns - start : o->n;
        if (column + c->columns <= start || from >= to)
            continue;
        p.out = o, p.column = from, p.n = to - from;
        if (j->k == 0)
            no_terms(&p);
        parts[n_parts++] = p;
    }
    if (n_parts > 0)
        (j->m > FEW_ROWS ? many_rows : few_rows)(parts, n_parts, staged);
}

void mha_packed_run(const mha_packed_job *jobs, size_t n_jobs, int threads, void *scratch)
{
    run r = {.jobs = jobs, .n_jobs = n_jobs, .scratch = scratch};
    size_t tasks = 0, wanted = threads > 1 ? pieces_of(4 * (size_t)threads, n_jobs) : 1;
    for (size_t i = 0; i < n_jobs; i++) {
        const mha_packed_job *j = &jobs[i];
        r.cuts[i] = cut_job(j, mha_kernels_get()->tile_rows, wanted);
        r.cuts[i].first_task = tasks;
        tasks += r.cuts[i].row_pieces * r.cuts[i].column_pieces;
        for (size_t o = 0; o < j->n_outputs; o++) {
            size_t bytes = mha_packed_scratch(j->m, j->k, j->outputs[o].dtype);
            r.scratch_bytes = bytes > r.scratch_bytes ? bytes : r.scratch_bytes;
        }
    }
    mha_parallel_for(tasks, threads, piece, &r);
}
