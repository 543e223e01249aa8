"""Every argument of every public function, given something wrong: the error names it as the caller typed it."""
import functools
import inspect
import itertools
import os
import re
import subprocess
import sys
import types

import mha
import numpy as np
import pytest
from conftest import ROOT
from mha.core.fields import FIELDS

R = np.random.default_rng(0)
Q = R.standard_normal((2, 4, 6, 8)).astype("f4")  # (B, h, T, d)
X = R.standard_normal((2, 5, 8)).astype("f4")
LOOKUP = f"{ROOT}/weights/lookup"
PAGES = R.standard_normal((3, 4, 2, 8)).astype("f4")


def layer():
    return mha.MultiHeadAttention(8, 2)


def model():
    return mha.Model.from_preset("gpt2")


HEADS = {"query": Q, "key": Q, "value": Q}
FLASH = {"q": Q, "k": Q, "v": Q}
CHECKED = {"actual": Q, **HEADS}
GRADIENTS = {**{name: np.zeros_like(Q) for name in ("dq", "dk", "dv")}, **FLASH, "do": np.zeros_like(Q)}
PAGED = {"q": R.standard_normal((2, 2, 3, 8)).astype("f4"), "key_pages": PAGES, "value_pages": PAGES,
         "page_table": np.zeros((2, 1), "i8"), "page_lengths": np.array([3, 4])}

# Functions, with arguments that make a right call.
FUNCTIONS = {
    "scaled_dot_product_attention": (mha.scaled_dot_product_attention, HEADS),
    "attention": (mha.attention, FLASH),
    "paged_attention": (mha.paged_attention, PAGED),
    "paged_attention_backward": (mha.paged_attention_backward, {**PAGED, "do": PAGED["q"]}),
    "merge": (mha.merge, {"parts": [(Q, Q[..., 0])]}),
    "diagnose": (mha.diagnose, CHECKED),
    "check": (mha.check, CHECKED),
    "tolerance": (mha.tolerance, HEADS),
    "test_cases": (lambda **k: list(mha.test_cases(**k)), {"level": "smoke"}),
    "assert_attention_close": (mha.testing.assert_attention_close, CHECKED),
    "power": (mha.testing.power, HEADS),
    "gradient_power": (mha.testing.gradient_power, {**FLASH, "do": Q}),
    "attention_backward": (mha.attention_backward, {**FLASH, "do": Q}),
    "assert_gradients_close": (mha.testing.assert_gradients_close, GRADIENTS),
    "conform": (mha.conform, {"kernel": mha.scaled_dot_product_attention, "has": ()}),
    "invariant": (mha.testing.invariant, {"kernel": mha.scaled_dot_product_attention}),
    "MultiHeadAttention": (mha.MultiHeadAttention, {"d_model": 8, "n_heads": 2}),
    "layer": (lambda **k: layer()(**k), {"query": X}),
    "layer.cache": (lambda **k: layer().cache(**k), {"batch": 1, "capacity": 4}),
    "layer.init": (lambda **k: layer().init(**k), {"seed": 1}),
    "layer.set": (lambda **k: layer().set(**k), {"name": "W_Q", "values": np.ones((8, 8), "f4")}),
    "layer.head": (lambda **k: layer().head(**k), {"name": "W_Q", "head": 0}),
    "from_torch": (mha.MultiHeadAttention.from_torch, {}),
    "from_file": (mha.MultiHeadAttention.from_file, {"path": f"{LOOKUP}/model.safetensors", "n_heads": 6}),
    "Cache": (mha.Cache, {"batch": 1, "kv_heads": 2, "d_k": 4, "capacity": 8}),
    "Cache.truncate": (lambda **k: mha.Cache(1, 2, 4, 8).truncate(**k), {"length": 0}),
    "Cache.load": (lambda **k: mha.Cache(1, 2, 4, 8).load(**k), {"keys": np.ones((1, 2, 3, 4), "f4"),
                                                                 "values": np.ones((1, 2, 3, 4), "f4")}),
    "Cache.continued": (lambda **k: mha.Cache(1, 2, 4, 8).continued(**k), {"batch": 2, "rows": 3}),
    "Cache.reorder": (lambda **k: mha.Cache(1, 2, 4, 8).reorder(**k), {"order": [0]}),
    "Model": (mha.Model, {"preset": "gpt2"}),
    "from_config": (mha.Model.from_config, {"config": f"{LOOKUP}/config.json"}),
    "Model.from_torch": (mha.Model.from_torch, {"model": types.SimpleNamespace(named_modules=dict)}),
    "LiveModel": (mha.LiveModel, {"model": types.SimpleNamespace(named_modules=dict)}),
    "from_preset": (mha.Model.from_preset, {"name": "gpt2"}),
    "Model.costs": (lambda **k: model().costs(**k), {"batch": 1, "seq": 4}),
    "Model.heads": (lambda **k: model().heads(**k), {"counts": [12]}),
    "Model.group_totals": (lambda **k: model().group_totals(**k), {"group": "attention"}),
    "count": (mha.count, {"what": {"a": X}}),
    "explain": (mha.explain, {"source": "gpt2", "against": "gpt2"}),
    "load": (mha.load, {"path": f"{LOOKUP}/model.safetensors"}),
    "save": (mha.save, {"path": "not-written.safetensors", "tensors": {"a": X}}),
    "File": (mha.File, {"path": f"{LOOKUP}/model.safetensors"}),
    "Trace.load": (mha.Trace.load, {"path": f"{LOOKUP}/recorded.safetensors"}),
    "window_segments": (mha.window_segments, {"height": 4, "width": 4, "window": 2, "shift": 1}),
    "Rope.scaled": (mha.Rope.scaled, {"scaling": "yarn", "dim": 8, "factor": 2.0, "original_length": 16.0}),
    "Rope.by_axes": (mha.Rope.by_axes, {"positions": np.zeros((2, 3), "i8"), "sections": [2, 2]}),
}
SIGNATURES = {
    "test_cases": mha.test_cases, "layer": mha.MultiHeadAttention.__call__, "layer.cache": mha.MultiHeadAttention.cache,
    "layer.init": mha.MultiHeadAttention.init, "layer.set": mha.MultiHeadAttention.set,
    "layer.head": mha.MultiHeadAttention.head, "Cache.truncate": mha.Cache.truncate, "Cache.load": mha.Cache.load,
    "Cache.continued": mha.Cache.continued, "Cache.reorder": mha.Cache.reorder, "Model.costs": mha.Model.costs,
    "Model.heads": mha.Model.heads, "Model.group_totals": mha.Model.group_totals,
}
WALK = [(function, name) for function, (called, _) in FUNCTIONS.items()
        for name, p in inspect.signature(SIGNATURES.get(function, called)).parameters.items()
        if name != "self" and p.kind != p.VAR_KEYWORD]


