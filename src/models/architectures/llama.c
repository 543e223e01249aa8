/* LLaMA and its relatives: pre-norm decoders with rotary positions, gated feed-forward and RMS norms.
 * Their tensors differ only in biases, q/k norms and extra norms, so one list serves them all. */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

#define LAYER "model.layers.{i}."

static const mha__arch_tensor tensors[] = {
    {NULL, "model.embed_tokens.weight", "V, d_model", MHA_GROUP_EMBEDDING, "tokens"},
    {"L", LAYER "input_layernorm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", LAYER "self_attn.q_proj.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_Q"},
    {"L", LAYER "self_attn.q_proj.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_Q", .when = "bias_q"},
    {"L", LAYER "self_attn.k_proj.weight", "h_kv*d_k, d_model", MHA_GROUP_ATTENTION, "W_K"},
    {"L", LAYER "self_attn.k_proj.bias", "h_kv*d_k", MHA_GROUP_ATTENTION, "b_K", .when = "bias_k"},
    {"L", LAYER "self_attn.v_proj.weight", "h_kv*d_k, d_model", MHA_GROUP_ATTENTION, "W_V"},
    {"L", LAYER "self_attn.v_proj.bias", "h_kv*d_k", MHA_GROUP_ATTENTION, "b_V", .when = "bias_v"},
    {"L", LAYER "self_attn.o_proj.weight", "d_model, h*d_k", MHA_GROUP_ATTENTION, "W_O"},
    {"L", LAYER "self_attn.o_proj.bias", "d_model", MHA_GROUP_ATTENTION, "b_O", .when = "bias_o"},
    {"L", LAYER "self_attn.q_norm.weight", "d_k", MHA_GROUP_ATTENTION, "q_norm", .when = "qk_norm"},
    {"L", LAYER "self_attn.k_norm.weight", "d_k", MHA_GROUP_ATTENTION, "k_norm", .when = "qk_norm"},
    {"L", LAYER "self_attn.rotary_emb.inv_freq", "d_k/2", MHA_GROUP_ATTENTION, "rotary table",
     .when = "rotary_per_layer",
     .kind = MHA_ARCH_BUFFER},
    {"L", LAYER "post_attention_layernorm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", LAYER "pre_feedforward_layernorm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = "sandwich"},
    {"L", LAYER "mlp.gate_proj.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_gate"},
    {"L", LAYER "mlp.gate_proj.bias", "d_ff", MHA_GROUP_FFN, "b_gate", .when = "bias_mlp"},
    {"L", LAYER "mlp.up_proj.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_1"},
    {"L", LAYER "mlp.up_proj.bias", "d_ff", MHA_GROUP_FFN, "b_1", .when = "bias_mlp"},
    {"L", LAYER "mlp.down_proj.weight", "d_model, d_ff", MHA_GROUP_FFN, "W_2"},
    {"L", LAYER "mlp.down_proj.bias", "d_model", MHA_GROUP_FFN, "b_2", .when = "bias_mlp"},
    {"L", LAYER "post_feedforward_layernorm.weight", "d_model", MHA_GROUP_NORM, "norm", .when = "sandwich"},
    {NULL, "model.norm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {NULL, "model.rotary_emb.inv_freq", "d_k/2", MHA_GROUP_ATTENTION, "rotary table", .when = "!rotary_per_layer",
     .kind = MHA_ARCH_BUFFER},
    {NULL, "lm_head.weight", "V, d_model", MHA_GROUP_HEAD, "token logits", .when = "lm",
     .alias_of = "model.embed_tokens.weight", .tied = "tied"},
    {NULL, "score.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "score"},
    {0}};

static const mha__arch_attention attention[] = {{"L", "model.layers.{i}.self_attn"}, {0}};

/* The keys of each member of the family. Where a symbol stands twice, the later row is used. */
#define KEYS(vocabulary, width, feed_forward, layers, heads, kv_heads, head_width, tie)                                \
    {"V", "vocab_size", vocabulary},                                                                                   \
    {"d_model", "hidden_size", width},                                                                                 \
    {"d_ff", "intermediate_size", feed_forward},                                                                       \
    {"L", "num_hidden_layers", layers},                                                                                \
    {"h", "num_attention_heads", heads},                                                                               \
    {"h_kv", "num_key_value_heads", kv_heads},                                                                         \
    {"d_k", "head_dim", head_width},                                                                                   \
    {"tied", "tie_word_embeddings", tie},                                                                              \
    {"labels", "id2label num_labels", "2", .matters = "score"},                                                        \
    {"causal", NULL, "1"},                                                                                             \
    {"rope", NULL, "2"},                                                                                               \
    {"rotary_per_layer", NULL, "0"}, {"sandwich", NULL, "0"}, {"qk_norm", NULL, "0"}, {"bias_mlp", NULL, "0"}

#define BIASES(attention_bias)                                                                                         \
    {"bias_q", attention_bias, "0"}, {"bias_k", NULL, "bias_q"}, {"bias_v", NULL, "bias_q"}, {"bias_o", NULL, "bias_q"}

static const mha__arch_key llama_keys[] = {
    KEYS("32000", "4096", "11008", "32", "32", "h", "d_model/h", "0"), BIASES("attention_bias"),
    {"bias_mlp", "mlp_bias", "0"},
    {"rotary_per_layer", NULL, "1"}, /* older libraries saved the table with every layer */
    {0}};
static const mha__arch_key mistral_keys[] = {
    KEYS("32000", "4096", "14336", "32", "32", "8", "d_model/h", "0"), BIASES(NULL), {"window", "sliding_window", "0"},
        {0}};
static const mha__arch_key qwen2_keys[] = {
    KEYS("151936", "4096", "22016", "32", "32", "32", "d_model/h", "0"), BIASES(NULL),
    {"bias_q", NULL, "1"}, {"bias_k", NULL, "1"}, {"bias_v", NULL, "1"}, {0}};
static const mha__arch_key qwen3_keys[] = {
    KEYS("151936", "4096", "22016", "32", "32", "32", "128", "0"), BIASES("attention_bias"), {"qk_norm", NULL, "1"},
        {0}};
static const mha__arch_key gemma_keys[] = {
    KEYS("256000", "3072", "24576", "28", "16", "16", "256", "1"), BIASES("attention_bias"), {0}};
static const mha__arch_key gemma2_keys[] = {
    KEYS("256000", "2304", "9216", "26", "8", "4", "256", "1"), BIASES("attention_bias"), {"sandwich", NULL, "1"},
    {"moving", NULL, "1"}, /* the softcap */
    {0}};

static const mha__arch_real llama_reals[] = {{"rope_base", "rope_theta", 10000}, {"norm_eps", "rms_norm_eps", 1e-6},
    {0}};
static const mha__arch_real gemma2_reals[] = {
    {"rope_base", "rope_theta", 10000}, {"norm_eps", "rms_norm_eps", 1e-6}, {"softcap", "attn_logit_softcapping", 50},
    {"scale_square", "query_pre_attn_scalar", 256}, {0}};

#define CLASSES(name)                                                                                                  \
    {name "ForCausalLM", "lm"}, {name "Model", ""}, {name "ForSequenceClassification", "score"}, {0}

static const mha__arch_class llama_classes[] = {CLASSES("Llama")}, mistral_classes[] = {CLASSES("Mistral")},
                            qwen2_classes[] = {CLASSES("Qwen2")}, qwen3_classes[] = {CLASSES("Qwen3")},
                            gemma_classes[] = {CLASSES("Gemma")}, gemma2_classes[] = {CLASSES("Gemma2")};

#define MEMBER(member, types, written, ...)                                                                            \
    const mha__architecture mha__arch_##member = {                                                                     \
        .model_types = types, .title = written, .base_prefix = "model.", .keys = member##_keys,                        \
        .classes = member##_classes, .tensors = tensors, .attention = attention, __VA_ARGS__}

MEMBER(llama, "llama", "LLaMA", .reals = llama_reals);
MEMBER(mistral, "mistral", "Mistral", .reals = llama_reals);
MEMBER(qwen2, "qwen2", "Qwen2", .reals = llama_reals);
MEMBER(qwen3, "qwen3", "Qwen3", .reals = llama_reals);
MEMBER(gemma, "gemma", "Gemma", .reals = llama_reals);
MEMBER(gemma2, "gemma2", "Gemma 2", .reals = gemma2_reals,
       .caveat = "every second layer of Gemma 2 sees only a sliding window, which is not applied");
