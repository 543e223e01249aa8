/* The settings of a call, each once, in the order of the equation. Everything that reads, writes, lists or compares
 * settings is a loop over these rows. */
#include <float.h>

#include "attention/call/settings/settings.h"

#define FAR (INT64_MAX / 4) /* positions, windows and their sums stay representable */

/* The kind follows from the type of the field. An enum is int or unsigned as the compiler likes, and has no place in
 * this list: WORDS says that it is a choice, which is read as an int; an enum of another size does not compile. */
#define FIELD(f) (((mha_semantics *)0)->f)
#define KIND(f)                                                                                                        \
    _Generic(&FIELD(f), bool *: MHA_SETTING_SWITCH, int64_t *: MHA_SETTING_WHOLE, size_t *: MHA_SETTING_COUNT,         \
             double *: MHA_SETTING_REAL, mha_view *: MHA_SETTING_VIEW, const int64_t **: MHA_SETTING_WHOLES,           \
             const double **: MHA_SETTING_REALS)
#define CHOICE(f) (MHA_SETTING_CHOICE * sizeof(char[sizeof FIELD(f) == sizeof(int) ? 1 : -1]))
#define PLACE(f) .field = #f, .at = offsetof(mha_semantics, f)
#define PLAIN(n, f) .name = #n, PLACE(f), .kind = KIND(f), .given_at = SIZE_MAX
#define WORDS(n, f, words) .name = #n, PLACE(f), .kind = CHOICE(f), .choices = (words), .given_at = SIZE_MAX
/* A number whose 0 means something, too: a bool marks it as given. */
#define MARKED(n, f, mark)                                                                                             \
    .name = #n, PLACE(f), .kind = KIND(f), .given_at = offsetof(mha_semantics, mark)

#define WHOLE(low, high) .least = (low), .most = (high)
#define REAL(low, high) .lowest = (low), .highest = (high)
#define ANY_REAL REAL(-DBL_MAX, DBL_MAX)
#define POSITIVE REAL(DBL_TRUE_MIN, DBL_MAX)
#define FLOAT .in_float = true
#define OFF .unset = "0"
#define ARRAY(text) .shape = (text)
#define PER_ROW ARRAY("(B)"), .per = MHA_PER_ROW
#define PER_HEAD ARRAY("(h)"), .per = MHA_PER_HEAD
#define PER_SEQUENCE ARRAY("(n_sequences + 1)"), .per = MHA_PER_SEQUENCE
/* Words of an mha_mask_kind. */
#define FLAGS "none|keeps=bool_true_keeps|hides=bool_true_masks"
#define FLAGS_OR_NUMBERS FLAGS "|additive"