class Wrong:
    """No number, no text, no array, no list."""


@pytest.mark.parametrize("function, name", WALK)
def test_an_error_names_the_argument(function, name):
    called, right = FUNCTIONS[function]
    with pytest.raises((TypeError, ValueError, mha.Error)) as caught:
        called(**{**right, name: Wrong()})
    assert re.match(rf"{name}\b(\[.*?\])?: expected .+, found ", str(caught.value)), str(caught.value)


@pytest.mark.parametrize("name", FIELDS)
def test_an_error_names_the_field(name):
    with pytest.raises((TypeError, ValueError), match=rf"^{name}: "):
        mha.MultiHeadAttention(**{"d_model": 8, "n_heads": 2, name: Wrong()})


def test_every_public_function_is_walked():
    walked = {function.split(".")[0] for function in FUNCTIONS}
    public = {name for name in mha.__all__ if callable(getattr(mha, name)) and not name.endswith("Error")}
    without = {"Bias", "Relative", "Diagnosis", "Parameter", "Parameters", "Table", "Totals", "Verdict", "presets",
               "bugs", "Result", "Report", "TestCase", "Tolerance", "Watch", "watch", "Costs", "Finding",
               "GradientDiagnosis", "LayerLengths", "Match", "ModelLayer", "Reduced", "StageVerdict", "StoredTensor",
               "Watched", "ConfigDifference", "Explanation", "KeyEffect", "LayerKind", "LayerValue",
               "CacheKind", "Caches", "EngineLog"}
    # Rows that the module makes; settings, checked where they are used; no arguments; a model of PyTorch.
    assert public - without <= walked | {"Rope", "Trace"}


