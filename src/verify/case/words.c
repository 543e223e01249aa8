/* The words of the case format, each once: reading, messages, `mha help case` and CASES.md all use this table. */
#include <string.h>

#include "verify/case/words.h"

#define INPUTS "inputs"
#define WEIGHTS "weights"
#define RESULTS "results"
#define MASKS "masks, positions, cache"
#define AGAIN "the same in another form"
#define SHAPE "shape"
#define MEANING "what is computed"
#define JUDGEMENT "how it is judged"
#define NOTES "notes"
#define OWN "one's own"

#define TENSOR(group, code, name, content, low, high, foreign, form, missing, meaning)                                 \
    {                                                                                                                  \
        {group, name, "", form, missing, meaning}, foreign, WORD_TENSOR, code, content, low, high                      \
    }
#define WEIGHT(code, name, also, foreign, form, meaning)                                                               \
    {                                                                                                                  \
        {WEIGHTS, name, also, form, "", meaning}, foreign, WORD_WEIGHT, code, CASE_REAL, 1, 2                          \
    }
#define MATRIX(code, name, also, foreign, form, meaning)                                                               \
    {                                                                                                                  \
        {WEIGHTS, name, also, form, "required by kind mha", meaning}, foreign, WORD_WEIGHT, code, CASE_REAL, 1, 2      \
    }
#define RESULT(slot, name, also, foreign, form, meaning)                                                               \
    {                                                                                                                  \
        {RESULTS, name, also, form, "", meaning}, foreign, WORD_RESULT, slot, CASE_REAL, 1, 4                          \
    }
#define FAMILY(group, name, also, form, meaning)                                                                       \
    {                                                                                                                  \
        {group, name, also, form, "", meaning}, "", WORD_OTHER_TENSOR, 0, CASE_REAL, 0, 0                              \
    }
#define KEY(group, name, foreign, form, missing, meaning)                                                              \
    {                                                                                                                  \
        {group, name, "", form, missing, meaning}, foreign, WORD_KEY, 0, CASE_REAL, 0, 0                               \
    }

#define BOOLEAN "0, 1"
#define NUMBER "number"
#define COUNT "whole number"
#define TEXT "text"
#define TOLD "from the tensors' shapes"

