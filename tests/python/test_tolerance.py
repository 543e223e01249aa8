"""One tolerance: assertion, check and program allow the same number, right kernels pass it, and coarse ones do not."""
import json
import os
import subprocess

import kernels
import mha
import numpy as np
import pytest
from mha import testing

SIZES = [(16, 16), (64, 64), (256, 128), (1024, 128)]
# From so many keys on, these may pass: eps is a part eps / sum(exp(score - largest)) of the result, the sum grows with
# the keys, and what it moves falls below the 16 times its own error that float32 is allowed for other orders of sums.
UNSEEN = {"eps 1e-5": 16, "eps 1e-4": 256}


@pytest.fixture(autouse=True)
def folder(tmp_path):
    testing.save_failures(str(tmp_path))
    yield tmp_path
    testing.save_failures(None)


def drawn(T, d, h=2, seed=0, dtype="f4"):
    random = np.random.default_rng(T + seed)
    return [random.standard_normal((1, h, T, d)).astype(dtype) for _ in range(3)]


class Faces:
    """What the assertion decides by, computed once for the results of one call."""

    def __init__(self, *inputs):
        self.inputs, self.meant = inputs, testing.Meant(*inputs, None, None, {})
        self.exact = mha.core.arrays.floats("exact", self.meant.exact())
        self.limits = {}

    def accept(self, y, dtype=None):
        recorded = self.meant.recorded(y, None)
        key = recorded["output"].dtype, dtype
        if key not in self.limits:
            self.limits[key] = self.meant.allowed(testing.Computed(dtype, None, recorded), recorded)["output"]
        found = self.limits[key]
        limits = testing.Limits(found.rtol, found.atol, found)
        return not testing.Apart(mha.core.arrays.floats("y", y, mha.core.arrays.RESULTS), self.exact, limits).mismatches

    def agree(self, y, dtype=None):
        """What the assertion and the check say, which must be one answer."""
        verdict, accepted = mha.check(y, *self.inputs, dtype=dtype), self.accept(y, dtype)
        assert verdict.outcome == ("passed" if accepted else "failed"), verdict.reason
        return accepted


@pytest.mark.parametrize("T, d", SIZES)
def test_float32(T, d):
    """Kernels of float32 in any order pass; nothing that rounds more, or computes something else, does."""
    faces = Faces(*drawn(T, d, h=1 if T > 256 else 2))
    for name, kernel in kernels.RIGHT.items():
        assert faces.accept(kernel(*faces.inputs)), name
    passed = {name for name, kernel in kernels.WRONG.items() if faces.accept(kernel(*faces.inputs))}
    assert passed <= {name for name, keys in UNSEEN.items() if T >= keys}
    assert faces.agree(kernels.RIGHT["plain"](*faces.inputs))
    coarse = kernels.WRONG["float16 p"](*faces.inputs)
    assert not faces.agree(coarse)
    if T < 100:
        with pytest.raises(AssertionError, match="what rounding in float32 may cost"):
            testing.assert_attention_close(coarse, *faces.inputs)


def test_unseen():
    """What is listed as unseen is that: some inputs of the named size do not show it; those of the size before do."""
    drawings = {T: [Faces(*drawn(T, d, h=1, seed=seed)) for seed in range(4)] for T, d in SIZES[:3]}
    for name, keys in UNSEEN.items():
        passed = {T: [f.accept(kernels.WRONG[name](*f.inputs)) for f in faces] for T, faces in drawings.items()}
        assert any(passed[keys]) and not any(any(x) for T, x in passed.items() if T < keys), (name, passed)


@pytest.mark.parametrize("T, d", SIZES[:3])
def test_tf32(T, d):
    """Products of TF32 are right for a kernel that says so, and for no other; those of bfloat16 are not."""
    faces = Faces(*drawn(T, d))
    for name in ("tf32 products", "tf32 q and k", "tf32 p"):
        y = kernels.WRONG[name](*faces.inputs)
        assert faces.agree(y, "tf32") and not faces.agree(y, "float32"), name
    for name in ("bfloat16 products", "int8 k and v", "exp clamped at -5"):
        assert not faces.agree(kernels.WRONG[name](*faces.inputs), "tf32"), name
    if T < 100:
        y = kernels.WRONG["tf32 products"](*faces.inputs)
        said = mha.diagnose(y, *faces.inputs)
        assert said.matches[0].within == "tf32" and not said.right
        assert mha.diagnose(y, *faces.inputs, dtype="tf32").right
        testing.assert_attention_close(y, *faces.inputs, precision={"rows": "tf32", "probabilities": "tf32"})
        with pytest.raises(TypeError, match="found tf32"):
            mha.check(y, *faces.inputs, precision={"scores": "tf32"})
        plain = testing.power(*faces.inputs, dtype="tf32")
        assert "inputs-f16" not in [row[0] for row in plain]


