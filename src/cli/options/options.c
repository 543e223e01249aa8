/* The list of all options, with the options of settings and of layers: finds an option, and refuses given ones. */
#include <ctype.h>

#include "cli/options/tables.h"

/* ---------------------------------------------------------------- the list */

/* Rows of all options: own_options, then one for each setting and each field of a layer. make_rows fills them once. */
static option_row *rows;
static struct {
    const mha_setting *setting;
    const mha_config_field *field;
} *made;
static option_code n_rows;

static void make_rows(void)
{
    size_t n = 0, n_fields = 0;
    while (mha_setting_at(n))
        n++;
    while (mha_config_field_at(n_fields))
        n_fields++;
    rows = obtain(OPTION_COUNT + n + n_fields, sizeof *rows);
    made = obtain(n + n_fields, sizeof *made);
    memcpy(rows, own_options, sizeof own_options);
    n_rows = OPTION_COUNT;
    for (size_t i = 0; i < n + n_fields; i++) {
        const mha_setting *s = mha_setting_at(i);
        const mha_config_field *f = s ? NULL : mha_config_field_at(i - n);
        const char *name = s ? s->name : f->word;
        if (is_own_option(name, strlen(name)) || (!s && f->kind > MHA_CONFIG_CHOICE))
            continue;
        made[n_rows - OPTION_COUNT].setting = s;
        made[n_rows - OPTION_COUNT].field = f;
        rows[n_rows++] = s ? option_of_setting(s) : option_of_config(f);
    }
}

option_code option_count(void)
{
    if (!rows)
        make_rows();
    return n_rows;
}

const option_row *option_at(option_code option)
{
    if (!rows)
        make_rows();
    return &rows[option];
}

const char *option_help(const option_row *row)
{
    const ptrdiff_t at = row - rows - OPTION_COUNT;
    return row->help          ? row->help
           : made[at].setting ? help_of_setting(made[at].setting)
                              : help_of_config(made[at].field);
}

const mha_setting *setting_of(option_code option)
{
    return option >= OPTION_COUNT ? made[option - OPTION_COUNT].setting : NULL;
}

const mha_config_field *field_of(option_code option)
{
    const mha_config_field *f;
    if (option >= OPTION_COUNT)
        return made[option - OPTION_COUNT].field;
    const char *name = own_options[option].name; /* --sinks names a file, which is not the field of that name */
    for (size_t i = 0; own_options[option].type == COUNT && (f = mha_config_field_at(i)) != NULL; i++)
        if (is_spelt(f->word, strlen(f->word), name, strlen(name)))
            return f;
    return NULL;
}

/* Whether one of the aliases of a setting is this name. */
static bool has_alias(const mha_setting *s, const char *name, size_t length)
{
    for (const char *at = s ? s->aliases : NULL; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (is_spelt(at, strcspn(at, " "), name, length))
            return true;
    return false;
}

option_code option_named(command_code command, const char *name, size_t length)
{
    for (option_code o = 0; o < option_count(); o++)
        if (takes(command, o) && (is_spelt(rows[o].name, strlen(rows[o].name), name, length) ||
                                  has_alias(setting_of(o), name, length)))
            return o;
    return option_count();
}

option_code option_of(const mha_setting *s)
{
    option_code o = 0;
    while (o < option_count() && setting_of(o) != s)
        o++;
    return o;
}

option_code given_of(const arguments *args, unsigned sections)
{
    option_code o = 0;
    while (o < option_count() && !(given(args, o) && sections & 1u << rows[o].section))
        o++;
    return o;
}

bool names_file(option_code option, const char *text)
{
    const option_type type = option_at(option)->type;
    const bool numbers = text[strspn(text, "0123456789+-.eE,")] == '\0' && strpbrk(text, "0123456789");
    return type == FILE_NAME || (type == LIST && !numbers);
}

bool option_choice(const char *from, size_t index, char word[32])
{
    for (; index > 0 && from; index--)
        if ((from = strchr(from, '|')))
            from++;
    if (!from)
        return false;
    snprintf(word, 32, "%.*s", (int)strcspn(from, "|"), from);
    return true;
}

mha_dtype dtype_of(const arguments *args, option_code option)
{
    const char *text = text_for(args, option);
    char name[32] = "";
    mha_dtype dtype = MHA_F32;
    for (size_t i = 0; text && i + 1 < sizeof name && text[i]; i++)
        name[i] = (char)toupper((unsigned char)text[i]);
    mha__dtype_find(name, &dtype);
    return dtype;
}

/* ---------------------------------------------------------------- refusing */

int refuse_option_text(option_code option, const char *text)
{
    return refuse(text_of("--%s", option_at(option)->name), "%s", text);
}

int refuse_each(const arguments *args, const option_code *options, const char *expected)
{
    for (; *options != OPTION_COUNT; options++)
        if (given(args, *options))
            return refuse_option(*options, "expected %s", expected);
    return EXIT_DONE;
}

int refuse_fields(const arguments *args, const option_code *kept, const char *expected)
{
    static const option_code biases[] = {OPT_BIAS, OPT_NO_BIAS, OPTION_COUNT};
    for (option_code o = 0; o < option_count(); o++) {
        const option_code *k = kept;
        while (*k != OPTION_COUNT && *k != o)
            k++;
        if (field_of(o) && given(args, o) && *k == OPTION_COUNT)
            return refuse_option(o, "expected %s", expected);
    }
    return refuse_each(args, biases, expected);
}

int refuse_alone(const arguments *args, option_code option, option_code other)
{
    if (!given(args, option) || given(args, other))
        return EXIT_DONE;
    return refuse_option(option, "expected --%s with it, found none", option_at(other)->name);
}

option_code option_of_field(const char *field)
{
    option_code code = 0;
    while (code < option_count() && !is_spelt(field, strlen(field), rows[code].name, strlen(rows[code].name)))
        code++;
    return code;
}

int obey_format(arguments *args)
{
    const char *asked = text_for(args, OPT_FORMAT);
    const char *format = given(args, OPT_CSV) ? "csv" : given(args, OPT_JSON) ? "json" : asked;
    if (given(args, OPT_JSON) && given(args, OPT_CSV))
        return refuse("--csv", "expected nothing with --json, which is another form");
    if (given(args, OPT_FORMAT) && strcmp(asked, format) != 0)
        return refuse("--format", "expected %s with --%s, found %s", format, format, asked);
    args->option[OPT_JSON].given = strcmp(format, "json") == 0;
    tables_styled(format);
    return EXIT_DONE;
}

int refuse_field(const char *about, const mha_error *error)
{
    option_code code = option_of_field(error->name);
    if (code == option_count())
        return refuse_error(about, error);
    mha_error named = *error;
    snprintf(named.name, sizeof named.name, "--%s", option_at(code)->name);
    return refuse_error("", &named);
}

int done_or_refuse_field(mha_status status, const char *about, const mha_error *error)
{
    return status == MHA_OK ? EXIT_DONE : refuse_field(about, error);
}
