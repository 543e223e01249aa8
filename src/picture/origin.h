/* Where a picture comes from: the command and the files that were read for it, as every form of it says. */
#ifndef MHA_PICTURE_ORIGIN_H
#define MHA_PICTURE_ORIGIN_H

#include <stddef.h>

/* A file, under the name by which the command knows it. All texts may be foreign. */
typedef struct mha__input {
    const char *path;
    const char *sha256;  /* of its bytes, in 64 hexadecimal digits; NULL where they are not known */
    const char *unknown; /* why they are not; else NULL */
} mha__input;

typedef struct mha__origin {
    const char *command; /* as it could be typed again; NULL: not known */
    size_t input_count;
    const mha__input *inputs;
} mha__origin;

#endif
