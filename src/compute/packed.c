/* Products with packed weights: how they are cut into pieces; the arithmetic is in kernels/. */
#include <string.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "compute/packed.h"
#include "compute/parallel.h"

/* A piece is up to this many rows by this many columns: its staged rows stay in a second-level cache of 512 KiB,
 * and staging them costs a few per cent of the product. */
enum { PIECE_ROWS = 140, PIECE_COLUMNS = 256, FEW_PIECES = 8 };
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

/* How one job is cut. */
typedef struct cut {
    size_t rows, columns, row_pieces, column_pieces, first_task;
} cut;

static cut cut_job(const mha_packed_job *j, size_t tile)
{
    cut c = {.row_pieces = pieces_of(j->m, PIECE_ROWS)};
    /* Even pieces, in whole tiles. */
    c.rows = pieces_of(pieces_of(j->m, tile), c.row_pieces) * tile;
    c.row_pieces = pieces_of(j->m, c.rows);
    c.columns = c.row_pieces * pieces_of(j->n, PIECE_COLUMNS) < FEW_PIECES ? PIECE_COLUMNS / 2 : PIECE_COLUMNS;
    c.column_pieces = pieces_of(j->n, c.columns);
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

/* `room` (of MHA_BLOCK * PIECE_COLUMNS floats) is for panels of 16 bits that many rows share: they are widened once. */
static void multiply(const mha_packed_job *j, size_t first, size_t m, size_t column, size_t n, size_t from,
                     size_t terms, const float *staged, float *room)
{
    const mha_kernels *kernels = mha_kernels_get();
    const size_t at = column * j->k + from * MHA_PANEL, panel = j->k * MHA_PANEL;
    /* Up to three rows of floats go through memory faster unaided. */
    const bool aided = j->m <= FEW_ROWS && (j->m > 3 || j->dtype != MHA_F32);
    const bool reads_on = aided && j->k - from - terms >= terms; /* from end to end of a panel */
    float ones[PIECE_ROWS], *Y = j->Y + first * j->ldy + column;
    const float *b = j->b ? j->b + column : NULL;
    for (size_t i = 0; i < m; i++)
        ones[i] = 1.0f;
    if (j->dtype == MHA_F32) {
        const float *data = (const float *)j->panels + at;
        const mha_panels W = {data, MHA_PANEL, panel}, next = {data + terms * MHA_PANEL, MHA_PANEL, panel};
        kernels->product(m, n, terms, staged, W, reads_on ? &next : NULL, Y, j->ldy, from ? ones : NULL, b);
        return;
    }
    const uint16_t *data = (const uint16_t *)j->panels + at;
    if (j->m <= FEW_ROWS) {
        const mha_half_panels W = {data, MHA_PANEL, panel, j->dtype},
                              next = {data + terms * MHA_PANEL, MHA_PANEL, panel, j->dtype};
        kernels->product_half(m, n, terms, staged, W, reads_on ? &next : NULL, Y, j->ldy, from ? ones : NULL, b);
        return;
    }
    /* While they are multiplied the next ones are fetched: two numbers are as wide as a float. */
    const mha_panels soon = {(const float *)(const void *)(data + terms * MHA_PANEL), MHA_PANEL / 2, panel / 2};
    kernels->widen(pieces_of(n, MHA_PANEL), terms * MHA_PANEL, data, panel, j->dtype, room, terms * MHA_PANEL, NULL);
    kernels->product(m, n, terms, staged, (mha_panels){room, MHA_PANEL, terms * MHA_PANEL},
                     from + terms < j->k ? &soon : NULL, Y, j->ldy, from ? ones : NULL, b);
}

static void piece(void *context, size_t task, int worker)
{
    const run *r = context;
    size_t number = 0;
    while (number + 1 < r->n_jobs && task >= r->cuts[number + 1].first_task)
        number++;
    const mha_packed_job *j = &r->jobs[number];
    const cut *c = &r->cuts[number];
    task -= c->first_task;
    const size_t first = task / c->column_pieces * c->rows, column = task % c->column_pieces * c->columns;
    const size_t m = j->m - first < c->rows ? j->m - first : c->rows,
                 n = j->n - column < c->columns ? j->n - column : c->columns;
    float *staged = (float *)(void *)(r->scratch + (size_t)worker * r->scratch_bytes);
    float *room = staged + staged_floats(j->m, j->k);

    if (j->k == 0)
        for (size_t i = 0; i < m; i++)
            for (size_t e = 0; e < n; e++)
                j->Y[(first + i) * j->ldy + column + e] = j->b ? j->b[column + e] : 0.0f;
    if (j->m > FEW_ROWS) {
        for (size_t from = 0; from < j->k; from += MHA_BLOCK) {
            const size_t terms = j->k - from < MHA_BLOCK ? j->k - from : MHA_BLOCK;
            stage(j, first, m, from, terms, staged);
            multiply(j, first, m, column, n, from, terms, staged, room);
        }
        return;
    }
    for (size_t from = 0; from < j->k; from += MHA_BLOCK)
        stage(j, first, m, from, j->k - from < MHA_BLOCK ? j->k - from : MHA_BLOCK,
              staged + from / MHA_BLOCK * m * MHA_STAGED);
    const size_t READ_TOGETHER = m >= 8 ? 32 : j->dtype == MHA_F32 ? 128 : 64;
    for (size_t e = 0; e < n; e += READ_TOGETHER)
        for (size_t from = 0; from < j->k; from += MHA_BLOCK)
            multiply(j, first, m, column + e, n - e < READ_TOGETHER ? n - e : READ_TOGETHER, from,
                     j->k - from < MHA_BLOCK ? j->k - from : MHA_BLOCK, staged + from / MHA_BLOCK * m * MHA_STAGED,
                     room);
}

void mha_packed_run(const mha_packed_job *jobs, size_t n_jobs, int threads, void *scratch)
{
    run r = {.jobs = jobs, .n_jobs = n_jobs, .scratch = scratch};
    size_t tasks = 0;
    for (size_t i = 0; i < n_jobs; i++) {
        if (jobs[i].m > 0 && jobs[i].n > 0)
            r.cuts[i] = cut_job(&jobs[i], mha_kernels_get()->tile_rows);
        r.cuts[i].first_task = tasks;
        tasks += r.cuts[i].row_pieces * r.cuts[i].column_pieces;
        size_t bytes = mha_packed_scratch(jobs[i].m, jobs[i].k, jobs[i].dtype);
        r.scratch_bytes = bytes > r.scratch_bytes ? bytes : r.scratch_bytes;
    }
    mha_parallel_for(tasks, threads, piece, &r);
}
