/* The settings of a call that differ from plain attention, in the order of their table. */
#include "cli/setup/meaning.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "mha/setting.h"

enum { VALUE_TEXT = 300 };

/* Whether a setting is told: where it is given. Norms have a kind where the layer has norms, and an epsilon only
 * there, though a model states one without. */
static bool is_told(const meaning_of *of, const mha_setting *s)
{
    if (strcmp(s->name, "norm_kind") == 0 && of->normed)
        return true;
    if (strcmp(s->name, "norm_eps") == 0 && !(of->normed || of->latent || of->semantics->qkv.norm.unweighted))
        return false;
    return mha_setting_given(s, of->semantics);
}

static const char *value_text(const meaning_of *of, const mha_setting *s, char text[VALUE_TEXT])
{
    mha_setting_text(s, of->semantics, text, VALUE_TEXT);
    if (s->kind == MHA_SETTING_REAL) /* in fewer digits than it takes to read it back */
        snprintf(text, VALUE_TEXT, "%g", mha_setting_number(s, of->semantics));
    else if (of->scaling && strcmp(s->name, "rope_frequencies") == 0)
        snprintf(text, VALUE_TEXT, "scaled: %s", of->scaling);
    return text;
}

void meaning_text(const meaning_of *of, char text[MEANING_TEXT])
{
    char value[VALUE_TEXT];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; mha_setting_at(i); i++) {
        const mha_setting *s = mha_setting_at(i);
        const bool plain = s->kind == MHA_SETTING_SWITCH;
        if (!is_told(of, s))
            continue;
        mha__text_print(text + used, MEANING_TEXT - used, "%s%s%s%s", used ? ", " : "", s->name, plain ? "" : " ",
                        plain ? "" : value_text(of, s, value));
        used += strlen(text + used);
    }
}

static json_t *value_json(const meaning_of *of, const mha_setting *s)
{
    char text[VALUE_TEXT];
    switch (s->kind) {
    case MHA_SETTING_SWITCH: return json_true();
    case MHA_SETTING_WHOLE:
    case MHA_SETTING_COUNT: return json_integer((json_int_t)mha_setting_number(s, of->semantics));
    case MHA_SETTING_REAL: return json_real(mha_setting_number(s, of->semantics));
    default: return json_string(value_text(of, s, text));
    }
}

json_t *meaning_json(const meaning_of *of)
{
    json_t *object = json_object();
    for (size_t i = 0; mha_setting_at(i); i++) {
        const mha_setting *s = mha_setting_at(i);
        if (!is_told(of, s))
            continue;
        json_object_set_new(object, s->name, value_json(of, s));
    }
    return object;
}
