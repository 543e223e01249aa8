"""scaled_dot_product_attention and attention against numpy, in every option and kind of array."""
import itertools

import mha
import numpy as np
import oracle
import pytest
from mha.judge.check import Meant

R = np.random.default_rng(1)


def heads(B=2, h=4, h_kv=2, T_q=5, S=9, d=8, d_v=6, dtype="float32"):
    return [R.standard_normal(s).astype(dtype) for s in ((B, h, T_q, d), (B, h_kv, S, d), (B, h_kv, S, d_v))]


def within(actual, exact, meant, dtype, stage="output"):
    """Every element lies within the error bound of the library for this call (twice: float64 has one of its own)."""
    unit = {"float32": 2.0**-24, "float64": 2.0**-53}[dtype]
    allowed = meant.bound(unit)[stage] + meant.bound(2.0**-53)[stage]
    assert actual.dtype == dtype and actual.shape == exact.shape
    assert np.array_equal(np.isfinite(actual), np.isfinite(exact))
    finite = np.isfinite(exact)
    assert np.all(np.abs(actual[finite] - exact[finite]) <= allowed)


OPTIONS = [{}, {"is_causal": True}, {"is_causal": True, "offset": "bottom-right"}, {"window": (2, 1)}, {"scale": 0.3},
           {"softcap": 2.0}, {"sinks": R.standard_normal(4)}, {"alibi": [0.5, 0.25, 0.1, 0.0]}, {"lengths": [0, 7]},
           {"softmax_plus_one": True}, {"offset": [3, -1], "is_causal": True},
           {"norm_unweighted": True, "norm_kind": "l2", "norm_eps": 0.1}, {"query_scale": (0.7, 2, 1)},
           {"log_n_scale": 3},
           {"clip_qkv": 0.4}, {"norm_unweighted": True, "norm_kind": "l2", "norm_eps": 0.1, "clip_qkv": 0.2},
           {"position_bias": mha.Bias("buckets", R.standard_normal((8, 4)), max_distance=6)},
           {"position_bias": mha.Bias("grid", R.standard_normal((24, 4)), height=4, width=2, class_token=True)},
           {"relative": mha.Relative("log_buckets", R.standard_normal((6, 32)), None, R.standard_normal((6, 32)),
                                     max_distance=6, q_scale=0.75)},
           {"relative": mha.Relative("distance", None, None, R.standard_normal((5, 8)), reversed=True)}]


def theirs(said, T_q=5, S=9):
    """The options in the oracle's words."""
    said = dict(said)
    said.pop("enable_gqa", None)
    if "is_causal" in said:
        said["causal"] = said.pop("is_causal")
    if said.get("offset") == "bottom-right":
        said["offset"] = S - T_q
    if said.pop("norm_unweighted", False):
        said["norm"] = said.pop("norm_eps")
        assert said.pop("norm_kind") == "l2"
    if "position_bias" in said:
        said["bias"] = said.pop("position_bias")
    if "softmax_plus_one" in said:
        said["plus_one"] = said.pop("softmax_plus_one")
    return said


@pytest.mark.parametrize("dtype, path", [("float32", "fast"), ("float32", "blas"), ("float32", "exact"),
                                         ("float64", "auto")])
def test_every_option_with_every_other(dtype, path):
    for one, other in itertools.combinations(OPTIONS, 2):
        said = {**one, **other}
        q, k, v = heads(dtype=dtype)
        bias = said.get("position_bias")
        if bias and bias.rule == "grid" and type(said.get("offset")) is list:  # -1 is outside of the grid
            with pytest.raises(ValueError, match="bias_grid: expected positions from 0 to 8"):
                mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, path=path, **said)
            continue
        if said.get("offset") == "bottom-right" and "lengths" in said:
            with pytest.raises(ValueError, match="^offset: expected a number with lengths"):
                mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, path=path, **said)
            continue
        output, lse = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, path=path, return_lse=True, **said)
        exact, exact_lse, _ = oracle.attention(q, k, v, **theirs(said))
        meant = Meant(q, k, v, None, None, said)
        within(output, exact, meant, dtype)
        within(lse, exact_lse, meant, dtype, "lse")


