/* The data of a page as a list of pieces: a description in JSON, then arrays of numbers. */
#ifndef MHA_PICTURE_PAGE_PAGE_H
#define MHA_PICTURE_PAGE_PAGE_H

#include "picture/picture.h"

/* How numbers are stored; all are little-endian. LEVEL: 0 for a weight below 1e-6, 1 to 253 for the steps of
 * 10^(6/252) from 1e-6 to 1, 254 for NaN, 255 for hidden. */
typedef enum mha__page_type {
    MHA__PAGE_F64,
    MHA__PAGE_F32,
    MHA__PAGE_LEVEL,
    MHA__PAGE_U32,
    MHA__PAGE_BYTES
} mha__page_type;

typedef struct mha__page_piece {
    const void *numbers; /* doubles for F64, F32 and LEVEL */
    size_t count;
    mha__page_type type;
} mha__page_piece;

typedef struct mha__page_data {
    mha__arena memory;
    char *json;
    mha__page_piece *pieces; /* behind the JSON, in the order of the numbers by which it names them */
    size_t piece_count, piece_room;
    bool has_scores; /* there are few enough cells to hold their scores, too */
    bool failed;     /* something was left out for want of memory */
    size_t walked;   /* numbers of the walks so far */
    uint8_t colours[2][256 * 3]; /* of the sequential and the diverging scale */
} mha__page_data;

/* Describes a picture, which must outlive the data. MHA_NO_MEMORY. The data must be cleared in any case. */
mha_status mha__page_describe(mha__page_data *data, const mha__picture *picture, mha_error *error);
void mha__page_clear(mha__page_data *data);

/* Bytes of one number of a type. */
size_t mha__page_bytes(mha__page_type type);
/* Encodes all numbers of a piece. */
void mha__page_encode(const mha__page_piece *piece, uint8_t *bytes);

#endif
