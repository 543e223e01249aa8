"""Random configurations of every model type, for architectures_peer.py: small sizes, each flag both ways."""
import random


class Draw:
    """Numbers of one model: h heads, kv of them for keys and values, a width d that the heads divide."""

    def __init__(self, model_type, number):
        self.random = random.Random(f"{model_type} {number}")
        self.h = self.any(1, 2, 4, 6)
        self.kv = self.any(*[n for n in range(1, self.h + 1) if self.h % n == 0])
        self.d = self.h * 2 * self.random.randint(1, 9)
        self.layers = self.random.randint(1, 3)

    def n(self, largest, smallest=1):
        return self.random.randint(smallest, largest)

    def any(self, *values):
        return self.random.choice(values)

    def flag(self):
        return self.random.random() < 0.5

    def common(self, width="hidden_size", heads="num_attention_heads", layers="num_hidden_layers",
               ffn="intermediate_size", vocabulary="vocab_size", **more):
        """Sizes under the keys that a library gives them, None where it has no such key; more keys, as they are."""
        values = ((width, self.d), (heads, self.h), (layers, self.layers), (ffn, self.n(90)),
                  (vocabulary, self.n(300, 5)))
        return {**{key: value for key, value in values if key}, "tie_word_embeddings": self.flag(),
                "num_labels": self.n(6, 3), "pad_token_id": 0, **more}

    def llama(self, *flags, **more):
        """Those of a decoder like LLaMA."""
        return self.common(num_key_value_heads=self.kv, **{flag: self.flag() for flag in flags}, **more)

    def head(self):
        return 2 * self.n(12)

    def experts(self, key, **more):
        experts = self.n(6, 2)
        return {key: experts, "num_experts_per_tok": self.n(experts), **more}


BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "albert", "electra", "vit")
GPT = dict(width="n_embd", heads="n_head", layers="n_layer", ffn="n_inner")
RULES = {
    "gpt2": lambda r: r.common(**GPT),
    "distilbert": lambda r: r.common(width="dim", heads="n_heads", layers="n_layers", ffn="hidden_dim", num_labels=2),
    "t5": lambda r: r.common(width="d_model", heads="num_heads", layers="num_layers", ffn="d_ff", d_kv=r.n(20),
                             feed_forward_proj=r.any("relu", "gated-gelu"),
                             tie_word_embeddings=True),  # transformers ties all of T5 since 5.0
    "llama": lambda r: r.llama("attention_bias", "mlp_bias", head_dim=r.head()),
    "mistral": lambda r: r.llama(head_dim=r.head()),
    "ministral3": lambda r: r.llama(head_dim=r.head()),
    "qwen2": lambda r: r.llama(),
    "qwen3": lambda r: r.llama("attention_bias", head_dim=r.head()),
    "gemma": lambda r: r.llama("attention_bias", head_dim=r.head()),
    "gemma2": lambda r: r.llama("attention_bias", head_dim=r.head()),
    "starcoder2": lambda r: r.llama("use_bias"),
    "olmo": lambda r: r.llama("attention_bias"),
    "olmo2": lambda r: r.llama("attention_bias"),
    "phi3": lambda r: r.llama(),
    "granite": lambda r: r.llama("attention_bias", "mlp_bias"),
    "smollm3": lambda r: r.llama("attention_bias", "mlp_bias"),
    "gpt_neo": lambda r: r.common(heads="num_heads", layers="num_layers", ffn=r.any("intermediate_size", None),
                                  max_position_embeddings=r.n(99),
                                  attention_types=[[["global"], r.layers]]),
    "gpt_neox": lambda r: r.common(attention_bias=r.flag()),
    "gptj": lambda r: r.common(**GPT, rotary_dim=2),
    "codegen": lambda r: r.common(**{**GPT, "ffn": r.any("n_inner", None)}, n_head=4, n_embd=16 * r.n(5), rotary_dim=2),
    "opt": lambda r: r.common(ffn="ffn_dim", max_position_embeddings=r.n(99), word_embed_proj_dim=r.any(r.d, r.n(40)),
                              do_layer_norm_before=r.flag(), _remove_final_layer_norm=r.flag(),
                              layer_norm_elementwise_affine=r.flag(), enable_bias=r.flag()),
    "bloom": lambda r: r.common(heads="n_head", layers="n_layer", ffn=None),
    "falcon": lambda r: r.common(ffn=r.any("ffn_hidden_size", None), num_kv_heads=r.kv, bias=r.flag(),
                                 new_decoder_architecture=r.flag(), multi_query=r.flag(), parallel_attn=r.flag(),
                                 num_ln_in_parallel_attn=r.any(None, 1, 2), alibi=r.flag()),
    "mpt": lambda r: r.common(width="d_model", heads="n_heads", layers="n_layers", ffn=None),
    "gpt_bigcode": lambda r: r.common(**GPT, n_positions=r.n(99), multi_query=r.flag()),
    "phi": lambda r: r.llama("qk_layernorm", hidden_size=r.h * 8 * r.n(4)),
    "cohere": lambda r: r.llama("attention_bias", "use_qk_norm"),
    "cohere2": lambda r: r.llama("attention_bias", head_dim=r.head()),
    "stablelm": lambda r: r.llama("use_qkv_bias", "qk_layernorm", "use_parallel_residual",
                                  hidden_size=r.h * 16 * r.n(4)),
    "glm": lambda r: r.llama("attention_bias", head_dim=4 * r.n(6)),
    "glm4": lambda r: r.llama("attention_bias", head_dim=4 * r.n(6)),
    "exaone4": lambda r: r.llama(head_dim=r.head()),
    "gemma3_text": lambda r: r.llama("attention_bias", head_dim=r.head()),
    "mixtral": lambda r: r.llama(**r.experts("num_local_experts"), head_dim=r.any(None, r.head())),
    "olmoe": lambda r: r.llama("attention_bias", **r.experts("num_experts")),
    "qwen2_moe": lambda r: r.llama("qkv_bias", **r.experts("num_experts"), moe_intermediate_size=r.n(40),
                                   shared_expert_intermediate_size=r.n(40), decoder_sparse_step=r.n(2),
                                   mlp_only_layers=r.any([], [0], [0, 2])),
    "qwen3_moe": lambda r: r.llama("attention_bias", **r.experts("num_experts"), moe_intermediate_size=r.n(40),
                                   decoder_sparse_step=r.n(2), mlp_only_layers=r.any([], [0], [0, 2]),
                                   head_dim=r.head()),
    "granitemoe": lambda r: r.llama("attention_bias", **r.experts("num_local_experts")),
    "deepseek_v2": lambda r: latent(r),
    "deepseek_v3": lambda r: latent(r),
    "glm4_moe_lite": lambda r: latent(r, mlp_layer_types=[r.any("dense", "sparse") for _ in range(r.layers)]),
    "youtu": lambda r: latent(r),
    "minicpm3": lambda r: latent(r, mlp_bias=r.flag()),
    "qwen3_next": lambda r: linear(r, **r.experts("num_experts"), moe_intermediate_size=r.n(40),
                                   shared_expert_intermediate_size=r.n(40), decoder_sparse_step=r.n(2),
                                   mlp_only_layers=r.any([], [0], [0, 2])),
    "qwen3_5_text": lambda r: linear(r),
    "qwen3_5_moe_text": lambda r: linear(r, **r.experts("num_experts"), moe_intermediate_size=r.n(40),
                                         shared_expert_intermediate_size=r.n(40)),
    "afmoe": lambda r: r.llama("attention_bias", **r.experts("num_experts"), moe_intermediate_size=r.n(40),
                               head_dim=r.head(), num_dense_layers=r.n(2, 0), num_shared_experts=r.n(3)),
    "llama4_text": lambda r: r.llama("attention_bias", **r.experts("num_local_experts"), intermediate_size_mlp=r.n(70),
                                     head_dim=r.head(), interleave_moe_layer_step=r.n(2), moe_layers=r.any(None, [0])),
    "glm4_moe": lambda r: r.llama("attention_bias", "use_qk_norm", **r.experts("n_routed_experts"), head_dim=r.head(),
                                  moe_intermediate_size=r.n(40), n_shared_experts=r.n(3), n_group=1, topk_group=1,
                                  first_k_dense_replace=r.n(2, 0)),
    "minimax_m2": lambda r: r.llama(**r.experts("num_local_experts"), head_dim=2 * r.head(),
                                    **r.any({}, {"rotary_dim": 2})),
    "ernie4_5": lambda r: r.llama("use_bias", head_dim=r.head()),
    "seed_oss": lambda r: r.llama("attention_bias", "attention_out_bias", "mlp_bias", head_dim=r.head()),
    "olmo3": lambda r: r.llama("attention_bias"),
    "deepseek_v32": lambda r: indexed(r),
    "glm_moe_dsa": lambda r: indexed(r, **r.any({}, {"index_topk_freq": r.n(3), "index_skip_topk_offset": r.n(3)})),
    "gpt_oss": lambda r: r.llama("attention_bias", **r.experts("num_local_experts"), head_dim=r.head()),
    "apertus": lambda r: r.llama("attention_bias"),
    "nanochat": lambda r: r.llama("attention_bias"),
    "hunyuan_v1_dense": lambda r: r.llama("attention_bias", head_dim=r.head()),
    "exaone_moe": lambda r: r.llama(**r.experts("num_experts"), moe_intermediate_size=r.n(40), head_dim=r.head(),
                                    num_shared_experts=r.n(3), first_k_dense_replace=r.n(2, 0), **r.any(
                                        {}, {"mlp_layer_types": [r.any("dense", "sparse") for _ in range(r.layers)]})),
    "dots1": lambda r: r.llama("attention_bias", **r.experts("n_routed_experts"), moe_intermediate_size=r.n(40),
                               head_dim=r.head(), n_shared_experts=r.n(3), first_k_dense_replace=r.n(2, 0)),
    "ernie4_5_moe": lambda r: r.llama("use_bias", moe_num_experts=r.n(6, 2), moe_k=1, moe_intermediate_size=r.n(40),
                                      head_dim=r.head(), moe_num_shared_experts=r.n(3, 0), moe_layer_interval=r.n(2),
                                      moe_layer_start_index=r.n(2, 0), moe_layer_end_index=r.any(-1, 1, 2)),
    "lfm2": lambda r: r.llama("conv_bias", "block_auto_adjust_ff_dim", conv_L_cache=r.n(4), block_multiple_of=r.n(9),
                              block_ffn_dim_multiplier=r.any(1.0, 1.5, 0.3),
                              **r.any({}, {"full_attn_idxs": [0]}, {"layer_types": [
                                  r.any("full_attention", "conv") for _ in range(r.layers)]})),
    "mistral4": lambda r: latent(r),
    "laguna": lambda r: r.llama("attention_bias", "gating", **r.experts("num_experts"), moe_intermediate_size=r.n(40),
                                head_dim=r.head(), shared_expert_intermediate_size=r.n(40), **r.any({}, {
                                    "num_attention_heads_per_layer": [r.kv * r.n(3) for _ in range(r.layers)]})),
    "granite_swa": lambda r: r.llama("attention_bias", "mlp_bias"),
    "longcat_flash": lambda r: {**latent(r, zero_expert_num=0, num_layers=r.layers), "q_lora_rank": r.n(30),
                                "num_hidden_layers": 2 * r.layers},
    "mimo_v2_flash": lambda r: {**r.llama("attention_bias", **r.experts("n_routed_experts"), head_dim=r.head(),
                                          moe_intermediate_size=r.n(40), v_head_dim=r.n(20)),
                                "num_attention_heads": 2 * r.kv * r.n(3)},
    "kimi_linear": lambda r: kimi(r),
    "gemma4_text": lambda r: {**r.llama("attention_bias", "use_double_wide_mlp", "attention_k_eq_v", head_dim=r.head(),
                                        global_head_dim=2 * r.head(), hidden_size_per_layer_input=r.n(9, 0),
                                        vocab_size_per_layer_input=r.n(90), num_global_key_value_heads=r.any(None, 1)),
                              **r.any({}, {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                                           "moe_intermediate_size": r.n(20)}),
                              "num_hidden_layers": 7 + r.layers, **r.any({}, {"num_kv_shared_layers": r.n(2)})},
    "mpnet": lambda r: encoder(r, relative_attention_num_buckets=r.n(30)),
    "deberta": lambda r: encoder(r, relative_attention=r.flag(),
                                 pos_att_type=r.any([], ["c2p"], ["p2c"], ["p2c", "c2p"]),
                                 position_biased_input=r.flag(), embedding_size=r.any(r.d, r.n(30)),
                                 max_relative_positions=r.any(-1, r.n(20)), pooler_hidden_size=r.d),
    "deberta-v2": lambda r: encoder(r, position_buckets=r.n(30), relative_attention=r.flag(), share_att_key=r.flag(),
                                    pos_att_type=r.any([], ["c2p"], ["p2c"], ["p2c", "c2p"]),
                                    position_biased_input=r.flag(), norm_rel_ebd=r.any("none", "layer_norm"),
                                    conv_kernel_size=r.any(0, 3), embedding_size=r.any(r.d, r.n(30)),
                                    pooler_hidden_size=r.d),
    "modernbert": lambda r: encoder(r, **{flag: r.flag() for flag in (
        "norm_bias", "attention_bias", "mlp_bias", "classifier_bias", "decoder_bias")}),
    "nomic_bert": lambda r: encoder(r),
    "esm": lambda r: encoder(r, mask_token_id=2, pad_token_id=1, emb_layer_norm_before=r.flag(),
                             position_embedding_type=r.any("absolute", "rotary")),
    "mt5": lambda r: relative_pairs(r),
    "umt5": lambda r: relative_pairs(r),
    "bart": lambda r: pair(r),
    "mbart": lambda r: pair(r),
    "pegasus": lambda r: pair(r),
    "marian": lambda r: pair(r),
    "m2m_100": lambda r: pair(r),
    "whisper": lambda r: pair(r, num_mel_bins=r.n(40), max_source_positions=r.n(40), max_target_positions=r.n(40)),
    "wav2vec2": lambda r: speech(r, codevector_dim=2 * r.n(9), proj_codevector_dim=r.n(20), num_codevector_groups=2,
                                 num_codevectors_per_group=r.n(20)),
    "hubert": lambda r: speech(r, feat_proj_layer_norm=r.flag()),
    "deit": lambda r: vision(r, encoder_stride=r.n(9), qkv_bias=r.flag()),
    "vit_mae": lambda r: vision(r, hidden_size=r.h * 4 * r.n(5), decoder_hidden_size=r.h * 4 * r.n(5),
                                qkv_bias=r.flag(), decoder_num_hidden_layers=r.n(3), decoder_num_attention_heads=r.h,
                                decoder_intermediate_size=r.n(50)),
    "dinov2": lambda r: vision(r, ffn=None, mlp_ratio=r.n(5), use_swiglu_ffn=r.flag(), use_mask_token=r.flag(),
                               qkv_bias=r.flag()),
    "beit": lambda r: vision(r, vocab_size=r.n(50), use_absolute_position_embeddings=r.flag(), use_mask_token=r.flag(),
                             use_relative_position_bias=r.flag(), use_shared_relative_position_bias=r.flag(),
                             use_mean_pooling=r.flag(), layer_scale_init_value=r.any(0.0, 0.1)),
    "sam_vision_model": lambda r: vision(r, ffn=None, mlp_dim=r.any(None, r.n(50)), mlp_ratio=r.any(1.5, 4.0),
                                         qkv_bias=r.flag(), output_channels=r.n(9), use_abs_pos=r.flag(),
                                         use_rel_pos=r.flag(), window_size=r.n(4, 0),
                                         global_attn_indexes=r.any([0], [])),
    "swin": lambda r: stages(r),
    "swinv2": lambda r: stages(r),
    "clip": lambda r: dict(text_config=text(r), vision_config=vision(r), projection_dim=r.n(40), num_labels=r.n(6, 3)),
    "siglip": lambda r: siglip(r),
    "clip_text_model": lambda r: text(r, projection_dim=r.n(40)),
    "clip_vision_model": lambda r: vision(r, projection_dim=r.n(40)),
    "siglip_text_model": lambda r: text(r, projection_size=r.n(40)),
    "siglip_vision_model": lambda r: vision(r),
}


