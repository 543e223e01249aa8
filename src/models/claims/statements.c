/* Public statements about parameter counts, from statements.json. claims.c counts what they state in storages.
 * Pages 000 to 004 are five public questions with answers about multi-head attention:
 * 000 BERT-base in keras-bert, 001 a general recipe with d_k and d_v, 002 head counts in RoBERTa, 003 LLaMA-7B,
 * 004 why W_Q and W_K are not one matrix. */
#include "models/claims/statements.h"

const mha__claim_row mha__claim_rows[] = {
#include "statements.inc"
};

const size_t mha__claim_rows_count = sizeof mha__claim_rows / sizeof *mha__claim_rows;
