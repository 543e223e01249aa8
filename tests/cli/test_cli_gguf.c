/* Layers of GGUF files on the command line: their metadata say what they mean, or the run is refused. */
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mha/mha.h"
#include "support/gguf.h"
#include "support/program.h"

/* A layer of width 4, two heads, under the name of an architecture. */
static const char *layer_of(const char *architecture, const char *also)
{
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                        "blk.0.attn_output.weight"};
    gguf_plan p = {.count = 0};
    char key[80];
    gguf_text(&p, "general.architecture", architecture);
    snprintf(key, sizeof key, "%s.attention.head_count", architecture);
    gguf_count(&p, key, 2);
    snprintf(key, sizeof key, "%s.embedding_length", architecture);
    gguf_count(&p, key, 4);
    if (also)
        gguf_real(&p, also, 0.5);
    for (size_t i = 0; i < 4; i++) {
        float *values = malloc(16 * sizeof *values);
        for (size_t j = 0; j < 16; j++)
            values[j] = (float)((j * 7 + i * 5) % 11) - 5;
        gguf_add(&p, names[i], 2, (const size_t[]){4, 4}, values);
    }
    mha_file *file = gguf_open(&p);
    const char *path = scratch_path("made.gguf");
    mha_file_close(file);
    gguf_free(&p);
    return path;
}

static void settles(const char *path, int code, const char *option, const char *value)
{
    program_result r = value ? RUN("forward", "--weights", path, "--seq", "3", option, value)
                             : RUN("forward", "--weights", path, "--seq", "3", option);
    if (r.code != code)
        fail_msg("%s %s: %d, %s", option, value ? value : "", r.code, r.err);
    program_free(&r);
}

static void an_unknown_architecture_is_refused_unless_its_meaning_is_stated(void **state)
{
    (void)state;
    const char *path = layer_of("novel", NULL),
               *config = "{\"model_type\": \"llama\", \"hidden_size\": 4, \"num_attention_heads\": 2}",
               *other = "{\"model_type\": \"newer\", \"hidden_size\": 4, \"num_attention_heads\": 2}";
    assert_program_refuses(RUN("forward", "--weights", path, "--seq", "3"), 2,
                           "--weights*expected a model that is described, found 'novel' in its metadata*--config*"
                           "--causal");
    assert_program_refuses(RUN("show", "--weights", path, "--seq", "3"), 2, "found 'novel' in its metadata");
    settles(path, 0, "--causal", NULL);
    settles(path, 0, "--rope", "half");
    settles(path, 0, "--window", "2,0");
    settles(path, 0, "--scale", "0.5");
    settles(path, 0, "--softcap", "5");
    settles(path, 0, "--alibi", NULL);
    settles(path, 0, "--lengths", "2");
    settles(path, 0, "--sigmoid", "0");
    settles(path, 2, "--threads", "1");
    settles(path, 0, "--config", scratch_write("known.json", config, strlen(config)));
    settles(path, 2, "--config", scratch_write("other.json", other, strlen(other)));
    program_result r = RUN("params", "--weights", path); /* counting needs no meaning */
    assert_int_equal(r.code, 0);
    program_free(&r);
}

static void metadata_that_are_not_described_are_refused_by_name(void **state)
{
    (void)state;
    const char *path = layer_of("llama", "llama.attention.temperature_scale");
    assert_program_refuses(RUN("forward", "--weights", path, "--seq", "3", "--causal"), 2,
                           "attention.temperature_scale: it is not known what this means for the attention of 'llama'");
}