def encoder(r, **more):
    return r.common(**{"max_position_embeddings": r.n(60, 5), "type_vocab_size": r.n(4), **more})


def relative_pairs(r):
    """mT5 and UMT5."""
    return r.common(width="d_model", heads="num_heads", layers="num_layers", ffn="d_ff", d_kv=r.n(20),
                    num_decoder_layers=r.n(3), relative_attention_num_buckets=2 * r.n(20),
                    feed_forward_proj=r.any("relu", "gated-gelu"), tie_word_embeddings=True)


def pair(r, **more):
    """An encoder and a decoder."""
    return dict(d_model=r.d, encoder_attention_heads=r.h, decoder_attention_heads=r.kv, encoder_layers=r.n(3),
                decoder_layers=r.n(3), encoder_ffn_dim=r.n(60), decoder_ffn_dim=r.n(60), vocab_size=r.n(200, 5),
                max_position_embeddings=r.n(60), tie_word_embeddings=r.flag(), pad_token_id=1, num_labels=r.n(6, 3),
                **more)


def speech(r, **more):
    convolutions = r.n(4)
    return r.common(hidden_size=16 * r.h, conv_dim=[r.n(20) for _ in range(convolutions)],
                    conv_stride=[1] * convolutions, conv_kernel=[r.n(5) for _ in range(convolutions)],
                    num_feat_extract_layers=convolutions,
                    num_conv_pos_embeddings=r.n(9), classifier_proj_size=r.n(20), conv_bias=r.flag(),
                    feat_extract_norm="layer", use_weighted_layer_sum=r.flag(), do_stable_layer_norm=r.flag(), **more)


