"""attention_backward and assert_gradients_close: in every kind of array, layout and convention; what failures say."""
import mha
import numpy as np
import pytest

R = np.random.default_rng(3)


def heads(B=2, h=4, h_kv=2, T=5, S=9, d=8, d_v=6, dtype="float32"):
    return [R.standard_normal(s).astype(dtype)
            for s in ((B, h, T, d), (B, h_kv, S, d), (B, h_kv, S, d_v), (B, h, T, d_v))]


def backward(q, k, v, do, scale=None, causal=False):
    """In float64 as numpy has it, and D, for those who plant bugs."""
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
    turned = mha.attention_backward(*(x.swapaxes(1, 2) for x in (q, k, v, do)), layout="BTHD", out_dtype="float64",
                                    **said)
    for x, y, z in zip(found, turned, expected):
        np.testing.assert_allclose(x, z, rtol=0, atol=1e-13)
        assert np.array_equal(x, y.swapaxes(1, 2))


def test_defaults_are_those_of_attention():
    q, k, v, do = heads(T=5, S=9)
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
    with pytest.raises(ValueError, match="also: expected gradients that this call has, found 'sinks'"):
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
    with pytest.raises(TypeError, match="dq: expected a gradient"):
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
    with pytest.raises(AssertionError, match="no known bug explains it"):
        mha.testing.assert_gradients_close(dq + 1, dk, dv, q, k, v, do)
    with pytest.raises(AssertionError, match=r"as you asked(.|\n)*your tolerance is narrower"):
        mha.testing.assert_gradients_close(np.nextafter(dq, 9), dk, dv, q, k, v, do, atol=0)
    nan = dq.copy()
    nan[0, 1, 2, 3] = np.nan
    with pytest.raises(AssertionError, match=r"dq differs: 1 of (.|\n)*worst at \(0, 1, 2, 3\): yours nan"):
        mha.testing.assert_gradients_close(nan, dk, dv, q, k, v, do)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_failures_are_saved(tmp_path, dtype):
    q, k, v, do = heads(d_v=8)
    dq, dk, dv = (x.astype(dtype) for x in backward(q, k, v, do, causal=True))
    mha.testing.save_failures(str(tmp_path))
    try:
        with pytest.raises(AssertionError, match=r"case saved: "):
            mha.testing.assert_gradients_close(dq * 8**0.5, dk, dv, q, k, v, do, is_causal=True)
        with pytest.raises(AssertionError, match=r"case not saved: .*rope_k_positions"):
            mha.testing.assert_gradients_close(dq, dk, dv, q, k, v, do, rope=mha.Rope("half_split"), offset=3,
                                               rope_q_positions=np.tile(np.arange(5), (2, 1)),
                                               rope_k_positions=np.tile(np.arange(9), (2, 1)))
    finally:
        mha.testing.save_failures(None)
    file, = [file for file in tmp_path.iterdir() if "1." in file.name]
    verdict = mha.check(file)
    name = "expected64" if dtype == "float64" else "expected"
    assert verdict.failed and [row.name for row in verdict.stages] == ["d_query", "d_key", "d_value"]
    assert [row.ok for row in verdict.stages] == [False, True, True]
    tensors = mha.load(file)
    assert f"{name}.d_query" in tensors and tensors[f"{name}.d_query"].dtype == dtype


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


def test_another_rounding_is_told_by_what_it_rounds():
    """dO rounded to bfloat16 is within the error bound of P in bfloat16, but that is not what it gives."""
    q, k, v, do = heads(B=1, h=2, h_kv=2, T=12, S=12, d=8, d_v=8)
    rounded = ((do.view("u4") + 0x8000) & 0xFFFF0000).view("f4")
    theirs = [x.astype("f4") for x in backward(q, k, v, rounded)]
    with pytest.raises(AssertionError) as failed:
        mha.testing.assert_gradients_close(*theirs, q, k, v, do)
    assert "explained by unnamed (dO rounded to bfloat16)\n" in str(failed.value)


def test_gradients_in_blocks():
    """Sums of dV that bfloat16 holds after each block of 32 queries, as PyTorch adds them on CPUs: from 256 on
    a block of 16.9 loses 0.9, and one of 15.04 gains as much."""
    def bfloat16(x):
        return ((x.astype("f4").view("u4") + 0x8000) & 0xFFFF0000).view("f4")

    q, k, v, _ = heads(B=1, h=1, h_kv=1, T=1024, S=2, d=4, d_v=4)
    q[:], do = 0, np.tile(np.float32([1.056, 0.94, 1, -1]), (1, 1, 1024, 1))
    dv = np.zeros((1, 1, 2, 4), "f4")
    for first in range(0, 1024, 32):
        dv = bfloat16(dv + do[..., first:first + 32, :].sum(-2, keepdims=True) / 2)
    others = [x.astype("f4") for x in backward(q, k, v, do)[:2]]
    check = lambda **points: mha.testing.assert_gradients_close(*others, dv, q, k, v, do, dtype="bfloat16", **points)
    with pytest.raises(AssertionError, match=r"dv differs(.|\n)*explained by gradients-in-blocks "):
        check()
    check(precision={"block_rows": 32})
    with pytest.raises(ValueError, match="block_rows: expected `precision.gradients` with it"):
        check(precision={"block_rows": 32, "gradients": "float32"})
    with pytest.raises(ValueError, match=r"precision\['block_rows'\]: expected a whole number from 0"):
        check(precision={"block_rows": -1})


