/* Attention layers of GGUF files of many architectures, from the file alone: every path computes what transformers did
 * (gguf, recorded by peers/gguf_peer.py), in layers with a window and in those without. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/call.h"
#include "support/recorded.h"
#include "support/unit.h"

#define FOLDER "tests/gguf"

enum { MOST_ARCHITECTURES = 100 };

static void run_layer(const mha_file *file, const char *prefix, mha_path path)
{
    const mha_dtype dtype = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    char name[300];
    mha_error error;
    mha_model_facts facts;
    mha_params *table;
    mha_layer *layer;
    double bounds[MHA_STAGE_COUNT] = {0};
    snprintf(name, sizeof name, "recorded.%.200s.query", prefix);
    mha_view query = recorded_view(file, name, dtype);
    snprintf(name, sizeof name, "recorded.%.200s.output", prefix);
    mha_view expected = recorded_view(file, name, MHA_F64), made = recorded_view(file, name, MHA_F64);
    assert_non_null(query.data);
    memset(made.data, 0, 8 * made.shape[0] * made.shape[1] * made.shape[2]);

    assert_ok(mha_model_read_metadata(file, prefix, &facts, &error), error);
    if (!facts.has_semantics || *facts.not_run)
        fail_msg("%s: %s", facts.model_type, facts.not_run);
    assert_string_equal(facts.model_type, mha_file_metadata(file, "general.architecture"));
    assert_ok(mha_model_extend_context(&facts, query.shape[1], &error), error);
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    const mha_load_options options = {.layer = prefix, .facts = &facts, .has_dtype = true, .dtype = dtype};
    assert_ok(mha_model_load_layer(file, &options, table, &layer, NULL, &error), error);
    mha_call call = {.query = query, .output = made, .path = path, .semantics = mha_model_semantics(&facts)};
    if (path != MHA_PATH_EXACT)
        assert_ok(mha_error_bound(layer, &call, 0x1p-24, bounds, MHA_STAGE_COUNT, &error), error);
    run_call(layer, &call);
    recorded_meets("output", prefix, &made, &expected, bounds[MHA_STAGE_OUTPUT]);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    free(query.data);
    free(expected.data);
    free(made.data);
}

static size_t run_file(const char *name, mha_path path, char architecture[48])
{
    enum { LAYERS = 8 };
    char full[300];
    mha_error error;
    mha_file *file;
    mha_found_layer layers[LAYERS];
    snprintf(full, sizeof full, FOLDER "/%s", name);
    assert_ok(mha_file_open(full, &file, &error), error);
    snprintf(architecture, 48, "%s", mha_file_metadata(file, "general.architecture"));
    const size_t count = mha_model_find_layers(file, layers, LAYERS);
    for (size_t i = 0; i < count; i++)
        run_layer(file, layers[i].prefix, path);
    mha_file_close(file);
    return count;
}

static void every_architecture_is_what_its_family_computes(mha_path path)
{
    static char architectures[MOST_ARCHITECTURES][48];
    size_t known = 0;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char architecture[48];
        size_t at = 0;
        if (!strstr(entry->d_name, ".gguf"))
            continue;
        assert_int_equal(run_file(entry->d_name, path, architecture), 2);
        while (at < known && strcmp(architectures[at], architecture) != 0)
            at++;
        if (at == known && known < MOST_ARCHITECTURES)
            memcpy(architectures[known++], architecture, sizeof architecture);
    }
    closedir(folder);
    assert_int_equal(known, 35); /* none was lost on the way */
}

static void on_the_exact_path(void **state)
{
    (void)state;
    every_architecture_is_what_its_family_computes(MHA_PATH_EXACT);
}

static void on_the_blas_path(void **state)
{
    (void)state;
    every_architecture_is_what_its_family_computes(MHA_PATH_BLAS);
}

static void on_the_fast_path(void **state)
{
    (void)state;
    every_architecture_is_what_its_family_computes(MHA_PATH_FAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_exact_path),
        cmocka_unit_test(on_the_blas_path),
        cmocka_unit_test(on_the_fast_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
