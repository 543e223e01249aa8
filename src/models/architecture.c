/* Reads the description of an architecture: JSON text, built in or a user's own (architectures/README.md). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "mha/model.h"
#include "models/architecture.h"
#include "models/json_text.h"

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

char *mha__architecture_list(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < BUILT_IN && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", built_in[i].name);
    return text;
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

/* What `own` says goes before what `base` says: entry by entry where both have an object, else as a whole. */
static bool merge(json_t *base, json_t *own)
{
    const char *field;
    json_t *value;
    if (json_object_get(own, "classes") && !keep_parts(base))
        return false;
    json_object_foreach(own, field, value)
    {
        json_t *old = json_object_get(base, field);
        const bool entries = json_is_object(old) && json_is_object(value) && strcmp(field, "classes") != 0;
        if (entries ? json_object_update(old, value) != 0 : json_object_set(base, field, value) != 0)
            return false;
    }
    return json_object_del(base, "like") == 0;
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
    return status;
}

/* ---------------------------------------------------------------- JSON to rows */

typedef struct reader {
    mha__architecture *made;
    const char *path;
    mha_error *error;
} reader;

/* What is wrong with an entry of a list: "PATH: tensors.layers, row 3: Object item not found: shape". */
static mha_status wrong(const reader *r, const char *list, const char *entry, const char *why)
{
    return mha__fail(r->error, MHA_FORMAT, r->path, "%.40s, %.60s: %.100s", list, entry, why);
}

/* Judges an entry of which `fields` (blanks between) have been unpacked; jansson's own search for others fails where
 * there is no memory. */
static mha_status unpacked(const reader *r, const char *list, const char *entry, int failed, const json_error_t *why,
                           json_t *object, const char *fields)
{
    char text[100];
    const char *field = strstr(why->text, ": ");
    json_t *value;
    if (failed && json_error_code(why) == json_error_out_of_memory)
        return no_memory(r->path, r->error);
    if (failed && json_error_code(why) == json_error_item_not_found)
        snprintf(text, sizeof text, "expected \"%.60s\", it is not there", field ? field + 2 : "");
    else
        snprintf(text, sizeof text, "%.90s", why->text);
    if (failed)
        return wrong(r, list, entry, text);
    json_object_foreach(object, field, value)
    {
        const size_t length = strlen(field);
        const char *at = length > 0 ? fields : NULL;
        while (at && (at = strstr(at, field)) && !((at == fields || at[-1] == ' ') && strchr(" ", at[length])))
            at++;
        if (at)
            continue;
        snprintf(text, sizeof text, "expected no \"%.60s\"", field);
        return wrong(r, list, entry, text);
    }
    return MHA_OK;
}

/* A formula may be written as a number or a flag: made text, so that all formulas are. */
static mha_status as_text(const reader *r, json_t *entry, const char *field)
{
    char text[32];
    const json_t *value = json_object_get(entry, field);
    if (json_is_boolean(value))
        snprintf(text, sizeof text, "%d", json_is_true(value));
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%" PRId64, (int64_t)json_integer_value(value));
    else
        return MHA_OK;
    return json_object_set_new(entry, field, json_string(text)) == 0 ? MHA_OK : no_memory(r->path, r->error);
}

/* Room for `count` rows and the zero row that ends them. */
static mha_status rows(const reader *r, size_t count, size_t size, const void *list)
{
    void *room = mha__arena_take(&r->made->memory, (count + 1) * size);
    memcpy((void *)(uintptr_t)list, &room, sizeof room);
    return room ? MHA_OK : no_memory(r->path, r->error);
}

static mha_status read_symbols(const reader *r)
{
    json_t *symbols = json_object_get(r->made->text, "symbols"), *entry;
    const char *symbol;
    mha__arch_key *key;
    json_error_t why;
    TRY(rows(r, json_object_size(symbols), sizeof *key, &r->made->keys));
    key = (mha__arch_key *)(uintptr_t)r->made->keys;
    json_object_foreach(symbols, symbol, entry)
    {
        const char *value = NULL;
        TRY(as_text(r, entry, "default"));
        TRY(as_text(r, entry, "value"));
        TRY(as_text(r, entry, "reported_when"));
        const int failed = json_unpack_ex(entry, &why, 0, "{s?s, s?s, s?s, s?s, s?s}", "key", &key->keys,
                                          "default", &key->fallback, "value", &value, "contains", &key->contains,
                                          "reported_when", &key->matters);
        TRY(unpacked(r, "symbols", symbol, failed, &why, entry, "key default value contains reported_when"));
        if (!value == !key->keys || !key->keys != !key->fallback)
            return wrong(r, "symbols", symbol, "expected a value, or a key with a default");
        if (value)
            key->fallback = value;
        key++->symbol = symbol;
    }
    static const char *const needed[] = {"d_model", "h", "h_kv", "d_k"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!json_object_get(symbols, needed[i]))
            return wrong(r, "symbols", needed[i], "expected it to be described, it is not");
    return MHA_OK;
}

