"""The checker: planted bugs are named, right results pass, messages say what they promise."""
import json
import os
import re
import subprocess
import sys

import kernels
import mha
import numpy as np
import oracle
import pytest
from conftest import ROOT
from mha import testing

R = np.random.default_rng(6)


def heads(B=2, h=4, h_kv=4, T_q=5, S=9, d=8, d_v=8, dtype="float32"):
    return [R.standard_normal(s).astype(dtype) for s in ((B, h, T_q, d), (B, h_kv, S, d), (B, h_kv, S, d_v))]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    testing.save_failures(str(tmp_path / "failures"))
    yield tmp_path / "failures"
    testing.save_failures(None)


def failure(*arguments, **said):
    with pytest.raises(AssertionError) as caught:
        testing.assert_attention_close(*arguments, **said)
    return str(caught.value)


# A wrong computation in the oracle's words, and its name; the call is meant to be causal, bottom-right.
BUGS = [({"causal": True, "offset": 0}, "causal-top-left"), ({"causal": True, "offset": 3}, "causal-strict"),
            ({}, "causal-missing"), ({"causal": True, "offset": 4, "scale": 1.0}, "scale-missing"),
            ({"causal": True, "offset": 4, "plus_one": True}, "plus-one-added")]


@pytest.mark.parametrize("bug, name", BUGS)
@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
def test_planted_bugs_are_named(bug, name, layout):
    q, k, v = heads()
    wrong, right = (oracle.attention(q, k, v, **said)[0].astype("f4") for said in (bug, BUGS_RIGHT))
    inputs, said = [q, k, v], {"is_causal": True, "offset": "bottom-right"}
    if layout == "BTHD":
        inputs, said = [x.swapaxes(1, 2) for x in inputs], {"causal": True}
        wrong, right = wrong.swapaxes(1, 2), right.swapaxes(1, 2)
    found = mha.diagnose(wrong, *inputs, layout=layout, **said)
    assert name in found.names and not found.right and name in str(found) and name in found._repr_html_()
    assert mha.diagnose(right, *inputs, layout=layout, **said).right
    assert mha.check(right, *inputs, layout=layout, **said).passed
    verdict = mha.check(wrong, *inputs, layout=layout, **said)
    assert verdict.outcome == "failed" and verdict.first == "output" and "FIRST" in str(verdict)
    testing.assert_attention_close(right, *inputs, layout=layout, **said)
    assert name in failure(wrong, *inputs, layout=layout, **said)


BUGS_RIGHT = {"causal": True, "offset": 4}


def test_sequences_of_a_ragged_batch():
    q, k, v = (R.standard_normal(s).astype("f4") for s in ((8, 4, 8), (13, 2, 8), (13, 2, 8)))
    ragged = {"cu_seqlens_q": [0, 3, 3, 8], "cu_seqlens_k": [0, 5, 6, 13]}
    found = mha.diagnose(mha.attention(q, k, v, **ragged), q, k, v, layout="BTHD", causal=True, **ragged)
    assert found.names == ["causal-missing"]
    assert mha.diagnose(mha.attention(q, k, v, **ragged), q, k, v, layout="BTHD", **ragged).right


def test_what_nothing_explains_is_told_by_its_structure():
    q, k, v = heads()
    wrong = oracle.attention(q, k, v, **BUGS_RIGHT)[0].astype("f4")
    wrong[:, 2] += R.standard_normal(wrong[:, 2].shape)
    found = mha.diagnose(wrong, q, k, v, is_causal=True, offset="bottom-right")
    assert found.clues == ("only head 2 differs",) and not found.names
    assert "Compared with the call without a bug, only head 2 differs." in str(found)


