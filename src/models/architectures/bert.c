/* BERT and RoBERTa: post-norm encoders with biases everywhere (names as in their Hugging Face checkpoints). */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

/* ---------------------------------------------------------------- what both share, but for the prefix */

#define ENCODER(prefix)                                                                                                \
    {NULL, prefix "embeddings.word_embeddings.weight", "V, d_model", MHA_GROUP_EMBEDDING, "tokens"},                   \
    {NULL, prefix "embeddings.position_embeddings.weight", "P, d_model", MHA_GROUP_EMBEDDING, "positions"},            \
    {NULL, prefix "embeddings.token_type_embeddings.weight", "T, d_model", MHA_GROUP_EMBEDDING, "types"},              \
    {NULL, prefix "embeddings.LayerNorm.weight", "d_model", MHA_GROUP_NORM, "norm"},                                   \
    {NULL, prefix "embeddings.LayerNorm.bias", "d_model", MHA_GROUP_NORM, "norm"},                                     \
    {NULL, prefix "embeddings.position_ids", "1, P", MHA_GROUP_EMBEDDING, "position ids",                              \
     .kind = MHA_ARCH_BUFFER_I64},                                                                                     \
    {"L", prefix "encoder.layer.{i}.attention.self.query.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_Q"},       \
    {"L", prefix "encoder.layer.{i}.attention.self.query.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_Q"},                  \
    {"L", prefix "encoder.layer.{i}.attention.self.key.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_K"},         \
    {"L", prefix "encoder.layer.{i}.attention.self.key.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_K"},                    \
    {"L", prefix "encoder.layer.{i}.attention.self.value.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_V"},       \
    {"L", prefix "encoder.layer.{i}.attention.self.value.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_V"},                  \
    {"L", prefix "encoder.layer.{i}.attention.self.distance_embedding.weight", "2*P-1, d_k", MHA_GROUP_ATTENTION,      \
     "distances", .when = "relative"},                                                                                 \
    {"L", prefix "encoder.layer.{i}.attention.output.dense.weight", "d_model, h*d_k", MHA_GROUP_ATTENTION, "W_O"},     \
    {"L", prefix "encoder.layer.{i}.attention.output.dense.bias", "d_model", MHA_GROUP_ATTENTION, "b_O"},              \
    {"L", prefix "encoder.layer.{i}.attention.output.LayerNorm.weight", "d_model", MHA_GROUP_NORM, "norm"},            \
    {"L", prefix "encoder.layer.{i}.attention.output.LayerNorm.bias", "d_model", MHA_GROUP_NORM, "norm"},              \
    {"L", prefix "encoder.layer.{i}.intermediate.dense.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_1"},                \
    {"L", prefix "encoder.layer.{i}.intermediate.dense.bias", "d_ff", MHA_GROUP_FFN, "b_1"},                           \
    {"L", prefix "encoder.layer.{i}.output.dense.weight", "d_model, d_ff", MHA_GROUP_FFN, "W_2"},                      \
    {"L", prefix "encoder.layer.{i}.output.dense.bias", "d_model", MHA_GROUP_FFN, "b_2"},                              \
    {"L", prefix "encoder.layer.{i}.output.LayerNorm.weight", "d_model", MHA_GROUP_NORM, "norm"},                      \
    {"L", prefix "encoder.layer.{i}.output.LayerNorm.bias", "d_model", MHA_GROUP_NORM, "norm"},                        \
    {NULL, prefix "pooler.dense.weight", "d_model, d_model", MHA_GROUP_HEAD, "pooler", .when = "pooler"},              \
    {NULL, prefix "pooler.dense.bias", "d_model", MHA_GROUP_HEAD, "pooler", .when = "pooler"}

#define CLASSIFIERS                                                                                                    \
    {NULL, "classifier.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "classifier"},                \
    {NULL, "classifier.bias", "labels", MHA_GROUP_HEAD, "classifier", .when = "classifier"},                           \
    {NULL, "classifier.weight", "1, d_model", MHA_GROUP_HEAD, "classifier", .when = "choice"},                         \
    {NULL, "classifier.bias", "1", MHA_GROUP_HEAD, "classifier", .when = "choice"},                                    \
    {NULL, "qa_outputs.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "qa"},                        \
    {NULL, "qa_outputs.bias", "labels", MHA_GROUP_HEAD, "classifier", .when = "qa"}

#define KEYS(vocabulary, labels_matter)                                                                                \
    {"V", "vocab_size", vocabulary},                                                                                   \
    {"d_model", "hidden_size", "768"},                                                                                 \
    {"L", "num_hidden_layers", "12"},                                                                                  \
    {"h", "num_attention_heads", "12"},                                                                                \
    {"d_ff", "intermediate_size", "3072"},                                                                             \
    {"P", "max_position_embeddings", "512"},                                                                           \
    {"T", "type_vocab_size", "2"},                                                                                     \
    {"tied", "tie_word_embeddings", "1"},                                                                              \
    {"labels", "id2label num_labels", "2", .matters = labels_matter},                                                  \
    {"relative", "position_embedding_type", "0", .contains = "relative_key"},                                          \
    {"moving", "position_embedding_type", "0", .contains = "relative_key_query"},                                      \
    {"causal", "is_decoder", "0", .matters = "0"},                                                                     \
    {"cross", "add_cross_attention", "0", .matters = "0"},                                                             \
    {"h_kv", NULL, "h"},                                                                                               \
    {"d_k", NULL, "d_model/h"},                                                                                        \
    {"bias_q", NULL, "1"}, {"bias_k", NULL, "1"}, {"bias_v", NULL, "1"}, {"bias_o", NULL, "1"}

