"""Records attention with a sigmoid in place of the softmax, as case files next to this script.

    python3 -m pip install torch
    python3 tests/vectors/make_sigmoid_vectors.py [directory]

The definition is that of Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention",
section 2: sigmoid(q k^T / sqrt(d) + b) v with b = -log(n), and with ALiBi. PyTorch computes it, in float32 and in
float64.
"""
import math
import pathlib
import sys

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

B, HEADS, KV_HEADS, T, S, D = 2, 4, 2, 7, 9, 4


def attend(q, k, v, added, b):
    q, k, v, added = map(torch.from_numpy, (q, k, v, added))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    weights = torch.sigmoid(q @ k.mT * D**-0.5 + added.to(q.dtype) + b)
    return (weights @ v).numpy(), weights.numpy()


def main(folder):
    r = np.random.default_rng(17)
    inputs = [2 * r.normal(size=(B, h, n, D)).astype("f4") for h, n in ((HEADS, T), (KV_HEADS, S), (KV_HEADS, S))]
    distance = np.arange(T)[:, None] + S - T - np.arange(S)
    slopes = np.array([0.5, 0.25, 0.125, 0.0625])
    mask = np.where(r.random((B, 1, T, S)) < 0.2, -np.inf, r.normal(size=(B, 1, T, S))).astype("f4")
    mask[0, 0, 3] = -np.inf  # a query that sees no key
    causal = np.where(distance < 0, -np.inf, -slopes[:, None, None] * distance)
    for name, added, b, words in (
            ("mask", mask, -math.log(S), {"attn_mask": mask, "attn_mask_kind": "additive"}),
            ("causal_alibi", causal, 0.75, {"causal": 1, "position_offset": np.full(B, S - T), "alibi": 1,
                                           "alibi_slopes": slopes})):
        results = {}
        for expected, dtype in (("expected", "f4"), ("expected64", "f8")):
            output, weights = attend(*(x.astype(dtype) for x in inputs), added, b)
            results |= {f"{expected}.output": output, f"{expected}.weights": weights}
        q, k, v = inputs
        mha_case.save(f"{folder}/sigmoid_{name}.safetensors", query=q, key=k, value=v, format_version=1,
                      name=f"sigmoid_{name}", kind="sdpa", layout="BHTD", source="PyTorch",
                      source_version=f"PyTorch {torch.__version__}", normaliser="sigmoid", sigmoid_bias=repr(b),
                      **results, **words)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
