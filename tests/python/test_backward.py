"""attention_backward and assert_gradients_close: in every kind of array, layout and dialect; what failures say."""
import mha
import numpy as np
import pytest

R = np.random.default_rng(3)


def heads(B=2, h=4, h_kv=2, T=5, S=9, d=8, d_v=6, dtype="float32"):
    return [R.standard_normal(s).astype(dtype)
            for s in ((B, h, T, d), (B, h_kv, S, d), (B, h_kv, S, d_v), (B, h, T, d_v))]


def backward(q, k, v, do, scale=None, causal=False):
    """In float64 as numpy has it, and D, for those who plant mistakes."""
    q, k, v, do = (x.astype("f8") for x in (q, k, v, do))
    scale = q.shape[-1]**-0.5 if scale is None else scale
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    s = scale * q @ k.swapaxes(-1, -2)
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = do @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    fold = lambda x: x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)
    return scale * ds @ k, fold(scale * ds.swapaxes(-1, -2) @ q), fold(p.swapaxes(-1, -2) @ do)


@pytest.mark.parametrize("said", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_against_numpy(said):
    q, k, v, do = heads()
    expected = backward(q, k, v, do, said.get("scale"), said.get("is_causal", False))
    found = mha.attention_backward(q, k, v, do, layout="BHTD", out_dtype="float64", **said)
    turned = mha.attention_backward(*(x.swapaxes(1, 2) for x in (q, k, v, do)), out_dtype="float64", **said)
    for x, y, z in zip(found, turned, expected):
        np.testing.assert_allclose(x, z, rtol=0, atol=1e-13)
        assert np.array_equal(x, y.swapaxes(1, 2))


def test_defaults_are_those_of_attention():
    q, k, v, do = (x.swapaxes(1, 2) for x in heads(T=5, S=9))
    causal = mha.attention_backward(q, k, v, do, causal=True, softmax_scale=0.25)
    assert all(x.dtype == np.float32 for x in causal)
    later = mha.attention_backward(q, k, v, do, is_causal=True, scale=0.25)
    assert not np.array_equal(causal[0], later[0])  # bottom-right, and top-left
    same = mha.attention_backward(q, k, v, do, is_causal=True, offset="bottom-right", scale=0.25)
    assert np.array_equal(causal[0], same[0])


def test_further_gradients():
    q, k, v, do = heads()
    mask = R.standard_normal((5, 9))
    *_, more = mha.attention_backward(q, k, v, do, layout="BHTD", attn_mask=mask, sinks=np.zeros(4),
                                      also=["mask", "sinks"], dlse=np.ones((2, 4, 5)))
    assert more["mask"].shape == (5, 9) and more["sinks"].shape == (4,)
    with pytest.raises(ValueError, match="also: this call has no gradient of sinks"):
        mha.attention_backward(q, k, v, do, layout="BHTD", also=["sinks"])
    with pytest.raises(TypeError, match="also: expected a list"):
        mha.attention_backward(q, k, v, do, layout="BHTD", also="sinks")
    with pytest.raises(ValueError, match="do: expected shape"):
        mha.attention_backward(q, k, v, do[..., :3], layout="BHTD")
    with pytest.raises(ValueError, match="d_lse: expected shape"):
        mha.attention_backward(q, k, v, do, layout="BHTD", dlse=np.ones((2, 4, 6)))


def test_right_gradients_pass():
    q, k, v, do = heads()
    for dtype in ("float32", "float64"):
        right = [x.astype(dtype) for x in backward(q, k, v, do, causal=True)]
        mha.testing.assert_gradients_close(*right, q, k, v, do, is_causal=True)
    mha.testing.assert_gradients_close(right[0], None, None, q, k, v, do, is_causal=True)
    with pytest.raises(TypeError, match="dq: a gradient is needed"):
        mha.testing.assert_gradients_close(None, None, None, q, k, v, do)


def test_wrong_gradients_are_explained():
    q, k, v, do = heads(d_v=8)
    dq, dk, dv = (x.astype("f4") for x in backward(q, k, v, do))
    with pytest.raises(AssertionError) as failed:
        mha.testing.assert_gradients_close(dq * 8**0.5, dk, dv, q, k, v, do)
    message = str(failed.value)
    assert message.startswith("dq differs: ") and "\n  worst at (" in message and "dk" not in message.split("\n")[0]
    assert "what rounding in float32 may cost" in message
    assert "explained by scale-missing-dq (dQ lacks the scale, dK has it)" in message
    halves = [x / 2 for x in (dk, dv)]
    with pytest.raises(AssertionError, match=r"dk differs(.|\n)*dv differs(.|\n)*explained by group-mean"):
        mha.testing.assert_gradients_close(dq, *halves, q, k, v, do)
    with pytest.raises(AssertionError, match="explained by dk-dv-exchanged"):
        mha.testing.assert_gradients_close(dq, dv, dk, q, k, v, do)
    with pytest.raises(AssertionError, match="no named mistake explains it"):
        mha.testing.assert_gradients_close(dq + 1, dk, dv, q, k, v, do)
    with pytest.raises(AssertionError, match=r"as you asked(.|\n)*your tolerance is narrower"):
        mha.testing.assert_gradients_close(np.nextafter(dq, 9), dk, dv, q, k, v, do, atol=0)
    nan = dq.copy()
    nan[0, 1, 2, 3] = np.nan
    with pytest.raises(AssertionError, match=r"dq differs: 1 of (.|\n)*worst at \(0, 1, 2, 3\): yours nan"):
        mha.testing.assert_gradients_close(nan, dk, dv, q, k, v, do)


def test_points_of_a_precision():
    """O rounded to bfloat16 before D is within the precision of a fused kernel of that type, and not of float32."""
    q, k, v, do = heads(B=1, h=1, h_kv=1, T=6, S=6, d=4, d_v=4)
    exact = backward(q, k, v, do)
    s = q.astype("f8") @ k.swapaxes(-1, -2) / 2
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    o = (p @ v).astype("f4")
    rounded = ((o.view("u4") + 0x8000) & 0xFFFF0000).view("f4")
    ds = p * (do @ v.swapaxes(-1, -2) - (do * rounded).sum(-1, keepdims=True))
    theirs = (ds @ k / 2).astype("f4"), (ds.swapaxes(-1, -2) @ q / 2).astype("f4"), exact[2].astype("f4")
    with pytest.raises(AssertionError, match=r"explained by output-in-bfloat16 \(O in D = rowsum\(dO O\) is rounded"):
        mha.testing.assert_gradients_close(*theirs, q, k, v, do)
    mha.testing.assert_gradients_close(*theirs, q, k, v, do, precision={"output": "bfloat16"})
    mha.testing.assert_gradients_close(*theirs, q, k, v, do, dtype="bfloat16")
    with pytest.raises(ValueError, match="precision"):
        mha.testing.assert_gradients_close(*theirs, q, k, v, do, precision={"rows": "bfloat16"})
    with pytest.raises(TypeError, match="expected a dict"):
        mha.testing.assert_gradients_close(*theirs, q, k, v, do, precision="bfloat16")


def test_mistakes_have_names():
    names = [mistake.name for mistake in mha.testing.MISTAKES]
    assert len(names) == len(set(names)) > 70
    assert all(mistake.help and "\n" not in mistake.help for mistake in mha.testing.MISTAKES)
