"""Changes that no known bug makes, written in NumPy: the diagnosis says each."""

import numpy as np
import pytest

import mha

B, H, H_KV, T, D = 2, 4, 2, 26, 8
DRAWN = np.random.default_rng(7)
Q, K, V = (DRAWN.standard_normal((B, h, T, D)).astype("f4") for h in (H, H_KV, H_KV))
KEEP = DRAWN.random((B, H, T, T)) < 0.7
KEEP[..., 0] = True
KEY_MASK = DRAWN.random((B, 1, 1, T)) < 0.7
SINKS = DRAWN.standard_normal(H)
SEGMENTS = np.repeat([[0, 1, 2]], B, 0).repeat([7, 9, 10], 1)
LISTS = np.stack([DRAWN.permutation(T)[:9] for _ in range(B * H * T)]).reshape(B, H, T, 9).astype("i8")
i, j = np.arange(T)[:, None], np.arange(T)
CAUSAL = j <= i
HEADS = np.arange(H)


def attend(seen, q=Q, k=K, v=V, factor=1.0, added=0.0, sinks=None, extra=0.0, kept=lambda p: p):
    """The output; `factor` of scores, `extra` in the sum of exp(s - maximum)."""
    k, v = (x.repeat(H // x.shape[1], 1).astype("f8") for x in (k, v))
    s = np.where(seen, q @ k.swapaxes(2, 3) / np.sqrt(D) * factor + added, -np.inf)
    most = s.max(-1, keepdims=True)
    most = np.where(np.isfinite(most), most, 0)
    e = np.exp(s - most)
    total = e.sum(-1, keepdims=True) + extra
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - most)
    return kept(e / np.where(total > 0, total, 1)) @ v


def lists(some):
    seen = np.zeros((B, H, T, T), bool)
    np.put_along_axis(seen, some, True, -1)
    return seen


def at_pitch(mask, pitch):
    """Rows of a mask that begin so many bits apart; False past the end."""
    flat = np.append(mask[0, 0].ravel(), False)
    return flat[np.minimum(i * pitch + j, flat.size - 1)]


def written_apart(o, pitch):
    memory = np.zeros((B, H, T * pitch))
    memory[..., i * pitch + np.arange(D)] = o
    return memory[..., : T * D].reshape(o.shape)


def paged(x):
    """Rows 16 to 25 of batch row 0 are the first ones of batch row 1."""
    return np.stack([np.append(x[0, :, :16], x[1, :, :10], 1), x[1]])


def tiled(x, n):
    """Each whole tile of n rows and columns transposed."""
    y = x.copy()
    for t in range(0, x.shape[-2] - n + 1, n):
        for c in range(0, x.shape[-1] - n + 1, n):
            y[..., t : t + n, c : c + n] = x[..., t : t + n, c : c + n].swapaxes(-2, -1)
    return y


def bf16(x):
    bits = np.asarray(x, "f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("u4").view("f4")


def strided(tensors, of, strides):
    """One of fused tensors, (B, T, tensors, h, d), read with other strides of batch row, row, head; 0 past the end."""
    flat = np.stack(tensors, 1).transpose(0, 3, 1, 2, 4).ravel()
    n = tensors[of].shape
    b, g, t, f = np.ogrid[: n[0], : n[1], : n[2], : n[3]]
    at = of * n[1] * n[3] + b * strides[0] + t * strides[1] + g * strides[2] + f
    return np.where(at < flat.size, flat[np.minimum(at, flat.size - 1)], 0)


def in_tiles(q, k, v, tile, forgets):
    """Online softmax; `forgets`: rescaling by less than e, or the sum of the last tile."""
    k, v = (x.repeat(H // x.shape[1], 1).astype("f8") for x in (k, v))
    s = q @ k.swapaxes(2, 3) / np.sqrt(D)
    most, total, o = np.full((B, H, T, 1), -np.inf), 0.0, 0.0
    for first in range(0, T, tile):
        x = s[..., first : first + tile]
        greater = np.maximum(most, x.max(-1, keepdims=True))
        factor = np.exp(most - greater)
        factor = np.where(greater - most < 1, 1, factor) if forgets == "factors" else factor
        e = np.exp(x - greater)
        lost = forgets == "sum" and first + tile >= T
        total = total * factor + (0 if lost else e.sum(-1, keepdims=True))
        o, most = o * factor + e @ v[:, :, first : first + tile], greater
    return o / total


def wrapped(x):
    """8 bits with a divisor of 128: the largest positive number of a row becomes negative."""
    scale = abs(x).max(-1, keepdims=True) / 128
    code = np.rint(x / scale)
    return np.where(code == 128, -128, code) * scale


def behind(x, n):
    """Rows of heads, and the n features that lie behind each in (T, h, d); 0 past the end."""
    flat = np.pad(x.swapaxes(1, 2).reshape(B, -1), ((0, 0), (0, n)))
    at = (np.arange(T) * x.shape[1] + np.arange(x.shape[1])[:, None])[..., None] * D + np.arange(D + n)
    return flat[:, at]


ANY = np.ones((T, T), bool)
SLOPES = 2.0 ** -np.arange(1, 5) / 3
TABLE = DRAWN.standard_normal((3 * 25, H))  # of a grid of 2 x 13 cells
CELLS = np.stack(np.divmod(np.arange(T), 13))
APART = CELLS[:, :, None] - CELLS[:, None] + [[[1]], [[12]]]
FUSED = np.stack([K, V], 2).reshape(B, 2 * H_KV, T, D)
WINDOW = CAUSAL & (j >= i - 6)
ODD = np.array([0, 1, 0, 1], bool)[:, None, None]
SAYS = {  # the settings, the wrong output
    "mask: heads of the mask read by the number of their tile of 2": (
        dict(attn_mask=KEEP),
        attend(KEEP[:, HEADS // 2]),
    ),
    "memory: rows of the mask read 32 keys apart": (dict(attn_mask=KEEP[:1, :1]), attend(at_pitch(KEEP, 32))),
    "softmax: heads of the sinks read by the number of their tile of 2, in batch row 1, heads 1-3": (
        dict(sinks=SINKS),
        np.stack([attend(ANY, sinks=SINKS)[0], attend(ANY, sinks=SINKS[HEADS // 2])[1]]),
    ),
    "visibility: rows of segments of k read one row early": (
        dict(q_segments=SEGMENTS, k_segments=SEGMENTS),
        attend(SEGMENTS[0][:, None] == np.append(SEGMENTS[0][1:], 2)),
    ),
    "visibility: rows of segments of q read the first of each tile of 4 each time": (
        dict(q_segments=SEGMENTS, k_segments=SEGMENTS),
        attend(SEGMENTS[0][i // 4 * 4] == SEGMENTS[0]),
    ),
    "causal: rows of 2 query heads packed, compared with keys as packed": (
        dict(causal=True),
        attend(j <= i * 2 + (HEADS % 2)[:, None, None]),
    ),
    "=chunk-from-0": (
        dict(causal=True, chunk=8, offset=3),
        attend((j <= i + 3) & (j // 8 == i // 8)),
    ),
    "key lists without their last 1 entries": (
        dict(key_lists=LISTS),
        attend(lists(LISTS[..., :8])),
    ),
    "window times 0.5 on each side, in heads 1 and 3": (
        dict(window_left=6, window_right=6),
        attend(np.where(ODD, abs(i - j) <= 3, abs(i - j) <= 6)),
    ),
    "visibility: no window in tile 1 of 8 keys": (
        dict(causal=True, window_left=6),
        attend(WINDOW | (CAUSAL & (j // 8 == 1))),
    ),
    "visibility: query tiles of 8 have no window in the first of their key tiles of 4": (
        dict(causal=True, window_left=6),
        attend(WINDOW | (CAUSAL & (j // 4 == np.maximum(i // 8 * 8 - 6, 0) // 4))),
    ),
    "values: rows of v begin earlier, to fill a tile of 16, the last alone, in heads 2-3": (
        {},
        np.where(HEADS[:, None, None] < 2, attend(ANY), attend(ANY, v=V[:, :, np.where(j < 16, j, j - 6)])),
    ),
    "scores: scaled twice in tile 1 of 16 keys": ({}, attend(ANY, factor=np.where(j >= 16, 1 / np.sqrt(D), 1))),
    "weights rounded to bfloat16 from tile 1 of 16 keys on": (
        dict(causal=True),
        attend(CAUSAL, kept=lambda p: np.where(j >= 16, bf16(p), p)),
    ),
    "softmax: 1 added to the sum of exp(s - maximum), in rows 24-25": (
        dict(softmax_plus_one=True),
        np.where(i[:, :1] < 24, attend(ANY, sinks=np.zeros(H)), attend(ANY, extra=1)),
    ),
    "log-n: the number of keys in the place of positions": (
        dict(causal=True, log_n_scale=4, offset=0),
        attend(CAUSAL, factor=np.log(T) / np.log(4)),
    ),
    "projections: heads in the order k, v, k, v read as k, k, v, v": (
        {},
        attend(ANY, k=FUSED[:, :H_KV], v=FUSED[:, H_KV:]),
    ),
    "memory: rows of the output written 16 features apart in each head, read back to back": (
        {},
        written_apart(attend(ANY), 16),
    ),
    "memory: last 10 rows of k and v are the first of the next batch row": ({}, attend(ANY, k=paged(K), v=paged(V))),
    "memory: first 8 rows of k of batch row 0 are those of batch row 1": (
        dict(causal=True),
        attend(CAUSAL, k=np.stack([np.append(K[1, :, :8], K[0, :, 8:], 1), K[1]])),
    ),
    "scores: features of q read each tile of 2 in the place of its neighbour, in rows 4-7 and 20-23": (
        dict(causal=True),
        attend(CAUSAL, q=np.where(i % 16 // 4 == 1, Q[..., np.arange(D) ^ 2], Q)),
    ),
    "memory: k and v in (B, T, 2, h, d), strides of rows as of 1 tensors": (
        {},
        attend(ANY, k=strided((K, V), 0, (2 * T * 16, 16, D)), v=strided((K, V), 1, (2 * T * 16, 16, D))),
    ),
    "memory: k and v in (B, T, h, d), strides of rows as of 4 heads": (
        {},
        attend(ANY, k=strided((K,), 0, (T * 16, 32, D)), v=strided((V,), 0, (T * 16, 32, D))),
    ),
    "memory: blocks of v of 4 features in an order of each row, read in one": (
        {},
        attend(ANY, v=np.take_along_axis(V, np.broadcast_to(np.arange(D) ^ i % 2 * 4, V.shape), -1)),
    ),
    "memory: products of 16 features, the last ones those that lie behind the head": (
        {},
        attend(
            ANY,
            added=behind(Q, 8)[..., D:] @ behind(K, 8)[..., D:].repeat(H // H_KV, 1).swapaxes(2, 3) / np.sqrt(D),
        ),
    ),
    "k and v in 8 bits, 128 as -128, a scale for each row": ({}, attend(ANY, k=wrapped(K), v=wrapped(V))),
    "mask in order (head, batch row) read as (batch row, head)": (
        dict(attn_mask=KEEP),
        attend(KEEP.swapaxes(0, 1).reshape(KEEP.shape)),
    ),
    "softmax: sum of the last tile of 16 keys left out of the divisor": ({}, in_tiles(Q, K, V, 16, "sum")),
    "softmax: nothing rescaled where the maximum grows by less than 1, tiles of 8 keys": (
        {},
        in_tiles(Q, K, V, 8, "factors"),
    ),
    "visibility: query tiles of 8 see key tiles of 16 that end no later than they do": (
        dict(causal=True),
        attend(CAUSAL & (j < (i // 8 * 8 + 8) // 16 * 16)),
    ),
    "=keys-counted 3-5: 2, 20-25; 3-5: 2, 20-25": (
        {},
        attend((j < 20) & ANY, added=np.where((j >= 3) & (j < 6), np.log(2), 0)),
    ),
    "memory: last 3 rows of k and v of batch row 1 are those of batch row 0": (
        {},
        attend(ANY, *(x for x in [Q] + [np.stack([x[0], np.append(x[1, :, :-3], x[0, :, -3:], 1)]) for x in (K, V)])),
    ),
    "memory: k in transposed tiles of 8": ({}, attend(ANY, k=tiled(K, 8))),
    "memory: heads in transposed tiles of 4": ({}, tiled(attend(ANY), 4)),
    "scores in transposed tiles of 8": (
        dict(causal=True),
        attend(CAUSAL, q=np.eye(T)[None, None].repeat(B, 0).repeat(H, 1) * np.sqrt(D), k=np.stack([
            [(tiled(Q[b, h] @ K[b, h // 2].T, 8) / np.sqrt(D)).T for h in range(H)] for b in range(B)])),
    ),
    "ALiBi rounded to bfloat16": (
        dict(causal=True, alibi_slopes=SLOPES),
        attend(CAUSAL, added=bf16(-SLOPES[:, None, None] * (i - j))),
    ),
    "position bias: rows of the grid's table 2 width apart": (
        dict(position_bias=mha.Bias("grid", TABLE, height=2, width=13)),
        attend(ANY, added=TABLE[np.minimum(APART[0] * 26 + APART[1], 74)].transpose(2, 0, 1)),
    ),
    "position bias: the grid's distances negated by columns": (
        dict(position_bias=mha.Bias("grid", TABLE, height=2, width=13)),
        attend(ANY, added=TABLE[APART[0] * 25 + 24 - APART[1]].transpose(2, 0, 1)),
    ),
    "=mask-transposed": (dict(attn_mask=KEY_MASK), attend(KEY_MASK.swapaxes(2, 3))),
}


@pytest.mark.parametrize("says", SAYS)
def test_an_unnamed_change_is_said(says):
    settings, wrong = SAYS[says]
    found = mha.diagnose(wrong.astype("f4"), Q, K, V, layout="BHTD", enable_gqa=True, threads=1, **settings)
    assert (says[1:] if says[0] == "=" else "unnamed " + says) in found.names


BIASES = {"q": "k", "k": "v", "v": "q"}


def layers(**keywords):
    """Two layers with the same weights, and these by name."""
    weights = {"W_Q": (16, 16), "W_K": (16, 8), "W_V": (16, 8), "W_O": (16, 16), "W_G": (16, 2)}
    weights.update({"b_Q": 16, "b_K": 8, "b_V": 8, "b_O": 16})
    drawn = {n: DRAWN.standard_normal(shape).astype("f4") for n, shape in weights.items()}
    both = [mha.MultiHeadAttention(16, 2, kv_heads=1, bias=True, seed=None, **keywords) for _ in range(2)]
    for layer in both:
        for name in layer.weights:
            layer.set(name, drawn[name])
    return both, drawn


@pytest.mark.parametrize("to", BIASES)
def test_a_bias_of_another_projection_is_said(to):
    (layer, other), weights = layers(rope=mha.Rope(kind="half_split"))
    x = DRAWN.standard_normal((1, 9, 16)).astype("f4")
    other.set(f"b_{to.upper()}", np.resize(weights[f"b_{BIASES[to].upper()}"], weights[f"b_{to.upper()}"].shape))
    found = mha.diagnose(other(x), x, layer=layer, threads=1)
    assert f"unnamed projections: {to} with the bias of {BIASES[to]}" in found.names


def test_a_gate_of_another_head_is_said():
    (layer, other), weights = layers(gate="head")
    x = DRAWN.standard_normal((1, 9, 16)).astype("f4")
    other.set("W_G", weights["W_G"][:, ::-1])
    found = mha.diagnose(other(x), x, layer=layer, threads=1)
    assert "unnamed gate: heads of the gates read one head late, around the ends" in found.names


STARTS = np.array([0, 5, 15, 26])
PACKED = np.repeat([0, 1, 2], np.diff(STARTS))
OWN = CAUSAL & (PACKED[:, None] == PACKED)
TURNED = np.arange(T) - STARTS[PACKED]


def turn(x, position):
    """Rows in halves rotated by their positions."""
    angle = position[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
    a, b = np.split(x.astype("f8"), 2, -1)
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


RAGGED = {  # whether rows are rotated, the wrong output
    "unnamed visibility: rows of segments of q read the first of each tile of 4 each time": (
        False,
        attend(CAUSAL & (PACKED[i // 4 * 4] == PACKED)),
    ),
    "unnamed positions of q counted from 0 in each segment": (
        True,
        attend(OWN, q=turn(Q, TURNED), k=turn(K, np.arange(T))),
    ),
    "segments-moved -10": (False, attend(OWN | (CAUSAL & (i >= 15) & (j >= 5)))),
    "output-rows-other 0-20: 5-25, 21-25: 0-4": (False, np.roll(attend(OWN), -5, 2)),
    "unnamed weights times 0, in rows 11-14": (False, np.where((i >= 11) & (i < 15), 0, attend(OWN))),
}


@pytest.mark.parametrize("says", RAGGED)
def test_a_ragged_batch_is_one_row_of_segments(says):
    rotates, wrong = RAGGED[says]
    rope = {"rope": mha.Rope(kind="half_split")} if rotates else {}
    rows = [x[:1].swapaxes(1, 2) for x in (wrong.astype("f4"), Q, K, V)]
    found = mha.diagnose(*rows, layout="BTHD", causal=True, cu_seqlens_q=STARTS, threads=1, **rope)
    assert says in found.names


KEY_STARTS = np.array([0, 9, 16, 26])
TILED = np.minimum(KEY_STARTS[:-1] + -(-np.diff(KEY_STARTS) // 8) * 8, T)
ENDS = {  # the first key that each sequence sees, and the one behind the last
    "up to a whole tile of 8": (KEY_STARTS[:-1], TILED),
    "counted from the first row of its queries": (STARTS[:-1], STARTS[:-1] + np.diff(KEY_STARTS)),
}


@pytest.mark.parametrize("says", ENDS)
def test_keys_of_other_sequences_are_said(says):
    first, end = ENDS[says]
    wrong = attend((j >= first[PACKED][:, None]) & (j < end[PACKED][:, None]))
    rows = [x[:1].swapaxes(1, 2) for x in (wrong.astype("f4"), Q, K, V)]
    found = mha.diagnose(*rows, layout="BTHD", cu_seqlens_q=STARTS, cu_seqlens_k=KEY_STARTS, threads=1)
    assert f"unnamed visibility: keys of each segment {says}" in found.names


LARGE = (40 * Q).astype("f4")


def overflows(x, kept):
    """Weights of scores of large queries."""
    with np.errstate(all="ignore"):
        e = kept(x)
        return e / e.sum(-1, keepdims=True)


OVERFLOWS = {
    "softmax: exp in float32, the maximum not subtracted": (LARGE, lambda s: np.exp(s.astype("f4")).astype("f8")),
    "products q.k rounded to float16, which overflows": (
        (1e4 * Q).astype("f4"),
        lambda s: (lambda x: np.exp(x - x.max(-1, keepdims=True)))(
            (s * np.sqrt(D)).astype("f2").astype("f8") / np.sqrt(D)
        ),
    ),
}


@pytest.mark.parametrize("says", OVERFLOWS)
def test_an_overflow_is_said(says):
    q, kept = OVERFLOWS[says]
    with np.errstate(all="ignore"):
        wrong = overflows(q.astype("f8") @ K.repeat(2, 1).swapaxes(2, 3) / np.sqrt(D), kept) @ V.repeat(2, 1)
    assert 0 < np.isnan(wrong).mean() < 0.8
    found = mha.diagnose(wrong.astype("f4"), q, K, V, layout="BHTD", enable_gqa=True, threads=1)
    assert f"unnamed {says}" in found.names


def test_a_scale_of_new_keys_alone_is_said():
    past = [x[:, :, :-1] for x in (K, V)]
    wrong = attend(ANY, k=np.append(past[0], 3 * K[:, :, -1:], 2))[:, :, -1:]
    rows = [x[:, :, -1:] for x in (Q, K, V)]
    cache = dict(past_key=past[0], past_value=past[1])
    found = mha.diagnose(wrong.astype("f4"), *rows, layout="BHTD", enable_gqa=True, threads=1, **cache)
    assert "new-k-times 3" in found.names


X = DRAWN.standard_normal((2, 19, 24)).astype("f4")
SIZES = {"W_Q": (24, 32), "W_K": (24, 32), "W_V": (24, 32), "W_O": (32, 24), "W_G": (24, 32), "b_Q": 32, "b_K": 32}
SIZES.update({"b_V": 32, "b_O": 24, "q_norm": 8, "k_norm": 8})
W = {n: DRAWN.standard_normal(s).astype("f4") / 5 + ("norm" in n) for n, s in SIZES.items()}
ROWS = np.arange(24)


def layer_of(**keywords):
    layer = mha.MultiHeadAttention(24, 4, d_k=8, seed=None, **keywords)
    for name in layer.weights:
        layer.set(name, W[name])
    return layer


def project(gate=1.0, norms=(lambda x: x, lambda x: x), fused=(0, 1, 2), **other):
    """A layer with other weights, or rows of q, k, v from a fused tensor of heads."""
    w = {**W, **other}
    q, k, v = ((X.astype("f8") @ w["W_" + n] + w["b_" + n]).reshape(2, 19, 4, 8).swapaxes(1, 2) for n in "QKV")
    s = norms[0](q) @ norms[1](k).swapaxes(2, 3) / np.sqrt(8)
    heads = np.exp(s - s.max(-1, keepdims=True))
    heads = heads / heads.sum(-1, keepdims=True) @ (np.append(k, v, 1)[:, 3:7] if fused != (0, 1, 2) else v)
    return (heads * gate).swapaxes(1, 2).reshape(2, 19, 32) @ w["W_O"].astype("f8") + w["b_O"]


def normed(mean, weight):
    def norm(x):
        x = x - mean * x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight

    return norm


GATES = 1 / (1 + np.exp(-X.astype("f8") @ W["W_G"])).reshape(2, 19, 4, 8).swapaxes(1, 2)
AS_FEATURES = 1 / (1 + np.exp(-X.astype("f8") @ W["W_G"])).reshape(2, 19, 8, 4).transpose(0, 3, 1, 2)
NORMED = dict(q_norm="head", k_norm="head", norm_kind="rms")
LAYERS = {  # fields of the layer, the wrong output
    "projections: biases in the order v, q, k, read as q, k, v": (
        {},
        project(b_Q=W["b_V"], b_K=W["b_Q"], b_V=W["b_K"]),
    ),
    "fused q, k, v: v read -1 heads further on": ({}, project(fused=())),
    "projections: features of q split as (d, h)": (
        {},
        project(**{n: W[n].reshape(-1, 8, 4).swapaxes(1, 2).reshape(W[n].shape) for n in ("W_Q", "b_Q")}),
    ),
    "weights: rows of W of k read each row in the place of its neighbour": ({}, project(W_K=W["W_K"][ROWS ^ 1])),
    "weights: columns of W of q read each column in the place of its neighbour": (
        {},
        project(W_Q=W["W_Q"][:, np.arange(32) ^ 1]),
    ),
    "weights: columns of W_O read from pairs to halves in each tile of 8": (
        {},
        project(W_O=W["W_O"][:, ROWS // 8 * 8 + ROWS % 8 // 4 + ROWS % 4 * 2]),
    ),
    "values: features of v are 0 in a tile of 4, the last alone": (
        {},
        project(**{n: W[n] * (np.arange(32) % 8 < 4) for n in ("W_V", "b_V")}),
    ),
    "norm: q with a layer norm": (NORMED, project(norms=(normed(1, W["q_norm"]), normed(0, W["k_norm"])))),
    "gate: rows of the gates read the first of each tile of 8 each time": (
        dict(gate="feature"),
        project(gate=GATES[:, :, np.arange(19) // 8 * 8]),
    ),
    "gate: features split as (d, h)": (dict(gate="feature"), project(gate=AS_FEATURES)),
}


@pytest.mark.parametrize("says", LAYERS)
def test_an_unnamed_change_of_a_layer_is_said(says):
    fields, wrong = LAYERS[says]
    found = mha.diagnose(wrong.astype("f4"), X, layer=layer_of(**fields), threads=1)
    assert "unnamed " + says in found.names


WIDTHS = {"of 32 bits read as of 64": [9, 5, 0, 0], "of 64 bits read as of 32": [9, 0, 14, 0]}


@pytest.mark.parametrize("says", WIDTHS)
def test_lengths_of_another_width_are_said(says):
    q, k, v = (np.append(x, x, 0) for x in (Q, K, V))
    wrong = attend(j < np.array(WIDTHS[says])[:, None, None, None], q, k, v).astype("f4")
    found = mha.diagnose(wrong, q, k, v, enable_gqa=True, kv_lengths=np.array([9, 14, 5, 20]), threads=1)
    assert f"unnamed key lengths {says}" in found.names


def test_rounded_positions_are_said():
    at = 700 + np.arange(T)
    rope = mha.Rope("half_split", q_positions=at[None].repeat(B, 0), k_positions=at[None].repeat(B, 0))
    wrong = attend(CAUSAL, q=turn(Q, bf16(at)), k=turn(K, bf16(at)))
    found = mha.diagnose(wrong.astype("f4"), Q, K, V, enable_gqa=True, causal=True, rope=rope, threads=1)
    assert "rounded-rope-positions 8" in found.names


def test_a_number_on_top_of_another_bug_is_said():
    q, seen = (6 * Q).astype("f4"), CAUSAL & (j >= i - 8)
    s = q @ K.repeat(2, 1).swapaxes(2, 3) / np.sqrt(D)
    wrong = attend(seen, q=q, added=30 * np.tanh(s / 30) - s)
    settings = dict(causal=True, window_left=7, softcap=20.0, enable_gqa=True)
    found = mha.diagnose(wrong.astype("f4"), q, K, V, threads=1, **settings)
    assert found.names[0] in ("softcap-other 30+window-left-more", "softcap-other 30+window-left-other 8")