static const mha__case_word words[] = {
    TENSOR(INPUTS, CASE_QUERY, "query", CASE_REAL, 2, 4, "q Q x X input inputs hidden_states x_q",
           "(B, T_q, d_q), by layout", "required", "input of the queries"),
    TENSOR(INPUTS, CASE_KEY, "key", CASE_REAL, 2, 4, "k K keys x_k x_kv memory context", "(B, T_k, d_kin), by layout",
           "query", "input of the keys"),
    TENSOR(INPUTS, CASE_VALUE, "value", CASE_REAL, 2, 4, "v V values x_v", "(B, T_k, d_vin), by layout", "key",
           "input of the values"),

    MATRIX(MHA_W_Q, "W_q", "W_Q", "Wq WQ w_q wq q_proj.weight q_proj q_proj_weight q_b_proj.weight", "(d_q, h*d_k)",
           "projection q = query W_q + b_q: input dimension first, so nn.Linear's weight is transposed"),
    WEIGHT(MHA_B_Q, "b_q", "b_Q", "bq q_proj.bias", "(h*d_k,)", "bias of q; without W_q added to query itself"),
    MATRIX(MHA_W_K, "W_k", "W_K", "Wk WK w_k wk k_proj.weight k_proj k_proj_weight", "(d_kin, h_kv*d_k)",
           "projection of key"),
    WEIGHT(MHA_B_K, "b_k", "b_K", "bk k_proj.bias", "(h_kv*d_k,)", "bias of k; without W_k added to key itself"),
    MATRIX(MHA_W_V, "W_v", "W_V", "Wv WV w_v wv v_proj.weight v_proj v_proj_weight", "(d_vin, h_kv*d_v)",
           "projection of value"),
    WEIGHT(MHA_B_V, "b_v", "b_V", "bv v_proj.bias", "(h_kv*d_v,)", "bias of v; without W_v added to value itself"),
    MATRIX(MHA_W_O, "W_o", "W_O", "Wo WO w_o wo W_out o_proj.weight o_proj c_proj.weight", "(h*d_v, d_out)",
           "output projection of the concatenated heads"),
    WEIGHT(MHA_B_O, "b_o", "b_O", "bo b_out o_proj.bias c_proj.bias", "(d_out,)", "bias of the output"),
    WEIGHT(MHA_BIAS_K, "bias_k", "", "", "(h_kv*d_k,)", "one more key behind all real ones, never hidden; with bias_v"),
    WEIGHT(MHA_BIAS_V, "bias_v", "", "", "(h_kv*d_v,)", "its value; with bias_k"),
    WEIGHT(MHA_SINKS, "head_sink", "sinks", "sink attn_sink head_sinks", "(h,)",
           "one more logit per head in the denominator of the softmax, without a value"),
    WEIGHT(MHA_Q_NORM, "q_norm_weight", "q_norm", "q_norm.weight q_layernorm.weight", "(d_k,), (h*d_k,) or (h, d_k)",
           "weight of a norm of q: over each head, over the row, or over each head with weights of its own"),
    WEIGHT(MHA_K_NORM, "k_norm_weight", "k_norm", "k_norm.weight k_layernorm.weight",
           "(d_k,), (h_kv*d_k,) or (h_kv, d_k)", "the same for k"),
    WEIGHT(MHA_Q_NORM_BIAS, "q_norm_bias", "", "q_norm.bias q_layernorm.bias", "as q_norm_weight",
           "added behind the norm of q"),
    WEIGHT(MHA_K_NORM_BIAS, "k_norm_bias", "", "k_norm.bias k_layernorm.bias", "as k_norm_weight",
           "the same for k"),
    WEIGHT(MHA_W_QA, "W_qa", "W_QA", "W_DQ q_a_proj.weight", "(d_q, q_rank)",
           "latent attention, two-stage queries: q = norm(query W_qa + b_qa) W_q, with W_q (q_rank, h*d_k)"),
    WEIGHT(MHA_B_QA, "b_qa", "b_QA", "q_a_proj.bias", "(q_rank,)", "its bias"),
    WEIGHT(MHA_QA_NORM, "qa_norm_weight", "qa_norm", "q_a_layernorm.weight", "(q_rank,)", "weight of its RMS norm"),
    WEIGHT(MHA_W_KVA, "W_kva", "W_KVA", "W_DKV kv_a_proj_with_mqa.weight", "(d_kin, kv_rank + d_rope)",
           "latent attention, in place of W_k and W_v: [c, k_r] = key W_kva + b_kva"),
    WEIGHT(MHA_B_KVA, "b_kva", "b_KVA", "kv_a_proj_with_mqa.bias", "(kv_rank + d_rope,)", "its bias"),
    WEIGHT(MHA_KVA_NORM, "kva_norm_weight", "kva_norm", "kv_a_layernorm.weight", "(kv_rank,)",
           "weight of the RMS norm of c"),
    WEIGHT(MHA_W_KVB, "W_kvb", "W_KVB", "W_UKV kv_b_proj.weight", "(kv_rank, h*(d_n + d_v))",
           "[k_n, v] = norm(c) W_kvb, head by head; a key is [k_n, k_r], and d_n = d_k - d_rope"),
    WEIGHT(MHA_W_G, "W_g", "W_G", "Wg gate_proj.weight g_proj.weight", "(d_q, h*d_v) or (d_q, h)",
           "gate on the heads: heads * sigmoid(query W_g + b_g), by feature or by head"),
    WEIGHT(MHA_B_G, "b_g", "b_G", "bg", "(h*d_v,) or (h,)", "bias of the gate"),

    WEIGHT(MHA_BIAS_TABLE, "bias_table", "", "relative_attention_bias.weight relative_position_bias_table", "(n, h)",
           "table of the relative position bias that bias_rule asks for"),
    WEIGHT(MHA_RELATIVE_K, "relative_k", "", "rel_pos_h distance_embedding.weight", "(n, d_k) or (n, h*d_k)",
           "rows that q is multiplied with, chosen by relative_rule (c2p): for all heads, or for each"),
    WEIGHT(MHA_RELATIVE_COLUMNS, "relative_columns", "", "rel_pos_w", "(n, d_k) or (n, h*d_k)",
           "the same by the columns of relative_rule grid"),
    WEIGHT(MHA_RELATIVE_Q, "relative_q", "", "", "(n, d_k) or (n, h*d_k)",
           "rows that k is multiplied with, chosen by relative_rule (p2c)"),

    RESULT(MHA_STAGE_OUTPUT, "expected.output", "output",
           "y Y out o attn_output attention_output expected result yours", "as query, d_out or h*d_v wide, by layout",
           "the result to be judged"),
    RESULT(MHA_STAGE_Q_LATENT, "expected.q_latent", "", "", "(B, T_q, q_rank)", "query W_qa + b_qa, before its norm"),
    RESULT(MHA_STAGE_KV_LATENT, "expected.kv_latent", "", "compressed_kv", "(B, T_k, kv_rank + d_rope)",
           "key W_kva + b_kva, before norm and rotation"),
    RESULT(MHA_STAGE_Q, "expected.q", "", "", "(B, T_q, h*d_k)", "projected queries, before norm and rotation"),
    RESULT(MHA_STAGE_K, "expected.k", "", "", "(B, T_k, h_kv*d_k)", "projected keys, before norm and rotation"),
    RESULT(MHA_STAGE_V, "expected.v", "", "", "(B, T_k, h_kv*d_v)", "projected values"),
    RESULT(MHA_STAGE_Q_ROT, "expected.q_rot", "", "", "(B, T_q, h*d_k)", "queries after norm and rotation"),
    RESULT(MHA_STAGE_K_ROT, "expected.k_rot", "", "", "(B, T_k, h_kv*d_k)", "keys after norm and rotation"),
    RESULT(MHA_STAGE_SCORES, "expected.scores", "", "logits attn_scores attention_scores", "(B, h, T_q, S')",
           "scale * q.k, those of hidden keys too"),
    RESULT(MHA_STAGE_CAPPED, "expected.capped", "", "", "(B, h, T_q, S')", "scores after softcap"),
    RESULT(MHA_STAGE_MASKED, "expected.masked", "", "", "(B, h, T_q, S')",
           "scores with masks, ALiBi, bias_table and relative terms added, -inf for hidden keys"),
    RESULT(MHA_STAGE_WEIGHTS, "expected.weights", "",
           "weights attn attn_weights attention_weights attn_output_weights probs attentions", "(B, h, T_q, S')",
           "softmax of each head"),
    RESULT(MHA_STAGE_WEIGHTS_MEAN, "expected.weights_mean", "", "weights_mean", "(B, T_q, S')",
           "mean of the weights over the heads"),
    RESULT(MHA_STAGE_HEADS, "expected.heads", "", "heads_output concat", "(B, T_q, h*d_v)",
           "the heads side by side, before W_o"),
    RESULT(MHA_STAGE_GATED, "expected.gated", "", "", "(B, T_q, h*d_v)", "the heads times their gate, before W_o"),
    RESULT(MHA_STAGE_PRESENT_KEY, "expected.present_key", "", "present_key", "(B, h_kv, S, d_k)",
           "the cache's keys after the call"),
    RESULT(MHA_STAGE_PRESENT_VALUE, "expected.present_value", "", "present_value", "(B, h_kv, S, d_v)",
           "the cache's values after the call"),
    RESULT(MHA_STAGE_LSE, "expected.lse", "", "lse logsumexp softmax_lse", "(B, h, T_q)",
           "log of the softmax's denominator"),
    RESULT(CASE_QK, "expected.qk", "", "qk qk_matmul_output", "(B, h, T_q, S)",
           "scores, capped, masked or weights without extra rows, as qk_mode says"),
    RESULT(CASE_PREFILL_OUTPUT, "expected.prefill_output", "", "", "(B, P+T_q, d_out)",
           "causal result of prefill.query"),
    FAMILY(RESULTS, "expected64.*", "", "as expected.*",
           "results in float64, with which the exact path is compared"),
    FAMILY(RESULTS, "expected_fast.*", "", "as expected.*",
           "results of a source's fused kernels; known and not judged"),

    TENSOR(MASKS, CASE_ATTN_MASK, "attn_mask", CASE_MASK, 1, 4, "mask attn_bias causal_mask",
           "broadcast from the right to (B, h, T_q, S)", "",
           "floats are added to the scores (-inf hides a key); booleans need attn_mask_kind"),
    TENSOR(MASKS, CASE_PADDING, "key_padding_mask", CASE_MASK, 1, 2,
           "padding_mask attention_mask src_key_padding_mask pad_mask", "(B, S) or (S,)", "",
           "one value per key for all queries, as attn_mask; see key_padding_mask_kind"),
    TENSOR(MASKS, CASE_Q_SEGMENTS, "q_segments", CASE_COUNT, 1, 2, "segment_ids q_segment_ids document_ids", "(B, T_q)",
           "", "a query sees only keys of its own number (documents packed into a row); with k_segments"),
    TENSOR(MASKS, CASE_K_SEGMENTS, "k_segments", CASE_COUNT, 1, 2, "kv_segment_ids", "(B, S)", "q_segments",
           "the numbers of the keys"),
    TENSOR(MASKS, CASE_QUERY_PADDING, "query_padding_mask", CASE_MASK, 1, 2, "", "(B, T_q)", "",
           "booleans: a query of padding sees nothing; its heads are 0; see query_padding_mask_kind"),
    TENSOR(MASKS, CASE_KEY_LISTS, "key_lists", CASE_COUNT, 1, 4, "topk_indices gather_kv_indices", "(B, h, T_q, n)", "",
           "a query sees the keys whose positions its list names; -1 fills, a key named twice counts once"),
    TENSOR(MASKS, CASE_BLOCKS, "block_mask", CASE_MASK, 1, 4, "", "(B, h, T_q/block_queries, S/block_keys), rounded up",
           "", "booleans for blocks of queries and keys; see block_mask_kind"),
    TENSOR(MASKS, CASE_LENGTHS, "kv_lengths", CASE_COUNT, 1, 1, "lengths seqlens_k seqused_k nonpad_kv_seqlen", "(B,)",
           "", "key j of batch row b is hidden from key_offset + j = kv_lengths[b] on, cached keys counted"),
    TENSOR(MASKS, CASE_OFFSET, "position_offset", CASE_COUNT, 1, 1, "offset offsets", "(B,)", "past_len, each",
           "position of query 0: for causal, window, ALiBi, bias_rule, relative_rule and rotation"),
    TENSOR(MASKS, CASE_PAST_KEY, "past_key", CASE_REAL, 4, 4, "past_k k_cache cache_k key_cache past_keys",
           "(B, h_kv, P, d_k)", "", "cached keys, projected and rotated, in front of the new ones; with past_value"),
    TENSOR(MASKS, CASE_PAST_VALUE, "past_value", CASE_REAL, 4, 4, "past_v v_cache cache_v value_cache past_values",
           "(B, h_kv, P, d_v)", "", "cached values; with past_key"),
    TENSOR(MASKS, CASE_PAGE_KEYS, "page_keys", CASE_REAL, 4, 4, "kv_pages k_pages paged_k",
           "(pages, page_size, h_kv, d_k)", "",
           "all keys, in pages, in place of key and past_key; with page_values, page_table and page_lengths"),
    TENSOR(MASKS, CASE_PAGE_VALUES, "page_values", CASE_REAL, 4, 4, "v_pages paged_v", "(pages, page_size, h_kv, d_v)",
           "", "all values, in the same pages"),
    TENSOR(MASKS, CASE_PAGE_TABLE, "page_table", CASE_COUNT, 2, 2, "block_table block_tables", "(B, columns)", "",
           "key j of batch row b is row j % page_size of page page_table[b][j / page_size]"),
    TENSOR(MASKS, CASE_PAGE_LENGTHS, "page_lengths", CASE_COUNT, 1, 1, "cache_seqlens seq_lens context_lens", "(B,)",
           "", "keys of each batch row; without position_offset its queries are the last tokens"),
    TENSOR(MASKS, CASE_COS, "cos_cache", CASE_REAL, 2, 3, "cos cos_table", "(n, rope_dim/2) or (B, T, rope_dim/2)",
           "computed", "cosines of the rotation by position, or one row per new row; with sin_cache"),
    TENSOR(MASKS, CASE_SIN, "sin_cache", CASE_REAL, 2, 3, "sin sin_table", "as cos_cache", "computed",
           "the sines; with cos_cache"),
    TENSOR(MASKS, CASE_FREQUENCIES, "rope_frequencies", CASE_DOUBLE, 1, 1, "inv_freq freqs", "(rope_dim/2,)",
           "by rope_base and rope_scaling",
           "angle that pair i turns by from one position to the next; with rope_axes repeated those of the largest"
           " section"),
    TENSOR(MASKS, CASE_FACTORS, "rope_factors", CASE_DOUBLE, 1, 1, "long_factor short_factor", "(rope_dim/2,)", "",
           "with rope_scaling longrope: what each frequency is divided by, the long or the short factors"),
    TENSOR(MASKS, CASE_POSITIONS, "position_ids", CASE_COUNT, 1, 2, "positions pos_ids pos", "(B, T) or (T,)",
           "position_offset + i", "positions of the new rows for the rotation, the same for queries and keys"),
    TENSOR(MASKS, CASE_AXES, "rope_positions", CASE_COUNT, 2, 3, "mrope_position_ids axes_positions",
           "(axes, B, T) or (axes, T)", "",
           "positions of the new rows on several axes, as tokens of images have them; cos_cache follows from them"),
    TENSOR(MASKS, CASE_SECTIONS, "rope_sections", CASE_COUNT, 1, 1, "mrope_section sections", "(axes,)", "",
           "pairs of features that turn by each axis of rope_positions, rope_dim/2 together"),
    TENSOR(MASKS, CASE_ALIBI, "alibi_slopes", CASE_DOUBLE, 1, 1, "slopes", "(h,)", "",
           "adds -slope * (position of the query - position of the key)"),
    TENSOR(MASKS, CASE_CU_Q, "cu_seqlens_q", CASE_COUNT, 1, 1, "cu_seqlens", "(n+1,)", "",
           "n sequences packed into one batch row: the start of each, and the end of the last"),
    TENSOR(MASKS, CASE_CU_K, "cu_seqlens_k", CASE_COUNT, 1, 1, "cu_seqlens_kv", "(n+1,)", "cu_seqlens_q",
           "the same for the keys"),

    TENSOR(AGAIN, CASE_IN_PROJ, "torch.in_proj_weight", CASE_REAL, 2, 2, "in_proj_weight", "(3*h*d_k, d_q)", "",
           "of nn.MultiheadAttention: W_q, W_k, W_v transposed; read where they are missing"),
    TENSOR(AGAIN, CASE_IN_BIAS, "torch.in_proj_bias", CASE_REAL, 1, 1, "in_proj_bias", "(3*h*d_k,)", "",
           "b_q, b_k, b_v; read where they are missing"),
    TENSOR(AGAIN, CASE_OUT_PROJ, "torch.out_proj.weight", CASE_REAL, 2, 2, "out_proj.weight out_proj out_proj_weight",
           "(d_out, h*d_v)", "", "W_o transposed; read where it is missing"),
    TENSOR(AGAIN, CASE_OUT_BIAS, "torch.out_proj.bias", CASE_REAL, 1, 1, "out_proj.bias out_proj_bias", "(d_out,)", "",
           "b_o; read where it is missing"),
    TENSOR(AGAIN, CASE_PACKED, "packed.qkv", CASE_REAL, 3, 3, "qkv", "(B, T, (h+2*h_kv)*d)", "",
           "query, key and value of kind sdpa side by side: computed again from there"),
    TENSOR(AGAIN, CASE_PREFILL, "prefill.query", CASE_REAL, 3, 3, "", "(B, P+T_q, d_q)", "",
           "all rows of a decoding step: computed at once, compared with expected.prefill_output"),
    FAMILY(AGAIN, "permuted.*", "", "as the weight",
           "weights for the other pairing of the rotation, with the same output"),
    FAMILY(AGAIN, "repeated.*", "", "as the weight",
           "weights with one key/value head per query head, with the same output"),

    KEY(SHAPE, "kind", "", "mha, sdpa, rope", "mha with W_q, W_k, W_v, W_o or torch.*, else sdpa",
        "mha: inputs are projected; sdpa: they are q, k, v of all heads; rope: query is only rotated"),
    KEY(SHAPE, "layout", "", "BTE, TBE, TE, BHTD, BTHD", "BTE",
        "order of inputs and output: batch, time, heads, features (E of all heads side by side, D of one)"),
    KEY(SHAPE, "num_heads", "heads n_heads n_head nhead num_attention_heads h H", COUNT, "needed but in BHTD, BTHD",
        "h, query heads; head i is columns i*d_k ... (i+1)*d_k - 1 of a projected row"),
    KEY(SHAPE, "kv_heads", "n_kv_heads num_kv_heads num_key_value_heads h_kv", COUNT, TOLD,
        "h_kv, key/value heads; query head i reads head i / (h/h_kv), rounded down"),
    KEY(SHAPE, "d_k", "head_dim head_size d_head dk", COUNT, TOLD, "width of one head of q and k"),
    KEY(SHAPE, "d_v", "dv v_head_dim", COUNT, TOLD, "width of one head of v"),
    KEY(SHAPE, "d_model", "embed_dim hidden_size dim", COUNT, TOLD, "width of the output, d_out or h*d_v"),
    KEY(SHAPE, "batch", "batch_size B", COUNT, TOLD, "B"),
    KEY(SHAPE, "q_len", "T_q seq_len", COUNT, TOLD, "T_q"),
    KEY(SHAPE, "kv_len", "T_k", COUNT, TOLD, "T_k, new keys"),
    KEY(SHAPE, "past_len", "", COUNT, TOLD, "P, cached keys"),

    KEY(MEANING, "causal", "is_causal", BOOLEAN, "0", "key j is hidden from query i when j > position_offset + i"),
    KEY(MEANING, "key_offset", "", COUNT, "the keys are whole",
        "the keys are a part that begins here: key j has position key_offset + j; position_ids are the queries'"),
    KEY(MEANING, "keys_only", "", BOOLEAN, "0",
        "another part counts the sinks, softmax_plus_one, bias_k and add_zero_attn: not in this softmax"),
    KEY(MEANING, "scale", "sm_scale softmax_scale scaling", NUMBER, "1/sqrt(d_k)", "factor on q.k"),
    KEY(MEANING, "softcap", "logit_softcap attn_logit_softcapping", NUMBER, "0",
        "c > 0: scores become c * tanh(score / c), before masks"),
    KEY(MEANING, "window_left", "sliding_window window window_size", COUNT, "-1",
        "keys further back than this are hidden: 2 leaves two and the query's own; -1 is open"),
    KEY(MEANING, "window_right", "", COUNT, "-1", "keys further ahead than this are hidden; -1 is open"),
    KEY(MEANING, "prefix", "prefix_length prefix_len", COUNT, "0", "causal does not hide keys at positions below this"),
    KEY(MEANING, "window_keep", "sink_tokens sink_token_length attention_sink_size", COUNT, "0",
        "window_left does not hide keys at positions below this"),
    KEY(MEANING, "chunk", "attention_chunk_size attention_chunk chunk_size", COUNT, "0",
        "n > 0: a query sees only keys of its own chunk of n positions"),
    KEY(MEANING, "attn_mask_kind", "", "none, additive, bool_true_keeps, bool_true_masks", "additive with floats",
        "what attn_mask does: keeps or masks where true"),
    KEY(MEANING, "key_padding_mask_kind", "", "none, additive, bool_true_keeps, bool_true_masks",
        "additive with floats", "what key_padding_mask does"),
    KEY(MEANING, "query_padding_mask_kind", "", "none, additive, bool_true_keeps, bool_true_masks",
        "needed with booleans", "what query_padding_mask does: a query that is not kept is padding"),
    KEY(MEANING, "block_mask_kind", "", "none, additive, bool_true_keeps, bool_true_masks",
        "needed with booleans", "what block_mask does"),
    KEY(MEANING, "block_queries", "", COUNT, "0", "queries in a block of block_mask"),
    KEY(MEANING, "block_keys", "", COUNT, "0", "keys in a block of block_mask"),
    KEY(MEANING, "mask_filter_value", "", NUMBER, "-inf",
        "added to keys hidden by key_padding_mask, instead of hiding"),
    KEY(MEANING, "rope", "rotary rope_type", "none, interleaved, half_split", "none",
        "rotation of q and k in pairs (0,1), (2,3), ... or (i, i + rope_dim/2)"),
    KEY(MEANING, "rope_dim", "rotary_dim", COUNT, "d_k", "features rotated; the others are left alone"),
    KEY(MEANING, "rope_base", "rope_theta theta base", NUMBER, "10000", "angle = position * rope_base^(-2i/rope_dim)"),
    KEY(MEANING, "rope_last", "", BOOLEAN, "0", "the last rope_dim features are rotated, not the first"),
    KEY(MEANING, "rope_axes", "mrope_interleaved", "blocks, interleaved, repeated, dealt", "blocks",
        "which axis of rope_positions a pair turns by, and how fast, by the definitions in mha/rope.h"),
    KEY(MEANING, "rope_scaling", "", "none, linear, dynamic, yarn, longrope, llama3", "none",
        "how the frequencies are changed for long contexts, by the definitions in mha/rope.h"),
    KEY(MEANING, "rope_factor", "rope_scaling_factor", NUMBER, "1", "factor of rope_scaling, 1 or more"),
    KEY(MEANING, "rope_original_length", "original_max_position_embeddings max_position_embeddings", COUNT, "0",
        "positions of the training; rope_scaling other than linear needs it"),
    KEY(MEANING, "rope_length", "", COUNT, "past_len + q_len or kv_len, the greater",
        "positions in use, for rope_scaling dynamic"),
    KEY(MEANING, "rope_beta_fast", "beta_fast", NUMBER, "32", "of rope_scaling yarn"),
    KEY(MEANING, "rope_beta_slow", "beta_slow", NUMBER, "1", "of rope_scaling yarn"),
    KEY(MEANING, "rope_truncate", "truncate", BOOLEAN, "1", "yarn's ramp begins and ends at whole pairs"),
    KEY(MEANING, "rope_low_freq_factor", "low_freq_factor", NUMBER, "1", "of rope_scaling llama3"),
    KEY(MEANING, "rope_high_freq_factor", "high_freq_factor", NUMBER, "4", "of rope_scaling llama3"),
    KEY(MEANING, "rope_attention_factor", "attention_factor attention_scaling mscale", NUMBER,
        "1, by rope_scaling yarn or longrope", "rotated features are multiplied by it"),
    KEY(MEANING, "norm_eps", "eps rms_norm_eps", NUMBER, "1e-6", "eps of all norms"),
    KEY(MEANING, "norm_kind", "norm_type", "rms, layer, l2", "rms",
        "what the norms of q and k divide by: the root of the mean square, the same about the mean, or of the sum of"
        " squares"),
    KEY(MEANING, "norm_plus_one", "", BOOLEAN, "0", "the factor of a feature is 1 + its weight"),
    KEY(MEANING, "norm_after_rope", "", BOOLEAN, "0", "norms come after the rotation, not before it"),
    KEY(MEANING, "norm_unweighted", "use_qk_norm", BOOLEAN, "0",
        "q and k that have no norm weight are normalised too, each head, with factor 1"),
    KEY(MEANING, "clip_qkv", "clip", NUMBER, "0",
        "c > 0: numbers of q, k and v limited to [-c, c], behind the bias, or behind a norm that comes before the"
        " rotation"),
    KEY(MEANING, "query_scale_growth", "attn_scale llama_4_scaling_beta", NUMBER, "0",
        "g > 0: queries times 1 + g * log(1 + floor((p + query_scale_first) / query_scale_every)), p their position"),
    KEY(MEANING, "query_scale_every", "floor_scale", COUNT, "0", "positions from one step of the scale to the next"),
    KEY(MEANING, "query_scale_first", "", COUNT, "0", "number of the first position: 1 in Llama 4, 0 in Ministral 3"),
    KEY(MEANING, "absorbed", "", BOOLEAN, "0",
        "latent attention with W_kvb beside the queries: keys are [norm(c), k_r] for all heads, values norm(c)"),
    KEY(MEANING, "alibi", "", BOOLEAN, "1 with alibi_slopes", "whether alibi_slopes is used"),
    KEY(MEANING, "bias_rule", "", "none, buckets, grid", "none",
        "row of bias_table that is added to a score: by distance (T5) or cells of a grid (Swin), see mha/bias.h"),
    KEY(MEANING, "bias_one_way", "", BOOLEAN, "0", "all buckets are for earlier keys; later ones have the first"),
    KEY(MEANING, "bias_max_distance", "relative_attention_max_distance", COUNT, "128",
        "from this distance on keys share the last bucket"),
    KEY(MEANING, "bias_height", "", COUNT, "", "cells of the grid, one below the other"),
    KEY(MEANING, "bias_width", "", COUNT, "", "cells of the grid, side by side"),
    KEY(MEANING, "bias_class_token", "", BOOLEAN, "0", "one token stands before the grid; three more rows"),
    KEY(MEANING, "relative_rule", "", "none, distance, log_buckets, grid", "none",
        "row of relative_k and relative_q, of which products are added to a score, see mha/relative.h"),
    KEY(MEANING, "relative_reversed", "", BOOLEAN, "0", "the distance is key minus query, not query minus key"),
    KEY(MEANING, "relative_max_distance", "max_relative_positions", COUNT, "512", "of relative_rule log_buckets"),
    KEY(MEANING, "relative_height", "", COUNT, "", "cells of the grid, one below the other"),
    KEY(MEANING, "relative_width", "", COUNT, "", "cells of the grid, side by side"),
    KEY(MEANING, "relative_k_scale", "", NUMBER, "scale", "factor on q . relative_k; 1 in SAM"),
    KEY(MEANING, "relative_q_scale", "", NUMBER, "scale", "factor on k . relative_q"),
    KEY(MEANING, "add_bias_kv", "", BOOLEAN, "1 with bias_k", "whether bias_k and bias_v are used"),
    KEY(MEANING, "add_zero_attn", "", BOOLEAN, "0", "one more key and value of zeros, never hidden"),
    KEY(MEANING, "softmax_plus_one", "", BOOLEAN, "0", "one more exp(0) in the denominator"),
    KEY(MEANING, "normaliser", "", "softmax, sigmoid", "softmax",
        "sigmoid: weights are 1 / (1 + exp(-(score + sigmoid_bias))), each key by itself"),
    KEY(MEANING, "sigmoid_bias", "", NUMBER, "0", "of normaliser sigmoid; -log of the number of keys is usual"),
    KEY(MEANING, "fully_masked", "", "zero, nan, none", "zero",
        "the weights of a query that sees no key: zeros or NaN; none: as nan, does not occur"),
    KEY(MEANING, "hidden_values", "", "ignore, propagate", "ignore",
        "propagate: NaN and infinity in the value of a hidden key reach the output (0 * NaN)"),
    KEY(MEANING, "qk_mode", "", "0, 1, 2, 3", "needed with expected.qk",
        "what expected.qk is: scores, capped, masked, weights"),

    KEY(JUDGEMENT, "rtol", "", NUMBER, "0", "of expected.*: abs(yours - exact) <= atol + rtol * abs(yours)"),
    KEY(JUDGEMENT, "atol", "tol tolerance", NUMBER, "what rounding may cost", "of expected.*, as above"),
    KEY(JUDGEMENT, "rtol64", "", NUMBER, "0", "of expected64.*"),
    KEY(JUDGEMENT, "atol64", "", NUMBER, "what rounding may cost", "of expected64.*"),
    {{JUDGEMENT, "atol.*", "", NUMBER, "atol", "atol of one recorded tensor: atol.expected.weights"},
     "",
     WORD_OTHER_KEY,
     0,
     CASE_REAL,
     0,
     0},
    KEY(JUDGEMENT, "precision", "", "F32, F16, BF16, F8_E4M3, F8_E5M2, I8", "F32",
        "type in which a fused kernel computed expected.*: its roundings are allowed for where no tolerance is stated"),
    KEY(JUDGEMENT, "source_dtype", "dtype", "F16, BF16, F32, F64, ...", "type of the tensor",
        "type in which expected.* was computed, when it was widened since; its rounding is allowed for"),
    KEY(JUDGEMENT, "tags", "", TEXT, "",
        "words separated by commas; overflow: a float32 result may also be that of expected64.*"),

    KEY(NOTES, "format_version", "", "1", "1", "of this format"),
    KEY(NOTES, "name", "", TEXT, "the file's name", "how reports call the case"),
    KEY(NOTES, "note", "comment description", TEXT, "",
        "anything; rope=half_split or rope=interleaved is the pairing of permuted.*"),
    TENSOR(NOTES, CASE_TOKENS, "tokens", CASE_COUNT, 1, 2, "token_ids input_ids ids", "(B, S) or (S,)", "",
           "ids of the tokens of the keys, which a vocabulary names in pictures (mha show --tokens FILE.gguf)"),
    KEY(NOTES, "token_names", "token_texts", TEXT, "",
        "a JSON array of texts: the names in pictures of the tokens of the keys"),
    KEY(NOTES, "source", "author", TEXT, "", "who computed the results"),
    KEY(NOTES, "source_version", "", TEXT, "", "which version"),
    KEY(NOTES, "op", "", TEXT, "", "the source's operator"),
    KEY(NOTES, "opset", "", TEXT, "", "its operator set"),
    KEY(NOTES, "attributes", "", TEXT, "", "its attributes"),
    KEY(NOTES, "softmax_precision", "", TEXT, "", "type of its softmax"),
    KEY(NOTES, "need_weights", "", TEXT, "", "argument of nn.MultiheadAttention"),
    KEY(NOTES, "average_attn_weights", "", TEXT, "", "argument of nn.MultiheadAttention"),
    KEY(NOTES, "ort_local_window_size", "", TEXT, "", "the window as ONNX Runtime counts it"),
    KEY(NOTES, "scale_is_default", "", TEXT, "", "whether scale is 1/sqrt(d_k)"),
    KEY(NOTES, "source_rtol", "", TEXT, "", "what the source's own tests allow"),
    KEY(NOTES, "source_atol", "", TEXT, "", "what the source's own tests allow"),
    KEY(NOTES, "tolerance_origin", "", TEXT, "", "where these come from"),
    KEY(NOTES, "tolerance_widened", "", TEXT, "", "whether atol and rtol were widened for the source's own rounding"),
    KEY(NOTES, "observed_max_abs_err", "", TEXT, "", "largest distance of expected.output from expected64.output"),
    KEY(NOTES, "max_abs_logit", "", TEXT, "", "largest finite score"),
    KEY(NOTES, "fast_path_max_abs_diff", "", TEXT, "", "largest distance of expected_fast.output from expected.output"),
    KEY(NOTES, "fast_path_nan", "", TEXT, "", "whether expected_fast.output holds NaN"),
    KEY(NOTES, "decode_vs_prefill_max_abs_diff", "", TEXT, "", "distance of a decoding step from the whole sequence"),
    KEY(NOTES, "expected64_origin", "", TEXT, "", "who computed expected64.*"),
    KEY(NOTES, "format", "", TEXT, "", "what many writers of safetensors add: pt"),

    {{OWN, "my.*", "my_*", "any tensor", "", "your own, never read: my.debug or my_debug"},
     "",
     WORD_OTHER_TENSOR,
     0,
     CASE_REAL,
     0,
     0},
    {{OWN, "my.*", "my_*", "any key", "", "your own, never read: my.seed or my_seed"},
     "",
     WORD_OTHER_KEY,
     0,
     CASE_REAL,
     0,
     0},
};

