/* Tensors of a safetensors file that hold one weight together: GPTQ, AWQ, compressed-tensors, bitsandbytes, scales
 * in addition to F8, MXFP4, NVFP4. */
#ifndef MHA_FORMATS_QUANTISED_PACKINGS_H
#define MHA_FORMATS_QUANTISED_PACKINGS_H

#include "formats/files/tensor_list.h"
#include "formats/quantised/sidecar.h"

/* The parts of a packed tensor in memory: floats as F32, all else as it is in the file. */
typedef struct mha__parts {
    const mha__packing *packing;
    size_t rows, columns; /* of the tensor: the extents of its last two axes */
    const unsigned char *bytes[MHA_PARTS];
    const float *numbers[MHA_PARTS];
    float code_values[256]; /* of codes of one byte that are numbers themselves */
} mha__parts;

/* Value (row, column); a row counts through all axes but the last. */
typedef float (*mha__unpack_value)(const mha__parts *parts, size_t row, size_t column);

/* A tensor that parts hold: its type, rank and shape, and the packing, are to be filled in by `fit`. */
typedef struct mha__packed_tensor {
    mha_file_tensor tensor;
    mha__packing packing;
} mha__packed_tensor;

/* A way to pack, found by the names of its tensors: a stem and an ending for each part. */
typedef struct mha__packing_kind {
    const char *name;               /* as mha_file_tensor.packing shows it */
    const char *endings[MHA_PARTS]; /* NULL: it has no such part */
    unsigned needed;                /* one bit for each part that must exist, in addition to the codes */
    const char *ending;             /* of the tensor that the parts hold */
    /* Whether types and shapes of the parts (NULL: missing) fit together, and with what is said of them. Marks what has
     * to be said, so that it can be asked for and `fit` be called again. */
    bool (*fit)(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
    /* MHA_PARTS when every number in the parts has a meaning; else the part that has one without. May be NULL. */
    mha__part (*check)(const mha__parts *parts, const mha_file_tensor *tensor);
    mha__unpack_value value;
} mha__packing_kind;

extern const mha__packing_kind mha__packing_kinds[]; /* in the order in which they are tried; ends with a NULL name */

bool mha__fit_scaled(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
bool mha__fit_mxfp4(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
bool mha__fit_gptq(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
bool mha__fit_awq(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
bool mha__fit_int8(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
bool mha__fit_4bit(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
bool mha__fit_compressed(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
bool mha__fit_nvfp4(const mha__entry *const parts[MHA_PARTS], mha__said *said, mha__packed_tensor *packed);
mha__part mha__check_groups(const mha__parts *parts, const mha_file_tensor *tensor);
mha__part mha__check_gptq(const mha__parts *parts, const mha_file_tensor *tensor);
float mha__value_scaled(const mha__parts *parts, size_t row, size_t column);
/* The type of the blocks that F8 and its scales can stay in; F32: none. */
mha_dtype mha__scaled_blocks(const mha__packing *packing, const mha_file_tensor *tensor);
/* Such a block, whose first number is (row, column). */
void mha__put_scaled_block(const mha__parts *parts, size_t row, size_t column, unsigned char *block);
float mha__value_mxfp4(const mha__parts *parts, size_t row, size_t column);
float mha__value_gptq(const mha__parts *parts, size_t row, size_t column);
float mha__value_awq(const mha__parts *parts, size_t row, size_t column);
float mha__value_compressed(const mha__parts *parts, size_t row, size_t column);
float mha__value_nvfp4(const mha__parts *parts, size_t row, size_t column);
float mha__value_nvfp4_divided(const mha__parts *parts, size_t row, size_t column);
float mha__value_int8(const mha__parts *parts, size_t row, size_t column);
float mha__value_4bit(const mha__parts *parts, size_t row, size_t column);

/* Packed tensors that were found in a file, in the order of their codes. */
typedef struct mha__joining {
    mha__list found;   /* mha__packed_tensor; parts are numbers of entries */
    unsigned char *is; /* what each of the `count` entries is */
    size_t count;
    bool asked; /* what the sidecar says */
    mha__said said;
} mha__joining;
enum { MHA_OWN, MHA_IS_PART, MHA_IS_CODES }; /* a tensor of its own; of a packed tensor */

/* Needs the index of names. Errors: MHA_IO, MHA_NO_MEMORY, MHA_UNSUPPORTED (GPTQ of another format). */
mha_status mha__packings_find(mha_file *file, mha__joining *joining, mha_error *error);
/* Replaces the list of entries by one with packed tensors, at the places of their codes, and fills the list of parts.
 * The index of names must have been forgotten. */
mha_status mha__packings_apply(mha_file *file, mha__joining *joining, mha_error *error);
void mha__joining_release(const mha_file *file, mha__joining *joining);

#endif
