/* Part of the body of every kernel: products with a right factor of quantised blocks (mha__block_panels), which are
 * widened in registers to the floats that they mean, and then multiplied and added as in product.h. */

/* The codes of LANES columns, from `column` on, in term u of four. */
INLINE vec codes_at(const unsigned char *terms, const int u, size_t column, const mha__codes form,
                    const signed char *values)
{
    if (mha__is_byte_wide(form))
        return bytes(terms + (size_t)u * MHA_PANEL + column);
    const bits_vec words = (bits_vec) * (const ivec_at *)(const void *)(terms + column % 16 * 4);
    const int bit = 8 * u + 4 * (int)(column / 16);
#ifdef ISA_PICK
    return pick(words >> bit, values);
#else
    if (form == MHA_CODES_4)
        return __builtin_convertvector((ivec)(words << (28 - bit)) >> 28, vec);
    if (form == MHA_CODES_4_LEAST)
        return __builtin_convertvector((ivec)(words << (28 - bit) >> 28), vec);
    const bits_vec four = look_up(words >> bit % 8 & 0x0f0f0f0f, values); /* of all terms at once */
    return __builtin_convertvector((ivec)(four << (24 - 8 * u)) >> 24, vec);
#endif
}

/* What is the same for the terms of a group, of LANES columns: value = step * code, or that + least. */
typedef struct group_of_terms {
    vec step, least;
} group_of_terms;

/* `part`: that of term t of 32 in the block. */
INLINE group_of_terms group_at(const mha__block_kind *kind, const unsigned char *block, const unsigned char *part,
                               size_t least, size_t t, size_t column, const bool has_least)
{
    const uint16_t *d = (const uint16_t *)(const void *)block + column;
    const unsigned char *scales = part + t / kind->group * MHA_PANEL + column;
    group_of_terms g = {.step = kind->power ? load_narrow((const unsigned char *)d, (vec){0}, KIND_BF16) : halves(d)};
    if (has_least)
        g.least = halves(d + MHA_PANEL);
    if (kind->scales) {
        g.step = g.step * bytes(scales);
        if (has_least)
            g.least = g.least * bytes(scales + least);
    }
    return g;
}

INLINE vec value_of(vec code, group_of_terms g, const bool has_least)
{
    return has_least ? madd(code, g.step, g.least) : code * g.step;
}