enum { WORDS = sizeof words / sizeof *words };

const mha__case_word *mha__case_word_at(size_t index)
{
    return index < WORDS ? &words[index] : NULL;
}

const mha_case_word *mha_case_word_at(size_t index)
{
    return index < WORDS ? &words[index].shown : NULL;
}

/* ---------------------------------------------------------------- looking up */

static bool starts_with(const char *text, const char *prefix, const char **rest)
{
    const size_t n = strlen(prefix);
    if (strncmp(text, prefix, n) != 0)
        return false;
    *rest = text + n;
    return true;
}

static bool is_called(const mha__case_word *word, const char *name)
{
    return strcmp(word->shown.name, name) == 0 || (*word->shown.also && strcmp(word->shown.also, name) == 0);
}

const char *mha__case_tensor_name(case_tensor tensor)
{
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].kind == WORD_TENSOR && words[i].code == (int)tensor)
            return words[i].shown.name;
    return "?"; /* unreachable: every tensor has a row */
}

const char *mha__case_weight_name(mha_weight weight)
{
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].kind == WORD_WEIGHT && words[i].code == (int)weight)
            return words[i].shown.name;
    return "?"; /* unreachable: every weight has a row */
}

const mha__case_word *mha__case_key(const char *key)
{
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].kind == WORD_KEY && is_called(&words[i], key))
            return &words[i];
    return NULL;
}

