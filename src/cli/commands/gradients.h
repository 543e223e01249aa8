/* What mha diagnose says of the gradients that a case records. */
#ifndef MHA_CLI_COMMANDS_GRADIENTS_H
#define MHA_CLI_COMMANDS_GRADIENTS_H

#include "cli/output/report.h"
#include "mha/case.h"

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

#endif
