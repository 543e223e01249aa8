/* Part of the body of every kernel: products with a right factor of quantised blocks (mha__block_panels), which are
 * widened in registers to the floats that they mean, and then multiplied and added as in product.h. */

/* Codes lie in words, one for each column: byte u is of term u of four; of 4 bits the high half is of a term 16 later.
 * Words are read some bytes earlier, which shifts them; what is then cut out is a multiple of the code,
 * which its step makes up for. */
typedef enum half_of_byte { LOW, HIGH } half_of_byte;
#ifdef ISA_PICK
enum { PICKS = 1 };
#else
enum { PICKS = 0 };
#endif

/* The F16 numbers (mha__f8_half) of codes of F8, which lie in words of two terms: in term u of two. */
INLINE vec f8_at(const unsigned char *words, const int u, const mha__codes form)
{
    typedef int16_t short_vec __attribute__((vector_size(2 * ISA_LANES), aligned(1), may_alias));
    const short_vec code = *(const short_vec *)(const void *)(words + u - 1); /* in the high byte */
    const short_vec half = form == MHA_CODES_E4M3 ? code >> 1 & (short)0xbf80 : code & (short)0xff00;
    return halves((const uint16_t *)(const void *)&half);
}

INLINE bits_vec words_at(const unsigned char *p)
{
    return (bits_vec) * (const ivec_at *)(const void *)p;
}

/* The codes of LANES columns, from `column` on, in term u of four. */
INLINE vec codes_at(const unsigned char *words, size_t column, const int u, const half_of_byte half,
                    const mha__codes form, const signed char *values)
{
    if (mha__is_f8(form))
        return f8_at(words + 2 * column + u / 2 * 2 * MHA_PANEL, u % 2, form);
    words += 4 * column;
    if (mha__is_byte_wide(form))
        return __builtin_convertvector((ivec)(words_at(words + u - 3) & 0xff000000), vec);
#ifdef ISA_PICK
    return pick(words_at(words) >> (8 * u + 4 * (int)half), values);
#else
    if (form == MHA_CODES_4_TABLE) {
        const bits_vec four = look_up(words_at(words) >> 4 * (int)half & 0x0f0f0f0f, values); /* of all terms at once */
        return __builtin_convertvector((ivec)(four << (24 - 8 * u)) >> 24, vec);
    }
    if (half == LOW)
        return __builtin_convertvector((ivec)(words_at(words + u - 3) & 0x0f000000), vec);
    const bits_vec there = u < 3 ? words_at(words + u - 2) : words_at(words) >> 8; /* what follows is not read */
    return __builtin_convertvector((ivec)(there & 0x00f00000), vec);
#endif
}

INLINE bool is_scaled(const mha__codes form)
{
    return !mha__is_f8(form) && (mha__is_byte_wide(form) || !(PICKS || form == MHA_CODES_4_TABLE));
}

/* Those of the high half are 2^20 times as large, all others 2^24 times. */
INLINE float by_half(const half_of_byte half, const mha__codes form)
{
    return half == HIGH && is_scaled(form) ? 16 : 1;
}

/* Whether a value is a sum: codes of 4 bits without a least value are stored 8 larger than they are. */
INLINE bool is_sum(const mha__codes form)
{
    return mha__has_least(form) || form == MHA_CODES_4;
}

/* What is the same for the terms of a group, of LANES columns: value = step * code, or that + least. */
typedef struct group_of_terms {
    vec step, least;
} group_of_terms;

/* `part`: that of term t of 32 in the block. */
INLINE group_of_terms group_at(const mha__block_kind *kind, const unsigned char *block, const unsigned char *part,
                               size_t least, size_t t, size_t column, const mha__codes form, const bool has_scales)
{
    if (mha__is_f8(form))
        return (group_of_terms){.step = load((const float *)(const void *)block + column)};
    const uint16_t *d = (const uint16_t *)(const void *)block + column;
    const unsigned char *scales = part + (t >> __builtin_ctzl(kind->group)) * MHA_PANEL + column;
    const bool power = form == MHA_CODES_4_TABLE && kind->power;
    group_of_terms g = {.step = power ? load_narrow((const unsigned char *)d, (vec){0}, KIND_BF16) : halves(d)};
    if (mha__has_least(form))
        g.least = halves(d + MHA_PANEL);
    if (has_scales) {
        g.step = g.step * bytes(scales);
        if (mha__has_least(form))
            g.least = g.least * bytes(scales + least);
    }
    if (form == MHA_CODES_4)
        g.least = g.step * -8.0f;
    if (is_scaled(form))
        g.step = g.step * 0x1p-24f;
    return g;
}

