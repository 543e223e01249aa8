/* GPT-2: pre-norm decoder with fused c_attn; weights are Conv1D, (in, out). */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

static const mha__arch_key keys[] = {
    {"V", "vocab_size", "50257"},
    {"P", "n_positions n_ctx max_position_embeddings", "1024"},
    {"d_model", "n_embd hidden_size", "768"},
    {"L", "n_layer num_hidden_layers", "12"},
    {"h", "n_head num_attention_heads", "12"},
    {"d_ff", "n_inner", "4*d_model"},
    {"tied", "tie_word_embeddings", "1"},
    {"labels", "id2label num_labels", "2", .matters = "score || classifier"},
    {"cross", "add_cross_attention", "0", .matters = "0"},
    {"h_kv", NULL, "h"},
    {"d_k", NULL, "d_model/h"},
    {"bias_q", NULL, "1"}, {"bias_k", NULL, "1"}, {"bias_v", NULL, "1"}, {"bias_o", NULL, "1"},
    {"causal", NULL, "1"},
    {0}};

static const mha__arch_class classes[] = {
    {"GPT2LMHeadModel", "lm"},
    {"GPT2Model", ""},
    {"GPT2DoubleHeadsModel", "lm choice"},
    {"GPT2ForSequenceClassification", "score"},
    {"GPT2ForTokenClassification", "classifier"},
    {0}};

static const mha__arch_tensor tensors[] = {
    {NULL, "wte.weight", "V, d_model", MHA_GROUP_EMBEDDING, "tokens"},
    {NULL, "wpe.weight", "P, d_model", MHA_GROUP_EMBEDDING, "positions"},
    {"L", "h.{i}.ln_1.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", "h.{i}.ln_1.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", "h.{i}.attn.bias", "1, 1, P, P", MHA_GROUP_ATTENTION, "causal mask", .kind = MHA_ARCH_BUFFER},
    {"L", "h.{i}.attn.c_attn.weight", "d_model, 3*d_model", MHA_GROUP_ATTENTION, "W_QKV"},
    {"L", "h.{i}.attn.c_attn.bias", "3*d_model", MHA_GROUP_ATTENTION, "b_QKV"},
    {"L", "h.{i}.attn.c_proj.weight", "d_model, d_model", MHA_GROUP_ATTENTION, "W_O"},
    {"L", "h.{i}.attn.c_proj.bias", "d_model", MHA_GROUP_ATTENTION, "b_O"},
    {"L", "h.{i}.ln_2.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", "h.{i}.ln_2.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", "h.{i}.mlp.c_fc.weight", "d_model, d_ff", MHA_GROUP_FFN, "W_1"},
    {"L", "h.{i}.mlp.c_fc.bias", "d_ff", MHA_GROUP_FFN, "b_1"},
    {"L", "h.{i}.mlp.c_proj.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_2"},
    {"L", "h.{i}.mlp.c_proj.bias", "d_model", MHA_GROUP_FFN, "b_2"},
    {NULL, "ln_f.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {NULL, "ln_f.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {NULL, "lm_head.weight", "V, d_model", MHA_GROUP_HEAD, "token logits", .when = "lm", .alias_of = "wte.weight",
     .tied = "tied"},
    {NULL, "multiple_choice_head.summary.weight", "1, d_model", MHA_GROUP_HEAD, "classifier", .when = "choice"},
    {NULL, "multiple_choice_head.summary.bias", "1", MHA_GROUP_HEAD, "classifier", .when = "choice"},
    {NULL, "score.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "score"},
    {NULL, "classifier.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "classifier"},
    {NULL, "classifier.bias", "labels", MHA_GROUP_HEAD, "classifier", .when = "classifier"},
    {0}};

static const mha__arch_attention attention[] = {{"L", "h.{i}.attn"}, {0}};

static const mha__arch_refusal refusals[] = {{"cross", "add_cross_attention: cross-attention blocks are not described"},
    {0}};

const mha__architecture mha__arch_gpt2 = {
    .model_types = "gpt2", .title = "GPT-2", .base_prefix = "transformer.", .keys = keys, .classes = classes,
    .tensors = tensors, .attention = attention, .refusals = refusals};
