/* The values everything passes around: element types, short floats, views, layouts, statuses, memory. */
#include <fenv.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/base.h"
#include "mha/random.h"
#include "support/failing.h"
#include "support/guard.h"
#include "support/unit.h"

/* ---------------------------------------------------------------- statuses */

static void every_status_has_words(void **state)
{
    (void)state;
#define CHECK(code, name, meaning)                                                                                     \
    assert_string_equal(mha__status_name(code), name);                                                                 \
    assert_string_equal(mha__status_meaning(code), meaning);
    MHA_STATUS_LIST(CHECK)
#undef CHECK
    assert_string_equal(mha__status_name((mha_status)99), "unknown");
    assert_string_equal(mha__status_meaning((mha_status)-1), "unknown");
}

static void an_error_is_one_line_whatever_it_is_given(void **state)
{
    (void)state;
    mha_error error;
    char name[300];
    memset(name, 'n', sizeof name);
    memcpy(name + sizeof name - 5, "\033end", 5);
    assert_int_equal(mha__fail(&error, MHA_FORMAT, name, "a\nb\x1b[31m%s%s%s", name, name, name), MHA_FORMAT);
    assert_int_equal(error.status, MHA_FORMAT);
    assert_int_equal(strlen(error.name), sizeof error.name - 1);
    assert_memory_equal(error.name, "...nnn", 6);
    assert_string_equal(error.name + sizeof error.name - 6, "n?end");
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    for (const char *c = error.message; *c; c++)
        assert_true((unsigned char)*c >= 32 && *c != 127);
    assert_int_equal(mha__fail(&error, MHA_INVALID, NULL, "x"), MHA_INVALID);
    assert_string_equal(error.name, "");
    assert_int_equal(error.offset, 0);
    assert_int_equal(mha__fail(NULL, MHA_IO, "x", "y"), MHA_IO);

    /* a name too long for its field keeps its end, from a whole character on: here the cut meets the third byte */
    const size_t kept = sizeof error.name - 4;
    memset(name, 'n', sizeof name);
    memcpy(name + sizeof name - 1 - kept - 2, "\u20ac", 3);
    name[sizeof name - 1] = '\0';
    mha__fail(&error, MHA_INVALID, name, "x");
    assert_int_equal(strlen(error.name), 3 + kept - 1);
    assert_memory_equal(error.name, "...nnn", 6);
}

/* ASCII's control characters, those of Latin-1 (U+009B begins an escape sequence), changes of direction, and what is no
 * UTF-8. */
static void harmless_text_has_no_controls(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"a\x1b[1m\x7f\n\r\t\x01", "a?[1m?????"},
        {"\xc2\x80\xc2\x9b"
         "31m\xc2\x9f\xc2\xa0\xc3\x9f",
         "??31m?\xc2\xa0\xc3\x9f"},
        {"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xae\xe2\x80\xaf", "\xe2\x80\xa7??\xe2\x80\xaf"},
        {"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", "\xe2\x81\xa5??\xe2\x81\xaa"},
        {"\xe2\x82\xa9 \xe2\x80", "\xe2\x82\xa9 ??"}, /* the last character is cut */
        {"\xc2", "?"},
        {"\x9b\xff\xf0\x9f\x98\x80\xed\xa0\x80", "??\xf0\x9f\x98\x80???"}, /* a terminal may obey a lone 9B */
        {"\xe2\x80\x8d\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\x90\xd8\x9b\xd8\x9c", "\xe2\x80\x8d??\xe2\x80\x90\xd8\x9b?"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[40];
        strcpy(text, texts[i][0]);
        assert_ptr_equal(mha__text_harmless(text), text);
        assert_string_equal(text, texts[i][1]);
    }
}

static void an_error_reads_as_name_message_and_byte(void **state)
{
    (void)state;
    mha_error error;
    char text[sizeof(mha_error)], small[12];
    mha__fail(&error, MHA_INVALID, "n_heads", "expected 1, found %d", 2);
    assert_string_equal(mha_error_text(text, sizeof text, &error), "n_heads: expected 1, found 2");
    error = (mha_error){.status = MHA_FORMAT, .offset = 80, .name = "a.npy", .message = "expected more"};
    assert_string_equal(mha_error_text(text, sizeof text, &error), "a.npy: expected more (byte 80)");
    strcat(error.message, " at byte 80");
    assert_string_equal(mha_error_text(text, sizeof text, &error), "a.npy: expected more at byte 80");
    mha__fail(&error, MHA_IO, NULL, "no");
    assert_string_equal(mha_error_text(text, sizeof text, &error), "no");
    error = (mha_error){.status = MHA_NO_MEMORY, .name = "x"};
    assert_string_equal(mha_error_text(text, sizeof text, &error), "x: the machine could not give the memory");
    mha__fail(&error, MHA_IO, "aaaaaaaa", "\xc3\xa4");
    assert_string_equal(mha_error_text(small, sizeof small, &error), "aaaaaaaa: ");
    memset(small, 'x', sizeof small);
    assert_ptr_equal(mha_error_text(small + 6, 0, &error), small + 6); /* nothing is written, nor before it */
    for (size_t i = 0; i < sizeof small; i++)
        assert_int_equal(small[i], 'x');
}

static void a_shape_is_expected_in_words(void **state)
{
    (void)state;
    mha_error error;
    mha_view view = mha_view_of(NULL, MHA_F32, 2, (size_t[]){2, 3});
    assert_int_equal(mha__expect_shape(&error, "x", &view, 2, (size_t[]){2, 3}), MHA_OK);
    assert_refused(mha__expect_shape(&error, "x", &view, 2, (size_t[]){3, 2}), MHA_INVALID, error, "x",
                   "expected shape (3, 2), found (2, 3)");
    assert_refused(mha__expect_shape(&error, "x", &view, 1, (size_t[]){2}), MHA_INVALID, error, "expected shape (2,)");
}

