/* Products with weights of every quantised type that is decoded: the bits that floats of the same values give, for any
 * shape, cut and number of threads, on every instruction set. */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "base/quantised/decoders.h"
#include "compute/packed/packed_gemm.h"
#include "mha/random.h"
#include "mha/system.h"
#include "support/guard.h"
#include "support/isa.h"
#include "support/unit.h"

/* The end of the memory is where the next page may not be read. */
static void *numbers(size_t count, size_t bytes, uint64_t stream)
{
    float *x = guard_allocate(count * bytes, GUARD_AFTER, 0);
    for (size_t i = 0; i < count * bytes / sizeof *x; i++)
        x[i] = 2.0f * mha__random_unit(21, stream, i) - 1.0f;
    return x;
}

/* The types that are decoded, and where in a block F16 numbers lie (-1: there is none, or no other). The first four
 * stand for each arithmetic. */
static const struct {
    mha_dtype dtype;
    int halves[2];
} types[] = {{MHA_Q8_0, {0, -1}},   {MHA_Q4_0, {0, -1}},    {MHA_Q4_K, {0, 2}},   {MHA_Q5_K, {0, 2}},
             {MHA_Q6_K, {208, -1}}, {MHA_MXFP4, {-1, -1}},  {MHA_Q4_1, {0, 2}},   {MHA_Q5_0, {0, -1}},
             {MHA_Q5_1, {0, 2}},    {MHA_Q2_K, {80, 82}},   {MHA_Q3_K, {108, -1}}, {MHA_IQ4_NL, {0, -1}},
             {MHA_IQ4_XS, {0, -1}}, {MHA_F8_E4M3_SCALED, {-1, -1}}, {MHA_F8_E5M2_SCALED, {-1, -1}}};
enum { TYPES = sizeof types / sizeof *types };

static bool is_f8(size_t type)
{
    return mha__is_f8(mha__block_kind_of(types[type].dtype)->codes);
}

/* F8 times a scale of either sign; if `any` also subnormal, 0, huge, infinite and NaN. Few codes are NaN or infinite:
 * a column with one hides what others do wrong. */
static void make_f8(unsigned char *block, size_t type, size_t b, bool any)
{
    static const float special[] = {0.0f,     -0.0f,     0x1.8p119f, 0x1.8p120f, -0x1p127f,
                                    INFINITY, -INFINITY, NAN,        0x1p-149f};
    const float scale = (b % 2 ? 1.3f : -0.7f) * ldexpf(1, (int)(b * 7 % 40) - 30);
    mha__put_f8_scale(block, any && b % 5 == 0 ? special[b / 5 % (sizeof special / sizeof *special)] : scale);
    for (size_t i = 4; i < 36; i++)
        if (types[type].dtype == MHA_F8_E4M3_SCALED ? (block[i] & 0x7f) == 0x7f : (block[i] & 0x7c) == 0x7c)
            block[i] ^= any && b % 61 == 0 ? 0 : 0x40;
}

/* Blocks of any bits: scales of both signs, subnormal ones, now and then infinite or NaN if `any`. */
static unsigned char *random_blocks(size_t count, size_t type, bool any, size_t bytes)
{
    unsigned char *blocks = guard_allocate((count * bytes + 63) / 64 * 64, GUARD_AFTER, 0);
    for (size_t i = 0; i < count * bytes; i++)
        blocks[i] = (unsigned char)mha__random_bits(5, type, i);
    for (size_t b = 0; b < count; b++)
        for (size_t h = 0; h < 2; h++) {
            const unsigned exponent = any ? (b + 3 * h) % 32 : (b + 3 * h) % 20;
            unsigned char *half = blocks + b * bytes + types[type].halves[h] + 1;
            if (types[type].halves[h] >= 0)
                *half = (unsigned char)((*half & 0x83) | exponent << 2);
            else if (is_f8(type))
                make_f8(blocks + b * bytes, type, b, any);
            else if (types[type].dtype == MHA_MXFP4)
                blocks[b * bytes] = (unsigned char)(any ? b % 256 : 108 + b % 40);
        }
    return blocks;
}