def test_bugs_have_names():
    names = [bug.name for bug in mha.testing.BUGS]
    assert len(names) == len(set(names)) > 70
    assert all(bug.help and "\n" not in bug.help for bug in mha.testing.BUGS)


def test_layers():
    """Every weight along a random direction, and the inputs, beside differences of the forward."""
    layer = mha.MultiHeadAttention(12, 4, kv_heads=2, d_k=6, d_v=5, d_kin=7, d_vin=9, d_out=8, q_norm="head",
                                   k_norm="each_head", norm_bias=True, sinks=True, gate="feature", bias_gate=True,
                                   bias_kv=True, dtype="float64", is_causal=True)
    query, key, value = (R.standard_normal(s) for s in ((2, 5, 12), (2, 6, 7), (2, 6, 9)))
    mask, do = R.standard_normal((5, 6)), R.standard_normal((2, 5, 8))
    assert layer.gradients == {} and layer.totals.derived_bytes == 0
    d = layer.backward(do, query, key, value, mask=mask, also=["mask", "W_Q"], softcap=2.0)
    assert list(d) == ["query", "key", "value", "mask", *layer.weights] and d["W_Q"].dtype == np.float64
    loss = lambda q=query, k=key, v=value, m=mask: (layer(q, k, v, path="exact", mask=m, softcap=2.0) * do).sum()

    def along(direction, moved):
        slope = sum(f * moved(s * 1e-4 * direction) for f, s in ((1, -2), (-8, -1), (8, 1), (-1, 2))) / 12e-4
        return slope, direction

    for name, moved in (("query", lambda x: loss(query + x)), ("key", lambda x: loss(k=key + x)),
                        ("value", lambda x: loss(v=value + x)), ("mask", lambda x: loss(m=mask + x))):
        slope, direction = along(R.standard_normal(d[name].shape), moved)
        assert slope == pytest.approx((d[name] * direction).sum(), rel=1e-8, abs=1e-8)
    for name in layer.weights:
        kept = layer.weights[name].copy()
        slope, direction = along(R.standard_normal(kept.shape), lambda x: (layer.set(name, kept + x), loss())[1])
        layer.set(name, kept)
        assert slope == pytest.approx((d[name] * direction).sum(), rel=1e-8, abs=1e-8)
        assert np.array_equal(layer.gradients[name], d[name])
        assert np.array_equal(layer.gradients[name].shape, layer.weights[name].shape)
    rows = {row.name: row for row in layer.parameters()}
    assert all(rows[name + ".gradient"].kind == "derived" for name in layer.weights)
    assert layer.totals.parameters == sum(x.size for x in layer.weights.values())
    with pytest.raises(ValueError, match="read-only"):
        layer.gradients["W_O"][0, 0] = 1


def test_inputs_and_axes_of_layers():
    layer = mha.MultiHeadAttention(16, 2)
    x, do = (R.standard_normal((2, 5, 16)).astype("f4") for _ in range(2))
    alone = layer.backward(do, x, causal=True)
    assert "key" not in alone and alone["query"].dtype == np.float32
    apart = layer.backward(do, x, x, x, causal=True, out_dtype="float64")
    np.testing.assert_allclose(apart["query"] + apart["key"] + apart["value"], alone["query"], rtol=0, atol=1e-6)
    turned = layer.backward(do.swapaxes(0, 1), x.swapaxes(0, 1), layout="TBE", causal=True)
    assert np.array_equal(turned["query"], alone["query"].swapaxes(0, 1))
    one = layer.backward(do[0], x[0], causal=True)
    assert np.array_equal(one["query"], alone["query"][0])
    assert not np.array_equal(one["W_V"], alone["W_V"])  # of one batch row
    lse = layer.backward(0 * do, x, dlse=np.ones((2, 2, 5)))
    assert np.abs(lse["W_Q"]).max() > 0 and np.abs(lse["W_O"]).max() == 0
    with pytest.raises(ValueError, match="also: expected gradients that this call has, found 'mask'"):
        layer.backward(do, x, also=["mask"])
    with pytest.raises(TypeError, match="also: expected a list"):
        layer.backward(do, x, also="mask")
    with pytest.raises(ValueError, match=r"do: expected shape \(2, 5, 16\)"):
        layer.backward(do[..., :3], x)


