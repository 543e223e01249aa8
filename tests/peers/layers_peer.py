"""Attention layers of tiny random models beside transformers: what a config.json says is what its owner computes.

    PYTHONPATH=src/python MHA_LIBRARY=build/libmha.so python3 tests/peers/layers_peer.py [model_type ...]

Each model is made from a configuration, run once, and every attention layer is run again by mha from its weights and
the config.json alone. Exit code 1 when a layer differs by more than float32 explains.
"""
import pathlib
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

import mha

T = 12
TINY = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
        "intermediate_size": 24, "vocab_size": 40, "max_position_embeddings": 8, "pad_token_id": 0}
MOE = {"num_local_experts": 2, "num_experts_per_tok": 1}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}

# What a configuration has beside TINY.
MODELS = [
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}),
    ("llama", {"rope_scaling": LLAMA3, "head_dim": 16}),
    ("qwen2", {"rope_scaling": YARN, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2}),
    ("qwen3", {"rope_scaling": YARN, "head_dim": 16}),
    ("mistral", {"sliding_window": 5}),
    ("gemma2", {"sliding_window": 5, "head_dim": 16, "attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 7}),
    ("glm", {"head_dim": 16}),
    ("glm4", {"head_dim": 16}),
    ("stablelm", {"hidden_size": 64}),
    ("gptj", {"max_position_embeddings": 16, "rotary_dim": 4}),
    ("granite", {"attention_multiplier": 0.3}),
    ("granitemoe", {"attention_multiplier": 0.3, **MOE}),
    ("cohere2", {"sliding_window": 5, "layer_norm_eps": 1e-5, "sliding_window_pattern": 2}),
    ("smollm3", {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 5}),
    ("gpt_oss", {"sliding_window": 5, "head_dim": 16, "rope_scaling": {**YARN, "truncate": False}, **MOE}),
    ("olmo2", {}),
]


def recorded(model, ids):
    """Input and output of every attention layer of one forward pass, by the module's name."""
    seen = {}

    def hook(name):
        def keep(module, args, kwargs, output):
            x = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            seen[name] = x.detach().numpy(), (output[0] if isinstance(output, tuple) else output).detach().numpy()
        return keep

    for name, module in model.named_modules():
        if name.endswith(("self_attn", ".attn")):
            module.register_forward_hook(hook(name), with_kwargs=True)
    with torch.no_grad():
        model(ids)
    return seen


def differences(model_type, more, folder):
    """The largest relative difference of each layer."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(model_type, **{**TINY, **more})
    config._attn_implementation = "eager"
    model = AutoModel.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    weights = {name: x.detach().numpy() for name, x in model.state_dict().items()}
    mha.save(folder / "model.safetensors", weights)
    config.to_json_file(folder / "config.json", use_diff=False)
    for name, (x, expected) in recorded(model, torch.randint(1, 40, (2, T))).items():
        layer = mha.MultiHeadAttention.from_file(folder / "model.safetensors", layer=name,
                                                 config=folder / "config.json", length=T)
        found = layer(x, path="exact")
        yield name, np.abs(found - expected).max() / np.abs(expected).max()


def main(wanted):
    wrong = 0
    for model_type, more in MODELS:
        if wanted and model_type not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows = list(differences(model_type, more, pathlib.Path(folder)))
            except Exception as why:  # noqa: BLE001: a family that cannot be compared is reported, not hidden
                rows = []
                print(f"{model_type}: {type(why).__name__}: {str(why)[:200]}")
        bad = [row for row in rows if not row[1] < 1e-4]
        wrong += bool(bad) or not rows
        print(f"{model_type}: {len(rows)} layers, at most {max((r[1] for r in rows), default=np.nan):.1e}",
              *(f"{name} {off:.1e}" for name, off in bad))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
