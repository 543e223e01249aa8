"""In place of a kernel project's attention_ref: one assertion with derived tolerances, in flash-attn's conventions.

    pytest replace_attention_ref.py
"""
import mha
import numpy as np
import pytest


def kernel(q, k, v, causal=False, window_size=(-1, -1), softcap=0.0):
    """A substitute for the kernel under test; (batch, T, heads, width), aligned bottom-right."""
    return mha.attention(q, k, v, layout="BTHD", causal=causal, window_size=window_size, softcap=softcap)


@pytest.mark.parametrize("T_q, S", [(1, 1), (3, 17), (64, 64), (33, 129)])
@pytest.mark.parametrize("said", [{}, {"causal": True}, {"window_size": (5, 0)}, {"causal": True, "softcap": 3.0}])
def test_kernel(T_q, S, said):
    r = np.random.default_rng(T_q)
    q = r.standard_normal((2, T_q, 6, 32)).astype("float32")
    k, v = (r.standard_normal((2, S, 2, 32)).astype("float32") for _ in range(2))
    mha.testing.assert_attention_close(kernel(q, k, v, **said), q, k, v, layout="BTHD", **said)


def test_would_notice():
    """A test says how much it is worth: no wrong attention passes the derived tolerance on these inputs."""
    r = np.random.default_rng(0)
    q, k, v = (4 * r.standard_normal((2, n, 2, 8)).astype("float32") for n in (5, 9, 9))
    power = mha.testing.power(q, k, v, layout="BTHD", causal=True)
    assert not power.accepted, power