def vision(r, **more):
    patch = r.n(6)
    return r.common(vocabulary=None, **{"image_size": patch * r.n(5), "patch_size": patch, "num_channels": r.n(4),
                                        **more})


def text(r, **more):
    return r.common(max_position_embeddings=r.n(60), **more)


def siglip(r):
    config = dict(text_config=text(r), vision_config=vision(r), num_labels=r.n(6, 3))
    config["text_config"]["projection_size"] = config["vision_config"]["hidden_size"]
    return config


def stages(r):
    """Swin's: each twice as wide as the one before."""
    count = r.n(3)
    return dict(embed_dim=12 * r.n(4), depths=[r.n(3) for _ in range(count)],
                num_heads=[r.any(2, 3, 6) for _ in range(count)],
                window_size=r.n(5), mlp_ratio=float(r.n(4)), image_size=64, patch_size=r.any(2, 4), num_channels=r.n(4),
                num_labels=r.n(6, 3), qkv_bias=r.flag(), use_absolute_embeddings=r.flag(), encoder_stride=r.n(5))


def linear(r, **more):
    """Layers of softmax attention with a gate between layers of linear attention."""
    return r.llama("attention_bias", head_dim=4 * r.n(6), full_attention_interval=r.n(3), linear_key_head_dim=r.n(9),
                   linear_value_head_dim=r.n(9), linear_num_key_heads=2, linear_num_value_heads=r.any(2, 4),
                   linear_conv_kernel_dim=r.n(4), **more)


