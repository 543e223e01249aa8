"""Writes the settings of a call as a type checker sees them: wheel_types.py OUTPUT, with the module mha on the path.

Names and kinds are those of mha.core.settings; each function takes those that are no arguments of its own.
"""
from __future__ import annotations

import inspect
import sys
from typing import Callable

import mha
from mha.core.fields import FIELDS
from mha.core.settings import ROWS, WORDS

KINDS = {"switch": "Flag", "whole": "SupportsIndex", "count": "SupportsIndex", "size": "SupportsIndex",
         "real": "SupportsFloat", "choice": "str", "view": "ArrayLike", "wholes": "Numbers", "reals": "Numbers",
         "type": "Type"}
TYPES = {name: KINDS[row.kind] for row in ROWS.values() for name in (row.name, *row.aliases)}
TYPES.update(dict.fromkeys(WORDS, "Numbers"))  # weights and pairs
TYPES.update(causal="Flag", is_causal="Flag", offset="Union[SupportsIndex, str, Numbers]", rope="Union[Rope, str]",
             position_bias="Bias", relative="Relative")

LAYER = mha.MultiHeadAttention
# Which functions share a kind of settings, and what each takes beside those of mha.core.settings.
FACES: dict[str, tuple[list[Callable[..., object]], dict[str, str]]] = {
    "TorchSettings": ([mha.scaled_dot_product_attention], {}),
    "FlashSettings": ([mha.attention], {}),
    "PagedSettings": ([mha.paged_attention], {}),
    "LayerFields": ([LAYER.__init__],
                    {"embed_dim": "SupportsIndex", "num_heads": "SupportsIndex",
                     **{name: KINDS[field.kind] for name, field in FIELDS.items()}}),
    "LayerSettings": ([LAYER.from_torch, LAYER.from_file], {}),
    "CallSettings": ([LAYER.__call__], {}),
    "MeantSettings": ([mha.check, mha.diagnose, mha.testing.assert_attention_close, mha.testing.power],
                      {"past_key": "ArrayLike", "past_value": "ArrayLike", "attn_mask": "ArrayLike",
                       "enable_gqa": "Flag", "window_size": "Numbers", "softmax_scale": "SupportsFloat"}),
}


def fields(names: dict[str, str]) -> list[str]:
    """The lines of a class."""
    return [f"    {name}: Optional[{kind}]" for name, kind in sorted(names.items())] or ["    pass"]


def python() -> str:
    """The text of the module."""
    faces = {}
    for face, (functions, more) in FACES.items():
        own = {name for function in functions for name in inspect.signature(function).parameters}
        faces[face] = {name: kind for name, kind in {**TYPES, **more}.items() if name not in own}
    common = {name: kind for name, kind in TYPES.items() if all(face.get(name) == kind for face in faces.values())}
    lines = ['"""The settings of a call as a type checker sees them. Written by `make pages` (wheel_types.py)."""',
             "from __future__ import annotations", "",
             "from typing import Optional, SupportsFloat, SupportsIndex, TypedDict, Union", "",
             "import numpy as np", "", "from .kinds import ArrayLike, Numbers",
             "from .semantics import Bias, Relative, Rope", "", 'Flag = Union[bool, "np.bool_"]', "", "",
             "class Settings(TypedDict, total=False):", '    """What every call takes, see mha.SETTINGS."""', "",
             *fields(common)]
    for face, names in faces.items():
        lines += ["", "", f"class {face}(Settings, total=False):",
                  f'    """Of {", ".join(each.__qualname__ for each in FACES[face][0])}."""', "",
                  *fields({name: kind for name, kind in names.items() if name not in common})]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(python())
