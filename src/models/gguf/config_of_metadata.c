/* A configuration out of the metadata of a GGUF file: the JSON that descriptions read, and what nothing reads. */
#include <ctype.h>
#include <string.h>

#include "formats/files/json.h"
#include "lab/lab.h"
#include "models/config/config.h"
#include "models/gguf/gguf.h"

static const char pattern[] = "sliding_window_pattern", period[] = "sliding_window_period";

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "metadata", "no memory for the metadata of a file");
}

/* ---------------------------------------------------------------- read */

/* A list of equals, such as the heads of each layer, as one number. */
static json_t *without_repetition(json_t *list)
{
    json_t *first = json_array_get(list, 0);
    size_t same = 0;
    while (same < json_array_size(list) && json_equal(json_array_get(list, same), first))
        same++;
    return first && same == json_array_size(list) ? first : list;
}

/* Sets "a.b" in the object a; takes the value. */
static bool set_nested(json_t *config, const char *key, json_t *value)
{
    char outer[64];
    const char *dot = strchr(key, '.');
    if (!dot || (size_t)(dot - key) >= sizeof outer)
        return json_object_set_new_nocheck(config, key, value) == 0; /* keys of a file are any bytes */
    memcpy(outer, key, (size_t)(dot - key));
    outer[dot - key] = '\0';
    json_t *object = json_object_get(config, outer);
    if (!json_is_object(object) && json_object_set_new_nocheck(config, outer, object = json_object()) != 0) {
        json_decref(value);
        return false;
    }
    return json_object_set_new_nocheck(object, dot + 1, value) == 0;
}

static bool set_value(json_t *config, const char *key, const char *text)
{
    json_error_t why;
    bool starved;
    json_t *value = mha__json_load(text, strlen(text), JSON_DECODE_ANY, &why, &starved);
    if (!value && !starved)
        value = json_string_nocheck(text);
    if (strncmp(key, "attention.head_count", strlen("attention.head_count")) == 0 && json_is_array(value)) {
        json_t *one = json_incref(without_repetition(value));
        json_decref(value);
        value = one;
    }
    return set_nested(config, key, value);
}

/* The part of a tensor's name after "blk.N."; NULL: it is in no block. */
static const char *in_block(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0 || !isdigit((unsigned char)name[4]))
        return NULL;
    const char *rest = name + 4 + strspn(name + 4, "0123456789");
    return *rest == '.' ? rest + 1 : NULL;
}

mha_status mha__gguf_config(const mha_file *file, const char *name, json_t **config, mha_error *error)
{
    const size_t length = strlen(name);
    json_t *made = json_object(), *tensors = json_object();
    bool done = tensors && json_object_set_new(made, "tensors", tensors) == 0;
    for (size_t i = 0; done && i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        mha_file_metadata_at(file, i, &key, &value);
        if (strncmp(key, name, length) == 0 && key[length] == '.' && strcmp(key + length, ".tensors") != 0)
            done = set_value(made, key + length + 1, value);
    }
    const mha_file_tensor *tensor;
    for (size_t i = 0; done && (tensor = mha_file_at(file, i)); i++) {
        const char *rest = in_block(tensor->name);
        done = !rest || json_object_set_new_nocheck(tensors, rest, json_true()) == 0;
    }
    if (!done) {
        json_decref(made);
        return no_memory(error);
    }
    *config = made;
    return MHA_OK;
}

/* ---------------------------------------------------------------- held against the description */

static bool reads(const mha__architecture *architecture, const char *key)
{
    bool found = false;
    for (const mha__arch_key *k = architecture->keys; k->symbol && !found; k++)
        found = k->keys && mha__text_among(k->keys, key);
    for (const mha__arch_real *r = architecture->reals; r->symbol && !found; r++)
        found = mha__text_among(r->keys, key);
    return found;
}

/* Of p layers in a row the last sees all keys; 0: none does. A description that knows the period itself has it. */
static mha_status spell_out(const mha__architecture *architecture, json_t *config, mha_error *error)
{
    json_t *attention = json_object_get(config, "attention"), *p = json_object_get(attention, pattern);
    int64_t every, layers;
    if (!p || json_is_array(p))
        return MHA_OK;
    TRY(mha__config_whole(p, "attention.sliding_window_pattern", &every, error));
    const json_t *blocks = json_object_get(config, "block_count");
    layers = json_is_integer(blocks) ? (int64_t)json_integer_value(blocks) : 0;
    const bool own = reads(architecture, "attention.sliding_window_period");
    json_t *list = own ? json_integer(every) : json_array();
    bool done = list != NULL;
    for (int64_t i = 0; !own && i < layers && i < MHA_LIST_LIMIT; i++)
        done &= json_array_append_new(list, json_integer(every == 0 || i % every < every - 1)) == 0;
    done &= (!own || json_object_del(attention, pattern) == 0) &&
            json_object_set_new(attention, own ? period : pattern, list) == 0;
    return done ? MHA_OK : no_memory(error);
}

/* Whether a value asks for something. */
static bool says(const json_t *value)
{
    return json_is_true(value) || (json_is_number(value) && json_number_value(value) != 0) || json_is_array(value) ||
           (json_is_string(value) && strcmp(json_string_value(value), "none") != 0);
}

mha_status mha__gguf_settle(const mha__architecture *architecture, json_t *config, mha_error *error)
{
    /* Keys that mha__gguf_scaling reads, and keys that the shapes of tensors imply. */
    static const char known[] = "rope.scaling.type rope.scaling.factor rope.scaling.original_context_length "
                                "rope.scaling.attn_factor rope.scaling.yarn_attn_factor rope.scaling.yarn_ext_factor "
                                "rope.scaling.yarn_log_multiplier rope.scaling.yarn_beta_fast "
                                "rope.scaling.yarn_beta_slow rope.scaling.finetuned attention.value_length "
                                "attention.value_length_mla attention.head_count_kv attention.key_length "
                                "attention.group_norm_epsilon attention.group_norm_groups";
    static const char *const objects[] = {"attention", "rope"};
    TRY(spell_out(architecture, config, error));
    for (int i = 0; i < 2; i++) {
        json_t *object = json_object_get(config, objects[i]), *value;
        const char *rest;
        json_object_foreach(object, rest, value)
        {
            char key[80];
            mha__text_print(key, sizeof key, "%s.%s", objects[i], rest);
            if (says(value) && !reads(architecture, key) && !mha__text_among(known, key))
                return mha__fail(error, MHA_UNSUPPORTED, key,
                                 "expected a key that mha knows for the attention of '%.*s', found another",
                                 MHA_CUT_ARGS(40, architecture->name));
        }
    }
    return MHA_OK;
}
