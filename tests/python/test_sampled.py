"""Gradients checked on a sample: the numbers and bounds of the whole; bugs in a head, a tile or a row are found."""
import mha
import numpy as np
import pytest
from mha.core import arrays
from mha.core.backward import MeantBackward
from mha.judge.part import Cut, runs
from mha.judge.gradients import ComputedGradients
from mha.core.reference import Meant
from mha.judge.sample import Sample, chosen_rows, rows_wanted, words
from test_backward import backward

R = np.random.default_rng(11)
B, H, HK, T, S, D, DV = 2, 4, 2, 37, 41, 8, 6

SAID = {
    "plain": {}, "causal": {"is_causal": True}, "offset": {"is_causal": True, "offset": 4},
    "window": {"window": (5, 3)},
    "bottom-right": {"is_causal": True, "offset": "bottom-right", "window": (9, 0)},
    "softcap": {"softcap": 2.0, "scale": 0.4}, "sinks": {"sinks": R.standard_normal(H)},
    "mask": {"attn_mask": R.random((T, S)) < 0.7}, "bias": {"attn_mask": R.standard_normal((B, 1, T, S))},
    "masks": {"attn_mask": R.standard_normal((H, T, S)), "is_causal": True, "kv_lengths": [30, 41]},
    "padding": {"key_padding": R.random((B, S)) < 0.8, "key_padding_kind": "keeps"},
    "queries": {"query_padding": R.random((B, T)) < 0.8, "query_padding_kind": "keeps", "sinks": R.standard_normal(H)},
    "segments": {"q_segments": R.integers(0, 3, (B, T)), "k_segments": R.integers(0, 3, (B, S))},
    "chunk": {"chunk": 9}, "prefix": {"is_causal": True, "prefix": 5},
    "empty": {"empty_rows": "nan", "is_causal": True, "offset": -3}, "plus-one": {"softmax_plus_one": True},
    "zero-row": {"zero_row": True}, "lse": {"dlse": R.standard_normal((B, H, T)), "softmax_plus_one": True},
    "sigmoid": {"normaliser": "sigmoid", "sigmoid_bias": -1.0, "is_causal": True},
    "alibi": {"alibi_slopes": np.array([0.1, 0.2, 0.3, 0.4]), "is_causal": True},
    "rope": {"rope": mha.Rope("half_split")}, "scaled": {"query_scale": (0.1, 4, 0)},
    "positions": {"rope": mha.Rope("interleaved", q_positions=R.integers(0, 99, (B, T)),
                                   k_positions=R.integers(0, 99, (B, S)))},
    "norm": {"norm_unweighted": True}, "table": {"position_bias": mha.Bias(table=R.standard_normal((8, H)),
                                                                           rule="buckets")},
    "relative": {"relative": mha.Relative(k=R.standard_normal((9, H * D)))},
}
EAGER = {"weights": "bfloat16", "d_weights": "bfloat16", "scores": "bfloat16"}


def meant(said, B=B, H=H, HK=HK, T=T, S=S, D=D, DV=DV):
    q, k, v, do = (R.standard_normal(s).astype("f4") for s in ((B, H, T, D), (B, HK, S, D), (B, HK, S, DV),
                                                               (B, H, T, DV)))
    said = dict(said)
    dlse = said.pop("dlse", None)
    return MeantBackward(Meant(q, k, v, None, None, {"enable_gqa": True, **said}), do, dlse)


@pytest.mark.parametrize("dtype,precision", [("float32", None), ("bfloat16", None), ("bfloat16", EAGER)])
@pytest.mark.parametrize("name", SAID)
def test_parts_are_those_of_the_whole(name, dtype, precision):
    """Each part has the whole's numbers; bounds of keys are the whole's or a little more, of queries at most that."""
    of, names = meant(SAID[name]), ["query", "key", "value"]
    computed = ComputedGradients(dtype, precision, arrays.floats("q", np.zeros(1, "f4")))
    exact, bound = of.run(names), of.bound(names, computed.unit, computed.precision)
    dlse = of.dlse.array if "dlse" in SAID[name] else None
    cut = Cut(of.request)
    assert cut.whole == ""
    sample = Sample(cut, of.do, dlse, exact, computed.unit, computed.precision, 12)
    seen = dict.fromkeys(names, 0)
    worst = 24 if dtype == "float32" else 6  # a part lacks keys, and takes the largest error of all lse
    for part in sample.check(lambda of, x: of.bound(list(x), computed.unit, computed.precision)):
        for name_, yours in part.yours.items():
            np.testing.assert_allclose(part.exact[name_], yours, rtol=0, atol=1e-13)
            whole = bound[name_][part.batch:part.batch + 1, part.rows][:, :, part.head:part.head + yours.shape[2]]
            ratio = part.allowed[name_][whole > 1e-30] / whole[whole > 1e-30]
            assert ratio.size == 0 or ratio.max() < worst
            if name_ != "query" and name not in ("sigmoid", "softcap"):  # errors of their own keys alone
                assert ratio.size == 0 or ratio.min() >= 0.9  # another number of terms than the whole
            seen[name_] += yours.shape[1]
    assert seen == {"query": 12 * B * H, "key": 12 * B * HK, "value": 12 * B * HK}


