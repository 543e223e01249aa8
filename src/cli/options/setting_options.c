/* The option of a setting, or of a field of a layer, made from its row: name, form, help. */
#include "cli/options/tables.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>


/* Appends to a text of `size` bytes. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

/* Appends a name of `length` letters as an option is spelt: "--window-keep". */
static void append_option(char *text, size_t size, const char *name, size_t length)
{
    const size_t used = strlen(text);
    append(text, size, "--%.*s", (int)length, name);
    for (char *at = text + used; *at; at++)
        *at = *at == '_' ? '-' : *at;
}

/* The words of a choice, without their other spellings. */
static void write_words(const char *choices, char *text, size_t size)
{
    for (size_t length; *choices; choices += length + (choices[length] == '|')) {
        append(text, size, "%s%.*s", *text ? "|" : "", (int)strcspn(choices, "=|"), choices);
        length = strcspn(choices, "|");
    }
}

/* What a setting does: its meaning, the shape of an array, what it needs, other spellings, what holds without it. */
const char *help_of_setting(const mha_setting *s, setting_texts *texts)
{
    enum { size = sizeof texts->help };
    char *text = texts->help;
    *text = '\0';
    append(text, size, "%s", s->meaning);
    if (s->shape)
        append(text, size, "; shape %s", s->shape);
    if (s->needs) {
        const size_t length = strcspn(s->needs, "=");
        append(text, size, "; needs ");
        append_option(text, size, s->needs, length);
        append(text, size, "%s%s", s->needs[length] ? " " : "", s->needs + length + (s->needs[length] == '='));
    }
    for (const char *at = s->aliases; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        const size_t length = strcspn(at, " ");
        if (is_own_option(at, length))
            continue;
        append(text, size, "; also ");
        append_option(text, size, at, length);
    }
    if (s->unset && strcmp(s->unset, "0") != 0)
        append(text, size, " [%s]", s->unset);
    return text;
}

option_row option_of_setting(const mha_setting *s, unsigned commands, setting_texts *texts)
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
    };
    /* a list can have this shape */
    const bool is_row = s->kind == MHA_SETTING_VIEW && s->shape[0] == '(' && !strchr(s->shape, ',');
    const char *form = is_row ? forms[MHA_SETTING_REALS].form : forms[s->kind].form;
    append_option(texts->name, sizeof texts->name, s->name, strlen(s->name));
    if (s->kind == MHA_SETTING_CHOICE)
        write_words(s->choices, texts->form, sizeof texts->form);
    return (option_row){.name = texts->name + strlen("--"),
                        .type = is_row ? LIST : forms[s->kind].type,
                        .form = *texts->form ? texts->form : form,
                        .low = INT64_MIN,
                        .high = INT64_MAX,
                        .section = SECTION_MEANING,
                        .commands = commands};
}

const char *help_of_config(const mha_config_field *f, setting_texts *texts)
{
    enum { size = sizeof texts->help };
    const mha_config_field *other;
    const char *unset = f->unset;
    for (size_t i = 0; unset && (other = mha_config_field_at(i)) != NULL; i++)
        if (strcmp(unset, other->name) == 0)
            unset = other->word;
    *texts->help = '\0';
    append(texts->help, size, "%s", f->meaning);
    if (unset)
        append(texts->help, size, " [%s]", unset);
    return texts->help;
}

option_row option_of_config(const mha_config_field *f, unsigned commands, setting_texts *texts)
{
    static const option_type types[] = {
        [MHA_CONFIG_SIZE] = COUNT, [MHA_CONFIG_SWITCH] = FLAG, [MHA_CONFIG_CHOICE] = CHOICE};
    append_option(texts->name, sizeof texts->name, f->word, strlen(f->word));
    if (f->kind == MHA_CONFIG_CHOICE)
        write_words(f->choices, texts->form, sizeof texts->form);
    return (option_row){.name = texts->name + strlen("--"),
                        .type = types[f->kind],
                        .form = f->kind == MHA_CONFIG_SIZE ? "N" : f->kind == MHA_CONFIG_CHOICE ? texts->form : NULL,
                        .low = f->kind == MHA_CONFIG_SIZE ? 1 : INT64_MIN,
                        .high = f->kind == MHA_CONFIG_SIZE ? INT32_MAX : INT64_MAX,
                        .section = SECTION_SHAPE,
                        .commands = commands};
}
