/* Models that tests make of presets, configurations and descriptions. */
#include "support/built.h"

#include <stdio.h>
#include <string.h>

#include "support/scratch.h"
#include "support/unit.h"

mha_status build(built *b, mha_model_spec spec)
{
    *b = (built){0};
    assert_int_equal(mha_params_create(NULL, &b->table, NULL), MHA_OK);
    const mha_status status = mha_model_create(&spec, b->table, &b->model, &b->error);
    assert_true(status == MHA_OK || mha_params_count(b->table) == 0);
    return status;
}

mha_status build_text(built *b, const char *config, const char *class_name, const char *description)
{
    char path[600];
    snprintf(path, sizeof path, "%s", config_file(config));
    const char *made = description ? scratch_write("description.json", description, strlen(description)) : NULL;
    return build(b, (mha_model_spec){.config = path, .class_name = class_name, .architecture = made});
}

void unbuild(built *b)
{
    mha_model_destroy(b->model);
    assert_int_equal(mha_params_count(b->table), 0);
    mha_params_destroy(b->table);
}

const char *config_file(const char *text)
{
    return scratch_write("config.json", text, strlen(text));
}
