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

/* ---------------------------------------------------------------- product */

/* The tile of body.h with a right factor of 16 bits. */
INLINE void half_tile(const int m, const int nv, const operands *o, const uint16_t *B, const uint16_t *next,
                      const bool brain)
{
    const float *A = o->A;
    const size_t row = o->row, panel = o->panel, next_row = o->next_row, width = (size_t)nv * LANES;
    vec sum[TILE_ROWS][FLAT_VECS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        sum[i][j] = (vec){0};
    for (size_t p = o->k; p > 0; p--, A++, B += row, next += next_row) {
        vec b[FLAT_VECS];
        UNROLL
        for (int j = 0; j < nv; j += PANEL_VECS)
            __builtin_prefetch(next + j / PANEL_VECS * panel, 0, 2);
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
    float spill[TILE_ROWS * FLAT_VECS * LANES];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < nv; j++)
        store(spill + (i * nv + j) * LANES, sum[i][j]);
    put_part((size_t)m, o, spill, width);
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
            HALF_CASE(1, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(2, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(3, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(4, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(5, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(6, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(7, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(8, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(9, LIMIT, NV, BRAIN)                                                                             \
            HALF_CASE(10, LIMIT, NV, BRAIN)                                                                            \
            HALF_CASE(11, LIMIT, NV, BRAIN)                                                                            \
            HALF_CASE(12, LIMIT, NV, BRAIN)                                                                            \
            HALF_CASE(13, LIMIT, NV, BRAIN)                                                                            \
            HALF_CASE(14, LIMIT, NV, BRAIN)                                                                            \
        }                                                                                                              \
    }

DEFINE_HALF_TILE(wide_f16, TILE_ROWS, TILE_VECS, false)
DEFINE_HALF_TILE(wide_bf16, TILE_ROWS, TILE_VECS, true)
DEFINE_HALF_TILE(narrow_f16, TILE_ROWS, TILE_VECS / 2, false)
DEFINE_HALF_TILE(narrow_bf16, TILE_ROWS, TILE_VECS / 2, true)
DEFINE_HALF_TILE(flat_f16, FLAT_ROWS, FLAT_VECS, false)
DEFINE_HALF_TILE(flat_bf16, FLAT_ROWS, FLAT_VECS, true)
DEFINE_HALF_TILE(half_flat_f16, HALF_FLAT_ROWS, FLAT_VECS / 2, false)
DEFINE_HALF_TILE(half_flat_bf16, HALF_FLAT_ROWS, FLAT_VECS / 2, true)

INLINE const uint16_t *half_at(mha_half_panels B, size_t j)
{
    return B.data + j / MHA_PANEL * B.panel + j % MHA_PANEL;
}

static void product_half(size_t m, size_t n, size_t k, const float *A, mha_half_panels B, const mha_half_panels *next,
                         float *C, size_t ldc, const float *factor, const float *bias)
{
    typedef void tiles(size_t, const operands *, const uint16_t *, const uint16_t *);
    static tiles *const of[2][4] = {{flat_f16, half_flat_f16, wide_f16, narrow_f16},
                                    {flat_bf16, half_flat_bf16, wide_bf16, narrow_bf16}};
    static const size_t widths[4] = {FLAT_VECS * LANES, FLAT_VECS / 2 * LANES, TILE_VECS *LANES, TILE_VECS / 2 * LANES};
    operands o = {.k = k, .row = B.row, .panel = B.panel, .next_row = next ? next->row : B.row, .ldc = ldc};
    for (size_t j = 0, width; j < n; j += width) {
        const size_t left = n - j;
        const int shape = m <= FLAT_ROWS && left >= widths[0]        ? 0
                          : m <= HALF_FLAT_ROWS && left >= widths[1] ? 1
                          : left > widths[3]                         ? 2
                                                                     : 3;
        width = widths[shape];
        o.n = left < width ? left : width;
        o.bias = bias ? bias + j : NULL;
        const uint16_t *after = next ? half_at(*next, j) : half_at(B, j + width < n ? j + width : j);
        for (size_t i = 0, rows; i < m; i += rows) {
            rows = m - i < TILE_ROWS ? m - i : TILE_ROWS;
            o.A = A + i * MHA_STAGED;
            o.C = C + i * ldc + j;
            o.factor = factor ? factor + i : NULL;
            of[B.dtype == MHA_BF16][shape](rows, &o, half_at(B, j), after);
        }
    }
}