static mha_status read_numbers(const reader *r)
{
    static const char *const known[] = {"rope_base", "norm_eps", "softcap", "scale_square"};
    json_t *numbers = json_object_get(r->made->text, "numbers"), *entry;
    const char *symbol;
    mha__arch_real *real;
    json_error_t why;
    TRY(rows(r, json_object_size(numbers), sizeof *real, &r->made->reals));
    real = (mha__arch_real *)(uintptr_t)r->made->reals;
    json_object_foreach(numbers, symbol, entry)
    {
        bool found = false;
        double value = 0;
        real->keys = "";
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || strcmp(symbol, known[i]) == 0;
        if (!found)
            return wrong(r, "numbers", symbol, "expected one of rope_base, norm_eps, softcap, scale_square");
        const int failed = json_unpack_ex(entry, &why, 0, "{s?s, s?F, s?F}", "key", &real->keys, "default",
                                          &real->fallback, "value", &value);
        TRY(unpacked(r, "numbers", symbol, failed, &why, entry, "key default value"));
        if (value != 0)
            real->fallback = value;
        real++->symbol = symbol;
    }
    return MHA_OK;
}

static mha_status read_classes(const reader *r)
{
    json_t *classes = json_object_get(r->made->text, "classes"), *parts;
    const char *name;
    mha__arch_class *row;
    if (json_object_size(classes) == 0)
        return wrong(r, "classes", "", "expected at least one");
    TRY(rows(r, json_object_size(classes), sizeof *row, &r->made->classes));
    row = (mha__arch_class *)(uintptr_t)r->made->classes;
    json_object_foreach(classes, name, parts)
    {
        if (!json_is_string(parts))
            return wrong(r, "classes", name, "expected the names of its parts, with blanks between");
        *row++ = (mha__arch_class){name, json_string_value(parts)};
    }
    return MHA_OK;
}

/* A row of a section of tensors, which gives blocks and prefix. */
static mha_status read_tensor(const reader *r, const char *section, size_t number, json_t *entry,
                              mha__arch_tensor *row)
{
    static const char *const groups[] = {MHA_GROUP_ATTENTION, MHA_GROUP_FFN, MHA_GROUP_NORM, MHA_GROUP_EMBEDDING,
                                         MHA_GROUP_HEAD};
    char list[60], place[40];
    json_error_t why;
    const json_t *buffer = NULL;
    snprintf(list, sizeof list, "tensors.%.40s", section);
    snprintf(place, sizeof place, "row %zu", number + 1);
    TRY(as_text(r, entry, "when"));
    TRY(as_text(r, entry, "tied"));
    const int failed = json_unpack_ex(entry, &why, 0, "{s:s, s:s, s:s, s:s, s?s, s?s, s?s, s?o}", "name",
                                      &row->name, "shape", &row->shape, "group", &row->group, "role", &row->role,
                                      "when", &row->when, "same_as", &row->alias_of, "tied", &row->tied, "buffer",
                                      &buffer);
    TRY(unpacked(r, list, place, failed, &why, entry, "name shape group role when same_as tied buffer"));
    const bool long_integers = json_is_string(buffer) && strcmp(json_string_value(buffer), "I64") == 0;
    if (buffer && !json_is_true(buffer) && !long_integers)
        return wrong(r, list, place, "buffer: expected true, or \"I64\"");
    row->kind = long_integers ? MHA_ARCH_BUFFER_I64 : buffer ? MHA_ARCH_BUFFER : MHA_ARCH_PARAMETER;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strcmp(row->group, groups[i]) == 0)
            return MHA_OK;
    return wrong(r, list, place, "group: expected one of attention, ffn, norm, embedding, head");
}

static mha_status read_tensors(const reader *r)
{
    json_t *sections = json_object_get(r->made->text, "tensors"), *section, *entry;
    const char *name;
    size_t count = 0, i;
    mha__arch_tensor *row;
    json_error_t why;
    json_object_foreach(sections, name, section)
        count += json_array_size(json_object_get(section, "rows"));
    if (count == 0)
        return wrong(r, "tensors", "", "expected at least one");
    TRY(rows(r, count, sizeof *row, &r->made->tensors));
    row = (mha__arch_tensor *)(uintptr_t)r->made->tensors;
    json_object_foreach(sections, name, section)
    {
        mha__arch_tensor all = {.prefix = ""};
        json_t *listed;
        TRY(as_text(r, section, "blocks"));
        const int failed = json_unpack_ex(section, &why, 0, "{s?s, s?s, s:o}", "blocks", &all.blocks,
                                          "prefix", &all.prefix, "rows", &listed);
        TRY(unpacked(r, "tensors", name, failed, &why, section, "blocks prefix rows"));
        if (!json_is_array(listed))
            return wrong(r, "tensors", name, "rows: expected a list");
        json_array_foreach(listed, i, entry)
        {
            *row = all;
            TRY(read_tensor(r, name, i, entry, row++));
        }
    }
    return MHA_OK;
}

