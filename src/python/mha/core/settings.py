"""The settings of a call: the rows that the library lists, and the words of this module in addition."""
from __future__ import annotations

import ctypes
import difflib
from typing import Iterable, Mapping, Optional, Union

from . import abi
from .library import call, lib
from .tables import optional

_KINDS = {abi.CONSTANTS[name]: name.removeprefix("MHA_SETTING_").lower() for name in abi.ENUMS["mha_setting_kind"]}
_GROUPS = {abi.CONSTANTS[name]: name.removeprefix("MHA_SETTINGS_").lower()
           for name in abi.ENUMS["mha_setting_group"]}


class Setting:
    """One row of the library's table, see mha/setting.h.

    kind: "switch", "whole", "count", "real", "choice"; of arrays "view", "wholes", "reals".
    group: "place", "qkv", "visible", "added" or "softmax".
    words: of a choice, in the order of its values. pointer: the row itself, for functions of the library.
    """

    def __init__(self, pointer: ctypes._Pointer[abi.Setting]) -> None:
        row = pointer.contents
        self.pointer, self.at, self.kind = pointer, int(row.at), _KINDS[row.kind]
        self.group = _GROUPS[row.group]
        self.name, self.meaning = (text.decode() for text in (row.name, row.meaning))
        self.aliases, self.foreign = ((optional(text) or "").split() for text in (row.aliases, row.foreign))
        spellings = [word.split("=") for word in (optional(row.choices) or "").split("|") if word]
        self.words = [of_word[0] for of_word in spellings]
        self._words = {spelling: of_word[0] for of_word in spellings for spelling in of_word}
        self.has_mark = int(row.given_at) != ctypes.c_size_t(-1).value  # 0 is a value of it, too
        self.unset, self.shape = optional(row.unset), optional(row.shape)
        self.needs = (optional(row.needs) or "").partition("=")[0]

    @property
    def is_array(self) -> bool:
        """Whether it is no number, switch or word."""
        return self.kind in ("view", "wholes", "reals")

    def word(self, value: object) -> object:
        """The word of a spelling; what is none stays as it is."""
        return self._words.get(value, value) if isinstance(value, str) else value

    def put(self, number: float, struct: abi.Semantics) -> None:
        """Sets a number, True or False, or the index of a word; what the library refuses is raised."""
        if number == 0 and not self.has_mark:
            return
        if -2**53 <= number <= 2**53 or isinstance(number, float):
            call(lib.mha_setting_put_number, self.pointer, number, ctypes.byref(struct))
        else:
            call(lib.mha_setting_put, self.pointer, str(number).encode(), ctypes.byref(struct))

    def given(self, struct: abi.Semantics) -> bool:
        """Whether it is set."""
        return bool(lib.mha_setting_given(self.pointer, ctypes.byref(struct)))

    def value(self, struct: abi.Semantics) -> Union[float, str]:
        """The number, True or False, or the word that is set; its default where that is a word."""
        number = lib.mha_setting_number(self.pointer, ctypes.byref(struct))
        if self.kind == "choice":
            return self.words[int(number)]
        return number if self.kind == "real" else bool(number) if self.kind == "switch" else int(number)

    def length(self, struct: abi.Semantics, B: int, h: int) -> int:
        """How many numbers an array has that is given as a pointer, in a call of B batch rows and h heads."""
        return int(lib.mha_setting_length(self.pointer, ctypes.byref(struct), B, h))

    def __str__(self) -> str:
        unset = f"{self.unset} when None" if self.unset not in (None, "0") else ""
        return "; ".join(filter(None, (self.shape, self.meaning, " or ".join(map(repr, self.words)), unset)))


def _rows() -> Iterable[Setting]:
    index = 0
    while pointer := lib.mha_setting_at(index):
        yield Setting(pointer)
        index += 1


ROWS = {row.name: row for row in _rows()}
_ALIASES = {alias: row for row in ROWS.values() for alias in row.aliases}

# Words of this module that are several rows, another kind of value of one, or a weight.
WORDS = {
    "is_causal": "causal, aligned top-left, as PyTorch and JAX do: query i sees keys j <= i",
    "offset": "position of query 0: a number, one for each batch row, 'top-left' (0) or 'bottom-right' (S - T_q)",
    "window": "(left, right): keys farther away than that are hidden; -1 is open",
    "block_size": "(n, m): queries and keys in a block of blocks",
    "rope": "mha.Rope: rotates queries and new keys; or its kind alone, 'interleaved' or 'half_split'",
    "query_scale": "(growth, every, first): queries times 1 + growth * log(1 + (position + first) // every)",
    "position_bias": "mha.Bias: adds a number from a table to each score, by where query and key stand",
    "relative": "mha.Relative: adds products of queries and keys with rows of tables, chosen by where both stand",
}


def _weights() -> Iterable[tuple[str, str]]:
    kinds = {abi.CONSTANTS[f"MHA_WEIGHT_{kind}"] for kind in ("ROW", "SINK", "NORM", "NORM_BIAS")}
    for index, name in enumerate(abi.WEIGHTS):
        weight = lib.mha_weight_at(index).contents
        if weight.kind in kinds and not weight.of_latents:
            yield name, f"{weight.symbol.decode()}: {weight.meaning.decode()}"


WEIGHTS = dict(_weights())  # that a call without a layer takes by name
WORDS.update(WEIGHTS)

# Every setting, with what it means; the same words in every function of the module.
SETTINGS = {**{name: str(row) for name, row in ROWS.items()}, **WORDS}
__doc__ = "\n".join([f"{__doc__}\n", *(f"{name}: {meaning}" for name, meaning in SETTINGS.items())])

# Words of others that are no settings here, and what says the same.
_ELSEWHERE = {
    "need_weights": "return_stages=['weights']", "keep": "return_stages",
    "average_attn_weights": "return_stages=['weights_mean'] of a layer",
    "local_window_size": "window=(left, right)", "window_size": "window=(left, right)",
    "sliding_window": "window=(N - 1, 0) for N keys, the query's own among them", "logits_soft_cap": "softcap",
    "key_value_seq_lengths": "kv_lengths", "kdim": "d_kin", "vdim": "d_vin", "add_bias_kv": "bias_kv=True",
    "batch_first": "layout of the call, 'BTE' or 'TBE'",
}


def row_of(name: str) -> Optional[Setting]:
    """The row of a name or alias."""
    return ROWS.get(name) or _ALIASES.get(name)


def has(settings: Mapping[str, object], name: str) -> bool:
    """Whether a setting is given, by its own name or an alias."""
    return any(settings.get(each) is not None for each in (name, *ROWS[name].aliases))


def expect_settings(names: Iterable[str]) -> None:
    """TypeError for a name that is no setting, with the nearest one."""
    for name in names:
        if name in WORDS or row_of(name):
            continue
        near = [row.name for row in ROWS.values() if name in row.foreign]
        near += difflib.get_close_matches(name, SETTINGS, 1)
        meant = f"; use {_ELSEWHERE.get(name) or near[0]}" if name in _ELSEWHERE or near else ""
        raise TypeError(f"{name}: expected a name of mha.SETTINGS, found {name!r}{meant}")


def merged(own: Mapping[str, object], more: Mapping[str, object]) -> dict[str, object]:
    """Both settings; those of `more` override, in any spelling."""
    found: dict[str, object] = {}
    for name, value in (*own.items(), *more.items()):
        row = row_of(name)
        for other in [other for other in found if other != name and row and row_of(other) is row]:
            del found[other]
        found[name] = value
    return found
