"""Stages of a backward: kept, against numpy and PyTorch, checked beside gradients, drawn."""
import itertools

import mha
import numpy as np
import pytest

R = np.random.default_rng(29)
STAGES = ["d_heads", "d_weights", "row_sums", "d_masked", "d_scores", "d_q_rot", "d_k_rot", "d_v"]


def heads(B=2, h=4, h_kv=2, T=5, S=7, d=8, d_v=6):
    return [R.standard_normal(s) for s in ((B, h, T, d), (B, h_kv, S, d), (B, h_kv, S, d_v), (B, h, T, d_v))]


def central(q, k, v, do, *, mask=0.0, softcap=0.0, scale=None, dlse=0.0, turn=lambda x: x):
    """The stages of (B, h, T, d) arrays by their equations, in the library's shapes; `turn`: rotates rows."""
    scale, group = q.shape[-1]**-0.5 if scale is None else scale, q.shape[1] // k.shape[1]
    q, own = turn(q), turn(k)
    k, wide = (np.repeat(x, group, axis=1) for x in (own, v))
    s = scale * q @ k.swapaxes(-1, -2)
    z = (softcap * np.tanh(s / softcap) if softcap else s) + mask
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = do @ wide.swapaxes(-1, -2)
    sums = (p * dp).sum(-1)
    dz = p * (dp - sums[..., None] + dlse)
    ds = dz * (1 - np.tanh(s / softcap)**2) if softcap else dz
    rows = lambda x: x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)
    fold = lambda x: rows(x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2))
    found = [rows(do), dp, sums, dz, ds, rows(scale * ds @ k), fold(scale * ds.swapaxes(-1, -2) @ q),
             fold(p.swapaxes(-1, -2) @ do)]
    return dict(zip(STAGES, found)), p


def turned(x):
    """Half split rotation of base 10000, by the rows' numbers."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * 10000.0**(-np.arange(half) / half)
    c, s, a, b = np.cos(angle), np.sin(angle), x[..., :half], x[..., half:]
    return np.concatenate((a * c - b * s, b * c + a * s), -1)


SAID = [dict(zip(("causal", "softcap", "rope", "dlse", "masked"), said))
        for said in itertools.product((False, True), (0.0, 1.5), (False, True), (False, True), (False, True))]


def meant(said, q, k):
    """Settings of the library, and words of `central`."""
    T, S = q.shape[2], k.shape[2]
    added = R.standard_normal((T, S)) if said["masked"] else np.zeros((T, S))
    hidden = np.triu(np.ones((T, S), bool), 1) if said["causal"] else np.zeros((T, S), bool)
    dlse = R.standard_normal((q.shape[0], q.shape[1], T)) if said["dlse"] else None
    settings = {"is_causal": said["causal"], "softcap": said["softcap"], "layout": "BHTD", "dlse": dlse}
    if said["masked"]:
        settings["attn_mask"] = added
    if said["rope"]:
        settings["rope"] = mha.Rope("half_split")
    words = {"mask": np.where(hidden, -np.inf, added), "softcap": said["softcap"],
             "turn": turned if said["rope"] else (lambda x: x), "dlse": 0.0 if dlse is None else dlse[..., None]}
    return settings, words, hidden


@pytest.mark.parametrize("said", SAID, ids=str)
def test_stages_are_those_of_the_equations(said):
    q, k, v, do = heads()
    settings, words, hidden = meant(said, q, k)
    expected, p = central(q, k, v, do, **words)
    *gradients, trace = mha.attention_backward(q, k, v, do, return_stages=STAGES[::-1], **settings)
    assert isinstance(trace, mha.Trace) and list(trace) == STAGES
    for name in STAGES:
        found = trace[name]
        assert found.dtype == np.float64 and found.shape == expected[name].shape
        if name == "d_weights":
            assert not found[..., hidden].any()
            expected[name] = np.where(hidden, 0, expected[name])
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-13, err_msg=name)
    alone = mha.attention_backward(q, k, v, do, **settings)
    assert len(gradients) == len(alone) == 3 and all(np.array_equal(x, y) for x, y in zip(gradients, alone))


def test_stages_of_a_layer():
    layer = mha.MultiHeadAttention(12, 3, dtype="float64")
    x, dy = R.standard_normal((2, 5, 12)), R.standard_normal((2, 5, 12))
    plain = layer.backward(dy, x, is_causal=True)
    found, trace = layer.backward(dy, x, is_causal=True, return_stages=["d_heads", "d_q_rot", "d_v"])
    assert plain.keys() == found.keys() and all(np.array_equal(plain[name], found[name]) for name in plain)
    np.testing.assert_allclose(trace["d_heads"], dy @ layer.weights["W_O"].T, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found["W_Q"], np.einsum("bti,btj->ij", x, trace["d_q_rot"]), rtol=0, atol=1e-13)
    np.testing.assert_allclose(found["W_V"], np.einsum("bti,btj->ij", x, trace["d_v"]), rtol=0, atol=1e-13)


def test_stages_with_cached_rows_and_pages():
    """Keys that are held elsewhere have their maps; the gradients of rows are those of the call's own."""
    q, k, v, do = (x.swapaxes(1, 2) for x in heads(B=1, T=3, S=7))
    *_, whole = mha.attention_backward(q, k, v, do, layout="BTHD", return_stages=STAGES)
    *_, trace = mha.attention_backward(q, k[:, 4:], v[:, 4:], do, past_key=k[:, :4], past_value=v[:, :4],
                                       layout="BTHD", return_stages=STAGES)
    for name in STAGES:
        expected = whole[name][:, 4:] if name in ("d_k_rot", "d_v") else whole[name]
        np.testing.assert_allclose(trace[name], expected, rtol=0, atol=1e-14, err_msg=name)
    pages = [np.concatenate((x, np.zeros_like(x[:, :1])), 1).reshape(2, 4, *x.shape[2:]) for x in (k, v)]
    *_, trace = mha.paged_attention_backward(q, *pages, np.array([[0, 1]]), np.array([7]), do, causal=False,
                                             layout="BTHD", return_stages=STAGES[:6])
    for name in STAGES[:6]:
        np.testing.assert_allclose(trace[name], whole[name], rtol=0, atol=1e-14, err_msg=name)


