/* Tensors of a safetensors file that hold one weight together: GPTQ, AWQ, compressed-tensors, bitsandbytes, scales
 * in addition to F8, MXFP4, NVFP4. */
#ifndef MHA_FORMATS_QUANTISED_PACKINGS_H
#define MHA_FORMATS_QUANTISED_PACKINGS_H

#include "formats/files/tensor_list.h"

enum { MHA_SIDECAR_FORMAT = 32, MHA_SIDECAR_SIZES = 16 };

/* Sizes of groups, each once. SIZE_MAX: one group for all inputs. */
typedef struct mha__group_sizes {
    bool matter; /* a number depends on one of them */
    size_t count, size[MHA_SIDECAR_SIZES];
} mha__group_sizes;

typedef struct mha__said {
    const char *state;               /* of one packed tensor: the bytes of the part of that name, or "" */
    char format[MHA_SIDECAR_FORMAT]; /* of GPTQ's zero points: "gptq", "gptq_v2"; "": nothing says it */
    bool format_matters, format_unknown;
    bool symmetric; /* "sym" is true: the middle of GPTQ's codes means 0 */
    mha__group_sizes rows, columns; /* that blocks of outputs and of inputs have, or groups of inputs */
} mha__said;

/* Fills format, symmetric, rows and columns: from the metadata "checkpoint_format" and "gptq_group_size", from
 * `quantization_config` in the config.json next to the file, and from the quantize_config.json and quant_config.json
 * there. Files that are not there say nothing, and none is read once the format and a size are known. Errors: of files
 * that cannot be read, MHA_FORMAT (no JSON object, more sizes than are kept), MHA_NO_MEMORY. */
mha_status mha__sidecar_read(const mha_file *file, mha__said *said, mha_error *error);

/* Knowledge of groups without a stated size. */
typedef enum mha__unsaid {
    MHA_UNSAID_ALIKE,       /* none is cut */
    MHA_UNSAID_ALIKE_POWER, /* the last may be cut, so that only a power of two is taken, and if it cuts none */
    MHA_UNSAID_POWER,       /* a power of two, if one fits, though it cuts the last; otherwise what cuts none */
} mha__unsaid;

/* The size of a group of `count` numbers with `scales` scales: the only stated size that fits, or, if none is stated,
 * the one that `unsaid` selects. 0: no size fits, or several do. Marks the stated sizes that matter. */
size_t mha__group_size(mha__group_sizes *said, mha__unsaid unsaid, size_t count, size_t scales);

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

/* A tensor in parts: the codes; `fit` replaces its type, rank and shape. It fills in the packing. */
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

/* The values of a quantised tensor in row-major order, as F32: of blocks, or of several tensors that hold one. */

/* A tensor that is being unpacked, in the order of its values. */
typedef struct mha__unpacking mha__unpacking;

/* Whether the values of a tensor have to be unpacked, and can be. */
bool mha__is_packed(const mha__entry *entry);
/* Begins at value `first`; `count` values from there on are enough. Errors: MHA_NO_MEMORY; of several tensors also
 * MHA_IO and MHA_FORMAT. */
mha_status mha__unpack_begin(const mha_file *file, const mha__entry *entry, size_t first, size_t count,
                             mha__unpacking **unpacking, mha_error *error);
/* The next `count` values. MHA_IO: the file has become shorter. */
mha_status mha__unpack_next(mha__unpacking *unpacking, float *values, size_t count, mha_error *error);
/* The type of blocks in which a tensor can stay as it is: its own, or that of F8 and its scales; F32: none. Errors:
 * MHA_NO_MEMORY, MHA_IO. */
mha_status mha__unpack_stays(const mha_file *file, const mha__entry *entry, mha_dtype *dtype, mha_error *error);
/* The next `count` values, as blocks of F8 and scales. */
void mha__unpack_f8(mha__unpacking *unpacking, size_t count, unsigned char *blocks);
/* Passes over `count` values. Blocks of them that are not in the buffer are not read. */
void mha__unpack_skip(mha__unpacking *unpacking, size_t count);
void mha__unpack_end(mha__unpacking *unpacking); /* NULL is allowed */

#endif
