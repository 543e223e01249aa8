/* Reads how a GPTQ checkpoint keeps its zero points, which the weights file alone does not always say. */
#include <string.h>

#include "formats/json.h"
#include "formats/quantised/sidecar.h"

enum { SIDECAR_LIMIT = 1 << 22, SIDECAR_PATH = 4096 };

/* Takes the format that an object names, if it does. */
static void take(const json_t *object, char format[MHA_SIDECAR_FORMAT])
{
    const json_t *named = json_object_get(object, "checkpoint_format");
    if (json_is_string(named))
        mha__text_print(format, MHA_SIDECAR_FORMAT, "%s", json_string_value(named));
}

static mha_status read_one(const mha_file *file, const char *path, char format[MHA_SIDECAR_FORMAT], mha_error *error)
{
    mha__source source;
    json_error_t why;
    char *text = NULL;
    size_t bytes = 0;
    bool starved = false;
    mha_status status = mha__source_open(&source, path, error);
    if (status != MHA_OK)
        return status == MHA_NOT_FOUND ? MHA_OK : status;
    status = mha__source_text(&source, &file->allocator, SIDECAR_LIMIT, "configuration", &text, &bytes, error);
    mha__source_close(&source);
    if (status != MHA_OK)
        return status;
    json_t *config = mha__json_load(text, bytes - 1, 0, &why, &starved);
    mha__release(&file->allocator, text, bytes);
    if (starved)
        return mha__file_no_memory(file, error);
    if (json_is_object(config)) {
        take(config, format);
        take(json_object_get(config, "quantization_config"), format);
    } else
        status = mha__fail(error, MHA_FORMAT, path,
                           "expected a JSON object, which may say in what format GPTQ's zero points are; found %s",
                           config ? "another value" : bytes > 1 ? "something else, or one that is cut off" : "nothing");
    json_decref(config);
    return status;
}

mha_status mha__sidecar_format(const mha_file *file, char format[MHA_SIDECAR_FORMAT], mha_error *error)
{
    static const char *const names[] = {"config.json", "quantize_config.json"};
    const char *said = mha_file_metadata(file, "checkpoint_format"), *path = mha__file_source(file, 0)->path;
    const char *slash = strrchr(path, '/');
    const int folder = slash ? (int)(slash - path) + 1 : 0;
    char beside[SIDECAR_PATH];
    mha__text_print(format, MHA_SIDECAR_FORMAT, "%s", said ? said : "");
    for (size_t i = 0; i < 2 && !*format && strlen(path) < SIDECAR_PATH - 32 && path != mha__source_name("-"); i++) {
        mha__text_print(beside, sizeof beside, "%.*s%s", folder, path, names[i]);
        TRY(read_one(file, beside, format, error));
    }
    return MHA_OK;
}
