/* The naming schemes of public checkpoints, as data. */
#include "models/layer/tensor_names.h"

/* Names are relative to the module with the projections: a prefix is the path of that module, such as
 * "bert.encoder.layer.0.attention". A new scheme needs one more entry. */
/* clang-format off */
static const mha__scheme schemes[] = {
    {.name = "own", .orientation = MHA_ORIENTATION_IN_OUT, .free_widths = true, .words = {"Q", "K", "V"},
     .matrices = "W_*", .biases = "b_*", .output_matrix = "W_O", .output_bias = "b_O", .extra_rows = "bias_*",
     .sinks = "sinks", .norms = "*_norm", .norm_biases = "*_norm_bias", .gate = "W_G", .gate_bias = "b_G",
     .bias_table = "bias_table", .relative_tables = {"relative_k", "relative_columns", "relative_q"}},
    {.name = "case file", .orientation = MHA_ORIENTATION_IN_OUT, .free_widths = true,
     .matrices = "W_*", .biases = "b_*", .output_matrix = "W_o", .output_bias = "b_o", .extra_rows = "bias_*",
     .sinks = "head_sink", .norms = "*_norm_weight", .norm_biases = "*_norm_bias", .gate = "W_g", .gate_bias = "b_g",
     .bias_table = "bias_table", .relative_tables = {"relative_k", "relative_columns", "relative_q"}},
    {.name = "nn.MultiheadAttention", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "in_proj_weight", .biases = "in_proj_bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias", .extra_rows = "bias_*"},
    {.name = "nn.MultiheadAttention (kdim, vdim)", .orientation = MHA_ORIENTATION_OUT_IN, .free_widths = true,
     .matrices = "*_proj_weight", .biases = "in_proj_bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias", .extra_rows = "bias_*"},
    {.name = "BERT", .orientation = MHA_ORIENTATION_OUT_IN, .free_widths = true, .words = {"query", "key", "value"},
     .matrices = "self.*.weight", .biases = "self.*.bias", .output_matrix = "output.dense.weight",
     .output_bias = "output.dense.bias", .bias_table = "self.relative_position_bias_table", /* of Swin */
     .logit_scale = "self.logit_scale", /* of Swin v2 */
     .others = {"self.relative_position_index", "self.relative_coords_table", /* of Swin, too */
                "output.LayerNorm.weight", "output.LayerNorm.bias", "output.LayerNorm.gamma", "output.LayerNorm.beta",
                "LayerNorm.weight", "LayerNorm.bias", "LayerNorm.gamma", "LayerNorm.beta",
                "self.rotary_embeddings.inv_freq"}}, /* of ESM */
    {.name = "DeBERTa v2", .orientation = MHA_ORIENTATION_OUT_IN, .words = {"query", "key", "value"},
     .matrices = "self.*_proj.weight", .biases = "self.*_proj.bias", .output_matrix = "output.dense.weight",
     .output_bias = "output.dense.bias", .relative_k = "self.pos_key_proj", .relative_q = "self.pos_query_proj",
     .others = {"output.LayerNorm.weight", "output.LayerNorm.bias"}},
    {.name = "DeBERTa", .orientation = MHA_ORIENTATION_OUT_IN, .order = MHA_FUSED_AS_SAID,
     .matrices = "self.in_proj.weight", .biases = "self.*_bias", .output_matrix = "output.dense.weight",
     .output_bias = "output.dense.bias", .relative_k = "self.pos_proj", .relative_q = "self.pos_q_proj",
     .relative_k_plain = true, .others = {"output.LayerNorm.weight", "output.LayerNorm.bias"}},
    {.name = "ALBERT", .orientation = MHA_ORIENTATION_OUT_IN, .words = {"query", "key", "value"},
     .matrices = "*.weight", .biases = "*.bias", .output_matrix = "dense.weight", .output_bias = "dense.bias",
     .others = {"LayerNorm.weight", "LayerNorm.bias"}},
    {.name = "ViT", .orientation = MHA_ORIENTATION_OUT_IN, .words = {"query", "key", "value"},
     .matrices = "attention.*.weight", .biases = "attention.*.bias", .output_matrix = "output.dense.weight",
     .output_bias = "output.dense.bias", /* below of BEiT */
     .bias_table = "attention.relative_position_bias.relative_position_bias_table",
     .others = {"attention.relative_position_bias.relative_position_index"}},
    {.name = "timm", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "qkv.weight", .biases = "qkv.bias", .output_matrix = "proj.weight", .output_bias = "proj.bias",
     .relative_tables = {"rel_pos_h", "rel_pos_w"}}, /* of SAM */
    /* Also MPNet, whose table all layers share. */
    {.name = "T5", .orientation = MHA_ORIENTATION_OUT_IN, .free_widths = true,
     .matrices = "*.weight", .biases = "*.bias", .output_matrix = "o.weight", .output_bias = "o.bias",
     .bias_table = "relative_attention_bias.weight"},
    {.name = "DistilBERT", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "*_lin.weight", .biases = "*_lin.bias", .output_matrix = "out_lin.weight",
     .output_bias = "out_lin.bias"},
    /* The matrices are Conv1D (in, out) in the public files, Linear (out, in) in those of minGPT and nanoGPT.
     * `others` are buffers: the causal mask and its fill. */
    {.name = "GPT-2", .orientation = MHA_ORIENTATION_AUTO,
     .matrices = "c_attn.weight", .biases = "c_attn.bias", .output_matrix = "c_proj.weight",
     .output_bias = "c_proj.bias",
     .others = {"bias", "masked_bias"}},
    /* Also Mistral, Qwen2 and Gemma; with q/k norm Qwen3, OLMo 2, Cohere and StableLM; with sinks gpt-oss; with a gate
     * AFMoE. */
    {.name = "LLaMA", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "*_proj.weight", .biases = "*_proj.bias", .output_matrix = "o_proj.weight",
     .output_bias = "o_proj.bias", .sinks = "sinks", .norms = "*_norm.weight",
     .head_norms = "_layernorm.norms.", .gate = "gate_proj.weight",
     .others = {"rotary_emb.inv_freq", "k_scale", "v_scale", "k_proj.k_scale", "v_proj.v_scale"}}, /* of F8 caches */
    {.name = "DeepSeek", .orientation = MHA_ORIENTATION_OUT_IN, .latents = true, .two_stages = true,
     .matrices = "q_b_proj.weight", .output_matrix = "o_proj.weight", .output_bias = "o_proj.bias",
     .others = {"rotary_emb.inv_freq"}},
    {.name = "DeepSeek (queries without a latent)", .orientation = MHA_ORIENTATION_OUT_IN, .latents = true,
     .matrices = "q_proj.weight", .output_matrix = "o_proj.weight", .output_bias = "o_proj.bias",
     .others = {"rotary_emb.inv_freq"}},
    {.name = "Phi", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "*_proj.weight", .biases = "*_proj.bias", .output_matrix = "dense.weight", .output_bias = "dense.bias",
     .norms = "*_layernorm.weight", .norm_biases = "*_layernorm.bias", .others = {"rotary_emb.inv_freq"}},
    {.name = "Phi-3", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "qkv_proj.weight", .biases = "qkv_proj.bias", .output_matrix = "o_proj.weight",
     .output_bias = "o_proj.bias", .others = {"rotary_emb.inv_freq"}},
    {.name = "CodeGen", .orientation = MHA_ORIENTATION_OUT_IN, .order = MHA_FUSED_AS_SAID,
     .matrices = "qkv_proj.weight", .biases = "qkv_proj.bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias", .others = {"causal_mask"}},
    /* Also GPT-NeoX and Falcon. */
    {.name = "BLOOM", .orientation = MHA_ORIENTATION_OUT_IN, .order = MHA_FUSED_AS_SAID,
     .matrices = "query_key_value.weight", .biases = "query_key_value.bias", .output_matrix = "dense.weight",
     .output_bias = "dense.bias", .others = {"bias", "masked_bias", "rotary_emb.inv_freq"}},
    {.name = "MPT", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "Wqkv.weight", .biases = "Wqkv.bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias"},
    {.name = "ModernBERT", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "Wqkv.weight", .biases = "Wqkv.bias", .output_matrix = "Wo.weight", .output_bias = "Wo.bias"},
    /* Also OPT, CLIP, Whisper, GPT-J and GPT-Neo, whose older files hold the causal mask and its fill. */
    {.name = "BART", .orientation = MHA_ORIENTATION_OUT_IN, .free_widths = true,
     .matrices = "*_proj.weight", .biases = "*_proj.bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias", .others = {"bias", "masked_bias"}},
    {.name = "LLaMA (Meta)", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "w*.weight", .biases = "w*.bias", .output_matrix = "wo.weight", .output_bias = "wo.bias",
     .others = {"inner_attention.rope.freqs"}},
    /* The prefix is that of the whole block. */
    {.name = "GGUF", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "attn_*.weight", .biases = "attn_*.bias", .output_matrix = "attn_output.weight",
     .output_bias = "attn_output.bias", .sinks = "attn_sinks.weight", .sinks_bare = "attn_sinks",
     .norms = "attn_*_norm.weight", .scope = "attn_",
     .others = {"attn_norm.weight", "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias", "attn_post_norm.weight",
                "attn_output_norm.weight", "attn_output_norm.bias", "attn_rot_embd"}},
    {.name = "GGUF (latents)", .orientation = MHA_ORIENTATION_OUT_IN, .latents = true, .two_stages = true,
     .halves = true, .matrices = "attn_q_b.weight", .output_matrix = "attn_output.weight",
     .output_bias = "attn_output.bias", .scope = "attn_", .others = {"attn_norm.weight", "attn_rot_embd"}},
    {.name = "GGUF (latents, queries without one)", .orientation = MHA_ORIENTATION_OUT_IN, .latents = true,
     .halves = true, .matrices = "attn_q.weight", .output_matrix = "attn_output.weight",
     .output_bias = "attn_output.bias", .scope = "attn_", .others = {"attn_norm.weight", "attn_rot_embd"}},
    {.name = "GGUF (fused)", .orientation = MHA_ORIENTATION_OUT_IN, .order = MHA_FUSED_PLAIN,
     .matrices = "attn_qkv.weight", .biases = "attn_qkv.bias", .output_matrix = "attn_output.weight",
     .output_bias = "attn_output.bias", .sinks = "attn_sinks.weight", .sinks_bare = "attn_sinks",
     .norms = "attn_*_norm.weight", .scope = "attn_",
     .others = {"attn_norm.weight", "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias", "attn_post_norm.weight",
                "attn_output_norm.weight", "attn_output_norm.bias", "attn_rot_embd"}},
};
/* clang-format on */

const mha__scheme *mha__scheme_at(size_t index)
{
    return index < sizeof schemes / sizeof *schemes ? &schemes[index] : NULL;
}
