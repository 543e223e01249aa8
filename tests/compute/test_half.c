/* 16-bit floats and rows of 8 bits in the kernels, 16-bit floats in packed weights and in the streaming core: every
 * number there is widens exactly, and products give the bits that floats of the same values give. */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "compute/kernels/kernels.h"
#include "compute/packed/packed_gemm.h"
#include "mha/random.h"
#include "mha/system.h"
#include "support/guard.h"
#include "support/isa.h"
#include "support/unit.h"

static const mha_dtype dtypes[] = {MHA_F16, MHA_BF16};

/* The value of the bits, by the definition of the format: exponent and fraction widths, gradual underflow. */
static double meaning(unsigned bits, mha_dtype dtype)
{
    const int exponent_bits = dtype == MHA_F16 ? 5 : 8, fraction_bits = 15 - exponent_bits;
    const int exponent = (int)(bits >> fraction_bits & ((1u << exponent_bits) - 1)), top = (1 << exponent_bits) - 1;
    const double fraction = ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits), sign = bits & 0x8000 ? -1 : 1;
    if (exponent == top)
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * ldexp(exponent ? 1 + fraction : fraction, (exponent ? exponent : 1) - (top >> 1));
}

static float *floats(size_t n, uint64_t stream)
{
    float *x = guard_allocate(n * sizeof *x, GUARD_AFTER, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = 2.0f * mha__random_unit(31, stream, i) - 1.0f;
    return x;
}

/* Bits of numbers of size one at most, and what they mean. */
static uint16_t *halves(size_t n, uint64_t stream, mha_dtype dtype, float **meant)
{
    uint16_t *x = guard_allocate(n * sizeof *x, GUARD_AFTER, 0);
    *meant = guard_allocate(n * sizeof **meant, GUARD_AFTER, 0);
    const unsigned one = dtype == MHA_F16 ? 0x3c00 : 0x3f80;
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = mha__random_bits(31, stream, i);
        x[i] = (uint16_t)(r % (one + 1) | (r >> 32 & 1) << 15);
        (*meant)[i] = (float)meaning(x[i], dtype);
    }
    return x;
}

static bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0; /* zeros keep their sign */
}

/* ---------------------------------------------------------------- widening */

static void every_number_widens_to_what_it_means(void **state)
{
    enum { ALL = 1 << 16 };
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) {
        uint16_t *x = guard_allocate(ALL * sizeof *x, GUARD_AFTER, 0);
        float *y = guard_allocate(ALL * sizeof *y, GUARD_AFTER, 0);
        for (unsigned i = 0; i < ALL; i++)
            x[i] = (uint16_t)i;
        mha__kernels_get()->widen(1, ALL, x, ALL, dtypes[d], y, ALL, NULL);
        for (unsigned i = 0; i < ALL; i++)
            if (!same(y[i], (float)meaning(i, dtypes[d])))
                fail_msg("%s: %s 0x%04x expected %.9g, found %.9g", mha_isa(), mha_dtype_name(dtypes[d]), i,
                         meaning(i, dtypes[d]), (double)y[i]);
        guard_release_all();
    }
}

static void rows_of_any_length_widen_and_nothing_else_is_touched(void **state)
{
    static const size_t widths[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 40, 64, 80, 100, 128};
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        enum { ROWS = 5 };
        const size_t n = widths[w], ldx = n + 3, ldy = n + 2;
        float *meant, *y = floats((ROWS - 1) * ldy + n, 5), *before = floats((ROWS - 1) * ldy + n, 5);
        uint16_t *x = halves((ROWS - 1) * ldx + n, 1, dtypes[d], &meant);
        mha__kernels_get()->widen(ROWS, n, x, ldx, dtypes[d], y, ldy, w % 2 ? x : NULL);
        for (size_t i = 0; i < ROWS; i++)
            for (size_t j = 0; j < (i + 1 < ROWS ? ldy : n); j++)
                if (!same(y[i * ldy + j], j < n ? meant[i * ldx + j] : before[i * ldy + j]))
                    fail_msg("%s: %s, width %zu: element (%zu, %zu)", mha_isa(), mha_dtype_name(dtypes[d]), n, i, j);
        guard_release_all();
    }
}

/* Around every number there is: itself, halfway to the next one, and a last bit to either side of that; and bits of any
 * kind. What the scalar conversion gives, to the bit. */