@pytest.mark.parametrize("name", sorted(mha.SETTINGS))
@pytest.mark.parametrize("call", [lambda s: mha.scaled_dot_product_attention(Q, Q, Q, **s),
                                  lambda s: mha.attention(Q, Q, Q, **s), lambda s: layer()(X, **s),
                                  lambda s: mha.check(Q, Q, Q, Q, **s), lambda s: mha.check(X, X, layer=layer(), **s)])
def test_an_error_names_the_setting(name, call):
    beside = {"blocks": {"block_size": (2, 2)}, "cu_seqlens_k": {"cu_seqlens_q": [0, 6]}}.get(name, {})
    with pytest.raises((TypeError, ValueError, mha.Error), match=rf"^{name}\b"):
        call({name: Wrong(), **beside})


def test_words_of_the_caller():
    for wrong, words in (({"softmax_scale": "x"}, "softmax_scale: "), ({"scale": "x"}, "scale: "),
                         ({"alibi_slopes": [1.0]}, "alibi_slopes: expected shape"),
                         ({"alibi": [1.0]}, "alibi: expected shape"),
                         ({"window_size": 3}, "window_size: "), ({"return_stages": True}, "return_stages: ")):
        with pytest.raises((TypeError, ValueError), match="^" + words):
            mha.attention(Q, Q, Q, **wrong)
    with pytest.raises(TypeError, match="^return_stages: expected a list of names of stages, found bool"):
        layer()(X, return_stages=True)
    for wrong in ({"return_stages": ["nothing"]}, {"return_stages": ["weights", "weights"]}):
        with pytest.raises(ValueError, match="^return_stages: "):
            layer()(X, **wrong)
    with pytest.raises((TypeError, ValueError), match="^attn_mask: "):
        mha.scaled_dot_product_attention(Q, Q, Q, np.ones((7, 7), "f4"))
    for function in (mha.attention, mha.scaled_dot_product_attention):
        for short, shape in ((Q[0], "(4, 5, 8)"), (Q, "(2, 4, 5, 8)")):
            words = "kv" if function is mha.attention else ("key", "value")
            with pytest.raises(ValueError, match=rf"^{words[1]}: expected shape {re.escape(str(short.shape))}, found "
                                                 + re.escape(shape)):
                function(short, short, short[..., :5, :])
    for shape, found in (((5, 8), (5, 9)), ((1, 5, 8), (1, 5, 9))):
        with pytest.raises(ValueError, match=re.escape(f"query: expected shape {shape}, found {found}")):
            layer()(np.ones(found, "f4"))


def test_words_of_others_are_taken_or_explained():
    assert mha.MultiHeadAttention(embed_dim=8, num_heads=2).config == mha.MultiHeadAttention(8, 2).config
    assert mha.MultiHeadAttention(8, num_heads=2).config["n_heads"] == 2
    for wrong, words in (({}, "d_model: expected one whole number, found None"),
                         ({"d_model": 8}, "n_heads: expected one whole number, found None"),
                         ({"d_model": 8, "n_heads": 2, "embed_dim": 8}, "d_model: .*found 8, and 8 as embed_dim"),
                         ({"embed_dim": "8", "num_heads": 2}, "embed_dim: expected a whole number"),
                         ({"embed_dim": 8, "num_heads": 0}, "num_heads: expected a whole number from 1"),
                         ({"d_model": 8, "n_heads": 2, "kdim": 4}, "kdim: expected .*, found 'kdim'; use d_kin"),
                         ({"d_model": 8, "n_heads": 2, "casual": True}, "casual: .*found 'casual'; use causal")):
        with pytest.raises((TypeError, ValueError), match=words):
            mha.MultiHeadAttention(**wrong)
    with pytest.raises(TypeError, match=r"found 'need_weights'; use return_stages=\['weights'\]"):
        layer()(X, need_weights=True)
    with pytest.raises(TypeError, match="found 'is_casual'; use is_causal"):
        mha.attention(Q, Q, Q, is_casual=True)

    class MultiheadAttention:
        in_proj_weight = None

    with pytest.raises(TypeError, match="^layer: .*found MultiheadAttention; mha.MultiHeadAttention.from_torch"):
        mha.check(X, X, layer=MultiheadAttention())
    with pytest.raises(TypeError, match="^layer: .*found Wrong$"):
        mha.check(X, X, layer=Wrong())