@pytest.mark.parametrize("path", ["fast", "blas", "exact"])
def test_sigmoid(path):
    q, k, v = heads()
    said = {"normaliser": "sigmoid", "sigmoid_bias": -1.5, "is_causal": True}
    output = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, path=path, **said)
    wide_k, wide_v = (np.repeat(np.asarray(x, "f8"), q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = np.asarray(q, "f8") @ wide_k.swapaxes(2, 3) / q.shape[3]**0.5
    seen = np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None]
    exact = np.where(seen, 1 / (1 + np.exp(1.5 - scores)), 0) @ wide_v
    within(output, exact, Meant(q, k, v, None, None, said), "float32")
    with pytest.raises(ValueError, match="^return_stages: expected stages that this call has, found 'lse'"):
        mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, return_lse=True, **said)


@pytest.mark.parametrize("shape", [(9,), (5, 9), (1, 9), (5, 1), (4, 5, 9), (2, 1, 5, 9), (2, 4, 1, 9), (2, 4, 5, 9)])
@pytest.mark.parametrize("kind", ["bool", "float32", "float64", "float16"])
def test_masks(shape, kind):
    q, k, v = heads()
    mask = R.random(shape) < 0.6 if kind == "bool" else np.where(R.random(shape) < 0.2, -np.inf, R.random(shape))
    mask = mask.astype(kind)
    output = mha.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    within(output, oracle.attention(q, k, v, mask)[0], Meant(q, k, v, None, None, {"attn_mask": mask}), "float32")
    np.testing.assert_array_equal(
        output, mha.scaled_dot_product_attention(q, k, v, np.asfortranarray(mask), enable_gqa=True))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (2, 1, 2, 3)])
def test_leading_axes(lead):
    q, k, v = (R.standard_normal(lead + s).astype("f4") for s in ((5, 8), (7, 8), (7, 4)))
    mask = R.random(lead + (5, 7)) < 0.7
    output, lse = mha.scaled_dot_product_attention(q, k, v, mask, return_lse=True)
    flat = [x.reshape((-1, lead[-1] if lead else 1) + x.shape[-2:]) for x in (q, k, v, mask)]
    exact, exact_lse, _ = oracle.attention(*flat)
    assert output.shape == lead + (5, 4) and lse.shape == lead + (5,)
    meant = Meant(*flat[:3], None, None, {"attn_mask": flat[3]})
    within(output.reshape(exact.shape), exact, meant, "float32")
    within(lse.reshape(exact_lse.shape), exact_lse, meant, "float32", "lse")


def test_flash_convention():
    q, k, v = heads(T_q=3, S=7)
    swapped = [x.swapaxes(1, 2) for x in (q, k, v)]
    for said, exact in (({}, {}), ({"causal": True}, {"causal": True, "offset": 4}),
                        ({"window_size": (2, -1)}, {"window": (2, -1), "offset": 4}),
                        ({"causal": True, "window_size": (1, 0), "softcap": 3.0, "softmax_scale": 0.2},
                         {"causal": True, "window": (1, 0), "offset": 4, "softcap": 3.0, "scale": 0.2}),
                        ({"causal": True, "alibi_slopes": [1, 0.5, 0.2, 0.1]},
                         {"causal": True, "offset": 4, "alibi": [1, 0.5, 0.2, 0.1]})):
        output = mha.attention(*swapped, layout="BTHD", **said)
        within(output.swapaxes(1, 2), oracle.attention(q, k, v, **exact)[0],
               Meant(*swapped, None, "BTHD", said), "float32")
    np.testing.assert_array_equal(mha.attention(q, k, v, causal=True),
                                  mha.attention(*swapped, layout="BTHD", causal=True).swapaxes(1, 2))


DROPPED = {"dropout_p": 0.3, "dropout_keep": R.random((2, 4, 5, 9)) < 0.7}


