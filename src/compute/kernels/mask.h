/* Part of the body of every kernel: what a mask hides. */

static const float minus_infinity = -__builtin_inff();

INLINE bool any_lane(ivec mask)
{
    typedef uint64_t words __attribute__((vector_size(4 * ISA_LANES)));
    const words x = (words)mask;
    uint64_t any = 0;
    UNROLL
    for (int w = 0; w < LANES / 2; w++)
        any |= x[w];
    return any != 0;
}

static bool hide(float *x, const uint8_t *flags, size_t n, bool when)
{
    typedef uint8_t bytes_at __attribute__((vector_size(LANES), aligned(1), may_alias));
    const ivec other = (ivec){0} - !when;
    ivec any = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const ivec hides = (__builtin_convertvector(*(const bytes_at *)(flags + i), ivec) != 0) ^ other;
        store(x + i, choose(hides, splat(minus_infinity), load(x + i)));
        any |= hides;
    }
    for (; i < n; i++)
        if ((flags[i] != 0) == when) {
            x[i] = minus_infinity;
            any[0] = -1;
        }
    return any_lane(any);
}

/* Flags are looked at FLAGS_AT_ONCE at a time, then WORD at a time, then one by one; terms TERMS_AT_ONCE. */
enum { FLAGS_AT_ONCE = 64, WORD = 8, TERMS_AT_ONCE = 64 };

/* Whether one of FLAGS_AT_ONCE flags is set, or is not. */
INLINE bool any_flag(const uint8_t *flags, bool set)
{
    typedef uint8_t bytes_at __attribute__((vector_size(FLAGS_AT_ONCE / 2), aligned(1), may_alias));
    typedef uint64_t words __attribute__((vector_size(FLAGS_AT_ONCE / 2)));
    const bytes_at a = *(const bytes_at *)flags, b = *(const bytes_at *)(flags + FLAGS_AT_ONCE / 2);
    const words x = set ? (words)(a | b) : (words)((a == 0) | (b == 0));
    return (x[0] | x[1] | x[2] | x[3]) != 0;
}

/* The highest bit of those of WORD flags that are set, or are not, the first flag lowest. */
INLINE uint64_t flags_in_word(const uint8_t *flags, bool set)
{
    const uint64_t highest = 0x8080808080808080;
    uint64_t x;
    __builtin_memcpy(&x, flags, WORD);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    x = (((x & ~highest) + ~highest) | x) & highest;
    return set ? x : x ^ highest;
}

/* The first flag of [from, to) that is set, or is not; `to` when there is none. */
INLINE size_t first_flag(const uint8_t *flags, size_t from, size_t to, bool set)
{
    while (to - from >= FLAGS_AT_ONCE && !any_flag(flags + from, set))
        from += FLAGS_AT_ONCE;
    for (; to - from >= WORD; from += WORD) {
        const uint64_t found = flags_in_word(flags + from, set);
        if (found)
            return from + (size_t)__builtin_ctzll(found) / 8;
    }
    while (from < to && (flags[from] != 0) != set)
        from++;
    return from;
}

/* Behind the last one; `from` when there is none. */
INLINE size_t behind_last_flag(const uint8_t *flags, size_t from, size_t to, bool set)
{
    while (to - from >= FLAGS_AT_ONCE && !any_flag(flags + to - FLAGS_AT_ONCE, set))
        to -= FLAGS_AT_ONCE;
    for (; to - from >= WORD; to -= WORD) {
        const uint64_t found = flags_in_word(flags + to - WORD, set);
        if (found)
            return to - (size_t)__builtin_clzll(found) / 8;
    }
    while (to > from && (flags[to - 1] != 0) != set)
        to--;
    return to;
}

static bool trim(const uint8_t *flags, bool when, size_t *begin, size_t *end)
{
    *begin = first_flag(flags, *begin, *end, !when);
    *end = behind_last_flag(flags, *begin, *end, !when);
    return first_flag(flags, *begin, *end, when) < *end;
}

INLINE bool any_term(const float *terms)
{
    ivec any = {0};
    for (int i = 0; i < TERMS_AT_ONCE; i += LANES)
        any |= load(terms + i) != splat(minus_infinity);
    return any_lane(any);
}

static void trim_terms(const float *terms, size_t *begin, size_t *end)
{
    size_t from = *begin, to = *end;
    while (to - from >= TERMS_AT_ONCE && !any_term(terms + from))
        from += TERMS_AT_ONCE;
    while (from < to && terms[from] == minus_infinity)
        from++;
    while (to - from >= TERMS_AT_ONCE && !any_term(terms + to - TERMS_AT_ONCE))
        to -= TERMS_AT_ONCE;
    while (to > from && terms[to - 1] == minus_infinity)
        to--;
    *begin = from, *end = to;
}
