/* log_n_scale: queries beyond the training length N grow with log(p + 1) / log(N), on every path. */
#include <math.h>
#include <string.h>

#include "mha/mha.h"
#include "support/unit.h"

enum { T = 12, H = 2, D = 4, N = 5, PAGE = 4 };

static float q[T * H * D], k[T * H * D], v[T * H * D];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < T * H * D; i++) {
        q[i] = mha__random_unit(1, 0, i) - 0.5f;
        k[i] = mha__random_unit(1, 1, i) - 0.5f;
        v[i] = mha__random_unit(1, 2, i) - 0.5f;
    }
    return 0;
}

/* The table that the setting was published with: entry i is for the i-th token, counted from 1. */
static double factor(int64_t position)
{
    const int64_t i = position + 1;
    return i > N ? log((double)i) / log((double)N) : 1;
}

/* The heads of plain softmax attention in double. `at`: the positions of the queries in the scale and the rotation. */
static void expect(const mha_semantics *s, const int64_t *at, double *heads)
{
    for (size_t h = 0; h < H; h++)
        for (size_t i = 0; i < T; i++) {
            double weight[T], sum = 0, *o = heads + (i * H + h) * D;
            for (size_t j = 0; j < T; j++) {
                double score = 0;
                for (size_t c = 0; c < D; c += 2) {
                    const float *x = q + (i * H + h) * D + c, *y = k + (j * H + h) * D + c;
                    const double angle = s->qkv.rope.kind ? (double)(at[i] - at[j]) * pow(10000, -(double)c / D) : 0;
                    score += cos(angle) * ((double)x[0] * y[0] + (double)x[1] * y[1]) +
                             sin(angle) * ((double)x[0] * y[1] - (double)x[1] * y[0]);
                }
                weight[j] = s->visible.causal && j > i ? 0 : exp(factor(at[i]) * score / sqrt(D));
                sum += weight[j];
            }
            for (size_t c = 0; c < D; c++) {
                o[c] = 0;
                for (size_t j = 0; j < T; j++)
                    o[c] += weight[j] / sum * v[(j * H + h) * D + c];
            }
        }
}

static void check(const float *found, const double *expected, size_t from, size_t count)
{
    for (size_t e = from * H * D; e < (from + count) * H * D; e++)
        assert_true(fabs(found[e - from * H * D] - expected[e]) < 2e-6);
}

static mha_call call_of(const mha_semantics *s, mha_path path, size_t from, size_t count, float *heads)
{
    return (mha_call){.query = mha_heads(q + from * H * D, 1, count, H, D),
                      .key = mha_heads(k + from * H * D, 1, count, H, D),
                      .value = mha_heads(v + from * H * D, 1, count, H, D),
                      .output = mha_heads(heads, 1, count, H, D),
                      .semantics = *s,
                      .path = path,
                      .threads = 1};
}

/* Positions from the row, from an offset, and given: the scale is that of the position, not of the row. */
static void every_path_scales_by_the_position(void **state)
{
    (void)state;
    for (mha_path path = MHA_PATH_AUTO; path < MHA_PATH_COUNT; path++)
        for (int way = 0; way < 4; way++) {
            mha_semantics s = {.visible.causal = way < 2, .qkv.query_scale.log_n = N};
            int64_t at[T];
            mha_error error;
            double expected[T * H * D];
            float heads[T * H * D];
            if (way % 2 || way == 2)
                s.qkv.rope.kind = MHA_ROPE_INTERLEAVED;
            for (int64_t i = 0; i < T; i++)
                at[i] = way == 2 ? (i * 7) % T : i + (way == 3 ? 3 : 0);
            if (way == 2)
                s.qkv.rope.q_positions = mha_view_of(at, MHA_I64, 2, (size_t[]){1, T});
            if (way == 3) /* a scale without a rotation follows the offset */
                s.qkv.rope.kind = MHA_ROPE_NONE, s.place.offset = 3;
            const mha_call call = call_of(&s, path, 0, T, heads);
            assert_ok(mha_run(NULL, &call, &error), error);
            expect(&s, at, expected);
            check(heads, expected, 0, T);
        }
}

