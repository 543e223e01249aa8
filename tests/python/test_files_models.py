"""Files and whole models: what is read, written and counted."""
import json
import os
import pathlib
import random
import struct
import subprocess

import mha
import numpy as np
import pytest
from conftest import ROOT

R = np.random.default_rng(4)


def test_round_trip(tmp_path):
    tensors = {name: (R.standard_normal((3, 4)) * 9).astype(name) for name in (
        "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
        "bool")}
    tensors["none"], tensors["scalar"], tensors["T"] = np.zeros((0, 3), "f4"), np.array(2.5), tensors["float32"].T
    mha.save(tmp_path / "a.safetensors", tensors, {"who": "tests", "é": "ü"})
    file = mha.load(tmp_path / "a.safetensors")
    assert file.format == "safetensors" and file.metadata == {"who": "tests", "é": "ü"} and set(file) == set(tensors)
    for name, array in tensors.items():
        assert file[name].dtype == array.dtype
        np.testing.assert_array_equal(file[name], array)
    assert "float16" in file.table().column("name") and "F16" in str(file) and "<table>" in file._repr_html_()
    mha.save(tmp_path / "a.npy", {"only": tensors["float32"].T})
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), tensors["float32"].T)
    np.savez(tmp_path / "a.npz", x=tensors["int16"], h=4)
    file = mha.load(str(tmp_path / "a.npz"))
    assert file["x"].dtype == np.int16 and file.metadata["h"] == "4"


@pytest.mark.parametrize("name", ["blocks.gguf", "packed.safetensors"])
def test_quantised_tensors_are_decoded(name):
    file = mha.load(f"{ROOT}/tests/formats/quantised/{name}")
    compared = 0
    for tensor in file:
        if tensor + ".values" in file:
            found, expected = file[tensor], file[tensor + ".values"]
            assert found.dtype == np.float32 and found.shape == expected.shape
            np.testing.assert_array_equal(found, expected)
            compared += 1
    assert compared >= 13 and not any(tensor.endswith(("qweight", "scale", "absmax")) for tensor in file)


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3", "cohere2", "gpt-oss", "bert"])
def test_metadata_of_gguf_say_what_a_layer_means(name):
    path = f"{ROOT}/tests/gguf/{name}.gguf"
    file, layers = mha.load(path), 0
    for key in file:
        if not key.endswith(".query"):
            continue
        block = key.removeprefix("recorded.").removesuffix(".query")
        layer = mha.MultiHeadAttention.from_file(path, layer=block, dtype="float64")
        expected = file[f"recorded.{block}.output"]
        found = layer(file[key].astype("float64"), path="exact", out_dtype="float64")
        assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()
        layers += 1
    assert layers == 2


def test_every_architecture_of_gguf_is_recorded():
    table = json.loads((pathlib.Path(ROOT) / "src/models/gguf/architectures.json").read_text())["architectures"]
    files = pathlib.Path(ROOT, "tests/gguf").glob("*.gguf")
    assert {mha.load(path).metadata["general.architecture"] for path in files} == set(table)


def gguf_of(path, architecture, **tensors):
    """A GGUF with the name of an architecture, its numbers of heads and features, and tensors of float32."""
    text = lambda x: struct.pack("<Q", len(x)) + x.encode()
    pairs = [text("general.architecture") + struct.pack("<I", 8) + text(architecture)]
    pairs += [text(f"{architecture}.{key}") + struct.pack("<II", 4, value)
              for key, value in (("attention.head_count", 2), ("embedding_length", 8))]
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs)) + b"".join(pairs), b""
    for name, x in tensors.items():
        head += text(name) + struct.pack(f"<I{x.ndim}QIQ", x.ndim, *x.shape[::-1], 0, len(data))
        data += x.astype("<f4").tobytes()
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def test_an_architecture_that_is_not_described_needs_settings(tmp_path):
    matrices = {f"blk.0.attn_{x}.weight": R.standard_normal((8, 8)) for x in ("q", "k", "v", "output")}
    path, from_file = gguf_of(tmp_path / "novel.gguf", "novel", **matrices), mha.MultiHeadAttention.from_file
    with pytest.raises(ValueError, match="expected a model that is described, found 'novel'"):
        from_file(path)
    assert from_file(path, causal=True).settings["causal"] is True
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2}))
    x = R.standard_normal((1, 3, 8))
    halves, pairs = (from_file(path, config=config)(x), from_file(gguf_of(tmp_path / "l.gguf", "llama", **matrices))(x))
    assert np.abs(halves - pairs).max() > 1e-3
    np.testing.assert_array_equal(from_file(tmp_path / "l.gguf", config=config)(x), pairs)


