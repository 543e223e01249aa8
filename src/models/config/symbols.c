/* Values of a config.json: the keys and numbers that an architecture describes, read one by one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "models/config/config.h"

const char *mha__setup_key(const mha__setup *setup, const char *symbol, char room[MHA_ARCH_ROW])
{
    for (const mha__arch_key *key = setup->architecture->keys; key->symbol; key++)
        if (strcmp(key->symbol, symbol) == 0 && key->keys)
            return key->keys;
    return mha__architecture_row(setup->architecture, symbol, room);
}

json_t *mha__config_value(const json_t *config, const char *key)
{
    char outer[64];
    json_t *whole = json_object_get(config, key); /* names in metadata of a GGUF have dots */
    for (const char *dot; !whole && (dot = strchr(key, '.')) != NULL; whole = json_object_get(config, key)) {
        snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
        config = json_object_get(config, outer), key = dot + 1;
    }
    return whole;
}

/* The value of the first key in the list `keys` that the config has, with `null` also of one that is null; its name is
 * copied to `room`. */
static json_t *first_of(const json_t *config, const char *keys, bool null, char room[64])
{
    for (const char *at = keys; *at;) {
        size_t length = strcspn(at, " ");
        snprintf(room, 64, "%.*s", (int)length, at);
        json_t *value = mha__config_value(config, room);
        if (value && (null || !json_is_null(value)))
            return value;
        at += length + (at[length] == ' ');
    }
    return NULL;
}

json_t *mha__config_first(const json_t *config, const char *keys, char room[64])
{
    return first_of(config, keys, false, room);
}

static bool is_negative(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) < 0;
}

/* A key with the value null asks for the default, which is then not an assumption. */
static bool stated_null(const json_t *config, const char *keys)
{
    char name[64];
    return first_of(config, keys, true, name) != NULL;
}

static const char *kind_of(const json_t *value)
{
    return json_is_string(value)   ? "text"
           : json_is_array(value)  ? "a list"
           : json_is_object(value) ? "an object"
           : json_is_real(value)   ? "a real number"
                                   : "a whole number or a flag";
}

/* Reads a size, a flag (1 or 0), or the number of named classes (id2label). */
mha_status mha__config_whole(const json_t *value, const char *key, int64_t *number, mha_error *error)
{
    if (json_is_boolean(value))
        *number = json_is_true(value);
    else if (json_is_object(value) && strcmp(key, "id2label") == 0)
        *number = (int64_t)json_object_size(value);
    else if (json_is_integer(value))
        *number = json_integer_value(value);
    else if (json_is_real(value) && fabs(json_real_value(value)) <= (double)MHA_CONFIG_LARGEST &&
             json_real_value(value) == floor(json_real_value(value)))
        *number = (int64_t)json_real_value(value);
    else
        return mha__fail(error, MHA_INVALID, key, "expected a whole number, found %s", kind_of(value));
    if (*number < 0 || *number > MHA_CONFIG_LARGEST)
        return mha__fail(error, MHA_INVALID, key, "expected a number of 0 to 2^40, found %" PRId64, *number);
    return MHA_OK;
}

static bool is_assumed(const mha__setup *setup, const char *keys)
{
    for (size_t i = 0; i < setup->n_assumed; i++)
        if (strcmp(setup->assumed[i].key, keys) == 0)
            return true;
    return false;
}

/* Whether a text, or one of a list of texts, contains the word of a key. */
static mha_status has_word(const json_t *value, const char *name, const mha__arch_key *key, int64_t *number,
                           mha_error *error)
{
    const char *text = json_string_value(value);
    *number = text && strstr(text, key->contains);
    if (!text && (!json_is_array(value) || key->words))
        return mha__fail(error, MHA_INVALID, name, "expected text, found %s", kind_of(value));
    if (key->words && (strchr(text, ' ') || !mha__text_among(key->words, text)))
        return mha__fail(error, MHA_UNSUPPORTED, name, "expected one of %.100s, found '%.*s'", key->words,
                         MHA_CUT_ARGS(40, text));
    for (size_t i = 0; i < json_array_size(value); i++) {
        text = json_string_value(json_array_get(value, i));
        *number |= text && strstr(text, key->contains);
    }
    return MHA_OK;
}

/* A list of [words, times], as GPT-Neo has them, written out; any other list as it is. The caller releases it; NULL: no
 * memory. */
