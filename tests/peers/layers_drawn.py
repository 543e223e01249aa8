"""The tiny models of layers_peer.py: one row each, a configuration on top of the sizes that all share, and inputs."""
import inspect

import numpy as np
import torch
import transformers

T, B = 7, 2
SIZES = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 8,
         "vocab_size": 20, "max_position_embeddings": 16, "pad_token_id": 0}
GROUPS = {"num_key_value_heads": 2}
TWO = {"num_hidden_layers": 2}  # where layers differ
GPT = {"n_embd": 16, "n_head": 4, "n_layer": 1, "n_inner": 8, "n_positions": 16, "vocab_size": 20}
PAIR = {"d_model": 16, "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_layers": 1,
        "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 20,
        "max_position_embeddings": 16, "pad_token_id": 1, "decoder_start_token_id": 2}
VISION = {**SIZES, "image_size": 6, "patch_size": 2, "num_channels": 1}
SPEECH = {**SIZES, "conv_dim": [4], "conv_stride": [2], "conv_kernel": [3], "num_feat_extract_layers": 1,
          "num_conv_pos_embeddings": 2, "num_conv_pos_embedding_groups": 2}
BUCKETS = {"d_model": 16, "num_heads": 4, "d_kv": 6, "d_ff": 8, "num_layers": 2, "vocab_size": 20, "pad_token_id": 0,
           "decoder_start_token_id": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}