static void floats_narrow_to_the_nearest_even_number(void **state)
{
    enum { NUMBERS = 1 << 16, AROUND = 5, ALL = (AROUND + 4) * NUMBERS + 3 };
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) {
        float *x = guard_allocate(ALL * sizeof *x, GUARD_AFTER, 0);
        uint16_t *y = guard_allocate(ALL * sizeof *y, GUARD_AFTER, 0);
        const uint32_t last = dtypes[d] == MHA_F16 ? 1u << 13 : 1u << 16;
        for (size_t i = 0; i < ALL; i++) {
            uint32_t bits = (uint32_t)mha__random_bits(31, 30, i);
            if (i < AROUND * NUMBERS) {
                const float number = (float)meaning((unsigned)(i / AROUND), dtypes[d]);
                const float half =
                    dtypes[d] == MHA_F16 && fabsf(number) < 0x1p-14f ? number + copysignf(0x1p-25f, number) : 0;
                memcpy(&bits, half != 0 ? &half : &number,
                       sizeof bits); /* subnormal numbers of F16 are normal floats */
                const uint32_t step = i % AROUND == 0 ? 0
                                      : half != 0     ? (uint32_t)(i % AROUND) - 2
                                                      : last / 2 + (uint32_t)(i % AROUND) - 2;
                bits += step;
            }
            memcpy(&x[i], &bits, sizeof bits);
        }
        static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
        for (size_t way = 0; way < sizeof roundings / sizeof *roundings; way++) { /* nearest in every way */
            fesetround(roundings[way]);
            mha__kernels_get()->narrow(1, ALL, x, ALL, dtypes[d], y, ALL);
            fesetround(FE_TONEAREST);
            for (size_t i = 0; i < ALL; i++) {
                const uint16_t wanted = dtypes[d] == MHA_F16 ? mha__f32_to_f16(x[i]) : mha__f32_to_bf16(x[i]);
                if (y[i] != wanted)
                    fail_msg("%s: %s of %a expected 0x%04x, found 0x%04x", mha_isa(), mha_dtype_name(dtypes[d]),
                             (double)x[i], wanted, y[i]);
            }
        }
        guard_release_all();
    }
}

static void rows_of_any_length_narrow_and_nothing_else_is_touched(void **state)
{
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) for (size_t n = 1; n < 40; n += 3) {
        enum { ROWS = 3 };
        const size_t ldx = n + 1, ldy = n + 5;
        float *x = floats((ROWS - 1) * ldx + n, 5);
        uint16_t *y = guard_allocate(((ROWS - 1) * ldy + n) * sizeof *y, GUARD_AFTER, 0xab);
        mha__kernels_get()->narrow(ROWS, n, x, ldx, dtypes[d], y, ldy);
        for (size_t i = 0; i < ROWS; i++)
            for (size_t j = 0; j < (i + 1 < ROWS ? ldy : n); j++) {
                const float from = j < n ? x[i * ldx + j] : 0;
                assert_int_equal(y[i * ldy + j], j >= n ? 0xabab : d ? mha__f32_to_bf16(from) : mha__f32_to_f16(from));
            }
        guard_release_all();
    }
}

/* ---------------------------------------------------------------- products */

/* The same from 16 bits as from floats, with every way to begin a sum, in a plain matrix or in panels. */
static void a_product_of_halves_has_the_bits_of_floats(void **state)
{
    static const struct {
        size_t m, n, k;
    } shapes[] = {{1, 16, 1},   {1, 128, 256}, {1, 144, 100}, {2, 32, 7},   {3, 80, 256},  {4, 256, 33},
                  {7, 64, 255}, {8, 48, 256},  {14, 96, 200}, {15, 16, 12}, {16, 160, 64}, {31, 112, 31}};
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k, ldb = n + 8, ldc = n + 1;
        float *A = floats((m - 1) * MHA_STAGED + k, 2), *factor = floats(m, 3), *bias = floats(n, 4), *B;
        uint16_t *B16 = halves((k - 1) * ldb + n, 6, dtypes[d], &B);
        for (int begin = 0; begin < 3; begin++) {
            float *wanted = floats((m - 1) * ldc + n, 7), *found = floats((m - 1) * ldc + n, 7);
            const float *f = begin == 1 ? factor : NULL, *b = begin == 2 ? bias : NULL;
            mha__kernels_get()->product(m, n, k, A, (mha__panels){B, ldb, MHA_PANEL}, NULL, wanted, ldc, f, b);
            mha__kernels_get()->product_half(m, n, k, A, (mha__half_panels){B16, ldb, MHA_PANEL, dtypes[d]}, NULL,
                                             found, ldc, f, b);
            for (size_t i = 0; i < (m - 1) * ldc + n; i++)
                if (!same(wanted[i], found[i]))
                    fail_msg("%s: %s (%zu, %zu, %zu), beginning %d: element (%zu, %zu) expected %.9g, found %.9g",
                             mha_isa(), mha_dtype_name(dtypes[d]), m, n, k, begin, i / ldc, i % ldc, (double)wanted[i],
                             (double)found[i]);
        }
        guard_release_all();
    }
}

