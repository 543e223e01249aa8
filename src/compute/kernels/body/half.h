/* Part of the body of every kernel: 16-bit floats, widened as they are read. */

typedef uint16_t half_vec __attribute__((vector_size(2 * ISA_LANES), aligned(2), may_alias));

/* LANES numbers; `brain`: BF16, the upper half of a float. */
INLINE vec load_half(const uint16_t *p, const bool brain)
{
    typedef uint32_t uvec __attribute__((vector_size(4 * ISA_LANES)));
    return brain ? (vec)(__builtin_convertvector(*(const half_vec *)p, uvec) << 16) : halves(p);
}

/* ---------------------------------------------------------------- rows */

INLINE void widen_rows(size_t m, size_t n, const uint16_t *X, size_t ldx, float *Y, size_t ldy, const uint16_t *next,
                       const bool brain)
{
    for (size_t i = 0; i < m; i++, X += ldx, Y += ldy) {
        size_t j = 0;
        for (; j + 32 <= n; j += 32) { /* a cache line */
            if (next)
                __builtin_prefetch(next + i * ldx + j, 0, 2);
            UNROLL
            for (int l = 0; l < 32; l += LANES)
                store(Y + j + l, load_half(X + j + l, brain));
        }
        for (; j + LANES <= n; j += LANES)
            store(Y + j, load_half(X + j, brain));
        if (j < n) {
            uint16_t lane[LANES] = {0};
            for (size_t l = 0; l < n - j; l++)
                lane[l] = X[j + l];
            store_part(Y + j, n - j, load_half(lane, brain));
        }
    }
}

static void widen(size_t m, size_t n, const uint16_t *X, size_t ldx, mha_dtype dtype, float *Y, size_t ldy,
                  const uint16_t *next)
{
    if (dtype == MHA_BF16)
        widen_rows(m, n, X, ldx, Y, ldy, next, true);
    else
        widen_rows(m, n, X, ldx, Y, ldy, next, false);
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

static void narrow(size_t m, size_t n, const float *X, size_t ldx, mha_dtype dtype, uint16_t *Y, size_t ldy)
{
    if (dtype == MHA_BF16)
        narrow_rows(m, n, X, ldx, Y, ldy, true);
    else
        narrow_rows(m, n, X, ldx, Y, ldy, false);
}

/* ---------------------------------------------------------------- product */

/* Rows of a tile of HALF_FLAT_VECS vectors, of one of TILE_VECS, and of one of a single vector. */
enum {
    HALF_FLAT_VECS = FLAT_VECS / 2,
    MOST_FLAT = HALF_FLAT_ROWS < 4 ? HALF_FLAT_ROWS : 4,
    MOST_WIDE = TILE_ROWS < 8 ? TILE_ROWS : 8
};

/* The tile of product.h with a right factor of 16 bits. Prefetches two cache lines at `next` with every term. */
INLINE void half_tile(const int m, const int nv, const operands *o, const uint16_t *B, const uint16_t *next,
                      const bool brain)
{
    const float *A = o->A;
    const size_t row = o->row, panel = o->panel, next_row = o->next_row, next_panel = o->next_panel;
    vec sum[MOST_WIDE][HALF_FLAT_VECS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        sum[i][j] = (vec){0};
    for (size_t p = o->k; p > 0; p--, A++, B += row, next += next_row) {
        vec b[HALF_FLAT_VECS];
        __builtin_prefetch(next, 0, 3); /* a hint: any address is allowed */
        __builtin_prefetch(next + next_panel, 0, 3);
        UNROLL
        for (int j = 0; j < nv; j++)
            b[j] = load_half(B + j / PANEL_VECS * panel + j % PANEL_VECS * LANES, brain);
        UNROLL
        for (int i = 0; i < m; i++) {
            vec a = splat(A[i * MHA_STAGED]);
            UNROLL
            for (int j = 0; j < nv; j++)
                sum[i][j] = madd(a, b[j], sum[i][j]);
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

#define HALF_CASE(M, LIMIT, NV, BRAIN)                                                                                 \
    case M:                                                                                                            \
        if (M <= LIMIT)                                                                                                \
            half_tile(M <= LIMIT ? M : 1, NV, o, B, next, BRAIN);                                                      \
        break;
#define DEFINE_HALF_TILE(NAME, LIMIT, NV, BRAIN)                                                                       \
    static __attribute__((noinline)) void NAME(size_t m, const operands *o, const uint16_t *B, const uint16_t *next)   \
    {                                                                                                                  \
        switch (m) {                                                                                                   \
            CASES_TO_8(HALF_CASE, LIMIT, NV, BRAIN)                                                                    \
        }                                                                                                              \
    }

DEFINE_HALF_TILE(flat_f16, MOST_FLAT, HALF_FLAT_VECS, false)
DEFINE_HALF_TILE(flat_bf16, MOST_FLAT, HALF_FLAT_VECS, true)
DEFINE_HALF_TILE(wide_f16, MOST_WIDE, TILE_VECS, false)
DEFINE_HALF_TILE(wide_bf16, MOST_WIDE, TILE_VECS, true)
DEFINE_HALF_TILE(narrow_f16, 1, 1, false)
DEFINE_HALF_TILE(narrow_bf16, 1, 1, true)

INLINE const uint16_t *half_at(mha__half_panels B, size_t j)
{
    return B.data + j / MHA_PANEL * B.panel + j % MHA_PANEL;
}

static void product_half(size_t m, size_t n, size_t k, const float *A, mha__half_panels B, const mha__half_panels *next,
                         float *C, size_t ldc, const float *factor, const float *bias)
{
    static const struct {
        size_t rows, vecs;
        void (*run[2])(size_t, const operands *, const uint16_t *, const uint16_t *);
    } shapes[] = {{MOST_FLAT, HALF_FLAT_VECS, {flat_f16, flat_bf16}},
                  {MOST_WIDE, TILE_VECS, {wide_f16, wide_bf16}},
                  {1, 1, {narrow_f16, narrow_bf16}}};
    const mha__half_panels after = next ? *next : B;
    operands o = {.k = k, .row = B.row, .panel = B.panel, .next_row = after.row, .ldc = ldc};
    o.next_panel = n > MHA_PANEL ? after.panel : 0;
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
            shapes[shape].run[B.dtype == MHA_BF16](rows, &o, half_at(B, j), half_at(after, j));
        }
    }
}
