"""Layers of latent attention, as stored and absorbed."""
import numpy as np
import pytest

import mha


def layer(**more):
    return mha.MultiHeadAttention(32, 4, d_k=10, d_v=6, q_rank=8, kv_rank=12, d_rope=4, causal=True,
                                  rope=mha.Rope("interleaved", dim=4, last=True), **more)


def test_both_forms_are_one_layer():
    own, x = layer(dtype="float64"), np.random.default_rng(1).normal(size=(2, 9, 32))
    stored, trace = own(x, path="exact", return_stages=("kv_latent", "k", "weights"))
    absorbed, other = own(x, path="exact", absorbed=True, return_stages=("kv_latent", "k", "weights"))
    assert np.abs(stored - absorbed).max() < 1e-13 * np.abs(stored).max() + 1e-14
    assert np.abs(trace["weights"] - other["weights"]).max() < 1e-13
    assert (trace["kv_latent"] == other["kv_latent"]).all()
    assert trace["k"].shape == (2, 9, 40) and other["k"].shape == (2, 9, 16)


def test_a_cache_of_latents():
    own, x = layer(), np.random.default_rng(2).normal(size=(2, 9, 32)).astype(np.float32)
    whole, latents, stored = own(x), own.cache(2, 9, absorbed=True), own.cache(2, 9)
    steps = np.concatenate([own(x[:, i:i + 1], cache=latents, absorbed=True) for i in range(9)], 1)
    assert np.abs(steps - whole).max() < 1e-5 * np.abs(whole).max()
    assert latents.nbytes * (4 * 16) == stored.nbytes * 16
    with pytest.raises(ValueError, match="cache keys"):
        own(x[:, :1], cache=own.cache(2, 9), absorbed=True)


def test_sizes_and_weights():
    own = layer()
    assert own.config["kv_rank"] == 12 and own.config["bias_latent"] and not own.config["bias_q"]
    assert own.weights["W_KVB"].shape == (12, 4 * (6 + 6)) and own.head("W_KVB", 1).shape == (12, 12)
    assert "W_K" not in own.weights
    with pytest.raises(ValueError, match="kv_rank"):
        mha.MultiHeadAttention(32, 4, q_rank=8)
