/* Two files of one model, compared: names of one that mean a tensor of the other, and what each layer computes. */
#ifndef MHA_CLI_COMMANDS_COMPARE_FILES_H
#define MHA_CLI_COMMANDS_COMPARE_FILES_H

#include "cli/output/print.h"
#include "cli/setup/tensor_arg.h"

/* The tensor of `file` that has this name, or the one that GGUF and the checkpoints of LLaMA call differently. */
const mha_file_tensor *tensor_alike(const mha_file *file, const char *name);

/* GGUF has the rows of W_Q and W_K of a LLaMA pair by pair, as it rotates them; other files have all first ones before
 * all second ones. The view of such a tensor in the order of the other files, in memory of the arena; of any other
 * tensor the view itself. */
mha_view in_common_order(const mha_file *file, const mha_file_tensor *tensor, mha__arena *arena, const mha_view *view);

/* What one attention layer computes from random inputs, with the weights of both files. */
typedef struct layer_difference {
    mha_found_layer layer; /* of the first file */
    mha_difference output;
    double relative; /* rms of the difference over rms of the second output */
} layer_difference;

/* Runs each attention layer of both files, if they have as many and one of them is quantised; otherwise *n is 0.
 * *obstacle, which must be freed: why layers were not run; NULL. *list must be freed. */
int compare_layers(const source *a, const source *b, layer_difference **list, size_t *n, char **obstacle);

#endif