def test_gradients_of_layers_are_checked(tmp_path):
    """With norms, a rotation, latents: within the bound; twice the gradient of a weight is found, and in a case."""
    for config, said in (({"q_norm": "head", "k_norm": "head", "norm_bias": True, "rope": mha.Rope("half_split")}, {}),
                         ({"kv_heads": 2, "bias": False, "gate": "feature"}, {"is_causal": True}),
                         ({"kv_rank": 6, "d_rope": 4, "d_k": 8, "d_v": 4, "q_rank": 5,
                           "rope": mha.Rope("interleaved", dim=4, last=True)}, {"causal": True})):
        layer = mha.MultiHeadAttention(16, 4, seed=2, **config)
        x, do = (R.standard_normal((2, 5, 16)).astype("f4") for _ in range(2))
        for layout, turn in (("BTE", lambda y: y), ("TBE", lambda y: y.swapaxes(0, 1))):
            d = layer.backward(turn(do), turn(x), layout=layout, **said)
            dx, also = d.pop("query"), d
            mha.testing.assert_gradients_close(dx, None, None, turn(x), None, None, turn(do), layer=layer, also=also,
                                               layout=layout, **said)
            mha.testing.assert_gradients_close(*(layer.backward(turn(do), turn(x), turn(x), turn(x), layout=layout,
                                               **said)[name] for name in ("query", "key", "value")), turn(x), turn(x),
                                               turn(x), turn(do), layer=layer, layout=layout, **said)
            name = next(name for name in also if name.startswith("W_Q"))
            with pytest.raises(AssertionError, match=f"^d_{name} differs: "):
                mha.testing.assert_gradients_close(dx, None, None, turn(x), None, None, turn(do), layer=layer,
                                                   also={name: 2 * also[name]}, layout=layout, **said)
    mha.testing.save_failures(str(tmp_path))
    layer = mha.MultiHeadAttention(16, 4, seed=2, q_norm="head", kv_heads=2)
    d = layer.backward(do, x)
    try:
        with pytest.raises(AssertionError, match="case saved"):
            mha.testing.assert_gradients_close(2 * d["query"], None, None, x, None, None, do, layer=layer)
        with pytest.raises(ValueError, match="^dk: expected None, because key is left out"):
            mha.testing.assert_gradients_close(d["query"], d["query"], None, x, None, None, do, layer=layer)
        with pytest.raises((ValueError, mha.Error), match="precision"):
            mha.testing.assert_gradients_close(d["query"], None, None, x, None, None, do, layer=layer, dtype="bfloat16")
    finally:
        mha.testing.save_failures(None)
    file, = tmp_path.iterdir()
    assert mha.check(file).failed and not mha.diagnose(file).right


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
def test_rows_of_earlier_calls(layout, tmp_path):
    """Those of the rows in a call that has all keys."""
    q, k, v, do = heads(T=5, S=5)
    past_key, past_value = (R.standard_normal((2, 2, 4, d)).astype("f4") for d in (8, 6))
    whole = mha.attention_backward(q, np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2), do,
                                   layout="BHTD", is_causal=True, offset=4, out_dtype="float64")
    turn = (lambda x: x.swapaxes(1, 2)) if layout == "BTHD" else lambda x: x
    said = {"causal" if layout == "BTHD" else "is_causal": True, "past_key": turn(past_key),
            "past_value": turn(past_value)}
    *own, more = mha.attention_backward(*(turn(x) for x in (q, k, v, do)), layout=layout, out_dtype="float64",
                                        also=["past_key", "past_value"], **said)
    np.testing.assert_allclose(turn(own[0]), whole[0], rtol=0, atol=1e-13)
    for x, past, both in zip(own[1:], more.values(), whole[1:]):
        np.testing.assert_allclose(np.concatenate([turn(past), turn(x)], 2), both, rtol=0, atol=1e-13)
    check = lambda: mha.testing.assert_gradients_close(*own, *(turn(x) for x in (q, k, v, do)), also=more,
                                                       layout=layout, **said)
    check()
    more["past_value"][1, 1, 1, 1] *= 1.01
    mha.testing.save_failures(str(tmp_path))
    try:
        with pytest.raises(AssertionError, match=r"d_past_value.*\n.*\(1, 1, 1, 1\)"):
            check()
    finally:
        mha.testing.save_failures(None)
    file, = tmp_path.iterdir()
    assert mha.check(file).first == "d_past_value"
    with pytest.raises(ValueError, match=r"also\['past_key'\]: expected shape"):
        mha.testing.assert_gradients_close(*own, *(turn(x) for x in (q, k, v, do)), layout=layout, **said,
                                           also={"past_key": more["past_key"][..., :3]})


