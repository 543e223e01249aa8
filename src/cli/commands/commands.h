/* The commands: each reads its arguments, does its work, and returns the exit code. */
#ifndef MHA_CLI_COMMANDS_COMMANDS_H
#define MHA_CLI_COMMANDS_COMMANDS_H

#include "cli/output/report.h"
#include "cli/pictures/pictures.h"

int run_forward(const arguments *args);
int run_params(const arguments *args);
int run_explain(const arguments *args);
int run_heads(const arguments *args);
int run_show(const arguments *args);
int run_check(const arguments *args);
int run_compare(const arguments *args);
int run_diagnose(const arguments *args);
int run_power(const arguments *args);
int run_conform(const arguments *args);
int run_claims(const arguments *args);
int run_bench(const arguments *args);
int run_info(const arguments *args);
int run_completion(const arguments *args);
/* Writes what may stand last among the words of a line behind `mha`: a word and a text between tabs for each line, or
 * ":files", or ":form" and how an argument is written. */
void completion_words(int count, char **words);

/* A part of params: a whole model or a file of weights. */
int run_model_params(const arguments *args);

/* The diagnosis of the gradients that a case records. */

enum { GRADIENTS_SHOWN = 8 };

typedef struct explained_gradients {
    mha_status status; /* MHA_NOT_FOUND: the case records none; MHA_UNSUPPORTED: they are not explained */
    mha_gradient_match list[GRADIENTS_SHOWN];
    size_t count;
    bool right;
} explained_gradients;

/* Whether a tensor is that of a gradient: "expected.d_query", "d_query". */
bool gradients_named(const char *tensor);
/* Looks for the bugs that give them. */
mha_status gradients_explain(const mha_case *c, explained_gradients *g, mha_error *error);
/* Adds what was found to a report, and prints it; nothing of a case without gradients. */
void gradients_report(const explained_gradients *g, const mha_error *error, json_t *root);
void gradients_print(const explained_gradients *g, const mha_error *error);

/* The parts of mha power. */

/* How a test compares, "|x - y| <= ...": when it accepts. */
const char *criterion_text(const mha_criterion *k);

/* The report of mha power, of a result and of gradients: which known bugs a test accepts. */

/* Sorts the rows of *p, the nearest to the limit of the test first or the furthest from rounding, and adds them to a
 * record. */
json_t *power_record(mha_power *p, json_t *record, bool worst_first);

/* Prints what was examined, the rule of the test, the accepted bugs (or the nearest rejected ones), and the bugs that
 * the input cannot show. */
void print_accepted(const char *what, const char *rule, const json_t *record);

/* Two files of one model, compared: names of one that mean a tensor of the other, what each layer computes, and what it
 * costs to round its matrices. */

/* Whether a tensor, if there is one, has other values in its file than it is read as. */
bool is_quantised(const mha_file_tensor *tensor);
/* The tensor of `file` that has this name, or the one with another spelling of it. */
const mha_file_tensor *tensor_alike(const mha_file *file, const char *name);

/* GGUF has the rows of W_Q and W_K of a LLaMA pair by pair, as it rotates them; other files have all first ones before
 * all second ones. The view of such a tensor in the order of the other files, in memory of the arena; of any other
 * tensor the view itself. */
mha_view in_common_order(const mha_file *file, const mha_file_tensor *tensor, mha__arena *arena, const mha_view *view);

/* Results of one attention layer from random inputs, with the weights of both files. */
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
