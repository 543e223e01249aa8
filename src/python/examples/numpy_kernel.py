"""Checking a kernel of one's own: a causal attention in numpy, with a bug."""
import mha
import numpy as np


def my_kernel(q, k, v):
    """q, k, v: (batch, heads, T, width). What is wrong with it?"""
    d = q.shape[-1]
    scores = q @ k.swapaxes(-1, -2) / d**0.5
    scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, 0)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


r = np.random.default_rng(0)
q, k, v = (r.standard_normal((2, 4, 16, 32)).astype("float32") for _ in range(3))
print(mha.diagnose(my_kernel(q, k, v), q, k, v, is_causal=True))
