/* Part of the body of every kernel: products with a right factor of quantised blocks (quantised_panels.h), which are
 * widened in registers: value = code * scale, exactly a float, and then the multiply-adds of product.h. */

/* Four terms of a block, of which `t` is the first. */
INLINE const unsigned char *four_terms(const unsigned char *block, size_t t, const bool four)
{
    return block + MHA_BLOCK_SCALES + t * (four ? MHA_PANEL / 2 : MHA_PANEL);
}

/* The codes of LANES columns, from `column` on, in term u of four. */
INLINE vec codes(const unsigned char *terms, const int u, size_t column, const bool four)
{
    if (four) {
        const bits_vec words = (bits_vec) * (const ivec_at *)(const void *)(terms + column % 16 * 4);
        return __builtin_convertvector((ivec)(words << (28 - 8 * u - 4 * (int)(column / 16))) >> 28, vec);
    }
    return bytes(terms + (size_t)u * MHA_PANEL + column);
}

/* The tile of product.h. Terms [first, first + k) of the panels at B; `column` is 0 unless the tile is narrower than a
 * panel. */
INLINE void block_tile(const int m, const int nv, const operands *o, const unsigned char *B, size_t first,
                       size_t column, const bool four)
{
    const float *A = o->A;
    const size_t panel = o->panel, block_bytes = mha__block_panel_bytes(four);
    vec sum[MOST_WIDE][HALF_FLAT_VECS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        sum[i][j] = (vec){0};
    if (nv % PANEL_VECS == 0)
        column = 0;
    for (size_t p = first, end = first + o->k, stop; p < end; p = stop) {
        const unsigned char *block = B + p / MHA_QUANT * block_bytes;
        vec scale[HALF_FLAT_VECS];
        stop = p / MHA_QUANT * MHA_QUANT + MHA_QUANT < end ? p / MHA_QUANT * MHA_QUANT + MHA_QUANT : end;
        UNROLL
        for (int j = 0; j < nv; j++)
            scale[j] = halves((const uint16_t *)(const void *)(block + (size_t)(j / PANEL_VECS) * panel) + column +
                              j % PANEL_VECS * LANES);
        for (size_t t = p % MHA_QUANT; p < stop; p += 4, t += 4, A += 4) {
            const unsigned char *terms = four_terms(block, t, four);
            UNROLL
            for (int j = 0; j < (nv + PANEL_VECS - 1) / PANEL_VECS; j++) { /* a hint: any address is allowed */
                const unsigned char *ahead = terms + (size_t)j * panel + BLOCK_AHEAD;
                __builtin_prefetch(ahead, 0, 3);
                if (!four)
                    __builtin_prefetch(ahead + 64, 0, 3);
            }
            UNROLL
            for (int u = 0; u < 4; u++) {
                vec b[HALF_FLAT_VECS];
                UNROLL
                for (int j = 0; j < nv; j++)
                    b[j] = codes(terms + (size_t)(j / PANEL_VECS) * panel, u, column + (size_t)(j % PANEL_VECS * LANES),
                                 four) *
                           scale[j];
                UNROLL
                for (int i = 0; i < m; i++) {
                    vec a = splat(A[i * MHA_STAGED + u]);
                    UNROLL
                    for (int j = 0; j < nv; j++)
                        sum[i][j] = madd(a, b[j], sum[i][j]);
                }
            }
        }
    }
    float spill[MOST_WIDE * HALF_FLAT_VECS * LANES];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        store(spill + (i * nv + j) * LANES, sum[i][j]);
    put_part((size_t)m, o, spill, (size_t)nv * LANES);
}

#define BLOCK_CASE(M, LIMIT, NV, FOUR)                                                                                 \
    case M:                                                                                                            \
        if (M <= LIMIT)                                                                                                \
            block_tile(M <= LIMIT ? M : 1, NV, o, B, first, column, FOUR);                                             \
        break;
#define DEFINE_BLOCK_TILE(NAME, LIMIT, NV, FOUR)                                                                       \
    static __attribute__((noinline)) void NAME(size_t m, const operands *o, const unsigned char *B, size_t first,      \
                                               size_t column)                                                          \
    {                                                                                                                  \
        switch (m) {                                                                                                   \
            CASES_TO_8(BLOCK_CASE, LIMIT, NV, FOUR)                                                                    \
        }                                                                                                              \
    }

DEFINE_BLOCK_TILE(flat_q8, MOST_FLAT, HALF_FLAT_VECS, false)
DEFINE_BLOCK_TILE(flat_q4, MOST_FLAT, HALF_FLAT_VECS, true)
DEFINE_BLOCK_TILE(wide_q8, MOST_WIDE, TILE_VECS, false)
DEFINE_BLOCK_TILE(wide_q4, MOST_WIDE, TILE_VECS, true)
DEFINE_BLOCK_TILE(narrow_q8, 1, 1, false)
DEFINE_BLOCK_TILE(narrow_q4, 1, 1, true)

static void product_blocks(size_t m, size_t n, size_t k, const float *A, mha__block_panels B, float *C, size_t ldc,
                           const float *factor, const float *bias)
{
    static const struct {
        size_t rows, vecs;
        void (*run[2])(size_t, const operands *, const unsigned char *, size_t, size_t);
    } shapes[] = {{MOST_FLAT, HALF_FLAT_VECS, {flat_q8, flat_q4}},
                  {MOST_WIDE, TILE_VECS, {wide_q8, wide_q4}},
                  {1, 1, {narrow_q8, narrow_q4}}};
    operands o = {.k = k, .panel = B.panel, .ldc = ldc};
    for (size_t j = 0, width; j < n; j += width) {
        const size_t left = n - j;
        const int shape = m <= MOST_FLAT && left >= HALF_FLAT_VECS * LANES ? 0 : left > TILE_VECS / 2 * LANES ? 1 : 2;
        width = shapes[shape].vecs * LANES;
        o.n = left < width ? left : width;
        o.bias = bias ? bias + j : NULL;
        const size_t tiles = (m + shapes[shape].rows - 1) / shapes[shape].rows;
        for (size_t i = 0, t = 0, rows; t < tiles; i += rows, t++) {
            rows = (m - i + tiles - t - 1) / (tiles - t);
            o.A = A + i * MHA_STAGED;
            o.C = C + i * ldc + j;
            o.factor = factor ? factor + i : NULL;
            shapes[shape].run[B.dtype == MHA_Q4_0](rows, &o, B.data + j / MHA_PANEL * B.panel, B.first, j % MHA_PANEL);
        }
    }
}

INLINE void widen_panel(size_t k, const unsigned char *B, size_t first, float *Y, const bool four)
{
    for (size_t p = first; p < first + k; p += 4, Y += 4 * MHA_PANEL) {
        const unsigned char *block = B + p / MHA_QUANT * mha__block_panel_bytes(four);
        UNROLL
        for (int j = 0; j < PANEL_VECS; j++) {
            const vec scale = halves((const uint16_t *)(const void *)block + j * LANES);
            UNROLL
            for (int u = 0; u < 4; u++)
                store(Y + u * MHA_PANEL + j * LANES,
                      codes(four_terms(block, p % MHA_QUANT, four), u, (size_t)j * LANES, four) * scale);
        }
    }
}

static void widen_blocks(size_t n, size_t k, mha__block_panels B, float *Y)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, B.data += B.panel, Y += k * MHA_PANEL)
        if (B.dtype == MHA_Q4_0)
            widen_panel(k, B.data, B.first, Y, true);
        else
            widen_panel(k, B.data, B.first, Y, false);
}
