"""Calls from kept structs: the bits, the kinds and the errors of the general way, for any change between two calls."""
import gc
import itertools
import threading
import warnings
import weakref

import mha
import numpy as np
import pytest
from mha.core import functional

R = np.random.default_rng(3)
sdpa = mha.scaled_dot_product_attention


def made(*shape, dtype="f4"):
    return R.standard_normal(shape).astype(dtype)


Q, K, V = made(2, 2, 5, 8), made(2, 2, 9, 8), made(2, 2, 9, 8)


def outcome(call, *args, **said):
    """What a call gives, to be compared: kind, type, shape and bits, or the error."""
    try:
        y = call(*args, **said)
    except Exception as reason:
        return type(reason), str(reason)
    array = np.asarray(y.float() if "bfloat16" in str(y.dtype) else y)
    return type(y), str(y.dtype), array.shape, array.tobytes()


def general(call, *args, **said):
    """The same by the general way, which calls that return stages take."""
    if isinstance(call, mha.MultiHeadAttention):
        return outcome(lambda: call(*args, **said, return_stages=["lse"])[0])
    return outcome(lambda: call(*args, **said, return_lse=True)[0])


def hold_in_every_order(calls, among=None):
    """Every call behind every other one, and again; among: before and behind these alone."""
    expected = {name: general(*args, **said) for name, (args, said) in calls.items()}
    wrong = set()
    for one, other in itertools.product(among or calls, calls):
        for name in (one, one, other, other, one):
            args, said = calls[name]
            if outcome(*args, **said) != expected[name]:
                wrong.add((name, "beside", one if name == other else other))
    assert not wrong, sorted(wrong)
    return expected


@pytest.fixture
def kept_alone(monkeypatch):
    """Once called, a call that goes the general way fails. Calls of other tests do not fill the kept ones."""
    for calls in (functional._torch_calls, functional._flash_calls):
        calls._known.clear()

    def refuse(*args, **said):
        raise AssertionError("a call that was made before goes the general way")

    def begin():
        monkeypatch.setattr("mha.core.functional.Request", refuse)
        monkeypatch.setattr("mha.core.layer.Request", refuse)
    return begin


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


def arrays():
    """Arrays that equal Q, K and V in everything but one thing."""
    yield "plain", (Q, K, V)
    yield "other numbers", (Q + 1, K + 1, V + 1)
    for i, name in enumerate("QKV"):
        def changed(change, all=(Q, K, V), i=i):
            return tuple(change(x) if i == j else x for j, x in enumerate(all))
        yield f"{name} with heads behind T", changed(lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2))
        yield f"{name} with rows from back to front", changed(lambda x: x[:, :, ::-1])
        yield f"{name} with features from back to front", changed(lambda x: x[..., ::-1])
        yield f"{name} with every second feature", changed(lambda x: np.repeat(x, 2, -1)[..., ::2] + 1)
        yield f"{name} in longer rows", changed(lambda x: np.concatenate([x, x], -1)[..., :8])
        yield f"{name} of one row for all", changed(lambda x: np.broadcast_to(x[:, :, :1], x.shape))
        yield f"{name} of one head for all", changed(lambda x: np.broadcast_to(x[:, :1], x.shape))
        yield f"{name} in the order of Fortran", changed(np.asfortranarray)
        yield f"{name} of float64", changed(lambda x: x.astype("f8"))
        yield f"{name} of float16", changed(lambda x: x.astype("f2"))
        yield f"{name} of int32, the same bytes", changed(lambda x: x.view("i4"))
        yield f"{name} with bytes swapped", changed(lambda x: x.astype(">f4"))
        yield f"{name}, the same bytes in the other order", changed(lambda x: x.view(">f4"))
        yield f"{name}, not aligned", changed(unaligned)
        yield f"{name} without a batch", changed(lambda x: x[0])
        yield f"{name} with less batch", changed(lambda x: x[:1])
        yield f"{name} with other axes", changed(lambda x: x.reshape(2, 2, 8, -1))
        yield f"{name} without rows", changed(lambda x: x[:, :, :0])
        yield f"{name} without axes", changed(lambda x: x[0, 0, 0, 0])
        yield f"{name} without axes, an array", changed(lambda x: np.array(x[0, 0, 0, 0]))
        yield f"{name} masked", changed(lambda x: np.ma.masked_less(x, 0))
        yield f"{name} of a kind of its own", changed(lambda x: x.view(type("Own", (np.ndarray,), {})))
        yield f"{name} as a list", changed(lambda x: x.tolist())
        yield f"{name} None", changed(lambda x: None)
        yield f"{name} as memory", changed(lambda x: memoryview(np.ascontiguousarray(x)))
    fixed = Q.copy()
    fixed.flags.writeable = False
    yield "read-only", (fixed, K, V)
    yield "all of float64", tuple(x.astype("f8") for x in (Q, K, V))
    yield "another width", (Q[..., :4].copy(), K[..., :4].copy(), V)
    yield "other keys", (Q, K[:, :, :7].copy(), V[:, :, :7].copy())