def test_rows_of_a_cache_of_a_layer():
    layer = mha.MultiHeadAttention(8, 2, seed=1, dtype="float64")
    x, do = R.standard_normal((2, 1, 7, 8))
    do[:, :4] = 0  # so that all comes from the last rows
    whole = layer.backward(do, x, is_causal=True)
    cache = layer.cache(1, 7, dtype="float64")
    layer(x[:, :4], cache=cache, path="exact")
    last = layer.backward(do[:, 4:], x[:, 4:], cache=cache, also=["past_key", "past_value"], is_causal=True)
    assert len(cache) == 4 and last["past_key"].shape == (1, 2, 4, 4)
    first = {w: sum(x[0, t][:, None] * last[past][0, :, t].reshape(1, 8) for t in range(4))
             for w, past in (("W_K", "past_key"), ("W_V", "past_value"))}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        np.testing.assert_allclose(last[name] + first.get(name, 0), whole[name], rtol=0, atol=1e-12)
    with pytest.raises(TypeError, match="cache: expected mha.Cache, found dict"):
        layer.backward(do, x, cache={})


def test_pages():
    """Sequences that share their first page, one after the other and in a ragged batch, by calls of whole keys."""
    q, do = R.standard_normal((2, 3, 4, 4, 8))
    pools = R.standard_normal((2, 7, 3, 2, 8))
    table, lengths = np.array([[5, 1, 0], [5, 2, 99], [3, 6, 4]]), [8, 5, 9]
    wanted = [np.zeros(q.shape), *np.zeros(pools.shape)]
    for b, length in enumerate(lengths):
        rows = [pool[table[b][:-(-length // 3)]].reshape(1, -1, 2, 8)[:, :length] for pool in pools]
        dq, *d = mha.attention_backward(q[b:b + 1], *rows, do[b:b + 1], layout="BTHD", causal=True,
                                        window_size=(4, -1))
        wanted[0][b] = dq[0]
        for x, to in zip(d, wanted[1:]):
            for j in range(length):
                to[table[b][j // 3], j % 3] += x[0, j]
    found = mha.paged_attention_backward(q, *pools, table, lengths, do, layout="BTHD", window_size=(4, -1))
    for x, y in zip(found, wanted):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)
    packed = mha.paged_attention_backward(q.reshape(1, 12, 4, 8), *pools, table, lengths, do.reshape(1, 12, 4, 8),
                                          layout="BTHD", window_size=(4, -1), cu_seqlens_q=[0, 4, 8, 12])
    assert all(np.array_equal(x.ravel(), y.ravel()) for x, y in zip(packed, found))
    *_, more = mha.paged_attention_backward(q, *pools, table, lengths, do, layout="BTHD", sinks=np.zeros(4),
                                            also=["sinks"], dlse=np.ones((3, 4, 4)), out_dtype="float32")
    assert more["sinks"].dtype == np.float32
    with pytest.raises(ValueError, match="expected gradients that this call has, found 'key"):
        mha.paged_attention_backward(q, *pools, table, lengths, do, layout="BTHD", also=["key"])
    with pytest.raises(ValueError, match="do: expected shape"):
        mha.paged_attention_backward(q, *pools, table, lengths, do[:2], layout="BTHD")


def test_power_of_a_test_of_gradients():
    q, k, v, do = heads(T=9, S=9, d_v=8)
    tight = mha.testing.gradient_power(q, k, v, do, is_causal=True)
    assert not tight.accepted and "causal-missing" in tight.rejected
    assert "softcap-slope-missing" not in tight.column("bug")
    assert str(tight).count("bugs of a backward that this input shows are rejected") == 1
    blind = mha.testing.gradient_power(q, k, v, do, is_causal=True, cosine=0.999, compared=["query"])
    assert {"scale-missing", "dq-twice"} <= set(blind.accepted) and "dk-zero" in blind.same
    assert "output-in-bfloat16" in blind.roundings
    half = mha.testing.gradient_power(q, k, v, do, is_causal=True, dtype="bfloat16")
    assert not half.roundings
    layer = mha.MultiHeadAttention(8, 2, seed=1)
    x = R.standard_normal((1, 5, 8))
    of_layer = mha.testing.gradient_power(x, None, None, x, layer=layer, compared=["query", "W_Q"])
    assert "scale-missing-dq" in of_layer.rejected
    with pytest.raises(ValueError, match="compared: expected gradients that this call has, found 'mask'"):
        mha.testing.gradient_power(q, k, v, do, compared=["mask"])
    with pytest.raises(TypeError, match="compared: expected a list"):
        mha.testing.gradient_power(q, k, v, do, compared="query")
    with pytest.raises(ValueError, match="nmse: expected one criterion"):
        mha.testing.gradient_power(q, k, v, do, nmse=1, atol=1)