@pytest.mark.needs("torch")
def test_a_pytorch_before_2_is_refused(monkeypatch):
    import torch

    monkeypatch.delattr(torch.nn.functional, "scaled_dot_product_attention", raising=False)
    for opened in (mha.Model.from_torch, lambda module: mha.watch(module).__enter__()):
        for _ in range(2):  # nothing is left watched
            with pytest.raises(ImportError, match="^torch: expected 2.0 or newer, found "):
                opened(torch.nn.Linear(2, 2))


def test_heads_of_a_model():
    table = model().heads()
    assert [row[0] for row in table] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] and len({row[-1] for row in table}) == 1
    assert [row[0] for row in model().heads([6])] == [6]
    own = mha.Model.from_config({"model_type": "gpt2", "n_layer": 1, "n_embd": 70, "n_head": 7}).heads()
    assert [row[0] for row in own] == [1, 2, 7]


# ---------------------------------------------------------------- layouts, and JAX's words


def turned(*arrays):
    return [x.swapaxes(1, 2) for x in arrays]


@pytest.mark.parametrize("T_q, S", [(5, 9), (9, 5), (6, 6)])
@pytest.mark.parametrize("layout", ["BHTD", "BTHD", "BTNH"])
def test_is_causal_is_aligned_top_left(T_q, S, layout):
    q, k, v = R.standard_normal((2, 4, T_q, 8)), R.standard_normal((2, 4, S, 8)), R.standard_normal((2, 4, S, 8))
    expected = mha.scaled_dot_product_attention(q, k, v, is_causal=True)
    given = (q, k, v) if layout == "BHTD" else turned(q, k, v)
    want = expected if layout == "BHTD" else expected.swapaxes(1, 2)
    np.testing.assert_array_equal(mha.attention(*given, layout=layout, is_causal=True), want)
    mha.testing.assert_attention_close(want, *given, layout=layout, is_causal=True)
    assert mha.check(want, *given, layout=layout, is_causal=True).passed
    if T_q != S:
        assert not mha.check(want, *given, layout=layout, causal=True, offset="bottom-right").passed
        with pytest.raises(ValueError, match="^is_causal: expected as many queries as keys"):
            mha.attention(*given, layout=layout, is_causal=True, causal=True)
    x = R.standard_normal((1, 5, 8))
    np.testing.assert_array_equal(layer()(x, is_causal=True), layer()(x, causal=True))
    with pytest.raises(TypeError, match="^is_causal: .*bottom-right"):
        mha.paged_attention(**PAGED, is_causal=True)


def test_heads_come_before_tokens_by_default():
    """4 heads of 6 queries and 2 of 9 keys: no other order of the axes fits."""
    q, k, v = (R.standard_normal((2, *n, 8)).astype("f4") for n in ((4, 6), (2, 9), (2, 9)))
    y = mha.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    np.testing.assert_array_equal(mha.attention(q, k, v), y)
    pages = [x.swapaxes(1, 2).reshape(6, 3, 2, 8) for x in (k, v)]
    table, lengths = np.arange(6).reshape(2, 3), [9, 9]
    np.testing.assert_array_equal(mha.paged_attention(q, *pages, table, lengths, causal=False), y)
    gradients = mha.attention_backward(q, k, v, y)
    assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]
    np.testing.assert_allclose(mha.paged_attention_backward(q, *pages, table, lengths, y, causal=False)[0],
                               gradients[0], rtol=0, atol=1e-7)
    mha.testing.assert_attention_close(y, q, k, v)
    mha.testing.assert_gradients_close(*gradients, q, k, v, y)
    assert mha.check(y, q, k, v).passed and mha.diagnose(y, q, k, v).right and mha.tolerance(q, k, v).atol > 0


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
def test_causal_is_aligned_bottom_right(layout):
    """In each layout, also of a check and a backward; the function with PyTorch's signature asks for the alignment."""
    q, k, v = (R.standard_normal((2, *n, 8)).astype("f4") for n in ((4, 3), (4, 7), (4, 7)))
    given = [q, k, v] if layout == "BHTD" else turned(q, k, v)
    for said in ({"causal": True}, {"window_size": (2, 0)}):
        y = mha.attention(*given, layout=layout, **said)
        assert mha.diagnose(y, *given, layout=layout, **said).right
        mha.testing.assert_gradients_close(*mha.attention_backward(*given, y, layout=layout, **said), *given, y,
                                           layout=layout, **said)
    y = mha.attention(q, k, v, causal=True)
    np.testing.assert_array_equal(mha.scaled_dot_product_attention(q, k, v, causal=True, offset="bottom-right"), y)
    with pytest.raises(ValueError, match="^causal: expected `offset` with 3 queries and 7 keys, found None; "):
        mha.scaled_dot_product_attention(q, k, v, causal=True)