@pytest.mark.needs("torch")
def test_beside_autograd():
    import torch

    q, k, v, do = (torch.from_numpy(x).requires_grad_() for x in heads(h_kv=4))
    scores = q @ k.transpose(-1, -2) / 8**0.5
    weights = scores.softmax(-1)
    made = weights @ v
    dp, ds, heads_ = torch.autograd.grad((made * do.detach()).sum(), (weights, scores, made))
    *_, trace = mha.attention_backward(q.detach(), k.detach(), v.detach(), do.detach(), layout="BHTD",
                                       return_stages=("d_weights", "d_scores", "d_heads"))
    for name, theirs in (("d_weights", dp), ("d_scores", ds), ("d_heads", heads_.transpose(1, 2).flatten(2))):
        np.testing.assert_allclose(trace[name], theirs.numpy(), rtol=0, atol=1e-13)


def test_names_are_checked():
    q, k, v, do = heads()
    for wrong, text in ((["d_score"], "return_stages: expected one of d_heads, d_weights, row_sums"),
                        (["d_v", "d_v"], "return_stages: expected each stage once")):
        with pytest.raises(ValueError, match=text):
            mha.attention_backward(q, k, v, do, layout="BHTD", return_stages=wrong)
    with pytest.raises(TypeError, match="return_stages: expected a list of names of stages"):
        mha.attention_backward(q, k, v, do, layout="BHTD", return_stages="d_v")
    with pytest.raises(ValueError, match="return_stages: expected stages of this call's backward, found 'row_sums'"):
        mha.attention_backward(q, k, v, do, layout="BHTD", return_stages=["row_sums"], normaliser="sigmoid")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_wrong_stage_is_named(dtype):
    q, k, v, do = (x.astype(dtype) for x in heads())
    exact, p = central(*(x.astype("f8") for x in (q, k, v, do)))
    right = {name: x.astype(dtype) for name, x in exact.items()}
    dq, dk, dv = (x.astype(dtype) for x in mha.attention_backward(q, k, v, do, layout="BHTD"))
    mha.testing.assert_gradients_close(dq, dk, dv, q, k, v, do, stages=right)
    mha.testing.assert_gradients_close(None, None, None, q, k, v, do, stages={"row_sums": right["row_sums"]})
    for name in STAGES:
        wrong = right[name].copy()
        wrong[(0,) * wrong.ndim] += 0.01
        with pytest.raises(AssertionError) as failed:
            mha.testing.assert_gradients_close(dq, dk, dv, q, k, v, do, stages={**right, name: wrong})
        assert str(failed.value).startswith(f"{name} differs: 1 of ") and "differs" not in str(failed.value)[40:]
    without = (p * exact["d_weights"]).astype(dtype)
    ds = np.float64(without) * 8**-0.5
    dq = (ds @ np.repeat(k, 2, 1)).astype(dtype)
    stages = {"d_scores": without, "d_weights": right["d_weights"], "row_sums": right["row_sums"]}
    with pytest.raises(AssertionError, match=r"^d_scores differs(.|\n)*\ndq differs(.|\n)*explained by d-missing"):
        mha.testing.assert_gradients_close(dq, None, None, q, k, v, do, stages=stages)
    with pytest.raises(AssertionError, match=r"^d_scores differs(.|\n)*explained by d-missing") as failed:
        mha.testing.assert_gradients_close(None, None, None, q, k, v, do, stages=stages)
    assert str(failed.value).count("differs") == 1


