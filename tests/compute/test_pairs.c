/* Products of BF16 numbers in pairs: the chains of multiply-adds that floats of the same values give, at every tile and
 * edge; what lies in a pair; what is below 2^-126; and projections. Pairs need a processor that multiplies them. */
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "compute/kernels/kernels.h"
#include "compute/packed/packed_gemm.h"
#include "mha/random.h"
#include "mha/system.h"
#include "mha/tensor.h"
#include "support/guard.h"
#include "support/isa.h"
#include "support/unit.h"

#define FOR_SIZES(n, ...)                                                                                              \
    for (const size_t *n##_at = (const size_t[]){__VA_ARGS__, 0}; *n##_at; n##_at++)                                   \
        for (size_t n = *n##_at, n##_once = 1; n##_once; n##_once = 0)
#define FOR_PAIRS                                                                                                      \
    FOR_EACH_ISA                                                                                                       \
    for (const mha__pairs *pairs = mha__pairs_get(); pairs; pairs = NULL)

static float *room(size_t n)
{
    float *x = guard_allocate((n ? n : 1) * sizeof *x, GUARD_AFTER, 0);
    memset(x, 0x55, n * sizeof *x);
    return x;
}

static float rounded(float x)
{
    return mha__bf16_to_f32(mha__f32_to_bf16(x));
}

/* Floats of about 1, which are no BF16 numbers, of both signs. */
static float *floats(size_t n, uint64_t stream)
{
    float *x = room(n);
    for (size_t i = 0; i < n; i++)
        x[i] = 4.0f * mha__random_unit(7, stream, i) - 2.0f;
    return x;
}

/* The numbers of pair `at` that lies in a float. */
static float part(const float *at, int later)
{
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    return mha__bf16_to_f32((uint16_t)(later ? bits & 0xffff : bits >> 16));
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void neighbours_are_joined(void **state)
{
    FOR_PAIRS
    for (size_t n = 1; n <= 100; n++)
        for (int in_place = 0; in_place < 2; in_place++) {
            enum { M = 3 };
            const size_t ldx = n + 3, ldy = in_place ? ldx : (n + 1) / 2 + 2;
            float *X = floats(M * ldx, n), *before = floats(M * ldx, n);
            float *Y = in_place ? X : room((M - 1) * ldy + (n + 1) / 2);
            X[n / 2] = before[n / 2] = n % 3 ? NAN : 0x1.ffp127f;
            pairs->join(M, n, X, ldx, Y, ldy);
            for (size_t i = 0; i < M; i++)
                for (size_t j = 0; j < n + n % 2; j++)
                    assert_true(same(part(Y + i * ldy + j / 2, j % 2), j < n ? rounded(before[i * ldx + j]) : 0));
            for (size_t j = (n + 1) / 2; in_place && j < ldx; j++) /* nothing else is touched */
                assert_true(same(X[j], before[j]));
            guard_release_all();
        }
}

static void rows_are_packed(void **state)
{
    FOR_PAIRS
    FOR_SIZES(n, 1, 15, 16, 17, 32, 40, 64, 70)
    for (size_t k = 1; k <= 9; k++)
        for (size_t late = 0; late < 2; late++)
            for (size_t special = 0; special < 4; special++) {
                const size_t ldx = n + 1, rows = (k + late + 1) / 2, panel = (rows + 2) * MHA_PANEL;
                const size_t panels = (n + MHA_PANEL - 1) / MHA_PANEL;
                float *X = floats((k - 1) * ldx + n, n + k), *Y = room((panels - 1) * panel + rows * MHA_PANEL);
                /* The largest float becomes infinite when it is rounded. */
                const float value = special == 1 ? NAN : special == 2 ? -INFINITY : 0x1.fffffep127f;
                if (special)
                    X[(k * special / 4) * ldx + n * special / 4] = value;
                assert_int_equal(pairs->pack(k, n, X, ldx, Y, panel, late), special == 0);
                for (size_t p = 0; p < 2 * rows; p++)
                    for (size_t j = 0; j < panels * MHA_PANEL; j++) {
                        const bool there = p >= late && p - late < k && j < n;
                        const float *y = Y + j / MHA_PANEL * panel + p / 2 * MHA_PANEL + j % MHA_PANEL;
                        assert_true(same(part(y, p % 2), there ? rounded(X[(p - late) * ldx + j]) : 0));
                    }
                guard_release_all();
            }
}

static void panels_of_halves_become_panels_of_pairs(void **state)
{
    FOR_PAIRS
    for (size_t k = 1; k <= 6; k++)
        FOR_SIZES(n, 1, 32, 33, 96)
        {
            const size_t panels = (n + MHA_PANEL - 1) / MHA_PANEL, from = (k + 1) * MHA_PANEL, to = 4 * MHA_PANEL;
            uint16_t *X = guard_allocate(((panels - 1) * from + k * MHA_PANEL) * sizeof *X, GUARD_AFTER, 0);
            for (size_t i = 0; i < (panels - 1) * from + k * MHA_PANEL; i++)
                X[i] = (uint16_t)mha__random_bits(3, k, i);
            float *Y = room((panels - 1) * to + (k + 1) / 2 * MHA_PANEL);
            pairs->pack_half(k, n, X, from, Y, to);
            for (size_t p = 0; p < k + k % 2; p++)
                for (size_t j = 0; j < panels * MHA_PANEL; j++) {
                    const uint16_t x = p < k ? X[j / MHA_PANEL * from + p * MHA_PANEL + j % MHA_PANEL] : 0;
                    uint32_t bits;
                    memcpy(&bits, Y + j / MHA_PANEL * to + p / 2 * MHA_PANEL + j % MHA_PANEL, sizeof bits);
                    assert_int_equal(p % 2 ? bits & 0xffff : bits >> 16, x);
                }
            guard_release_all();
        }
}

/* C as `product` gives it of the same numbers as floats; under the same kernels, which fuse multiply and add. */
static void products_of_pairs_have_the_bits_of_floats(void **state)
{
    FOR_PAIRS
    {
        const mha__kernels *kernels = mha__kernels_get();
        for (size_t m = 1; m <= 2 * kernels->tile_rows + 1; m++)
            FOR_SIZES(n, 1, 7, 16, 17, 31, 32, 33, 64, 65, 96, 128, 129, 200)
        FOR_SIZES(k, 1, 2, 3, 34)
        {
            const size_t panels = (n + MHA_PANEL - 1) / MHA_PANEL, words = (k + 1) / 2, ldc = n + 5;
            const size_t panel = k * MHA_PANEL, pair_panel = words * MHA_PANEL;
            float *A = floats(m * MHA_STAGED, 1), *X = floats(k * n, 2), *A_pairs = room(m * MHA_STAGED);
            float *B = room(panels * panel), *B_pairs = room(panels * pair_panel);
            float *C[2] = {floats((m - 1) * ldc + n, 3), floats((m - 1) * ldc + n, 3)}, *factor = floats(m, 4),
                  *bias = floats(n, 5);
            kernels->round_to_bf16(m * MHA_STAGED, A, A);
            kernels->round_to_bf16(k * n, X, X);
            (void)kernels->pack(k, n, X, n, B, panel);
            assert_true(pairs->pack(k, n, X, n, B_pairs, pair_panel, false));
            pairs->join(m, k, A, MHA_STAGED, A_pairs, MHA_STAGED);
            for (int init = 0; init < 3; init++) {
                const float *f = init == 1 ? factor : NULL, *b = init == 2 ? bias : NULL;
                kernels->product(m, n, k, A, (mha__panels){B, MHA_PANEL, panel}, NULL, C[0], ldc, f, b);
                pairs->product(m, n, words, A_pairs, (mha__panels){B_pairs, MHA_PANEL, pair_panel}, NULL, C[1], ldc, f,
                               b);
                assert_memory_equal(C[0], C[1], ((m - 1) * ldc + n) * sizeof *C[0]);
            }
            guard_release_all();
        }
    }
}

/* Factors of the first and of the second product of a pair, and what is their sum. */
static void what_is_below_the_smallest_normal_number_counts_as_zero(void **state)
{
    static const struct {
        float first[2], second[2], expected;
    } cases[] = {
        {{0x1p-130f, 0x1p20f}, {0, 0}, 0}, /* a factor */
        {{0, 0}, {0x1p20f, 0x1p-130f}, 0},
        {{0x1p-70f, 0x1p-70f}, {0, 0}, 0}, /* a sum */
        {{0, 0}, {0x1p-70f, 0x1p-70f}, 0},
        {{0x1p-63f, 0x1p-63f}, {0, 0}, 0x1p-126f},
        {{0x1p-65f, 0x1p-65f}, {0x1.8p-63f, 0x1p-63f}, 0x1.8p-126f}, /* the first is gone before the second comes */
    };
    FOR_PAIRS
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float A[2] = {cases[i].first[0], cases[i].second[0]}, B[2 * MHA_PANEL] = {0}, C[1], words[1];
        float panel[MHA_PANEL];
        B[0] = cases[i].first[1], B[1] = cases[i].second[1];
        float *staged = room(MHA_STAGED);
        pairs->join(1, 2, A, 2, words, 1);
        staged[0] = words[0];
        (void)pairs->pack(2, 1, B, 1, panel, MHA_PANEL, false);
        pairs->product(1, 1, 1, staged, (mha__panels){panel, MHA_PANEL, MHA_PANEL}, NULL, C, 1, NULL, NULL);
        assert_true(C[0] == cases[i].expected);
        guard_release_all();
    }
}

/* Pairs round to nearest whatever the caller's mode is: in another mode they are not used. */
static void another_rounding_does_without_pairs(void **state)
{
    FOR_EACH_ISA
    {
        const bool some = mha__pairs_get() != NULL;
        assert_int_equal(some, strstr(mha_isa(), "bf16") != NULL);
        static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
        for (size_t i = 0; i < 3; i++) {
            fesetround(modes[i]);
            const mha__pairs *pairs = mha__pairs_get();
            fesetround(FE_TONEAREST);
            assert_null(pairs);
        }
        assert_int_equal(mha__pairs_get() != NULL, some);
    }
}

/* Packed weights of BF16: rows are rounded as they are read, results when they are asked to be, and the bits are those
 * of rounded floats, whatever multiplies them, on any number of threads; at every cut into pieces. */
static void projections_round_what_they_read(void **state)
{
    static const struct {
        size_t m, n, k;
    } sizes[] = {{1, 40, 70},   {16, 33, 400},  {17, 33, 400}, {100, 300, 33},  {141, 70, 385},
                 {280, 65, 64}, {281, 65, 801}, {600, 40, 47}, {300, 1100, 40}, {570, 300, 9}};
    FOR_EACH_ISA
    for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++) {
        const size_t m = sizes[s / 2].m, n = sizes[s / 2].n, k = sizes[s / 2].k, ldx = k + 3, ldy = n + 1;
        float *X = floats(m * ldx, 1), *plain_X = room(m * ldx), *W = floats(k * n, 2), *b = floats(n, 3);
        size_t packed;
        assert_true(mha__packed_bytes(k, n, MHA_BF16, &packed));
        uint16_t *halves = guard_allocate(k * n * sizeof *halves, GUARD_AFTER, 0);
        uint16_t *panels = guard_allocate((packed + 63) / 64 * 64, GUARD_AFTER, 0);
        for (size_t i = 0; i < k * n; i++)
            halves[i] = mha__f32_to_bf16(W[i]);
        for (size_t i = 0; i < m * ldx; i++)
            plain_X[i] = rounded(X[i]);
        mha__pack(k, n, MHA_BF16, halves, n, panels);
        const int threads = 1 + (int)s % 3;
        const size_t scratch = (mha__packed_scratch(m, k, MHA_BF16) + 63) / 64 * 64;
        void *work = guard_allocate(scratch * (size_t)threads, GUARD_AFTER, 0);
        float *Y = room(m * ldy), *plain_Y = room(m * ldy);
        const bool results = s % 2;
        const mha__packed_product one = {m, k, ldx, X, true, results, 1, {{n, ldy, panels, MHA_BF16, b, Y}}},
                                  plain = {m,     k,     ldx, plain_X,
                                           false, false, 1,   {{n, ldy, panels, MHA_BF16, b, plain_Y}}};
        mha__packed_run(&one, 1, threads, work);
        mha__packed_run(&plain, 1, threads, work);
        for (size_t i = 0; results && i < m; i++)
            for (size_t j = 0; j < n; j++)
                plain_Y[i * ldy + j] = rounded(plain_Y[i * ldy + j]);
        assert_memory_equal(Y, plain_Y, m * ldy * sizeof *Y);
        guard_release_all();
    }
}

/* Among few rows, which are multiplied as floats, and many. */
static void weights_below_the_smallest_normal_number_count_as_zero(void **state)
{
    enum { MOST = 20, K = 32 };
    FOR_EACH_ISA
        FOR_SIZES(m, 1, MOST)
        {
            float *X = room(m * K), *Y = room(m);
            uint16_t *W = guard_allocate(K * MHA_PANEL * sizeof *W, GUARD_AFTER, 0);
            memset(W, 0, K * MHA_PANEL * sizeof *W);
            for (size_t i = 0; i < m * K; i++)
                X[i] = 1;
            for (size_t p = 0; p < K; p++)
                W[p * MHA_PANEL] = mha__f32_to_bf16(0x1p-130f);
            const size_t scratch = (mha__packed_scratch(m, K, MHA_BF16) + 63) / 64 * 64;
            for (int rounds = 0; rounds < 2; rounds++) {
                const mha__packed_product one = {m, K, K, X, rounds, false, 1, {{1, 1, W, MHA_BF16, NULL, Y}}};
                mha__packed_run(&one, 1, 1, guard_allocate(scratch, GUARD_AFTER, 0));
                for (size_t i = 0; i < m; i++)
                    assert_true(Y[i] == (rounds ? 0 : 0x1p-125f));
            }
            guard_release_all();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(neighbours_are_joined, isa_teardown),
        cmocka_unit_test_teardown(rows_are_packed, isa_teardown),
        cmocka_unit_test_teardown(panels_of_halves_become_panels_of_pairs, isa_teardown),
        cmocka_unit_test_teardown(products_of_pairs_have_the_bits_of_floats, isa_teardown),
        cmocka_unit_test_teardown(what_is_below_the_smallest_normal_number_counts_as_zero, isa_teardown),
        cmocka_unit_test_teardown(projections_round_what_they_read, isa_teardown),
        cmocka_unit_test_teardown(weights_below_the_smallest_normal_number_count_as_zero, isa_teardown),
        cmocka_unit_test_teardown(another_rounding_does_without_pairs, isa_teardown),
    };
    return cmocka_run_group_tests_name("pairs", tests, NULL, NULL);
}
