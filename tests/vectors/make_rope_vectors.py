"""Records rotations of models whose context was stretched, as transformers computes them, as case files of kind rope.

    python3 -m pip install torch transformers
    python3 tests/vectors/make_rope_vectors.py [directory]

Each file states its scaling in the words of a case (src/verify/case/CASES.md), and as my.config in those of a
config.json; tests/models/test_models_rope.c rotates by that. transformers computes frequencies in float32: here its
functions are given float64 in its place, so that the results differ only by roundings of float64. Positions are at
most 600, so an angle is off by 16 roundings of 2^-53 * 600, and a pair, at most 3 long, by three times that.
"""
import json
import math
import pathlib
import sys
from contextlib import contextmanager

import numpy as np
import torch
import transformers
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

T, HEADS, WIDTH = 6, 2, 16
POSITIONS = np.array([0, 1, 7, 63, 300, 600])
BASE = {"hidden_size": HEADS * WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "max_position_embeddings": 64, "rope_theta": 10000.0}
LONG, SHORT = [1.0, 1.2, 1.9, 3.0, 7.5, 12.0, 20.0, 31.0], [1.0, 1.0, 1.05, 1.1, 1.3, 1.5, 2.0, 2.25]
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}

# name: model type, scaling in the config, further keys of it, words of the case, positions in use
CASES = {
    "linear": ("llama", {"rope_type": "linear", "factor": 4.0}, {}, {"rope_factor": 4.0}, 0),
    "dynamic": ("llama", {"type": "dynamic", "factor": 4.0}, {}, {"rope_factor": 4.0, "rope_original_length": 64}, 601),
    "dynamic_short": ("llama", {"type": "dynamic", "factor": 4.0}, {},
                      {"rope_factor": 4.0, "rope_original_length": 64}, 60),
    "yarn": ("llama", {"rope_type": "yarn", **YARN}, {}, {"rope_factor": 4.0, "rope_original_length": 64}, 0),
    "yarn_betas": ("qwen2", {"rope_type": "yarn", "beta_fast": 8.0, "beta_slow": 0.5, "truncate": False, **YARN}, {},
                   {"rope_factor": 4.0, "rope_original_length": 64, "rope_beta_fast": 8.0, "rope_beta_slow": 0.5,
                    "rope_truncate": 0}, 0),
    "yarn_stated": ("qwen3", {"rope_type": "yarn", "attention_factor": 1.5, **YARN},
                    {"head_dim": WIDTH, "rope_theta": 1e6},
                    {"rope_factor": 4.0, "rope_original_length": 64, "rope_attention_factor": 1.5, "rope_base": 1e6},
                    0),
    "yarn_mscale": ("llama", {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 1.1, **YARN}, {},
                    {"rope_factor": 4.0, "rope_original_length": 64,
                     "rope_attention_factor": (0.07 * math.log(4) + 1) / (0.11 * math.log(4) + 1)}, 0),
    "longrope_short": ("phi3", {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
                       {"original_max_position_embeddings": 16, "pad_token_id": 0},
                       {"rope_factor": 4.0, "rope_original_length": 16, "rope_factors": SHORT}, 16),
    "longrope_long": ("phi3", {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
                      {"original_max_position_embeddings": 16, "pad_token_id": 0},
                      {"rope_factor": 4.0, "rope_original_length": 16, "rope_factors": LONG}, 17),
    "longrope_part": ("phi3", {"type": "longrope", "short_factor": SHORT[:6], "long_factor": LONG[:6]},
                      {"original_max_position_embeddings": 16, "partial_rotary_factor": 0.75, "pad_token_id": 0},
                      {"rope_factor": 4.0, "rope_original_length": 16, "rope_dim": 12, "rope_factors": LONG[:6]}, 601),
    "llama3": ("llama", {"rope_type": "llama3", **LLAMA3}, {"rope_theta": 500000.0},
               {"rope_factor": 8.0, "rope_original_length": 64, "rope_base": 500000.0}, 0),
    "none": ("llama", None, {}, {}, 0),
}


@contextmanager
def in_float64():
    """What asks for float32 is given float64."""
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float, torch.float32, torch.Tensor.float = torch.float64, torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept


def rotated(config, x, length):
    """x (B, h, T, d) rotated by transformers."""
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
        times = 1.0
    else:
        with in_float64():
            frequencies, times = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length or None)
    angles = torch.from_numpy(POSITIONS)[None, :, None] * frequencies.double()
    angles = torch.cat((angles, angles), -1)
    n = angles.shape[-1]
    y, _ = apply_rotary_pos_emb(x[..., :n], x[..., :n], angles.cos() * times, angles.sin() * times)
    return torch.cat((y, x[..., n:]), -1)


def main(folder):
    for name, (model, scaling, more, words, length) in CASES.items():
        stated = {"model_type": model, **BASE, **more, **({"rope_scaling": scaling} if scaling else {})}
        config = AutoConfig.for_model(**json.loads(json.dumps(stated)))
        x = np.random.default_rng(sum(map(ord, name))).uniform(-1, 1, (1, HEADS, T, WIDTH)).astype(np.float32)
        y = rotated(config, torch.from_numpy(x).double(), length).numpy()
        words = {word: np.array(value) if isinstance(value, list) else value for word, value in words.items()}
        if scaling:
            words["rope_scaling"] = scaling.get("rope_type") or scaling["type"]
        if length:
            words["rope_length"] = length
        mha_case.save(f"{folder}/rope_{name}.safetensors", query=x, position_ids=POSITIONS, format_version=1,
                      name=f"rope_{name}", kind="rope", layout="BHTD", num_heads=HEADS, rope="half_split",
                      rtol64=0, atol64=3 * 16 * 600 * 2.0 ** -53, source="transformers",
                      source_version=f"transformers {transformers.__version__}", op="apply_rotary_pos_emb",
                      **{"expected.output": y.astype(np.float32), "expected64.output": y, "my.length": length,
                         "my.config": json.dumps(stated)}, **words)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
