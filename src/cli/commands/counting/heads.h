/* One tried head count, of a single layer (heads.c) or of a whole model (heads_model.c). */
#ifndef MHA_CLI_COMMANDS_HEADS_H
#define MHA_CLI_COMMANDS_HEADS_H

#include "cli/options/options.h"
#include "cli/text/print.h"

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
/* Says why the totals agree or differ; the text must be freed. */
char *model_heads_reason(const heads_row *rows, size_t n);

#endif