typedef struct shape {
    size_t m, n, k;
} shape;

static float *run(shape s, mha_dtype dtype, const void *panels, const float *X, const float *b, int threads)
{
    float *Y = numbers(s.m * (s.n + 2), sizeof *Y, 4);
    const size_t scratch = (mha__packed_scratch(s.m, s.k, dtype) + 63) / 64 * 64;
    const mha__packed_product job = {s.m, s.k, s.k, X, false, false, 1, {{s.n, s.n + 2, panels, dtype, b, Y}}};
    mha__packed_run(&job, 1, threads, guard_allocate(scratch * (size_t)threads, GUARD_AFTER, 0));
    return Y;
}

/* Both results, a NaN equal to any other: which of two NaN a sum hands on is not promised. */
static void expect_same(const float *a, const float *b, size_t count, shape s, mha_dtype dtype)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s %s (%zu, %zu, %zu): element %zu is %.9g, of floats %.9g", mha_isa(), mha_dtype_name(dtype),
                     s.m, s.n, s.k, i, b[i], a[i]);
}

/* The terms are rounded up to whole blocks. */
static void check(shape s, size_t type, bool any, int threads)
{
    const mha_dtype dtype = types[type].dtype;
    const size_t elements = mha__block_kind_of(dtype)->elements;
    size_t bytes, packed, packed_bytes;
    s.k = (s.k + elements - 1) / elements * elements;
    assert_int_equal(mha_dtype_bytes(dtype, elements, &bytes, NULL), MHA_OK);
    assert_int_equal(mha__block_kind_of(dtype)->bytes, bytes);
    assert_true(mha__packed_bytes(s.k, s.n, dtype, &packed_bytes));
    assert_true(mha__packed_bytes(s.k, s.n, MHA_F32, &packed));
    unsigned char *blocks = random_blocks(s.n * s.k / elements, type, any, bytes);
    mha_view W = mha_view_of(blocks, dtype, 2, (size_t[]){s.n, s.k});
    float *values = numbers(s.n * s.k, sizeof *values, 1), *X = numbers(s.m * s.k, sizeof *X, 2);
    float *bias = s.m % 2 ? numbers(s.n, sizeof *bias, 3) : NULL;
    W = mha__view_swap(&W, 0, 1);
    const mha_view floats = mha_view_of(values, MHA_F32, 2, (size_t[]){s.k, s.n});
    assert_int_equal(mha_view_copy(&floats, &W, NULL), MHA_OK);
    float *plain = numbers(packed / sizeof *plain, sizeof *plain, 5);
    unsigned char *panels = guard_allocate((packed_bytes + 63) / 64 * 64, GUARD_AFTER, 0);
    mha__pack(s.k, s.n, MHA_F32, values, s.n, plain);
    mha__pack(s.k, s.n, dtype, blocks, s.n, panels);
    expect_same(run(s, MHA_F32, plain, X, bias, 1), run(s, dtype, panels, X, bias, threads), s.m * (s.n + 2), s, dtype);
    guard_release_all();
}

/* 304 terms are a block of 304 and one of 288 of 592: blocks of terms end inside blocks of numbers. */
static void blocks_give_the_bits_of_floats(void **state)
{
    (void)state;
    static const shape shapes[] = {{1, 1, 32},    {1, 33, 64},   {2, 128, 256},  {3, 129, 608}, {1, 300, 1120},
                                   {4, 31, 32},   {5, 70, 896},  {7, 257, 416},  {14, 40, 320}, {15, 96, 512},
                                   {16, 200, 544}, {17, 200, 544}, {29, 31, 96}, {141, 65, 32}, {150, 290, 608}};
    FOR_EACH_ISA
        for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
            check(shapes[i / 2], i % 4, false, 1); /* of each arithmetic one */
            check(shapes[i / 2], (5 * i + 4) % TYPES, i % 3 == 0, 3);
        }
}

