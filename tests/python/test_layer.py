"""Layers: from sizes, from PyTorch, from files; stages, caches, the parameter table."""
import mha
import numpy as np
import oracle
import pytest
from conftest import ROOT

R = np.random.default_rng(3)
LOOKUP = f"{ROOT}/weights/lookup"


def rows(B=2, T=5, E=48):
    return R.standard_normal((B, T, E)).astype("f4")


def test_layer_is_the_equation():
    layer = mha.MultiHeadAttention(48, 6, kv_heads=2, d_v=5, d_kin=11, d_vin=7, d_out=9, seed=4)
    x, key, value = rows(), rows(T=8, E=11), rows(T=8, E=7)
    w = {name: array.astype("f8") for name, array in layer.weights.items()}
    q = (x @ w["W_Q"] + w["b_Q"]).reshape(2, 5, 6, 8).swapaxes(1, 2)
    k = np.repeat((key @ w["W_K"] + w["b_K"]).reshape(2, 8, 2, 8).swapaxes(1, 2), 3, axis=1)
    v = np.repeat((value @ w["W_V"] + w["b_V"]).reshape(2, 8, 2, 5).swapaxes(1, 2), 3, axis=1)
    weights = np.exp(q @ k.swapaxes(2, 3) / 8**0.5)
    weights /= weights.sum(-1, keepdims=True)
    y = (weights @ v).swapaxes(1, 2).reshape(2, 5, 30) @ w["W_O"] + w["b_O"]
    output, trace = layer(x, key, value, return_stages=["weights", "heads"], path="exact", out_dtype="float64")
    np.testing.assert_allclose(output, y, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(trace["weights"], weights, rtol=1e-12, atol=1e-14)
    assert layer(x, key, value).shape == (2, 5, 9) and layer(x, key, value).dtype == np.float32
    np.testing.assert_array_equal(layer.head("W_Q", 2), layer.weights["W_Q"][:, 16:24])
    np.testing.assert_array_equal(layer.head("W_O", 2), layer.weights["W_O"][10:15])


def test_layouts():
    layer, x = mha.MultiHeadAttention(48, 6), rows()
    y = layer(x, causal=True)
    np.testing.assert_array_equal(layer(x.swapaxes(0, 1), layout="TBE", causal=True), y.swapaxes(0, 1))
    np.testing.assert_array_equal(layer(x.swapaxes(0, 1).copy(), layout="TBE", causal=True), y.swapaxes(0, 1))
    np.testing.assert_array_equal(layer(x[0], causal=True), y[0])
    with pytest.raises(ValueError, match="query: expected the axes"):
        layer(x, layout="TE")
    with pytest.raises(ValueError, match=r"query: expected shape \(2, 5, 48\), found \(2, 5, 7\)"):
        layer(rows(E=7))
    with pytest.raises(ValueError, match="value: expected None without key"):
        layer(x, None, x)


def test_weights_are_read_only_and_outlive_the_layer():
    layer = mha.MultiHeadAttention(16, 2)
    w = layer.weights["W_Q"]
    with pytest.raises(ValueError, match="read-only"):
        w[0, 0] = 1
    layer.set("W_Q", np.asfortranarray(np.arange(256.0).reshape(16, 16)))
    assert w[0, 1] == 1
    del layer
    import gc
    gc.collect()
    assert w.sum() == sum(range(256))
    with pytest.raises(ValueError, match="W_Q: expected shape"):
        mha.MultiHeadAttention(16, 2).set("W_Q", np.zeros((16, 15)))
    with pytest.raises(LookupError, match="sinks"):
        mha.MultiHeadAttention(16, 2).set("sinks", np.zeros(2))
    with pytest.raises(ValueError, match="name: expected a weight with a part for head 0, found 'b_O'"):
        mha.MultiHeadAttention(16, 2).head("b_O", 0)


def test_a_layer_says_which_weights_are_random():
    layer = mha.MultiHeadAttention(8, 2, bias=False, seed=4, causal=True)
    assert repr(layer).endswith("256 parameters, causal=True, random weights (seed 4)>")
    for name in ("W_Q", "W_K"):
        layer.set(name, np.ones((8, 8), "f4"))
    assert repr(layer).endswith(", random W_V, W_O (seed 4)>")
    for name in ("W_V", "W_O"):
        layer.set(name, np.ones((8, 8), "f4"))
    assert "random" not in repr(layer)
    layer.init(5)
    assert repr(layer).endswith(", random weights (seed 5)>")
    assert "random" not in repr(mha.MultiHeadAttention(8, 2, seed=None))
    assert "random" not in repr(mha.MultiHeadAttention.from_file(f"{LOOKUP}/model.safetensors", n_heads=6))


def test_packing_follows_the_weights():
    layer, x = mha.MultiHeadAttention(48, 6), rows()
    layer.pack()
    before = layer(x, path="fast")
    layer.set("W_V", np.zeros((48, 48)))
    assert not np.array_equal(layer(x, path="fast"), before)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "q8_0"])