@pytest.mark.parametrize("dtype, path", [("float32", "auto"), ("float64", "exact")])
def test_dropout_beside_every_option(dtype, path):
    """Kept weights are divided by 1 - p, the others are dropped; lse and weights are those before."""
    for said in OPTIONS:
        q, k, v = heads(dtype=dtype)
        output, lse, trace = mha.scaled_dot_product_attention(
            q, k, v, enable_gqa=True, path=path, return_lse=True, return_stages=["weights"], **DROPPED, **said)
        exact, exact_lse, weights = oracle.attention(q, k, v, **DROPPED, **theirs(said))
        meant = Meant(q, k, v, None, None, {**DROPPED, **said})
        within(output, exact, meant, dtype)
        within(lse, exact_lse, meant, dtype, "lse")
        np.testing.assert_allclose(trace["weights"], weights, rtol=0, atol=1e-5)
        mha.testing.assert_attention_close(output, q, k, v, enable_gqa=True, **DROPPED, **said)


def test_wrong_dropouts_are_named():
    q, k, v = heads()
    right = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, **DROPPED)
    for name, said in (("dropout-missing", {}), ("dropout-unscaled", {"dropout_keep": DROPPED["dropout_keep"]})):
        wrong = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, **said)
        assert name in str(mha.diagnose(wrong, q, k, v, enable_gqa=True, **DROPPED)), name
    assert mha.check(right, q, k, v, enable_gqa=True, **DROPPED).passed
    for path in ("fast", "blas"):
        with pytest.raises(mha.UnsupportedError, match="dropout_keep: expected path exact or auto"):
            mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, path=path, **DROPPED)
    with pytest.raises(ValueError, match="^dropout_p: expected 0, or `dropout_keep` with it, found .*value=torch.eye"):
        mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, dropout_p=0.3)


def test_gradients_of_dropped_weights():
    """Against differences of the output, and within the bound of the checker."""
    q, k, v = heads(B=1, h=2, h_kv=1, T_q=2, S=3, d=2, d_v=2, dtype="float64")
    keep, do = R.random((1, 2, 2, 3)) < 0.6, R.standard_normal((1, 2, 2, 2))
    said = {"layout": "BHTD", "dropout_p": 0.25, "dropout_keep": keep}
    found = mha.attention_backward(q, k, v, do, **said)
    for x, d in zip((q, k, v), found):
        for at in np.ndindex(x.shape):
            was, ends = x[at], []
            for step in (1e-6, -1e-6):
                x[at] = was + step
                ends.append((oracle.attention(q, k, v, dropout_p=0.25, dropout_keep=keep)[0] * do).sum())
            x[at] = was
            assert abs((ends[0] - ends[1]) / 2e-6 - d[at]) < 1e-7


def test_ragged():
    """Sequences without padding: each as if it stood alone, aligned bottom-right by its own lengths."""
    cu_q, cu_k = [0, 3, 3, 8], [0, 5, 6, 13]
    q, k, v = (R.standard_normal(s).astype("f4") for s in ((8, 4, 8), (13, 2, 8), (13, 2, 8)))
    output = mha.attention(q, k, v, causal=True, cu_seqlens_q=cu_q, cu_seqlens_k=np.array(cu_k, "i4"))
    for b in range(3):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        if cu_q[b] < cu_q[b + 1]:
            alone = mha.attention(q[rows], k[keys], v[keys], layout="BTHD", causal=True)
            np.testing.assert_array_equal(output[rows], alone)