/* Every number of rows that the kernels have a tile of their own for, with every width of a panel. */
static void every_tile_gives_the_bits_of_floats(void **state)
{
    (void)state;
    FOR_EACH_ISA
        for (size_t m = 1; m <= 17; m++)
            for (size_t n = 1; n <= 66; n += n < 33 ? 5 : 11)
                check((shape){m, n, 64}, (m + n) % TYPES, true, 1);
}

/* Every type in every tile of few rows, and blocks of terms that end within 32 terms: at 304 of 592 and 368 of 1792. */
static void every_type_meets_every_tile(void **state)
{
    (void)state;
    static const size_t widths[] = {30, 69};
    FOR_EACH_ISA
        for (size_t t = 0; t < TYPES; t++)
            for (size_t m = 1; m <= 8; m++)
                for (size_t w = 0; w < 2; w++) {
                    const size_t elements = mha__block_kind_of(types[t].dtype)->elements;
                    check((shape){m, widths[w], elements == 32 ? 592 : 1792}, t, true, 1);
                }
}

static void every_type_gives_the_bits_of_floats(void **state)
{
    (void)state;
    FOR_EACH_ISA
        for (size_t t = 0; t < TYPES; t++) {
            check((shape){1, 65, 768}, t, false, 1);
            check((shape){5, 39, 256}, t, false, 2);
            check((shape){18, 33, 512}, t, true, 1);
        }
}

static void roundings_of_the_caller_hold(void **state)
{
    (void)state;
    static const int modes[] = {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    FOR_EACH_ISA
        for (size_t i = 0; i < 3; i++) {
            fesetround(modes[i]);
            for (size_t t = 0; t < TYPES; t++)
                check((shape){t % 2 ? 20 : 2, 70, 96}, t, true, 1 + (int)t % 2);
            fesetround(FE_TONEAREST);
        }
}

/* Every code of F8 means what its plain type says, times the scale in F32; only E4M3 has scales that are too large. */
static void codes_of_f8_are_those_of_the_plain_type(void **state)
{
    (void)state;
    static const struct {
        mha_dtype blocks, plain;
    } pairs[] = {{MHA_F8_E4M3_SCALED, MHA_F8_E4M3}, {MHA_F8_E5M2_SCALED, MHA_F8_E5M2}};
    static const float scales[] = {1.0f, -0.1f,    0x1.fffffep119f, 0x1p-149f, 0x1.234568p-130f,
                                   0.0f, INFINITY, NAN,             3e38f};
    for (size_t p = 0; p < 2; p++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            unsigned char blocks[8 * 36], codes[256];
            for (size_t i = 0; i < 256; i++)
                codes[i] = blocks[i / 32 * 36 + 4 + i % 32] = (unsigned char)i;
            for (size_t b = 0; b < 8; b++)
                mha__put_f8_scale(blocks + b * 36, scales[s]);
            const size_t count = 256;
            const mha_view view = mha_view_of(blocks, pairs[p].blocks, 1, &count),
                           plain = mha_view_of(codes, pairs[p].plain, 1, &count);
            const bool beyond = p == 0 && fabsf(scales[s]) >= 0x1p120f;
            for (size_t i = 0; i < 256; i++) {
                const float expected = (float)mha_view_get(&plain, &i) * (beyond ? INFINITY : scales[s]);
                const float found = (float)mha_view_get(&view, &i);
                assert_true((isnan(found) && isnan(expected)) || memcmp(&found, &expected, sizeof found) == 0);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(blocks_give_the_bits_of_floats, isa_teardown),
        cmocka_unit_test_teardown(every_tile_gives_the_bits_of_floats, isa_teardown),
        cmocka_unit_test_teardown(every_type_meets_every_tile, isa_teardown),
        cmocka_unit_test_teardown(every_type_gives_the_bits_of_floats, isa_teardown),
        cmocka_unit_test(codes_of_f8_are_those_of_the_plain_type),
        cmocka_unit_test_teardown(roundings_of_the_caller_hold, isa_teardown),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