/* The row of that kind and name; NULL when there is none. */
static const mha__case_word *find(case_word_kind kind, const char *name)
{
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].kind == kind && is_called(&words[i], name))
            return &words[i];
    return NULL;
}

/* The row of result "expected.NAME", where `name` is NAME alone. */
static const mha__case_word *find_result(const char *name)
{
    const char *rest;
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].kind == WORD_RESULT && starts_with(words[i].shown.name, "expected.", &rest) &&
            strcmp(rest, name) == 0)
            return &words[i];
    return NULL;
}

mha__case_place mha__case_place_of(const char *tensor)
{
    const char *rest;
    mha__case_place place = {0};
    if (starts_with(tensor, "expected64.", &rest)) {
        place.record = PLACE_DOUBLE;
        place.word = find_result(rest);
    } else if (starts_with(tensor, "expected_fast.", &rest)) {
        place.record = PLACE_FUSED;
        place.word = find_result(rest);
    } else if (starts_with(tensor, "permuted.", &rest)) {
        place.set = CASE_PERMUTED;
        place.word = find(WORD_WEIGHT, rest);
    } else if (starts_with(tensor, "repeated.", &rest)) {
        place.set = CASE_REPEATED;
        place.word = find(WORD_WEIGHT, rest);
    } else {
        static const case_word_kind kinds[] = {WORD_TENSOR, WORD_WEIGHT, WORD_RESULT};
        for (size_t i = 0; i < 3 && !place.word; i++)
            place.word = find(kinds[i], tensor);
    }
    return place;
}

bool mha__case_knows_key(const char *key)
{
    const char *tensor, *name;
    if (starts_with(key, "atol.", &tensor))
        return (starts_with(tensor, "expected.", &name) || starts_with(tensor, "expected64.", &name)) &&
               find_result(name) != NULL;
    return mha__case_key(key) != NULL;
}

bool mha__case_is_own(const char *name)
{
    const char *rest;
    return starts_with(name, "my.", &rest) || starts_with(name, "my_", &rest);
}
