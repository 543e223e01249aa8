"""Records how many parameters transformers counts for well-known models, and for a configuration of each type that
states nothing else. A line for each: name, count, config.json.

python3 tests/vectors/record_architectures.py > tests/vectors/architectures.txt"""
import json
import os
import sys

import torch
import transformers

W, H, L, F, V, KV = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size",
                     "num_key_value_heads")


def sizes(width, heads, layers, ffn=None, vocabulary=None, kv=None, **more):
    values = {W: width, H: heads, L: layers, F: ffn, V: vocabulary, KV: kv}
    return {**{key: value for key, value in values.items() if value is not None}, **more}


def pair(width, heads, layers, ffn, vocabulary, positions, **more):
    return dict(d_model=width, encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_layers=layers,
                decoder_layers=layers, encoder_ffn_dim=ffn, decoder_ffn_dim=ffn, vocab_size=vocabulary,
                max_position_embeddings=positions, **more)


def deepseek(rank_q, experts, shared, expert, first, **more):
    return dict(q_lora_rank=rank_q, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
                n_routed_experts=experts, n_shared_experts=shared, moe_intermediate_size=expert,
                first_k_dense_replace=first, **more)


VISION = dict(image_size=224, patch_size=16, num_channels=3)
# Name, model type, class, configuration.
KNOWN = [
    ("gpt-neo-125m", "gpt_neo", "GPTNeoForCausalLM", dict(hidden_size=768, num_layers=12, num_heads=12,
     vocab_size=50257, max_position_embeddings=2048, attention_types=[[["global", "local"], 6]])),
    ("pythia-160m", "gpt_neox", "GPTNeoXForCausalLM", sizes(768, 12, 12, 3072, 50304)),
    ("gpt-neox-20b", "gpt_neox", "GPTNeoXForCausalLM", sizes(6144, 64, 44, 24576, 50432)),
    ("gpt-j-6b", "gptj", "GPTJForCausalLM", dict(n_embd=4096, n_head=16, n_layer=28, vocab_size=50400)),
    ("codegen-350m", "codegen", "CodeGenForCausalLM", dict(n_embd=1024, n_head=16, n_layer=20, vocab_size=51200)),
    ("opt-125m", "opt", "OPTForCausalLM", sizes(768, 12, 12, None, 50272, ffn_dim=3072, word_embed_proj_dim=768)),
    ("opt-350m", "opt", "OPTForCausalLM", sizes(1024, 16, 24, None, 50272, ffn_dim=4096, word_embed_proj_dim=512,
                                                do_layer_norm_before=False)),
    ("bloom-560m", "bloom", "BloomForCausalLM", dict(hidden_size=1024, n_head=16, n_layer=24, vocab_size=250880)),
    ("bloom", "bloom", "BloomForCausalLM", dict(hidden_size=14336, n_head=112, n_layer=70, vocab_size=250880)),
    ("falcon-7b", "falcon", "FalconForCausalLM", sizes(4544, 71, 32, None, 65024)),
    ("falcon-40b", "falcon", "FalconForCausalLM", sizes(8192, 128, 60, None, 65024, num_kv_heads=8,
                                                        new_decoder_architecture=True)),
    ("mpt-7b", "mpt", "MptForCausalLM", dict(d_model=4096, n_heads=32, n_layers=32, vocab_size=50432)),
    ("starcoder", "gpt_bigcode", "GPTBigCodeForCausalLM", dict(n_embd=6144, n_head=48, n_layer=40, n_inner=24576,
                                                               vocab_size=49152, n_positions=8192)),
    ("phi-2", "phi", "PhiForCausalLM", sizes(2560, 32, 32, 10240, 51200)),
    ("command-r", "cohere", "CohereForCausalLM", sizes(8192, 64, 40, 22528, 256000)),
    ("command-r7b", "cohere2", "Cohere2ForCausalLM", sizes(4096, 32, 32, 14336, 256000, 8)),
    ("stablelm-3b", "stablelm", "StableLmForCausalLM", sizes(2560, 32, 32, 6912, 50304, 32)),
    ("glm-4-9b", "glm", "GlmForCausalLM", sizes(4096, 32, 40, 13696, 151552, 2, head_dim=128, attention_bias=True)),
    ("glm-4-9b-0414", "glm4", "Glm4ForCausalLM", sizes(4096, 32, 40, 13696, 151552, 2, head_dim=128)),
    ("granite-3.1-2b", "granite", "GraniteForCausalLM", sizes(2048, 32, 40, 8192, 49155, 8, tie_word_embeddings=True)),
    ("granite-3.1-1b-a400m", "granitemoe", "GraniteMoeForCausalLM", sizes(1024, 16, 24, 512, 49155, 8,
     num_local_experts=32, num_experts_per_tok=8, tie_word_embeddings=True)),
    ("smollm3-3b", "smollm3", "SmolLM3ForCausalLM", sizes(2048, 16, 36, 11008, 128256, 4)),
    ("exaone-4.0-1.2b", "exaone4", "Exaone4ForCausalLM", sizes(2048, 32, 30, 4096, 102400, 8, head_dim=64,
                                                               tie_word_embeddings=True)),
    ("gemma-3-1b", "gemma3_text", "Gemma3ForCausalLM", sizes(1152, 4, 26, 6912, 262144, 1, head_dim=256)),
    ("mixtral-8x7b", "mixtral", "MixtralForCausalLM", sizes(4096, 32, 32, 14336, 32000, 8, num_local_experts=8)),
    ("mixtral-8x22b", "mixtral", "MixtralForCausalLM", sizes(6144, 48, 56, 16384, 32768, 8, num_local_experts=8)),
    ("olmoe-1b-7b", "olmoe", "OlmoeForCausalLM", sizes(2048, 16, 16, 1024, 50304, 16, num_experts=64)),
    ("qwen1.5-moe-a2.7b", "qwen2_moe", "Qwen2MoeForCausalLM", sizes(2048, 16, 24, 5632, 151936, 16, num_experts=60,
     moe_intermediate_size=1408, shared_expert_intermediate_size=5632)),
    ("qwen3-30b-a3b", "qwen3_moe", "Qwen3MoeForCausalLM", sizes(2048, 32, 48, 6144, 151936, 4, num_experts=128,
                                                                moe_intermediate_size=768, head_dim=128)),
    ("deepseek-v2-lite", "deepseek_v2", "DeepseekV2ForCausalLM", sizes(2048, 16, 27, 10944, 102400,
                                                                       **deepseek(None, 64, 2, 1408, 1))),
    ("deepseek-v3", "deepseek_v3", "DeepseekV3ForCausalLM", sizes(7168, 128, 61, 18432, 129280,
                                                                  **deepseek(1536, 256, 1, 2048, 3))),
    ("qwen3-next-80b-a3b", "qwen3_next", "Qwen3NextForCausalLM", {}),
    ("glm-4.7-flash", "glm4_moe_lite", "Glm4MoeLiteForCausalLM", {}),
    ("llama-4-scout, text", "llama4_text", "Llama4ForCausalLM", sizes(5120, 40, 48, 8192, 202048, 8, head_dim=128,
     intermediate_size_mlp=16384, num_local_experts=16, interleave_moe_layer_step=1)),
    ("gpt-oss-20b", "gpt_oss", "GptOssForCausalLM", sizes(2880, 64, 24, 2880, 201088, 8, head_dim=64,
                                                          num_local_experts=32)),
    ("gpt-oss-120b", "gpt_oss", "GptOssForCausalLM", sizes(2880, 64, 36, 2880, 201088, 8, head_dim=64,
                                                           num_local_experts=128)),
    ("mpnet-base", "mpnet", "MPNetModel", sizes(768, 12, 12, 3072, 30527, max_position_embeddings=514)),
    ("deberta-v3-base", "deberta-v2", "DebertaV2Model", sizes(768, 12, 12, 3072, 128100, position_buckets=256,
     relative_attention=True, pos_att_type=["p2c", "c2p"], share_att_key=True, position_biased_input=False,
     norm_rel_ebd="layer_norm", type_vocab_size=0)),
    ("modernbert-base", "modernbert", "ModernBertForMaskedLM", sizes(768, 12, 22, 1152, 50368)),
    ("nomic-embed-text-v1.5", "nomic_bert", "NomicBertModel", sizes(768, 12, 12, 3072, 30528)),
    ("esm2-650m", "esm", "EsmForMaskedLM", sizes(1280, 20, 33, 5120, 33, pad_token_id=1, mask_token_id=32,
     max_position_embeddings=1026, position_embedding_type="rotary", emb_layer_norm_before=False)),
    ("bart-base", "bart", "BartForConditionalGeneration", pair(768, 12, 6, 3072, 50265, 1024)),
    ("bart-large", "bart", "BartForConditionalGeneration", pair(1024, 16, 12, 4096, 50265, 1024)),
    ("mbart-large-50", "mbart", "MBartForConditionalGeneration", pair(1024, 16, 12, 4096, 250054, 1024)),
    ("pegasus-large", "pegasus", "PegasusForConditionalGeneration", pair(1024, 16, 16, 4096, 96103, 1024)),
    ("opus-mt-en-de", "marian", "MarianMTModel", pair(512, 8, 6, 2048, 58101, 512, pad_token_id=58100)),
    ("m2m100-418m", "m2m_100", "M2M100ForConditionalGeneration", pair(1024, 16, 12, 4096, 128112, 1024)),
    ("whisper-tiny", "whisper", "WhisperForConditionalGeneration", pair(384, 6, 4, 1536, 51865, 448, num_mel_bins=80)),
    ("whisper-large-v3", "whisper", "WhisperForConditionalGeneration", pair(1280, 20, 32, 5120, 51866, 448,
                                                                            num_mel_bins=128)),
    ("wav2vec2-base-960h", "wav2vec2", "Wav2Vec2ForCTC", sizes(768, 12, 12, 3072, 32)),
    ("hubert-base-ls960", "hubert", "HubertModel", sizes(768, 12, 12, 3072, 32)),
    ("deit-base", "deit", "DeiTForImageClassification", sizes(768, 12, 12, 3072, num_labels=1000, **VISION)),
    ("vit-mae-base", "vit_mae", "ViTMAEForPreTraining", sizes(768, 12, 12, 3072, **VISION)),
    ("dinov2-base", "dinov2", "Dinov2Model", sizes(768, 12, 12, image_size=518, patch_size=14, mlp_ratio=4)),
    ("dinov2-giant", "dinov2", "Dinov2Model", sizes(1536, 24, 40, image_size=518, patch_size=14, use_swiglu_ffn=True)),
    ("beit-base", "beit", "BeitForImageClassification", sizes(768, 12, 12, 3072, 8192, num_labels=1000, **VISION,
     use_relative_position_bias=True)),
    ("swin-tiny", "swin", "SwinForImageClassification", dict(embed_dim=96, depths=[2, 2, 6, 2], window_size=7,
                                                             num_heads=[3, 6, 12, 24], num_labels=1000)),
    ("swin-large", "swin", "SwinForImageClassification", dict(embed_dim=192, depths=[2, 2, 18, 2], window_size=7,
                                                              num_heads=[6, 12, 24, 48], num_labels=1000)),
    ("swinv2-tiny", "swinv2", "Swinv2ForImageClassification", dict(image_size=256, embed_dim=96, depths=[2, 2, 6, 2],
                                                                   window_size=8, num_heads=[3, 6, 12, 24],
                                                                   num_labels=1000)),
    ("clip-vit-base-patch32", "clip", "CLIPModel", dict(projection_dim=512)),
    ("clip-vit-large-patch14", "clip", "CLIPModel", dict(projection_dim=768,
     text_config=sizes(768, 12, 12, 3072, 49408, max_position_embeddings=77, projection_dim=768),
     vision_config=sizes(1024, 16, 24, 4096, image_size=224, patch_size=14, projection_dim=768))),
    ("siglip-base-patch16-224", "siglip", "SiglipModel", {}),
]
TINY = sizes(32, 4, 2, 64, 100)
PAIR = pair(32, 4, 1, 64, 100, 32)
APART = dict(PAIR, pad_token_id=1, share_encoder_decoder_embeddings=False)
IMAGE = sizes(32, 4, 1, 64, image_size=8, patch_size=4)
EXPERTS = sizes(32, 4, 2, 64, 100, 2, head_dim=8, moe_intermediate_size=16, num_experts_per_tok=2)
NEW = dict(EXPERTS, pad_token_id=0)
LATENT = dict(TINY, pad_token_id=0, q_lora_rank=None, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6,
              v_head_dim=3, n_routed_experts=2, num_experts_per_tok=1, moe_intermediate_size=4)
