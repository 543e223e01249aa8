/* The attention core for so few keys that they and their values stay in a first-level cache. */
#ifndef MHA_ATTENTION_CORE_FLASH_SHORT_KEYS_H
#define MHA_ATTENTION_CORE_FLASH_SHORT_KEYS_H

#include "attention/core/flash/flash.h"

/* Scratch, 64-byte aligned: Q and scores MHA_STAGED floats, and `sum` d_v, of as many rows as there are, at most
 * MHA_TILE_ROWS; K and V d_k and d_v floats, rounded up to MHA_PANEL, of MHA_SHORT_KEYS keys. */
enum { MHA_SHORT_KEYS = 2 * MHA_PANEL };
typedef struct mha__short_memory {
    float *Q, *scores, *sum, *K, *V;
} mha__short_memory;

/* Computes rows[0, count) as mha__flash_rows does, bit for bit. False, with nothing written, when the call is none of
 * those that need no more than this: at most MHA_SHORT_KEYS keys, floats in one piece, without extra rows, bias,
 * softcap or rounding; values of whole vectors, finite where a row does not see all of them. */
bool mha__short_keys(const mha__flash *flash, const mha__flash_row *rows, size_t count, const mha__short_memory *m);

#endif
