/* Two files of one model, compared: names of one that mean a tensor of the other, what each layer computes, and what it
 * costs to round its matrices. */
#ifndef MHA_CLI_COMMANDS_COMPARE_FILES_H
#define MHA_CLI_COMMANDS_COMPARE_FILES_H

#include "cli/setup/tensor_arg.h"
#include "cli/text/print.h"

/* The tensor of `file` that has this name, or the one with another spelling of it. */
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

/* A matrix of a layer with the weights of both files; the second one rounded. */
typedef struct matrix_difference {
    const char *name;
    mha_file_tensor a, b; /* its types: that of the first file, and what it was rounded to */
    mha_difference difference;
} matrix_difference;

typedef struct compared_layers {
    layer_difference *list;
    matrix_difference *matrices; /* of all layers; none unless they were rounded */
    size_t n, n_matrices;
    const char *obstacle; /* why layers were not run; NULL */
} compared_layers;

/* Runs each attention layer of both files, if they have as many and one of them is quantised, or is to be: `rounded`,
 * unless that is F32, is the type in which the matrices of the second file are read, and then compared by `tolerance`
 * (rtol, atol). */
int compare_layers(const source *a, const source *b, mha_dtype rounded, const double tolerance[2],
                   compared_layers *layers);

#endif