# Keys that change the count of one family, and other names of keys.
KEYS = [
    ("layers of Kimi-Linear", "kimi_linear", "KimiLinearForCausalLM", dict(
        LATENT, num_experts=2, linear_attn_config=dict(num_heads=2, head_dim=4, short_conv_kernel_size=4,
                                                       full_attn_layers=[2], kda_layers=[1]))),
    ("heads by layer", "laguna", "LagunaForCausalLM", dict(NEW, num_experts=4, gating=False,
                                                           num_attention_heads_per_layer=[4, 8])),
    ("layer types", "mimo_v2_flash", "MiMoV2FlashForCausalLM", dict(
        NEW, n_routed_experts=4, v_head_dim=6, layer_types=["full_attention", "sliding_attention"])),
    ("K = V, shared layers", "gemma4_text", "Gemma4ForCausalLM", dict(
        sizes(32, 4, 12, 64, 100, 2), head_dim=8, global_head_dim=16, num_global_key_value_heads=1,
        attention_k_eq_v=True, num_kv_shared_layers=4, use_double_wide_mlp=True, hidden_size_per_layer_input=4)),
    ("experts", "gemma4_text", "Gemma4ForCausalLM", dict(
        sizes(32, 4, 6, 64, 100, 2), enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=16)),
    ("two attentions in a layer", "longcat_flash", "LongcatFlashForCausalLM", dict(
        LATENT, num_layers=2, zero_expert_num=0, q_lora_rank=8)),
    ("convolutions", "lfm2", "Lfm2ForCausalLM", dict(TINY, pad_token_id=0, num_key_value_heads=2, full_attn_idxs=[1],
                                                     conv_bias=True)),
    ("experts", "dots1", "Dots1ForCausalLM", dict(NEW, n_routed_experts=4, n_shared_experts=1,
                                                  first_k_dense_replace=1)),
    ("experts", "exaone_moe", "ExaoneMoeForCausalLM", dict(NEW, num_experts=4)),
    ("experts, biases", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", dict(NEW, moe_num_experts=4, use_bias=True)),
    ("head_dim", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", dict(TINY, pad_token_id=0, num_key_value_heads=2,
                                                                       head_dim=12)),
    ("num_local_experts", "qwen3_moe", "Qwen3MoeForCausalLM", dict(EXPERTS, num_local_experts=8,
                                                                   tie_word_embeddings=True)),
    ("num_local_experts of num_experts", "olmoe", "OlmoeForCausalLM", dict(TINY, num_local_experts=4)),
    ("num_experts", "mixtral", "MixtralForCausalLM", dict(TINY, num_key_value_heads=2, num_experts=4)),
    ("num_experts", "gpt_oss", "GptOssForCausalLM", dict(EXPERTS, num_experts=4)),
    ("num_experts", "deepseek_v2", "DeepseekV2ForCausalLM", dict(TINY, num_experts=4, moe_intermediate_size=8)),
    ("mlp_bias", "deepseek_v2", "DeepseekV2ForCausalLM", dict(TINY, n_routed_experts=4, moe_intermediate_size=8,
                                                              first_k_dense_replace=1, mlp_bias=True)),
    ("head_dim", "qwen2_moe", "Qwen2MoeForCausalLM", dict(EXPERTS, num_experts=4, head_dim=12)),
    ("head_dim", "granitemoe", "GraniteMoeForCausalLM", dict(TINY, head_dim=12)),
    ("head_dim", "cohere", "CohereForCausalLM", dict(TINY, head_dim=12)),
    ("head_dim", "phi", "PhiForCausalLM", dict(TINY, head_dim=12)),
    ("head_dim", "nomic_bert", "NomicBertModel", sizes(32, 4, 1, 32, 50, head_dim=16)),
    ("head_dim", "vit", "ViTModel", dict(IMAGE, head_dim=12)),
    ("head_dim", "deit", "DeiTModel", dict(IMAGE, head_dim=12)),
    ("head_dim", "beit", "BeitModel", dict(IMAGE, head_dim=12)),
    ("head_dim", "dinov2", "Dinov2Model", dict(sizes(32, 4, 1), image_size=8, patch_size=4, head_dim=12)),
    ("head_dim", "vit_mae", "ViTMAEForPreTraining", dict(IMAGE, head_dim=12, decoder_hidden_size=16,
                                                         decoder_num_hidden_layers=1, decoder_num_attention_heads=2)),
    ("not shared, not tied", "marian", "MarianMTModel", dict(APART, decoder_vocab_size=60, tie_word_embeddings=False)),
    ("not shared", "marian", "MarianMTModel", dict(APART, decoder_vocab_size=60)),
    ("not shared, one size", "marian", "MarianMTModel", dict(APART, tie_word_embeddings=False)),
    ("shared, not tied", "marian", "MarianMTModel", dict(PAIR, pad_token_id=1, decoder_vocab_size=60,
                                                         tie_word_embeddings=False)),
    ("num_hidden_layers", "bart", "BartModel", dict(PAIR, num_hidden_layers=2)),
    ("hidden_size and so on", "t5", "T5Model", dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
                                                    head_dim=4, d_ff=64, vocab_size=100)),
    ("is_gated_act", "t5", "T5Model", dict(d_model=32, num_heads=4, num_layers=2, d_kv=4, d_ff=64, vocab_size=100,
                                           is_gated_act=True)),
    ("hidden_size and so on", "codegen", "CodeGenModel", dict(sizes(64, 4, 2), rotary_dim=4, vocab_size=100)),
    ("hidden_size and so on", "gptj", "GPTJModel", dict(sizes(32, 4, 2), rotary_dim=4, vocab_size=100)),
    ("num_attention_heads", "gpt_neo", "GPTNeoModel", dict(TINY, attention_types=[[["global"], 2]])),
    ("vision_use_head", "siglip", "SiglipModel", dict(text_config=dict(TINY, projection_size=32),
                                                      vision_config=dict(IMAGE, vision_use_head=False))),
    ("projection_size", "siglip", "SiglipModel", dict(text_config=dict(TINY, projection_size=24),
                                                      vision_config=IMAGE)),
    ("vision_use_head", "siglip_vision_model", "SiglipVisionModel", dict(IMAGE, vision_use_head=False)),
    ("pooler_output_size", "vit", "ViTModel", dict(IMAGE, pooler_output_size=16)),
    ("pooler_output_size", "deit", "DeiTModel", dict(IMAGE, pooler_output_size=16)),
    ("pooler_hidden_size", "deberta-v2", "DebertaV2ForSequenceClassification", dict(TINY, pooler_hidden_size=24)),
    ("pooler_hidden_size", "deberta", "DebertaForSequenceClassification", dict(TINY, pooler_hidden_size=24)),
    ("summary_use_proj", "gpt2", "GPT2DoubleHeadsModel", dict(sizes(32, 4, 2), vocab_size=100,
                                                              summary_use_proj=False)),
    ("summary_proj_to_labels", "gpt2", "GPT2DoubleHeadsModel", dict(sizes(32, 4, 2), vocab_size=100,
                                                                    summary_proj_to_labels=False)),
    ("summary_use_proj", "electra", "ElectraForMultipleChoice", dict(TINY, summary_use_proj=False)),
    ("summary_proj_to_labels", "electra", "ElectraForMultipleChoice", dict(TINY, summary_proj_to_labels=True,
                                                                           num_labels=3)),
    ("mask_time_prob", "wav2vec2", "Wav2Vec2Model", dict(TINY, mask_time_prob=0.0)),
    ("mask_feature_prob", "hubert", "HubertModel", dict(TINY, mask_time_prob=0.0, mask_feature_prob=0.1)),
    ("layer_scale_init_value", "beit", "BeitModel", dict(IMAGE, layer_scale_init_value=0.0)),
    ("layer_scale_init_value, small", "beit", "BeitModel", dict(IMAGE, layer_scale_init_value=1e-9)),
    ("num_layers", "swin", "SwinForMaskedImageModeling", dict(embed_dim=12, depths=[1, 1], num_heads=[2, 2],
                                                              window_size=2, image_size=16, patch_size=4,
                                                              num_layers=3)),
]
# Thousands of tensors; dots1 and Hunyuan have no defaults that can be made; ESM has no vocabulary by default, and mT5
# and UMT5 are tied whatever their configuration says.
LEFT_OUT = ("deepseek_v2", "deepseek_v3", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "glm4_moe_lite",
            "afmoe", "olmoe", "mixtral", "esm", "mt5", "umt5", "exaone_moe", "ernie4_5_moe", "laguna", "mimo_v2_flash",
            "longcat_flash", "kimi_linear", "dots1", "hunyuan_v1_dense")


def count(model_type, class_name, config):
    with torch.device("meta"):
        model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(model_type, **config))
    model.tie_weights()
    return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())


def main():
    transformers.logging.set_verbosity_error()
    folder = os.path.join(os.path.dirname(__file__), "../../src/models/architectures")
    rows = list(KNOWN)
    for name in sorted(os.listdir(folder)):
        model_type, end = os.path.splitext(name)
        if end == ".json" and model_type not in LEFT_OUT + ("transformer", "multihead_attention"):
            with open(os.path.join(folder, name)) as file:
                description = json.load(file)
            listed = description["classes"] if "classes" in description else []
            class_name = next((c for c in listed if hasattr(transformers, c)), None)
            if class_name:
                rows.append((model_type, model_type, class_name, {}))
    rows += [(f"{model_type}, {name}", model_type, *rest) for name, model_type, *rest in KEYS]
    for name, model_type, class_name, config in rows:
        whole = dict(config, model_type=model_type, architectures=[class_name])
        print(name, count(model_type, class_name, config), json.dumps(whole), sep="\t")
    return 0


sys.exit(main())