def test_pattern():
    """Each part of a pattern says what a mask says; queries of padding see nothing."""
    q, k, v = heads(T_q=5, S=6)
    B, h = q.shape[:2]
    queries, keys = R.integers(0, 2, (B, 5)), R.integers(0, 2, (B, 6), dtype="i4")
    lists, blocks, padding = R.integers(-1, 6, (B, 1, 5, 3)), R.random((h, 3, 2)) < 0.6, R.random((B, 5)) < 0.3
    listed = (lists[..., None] == np.arange(6)).any(-2)
    in_block = blocks.repeat(2, 1)[:, :5].repeat(4, 2)[..., :6][None]
    for said, mask in (({"q_segments": queries, "k_segments": keys}, (queries[..., None] == keys[:, None])[:, None]),
                       ({"key_lists": lists}, listed),
                       ({"blocks": blocks, "blocks_kind": "keeps", "block_size": (2, 4)}, in_block),
                       ({"query_padding": padding, "query_padding_kind": "hides"},
                        ~padding[:, None, :, None] & np.ones(6, bool))):
        for path in ("exact", "blas", "fast"):
            found = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, path=path, **said)
            meant = mha.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True, path=path)
            np.testing.assert_array_equal(found, meant)
        mha.testing.assert_attention_close(found, q, k, v, enable_gqa=True, **said)
    with pytest.raises(ValueError, match="blocks: expected sizes of 1 or more"):
        mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, blocks=blocks, blocks_kind="keeps")
    with pytest.raises(ValueError, match="blocks: expected no sizes without a mask"):
        mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, block_size=(0, 4))
    with pytest.raises(ValueError, match="q_segments: expected I64, found F64"):
        mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, q_segments=queries * 1.0, k_segments=keys)


def test_stages_and_rotation():
    q, k, v = heads(S=5)
    output, lse, trace = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, return_lse=True, path="exact",
                                                          return_stages=["output", "weights", "k_rot"],
                                                          rope=mha.Rope("half_split"), out_dtype="float64")
    assert list(trace) == ["k_rot", "weights", "output"] and trace["output"] is output
    assert output.dtype == lse.dtype == trace["weights"].dtype == np.float64
    angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    turn = lambda x: np.concatenate([x[..., :4] * np.cos(angle) - x[..., 4:] * np.sin(angle),
                                     x[..., 4:] * np.cos(angle) + x[..., :4] * np.sin(angle)], -1)
    exact, _, weights = oracle.attention(turn(q.astype("f8")), turn(k.astype("f8")), v)
    np.testing.assert_allclose(output, exact, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(trace["weights"], weights, rtol=1e-12, atol=1e-15)
    assert "weights" in str(trace) and "&lt;table&gt;" in trace._repr_html_()


def test_same_bits_as_the_program(tmp_path):
    """The C program and the module give the same bits for the same layer and input."""
    import os
    import subprocess
    from conftest import ROOT
    program = os.path.join(os.path.dirname(os.environ["MHA_LIBRARY"]), "mha")
    x = R.standard_normal((2, 12, 48)).astype("f4")
    mha.save(tmp_path / "x.safetensors", {"x": x})
    for path in ("fast", "blas", "exact"):
        subprocess.run([program, "forward", "--weights", f"{ROOT}/weights/lookup/model.safetensors", "--input",
                        f"{tmp_path}/x.safetensors:x", "--heads", "6", "--causal", "--path", path, "--output",
                        f"{tmp_path}/y.npy", "--quiet"], check=True, capture_output=True)
        layer = mha.MultiHeadAttention.from_file(f"{ROOT}/weights/lookup/model.safetensors", n_heads=6)
        if path == "fast":
            layer.pack()
        theirs = np.load(tmp_path / "y.npy")
        np.testing.assert_array_equal(layer(x, causal=True, path=path, out_dtype=theirs.dtype), theirs)


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
def test_merged_parts(layout):
    """Keys cut into parts, one of them empty: causal by position, sinks counted once."""
    q, k, v = heads(T_q=5, S=9, h_kv=4)
    sinks, cuts = R.standard_normal(4), [0, 4, 4, 9]
    parts = [mha.scaled_dot_product_attention(
        q, k[:, :, a:b], v[:, :, a:b], causal=True, offset=2, key_offset=a, sinks=sinks, keys_only=a > 0 or b == a,
        return_lse=True) for a, b in zip(cuts, cuts[1:])]
    exact, exact_lse, _ = oracle.attention(q, k, v, causal=True, offset=2, sinks=sinks)
    if layout == "BTHD":
        parts = [(y.swapaxes(1, 2), lse) for y, lse in parts]
    output, lse = mha.merge(parts, layout=layout)
    output = output.swapaxes(1, 2) if layout == "BTHD" else output
    assert output.dtype == lse.dtype == np.float32
    np.testing.assert_allclose(output, exact, rtol=0, atol=1e-5)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5)
    for wrong, words in (([], "parts"), ([parts[0][0]], r"parts\[0\]"), ([parts[0][::-1]], r"parts\[0\]\[0\]"),
                         ([parts[0], (parts[1][0][:1], parts[1][1])], "heads|parts")):
        with pytest.raises((TypeError, ValueError), match=words):
            mha.merge(wrong, layout=layout)


