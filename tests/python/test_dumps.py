"""python -m mha watch --compare: which stage of two dumps parts first, which of the two is right, and bad files."""
import json
import os
import subprocess
import sys

import mha
import numpy as np
import pytest
from mha.core import errors
from mha.torch import comparison, dumps

R = np.random.default_rng(4)
B, H, KV, T, D = 2, 4, 2, 7, 8


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def model(wrong=-1, how=None, layers=3, scale=D**-0.5):
    """Dumps of layers, each fed by the one before it; in layer `wrong` the bug `how`."""
    r, found = np.random.default_rng(9), {}
    x = r.standard_normal((B, T, H * D))
    for i in range(layers):
        W = [r.standard_normal((H * D, n)) / 6 for n in (H * D, KV * D, KV * D, H * D)]
        q, k, v = (np.float32(x @ w).reshape(B, T, -1, D).swapaxes(1, 2) for w in W[:3])
        keys, values = (np.repeat(each, H // KV, 1) for each in (k, v))
        if i == wrong and how == "tile":
            keys, values = (np.tile(each, (1, H // KV, 1, 1)) for each in (k, v))
        scores = np.float64(q) @ keys.swapaxes(2, 3) * (1.0 if i == wrong and how == "scale" else scale)
        hidden = ~np.tri(T, dtype=bool) if not (i == wrong and how == "mask") else np.zeros((T, T), bool)
        heads = np.float32(softmax(np.where(hidden, -np.inf, scores)) @ values)
        if i == wrong and how == "before":
            q = q + 1
        flat = heads.swapaxes(1, 2).reshape(B, T, -1)
        out = np.float32(flat @ W[3])
        for name, array in (("q_proj", q), ("k_proj", k), ("v_proj", v), ("heads", flat), ("o_proj", out)):
            found[f"model.layers.{i}.self_attn.{name}"] = array
        x = x + out
    return found


def written(folder, name, arrays):
    path = str(folder / name)
    if name.endswith(".npz"):
        np.savez(path, **arrays)
    else:
        mha.save(path, arrays)
    return path


@pytest.mark.parametrize("end", [".npz", ".safetensors"])
@pytest.mark.parametrize("how, name", [("scale", "scale-missing"), ("mask", "causal-missing"), ("tile", "gqa-tile")])
def test_first_and_which_is_right(tmp_path, how, name, end, capsys):
    paths = [written(tmp_path, f"a{end}", model()), written(tmp_path, "b.safetensors", model(1, how))]
    for order in (paths, paths[::-1]):
        found = comparison.compare(*order)
        assert (found.first.layer, found.first.name) == (1, "model.layers.1.self_attn.heads"), found
        assert found.checked[paths[0]].right and not found.checked[paths[1]].right
        assert any(name in each for each in found.checked[paths[1]].names) or name == "gqa-tile", found
        assert comparison.main(["--compare", *order]) == errors.NO
        said = capsys.readouterr().out
        assert f"{paths[0]}: RIGHT" in said and f"{paths[1]}: WRONG" in said and "FIRST: model.layers.1" in said
        if name == "gqa-tile":
            assert found.checked[paths[1]].names, found
    assert comparison.main(["--compare", paths[0], paths[0]]) == errors.DONE
    assert "all 15 stages that both have agree" in capsys.readouterr().out
    assert comparison.main(["--compare", *paths, "--json"]) == errors.NO
    said = json.loads(capsys.readouterr().out)
    assert said["layer"] == 1 and said["right"] == {paths[0]: True, paths[1]: False} and not said["same"]


def test_rounding_is_no_difference_and_settings_are_obeyed(tmp_path):
    plain, other = model(), model()
    other = {name: np.float16(x) for name, x in other.items()}
    a, b = written(tmp_path, "a.npz", plain), written(tmp_path, "b.npz", other)
    assert comparison.compare(a, b).first is None and comparison.compare(a, b, rtol=1e-6).first is not None
    scaled = written(tmp_path, "c.npz", model(scale=0.2))
    found = comparison.compare(a, scaled, settings={"is_causal": True, "scale": 0.2})
    assert not found.checked[a].right and found.checked[scaled].right and found.first.layer == 0


def test_a_mask_that_nobody_said_is_found(tmp_path):
    full = model(0, "mask", layers=1)
    paths = [written(tmp_path, "a.npz", {n: x * 2 if n.endswith("heads") else x for n, x in full.items()}),
             written(tmp_path, "b.npz", full)]
    found = comparison.compare(*paths)
    assert found.checked[paths[1]].right and not found.checked[paths[0]].right and "(full)" in str(found)


def test_the_first_of_a_name_counts(tmp_path):
    one, two = np.ones(3), np.ones(3) * 2
    paths = [written(tmp_path, "a.npz", {"layers.0.q": one, "layers.0.q_proj": two}),
             written(tmp_path, "b.npz", {"h.0.query": one})]
    assert comparison.compare(*paths).first is None and comparison.compare(*paths).compared == 1


def test_what_is_not_checked(tmp_path):
    a, b = model(), model(1, "before")
    paths = [written(tmp_path, "a.npz", a), written(tmp_path, "b.npz", b)]
    found = comparison.compare(*paths)
    assert found.first.name.endswith("1.self_attn.q_proj") and found.checked[paths[0]].right
    flat = {name: x.swapaxes(1, 2).reshape(B, T, -1) if x.ndim == 4 else x for name, x in model(1, "scale").items()}
    side = written(tmp_path, "side.npz", flat)
    sentences = comparison.compare(side, side.replace("side", "a"), rtol=0).sentences
    assert any("--heads: expected a number" in each for each in sentences
               ) or comparison.compare(side, paths[0], rtol=0).first is None
    whole = written(tmp_path, "whole.npz", {n: x.swapaxes(1, 2).reshape(B, T, -1) if x.ndim == 4 else x
                                            for n, x in a.items()})
    found = comparison.compare(whole, side)
    assert sum("--heads: expected a number" in each for each in found.sentences) >= 2 and not found.checked
    found = comparison.compare(whole, side, n_heads=H, kv_heads=KV)
    assert found.checked[whole].right and "scale-missing" in found.checked[side].names
    less = written(tmp_path, "less.npz", {n: x for n, x in model(1, "scale").items() if "v_proj" not in n})
    assert any("it has no v of this layer" in each for each in comparison.compare(paths[0], less).sentences)
    assert comparison.main(["--compare", paths[0], written(tmp_path, "none.npz", {"z": np.ones(3)})]) == 4


def test_a_rotation_between_is_no_verdict(tmp_path):
    """Neither dump is called wrong where what lies in it is not what attention was given, unless settings are said."""
    paths = []
    for name, scale in (("a.npz", 0.11), ("b.npz", 0.17)):
        arrays = model(layers=1)
        q, k, v = (arrays[f"model.layers.0.self_attn.{x}_proj"] for x in "qkv")
        turned = q[..., ::-1] * np.cos(np.arange(T))[:, None]
        weights = softmax(np.where(np.tri(T), turned @ np.repeat(k, 2, 1).swapaxes(2, 3) * scale, -np.inf))
        heads = np.float32(weights @ np.repeat(v, 2, 1))
        arrays["model.layers.0.self_attn.heads"] = heads.swapaxes(1, 2).reshape(B, T, -1)
        paths.append(written(tmp_path, name, arrays))
    found = comparison.compare(*paths)
    assert found.first.name.endswith("heads") and not found.checked and "such as a rotation" in found.sentences[-1]
    assert len(comparison.compare(*paths, settings={"is_causal": True}).checked) == 2


# ---------------------------------------------------------------- what others write


def printed(arrays):
    """As llama-eval-callback prints tensors."""
    said = ["build: 1 (x)", "llama_model_loader: nothing"]
    for name, x in arrays.items():
        x = x.reshape((1,) * (4 - x.ndim) + x.shape)
        sizes = ", ".join(str(n) for n in x.shape[::-1])
        op = "ROPE" if name.endswith(" ") else "MUL_MAT"
        said.append(f"ggml_debug: {name.strip():>24} = (f32)    {op}(w{{8, 8, 1, 1}}, x{{8, 7, 1, 1}}}}) = {{{sizes}}}")

        def walk(part):
            if part.ndim == 1:
                some = [f"{n:12.4f}" for n in part]
                if len(some) > 6:
                    some = [*some[:3], "..."] + some[-3:]
                said.append("[" + ", ".join(some).replace("..., ", "..., ") + "],")
                return
            said.append("[")
            rows = list(part)
            for i, row in enumerate(rows):
                if len(rows) > 6 and i == 3:
                    said.append("..., ")
                if len(rows) <= 6 or i < 3 or i >= len(rows) - 3:
                    walk(row)
            said.append("],")
        walk(x)
        said.append(f"                                     sum = {x.sum():f}")
    return "\n".join(said) + "\n"


def test_llama_cpp(tmp_path, capsys):
    x = {"Qcur-0": R.standard_normal((T, 64)), "kqv_out-0": R.standard_normal((T, 64)),
         "Qcur-1": R.standard_normal((T, 64)), "kqv_out-1": R.standard_normal((T, 64))}
    x["small-0"] = R.standard_normal((T, 9)) * 1e-3  # of which four decimals say little
    x["Qcur-0 "] = x["Qcur-0"] * 2  # rotated, under the same name
    y = dict(x, **{"kqv_out-1": x["kqv_out-1"] * 1.01})
    paths = []
    for name, arrays in (("a.txt", x), ("b.txt", y)):
        paths.append(str(tmp_path / name))
        (tmp_path / name).write_text(printed(arrays))
    stages = dumps.read(paths[0])
    assert [(s.layer, s.kind, s.shape) for s in stages] == [
        (0, "q", (T, 64)), (0, "heads", (T, 64)), (1, "q", (T, 64)), (1, "heads", (T, 64)), (0, "small", (T, 9)),
        (0, "q_rot", (T, 64))]
    assert np.allclose(stages[0].array, dumps.edges(x["Qcur-0"]), atol=dumps.PRINTED)
    found = comparison.compare(*paths)
    assert (found.first.layer, found.first.name) == (1, "kqv_out-1") and found.compared == 6
    words = {"Qc": "q", "kq": "heads", "sm": "small"}
    full = written(tmp_path, "full.npz", {f"layers.{name[-1]}.{words[name[:2]]}": v
                                          for name, v in x.items() if name[-1] != " "})
    assert comparison.compare(full, paths[0]).first is None  # whole arrays beside their printed ends
    assert comparison.compare(full, paths[1]).first.layer == 1
    lines = printed(x).splitlines()
    (tmp_path / "cut.txt").write_text("\n".join(lines[:6]))
    assert comparison.main(["--compare", paths[0], str(tmp_path / "cut.txt")]) == errors.BAD_REQUEST
    assert "at the ends of (1, 1, 7, 64), found" in capsys.readouterr().err


def tree(change=1.0, folder=None):
    r = np.random.default_rng(2)

    def leaf(name, x, given=None):
        def value(x, what):
            if folder is None:
                text = ("tensor(" + json.dumps(x.tolist()) + ")").splitlines()
            else:
                mha.save(folder / f"{name}_{what}.safetensors", {"data": x})
                text = f"./{name}_{what}.safetensors"
            return {"shape": f"torch.Size({list(x.shape)})", "dtype": "torch.float32", "value": text}
        return {"module_path": name, "inputs": {"args": [value(x if given is None else given, "inputs")]},
                "outputs": value(x, "outputs"), "children": []}

    at = "M.model.layers.0.self_attn"
    q, k, v = (np.round(r.standard_normal((1, T, 16)), 4).astype("f4") for _ in range(3))
    a, b, c = (x.reshape(1, T, 2, 8).swapaxes(1, 2) for x in (q, k, v))
    heads = np.float32(softmax(np.where(np.tri(T), np.float64(a) @ b.swapaxes(2, 3) * 8**-0.5 * change, -np.inf)) @ c)
    heads = heads.swapaxes(1, 2).reshape(1, T, 16)
    return {"module_path": "M", "inputs": None, "children": [{"module_path": at, "inputs": None, "children": [
        leaf(f"{at}.q_proj", q), leaf(f"{at}.k_proj", k), leaf(f"{at}.v_proj", v),
        leaf(f"{at}.o_proj", heads * 2, heads)]}]}


@pytest.mark.parametrize("beside", [True, False])
def test_transformers_debugger(tmp_path, beside):
    paths = []
    for name, change in (("a", 1.0), ("b", 8**0.5)):
        os.makedirs(tmp_path / name)
        paths.append(str(tmp_path / name / "M_debug_tree_FULL_TENSORS.json"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            json.dump(tree(change, tmp_path / name if beside else None), file)
    found = comparison.compare(*paths, n_heads=2)
    assert found.first.layer == 0 and "o_proj (input)" in found.first.name and found.compared == 5
    if beside:
        assert found.checked[paths[0]].right and "scale-missing" in found.checked[paths[1]].names
        os.remove(tmp_path / "a" / "M.model.layers.0.self_attn.k_proj_outputs.safetensors")
        with pytest.raises(dumps.DumpError, match="in the same folder, found no such file"):
            dumps.read(paths[0])
    else:
        assert any("only printed digits" in each for each in found.sentences)


@pytest.mark.parametrize("content, why", [
    (b"", "found an empty file"), (b"{", "Expecting|property name"), (b"{}", "expected a call tree"),
    (b'{"module_path": "M", "children": [3]}', "expected objects"), (b"[1, 2]", "expected floating-point arrays"),
    (b"PK\x03\x04nothing", ""), (b"\xff\xfe\x00nothing", "UnicodeDecodeError"),
    (b"hello\n", "expected floating-point arrays"),
    (b'{"module_path": "M", "outputs": {"shape": "x", "dtype": "torch.float32", "value": ["a"]}}', "floating-point"),
])
def test_bad_files(tmp_path, content, why, capsys):
    path = str(tmp_path / "bad")
    with open(path, "wb") as file:
        file.write(content)
    good = written(tmp_path, "a.npz", model(layers=1))
    for order in ((path, good), (good, path)):
        assert comparison.main(["--compare", *order]) == errors.BAD_REQUEST
        said = capsys.readouterr().err
        assert said.startswith("mha watch: ") and said.count("\n") == 1 and path in said
    with pytest.raises(dumps.DumpError, match=why):
        dumps.read(path)


def test_command(tmp_path):
    good = written(tmp_path, "a.npz", model(layers=1))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*words):
        return subprocess.run([sys.executable, "-m", "mha", "watch", *words], capture_output=True, text=True, env=env)

    assert run("--compare", good, good).returncode == 0
    lost = run("--compare", good, str(tmp_path / "lost.npz"))
    assert lost.returncode == errors.BAD_REQUEST and lost.stderr.count("\n") == 1
    assert "lost.npz: No such file" in lost.stderr
    for wrong in (["--compare", good], ["--compare", good, good, "--set", "x"], ["--compare", good, good, "--rtol",
                                                                                  "-1"]):
        assert run(*wrong).returncode == 2
