/* The option of a setting, or of a field of a layer, made from its row: name, form, help. */
#include "cli/options/tables.h"

/* A name of `length` letters as an option is spelt: "window-keep". */
static char *spelt(const char *name, size_t length)
{
    char *text = obtain(length + 1, 1);
    for (size_t i = 0; i < length; i++)
        text[i] = name[i] == '_' ? '-' : name[i];
    return text;
}

/* The words of a choice, without their other spellings. */
static char *words_of(const char *choices)
{
    char *words = obtain(strlen(choices) + 1, 1), *to = words;
    for (bool shown = true; *choices; choices++) {
        shown = *choices == '|' || (shown && *choices != '=');
        if (shown)
            *to++ = *choices;
    }
    return words;
}

/* Appends the option of a name to a kept text. */
static const char *with_option(const char *text, const char *before, const char *name, size_t length)
{
    const char *option = keep(spelt(name, length));
    return text_more(text, "%s--%s", before, option);
}

/* A setting in words: its meaning, the shape of an array, what it needs, other spellings, what holds without it. */
const char *help_of_setting(const mha_setting *s)
{
    const char *text = s->meaning;
    if (s->shape)
        text = text_more(text, "; shape %s", s->shape);
    if (s->needs) {
        const size_t length = strcspn(s->needs, "=");
        text = with_option(text, "; needs ", s->needs, length);
        text = text_more(text, "%s%s", s->needs[length] ? " " : "", s->needs + length + (s->needs[length] == '='));
    }
    for (const char *at = s->aliases; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (!is_own_option(at, strcspn(at, " ")))
            text = with_option(text, "; also ", at, strcspn(at, " "));
    return s->unset && strcmp(s->unset, "0") != 0 ? text_more(text, " [%s]", s->unset) : text;
}

option_row option_of_setting(const mha_setting *s)
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
    const mha_setting_kind kind = is_row ? MHA_SETTING_REALS : s->kind;
    return (option_row){.name = spelt(s->name, strlen(s->name)),
                        .type = forms[kind].type,
                        .form = kind == MHA_SETTING_CHOICE ? words_of(s->choices) : forms[kind].form,
                        .low = INT64_MIN,
                        .high = INT64_MAX,
                        .section = SECTION_MEANING,
                        .commands = commands_with_settings};
}

const char *help_of_config(const mha_config_field *f)
{
    const mha_config_field *other;
    const char *unset = f->unset;
    for (size_t i = 0; unset && (other = mha_config_field_at(i)) != NULL; i++)
        if (strcmp(unset, other->name) == 0)
            unset = other->word;
    return unset ? text_of("%s [%s]", f->meaning, unset) : f->meaning;
}

option_row option_of_config(const mha_config_field *f)
{
    static const option_type types[] = {
        [MHA_CONFIG_SIZE] = COUNT, [MHA_CONFIG_SWITCH] = FLAG, [MHA_CONFIG_CHOICE] = CHOICE};
    const bool size = f->kind == MHA_CONFIG_SIZE;
    return (option_row){.name = spelt(f->word, strlen(f->word)),
                        .type = types[f->kind],
                        .form = size ? "N" : f->kind == MHA_CONFIG_CHOICE ? words_of(f->choices) : NULL,
                        .low = size ? 1 : INT64_MIN,
                        .high = size ? INT32_MAX : INT64_MAX,
                        .section = SECTION_SHAPE,
                        .commands = commands_with_layers};
}
