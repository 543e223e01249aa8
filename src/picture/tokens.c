/* The names of tokens: from a file, a line for each or an array of JSON; recorded; or ids that a vocabulary names. */
#include <string.h>

#include "formats/files/input_file.h"
#include "formats/files/json.h"
#include "formats/readers/readers.h"
#include "lab/lab.h"
#include "picture/head.h"

static const char BLANKS[] = " \t\r\n";

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "tokens", "no memory for their names");
}

/* Copies a name into the picture. */
static mha_status add(mha__picture *picture, const char **names, const char *name, size_t length, mha_error *error)
{
    const char *copy = mha__arena_text(&picture->memory, name, length);
    if (!copy)
        return no_memory(error);
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

/* Whether text that is not JSON was meant as an array of texts: "[CLS]" is the name of a token. */
static bool means_array(const char *text)
{
    const char *open = text + strspn(text, BLANKS);
    return *open == '[' && open[1 + strspn(open + 1, BLANKS)] == '"';
}

/* Reads an array of JSON as the names; `or_lines`: text that is none, and was not meant as one, has a name in each
 * line. */
static mha_status read_json(mha__picture *picture, const char *text, const char *path, bool or_lines, mha_error *error)
{
    json_error_t why;
    bool starved;
    json_t *array = mha__json_load(text, strlen(text), 0, &why, &starved);
    if (!array && starved)
        return no_memory(error);
    if (!array && or_lines && !means_array(text))
        return read_lines(picture, text, error);
    if (!array)
        return mha__fail(error, MHA_FORMAT, path, "expected an array of JSON%s; line %d: %s",
                         or_lines ? ", or a name in each line" : "", why.line, why.text);
    const mha_status status = read_array(picture, array, path, error);
    json_decref(array);
    return status;
}

/* Reads a file of text. */
static mha_status read_text(mha__picture *picture, const char *path, mha_error *error)
{
    const size_t limit = (size_t)1 << 26;
    mha__source source;
    char *text = NULL;
    size_t bytes = 0;
    TRY(mha__source_open(&source, path, error));
    mha_status status =
        mha__source_text(&source, &picture->memory.allocator, limit, "file of token names", &text, &bytes, error);
    mha__source_close(&source);
    if (status == MHA_OK && strlen(text) + 1 < bytes)
        status = mha__fail(error, MHA_FORMAT, path,
                           "expected names of tokens as text (a line for each, or a JSON array), or a GGUF file; found "
                           "another binary file");
    if (status == MHA_OK)
        status = text[strspn(text, BLANKS)] == '[' ? read_json(picture, text, path, true, error)
                                                   : read_lines(picture, text, error);
    mha__release(&picture->memory.allocator, text, bytes);
    return status;
}

mha_status mha__picture_tokens(mha__picture *picture, const char *path, mha_error *error)
{
    char magic[4] = "";
    mha__source source;
    mha_file *file;
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    picture->token_count = picture->word_count = 0;
    TRY(mha__source_open(&source, path, error));
    mha_status status = source.size < sizeof magic ? MHA_OK : mha__source_read(&source, 0, magic, sizeof magic, error);
    mha__source_close(&source);
    TRY(status);
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return read_text(picture, path, error);
    TRY(mha_file_open(path, &file, error));
    status = mha__file_vocabulary(file, &picture->memory, &picture->words, &picture->word_count, error);
    if (status == MHA_OK && picture->word_count == 0)
        status = mha__fail(error, MHA_INVALID, path, "expected a vocabulary (tokenizer.ggml.tokens), found none");
    mha_file_close(file);
    return status;
}

/* ---------------------------------------------------------------- recorded in what is shown */

/* Reads the ids of one sequence: the only one, or that of the choice. */
static mha_status read_ids(const mha_file *file, const mha_file_tensor *tensor, const mha__picture_choice *choice,
                           mha__arena *memory, mha_view *ids, mha_error *error)
{
    const char *path = mha_file_path(file);
    if (tensor->rank < 1 || tensor->rank > 2 || (tensor->dtype != MHA_I64 && tensor->dtype != MHA_I32))
        return mha__fail_inside(error, MHA_INVALID, path, tensor->name, 0,
                                "expected ids of tokens, (B, S) or (S) of I32 or I64, found %d axes of %s",
                                tensor->rank, mha_dtype_name(tensor->dtype));
    const size_t rows = tensor->rank == 2 ? tensor->shape[0] : 1, row = choice->one_sequence ? choice->sequence : 0;
    if (rows > 1 && !choice->one_sequence)
        return mha__fail_inside(error, MHA_INVALID, path, tensor->name, 0,
                                "expected one row of ids, found %zu: --batch shows one of them", rows);
    *ids = mha__arena_view(memory, MHA_I64, tensor->rank, tensor->shape);
    if (!ids->data)
        return no_memory(error);
    TRY(mha_file_read(file, tensor, ids, error));
    if (tensor->rank == 2 && row < rows)
        *ids = mha_view_slice(ids, 0, row, 1);
    return MHA_OK;
}

static mha_status name_ids(mha__picture *picture, const mha_file *file, const mha__picture_choice *choice,
                           mha_error *error)
{
    const mha_file_tensor *tensor = mha_file_find(file, "tokens");
    mha__arena memory = {.allocator = picture->memory.allocator};
    mha_view ids;
    if (!tensor)
        return mha__fail(
            error, MHA_INVALID, mha_file_path(file),
            "expected the ids of its tokens (a tensor \"tokens\"), which the vocabulary of --tokens names; "
            "found none");
    mha_status status = read_ids(file, tensor, choice, &memory, &ids, error);
    const size_t count = status == MHA_OK ? ids.shape[ids.rank - 1] : 0;
    const char **names = mha__arena_take(&picture->memory, (count + 1) * sizeof *names);
    if (status == MHA_OK && !names)
        status = no_memory(error);
    for (size_t i = 0; i < count && status == MHA_OK; i++) {
        const int64_t id = ((const int64_t *)ids.data)[i];
        if (id < 0 || (uint64_t)id >= picture->word_count)
            status = mha__fail_inside(error, MHA_INVALID, mha_file_path(file), "tokens", 0,
                                      "expected ids below %zu, the size of the vocabulary, found %lld at index %zu",
                                      picture->word_count, (long long)id, i);
        else
            names[i] = picture->words[id];
    }
    mha__arena_free(&memory);
    if (status == MHA_OK) {
        picture->tokens = names;
        picture->token_count = count;
    }
    return status;
}

mha_status mha__picture_tokens_of(mha__picture *picture, const mha_file *file, const mha__picture_choice *choice,
                                  mha_error *error)
{
    const char *recorded = mha_file_metadata(file, "token_names");
    if (picture->token_count > 0)
        return MHA_OK;
    if (picture->word_count > 0)
        return name_ids(picture, file, choice, error);
    return recorded ? read_json(picture, recorded, "token_names", false, error) : MHA_OK;
}