def test_what_a_kernel_may_leave_open_is_not_checked():
    q, k, v, do = heads()
    *_, trace = mha.attention_backward(q, k, v, do, layout="BHTD", is_causal=True,
                                       return_stages=["d_weights", "d_scores"])
    eager = do @ np.repeat(v, 2, 1).swapaxes(-1, -2)  # of hidden keys, too
    for limit in ({}, {"atol": 1e-9}):
        mha.testing.assert_gradients_close(None, None, None, q, k, v, do, is_causal=True, stages={"d_weights": eager},
                                           **limit)
        for place in ((0, 0, 2, 1), (0, 0, 0, 1)):  # visible, hidden
            wrong = trace["d_scores"].copy()
            wrong[place] += 1e-6
            with pytest.raises(AssertionError, match="^d_scores differs: 1 of"):
                mha.testing.assert_gradients_close(None, None, None, q, k, v, do, is_causal=True,
                                                   stages={"d_scores": wrong}, **limit)


def test_stages_of_16_bits():
    q, k, v, do = (x.astype("f4") for x in heads())
    *_, trace = mha.attention_backward(q, k, v, do, layout="BHTD", return_stages=["d_scores"])
    half = trace["d_scores"].astype("f2")
    mha.testing.assert_gradients_close(None, None, None, q, k, v, do, stages={"d_scores": half}, dtype="float32")
    with pytest.raises(AssertionError, match="^d_scores differs"):
        mha.testing.assert_gradients_close(None, None, None, q, k, v, do, dtype="float32",
                                           stages={"d_scores": half.astype("f4")})
    mha.testing.assert_gradients_close(None, None, None, q, k, v, do, stages={"d_scores": half})


def test_stages_are_checked():
    q, k, v, do = heads()
    for wrong, text in (({"d_score": q}, "stages: expected one of d_heads"),
                        ({"row_sums": q}, r"stages\['row_sums'\]: expected shape \(2, 4, 5\), found \(2, 4, 5, 8\)")):
        with pytest.raises(ValueError, match=text):
            mha.testing.assert_gradients_close(None, None, None, q, k, v, do, stages=wrong)
    with pytest.raises(TypeError, match="stages: expected a dict"):
        mha.testing.assert_gradients_close(None, None, None, q, k, v, do, stages=[q])
    with pytest.raises(ValueError, match="sample: expected None, found "):
        mha.testing.assert_gradients_close(None, None, None, q, k, v, do, stages={"d_v": q}, sample=3)


def test_failures_are_saved_with_their_stages(tmp_path):
    q, k, v, do = heads()
    *_, trace = mha.attention_backward(q, k, v, do, layout="BHTD", return_stages=["d_weights", "row_sums", "d_scores"])
    mha.testing.save_failures(str(tmp_path))
    try:
        with pytest.raises(AssertionError, match="case saved: "):
            mha.testing.assert_gradients_close(None, None, None, q, k, v, do,
                                               stages={**trace, "d_scores": trace["d_scores"] * 2})
    finally:
        mha.testing.save_failures(None)
    verdict = mha.check(next(tmp_path.iterdir()))
    assert verdict.first == "d_scores"
    assert [row.name for row in verdict.stages] == ["d_weights", "row_sums", "d_scores"]
    assert [row.ok for row in verdict.stages] == [True, True, False]


def test_stages_are_drawn():
    q, k, v, do = heads(B=1, h=2, h_kv=2)
    *_, trace = mha.attention_backward(q, k, v, do, layout="BHTD", return_stages=["d_weights", "row_sums", "d_scores"])
    page = trace._repr_html_()
    assert page.count("aria-label") == 4 and "|d_scores|: batch row 0, head 1" in page
    assert "gradient of scores" in str(trace)