INLINE vec value_of(vec code, group_of_terms g, const mha__codes form)
{
    return is_sum(form) ? madd(code, g.step, g.least) : code * g.step;
}

/* What the codes of a kind stand for where that is looked up. */
INLINE const signed char *values_of(const mha__block_kind *kind)
{
    static const signed char plain[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return kind->values ? kind->values : plain;
}

/* Where term t of 32 of a part of a block lies. */
typedef struct place_in_blocks {
    const unsigned char *block, *part;
    size_t t;
} place_in_blocks;

INLINE place_in_blocks place_of(const mha__block_kind *kind, const mha__block_shape *s, const unsigned char *B,
                                size_t p)
{
    const unsigned char *block = B + p / kind->elements * s->bytes;
    return (place_in_blocks){block, block + s->header + p % kind->elements / MHA_QUANT * s->part, p % MHA_QUANT};
}

/* Those of nv vectors from `column` on, of panels beside each other. */
INLINE void groups_at(const int nv, const mha__block_kind *kind, const place_in_blocks *at, size_t panel, size_t least,
                      size_t column, const mha__codes form, const bool has_scales, group_of_terms *group)
{
    UNROLL
    for (int j = 0; j < nv; j++) {
        const size_t away = (size_t)(j / PANEL_VECS) * panel;
        group[j] = group_at(kind, at->block + away, at->part + away, least, at->t,
                            column + (size_t)(j % PANEL_VECS * LANES), form, has_scales);
    }
}

/* Adds n terms of one group, whose words begin at `words`, to the sums of a tile. */
INLINE void add_terms(const int m, const int nv, size_t n, const float *A, const unsigned char *words, size_t column,
                      size_t panel, const group_of_terms *group, const half_of_byte half, const mha__codes form,
                      const signed char *values, vec sum[][HALF_FLAT_VECS])
{
    for (size_t p = 0; p < n; p += 4, A += 4, words += 4 * MHA_PANEL) {
        for (int j = 0; half == LOW && j < (nv + PANEL_VECS - 1) / PANEL_VECS; j++) { /* any address is allowed */
            const unsigned char *ahead = words + (size_t)j * panel + BLOCK_AHEAD;
            __builtin_prefetch(ahead, 0, 3);
            __builtin_prefetch(ahead + 64, 0, 3);
        }
        UNROLL
        for (int u = 0; u < 4; u++) {
            vec b[HALF_FLAT_VECS];
            UNROLL
            for (int j = 0; j < nv; j++)
                b[j] = value_of(codes_at(words + (size_t)(j / PANEL_VECS) * panel,
                                         column + (size_t)(j % PANEL_VECS * LANES), u, half, form, values),
                                group[j], form);
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

/* As many of `left` terms as are of one group and one half of their bytes: 16, or 32 bytes. */
INLINE size_t run_length(const mha__block_kind *kind, const place_in_blocks *at, size_t left, const mha__codes form)
{
    const size_t most = mha__is_byte_wide(form) && at->t == 0 ? kind->group : MHA_QUANT / 2;
    return left < most ? left : most;
}

INLINE void move_on(place_in_blocks *at, const mha__block_shape *s, size_t n)
{
    at->t += n;
    if (at->t < MHA_QUANT)
        return;
    at->t = 0, at->part += s->part;
    if (at->part == at->block + s->bytes)
        at->block = at->part, at->part += s->header;
}

INLINE bool is_high(const place_in_blocks *at, const mha__codes form)
{
    return !mha__is_byte_wide(form) && at->t >= MHA_QUANT / 2;
}

INLINE const unsigned char *words_of(const place_in_blocks *at, const mha__block_shape *s, const mha__codes form)
{
    return at->part + s->codes + (is_high(at, form) ? at->t - MHA_QUANT / 2 : at->t) * MHA_PANEL;
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
    const size_t panel = o->panel;
    vec sum[MOST_WIDE][HALF_FLAT_VECS];
    group_of_terms group[HALF_FLAT_VECS] = {0};
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        sum[i][j] = (vec){0};
    if (nv % PANEL_VECS == 0)
        column = 0;
    place_in_blocks at = place_of(kind, &s, B, W->first);
    for (size_t left = o->k, n; left > 0; left -= n, A += n, move_on(&at, &s, n)) {
        const unsigned char *words = words_of(&at, &s, form);
        n = run_length(kind, &at, left, form);
        if (left == o->k || at.t == 0 || at.t == kind->group) {
            if (kind->scales)
                groups_at(nv, kind, &at, panel, s.least, column, form, true, group);
            else
                groups_at(nv, kind, &at, panel, s.least, column, form, false, group);
        }
        if (is_high(&at, form)) {
            UNROLL
            for (int j = 0; j < nv; j++)
                group[j].step = group[j].step * by_half(HIGH, form);
            add_terms(m, nv, n, A, words, column, panel, group, HIGH, form, values, sum);
        } else
            add_terms(m, nv, n, A, words, column, panel, group, LOW, form, values, sum);
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
DEFINE_BLOCK_TILES(e4m3, MHA_CODES_E4M3)
DEFINE_BLOCK_TILES(e5m2, MHA_CODES_E5M2)
#define BLOCK_TILES(SHAPE)                                                                                             \
    {                                                                                                                  \
        [MHA_CODES_8] = SHAPE##_b8, [MHA_CODES_8_LEAST] = SHAPE##_b8_least, [MHA_CODES_4] = SHAPE##_b4,                \
        [MHA_CODES_4_LEAST] = SHAPE##_b4_least, [MHA_CODES_4_TABLE] = SHAPE##_b4_table,                                \
        [MHA_CODES_E4M3] = SHAPE##_e4m3, [MHA_CODES_E5M2] = SHAPE##_e5m2                                               \
    }

static void product_blocks(size_t m, size_t n, size_t k, const float *A, mha__block_panels B, float *C, size_t ldc,
                           const float *factor, const float *bias)
{
    static const struct {
        size_t rows, vecs;
        void (*run[MHA_CODES_COUNT])(size_t, const operands *, const mha__block_panels *, const unsigned char *,
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
    place_in_blocks at = place_of(kind, &s, B->data, B->first);
    for (size_t left = k, n; left > 0; left -= n, Y += n * MHA_PANEL, move_on(&at, &s, n)) {
        const half_of_byte half = is_high(&at, form);
        n = run_length(kind, &at, left, form);
        UNROLL
        for (int j = 0; j < PANEL_VECS; j++) {
            const size_t column = (size_t)j * LANES;
            group_of_terms group = group_at(kind, at.block, at.part, s.least, at.t, column, form, kind->scales);
            group.step = group.step * by_half(half, form);
            const unsigned char *words = words_of(&at, &s, form);
            float *y = Y + column;
            for (size_t t = 0; t < n; t += 4, words += 4 * MHA_PANEL, y += 4 * MHA_PANEL)
                UNROLL
            for (int u = 0; u < 4; u++)
                store(y + (size_t)u * MHA_PANEL,
                      value_of(half ? codes_at(words, column, u, HIGH, form, values)
                                    : codes_at(words, column, u, LOW, form, values),
                               group, form));
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
        case MHA_CODES_E4M3: widen_panel(k, &B, Y, MHA_CODES_E4M3); break;
        case MHA_CODES_E5M2: widen_panel(k, &B, Y, MHA_CODES_E5M2); break;
        case MHA_CODES_COUNT: break; /* unreachable: no kind has it */
        }
}
