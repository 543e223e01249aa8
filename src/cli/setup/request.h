/* What a command line asks for, made ready: a layer with its weights, a call with its inputs. */
#ifndef MHA_CLI_SETUP_REQUEST_H
#define MHA_CLI_SETUP_REQUEST_H

#include "base/arena.h"
#include "cli/options.h"
#include "mha/mha.h"

typedef struct request {
    mha_params *table;
    mha_layer *layer;
    mha_call call;
    mha_plan plan;
    mha_keep keep[MHA_STAGE_COUNT]; /* the call's list, a place for each stage in their order */
    mha_cache *cache; /* of --cache-dtype */
    void *workspace;
    mha__arena memory; /* of inputs, masks and stages */
    bool unbatched; /* the query input had no batch axis; nor has what is written */
    bool random_weights, random_inputs;
    mha_load_report loaded;  /* what came from --weights */
    mha_model_facts facts;   /* what a preset, or the configuration of the weights, says about the model, */
    const char *facts_from;  /* and where: "preset", "config.json", "metadata"; NULL without one */
} request;

#endif