def test_the_program_says_the_same_sentence(tmp_path):
    """Answers of each kind: right, off by a precision, reproduced, near, closest, none, a limit."""
    q, k, v = heads(B=1)
    right, causal = (oracle.attention(q, k, v, **said)[0].astype("f4") for said in ({}, BUGS_RIGHT))
    near = causal + np.float32(0.1) * R.standard_normal(q.shape).astype("f4")
    kinds = {"right": right, "off by": right.astype("f2").astype("f4"), "your numbers equal": causal,
             "the closest is": near, "explains most": R.standard_normal(q.shape).astype("f4")}
    path, seen = tmp_path / "case.safetensors", set()
    for words, actual in kinds.items():
        mha.save(path, {"query": q, "key": k, "value": v, "output": actual}, {"layout": "BHTD"})
        for limit in ("60", "0"):
            run = subprocess.run([os.environ["MHA_PROGRAM"], "diagnose", path, "--json", "--time-limit", limit],
                                 capture_output=True, text=True)
            found = mha.diagnose(actual, q, k, v, time_limit=float(limit))
            assert json.loads(run.stdout)["sentence"] == found.sentence
            seen.update(x for x in (*kinds, "time limit 0 s") if x in found.sentence)
            assert limit == "0" or words in found.sentence, found
    assert len(seen) == 6


def test_limits_are_obeyed_and_named():
    q, k, v = heads()
    noise = R.standard_normal(q.shape)
    whole = mha.diagnose(noise, q, k, v, time_limit=np.inf, memory_limit=np.inf)
    assert not whole.limit and whole.untried == 0
    for name, unit in (("time", "s"), ("memory", "GB")):
        found = mha.diagnose(noise, q, k, v, **{"time_limit": np.inf, "memory_limit": np.inf, f"{name}_limit": 0})
        said = f"not all known bugs were tried: 1 of {1 + found.untried} ({name} limit 0 {unit})"
        assert found.tried == 1 and found.untried > 0 and found.limit == said and said in found.sentence, found
        for most in 10 ** R.uniform(-8, -2, 12):
            limits = {"time_limit": np.inf, "memory_limit": np.inf, f"{name}_limit": most}
            found = mha.diagnose(noise, q, k, v, **limits)
            assert found.tried >= 1 and (found.limit or not found.untried), found
            assert not found.limit or f"({name} limit " in found.limit, found


def test_message(folder):
    """How many, the worst with its index, both values, what was allowed, the name, the place, the saved case."""
    q, k, v = heads()
    y = oracle.attention(q, k, v)[0].astype("f4")
    exact = y[1, 2, 3, 4]
    y[1, 2, 3, 4] += 0.5
    y[1, 2, 4, 0] -= 0.25
    text = failure(y, q, k, v)
    assert "output differs: 2 of 320 elements" in text and "worst at (1, 2, 3, 4)" in text
    assert f"yours {y[1, 2, 3, 4]:.9g}" in text and f"exact {exact:.5g}"[:9] in text and "off by 0.5" in text
    assert "first that differs: batch row 1, head 2, query 3" in text
    assert "no known bug gives your numbers" in text
    path = re.search(r"case saved: \S*mha check (\S+);", text)[1]
    assert path.startswith(str(folder))
    program = [f"{__import__('os').environ['MHA_LIBRARY'].rsplit('/', 1)[0]}/mha"]
    run = subprocess.run(program + ["check", path], capture_output=True, text=True)
    assert run.returncode == 1 and "2 of 320" in run.stdout
    assert str(mha.check(path)).startswith("stage") and not mha.diagnose(path).right
    y[...] = np.nan
    assert "NaN: yours 320, exact 0" in failure(y, q, k, v)


def test_what_cannot_be_checked_has_neither_passed_nor_failed(tmp_path):
    """Its own word, its own exit code; beside cases that pass, too, but not beside one that fails."""
    q, k, v = heads()
    y = oracle.attention(q, k, v)[0].astype("f4")
    tensors = {"query": q, "key": k, "value": v}
    program = [f"{__import__('os').environ['MHA_LIBRARY'].rsplit('/', 1)[0]}/mha", "check"]
    paths = {name: str(tmp_path / f"{name}.safetensors") for name in ("passed", "failed", "skipped")}
    for name, path in paths.items():
        said = {"layout": "BHTD", **({"future": "1"} if name == "skipped" else {})}
        mha.save(path, {**tensors, "output": y + (name == "failed")}, said)
        verdict = mha.check(path)
        assert (verdict.passed, verdict.failed, verdict.skipped) == tuple(name == n for n in paths)
        assert verdict.outcome == name and ("future" in verdict.reason) == (name == "skipped")
    for names, code in (("passed", 0), ("failed", 1), ("skipped", 4), ("passed skipped", 4), ("skipped failed", 1),
                        ("passed failed", 1), ("passed skipped failed", 1)):
        run = subprocess.run(program + [paths[n] for n in names.split()], capture_output=True, text=True)
        counts = ", ".join(f"{names.split().count(n)} {n}" for n in paths)
        assert run.returncode == code and counts in run.stdout, (names, run)


