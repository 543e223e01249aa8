/* mha explain: the values of a configuration's attention layers, the keys that decide them, the keys without effect. */
#include "cli/commands/commands.h"

static const char *text_at(const json_t *record, const char *field)
{
    return json_string_value(json_object_get(record, field));
}

/* A value of the configuration or of a layer, short. */
static const char *value_text(const json_t *value)
{
    if (json_is_null(value) || !value)
        return "none";
    if (json_is_real(value))
        return real_text(json_real_value(value));
    if (json_array_size(value) > 4)
        return text_of("%zu entries", json_array_size(value));
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    const char *kept = json_is_string(value) ? json_string_value(value) : text_of("%s", text ? text : "?");
    free(text);
    return kept;
}

/* "0-4, 6": the numbers of a list, in order. */
static const char *ranges_text(const json_t *list)
{
    const char *text = "";
    for (size_t i = 0, end; i < json_array_size(list); i = end) {
        const json_int_t first = json_integer_value(json_array_get(list, i));
        for (end = i + 1; json_integer_value(json_array_get(list, end)) == first + (json_int_t)(end - i);)
            end++;
        text = text_more(text, "%s%lld", i ? ", " : "", (long long)first);
        if (end - i > 1)
            text = text_more(text, "-%lld", (long long)first + (long long)(end - i) - 1);
    }
    return text;
}

/* ---------------------------------------------------------------- one configuration */

static const char *keys_text(const json_t *row, const char *architecture)
{
    static const char *const fields[] = {"keys", "defaults"};
    const char *text = "";
    json_t *key;
    size_t i;
    for (int f = 0; f < 2; f++)
        json_array_foreach(json_object_get(row, fields[f]), i, key)
            text = text_more(text, "%s%s%s", *text ? ", " : "", json_string_value(key), f ? " (default)" : "");
    return *text ? text : text_of("fixed by %s", architecture);
}

static const char *cache_text(const json_t *kind)
{
    const json_t *rows = json_object_get(kind, "cached_rows");
    const size_t width = (size_t)json_integer_value(json_object_get(kind, "cached_width")),
                 latent = (size_t)json_integer_value(json_object_get(kind, "latent_width"));
    if (!rows || (json_is_integer(rows) && json_integer_value(rows) == 0))
        return "none";
    const bool cross = json_is_true(json_object_get(kind, "cross"));
    const char *of = cross                ? "each encoder token"
                     : json_is_null(rows) ? "each token"
                                          : text_of("the last %s tokens", value_text(rows));
    const char *text = text_of("%zu elements of %s", width, of);
    return latent ? text_more(text, "; as latents %zu", latent) : text;
}

static void print_kind(const json_t *kind, const char *architecture)
{
    static const char *const columns[] = {"value", "is", "from"}, *const remarks[] = {"caveat", "not_run"};
    json_t *row;
    size_t i;
    say("\n%s", bold());
    say_harmless("%s", text_at(kind, "prefix"));
    const long long uses = (long long)json_integer_value(json_object_get(kind, "uses"));
    say("%s, block%s %s%s; cached: %s\n", plain(), json_array_size(json_object_get(kind, "blocks")) == 1 ? "" : "s",
        ranges_text(json_object_get(kind, "blocks")), uses == 1 ? "" : text_of(", %lld times", uses), cache_text(kind));
    for (int k = 0; k < 2; k++)
        if (text_at(kind, remarks[k]))
            say_harmless("  %s%s\n", k ? "not computed: " : "", text_at(kind, remarks[k]));
    table_name(text_of("%s, blocks %s", text_at(kind, "prefix"), ranges_text(json_object_get(kind, "blocks"))));
    table *t = table_create(3, columns);
    json_array_foreach(json_object_get(kind, "values"), i, row)
    {
        table_cell(t, text_at(row, "name"));
        table_cell(t, value_text(json_object_get(row, "value")));
        table_cell(t, keys_text(row, architecture));
    }
    table_print(t);
}

