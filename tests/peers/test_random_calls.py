"""Random calls, compared with PyTorch in float64, every option of its signature; with transformers' eager attention.

PEER_CALLS is their number. Each path must lie within the library's own error bound of PyTorch's float64 result, for
float64 within that of float64; PyTorch's own rounding in float64 is allowed once more.
"""
import os

import mha
import numpy as np
import pytest
from mha.judge.check import Meant

torch = pytest.importorskip("torch")
sdpa = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
CALLS, SEED = int(os.environ.get("PEER_CALLS", 10000)), int(os.environ.get("PEER_SEED", 0))
if sdpa is None:
    pytest.skip("this PyTorch has no scaled_dot_product_attention (2.0 has)", allow_module_level=True)
torch.set_num_threads(1)


def draw(number):
    """Inputs and arguments of one call."""
    r = np.random.default_rng(number)
    pick = lambda *values: values[r.integers(len(values))]
    lead, h_kv, groups = pick((), (1,), (2,), (3, 2)), int(pick(1, 2, 3)), int(pick(1, 1, 2, 4))
    T_q, S, d = (int(pick(1, 2, 3, 5, 8, 16, 17, 33)) for _ in range(3))
    T_q = S if r.random() < 0.4 else T_q
    d_v, size = (d if r.random() < 0.6 else int(pick(1, 4, 9))), float(pick(0.01, 1, 1, 1, 3))
    dtype = pick("float32", "float32", "float64", "float16", "bfloat16")
    numbers = lambda *shape: torch.from_numpy(size * r.standard_normal(shape)).to(getattr(torch, dtype))
    q, k, v = numbers(*lead, h_kv * groups, T_q, d), numbers(*lead, h_kv, S, d), numbers(*lead, h_kv, S, d_v)
    if r.random() < 0.3:
        q = q.transpose(-2, -3).contiguous().transpose(-2, -3)
    said = {"enable_gqa": True} if groups > 1 or r.random() < 0.1 else {}
    if r.random() < 0.3:
        said["scale"] = float(r.uniform(0.05, 1.5))
    mask = pick("none", "causal", "bool", "float", "bool", "float")
    if mask == "causal":
        said["is_causal"] = True
    elif mask != "none":
        shape = pick((T_q, S), (1, S), lead + (1, T_q, S), lead + (h_kv * groups, T_q, S))
        keeps = torch.from_numpy(r.random(shape) < 0.8)
        keeps[..., 0] = True  # PyTorch gives NaN for a query that sees no key, or zeros, depending on its version
        hidden = torch.tensor(-np.inf).to(q)
        said["attn_mask"] = keeps if mask == "bool" else torch.where(keeps, numbers(*shape), hidden)
    return r, dtype, (q, k, v), said


def test_random_calls():
    seen = {}
    for number in range(SEED, SEED + CALLS):
        r, dtype, inputs, said = draw(number)
        q, k, v = (x.double() for x in inputs)
        theirs = {n: x.double() if n == "attn_mask" and x.dtype != torch.bool else x for n, x in said.items()}
        if "attn_mask" in said and q.ndim == 3 and said["attn_mask"].ndim == 3 and torch.__version__ < "2.1":
            continue
        exact = sdpa(q, k, v, **theirs).numpy()
        meant = Meant(*inputs, None, None, said)
        double = meant.bound(2.0**-53)["output"]
        paths = ("exact", "fast", "blas") if dtype == "float32" else ("auto",)
        for path in paths:
            y = mha.scaled_dot_product_attention(*inputs, path=path, **said)
            assert y.dtype == inputs[0].dtype and y.shape == exact.shape
            unit = {"float32": 2.0**-24, "float64": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
            allowed = 2 * double
            if dtype == "float32" and path != "exact":
                allowed += meant.bound(2.0**-24)["output"]
            # float32 of the exact path, and halves, are rounded once, which in the subnormals of F16 costs 2^-25
            rounding = 0 if dtype == "float32" and path != "exact" else unit / (1 - unit)
            slack = allowed * (1 + rounding) + rounding * np.abs(exact) + (2.0**-25 if dtype == "float16" else 0)
            assert np.all(np.abs(y.double().numpy() - exact) <= slack), f"call {number}, path {path}: {said.keys()}"
            seen[dtype, path] = seen.get((dtype, path), 0) + 1
        for name in said:
            seen[name] = seen.get(name, 0) + 1
    print(f"{CALLS} calls:", ", ".join(f"{name} {count}" for name, count in sorted(seen.items(), key=str)))
    assert {"is_causal", "attn_mask", "scale", "enable_gqa"} <= set(seen)


def test_jax():
    """jax.nn.dot_product_attention: (B, T, heads, width), causal top-left, float32 on the CPU."""
    jax = pytest.importorskip("jax")
    if not hasattr(jax.nn, "dot_product_attention"):
        pytest.skip("this JAX has no dot_product_attention")
    r = np.random.default_rng(1)
    for T_q, S, h, h_kv, causal in ((5, 9, 4, 2, False), (7, 7, 3, 3, True), (4, 6, 2, 1, True), (9, 5, 4, 4, True)):
        q = r.standard_normal((2, T_q, h, 8)).astype("f4")
        k, v = (r.standard_normal((2, S, h_kv, 8)).astype("f4") for _ in range(2))
        theirs = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
        said = {"is_causal": causal}  # JAX's own words
        mha.testing.assert_attention_close(theirs, q, k, v, layout="BTNH", **said)
        if T_q == S:  # given as (B, heads, T, width)
            with pytest.raises(AssertionError, match="heads-as-time .*in layout='BTHD' they are right"):
                mha.testing.assert_attention_close(theirs, q, k, v, **said)
        ours = mha.attention(*(jax.numpy.asarray(x) for x in (q, k, v)), layout="BTNH", **said)
        assert type(ours) is type(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2 * Meant(q, k, v, None, "BTHD", said)
                                   .bound(2.0**-24)["output"])


def test_transformers():
    """The eager attention of transformers' LLaMA, which kernels of the Hub are held against."""
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")

    class Module(torch.nn.Module):
        num_key_value_groups, training = 2, False

    q, (k, v) = torch.randn(2, 4, 5, 8), (torch.randn(2, 2, 5, 8) for _ in range(2))
    mask = torch.triu(torch.full((5, 5), float("-inf")), 1)[None, None]
    theirs = modeling.eager_attention_forward(Module(), q, k, v, mask, 8**-0.5)[0].transpose(1, 2)
    mha.testing.assert_attention_close(theirs, q, k, v, is_causal=True)
