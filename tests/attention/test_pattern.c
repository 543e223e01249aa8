/* Patterns: the same bits as a mask of all queries and keys that says the same, over several segments of keys, and
 * blocks of keys that no query sees are not read on the fast path. */
#include "support/unit.h"

#include <string.h>
#include <sys/mman.h>

#include "mha/mha.h"

enum { B = 2, H = 4, H_KV = 2, T = 19, S = 2570, D = 8, LISTED = 25, ROWS = 5, COLUMNS = 300,
       DOWN = (T - 1) / ROWS + 1, ACROSS = (S - 1) / COLUMNS + 1 };

static float q[B * T * H * D], k[B * S * H_KV * D], v[B * S * H_KV * D], out[2][B * T * H * D], lse[2][B * H * T],
    sinks[H];
static int64_t queries[B * T], keys[B * S], lists[B * T * LISTED];
static unsigned char padding[B * T], blocks[H * DOWN * ACROSS], mask[B * H * T * S];

static uint64_t draw(uint64_t stream, uint64_t index)
{
    return mha__random_bits(18, stream, index);
}

enum { SEGMENTS = 1, ANY_ORDER = 2, LISTS = 4, BLOCKS = 8, PADDING = 16, KINDS = 32 };

/* Whether query i of a head sees key j. */
static bool sees(int parts, size_t b, size_t h, size_t i, size_t j)
{
    bool listed = !(parts & LISTS);
    for (size_t l = 0; l < LISTED && !listed; l++)
        listed = lists[(b * T + i) * LISTED + l] == (int64_t)j;
    return listed && !(parts & SEGMENTS && queries[b * T + i] != keys[b * S + j]) &&
           !(parts & BLOCKS && !blocks[(h * DOWN + i / ROWS) * ACROSS + j / COLUMNS]) &&
           !(parts & PADDING && padding[b * T + i]);
}

static mha_pattern pattern_of(int parts)
{
    mha_pattern p = {0};
    if (parts & SEGMENTS) {
        p.q_segments = mha_view_of(queries, MHA_I64, 2, (size_t[]){B, T});
        p.k_segments = mha_view_of(keys, MHA_I64, 2, (size_t[]){B, S});
    }
    if (parts & LISTS)
        p.key_lists = mha_view_of(lists, MHA_I64, 4, (size_t[]){B, 1, T, LISTED});
    if (parts & PADDING)
        p.query_padding = (mha_mask){MHA_MASK_HIDES, mha_view_of(padding, MHA_BOOL, 2, (size_t[]){B, T})};
    if (parts & BLOCKS) {
        p.blocks = (mha_mask){MHA_MASK_KEEPS, mha_view_of(blocks, MHA_U8, 3, (size_t[]){H, DOWN, ACROSS})};
        p.block_queries = ROWS, p.block_keys = COLUMNS;
    }
    return p;
}

static void fill(int parts)
{
    for (size_t i = 0; i < B * T; i++) {
        queries[i] = (int64_t)(draw(0, i) % 4) - 1;
        padding[i] = draw(1, i) % 5 == 0;
        for (size_t l = 0; l < LISTED; l++)
            lists[i * LISTED + l] = (int64_t)(draw(2, i * LISTED + l) % (S + 40)) - 20;
    }
    for (size_t j = 0; j < B * S; j++) /* documents one after the other, the first key of row 1 in the last of them */
        keys[j] = parts & ANY_ORDER ? (int64_t)(draw(3, j / 7) % 3) : (int64_t)(j % S / 900) - (j < S);
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = draw(4, i) % 3 == 0;
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < T; i++)
                for (size_t j = 0; j < S; j++)
                    mask[((b * H + h) * T + i) * S + j] = sees(parts, b, h, i, j);
}

static void run(mha_path path, const mha_semantics *semantics, size_t to)
{
    mha_error error;
    mha_view weights[MHA_WEIGHT_COUNT] = {0};
    weights[MHA_SINKS] = mha_view_of(sinks, MHA_F32, 1, (size_t[]){H});
    mha_keep keep = {.stage = MHA_STAGE_LSE, .view = mha_view_of(lse[to], MHA_F32, 3, (size_t[]){B, H, T})};
    const mha_call call = {.query = mha_heads(q, B, T, H, D),
                           .key = mha_heads(k, B, S, H_KV, D),
                           .value = mha_heads(v, B, S, H_KV, D),
                           .output = mha_heads(out[to], B, T, H, D),
                           .semantics = *semantics,
                           .weights = semantics->place.keys_only ? NULL : weights,
                           .weight_count = MHA_WEIGHT_COUNT,
                           .keep = &keep,
                           .keep_count = 1,
                           .path = path,
                           .threads = 2};
    assert_ok(mha_run(NULL, &call, &error), error);
}

