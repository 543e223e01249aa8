"""Records rotations by positions of several axes, as transformers computes them.

    python3 tests/vectors/make_axes_vectors.py > tests/vectors/axes.txt

A line for each token: model, order of the axes, features, base, sections, positions, then cosines and sines of all
pairs. transformers computes them in float32: here its functions are given float64 in its place.
"""
import sys

import torch

torch.set_default_dtype(torch.float64)
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double

from transformers import AutoConfig  # noqa: E402
from transformers.models.llama4.modeling_llama4 import Llama4VisionRotaryEmbedding  # noqa: E402
from transformers.models.pixtral.modeling_pixtral import PixtralVisionRotaryEmbedding  # noqa: E402
from transformers.models.qwen2_vl.modeling_qwen2_vl import (Qwen2VLRotaryEmbedding,  # noqa: E402
                                                            Qwen2VLVisionRotaryEmbedding)
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding  # noqa: E402

THREE = torch.tensor([[0, 3, 3, 3, 9], [0, 3, 4, 4, 9], [0, 3, 3, 5, 9]])
GRID = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 0, 1, 2]])


def text(model_type, rotation, sections):
    config = AutoConfig.for_model(model_type, hidden_size=32, num_attention_heads=2, head_dim=16, rope_parameters={
        "rope_type": "default", "rope_theta": 1e4, "mrope_section": sections})
    cos, sin = rotation(config)(torch.zeros(1), THREE[:, None])
    return THREE, cos[0, :, :8], sin[0, :, :8]


def image(model_type, rotation):
    config = AutoConfig.for_model(model_type, hidden_size=32, embed_dim=32, num_attention_heads=2, num_heads=2,
                                  head_dim=16)
    cos, sin = rotation(config)(torch.zeros(1), GRID.T)
    return GRID, cos.reshape(5, -1)[:, :8], sin.reshape(5, -1)[:, :8], config.rope_parameters["rope_theta"]


def llama4():
    config = AutoConfig.for_model("llama4_vision_model", hidden_size=32, num_attention_heads=2, image_size=6,
                                  patch_size=2)
    turns = Llama4VisionRotaryEmbedding(config)(torch.zeros(1)).reshape(10, -1)[:9]
    place = torch.arange(9)
    return torch.stack([place % 3, place // 3]) + 1, turns.real, turns.imag, config.rope_parameters["rope_theta"]


def main():
    rows = [("qwen2_vl", "blocks", 16, [2, 3, 3], *text("qwen2_vl_text", Qwen2VLRotaryEmbedding, [2, 3, 3]), 1e4),
            ("qwen3_vl", "interleaved", 16, [4, 2, 2],
             *text("qwen3_vl_text", Qwen3VLTextRotaryEmbedding, [4, 2, 2]), 1e4),
            ("qwen2_vl_image", "repeated", 8, [4, 4], *image("qwen2_vl_vision", Qwen2VLVisionRotaryEmbedding)),
            ("pixtral", "dealt", 16, [4, 4], *image("pixtral", PixtralVisionRotaryEmbedding)),
            ("llama4_image", "repeated", 8, [4, 4], *llama4())]
    for name, order, dim, sections, positions, cos, sin, base in rows:
        for t in range(positions.shape[1]):
            print(name, order, dim, base, len(sections), *sections, *positions[:, t].tolist(),
                  *(repr(x) for x in cos[t].tolist() + sin[t].tolist()))
    return 0


sys.exit(main())