/* Token by token with a cache, and the last one with its keys in pages: the same numbers. */
static void decoding_scales_as_a_prompt_does(void **state)
{
    (void)state;
    mha_semantics s = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_INTERLEAVED, .qkv.query_scale.log_n = N};
    const int64_t at[T] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    double expected[T * H * D];
    expect(&s, at, expected);
    for (mha_path path = MHA_PATH_AUTO; path < MHA_PATH_COUNT; path++) {
        const mha_cache_spec spec = {1, H, D, D, T, 0, .dtype = MHA_F32};
        mha_cache *cache;
        mha_error error;
        float heads[H * D];
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        for (size_t i = 0; i < T; i++) {
            mha_call call = call_of(&s, path, i, 1, heads);
            call.cache = cache;
            assert_ok(mha_run(NULL, &call, &error), error);
            check(heads, expected, i, 1);
        }
        mha_cache_destroy(cache);
    }
    static float pool[2][T * H * D];
    static int32_t table[T / PAGE] = {0, 1, 2};
    const int64_t lengths[] = {T};
    memcpy(pool[0], k, sizeof k);
    memcpy(pool[1], v, sizeof v);
    s.qkv.rope = (mha_rope){.kind = MHA_ROPE_NONE}; /* keys of pages are rotated by who writes them */
    s.place.has_offset = true, s.place.offset = T - 1;
    expect(&s, at, expected);
    for (mha_path path = MHA_PATH_AUTO; path < MHA_PATH_COUNT; path++) {
        mha_error error;
        float heads[H * D];
        mha_call call = call_of(&s, path, T - 1, 1, heads);
        call.key = call.value = (mha_view){0};
        call.pages = (mha_pages){.keys = mha_view_of(pool[0], MHA_F32, 4, (size_t[]){T / PAGE, PAGE, H, D}),
                                 .values = mha_view_of(pool[1], MHA_F32, 4, (size_t[]){T / PAGE, PAGE, H, D}),
                                 .table = table,
                                 .columns = T / PAGE,
                                 .lengths = lengths};
        assert_ok(mha_run(NULL, &call, &error), error);
        check(heads, expected, T - 1, 1);
    }
}

/* Both scales of a position multiply; the last positions of the type do not wrap. */
static void both_scales_multiply(void **state)
{
    (void)state;
    static float x[D] = {1, 1, 1, 1}, rotated[D];
    static double still[D / 2];
    static int64_t at[1];
    static const int64_t positions[] = {INT64_MIN, -1, 0, N - 1, N, 99, INT64_MAX};
    for (mha_path path = MHA_PATH_BLAS; path <= MHA_PATH_EXACT; path++)
        for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
            mha_error error;
            at[0] = positions[i];
            mha_keep keep = {.stage = MHA_STAGE_Q_ROT, .view = mha_rows(rotated, 1, 1, D)};
            const mha_view one = mha_heads(x, 1, 1, 1, D);
            mha_call call = {.query = one, .key = one, .value = one, .keep = &keep, .keep_count = 1, .path = path};
            call.semantics.qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT,
                                             .frequencies = mha_view_of(still, MHA_F64, 1, (size_t[]){D / 2}),
                                             .q_positions = mha_view_of(at, MHA_I64, 2, (size_t[]){1, 1})};
            call.semantics.qkv.query_scale = (mha_query_scale){.growth = 0.5, .every = 1, .log_n = N};
            assert_ok(mha_run(NULL, &call, &error), error);
            const double p = fmax(0, (double)at[0]), grown = p + 1 > N ? log(p + 1) / log(N) : 1;
            assert_true(fabs(rotated[0] / ((1 + 0.5 * log(1 + p)) * grown) - 1) < 1e-6);
        }
}

static void a_length_of_1_is_refused(void **state)
{
    (void)state;
    static const int64_t wrong[] = {1, -1};
    float heads[T * H * D];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const mha_semantics s = {.qkv.query_scale.log_n = wrong[i]};
        const mha_call call = call_of(&s, MHA_PATH_AUTO, 0, T, heads);
        mha_error error;
        assert_refused(mha_run(NULL, &call, &error), MHA_INVALID, error, "log_n_scale");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_scales_by_the_position),
        cmocka_unit_test(decoding_scales_as_a_prompt_does),
        cmocka_unit_test(both_scales_multiply),
        cmocka_unit_test(a_length_of_1_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
