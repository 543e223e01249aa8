/* What mha_explain refuses, and the difference that every value of a layer would make. */
#include "support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/gguf.h"
#include "support/scratch.h"

static void what_is_no_configuration_is_refused(void **state)
{
    (void)state;
    mha_config_explanation *untouched = NULL;
    mha_error error;
    const char *text = scratch_write("note.json", "{}", 2), *gguf = scratch_write("cut.gguf", "GGUF", 4);
    assert_refused(mha_explain("no such preset", NULL, &untouched, &error), MHA_NOT_FOUND, error, "preset list");
    assert_refused(mha_explain("./none", NULL, &untouched, &error), MHA_NOT_FOUND, error, "expected a file");
    assert_refused(mha_explain(scratch_write("a.json", "[", 1), NULL, &untouched, &error), MHA_FORMAT, error, "");
    assert_refused(mha_explain(text, NULL, &untouched, &error), MHA_UNSUPPORTED, error, "a model type");
    assert_refused(mha_explain("gpt2", text, &untouched, &error), MHA_UNSUPPORTED, error, "a model type");
    assert_refused(mha_explain(gguf, NULL, &untouched, &error), MHA_FORMAT, error, "");
    assert_null(untouched);
    mha_config_explanation_destroy(NULL);
}

/* The factor of Laguna's converter, which stores 64 where llama.cpp means 1, and head counts of each layer. */
static void metadata_with_another_meaning_are_refused(void **state)
{
    (void)state;
    static const size_t heads[] = {0, 0, 8}, equal[] = {2, 2, 2};
    for (int wrong = 0; wrong < 3; wrong++) {
        gguf_plan plan = {0};
        mha_config_explanation *explanation = NULL;
        mha_error error;
        gguf_text(&plan, "general.architecture", "llama");
        gguf_count(&plan, "llama.block_count", 3);
        gguf_count(&plan, "llama.embedding_length", 64);
        gguf_count(&plan, "llama.attention.head_count", 8);
        gguf_list(&plan, "llama.attention.head_count_kv", wrong == 1 ? heads : equal, 3, false);
        if (wrong == 2)
            gguf_real(&plan, "llama.rope.scaling.yarn_ext_factor", 64);
        mha_file *file = gguf_open(&plan);
        const mha_status status = mha_explain(mha_file_path(file), NULL, &explanation, &error);
        if (wrong == 0)
            assert_ok(status, error);
        else
            assert_refused(status, wrong == 1 ? MHA_INVALID : MHA_UNSUPPORTED, error,
                           wrong == 1 ? "found a list" : "expected 1, found 64");
        mha_config_explanation_destroy(explanation);
        mha_file_close(file);
        gguf_free(&plan);
    }
}

static json_t *report_of(const char *source, const char *against)
{
    mha_config_explanation *explanation = NULL;
    mha_error error;
    assert_ok(mha_explain(source, against, &explanation, &error), error);
    json_t *report = json_loads(mha_config_explanation_json(explanation), 0, NULL);
    assert_non_null(report);
    mha_config_explanation_destroy(explanation);
    return report;
}

static const size_t lfm2_heads[16] = {0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0};

/* Headers that readers of caches got wrong (gguf-parser-go, issues 28, 31 and 32): head counts by layer, read as their
 * first, and a window of 128 that every second layer has, though no pattern says so. A period of full attention is not
 * described, and refused by the architecture's name. */
static void caches_of_headers_are_those_of_their_layers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t layers, d_model, heads, d_k, tokens, bytes; /* of a cache in F16 */
    } rows[] = {{"lfm2", 16, 2048, 32, 64, 32768, (size_t)384 << 20},
                {"gpt-oss", 24, 2880, 64, 64, 131072, ((size_t)3 << 30) + ((size_t)3 << 20)},
                {"qwen35", 64, 5120, 24, 256, 262144, 0}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        gguf_plan plan = {0};
        mha_error error;
        char key[60];
        json_t *kind;
        size_t k, elements = 0;
#define KEY(end) (snprintf(key, sizeof key, "%s." end, rows[r].name), key)
        gguf_text(&plan, "general.architecture", rows[r].name);
        gguf_count(&plan, KEY("block_count"), rows[r].layers);
        gguf_count(&plan, KEY("embedding_length"), rows[r].d_model);
        gguf_count(&plan, KEY("attention.head_count"), rows[r].heads);
        gguf_count(&plan, KEY("attention.key_length"), rows[r].d_k);
        gguf_count(&plan, KEY("attention.sliding_window"), r == 1 ? 128 : 0);
        gguf_count(&plan, KEY("full_attention_interval"), 4);
        if (r == 0)
            gguf_list(&plan, KEY("attention.head_count_kv"), lfm2_heads, 16, false);
        else
            gguf_count(&plan, KEY("attention.head_count_kv"), 8);
#undef KEY
        mha_file *file = gguf_open(&plan);
        if (rows[r].bytes == 0) {
            mha_config_explanation *untouched = NULL;
            assert_refused(mha_explain(mha_file_path(file), NULL, &untouched, &error), MHA_UNSUPPORTED, error,
                           "found 'qwen35'");
        } else {
            json_t *report = report_of(mha_file_path(file), NULL);
            json_array_foreach(json_object_get(report, "kinds"), k, kind)
            {
                const json_t *kept = json_object_get(kind, "cached_rows");
                elements += json_array_size(json_object_get(kind, "layers")) *
                            (size_t)json_integer_value(json_object_get(kind, "cached_width")) *
                            (json_is_null(kept) ? rows[r].tokens : (size_t)json_integer_value(kept));
            }
            assert_int_equal(2 * elements, rows[r].bytes);
            json_decref(report);
        }
        mha_file_close(file);
        gguf_free(&plan);
    }
}

