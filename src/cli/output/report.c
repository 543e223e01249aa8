/* Shows the records of a report as tables: what a column's fields say, in its format. */
#include "cli/output/report.h"

#include <inttypes.h>

/* ---------------------------------------------------------------- records */

static json_t *add_fields(json_t *record, const char *name, va_list values)
{
    for (; name; name = va_arg(values, const char *))
        json_object_set_new(record, name, va_arg(values, json_t *));
    return record;
}

json_t *record_of(const char *name, ...)
{
    va_list values;
    va_start(values, name);
    json_t *record = add_fields(json_object(), name, values);
    va_end(values);
    return record;
}

json_t *record_with(json_t *record, const char *name, ...)
{
    va_list values;
    va_start(values, name);
    add_fields(record, name, values);
    va_end(values);
    return record;
}

json_t *json_whole(long n)
{
    return json_integer(n);
}

json_t *records_where(const json_t *list, const char *field, const char *word)
{
    json_t *found = keep_json(json_array()), *record;
    size_t i;
    json_array_foreach(list, i, record)
    {
        const json_t *value = json_object_get(record, field);
        if (word ? strcmp(json_string_value(value), word) == 0
                 : value && !json_is_null(value) && !json_is_false(value))
            json_array_append(found, record);
    }
    return found;
}

/* ---------------------------------------------------------------- cells */

/* A field as its type has it. */
static const char *plain_text(const json_t *value)
{
    const json_int_t n = json_integer_value(value);
    const int rank = (int)json_array_size(value);
    size_t shape[8] = {0};
    switch (json_typeof(value)) {
    case JSON_STRING: return json_string_value(value);
    case JSON_INTEGER:
        return tables_style() == TABLE_CSV
                   ? text_of("%" JSON_INTEGER_FORMAT, n)
                   : text_of("%s%s", n < 0 ? "-" : "", count_text(n < 0 ? 0 - (uint64_t)n : (uint64_t)n));
    case JSON_ARRAY:
        for (size_t i = 0; i < (size_t)rank && i < sizeof shape / sizeof *shape; i++)
            shape[i] = (size_t)json_integer_value(json_array_get(value, i));
        return shape_text(rank, shape);
    case JSON_REAL: return real_text(json_real_value(value));
    default: return json_is_true(value) ? "true" : "false";
    }
}

/* A field in one conversion, "%.3g". */
static const char *converted(const char *conversion, const json_t *value)
{
    const char kind = conversion[strlen(conversion) - 1];
    if (kind == 's' || (kind == 'B' && tables_style() == TABLE_CSV))
        return plain_text(value);
    if (kind == 'B')
        return bytes_text((uint64_t)json_integer_value(value));
    if (kind == 'd')
        return text_of("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    char text[SHORT_TEXT];
    snprintf(text, sizeof text, conversion, json_number_value(value));
    return text_of("%s", text);
}

/* One part of a column's description, number `part` from 0 on; "" where it is left out. */
static const char *part_of(const char *column, size_t part)
{
    for (; part > 0 && column; part--) {
        column = strstr(column, ": ");
        column = column ? column + 2 : NULL;
    }
    const char *end = column ? strstr(column, ": ") : NULL;
    return text_of("%.*s", (int)(end ? (size_t)(end - column) : column ? strlen(column) : 0), column ? column : "");
}

/* The fields of a record that a format shows; NULL for a field that it lacks. */
static const char *filled(const char *format, const char *fields, const json_t *record, bool words)
{
    const char *cell = "";
    char conversion[16], field[64];
    while (*format) {
        const size_t before = strcspn(format, "%");
        const bool percent = format[before] && format[before + 1] == '%';
        cell = text_more(cell, "%.*s%s", (int)before, format, percent ? "%" : "");
        format += before + (percent ? 2 : 0);
        if (percent || !*format)
            continue;
        snprintf(conversion, sizeof conversion, "%.*s", (int)strcspn(format, "sdBefg") + 1, format);
        snprintf(field, sizeof field, "%.*s", (int)strcspn(fields, " "), fields);
        format += strlen(conversion);
        fields += strlen(field) + (fields[strlen(field)] == ' ');
        const json_t *value = json_object_get(record, field);
        const char *word = json_word_of(value);
        if (!value || json_is_null(value) || (word && !words))
            return NULL;
        cell = text_more(cell, "%s", word ? word : converted(conversion, value));
    }
    return cell;
}

/* ---------------------------------------------------------------- tables */

static void add_row(table *t, const json_t *record)
{
    const char *column;
    const size_t before = kept_count();
    for (size_t c = 0; (column = table_column(t, c)); c++) {
        const char *fields = part_of(column, 1), *format = part_of(column, 2), *none = part_of(column, 3);
        const char *cell = filled(*format ? format : "%s", fields, record, !*none);
        table_cell(t, cell ? cell : none);
        drop_kept(before);
    }
    const json_t *then = json_object_get(record, "~then");
    if (then)
        add_row(t, then);
}

void report_row(table *t, json_t *record)
{
    add_row(t, record);
    json_decref(record);
}

/* Whether a record has the first field of a column, which may be null. */
static bool is_known(const json_t *records, const char *column)
{
    size_t i;
    const json_t *record;
    const char *fields = part_of(column, 1), *field = text_of("%.*s", (int)strcspn(fields, " "), fields);
    bool known = json_array_size(records) == 0;
    json_array_foreach(records, i, record) known |= json_object_get(record, field) != NULL;
    return known;
}

void report_table(const json_t *records, size_t n_columns, const char *const *columns)
{
    const char **known = keep(obtain(n_columns, sizeof *known));
    size_t n = 0, i;
    const json_t *record;
    for (size_t c = 0; c < n_columns; c++)
        if (is_known(records, columns[c]))
            known[n++] = columns[c];
    table *t = table_create(n, known);
    json_array_foreach(records, i, record)
    {
        add_row(t, record);
    }
    table_print(t);
}

void report_names(const json_t *names)
{
    const char *text = "";
    size_t i;
    const json_t *name;
    json_array_foreach(names, i, name)
    {
        text = text_more(text, "%s%s", i ? ", " : "", json_string_value(name));
    }
    write_prose("%s", text);
}

/* ---------------------------------------------------------------- which form */

bool report_is_text(const arguments *args, json_t *root)
{
    if (given(args, OPT_JSON))
        json_print(json_incref(root));
    return !given(args, OPT_JSON) && !given(args, OPT_QUIET);
}
