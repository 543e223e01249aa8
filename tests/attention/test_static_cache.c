/* Cross attention with a static cache: keys and values computed once, by a call without queries; later calls give
 * queries alone, and have the bits of calls with all keys. */
#include "support/layer.h"
#include "support/unit.h"

#include <string.h>

#include "mha/mha.h"

enum { B = 2, T = 3, S = 19, D_Q = 12, D_K = 10, H = 4, STEPS = 4 };

static float memory[B * S * D_K], x[STEPS][B * T * D_Q], with_keys[B * T * D_Q], without[B * T * D_Q];
static const int64_t lengths[B] = {S, 11};

static mha_semantics semantics_of(int kind)
{
    static const double slopes[H] = {0.5, 0.25, 0.125, 0.0625};
    mha_semantics s = {.visible.kv_lengths = kind & 1 ? lengths : NULL};
    if (kind & 2) /* which count from the position that is stated */
        s.place.has_offset = true, s.place.offset = 5, s.added.alibi_slopes = slopes, s.visible.causal = true;
    return s;
}

static void steps_without_keys_have_the_bits_of_steps_with_them(void **state)
{
    (void)state;
    static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_FAST};
    const mha_config config = {.d_model = D_Q, .n_heads = H, .kv_heads = 2, .d_k = 6, .d_v = 5, .d_kin = D_K,
                               .d_vin = D_K, .bias_k = true, .bias_v = true};
    mha_error error;
    mha_layer *layer = made_layer(config, 3);
    const mha_view keys = mha_rows(memory, B, S, D_K), none = mha_rows(NULL, B, 0, D_K);
    mha_random_fill(&keys, 3, 100, -1, 1);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        for (int kind = 0; kind < 4; kind++) {
            mha_cache *cache;
            const mha_cache_spec spec = {.batch = B, .kv_heads = 2, .d_k = 6, .d_v = 5, .capacity = S,
                                         .dtype = paths[i] == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
            assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
            const mha_call fill = {.query = mha_rows(NULL, B, 0, D_Q), .key = keys, .cache = cache, .path = paths[i]};
            assert_ok(mha_run(layer, &fill, &error), error);
            assert_int_equal(mha_cache_length(cache), S);
            for (int step = 0; step < STEPS; step++) {
                const mha_view query = mha_rows(x[step], B, T, D_Q);
                mha_random_fill(&query, 3, 200 + (uint64_t)step, -1, 1);
                mha_call call = {.query = query, .key = keys, .output = mha_rows(with_keys, B, T, D_Q),
                                 .semantics = semantics_of(kind), .path = paths[i]};
                assert_ok(mha_run(layer, &call, &error), error);
                call.key = none, call.cache = cache, call.output = mha_rows(without, B, T, D_Q);
                memset(without, 0x5A, sizeof without);
                assert_ok(mha_run(layer, &call, &error), error);
                assert_int_equal(mha_cache_length(cache), S);
                if (memcmp(with_keys, without, sizeof without) != 0)
                    fail_msg("step %d, kind %d on %s", step, kind, mha_path_name(paths[i]));
            }
            mha_cache_destroy(cache);
        }
    mha_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_without_keys_have_the_bits_of_steps_with_them)};
    return cmocka_run_group_tests_name("static_cache", tests, NULL, NULL);
}
