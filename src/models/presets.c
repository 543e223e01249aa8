/* The built-in configurations of weights/presets. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "models/model.h"

static const struct {
    const char *name, *config;
} presets[] = {
#include "presets.inc"
};

const char *mha_preset_at(size_t index, const char **config)
{
    if (index >= sizeof presets / sizeof *presets)
        return NULL;
    if (config)
        *config = presets[index].config;
    return presets[index].name;
}

/* Copies the letters and digits of a name in lower case, which makes "GPT-2" and "gpt2" equal. */
static void plain_name(const char *name, char *text, size_t size)
{
    size_t used = 0;
    for (; *name && used + 1 < size; name++)
        if (isalnum((unsigned char)*name))
            text[used++] = (char)tolower((unsigned char)*name);
    text[used] = '\0';
}

/* The preset whose name is at most two letters away, or NULL. */
static const char *nearest_preset(const char *name)
{
    const char *found = NULL;
    char asked[64], known[64];
    plain_name(name, asked, sizeof asked);
    size_t nearest = 3;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        plain_name(presets[i].name, known, sizeof known);
        const size_t distance = mha__text_distance(asked, known);
        if (distance < nearest && distance < strlen(known)) {
            nearest = distance;
            found = presets[i].name;
        }
    }
    return found;
}

mha_status mha__preset_find(const char *name, const char **config, mha_error *error)
{
    size_t count = sizeof presets / sizeof *presets, begin_alike = 0, last = 0, used = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *config = presets[i].config;
            return MHA_OK;
        }
        if (strncmp(presets[i].name, name, strlen(name)) == 0) {
            begin_alike++;
            last = i;
        }
    }
    if (begin_alike == 1) {
        *config = presets[last].config;
        return MHA_OK;
    }
    char list[200] = "", near[80] = "";
    bool all = true;
    for (size_t i = 0; i < count && all; i++) {
        if (begin_alike > 0 && strncmp(presets[i].name, name, strlen(name)) != 0)
            continue;
        all = used + strlen(presets[i].name) + sizeof ", " < sizeof list;
        if (all)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", presets[i].name);
    }
    const char *nearest = begin_alike == 0 ? nearest_preset(name) : NULL;
    if (nearest)
        snprintf(near, sizeof near, "; did you mean %s?", nearest);
    return mha__fail(error, MHA_NOT_FOUND, "preset",
                     "expected one of %s%s (--preset list shows them all), found '%.*s'%s", list, all ? "" : ", ...",
                     MHA_CUT_ARGS(40, name), near);
}
