/* From options to a layer with its weights and a call with its inputs, ready to run. */
#ifndef MHA_CLI_SETUP_CALL_H
#define MHA_CLI_SETUP_CALL_H

#include "cli/options.h"
#include "mha/mha.h"

/* Functions that can fail give 0, or the exit code after one line on standard error. */

typedef struct request {
    mha_params *table;
    mha_layer *layer;
    mha_call call;
    mha_plan plan;
    mha_cache *cache; /* of --cache-dtype */
    void *workspace;
    void *owned[32]; /* memory of inputs, masks and stages */
    size_t n_owned;
    bool unbatched; /* the query input had no batch axis; nor has what is written */
    bool random_weights, random_inputs;
    mha_load_report loaded;  /* what came from --weights */
    mha_model_facts facts;   /* what a preset, or the configuration of the weights, says about the model, */
    const char *facts_from;  /* and where: "preset", "config.json", "metadata"; NULL without one */
} request;

/* --isa, or else the environment variable MHA_ISA, which the library would ignore where it does not know it. */
int request_isa(const arguments *args);
/* What --dtype or --cache-dtype says; F32 without. */
mha_dtype request_dtype(const arguments *args, option_code option);
/* The shape options; not yet resolved. */
mha_config request_config(const arguments *args);
/* Table and layer with the weights of --weights, or random ones in the shape of --preset, --config or `config`. */
int request_layer(request *r, const arguments *args, const mha_config *config);
/* Inputs, semantics, path and threads, then the plan. Random inputs are uniform in [-sqrt(3), sqrt(3)),
 * variance 1, from the streams 32 (query), 33 (key) and 34 (value) of the seed. */
int request_call(request *r, const arguments *args);
/* Memory for a stage: F64 on the exact path, else F32. */
int request_keep(request *r, mha_stage stage);
/* Runs the call once. */
int request_run(request *r, double *milliseconds);
void request_free(request *r);

/* Floating-point operations of one forward: two for each multiply-add of the projections, of Q K^T and
 * of A V, hidden keys included; softmax is not counted. */
double request_flops(const request *r);

#endif
