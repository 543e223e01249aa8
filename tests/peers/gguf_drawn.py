"""The tiny models of gguf_peer.py: a row for each architecture of GGUF, as llama.cpp's converter writes it."""
from layers_drawn import GPT, LATENT, MOE

WIDE = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "rms_norm_eps": 2 ** -16,
        "layer_norm_eps": 2 ** -16, "max_position_embeddings": 32}
GROUPS = {**WIDE, "num_key_value_heads": 2}
WINDOW = {"attention.sliding_window": 3}
DECODER = {**GPT, "n_embd": 32, "n_layer": 2}
BLOCKS = {"hidden_size": 32, "num_hidden_layers": 2}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4, "decoder_sparse_step": 1}
KINDS = ["sliding_attention", "full_attention"]
# Wavelengths of 6.3, 63, 628 and 6,283: the first two keep their frequency, the others have a quarter of it, exactly.
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 1.25,
          "original_max_position_embeddings": 100, "rope_theta": 1e4}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 1.25, 2.0], "long_factor": [1.5, 2.5, 3.0, 3.5],
        "attention_factor": 1.25, "rope_theta": 1e4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 1e4}
YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 8}
LATENT = {**LATENT, "hidden_size": 32, "q_lora_rank": 32, "kv_lora_rank": 32, "v_head_dim": 8, "num_hidden_layers": 2,
          "rms_norm_eps": 2 ** -16}
LATENT_KEYS = {"attention.key_length": 10, "attention.value_length": 8, "attention.q_lora_rank": 32,
               "attention.kv_lora_rank": 32, "rope.dimension_count": 4, "attention.layer_norm_rms_epsilon": 1e-6}


def scaled(parameters, **more):
    return {**GROUPS, "rope_parameters": parameters, **more}