static void an_index_steps_in_row_major_order(void **state)
{
    (void)state;
    const size_t shape[3] = {2, 1, 3};
    size_t index[3] = {0}, steps = 0;
    do
        assert_int_equal(index[0] * 3 + index[1] * 3 + index[2], steps++);
    while (mha__index_next(index, shape, 3));
    assert_int_equal(steps, 6);
    assert_true(index[0] == 0 && index[1] == 0 && index[2] == 0);
    assert_false(mha__index_next(index, shape, 0));
}

static void names_are_found_and_looked_up(void **state)
{
    (void)state;
    static const char *const names[] = {"ab", "a"};
    assert_int_equal(mha__name_find(names, 2, "a"), 1);
    assert_int_equal(mha__name_find(names, 1, "a"), -1);
    assert_string_equal(mha__name_at(names, 2, 0), "ab");
    assert_string_equal(mha__name_at(names, 2, 2), "?");
    assert_string_equal(mha__name_at(names, 2, (size_t)-1), "?");
}

static void the_clock_goes_forward_in_its_units(void **state)
{
    (void)state;
    const double seconds = mha__clock_seconds(), ms = mha__clock_ms();
    assert_true(ms >= 1e3 * seconds - 1e-3 && ms < 1e3 * seconds + 1e4);
    assert_true(mha__clock_seconds() >= seconds);
}

static void two_axes_are_exchanged(void **state)
{
    (void)state;
    float data[24] = {0};
    const mha_view heads = mha_heads(data, 2, 3, 2, 2), swapped = mha__view_swap(&heads, 1, 2);
    const size_t shape[] = {2, 2, 3, 2};
    const ptrdiff_t stride[] = {12, 2, 4, 1};
    assert_true(swapped.data == data && swapped.rank == 4);
    assert_memory_equal(swapped.shape, shape, sizeof shape);
    assert_memory_equal(swapped.stride, stride, sizeof stride);
    const mha_view rows = mha_rows(data, 2, 3, 4);
    assert_true(rows.data == data && rows.dtype == MHA_F32 && rows.rank == 3 && mha__view_is_contiguous(&rows));
    assert_true(rows.shape[0] == 2 && rows.shape[1] == 3 && rows.shape[2] == 4);
}

/* A missing axis is neither cut nor exchanged, and nothing beyond the view's extents is touched. */
static void axes_and_elements_outside_a_view_give_none(void **state)
{
    (void)state;
    float data[24] = {0};
    const mha_view rows = mha_rows(data, 2, 3, 4);
    const mha_view last = mha_view_slice(&rows, 1, 2, 1), none = mha_view_slice(&rows, 1, 3, 0);
    assert_true(last.data == data + 8 && last.shape[1] == 1 && none.rank == 3 && none.shape[1] == 0);
    const struct {
        int axis;
        size_t from, count;
    } outside[] = {{-1, 0, 1}, {3, 0, 1}, {1000, 0, 1},     {1, 4, 0},
                   {1, 3, 1},  {1, 0, 4}, {1, 1, SIZE_MAX}, {1, SIZE_MAX, 1}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_null(mha_view_slice(&rows, outside[i].axis, outside[i].from, outside[i].count).data);
    assert_null(mha_view_heads(data, MHA_F32, MHA_LAYOUT_COUNT, 1, 2, 3, 4).data);
    assert_null(mha_view_rows(data, MHA_F32, MHA_LAYOUT_COUNT, 1, 2, 3).data);
    static const int axes[][2] = {{-1, 0}, {0, -1}, {3, 0}, {0, 3}, {1000, 1000}};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        assert_null(mha__view_swap(&rows, axes[i][0], axes[i][1]).data);
    static const int ranks[] = {-1, MHA_MAX_RANK + 1, 1000};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        mha_view broken = rows;
        broken.rank = ranks[i];
        assert_null(mha_view_slice(&broken, broken.rank - 1, 0, 0).data);
        assert_null(mha__view_swap(&broken, broken.rank - 1, broken.rank - 1).data);
    }
    static const int dtypes[] = {-1, MHA_DTYPE_COUNT, 999, INT_MAX};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        mha_view broken = rows;
        broken.dtype = (mha_dtype)dtypes[i];
        assert_null(mha_view_slice(&broken, 0, 1, 1).data);
        assert_true(isnan(mha_view_get(&broken, (size_t[]){0, 0, 0})));
        mha_view_set(&broken, (size_t[]){0, 0, 0}, 1);
        assert_true(data[0] == 0);
        assert_int_equal(mha_view_copy(&rows, &broken, NULL), MHA_UNSUPPORTED);
        assert_int_equal(mha_view_copy(&broken, &rows, NULL), MHA_UNSUPPORTED);
    }
}

/* ---------------------------------------------------------------- element types */

static void every_dtype_is_sized_by_its_block(void **state)
{
    (void)state;
#define CHECK(code, name, block_elements, block_bytes)                                                                 \
    {                                                                                                                  \
        size_t bytes = 1;                                                                                              \
        assert_int_equal(mha_dtype_bytes(code, 3 * (size_t)block_elements, &bytes, NULL), MHA_OK);                     \
        assert_int_equal(bytes, 3 * (size_t)block_bytes);                                                              \
        assert_int_equal(mha_dtype_bytes(code, 0, &bytes, NULL), MHA_OK);                                              \
        assert_int_equal(bytes, 0);                                                                                    \
        bytes = 77;                                                                                                    \
        if (block_elements > 1)                                                                                        \
            assert_int_equal(mha_dtype_bytes(code, (size_t)block_elements + 1, &bytes, NULL), MHA_INVALID);            \
        else if (block_bytes > 1)                                                                                      \
            assert_int_equal(mha_dtype_bytes(code, SIZE_MAX / 2 + 1, &bytes, NULL), MHA_INVALID);                      \
        assert_true(bytes == 77 || block_bytes == 1);                                                                  \
    }
    MHA_DTYPE_LIST(CHECK)
#undef CHECK
    size_t bytes = 5;
    assert_string_equal(mha_dtype_name(MHA_DTYPE_COUNT), "?");
    assert_string_equal(mha_dtype_name((mha_dtype)-1), "?");
    mha_error error;
    assert_refused(mha_dtype_bytes(MHA_DTYPE_COUNT, 1, &bytes, &error), MHA_INVALID, error, "dtype");
    assert_refused(mha_dtype_bytes(MHA_Q8_0, 31, &bytes, &error), MHA_INVALID, error, "elements", "32", "31");
    assert_int_equal(bytes, 5);
    assert_int_equal(MHA_F32, 0);
}

