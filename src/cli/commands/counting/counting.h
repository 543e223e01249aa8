/* The parts of mha params, mha heads and mha claims that have files of their own. */
#ifndef MHA_CLI_COMMANDS_COUNTING_COUNTING_H
#define MHA_CLI_COMMANDS_COUNTING_COUNTING_H

#include "cli/commands/commands.h"

/* One tried head count, of a single layer (heads.c) or of a whole model (heads_model.c). */

typedef struct heads_row {
    mha_config config; /* resolved, of the layer or of the model's first attention layer */
    mha_totals totals, attention;
    size_t differing;  /* for a model: tensors whose shape differs from the first row's, or that only one of them has */
    char example[240]; /* one of these tensors with both shapes, preferably a matrix */
    bool of_matrix;
    bool own; /* the model's own head count */
    double output_max_abs, milliseconds;
} heads_row;

/* Finds the head count *fits of the model when `heads` are asked for (0: its own); 0 when it cannot have them.
 * Returns 0, or the exit code after one line when the machine failed. */
int model_heads_fit(const arguments *args, size_t heads, size_t *fits);
/* Allocates one head count, compares its shapes with those of `first` heads (0: none), and runs it with --run. */
int model_heads_try(const arguments *args, size_t heads, size_t first, heads_row *row);
/* Says why the totals agree or differ. */
const char *model_heads_reason(const heads_row *rows, size_t n);

/* The costs of a forward pass of a whole model: operations by part, key/value cache, workspace. */

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

bool lengths_same(const mha_model_lengths *a, const mha_model_lengths *b);
/* The pass of --batch, --seq (or `seq`, where it is not given) and --encoder-seq. */
mha_model_pass model_pass(const arguments *args, size_t seq);
/* Returns 0, or the exit code after one line on standard error; *costs is zero before. */
int model_costs_get(const arguments *args, const mha_model *model, model_costs *costs);
void model_costs_print(const model_costs *costs);
void model_costs_json(const model_costs *costs, json_t *root);

/* The caches of a model, counted by kind where they are allocated; and a log of an engine, compared with them. */

/* Makes the record of both for --batch sequences of --seq tokens, or of the length of --log. Returns 0, or the exit
 * code after one line on standard error. */
int caches_get(const arguments *args, const mha_model *model, json_t **record);
void caches_print(const json_t *record);

/* Sentences on a model's configuration: the assumed values, the unread keys, why attention is not computed. */

/* Says them a line each: on standard output, or on standard error next to a table without sentences. */
void doubts_say(const mha_model *model);

/* Differences of a file from its model, kept, printed and recorded. */

typedef struct finding_list {
    mha_finding *items;
    size_t count, room;
} finding_list;

/* Appends a finding to a finding_list, for mha_model_check_file. */
void finding_keep(void *context, const mha_finding *finding);

/* Prints a line for each of the first 40. */
void findings_print(const finding_list *list);

json_t *finding_record(const mha_finding *f);

/* The part of a whole model that each of several processes would hold and send. */

/* Shows the model of `params` split over --ranks. Returns the exit code, after one line on standard error if it is
 * not 0. */
int ranks_show(const arguments *args, const mha_model *model, const mha_params *params);

#endif
