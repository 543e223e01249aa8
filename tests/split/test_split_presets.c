/* Attention layers of every model that is built in, on 1 to 65,536 ranks: what the ranks store, without named replicas,
 * is the layer of one process, weight by weight. */
#include <string.h>

#include "mha/lab.h"
#include "support/unit.h"

static const size_t ranks_tried[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 32, 40, 64, 96, 128, 1000, 65536};

static uint64_t elements(const mha_config *config, mha_weight weight)
{
    size_t shape[2];
    const int axes = mha_config_weight_shape(config, weight, shape, NULL);
    return axes == 0 ? 0 : (uint64_t)shape[0] * (axes == 2 ? shape[1] : 1);
}

/* Elements of the weights in a table in which a layer is allocated. */
static uint64_t allocated(const mha_config *config, uint64_t by_weight[MHA_WEIGHT_COUNT])
{
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_layer_create(config, NULL, NULL, &layer, &error), error);
    const uint64_t all = mha_params_totals(mha_layer_params(layer), NULL).parameters;
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *tensor = mha_layer_weight(layer, w);
        by_weight[w] = tensor ? mha_tensor_info_of(tensor).elements : 0;
        assert_int_equal(by_weight[w], elements(config, w));
    }
    mha_layer_destroy(layer);
    return all;
}

/* Every weight of one split: on all ranks together, without replicas, in whole. */
static void check(const mha_split *s, const uint64_t whole[MHA_WEIGHT_COUNT], uint64_t one_process)
{
    uint64_t stored[MHA_WEIGHT_COUNT] = {0}, replicas = 0, all = 0;
    mha_config last = {0};
    uint64_t of_last[MHA_WEIGHT_COUNT] = {0};
    for (size_t rank = 0; rank < s->ranks; rank++) {
        const mha_share share = mha_split_share(s, rank);
        if (rank == 0 || memcmp(&share.config, &last, sizeof last) != 0) /* ranks 1 and on are alike */
            allocated(&share.config, of_last);
        memcpy(&last, &share.config, sizeof last);
        for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++)
            stored[w] += of_last[w];
    }
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const size_t copies = mha_split_copies(s, w);
        assert_int_equal(stored[w], whole[w] * copies);
        replicas += whole[w] * (copies - 1);
        all += stored[w];
    }
    assert_int_equal(all, one_process + replicas);
}

static void every_preset(void **state)
{
    (void)state;
    size_t splits = 0, latent = 0, presets = 0;
    for (const char *name; (name = mha_preset_at(presets, NULL)); presets++) {
        mha_params *params;
        mha_model *model;
        mha_model_layer layer;
        mha_error error;
        mha_config before = {0};
        const mha_model_spec spec = {.preset = name};
        assert_int_equal(mha_params_create(NULL, &params, NULL), MHA_OK);
        assert_ok(mha_model_create(&spec, params, &model, &error), error);
        for (size_t i = 0; mha_model_layer_at(model, i, &layer); i++) {
            uint64_t whole[MHA_WEIGHT_COUNT];
            if (i > 0 && memcmp(&before, &layer.config, sizeof before) == 0)
                continue;
            memcpy(&before, &layer.config, sizeof before);
            const uint64_t one = allocated(&layer.config, whole);
            for (int scheme = 0; scheme < MHA_SPLIT_COUNT; scheme++)
                for (size_t r = 0; r < sizeof ranks_tried / sizeof *ranks_tried; r++) {
                    mha_split s = {.scheme = (mha_split_scheme)scheme, .ranks = ranks_tried[r], .config = layer.config,
                                   .B = 1, .T_q = 1024, .T_k = 1024};
                    const mha_status status = mha_split_check(&s, &error);
                    if (scheme != MHA_SPLIT_TENSOR && scheme != MHA_SPLIT_ULYSSES)
                        assert_ok(status, error); /* rows can be shared by any number */
                    if (status != MHA_OK || (s.ranks > 128 && (presets + (size_t)scheme) % 16 != 0))
                        continue;
                    check(&s, whole, one);
                    splits++;
                    latent += layer.config.kv_rank > 0;
                }
        }
        mha_model_destroy(model);
        mha_params_destroy(params);
    }
    if (presets < 40 || splits < 20 * presets || latent < 20)
        fail_msg("%zu presets, %zu splits, %zu with latents", presets, splits, latent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_preset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
