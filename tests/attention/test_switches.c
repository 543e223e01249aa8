/* Numbers of the semantics and the switches they go with: what is meant without its switch, and what is refused. */
#include <math.h>
#include <string.h>

#include "mha/mha.h"
#include "support/call.h"
#include "support/unit.h"

enum { T = 5, D = 4, MOST = T * T };

static float q[T * D], k[T * D], v[T * D];
static const uint8_t keeps[T] = {1, 1, 0, 1, 1};

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < T * D; i++) {
        q[i] = mha__random_unit(1, 0, i) - 0.5f;
        k[i] = mha__random_unit(1, 1, i) - 0.5f;
        v[i] = mha__random_unit(1, 2, i) - 0.5f;
    }
    return 0;
}

static mha_call call_of(const mha_semantics *s, mha_path path, double *masked)
{
    static mha_keep keep;
    keep = (mha_keep){.stage = MHA_STAGE_MASKED, .view = mha_view_of(masked, MHA_F64, 4, (size_t[]){1, 1, T, T})};
    return (mha_call){.query = mha_heads(q, 1, T, 1, D),
                      .key = mha_heads(k, 1, T, 1, D),
                      .value = mha_heads(v, 1, T, 1, D),
                      .semantics = *s,
                      .path = path,
                      .threads = 1,
                      .keep = &keep,
                      .keep_count = 1};
}

static mha_view unwritten(const void *data, mha_dtype dtype, int rank, const size_t *shape)
{
    return mha_view_of((void *)(uintptr_t)data, dtype, rank, shape);
}

/* ---------------------------------------------------------------- numbers that speak for themselves */

/* The scale, the offset and the fill of each of 27 calls: absent, with a switch and 0, or a number; a number with and
 * without its switch is the same number, and 0 with its switch is another thing than none. */
static void a_number_other_than_0_needs_no_switch(void **state)
{
    (void)state;
    static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (int way = 0; way < 27; way++) {
            const int scale = way % 3, offset = way / 3 % 3, fill = way / 9;
            mha_semantics s = {.softmax = {.has_scale = scale == 1, .scale = scale == 2 ? 0.25 : 0},
                               .place = {.has_offset = offset == 1, .offset = offset == 2 ? 2 : 0},
                               .visible = {.causal = true,
                                           .has_padding_fill = fill == 1,
                                           .padding_fill = fill == 2 ? -3 : 0}};
            s.visible.key_padding = (mha_mask){MHA_MASK_KEEPS, unwritten(keeps, MHA_BOOL, 2, (size_t[]){1, T})};
            double masked[MOST], again[MOST];
            mha_call call = call_of(&s, paths[p], masked);
            run_call(NULL, &call);
            s.softmax.has_scale |= scale == 2, s.place.has_offset |= offset == 2,
                s.visible.has_padding_fill |= fill == 2;
            call = call_of(&s, paths[p], again);
            run_call(NULL, &call);
            assert_memory_equal(masked, again, sizeof masked);
            for (size_t i = 0; i < T; i++)
                for (size_t j = 0; j < T; j++) {
                    double sum = 0, expected;
                    for (size_t c = 0; c < D; c++)
                        sum += (double)q[i * D + c] * k[j * D + c];
                    expected = sum * (scale == 0 ? 0.5 : scale == 1 ? 0 : 0.25);
                    if (!keeps[j])
                        expected = fill == 0 ? -INFINITY : expected + (fill == 2 ? -3 : 0);
                    if (j > i + (offset == 2 ? 2 : 0))
                        expected = -INFINITY;
                    if (!(masked[i * T + j] == expected || fabs(masked[i * T + j] - expected) < 1e-6))
                        fail_msg("%s, way %d: score (%zu, %zu) is %g, expected %g", mha_path_name(paths[p]), way, i, j,
                                 masked[i * T + j], expected);
                }
        }
}

/* With rows in a cache no offset is their number, and an offset of 0 that is meant is 0. */
static void an_offset_of_0_is_meant_with_its_switch(void **state)
{
    (void)state;
    mha_error error;
    for (int way = 0; way < 3; way++) {
        mha_cache *cache;
        const mha_cache_spec spec = {.batch = 1, .kv_heads = 1, .d_k = D, .d_v = D, .capacity = 2 * T};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        const mha_view past = unwritten(k, MHA_F32, 4, (size_t[]){1, 1, T, D});
        assert_ok(mha_cache_load(cache, &past, &past, &error), error);
        double masked[2 * MOST];
        const mha_semantics s = {
            .visible.causal = true, .place = {.has_offset = way == 1, .offset = way == 2 ? 1 : 0}};
        mha_call call = call_of(&s, MHA_PATH_BLAS, masked);
        call.keep->view = mha_view_of(masked, MHA_F64, 4, (size_t[]){1, 1, T, 2 * T});
        call.cache = cache;
        run_call(NULL, &call);
        const size_t offset = way == 0 ? T : way == 1 ? 0 : 1;
        for (size_t i = 0; i < T; i++)
            for (size_t j = 0; j < 2 * T; j++)
                assert_int_equal(masked[i * 2 * T + j] == -INFINITY, j > i + offset);
        mha_cache_destroy(cache);
    }
}

/* ---------------------------------------------------------------- what belongs together */

/* A fill needs something to fill, with its switch or without. */
static void a_fill_needs_a_padding_mask(void **state)
{
    (void)state;
    mha_error error;
    mha_plan plan;
    double masked[MOST];
    for (int has = 0; has < 2; has++) {
        const mha_semantics s = {.visible = {.has_padding_fill = has, .padding_fill = has ? 0 : -5}};
        const mha_call call = call_of(&s, MHA_PATH_BLAS, masked);
        assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_UNSUPPORTED, error, "padding_fill");
    }
    const mha_semantics s = {.softmax.scale = NAN};
    const mha_call call = call_of(&s, MHA_PATH_BLAS, masked);
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "scale");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_other_than_0_needs_no_switch),
        cmocka_unit_test(an_offset_of_0_is_meant_with_its_switch),
        cmocka_unit_test(a_fill_needs_a_padding_mask),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