def test_tolerances():
    """Derived: a rounding more or less passes, a hundredth does not. Asked for: exactly what was asked for."""
    for dtype, near in (("float32", 2.0**-23), ("float64", 2.0**-52), ("float16", 2.0**-10)):
        q, k, v = heads(dtype=dtype)
        y = oracle.attention(q, k, v)[0].astype(dtype)
        testing.assert_attention_close((y * (1 + near)).astype(dtype), q, k, v)
        failure((y + (0.01 if dtype != "float16" else 1)).astype(dtype), q, k, v)
    q, k, v = heads()
    y = oracle.attention(q, k, v)[0].astype("f4")
    testing.assert_attention_close(y + np.float32(0.5), q, k, v, atol=0.51)
    failure(y + np.float32(0.5), q, k, v, atol=0.49)
    testing.assert_attention_close(y * np.float32(1.5), q, k, v, rtol=0.51)
    failure(y * np.float32(1.5), q, k, v, rtol=0.49)
    coarse = oracle.attention(*(x.astype("f2") for x in (q, k, v)))[0].astype("f4")
    failure(coarse, q, k, v)
    testing.assert_attention_close(coarse, q, k, v, dtype="float16")
    y = oracle.attention(q, k, v)[0]
    for stored, unit in (("float16", 2.0**-11), ("float32", 2.0**-24)):  # computed wide, stored once in a shorter type
        testing.assert_attention_close(y.astype(stored), q, k, v, dtype="float64" if stored == "float32" else "float32")
        failure((y * (1 + 2.5 * unit)).astype(stored), q, k, v, dtype="float64")
    for said in ({"rtol": -1}, {"atol": float("nan")}):
        with pytest.raises(ValueError, match="tol: expected"):
            testing.assert_attention_close(y, q, k, v, **said)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_right_results_of_every_setting_pass(dtype):
    h = 4
    for said in ({"window": (2, 1)}, {"softcap": 2.0}, {"sinks": R.standard_normal(h)}, {"lengths": [0, 7]},
                 {"alibi": [1, 0.5, 0.2, 0]}, {"attn_mask": R.random((5, 9)) < 0.5}, {"is_causal": True}):
        q, k, v = heads(h_kv=2, dtype=dtype)
        ours = {"mask": said["attn_mask"]} if "attn_mask" in said else {"causal": True} if "is_causal" in said else said
        y = oracle.attention(q, k, v, **ours)[0].astype(dtype)
        testing.assert_attention_close(y, q, k, v, **said)
        failure(-y, q, k, v, **said)


def test_stages():
    q, k, v = heads()
    y, lse, weights = oracle.attention(q, k, v)
    stages = {"weights": weights.astype("f4"), "lse": lse.astype("f4")}
    testing.assert_attention_close(y.astype("f4"), q, k, v, stages=stages)
    testing.assert_attention_close(None, q, k, v, stages=stages)
    stages["lse"] = stages["lse"] + 1
    assert failure(y.astype("f4"), q, k, v, stages=stages).startswith("lse differs: 40 of 40 elements")
    verdict = mha.check(y.astype("f4"), q, k, v, stages=stages)
    assert verdict.first == "lse" and {s.name for s in verdict.stages if s.ok} == {"output", "weights"}
    for kind, words, bad in ((ValueError, "stages", {"wieghts": weights}), (TypeError, "stages", [1]),
                             (TypeError, "stages", {"lse": "text"}), (ValueError, "lse", {"lse": weights})):
        with pytest.raises(kind, match=words):
            mha.check(y, q, k, v, stages=bad)


