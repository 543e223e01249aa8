/* Every kernel of every instruction set this machine has: against plain loops in double, at sizes around
 * every edge, between guard pages, and with the values that break arithmetic. */
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/kernels/kernels.h"
#include "mha/random.h"
#include "mha/system.h"
#include "support/guard.h"
#include "support/isa.h"
#include "support/unit.h"

/* Unit roundoff of float. */
static const double u = 0x1p-24;

static float *random_floats(size_t n, uint64_t stream)
{
    float *x = guard_allocate(n * sizeof *x, GUARD_AFTER, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = 2.0f * mha__random_unit(1, stream, i) - 1.0f;
    return x;
}

static float *filled(size_t n, float value)
{
    float *x = guard_allocate(n * sizeof *x, GUARD_AFTER, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = value;
    return x;
}

static bool same_bits(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

#define SIZES(...) ((const size_t[]){__VA_ARGS__, 0})
#define FOR_SIZES(n, ...)                                                                                              \
    for (const size_t *n##_at = SIZES(__VA_ARGS__); *n##_at; n##_at++)                                                 \
        for (size_t n = *n##_at, n##_once = 1; n##_once; n##_once = 0)

/* ---------------------------------------------------------------- choosing */

static void instruction_sets_are_listed_selected_and_refused(void **state)
{
    (void)state;
    int n = 0;
    for (; mha_isa_at(n); n++) {
        assert_int_equal(mha_isa_select(mha_isa_at(n), NULL), MHA_OK);
        assert_string_equal(mha_isa(), mha_isa_at(n));
        assert_string_equal(mha__kernels_get()->isa, mha_isa());
    }
    assert_true(n > 0);
    assert_string_equal(mha_isa_at(n - 1), "scalar");
#if defined(__aarch64__)
    assert_string_equal(mha_isa_at(0), "neon"); /* no machine is without */
#endif
    assert_null(mha_isa_at(SIZE_MAX));
    assert_int_equal(mha_isa_select("auto", NULL), MHA_OK);
    assert_string_equal(mha_isa(), mha_isa_at(0));
    mha_error error;
    assert_refused(mha_isa_select("sse9", &error), MHA_NOT_FOUND, error, "isa", "scalar", "found \"sse9\"");
    assert_int_equal(mha_isa_select("", NULL), MHA_NOT_FOUND);
    assert_int_equal(mha_isa_select(NULL, NULL), MHA_INVALID);
    assert_string_equal(mha_isa(), mha_isa_at(0));
}

/* ---------------------------------------------------------------- product */

/* One element as kernels.h promises it: a chain of multiply-adds from 0. */
static float chain(const char *isa, const float *a, const float *B, size_t j, size_t k, size_t panel_stride)
{
    volatile float sum = 0.0f, term;
    for (size_t p = 0; p < k; p++) {
        float b = B[j / MHA_PANEL * panel_stride + p * MHA_PANEL + j % MHA_PANEL];
        if (strcmp(isa, "scalar") == 0) {
            term = a[p] * b;
            sum = sum + term;
        } else {
            sum = fmaf(a[p], b, sum);
        }
    }
    return sum;
}

static void products_are_chains_of_multiply_adds(void **state)
{
    FOR_EACH_ISA
    {
        const mha__kernels *kernels = mha__kernels_get();
        for (size_t m = 1; m <= 2 * kernels->tile_rows + 1; m++)
            FOR_SIZES(n, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 49, 64, 70, 130)
        FOR_SIZES(k, 1, 2, 17, 64)
        {
            if (m > 3 && k == 2)
                continue;
            const size_t panels = (n + MHA_PANEL - 1) / MHA_PANEL, panel_stride = (k + 3) * MHA_PANEL, ldc = n + 5;
            float *A = random_floats((m - 1) * MHA_STAGED + k, 1);
            float *B = random_floats((panels - 1) * panel_stride + k * MHA_PANEL, 2);
            float *C = random_floats((m - 1) * ldc + n, 3), *before = random_floats((m - 1) * ldc + n, 3);
            float *factor = random_floats(m, 4), *bias = random_floats(n, 5);
            for (int init = 0; init < 3; init++) {
                memcpy(C, before, ((m - 1) * ldc + n) * sizeof *C);
                kernels->product(m, n, k, A, (mha__panels){B, MHA_PANEL, panel_stride}, NULL, C, ldc,
                                 init == 1 ? factor : NULL, init == 2 ? bias : NULL);
                for (size_t i = 0; i < m; i++)
                    for (size_t j = 0; j < ldc && i * ldc + j < (m - 1) * ldc + n; j++) {
                        float old = before[i * ldc + j], now = C[i * ldc + j];
                        if (j >= n) {
                            assert_true(same_bits(&old, &now, 1));
                            continue;
                        }
                        float want = chain(kernels->isa, A + i * MHA_STAGED, B, j, k, panel_stride);
                        if (init == 2)
                            want = bias[j] + want;
                        if (init == 1 && strcmp(kernels->isa, "scalar") == 0) {
                            volatile float term = factor[i] * old;
                            want = term + want;
                        } else if (init == 1) {
                            want = fmaf(factor[i], old, want);
                        }
                        if (!same_bits(&want, &now, 1))
                            fail_msg("%s: m %zu n %zu k %zu init %d: C[%zu][%zu] expected %.9g, found %.9g",
                                     kernels->isa, m, n, k, init, i, j, want, now);
                    }
            }
            guard_release_all();
        }
    }
}

static void pairs_of_rows_are_two_chains(void **state)
{
    FOR_EACH_ISA
    {
        const mha__kernels *kernels = mha__kernels_get();
        if (!kernels->interleave_rows)
            continue;
        for (size_t m = 1; m <= 2 * kernels->tile_rows + 1; m++)
            FOR_SIZES(k, 1, 2, 3, 17, 64)
            {
                const size_t n = (k + 1) / 2 * 2, ldc = 20;
                float *A = random_floats((m - 1) * MHA_STAGED + n, 1), *X = random_floats((n - 1) * MHA_PANEL + 16, 2);
                float *rows = random_floats((n - 1) * MHA_PANEL + 16, 2), *factor = random_floats(m, 4);
                float *C = random_floats((m - 1) * ldc + 16, 3), *before = random_floats((m - 1) * ldc + 16, 3);
                for (size_t i = 0; i < m && k % 2; i++)
                    A[i * MHA_STAGED + k] = 0.0f;
                kernels->interleave_rows(n, X);
                for (int init = 0; init < 2; init++) {
                    kernels->product_interleaved(m, k, A, X, C, ldc, init ? factor : NULL);
                    for (size_t i = 0; i < m; i++)
                        for (size_t j = 0; j < ldc && i * ldc + j < (m - 1) * ldc + 16; j++) {
                            float sum[2] = {0.0f, 0.0f}, want = before[i * ldc + j];
                            for (size_t p = 0; p < n && j < 8; p++)
                                sum[p % 2] = fmaf(A[i * MHA_STAGED + p], rows[p * MHA_PANEL + j], sum[p % 2]);
                            if (j < 16)
                                want = init ? fmaf(factor[i], want, sum[0] + sum[1]) : sum[0] + sum[1];
                            assert_true(same_bits(&want, &C[i * ldc + j], 1));
                        }
                    memcpy(C, before, ((m - 1) * ldc + 16) * sizeof *C);
                }
                guard_release_all();
            }
    }
}

/* Few rows take more columns at once where the right factor is read where it lies. */
static void a_plain_right_factor_gives_the_bits_of_a_packed_one(void **state)
{
    FOR_EACH_ISA
    {
        const mha__kernels *kernels = mha__kernels_get();
        for (size_t m = 1; m <= 8; m++)
            FOR_SIZES(n, 16, 48, 64, 128, 144, 256)
        FOR_SIZES(k, 1, 17, 64)
        {
            const size_t panels = (n + MHA_PANEL - 1) / MHA_PANEL, ld = n + 3, ldc = n + 5, floats = (m - 1) * ldc + n;
            float *A = random_floats((m - 1) * MHA_STAGED + k, 1), *B = random_floats((k - 1) * ld + n, 2);
            float *P = filled(panels * k * MHA_PANEL, 0.0f), *factor = random_floats(m, 4), *bias = random_floats(n, 5);
            const mha__panels packed = {P, MHA_PANEL, k * MHA_PANEL}, plain = {B, ld, MHA_PANEL};
            (void)kernels->pack(k, n, B, ld, P, k * MHA_PANEL);
            for (int init = 0; init < 3; init++) {
                float *want = random_floats(floats, 3), *found = random_floats(floats, 3);
                kernels->product(m, n, k, A, packed, NULL, want, ldc, init == 1 ? factor : NULL,
                                 init == 2 ? bias : NULL);
                kernels->product(m, n, k, A, plain, init ? &plain : NULL, found, ldc, init == 1 ? factor : NULL,
                                 init == 2 ? bias : NULL);
                if (!same_bits(want, found, floats))
                    fail_msg("%s: m %zu n %zu k %zu init %d: another result", kernels->isa, m, n, k, init);
            }
            guard_release_all();
        }
    }
}

static void few_rows_meet_rows_with_the_bits_of_a_packed_product(void **state)
{
    FOR_EACH_ISA
    {
        const mha__kernels *kernels = mha__kernels_get();
        for (size_t m = 1; m <= kernels->few_rows; m++)
            FOR_SIZES(n, 1, 3, 4, 7, 8, 15, 16, 17, 33, 64)
        FOR_SIZES(k, 1, 3, 4, 15, 16, 17, 40, 64, 512)
        {
            const size_t panels = (n + MHA_PANEL - 1) / MHA_PANEL, stride = k * MHA_PANEL, ldx = k + 3, ldc = n + 5;
            float *A = random_floats((m - 1) * MHA_STAGED + k, 1), *X = random_floats((n - 1) * ldx + k, 2);
            float *P = filled(panels * stride, 0.0f);
            float *want = filled((m - 1) * ldc + n, 7.0f), *found = filled((m - 1) * ldc + n, 7.0f);
            kernels->pack_transposed(k, n, X, ldx, P, stride, 0);
            kernels->product(m, n, k, A, (mha__panels){P, MHA_PANEL, stride}, NULL, want, ldc, NULL, NULL);
            kernels->product_rows(m, n, k, A, X, ldx, n % 2 ? X : NULL, ldx, found, ldc);
            if (!same_bits(want, found, (m - 1) * ldc + n))
                fail_msg("%s: m %zu n %zu k %zu: other bits than the product with the packed transpose", kernels->isa,
                         m, n, k);
            guard_release_all();
        }
    }
}

/* ---------------------------------------------------------------- packing */

static void packing_lays_out_panels_and_tells_what_is_not_finite(void **state)
{
    FOR_EACH_ISA
    {
        const mha__kernels *kernels = mha__kernels_get();
        FOR_SIZES(k, 1, 3, 15, 16, 17, 33)
        FOR_SIZES(n, 1, 7, 16, 31, 32, 33, 50)
        {
            const size_t panels = (n + MHA_PANEL - 1) / MHA_PANEL, stride = (k + 1) * MHA_PANEL, wide = n + 3;
            float *X = random_floats((k - 1) * wide + n, 1), *Y = random_floats((n - 1) * (k + 2) + k, 2);
            float *P = filled((panels - 1) * stride + k * MHA_PANEL, 7.0f);
            assert_true(kernels->pack(k, n, X, wide, P, stride));
            for (size_t p = 0; p < k; p++)
                for (size_t j = 0; j < panels * MHA_PANEL; j++)
                    assert_float_equal(P[j / MHA_PANEL * stride + p * MHA_PANEL + j % MHA_PANEL],
                                       j < n ? X[p * wide + j] : 0.0f, 0.0f);
            guard_release(P);
            P = filled((panels - 1) * stride + k * MHA_PANEL, 7.0f);
            kernels->pack_transposed(k, n, Y, k + 2, P, stride, n % 2);
            for (size_t p = 0; p < k; p++)
                for (size_t j = 0; j < (n + 15) / 16 * 16; j++)
                    assert_float_equal(P[j / MHA_PANEL * stride + p * MHA_PANEL + j % MHA_PANEL],
                                       j < n ? Y[j * (k + 2) + p] : 0.0f, 0.0f);
            const float bad[] = {NAN, INFINITY, -INFINITY};
            for (size_t at = 0; at < 3; at++) {
                size_t row = at * (k - 1) / 2, column = at * (n - 1) / 2;
                float keep = X[row * wide + column];
                X[row * wide + column] = bad[at];
                assert_false(kernels->pack(k, n, X, wide, P, stride));
                X[row * wide + column] = keep;
            }
            guard_release_all();
        }
    }
}

/* ---------------------------------------------------------------- functions */

static double ulps(float found, double expected)
{
    int exponent;
    frexp(expected, &exponent);
    return fabs(found - expected) / ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
}

/* Every float of a range when MHA_EXHAUSTIVE is set, else every 997th. */
static size_t float_step(void)
{
    return getenv("MHA_EXHAUSTIVE") ? 1 : 997;
}

static double worst_ulps(void (*f)(float *, const float *, size_t), double (*g)(double), float from, float to,
                         float *where)
{
    enum { BATCH = 4096 };
    static float x[BATCH], y[BATCH];
    uint32_t at, last;
    memcpy(&at, &from, 4);
    memcpy(&last, &to, 4);
    double worst = 0.0;
    while (at < last) {
        size_t n = 0;
        for (; n < BATCH && at < last; n++, at += (uint32_t)float_step())
            memcpy(&x[n], &at, 4);
        f(y, x, n);
        for (size_t i = 0; i < n; i++) {
            double distance = ulps(y[i], g(x[i]));
            if (!(distance <= worst)) {
                worst = distance;
                *where = x[i];
            }
        }
    }
    return worst;
}

/* Found over all floats (MHA_EXHAUSTIVE=1, three minutes): exp 0.988 for AVX-512, 0.882 for AVX2, 0.976 without fused
 * multiply-add; tanh 1.703, 1.509, 1.519. */
static void exp_and_tanh_are_accurate(void **state)
{
    FOR_EACH_ISA
    {
        float where = 0.0f;
        double worst = worst_ulps(mha__kernels_get()->exp, exp, -0.0f, -87.33f, &where);
        if (!(worst <= 1.02))
            fail_msg("%s: exp(%.9g) is %.3f ULP off", mha_isa(), where, worst);
        double positive = worst_ulps(mha__kernels_get()->tanh, tanh, 0.0f, INFINITY, &where);
        double negative = worst_ulps(mha__kernels_get()->tanh, tanh, -0.0f, -INFINITY, &where);
        if (!(positive <= 1.71 && negative <= 1.71))
            fail_msg("%s: tanh(%.9g) is %.3f ULP off", mha_isa(), where, positive > negative ? positive : negative);
        if (getenv("MHA_EXHAUSTIVE"))
            print_message("%s: exp %.3f ULP, tanh %.3f ULP\n", mha_isa(), worst,
                          positive > negative ? positive : negative);
    }
}

static void exp_and_tanh_at_their_ends(void **state)
{
    FOR_EACH_ISA
    {
        const float odd_nan = 0x1p0f;
        uint32_t bits = 0x7f801234u; /* a NaN whose payload must not leak into the exponent */
        float x[8] = {0.0f, -0.0f, -INFINITY, -1e30f, -88.03f, -87.5f, NAN, odd_nan}, y[8];
        memcpy(&x[7], &bits, 4);
        mha__kernels_get()->exp(y, x, 8);
        assert_true(y[0] == 1.0f && y[1] == 1.0f && y[2] == 0.0f && y[3] == 0.0f && y[4] == 0.0f);
        assert_true(fabsf(y[5] - (float)exp(-87.5)) <= FLT_MIN);
        assert_true(isnan(y[6]) && isnan(y[7]));
        float t[4] = {INFINITY, -INFINITY, -0.0f, NAN};
        mha__kernels_get()->tanh(t, t, 4);
        assert_true(t[0] == 1.0f && t[1] == -1.0f && t[2] == 0.0f && isnan(t[3]));
    }
}

/* How the thread of a caller can round. */
static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
enum { ROUNDINGS = sizeof roundings / sizeof *roundings };

/* A hidden key has weight 0, and the maximum has weight 1. In between n is the integer on the side to which the
 * thread rounds, and the last places are not promised. */
static void exp_has_its_ends_however_the_thread_rounds(void **state)
{
    FOR_EACH_ISA
    for (int way = 0; way < ROUNDINGS; way++) {
        enum { MANY = 1000 };
        float x[MANY], y[MANY];
        for (size_t i = 0; i < MANY; i++) /* all sorts of numbers from -88.1 to nearly the least there is, and -inf */
            x[i] = i == 0 ? -INFINITY : -88.1001f * powf(3e36f, (float)(i - 1) / (MANY - 1));
        fesetround(roundings[way]);
        mha__kernels_get()->exp(y, x, MANY);
        fesetround(FE_TONEAREST);
        for (size_t i = 0; i < MANY; i++)
            if (y[i] != 0.0f)
                fail_msg("%s, rounding %d: exp(%a) is %a", mha_isa(), roundings[way], (double)x[i], (double)y[i]);
        for (size_t i = 0; i < MANY; i++)
            x[i] = -87.0f * (float)i / MANY;
        fesetround(roundings[way]);
        mha__kernels_get()->exp(y, x, MANY);
        fesetround(FE_TONEAREST);
        assert_true(y[0] == 1.0f);
        for (size_t i = 0; i < MANY; i++) /* found: 1.7e-5, the error of q at |r| = ln 2 */
            assert_true(fabs(y[i] - exp(x[i])) <= 2e-5 * exp(x[i]));
    }
}

static void rows_are_scaled_blended_and_divided_within_bounds(void **state)
{
    FOR_EACH_ISA
    {
        const mha__kernels *k = mha__kernels_get();
        for (size_t n = 1; n < 70; n++) {
            float *x = random_floats(n, 1), *y = random_floats(n, 2), *z = random_floats(n, 2);
            k->scale(y, x, n, 3.0f);
            for (size_t i = 0; i < n; i++)
                assert_true(y[i] == x[i] * 3.0f);
            k->divide(y, x, n, 3.0f);
            for (size_t i = 0; i < n; i++)
                assert_true(y[i] == x[i] / 3.0f);
            memcpy(y, z, n * sizeof *y);
            k->blend(y, x, n, 0.3f, 1.7f);
            for (size_t i = 0; i < n; i++) /* three roundings of terms no larger than 2 in sum */
                assert_true(fabs(y[i] - ((double)z[i] * 0.3f + (double)x[i] * 1.7f)) <= 3 * u * 2);
            k->exp(y, z, 0);
            guard_release_all();
        }
    }
}

/* ---------------------------------------------------------------- softmax */

static bool is_named(unsigned named, size_t i, size_t n)
{
    return named == 1 ? i + 1 == n : named == 2 ? i % 3 == 1 : named == 3 && i == 0;
}

static void flags_hide_what_they_name(void **state)
{
    FOR_EACH_ISA
    {
        for (size_t n = 0; n < 70; n++)
            for (unsigned named = 0; named < 4; named++) /* no key, the last, every third, the first */
                for (int when = 0; when < 2; when++) {
                    float *x = random_floats(n + 1, 5);
                    uint8_t *flags = guard_allocate(n ? n : 1, GUARD_AFTER, 0);
                    bool any = false;
                    for (size_t i = 0; i < n; i++) {
                        const bool hides = is_named(named, i, n);
                        flags[i] = hides == (when != 0) ? (uint8_t)(1 + i * 77 % 255) : 0;
                        any |= hides;
                    }
                    assert_true(mha__kernels_get()->hide(x, flags, n, when != 0) == any);
                    const float *before = random_floats(n + 1, 5);
                    for (size_t i = 0; i <= n; i++) {
                        const bool hides = i < n && is_named(named, i, n);
                        assert_true(x[i] == (hides ? -INFINITY : before[i]));
                    }
                    guard_release_all();
                }
    }
}

/* Rows of scores, a running maximum and sum for each. */
typedef struct tile {
    float *x;
    float max[MHA_TILE_ROWS], sum[MHA_TILE_ROWS], factor[MHA_TILE_ROWS];
} tile;

enum { TILE_STRIDE = MHA_BLOCK + 3 };

/* m rows of n random scores with a random past. */
static tile random_tile(size_t m, size_t n)
{
    tile t = {.x = random_floats((m - 1) * TILE_STRIDE + (n + 15) / 16 * 16, 9)};
    for (size_t i = 0; i < MHA_TILE_ROWS; i++)
        t.max[i] = 4.0f * mha__random_unit(2, 8, i), t.sum[i] = mha__random_unit(3, 8, i), t.factor[i] = NAN;
    return t;
}

static void softmax(tile *t, size_t m, size_t n)
{
    mha__kernels_get()->softmax_rows(m, n, t->x, TILE_STRIDE, t->max, t->sum, t->factor);
}

/* A single row without earlier keys: its maximum and its sum. */
static float softmax_alone(float *x, size_t n, float *sum)
{
    tile t = {.x = x, .max = {-INFINITY}};
    softmax(&t, 1, n);
    *sum = t.sum[0];
    return t.max[0];
}

/* Flags, or terms, of `n` keys with stretches, single ones, none and nothing but hidden keys; what is left between the
 * first and the last that is not hidden. */
static void what_is_hidden_at_the_ends_is_trimmed(void **state)
{
    FOR_EACH_ISA
    for (uint64_t seed = 0; seed < 400; seed++) {
        const mha__kernels *kernels = mha__kernels_get();
        const size_t n = (size_t)(seed * 7 % 331), from = n ? seed * 13 % n : 0, to = n - (n - from) * (seed % 3) / 3;
        const size_t stretch = (const size_t[]){1, 5, 90, 400}[seed % 4];
        const float often = (const float[]){0.0f, 0.03f, 0.5f, 0.97f, 1.0f}[seed % 5];
        const bool when = seed / 5 % 2;
        uint8_t *flags = guard_allocate(n ? n : 1, seed % 2 ? GUARD_AFTER : GUARD_BEFORE, 0);
        float *terms = guard_allocate((n ? n : 1) * sizeof *terms, seed % 2 ? GUARD_AFTER : GUARD_BEFORE, 0);
        size_t first = to, behind = to, hidden = 0;
        for (size_t i = 0; i < n; i++) {
            const bool hides = mha__random_unit(21, seed, i / stretch) < often;
            flags[i] = hides == when ? (uint8_t)(1 + i * 77 % 255) : 0;
            terms[i] = hides ? -INFINITY : (const float[]){0.0f, -FLT_MAX, NAN, INFINITY}[i % 4];
            if (i < from || i >= to || hides)
                continue;
            first = first == to ? i : first;
            behind = i + 1;
        }
        for (size_t i = first; i < behind; i++)
            hidden += terms[i] == -INFINITY;
        size_t begin = from, end = to;
        assert_true(kernels->trim(flags, when, &begin, &end) == (hidden > 0));
        assert_true(begin == first && end == behind);
        begin = from, end = to;
        kernels->trim_terms(terms, &begin, &end);
        assert_true(begin == first && end == behind);
        guard_release_all();
    }
}

/* n scores of which [begin, end) may be seen, bias and cap or not; a running maximum they meet; one of several rows. */
static void check_softmax(size_t n, size_t begin, size_t end, bool with_bias, bool with_cap, float running)
{
    const mha__kernels *k = mha__kernels_get();
    const size_t room = (n + 15) / 16 * 16, m = n % MHA_TILE_ROWS + 1, at = n / 3 % m;
    float *x = random_floats(room, n), *bias = with_bias ? random_floats(n, 77) : NULL, scores[MHA_BLOCK];
    for (size_t i = 0; i < room; i++)
        scores[i] = x[i] *= 20.0f;
    for (size_t i = 0; i < room; i++) /* hidden scores may be anything */
        if (i < begin || i >= end)
            x[i] = i % 3 ? NAN : INFINITY;
    for (size_t i = 2; bias && i < n; i += 5) {
        bias[i] = -INFINITY;
        x[i] = i % 2 ? NAN : INFINITY;
    }
    double want[MHA_BLOCK], largest = -INFINITY;
    for (size_t i = 0; i < room; i++) {
        want[i] = -INFINITY;
        if (i < begin || i >= end || (bias && bias[i] == -INFINITY))
            continue;
        want[i] = (with_cap ? 30.0 * tanh((double)scores[i] / 30.0) : scores[i]) + (bias ? (double)bias[i] : 0.0);
        largest = want[i] > largest ? want[i] : largest;
    }
    bool visible = k->softmax_prepare(x, n, begin, end, bias, with_cap ? 30.0f : 0.0f);
    assert_true(visible == (largest > -INFINITY));

    /* A score carries the roundings of the cap (5 u of at most 30) and of the bias (u of at most 31); so does the
     * maximum; their difference rounds once more, and exp adds 1.02 ULP. A sum of n positive terms: n u. */
    const double argument = (with_cap ? 5 * 30 * u : 0.0) + (bias ? 31 * u : 0.0);
    for (size_t i = 0; i < room; i++)
        assert_true(x[i] == want[i] || fabs(x[i] - want[i]) <= argument);

    tile t = random_tile(m, n);
    memcpy(t.x + at * TILE_STRIDE, x, room * sizeof *x);
    t.max[at] = running;
    const double past = t.sum[at];
    softmax(&t, m, n);
    const double max = t.max[at], gap = max > running ? max - running : 0.0,
                 shrinks = exp(-gap);
    double sum = past * shrinks;
    assert_true(max == (largest > running ? largest : running) || fabs(max - largest) <= argument);
    assert_true(fabs(t.factor[at] - shrinks) <= (isinf(gap) ? 0.0 : argument + (gap + 4) * u) * shrinks + FLT_MIN);
    assert_true(max > running || t.factor[at] == 1.0f);
    for (size_t i = 0; i < (n + k->lanes - 1) / k->lanes * k->lanes; i++) { /* up to the end of the last vector */
        double e = max > -INFINITY ? exp(want[i] - max) : 0.0, relative = argument + (max - want[i] + 4) * u;
        float found = t.x[at * TILE_STRIDE + i];
        assert_true(want[i] > -INFINITY ? fabs(found - e) <= relative * e + FLT_MIN : found == 0.0f);
        sum += e;
    }
    assert_true(fabs(t.sum[at] - sum) <= (argument + (150 + (double)n) * u) * sum);
    guard_release_all();
}

static void softmax_hides_caps_adds_and_weighs(void **state)
{
    FOR_EACH_ISA
    FOR_SIZES(n, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 200, 256, 512)
    for (int form = 0; form < 12; form++) {
        const bool bias = form & 1, cap = form & 2;
        const float running = (const float[]){-INFINITY, 3.5f, 50.0f}[form / 4];
        check_softmax(n, 0, n, bias, cap, running);
        check_softmax(n, n / 2, n, bias, cap, running);
        check_softmax(n, 0, n / 2 + 1, bias, cap, running);
        check_softmax(n, n / 3, n / 3 + 1, bias, cap, running);
        check_softmax(n, n, n, bias, cap, running);
        check_softmax(n, n / 2, n / 2, bias, cap, running);
    }
}

static void softmax_of_values_that_are_no_numbers(void **state)
{
    FOR_EACH_ISA
    for (size_t n = 1; n < 150; n += 6)
        for (size_t at = 0; at < n; at++) {
            const mha__kernels *k = mha__kernels_get();
            float x[160] = {0}, sum;
            x[at] = NAN;
            assert_true(k->softmax_prepare(x, n, 0, n, NULL, 0.0f));
            assert_true(softmax_alone(x, n, &sum) == (n > 1 ? 0.0f : -INFINITY));
            assert_true(isnan(sum) && isnan(x[at]));

            memset(x, 0, sizeof x);
            x[at] = INFINITY;
            assert_true(k->softmax_prepare(x, n, 0, n, NULL, 0.0f));
            assert_true(softmax_alone(x, n, &sum) == INFINITY && isnan(sum));

            for (size_t i = 0; i < n; i++)
                x[i] = -INFINITY;
            assert_true(k->softmax_prepare(x, n, 0, n, NULL, 0.0f));
            feclearexcept(FE_ALL_EXCEPT); /* a caller may trap what is invalid: that a row sees nothing is not */
            assert_true(softmax_alone(x, n, &sum) == -INFINITY && sum == 0.0f && x[at] == 0.0f);
            assert_false(fetestexcept(FE_INVALID));

            for (size_t i = 0; i < n; i++)
                x[i] = i == at ? NAN : -INFINITY;
            assert_true(k->softmax_prepare(x, n, 0, n, NULL, 0.0f));
            assert_true(softmax_alone(x, n, &sum) == -INFINITY && isnan(sum));
        }
}

static void hidden_scores_weigh_nothing_however_the_thread_rounds(void **state)
{
    FOR_EACH_ISA
    for (int way = 0; way < ROUNDINGS; way++)
        for (size_t n = 1; n <= 40; n += 3) {
            float x[2][48], sum[2], max[2];
            for (size_t i = 0; i < 48; i++)
                x[0][i] = x[1][i] = 10.0f * mha__random_unit(5, 6, i);
            for (size_t t = 0; t < 2; t++) { /* in a row of n scores, and in one of 48 of which n are seen */
                tile one = {.x = x[t], .max = {-INFINITY}};
                fesetround(roundings[way]);
                mha__kernels_get()->softmax_prepare(x[t], t ? 48 : n, 0, n, NULL, 0.0f);
                softmax(&one, 1, t ? 48 : n);
                fesetround(FE_TONEAREST);
                sum[t] = one.sum[0], max[t] = one.max[0];
            }
            assert_true(same_bits(&sum[0], &sum[1], 1) && same_bits(&max[0], &max[1], 1) && same_bits(x[0], x[1], n));
            for (size_t i = n; i < 48; i++)
                assert_true(x[1][i] == 0.0f);
        }
}

/* The four partial sums of a row are filled by position: what stands before or after adds nothing to them. */
static void sums_do_not_depend_on_hidden_neighbours(void **state)
{
    FOR_EACH_ISA
    for (size_t begin = 0; begin < 200; begin += 7)
        for (size_t end = begin + 1; end <= 256; end += 31) {
            float x[MHA_BLOCK], sums[2];
            for (size_t half = 0; half < 2; half++) {
                const size_t from = half ? begin / MHA_PANEL * MHA_PANEL : 0, n = half ? end - from : 256;
                for (size_t i = 0; i < 256; i++)
                    x[i] = 2.0f * mha__random_unit(5, 5, i) - 2.0f;
                mha__kernels_get()->softmax_prepare(x + from, n, begin - from, end - from, NULL, 0.0f);
                softmax_alone(x + from, n, &sums[half]);
            }
            assert_true(same_bits(&sums[0], &sums[1], 1));
        }
}

/* Nor on how many rows go together, or on which of them it is. */
static void rows_do_not_depend_on_their_company(void **state)
{
    FOR_EACH_ISA
    for (size_t m = 1; m <= MHA_TILE_ROWS; m++)
        FOR_SIZES(n, 16, 48, 80, 512)
        for (size_t at = 0; at < m; at++) {
            tile alone = random_tile(1, n), t = random_tile(m, n);
            memcpy(t.x + at * TILE_STRIDE, alone.x, n * sizeof *t.x);
            t.max[at] = alone.max[0], t.sum[at] = alone.sum[0];
            softmax(&alone, 1, n);
            softmax(&t, m, n);
            assert_true(same_bits(t.x + at * TILE_STRIDE, alone.x, n) && same_bits(&t.max[at], &alone.max[0], 1) &&
                        same_bits(&t.sum[at], &alone.sum[0], 1) && same_bits(&t.factor[at], &alone.factor[0], 1));
            guard_release_all();
        }
}

/* A double of all its bits, whose products are rounded. */
static double random_double(uint64_t stream, size_t i)
{
    return mha__random_unit(1, stream, 2 * i) - 0.5 + 0x1p-27 * mha__random_unit(1, stream, 2 * i + 1);
}

/* Every element is the sum that a plain loop makes, term by term: no other order, no fused multiply-add. */
static void ordered_sums_have_the_bits_of_plain_loops(void **state)
{
    FOR_EACH_ISA
    FOR_SIZES(m, 1, 2, 3, 5, 16)
    FOR_SIZES(n, 1, 3, 4, 8, 15, 16, 23, 32, 64, 131)
    FOR_SIZES(k, 1, 2, 7, 33) {
        const size_t ldx = k + 1, ldb = n + 2, ldy = n + 3;
        double *x = guard_allocate(((m - 1) * ldx + k) * sizeof *x, GUARD_AFTER, 0),
               *b = guard_allocate(((k - 1) * ldb + n) * sizeof *b, GUARD_AFTER, 0),
               *y = guard_allocate(((m - 1) * ldy + n) * sizeof *y, GUARD_AFTER, 0), expected[16 * 134];
        for (size_t i = 0; i < (m - 1) * ldx + k; i++)
            x[i] = ldexp(random_double(1, i), (int)(i % 9) * 5);
        for (size_t i = 0; i < (k - 1) * ldb + n; i++)
            b[i] = ldexp(random_double(2, i), (int)(i % 7) * 6);
        for (size_t i = 0; i < (m - 1) * ldy + n; i++)
            expected[i] = y[i] = random_double(3, i);
        for (size_t i = 0; i < m; i++)
            for (size_t c = 0; c < n; c++)
                for (size_t p = 0; p < k; p++) {
                    const volatile double product = x[i * ldx + p] * b[p * ldb + c];
                    expected[i * ldy + c] = expected[i * ldy + c] + product;
                }
        mha__kernels_get()->ordered_sums(m, n, k, x, ldx, b, ldb, y, ldy);
        assert_memory_equal(y, expected, ((m - 1) * ldy + n) * sizeof *y);
        guard_release(x);
        guard_release(b);
        guard_release(y);
    }
}

static void reading_reads_everything(void **state)
{
    FOR_EACH_ISA
    FOR_SIZES(n, 128, 256, 1280)
    {
        float *x = guard_allocate(n * sizeof *x, GUARD_AFTER, 0), sum = 0; /* of whole numbers: exact in any order */
        for (size_t i = 0; i < n; i++)
            sum += x[i] = (float)(i % 251 + 1);
        assert_true(mha__kernels_get()->read(x, n) == sum);
        guard_release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(instruction_sets_are_listed_selected_and_refused, isa_teardown),
        cmocka_unit_test_teardown(products_are_chains_of_multiply_adds, isa_teardown),
        cmocka_unit_test_teardown(pairs_of_rows_are_two_chains, isa_teardown),
        cmocka_unit_test_teardown(a_plain_right_factor_gives_the_bits_of_a_packed_one, isa_teardown),
        cmocka_unit_test_teardown(few_rows_meet_rows_with_the_bits_of_a_packed_product, isa_teardown),
        cmocka_unit_test_teardown(packing_lays_out_panels_and_tells_what_is_not_finite, isa_teardown),
        cmocka_unit_test_teardown(exp_and_tanh_are_accurate, isa_teardown),
        cmocka_unit_test_teardown(exp_and_tanh_at_their_ends, isa_teardown),
        cmocka_unit_test_teardown(exp_has_its_ends_however_the_thread_rounds, isa_teardown),
        cmocka_unit_test_teardown(hidden_scores_weigh_nothing_however_the_thread_rounds, isa_teardown),
        cmocka_unit_test_teardown(rows_are_scaled_blended_and_divided_within_bounds, isa_teardown),
        cmocka_unit_test_teardown(flags_hide_what_they_name, isa_teardown),
        cmocka_unit_test_teardown(what_is_hidden_at_the_ends_is_trimmed, isa_teardown),
        cmocka_unit_test_teardown(softmax_hides_caps_adds_and_weighs, isa_teardown),
        cmocka_unit_test_teardown(softmax_of_values_that_are_no_numbers, isa_teardown),
        cmocka_unit_test_teardown(sums_do_not_depend_on_hidden_neighbours, isa_teardown),
        cmocka_unit_test_teardown(rows_do_not_depend_on_their_company, isa_teardown),
        cmocka_unit_test_teardown(ordered_sums_have_the_bits_of_plain_loops, isa_teardown),
        cmocka_unit_test_teardown(reading_reads_everything, isa_teardown),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
