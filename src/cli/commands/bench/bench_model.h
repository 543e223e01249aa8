/* mha bench --preset and --config: the attention layers of a model as shapes, and what all of them take together. */
#ifndef MHA_CLI_COMMANDS_BENCH_MODEL_H
#define MHA_CLI_COMMANDS_BENCH_MODEL_H

#include "bench/shapes.h"
#include "cli/commands/bench/rounds.h"

enum { BENCH_MODEL_SHAPES = 16 };

/* The shapes of a model's attention layers: over the tokens of --seq, and where they are causal, a new token behind as
 * many in a cache. */
typedef struct bench_model {
    size_t count;
    struct {
        bench_shape shape;
        size_t uses; /* how many layers of this shape a forward pass runs */
        char name[80];
    } each[BENCH_MODEL_SHAPES];
} bench_model;

/* An exit code. */
int bench_model_read(const arguments *args, bench_model *shapes);
/* Behind the rows of all shapes, adds those of all layers together: of each path and number of threads. */
void bench_model_add_rows(bench *b, const bench_model *model);

#endif
