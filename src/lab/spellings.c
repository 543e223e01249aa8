/* Pairs of names that mean one tensor, and the translation of a name either way. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lab/spellings.h"

/* GGUF's name of a tensor of LLaMA and the models like it, and the checkpoint's; after a '.', of a block. Pairs below
 * the empty one are parts of names, which files of other releases have. */
static const char *const pairs[][2] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {".attn_norm", ".input_layernorm"},
    {".ffn_norm", ".post_attention_layernorm"},
    {".post_attention_norm", ".post_self_attn_layernorm"}, /* GLM-4 */
    {".post_ffw_norm", ".post_mlp_layernorm"},
    {".ffn_norm", ".pre_feedforward_layernorm"}, /* with the two that follow: Gemma 2 */
    {".post_attention_norm", ".post_attention_layernorm"},
    {".post_ffw_norm", ".post_feedforward_layernorm"},
    {".attn_q", ".self_attn.q_proj"},
    {".attn_k", ".self_attn.k_proj"},
    {".attn_v", ".self_attn.v_proj"},
    {".attn_qkv", ".self_attn.qkv_proj"},
    {".attn_output", ".self_attn.o_proj"},
    {".attn_q_norm", ".self_attn.q_norm"},
    {".attn_k_norm", ".self_attn.k_norm"},
    {".attn_sinks.weight", ".self_attn.sinks"},
    {".attn_q_a", ".self_attn.q_a_proj"}, /* latents */
    {".attn_q_a_norm", ".self_attn.q_a_layernorm"},
    {".attn_q_b", ".self_attn.q_b_proj"},
    {".attn_kv_a_mqa", ".self_attn.kv_a_proj_with_mqa"},
    {".attn_kv_a_norm", ".self_attn.kv_a_layernorm"},
    {".attn_kv_b", ".self_attn.kv_b_proj"},
    {".ffn_gate", ".mlp.gate_proj"},
    {".ffn_up", ".mlp.up_proj"},
    {".ffn_up", ".mlp.gate_up_proj"}, /* Phi-3 */
    {".ffn_down", ".mlp.down_proj"},
    {".ffn_up", ".mlp.c_fc"}, /* StarCoder 2 */
    {".ffn_down", ".mlp.c_proj"},
    {"output_norm", "model.final_layernorm"}, /* Phi */
    {".attn_output", ".self_attn.dense"},
    {".ffn_up", ".mlp.fc1"},
    {".ffn_down", ".mlp.fc2"},
    {"", ""},
    {"LayerNorm.gamma", "LayerNorm.weight"},
    {"LayerNorm.beta", "LayerNorm.bias"},
    {"decoder.decoder_encoder.layer.", "decoder.decoder_layers."}, /* ViT-MAE since transformers 5.23 */
};
static const char *const blocks[2] = {"blk.", "model.layers."};

/* Whether a name has this part; `from` its name there, `to` the other one. */
static bool respelled(const char *name, const char *from, const char *to, char room[MHA_SPELLING])
{
    const char *at = strstr(name, from);
    const int before = at ? (int)(at - name) : 0;
    return at && snprintf(room, MHA_SPELLING, "%.*s%s%s", before, name, to, at + strlen(from)) < MHA_SPELLING;
}

/* Whether a name is that of a tensor with a weight or a bias, in GGUF (way 0) or a checkpoint (way 1). */
static bool translated(const char *name, const char *const pair[2], int way, char room[MHA_SPELLING])
{
    const size_t start = strlen(blocks[way]), length = strlen(pair[way]);
    const bool inside = strncmp(name, blocks[way], start) == 0;
    const size_t digits = inside ? strspn(name + start, "0123456789") : 0;
    const char *rest = inside ? name + start + digits : name;
    return (*pair[way] == '.') == inside && strncmp(rest, pair[way], length) == 0 &&
           (strcmp(rest + length, ".weight") == 0 || strcmp(rest + length, ".bias") == 0 || !rest[length]) &&
           snprintf(room, MHA_SPELLING, "%s%.*s%s%s", inside ? blocks[!way] : "", (int)digits,
                    inside ? name + start : "", pair[!way], rest + length) < MHA_SPELLING;
}

const char *mha__other_spelling(const char *name, size_t *next, char room[MHA_SPELLING])
{
    enum { PAIRS = sizeof pairs / sizeof *pairs };
    bool parts = false;
    for (size_t i = 0; i < PAIRS; i++) {
        parts |= !*pairs[i][0];
        for (int way = 0; way < 2; way++)
            if (2 * i + (size_t)way >= *next && *pairs[i][0] &&
                (parts ? respelled(name, pairs[i][way], pairs[i][!way], room)
                       : translated(name, pairs[i], way, room))) {
                *next = 2 * i + (size_t)way + 1;
                return room;
            }
    }
    return NULL;
}