static const mha_setting rows[] = {
#define GROUP .group = MHA_SETTINGS_PLACE
    {MARKED(offset, place.offset, place.has_offset), GROUP, WHOLE(-FAR, FAR), .unset = "keys cached before the call",
     .foreign = "start_pos past_length cache_position",
     .meaning = "position of query 0 of every batch row: 0 aligns top-left, S - T_q bottom-right"},
    {PLAIN(position_offset, place.position_offset), GROUP, PER_ROW, .foreign = "offsets seqlen_offsets",
     .meaning = "position of query 0 of each batch row, in place of offset"},
    {MARKED(key_offset, place.key_offset, place.has_key_offset), GROUP, WHOLE(-FAR, FAR), .unset = "the keys are whole",
     .meaning = "the keys are a part that begins here: key j has position key_offset + j"},
    {PLAIN(keys_only, place.keys_only), GROUP, OFF,
     .meaning = "another part counts the sinks, softmax_plus_one, bias_k and zero_row: not in this softmax"},
    {PLAIN(n_sequences, place.n_sequences), GROUP, WHOLE(0, INT64_MAX), OFF, .needs = "cu_seqlens_q",
     .meaning = "sequences of a ragged batch"},
    {PLAIN(cu_seqlens_q, place.cu_seqlens_q), GROUP, PER_SEQUENCE, .aliases = "cu_seqlens",
     .meaning = "sequences packed into one batch row: the start of each, and the end of the last"},
    {PLAIN(cu_seqlens_k, place.cu_seqlens_k), GROUP, PER_SEQUENCE, .foreign = "cu_seqlens_kv",
     .needs = "cu_seqlens_q", .meaning = "the same for the keys"},
#undef GROUP

#define GROUP .group = MHA_SETTINGS_QKV
    {WORDS(norm_kind, qkv.norm.kind, "rms|layer|l2"), GROUP, .unset = "rms", .foreign = "norm_type",
     .meaning = "what norms of q and k divide by: the root of the mean square, the same about the mean, or of the sum"
                " of squares"},
    {PLAIN(norm_plus_one, qkv.norm.plus_one), GROUP, OFF, .meaning = "the factor of a feature is 1 + its weight"},
    {PLAIN(norm_after_rope, qkv.norm.after_rope), GROUP, OFF,
     .meaning = "norms come after the rotation, not before it"},
    {PLAIN(norm_unweighted, qkv.norm.unweighted), GROUP, OFF, .foreign = "use_qk_norm",
     .meaning = "q and k that have no norm weight are normalised too, each head, with factor 1"},
    {PLAIN(norm_eps, qkv.norm_eps), GROUP, POSITIVE, .unset = "1e-6", .foreign = "eps rms_norm_eps layer_norm_eps",
     .meaning = "added to the mean square in all norms"},
    {PLAIN(clip_qkv, qkv.clip_qkv), GROUP, POSITIVE, FLOAT, OFF, .foreign = "clip",
     .meaning = "c > 0: numbers of q, k and v limited to [-c, c], behind the bias, or behind a norm that comes before"
                " the rotation"},
    {WORDS(rope, qkv.rope.kind, "none|interleaved|half_split=half"), GROUP, .unset = "none",
     .foreign = "rotary rope_type", .meaning = "rotation of q and k in pairs (0,1), (2,3), ... or (i, i + rope_dim/2)"},
    {PLAIN(rope_dim, qkv.rope.dim), GROUP, WHOLE(0, INT64_MAX), .unset = "d_k", .needs = "rope",
     .foreign = "rotary_dim", .meaning = "features rotated; the others are left alone"},
    {PLAIN(rope_base, qkv.rope.base), GROUP, POSITIVE, .unset = "10000", .needs = "rope",
     .foreign = "rope_theta theta base", .meaning = "angle = position * rope_base^(-2i/rope_dim)"},
    {PLAIN(rope_last, qkv.rope.last), GROUP, OFF, .needs = "rope",
     .meaning = "the last rope_dim features are rotated, not the first"},
    {PLAIN(rope_attention_factor, qkv.rope.attention_factor), GROUP, POSITIVE, .unset = "1", .needs = "rope",
     .foreign = "attention_factor attention_scaling mscale", .meaning = "rotated features are multiplied by it"},
    {PLAIN(rope_frequencies, qkv.rope.frequencies), GROUP, ARRAY("(rope_dim/2)"), .unset = "by rope_base",
     .needs = "rope", .foreign = "inv_freq freqs",
     .meaning = "angle that pair i turns by from one position to the next"},
    {PLAIN(rope_q_positions, qkv.rope.q_positions), GROUP, ARRAY("(B, T_q)"), .unset = "offset + i", .needs = "rope",
     .aliases = "position_ids", .foreign = "positions pos_ids", .meaning = "positions of the queries in the rotation"},
    {PLAIN(rope_k_positions, qkv.rope.k_positions), GROUP, ARRAY("(B, T_k)"), .unset = "rope_q_positions",
     .needs = "rope", .meaning = "positions of the new keys in the rotation"},
    {PLAIN(rope_cos, qkv.rope.cos_table), GROUP, ARRAY("(n, rope_dim/2) or (B, T, rope_dim/2)"), .unset = "computed",
     .needs = "rope", .aliases = "cos_cache", .foreign = "cos cos_table",
     .meaning = "cosines of the rotation by position, or one row for each new row; with rope_sin"},
    {PLAIN(rope_sin, qkv.rope.sin_table), GROUP, ARRAY("as rope_cos"), .unset = "computed", .needs = "rope",
     .aliases = "sin_cache", .foreign = "sin sin_table", .meaning = "the sines; with rope_cos"},
    {PLAIN(query_scale_growth, qkv.query_scale.growth), GROUP, POSITIVE, OFF,
     .foreign = "attn_scale llama_4_scaling_beta",
     .meaning = "g > 0: queries times 1 + g * log(1 + floor((p + query_scale_first) / query_scale_every)), p their"
                " position"},
    {PLAIN(query_scale_every, qkv.query_scale.every), GROUP, WHOLE(1, INT64_MAX), OFF, .needs = "query_scale_growth",
     .foreign = "floor_scale", .meaning = "positions from one step of the scale to the next"},
    {PLAIN(query_scale_first, qkv.query_scale.first), GROUP, WHOLE(-FAR, FAR), OFF, .needs = "query_scale_growth",
     .meaning = "number of the first position: 1 in Llama 4, 0 in Ministral 3"},
    {PLAIN(log_n_scale, qkv.query_scale.log_n), GROUP, WHOLE(2, INT64_MAX), OFF, .foreign = "use_logn_attn seq_length",
     .meaning = "training length N, at least 2: queries at positions p from N on times log(p + 1) / log(N)"},
#undef GROUP

#define GROUP .group = MHA_SETTINGS_VISIBLE
    {PLAIN(causal, visible.causal), GROUP, OFF, .meaning = "a query at position p sees keys at positions up to p"},
    {PLAIN(prefix, visible.prefix), GROUP, WHOLE(0, FAR), OFF, .needs = "causal", .foreign = "prefix_length prefix_len",
     .meaning = "causal does not hide keys at positions below this"},
    {MARKED(window_left, visible.window_left, visible.has_window_left), GROUP, WHOLE(0, FAR), .unset = "-1",
     .foreign = "sliding_window window window_size",
     .meaning = "keys further back than this are hidden: 2 leaves two and the query's own; -1: not given, open"},
    {MARKED(window_right, visible.window_right, visible.has_window_right), GROUP, WHOLE(0, FAR), .unset = "-1",
     .meaning = "keys further ahead than this are hidden; -1: not given, open"},
    {PLAIN(window_keep, visible.window_keep), GROUP, WHOLE(0, FAR), OFF, .needs = "window_left",
     .foreign = "sink_tokens sink_token_length attention_sink_size",
     .meaning = "window_left does not hide keys at positions below this"},
    {PLAIN(chunk, visible.chunk), GROUP, WHOLE(0, FAR), OFF,
     .foreign = "attention_chunk_size attention_chunk chunk_size",
     .meaning = "n > 0: a query sees only keys of its own chunk of n positions"},
    {PLAIN(kv_lengths, visible.kv_lengths), GROUP, PER_ROW, .aliases = "lengths",
     .foreign = "seqlens_k seqused_k nonpad_kv_seqlen",
     .meaning = "key j of batch row b is hidden from key_offset + j = kv_lengths[b] on, cached keys counted"},
    {WORDS(key_padding_kind, visible.key_padding.kind, FLAGS_OR_NUMBERS),
     GROUP, .unset = "none", .aliases = "key_padding_mask_kind", .meaning = "what key_padding does"},
    {PLAIN(key_padding, visible.key_padding.values), GROUP, ARRAY("(B, S)"), .needs = "key_padding_kind",
     .aliases = "key_padding_mask", .foreign = "padding_mask attention_mask src_key_padding_mask pad_mask",
     .meaning = "one value for each key of all queries: numbers to add, or booleans"},
    {MARKED(padding_fill, visible.padding_fill, visible.has_padding_fill), GROUP, ANY_REAL, .unset = "-inf",
     .aliases = "mask_filter_value", .meaning = "added to keys that key_padding hides, instead of hiding them"},
    {WORDS(mask_kind, visible.mask.kind, FLAGS_OR_NUMBERS), GROUP,
     .unset = "none", .aliases = "attn_mask_kind",
     .meaning = "what mask does: its numbers are added, or true keeps or hides a key"},
    {PLAIN(mask, visible.mask.values), GROUP, ARRAY("broadcast from the right to (B, h, T_q, S)"), .needs = "mask_kind",
     .aliases = "attn_mask", .foreign = "attn_bias causal_mask",
     .meaning = "floats are added to the scores (-inf hides a key); booleans need mask_kind"},
    {PLAIN(q_segments, visible.pattern.q_segments), GROUP, ARRAY("(B, T_q)"),
     .foreign = "segment_ids q_segment_ids document_ids",
     .meaning = "a query sees only keys of its own number (documents packed into a row)"},
    {PLAIN(k_segments, visible.pattern.k_segments), GROUP, ARRAY("(B, S)"), .unset = "q_segments",
     .needs = "q_segments", .foreign = "kv_segment_ids", .meaning = "the numbers of the keys"},
    {WORDS(query_padding_kind, visible.pattern.query_padding.kind,
           FLAGS),
     GROUP, .unset = "none", .aliases = "query_padding_mask_kind",
     .meaning = "what query_padding does: a query that is not kept is padding"},
    {PLAIN(query_padding, visible.pattern.query_padding.values), GROUP, ARRAY("(B, T_q)"),
     .needs = "query_padding_kind", .aliases = "query_padding_mask",
     .meaning = "booleans: a query of padding sees nothing; its heads are 0"},
    {PLAIN(key_lists, visible.pattern.key_lists), GROUP, ARRAY("(B, h, T_q, n)"),
     .foreign = "topk_indices gather_kv_indices",
     .meaning = "a query sees the keys whose positions its list names; -1 fills, a key named twice counts once"},
    {WORDS(blocks_kind, visible.pattern.blocks.kind, FLAGS),
     GROUP, .unset = "none", .aliases = "block_mask_kind", .meaning = "what blocks does"},
    {PLAIN(blocks, visible.pattern.blocks.values), GROUP, ARRAY("(B, h, T_q/block_queries, S/block_keys), rounded up"),
     .needs = "blocks_kind", .aliases = "block_mask", .meaning = "booleans for blocks of queries and keys"},
    {PLAIN(block_queries, visible.pattern.block_queries), GROUP, WHOLE(0, INT64_MAX), OFF,
     .meaning = "queries in a block"},
    {PLAIN(block_keys, visible.pattern.block_keys), GROUP, WHOLE(0, INT64_MAX), OFF, .meaning = "keys in a block"},
#undef GROUP

#define GROUP .group = MHA_SETTINGS_ADDED
    {PLAIN(alibi_slopes, added.alibi_slopes), GROUP, PER_HEAD, .aliases = "alibi", .foreign = "slopes",
     .meaning = "adds -slope * (position of the query - position of the key)"},
    {WORDS(bias_rule, added.bias.rule, "none|buckets|grid"), GROUP, .unset = "none",
     .meaning = "row of bias_table that is added to a score: by distance (T5) or cells of a grid (Swin), see"
                " mha/bias.h"},
    {PLAIN(bias_one_way, added.bias.one_way), GROUP, OFF, .needs = "bias_rule=buckets",
     .meaning = "all buckets are for earlier keys; later ones have the first"},
    {PLAIN(bias_max_distance, added.bias.max_distance), GROUP, WHOLE(0, INT64_MAX), .unset = "128",
     .needs = "bias_rule=buckets", .foreign = "relative_attention_max_distance",
     .meaning = "from this distance on keys share the last bucket"},
    {PLAIN(bias_class_token, added.bias.class_token), GROUP, OFF, .needs = "bias_rule=grid",
     .meaning = "one token stands before the grid; three more rows"},
    {PLAIN(bias_height, added.bias.height), GROUP, WHOLE(0, INT64_MAX), .needs = "bias_rule=grid",
     .meaning = "cells of the grid, one below the other"},
    {PLAIN(bias_width, added.bias.width), GROUP, WHOLE(0, INT64_MAX), .needs = "bias_rule=grid",
     .meaning = "cells of the grid, side by side"},
    {WORDS(relative_rule, added.relative.rule, "none|distance|log_buckets|grid"), GROUP, .unset = "none",
     .meaning = "row of relative_k and relative_q, of which products are added to a score, see mha/relative.h"},
    {PLAIN(relative_reversed, added.relative.reversed), GROUP, OFF, .needs = "relative_rule=distance,log_buckets",
     .meaning = "the distance is key minus query, not query minus key"},
    {PLAIN(relative_max_distance, added.relative.max_distance), GROUP, WHOLE(0, INT64_MAX), .unset = "512",
     .needs = "relative_rule=log_buckets", .foreign = "max_relative_positions",
     .meaning = "from this distance on keys share the last bucket"},
    {PLAIN(relative_height, added.relative.height), GROUP, WHOLE(0, INT64_MAX), .needs = "relative_rule=grid",
     .meaning = "cells of the grid, one below the other"},
    {PLAIN(relative_width, added.relative.width), GROUP, WHOLE(0, INT64_MAX), .needs = "relative_rule=grid",
     .meaning = "cells of the grid, side by side"},
    {PLAIN(relative_k_scale, added.relative.k_scale), GROUP, ANY_REAL, FLOAT, .unset = "scale",
     .needs = "relative_rule", .meaning = "factor on q . relative_k; 1 in SAM"},
    {PLAIN(relative_q_scale, added.relative.q_scale), GROUP, ANY_REAL, FLOAT, .unset = "scale",
     .needs = "relative_rule", .meaning = "factor on k . relative_q"},
#undef GROUP

#define GROUP .group = MHA_SETTINGS_SOFTMAX
    {MARKED(scale, softmax.scale, softmax.has_scale), GROUP, ANY_REAL, FLOAT, .unset = "1/sqrt(d_k)",
     .foreign = "sm_scale softmax_scale scaling", .meaning = "factor on q.k"},
    {PLAIN(softcap, softmax.softcap), GROUP, POSITIVE, FLOAT, OFF, .foreign = "logit_softcap attn_logit_softcapping",
     .meaning = "c > 0: scores become c * tanh(score / c), before masks"},
    {PLAIN(zero_row, softmax.zero_row), GROUP, OFF, .aliases = "add_zero_attn",
     .meaning = "one more key and value of zeros, never hidden"},
    {PLAIN(softmax_plus_one, softmax.softmax_plus_one), GROUP, OFF, .meaning = "one more exp(0) in the denominator"},
    {WORDS(normaliser, softmax.normaliser, "softmax|sigmoid"), GROUP, .unset = "softmax",
     .meaning = "sigmoid: weights are 1 / (1 + exp(-(score + sigmoid_bias))), each key by itself"},
    {PLAIN(sigmoid_bias, softmax.sigmoid_bias), GROUP, ANY_REAL, FLOAT, OFF, .needs = "normaliser=sigmoid",
     .aliases = "sigmoid", .meaning = "of normaliser sigmoid; -log of the number of keys is usual"},
    {WORDS(empty_rows, softmax.empty_rows, "zero|nan=none"), GROUP, .unset = "zero", .aliases = "fully_masked",
     .meaning = "the weights of a query that sees no key: zeros or NaN"},
    {WORDS(hidden_values, softmax.hidden_values, "ignore|propagate"), GROUP, .unset = "ignore",
     .meaning = "propagate: NaN and infinity in the value of a hidden key reach the output (0 * NaN)"},
    {PLAIN(dropout_p, softmax.dropout_p), GROUP, REAL(0, 1 - DBL_EPSILON), OFF, .needs = "dropout_keep",
     .foreign = "attention_dropout attn_pdrop p_dropout",
     .meaning = "weights that dropout_keep keeps are divided by 1 - dropout_p"},
    {PLAIN(dropout_keep, softmax.dropout_keep), GROUP, ARRAY("broadcast from the right to (B, h, T_q, S')"),
     .foreign = "dropout_mask", .meaning = "booleans: false drops a weight of its value sum"},
#undef GROUP
};

size_t mha__setting_count(void)
{
    return sizeof rows / sizeof *rows;
}

const mha_setting *mha_setting_at(size_t index)
{
    return index < mha__setting_count() ? &rows[index] : NULL;
}
