/* The request of a command line, made ready: a layer with its weights, a call with its inputs. */
#ifndef MHA_CLI_SETUP_REQUEST_H
#define MHA_CLI_SETUP_REQUEST_H

#include "base/arena.h"
#include "cli/options/options.h"
#include "mha/lab.h"

typedef struct request {
    mha_params *table;
    mha_layer *layer;
    mha_call call;
    mha_plan plan;
    mha_keep keep[MHA_STAGE_COUNT]; /* the call's list, one entry for each stage in their order */
    mha_cache *cache; /* for --cache-dtype */
    void *workspace;
    mha__arena memory; /* of inputs, masks and stages */
    bool unbatched; /* the query input has no batch axis; written tensors have none either */
    bool random_weights, random_inputs;
    char *random;            /* both in words: random_words; NULL: nothing is random */
    mha_load_report loaded;  /* what was read from --weights */
    mha_load_options asked;  /* how it was read */
    char *prefix;            /* of the layer that is asked for */
    mha_model_facts facts;   /* facts of the model in a preset or configuration */
    const char *facts_from;  /* their source: "preset", "config.json", "metadata"; NULL without */
} request;

#endif
