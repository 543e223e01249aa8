/* One head count tried: of a single layer (heads.c) or of a whole model (heads_model.c). */
#ifndef MHA_CLI_COMMANDS_HEADS_H
#define MHA_CLI_COMMANDS_HEADS_H

#include "cli/options.h"
#include "cli/output/print.h"

typedef struct heads_row {
    mha_config config; /* of the layer, or of the model's first attention layer; resolved */
    mha_totals totals, attention;
    size_t differing;  /* of a model: tensors whose shape differs from the first row's, or that only one of them has */
    char example[240]; /* one of them, with both shapes: a matrix, if there is one */
    bool of_matrix;
    bool own; /* the head count that the model has */
    double output_max_abs, milliseconds;
} heads_row;

/* The heads of the model when it is made with so many (0: its own) into *fits, 0 when it cannot have them. Gives 0, or
 * the exit code after one line when the machine could not. */
int model_heads_fit(const arguments *args, size_t heads, size_t *fits);
/* Allocates one, compares its shapes with those of `first` heads (0: nothing to compare with), runs it for --run. */
int model_heads_try(const arguments *args, size_t heads, size_t first, heads_row *row);
void model_heads_print(const arguments *args, const heads_row *rows, size_t n);
/* Why the totals agree or differ; to be freed. */
char *model_heads_reason(const heads_row *rows, size_t n);

#endif
