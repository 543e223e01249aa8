"""The fields of a layer's configuration: the rows that the library lists, each a keyword of mha.MultiHeadAttention."""
from __future__ import annotations

import textwrap
from typing import Iterable, Union

from . import abi
from . import arrays as a
from .library import lib
from .tables import optional

_KINDS = {abi.CONSTANTS[name]: name.removeprefix("MHA_CONFIG_").lower() for name in abi.ENUMS["mha_config_kind"]}

_BIASES = ("bias_q", "bias_k", "bias_v", "bias_o", "bias_latent")  # the argument bias sets those that are not given


class Field:
    """One row of the library's table, see mha/setting.h.

    kind: "size", "switch", "choice" or "type". words: of a choice, in the order of its values.
    """

    def __init__(self, row: abi.ConfigField) -> None:
        self.name, self.meaning = row.name.decode(), row.meaning.decode()
        self.kind, self.unset = _KINDS[row.kind], optional(row.unset)
        self.words = (optional(row.choices) or "").split("|")

    def put(self, value: object, config: abi.Config) -> None:
        """Checks a value, and sets it."""
        if self.kind == "size":
            number = a.whole_number(self.name, value, 0)
        elif self.kind == "switch":
            number = a.flag(self.name, value)
        elif self.kind == "choice":
            number = a.choice(self.name, value, self.words)
        else:
            number = a.weight_type(self.name, value)
        setattr(config, self.name, number)

    def value(self, config: abi.Config) -> Union[int, str]:
        """The number, True or False, or the word that is set."""
        number = getattr(config, self.name)
        return self.words[number] if self.kind == "choice" else a.NAMES[number] if self.kind == "type" else number

    def __str__(self) -> str:
        unset = "bias" if self.name in _BIASES else self.unset
        words = ", ".join(map(repr, self.words))
        types = {"size": "int, default None", "choice": f"{{{words}}}, default {self.words[0]!r}",
                 "switch": f"bool, default {'None' if unset else False}"}
        text = self.meaning[:1].upper() + self.meaning[1:] + (f"; None: {unset}" if unset else "")
        return f"{self.name} : {types.get(self.kind, 'str or dtype')}\n" + textwrap.fill(
            f"{text}.", 116, initial_indent=" " * 4, subsequent_indent=" " * 4)


def _rows() -> Iterable[Field]:
    index = 0
    while pointer := lib.mha_config_field_at(index):
        if _KINDS[pointer.contents.kind] != "types":
            yield Field(pointer.contents)
        index += 1


FIELDS = {field.name: field for field in _rows()}
