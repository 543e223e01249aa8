/* Attention layers of tiny models of many families, from a config.json and a checkpoint alone: every path computes what
 * transformers did (layers, recorded in float64 by peers/layers_peer.py). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/call.h"
#include "support/recorded.h"
#include "support/built.h"
#include "support/scratch.h"
#include "support/unit.h"

#define FOLDER "tests/layers"

enum { MOST_FAMILIES = 200 };

/* ---------------------------------------------------------------- files */

/* The record of a layer under a word, in memory that the caller frees; data NULL: nothing. */
static mha_view recorded(const mha_file *file, const char *prefix, const char *word, mha_dtype dtype)
{
    char name[400];
    snprintf(name, sizeof name, "recorded/%s/%s", prefix, word);
    return recorded_view(file, name, dtype);
}

/* ---------------------------------------------------------------- a layer on one path */

/* The segments of the windows of shifted images. */
static mha_view windows_of(const mha_model_facts *facts, const size_t *shape)
{
    mha_error error;
    const mha_view segments = mha_view_of(calloc(shape[0] * shape[1], 8), MHA_I64, 2, shape);
    const size_t of_image = facts->image_height * facts->image_width;
    for (size_t at = 0; at < shape[0] * shape[1]; at += of_image)
        assert_ok(mha_window_segments(facts->image_height, facts->image_width, facts->semantics.added.bias.height,
                                      facts->shift, (int64_t *)segments.data + at, &error),
                  error);
    return segments;
}

/* Whether the layer has latents, which can be absorbed, too. */
static bool run_layer(const mha_file *file, const char *config, const char *prefix, mha_path path, bool absorbed)
{
    const mha_dtype dtype = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    mha_error error;
    mha_model_facts facts;
    mha_layer *layer;
    mha_params *table;
    double bounds[MHA_STAGE_COUNT] = {0};
    mha_view query = recorded(file, prefix, "query", dtype), key = recorded(file, prefix, "key", dtype),
             padding = recorded(file, prefix, "padding", MHA_BOOL), output = recorded(file, prefix, "output", MHA_F64),
             weights = recorded(file, prefix, "weights", MHA_F64), segments = {0};
    mha_view made = recorded(file, prefix, "output", MHA_F64), kept = recorded(file, prefix, "weights", MHA_F64);
    memset(made.data, 0, 8 * made.shape[0] * made.shape[1] * made.shape[2]);

    assert_ok(mha_model_read_layer(config, prefix, &facts, &error), error);
    const size_t T_q = query.shape[1], T_k = key.data ? key.shape[1] : T_q;
    assert_ok(mha_model_extend_context(&facts, T_q > T_k ? T_q : T_k, &error), error);
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    const mha_load_options options = {.layer = prefix, .facts = &facts, .has_dtype = true, .dtype = dtype};
    assert_ok(mha_model_load_layer(file, &options, table, &layer, NULL, &error), error);

    mha_keep keep = {.stage = MHA_STAGE_WEIGHTS, .view = kept};
    mha_call call = {.query = query, .key = key, .output = made, .path = path, .keep = &keep, .absorbed = absorbed,
                     .keep_count = kept.data != NULL, .semantics = mha_model_semantics(&facts)};
    if (facts.shift > 0)
        segments = windows_of(&facts, query.shape);
    call.semantics.visible.pattern.q_segments = segments;
    if (padding.data)
        call.semantics.visible.key_padding = (mha_mask){MHA_MASK_HIDES, padding};
    if (path != MHA_PATH_EXACT)
        assert_ok(mha_error_bound(layer, &call, 0x1p-24, bounds, MHA_STAGE_COUNT, &error), error);
    run_call(layer, &call);
    recorded_meets("output", prefix, &made, &output, bounds[MHA_STAGE_OUTPUT]);
    if (kept.data)
        recorded_meets("weights", prefix, &kept, &weights, bounds[MHA_STAGE_WEIGHTS]);

    const bool latents = mha_layer_config(layer)->kv_rank > 0;
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    mha_view *views[] = {&query, &key, &padding, &output, &weights, &made, &kept, &segments};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        free(views[i]->data);
    return latents;
}