/* Fewer columns than a panel is wide: packed, followed by zeros; exactly n are written. */
static void a_product_of_halves_writes_its_columns_only(void **state)
{
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) for (size_t n = 1; n <= 2 * MHA_PANEL; n += 3) {
        enum { M = 3, K = 20 };
        float *A = floats((M - 1) * MHA_STAGED + K, 2), *bias = floats(n, 4), *B;
        uint16_t *B16 = halves(2 * K * MHA_PANEL, 6, dtypes[d], &B);
        float *wanted = floats((M - 1) * 70 + n, 7), *found = floats((M - 1) * 70 + n, 7);
        mha__kernels_get()->product(M, n, K, A, (mha__panels){B, MHA_PANEL, K * MHA_PANEL}, NULL, wanted, 70, NULL,
                                    bias);
        const mha__half_panels halves16 = {B16, MHA_PANEL, K * MHA_PANEL, dtypes[d]};
        mha__kernels_get()->product_half(M, n, K, A, halves16, &halves16, found, 70, NULL, bias);
        assert_memory_equal(found, wanted, ((M - 1) * 70 + n) * sizeof(float));
        guard_release_all();
    }
}

/* Rows as they lie in a cache, against few queries: what packing and multiplying gives. Numbers of all sizes, NaN among
 * them, so that no way of widening is left out. */
static void a_product_with_rows_of_halves_has_the_bits_of_packed_floats(void **state)
{
    static const struct {
        size_t n, k, ldx;
    } shapes[] = {{1, 1, 2},       {16, 32, 32}, {33, 40, 40},   {64, 64, 66},
                  {256, 128, 128}, {50, 7, 8},   {31, 256, 256}, {100, 80, 80}};
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t m = 1; m <= MHA_FEW_ROWS; m++) {
            const size_t n = shapes[s].n, k = shapes[s].k, ldx = shapes[s].ldx, room = (n + 31) / 32 * 32;
            float *A = floats((m - 1) * MHA_STAGED + k, 2), *X;
            const size_t numbers = (n - 1) * ldx + k;
            uint16_t *X16 = halves(numbers + numbers % 2, 6, dtypes[d], &X); /* even: the last one ends at the guard */
            for (size_t i = s % 2 ? 5 : numbers; i < numbers; i += 37) {
                X16[i] = (uint16_t)mha__random_bits(31, 20, i);
                X[i] = (float)meaning(X16[i], dtypes[d]);
            }
            float *panels = floats((n + 31) / 32 * 32 * k, 1), *wanted = floats(m * room, 7),
                  *found = floats(m * room, 7);
            mha__kernels_get()->pack_transposed(k, n, X, ldx, panels, k * MHA_PANEL, 0);
            mha__kernels_get()->product(m, n, k, A, (mha__panels){panels, MHA_PANEL, k * MHA_PANEL}, NULL, wanted, room,
                                        NULL, NULL);
            mha__kernels_get()->product_half_rows(m, n, k, A, X16, ldx, dtypes[d], found, room);
            for (size_t i = 0; i < m * room; i++)
                if (i % room < n && !same(wanted[i], found[i]))
                    fail_msg("%s: %s (%zu, %zu, %zu): element (%zu, %zu) expected %.9g, found %.9g", mha_isa(),
                             mha_dtype_name(dtypes[d]), m, n, k, i / room, i % room, (double)wanted[i],
                             (double)found[i]);
            guard_release_all();
        }
}

/* ---------------------------------------------------------------- rows of 8 bits */

