/* The fields of mha_semantics, each with another value than it has beside all the others. */
#include <string.h>

#include "support/fields.h"

enum { B = 1, T = FIELDS_T, D_K = FIELDS_D_K, HEADS = FIELDS_HEADS };

const char *fields_missing(const field *fields, size_t count, size_t bytes)
{
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        const bool types = strcmp(fields[i].name, "matrix_dtype") == 0; /* an array of four bytes each */
        const size_t size = fields[i].size, align = size < 8 ? size : size % 8 || types ? 4 : 8,
                     from = (end + align - 1) / align * align;
        if (fields[i].offset != from)
            return fields[i].name;
        end = from + size;
    }
    return (end + 7) / 8 * 8 == bytes ? NULL : "has more at its end";
}

static unsigned char padding[T], block[1] = {1};
static float added[T * T];
static double slopes[HEADS], others[HEADS];
static const int64_t lengths[B] = {T - 1}, fewer[B] = {T - 2}, places[B] = {2}, cu[3] = {0, 5, T};
static int64_t segments[T];

#define VIEW(type, data, rank, ...) mha_view_of(data, type, rank, (size_t[]){__VA_ARGS__})

/* Without names: a field that is added is missed here by the compiler. */
mha_semantics semantics_all_set(void)
{
    memset(padding, 1, sizeof padding);
    for (size_t h = 0; h < HEADS; h++)
        slopes[h] = 0.5, others[h] = h == HEADS - 1 ? 0.25 : 0.5;
    const mha_rope rope = {MHA_ROPE_HALF_SPLIT, D_K, 0, true, 1.5, {0}, {0}, {0}, {0}, {0},
                           {{0}, {0}, {0}}};
    const mha_bias bias = {MHA_BIAS_RULE_BUCKETS, false, false, 40, 0, 0};
    const mha_relative relative = {MHA_RELATIVE_LOG_BUCKETS, false, 40, 0, 0, 0.5, 0.25};
    const mha_norm_rule norm = {MHA_NORM_RMS, true, false, false};
    const mha_query_scale query_scale = {0.5, 3, 1};
    const mha_pattern pattern = {VIEW(MHA_I64, segments, 2, B, T), VIEW(MHA_I64, segments, 2, B, T),
                                 {MHA_MASK_KEEPS, VIEW(MHA_BOOL, padding, 2, B, T)}, {0},
                                 {MHA_MASK_KEEPS, VIEW(MHA_BOOL, block, 2, 1, 1)}, 4, 4};
    return (mha_semantics){
        true, 0.5, 5, true, 0, NULL, true, 0, false, true, 2, true, 9, -1, 1, 12, lengths,
        {MHA_MASK_KEEPS, VIEW(MHA_BOOL, padding, 2, B, T)}, true, -3,
        {MHA_MASK_ADDITIVE, VIEW(MHA_F32, added, 2, T, T)}, pattern, slopes, bias, relative, rope, 1e-5, norm,
        query_scale, 3, false, false, MHA_SOFTMAX, 0, MHA_EMPTY_ZERO, MHA_HIDDEN_IGNORE, 0, NULL, NULL};
}

#define S(name, member, value) F(mha_semantics, name, member, value)
#define A(name, member, value) ALONE(mha_semantics, name, member, value)
/* Says what tables were made of; no forward reads it. */
#define UNREAD(name) {#name, offsetof(mha_semantics, name), sizeof(((mha_semantics *)NULL)->name), {.count = 0}, true}
#define VIEWS(name) {#name, offsetof(mha_semantics, name), sizeof(mha_view), {.count = 0}, true}

const field semantics_fields[] = {
    S(has_scale, truth, false), S(scale, real, 0.25), S(softcap, real, 6), S(has_offset, truth, false),
    S(offset, whole, 1), S(position_offset, pointer, places), S(has_key_offset, truth, false), S(key_offset, whole, 1),
    S(keys_only, truth, true), A(causal, truth, false), S(prefix, whole, 3), A(window, truth, false),
    S(window_left, whole, 8), S(window_right, whole, 2), S(window_keep, whole, 2), S(chunk, whole, 11),
    S(kv_lengths, pointer, fewer), S(key_padding.kind, choice, MHA_MASK_HIDES), VIEWS(key_padding.values),
    S(has_padding_fill, truth, false), S(padding_fill, real, -4), A(mask.kind, choice, MHA_MASK_NONE),
    VIEWS(mask.values), VIEWS(pattern.q_segments), VIEWS(pattern.k_segments),
    S(pattern.query_padding.kind, choice, MHA_MASK_HIDES), VIEWS(pattern.query_padding.values),
    VIEWS(pattern.key_lists), S(pattern.blocks.kind, choice, MHA_MASK_HIDES), VIEWS(pattern.blocks.values),
    S(pattern.block_queries, count, 2), S(pattern.block_keys, count, 2),
    S(alibi_slopes, pointer, others), A(bias.rule, choice, MHA_BIAS_RULE_NONE), S(bias.one_way, truth, true),
    A(bias.class_token, truth, true), S(bias.max_distance, count, 41), A(bias.height, count, 3),
    A(bias.width, count, 3), A(relative.rule, choice, MHA_RELATIVE_DISTANCE), S(relative.reversed, truth, true),
    S(relative.max_distance, count, 41), A(relative.height, count, 3), A(relative.width, count, 3),
    S(relative.k_scale, real, 1), S(relative.q_scale, real, 1),
    S(rope.kind, choice, MHA_ROPE_INTERLEAVED), S(rope.dim, count, 2),
    S(rope.base, real, 500), S(rope.last, truth, false), S(rope.attention_factor, real, 1.25), VIEWS(rope.frequencies),
    VIEWS(rope.q_positions), VIEWS(rope.k_positions), VIEWS(rope.cos_table), VIEWS(rope.sin_table),
    UNREAD(rope.origin),
    S(norm_eps, real, 1e-3), S(norm.kind, choice, MHA_NORM_L2), S(norm.plus_one, truth, false),
    S(norm.after_rope, truth, true), S(norm.unweighted, truth, true), S(query_scale.growth, real, 1),
    S(query_scale.every, whole, 2), S(query_scale.first, whole, 0), S(clip_qkv, real, 2), S(zero_row, truth, true),
    S(softmax_plus_one, truth, true), A(normaliser, choice, MHA_SIGMOID), A(sigmoid_bias, real, 0.5),
    S(empty_rows, choice, MHA_EMPTY_NAN),
    S(hidden_values, choice, MHA_HIDDEN_PROPAGATE), A(n_sequences, count, 2), A(cu_seqlens_q, pointer, cu),
    A(cu_seqlens_k, pointer, cu),
};
const size_t semantics_field_count = sizeof semantics_fields / sizeof *semantics_fields;
