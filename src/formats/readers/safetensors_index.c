/* Models in several safetensors files: the index with the file of each tensor, and directories. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/files/json.h"
#include "formats/readers/readers.h"
#include "lab/lab.h"

enum { SHARD_LIMIT = 1024 }; /* files of one set: all are open at once */

/* One line of the weight_map. */
typedef struct placement {
    const char *tensor;
    size_t shard;
    bool found;
} placement;

typedef struct shard_index {
    mha_file *file;
    const char *path;
    mha__list shards;     /* const char *: their names as the index spells them */
    mha__list placements; /* placement */
    mha_error *error;
    bool map_seen, metadata_seen;
    bool in_map; /* of the two objects inside, the weight_map is read */
} shard_index;

/* ---------------------------------------------------------------- reading the index */

/* Whether a name stays in the directory of the index: not absolute, and without "..". */
static bool stays_inside(const char *name)
{
    if (name[0] == '/' || name[0] == '\0')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        size_t length = strcspn(part, "/");
        if (length == 2 && part[0] == '.' && part[1] == '.')
            return false;
    }
    return true;
}

static mha_status find_shard(shard_index *index, const char *tensor, const char *name, size_t *number)
{
    const char **names = index->shards.items;
    for (size_t i = index->shards.count; i-- > 0;) /* backwards: mostly it is the file met last */
        if (strcmp(names[i], name) == 0) {
            *number = i;
            return MHA_OK;
        }
    if (!stays_inside(name))
        return mha__fail_inside(index->error, MHA_FORMAT, index->path, tensor, 0,
                                "expected the name of a file next to the index, found '%.*s'", MHA_CUT_ARGS(100, name));
    if (index->shards.count == SHARD_LIMIT)
        return mha__fail(index->error, MHA_FORMAT, index->path, "expected at most %d files in the set, found more",
                         SHARD_LIMIT);
    const char *copy = mha__file_text(index->file, name, strlen(name));
    const char **place = copy ? mha__list_add(&index->file->allocator, &index->shards) : NULL;
    if (!place)
        return mha__file_no_memory(index->file, index->error);
    *place = copy;
    *number = index->shards.count - 1;
    return MHA_OK;
}

static mha_status add_placement(shard_index *index, const json_t *key, const json_t *value, uint64_t where)
{
    const char *tensor = json_string_value(key), *name = json_string_value(value);
    if (!name)
        return mha__fail_inside(index->error, MHA_FORMAT, index->path, tensor, where,
                                "expected the name of a file (at byte %" PRIu64 ")", where);
    size_t shard = 0;
    TRY(find_shard(index, tensor, name, &shard));
    const char *copy = mha__file_text(index->file, tensor, json_string_length(key));
    placement *place = copy ? mha__list_add(&index->file->allocator, &index->placements) : NULL;
    if (!place)
        return mha__file_no_memory(index->file, index->error);
    *place = (placement){copy, shard, false};
    return MHA_OK;
}

/* Strings and numbers of the index's "metadata", which is total_size in practice. */
static mha_status add_metadata(shard_index *index, const json_t *key, const json_t *value)
{
    char number[64];
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
    } else if (json_is_real(value)) {
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
        text = number;
    }
    if (!text)
        return MHA_OK;
    return mha__file_add_metadata(index->file, json_string_value(key), json_string_length(key), text, strlen(text),
                                  index->error);
}

static mha_status take_inner(void *context, const json_t *key, uint64_t from, mha__json_walk *walk, mha_error *error)
{
    shard_index *index = context;
    json_t *value;
    TRY(mha__json_value(walk, &value, error));
    const mha_status status = index->in_map ? add_placement(index, key, value, from) : add_metadata(index, key, value);
    json_decref(value);
    return status;
}

static mha_status take_outer(void *context, const json_t *key, uint64_t from, mha__json_walk *walk, mha_error *error)
{
    shard_index *index = context;
    json_t *value;
    (void)from;
    index->in_map = strcmp(json_string_value(key), "weight_map") == 0;
    if (!index->in_map && strcmp(json_string_value(key), "metadata") != 0) {
        TRY(mha__json_value(walk, &value, error));
        json_decref(value);
        return MHA_OK;
    }
    bool *seen = index->in_map ? &index->map_seen : &index->metadata_seen;
    if (*seen)
        return mha__fail_inside(error, MHA_FORMAT, index->path, json_string_value(key), mha__json_offset(walk),
                                "expected it once in the index, found it twice");
    *seen = true;
    return mha__json_each(walk, take_inner, index, error);
}

static mha_status parse_index(shard_index *index, const char *text, size_t length)
{
    mha__json_walk walk = {.text = text, .length = length, .path = index->path};
    TRY(mha__json_each(&walk, take_outer, index, index->error));
    TRY(mha__json_end(&walk, index->error));
    if (!index->map_seen)
        return mha__fail(
            index->error, MHA_UNSUPPORTED, index->path,
            "expected a file of tensors, found JSON without a \"weight_map\": neither tensors nor the index of a set");
    return MHA_OK;
}

/* ---------------------------------------------------------------- the files */