/* Rows of 8 bits that end at a guard page, and what they mean. */
static unsigned char *byte_rows(size_t rows, size_t n, size_t ld, float **meant)
{
    unsigned char *x = guard_allocate(rows * ld, GUARD_AFTER, 0);
    *meant = guard_allocate(rows * ld * sizeof **meant, GUARD_AFTER, 0);
    for (size_t i = 0; i < rows; i++) {
        const float scale = i % 11 == 3 ? NAN : ldexpf(1 + mha__random_unit(31, 8, i), (int)(i % 40) - 20);
        memcpy(x + (i + 1) * ld - sizeof scale, &scale, sizeof scale);
        for (size_t j = 0; j < ld; j++) {
            if (j < n)
                x[i * ld + j] = (unsigned char)mha__random_bits(31, 9, i * ld + j);
            (*meant)[i * ld + j] = j < n ? (float)(int8_t)x[i * ld + j] * scale : 0;
        }
    }
    return x;
}

static void rows_of_8_bits_give_the_bits_of_floats(void **state)
{
    static const struct {
        size_t rows, n;
    } shapes[] = {{1, 1}, {3, 16}, {16, 32}, {33, 40}, {70, 64}, {256, 128}, {31, 100}, {100, 80}, {50, 7}, {9, 208}};
    FOR_EACH_ISA for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    {
        const mha__kernels *kernels = mha__kernels_get();
        const size_t rows = shapes[s].rows, n = shapes[s].n, ld = mha__byte_row(n) + s % 2 * 4,
                     room = (rows + 31) / 32 * 32;
        float *X, *y = floats(rows * n, 1);
        unsigned char *bytes = byte_rows(rows, n, ld, &X);
        kernels->widen(rows, n, bytes, ld, MHA_I8, y, n, s % 2 ? bytes : NULL);
        for (size_t i = 0; i < rows * n; i++)
            assert_true(same(y[i], X[i / n * ld + i % n]));
        for (size_t m = 1; m <= MHA_FEW_ROWS; m++) { /* as keys */
            float *A = floats((m - 1) * MHA_STAGED + n, 2), *panels = floats(room * n, 1),
                  *wanted = floats(m * room, 7), *found = floats(m * room, 7);
            kernels->pack_transposed(n, rows, X, ld, panels, n * MHA_PANEL, 0);
            kernels->product(m, rows, n, A, (mha__panels){panels, MHA_PANEL, n * MHA_PANEL}, NULL, wanted, room, NULL,
                             NULL);
            kernels->product_half_rows(m, rows, n, A, bytes, ld, MHA_I8, found, room);
            for (size_t i = 0; i < m * room; i++)
                if (i % room < rows && !same(wanted[i], found[i]))
                    fail_msg("%s: %zu rows of %zu: element (%zu, %zu)", mha_isa(), rows, n, i / room, i % room);
        }
        for (size_t m = 1; n % 16 == 0 && m <= MHA_TILE_ROWS; m += 2) { /* as values */
            float *A = floats((m - 1) * MHA_STAGED + rows, 2), *factor = floats(m, 3), *wanted = floats(m * n, 7),
                  *found = floats(m * n, 7);
            const float *f = m % 4 == 1 ? factor : NULL;
            kernels->product(m, n, rows, A, (mha__panels){X, ld, MHA_PANEL}, NULL, wanted, n, f, NULL);
            kernels->product_half(m, n, rows, A, (mha__half_panels){bytes, ld, MHA_PANEL, MHA_I8}, NULL, found, n, f,
                                  NULL);
            for (size_t i = 0; i < m * n; i++)
                if (!same(wanted[i], found[i]))
                    fail_msg("%s: %zu values of %zu: element (%zu, %zu)", mha_isa(), rows, n, i / n, i % n);
        }
        guard_release_all();
    }
}

