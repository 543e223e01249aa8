/* Layers of a picture. */
#include <string.h>

#include "picture/picture.h"

const char *mha__picture_text(mha__picture *picture, const char *text)
{
    return mha__arena_text(&picture->memory, text, strlen(text));
}

mha_status mha__picture_random_of(mha__picture *picture, const mha_file *file, mha_error *error)
{
    const char *said = mha_file_metadata(file, "random");
    if (said && !picture->random && !(picture->random = mha__picture_text(picture, said)))
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory to say what is random");
    return MHA_OK;
}

mha_status mha__picture_grow(mha__picture *picture, const char *name, mha__picture_layer **layer, mha_error *error)
{
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    const char *copy = mha__picture_text(picture, name);
    mha__picture_layer *layers = mha__arena_more(&picture->memory, picture->layers, picture->layer_count,
                                                 &picture->layer_room, sizeof *layers);
    if (!copy || !layers)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu layers", picture->layer_count + 1);
    picture->layers = layers;
    *layer = &layers[picture->layer_count++];
    **layer = (mha__picture_layer){.name = copy};
    return MHA_OK;
}

void mha__picture_free(mha__picture *picture)
{
    mha__arena_free(&picture->memory);
    *picture = (mha__picture){0};
}
