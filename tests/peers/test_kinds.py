"""The module with arrays and layers of PyTorch and JAX, and with the short floats of ml_dtypes."""
import mha
import numpy as np
import pytest
from mha.core import arrays

R = np.random.default_rng(5)
sdpa = mha.scaled_dot_product_attention


def assert_rounded_once(y, wide):
    """Each number of y is within half a step of its type from `wide`. (PyTorch rounds to 16 bits by way of float32.)"""
    import torch
    limits = torch.finfo(y.dtype)
    half = torch.ldexp(torch.full_like(wide, limits.eps / 4), torch.frexp(y.double()).exponent)
    assert ((y.double() - wide).abs() <= half.clamp_min(limits.smallest_normal * limits.eps / 2)).all()


def test_torch():
    torch = pytest.importorskip("torch")
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
    for dtype in kinds:
        q, k, v = (torch.randn(2, 3, 5, 8, dtype=dtype) for _ in range(3))
        y = sdpa(q, k, v)
        assert type(y) is torch.Tensor and y.dtype == dtype and y.shape == q.shape
        wide = sdpa(q.double(), k.double(), v.double())
        if dtype != torch.float32:
            assert_rounded_once(y, wide)  # computed in float64
        assert arrays.given("query", q).array.ctypes.data == q.data_ptr()
        assert torch.equal(sdpa(q.transpose(1, 2).contiguous().transpose(1, 2), k, v), y)
    x = torch.randn(2, 3, 4, requires_grad=True)
    assert not sdpa(x, x, x).requires_grad
    for dtype in kinds[:2]:
        for _ in range(3):  # a call that was made before takes a shorter way
            q, k, v = (torch.randn(2, 3, 5, 8, dtype=dtype) for _ in range(3))
            mask = torch.rand(5, 5) < 0.7
            y = sdpa(q, k, v, mask)
            assert type(y) is torch.Tensor and torch.equal(y, sdpa(q, k, v, mask, out_dtype=dtype))
            turned = torch.complex(torch.zeros_like(q), q).conj().imag  # its sign is a flag
            assert turned.is_neg() and torch.equal(sdpa(turned, k, v), sdpa(-q, k, v))
    for _ in range(2):  # a kept call of dense tensors is none of the others
        x = torch.ones(2, 3, 4)
        assert not sdpa(x, x, x.clone().requires_grad_()).requires_grad
        sdpa(x, x, x)
    for wrong, words in ((torch.ones(2, 3, 4).to_sparse(), "dense"), (torch.ones(2, 3, 4, device="meta"), "meta"),
                         (torch.ones(2, 3, 4, dtype=torch.complex64), "complex64")):
        with pytest.raises(TypeError, match=f"query: .*{words}"):
            sdpa(wrong, torch.ones(2, 3, 4), torch.ones(2, 3, 4))


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    for dtype in ("float32", "bfloat16", "float16"):
        x = jnp.asarray(R.standard_normal((2, 3, 5, 8)), dtype)
        y = sdpa(x, x, x)
        assert isinstance(y, type(x)) and y.dtype == dtype


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = R.standard_normal((2, 3, 5, 8)).astype(ml_dtypes.bfloat16)
    y = sdpa(x, x, x)
    assert y.dtype == ml_dtypes.bfloat16
    assert np.array_equal(y, sdpa(*[x.astype("f8")] * 3).astype(ml_dtypes.bfloat16))
    assert sdpa(x, x, x, path="fast").dtype == ml_dtypes.bfloat16
    mha.testing.assert_attention_close(y, x, x, x)
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):  # results of 8 bits
        stored = sdpa(x, x, x, out_dtype="float32").astype(dtype)
        mha.testing.assert_attention_close(stored, x, x, x)
        assert mha.diagnose(stored, x, x, x).right
        with pytest.raises(AssertionError, match=f"rounding in {dtype.__name__} may cost"):
            mha.testing.assert_attention_close((-stored.astype("f4")).astype(dtype), x, x, x)


@pytest.mark.parametrize("said", [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True},
                                  {"kdim": 11, "vdim": 7}, {"batch_first": True},
                                  {"kdim": 11, "vdim": 7, "add_bias_kv": True, "add_zero_attn": True}])
@pytest.mark.parametrize("double", [False, True])
def test_from_torch(said, double):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    module = torch.nn.MultiheadAttention(48, 6, **said)
    module = module.double() if double else module
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.3)
    layer = mha.MultiHeadAttention.from_torch(module)
    dtype = torch.float64 if double else torch.float32
    x, key, value = (torch.randn(s, dtype=dtype) for s in ((5, 3, 48), (4, 3, module.kdim), (4, 3, module.vdim)))
    if said.get("batch_first"):
        x, key, value = (t.transpose(0, 1) for t in (x, key, value))
    y, weights = module(x, key, value, average_attn_weights=False)
    output, trace = layer(x, key, value, return_stages=["weights"])
    scale = 1e-12 if double else 2e-5
    assert type(output) is torch.Tensor and output.dtype == dtype
    torch.testing.assert_close(output, y.detach(), rtol=scale, atol=scale)
    torch.testing.assert_close(trace["weights"], weights.detach(), rtol=scale, atol=scale)
    assert layer.totals.parameters == sum(p.numel() for p in module.parameters())
    with pytest.raises(TypeError, match="module: expected a torch.nn.MultiheadAttention, found Linear"):
        mha.MultiHeadAttention.from_torch(torch.nn.Linear(2, 2))


def test_count_of_a_module():
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear
    module = torch.nn.ModuleDict({"a": linear(3, 4), "norm": torch.nn.BatchNorm1d(4), "b": linear(3, 4)})
    module["b"].weight = module["a"].weight
    module["norm"].bias.requires_grad = False
    totals = mha.count(module).totals
    assert totals.parameters == sum(p.numel() for p in module.parameters()) and totals.aliases == 1
    assert totals.trainable == totals.parameters - 4 and totals.buffers == 9
