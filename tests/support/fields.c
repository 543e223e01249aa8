/* Semantics in which nearly everything is set that can be set together with the rest. */
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
        .softmax.has_scale = true,
        .softmax.scale = 0.5,
        .softmax.softcap = 5,
        .place.has_offset = true,
        .place.has_key_offset = true,
        .visible.causal = true,
        .visible.prefix = 2,
        .visible.has_window_left = true,
        .visible.window_left = 9,
        .visible.window_keep = 1,
        .visible.chunk = 12,
        .visible.kv_lengths = lengths,
        .visible.key_padding = keeps,
        .visible.has_padding_fill = true,
        .visible.padding_fill = -3,
        .visible.mask = {MHA_MASK_ADDITIVE, VIEW(MHA_F32, added, 2, T, T)},
        .added.alibi_slopes = slopes,
        .visible.pattern = {.q_segments = VIEW(MHA_I64, segments, 2, B, T),
                            .k_segments = VIEW(MHA_I64, segments, 2, B, T),
                            .query_padding = keeps,
                            .blocks = {MHA_MASK_KEEPS, VIEW(MHA_BOOL, block, 2, 1, 1)},
                            .block_queries = 4,
                            .block_keys = 4},
        .added.bias = {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 40},
        .added.relative = {.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 40, .k_scale = 0.5, .q_scale = 0.25},
        .qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT, .dim = FIELDS_D_K, .last = true, .attention_factor = 1.5},
        .qkv.norm_eps = 1e-5,
        .qkv.norm.plus_one = true,
        .qkv.query_scale = {.growth = 0.5, .every = 3, .first = 1},
        .qkv.clip_qkv = 3};
}
