"""assert_function_close: a forward and a backward of numpy, run and checked by one call (tests/peers: torch, jax)."""
import mha
import numpy as np
import pytest
from test_backward import backward, heads

R = np.random.default_rng(5)


def forward(q, k, v):
    s = q @ np.repeat(k, q.shape[1] // k.shape[1], axis=1).swapaxes(-1, -2) * q.shape[-1]**-0.5
    p = np.exp(np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf) - s.max())
    return (p / p.sum(-1, keepdims=True) @ np.repeat(v, q.shape[1] // k.shape[1], axis=1)).astype(q.dtype)


def right(q, k, v, output, do):
    assert output.shape == do.shape and output.dtype == do.dtype == q.dtype
    return [x.astype(q.dtype) for x in backward(q, k, v, do, causal=True)]


def test_right_pairs_pass():
    for dtype in ("float32", "float64"):
        q, k, v, do = heads(dtype=dtype)
        mha.testing.assert_function_close(forward, q, k, v, backward=right, is_causal=True)
        mha.testing.assert_function_close(forward, q, k, v, backward=right, do=do, is_causal=True)
        dq = lambda *x: (right(*x)[0], None, None)
        mha.testing.assert_function_close(forward, q, k, v, backward=dq, seed=3, is_causal=True)


def test_what_is_wrong_is_said_of_both():
    q, k, v, _ = heads()
    with pytest.raises(AssertionError) as failed:
        mha.testing.assert_function_close(lambda *x: 2 * forward(*x), q, k, v, backward=right, is_causal=True)
    assert str(failed.value).startswith("forward: ") and "backward: " not in str(failed.value)
    halved = lambda *x: [y / 2 if i else y for i, y in enumerate(right(*x))]
    with pytest.raises(AssertionError, match=r"^backward: dk differs(.|\n)*explained by group-mean"):
        mha.testing.assert_function_close(forward, q, k, v, backward=halved, is_causal=True)
    with pytest.raises(AssertionError, match=r"^forward: (.|\n)*\nbackward: dq differs"):
        mha.testing.assert_function_close(forward, q, k, v, backward=right)  # neither is full attention
    mha.testing.assert_function_close(forward, q, k, v, backward=halved, is_causal=True, atol=9)


def test_what_cannot_be_run_is_refused():
    q, k, v, _ = heads()
    with pytest.raises(TypeError, match="backward: expected a function, because only torch and jax"):
        mha.testing.assert_function_close(forward, q, k, v)
    with pytest.raises(TypeError, match="backward: expected dq, dk and dv, found list of 2"):
        mha.testing.assert_function_close(forward, q, k, v, backward=lambda *x: right(*x)[:2])
    with pytest.raises(TypeError, match="backward: expected dq, dk and dv, found ndarray"):
        mha.testing.assert_function_close(forward, q, k, v, backward=lambda *x: right(*x)[0])
    with pytest.raises(TypeError, match="dq: expected a gradient, or dk, dv, also or stages"):
        mha.testing.assert_function_close(forward, q, k, v, backward=lambda *x: (None, None, None), is_causal=True)
