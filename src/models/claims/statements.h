/* The list of published statements, and the form of its rows. */
#ifndef MHA_MODELS_CLAIMS_STATEMENTS_H
#define MHA_MODELS_CLAIMS_STATEMENTS_H

#include <stddef.h>
#include <stdint.h>

/* A configuration is written "layer NAME=VALUE ..." (only an attention layer: d_model h h_kv d_k d_v kdim vdim bias
 * bias_kv) or "PRESET KEY=VALUE ..." (a model: keys of its config.json, and class=NAME).
 *
 * `stated` is evaluated over the configuration's own symbols; `counted` over what its storages hold:
 *   total attention ffn norm embedding head   elements of parameters, of a group
 *   blocks            elements of the tensors that stand in blocks
 *   aliased buffers inert layers              elements of second names, of buffers, inert ones; attention layers
 *   W_Q b_Q ...       elements of all tensors in a role; W_Q_0, W_Q_1: extents of the first of them, as stored
 *   heads head_W_Q head_b_V ...               head views one attention layer gives; elements of the first one
 *   merged_qk         elements of one d_q x d_kin matrix per head, W_Q W_K^T, in place of W_Q and W_K
 *   rank_qk equal_qk  its least rank of all heads; 1 if its scores are those of W_Q and W_K (merged_qk.h) */
typedef struct mha__claim_row {
    const char *source, *statement;
    const char *stated;
    const char *configuration;
    const char *counted;
    int64_t unit;          /* 0 means 1 */
    const char *otherwise; /* a configuration that the statement also covers and fails for; NULL: none */
    const char *condition;
} mha__claim_row;

extern const mha__claim_row mha__claim_rows[];
extern const size_t mha__claim_rows_count;

#endif