static json_t *written_out(json_t *list)
{
    const json_t *group;
    size_t i;
    if (!json_is_array(json_array_get(json_array_get(list, 0), 0)))
        return json_incref(list);
    json_t *all = json_array();
    json_array_foreach(list, i, group)
    {
        json_t *words = json_array_get(group, 0);
        json_int_t times = json_array_size(words) > 0 ? json_integer_value(json_array_get(group, 1)) : 0;
        for (; times > 0 && json_array_size(all) <= MHA_LIST_LIMIT; times--)
            if (json_array_extend(all, words) != 0) {
                json_decref(all);
                return NULL;
            }
    }
    return all;
}

/* The value of a single key, or of one entry of a list. */
static mha_status read_value(const json_t *value, const char *name, const mha__arch_key *key, const mha__setup *setup,
                             int64_t *number, mha_error *error)
{
    if (!value)
        return mha__expression_evaluate(key->fallback, &setup->values, number, error);
    if (key->contains)
        return has_word(value, name, key, number, error);
    if (key->text && json_is_string(value))
        return mha__expression_evaluate(key->text, &setup->values, number, error);
    if (!key->times && !key->positive)
        return mha__config_whole(value, name, number, error);
    if (!json_is_number(value))
        return mha__fail(error, MHA_INVALID, name, "expected a number, found %s", kind_of(value));
    if (key->positive) {
        *number = json_number_value(value) > 0;
        return MHA_OK;
    }
    TRY(mha__expression_evaluate(key->times, &setup->values, number, error));
    const double product = json_number_value(value) * (double)*number;
    const bool none = product == 0 && strcmp(key->symbol, "rope_dim") != 0; /* of which 0 stands for all features */
    if (!((none || product >= (*number > 0)) && product <= (double)MHA_CONFIG_LARGEST))
        return mha__fail(error, MHA_INVALID, name, "expected 1/%" PRId64 " to 2^40/%" PRId64 ", found %g", *number,
                         *number, json_number_value(value));
    *number = (int64_t)product;
    return MHA_OK;
}

/* The value of "a.*.b" for layer i: the key b of the object that a has under that number, with any zeros before it. */
static json_t *of_layer(const json_t *config, const char *key, int64_t i)
{
    char outer[64];
    const char *name;
    json_t *layer, *found = NULL;
    snprintf(outer, sizeof outer, "%.*s", (int)strcspn(key, "."), key);
    json_object_foreach(json_object_get(config, outer), name, layer)
        if (strtoll(name, NULL, 10) == i)
            found = json_object_get(layer, strrchr(key, '.') + 1);
    return found;
}

/* Fills a symbol that is a list of `length`; one number of the config stands for a list of equals. */
static mha_status fill_list(const json_t *config, const json_t *value, const char *name, const mha__arch_key *key,
                            mha__setup *setup, int64_t *list, int64_t length, mha_error *error)
{
    const bool listed = json_is_array(value);
    const size_t given = json_array_size(value);
    if (listed && !key->members && (given < (size_t)length || (key->words && given > (size_t)length)))
        return mha__fail(error, MHA_INVALID, name, "expected a list of %" PRId64 " entries, found %zu", length, given);
    for (int64_t i = 0; i < length && !(listed && key->members); i++) {
        mha__values_set(&setup->values, "i", i);
        const json_t *entry = listed                                ? json_array_get(value, (size_t)i)
                              : key->keys && strchr(key->keys, '*') ? of_layer(config, key->keys, i)
                                                                    : value;
        TRY(read_value(entry, name, key, setup, &list[i], error));
    }
    mha__values_set(&setup->values, "i", 0);
    for (size_t i = 0; listed && key->members && i < given; i++) {
        int64_t place;
        TRY(mha__config_whole(json_array_get(value, i), name, &place, error));
        if (place < length)
            list[place] = 1;
    }
    return MHA_OK;
}

static mha_status read_list(const json_t *config, json_t *value, const char *name, const mha__arch_key *key,
                            mha__setup *setup, int64_t **made, size_t *count, mha_error *error)
{
    char room[MHA_ARCH_ROW];
    int64_t length = 0;
    TRY(mha__expression_evaluate(key->list, &setup->values, &length, error));
    if (length < 0 || length > MHA_LIST_LIMIT)
        return mha__fail(error, MHA_INVALID, mha__setup_key(setup, key->list, room),
                         "expected a list of 0 to %d entries, found %" PRId64, MHA_LIST_LIMIT, length);
    setup->values.trace->read = 0; /* the length decides no entry */
    int64_t *list = mha__arena_take(&setup->architecture->memory, ((size_t)length + 1) * sizeof *list);
    json_t *entries = value && key->words ? written_out(value) : json_incref(value);
    mha_status status = MHA_OK;
    if (!list || (value && !entries))
        status = mha__fail(error, MHA_NO_MEMORY, name, "no memory for a list of %" PRId64 " entries", length);
    else
        status = fill_list(config, entries, name, key, setup, list, length, error);
    json_decref(entries);
    *made = list;
    *count = (size_t)length;
    return status;
}