static mha_status open_shard(shard_index *index, const char *name)
{
    mha_file *file = index->file;
    const char *slash = strrchr(index->path, '/');
    size_t directory = slash ? (size_t)(slash - index->path) + 1 : 0, length = strlen(name);
    char *path = mha__file_text(file, NULL, directory + length);
    if (!path)
        return mha__file_no_memory(file, index->error);
    memcpy(path, index->path, directory);
    memcpy(path + directory, name, length);
    size_t number;
    unsigned char first = 0, ninth = 0;
    TRY(mha__file_add_source(file, path, &number, index->error));
    const mha__source *source = mha__file_source(file, number);
    if (source->size > 0)
        TRY(mha__source_read(source, 0, &first, 1, index->error));
    if (source->size > 8)
        TRY(mha__source_read(source, 8, &ninth, 1, index->error));
    if (ninth != '{' && first == '{')
        return mha__fail(index->error, MHA_FORMAT, path,
                         "expected a safetensors file, found JSON: an index cannot name itself or another index");
    if (ninth != '{')
        TRY(mha__foreign_refuse(source, index->error));
    return mha__safetensors_parse(file, number, index->error);
}

/* Puts the name of the index in front of an error about one of its files. */
static mha_status named_by_index(const shard_index *index, mha_status status)
{
    if (status == MHA_OK || !index->error)
        return status;
    const mha_error inner = *index->error;
    return mha__fail_inside(index->error, status, index->path, inner.name, inner.offset, "%s", inner.message);
}

static int compare_placements(const void *a, const void *b)
{
    return strcmp(((const placement *)a)->tensor, ((const placement *)b)->tensor);
}

/* Refuses unless every tensor of the files is in the map with its file, and every tensor of the map in that file. */
static mha_status check_map(shard_index *index, size_t first_source)
{
    placement *placements = index->placements.items;
    size_t count = index->placements.count;
    const char *const *names = index->shards.items;
    if (count > 0)
        qsort(placements, count, sizeof *placements, compare_placements);
    for (size_t i = 1; i < count; i++)
        if (compare_placements(&placements[i - 1], &placements[i]) == 0)
            return mha__fail_inside(index->error, MHA_FORMAT, index->path, placements[i].tensor, 0,
                                    "expected it once in the weight_map, found it twice");
    for (size_t i = 0; i < mha_file_count(index->file); i++) {
        const mha__entry *entry = (const mha__entry *)index->file->entries.items + i;
        placement key = {.tensor = entry->tensor.name};
        size_t shard = entry->source - first_source;
        placement *found = count > 0 ? bsearch(&key, placements, count, sizeof *placements, compare_placements) : NULL;
        if (!found)
            return mha__fail_inside(index->error, MHA_FORMAT, index->path, key.tensor, 0,
                                    "expected every tensor of %.*s in the index, found this one missing",
                                    MHA_CUT_ARGS(90, names[shard]));
        if (found->shard != shard)
            return mha__fail_inside(index->error, MHA_FORMAT, index->path, key.tensor, 0,
                                    "expected it in %.*s, as the index says, found it in %.*s",
                                    MHA_CUT_ARGS(90, names[found->shard]), MHA_CUT_ARGS(90, names[shard]));
        found->found = true;
    }
    for (size_t i = 0; i < count; i++)
        if (!placements[i].found)
            return mha__fail_inside(index->error, MHA_FORMAT, index->path, placements[i].tensor, 0,
                                    "expected it in %.*s, as the index says, found it missing",
                                    MHA_CUT_ARGS(90, names[placements[i].shard]));
    return MHA_OK;
}

mha_status mha__shards_parse(mha_file *file, size_t number, mha_error *error)
{
    const mha__source *source = mha__file_source(file, number);
    shard_index index = {.file = file, .path = source->path, .error = error};
    index.shards.item_bytes = sizeof(const char *);
    index.placements.item_bytes = sizeof(placement);
    char *text;
    size_t bytes;
    TRY(mha__source_text(source, &file->allocator, MHA_HEADER_LIMIT, "an index", &text, &bytes, error));
    mha_status status = parse_index(&index, text, bytes - 1);
    mha__release(&file->allocator, text, bytes);

    size_t first_source = file->sources.count;
    for (size_t i = 0; i < index.shards.count && status == MHA_OK; i++) {
        const char *name = ((const char **)index.shards.items)[i];
        size_t metadata = file->metadata.count;
        status = named_by_index(&index, open_shard(&index, name));
        file->metadata.count = metadata; /* metadata of the files is dropped; the index has that of the set */
    }
    if (status == MHA_OK)
        status = check_map(&index, first_source);
    mha__list_release(&file->allocator, &index.shards);
    mha__list_release(&file->allocator, &index.placements);
    return status;
}

/* ---------------------------------------------------------------- directories */

mha_status mha__shards_find(mha_file *file, const char *directory, const char **path, mha_error *error)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                        "pytorch_model.bin.index.json"};
    size_t length = strlen(directory);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t name = strlen(names[i]);
        char *candidate = mha__file_text(file, NULL, length + 1 + name);
        if (!candidate)
            return mha__file_no_memory(file, error);
        memcpy(candidate, directory, length);
        candidate[length] = '/';
        memcpy(candidate + length + 1, names[i], name);
        if (access(candidate, F_OK) == 0) {
            *path = candidate;
            return MHA_OK;
        }
        if (errno != ENOENT)
            return mha__fail(error, MHA_IO, candidate, "cannot look for it: %s", strerror(errno));
    }
    return mha__fail(error, MHA_NOT_FOUND, directory,
                     "expected model.safetensors or model.safetensors.index.json in this directory,"
                     " found neither");
}
