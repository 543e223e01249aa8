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
    "llama4_text": lambda r: r.llama("attention_bias", **r.experts("num_local_experts"), intermediate_size_mlp=r.n(70),
                                     head_dim=r.head(), interleave_moe_layer_step=r.n(2), moe_layers=r.any(None, [0])),
    "gpt_oss": lambda r: r.llama("attention_bias", **r.experts("num_local_experts"), head_dim=r.head()),
}


def latent(r):
    """DeepSeek's attention; its experts go in groups."""
    return r.common(n_routed_experts=2 * r.n(3), num_experts_per_tok=2, n_group=1, topk_group=1,
                    num_key_value_heads=r.h, moe_intermediate_size=r.n(40), n_shared_experts=r.n(3),
                    first_k_dense_replace=r.n(2, 0), q_lora_rank=r.any(None, r.n(30)), kv_lora_rank=r.n(30),
                    qk_rope_head_dim=r.head(), qk_nope_head_dim=r.n(20), v_head_dim=r.n(20), attention_bias=r.flag())


def draw(model_type, number):
    r = Draw(model_type, number)
    if model_type in RULES:
        return RULES[model_type](r)
    more = {"embedding_size": r.n(30)} if model_type in ("albert", "electra") else {}
    return r.common(**more)