def latent(r, **more):
    """DeepSeek's attention; its experts go in groups."""
    return r.common(n_routed_experts=2 * r.n(3), num_experts_per_tok=2, n_group=1, topk_group=1,
                    num_key_value_heads=r.h, moe_intermediate_size=r.n(40), n_shared_experts=r.n(3),
                    first_k_dense_replace=r.n(2, 0), q_lora_rank=r.any(None, r.n(30)), kv_lora_rank=r.n(30),
                    qk_rope_head_dim=r.head(), qk_nope_head_dim=r.n(20), v_head_dim=r.n(20), attention_bias=r.flag(),
                    **more)


def kimi(r):
    """Layers of latent attention without rotation between layers of linear attention."""
    of_layers = r.any({}, {"layer_types": [r.any("full_attention", "linear_attention") for _ in range(r.layers)]}, {
        "linear_attn_config": {"head_dim": r.n(9), "num_heads": r.n(5), "short_conv_kernel_size": r.n(4),
                               "full_attn_layers": [1], "kda_layers": list(range(2, r.layers + 1))}})
    return {**latent(r, num_experts=r.n(5, 2), linear_head_dim=r.n(9), linear_num_heads=r.n(5),
                     linear_conv_kernel_dim=r.n(4), **of_layers), "first_k_dense_replace": 0}