def test_packed_weights_are_there_once(dtype):
    """Rows, names, bytes and numbers are those of a layer that is not packed; views stay what they were."""
    plain, layer = (mha.MultiHeadAttention(64, 4, dtype=dtype, seed=3) for _ in range(2))
    x = rows(E=64)
    layer.pack()
    once = dtype not in ("float64", "q8_0")
    assert (layer.totals.derived_bytes == 0) == once
    assert [row[:11] for row in layer.parameters()] == [row[:11] for row in plain.parameters()]
    assert [row.packed_bytes > 0 for row in layer.parameters()] == [True, False] * 4
    assert not any(row.packed_bytes for row in plain.parameters())
    before = layer(x, path="fast")
    for name, values in plain.weights.items():
        assert np.array_equal(layer.weights[name], values)
    assert np.array_equal(layer.head("W_K", 1), plain.head("W_K", 1))
    assert layer.totals.derived_bytes > 0
    kept = layer.weights["W_Q"]
    layer.pack()
    assert np.array_equal(kept, plain.weights["W_Q"]) and np.array_equal(layer(x, path="fast"), before)
    assert np.array_equal(layer(x, path="exact"), plain(x, path="exact"))


def test_parameters():
    layer = mha.MultiHeadAttention(48, 6, sinks=True)
    table = layer.parameters()
    assert table.totals.parameters == 4 * (48 * 48 + 48) + 6 == sum(p.elements for p in table)
    assert [p.name for p in table][:2] == ["W_Q", "b_Q"] and table[0].shape == (48, 48)
    assert table.to_dicts()[0]["elements"] == 2304 and "9,414 parameters" in str(table) and len(table) == 9
    assert "<td>W_Q</td>" in table._repr_html_()
    inert = mha.MultiHeadAttention(48, 6).parameters()
    assert inert.totals.inert == 48 and {p.name: p.inert for p in inert}["b_K"] == 48
    assert mha.MultiHeadAttention(48, 6, rope=mha.Rope()).parameters().totals.inert == 0
    hostile = mha.Table(["<b>"], [["<script>\x1b[31m"]])
    assert "<script>" not in hostile._repr_html_() and "\x1b" not in str(hostile)


def test_relative_terms():
    """Tables of the layer, by the cells of a grid; with tables for each head they count as much more."""
    layer = mha.MultiHeadAttention(16, 4, relative_k_rows=3, relative_column_rows=5, seed=3,
                                   relative=mha.Relative("grid", height=2, width=3, k_scale=1.0))
    x, tables = rows(2, 6, 16), [np.arange(n * 4.0).reshape(n, 4) / 8 for n in (3, 5)]
    layer.set("relative_k", tables[0])
    layer.set("relative_columns", tables[1])
    assert layer.config["relative_k_rows"] == 3 and layer.parameters().totals.parameters == 4 * (16 * 16 + 16) + 32
    _, trace = layer(x, return_stages=("q", "k", "v", "weights"), path="exact")
    q, k, v = (trace[name].reshape(2, 6, 4, 4).swapaxes(1, 2) for name in "qkv")
    expected = oracle.attention(q, k, v, relative=mha.Relative("grid", *tables, height=2, width=3, k_scale=1.0))[2]
    np.testing.assert_allclose(trace["weights"], expected, rtol=1e-5)
    assert not np.array_equal(layer(x), layer(x, relative=None))
    by_head = mha.MultiHeadAttention(16, 4, relative_q_rows=4, relative_by_head=True)
    assert by_head.parameters().totals.parameters == 4 * (16 * 16 + 16) + 4 * 16


