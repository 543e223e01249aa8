/* The built-in configurations of weights/presets. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
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

static size_t distance_of(const char *name, const char *preset)
{
    char asked[64], known[64];
    plain_name(name, asked, sizeof asked);
    plain_name(preset, known, sizeof known);
    const size_t distance = mha__text_distance(asked, known);
    return distance < strlen(known) ? distance : SIZE_MAX;
}

/* The preset whose name is less than `past` letters away, or NULL. */
static const char *nearest_preset(const char *name, size_t past)
{
    const char *found = NULL;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const size_t distance = distance_of(name, presets[i].name);
        if (distance < past) {
            past = distance;
            found = presets[i].name;
        }
    }
    return found;
}

/* Whether a preset begins with what was asked for, to the letter or in its plain name. */
static bool begins(const char *preset, const char *name, bool plain)
{
    char asked[64], known[64];
    if (!plain)
        return strncmp(preset, name, strlen(name)) == 0;
    plain_name(name, asked, sizeof asked);
    plain_name(preset, known, sizeof known);
    return *asked && strncmp(known, asked, strlen(asked)) == 0;
}

/* How many presets begin with a name, and the last of them. */
static size_t count_alike(const char *name, bool plain, size_t *last)
{
    size_t alike = 0;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (begins(presets[i].name, name, plain)) {
            alike++;
            *last = i;
        }
    return alike;
}

mha_status mha__preset_find(const char *name, const char **config, mha_error *error)
{
    size_t count = sizeof presets / sizeof *presets, last = 0, used = 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(presets[i].name, name) == 0) {
            *config = presets[i].config;
            return MHA_OK;
        }
    size_t alike = count_alike(name, false, &last);
    if (alike == 1) {
        *config = presets[last].config;
        return MHA_OK;
    }
    const bool plain = alike == 0;
    if (plain)
        alike = count_alike(name, plain, &last);
    /* among names that begin alike, another is no better guess */
    const char *nearest = plain ? nearest_preset(name, alike ? 1 : 3) : NULL;
    if (nearest)
        return mha__fail(error, MHA_NOT_FOUND, "preset",
                         "expected a preset, found '%.*s'; did you mean %s? --preset list shows all",
                         MHA_CUT_ARGS(40, name), nearest);
    char list[200] = "";
    bool all = true;
    for (size_t i = 0; i < count && all; i++) {
        if (alike > 0 && !begins(presets[i].name, name, plain))
            continue;
        all = used + strlen(presets[i].name) + sizeof ", " < sizeof list;
        if (all)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", presets[i].name);
    }
    return mha__fail(error, MHA_NOT_FOUND, "preset",
                     "expected one of %s%s (--preset list shows them all), found '%.*s'", list, all ? "" : ", ...",
                     MHA_CUT_ARGS(40, name));
}
