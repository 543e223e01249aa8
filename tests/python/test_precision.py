"""precision="bfloat16": rounded where numpy, by hand, rounds; checked as a kernel of that type; refused elsewhere."""
import mha
import numpy as np
import pytest
from mha import testing

R = np.random.default_rng(3)
PATHS = ("fast", "blas", "exact")


def rounded(x):
    """To bfloat16, by hand."""
    bits = np.asarray(x, "f4").view("u4").astype("u8")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype("u4").view("f4").astype("f8")


def heads(T_q=19, S=33):
    return [R.standard_normal(s).astype("f4") for s in ((2, 4, T_q, 16), (2, 4, S, 16), (2, 4, S, 16))]


def kernel(q, k, v):
    """A fused kernel in float64, rounded at the points."""
    q, k, v = (rounded(x) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / 4
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return rounded(rounded(p) @ v / p.sum(-1, keepdims=True))


@pytest.mark.parametrize("path", PATHS)
def test_heads(path):
    q, k, v = heads()
    said = {"precision": "bfloat16", "path": path}
    mine, theirs = mha.scaled_dot_product_attention(q, k, v, **said), kernel(q, k, v)
    assert mine.dtype == np.float32 and np.array_equal(rounded(mine), mine)
    assert np.array_equal(mine, theirs) or path != "exact"
    testing.assert_attention_close(mine, q, k, v, dtype="bfloat16")
    assert not mha.check(mine, q, k, v).passed
    again = mha.scaled_dot_product_attention(q, k, v, **said)  # a kept call rounds, too, and others do not
    plain = mha.scaled_dot_product_attention(q, k, v, path=path)
    assert np.array_equal(again, mine) and not np.array_equal(plain, mine)
    rows = [x.swapaxes(1, 2) for x in (q, k, v)]
    flash = mha.attention(*rows, layout="BTHD", **said)
    assert np.array_equal(flash.swapaxes(1, 2), mine)


@pytest.mark.parametrize("path", PATHS)
def test_layer_and_cache(path):
    layer = mha.MultiHeadAttention(32, 4, dtype="bfloat16")
    x = R.standard_normal((2, 9, 32)).astype("f4")
    said = {"precision": "bfloat16", "path": path, "causal": True}
    y = layer(x, **said)
    assert np.array_equal(rounded(y), y)
    testing.assert_attention_close(y, x, layer=layer, dtype="bfloat16", causal=True)
    cache = layer.cache(2, 9, dtype="bfloat16")
    parts = [layer(x[:, :5], cache=cache, **said), layer(x[:, 5:], cache=cache, **said)]
    assert np.array_equal(np.concatenate(parts, 1), y)


def test_points_on_the_exact_path():
    """A dict names single points, a type those of a fused kernel."""
    q, k, v = heads()
    call = mha.scaled_dot_product_attention
    fused = {"inputs": "bfloat16", "weights": "bfloat16", "rows": "bfloat16", "probabilities": "bfloat16",
             "output": "bfloat16"}
    for given in (fused, "bf16"):
        assert np.array_equal(call(q, k, v, path="exact", precision=given),
                              call(q, k, v, path="exact", precision="bfloat16"))
    only = call(q, k, v, path="exact", precision={"output": "bfloat16"}, out_dtype="float64")
    assert np.array_equal(only, rounded(call(q, k, v, path="exact", out_dtype="float64")))
    assert np.array_equal(call(q, k, v, precision="float32"), call(q, k, v))


def test_pages():
    q, k, v = (x.swapaxes(1, 2) for x in heads(T_q=3, S=12))
    pools = [np.ascontiguousarray(x.reshape(6, 4, 4, 16)) for x in (k, v)]
    table, lengths = np.arange(6).reshape(2, 3), [12, 12]
    model = mha.paged_attention(q, *pools, table, lengths, layout="BTHD", causal=False, path="exact",
                                precision="bfloat16")
    assert np.array_equal(model, mha.attention(q, k, v, layout="BTHD", path="exact", precision="bfloat16"))
    with pytest.raises(mha.Error, match="page keys: expected BF16 for products of BF16, found F32"):
        mha.paged_attention(q, *pools, table, lengths, layout="BTHD", causal=False, precision="bfloat16")


def test_refused():
    q, k, v = heads()
    for precision, kind, words in (("float16", mha.Error, "precision: expected BF16 on the fast path"),
                                   ({"rows": "bfloat16"}, mha.Error, "precision: expected BF16"),
                                   ("float64", TypeError, "precision: expected float32, float16, bfloat16"),
                                   (16, TypeError, "precision: expected float32"),
                                   ({"softmax": "float16"}, ValueError, "precision: expected one of inputs, weights")):
        with pytest.raises(kind, match=words):
            mha.scaled_dot_product_attention(q, k, v, precision=precision)
    layer, x = mha.MultiHeadAttention(32, 4), np.zeros((1, 3, 32), "f4")
    with pytest.raises(mha.Error, match="W_Q: expected BF16 for products of BF16, found F32"):
        layer(x, precision="bfloat16")
    half = mha.MultiHeadAttention(32, 4, dtype="bfloat16")
    with pytest.raises(mha.Error, match="cache: expected BF16 for products of BF16, found F32"):
        half(x, precision="bfloat16", cache=half.cache(1, 3))