def indexed(r, **more):
    """Latents, and an indexer that chooses among the keys."""
    return {**latent(r), "q_lora_rank": r.n(30), "qk_nope_head_dim": 2 * r.n(9), "index_n_heads": r.n(3),
            "index_head_dim": 24 + 2 * r.n(9), "index_topk": r.n(9), **more}


def draw(model_type, number):
    r = Draw(model_type, number)
    if model_type in RULES:
        return RULES[model_type](r)
    more = {"embedding_size": r.n(30)} if model_type in ("albert", "electra") else {}
    return r.common(**more)


# What keys of text may say; types that are tied by transformers since 5.0, whatever a file says, though not in public
# checkpoints; and keys that say what a file is.
WORDS = {"feed_forward_proj": ["relu", "gated-gelu"], "feat_extract_norm": ["group", "layer"],
         "norm_rel_ebd": ["none", "layer_norm"], "position_embedding_type": ["absolute", "rotary", "relative_key"],
         "classifier_pooling": ["cls", "mean"], "summary_type": ["first", "mean"]}
ALWAYS_TIED = ("t5", "mt5", "umt5")
KEPT = ("model_type", "transformers_version", "architectures", "dtype", "id2label", "label2id", "_name_or_path")


def other(r, key, value):
    """Another value for a key, of any kind where it has none."""
    if key in WORDS:
        return r.choice(WORDS[key])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return r.choice([0, 1, 2, 3, 4, 6, value + 1, 2 * value, value // 2, None])
    if isinstance(value, float):
        return r.choice([0.0, value / 2, value * 1.5])
    if isinstance(value, list) and value:
        return r.choice([value[:-1], value + value[-1:], value[::-1]])
    return r.choice([True, False, 1, 2, 3, 8, 0.5]) if value is None else value


def changed(r, held, most):
    """Some keys with other values, up to so many; those of objects inside, too."""
    made = {}
    for key in r.sample(sorted(held), min(len(held), r.randint(1, most))):
        if isinstance(held[key], dict) and key.endswith("_config"):
            made[key] = {**held[key], **changed(r, held[key], most)}
        elif not isinstance(held[key], dict) and key not in KEPT:
            made[key] = other(r, key, held[key])
    return made


def draw_any(model_type, number, complete, aliases, old, foreign):
    """A drawn configuration with other values for any keys of its class: `complete` gives all that it has. Some have
    the other name that the class knows, `aliases`; some are keys that it reads besides, `old`; two keys are those of
    other classes, `foreign`."""
    r = random.Random(f"{model_type} any {number}")
    made = draw(model_type, number)
    made.update({key: value for key, value in changed(r, complete(made), 5).items()
                 if key != "tie_word_embeddings" or model_type not in ALWAYS_TIED})
    for alias, key in aliases.items():
        if key in made and r.random() < 0.3:
            made[alias] = made.pop(key)
    made.update({key: other(r, key, value) for key, value in old.items() if r.random() < 0.3})
    for key in r.sample(sorted(foreign), 2):
        made.setdefault(key, foreign[key])
    return made