def test_what_cannot_be_cut():
    for said, name in (({"key_lists": np.zeros((B, H, T, 3), "i8")}, "key_lists"), ({"clip_qkv": 1.0}, "clip_qkv"),
                       ({"blocks": np.ones((B, H, 5, 6), bool), "blocks_kind": "keeps", "block_size": (8, 8)},
                        "blocks")):
        of = meant(said)
        assert Cut(of.request).whole == name and rows_wanted(Cut(of.request), 0) == 0
        exact = [of.turned(x, y) for x, y in of.run(["query", "key", "value"]).items()]
        given = [of.turned("query", t.array) for t in (*of.request.inputs, of.do)]
        mha.testing.assert_gradients_close(*exact, *given, enable_gqa=True, **said)
        with pytest.raises(ValueError, match=rf"^sample: expected None, found \d+; {name}: "):
            mha.testing.assert_gradients_close(*exact, *given, enable_gqa=True, sample=8, **said)


def test_rows_are_chosen():
    rows = R.standard_normal((1000, 2, 8))
    rows[300] *= 50
    rows[411] = 0
    rows[622, 1, 3] = np.nan
    chosen = chosen_rows(rows, 64, 1)
    assert len(chosen) == len(set(chosen.tolist())) == 64 and (np.diff(chosen) > 0).all()
    assert {0, 999, 127, 128, 300, 411, 622} <= set(chosen.tolist())
    assert np.array_equal(chosen, chosen_rows(rows, 64, 1)) and not np.array_equal(chosen, chosen_rows(rows, 64, 2))
    for T, wanted in ((5, 9), (5, 5), (5, 1), (9, 2), (40, 7), (1, 1)):
        assert len(set(chosen_rows(rows[:T], wanted, 1).tolist())) == min(T, wanted)
    assert runs(np.array([0, 1, 2, 5, 7, 8])) == [slice(0, 3), slice(5, 6), slice(7, 9)]


def test_how_many_are_checked():
    def wanted(sample=0, **sizes):
        return rows_wanted(Cut(meant({}, **{"B": 1, "D": 64, "DV": 64, **sizes}).request), sample)

    assert wanted() == 0 and wanted(sample=99) == 0 and wanted(sample=20) == 20
    assert wanted(H=1, HK=1, T=2300, S=2300) == 0 and wanted(H=1, HK=1, T=3400, S=3400) == 256
    assert wanted(H=8, HK=2, T=2048, S=2048) == 256
    assert wanted(B=4, H=8, HK=2, T=1024, S=1024) == 64 and wanted(B=16, H=8, HK=8, T=512, S=512) == 32
    assert "checked on 12 of 37 query rows (dq) and 12 of 41 keys (dk, dv) of each head" in words(
        Cut(meant({}).request), 12)


# ---------------------------------------------------------------- bugs, planted in the gradients

TOKENS = 160


@pytest.fixture(scope="module", params=[False, True], ids=["open", "causal"])
def right(request):
    r = np.random.default_rng(4)
    x = [r.standard_normal((2, h, TOKENS, 16)).astype("f4") for h in (4, 2, 2, 4)]
    return request.param, x, [y.astype("f4") for y in backward(*x, causal=request.param)]


def checked(right, dq, dk, dv, sample=24, **said):
    causal, x, _ = right
    mha.testing.assert_gradients_close(dq, dk, dv, *x, is_causal=causal, enable_gqa=True, sample=sample, **said)


def test_right_ones_pass(right):
    causal, x, d = right
    checked(right, *d)
    checked(right, None, None, d[2])
    checked(right, d[0], None, None)
    checked(right, *d, rtol=1e-4, atol=1e-4)
    checked(right, *d, sample=TOKENS)
    turned = [y.swapaxes(1, 2) for y in (*d, *x)]
    mha.testing.assert_gradients_close(*turned, layout="BTHD", is_causal=causal, sample=24)


def _in(name, where, change):
    def plant(d):
        d[name][where] = change(d[name][where])
    return plant


def _exchanged(d):
    d["dk"], d["dv"] = d["dv"], d["dk"]