/* A configuration that gives the layer one weight more, or one less, than the file is refused by that weight's name. */
static void other_weights_are_refused(const mha_file *file, const char *config, const char *prefix)
{
    static const mha_weight may_be[] = {
        MHA_B_Q,    MHA_B_K,    MHA_B_V,         MHA_B_O,         MHA_BIAS_K, MHA_BIAS_V, MHA_SINKS,
        MHA_Q_NORM, MHA_K_NORM, MHA_Q_NORM_BIAS, MHA_K_NORM_BIAS, MHA_B_QA,   MHA_B_KVA};
    mha_error error;
    mha_model_facts facts;
    mha_params *table;
    mha_layer *layer = NULL;
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    assert_ok(mha_model_read_layer(config, prefix, &facts, &error), error);
    assert_true(facts.weights >> MHA_W_Q & 1);
    for (size_t i = 0; i < sizeof may_be / sizeof *may_be; i++) {
        const uint64_t bit = UINT64_C(1) << may_be[i];
        const mha_load_options options = {.layer = prefix, .facts = &facts};
        const bool there = facts.weights & bit;
        if (facts.made & bit) /* of others, which test_made_weights takes away */
            continue;
        facts.weights ^= bit;
        assert_refused(mha_model_load_layer(file, &options, table, &layer, NULL, &error),
                       there ? MHA_INVALID : MHA_NOT_FOUND, error, "", mha_weight_at(may_be[i])->name, "configuration");
        facts.weights ^= bit;
    }
    mha_params_destroy(table);
}

/* ---------------------------------------------------------------- all of them */

/* Runs every layer of a file (MHA_PATH_AUTO: only tries to load it) and returns their number; `model_type` is what the
 * configuration says. */
static size_t run_file(const char *name, mha_path path, char model_type[48])
{
    char full[300], prefix[256];
    mha_error error;
    mha_file *file;
    mha_model_facts facts;
    size_t count = 0;
    snprintf(full, sizeof full, FOLDER "/%s", name);
    assert_ok(mha_file_open(full, &file, &error), error);
    const char *text = mha_file_metadata(file, "config");
    assert_non_null(text);
    const char *config = config_file(text);
    assert_ok(mha_model_read_config(config, &facts, &error), error);
    snprintf(model_type, 48, "%s", facts.model_type);
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(file, i)); i++) {
        int end = 0;
        if (sscanf(tensor->name, "recorded/%255[^/]/output%n", prefix, &end) == 1 && end > 0) {
            if (path == MHA_PATH_AUTO)
                other_weights_are_refused(file, config, prefix);
            else if (run_layer(file, config, prefix, path, false))
                run_layer(file, config, prefix, path, true);
            count++;
        }
    }
    mha_file_close(file);
    return count;
}

static void every_layer_is_what_its_owner_computes(mha_path path)
{
    static char families[MOST_FAMILIES][48];
    size_t layers = 0, known = 0;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char model_type[48];
        size_t at = 0;
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        const size_t count = run_file(entry->d_name, path, model_type);
        assert_true(count > 0);
        layers += count;
        while (at < known && strcmp(families[at], model_type) != 0)
            at++;
        if (at == known && known < MOST_FAMILIES)
            memcpy(families[known++], model_type, sizeof model_type);
    }
    closedir(folder);
    assert_true(known >= 40); /* none was lost on the way */
    assert_true(layers > known);
}

static void on_the_exact_path(void **state)
{
    (void)state;
    every_layer_is_what_its_owner_computes(MHA_PATH_EXACT);
}

static void on_the_blas_path(void **state)
{
    (void)state;
    every_layer_is_what_its_owner_computes(MHA_PATH_BLAS);
}

static void on_the_fast_path(void **state)
{
    (void)state;
    every_layer_is_what_its_owner_computes(MHA_PATH_FAST);
}

static void from_the_weights_that_are_stated(void **state)
{
    (void)state;
    every_layer_is_what_its_owner_computes(MHA_PATH_AUTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_the_weights_that_are_stated),
        cmocka_unit_test(on_the_exact_path),
        cmocka_unit_test(on_the_blas_path),
        cmocka_unit_test(on_the_fast_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