# Name: architecture, model type and configuration of transformers, metadata in addition to those that follow from it.
MODELS = {
    "llama": ("llama", "llama", GROUPS, {"rope.dimension_count": 8}),
    "llama-biased": ("llama", "llama", {**GROUPS, "attention_bias": True}, {}),
    "llama-llama3": ("llama", "llama", scaled(LLAMA3), {}),
    "llama-linear": ("llama", "llama", scaled({"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}),
                     {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama-linear-untyped": ("llama", "llama", scaled({"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}),
                             {"rope.scaling.factor": 4.0}),
    "mistral": ("llama", "mistral", {**GROUPS, "sliding_window": 3}, WINDOW),
    "mixtral": ("llama", "mixtral", {**GROUPS, **MOE}, {}),
    "granite": ("granite", "granite", {**GROUPS, "attention_multiplier": 0.125}, {"attention.scale": 0.125}),
    "granitemoe": ("granitemoe", "granitemoe", {**GROUPS, **MOE, "attention_multiplier": 0.25},
                   {"attention.scale": 0.25}),
    "smollm3": ("smollm3", "smollm3", {**GROUPS, "num_hidden_layers": 4}, {}),
    "olmo": ("olmo", "olmo", {**GROUPS, "clip_qkv": 0.5}, {"attention.clamp_kqv": 0.5}),
    "olmo2": ("olmo2", "olmo2", GROUPS, {}),
    "olmo3": ("olmo2", "olmo3", {**GROUPS, "num_hidden_layers": 4, "sliding_window": 3, "rope_parameters": {
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
              {**WINDOW, **YARN_KEYS, "attention.sliding_window_pattern": [True, True, True, False]}),
    "olmoe": ("olmoe", "olmoe", {**GROUPS, **MOE}, {}),
    "qwen2": ("qwen2", "qwen2", GROUPS, {}),
    "qwen2-yarn": ("qwen2", "qwen2", scaled(YARN), YARN_KEYS),
    "qwen2-window": ("qwen2", "qwen2", {**GROUPS, "use_sliding_window": True, "sliding_window": 3,
                                        "layer_types": KINDS},
                     {**WINDOW, "attention.sliding_window_pattern": [True, False]}),
    "qwen2moe": ("qwen2moe", "qwen2_moe", {**GROUPS, **EXPERTS, "shared_expert_intermediate_size": 4}, {}),
    "qwen3": ("qwen3", "qwen3", {**GROUPS, "head_dim": 16}, {}),
    "qwen3-period": ("qwen3", "qwen3", {**GROUPS, "head_dim": 16, "use_sliding_window": True, "sliding_window": 3,
                                        "layer_types": KINDS}, {**WINDOW, "attention.sliding_window_pattern": 2}),
    "qwen3moe": ("qwen3moe", "qwen3_moe", {**GROUPS, **EXPERTS, "head_dim": 16}, {}),
    "gemma": ("gemma", "gemma", {**GROUPS, "head_dim": 16}, {}),
    "gemma2": ("gemma2", "gemma2", {**GROUPS, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 3,
                                    "attn_logit_softcapping": 2.0},
               {**WINDOW, "attn_logit_softcapping": 2.0}),
    "gemma2-scaled": ("gemma2", "gemma2", {**GROUPS, "head_dim": 16, "query_pre_attn_scalar": 64,
                                           "sliding_window": 3},
                      {**WINDOW, "attention.scale": 0.125, "attn_logit_softcapping": 50.0}),
    "gemma3": ("gemma3", "gemma3_text", {**GROUPS, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 3,
                                         "num_hidden_layers": 6, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}}},
               {**WINDOW, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e3, "rope.scaling.type": "linear",
                "rope.scaling.factor": 8.0}),
    "gemma3-all": ("gemma3", "gemma3_text", {**GROUPS, "head_dim": 16, "query_pre_attn_scalar": 16,
                                             "layer_types": ["full_attention"] * 2}, {"rope.freq_base": 1e6}),
    "phi2": ("phi2", "phi", {**WIDE, "partial_rotary_factor": 0.5}, {"rope.dimension_count": 4}),
    "phi3": ("phi3", "phi3", {**GROUPS, "sliding_window": 3}, {**WINDOW, "rope.dimension_count": 8}),
    "phi3-long": ("phi3", "phi3", scaled(LONG, original_max_position_embeddings=4, sliding_window=None),
                  {"attention.sliding_window": 0, "rope.dimension_count": 8,
                   "rope.scaling.original_context_length": 4, "rope.scaling.attn_factor": 1.25}),
    "phi3-short": ("phi3", "phi3", scaled(LONG, original_max_position_embeddings=16, sliding_window=None),
                   {"attention.sliding_window": 0, "rope.dimension_count": 8,
                    "rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.25}),
    "starcoder": ("starcoder", "gpt_bigcode", DECODER, {"attention.head_count_kv": 1}),
    "starcoder2": ("starcoder2", "starcoder2", GROUPS, {}),
    "command-r": ("command-r", "cohere", GROUPS, {"rope.scaling.type": "none"}),
    "command-r-plus": ("command-r", "cohere", {**GROUPS, "use_qk_norm": True}, {}),
    "cohere2": ("cohere2", "cohere2", {**GROUPS, "num_hidden_layers": 4, "sliding_window": 3},
                {**WINDOW, "rope.dimension_count": 8}),
    "gpt2": ("gpt2", "gpt2", DECODER, {}),
    "gptneox": ("gptneox", "gpt_neox", {**WIDE, "rotary_pct": 0.5}, {"rope.dimension_count": 4}),
    "falcon": ("falcon", "falcon", {**WIDE, "new_decoder_architecture": True, "num_kv_heads": 2},
               {"attention.head_count_kv": 2}),
    "falcon-7b": ("falcon", "falcon", {**WIDE, "multi_query": True}, {"attention.head_count_kv": 1}),
    "bloom": ("bloom", "bloom", BLOCKS, {}),
    "mpt": ("mpt", "mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 20, "max_seq_len": 32},
            {"attention.max_alibi_bias": 8.0}),
    "stablelm": ("stablelm", "stablelm", {**GROUPS, "use_qkv_bias": True, "partial_rotary_factor": 0.25},
                 {"rope.dimension_count": 2}),
    "stablelm-normed": ("stablelm", "stablelm", {**GROUPS, "qk_layernorm": True}, {"rope.dimension_count": 2}),
    "bert": ("bert", "bert", WIDE, {"attention.causal": False}),
    "nomic-bert": ("nomic-bert", "nomic_bert", WIDE, {"attention.causal": False}),
    "modern-bert": ("modern-bert", "modernbert", {**WIDE, "local_attention": 4, "num_hidden_layers": 4,
                                                  "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}}},
                    {"attention.sliding_window": 4, "attention.sliding_window_pattern": 3, "attention.causal": False,
                     "rope.freq_base": 1e5, "rope.freq_base_swa": 1e3}),
    "gpt-oss": ("gpt-oss", "gpt_oss", {**GROUPS, **MOE, "head_dim": 16, "sliding_window": 3, "rope_parameters": {
        **YARN, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}},
                {**WINDOW, **YARN_KEYS, "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0}),
    "exaone4": ("exaone4", "exaone4", {**GROUPS, "num_hidden_layers": 4, "sliding_window": 3,
                                       "sliding_window_pattern": 4},
                {**WINDOW, "attention.sliding_window_pattern": [True, True, True, False]}),
    "exaone4-all": ("exaone4", "exaone4", {**GROUPS, "sliding_window": None,
                                           "layer_types": ["full_attention"] * 2}, {}),
    "glm4": ("glm4", "glm4", {**GROUPS, "head_dim": 8, "attention_bias": True}, {"rope.dimension_count": 4}),
    "deepseek2": ("deepseek2", "deepseek_v2", {**LATENT, "rope_scaling": {**YARN, "mscale": 0.625,
                                                                          "mscale_all_dim": 0.625}},
                  {**LATENT_KEYS, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 0.0625}),
    "deepseek2-lite": ("deepseek2", "deepseek_v2", {**LATENT, "q_lora_rank": None},
                       {**LATENT_KEYS, "attention.q_lora_rank": 0}),
    "deepseek3": ("deepseek2", "deepseek_v3", LATENT, LATENT_KEYS),
    "minicpm3": ("minicpm3", "minicpm3", LATENT, LATENT_KEYS),
    "lfm2": ("lfm2", "lfm2", {**GROUPS, "layer_types": ["full_attention"] * 2},
             {"attention.head_count_kv": [2, 2], "attention.layer_norm_rms_epsilon": 1e-5, "shortconv.l_cache": 3}),
}
