/* Part of the body of every kernel: C = A B, register tile by register tile. */

/* The sum with one more term; ISA_TERM(a, b, c) where a float of a and b stands for something else. */
#ifdef ISA_TERM
#define ADD_TERM ISA_TERM
#else
#define ADD_TERM madd
#endif

/* The operands of one tile; `n` columns of C are left. */
typedef struct operands {
    const float *A, *B;
    const float *next; /* row 0 of what is read next; every tile prefetches it again, because the CPU may drop a hint */
    size_t n, k, row, panel, next_row, next_panel;
    float *C;
    size_t ldc;
    const float *factor, *bias;
    const unsigned char *narrow, *end, *soon; /* in place of B and next: numbers of 16 or 8 bits (half.h), or blocks, */
    const mha__block_panels *blocks;          /* of these panels, from `column` of one on (blocks.h) */
    size_t column;
} operands;

/* C = init + sum for the columns of a tile that reaches beyond the matrix, or of one that has them all. */
static __attribute__((noinline)) void put_part(size_t m, const operands *o, const float *sum, size_t width)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < o->n; j += LANES) {
            float *c = o->C + i * o->ldc + j;
            const size_t left = o->n - j;
            const bool whole = left >= LANES;
            vec x = load(sum + i * width + j);
            if (o->factor)
                x = madd(splat(o->factor[i]), whole ? load(c) : load_part(c, left), x);
            else if (o->bias)
                x = (whole ? load(o->bias + j) : load_part(o->bias + j, left)) + x;
            if (whole)
                store(c, x);
            else
                store_part(c, left, x);
        }
}

/* The loops over the m x nv vectors of a tile. */
#define EACH_OF_TILE                                                                                                   \
    UNROLL                                                                                                             \
    for (int i = 0; i < m; i++)                                                                                        \
        UNROLL                                                                                                         \
        for (int j = 0; j < nv; j++)

/* One register tile: m rows, nv vectors and `interleaved` are constants wherever this is expanded. */
INLINE void tile(const int m, const operands *o, const int nv, const bool interleaved)
{
    const float *A = o->A, *B = o->B, *next = o->next;
    const size_t row = o->row, panel = o->panel, next_row = o->next_row, next_panel = o->next_panel;
    vec sum[TILE_ROWS][FLAT_VECS];
    EACH_OF_TILE
    sum[i][j] = (vec){0};
    const size_t step = interleaved ? 2 : 1;
    for (size_t p = (o->k + step - 1) / step; p > 0; p--, A += step, B += step * row, next += step * next_row) {
        vec b[FLAT_VECS];
        if (nv <= TILE_VECS) { /* a hint: any address is allowed */
            UNROLL
            for (int line = 0; line < (nv * LANES + 15) / 16; line++)
                __builtin_prefetch(next + line * 16, 0, 2);
        } else if (next) {
            UNROLL
            for (int line = 0; line < nv * LANES / 16; line++)
                __builtin_prefetch(next + line / 2 * next_panel + line % 2 * 16, 0, 3);
        }
        UNROLL
        for (int j = 0; j < nv; j++)
            b[j] = load(B + j / PANEL_VECS * panel + j % PANEL_VECS * LANES);
        UNROLL
        for (int i = 0; i < m; i++) {
            vec a = interleaved ? splat_pair(A + i * MHA_STAGED) : splat(A[i * MHA_STAGED]);
            UNROLL
            for (int j = 0; j < nv; j++)
                sum[i][j] = ADD_TERM(a, b[j], sum[i][j]);
        }
    }
#if ISA_LANES == 16
    if (interleaved) {
        UNROLL
        for (int i = 0; i < m; i++)
            sum[i][0] = evens(sum[i][0]) + odds(sum[i][0]);
    }
#endif
    if (o->n < (size_t)nv * LANES) {
        float spill[TILE_ROWS * FLAT_VECS * LANES];
        EACH_OF_TILE
        store(spill + (i * nv + j) * LANES, sum[i][j]);
        put_part((size_t)m, o, spill, (size_t)nv * LANES);
        return;
    }
    float *C = o->C;
    const size_t ldc = o->ldc;
    const float *factor = o->factor;
    if (factor) {
        EACH_OF_TILE
        store(C + (size_t)i * ldc + j * LANES,
              madd(splat(factor[i]), load(C + (size_t)i * ldc + j * LANES), sum[i][j]));
    } else if (o->bias) {
        EACH_OF_TILE
        store(C + (size_t)i * ldc + j * LANES, load(o->bias + j * LANES) + sum[i][j]);
    } else {
        EACH_OF_TILE
        store(C + (size_t)i * ldc + j * LANES, sum[i][j]);
    }
}

