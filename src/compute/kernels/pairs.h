/* Products of BF16 numbers in pairs (mha__pairs), where ISA_TERM adds two terms of a pair. A file includes it behind
 * simd.h and product.h after saying, beside what these need:
 *   ISA_PAIRS               name of the table it exports
 *   join_pairs(a, b)        the pairs of the lanes of a, then those of b, neighbour by neighbour, rounded to BF16
 *   round_to_bf16(x)        the lanes of x rounded to BF16, in the upper halves; what is in the lower ones is free */

typedef uint32_t bits_vec __attribute__((vector_size(4 * ISA_LANES)));
typedef uint16_t row_of_halves __attribute__((vector_size(2 * MHA_PANEL), aligned(2), may_alias));

/* Numbers from n to n + 15 of a and b, one of each in turn. */
#define zip_halves(a, b, n)                                                                                            \
    __builtin_shufflevector(a, b, n, n + 32, n + 1, n + 33, n + 2, n + 34, n + 3, n + 35, n + 4, n + 36, n + 5,        \
                            n + 37, n + 6, n + 38, n + 7, n + 39, n + 8, n + 40, n + 9, n + 41, n + 10, n + 42,        \
                            n + 11, n + 43, n + 12, n + 44, n + 13, n + 45, n + 14, n + 46, n + 15, n + 47)

/* The first n lanes at p, then zeros. */
INLINE vec load_some(const float *p, size_t n)
{
    return n >= LANES ? load(p) : n > 0 ? load_part(p, n) : (vec){0};
}

static void join(size_t m, size_t n, const float *X, size_t ldx, float *Y, size_t ldy)
{
    const size_t whole = n / (2 * LANES) * (2 * LANES), left = n - whole, more = left > LANES ? left - LANES : 0;
    for (size_t i = 0; i < m; i++, X += ldx, Y += ldy) {
        for (size_t j = 0; j < whole; j += 2 * LANES)
            store(Y + j / 2, join_pairs(load(X + j), load(X + j + LANES)));
        const vec y = join_pairs(load_some(X + whole, left), load_some(X + whole + LANES, more));
        if (left == 2 * LANES - 1)
            store(Y + whole / 2, y);
        else if (left > 0)
            store_part(Y + whole / 2, (left + 1) / 2, y);
    }
}

/* The pairs of lanes of a and b. */
INLINE vec pair_of(bits_vec a, bits_vec b)
{
    return (vec)((a & 0xffff0000) | b >> 16);
}

/* 32 pairs, or the first `width` of them and zeros; NULL stands for a row of zeros. A NaN or infinity makes a lane of
 * `poison` NaN. */
INLINE void pack_pair(const float *a, const float *b, size_t width, float *to, vec *poison)
{
    UNROLL
    for (size_t from = 0; from < MHA_PANEL; from += LANES) {
        const size_t left = width > from ? width - from : 0;
        const vec x = a ? load_some(a + from, left) : (vec){0}, y = b ? load_some(b + from, left) : (vec){0};
        const bits_vec first = round_to_bf16(x), second = round_to_bf16(y); /* may be infinite where x was not */
        *poison = madd((vec)first, (vec){0}, madd((vec)second, (vec){0}, *poison));
        store(to + from, pair_of(first, second));
    }
}

static bool pack_pairs(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel, bool late)
{
    vec poison = {0};
    for (size_t p = 0, rows; p < k; p += rows, X += rows * ldx, panels += MHA_PANEL) {
        const bool first = p == 0 && late;
        rows = first || p + 1 == k ? 1 : 2;
        const float *a = first ? NULL : X, *b = first ? X : rows == 2 ? X + ldx : NULL;
        for (size_t j = 0; j < n; j += MHA_PANEL)
            pack_pair(a ? a + j : NULL, b ? b + j : NULL, n - j, panels + j / MHA_PANEL * panel, &poison);
    }
    const float sum = sum_lanes(poison);
    return sum == sum;
}

static void pack_half_pairs(size_t k, size_t n, const uint16_t *X, size_t from_panel, float *panels, size_t panel)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, X += from_panel, panels += panel)
        for (size_t p = 0; p < k; p += 2) {
            const row_of_halves zero = {0}, *x = (const void *)(X + p * MHA_PANEL);
            const row_of_halves after = p + 1 < k ? x[1] : zero;
            float *y = panels + p / 2 * MHA_PANEL;
            store(y, (vec)zip_halves(after, x[0], 0));
            store(y + LANES, (vec)zip_halves(after, x[0], 16));
        }
}

const mha__pairs ISA_PAIRS = {.product = product, .join = join, .pack = pack_pairs, .pack_half = pack_half_pairs};