static mha_status read_attention(const reader *r)
{
    json_t *layers = json_object_get(r->made->text, "attention"), *entry;
    size_t i;
    mha__arch_attention *row;
    json_error_t why;
    TRY(rows(r, json_array_size(layers), sizeof *row, &r->made->attention));
    row = (mha__arch_attention *)(uintptr_t)r->made->attention;
    json_array_foreach(layers, i, entry)
    {
        char place[40];
        snprintf(place, sizeof place, "row %zu", i + 1);
        static const char *const formulas[] = {"blocks", "when", "uses", "causal"};
        for (size_t f = 0; f < sizeof formulas / sizeof *formulas; f++)
            TRY(as_text(r, entry, formulas[f]));
        const int failed = json_unpack_ex(entry, &why, 0, "{s:s, s?s, s?s, s?s, s?s}", "prefix",
                                          &row->prefix, "blocks", &row->blocks, "when", &row->when, "uses",
                                          &row->uses, "causal", &row->causal);
        TRY(unpacked(r, "attention", place, failed, &why, entry, "prefix blocks when uses causal"));
        row++;
    }
    return MHA_OK;
}

static mha_status read_refusals(const reader *r)
{
    json_t *refused = json_object_get(r->made->text, "refused"), *entry;
    size_t i;
    mha__arch_refusal *row;
    json_error_t why;
    TRY(rows(r, json_array_size(refused), sizeof *row, &r->made->refusals));
    row = (mha__arch_refusal *)(uintptr_t)r->made->refusals;
    json_array_foreach(refused, i, entry)
    {
        char place[40];
        snprintf(place, sizeof place, "row %zu", i + 1);
        const int failed = json_unpack_ex(entry, &why, 0, "{s:s, s:s}", "when", &row->when, "why",
                                          &row->why);
        TRY(unpacked(r, "refused", place, failed, &why, entry, "when why"));
        row++;
    }
    return MHA_OK;
}

static mha_status read_all(const reader *r)
{
    mha__architecture *a = r->made;
    json_error_t why;
    const json_t *lists[6] = {0};
    a->base_prefix = a->caveat = a->parts = "";
    TRY(as_text(r, a->text, "inner_blocks"));
    const int failed = json_unpack_ex(
        a->text, &why, 0, "{s:s, s?s, s?s, s?s, s?s, s?s, s:o, s?o, s:o, s:o, s:o, s?o}", "title", &a->title,
        "parts", &a->parts, "model_prefix", &a->base_prefix, "class_families", &a->class_families, "inner_blocks",
        &a->inner, "caveat", &a->caveat, "symbols", &lists[0], "numbers", &lists[1], "classes", &lists[2], "tensors",
        &lists[3], "attention", &lists[4], "refused", &lists[5]);
    TRY(unpacked(r, "the description", "as a whole", failed, &why, a->text,
                 "title parts model_prefix class_families inner_blocks caveat symbols numbers classes tensors "
                 "attention refused"));
    static const bool is_object[6] = {true, true, true, true, false, false};
    static const char *const names[6] = {"symbols", "numbers", "classes", "tensors", "attention", "refused"};
    for (int i = 0; i < 6; i++)
        if (lists[i] && (is_object[i] ? !json_is_object(lists[i]) : !json_is_array(lists[i])))
            return wrong(r, names[i], "as a whole", is_object[i] ? "expected an object" : "expected a list");
    TRY(read_symbols(r));
    TRY(read_numbers(r));
    TRY(read_classes(r));
    TRY(read_tensors(r));
    TRY(read_attention(r));
    return read_refusals(r);
}

/* ---------------------------------------------------------------- the whole */

mha_status mha__architecture_read(const char *model_type, const char *path, mha__architecture **made, mha_error *error)
{
    const mha_allocator allocator = mha__allocator_default();
    json_t *own = NULL;
    const char *text = path ? NULL : text_of(model_type);
    *made = NULL;
    mha_status status = path ? mha__json_read(path, &own, error)
                             : mha__json_parse(text, strlen(text), model_type, &own, error);
    if (status != MHA_OK)
        return status;
    mha__architecture *a = mha__allocate(&allocator, sizeof *a);
    if (!a) {
        json_decref(own);
        return no_memory(model_type, error);
    }
    a->memory.allocator = allocator;
    mha__text_print(a->name, sizeof a->name, "%s", model_type);
    mha__text_print(a->source, sizeof a->source, "%s", path ? path : model_type);
    const reader r = {a, path ? path : model_type, error};
    status = complete(own, r.path, &a->text, error);
    if (status == MHA_OK)
        status = read_all(&r);
    if (status != MHA_OK) {
        mha__architecture_free(a);
        return status;
    }
    *made = a;
    return MHA_OK;
}

mha_status mha__architecture_blame(const mha__architecture *a, const char *row, mha_status status, mha_error *error)
{
    if (status == MHA_INVALID && error && strcmp(error->name, "expression") == 0)
        mha__text_print(error->name, sizeof error->name, "%.80s, %s", a->source, row);
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
