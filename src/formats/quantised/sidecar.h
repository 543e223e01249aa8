/* What files beside a checkpoint say about how its weights are packed. */
#ifndef MHA_FORMATS_QUANTISED_SIDECAR_H
#define MHA_FORMATS_QUANTISED_SIDECAR_H

#include "formats/tensor_list.h"

enum { MHA_SIDECAR_FORMAT = 32 };

/* The format of GPTQ's zero points ("gptq", "gptq_v2"; "": unknown): of the metadata "checkpoint_format", of
 * `quantization_config` in the config.json beside the file, or of the quantize_config.json there. Files that are not
 * there say nothing. Errors: of files that cannot be read, MHA_FORMAT (no JSON object), MHA_NO_MEMORY. */
mha_status mha__sidecar_format(const mha_file *file, char format[MHA_SIDECAR_FORMAT], mha_error *error);

#endif
