/* The packing of a checkpoint's weights, as metadata and neighbouring files define it. */
#ifndef MHA_FORMATS_QUANTISED_SIDECAR_H
#define MHA_FORMATS_QUANTISED_SIDECAR_H

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

/* The numbers of a group, where `count` of them have `scales` scales: the one size that is said and fits; where none
 * is said, as `unsaid` tells. 0: it cannot be known, or there is none. Sizes of which one matters are marked. */
size_t mha__group_size(mha__group_sizes *said, mha__unsaid unsaid, size_t count, size_t scales);

#endif