/* The value of a short float: (-1)^s 2^(e-bias) (1+f/2^n), spelled out in double. */
static double meaning(unsigned bits, int exponent_bits, int fraction_bits)
{
    int e = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double f = (double)(bits & ((1u << fraction_bits) - 1)) / (double)(1u << fraction_bits);
    double s = bits >> (exponent_bits + fraction_bits) ? -1.0 : 1.0;
    int bias = (1 << (exponent_bits - 1)) - 1;
    if (e == (1 << exponent_bits) - 1)
        return f != 0 ? (double)NAN : s * (double)INFINITY;
    return e == 0 ? s * f * pow(2, 1 - bias) : s * (1 + f) * pow(2, e - bias);
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* Every code is stored again as itself; between two neighbours the nearer one is, in the middle the even one. */
static void eight_bits_round_to_nearest_even(void **state)
{
    (void)state;
    const size_t zero[1] = {0};
    for (int wide = 0; wide < 2; wide++) {
        uint8_t code, last = wide ? 0x7b : 0x7e;
        const mha_view one = mha_view_of(&code, wide ? MHA_F8_E5M2 : MHA_F8_E4M3, 1, (const size_t[]){1});
        for (int sign = 1; sign >= -1; sign -= 2)
            for (unsigned c = 0; c <= last; c++) {
                code = (uint8_t)c;
                const double low = mha_view_get(&one, zero);
                code = (uint8_t)(c + 1);
                const double high = c < last ? mha_view_get(&one, zero) : wide ? 65536 : 480;
                const unsigned s = sign < 0 ? 0x80 : 0, even = c % 2 ? c + 1 : c;
                const struct {
                    double value;
                    unsigned code;
                } rows[] = {{low, c},
                            {(low + high) / 2, even},
                            {nextafter((low + high) / 2, 0), c},
                            {nextafter((low + high) / 2, high), c + 1}};
                for (size_t i = 0; i < 4; i++) {
                    mha_view_set(&one, zero, sign * rows[i].value);
                    assert_int_equal(code, s | rows[i].code); /* past the last: 0x7c is infinity, 0x7f is NaN */
                }
            }
        mha_view_set(&one, zero, 1e300);
        assert_int_equal(code, wide ? 0x7c : 0x7f);
        mha_view_set(&one, zero, -INFINITY);
        assert_int_equal(code, wide ? 0xfc : 0xff);
        mha_view_set(&one, zero, NAN);
        assert_true(isnan(mha_view_get(&one, zero)));
    }
}

static void every_f16_and_bf16_pattern_means_what_it_should(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        float half = mha__f16_to_f32((uint16_t)bits), brain = mha__bf16_to_f32((uint16_t)bits);
        assert_true(same((double)half, meaning(bits, 5, 10)));
        assert_true(same((double)brain, meaning(bits, 8, 7)));
        if (isnan(half))
            assert_true(isnan(mha__f16_to_f32(mha__f32_to_f16(half))));
        else
            assert_int_equal(mha__f32_to_f16(half), bits);
        if (isnan(brain))
            assert_true(isnan(mha__bf16_to_f32(mha__f32_to_bf16(brain))));
        else
            assert_int_equal(mha__f32_to_bf16(brain), bits);
    }
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Between each two neighbours: just below, at and just above the middle, both signs. The middle goes
 * to the even pattern; the largest value's upper neighbour is infinity, as 2^(emax+1) would be. */
static void check_rounding(int exponent_bits, int fraction_bits, uint16_t (*convert)(float))
{
    unsigned infinity = (unsigned)((1 << exponent_bits) - 1) << fraction_bits;
    for (unsigned bits = 0; bits < infinity; bits++) {
        double low = meaning(bits, exponent_bits, fraction_bits);
        double high =
            bits + 1 == infinity ? pow(2, 1 << (exponent_bits - 1)) : meaning(bits + 1, exponent_bits, fraction_bits);
        double middle = low + (high - low) / 2; /* exact in double, and in float where the short float has room */
        float m = (float)middle;
        if ((double)m != middle)
            continue; /* below the float subnormals: bf16 has the same ones, so nothing lies between */
        unsigned even = bits % 2 ? bits + 1 : bits, sign = 1u << (exponent_bits + fraction_bits);
        float below = nextafterf(m, 0.0f), above = nextafterf(m, INFINITY);
        assert_int_equal(convert(m), even);
        assert_int_equal(convert(below), bits);
        assert_int_equal(convert(above), bits + 1);
        assert_int_equal(convert(-m), even | sign);
        assert_int_equal(convert(-below), bits | sign);
        assert_int_equal(convert(-above), (bits + 1) | sign);
    }
    assert_int_equal(convert(FLT_MAX), infinity);
    assert_int_equal(convert(INFINITY), infinity);
}

/* The same bits in whatever direction the thread rounds. */
static uint16_t anyhow(uint16_t (*convert)(float), float value)
{
    static const int roundings[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    const uint16_t nearest = convert(value);
    for (size_t i = 0; i < sizeof roundings / sizeof *roundings; i++) {
        fesetround(roundings[i]);
        const uint16_t found = convert(value);
        fesetround(FE_TONEAREST);
        assert_int_equal(found, nearest);
    }
    return nearest;
}

static uint16_t f32_to_f16_anyhow(float value)
{
    return anyhow(mha__f32_to_f16, value);
}

static uint16_t f32_to_bf16_anyhow(float value)
{
    return anyhow(mha__f32_to_bf16, value);
}

static void rounding_to_short_floats_is_to_nearest_even(void **state)
{
    (void)state;
    check_rounding(5, 10, f32_to_f16_anyhow);
    check_rounding(8, 7, f32_to_bf16_anyhow);
    /* NaN stays NaN, whatever its payload and sign */
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff, 0x7f801fff};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        assert_true(isnan(mha__f16_to_f32(mha__f32_to_f16(float_of(nans[i])))));
        assert_true(isnan(mha__bf16_to_f32(mha__f32_to_bf16(float_of(nans[i])))));
    }
}

