/* Part of the body of every kernel: numbers of 16 and 8 bits, widened as they are read. */

typedef uint16_t half_vec __attribute__((vector_size(2 * ISA_LANES), aligned(2), may_alias));

/* The kind of the numbers; a constant in every use. */
typedef enum narrow_kind { KIND_F16, KIND_BF16, KIND_I8 } narrow_kind;

INLINE narrow_kind kind_of(mha_dtype dtype)
{
    return dtype == MHA_BF16 ? KIND_BF16 : dtype == MHA_I8 ? KIND_I8 : KIND_F16;
}

/* Bytes of n numbers. */
INLINE size_t bytes_of(size_t n, const narrow_kind kind)
{
    return kind == KIND_I8 ? n : 2 * n;
}

/* LANES numbers, `scale` times the codes of a row of 8 bits. */
INLINE vec load_narrow(const unsigned char *p, const vec scale, const narrow_kind kind)
{
    typedef uint32_t uvec __attribute__((vector_size(4 * ISA_LANES)));
    if (kind == KIND_I8)
        return bytes(p) * scale;
    return kind == KIND_BF16 ? (vec)(__builtin_convertvector(*(const half_vec *)(const void *)p, uvec) << 16)
                             : halves((const uint16_t *)(const void *)p);
}

/* The scale of a row of 8 bits, which ends at `end`. */
INLINE float scale_before(const unsigned char *end)
{
    float scale;
    __builtin_memcpy(&scale, end - MHA_ROW_SCALE, sizeof scale);
    return scale;
}

/* ---------------------------------------------------------------- rows */

INLINE void widen_rows(size_t m, size_t n, const unsigned char *X, size_t ldx, float *Y, size_t ldy,
                       const unsigned char *next, const narrow_kind kind)
{
    const size_t line = 64 / bytes_of(1, kind);
    for (size_t i = 0; i < m; i++, X += bytes_of(ldx, kind), Y += ldy) {
        const vec scale = kind == KIND_I8 ? splat(scale_before(X + ldx)) : (vec){0};
        size_t j = 0;
        for (; j + line <= n; j += line) {
            if (next)
                __builtin_prefetch(next + bytes_of(i * ldx + j, kind), 0, 2);
            UNROLL
            for (size_t l = 0; l < line; l += LANES)
                store(Y + j + l, load_narrow(X + bytes_of(j + l, kind), scale, kind));
        }
        for (; j + LANES <= n; j += LANES)
            store(Y + j, load_narrow(X + bytes_of(j, kind), scale, kind));
        if (j < n) {
            unsigned char lane[2 * LANES] = {0};
            for (size_t l = 0; l < bytes_of(n - j, kind); l++)
                lane[l] = X[bytes_of(j, kind) + l];
            store_part(Y + j, n - j, load_narrow(lane, scale, kind));
        }
    }
}

static void widen(size_t m, size_t n, const void *X, size_t ldx, mha_dtype dtype, float *Y, size_t ldy,
                  const void *next)
{
    switch (kind_of(dtype)) {
    case KIND_F16: widen_rows(m, n, X, ldx, Y, ldy, next, KIND_F16); break;
    case KIND_BF16: widen_rows(m, n, X, ldx, Y, ldy, next, KIND_BF16); break;
    case KIND_I8: widen_rows(m, n, X, ldx, Y, ldy, next, KIND_I8); break;
    }
}

typedef uint32_t bits_vec __attribute__((vector_size(4 * ISA_LANES)));

INLINE bits_vec choose_bits(bits_vec mask, bits_vec a, bits_vec b)
{
    return (a & mask) | (b & ~mask);
}

/* The upper halves of x, rounded to nearest even; the quiet bit keeps a NaN a NaN. */
INLINE bits_vec to_bf16(bits_vec x)
{
    const bits_vec nan = (bits_vec)((x & 0x7fffffff) > 0x7f800000);
    return choose_bits(nan, x >> 16 | 0x40, (x + 0x7fff + (x >> 16 & 1)) >> 16);
}

static void row_round_to_bf16(size_t n, const float *x, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, (vec)(to_bf16((bits_vec)load(x + i)) << 16));
    if (i < n)
        store_part(y + i, n - i, (vec)(to_bf16((bits_vec)load_part(x + i, n - i)) << 16));
}

/* The exponent moves by 127 - 15 and 13 bits are rounded away. Below 2^-14 the number is m * 2^(e - 126) times 2^-24,
 * with m its 24 bits and e those of its exponent: 126 - e bits of m are rounded away, 14 or more, and 25 leave nothing.
 * All of it in integers, so that the caller's rounding plays no part. */