/* The values of every preset's layers are those of mha_model_layer_facts; a layer of each is in one kind. */
static void values_are_those_of_the_layers(void **state)
{
    (void)state;
    for (size_t p = 0; mha_preset_at(p, NULL); p += 4) {
        built b;
        json_t *report = report_of(mha_preset_at(p, NULL), NULL), *kind, *index, *row;
        size_t k, n, r, seen = 0;
        assert_int_equal(build(&b, (mha_model_spec){.preset = mha_preset_at(p, NULL)}), MHA_OK);
        json_array_foreach(json_object_get(report, "kinds"), k, kind)
            json_array_foreach(json_object_get(kind, "layers"), n, index)
            {
                const size_t i = (size_t)json_integer_value(index);
                const mha_semantics s = mha_model_semantics(mha_model_layer_facts(b.model, i));
                mha_model_layer layer;
                assert_true(mha_model_layer_at(b.model, i, &layer));
                seen++;
                json_array_foreach(json_object_get(kind, "values"), r, row)
                {
                    const char *name = json_string_value(json_object_get(row, "name"));
                    const json_t *value = json_object_get(row, "value");
                    const mha_setting *setting = mha_setting_find(name);
                    if (strcmp(name, "heads") == 0)
                        assert_int_equal(json_integer_value(value), layer.config.n_heads);
                    else if (strcmp(name, "kv_heads") == 0)
                        assert_int_equal(json_integer_value(value), layer.config.kv_heads);
                    else if (strcmp(name, "d_k") == 0)
                        assert_int_equal(json_integer_value(value), layer.config.d_k);
                    else if (strcmp(name, "d_v") == 0)
                        assert_int_equal(json_integer_value(value), layer.config.d_v);
                    else if (setting && json_is_number(value) && mha_setting_given(setting, &s))
                        assert_true(json_number_value(value) == mha_setting_number(setting, &s));
                }
            }
        assert_int_equal(seen, mha_model_layer_count(b.model));
        json_decref(report);
        unbuild(&b);
    }
}

/* The reason of a key without effect names another key, or the rotation, that rules it out. Every other key that is
 * read decides something, or concerns a topic. */
static void unused_keys_are_ruled_out(void **state)
{
    (void)state;
    static const char *const reasons[] = {" instead", " is ", "rules it out", "the rotation", "no rotation"};
    size_t unused = 0;
    for (size_t p = 0; mha_preset_at(p, NULL); p++) {
        json_t *report = report_of(mha_preset_at(p, NULL), NULL), *row;
        size_t k;
        json_array_foreach(json_object_get(report, "keys"), k, row)
        {
            const char *effect = json_string_value(json_object_get(row, "effect")),
                       *reason = json_string_value(json_object_get(row, "reason"));
            bool named = strcmp(effect, "none") != 0;
            assert_true(reason || (strcmp(effect, "none") != 0 && strcmp(effect, "other") != 0));
            for (size_t i = 0; !named && i < sizeof reasons / sizeof *reasons; i++)
                named = strstr(reason, reasons[i]) != NULL;
            unused += strcmp(effect, "none") == 0;
            assert_true(named);
        }
        json_decref(report);
    }
    assert_true(unused > 0);
}

/* A table of biases that no layer can have is a reason not to compute it, not a fault of the report. */
static void a_table_that_is_too_large_is_told(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\": \"beit\", \"image_size\": 224, \"patch_size\": 1, "
                               "\"use_relative_position_bias\": true}";
    json_t *report = report_of(config_file(text), NULL);
    const json_t *kind = json_array_get(json_object_get(report, "kinds"), 0);
    assert_non_null(strstr(json_string_value(json_object_get(kind, "not_run")), "more than 65536 rows"));
    json_decref(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_configuration_is_refused),
        cmocka_unit_test(metadata_with_another_meaning_are_refused),
        cmocka_unit_test(caches_of_headers_are_those_of_their_layers),
        cmocka_unit_test(values_are_those_of_the_layers),
        cmocka_unit_test(unused_keys_are_ruled_out),
        cmocka_unit_test(a_table_that_is_too_large_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
