/* Part of the body of every kernel: products with a right factor of quantised blocks (mha__block_panels), which are
 * widened in registers to the floats that they mean, and then multiplied and added as in product.h. */

/* Codes lie in words, one for each column: byte u is of term u of four; of 4 bits the high half is of a term 16 later.
 * Words are read some bytes earlier, which shifts them; what is then cut out is a multiple of the code,
 * which its step makes up for. */
typedef enum half_of_byte { LOW, HIGH } half_of_byte;
enum { HALF_QUANT = MHA_QUANT / 2 };
/* Before a loop that takes twice as long when gcc unrolls it. */
#ifdef __clang__
#define ROLL _Pragma("clang loop unroll(disable)")
#else
#define ROLL _Pragma("GCC unroll 1")
#endif
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

/* Whether the codes of a form become floats by their bits alone, as 2^15 + 128 + code, whose multiples the scale of F16
 * makes exact: 9 bits by 11. */
#ifdef ISA_BYTE_FLOATS
enum { BYTE_FLOATS = 1, BYTE_FLOATS_LEAST = 0x8000 + 128 };
#else
enum { BYTE_FLOATS = 0, BYTE_FLOATS_LEAST = 0 };
#endif

INLINE bool is_float_byte(const mha__codes form)
{
    return BYTE_FLOATS && form == MHA_CODES_8;
}

/* The words at any byte. */
INLINE bits_vec words_at(const unsigned char *p)
{
    typedef uint32_t words __attribute__((vector_size(4 * ISA_LANES), aligned(1), may_alias));
    return *(const words *)(const void *)p;
}

/* Bytes of a word. */
INLINE size_t word_of(const mha__codes form)
{
    return mha__is_f8(form) ? 2 : 4;
}

/* The codes of LANES columns in term u of four. */
INLINE vec codes_at(const unsigned char *words, const int u, const half_of_byte half, const mha__codes form,
                    const signed char *values)
{
    if (mha__is_f8(form))
        return f8_at(words + u / 2 * 2 * MHA_PANEL, u % 2, form);
#ifdef ISA_BYTE_FLOATS
    if (is_float_byte(form))
        return byte_float(words_at(words), u);
#endif
#ifdef ISA_TOP
    if (mha__is_byte_wide(form))
        return __builtin_convertvector((ivec)top_byte(words_at(words), u), vec);
#endif
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
    return !mha__is_f8(form) && !is_float_byte(form) &&
           (mha__is_byte_wide(form) || !(PICKS || form == MHA_CODES_4_TABLE));
}

/* Where the last 16 terms of 32 are: of 4 bits in the high halves of the words, else in words of their own. */
INLINE half_of_byte second_half(const mha__codes form)
{
    return mha__is_byte_wide(form) ? LOW : HIGH;
}

INLINE size_t second_words(const mha__codes form)
{
    return mha__is_byte_wide(form) ? HALF_QUANT * MHA_PANEL : 0;
}

/* Those of the high half are 2^20 times as large, all others 2^24 times. */
INLINE float by_half(const half_of_byte half, const mha__codes form)
{
    return half == HIGH && is_scaled(form) ? 16 : 1;
}

/* Whether a value is a sum: codes of 4 bits without a least value are stored 8 larger than they are. */
INLINE bool is_sum(const mha__codes form)
{
    return mha__has_least(form) || form == MHA_CODES_4 || is_float_byte(form);
}

/* Constants of the terms of a group, of LANES columns: value = step * code, or that + least. */
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
    if (is_float_byte(form))
        g.least = g.step * -(float)BYTE_FLOATS_LEAST;
    if (is_scaled(form))
        g.step = g.step * 0x1p-24f;
    return g;
}

INLINE vec value_of(vec code, group_of_terms g, const mha__codes form)
{
    return is_sum(form) ? madd(code, g.step, g.least) : code * g.step;
}

