/* How the scale reaches the scores of the flash core: multiplied into the queries, and into the scores for the rest. */
#ifndef MHA_ATTENTION_CORE_FLASH_SCORE_SCALE_H
#define MHA_ATTENTION_CORE_FLASH_SCORE_SCALE_H

#include "attention/core/flash/key_block.h"

/* Decides what is multiplied where. */
void mha__scale_prepare(mha__flash_work *w);
/* What query row i is multiplied by. */
float mha__scale_of_query(const mha__flash_work *w, size_t i);
/* Multiplies the rest into the n scores of each row of a tile. */
void mha__scale_scores(const mha__flash_work *w, const mha__flash_tile *t, size_t n, float *scores);

#endif