INLINE bits_vec to_f16(bits_vec x)
{
    const bits_vec size = x & 0x7fffffff, moved = size - (112u << 23);
    const bits_vec normal = (moved + 0xfff + (moved >> 13 & 1)) >> 13;
    const bits_vec m = (size & 0x7fffff) | 0x800000, away = 126 - (size >> 23);
    const bits_vec by = choose_bits((bits_vec)(away - 14 < 11), away, (bits_vec){0} + 25);
    const bits_vec tiny = (m + (((bits_vec){0} + 1) << (by - 1)) - 1 + (m >> by & 1)) >> by;
    const bits_vec fits = choose_bits((bits_vec)(size < 0x38800000), tiny, normal);
    /* From 65536 on infinite; smaller numbers may have been rounded up to infinity above. */
    const bits_vec number = choose_bits((bits_vec)(size >= 0x47800000), (bits_vec){0} + 0x7c00, fits);
    const bits_vec half = choose_bits((bits_vec)(size > 0x7f800000), 0x7e00 | (size >> 13 & 0x1ff), number);
    return half | (x >> 16 & 0x8000);
}

INLINE void narrow_rows(size_t m, size_t n, const float *X, size_t ldx, uint16_t *Y, size_t ldy, const bool brain)
{
    for (size_t i = 0; i < m; i++, X += ldx, Y += ldy)
        for (size_t j = 0; j < n; j += LANES) {
            const bool whole = n - j >= LANES;
            const bits_vec x = (bits_vec)(whole ? load(X + j) : load_part(X + j, n - j));
            const half_vec y = __builtin_convertvector(brain ? to_bf16(x) : to_f16(x), half_vec);
            if (whole)
                *(half_vec *)(Y + j) = y;
            else
                __builtin_memcpy(Y + j, &y, (n - j) * sizeof *Y);
        }
}

/* The largest absolute value; NaN when there is one, because its bits are larger than those of infinity. */
INLINE float largest_size(size_t n, const float *X)
{
    bits_vec most = {0};
    for (size_t j = 0; j < n; j += LANES) {
        const bits_vec size = (bits_vec)(n - j >= LANES ? load(X + j) : load_part(X + j, n - j)) & 0x7fffffff;
        most = choose_bits((bits_vec)(size > most), size, most);
    }
    uint32_t bits = 0;
    for (int l = 0; l < LANES; l++)
        bits = most[l] > bits ? most[l] : bits;
    float found;
    __builtin_memcpy(&found, &bits, sizeof found);
    return found;
}

INLINE void narrow_to_bytes(size_t m, size_t n, const float *X, size_t ldx, signed char *Y, size_t ldy)
{
    typedef signed char byte_vec __attribute__((vector_size(ISA_LANES), aligned(1), may_alias));
    const vec to_integer = splat(0x1.8p23f), limit = splat(127.0f); /* what is added leaves no digit behind the point */
    for (size_t i = 0; i < m; i++, X += ldx, Y += ldy) {
        const float scale = mha__byte_scale(largest_size(n, X));
        const bool some = scale > 0 && scale <= FLT_MAX;
        __builtin_memcpy(Y + ldy - MHA_ROW_SCALE, &scale, sizeof scale);
        if (!some)
            __builtin_memset(Y, 0, n);
        for (size_t j = 0; some && j < n; j += LANES) {
            const bool whole = n - j >= LANES;
            const vec x = (whole ? load(X + j) : load_part(X + j, n - j)) / splat(scale);
            const vec kept = -greater(-greater(x, -limit), -limit), number = (kept + to_integer) - to_integer;
            const byte_vec y = __builtin_convertvector(__builtin_convertvector(number, ivec), byte_vec);
            if (whole)
                *(byte_vec *)(Y + j) = y;
            else
                __builtin_memcpy(Y + j, &y, n - j);
        }
    }
}

static void narrow(size_t m, size_t n, const float *X, size_t ldx, mha_dtype dtype, void *Y, size_t ldy)
{
    switch (kind_of(dtype)) {
    case KIND_F16: narrow_rows(m, n, X, ldx, Y, ldy, false); break;
    case KIND_BF16: narrow_rows(m, n, X, ldx, Y, ldy, true); break;
    case KIND_I8: narrow_to_bytes(m, n, X, ldx, Y, ldy); break;
    }
}

/* ---------------------------------------------------------------- product */

/* Vectors of a tile of one row, and of few; rows of the latter, and of a tile of TILE_VECS vectors. */
enum {
    HALF_LONE_VECS = LONE_VECS,
    HALF_FLAT_VECS = FLAT_VECS / 2,
    MOST_FLAT = HALF_FLAT_ROWS < 4 ? HALF_FLAT_ROWS : 4,
    MOST_WIDE = TILE_ROWS < 8 ? TILE_ROWS : 8
};