/* Double to a short float rounds once: values so close to a middle that float cannot tell from it. */
static void double_to_short_float_rounds_once(void **state)
{
    (void)state;
    uint16_t out;
    mha_view to = mha_view_of(&out, MHA_F16, 0, NULL), to_brain = mha_view_of(&out, MHA_BF16, 0, NULL);
    for (int side = -1; side <= 1; side += 2)
        for (unsigned bits = 0x0001; bits < 0x7bff; bits += 37) {
            double middle = (meaning(bits, 5, 10) + meaning(bits + 1, 5, 10)) / 2;
            double value = middle * (1 + side * 0x1p-40);
            mha_view from = mha_view_of(&value, MHA_F64, 0, NULL);
            assert_int_equal(mha_view_copy(&to, &from, NULL), MHA_OK);
            assert_int_equal(out, side < 0 ? bits : bits + 1);
        }
    double value = 1.0 + 0x1p-8 + 0x1p-45;
    mha_view from = mha_view_of(&value, MHA_F64, 0, NULL);
    assert_int_equal(mha_view_copy(&to_brain, &from, NULL), MHA_OK);
    assert_int_equal(out, 0x3f81);
    value = -1e-300;
    assert_int_equal(mha_view_copy(&to_brain, &from, NULL), MHA_OK);
    assert_int_equal(out, 0x8000);
    value = 1e300;
    assert_int_equal(mha_view_copy(&to, &from, NULL), MHA_OK);
    assert_int_equal(out, 0x7c00);
}

