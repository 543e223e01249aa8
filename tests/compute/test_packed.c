/* Products with packed weights: every element is the chain that packed_gemm.h promises, for any shape, cut and
 * number of threads, on every instruction set. */
#include <math.h>
#include <string.h>

#include "compute/kernels/kernels.h"
#include "compute/packed/packed_gemm.h"
#include "mha/random.h"
#include "mha/system.h"
#include "support/guard.h"
#include "support/isa.h"
#include "support/unit.h"

static float *floats(size_t n, uint64_t stream)
{
    float *x = guard_allocate(n * sizeof *x, GUARD_AFTER, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = 2.0f * mha__random_unit(21, stream, i) - 1.0f;
    return x;
}

static float element(const float *x, const float *W, size_t ldw, size_t k, const float *b)
{
    const bool fused = strcmp(mha_isa(), "scalar") != 0;
    const size_t blocks = (k + 383) / 384, block = k ? ((k + blocks - 1) / blocks + 15) / 16 * 16 : 1;
    volatile float sum = b ? *b : 0.0f, term;
    for (size_t from = 0; from < k; from += block) {
        volatile float chain = 0.0f;
        for (size_t p = from; p < k && p < from + block; p++) {
            term = x[p] * W[p * ldw];
            chain = fused ? fmaf(x[p], W[p * ldw], chain) : chain + term;
        }
        sum = sum + chain;
    }
    return sum;
}

typedef struct shape {
    size_t m, n, k;
} shape;

/* Rounded up to whole cache lines, as every allocation of the library is. */
static float *aligned(size_t n)
{
    return floats((n + 15) / 16 * 16, 9);
}

static void check(shape s, bool bias, int threads)
{
    const size_t ldx = s.k + 3, ldy = s.n + 2, ldw = s.n + 1;
    size_t packed;
    assert_true(mha__packed_bytes(s.k, s.n, MHA_F32, &packed));
    float *X = floats((s.m - 1) * ldx + s.k, 1), *W = floats((s.k ? s.k - 1 : 0) * ldw + s.n, 2), *b = floats(s.n, 3);
    float *Y = floats((s.m - 1) * ldy + s.n, 4), *panels = aligned(packed / sizeof(float));
    float *scratch = aligned(mha__packed_scratch(s.m, s.k, MHA_F32) / sizeof(float) * (size_t)threads);
    mha__pack(s.k, s.n, MHA_F32, W, ldw, panels);
    const mha__packed_product job = {s.m,   s.k,   ldx, X,
                                     false, false, 1,   {{s.n, ldy, panels, MHA_F32, bias ? b : NULL, Y}}};
    mha__packed_run(&job, 1, threads, scratch);
    for (size_t i = 0; i < s.m; i++)
        for (size_t j = 0; j < s.n; j++) {
            if (s.m * s.n * s.k > 2000000 && (i * 7 + j) % 101) /* of a large one every 101st */
                continue;
            float want = element(X + i * ldx, W + j, ldw, s.k, bias ? b + j : NULL);
            if (memcmp(&want, &Y[i * ldy + j], sizeof want) != 0)
                fail_msg("%s: (%zu, %zu, %zu): Y[%zu][%zu] expected %.9g, found %.9g", mha_isa(), s.m, s.n, s.k, i, j,
                         want, Y[i * ldy + j]);
        }
    guard_release_all();
}

static void every_element_is_its_own_chain(void **state)
{
    (void)state;
    /* 279 rows: two even pieces of whole tiles of 6 would be more than 140. 150 columns: five pieces on three threads.
     */
    static const shape shapes[] = {{1, 1, 1},      {1, 33, 5},     {2, 128, 256},  {3, 129, 257},  {1, 300, 1100},
                                   {5, 64, 64},    {14, 40, 300},  {15, 96, 512},  {16, 200, 513}, {17, 200, 513},
                                   {29, 31, 100},  {140, 64, 256}, {141, 65, 31},  {300, 37, 70},  {600, 260, 16},
                                   {128, 768, 64}, {4, 7, 0},      {31, 513, 300}, {279, 40, 70},  {141, 150, 31}};
    FOR_EACH_ISA
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check(shapes[i], i % 2, 1);
        check(shapes[i], i % 2 == 0, 3);
    }
}

