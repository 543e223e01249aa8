/* A stage of a backward: what is public of it, and where the step that makes it leaves it. */
#ifndef MHA_ATTENTION_CORE_BACKWARD_BACKWARD_STAGES_H
#define MHA_ATTENTION_CORE_BACKWARD_BACKWARD_STAGES_H

#include "attention/core/backward/backward.h"

typedef struct mha__backward_stage {
    mha_backward_stage_info shown;
    mha__backward_step made; /* in this step */
    size_t at; /* offset in mha__map of its numbers; of a step without a map in mha__backward of a view */
} mha__backward_stage;

/* The row of a stage. */
const mha__backward_stage *mha__backward_stage_of(mha_backward_stage stage);
/* What a step without a map made of a stage, contiguous; NULL: another step makes it. */
const mha_view *mha__backward_stage_made(const mha__backward *b, mha_backward_stage stage, mha__backward_step step);
/* Where the number of query i and key j of a map is kept, or, of row_sums, that of query i; NULL: it is not. */
double *mha__backward_kept_at(const mha__backward *b, mha_backward_stage stage, const mha__map *map, size_t i,
                              size_t j);

#endif
