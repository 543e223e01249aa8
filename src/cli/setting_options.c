/* The option of a setting, made from its row: name, form, help. */
#include "cli/setting_options.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/print.h"

/* A name as an option is spelt: '-' for '_'. Must be freed. */
static char *spelt(const char *name)
{
    char *text = text_of("%s", name);
    for (char *at = text; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return text;
}

/* The words of a choice, without their other spellings. */
static char *words_of(const char *choices)
{
    char *text = text_of("%s", choices), *to = text;
    for (const char *from = choices; *from; from += *from == '=' ? strcspn(from, "|") : 1)
        if (*from != '=')
            *to++ = *from;
    *to = '\0';
    return text;
}

/* Appends text to *text, which is replaced. */
__attribute__((format(printf, 2, 3))) static void append(char **text, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *more = text_of_list(format, values), *both = text_of("%s%s", *text, more);
    va_end(values);
    free(more);
    free(*text);
    *text = both;
}

/* What a setting does: its meaning, the shape of an array, what it needs, other spellings, what holds without it. */
static char *help_of(const mha_setting *s)
{
    char *text = text_of("%s", s->meaning);
    if (s->shape)
        append(&text, "; shape %s", s->shape);
    if (s->needs) {
        char *name = spelt(s->needs);
        const size_t length = strcspn(name, "=");
        append(&text, "; needs --%.*s%s%s", (int)length, name, name[length] ? " " : "",
               name[length] ? s->needs + length + 1 : "");
        free(name);
    }
    for (const char *at = s->aliases; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        char *alias = spelt(at);
        alias[strcspn(alias, " ")] = '\0';
        if (!is_own_option(alias))
            append(&text, "; also --%s", alias);
        free(alias);
    }
    if (s->unset && strcmp(s->unset, "0") != 0)
        append(&text, " [%s]", s->unset);
    return text;
}

option_row option_of_setting(const mha_setting *s, unsigned commands)
{
    static const struct {
        option_type type;
        const char *form;
    } forms[MHA_SETTING_KIND_COUNT] = {
        [MHA_SETTING_SWITCH] = {FLAG, NULL},
        [MHA_SETTING_WHOLE] = {INTEGER, "N"},
        [MHA_SETTING_COUNT] = {INTEGER, "N"},
        [MHA_SETTING_REAL] = {REAL, "X"},
        [MHA_SETTING_CHOICE] = {CHOICE, NULL},
        [MHA_SETTING_VIEW] = {FILE_NAME, "FILE[:TENSOR]"},
        [MHA_SETTING_WHOLES] = {LIST, "N,N,...|FILE[:TENSOR]"},
        [MHA_SETTING_REALS] = {LIST, "X,X,...|FILE[:TENSOR]"},
        [MHA_SETTING_COUNTS] = {COUNTS, "N,N,..."},
    };
    /* a list can have this shape */
    const bool is_row = s->kind == MHA_SETTING_VIEW && s->shape[0] == '(' && !strchr(s->shape, ',');
    return (option_row){.name = spelt(s->name),
                        .type = is_row ? LIST : forms[s->kind].type,
                        .form = s->kind == MHA_SETTING_CHOICE ? words_of(s->choices)
                                : is_row                      ? forms[MHA_SETTING_REALS].form
                                                              : forms[s->kind].form,
                        .low = s->kind == MHA_SETTING_COUNTS ? 0 : INT64_MIN,
                        .high = INT64_MAX,
                        .section = SECTION_MEANING,
                        .commands = commands,
                        .help = help_of(s)};
}
