/* Semantics in which nearly everything is set that can be set beside the rest. */
#include <string.h>

#include "support/fields.h"

enum { B = 1, T = FIELDS_T };

static unsigned char padding[T], block[1] = {1};
static float added[T * T];
static double slopes[FIELDS_HEADS];
static const int64_t lengths[B] = {T - 1};
static int64_t segments[T];

#define VIEW(type, data, rank, ...) mha_view_of(data, type, rank, (size_t[]){__VA_ARGS__})

mha_semantics semantics_all_set(void)
{
    memset(padding, 1, sizeof padding);
    for (size_t h = 0; h < FIELDS_HEADS; h++)
        slopes[h] = 0.5;
    const mha_mask keeps = {MHA_MASK_KEEPS, VIEW(MHA_BOOL, padding, 2, B, T)};
    return (mha_semantics){
        .has_scale = true, .scale = 0.5, .softcap = 5, .has_offset = true, .has_key_offset = true, .causal = true,
        .prefix = 2, .window = true, .window_left = 9, .window_right = -1, .window_keep = 1, .chunk = 12,
        .kv_lengths = lengths, .key_padding = keeps, .has_padding_fill = true, .padding_fill = -3,
        .mask = {MHA_MASK_ADDITIVE, VIEW(MHA_F32, added, 2, T, T)}, .alibi_slopes = slopes,
        .pattern = {.q_segments = VIEW(MHA_I64, segments, 2, B, T), .k_segments = VIEW(MHA_I64, segments, 2, B, T),
                    .query_padding = keeps, .blocks = {MHA_MASK_KEEPS, VIEW(MHA_BOOL, block, 2, 1, 1)},
                    .block_queries = 4, .block_keys = 4},
        .bias = {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 40},
        .relative = {.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 40, .k_scale = 0.5, .q_scale = 0.25},
        .rope = {.kind = MHA_ROPE_HALF_SPLIT, .dim = FIELDS_D_K, .last = true, .attention_factor = 1.5},
        .norm_eps = 1e-5, .norm.plus_one = true, .query_scale = {.growth = 0.5, .every = 3, .first = 1},
        .clip_qkv = 3};
}
