/* The costs of a forward pass of a whole model: operations by part, key/value cache, workspace. */
#ifndef MHA_CLI_COMMANDS_COUNTING_MODEL_COSTS_H
#define MHA_CLI_COMMANDS_COUNTING_MODEL_COSTS_H

#include "cli/options/options.h"
#include "cli/text/print.h"

/* The costs of a forward pass of --batch sequences of --seq tokens: operations, key/value cache, and the plan of a
 * layer (all zero for a model without attention layers), which has the workspace's size. */
typedef struct model_costs {
    mha_model_pass pass;
    mha_model_costs model;
    mha_plan layer;
    size_t experts, chosen; /* 0: there are none */
    bool fixed;             /* no length of it follows from --seq */
    struct layers_alike {
        mha_model_lengths lengths;
        size_t layers;
    } *kinds; /* of attention layers, by their lengths; the caller frees them */
    size_t n_kinds;
} model_costs;

/* The pass of --batch, --seq (or `seq`, where it is not given) and --encoder-seq. */
mha_model_pass model_pass(const arguments *args, size_t seq);
/* Returns 0, or the exit code after one line on standard error; *costs is zero before. */
int model_costs_get(const arguments *args, const mha_model *model, model_costs *costs);
void model_costs_print(const model_costs *costs);
void model_costs_json(const model_costs *costs, json_t *root);

#endif
