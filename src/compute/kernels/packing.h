/* Part of the body of every kernel: matrices into panels, as they are or transposed. */

/* 32 floats, or the first `width` of them and zeros; a NaN or infinity makes a lane of `poison` NaN. */
INLINE void pack_panel_row(const float *x, size_t width, float *to, vec poison[PANEL_VECS])
{
    UNROLL
    for (int l = 0; l < PANEL_VECS; l++) {
        const size_t from = (size_t)l * LANES;
        vec v = width >= from + LANES ? load(x + from) : from < width ? load_part(x + from, width - from) : (vec){0};
        poison[l] = madd(v, (vec){0}, poison[l]);
        store(to + from, v);
    }
}

static bool pack(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel)
{
    vec even[PANEL_VECS] = {{0}}, odd[PANEL_VECS] = {{0}}; /* 0 as long as everything is finite, NaN afterwards */
    const size_t full = n / MHA_PANEL * MHA_PANEL;
    for (size_t p = 0; p < k; p++) {
        const float *x = X + p * ldx;
        float *to = panels + p * MHA_PANEL;
        size_t j = 0;
        for (; j + 2 * MHA_PANEL <= full; j += 2 * MHA_PANEL, to += 2 * panel) {
            pack_panel_row(x + j, MHA_PANEL, to, even);
            pack_panel_row(x + j + MHA_PANEL, MHA_PANEL, to + panel, odd);
        }
        for (; j < full; j += MHA_PANEL, to += panel)
            pack_panel_row(x + j, MHA_PANEL, to, even);
        if (j < n)
            pack_panel_row(x + j, n - j, to, odd);
    }
    vec poison = {0};
    for (int l = 0; l < PANEL_VECS; l++)
        poison += even[l] + odd[l];
    float sum = sum_lanes(poison);
    return sum == sum;
}

/* Packs the transpose of (rows, columns), both at most LANES, filled up with zeros to LANES rows. */
static __attribute__((noinline)) void pack_part(size_t rows, size_t columns, const float *x, size_t ldx, float *to)
{
    const vec zero = {0};
    vec row[LANES], column[LANES];
    UNROLL
    for (size_t i = 0; i < LANES; i++)
        row[i] = i >= rows ? zero : columns == LANES ? load(x + i * ldx) : load_part(x + i * ldx, columns);
    transpose(row, column);
    UNROLL
    for (size_t c = 0; c < LANES; c++)
        if (c < columns)
            store(to + c * MHA_PANEL, column[c]);
}

static void pack_transposed(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel, size_t after)
{
    const size_t all = (n + 15) / 16 * 16;
    const float *last = X + (n + after) * ldx;
    for (size_t j = 0; j < all; j += LANES) {
        float *to = panels + j / MHA_PANEL * panel + j % MHA_PANEL;
        const size_t rows = j >= n ? 0 : n - j < LANES ? n - j : LANES;
        const float *ahead = X + (j + LANES) * ldx;
        size_t at = 0;
        for (size_t p = 0; p < k; p += LANES, to += LANES * MHA_PANEL) {
            const float *x = X + j * ldx + p;
            if (rows == 0) {
                for (size_t c = 0; c < LANES && p + c < k; c++)
                    store(to + c * MHA_PANEL, (vec){0});
                continue;
            }
            if (rows < LANES || k - p < LANES) {
                pack_part(rows, k - p < LANES ? k - p : LANES, x, ldx, to);
                continue;
            }
            for (int line = 0; line < LANES && ahead < last; line++, at += 16) { /* row by row, line by line */
                if (at >= k)
                    at = 0, ahead += ldx;
                __builtin_prefetch(ahead + at, 0, 3);
            }
            vec column[LANES];
            load_transposed(x, ldx, column);
            UNROLL
            for (int c = 0; c < LANES; c++)
                store(to + c * MHA_PANEL, column[c]);
        }
    }
}

#if ISA_LANES == 16
static void interleave_rows(size_t n, float *X)
{
    for (; n >= 2; n -= 2, X += 2 * MHA_PANEL)
        store(X, zip_low(load(X), load(X + MHA_PANEL)));
}
#endif