def test_arrays_that_differ_in_one_thing():
    among = "plain", "all of float64", "Q with heads behind T", "K of int32, the same bytes", "V with less batch"
    found = hold_in_every_order({name: ((sdpa, *inputs), {}) for name, inputs in arrays()}, among)
    kinds = {kind for kind, *_ in found.values()}
    assert kinds == {np.ndarray, TypeError, ValueError}


def test_arrays_of_a_layer_that_differ_in_one_thing():
    layer, x = mha.MultiHeadAttention(16, 2), made(2, 5, 16)
    y = made(2, 5, 16)
    ways = {"plain": x, "other": y, "turned": np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1),
            "back": x[:, ::-1], "half": x.astype("f2"), "int": x.view("i4"), "one": x[:1], "one row": x[:, :1],
            "no batch": x[0], "unaligned": unaligned(x), "list": x.tolist(),
            "in longer rows": np.concatenate([x, x], -1)[..., :16]}
    calls = {name: ((layer, x), {}) for name, x in ways.items()}
    calls.update({f"key {name}": ((layer, y, x), {}) for name, x in ways.items()})
    calls.update({f"value {name}": ((layer, y, y, x), {}) for name, x in ways.items()})
    hold_in_every_order(calls)


class Equal:
    """Of no kind that a setting has, and equal to one."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other

    def __hash__(self):
        return hash(self.value)

    def __repr__(self):
        return f"Equal({self.value!r})"


def test_settings_that_equal_each_other():
    """Numbers that are equal and no settings, or other ones: the error, or the bits, of the general way."""
    rope = mha.Rope("interleaved", 4)
    said = [{}, {"is_causal": True}, {"is_causal": 1}, {"is_causal": 1.0}, {"is_causal": False}, {"is_causal": 0},
            {"dropout_p": 0}, {"dropout_p": False}, {"dropout_p": -0.0}, {"dropout_p": 1}, {"scale": 1}, {"scale": 1.0},
            {"scale": True}, {"scale": float("nan")}, {"scale": np.array(1.0)}, {"scale": np.array([1.0])},
            {"enable_gqa": True}, {"enable_gqa": 1}, {"enable_gqa": np.True_}, {"threads": 1}, {"threads": True},
            {"threads": 1.0}, {"threads": np.int64(1)}, {"path": "exact"}, {"path": np.str_("exact")}, {"path": None},
            {"precision": "bfloat16"}, {"precision": {"output": "bfloat16"}}, {"window": (2, 1)}, {"window": (2, True)},
            {"window": (2.0, 1)}, {"window": [2, 1]}, {"window": np.array([2, 1])}, {"window": (np.array(2), 1)},
            {"window": (2, (1,))}, {"window_left": 2}, {"window_right": 2}, {"softcap": 2}, {"softcap": 2.0},
            {"softcap": True}, {"softmax_plus_one": True}, {"softmax_plus_one": 1}, {"sinks": (1.0, 2.0)},
            {"sinks": (1, 2)}, {"sinks": (True, 2)}, {"sinks": [1.0, 2.0]}, {"sinks": (1.0, 2.0), "softcap": 2.0},
            {"rope": rope}, {"rope": mha.Rope("interleaved", 4, attention_factor=True)}, {"rope": "interleaved"},
            {"rope": mha.Rope("interleaved", 4, attention_factor=1)}, {"rope": mha.Rope("interleaved", True)},
            {"rope": mha.Rope("interleaved", 4, origin=[None] * 4)}, {"rope": mha.Rope("interleaved", np.int64(4))},
            {"causal": True, "offset": 0}, {"causal": True, "offset": False}, {"causal": True, "offset": "top-left"},
            {"causal": True, "offset": (0, 0)}, {"wnidow": 1}, {"softmax_scale": 1.0}, {"scale": np.ones(2)},
            {"softcap": np.ones(2)}, {"window": (np.ones(2), 1)},
            *({name: Equal(value)} for name, value in (
                ("dropout_p", 0.0), ("is_causal", False), ("scale", None), ("enable_gqa", False), ("path", "auto"),
                ("threads", 0), ("precision", None), ("softcap", 2.0)))]
    hold_in_every_order({str(each): ((sdpa, Q, K, V), each) for each in said})
    turned = [x.swapaxes(1, 2) for x in (Q, K, V)]
    flash = [{}, {"causal": True}, {"causal": 1}, {"layout": "BTNH"}, {"layout": np.str_("BTNH")}, {"layout": "BHTD"},
             {"window_size": (-1, -1)}, {"window_size": (-1.0, -1)}, {"window_size": [-1, -1]}, {"window_size": None},
             {"window_size": (2, 1)}, {"window_size": (2, True)}, {"window_size": np.array([2, 1])},
             {"window_size": (2, 1), "causal": True}, {"softmax_scale": 1}, {"softmax_scale": True},
             {"softcap": 0}, {"softcap": False}, {"softcap": 1.0}, {"softcap": True}, {"is_causal": True},
             {"alibi_slopes": np.ones(2), "causal": True}, {"alibi_slopes": np.zeros(2), "causal": True},
             *({name: Equal(value)} for name, value in (
                 ("layout", "BTHD"), ("causal", False), ("softmax_scale", None), ("softcap", 0.0), ("path", "auto"),
                 ("threads", 0), ("precision", None), ("window_size", (-1, -1))))]
    hold_in_every_order({str(each): ((mha.attention, *turned), each) for each in flash})
    layer, x = mha.MultiHeadAttention(16, 2), made(2, 5, 16)
    of_layer = [{}, {"layout": "TBE"}, {"layout": "BTE"}, {"absorbed": False}, {"absorbed": 0}, {"threads": 1},
                {"threads": True}, {"path": "exact"}, {"causal": True}, {"causal": 1}, {"window": (2, 1)},
                {"window": (2, True)}, {"window": [2, 1]},
                *({name: Equal(value)} for name, value in (
                    ("layout", None), ("path", "auto"), ("threads", 0), ("precision", None), ("absorbed", False)))]
    hold_in_every_order({str(each): ((layer, x), each) for each in of_layer})


def test_masks_that_differ_in_one_thing():
    seen = R.random((2, 2, 5, 9)) < 0.7
    masks = {"none": None, "seen": seen, "others": ~seen, "for all heads": seen[:, :1], "for all": seen[0, 0],
             "one for all": np.broadcast_to(seen[:1, :1], seen.shape), "back": seen[..., ::-1],
             "bytes": seen.view("u1"), "turned": np.ascontiguousarray(seen.swapaxes(2, 3)).swapaxes(2, 3),
             "added": np.where(seen, 0.0, -3.0),
             "added, float32": np.where(seen, 0, -3).astype("f4"), "list": seen.tolist(), "true": np.array(True),
             "added, not aligned": unaligned(np.where(seen, 0, -3).astype("f4")), "half": made(5, 9, dtype="f2"),
             "masked": np.ma.masked_less(made(5, 9), 0), "too long": seen[..., :8], "True": True}
    hold_in_every_order({name: ((sdpa, Q, K, V, mask), {}) for name, mask in masks.items()})


@pytest.mark.needs("torch")
def test_tensors_that_differ_in_one_thing():
    import torch

    q, k, v = (torch.from_numpy(x.copy()) for x in (Q, K, V))

    def complex_of(x):
        return torch.complex(torch.zeros_like(x), x)

    def without_memory(x):
        x = x.clone()
        (x.untyped_storage() if hasattr(x, "untyped_storage") else x.storage()).resize_(0)
        return x

    changes = {
        "plain": lambda x: x, "other numbers": lambda x: x + 1, "with a gradient": lambda x: x.clone().requires_grad_(),
        "computed with a gradient": lambda x: x.clone().requires_grad_() * 2, "detached": lambda x: (x * 3).detach(),
        "a parameter": lambda x: torch.nn.Parameter(x.clone()), "double": lambda x: x.double(),
        "half": lambda x: x.half(), "bfloat16": lambda x: x.bfloat16(), "int": lambda x: x.view(torch.int32),
        "turned": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), "one for all": lambda x: x[:1].expand_as(x),
        "in longer rows": lambda x: torch.cat([x, x], -1)[..., :8],
        "channels last": lambda x: x.contiguous(memory_format=torch.channels_last), "opaque": lambda x: x.to_mkldnn(),
        "compressed": lambda x: x[0, 0].to_sparse_csr(), "meta": lambda x: x.to("meta"),
        "complex": complex_of, "negated, as a view": lambda x: torch._neg_view(x),
        "imaginary": lambda x: complex_of(x).imag, "imaginary, conjugated": lambda x: complex_of(x).conj().imag,
        "sparse": lambda x: x.to_sparse(), "of one sequence": lambda x: x[:1], "without a batch": lambda x: x[0],
        "of nothing": lambda x: x[:, :, :0], "without axes": lambda x: x[0, 0, 0, 0], "numpy": lambda x: x.numpy() + 1,
        "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "memory let go": without_memory,
        "zeros without memory": lambda x: torch._efficientzerotensor(tuple(x.shape))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = {name: ((sdpa, change(q), change(k), change(v)), {}) for name, change in changes.items()}
        for i, name in enumerate("qkv"):
            for word, change in changes.items():
                calls[f"{name} {word}"] = (sdpa, *(change(x) if i == j else x for j, x in enumerate((q, k, v)))), {}
        seen = torch.from_numpy(R.random((5, 9)) < 0.7)
        for word in ("plain", "turned", "negated, as a view", "meta", "with a gradient", "sparse", "numpy"):
            mask = torch.zeros(2, 2, 5, 9).masked_fill(~seen, -2.0)
            calls[f"mask {word}"] = (sdpa, q, k, v, changes[word](mask)), {}
        calls["mask of booleans"] = (sdpa, q, k, v, seen), {}
        found = hold_in_every_order(calls, ("plain", "double", "q turned", "k numpy", "v meta", "mask plain"))
    assert found["plain"] == found["q plain"] != found["negated, as a view"]
    assert found["k memory let go"][0] is found["k meta"][0] is TypeError


def test_arrays_that_change_in_place(kept_alone):
    """The same object with other memory, another shape, other numbers."""
    q, k, v = (x.copy() for x in (Q, K, V))
    for _ in range(2):
        assert outcome(sdpa, q, k, v) == general(sdpa, q, k, v)
    for change in (lambda: q.fill(0.25), lambda: q.resize((2, 2, 6, 8), refcheck=False),
                   lambda: q.resize((2, 2, 200, 8), refcheck=False), lambda: q.resize((2, 2, 5, 8), refcheck=False)):
        change()
        for _ in range(3):
            assert outcome(sdpa, q, k, v) == general(sdpa, q, k, v)


@pytest.mark.needs("torch")
def test_tensors_that_change_in_place():
    import torch

    t = torch.from_numpy(Q.copy())
    others = [torch.from_numpy(x.copy()) for x in (K, V)]
    for _ in range(2):
        assert outcome(sdpa, t, *others) == general(sdpa, t, *others)
    fresh = torch.from_numpy(Q + 1)
    for change in (lambda: t.set_(fresh), lambda: t.resize_(2, 2, 4, 8), lambda: t.transpose_(1, 2),
                   lambda: t.fill_(0.5), lambda: setattr(t, "data", fresh), lambda: setattr(t, "data", fresh.double()),
                   lambda: setattr(t, "data", torch._neg_view(fresh))):
        change()
        for _ in range(3):
            assert outcome(sdpa, t, *others) == general(sdpa, t, *others)


def test_settings_that_change_in_place():
    """Lists, arrays and dicts are read at each call."""
    window, sinks, slopes = [2, 1], np.array([1.0, -1.0]), [0.5, 0.25]
    positions = np.tile(np.arange(9), (2, 1))
    rope = mha.Rope("interleaved", 4, q_positions=positions[:, :5].copy(), k_positions=positions)
    precision, layer, x = {"output": "bfloat16"}, mha.MultiHeadAttention(16, 2, window=[3, 3]), made(3, 5, 16)

    class Scale:
        held = 0.5

        def __float__(self):
            return self.held

    calls = [((sdpa, Q, K, V), {"window": window}), ((sdpa, Q, K, V), {"sinks": sinks}),
             ((sdpa, Q, K, V), {"alibi": slopes}), ((sdpa, Q, K, V), {"rope": rope}),
             ((sdpa, Q, K, V), {"precision": precision, "path": "exact"}), ((layer, x), {}),
             ((sdpa, Q, K, V), {"scale": Scale()}), ((sdpa, Q, K, V), {"softcap": Scale()}),
             ((mha.attention, Q, K, V), {"window_size": window})]
    before = []
    for args, said in calls:
        before += [outcome(*args, **said) for _ in range(3)]
    window[0], sinks[0], slopes[1], layer.settings["window"][0] = 0, 5, 0.75, 0
    rope.k_positions[:, 4:] += 3
    precision["output"], Scale.held = "float16", 0.25
    for i, (args, said) in enumerate(calls):
        for _ in range(3):
            after = outcome(*args, **said)
            assert after == general(*args, **said) != before[3 * i]
    layer = mha.MultiHeadAttention(16, 2)
    turned = [outcome(layer, x) for _ in range(2)][1:]
    layer.layout = "TBE"
    for _ in range(3):
        turned.append(outcome(layer, x))
    assert turned[0] != turned[1] == turned[2] == turned[3] == general(layer, x)


def of_kind(kind):
    """How an array of numpy becomes one of a kind, on the same memory."""
    if kind == "numpy":
        return lambda x: x
    import torch

    return torch.from_numpy


@pytest.mark.parametrize("kind", ["numpy", pytest.param("torch", marks=pytest.mark.needs("torch"))])
def test_calls_in_turn_are_all_kept(kept_alone, kind):
    """Shapes, faces and settings in turn, numbers that are made anew for each call: none goes the general way again."""
    of = of_kind(kind)
    layer, x, scales = mha.MultiHeadAttention(16, 2, causal=True), made(2, 5, 16), [str(n / 8) for n in range(1, 4)]
    mask = R.random((5, 9)) < 0.7
    caches = layer.cache(2, 500), layer.cache(2, 500, window=5)

    def all_of_them():
        for inputs in ((Q, K, V), (Q[:1], K[:1], V[:1]), [x.astype("f8") for x in (Q, K, V)]):
            given = [of(x) for x in inputs]
            sdpa(*given)
            sdpa(*given, is_causal=True)
            sdpa(*given, of(mask))
            sdpa(*given, window=(2, 1), rope=mha.Rope("interleaved", 4))
            for scale in scales:
                sdpa(*given, scale=float(scale))
            turned = [x.swapaxes(1, 2) for x in given]
            mha.attention(*turned, layout="BTHD")
            mha.attention(*turned, layout="BTHD", causal=True, window_size=(2, 1))
        for given in (of(x), of(x[0])):
            layer(given)
            layer(given, given)
            layer(given, given, given, window=(2, 1))
        for cache in caches:
            layer(of(x), cache=cache)

    all_of_them()
    kept_alone()
    for _ in range(3):
        all_of_them()
    with pytest.raises(AssertionError, match="general way"):
        sdpa(Q, K, V, softcap=3.0)


def test_more_signatures_than_are_kept():
    for _ in range(2):
        for n in range(1, 300):
            x = np.full((1, 1, n, 4), n, "f4")
            assert np.array_equal(sdpa(x, x, x), x)


def test_an_error_leaves_a_kept_call_as_it_was(kept_alone):
    """A cache without room, and a cache of another batch."""
    layer, x = mha.MultiHeadAttention(16, 2), made(1, 3, 16)
    cache, other = layer.cache(1, 7), layer.cache(2, 7)
    first = layer(x, cache=cache)
    for _ in range(3):
        layer(x, cache=cache)
        for wrong, word in ((cache, "cache|rows|room"), (other, "batch|cache")):
            with pytest.raises(ValueError, match=word):
                layer(x, cache=wrong)
        cache.clear()
        assert np.array_equal(layer(x, cache=cache), first)


def test_caches_in_turn():
    """Two caches, one of which begins later, and none: each call sees the rows of its own."""
    layer, x = mha.MultiHeadAttention(16, 2, causal=True), made(4, 1, 1, 16)
    without, alone, seen = [general(layer, rows) for rows in x], [], [[], []]
    for i in range(2):
        cache = layer.cache(1, 9)
        alone.append([outcome(lambda: layer(rows, cache=cache, return_stages=["lse"])[0]) for rows in x[i:]])
    caches = [layer.cache(1, 9) for _ in range(2)]
    for n, rows in enumerate(x):
        for i in range(2):
            assert outcome(layer, rows) == without[n]
            if n >= i:
                seen[i].append(outcome(layer, rows, cache=caches[i]))
    assert seen == alone


def test_an_offset_that_the_length_of_a_cache_decides():
    layer, x = mha.MultiHeadAttention(16, 2), made(4, 1, 1, 16)
    said, kept = {"causal": True, "offset": "bottom-right"}, []
    for call in (outcome, general):
        cache = layer.cache(1, 9)
        kept.append([call(layer, rows, cache=cache, **said) for rows in x])
    assert kept[0] == kept[1]


def test_a_setting_that_a_layer_has_in_another_spelling():
    layer, x = mha.MultiHeadAttention(16, 2, zero_row=False), made(1, 3, 16)
    plain = outcome(layer, x)
    for _ in range(2):
        assert plain != outcome(layer, x, add_zero_attn=True) == general(layer, x, add_zero_attn=True)


def test_memory_that_is_not_aligned_goes_the_general_way(kept_alone):
    """It is copied there; the library would read floats where none may lie."""
    mask = made(5, 9)
    layer, x = mha.MultiHeadAttention(16, 2), made(1, 5, 16)
    for _ in range(2):
        sdpa(Q, K, V), sdpa(Q, K, V, mask), layer(x), layer(x, x)
    kept_alone()
    for call in (lambda: sdpa(unaligned(Q), K, V), lambda: sdpa(Q, unaligned(K), V), lambda: sdpa(Q, K, unaligned(V)),
                 lambda: sdpa(Q, K, V, unaligned(mask)), lambda: layer(unaligned(x)), lambda: layer(x, unaligned(x))):
        with pytest.raises(AssertionError, match="general way"):
            call()
        sdpa(Q, K, V), sdpa(Q, K, V, mask), layer(x), layer(x, x)


@pytest.mark.parametrize("kind", ["numpy", pytest.param("torch", marks=pytest.mark.needs("torch"))])
def test_results_have_memory_of_their_own(kind):
    inputs, right = [of_kind(kind)(x) for x in (Q, K, V)], sdpa(Q, K, V).copy()
    results = [sdpa(*inputs) for _ in range(5)]
    gc.collect()
    for y in results:
        assert np.array_equal(y, right)
        y[...] = 0


def test_kept_calls_keep_no_arrays():
    """Neither inputs nor masks nor results nor a cache live longer than for their owner."""
    layer = mha.MultiHeadAttention(8, 2)
    cache, mask, x = layer.cache(1, 9), R.random((3, 3)) < 0.5, np.ones((1, 3, 8), "f4")
    q = made(1, 2, 3, 8)
    seen = [weakref.ref(thing) for thing in (cache, mask, x, q)]
    for _ in range(3):
        seen += [weakref.ref(layer(x, cache=cache)), weakref.ref(sdpa(q, q, q, mask)), weakref.ref(sdpa(q, q, q))]
    del cache, mask, x, q
    assert not any(ref() is not None for ref in seen)


def test_threads_that_make_the_same_call():
    """Calls of one signature side by side, long enough to meet: each gets the numbers of its own arrays."""
    inputs = [[made(1, 2, 96, 16) for _ in range(3)] for _ in range(4)]
    layer, rows = mha.MultiHeadAttention(32, 2), made(4, 1, 64, 32)
    for path in ("exact", "fast"):
        said = {"path": path, "threads": 1}
        expected = [general(sdpa, *x, **said) for x in inputs], [general(layer, x, **said) for x in rows]
        wrong, start = [], threading.Barrier(4)

        def work(i):
            start.wait()
            for _ in range(30):
                if outcome(sdpa, *inputs[i], **said) != expected[0][i]:
                    wrong.append(("heads", path, i))
                if outcome(layer, rows[i], **said) != expected[1][i]:
                    wrong.append(("layer", path, i))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, sorted(set(wrong))


def test_kept_calls_of_every_kind():
    """Three times the same call with other numbers gives the bits of the general way."""
    layer = mha.MultiHeadAttention(16, 2, window=(3, 3))
    rope, tables = mha.Rope("interleaved"), [np.cos(np.ones((9, 4))), np.sin(np.ones((9, 4)))]
    for dtype, said, mask in itertools.product(("f4", "f8"), (
            {}, {"window": (2, 1)}, {"scale": 0.3}, {"rope": rope}, {"sinks": (1.0, -1.0)}, {"path": "exact"},
            {"offset": "bottom-right", "causal": True}, {"rope": mha.Rope(cos=tables[0], sin=tables[1])}),
            (None, "?", "f4", "f8")):
        for trial in range(3):
            q, k, v = (made(2, 2, n, 8, dtype=dtype) for n in (5, 9, 9))
            seen = None if mask is None else made(5, 9) > 0 if mask == "?" else made(2, 1, 5, 9, dtype=mask)
            for call, inputs, more in (
                    (sdpa, (q, k, v), {"attn_mask": seen}), (mha.attention, (q, k, v), {}),
                    (layer, (x := q.reshape(2, 5, 16),), {}), (layer, (x, k.reshape(2, 9, 16)), {}),
                    (layer, (x, *[y.reshape(2, 9, 16) for y in (k, v)]), {}), (layer, (x[0],), {})):
                if call is layer and ("sinks" in said or dtype == "f8" and "path" not in said):
                    continue
                y = call(*inputs, **said, **more)
                np.testing.assert_array_equal(y, call(*inputs, **said, **more, out_dtype=y.dtype))
                assert y.dtype == dtype
    for _ in range(2):
        y = layer(x[:, :2])
        layer.set("b_O", R.standard_normal(16))  # a kept call sees new weights
        assert not np.array_equal(layer(x[:, :2]), y)
        layer.settings["window"] = (0, 0)  # and other settings
        np.testing.assert_array_equal(layer(x[:, :2]), layer(x[:, :2], return_stages=["lse"])[0])
        with pytest.raises(ValueError, match="value: expected None without key"):
            layer(x[:, :2], None, x[:, :2])
