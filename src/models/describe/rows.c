/* Turns the description of an architecture, as JSON, into the rows of architecture.h; what is wrong is named with its
 * row. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "models/describe/architecture.h"

typedef struct reader {
    mha__architecture *made;
    mha_error *error;
} reader;

static mha_status no_memory(const reader *r)
{
    return mha__fail(r->error, MHA_NO_MEMORY, r->made->source, "no memory for the description of an architecture");
}

/* The fault of an entry of a list: "PATH: tensors.layers, row 3: expected "shape", it is not there". */
static mha_status wrong(const reader *r, const char *list, const char *entry, const char *why)
{
    return mha__fail(r->error, MHA_FORMAT, r->made->source, "%.40s, %.60s: %.100s", list, entry, why);
}

/* Checks an entry with unpacked `fields` (blanks between); jansson's own search for others fails where
 * there is no memory. */
static mha_status unpacked(const reader *r, const char *list, const char *entry, int failed, const json_error_t *why,
                           json_t *object, const char *fields)
{
    char text[100];
    const char *field = strstr(why->text, ": ");
    json_t *value;
    if (failed && json_error_code(why) == json_error_out_of_memory)
        return no_memory(r);
    if (failed && json_error_code(why) == json_error_item_not_found)
        snprintf(text, sizeof text, "expected \"%.60s\", it is not there", field ? field + 2 : "");
    else
        snprintf(text, sizeof text, "%.90s", why->text);
    if (failed)
        return wrong(r, list, entry, text);
    json_object_foreach(object, field, value)
        if (!mha__text_among(fields, field)) {
            snprintf(text, sizeof text, "expected no \"%.60s\"", field);
            return wrong(r, list, entry, text);
        }
    return MHA_OK;
}

/* Formulas may be written as numbers or flags: made text, so that all formulas are. */
static mha_status as_text(const reader *r, json_t *entry, const char *const *fields, size_t count)
{
    char text[32];
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(entry, fields[i]);
        if (json_is_boolean(value))
            snprintf(text, sizeof text, "%d", json_is_true(value));
        else if (json_is_integer(value))
            snprintf(text, sizeof text, "%" PRId64, (int64_t)json_integer_value(value));
        else
            continue;
        if (json_object_set_new(entry, fields[i], json_string(text)) != 0)
            return no_memory(r);
    }
    return MHA_OK;
}
#define AS_TEXT(r, entry, ...)                                                                                         \
    as_text(r, entry, (const char *const[]){__VA_ARGS__},                                                              \
            sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *))

/* ---------------------------------------------------------------- lists */

/* Reads an entry into a zeroed row. `place` is the entry's name, which lasts as long as the description, or its number
 * in a list. */
typedef mha_status read_entry(const reader *r, const char *list, const char *place, json_t *entry, void *row);

static size_t size_of(const json_t *entries)
{
    return json_is_object(entries) ? json_object_size(entries) : json_array_size(entries);
}

/* Reads all entries of an object or a list into rows of `size` bytes. */
static mha_status read_entries(const reader *r, const char *list, json_t *entries, read_entry *read, void *rows,
                               size_t size)
{
    char *row = rows, place[40];
    const char *name;
    json_t *entry;
    size_t i;
    json_object_foreach(entries, name, entry)
    {
        TRY(read(r, list, name, entry, row));
        row += size;
    }
    json_array_foreach(entries, i, entry)
    {
        snprintf(place, sizeof place, "row %zu", i + 1);
        TRY(read(r, list, place, entry, row));
        row += size;
    }
    return MHA_OK;
}

/* The same into *rows, which is made with the zero row that ends it. */
#define READ_LIST(r, list, entries, read, rows)                                                                        \
    ((*(rows) = mha__arena_take(&(r)->made->memory, (size_of(entries) + 1) * sizeof **(rows)))                         \
         ? read_entries(r, list, entries, read, (void *)(uintptr_t)*(rows), sizeof **(rows))                           \
         : no_memory(r))