static void a_pattern_has_the_bits_of_a_mask(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        q[i] = (float)(int64_t)draw(5, i) * 0x1p-62f;
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        k[i] = (float)(int64_t)draw(6, i) * 0x1p-63f, v[i] = (float)(int64_t)draw(7, i) * 0x1p-63f;
    for (int parts = 0; parts < KINDS; parts++) {
        if (parts & ANY_ORDER && !(parts & SEGMENTS))
            continue;
        const mha_semantics one = {
            .visible.causal = parts % 3 == 0, .place.offset = S - T, .visible.pattern = pattern_of(parts)};
        mha_semantics other = one;
        fill(parts);
        other.visible.pattern = (mha_pattern){.query_padding = one.visible.pattern.query_padding};
        other.visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(mask, MHA_BOOL, 4, (size_t[]){B, H, T, S})};
        for (int path = 0; path < 2; path++) {
            run(path ? MHA_PATH_BLAS : MHA_PATH_FAST, &one, 0);
            run(path ? MHA_PATH_BLAS : MHA_PATH_FAST, &other, 1);
            if (memcmp(out[0], out[1], sizeof out[0]) != 0 || memcmp(lse[0], lse[1], sizeof lse[0]) != 0)
                fail_msg("parts %d on %s", parts, path ? "blas" : "fast");
        }
    }
}

/* Keys 512 to 2047, which nobody sees, lie in memory that cannot be read. */
static void unseen_blocks_are_not_read(void **state)
{
    (void)state;
    enum { N = 2560, FROM = 512, TO = 2048, WIDE = 64 };
    const size_t row = WIDE * sizeof(float), bytes = N * row;
    static float wide[2][T * WIDE];
    static int64_t own[N], lists_of_two[T * 2];
    static unsigned char shown[N / 512] = {1, 0, 0, 0, 1};
    char *memory[2];
    mha_error error;
    for (int i = 0; i < 2; i++) {
        memory[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory[i], MAP_FAILED);
        for (size_t j = 0; j < N * WIDE; j++)
            ((float *)(void *)memory[i])[j] = (float)(int64_t)draw(8 + (uint64_t)i, j) * 0x1p-63f;
        assert_int_equal(mprotect(memory[i] + FROM * row, (TO - FROM) * row, PROT_NONE), 0);
    }
    for (size_t j = 0; j < N; j++)
        own[j] = j >= FROM && j < TO ? 2 : j % 2;
    for (size_t i = 0; i < T; i++) {
        queries[i] = (int64_t)i % 2;
        lists_of_two[2 * i] = (int64_t)i, lists_of_two[2 * i + 1] = N - 1 - (int64_t)i;
    }
    const mha_pattern patterns[] = {
        {.q_segments = mha_view_of(queries, MHA_I64, 1, (size_t[]){T}),
         .k_segments = mha_view_of(own, MHA_I64, 1, (size_t[]){N})},
        {.key_lists = mha_view_of(lists_of_two, MHA_I64, 2, (size_t[]){T, 2})},
        {.blocks = {MHA_MASK_KEEPS, mha_view_of(shown, MHA_BOOL, 2, (size_t[]){1, N / 512})},
         .block_queries = T,
         .block_keys = 512},
    };
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
        for (int threads = 1; threads <= 2; threads++) {
            const mha_call call = {.query = mha_heads(wide[0], 1, T, 1, WIDE),
                                   .key = mha_heads((float *)(void *)memory[0], 1, N, 1, WIDE),
                                   .value = mha_heads((float *)(void *)memory[1], 1, N, 1, WIDE),
                                   .output = mha_heads(wide[1], 1, T, 1, WIDE),
                                   .semantics.visible.pattern = patterns[p],
                                   .path = MHA_PATH_FAST,
                                   .threads = threads};
            assert_ok(mha_run(NULL, &call, &error), error);
            assert_true(wide[1][0] != 0 && wide[1][0] - wide[1][0] == 0);
        }
    for (int i = 0; i < 2; i++)
        munmap(memory[i], bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_has_the_bits_of_a_mask),
        cmocka_unit_test(unseen_blocks_are_not_read),
    };
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
