/* Random numbers: the published answers of Philox4x32-10, and independence of who computes what. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mha/random.h"
#include "support/unit.h"

/* kat_vectors of the Random123 distribution (Salmon et al.), philox4x32-10. */
static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        mha__philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void units_are_multiples_of_two_to_minus_24_in_range(void **state)
{
    (void)state;
    double sum = 0;
    enum { N = 20000 };
    for (uint64_t i = 0; i < N; i++) {
        float u = mha__random_unit(3, 5, i);
        assert_true(u >= 0.0f && u < 1.0f);
        double scaled = (double)u * 0x1p24;
        assert_true(scaled == floor(scaled));
        sum += (double)u;
    }
    /* The mean of N uniforms has deviation 1/sqrt(12 N) = 0.00204; six of them. */
    assert_true(fabs(sum / N - 0.5) < 6 * 0.00204);
}

/* Stated by the interface: word i of a stream; units use 32-bit words, bits use pairs of them. */
static void unit_and_bits_come_from_the_counter(void **state)
{
    (void)state;
    const uint64_t seed = 0x0123456789abcdef, stream = 0xfedcba9876543210;
    const uint64_t far = UINT64_C(0xffffffff) * 4 + 2; /* the block number crosses 32 bits right after */
    for (uint64_t i = far; i < far + 9; i++) {
        uint64_t number = i / 4;
        const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        const uint32_t counter[4] = {(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)stream,
                                     (uint32_t)(stream >> 32)};
        uint32_t word[4];
        mha__philox(counter, key, word);
        assert_true(mha__random_unit(seed, stream, i) == (float)(word[i % 4] >> 8) / 16777216.0f);
    }
    assert_true(mha__random_bits(seed, stream, 7) != mha__random_bits(seed, stream + 1, 7));
    assert_true(mha__random_bits(seed, stream, 7) != mha__random_bits(seed + 1, stream, 7));
    assert_true(mha__random_bits(seed, stream, 7) != mha__random_bits(seed, stream, 8));
}

static void fill_gives_each_element_its_own_number(void **state)
{
    (void)state;
    enum { ROWS = 5, COLUMNS = 7, LEAD = 11 };
    float memory[ROWS * LEAD];
    double wide[ROWS * COLUMNS];
    memset(memory, 0x7f, sizeof memory);
    mha_view strided = mha_view_of(memory, MHA_F32, 2, (size_t[]){ROWS, COLUMNS});
    strided.stride[0] = LEAD;
    mha_random_fill(&strided, 9, 1, -2.0f, 3.0f);
    mha_view dense = mha_view_of(wide, MHA_F64, 2, (size_t[]){ROWS, COLUMNS});
    mha_random_fill(&dense, 9, 1, -2.0f, 3.0f);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < LEAD; j++) {
            float found = memory[i * LEAD + j];
            if (j >= COLUMNS) { /* between the rows: not written */
                assert_memory_equal(&found, "\x7f\x7f\x7f\x7f", 4);
                continue;
            }
            float u = mha__random_unit(9, 1, i * COLUMNS + j), expected = -2.0f + 5.0f * u;
            assert_true(found == expected);
            assert_true(wide[i * COLUMNS + j] == (double)expected);
        }
}

static void fill_rounds_into_short_floats_and_leaves_other_types_alone(void **state)
{
    (void)state;
    uint16_t half[9], brain[9];
    int32_t other[9] = {1, 2, 3};
    size_t n = 9;
    mha_view h = mha_view_of(half, MHA_F16, 1, &n), b = mha_view_of(brain, MHA_BF16, 1, &n);
    mha_view o = mha_view_of(other, MHA_I32, 1, &n), none = mha_view_of(NULL, MHA_F32, 1, &n);
    mha_random_fill(&h, 1, 2, -1.0f, 1.0f);
    mha_random_fill(&b, 1, 2, -1.0f, 1.0f);
    mha_random_fill(&o, 1, 2, -1.0f, 1.0f);
    mha_random_fill(&none, 1, 2, -1.0f, 1.0f);
    for (size_t i = 0; i < n; i++) {
        float value = -1.0f + 2.0f * mha__random_unit(1, 2, i);
        assert_int_equal(half[i], mha__f32_to_f16(value));
        assert_int_equal(brain[i], mha__f32_to_bf16(value));
        assert_int_equal(other[i], i < 3 ? (int)i + 1 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(units_are_multiples_of_two_to_minus_24_in_range),
        cmocka_unit_test(unit_and_bits_come_from_the_counter),
        cmocka_unit_test(fill_gives_each_element_its_own_number),
        cmocka_unit_test(fill_rounds_into_short_floats_and_leaves_other_types_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
