/* The list of presets: each name is in it, and what it says of a model is what the name stands for. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/program.h"
#include "support/unit.h"

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* The list has all presets; what it says of the first of each type of model is what the name stands for. */
static void presets_are_listed(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--preset", "list", "--json"), *presets = json_object_get(root, "presets"),
           *preset;
    program_result table = RUN("forward", "--preset", "list", "--wide"),
                   quiet = RUN("heads", "--preset", "list", "--quiet"),
                   csv = RUN("params", "--preset", "list", "--format", "csv");
    assert_int_equal(table.code, 0);
    assert_string_equal(table.err, "");
    assert_non_null(strstr(csv.out, "\ngpt2-large,GPT-2,GPT2LMHeadModel,1280,20,20,64,36,774030080\n"));
    size_t i, lines = 0;
    const char *type = "";
    json_array_foreach(presets, i, preset)
    {
        static const char *const same[] = {"model_type", "class", "d_model",         "heads",
                                           "kv_heads",   "d_k",   "attention_layers"};
        const char *name = json_string_value(json_object_get(preset, "name"));
        char start[64], path[120];
        snprintf(start, sizeof start, "\n  %s ", name);
        snprintf(path, sizeof path, "weights/presets/%s.json", name);
        assert_non_null(strstr(table.out, start));
        assert_int_equal(access(path, R_OK), 0);
        if (strcmp(type, json_string_value(json_object_get(preset, "model_type"))) == 0)
            continue;
        type = json_string_value(json_object_get(preset, "model_type"));
        json_t *whole = RUN_JSON(0, "params", "--preset", name, "--json", "--only", "embedding"),
               *model = json_object_get(whole, "model");
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            assert_true(json_equal(json_object_get(preset, same[k]), json_object_get(model, same[k])));
        assert_int_equal(number(preset, "total_parameters"), number(whole, "total_parameters"));
        json_decref(whole);
    }
    for (const char *line = table.out; *line; line += strcspn(line, "\n") + 1)
        lines++;
    assert_int_equal(lines, i + 1);
    assert_int_equal(quiet.code, 0);
    assert_string_equal(quiet.out, "");
    program_free(&quiet);
    program_free(&table);
    program_free(&csv);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(presets_are_listed)};
    return cmocka_run_group_tests_name("cli_models", tests, NULL, scratch_remove);
}
