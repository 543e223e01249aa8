/* Describes an architecture of GGUF: the description of its family, read from metadata. architectures.json says which
 * family that is, and what differs. */
#include <string.h>

#include "models/gguf/gguf.h"

static const char table_text[] = {
#include "gguf.inc"
};

/* Gives symbols or numbers of a family the keys of metadata: `all`, or only those that the family reads from a key.
 * Without a default of its own, an entry keeps the family's. */
static bool take_keys(json_t *family, json_t *entries, bool all)
{
    const char *name;
    json_t *entry;
    bool done = true;
    json_object_foreach(entries, name, entry)
    {
        const json_t *old = json_object_get(family, name), *list = json_object_get(old, "list");
        json_t *otherwise = json_object_get(old, json_object_get(old, "value") ? "value" : "default");
        if (!all && !json_object_get(old, "key"))
            continue;
        json_t *made = json_copy(entry);
        if (otherwise && json_object_get(entry, "key") && !json_object_get(entry, "default"))
            done &= json_object_set(made, "default", otherwise) == 0;
        if (list)
            done &= json_object_set(made, "list", json_object_get(old, "list")) == 0;
        done &= json_object_set_new(family, name, made) == 0;
    }
    return done;
}

/* The attention layers are blocks, and of tensors a description has one at least. */
static bool make_blocks(json_t *whole, json_t *own)
{
    json_t *rows = json_object_get(whole, "attention"), *row = json_array_get(rows, 0),
           *differ = json_object_get(row, "own"),
           *tensors = json_pack("{s:{s:[{s:s, s:s, s:s, s:s}]}}", "model", "rows", "name", "token_embd.weight", "shape",
                                "d_model", "group", MHA_GROUP_EMBEDDING, "role", "tokens");
    bool done = json_object_set_new(whole, "tensors", tensors) == 0 &&
                json_object_set_new(whole, "model_prefix", json_string("")) == 0 &&
                json_object_set_new(row, "prefix", json_string("blk.{i}")) == 0;
    if (own)
        done &= (differ ? json_object_update(differ, own) : json_object_set(row, "own", own)) == 0;
    return done;
}

/* Makes the family's description that of GGUF, as the entry of the table says. */
static bool adapt(json_t *whole, json_t *table, json_t *entry)
{
    static const char *const lists[] = {"symbols", "numbers"}, *const read[] = {"symbols_read", "numbers_read"};
    bool done = true;
    for (int i = 0; i < 2; i++) {
        json_t *family = json_object_get(whole, lists[i]), *own = json_object_get(entry, lists[i]);
        if (!family)
            done &= json_object_set_new(whole, lists[i], family = json_object()) == 0;
        done &= take_keys(family, json_object_get(table, lists[i]), true) &&
                take_keys(family, json_object_get(table, read[i]), false) &&
                (!own || json_object_update(family, own) == 0);
    }
    static const char *const more[] = {"refused", "caveat"};
    for (int i = 0; i < 2; i++) {
        json_t *own = json_object_get(entry, more[i]);
        done &= !own || json_object_set(whole, more[i], own) == 0;
    }
    return done && make_blocks(whole, json_object_get(entry, "own"));
}

static mha_status describe(json_t *table, const char *name, mha__architecture **made, mha_error *error)
{
    json_t *all = json_object_get(table, "architectures"), *listed = json_object_get(all, name), *whole = NULL;
    const char *as = json_string_value(json_object_get(listed, "as"));
    if (!listed)
        return MHA_OK;
    json_t *entry = as ? json_deep_copy(json_object_get(all, as)) : json_incref(listed);
    mha_status status = entry && (!as || mha__architecture_put(entry, listed)) ? MHA_OK : MHA_NO_MEMORY;
    const char *like = json_string_value(json_object_get(entry, "like"));
    if (status == MHA_OK)
        status = mha__architecture_text(like, &whole, error);
    if (status == MHA_OK && !adapt(whole, table, entry))
        status = MHA_NO_MEMORY;
    json_decref(entry);
    if (status == MHA_OK)
        return mha__architecture_make(whole, name, name, made, error);
    json_decref(whole);
    return mha__fail(error, status, name, "no memory for the description of an architecture");
}

mha_status mha__gguf_describe(const char *name, mha__architecture **made, mha_error *error)
{
    json_t *table = NULL;
    *made = NULL;
    TRY(mha__json_parse(table_text, strlen(table_text), "gguf", &table, error));
    const mha_status status = describe(table, name, made, error);
    json_decref(table);
    if (status == MHA_OK && *made)
        (*made)->of_metadata = true;
    return status;
}