def test_layer():
    layer = mha.MultiHeadAttention(48, 6, causal=True)
    x = R.standard_normal((2, 7, 48)).astype("f4")
    y, trace = layer(x, return_stages=["heads", "weights"])
    testing.assert_attention_close(y, x, layer=layer, stages=trace)
    testing.assert_attention_close(y.swapaxes(0, 1), x.swapaxes(0, 1), layer=layer, layout="TBE")
    assert "causal-missing" in mha.diagnose(layer(x, causal=False), x, layer=layer).names
    text = failure(layer(x, causal=False), x, layer=layer)
    assert "causal-missing" in text and "batch row 0, query 0" in text
    unmerged = trace["heads"].reshape(2, 7, 6, 8).swapaxes(1, 2).reshape(2, 7, 48)
    found = mha.diagnose(unmerged @ layer.weights["W_O"] + layer.weights["b_O"], x, layer=layer)
    assert found.names == ["merge-untransposed"]


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("d_v", [8, 5])
def test_past(layout, dtype, d_v, folder):
    """Keys and values of earlier calls: queries come after them, and a kernel that forgets this has its name."""
    q, k, v = heads(h_kv=2, T_q=3, S=7, d_v=d_v, dtype=dtype)
    wrong, right = (oracle.attention(q, k, v, causal=True, offset=n)[0].astype(dtype) for n in (0, 4))
    lost = oracle.attention(q, k[:, :, 4:], v[:, :, 4:], causal=True)[0].astype(dtype)
    mask = R.random((3, 7)) < 0.6
    masked = oracle.attention(q, k, v, mask=mask)[0].astype(dtype)
    turned = [x.swapaxes(1, 2) if layout == "BTHD" else x for x in (q, k[:, :, 4:], v[:, :, 4:], k[:, :, :4],
                                                                    v[:, :, :4], wrong, right, lost, masked)]
    inputs, (wrong, right, lost, masked) = turned[:3], turned[5:]
    past = {"past_key": turned[3], "past_value": turned[4]}
    said = {"layout": layout, **past, **({"causal": True} if layout == "BTHD" else {"is_causal": True})}
    testing.assert_attention_close(right, *inputs, **said)
    testing.assert_attention_close(right, *inputs, **{**said, "offset": 4})
    assert mha.diagnose(right, *inputs, **said).right and mha.check(right, *inputs, **said).passed
    found = mha.diagnose(wrong, *inputs, **said)
    assert "causal-top-left" in found.names and "cache-ignored" in mha.diagnose(lost, *inputs, **said).names
    assert mha.check(wrong, *inputs, **said).first == "output"
    assert "causal-top-left" in failure(wrong, *inputs, **said)
    path, = folder.iterdir()  # the saved case has the rows, too
    assert "causal-top-left" in mha.diagnose(path).names
    assert "causal-top-left" in testing.power(*inputs, **said).rejected
    if layout == "BHTD":
        testing.assert_attention_close(masked, *inputs, attn_mask=mask, **past)
        assert failure(right, *inputs, attn_mask=mask, **past)
    for bad, words in (({"past_key": None}, "past_key: expected"),
                       ({"past_value": past["past_value"][:1]}, "past_value"),
                       ({"past_key": past["past_key"][0]}, "past_key: expected the 4 axes"),
                       ({"past_key": past["past_key"][..., :3]}, "past_key: expected 2 batch rows, 2 key/value heads")):
        with pytest.raises((TypeError, ValueError), match=words):
            mha.check(right, *inputs, **{**said, **bad})


def test_ragged_batches(folder):
    """Sequences without padding: a kernel that takes them for one has its name, in the saved case, too."""
    q, k, v = (x[0].swapaxes(0, 1) for x in heads(B=1, T_q=12, S=12))
    cu = [0, 5, 5, 12]
    parts = [oracle.attention(*(x[None, a:b].swapaxes(1, 2) for x in (q, k, v)), causal=True)[0][0].swapaxes(0, 1)
             for a, b in zip(cu, cu[1:]) if b > a]
    right = np.concatenate(parts).astype("f4")
    joined = oracle.attention(*(x[None].swapaxes(1, 2) for x in (q, k, v)), causal=True)[0][0].swapaxes(0, 1)
    said = {"layout": "BTHD", "cu_seqlens_q": cu, "causal": True}
    testing.assert_attention_close(right, q, k, v, **said)
    assert mha.diagnose(right, q, k, v, **said).right and mha.check(right, q, k, v, **said).passed
    text = failure(joined.astype("f4"), q, k, v, **said)
    assert "sequences-joined" in text and "query 5, head 0" in text
    path, = folder.iterdir()
    assert mha.diagnose(path).names == ["sequences-joined"]


