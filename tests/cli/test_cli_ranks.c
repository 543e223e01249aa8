/* mha params --ranks of every preset: parameters add up, and replicas are those that the library counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/program.h"
#include "support/unit.h"

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static bool is_refused(const json_t *row)
{
    return json_is_string(json_object_get(row, "refused"));
}

/* Elements that the ranks store again, from the whole layers and mha_split_copies. */
static json_int_t replicas(const mha_model *model, mha_split_scheme scheme, size_t ranks)
{
    json_int_t sum = 0;
    mha_model_layer described;
    for (size_t i = 0; mha_model_layer_at(model, i, &described); i++) {
        mha_split split = {scheme, ranks, described.config, 1, 9, 9, MHA_F32, 0, 0, false};
        mha_params *params;
        mha_layer *layer;
        mha_error error;
        assert_ok(mha_split_check(&split, &error), error);
        assert_int_equal(mha_params_create(NULL, &params, NULL), MHA_OK);
        assert_ok(mha_layer_create(&described.config, params, NULL, &layer, &error), error);
        for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
            const mha_tensor *tensor = mha_layer_weight(layer, w);
            if (tensor)
                sum += (json_int_t)(mha_tensor_info_of(tensor).elements * (mha_split_copies(&split, w) - 1));
        }
        mha_layer_destroy(layer);
        mha_params_destroy(params);
    }
    return sum;
}

static void check_ranks(const mha_model *model, json_int_t all, const char *preset, size_t ranks)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", ranks);
    json_t *root = RUN_JSON(0, "params", "--preset", preset, "--ranks", text, "--seq", "300", "--json"), *row;
    const json_int_t attention = number(root, "attention_parameters"), many = (json_int_t)ranks;
    size_t i, taken = 0;
    assert_int_equal(number(root, "parameters"), all);
    assert_true(attention <= all && attention > 0);
    json_array_foreach(json_object_get(root, "schemes"), i, row)
    {
        mha_split_scheme scheme;
        assert_true(mha_split_scheme_find(json_string_value(json_object_get(row, "scheme")), &scheme));
        if (is_refused(row))
            continue;
        const json_int_t mine = number(row, "attention_parameters"),
                         stored = number(row, "stored_attention_parameters");
        taken++;
        assert_int_equal(number(row, "parameters"), all - attention + mine);
        assert_int_equal(stored - attention, replicas(model, scheme, ranks));
        assert_true(mine <= attention && mine * many >= stored && real(row, "balance") >= 1);
        if (ranks == 1) {
            assert_int_equal(mine, attention);
            assert_int_equal(number(row, "sent_bytes"), 0);
        }
    }
    assert_true(taken >= (ranks == 1 ? 4 : 2)); /* ring and zigzag take any number */
    json_decref(root);
}

/* A large model is made once for all numbers of ranks. */
static void check_preset(const char *preset, const size_t *ranks, size_t count)
{
    mha_params *params;
    mha_model *model;
    mha_error error;
    const mha_model_spec spec = {.preset = preset};
    assert_int_equal(mha_params_create(NULL, &params, NULL), MHA_OK);
    assert_ok(mha_model_create(&spec, params, &model, &error), error);
    const json_int_t all = (json_int_t)mha_params_totals(params, NULL).parameters;
    for (size_t i = 0; i < count; i++)
        check_ranks(model, all, preset, ranks[i]);
    mha_model_destroy(model);
    mha_params_destroy(params);
}

static void test_every_preset(void **state)
{
    (void)state;
    static const size_t ranks[] = {2, 8, 7, 65536};
    for (size_t i = 0; mha_preset_at(i, NULL); i++)
        check_preset(mha_preset_at(i, NULL), (const size_t[]){1, ranks[i % 4]}, 2);
    check_preset("gpt2", (const size_t[]){65536}, 1);
    check_preset("llama-2-70b", (const size_t[]){16}, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_preset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
