/* JSON objects from text and from small files: configurations, descriptions of architectures. */
#include <string.h>

#include "models/describe/architecture.h"

#include "formats/files/input_file.h"
#include "formats/files/json.h"
#include "lab/lab.h"

enum { TEXT_LIMIT = 1 << 23, PATH_LIMIT = 4096 }; /* labels of 21,841 classes take 1.3 MB */

mha_status mha__json_parse(const char *text, size_t length, const char *path, json_t **object, mha_error *error)
{
    json_error_t why;
    bool starved;
    *object = mha__json_load(text, length, JSON_REJECT_DUPLICATES, &why, &starved);
    if (starved)
        return mha__fail(error, MHA_NO_MEMORY, path, "no memory for its JSON");
    if (!*object)
        return mha__fail_at(error, MHA_FORMAT, path, (uint64_t)(why.position > 0 ? why.position : 0),
                            "expected JSON, found at line %d, byte %d: %s", why.line, why.position, why.text);
    if (json_is_object(*object))
        return MHA_OK;
    json_decref(*object);
    *object = NULL;
    return mha__fail(error, MHA_FORMAT, path, "expected a JSON object, found another value");
}

mha_status mha__json_read(const char *path, json_t **object, mha_error *error)
{
    mha__source source;
    const mha_allocator allocator = mha__allocator_default();
    char *text = NULL;
    size_t bytes = 0;
    TRY(mha__source_open(&source, path, error));
    mha_status status = mha__source_text(&source, &allocator, TEXT_LIMIT, "JSON text", &text, &bytes, error);
    mha__source_close(&source);
    if (status == MHA_OK)
        status = mha__json_parse(text, bytes - 1, mha__source_name(path), object, error);
    mha__release(&allocator, text, bytes);
    return status;
}

mha_status mha__config_read(const char *path, json_t **object, mha_error *error)
{
    bool folder = false;
    char inside[PATH_LIMIT];
    TRY(mha__source_is_directory(path, &folder, error));
    if (!folder)
        return mha__json_read(path, object, error);
    mha__text_print(inside, sizeof inside, "%s/config.json", path);
    return mha__json_read(inside, object, error);
}