def test_past_without_new_keys():
    """All keys are cached ones; bugs that write the new ones a row too late have no room at all."""
    q, k, v = heads(h=1, h_kv=1, T_q=5, S=1, d=3, d_v=3)
    none = np.empty((2, 1, 0, 3), "f4")
    y = oracle.attention(q, k, v)[0].astype("f4")
    assert mha.check(y, q, none, none, past_key=k, past_value=v).passed
    for _ in range(5):
        assert not mha.diagnose(R.standard_normal(y.shape).astype("f4"), q, none, none, past_key=k, past_value=v).right


def test_past_of_a_layer():
    """The rows that a cache hands out."""
    layer = mha.MultiHeadAttention(48, 6, kv_heads=3, causal=True, rope=mha.Rope())
    x = R.standard_normal((2, 7, 48)).astype("f4")
    cache = layer.cache(2, 7)
    layer(x[:, :4], cache=cache)
    past = {"past_key": cache.keys, "past_value": cache.values}
    padding = R.random((2, 7)) < 0.8  # of cached and new keys
    other = layer.cache(2, 7)
    other.load(cache.keys, cache.values)
    seen = {"key_padding": padding, "key_padding_kind": "keeps"}
    testing.assert_attention_close(layer(x[:, 4:], cache=other, **seen), x[:, 4:], layer=layer, **past, **seen)
    meant = testing.Meant(x[:, 4:], None, None, layer, None, past)
    np.testing.assert_array_equal(meant.exact(), meant.exact())
    y = layer(x[:, 4:], cache=cache)
    testing.assert_attention_close(y, x[:, 4:], layer=layer, **past)
    assert mha.check(y, x[:, 4:], layer=layer, **past).passed
    assert mha.diagnose(layer(x[:, 4:]), x[:, 4:], layer=layer, **past).names
    assert "no known bug" not in failure(layer(x[:, 4:]), x[:, 4:], layer=layer, **past)


def rounded(x):
    """To bfloat16, by hand."""
    bits = np.asarray(x, "f4").view("u4").astype("u8")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype("u4").view("f4").astype("f8")


def allowed(dtype, *inputs):
    """The atol of an output in float32."""
    meant = testing.Meant(*inputs, None, None, {})
    recorded = meant.recorded(np.zeros_like(inputs[0], "f4"), None)
    return meant.allowed(testing.Computed(dtype, None, recorded), recorded)["output"].atol


def test_low_precision():
    """A fused kernel of bfloat16, written here, passes as one; not as one of float32, nor does one that scales in
    bfloat16 twice, nor a coarse bug. Without dtype the type of the result says it."""
    q, k, v = (rounded(x) for x in heads(B=1, h=2, h_kv=2, T_q=17, S=33, d=16, d_v=16))
    scores = q @ k.swapaxes(-1, -2) / 4
    p = np.exp(scores - scores.max(-1, keepdims=True))
    y = (rounded(p) @ v / p.sum(-1, keepdims=True))
    exact = oracle.attention(q, k, v)[0]
    testing.assert_attention_close(rounded(y).astype("f4"), q, k, v, dtype="bfloat16")
    text = failure(rounded(y).astype("f4"), q, k, v)
    assert "rounding in float32 may cost" in text
    text = failure(rounded(y + 20 * np.abs(rounded(y) - exact).max() * (R.random(y.shape) < 0.1)).astype("f4"), q, k, v,
                   dtype="bfloat16")
    assert "rounding in bfloat16 may cost" in text and "no known bug" in text
    for low, high in (("float8_e4m3fn", "bfloat16"), ("float8_e5m2", "bfloat16"), ("bfloat16", "float16")):
        coarse = allowed(low, q, k, v)
        testing.assert_attention_close((exact + 0.9 * coarse).astype("f4"), q, k, v, dtype=low)
        failure((exact + 0.9 * coarse).astype("f4"), q, k, v, dtype=high)
    half = heads(B=1, h=2, h_kv=2, T_q=17, S=33, d=16, d_v=16, dtype="float16")
    y = oracle.attention(*half)[0].astype("f2")
    assert mha.diagnose(y, *half).right and mha.check(y, *half).passed
    loose = mha.check(y, *half).stages[0].atol
    assert mha.check(y, *half, dtype="float32").stages[0].atol < loose / 2
    with pytest.raises(TypeError, match="dtype: expected float64, .* float8_e5m2 or tf32, found int8"):
        mha.check(y, *half, dtype="int8")


