/* Part of the body of every kernel: vectors of the instruction set, what is not arithmetic on them. */

#define LANES ISA_LANES
#define PANEL_VECS (MHA_PANEL / LANES)
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline))
/* The cases of a switch over m rows: CALL(m, ...), where m is a constant wherever that is expanded, at most LIMIT. */
#define CASE_OF_ROWS(M, LIMIT, CALL, ...)                                                                              \
    case M:                                                                                                            \
        if (M <= LIMIT)                                                                                                \
            CALL(M <= LIMIT ? M : 1, __VA_ARGS__);                                                                     \
        break;
#define CASES_OF_ROWS(...)                                                                                             \
    CASE_OF_ROWS(1, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(2, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(3, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(4, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(5, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(6, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(7, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(8, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(9, __VA_ARGS__)                                                                                       \
    CASE_OF_ROWS(10, __VA_ARGS__)                                                                                      \
    CASE_OF_ROWS(11, __VA_ARGS__)                                                                                      \
    CASE_OF_ROWS(12, __VA_ARGS__)                                                                                      \
    CASE_OF_ROWS(13, __VA_ARGS__)                                                                                      \
    CASE_OF_ROWS(14, __VA_ARGS__)

typedef int32_t ivec __attribute__((vector_size(4 * ISA_LANES)));
typedef float vec_at __attribute__((vector_size(4 * ISA_LANES), aligned(4), may_alias));
typedef int32_t ivec_at __attribute__((vector_size(4 * ISA_LANES), aligned(4), may_alias));

INLINE vec load(const float *p)
{
    return *(const vec_at *)p;
}

INLINE void store(float *p, vec x)
{
    *(vec_at *)p = x;
}

#ifndef ISA_PARTS
/* The first n < LANES floats; the other lanes hold 0, and are not read. */
INLINE vec load_part(const float *p, size_t n)
{
    float lane[LANES];
    for (size_t i = 0; i < LANES; i++)
        lane[i] = i < n ? p[i] : 0.0f;
    return load(lane);
}

INLINE void store_part(float *p, size_t n, vec x)
{
    float lane[LANES];
    store(lane, x);
    for (size_t i = 0; i < n; i++)
        p[i] = lane[i];
}
#endif

INLINE vec splat(float x)
{
    return x - (vec){0};
}

/* a where the mask is set, else b */
INLINE vec choose(ivec mask, vec a, vec b)
{
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

/* The lanes of a and b interleaved: those of their first halves, and those of their second halves. */
#if ISA_LANES == 4
#define zip_low(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define zip_high(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#elif ISA_LANES == 8
#define zip_low(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define zip_high(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif ISA_LANES == 16
#define zip_low(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define zip_high(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#endif

/* In each quarter (four lanes), pairs: the first or last two lanes of a and b interleaved; halves: the first or last
 * two lanes of a, then those of b. */
#if ISA_LANES == 4
#define pairs_low(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define pairs_high(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define halves_low(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define halves_high(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#elif ISA_LANES == 8
#define pairs_low(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define pairs_high(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define halves_low(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define halves_high(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#elif ISA_LANES == 16
#define pairs_low(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define pairs_high(a, b) __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define halves_low(a, b) __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define halves_high(a, b) __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#endif

/* Folding a vector onto itself halves it; log2(LANES) times over, every lane holds the result. */
INLINE float sum_lanes(vec x)
{
    UNROLL
    for (int width = 1; width < LANES; width *= 2)
        x = zip_low(x, x) + zip_high(x, x);
    return x[0];
}

/* Lane l is the sum of the lanes of vector x[l], or the largest of them; lanes from n on are unspecified. Overwrites x.
 */
INLINE vec sum_of_each(const int n, vec *x)
{
    UNROLL
    for (int half = LANES / 2; half > 0; half /= 2)
        UNROLL
    for (int i = 0; i < half && i < n; i++) {
        const vec other = i + half < n ? x[i + half] : x[i];
        x[i] = zip_low(x[i], other) + zip_high(x[i], other);
    }
    return x[0];
}

INLINE vec max_of_each(const int n, vec *x)
{
    UNROLL
    for (int half = LANES / 2; half > 0; half /= 2)
        UNROLL
    for (int i = 0; i < half && i < n; i++) {
        const vec other = i + half < n ? x[i + half] : x[i];
        x[i] = greater(zip_low(x[i], other), zip_high(x[i], other));
    }
    return x[0];
}

/* Every pair of lanes holds the two floats at p. */
INLINE vec splat_pair(const float *p)
{
    typedef uint64_t pair_at __attribute__((aligned(4), may_alias));
    typedef uint64_t pairs __attribute__((vector_size(4 * ISA_LANES)));
    return (vec)((pairs){0} + *(const pair_at *)p);
}

/* The even lanes of x, or the odd ones, then as many zeros. */
#if ISA_LANES == 16
#define evens(x) __builtin_shufflevector(x, (vec){0}, 0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22, 23)
#define odds(x) __builtin_shufflevector(x, (vec){0}, 1, 3, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23)
#endif

/* The even quarters of a, then of b, or the odd ones. */
#if ISA_LANES == 8
#define even_quarters(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define odd_quarters(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#elif ISA_LANES == 16
#define even_quarters(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define odd_quarters(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#endif

/* The columns of LANES rows: 4 x 4 blocks inside the quarters of four rows at a time, which is as many as registers
 * hold beside what else is there ... */
INLINE void transpose_four(vec r0, vec r1, vec r2, vec r3, vec column[4])
{
    const vec a = pairs_low(r0, r1), b = pairs_high(r0, r1), d = pairs_low(r2, r3), e = pairs_high(r2, r3);
    column[0] = halves_low(a, d);
    column[1] = halves_high(a, d);
    column[2] = halves_low(b, e);
    column[3] = halves_high(b, e);
}

/* ... and then the quarters. */
INLINE void join_quarters(vec column[LANES])
{
    (void)column; /* where there is one quarter */
#if ISA_LANES == 8
    UNROLL
    for (int c = 0; c < 4; c++) {
        const vec a = column[c], b = column[c + 4];
        column[c] = even_quarters(a, b);
        column[c + 4] = odd_quarters(a, b);
    }
#elif ISA_LANES == 16
    UNROLL
    for (int c = 0; c < 4; c++) {
        const vec a = even_quarters(column[c], column[c + 4]), b = odd_quarters(column[c], column[c + 4]),
                  d = even_quarters(column[c + 8], column[c + 12]), e = odd_quarters(column[c + 8], column[c + 12]);
        column[c] = even_quarters(a, d);
        column[c + 4] = even_quarters(b, e);
        column[c + 8] = odd_quarters(a, d);
        column[c + 12] = odd_quarters(b, e);
    }
#endif
}

INLINE void transpose(const vec row[LANES], vec column[LANES])
{
    UNROLL
    for (int r = 0; r < LANES; r += 4)
        transpose_four(row[r], row[r + 1], row[r + 2], row[r + 3], column + r);
    join_quarters(column);
}

/* Those of the LANES x LANES floats at x. */
INLINE void load_transposed(const float *x, size_t ldx, vec column[LANES])
{
    UNROLL
    for (int r = 0; r < LANES; r += 4) {
        const float *row = x + (size_t)r * ldx;
        const vec r0 = load(row), r1 = load(row + ldx), r2 = load(row + 2 * ldx), r3 = load(row + 3 * ldx);
        transpose_four(r0, r1, r2, r3, column + r);
    }
    join_quarters(column);
}