SETTINGS = [{}, {"is_causal": True}, {"window": (2, 1)}, {"softcap": 2.0}, {"scale": 1.5}, {"alibi": [1, 0.5]},
            {"lengths": [11]}, {"rope": mha.Rope()}]


@pytest.mark.parametrize("dtype", [None, "float32", "float64", "tf32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("stored", ["f2", "f4", "f8"])
def test_one_number(dtype, stored, folder):
    """Of a call, a type that is computed in and one that is stored, assertion, check and program allow the same."""
    for said in SETTINGS:
        inputs = drawn(17, 8)
        trace = mha.scaled_dot_product_attention(*inputs, return_stages=["weights", "scores"], out_dtype="float64",
                                                 **said)
        stages = {"weights": trace[1]["weights"].astype(stored), "scores": trace[1]["scores"].astype("f4")}
        y = trace[0].astype(stored)
        verdict = mha.check(y, *inputs, stages=stages, dtype=dtype, **said)
        meant = testing.Meant(*inputs, None, None, said)
        recorded = meant.recorded(y, stages)
        computed = testing.Computed(dtype, None, recorded)
        allowed = {name: (found.rtol, found.atol) for name, found in meant.allowed(computed, recorded).items()}
        assert len(verdict.stages) == 3
        assert allowed == {stage.name: (stage.rtol, stage.atol) for stage in verdict.stages}
    path = folder / "case.safetensors"
    meant.save(path, recorded, computed)
    rows = ran(path)[1]
    widened = meant.recorded(np.asarray(y, "f8" if computed.wide(recorded["output"].dtype) else "f4"), None)
    found = meant.allowed(computed, widened)["output"]
    row, = (row for row in rows if row["name"] == "output")
    assert (row["rtol"], row["atol"]) == (found.rtol, pytest.approx(found.atol, rel=1e-5))


def ran(path):
    """The exit code and the rows of `mha check --path exact`."""
    program = os.path.join(os.path.dirname(os.environ["MHA_LIBRARY"]), "mha")
    run = subprocess.run([program, "check", "--json", "--path", "exact", path], capture_output=True, text=True)
    return run.returncode, json.loads(run.stdout)["cases"][0]["stages"]


def passes(assertion, *args, **said):
    try:
        assertion(*args, **said)
    except AssertionError:
        return False
    return True


STATED = [(None, None), (0.5, None), (None, 0.01), (0.1, 0.01)]


@pytest.mark.parametrize("rtol, atol", STATED)
@pytest.mark.parametrize("stored", ["f2", "f4"])
def test_a_stated_tolerance(rtol, atol, stored, folder):
    """rtol, atol, one of them or none: assertion, case file (C) and program take the same numbers and decide alike."""
    path, inputs = folder / "stated.safetensors", drawn(17, 8)
    exact = mha.scaled_dot_product_attention(*inputs, out_dtype="float64")
    meant, stated = testing.Meant(*inputs, None, None, {}), {"rtol": rtol, "atol": atol}
    inside = 0.4 if stored == "f4" or rtol or atol else 0  # storing in F16 uses up the derived tolerance
    for times, right in ((0, True), (inside, True), (3, False)):
        recorded = meant.recorded(exact.astype(stored), None)
        computed = testing.Computed("float32", None, recorded)
        derived = meant.allowed(computed, recorded)["output"]
        want = (derived.rtol if rtol is None else rtol, derived.atol if atol is None else atol)
        assert testing.limits_of(meant, computed, recorded, rtol, atol)["output"][:2] == want
        y = (exact + times * (want[1] + want[0] * np.abs(exact))).astype(stored)
        meant.save(path, meant.recorded(y.astype("f4"), None), computed)
        file = mha.load(path)
        mha.save(path, {**file, "expected.output": file["expected.output"].astype(stored)},
                 {**file.metadata, **{name: str(number) for name, number in stated.items() if number is not None}})
        verdict, (code, (row,)) = mha.check(path), ran(path)
        assert (verdict.stages[0].rtol, verdict.stages[0].atol) == pytest.approx(want, rel=1e-6)
        assert (row["rtol"], row["atol"]) == pytest.approx(want, rel=1e-5)
        assert verdict.passed == (code == 0) == right
        assert passes(testing.assert_attention_close, y, *inputs, dtype="float32", **stated) == right


@pytest.mark.parametrize("rtol, atol", STATED)
def test_a_stated_tolerance_of_gradients(rtol, atol, folder):
    path, inputs = folder / "stated.safetensors", drawn(17, 8)
    do = drawn(17, 8, seed=1)[0]
    dq, dk, dv = mha.attention_backward(*inputs, do)
    for times, right in ((0, True), (0.9, True), (1.2, False)):
        off = times * ((atol or 0) + (rtol or 0) * np.abs(dk)) if rtol or atol else max(times - 1, 0) * np.abs(dk)
        yours = (dk + off).astype("f4")
        mha.save(path, dict(zip(("query", "key", "value", "d_output", "expected.d_key"), (*inputs, do, yours))),
                 {"kind": "sdpa", "layout": "BHTD", **{name: str(number) for name, number in
                                                       (("rtol", rtol), ("atol", atol)) if number is not None}})
        assert mha.check(path).passed == (ran(path)[0] == 0) == right
        assert passes(testing.assert_gradients_close, None, yours, None, *inputs, do, rtol=rtol, atol=atol) == right


def test_computed_wide_or_not():
    """dtype says what was computed in, whatever the type of the array: in both faces."""
    faces = Faces(*drawn(64, 64))
    exact, single = faces.exact.array, kernels.RIGHT["plain"](*faces.inputs)
    for y, dtype, right in ((exact, None, True), (single.astype("f8"), None, False),
                            (single.astype("f8"), "float32", True), (single, "float64", False),
                            (exact.astype("f4"), "float64", True), (exact.astype("f2"), "float64", True),
                            ((exact * (1 + 2.0**-22)).astype("f4"), "float64", False),
                            ((exact * (1 + 2.0**-9)).astype("f2"), "float64", False)):
        assert faces.agree(y, dtype) == right, (y.dtype, dtype)


def test_beyond_float32():
    """There is nothing to measure where float32 cannot run the call: all faces say so, and neither answer is given."""
    inputs = drawn(9, 8, dtype="f8")
    said = {"softcap": 1e300}
    y = mha.scaled_dot_product_attention(*inputs, path="exact", out_dtype="float64", **said)
    verdict = mha.check(y, *inputs, **said)
    assert verdict.outcome == "skipped" and "softcap: expected atol, because mha derives none" in verdict.reason
    with pytest.raises(mha.Error, match="softcap: expected a number that float can hold"):
        testing.assert_attention_close(y, *inputs, **said)
    testing.assert_attention_close(y, *inputs, atol=0, **said)


def test_what_no_distance_tells():
    """Infinities where the exact value is beyond float16, and the lowest number for a hidden score: right for both."""
    layer = mha.MultiHeadAttention(16, 2)
    x = 3e5 * np.random.default_rng(0).standard_normal((1, 5, 16)).astype("f4")
    with np.errstate(over="ignore"):
        y = layer(x).astype("f2")
    assert np.isinf(y).any() and mha.check(y, x, layer=layer, dtype="float32").passed
    testing.assert_attention_close(y, x, layer=layer, dtype="float32")
    y[np.isfinite(y)] = np.inf
    assert not mha.check(y, x, layer=layer, dtype="float32").passed
    with pytest.raises(AssertionError, match="infinite: yours"):
        testing.assert_attention_close(y, x, layer=layer, dtype="float32")
    inputs = drawn(5, 8)
    _, trace = mha.scaled_dot_product_attention(*inputs, is_causal=True, return_stages=["masked"])
    lowest = np.maximum(trace["masked"], np.finfo("f4").min)
    assert (lowest != trace["masked"]).any()
    assert mha.check(None, *inputs, stages={"masked": lowest}, is_causal=True).passed
    testing.assert_attention_close(None, *inputs, stages={"masked": lowest}, is_causal=True)


def parted(name, q, k, v, said):
    with np.errstate(all="ignore"):
        return kernels.SPLIT[name](q, k, v, return_lse=True, **said)


@pytest.mark.parametrize("name", kernels.SPLIT)
def test_keys_in_parts_and_exponentials_of_2(name):
    """Right kernels that keep lse of parts, or scores in base 2, as floats pass far from 0 as well; and bugs that
    move as much as scores near 0 would show do not."""
    random = np.random.default_rng(sum(map(ord, name)))
    for trial in range(12):
        B, h_kv, g, T, S = (int(random.integers(low, high)) for low, high in
                            ((1, 3), (1, 3), (1, 3), (1, 34), (3, 70)))
        d = int(random.choice([4, 16, 64]))  # of which the scale is a power of 2
        q, k, v = (random.standard_normal(shape).astype("f4") for shape in
                   ((B, h_kv * g, T, d), (B, h_kv, S, d), (B, h_kv, S, d)))
        q, k = np.rint(q * 8) / 8, np.rint(k * 8) / 8  # of which scores are floats
        deep = np.float32(random.choice([0, -2.0**7, 2.0**7, 2.0**11, -2.0**11]))  # all scores are this far from 0
        q[..., 0], k[..., 0] = deep, np.sqrt(np.float32(d))
        said = {"enable_gqa": True}
        said.update(random.choice([{}, {"is_causal": True}, {"window": (7, 3)}, {"sinks": [float(deep)] * (h_kv * g)},
                                   {"attn_mask": random.random((T, S)) < 0.7}, {"lengths": [S - 1] * B}]))
        dtype = [None, "bfloat16", "float16"][trial % 3]
        if dtype is not None:
            q, k, v = ({"bfloat16": kernels.bf16, "float16": kernels.f16}[dtype](x) for x in (q, k, v))
        y, lse = parted(name, q, k, v, said)
        verdict = mha.check(y, q, k, v, stages={"lse": lse}, dtype=dtype, **said)
        assert verdict.passed, (trial, said, dtype, verdict.reason)
    q, k, v = drawn(33, 16)
    y, _ = parted(name, q, k, v, {})
    for wrong in (y * np.float32(1 + 1e-4), kernels.f16(y), y + np.float32(2e-5)):
        assert not mha.check(wrong, q, k, v).passed


def test_merged_parts():
    """What mha.merge makes of parts passes where scores are far from 0."""
    random = np.random.default_rng(0)
    for count in (2, 3, 5, 16):
        q, k, v = (random.standard_normal((2, 2, 33, 16)).astype("f4") for _ in range(3))
        q, k = np.rint(q * 8) / 8, np.rint(k * 8) / 8
        q[..., 0], k[..., 0] = -128, 64
        ends = [0, *sorted(int(x) for x in random.choice(np.arange(1, 33), count - 1, False)), 33]
        parts = [mha.scaled_dot_product_attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True)
                 for a, b in zip(ends, ends[1:])]
        y, lse = mha.merge(parts)
        verdict = mha.check(y, q, k, v, stages={"lse": lse})
        assert verdict.passed, verdict.reason


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_the_public_tolerance_is_that_of_check(dtype):
    """mha.tolerance gives the numbers of the verdict, and a result beyond them fails."""
    q, k, v = (np.random.default_rng(i).standard_normal((2, 3, 9, 8)).astype("f4") for i in range(3))
    rtol, atol = mha.tolerance(q, k, v, is_causal=True, dtype=dtype)
    exact = mha.scaled_dot_product_attention(q, k, v, is_causal=True, path="exact", out_dtype="float64")
    stored = "float32" if dtype == "bfloat16" else dtype  # of the array
    verdict = mha.check(exact.astype(stored), q, k, v, is_causal=True, dtype=dtype)
    assert verdict.passed
    if dtype != "bfloat16":
        assert (rtol, atol) == (verdict.stages[0].rtol, verdict.stages[0].atol)
    assert 0 < atol < (0.05 if dtype == "bfloat16" else 1e-5)
    assert mha.check(exact + 9 * (atol + rtol * np.abs(exact)), q, k, v, is_causal=True, dtype=dtype).failed
    with pytest.raises(ValueError, match="^stage: expected one of"):
        mha.tolerance(q, k, v, stage="result")


def test_msg_is_the_first_line():
    q, k, v = (np.random.default_rng(i).standard_normal((1, 2, 5, 4)) for i in range(3))
    wrong = mha.scaled_dot_product_attention(q, k, v) + 1
    for check in (lambda msg: testing.assert_attention_close(wrong, q, k, v, msg=msg),
                  lambda msg: testing.assert_gradients_close(wrong, k, v, q, k, v, wrong, msg=msg),
                  lambda msg: testing.assert_function_close(lambda q, k, v: wrong, q, k, v, msg=msg,
                                                            backward=lambda *_: (q, k, v))):
        with pytest.raises(AssertionError) as plain:
            check("")
        with pytest.raises(AssertionError, match="^layer 3\n") as found:
            check("layer 3")
        first = str(plain.value).splitlines()[0]
        assert str(found.value).startswith(f"layer 3\n{first}\n")