def test_points_of_rounding():
    """A kernel that rounds elsewhere than a fused one is checked by its own points, in every face."""
    inputs = [rounded(x).astype("f4") for x in heads(B=1, h=2, h_kv=2, T_q=17, S=33, d=16, d_v=16)]
    q, k, v = (x.astype("f8") for x in inputs)
    scores = q @ k.swapaxes(-1, -2) / 4
    p = np.exp(scores - scores.max(-1, keepdims=True))
    mine = (rounded(p) @ v / p.sum(-1, keepdims=True)).astype("f4")
    said = {"precision": {"probabilities": "bfloat16"}}
    testing.assert_attention_close(mine, *inputs, **said)
    assert mha.check(mine, *inputs, **said).passed and mha.diagnose(mine, *inputs, **said).right
    assert not mha.check(mine, *inputs).passed
    failure(mine, *inputs, precision={"probabilities": "float16"})
    text = failure(mine + 0.1, *inputs, **said)
    assert "rounding in float32, probabilities in bfloat16 may cost" in text and "case not saved: precision" in text
    # Beside a type the points are those of its fused kernel, but for those that are named.
    coarse = (oracle.attention(*inputs)[0] + 0.9 * allowed("bfloat16", *inputs)).astype("f4")
    testing.assert_attention_close(coarse, *inputs, dtype="bfloat16", precision={"sums": "bfloat16"})
    failure(coarse, *inputs, dtype="bfloat16", precision={"rows": "float32", "inputs": "float32", "output": "float32"})
    for wrong, kind, words in (({"softmax": "float16"}, ValueError, "precision: expected one of inputs, weights, rows"),
                               ({"sums": "float64"}, TypeError, r"precision\['sums'\]: expected float32, float16"),
                               ({"scores": "int8"}, TypeError, "float16 or bfloat16, found int8"),
                               ("bfloat16", TypeError, "a dict from")):
        for check in (testing.assert_attention_close, mha.check, mha.diagnose):
            with pytest.raises(kind, match=words):
                check(mine, *inputs, precision=wrong)
    with pytest.raises(TypeError, match="query: expected an array, found None"):
        mha.check("case.npz", precision={})


def test_case_files():
    found = mha.diagnose(f"{ROOT}/weights/lookup/wrong_port.safetensors")
    assert "merge-untransposed" in found.names
    assert mha.check(f"{ROOT}/weights/lookup/wrong_port.safetensors").first == "heads"
    with pytest.raises(mha.NotFoundError):
        mha.check("/no/such/case")
    with pytest.raises(TypeError, match="query: expected an array, found None"):
        mha.diagnose("case.npz", is_causal=True)
    with pytest.raises(TypeError, match="key: expected an array, found None"):
        mha.diagnose(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"actual: expected shape \(2, 4, 5, 8\), found \(5,\)"):
        mha.diagnose(np.zeros(5, "f4"), *heads())
    assert len(mha.bugs()) > 100 and "causal-top-left" in mha.bugs().column("bug")