/* Values of the codes of a kind, if they are in a table. */
INLINE const signed char *values_of(const mha__block_kind *kind)
{
    static const signed char plain[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return kind->values ? kind->values : plain;
}

/* Where a part of 32 terms of a block lies. */
typedef struct part_of_block {
    const unsigned char *block, *part;
} part_of_block;

INLINE part_of_block part_at(const mha__block_kind *kind, const mha__block_shape *s, const unsigned char *B, size_t p)
{
    const unsigned char *block = B + p / kind->elements * s->bytes;
    return (part_of_block){block, block + s->header + p % kind->elements / MHA_QUANT * s->part};
}

INLINE void next_part(part_of_block *at, const mha__block_shape *s)
{
    at->part += s->part;
    if (at->part == at->block + s->bytes)
        at->block = at->part, at->part += s->header;
}

INLINE bool may_have_scales(const mha__codes form)
{
    return !mha__is_f8(form) && form != MHA_CODES_8;
}

/* Those of term t of the part, of nv vectors from `column` on, of panels beside each other. */
INLINE void groups_at(const int nv, const mha__block_kind *kind, const part_of_block *at, size_t panel, size_t least,
                      size_t t, size_t column, const mha__codes form, const bool has_scales, group_of_terms *group)
{
    UNROLL
    for (int j = 0; j < nv; j++) {
        const size_t away = (size_t)(j / PANEL_VECS) * panel;
        group[j] = group_at(kind, at->block + away, at->part + away, least, t,
                            column + (size_t)(j % PANEL_VECS * LANES), form, has_scales);
    }
}

/* Adds 16 terms of one group, whose words begin at `words`, to the sums of a tile. */
INLINE void add_terms(const int m, const int nv, const float *A, const unsigned char *words, size_t panel, size_t soon,
                      const group_of_terms *group, const half_of_byte half, const mha__codes form,
                      const signed char *values, vec sum[][HALF_FLAT_VECS])
{
    ROLL for (size_t p = 0; p < HALF_QUANT; p += 4, A += 4, words += 4 * MHA_PANEL)
    {
        for (int j = 0; half == LOW && j < (nv + PANEL_VECS - 1) / PANEL_VECS; j++) { /* any address is allowed */
            const unsigned char *ahead = words + (size_t)j * panel + soon;
            __builtin_prefetch(ahead, 0, 3);
            __builtin_prefetch(ahead + 64, 0, 3);
        }
        UNROLL
        for (int u = 0; u < 4; u++) {
            vec b[HALF_FLAT_VECS];
            UNROLL
            for (int j = 0; j < nv; j++)
                b[j] = value_of(codes_at(words + (size_t)(j / PANEL_VECS) * panel +
                                             (size_t)(j % PANEL_VECS * LANES) * word_of(form),
                                         u, half, form, values),
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

/* The tile of product.h. Terms [first, first + k) of the panels at B; `column` is 0 unless the tile is narrower than a
 * panel. */
INLINE void block_tile(const int m, const operands *o, const int nv, const mha__codes form)
{
    const float *A = o->A;
    const mha__block_panels *W = o->blocks;
    const unsigned char *B = o->narrow;
    const mha__block_kind *kind = W->kind;
    const mha__block_shape s = mha__block_shape_of(kind);
    const signed char *values = values_of(kind);
    const size_t panel = o->panel;
    vec sum[MOST_WIDE][HALF_FLAT_VECS];
    group_of_terms group[HALF_FLAT_VECS] = {0};
    EACH_OF_TILE
    sum[i][j] = (vec){0};
    const size_t column = nv % PANEL_VECS == 0 ? 0 : o->column;
    part_of_block at = part_at(kind, &s, B, W->first);
    for (size_t p = W->first, end = p + o->k; p < end; p += HALF_QUANT, A += HALF_QUANT) {
        const unsigned char *words = at.part + s.codes + column * word_of(form);
        const size_t t = p % MHA_QUANT;
        if (t == 0 || p == W->first || kind->group == HALF_QUANT) {
            if (may_have_scales(form) && kind->scales)
                groups_at(nv, kind, &at, panel, s.least, t, column, form, true, group);
            else
                groups_at(nv, kind, &at, panel, s.least, t, column, form, false, group);
        }
        if (t == 0) {
            add_terms(m, nv, A, words, panel, W->ahead, group, LOW, form, values, sum);
            continue;
        }
        UNROLL
        for (int j = 0; j < nv; j++)
            group[j].step = group[j].step * by_half(second_half(form), form);
        add_terms(m, nv, A, words + second_words(form), panel, W->ahead, group, second_half(form), form, values, sum);
        next_part(&at, &s);
    }
    float spill[MOST_WIDE * HALF_FLAT_VECS * LANES];
    EACH_OF_TILE
    store(spill + (i * nv + j) * LANES, sum[i][j]);
    put_part((size_t)m, o, spill, (size_t)nv * LANES);
}

#define EACH_FORM(DO, SHAPE)                                                                                           \
    DO(SHAPE, MHA_CODES_8)                                                                                             \
    DO(SHAPE, MHA_CODES_8_GROUPS)                                                                                      \
    DO(SHAPE, MHA_CODES_8_LEAST)                                                                                       \
    DO(SHAPE, MHA_CODES_4)                                                                                             \
    DO(SHAPE, MHA_CODES_4_LEAST)                                                                                       \
    DO(SHAPE, MHA_CODES_4_TABLE)                                                                                       \
    DO(SHAPE, MHA_CODES_E4M3)                                                                                          \
    DO(SHAPE, MHA_CODES_E5M2)
#define DEFINE_FLAT(SHAPE, FORM) DEFINE_TILE(SHAPE##_##FORM, MOST_FLAT, block_tile, HALF_FLAT_VECS, FORM)
#define DEFINE_WIDE(SHAPE, FORM) DEFINE_TILE(SHAPE##_##FORM, MOST_WIDE, block_tile, TILE_VECS, FORM)
#define DEFINE_NARROW(SHAPE, FORM) DEFINE_TILE(SHAPE##_##FORM, 1, block_tile, 1, FORM)
#define TILE_OF(SHAPE, FORM) [FORM] = SHAPE##_##FORM,

EACH_FORM(DEFINE_FLAT, flat)
EACH_FORM(DEFINE_WIDE, wide)
EACH_FORM(DEFINE_NARROW, narrow)

static void product_blocks(size_t m, size_t n, size_t k, const float *A, mha__block_panels B, float *C, size_t ldc,
                           const float *factor, const float *bias)
{
    static const struct {
        size_t rows, vecs;
        void (*run[MHA_CODES_COUNT])(size_t, const operands *);
    } shapes[] = {{MOST_FLAT, HALF_FLAT_VECS, {EACH_FORM(TILE_OF, flat)}},
                  {MOST_WIDE, TILE_VECS, {EACH_FORM(TILE_OF, wide)}},
                  {1, 1, {EACH_FORM(TILE_OF, narrow)}}};
    operands o = {.k = k, .panel = B.panel, .ldc = ldc, .blocks = &B};
    for (size_t j = 0, width; j < n; j += width) {
        const size_t left = n - j;
        const int shape = m <= MOST_FLAT && left >= HALF_FLAT_VECS * LANES ? 0 : left > TILE_VECS / 2 * LANES ? 1 : 2;
        width = shapes[shape].vecs * LANES;
        o.n = left < width ? left : width;
        o.bias = bias ? bias + j : NULL;
        o.narrow = B.data + j / MHA_PANEL * B.panel, o.column = j % MHA_PANEL;
        all_rows(m, shapes[shape].rows, shapes[shape].run[B.kind->codes], &o, A, C + j, factor, false);
    }
}

INLINE void widen_panel(size_t k, const mha__block_panels *B, float *Y, const mha__codes form)
{
    const mha__block_kind *kind = B->kind;
    const mha__block_shape s = mha__block_shape_of(kind);
    const signed char *values = values_of(kind);
    part_of_block at = part_at(kind, &s, B->data, B->first);
    for (size_t p = B->first, end = p + k; p < end; p += HALF_QUANT, Y += HALF_QUANT * MHA_PANEL) {
        const bool second = p % MHA_QUANT > 0;
        const half_of_byte half = second ? second_half(form) : LOW;
        UNROLL
        for (int j = 0; j < PANEL_VECS; j++) {
            const size_t column = (size_t)j * LANES;
            group_of_terms group =
                group_at(kind, at.block, at.part, s.least, p % MHA_QUANT, column, form, kind->scales);
            group.step = group.step * by_half(half, form);
            const unsigned char *words = at.part + s.codes + column * word_of(form) + (second ? second_words(form) : 0);
            float *y = Y + column;
            for (int t = 0; t < HALF_QUANT; t += 4, words += 4 * MHA_PANEL, y += 4 * MHA_PANEL)
                UNROLL
            for (int u = 0; u < 4; u++)
                store(y + (size_t)u * MHA_PANEL,
                      value_of(half ? codes_at(words, u, HIGH, form, values) : codes_at(words, u, LOW, form, values),
                               group, form));
        }
        if (second)
            next_part(&at, &s);
    }
}

#define WIDEN_CASE(SHAPE, FORM)                                                                                        \
    case FORM: widen_panel(k, &B, Y, FORM); break;

static void widen_blocks(size_t n, size_t k, mha__block_panels B, float *Y)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, B.data += B.panel, Y += k * MHA_PANEL)
        switch (B.kind->codes) { /* a constant in each expansion */
            EACH_FORM(WIDEN_CASE, )
        case MHA_CODES_COUNT: break; /* unreachable: no kind has it */
        }
}
