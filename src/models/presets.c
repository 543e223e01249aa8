/* The configurations of weights/presets, built in. */
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
    char list[300] = "";
    for (size_t i = 0; i < count && used < sizeof list; i++)
        if (begin_alike == 0 || strncmp(presets[i].name, name, strlen(name)) == 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", presets[i].name);
    return mha__fail(error, MHA_NOT_FOUND, "preset", "expected one of %s%s, found '%.*s'", list,
                    used >= sizeof list ? "..." : "", MHA_CUT_ARGS(40, name));
}