def test_position_bias():
    """A table of the layer is added by the layer's own rule; windows of a shifted image are segments."""
    layer = mha.MultiHeadAttention(16, 4, bias_rows=9, seed=3, position_bias=mha.Bias("grid", height=2, width=2))
    x, table = rows(2, 4, 16), np.arange(36.0).reshape(9, 4) / 8
    layer.set("bias_table", table)
    assert layer.config["bias_rows"] == 9 and layer.parameters().totals.parameters == 4 * (16 * 16 + 16) + 36
    _, trace = layer(x, return_stages=("q", "k", "v", "weights"), path="exact")
    q, k, v = (trace[name].reshape(2, 4, 4, 4).swapaxes(1, 2) for name in "qkv")
    expected = oracle.attention(q, k, v, bias=mha.Bias("grid", table, height=2, width=2))[2]
    np.testing.assert_allclose(trace["weights"], expected, rtol=1e-5)
    assert not np.array_equal(layer(x), layer(x, position_bias=None))
    segments = mha.window_segments(4, 6, 2, 1)
    assert segments.shape == (6, 4) and segments[0].tolist() == [0] * 4 and segments[-1].tolist() == [4, 5, 7, 8]
    for sizes, name in (((4, 6, 2, 2), "shift"), ((4, 6, 0, 0), "window"), ((0, 6, 2, 1), "height"),
                        ((4, 6, -2, 1), "window"), ((2**40, 2**40, 1, 0), "height")):
        with pytest.raises(ValueError, match=f"^{name}"):
            mha.window_segments(*sizes)


def test_cache_of_8_bits():
    rng = np.random.default_rng(3)
    keys, values = rng.standard_normal((2, 1, 3, 5, 8), dtype=np.float32)
    cache, floats = mha.Cache(1, 3, 8, 6, dtype="int8"), mha.Cache(1, 3, 8, 6)
    cache.load(keys, values)
    assert cache.dtype == "int8" and cache.nbytes == 2 * 3 * 6 * (8 + 4) and cache.keys.dtype == np.float32
    scale = np.abs(keys).max(-1, keepdims=True) / np.float32(127)
    np.testing.assert_array_equal(cache.keys, np.rint(keys / scale) * scale)
    floats.load(cache.keys, cache.values)
    layer = mha.MultiHeadAttention(24, 3)
    x = rng.standard_normal((1, 1, 24), dtype=np.float32)
    assert np.abs(layer(x, cache=cache) - layer(x, cache=floats)).max() < 0.1 and len(cache) == 6
    with pytest.raises(TypeError, match="float32, float16, bfloat16"):
        mha.Cache(1, 3, 8, 6, dtype="int16")