def test_layouts_by_name():
    q, k, v = turned(Q, Q[::-1], Q + 1)
    np.testing.assert_array_equal(mha.attention(q, k, v, layout="BTNH"),
                                  mha.attention(q, k, v, layout="BTHD"))
    np.testing.assert_array_equal(mha.attention(q, k, v), mha.attention(q, k, v, layout="BHTD"))
    parts = [(q, np.ones((2, 4, 6), "f4"))]
    np.testing.assert_array_equal(mha.merge(parts, layout="BTNH")[0], mha.merge(parts, layout="BTHD")[0])
    for wrong in ("BNTH", "BSND", 3):
        with pytest.raises((TypeError, ValueError), match="^layout: expected one of BHTD, BTHD, BTNH, found"):
            mha.attention(q, k, v, layout=wrong)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_other_layout_is_named(causal, masked):
    q, k, v = (R.standard_normal((2, 6, 4, 8)).astype("f4") for _ in range(3))  # (B, T, h, d), given as (B, h, T, d)
    said = {"is_causal": causal, **({"lengths": [3, 4]} if masked else {})}
    mine = mha.attention(q, k, v, layout="BTHD", **said)
    found = mha.diagnose(mine, q, k, v, **said)
    assert found.layout == "BTHD" and found.sentence.endswith("; in layout='BTHD' they are right")
    assert masked or found.names[0] == "heads-as-time"
    with pytest.raises(AssertionError, match="in layout='BTHD' they are right"):
        mha.testing.assert_attention_close(mine, q, k, v, **said)
    back = mha.diagnose(mine.swapaxes(1, 2), *turned(q, k, v), layout="BTNH", **said)
    assert back.layout == "BHTD"
    assert mha.diagnose(mine, q, k, v, layout="BTHD", **said).right
    wrong = mha.diagnose(mine + R.standard_normal(mine.shape).astype("f4"), q, k, v, **said)
    assert wrong.layout is None and "layout" not in wrong.sentence


def test_shapes_of_the_other_layout_are_named():
    q, k = R.standard_normal((2, 10, 4, 8)), R.standard_normal((2, 15, 4, 8))
    with pytest.raises(ValueError, match="^key: expected .* divides the 10 of query, found 15; use layout='BTHD'"):
        mha.scaled_dot_product_attention(q, k, k)
    with pytest.raises(ValueError, match=r"^actual: expected shape \(2, 10, 4, 8\), found \(2, 4, 10, 8\); its axes "
                                         "are in the order of layout='BTHD'"):
        mha.check(q.swapaxes(1, 2), q, q, q)


# ---------------------------------------------------------------- the program


def run_module(tmp_path, *arguments, library=None, path=""):
    env = {**os.environ, "PATH": path, "MHA_LIBRARY": library or os.environ["MHA_LIBRARY"]}
    return subprocess.run([sys.executable, "-m", "mha", *arguments], capture_output=True, text=True, env=env)


def lone_library(tmp_path):
    library = tmp_path / "lib" / "libmha.so"
    library.parent.mkdir()
    library.symlink_to(os.path.realpath(os.environ["MHA_LIBRARY"]))
    return str(library)


