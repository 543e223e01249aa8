/* The differences of two reports: layer by layer in their values, then in keys that change no number. */
#include <math.h>
#include <string.h>

#include "models/explain/explain.h"

/* Whether two numbers are equal as far as GGUF can say: it stores two numbers of a frequency, a base and a factor, as
 * float32, each with a relative error of up to 2^-24, and the exponents of the base are at most 1. */
static bool near(double a, double b)
{
    return fabs(a - b) <= 0x1p-22 * fmax(fabs(a), fabs(b));
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return near(json_number_value(a), json_number_value(b));
    bool equal = json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b);
    for (size_t i = 0; equal && i < json_array_size(a); i++)
        equal = same(json_array_get(a, i), json_array_get(b, i));
    return equal || json_equal(a, b);
}

/* The record of a value in a kind of layer; NULL: it has none. */
static const json_t *row_of(const json_t *kind, const char *name)
{
    const json_t *row, *list = json_object_get(kind, "values");
    size_t i = 0;
    while ((row = json_array_get(list, i++)) && strcmp(json_string_value(json_object_get(row, "name")), name) != 0)
        ;
    return row;
}

/* The value of a name in a kind of layer, as the weights of the model's own library have it: a converter to GGUF
 * reorders rows for another rotation, and adds 1 to weights of norms. NULL, false and "none" are null. */
static const json_t *meant(const json_t *kind, const char *name)
{
    const json_t *found = json_object_get(row_of(kind, name), "value");
    const char *word = json_string_value(found);
    return json_is_null(found) || json_is_false(found) || (word && strcmp(word, "none") == 0) ? NULL : found;
}

/* Whether a difference of these is one of how a file stores weights, or another way to state the frequencies. */
static bool is_form(const char *name)
{
    return strncmp(name, "fused_", 6) == 0 || strcmp(name, "reordered") == 0 || strcmp(name, "norm_folded") == 0 ||
           strcmp(name, "rope_scaling") == 0;
}

static bool differs(const char *name, const json_t *a, const json_t *b)
{
    const bool rope = strcmp(name, "rope") == 0 && (meant(a, "reordered") != NULL) != (meant(b, "reordered") != NULL),
               one = strcmp(name, "norm_plus_one") == 0 &&
                     (meant(a, "norm_folded") != NULL) != (meant(b, "norm_folded") != NULL);
    const json_t *x = meant(a, name), *y = meant(b, name);
    if (is_form(name) || (rope && x && y && !json_equal(x, y)) || (one && !x != !y))
        return false;
    return !x != !y || (x && !same(x, y));
}

/* Adds a difference, or its layers to a row with the same name and values. Takes over the layers. */
static void add(mha__subject *s, json_t *list, const char *name, json_t *layers, const json_t *a, const json_t *b)
{
    json_t *row = json_object(), *old;
    size_t i;
    mha__report_put(s, row, "name", json_string(name));
    mha__report_put(s, row, "value", a ? json_incref((json_t *)(uintptr_t)a) : json_null());
    mha__report_put(s, row, "against", b ? json_incref((json_t *)(uintptr_t)b) : json_null());
    json_array_foreach(list, i, old)
    {
        json_t *others = json_incref(json_object_get(old, "layers"));
        (void)json_object_del(old, "layers");
        const bool same_row = json_equal(old, row);
        if (same_row)
            s->starved |= json_array_extend(others, layers) != 0;
        mha__report_put(s, old, "layers", others);
        if (same_row) {
            json_decref(layers);
            json_decref(row);
            return;
        }
    }
    mha__report_put(s, row, "layers", layers);
    mha__report_append(s, list, row);
}

/* The kind of a layer; NULL: there are fewer layers. */
static const json_t *kind_with(const json_t *report, json_int_t layer)
{
    json_t *kind, *index;
    size_t i, k;
    json_array_foreach(json_object_get(report, "kinds"), i, kind)
        json_array_foreach(json_object_get(kind, "layers"), k, index)
            if (json_integer_value(index) == layer)
                return kind;
    return NULL;
}

static void compare_layer(mha__subject *s, json_t *list, json_int_t layer, const json_t *a, const json_t *b)
{
    static const char *const cache[] = {"uses", "cross", "cached_rows"};
    const json_t *sides[] = {a, b};
    json_t *row;
    size_t i;
    for (int side = 0; side < 2; side++)
        json_array_foreach(json_object_get(sides[side], "values"), i, row)
        {
            const char *name = json_string_value(json_object_get(row, "name"));
            if (differs(name, a, b) && (side == 0 || !row_of(a, name)))
                add(s, list, name, json_pack("[I]", layer), meant(a, name), meant(b, name));
        }
    for (size_t k = 0; k < sizeof cache / sizeof *cache; k++)
        if (!json_equal(json_object_get(a, cache[k]), json_object_get(b, cache[k])))
            add(s, list, cache[k], json_pack("[I]", layer), json_object_get(a, cache[k]), json_object_get(b, cache[k]));
}

/* Keys of one report with another value, or none, in the other one. Metadata have other keys than a config.json. */
static json_t *other_keys(mha__subject *s, const json_t *a, const json_t *b)
{
    const json_t *sides[] = {json_object_get(a, "keys"), json_object_get(b, "keys")};
    json_t *list = json_array(), *row, *other;
    size_t i, k;
    const bool alike = json_equal(json_object_get(a, "format"), json_object_get(b, "format"));
    for (int side = 0; side < 2 && alike; side++)
        json_array_foreach((json_t *)(uintptr_t)sides[side], i, row)
        {
            const json_t *found = NULL;
            json_array_foreach((json_t *)(uintptr_t)sides[!side], k, other)
                if (json_equal(json_object_get(row, "key"), json_object_get(other, "key")))
                    found = json_object_get(other, "value");
            const json_t *value = json_object_get(row, "value");
            const char *key = json_string_value(json_object_get(row, "key"));
            if (side == 0 && !(found && json_equal(found, value)))
                add(s, list, key, json_array(), value, found);
            else if (side == 1 && !found)
                add(s, list, key, json_array(), NULL, value);
        }
    return list;
}

json_t *mha__report_differences(mha__subject *s, const json_t *report, const json_t *against)
{
    json_t *numbers = json_array(), *both = json_object();
    const json_t *count = json_object_get(report, "attention_layers"),
                 *other = json_object_get(against, "attention_layers"), *a, *b;
    if (!json_equal(count, other))
        add(s, numbers, "attention_layers", json_array(), count, other);
    for (json_int_t layer = 0; (a = kind_with(report, layer)) && (b = kind_with(against, layer)); layer++)
        compare_layer(s, numbers, layer, a, b);
    mha__report_put(s, both, "numbers", numbers);
    mha__report_put(s, both, "keys", other_keys(s, report, against));
    return both;
}