/* Prints the keys with one effect: those with the same reason in one line. */
static void print_keys(const json_t *keys, const char *effect, const char *title)
{
    const char *names = "", *shown = "|";
    json_t *row, *other;
    size_t i, k, found = 0;
    json_array_foreach((json_t *)(uintptr_t)keys, i, row)
    {
        const char *reason = text_at(row, "reason") ? text_at(row, "reason") : "";
        if (strcmp(text_at(row, "effect"), effect) != 0 || strstr(shown, text_of("|%s|", reason)))
            continue;
        names = "";
        json_array_foreach((json_t *)(uintptr_t)keys, k, other)
            if (strcmp(text_at(other, "effect"), effect) == 0 &&
                json_equal(json_object_get(row, "reason"), json_object_get(other, "reason")))
                names = text_more(names, "%s%s", *names ? ", " : "", text_at(other, "key"));
        shown = text_more(shown, "%s|", reason);
        if (found++ == 0)
            say("\n%s%s%s\n", bold(), title, plain());
        const bool told = strcmp(effect, "none") == 0 || strcmp(effect, "other") == 0;
        say_harmless("  %s%s%s\n", names, !told ? "" : *effect == 'n' ? ": unused, " : ": ", told ? reason : "");
    }
}

static void print_report(const json_t *report)
{
    const json_t *keys = json_object_get(report, "keys");
    json_t *kind;
    size_t i;
    say("%s", bold());
    say_harmless("%s", text_at(report, "architecture"));
    const size_t layers = (size_t)json_integer_value(json_object_get(report, "attention_layers"));
    say("%s, %zu attention layer%s\n", plain(), layers, layers == 1 ? "" : "s");
    json_array_foreach(json_object_get(report, "kinds"), i, kind)
        print_kind(kind, text_at(report, "architecture"));
    print_keys(keys, "layers", "Keys that decide how many layers run");
    print_keys(keys, "tensors", "Keys that decide only other tensors");
    print_keys(keys, "costs", "Keys that decide only active parameters, visible keys or operations");
    print_keys(keys, "none", "Keys without effect");
    print_keys(keys, "other", "Keys that decide no number here");
    print_keys(keys, "unknown", "Keys that no known reader uses");
}

/* ---------------------------------------------------------------- two configurations */

static void print_differences(const json_t *list, const char *title, const char *first, const char *a,
                              const char *b)
{
    const char *const columns[] = {first, "layers", a, b};
    json_t *row;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    say("%s%s%s\n\n", bold(), title, plain());
    table_name(title);
    table *t = table_create(4, columns);
    json_array_foreach((json_t *)(uintptr_t)list, i, row)
    {
        table_cell(t, text_at(row, "name"));
        table_cell(t, ranges_text(json_object_get(row, "layers")));
        table_cell(t, value_text(json_object_get(row, "value")));
        table_cell(t, value_text(json_object_get(row, "against")));
    }
    table_print(t);
    say("\n");
}

int run_explain(const arguments *args)
{
    const char *one = args->operands[0], *against = text_for(args, OPT_AGAINST);
    mha_config_explanation *explanation = NULL;
    mha_error error = {0};
    TRY(done_or_refuse(mha_explain(one, against, &explanation, &error), one, &error));
    json_t *report = keep_json(json_loads(mha_config_explanation_json(explanation), 0, NULL));
    const json_t *both = json_object_get(report, "differences"), *numbers = json_object_get(both, "numbers");
    mha_config_explanation_destroy(explanation);
    const bool text = report_is_text(args, report);
    if (text && against) {
        print_differences(numbers, "Differences that change numbers", "value", one, against);
        print_differences(json_object_get(both, "keys"), "Keys with other values", "key", one, against);
        if (json_array_size(numbers) == 0)
            say("No difference changes a number of attention.\n");
    } else if (text)
        print_report(report);
    return json_array_size(numbers) > 0 ? EXIT_NO : EXIT_DONE;
}
