"""Biases, norm weights and a past that a case lacks, and blocks in other places: the diagnosis names each."""

import numpy as np
import pytest

import mha

B, H, T, D = 3, 4, 26, 8
DRAWN = np.random.default_rng(11)
Q, K, V = (DRAWN.standard_normal((B, H, T, D)).astype("f4") for _ in range(3))
OTHER = np.arange(B * H)
OTHER[[1, 6, 11]] = 6, 11, 1


def attend(q=Q, k=K, v=V, causal=False):
    s = q.astype("f8") @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    s = np.where(np.tri(*s.shape[2:], s.shape[3] - s.shape[2]) if causal else 1, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).astype("f4")


def moved(x):
    """Blocks of a batch row and a head in the places of others."""
    return x.reshape(B * H, *x.shape[2:])[OTHER].reshape(x.shape)


def found(out, *inputs, **settings):
    return mha.diagnose(out, *inputs, threads=1, **{"time_limit": np.inf, **settings})


def names(*arguments, **settings):
    return [name.split(" ")[0] for name in found(*arguments, **settings).names]


def layers(width=16, heads=2, **keywords):
    """A layer with biases of these projections, and one without them."""
    lacks = keywords.pop("lacks", ("b_Q", "b_K", "b_V", "b_O"))
    pair = [mha.MultiHeadAttention(width, heads, bias=on, seed=None, **keywords) for on in (True, False)]
    for name in pair[0].weights:
        drawn = DRAWN.standard_normal(pair[0].weights[name].shape).astype("f4")
        drawn *= 0.5 if name.startswith("b_") else width**-0.5
        pair[0].set(name, drawn if name in lacks or not name.startswith("b_") else 0 * drawn)
        if name in pair[1].weights:
            pair[1].set(name, drawn)
    return pair


LACKING = {
    "all": dict(rope=mha.Rope(kind="half_split")),
    "all, wide": dict(width=96, heads=6),
    "grouped": dict(width=32, heads=4, kv_heads=2, lacks=("b_Q", "b_K", "b_V"), rope=mha.Rope(kind="half_split")),
    "of the output": dict(lacks=("b_O",)),
    "of the queries": dict(lacks=("b_Q",)),
}


@pytest.mark.parametrize("of", LACKING)
def test_biases_that_a_case_lacks_are_named(of):
    right, case = layers(**LACKING[of])
    x = DRAWN.standard_normal((2, T, right.config["d_model"])).astype("f4")
    assert "case-lacks-biases" in names(right(x, causal=True), x, layer=case, causal=True)


@pytest.mark.parametrize("of", LACKING)
def test_noise_is_no_bias(of):
    _, case = layers(**LACKING[of])
    x = DRAWN.standard_normal((2, T, case.config["d_model"])).astype("f4")
    out = case(x, causal=True)
    assert names(out * (1 + 1e-3 * DRAWN.standard_normal(out.shape)).astype("f4"), x, layer=case, causal=True) == []


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("says", [{}, {"norm_unweighted": True}])
def test_norm_weights_that_a_case_lacks_are_named(causal, says):
    weights = DRAWN.uniform(0.5, 1.5, (2, D))
    q, k = (x / np.sqrt((x.astype("f8") ** 2).mean(-1, keepdims=True) + 1e-6) * w for x, w in zip((Q, K), weights))
    out = attend(q, k, causal=causal)
    assert "case-lacks-norm-weights" in names(out, Q, K, V, layout="BHTD", causal=causal, **says)


BLOCKS = {
    "batch-heads-permuted": moved(attend(causal=True)),
    "batch-heads-kv-permuted": attend(k=moved(K), v=moved(V), causal=True),
    "batch-heads-k-permuted": attend(k=moved(K), causal=True),
    "batch-heads-v-permuted": attend(v=moved(V), causal=True),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_in_other_places_are_named(name):
    assert name + " 1: 6, 6: 11, 11: 1" in found(BLOCKS[name], Q, K, V, layout="BHTD", causal=True).names


@pytest.mark.parametrize("keys", [300, 500])
@pytest.mark.parametrize("name", ["rows-k-permuted", "rows-kv-permuted"])
def test_rows_of_many_keys_in_other_places_are_named(keys, name):
    q, k, v = (DRAWN.standard_normal((1, 2, keys, 16)).astype("f4") for _ in range(3))
    order = np.arange(keys)
    order[[17, 90, 200, 280]] = 280, 17, 90, 200
    out = attend(q, k[:, :, order], v[:, :, order] if "kv" in name else v, causal=True)
    says = f"{name} 17: 280, 90: 17, 200: 90, 280: 200"
    assert says in found(out, q, k, v, layout="BHTD", causal=True).names