RELATIVE = {"relative_attention": True, "layer_norm_eps": 1e-3}
MOE = {"num_local_experts": 2, "num_experts_per_tok": 1}
LATENT = {"q_lora_rank": 6, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 3,
          "num_key_value_heads": 4, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
          "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}
LONG = {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 4, "short_factor": [1.0, 1.5],
        "long_factor": [1.2, 2.5]}
LINEAR = {**GROUPS, **TWO, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
          "linear_key_head_dim": 4, "linear_value_head_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 2}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
           "shared_expert_intermediate_size": 4}


def like(sizes, **more):
    return {**sizes, **more}


# Name: model type, configuration in addition to SIZES.
MODELS = {
    "bert": ("bert", {}),
    "roberta": ("roberta", {"pad_token_id": 1}),
    "xlm-roberta": ("xlm-roberta", {"pad_token_id": 1}),
    "camembert": ("camembert", {"pad_token_id": 1}),
    "electra": ("electra", {"embedding_size": 6}),
    "distilbert": ("distilbert", {"dim": 16, "n_heads": 4, "n_layers": 1, "hidden_dim": 8}),
    "albert": ("albert", {"embedding_size": 6}),
    "modernbert": ("modernbert", {"num_hidden_layers": 3, "local_attention": 6, "cls_token_id": 1, "sep_token_id": 2,
                                  "bos_token_id": 1, "eos_token_id": 2}),
    "nomic_bert": ("nomic_bert", {}),
    "esm": ("esm", {"position_embedding_type": "rotary", "mask_token_id": 2, "pad_token_id": 1}),
    "gpt2": ("gpt2", GPT),
    "gpt_neo": ("gpt_neo", {**TWO, "num_heads": 4, "num_layers": 2, "attention_types": [[["global", "local"], 1]],
                            "window_size": 3}),
    "gpt_neox": ("gpt_neox", {"rotary_pct": 0.5}),
    "gptj": ("gptj", {**GPT, "rotary_dim": 2}),
    "codegen": ("codegen", {**GPT, "n_head": 8, "n_embd": 32, "rotary_dim": 2}),
    "opt": ("opt", {"ffn_dim": 8, "word_embed_proj_dim": 16}),
    "bloom": ("bloom", {"hidden_size": 24, "n_head": 6, "n_layer": 1}),
    "falcon": ("falcon", {"num_kv_heads": 2, "new_decoder_architecture": True}),
    "falcon-mqa": ("falcon", {"multi_query": True}),
    "falcon-alibi": ("falcon", {"hidden_size": 24, "num_attention_heads": 6, "multi_query": False, "alibi": True,
                                "bias": True}),
    "mpt": ("mpt", {"d_model": 24, "n_heads": 6, "n_layers": 1, "max_seq_len": 16}),
    "mpt-clipped": ("mpt", {"d_model": 24, "n_heads": 6, "n_layers": 1, "max_seq_len": 16,
                            "attn_config": {"clip_qkv": 0.5}}),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "gpt_bigcode-heads": ("gpt_bigcode", {**GPT, "multi_query": False}),
    "starcoder2": ("starcoder2", {**GROUPS, "sliding_window": 3}),
    "llama": ("llama", {**GROUPS, "rope_scaling": LLAMA3, "head_dim": 8}),
    "llama-linear": ("llama", {**GROUPS, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama-dynamic": ("llama", {**GROUPS, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
                                "max_position_embeddings": 4}),
    "mistral": ("mistral", {**GROUPS, "sliding_window": 3}),
    "mixtral": ("mixtral", {**GROUPS, **MOE}),
    "qwen2": ("qwen2", {**GROUPS, **TWO, "rope_scaling": YARN, "use_sliding_window": True, "sliding_window": 3,
                        "max_window_layers": 1}),
    "qwen2_moe": ("qwen2_moe", {**GROUPS, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
                                "shared_expert_intermediate_size": 4}),
    "qwen3": ("qwen3", {**GROUPS, "rope_scaling": YARN, "head_dim": 8}),
    "qwen3_moe": ("qwen3_moe", {**GROUPS, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
                                "head_dim": 8}),
    "gemma": ("gemma", {**GROUPS, "head_dim": 8}),
    "gemma2": ("gemma2", {**GROUPS, **TWO, "sliding_window": 3, "head_dim": 8, "attn_logit_softcapping": 3.0,
                          "query_pre_attn_scalar": 7}),
    "gemma3_text": ("gemma3_text", {**GROUPS, **TWO, "sliding_window": 3, "head_dim": 8, "query_pre_attn_scalar": 7,
                                    "layer_types": ["sliding_attention", "full_attention"]}),
    "phi-normed": ("phi", {**GROUPS, "partial_rotary_factor": 0.5, "qk_layernorm": True}),
    "phi": ("phi", {**GROUPS, "partial_rotary_factor": 0.5}),
    "phi3": ("phi3", {**GROUPS, "sliding_window": 3, "bos_token_id": 1, "eos_token_id": 2}),
    "olmo": ("olmo", GROUPS),
    "olmo-clipped": ("olmo", {**GROUPS, "clip_qkv": 0.5}),
    "olmo2": ("olmo2", GROUPS),
    "olmoe": ("olmoe", {**GROUPS, "num_experts": 2, "num_experts_per_tok": 1}),
    "olmoe-clipped": ("olmoe", {**GROUPS, "num_experts": 2, "num_experts_per_tok": 1, "clip_qkv": 0.5}),
    "cohere": ("cohere", GROUPS),
    "cohere-normed": ("cohere", {**GROUPS, "use_qk_norm": True}),
    "cohere2": ("cohere2", {**GROUPS, **TWO, "sliding_window": 3, "sliding_window_pattern": 2}),
    "granite": ("granite", {**GROUPS, "attention_multiplier": 0.3}),
    "granitemoe": ("granitemoe", {**GROUPS, "attention_multiplier": 0.3, **MOE}),
    "stablelm": ("stablelm", {**GROUPS, "hidden_size": 32}),
    "stablelm-normed": ("stablelm", {**GROUPS, "hidden_size": 32, "qk_layernorm": True}),
    "llama4_text": ("llama4_text", {**GROUPS, **MOE, **TWO, "head_dim": 8, "intermediate_size_mlp": 8,
                                    "no_rope_layer_interval": 2, "attention_chunk_size": 4, "floor_scale": 2,
                                    "attn_scale": 0.5}),
    "ministral3": ("ministral3", {**GROUPS, "head_dim": 8, "rope_parameters": {
        **YARN, "rope_theta": 1e6, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.3, "max_position_embeddings": 64}}),
    "glm": ("glm", {**GROUPS, "head_dim": 8}),
    "glm4": ("glm4", {**GROUPS, "head_dim": 8}),
    "smollm3": ("smollm3", {**GROUPS, **TWO, "no_rope_layer_interval": 2,
                            "use_sliding_window": True, "sliding_window": 3}),
    "exaone4": ("exaone4", {**GROUPS, **TWO, "sliding_window": 3, "sliding_window_pattern": 2}),
    "gpt_oss": ("gpt_oss", {**GROUPS, **TWO, "sliding_window": 3, "head_dim": 8,
                            "rope_scaling": {**YARN, "truncate": False}, **MOE}),
    "glm4_moe": ("glm4_moe", {**GROUPS, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
                              "head_dim": 8, "attention_bias": True, "use_qk_norm": True}),
    "minimax_m2": ("minimax_m2", {**GROUPS, **MOE, "head_dim": 8, "rotary_dim": 4}),
    "ernie4_5": ("ernie4_5", {**GROUPS, "head_dim": 8, "use_bias": True}),
    "seed_oss": ("seed_oss", {**GROUPS, "head_dim": 8, "attention_out_bias": True}),
    "olmo3": ("olmo3", {**GROUPS, **TWO, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"],
                        "rope_scaling": YARN}),
    "deepseek_v2": ("deepseek_v2", {**LATENT, "attention_bias": True, "rope_scaling": {**YARN, "mscale": 0.7,
                                                                                      "mscale_all_dim": 0.9}}),
    "deepseek_v2-lite": ("deepseek_v2", {**LATENT, "q_lora_rank": None}),
    "deepseek_v3": ("deepseek_v3", {**LATENT, "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "deepseek_v3-halves": ("deepseek_v3", {**LATENT, "attention_bias": True, "rope_interleave": False,
                                           "rms_norm_eps": 1e-3}),
    "mpnet": ("mpnet", {"pad_token_id": 1}),
    "deberta": ("deberta", {**RELATIVE, **TWO, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 4}),
    "deberta-c2p": ("deberta", {**RELATIVE, "pos_att_type": "c2p"}),
    "deberta-v2": ("deberta-v2", {**RELATIVE, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
                                  "norm_rel_ebd": "layer_norm", "position_buckets": 4}),
    "deberta-v2-own": ("deberta-v2", {**RELATIVE, **TWO, "pos_att_type": "p2c|c2p", "position_buckets": 5,
                                      "max_relative_positions": 8, "conv_kernel_size": 3}),
    "deberta-v2-c2p": ("deberta-v2", {**RELATIVE, "pos_att_type": ["c2p"], "share_att_key": True,
                                      "max_relative_positions": 3}),
    "deberta-v2-p2c": ("deberta-v2", {**RELATIVE, "pos_att_type": ["p2c"], "norm_rel_ebd": "layer_norm"}),
    "deberta-v2-plain": ("deberta-v2", {"pos_att_type": ["c2p"]}),
    "t5": ("t5", BUCKETS),
    "t5-gated": ("t5", {**BUCKETS, "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 9,
                        "relative_attention_max_distance": 5}),
    "mt5": ("mt5", BUCKETS),
    "umt5": ("umt5", BUCKETS),
    "glm4_moe_lite": ("glm4_moe_lite", {**LATENT, "rope_scaling": YARN}),
    "youtu": ("youtu", {**LATENT, "rms_norm_eps": 1e-3}),
    "minicpm3": ("minicpm3", {**LATENT, "attention_bias": True, "rope_scaling": LONG}),
    "qwen3_next": ("qwen3_next", {**LINEAR, **EXPERTS, "attention_bias": True}),
    "qwen3_5_text": ("qwen3_5_text", {**LINEAR, "rope_parameters": {
        "rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.75, "mrope_section": [1, 1, 1]}}),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", {**LINEAR, **EXPERTS}),
    "afmoe": ("afmoe", {**GROUPS, **TWO, **EXPERTS, "head_dim": 8, "sliding_window": 3, "attention_bias": True,
                        "global_attn_every_n_layers": 2, "num_dense_layers": 1}),
    "apertus": ("apertus", {**GROUPS, "rope_parameters": {**LLAMA3, "rope_theta": 1e4}}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", {**GROUPS, "head_dim": 8}),
    "exaone_moe": ("exaone_moe", {**GROUPS, **TWO, "sliding_window": 3, "sliding_window_pattern": 2, "num_experts": 2,
                                  "num_experts_per_tok": 1, "moe_intermediate_size": 4}),
    "dots1": ("dots1", {**GROUPS, **TWO, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
                        "n_shared_experts": 1, "max_window_layers": 1, "sliding_window": 3}),
    "ernie4_5_moe": ("ernie4_5_moe", {**GROUPS, **TWO, "use_bias": True, "moe_num_experts": 2, "moe_k": 1,
                                      "moe_intermediate_size": 4}),
    "lfm2": ("lfm2", {**GROUPS, **TWO, "layer_types": ["conv", "full_attention"], "norm_eps": 1e-3}),
    "mistral4": ("mistral4", {**LATENT, "rope_parameters": {
        **YARN, "rope_theta": 1e4, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.3, "partial_rotary_factor": 0.4}}),
    "granite_swa": ("granite_swa", {**GROUPS, "num_hidden_layers": 3, "sliding_window": 3, "attention_multiplier": 0.3,
                                    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
                                    "layer_rope_theta": [10000.0, 0, 500.0]}),
    "kimi_linear": ("kimi_linear", {**LATENT, **TWO, "layer_types": ["linear_attention", "full_attention"],
                                    "linear_head_dim": 4, "linear_num_heads": 2, "num_experts": 2}),
    "bart": ("bart", PAIR),
    "mbart": ("mbart", PAIR),
    "pegasus": ("pegasus", PAIR),
    "marian": ("marian", PAIR),
    "m2m_100": ("m2m_100", PAIR),
    "whisper": ("whisper", {**PAIR, "num_mel_bins": 2, "max_source_positions": 5, "max_target_positions": 16}),
    "wav2vec2": ("wav2vec2", SPEECH),
    "hubert": ("hubert", SPEECH),
    "vit": ("vit", VISION),
    "deit": ("deit", VISION),
    "dinov2": ("dinov2", {**VISION, "mlp_ratio": 1}),
    "beit": ("beit", {**VISION, "use_absolute_position_embeddings": True}),
    "beit-relative": ("beit", {**VISION, **TWO, "use_relative_position_bias": True}),
    "beit-shared": ("beit", {**VISION, **TWO, "use_shared_relative_position_bias": True}),
    "swin": ("swin", {"image_size": 8, "patch_size": 2, "num_channels": 1, "embed_dim": 4, "depths": [2, 2],
                      "num_heads": [1, 2], "window_size": 2, "mlp_ratio": 1.0}),
    "swin-padded": ("swin", {"image_size": 9, "patch_size": 2, "num_channels": 1, "embed_dim": 4, "depths": [2, 2],
                             "num_heads": [1, 2], "window_size": 2, "mlp_ratio": 1.0}),
    "swinv2": ("swinv2", {"image_size": 16, "patch_size": 2, "num_channels": 1, "embed_dim": 4, "depths": [2, 2],
                          "num_heads": [1, 2], "window_size": 3, "mlp_ratio": 1.0,
                          "pretrained_window_sizes": [4, 0]}),
    "swinv2-small": ("swinv2", {"image_size": 9, "patch_size": 2, "num_channels": 1, "embed_dim": 4, "depths": [2, 2],
                                "num_heads": [2, 1], "window_size": 3, "mlp_ratio": 1.0, "qkv_bias": False}),
    "sam_vision_model": ("sam_vision_model", {**VISION, **TWO, "image_size": 10, "window_size": 3, "mlp_dim": 8,
                                              "output_channels": 2, "global_attn_indexes": [1]}),
    "vit_mae": ("vit_mae", {**VISION, "decoder_hidden_size": 8, "decoder_num_hidden_layers": 1,
                            "decoder_num_attention_heads": 2, "decoder_intermediate_size": 4}),
    "clip_text_model": ("clip_text_model", {"eos_token_id": 2, "bos_token_id": 1}),
    "clip_vision_model": ("clip_vision_model", VISION),
    "clip": ("clip", {"text_config": like(SIZES, eos_token_id=2, bos_token_id=1),
                      "vision_config": like(VISION, num_attention_heads=2)}),
    "siglip_text_model": ("siglip_text_model", {"projection_size": 8}),
    "siglip_vision_model": ("siglip_vision_model", VISION),
    "siglip": ("siglip", {"text_config": like(SIZES, projection_size=16),
                          "vision_config": like(VISION, num_attention_heads=2)}),
}


def settings(more):
    """The whole configuration: more keys, and of the common ones those that it does not say in its own words."""
    return {**(SIZES if not {"d_model", "n_embd", "embed_dim", "text_config"} & set(more) else {}), **more}


def model_of(name, implementation, dtype):
    """The model of a row, of random weights."""
    kind, more = MODELS[name]
    config = transformers.AutoConfig.for_model(kind, **settings(more))
    config._experts_implementation = "eager"
    torch.manual_seed(5)
    model = transformers.AutoModel.from_config(config, attn_implementation=implementation).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model.to(dtype)


def inputs_of(model, config):
    """What a model is called with, and which keys a layer's call hides as padding: a function of the layer."""
    random = np.random.default_rng(11)
    given, name = {}, model.main_input_name
    parameters = set(inspect.signature(model.forward).parameters)
    seen = {}  # by the number of keys
    if "pixel_values" in parameters:
        vision = getattr(config, "vision_config", config)
        size = vision.image_size
        given["pixel_values"] = torch.tensor(random.normal(size=(B, vision.num_channels, size, size)))
    if name == "input_values":
        given["input_values"] = torch.tensor(random.normal(size=(B, 15)))
    if name == "input_features":
        given["input_features"] = torch.tensor(random.normal(size=(B, config.num_mel_bins,
                                                                   2 * config.max_source_positions)))
    if "input_ids" in parameters:
        mask = np.ones((B, T), np.int64)
        if not config.model_type.startswith("deberta"):  # which hides queries, too, whose rows then mean nothing
            mask[1, T - 2:] = 0
        ids = random.integers(3, 20, (B, T))
        given["input_ids"] = torch.tensor(np.where(mask == 1, ids, config.pad_token_id or 0)
                                          if hasattr(config, "pad_token_id") else ids)
        given["attention_mask"] = torch.tensor(mask)
        seen[T] = mask == 0
    if "decoder_input_ids" in parameters:
        given["decoder_input_ids"] = torch.tensor(random.integers(3, 20, (B, T - 2)))
    return given, lambda layer: seen.get(layer.key.shape[-2])