def test_refusals_name_the_argument():
    q, k, v = heads()
    with pytest.raises(ValueError, match="key: expected the 4 heads of query, found 2; enable_gqa"):
        mha.scaled_dot_product_attention(q, k, v)
    for kind, words, said in (
            (ValueError, "dropout_p", {"dropout_p": 0.1}), (TypeError, "enable_gqa", {"enable_gqa": 1}),
            (ValueError, r"attn_mask: expected a shape .* found \(3, 9\)", {"attn_mask": np.ones((3, 9), bool)}),
            (TypeError, "attn_mask", {"attn_mask": np.ones((5, 9), int)}),
            (TypeError, "attn_mask", {"mask": np.ones((5, 9))}),
            (TypeError, "use window", {"wnidow": (1, 1)}), (ValueError, "window", {"window": (1,)}),
            (TypeError, "scale", {"scale": "a"}), (ValueError, "path", {"path": "quick"}),
            (TypeError, "relative: expected mha.Relative", {"relative": "distance"}),
            (ValueError, "relative.rule", {"relative": mha.Relative("distances")}),
            (ValueError, "relative.k: expected a table", {"relative": mha.Relative(k=3)}),
            (ValueError, "relative_k: expected shape", {"relative": mha.Relative(k=np.zeros((4, 3)))}),
            (ValueError, "relative_k: expected a table", {"relative": mha.Relative()}),
            (TypeError, "position_bias: expected mha.Bias", {"position_bias": np.zeros((8, 4))}),
            (ValueError, "position_bias.rule", {"position_bias": mha.Bias("bucket", np.zeros((8, 4)))}),
            (ValueError, "position_bias.table: expected shape", {"position_bias": mha.Bias(table=np.zeros((8, 3)))}),
            (TypeError, "position_bias.table", {"position_bias": mha.Bias(table=3)}),
            (ValueError, "bias_table: expected a table", {"position_bias": mha.Bias()}),
            (TypeError, "position_bias.one_way", {"position_bias": mha.Bias(table=np.zeros((8, 4)), one_way=1)}),
            (ValueError, "position_bias.height", {"position_bias": mha.Bias("grid", np.zeros((8, 4)), height=-1)}),
            (ValueError, "sinks", {"sinks": [1, 2]}), (TypeError, "lengths", {"lengths": [1.5, 2]}),
            (ValueError, "offset", {"offset": "middle"}), (ValueError, "threads", {"threads": -1}),
            *((ValueError, rf"threads: expected a whole number from 0 to 2\^31 - 1, found {n}", {"threads": n})
              for n in (2**31, 2**32, 2**32 + 1, 2**40, 2**63)),
            (ValueError, "return_stages", {"return_stages": ["weihgts"]}), (ValueError, "softcap", {"softcap": -1.0}),
            (TypeError, "out_dtype", {"out_dtype": "int8"}), (ValueError, "cu_seqlens_k", {"cu_seqlens_k": [0, 9]})):
        with pytest.raises(kind, match=words):
            mha.scaled_dot_product_attention(q, k, v, **{"enable_gqa": True, **said})
    with pytest.raises(TypeError, match="query: expected float32, float16 or bfloat16 on the float paths"):
        mha.scaled_dot_product_attention(q.astype("f8"), k, v, enable_gqa=True, path="fast")
    with pytest.raises(mha.Error) as caught:
        mha.scaled_dot_product_attention(q, k, v, enable_gqa=True, norm_eps=float("nan"))
    assert caught.value.status == "invalid" and caught.value.name == "norm_eps" and caught.value.message
