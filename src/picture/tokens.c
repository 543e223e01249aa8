/* The names of tokens, from a file: a line for each, or an array of JSON. */
#include <string.h>

#include "formats/input_file.h"
#include "formats/json.h"
#include "picture/picture.h"

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "tokens", "no memory for their names");
}

/* Copies a name into the picture. */
static mha_status add(mha__picture *picture, const char **names, const char *name, size_t length, mha_error *error)
{
    char *copy = mha__arena_take(&picture->memory, length + 1);
    if (!copy)
        return no_memory(error);
    memcpy(copy, name, length);
    names[picture->token_count++] = copy;
    return MHA_OK;
}

static mha_status read_array(mha__picture *picture, json_t *array, const char *path, mha_error *error)
{
    const size_t count = json_array_size(array);
    const char **names = mha__arena_take(&picture->memory, count * sizeof *names);
    if (!names)
        return no_memory(error);
    picture->tokens = names;
    for (size_t i = 0; i < count; i++) {
        const json_t *name = json_array_get(array, i);
        if (!json_is_string(name))
            return mha__fail(error, MHA_FORMAT, path, "expected an array of texts, found something else at index %zu",
                             i);
        TRY(add(picture, names, json_string_value(name), json_string_length(name), error));
    }
    return MHA_OK;
}

static mha_status read_json(mha__picture *picture, const char *text, const char *path, mha_error *error)
{
    json_error_t why;
    bool starved;
    json_t *array = mha__json_load(text, strlen(text), 0, &why, &starved);
    if (!array && starved)
        return no_memory(error);
    if (!array)
        return mha__fail(error, MHA_FORMAT, path, "expected an array of JSON, or a name in each line; line %d: %s",
                         why.line, why.text);
    const mha_status status = read_array(picture, array, path, error);
    json_decref(array);
    return status;
}

static mha_status read_lines(mha__picture *picture, const char *text, mha_error *error)
{
    size_t lines = 0;
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
        lines++;
    const char **names = mha__arena_take(&picture->memory, lines * sizeof *names);
    if (!names)
        return no_memory(error);
    picture->tokens = names;
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, "\n"), shown = length > 0 && at[length - 1] == '\r' ? length - 1 : length;
        TRY(add(picture, names, at, shown, error));
        at += length + (at[length] == '\n');
    }
    return MHA_OK;
}

mha_status mha__picture_tokens(mha__picture *picture, const char *path, mha_error *error)
{
    const size_t limit = (size_t)1 << 26;
    mha__source source;
    char *text = NULL;
    size_t bytes = 0;
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    picture->token_count = 0;
    TRY(mha__source_open(&source, path, error));
    mha_status status =
        mha__source_text(&source, &picture->memory.allocator, limit, "file of token names", &text, &bytes, error);
    mha__source_close(&source);
    if (status == MHA_OK)
        status = text[strspn(text, " \t\r\n")] == '[' ? read_json(picture, text, path, error)
                                                       : read_lines(picture, text, error);
    mha__release(&picture->memory.allocator, text, bytes);
    return status;
}