uint64_t mha__setup_root(const mha__setup *setup, const mha__arch_key *key)
{
    size_t bit = 0;
    for (const mha__arch_key *k = setup->architecture->keys; k != key; k++)
        bit += k->keys != NULL;
    return key->keys && bit < MHA_ROOTS ? UINT64_C(1) << bit : 0;
}

mha_status mha__setup_read_key(const json_t *config, const mha__arch_key *key, mha__setup *setup, mha_error *error)
{
    char name[64] = "";
    int64_t number = 0, *list = NULL;
    size_t length = 0;
    mha_status status = MHA_OK;
    json_t *value = key->keys ? mha__config_first(config, key->keys, name) : NULL;
    const bool stated = value || (key->keys && stated_null(config, key->keys));
    setup->values.trace->read = 0;
    if (key->list)
        status = read_list(config, value, name, key, setup, &list, &length, error);
    else if (key->null && (value ? is_negative(value) : stated))
        status = mha__expression_evaluate(key->null, &setup->values, &number, error);
    else if (value && key->length)
        number = json_is_object(value) ? 1 : (int64_t)json_array_size(value);
    else
        status = read_value(value, name, key, setup, &number, error);
    if (status == MHA_OK)
        status = mha__symbol_check(setup->architecture, key->symbol, number, error);
    const uint64_t read = setup->values.trace->read;
    int64_t matters = key->list == NULL;
    if (status == MHA_OK && key->matters)
        status = mha__expression_evaluate(key->matters, &setup->values, &matters, error);
    if (status != MHA_OK)
        return mha__symbol_order_blame(setup->architecture, key, &setup->values, status, error);
    if (matters && !stated && key->keys && !is_assumed(setup, key->keys))
        setup->assumed[setup->n_assumed++] = (mha_assumption){key->keys, number};
    if (list ? !mha__values_set_list(&setup->values, key->symbol, list, length)
             : !mha__values_set(&setup->values, key->symbol, number))
        return mha__fail(error, MHA_INVALID, setup->architecture->source,
                         "symbols, %s: expected at most %d symbols of %d letters", key->symbol, MHA_VALUES,
                         MHA_SYMBOL - 1);
    mha__values_mark(&setup->values, key->symbol, stated || !read ? read | mha__setup_root(setup, key) : read);
    return MHA_OK;
}

/* Reads a real number of the config, or the architecture's default, to where it is kept. 0 is taken where it says that
 * there is none; a divisor must not be 0. */
static mha_status read_real(const json_t *config, const mha__arch_real *real, mha__setup *setup, mha_error *error)
{
    char name[64], room[MHA_ARCH_ROW];
    const json_t *value = mha__config_first(config, real->keys, name);
    if (value && !json_is_number(value))
        return mha__fail(error, MHA_INVALID, name, "expected a number, found %s", kind_of(value));
    const double number = value ? json_number_value(value) : real->fallback;
    const bool positive = !mha__text_among("norm_eps softcap query_scale", real->symbol),
               usual = !value && strncmp(real->symbol, "rope", 4) != 0; /* 0, as most models */
    if (number < 0 || (positive && number == 0 && !usual))
        return mha__fail(error, MHA_INVALID,
                         value ? name : mha__architecture_row(setup->architecture, real->symbol, room),
                         "expected a number %s 0, found %g", positive ? "above" : "of at least", number);
    if (real->setting)
        return number == 0 ? MHA_OK : mha_setting_put_number(real->setting, number, &setup->numbers, error);
    *mha__setup_real(setup, real) = number;
    return MHA_OK;
}

mha_status mha__setup_read_reals(const json_t *config, mha__setup *setup, mha_error *error)
{
    for (const mha__arch_real *real = setup->architecture->reals; real && real->symbol; real++)
        TRY(read_real(config, real, setup, error));
    return MHA_OK;
}

mha_status mha__config_sizes(const json_t *config, const mha__size_keys *keys, mha_config *sizes, mha_error *error)
{
    const struct {
        const char *keys;
        size_t *number;
    } all[] = {{keys->d_model, &sizes->d_model},
               {keys->n_heads, &sizes->n_heads},
               {keys->kv_heads, &sizes->kv_heads},
               {keys->d_k, &sizes->d_k}};
    mha_status first = MHA_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char key[64];
        const json_t *value = mha__config_first(config, all[i].keys, key);
        int64_t number = 0;
        const mha_status status = value ? mha__config_whole(value, key, &number, first ? NULL : error) : MHA_OK;
        first = first ? first : status;
        *all[i].number = status == MHA_OK ? (size_t)number : 0;
    }
    return first;
}
