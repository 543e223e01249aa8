"""Rules of who sees whom: as settings they hide what they say they hide; a mask made of them is read as the same."""
from dataclasses import replace

import mha
import numpy as np
import pytest
from mha.torch.visibility import OPEN, Rules, read


def drawn(seed):
    """Rules of a random kind, and the sizes of a call."""
    r = np.random.default_rng(seed)
    B, S = int(r.integers(1, 4)), int(r.integers(1, 14))
    T_q = S if r.random() < 0.6 else int(r.integers(1, S + 1))
    offset = S - T_q if r.random() < 0.8 else 0
    rules = Rules(offset, causal=bool(r.random() < 0.7))
    kind = ["plain", "window", "chunk", "packed"][r.integers(4)]
    if kind == "window":
        rules = replace(rules, window=(int(r.integers(0, S + 1)), -1 if rules.causal else int(r.integers(0, S + 1))))
    if kind == "chunk":
        rules = replace(rules, chunk=int(r.integers(1, S + 1)))
    if kind == "packed" and T_q == S:
        numbers = np.cumsum(r.random((B, S)) < 0.3, 1)
        rules = Rules(0, rules.causal, q_segments=numbers, k_segments=numbers)
    if r.random() < 0.4:
        keys = np.ones((B, S), bool)
        for row in keys:
            hidden = int(r.integers(0, S))
            row[slice(0, hidden) if r.random() < 0.5 else slice(S - hidden, S)] = False
        rules = replace(rules, keys=keys)
    return r, rules, B, T_q, S


@pytest.mark.parametrize("seed", range(300))
def test_settings_hide_what_rules_say(seed):
    r, rules, B, T_q, S = drawn(seed)
    q, k = r.standard_normal((B, 2, T_q, 4)), r.standard_normal((B, 2, S, 4))
    _, trace = mha.scaled_dot_product_attention(q, k, k, return_stages=["weights"], **rules.settings())
    seen = rules.keeps(np.arange(T_q), S)
    np.testing.assert_array_equal(trace["weights"] > 0, np.broadcast_to(seen[:, None], (B, 2, T_q, S)))


def test_read():
    """What is read hides the same from every query that sees a key, and most that is drawn is read; a key flipped is
    never passed over."""
    missed = []
    for seed in range(300):
        r, rules, B, T_q, S = drawn(seed)
        rows = np.arange(T_q)
        keeps = np.broadcast_to(rules.keeps(rows, S), (B, T_q, S)).copy()
        for flipped in (False, True):
            keeps[tuple(int(r.integers(n)) for n in keeps.shape)] ^= flipped
            found = read(keeps, rows, T_q)
            if found is not None:
                assert ((found.keeps(rows, S) == keeps) | ~keeps.any(2)[:, :, None]).all()
            elif keeps.any() and not flipped:
                missed.append(rules.words())
    assert len(missed) < 30 and not any(words in ("full", "causal") for words in missed), missed


def test_read_names_the_rule():
    rows = np.arange(12)
    for rules, words in ((Rules(), "full"), (Rules(causal=True), "causal"),
                         (Rules(causal=True, window=(2, -1)), "causal, window 3"),
                         (Rules(window=(2, 2)), "window -2..+2"), (Rules(causal=True, chunk=4), "causal, chunk 4"),
                         (Rules(4, causal=True), "causal")):
        keys = np.ones((1, 16 if rules.offset else 12), bool)
        found = read(rules.keeps(rows, keys.shape[1]), rows, 12)
        assert found is not None and found.words() == words
        assert (found.offset, found.window) == (rules.offset, rules.window) or found.window == OPEN
    assert read(np.random.default_rng(0).random((1, 12, 12)) < 0.5, rows, 12) is None
    assert read(np.zeros((1, 12, 12), bool), rows, 12) is None


def test_rows_of_a_mask():
    """Some rows are enough to read the rule of all."""
    rules, rows = Rules(causal=True, window=(7, -1)), np.array([0, 1, 9, 30, 62, 63])
    assert read(rules.keeps(rows, 64), rows, 64) == rules