def _next_row(d):
    d["dq"][:] = np.roll(d["dq"], 1, axis=2)


HEAD, TILE, LATE = np.s_[1, 1], np.s_[0, 1, 64:80], np.s_[:, :, -1]
PLANTED = {
    "scale of dq": (_in("dq", np.s_[:], lambda x: x * 4), "scale-missing-dq"),
    "scale of dk": (_in("dk", np.s_[:], lambda x: x * 4), "scale-missing-dk"),
    "mean of a group": (lambda d: (_in("dk", np.s_[:], lambda x: x / 2)(d), _in("dv", np.s_[:], lambda x: x / 2)(d)),
                        "group-mean"),
    "dk and dv": (_exchanged, "dk-dv-exchanged"),
    "sign": (_in("dk", np.s_[:], lambda x: -x), ""),
    "another row": (_next_row, ""),
    "a head of dq": (_in("dq", np.s_[1, 3], lambda x: x * 4), "scale-missing-dq"),
    "a head of dk": (_in("dk", HEAD, lambda x: x * 4), "scale-missing-dk"),
    "a head of dv": (_in("dv", HEAD, lambda x: x * 1.001), ""),
    "a tile of dq": (_in("dq", TILE, lambda x: x * 1.01), ""),
    "a tile of dk": (_in("dk", TILE, lambda x: 0 * x), ""),
    "a tile of dv": (_in("dv", TILE, lambda x: 2 * x), ""),
    "the last query": (_in("dq", LATE, lambda x: 0 * x + 1e-3), ""),
    "the last key": (_in("dk", LATE, lambda x: x + 1e-3), ""),
    "one NaN": (_in("dv", np.s_[0, 1, 77, 3], lambda x: np.nan), ""),
    "one infinity": (_in("dk", np.s_[1, 0, 99, 0], lambda x: np.inf), ""),
    "one row of zeros": (_in("dq", np.s_[1, 2, 101], lambda x: 0 * x), ""),
    "one row far off": (_in("dv", np.s_[0, 0, 93], lambda x: 30 * x), ""),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_bugs_are_found(right, kind):
    plant, name = PLANTED[kind]
    d = {name: x.copy() for name, x in zip(("dq", "dk", "dv"), right[2])}
    plant(d)
    with pytest.raises(AssertionError) as failed:
        checked(right, *d.values())
    message = str(failed.value)
    changed = [word for word, x, y in zip(d, d.values(), right[2]) if not np.array_equal(x, y, equal_nan=True)]
    assert [line.split()[0] for line in message.split("\n") if " differs: " in line] == changed
    assert "checked on 24 of 160 query rows (dq) and 24 of 160 keys (dk, dv) of each head; what is" in message
    assert f" {name} (" in message if name else ("explained by" in message or "explains it" in message), message
    if "worst at" in message and kind.startswith(("a head", "one", "a tile")):
        wrong = np.argwhere(d[changed[0]] != right[2][["dq", "dk", "dv"].index(changed[0])]).tolist()
        place = message.split("worst at (")[1].split(")")[0]
        assert [int(i) for i in place.split(",")] in wrong


def test_what_is_wrong_elsewhere_alone_is_missed(right):
    """One element, that no row around it gives away, in a row that is not of the sample."""
    dq = right[2][0].copy()
    row = next(i for i in range(1, TOKENS) if i not in chosen_rows(dq[0, 0], 24, 1))
    dq[0, 0, row, 5] += 1e-3
    checked(right, dq, *right[2][1:])
    with pytest.raises(AssertionError, match=rf"dq differs: 1 of (.|\n)*worst at \(0, 0, {row}, 5\)"):
        checked(right, dq, *right[2][1:], sample=0)


def test_sums_over_rows_are_not_sampled(right):
    causal, x, d = right
    sinks = np.zeros(4)
    *found, more = mha.attention_backward(*x, layout="BHTD", also=["sinks"], sinks=sinks, is_causal=causal,
                                          enable_gqa=True)
    checked(right, *found, sample=0, sinks=sinks, also=more)
    with pytest.raises(ValueError, match="^sample: expected None, found \\d+; also: sinks is a sum over rows"):
        checked(right, *found, sinks=sinks, also=more)
    layer = mha.MultiHeadAttention(16, 4)
    rows, do = R.standard_normal((1, 9, 16)).astype("f4"), R.standard_normal((1, 9, 16)).astype("f4")
    with pytest.raises(ValueError, match="^sample: expected None, found \\d+; layer: "):
        mha.testing.assert_gradients_close(layer.backward(do, rows)["query"], None, None, rows, None, None, do,
                                           layer=layer, sample=3)
    with pytest.raises(ValueError, match="sample: "):
        checked(right, *d, sample=-1)