def test_what_is_refused(tmp_path):
    with pytest.raises(KeyError):
        mha.load(f"{ROOT}/weights/lookup/model.safetensors")["nothing"]
    with pytest.raises(mha.NotFoundError, match="/no/such"):
        mha.load("/no/such")
    with pytest.raises(TypeError, match="path: expected a path, found float"):
        mha.load(1.5)
    (tmp_path / "bad.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{not json")
    with pytest.raises(mha.FormatError):
        mha.load(tmp_path / "bad.safetensors")
    for tensors, words in (({"x": np.array([object()])}, "x"), ({3: np.ones(2)}, "tensors"), ({"x": "text"}, "x")):
        with pytest.raises(TypeError, match=words):
            mha.save(tmp_path / "x.safetensors", tensors)
    with pytest.raises(mha.Error):
        mha.save(tmp_path / "x.txt", {"x": np.ones(2)})
    with pytest.raises(TypeError, match="metadata"):
        mha.save(tmp_path / "x.safetensors", {"x": np.ones(2)}, {"a": 1})
    assert [p.name for p in tmp_path.iterdir()] == ["bad.safetensors"]


def test_short_floats(tmp_path):
    """bfloat16 widened where numpy has no type for it: 1.5 is 0x3FC0."""
    header = json.dumps({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    header += b" " * (-len(header) % 8)
    (tmp_path / "b.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\xc0\x3f\x00\xc0")
    x = mha.load(tmp_path / "b.safetensors")["x"]
    assert x.dtype.name in ("float32", "bfloat16") and x.astype("f4").tolist() == [1.5, -2.0]


def test_models(tmp_path):
    assert "gpt2" in mha.presets()
    model = mha.Model.from_preset("gpt2")
    assert model.totals.parameters == 124_439_808 and len(model.layers) == 12 and model.layers[0].n_heads == 12
    assert model.settings["causal"] is True and model.costs(1, 10).scores_full > 0
    sweep = model.heads([1, 2, 12])
    assert sweep.column("parameters") == [124_439_808] * 3 and sweep.column("d_k") == [768, 384, 64]
    config = json.loads(pathlib.Path(ROOT, "weights/presets/gpt2.json").read_text())
    assert mha.Model.from_config(config).totals == model.totals
    assert mha.Model.from_config(f"{ROOT}/weights/presets/gpt2.json").totals == model.totals
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert mha.Model.from_config(tmp_path).totals == model.totals

    class Configuration:  # as those of transformers
        def to_dict(self) -> dict:
            return config
    assert mha.Model.from_config(Configuration()).totals == model.totals
    assert mha.Model.from_config({**config, "n_layer": 1}).heads([3]).column("parameters")[0] < 124_439_808
    t5 = mha.Model.from_preset("t5-small")
    assert t5.costs(2, 5, 7).cross_elements == 2 * 6 * 7 * 2 * 512 == 7 * t5.costs(2, 5).cross_elements // 5
    lengths = t5.lengths(1, 5, encoder_seq=7)
    assert [row.keys for row in lengths] == [7] * 6 + [5] * 6 + [7] * 6
    assert lengths[17].cross and lengths[17].cached == 7
    assert "every text with every image" in mha.Model.from_preset("clip").costs(1, 5).not_counted
    assert model.costs(1, 5).not_counted == ""
    with pytest.raises(ValueError, match="encoder_seq: expected a model with an encoder and a decoder"):
        model.costs(1, 5, 7)
    with pytest.raises(ValueError, match="encoder_seq: expected a whole number"):
        t5.lengths(1, 5, -1)
    with pytest.raises(LookupError, match=r"name: expected a preset, found 'gtp'; did you mean gpt2\? mha.pres"):
        mha.Model.from_preset("gtp")
    with pytest.raises(LookupError, match=r"expected one of .* \(mha.presets\(\) has them all\), found 'unheard-of'"):
        mha.Model.from_preset("unheard-of")
    with pytest.raises(ValueError):
        mha.Model.from_config({"model_type": "nonsense"})
    assert any(p.alias_of for p in mha.Model.from_preset("gpt2").parameters())


def test_windows_of_an_image_that_is_rolled(tmp_path):
    """A configuration says which windows a layer of Swin has, and every second layer has segments inside of them."""
    file = mha.load(f"{ROOT}/tests/layers/swin.safetensors")
    (tmp_path / "config.json").write_text(file.metadata["config"])
    prefixes = [layer.prefix for layer in mha.Model.from_config(tmp_path).layers]
    for prefix in prefixes[:2]:
        layer = mha.MultiHeadAttention.from_file(f"{ROOT}/tests/layers/swin.safetensors", prefix,
                                                 config=tmp_path / "config.json")
        assert ("q_segments" in layer.settings) == (".blocks.1." in prefix), prefix
    np.testing.assert_array_equal(layer.settings["q_segments"], mha.window_segments(4, 4, 2, 1))


def test_keys_that_nothing_reads(tmp_path):
    config = {"model_type": "llama", "num_hidden_layers": 1, "note": "x", "num_experts": 8, "rest": None}
    assert mha.Model.from_config(config).unread_keys == ["note", "num_experts"]
    assert mha.Model.from_preset("gpt2").unread_keys == []
    with pytest.raises(mha.Error, match="extra_layers.*may depend.*no_effect"):
        mha.Model.from_config({**config, "extra_layers": 1})
    description = tmp_path / "mine.json"
    description.write_text('{"like": "llama", "no_effect": "extra_layers"}')
    assert mha.Model.from_config({**config, "extra_layers": 1}, architecture=description).unread_keys == [
        "note", "num_experts"]


def test_count():
    shared = np.zeros((3, 4), "f4")
    table = mha.count({"a": shared, "b": shared, "c": np.zeros(5, "f2"), "ids": np.arange(7)})
    assert table.totals.parameters == 17 and table.totals.buffers == 7 and table.totals.aliases == 1
    assert mha.count(f"{ROOT}/weights/lookup/model.safetensors").totals.parameters == 9408
    assert mha.count(mha.load(f"{ROOT}/weights/lookup/model.safetensors")).totals.parameters == 9408
    with pytest.raises(TypeError, match="x: expected an array"):
        mha.count({"x": 3})
    with pytest.raises(TypeError, match="what: expected"):
        mha.count(3)


def test_a_model_type_of_ones_own(tmp_path):
    config = {"model_type": "mine", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
              "vocab_size": 100, "intermediate_size": 128, "num_key_value_heads": 2}
    with pytest.raises(mha.Error, match="--architecture FILE describes another"):
        mha.Model.from_config(config)
    description = tmp_path / "mine.json"
    description.write_text('{"like": "llama", "title": "Mine", "classes": {"MineModel": ""}}')
    mine = mha.Model.from_config(config, architecture=description)
    like = mha.Model.from_config(dict(config, model_type="llama"), class_name="LlamaModel")
    assert mine.title == "Mine (MineModel)"
    assert mine.totals == like.totals
    assert mine.heads([2, 4]).column("parameters") == like.heads([2, 4]).column("parameters")


def test_the_config_beside_a_file_is_read(tmp_path):
    """As the program reads it; heads that are given are not overruled."""
    folder = f"{ROOT}/weights/induction"
    path, name = f"{folder}/model.safetensors", "layers.0.self_attn"
    layer = mha.MultiHeadAttention.from_file(path, layer=name)
    said = mha.MultiHeadAttention.from_file(path, layer=name, config=f"{folder}/config.json")
    assert layer.config == said.config and layer.settings == said.settings
    copied = tmp_path / "model.safetensors"
    copied.write_bytes(pathlib.Path(path).read_bytes())
    with pytest.raises(ValueError, match="nor a config.json"):
        mha.MultiHeadAttention.from_file(copied, layer=name)


def test_a_group_that_a_model_lacks_is_refused():
    """A slip of the pen is no group without parameters."""
    model = mha.Model.from_preset("gpt2")
    assert model.group_totals("attention").parameters > 0
    with pytest.raises(ValueError, match="^group: expected one of attention, .*, found 'atention'"):
        model.group_totals("atention")


def drawn_rotation(r):
    """A small configuration whose rotation may be wrong or unknown."""
    config = {"model_type": r.choice(["llama", "qwen3", "gemma3_text", "phi3", "ministral3", "deepseek_v3", "cohere2",
                                      "glm4", "gptj", "smollm3", "stablelm", "esm", "modernbert", "gpt_oss"]),
              "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2,
              "intermediate_size": 8, "vocab_size": 9}
    members = {"factor": [2.0, 0.5, None, -1], "rope_theta": [1e4, 0.5, None], "odd_key": [3], "mscale": [1.0],
               "original_max_position_embeddings": [16, 1, None], "attention_factor": [1.25, -1, None],
               "low_freq_factor": [1, 4], "high_freq_factor": [4, 1], "short_factor": [[1.0] * 8, [1] * 7],
               "long_factor": [[2.0] * 8], "max_position_embeddings": [64], "mrope_section": [[2, 3, 3], [4, 4]],
               "partial_rotary_factor": [0.5, 1.0], "llama_4_scaling_beta": [0.1], "beta_fast": [32, -1]}
    kinds = ["default", "linear", "dynamic", "yarn", "longrope", "llama3", "spiral", "su", "mrope", None, 7]
    scaling = {r.choice(["rope_type", "type"]): r.choice(kinds)}
    scaling.update({key: r.choice(values) for key, values in members.items() if r.random() < 0.2})
    if r.random() < 0.15:
        scaling = {"full_attention": scaling, "sliding_attention": {"rope_type": r.choice(kinds), "factor": 2.0}}
    more = {"head_dim": [16, 15, 8, 2, 514], "partial_rotary_factor": [0.5, 0.3, 1.5, None], "rope_theta": [5, None],
            "max_position_embeddings": [64, None], r.choice(["rope_scaling", "rope_parameters"]): [scaling]}
    config.update({key: r.choice(values) for key, values in more.items() if r.random() < 0.5})
    return config


@pytest.mark.skipif("MHA_PROGRAM" not in os.environ, reason="the program is not built")
def test_settings_and_params_show_the_rotation_that_forward_computes(tmp_path):
    ran, refused, r, path = 0, 0, random.Random(7), str(tmp_path / "config.json")
    program = lambda name: subprocess.run([os.environ["MHA_PROGRAM"], name, "--config", path, "--json"],
                                          capture_output=True, text=True)
    for _ in range(60):
        config = drawn_rotation(r)
        pathlib.Path(path).write_text(json.dumps(config))
        try:
            model = mha.Model.from_config(path)
        except mha.Error:
            continue
        said = json.loads(program("params").stdout)["model"]
        done = program("forward")
        if done.returncode != 0:
            refused += 1
            assert said["not_run"] in done.stderr and said["rope_scaling"] is None, config
            with pytest.raises(mha.UnsupportedError, match="^settings: expected .*, found one that it only counts; "):
                model.settings
            continue
        ran += 1
        made, rope = json.loads(done.stdout)["config"]["settings"], model.settings.get("rope")
        assert said["not_run"] is None and (rope is None) == ("rope" not in made), config
        if rope is not None:
            assert (rope.kind, rope.dim, rope.base) == (made["rope"], made["rope_dim"], made["rope_base"]), config
            assert (rope.frequencies is None) == ("rope_frequencies" not in made), config
            factor = made.get("rope_attention_factor", 1)
            assert rope.attention_factor == pytest.approx(factor, 1e-12), config
            if "rope_frequencies" in made:
                assert said["rope_scaling"]["attention_factor"] == pytest.approx(factor, 1e-12), config
    assert ran >= 10 and refused >= 20


def test_the_labels_of_large_classifiers_are_read(tmp_path):
    """A config.json with 21,841 labels, as of ImageNet-22k, is longer than 1 MiB."""
    labels = {str(n): f"label {n:045d}" for n in range(21841)}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 8,
                                "num_attention_heads": 2, "num_hidden_layers": 1, "id2label": labels}))
    assert path.stat().st_size > 1 << 20
    rows = {row.name: row.shape for row in mha.Model.from_config(path).parameters()}
    assert rows["classifier.weight"] == (21841, 8)
