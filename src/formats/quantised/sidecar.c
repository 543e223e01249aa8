/* Reads how a checkpoint's weights are packed, if the weights file does not state it. */
#include <stdlib.h>
#include <string.h>

#include "formats/files/json.h"
#include "formats/quantised/packings.h"

enum { SIDECAR_LIMIT = 1 << 22, SIDECAR_PATH = 4096 };

/* Adds a size that is new. A list that is full keeps counting. */
static void add_size(mha__group_sizes *sizes, json_int_t number)
{
    const size_t size = number > 0 ? (size_t)number : SIZE_MAX;
    for (size_t i = 0; i < sizes->count && i < MHA_SIDECAR_SIZES; i++)
        if (sizes->size[i] == size)
            return;
    if (sizes->count < MHA_SIDECAR_SIZES)
        sizes->size[sizes->count] = size;
    sizes->count++;
}

static void add_block(mha__said *said, const json_t *block)
{
    const json_t *rows = json_array_get(block, 0), *columns = json_array_get(block, 1);
    if (json_array_size(block) != 2 || !json_is_integer(rows) || !json_is_integer(columns))
        return;
    add_size(&said->rows, json_integer_value(rows));
    add_size(&said->columns, json_integer_value(columns));
}

/* Whether an object speaks of other numbers than weights. */
static bool of_activations(const char *key)
{
    return strcmp(key, "input_activations") == 0 || strcmp(key, "output_activations") == 0;
}

/* Takes what an object and the objects in it say, once `inside` the part of a configuration that speaks of packing. */
static void gather(json_t *object, bool inside, mha__said *said)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (json_is_object(value) && !of_activations(key))
            gather(value, inside || strcmp(key, "quantization_config") == 0, said);
        else if (!inside)
            continue;
        else if (strcmp(key, "checkpoint_format") == 0 && json_is_string(value) && !*said->format)
            mha__text_print(said->format, MHA_SIDECAR_FORMAT, "%s", json_string_value(value));
        else if (strcmp(key, "sym") == 0)
            said->symmetric |= json_is_true(value);
        else if ((strcmp(key, "group_size") == 0 || strcmp(key, "q_group_size") == 0) && json_is_integer(value))
            add_size(&said->columns, json_integer_value(value));
        else if (strcmp(key, "weight_block_size") == 0 || strcmp(key, "block_structure") == 0)
            add_block(said, value);
    }
}

static mha_status read_one(const mha_file *file, const char *path, bool inside, mha__said *said, mha_error *error)
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
    if (json_is_object(config))
        gather(config, inside, said);
    else
        status = mha__fail(error, MHA_FORMAT, path,
                           "expected a JSON object, which may say how the weights next to it are packed; found %s",
                           config ? "another value" : bytes > 1 ? "something else, or one that is cut off" : "nothing");
    if (said->rows.count > MHA_SIDECAR_SIZES || said->columns.count > MHA_SIDECAR_SIZES)
        status = mha__fail(error, MHA_FORMAT, path, "expected at most %d sizes of groups, found more",
                           MHA_SIDECAR_SIZES);
    json_decref(config);
    return status;
}

mha_status mha__sidecar_read(const mha_file *file, mha__said *said, mha_error *error)
{
    static const char *const names[] = {"config.json", "quantize_config.json", "quant_config.json"};
    const char *format = mha_file_metadata(file, "checkpoint_format"), *path = mha__file_source(file, 0)->path,
               *size = mha_file_metadata(file, "gptq_group_size"), *slash = strrchr(path, '/');
    const int folder = slash ? (int)(slash - path) + 1 : 0;
    char beside[SIDECAR_PATH];
    mha__text_print(said->format, MHA_SIDECAR_FORMAT, "%s", format ? format : "");
    if (size)
        add_size(&said->columns, strtoll(size, NULL, 10));
    for (size_t i = 0; i < sizeof names / sizeof *names && (!*said->format || said->columns.count == 0) &&
                       strlen(path) < SIDECAR_PATH - 32 && path != mha__source_name("-");
         i++) {
        mha__text_print(beside, sizeof beside, "%.*s%s", folder, path, names[i]);
        TRY(read_one(file, beside, i > 0, said, error));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- sizes of groups */

size_t mha__group_size(mha__group_sizes *said, mha__unsaid unsaid, size_t count, size_t scales)
{
    size_t found = 0, power = 1;
    if (scales <= 1 || scales >= count)
        return scales == 1 ? count : scales == count ? 1 : 0;
    said->matter = true;
    for (size_t i = 0; i < said->count; i++)
        if ((count - 1) / said->size[i] + 1 == scales) {
            if (found)
                return 0;
            found = said->size[i];
        }
    if (said->count > 0)
        return found;
    const size_t alike = count % scales == 0 ? count / scales : 0;
    while (power < count && (count - 1) / power + 1 > scales)
        power *= 2;
    const bool fits = (count - 1) / power + 1 == scales;
    switch (unsaid) {
    case MHA_UNSAID_ALIKE: return alike;
    case MHA_UNSAID_ALIKE_POWER: return fits && power == alike ? alike : 0;
    case MHA_UNSAID_POWER: break;
    }
    return fits ? power : alike;
}
