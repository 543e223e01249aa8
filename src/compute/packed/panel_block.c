/* Multiplies a panel block of packed weights as it is stored, and prefetches the next one. */
#include "base/base.h"
#include "base/quantised/decoders.h"
#include "compute/packed/panel_block.h"

/* Columns computed at once: for few rows as many panels as the kernel's tile for so few rows is wide. */
size_t mha__panel_block_columns(size_t m, mha_dtype dtype)
{
    if (m > MHA_READ_ROWS)
        return MHA_COLUMNS_TOGETHER;
    if (dtype == MHA_F32)
        return m > 3 ? MHA_PANEL : 4 * MHA_PANEL;
    if (mha__block_kind_of(dtype))
        return mha__kernels_get()->block_columns;
    return m < MHA_ROWS_OF_A_PANEL ? 2 * MHA_PANEL : MHA_PANEL;
}

/* One block of terms of columns [column, column + n) of W, and what is computed of them. */
typedef struct panel_block {
    size_t m, n, column, from, terms;
    size_t at, ahead; /* its first element of packed floats or 16 bits, and that of what is read next: the next terms of
                       * the same panels, or the panels after these */
    const float *staged;
    float *Y;
    const float *factor, *bias;
} panel_block;

/* With few rows reading is fastest when memory is fetched some KiB ahead, over all panels together. */
static void multiply_floats(const mha__rectangle *p, const panel_block *s)
{
    const mha__kernels *kernels = mha__kernels_get();
    const float *data = p->out->panels;
    const size_t m = p->product->m, panel = p->product->k * MHA_PANEL;
    const mha__panels W = {data + s->at, MHA_PANEL, panel};
    mha__panels next = {data + s->ahead, MHA_PANEL, panel};
    if (m > kernels->tile_rows) {
        kernels->product(s->m, s->n, s->terms, s->staged, W, m <= MHA_READ_ROWS ? &next : NULL, s->Y, p->out->ldy,
                         s->factor, s->bias);
        return;
    }
    const size_t ahead = m == 1 ? kernels->row_ahead : kernels->rows_ahead;
    next.data = data + s->at + ahead / sizeof *data / mha__ceil_div(s->n, MHA_PANEL);
    kernels->product(s->m, s->n, s->terms, s->staged, W, ahead ? &next : NULL, s->Y, p->out->ldy, s->factor, s->bias);
}

static void multiply_blocks(const mha__rectangle *p, const panel_block *s, const mha__block_kind *kind)
{
    const mha__kernels *kernels = mha__kernels_get();
    const size_t bytes = p->product->k / kind->elements * mha__block_shape_of(kind).bytes;
    const unsigned char *first = p->out->panels;
    const mha__block_panels W = {first + s->column / MHA_PANEL * bytes, bytes, s->from, kernels->blocks_ahead, kind};
    if (p->product->m <= MHA_READ_ROWS) {
        kernels->product_blocks(s->m, s->n, s->terms, s->staged, W, s->Y, p->out->ldy, s->factor, s->bias);
        return;
    }
    kernels->widen_blocks(s->n, s->terms, W, p->room);
    kernels->product(s->m, s->n, s->terms, s->staged, (mha__panels){p->room, MHA_PANEL, s->terms * MHA_PANEL}, NULL,
                     s->Y, p->out->ldy, s->factor, s->bias);
}

/* Of many rows, as pairs. */
static void multiply_pairs(const mha__rectangle *p, const panel_block *s)
{
    const size_t k_pairs = (s->terms + 1) / 2;
    const uint16_t *data = p->out->panels;
    p->pairs->pack_half(s->terms, s->n, data + s->at, p->product->k * MHA_PANEL, p->room, k_pairs * MHA_PANEL);
    const mha__panels W = {p->room, MHA_PANEL, k_pairs * MHA_PANEL};
    const float *staged = s->staged;
    for (size_t i = 0; i < s->m; i += MHA_TASK_ROWS, staged += MHA_LATER_ROWS)
        p->pairs->product(mha__smaller(s->m - i, MHA_TASK_ROWS), s->n, k_pairs, staged, W, NULL,
                          s->Y + i * p->out->ldy, p->out->ldy, s->factor, s->bias);
}

static void multiply_half(const mha__rectangle *p, const panel_block *s)
{
    const mha__kernels *kernels = mha__kernels_get();
    const mha__packed_output *o = p->out;
    const size_t m = p->product->m, panel = p->product->k * MHA_PANEL;
    const uint16_t *data = o->panels;
    if (m <= MHA_READ_ROWS) {
        const bool fewer = m < MHA_ROWS_OF_A_PANEL;
        const size_t soon = s->at + kernels->half_ahead / sizeof *data / mha__ceil_div(s->n, MHA_PANEL);
        const mha__half_panels W = {data + s->at, MHA_PANEL, panel, o->dtype},
                               next = {data + (fewer ? soon : s->ahead), MHA_PANEL, panel, o->dtype};
        kernels->product_half(s->m, s->n, s->terms, s->staged, W, &next, s->Y, o->ldy, s->factor, s->bias);
        return;
    }
    if (p->pairs) {
        multiply_pairs(p, s);
        return;
    }
    /* While they are multiplied the next ones are fetched: two numbers are as wide as a float. */
    const mha__panels soon = {(const float *)(const void *)(data + s->ahead), MHA_PANEL / 2, panel / 2};
    kernels->widen(mha__ceil_div(s->n, MHA_PANEL), s->terms * MHA_PANEL, data + s->at, panel, o->dtype, p->room,
                   s->terms * MHA_PANEL, NULL);
    kernels->product(s->m, s->n, s->terms, s->staged, (mha__panels){p->room, MHA_PANEL, s->terms * MHA_PANEL}, &soon,
                     s->Y, o->ldy, s->factor, s->bias);
}

void mha__panel_block_multiply(const mha__rectangle *p, size_t column, size_t n, size_t block, const float *staged)
{
    const size_t k = p->product->k, most = mha__block_terms(k), from = block * most,
                 terms = mha__smaller(k - from, most);
    const mha__packed_output *o = p->out;
    const mha__block_kind *kind = mha__block_kind_of(o->dtype);
    float ones[MHA_TASK_ROWS];
    for (size_t i = 0; i < mha__smaller(p->m, MHA_TASK_ROWS); i++)
        ones[i] = 1.0f;
    const size_t at = column * k + from * MHA_PANEL;
    const panel_block s = {.m = p->m,
                     .n = n,
                     .column = column,
                     .from = from,
                     .terms = terms,
                     .at = at,
                     .ahead = from + terms < k ? at + terms * MHA_PANEL : (column + n) * k,
                     .staged = staged,
                     .Y = o->Y + p->first * o->ldy + column,
                     .factor = from ? ones : NULL, .bias = o->b ? o->b + column : NULL};
    if (o->dtype == MHA_F32)
        multiply_floats(p, &s);
    else if (kind)
        multiply_blocks(p, &s, kind);
    else
        multiply_half(p, &s);
}