/* What the codes of a kind stand for where that is looked up. */
INLINE const signed char *values_of(const mha__block_kind *kind)
{
    static const signed char plain[2][16] = {{0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1},
                                             {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    return kind->values ? kind->values : plain[kind->codes == MHA_CODES_4_LEAST];
}

/* The tile of product.h. Terms [first, first + k) of the panels at B; `column` is 0 unless the tile is narrower than a
 * panel. */
INLINE void block_tile(const int m, const int nv, const operands *o, const mha__block_panels *W, const unsigned char *B,
                       size_t column, const mha__codes form)
{
    const float *A = o->A;
    const mha__block_kind *kind = W->kind;
    const mha__block_shape s = mha__block_shape_of(kind);
    const signed char *values = values_of(kind);
    const bool has_least = mha__has_least(form);
    const size_t panel = o->panel;
    vec sum[MOST_WIDE][HALF_FLAT_VECS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        sum[i][j] = (vec){0};
    if (nv % PANEL_VECS == 0)
        column = 0;
    for (size_t p = W->first, end = W->first + o->k, stop; p < end; p = stop) {
        const unsigned char *block = B + p / kind->elements * s.bytes;
        const unsigned char *part = block + s.header + p % kind->elements / MHA_QUANT * s.part;
        group_of_terms group[HALF_FLAT_VECS];
        stop = (p / kind->group + 1) * kind->group < end ? (p / kind->group + 1) * kind->group : end;
        UNROLL
        for (int j = 0; j < nv; j++) {
            const size_t away = (size_t)(j / PANEL_VECS) * panel;
            group[j] = group_at(kind, block + away, part + away, s.least, p % MHA_QUANT,
                                column + (size_t)(j % PANEL_VECS * LANES), has_least);
        }
        const unsigned char *terms = part + s.codes + p % MHA_QUANT * MHA_PANEL / (mha__is_byte_wide(form) ? 1 : 2);
        for (; p < stop; p += 4, A += 4, terms += mha__is_byte_wide(form) ? 4 * MHA_PANEL : 2 * MHA_PANEL) {
            UNROLL
            for (int j = 0; j < (nv + PANEL_VECS - 1) / PANEL_VECS; j++) { /* a hint: any address is allowed */
                const unsigned char *ahead = terms + (size_t)j * panel + BLOCK_AHEAD;
                __builtin_prefetch(ahead, 0, 3);
                if (mha__is_byte_wide(form))
                    __builtin_prefetch(ahead + 64, 0, 3);
            }
            UNROLL
            for (int u = 0; u < 4; u++) {
                vec b[HALF_FLAT_VECS];
                UNROLL
                for (int j = 0; j < nv; j++)
                    b[j] = value_of(codes_at(terms + (size_t)(j / PANEL_VECS) * panel, u,
                                             column + (size_t)(j % PANEL_VECS * LANES), form, values),
                                    group[j], has_least);
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

#define BLOCK_CASE(M, LIMIT, NV, FORM)                                                                                 \
    case M:                                                                                                            \
        if (M <= LIMIT)                                                                                                \
            block_tile(M <= LIMIT ? M : 1, NV, o, W, B, column, FORM);                                                 \
        break;
#define DEFINE_BLOCK_TILE(NAME, LIMIT, NV, FORM)                                                                       \
    static __attribute__((noinline)) void NAME(size_t m, const operands *o, const mha__block_panels *W,                \
                                               const unsigned char *B, size_t column)                                  \
    {                                                                                                                  \
        switch (m) {                                                                                                   \
            CASES_TO_8(BLOCK_CASE, LIMIT, NV, FORM)                                                                    \
        }                                                                                                              \
    }
#define DEFINE_BLOCK_TILES(NAME, FORM)                                                                                 \
    DEFINE_BLOCK_TILE(flat_##NAME, MOST_FLAT, HALF_FLAT_VECS, FORM)                                                    \
    DEFINE_BLOCK_TILE(wide_##NAME, MOST_WIDE, TILE_VECS, FORM)                                                         \
    DEFINE_BLOCK_TILE(narrow_##NAME, 1, 1, FORM)

DEFINE_BLOCK_TILES(b8, MHA_CODES_8)
DEFINE_BLOCK_TILES(b8_least, MHA_CODES_8_LEAST)
DEFINE_BLOCK_TILES(b4, MHA_CODES_4)
DEFINE_BLOCK_TILES(b4_least, MHA_CODES_4_LEAST)
DEFINE_BLOCK_TILES(b4_table, MHA_CODES_4_TABLE)
#define BLOCK_TILES(SHAPE)                                                                                             \
    {                                                                                                                  \
        [MHA_CODES_8] = SHAPE##_b8, [MHA_CODES_8_LEAST] = SHAPE##_b8_least, [MHA_CODES_4] = SHAPE##_b4,                \
        [MHA_CODES_4_LEAST] = SHAPE##_b4_least, [MHA_CODES_4_TABLE] = SHAPE##_b4_table                                 \
    }

static void product_blocks(size_t m, size_t n, size_t k, const float *A, mha__block_panels B, float *C, size_t ldc,
                           const float *factor, const float *bias)
{
    static const struct {
        size_t rows, vecs;
        void (*run[MHA_CODES_4_TABLE + 1])(size_t, const operands *, const mha__block_panels *, const unsigned char *,
                                           size_t);
    } shapes[] = {{MOST_FLAT, HALF_FLAT_VECS, BLOCK_TILES(flat)},
                  {MOST_WIDE, TILE_VECS, BLOCK_TILES(wide)},
                  {1, 1, BLOCK_TILES(narrow)}};
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
            shapes[shape].run[B.kind->codes](rows, &o, &B, B.data + j / MHA_PANEL * B.panel, j % MHA_PANEL);
        }
    }
}

INLINE void widen_panel(size_t k, const mha__block_panels *B, float *Y, const mha__codes form)
{
    const mha__block_kind *kind = B->kind;
    const mha__block_shape s = mha__block_shape_of(kind);
    const signed char *values = values_of(kind);
    const bool has_least = mha__has_least(form);
    for (size_t p = B->first; p < B->first + k; p += 4, Y += 4 * MHA_PANEL) {
        const unsigned char *block = B->data + p / kind->elements * s.bytes;
        const unsigned char *part = block + s.header + p % kind->elements / MHA_QUANT * s.part;
        const size_t t = p % MHA_QUANT;
        UNROLL
        for (int j = 0; j < PANEL_VECS; j++) {
            const size_t column = (size_t)j * LANES;
            const group_of_terms group = group_at(kind, block, part, s.least, t, column, has_least);
            UNROLL
            for (int u = 0; u < 4; u++)
                store(Y + (size_t)u * MHA_PANEL + column,
                      value_of(codes_at(part + s.codes + t * MHA_PANEL / (mha__is_byte_wide(form) ? 1 : 2), u, column,
                                        form, values),
                               group, has_least));
        }
    }
}

static void widen_blocks(size_t n, size_t k, mha__block_panels B, float *Y)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, B.data += B.panel, Y += k * MHA_PANEL)
        switch (B.kind->codes) { /* a constant in each expansion */
        case MHA_CODES_8: widen_panel(k, &B, Y, MHA_CODES_8); break;
        case MHA_CODES_8_LEAST: widen_panel(k, &B, Y, MHA_CODES_8_LEAST); break;
        case MHA_CODES_4: widen_panel(k, &B, Y, MHA_CODES_4); break;
        case MHA_CODES_4_LEAST: widen_panel(k, &B, Y, MHA_CODES_4_LEAST); break;
        case MHA_CODES_4_TABLE: widen_panel(k, &B, Y, MHA_CODES_4_TABLE); break;
        }
}
