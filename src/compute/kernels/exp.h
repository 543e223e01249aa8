/* Part of the body of every kernel: exp, tanh, and simple loops over rows. */

#ifndef ISA_EXP
/* exp(x) for x <= 0: x = n ln 2 + r with n rounded to nearest by adding 1.5 * 2^23; exp(r) = 1 + r + r^2 q(r), q
 * minimax on |r| <= ln(2)/2 (relative error 3.1e-9); times 2^n, whose bits are those of the sum moved to the
 * exponent. Below -88.7, n is -127 or less however the caller's thread rounds: it is made -127, where that power is 0,
 * and r is above -1. Where the thread does not round to nearest, |r| <= ln 2, and q is less accurate. NaN passes. */
INLINE vec exp_nonpositive(vec x)
{
    const vec shift = splat(0x1.8p23f + 127.0f);
    x = greater(splat(-88.75f), x);
    vec t = greater(splat(0x1.8p23f), madd(x, splat(0x1.715476p+0f), shift));
    vec n = t - shift;
    vec r = madd(n, splat(-0x1.62e400p-1f), x); /* ln 2 in two parts, the first exact in the product */
    r = madd(n, splat(-0x1.7f7d1cp-20f), r);
    vec q = splat(0.0013814540176801306f);
    q = madd(q, r, splat(0.0083687451089425907f));
    q = madd(q, r, splat(0.041668390783547913f));
    q = madd(q, r, splat(0.1666652039904253f));
    q = madd(q, r, splat(0.4999999343212929f));
#ifdef ISA_UNFUSED
    vec p = madd(q, r * r, r) + splat(1.0f);
#else
    vec p = madd(madd(q, r, splat(1.0f)), r, splat(1.0f)); /* an operation less, and as exact where it is fused */
#endif
    return p * (vec)((ivec)t << 23);
}
#endif

/* Below 0.625 an odd polynomial (Cephes, tanhf), above (1 - e) / (1 + e) with e = exp(-2|x|). */
INLINE vec tanh_all(vec x)
{
    const ivec sign = (ivec)x & INT32_MIN;
    vec size = (vec)((ivec)x & INT32_MAX), square = x * x;
    vec q = splat(-5.70498872745e-3f);
    q = madd(q, square, splat(2.06390887954e-2f));
    q = madd(q, square, splat(-5.37397155531e-2f));
    q = madd(q, square, splat(1.33314422036e-1f));
    q = madd(q, square, splat(-3.33332819422e-1f));
    vec near = madd(q * square, x, x);
    vec e = exp_nonpositive(splat(-2.0f) * size);
    vec far = (splat(1.0f) - e) / (splat(1.0f) + e);
    return choose(size < splat(0.625f), near, (vec)((ivec)far | sign));
}

#define FOR_ROW(EXPRESSION)                                                                                            \
    size_t i = 0;                                                                                                      \
    for (; i + LANES <= n; i += LANES) {                                                                               \
        vec x_i = load(x + i), y_i = load(y + i);                                                                      \
        (void)y_i;                                                                                                     \
        store(y + i, EXPRESSION);                                                                                      \
    }                                                                                                                  \
    if (i < n) {                                                                                                       \
        vec x_i = load_part(x + i, n - i), y_i = load_part(y + i, n - i);                                              \
        (void)y_i;                                                                                                     \
        store_part(y + i, n - i, EXPRESSION);                                                                          \
    }

static void row_exp(float *y, const float *x, size_t n)
{
    FOR_ROW(exp_nonpositive(x_i))
}

static void row_tanh(float *y, const float *x, size_t n)
{
    FOR_ROW(tanh_all(x_i))
}

static void row_scale(float *y, const float *x, size_t n, float a)
{
    const vec factor = splat(a);
    FOR_ROW(x_i * factor)
}

static void row_blend(float *y, const float *x, size_t n, float a, float b)
{
    const vec old = splat(a), new = splat(b);
    FOR_ROW(madd(y_i, old, x_i * new))
}

/* A sum that is 0 may have either sign, by the hidden values that it met with weights of 0: it is taken as +0. */
static void row_divide(float *y, const float *x, size_t n, float a)
{
    const vec divisor = splat(a), zero = {0};
    FOR_ROW((vec)((ivec)x_i & (x_i != zero)) / divisor)
}