def test_the_program_is_run_or_its_place_is_said(tmp_path):
    library = lone_library(tmp_path)
    found = run_module(tmp_path, "info", library=library)
    assert found.returncode == 1 and found.stderr.count("\n") == 1
    assert "make install" in found.stderr and "mha.diagnose(FILE)" in found.stderr
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mha"
    program.write_text("#!/bin/sh\necho \"I am given $*\"\nexit 7\n")
    program.chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    for how in ({"library": library}, {"library": lone_library(tmp_path / "elsewhere"), "path": str(tmp_path / "bin")}):
        found = run_module(tmp_path, "check", "a b.npz", **how)
        assert (found.returncode, found.stdout) == (7, "I am given check a b.npz\n"), found.stderr


@pytest.mark.parametrize("place", ["", "path", "beside"])
def test_advice_can_be_followed(tmp_path, place):
    library = lone_library(tmp_path)
    if place:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "mha"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    code = ("import mha, numpy\nq = numpy.random.default_rng(0).standard_normal((1, 2, 4, 8)).astype('f4')\n"
            "mha.testing.assert_attention_close(q + 1, q, q, q)")
    env = {**os.environ, "PATH": str(tmp_path / "bin") if place == "path" else "", "MHA_LIBRARY": library,
           "MHA_SAVE_FAILURES": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env).stderr
    case, = tmp_path.glob("failed-*.safetensors")
    command = {"path": "mha", "beside": str(tmp_path / "bin" / "mha")}.get(place)
    if command:
        assert f"case saved: {command} check {case}; {command} diagnose {case}" in said
    else:
        assert f"case saved: mha.check({str(case)!r}); mha.diagnose({str(case)!r})" in said
        assert not mha.check(str(case)).passed and mha.diagnose(str(case)).matches == ()


@pytest.mark.parametrize("call", ["attention_close(q + 1, q, q, q)", "gradients_close(q, q, q, q, q, q, q)"])
def test_no_file_is_written_unless_asked(tmp_path, call):
    """A failure says in one line how to have its case saved."""
    code = ("import mha, numpy\nq = numpy.random.default_rng(0).standard_normal((1, 2, 4, 8)).astype('f4')\n"
            f"mha.testing.assert_{call}")
    env = {name: value for name, value in os.environ.items() if name != "MHA_SAVE_FAILURES"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
                          env={**env, "TMPDIR": str(tmp_path), "PYTHONPATH": os.path.dirname(
                              os.path.dirname(mha.__file__))}).stderr
    assert "\n  to save the case: MHA_SAVE_FAILURES=DIR, or pytest --mha-save-failures DIR" in said
    assert not list(tmp_path.iterdir())


def test_errors_name_the_argument_of_the_caller():
    for word, number in itertools.product(("window", "window_size"), (4, np.int64(4))):
        for call in (mha.attention, functools.partial(mha.check, Q[:, :2])):
            with pytest.raises(TypeError, match=rf"^{word}: expected \(left, right\), found 4; give \(3, 0\) for 4"):
                call(Q[:, :2], Q[:, :2], Q[:, :2], **{word: number})
    for word in ("n_heads", "num_heads"):
        with pytest.raises(mha.InvalidError, match=f"^{word}: expected a divisor of d_model 63, found 8"):
            mha.MultiHeadAttention(63, **{word: 8})
    with pytest.raises(TypeError, match="^index: expected the number of a row or a slice, found 'W_Q'; `weights`"):
        layer().parameters()["W_Q"]
    with pytest.raises(FileNotFoundError, match="nowhere.safetensors") as missing:
        mha.load("nowhere.safetensors")
    assert isinstance(missing.value, mha.NotFoundError) and isinstance(missing.value, LookupError)


def test_a_file_is_closed(tmp_path):
    path = tmp_path / "x.safetensors"
    mha.save(path, {"x": np.arange(3.0)})
    with mha.File(path) as file:
        assert file["x"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="^file: expected an open file, found a closed one"):
        file["x"]
    assert "x" in repr(file) and file.table().rows[0][2] == (3,)


@pytest.mark.parametrize("rows, shown", [(60, 61), (61, 23)])
def test_long_tables_are_short_in_repr(rows, shown):
    table = mha.Table(("n", "square"), [(n, n * n) for n in range(rows)], "note")
    assert len(repr(table).splitlines()) == shown + 1 and len(str(table).splitlines()) == rows + 2
    assert repr(table).endswith("note") and table._repr_html_().count("<tr>") == {60: 61, 61: 22}[rows]
    assert rows == 60 or "41 more rows; print(table) shows all" in repr(table)
