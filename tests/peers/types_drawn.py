"""Tiny models of any type of transformers: its own default configuration, made small key by key."""
import inspect
import pathlib
import re

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING

LAYERS, MOST_PARAMETERS = 2, 30_000_000
# By what the name of a key looks like; the first that fits.
SMALL = [(re.compile(pattern), value) for pattern, value in (
    (r"(num_)?(hidden_|encoder_|decoder_|vision_|text_|n_)?layers?$|^depth$|num_hidden_layers|^n_layers?$", LAYERS),
    (r"num_key_value_heads|num_kv_heads|multi_query_group_num|n_kv_heads", 2),
    (r"num_experts_per_tok|top_k_experts|^moe_topk|num_experts_per_token|^moe_k$|^topk_group$|^n_group$", 1),
    (r"(num|n)_(local_|routed_)?experts$|moe_num_experts|num_local_experts", 2),
    (r"attention_heads|^n_heads?$|num_heads$", 4),
    (r"kv_lora_rank|q_lora_rank", 16),
    (r"qk_rope_head_dim", 4), (r"qk_nope_head_dim", 4), (r"v_head_dim", 8), (r"head_dim|^d_kv$", 8),
    (r"^(hidden_size|d_model|n_embd|embed_dim|hidden_dim|embedding_size|emb_dim|word_embed_proj_dim)$|"
     r"(decoder|encoder|vision|text|projection|out|output|audio|cross)_(hidden_size|dim|embed_dim)$|_hidden_size$", 32),
    (r"intermediate_size|ffn_dim|^d_ff$|^n_inner$|ffn_hidden|mlp_dim|ff_dim|mlp_hidden", 32),
    (r"vocab_size", 100), (r"max_(position|source|target|text).*(embeddings|positions|len.*)$", 64),
    (r"^image_size$", 16), (r"^(patch_size|image_patch_size)$", 4),
    (r"(sliding_window|local_attention|attention_window)$", 4), (r"attention_chunk_size", 4),
    (r"_(token_)?(id|index)$", 1), (r"_token_id$", 1))]
LENGTHS = re.compile(r"layer_types|mlp_layer_types|_pattern$|no_rope_layers|moe_layers|layers_block_type|block_types")


def small(value, key=""):
    """A value of a configuration, small."""
    if isinstance(value, dict):
        return {name: small(inner, name) for name, inner in value.items()}
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        fits = next((n for pattern, n in SMALL if pattern.search(key)), None)
        return value if fits is None else min(value, fits) if not key.endswith("id") else min(value, 60)
    if isinstance(value, list) and LENGTHS.search(key) and len(value) > LAYERS:
        kinds = list(dict.fromkeys(map(str, value)))
        return [next(x for x in value if str(x) == kinds[i % len(kinds)]) for i in range(LAYERS)]
    return value


def config_of(model_type):
    """A small configuration of a type."""
    kind = CONFIG_MAPPING[model_type]
    held = small({key: x for key, x in kind().to_dict().items() if key not in ("model_type", "transformers_version")})
    config = kind(**held)
    for part in [config, *[x for x in vars(config).values() if isinstance(x, transformers.PreTrainedConfig)]]:
        part._experts_implementation = "eager"
    return config


def model_of(model_type, implementation, dtype):
    """A small model of random weights; ValueError where it does not become small."""
    config = config_of(model_type)
    kind = MODEL_MAPPING[type(config)]
    kind = kind[0] if isinstance(kind, tuple) else kind
    with torch.device("meta"):
        parameters = sum(p.numel() for p in kind(config_of(model_type)).parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"{parameters:,} parameters")
    torch.manual_seed(11)
    model = kind._from_config(config, attn_implementation=implementation).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 or "sinks" in name:
            parameter.data.normal_(0, 0.2)
    return model.to(dtype)


def dispatches(model_type):
    """Whether its modelling file calls attention through the interface."""
    source = pathlib.Path(inspect.getfile(CONFIG_MAPPING[model_type]))
    modelling = source.with_name(source.name.replace("configuration_", "modeling_"))
    return modelling.exists() and "ALL_ATTENTION_FUNCTIONS" in modelling.read_text(encoding="utf-8")


TYPES = sorted(name for name, config in CONFIG_MAPPING.items() if config in MODEL_MAPPING)
