/* Finds the description of an architecture: JSON text, built in or a user's own (architectures/README.md), on top of
 * the one that it is like. */
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "mha/model.h"
#include "models/describe/architecture.h"

static const struct {
    const char *name, *text;
} built_in[] = {
#include "architectures.inc"
};

enum { BUILT_IN = sizeof built_in / sizeof *built_in };

static const char *text_of(const char *name)
{
    for (size_t i = 0; i < BUILT_IN; i++)
        if (strcmp(built_in[i].name, name) == 0)
            return built_in[i].text;
    return NULL;
}

bool mha__architecture_known(const char *model_type)
{
    return text_of(model_type) != NULL;
}

const char *mha_architecture_at(size_t index)
{
    return index < BUILT_IN ? built_in[index].name : NULL;
}

const char *mha__architecture_nearest(const char *model_type)
{
    size_t nearest = strlen(model_type) / 2; /* more letters than that make another name */
    const char *found = NULL;
    for (size_t i = 0; i < BUILT_IN && nearest > 0; i++) {
        const size_t distance = mha__text_distance(built_in[i].name, model_type);
        if (distance < nearest) {
            nearest = distance;
            found = built_in[i].name;
        }
    }
    return found;
}

/* Whether a list of keys, which ends with a quotation mark, has this one: "a.key" and "key=0" are `key`, too. */
static bool lists(const char *list, const char *key)
{
    const size_t n = strlen(key);
    for (const char *word = list; *word != '"';) {
        const size_t length = strcspn(word, " \""), outer = strcspn(word, ". \"");
        const char *name = outer < length ? word + outer + 1 : word;
        if (strcspn(name, "= \"") == n && strncmp(name, key, n) == 0)
            return true;
        word += length + (word[length] == ' ');
    }
    return false;
}

bool mha__architecture_knows(const char *key)
{
    static const char *const fields[] = {"\"key\": \"", "\"no_effect\": \""};
    for (size_t i = 0; i < BUILT_IN; i++)
        for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
            for (const char *at = built_in[i].text; (at = strstr(at, fields[f]));) {
                at += strlen(fields[f]);
                if (lists(at, key))
                    return true;
            }
    return false;
}

/* ---------------------------------------------------------------- text to JSON */

static mha_status no_memory(const char *path, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, path, "no memory for the description of an architecture");
}

/* Keeps the parts that the classes of `base` add, so that its formulas may go on naming them. */
static bool keep_parts(json_t *base)
{
    const char *name;
    json_t *parts, *kept = json_object_get(base, "parts"), *classes = json_object_get(base, "classes");
    json_object_foreach(classes, name, parts)
    {
        kept = json_sprintf("%s %s", kept ? json_string_value(kept) : "", json_string_value(parts));
        if (!kept || json_object_set_new(base, "parts", kept) != 0)
            return false;
    }
    return true;
}

/* Adds the keys without effect of `base` to those of `own`. */
static bool join_keys(const json_t *base, json_t *own)
{
    const json_t *old = json_object_get(base, "no_effect"), *more = json_object_get(own, "no_effect");
    return !json_is_string(old) || !json_is_string(more) ||
           json_object_set_new(own, "no_effect",
                               json_sprintf("%s %s", json_string_value(old), json_string_value(more))) == 0;
}

bool mha__architecture_put(json_t *base, json_t *own)
{
    const char *field;
    json_t *value;
    bool done = true;
    json_object_foreach(own, field, value)
    {
        json_t *old = json_object_get(base, field);
        const bool entries = json_is_object(old) && json_is_object(value) && strcmp(field, "classes") != 0;
        done &= (entries ? json_object_update(old, value) : json_object_set(base, field, value)) == 0;
    }
    return done;
}

static bool merge(json_t *base, json_t *own)
{
    return (!json_object_get(own, "classes") || keep_parts(base)) && join_keys(base, own) &&
           mha__architecture_put(base, own) && json_object_del(base, "like") == 0;
}

/* Puts `own` on top of the built-in description that it says it is like, if any. Takes `own`; gives *whole. */
static mha_status complete(json_t *own, const char *path, json_t **whole, mha_error *error)
{
    const json_t *like = json_object_get(own, "like");
    *whole = own;
    if (!like)
        return MHA_OK;
    const char *text = json_is_string(like) ? text_of(json_string_value(like)) : NULL;
    json_t *base = NULL, *parsed;
    mha_status status = MHA_OK;
    if (!text)
        status = mha__fail(error, MHA_INVALID, path, "like: expected the name of a built-in architecture");
    else
        status = mha__json_parse(text, strlen(text), json_string_value(like), &parsed, error);
    if (status == MHA_OK)
        status = complete(parsed, path, &base, error);
    if (status == MHA_OK && !merge(base, own))
        status = no_memory(path, error);
    json_decref(own);
    *whole = base;
    if (status == MHA_OK)
        return MHA_OK;
    json_decref(base);
    *whole = NULL;
    return status;
}

/* ---------------------------------------------------------------- the whole */

mha_status mha__architecture_text(const char *model_type, json_t **whole, mha_error *error)
{
    const char *text = text_of(model_type);
    json_t *own = NULL;
    TRY(mha__json_parse(text, strlen(text), model_type, &own, error));
    return complete(own, model_type, whole, error);
}

mha_status mha__architecture_make(json_t *whole, const char *name, const char *source, mha__architecture **made,
                                  mha_error *error)
{
    const mha_allocator allocator = mha__allocator_default();
    mha__architecture *a = mha__allocate(&allocator, sizeof *a);
    *made = NULL;
    if (!a) {
        json_decref(whole);
        return no_memory(name, error);
    }
    a->memory.allocator = allocator;
    a->text = whole;
    mha__text_print(a->name, sizeof a->name, "%s", name);
    mha__text_print(a->source, sizeof a->source, "%s", source);
    const mha_status status = mha__architecture_read_rows(a, error);
    if (status != MHA_OK) {
        mha__architecture_free(a);
        return status;
    }
    *made = a;
    return MHA_OK;
}

mha_status mha__architecture_read(const char *model_type, const char *path, mha__architecture **made, mha_error *error)
{
    json_t *own = NULL, *whole = NULL;
    *made = NULL;
    if (path)
        TRY(mha__json_read(path, &own, error));
    TRY(path ? complete(own, path, &whole, error) : mha__architecture_text(model_type, &whole, error));
    return mha__architecture_make(whole, model_type, path ? path : model_type, made, error);
}

const char *mha__architecture_row(const mha__architecture *a, const char *row, char room[MHA_ARCH_ROW])
{
    mha__text_print(room, MHA_ARCH_ROW, "%.80s, %s", a->source, row);
    return room;
}

mha_status mha__architecture_blame(const mha__architecture *a, const char *row, mha_status status, mha_error *error)
{
    char room[MHA_ARCH_ROW];
    if (status == MHA_INVALID && error && strcmp(error->name, "expression") == 0)
        mha__text_print(error->name, sizeof error->name, "%s", mha__architecture_row(a, row, room));
    return status;
}

void mha__architecture_free(mha__architecture *a)
{
    if (!a)
        return;
    const mha_allocator allocator = a->memory.allocator;
    json_decref(a->text);
    mha__arena_free(&a->memory);
    mha__release(&allocator, a, sizeof *a);
}