static const mha__arch_refusal refusals[] = {{"cross", "add_cross_attention: cross-attention blocks are not described"},
    {0}};

/* ---------------------------------------------------------------- BERT */

static const mha__arch_key bert_keys[] = {KEYS("30522", "classifier || qa"), {0}};

static const mha__arch_class bert_classes[] = {
    {"BertModel", "pooler"},
    {"BertForPreTraining", "pooler mlm nsp"},
    {"BertForMaskedLM", "mlm"},
    {"BertLMHeadModel", "mlm"},
    {"BertForNextSentencePrediction", "pooler nsp"},
    {"BertForSequenceClassification", "pooler classifier"},
    {"BertForTokenClassification", "classifier"},
    {"BertForMultipleChoice", "pooler choice"},
    {"BertForQuestionAnswering", "qa"},
    {0}};

static const mha__arch_tensor bert_tensors[] = {
    ENCODER("bert."),
    {NULL, "cls.predictions.bias", "V", MHA_GROUP_HEAD, "token logits", .when = "mlm"},
    {NULL, "cls.predictions.transform.dense.weight", "d_model, d_model", MHA_GROUP_HEAD, "transform", .when = "mlm"},
    {NULL, "cls.predictions.transform.dense.bias", "d_model", MHA_GROUP_HEAD, "transform", .when = "mlm"},
    {NULL, "cls.predictions.transform.LayerNorm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = "mlm"},
    {NULL, "cls.predictions.transform.LayerNorm.bias", "d_model", MHA_GROUP_NORM, "norm", .when = "mlm"},
    {NULL, "cls.predictions.decoder.weight", "V, d_model", MHA_GROUP_HEAD, "token logits", .when = "mlm",
     .alias_of = "bert.embeddings.word_embeddings.weight", .tied = "tied"},
    {NULL, "cls.predictions.decoder.bias", "V", MHA_GROUP_HEAD, "token logits", .when = "mlm",
     .alias_of = "cls.predictions.bias"},
    {NULL, "cls.seq_relationship.weight", "2, d_model", MHA_GROUP_HEAD, "next sentence", .when = "nsp"},
    {NULL, "cls.seq_relationship.bias", "2", MHA_GROUP_HEAD, "next sentence", .when = "nsp"},
    CLASSIFIERS,
    {0}};

static const mha__arch_attention bert_attention[] = {{"L", "bert.encoder.layer.{i}.attention"}, {0}};

const mha__architecture mha__arch_bert = {
    .model_types = "bert", .title = "BERT", .base_prefix = "bert.", .keys = bert_keys, .classes = bert_classes,
    .tensors = bert_tensors, .attention = bert_attention, .refusals = refusals};

/* ---------------------------------------------------------------- RoBERTa */

static const mha__arch_key roberta_keys[] = {KEYS("50265", "classifier || qa || sequence"), {0}};

static const mha__arch_class roberta_classes[] = {
    {"RobertaModel", "pooler"},
    {"RobertaForMaskedLM", "mlm"},
    {"RobertaForCausalLM", "mlm"},
    {"RobertaForSequenceClassification", "sequence"},
    {"RobertaForTokenClassification", "classifier"},
    {"RobertaForMultipleChoice", "pooler choice"},
    {"RobertaForQuestionAnswering", "qa"},
    {0}};

static const mha__arch_tensor roberta_tensors[] = {
    ENCODER("roberta."),
    {NULL, "lm_head.bias", "V", MHA_GROUP_HEAD, "token logits", .when = "mlm"},
    {NULL, "lm_head.dense.weight", "d_model, d_model", MHA_GROUP_HEAD, "transform", .when = "mlm"},
    {NULL, "lm_head.dense.bias", "d_model", MHA_GROUP_HEAD, "transform", .when = "mlm"},
    {NULL, "lm_head.layer_norm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = "mlm"},
    {NULL, "lm_head.layer_norm.bias", "d_model", MHA_GROUP_NORM, "norm", .when = "mlm"},
    {NULL, "lm_head.decoder.weight", "V, d_model", MHA_GROUP_HEAD, "token logits", .when = "mlm",
     .alias_of = "roberta.embeddings.word_embeddings.weight", .tied = "tied"},
    {NULL, "lm_head.decoder.bias", "V", MHA_GROUP_HEAD, "token logits", .when = "mlm", .alias_of = "lm_head.bias"},
    {NULL, "classifier.dense.weight", "d_model, d_model", MHA_GROUP_HEAD, "classifier", .when = "sequence"},
    {NULL, "classifier.dense.bias", "d_model", MHA_GROUP_HEAD, "classifier", .when = "sequence"},
    {NULL, "classifier.out_proj.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "sequence"},
    {NULL, "classifier.out_proj.bias", "labels", MHA_GROUP_HEAD, "classifier", .when = "sequence"},
    CLASSIFIERS,
    {0}};

static const mha__arch_attention roberta_attention[] = {{"L", "roberta.encoder.layer.{i}.attention"}, {0}};

const mha__architecture mha__arch_roberta = {
    .model_types = "roberta xlm-roberta camembert", .title = "RoBERTa", .base_prefix = "roberta.",
    .class_families = "Roberta XLMRoberta Camembert", .keys = roberta_keys,
    .classes = roberta_classes, .tensors = roberta_tensors, .attention = roberta_attention, .refusals = refusals};