static void a_layer_is_what_its_metadata_say(void **state)
{
    (void)state;
    static const struct {
        const char *name, *layer;
        bool causal;
        const char *meaning, *caveat;
    } rows[] = {
        {"llama", "blk.0", true, "rope interleaved, rope_dim 8, rope_base 10000, causal", NULL},
        {"gemma2", "blk.0", true, "rope_base 10000, causal, window_left 2, window_right -1, scale 0.25, softcap 2",
         NULL},
        {"gemma2", "blk.1", true, "rope_base 10000, causal, scale 0.25, softcap 2", NULL},
        {"starcoder2", "blk.0", true, "rope_base 10000, causal", "converters leave StarCoder2's window"},
        {"modern-bert", "blk.3", false, "rope half_split, rope_dim 8, rope_base 100000", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[60];
        snprintf(path, sizeof path, "tests/gguf/%s.gguf", rows[i].name);
        json_t *root = RUN_JSON(0, "forward", "--weights", path, "--layer", rows[i].layer, "--seq", "5", "--json"),
               *config = json_object_get(root, "config"), *caveat = json_object_get(config, "caveat");
        assert_int_equal(json_is_true(json_object_get(config, "causal")), rows[i].causal);
        assert_string_equal(json_string_value(json_object_get(config, "model")), rows[i].name);
        assert_true(rows[i].caveat ? strstr(json_string_value(caveat), rows[i].caveat) != NULL : json_is_null(caveat));
        json_decref(root);
        program_result r = RUN("forward", "--weights", path, "--layer", rows[i].layer, "--seq", "5");
        if (!text_says(r.out, rows[i].meaning) || !strstr(r.out, "as its metadata says"))
            fail_msg("%s %s: %s", rows[i].name, rows[i].layer, r.out);
        program_free(&r);
    }
}

/* A config.json beside the file, or one that is asked for, knows nothing of what a converter did to the weights. */
static void a_configuration_is_fitted_to_the_weights(void **state)
{
    (void)state;
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
                                 "\"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"rms_norm_eps\": 1e-5}";
    char file[300];
    size_t size[3];
    unsigned char *copy = scratch_read("tests/gguf/llama.gguf", size), *output[3];
    assert_int_equal(mkdir(scratch_path("both"), 0700), 0);
    snprintf(file, sizeof file, "%s", scratch_write("both/llama.gguf", copy, *size));
    const char *beside = scratch_write("both/config.json", config, strlen(config));
    free(copy);
    for (size_t i = 0; i < 3; i++) {
        const char *path = i == 0 ? "tests/gguf/llama.gguf" : file, *to = scratch_path("y.npy");
        program_result r = i == 2 ? RUN("forward", "--weights", path, "--layer", "blk.1", "--seq", "5", "--path",
                                        "exact", "--output", to, "--config", beside)
                                  : RUN("forward", "--weights", path, "--layer", "blk.1", "--seq", "5", "--path",
                                        "exact", "--output", to);
        assert_int_equal(r.code, 0);
        program_free(&r);
        output[i] = scratch_read(to, &size[i]);
    }
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(size[i], size[0]);
        assert_memory_equal(output[i], output[0], size[0]);
    }
    for (size_t i = 0; i < 3; i++)
        free(output[i]);
}

/* Writes the layers of a recorded file in F32, under the names and as they are in a public checkpoint. */
static const char *as_published(const char *name, bool folded)
{
    static const char *const ours[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight",
                                       "attn_q_norm.weight", "attn_k_norm.weight"},
                      *const theirs[] = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"};
    const char *path = scratch_path("published.safetensors");
    char from[60], called[100];
    float *values[16];
    size_t count = 0;
    mha_error error;
    mha_file *file;
    mha_writer *writer;
    snprintf(from, sizeof from, "tests/gguf/%s.gguf", name);
    assert_ok(mha_file_open(from, &file, &error), error);
    assert_ok(mha_writer_create(path, &writer, &error), error);
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(file, i)); i++)
        for (size_t w = 0; w < 6; w++)
            if (strncmp(tensor->name, "blk.", 4) == 0 && strcmp(tensor->name + 6, ours[w]) == 0) {
                values[count] = malloc(tensor->elements * sizeof **values);
                const mha_view view = mha_view_of(values[count], MHA_F32, tensor->rank, tensor->shape);
                assert_ok(mha_file_read(file, tensor, &view, &error), error);
                for (size_t k = 0; w >= 4 && folded && k < tensor->elements; k++)
                    values[count][k] -= 1;
                snprintf(called, sizeof called, "model.layers.%c.self_attn.%s.weight", tensor->name[4], theirs[w]);
                assert_ok(mha_writer_add(writer, called, &view, &error), error);
                count++;
            }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    mha_file_close(file);
    while (count > 0)
        free(values[--count]);
    return path;
}

/* Weights that were changed by the converter or not, beside those of the public checkpoint, which says nothing. */
static void layers_are_compared_as_they_mean(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool folded;
    } rows[] = {{"qwen3", false}, {"gemma3", true}, {"cohere2", false}, {"gemma2", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[60];
        snprintf(path, sizeof path, "tests/gguf/%s.gguf", rows[i].name);
        program_result r = RUN("compare", path, as_published(rows[i].name, rows[i].folded), "--json");
        json_t *root = json_loads(r.out, 0, NULL), *layers = json_object_get(root, "layer_outputs"), *layer;
        size_t k;
        if (json_array_size(layers) != 2)
            fail_msg("%s: %s%s", rows[i].name, r.out, r.err);
        json_array_foreach(layers, k, layer)
        {
            const double off = json_number_value(json_object_get(layer, "relative"));
            if (!(off <= 1e-6)) /* of outputs in F32, where the least that a wrong meaning changes is 1e-2 */
                fail_msg("%s, layer %zu: off by %g", rows[i].name, k, off);
        }
        json_decref(root);
        program_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_architecture_is_refused_unless_its_meaning_is_stated),
        cmocka_unit_test(metadata_that_are_not_described_are_refused_by_name),
        cmocka_unit_test(a_layer_is_what_its_metadata_say),
        cmocka_unit_test(a_configuration_is_fitted_to_the_weights),
        cmocka_unit_test(layers_are_compared_as_they_mean),
    };
    return cmocka_run_group_tests_name("GGUF on the command line", tests, NULL, NULL);
}