def test_power():
    """A coarse tolerance on inputs that hardly differ lets most bugs pass; the derived one lets none."""
    q, k, v = (R.uniform(0.5, 1, (1, 2, 32, 16)).astype("f4") for _ in range(3))
    coarse = testing.power(q, k, v, is_causal=True, atol=0.5, rtol=0.2)
    derived = testing.power(q, k, v, is_causal=True)
    assert "causal-missing" in coarse.accepted and "causal-missing" in derived.rejected and not derived.accepted
    assert "causal-top-left" in derived.same and len(coarse.accepted) > 10 and "would pass" in str(coarse)
    assert str(coarse).index("causal-missing") < str(coarse).index("inputs-f16")  # roundings come last
    assert f"which would reject {len(coarse.accepted)} of them" in str(coarse) and "causal-top-left" not in str(coarse)
    assert len(derived.summary()) == 3 and "rejected; above are the nearest" in str(derived)
    least = min(row[3] for row in derived if row[1] == "rejected" and row[0] not in derived.roundings)
    assert derived.summary()[0][2] == least and {"inputs-f16", "weights-bf16-cut"} & set(derived.roundings)
    assert testing.power(q, k, v, nmse=1e-9).rejected and testing.power(q, k, v, cosine=0.0).accepted
    layer = mha.MultiHeadAttention(16, 2)
    assert "merge-untransposed" in testing.power(q[0, 0, None], layer=layer).rejected
    with pytest.raises(ValueError, match="nmse: expected one criterion"):
        testing.power(q, k, v, nmse=1, atol=1)
    with pytest.raises(ValueError, match="stage"):
        testing.power(q, k, v, stage="weihgts")