/* TILE(m, o, ...) for m rows, at most LIMIT. */
#define DEFINE_TILE(NAME, LIMIT, TILE, ...)                                                                            \
    static __attribute__((noinline)) void NAME(size_t m, const operands *o)                                            \
    {                                                                                                                  \
        switch (m) {                                                                                                   \
            CASES_OF_ROWS(LIMIT, TILE, o, __VA_ARGS__)                                                                 \
        }                                                                                                              \
    }

DEFINE_TILE(wide_tile, TILE_ROWS, tile, TILE_VECS, false)
DEFINE_TILE(narrow_tile, TILE_ROWS, tile, TILE_VECS / 2, false)
/* Few rows have few chains to keep the adders busy: they take more columns at once. */
DEFINE_TILE(flat_tile, FLAT_ROWS_IN_PLACE, tile, FLAT_VECS, false)
DEFINE_TILE(half_flat_tile, HALF_FLAT_ROWS, tile, FLAT_VECS / 2, false)

INLINE const float *data_at(mha__panels B, size_t j)
{
    return B.data + j / MHA_PANEL * B.panel + j % MHA_PANEL;
}

/* Cuts the rows into tiles of about equal size, of at most `most` rows, because a last tile of two rows would take as
 * long as one of five. When `parted`, each tile prefetches a part of `next`. */
INLINE void all_rows(size_t m, size_t most, void (*columns)(size_t, const operands *), operands *o, const float *A,
                     float *C, const float *factor, bool parted)
{
    const size_t all = m <= most ? 1 : (m + most - 1) / most, next_row = o->next_row;
    if (all == 1) {
        o->A = A, o->C = C, o->factor = factor;
        columns(m, o);
        return;
    }
    if (parted)
        o->next_row /= all;
    for (size_t i = 0, t = 0, rows; t < all; i += rows, t++) {
        rows = (m - i + all - t - 1) / (all - t);
        o->A = A + i * MHA_STAGED;
        o->C = C + i * o->ldc;
        o->factor = factor ? factor + i : NULL;
        columns(rows, o);
        if (parted)
            o->next += o->k / all * next_row;
    }
    o->next_row = next_row;
}

static void product(size_t m, size_t n, size_t k, const float *A, mha__panels B, const mha__panels *next, float *C,
                    size_t ldc, const float *factor, const float *bias)
{
    operands o = {.k = k, .row = B.row, .panel = B.panel, .ldc = ldc};
    o.next_row = next ? next->row : B.row, o.next_panel = next ? next->panel : B.panel;
    const size_t flat = B.row == MHA_PANEL ? FLAT_ROWS : FLAT_ROWS_IN_PLACE;
    for (size_t j = 0, width; j < n; j += width) {
        void (*columns)(size_t, const operands *);
        o.n = n - j;
        if (m <= flat && o.n >= FLAT_VECS * LANES)
            columns = flat_tile, width = FLAT_VECS * LANES;
        else if (m <= HALF_FLAT_ROWS && o.n >= FLAT_VECS / 2 * LANES)
            columns = half_flat_tile, width = FLAT_VECS / 2 * LANES;
        else if (o.n > TILE_VECS / 2 * LANES)
            columns = wide_tile, width = TILE_VECS * LANES;
        else
            columns = narrow_tile, width = TILE_VECS / 2 * LANES;
        o.B = data_at(B, j);
        o.bias = bias ? bias + j : NULL;
        /* A tile prefetches `next` when it is given, else the panel to the right; flat tiles only `next`. */
        if (width > TILE_VECS * LANES)
            o.next = next ? data_at(*next, j) : NULL;
        else
            o.next = next ? data_at(*next, j) : data_at(B, j + width < n ? j + width : j);
        all_rows(m, TILE_ROWS, columns, &o, A, C + j, factor, next && m > TILE_ROWS);
    }
}

#if ISA_LANES == 16 && !defined(ISA_TERM)
DEFINE_TILE(interleaved_tile, TILE_ROWS, tile, 1, true)

static void product_interleaved(size_t m, size_t k, const float *A, const float *X, float *C, size_t ldc,
                                const float *factor)
{
    operands o = {.B = X, .next = X, .n = LANES, .k = k, .row = MHA_PANEL, .ldc = ldc};
    all_rows(m, TILE_ROWS, interleaved_tile, &o, A, C, factor, false);
}
#endif