static void get_reads_every_plain_type(void **state)
{
    (void)state;
    static const struct {
        mha_dtype dtype;
        unsigned char bytes[8];
        double value;
    } cases[] = {
        {MHA_I8, {0x80}, -128},
        {MHA_U8, {0x80}, 128},
        {MHA_BOOL, {7}, 1},
        {MHA_BOOL, {0}, 0},
        {MHA_F8_E4M3, {0x7e}, 448},
        {MHA_F8_E4M3, {0x01}, 0x1p-9},
        {MHA_F8_E4M3, {0x78}, 256}, /* the top exponent holds numbers too */
        {MHA_F8_E4M3, {0xb8}, -1},
        {MHA_F8_E5M2, {0x7b}, 57344},
        {MHA_F8_E5M2, {0x7c}, INFINITY},
        {MHA_F8_E5M2, {0x81}, -0x1p-16},
        {MHA_F8_E5M2, {0x3c}, 1},
        {MHA_F8_E4M3FNUZ, {0x40}, 1},   /* one more in the bias, */
        {MHA_F8_E4M3FNUZ, {0x7f}, 240}, /* no infinity, */
        {MHA_F8_E4M3FNUZ, {0x81}, -0x1p-10},
        {MHA_F8_E5M2FNUZ, {0x40}, 1},
        {MHA_F8_E5M2FNUZ, {0xff}, -57344},
        {MHA_F8_E5M2FNUZ, {0x02}, 0x1p-16},
        {MHA_F8_E8M0, {0x00}, 0x1p-127}, /* only an exponent */
        {MHA_F8_E8M0, {0x80}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char memory[8];
        memcpy(memory, cases[i].bytes, 8);
        mha_view view = mha_view_of(memory, cases[i].dtype, 0, NULL);
        assert_true(same(mha_view_get(&view, NULL), cases[i].value));
    }
    unsigned char no_zero = 0x80, all = 0xff; /* minus zero is the NaN of the bugs without infinity */
    mha_view n1 = mha_view_of(&no_zero, MHA_F8_E4M3FNUZ, 0, NULL), n2 = mha_view_of(&no_zero, MHA_F8_E5M2FNUZ, 0, NULL);
    mha_view n3 = mha_view_of(&all, MHA_F8_E8M0, 0, NULL);
    assert_true(isnan(mha_view_get(&n1, NULL)) && isnan(mha_view_get(&n2, NULL)) && isnan(mha_view_get(&n3, NULL)));
    unsigned char nan_e4m3 = 0xff, nan_e5m2 = 0x7e, quantised[18] = {0};
    mha_view a = mha_view_of(&nan_e4m3, MHA_F8_E4M3, 0, NULL), b = mha_view_of(&nan_e5m2, MHA_F8_E5M2, 0, NULL);
    mha_view q = mha_view_of(quantised, MHA_IQ1_S, 0, NULL);
    assert_true(isnan(mha_view_get(&a, NULL)) && isnan(mha_view_get(&b, NULL)) && isnan(mha_view_get(&q, NULL)));

    int16_t i16 = -32768;
    uint16_t u16 = 65535, f16 = 0xc000, bf16 = 0xc000;
    int32_t i32 = INT32_MIN;
    uint32_t u32 = UINT32_MAX;
    int64_t i64 = -(INT64_C(1) << 53);
    uint64_t u64 = UINT64_C(1) << 63;
    float f32 = -0x1.8p-140f;
    double f64 = 0x1.23456789abcdep+1000;
    const struct {
        void *data;
        mha_dtype dtype;
        double value;
    } words[] = {{&i16, MHA_I16, -32768},      {&u16, MHA_U16, 65535},
                 {&f16, MHA_F16, -2},          {&bf16, MHA_BF16, -2},
                 {&i32, MHA_I32, -0x1p31},     {&u32, MHA_U32, 0x1p32 - 1},
                 {&i64, MHA_I64, -0x1p53},     {&u64, MHA_U64, 0x1p63},
                 {&f32, MHA_F32, -0x1.8p-140}, {&f64, MHA_F64, 0x1.23456789abcdep+1000}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        mha_view view = mha_view_of(words[i].data, words[i].dtype, 0, NULL);
        assert_true(same(mha_view_get(&view, NULL), words[i].value));
    }
}

static void set_rounds_to_nearest_even(void **state)
{
    (void)state;
    float f[2] = {0};
    double d = 0;
    mha_view vf = mha_view_of(f, MHA_F32, 1, (size_t[]){2}), vd = mha_view_of(&d, MHA_F64, 0, NULL);
    mha_view_set(&vf, (size_t[]){1}, 1 + 0x1p-24);
    assert_true(f[1] == 1.0f && f[0] == 0.0f);
    mha_view_set(&vf, (size_t[]){1}, 1 + 0x1.8p-23);
    assert_true(f[1] == 1.0f + 0x1p-22f);
    mha_view_set(&vd, NULL, 0.1);
    assert_true(d == 0.1);
}

/* ---------------------------------------------------------------- views */

static void views_count_their_elements_without_overflow(void **state)
{
    (void)state;
    float x;
    mha_view v = mha_view_of(&x, MHA_F32, 3, (size_t[]){2, 3, 4});
    assert_int_equal(mha_view_elements(&v), 24);
    assert_true(v.stride[0] == 12 && v.stride[1] == 4 && v.stride[2] == 1);
    assert_true(mha__view_is_contiguous(&v));
    v = mha_view_of(&x, MHA_F32, 0, NULL);
    assert_int_equal(mha_view_elements(&v), 1);
    assert_true(mha__view_is_contiguous(&v));
    v = mha_view_of(&x, MHA_F32, 2, (size_t[]){SIZE_MAX / 2, 3});
    assert_true(mha_view_elements(&v) == SIZE_MAX);
    v = mha_view_of(&x, MHA_F32, 3, (size_t[]){SIZE_MAX, SIZE_MAX, 0});
    assert_int_equal(mha_view_elements(&v), 0);
    v = mha_view_of(&x, MHA_F32, MHA_MAX_RANK + 1, (size_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    assert_null(v.data);
    v = mha_view_of(&x, MHA_F32, -1, NULL);
    assert_null(v.data);
}

/* A struct filled by hand may say anything; nothing can be read past its arrays. */
static void a_rank_that_is_none_is_not_believed(void **state)
{
    (void)state;
    static const int ranks[] = {MHA_MAX_RANK + 1, 99, INT_MAX, -1, INT_MIN};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        mha_view *v = guard_allocate(sizeof *v, GUARD_AFTER, 1);
        float x[4] = {0};
        *v = mha_view_of(x, MHA_F32, 1, (size_t[]){4});
        v->rank = ranks[i];
        assert_true(mha_view_elements(v) == SIZE_MAX);
        assert_false(mha__view_is_contiguous(v));
        assert_int_equal(mha_view_copy(v, v, NULL), MHA_INVALID);
        mha_random_fill(v, 1, 1, 1, 2);
        assert_true(x[0] == 0);
        char text[40], expected[40];
        snprintf(expected, sizeof expected, "rank %d", ranks[i]);
        assert_string_equal(mha__shape_text(text, sizeof text, v->shape, v->rank), expected);
        guard_release(v);
    }
}

static void contiguity_looks_at_strides_only_where_they_matter(void **state)
{
    (void)state;
    float x;
    mha_view v = mha_view_of(&x, MHA_F32, 3, (size_t[]){2, 1, 4});
    v.stride[1] = 99; /* an extent of one is never stepped over */
    assert_true(mha__view_is_contiguous(&v));
    v.stride[0] = 5;
    assert_false(mha__view_is_contiguous(&v));
    v = mha_view_of(&x, MHA_F32, 2, (size_t[]){3, 4});
    v.stride[1] = 2;
    assert_false(mha__view_is_contiguous(&v));
}

static void a_slice_is_the_same_memory(void **state)
{
    (void)state;
    double memory[4 * 5];
    for (int i = 0; i < 20; i++)
        memory[i] = i;
    mha_view v = mha_view_of(memory, MHA_F64, 2, (size_t[]){4, 5});
    mha_view s = mha_view_slice(&v, 1, 2, 2), t = mha_view_slice(&s, 0, 3, 1);
    assert_int_equal(s.shape[0], 4);
    assert_int_equal(s.shape[1], 2);
    assert_true(s.data == memory + 2);
    assert_true(mha_view_get(&s, (size_t[]){2, 1}) == 13);
    assert_true(mha_view_get(&t, (size_t[]){0, 0}) == 17);
    v.stride[0] = -5; /* rows upside down */
    v.data = memory + 15;
    s = mha_view_slice(&v, 0, 1, 2);
    assert_true(mha_view_get(&s, (size_t[]){0, 0}) == 10 && mha_view_get(&s, (size_t[]){1, 4}) == 9);
    mha_view none = mha_view_of(NULL, MHA_F32, 1, (size_t[]){4});
    assert_null(mha_view_slice(&none, 0, 2, 1).data);
}

static void copy_converts_between_strided_views(void **state)
{
    (void)state;
    enum { A = 3, B = 4, C = 5 };
    int16_t source[A * B * C];
    for (int i = 0; i < A * B * C; i++)
        source[i] = (int16_t)(i * 37 - 500);
    mha_view from = mha_view_of(source, MHA_I16, 3, (size_t[]){A, B, C});
    static const mha_dtype targets[] = {MHA_F32, MHA_F64, MHA_F16, MHA_BF16, MHA_I16};
    for (size_t k = 0; k < sizeof targets / sizeof *targets; k++) {
        size_t bytes, n = A * B * C;
        mha_dtype_bytes(targets[k], n, &bytes, NULL);
        void *memory = guard_allocate(bytes, GUARD_AFTER, 0xEE);
        mha_view to = mha_view_of(memory, targets[k], 3, (size_t[]){A, B, C});
        to.stride[0] = 1, to.stride[1] = A, to.stride[2] = A * B; /* the other way round */
        assert_int_equal(mha_view_copy(&to, &from, NULL), MHA_OK);
        for (size_t a = 0; a < A; a++)
            for (size_t b = 0; b < B; b++)
                for (size_t c = 0; c < C; c++) {
                    double expected = source[(a * B + b) * C + c];
                    if (targets[k] == MHA_BF16)
                        expected = (double)mha__bf16_to_f32(mha__f32_to_bf16((float)expected));
                    assert_true(mha_view_get(&to, (size_t[]){a, b, c}) == expected);
                }
        guard_release(memory);
    }
    /* an even stride in both, same type */
    mha_view odd = mha_view_of(source, MHA_I16, 1, (size_t[]){4}), even = odd;
    int16_t few[8] = {0};
    odd.stride[0] = 3;
    even.data = few;
    even.stride[0] = 2;
    assert_int_equal(mha_view_copy(&even, &odd, NULL), MHA_OK);
    for (int i = 0; i < 4; i++)
        assert_true(few[2 * i] == source[3 * i] && few[2 * i + 1] == 0);
    /* broadcast of one element by stride zero */
    mha_view one = mha_view_of(source + 1, MHA_I16, 1, (size_t[]){4});
    one.stride[0] = 0;
    assert_int_equal(mha_view_copy(&even, &one, NULL), MHA_OK);
    assert_true(few[0] == source[1] && few[6] == source[1]);
}

static void copy_refuses_what_it_cannot_do(void **state)
{
    (void)state;
    mha_error error;
    float f[32] = {0};
    int32_t i[32] = {0};
    mha_view a = mha_view_of(f, MHA_F32, 2, (size_t[]){2, 3}), b = mha_view_of(f, MHA_F32, 2, (size_t[]){3, 2});
    mha_view c = mha_view_of(f, MHA_F32, 1, (size_t[]){6}), d = mha_view_of(i, MHA_I32, 2, (size_t[]){2, 3});
    mha_view q = mha_view_of(f, MHA_Q8_0, 1, (size_t[]){32}), r = mha_view_of(i, MHA_Q8_0, 1, (size_t[]){32});
    uint8_t eight[6];
    mha_view g = mha_view_of(eight, MHA_F8_E8M0, 2, (size_t[]){2, 3});
    assert_refused(mha_view_copy(&a, &b, &error), MHA_INVALID, error, "from", "expected shape");
    assert_int_equal(mha_view_copy(&a, &c, NULL), MHA_INVALID);
    assert_refused(mha_view_copy(&d, &a, &error), MHA_UNSUPPORTED, error, "from", "expected a type that converts to");
    assert_int_equal(mha_view_copy(&r, &q, NULL), MHA_UNSUPPORTED);
    assert_int_equal(mha_view_copy(&g, &a, NULL), MHA_UNSUPPORTED);
    g.dtype = MHA_F8_E4M3;
    assert_int_equal(mha_view_copy(&g, &a, NULL), MHA_OK);
    mha_view empty = mha_view_of(NULL, MHA_F32, 2, (size_t[]){0, 3});
    assert_int_equal(mha_view_copy(&empty, &empty, NULL), MHA_OK);
}

static void layouts_are_views_of_the_same_four_indices(void **state)
{
    (void)state;
    enum { B = 2, T = 3, H = 5, D = 7 };
    static int32_t memory[B * T * H * D];
    for (int i = 0; i < B * T * H * D; i++)
        memory[i] = i;
    for (size_t b = 0; b < B; b++)
        for (size_t t = 0; t < T; t++)
            for (size_t h = 0; h < H; h++)
                for (size_t d = 0; d < D; d++) {
                    size_t at[4] = {b, t, h, d}, row[3] = {b, t, h * D + d};
                    const size_t expected[MHA_LAYOUT_COUNT] = {[MHA_BTE] = (b * T + t) * H * D + h * D + d,
                                                               [MHA_TBE] = (t * B + b) * H * D + h * D + d,
                                                               [MHA_TE] = t * H * D + h * D + d,
                                                               [MHA_BHTD] = ((b * H + h) * T + t) * D + d,
                                                               [MHA_BTHD] = ((b * T + t) * H + h) * D + d};
                    for (int l = 0; l < MHA_LAYOUT_COUNT; l++) {
                        size_t batch = l == MHA_TE ? 1 : B;
                        if (b >= batch)
                            continue;
                        mha_view heads = mha_view_heads(memory, MHA_I32, (mha_layout)l, batch, T, H, D);
                        assert_int_equal((size_t)mha_view_get(&heads, at), expected[l]);
                        mha_view rows = mha_view_rows(memory, MHA_I32, (mha_layout)l, batch, T, H * D);
                        if (l == MHA_BHTD) { /* heads do not lie side by side */
                            assert_null(rows.data);
                            continue;
                        }
                        assert_int_equal((size_t)mha_view_get(&rows, row), expected[l]);
                    }
                }
    assert_string_equal(mha__layout_name(MHA_BHTD), "BHTD");
    assert_null(mha_view_heads(memory, MHA_I32, MHA_TE, 2, 1, H, D).data); /* no batch */
    assert_null(mha_view_rows(memory, MHA_I32, MHA_TE, 2, 1, H * D).data);
    assert_null(mha_view_rows(memory, MHA_I32, MHA_TE, 0, 1, H * D).data);
    assert_string_equal(mha__layout_name(MHA_LAYOUT_COUNT), "?");
    assert_int_equal(MHA_BTE, 0);
}

static void shapes_in_words_are_cut_not_overrun(void **state)
{
    (void)state;
    char text[64];
    assert_string_equal(mha__shape_text(text, sizeof text, (size_t[]){2, 128, 768}, 3), "(2, 128, 768)");
    assert_string_equal(mha__shape_text(text, sizeof text, (size_t[]){7}, 1), "(7,)");
    assert_string_equal(mha__shape_text(text, sizeof text, NULL, 0), "()");
    for (size_t size = 1; size < 20; size++) {
        char *tight = guard_allocate(size, GUARD_AFTER, 'x');
        mha__shape_text(tight, size, (size_t[]){2, 128, 768}, 3);
        assert_true(strlen(tight) < size);
        assert_memory_equal(tight, "(2, 128, 768)", strlen(tight));
        guard_release(tight);
    }
}

/* ---------------------------------------------------------------- memory */

static void text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xa9"
                               "\xe6\x97\xa5"
                               "\xf0\x9f\x98\x80"
                               "b"; /* one, two, three, four bytes and one */
    static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    for (size_t length = 0; length <= strlen(text); length++) {
        assert_int_equal(mha__text_whole(text, length), whole[length]);
        assert_int_equal(mha__text_precision(text, length), (int)whole[length]);
        char *tight = guard_allocate(length + 1, GUARD_AFTER, 'x');
        mha__text_print(tight, length + 1, "%s", text);
        assert_int_equal(strlen(tight), whole[length]);
        assert_memory_equal(tight, text, whole[length]);
        guard_release(tight);
    }
    assert_int_equal(mha__text_precision(text, 99), (int)strlen(text));
    assert_int_equal(mha__text_precision("\xc3", 99), 1);            /* not cut here */
    assert_int_equal(mha__text_whole("\x80\x80\x80\x80\x80", 5), 5); /* no UTF-8 at all */
    assert_int_equal(mha__text_whole("\x80", 1), 1);
    mha_error error;
    for (size_t before = 0; before < 3; before++) { /* the fields of an error */
        char longer[600] = "";
        memset(longer, 'x', before);
        while (strlen(longer) < 500)
            strcat(longer, "\xe6\x97\xa5");
        mha__fail(&error, MHA_INVALID, longer, "%s", longer);
        const size_t name = strlen(error.name), message = strlen(error.message);
        assert_int_equal(mha__text_whole(error.name, name), name);
        assert_int_equal(mha__text_whole(error.message, message), message);
        assert_true(name + 3 >= sizeof error.name - 1 && message + 3 >= sizeof error.message - 1);
    }
}

static void blocks_are_zero_and_aligned_whatever_gives_them(void **state)
{
    (void)state;
    failing counter = {0};
    const mha_allocator allocators[] = {mha__allocator_default(), failing_allocator(&counter)};
    static const size_t sizes[] = {1, 63, 64, 65, 4096, ((size_t)1 << 20) - 1, (size_t)1 << 20, ((size_t)1 << 20) + 1};
    for (size_t a = 0; a < 2; a++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int again = 0; again < 2; again++) {
                unsigned char *block = mha__allocate(&allocators[a], sizes[i]);
                assert_non_null(block);
                assert_int_equal((uintptr_t)block % MHA_ALIGNMENT, 0);
                for (size_t k = 0; k < sizes[i]; k++)
                    assert_int_equal(block[k], 0);
                memset(block, 0xff, sizes[i]);
                mha__release(&allocators[a], block, sizes[i]);
            }
    assert_int_equal(counter.live_blocks, 0);
    assert_int_equal(counter.bugs, 0);
    assert_null(mha__allocate(&allocators[1], 0));
    assert_null(mha__allocate(&allocators[1], SIZE_MAX));
    assert_null(mha__allocate(&allocators[0], (size_t)PTRDIFF_MAX));
    mha__release(&allocators[1], NULL, 10);
    assert_int_equal(counter.bugs, 0);
    mha_allocator chosen = mha__allocator_or_default(NULL), half = allocators[1];
    assert_true(chosen.allocate == allocators[0].allocate);
    half.release = NULL;
    chosen = mha__allocator_or_default(&half);
    assert_true(chosen.allocate == allocators[0].allocate);
    chosen = mha__allocator_or_default(&allocators[1]);
    assert_true(chosen.context == &counter);
}

static void an_arena_uses_its_memory_again(void **state)
{
    (void)state;
    failing f = {0};
    mha__arena arena = {.allocator = failing_allocator(&f)};
    char *const zeros = mha__arena_take(&arena, 100), *const rows = mha__arena_scratch(&arena, 200);
    memset(zeros, 1, 100);
    memset(rows, 1, 200);
    mha__arena_recycle(&arena);
    const size_t calls = f.calls;
    assert_ptr_equal(mha__arena_scratch(&arena, 200), rows);
    assert_ptr_equal(mha__arena_take(&arena, 100), zeros);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(zeros[i], 0);
    assert_int_equal(f.calls, calls);
    assert_non_null(mha__arena_take(&arena, 100)); /* no spare one is left */
    mha__arena_recycle(&arena);
    assert_non_null(mha__arena_take(&arena, 300)); /* no spare one has this size */
    mha__arena_recycle(&arena);
    assert_int_equal(f.live_blocks, 1); /* spare for two uses: released */
    f.fail_at = f.calls + 1;
    assert_null(mha__arena_scratch(&arena, 400));
    assert_null(mha__arena_take(&arena, SIZE_MAX));
    mha__arena_free(&arena);
    assert_int_equal(f.live_blocks, 0);
    assert_int_equal(f.bugs, 0);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    size_t r = 3;
    assert_true(mha__mul((size_t)1 << 31, 2, &r));
    assert_int_equal(r, (size_t)1 << 32);
    assert_false(mha__mul(SIZE_MAX, 2, &r));
    assert_true(mha__add(SIZE_MAX - 1, 1, &r));
    assert_false(mha__add(SIZE_MAX, 1, &r));
}

/* Elements of every plain type at every address. */
static void data_may_lie_at_any_address(void **state)
{
    (void)state;
    for (mha_dtype dtype = MHA_F32; dtype < MHA_DTYPE_COUNT; dtype++) {
        size_t bytes, one;
        if (mha_dtype_bytes(dtype, 1, &one, NULL) != MHA_OK || dtype == MHA_C64)
            continue;
        for (size_t off = 1; off < 8; off++) {
            unsigned char memory[64], aligned[24] = {0};
            const size_t n = 3;
            double numbers[3] = {1, 2, 3};
            const mha_view there = mha_view_of(memory + off, dtype, 1, &n), from = mha_view_of(numbers, MHA_F64, 1, &n);
            const mha_view here = mha_view_of(aligned, dtype, 1, &n), to = mha_view_of(memory + off, MHA_F64, 1, &n);
            assert_int_equal(mha_dtype_bytes(dtype, n, &bytes, NULL), MHA_OK);
            memset(aligned, 1, sizeof aligned);
            const bool stored = mha_view_copy(&here, &from, NULL) == MHA_OK; /* into whole numbers nothing is */
            assert_int_equal(mha_view_copy(&there, stored ? &from : &here, NULL), MHA_OK);
            assert_memory_equal(memory + off, aligned, bytes);
            for (size_t i = 0; i < n; i++)
                assert_true(mha_view_get(&there, &i) == mha_view_get(&here, &i));
            if (stored)
                mha_view_set(&there, &(size_t){1}, 3);
            assert_true(!stored || mha_view_get(&there, &(size_t){1}) == 3);
            assert_int_equal(mha_view_copy(&to, &from, NULL), MHA_OK);
            assert_memory_equal(memory + off, numbers, sizeof numbers);
        }
    }
}

/* Whether addresses are left for a region: there are none under valgrind. */
static bool a_region_fits(void)
{
    const size_t bytes = (size_t)1 << 36;
    void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return region != MAP_FAILED && munmap(region, bytes) == 0;
}

/* Large blocks follow each other in a region; what no region takes comes from the default allocator, zeroed, too. */
static void counted_blocks_lie_in_regions(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 65536, 100000, (size_t)1 << 30, (size_t)35 << 30, (size_t)20 << 30};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    for (size_t full = 0; full < 2; full++) {
        mha__regions regions = {.count = full ? MHA_REGIONS : 0};
        for (size_t i = 0; i < regions.count; i++)
            regions.region[i] = (char *)&regions; /* on the stack, above what is allocated */
        const bool fits = !full && a_region_fits();
        const mha_allocator allocator = mha__regions_allocator(&regions);
        char *blocks[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = mha__allocate(&allocator, sizes[i]);
            if (!blocks[i] && sizes[i] > (size_t)1 << 30)
                continue; /* there are systems of fewer addresses */
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % MHA_ALIGNMENT, 0);
            for (size_t at = 0; at < 100; at++)
                assert_int_equal(blocks[i][at] | blocks[i][sizes[i] - 1 - at], 0);
            blocks[i][0] = blocks[i][sizes[i] - 1] = 1;
        }
        assert_true(!fits || blocks[2] == blocks[1] + 65536);
        assert_int_equal(regions.live, fits ? 4 : 0);
        for (size_t i = 0; i < COUNT; i++)
            mha__release(&allocator, blocks[i], sizes[i]);
        assert_int_equal(regions.count, full ? MHA_REGIONS : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_blocks_lie_in_regions),
        cmocka_unit_test(every_status_has_words),
        cmocka_unit_test(an_error_is_one_line_whatever_it_is_given),
        cmocka_unit_test(harmless_text_has_no_controls),
        cmocka_unit_test(an_error_reads_as_name_message_and_byte),
        cmocka_unit_test(a_shape_is_expected_in_words),
        cmocka_unit_test(an_index_steps_in_row_major_order),
        cmocka_unit_test(names_are_found_and_looked_up),
        cmocka_unit_test(the_clock_goes_forward_in_its_units),
        cmocka_unit_test(two_axes_are_exchanged),
        cmocka_unit_test(axes_and_elements_outside_a_view_give_none),
        cmocka_unit_test(every_dtype_is_sized_by_its_block),
        cmocka_unit_test(every_f16_and_bf16_pattern_means_what_it_should),
        cmocka_unit_test(eight_bits_round_to_nearest_even),
        cmocka_unit_test(rounding_to_short_floats_is_to_nearest_even),
        cmocka_unit_test(double_to_short_float_rounds_once),
        cmocka_unit_test(get_reads_every_plain_type),
        cmocka_unit_test(set_rounds_to_nearest_even),
        cmocka_unit_test(views_count_their_elements_without_overflow),
        cmocka_unit_test(a_rank_that_is_none_is_not_believed),
        cmocka_unit_test(contiguity_looks_at_strides_only_where_they_matter),
        cmocka_unit_test(a_slice_is_the_same_memory),
        cmocka_unit_test(copy_converts_between_strided_views),
        cmocka_unit_test(copy_refuses_what_it_cannot_do),
        cmocka_unit_test(layouts_are_views_of_the_same_four_indices),
        cmocka_unit_test(shapes_in_words_are_cut_not_overrun),
        cmocka_unit_test(text_is_cut_between_characters),
        cmocka_unit_test(blocks_are_zero_and_aligned_whatever_gives_them),
        cmocka_unit_test(an_arena_uses_its_memory_again),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(data_may_lie_at_any_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