def test_plugin(tmp_path):
    """--mha-save-failures says where; the traceback ends at the line of the test."""
    (tmp_path / "test_kernel.py").write_text(
        "import mha, numpy as np\n"
        "def test_kernel():\n"
        "    q = np.random.default_rng(0).standard_normal((1, 2, 4, 8)).astype('f4')\n"
        "    mha.testing.assert_attention_close(mha.scaled_dot_product_attention(q, q, q), q, q, q, is_causal=True)\n")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "mha.pytest_plugin", "-p", "no:cacheprovider",
                          "--mha-save-failures", str(tmp_path / "kept"), str(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 1 and "causal-missing" in run.stdout and "testing.py" not in run.stdout, run.stdout
    assert [p.suffix for p in (tmp_path / "kept").iterdir()] == [".safetensors"]


def test_only_so_many_cases_are_saved(folder):
    q, k, v = heads()
    for i in range(12):
        text = failure(np.zeros_like(q), q, k, v)
    assert "case not saved: 10 are" in text and len(list(folder.iterdir())) == 10


@pytest.mark.needs("hypothesis")
def test_strategies():
    import hypothesis

    seen = set()

    @hypothesis.settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @hypothesis.given(testing.cases())
    def right(case):
        seen.update(case.settings)
        if "position_bias" in case.settings:
            seen.add(case.settings["position_bias"].rule)
        testing.assert_attention_close(mha.scaled_dot_product_attention(*case.inputs, **case.settings), *case.inputs,
                                       **case.settings)

    right()
    assert {"is_causal", "attn_mask", "window", "softcap", "lengths", "enable_gqa", "buckets", "relative",
            "grid"} <= seen

    @hypothesis.settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @hypothesis.given(testing.cases(settings=False, masks=False))
    def wrong(case):  # forgets that it is causal
        said = {key: value for key, value in case.settings.items() if key != "is_causal"}
        testing.assert_attention_close(mha.scaled_dot_product_attention(*case.inputs, **said), *case.inputs,
                                       **case.settings)

    with pytest.raises(AssertionError, match="causal"):
        wrong()


def test_a_sample_of_the_rows_is_checked_and_says_so():
    q, k, v = np.random.default_rng(5).standard_normal((3, 2, 2, 300, 8)).astype(np.float32)
    right = mha.scaled_dot_product_attention(q, k, v, is_causal=True)
    whole, part = (mha.check(right, q, k, v, is_causal=True, sample=n) for n in (0, 40))
    assert whole.passed and (whole.rows_checked, whole.rows, whole.sample) == (300, 300, "")
    assert part.passed and (part.rows_checked, part.rows) == (40, 300)
    assert part.stages[0].elements == 2 * 2 * 40 * 8
    assert "checked on 40 of 300 query rows" in str(part)
    wrong = right.copy()
    wrong[1, 1, 299, 3] += 1
    found = mha.check(wrong, q, k, v, is_causal=True, sample=40)
    assert found.failed and 299 in found.stages[0].worst_index
    mha.testing.assert_attention_close(right, q, k, v, is_causal=True, sample=40)
    with pytest.raises(AssertionError, match="checked on 40 of 300 query rows"):
        mha.testing.assert_attention_close(wrong, q, k, v, is_causal=True, sample=40)
    with pytest.raises((TypeError, ValueError)):
        mha.check(right, q, k, v, sample=-1)
    d = mha.diagnose(mha.scaled_dot_product_attention(q, k, v), q, k, v, is_causal=True, sample=8)
    assert d.names == ["causal-missing"] and 0 < d.rows_checked < d.rows == 600


def test_what_may_leave_the_range_of_float32_is_not_checked():
    q, k, v = (x * np.float32(1e20) for x in np.random.default_rng(6).standard_normal((3, 1, 2, 4, 8), np.float32))
    nonsense = np.full_like(q, 7)
    found = mha.check(nonsense, q, k, v)
    assert found.skipped and not found.stages[0].ok and not found.stages[0].checked
    assert "output is not checked" in found.reason and "not checked" in str(found)
    with pytest.raises(AssertionError, match="output: not checked: .* expected atol"):
        mha.testing.assert_attention_close(nonsense, q, k, v)
    with pytest.raises(AssertionError, match="differs"):
        mha.testing.assert_attention_close(nonsense, q, k, v, atol=1.0)
    with pytest.raises(mha.Error, match="not checked"):
        mha.diagnose(nonsense, q, k, v)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    right = mha.scaled_dot_product_attention(*wide, out_dtype="float64")
    assert mha.check(right, *wide, dtype="float64").passed


def test_a_sample_that_cannot_be_checked_is_no_pass(monkeypatch):
    q, k, v = np.random.default_rng(5).standard_normal((3, 1, 1, 40, 8)).astype(np.float32)
    right = mha.scaled_dot_product_attention(q, k, v)
    unknown = mha.judge.check.Verdict("skipped", "not known", (), None)
    monkeypatch.setattr(testing, "check_case", lambda case, threads: unknown)
    testing.assert_attention_close(right, q, k, v, sample=8)
    with pytest.raises(AssertionError, match="differs"):
        testing.assert_attention_close(right + 1, q, k, v, sample=8)


@pytest.mark.parametrize("shape, layout", [((2, 3, 4, 8), "BHTD"), ((2, 4, 3, 8), "BTHD"), ((3, 4, 8), "BHTD"),
                                           ((4, 8), "BHTD"), ((2, 2, 3, 4, 8), "BHTD"), ((2, 2, 4, 3, 8), "BTHD")])
def test_worst_index_is_in_the_axes_that_were_given(shape, layout):
    """The element that is wrong, in whatever order the axes are."""
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((3, *shape)).astype(np.float32)
    right = np.asarray(mha.attention(q, k, v, layout=layout))
    for _ in range(5):
        place = tuple(int(rng.integers(extent)) for extent in shape)
        wrong = right.copy()
        wrong[place] += 3
        assert mha.check(wrong, q, k, v, layout=layout).stages[0].worst_index == place


@pytest.mark.parametrize("layout, axes", [("BTE", (0, 1, 2)), ("TBE", (1, 0, 2))])
def test_worst_index_of_a_layer(layout, axes):
    """Likewise of rows."""
    layer = mha.MultiHeadAttention(16, 2)
    layer.layout = layout
    x = np.random.default_rng(4).standard_normal((2, 3, 16)).astype(np.float32).transpose(axes)
    wrong = np.array(layer(x))
    wrong[1, 0, 5] += 3
    assert mha.check(wrong, x, layer=layer).stages[0].worst_index == (1, 0, 5)


def test_a_precision_that_was_not_meant_is_no_pass():
    exact, rounded = (mha.MultiHeadAttention(64, 4, dtype=dtype, seed=1) for dtype in ("float32", "q8_0"))
    x = R.standard_normal((2, 12, 64)).astype("f4")
    found = mha.diagnose(rounded(x), x, layer=exact)
    assert not mha.check(rounded(x), x, layer=exact).passed and not found.right and not found.names
    assert re.match("your numbers are off by 0.00.* within bfloat16 rounding: a kernel of", found.sentence), found
    assert mha.check(rounded(x), x, layer=exact, dtype="bfloat16").passed
