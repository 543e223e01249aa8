/* The shapes of stages, written in these sizes. */
#ifndef MHA_ATTENTION_CALL_STAGE_TABLE_H
#define MHA_ATTENTION_CALL_STAGE_TABLE_H

#include "mha/attention.h"

/* The symbols of mha_stage_info.shape. S_all: S', the keys and the rows beside them. */
typedef struct mha__stage_sizes {
    size_t B, T_q, T_k, S, S_all, h, h_kv, d_k, d_v, d_out, q_rank, kv_rank, d_rope;
} mha__stage_sizes;

/* Writes the extents of a stage. Returns its rank; 0: it is a latent that there is not. */
int mha__stage_extents(mha_stage stage, const mha__stage_sizes *sizes, size_t shape[4]);

/* The place of a symbol among those of a shape, "(B, h, T_q, S')"; -1: it is none of them. *count: of all of them. */
int mha__axis_named(const char *shape, const char *symbol, int *count);
/* The axis of a stage that has this size; -1: none, or there is no such stage. */
int mha__stage_axis(mha_stage stage, const char *symbol);

/* Whether a stage has a row of keys for each query of each sequence, or what sums such a row up. */
bool mha__stage_is_of_scores(mha_stage stage);

#endif