static void floats_narrow_to_rows_of_8_bits(void **state)
{
    FOR_EACH_ISA for (size_t n = 1; n < 70; n += 3)
    {
        enum { ROWS = 3 };
        const size_t ld = mha__byte_row(n);
        float *x = floats((ROWS - 1) * (n + 1) + n, n);
        unsigned char *y = guard_allocate(ROWS * ld, GUARD_AFTER, 0xab);
        mha__kernels_get()->narrow(ROWS, n, x, n + 1, MHA_I8, y, ld);
        for (size_t i = 0; i < ROWS; i++) {
            float most = 0, scale;
            for (size_t j = 0; j < n; j++)
                most = fmaxf(most, fabsf(x[i * (n + 1) + j]));
            memcpy(&scale, y + (i + 1) * ld - sizeof scale, sizeof scale);
            assert_true(scale == most / 127);
            for (size_t j = 0; j < ld - sizeof scale; j++)
                assert_int_equal((int8_t)y[i * ld + j],
                                 j < n ? (int8_t)nearbyintf(x[i * (n + 1) + j] / scale) : (int8_t)0xab);
        }
        guard_release_all();
    }
}

/* ---------------------------------------------------------------- packed weights */

static void packed_halves_give_the_bits_of_packed_floats(void **state)
{
    static const struct {
        size_t m, n, k;
    } shapes[] = {{1, 33, 5},     {1, 300, 1000}, {3, 129, 257}, {7, 256, 513}, {16, 200, 300},
                  {17, 200, 300}, {141, 65, 31},  {150, 600, 520}, {4, 7, 0},   {40, 31, 0}};
    FOR_EACH_ISA for (size_t d = 0; d < 2; d++) for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k, ldw = n + 1, ldx = k + 2, ldy = n + 3;
        const int threads = 1 + (int)(s % 3);
        float *X = floats((m - 1) * ldx + k, 8), *b = s % 2 ? floats(n, 9) : NULL, *W, *Y[2];
        uint16_t *W16 = halves((k ? k - 1 : 0) * ldw + n, 10, dtypes[d], &W);
        size_t bytes;
        assert_true(mha__packed_bytes(k, n, dtypes[d], &bytes));
        float *panels = floats(bytes / sizeof *W16, 1); /* not zero: what pads the last panel is written */
        uint16_t *panels16 = guard_allocate(bytes, GUARD_AFTER, 0xff);
        mha__pack(k, n, MHA_F32, W, ldw, panels);
        mha__pack(k, n, dtypes[d], W16, ldw, panels16);
        for (size_t p = 0; p < k; p++)
            for (size_t j = n; j % MHA_PANEL != 0; j++)
                assert_int_equal(panels16[j / MHA_PANEL * MHA_PANEL * k + p * MHA_PANEL + j % MHA_PANEL], 0);
        for (int half = 0; half < 2; half++) {
            const mha_dtype dtype = half ? dtypes[d] : MHA_F32;
            Y[half] = floats((m - 1) * ldy + n, 11);
            float *scratch = guard_allocate(mha__packed_scratch(m, k, dtype) * (size_t)threads, GUARD_AFTER, 0xff);
            const mha__packed_product job = {
                m, k, ldx, X, false, false, 1, {{n, ldy, half ? (void *)panels16 : panels, dtype, b, Y[half]}}};
            mha__packed_run(&job, 1, threads, scratch);
        }
        for (size_t i = 0; i < (m - 1) * ldy + n; i++)
            if (!same(Y[0][i], Y[1][i]))
                fail_msg("%s: %s (%zu, %zu, %zu): element (%zu, %zu) expected %.9g, found %.9g", mha_isa(),
                         mha_dtype_name(dtypes[d]), m, n, k, i / ldy, i % ldy, (double)Y[0][i], (double)Y[1][i]);
        guard_release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_number_widens_to_what_it_means, isa_teardown),
        cmocka_unit_test_teardown(rows_of_any_length_widen_and_nothing_else_is_touched, isa_teardown),
        cmocka_unit_test_teardown(floats_narrow_to_the_nearest_even_number, isa_teardown),
        cmocka_unit_test_teardown(rows_of_any_length_narrow_and_nothing_else_is_touched, isa_teardown),
        cmocka_unit_test_teardown(a_product_of_halves_has_the_bits_of_floats, isa_teardown),
        cmocka_unit_test_teardown(a_product_of_halves_writes_its_columns_only, isa_teardown),
        cmocka_unit_test_teardown(a_product_with_rows_of_halves_has_the_bits_of_packed_floats, isa_teardown),
        cmocka_unit_test_teardown(rows_of_8_bits_give_the_bits_of_floats, isa_teardown),
        cmocka_unit_test_teardown(floats_narrow_to_rows_of_8_bits, isa_teardown),
        cmocka_unit_test_teardown(packed_halves_give_the_bits_of_packed_floats, isa_teardown),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