static void jobs_run_together_as_they_run_alone(void **state)
{
    (void)state;
    const shape s = {50, 300, 260};
    size_t packed;
    assert_true(mha__packed_bytes(s.k, s.n, MHA_F32, &packed));
    float *X = floats(s.m * s.k, 1), *b = floats(s.n, 3), *Y[2][4], *panels[4];
    mha__packed_product jobs[4];
    for (size_t i = 0; i < 4; i++) {
        panels[i] = aligned(packed / sizeof(float));
        float *W = floats(s.k * s.n, 10 + i);
        mha__pack(s.k, s.n, MHA_F32, W, s.n, panels[i]);
        Y[0][i] = floats(s.m * s.n, 1), Y[1][i] = floats(s.m * s.n, 2);
        jobs[i] = (mha__packed_product){
            s.m - i * 15, s.k,   s.k, X,
            false,        false, 1,   {{s.n - i * 77, s.n, panels[i], MHA_F32, i % 2 ? b : NULL, Y[0][i]}}};
    }
    float *scratch = aligned(mha__packed_scratch(s.m, s.k, MHA_F32) / sizeof(float) * 3);
    mha__packed_run(jobs, 4, 3, scratch);
    for (size_t i = 0; i < 4; i++) {
        jobs[i].outputs[0].Y = Y[1][i];
        mha__packed_run(&jobs[i], 1, 1, scratch);
        for (size_t row = 0; row < jobs[i].m; row++)
            assert_memory_equal(Y[0][i] + row * s.n, Y[1][i] + row * s.n, jobs[i].outputs[0].n * sizeof(float));
    }
}

/* Three outputs of one job, as wide as no piece is and no output alike, against three jobs. */
static void outputs_share_their_rows(void **state)
{
    (void)state;
    static const size_t widths[] = {300, 1, 129};
    for (size_t m = 1; m <= 200; m += m < 20 ? 3 : 90)
        for (size_t k = 0; k <= 520; k += 260) {
            mha__packed_product all = {.m = m, .k = k, .ldx = k, .X = floats(m * k + 1, 1), .n_outputs = 3};
            float *alone[3];
            for (size_t o = 0; o < 3; o++) {
                size_t packed;
                assert_true(mha__packed_bytes(k, widths[o], MHA_F32, &packed));
                float *panels = aligned(packed / sizeof(float) + 1), *W = floats(k * widths[o] + 1, 10 + o);
                mha__pack(k, widths[o], MHA_F32, W, widths[o], panels);
                all.outputs[o] = (mha__packed_output){widths[o],
                                                      widths[o] + o,
                                                      panels,
                                                      MHA_F32,
                                                      o == 1 ? NULL : floats(widths[o], 20 + o),
                                                      floats(m * (widths[o] + o), 30)};
                alone[o] = floats(m * (widths[o] + o), 30);
            }
            float *scratch = aligned(mha__packed_scratch(m, k, MHA_F32) / sizeof(float) * 3 + 1);
            mha__packed_run(&all, 1, 3, scratch);
            for (size_t o = 0; o < 3; o++) {
                mha__packed_product one = all;
                one.n_outputs = 1;
                one.outputs[0] = all.outputs[o];
                one.outputs[0].Y = alone[o];
                mha__packed_run(&one, 1, 1, scratch);
                assert_memory_equal(all.outputs[o].Y, alone[o], m * (widths[o] + o) * sizeof(float));
            }
            guard_release_all();
        }
}

/* A worker stages rows once for all pieces of theirs, and never takes those of an earlier call for them. */
static void every_call_reads_its_own_rows(void **state)
{
    (void)state;
    enum { M = 100, K = 300, N = 200 };
    size_t packed;
    assert_true(mha__packed_bytes(K, N, MHA_F32, &packed));
    float *X = floats(M * K, 1), *panels = aligned(packed / sizeof(float));
    float *Y = floats(M * N, 2), *again = floats(M * N, 2);
    mha__pack(K, N, MHA_F32, floats(K * N, 3), N, panels);
    mha__packed_product job = {M, K, K, X, false, false, 1, {{N, N, panels, MHA_F32, NULL, Y}}};
    float *scratch = aligned(mha__packed_scratch(M, K, MHA_F32) / sizeof(float));
    for (int call = 0; call < 2; call++) {
        mha__packed_run(&job, 1, 1, scratch);
        for (size_t i = 0; i < M * K; i++)
            X[i] *= 2.0f;
        job.outputs[0].Y = again;
    }
    for (size_t i = 0; i < M * N; i++)
        assert_true(again[i] == 2.0f * Y[i]);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    size_t n;
    assert_true(mha__packed_bytes(3, 33, MHA_F32, &n) && n == 3 * 64 * sizeof(float));
    assert_true(mha__packed_bytes(3, 33, MHA_F64, &n) && n == 3 * 64 * sizeof(float));
    assert_true(mha__packed_bytes(0, 5, MHA_F32, &n) && n == 0);
    assert_false(mha__packed_bytes(1, SIZE_MAX - 3, MHA_BF16, &n));
    assert_false(mha__packed_bytes(SIZE_MAX / 16, 32, MHA_F32, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_element_is_its_own_chain, isa_teardown),
        cmocka_unit_test_teardown(jobs_run_together_as_they_run_alone, isa_teardown),
        cmocka_unit_test_teardown(outputs_share_their_rows, isa_teardown),
        cmocka_unit_test_teardown(every_call_reads_its_own_rows, isa_teardown),
        cmocka_unit_test_teardown(sizes_that_do_not_fit_are_refused, isa_teardown),
    };
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
