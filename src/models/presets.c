/* The configurations of weights/presets, built in. */
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

const char *mha_preset_text(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0)
            return presets[i].config;
    return NULL;
}
