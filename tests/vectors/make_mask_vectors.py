"""Records attention under the masks that transformers builds for its models, as case files next to this script.

    python3 -m pip install torch transformers
    python3 tests/vectors/make_mask_vectors.py [directory]

The masks are those of transformers.masking_utils, key by key; attention is PyTorch's, in float32 and in float64. A file
has no mask: it says `prefix`, `chunk`, `window_left` and `window_keep` (src/verify/case/CASES.md).
"""
import pathlib
import sys

import numpy as np
import torch
import transformers
from torch.nn.functional import scaled_dot_product_attention
from transformers import masking_utils as masks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

B, HEADS, T, S, D = 2, 2, 6, 10, 4
FIRST = np.array([4, 2])  # position of query 0 in each batch row


def below(n):
    """Keys of a prefix, seen by all."""
    return lambda batch, head, query, key: key < n


CAUSAL = masks.causal_mask_function
NONE = torch.zeros(B, dtype=torch.int64)  # no row is padded on the left

# name: the rule, and the words of the case
CASES = {
    "chunked": (masks.chunked_causal_mask_function(4, NONE), {"causal": 1, "chunk": 4}),
    "chunked_both_ways": (masks.chunked_overlay(3, NONE), {"chunk": 3}),
    "prefix": (masks.or_masks(CAUSAL, below(5)), {"causal": 1, "prefix": 5}),
    "window_keep": (masks.and_masks(CAUSAL, masks.or_masks(masks.sliding_window_overlay(3), below(2))),
                    {"causal": 1, "window_left": 2, "window_keep": 2}),
    "prefix_chunked": (masks.and_masks(masks.or_masks(CAUSAL, below(6)), masks.chunked_overlay(5, NONE)),
                       {"causal": 1, "prefix": 6, "chunk": 5}),
}


def main(folder):
    for name, (rule, words) in CASES.items():
        rng = np.random.default_rng(sum(map(ord, name)))
        q, k, v = (rng.normal(size=(B, HEADS, n, D)).astype(np.float32) for n in (T, S, S))
        at = torch.tensor
        seen = at([[[bool(rule(at(b), at(0), at(FIRST[b] + i), at(j))) for j in range(S)] for i in range(T)]
                   for b in range(B)])[:, None]
        results = {}
        for prefix, dtype in (("expected", torch.float32), ("expected64", torch.float64)):
            x = [torch.from_numpy(part).to(dtype) for part in (q, k, v)]
            results[f"{prefix}.output"] = scaled_dot_product_attention(*x, attn_mask=seen).numpy()
        mha_case.save(f"{folder}/mask_{name}.safetensors", query=q, key=k, value=v, position_offset=FIRST,
                      format_version=1, name=f"mask_{name}", kind="sdpa", layout="BHTD", source="transformers",
                      source_version=f"transformers {transformers.__version__}, PyTorch {torch.__version__}",
                      op="masking_utils", **results, **words)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