/* ---------------------------------------------------------------- one entry of each list */

static mha_status read_symbol(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    mha__arch_key *key = row;
    const char *value = NULL;
    json_error_t why;
    TRY(AS_TEXT(r, entry, "default", "value", "reported_when", "list", "times", "null", "text"));
    const int failed = json_unpack_ex(
        entry, &why, 0, "{s?s, s?s, s?s, s?s, s?s, s?s, s?s, s?s, s?b, s?b, s?s, s?s, s?b}", "key", &key->keys,
        "default", &key->fallback, "value", &value, "contains", &key->contains, "words", &key->words, "reported_when",
        &key->matters, "list", &key->list, "times", &key->times, "members", &key->members, "length", &key->length,
        "null", &key->null, "text", &key->text, "positive", &key->positive);
    TRY(unpacked(r, list, place, failed, &why, entry,
                 "key default value contains words reported_when list times members length null text positive"));
    if (!value == !key->keys || !key->keys != !key->fallback)
        return wrong(r, list, place, "expected a value, or a key with a default");
    if (key->members && !key->list)
        return wrong(r, list, place, "members: expected a list");
    if (key->words && !key->contains)
        return wrong(r, list, place, "words: expected what the symbol looks for in them (contains)");
    if (value)
        key->fallback = value;
    key->symbol = place;
    return MHA_OK;
}

static mha_status read_number(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    mha__arch_real *real = row;
    double value = 0;
    json_error_t why;
    real->setting = mha_setting_find(strcmp(place, "query_scale") == 0 ? "query_scale_growth" : place);
    if (real->setting ? real->setting->kind != MHA_SETTING_REAL
                      : !mha__text_among("rope_local_base scale_square", place))
        return wrong(r, list, place,
                     "expected a setting that is a real number, query_scale, rope_local_base or scale_square");
    real->keys = "";
    const int failed = json_unpack_ex(entry, &why, 0, "{s?s, s?F, s?F}", "key", &real->keys, "default",
                                      &real->fallback, "value", &value);
    TRY(unpacked(r, list, place, failed, &why, entry, "key default value"));
    if (value != 0)
        real->fallback = value;
    if (!(real->fallback >= 0))
        return wrong(r, list, place, "expected a number of at least 0");
    real->symbol = place;
    return MHA_OK;
}

static mha_status read_class(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    if (!json_is_string(entry))
        return wrong(r, list, place, "expected the names of its parts, with blanks between");
    *(mha__arch_class *)row = (mha__arch_class){place, json_string_value(entry)};
    return MHA_OK;
}

static mha_status read_tensor(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    mha__arch_tensor *tensor = row;
    json_error_t why;
    const json_t *buffer = NULL;
    TRY(AS_TEXT(r, entry, "when", "tied", "tokens", "frozen"));
    const int failed = json_unpack_ex(entry, &why, 0, "{s:s, s:s, s:s, s:s, s?s, s?s, s?s, s?s, s?o, s?b, s?b, s?s}",
                                      "name", &tensor->name, "shape", &tensor->shape, "group", &tensor->group, "role",
                                      &tensor->role, "when", &tensor->when, "same_as", &tensor->alias_of, "tied",
                                      &tensor->tied, "frozen", &tensor->frozen, "buffer", &buffer, "unsaved",
                                      &tensor->unsaved, "routed", &tensor->routed, "tokens", &tensor->tokens);
    TRY(unpacked(r, list, place, failed, &why, entry,
                 "name shape group role when same_as tied frozen buffer unsaved routed tokens"));
    const bool long_integers = json_is_string(buffer) && strcmp(json_string_value(buffer), "I64") == 0;
    if (buffer && !json_is_true(buffer) && !long_integers)
        return wrong(r, list, place, "buffer: expected true, or \"I64\"");
    tensor->kind = long_integers ? MHA_ARCH_BUFFER_I64 : buffer ? MHA_ARCH_BUFFER : MHA_ARCH_PARAMETER;
    if (!mha__text_among(MHA_GROUP_ATTENTION " " MHA_GROUP_FFN " " MHA_GROUP_NORM " " MHA_GROUP_EMBEDDING
                                             " " MHA_GROUP_HEAD,
                         tensor->group))
        return wrong(r, list, place, "group: expected one of attention, ffn, norm, embedding, head");
    return MHA_OK;
}

