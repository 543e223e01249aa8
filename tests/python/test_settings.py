"""Every row of the library's table of settings as a keyword: by its name and aliases, of its kind, checked by it."""
import importlib.util
import pathlib

import mha
import numpy as np
import pytest
from conftest import ROOT
from mha.core.semantics import Semantics, Sizes, settings_of
from mha.core.settings import ROWS, SETTINGS, WORDS, has

SIZES = Sizes(2, 4, 5, 6)
Q = np.random.default_rng(0).standard_normal((2, 4, 6, 8)).astype("f4")
LENGTHS = {"(B)": SIZES.B, "(h)": SIZES.h, "(n_sequences + 1)": 4}


def takes_only_booleans(row):
    kind = ROWS.get(row.needs)
    return kind is not None and "keeps" in kind.words and "additive" not in kind.words


def value_of(row):
    """Something that a row takes."""
    if row.kind == "choice":
        return row.words[-1]
    if row.kind == "view":
        return np.ones((2, 3), "?" if takes_only_booleans(row) else "f4")
    if row.is_array:
        return np.arange(LENGTHS[row.shape], dtype="i8" if row.kind == "wholes" else "f8")
    if row.kind == "switch":
        return True
    limits = row.pointer.contents
    return (min(max(0.5, limits.lowest), limits.highest) if row.kind == "real" else
            min(max(3, limits.least), limits.most))


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_is_a_keyword(name):
    row, value = ROWS[name], value_of(ROWS[name])
    beside = ({"cu_seqlens_q": [0, 1, 2, 3]} if row.needs == "cu_seqlens_q" else
              {row.needs: "keeps"} if takes_only_booleans(row) else {})
    for word in (name, *row.aliases):
        struct = Semantics(SIZES, {word: value, **beside}).struct
        assert row.given(struct) and has({word: value}, name)
        if not row.is_array:
            assert row.value(struct) == value
        again = Semantics(SIZES, settings_of(struct, SIZES)).struct
        assert row.given(again) and (row.is_array or row.value(again) == value)
        for wrong in (object(), "no such word", -1j, [[1], [2, 3]]):
            with pytest.raises((TypeError, ValueError), match=rf"^{word}\b"):
                Semantics(SIZES, {word: wrong})
    assert row.meaning in SETTINGS[name] or name in WORDS
    assert not row.given(Semantics(SIZES, {name: None}).struct)
    for word in row.aliases:
        with pytest.raises(TypeError, match=f"^({name}|{word}): expected one of .*, found both"):
            Semantics(SIZES, {word: value, name: value})
    for foreign in sorted(set(row.foreign) - set(WORDS)):
        with pytest.raises(TypeError, match=f"^{foreign}: expected a name of mha.SETTINGS, found '{foreign}'; use "):
            mha.scaled_dot_product_attention(Q, Q, Q, **{foreign: value})


def test_words_that_are_several_rows():
    for said, rows in (({"window": (2, -1)}, {"window_left": 2}),
                       ({"is_causal": True}, {"causal": 1}),
                       ({"block_size": (2, 3)}, {"block_queries": 2, "block_keys": 3}),
                       ({"query_scale": (0.5, 3, 1)}, {"query_scale_growth": 0.5, "query_scale_every": 3}),
                       ({"offset": "bottom-right"}, {"offset": 1}), ({"offset": [1, 2]}, {"position_offset": None}),
                       ({"offset": "bottom-right", "cu_seqlens_q": [0, 2, 5]}, {"position_offset": None}),
                       ({"rope": mha.Rope("interleaved", 4)}, {"rope": "interleaved", "rope_dim": 4}),
                       ({"position_bias": mha.Bias("grid", None, height=3)}, {"bias_rule": "grid", "bias_height": 3}),
                       ({"relative": mha.Relative(k=np.ones((3, 8)), q_scale=2.0)}, {"relative_q_scale": 2.0})):
        struct = Semantics(SIZES, said).struct
        for name, value in rows.items():
            assert ROWS[name].given(struct) and (value is None or ROWS[name].value(struct) == value)
    for both in ({"window": (1, 1), "window_left": 2}, {"rope": mha.Rope(), "rope_base": 3.0},
                 {"offset": [1, 2], "position_offset": [1, 2]}):
        with pytest.raises(TypeError, match="found both"):
            Semantics(SIZES, both)


def test_a_setting_without_effect_is_refused():
    for row in ROWS.values():
        if row.needs and not row.is_array and row.needs != "cu_seqlens_q":
            with pytest.raises(ValueError, match=f"^{row.name}: expected (0, or )?`{row.needs}"):
                mha.scaled_dot_product_attention(Q, Q, Q, **{row.name: value_of(row)})


def test_a_call_overrides_its_layer_in_any_spelling():
    layer = mha.MultiHeadAttention(8, 2, alibi=[0.5, 0.25], causal=True)
    x = np.ones((1, 5, 8), "f4") * np.arange(5, dtype="f4")[:, None]
    plain = mha.MultiHeadAttention(8, 2, causal=True)
    np.testing.assert_array_equal(layer(x, alibi_slopes=None), plain(x))
    assert not np.array_equal(layer(x), plain(x))
    np.testing.assert_array_equal(plain(x, alibi_slopes=[0.5, 0.25]), layer(x))
    with pytest.raises(ValueError, match="^alibi: expected shape"):
        plain(x, alibi=[1.0])
    with pytest.raises(ValueError, match="^window: expected a whole number from 0"):
        plain(x, window=(-2, 1))
    with pytest.raises(ValueError, match=r"^rope\.base: expected a finite number above 0"):
        plain(x, rope=mha.Rope(base=-1.0))
    with pytest.raises(ValueError, match="^kv_lengths|^lengths"):
        mha.check(Q, Q, Q, Q, lengths=[99, -1])


@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if row.kind == "choice"))
def test_a_word_is_read_in_each_spelling(name):
    choices = ROWS[name].pointer.contents.choices.decode().split("|")
    for number, spellings in enumerate(choices):
        for spelling in spellings.split("="):
            assert ROWS[name].value(Semantics(SIZES, {name: spelling}).struct) == ROWS[name].words[number]
    with pytest.raises(ValueError, match=name):
        Semantics(SIZES, {name: "no such word"})


def test_types_of_settings_are_those_of_the_library():
    """`make pages` writes src/python/mha/core/typed.py."""
    spec = importlib.util.spec_from_file_location("wheel_types", f"{ROOT}/src/packaging/wheel_types.py")
    types = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(types)
    assert types.python() == pathlib.Path(ROOT, "src/python/mha/core/typed.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if takes_only_booleans(row)))
def test_an_array_of_booleans_takes_no_numbers(name):
    with pytest.raises(TypeError, match=f"{name}: expected booleans, found float32"):
        Semantics(SIZES, {name: np.zeros((1, 1), np.float32)})
    with pytest.raises(ValueError, match=f"{name}_kind: expected 'keeps' or 'hides' for a boolean mask"):
        Semantics(SIZES, {name: np.zeros((1, 1), bool)})
