/* Public checkpoints: attention layers recognised by the names of their tensors. */
#ifndef MHA_MODEL_H
#define MHA_MODEL_H

#include "mha/attention.h"
#include "mha/file.h"
#include "mha/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- a layer from a weights file */

/* Which way a matrix lies in the file. The library's own is (in, out): y = x W. */
typedef enum mha_orientation {
    MHA_ORIENTATION_AUTO = 0, /* by the naming scheme; fused GPT-2 matrices by their shape */
    MHA_ORIENTATION_IN_OUT,   /* (in, out): own names, Conv1D */
    MHA_ORIENTATION_OUT_IN    /* (out, in): torch.nn.Linear, GGUF */
} mha_orientation;

/* An attention layer found in a file. */
typedef struct mha_found_layer {
    char prefix[256];   /* of its tensors' names, without the final dot; "" when they have none */
    const char *scheme; /* "BERT", "LLaMA", ...; static text */
} mha_found_layer;

/* What a file does not say about its layer. Zero means: not stated. */
typedef struct mha_load_options {
    const char *layer; /* prefix, with or without the final dot; may be left out when one layer is in the file */
    size_t n_heads, kv_heads, d_k; /* d_k may stand for n_heads */
    mha_orientation orientation;
    bool has_dtype; /* dtype is meant; otherwise weights are held as F32 */
    mha_dtype dtype;
    const char *row_prefix; /* of the rows in the table; NULL: none */
} mha_load_options;

/* What was loaded. */
typedef struct mha_load_report {
    mha_found_layer layer;
    mha_orientation orientation; /* as found, never AUTO */
    size_t tensors;              /* read from the file */
    size_t ignored;              /* known names under the prefix that are no part of attention: norms, mask buffers */
} mha_load_report;

/* The attention layers of a file, in the order of its tensors: as many as fit in `layers` (may be NULL
 * when capacity is 0), their number in all returned. A layer counts when one of its query, key or value
 * matrices is there. */
MHA_API size_t mha_model_find_layers(const mha_file *file, mha_found_layer *layers, size_t capacity);

/* The naming schemes understood, one name after the other; NULL past the end. */
MHA_API const char *mha_model_scheme(size_t index);

/* Reads one attention layer: finds its tensors by name, derives the configuration from their shapes and
 * the heads stated, allocates the weights through `table` and reads into them, transposing and widening
 * (F16, BF16) on the way; source_dtype of each row is the file's. Names never switch on causal or rotary:
 * that is for the caller to say. `options` and `report` may be NULL. The layer is the caller's to
 * destroy, before the table.
 * Errors: MHA_NOT_FOUND (no attention layer, none under the prefix, a missing tensor), MHA_INVALID
 * (several layers and no prefix, which are listed; a misshapen or unknown tensor; heads that do not
 * divide the width; heads not stated), MHA_UNSUPPORTED (a quantised or integer weight), MHA_IO,
 * MHA_NO_MEMORY. The table is then as before. */
MHA_API mha_status mha_model_load_layer(const mha_file *file, const mha_load_options *options, mha_params *table,
                                        mha_layer **layer, mha_load_report *report, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
