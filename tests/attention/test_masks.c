/* Masks that hide stretches of keys, whose hidden ends the fast path takes off: the bits of the same mask with gaps
 * between its numbers, which it reads one by one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/unit.h"

enum { B = 2, HEADS = 4, SHARED = 2, T = 23, S = 1100, WIDTH = 16, LONGEST = B * HEADS * T * S, SPREAD = 2 };

static float q[B * T * HEADS * WIDTH], k[B * S * SHARED * WIDTH], v[B * S * SHARED * WIDTH];
static uint8_t flags[LONGEST], apart[LONGEST * SPREAD], padding[B * S], padding_apart[B * S * SPREAD];
static float terms[LONGEST], terms_apart[LONGEST * SPREAD];

/* Whether row `row` of a mask, whatever it stands for, hides key j. */
static bool hides(int shape, size_t row, size_t j)
{
    switch (shape) {
    case 0: return row / 5 != j / 200;                      /* documents */
    case 1: return j > row * 48;                            /* causal */
    case 2: return j > 10 && (j + 40 < row * 30 || j > row * 30); /* a window, and the first keys */
    case 3: return (row / 3 + j / 64) % 7 != 0;             /* blocks */
    case 4: return row % 4 == 1 || (row * 131 + j * 7919) % 5 == 0; /* rows that see nothing, and single keys */
    default: return false;
    }
}

static void fill(mha_view *x, uint64_t stream)
{
    mha_random_fill(x, 17, stream, -1.5f, 1.5f);
}

typedef struct result {
    float out[B * T * HEADS * WIDTH], lse[B * HEADS * T];
} result;

static void run(const mha_semantics *semantics, int threads, result *found)
{
    mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, B, T, HEADS, WIDTH),
                     .key = mha_view_heads(k, MHA_F32, MHA_BTHD, B, S, SHARED, WIDTH),
                     .value = mha_view_heads(v, MHA_F32, MHA_BTHD, B, S, SHARED, WIDTH),
                     .semantics = *semantics,
                     .path = MHA_PATH_FAST,
                     .threads = threads};
    mha_keep lse = {.stage = MHA_STAGE_LSE,
                    .view = mha_view_of(found->lse, MHA_F32, 3, (size_t[]){B, HEADS, T})};
    call.output = mha_view_rows(found->out, MHA_F32, MHA_BTE, B, T, HEADS * WIDTH);
    call.keep = &lse, call.keep_count = 1;
    mha_error error;
    assert_ok(mha_run(NULL, &call, &error), error);
}

/* The view with gaps of SPREAD between the numbers of a row. */
static mha_view spread(void *data, const mha_view *close)
{
    mha_view wide = *close;
    wide.data = data;
    for (int i = 0; i < wide.rank; i++)
        wide.stride[i] *= SPREAD;
    return wide;
}

static void trimmed_masks_have_the_bits_of_masks_read_key_by_key(void **state)
{
    (void)state;
    static const size_t extents[][4] = {
        {1, 1, T, S}, {B, HEADS, T, S}, {B, 1, 1, S}, {1, HEADS, 1, S}, {B, 1, T, S - 90}};
    static const mha_mask_kind kinds[] = {MHA_MASK_KEEPS, MHA_MASK_HIDES, MHA_MASK_ADDITIVE};
    static const double slopes[HEADS] = {0.1, 0.05, 0.02, 0.01};
    static result close, wide;
    mha_view views[] = {mha_view_of(q, MHA_F32, 1, (size_t[]){sizeof q / sizeof *q}),
                        mha_view_of(k, MHA_F32, 1, (size_t[]){sizeof k / sizeof *k}),
                        mha_view_of(v, MHA_F32, 1, (size_t[]){sizeof v / sizeof *v})};
    for (uint64_t i = 0; i < 3; i++)
        fill(&views[i], i);
    for (int turn = 0; turn < 90; turn++) {
        const size_t *extent = extents[turn % 5], n = extent[0] * extent[1] * extent[2] * extent[3];
        const mha_mask_kind kind = kinds[turn / 5 % 3];
        const bool additive = kind == MHA_MASK_ADDITIVE, pads = turn % 4 == 1, fills = turn % 8 == 5;
        const int shape = turn / 15;
        for (size_t e = 0; e < n; e++) {
            const bool hidden = hides(shape, e / extent[3] % 31, e % extent[3]);
            flags[e] = apart[e * SPREAD] = hidden == (kind == MHA_MASK_HIDES) ? (uint8_t)(1 + e % 200) : 0;
            terms[e] = terms_apart[e * SPREAD] = hidden ? -INFINITY : turn % 2 ? 0.0f : (float)(e % 3) - 1.0f;
        }
        for (size_t e = 0; e < B * S; e++)
            padding[e] = padding_apart[e * SPREAD] = e % S < 20 + e / S * 300 || e % S > 1000 || e % S == 700;
        mha_semantics s = {.visible.causal = turn % 7 == 3,
                           .place.has_offset = turn % 7 == 3,
                           .place.offset = turn % 7 == 3 ? 900 : 0,
                           .added.alibi_slopes = turn % 11 == 6 ? slopes : NULL,
                           .visible.has_padding_fill = fills,
                           .visible.padding_fill = fills ? -3 : 0,
                           .softmax.zero_row = turn % 13 == 2};
        s.visible.mask.kind = kind;
        s.visible.mask.values =
            additive ? mha_view_of(terms, MHA_F32, 4, extent) : mha_view_of(flags, MHA_U8, 4, extent);
        if (pads)
            s.visible.key_padding = (mha_mask){MHA_MASK_HIDES, mha_view_of(padding, MHA_BOOL, 2, (size_t[]){B, S})};
        run(&s, 1 + turn % 2, &close);
        s.visible.mask.values = spread(additive ? (void *)terms_apart : apart, &s.visible.mask.values);
        if (pads)
            s.visible.key_padding.values = spread(padding_apart, &s.visible.key_padding.values);
        run(&s, 1, &wide);
        if (memcmp(&close, &wide, sizeof close) != 0)
            fail_msg("turn %d: other bits", turn);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trimmed_masks_have_the_bits_of_masks_read_key_by_key),
    };
    return cmocka_run_group_tests_name("masks", tests, NULL, NULL);
}