static mha_status read_own(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    if (!json_is_string(entry))
        return wrong(r, list, place, "expected a formula as text");
    *(mha__arch_own *)row = (mha__arch_own){place, json_string_value(entry)};
    return MHA_OK;
}

static mha_status read_layer(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    mha__arch_attention *layer = row;
    json_error_t why;
    json_t *own = NULL;
    TRY(AS_TEXT(r, entry, "blocks", "inner", "when", "uses", "causal", "tokens", "keys", "windows"));
    const int failed = json_unpack_ex(
        entry, &why, 0, "{s:s, s?s, s?s, s?s, s?s, s?s, s?o, s?s, s?s, s?s, s?s, s?s, s?s, s?b, s?b}", "prefix",
        &layer->prefix, "blocks", &layer->blocks, "inner", &layer->inner, "when", &layer->when, "uses", &layer->uses,
        "causal", &layer->causal, "own", &own, "bias_table", &layer->bias_table, "relative_table",
        &layer->relative_table, "relative_norm", &layer->relative_norm, "tokens", &layer->tokens, "keys", &layer->keys,
        "windows", &layer->windows, "cross", &layer->cross, "uncached", &layer->uncached);
    TRY(unpacked(r, list, place, failed, &why, entry,
                 "prefix blocks inner when uses causal own bias_table relative_table relative_norm tokens keys windows "
                 "cross uncached"));
    if (own && !json_is_object(own))
        return wrong(r, list, place, "own: expected an object");
    return READ_LIST(r, list, own, read_own, &layer->own);
}

static mha_status read_refusal(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    mha__arch_refusal *refusal = row;
    json_error_t why;
    const int failed = json_unpack_ex(entry, &why, 0, "{s:s, s:s}", "when", &refusal->when, "why", &refusal->why);
    return unpacked(r, list, place, failed, &why, entry, "when why");
}

static mha_status read_state(const reader *r, const char *list, const char *place, json_t *entry, void *row)
{
    mha__arch_state *state = row;
    json_error_t why;
    TRY(AS_TEXT(r, entry, "blocks", "when"));
    const int failed = json_unpack_ex(entry, &why, 0, "{s?s, s?s, s:s, s:s}", "blocks", &state->blocks, "when",
                                      &state->when, "products", &state->products, "elements", &state->elements);
    return unpacked(r, list, place, failed, &why, entry, "blocks when products elements");
}

/* ---------------------------------------------------------------- the whole */

static mha_status read_tensors(const reader *r, json_t *sections)
{
    json_t *section;
    const char *name;
    size_t count = 0;
    json_error_t why;
    json_object_foreach(sections, name, section)
        count += json_array_size(json_object_get(section, "rows"));
    if (count == 0)
        return wrong(r, "tensors", "as a whole", "expected at least one");
    mha__arch_tensor *row = mha__arena_take(&r->made->memory, (count + 1) * sizeof *row);
    if (!row)
        return no_memory(r);
    r->made->tensors = row;
    json_object_foreach(sections, name, section)
    {
        mha__arch_tensor all = {.prefix = ""};
        json_t *listed;
        char list[60];
        TRY(AS_TEXT(r, section, "blocks", "inner", "when", "tokens"));
        const int failed = json_unpack_ex(section, &why, 0, "{s?s, s?s, s?s, s?s, s?b, s?s, s:o}", "blocks",
                                          &all.blocks, "inner", &all.inner, "prefix", &all.prefix, "when", &all.section,
                                          "routed", &all.routed, "tokens", &all.tokens, "rows", &listed);
        TRY(unpacked(r, "tensors", name, failed, &why, section, "blocks inner prefix when routed tokens rows"));
        if (!json_is_array(listed))
            return wrong(r, "tensors", name, "rows: expected a list");
        for (size_t i = 0; i < json_array_size(listed); i++)
            row[i] = all;
        snprintf(list, sizeof list, "tensors.%.40s", name);
        TRY(read_entries(r, list, listed, read_tensor, row, sizeof *row));
        row += json_array_size(listed);
    }
    return MHA_OK;
}