/* The tile of product.h with a right factor of 16 or 8 bits, of which `end` is the end of a row of 8. Prefetches two
 * cache lines at `soon` with every term. */
INLINE void half_tile(const int m, const operands *o, const int nv, const narrow_kind kind)
{
    const float *A = o->A;
    const unsigned char *B = o->narrow, *end = o->end, *next = o->soon;
    const size_t row = bytes_of(o->row, kind), panel = bytes_of(o->panel, kind), next_row = bytes_of(o->next_row, kind),
                 next_panel = bytes_of(o->next_panel, kind);
    vec sum[MOST_WIDE][HALF_LONE_VECS];
    EACH_OF_TILE
    sum[i][j] = (vec){0};
    for (size_t p = o->k; p > 0; p--, A++, B += row, end += row, next += next_row) {
        const vec scale = kind == KIND_I8 ? splat(scale_before(end)) : (vec){0};
        vec b[HALF_LONE_VECS];
        __builtin_prefetch(next, 0, 3); /* a hint: any address is allowed */
        __builtin_prefetch(next + next_panel, 0, 3);
        UNROLL
        for (int j = 0; j < nv; j++)
            b[j] = load_narrow(B + j / PANEL_VECS * panel + bytes_of(j % PANEL_VECS * LANES, kind), scale, kind);
        UNROLL
        for (int i = 0; i < m; i++) {
            vec a = splat(A[i * MHA_STAGED]);
            UNROLL
            for (int j = 0; j < nv; j++)
                sum[i][j] = madd(a, b[j], sum[i][j]);
        }
    }
    float spill[MOST_WIDE * HALF_LONE_VECS * LANES];
    EACH_OF_TILE
    store(spill + (i * nv + j) * LANES, sum[i][j]);
    put_part((size_t)m, o, spill, (size_t)nv * LANES);
}

#define DEFINE_HALF_TILES(NAME, LIMIT, NV)                                                                             \
    DEFINE_TILE(NAME##_f16, LIMIT, half_tile, NV, KIND_F16)                                                            \
    DEFINE_TILE(NAME##_bf16, LIMIT, half_tile, NV, KIND_BF16)                                                          \
    DEFINE_TILE(NAME##_i8, LIMIT, half_tile, NV, KIND_I8)

DEFINE_HALF_TILES(lone, 1, HALF_LONE_VECS)
DEFINE_HALF_TILES(flat, MOST_FLAT, HALF_FLAT_VECS)
DEFINE_HALF_TILES(wide, MOST_WIDE, TILE_VECS)
DEFINE_HALF_TILES(narrow, 1, 1)

INLINE const unsigned char *half_at(mha__half_panels B, size_t j)
{
    return (const unsigned char *)B.data + bytes_of(j / MHA_PANEL * B.panel + j % MHA_PANEL, kind_of(B.dtype));
}

static void product_half(size_t m, size_t n, size_t k, const float *A, mha__half_panels B, const mha__half_panels *next,
                         float *C, size_t ldc, const float *factor, const float *bias)
{
    static const struct {
        size_t rows, vecs;
        void (*run[3])(size_t, const operands *);
    } shapes[] = {{MOST_FLAT, HALF_FLAT_VECS, {flat_f16, flat_bf16, flat_i8}},
                  {MOST_WIDE, TILE_VECS, {wide_f16, wide_bf16, wide_i8}},
                  {1, 1, {narrow_f16, narrow_bf16, narrow_i8}},
                  {1, HALF_LONE_VECS, {lone_f16, lone_bf16, lone_i8}}};
    const mha__half_panels after = next ? *next : B;
    operands o = {.k = k, .row = B.row, .panel = B.panel, .next_row = after.row, .ldc = ldc,
                  .end = (const unsigned char *)B.data + B.row};
    o.next_panel = n > MHA_PANEL ? after.panel : 0;
    for (size_t j = 0, width; j < n; j += width) {
        const size_t left = n - j;
        const int shape = m == 1 && left >= HALF_LONE_VECS * LANES           ? 3
                          : m <= MOST_FLAT && left >= HALF_FLAT_VECS * LANES ? 0
                          : left > TILE_VECS / 2 * LANES                     ? 1
                                                                             : 2;
        width = shapes[shape].vecs * LANES;
        o.n = left < width ? left : width;
        o.bias = bias ? bias + j : NULL;
        o.narrow = half_at(B, j), o.soon = half_at(after, j);
        all_rows(m, shapes[shape].rows, shapes[shape].run[kind_of(B.dtype)], &o, A, C + j, factor, false);
    }
}