def test_cache():
    """Decoding token by token gives what the whole sequence gives, within rounding; positions count on."""
    layer = mha.MultiHeadAttention(48, 6, kv_heads=3, causal=True, rope=mha.Rope("half_split"))
    x = rows(T=7)
    whole = layer(x, path="exact", out_dtype="float64")
    cache = layer.cache(2, 7, dtype="float64")
    steps = [layer(x[:, :3], cache=cache, path="exact", out_dtype="float64")]
    steps += [layer(x[:, t:t + 1], cache=cache, path="exact", out_dtype="float64") for t in range(3, 7)]
    np.testing.assert_allclose(np.concatenate(steps, 1), whole, rtol=1e-12, atol=1e-13)
    assert len(cache) == 7 and cache.keys.shape == (2, 3, 7, 8) and cache.first == 0
    with pytest.raises(ValueError):
        layer(x[:, :1], cache=cache, path="exact")
    other = layer.cache(2, 9)
    other.load(cache.keys, cache.values)
    assert len(other) == 7
    other.truncate(2)
    np.testing.assert_allclose(layer(x[:, 2:3], cache=other), whole[:, 2:3], rtol=1e-4, atol=1e-5)
    other.clear()
    assert len(other) == 0 and other.keys.shape == (2, 3, 0, 8)
    with cache, pytest.raises(RuntimeError, match="found it in use by another thread"):
        layer(x, cache=cache)
    with pytest.raises(TypeError, match="cache: expected mha.Cache"):
        layer(x, cache={})
    with pytest.raises(ValueError, match="window"):
        mha.Cache(1, 1, 8, 4, window=5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
def test_a_cache_that_continues_another_has_the_bits_of_caches_with_copies(dtype):
    path = "exact" if dtype == "float64" else "fast"
    layer = mha.MultiHeadAttention(256, 2, causal=True, rope=mha.Rope("half_split"))
    rng = np.random.default_rng(5)
    prompt, step, after = (rng.standard_normal((b, t, 256), dtype=np.float32) for b, t in ((1, 300), (4, 3), (4, 1)))
    trunk, whole = layer.cache(1, 300, dtype=dtype), layer.cache(4, 304, dtype=dtype)
    layer(prompt, cache=trunk, path=path)
    layer(np.repeat(prompt, 4, 0), cache=whole, path=path)
    beams = trunk.continued(4, 4)
    assert len(beams) == 300 and 0 < beams.shared < 300 and beams.nbytes < whole.nbytes
    np.testing.assert_array_equal(layer(step, cache=beams, path=path), layer(step, cache=whole, path=path))
    for cache in (beams, whole):
        cache.reorder([1, 1, 3, np.int64(0)])
    np.testing.assert_array_equal(layer(after, cache=beams, path=path), layer(after, cache=whole, path=path))
    np.testing.assert_array_equal(beams.keys, whole.keys)
    np.testing.assert_array_equal(beams.values, whole.values)
    beams.clear()
    assert len(beams) == 300
    for order, error in (([0, 1], ValueError), ([0, 1, 2, 4], ValueError), ([0, 1, 2, -1], ValueError),
                         ([0, 1, 2, 1.5], TypeError)):
        with pytest.raises(error, match="order|sequence 3"):
            beams.reorder(order)
    trunk.truncate(299)
    with pytest.raises(ValueError, match="lost or replaced rows"):
        layer(after, cache=beams, path=path)
    with pytest.raises(ValueError, match="more than|bytes"):
        trunk.continued(1, 2**63 - 1)


def test_settings_of_a_layer_hold_unless_a_call_says_otherwise():
    x = rows()
    plain, causal = mha.MultiHeadAttention(48, 6), mha.MultiHeadAttention(48, 6, causal=True)
    np.testing.assert_array_equal(causal(x), plain(x, causal=True))
    np.testing.assert_array_equal(causal(x, causal=False), plain(x))


def test_from_file():
    recorded = mha.load(f"{LOOKUP}/recorded.safetensors")
    layer = mha.MultiHeadAttention.from_file(f"{LOOKUP}/model.safetensors", n_heads=6, causal=True)
    y, trace = layer(recorded["input"], path="exact", out_dtype="float64", return_stages=["weights"])
    np.testing.assert_allclose(y, recorded["output64"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(trace["weights"], recorded["weights64"], rtol=0, atol=1e-13)
    with pytest.raises(LookupError, match="no.such"):
        mha.MultiHeadAttention.from_file(f"{LOOKUP}/model.safetensors", "no.such", n_heads=6)
    with pytest.raises(mha.NotFoundError):
        mha.MultiHeadAttention.from_file("/no/such/file", n_heads=6)


def test_from_file_with_a_config(tmp_path):
    """What a config.json says becomes the layer's settings, and a call can unsay it."""
    import json
    config = {"model_type": "llama", "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2,
              "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 10, "rope_theta": 500.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = {f"model.layers.0.self_attn.{n}_proj.weight": R.standard_normal((m, 48)).astype("f4") / 7
               for n, m in (("q", 48), ("k", 16), ("v", 16), ("o", 48))}
    mha.save(tmp_path / "model.safetensors", weights)
    layer = mha.MultiHeadAttention.from_file(tmp_path / "model.safetensors", config=tmp_path / "config.json")
    assert layer.settings["causal"] is True and layer.settings["rope"].base == 500.0
    assert layer.config["kv_heads"] == 2
    x = rows()
    other = mha.MultiHeadAttention(48, 6, kv_heads=2, bias=False, seed=None)
    for name, n in zip("QKVO", "qkvo"):
        other.set(f"W_{name}", weights[f"model.layers.0.self_attn.{n}_proj.weight"].T)
    rope = mha.Rope("half_split", 0, 500.0)
    np.testing.assert_array_equal(layer(x), other(x, causal=True, rope=rope, norm_eps=layer.settings.get("norm_eps")))


def test_every_field_is_a_keyword():
    layer = mha.MultiHeadAttention(8, 2, bias=False, bias_k=True, bias_o=True, kv_heads=None)
    assert {"b_K", "b_O"} < set(layer.weights) and {"b_Q", "b_V"}.isdisjoint(layer.weights)
    latent = mha.MultiHeadAttention(8, 2, kv_rank=3, d_rope=2, bias_latent=False)
    assert latent.config["bias_o"] and not latent.config["bias_latent"] and not latent.config["bias_q"]
    assert mha.MultiHeadAttention(**{**layer.config, "dtype": "float16"}).config == {
        **layer.config, "dtype": "float16"}


def test_wrong_sizes():
    for words, said in (("d_model|heads", {"d_model": 10, "n_heads": 3}), ("d_model", {"d_model": 0}),
                        ("n_heads", {"n_heads": -2}), ("d_model", {"d_model": 8.0}), ("kv_heads", {"kv_heads": 3}),
                        ("d_k", {"d_model": 2**40}), ("dtype", {"dtype": "int8"}), ("bias", {"bias": 3}),
                        ("q_norm", {"q_norm": "all"}), ("seed", {"seed": -1})):
        with pytest.raises((ValueError, TypeError), match=words):
            mha.MultiHeadAttention(**{"d_model": 8, "n_heads": 2, **said})
    with pytest.raises(TypeError, match="casual: expected a name of mha.SETTINGS, found 'casual'; use causal"):
        mha.MultiHeadAttention(8, 2, casual=True)(rows(E=8))


def test_stretched_rotation():
    """YaRN: the slow pairs turn F times slower, the fast ones as before, and rotated features grow."""
    rope = mha.Rope.scaled("yarn", 8, 4.0, 64)
    assert rope.dim == 8 and rope.attention_factor == pytest.approx(0.1 * np.log(4) + 1)
    np.testing.assert_allclose(rope.frequencies[[0, 3]], [1, 0.001 / 4])
    x, y = R.standard_normal((2, 1, 5, 2, 8)).astype("f4")
    tables = np.arange(5)[:, None] * rope.frequencies
    other = mha.Rope(dim=8, cos=rope.attention_factor * np.cos(tables), sin=rope.attention_factor * np.sin(tables))
    found, expected = (mha.attention(x, y, y, rope=r, layout="BTHD", path="exact") for r in (rope, other))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    swapped, back = np.roll(x, 4, -1), mha.Rope("half_split", 4, last=True)
    moved = mha.attention(swapped, np.roll(y, 4, -1), y, rope=back, layout="BTHD", path="exact")
    whole = mha.attention(x, y, y, rope=mha.Rope(dim=4), layout="BTHD", path="exact")
    np.testing.assert_allclose(moved, whole, rtol=1e-6, atol=1e-6)
    factors = {"short_factors": [1, 2], "long_factors": [2, 4]}
    assert mha.Rope.scaled("longrope", 4, 2, 8, length=9, **factors).frequencies[1] == pytest.approx(0.0025)
    for said, words in (("scaling", {"scaling": "ntk"}), ("factor", {"scaling": "linear", "factor": 0.5}),
                        ("numbers: expected", {"scaling": "linear", "beta": 1}), ("short", {"short_factors": [1]})):
        with pytest.raises((ValueError, TypeError), match=said):
            mha.Rope.scaled(**{"scaling": "longrope", "dim": 4, "factor": 2.0, "original_length": 8, **words})


def test_rotation_and_window_of_each_layer(tmp_path):
    """Layers of one config.json that differ: a window in every second layer of Gemma 2, YaRN in all of them."""
    import json
    config = {"model_type": "gemma2", "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2,
              "head_dim": 16, "num_hidden_layers": 2, "intermediate_size": 8, "vocab_size": 9, "sliding_window": 3,
              "max_position_embeddings": 8, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = {f"model.layers.{i}.self_attn.{n}_proj.weight": R.standard_normal((32, 32)).astype("f4") / 6
               for i in range(2) for n in "qkvo"}
    mha.save(tmp_path / "model.safetensors", weights)
    rope = mha.Rope.scaled("yarn", 16, 4.0, 8)
    x = rows(E=32)
    for i, window in ((0, (2, -1)), (1, None)):
        layer = mha.MultiHeadAttention.from_file(tmp_path / "model.safetensors", layer=f"model.layers.{i}.self_attn",
                                                 config=tmp_path / "config.json")
        plain = mha.MultiHeadAttention.from_file(tmp_path / "model.safetensors", layer=f"model.layers.{i}.self_attn",
                                                 n_heads=2)
        expected = plain(x, causal=True, rope=rope, window=window, softcap=50.0, scale=1 / 16)
        np.testing.assert_array_equal(layer(x), expected)
        assert ("window" in layer.settings) == (window is not None)


@pytest.mark.parametrize("name", ["q8_0", "q4_0"])
def test_quantised_weights_give_the_bits_of_their_values(name):
    """Matrices in blocks; what they hold is read as float32, and a layer of these floats computes the same."""
    layer = mha.MultiHeadAttention(64, 2, dtype=name, d_out=5, seed=3)
    assert layer.config["dtype"] == name
    assert layer.totals.parameters == 3 * (64 * 64 + 64) + 64 * 5 + 5
    floats = mha.MultiHeadAttention(64, 2, d_out=5)
    for key, values in layer.weights.items():
        assert values.dtype == np.float32 and not values.flags.writeable
        floats.set(key, values)
    x = np.random.default_rng(1).standard_normal((2, 3, 64)).astype(np.float32)
    assert np.array_equal(layer(x), floats(x))
    assert np.array_equal(layer.head("W_Q", 1), floats.weights["W_Q"][:, 32:])
    layer.set("W_V", floats.weights["W_V"] * 3)
    assert np.abs(layer.weights["W_V"] / 3 - floats.weights["W_V"]).max() < {"q8_0": 1e-2, "q4_0": 1e-1}[name]
    with pytest.raises(ValueError, match=f"blocks of 32 for {name.upper()}"):
        mha.MultiHeadAttention(48, 2, dtype=name)
    with pytest.raises(TypeError, match="q8_0"):
        layer.cache(1, 4, dtype="q8_0")


def test_positions_of_several_axes():
    x = np.random.default_rng(3).normal(size=(2, 5, 32)).astype(np.float32)
    layer = mha.MultiHeadAttention(32, 2, seed=5)
    places = np.arange(5)
    plain, _ = layer(x, rope=mha.Rope(), causal=True)
    text, _ = layer(x, rope=mha.Rope.by_axes([places] * 3, [2, 3, 3]), causal=True)
    assert np.abs(text - plain).max() < 1e-5 * np.abs(plain).max()  # text has one position for all axes
    image = mha.Rope.by_axes([places // 2, places % 2], [4, 4], "dealt", base=100.0)
    assert image.cos.shape == (1, 5, 8) and image.dim == 16
    # The second pair of the second axis; the cosines of two libraries may differ by their last bit.
    assert abs(image.cos[0, 3, 5] - np.cos(places[3] % 2 * 100.0 ** (-3 / 8))) <= 2.0**-53
    each = mha.Rope.by_axes(np.stack([np.stack([places, places + 1])] * 2), [3, 5], "repeated")
    assert abs(each.sin[1, 0, 3] - np.sin(1.0)) <= 2.0**-53
    tilted = mha.Rope.by_axes([places % 3, places // 2], [3, 5], frequencies=[1 / (i + 1) for i in range(8)])
    found = mha.diagnose(layer(x, rope=mha.Rope.by_axes([places // 2, places % 3], [3, 5],
                                                        frequencies=tilted.origin[3])), x, layer=layer, rope=tilted)
    assert found.names == ["rope-axes-swapped"]
    for wrong in (dict(sections=[1] * 5), dict(sections=[]), dict(order="blocked"), dict(positions=[places] * 3),
                  dict(frequencies=[1.0]), dict(order="dealt", sections=[3, 5]), dict(base=0), dict(base=np.inf),
                  dict(frequencies=[1.0] * 7 + [np.nan]), dict(attention_factor=0.0),
                  dict(sections=[2**40, 1]), dict(positions=[places + 0.5] * 2),
                  dict(positions=np.full((2, 5), 2**64 - 1, np.uint64))):
        with pytest.raises((ValueError, TypeError)):
            mha.Rope.by_axes(**{"positions": [places] * 2, "sections": [4, 4], **wrong})


@pytest.mark.parametrize("origin, words", [
    ((1, 2), "of Rope.by_axes, found"), (("blocks", [1] * 5, np.zeros((5, 4), "i8"), None), "found 5")])
def test_an_origin_that_by_axes_does_not_give_is_refused(origin, words):
    x = np.zeros((1, 1, 4, 8), "f4")
    with pytest.raises((TypeError, ValueError), match=words):
        mha.scaled_dot_product_attention(x, x, x, rope=mha.Rope("half_split", 8, origin=origin))


def test_wrong_splits_of_a_fused_matrix_have_names():
    """Heads 4 on 2 of width 8 in one matrix of 64 rows, as blocks q|k|v or as (q, q, k, v) of each group: the layout is
    that of the model, whatever the quantisation. Thirds, as chunk(3) takes them, have no whole heads."""
    R = np.random.default_rng(5)
    fused, w_o = R.normal(size=(64, 32)) / 4, R.normal(size=(32, 32)) / 4
    x = R.normal(size=(2, 9, 32)).astype("f4")
    grouped = fused.reshape(2, 4, 8, 32)
    blocks, turned = (fused[:32], fused[32:48], fused[48:]), (fused[:32], fused[48:], fused[32:48])
    groups = grouped[:, :2].reshape(32, 32), grouped[:, 2].reshape(16, 32), grouped[:, 3].reshape(16, 32)

    def layer(q, k, v):
        made = mha.MultiHeadAttention(32, 4, kv_heads=2, bias=False)
        for name, w in (("W_Q", q.T), ("W_K", k.T), ("W_V", v.T), ("W_O", w_o)):
            made.set(name, w.astype("f4"))
        return made
    for right, wrong, name in ((blocks, groups, "packed-interleaved"), (groups, blocks, "packed-blocks"),
                               (blocks, turned, "order-qvk")):
        found = mha.diagnose(layer(*wrong)(x, causal=True), x, layer=layer(*right), causal=True)
        assert found.names == [name], found.sentence
    with pytest.raises(ValueError, match="22"):
        mha.MultiHeadAttention(32, 4, kv_heads=2, bias=False).set("W_Q", np.array_split(fused.T, 3, axis=1)[0])
