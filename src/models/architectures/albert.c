/* ALBERT: BERT with a narrow embedding and one block shared by all layers. */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

static const mha__arch_key keys[] = {
    {"V", "vocab_size", "30000"},
    {"E", "embedding_size", "128"},
    {"d_model", "hidden_size", "4096"},
    {"L", "num_hidden_layers", "12"},
    {"G", "num_hidden_groups", "1"},
    {"N", "inner_group_num", "1"},
    {"h", "num_attention_heads", "64"},
    {"d_ff", "intermediate_size", "16384"},
    {"P", "max_position_embeddings", "512"},
    {"T", "type_vocab_size", "2"},
    {"tied", "tie_word_embeddings", "1"},
    {"labels", "id2label num_labels", "2", .matters = "classifier || qa"},
    {"relative", "position_embedding_type", "0", .contains = "relative"},
    {"h_kv", NULL, "h"},
    {"d_k", NULL, "d_model/h"},
    {"bias_q", NULL, "1"}, {"bias_k", NULL, "1"}, {"bias_v", NULL, "1"}, {"bias_o", NULL, "1"},
    {0}};

static const mha__arch_class classes[] = {
    {"AlbertModel", "pooler"},
    {"AlbertForPreTraining", "pooler mlm sop"},
    {"AlbertForMaskedLM", "mlm"},
    {"AlbertForSequenceClassification", "pooler classifier"},
    {"AlbertForTokenClassification", "classifier"},
    {"AlbertForQuestionAnswering", "qa"},
    {0}};

#define BLOCK "albert.encoder.albert_layer_groups.{i}.albert_layers.{j}."

static const mha__arch_tensor tensors[] = {
    {NULL, "albert.embeddings.word_embeddings.weight", "V, E", MHA_GROUP_EMBEDDING, "tokens"},
    {NULL, "albert.embeddings.position_embeddings.weight", "P, E", MHA_GROUP_EMBEDDING, "positions"},
    {NULL, "albert.embeddings.token_type_embeddings.weight", "T, E", MHA_GROUP_EMBEDDING, "types"},
    {NULL, "albert.embeddings.LayerNorm.weight", "E", MHA_GROUP_NORM, "norm"},
    {NULL, "albert.embeddings.LayerNorm.bias", "E", MHA_GROUP_NORM, "norm"},
    {NULL, "albert.embeddings.position_ids", "1, P", MHA_GROUP_EMBEDDING, "position ids", .kind = MHA_ARCH_BUFFER_I64},
    {NULL, "albert.encoder.embedding_hidden_mapping_in.weight", "d_model, E", MHA_GROUP_EMBEDDING, "widening"},
    {NULL, "albert.encoder.embedding_hidden_mapping_in.bias", "d_model", MHA_GROUP_EMBEDDING, "widening"},
    {"G*N", BLOCK "full_layer_layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"G*N", BLOCK "full_layer_layer_norm.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {"G*N", BLOCK "attention.query.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_Q"},
    {"G*N", BLOCK "attention.query.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_Q"},
    {"G*N", BLOCK "attention.key.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_K"},
    {"G*N", BLOCK "attention.key.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_K"},
    {"G*N", BLOCK "attention.value.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_V"},
    {"G*N", BLOCK "attention.value.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_V"},
    {"G*N", BLOCK "attention.dense.weight", "d_model, h*d_k", MHA_GROUP_ATTENTION, "W_O"},
    {"G*N", BLOCK "attention.dense.bias", "d_model", MHA_GROUP_ATTENTION, "b_O"},
    {"G*N", BLOCK "attention.LayerNorm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"G*N", BLOCK "attention.LayerNorm.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {"G*N", BLOCK "ffn.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_1"},
    {"G*N", BLOCK "ffn.bias", "d_ff", MHA_GROUP_FFN, "b_1"},
    {"G*N", BLOCK "ffn_output.weight", "d_model, d_ff", MHA_GROUP_FFN, "W_2"},
    {"G*N", BLOCK "ffn_output.bias", "d_model", MHA_GROUP_FFN, "b_2"},
    {NULL, "albert.pooler.weight", "d_model, d_model", MHA_GROUP_HEAD, "pooler", .when = "pooler"},
    {NULL, "albert.pooler.bias", "d_model", MHA_GROUP_HEAD, "pooler", .when = "pooler"},
    {NULL, "predictions.bias", "V", MHA_GROUP_HEAD, "token logits", .when = "mlm"},
    {NULL, "predictions.LayerNorm.weight", "E", MHA_GROUP_NORM, "norm", .when = "mlm"},
    {NULL, "predictions.LayerNorm.bias", "E", MHA_GROUP_NORM, "norm", .when = "mlm"},
    {NULL, "predictions.dense.weight", "E, d_model", MHA_GROUP_HEAD, "transform", .when = "mlm"},
    {NULL, "predictions.dense.bias", "E", MHA_GROUP_HEAD, "transform", .when = "mlm"},
    {NULL, "predictions.decoder.weight", "V, E", MHA_GROUP_HEAD, "token logits", .when = "mlm",
     .alias_of = "albert.embeddings.word_embeddings.weight", .tied = "tied"},
    {NULL, "predictions.decoder.bias", "V", MHA_GROUP_HEAD, "token logits", .when = "mlm",
     .alias_of = "predictions.bias"},
    {NULL, "sop_classifier.classifier.weight", "2, d_model", MHA_GROUP_HEAD, "sentence order", .when = "sop"},
    {NULL, "sop_classifier.classifier.bias", "2", MHA_GROUP_HEAD, "sentence order", .when = "sop"},
    {NULL, "classifier.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "classifier"},
    {NULL, "classifier.bias", "labels", MHA_GROUP_HEAD, "classifier", .when = "classifier"},
    {NULL, "qa_outputs.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "qa"},
    {NULL, "qa_outputs.bias", "labels", MHA_GROUP_HEAD, "classifier", .when = "qa"},
    {0}};

static const mha__arch_attention attention[] = {
    {"G*N", "albert.encoder.albert_layer_groups.{i}.albert_layers.{j}.attention", .uses = "L/G"}, {0}};

static const mha__arch_refusal refusals[] = {
    {"relative", "position_embedding_type: relative positions are not described"},
    {"G < 1 || N < 1 || L % (G*N+!(G*N)) != 0",
     "num_hidden_layers is not a multiple of num_hidden_groups * inner_group_num"},
    {0}};

const mha__architecture mha__arch_albert = {
    .model_types = "albert", .title = "ALBERT", .base_prefix = "albert.", .keys = keys, .classes = classes,
    .tensors = tensors, .attention = attention, .refusals = refusals, .inner = "N"};
