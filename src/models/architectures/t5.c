/* T5: encoder and decoder without biases; d_kv is free, and block 0 of each stack holds a table of relative biases. */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

static const mha__arch_key keys[] = {
    {"V", "vocab_size", "32128"},
    {"d_model", "d_model", "512"},
    {"d_k", "d_kv", "64"},
    {"d_ff", "d_ff", "2048"},
    {"L", "num_layers", "6"},
    {"M", "num_decoder_layers", "L"},
    {"h", "num_heads", "8"},
    {"buckets", "relative_attention_num_buckets", "32"},
    {"gated", "feed_forward_proj", "0", .contains = "gated"},
    {"tied", "tie_word_embeddings", "1"},
    {"h_kv", NULL, "h"},
    {0}};

static const mha__arch_class classes[] = {
    {"T5ForConditionalGeneration", "decoder lm"},
    {"T5WithLMHeadModel", "decoder lm"}, /* its name in the published configs */
    {"T5Model", "decoder"},
    {"T5EncoderModel", ""},
    {0}};

#define ATTENTION(blocks, layer, condition)                                                                            \
    {blocks, layer ".q.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_Q", .when = condition},                      \
    {blocks, layer ".k.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_K", .when = condition},                      \
    {blocks, layer ".v.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_V", .when = condition},                      \
    {blocks, layer ".o.weight", "d_model, h*d_k", MHA_GROUP_ATTENTION, "W_O", .when = condition}

#define FEED_FORWARD(blocks, layer, condition)                                                                         \
    {blocks, layer ".DenseReluDense.wi.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_1",                                 \
     .when = condition " && !gated"},                                                                                  \
    {blocks, layer ".DenseReluDense.wi_0.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_gate",                            \
     .when = condition " && gated"},                                                                                   \
    {blocks, layer ".DenseReluDense.wi_1.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_1",                               \
     .when = condition " && gated"},                                                                                   \
    {blocks, layer ".DenseReluDense.wo.weight", "d_model, d_ff", MHA_GROUP_FFN, "W_2", .when = condition},             \
    {blocks, layer ".layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = condition}

static const mha__arch_tensor tensors[] = {
    {NULL, "shared.weight", "V, d_model", MHA_GROUP_EMBEDDING, "tokens"},
    {NULL, "encoder.embed_tokens.weight", "V, d_model", MHA_GROUP_EMBEDDING, "tokens", .alias_of = "shared.weight"},
    {NULL, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "buckets, h", MHA_GROUP_ATTENTION,
     "relative bias"},
    ATTENTION("L", "encoder.block.{i}.layer.0.SelfAttention", "1"),
    {"L", "encoder.block.{i}.layer.0.layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    FEED_FORWARD("L", "encoder.block.{i}.layer.1", "1"),
    {NULL, "encoder.final_layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {NULL, "decoder.embed_tokens.weight", "V, d_model", MHA_GROUP_EMBEDDING, "tokens", .when = "decoder",
     .alias_of = "shared.weight"},
    {NULL, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "buckets, h", MHA_GROUP_ATTENTION,
     "relative bias", .when = "decoder"},
    ATTENTION("M", "decoder.block.{i}.layer.0.SelfAttention", "decoder"),
    {"M", "decoder.block.{i}.layer.0.layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = "decoder"},
    ATTENTION("M", "decoder.block.{i}.layer.1.EncDecAttention", "decoder"),
    {"M", "decoder.block.{i}.layer.1.layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = "decoder"},
    FEED_FORWARD("M", "decoder.block.{i}.layer.2", "decoder"),
    {NULL, "decoder.final_layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = "decoder"},
    {NULL, "lm_head.weight", "V, d_model", MHA_GROUP_HEAD, "token logits", .when = "lm", .alias_of = "shared.weight",
     .tied = "tied"},
    {0}};

static const mha__arch_attention attention[] = {
    {"L", "encoder.block.{i}.layer.0.SelfAttention"},
    {"M", "decoder.block.{i}.layer.0.SelfAttention", .when = "decoder", .causal = "1"},
    {"M", "decoder.block.{i}.layer.1.EncDecAttention", .when = "decoder"},
    {0}};

/* T5 folds 1/sqrt(d_k) into its initialisation: scores are not scaled. */
static const mha__arch_real reals[] = {{"scale_square", "", 1}, {0}};

const mha__architecture mha__arch_t5 = {
    .model_types = "t5", .title = "T5", .base_prefix = "", .keys = keys, .reals = reals, .classes = classes,
    .tensors = tensors, .attention = attention,
    .caveat = "T5 adds a bias per head and relative position to its scores, which is counted, not computed"};
