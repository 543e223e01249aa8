"""Weights of a call of given heads: norms of q and k, their biases, and one more key row, by name in each function."""
import mha
import numpy as np
import pytest

R = np.random.default_rng(5)
Q, K, V, DO = (R.standard_normal(shape) for shape in ((2, 4, 5, 8), (2, 2, 9, 8), (2, 2, 9, 6), (2, 4, 5, 6)))
NORMS = {"q_norm": R.uniform(0.5, 1.5, 8), "k_norm": R.uniform(0.5, 1.5, (2, 8)), "norm_eps": 1e-3}
SAID = {"is_causal": True, "enable_gqa": True, "layout": "BHTD"}


def normed(q=Q, k=K, q_norm=None, k_norm=None, norm_eps=0.0):
    """RMS norms of each head."""
    def rms(x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + norm_eps)

    return rms(q) * q_norm, rms(k) * k_norm[:, None]


OUTPUT = mha.scaled_dot_product_attention(*normed(**NORMS), V, is_causal=True, enable_gqa=True)


def test_norms_by_name_are_norms_of_the_inputs():
    output = mha.scaled_dot_product_attention(Q, K, V, is_causal=True, enable_gqa=True, **NORMS)
    assert np.abs(output - OUTPUT).max() < 1e-13
    q, k, v, right = (x.swapaxes(1, 2) for x in (Q, K, V, OUTPUT))
    assert np.abs(mha.attention(q, k, v, layout="BTHD", is_causal=True, offset=0, **NORMS) - right).max() < 1e-13


def test_norms_are_checked_and_their_absence_is_named():
    assert mha.check(OUTPUT, Q, K, V, **SAID, **NORMS).passed
    assert mha.diagnose(OUTPUT, Q, K, V, **SAID, **NORMS).right
    mha.testing.assert_attention_close(OUTPUT, Q, K, V, **SAID, **NORMS)
    plain = mha.scaled_dot_product_attention(Q, normed(**NORMS)[1], V, is_causal=True, enable_gqa=True)
    assert mha.diagnose(plain, Q, K, V, **SAID, **NORMS).names == ["norm-q-missing"]


@pytest.mark.parametrize("T", [9, 700])
def test_gradients_go_through_norms(T):
    """The derivative of the sum of output * do in one direction, and those of a call of more rows than are checked."""
    q, k, v, do = (R.standard_normal((1, heads, T, 8)) for heads in (4, 2, 2, 4))
    *found, more = mha.attention_backward(q, k, v, do, also=["q_norm", "k_norm"], **SAID, **NORMS)
    assert more["q_norm"].shape == (8,) and more["k_norm"].shape == (2, 8)
    for sample in (0, 6):
        mha.testing.assert_gradients_close(*found, q, k, v, do, sample=sample, **SAID, **NORMS)
    step = R.standard_normal(8)

    def at(x):
        said = {**NORMS, "q_norm": NORMS["q_norm"] + x * step}
        return (mha.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True, **said) * do).sum()

    assert (at(1e-5) - at(-1e-5)) / 2e-5 == pytest.approx(more["q_norm"] @ step, rel=1e-7, abs=1e-6)
    with pytest.raises(AssertionError, match="^dq differs"):
        mha.testing.assert_gradients_close(found[0] * 1.01, *found[1:], q, k, v, do, sample=6, **SAID, **NORMS)


def test_one_more_key():
    row = {"bias_k": R.standard_normal(16), "bias_v": R.standard_normal(12)}
    more = [np.concatenate([x, np.broadcast_to(row[name].reshape(1, 2, 1, -1), (2, 2, 1, x.shape[3]))], 2)
            for x, name in ((K, "bias_k"), (V, "bias_v"))]
    right = mha.scaled_dot_product_attention(Q, *more, enable_gqa=True)
    assert np.abs(mha.scaled_dot_product_attention(Q, K, V, enable_gqa=True, **row) - right).max() < 1e-13
    assert mha.check(right, Q, K, V, enable_gqa=True, **row).passed


def test_what_is_refused_by_name():
    for wrong in ({"q_norm": np.ones(7)}, {"k_norm": np.ones((4, 8))}, {"bias_k": np.ones(16)}, {"q_norm": "rms"},
                  {"q_norm_bias": np.ones(8)}, {"q_norm": np.ones((1,) * 9)}):
        name = next(iter(wrong))
        for function in (mha.scaled_dot_product_attention, lambda *x, **said: mha.check(OUTPUT, *x, **said)):
            with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
                function(Q, K, V, enable_gqa=True, **wrong)
    rows = {"q_norm": np.ones(32), "k_norm": np.ones(16)}
    q, k, v, do = (R.standard_normal((1, heads, 700, 8)) for heads in (4, 2, 2, 4))
    found = mha.attention_backward(q, k, v, do, **SAID, **rows)
    with pytest.raises(ValueError, match="^sample: expected None, found \\d+; q_norm"):
        mha.testing.assert_gradients_close(*found, q, k, v, do, sample=8, **SAID, **rows)


def test_a_call_with_a_norm_is_made_small():
    def kernel(q, k, v, q_norm=None, **said):
        return mha.scaled_dot_product_attention(q, k, v, **said)

    report = mha.conform(kernel, only="qk-norm.b2")
    small = report.reduce(report.failed[0].case)
    assert small.names == ("norm-q-missing",) and small.q.size == 2, small
    with pytest.raises(AssertionError, match="output differs"):
        exec(small.script, {"kernel": kernel})