mha_status mha__architecture_read_rows(mha__architecture *a, mha_error *error)
{
    enum { SYMBOLS, NUMBERS, CLASSES, TENSORS, ATTENTION, REFUSED, NOT_RUN, NOT_COUNTED, STATES, LISTS };
    static const char *const names[LISTS] = {"symbols", "numbers", "classes",     "tensors", "attention",
                                             "refused", "not_run", "not_counted", "states"};
    static const char *const needed[] = {"d_model", "h", "h_kv", "d_k"};
    const reader at = {a, error}, *r = &at;
    json_error_t why;
    json_t *lists[LISTS] = {0};
    a->base_prefix = a->caveat = a->parts = a->no_effect = "";
    const int failed = json_unpack_ex(
        a->text, &why, 0, "{s:s, s?s, s?s, s?s, s?s, s?s, s:o, s?o, s:o, s:o, s:o, s?o, s?o, s?o, s?o}", "title",
        &a->title, "parts", &a->parts, "model_prefix", &a->base_prefix, "class_families", &a->class_families, "caveat",
        &a->caveat, "no_effect", &a->no_effect, "symbols", &lists[SYMBOLS], "numbers", &lists[NUMBERS], "classes",
        &lists[CLASSES], "tensors", &lists[TENSORS], "attention", &lists[ATTENTION], "refused", &lists[REFUSED],
        "not_run", &lists[NOT_RUN], "not_counted", &lists[NOT_COUNTED], "states", &lists[STATES]);
    TRY(unpacked(r, "the description", "as a whole", failed, &why, a->text,
                 "title parts model_prefix class_families caveat no_effect symbols numbers classes tensors attention "
                 "refused not_run not_counted states"));
    for (int i = 0; i < LISTS; i++) {
        const bool has_names = i < ATTENTION;
        if (lists[i] && (has_names ? !json_is_object(lists[i]) : !json_is_array(lists[i])))
            return wrong(r, names[i], "as a whole", has_names ? "expected an object" : "expected a list");
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!json_object_get(lists[SYMBOLS], needed[i]))
            return wrong(r, "symbols", needed[i], "expected it to be described, it is not");
    if (size_of(lists[CLASSES]) == 0)
        return wrong(r, "classes", "as a whole", "expected at least one");
    TRY(READ_LIST(r, "symbols", lists[SYMBOLS], read_symbol, &a->keys));
    TRY(READ_LIST(r, "numbers", lists[NUMBERS], read_number, &a->reals));
    TRY(READ_LIST(r, "classes", lists[CLASSES], read_class, &a->classes));
    TRY(read_tensors(r, lists[TENSORS]));
    TRY(READ_LIST(r, "attention", lists[ATTENTION], read_layer, &a->attention));
    TRY(READ_LIST(r, "refused", lists[REFUSED], read_refusal, &a->refusals));
    TRY(READ_LIST(r, "not_run", lists[NOT_RUN], read_refusal, &a->not_run));
    TRY(READ_LIST(r, "not_counted", lists[NOT_COUNTED], read_refusal, &a->not_counted));
    return READ_LIST(r, "states", lists[STATES], read_state, &a->states);
}
