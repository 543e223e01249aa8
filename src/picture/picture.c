/* Layers of a picture. */
#include <string.h>

#include "picture/picture.h"

const char *mha__picture_text(mha__picture *picture, const char *text)
{
    const size_t length = strlen(text);
    char *copy = mha__arena_take(&picture->memory, length + 1);
    if (copy)
        memcpy(copy, text, length);
    return copy;
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
    const size_t count = picture->layer_count;
    if (count == picture->layer_room) {
        const size_t room = count ? 2 * count : 4;
        mha__picture_layer *layers = mha__arena_take(&picture->memory, room * sizeof *layers);
        if (!layers)
            return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu layers", count + 1);
        if (count > 0)
            memcpy(layers, picture->layers, count * sizeof *layers);
        picture->layers = layers;
        picture->layer_room = room;
    }
    const char *copy = mha__picture_text(picture, name);
    if (!copy)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for the name of a layer");
    *layer = &picture->layers[count];
    **layer = (mha__picture_layer){.name = copy};
    picture->layer_count++;
    return MHA_OK;
}

void mha__picture_free(mha__picture *picture)
{
    mha__arena_free(&picture->memory);
    *picture = (mha__picture){0};
}
